"""Scores to weights: how much each patch contributes to the embedding of its image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bools, Floats
from flawsort.core.threads import blocks

# The number of images whose scores are converted to double precision at a time.
ROWS_AT_ONCE = 4096


def uniform_weights(shape: tuple[int, int], valid: Bools | None = None) -> NDArray[np.float32]:
    """Every valid patch counts the same (the paper's "average"). shape: (n_images, n_patches)."""
    weights = np.ones(shape, np.float32) if valid is None else valid.astype(np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def soft_weights(
    scores: Floats, temperature: float, valid: Bools | None = None
) -> NDArray[np.float32]:
    """alpha proportional to exp(score / temperature) over an image's patches (Eq. 5 and 6).

    scores: (n_images, n_patches). temperature: the paper's tau, in the units of the scores.
    Returns (n_images, n_patches); rows sum to 1, patches that are not valid get 0.
    """
    if not 0 < temperature < np.inf:
        raise OptionError(f"temperature must be greater than 0 and finite. Got {temperature}.")
    values = np.asarray(scores, np.float64)
    if valid is not None:
        values = np.where(valid, values, -np.inf)
    # Shifted by each row's largest score, so that a tiny temperature stays finite.
    weights = np.exp((values - values.max(axis=1, keepdims=True)) / temperature)
    shares: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return shares.astype(np.float32)


def hard_weights(scores: Floats, k: int, valid: Bools | None = None) -> NDArray[np.float32]:
    """Equal weights for the k patches of an image with the highest scores (Appendix A.1).

    scores: (n_images, n_patches). k: an image with fewer valid patches uses all of them. Of equal
    scores the first patch is taken. Returns (n_images, n_patches); rows sum to 1.
    """
    chosen = _highest(scores, k, valid)
    return uniform_weights(chosen.shape, chosen)


def soft_top_weights(
    scores: Floats, k: int, temperature: float, valid: Bools | None = None
) -> NDArray[np.float32]:
    """Soft weights among the patches that hard_weights chooses, 0 elsewhere (Appendix A.1)."""
    return soft_weights(scores, temperature, _highest(scores, k, valid))


def mask_weights(shares: Floats, valid: Bools | None = None) -> NDArray[np.float32]:
    """Weights from a ground-truth mask: the paper's upper bound.

    shares: (n_images, n_patches), 0 to 1, how much of each patch is marked. Returns (n_images,
    n_patches), the shares scaled so that rows sum to 1. An image in which no valid patch is
    marked, such as a normal one, gets uniform weights.
    """
    values = np.asarray(shares, np.float64)
    if valid is not None:
        values = np.where(valid, values, 0)
    wrong = values[~((values >= 0) & (values < np.inf))]  # NaN is wrong too
    if len(wrong):
        raise InputError(f"shares must be finite and not negative. Got {wrong[0]}.")
    totals = values.sum(axis=1, keepdims=True)
    weights = uniform_weights(values.shape, valid)
    np.divide(values, totals, out=weights, where=totals > 0, casting="same_kind")
    return weights


def score_spread(scores: Floats, valid: Bools | None = None) -> float:
    """The standard deviation of all scores of a set, the unit of a relative temperature.

    In this unit one temperature suits every backbone; an absolute temperature does not.
    """
    values = np.asarray(scores, np.float64)
    spread = float(values.std() if valid is None else values[valid].std())
    return spread if spread > 1e-9 else 1.0  # equal scores: any temperature gives uniform weights


def image_scores(
    scores: Floats, valid: Bools | None = None, tile: tuple[int, int] | None = None
) -> NDArray[np.float64]:
    """(n_images,): the mean score of each image's most unusual patches, 1% of what it was looked at
    in: of the whole image or, in a photo of several tiles, of as many patches as one tile has. So a
    small flaw counts as much in a large photo as in a small one. tile: see Bags."""
    count = max(1, round(0.01 * (scores.shape[1] if tile is None else tile[0] * tile[1])))
    lowest = float(scores.min(initial=np.inf))
    means = np.empty(len(scores))
    for block in blocks(len(scores), ROWS_AT_ONCE):
        values = np.asarray(scores[block], np.float64)
        if valid is not None:
            values = np.where(valid[block], values, lowest)
        means[block] = np.partition(values, -count, axis=1)[:, -count:].mean(axis=1)
    return means


def _highest(scores: Floats, k: int, valid: Bools | None) -> Bools:
    """(n_images, n_patches): whether a patch is among the k valid ones with the highest scores."""
    if k < 1:
        raise OptionError(f"k must be at least 1, the number of patches that count. Got {k}.")
    values = np.asarray(scores, np.float64)
    if valid is not None:
        values = np.where(valid, values, -np.inf)
    chosen = np.zeros(values.shape, bool)
    order = np.argsort(-values, axis=1, kind="stable")
    np.put_along_axis(chosen, order[:, :k], True, axis=1)
    # If fewer than k are valid, invalid ones were chosen too.
    return chosen if valid is None else chosen & valid

"""Scores to weights: how much each patch says about what is unusual in its image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.errors import OptionError
from flawsort.records import Bools, Floats


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


def score_spread(scores: Floats, valid: Bools | None = None) -> float:
    """The standard deviation of all scores of a set, the unit of a relative temperature.

    Measured in this unit one temperature serves every backbone, where an absolute one does not.
    """
    values = np.asarray(scores, np.float64)
    spread = float(values.std() if valid is None else values[valid].std())
    return spread if spread > 1e-9 else 1.0  # all patches alike: any temperature is uniform


def image_scores(scores: Floats, valid: Bools | None = None) -> NDArray[np.float64]:
    """(n_images,): the mean of each image's most unusual patches, one in a hundred."""
    values = np.asarray(scores, np.float64)
    if valid is not None:
        values = np.where(valid, values, values.min())
    count = max(1, round(0.01 * values.shape[1]))
    means: NDArray[np.float64] = np.partition(values, -count, axis=1)[:, -count:].mean(axis=1)
    return means

"""The extent of flaws: how large they are and what shape they have, which pooled patches lose.

A small and a large hole, or a scratch and a stain, may consist of much the same patches. How the
scores decrease from the most unusual patch to the mean of all shows how strong and how large a flaw
is. How far the unusual patches are spread shows whether it is long, round or scattered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Floats
from flawsort.core.threads import blocks
from flawsort.embeddings.weights import ROWS_AT_ONCE, soft_weights

# The profile of an image: the mean scores of these shares of its patches, the most unusual ones.
PROFILE_SHARES = (1 / 100, 1 / 10, 1.0)
# The temperature of the weights that define the shape, in standard deviations of the set's scores.
SHAPE_TEMPERATURE = 0.3
# The share of the patches that define the shape.
SHAPE_PATCHES = 1 / 8
# The weights of the profile and of the shape relative to the pooled patches. Chosen on all dev sets
# together (docs/evidence/experiments.md).
PROFILE_WEIGHT = 0.28
SHAPE_WEIGHT = 0.18
# Extents with a smaller standard deviation over a set are not scaled up further. The profile is in
# standard deviations of all scores, the shape in logarithms. On the dev sets they vary by more.
PROFILE_FLOOR = 0.1
SHAPE_FLOOR = 0.4
# The squared distance below which a shape counts as a point, in an image of side 1.
POINT = 1e-4

N_EXTENTS = len(PROFILE_SHARES) + 2


def extents(
    scores: Floats,
    grid: tuple[int, int],
    spread: float,
    valid: Bools | None = None,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> NDArray[np.float64]:
    """(n_images, N_EXTENTS): the profile of each image's scores, then the logarithms of the
    variances of its unusual patches along their longer and their shorter axis.

    scores: (n_images, n_patches). grid: rows and columns of the patches. spread: the standard
    deviation of the set's scores. rows_at_once: the number of images measured at a time.
    """
    found = np.empty((len(scores), N_EXTENTS))
    for block in blocks(len(scores), rows_at_once):
        values = np.asarray(scores[block], np.float64)
        seen = None if valid is None else valid[block]
        n_profile = len(PROFILE_SHARES)
        found[block, :n_profile] = _profiles(values, seen)
        found[block, n_profile:] = _shapes(values, grid, spread, seen)
    return found


def _profiles(scores: NDArray[np.float64], valid: Bools | None) -> NDArray[np.float64]:
    """(n_images, n_shares): the mean scores of the most unusual valid patches, for each share."""
    counted = np.full(len(scores), scores.shape[1])
    if valid is not None:
        scores = np.where(valid, scores, -np.inf)
        counted = valid.sum(axis=1)
    sums = np.cumsum(-np.sort(-scores, axis=1), axis=1)
    columns = []
    for share in PROFILE_SHARES:
        taken = np.maximum(1, np.round(share * counted)).astype(np.int64)
        columns.append(sums[np.arange(len(scores)), taken - 1] / taken)
    return np.stack(columns, axis=1)


def _shapes(
    scores: NDArray[np.float64], grid: tuple[int, int], spread: float, valid: Bools | None
) -> NDArray[np.float64]:
    """(n_images, 2): from the second moments of the positions of the weights, in units of the
    image."""
    weights = soft_weights(scores, SHAPE_TEMPERATURE * spread, _highest(scores, valid))
    weights = weights.astype(np.float64)
    # With sums that are 1 only in single precision, the shape of a thin line would depend on its
    # position.
    weights /= weights.sum(axis=1, keepdims=True)
    rows, columns = grid
    down, across = np.divmod(np.arange(rows * columns), columns)
    y, x = (down + 0.5) / rows, (across + 0.5) / columns
    mean_y, mean_x = weights @ y, weights @ x
    var_y, var_x = weights @ y**2 - mean_y**2, weights @ x**2 - mean_x**2
    covariance = weights @ (x * y) - mean_y * mean_x
    middle = (var_y + var_x) / 2
    apart = np.sqrt((var_y - var_x) ** 2 / 4 + covariance**2)
    axes = np.stack([middle + apart, middle - apart], axis=1)
    logarithms: NDArray[np.float64] = np.log(np.maximum(axes, 0) + POINT)
    return logarithms


def _highest(scores: NDArray[np.float64], valid: Bools | None) -> Bools:
    """(n_images, n_patches): the share SHAPE_PATCHES with the highest scores. All equal scores are
    included, so that the shape does not depend on the order of the patches."""
    values = scores if valid is None else np.where(valid, scores, -np.inf)
    count = max(1, round(SHAPE_PATCHES * scores.shape[1]))
    least = -np.partition(-values, count - 1, axis=1)[:, count - 1 : count]
    highest: Bools = values >= np.maximum(least, np.finfo(np.float64).min)
    return highest


@dataclass(frozen=True)
class ExtentAxes:
    """The extents as further coordinates, scaled relative to the spread of the pooled vectors.

    centres, scales: N_EXTENTS each.
    """

    centres: tuple[float, ...]
    scales: tuple[float, ...]

    @classmethod
    def fit(cls, pooled_spread: float, found: NDArray[np.float64], spread: float) -> ExtentAxes:
        """pooled_spread: of the pooled patches. found: (n_images, N_EXTENTS), of the same images.
        spread: the standard deviation of the set's scores."""
        n_profile = len(PROFILE_SHARES)
        wanted = np.full(N_EXTENTS, PROFILE_WEIGHT / np.sqrt(n_profile))
        wanted[n_profile:] = SHAPE_WEIGHT / np.sqrt(N_EXTENTS - n_profile)
        floors = np.full(N_EXTENTS, PROFILE_FLOOR * spread)
        floors[n_profile:] = SHAPE_FLOOR
        scales = wanted * pooled_spread / np.maximum(found.std(axis=0), floors)
        return cls(tuple(found.mean(axis=0).tolist()), tuple(scales.tolist()))

    def measure(self, found: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n_images, N_EXTENTS): extents as coordinates."""
        axes: NDArray[np.float64] = (found - np.array(self.centres)) * np.array(self.scales)
        return axes

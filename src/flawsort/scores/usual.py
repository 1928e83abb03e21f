"""What is usual for a set: scores less the usual score at their place, on one scale.

A seam, an edge or a glossy spot is far from its nearest normal patch on every good part. Without
normals the same holds for what varies at one place in most images. So the usual score of each
place is subtracted, and scores are expressed in standard deviations. Then one threshold serves all
places, and scores of several views can be averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.core.grids import Grid
from flawsort.core.records import Bools, Floats

# The share of the usual score at a place that is subtracted. Among peers it is the median over
# images that may be flawed, and images may be turned or moved, so a smaller share is better
# (docs/evidence/experiments.md).
NORMAL_SHARE = 1.0
PEER_SHARE = 0.25
# Distances vary by this much in rounding alone. A smaller spread is none: scores then keep their
# scale, and fit in half precision.
NO_SPREAD = 1e-4


@dataclass(frozen=True)
class Usual:
    """The usual scores of one view. places: (n_patches,), the score to subtract at each place.
    spread: the standard deviation of scores after that; the unit of calibrated scores."""

    places: NDArray[np.float32]
    spread: float

    def calibrate(self, scores: Floats) -> NDArray[np.float32]:
        """(n, n_patches): 0 for a usual score, 1 for a standard deviation more."""
        return np.asarray((scores - self.places) / np.float32(self.spread), np.float32)


def usual_of_normals(scores: Floats, grid: Grid) -> Usual:
    """The usual scores of normals. scores: (n_normals, n_patches), of normals compared with the
    other normals; NaN where a patch does not count."""
    return _usual(scores, _mean_at_places(scores), grid, NORMAL_SHARE)


def calibrate_normals(scores: Floats, grid: Grid, usual: Usual) -> NDArray[np.float32]:
    """(n_normals, n_patches): the calibrated scores of the normals that `usual` comes from.

    What is usual for each of them is measured on the others. Otherwise they would look more normal
    than any new image. NaN stays NaN.
    """
    calibrated = np.empty(scores.shape, np.float32)
    everyone = NORMAL_SHARE * _smoothed(_mean_at_places(scores), grid)
    for row in range(len(scores)):
        others = np.delete(scores, row, axis=0)
        known = others if np.isfinite(others).any() else scores
        moved = NORMAL_SHARE * _smoothed(_mean_at_places(known), grid) - everyone
        calibrated[row] = usual.calibrate(scores[row : row + 1] - moved)
    return calibrated


def usual_of_peers(scores: Floats, grid: Grid, valid: Bools | None = None) -> Usual:
    """The usual scores of a set without normals. scores, valid: (n_images, n_patches)."""
    counted = scores if valid is None else np.where(valid, scores, np.nan)
    return _usual(counted, _median_at_places(counted), grid, PEER_SHARE)


def joined(scores: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """The mean of calibrated scores of several views on one grid."""
    if len(scores) == 1:
        return scores[0]
    return np.asarray(np.mean(scores, axis=0, dtype=np.float32), np.float32)


def _usual(scores: Floats, places: NDArray[np.float64], grid: Grid, share: float) -> Usual:
    taken = share * _smoothed(places, grid)
    left = (np.asarray(scores, np.float64) - taken)[np.isfinite(scores)]
    if not left.size:  # nothing is known: scores then stay as they are
        return Usual(np.zeros(len(places), np.float32), 1.0)
    spread = float(left.std())
    return Usual((taken + left.mean()).astype(np.float32), spread if spread > NO_SPREAD else 1.0)


def _mean_at_places(scores: Floats) -> NDArray[np.float64]:
    counted = np.isfinite(scores)
    sums = np.where(counted, scores, 0.0).sum(axis=0, dtype=np.float64)
    return _filled(sums, counted.sum(axis=0))


def _median_at_places(scores: Floats) -> NDArray[np.float64]:
    known: Bools = np.asarray(np.isfinite(scores).any(axis=0))
    medians = np.zeros(scores.shape[1])
    medians[known] = np.nanmedian(np.asarray(scores[:, known], np.float64), axis=0)
    return _filled(medians, known)


def _filled(sums: NDArray[np.float64], counts: NDArray[np.integer] | Bools) -> NDArray[np.float64]:
    """Means, with their own mean at places that never count."""
    known = counts > 0
    means = sums / np.maximum(counts, 1)
    means[~known] = means[known].mean() if known.any() else 0.0
    return means


def _smoothed(places: NDArray[np.float64], grid: Grid) -> NDArray[np.float64]:
    """The mean over each place and its eight neighbours, with the border repeated."""
    padded = np.pad(places.reshape(grid), 1, mode="edge")
    rows, columns = grid
    total = sum(
        padded[down : down + rows, across : across + columns]
        for down in range(3)
        for across in range(3)
    )
    smooth: NDArray[np.float64] = np.asarray(total) / 9
    return smooth.ravel()

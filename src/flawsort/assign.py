"""New images into the groups of a run, with a confidence, or to none of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.cluster import Placement, centres, place
from flawsort.records import Floats, Ints

# An image shows a kind not seen before when it is farther from its three nearest images of the
# run than 95 in 100 images of the run are from theirs. docs/method.md has the error rates.
NEIGHBOURS = 3
KNOWN_QUANTILE = 0.95
# That distance is asked of at most so many images of the run.
LIMIT_IMAGES = 4000
UNSEEN = -1


@dataclass(frozen=True)
class Assignment:
    """Where new images belong. All arrays are (n,).

    labels: the group, or -1 for a kind not seen before. nearest: the group whose centre is
    nearest, whatever the label. confidence: the share of the run's images that lie less clearly
    in their group; 0 where the label is -1. novelty: distance to the nearest images of the run,
    in units of the limit; above 1 the label is -1.
    """

    labels: NDArray[np.int64]
    nearest: NDArray[np.int64]
    confidence: NDArray[np.float64]
    novelty: NDArray[np.float64]
    placed: Placement


def assign_embeddings(new: Floats, fitted: Floats, labels: Ints) -> Assignment:
    """new: (n, dim). fitted, labels: (n_fitted, dim) and (n_fitted,), the run's own images."""
    from scipy.spatial.distance import cdist

    middles = centres(fitted, labels)
    nearest = cdist(np.asarray(new, np.float64), middles).argmin(axis=1)
    placed = place(new, nearest, middles)
    own = np.sort(_margin(place(fitted, labels, middles)))
    confidence = np.searchsorted(own, _margin(placed), side="right") / len(own)
    novelty = _neighbour_distance(new, fitted, itself=False) / _known_limit(fitted)
    unseen = novelty > 1
    return Assignment(
        labels=np.where(unseen, UNSEEN, nearest),
        nearest=nearest,
        confidence=np.where(unseen, 0.0, confidence),
        novelty=novelty,
        placed=placed,
    )


def _margin(placed: Placement) -> NDArray[np.float64]:
    """1 in the centre of a group, 0 half way to the next one; 1 where there is no other."""
    other = np.maximum(placed.runner_up_distance, 1e-12)
    return 1 - np.minimum(placed.distance / other, 1.0)


def _known_limit(fitted: Floats) -> float:
    """How far images of the run are from their nearest ones, but for a few; asked of a part of a
    large run, evenly spread."""
    some = fitted[:: -(-len(fitted) // LIMIT_IMAGES)]
    limit = float(np.quantile(_neighbour_distance(some, fitted, itself=True), KNOWN_QUANTILE))
    return max(limit, 1e-12)


def _neighbour_distance(points: Floats, fitted: Floats, *, itself: bool) -> NDArray[np.float64]:
    """(n,): the mean distance to the nearest fitted images, in blocks of rows.

    itself: the points are among the fitted ones, and none is its own neighbour.
    """
    from scipy.spatial.distance import cdist

    count = min(NEIGHBOURS, len(fitted) - itself)
    means = np.empty(len(points))
    for start in range(0, len(points), 512):
        far = cdist(np.asarray(points[start : start + 512], np.float64), fitted)
        # Its distance from itself is 0, and adds nothing.
        nearest = np.partition(far, count + itself - 1, axis=1)[:, : count + itself]
        means[start : start + 512] = nearest.sum(axis=1) / count
    return means

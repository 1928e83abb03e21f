"""Where images lie among the groups: the distances to their own centre and to the next one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Floats, Ints
from flawsort.core.threads import blocks

# An image is borderline when another group's centre is nearly as near as its own.
BORDERLINE_MARGIN = 0.1
# This many images are compared with all centres at a time, which bounds the memory.
ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class Placement:
    """Where images lie among the groups. All arrays are (n,).

    distance: to the centre of the image's group. runner_up: the group with the nearest other
    centre (-1 where there is only one). runner_up_distance: to that centre.
    """

    distance: NDArray[np.float64]
    runner_up: NDArray[np.int64]
    runner_up_distance: NDArray[np.float64]

    @property
    def margin(self) -> NDArray[np.float64]:
        """(n,): 1 - distance / runner_up_distance, how clearly an image lies in its group.

        1 at the centre of its group and where there is no other group, 0 halfway to the next
        centre, negative beyond; 0 where the image lies exactly at the next centre.
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            margin = 1 - self.distance / self.runner_up_distance
        return np.where(np.isfinite(margin), margin, 0.0)

    @property
    def borderline(self) -> Bools:
        """(n,): whether another group's centre is nearly as near as the image's own."""
        near: Bools = self.margin < BORDERLINE_MARGIN
        return near

    def take(self, rows: Ints) -> Placement:
        """The images at `rows`, in that order."""
        return Placement(self.distance[rows], self.runner_up[rows], self.runner_up_distance[rows])

    @classmethod
    def joined(cls, parts: Sequence[Placement]) -> Placement:
        """The placements of several parts as one, in order."""
        return cls(
            np.concatenate([part.distance for part in parts]),
            np.concatenate([part.runner_up for part in parts]),
            np.concatenate([part.runner_up_distance for part in parts]),
        )


def centres(embeddings: Floats, labels: Ints) -> NDArray[np.float64]:
    """(n_clusters, dim): the mean embedding of each group; labels count from 0."""
    sums = np.zeros((int(labels.max()) + 1, embeddings.shape[1]))
    np.add.at(sums, labels, np.asarray(embeddings, np.float64))
    return sums / np.bincount(labels)[:, None]


def place(embeddings: Floats, labels: Ints, middles: Floats) -> Placement:
    """How far each image is from its own group's centre and from the next one's.

    embeddings: (n, dim). labels: (n,). middles: (n_groups, dim), the centres.
    """
    return place_all(embeddings, middles, labels)[1]


def place_all(
    embeddings: Floats,
    middles: Floats,
    labels: Ints | None = None,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
) -> tuple[NDArray[np.int64], Placement]:
    """(n,) the group of each image, and its placement. labels: (n,); None to take the group with
    the nearest centre. rows_at_once: the number of images compared with all centres at a time."""
    from scipy.spatial.distance import cdist

    groups, own = np.empty(len(embeddings), np.int64), np.empty(len(embeddings))
    other, beside = np.empty(len(embeddings), np.int64), np.empty(len(embeddings))
    for block in blocks(len(embeddings), rows_at_once):
        far = cdist(np.asarray(embeddings[block], np.float64), middles)
        groups[block] = far.argmin(axis=1) if labels is None else labels[block]
        own[block], other[block], beside[block] = split_distances(far, groups[block])
    return groups, Placement(own, other, beside)


def split_distances(
    far: NDArray[np.float64], labels: Ints, comparable: Bools | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """For each image the distance to its own centre, the group with the nearest other centre (-1
    for none), and the distance to that centre (infinite for none).

    far: (n, n_groups), distances or squared distances. It is modified: the entry of an image's own
    group becomes infinite. comparable: (n_groups,), True for groups that may be the nearest other
    one; None for all.
    """
    rows = np.arange(len(far))
    own = far[rows, labels]
    far[rows, labels] = np.inf
    if comparable is not None:
        far[:, ~comparable] = np.inf
    other = far.argmin(axis=1)
    beside = far[rows, other]
    return own, np.where(np.isinf(beside), -1, other), beside


def typicality(distance: Floats, labels: Ints) -> NDArray[np.float64]:
    """(n,): 1 for the image nearest to its group's centre, falling evenly towards 0."""
    typical = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = np.argsort(distance[members], kind="stable")
        typical[members[order]] = 1 - np.arange(len(members)) / len(members)
    return typical

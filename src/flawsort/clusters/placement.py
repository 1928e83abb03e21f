"""Where images lie among the centres of groups: how near to their own, and to the next one."""

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
        """(n,): how much nearer its own centre is to an image than the next one, as a share.

        1 in the centre of its group and where there is no other group, 0 halfway to the next one,
        less than 0 beyond; 0 also where the image lies in the next centre.
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            margin = 1 - self.distance / self.runner_up_distance
        return np.where(np.isfinite(margin), margin, 0.0)

    @property
    def borderline(self) -> Bools:
        """(n,): whether another group is nearly as near."""
        near: Bools = self.margin < BORDERLINE_MARGIN
        return near

    def take(self, rows: Ints) -> Placement:
        """The images at `rows`, in that order."""
        return Placement(self.distance[rows], self.runner_up[rows], self.runner_up_distance[rows])

    @classmethod
    def joined(cls, parts: Sequence[Placement]) -> Placement:
        """The images of one part after the other."""
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
    embeddings: Floats, middles: Floats, labels: Ints | None = None
) -> tuple[NDArray[np.int64], Placement]:
    """The group of each image, (n,), and where it lies. labels: None for the nearest centre's."""
    from scipy.spatial.distance import cdist

    of, own = np.empty(len(embeddings), np.int64), np.empty(len(embeddings))
    other, beside = np.empty(len(embeddings), np.int64), np.empty(len(embeddings))
    for some in blocks(len(embeddings), ROWS_AT_ONCE):
        far = cdist(np.asarray(embeddings[some], np.float64), middles)
        of[some] = far.argmin(axis=1) if labels is None else labels[some]
        own[some], other[some], beside[some] = split_distances(far, of[some])
    return of, Placement(own, other, beside)


def split_distances(
    far: NDArray[np.float64], labels: Ints, comparable: Bools | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """For each image the distance to its own centre, the nearest other one (-1 for none) and the
    distance to that, infinite where there is none.

    far: (n, n_groups), distances or their squares; overwritten: infinite at an image's own group.
    comparable: (n_groups,), the groups that may be the nearest other one; None for all.
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

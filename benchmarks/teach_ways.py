"""Ways to use the answers of a simulated person: the taught model, and what it is compared with.

The parts of benchmarks/teach.py that know neither images nor files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import UNSEEN, Groups, resembles_none
from flawsort.clusters.placement import centres
from flawsort.core.records import Bools, Floats, Ints
from flawsort.labels.space import Space
from flawsort.labels.taught import Examples, Taught

WRONG_SHARE = 0.05


@dataclass(frozen=True)
class Seen:
    """Images of a set as the product sees them, without `combined`.

    truth: (n,), kinds from 0. normal: the kind without a flaw, or None. embeddings: (n, dim).
    looks_normal: (n,).
    """

    truth: NDArray[np.int64]
    normal: int | None
    embeddings: Floats
    looks_normal: Bools

    @property
    def n_kinds(self) -> int:
        return int(self.truth.max()) + 1

    def take(self, rows: Ints) -> Seen:
        return Seen(self.truth[rows], self.normal, self.embeddings[rows], self.looks_normal[rows])


def order_of(truth: Ints, each: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """The answers of a simulated person: rows and their kinds, `each` of every kind at random, of a
    small kind at most half."""
    for kind in range(int(truth.max()) + 1):
        members = np.flatnonzero(truth == kind)
        for row in rng.permutation(members)[: min(each, len(members) // 2)]:
            yield int(row), kind


@dataclass(frozen=True)
class Student:
    """Images, their coordinates in the space of a run, and the model that learns from answers."""

    seen: Seen
    space: Space
    coordinates: NDArray[np.float32]

    @classmethod
    def of(cls, seen: Seen) -> Student:
        space = Space.of(seen.embeddings)
        return cls(seen, space, space.coordinates(seen.embeddings))

    def fit(self, answers: Sequence[tuple[int, int]]) -> Taught:
        normal = () if self.seen.normal is None else (self.seen.normal,)
        return Taught.fit(Examples.of(self.coordinates, answers), self.space, normal=normal)

    def judge(self, taught: Taught, seen: Seen | None = None) -> NDArray[np.float64]:
        """(n, n_kinds + 1): the probabilities of these images, or of others of the same set; 0 for
        kinds that nobody named."""
        coordinates = self.coordinates
        if seen is None:
            seen = self.seen
        else:
            coordinates = self.space.coordinates(seen.embeddings)
        found = taught.probabilities(coordinates, looks_normal=seen.looks_normal)
        wide = np.zeros((len(found), self.seen.n_kinds + 1))
        wide[:, [*taught.groups, -1]] = found
        return wide


def far_from(inside: Seen, outside: Seen) -> NDArray[np.int64]:
    """(n,): 0 for new images that are near images of the run, UNSEEN for the others."""
    one_group = np.zeros(len(inside.truth), np.int64)
    return Groups.of(inside.embeddings, one_group).assign(outside.embeddings).labels


def as_assigned(judged: NDArray[np.float64], far: Ints, new: Seen) -> NDArray[np.int64]:
    """(n,): the kinds of new images as `flawsort assign` gives them, UNSEEN for a new kind. judged:
    what the taught model says of them. far: from `far_from`."""
    strange = resembles_none(judged, far) & ~new.looks_normal
    found = judged[:, :-1].argmax(axis=1)
    if new.normal is not None:
        found[(judged[:, -1] > 0.5) & new.looks_normal] = new.normal
    return np.where(strange, UNSEEN, found)


def by_clusters(
    embeddings: Floats, clusters: Ints, answers: Sequence[tuple[int, int]]
) -> NDArray[np.int64]:
    """(n,): the kind of each image, where each cluster has the name that most of its answers say.
    A cluster without answers has that of the cluster with the nearest centre."""
    rows, kinds = np.array(answers).T
    votes = np.zeros((int(clusters.max()) + 1, int(kinds.max()) + 1))
    np.add.at(votes, (clusters[rows], kinds), 1)
    middles = centres(embeddings, clusters)
    far = ((middles[:, None] - middles[None]) ** 2).sum(axis=2)
    far[:, votes.sum(axis=1) == 0] = np.inf
    return np.asarray(votes.argmax(axis=1)[far.argmin(axis=1)][clusters], np.int64)


def by_nearest(embeddings: Floats, answers: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """(n,): the kind of the nearest image with an answer."""
    from scipy.spatial.distance import cdist

    rows, kinds = np.array(answers).T
    return np.asarray(kinds[cdist(embeddings, embeddings[rows]).argmin(axis=1)], np.int64)


def by_regression(vectors: Floats, answers: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """(n,): the kind by a balanced logistic regression on these vectors."""
    from sklearn.linear_model import LogisticRegression

    rows, kinds = np.array(answers).T
    centred = vectors - vectors.mean(axis=0)
    centred /= np.sqrt((centred**2).sum(axis=1).mean())
    model = LogisticRegression(C=10.0, class_weight="balanced", max_iter=1000)
    return np.asarray(model.fit(centred[rows], kinds).predict(centred), np.int64)


def with_errors(
    answers: Sequence[tuple[int, int]], n_kinds: int, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """The answers of a person who names a kind at random in WRONG_SHARE of them."""
    wrong = rng.random(len(answers)) < WRONG_SHARE
    kinds = rng.integers(0, n_kinds, len(answers))
    return [
        (row, int(other) if bad else kind)
        for (row, kind), bad, other in zip(answers, wrong, kinds, strict=True)
    ]


def calibration_error(probability: Floats, right: Bools, bins: int = 10) -> float:
    """The mean distance between the probability and the share that is right, over bins."""
    place = np.minimum((probability * bins).astype(int), bins - 1)
    gaps = np.bincount(place, probability - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(right))

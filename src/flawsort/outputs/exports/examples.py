"""Which images stand for a group: typical ones, borderline ones, and others that look like it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import centres
from flawsort.outputs.exports.content import Content
from flawsort.runs.tables import BORDERLINE_MARGIN

EXAMPLES = 6


@dataclass(frozen=True)
class Chosen:
    """The rows of images that stand for a group.

    typical: nearest to its middle first. borderline: the least clear first. counter: of the group
    with the nearest middle, those nearest to this one. nearest: that group, None where there is no
    other. toward: for each borderline image the group that it is close to.
    """

    typical: tuple[int, ...]
    borderline: tuple[int, ...]
    counter: tuple[int, ...]
    nearest: int | None
    toward: dict[int, int]


def choose(content: Content, most: int = EXAMPLES) -> dict[int, Chosen]:
    """For each group with images, by id. No two images of a group have the same content."""
    from scipy.spatial.distance import cdist

    ids, labels = np.unique(content.labelling.labels, return_inverse=True)
    middles = centres(content.run.embeddings, labels)
    far = cdist(np.asarray(content.run.embeddings, np.float64), middles)
    between = cdist(middles, middles)
    np.fill_diagonal(between, np.inf)
    runner_up, margin = _margins(far, labels)
    found = {}
    for place, group in enumerate(ids.tolist()):
        rows = np.flatnonzero(labels == place)
        typical = _first(content, rows[np.argsort(far[rows, place], kind="stable")], most)
        unclear = rows[margin[rows] < BORDERLINE_MARGIN]
        unclear = unclear[np.argsort(margin[unclear], kind="stable")]
        borderline = _first(content, unclear, most, without=typical)
        nearest: int | None = None
        counter: tuple[int, ...] = ()
        if len(ids) > 1:
            nearest = int(between[place].argmin())
            others = np.flatnonzero(labels == nearest)
            others = others[np.argsort(far[others, place], kind="stable")]
            plain = [row for row in others.tolist() if group not in content.kinds[row]]
            counter = _first(content, plain, most)
        toward = {row: int(ids[runner_up[row]]) for row in borderline}
        other = None if nearest is None else int(ids[nearest])
        found[group] = Chosen(typical, borderline, counter, other, toward)
    return found


def _margins(
    far: NDArray[np.float64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest other group of each image, and how much further away it is than its own, as a
    share; 1 where there is no other. far: (n_images, n_groups), to the middles."""
    rows = np.arange(len(labels))
    if far.shape[1] < 2:
        return np.zeros(len(labels), np.int64), np.ones(len(labels))
    own, beside = far[rows, labels], far.copy()
    beside[rows, labels] = np.inf
    runner_up = beside.argmin(axis=1)
    next_best = beside[rows, runner_up]
    with np.errstate(invalid="ignore", divide="ignore"):
        margin = 1 - own / next_best
    return runner_up, np.where(np.isfinite(margin), margin, 0.0)


def _first(
    content: Content, rows: Iterable[int], most: int, without: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """The first rows, each content once."""
    digests = content.run.table["sha256"]
    seen = {digests[row] for row in without}
    found: list[int] = []
    for row in rows:
        if len(found) == most:
            break
        if digests[row] not in seen:
            seen.add(digests[row])
            found.append(int(row))
    return tuple(found)

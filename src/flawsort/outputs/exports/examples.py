"""Example images of a group: typical ones, borderline ones and counter-examples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from flawsort.clusters.placement import centres, place
from flawsort.outputs.exports.content import Content

EXAMPLES = 6


@dataclass(frozen=True)
class Chosen:
    """The rows of the example images of a group.

    typical: nearest to its centre first. borderline: the least clear first. counter: images of the
    nearest group that are nearest to this group's centre. nearest: the id of that group; None if
    there is no other. toward: for each borderline image, the group that it is close to.
    """

    typical: tuple[int, ...]
    borderline: tuple[int, ...]
    counter: tuple[int, ...]
    nearest: int | None
    toward: dict[int, int]


def choose(content: Content, most: int = EXAMPLES) -> dict[int, Chosen]:
    """Examples of each group with images, by id. No two of a group have the same content."""
    from scipy.spatial.distance import cdist

    ids, labels = np.unique(content.labelling.labels, return_inverse=True)
    embeddings = np.asarray(content.run.embeddings, np.float64)
    middles = centres(embeddings, labels)
    placed = place(embeddings, labels, middles)
    margin, borderline = placed.margin, placed.borderline
    between = cdist(middles, middles)
    np.fill_diagonal(between, np.inf)
    found = {}
    for number, group in enumerate(ids.tolist()):
        rows = np.flatnonzero(labels == number)
        typical = _first(content, rows[np.argsort(placed.distance[rows], kind="stable")], most)
        unclear = rows[borderline[rows]]
        unclear = unclear[np.argsort(margin[unclear], kind="stable")]
        doubtful = _first(content, unclear, most, without=typical)
        nearest: int | None = None
        counter: tuple[int, ...] = ()
        if len(ids) > 1:
            nearest = int(between[number].argmin())
            others = np.flatnonzero(labels == nearest)
            far = cdist(embeddings[others], middles[number, None])[:, 0]
            others = others[np.argsort(far, kind="stable")]
            plain = [row for row in others.tolist() if group not in content.kinds[row]]
            counter = _first(content, plain, most)
        toward = {row: int(ids[placed.runner_up[row]]) for row in doubtful}
        other = None if nearest is None else int(ids[nearest])
        found[group] = Chosen(typical, doubtful, counter, other, toward)
    return found


def _first(
    content: Content, rows: Iterable[int], most: int, without: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """The first rows with distinct content."""
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

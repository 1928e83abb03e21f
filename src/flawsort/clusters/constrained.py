"""Clustering again with what people said: must-link and cannot-link inside Ward's tree.

Images that people put in one group are joined first; then the cheapest merge (Ward) that joins no
two of their groups, again and again; when only such merges are left, those. Two groups that people
told apart stay so in any cut that has enough parts for them, and everything that nobody spoke about
goes with what it is nearest to.

A merge of two groups can forbid merges with others but brings nothing nearer, so that heights never
fall, as in Ward's own tree (flawsort.clusters.large_ward).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.large_ward import tree, weighted_ward
from flawsort.clusters.placement import centres
from flawsort.core.errors import OptionError
from flawsort.core.records import Floats, Ints

# All distances of so many images are 32 MB.
LARGEST_EXACT = 2000
MICRO_CLUSTERS = 1500
NOTHING = -1
_MIXED = -2


def constrained_tree(
    embeddings: Floats, said: Ints, *, linkage: Floats | None = None
) -> NDArray[np.float64]:
    """(n - 1, 4): merges in SciPy's convention that keep to what people said.

    embeddings: (n, dim). said: (n,), the group that a person put the image in, or -1 where nobody
    said anything. linkage: (n - 1, 4), the tree of the embeddings without that, where it is known.

    A cut into k parts keeps images of different groups apart if k is at least the number of groups,
    and images of one group together if k is at most n less the merges that join those. Where more
    than LARGEST_EXACT parts are left then, the images that nobody spoke about go by branches: of
    the tree without what was said MICRO_CLUSTERS, split where they hold images of several groups.
    """
    n = len(embeddings)
    _check(said, linkage, n)
    if n < 2:
        return np.empty((0, 4))
    if (said < 0).all():
        return tree(embeddings) if linkage is None else np.array(linkage, np.float64)
    merges = _join_groups(said)
    if n - len(merges) > LARGEST_EXACT:
        known = tree(embeddings) if linkage is None else linkage
        merges = _on_top(merges, n, _branches(known, said, _parts(merges, n)[1]))
    _, parts = _parts(merges, n)
    apart = np.unique(parts[said >= 0])
    more = _ward_apart(centres(embeddings, parts), np.bincount(parts), apart)
    merges = _on_top(merges, n, more)
    # Only merges of groups that people told apart are left: whoever wants fewer parts gets them.
    _, parts = _parts(merges, n)
    return _on_top(merges, n, weighted_ward(centres(embeddings, parts), np.bincount(parts)))


def carry_over(labels: Ints, old: Ints, said: Ints, next_id: int) -> tuple[NDArray[np.int64], int]:
    """Groups of a new clustering under the ids that people know.

    labels: (n,), the new clusters. old: (n,), the id of the image's group so far, or -1 where the
    image is new. said: (n,), the id of the group that a person put it in, or -1. next_id: above all
    of these. Returns (n,) ids and the next one that is free.

    Each id goes to one cluster, so that as many images as possible keep what was said of them, and
    then as many as possible their old group; clusters that share nothing with any get new ids.
    """
    from scipy.optimize import linear_sum_assignment

    if not len(labels) == len(old) == len(said):
        raise OptionError(
            "labels, old and said must have the same length. Got "
            f"{len(labels)}, {len(old)} and {len(said)}."
        )
    clusters, rows = np.unique(labels, return_inverse=True)
    known = np.unique(np.concatenate([old[old >= 0], said[said >= 0]])).astype(np.int64)
    if len(known) and next_id <= known[-1]:
        raise OptionError(f"next_id must be above {known[-1]}, the largest id. Got {next_id}.")
    shared = np.zeros((len(clusters), len(known)))
    # One image that was spoken about counts more than all that were not.
    for ids, weight in ((said, len(labels) + 1), (old, 1)):
        spoken = ids >= 0
        np.add.at(shared, (rows[spoken], np.searchsorted(known, ids[spoken])), weight)
    taken = np.full(len(clusters), NOTHING)
    for row, column in zip(*linear_sum_assignment(shared, maximize=True), strict=True):
        if shared[row, column]:
            taken[row] = known[column]
    new = taken < 0
    taken[new] = next_id + np.arange(new.sum())
    return taken[rows], next_id + int(new.sum())


def _check(said: Ints, linkage: Floats | None, n: int) -> None:
    if said.shape != (n,):
        raise OptionError(f"said must have the shape ({n},), one an image. Got {said.shape}.")
    if not np.issubdtype(said.dtype, np.integer) or said.min(initial=0) < NOTHING:
        raise OptionError(
            "said must be whole numbers: ids of groups from 0 on, or -1 where nothing was said. "
            f"Got {said.dtype} from {said.min(initial=0)} on."
        )
    if linkage is not None and linkage.shape != (n - 1, 4):
        raise OptionError(
            f"linkage must have the shape ({n - 1}, 4), that of {n} images. Got {linkage.shape}."
        )


def _join_groups(said: Ints) -> NDArray[np.float64]:
    """Merges at height 0, one image after another, of the images of each group."""
    n = len(said)
    order = np.argsort(said, kind="stable")
    order = order[said[order] >= 0]
    groups = said[order]
    starts = np.flatnonzero(np.diff(groups, prepend=NOTHING))
    follows = np.ones(len(order), np.bool_)
    follows[starts] = False
    # After each image the node that holds it and those of its group before it.
    nodes = np.where(follows, n - 1 + np.cumsum(follows), order)
    at = np.flatnonzero(follows)
    size = at - starts[np.searchsorted(starts, at) - 1] + 1
    merges = np.stack([nodes[at - 1], order[at], np.zeros(len(at)), size], axis=1)
    merges[:, :2].sort(axis=1)
    return merges


def _parts(merges: Floats, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The nodes that are not merged yet, ascending, and (n,) which of them each image is in."""
    top = np.arange(n + len(merges))
    top[merges[:, :2].astype(int)] = n + np.arange(len(merges))[:, None]
    while not np.array_equal(higher := top[top], top):  # twice as far up each time
        top = higher
    nodes, parts = np.unique(top[:n], return_inverse=True)
    return nodes, parts


def _on_top(merges: Floats, n: int, more: Floats) -> NDArray[np.float64]:
    """Merges, and `more` of the parts that they leave, whose leaves are numbers of parts."""
    nodes, _ = _parts(merges, n)
    numbers = np.concatenate([nodes, n + len(merges) + np.arange(len(more))])
    above = np.array(more, np.float64)
    above[:, :2] = np.sort(numbers[above[:, :2].astype(int)], axis=1)
    # What was told apart may be nearer than what was merged before.
    together = np.concatenate([merges, above])
    together[:, 2] = np.maximum.accumulate(together[:, 2])
    return together


def _branches(linkage: Floats, said: Ints, parts: Ints) -> NDArray[np.float64]:
    """Merges of a tree without the images that somebody spoke about, until MICRO_CLUSTERS of the
    others are left; those with images of several groups below them only if the rest do not do.

    parts: (n,), the part that each image is in so far, which are the leaves of what is returned.
    """
    n_parts = int(parts.max()) + 1
    # Of each node: the one group below it, what stands for it here, and how many images that has.
    group, here = said.tolist(), np.where(said < 0, parts, NOTHING).tolist()
    sizes = [1] * n_parts
    merges, mixed = [], []
    for left, right, height in linkage[:, :3].tolist():
        pair = [int(left), int(right)]
        groups = {group[node] for node in pair} - {NOTHING}
        group.append(NOTHING if not groups else groups.pop() if len(groups) == 1 else _MIXED)
        inside = [here[node] for node in pair if here[node] >= 0]
        if len(inside) < 2:
            here.append(inside[0] if inside else NOTHING)
            continue
        here.append(len(sizes))
        sizes.append(sizes[inside[0]] + sizes[inside[1]])
        merges.append([*inside, height, sizes[-1]])
        mixed.append(group[-1] == _MIXED)
    surplus = max(0, int((said < 0).sum()) - MICRO_CLUSTERS)
    # A node above a mixed one is mixed, so that whatever a chosen merge stands on is chosen too.
    chosen = np.sort(np.argsort(mixed, kind="stable")[:surplus])
    return _renumbered(np.array(merges).reshape(-1, 4), chosen, n_parts)


def _renumbered(merges: Floats, chosen: Ints, n_leaves: int) -> NDArray[np.float64]:
    """The chosen merges, their nodes counted anew."""
    number = np.arange(n_leaves + len(merges))
    number[n_leaves + chosen] = n_leaves + np.arange(len(chosen))
    kept = merges[chosen].astype(np.float64)
    kept[:, :2] = number[kept[:, :2].astype(int)]
    return kept


def _ward_apart(points: Floats, sizes: Ints, apart: Ints) -> NDArray[np.float64]:
    """Ward's merges of m groups, but for those that join two of `apart`, as far as they go.

    points: (m, dim), their centres. sizes: (m,). Returns (at most m - 1, 4) as `weighted_ward`.
    """
    from scipy.spatial.distance import cdist

    m = len(points)
    count = sizes.astype(np.float64)
    # Squared heights: of two single points their squared distance.
    costs = cdist(points, points, "sqeuclidean")
    costs *= 2 * count[:, None] * count / (count[:, None] + count)
    # Infinite is: never. Lance and Williams' formula hands it on to whatever takes a group in.
    costs[np.ix_(apart, apart)] = np.inf
    np.fill_diagonal(costs, np.inf)
    nearest, nodes = costs.argmin(axis=1), np.arange(m)
    least = costs[np.arange(m), nearest]
    merges = []
    while np.isfinite(cost := least.min()):
        one = int(least.argmin())
        other = int(nearest[one])
        size = count[one] + count[other]
        merges.append([nodes[one], nodes[other], np.sqrt(cost), size])
        nodes[one] = m + len(merges) - 1
        row = (count[one] + count) * costs[one] + (count[other] + count) * costs[other]
        costs[one] = costs[:, one] = (row - count * cost) / (size + count)
        costs[other] = costs[:, other] = np.inf
        count[one] = size
        # The others keep their nearest: no merge has come nearer to them.
        stale = np.flatnonzero((nearest == one) | (nearest == other))
        stale = np.union1d(stale, [one, other])
        nearest[stale] = costs[stale].argmin(axis=1)
        least[stale] = costs[stale, nearest[stale]]
    found = np.array(merges).reshape(-1, 4)
    found[:, :2].sort(axis=1)
    return found

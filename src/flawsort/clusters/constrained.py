"""Ward's tree under the constraints of a review: must-link and cannot-link.

The images of each known group are joined first. Then the cheapest merge (Ward) that does not join
two known groups is made, again and again, and the remaining merges come last. So two known groups
stay apart in every cut that has enough parts, and images without a known group join whatever is
nearest.

A merge can forbid later merges, but it never brings groups closer together, so heights never
decrease, as in Ward's unconstrained tree (flawsort.clusters.large_ward).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.large_ward import tree, weighted_ward
from flawsort.clusters.placement import centres
from flawsort.core.errors import OptionError
from flawsort.core.records import Floats, Ints

# The distances of this many parts take 32 MB.
LARGEST_EXACT = 2000
MICRO_CLUSTERS = 1500
NO_GROUP = -1
_MIXED = -2


def constrained_tree(
    embeddings: Floats,
    known_groups: Ints,
    *,
    linkage: Floats | None = None,
    largest_exact: int = LARGEST_EXACT,
    micro_clusters: int = MICRO_CLUSTERS,
) -> NDArray[np.float64]:
    """(n - 1, 4): merges in SciPy's convention that respect the known groups.

    embeddings: (n, dim). known_groups: (n,), the group that a person put the image in, or -1 for
    none. linkage: (n - 1, 4), the unconstrained tree of the embeddings, if it is already built.

    A cut into k parts keeps images of different known groups apart if k is at least the number of
    these groups, and images of one group together if k is at most n minus the number of merges
    within groups. If more than `largest_exact` parts remain after those merges, the images without
    a known group are first joined into `micro_clusters` branches of the unconstrained tree, which
    are split where they hold images of several groups.
    """
    n = len(embeddings)
    _check(known_groups, linkage, n)
    if n < 2:
        return np.empty((0, 4))
    if (known_groups < 0).all():
        return tree(embeddings) if linkage is None else np.array(linkage, np.float64)
    merges = _join_groups(known_groups)
    if n - len(merges) > largest_exact:
        unconstrained = tree(embeddings) if linkage is None else linkage
        branches = _branches(unconstrained, known_groups, _parts(merges, n)[1], micro_clusters)
        merges = _on_top(merges, n, branches)
    _, parts = _parts(merges, n)
    apart = np.unique(parts[known_groups >= 0])
    more = _ward_apart(centres(embeddings, parts), np.bincount(parts), apart)
    merges = _on_top(merges, n, more)
    # Only merges that join known groups are left. They serve cuts into fewer parts than groups.
    _, parts = _parts(merges, n)
    return _on_top(merges, n, weighted_ward(centres(embeddings, parts), np.bincount(parts)))


def carry_over(
    labels: Ints, old_groups: Ints, known_groups: Ints, next_id: int
) -> tuple[NDArray[np.int64], int]:
    """Give the clusters of a new clustering the ids of the groups that they continue.

    labels: (n,), the new clusters. old_groups: (n,), the id of the image's group so far, or -1 for
    a new image. known_groups: (n,), the id of the group that a person put it in, or -1. next_id: a
    number above all these ids. Returns (n,) ids and the next free one.

    Each id goes to one cluster. As many images as possible keep their known group, then as many as
    possible their old group. Clusters that share no image with any group get new ids.
    """
    from scipy.optimize import linear_sum_assignment

    if not len(labels) == len(old_groups) == len(known_groups):
        raise OptionError(
            "labels, old_groups and known_groups must have the same length. Got "
            f"{len(labels)}, {len(old_groups)} and {len(known_groups)}."
        )
    clusters, rows = np.unique(labels, return_inverse=True)
    both = np.concatenate([old_groups, known_groups])
    ids = np.unique(both[both >= 0]).astype(np.int64)
    if len(ids) and next_id <= ids[-1]:
        raise OptionError(f"next_id must be above {ids[-1]}, the largest id. Got {next_id}.")
    shared = np.zeros((len(clusters), len(ids)))
    # One image with a known group counts more than all images without.
    for groups, weight in ((known_groups, len(labels) + 1), (old_groups, 1)):
        present = groups >= 0
        np.add.at(shared, (rows[present], np.searchsorted(ids, groups[present])), weight)
    id_of = np.full(len(clusters), NO_GROUP)
    for row, column in zip(*linear_sum_assignment(shared, maximize=True), strict=True):
        if shared[row, column]:
            id_of[row] = ids[column]
    new = id_of < 0
    id_of[new] = next_id + np.arange(new.sum())
    return id_of[rows], next_id + int(new.sum())


def _check(known_groups: Ints, linkage: Floats | None, n: int) -> None:
    if known_groups.shape != (n,):
        raise OptionError(
            f"known_groups must have the shape ({n},), one per image. Got {known_groups.shape}."
        )
    lowest = known_groups.min(initial=0)
    if not np.issubdtype(known_groups.dtype, np.integer) or lowest < NO_GROUP:
        raise OptionError(
            "known_groups must be integers: group ids of at least 0, or -1 for none. "
            f"Got {known_groups.dtype} values from {lowest}."
        )
    if linkage is not None and linkage.shape != (n - 1, 4):
        raise OptionError(
            f"linkage must have the shape ({n - 1}, 4) for {n} images. Got {linkage.shape}."
        )


def _join_groups(known_groups: Ints) -> NDArray[np.float64]:
    """Merges at height 0 that join the images of each group, one image after another."""
    n = len(known_groups)
    order = np.argsort(known_groups, kind="stable")
    order = order[known_groups[order] >= 0]
    groups = known_groups[order]
    starts = np.flatnonzero(np.diff(groups, prepend=NO_GROUP))
    follows = np.ones(len(order), np.bool_)
    follows[starts] = False
    # For each image, the node that joins it with the images of its group before it.
    nodes = np.where(follows, n - 1 + np.cumsum(follows), order)
    at = np.flatnonzero(follows)
    size = at - starts[np.searchsorted(starts, at) - 1] + 1
    merges = np.stack([nodes[at - 1], order[at], np.zeros(len(at)), size], axis=1)
    merges[:, :2].sort(axis=1)
    return merges


def _parts(merges: Floats, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The nodes that are not merged yet, in ascending order, and (n,) the part of each image: its
    node's position among them."""
    top = np.arange(n + len(merges))
    top[merges[:, :2].astype(int)] = n + np.arange(len(merges))[:, None]
    while not np.array_equal(higher := top[top], top):  # doubles the levels each time
        top = higher
    nodes, parts = np.unique(top[:n], return_inverse=True)
    return nodes, parts


def _on_top(merges: Floats, n: int, more: Floats) -> NDArray[np.float64]:
    """The merges followed by `more`, which merges the remaining parts; its leaves are parts."""
    nodes, _ = _parts(merges, n)
    numbers = np.concatenate([nodes, n + len(merges) + np.arange(len(more))])
    above = np.array(more, np.float64)
    above[:, :2] = np.sort(numbers[above[:, :2].astype(int)], axis=1)
    # Parts that had to stay apart may be closer than those merged before.
    together = np.concatenate([merges, above])
    together[:, 2] = np.maximum.accumulate(together[:, 2])
    return together


def _branches(
    linkage: Floats, known_groups: Ints, parts: Ints, micro_clusters: int
) -> NDArray[np.float64]:
    """The merges of a tree that join images without a known group, until `micro_clusters` of their
    parts are left. Merges above images of several groups are used only if the others do not
    suffice.

    parts: (n,), the part of each image so far. Parts are the leaves of the returned merges.
    """
    n_parts = int(parts.max()) + 1
    # For each node of the tree: the only group below it, and its node in the returned merges.
    group = known_groups.tolist()
    here = np.where(known_groups < 0, parts, NO_GROUP).tolist()
    sizes = [1] * n_parts
    merges, mixed = [], []
    for left, right, height in linkage[:, :3].tolist():
        pair = [int(left), int(right)]
        groups = {group[node] for node in pair} - {NO_GROUP}
        group.append(NO_GROUP if not groups else groups.pop() if len(groups) == 1 else _MIXED)
        inside = [here[node] for node in pair if here[node] >= 0]
        if len(inside) < 2:
            here.append(inside[0] if inside else NO_GROUP)
            continue
        here.append(len(sizes))
        sizes.append(sizes[inside[0]] + sizes[inside[1]])
        merges.append([*inside, height, sizes[-1]])
        mixed.append(group[-1] == _MIXED)
    surplus = max(0, int((known_groups < 0).sum()) - micro_clusters)
    # A node above a mixed one is mixed too, so the children of a chosen merge are also chosen.
    chosen = np.sort(np.argsort(mixed, kind="stable")[:surplus])
    return _renumbered(np.array(merges).reshape(-1, 4), chosen, n_parts)


def _renumbered(merges: Floats, chosen: Ints, n_leaves: int) -> NDArray[np.float64]:
    """The chosen merges, with their nodes renumbered."""
    number = np.arange(n_leaves + len(merges))
    number[n_leaves + chosen] = n_leaves + np.arange(len(chosen))
    kept = merges[chosen].astype(np.float64)
    kept[:, :2] = number[kept[:, :2].astype(int)]
    return kept


def _ward_apart(points: Floats, sizes: Ints, apart: Ints) -> NDArray[np.float64]:
    """Ward's merges of m groups that do not join two of `apart`, until only such merges are left.

    points: (m, dim), the centres of the groups. sizes: (m,). Returns (at most m - 1, 4), like
    `weighted_ward`.
    """
    from scipy.spatial.distance import cdist

    m = len(points)
    count = sizes.astype(np.float64)
    # Squared heights: for two single points, their squared distance.
    costs = cdist(points, points, "sqeuclidean")
    costs *= 2 * count[:, None] * count / (count[:, None] + count)
    # An infinite cost forbids a merge. The Lance-Williams formula passes it on to merged groups.
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
        # The other groups keep their nearest one: a merge never brings groups closer.
        stale = np.flatnonzero((nearest == one) | (nearest == other))
        stale = np.union1d(stale, [one, other])
        nearest[stale] = costs[stale].argmin(axis=1)
        least[stale] = costs[stale, nearest[stale]]
    found = np.array(merges).reshape(-1, 4)
    found[:, :2].sort(axis=1)
    return found

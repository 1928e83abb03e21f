"""Ward's tree for any number of images: SciPy's, or the same tree without storing all distances.

SciPy needs the distance of every pair: 40 GB for 100,000 images. Ward's linkage is reducible: a
merge never brings groups closer together. So all pairs of mutual nearest neighbours can be merged
at once, and the tree is the same as when only the closest pair is merged in each step (Murtagh
1983; Müllner 2011, arXiv:1109.2378). Only a centre and a size are stored for each group; distances
are computed from the centres, block by block. The time still grows with the square of the number of
images, so very large sets are first cut into micro-clusters; one tree is built over them, and
one inside each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import ward_linkage
from flawsort.core.records import Bools, Floats, Ints, Progress
from flawsort.core.threads import in_threads, single_threaded_blas
from flawsort.scores.nearest import nearest_rows

# At this size SciPy's distances and their copy take 200 MB.
LARGEST_PLAIN = 5000
# The exact tree of 100,000 images takes minutes, and a million would take hours.
LARGEST_EXACT = 150_000
MICRO_CLUSTERS = 10_000
# k-means finds the micro-clusters on a sample of this many images each, in this many rounds.
SAMPLE_OF_A_MICRO_CLUSTER = 20
MICRO_ROUNDS = 4
# The block of costs that a thread computes at once; it fits the cache.
ROWS, COLUMNS = 256, 1024


@dataclass(frozen=True)
class Limits:
    """Which way a tree is built. plain: the most images for `ward_linkage`. exact: the most
    distinct images without micro-clusters. micro_clusters: about so many are made. block: rows and
    columns of the block of costs that a thread computes at once."""

    plain: int = LARGEST_PLAIN
    exact: int = LARGEST_EXACT
    micro_clusters: int = MICRO_CLUSTERS
    block: tuple[int, int] = (ROWS, COLUMNS)


USUAL = Limits()


def tree(
    embeddings: Floats, *, limits: Limits = USUAL, progress: Progress | None = None
) -> NDArray[np.float64]:
    """(n - 1, 4): the merges of Ward's method in SciPy's convention. embeddings: (n, dim).

    Up to `limits.plain` images this is `ward_linkage`. Above that it is the same tree except for
    rounding and the order of equal distances; time grows with n^2, memory with n. Above
    `limits.exact` it is Ward's tree of `limits.micro_clusters` groups, with Ward's tree of its
    images below each.
    """
    n = len(embeddings)
    if n <= limits.plain:
        return ward_linkage(embeddings)
    # Join copies first: all their distances are equal, so they would merge one pair at a time.
    _, first, inverse, copies = np.unique(
        embeddings, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) > limits.exact:
        return _two_levels(np.asarray(embeddings, np.float32), limits, progress)
    merges, tops = _join_copies(inverse.reshape(n))
    distinct = np.asarray(embeddings)[first]
    upper = weighted_ward(distinct, copies, block=limits.block, progress=progress)
    children = upper[:, :2].astype(np.int64)
    # Nodes of the tree of distinct points are numbered after all leaves and merges of copies.
    nodes = np.concatenate([tops, n + len(merges) + np.arange(len(upper))])
    upper[:, :2] = np.sort(nodes[children], axis=1)
    return np.concatenate([merges, upper])


def weighted_ward(
    points: Floats,
    sizes: Ints,
    *,
    block: tuple[int, int] = USUAL.block,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """(m - 1, 4): Ward's merges of groups of points, in SciPy's convention.

    points: (m, dim), the centres of the groups, all different. sizes: (m,), the number of points in
    each group; the last column counts points. block: see Limits. Heights are sqrt(2 x the increase
    of the sum of squares): for two single points, their distance.
    """
    m = len(points)
    centres = np.array(points, np.float64)
    centres -= centres.mean(axis=0)
    # Scaling by a power of two is exact, and keeps squares finite in single precision.
    scale = 2.0 ** np.frexp(np.abs(centres).max(initial=0.0))[1]
    groups = _Groups.of(centres / scale, sizes, block)
    made: list[NDArray[np.float64]] = []
    node = m
    # One thread per product: the results are then the same on any number of cores.
    with single_threaded_blas():
        while len(groups.sizes) > 1:
            groups.find_nearest()
            made.append(groups.merge_reciprocal(node))
            node += len(made[-1])
            if progress:
                progress("linking", node - m, m - 1)
    merges = np.concatenate(made) if made else np.empty((0, 4))
    merges[:, 2] *= scale
    return _by_height(merges)


@dataclass
class _Groups:
    """The groups that are not merged yet, one per row.

    centres: (m, dim). squares: (m,), their squared lengths. sizes: (m,). nodes: (m,), their numbers
    in the tree. heights: (m,), the height of the last merge. nearest: (m,), the row of the group
    that is cheapest to merge with. costs: (m,), the increase of the sum of squares by that merge.
    stale: (m,), True where nearest and costs are outdated. block: see Limits.
    """

    centres: NDArray[np.float64]
    squares: NDArray[np.float64]
    sizes: NDArray[np.float64]
    nodes: NDArray[np.int64]
    heights: NDArray[np.float64]
    nearest: NDArray[np.int64]
    costs: NDArray[np.float64]
    stale: Bools
    block: tuple[int, int]

    @classmethod
    def of(
        cls, centres: NDArray[np.float64], sizes: Ints, block: tuple[int, int] = USUAL.block
    ) -> _Groups:
        m = len(centres)
        return cls(
            centres,
            (centres**2).sum(axis=1),
            np.asarray(sizes, np.float64),
            np.arange(m),
            np.zeros(m),
            np.zeros(m, np.int64),
            np.zeros(m),
            np.ones(m, np.bool_),
            block,
        )

    def find_nearest(self) -> None:
        """Update stale rows in single precision, and again in double precision where rounding could
        change the result."""
        rows = np.flatnonzero(self.stale)
        costs, nearest, second = self._search(rows, np.float32)
        # The rounding error of a difference grows with the squares that are subtracted.
        squares = self.squares[rows] + self.squares[nearest]
        shares = 1 / self.sizes[rows] + 1 / self.sizes[nearest]
        doubt = 4 * np.sqrt(self.centres.shape[1]) * np.finfo(np.float32).eps * squares / shares
        unsure = second - costs <= doubt
        if unsure.any():
            costs[unsure], nearest[unsure], _ = self._search(rows[unsure], np.float64)
        self.costs[rows], self.nearest[rows] = costs, nearest

    def merge_reciprocal(self, node: int) -> NDArray[np.float64]:
        """(n_merged, 4): merge all mutual nearest neighbours. node: the number of the first new
        node."""
        rows = np.arange(len(self.sizes))
        first = np.flatnonzero((self.nearest[self.nearest] == rows) & (rows < self.nearest))
        if not len(first):  # a cycle of equal distances; the cheapest merge is always correct
            first = np.array([self.costs.argmin()])
        second = self.nearest[first]
        sizes = self.sizes[first] + self.sizes[second]
        share = self.sizes[second] / sizes
        step = self.centres[second] - self.centres[first]
        cost = self.sizes[first] * share * (step**2).sum(axis=1)
        # Rounding must not put a merge below its children.
        below = np.maximum(self.heights[first], self.heights[second])
        heights = np.maximum(np.sqrt(2 * cost), below)
        made = np.stack([self.nodes[first], self.nodes[second], heights, sizes], axis=1)
        self.centres[first] += share[:, None] * step
        self.squares[first] = (self.centres[first] ** 2).sum(axis=1)
        self.sizes[first], self.heights[first] = sizes, heights
        self.nodes[first] = node + np.arange(len(first))
        self._drop(first, second)
        return made

    def _drop(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> None:
        """Remove the rows `second`. Mark as stale the merged rows, and those whose nearest group
        was merged."""
        changed = np.zeros(len(self.sizes), np.bool_)
        changed[first] = changed[second] = True
        # The other rows keep their nearest group: a merge never brings groups closer.
        self.stale = changed | changed[self.nearest]
        kept = np.ones(len(self.sizes), np.bool_)
        kept[second] = False
        self.nearest = (np.cumsum(kept) - 1)[self.nearest]
        for name in self.__dataclass_fields__:
            if name != "block":
                setattr(self, name, getattr(self, name)[kept])

    def _search(
        self, rows: NDArray[np.int64], dtype: type[np.floating[Any]]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """For each row the lowest cost of a merge, the group to merge with, and the second lowest
        cost.

        The cost is |a - b|^2 / (1 / size of a + 1 / size of b).
        """
        centres, squares = self.centres.astype(dtype), self.squares.astype(dtype)
        shares = (1 / self.sizes).astype(dtype)
        n_rows, n_columns = self.block

        def search(start: int) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[Any]]:
            own = rows[start : start + n_rows]
            here = np.arange(len(own))
            best, second = np.full((2, len(own)), np.inf, dtype)
            nearest = np.zeros(len(own), np.int64)
            left = -2 * centres[own]
            for column in range(0, len(centres), n_columns):
                others = slice(column, column + n_columns)
                costs = left @ centres[others].T
                costs += squares[others]
                costs += squares[own][:, None]
                costs /= shares[own][:, None] + shares[others]
                inside = (own >= column) & (own < column + n_columns)
                costs[here[inside], own[inside] - column] = np.inf
                at = costs.argmin(axis=1)
                least = costs[here, at]
                costs[here, at] = np.inf
                second = np.minimum(np.maximum(best, least), np.minimum(second, costs.min(axis=1)))
                nearest = np.where(least < best, at + column, nearest)
                best = np.minimum(best, least)
            return best, nearest, second

        found = list(in_threads(search, range(0, len(rows), n_rows)))
        best, nearest, second = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return best.astype(np.float64), nearest, second.astype(np.float64)


def _join_copies(
    inverse: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Merges at height 0 of images with the same content, and (m,) the node of each content.

    inverse: (n,), for each image the number of its content, 0 to m - 1.
    """
    n = len(inverse)
    order = np.argsort(inverse, kind="stable")
    numbers = inverse[order]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    copies = np.ones(n, np.bool_)
    copies[starts] = False
    # For each image, the node that joins it with the copies before it.
    nodes = np.where(copies, n - 1 + np.cumsum(copies), order)
    at = np.flatnonzero(copies)
    count = at - starts[numbers[at]] + 1
    merges = np.stack([nodes[at - 1], order[at], np.zeros(len(at)), count], axis=1)
    merges[:, :2].sort(axis=1)
    return merges, nodes[np.append(starts[1:], n) - 1]


def _two_levels(
    values: NDArray[np.float32], limits: Limits, progress: Progress | None
) -> NDArray[np.float64]:
    """Ward's tree of micro-clusters, with Ward's tree of its images below each."""
    labels = _micro_clusters(values, limits.micro_clusters)
    return tree_of_groups(values, labels, limits=limits, progress=progress)


def tree_of_groups(
    values: NDArray[np.float32],
    labels: Ints,
    *,
    limits: Limits = USUAL,
    progress: Progress | None = None,
) -> NDArray[np.float64]:
    """(n - 1, 4): Ward's tree of each group, and above them Ward's tree of the groups.

    values: (n, dim). labels: (n,), all from 0 to the largest.
    """
    groups = rows_of_groups(labels)
    centres = np.empty((len(groups), values.shape[1]))
    inner = []
    for number, rows in enumerate(groups):
        centres[number] = values[rows].mean(axis=0, dtype=np.float64)
        few = np.empty((0, 4))
        inner.append(tree(values[rows], limits=limits) if len(rows) > 1 else few)
    sizes = np.array([len(rows) for rows in groups])
    upper = weighted_ward(centres, sizes, block=limits.block, progress=progress)
    return joined_trees(labels, inner, upper)


def rows_of_groups(labels: Ints) -> list[NDArray[np.int64]]:
    """The rows of each group, ascending. labels: (n,), all from 0 to the largest."""
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order], prepend=-1, append=labels.max() + 1))
    return [order[start:stop] for start, stop in pairwise(bounds.tolist())]


def joined_trees(
    labels: Ints, inner: list[NDArray[np.float64]], upper: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n - 1, 4): all merges inside groups, from low to high, then the merges of groups.

    labels: (n,), all from 0 to the largest. inner: the tree of each group, whose leaves are its
    rows. upper: the tree of the groups.
    """
    n, node = len(labels), len(labels)
    tops, found = np.empty(len(inner), np.int64), []
    for number, (rows, merges) in enumerate(zip(rows_of_groups(labels), inner, strict=True)):
        nodes = np.concatenate([rows, node + np.arange(len(merges))])
        merges[:, :2] = nodes[merges[:, :2].astype(np.int64)]
        found.append(merges)
        tops[number] = nodes[-1]
        node += len(merges)
    lower, number_of = _sorted_by_height(np.concatenate(found), n)
    nodes = np.concatenate([number_of[tops], node + np.arange(len(upper))])
    sizes = np.concatenate([np.bincount(labels), np.zeros(len(upper))])
    for row, (left, right) in enumerate(upper[:, :2].astype(np.int64)):
        sizes[len(tops) + row] = upper[row, 3] = sizes[left] + sizes[right]
    upper[:, :2] = np.sort(nodes[upper[:, :2].astype(np.int64)], axis=1)
    # Heights must not decrease: two groups may be closer than the images inside a third.
    upper[:, 2] = np.maximum(upper[:, 2], lower[:, 2].max(initial=0.0))
    return np.concatenate([lower, upper])


def _micro_clusters(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """(n,): the micro-cluster of each image, of about `count`, by k-means on a sample."""
    rng = np.random.default_rng(0)
    n_sample = min(len(values), SAMPLE_OF_A_MICRO_CLUSTER * count)
    sample = values[np.sort(rng.permutation(len(values))[:n_sample])]
    centres = sample[np.sort(rng.permutation(n_sample)[:count])]
    for _ in range(MICRO_ROUNDS):
        nearest = nearest_rows(sample, centres)[:, 0]
        order = np.argsort(nearest, kind="stable")
        _, first = np.unique(nearest[order], return_index=True)
        sums = np.add.reduceat(sample[order].astype(np.float64), first, axis=0)
        sizes = np.diff(np.append(first, n_sample))
        centres = (sums / sizes[:, None]).astype(np.float32)
    return np.unique(nearest_rows(values, centres), return_inverse=True)[1].reshape(-1)


def _by_height(merges: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same tree with its merges sorted and its nodes numbered from low to high."""
    return _sorted_by_height(merges, len(merges) + 1)[0]


def _sorted_by_height(
    merges: NDArray[np.float64], n_leaves: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The merges of one or more trees from low to high, and the new number of each node."""
    order = np.argsort(merges[:, 2], kind="stable")  # stable: children stay before their parents
    number = np.arange(n_leaves + len(merges))
    number[n_leaves + order] = n_leaves + np.arange(len(merges))
    ordered = merges[order]
    ordered[:, :2] = np.sort(number[ordered[:, :2].astype(np.int64)], axis=1)
    return ordered, number

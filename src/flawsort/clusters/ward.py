"""Embeddings to groups: Ward's linkage, and cuts of it at any k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.core.records import Floats, Ints


def ward_linkage(embeddings: Floats) -> NDArray[np.float64]:
    """(n - 1, 4): the merges of Ward's method in SciPy's convention. embeddings: (n, dim)."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    # Pass distances: SciPy takes a square matrix of zeros for a distance matrix, and warns.
    merges: NDArray[np.float64] = linkage(pdist(np.asarray(embeddings, np.float64)), method="ward")
    return merges


def cut(merges: Floats, n_clusters: int) -> NDArray[np.int64]:
    """(n,): the labels after the last merges are undone, so that `n_clusters` groups remain.

    Groups are numbered by size, the largest first; equal sizes by their first image.
    """
    n = len(merges) + 1
    if not 1 <= n_clusters <= n:
        raise OptionError(
            f"n_clusters must be between 1 and {n} (the number of images). Got {n_clusters}."
        )
    parent = np.arange(2 * n - 1)
    made = n - n_clusters
    parent[merges[:made, :2].astype(int)] = n + np.arange(made)[:, None]
    while not np.array_equal(higher := parent[parent], parent):  # doubles the levels each time
        parent = higher
    return number_by_size(parent[:n])


def number_by_size(labels: Ints) -> NDArray[np.int64]:
    """The same groups, numbered by size, the largest first; equal sizes by their first image."""
    _, first, inverse, counts = np.unique(
        labels, return_index=True, return_inverse=True, return_counts=True
    )
    ranks = np.empty(len(counts), np.int64)
    ranks[np.lexsort((first, -counts))] = np.arange(len(counts))
    return ranks[inverse]


def reorder_leaves(merges: Floats, order: Ints) -> NDArray[np.float64]:
    """The linkage of the same points in another order: leaf i becomes leaf order[i]."""
    moved = np.array(merges, np.float64)
    n = len(order)
    children = moved[:, :2].astype(int)
    leaves = children < n
    children[leaves] = np.asarray(order)[children[leaves]]
    moved[:, :2] = np.sort(children, axis=1)
    return moved


def linkage_of(merges: Floats, rows: Ints) -> NDArray[np.float64]:
    """(len(rows) - 1, 4): the tree of the leaves `rows`, numbered in that order: the tree `merges`
    (n - 1, 4) without its other leaves."""
    n = len(merges) + 1
    place = np.full(2 * n - 1, -1)
    place[rows] = np.arange(len(rows))
    sizes = [1] * len(rows)
    kept = []
    for step, (left, right, height) in enumerate(merges[:, :3].tolist()):
        one, other = place[int(left)], place[int(right)]
        if one < 0 or other < 0:
            place[n + step] = max(one, other)
            continue
        place[n + step] = len(sizes)
        sizes.append(sizes[one] + sizes[other])
        kept.append((min(one, other), max(one, other), height, sizes[-1]))
    return np.array(kept, np.float64).reshape(-1, 4)

"""Ward's linkage and its cuts, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, is_monotonic, is_valid_linkage

from flawsort.clusters.ward import cut, linkage_of, number_by_size, reorder_leaves, ward_linkage
from flawsort.core.errors import OptionError
from helpers.bags import Array, blobs, same_partition


def points(n: int, *, ties: bool = False, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if ties:  # on a small lattice: many equal distances, and duplicates
        return rng.integers(0, 3, (n, 2)).astype(np.float32)
    return rng.standard_normal((n, 4)).astype(np.float32)


def naive_ward(embeddings: Array, n_clusters: int) -> Array:
    """Merge the two groups that raise the sum of squares least, again and again."""
    groups = [[i] for i in range(len(embeddings))]

    def squares(rows: list[int]) -> float:
        values = embeddings[rows].astype(np.float64)
        return float(((values - values.mean(axis=0)) ** 2).sum())

    while len(groups) > n_clusters:
        costs = {
            (a, b): squares(groups[a] + groups[b]) - squares(groups[a]) - squares(groups[b])
            for a in range(len(groups))
            for b in range(a)
        }
        a, b = min(costs, key=lambda pair: costs[pair])
        groups[b] += groups.pop(a)
    labels = np.empty(len(embeddings), int)
    for number, rows in enumerate(groups):
        labels[rows] = number
    return labels


# ---- cuts ----


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 5, 9])
def test_ward_merges_what_raises_the_sum_of_squares_least(n_clusters: int) -> None:
    embeddings = points(14)
    before = embeddings.copy()
    labels = cut(ward_linkage(embeddings), n_clusters)
    assert same_partition(labels, naive_ward(embeddings, n_clusters))
    np.testing.assert_array_equal(embeddings, before)


@pytest.mark.parametrize("n", [2, 3, 25])
def test_every_cut_is_scipys(n: int) -> None:
    merges = ward_linkage(points(n))
    before = merges.copy()
    for k in range(1, n + 1):
        labels = cut(merges, k)
        assert labels.dtype == np.int64
        assert same_partition(labels, fcluster(merges, k, "maxclust"))
        np.testing.assert_array_equal(np.unique(labels), np.arange(k))
    np.testing.assert_array_equal(merges, before)


@given(n=st.integers(2, 20), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_every_cut_has_its_number_of_groups_whatever_the_ties(n: int, seed: int) -> None:
    merges = ward_linkage(points(n, ties=True, seed=seed))
    groups = {row: [row] for row in range(n)}
    for k in range(n, 0, -1):
        replayed = np.empty(n, int)
        for number, rows in groups.items():
            replayed[rows] = number
        assert same_partition(cut(merges, k), replayed)
        if k > 1:  # the next merge makes the node after all those so far
            left, right = merges[n - k, :2].astype(int)
            groups[2 * n - k] = groups.pop(left) + groups.pop(right)


def test_one_image_is_one_group() -> None:
    np.testing.assert_array_equal(cut(np.empty((0, 4)), 1), [0])


@pytest.mark.parametrize("n_clusters", [0, -1, 6])
def test_more_groups_than_images_or_none_are_refused(n_clusters: int) -> None:
    with pytest.raises(
        OptionError,
        match=rf"between 1 and 5 \(the number of images\)\. Got {n_clusters}\.",
    ):
        cut(ward_linkage(points(5)), n_clusters)


def test_embeddings_that_look_like_distances_are_still_embeddings() -> None:
    merges = ward_linkage(np.zeros((4, 4)))  # square, symmetric, a diagonal of zeros
    np.testing.assert_array_equal(merges[:, 2], 0)


def test_permuting_images_keeps_the_partition() -> None:
    embeddings = points(30)
    order = np.random.default_rng(1).permutation(30)
    straight, permuted = ward_linkage(embeddings), ward_linkage(embeddings[order])
    for k in range(1, 31):
        assert same_partition(cut(straight, k)[order], cut(permuted, k))


# ---- numbers ----


def test_groups_are_numbered_by_size_and_equal_ones_by_their_first_image() -> None:
    labels = np.array([7, 2, 2, 9, 5, 5, 9, 2, 1])
    np.testing.assert_array_equal(number_by_size(labels), [3, 0, 0, 1, 2, 2, 1, 0, 4])


@given(st.lists(st.integers(-3, 6), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_numbering_keeps_the_groups(given_labels: list[int]) -> None:
    labels = np.array(given_labels)
    numbered = number_by_size(labels)
    assert same_partition(labels, numbered)
    sizes = np.bincount(numbered)
    assert (sizes > 0).all()
    firsts = [int(np.argmax(numbered == group)) for group in range(len(sizes))]
    ranks = [(-size, first) for size, first in zip(sizes.tolist(), firsts, strict=True)]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("ties", [False, True])
def test_reordered_leaves_are_cut_alike(ties: bool) -> None:
    merges = ward_linkage(points(15, ties=ties))
    order = np.random.default_rng(2).permutation(15)
    before = merges.copy()
    moved = reorder_leaves(merges, order)
    np.testing.assert_array_equal(merges, before)
    assert is_valid_linkage(moved)
    assert (moved[:, 0] < moved[:, 1]).all()
    np.testing.assert_array_equal(moved[:, 2:], merges[:, 2:])
    for k in range(1, 16):
        assert same_partition(cut(moved, k)[order], cut(merges, k))
    back = reorder_leaves(moved, np.argsort(order))
    np.testing.assert_array_equal(back, merges)


# ---- the tree of some of the images ----


def cut_of_part(merges: Array, k: int) -> Array:
    """Labels without the library's own cut: merges are joined one after the other."""
    n = len(merges) + 1
    members: dict[int, list[int]] = {leaf: [leaf] for leaf in range(n)}
    for step in range(n - k):
        left, right = (int(one) for one in merges[step, :2])
        members[n + step] = members.pop(left) + members.pop(right)
    labels = np.empty(n, int)
    for group, leaves in enumerate(members.values()):
        labels[leaves] = group
    return labels


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_shown", [1, 2, 9, 39, 40])
def test_the_tree_of_a_part_is_cut_as_the_whole_is(n_shown: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = ward_linkage(blobs([20, 12, 8], seed=seed))
    rows = rng.permutation(40)[:n_shown]  # in any order
    part = linkage_of(whole, rows)
    assert part.shape == (n_shown - 1, 4)
    assert part.dtype == np.float64
    if n_shown > 1:
        assert is_valid_linkage(part)
        assert is_monotonic(part)
    for k in range(1, 41):
        restricted = cut(whole, k)[rows]
        groups = len(np.unique(restricted))
        # Also where groups have nobody here: the part has as many groups as are left.
        assert same_partition(cut_of_part(part, groups), restricted)
        assert same_partition(cut(part, groups), restricted)


def test_heights_are_those_of_the_merges_that_are_left() -> None:
    #  0   1   2   3   4     height 1: 0+1, 2: 3+4, 3: 2+(3,4), 4: all
    whole = np.array([[0, 1, 1, 2], [3, 4, 2, 2], [2, 6, 3, 3], [5, 7, 4, 5]], float)
    np.testing.assert_array_equal(linkage_of(whole, np.arange(5)), whole)
    np.testing.assert_array_equal(
        linkage_of(whole, np.array([4, 2, 0])), [[0, 1, 3, 2], [2, 3, 4, 3]]
    )
    np.testing.assert_array_equal(linkage_of(whole, np.array([1, 0])), [[0, 1, 1, 2]])
    assert linkage_of(whole, np.array([3])).shape == (0, 4)

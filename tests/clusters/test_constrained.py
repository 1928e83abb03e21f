"""Trees that respect known groups, against loops, and ids that stay with their images."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import is_monotonic, is_valid_linkage

from flawsort.clusters import constrained as constraints
from flawsort.clusters.constrained import _join_groups, _ward_apart, carry_over, constrained_tree
from flawsort.clusters.large_ward import tree
from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.errors import OptionError
from helpers.bags import Array, blobs, same_partition


def points(n: int, dim: int = 4, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def random_groups(n: int, n_known: int, n_groups: int, seed: int = 0) -> Array:
    """(n,): ids 0, 10, 20... for some images, every group at least once."""
    rng = np.random.default_rng(seed)
    known_groups = np.full(n, -1)
    ids = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n_known - n_groups)])
    known_groups[rng.permutation(n)[:n_known]] = 10 * ids
    return known_groups


def naive_tree(values: Array, known_groups: Array) -> tuple[list[frozenset[int]], list[float]]:
    """What each merge makes, and its height: groups, then allowed merges, then the others."""
    values = values.astype(float)

    def squares(rows: frozenset[int]) -> float:
        inside = values[sorted(rows)]
        return float(((inside - inside.mean(axis=0)) ** 2).sum())

    def groups(rows: frozenset[int]) -> set[int]:
        return {int(known_groups[row]) for row in rows} - {-1}

    left = [frozenset([row]) for row in range(len(values))]
    made, heights = [], []
    for phase in ("together", "apart", "rest"):
        while True:
            allowed = [
                (0.0 if phase == "together" else squares(a | b) - squares(a) - squares(b), i, j)
                for (i, a), (j, b) in combinations(enumerate(left), 2)
                if phase == "rest"
                or (phase == "apart" and len(groups(a | b)) < 2)
                or (phase == "together" and groups(a) and groups(a) == groups(b))
            ]
            if not allowed:
                break
            cost, i, j = min(allowed)
            made.append(left[i] | left[j])
            heights.append(max(np.sqrt(2 * max(cost, 0.0)), *heights, 0.0))
            left = [*(some for at, some in enumerate(left) if at not in (i, j)), made[-1]]
    return made, heights


def members(merges: Array) -> list[frozenset[int]]:
    """The images below each merge."""
    below = [frozenset([row]) for row in range(len(merges) + 1)]
    for left, right in merges[:, :2].astype(int).tolist():
        below.append(below[left] | below[right])
    return below[len(merges) + 1 :]


def check_tree(merges: Array, n: int) -> None:
    assert merges.shape == (n - 1, 4)
    assert merges.dtype == np.float64
    assert is_valid_linkage(merges)
    assert is_monotonic(merges)
    assert (merges[:, 0] < merges[:, 1]).all()
    assert [len(some) for some in members(merges)] == merges[:, 3].tolist()


def check_groups(merges: Array, known_groups: Array, ks: range | None = None) -> None:
    """At every k that allows it, groups are whole, and no two are in one cluster."""
    expected = known_groups[known_groups >= 0]
    groups = np.unique(expected)
    # Without known groups, one is still the fewest.
    largest = len(known_groups) - (len(expected) - len(groups))
    for k in ks or range(max(1, len(groups)), largest + 1):
        assert same_partition(cut(merges, k)[known_groups >= 0], expected), k


# ---- against loops and against SciPy ----


@pytest.mark.parametrize("seed", range(8))
def test_merges_against_loops(seed: int) -> None:
    values, known_groups = points(26, 3, seed), random_groups(26, 9, 4, seed)
    before = values.copy(), known_groups.copy()
    merges = constrained_tree(values, known_groups)
    made, heights = naive_tree(values, known_groups)
    check_tree(merges, 26)
    n_first = 9 - 4
    # The order in which a group's own images are joined is nobody's business.
    groups = [
        frozenset(np.flatnonzero(known_groups == group).tolist()) for group in (0, 10, 20, 30)
    ]
    assert {some for some in groups if len(some) > 1} <= set(members(merges)[:n_first])
    assert members(merges)[n_first:] == made[n_first:]
    np.testing.assert_allclose(merges[:, 2], heights, rtol=1e-9)
    np.testing.assert_array_equal(merges[:n_first, 2], 0)
    np.testing.assert_array_equal(values, before[0])
    np.testing.assert_array_equal(known_groups, before[1])


@pytest.mark.parametrize("dim", [1, 2, 40])
def test_nothing_apart_is_wards_tree(dim: int) -> None:
    values = points(120, dim)
    found = _ward_apart(values, np.ones(120, int), np.array([], int))
    np.testing.assert_allclose(found, ward_linkage(values), rtol=1e-9, atol=1e-12)


def test_no_known_group_gives_the_plain_tree_to_the_last_digit() -> None:
    values, nothing = np.round(points(60, 2)), np.full(60, -1)  # many equal distances
    np.testing.assert_array_equal(constrained_tree(values, nothing), tree(values))
    known = tree(points(60, 3))
    found = constrained_tree(values, nothing, linkage=known)
    np.testing.assert_array_equal(found, known)
    assert found is not known


def test_sizes_count() -> None:
    sizes = np.random.default_rng(1).integers(1, 6, 30)
    values = points(30)
    found = _ward_apart(values, sizes, np.array([], int))
    repeated = ward_linkage(np.repeat(values, sizes, axis=0))[-29:]
    np.testing.assert_allclose(found[:, 2:], repeated[:, 2:], rtol=1e-9)


# ---- what it is for ----


def test_a_blob_that_a_person_parted_takes_its_neighbours_along() -> None:
    values = blobs([20, 20, 20])
    values[:10, 3] += 2  # the first blob is really two
    known_groups = np.full(60, -1)
    known_groups[[0, 10]] = 4, 7
    found = cut(constrained_tree(values, known_groups), 4)
    assert same_partition(found, np.repeat([0, 1, 2, 3], [10, 10, 20, 20]))


def test_groups_that_a_person_joined_stay_joined() -> None:
    known_groups = np.full(60, -1)
    known_groups[[5, 45]] = 3
    found = cut(constrained_tree(blobs([20, 20, 20]), known_groups), 2)
    assert same_partition(found, np.repeat([0, 1, 0], 20))


def test_known_groups_may_lie_at_one_place() -> None:
    values, known_groups = np.ones((6, 2)), np.array([1, 1, 2, 2, -1, -1])
    merges = constrained_tree(values, known_groups)
    check_tree(merges, 6)
    check_groups(merges, known_groups)
    np.testing.assert_array_equal(merges[:, 2], 0)


def test_two_images_without_a_known_group() -> None:
    merges = constrained_tree(np.zeros((2, 2)), np.array([-1, -1]))
    check_tree(merges, 2)
    check_groups(merges, np.array([-1, -1]))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_known_groups_are_kept_at_every_k(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 24))
    known_groups = np.array(data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n)))
    # Whole numbers: many are alike, or equally far apart.
    cells = st.lists(st.integers(0, 3), min_size=2 * n, max_size=2 * n)
    values = np.array(data.draw(cells), float).reshape(n, 2)
    merges = constrained_tree(values, known_groups)
    check_tree(merges, n)
    check_groups(merges, known_groups)


@pytest.mark.parametrize("known_groups", [-1, 3])
def test_one_image(known_groups: int) -> None:
    assert constrained_tree(points(1), np.array([known_groups])).shape == (0, 4)


def test_every_image_has_a_known_group() -> None:
    known_groups = np.arange(40) % 5
    merges = constrained_tree(points(40), known_groups)
    check_tree(merges, 40)
    check_groups(merges, known_groups)
    # Five groups are left, and their merges are Ward's of groups that overlap wholly.
    np.testing.assert_array_equal(merges[:35, 2], 0)
    assert (merges[35:, 2] > 0).all()


def test_copies_of_a_group_are_joined_in_the_order_of_the_images() -> None:
    merges = _join_groups(np.array([5, -1, 5, 2, 5, 2]))
    np.testing.assert_array_equal(merges, [[3, 5, 0, 2], [0, 2, 0, 2], [4, 7, 0, 3]])


# ---- many images ----


def small_tree(
    values: Array,
    known_groups: Array,
    *,
    linkage: Array | None = None,
    largest_exact: int = 50,
    micro_clusters: int = 40,
) -> Array:
    """As if few images were many."""
    return constrained_tree(
        values,
        known_groups,
        linkage=linkage,
        largest_exact=largest_exact,
        micro_clusters=micro_clusters,
    )


def naive_branches(known: Array, known_groups: Array, surplus: int) -> list[frozenset[int]]:
    """The merges of images without a known group; those that mix groups come last."""
    below = [frozenset([row]) for row in range(len(known_groups))] + members(known)
    nobody = frozenset(np.flatnonzero(known_groups < 0).tolist())
    found = []
    for at, (left, right) in enumerate(known[:, :2].astype(int).tolist()):
        groups = {int(known_groups[row]) for row in below[left] | below[right]} - {-1}
        if below[left] & nobody and below[right] & nobody:
            found.append((len(groups) > 1, at, (below[left] | below[right]) & nobody))
    chosen = sorted(found)[:surplus]
    return [some for _, _, some in sorted(chosen, key=lambda one: one[1])]


@pytest.mark.parametrize(("n_known", "n_groups"), [(12, 3), (60, 6), (1, 1), (145, 2), (150, 11)])
def test_branches_keep_known_groups(n_known: int, n_groups: int) -> None:
    values, known_groups = points(200), random_groups(200, n_known, n_groups)
    known = tree(values)
    merges = small_tree(values, known_groups)
    check_tree(merges, 200)
    check_groups(merges, known_groups)
    n_joined, surplus = n_known - n_groups, 200 - n_known - 40
    lower = members(merges)[n_joined : n_joined + surplus]
    assert lower == naive_branches(known, known_groups, surplus)
    height_of = dict(zip(naive_branches(known, np.full(200, -1), 199), known[:, 2], strict=True))
    for some, height in zip(lower, merges[n_joined:, 2], strict=False):
        whole = min((one for one in height_of if some <= one), key=len)
        assert height == height_of[whole]


def test_few_parts_left_are_exact() -> None:
    values, known_groups = points(200), random_groups(200, 155, 5)
    merges = small_tree(values, known_groups)
    np.testing.assert_array_equal(small_tree(values, known_groups, largest_exact=200), merges)


def test_a_tree_that_is_known_is_not_built_again() -> None:
    values, known_groups = points(200), random_groups(200, 12, 3)
    other = tree(points(200, seed=1))
    found = small_tree(values, known_groups, linkage=other)
    assert members(found)[9 : 9 + 148] == naive_branches(other, known_groups, 148)


def test_branches_do_not_hold_two_groups() -> None:
    """An image that lies with one of two groups in the same small blob goes with that one."""
    values = blobs([12] * 15, dim=15)
    values[:6, 1] += 1.8  # in the first blob there are two; forty branches would not show it
    values[:12] += 5  # and it is far from all others
    known_groups = np.full(180, -1)
    known_groups[[0, 6]] = 0, 1
    plain = cut(tree(values), 15)
    assert same_partition(plain, np.repeat(np.arange(15), 12))
    found = cut(small_tree(values, known_groups), 16)
    assert same_partition(found, np.repeat(np.arange(16), [6, 6, *[12] * 14]))


def test_of_mixed_branches_only_as_many_as_must_be_are_merged() -> None:
    known_groups = random_groups(120, 20, 4)
    values = points(120)
    lowest = constraints._branches(
        tree(values), known_groups, constraints._parts(_join_groups(known_groups), 120)[1], 3
    )
    assert len(lowest) == 100 - 3
    merges = small_tree(values, known_groups, micro_clusters=3)
    check_tree(merges, 120)
    check_groups(merges, known_groups)


def test_many_images_and_few_give_like_clusters() -> None:
    values = blobs([40, 30, 30, 20, 20], spread=1.2)
    known_groups = np.full(140, -1)
    known_groups[[0, 1, 50, 80, 110, 130]] = 0, 0, 1, 2, 3, 4
    many = cut(small_tree(values, known_groups), 5)
    assert same_partition(many, np.repeat(np.arange(5), [40, 30, 30, 20, 20]))


# ---- what is refused ----


@pytest.mark.parametrize(
    ("known_groups", "linkage", "message"),
    [
        (
            np.zeros(4, int),
            None,
            r"known_groups must have the shape \(5,\), one per image. Got \(4,\)",
        ),
        (
            np.zeros(5),
            None,
            "known_groups must be integers: group ids of at least 0, .* Got float64",
        ),
        (np.full(5, -2), None, "or -1 for none. Got int64 values from -2"),
        (
            np.zeros(5, int),
            np.zeros((5, 4)),
            r"linkage must have the shape \(4, 4\) for 5 images",
        ),
    ],
)
def test_refuses(known_groups: Array, linkage: Array | None, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        constrained_tree(points(5), known_groups, linkage=linkage)


# ---- ids that stay with their images ----


def test_clusters_take_over_the_ids_of_most_of_their_images() -> None:
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    old = np.array([7, 7, 4, 4, 4, -1, -1, 4])
    nothing = np.full(8, -1)
    ids, next_id = carry_over(labels, old, nothing, 9)
    assert ids.tolist() == [7, 7, 7, 4, 4, 9, 9, 9]
    assert ids.dtype == np.int64
    assert next_id == 10


def test_one_image_with_a_known_group_outweighs_all_others() -> None:
    labels = np.array([0] * 9 + [1])
    old = np.full(10, 3)
    known_groups = np.array([-1] * 9 + [3])
    assert carry_over(labels, old, known_groups, 4)[0].tolist() == [4] * 9 + [3]
    # Of two clusters with images of a known group, the one with more of them takes its id.
    known_groups[:2] = 3
    assert carry_over(labels, old, known_groups, 4)[0].tolist() == [3] * 9 + [4]


def test_an_id_that_only_a_known_group_has() -> None:
    ids, next_id = carry_over(np.array([0, 1]), np.array([-1, -1]), np.array([-1, 6]), 7)
    assert (ids.tolist(), next_id) == ([7, 6], 8)


def test_an_id_goes_to_no_cluster_without_images_of_it() -> None:
    labels, old = np.array([0, 0, 0, 1]), np.array([3, 3, 4, -1])
    ids, next_id = carry_over(labels, old, np.full(4, -1), 5)
    assert (ids.tolist(), next_id) == ([3, 3, 3, 5], 6)


def test_all_new() -> None:
    nothing = np.full(4, -1)
    ids, next_id = carry_over(np.array([1, 0, 1, 2]), nothing, nothing, 0)
    assert (ids.tolist(), next_id) == ([1, 0, 1, 2], 3)


@pytest.mark.parametrize("seed", range(10))
def test_the_ids_are_the_best_of_all_ways_to_give_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, old = rng.integers(0, 4, 30), rng.integers(-1, 5, 30)
    known_groups = np.where(rng.random(30) < 0.2, rng.integers(0, 5, 30), -1)
    before = labels.copy(), old.copy(), known_groups.copy()
    ids, _ = carry_over(labels, old, known_groups, 5)

    def kept(of_image: Array) -> tuple[int, int]:
        return int((of_image == known_groups).sum()), int((of_image == old).sum())

    best = max(kept(np.array(way)[labels]) for way in permutations(range(5), 4))
    assert kept(ids) == best
    assert same_partition(ids, labels)
    for was, now in zip(before, (labels, old, known_groups), strict=True):
        np.testing.assert_array_equal(was, now)


def test_carrying_over_refuses() -> None:
    ones = np.ones(3, int)
    with pytest.raises(OptionError, match=r"must have the same length. Got 3, 2 and 3"):
        carry_over(ones, ones[:2], ones, 2)
    with pytest.raises(OptionError, match=r"next_id must be above 5, the largest id. Got 5"):
        carry_over(ones, ones, 5 * ones, 5)

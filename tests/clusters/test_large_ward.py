"""Ward's tree without all distances, against loops and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import is_monotonic, is_valid_linkage
from scipy.spatial.distance import pdist, squareform

from flawsort.clusters import large_ward as hierarchy
from flawsort.clusters.clusterers import linkage_of_groups
from flawsort.clusters.large_ward import (
    Limits,
    _by_height,
    _Groups,
    tree,
    tree_of_groups,
    weighted_ward,
)
from flawsort.clusters.ward import cut, linkage_of, number_by_size, ward_linkage
from flawsort.core.threads import limit
from helpers.bags import Array, blobs, same_partition

# Everything is large, and blocks are so small that there are many.
SMALL = Limits(plain=1, block=(7, 11))


def points(n: int, dim: int = 4, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


def naive_merges(values: Array, sizes: Array) -> Array:
    """(m - 1, 4): the cheapest of all merges, again and again."""
    groups = {
        row: (value.astype(float), float(size))
        for row, (value, size) in enumerate(zip(values, sizes, strict=True))
    }
    merges = []
    while len(groups) > 1:

        def cost(pair: tuple[int, int]) -> float:
            (first, some), (second, more) = groups[pair[0]], groups[pair[1]]
            middle = (some * first + more * second) / (some + more)
            return float(
                some * ((first - middle) ** 2).sum() + more * ((second - middle) ** 2).sum()
            )

        left, right = min(((a, b) for a in groups for b in groups if a < b), key=cost)
        height = np.sqrt(2 * cost((left, right)))
        (first, some), (second, more) = groups.pop(left), groups.pop(right)
        groups[len(values) + len(merges)] = (
            (some * first + more * second) / (some + more),
            some + more,
        )
        merges.append([left, right, height, some + more])
    return np.array(merges)


def check_tree(merges: Array, n: int) -> None:
    assert merges.shape == (n - 1, 4)
    assert merges.dtype == np.float64
    assert is_valid_linkage(merges)
    assert is_monotonic(merges)
    assert (merges[:, 0] < merges[:, 1]).all()
    counts = np.concatenate([np.ones(n), merges[:, 3]])
    np.testing.assert_array_equal(counts[merges[:, :2].astype(int)].sum(axis=1), merges[:, 3])


# ---- groups that have sizes already ----


@pytest.mark.parametrize("seed", range(4))
def test_weighted_merges_against_loops(seed: int) -> None:
    values = points(24, seed=seed)
    sizes = np.random.default_rng(seed).integers(1, 30, 24)
    before = values.copy(), sizes.copy()
    np.testing.assert_allclose(
        weighted_ward(values, sizes, block=SMALL.block),
        naive_merges(values, sizes),
        rtol=1e-9,
        atol=0,
    )
    np.testing.assert_array_equal(values, before[0])
    np.testing.assert_array_equal(sizes, before[1])


def test_of_single_points_the_merges_are_scipys() -> None:
    values = points(150)
    found = weighted_ward(values, np.ones(150, int), block=SMALL.block)
    np.testing.assert_allclose(found, ward_linkage(values), rtol=1e-9)


def test_a_group_counts_as_its_point_so_many_times() -> None:
    values = points(30)
    sizes = np.random.default_rng(1).integers(1, 6, 30)
    merges = weighted_ward(values, sizes, block=SMALL.block)
    repeated = ward_linkage(np.repeat(values, sizes, axis=0))
    np.testing.assert_allclose(merges[:, 2:], repeated[-29:, 2:], rtol=1e-9)
    for k in range(1, 31):
        assert same_partition(np.repeat(cut(merges, k), sizes), cut(repeated, k))


def test_one_group_and_two() -> None:
    assert weighted_ward(points(1), np.array([5])).shape == (0, 4)
    found = weighted_ward(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([2, 6]))
    np.testing.assert_allclose(found, [[0, 1, np.sqrt(2 * 2 * 6 / 8) * 5, 8]])


# ---- rounds of merges ----


def test_only_what_is_in_doubt_is_searched_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    search, searched = _Groups._search, {np.float32: 0, np.float64: 0}

    def watched(groups: _Groups, rows: Array, dtype: type) -> tuple[Array, Array, Array]:
        searched[dtype] += len(rows)
        return search(groups, rows, dtype)

    monkeypatch.setattr(_Groups, "_search", watched)
    weighted_ward(points(100), np.ones(100, int), block=SMALL.block)
    # Of two groups that are left each has no second choice.
    assert searched[np.float32] > 200
    assert searched[np.float64] < 5
    weighted_ward(np.arange(9.0)[:, None] + 1000 * np.eye(9), np.ones(9, int), block=SMALL.block)
    assert searched[np.float64] > 10


def test_the_search_against_loops() -> None:
    values, sizes = points(40), np.random.default_rng(0).integers(1, 9, 40)
    rows = np.array([3, 4, 17, 39])
    best, nearest, second = _Groups.of(values.astype(np.float64), sizes, SMALL.block)._search(
        rows, np.float64
    )
    for place, row in enumerate(rows):
        costs = np.array([((values[row] - other).astype(float) ** 2).sum() for other in values]) / (
            1 / sizes[row] + 1 / sizes
        )
        costs[row] = np.inf
        assert nearest[place] == costs.argmin()
        np.testing.assert_allclose([best[place], second[place]], np.sort(costs)[:2], rtol=1e-5)


def test_in_a_ring_of_equal_distances_the_cheapest_pair_is_merged() -> None:
    groups = _Groups.of(np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8]]), np.ones(3, int))
    groups.nearest, groups.costs = np.array([1, 2, 0]), np.array([0.5, 0.4, 0.5])
    made = groups.merge_reciprocal(3)
    np.testing.assert_allclose(made, [[1, 2, np.sqrt(0.25 + 0.64), 2]])
    np.testing.assert_array_equal(groups.nodes, [0, 3])


def test_rounding_puts_no_merge_below_those_it_stands_on() -> None:
    groups = _Groups.of(np.array([[0.0], [1.0]]), np.ones(2, int))
    groups.heights[1] = 1 + 1e-12
    groups.find_nearest()
    assert groups.merge_reciprocal(2)[0, 2] == 1 + 1e-12


def test_of_equal_heights_the_lower_in_the_tree_comes_first() -> None:
    # A chain: every merge stands on the one before.
    left = np.concatenate([[0], 200 + np.arange(198)])
    chain = np.stack([left, np.arange(1, 200), np.ones(199), np.arange(2, 201)], axis=1)
    chain[:50, 2] = 0.5
    expected = chain.copy()
    expected[:, :2].sort(axis=1)
    np.testing.assert_array_equal(_by_height(chain), expected)


def test_nodes_are_numbered_by_height() -> None:
    given = np.array([[0, 1, 3, 2], [2, 3, 1, 2], [6, 4, 2, 3], [5, 7, 4, 5]], float)
    expected = [[2, 3, 1, 2], [4, 5, 2, 3], [0, 1, 3, 2], [6, 7, 4, 5]]
    np.testing.assert_array_equal(_by_height(given), expected)


# ---- the tree ----


@pytest.mark.parametrize("dim", [1, 2, 40])
@pytest.mark.parametrize("n", [2, 3, 8, 120])
def test_the_tree_is_scipys(n: int, dim: int) -> None:
    embeddings = points(n, dim)
    before = embeddings.copy()
    found = tree(embeddings, limits=SMALL)
    check_tree(found, n)
    np.testing.assert_allclose(found, ward_linkage(embeddings), rtol=1e-6)
    np.testing.assert_array_equal(embeddings, before)


@pytest.mark.parametrize("noise", [1e-1, 1e-3])
def test_points_nearly_alike_are_told_apart(noise: float) -> None:
    # Far from the middle: their distances are lost in single precision.
    embeddings = np.repeat(100 * points(6, 8), 20, axis=0).astype(np.float64)
    embeddings += noise * np.random.default_rng(0).standard_normal(embeddings.shape)
    found, plain = tree(embeddings, limits=SMALL), ward_linkage(embeddings)
    np.testing.assert_allclose(found[:, 2], plain[:, 2], rtol=1e-4)
    for k in range(1, 121):
        assert same_partition(cut(found, k), cut(plain, k))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_tiny_and_huge_embeddings(scale: float) -> None:
    embeddings = points(60).astype(np.float64)
    found, scaled = tree(embeddings, limits=SMALL), tree(embeddings * scale, limits=SMALL)
    np.testing.assert_allclose(scaled[:, 2], found[:, 2] * scale, rtol=1e-9)
    np.testing.assert_array_equal(scaled[:, [0, 1, 3]], found[:, [0, 1, 3]])


def test_where_the_middle_is_does_not_matter() -> None:
    embeddings = points(80).astype(np.float64)
    np.testing.assert_allclose(
        tree(embeddings + 1e8, limits=SMALL), tree(embeddings, limits=SMALL), rtol=1e-5
    )


def test_many_equal_heights_make_a_valid_tree() -> None:
    check_tree(
        tree(np.random.default_rng(0).integers(0, 8, (400, 3)).astype(np.float32), limits=SMALL),
        400,
    )


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 20), dim=st.integers(1, 3), seed=st.integers(0, 1000))
def test_ties_and_copies_make_a_valid_tree_of_reciprocal_merges(
    n: int, dim: int, seed: int
) -> None:
    lattice = np.random.default_rng(seed).integers(0, 4, (n, dim)).astype(np.float64)
    merges = tree(lattice, limits=SMALL)
    check_tree(merges, n)
    # Each merge is the cheapest there is at that time, whichever of the equal ones it is.
    groups = {row: [row] for row in range(n)}
    for k in range(n, 1, -1):
        np.testing.assert_array_equal(np.unique(cut(merges, k)), np.arange(k))
        middles = {node: lattice[rows].mean(axis=0) for node, rows in groups.items()}
        cheapest = min(
            np.sqrt(2 * len(groups[a]) * len(groups[b]) / (len(groups[a]) + len(groups[b])))
            * np.linalg.norm(middles[a] - middles[b])
            for a in groups
            for b in groups
            if a < b
        )
        assert merges[n - k, 2] == pytest.approx(cheapest, abs=1e-9)
        left, right = merges[n - k, :2].astype(int)
        groups[2 * n - k] = groups.pop(left) + groups.pop(right)


def test_copies_are_joined_first_and_count() -> None:
    rng = np.random.default_rng(3)
    values = points(12)
    rows = rng.permutation(np.repeat(np.arange(12), rng.integers(1, 7, 12)))
    embeddings = values[rows]
    found, plain = tree(embeddings, limits=SMALL), ward_linkage(embeddings)
    check_tree(found, len(rows))
    np.testing.assert_array_equal(found[: len(rows) - 12, 2], 0)
    assert same_partition(cut(found, 12), rows)
    np.testing.assert_allclose(found[-11:, 2:], plain[-11:, 2:], rtol=1e-9)
    for k in range(1, 13):
        assert same_partition(cut(found, k), cut(plain, k))


@pytest.mark.parametrize("n", [2, 3, 50])
def test_identical_images_are_joined_at_height_zero(n: int) -> None:
    found = tree(np.ones((n, 3), np.float32), limits=SMALL)
    check_tree(found, n)
    np.testing.assert_array_equal(found[:, 2], 0)
    for k in range(1, n + 1):
        assert len(np.unique(cut(found, k))) == k


def test_up_to_the_limit_it_is_plain_ward(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(
        hierarchy,
        "ward_linkage",
        lambda values: (calls.append(len(values)), ward_linkage(values))[1],
    )
    for n in (40, 41):
        embeddings = points(n)
        np.testing.assert_allclose(
            tree(embeddings, limits=Limits(plain=40)), ward_linkage(embeddings), rtol=1e-6
        )
    assert calls == [40]


def test_just_over_the_limit_as_it_is() -> None:
    n = hierarchy.LARGEST_PLAIN + 1
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, n)
    # Few contents, many copies: quick, and still beyond the limit.
    contents = points(200, 3) + 20 * np.eye(4, 3)[np.arange(200) % 4]
    embeddings = contents[4 * rng.integers(0, 50, n) + kinds]
    found = tree(embeddings)
    check_tree(found, n)
    assert same_partition(cut(found, 4), kinds)


def test_the_number_of_threads_changes_no_digit() -> None:
    embeddings = blobs([60, 40, 20], spread=2.0)
    found = tree(embeddings, limits=SMALL)
    for threads in (1, 5):
        with limit(threads):
            np.testing.assert_array_equal(tree(embeddings, limits=SMALL), found)


def test_permuting_images_keeps_the_partition() -> None:
    embeddings = points(90)
    order = np.random.default_rng(1).permutation(90)
    straight, permuted = tree(embeddings, limits=SMALL), tree(embeddings[order], limits=SMALL)
    for k in range(1, 91):
        assert same_partition(cut(straight, k)[order], cut(permuted, k))


def test_progress_goes_up_to_the_end() -> None:
    seen: list[tuple[str, int, int]] = []
    tree(points(30), progress=lambda *step: seen.append(step), limits=SMALL)
    assert {(stage, total) for stage, _, total in seen} == {("linking", 29)}
    done = [step[1] for step in seen]
    assert done == sorted(set(done))
    assert done[-1] == 29


class TestTwoLevels:
    LIMITS = Limits(plain=50, exact=400, micro_clusters=150)

    def kinds(self, n: int, *, seed: int = 0) -> Array:
        rng = np.random.default_rng(seed)
        centres = rng.standard_normal((6, 12)) * 3
        return (centres[rng.integers(6, size=n)] + rng.standard_normal((n, 12))).astype(np.float32)

    def test_the_groups_are_those_of_plain_ward(self) -> None:
        from sklearn.metrics import adjusted_rand_score

        values = self.kinds(1200)
        plain, ours = ward_linkage(values), tree(values, limits=self.LIMITS)
        agreed = [adjusted_rand_score(cut(plain, k), cut(ours, k)) for k in range(2, 9)]
        assert np.mean(agreed) > 0.95

    def test_it_is_a_tree_of_all_images_and_every_k_can_be_cut(self) -> None:
        values = self.kinds(500)
        merges = tree(values, limits=self.LIMITS)
        assert is_valid_linkage(merges)
        assert is_monotonic(merges)
        assert merges[-1, 3] == 500
        assert all(len(np.unique(cut(merges, k))) == k for k in (1, 2, 149, 150, 151, 499, 500))

    def test_inner_heights_are_those_of_the_images_of_a_micro_cluster(self) -> None:
        values = self.kinds(450)
        merges = tree(values, limits=self.LIMITS)
        n_micro = len(np.unique(hierarchy._micro_clusters(values, 150)))
        groups = cut(merges, n_micro)
        inside = [
            ward_linkage(values[groups == g])[:, 2]
            for g in range(n_micro)
            if (groups == g).sum() > 1
        ]
        expected = np.sort(np.concatenate(inside))
        np.testing.assert_allclose(merges[: len(expected), 2], expected, rtol=1e-5, atol=1e-6)

    def test_the_same_twice_and_with_copies(self) -> None:
        values = np.repeat(self.kinds(250), 3, axis=0)
        merges = tree(values, limits=self.LIMITS)
        np.testing.assert_array_equal(merges, tree(values.copy(), limits=self.LIMITS))
        groups = cut(merges, 6)
        assert (groups[0::3] == groups[1::3]).all()
        assert (groups[0::3] == groups[2::3]).all()


class TestTreeOfGroups:
    """Trees that have given groups."""

    @pytest.mark.parametrize("seed", range(6))
    def test_its_cut_gives_them(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        values = rng.standard_normal((30, 4)).astype(np.float32)
        labels = number_by_size(np.append(rng.integers(5, size=25), np.arange(5)))
        far = squareform(pdist(values.astype(float)))
        for merges in (
            tree_of_groups(values, labels),
            linkage_of_groups(values, labels),
            linkage_of_groups(values, labels, far),
        ):
            assert is_valid_linkage(merges)
            assert (np.diff(merges[:, 2]) >= 0).all()
            np.testing.assert_array_equal(cut(merges, 5), labels)
        inner = tree_of_groups(values, labels)
        for group in range(5):
            rows = np.flatnonzero(labels == group)
            own = linkage_of(inner, rows)[:, 2]
            np.testing.assert_allclose(own, ward_linkage(values[rows])[:, 2], atol=1e-5)

    def test_one_group_groups_of_one_and_equal_centres(self) -> None:
        values = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]], np.float32)
        for labels in ([0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 1, 1]):
            merges = tree_of_groups(values, np.array(labels))
            assert is_valid_linkage(merges)
            np.testing.assert_array_equal(cut(merges, max(labels) + 1), labels)

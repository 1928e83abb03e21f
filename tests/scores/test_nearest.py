"""The hot loop against plain loops in double precision."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flawsort.scores import inverted_lists as inverted
from flawsort.scores import nearest
from flawsort.scores.distances import factors
from flawsort.scores.inverted_lists import build_lists
from flawsort.scores.nearest import (
    SINGLES,
    BlockSizes,
    Singles,
    expected_from_peers,
    fold_peers,
    fold_references,
    nearest_in_bank,
    nearest_rows,
)
from flawsort.scores.peer_statistics import (
    Combined,
    MaxOverPeers,
    MeanOverNearestPeers,
    MeanOverPeers,
    MinOverPeers,
)
from helpers.bags import Array, unit_vectors
from helpers.oracles import naive_nearest, naive_peer_distances, naive_scores

# Products in single precision are good to about 1e-6, and so are squared distances; those below
# 4e-6 are 0 (distances.ROUNDING).
SQUARED = {"rtol": 0, "atol": 6e-6}
# MeanOverNearestPeers keeps distances (at most 2) in half precision: 11 bits.
HALVES = {"rtol": 0, "atol": 2 * 2**-11}


def check_search(found: nearest.Nearest, queries: Array, bank: Array) -> None:
    distances, index = naive_nearest(queries, bank)
    assert found.distances.dtype == np.float32
    np.testing.assert_allclose(found.distances**2, distances**2, **SQUARED)
    np.testing.assert_array_equal(found.index, index)


# ---- one bank ----


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("n", "n_bank"), [(1, 1), (1, 30), (30, 1), (8, 16), (13, 21), (3, 8)])
def test_nearest_in_ragged_blocks(n: int, n_bank: int, dtype: Any) -> None:
    queries = unit_vectors(n, 7, seed=1, dtype=dtype)
    bank = unit_vectors(n_bank, 7, seed=2, dtype=dtype)
    found = nearest_in_bank(queries, bank, sizes=BlockSizes(rows=4, bank=8))
    check_search(found, queries, bank)


def test_nearest_in_blocks_of_the_real_size() -> None:
    n, n_bank = nearest.BLOCK_ROWS + 3, nearest.BANK_BLOCK * 2 + 5
    queries, bank = unit_vectors(n, 9, seed=3), unit_vectors(n_bank, 9, seed=4)
    before = queries.copy(), bank.copy()
    check_search(nearest_in_bank(queries, bank), queries, bank)
    np.testing.assert_array_equal(queries, before[0])
    np.testing.assert_array_equal(bank, before[1])


@pytest.mark.parametrize("slab", [1, 2**29])
def test_of_equally_near_patches_the_first_is_taken(slab: int) -> None:
    axes = np.eye(3, dtype=np.float32)
    bank = axes[[1, 0, 0, 2, 1, 0, 2, 2, 2, 1]]  # ties within blocks of four and between them
    found = nearest_in_bank(axes, bank, sizes=BlockSizes(bank=4, slab=slab))
    np.testing.assert_array_equal(found.index, [1, 0, 3])
    np.testing.assert_array_equal(found.distances, [0, 0, 0])


def test_a_bank_is_held_in_slabs() -> None:
    queries = unit_vectors(13, 7, seed=1, dtype=np.float16)
    bank = unit_vectors(41, 7, seed=2, dtype=np.float16)
    calls: list[tuple[str, int, int]] = []
    for slab in (1, 8 * 8 * 4, 2 * 8 * 8 * 4 + 1):  # one block of eight patches, and two
        sizes = BlockSizes(rows=4, bank=8, slab=slab)
        found = nearest_in_bank(
            queries, bank, sizes=sizes, progress=lambda *call: calls.append(call)
        )
        check_search(found, queries, bank)
    assert calls[-1] == ("scoring", 12, 12)  # four blocks of queries in three slabs


def test_the_search_reports_progress() -> None:
    calls: list[tuple[str, int, int]] = []
    queries = unit_vectors(nearest.BLOCK_ROWS + 1, 3)
    nearest_in_bank(queries, queries[:5], progress=lambda *call: calls.append(call))
    assert calls == [("scoring", 1, 2), ("scoring", 2, 2)]


def test_a_permuted_bank_gives_the_same_neighbours() -> None:
    queries, bank = unit_vectors(20, 5, seed=5), unit_vectors(60, 5, seed=6)
    order = np.random.default_rng(0).permutation(60)
    straight, permuted = nearest_in_bank(queries, bank), nearest_in_bank(queries, bank[order])
    np.testing.assert_array_equal(order[permuted.index], straight.index)
    np.testing.assert_allclose(permuted.distances, straight.distances, atol=1e-5)


# ---- rows ----


@pytest.mark.parametrize("unit_length", [True, False])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_nearest_rows(count: int, unit_length: bool) -> None:
    rng = np.random.default_rng(2)
    points, others = unit_vectors(11, 5, dtype=np.float16), unit_vectors(9, 5, seed=1)
    if not unit_length:
        others *= rng.uniform(0.5, 2.0, (9, 1)).astype(np.float32)
    found = nearest_rows(points, others, count, unit_length=unit_length, at_once=4)
    assert found.shape == (11, count)
    for point, rows in zip(points.astype(np.float64), found, strict=True):
        far = ((point - others) ** 2).sum(axis=1)
        assert set(rows.tolist()) == set(np.argsort(far)[:count].tolist())


def test_of_equally_near_rows_the_first_is_taken() -> None:
    others = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 1.0]], np.float32)
    np.testing.assert_array_equal(nearest_rows(np.array([[0.0, 1.0]]), others), [[1]])


# ---- inverted lists ----


def clustered(n: int, n_clusters: int, *, seed: int) -> Array:
    centres = unit_vectors(n_clusters, 16, seed=0)
    rng = np.random.default_rng(seed)
    values = centres[rng.integers(n_clusters, size=n)] + 0.15 * rng.standard_normal((n, 16))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("n_bank", [1, 2, 30, 700])
def test_lists_hold_the_bank_once(n_bank: int) -> None:
    bank = unit_vectors(n_bank, 5)
    lists = build_lists(bank)
    np.testing.assert_array_equal(np.sort(lists.order), np.arange(n_bank))
    np.testing.assert_array_equal(lists.patches, bank[lists.order])
    assert len(lists.offsets) == len(lists.centres) + 1
    assert lists.offsets[0] == 0
    assert lists.offsets[-1] == n_bank
    assert (np.diff(lists.offsets) > 0).all()
    np.testing.assert_allclose(np.linalg.norm(lists.centres, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("block", [1, 30, 4_000_000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("n_bank", [1, 5, 400])
def test_probing_every_list_is_exact(n_bank: int, dtype: Any, block: int) -> None:
    queries = unit_vectors(75, 6, seed=1, dtype=dtype)
    bank = unit_vectors(n_bank, 6, seed=2, dtype=dtype)
    lists = replace(build_lists(bank), queries_at_once=32, similarities_at_once=block)
    check_search(lists.search(queries, probes=len(lists.centres)), queries, bank)
    check_search(lists.search(queries, probes=10_000), queries, bank)


def test_sixteen_probes_find_nearly_every_neighbour() -> None:
    bank, queries = clustered(3000, 60, seed=1), clustered(300, 60, seed=2)
    lists = build_lists(bank)
    assert len(lists.centres) > 4 * inverted.PROBES
    _, index = naive_nearest(queries, bank)
    found = lists.search(queries)
    assert (found.index == index).mean() > 0.97
    # What is found is a patch of the bank at that distance, if not always the nearest one.
    apart = np.linalg.norm(queries.astype(np.float64) - bank[found.index], axis=1)
    np.testing.assert_allclose(found.distances, apart, atol=1e-4)
    again = build_lists(bank).search(queries)
    np.testing.assert_array_equal(again.index, found.index)


def test_few_probes_find_less_than_many() -> None:
    bank, queries = unit_vectors(1500, 16, seed=1), unit_vectors(200, 16, seed=2)
    _, index = naive_nearest(queries, bank)
    lists = build_lists(bank)
    recalls = [
        (lists.search(queries, probes=probes).index == index).mean() for probes in (1, 8, 64)
    ]
    assert recalls[0] < recalls[1] < recalls[2]


def test_a_querys_own_image_is_left_out() -> None:
    bank = unit_vectors(200, 6, seed=3)
    owner = np.arange(200) % 5
    lists = replace(build_lists(bank), queries_at_once=33, similarities_at_once=40)
    found = lists.search(bank, probes=10_000, not_from=(owner, owner))
    for image in range(5):
        rows, others = owner == image, np.flatnonzero(owner != image)
        distances, index = naive_nearest(bank[rows], bank[others])
        np.testing.assert_array_equal(found.index[rows], others[index])
        np.testing.assert_allclose(found.distances[rows] ** 2, distances**2, **SQUARED)


def test_nothing_but_the_own_image_is_infinitely_far() -> None:
    bank = unit_vectors(20, 4)
    found = build_lists(bank).search(bank[:3], not_from=(np.zeros(3, int), np.zeros(20, int)))
    assert np.isinf(found.distances).all()


# ---- peers ----


CASES = [
    pytest.param(2, [0, 1], id="two images"),
    pytest.param(5, [0, 1, 2, 3, 4], id="odd, all peers"),
    pytest.param(6, [0, 1, 2, 3, 4, 5], id="even, all peers"),
    pytest.param(7, [1, 4, 6], id="a sample of peers"),
    pytest.param(4, [2, 3], id="two peers"),
]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("n", "peers"), CASES)
def test_mean_over_peers(n: int, peers: list[int], dtype: Any) -> None:
    patches = unit_vectors(n, 6, 4, seed=n, dtype=dtype)
    before = patches.copy()
    told, sizes = MeanOverPeers(n, 6), BlockSizes(stripe=2, peers=2)
    scores = fold_peers(patches, np.array(peers), told, bags=Singles(rows=4), sizes=sizes)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, naive_scores(patches, peers, None), atol=1e-4)
    np.testing.assert_array_equal(patches, before)


@pytest.mark.parametrize("count", [1, 2, 40])
@pytest.mark.parametrize(("n", "peers"), CASES)
def test_mean_over_the_nearest_peers(n: int, peers: list[int], count: int) -> None:
    patches = unit_vectors(n, 6, 4, seed=n)
    scores = fold_peers(patches, np.array(peers), MeanOverNearestPeers(n, 6, count))
    np.testing.assert_allclose(scores, naive_scores(patches, peers, count), **HALVES)


@pytest.mark.parametrize(("kind", "naive"), [(MaxOverPeers, np.max), (MinOverPeers, np.min)])
@pytest.mark.parametrize(("n", "peers"), CASES)
def test_extremes_over_peers(n: int, peers: list[int], kind: Any, naive: Any) -> None:
    patches = unit_vectors(n, 6, 4, seed=n)
    statistic = kind(n, 6)
    scores = fold_peers(patches, np.array(peers), statistic)
    assert scores.dtype == np.float32
    for image, bag in enumerate(patches):
        far = naive_peer_distances(bag, patches[[j for j in peers if j != image]])
        np.testing.assert_allclose(scores[image], naive(far, axis=0), atol=1e-4)
    scores[:] = -1  # what was returned is the caller's
    assert (statistic.result() >= 0).all()


@pytest.mark.parametrize("kind", [MeanOverPeers, MaxOverPeers, MinOverPeers])
def test_without_a_peer_there_is_no_distance(kind: Any) -> None:
    patches = unit_vectors(3, 4, 3)
    scores = fold_peers(patches, np.array([1]), kind(3, 4))
    np.testing.assert_array_equal(scores[1], 0)
    for image in (0, 2):
        expected = naive_peer_distances(patches[image], patches[[1]])[0]
        np.testing.assert_allclose(scores[image], expected, atol=1e-4)


def test_one_sweep_serves_several_statistics() -> None:
    patches = unit_vectors(6, 5, 4, seed=2)
    kinds = (MinOverPeers, MeanOverPeers, MaxOverPeers)
    together = [kind(6, 5) for kind in kinds]
    first = fold_peers(patches, np.arange(6), Combined(together))
    for kind, statistic in zip(kinds, together, strict=True):
        alone = fold_peers(patches, np.arange(6), kind(6, 5))
        np.testing.assert_array_equal(statistic.result(), alone)
    np.testing.assert_array_equal(first, together[0].result())


class Recorder:
    """Keeps what is added, to see who was compared with whom."""

    def __init__(self) -> None:
        self.added: dict[tuple[int, int], Array] = {}

    def add(self, image: int, peer: int, distances: Array) -> None:
        assert (image, peer) not in self.added
        self.added[image, peer] = distances

    def result(self) -> Array:
        return np.zeros(0, np.float32)


@pytest.mark.parametrize("n_extra", [None, 0, 1, 5])
@pytest.mark.parametrize(("n", "peers"), [*CASES, pytest.param(3, [], id="no peers")])
def test_each_image_is_compared_with_each_peer_and_extra(
    n: int, peers: list[int], n_extra: int | None
) -> None:
    patches = unit_vectors(n, 4, 3, seed=n)
    extra = None if n_extra is None else unit_vectors(n_extra, 4, 3, seed=20, dtype=np.float16)
    recorder = Recorder()
    calls: list[tuple[str, int, int]] = []
    fold_peers(
        patches,
        np.array(peers, int),
        recorder,
        extra=extra,
        sizes=BlockSizes(stripe=2, peers=3),
        progress=lambda *call: calls.append(call),
    )
    numbers = [*peers, *range(n, n + (n_extra or 0))]
    assert set(recorder.added) == {(i, j) for i in range(n) for j in numbers if i != j}
    everyone = patches if extra is None else np.concatenate([patches, extra])
    for (image, peer), distances in recorder.added.items():
        expected = naive_peer_distances(patches[image], everyone[[peer]])[0]
        np.testing.assert_allclose(distances**2, expected**2, **SQUARED)
    pairs = len({frozenset(pair) for pair in recorder.added})
    assert not calls or calls[-1] == ("scoring", pairs, pairs)
    assert bool(calls) is bool(numbers)


def test_extra_peers_count_in_the_mean() -> None:
    patches, extra = unit_vectors(4, 5, 4, seed=1), unit_vectors(3, 5, 4, seed=2)
    before = extra.copy()
    scores = fold_peers(patches, np.arange(4), MeanOverPeers(4, 5), extra=extra)
    everyone = naive_scores(np.concatenate([patches, extra]), list(range(7)), None)
    np.testing.assert_allclose(scores, everyone[:4], atol=1e-4)
    np.testing.assert_array_equal(extra, before)


def test_references_are_numbered_by_their_rows() -> None:
    patches, references = unit_vectors(2, 4, 3, seed=1), unit_vectors(3, 4, 3, seed=2)
    recorder = Recorder()
    fold_references(patches, references, recorder)
    assert set(recorder.added) == {(i, j) for i in range(2) for j in range(3)}
    for (image, peer), distances in recorder.added.items():
        expected = naive_peer_distances(patches[image], references[[peer]])[0]
        np.testing.assert_allclose(distances**2, expected**2, **SQUARED)


@pytest.mark.parametrize("own", [[-1, -1, -1], [2, -1, 0], [1, 1, 1]])
def test_the_image_itself_is_left_out_of_the_references(own: list[int]) -> None:
    patches, references = unit_vectors(3, 4, 3, seed=1), unit_vectors(3, 4, 3, seed=2)
    recorder = Recorder()
    calls: list[tuple[str, int, int]] = []
    fold_references(
        patches,
        references,
        recorder,
        self_rows=np.array(own),
        progress=lambda *call: calls.append(call),
    )
    assert set(recorder.added) == {(i, j) for i in range(3) for j in range(3) if j != own[i]}
    for (image, peer), distances in recorder.added.items():
        expected = naive_peer_distances(patches[image], references[[peer]])[0]
        np.testing.assert_allclose(distances**2, expected**2, **SQUARED)
    assert calls == [("scoring", done, 3) for done in (1, 2, 3)]


class Halved(Singles):
    """Makes of patches what only its own comparison understands."""

    def operands(self, patches: Array) -> Any:
        return patches.astype(np.float32) / 2

    def compare(self, first: Array, second: Array) -> tuple[Array, Array]:
        return super().compare(factors(2 * first), factors(2 * second))


def test_bags_are_made_ready_and_compared_by_the_same_product() -> None:
    patches, others = unit_vectors(5, 4, 3, seed=1), unit_vectors(2, 4, 3, seed=2)
    for fold in (
        lambda told, bags: fold_peers(patches, np.array([0, 3]), told, extra=others, bags=bags),
        lambda told, bags: fold_references(patches, others, told, bags=bags),
    ):
        found, expected = Recorder(), Recorder()
        fold(found, Halved())
        fold(expected, SINGLES)
        assert found.added.keys() == expected.added.keys()
        for pair, distances in found.added.items():
            np.testing.assert_array_equal(distances, expected.added[pair])


@given(n_peers=st.integers(0, 90), count=st.integers(1, 50), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_larger_distances_are_sorted_out(n_peers: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Values that half precision holds exactly, with many ties.
    distances = rng.integers(0, 64, (n_peers, 2, 5)) / np.float32(32)
    statistic = MeanOverNearestPeers(3, 5, count)
    for peer, both in enumerate(distances):
        statistic.add(0, peer, both[0])
        statistic.add(2, peer, both[1])
    result = statistic.result()
    np.testing.assert_array_equal(result[1], 0)  # nobody was its peer
    if n_peers:
        expected = np.sort(distances, axis=0)[:count].mean(axis=0)
        np.testing.assert_allclose(result[[0, 2]], expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(result, 0)


def test_more_peers_than_there_is_room_for() -> None:
    n = MeanOverNearestPeers.ROOM + 8
    patches = unit_vectors(n, 3, 3, seed=9)
    scores = fold_peers(patches, np.arange(n), MeanOverNearestPeers(n, 3, 2))
    np.testing.assert_allclose(scores, naive_scores(patches, list(range(n)), 2), **HALVES)


@pytest.mark.parametrize(("stripe", "at_once"), [(1, 1), (3, 2), (2, 100), (100, 1), (100, 100)])
@pytest.mark.parametrize(("n", "peers"), CASES)
def test_every_pair_is_multiplied_once(n: int, peers: list[int], stripe: int, at_once: int) -> None:
    patches = unit_vectors(n, 4, 3, seed=1)
    row_of = {bag.tobytes(): row for row, bag in enumerate(patches)}
    compared: list[frozenset[int]] = []

    class Counted(Singles):
        def compare(self, first: Any, second: Any) -> tuple[Array, Array]:
            compared.append(
                frozenset(row_of[one.right[:, :3].tobytes()] for one in (first, second))
            )
            return super().compare(first, second)

    calls: list[tuple[str, int, int]] = []
    fold_peers(
        patches,
        np.array(peers),
        MeanOverPeers(n, 4),
        bags=Counted(),
        sizes=BlockSizes(stripe=stripe, peers=at_once),
        progress=lambda *call: calls.append(call),
    )
    wanted = {frozenset([i, j]) for i in range(n) for j in peers if i != j}
    assert Counter(compared) == Counter(wanted)
    assert calls[-1] == ("scoring", len(wanted), len(wanted))


def test_distances_between_bags_are_the_same_from_both_sides() -> None:
    first, second = unit_vectors(7, 5, seed=1), unit_vectors(9, 5, seed=2)
    first, second = factors(first), factors(second)
    there, back = SINGLES.compare(first, second), SINGLES.compare(second, first)
    np.testing.assert_allclose(there[0], back[1], atol=1e-6)
    np.testing.assert_allclose(there[1], back[0], atol=1e-6)
    np.testing.assert_array_equal(SINGLES.compare(first, first), 0)


def test_permuting_images_permutes_scores_and_permuting_patches_their_columns() -> None:
    patches = unit_vectors(6, 8, 4, seed=3)
    rng = np.random.default_rng(0)
    images, columns = rng.permutation(6), rng.permutation(8)
    straight = fold_peers(patches, np.arange(6), MeanOverPeers(6, 8))
    moved = fold_peers(patches[images][:, columns], np.arange(6), MeanOverPeers(6, 8))
    np.testing.assert_allclose(moved, straight[images][:, columns], atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("dim", [4, 168, 1024])
def test_duplicates_are_at_no_distance(dim: int, dtype: Any) -> None:
    # Halves are of unit length to 3e-4 only: taken for one, equal ones would be .02 apart.
    one = unit_vectors(1, 40, dim, dtype=dtype)
    bags = np.concatenate([one, unit_vectors(2, 40, dim, seed=1, dtype=dtype), one[:, ::-1]])
    scores = fold_peers(bags, np.arange(4), MinOverPeers(4, 40))
    np.testing.assert_array_equal(scores[[0, 3]], 0)
    assert scores[1:3].min() > 0.01
    for found in (nearest_in_bank(one[0], bags[3]), build_lists(bags[3]).search(one[0])):
        np.testing.assert_array_equal(found.index, np.arange(40)[::-1])
        np.testing.assert_array_equal(found.distances, 0)


def test_the_nearest_patch_is_not_the_longest() -> None:
    query = np.array([[1.0, 0.0]], np.float32)
    bank = np.array([[1.02, 0.05], [0.995, 0.01]], np.float32)  # the first has the larger product
    assert (query @ bank.T).argmax() == 0
    for found in (nearest_in_bank(query, bank), build_lists(bank).search(query, probes=9)):
        np.testing.assert_array_equal(found.index, [1])
        np.testing.assert_allclose(found.distances, np.hypot(0.005, 0.01), rtol=1e-5)
    both = np.stack([np.repeat(query, 2, axis=0), bank])
    scores = fold_peers(both, np.arange(2), MeanOverPeers(2, 2))
    np.testing.assert_allclose(scores[0], np.hypot(0.005, 0.01), rtol=1e-3)
    expected = expected_from_peers(both[:1], np.array([[0]]), both[1:], np.array([-1]))
    np.testing.assert_array_equal(expected[0, 0], bank[1])


@pytest.mark.parametrize("count", [None, 2])
def test_references_that_the_images_are_not_among(count: int | None) -> None:
    patches, references = unit_vectors(3, 6, 4, seed=1), unit_vectors(5, 6, 4, seed=2)
    statistic = MeanOverPeers(3, 6) if count is None else MeanOverNearestPeers(3, 6, count)
    calls: list[tuple[str, int, int]] = []
    scores = fold_references(
        patches, references, statistic, progress=lambda *call: calls.append(call)
    )
    for image, bag in enumerate(patches):
        far = naive_peer_distances(bag, references)
        expected = np.sort(far, axis=0)[:count].mean(axis=0)
        np.testing.assert_allclose(scores[image], expected, **HALVES)
    assert calls[-1] == ("scoring", 3, 3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_expected_is_the_mean_of_the_nearest_patch_of_each_reference(dtype: Any) -> None:
    patches = unit_vectors(4, 6, 5, seed=1, dtype=dtype)
    references = patches[[3, 1]]
    own = np.array([-1, 1, -1, 0])
    chosen = np.array([[0, 5], [2, 2], [3, 1], [4, 0]])
    expected = expected_from_peers(patches, chosen, references, own)
    assert expected.shape == (4, 2, 5)
    for image in range(4):
        for place, patch in enumerate(chosen[image]):
            found = []
            for row, reference in enumerate(references):
                if row != own[image]:
                    _, index = naive_nearest(patches[image, [patch]], reference)
                    found.append(reference[index[0]].astype(np.float64))
            np.testing.assert_allclose(
                expected[image, place], np.mean(found, axis=0), rtol=1e-5, atol=1e-6
            )


def test_nothing_is_expected_where_nobody_is_left_to_ask() -> None:
    patches = unit_vectors(1, 3, 4)
    expected = expected_from_peers(patches, np.array([[0, 1]]), patches, np.array([0]))
    np.testing.assert_array_equal(expected, np.zeros((1, 2, 4)))


def test_the_search_in_lists_reports_progress() -> None:
    bank = unit_vectors(50, 4)
    calls: list[tuple[str, int, int]] = []
    lists = replace(build_lists(bank), queries_at_once=20)
    lists.search(bank, progress=lambda *call: calls.append(call))
    assert calls == [("scoring", done, 50) for done in (0, 20, 40, 50)]

"""What patches are compared with: normal images and peers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flawsort.core.records import Bags
from flawsort.scores import reference as references
from flawsort.scores.engines import CpuEngine, CpuLimits
from flawsort.scores.inverted_lists import highest
from flawsort.scores.reference import (
    NormalReference,
    PeerCounts,
    PeerReference,
    Reference,
    StoredReference,
    compare_with_peers,
    restore_reference,
)
from helpers.bags import Array, unit_vectors
from helpers.oracles import naive_nearest, naive_peer_distances, naive_scores


def made_bags(n_images: int, *, seed: int = 0, valid: Array | None = None) -> Bags:
    patches = unit_vectors(n_images, 6, 5, seed=seed, dtype=np.float16)
    if valid is not None:
        for bag, inside in zip(patches, valid, strict=True):
            bag[~inside] = bag[np.argmax(inside)]
    return Bags(patches, (2, 3), valid)


def some_valid(n_images: int) -> Array:
    valid = np.random.default_rng(4).random((n_images, 6)) > 0.4
    valid[:, 2] = True
    return valid


def limited(exact_flop: float) -> CpuEngine:
    return CpuEngine(limits=CpuLimits(exact_flop=exact_flop))


# ---- normals ----


@pytest.mark.parametrize("exact", [True, None])
def test_scores_are_distances_to_the_nearest_normal_patch(exact: bool | None) -> None:
    bags, normals = made_bags(4), made_bags(3, seed=1)
    reference = NormalReference.from_bags(normals, exact=exact)
    comparison = reference.compare(bags)
    assert reference.exact is True
    bank = normals.patches.reshape(-1, 5)
    distances, index = naive_nearest(bags.patches.reshape(-1, 5), bank)
    np.testing.assert_allclose(comparison.scores, distances.reshape(4, 6), atol=1e-4)
    chosen = np.array([[0, 5], [1, 1], [3, 2], [4, 0]])
    expected = comparison.expected(np.arange(4), chosen)
    assert expected.dtype == np.float32
    for image in range(4):
        for place, patch in enumerate(chosen[image]):
            np.testing.assert_array_equal(
                expected[image, place], bank[index.reshape(4, 6)[image, patch]]
            )
    some = np.array([3, 1])
    np.testing.assert_array_equal(comparison.expected(some, chosen[some]), expected[some])
    assert (
        comparison.how
        == "compared with 18 known-good patches, searched exactly (NumPy on the CPU, float32)"
    )


def test_beyond_the_limit_the_search_goes_through_lists() -> None:
    normals, bags = made_bags(3, seed=1), made_bags(4)
    reference = NormalReference.from_bags(normals, engine=limited(0.0))
    assert reference.exact is None
    comparison = reference.compare(bags)
    assert reference.exact is False
    assert (
        comparison.how == "compared with 18 known-good patches, searched approximately "
        "(inverted lists; the highest-scoring patches exactly)"
    )
    # So few patches make ten lists, all of which are probed.
    exact = NormalReference.from_bags(normals, exact=True, engine=limited(0.0)).compare(bags)
    assert "exactly" in exact.how
    np.testing.assert_allclose(comparison.scores, exact.scores, atol=1e-4)
    chosen = np.tile(np.arange(6), (4, 1))
    np.testing.assert_array_equal(
        comparison.expected(np.arange(4), chosen), exact.expected(np.arange(4), chosen)
    )


@pytest.mark.parametrize("first", [0.0, np.inf])
def test_the_first_comparison_decides_for_all(first: float) -> None:
    reference = NormalReference.from_bags(made_bags(3, seed=1), engine=limited(first))
    how = reference.compare(made_bags(4)).how
    reference.engine = limited(0.0 if first else np.inf)
    assert reference.compare(made_bags(1, seed=2)).how == how
    assert reference.exact is (first > 0)


@pytest.mark.parametrize("exact", [True, False])
def test_what_was_asked_for_is_not_decided_by_size(exact: bool) -> None:
    bank, engine = made_bags(3, seed=1).patches.reshape(-1, 5), limited(0.0 if exact else np.inf)
    reference = NormalReference(bank, exact=exact, engine=engine)
    assert ("approximately" in reference.compare(made_bags(4)).how) is not exact
    assert reference.exact is exact


def test_lists_that_are_there_already_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, bags = made_bags(3, seed=1).patches.reshape(-1, 5), made_bags(4)
    lists = references.build_lists(bank, random_state=0)
    built = NormalReference(bank, exact=False).compare(bags)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(references, "build_lists", fail)
    reference = NormalReference(bank, exact=False, lists=lists)
    assert reference.lists is lists
    np.testing.assert_array_equal(reference.compare(bags).scores, built.scores)


def test_the_bank_leaves_out_what_is_not_valid() -> None:
    valid = some_valid(3)
    normals = made_bags(3, valid=valid)
    bank = NormalReference.from_bags(normals).bank
    np.testing.assert_array_equal(bank, normals.patches[valid])


def test_a_large_bank_is_a_sample() -> None:
    normals, most = made_bags(4), 10 * 5 * 2 + 3
    bank = NormalReference.from_bags(normals, random_state=3, bank_bytes=most).bank
    assert len(bank) == 10
    rows = {patch.tobytes() for patch in normals.patches.reshape(-1, 5)}
    assert len({patch.tobytes() for patch in bank} & rows) == 10
    again = NormalReference.from_bags(normals, random_state=3, bank_bytes=most).bank
    np.testing.assert_array_equal(bank, again)
    whole = NormalReference.from_bags(normals, exact=True, bank_bytes=most).bank
    np.testing.assert_array_equal(whole, normals.patches.reshape(-1, 5))


def test_normals_are_scored_among_all_others_where_the_bank_is_whole() -> None:
    normals = made_bags(references.MIN_CALIBRATION + 1, seed=2)
    expected = NormalReference.from_bags(normals, exact=True).scores_of_normals(normals)
    small = NormalReference.from_bags(normals, exact=True, bank_bytes=10 * 5 * 2)
    found = small.scores_of_normals(normals)
    assert expected is not None
    assert found is not None
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("masked", [False, True])
def test_normals_are_scored_among_the_other_normals(masked: bool) -> None:
    n = references.MIN_CALIBRATION + 1
    valid = some_valid(n) if masked else None
    normals = made_bags(n, seed=2, valid=valid)
    reference = NormalReference.from_bags(normals)
    # Of the 22 or fewer lists only 16 are probed: probe all, to be exact.
    assert len(reference.lists.centres) <= 22
    scores = reference.scores_of_normals(normals)
    assert scores is not None
    assert scores.shape == (n, 6)
    for image in range(n):
        others = [i for i in range(n) if i != image]
        bank = normals.patches[others]
        bank = bank.reshape(-1, 5) if valid is None else bank[valid[others]]
        distances, _ = naive_nearest(normals.patches[image], bank)
        inside = np.ones(6, bool) if valid is None else valid[image]
        assert np.isnan(scores[image][~inside]).all()
        close = np.isclose(scores[image][inside], distances[inside], atol=1e-4)
        assert (scores[image][inside] >= distances[inside] - 1e-4).all()
        assert close.mean() > 0.6


def unlike_bags(n_images: int, *, seed: int) -> Bags:
    """64 patches an image, so unlike each other that 16 lists miss many of the nearest ones."""
    return Bags(unit_vectors(n_images, 64, 48, seed=seed, dtype=np.float16), (8, 8))


def test_the_highest_scoring_patches_are_searched_again_exactly() -> None:
    bags, normals = unlike_bags(6, seed=3), unlike_bags(40, seed=4)
    reference = NormalReference.from_bags(normals, exact=False)
    comparison = reference.compare(bags)
    flat = bags.patches.reshape(-1, 48)
    distances, index = naive_nearest(flat, reference.bank)
    found = reference.lists.search(flat).distances.reshape(6, 64)
    top = np.argsort(-found, axis=1)[:, :2]  # 1/32 of them
    assert (np.take_along_axis(found, top, 1) > top_of(distances, top) + 1e-3).any()
    np.testing.assert_allclose(
        np.take_along_axis(comparison.scores, top, 1), top_of(distances, top), atol=1e-4
    )
    np.testing.assert_array_equal(
        comparison.expected(np.arange(6), top), reference.bank[top_of(index, top)]
    )
    others = np.ones((6, 64), bool)
    np.put_along_axis(others, top, False, 1)
    np.testing.assert_array_equal(comparison.scores[others], found[others])


def test_of_a_photo_of_many_tiles_few_are_searched_again() -> None:
    assert highest(np.zeros((2, 1024)), None).shape == (2, 32)
    assert highest(np.zeros((2, 126 * 1024)), None).shape == (2, 128)
    assert highest(np.zeros((2, 3)), None).shape == (2, 1)


def test_padding_is_not_searched_again() -> None:
    bags, normals = unlike_bags(2, seed=3), unlike_bags(40, seed=4)
    reference = NormalReference.from_bags(normals, exact=False)
    found = reference.lists.search(bags.patches.reshape(-1, 48)).distances.reshape(2, 64)
    order = np.argsort(-found, axis=1)
    valid = np.ones((2, 64), bool)
    np.put_along_axis(valid, order[:, :2], False, 1)
    scores = reference.compare(Bags(bags.patches, (8, 8), valid)).scores
    np.testing.assert_array_equal(scores[~valid], found[~valid])
    exact, _ = naive_nearest(bags.patches.reshape(-1, 48), reference.bank)
    top = order[:, 2:4]
    np.testing.assert_allclose(np.take_along_axis(scores, top, 1), top_of(exact, top), atol=1e-4)


@pytest.mark.parametrize("bank_bytes", [references.BANK_BYTES, 1_000 * 48 * 2])
def test_of_known_good_images_too_without_their_own_patches(bank_bytes: int) -> None:
    n = references.CALIBRATION_IMAGES + 4
    normals = unlike_bags(n, seed=5)
    reference = NormalReference.from_bags(normals, exact=False, bank_bytes=bank_bytes)
    scores = reference.scores_of_normals(normals)
    assert scores is not None
    owner = references._bank_rows(normals, 0, len(reference.bank)) // 64
    sample = np.sort(np.random.default_rng(0).permutation(n)[: references.CALIBRATION_IMAGES])
    queries = normals.patches[sample].reshape(-1, 48)
    images = np.repeat(sample, 64)
    found = reference.lists.search(queries, not_from=(images, owner)).distances
    found = found.reshape(len(sample), 64)
    top = np.argsort(-found, axis=1)[:, :2]
    wrong = 0
    for row, image in enumerate(sample):
        others = reference.bank[owner != image]
        distances, _ = naive_nearest(normals.patches[image, top[row]], others)
        np.testing.assert_allclose(scores[row, top[row]], distances, atol=1e-4)
        wrong += int((found[row, top[row]] > distances + 1e-3).sum())
    assert wrong > 0
    others = np.ones(found.shape, bool)
    np.put_along_axis(others, top, False, 1)
    np.testing.assert_array_equal(scores[others], found[others])


def top_of(values: Array, top: Array) -> Array:
    """The values (n_images * n_patches,) of chosen patches (n_images, n_chosen)."""
    return np.take_along_axis(values.reshape(len(top), -1), top, 1)


def test_many_normals_are_scored_by_a_sample_and_few_not_at_all() -> None:
    many = made_bags(references.CALIBRATION_IMAGES + 5)
    scores = NormalReference.from_bags(many).scores_of_normals(many)
    assert scores is not None
    assert scores.shape == (references.CALIBRATION_IMAGES, 6)
    few = made_bags(references.MIN_CALIBRATION - 1)
    assert NormalReference.from_bags(few).scores_of_normals(few) is None


# ---- peers ----


@pytest.mark.parametrize("n_peers", [None, "all", 100])
def test_all_the_others_are_peers(n_peers: object) -> None:
    bags = made_bags(7)
    comparison, reference = compare_with_peers(bags, n_peers=n_peers)  # type: ignore[arg-type]
    np.testing.assert_allclose(
        comparison.scores, naive_scores(bags.patches, list(range(7))), atol=1e-4
    )
    assert comparison.how == "compared with each other (NumPy on the CPU, float32)"
    np.testing.assert_array_equal(reference.peers, bags.patches)


def test_the_nearest_share_of_the_peers() -> None:
    bags = made_bags(7)
    comparison, _ = compare_with_peers(bags, nearest_share=0.36)  # of six: two
    expected = naive_scores(bags.patches, list(range(7)), 2)
    np.testing.assert_allclose(comparison.scores, expected, atol=2e-3)
    at_least_one, _ = compare_with_peers(bags, nearest_share=0.01)
    expected = naive_scores(bags.patches, list(range(7)), 1)
    np.testing.assert_allclose(at_least_one.scores, expected, atol=2e-3)


def test_a_sample_of_peers() -> None:
    bags = made_bags(9)
    comparison, reference = compare_with_peers(bags, n_peers=3, random_state=5)
    assert comparison.how == "compared with a sample of 3 of them (NumPy on the CPU, float32)"
    peers = [
        row for row in range(9) if any((bags.patches[row] == one).all() for one in reference.peers)
    ]
    assert len(peers) == len(reference.peers) == 3
    np.testing.assert_allclose(comparison.scores, naive_scores(bags.patches, peers), atol=1e-4)
    other, _ = compare_with_peers(bags, n_peers=3, random_state=6)
    assert not np.allclose(other.scores, comparison.scores)


PAIR = 2 * 6 * 6 * 5  # operations to compare two of the bags here


@pytest.mark.parametrize(("up_to", "n_peers"), [(11, 11), (12, 11), (10, 4)])
def test_of_a_larger_set_a_sample_are_peers(up_to: int, n_peers: int) -> None:
    counts = PeerCounts(all_up_to=up_to, sampled=4)
    comparison, reference = compare_with_peers(made_bags(11), counts=counts)
    how = f"compared with a sample of {n_peers} of them (NumPy on the CPU, float32)"
    if n_peers == 11:
        how = "compared with each other (NumPy on the CPU, float32)"
    assert comparison.how == how
    assert len(reference.peers) == n_peers
    everybody, _ = compare_with_peers(made_bags(11), n_peers="all", counts=counts)
    assert everybody.how == "compared with each other (NumPy on the CPU, float32)"
    given, _ = compare_with_peers(made_bags(11), n_peers=5, counts=counts)
    assert given.how == "compared with a sample of 5 of them (NumPy on the CPU, float32)"


def test_a_single_image_has_no_peers() -> None:
    comparison, _ = compare_with_peers(made_bags(1))
    np.testing.assert_array_equal(comparison.scores, np.zeros((1, 6)))
    expected = comparison.expected(np.array([0]), np.array([[0, 1]]))
    np.testing.assert_array_equal(expected, np.zeros((1, 2, 5)))


def test_what_peers_expect_leaves_the_image_itself_out() -> None:
    bags = made_bags(7)
    comparison, reference = compare_with_peers(bags, counts=PeerCounts(stored=4))
    assert len(reference.peers) == 4
    chosen = np.tile(np.arange(6), (7, 1))
    expected = comparison.expected(np.arange(7), chosen)
    for image, bag in enumerate(bags.patches):
        others = [peer for peer in reference.peers if not (peer == bag).all()]
        assert len(others) in (3, 4)
        nearest = [peer[naive_nearest(bag, peer)[1]].astype(np.float64) for peer in others]
        np.testing.assert_allclose(expected[image], np.mean(nearest, axis=0), atol=1e-5)
        alone = comparison.expected(np.array([image]), chosen[[image]])
        np.testing.assert_array_equal(alone, expected[[image]])


@pytest.mark.parametrize(("share", "count"), [(1.0, None), (0.4, 2)])
def test_new_images_against_stored_peers(share: float, count: int | None) -> None:
    peers, bags = made_bags(5, seed=1), made_bags(3, seed=2)
    comparison = PeerReference(peers.patches, share).compare(bags)
    assert comparison.how == "5 images of the run as peers (NumPy on the CPU, float32)"
    for image, bag in enumerate(bags.patches):
        far = np.sort(naive_peer_distances(bag, peers.patches), axis=0)[:count]
        np.testing.assert_allclose(comparison.scores[image], far.mean(axis=0), atol=2e-3)
    expected = comparison.expected(np.arange(3), np.zeros((3, 1), int))
    for image, bag in enumerate(bags.patches):
        nearest = [peer[naive_nearest(bag[:1], peer)[1][0]] for peer in peers.patches]
        np.testing.assert_allclose(
            expected[image, 0], np.mean(np.array(nearest, np.float64), axis=0), atol=1e-5
        )
    some = np.array([2, 0])
    np.testing.assert_array_equal(comparison.expected(some, np.zeros((2, 1), int)), expected[some])


@pytest.mark.parametrize(("share", "count"), [(1.0, None), (0.5, 2)])
def test_images_that_are_peers_themselves(share: float, count: int | None) -> None:
    peers = made_bags(5, seed=1)
    bags = Bags(np.concatenate([made_bags(2, seed=2).patches, peers.patches[[3, 0]]]), (2, 3))
    own = np.array([-1, -1, 3, 0])
    comparison = PeerReference(peers.patches, share).compare(bags, self_rows=own)
    assert comparison.how == "compared with a sample of 5 of them (NumPy on the CPU, float32)"
    chosen = np.tile(np.arange(6), (4, 1))
    expected = comparison.expected(np.arange(4), chosen)
    for image, bag in enumerate(bags.patches):
        others = peers.patches[[peer for peer in range(5) if peer != own[image]]]
        far = np.sort(naive_peer_distances(bag, others), axis=0)[:count]
        np.testing.assert_allclose(comparison.scores[image], far.mean(axis=0), atol=2e-3)
        nearest = [peer[naive_nearest(bag, peer)[1]].astype(np.float64) for peer in others]
        np.testing.assert_allclose(expected[image], np.mean(nearest, axis=0), atol=1e-5)
    some = np.array([3, 1])
    np.testing.assert_array_equal(comparison.expected(some, chosen[some]), expected[some])
    # As many peers count as an image of the sample has, in every image alike.
    new = PeerReference(peers.patches, 0.5).compare(bags)
    assert not np.allclose(new.scores, comparison.scores, atol=1e-3)


def test_peers_as_everybody_finds_them() -> None:
    bags = made_bags(9)
    everybody, _ = compare_with_peers(bags, n_peers=4, nearest_share=0.7, random_state=5)
    order = np.random.default_rng(5).permutation(9)[:4]
    own = np.full(9, -1)
    own[order] = np.arange(4)
    past = PeerReference(bags.patches[order], 0.7).compare(bags, self_rows=own)
    np.testing.assert_allclose(past.scores, everybody.scores, atol=1e-6)
    assert past.how == everybody.how
    chosen = np.tile(np.arange(6), (9, 1))
    np.testing.assert_allclose(
        past.expected(np.arange(9), chosen), everybody.expected(np.arange(9), chosen), atol=1e-6
    )


def test_residuals_come_from_the_first_of_many_peers() -> None:
    peers = made_bags(5, seed=1)
    own = np.array([4, 1, 3])
    bags = Bags(peers.patches[own], (2, 3))

    class Strict(CpuEngine):
        def expected_from_peers(self, patches: Array, chosen: Array, few: Array, own: Array) -> Any:
            assert own.tolist() == [-1, 1, -1]  # not one of those that are not among the few
            return super().expected_from_peers(patches, chosen, few, own)

    counts = PeerCounts(stored=3)
    reference = PeerReference(peers.patches, 1.0, engine=Strict(), counts=counts)
    comparison = reference.compare(bags, self_rows=own)
    expected = comparison.expected(np.arange(3), np.zeros((3, 1), int))
    for image, few in enumerate(([0, 1, 2], [0, 2], [0, 1, 2])):
        first = bags.patches[image][:1]
        nearest = [
            peers.patches[one][naive_nearest(first, peers.patches[one])[1][0]] for one in few
        ]
        np.testing.assert_allclose(
            expected[image, 0], np.mean(np.array(nearest, np.float64), axis=0), atol=1e-5
        )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("exact", [True, False])
def test_what_some_normals_expect(exact: bool, masked: bool) -> None:
    """The mean of the nearest patch in each of three of seven, also when restored."""
    patches = unit_vectors(7, 6, 5, seed=1, dtype=np.float16)
    inside = some_valid(7) if masked else np.ones((7, 6), bool)
    normals = Bags(patches, (2, 3), inside if masked else None)
    bags = made_bags(4)
    reference = NormalReference.from_bags(normals, exact=exact, expected_normals=3)
    restored = restore_reference(reference.stored(), nearest_share=1.0, expected_normals=3)
    images, chosen = np.array([2, 0]), np.array([[0, 5, 3], [1, 1, 4]])
    wanted = np.zeros((2, 3, bags.dim))
    for row in (0, 3, 6):
        counted = patches[row][inside[row]]
        for place, image in enumerate(images):
            nearest = naive_nearest(bags.patches[image, chosen[place]], counted)[1]
            wanted[place] += counted[nearest].astype(np.float64) / 3
    for one in (reference, restored):
        found = one.compare(bags).expected(images, chosen)
        np.testing.assert_allclose(found, wanted, atol=1e-3)
    first, second = reference.compare(bags), restored.compare(bags)
    np.testing.assert_array_equal(first.expected(images, chosen), second.expected(images, chosen))
    alone = NormalReference.from_bags(normals, exact=exact).compare(bags)
    np.testing.assert_array_equal(alone.scores, first.scores)
    assert not np.allclose(alone.expected(images, chosen), wanted, atol=1e-2)


def test_in_photos_of_tiles_the_nearest_patch_is_expected() -> None:
    normals, bags = made_bags(5, seed=1), replace(made_bags(2), tile=(1, 3))
    some = NormalReference.from_bags(normals, exact=True, expected_normals=3).compare(bags)
    alone = NormalReference.from_bags(normals, exact=True).compare(bags)
    images, chosen = np.array([0, 1]), np.array([[0, 5], [1, 4]])
    np.testing.assert_array_equal(some.expected(images, chosen), alone.expected(images, chosen))


def test_normals_do_not_ask_who_an_image_is() -> None:
    normals, bags = made_bags(3, seed=1), made_bags(2)
    reference = NormalReference.from_bags(normals, exact=True)
    told = reference.compare(bags, self_rows=np.array([-1, 0]))
    np.testing.assert_array_equal(told.scores, reference.compare(bags).scores)


@pytest.mark.parametrize(("n_queries", "exact"), [(10, True), (11, False)])
def test_the_search_is_settled_by_a_number(n_queries: int, exact: bool) -> None:
    engine = limited(2.0 * 10 * 18 * 5)
    reference = NormalReference.from_bags(made_bags(3, seed=1), engine=engine)
    reference.choose_search(n_queries)
    assert reference.exact is exact
    reference.choose_search(10**9 if exact else 1)
    assert reference.exact is exact


def test_the_arithmetic_for_new_images_follows_the_work() -> None:
    engine = CpuEngine("auto", limits=CpuLimits(singles_flop=3 * 5 * PAIR))
    reference = PeerReference(made_bags(5).patches, 1.0, engine=engine)
    assert "float32" in reference.compare(made_bags(3)).how
    assert "int8" in reference.compare(made_bags(4)).how


# ---- both ----


REFERENCES: dict[str, Reference] = {
    "exact": NormalReference.from_bags(made_bags(7, seed=1), exact=True),
    "lists": NormalReference.from_bags(made_bags(7, seed=1), exact=False),
    "peers": PeerReference(made_bags(5, seed=1).patches, 0.5),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_is_stored_and_restored(name: str) -> None:
    reference, bags = REFERENCES[name], made_bags(4)
    stored = reference.stored()
    assert (stored.lists is None) == (name != "lists")
    again = restore_reference(stored, nearest_share=0.5)
    assert (again.kind, again.knows_normal) == (reference.kind, reference.knows_normal)
    assert reference.knows_normal == (name != "peers")
    first, second = reference.compare(bags), again.compare(bags)
    assert first.how == second.how
    np.testing.assert_array_equal(first.scores, second.scores)
    some, chosen = np.array([2, 0]), np.array([[0, 5], [1, 1]])
    np.testing.assert_array_equal(first.expected(some, chosen), second.expected(some, chosen))
    twice = again.stored()
    np.testing.assert_array_equal(twice.patches, stored.patches)
    assert twice.kind == stored.kind


def test_an_unknown_kind_of_reference_is_refused() -> None:
    with pytest.raises(ValueError, match="reference: 'friends'"):
        restore_reference(StoredReference("friends", made_bags(5).patches), nearest_share=0.5)


def test_many_images_are_compared_in_one_way() -> None:
    engine = CpuEngine("auto", limits=CpuLimits(singles_flop=3 * 5 * PAIR))
    peers = PeerReference(made_bags(5).patches, 1.0, engine=engine)
    assert "float32" in peers.for_many(3, 6).compare(made_bags(1)).how
    assert "int8" in peers.for_many(4, 6).compare(made_bags(1)).how
    assert peers.engine is engine
    exactly_four = limited(2.0 * 4 * 6 * 18 * 5)
    for n_images, way in ((4, "exactly"), (5, "inverted lists")):
        normals = NormalReference.from_bags(made_bags(3, seed=1), engine=exactly_four)
        assert way in normals.for_many(n_images, 6).compare(made_bags(1)).how

"""Distances between bags, against plain loops in double precision."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bags
from flawsort.scores import hausdorff as distances
from flawsort.scores.distances import Factors
from flawsort.scores.hausdorff import (
    HAUSDORFF_VARIANTS,
    hausdorff,
    mean_distances,
)
from flawsort.scores.nearest import BLOCK_ROWS, BlockSizes, fold_peers
from flawsort.scores.peer_statistics import Combined, DirectedMinima, MeanOverPeers
from helpers.bags import Array, unit_vectors
from helpers.oracles import HAUSDORFF, Fold, mean, naive_directed, naive_hausdorff


def some_valid(n_images: int, n_patches: int) -> Array:
    """From one valid patch to all of them, a different number in each image."""
    valid = np.random.default_rng(4).random((n_images, n_patches)) > 0.5
    valid[0] = True
    valid[1] = False
    valid[:, 2] = True
    return valid


def made_bags(n_images: int, *, dtype: Any = np.float32, masked: bool = False) -> Bags:
    patches = unit_vectors(n_images, 6, 4, seed=n_images, dtype=dtype)
    if not masked:
        return Bags(patches, (2, 3))
    valid = some_valid(n_images, 6)
    for bag, inside in zip(patches, valid, strict=True):
        bag[~inside] = bag[np.argmax(inside)]
    return Bags(patches, (2, 3), valid)


def valid_patches(bags: Bags) -> list[Array]:
    if bags.valid is None:
        return list(bags.patches)
    return [bag[inside] for bag, inside in zip(bags.patches, bags.valid, strict=True)]


def hausdorff_distances(bags: Bags, variant: str) -> Array:
    """As the paper's tables have them: from one sweep, or from the mean of all pairs."""
    return mean_distances(bags) if variant == "mean-mean" else hausdorff(folded(bags), variant)


def folded(bags: Bags) -> DirectedMinima:
    minima = DirectedMinima(len(bags), bags.valid)
    fold_peers(bags.patches, np.arange(len(bags)), minima)
    return minima


def test_every_variant_has_an_answer_to_check_against() -> None:
    assert tuple(HAUSDORFF) == HAUSDORFF_VARIANTS


@pytest.mark.parametrize("variant", HAUSDORFF_VARIANTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", [2, 5])
def test_all_variants(variant: str, dtype: Any, masked: bool, n: int) -> None:
    bags = made_bags(n, dtype=dtype, masked=masked)
    before = bags.patches.copy()
    found = hausdorff_distances(bags, variant)
    assert found.dtype == np.float32
    assert found.shape == (n, n)
    np.testing.assert_allclose(found, naive_hausdorff(valid_patches(bags), variant), atol=1e-4)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 0)
    np.testing.assert_array_equal(bags.patches, before)


def test_both_directions_count() -> None:
    # The second bag is the first one's plain patch alone: from it nothing is far, to it much is.
    axes = np.eye(2, dtype=np.float32)
    bags = Bags(np.stack([axes[[0, 0, 0, 1]], axes[[0, 0, 0, 0]]]), (2, 2))
    far = np.sqrt(2)
    minima = folded(bags)
    np.testing.assert_allclose(minima.largest, [[0, far], [0, 0]])
    np.testing.assert_allclose(minima.mean, [[0, far / 4], [0, 0]])
    np.testing.assert_allclose(minima.smallest, [[0, 0], [0, 0]])
    expected = {
        "mean-mean": far / 4,
        "max-min max": far,
        "max-min mean": far / 2,
        "min-min": 0,
        "mean-min max": far / 4,
        "mean-min mean": far / 8,
    }
    for order in ([0, 1], [1, 0]):
        for variant, value in expected.items():
            found = hausdorff_distances(bags.take(order), variant)
            np.testing.assert_allclose(found, [[0, value], [value, 0]], rtol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_minima_go_from_row_to_column(masked: bool) -> None:
    bags = made_bags(5, masked=masked)
    minima = folded(bags)
    valid = valid_patches(bags)
    folds: dict[str, Fold] = {"largest": max, "mean": mean, "smallest": min}
    for name, over in folds.items():
        found = getattr(minima, name)
        assert found.dtype == np.float32
        expected = [[naive_directed(one, other, over, min) for other in valid] for one in valid]
        np.testing.assert_allclose(found, expected * (1 - np.eye(5)), atol=1e-4)
    np.testing.assert_array_equal(minima.result(), minima.largest)


def test_patches_that_are_not_valid_do_not_count_in_minima() -> None:
    minima = DirectedMinima(2, np.array([[True, False, True, False], [True, True, True, True]]))
    minima.add(0, 1, np.array([0.5, 9, 1, 0.1], np.float32))
    assert (minima.largest[0, 1], minima.mean[0, 1], minima.smallest[0, 1]) == (1, 0.75, 0.5)


def test_minima_share_a_sweep_with_extra_peers() -> None:
    bags, extra = made_bags(4), unit_vectors(3, 6, 4, seed=9)
    minima, scores = DirectedMinima(4), MeanOverPeers(4, 6)
    fold_peers(bags.patches, np.arange(4), Combined([scores, minima]), extra=extra)
    alone = folded(bags)
    for name in ("largest", "mean", "smallest"):
        np.testing.assert_array_equal(getattr(minima, name), getattr(alone, name))


@pytest.mark.parametrize("variant", HAUSDORFF_VARIANTS)
@pytest.mark.parametrize("masked", [False, True])
def test_order_does_not_matter(variant: str, masked: bool) -> None:
    bags = made_bags(5, masked=masked)
    rng = np.random.default_rng(0)
    images = rng.permutation(5)
    straight = hausdorff_distances(bags, variant)
    moved = hausdorff_distances(bags.take(images), variant)
    np.testing.assert_allclose(moved, straight[np.ix_(images, images)], atol=1e-5)
    # Each bag's patches in an order of their own.
    patches = np.stack([rng.permutation(6) for _ in range(5)])
    valid = None if bags.valid is None else np.take_along_axis(bags.valid, patches, axis=1)
    shuffled = Bags(np.take_along_axis(bags.patches, patches[..., None], axis=1), (2, 3), valid)
    np.testing.assert_allclose(hausdorff_distances(shuffled, variant), straight, atol=1e-5)


@pytest.mark.parametrize("variant", HAUSDORFF_VARIANTS)
def test_one_image_is_at_no_distance(variant: str) -> None:
    np.testing.assert_array_equal(hausdorff_distances(made_bags(1), variant), [[0]])


@pytest.mark.parametrize("variant", HAUSDORFF_VARIANTS[1:])
def test_duplicates_are_at_no_distance(variant: str) -> None:
    bags = made_bags(2).take([0, 0, 1])
    found = hausdorff_distances(bags, variant)
    assert found[0, 1] < 1e-3
    np.testing.assert_allclose(found[0, 2], found[1, 2], atol=1e-5)


# ---- the mean of all pairs ----


@pytest.mark.parametrize(("rows", "stripe", "at_once"), [(1, 1, 1), (4, 2, 3), (5, 100, 2)])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_every_pair_is_multiplied_once(
    monkeypatch: pytest.MonkeyPatch, n: int, rows: int, stripe: int, at_once: int
) -> None:
    sizes = BlockSizes(rows=rows, stripe=stripe, peers=at_once)
    bags = made_bags(n)
    row_of = {bag.tobytes(): row for row, bag in enumerate(bags.patches)}
    compared: list[frozenset[int]] = []
    measure = distances._mean_distance

    def counted(first: Factors, second: Factors, block_rows: int) -> float:
        assert block_rows == rows
        pair = (one.right[:, : bags.dim].tobytes() for one in (first, second))
        compared.append(frozenset(row_of[bag] for bag in pair))
        return measure(first, second, block_rows)

    monkeypatch.setattr(distances, "_mean_distance", counted)
    calls: list[tuple[str, int, int]] = []
    found = mean_distances(bags, sizes=sizes, progress=lambda *call: calls.append(call))
    np.testing.assert_allclose(found, naive_hausdorff(valid_patches(bags), "mean-mean"), atol=1e-4)
    wanted = {frozenset([i, j]) for i in range(n) for j in range(n) if i != j}
    assert Counter(compared) == Counter(wanted)
    assert calls[-1] == ("scoring", len(wanted), len(wanted))


def test_no_mean_is_nan_where_rounding_makes_a_cosine_larger_than_one() -> None:
    patch = np.full((1, 1, 3), 0.57735032, np.float32)  # its square is 1.0000001 or so
    patches = np.repeat(np.repeat(patch, 2, axis=0), 4, axis=1)
    np.testing.assert_allclose(mean_distances(Bags(patches * np.float32(1.001), (2, 2))), 0)


def test_blocks_of_the_real_size() -> None:
    patches = unit_vectors(2, BLOCK_ROWS + 3, 5)
    cosines = patches[0].astype(np.float64) @ patches[1].astype(np.float64).T
    expected = np.sqrt(2 - 2 * cosines).mean()
    found = mean_distances(Bags(patches, (1, patches.shape[1])))
    np.testing.assert_allclose(found, [[0, expected], [expected, 0]], rtol=1e-5)


# ---- refusals ----


def test_an_unknown_variant_is_refused() -> None:
    for variant in ("max", "mean-mean"):
        accepted = rf"variant must be one of 'max-min max', .* 'mean-min mean'\. Got '{variant}'\."
        with pytest.raises(OptionError, match=accepted):
            hausdorff(folded(made_bags(2)), variant)


def test_minima_of_some_pairs_are_refused() -> None:
    bags = made_bags(4)
    minima = DirectedMinima(4)
    fold_peers(bags.patches, np.array([0, 1]), minima)
    message = r"must cover all pairs of images\. Got minima with 6 comparisons"
    with pytest.raises(InputError, match=message):
        hausdorff(minima, "max-min max")

"""The paper's pooling baselines, against plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flawsort.core.errors import OptionError
from flawsort.core.records import Bags
from flawsort.embeddings.pooling import average_pooling
from flawsort.embeddings.weights import uniform_weights
from flawsort.research.paper import poolings as baselines
from flawsort.research.paper.poolings import (
    GEM_FLOOR,
    bag_of_words,
    gem_pooling,
    max_pooling,
    spoc_pooling,
)
from helpers.bags import Array, unit_vectors

GRID = (3, 4)
POOLINGS: dict[str, Callable[[Bags], Array]] = {
    "max": max_pooling,
    "gem": gem_pooling,
    "spoc": lambda bags: spoc_pooling(bags, sigma=1.5),
    "words": lambda bags: bag_of_words(bags, n_words=4),
}


def bags_of(patches: Array, valid: Array | None = None) -> Bags:
    """On a grid of one row, but for 12 patches, which are on GRID."""
    n_patches = patches.shape[1]
    return Bags(patches, GRID if n_patches == 12 else (1, n_patches), valid)


def made_valid(n_images: int = 5, n_patches: int = 12) -> Array:
    valid = np.random.default_rng(3).random((n_images, n_patches)) < 0.6
    valid[:, 5] = True
    return valid


def kept(patches: Array, valid: Array | None, image: int) -> list[list[float]]:
    """The valid patches of an image as plain numbers."""
    rows = range(patches.shape[1])
    return [patches[image, m].tolist() for m in rows if valid is None or valid[image, m]]


# ---- what all have in common ----


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_single_precision_whatever_comes_in_and_nothing_is_changed(name: str, dtype: Any) -> None:
    patches, valid = unit_vectors(5, 12, 6, dtype=dtype), made_valid()
    before = patches.copy(), valid.copy()
    pooled = POOLINGS[name](bags_of(patches, valid))
    assert pooled.dtype == np.float32
    assert pooled.shape == (5, 4 if name == "words" else 6)
    np.testing.assert_array_equal(patches, before[0])
    np.testing.assert_array_equal(valid, before[1])


@pytest.mark.parametrize("name", POOLINGS)
def test_patches_that_are_not_valid_do_not_count(name: str) -> None:
    patches, valid = unit_vectors(5, 12, 6), made_valid()
    other = patches.copy()
    other[~valid] = 100.0
    pool = POOLINGS[name]
    np.testing.assert_array_equal(pool(bags_of(patches, valid)), pool(bags_of(other, valid)))
    everywhere = bags_of(patches, np.ones_like(valid))
    np.testing.assert_array_equal(pool(bags_of(patches)), pool(everywhere))


# ---- max and GeM ----


@pytest.mark.parametrize("valid", [None, made_valid()])
def test_max_against_loops(valid: Array | None) -> None:
    patches = unit_vectors(5, 12, 6)
    pooled = max_pooling(bags_of(patches, valid))
    for i in range(5):
        for d in range(6):
            assert pooled[i, d] == max(patch[d] for patch in kept(patches, valid, i))


@pytest.mark.parametrize("p", [1.0, 3, 20])
@pytest.mark.parametrize("valid", [None, made_valid()])
def test_gem_against_loops(valid: Array | None, p: float) -> None:
    patches = unit_vectors(5, 12, 6)  # with negative numbers
    patches[1, :, 2] = -0.5
    pooled = gem_pooling(bags_of(patches, valid), p)
    for i in range(5):
        for d in range(6):
            values = [max(patch[d], GEM_FLOOR) for patch in kept(patches, valid, i)]
            expected = (math.fsum(x**p for x in values) / len(values)) ** (1 / p)
            assert pooled[i, d] == pytest.approx(expected, rel=1e-5)
    assert pooled[1, 2] == pytest.approx(1e-6)


@pytest.mark.parametrize("size", [1e-5, 1e-2, 1e5])
def test_gem_neither_underflows_nor_overflows(size: float) -> None:
    patches = np.full((1, 8, 2), size, np.float32)
    patches[0, 1:, 1] = 0
    expected = [size, size * (1 / 8) ** (1 / 20)]
    np.testing.assert_allclose(gem_pooling(bags_of(patches))[0], expected, rtol=1e-5)


def test_gem_nears_the_maximum() -> None:
    bags = bags_of(np.abs(unit_vectors(3, 12, 6)))
    off = [np.abs(gem_pooling(bags, p) - max_pooling(bags)).max() for p in (2, 20, 2000)]
    assert off == sorted(off, reverse=True)
    assert off[-1] < 2e-3


@pytest.mark.parametrize("p", [0, -1, math.inf, math.nan])
def test_powers_that_make_no_mean(p: float) -> None:
    with pytest.raises(OptionError, match=rf"p must be greater than 0 and finite\. Got {p}\."):
        gem_pooling(bags_of(unit_vectors(1, 2, 3)), p)


# ---- SPoC ----


@pytest.mark.parametrize("sigma", [0.4, 1.5, 1000])
@pytest.mark.parametrize("valid", [None, made_valid()])
def test_spoc_against_loops(valid: Array | None, sigma: float) -> None:
    patches = unit_vectors(5, 12, 6)
    pooled = spoc_pooling(bags_of(patches, valid), sigma)
    for i in range(5):
        total, weights = [0.0] * 6, 0.0
        for m in range(12):
            down, across = m // 4 - 1.0, m % 4 - 1.5
            weight = math.exp(-(down**2 + across**2) / (2 * sigma**2))
            if valid is None or valid[i, m]:
                weights += weight
                total = [t + weight * float(x) for t, x in zip(total, patches[i, m], strict=True)]
        np.testing.assert_allclose(pooled[i], [t / weights for t in total], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("valid", [None, made_valid()])
def test_a_wide_prior_is_the_average(valid: Array | None) -> None:
    patches = unit_vectors(5, 12, 6)
    average = average_pooling(patches, uniform_weights((5, 12), valid))
    bags = bags_of(patches, valid)
    np.testing.assert_allclose(spoc_pooling(bags), average, atol=1e-5)
    np.testing.assert_array_equal(spoc_pooling(bags, math.inf), average)


def test_a_narrow_prior_takes_what_is_nearest_to_the_middle() -> None:
    patches, valid = unit_vectors(1, 9, 3), np.zeros((1, 9), bool)
    valid[0, [0, 5]] = True  # a corner and the middle of an edge
    square = Bags(patches, (3, 3))
    np.testing.assert_allclose(spoc_pooling(square, 1e-3)[0], patches[0, 4])
    np.testing.assert_allclose(spoc_pooling(replace(square, valid=valid), 1e-3)[0], patches[0, 5])


def test_spoc_options() -> None:
    for sigma in (0, -2, math.nan):
        with pytest.raises(OptionError, match=rf"sigma must be greater than 0\. Got {sigma}\."):
            spoc_pooling(bags_of(unit_vectors(1, 12, 3)), sigma)


# ---- bag-of-words ----


def kinds_of_patches() -> tuple[Array, Array]:
    """(6, 50, 8) patches close to 5 directions, and which one each is close to."""
    rng = np.random.default_rng(1)
    kinds = rng.integers(0, 5, (6, 50))
    return np.eye(8)[kinds] + 0.01 * rng.standard_normal((6, 50, 8)), kinds


def test_words_are_counted() -> None:
    patches, kinds = kinds_of_patches()
    valid = made_valid(6, 50)
    found = bag_of_words(bags_of(patches, valid), n_words=5)
    counted = np.array(
        [[np.sum(kinds[i][valid[i]] == k) for k in range(5)] for i in range(6)], float
    )
    shares = counted / valid.sum(axis=1, keepdims=True)
    order = [int(np.abs(found - column[:, None]).sum(axis=0).argmin()) for column in shares.T]
    assert sorted(order) == list(range(5))
    np.testing.assert_allclose(found[:, order], shares, rtol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_each_patch_goes_to_its_nearest_word(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(2).standard_normal((7, 4)).astype(np.float32)
    words[0] *= 4  # the product alone would choose by length
    monkeypatch.setattr(baselines, "_codebook", lambda *_: words)
    patches = unit_vectors(3, 40, 4)
    found = bag_of_words(bags_of(patches))
    for i in range(3):
        counts = [0] * 7
        for patch in patches[i]:
            counts[min(range(7), key=lambda w: math.dist(patch, words[w]))] += 1
        np.testing.assert_allclose(found[i], np.array(counts) / 40)


def test_the_codebook_is_one_of_k_means() -> None:
    sample = kinds_of_patches()[0].reshape(-1, 8).astype(np.float32)
    words = baselines._codebook(sample, 5, 0)
    nearest = np.linalg.norm(sample[:, None] - words, axis=2).argmin(axis=1)
    for word in range(5):  # each is close to the mean of its patches
        np.testing.assert_allclose(words[word], sample[nearest == word].mean(axis=0), atol=0.01)


def test_words_are_repeatable() -> None:
    bags = bags_of(unit_vectors(4, 200, 6))
    first = bag_of_words(bags, n_words=20, random_state=1)
    np.testing.assert_array_equal(first, bag_of_words(bags, n_words=20, random_state=1))
    assert (first != bag_of_words(bags, n_words=20, random_state=2)).any()


@pytest.mark.parametrize("n_words", [3, 4, 512])
def test_no_more_words_than_distinct_patches(n_words: int) -> None:
    few = np.array([[1, 0], [0, 1], [-0.0, -1]], np.float32)
    patches = few[[[0, 0, 1, 2], [2, 2, 2, 2]]]
    patches[1, 0, 0] = 0.0  # the same place as -0.0
    found = bag_of_words(bags_of(patches), n_words=n_words)
    np.testing.assert_array_equal(found, [[0.5, 0.25, 0.25], [0, 0, 1]])


def test_one_word_is_in_every_image() -> None:
    bags = bags_of(unit_vectors(3, 4, 2))
    np.testing.assert_array_equal(bag_of_words(bags, n_words=1), np.ones((3, 1)))
    with pytest.raises(OptionError, match=r"n_words must be at least 1\. Got 0\."):
        bag_of_words(bags, n_words=0)


@pytest.mark.parametrize("valid", [None, made_valid()])
@pytest.mark.parametrize("limit", [1, 7, 20, 1000])
def test_the_sample_is_spread_evenly(valid: Array | None, limit: int) -> None:
    patches = np.arange(60, dtype=np.float64).reshape(5, 12, 1)
    everything = [number for i in range(5) for (number,) in kept(patches, valid, i)]
    sample = baselines._evenly_spread(bags_of(patches, valid), limit).ravel().tolist()
    assert len(sample) == min(limit, len(everything))
    places = [everything.index(number) for number in sample]  # all of them valid
    steps = np.diff(places)
    assert sample[0] == everything[0]
    if len(steps):
        assert sample[-1] == everything[-1]
        assert steps.min() >= 1
        assert steps.max() - steps.min() <= 1

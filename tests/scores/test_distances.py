"""Distances from products, against plain differences in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flawsort.scores import distances
from flawsort.scores.distances import (
    NEAR,
    ROUNDING,
    distance,
    distances_to_found,
    factors,
    half_lack,
    with_lack,
    with_ones,
)
from helpers.bags import unit_vectors


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("length", [1.0, 0.9, 1.1])
def test_factors_give_the_distances_of_patches_of_any_length(length: float, dtype: Any) -> None:
    first = (length * unit_vectors(7, 12, seed=1)).astype(dtype)
    second = unit_vectors(9, 12, seed=2, dtype=dtype)
    before = first.copy()
    one, other = factors(first), factors(second)
    assert one.left.dtype == one.right.dtype == np.float32
    apart = first.astype(np.float64)[:, None] - second
    squared = (apart**2).sum(axis=2)
    np.testing.assert_allclose(2 - 2 * one.left @ other.right.T, squared, rtol=0, atol=2e-6)
    np.testing.assert_allclose(2 - 2 * other.left @ one.right.T, squared.T, rtol=0, atol=2e-6)
    less = with_ones(first) @ with_lack(second).T + half_lack(first.astype(np.float32))[:, None]
    np.testing.assert_allclose(2 - 2 * less, squared, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(first, before)


@pytest.mark.parametrize("dim", [12, 168, 384, 1792])
def test_rounding_stays_below_what_counts_as_nothing(dim: int) -> None:
    bag = unit_vectors(500, dim, dtype=np.float16)
    assert np.abs(np.linalg.norm(bag.astype(np.float64), axis=1) - 1).max() > 1e-5
    one = factors(bag)
    squared = 2 - 2 * np.diagonal(one.left @ one.right.T)
    assert np.abs(squared).max() < 0.75 * ROUNDING


def test_no_distance_is_nan_where_rounding_makes_a_similarity_larger_than_one() -> None:
    values = np.array([1.0000002, 1, 1 - ROUNDING / 3, 1 - ROUNDING, -1, -np.inf], np.float32)
    found = distance(values)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [0, 0, 0, np.sqrt(2 * ROUNDING), 2, np.inf], rtol=0.02)


@pytest.mark.parametrize("length", [0, 1e-4, 1e-3, 0.01, 0.1])
def test_small_distances_to_what_was_found_are_those_of_the_difference(
    length: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distances, "DIFFERENCES_AT_ONCE", 7)
    bank = unit_vectors(30, 168, seed=1)
    index = np.random.default_rng(2).permutation(30)
    queries = bank[index] + length * unit_vectors(30, 168, seed=3)
    apart = np.linalg.norm(queries.astype(np.float64) - bank[index], axis=1)
    similarity = (1 - apart**2 / 2 + 1e-6).astype(np.float32)  # as wrong as a product
    found = distances_to_found(similarity, queries, bank, index)
    if length < NEAR:
        np.testing.assert_allclose(found, apart, rtol=1e-3, atol=1e-8)
    else:
        np.testing.assert_array_equal(found, distance(similarity))

"""Scores to weights, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flawsort.core.errors import InputError, OptionError
from flawsort.embeddings.weights import (
    hard_weights,
    image_scores,
    mask_weights,
    score_spread,
    soft_top_weights,
    soft_weights,
    uniform_weights,
)
from helpers.bags import Array
from helpers.oracles import naive_softmax

SCORES = np.random.default_rng(0).uniform(0.2, 1.4, (4, 9))
VALID = np.random.default_rng(1).random((4, 9)) > 0.4


@pytest.mark.parametrize("temperature", [0.05, 0.3, 1.0, 50.0])
def test_soft_weights_are_the_papers_softmax(temperature: float) -> None:
    weights = soft_weights(SCORES.astype(np.float32), temperature)
    assert weights.dtype == np.float32
    expected = naive_softmax(SCORES, temperature)
    np.testing.assert_allclose(weights, expected, rtol=2e-5)


def test_patches_that_are_not_valid_get_nothing() -> None:
    weights = soft_weights(SCORES, 0.3, VALID)
    for row, scores, valid in zip(weights, SCORES, VALID, strict=True):
        assert not row[~valid].any()
        np.testing.assert_allclose(
            row[valid], naive_softmax(scores[None, valid], 0.3)[0], rtol=1e-5
        )


@given(
    scores=arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(1, 12)),
        elements=st.floats(0, 2, width=32),
    ),
    temperature=st.floats(1e-12, 1e6),
)
@settings(max_examples=80, deadline=None)
def test_rows_sum_to_one_and_follow_the_scores(scores: Array, temperature: float) -> None:
    before = scores.copy()
    weights = soft_weights(scores, temperature)
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    order = np.argsort(scores, axis=1, kind="stable")
    assert (np.diff(np.take_along_axis(weights, order, axis=1), axis=1) >= 0).all()
    np.testing.assert_array_equal(scores, before)


@pytest.mark.parametrize("temperature", [1e-9, 1e-300])
def test_a_tiny_temperature_chooses_the_largest_score(temperature: float) -> None:
    weights = soft_weights(SCORES, temperature)
    np.testing.assert_array_equal(weights.argmax(axis=1), SCORES.argmax(axis=1))
    np.testing.assert_array_equal(weights.max(axis=1), 1)


def test_equal_scores_share_equally() -> None:
    np.testing.assert_allclose(soft_weights(np.full((2, 5), 0.7), 1e-6), 0.2, rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_a_temperature_must_be_positive_and_finite(temperature: float) -> None:
    with pytest.raises(OptionError, match=r"temperature must be greater than 0 and finite\. Got"):
        soft_weights(SCORES, temperature)


def test_uniform_weights_count_valid_patches_alike() -> None:
    np.testing.assert_allclose(uniform_weights((3, 8)), 1 / 8)
    valid = VALID.copy()
    weights = uniform_weights(valid.shape, valid)
    for row, inside in zip(weights, VALID, strict=True):
        np.testing.assert_allclose(row, inside / inside.sum(), rtol=1e-6)
    np.testing.assert_array_equal(valid, VALID)


def naive_highest(scores: Array, k: int, valid: Array) -> list[int]:
    """The k valid patches with the highest scores, of equal ones the first."""
    inside = [patch for patch in range(len(scores)) if valid[patch]]
    return sorted(inside, key=lambda patch: (-scores[patch], patch))[:k]


@given(
    scores=arrays(
        np.float32,
        st.tuples(st.integers(1, 4), st.integers(1, 40)),
        elements=st.integers(0, 6).map(lambda n: n / 4),  # many ties
    ),
    k=st.integers(1, 45),
    seed=st.none() | st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_the_highest_scores_share_an_image(scores: Array, k: int, seed: int | None) -> None:
    valid = None
    if seed is not None:
        valid = np.random.default_rng(seed).random(scores.shape) > 0.6
        valid[:, 0] = True
    before = scores.copy()
    hard, soft = hard_weights(scores, k, valid), soft_top_weights(scores, k, 0.3, valid)
    assert hard.dtype == soft.dtype == np.float32
    assert hard.shape == soft.shape == scores.shape
    inside = np.ones(scores.shape, bool) if valid is None else valid
    for row, one in enumerate(scores):
        chosen = naive_highest(one, k, inside[row])
        expected = np.zeros((2, len(one)))
        expected[0, chosen] = 1 / len(chosen)
        expected[1, chosen] = naive_softmax(one[None, chosen], 0.3)[0]
        np.testing.assert_allclose([hard[row], soft[row]], expected, rtol=1e-5)
    np.testing.assert_array_equal(scores, before)


def test_all_patches_chosen_are_uniform_or_soft_weights() -> None:
    for k in (9, 1000):
        np.testing.assert_array_equal(hard_weights(SCORES, k), uniform_weights(SCORES.shape))
        np.testing.assert_array_equal(
            soft_top_weights(SCORES, k, 0.2, VALID), soft_weights(SCORES, 0.2, VALID)
        )


@pytest.mark.parametrize("k", [0, -3])
def test_at_least_one_patch_counts(k: int) -> None:
    with pytest.raises(OptionError, match=rf"k must be at least 1, .* Got {k}\."):
        hard_weights(SCORES, k)
    with pytest.raises(OptionError, match=rf"k must be at least 1, .* Got {k}\."):
        soft_top_weights(SCORES, k, 0.3)


def test_the_temperature_of_the_chosen_is_checked_too() -> None:
    with pytest.raises(OptionError, match=r"temperature must be greater than 0"):
        soft_top_weights(SCORES, 2, 0.0)


def test_masks_weigh_patches_as_far_as_they_are_marked() -> None:
    shares = np.array([[0, 0.5, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0.01], [1, 1, 1, 1]])
    before = shares.copy()
    weights = mask_weights(shares)
    assert weights.dtype == np.float32
    expected = [[0, 1 / 3, 2 / 3, 0], [0.25] * 4, [0, 0, 0, 1], [0.25] * 4]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    np.testing.assert_array_equal(shares, before)


def test_what_is_marked_outside_the_valid_patches_does_not_count() -> None:
    valid = np.array([[True, True, False, True], [True, False, True, False]])
    shares = np.array([[0.2, 0.6, 1, 0], [0, 1, 0, np.nan]])
    expected = [[0.25, 0.75, 0, 0], [0.5, 0, 0.5, 0]]
    np.testing.assert_allclose(mask_weights(shares, valid), expected, rtol=1e-6)


@pytest.mark.parametrize("share", [-0.5, math.nan, math.inf])
def test_shares_must_be_finite_and_not_negative(share: float) -> None:
    with pytest.raises(InputError, match=rf"shares must be finite and not negative\. Got {share}"):
        mask_weights(np.array([[0.5, share]]))


def test_the_spread_is_the_standard_deviation_of_what_is_valid() -> None:
    kept = SCORES[VALID].tolist()
    mean = sum(kept) / len(kept)
    expected = math.sqrt(sum((score - mean) ** 2 for score in kept) / len(kept))
    assert score_spread(SCORES, VALID) == pytest.approx(expected)
    assert score_spread(SCORES) == pytest.approx(SCORES.std())


def test_scores_that_are_all_alike_have_a_spread_to_divide_by() -> None:
    assert score_spread(np.full((3, 4), 0.5)) == 1.0


@pytest.mark.parametrize(("n_patches", "count"), [(1, 1), (60, 1), (149, 1), (240, 2), (1024, 10)])
def test_an_image_scores_the_mean_of_its_most_unusual_patches(n_patches: int, count: int) -> None:
    scores = np.random.default_rng(2).random((3, n_patches))
    expected = [sum(sorted(row)[-count:]) / count for row in scores.tolist()]
    np.testing.assert_allclose(image_scores(scores), expected)


def test_patches_that_are_not_valid_do_not_make_an_image_unusual() -> None:
    scores, before = np.where(VALID, SCORES, 99.0), SCORES.copy()
    expected = [row[valid].max() for row, valid in zip(SCORES, VALID, strict=True)]
    np.testing.assert_allclose(image_scores(scores, VALID), expected)
    np.testing.assert_array_equal(SCORES, before)

"""Scores to weights, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bags import Array
from flawsort.errors import OptionError
from flawsort.weights import image_scores, score_spread, soft_weights, uniform_weights

SCORES = np.random.default_rng(0).uniform(0.2, 1.4, (4, 9))
VALID = np.random.default_rng(1).random((4, 9)) > 0.4


def naive_softmax(scores: list[float], temperature: float) -> list[float]:
    powers = [math.exp(score / temperature) for score in scores]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("temperature", [0.05, 0.3, 1.0, 50.0])
def test_soft_weights_are_the_papers_softmax(temperature: float) -> None:
    weights = soft_weights(SCORES.astype(np.float32), temperature)
    assert weights.dtype == np.float32
    expected = [naive_softmax(row, temperature) for row in SCORES.tolist()]
    np.testing.assert_allclose(weights, expected, rtol=2e-5)


def test_patches_that_are_not_valid_get_nothing() -> None:
    weights = soft_weights(SCORES, 0.3, VALID)
    for row, scores, valid in zip(weights, SCORES, VALID, strict=True):
        assert not row[~valid].any()
        np.testing.assert_allclose(
            row[valid], naive_softmax(scores[valid].tolist(), 0.3), rtol=1e-5
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

"""What is usual for a set, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.core.grids import Grid
from flawsort.scores.usual import (
    NORMAL_SHARE,
    PEER_SHARE,
    Usual,
    calibrate_normals,
    joined,
    usual_of_normals,
    usual_of_peers,
)
from helpers.bags import Array
from helpers.oracles import naive_smoothed

GRID = (4, 5)


def noise(n: int = 9, grid: Grid = GRID, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (0.4 + 0.05 * rng.standard_normal((n, grid[0] * grid[1]))).astype(np.float32)


def naive_usual(scores: Array, grid: Grid, share: float, middle: str) -> tuple[Array, float]:
    """Places and spread; NaN does not count."""
    places = np.full(scores.shape[1], np.nan)
    for place, column in enumerate(scores.T.astype(np.float64)):
        known = [value for value in column if not np.isnan(value)]
        if known:
            places[place] = np.mean(known) if middle == "mean" else np.median(known)
    places[np.isnan(places)] = places[~np.isnan(places)].mean()
    taken = share * naive_smoothed(places, grid)
    left = [
        float(value) - taken[place]
        for row in scores
        for place, value in enumerate(row)
        if not np.isnan(value)
    ]
    return taken + np.mean(left), float(np.std(left))


@pytest.mark.parametrize("masked", [False, True])
def test_usual_scores_of_normals(masked: bool) -> None:
    scores = noise()
    if masked:
        scores[np.random.default_rng(1).random(scores.shape) < 0.3] = np.nan
        scores[:, 7] = np.nan  # never known
    usual = usual_of_normals(scores, GRID)
    places, spread = naive_usual(scores, GRID, NORMAL_SHARE, "mean")
    assert usual.places.dtype == np.float32
    np.testing.assert_allclose(usual.places, places, rtol=1e-6)
    assert usual.spread == pytest.approx(spread, rel=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_what_is_usual_for_a_normal_is_measured_on_the_others(masked: bool) -> None:
    scores = noise()
    if masked:
        scores[np.random.default_rng(1).random(scores.shape) < 0.3] = np.nan
        scores[1:, 7] = np.nan  # known of one alone
    usual = usual_of_normals(scores, GRID)
    found = calibrate_normals(scores, GRID, usual)
    assert (found.shape, found.dtype) == (scores.shape, np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(scores))
    places, spread = naive_usual(scores, GRID, NORMAL_SHARE, "mean")
    _, middle = usual_middle(scores)
    for row in range(len(scores)):
        taken, _ = usual_middle(np.delete(scores, row, axis=0))
        expected = (scores[row] - taken - middle) / spread
        np.testing.assert_allclose(found[row], expected, atol=1e-4)
    np.testing.assert_allclose(usual.places, places, rtol=1e-6)


def usual_middle(scores: Array) -> tuple[Array, float]:
    """What is taken off at each place, and the mean of what is left."""
    places, _ = naive_usual(scores, GRID, NORMAL_SHARE, "mean")
    means = [np.nanmean(c) if np.isfinite(c).any() else np.nan for c in scores.T.astype(float)]
    filled = np.where(np.isnan(means), np.nanmean(means), means)
    taken = NORMAL_SHARE * naive_smoothed(filled, GRID)
    return taken, float((places - taken).mean())


def test_left_out_normals_vary_more() -> None:
    """Measured on all, the normals would look more normal than a new image of the same kind."""
    scores, new = noise(9), noise(40, seed=4)
    usual = usual_of_normals(scores, GRID)
    left_out = calibrate_normals(scores, GRID, usual).std()
    assert usual.calibrate(scores).std() < left_out
    assert left_out == pytest.approx(usual.calibrate(new).std(), rel=0.05)


def test_one_normal_has_no_others() -> None:
    scores = noise(1)
    usual = usual_of_normals(scores, GRID)
    found = calibrate_normals(scores, GRID, usual)
    np.testing.assert_allclose(found, usual.calibrate(scores), atol=1e-5)
    none = np.full((2, 20), np.nan, np.float32)
    assert np.isnan(calibrate_normals(none, GRID, usual_of_normals(none, GRID))).all()


@pytest.mark.parametrize("masked", [False, True])
def test_usual_scores_of_peers(masked: bool) -> None:
    scores, valid = noise(), None
    counted = scores
    if masked:
        valid = np.random.default_rng(2).random(scores.shape) > 0.3
        valid[:, 3] = False
        counted = np.where(valid, scores, np.nan)
        scores = np.where(valid, scores, 99).astype(np.float32)
    usual = usual_of_peers(scores, GRID, valid)
    places, spread = naive_usual(counted, GRID, PEER_SHARE, "median")
    np.testing.assert_allclose(usual.places, places, rtol=1e-6)
    assert usual.spread == pytest.approx(spread, rel=1e-6)


def test_calibrated_scores_are_in_standard_deviations() -> None:
    scores = noise(30)
    for usual in (usual_of_normals(scores, GRID), usual_of_peers(scores, GRID)):
        found = usual.calibrate(scores)
        assert found.dtype == np.float32
        assert found.mean() == pytest.approx(0, abs=1e-5)
        assert found.std() == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(found, (scores - usual.places) / usual.spread, rtol=1e-5)


def test_scores_on_another_scale_are_calibrated_to_the_same() -> None:
    scores = noise()
    moved = 3 * scores + 0.25
    one = usual_of_normals(scores, GRID).calibrate(scores)
    np.testing.assert_allclose(usual_of_normals(moved, GRID).calibrate(moved), one, atol=1e-4)


def test_a_place_that_is_unusual_on_every_normal_becomes_cold() -> None:
    """A glossy edge: on every normal the upper rows are far from their nearest normal patches."""
    edge = np.zeros((8, 8))
    edge[:3] = 0.3
    normals = 0.2 * noise(12, (8, 8)) + edge.ravel()
    new = 0.2 * noise(2, (8, 8), seed=5) + edge.ravel()
    new[1, 43] += 0.2  # a flaw elsewhere, fainter than the edge
    assert new[1].argmax() // 8 < 3
    found = usual_of_normals(normals.astype(np.float32), (8, 8)).calibrate(new)
    assert found[1].argmax() == 43
    assert found[1, 43] > found[0].max() + 1
    assert np.abs(found[0].reshape(8, 8)[:2]).max() < 1


def test_among_peers_less_is_taken_off() -> None:
    seam = np.zeros((6, 6))
    seam[2] = 0.5
    scores = (noise(12, (6, 6)) + seam.ravel()).astype(np.float32)
    normals, peers = usual_of_normals(scores, (6, 6)), usual_of_peers(scores, (6, 6))
    assert 0 < np.ptp(peers.places) < np.ptp(normals.places) / 2


@pytest.mark.parametrize("value", [0.0, 0.7])
@pytest.mark.parametrize("masked", [False, True])
def test_equal_scores_are_all_usual(value: float, masked: bool) -> None:
    scores = np.full((8, 20), value, np.float32)
    if masked:
        scores[2, 3:9] = np.nan
    for usual in (usual_of_normals(scores, GRID), usual_of_peers(scores, GRID)):
        assert usual.spread == 1
        np.testing.assert_allclose(usual.calibrate(np.full((1, 20), value)), 0, atol=1e-6)


def test_scores_equal_but_for_rounding_do_not_explode() -> None:
    """Kept in half precision, a flaw must stay finite."""
    scores = (0.3 + 1e-7 * np.random.default_rng(0).standard_normal((8, 20))).astype(np.float32)
    usual = usual_of_normals(scores, GRID)
    assert np.isfinite(usual.calibrate(np.full((1, 20), 2.0)).astype(np.float16)).all()


def test_no_known_score_at_all() -> None:
    """Normals so different that the approximate search finds only their own patches."""
    usual = usual_of_normals(np.full((8, 20), np.nan, np.float32), GRID)
    found = usual.calibrate(noise(2))
    np.testing.assert_allclose(found, noise(2))


def test_one_image_is_enough() -> None:
    scores = noise(1)
    usual = usual_of_peers(scores, GRID)
    assert np.isfinite(usual.calibrate(scores)).all()


def test_order_and_copies_change_nothing() -> None:
    scores = noise(9)
    order = np.random.default_rng(3).permutation(9)
    for measure in (usual_of_normals, usual_of_peers):
        one, other = measure(scores, GRID), measure(scores[order], GRID)
        np.testing.assert_allclose(one.places, other.places, rtol=1e-6)
        assert one.spread == pytest.approx(other.spread, rel=1e-6)


def test_scores_are_not_modified() -> None:
    scores, valid = noise(), np.random.default_rng(2).random((9, 20)) > 0.3
    before = scores.copy()
    usual_of_peers(scores, GRID, valid).calibrate(scores)
    usual_of_normals(scores, GRID)
    np.testing.assert_array_equal(scores, before)


def test_views_are_averaged() -> None:
    one, other = noise(3), noise(3, seed=1)
    np.testing.assert_allclose(joined([one, other]), (one + other) / 2, rtol=1e-6)
    assert joined([one, other]).dtype == np.float32
    assert joined([one]) is one


def test_places_are_subtracted_before_scaling() -> None:
    usual = Usual(np.array([1.0, 2.0], np.float32), 0.5)
    np.testing.assert_array_equal(usual.calibrate(np.array([[1.5, 1.0]])), [[1, -2]])

"""Where images lie among the centres of groups, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.clusters.placement import (
    BORDERLINE_MARGIN,
    Placement,
    centres,
    place,
    place_all,
    split_distances,
    typicality,
)
from helpers.bags import Array, blobs


def points(n: int) -> Array:
    return np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)


# ---- places ----


def test_centres_are_means() -> None:
    embeddings, labels = points(9), np.array([0, 1, 2, 0, 1, 0, 2, 0, 0])
    found = centres(embeddings, labels)
    for group in range(3):
        rows = [i for i in range(9) if labels[i] == group]
        expected = sum(embeddings[i].astype(np.float64) for i in rows) / len(rows)
        np.testing.assert_allclose(found[group], expected)


def test_places_against_loops() -> None:
    embeddings = points(12)
    labels = np.arange(12) % 3
    middles = centres(embeddings, labels)
    placed = place(embeddings, labels, middles)
    for i in range(12):
        far = [float(np.sqrt(((embeddings[i] - middle) ** 2).sum())) for middle in middles]
        others = [group for group in range(3) if group != labels[i]]
        runner_up = min(others, key=lambda group: far[group])
        assert placed.distance[i] == pytest.approx(far[labels[i]], rel=1e-5)
        assert placed.runner_up[i] == runner_up
        assert placed.runner_up_distance[i] == pytest.approx(far[runner_up], rel=1e-5)


def test_a_single_group_has_no_runner_up() -> None:
    embeddings, labels = blobs([4]), np.zeros(4, int)
    placed = place(embeddings, labels, centres(embeddings, labels))
    np.testing.assert_array_equal(placed.runner_up, [-1] * 4)
    assert np.isinf(placed.runner_up_distance).all()
    assert np.isfinite(placed.distance).all()


@pytest.mark.parametrize("at_once", [1, 5, 12, 100])
def test_blocks_change_nothing(at_once: int) -> None:
    embeddings, labels = points(12), np.arange(12) % 3
    middles = centres(embeddings, labels)
    whole, (nearest, best) = place(embeddings, labels, middles), place_all(embeddings, middles)
    _, some = place_all(embeddings, middles, labels, rows_at_once=at_once)
    again, best_again = place_all(embeddings, middles, rows_at_once=at_once)
    np.testing.assert_array_equal(nearest, again)
    for one, other in ((whole, some), (best, best_again)):
        np.testing.assert_array_equal(one.distance, other.distance)
        np.testing.assert_array_equal(one.runner_up, other.runner_up)
        np.testing.assert_array_equal(one.runner_up_distance, other.runner_up_distance)


def test_images_without_a_group_take_the_nearest_centre() -> None:
    embeddings, labels = points(12), np.arange(12) % 3
    middles = centres(embeddings, labels)
    nearest, placed = place_all(embeddings, middles)
    for i in range(12):
        far = [float(np.sqrt(((embeddings[i] - middle) ** 2).sum())) for middle in middles]
        assert nearest[i] == np.argmin(far)
        assert placed.distance[i] == pytest.approx(min(far), rel=1e-5)
    assert (placed.margin >= 0).all()
    same = place(embeddings, nearest, middles)
    np.testing.assert_array_equal(same.runner_up, placed.runner_up)


def test_margins() -> None:
    placed = Placement(
        distance=np.array([0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 5.0]),
        runner_up=np.array([1, 1, 1, 1, 1, 1, -1]),
        runner_up_distance=np.array([2.0, 2.0, 2.0, 2.0, 0.0, 0.0, np.inf]),
    )
    # In its centre, between, halfway, beyond, in two equal centres, in the other one, alone.
    np.testing.assert_array_equal(placed.margin, [1, 0.5, 0, -0.5, 0, 0, 1])
    np.testing.assert_array_equal(placed.borderline, placed.margin < BORDERLINE_MARGIN)
    rows = np.array([6, 0, 0])
    taken = placed.take(rows)
    np.testing.assert_array_equal(taken.margin, [1, 1, 1])
    np.testing.assert_array_equal(taken.runner_up, [-1, 1, 1])
    joined = Placement.joined([placed, taken])
    np.testing.assert_array_equal(joined.margin, np.concatenate([placed.margin, taken.margin]))


def test_some_groups_are_nobodys_next() -> None:
    far = np.array([[1.0, 2.0, 3.0], [4.0, 1.0, 2.0], [1.0, 9.0, 5.0]])
    labels, comparable = np.array([0, 1, 2]), np.array([True, False, True])
    own, other, beside = split_distances(far.copy(), labels, comparable)
    np.testing.assert_array_equal(own, [1, 1, 5])
    np.testing.assert_array_equal(other, [2, 2, 0])
    np.testing.assert_array_equal(beside, [3, 2, 1])
    _, other, beside = split_distances(far.copy(), labels, np.array([True, False, False]))
    np.testing.assert_array_equal(other, [-1, 0, 0])
    np.testing.assert_array_equal(beside, [np.inf, 4, 1])


# ---- typicality ----


def test_typicality_falls_evenly_from_the_nearest_to_the_farthest() -> None:
    distance = np.array([0.3, 5.0, 0.1, 4.0, 0.2, 0.4])
    labels = np.array([0, 1, 0, 1, 0, 0])
    found = typicality(distance, labels)
    np.testing.assert_allclose(found, [0.5, 0.5, 1.0, 1.0, 0.75, 0.25])


def test_of_equally_near_images_the_first_is_the_more_typical() -> None:
    np.testing.assert_allclose(typicality(np.zeros(4), np.zeros(4, int)), [1, 0.75, 0.5, 0.25])
    np.testing.assert_array_equal(typicality(np.array([7.0]), np.array([0])), [1])

"""The map that people read."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.runs.map import _beside_landmarks, two_dimensional_layout
from helpers.bags import blobs


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 20])
@pytest.mark.parametrize("kind", ["different", "identical", "all but one identical", "on a line"])
def test_maps_of_any_size_are_within_bounds(n: int, kind: str) -> None:
    embeddings = {
        "different": np.random.default_rng(0).standard_normal((n, 5)),
        "identical": np.ones((n, 5)),
        "all but one identical": np.eye(n, 5) * (np.arange(n) == 0)[:, None],
        "on a line": np.arange(n, dtype=np.float64)[:, None],
    }[kind]
    before = embeddings.copy()
    layout = two_dimensional_layout(embeddings)
    assert layout.shape == (n, 2)
    assert layout.dtype == np.float32
    assert np.isfinite(layout).all()
    assert layout.min() >= 0
    assert layout.max() <= 1
    if kind == "different" and n > 2:
        np.testing.assert_array_equal(layout.min(axis=0), 0)
        np.testing.assert_array_equal(layout.max(axis=0), 1)
    np.testing.assert_array_equal(embeddings, before)


def neighbours_agree(layout: np.ndarray, labels: np.ndarray) -> float:
    """The share of points whose nearest other point belongs to the same blob."""
    far = np.linalg.norm(layout[:, None] - layout[None], axis=2)
    np.fill_diagonal(far, np.inf)
    return float((labels[far.argmin(axis=1)] == labels).mean())


def test_images_that_are_alike_lie_near_each_other() -> None:
    layout = two_dimensional_layout(blobs([15, 15, 15]))
    assert neighbours_agree(layout, np.repeat([0, 1, 2], 15)) == 1


def test_the_map_is_the_same_each_time() -> None:
    embeddings = blobs([12, 12])
    first, second = two_dimensional_layout(embeddings), two_dimensional_layout(embeddings)
    np.testing.assert_array_equal(first, second)


def test_beyond_the_limit_images_lie_beside_their_nearest_landmarks() -> None:
    embeddings = blobs([30, 30, 30])
    embeddings[-1] = embeddings[-2]
    layout = two_dimensional_layout(embeddings, limit=24)
    assert np.isfinite(layout).all()
    assert layout.min() >= 0
    assert layout.max() <= 1
    assert neighbours_agree(layout, np.repeat([0, 1, 2], 30)) == 1
    np.testing.assert_array_equal(layout, two_dimensional_layout(embeddings, limit=24))


def test_places_beside_landmarks_against_loops() -> None:
    rng = np.random.default_rng(0)
    values, points = rng.standard_normal((9, 3)), rng.random((5, 2))
    landmarks, others = np.array([0, 2, 4, 6, 8]), np.array([1, 3, 5, 7])
    found = _beside_landmarks(values, landmarks, others, points)
    for place_found, row in zip(found, others, strict=True):
        far = sorted(
            (float(np.linalg.norm(values[row] - values[m])), i) for i, m in enumerate(landmarks)
        )
        total = sum(1 / distance for distance, _ in far[:3])
        expected = sum(points[i] / distance for distance, i in far[:3]) / total
        np.testing.assert_allclose(place_found, expected, rtol=1e-6)

"""The coordinates of the taught model: what they keep, what they do not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.threads import limit
from flawsort.labels import space as module
from flawsort.labels.space import N_DIRECTIONS, Space


@pytest.fixture
def embeddings() -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(90, 200)) * np.linspace(3, 0.01, 200) + 5).astype(np.float32)


def test_coordinates_have_a_mean_square_length_of_one(embeddings: NDArray[np.float32]) -> None:
    found = Space.of(embeddings).coordinates(embeddings)
    assert found.shape == (90, 89)
    assert found.dtype == np.float32
    assert (found**2).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)


def test_there_are_at_most_so_many_directions() -> None:
    many = np.random.default_rng(0).normal(size=(300, 200)).astype(np.float32)
    assert Space.of(many).coordinates(many).shape == (300, N_DIRECTIONS)


def test_the_moments_are_those_of_the_run(embeddings: NDArray[np.float32]) -> None:
    space = Space.of(embeddings)
    found = space.coordinates(embeddings).astype(np.float64)
    np.testing.assert_allclose(space.mean, found.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(space.moment, found.T @ found / len(found), atol=1e-6)


def test_strong_directions_are_stretched(embeddings: NDArray[np.float32]) -> None:
    """Against the formula: along each direction the spread to the power 1.5, and then the root of
    each length."""
    wide = embeddings.astype(np.float64) - embeddings.astype(np.float64).mean(axis=0)
    left, spreads, _ = np.linalg.svd(wide, full_matrices=False)
    along = left[:, :89] * spreads[:89] ** 1.5
    along /= np.sqrt(np.linalg.norm(along, axis=1, keepdims=True))
    along /= np.sqrt((along**2).sum(axis=1).mean())
    found = Space.of(embeddings).coordinates(embeddings)
    np.testing.assert_allclose(np.abs(found), np.abs(along), atol=2e-4)


def test_new_images_have_the_coordinates_of_the_same_images(
    embeddings: NDArray[np.float32],
) -> None:
    space = Space.of(embeddings)
    np.testing.assert_allclose(
        space.coordinates(embeddings[40:43]), space.coordinates(embeddings)[40:43], atol=1e-6
    )
    assert space.coordinates(embeddings[:0]).shape == (0, 89)


def test_the_number_of_threads_changes_nothing(embeddings: NDArray[np.float32]) -> None:
    many = np.tile(embeddings, (60, 1))
    with limit(1):
        one = Space.of(many).coordinates(many)
    two = Space.of(many).coordinates(many)
    assert one.tobytes() == two.tobytes()


def test_images_that_are_all_the_same_have_no_length() -> None:
    same = np.ones((5, 8), np.float32)
    assert np.isfinite(Space.of(same).coordinates(same)).all()
    assert np.abs(Space.of(same).coordinates(same)).max(initial=0) < 1e-3


def test_a_large_run_is_measured_by_some_of_its_images(
    embeddings: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 45)
    half, whole = Space.of(embeddings), Space.of(embeddings[::2])
    assert half.centre.tobytes() == whole.centre.tobytes()


def test_embeddings_of_another_run_are_refused(embeddings: NDArray[np.float32]) -> None:
    with pytest.raises(InputError, match=r"shape \(n_images, 200\), as in the run. Got \(90, 7\)"):
        Space.of(embeddings).coordinates(embeddings[:, :7])
    with pytest.raises(InputError, match="at least one image"):
        Space.of(embeddings[:0])

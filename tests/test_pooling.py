"""Patches and weights to one vector an image, against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bags import Array, unit_vectors
from flawsort import pooling
from flawsort.pooling import (
    BACKGROUND_PATCHES,
    CHOSEN_SHARE,
    RESIDUAL_POWER,
    average_pooling,
    keep_heaviest,
    residual_pooling,
)
from flawsort.records import Bags
from flawsort.weights import soft_weights


def made_weights(n_images: int, n_patches: int, valid: Array | None = None) -> Array:
    scores = np.random.default_rng(5).random((n_images, n_patches))
    return soft_weights(scores, 0.2, valid)


# ---- average ----


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_average_pooling_is_the_weighted_mean(dtype: type) -> None:
    patches, weights = unit_vectors(3, 7, 4, dtype=dtype), made_weights(3, 7)
    before = patches.copy(), weights.copy()
    pooled = average_pooling(patches, weights)
    assert pooled.dtype == np.float32
    for i in range(3):
        for d in range(4):
            expected = sum(float(weights[i, m]) * float(patches[i, m, d]) for m in range(7))
            assert pooled[i, d] == pytest.approx(expected, abs=1e-6)
    np.testing.assert_array_equal(patches, before[0])
    np.testing.assert_array_equal(weights, before[1])


def test_permuting_patches_leaves_the_average_unchanged() -> None:
    patches, weights = unit_vectors(3, 9, 5), made_weights(3, 9)
    order = np.random.default_rng(0).permutation(9)
    np.testing.assert_allclose(
        average_pooling(patches[:, order], weights[:, order]),
        average_pooling(patches, weights),
        atol=1e-6,
    )


# ---- the heaviest patches ----


@pytest.mark.parametrize(("n_patches", "count"), [(1, 1), (3, 1), (8, 1), (16, 2), (50, 6)])
def test_only_the_heaviest_eighth_is_kept(n_patches: int, count: int) -> None:
    weights = made_weights(4, n_patches)
    before = weights.copy()
    kept = keep_heaviest(weights)
    np.testing.assert_array_equal(weights, before)
    for row, whole in zip(kept.tolist(), weights.tolist(), strict=True):
        heaviest = sorted(range(n_patches), key=lambda m: -whole[m])[:count]
        total = sum(whole[m] for m in heaviest)
        expected = [whole[m] / total if m in heaviest else 0.0 for m in range(n_patches)]
        np.testing.assert_allclose(row, expected, rtol=1e-5)


# ---- residuals ----


def naive_residual(bags: Bags, weights: Array, expected: Array) -> Array:
    """expected: (n_images, n_patches, dim), what is expected in place of every patch."""
    pooled = []
    for i in range(len(bags)):
        residual = bags.patches[i].astype(np.float64) - expected[i]
        flaw = sum(float(weights[i, m]) * residual[m] for m in range(bags.n_patches))
        inside = range(bags.n_patches) if bags.valid is None else np.flatnonzero(bags.valid[i])
        count = min(BACKGROUND_PATCHES, bags.n_patches)
        # Evenly from the first to the last; count - 1 steps.
        steps = [j * (len(inside) - 1) / max(count - 1, 1) for j in range(count)]
        background = np.mean([residual[inside[round(step)]] for step in steps], axis=0)
        vector = flaw - background
        length = math.sqrt(float(vector @ vector))
        pooled.append(vector / length * length**RESIDUAL_POWER)
    return np.array(pooled)


@pytest.mark.parametrize("at_once", [1, 2, 64])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n_patches", [9, 60, 200])
def test_residual_pooling(
    monkeypatch: pytest.MonkeyPatch, n_patches: int, masked: bool, at_once: int
) -> None:
    monkeypatch.setattr(pooling, "IMAGES_AT_ONCE", at_once)
    patches = unit_vectors(3, n_patches, 4, dtype=np.float16)
    valid = np.random.default_rng(3).random((3, n_patches)) > 0.5 if masked else None
    bags = Bags(patches, (1, n_patches), valid)
    normal = unit_vectors(3, n_patches, 4, seed=8)
    weights = keep_heaviest(made_weights(3, n_patches, valid))
    asked: list[tuple[Array, Array]] = []
    calls: list[tuple[str, int, int]] = []

    def expected(images: Array, chosen: Array) -> Array:
        asked.append((images, chosen))
        return np.take_along_axis(normal[images], chosen[..., None], axis=1)

    before = patches.copy(), weights.copy()
    pooled = residual_pooling(bags, weights, expected, progress=lambda *call: calls.append(call))
    np.testing.assert_allclose(pooled, naive_residual(bags, weights, normal), atol=1e-5)
    np.testing.assert_array_equal(patches, before[0])
    np.testing.assert_array_equal(weights, before[1])
    n_chosen = max(1, round(CHOSEN_SHARE * n_patches))
    for images, chosen in asked:
        assert len(images) <= at_once
        assert chosen.shape == (len(images), n_chosen + min(BACKGROUND_PATCHES, n_patches))
        if valid is not None:
            assert np.take_along_axis(valid[images], chosen[:, n_chosen:], axis=1).all()
    np.testing.assert_array_equal(np.concatenate([images for images, _ in asked]), [0, 1, 2])
    ends = np.cumsum([len(images) for images, _ in asked]).tolist()
    assert calls == [("comparing", end, 3) for end in ends]


def shown(bags: Bags, images: Array, chosen: Array) -> Array:
    """The chosen patches themselves."""
    return np.take_along_axis(bags.patches[images], chosen[..., None], axis=1)


def test_an_image_that_is_as_expected_has_no_residual() -> None:
    bags = Bags(unit_vectors(2, 8, 3), (2, 4))
    weights = keep_heaviest(made_weights(2, 8))
    pooled = residual_pooling(bags, weights, lambda images, chosen: shown(bags, images, chosen))
    np.testing.assert_array_equal(pooled, np.zeros((2, 3)))


def test_what_all_patches_have_in_common_is_taken_off() -> None:
    bags = Bags(unit_vectors(2, 8, 3), (2, 4))
    weights = keep_heaviest(made_weights(2, 8))
    shift = np.array([0.3, -0.2, 0.1], np.float32)
    pooled = residual_pooling(
        bags,
        weights,
        lambda images, chosen: shown(bags, images, chosen) + shift,
    )
    # A power of a rounding error.
    np.testing.assert_allclose(pooled, 0, atol=1e-6**RESIDUAL_POWER)

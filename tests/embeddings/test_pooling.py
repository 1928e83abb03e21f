"""Patches and weights to one vector an image, against plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.linalg

from flawsort.core.records import Bags
from flawsort.embeddings import pooling
from flawsort.embeddings.pooling import (
    BACKGROUND_PATCHES,
    CHOSEN_SHARE,
    ORDINARY_SHARE,
    POOLINGS,
    RESIDUAL_POWER,
    SHRINKAGE,
    average_pooling,
    keep_heaviest,
    residual_pooling,
    residual_whitening,
)
from flawsort.embeddings.weights import soft_weights
from flawsort.scores.reference import compare_with_peers
from helpers.bags import Array, unit_vectors


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


@pytest.mark.parametrize("images", [[0, 0, 2], [1, 1, 1, 1, 2, 2], [2], []], ids=str)
def test_several_averages_of_an_image(images: list[int]) -> None:
    patches = unit_vectors(3, 7, 4, dtype=np.float16)
    weights = made_weights(len(images), 7)
    pooled = average_pooling(patches, weights, np.array(images, int))
    assert pooled.dtype == np.float32
    assert pooled.shape == (len(images), 4)
    for row, image in enumerate(images):
        for d in range(4):
            total = sum(float(weights[row, m]) * float(patches[image, m, d]) for m in range(7))
            assert pooled[row, d] == pytest.approx(total, abs=1e-6)


def test_several_sets_of_weights_at_once() -> None:
    patches = unit_vectors(3, 7, 4, dtype=np.float16)
    stack = made_weights(15, 7).reshape(5, 3, 7)
    pooled = average_pooling(patches, stack)
    assert (pooled.shape, pooled.dtype) == ((5, 3, 4), np.float32)
    alone = [average_pooling(patches, weights) for weights in stack]
    np.testing.assert_allclose(pooled, alone, rtol=0, atol=1e-6)


def test_an_average_for_each_image_unless_told() -> None:
    patches, weights = unit_vectors(3, 7, 4), made_weights(3, 7)
    whole = average_pooling(patches, weights)
    np.testing.assert_array_equal(average_pooling(patches, weights, np.arange(3)), whole)
    with pytest.raises(ValueError, match="zip"):
        average_pooling(patches, weights[:2])


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


def inside_of(bags: Bags, image: int) -> list[int]:
    """The valid patches of an image."""
    every = range(bags.n_patches)
    return [m for m in every if bags.valid is None or bags.valid[image, m]]


def background_of(bags: Bags, image: int) -> list[int]:
    """Evenly from the first valid patch to the last, in count - 1 steps."""
    inside = inside_of(bags, image)
    count = min(BACKGROUND_PATCHES, bags.n_patches)
    return [inside[round(j * (len(inside) - 1) / max(count - 1, 1))] for j in range(count)]


def naive_residual(
    bags: Bags,
    weights: Array,
    expected: Array,
    whitening: Array | None = None,
    images: Array | None = None,
) -> Array:
    """expected: (n_images, n_patches, dim), what is expected in place of every patch. images: of
    each row of weights."""
    pooled = []
    for row, i in enumerate(range(len(bags)) if images is None else images):
        residual = bags.patches[i].astype(np.float64) - expected[i]
        flaw = sum(float(weights[row, m]) * residual[m] for m in range(bags.n_patches))
        background = np.mean([residual[m] for m in background_of(bags, i)], axis=0)
        vector = flaw - background
        if whitening is not None:
            vector = np.array([float(column @ vector) for column in whitening.T.astype(float)])
        length = math.sqrt(float(vector @ vector))
        pooled.append(vector / length * length**RESIDUAL_POWER)
    return np.array(pooled)


@pytest.mark.parametrize("at_once", [1, 2, 64])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n_patches", [9, 60, 200])
def test_residual_pooling(n_patches: int, masked: bool, at_once: int) -> None:
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
    pooled, of_parts = residual_pooling(
        bags,
        weights,
        expected,
        images_at_once=at_once,
        progress=lambda *call: calls.append(call),
    )
    np.testing.assert_allclose(pooled, naive_residual(bags, weights, normal), atol=1e-5)
    assert of_parts.shape == (0, 4)
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
    assert calls == [("comparing", end, 3) for end in [0, *ends]]


def some_parts(weights: Array, images: list[int]) -> Array:
    """(n_parts, n_patches): for each part other weights for some of the image's chosen patches."""
    rng = np.random.default_rng(6)
    parts = np.zeros((len(images), weights.shape[1]), np.float32)
    for row, image in enumerate(images):
        chosen = rng.permutation(np.flatnonzero(weights[image]))
        some = chosen[: rng.integers(1, len(chosen) + 1)]
        drawn = rng.random(len(some)) + 0.1
        parts[row, some] = drawn / drawn.sum()
    return parts


# Images without a part first, in between and last; several of one; as many as images or not.
PARTS = [[], [0], [6], [1, 1, 4], [0, 2, 2, 2, 3, 6, 6], [1, 1, 1, 2, 3, 4, 5, 5]]


@pytest.mark.parametrize("at_once", [1, 3, 64])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("white", [False, True])
@pytest.mark.parametrize("images", PARTS, ids=str)
def test_parts_of_images(images: list[int], white: bool, masked: bool, at_once: int) -> None:
    valid = np.random.default_rng(3).random((7, 60)) > 0.5 if masked else None
    bags = Bags(unit_vectors(7, 60, 4, dtype=np.float16), (6, 10), valid)
    normal = unit_vectors(7, 60, 4, seed=8)
    whitening = np.random.default_rng(2).standard_normal((4, 4)) if white else None
    weights = keep_heaviest(made_weights(7, 60, valid))
    of, parts = np.array(images, int), some_parts(weights, images)
    before = of.copy(), parts.copy()
    pooled, of_parts = residual_pooling(
        bags,
        weights,
        lookup(normal),
        parts=(of, parts),
        whitening=whitening,
        images_at_once=at_once,
    )
    alone, _ = residual_pooling(
        bags, weights, lookup(normal), whitening=whitening, images_at_once=at_once
    )
    np.testing.assert_array_equal(pooled, alone)
    assert of_parts.dtype == np.float32
    assert of_parts.shape == (len(images), 4)
    naive = naive_residual(bags, parts, normal, whitening, of).reshape(-1, 4)
    np.testing.assert_allclose(of_parts, naive, atol=1e-5)
    for now, then in zip((of, parts), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_a_part_with_the_weights_of_its_image_is_the_image() -> None:
    bags, normal = Bags(unit_vectors(70, 16, 4), (4, 4)), unit_vectors(70, 16, 4, seed=8)
    weights = keep_heaviest(made_weights(70, 16))
    assert pooling.IMAGES_AT_ONCE < 70
    pooled, of_parts = residual_pooling(
        bags, weights, lookup(normal), parts=(np.arange(70), weights)
    )
    np.testing.assert_allclose(of_parts, pooled, atol=1e-6)


def shown(bags: Bags, images: Array, chosen: Array) -> Array:
    """The chosen patches themselves."""
    return np.take_along_axis(bags.patches[images], chosen[..., None], axis=1)


def test_an_image_that_is_as_expected_has_no_residual() -> None:
    bags = Bags(unit_vectors(2, 8, 3), (2, 4))
    weights = keep_heaviest(made_weights(2, 8))
    pooled, _ = residual_pooling(bags, weights, lambda images, chosen: shown(bags, images, chosen))
    np.testing.assert_array_equal(pooled, np.zeros((2, 3)))


def test_what_all_patches_have_in_common_is_taken_off() -> None:
    bags = Bags(unit_vectors(2, 8, 3), (2, 4))
    weights = keep_heaviest(made_weights(2, 8))
    shift = np.array([0.3, -0.2, 0.1], np.float32)
    pooled, _ = residual_pooling(
        bags,
        weights,
        lambda images, chosen: shown(bags, images, chosen) + shift,
    )
    # A power of a rounding error.
    np.testing.assert_allclose(pooled, 0, atol=1e-6**RESIDUAL_POWER)


# ---- whitened residuals ----


def test_residuals_are_whitened_before_their_length_counts() -> None:
    bags, normal = Bags(unit_vectors(5, 40, 4), (5, 8)), unit_vectors(5, 40, 4, seed=8)
    weights = keep_heaviest(made_weights(5, 40))
    # Not symmetric, so that the side it is multiplied from tells.
    whitening = np.random.default_rng(2).standard_normal((4, 4))
    before = whitening.copy()
    pooled, _ = residual_pooling(bags, weights, lookup(normal), whitening=whitening)
    assert pooled.dtype == np.float32
    np.testing.assert_allclose(pooled, naive_residual(bags, weights, normal, whitening), atol=1e-5)
    np.testing.assert_array_equal(whitening, before)
    plain, _ = residual_pooling(bags, weights, lookup(normal))
    lengths = np.linalg.norm(plain, axis=1)
    # Twice as long before the power, not after it.
    twice, _ = residual_pooling(bags, weights, lookup(normal), whitening=2 * np.eye(4))
    np.testing.assert_allclose(
        np.linalg.norm(twice, axis=1), 2**RESIDUAL_POWER * lengths, rtol=1e-5
    )
    same, _ = residual_pooling(bags, weights, lookup(normal), whitening=np.eye(4))
    np.testing.assert_allclose(same, plain, atol=1e-6)


def lookup(normal: Array) -> Callable[[Array, Array], Array]:
    """normal: (n_images, n_patches, dim), what is expected in place of every patch."""
    return lambda images, chosen: np.take_along_axis(normal[images], chosen[..., None], axis=1)


def lively_bags(
    n_images: int, n_patches: int, dim: int, *, masked: bool = False
) -> tuple[Bags, Array, Array]:
    """Bags, what is expected in place of their patches, and scores. The patches differ from it in
    some directions far more than in others, and by some amount in common."""
    rng = np.random.default_rng(7)
    valid = rng.random((n_images, n_patches)) > 0.4 if masked else None
    normal = unit_vectors(n_images, n_patches, dim, seed=8)
    mixed = rng.standard_normal((dim, dim)) * np.geomspace(3, 0.05, dim)
    patches = normal + rng.standard_normal(normal.shape) @ mixed.T / 10 + 0.2
    scores = rng.random((n_images, n_patches)).astype(np.float32)
    return Bags(patches.astype(np.float16), (1, n_patches), valid), normal, scores


def naive_ordinary(bags: Bags, scores: Array, normal: Array, rows: list[int]) -> Array:
    """(n_ordinary, dim): the residuals to measure, one by one."""
    heard = sorted(float(scores[i, m]) for i in rows for m in inside_of(bags, i))
    at = ORDINARY_SHARE * (len(heard) - 1)
    low, high = heard[math.floor(at)], heard[math.ceil(at)]
    loudest = low + (at - math.floor(at)) * (high - low)
    return np.array(
        [
            bags.patches[i, m].astype(np.float64) - normal[i, m]
            for i in rows
            for m in background_of(bags, i)
            if scores[i, m] <= loudest
        ]
    )


def naive_whitening(bags: Bags, scores: Array, normal: Array, rows: list[int]) -> Array:
    covariance = np.cov(naive_ordinary(bags, scores, normal, rows).T, bias=True)
    usual = np.trace(covariance) / bags.dim
    shrunk = (covariance + SHRINKAGE * usual * np.eye(bags.dim)) / (1 + SHRINKAGE)
    return np.asarray(scipy.linalg.inv(scipy.linalg.sqrtm(shrunk / usual)))


@pytest.mark.parametrize("at_once", [1, 3, 64])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n_patches", [20, 150])
@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5, 6, 7], [6, 1, 4, 0]])
def test_whitening(rows: list[int], n_patches: int, masked: bool, at_once: int) -> None:
    bags, normal, scores = lively_bags(8, n_patches, 5, masked=masked)
    asked: list[tuple[Array, Array]] = []

    def expected(images: Array, chosen: Array) -> Array:
        asked.append((images, chosen))
        return lookup(normal)(images, chosen)

    before = bags.patches.copy(), scores.copy(), normal.copy()
    whitening = residual_whitening(bags, scores, expected, np.array(rows), images_at_once=at_once)
    assert whitening.dtype == np.float32
    np.testing.assert_allclose(
        whitening, naive_whitening(bags, scores, normal, rows), rtol=1e-4, atol=1e-5
    )
    for now, then in zip((bags.patches, scores, normal), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert max(len(images) for images, _ in asked) <= at_once
    assert np.concatenate([images for images, _ in asked]).tolist() == rows
    places = [place.tolist() for _, chosen in asked for place in chosen]
    assert places == [background_of(bags, row) for row in rows]


def test_more_images_are_measured_than_are_asked_for_at_once() -> None:
    n_images = pooling.IMAGES_AT_ONCE + 7
    bags, normal, scores = lively_bags(n_images, 9, 4)
    rows = np.random.default_rng(1).permutation(n_images)
    whitening = residual_whitening(bags, scores, lookup(normal), rows)
    expected = naive_whitening(bags, scores, normal, rows.tolist())
    np.testing.assert_allclose(whitening, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        whitening,
        residual_whitening(bags, scores, lookup(normal), np.arange(n_images)),
        atol=1e-5,
    )


@pytest.mark.parametrize("dim", [1, 2, 6, 40])
def test_whitening_is_symmetric_and_keeps_an_average_direction_s_length(dim: int) -> None:
    bags, normal, scores = lively_bags(3, 30, dim)  # of 40 dimensions, more than it has residuals
    whitening = residual_whitening(bags, scores, lookup(normal), np.arange(3)).astype(np.float64)
    np.testing.assert_allclose(whitening, whitening.T, atol=1e-6)
    gains = np.linalg.eigvalsh(whitening)
    assert gains.min() > 0
    # gain ** -2 = (variance + SHRINKAGE * mean) / ((1 + SHRINKAGE) * mean), whose mean is 1.
    assert np.mean(gains**-2) == pytest.approx(1, rel=1e-4)
    # What has no variance at all gains no more than this.
    assert gains.max() <= math.sqrt((1 + SHRINKAGE) / SHRINKAGE) * (1 + 1e-5)


def test_directions_count_the_less_the_more_ordinary_patches_differ_in_them() -> None:
    sides = np.array([1.0, 0.5, 0.25, 0.0])
    # Every corner of a box as often as every other: no direction goes with another.
    corners = np.array([[(m >> d & 1) * 2 - 1 for d in range(4)] for m in range(16)]) * sides
    bags = Bags(np.tile(corners, (2, 1, 1)).astype(np.float16), (4, 4))
    flat = np.zeros((2, 16), np.float32)
    whitening = residual_whitening(bags, flat, lookup(np.zeros((2, 16, 4))), np.arange(2))
    usual = np.mean(sides**2)
    gains = np.sqrt((1 + SHRINKAGE) * usual / (sides**2 + SHRINKAGE * usual))
    np.testing.assert_allclose(whitening, np.diag(gains), atol=1e-6)
    assert (np.diff(gains) > 0).all()


def test_turned_residuals_have_a_turned_whitening() -> None:
    bags, normal, scores = lively_bags(4, 30, 5)
    patches = bags.patches.astype(np.float64)
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))[0]
    straight, turned = (
        residual_whitening(
            Bags((patches @ one).astype(np.float32), bags.grid),
            scores,
            lookup(normal @ one),
            np.arange(4),
        )
        for one in (np.eye(5), turn)
    )
    np.testing.assert_allclose(turned, turn.T @ straight @ turn, atol=1e-5)


@pytest.mark.parametrize("factor", [0.01, 50.0])
def test_the_unit_of_residuals_and_of_scores_does_not_matter(factor: float) -> None:
    bags, normal, scores = lively_bags(4, 30, 5)
    patches = bags.patches.astype(np.float32)
    larger = Bags(np.float32(factor) * patches, bags.grid)
    np.testing.assert_allclose(
        residual_whitening(larger, scores * 3 - 1, lookup(factor * normal), np.arange(4)),
        residual_whitening(Bags(patches, bags.grid), scores, lookup(normal), np.arange(4)),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_nothing_is_whitened_where_all_residuals_are_alike(shift: float) -> None:
    bags = Bags(unit_vectors(3, 12, 5), (3, 4))
    scores = np.random.default_rng(0).random((3, 12))
    whitening = residual_whitening(bags, scores, lookup(bags.patches - shift), np.arange(3))
    np.testing.assert_array_equal(whitening, np.eye(5, dtype=np.float32))
    assert whitening.dtype == np.float32


def test_loud_patches_are_not_measured() -> None:
    bags, normal, scores = lively_bags(4, 30, 5)
    rows = np.arange(4)
    loud = scores > np.quantile(scores, ORDINARY_SHARE)
    assert loud.any()
    before = residual_whitening(bags, scores, lookup(normal), rows)
    patches = bags.patches.copy()
    patches[loud] += np.float16(50) * unit_vectors(*patches[loud].shape, dtype=np.float16)
    louder = np.where(loud, scores + 9, scores)
    flawed = Bags(patches, bags.grid)
    np.testing.assert_array_equal(residual_whitening(flawed, louder, lookup(normal), rows), before)
    # They would tell, if they were.
    silent = np.zeros_like(scores)
    assert not np.allclose(residual_whitening(flawed, silent, lookup(normal), rows), before)


def test_patches_that_do_not_count_and_images_not_asked_for_have_no_say() -> None:
    bags, normal, scores = lively_bags(6, 30, 5, masked=True)
    assert bags.valid is not None
    rows = np.array([4, 0, 3])
    before = residual_whitening(bags, scores, lookup(normal), rows)
    out = ~bags.valid
    out[[1, 2, 5]] = True
    patches = bags.patches.copy()
    patches[out] = 77
    for score in (-9.0, 9.0):
        other = np.where(out, np.float32(score), scores)
        changed = Bags(patches, bags.grid, bags.valid)
        found = residual_whitening(changed, other, lookup(normal), rows)
        np.testing.assert_array_equal(found, before)


# ---- every pooling ----


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", POOLINGS)
def test_what_every_pooling_promises(name: str, masked: bool) -> None:
    one = POOLINGS[name]
    assert one.name == name
    assert one.summary
    valid = None
    if masked:
        valid = np.random.default_rng(4).random((5, 24)) > 0.3
        valid[:, 2] = True
    bags = Bags(unit_vectors(5, 24, 4, dtype=np.float16), (4, 6), valid)
    comparison, _ = compare_with_peers(bags)
    weights, among = one.focus(soft_weights(comparison.scores, 0.2, valid))
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-5)
    assert among is None or not weights[~among].any()
    whitening = one.fit_whitening(bags, comparison, np.arange(5))
    assert whitening is None or whitening.shape == (4, 4)
    # A part with the weights of its whole image is that image; parts may share an image.
    images = np.array([1, 3, 3])
    pooled, of_parts = one.pool(
        bags, weights, comparison.expected, parts=(images, weights[images]), whitening=whitening
    )
    assert (pooled.shape, pooled.dtype) == ((5, 4), np.float32)
    np.testing.assert_allclose(of_parts, pooled[images], atol=1e-6)
    alone, nothing = one.pool(bags, weights, comparison.expected, whitening=whitening)
    np.testing.assert_array_equal(alone, pooled)
    assert (nothing.shape, nothing.dtype) == ((0, 4), np.float32)
    if one.needs_reference:
        with pytest.raises(ValueError, match="compared with a reference"):
            one.pool(bags, weights, None)
    else:
        np.testing.assert_array_equal(one.pool(bags, weights, None)[0], pooled)

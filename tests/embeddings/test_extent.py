"""How much of an image is unusual, and in what shape, against plain loops."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from flawsort.embeddings import extent
from flawsort.embeddings.extent import (
    N_EXTENTS,
    POINT,
    PROFILE_FLOOR,
    PROFILE_SHARES,
    PROFILE_WEIGHT,
    SHAPE_FLOOR,
    SHAPE_PATCHES,
    SHAPE_TEMPERATURE,
    SHAPE_WEIGHT,
    ExtentAxes,
    extents,
)
from helpers.bags import Array

N_PROFILE = len(PROFILE_SHARES)
# So small that of a flaw and its background only the flaw counts.
SHARP = 1e-3 / SHAPE_TEMPERATURE
GRIDS = [(1, 1), (1, 9), (4, 4), (7, 5), (3, 16), (14, 14)]


def made_scores(n_images: int, grid: tuple[int, int], seed: int = 0) -> Array:
    """Distinct scores, as those of a set would be."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.2, 1.4, (n_images, grid[0] * grid[1])).astype(np.float32)


def made_valid(n_images: int, n_patches: int) -> Array:
    """About half; of the first image one patch, of the second all."""
    valid = np.random.default_rng(1).random((n_images, n_patches)) > 0.5
    valid[:, n_patches // 2] = True
    valid[0] = np.arange(n_patches) == n_patches // 2
    valid[1] = True
    return valid


def naive_profile(scores: list[float]) -> list[float]:
    """Of the valid patches of an image."""
    means = []
    for share in PROFILE_SHARES:
        count = max(1, round(share * len(scores)))
        means.append(sum(sorted(scores, reverse=True)[:count]) / count)
    return means


def naive_shape(scores: list[float], grid: tuple[int, int], spread: float, valid: Array) -> Array:
    rows, columns = grid
    inside = [patch for patch in range(rows * columns) if valid[patch]]
    count = max(1, round(SHAPE_PATCHES * rows * columns))
    highest = sorted((scores[patch] for patch in inside), reverse=True)
    chosen = [patch for patch in inside if scores[patch] >= highest[:count][-1]]
    powers = [
        math.exp((scores[patch] - highest[0]) / (SHAPE_TEMPERATURE * spread)) for patch in chosen
    ]
    places = [
        np.array([(patch // columns + 0.5) / rows, (patch % columns + 0.5) / columns])
        for patch in chosen
    ]
    shares = [power / sum(powers) for power in powers]
    mean = sum(share * place for share, place in zip(shares, places, strict=True))
    covariance = sum(
        share * np.outer(place - mean, place - mean)
        for share, place in zip(shares, places, strict=True)
    )
    return np.log(np.maximum(np.linalg.eigvalsh(covariance)[::-1], 0) + POINT)


def naive_extents(
    scores: Array, grid: tuple[int, int], spread: float, valid: Array | None = None
) -> Array:
    found = []
    for row, values in enumerate(scores.astype(np.float64).tolist()):
        inside = np.ones(len(values), bool) if valid is None else valid[row]
        counted = [value for value, seen in zip(values, inside, strict=True) if seen]
        shape = naive_shape(values, grid, spread, inside)
        found.append([*naive_profile(counted), *shape])
    return np.array(found)


def flaw(grid: tuple[int, int], rows: slice | int, columns: slice | int) -> Array:
    """A picture of scores, (rows, columns): 1 where the flaw is, 0 elsewhere."""
    picture = np.zeros(grid)
    picture[rows, columns] = 1
    return picture


def profile(picture: Array) -> Array:
    return extents(picture.reshape(1, -1), picture.shape, SHARP)[0, :N_PROFILE]


def shape(picture: Array) -> Array:
    """(2,): the logarithms for a picture, (rows, columns)."""
    return extents(picture.reshape(1, -1), picture.shape, SHARP)[0, N_PROFILE:]


def variances(picture: Array) -> Array:
    """(2,): along the longer and the shorter axis, in units of the image."""
    return np.exp(shape(picture)) - POINT


# ---- against loops ----


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("spread", [0.03, 0.4, 20.0])
@pytest.mark.parametrize("grid", GRIDS)
def test_extents(grid: tuple[int, int], spread: float, masked: bool) -> None:
    scores = made_scores(5, grid)
    valid = made_valid(*scores.shape) if masked else None
    before = scores.copy(), None if valid is None else valid.copy()
    found = extents(scores, grid, spread, valid)
    assert (found.dtype, found.shape) == (np.float64, (5, N_EXTENTS))
    np.testing.assert_allclose(found, naive_extents(scores, grid, spread, valid), atol=1e-4)
    np.testing.assert_array_equal(scores, before[0])
    if valid is not None:
        np.testing.assert_array_equal(valid, before[1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sums_are_in_double_precision(dtype: type) -> None:
    scores = (1000 + made_scores(3, (14, 14))).astype(dtype)
    naive = naive_extents(scores, (14, 14), 0.4)
    np.testing.assert_allclose(
        extents(scores, (14, 14), 0.4)[:, :N_PROFILE], naive[:, :N_PROFILE], rtol=1e-12
    )


def test_equal_scores_all_count_where_some_do() -> None:
    # Of what is as high as the last that counts there is more than may count.
    grid = (6, 8)
    scores = np.round(made_scores(4, grid), 1)
    np.testing.assert_allclose(
        extents(scores, grid, 2.0), naive_extents(scores, grid, 2.0), atol=1e-4
    )
    mirrored = scores.reshape(4, *grid)[:, ::-1].reshape(4, -1)
    np.testing.assert_allclose(extents(mirrored, grid, 2.0), extents(scores, grid, 2.0), atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("at_once", [1, 3, 7, 8])
def test_images_in_blocks_are_as_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, at_once: int, masked: bool
) -> None:
    grid = (5, 6)
    scores = made_scores(7, grid)
    valid = made_valid(*scores.shape) if masked else None
    alone = [
        extents(scores[[row]], grid, 0.4, None if valid is None else valid[[row]])
        for row in range(7)
    ]
    sizes: list[int] = []
    weigh = extent.soft_weights

    def watched(block: Array, *options: Array) -> Array:
        sizes.append(len(block))
        return weigh(block, *options)  # type: ignore[arg-type]

    monkeypatch.setattr(extent, "soft_weights", watched)
    found = extents(scores, grid, 0.4, valid, rows_at_once=at_once)
    np.testing.assert_allclose(found, np.concatenate(alone), atol=1e-9)
    assert sum(sizes) == 7
    assert max(sizes) == min(at_once, 7)


def test_no_images() -> None:
    assert extents(np.empty((0, 6), np.float32), (2, 3), 0.4).shape == (0, N_EXTENTS)


# ---- patches that are not valid ----


@pytest.mark.parametrize("filling", [1e9, -1e9, np.nan])
@pytest.mark.parametrize("grid", [(4, 4), (7, 5), (3, 16)])
def test_patches_that_are_not_valid_never_count(grid: tuple[int, int], filling: float) -> None:
    scores = made_scores(6, grid)
    valid = made_valid(*scores.shape)
    filled = np.where(valid, scores, np.float32(filling))
    np.testing.assert_array_equal(
        extents(filled, grid, 0.4, valid), extents(scores, grid, 0.4, valid)
    )


def test_all_valid_is_as_without_a_mask() -> None:
    scores = made_scores(4, (4, 6))
    np.testing.assert_array_equal(
        extents(scores, (4, 6), 0.4, np.ones(scores.shape, bool)), extents(scores, (4, 6), 0.4)
    )


def test_one_valid_patch_is_a_point() -> None:
    scores = made_scores(12, (3, 4))
    found = extents(scores, (3, 4), 0.4, np.eye(12, dtype=bool))
    for row in range(12):
        np.testing.assert_allclose(found[row, :N_PROFILE], scores[row, row])
    np.testing.assert_allclose(found[:, N_PROFILE:], math.log(POINT), atol=1e-9)


def test_few_valid_patches_all_count() -> None:
    """Fewer than the share of an image that makes up its shape."""
    scores, valid = np.zeros((1, 400)), np.zeros((1, 400), bool)
    valid[0, [20, 39]] = True  # the ends of the second row
    assert SHAPE_PATCHES * 400 > 2
    found = extents(scores, (20, 20), 1.0, valid)[0, N_PROFILE:]
    np.testing.assert_allclose(np.exp(found) - POINT, [(19 / 40) ** 2, 0], atol=1e-6)


# ---- what it is for ----


def test_a_line_is_longer_than_a_dot_and_thinner_than_a_stain() -> None:
    grid = (16, 16)
    dot, line = flaw(grid, 8, 8), flaw(grid, 8, slice(4, 12))
    stain = flaw(grid, slice(4, 12), slice(4, 12))
    np.testing.assert_allclose(shape(dot), math.log(POINT), atol=1e-9)
    assert shape(line)[0] > shape(dot)[0] + 1
    assert shape(line)[1] == pytest.approx(shape(dot)[1], abs=1e-9)
    assert shape(stain)[1] > shape(line)[1] + 1
    assert shape(stain)[1] == pytest.approx(shape(stain)[0])
    assert shape(flaw(grid, 8, slice(2, 14)))[0] > shape(line)[0]


def test_flaws_at_both_ends_lie_further_apart_than_a_line() -> None:
    grid = (16, 16)
    ends = flaw(grid, 8, 4) + flaw(grid, 8, 11)
    assert shape(ends)[0] > shape(flaw(grid, 8, slice(4, 12)))[0]


def test_a_larger_flaw_has_a_higher_profile() -> None:
    grid = (20, 20)
    small, large = profile(flaw(grid, 3, 3)), profile(flaw(grid, slice(2, 14), slice(2, 14)))
    assert np.all(large >= small)
    assert np.any(large > small)


def test_a_profile_does_not_rise() -> None:
    found = extents(made_scores(5, (14, 14)), (14, 14), 0.4)[:, :N_PROFILE]
    order = np.argsort(PROFILE_SHARES)
    assert np.all(np.diff(found[:, order], axis=1) <= 0)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_a_slanting_line_is_as_long_as_it_is(size: int) -> None:
    grid = (16, 16)
    level = variances(flaw(grid, 3, slice(4, 4 + size)))
    assert level[0] == pytest.approx((size**2 - 1) / 12 / 16**2, rel=1e-4)
    diagonal = np.zeros(grid)
    diagonal[np.arange(size) + 2, np.arange(size) + 4] = 1
    np.testing.assert_allclose(variances(diagonal), [2 * level[0], 0], atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [(1, 12), (12, 1), (4, 3)])
def test_where_the_flaw_lies_changes_nothing(size: tuple[int, int], seed: int) -> None:
    # Not even by a rounding error: where all flaws are alike, that is what would be scaled up.
    strength = 1 + 1e-3 * np.random.default_rng(seed).random(size)
    found = []
    for down in range(16 - size[0] + 1):
        for across in range(16 - size[1] + 1):
            picture = np.zeros((16, 16))
            picture[down : down + size[0], across : across + size[1]] = strength
            found.append(shape(picture))
    np.testing.assert_allclose(found, np.broadcast_to(found[0], np.shape(found)), atol=1e-9)


@pytest.mark.parametrize("grid", [(9, 9), (6, 11)])
def test_mirroring_and_turning_change_nothing(grid: tuple[int, int]) -> None:
    picture = made_scores(1, grid).reshape(grid)
    asked = [picture[::-1], picture[:, ::-1], picture[::-1, ::-1]]
    # The image turns with its grid: one side of it is 1 either way.
    asked += [picture.T, np.rot90(picture), np.rot90(picture, 3)]
    expected = extents(picture.reshape(1, -1), grid, 0.4)
    for turned in asked:
        found = extents(turned.reshape(1, -1), turned.shape, 0.4)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_profile_does_not_depend_on_where_patches_lie() -> None:
    scores = made_scores(3, (14, 14))
    order = np.random.default_rng(2).permutation(196)
    np.testing.assert_allclose(
        extents(scores[:, order], (14, 14), 0.4)[:, :N_PROFILE],
        extents(scores, (14, 14), 0.4)[:, :N_PROFILE],
    )


@pytest.mark.parametrize("finer", [(3, 3), (1, 4), (5, 2)])
def test_a_shape_is_in_units_of_the_image(finer: tuple[int, int]) -> None:
    picture = flaw((8, 10), slice(1, 6), slice(4, 7))
    again = np.kron(picture, np.ones(finer))
    # A patch stands for its middle: what the extent of a patch itself would add.
    lost = [1 / 12 / rows**2 for rows in picture.shape]
    still_lost = [1 / 12 / rows**2 for rows in again.shape]
    np.testing.assert_allclose(
        variances(again) + still_lost, variances(picture) + lost, atol=1e-7
    )  # the longer axis is the one down


@pytest.mark.parametrize(("factor", "added"), [(3.0, 0.0), (0.01, 0.0), (1.0, 5.0)])
def test_shapes_do_not_depend_on_the_units_of_scores(factor: float, added: float) -> None:
    scores = made_scores(4, (7, 5)).astype(np.float64)
    found = extents(scores, (7, 5), 0.4)
    other = extents(scores * factor + added, (7, 5), 0.4 * factor)
    np.testing.assert_allclose(other[:, :N_PROFILE], found[:, :N_PROFILE] * factor + added)
    np.testing.assert_allclose(other[:, N_PROFILE:], found[:, N_PROFILE:], atol=1e-5)


@pytest.mark.parametrize("grid", GRIDS)
def test_where_every_patch_is_alike_all_count(grid: tuple[int, int]) -> None:
    found = extents(np.full((3, grid[0] * grid[1]), 0.7, np.float32), grid, 1.0)
    np.testing.assert_allclose(found[:, :N_PROFILE], np.float32(0.7))
    whole = sorted(((1 - 1 / side**2) / 12 for side in grid), reverse=True)
    np.testing.assert_allclose(
        found[:, N_PROFILE:], np.log(np.array([whole] * 3) + POINT), atol=1e-5
    )
    axes = ExtentAxes.fit(1.0, found, 1.0)
    np.testing.assert_allclose(axes.measure(found), 0, atol=1e-6)


# ---- as coordinates ----


SPREAD = 2.3  # of pooled patches


def made_extents() -> Array:
    """The extents of 30 images, each in units of its own."""
    rng = np.random.default_rng(4)
    return rng.normal(3, 1, (30, N_EXTENTS)) * np.arange(1, N_EXTENTS + 1)


def test_each_group_of_axes_has_its_share_of_the_spread() -> None:
    found = made_extents()
    before = found.copy()
    axes = ExtentAxes.fit(SPREAD, found, 1.0).measure(found)
    assert axes.shape == (30, N_EXTENTS)
    for group, weight in (
        (range(N_PROFILE), PROFILE_WEIGHT),
        (range(N_PROFILE, N_EXTENTS), SHAPE_WEIGHT),
    ):
        together = math.sqrt(sum(np.var(axes[:, column]) for column in group))
        assert together == pytest.approx(weight * SPREAD, rel=1e-5)
        for column in group:
            values = found[:, column]
            alike = (values - values.mean()) / values.std() * weight * SPREAD
            np.testing.assert_allclose(
                axes[:, column], alike / math.sqrt(len(group)), rtol=1e-5, atol=1e-6
            )
    np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize("column", range(N_EXTENTS))
def test_what_is_alike_adds_nothing(column: int) -> None:
    found = made_extents()
    whole = ExtentAxes.fit(SPREAD, found, 1.0).measure(found)
    # What differs by a rounding error is not blown up to a share of the spread.
    found[:, column] = 0.7 + 1e-9 * np.arange(30)
    axes = ExtentAxes.fit(SPREAD, found, 1.0).measure(found)
    np.testing.assert_allclose(axes[:, column], 0, atol=1e-6)
    np.testing.assert_array_equal(np.delete(axes, column, 1), np.delete(whole, column, 1))


def test_extents_that_hardly_differ_count_by_their_floor() -> None:
    found = made_extents()
    found = found.mean(axis=0) + 1e-6 * np.sign(found - found.mean(axis=0))
    axes = ExtentAxes.fit(SPREAD, found, 2.0)
    for column, scale in enumerate(axes.scales):
        weight, count, floor = PROFILE_WEIGHT, N_PROFILE, PROFILE_FLOOR * 2.0
        if column >= N_PROFILE:
            weight, count, floor = SHAPE_WEIGHT, N_EXTENTS - N_PROFILE, SHAPE_FLOOR
        assert scale == pytest.approx(weight * SPREAD / math.sqrt(count) / floor)


@pytest.mark.parametrize("n_images", [1, 4])
def test_where_pooled_patches_are_alike_there_is_no_scale(n_images: int) -> None:
    found = made_extents()[:n_images]
    np.testing.assert_array_equal(ExtentAxes.fit(0.0, found, 1.0).measure(found), 0)


def test_new_images_are_placed_by_the_fitted_scale() -> None:
    found = made_extents()
    axes = ExtentAxes.fit(SPREAD, found, 1.0)
    np.testing.assert_array_equal(axes.measure(found[:2]), axes.measure(found)[:2])
    assert axes.measure(found[:0]).shape == (0, N_EXTENTS)
    new = axes.measure(np.full((1, N_EXTENTS), 2.0))
    expected = [
        (2.0 - centre) * scale for centre, scale in zip(axes.centres, axes.scales, strict=True)
    ]
    np.testing.assert_allclose(new[0], expected, rtol=1e-6)


def test_axes_survive_json() -> None:
    axes = ExtentAxes.fit(SPREAD, made_extents(), 1.0)
    assert len(axes.centres) == len(axes.scales) == N_EXTENTS
    stored = json.loads(json.dumps(asdict(axes)))
    assert ExtentAxes(**{name: tuple(values) for name, values in stored.items()}) == axes

"""Feature maps averaged to a coarser grid, against plain loops, and how a backbone is told so."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from flawsort.backbones import BackboneChoice, load_backbone, open_backbone
from flawsort.backbones.embed import cache_setting, embed
from flawsort.backbones.patches import patch_embeddings
from flawsort.core.errors import OptionError
from flawsort.images.find import array_images
from flawsort.images.view import View
from helpers.bags import Array
from helpers.onnx_files import average_pool, two_strides


def maps_of(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def pooled(features: Array, kernel: int) -> Array:
    """(channels, rows, cols): means over kernel x kernel neighbours, fewer at the border."""
    channels, rows, cols = features.shape
    reach, found = kernel // 2, np.zeros(features.shape)
    for row, col in itertools.product(range(rows), range(cols)):
        above, left = max(row - reach, 0), max(col - reach, 0)
        around = features[:, above : row + reach + 1, left : col + reach + 1]
        found[:, row, col] = around.reshape(channels, -1).astype(np.float64).mean(axis=1)
    return found


def averaged(features: Array, rows: int, cols: int) -> Array:
    """(channels, rows, cols): the mean over the area of each cell of a coarser grid."""
    _, height, width = features.shape
    found = np.zeros((len(features), rows, cols))
    for row, col in itertools.product(range(rows), range(cols)):
        for y, x in itertools.product(range(height), range(width)):
            high = min((row + 1) * height / rows, y + 1) - max(row * height / rows, y)
            wide = min((col + 1) * width / cols, x + 1) - max(col * width / cols, x)
            found[:, row, col] += max(high, 0) * max(wide, 0) * features[:, y, x]
    return found * rows * cols / (height * width)


def interpolated(features: Array, rows: int, cols: int) -> Array:
    """(channels, rows, cols): bilinear between the centres of cells, constant beyond the border."""
    channels, height, width = features.shape
    found = np.zeros((channels, rows, cols))
    for row, col in itertools.product(range(rows), range(cols)):
        y = min(max((row + 0.5) * height / rows - 0.5, 0), height - 1)
        x = min(max((col + 0.5) * width / cols - 0.5, 0), width - 1)
        for near_y, near_x in itertools.product(range(height), range(width)):
            share = max(1 - abs(y - near_y), 0) * max(1 - abs(x - near_x), 0)
            found[:, row, col] += share * features[:, near_y, near_x]
    return found


def unit(vectors: Array) -> Array:
    lengths: Array = np.linalg.norm(vectors, axis=0, keepdims=True)
    return np.asarray(vectors / lengths)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(("side", "grid"), [(8, 4), (6, 4), (12, 8), (7, 3)])
def test_finer_maps_are_averaged_by_area(side: int, grid: int, kernel: int) -> None:
    maps = maps_of(2, 3, side, side)
    patches, found = patch_embeddings([maps], kernel, grid)
    assert (found, patches.shape) == ((grid, grid), (2, grid * grid, 3))
    for image, features in enumerate(maps):
        expected = unit(averaged(pooled(features, kernel), grid, grid)).reshape(3, -1).T
        np.testing.assert_allclose(patches[image], expected, atol=1e-5)


def test_48_to_32() -> None:
    maps = maps_of(1, 4, 48, 48)
    patches, found = patch_embeddings([maps], 1, 32)
    assert found == (32, 32)
    expected = unit(averaged(maps[0], 32, 32)).reshape(4, -1).T
    np.testing.assert_allclose(patches[0], expected, atol=1e-5)


def test_each_axis_of_a_grid_that_is_not_square() -> None:
    maps = maps_of(1, 3, 9, 4)
    patches, found = patch_embeddings([maps], 1, 6)
    assert found == (6, 4)  # the columns are coarser already
    expected = unit(averaged(maps[0], 6, 4)).reshape(3, -1).T
    np.testing.assert_allclose(patches[0], expected, atol=1e-5)


def test_coarser_maps_beside_finer_ones_are_interpolated() -> None:
    fine, coarse = maps_of(1, 3, 12, 12), maps_of(1, 2, 3, 3, seed=1)
    patches, found = patch_embeddings([fine, coarse], 3, 6)
    assert (found, patches.shape) == ((6, 6), (1, 36, 5))
    expected = unit(averaged(pooled(fine[0], 3), 6, 6)).reshape(3, -1).T / np.sqrt(2)
    np.testing.assert_allclose(patches[0, :, :3], expected, atol=1e-5)
    expected = unit(interpolated(pooled(coarse[0], 3), 6, 6)).reshape(2, -1).T / np.sqrt(2)
    np.testing.assert_allclose(patches[0, :, 3:], expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(patches, axis=2), 1, atol=1e-6)


@pytest.mark.parametrize("grid", [None, 8, 9, 100])
def test_a_grid_that_is_not_coarser_changes_nothing(grid: int | None) -> None:
    maps = [maps_of(2, 3, 8, 8), maps_of(2, 2, 4, 4)]
    patches, found = patch_embeddings(maps, 3, grid)
    assert found == (8, 8)
    np.testing.assert_array_equal(patches, patch_embeddings(maps, 3)[0])


# ---- how a backbone is opened ----


@pytest.fixture
def two_maps(tmp_path: Path) -> Path:
    path = tmp_path / "two.onnx"
    path.write_bytes(two_strides())
    return path


def test_a_backbone_is_opened_with_a_grid(two_maps: Path) -> None:
    choice = BackboneChoice(two_maps, image_size=64, grid=5)
    backbone = open_backbone(choice)
    assert (backbone.info.input_size, backbone.info.grid) == ((64, 64), 5)
    pictures = array_images([(255 * maps_of(64, 64, 3)).astype(np.uint8)])
    bags = embed(pictures, backbone, View()).bags
    assert (bags.grid, bags.dim) == ((5, 5), 6)
    plain = open_backbone(BackboneChoice(str(two_maps), image_size=64))
    assert plain.info == load_backbone(two_maps, image_size=64).info
    assert embed(pictures, plain, View()).bags.grid == (8, 8)


def test_bags_of_another_grid_or_size_are_cached_apart(two_maps: Path) -> None:
    choices = [
        BackboneChoice(two_maps, image_size=size, grid=grid)
        for size in (64, 128)
        for grid in (None, 4, 8)
    ]
    settings = [cache_setting(open_backbone(choice), View()) for choice in choices]
    assert [setting["grid"] for setting in settings] == 2 * [None, 4, 8]
    assert len({str(setting) for setting in settings}) == len(choices)


def test_bags_of_another_network_are_cached_apart(tmp_path: Path) -> None:
    settings = []
    for stride in (8, 16):
        path = tmp_path / f"{stride}.onnx"
        path.write_bytes(average_pool(stride))
        backbone = open_backbone(BackboneChoice(path, image_size=64))
        settings.append(cache_setting(backbone, View()))
    assert settings[0] != settings[1]


@pytest.mark.parametrize("grid", [0, -3])
def test_a_grid_without_cells_is_refused(two_maps: Path, grid: int) -> None:
    with pytest.raises(OptionError, match=f"grid must be 1 or more, or None. Got {grid}"):
        BackboneChoice(two_maps, grid=grid)

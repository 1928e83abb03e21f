"""Masks and heat maps: read, found by name, and brought to the grid, against plain loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import ImageSet
from flawsort.images.maps import cell_means, find_maps, read_heat, read_mask
from flawsort.images.view import View, decode


def images_of(*names: str) -> ImageSet:
    blank = np.zeros((4, 4), np.uint8)
    return ImageSet(names, (blank,) * len(names), tuple(f"{row:064d}" for row in range(len(names))))


def save(path: Path, values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values)).save(path)
    return path


class TestCells:
    @settings(max_examples=60, deadline=None)
    @given(
        st.integers(1, 6),
        st.integers(1, 6),
        st.tuples(st.integers(1, 4), st.integers(1, 4)),
        st.tuples(*[st.floats(-2, 8, allow_nan=False) for _ in range(4)]),
    )
    def test_are_exact_means_over_areas(
        self, high: int, wide: int, grid: tuple[int, int], ends: tuple[float, ...]
    ) -> None:
        values = np.random.default_rng(high * 7 + wide).random((high, wide))
        left, right = sorted(ends[:2])
        top, bottom = sorted(ends[2:])
        right, bottom = right + 1, bottom + 1
        found = cell_means(values, (left, top, right, bottom), grid)
        for row in range(grid[0]):
            for column in range(grid[1]):
                total = area = 0.0
                y0 = top + row * (bottom - top) / grid[0]
                y1 = top + (row + 1) * (bottom - top) / grid[0]
                x0 = left + column * (right - left) / grid[1]
                x1 = left + (column + 1) * (right - left) / grid[1]
                for y in range(high):
                    for x in range(wide):
                        tall = max(0.0, min(y1, y + 1) - max(y0, y))
                        broad = max(0.0, min(x1, x + 1) - max(x0, x))
                        total += tall * broad * values[y, x]
                        area += tall * broad
                if area > 1e-9:
                    assert found[row, column] == pytest.approx(total / area, abs=1e-5)
                elif area == 0:
                    assert found[row, column] == 0

    @pytest.mark.parametrize("fit", ["stretch", "pad", "crop"])
    @pytest.mark.parametrize("roi", [None, (0.1, 0.2, 0.9, 0.7)])
    def test_lie_where_the_backbone_sees_them(self, tmp_path: Path, fit: Any, roi: Any) -> None:
        # A map that is the photo itself, seen through the view: both must show the same.
        rng = np.random.default_rng(0)
        photo = np.kron(rng.integers(0, 256, (12, 20)), np.ones((10, 10))).astype(np.uint8)
        path = save(tmp_path / "photos" / "one.png", photo)
        view, size, grid = View(fit=fit, roi=roi), (64, 64), (8, 8)
        images = ImageSet(("one.png",), (path,), ("0" * 64,))
        maps = find_maps(tmp_path / "photos", "heat-maps", images, view, size)
        found = maps.on_grid(images, grid).reshape(grid)
        seen = decode(path, view, size)
        cells = seen.frames[0][0].reshape(8, 8, 8, 8).mean(axis=(1, 3))
        inside = np.ones(grid, bool)
        if seen.inside is not None:
            inside = seen.inside.reshape(8, 8, 8, 8).all(axis=(1, 3))
        assert inside.sum() >= 16
        assert np.abs(found - cells)[inside].max() < 0.12  # resizing looks a little beyond a cell
        assert np.abs(found - cells)[inside].mean() < 0.02


class TestNames:
    def test_with_folders_or_without_where_unique(self, tmp_path: Path) -> None:
        save(tmp_path / "cut" / "000_mask.png", np.zeros((2, 2), np.uint8))
        save(tmp_path / "hole" / "000.tif", np.zeros((2, 2), np.uint8))
        np.save(tmp_path / "alone.npy", np.zeros((2, 2)))
        (tmp_path / "notes.txt").write_text("no map")
        images = images_of("cut/000.jpg", "hole/000.jpg", "deep/alone.png", "good/000.jpg")
        found = find_maps(tmp_path, "masks", images, View(), (64, 64)).by_digest
        names = {images.names[int(digest)]: Path(str(path)).name for digest, path in found.items()}
        assert names == {
            "cut/000.jpg": "000_mask.png",
            "hole/000.jpg": "000.tif",
            "deep/alone.png": "alone.npy",
        }

    def test_every_image_needs_a_heat_map(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros((2, 2)))
        said = r"such as a\.png or a\.npy\. Got none for 1 image of 2, the first 'b\.png'\."
        with pytest.raises(InputError, match=said):
            find_maps(tmp_path, "heat-maps", images_of("a.png", "b.png"), View(), (64, 64))

    @pytest.mark.parametrize("given", [5, ["a.png"], np.zeros((2, 2))])
    def test_neither_a_folder_nor_arrays_by_name(self, given: Any) -> None:
        with pytest.raises(OptionError, match=r"^maps must be a folder of masks, or arrays by"):
            find_maps(given, "masks", images_of("a.png"), View(), (64, 64))

    def test_some_image_needs_a_mask(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"Got none for 2 images of 2"):
            find_maps(tmp_path, "masks", images_of("a.png", "b.png"), View(), (64, 64))


class TestNotes:
    """What is not used, or missing, is said."""

    def test_all_is_well(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            save(tmp_path / f"{name}.png", np.zeros((2, 2), np.uint8))
        maps = find_maps(tmp_path, "masks", images_of("a.jpg", "b.jpg"), View(), (64, 64))
        assert maps.notes == ()

    def test_images_without_a_mask(self, tmp_path: Path) -> None:
        save(tmp_path / "a.png", np.zeros((2, 2), np.uint8))
        names = [f"{letter}.jpg" for letter in "abc"]
        maps = find_maps(tmp_path, "masks", images_of(*names), View(), (64, 64))
        said = "1 image has a mask and 2 of 3 have none: of these every patch counts the same."
        assert maps.notes == (said,)

    def test_files_without_an_image(self, tmp_path: Path) -> None:
        for name in ("a", "odd", "old/odder_mask"):
            save(tmp_path / f"{name}.png", np.zeros((2, 2), np.uint8))
        maps = find_maps(tmp_path, "masks", images_of("a.jpg"), View(), (64, 64))
        said = "2 of the masks belong to none of the images, such as 'odd.png'."
        assert maps.notes == (said,)

    def test_arrays_without_an_image(self) -> None:
        given = {"a.jpg": np.zeros((2, 2)), "b.jpg": np.zeros((2, 2))}
        maps = find_maps(given, "heat-maps", images_of("a.jpg"), View(), (64, 64))
        said = "1 of the heat maps belongs to none of the images, such as 'b.jpg'."
        assert maps.notes == (said,)

    def test_copies_with_another_map(self) -> None:
        """Bags of equal images are looked at once, so one map must serve all of them."""
        names = ("a.jpg", "b.jpg", "c.jpg", "d.jpg")
        images = replace(images_of(*names), digests=("0" * 64,) * 3 + ("1" * 64,))
        marked, other = np.eye(2), 1 - np.eye(2)
        given = {"a.jpg": marked, "b.jpg": 255 * marked, "c.jpg": other, "d.jpg": other}
        maps = find_maps(given, "masks", images, View(), (64, 64))
        said = (
            "1 image is a copy of another one, with other masks than that one, such as 'c.jpg'. "
            "Copies have the map of the first one."
        )
        assert maps.notes == (said,)
        assert maps.by_digest["0" * 64] is marked

    def test_a_copy_has_the_mask_of_the_first(self) -> None:
        images = replace(images_of("a.jpg", "b.jpg"), digests=("0" * 64,) * 2)
        maps = find_maps({"b.jpg": np.eye(2)}, "masks", images, View(), (64, 64))
        assert maps.notes == ()


class TestFiles:
    @pytest.mark.parametrize("largest", [1, 255])
    def test_masks_are_marked_above_half_of_the_largest(self, tmp_path: Path, largest: int) -> None:
        values = np.array([[0, largest], [largest, largest // 3]], np.uint8)
        expected = [[0, 1], [1, 0]]
        assert read_mask(save(tmp_path / "mask.png", values)).tolist() == expected
        assert read_mask(values).tolist() == expected
        assert read_mask(np.zeros((2, 2))).tolist() == [[0, 0], [0, 0]]

    def test_masks_in_colour(self, tmp_path: Path) -> None:
        values = np.zeros((2, 3, 3), np.uint8)
        values[0, 1] = (0, 0, 200)
        assert read_mask(save(tmp_path / "mask.png", values)).sum() == 1

    def test_heat_in_eight_and_sixteen_bits_and_as_numbers(self, tmp_path: Path) -> None:
        eight = save(tmp_path / "8.png", np.array([[0, 51, 255]], np.uint8))
        sixteen = save(tmp_path / "16.png", np.array([[0, 13107, 65535]], np.uint16))
        np.save(tmp_path / "n.npy", np.array([[-3.0, 0.2, 70.0]]))
        np.testing.assert_allclose(read_heat(eight), [[0, 0.2, 1]], atol=1e-9)
        np.testing.assert_allclose(read_heat(sixteen), [[0, 0.2, 1]], atol=1e-9)
        np.testing.assert_allclose(read_heat(tmp_path / "n.npy"), [[-3, 0.2, 70]])

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (np.zeros((2, 2, 2)), r"must be one number for each pixel, \(height, width\)"),
            (np.zeros((0, 2)), r"must be one number for each pixel"),
            (np.array([["a"]]), r"must be one number for each pixel"),
            (np.array([[np.nan]]), r"must be finite"),
        ],
    )
    def test_arrays_that_are_no_maps(self, content: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            read_heat(content)

    def test_files_that_are_no_maps(self, tmp_path: Path) -> None:
        coloured = np.zeros((2, 2, 3), np.uint8)
        coloured[0, 0] = (255, 0, 9)
        with pytest.raises(InputError, match="a picture in colours does not tell how hot"):
            read_heat(save(tmp_path / "jet.png", coloured))
        for name in ("broken.png", "broken.npy"):
            (tmp_path / name).write_bytes(b"no map")
            with pytest.raises(InputError, match=rf"The heat map '.*{name}' cannot be read: "):
                read_heat(tmp_path / name)

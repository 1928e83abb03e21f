"""The size of photos decides how closely they are looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort.images.tiles import (
    MOST_SHRUNK,
    TILES_SHRUNK,
    about_shrunk,
    photo_size,
    photo_sizes,
    shrunk,
    shrunk_each,
    tiles_for,
)
from flawsort.images.view import MAX_TILES, View

INPUT = (512, 512)


@pytest.mark.parametrize(
    ("photo", "tiles"),
    [
        ((300, 400), (1, 1)),
        ((512, 512), (1, 1)),
        ((1024, 1024), (1, 1)),
        ((600, 1024), (1, 1)),
        ((1025, 1025), (3, 3)),
        ((400, 3000), (1, 7)),
        ((1080, 1920), (3, 5)),
        ((3000, 4000), (7, 9)),
        ((4000, 6000), (9, 14)),
        ((20_000, 500), (MAX_TILES, 1)),
    ],
)
def test_tiles_by_size(photo: tuple[int, int], tiles: tuple[int, int]) -> None:
    assert tiles_for(photo, INPUT) == tiles
    assert tiles_for(photo[::-1], INPUT) == tiles[::-1]
    # A preset with a small input sees as many pixels in a tile.
    assert tiles_for(photo, (256, 256)) == tiles


def test_tiles_of_a_larger_input_are_fewer() -> None:
    assert tiles_for((4000, 6000), (1024, 1024)) == (5, 7)
    assert tiles_for((2048, 2048), (1024, 1024)) == (1, 1)


def test_nothing_is_shrunk_much() -> None:
    for side in range(200, 8000, 77):
        photo = (side, 3 * side // 2)
        tiles = tiles_for(photo, INPUT)
        if max(tiles) < MAX_TILES:
            most = MOST_SHRUNK if tiles == (1, 1) else TILES_SHRUNK
            assert shrunk(photo, INPUT, tiles) <= most + 1e-9
        if tiles != (1, 1):
            # One tile less on the longer side would not do.
            assert shrunk(photo, INPUT, (tiles[0], tiles[1] - 1)) > TILES_SHRUNK


def save(folder: Path, sizes: list[tuple[int, int]]) -> list[Path]:
    paths = []
    for number, (height, width) in enumerate(sizes):
        paths.append(folder / f"{number}.png")
        Image.new("L", (width, height)).save(paths[-1])
    return paths


def test_the_largest_tenth_decides(tmp_path: Path) -> None:
    few = save(tmp_path, [(30, 40)] * 19 + [(300, 400)])
    assert photo_size(few, View()) == (30, 40)
    more = save(tmp_path, [(30, 40)] * 17 + [(300, 400)] * 3)
    assert photo_size(more, View()) == (300, 400)
    assert photo_size(more[::-1], View()) == (300, 400)


def test_each_image_that_is_shrunk_is_counted(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image", "utf-8")
    paths = [*save(tmp_path, [(30, 40)] * 12 + [(1100, 40)] * 7), tmp_path / "text.png"]
    times = shrunk_each(photo_sizes(paths, View()), INPUT, (1, 1))
    np.testing.assert_allclose(times[12:], [1100 / 512] * 7 + [0])
    assert about_shrunk([path.name for path in paths], times) == (
        "7 of the 20 images are looked at 2.1 times smaller than they are or more, so that small "
        "flaws cannot be seen: 12.png, 13.png, 14.png, 15.png, 16.png and 2 more."
    )
    assert about_shrunk(["a", "b"], np.array([2.0, 0.0])) == ""


def test_only_what_the_view_shows_counts(tmp_path: Path) -> None:
    paths = save(tmp_path, [(300, 400)] * 3)
    assert photo_size(paths, View(roi=(0, 0, 0.5, 0.1))) == (30, 200)
    mask = np.zeros((30, 40), np.uint8)
    mask[10:20, 5:15] = 1
    Image.fromarray(mask).save(tmp_path / "mask.png")
    assert photo_size(paths, View(mask=tmp_path / "mask.png")) == (100, 100)


def test_turned_unreadable_and_missing_images(tmp_path: Path) -> None:
    turned = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (40, 30)).save(turned, exif=exif)
    (tmp_path / "text.png").write_text("no image", "utf-8")
    bad = [tmp_path / "text.png", tmp_path / "missing.png"]
    assert photo_size([*bad, turned], View()) == (40, 30)
    assert photo_size(bad, View()) is None
    assert photo_size([np.zeros((5, 7, 3), np.uint8)], View()) == (5, 7)

"""Close-ups, the matching place of another image, and what differs."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from flawsort.images.closeups import (
    LEAST_PATCHES,
    Sheet,
    close_up_box,
    matching_box,
    matching_picture,
    picture_size,
    shift_between,
    whole_pixels,
)

FRAME, GRID = (0.0, 0.0, 640.0, 320.0), (16, 32)  # patches of 20 x 20
EVERYWHERE = (0.0, 0.0, 200.0, 200.0)


def scene(width: int, height: int, seed: int = 0) -> Image.Image:
    """Soft spots, so that each place looks unlike every other."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def apart(one: Image.Image, other: Image.Image) -> float:
    """The mean difference of two pictures, of 255."""
    return float(np.abs(np.asarray(one, float) - np.asarray(other, float)).mean())


@pytest.mark.parametrize(
    ("place", "wanted"),
    [
        ((300, 100, 340, 120), (240, 30, 400, 190)),  # eight patches
        ((200, 40, 320, 240), (60, 0, 460, 320)),  # twice as wide, but no higher than the frame
        ((0, 0, 20, 20), (0, 0, 160, 160)),
        ((620, 300, 640, 320), (480, 160, 640, 320)),
        ((0, 0, 640, 320), FRAME),
    ],
)
def test_a_close_up_is_a_square_around_the_place(
    place: tuple[float, ...], wanted: tuple[float, ...]
) -> None:
    assert close_up_box(place, FRAME, GRID) == wanted  # type: ignore[arg-type]


def test_a_close_up_stays_where_the_other_image_shows_it_too() -> None:
    place = (20, 20, 60, 60)
    assert close_up_box(place, FRAME, GRID) == (0, 0, 160, 160)
    box = close_up_box(place, FRAME, GRID, (-1, -1))  # there it lies up and to the left
    assert box == (20, 20, 180, 180)
    other = matching_box(box, FRAME, (0, 0, 320, 160), (-1, -1), GRID)
    assert other == (0, 0, 80, 80)
    box = close_up_box((580, 260, 620, 300), FRAME, GRID, (1, 1))
    assert box == (460, 140, 620, 300)
    assert matching_box(box, FRAME, FRAME, (1, 1), GRID) == (480, 160, 640, 320)


def test_a_frame_may_begin_anywhere() -> None:
    frame, other = (100.0, 50.0, 420.0, 210.0), (-10.0, 0.0, 310.0, 160.0)
    box = close_up_box((200, 100, 210, 110), frame, GRID)
    assert box[2] - box[0] == LEAST_PATCHES * 10
    assert matching_box(box, frame, other, (0, 2), GRID) == pytest.approx(
        (box[0] - 110 + 20, box[1] - 50, box[2] - 110 + 20, box[3] - 50)
    )


def test_pictures_are_no_larger_than_they_need_to_be() -> None:
    assert picture_size((0, 0, 160, 80), 512) == (160, 80)
    assert picture_size((0, 0, 1600, 800), 512) == (512, 256)
    assert picture_size((0, 0, 4000, 1), 512) == (512, 1)
    assert whole_pixels((0.4, 1.6, 10.5, 12.4)) == (0, 2, 10, 12)
    assert whole_pixels((3.1, 3.1, 3.2, 3.2)) == (3, 3, 4, 4)


def test_a_reduced_picture_is_cut_at_the_same_place() -> None:
    whole = scene(400, 200)
    sheet = Sheet(whole, (400, 200), (0, 0, 400, 200))
    small = Sheet(whole.resize((200, 100)), (400, 200), (0, 0, 400, 200))
    first = np.asarray(sheet.cut((100, 50, 180, 90), (40, 20)), int)
    second = np.asarray(small.cut((100, 50, 180, 90), (40, 20)), int)
    assert abs(first - second).mean() < 6
    assert abs(first - np.asarray(small.cut((0, 0, 80, 40), (40, 20)), int)).mean() > 25


@pytest.mark.parametrize("shift", [(0, 0), (3, -5), (-8, 8), (12, 12)])
@pytest.mark.parametrize("bright", [1.0, 0.6])
def test_the_shift_between_two_pictures(shift: tuple[int, int], bright: float) -> None:
    whole = scene(200, 160)
    here = whole.crop((50, 40, 130, 120))
    left, top = 50 - 12 - shift[0], 40 - 12 - shift[1]
    there = whole.crop((left, top, left + 104, top + 104)).point(lambda value: bright * value + 20)
    assert shift_between(here, there, (0, 0, 0, 0)) == shift


def test_the_unusual_place_does_not_move_the_match() -> None:
    whole = Image.blend(scene(200, 160), Image.new("RGB", (200, 160), "gray"), 0.8)
    here, there = whole.crop((50, 40, 130, 120)), whole.crop((38, 28, 142, 132))
    flawed = here.copy()
    flawed.paste((255, 255, 255), (30, 30, 70, 70))
    lure = there.copy()
    lure.paste((255, 255, 255), (30 + 12 + 9, 30 + 12, 70 + 12 + 9, 70 + 12))
    assert max(map(abs, shift_between(flawed, lure, (30, 30, 70, 70)))) <= 2
    assert shift_between(flawed, lure, (0, 0, 0, 0))[0] > 6
    # A place that fills the picture is all there is to compare.
    assert shift_between(here, there, (0, 0, 80, 80)) == (0, 0)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (40, 40)])
def test_a_plain_surface_is_not_moved(size: tuple[int, int]) -> None:
    here = Image.new("L", size, 90)
    there = Image.new("RGB", (size[0] + 8, size[1] + 6), (90, 90, 90))
    assert shift_between(here, there, (0, 0, 1, 1)) == (0, 0)
    noisy = np.random.default_rng(0).normal(90, 0.4, (46, 48)).round().astype(np.uint8)
    assert shift_between(Image.new("L", (40, 40), 90), Image.fromarray(noisy), (0,) * 4) == (0, 0)


def test_large_pictures_are_aligned_on_small_ones() -> None:
    whole = scene(900, 900)
    here, there = whole.crop((100, 100, 700, 700)), whole.crop((40, 60, 760, 740))
    across, down = shift_between(here, there, (0, 0, 0, 0))
    assert abs(across) <= 4
    assert abs(down) <= 4
    there = whole.crop((40 - 30, 60 + 20, 760 - 30, 740 + 20))
    across, down = shift_between(here, there, (0, 0, 0, 0))
    assert abs(across - 30) <= 4
    assert abs(down + 20) <= 4


def test_the_matching_picture_is_aligned() -> None:
    """What lies a few pixels beside the matching box is shown in its place."""
    whole = scene(640, 320)
    moved = Image.new("RGB", whole.size)
    moved.paste(whole, (7, -4))
    sheet = Sheet(moved, moved.size, FRAME)
    box = (240, 80, 400, 240)
    here = whole.crop(box)
    there = matching_picture(here, box, (300, 140, 320, 160), sheet, box, GRID)
    assert there.size == here.size
    assert apart(here, there) < 3
    assert apart(here, moved.crop(box)) > 20
    # A shift of more than a patch is no matter of alignment.
    moved.paste(whole, (45, 0))
    there = matching_picture(here, box, (300, 140, 320, 160), sheet, box, GRID)
    assert apart(here, there) > 20

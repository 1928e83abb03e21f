"""benchmarks/foreground.py: where the part is, and the patches beside it."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from flawsort.core.records import Bags, ImageSet


@pytest.fixture(scope="module")
def script(quality: ModuleType) -> ModuleType:
    return importlib.import_module("foreground")


def picture(part: tuple[int, int, int, int]) -> Image.Image:
    """A blue part with a hole in the colour of the background, on grey."""
    left, top, right, bottom = part
    values = np.full((256, 256, 3), 120, np.uint8)
    values[top:bottom, left:right] = (20, 30, 200)
    middle = ((top + bottom) // 2, (left + right) // 2)
    values[middle[0] - 5 : middle[0] + 5, middle[1] - 5 : middle[1] + 5] = 120
    return Image.fromarray(values)


def test_the_part_is_what_is_not_joined_to_the_border(script: ModuleType) -> None:
    found = script.plain_part(picture((60, 80, 200, 180)))
    assert found[130, 130]  # the hole, which is not joined to the border
    assert found[81:179, 61:199].all()
    assert not found[:78].any()
    assert not found[:, :58].any()
    noise = np.random.default_rng(0).integers(0, 255, (256, 256, 3)).astype(np.uint8)
    assert script.plain_part(Image.fromarray(noise)) is None
    assert script.plain_part(Image.new("RGB", (64, 64), "grey")) is None


def test_a_set_has_parts_if_nearly_all_images_have(script: ModuleType, tmp_path: Path) -> None:
    for row in range(10):
        shown = picture((60, 80, 200, 180)) if row else Image.effect_noise((256, 256), 90)
        shown.save(tmp_path / f"{row}.png")
    paths = tuple(tmp_path / f"{row}.png" for row in range(10))
    found = script.parts_of(ImageSet(tuple(map(str, range(10))), paths, tuple("0123456789")))
    assert found[0].all()  # nothing but part
    assert not found[1].all()
    more = ImageSet(("a", "b"), paths[:2], ("a", "b"))
    assert script.parts_of(more) is None


def test_patches_beside_the_part_do_not_count(script: ModuleType) -> None:
    part = np.zeros((1, 256, 256), bool)
    part[:, 96:160, 96:160] = True  # patches 3 and 4 of eight, down and across
    near = script.on_grid(part, (8, 8)).reshape(8, 8)
    assert near[3:5, 3:5].all()
    assert near[2, 3]  # beside one that shows the part
    assert not near[1].any()
    assert not near[:, 6].any()
    values = np.random.default_rng(0).standard_normal((1, 64, 3))
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    patches = values.astype(np.float16)
    alone = script.part_alone(Bags(patches, (8, 8)), part)
    counted = near.ravel()
    np.testing.assert_array_equal(alone.valid[0], counted)
    np.testing.assert_array_equal(alone.patches[0, counted], patches[0, counted])
    assert (alone.patches[0, ~counted] == patches[0, counted.argmax()]).all()


def bags_with_a_part(*, rows: slice, columns: slice, count: int = 12) -> Bags:
    """A view of 8 x 8 patches that tells nothing, and one of 4 x 4: the part along one direction,
    with noise; and a direction with more variance that is no part: every other column."""
    rng = np.random.default_rng(0)
    first, last = (0.05 * rng.standard_normal((count, side, side, 6)) for side in (8, 4))
    part = np.zeros((8, 8), bool)
    part[rows, columns] = True
    last[..., 0] = 1
    last[:, :, ::2, 1] += 1.0
    last[:, part[::2, ::2], 2] += 0.9
    views = []
    for values, side in ((first, 8), (last, 4)):
        values /= np.linalg.norm(values, axis=3, keepdims=True)
        patches = values.reshape(count, side * side, 6).astype(np.float16)
        views.append(Bags(patches, (side, side)))
    return replace(views[0], beside=(views[1],))


MIDDLE = slice(2, 6)


@pytest.fixture
def features(script: ModuleType) -> ModuleType:
    return importlib.import_module("foreground_features")


def test_features_show_the_part_of_a_plain_set(features: ModuleType) -> None:
    found = features.foreground_of(bags_with_a_part(rows=MIDDLE, columns=MIDDLE))
    assert found.number == 2  # the first tells columns apart
    assert found.border == 1
    assert found.is_plain
    assert not replace(found, border=0.7).is_plain
    assert not replace(found, apart=0.7).is_plain  # hardly more than noise has
    assert found.place[3:5, 3:5].all()
    assert not found.place[[0, -1]].any()
    assert not found.place[:, [0, -1]].any()


def test_the_part_is_where_the_image_or_the_normals_show_it(features: ModuleType) -> None:
    found = features.foreground_of(bags_with_a_part(rows=MIDDLE, columns=MIDDLE))
    moved = bags_with_a_part(rows=slice(4, 8), columns=slice(4, 8), count=2)
    own, place, both = (found.parts(moved, way) for way in ("own", "place", "both"))
    assert own[:, 6, 6].all()
    assert not own[:, 2:4, 2:4].any()
    np.testing.assert_array_equal(place, np.stack([found.place] * 2))
    np.testing.assert_array_equal(both, own | place)
    assert not both[:, :, 0].any()
    grown = found.parts(moved, "place", margin=1)
    np.testing.assert_array_equal(grown[:, 1:, :], grown[:, 1:, :] | place[:, :-1, :])
    np.testing.assert_array_equal(found.parts(moved, "place", margin=0), place)
    assert not grown[:, 0, 0].any()


def test_an_image_without_a_part_counts_as_nothing_but_part(features: ModuleType) -> None:
    found = features.foreground_of(bags_with_a_part(rows=MIDDLE, columns=MIDDLE))
    nothing = bags_with_a_part(rows=slice(0), columns=slice(0), count=2)
    assert found.parts(nothing, "own").all()
    np.testing.assert_array_equal(found.parts(nothing)[0], found.place)


def test_a_lower_level_takes_more_as_part(features: ModuleType) -> None:
    normals = bags_with_a_part(rows=MIDDLE, columns=MIDDLE)
    usual, low = features.foreground_of(normals), features.foreground_of(normals, at=0.5)
    assert low.level < usual.level
    assert (low.place | usual.place == low.place).all()
    assert low.border == usual.border  # the background is no less plain


def test_a_texture_has_no_plain_background(features: ModuleType) -> None:
    values = np.random.default_rng(0).standard_normal((12, 64, 6))
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    assert features.foreground_of(Bags(values.astype(np.float16), (8, 8))) is None
    half = bags_with_a_part(rows=slice(0, 4), columns=slice(0, 8))  # joined to half of the border
    assert features.foreground_of(half) is None


def test_otsu_lies_between_two_modes(features: ModuleType) -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0, 0.1, 300), rng.normal(2, 0.1, 100)])
    threshold, apart = features.otsu(values)
    assert 0.3 < threshold < 1.7
    assert apart > 0.95
    assert features.otsu(rng.standard_normal(10_000))[1] == pytest.approx(2 / np.pi, abs=0.02)


def test_marks_beside_the_part_are_counted(script: ModuleType) -> None:
    marked = np.array([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 0]])
    on_part = np.array([[True, True, True, True], [False, True, True, True], [False] * 4])
    lost, hurt = script.cuts(marked, on_part)
    assert lost == pytest.approx(0.25)
    assert hurt == pytest.approx(0.5)
    assert np.isnan(script.cuts(None, on_part)).all()


def test_parts_by_features_are_sized_as_pictures(script: ModuleType) -> None:
    part = np.zeros((1, 8, 8), bool)
    part[0, 3, 5] = True
    sized = script.pictures_of(part)
    assert sized.shape == (1, script.SIDE, script.SIDE)
    assert sized[0, 96:128, 160:192].all()
    assert sized.sum() == 32 * 32


def test_a_draw_takes_what_belongs_together(script: ModuleType) -> None:
    health_faults = importlib.import_module("health_faults")
    bags = bags_with_a_part(rows=MIDDLE, columns=MIDDLE, count=4)
    names = tuple("abcd")
    images = ImageSet(names, tuple(map(Path, names)), names)
    case = health_faults.Case(images, images, names, tuple(map(Path, names)))
    parts = np.arange(4)[:, None, None] == np.zeros((4, 8, 8))
    taken = script.Seen(case, bags, bags, parts, parts).take(np.array([2, 3]), np.array([0]))
    assert taken.case.images.names == taken.case.truth == ("c", "d")
    assert taken.case.masks == (Path("c"), Path("d"))
    np.testing.assert_array_equal(taken.images.patches, bags.patches[2:])
    np.testing.assert_array_equal(taken.normals.views[1].patches, bags.views[1].patches[:1])
    assert not taken.parts.any()
    assert taken.normal_parts.all()


def test_the_middle_is_a_square(script: ModuleType) -> None:
    found = script.middle_of(2, 128)
    assert found.sum() == 2 * 128 * 128
    assert found[:, 64:192, 64:192].all()

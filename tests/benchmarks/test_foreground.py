"""benchmarks/foreground.py: where the part is, and the patches beside it."""

from __future__ import annotations

import importlib
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

"""What is measured on pictures: light, colour, background, place and direction."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from flawsort.health.pictures import SIDE, Pictured, cold_squares, measured

GRID = (8, 8)


def jpeg(pixels: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(content, "JPEG", quality=95)
    return content.getvalue()


def look(*pictures: np.ndarray | None, heat: np.ndarray | None = None) -> Pictured:
    content = [b"" if one is None else jpeg(one) for one in pictures]
    heat = np.zeros((len(content), 64)) if heat is None else heat
    return measured(content, cold_squares(heat, GRID))


def flat(*colour: int) -> np.ndarray:
    return np.full((128, 128, 3), colour)


def test_light_and_colour_without_the_flaw() -> None:
    found = look(flat(60, 60, 60), flat(200, 120, 40), None)
    np.testing.assert_allclose(found.brightness, [60, 120, np.nan], atol=2)
    np.testing.assert_allclose(found.red, [0, 80, np.nan], atol=4)
    np.testing.assert_allclose(found.blue, [0, -120, np.nan], atol=4)
    flawed, heat = flat(60, 60, 60), np.zeros((1, 64))
    flawed[:64], heat[:, :40] = 255, 1.0
    assert look(flawed, heat=heat).brightness[0] == pytest.approx(60, abs=3)
    assert look(flawed).brightness[0] == pytest.approx(157, abs=3)


def test_a_part_on_a_plain_background() -> None:
    part = flat(30, 30, 90)
    part[16:48, 64:112] = (200, 190, 60)
    found = look(part, flat(30, 30, 90))
    np.testing.assert_allclose(found.across, [88 / 128, np.nan], atol=0.02)
    np.testing.assert_allclose(found.down, [32 / 128, np.nan], atol=0.02)
    assert found.background[0, 0, 0]
    assert not found.background[0, 4:12, 16:28].any()
    assert not found.background[0, 3, 16:28].any()  # beside the part
    assert not found.background[1].any()
    noise = np.random.default_rng(0).integers(0, 255, (32, 32, 1)).repeat(3, axis=2)
    assert not look(np.kron(noise, np.ones((4, 4, 1)))).background.any()


def test_the_direction_of_edges() -> None:
    stripes = flat(80, 80, 80)
    stripes[:, ::8] = stripes[:, 1::8] = stripes[:, 2::8] = stripes[:, 3::8] = 160
    found = look(stripes, stripes.transpose(1, 0, 2), flat(9, 9, 9))
    np.testing.assert_allclose(found.turned, [[1, 0], [-1, 0], [0, 0]], atol=0.05)
    assert found.background.shape == (3, SIDE, SIDE)

"""Random changes of photos against plain loops, NumPy and Pillow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from helpers.bags import Array

torch: Any = pytest.importorskip("torch")
pytest.importorskip("timm")

from flawsort.research.deep import augment  # noqa: E402
from flawsort.research.deep.augment import (  # noqa: E402
    as_floats,
    cut_out,
    grey,
    jitter,
    move,
    normalise,
    random_affine,
    random_crop,
    random_flip,
    random_grey,
    random_resized_crop,
    sobel,
    still,
    strong,
    turned,
    whole,
)

# Places are computed in single precision, and so is the mixture of the pixels around them.
MOVED = {"rtol": 0, "atol": 1e-5}
LUMA = (0.299, 0.587, 0.114)
NO_CHANGE = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}
ALL_CHANGES = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.125}


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def random_bytes(n: int, height: int = 8, width: int = 8, *, seed: int = 0) -> Array:
    values = np.random.default_rng(seed).integers(0, 256, (n, 3, height, width))
    return values.astype(np.uint8)


def photos_of(n: int, height: int = 8, width: int = 8, *, seed: int = 0) -> torch.Tensor:
    return as_floats(torch.tensor(random_bytes(n, height, width, seed=seed)))


def muted(n: int, side: int = 8) -> torch.Tensor:
    """Photos that stay within 0..1 whatever is done to their colours."""
    return 0.4 + 0.1 * photos_of(n, side, side)


def rng_of(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def within_one(photos: torch.Tensor) -> bool:
    return bool((photos >= 0).all() and (photos <= 1).all())


# ---- what networks see ----


def test_bytes_become_shares() -> None:
    values = random_bytes(2)
    floats = as_floats(torch.tensor(values))
    assert floats.dtype == torch.float32
    np.testing.assert_allclose(floats, values / 255, rtol=1e-6)
    assert as_floats(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0, 1]


def test_colours_are_normalised_as_for_imagenet() -> None:
    photos = photos_of(3, 5, 7)
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = (photos.numpy().transpose(0, 2, 3, 1) - mean) / deviation
    np.testing.assert_allclose(normalise(photos), expected.transpose(0, 3, 1, 2), atol=1e-5)


def test_a_photo_of_that_size_is_left_alone() -> None:
    photos = photos_of(2)
    assert whole(photos, 8) is photos


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 8), (30, 50, 16), (8, 8, 20)])
def test_all_of_a_photo_at_another_size(height: int, width: int, size: int) -> None:
    photos = photos_of(2, height, width)
    sized = whole(photos, size)
    assert sized.shape == (2, 3, size, size)
    assert within_one(sized)
    np.testing.assert_allclose(sized.mean((2, 3)), photos.mean((2, 3)), atol=0.03)


def test_shrinking_looks_at_every_pixel() -> None:
    stripes = torch.zeros(1, 3, 32, 32)
    stripes[..., ::4] = 1  # which reading two pixels of four would miss
    np.testing.assert_allclose(whole(stripes, 8)[..., 1:-1], 0.25, atol=0.1)


def test_grey_is_the_brightness() -> None:
    photos = photos_of(2, 3, 5)
    expected = sum(share * photos[:, [c]].double() for c, share in enumerate(LUMA))
    np.testing.assert_allclose(grey(photos), expected, atol=1e-6)
    image = Image.fromarray(random_bytes(1)[0].transpose(1, 2, 0))
    np.testing.assert_allclose(
        grey(photos_of(1))[0, 0] * 255, np.asarray(image.convert("L")), atol=0.6
    )


def test_sobel() -> None:
    photos = photos_of(2, 4, 6)
    around = np.pad(grey(photos)[:, 0].double().numpy(), ((0, 0), (1, 1), (1, 1)))
    edges = sobel(photos)
    assert edges.shape == (2, 2, 4, 6)
    for image in range(2):
        for y in range(1, 5):
            for x in range(1, 7):
                across = down = 0.0
                for step, weight in ((-1, 1), (0, 2), (1, 1)):
                    across += weight * around[image, y + step, x - 1]
                    across -= weight * around[image, y + step, x + 1]
                    down += weight * around[image, y - 1, x + step]
                    down -= weight * around[image, y + 1, x + step]
                found = edges[image, :, y - 1, x - 1]
                np.testing.assert_allclose(found, [across, down], atol=1e-5)


def test_a_plain_photo_has_no_edges_but_its_border() -> None:
    edges = sobel(torch.full((1, 3, 6, 6), 0.7))
    np.testing.assert_allclose(edges[..., 1:-1, 1:-1], 0, atol=1e-6)
    assert edges[..., 0, :].abs().max() > 1


# ---- what moves ----


def test_still_photos() -> None:
    photos = photos_of(3, 7, 7)
    np.testing.assert_array_equal(still(3), [np.eye(3)] * 3)
    np.testing.assert_allclose(move(photos, still(3), 7), photos, **MOVED)


def test_flips() -> None:
    moved = random_flip(200, rng_of())
    assert 60 < (moved[:, 0, 0] == -1).sum() < 140
    photos = photos_of(20, 6, 6)
    flipped = move(photos, moved[:20], 6)
    for photo, result, matrix in zip(photos, flipped, moved, strict=False):
        np.testing.assert_array_equal(np.abs(matrix), np.eye(3))
        expected = photo.numpy()[..., ::-1] if matrix[0, 0] == -1 else photo
        np.testing.assert_allclose(result, expected, **MOVED)


def test_crops_on_whole_pixels_are_slices() -> None:
    photos = photos_of(25)
    moved = random_crop(25, 0.5, rng_of())
    corners = [(top, left) for top in range(5) for left in range(5)]
    for matrix, (top, left) in zip(moved, corners, strict=True):
        matrix[:2, 2] = (left + 2) / 4 - 1, (top + 2) / 4 - 1  # the middle of the crop
    cropped = move(photos, moved, 4)
    for photo, result, (top, left) in zip(photos, cropped, corners, strict=True):
        np.testing.assert_allclose(result, photo[:, top : top + 4, left : left + 4], **MOVED)


def corners_of(moved: Array) -> Array:
    """(n, 4, 2): where the corners of the result lie in the photo, across and down."""
    corners = np.array([(x, y, 1) for x in (-1, 1) for y in (-1, 1)])
    return (moved @ corners.T).transpose(0, 2, 1)[..., :2]


@pytest.mark.parametrize("share", [0.25, 2 / 3, 1.0])
def test_crops_are_anywhere_within_the_photo(share: float) -> None:
    moved = random_crop(400, share, rng_of())
    corners = corners_of(moved)
    assert np.abs(corners).max() <= 1 + 1e-12
    np.testing.assert_allclose(corners.max(1) - corners.min(1), 2 * share)
    np.testing.assert_allclose(corners.min((0, 1)), -1, atol=0.02)  # up to every border
    np.testing.assert_allclose(corners.max((0, 1)), 1, atol=0.02)
    if share < 1:
        assert abs(np.corrcoef(moved[:, 0, 2], moved[:, 1, 2])[0, 1]) < 0.2


def test_resized_crops_have_the_area_and_the_ratio() -> None:
    moved = random_resized_crop(400, (0.2, 0.5), rng_of())
    corners = corners_of(moved)
    assert np.abs(corners).max() <= 1 + 1e-12
    wide, high = ((corners.max(1) - corners.min(1)) / 2).T
    assert ((wide * high >= 0.2) & (wide * high <= 0.5)).all()
    assert np.ptp(wide * high) > 0.28
    assert (np.abs(np.log(wide / high)) <= np.log(4 / 3) + 1e-12).all()
    assert np.abs(np.log(wide / high)).max() > 0.27
    assert 150 < (wide > high).sum() < 250


def test_resized_crops_of_nearly_all_stay_within_the_photo() -> None:
    moved = random_resized_crop(400, (0.2, 1.0), rng_of())
    assert np.abs(corners_of(moved)).max() <= 1 + 1e-12
    assert moved[:, 0, 0].max() == moved[:, 1, 1].max() == 1  # the longer side of some


def test_a_quarter_of_a_turn() -> None:
    photos = photos_of(2, 6, 6)
    one_way, back = (move(photos, turned(np.full(2, degrees)), 6) for degrees in (90.0, -90.0))
    left, right = (torch.rot90(photos, times, (2, 3)) for times in (1, -1))
    if (one_way - left).abs().max() > 0.1:  # either way will do, but the other is back
        left, right = right, left
    np.testing.assert_allclose(one_way, left, **MOVED)
    np.testing.assert_allclose(back, right, **MOVED)


def test_turns_add_up() -> None:
    angles = np.array([0.0, 10.0, -35.0, 180.0])
    quarters = turned(angles) @ turned(90 - angles)
    np.testing.assert_allclose(quarters, turned(np.full(4, 90.0)), atol=1e-12)
    np.testing.assert_array_equal(turned(np.zeros(2)), still(2))


def affine(n: int = 500, **given: Any) -> Array:
    options = {"degrees": 0.0, "shift": 0.0, "scale": (1.0, 1.0), "shear": 0.0}
    return random_affine(n, rng_of(), **(options | given))


def parts_of(moved: Array) -> tuple[Array, Array, Array, Array]:
    """Scale, shear and turn, in degrees, and shift of each affine map."""
    lower = moved[:, 1, :2]
    scale = 1 / np.linalg.norm(lower, axis=1)
    sine, cosine = -lower[:, 0] * scale, lower[:, 1] * scale
    slope = scale * (moved[:, :1, :2] @ (lower * scale[:, None])[:, :, None]).ravel()
    shear, turn = np.rad2deg(np.arctan(slope)), np.rad2deg(np.arctan2(sine, cosine))
    return scale, shear, turn, moved[:, :2, 2] / 2


def test_affine_maps_reach_as_far_as_they_may() -> None:
    moved = affine(degrees=10.0, shift=0.1, scale=(0.8, 1.2), shear=20.0)
    np.testing.assert_array_equal(moved[:, 2], [[0, 0, 1]] * 500)
    scale, shear, turn, shift = parts_of(moved)
    for values, low, high in (
        (scale, 0.8, 1.2),
        (shear, -20, 20),
        (turn, -10, 10),
        (shift[:, 0], -0.1, 0.1),
        (shift[:, 1], -0.1, 0.1),
    ):
        assert values.min() >= low - 1e-9
        assert values.max() <= high + 1e-9
        assert np.ptp(values) > 0.95 * (high - low)
    # What an affine map does beside being a scaled rotation is its shear.
    area = np.linalg.det(moved[:, :2, :2])
    np.testing.assert_allclose(area, 1 / scale**2)


def test_affine_maps_that_may_not_move() -> None:
    np.testing.assert_array_equal(affine(), still(500))
    np.testing.assert_allclose(affine(degrees=30.0), turned(parts_of(affine(degrees=30.0))[2]))


def test_larger_is_larger() -> None:
    dot = torch.zeros(1, 3, 16, 16)
    dot[..., 6:10, 6:10] = 1
    twice = move(dot, affine(1, scale=(2.0, 2.0)), 16)
    assert twice.sum() / dot.sum() == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize("axis", [0, 1])
def test_beyond_the_border_photos_are_mirrored(axis: int) -> None:
    photos, moved = photos_of(2), still(2)
    moved[:, axis, 2] = 2 * 3 / 8  # by three of eight pixels
    width = [(0, 0), (0, 0), (0, 0), (0, 0)]
    width[3 - axis] = (0, 3)
    padded = np.pad(photos, width, mode="symmetric")
    np.testing.assert_allclose(move(photos, moved, 8), padded[..., -8:, -8:], **MOVED)


# ---- what changes colours ----


@pytest.mark.parametrize("changes", [NO_CHANGE, ALL_CHANGES], ids=["by nothing", "in no image"])
def test_colours_that_are_not_changed(changes: dict[str, float]) -> None:
    photos = photos_of(6)
    before = photos.clone()
    share = 0.0 if changes is ALL_CHANGES else 1.0
    np.testing.assert_allclose(jitter(photos, rng_of(), **changes, share=share), photos, atol=1e-5)
    assert torch.equal(photos, before)


def test_changed_colours_are_colours() -> None:
    photos = photos_of(40)
    before = photos.clone()
    changed = jitter(photos, rng_of(), **ALL_CHANGES)
    assert within_one(changed)
    assert ((changed - photos).abs().amax((1, 2, 3)) > 0.01).all()
    assert torch.equal(photos, before)


def test_a_share_of_the_images_is_changed() -> None:
    photos = muted(200)
    changed = jitter(photos, rng_of(), **ALL_CHANGES, share=0.8)
    different = (changed - photos).abs().amax((1, 2, 3)) > 1e-4
    assert 140 <= different.sum() <= 180


def factors_of(changed: Array, photos: Array, base: Array) -> Array:
    """By how much the difference to the base was multiplied: one factor an image."""
    factors = []
    bases = np.broadcast_to(base, photos.shape)
    for after, before, middle in zip(changed, photos, bases, strict=True):
        factor = np.sum((after - middle) * (before - middle)) / np.sum((before - middle) ** 2)
        np.testing.assert_allclose(after, middle + factor * (before - middle), atol=1e-5)
        factors.append(factor)
    return np.array(factors)


@pytest.mark.parametrize("kind", ["brightness", "contrast", "saturation"])
def test_factors_of_colours(kind: str) -> None:
    photos = muted(200)
    changed = jitter(photos, rng_of(), **(NO_CHANGE | {kind: 0.4})).double().numpy()
    before = photos.double().numpy()
    light = np.tensordot(before, LUMA, (1, 0))[:, None]
    base = {
        "brightness": np.zeros(1),
        "contrast": light.mean((2, 3), keepdims=True),
        "saturation": light,
    }[kind]
    factors = factors_of(changed, before, base)
    assert 0.6 - 1e-4 <= factors.min() < 0.62
    assert 1.38 < factors.max() <= 1.4 + 1e-4


def test_brightness_comes_first_and_is_cut_off() -> None:
    white = torch.ones(20, 3, 4, 4)
    changed = jitter(white, rng_of(), **(NO_CHANGE | {"brightness": 0.5}))
    assert changed.max() == 1
    assert changed.amax((1, 2, 3)).min() < 0.6


def chroma(photos: torch.Tensor) -> Array:
    """(n, height, width): the colours beside brightness as complex numbers, in YIQ."""
    red, green, blue = photos.double().numpy().transpose(1, 0, 2, 3)
    across = 0.596 * red - 0.274 * green - 0.322 * blue
    return across + 1j * (0.211 * red - 0.523 * green + 0.312 * blue)


def test_hues_are_turned() -> None:
    photos = muted(200)
    changed = jitter(photos, rng_of(), **(NO_CHANGE | {"hue": 0.1}))
    np.testing.assert_allclose(grey(changed), grey(photos), atol=1e-5)
    np.testing.assert_allclose(abs(chroma(changed)), abs(chroma(photos)), atol=1e-5)
    turns = np.angle((chroma(changed) * chroma(photos).conj()).sum((1, 2))) / (2 * np.pi)
    expected = chroma(photos) * np.exp(2j * np.pi * turns)[:, None, None]
    np.testing.assert_allclose(chroma(changed), expected, atol=1e-5)
    assert -0.1 - 1e-4 <= turns.min() < -0.09
    assert 0.09 < turns.max() <= 0.1 + 1e-4


def test_grey_photos_stay_grey() -> None:
    photos = photos_of(20)[:, :1].expand(-1, 3, -1, -1)
    np.testing.assert_allclose(
        jitter(photos, rng_of(), **(NO_CHANGE | {"hue": 0.5})), photos, atol=1e-5
    )
    changed = jitter(photos, rng_of(), **ALL_CHANGES)
    np.testing.assert_allclose(changed, changed[:, :1].expand_as(changed), atol=1e-5)


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.2, 20, 60), (1.0, 200, 200)])
def test_a_share_without_colour(share: float, least: int, most: int) -> None:
    photos = photos_of(200)
    changed = random_grey(photos, rng_of(), share)
    light = grey(photos).expand_as(photos)
    are_grey = (changed - light).abs().amax((1, 2, 3)) < 1e-6
    assert least <= are_grey.sum() <= most
    np.testing.assert_allclose(changed[~are_grey], photos[~are_grey], atol=1e-6)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_holes_are_squares(share: float) -> None:
    photos = 0.1 + 0.9 * photos_of(150, 24, 24)
    before = photos.clone()
    cut = cut_out(photos, rng_of(), share)
    assert torch.equal(photos, before)
    sides = []
    for result, photo in zip(cut.numpy(), photos.numpy(), strict=True):
        holes = (result == 0).all(0)
        np.testing.assert_array_equal(result, np.where(holes, 0, photo))
        rows, columns = np.flatnonzero(holes.any(1)), np.flatnonzero(holes.any(0))
        if not len(rows):
            continue
        assert holes[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
        sides += [len(rows), len(columns)]
        if min(*rows, *columns) > 0 and max(*rows, *columns) < 23:
            assert abs(len(rows) - len(columns)) <= 1  # it need not lie on whole pixels
    assert max(sides) == share * 24
    assert min(sides) <= 2


def test_holes_are_everywhere() -> None:
    cut = cut_out(torch.ones(2000, 3, 8, 8), rng_of(), 0.5)
    often = (cut[:, 0] == 0).float().mean(0)
    assert often.min() > 0.02
    np.testing.assert_allclose(often, often.flip(0), atol=0.03)
    np.testing.assert_allclose(often, often.T, atol=0.03)


# ---- the changes of RandAugment ----

AMOUNTS = np.array([0.0, 0.3, 0.55, 0.8, 0.999])


def fading(amount: float) -> float:
    return 0.05 + 0.9 * amount


def light_of(photo: Array) -> Array:
    return np.tensordot(LUMA, photo, 1)


def naive_autocontrast(photo: Array, amount: float) -> Array:
    return np.array([(colour - colour.min()) / (colour.max() - colour.min()) for colour in photo])


def naive_equalise(photo: Array, amount: float) -> Array:
    result = np.empty_like(photo)
    for colour, values in enumerate(photo):
        for place, value in np.ndenumerate(values):
            below = sum(values.ravel() < value - 1e-9)
            rest = sum(values.ravel() < values.max() - 1e-9)  # all that are not the largest
            result[colour][place] = below / rest if rest else value
    return result


def naive_solarise(photo: Array, amount: float) -> Array:
    return np.array([1 - v if v >= amount else v for v in photo.ravel()]).reshape(photo.shape)


def naive_posterise(photo: Array, amount: float) -> Array:
    drop = 8 - int(4 + 4 * amount)
    values = [int(value) >> drop << drop for value in (photo * 255).round().ravel()]
    return np.array(values).reshape(photo.shape) / 255


def naive_sharpness(photo: Array, amount: float) -> Array:
    around = np.pad(photo, ((0, 0), (1, 1), (1, 1)), mode="edge")
    soft = np.empty_like(photo)
    for colour, y, x in np.ndindex(photo.shape):
        near = around[colour, y : y + 3, x : x + 3]
        soft[colour, y, x] = (near.sum() + 4 * near[1, 1]) / 13
    return soft + fading(amount) * (photo - soft)


def naive_contrast(photo: Array, amount: float) -> Array:
    middle = light_of(photo).mean()
    return middle + fading(amount) * (photo - middle)


def naive_colour(photo: Array, amount: float) -> Array:
    return light_of(photo) + fading(amount) * (photo - light_of(photo))


def naive_brightness(photo: Array, amount: float) -> Array:
    return fading(amount) * photo


NAIVE: dict[str, Callable[[Array, float], Array]] = {
    "autocontrast": naive_autocontrast,
    "equalise": naive_equalise,
    "solarise": naive_solarise,
    "posterise": naive_posterise,
    "sharpness": naive_sharpness,
    "contrast": naive_contrast,
    "colour": naive_colour,
    "brightness": naive_brightness,
}


def test_there_are_fourteen_changes() -> None:
    assert NAIVE.keys() == augment._TONES.keys()
    assert set(augment._CHANGES) == {"nothing", *NAIVE, *augment._MOVES}
    assert len(augment._CHANGES) == 14


def faint(seed: int = 0) -> Array:
    """Five photos without the darkest and the brightest values."""
    return 20 + random_bytes(5, 6, 7, seed=seed) // 2


@pytest.mark.parametrize("name", NAIVE)
def test_tones(name: str) -> None:
    photos = as_floats(torch.tensor(faint()))
    before = photos.clone()
    changed = augment._TONES[name](photos, AMOUNTS)
    assert within_one(changed)
    assert torch.equal(photos, before)
    for result, photo, amount in zip(changed, before.double().numpy(), AMOUNTS, strict=True):
        np.testing.assert_allclose(result, NAIVE[name](photo, amount), atol=1e-5)


# Pillow's answers, in bytes. Its softened photo, that sharpness begins with, has no border.
PILLOW: dict[str, Callable[[Any, float], Any]] = {
    "autocontrast": lambda image, amount: ImageOps.autocontrast(image),
    "solarise": lambda image, amount: ImageOps.solarize(image, int(np.ceil(255 * amount))),
    "posterise": lambda image, amount: ImageOps.posterize(image, int(4 + 4 * amount)),
    "sharpness": lambda image, amount: ImageEnhance.Sharpness(image).enhance(fading(amount)),
    "contrast": lambda image, amount: ImageEnhance.Contrast(image).enhance(fading(amount)),
    "colour": lambda image, amount: ImageEnhance.Color(image).enhance(fading(amount)),
    "brightness": lambda image, amount: ImageEnhance.Brightness(image).enhance(fading(amount)),
}


@pytest.mark.parametrize("name", PILLOW)
def test_tones_are_pillows_up_to_rounding(name: str) -> None:
    values = random_bytes(5, 9, 9, seed=4)
    changed = augment._TONES[name](as_floats(torch.tensor(values)), AMOUNTS)
    for result, photo, amount in zip(changed.numpy(), values, AMOUNTS, strict=True):
        image = PILLOW[name](Image.fromarray(photo.transpose(1, 2, 0)), amount)
        expected = np.asarray(image).transpose(2, 0, 1)
        if name == "sharpness":
            result, expected = result[:, 1:-1, 1:-1], expected[:, 1:-1, 1:-1]
        atol = 1e-3 if name in ("solarise", "posterise") else 1.6
        np.testing.assert_allclose(result * 255, expected, atol=atol)


@pytest.mark.parametrize(
    "top",
    [254, 255],
)
def test_equalised_values_are_shares_of_pixels_below(top: int) -> None:
    values = np.minimum(random_bytes(1, 8, 8), top)
    values[:, :, 0] = top
    changed = augment._TONES["equalise"](as_floats(torch.tensor(values)), np.zeros(1))
    np.testing.assert_allclose(changed[0], naive_equalise(values[0] / 255, 0), atol=1e-5)


def test_equalised_as_pillow_does_it() -> None:
    values = (random_bytes(1, 64, 64, seed=3) // 3 + 40).astype(np.uint8)
    values[:, :, :40] = 255  # a bright background
    changed = augment._TONES["equalise"](as_floats(torch.tensor(values)), np.zeros(1))
    image = Image.fromarray(values[0].transpose(1, 2, 0))
    expected = np.asarray(ImageOps.equalize(image)).transpose(2, 0, 1) / 255
    # It counts in whole levels, 255 of them, and here one for each 6 pixels: up to a few off.
    np.testing.assert_allclose(changed[0], expected, atol=0.05)
    assert changed.max() == 1


@pytest.mark.parametrize("level", [0.0, 0.4, 1.0])
def test_a_photo_of_one_tone_has_no_contrast_to_raise(level: float) -> None:
    plain = torch.full((1, 3, 4, 4), level)
    assert torch.equal(augment._TONES["autocontrast"](plain, np.zeros(1)), plain)
    assert torch.equal(augment._TONES["equalise"](plain, np.zeros(1)), plain)


@pytest.mark.parametrize("name", augment._MOVES)
def test_moves(name: str) -> None:
    change = augment._MOVES[name]
    np.testing.assert_allclose(change(np.full(4, 0.5)), still(4), atol=1e-12)
    most, least = change(np.array([1.0, 0.0]))
    expected = {
        "rotate": turned(np.array([30.0]))[0],
        "shear across": [[1, 0.1, 0], [0, 1, 0], [0, 0, 1]],
        "shear down": [[1, 0, 0], [0.1, 1, 0], [0, 0, 1]],
        "shift across": [[1, 0, 0.2], [0, 1, 0], [0, 0, 1]],  # a tenth of -1..1
        "shift down": [[1, 0, 0], [0, 1, 0.2], [0, 0, 1]],
    }[name]
    np.testing.assert_allclose(most, expected, atol=1e-12)
    opposite = 2 * np.eye(3) - most if name != "rotate" else np.linalg.inv(most)
    np.testing.assert_allclose(least, opposite, atol=1e-12)


@pytest.mark.parametrize("n_changes", [0, 1, 4])
def test_strong_changes_image_by_image(n_changes: int) -> None:
    """Tones in their order, and one map of all moves, flip and crop."""
    photos, size = photos_of(60, 16, 16), 14
    before = photos.clone()
    changed = strong(photos, size, rng_of(7), n_changes=n_changes)
    assert changed.shape == (60, 3, size, size)
    assert torch.equal(photos, before)
    rng = rng_of(7)
    maps = random_crop(60, 7 / 8, rng) @ random_flip(60, rng)
    picks = rng.integers(14, size=(n_changes, 60))
    amounts = rng.random((n_changes, 60))
    assert n_changes < 4 or len(np.unique(picks)) == 14
    for i, matrix in enumerate(maps):
        photo = photos[i : i + 1]
        for pick, amount in zip(picks[:, i], amounts[:, i : i + 1], strict=True):
            name = augment._CHANGES[pick]
            if name in augment._TONES:
                photo = augment._TONES[name](photo, amount)
            elif name in augment._MOVES:
                matrix = matrix @ augment._MOVES[name](amount)[0]  # of what was cropped
        expected = move(photo, matrix[None], size).clamp(0, 1)[0]
        # A value at the edge of a level may be rounded to either side of it.
        assert ((changed[i] - expected).abs() < 1e-4).float().mean() > 0.97


def test_strongly_changed_photos_are_photos() -> None:
    photos = photos_of(50, 16, 16)
    changed = strong(photos, 16, rng_of())
    assert changed.dtype == torch.float32
    assert within_one(changed)
    assert (changed.flatten(1).std(1) > 0).float().mean() > 0.9
    assert torch.equal(changed, strong(photos, 16, rng_of(), n_changes=4))


# ---- chance ----

CHANGES: list[Any] = [
    pytest.param(lambda p, rng: move(p, random_flip(len(p), rng), 8), id="flip"),
    pytest.param(lambda p, rng: move(p, random_crop(len(p), 0.6, rng), 8), id="crop"),
    pytest.param(
        lambda p, rng: move(p, random_resized_crop(len(p), (0.2, 1.0), rng), 8), id="resized crop"
    ),
    pytest.param(
        lambda p, rng: move(
            p, random_affine(len(p), rng, degrees=9, shift=0.1, scale=(0.8, 1.2), shear=9), 8
        ),
        id="affine",
    ),
    pytest.param(lambda p, rng: jitter(p, rng, **ALL_CHANGES), id="jitter"),
    pytest.param(lambda p, rng: random_grey(p, rng, 0.5), id="grey"),
    pytest.param(lambda p, rng: cut_out(p, rng, 0.5), id="hole"),
    pytest.param(lambda p, rng: strong(p, 8, rng), id="strong"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_chance_follows_the_seed(change: Callable[[Any, Any], Any]) -> None:
    photos = photos_of(12)
    torch.manual_seed(0)
    first = change(photos, rng_of(5))
    torch.manual_seed(1)  # chance is NumPy's alone
    assert torch.equal(change(photos, rng_of(5)), first)
    assert not torch.equal(change(photos, rng_of(6)), first)

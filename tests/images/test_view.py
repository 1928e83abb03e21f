"""The geometry of views, regions and masks, thumbnails, arrays."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort.core.errors import InputError, OptionError
from flawsort.images import view as images_module
from flawsort.images.view import (
    UnreadableImage,
    View,
    decode,
    parse_roi,
    parse_tiles,
    thumbnail,
)
from helpers.picture_files import FULL, Array, noise, pixels, png16, save

Saved = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Saves what it is given as a file of that name."""
    return lambda content, name="x.png", **options: save(tmp_path / name, content, **options)


# ---- arrays ----


def test_arrays_are_decoded_as_files_are(saved: Saved) -> None:
    rgb = noise(9, 5, 3)
    before = rgb.copy()
    expected = decode(saved(rgb), View(), (4, 4)).frames
    np.testing.assert_array_equal(decode(rgb, View(), (4, 4)).frames, expected)
    np.testing.assert_array_equal(rgb, before)
    floats = decode(rgb / np.float64(255), View(), (4, 4)).frames
    np.testing.assert_allclose(floats, expected, atol=0.006)
    grey = noise(4, 4, dtype="u2")
    np.testing.assert_array_equal(pixels(grey), pixels(grey[..., None]))
    np.testing.assert_array_equal(pixels(grey > 9)[..., 0], grey > 9)


# ---- views ----


def ramp(height: int, width: int) -> Array:
    """Red grows from left to right, green from top to bottom."""
    image = np.zeros((height, width, 3), np.uint8)
    image[..., 0] = np.arange(width)
    image[..., 1] = np.arange(height)[:, None]
    return image


def test_stretch_pad_and_crop() -> None:
    image = ramp(20, 40)
    stretched = decode(image, View(), (20, 20))
    assert stretched.inside is None
    np.testing.assert_allclose(stretched.frames[0, 0, 5] * 255, np.arange(20) * 2 + 0.5, atol=1)
    padded = decode(image, View(fit="pad"), (60, 40))
    assert padded.inside is not None
    np.testing.assert_array_equal(padded.inside[:, 0], np.repeat([False, True, False], 20))
    seen = np.rint(padded.frames[0] * 255)
    np.testing.assert_array_equal(seen[:, 20:40].transpose(1, 2, 0), image)
    np.testing.assert_array_equal(seen[0, :20], np.tile(np.arange(40), (20, 1)))  # edges repeat
    assert set(seen[1, :20].ravel()) == {0}
    assert set(seen[1, 40:].ravel()) == {19}
    cropped = decode(image, View(fit="crop"), (20, 20))
    assert cropped.inside is None
    np.testing.assert_array_equal(cropped.frames[0, 0, 0] * 255, np.arange(10, 30))


@pytest.mark.parametrize("fit", ["stretch", "pad", "crop"])
@pytest.mark.parametrize("shape", [(1, 300), (300, 1), (7, 13), (333, 997)])
def test_any_shape_fits(fit: Any, shape: tuple[int, int]) -> None:
    deep = noise(*shape, dtype="u2")
    for image in (deep, (deep >> 8).astype(np.uint8)):
        result = decode(image, View(fit=fit, tiles=(2, 3), window=(0, 65535)), (11, 17))
        assert result.frames.shape == (6, 3, 11, 17)
        assert result.inside is None or result.inside.shape == (21, 47)
        assert 0 <= result.frames.min() <= result.frames.max() <= 1
        assert thumbnail(image, View(fit=fit, window=(0, 65535)), (11, 17), 40).mode == "RGB"


def test_reduction_averages_and_skips_nothing() -> None:
    image = np.zeros((64, 64), np.uint8)
    image[33, 29] = 255
    deep = image.astype(np.uint16) * 257
    for source in (image, deep):
        assert decode(source, FULL, (8, 8)).frames.max() > 0.005


@pytest.mark.parametrize("turned", [1, 6])
@pytest.mark.parametrize("fit", ["stretch", "pad", "crop"])
def test_a_large_jpeg_is_read_small_and_looks_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fit: Any, turned: int
) -> None:
    smooth = Image.fromarray(noise(12, 9, 3)).resize((900, 1200), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = turned
    smooth.save(tmp_path / "large.jpg", quality=95, exif=exif)
    loaded: list[tuple[int, int]] = []
    framed = images_module._framed

    def watched(raster: Any, *args: Any) -> Any:
        loaded.append(raster.pixels8.size)
        return framed(raster, *args)

    monkeypatch.setattr(images_module, "_framed", watched)
    small = decode(tmp_path / "large.jpg", View(fit=fit), (64, 48))
    whole = decode(tmp_path / "large.jpg", View(fit=fit), (64, 48), reducing_gap=1000.0)
    assert loaded[0] in {(225, 300), (300, 225)}
    assert loaded[1] in {(900, 1200), (1200, 900)}
    assert np.abs(small.frames - whole.frames).mean() < 0.004
    assert np.abs(small.frames - whole.frames).max() < 0.03
    # A region is counted in pixels of the image as it is, which then comes whole.
    decode(tmp_path / "large.jpg", View(roi=(10, 10, 890, 890)), (64, 48))
    assert max(loaded[-1]) == 1200


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_bicubic_is_sharper_and_stays_within_bounds(dtype: str) -> None:
    step = np.zeros((64, 64), dtype)
    step[:, 32:] = np.iinfo(dtype).max
    frames = {
        kind: decode(step, View(resample=kind, window=(0, 65535)), (32, 32)).frames[0, 0, 0]
        for kind in ("bilinear", "bicubic")
    }
    assert all(0 <= frame.min() <= frame.max() <= 1 for frame in frames.values())
    edge = {kind: float(np.diff(frame).max()) for kind, frame in frames.items()}
    assert edge["bicubic"] > edge["bilinear"] + 0.05


def test_tiles_are_cut_row_by_row() -> None:
    image = ramp(20, 30)
    result = decode(image, View(tiles=(2, 3), overlap=False), (10, 10))
    assert result.frames.shape == (6, 3, 10, 10)
    for i, frame in enumerate(result.frames):
        row, column = divmod(i, 3)
        part = image[row * 10 : row * 10 + 10, column * 10 : column * 10 + 10]
        np.testing.assert_array_equal(frame.transpose(1, 2, 0), part / np.float32(255))
    padded = decode(image, View(tiles=(2, 1), fit="pad", overlap=False), (20, 30))
    assert padded.inside is not None
    assert padded.inside.shape == (40, 30)
    np.testing.assert_array_equal(padded.inside[:, 0], np.repeat([False, True, True, False], 10))


@pytest.mark.parametrize("deep", [False, True])
def test_tiles_share_an_eighth_with_their_neighbours(deep: bool) -> None:
    image = ramp(30, 44)
    values = image / np.float32(255)
    view = View(tiles=(2, 3))
    assert (view.steps((16, 16)), view.canvas((16, 16))) == ((14, 14), (30, 44))
    result = decode(values if deep else image, view, (16, 16))
    corners = [(0, 0), (0, 14), (0, 28), (14, 0), (14, 14), (14, 28)]
    for frame, (top, left) in zip(result.frames, corners, strict=True):
        part = values[top : top + 16, left : left + 16]
        np.testing.assert_allclose(frame.transpose(1, 2, 0), part, atol=1e-6)
    np.testing.assert_array_equal(result.some(2, 4), result.frames[2:4])


def test_a_photo_stays_in_bytes_until_a_tile_is_taken() -> None:
    result = decode(ramp(30, 44), View(tiles=(2, 3)), (16, 16))
    assert result.canvas.dtype == np.uint8
    assert result.frames.dtype == np.float32
    assert decode(ramp(30, 44)[..., 0], View(), (16, 16)).canvas.shape == (3, 16, 16)


def test_what_a_view_shows_of_an_image() -> None:
    assert View().shown((40, 30)) == (30, 40)
    assert View(roi=(0.5, 0, 1, 0.5)).shown((40, 30)) == (15, 20)
    with pytest.raises(UnreadableImage, match="lies outside"):
        View(roi=(50, 0, 60, 10)).shown((40, 30))


def test_roi_in_fractions_and_in_pixels() -> None:
    image = ramp(20, 40)
    expected = image[5:15, 10:20] / np.float32(255)
    for roi in ((0.25, 0.25, 0.5, 0.75), (10, 5, 20, 15)):
        frame = decode(image, View(roi=roi), (10, 10)).frames[0]
        np.testing.assert_array_equal(frame.transpose(1, 2, 0), expected)
    for roi in ((30, 10, 400, 400), (0.75, 0.5, 1, 1)):
        corner = decode(image, View(roi=roi), (10, 10)).frames[0]
        np.testing.assert_array_equal(corner.transpose(1, 2, 0), image[10:, 30:] / np.float32(255))
    with pytest.raises(UnreadableImage, match="the roi 50,0,60,9 lies outside its 40 x 20 pixels"):
        decode(image, View(roi=(50, 0, 60, 9)), (10, 10))


def test_mask_crops_to_its_box_and_marks_the_rest(saved: Saved) -> None:
    mask = np.zeros((10, 20), np.uint8)
    mask[2:6, 4:14] = 1
    mask[2, 4] = 0
    image = ramp(20, 40)  # twice as large as the mask
    view = View(mask=saved(mask, "mask.png"))
    result = decode(image, view, (8, 20))
    np.testing.assert_array_equal(
        result.frames[0].transpose(1, 2, 0), image[4:12, 8:28] / np.float32(255)
    )
    expected = np.ones((8, 20), bool)
    expected[:2, :2] = False
    np.testing.assert_array_equal(result.inside, expected)
    padded = decode(image, View(mask=view.mask, fit="pad"), (28, 20)).inside
    assert padded is not None
    np.testing.assert_array_equal(padded, np.pad(expected, ((10, 10), (0, 0))))
    assert thumbnail(image, view, (9, 9), 20).size == (20, 8)


def test_a_mask_may_be_given_as_bytes(saved: Saved) -> None:
    path = saved(np.kron(np.eye(2, dtype=np.uint8), np.ones((4, 4), np.uint8)), "mask.png")
    content = path.read_bytes()
    on_disk, held = View(mask=path), View(mask=content)
    assert held.describe() == on_disk.describe()
    assert held.mask_bytes() == on_disk.mask_bytes() == content
    assert View().mask_bytes() is None
    one, other = (decode(ramp(8, 8), view, (8, 8)) for view in (on_disk, held))
    np.testing.assert_array_equal(one.frames, other.frames)
    np.testing.assert_array_equal(one.inside, other.inside)
    assert View.from_description(on_disk.describe(), content) == replace(held, tiles=(1, 1))
    assert f"mask=<{len(content)} bytes>" in repr(held)
    assert repr(View(fit="pad")).startswith("View(fit='pad', roi=None, mask=None, tiles=None, ")
    with pytest.raises(InputError, match="The mask of the run cannot be used: not an image"):
        View(mask=b"text").describe()


def test_view_is_described_and_rebuilt(saved: Saved, tmp_path: Path) -> None:
    mask = saved(np.ones((4, 4), np.uint8), "mask.png")
    whole = View(tiles=(1, 1))
    assert View().describe() == whole.describe()
    for view in (whole, View(fit="pad", roi=(0, 0, 0.5, 1), tiles=(2, 3), window=(1, 9))):
        described = json.loads(json.dumps(view.describe()))
        assert described == view.describe()
        assert View.from_description(described) == view
    del described["overlap"]  # of an older run
    assert View.from_description(described) == replace(view, overlap=False)
    masked = View(mask=mask, tiles=(1, 1))
    described = masked.describe()
    assert len(described["mask"]) == 64
    assert View.from_description(described, mask) == masked
    with pytest.raises(OptionError, match=r"made with a mask\. Pass the same mask file"):
        View.from_description(described)
    other = saved(np.eye(4, dtype=np.uint8), "other.png")
    with pytest.raises(OptionError, match=r"must be the file that the view was made with.*other"):
        View.from_description(described, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": "zoom"}, r"fit must be one of stretch, pad, crop\. Got 'zoom'"),
        ({"resample": "nearest"}, r"resample must be one of bilinear, bicubic\. Got 'nearest'"),
        ({"roi": (0.5, 0, 0.5, 1)}, r"left < right and top < bottom\. Got 0\.5,0,0\.5,1"),
        ({"roi": (-1, 0, 5, 5)}, r"none negative.*Got -1,0,5,5"),
        ({"roi": (0, 0, float("nan"), 5)}, r"roi must be"),
        ({"roi": (0, 0, 1)}, r"roi must be .*Got 0,0,1\."),
        ({"roi": (0, 0, 1, 1), "mask": Path("m.png")}, r"box or a mask, not both"),
        ({"tiles": (0, 2)}, r"from 1 to 16, or None\. Got \(0, 2\)"),
        ({"tiles": (2, 17)}, r"from 1 to 16"),
        ({"tiles": (1.5, 2)}, r"from 1 to 16"),
        ({"window": (5, 5)}, r"low < high\. Got \(5, 5\)"),
        ({"window": (0, float("inf"))}, r"low < high"),
        ({"max_pixels": 0}, r"max_pixels must be at least 1\. Got 0"),
    ],
)
def test_views_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        View(**options)


def test_parsing(tmp_path: Path) -> None:
    mask = tmp_path / "a,b.png"
    mask.touch()
    assert parse_roi("0, .1,0.5,1") == (0, 0.1, 0.5, 1)
    assert parse_roi(str(mask)) == mask
    assert [parse_tiles(text) for text in ("2x3", "2", "1X16")] == [(2, 3), (2, 2), (1, 16)]
    assert parse_tiles("auto") is None
    for text in ("", "1,2,3", "nowhere.png", "1,2,3,x"):
        with pytest.raises(OptionError, match=rf"roi must be left,top.*Got '{text}'"):
            parse_roi(text)
    with pytest.raises(OptionError, match="left < right"):
        parse_roi("5,0,2,9")
    for text in ("", "x", "2x", "2x3x4", "0x1", "17", "-1", "1.5"):
        with pytest.raises(OptionError, match=rf"tiles must be auto, or like 2x3.*Got '{text}'"):
            parse_tiles(text)


# ---- thumbnails ----


def test_thumbnails_show_what_decode_sees(saved: Saved) -> None:
    image = ramp(20, 40)
    plain = thumbnail(image, View(), (14, 14), 40)
    np.testing.assert_array_equal(np.asarray(plain), image)
    assert thumbnail(image, View(roi=(0, 0, 10, 20)), (14, 14), 64).size == (32, 64)
    for fit in ("pad", "crop"):
        view = View(fit=fit, tiles=(2, 1))
        small = thumbnail(image, view, (32, 40), 60)
        both = decode(image, view, (32, 40)).canvas
        assert small.size == (40, 60)
        np.testing.assert_array_equal(np.asarray(small), both.transpose(1, 2, 0))
    deep = saved(png16(noise(10, 10, 3, dtype="u2")))
    shown = np.asarray(thumbnail(deep, FULL, (8, 8), 10)) / 255
    np.testing.assert_allclose(shown, pixels(deep), atol=0.003)

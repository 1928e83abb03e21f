"""Files at their full depth, upright; reasons for those that cannot be read."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort.core.errors import OptionError
from flawsort.images.view import UnreadableImage, View, decode, thumbnail
from flawsort.images.window import measure_window
from helpers.picture_files import FULL, Array, noise, pixels, png16, save, tiff

Saved = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Saves what it is given as a file of that name."""
    return lambda content, name="x.png", **options: save(tmp_path / name, content, **options)


def test_eight_bit_kinds_come_out_as_they_are(saved: Saved) -> None:
    rgb = noise(5, 7, 3)
    for name in ("x.png", "x.bmp", "x.tif"):
        np.testing.assert_array_equal(pixels(saved(rgb, name)), rgb / np.float32(255))
    grey = noise(5, 7)
    for name in ("g.png", "g.bmp", "g.tif"):
        expected = np.repeat(grey[..., None], 3, 2) / np.float32(255)
        np.testing.assert_array_equal(pixels(saved(grey, name)), expected)
    assert decode(saved(rgb), View(), (5, 7)).inside is None


def test_one_bit_palette_and_one_pixel(saved: Saved) -> None:
    bits = noise(5, 9) > 127
    np.testing.assert_array_equal(pixels(saved(Image.fromarray(bits), "b.png"))[..., 0], bits)
    colours = np.array([[250, 0, 10], [20, 200, 30]], np.uint8)
    rows = (noise(4, 4) > 127).astype(np.uint8)
    image = Image.fromarray(rows)
    image.putpalette(colours.tobytes())
    expected = colours[rows] / np.float32(255)
    np.testing.assert_array_equal(pixels(saved(image, "p.png")), expected)
    for fit in ("stretch", "pad", "crop"):
        dot = decode(saved(np.full((1, 1, 3), 51, np.uint8), "1.png"), View(fit=fit), (8, 4))
        np.testing.assert_allclose(dot.frames, 0.2, atol=1e-6)


def test_transparency_becomes_white(saved: Saved) -> None:
    rgba = np.full((1, 3, 4), (200, 100, 0, 255), np.uint8)
    rgba[0, :, 3] = (255, 0, 102)
    expected = [[200, 100, 0], [255, 255, 255], [233, 193, 153]]
    np.testing.assert_allclose(pixels(saved(rgba))[0] * 255, expected, atol=1)
    np.testing.assert_allclose(pixels(rgba)[0] * 255, expected, atol=1)
    np.testing.assert_allclose(pixels(rgba / np.float32(255))[0] * 255, expected, atol=1)
    grey = saved(np.array([[[40, 255], [40, 0]]], np.uint8), "la.png")
    np.testing.assert_allclose(pixels(grey)[0, :, 0] * 255, [40, 255], atol=1e-3)
    palette = Image.new("P", (2, 1))
    palette.putpalette([9, 8, 7, 1, 2, 3])
    palette.putpixel((1, 0), 1)
    see_through = saved(palette, "p.png", transparency=b"\xff\x00")
    np.testing.assert_allclose(pixels(see_through)[0] * 255, [[9, 8, 7], [255] * 3], atol=1e-3)


def test_cmyk_both_ways_round(saved: Saved) -> None:
    blue = Image.new("CMYK", (8, 8), (255, 255, 0, 0))
    for path in (saved(blue, "c.tif"), saved(blue, "adobe.jpg", quality=95)):
        np.testing.assert_allclose(pixels(path)[4, 4], [0, 0, 1], atol=0.03)


def test_deep_grey_keeps_its_low_byte(saved: Saved) -> None:
    values = noise(5, 7, 1, dtype="u2")
    expected = np.repeat(values, 3, 2) / np.float32(65535)
    files = {"p.png": png16(values)}
    for order in "<>":
        for compression in (1, 5, 8):
            name = f"{ord(order)}-{compression}.tif"
            files[name] = tiff(values, order=order, compression=compression)
    for name, content in files.items():
        np.testing.assert_allclose(pixels(saved(content, name)), expected, atol=1e-7, err_msg=name)
    turned = saved(tiff(65535 - values, photometric=0), "white-is-zero.tif")
    np.testing.assert_allclose(pixels(turned), expected, atol=1e-7)


@pytest.mark.parametrize("channels", [3, 4])
def test_deep_colour_keeps_its_low_byte(saved: Saved, channels: int) -> None:
    values = noise(5, 7, channels, dtype="u2")
    values[..., :3] = 0x1200 | (values[..., :3] & 0xFF)  # the high bytes are all the same
    opacity = values[..., 3:] / np.float32(65535) if channels == 4 else np.float32(1)
    expected = values[..., :3] / np.float32(65535) * opacity + (1 - opacity)
    files = {"p.png": png16(values)}
    for order in "<>":
        for compression in (1, 5, 8):
            for strips in (1, 3):
                name = f"{ord(order)}-{compression}-{strips}.tif"
                files[name] = tiff(values, order=order, compression=compression, strips=strips)
    for name, content in files.items():
        np.testing.assert_allclose(pixels(saved(content, name)), expected, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(pixels(values), expected, atol=1e-6)


def test_deep_grey_with_alpha_and_keys(saved: Saved) -> None:
    values = np.array([[[0x1234, 0xFFFF], [0x1235, 0], [0x1236, 0x8000]]], np.uint16)
    seen = pixels(saved(png16(values)))[0, :, 0] * 65535
    np.testing.assert_allclose(seen, [0x1234, 0xFFFF, 0x1236 / 2 + 0x8000], atol=2)
    grey = saved(png16(values[..., :1], key=struct.pack(">H", 0x1235)), "k.png")
    np.testing.assert_allclose(pixels(grey)[0, :, 0] * 65535, [0x1234, 0xFFFF, 0x1236], atol=0.1)
    colour = np.repeat(values[..., :1], 3, 2)
    keyed = saved(png16(colour, key=struct.pack(">3H", *[0x1235] * 3)), "kc.png")
    np.testing.assert_allclose(pixels(keyed)[0, :, 1] * 65535, [0x1234, 0xFFFF, 0x1236], atol=0.1)


def test_32_bit_numbers(saved: Saved) -> None:
    values = np.array([[[-3.0], [0.25], [0.5], [np.nan], [np.inf]]], np.float32)
    seen = pixels(saved(tiff(values), "f.tif"), View(window=(0, 1)))[0, :, 0]
    np.testing.assert_array_equal(seen, [0, 0.25, 0.5, 0, 1])
    wide = View(window=(3e9, 4e9))
    whole = np.array([[[3_000_000_000], [3_250_000_001], [4_000_000_000]]], np.uint32)
    seen = pixels(saved(tiff(whole), "u.tif"), wide)[0, :, 0]
    np.testing.assert_allclose(seen, [0, 0.25, 1], atol=1e-6)
    signed = np.array([[[-100], [0], [100]]], np.int32)
    seen = pixels(saved(tiff(signed), "i.tif"), View(window=(-100, 100)))[0, :, 0]
    np.testing.assert_allclose(seen, [0, 0.5, 1])


@pytest.mark.parametrize("compression", [1, 8])
@pytest.mark.parametrize("options", [{"planar": 2}, {"extra": 1}, {"photometric": 5}])
def test_what_cannot_be_read_at_full_depth_is_refused(
    saved: Saved, options: dict[str, int], compression: int
) -> None:
    path = saved(tiff(noise(4, 4, 4, dtype="u2"), compression=compression, **options), "x.tif")
    with pytest.raises(UnreadableImage, match=r"16-bit .*cannot be read at full depth; save it as"):
        decode(path, FULL, (4, 4))
    assert measure_window([path]) is None


def test_deep_image_needs_a_window(saved: Saved) -> None:
    path = saved(png16(noise(2, 2, 1, dtype="u2")))
    with pytest.raises(OptionError, match=r"window must be given .*Got None\. A run measures it"):
        decode(path, View(), (2, 2))
    with pytest.raises(OptionError, match="window must be given"):
        thumbnail(path, View(), (2, 2), 8)


@pytest.mark.parametrize("turn", range(1, 9))
def test_exif_rotation_is_applied(saved: Saved, turn: int) -> None:
    upright = noise(4, 6, 3)
    undo: dict[int, Callable[[Array], Array]] = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a),
        7: lambda a: np.rot90(a.swapaxes(0, 1), 2),
        8: lambda a: np.rot90(a, -1),
    }
    stored = np.ascontiguousarray(undo[turn](upright))
    exif = Image.Exif()
    exif[0x0112] = turn
    decoded = decode(saved(stored, "e.png", exif=exif), View(), (4, 6)).frames[0]
    np.testing.assert_array_equal(decoded.transpose(1, 2, 0), upright / np.float32(255))
    deep = upright.astype(np.uint16) << 8 | upright[::-1]
    for compression in (1, 8):
        content = tiff(undo[turn](deep), orientation=turn, compression=compression)
        decoded = decode(saved(content, "e.tif"), FULL, (4, 6)).frames[0]
        np.testing.assert_allclose(decoded.transpose(1, 2, 0), deep / 65535, atol=1e-6)


def test_first_frame_and_damaged_exif(saved: Saved) -> None:
    first, second = (Image.new("RGB", (4, 4), colour) for colour in ("red", "blue"))
    for name in ("a.tif", "a.gif", "a.png", "a.webp"):
        path = saved(first, name, save_all=True, append_images=[second])
        np.testing.assert_allclose(pixels(path)[0, 0], [1, 0, 0], atol=0.02)
    odd = saved(first, "odd.png", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    np.testing.assert_array_equal(pixels(odd)[0, 0], [1, 0, 0])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda good: b"no picture, just text", r"^not an image"),
        (lambda good: good["png"][:-200], r"^truncated: "),
        (lambda good: good["jpg"][: len(good["jpg"]) // 2], r"^truncated: "),
        (lambda good: good["tif"][:500], r"."),
        (lambda good: good["png"][:200] + b"\0" * 200 + good["png"][400:], r"^(damaged|truncated)"),
        (lambda good: good["png"][:20], r"^truncated"),
        (lambda good: good["deep"][:-90], r"^(damaged|truncated)"),
        (lambda good: good["deeptif"][:300] + b"\0" * 99 + good["deeptif"][399:], r"^damaged"),
    ],
)
def test_bad_content_gives_a_reason(
    saved: Saved, make: Callable[[dict[str, bytes]], bytes], reason: str
) -> None:
    rgb, deep = noise(20, 20, 3), noise(20, 20, 3, dtype="u2")
    good = {kind: saved(rgb, f"good.{kind}").read_bytes() for kind in ("png", "jpg", "tif")}
    good |= {"deep": png16(deep), "deeptif": tiff(deep, compression=8)}
    with pytest.raises(UnreadableImage, match=reason) as caught:
        decode(saved(make(good), "bad.png"), FULL, (8, 8))
    assert "\n" not in str(caught.value)


def test_every_cut_of_every_kind_is_readable_or_says_why(saved: Saved) -> None:
    rgb, deep = noise(6, 6, 3), noise(6, 6, 3, dtype="u2")
    kinds = [saved(rgb, f"x.{kind}").read_bytes() for kind in ("jpg", "tif", "bmp", "webp", "gif")]
    for content in [*kinds, png16(deep), tiff(deep), tiff(deep, compression=5)]:
        for end in range(0, len(content), max(1, len(content) // 25)):
            # Any other exception, and any warning, fails the test.
            with contextlib.suppress(UnreadableImage):
                decode(saved(content[:end], "cut"), FULL, (4, 4))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match="cannot be read: No such file"):
        decode(tmp_path / "gone.png", View(), (4, 4))
    with pytest.raises(UnreadableImage, match="cannot be read: "):
        decode(tmp_path, View(), (4, 4))


def test_bombs_are_refused_and_the_limit_is_ours(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = bytearray(png16(noise(1, 1, 1, dtype="u2")))
    bomb[16:24] = struct.pack(">II", 30000, 20000)
    bomb[29:33] = struct.pack(">I", zlib.crc32(bomb[12:29]))
    message = r"^too large: 30000 x 20000 = 600,000,000 pixels, the limit is 200,000,000 \(--max-p"
    with pytest.raises(UnreadableImage, match=message):
        decode(saved(bytes(bomb), "bomb.png"), FULL, (4, 4))
    small = saved(noise(10, 10, 3))
    with pytest.raises(UnreadableImage, match="10 x 10 = 100 pixels, the limit is 99"):
        decode(small, View(max_pixels=99), (4, 4))
    # pillow would warn of more than 20 pixels and refuse more than 40.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    for name in ("x.png", "x.tif", "x.webp", "x.gif"):
        decode(saved(noise(10, 10, 3), name), View(), (4, 4))
    assert Image.MAX_IMAGE_PIXELS == 20


def test_threads_agree(saved: Saved) -> None:
    paths = [saved(tiff(noise(9, 9, 3, dtype="u2"), compression=8), f"{i}.tif") for i in range(20)]
    paths += [saved(noise(30, 20, 3), f"{i}.jpg") for i in range(20)]
    limit = Image.MAX_IMAGE_PIXELS
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda path: decode(path, FULL, (8, 8)).frames, paths))
    for path, frames in zip(paths, together, strict=True):
        np.testing.assert_array_equal(frames, decode(path, FULL, (8, 8)).frames)
    assert limit == Image.MAX_IMAGE_PIXELS

"""Small files that decode to much, large files of nothing, and files of every layout."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Colour types of PNG, by the number of channels.
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
GIGABYTE = 2**30


def make_usual(folder: Path, count: int = 80) -> None:
    """Usual images, among which a run finds groups."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (300, 300, 3)).astype(np.uint8)
        Image.fromarray(noise).save(folder / f"usual-{number:02}.png")


def make_hostile(folder: Path, side: int = 14_100) -> None:
    """A dozen files. side: of the images; 14,100 is just below the limit on pixels."""
    for name, channels, bits in (
        ("grey", 1, 16),
        ("grey-again", 1, 16),
        ("grey-alpha", 2, 16),
        ("colour", 3, 16),
        ("alpha", 4, 8),
    ):
        rows = np.zeros((1, side, channels), np.uint16 if bits == 16 else np.uint8)
        # Their bytes must differ: copies are decoded once.
        rows[0, 0] = len(name)
        write_png(folder / f"{name}.png", [rows] * side)
    flat = Image.new("L", (side, side), 100)
    flat.save(folder / "large.jpg")
    flat.save(folder / "progressive.jpg", progressive=True)
    flat.save(folder / "strip.tif", compression="tiff_lzw", tiffinfo={278: side})
    flat.save(folder / "large.gif")
    flat.resize((side // 2, side // 2)).convert("RGB").save(folder / "large.webp")
    for name, content, size in (
        ("nothing.png", b"", 8 * GIGABYTE),
        ("nothing.webp", b"RIFF\0\0\0\0WEBPVP8 ", 2 * GIGABYTE),
        ("chunk.png", SIGNATURE + struct.pack(">I", GIGABYTE) + b"juNK", 2 * GIGABYTE),
        ("map.bmp", _bitmap(side), 54 + 3 * side * side),
    ):
        with (folder / name).open("wb") as file:
            file.write(content)
            file.truncate(size)


def make_layouts(folder: Path, side: int = 3000) -> None:
    """A file of each layout that is decoded in its own way."""
    small = np.random.default_rng(0).integers(0, 256, (30, 30, 4)).astype(np.uint8)
    block = -(-side // 30)
    four = np.kron(small, np.ones((block, block, 1), np.uint8))[:side, :side]
    deep = four.astype(np.uint16) * 257
    alpha, colour = Image.fromarray(four), Image.fromarray(four[..., :3].copy())
    grey, palette = Image.fromarray(four[..., 0].copy()), colour.quantize(64)
    turned = Image.Exif()
    turned[0x0112] = 6
    for name, image, options in (
        ("grey.png", grey, {}),
        ("colour.png", colour, {}),
        ("alpha.png", alpha, {}),
        ("palette.png", palette, {}),
        ("palette-key.png", palette, {"transparency": 3}),
        ("palette.gif", palette, {}),
        ("colour.jpg", colour, {}),
        ("turned.jpg", colour, {"exif": turned}),
        ("progressive.jpg", colour, {"progressive": True, "subsampling": 0}),
        ("cmyk.jpg", colour.convert("CMYK"), {}),
        ("colour.webp", colour, {}),
        ("lossless.webp", alpha, {"lossless": True, "method": 0}),
        ("colour.bmp", colour, {}),
        ("raw.tif", colour, {}),
        ("strip.tif", colour, {"compression": "tiff_lzw", "tiffinfo": {278: side}}),
        ("fax.tif", grey.convert("1"), {"compression": "group4"}),
        ("deep.png", Image.fromarray(deep[..., 0]), {}),
        ("deep-turned.png", Image.fromarray(deep[..., 0]), {"exif": turned}),
        ("deep.tif", Image.fromarray(deep[..., 0]), {"compression": "tiff_adobe_deflate"}),
        ("float.tif", Image.fromarray(deep[..., 0].astype(np.float32)), {}),
    ):
        image.save(folder / name, **options)
    for channels in (2, 3, 4):
        write_png(folder / f"deep-{channels}.png", [deep[:, :, :channels]])


def write_png(path: Path, parts: list[NDArray[np.uint8]] | list[NDArray[np.uint16]]) -> None:
    """A PNG of 8 or 16 bits, from its rows (n, width, channels) in one part or more."""
    first = parts[0]
    height = sum(len(part) for part in parts)
    kind = COLOUR_TYPES[first.shape[2]]
    header = struct.pack(">2I5B", first.shape[1], height, 8 * first.itemsize, kind, 0, 0, 0)
    pack = zlib.compressobj(6)
    with path.open("wb") as file:
        file.write(SIGNATURE + _chunk(b"IHDR", header))
        for row in _rows(parts):
            if packed := pack.compress(row):
                file.write(_chunk(b"IDAT", packed))
        file.write(_chunk(b"IDAT", pack.flush()) + _chunk(b"IEND", b""))


def _rows(parts: list[NDArray[np.uint8]] | list[NDArray[np.uint16]]) -> Iterator[bytes]:
    for part in parts:
        for row in part:
            yield b"\0" + row.astype(row.dtype.newbyteorder(">")).tobytes()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _bitmap(side: int) -> bytes:
    """The header of a bitmap of 24 bits."""
    rest = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 3 * side * side, 0, 0, 54) + rest

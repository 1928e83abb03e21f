"""Image files that pillow cannot write, for tests: deep PNG and any kind of TIFF."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.images.view import View, decode

Array = NDArray[Any]
FULL = View(window=(0, 65535))


def png16(values: Array, key: bytes = b"") -> bytes:
    """A 16-bit PNG of (height, width, 1 to 4), which pillow cannot write. key: a tRNS chunk."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    height, width, channels = values.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    parts = chunk(b"IHDR", header) + (chunk(b"tRNS", key) if key else b"")
    return b"\x89PNG\r\n\x1a\n" + parts + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def lzw(data: bytes) -> bytes:
    """TIFF's LZW with 9-bit literals alone, the table cleared before its codes grow longer."""
    codes = [code for i, byte in enumerate(data) for code in ([256] * (i % 250 == 0) + [byte])]
    bits = "".join(f"{code:09b}" for code in [*codes, 257])
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def tiff(
    values: Array,
    *,
    order: str = "<",
    compression: int = 1,
    planar: int = 1,
    extra: int = 2,
    photometric: int | None = None,
    strips: int = 1,
    orientation: int = 1,
) -> bytes:
    """A TIFF of (height, width, channels) of any type, in one strip or more."""
    height, width, channels = values.shape
    swapped = values.astype(values.dtype.newbyteorder(order))
    rows = -(-height // strips)
    parts = [swapped[i : i + rows].tobytes() for i in range(0, height, rows)]
    if planar == 2:
        parts = [swapped[..., i].tobytes() for i in range(channels)]
    pack = {1: bytes, 5: lzw, 8: zlib.compress}[compression]
    parts = [pack(part) for part in parts]
    offsets = [8 + sum(len(part) for part in parts[:i]) for i in range(len(parts))]
    colour = 2 if channels >= 3 else 1
    tags: list[tuple[int, str, list[int]]] = [
        (256, "I", [width]),
        (257, "I", [height]),
        (258, "H", [values.dtype.itemsize * 8] * channels),
        (259, "H", [compression]),
        (262, "H", [colour if photometric is None else photometric]),
        (273, "I", offsets),
        (274, "H", [orientation]),
        (277, "H", [channels]),
        (278, "I", [rows]),
        (279, "I", [len(part) for part in parts]),
        (284, "H", [planar]),
        *([(338, "H", [extra])] if channels == 4 and photometric != 5 else []),
        (339, "H", [{"u": 1, "i": 2, "f": 3}[values.dtype.kind]] * channels),
    ]
    pixels = b"".join(parts)
    after = 8 + len(pixels) + 2 + 12 * len(tags) + 4
    entries, long = b"", b""
    for tag, kind, numbers in tags:
        body = struct.pack(f"{order}{len(numbers)}{kind}", *numbers)
        if len(body) > 4:
            long += body
            body = struct.pack(f"{order}I", after + len(long) - len(body))
        code = 3 if kind == "H" else 4
        entries += struct.pack(f"{order}HHI", tag, code, len(numbers)) + body.ljust(4, b"\0")
    start = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8 + len(pixels))
    directory = struct.pack(f"{order}H", len(tags)) + entries + struct.pack(f"{order}I", 0)
    return start + pixels + directory + long


def save(path: Path, content: bytes | Array | Image.Image, **options: Any) -> Path:
    """Saves bytes, an array or a pillow image (with pillow's options) and gives the path."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        image = Image.fromarray(content) if isinstance(content, np.ndarray) else content
        image.save(path, **options)
    return path


def noise(*shape: int, dtype: str = "u1") -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(3).integers(limits.min, limits.max + 1, shape).astype(dtype)


def pixels(source: Path | Array, view: View = FULL) -> Array:
    """The image as decoded at its own size: (height, width, 3)."""
    if isinstance(source, Path):
        with Image.open(source) as opened:
            width, height = opened.size
    else:
        height, width = source.shape[:2]
    frames = decode(source, view, (height, width)).frames
    assert frames.dtype == np.float32
    assert frames.min() >= 0
    assert frames.max() <= 1
    return frames[0].transpose(1, 2, 0)

"""What the header of an image file says: its size, its depth, how it is turned, and its frames."""

from __future__ import annotations

import struct
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from flawsort.core.errors import FlawsortError, InputError
from flawsort.core.records import RemoteFile, Source
from flawsort.core.text import shown_size
from flawsort.images.budget import BUDGET, decoding_bytes
from flawsort.images.formats import plugin_formats

# Only formats whose depth is known: pillow silently reduces deep JPEG 2000 and PPM to 8 bits. Those
# of plugins, HEIC and AVIF, are photos; the few that are deeper are read as 8 bits.
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF")

# The exceptions that pillow's plugins are known to raise for damaged files.
PILLOW_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Warning,
)

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = tuple(_TURNS[orientation] for orientation in (5, 6, 7, 8))
_ORIENTATION = 0x0112
_PNG_START = b"\x89PNG\r\n\x1a\n"
# A PNG of a gigabyte has fewer chunks; EXIF data of a photo has fewer bytes.
_MOST_CHUNKS, _MOST_EXIF = 100_000, 2**20
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257
# Files above this many bytes count while their header is read: it may be most of the file.
_LARGE_FILE = 2**23


class UnreadableImage(InputError):  # noqa: N818 - it is the image that is unreadable
    """An image that cannot be decoded. The message is the reason, without the file's name."""


def upright_size(source: Source, max_pixels: int, *, decodable: bool = False) -> tuple[int, int]:
    """Width and height of the upright image, from its header. Raises UnreadableImage, also if
    `decodable` and the budget for decoding is too small for the whole image."""
    if isinstance(source, np.ndarray):
        return int(source.shape[1]), int(source.shape[0])
    try:
        with plain_reasons(), opened(source, max_pixels) as image:
            if decodable:
                _check_budget(image)
            width, height = image.size
            tags = getattr(image, "tag_v2", None)
            if tags is not None:  # for a TIFF, pillow may already give the upright size
                width, height = tags[_TIFF_WIDTH], tags[_TIFF_HEIGHT]
            return (height, width) if turn_of(image) in _SIDEWAYS else (width, height)
    except UnreadableImage:
        raise
    except Exception as error:
        if isinstance(source, RemoteFile):  # each store raises its own errors
            raise UnreadableImage(f"cannot be read: {error}") from error
        raise


def unreadable(source: Source) -> str:
    """The reason why a file is no image, from its header; "" if it seems to be one."""
    try:
        upright_size(source, sys.maxsize)
    except UnreadableImage as error:
        return str(error)
    return ""


def is_deep(source: Source, max_pixels: int) -> bool:
    """Whether an image has more than 8 bits, from its header; False for unreadable ones."""
    if isinstance(source, np.ndarray):
        return source.dtype == np.uint16
    try:
        with plain_reasons(), opened(source, max_pixels) as image:
            return layout_of(image) != "8 bits"
    except UnreadableImage:
        return False
    except Exception:
        if isinstance(source, RemoteFile):  # each store raises its own errors
            return False
        raise


def n_frames(source: Source, max_pixels: int) -> int:
    """The number of pages or frames of a file; 1 for unreadable ones."""
    if isinstance(source, np.ndarray):
        return 1
    try:
        with plain_reasons(), opened(source, max_pixels) as image:
            return int(getattr(image, "n_frames", 1))
    except UnreadableImage:
        return 1
    except Exception:
        if isinstance(source, RemoteFile):  # each store raises its own errors
            return 1
        raise


def turn_of(image: Image.Image) -> Image.Transpose | None:
    """How the image must be turned to be upright, by its EXIF data."""
    try:
        return _TURNS.get(_exif_of(image).get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF data is no reason to refuse good pixels
        return None


def _exif_of(image: Image.Image) -> Image.Exif:
    """The EXIF data of an image, without decoding it."""
    if image.format != "PNG" or "exif" in image.info or "Raw profile type exif" in image.info:
        return image.getexif()
    # EXIF data may follow the pixels: pillow would decode them all to come there.
    found, file = Image.Exif(), getattr(image, "fp", None)
    if file is not None and (content := _late_exif(file)):
        found.load(b"Exif\0\0" + content)
    return found


def _late_exif(file: Any) -> bytes:
    """The EXIF data of a PNG after its pixels; empty if there is none."""
    place = file.tell()
    try:
        file.seek(len(_PNG_START))
        for _ in range(_MOST_CHUNKS):
            head = file.read(8)
            if len(head) < 8 or head[4:] == b"IEND":
                break
            length = int.from_bytes(head[:4], "big")
            if head[4:] == b"eXIf":
                return bytes(file.read(length)) if length <= _MOST_EXIF else b""
            file.seek(length + 4, 1)
        return b""
    finally:
        file.seek(place)


def layout_of(image: ImageFile.ImageFile) -> str:
    """The layout of the samples: "8 bits", or for deeper images "grey", "grey and alpha" or
    "colour"."""
    if image.mode[0] in "IF":
        return "grey"
    raw, bits = rawmode(image), bits_of(image)
    if bits <= 8:
        return "8 bits"
    if raw == "LA;16B":
        return "grey and alpha"
    interleaved = getattr(image, "tag_v2", {}).get(284, 1) == 1
    if interleaved and raw[:-1] in ("RGB;16", "RGBA;16", "RGBX;16"):
        return "colour"
    raise UnreadableImage(
        f"{bits}-bit {image.mode} in a layout that cannot be read at full depth; save it as "
        "16-bit grey or interleaved RGB, or as 8-bit"
    )


def bits_of(image: ImageFile.ImageFile) -> int:
    if image.format == "TIFF":
        return int(np.max(image.tag_v2.get(258, 1)))  # type: ignore[attr-defined]
    return 16 if image.format == "PNG" and ";16" in rawmode(image) else 8


def rawmode(image: ImageFile.ImageFile) -> str:
    """The mode in which pillow unpacks the samples, such as "RGB;16B"; "" if unknown."""
    arguments = image.tile[0][3] if image.tile else ""
    return str(arguments[0] if isinstance(arguments, tuple) else arguments)


@contextmanager
def opened(source: Path | RemoteFile | bytes, max_pixels: int) -> Iterator[ImageFile.ImageFile]:
    """An image file with its header read and its size checked."""
    with _pillow_limit.lifted(), _stream(source) as file, _with_header(file) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise UnreadableImage(
                f"too large: {width} x {height} = {width * height:,} pixels, "
                f"the limit is {max_pixels:,} (--max-pixels)"
            )
        yield image


def _with_header(file: BinaryIO) -> ImageFile.ImageFile:
    """The image of a file, with its header read. Some formats have pillow read the whole file."""
    length = _length(file)
    if length > BUDGET.limit:
        raise UnreadableImage(over_budget("the file has", length))
    with BUDGET.held(length if length > _LARGE_FILE else 0):
        return Image.open(file, formats=(*_FORMATS, *plugin_formats()))


def _length(file: Any) -> int:
    """The bytes of an open file."""
    place = file.tell()
    length = int(file.seek(0, 2))
    file.seek(place)
    return length


def _check_budget(image: ImageFile.ImageFile) -> None:
    turned = turn_of(image) is not None
    needs = decoding_bytes(image, image.size, layout_of(image), turned=turned)
    if needs > BUDGET.limit:
        raise UnreadableImage(over_budget("decoding it takes", needs))


def over_budget(what: str, size: int) -> str:
    given = BUDGET.given is not None
    of = "--max-memory leaves" if given else "this machine has"
    return f"too large: {what} {shown_size(size)}, and {of} {shown_size(BUDGET.limit)} for decoding"


def file_length(source: Path | RemoteFile) -> int:
    """The bytes of a file."""
    with _stream(source) as file:
        return _length(file)


def _stream(source: Path | RemoteFile | bytes) -> BinaryIO:
    if isinstance(source, bytes):
        return BytesIO(source)
    return source.open() if isinstance(source, RemoteFile) else source.open("rb")


class _PillowLimit:
    """Lifts pillow's global limit on pixels while any thread decodes here.

    The size is checked against the view's limit instead, which may be higher or lower.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._saved: int | None = None

    @contextmanager
    def lifted(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._saved, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    Image.MAX_IMAGE_PIXELS = self._saved


_pillow_limit = _PillowLimit()


@contextmanager
def plain_reasons() -> Iterator[None]:
    """Turn pillow's errors for bad content into an UnreadableImage with a plain reason."""
    try:
        yield
    except FlawsortError:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableImage(
            "not an image (or too damaged to tell; PNG, JPEG, BMP, WebP, TIFF and GIF can be read)"
        ) from error
    except MemoryError as error:
        raise UnreadableImage("there is not enough memory to decode it") from error
    except PILLOW_ERRORS as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.errno is not None:
            raise UnreadableImage(f"cannot be read: {error.strerror}") from error
        if "truncated" in text.lower():
            raise UnreadableImage("truncated: the file is cut short") from error
        raise UnreadableImage(f"damaged: {text}") from error

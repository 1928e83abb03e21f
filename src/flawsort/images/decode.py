"""Read an image file (or an array) completely, upright and at its full bit depth."""

from __future__ import annotations

import struct
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError

from flawsort.core.errors import FlawsortError, InputError, OptionError, first_line
from flawsort.core.records import Floats, RemoteFile, Source

# Only formats whose depth is known: pillow silently reduces deep JPEG 2000, AVIF and PPM to 8 bits.
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "GIF")

# The exceptions that pillow's plugins are known to raise for damaged files.
_PILLOW_ERRORS = (
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
_TIFF_WIDTH, _TIFF_HEIGHT = 256, 257
_SIDEWAYS = tuple(_TURNS[orientation] for orientation in (5, 6, 7, 8))


class UnreadableImage(InputError):  # noqa: N818 - it is the image that is unreadable
    """An image that cannot be decoded. The message is the reason, without the file's name."""


@dataclass(frozen=True)
class Raster:
    """A complete, upright image: pixels8 for 8 bits, pixels16 for more.

    pixels8: a pillow image, RGB or L. pixels16: (height, width, 1 or 3). opacity: (height, width)
    in 0..1, or None. scaled: pixels16 is already in 0..1 and needs no window.
    """

    pixels8: Image.Image | None = None
    pixels16: NDArray[Any] | None = None
    opacity: NDArray[np.float32] | None = None
    scaled: bool = False

    def planes(self, window: tuple[float, float] | None) -> list[Image.Image]:
        """One RGB or L image, or 1 or 3 images of floats in 0..1."""
        if self.pixels8 is not None:
            return [self.pixels8]
        assert self.pixels16 is not None
        if self.scaled:
            window = (0.0, 1.0)
        if window is None:
            raise OptionError(
                "window must be given for images of more than 8 bits. Got None. A run measures it "
                "on its own images; a run of 8-bit images has none."
            )
        return [
            Image.fromarray(self._windowed(channel, *window))
            for channel in np.moveaxis(self.pixels16, 2, 0)
        ]

    def _windowed(self, channel: NDArray[Any], low: float, high: float) -> NDArray[np.float32]:
        # float32 holds every 16-bit value exactly, but not every 32-bit one.
        exact = np.dtype(np.float32 if channel.dtype.itemsize <= 2 else np.float64)
        numbers: Floats = channel.astype(exact)
        values = np.nan_to_num((numbers - low) / (high - low), posinf=1.0, neginf=0.0)
        clipped: NDArray[np.float32] = np.clip(values, 0, 1).astype(np.float32)
        if self.opacity is None:
            return clipped
        # Over white, as for 8-bit images.
        return clipped * self.opacity + (1 - self.opacity)


def load(
    source: Source | bytes, max_pixels: int, *, backdrop: str = "white", enough: int | None = None
) -> Raster:
    """Load a complete image. Raises only UnreadableImage for content that cannot be decoded.

    source: a file, the content of a file, or an array.
    backdrop: the colour behind transparent pixels of an 8-bit image.
    enough: a large JPEG may be decoded 2, 4 or 8 times smaller, as long as both sides keep at
        least this many pixels, which is much faster. None: at full size.
    """
    with _plain_reasons():
        if isinstance(source, RemoteFile):
            source = source.read_bytes()  # some formats are read twice
        if isinstance(source, Path | bytes):
            return _from_file(source, max_pixels, backdrop, enough)
        return _from_array(source, backdrop)


def picture_array(number: int, picture: Image.Image) -> NDArray[Any]:
    """(height, width[, 3]): the pixels of a pillow image, treated like a file: upright, and over
    white where it is transparent. number: the position of the image, for error messages."""
    try:
        upright = _upright(picture)
    except _PILLOW_ERRORS as error:
        raise InputError(f"Image {number} cannot be read: {first_line(error)}.") from error
    if upright.mode[0] not in "IF":
        return np.asarray(_opaque(upright, "white"))
    values = np.asarray(upright)
    if values.dtype == np.int32 and values.min() >= 0 and values.max() < 2**16:
        return values.astype(np.uint16)  # pillow opens some 16-bit files as int32
    return values


def upright_size(source: Source, max_pixels: int) -> tuple[int, int]:
    """Width and height of the upright image, from its header. Raises UnreadableImage."""
    if isinstance(source, np.ndarray):
        return int(source.shape[1]), int(source.shape[0])
    try:
        with _plain_reasons(), _opened(source, max_pixels) as image:
            width, height = image.size
            tags = getattr(image, "tag_v2", None)
            if tags is not None:  # for a TIFF, pillow may already give the upright size
                width, height = tags[_TIFF_WIDTH], tags[_TIFF_HEIGHT]
            return (height, width) if _turn(image) in _SIDEWAYS else (width, height)
    except UnreadableImage:
        raise
    except Exception as error:
        if isinstance(source, RemoteFile):  # each store raises its own errors
            raise UnreadableImage(f"cannot be read: {error}") from error
        raise


def is_deep(source: Source, max_pixels: int) -> bool:
    """Whether an image has more than 8 bits, from its header; False for unreadable ones."""
    if isinstance(source, np.ndarray):
        return source.dtype == np.uint16
    try:
        with _plain_reasons(), _opened(source, max_pixels) as image:
            return _layout(image) != "8 bits"
    except UnreadableImage:
        return False
    except Exception:
        if isinstance(source, RemoteFile):  # each store raises its own errors
            return False
        raise


def _from_file(source: Path | bytes, max_pixels: int, backdrop: str, enough: int | None) -> Raster:
    with _opened(source, max_pixels) as image:
        if enough is not None:
            image.draft(None, (enough, enough))  # does nothing unless it is a JPEG
        layout = _layout(image)
        if layout == "8 bits":
            return Raster(pixels8=_opaque(_upright(image), backdrop))
        if layout == "grey":
            return _deep_grey(image)
        if layout == "grey and alpha":
            # Read the two 16-bit samples as four bytes, and join the bytes.
            _read_as(image, "RGBA")
            parts = np.asarray(_upright(image)).astype(np.uint16)
            joined = parts[..., 0::2] << 8 | parts[..., 1::2]
            return Raster(pixels16=joined[..., :1], opacity=_opacity(joined[..., 1]))
        high = np.asarray(_upright(image)).astype(np.uint16)
        key = image.info.get("transparency")
    with _opened(source, max_pixels) as image:
        # pillow keeps the first byte of each sample; with the byte order swapped, the second.
        _read_as(image, _swapped(_rawmode(image)))
        colours = high << 8 | np.asarray(_upright(image))
    if colours.shape[2] == 4:
        return Raster(pixels16=colours[..., :3], opacity=_opacity(colours[..., 3]))
    visible = None if key is None else np.any(colours != np.array(key), axis=2)
    return Raster(pixels16=colours, opacity=None if visible is None else visible.astype(np.float32))


def _from_array(array: NDArray[Any], backdrop: str) -> Raster:
    values = array if array.ndim == 3 else array[..., np.newaxis]
    if values.dtype in (np.uint8, np.bool_):
        levels = values * np.uint8(255) if values.dtype == np.bool_ else values
        levels = np.repeat(levels, 3, axis=2) if levels.shape[2] == 1 else levels
        return Raster(pixels8=_opaque(Image.fromarray(np.ascontiguousarray(levels)), backdrop))
    scaled = values.dtype.kind == "f"
    opacity = None
    if values.shape[2] == 4:
        last = values[..., 3]
        opacity = last.astype(np.float32) if scaled else _opacity(last)
    return Raster(pixels16=values[..., :3], opacity=opacity, scaled=scaled)


def _deep_grey(image: ImageFile.ImageFile) -> Raster:
    tags = getattr(image, "tag_v2", {})
    values = np.asarray(_upright(image))
    if image.mode == "I" and _bits(image) == 32 and 1 in np.atleast_1d(tags.get(339, 1)):
        values = values.view(np.uint32)  # pillow supports signed integers only
    elif tags.get(262) == 0 and values.dtype.kind == "u":
        values = 65535 - values  # white is zero; pillow inverts only 8-bit images itself
    key = image.info.get("transparency")
    visible = None if key is None else (values != key).astype(np.float32)
    return Raster(pixels16=values[..., np.newaxis], opacity=visible)


def _opacity(alpha: NDArray[Any]) -> NDArray[np.float32]:
    return alpha.astype(np.float32) / np.float32(65535)


def _opaque(image: Image.Image, backdrop: str) -> Image.Image:
    if image.mode == "La":
        image = image.convert("LA")
    if image.mode not in ("LA", "PA", "RGBA", "RGBa") and "transparency" not in image.info:
        return image if image.mode in ("RGB", "L") else image.convert("RGB")
    image = image.convert("RGBA")
    ground = Image.new("RGB", image.size, backdrop)
    ground.paste(image.convert("RGB"), mask=image.getchannel("A"))
    return ground


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    turn = _turn(image)
    return image if turn is None else image.transpose(turn)


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:
        return _TURNS.get(image.getexif().get(0x0112, 1))
    except Exception:  # damaged EXIF data is no reason to refuse good pixels
        return None


def _layout(image: ImageFile.ImageFile) -> str:
    """The layout of the samples: "8 bits", or for deeper images "grey", "grey and alpha" or
    "colour"."""
    if image.mode[0] in "IF":
        return "grey"
    raw, bits = _rawmode(image), _bits(image)
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


def _bits(image: ImageFile.ImageFile) -> int:
    if image.format == "TIFF":
        return int(np.max(image.tag_v2.get(258, 1)))  # type: ignore[attr-defined]
    return 16 if image.format == "PNG" and ";16" in _rawmode(image) else 8


def _rawmode(image: ImageFile.ImageFile) -> str:
    """The mode in which pillow unpacks the samples, such as "RGB;16B"; "" if unknown."""
    arguments = image.tile[0][3] if image.tile else ""
    return str(arguments[0] if isinstance(arguments, tuple) else arguments)


def _swapped(raw: str) -> str:
    native = "L" if sys.byteorder == "little" else "B"
    order = native if raw[-1] == "N" else raw[-1]
    return raw[:-1] + ("B" if order == "L" else "L")


def _read_as(image: ImageFile.ImageFile, raw: str) -> None:
    """Make pillow unpack the samples in another mode when the image is loaded."""
    tiles: list[Any] = []
    for tile in image.tile:
        arguments: Any = (raw, *tile[3][1:]) if isinstance(tile[3], tuple) else raw
        # pillow before 11 has plain tuples here.
        named = hasattr(tile, "_replace")
        tiles.append(tile._replace(args=arguments) if named else (*tile[:3], arguments))
    image.tile = tiles


@contextmanager
def _opened(source: Path | RemoteFile | bytes, max_pixels: int) -> Iterator[ImageFile.ImageFile]:
    """An image file with its header read and its size checked."""
    with (
        _pillow_limit.lifted(),
        _stream(source) as file,
        Image.open(file, formats=_FORMATS) as image,
    ):
        width, height = image.size
        if width * height > max_pixels:
            raise UnreadableImage(
                f"too large: {width} x {height} = {width * height:,} pixels, "
                f"the limit is {max_pixels:,} (--max-pixels)"
            )
        yield image


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
def _plain_reasons() -> Iterator[None]:
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
    except _PILLOW_ERRORS as error:
        text = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, OSError) and error.errno is not None:
            raise UnreadableImage(f"cannot be read: {error.strerror}") from error
        if "truncated" in text.lower():
            raise UnreadableImage("truncated: the file is cut short") from error
        raise UnreadableImage(f"damaged: {text}") from error

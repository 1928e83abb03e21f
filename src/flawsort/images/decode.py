"""Read an image file (or an array) completely, upright and at its full bit depth."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

from flawsort.core.errors import InputError, OptionError, first_line
from flawsort.core.records import Floats, RemoteFile, Source
from flawsort.images.budget import BUDGET, decoding_bytes
from flawsort.images.headers import PILLOW_ERRORS as PILLOW_ERRORS
from flawsort.images.headers import UnreadableImage as UnreadableImage
from flawsort.images.headers import (
    bits_of,
    file_length,
    layout_of,
    opened,
    over_budget,
    plain_reasons,
    rawmode,
    turn_of,
)
from flawsort.images.headers import is_deep as is_deep
from flawsort.images.headers import n_frames as n_frames
from flawsort.images.headers import upright_size as upright_size

# Images with more pixels are set aside before they are decoded, unless the user says otherwise.
MAX_PIXELS = 200_000_000
# Rows of a deep image that are brought to 0..1 at a time, which bounds the memory.
ROWS_AT_ONCE = 256
# The bytes that an image of this width and height takes beside its pixels, and of so many planes in
# single precision, 0 for 8 bits.
Further: TypeAlias = Callable[[tuple[int, int], int], int]


@dataclass(frozen=True)
class Raster:
    """A complete, upright image: pixels8 for 8 bits, pixels16 for more.

    pixels8: a pillow image, RGB or L. pixels16: (height, width, 1 or 3). opacity: (height, width)
    in 0..1, or None. scaled: pixels16 is already in 0..1 and needs no window. needs: the bytes that
    decoding it was known to take.
    """

    pixels8: Image.Image | None = None
    pixels16: NDArray[Any] | None = None
    opacity: NDArray[np.float32] | None = None
    scaled: bool = False
    needs: int = 0

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
        return [self._plane(channel, window) for channel in np.moveaxis(self.pixels16, 2, 0)]

    def _plane(self, channel: NDArray[Any], window: tuple[float, float]) -> Image.Image:
        """A channel in 0..1. Made of strips: whole, the steps on the way would take many times the
        memory."""
        plane = Image.new("F", (channel.shape[1], channel.shape[0]))
        for top in range(0, len(channel), ROWS_AT_ONCE):
            some = slice(top, top + ROWS_AT_ONCE)
            opacity = None if self.opacity is None else self.opacity[some]
            plane.paste(Image.fromarray(_windowed(channel[some], opacity, *window)), (0, top))
        return plane


def load(
    source: Source | bytes, max_pixels: int, *, backdrop: str = "white", enough: int | None = None
) -> Raster:
    """Load a complete image. Raises only UnreadableImage for content that cannot be decoded. See
    `loaded`."""
    with loaded(source, max_pixels, backdrop=backdrop, enough=enough) as raster:
        return raster


@contextmanager
def loaded(
    source: Source | bytes,
    max_pixels: int,
    *,
    backdrop: str = "white",
    enough: int | None = None,
    digest: str | None = None,
    further: Further = lambda size, planes: 0,
) -> Iterator[Raster]:
    """A complete image within a `with` block, whose memory counts in the budget until its end.

    Waits until the budget has enough for it. UnreadableImage if it never has, or for content that
    cannot be decoded.

    source: a file, the content of a file, or an array.
    backdrop: the colour behind transparent pixels of an 8-bit image.
    enough: a large JPEG may be decoded 2, 4 or 8 times smaller, as long as both sides keep at
        least this many pixels, which is much faster. None: at full size.
    digest: the SHA-256 that the file must have.
    further: the memory that the block itself takes for an image of this size.
    """
    with ExitStack() as stack:

        def hold(size: int) -> None:
            if size > BUDGET.limit:
                raise UnreadableImage(over_budget("decoding it takes", size))
            stack.enter_context(BUDGET.held(size))

        with plain_reasons():
            raster = _loaded(source, max_pixels, backdrop, enough, digest, further, hold)
        yield raster


def picture_array(number: int, picture: Image.Image) -> NDArray[Any]:
    """(height, width[, 3]): the pixels of a pillow image, treated like a file: upright, and over
    white where it is transparent. number: the position of the image, for error messages."""
    try:
        upright = _upright(picture)
    except PILLOW_ERRORS as error:
        raise InputError(f"Image {number} cannot be read: {first_line(error)}.") from error
    if upright.mode[0] not in "IF":
        return np.asarray(_opaque(upright, "white"))
    values = np.asarray(upright)
    if values.dtype == np.int32 and values.min() >= 0 and values.max() < 2**16:
        return values.astype(np.uint16)  # pillow opens some 16-bit files as int32
    return values


def _loaded(
    source: Source | bytes,
    max_pixels: int,
    backdrop: str,
    enough: int | None,
    digest: str | None,
    further: Further,
    hold: Callable[[int], None],
) -> Raster:
    """See `loaded`. hold: waits for this many bytes; UnreadableImage if there never are so many."""
    if isinstance(source, np.ndarray):
        deep = source.dtype not in (np.uint8, np.bool_)
        size = (source.shape[1], source.shape[0])
        planes = (1 if source.ndim == 2 else source.shape[2]) if deep else 0
        needs = source.nbytes * (2 if deep else 4) + further(size, planes)
        hold(needs)
        return replace(_from_array(source, backdrop), needs=needs)
    with opened(source, max_pixels) as image:
        needs = _needs(image, enough, further)
    if isinstance(source, RemoteFile) or digest is not None:
        # Some formats are read twice, and the content must be the one that is known.
        length = len(source) if isinstance(source, bytes) else file_length(source)
        hold(needs := needs + length)
        content = source if isinstance(source, bytes) else source.read_bytes()
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise UnreadableImage("it changed while it was being read")
        return replace(_from_file(content, max_pixels, backdrop, enough), needs=needs)
    hold(needs)
    return replace(_from_file(source, max_pixels, backdrop, enough), needs=needs)


def _needs(image: ImageFile.ImageFile, enough: int | None, further: Further) -> int:
    """What decoding an opened file takes, and what is done with it then."""
    full = image.size
    if enough is not None:
        image.draft(None, (enough, enough))  # does nothing unless it is a JPEG
    layout, turned = layout_of(image), turn_of(image) is not None
    planes = {"8 bits": 0, "colour": 3}.get(layout, 1)
    return decoding_bytes(image, full, layout, turned=turned) + further(image.size, planes)


def _from_file(source: Path | bytes, max_pixels: int, backdrop: str, enough: int | None) -> Raster:
    with opened(source, max_pixels) as image:
        if enough is not None:
            image.draft(None, (enough, enough))
        layout = layout_of(image)
        if layout == "8 bits":
            return Raster(pixels8=_opaque(_upright(image), backdrop))
        if layout == "grey":
            return _deep_grey(image)
        if layout == "grey and alpha":
            # Read the two 16-bit samples as four bytes, and join the bytes.
            _read_as(image, "RGBA")
            parts = np.asarray(_upright(image))
            joined = parts[..., 0::2].astype(np.uint16)
            joined <<= 8
            joined |= parts[..., 1::2]
            return Raster(pixels16=joined[..., :1], opacity=_opacity(joined[..., 1]))
        colours = np.asarray(_upright(image)).astype(np.uint16)
        key = image.info.get("transparency")
    del image  # its pixels would stay
    with opened(source, max_pixels) as second:
        # pillow keeps the first byte of each sample; with the byte order swapped, the second.
        _read_as(second, _swapped(rawmode(second)))
        colours <<= 8
        colours |= np.asarray(_upright(second))
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
    if image.mode == "I" and bits_of(image) == 32 and 1 in np.atleast_1d(tags.get(339, 1)):
        values = values.view(np.uint32)  # pillow supports signed integers only
    elif tags.get(262) == 0 and values.dtype.kind == "u":
        values = 65535 - values  # white is zero; pillow inverts only 8-bit images itself
    key = image.info.get("transparency")
    visible = None if key is None else (values != key).astype(np.float32)
    return Raster(pixels16=values[..., np.newaxis], opacity=visible)


def _windowed(
    values: NDArray[Any], opacity: NDArray[np.float32] | None, low: float, high: float
) -> NDArray[np.float32]:
    # float32 holds every 16-bit value exactly, but not every 32-bit one.
    exact = np.dtype(np.float32 if values.dtype.itemsize <= 2 else np.float64)
    numbers: Floats = values.astype(exact)
    scaled = np.nan_to_num((numbers - low) / (high - low), posinf=1.0, neginf=0.0)
    clipped: NDArray[np.float32] = np.clip(scaled, 0, 1).astype(np.float32)
    if opacity is None:
        return clipped
    # Over white, as for 8-bit images.
    return clipped * opacity + (1 - opacity)


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
    # The header of a TIFF says how it was before pillow turned it.
    ahead = turn_of(image) if image.format == "PNG" else None
    image.load()
    turn = ahead if image.format == "PNG" else turn_of(image)
    return image if turn is None else image.transpose(turn)


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

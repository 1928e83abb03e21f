"""Whole image files at their full resolution, as 8-bit pictures, and pieces cut out of them; and
the small pictures that a run keeps of them."""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.core.errors import RunError
from flawsort.core.records import Source
from flawsort.images.decode import ROWS_AT_ONCE, Raster, UnreadableImage, loaded
from flawsort.images.view import Box, View

# Pieces more than this many times too large are first reduced by averaging whole blocks, for speed.
REDUCING_GAP = 3.0
# Of a picture that a run keeps. Those that flawsort makes have 256 on a side.
MOST_KEPT_PIXELS = 2**22


def whole_picture(source: Source, view: View, enough: int | None = None) -> Image.Image:
    """A whole upright image as RGB or L, whatever part of it the view shows. enough: see `load`;
    the picture may then be smaller than the image. Raises UnreadableImage."""

    def further(size: tuple[int, int], planes: int) -> int:
        return 8 * size[0] * size[1] if planes else 0

    with loaded(source, view.max_pixels, enough=enough, further=further) as raster:
        if raster.pixels8 is not None:
            return raster.pixels8
        try:
            return _eight_bits(raster, view.window)
        except MemoryError as error:
            raise UnreadableImage("there is not enough memory for it") from error


def _eight_bits(raster: Raster, window: tuple[float, float] | None) -> Image.Image:
    """A deep image with the values of the window brought to 0..255."""
    assert raster.pixels16 is not None
    height, width, channels = raster.pixels16.shape
    levels: NDArray[np.uint8] = np.empty((height, width, channels), np.uint8)
    for top in range(0, height, ROWS_AT_ONCE):
        some = slice(top, top + ROWS_AT_ONCE)
        opacity = None if raster.opacity is None else raster.opacity[some]
        strip = Raster(pixels16=raster.pixels16[some], opacity=opacity, scaled=raster.scaled)
        for channel, plane in enumerate(strip.planes(window)):
            levels[some, :, channel] = np.rint(np.asarray(plane) * 255)
    return Image.fromarray(levels[..., 0] if channels == 1 else levels)


def cut(picture: Image.Image, box: Box, size: tuple[int, int]) -> Image.Image:
    """A piece of a picture as RGB, resized to (width, height). box: left, top, right, bottom in
    pixels; beyond the border the pixels there are repeated."""
    outer = (*map(math.floor, box[:2]), *map(math.ceil, box[2:]))
    inner = (
        max(0, min(outer[0], picture.width - 1)),
        max(0, min(outer[1], picture.height - 1)),
        min(picture.width, max(outer[2], 1)),
        min(picture.height, max(outer[3], 1)),
    )
    if inner != outer:
        pads = [abs(a - b) for a, b in zip(inner, outer, strict=True)]
        piece = np.asarray(picture.crop(inner).convert("RGB"))
        piece = np.pad(piece, ((pads[1], pads[3]), (pads[0], pads[2]), (0, 0)), "edge")
        picture = Image.fromarray(piece)
        box = (box[0] - outer[0], box[1] - outer[1], box[2] - outer[0], box[3] - outer[1])
    kind = Image.Resampling.LANCZOS
    return picture.resize(size, kind, box, reducing_gap=REDUCING_GAP).convert("RGB")


def jpeg(picture: Image.Image, quality: int) -> bytes:
    """A picture as a JPEG, with the colours at full resolution, as they are looked at closely."""
    content = BytesIO()
    picture.convert("RGB").save(content, "JPEG", quality=quality, subsampling=0)
    return content.getvalue()


def kept_picture(content: bytes, side: int | None = None) -> Image.Image:
    """A picture that a run keeps, as RGB. side: of a smaller picture that would do. RunError if it
    is none: the run may come from anybody."""
    with _kept(content) as picture:
        if side is not None:
            picture.draft("RGB", (side, side))
        try:
            return picture.convert("RGB")
        except (OSError, ValueError, SyntaxError) as error:  # it ends too early, or is garbled
            raise _no_picture() from error


def aspect_of(content: bytes) -> float:
    """Width over height of a picture that a run keeps. RunError if it is none."""
    with _kept(content) as picture:
        return picture.width / picture.height


def _kept(content: bytes) -> Image.Image:
    try:
        picture = Image.open(BytesIO(content), formats=("JPEG",))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _no_picture() from error
    if picture.width * picture.height > MOST_KEPT_PIXELS:
        raise _no_picture()
    return picture


def _no_picture() -> RunError:
    return RunError(
        "The run is damaged: a picture that it keeps must be a JPEG of at most "
        f"{MOST_KEPT_PIXELS:,} pixels. Make the run again with flawsort cluster."
    )

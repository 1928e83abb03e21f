"""Decode image files (or arrays) to the pixels that a backbone sees, at their full bit depth."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bools, Source
from flawsort.core.text import printable
from flawsort.images.decode import UnreadableImage as UnreadableImage
from flawsort.images.decode import is_deep, load, upright_size

MAX_PIXELS = 200_000_000
MAX_TILES = 16

_FITS = ("stretch", "pad", "crop")
_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_WINDOW_PERCENTILES = (0.1, 99.9)
# 16 million numbers take 128 MB; 65,536 of one image determine its percentiles well enough.
_WINDOW_SAMPLES, _IMAGE_SAMPLES = 16_000_000, 65_536

# Images more than this many times too large are first reduced by averaging whole blocks. That is
# fast, and at this distance from the final size it does not show in the result.
_REDUCING_GAP = 3.0

Box = tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True, repr=False)
class View:
    """The part of an image that the backbone sees, and how it is fitted to its input.

    fit: how the image fills the backbone's input (with tiles: all of them together). "stretch"
        ignores the aspect ratio. "pad" keeps it and repeats edge pixels, which count as outside.
        "crop" keeps it and uses the middle of the longer side.
    roi: left, top, right, bottom; fractions of the image if all are at most 1, otherwise pixels.
    mask: an image file, or its bytes. Non-zero pixels are inside. It is stretched to each image,
        and the view is cropped to its bounding box.
    tiles: rows and columns that the view is cut into, each as large as the backbone's input.
    resample: "bilinear" or "bicubic"; both average when they reduce.
    window: the values that become 0 and 1 in images of more than 8 bits.
    max_pixels: larger images are refused before they are decoded.
    """

    fit: Literal["stretch", "pad", "crop"] = "stretch"
    roi: Box | None = None
    mask: Path | bytes | None = None
    tiles: tuple[int, int] = (1, 1)
    resample: Literal["bilinear", "bicubic"] = "bilinear"
    window: tuple[float, float] | None = None
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if self.fit not in _FITS:
            raise OptionError(
                f"must be one of {', '.join(_FITS)}. Got {self.fit!r}.", parameter="fit"
            )
        if self.resample not in _FILTERS:
            raise OptionError(
                f"must be one of {', '.join(_FILTERS)}. Got {self.resample!r}.",
                parameter="resample",
            )
        if self.roi is not None and self.mask is not None:
            raise OptionError(
                "must be a box or a mask, not both. Got both. Leave one out.", parameter="roi"
            )
        if self.roi is not None:
            _check_roi(self.roi)
        if len(self.tiles) != 2 or not all(
            isinstance(n, int) and 1 <= n <= MAX_TILES for n in self.tiles
        ):
            raise OptionError(
                f"must be rows and columns from 1 to {MAX_TILES}. Got {self.tiles}.",
                parameter="tiles",
            )
        if self.window is not None and not (
            len(self.window) == 2
            and all(math.isfinite(value) for value in self.window)
            and self.window[0] < self.window[1]
        ):
            raise OptionError(f"window must be two numbers, low < high. Got {self.window}.")
        if self.max_pixels < 1:
            raise OptionError(f"must be at least 1. Got {self.max_pixels}.", parameter="max_pixels")

    def __repr__(self) -> str:
        shown = {field.name: repr(getattr(self, field.name)) for field in fields(self)}
        if isinstance(self.mask, bytes):  # from a run: the whole file
            shown["mask"] = f"<{len(self.mask):,} bytes>"
        return f"View({', '.join(f'{name}={value}' for name, value in shown.items())})"

    def describe(self) -> dict[str, Any]:
        """The view as JSON values for manifests and cache keys, with the SHA-256 of the mask."""
        return {
            "fit": self.fit,
            "roi": None if self.roi is None else [float(value) for value in self.roi],
            "mask": None if self.mask is None else _mask(self.mask).digest,
            "tiles": [int(n) for n in self.tiles],
            "resample": self.resample,
            "window": None if self.window is None else [float(value) for value in self.window],
            "max_pixels": int(self.max_pixels),
        }

    def mask_bytes(self) -> bytes | None:
        """The content of the mask file."""
        return self.mask.read_bytes() if isinstance(self.mask, Path) else self.mask

    @classmethod
    def from_description(
        cls, described: Mapping[str, Any], mask: Path | bytes | None = None
    ) -> View:
        """The view from what `describe` returned. mask: its mask file, or the content of it."""
        if described["mask"] is None:
            mask = None
        elif mask is None:
            raise OptionError("This view was made with a mask. Pass the same mask file. Got none.")
        elif (found := _mask(mask).digest) != described["mask"]:
            raise OptionError(
                f"The mask must be the file that the view was made with, SHA-256 "
                f"{described['mask'][:12]}... Got {_mask_name(mask)}, {found[:12]}..."
            )
        rows, columns = described["tiles"]
        return cls(
            fit=described["fit"],
            roi=None if described["roi"] is None else tuple(described["roi"]),
            mask=mask,
            tiles=(rows, columns),
            resample=described.get("resample", "bilinear"),  # runs made before there was a choice
            window=None if described["window"] is None else tuple(described["window"]),
            max_pixels=described["max_pixels"],
        )


@dataclass(frozen=True)
class Pixels:
    """The input of the backbone for one image.

    frames: (n_tiles, 3, height, width) float32 RGB in 0..1, tiles row by row.
    inside: (rows * height, columns * width), False on padding and outside the mask; None: all.
    """

    frames: NDArray[np.float32]
    inside: Bools | None


def parse_roi(text: str) -> Box | Path:
    """A region of interest as written on the command line: "left,top,right,bottom" or a mask."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) == 4:
        _check_roi(values)
        return values
    if text and Path(text).is_file():
        return Path(text)
    raise OptionError(
        "must be left,top,right,bottom (fractions up to 1, or pixels) or an existing mask "
        f"image. Got '{printable(text)}'.",
        parameter="roi",
    )


def parse_tiles(text: str) -> tuple[int, int]:
    """Rows and columns from "2x3", or from "2" for 2 x 2."""
    parts = text.lower().split("x")
    counts = [int(part) for part in parts if part.strip().isdecimal()]
    if len(counts) != len(parts) or len(parts) > 2 or not all(1 <= n <= MAX_TILES for n in counts):
        raise OptionError(
            f"must be like 2x3 (rows x columns) or 2, from 1 to {MAX_TILES} each. "
            f"Got '{printable(text)}'.",
            parameter="tiles",
        )
    return counts[0], counts[-1]


def decode(
    source: Source | bytes,
    view: View,
    size: tuple[int, int],
    *,
    reducing_gap: float = _REDUCING_GAP,
) -> Pixels:
    """The pixels of an image as the backbone sees them. size: (height, width) of its input.

    source: a file, the content of a file, or an array. The image is turned upright (EXIF); the
    first frame is used, as RGB. Transparent pixels become white, as viewers show them, because the
    colours under them are arbitrary. reducing_gap: an image more than this many times too large
    is first reduced by averaging whole blocks. Raises UnreadableImage for content that cannot be
    used.
    """
    rows, columns = view.tiles
    height, width = size
    canvas = (rows * height, columns * width)
    frame, inside = _fitted(source, view, canvas, gap=reducing_gap)
    tiles = frame.reshape(3, rows, height, columns, width).transpose(1, 3, 0, 2, 4)
    return Pixels(np.ascontiguousarray(tiles.reshape(rows * columns, 3, height, width)), inside)


def thumbnail(source: Source, view: View, size: tuple[int, int], long_side: int) -> Image.Image:
    """The view of an image as an RGB picture, with `long_side` pixels on its longer side.

    The patch grid stretched over it lies exactly on its patches. With "stretch" the picture has the
    aspect of the region seen; with "pad" (padding included) and "crop", that of all tiles together.
    size: as for `decode`.
    """
    canvas = None
    if view.fit != "stretch":
        canvas = _scaled(view.tiles[0] * size[0], view.tiles[1] * size[1], long_side)
    frame, _ = _fitted(source, view, canvas, long_side)
    return Image.fromarray(np.rint(frame.transpose(1, 2, 0) * 255).astype(np.uint8))


def locate(
    boxes: NDArray[np.float64], view: View, size: tuple[int, int], source: Source
) -> NDArray[np.float64]:
    """(n, 4): boxes of a view as left, top, right, bottom in fractions of the upright image.

    boxes: (n, 4), the same in fractions of the view. size: as for `decode`. The header of the
    source is read only if the view is not the whole image, stretched.
    """
    if view.fit == "stretch" and view.roi is None and view.mask is None:
        return boxes
    width, height = upright_size(source, view.max_pixels)
    seen, _ = _region(view, (width, height))
    left, top, right, bottom = _window(
        seen, view, (view.tiles[0] * size[0], view.tiles[1] * size[1])
    )
    corner, span = np.array([left, top] * 2), np.array([right - left, bottom - top] * 2)
    low, high = np.array([seen[0], seen[1]] * 2), np.array([seen[2], seen[3]] * 2)
    inside = np.clip(corner + boxes * span, low, high)
    fractions: NDArray[np.float64] = inside / np.array([width, height] * 2)
    return fractions


def measure_window(
    sources: Sequence[Source],
    max_pixels: int = MAX_PIXELS,
    *,
    threads: int = 4,
    image_samples: int = _IMAGE_SAMPLES,
) -> tuple[float, float] | None:
    """The 0.1 and 99.9 percentiles of all images of more than 8 bits; None if there are none.

    Uses an even sample of each image, so the order of the files does not matter. Only the header of
    8-bit files is read. Unreadable images and fully transparent pixels are left out.
    image_samples: the most values of an image.
    """
    with ThreadPoolExecutor(max(1, threads)) as pool:
        flags = pool.map(lambda source: is_deep(source, max_pixels), sources)
        deep = [source for source, flag in zip(sources, flags, strict=True) if flag]
        if not deep:
            return None
        budget = min(image_samples, max(64, _WINDOW_SAMPLES // len(deep)))
        samples = list(pool.map(lambda source: _sample(source, max_pixels, budget), deep))
    values = np.concatenate(samples)
    if not values.size:
        return None
    low, high = (float(value) for value in np.percentile(values, _WINDOW_PERCENTILES))
    return low, high if high > low else low + max(1.0, abs(low) * 1e-6)


@dataclass(frozen=True)
class _Mask:
    image: Image.Image
    digest: str


def _check_roi(roi: tuple[float, ...]) -> None:
    if len(roi) == 4 and all(math.isfinite(value) and value >= 0 for value in roi):
        left, top, right, bottom = roi
        if left < right and top < bottom:
            return
    raise OptionError(
        "must be left,top,right,bottom, none negative, with left < right and top < bottom. "
        f"Got {','.join(f'{value:g}' for value in roi)}.",
        parameter="roi",
    )


def _fitted(
    source: Source | bytes,
    view: View,
    canvas: tuple[int, int] | None,
    long_side: int = 0,
    gap: float = _REDUCING_GAP,
) -> tuple[NDArray[np.float32], Bools | None]:
    """The view of an image on a canvas (height, width). None: a canvas with the aspect of the
    region, `long_side` long. gap: see `decode`.

    Returns (3, height, width) in 0..1, and (height, width), True inside; None for all inside.
    """
    enough = None
    if view.roi is None and view.mask is None:
        # A region in pixels refers to the full-size image, so reduce only without one.
        enough = int(gap * max(canvas or (long_side,)))
    raster = load(source, view.max_pixels, enough=enough)
    try:
        planes = raster.planes(view.window)
        box, mask = _region(view, planes[0].size)
        if box != (0, 0, *planes[0].size):
            # Crop first: a resizing filter would use pixels beyond the edges of the box.
            planes = [plane.crop(box) for plane in planes]
            mask = None if mask is None else mask.crop(box)
            box = (0, 0, *planes[0].size)
        if canvas is None:
            canvas = _scaled(box[3] - box[1], box[2] - box[0], long_side)
        return _placed(planes, mask, box, view, canvas, gap)
    except MemoryError as error:
        raise UnreadableImage("there is not enough memory for it") from error


def _placed(
    planes: list[Image.Image],
    mask: Image.Image | None,
    box: Box,
    view: View,
    canvas: tuple[int, int],
    gap: float,
) -> tuple[NDArray[np.float32], Bools | None]:
    content, pads = canvas, ((0, 0), (0, 0))
    if view.fit == "crop":
        box = _central(box, canvas)
    elif view.fit == "pad":
        width, height = box[2] - box[0], box[3] - box[1]
        scale = min(canvas[0] / height, canvas[1] / width)
        content = (
            min(canvas[0], max(1, round(height * scale))),
            min(canvas[1], max(1, round(width * scale))),
        )
        pads = (_halves(canvas[0] - content[0]), _halves(canvas[1] - content[1]))
    inside = np.ones(content, np.bool_)
    if mask is not None:
        inside = np.asarray(mask.resize(content[::-1], Image.Resampling.NEAREST, box)) > 0
    if not inside.any():
        raise UnreadableImage("the mask leaves nothing of it to see")
    frame = _resized(planes, content, box, _FILTERS[view.resample], gap)
    if content != canvas:
        frame = np.pad(frame, ((0, 0), *pads), mode="edge")
        inside = np.pad(inside, pads)
    return frame, None if inside.all() else inside


def _window(box: tuple[int, int, int, int], view: View, canvas: tuple[int, int]) -> Box:
    """The part of the image that the canvas shows; with "pad" it extends beyond the box."""
    if view.fit == "stretch":
        return box
    if view.fit == "crop":
        return _central(box, canvas)
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    scale = min(canvas[0] / height, canvas[1] / width)
    wide, high = canvas[1] / scale, canvas[0] / scale
    x, y = left - (wide - width) / 2, top - (high - height) / 2
    return x, y, x + wide, y + high


def _resized(
    planes: list[Image.Image],
    size: tuple[int, int],
    box: Box,
    kind: Image.Resampling,
    gap: float,
) -> NDArray[np.float32]:
    # pillow's filters widen with the reduction, so they average and skip no pixels.
    resized = [
        np.asarray(plane.resize(size[::-1], kind, box, reducing_gap=gap)) for plane in planes
    ]
    if resized[0].dtype == np.uint8:
        levels = resized[0]
        scaled = np.empty((3, *size), np.float32)
        scaled[...] = np.moveaxis(levels, 2, 0) if levels.ndim == 3 else levels
        scaled /= np.float32(255)
        return scaled
    # Clip again: the filter may leave 0..1 by rounding, and a bicubic one by more.
    frame: NDArray[np.float32] = np.broadcast_to(np.stack(resized), (3, *size))
    return np.clip(frame, 0, 1)


def _region(
    view: View, size: tuple[int, int]
) -> tuple[tuple[int, int, int, int], Image.Image | None]:
    """The box that the view uses of an image, in whole pixels, and the mask at the image's size."""
    width, height = size
    if view.mask is not None:
        mask = _mask(view.mask).image.resize(size, Image.Resampling.NEAREST)
        covered = mask.getbbox()
        if covered is None:
            raise UnreadableImage(f"the mask leaves nothing of its {width} x {height} pixels")
        return covered, mask
    if view.roi is None:
        return (0, 0, width, height), None
    across, down = (width, height) if max(view.roi) <= 1 else (1, 1)
    left, top = math.floor(view.roi[0] * across), math.floor(view.roi[1] * down)
    right, bottom = math.ceil(view.roi[2] * across), math.ceil(view.roi[3] * down)
    box = (left, top, min(right, width), min(bottom, height))
    if box[0] >= box[2] or box[1] >= box[3]:
        raise UnreadableImage(
            f"the roi {','.join(f'{v:g}' for v in view.roi)} lies outside its "
            f"{width} x {height} pixels"
        )
    return box, None


def _central(box: Box, canvas: tuple[int, int]) -> Box:
    """The largest central part of a box with the aspect of the canvas."""
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    scale = max(canvas[0] / height, canvas[1] / width)
    # Rounding must not move the part over the edge of the box: pillow refuses that.
    kept_h, kept_w = min(height, canvas[0] / scale), min(width, canvas[1] / scale)
    x, y = left + (width - kept_w) / 2, top + (height - kept_h) / 2
    return x, y, min(right, x + kept_w), min(bottom, y + kept_h)


def _scaled(height: int, width: int, long_side: int) -> tuple[int, int]:
    scale = long_side / max(height, width)
    return max(1, round(height * scale)), max(1, round(width * scale))


def _halves(total: int) -> tuple[int, int]:
    return total // 2, total - total // 2


def _mask(mask: Path | bytes) -> _Mask:
    if isinstance(mask, bytes):
        return _read_mask(mask, 0, len(mask))
    try:
        status = mask.stat()
    except OSError as error:
        raise InputError(
            f"The mask {_mask_name(mask)} cannot be read: {error.strerror}. Check the path."
        ) from error
    return _read_mask(mask, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read_mask(mask: Path | bytes, _changed: int, _size: int) -> _Mask:
    try:
        raster = load(mask, MAX_PIXELS, backdrop="black")
    except UnreadableImage as error:
        raise InputError(f"The mask {_mask_name(mask)} cannot be used: {error}.") from error
    values = raster.pixels16 if raster.pixels8 is None else np.asarray(raster.pixels8)
    assert values is not None
    inside = np.any(values.reshape(*values.shape[:2], -1) != 0, axis=2)
    if raster.opacity is not None:
        inside &= raster.opacity > 0
    if not inside.any():
        raise InputError(
            f"The mask {_mask_name(mask)} covers nothing: all its pixels are zero. "
            "Paint the part to use in white."
        )
    content = mask if isinstance(mask, bytes) else mask.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return _Mask(Image.fromarray(inside.astype(np.uint8) * 255), digest)


def _mask_name(mask: Path | bytes) -> str:
    return "of the run" if isinstance(mask, bytes) else f"'{printable(mask)}'"


def _sample(source: Source, max_pixels: int, budget: int) -> NDArray[np.float64]:
    """At most about `budget` values of an image of more than 8 bits, evenly spread over it."""
    try:
        raster = load(source, max_pixels)
    except UnreadableImage:
        return np.empty(0)
    assert raster.pixels16 is not None
    height, width, channels = raster.pixels16.shape
    step = max(1, math.ceil(height * width * channels / budget))
    # A step that shares a factor with the width would sample only some columns.
    while math.gcd(step, width) > 1:
        step += 1
    values = raster.pixels16.reshape(-1, channels)[::step]
    if raster.opacity is not None:
        values = values[raster.opacity.reshape(-1)[::step] > 0]
    numbers = values.astype(np.float64).ravel()
    return numbers[np.isfinite(numbers)]

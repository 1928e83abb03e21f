"""Decode image files (or arrays) to the pixels that a backbone sees, at their full bit depth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.core.errors import OptionError
from flawsort.core.records import Bools, Source
from flawsort.core.text import printable
from flawsort.images.budget import resizing_bytes
from flawsort.images.decode import MAX_PIXELS, Raster, loaded, upright_size
from flawsort.images.decode import UnreadableImage as UnreadableImage
from flawsort.images.mask import mask_name, read_mask

MAX_TILES = 16
# The share of a tile that its neighbour shows too. Half of it is the surroundings of the patches at
# the border: two patches of 32 on each side.
OVERLAP = 1 / 8

_FITS = ("stretch", "pad", "crop")
_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}

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
    tiles: rows and columns of tiles that the view is looked at in, each as large as the backbone's
        input. None: in a fit the size of the images decides; elsewhere one tile.
    overlap: let neighbouring tiles overlap, so that each patch is seen with its surroundings.
    resample: "bilinear" or "bicubic"; both average when they reduce.
    window: the values that become 0 and 1 in images of more than 8 bits.
    max_pixels: larger images are refused before they are decoded.
    """

    fit: Literal["stretch", "pad", "crop"] = "stretch"
    roi: Box | None = None
    mask: Path | bytes | None = None
    tiles: tuple[int, int] | None = None
    overlap: bool = True
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
        if len(self.layout) != 2 or not all(
            isinstance(n, int) and 1 <= n <= MAX_TILES for n in self.layout
        ):
            raise OptionError(
                f"must be rows and columns from 1 to {MAX_TILES}, or None. Got {self.tiles}.",
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

    @property
    def layout(self) -> tuple[int, int]:
        """Rows and columns of tiles, (1, 1) if nothing was chosen."""
        return self.tiles or (1, 1)

    def steps(self, size: tuple[int, int]) -> tuple[int, int]:
        """The pixels from one tile to the next, downwards and across. size: as for `decode`."""
        shared = OVERLAP if self.overlap else 0
        return size[0] - int(shared * size[0]), size[1] - int(shared * size[1])

    def canvas(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of all tiles together, in pixels. size: as for `decode`."""
        (rows, columns), (down, across) = self.layout, self.steps(size)
        return (rows - 1) * down + size[0], (columns - 1) * across + size[1]

    def shown(self, image: tuple[int, int]) -> tuple[int, int]:
        """Height and width of what the view shows of an upright image of this width and height.
        UnreadableImage if nothing is left of it."""
        left, top, right, bottom = _region(self, image)[0]
        return bottom - top, right - left

    def describe(self) -> dict[str, Any]:
        """The view as JSON values for manifests and cache keys, with the SHA-256 of the mask."""
        return {
            "fit": self.fit,
            "roi": None if self.roi is None else [float(value) for value in self.roi],
            "mask": None if self.mask is None else read_mask(self.mask).digest,
            "tiles": [int(n) for n in self.layout],
            "overlap": self.overlap,
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
        elif (found := read_mask(mask).digest) != described["mask"]:
            raise OptionError(
                f"The mask must be the file that the view was made with, SHA-256 "
                f"{described['mask'][:12]}... Got {mask_name(mask)}, {found[:12]}..."
            )
        rows, columns = described["tiles"]
        return cls(
            fit=described["fit"],
            roi=None if described["roi"] is None else tuple(described["roi"]),
            mask=mask,
            tiles=(rows, columns),
            overlap=described.get("overlap", False),  # tiles of older runs do not overlap
            resample=described.get("resample", "bilinear"),  # runs made before there was a choice
            window=None if described["window"] is None else tuple(described["window"]),
            max_pixels=described["max_pixels"],
        )


@dataclass(frozen=True)
class Pixels:
    """The input of the backbone for one image, in tiles.

    canvas: (3, height, width), RGB, uint8 or floats in 0..1: all tiles together. inside: (height,
    width), False on padding and outside the mask; None: all. corners: top and left of each tile,
    row by row. size: (height, width) of a tile.
    """

    canvas: NDArray[Any]
    inside: Bools | None
    corners: tuple[tuple[int, int], ...]
    size: tuple[int, int]
    needs: int = 0

    @property
    def frames(self) -> NDArray[np.float32]:
        """(n_tiles, 3, height, width) in 0..1."""
        return self.some(0, len(self.corners))

    def some(self, start: int, stop: int) -> NDArray[np.float32]:
        """The frames from `start` to `stop`: a large photo as floats would take much memory."""
        high, wide = self.size
        corners = self.corners[start:stop]
        frames = np.empty((len(corners), 3, high, wide), np.float32)
        for frame, (top, left) in zip(frames, corners, strict=True):
            frame[...] = self.canvas[:, top : top + high, left : left + wide]
        if self.canvas.dtype == np.uint8:
            frames /= np.float32(255)
        return frames


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


def parse_tiles(text: str) -> tuple[int, int] | None:
    """Rows and columns from "2x3", or from "2" for 2 x 2; None from "auto"."""
    if text == "auto":
        return None
    parts = text.lower().split("x")
    counts = [int(part) for part in parts if part.strip().isdecimal()]
    if len(counts) != len(parts) or len(parts) > 2 or not all(1 <= n <= MAX_TILES for n in counts):
        raise OptionError(
            f"must be auto, or like 2x3 (rows x columns) or 2, from 1 to {MAX_TILES} each. "
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
    digest: str | None = None,
) -> Pixels:
    """The pixels of an image as the backbone sees them. size: (height, width) of its input.

    source: a file, the content of a file, or an array. The image is turned upright (EXIF); the
    first frame is used, as RGB. Transparent pixels become white, as viewers show them, because the
    colours under them are arbitrary. reducing_gap: an image more than this many times too large
    is first reduced by averaging whole blocks. digest: the SHA-256 that the file must have. Raises
    UnreadableImage for content that cannot be used, or that the budget for decoding is too small
    for.
    """
    frame, inside, needs = _fitted(source, view, view.canvas(size), gap=reducing_gap, digest=digest)
    (rows, columns), (down, across) = view.layout, view.steps(size)
    corners = tuple((row * down, col * across) for row in range(rows) for col in range(columns))
    return Pixels(frame, inside, corners, size, needs)


def thumbnail(source: Source, view: View, size: tuple[int, int], long_side: int) -> Image.Image:
    """The view of an image as an RGB picture, with `long_side` pixels on its longer side.

    The patch grid stretched over it lies exactly on its patches. With "stretch" the picture has the
    aspect of the region seen; with "pad" (padding included) and "crop", that of all tiles together.
    size: as for `decode`.
    """
    canvas = None
    if view.fit != "stretch":
        canvas = _scaled(*view.canvas(size), long_side)
    frame, _, _ = _fitted(source, view, canvas, long_side)
    if frame.dtype != np.uint8:
        frame = np.rint(frame * 255).astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(frame.transpose(1, 2, 0)))


def frame_of(view: View, size: tuple[int, int], image: tuple[int, int]) -> Box:
    """The part of an upright image of this width and height that the grid of patches is stretched
    over, in pixels; with "pad" it extends beyond the image. size: as for `decode`."""
    seen, _ = _region(view, image)
    return _window(seen, view, view.canvas(size))


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
    left, top, right, bottom = _window(seen, view, view.canvas(size))
    corner, span = np.array([left, top] * 2), np.array([right - left, bottom - top] * 2)
    low, high = np.array([seen[0], seen[1]] * 2), np.array([seen[2], seen[3]] * 2)
    inside = np.clip(corner + boxes * span, low, high)
    fractions: NDArray[np.float64] = inside / np.array([width, height] * 2)
    return fractions


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
    digest: str | None = None,
) -> tuple[NDArray[Any], Bools | None, int]:
    """The view of an image on a canvas (height, width). None: a canvas with the aspect of the
    region, `long_side` long. gap, digest: see `decode`.

    Returns (3, height, width), uint8 or floats in 0..1; (height, width), True inside, None for all
    inside; and the bytes that it was known to take.
    """
    whole = view.roi is None and view.mask is None
    # A region in pixels refers to the full-size image, so reduce only without one.
    enough = int(gap * max(canvas or (long_side,))) if whole else None

    def further(size: tuple[int, int], planes: int) -> int:
        # A part of an image is a copy of it, and a mask has two bytes a pixel.
        copies = 0 if whole else size[0] * size[1] * (2 + (4 * planes or 4))
        return copies + resizing_bytes(size, canvas or (long_side, long_side), planes)

    if view.mask is not None:
        read_mask(view.mask)  # now: it would wait for memory that this image holds
    with loaded(source, view.max_pixels, enough=enough, digest=digest, further=further) as raster:
        try:
            return *_framed(raster, view, canvas, long_side, gap), raster.needs
        except MemoryError as error:
            raise UnreadableImage("there is not enough memory for it") from error


def _framed(
    raster: Raster, view: View, canvas: tuple[int, int] | None, long_side: int, gap: float
) -> tuple[NDArray[Any], Bools | None]:
    """See `_fitted`."""
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


def _placed(
    planes: list[Image.Image],
    mask: Image.Image | None,
    box: Box,
    view: View,
    canvas: tuple[int, int],
    gap: float,
) -> tuple[NDArray[Any], Bools | None]:
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
) -> NDArray[Any]:
    # pillow's filters widen with the reduction, so they average and skip no pixels.
    resized = [
        np.asarray(plane.resize(size[::-1], kind, box, reducing_gap=gap)) for plane in planes
    ]
    if resized[0].dtype == np.uint8:
        levels = resized[0]
        return np.broadcast_to(
            np.moveaxis(levels, 2, 0) if levels.ndim == 3 else levels, (3, *size)
        )
    # Clip again: the filter may leave 0..1 by rounding, and a bicubic one by more.
    frame: NDArray[np.float32] = np.stack(resized)
    np.clip(frame, 0, 1, out=frame)
    return np.broadcast_to(frame, (3, *size))


def _region(
    view: View, size: tuple[int, int]
) -> tuple[tuple[int, int, int, int], Image.Image | None]:
    """The box that the view uses of an image, in whole pixels, and the mask at the image's size."""
    width, height = size
    if view.mask is not None:
        mask = read_mask(view.mask).image.resize(size, Image.Resampling.NEAREST)
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

"""Heat maps on one calibrated scale: normal images stay cold, flaws are hot.

One scale serves a whole set. With a scale for each image, the least normal patch of a good part
would look as hot as a real flaw.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bools, Floats
from flawsort.embeddings.weights import image_scores

NORMAL_DEVIATIONS = 2.0
"""An image looks normal if its score is at most this many standard deviations above the mean of
the normals, each compared with the others."""

NORMAL_GROUP_SHARE = 0.9
"""A group looks normal when at least this share of its images does."""


@dataclass(frozen=True)
class MeasuredPrecision:
    """The share of good images among those that look normal, on public sets. mean: over the sets,
    which all count the same. lowest, highest: of a single set."""

    n_sets: int
    mean: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        wrong, least, most = (round(100 * (1 - p)) for p in (self.mean, self.highest, self.lowest))
        return (
            f"Not every image that looks normal is good. On {self.n_sets} public sets, with the "
            f"default, {wrong} in 100 of them were flawed on average, and from {least} to {most} "
            "in a single set."
        )


# With the default, from the table "Good or flawed" of docs/evidence/results.md. People see it in
# the terminal and in the report.
NORMAL_PRECISION = MeasuredPrecision(n_sets=13, mean=0.76, lowest=0.15, highest=1.00)

NORMAL_PERCENTILE = 99.0
HOT_PERCENTILE = 95.0
OPACITY = 0.6
# Pixels of the picture of a heat map for each patch, in each direction.
HEAT_ZOOM = 8

# (heat, red, green, blue). Lightness increases from violet to pale yellow, so the order is visible
# with any kind of colour blindness and in a black-and-white print.
COLOUR_STOPS = (
    (0.00, 62, 28, 116),
    (0.25, 134, 36, 128),
    (0.50, 212, 62, 84),
    (0.75, 247, 142, 44),
    (1.00, 255, 236, 130),
)


@dataclass(frozen=True)
class HeatScale:
    """Maps scores to heat: 0 at or below `low`, 1 at or above `high`. normal_below: an image with
    this score or a lower one looks normal; None if that is not known."""

    low: float
    high: float
    normal_below: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise OptionError(
                f"low must be finite and less than high. Got low={self.low}, high={self.high}."
            )

    def normalise(self, scores: Floats) -> NDArray[np.float64]:
        """The heat of scores, in 0..1, with the same shape. NaN becomes 0."""
        values = np.nan_to_num(
            np.asarray(scores, dtype=np.float64), nan=self.low, posinf=self.high, neginf=self.low
        )
        heat: NDArray[np.float64] = np.clip((values - self.low) / (self.high - self.low), 0.0, 1.0)
        return heat


def calibrate(
    scores: Floats,
    valid: Bools | None = None,
    normal_scores: Floats | None = None,
    *,
    tile: tuple[int, int] | None = None,
) -> HeatScale:
    """The scale for a set of images.

    scores, valid: (n_images, n_patches). normal_scores: (n_normals, n_patches), of known-normal
    images; without them, the half of the set with the lowest image maxima is used instead.
    tile: see Bags. `low` is the 99th percentile of normal patches; for photos of several tiles a
    higher one, so that a normal photo has no more hot patches than a normal image. `high` is the
    95th percentile of image maxima, but never closer to `low` than `low` is to the median normal
    patch: otherwise noise would look hot in a set without flaws.
    """
    patches = _masked(scores, valid)
    maxima = np.nanmax(patches, axis=1, initial=-np.inf)
    patches, maxima = patches[np.isfinite(maxima)], maxima[np.isfinite(maxima)]
    known = normal_scores is not None and bool(np.isfinite(normal_scores).any())
    if normal_scores is not None and known:
        normal = _masked(normal_scores, None)
    else:
        order = np.argsort(maxima, kind="stable")
        normal = patches[order[: (len(order) + 1) // 2]]
    if not len(patches) or not np.isfinite(normal).any():
        return HeatScale(0.0, 1.0)
    share = 1.0 if tile is None else tile[0] * tile[1] / patches.shape[1]
    low = float(np.nanpercentile(normal, 100 - share * (100 - NORMAL_PERCENTILE)))
    spread = low - float(np.nanmedian(normal))
    high = max(float(np.percentile(maxima, HOT_PERCENTILE)), low + spread)
    # Constant scores have no spread: everything is then cold.
    high = high if high - low > 1e-9 * max(1.0, abs(low)) else low + 1.0
    return HeatScale(low, high, _normal_below(normal, tile) if known else None)


def _normal_below(normal: NDArray[np.float64], tile: tuple[int, int] | None) -> float | None:
    """The highest score with which an image looks normal. normal: (n_normals, n_patches), NaN where
    a patch does not count."""
    counted = np.isfinite(normal)
    normal, counted = normal[counted.any(axis=1)], counted[counted.any(axis=1)]
    whole = image_scores(np.where(counted, normal, 0.0), counted, tile)
    return float(whole.mean() + NORMAL_DEVIATIONS * whole.std()) if len(whole) > 1 else None


def colour_table(opacity: float = 1.0) -> NDArray[np.uint8]:
    """The colour map as (256, 4) red, green, blue, alpha; alpha grows from 0 to `opacity`."""
    heat = np.linspace(0.0, 1.0, 256)
    stops = np.array(COLOUR_STOPS, dtype=np.float64)
    table = np.empty((256, 4))
    for channel in range(3):
        table[:, channel] = np.interp(heat, stops[:, 0], stops[:, channel + 1])
    table[:, 3] = 255.0 * opacity * heat**0.75
    return np.rint(table).astype(np.uint8)


def heat_picture(
    heat: Floats,
    grid: tuple[int, int],
    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
) -> bytes:
    """A heat map as a PNG with red, green, blue and opacity: the hotter, the less transparent. It
    is made to be stretched over the image, or over a box of it: left, top, right and bottom in
    fractions. heat: (n_patches,), 0..1, row by row."""
    rows, columns = grid
    small = Image.fromarray(np.asarray(heat, np.float32).reshape(rows, columns))
    part = (box[0] * columns, box[1] * rows, box[2] * columns, box[3] * rows)
    wide, high = (max(1, round(HEAT_ZOOM * (part[side + 2] - part[side]))) for side in (0, 1))
    large = small.resize((wide, high), Image.Resampling.BICUBIC, part)
    index = np.rint(np.clip(np.asarray(large), 0.0, 1.0) * 255).astype(np.uint8)
    content = io.BytesIO()
    Image.fromarray(colour_table()[index], "RGBA").save(content, "PNG", compress_level=4)
    return content.getvalue()


def overlay(
    image: Image.Image,
    scores: Floats,
    grid: tuple[int, int],
    scale: HeatScale,
    opacity: float = OPACITY,
) -> Image.Image:
    """`image` with its heat map over it, same size, RGB.

    scores: (n_patches,), row by row; grid: rows and columns, stretched over the whole image.
    """
    if not 0.0 <= opacity <= 1.0:
        raise OptionError(f"opacity must be between 0 and 1. Got {opacity}.")
    if scores.shape != (grid[0] * grid[1],):
        raise InputError(
            f"scores must have the shape ({grid[0] * grid[1]},), one for each patch of the "
            f"{grid[0]} x {grid[1]} grid. Got {scores.shape}."
        )
    heat = scale.normalise(scores).reshape(grid).astype(np.float32)
    smooth = Image.fromarray(heat).resize(image.size, Image.Resampling.BICUBIC)
    index = np.rint(np.clip(np.asarray(smooth), 0.0, 1.0) * 255).astype(np.uint8)
    layer = colour_table(opacity)[index].astype(np.float32)
    alpha = layer[..., 3:] / 255.0
    base = np.asarray(image.convert("RGB"), dtype=np.float32)
    return Image.fromarray(np.rint(base + (layer[..., :3] - base) * alpha).astype(np.uint8))


def _masked(scores: Floats, valid: Bools | None) -> NDArray[np.float64]:
    """A copy of (n_images, n_patches) scores with NaN where a patch does not count."""
    values = np.array(scores, dtype=np.float64)
    if values.ndim != 2:
        raise InputError(f"scores must have the shape (n_images, n_patches). Got {values.shape}.")
    keep: NDArray[Any] = np.isfinite(values)
    if valid is not None:
        if valid.shape != values.shape:
            raise InputError(f"valid must have the shape {values.shape}. Got {valid.shape}.")
        keep &= valid
    values[~keep] = np.nan
    return values

"""Close-ups: a place with its surroundings, and the matching place of another image.

Boxes are left, top, right and bottom. They are in pixels of the upright image, or in any other unit
that is the same along both sides. A frame is the box that the grid of patches is stretched over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.core.grids import Grid
from flawsort.core.records import Floats
from flawsort.images.originals import cut
from flawsort.images.view import Box

# How many patches down and across a place lies in another image.
Move: TypeAlias = tuple[int, int]

# A close-up is this many times as wide as the place that it shows, and at least so many patches.
WIDER = 2.0
LEAST_PATCHES = 8.0
# Places are aligned by at most so many patches, on pictures of at most this many pixels.
ALIGNED_BY = 1.0
ALIGNED_AT = 192
# What a pixel farther away must be better, so that a plain surface is not moved by its noise.
STAY = 1e-3


@dataclass(frozen=True)
class Sheet:
    """An image that close-ups are cut from. picture: the whole image, which may be reduced. size:
    its width and height at full resolution. frame: the box that the grid of patches covers."""

    picture: Image.Image
    size: tuple[int, int]
    frame: Box

    def cut(self, box: Box, size: tuple[int, int]) -> Image.Image:
        """A box of the image at full resolution, as a picture of this width and height."""
        across, down = self.picture.width / self.size[0], self.picture.height / self.size[1]
        left, top, right, bottom = box
        return cut(self.picture, (left * across, top * down, right * across, bottom * down), size)


def close_up_box(place: Box, frame: Box, grid: Grid, move: Move = (0, 0)) -> Box:
    """The square around a place, moved into the frame; where the frame is narrower, all of it.
    move: of the matching place in another image, whose frame it is kept within, too."""
    wide, high = frame[2] - frame[0], frame[3] - frame[1]
    side = max(
        WIDER * (place[2] - place[0]),
        WIDER * (place[3] - place[1]),
        LEAST_PATCHES * max(wide / grid[1], high / grid[0]),
    )
    across, down = move[1] * wide / grid[1], move[0] * high / grid[0]
    left, right = _around(
        (place[0] + place[2]) / 2, side, frame[0] - min(across, 0), frame[2] - max(across, 0)
    )
    top, bottom = _around(
        (place[1] + place[3]) / 2, side, frame[1] - min(down, 0), frame[3] - max(down, 0)
    )
    return left, top, right, bottom


def whole_pixels(box: Box) -> Box:
    """The box in whole pixels, at least one wide and high."""
    left, top, right, bottom = map(round, box)
    return left, top, max(right, left + 1), max(bottom, top + 1)


def matching_box(box: Box, frame: Box, other: Box, move: Move, grid: Grid) -> Box:
    """Where a box lies in another image. frame, other: of the two images."""
    steps = (move[1] / grid[1], move[0] / grid[0]) * 2
    spans = [(one[2] - one[0], one[3] - one[1]) * 2 for one in (frame, other)]
    left, top, right, bottom = (
        other[side % 2]
        + ((box[side] - frame[side % 2]) / spans[0][side] + steps[side]) * spans[1][side]
        for side in range(4)
    )
    return left, top, right, bottom


def picture_size(box: Box, longest: int) -> tuple[int, int]:
    """Width and height of a picture of a box at full resolution, or `longest` pixels long."""
    wide, high = box[2] - box[0], box[3] - box[1]
    scale = min(1.0, longest / max(wide, high))
    return max(1, round(wide * scale)), max(1, round(high * scale))


def matching_picture(
    here: Image.Image, box: Box, place: Box, there: Sheet, other: Box, grid: Grid
) -> Image.Image:
    """The picture of the matching place, as large as `here` and aligned with it.

    here: the picture of a box, in which `place` is unusual. other: the matching box in the image
    `there`. grid: of its patches.
    """
    margins, around = [], list(other)
    for axis in (0, 1):
        by = here.size[axis] / (other[axis + 2] - other[axis])
        patch = (there.frame[axis + 2] - there.frame[axis]) / grid[1 - axis]
        margins.append(max(1, round(ALIGNED_BY * patch * by)))
        around[axis] -= margins[axis] / by
        around[axis + 2] += margins[axis] / by
    size = (here.width + 2 * margins[0], here.height + 2 * margins[1])
    larger = there.cut((around[0], around[1], around[2], around[3]), size)
    across, down = shift_between(here, larger, _within(place, box, here.size))
    left, top = margins[0] + across, margins[1] + down
    return larger.crop((left, top, left + here.width, top + here.height))


def shift_between(here: Image.Image, there: Image.Image, left_out: Box) -> tuple[int, int]:
    """How far to the right and down in `there` lies what `here` shows, in pixels.

    there: wider and higher than `here` by twice the largest shift, which is expected in the middle.
    left_out: the box in `here` that is not compared: the unusual place itself.
    """
    margin = ((there.width - here.width) // 2, (there.height - here.height) // 2)
    scale = min(1.0, ALIGNED_AT / max(there.size))
    small = [
        np.asarray(_reduced(picture, scale).convert("L"), np.float64) for picture in (here, there)
    ]
    template, window = small
    counts = np.ones(template.shape)
    left, top, right, bottom = (round(value * scale) for value in left_out)
    counts[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = 0
    if counts.sum() < 0.25 * counts.size:  # the place fills the picture
        counts[:] = 1
    values = _correlation(template, window, counts)
    middle = np.array([margin[1], margin[0]]) * scale
    down, across = np.mgrid[: values.shape[0], : values.shape[1]]
    values -= STAY * np.hypot(down - middle[0], across - middle[1])
    best = np.unravel_index(values.argmax(), values.shape)
    shift = (np.array(best) - middle) / scale
    return (
        int(np.clip(round(shift[1]), -margin[0], margin[0])),
        int(np.clip(round(shift[0]), -margin[1], margin[1])),
    )


def _within(place: Box, box: Box, size: tuple[int, int]) -> Box:
    """A place in pixels of a picture of this size, which shows a box."""
    across, down = size[0] / (box[2] - box[0]), size[1] / (box[3] - box[1])
    return (
        (place[0] - box[0]) * across,
        (place[1] - box[1]) * down,
        (place[2] - box[0]) * across,
        (place[3] - box[1]) * down,
    )


def _around(middle: float, side: float, low: float, high: float) -> tuple[float, float]:
    """The part of a line of this length around its middle, within two limits."""
    if side >= high - low:
        return low, high
    start = min(max(middle - side / 2, low), high - side)
    return start, start + side


def _reduced(picture: Image.Image, scale: float) -> Image.Image:
    if scale == 1:
        return picture
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.BOX)


def _correlation(template: Floats, window: Floats, counts: Floats) -> NDArray[np.float64]:
    """The normalised correlation of a template with each place of a window where it fits. counts:
    which pixels of the template count."""
    shape = (window.shape[0], window.shape[1])
    n = counts.sum()
    own = (template - (template * counts).sum() / n) * counts

    def slid(values: Floats, over: Floats) -> NDArray[np.float64]:
        product = np.fft.rfft2(over) * np.conj(np.fft.rfft2(values, shape))
        found: NDArray[np.float64] = np.fft.irfft2(product, shape)
        fits = tuple(w - t + 1 for w, t in zip(window.shape, template.shape, strict=True))
        return found[: fits[0], : fits[1]]

    both = slid(own, window)
    spread = slid(counts, window**2) - slid(counts, window) ** 2 / n
    length = np.sqrt(np.maximum(spread, 1e-6) * max(float((own**2).sum()), 1e-6))
    found: NDArray[np.float64] = both / length
    return found

"""What small pictures of images show besides flaws: light, colour, where the part lies, how it is
turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.core.grids import Grid, interpolated
from flawsort.core.records import Bools, Floats
from flawsort.core.threads import in_threads
from flawsort.images.originals import kept_picture

# Pictures are measured as this many squares down and across.
SIDE = 32
# A square with more heat than this may show the flaw.
COLD = 0.1
# With fewer cold squares than this share, all squares count.
LEAST_COLD = 0.1
# A background is plain if this share of the squares at the border is alike, and alike are colours
# that differ by less than this, of 255.
LEAST_ALIKE = 0.7
ALIKE = 24.0
# A part covers between these shares of its picture.
PART = (0.02, 0.9)


@dataclass(frozen=True)
class Pictured:
    """What was measured on pictures; each (n,), NaN without a picture.

    brightness: 0..255. red, blue: how much more red than green, and blue than both. across, down:
    the centre of the part on a plain background, in fractions of the picture, or NaN. turned:
    (n, 2), the main direction of edges, as cosine and sine of its double angle times how much they
    share it. background: (n, SIDE, SIDE), which squares surely show the plain background.
    """

    brightness: NDArray[np.float64]
    red: NDArray[np.float64]
    blue: NDArray[np.float64]
    across: NDArray[np.float64]
    down: NDArray[np.float64]
    turned: NDArray[np.float64]
    background: NDArray[np.bool_]


def cold_squares(heat: Floats, grid: Grid) -> Bools:
    """(n, SIDE, SIDE): the squares that surely show no flaw. heat: (n, n_patches) on the grid."""
    cold: Bools = interpolated(heat, grid, (SIDE, SIDE)).reshape(-1, SIDE, SIDE) < COLD
    return cold


def measured(pictures: Sequence[bytes], cold: Bools) -> Pictured:
    """pictures: a JPEG of what each image's view shows, or empty bytes. cold: of each, as of
    `cold_squares`; light and colour are measured there, so that the flaw does not count."""

    def measure(row: int) -> tuple[list[float], NDArray[np.bool_]]:
        if not pictures[row]:
            return [np.nan] * 7, np.zeros((SIDE, SIDE), bool)
        picture = kept_picture(pictures[row], 4 * SIDE)
        small = picture.resize((2 * SIDE, 2 * SIDE), Image.Resampling.BOX)
        fine = np.asarray(small, np.float64)
        squares = fine.reshape(SIDE, 2, SIDE, 2, 3).mean(axis=(1, 3))
        light = _light(squares, cold[row])
        background = _background(squares)
        turned = _direction(fine.mean(axis=2))
        return [*light, *_place(background), *turned], _without_edge(background)

    rows = list(in_threads(measure, range(len(pictures))))
    values = np.array([numbers for numbers, _ in rows]).reshape(-1, 7).T
    backgrounds = np.array([background for _, background in rows]).reshape(-1, SIDE, SIDE)
    brightness, red, blue, across, down = values[:5]
    return Pictured(brightness, red, blue, across, down, values[5:].T, backgrounds)


def _light(squares: NDArray[np.float64], cold: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Brightness, red and blue of the squares that are cold."""
    if cold.mean() < LEAST_COLD:
        cold = np.ones_like(cold)
    red, green, blue = squares[cold].mean(axis=0)
    return (red + green + blue) / 3, red - green, blue - (red + green) / 2


def _background(squares: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(SIDE, SIDE): the squares that look like those at the border; none if the border is not
    plain, or if there is no part on it."""
    edge = np.concatenate([squares[0], squares[-1], squares[1:-1, 0], squares[1:-1, -1]])
    usual = np.median(edge, axis=0)
    alike = np.abs(squares - usual).mean(axis=2) <= ALIKE
    plain = (np.abs(edge - usual).mean(axis=1) <= ALIKE).mean() >= LEAST_ALIKE
    there = plain and PART[0] < 1 - alike.mean() < PART[1]
    return alike if there else np.zeros((SIDE, SIDE), bool)


def _place(background: NDArray[np.bool_]) -> tuple[float, float]:
    """The centre of the part, across and down; NaN without a plain background."""
    if not background.any():
        return np.nan, np.nan
    down, across = np.nonzero(~background)
    return (across.mean() + 0.5) / SIDE, (down.mean() + 0.5) / SIDE


def _without_edge(background: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Without the squares beside the part."""
    padded = np.pad(background, 1, constant_values=True)
    steps = [(down, across) for down in range(3) for across in range(3)]
    shifted = [padded[down : down + SIDE, across : across + SIDE] for down, across in steps]
    clear: NDArray[np.bool_] = np.logical_and.reduce(shifted)
    return clear


def _direction(grey: NDArray[np.float64]) -> tuple[float, float]:
    """The main direction of the edges, as described in Pictured."""
    down, across = np.gradient(grey)
    strength = down**2 + across**2
    total = strength.sum()
    if not total > 0:
        return 0.0, 0.0
    return float((across**2 - down**2).sum() / total), float((2 * across * down).sum() / total)

"""Values on one grid of patches brought to another: scores by interpolation, weights by area."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Floats

# Rows and columns.
Grid: TypeAlias = tuple[int, int]
_Matrix: TypeAlias = Callable[[int, int], NDArray[np.float64]]


def interpolated(values: Floats, old: Grid, new: Grid) -> NDArray[np.float32]:
    """(n, new rows * new columns): values, row by row, on another grid; see `resizing`.
    values: (n, old rows * old columns)."""
    return _along_both(values, old, new, resizing)


def shared_out(values: Floats, old: Grid, new: Grid) -> NDArray[np.float32]:
    """(n, new rows * new columns): each old cell shares its value out to the new cells that it
    overlaps, so that sums stay the same. values: (n, old rows * old columns)."""
    return _along_both(values, old, new, _shares)


def resizing(old: int, new: int) -> NDArray[np.float64]:
    """(new, old): to fewer cells by the mean over their area, so that no cell is skipped; to more
    by linear interpolation. On one axis."""
    return overlaps(old, new) if new < old else interpolation(old, new)


@cache
def overlaps(old: int, new: int) -> NDArray[np.float64]:
    """(new, old): the share of each new cell that each old cell covers, on one axis."""
    starts, ends = np.arange(new)[:, None] * old / new, np.arange(1, new + 1)[:, None] * old / new
    cells = np.arange(old)
    covered = np.minimum(ends, cells + 1) - np.maximum(starts, cells)
    shares: NDArray[np.float64] = covered.clip(min=0) * new / old
    return shares


@cache
def interpolation(old: int, new: int) -> NDArray[np.float64]:
    """(new, old): linear interpolation between the centres of cells on one axis, with constant
    values beyond the border."""
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.minimum(at.astype(int), max(old - 2, 0))
    between = np.zeros((new, old))
    between[np.arange(new), low] = 1 - (at - low)
    between[np.arange(new), np.minimum(low + 1, old - 1)] += at - low
    return between


@cache
def _shares(old: int, new: int) -> NDArray[np.float64]:
    """(new, old): the share of each old cell that lies in each new cell, on one axis."""
    return overlaps(old, new) * old / new


def _along_both(values: Floats, old: Grid, new: Grid, matrix: _Matrix) -> NDArray[np.float32]:
    if old == new:
        return np.asarray(values, np.float32)
    down, across = (matrix(a, b).astype(np.float32) for a, b in zip(old, new, strict=True))
    maps = np.asarray(values, np.float32).reshape(-1, *old)
    moved = np.matmul(np.matmul(down, maps), across.T)
    return np.asarray(moved.reshape(len(maps), new[0] * new[1]), np.float32)

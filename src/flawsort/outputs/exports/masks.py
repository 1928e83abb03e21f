"""Regions in pixels: cells of the patch grid as masks and as run lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Ints, Source
from flawsort.images.view import View, locate


@dataclass(frozen=True)
class Cutout:
    """A region in whole pixels of the upright image.

    left, top: the corner of its bounding box. mask: (height, width) of that box; each of its outer
    rows and columns has a pixel of the region. size: width and height of the image.
    """

    left: int
    top: int
    mask: Bools
    size: tuple[int, int]

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, width, height."""
        return self.left, self.top, int(self.mask.shape[1]), int(self.mask.shape[0])

    @property
    def area(self) -> int:
        return int(self.mask.sum())

    def whole(self) -> Bools:
        """The mask of the whole image, (height, width)."""
        found = np.zeros(self.size[::-1], bool)
        left, top, width, height = self.box
        found[top : top + height, left : left + width] = self.mask
        return found

    def part_runs(self) -> list[int]:
        """Run lengths of the bounding box, row by row: pixels outside, inside, outside, ..."""
        return run_lengths(self.mask.ravel())

    def row_runs(self) -> list[int]:
        """Run lengths of the whole image, row by row."""
        return _runs_along(self.mask, self.left, self.top, self.size[0], self.size[1])

    def column_runs(self) -> list[int]:
        """Run lengths of the whole image, column by column, as in COCO."""
        return _runs_along(self.mask.T, self.top, self.left, self.size[1], self.size[0])


@dataclass(frozen=True)
class Lattice:
    """The patch grid on the pixels of an image. across: (columns, 2), the first pixel of each
    column of patches and the one after its last; down: (rows, 2)."""

    across: NDArray[np.int64]
    down: NDArray[np.int64]
    size: tuple[int, int]

    def cut(self, cells: Ints) -> Cutout:
        """The pixels of some patches, at least one. cells: numbered row by row over the grid."""
        rows, columns = np.divmod(np.asarray(cells), len(self.across))
        down, across = self.down[rows.min() : rows.max() + 1], self.across[columns.min() :]
        across = across[: np.ptp(columns) + 1]
        grid = np.zeros((len(down), len(across)), bool)
        grid[rows - rows.min(), columns - columns.min()] = True
        left, top = int(across[0, 0]), int(down[0, 0])
        mask = grid.repeat(np.ptp(down, axis=1), axis=0).repeat(np.ptp(across, axis=1), axis=1)
        if not mask.any():  # patches smaller than a pixel
            left, top = min(left, self.size[0] - 1), min(top, self.size[1] - 1)
            return Cutout(left, top, np.ones((1, 1), bool), self.size)
        high, wide = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        part = np.ascontiguousarray(mask[high[0] : high[-1] + 1, wide[0] : wide[-1] + 1])
        return Cutout(left + int(wide[0]), top + int(high[0]), part, self.size)


def lattice(
    grid: tuple[int, int],
    view: View,
    input_size: tuple[int, int],
    source: Source,
    size: tuple[int, int],
) -> Lattice:
    """Where the patches of a view lie in an image. grid: rows and columns. input_size: of the
    backbone, as for `images.decode`. size: width and height of the upright image."""
    rows, columns = grid
    boxes = np.zeros((columns + rows, 4))
    boxes[:, 2:] = 1.0
    boxes[:columns, 0] = np.arange(columns) / columns
    boxes[:columns, 2] = np.arange(1, columns + 1) / columns
    boxes[columns:, 1] = np.arange(rows) / rows
    boxes[columns:, 3] = np.arange(1, rows + 1) / rows
    found = locate(boxes, view, input_size, source)
    across = _pixels(found[:columns, [0, 2]] * size[0])
    return Lattice(across, _pixels(found[columns:, [1, 3]] * size[1]), size)


def run_lengths(flat: Bools) -> list[int]:
    """The numbers of False, True, False, ... in turn; starts with 0 if the first is True."""
    changes = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff(changes, prepend=0, append=len(flat)).tolist()
    return [0, *counts] if len(flat) and flat[0] else counts


def _runs_along(mask: Bools, start: int, before: int, length: int, lines: int) -> list[int]:
    """mask: (some lines, some of each); `before` lines come before it, each is `length` long."""
    strip = np.zeros((len(mask), length), bool)
    strip[:, start : start + mask.shape[1]] = mask
    counts = run_lengths(strip.ravel())
    counts[0] += before * length
    after = (lines - before - len(mask)) * length
    if len(counts) % 2:
        counts[-1] += after
    elif after:
        counts.append(after)
    return counts


def _pixels(edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """A pixel belongs to the patch that contains its centre, so patches leave no gap."""
    # Rounded first, so that an edge at exactly half a pixel always falls to the same side.
    return np.ceil(np.round(edges, 6) - 0.5).astype(np.int64)

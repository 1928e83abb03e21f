"""Find the unusual regions of an image, because it may show several kinds of flaws.

The score map is treated as a landscape. Every peak that is hot enough makes a region, unless the
path to a higher peak hardly descends. The region is the upper part of the peak's basin. Each region
gets the embedding that the image would have with this flaw alone, so that it can be compared with
the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Floats, Ints
from flawsort.core.threads import blocks
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.weights import ROWS_AT_ONCE, soft_weights

# In heat, where 0 is the upper limit of normal patches (embeddings.heat). The lowest peak that
# makes a region:
SUMMIT = 0.1
# A peak makes its own region if the path to a higher one falls below this share of its heat.
SADDLE = 0.7
# A region extends down to this share of its peak; the rest is its glow.
EDGE = 0.35
# The largest number of regions of an image, the hottest ones; more are texture.
MOST_OF_AN_IMAGE = 16


@dataclass(frozen=True, repr=False)
class Outlines:
    """The positions of the regions of a set of images, sorted by image, then the hottest first.

    images: (n,), the row of each region's image, ascending. peaks: (n,), its highest score.
    cells: (n_cells,), the patches of all regions, region by region, each in ascending order.
    ends: (n,), where each region ends in `cells`.
    """

    images: NDArray[np.int64]
    peaks: NDArray[np.float32]
    cells: NDArray[np.int32]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        return f"Outlines({len(self)} regions of {len(np.unique(self.images))} images)"

    def __getitem__(self, region: int) -> NDArray[np.int32]:
        """The patches of a region."""
        return self.cells[self.ends[region - 1] if region else 0 : self.ends[region]]

    @classmethod
    def of(cls, found: Sequence[tuple[int, float, Ints]]) -> Outlines:
        """found: for each region its image, peak and patches."""
        cells = [np.asarray(patches, np.int32) for _, _, patches in found]
        return cls(
            np.array([image for image, _, _ in found], np.int64),
            np.array([peak for _, peak, _ in found], np.float32),
            np.concatenate(cells) if cells else np.empty(0, np.int32),
            np.cumsum([len(patches) for patches in cells], dtype=np.int64),
        )

    def take(self, regions: Sequence[int] | Ints, images: Sequence[int] | Ints) -> Outlines:
        """The given regions, in that order. images: the new image row of each."""
        rows = np.asarray(regions, np.int64)
        found = zip(images, self.peaks[rows], (self[row] for row in rows), strict=True)
        return Outlines.of([(int(image), float(peak), cells) for image, peak, cells in found])

    def touching(self, patches: Bools) -> Outlines:
        """The regions with at least one of the given patches. patches: (n_images, n_patches)."""
        kept = [row for row in range(len(self)) if patches[self.images[row], self[row]].any()]
        return self.take(kept, self.images[kept])

    def masks(self, n_patches: int) -> Bools:
        """(n, n_patches): which patches belong to each region."""
        masks = np.zeros((len(self), n_patches), bool)
        masks[np.repeat(np.arange(len(self)), np.diff(self.ends, prepend=0)), self.cells] = True
        return masks

    def without_others(self, n_patches: int) -> Bools:
        """(n, n_patches): for each region the patches of its image that no other region holds."""
        masks = self.masks(n_patches)
        held = np.zeros((int(self.images.max(initial=-1)) + 1, n_patches), bool)
        np.logical_or.at(held, self.images, masks)
        return masks | ~held[self.images]

    def shares(self, grid: tuple[int, int]) -> NDArray[np.float64]:
        """(n,): the share of the grid that each region covers."""
        return np.diff(self.ends, prepend=0) / (grid[0] * grid[1])

    def boxes(self, grid: tuple[int, int]) -> NDArray[np.float64]:
        """(n, 4): left, top, right, bottom, in fractions of the grid."""
        if not len(self):
            return np.empty((0, 4))
        down, across = np.divmod(self.cells, grid[1])
        starts = np.concatenate([[0], self.ends[:-1]])
        boxes = [
            np.minimum.reduceat(across, starts),
            np.minimum.reduceat(down, starts),
            np.maximum.reduceat(across, starts) + 1,
            np.maximum.reduceat(down, starts) + 1,
        ]
        return np.stack(boxes, axis=1) / [grid[1], grid[0], grid[1], grid[0]]


@dataclass(frozen=True)
class RegionFeatures:
    """The features of regions. vectors: (n_regions, dim). extents: (n_regions, n_extents)."""

    outlines: Outlines
    vectors: NDArray[np.float32]
    extents: NDArray[np.float64]


def join_regions(parts: Sequence[tuple[RegionFeatures, int]]) -> RegionFeatures:
    """The regions of several batches of images as one, in order. parts: for each batch its regions
    and its number of images; at least one batch."""
    found: list[tuple[int, float, Ints]] = []
    first = 0
    for regions, n_images in parts:
        outlines = regions.outlines
        for region in range(len(outlines)):
            image, peak = int(outlines.images[region]), float(outlines.peaks[region])
            found.append((first + image, peak, outlines[region]))
        first += n_images
    return RegionFeatures(
        Outlines.of(found),
        np.concatenate([regions.vectors for regions, _ in parts]),
        np.concatenate([regions.extents for regions, _ in parts]),
    )


def regions_of_images(outlines: Outlines, rows: Ints) -> tuple[NDArray[np.int64], Ints]:
    """(n,) the regions of all images, image by image, and (n,) the image of each.

    rows: (n_images,), the content of each image, as `outlines` numbers them. If two images have the
    same content, its regions occur twice.
    """
    first = np.searchsorted(outlines.images, rows, side="left")
    last = np.searchsorted(outlines.images, rows, side="right")
    counts = last - first
    images = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + within, images


def mask_text(cells: Ints) -> str:
    """Patches in ascending order as text, with the first and last of each run: "37-39 69"."""
    if not len(cells):
        return ""
    breaks = np.flatnonzero(np.diff(cells) != 1) + 1
    runs = np.split(np.asarray(cells), breaks)
    return " ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def mask_cells(masks: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The inverse of `mask_text` for several masks: their patches, mask by mask, and where each
    mask ends, as `cells` and `ends` of Outlines."""
    text = " ".join(filter(None, masks))
    numbers = np.fromstring(text.replace("-", " "), np.int32, sep=" ")
    letters = np.frombuffer(text.encode(), np.uint8)
    between = letters[(letters == ord(" ")) | (letters == ord("-"))]
    is_last = np.concatenate([[False], between == ord("-")])[: len(numbers)]
    first = numbers[~is_last]
    last = first.copy()
    last[np.cumsum(~is_last)[is_last] - 1] = numbers[is_last]
    lengths = (last - first + 1).astype(np.int64)
    run_ends = np.cumsum(lengths)
    cells = np.repeat(first, lengths)
    cells += (np.arange(len(cells)) - np.repeat(run_ends - lengths, lengths)).astype(np.int32)
    runs = np.cumsum([mask.count(" ") + 1 if mask else 0 for mask in masks], dtype=np.int64)
    return cells, np.concatenate([[0], run_ends])[runs]


def find_regions(
    scores: Floats,
    grid: tuple[int, int],
    scale: HeatScale,
    *,
    among: Bools | None = None,
    valid: Bools | None = None,
    most: int = MOST_OF_AN_IMAGE,
    rows_at_once: int = ROWS_AT_ONCE,
) -> Outlines:
    """Find the regions of images. scores, among, valid: (n_images, n_patches); grid: rows and
    columns.

    among: a region without any of these patches is left out. most: the largest number of regions of
    an image. rows_at_once: the number of images whose heat is computed at a time.
    """
    found: list[tuple[int, float, Ints]] = []
    for some in blocks(len(scores), rows_at_once):
        block = np.asarray(scores[some], np.float64)
        heat = (block - scale.low) / (scale.high - scale.low)
        if valid is not None:
            heat = np.where(valid[some], heat, -1.0)
        for row in np.flatnonzero(heat.max(axis=1, initial=-1.0) >= SUMMIT):
            image = some.start + int(row)
            basins = _basins(heat[row], grid)
            if among is not None:
                basins = [cells for cells in basins if among[image, cells].any()]
            for cells in basins[:most]:
                found.append((image, float(block[row, cells].max()), cells))
    return Outlines.of(found)


def region_weights(
    scores: Floats, outlines: Outlines, temperature: float, among: Bools | None = None
) -> NDArray[np.float32]:
    """(n_regions, n_patches): the soft weights (Eq. 5 and 6) restricted to each region.

    scores, among: (n_images, n_patches), as for `find_regions`.
    """
    masks = outlines.masks(scores.shape[1])
    if among is not None:
        masks &= among[outlines.images]
    return soft_weights(scores[outlines.images], temperature, masks)


def region_scores(scores: Floats, outlines: Outlines, scale: HeatScale) -> NDArray[np.float64]:
    """(n_regions, n_patches): the scores of the image as if the region were its only flaw: scores
    outside it are limited to `scale.low`."""
    values = np.asarray(scores[outlines.images], np.float64)
    return np.where(outlines.masks(scores.shape[1]), values, np.minimum(values, scale.low))


def _basins(heat: NDArray[np.float64], grid: tuple[int, int]) -> list[NDArray[np.int64]]:
    """The patches of each region of one image, the hottest region first.

    Patches are visited from the hottest down. Each joins the highest region that it touches, or
    starts a new one. Where two regions meet, the lower one is merged into the higher one if its
    peak is hardly higher than the meeting point.
    """
    near = _neighbours(grid)
    warm = np.flatnonzero(heat > 0)
    order = warm[np.argsort(-heat[warm], kind="stable")]
    values = heat.tolist()
    region_of: dict[int, int] = {}
    summits: list[float] = []
    part_of: list[int] = []

    def whole(region: int) -> int:
        while part_of[region] != region:
            region = part_of[region]
        return region

    for patch in order.tolist():
        touched = {whole(region_of[cell]) for cell in near[patch] if cell in region_of}
        if not touched:
            region_of[patch] = len(summits)
            part_of.append(len(summits))
            summits.append(values[patch])
            continue
        highest, *others = sorted(touched)  # numbered from the highest summit down
        region_of[patch] = highest
        for region in others:
            if values[patch] >= SADDLE * summits[region]:
                part_of[region] = highest
    labels = np.array([whole(region_of[patch]) for patch in order.tolist()])
    hot = [region for region in np.unique(labels) if summits[region] >= SUMMIT]
    high = heat[order] >= EDGE * np.array(summits)[labels]
    return [np.sort(order[(labels == region) & high]) for region in hot]


@cache
def _neighbours(grid: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
    """The up to eight patches around each patch."""
    rows, columns = grid
    return tuple(
        tuple(
            y * columns + x
            for y in range(max(0, row - 1), min(rows, row + 2))
            for x in range(max(0, column - 1), min(columns, column + 2))
            if (y, x) != (row, column)
        )
        for row in range(rows)
        for column in range(columns)
    )

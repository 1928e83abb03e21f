"""The most unusual place of each image, and where the reference shows the like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.core.grids import Grid
from flawsort.core.records import Bools, Floats, Ints
from flawsort.embeddings.regions import Outlines
from flawsort.scores.places import Match


@dataclass(frozen=True)
class Places:
    """The most unusual place of images, and the best matching places of the reference.

    boxes: (n_images, 4), the patches of the hottest region of each image, or of an image without
    regions its most unusual patch: top, left, bottom, right. matches, of_regions: (n_images, 3) and
    (n_regions, 3), for each of these places and for each region, as a Match returns it.
    """

    boxes: NDArray[np.int64]
    matches: NDArray[np.int64]
    of_regions: NDArray[np.int64]

    def take(self, images: Sequence[int] | Ints, regions: Sequence[int] | Ints) -> Places:
        """The places of some images and of some regions, in that order."""
        rows, of = np.asarray(images, np.int64), np.asarray(regions, np.int64)
        return Places(self.boxes[rows], self.matches[rows], self.of_regions[of])


def join_places(parts: Sequence[Places]) -> Places:
    """The places of several batches of images, in order."""
    return Places(
        np.concatenate([one.boxes for one in parts]),
        np.concatenate([one.matches for one in parts]),
        np.concatenate([one.of_regions for one in parts]),
    )


def find_places(
    scores: Floats,
    valid: Bools | None,
    outlines: Outlines,
    grid: Grid,
    match: Match,
    hot: Bools | None = None,
) -> Places:
    """The places of images. scores, valid: (n_images, n_patches). outlines: their regions. match,
    hot: see Match."""
    of_regions = patch_boxes(outlines, grid)
    found = match(outlines.images, of_regions, hot)
    boxes, first = hottest_boxes(scores, valid, outlines, grid)
    matches = np.empty((len(boxes), 3), np.int64)
    with_region = first >= 0
    matches[with_region] = found[first[with_region]]
    others = np.flatnonzero(~with_region)
    matches[others] = match(others, boxes[others], hot)
    return Places(boxes, matches, found)


def hottest_boxes(
    scores: Floats, valid: Bools | None, outlines: Outlines, grid: Grid
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(n_images, 4): the most unusual place of each image in patches: top, left, bottom, right; and
    (n_images,): the region that it is, or -1."""
    first = np.full(len(scores), -1)
    first[outlines.images[::-1]] = np.arange(len(outlines))[::-1]  # the hottest is the first
    counted = scores if valid is None else np.where(valid, scores, -np.inf)
    down, across = np.divmod(counted.argmax(axis=1), grid[1])
    boxes = np.stack([down, across, down + 1, across + 1], axis=1)
    with_region = first >= 0
    boxes[with_region] = patch_boxes(outlines, grid)[first[with_region]]
    return boxes, first


def patch_boxes(outlines: Outlines, grid: Grid) -> NDArray[np.int64]:
    """(n_regions, 4): top, left, bottom, right of each region, in patches."""
    corners = outlines.boxes(grid) * [grid[1], grid[0], grid[1], grid[0]]
    return np.rint(corners).astype(np.int64)[:, [1, 0, 3, 2]]

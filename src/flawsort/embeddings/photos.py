"""Large photos: each is described by its most unusual part, as large as one tile.

A flaw in a photo of a hundred tiles is a hundredth of a hundredth of it. Over the whole photo its
patches would be outweighed, its shape would be a point, and the mean patch would not show it. So
the photo is cut to a window of one tile around its most unusual patch, and the window is described
as a small image would be. A region that lies elsewhere gets a window of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flawsort.core.grids import Grid
from flawsort.core.records import Bags, Floats, Ints
from flawsort.embeddings.features import Features
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.regions import Outlines, RegionFeatures, find_regions
from flawsort.scores.reference import Comparison

Corner = tuple[int, int]


@dataclass(frozen=True)
class Parts:
    """Windows of photos. The first ones are the most unusual window of each photo, the others show
    regions that lie elsewhere.

    rows: (n_photos,), the photos in the bags that they were cut from. photos: (n_parts,), the photo
    of each window, as a place in `rows`. corners: (n_parts, 2), its first row and column, as shares
    of where it could begin. scores: (n_photos, n_patches), of the whole photos. cells: (n_parts,
    n_tile_patches), the patches of each window in the first view. outlines: the regions in their
    windows. whole_regions: the same regions in the whole photos.
    """

    rows: NDArray[np.int64]
    photos: NDArray[np.int64]
    corners: NDArray[np.float64]
    scores: NDArray[np.float32]
    cells: NDArray[np.int64]
    outlines: Outlines
    whole_regions: Outlines

    def bags(self, bags: Bags) -> Bags:
        """The windows as images of their own. bags: those that they were cut from."""
        first, *others = (self._cut_bags(one) for one in bags.views)
        return replace(first, beside=tuple(others))

    def comparison(self, comparison: Comparison, bags: Bags) -> Comparison:
        """How the windows compare with the reference. comparison, bags: of the whole photos."""
        views = []
        for one, view in zip(comparison.by_view, bags.views, strict=True):
            cells = _cells(self.corners, view)
            views.append(self._cut_comparison(one, cells))
        scores = np.take_along_axis(self.scores[self.photos], self.cells, axis=1)
        return Comparison(scores, views[0].expected, comparison.how, tuple(views))

    def whole(self, features: Features) -> Features:
        """The features of the photos. features: those of the windows."""
        n = len(self.rows)
        weights = np.zeros(self.scores.shape, np.float32)
        np.put_along_axis(weights, self.cells[:n], features.weights[:n], axis=1)
        found = features.regions
        kept = _matched(found.outlines, self.outlines)
        photos = self.photos[found.outlines.images]
        order = np.lexsort((-found.outlines.peaks, photos))
        regions = RegionFeatures(
            self.whole_regions.take(kept[order], photos[order]),
            found.vectors[order],
            found.extents[order],
        )
        vectors, extents = features.vectors[:n], features.extents[:n]
        return Features(self.scores, weights, vectors, extents, regions)

    def _cut_bags(self, bags: Bags) -> Bags:
        cells = _cells(self.corners, bags)
        images = self.rows[self.photos][:, None]
        valid = None if bags.valid is None else bags.valid[images, cells]
        if valid is not None:
            # On a coarser grid a window at the border may show padding alone.
            valid[~valid.any(axis=1)] = True
        return Bags(bags.patches[images, cells], _tile(bags), valid)

    def _cut_comparison(self, whole: Comparison, cells: NDArray[np.int64]) -> Comparison:
        images = self.rows[self.photos]

        def expected(parts: Ints, chosen: Ints) -> NDArray[np.float32]:
            return whole.expected(images[parts], np.take_along_axis(cells[parts], chosen, axis=1))

        return Comparison(whole.scores[images[:, None], cells], expected, whole.how)


def most_unusual_parts(bags: Bags, scores: Floats, heat: HeatScale, rows: Ints) -> Parts:
    """The windows of some photos. bags: with tiles. scores: (n_images, n_patches), of all bags.
    rows: (n_photos,), the photos."""
    own = np.asarray(scores[rows], np.float32)
    valid = None if bags.valid is None else bags.valid[rows]
    counted = own if valid is None else np.where(valid, own, -np.inf)
    grid, tile = bags.grid, _tile(bags)
    corners = [_around(int(patch), grid, tile) for patch in counted.argmax(axis=1)]
    photos = list(range(len(rows)))
    regions = find_regions(own, grid, heat, valid=valid)
    homes = []
    for region in range(len(regions)):
        photo, cells = int(regions.images[region]), regions[region]
        held = [part for part, one in enumerate(photos) if one == photo]
        home = next((part for part in held if _within(cells, corners[part], grid, tile)), None)
        if home is None:
            home = len(corners)
            corners.append(_corner_of(cells, own[photo], grid, tile))
            photos.append(photo)
        homes.append(home)
    starts = np.array(corners, np.float64) / np.maximum(np.subtract(grid, tile), 1)
    of_parts = _cells(starts, bags)
    order = np.argsort(homes, kind="stable") if homes else np.empty(0, np.int64)
    whole_regions = regions.take(order, regions.images[order])
    local = [
        (homes[region], float(regions.peaks[region]), _local(regions[region], of_parts[home]))
        for region, home in ((int(one), homes[int(one)]) for one in order)
    ]
    return Parts(
        np.asarray(rows, np.int64),
        np.array(photos, np.int64),
        starts,
        own,
        of_parts,
        Outlines.of(local),
        whole_regions,
    )


def _tile(bags: Bags) -> Grid:
    assert bags.tile is not None
    return bags.tile


def _cells(starts: NDArray[np.float64], bags: Bags) -> NDArray[np.int64]:
    """(n_parts, n_tile_patches): the patches of windows in one view. starts: see Parts."""
    tile = _tile(bags)
    room = np.subtract(bags.grid, tile)
    top, left = np.rint(starts * room).astype(np.int64).T
    down, across = np.divmod(np.arange(tile[0] * tile[1]), tile[1])
    cells: NDArray[np.int64] = (top[:, None] + down) * bags.grid[1] + left[:, None] + across
    return cells


def _around(patch: int, grid: Grid, tile: Grid) -> Corner:
    """The first row and column of the window with a patch in its middle, or as near to it as the
    border allows."""
    middle = divmod(patch, grid[1])
    top, left = (
        min(max(at - part // 2, 0), whole - part)
        for at, part, whole in zip(middle, tile, grid, strict=True)
    )
    return top, left


def _corner_of(cells: Ints, scores: Floats, grid: Grid, tile: Grid) -> Corner:
    """The window around a region or, if the region is larger, around its peak."""
    down, across = np.divmod(cells, grid[1])
    if np.ptp(down) < tile[0] and np.ptp(across) < tile[1]:
        middle = (int(down.min() + down.max()) // 2, int(across.min() + across.max()) // 2)
        return _around(middle[0] * grid[1] + middle[1], grid, tile)
    return _around(int(cells[np.argmax(scores[cells])]), grid, tile)


def _within(cells: Ints, corner: Corner, grid: Grid, tile: Grid) -> bool:
    down, across = np.divmod(cells, grid[1])
    inside = (down >= corner[0]) & (down < corner[0] + tile[0])
    inside &= (across >= corner[1]) & (across < corner[1] + tile[1])
    return bool(inside.all())


def _local(cells: Ints, of_part: NDArray[np.int64]) -> NDArray[np.int64]:
    """The patches of a region as places in its window; those outside are left out."""
    return np.flatnonzero(np.isin(of_part, cells))


def _matched(found: Outlines, among: Outlines) -> NDArray[np.int64]:
    """(n_found,): which of `among` each region is: regions of a window do not overlap."""
    place = {(int(among.images[one]), int(among[one][0])): one for one in range(len(among))}
    return np.array(
        [place[int(found.images[one]), int(found[one][0])] for one in range(len(found))], np.int64
    )

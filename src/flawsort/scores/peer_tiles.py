"""Peers of large photos: each tile is compared with the same place of the other photos.

Comparing all patches of two photos of a hundred tiles takes ten thousand times as long as for one
tile. A tile and its counterparts take a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bags, Floats, Ints, Progress
from flawsort.scores.engines import Engine
from flawsort.scores.nearest import search_flop

# A function of the patches of one tile (n_images, n_tile_patches, dim), of their places in the
# whole bag, and of a progress callback. It returns their scores (n_images, n_tile_patches).
CompareTile: TypeAlias = Callable[[Floats, NDArray[np.int64], Progress | None], NDArray[np.float32]]


def compare_by_tile(
    bags: Bags, compare: CompareTile, progress: Progress | None = None
) -> NDArray[np.float32]:
    """(n_images, n_patches): the scores of all patches, tile by tile; of images that were looked at
    whole, all patches at once."""
    if bags.tile is None:
        return compare(bags.patches, np.arange(bags.n_patches), progress)
    scores = np.empty(bags.patches.shape[:2], np.float32)
    tiles = tiles_of(bags)
    for number, cells in enumerate(tiles, start=1):
        scores[:, cells] = compare(bags.patches[:, cells], cells, None)
        if progress:
            progress("scoring", number, len(tiles))
    return scores


def expected_by_tile(
    engine: Engine, bags: Bags, images: Ints, chosen: Ints, peers: Floats, self_rows: Ints
) -> NDArray[np.float32]:
    """(n_rows, n_chosen, dim): what peers show in place of chosen patches, each in the same tile.

    images: (n_rows,). chosen: (n_rows, n_chosen), the patches. peers: (n_peers, n_patches, dim).
    self_rows: (n_rows,), the peer that is the image itself, or -1.
    """
    if bags.tile is None:
        return engine.expected_from_peers(bags.patches[images], chosen, peers, self_rows)
    expected = np.empty((*chosen.shape, bags.dim), np.float32)
    for cells in tiles_of(bags):
        here = np.isin(chosen, cells)
        rows = np.flatnonzero(here.any(axis=1))
        if not len(rows):
            continue
        # As many queries in each row: the first patch of the tile fills up.
        most = int(here[rows].sum(axis=1).max())
        queries = np.full((len(rows), most), cells[0])
        for query, row in zip(queries, rows, strict=True):
            query[: here[row].sum()] = chosen[row, here[row]]
        found = engine.expected_from_peers(
            bags.patches[images[rows][:, None], queries],
            np.tile(np.arange(most), (len(rows), 1)),
            peers[:, cells],
            self_rows[rows],
        )
        for means, row in zip(found, rows, strict=True):
            expected[row, here[row]] = means[: here[row].sum()]
    return expected


def pair_flop(bags: Bags) -> float:
    """The number of floating-point operations to compare two bags as peers."""
    return sum(search_flop(len(cells), len(cells), bags.dim) for cells in tiles_of(bags))


def tiles_of(bags: Bags) -> list[NDArray[np.int64]]:
    """The patches of each tile, about as large as the tiles that photos were looked at in, without
    overlap; all patches of images that were looked at whole."""
    everywhere = np.arange(bags.n_patches)
    if bags.tile is None:
        return [everywhere]
    (rows, columns), (high, wide) = bags.grid, bags.tile
    down = np.array_split(np.arange(rows), max(1, round(rows / high)))
    across = np.array_split(np.arange(columns), max(1, round(columns / wide)))
    return [(y[:, None] * columns + x).ravel() for y in down for x in across]

"""Peers of large photos: each tile is compared with the same place of the others."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.core.records import Bags
from flawsort.scores.engines import CpuEngine
from flawsort.scores.peer_tiles import expected_by_tile, pair_flop, tiles_of
from flawsort.scores.reference import PeerReference, compare_with_peers
from helpers.bags import unit_vectors
from helpers.oracles import naive_scores

GRID, TILE, DIM = (7, 9), (3, 4), 5


def bags_of(n_images: int = 6, *, tiled: bool = True) -> Bags:
    patches = unit_vectors(n_images, GRID[0] * GRID[1], DIM)
    return Bags(patches, GRID, tile=TILE if tiled else None)


def test_every_patch_is_in_one_tile() -> None:
    tiles = tiles_of(bags_of())
    assert len(tiles) == 4
    assert sorted(np.concatenate(tiles).tolist()) == list(range(63))
    for cells in tiles:
        rows, columns = np.divmod(cells, GRID[1])
        assert (np.ptp(rows) + 1) * (np.ptp(columns) + 1) == len(cells)
        assert np.ptp(rows) + 1 <= TILE[0] + 1
    (whole,) = tiles_of(bags_of(tiled=False))
    assert whole.tolist() == list(range(63))
    assert pair_flop(bags_of()) < pair_flop(bags_of(tiled=False)) / 3


def test_scores_come_from_the_same_tile_of_the_others() -> None:
    bags = bags_of()
    everyone = list(range(len(bags)))
    found, reference = compare_with_peers(bags, n_peers="all", nearest_share=1.0)
    new = PeerReference(bags.patches, 1.0).compare(bags, self_rows=np.arange(len(bags)))
    for cells in tiles_of(bags):
        alone = naive_scores(bags.patches[:, cells], everyone)
        np.testing.assert_allclose(found.scores[:, cells], alone, atol=1e-5)
        np.testing.assert_allclose(new.scores[:, cells], alone, atol=1e-5)
    assert reference.peers.shape == bags.patches.shape


def test_progress_counts_tiles() -> None:
    seen: list[tuple[str, int, int]] = []
    compare_with_peers(bags_of(), progress=lambda *args: seen.append(args))
    assert [entry for entry in seen if entry[2] == 4] == [("scoring", n, 4) for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("tiled", [True, False])
def test_expected_patches_come_from_the_same_tile(tiled: bool) -> None:
    bags = bags_of(tiled=tiled)
    images, own = np.array([4, 0, 4]), np.array([-1, 0, 2])
    chosen = np.random.default_rng(0).integers(0, 63, (3, 8))
    peers = bags.patches[:3]
    found = expected_by_tile(CpuEngine(), bags, images, chosen, peers, own)
    tile_of = {int(cell): cells for cells in tiles_of(bags) for cell in cells}
    for row, image in enumerate(images):
        for place, patch in enumerate(chosen[row]):
            query, cells = bags.patches[image, patch], tile_of[int(patch)]
            nearest = [
                peer[cells][np.argmax(peer[cells] @ query)]
                for number, peer in enumerate(peers)
                if number != own[row]
            ]
            np.testing.assert_allclose(found[row, place], np.mean(nearest, axis=0), atol=1e-5)

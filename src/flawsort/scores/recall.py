"""How good an approximate comparison is where it matters most: on the highest-scoring patches.

Few patches of an image have nearly all of its weight. An approximate search gets some distances too
long, and a patch whose distance is too long has too high a score. So the share of errors is larger
among the highest-scoring patches than among all. It is measured on a sample of the images in the
run itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bags, Bools, Floats, Ints, Progress
from flawsort.core.threads import blocks
from flawsort.scores.engines import CpuEngine
from flawsort.scores.nearest import PEERS_AT_ONCE, nearest_in_bank
from flawsort.scores.peer_statistics import PeerStatistic
from flawsort.scores.peer_tiles import compare_by_tile

# The images of a sample, and the highest-scoring patches of each that are looked at.
IMAGES = 8
HIGHEST = 10
# Distances that differ by less are equal: they are right to about 1e-5 in single precision.
SAME = 1e-4


@dataclass(frozen=True)
class Recall:
    """What an approximate comparison found of the exact one on the highest-scoring patches.

    right, of: of so many patches of n_images images so many were right. what: "nearest", that their
    nearest patch in the bank was found, or "highest", that they are among the highest-scoring ones
    of their image in an exact comparison too.
    """

    right: int
    of: int
    n_images: int
    what: Literal["nearest", "highest"] = "nearest"

    def __str__(self) -> str:
        share, patches = self.percent, f"{self.of:,} highest-scoring patches"
        where = f"of {self.n_images} image{'s' if self.n_images > 1 else ''}"
        if self.what == "nearest":
            return f"the nearest was found for {share} of the {patches} {where}"
        return f"{share} of the {patches} {where} are the highest in single precision too"

    @property
    def percent(self) -> str:
        """The share as a person reads it; all is said of all only."""
        share = self.right / self.of
        return f"{min(100 * share, 99.9 if share < 1 else 100):.3g}%"


# Measures a comparison on a sample drawn with this random state; None for an exact one.
Measure: TypeAlias = Callable[[int], Recall | None]


def recalls_all(random_state: int) -> None:
    """The Measure of an exact comparison, which misses nothing."""


def sample_images(n_images: int, random_state: int) -> NDArray[np.int64]:
    """The rows of a sample, sorted."""
    return np.sort(np.random.default_rng(random_state).permutation(n_images)[:IMAGES])


def recall_in_bank(
    bags: Bags, scores: Floats, index: Ints, bank: Floats, random_state: int
) -> Recall:
    """Search the highest-scoring patches of a sample again, exactly and in single precision.

    scores, index: (n_images, n_patches), of the approximate search: the distance, and the row of
    the patch of the bank (n_bank, dim) that was found.
    """
    rows = sample_images(len(bags), random_state)
    images, patches = _highest(scores[rows], None if bags.valid is None else bags.valid[rows])
    queries = bags.patches[rows[images], patches]
    found = bank[index[rows[images], patches]].astype(np.float64)
    apart = np.linalg.norm(queries.astype(np.float64) - found, axis=1)
    right = apart <= nearest_in_bank(queries, bank).distances + SAME
    return Recall(int(right.sum()), len(right), len(rows))


def recall_among_peers(
    bags: Bags,
    scores: Floats,
    peers: Floats,
    itself: Ints,
    statistic: Callable[[int, int], PeerStatistic],
    random_state: int,
) -> Recall:
    """Compare a sample with all peers again, in single precision: are the highest-scoring patches
    the same?

    scores: (n_images, n_patches), of the approximate comparison. peers: (n_peers, n_patches, dim).
    itself: (n_images,), the row of the peer that is the image, or -1. statistic: makes that of so
    many images with so many patches.
    """
    rows, engine = sample_images(len(bags), random_state), CpuEngine()
    some, mine = bags.take(rows), itself[rows]

    def fold(patches: Floats, cells: Ints, report: Progress | None) -> NDArray[np.float32]:
        found = statistic(len(patches), len(cells))
        for block in blocks(len(peers), PEERS_AT_ONCE):  # they are held in single precision
            few = peers[block] if len(cells) == peers.shape[1] else peers[block][:, cells]
            inside = (mine >= block.start) & (mine < block.stop)
            own = np.where(inside, mine - block.start, -1)
            engine.fold_references(patches, few, found, self_rows=own)
        return found.result()

    known = compare_by_tile(some, fold)
    images, patches = _highest(scores[rows], some.valid)
    best_images, best = _highest(known, some.valid)
    lowest = np.full(len(known), np.inf)
    np.minimum.at(lowest, best_images, known[best_images, best])
    right = known[images, patches] >= lowest[images] - SAME  # patches with equal scores are as good
    return Recall(int(right.sum()), len(right), len(rows), "highest")


def together(found: Iterable[Recall]) -> Recall | None:
    """Several searches as one; None if there are none."""
    several = list(found)
    if not several:
        return None
    right, of = sum(one.right for one in several), sum(one.of for one in several)
    return Recall(right, of, max(one.n_images for one in several), several[0].what)


def _highest(scores: Floats, valid: Bools | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Image and patch of the highest-scoring valid patches of each image, HIGHEST at most."""
    values = scores if valid is None else np.where(valid, scores, -np.inf)
    order = np.argsort(-values, axis=1, kind="stable")[:, :HIGHEST]
    images = np.repeat(np.arange(len(scores)), order.shape[1])
    patches = order.ravel()
    counted = np.isfinite(values[images, patches])
    return images[counted], patches[counted]

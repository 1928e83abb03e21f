"""Inverted lists: a bank of patches cut into lists of similar ones, for approximate search."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Floats, Ints, Progress
from flawsort.core.threads import blocks, in_threads, single_threaded_blas
from flawsort.scores.distances import distances_to_found, half_lack, with_lack, with_ones
from flawsort.scores.nearest import (
    SIMILARITIES_AT_ONCE,
    BlockSizes,
    Nearest,
    nearest_in_bank,
    nearest_rows,
)

QUERIES_AT_ONCE = 65_536
# The number of lists that are searched for a query; docs/evidence/performance.md has the recall.
PROBES = 16
# Lists give some patches too long a distance, and those have too high a score. The highest-scoring
# patches of an image have nearly all of its weight, so this share of its patches is searched again,
# exactly. On three sets that groups as well as an exact search of all
# (docs/evidence/performance.md). A photo of many tiles is described by its most unusual part, so a
# few patches are enough.
AGAIN_SHARE = 1 / 32
AGAIN_MOST = 128
# The bank is taken to single precision in small slabs, as the lists are in memory too.
AGAIN_SIZES = BlockSizes(slab=2**26)


@dataclass(frozen=True)
class InvertedLists:
    """A bank cut into lists of similar patches, for approximate search.

    centres: (n_lists, dim), unit length. patches: (n_bank, dim), sorted by list.
    offsets: (n_lists + 1,), where each list begins. order: (n_bank,), the row of each patch in the
    original bank. queries_at_once: the number of queries that are sorted by list together.
    similarities_at_once: the number that a thread computes at once.
    """

    centres: NDArray[np.float32]
    patches: Floats
    offsets: NDArray[np.int64]
    order: NDArray[np.int64]
    queries_at_once: int = QUERIES_AT_ONCE
    similarities_at_once: int = SIMILARITIES_AT_ONCE

    def search(
        self,
        queries: Floats,
        *,
        probes: int = PROBES,
        not_from: tuple[Ints, Ints] | None = None,
        progress: Progress | None = None,
    ) -> Nearest:
        """For each query the nearest patch of the `probes` lists whose centres are nearest.

        All queries that search the same list are multiplied with it in one matrix product.
        not_from: (n,) and (n_bank,), the image of each query and of each patch of the bank.
        Patches of a query's own image are left out; the distance is infinite if no others are
        found.
        """
        best = np.empty(len(queries), np.float32)
        index = np.empty(len(queries), np.int64)
        if progress:
            progress("scoring", 0, len(queries))
        with single_threaded_blas():
            for some in blocks(len(queries), self.queries_at_once):
                best[some], index[some] = self._search_many(
                    queries[some].astype(np.float32),
                    min(probes, len(self.centres)),
                    None if not_from is None else (not_from[0][some], not_from[1]),
                )
                if progress:
                    progress("scoring", some.stop, len(queries))
        return Nearest(distances_to_found(best, queries, self.patches, index), self.order[index])

    def search_again(self, found: Nearest, again: Ints, queries: Floats) -> Nearest:
        """What `search` found, with these queries searched exactly. again: their rows.

        The bank is searched in the order of the lists, as a run stores it, so that the same
        queries give the same bits later.
        """
        exact = nearest_in_bank(queries[again], self.patches, sizes=AGAIN_SIZES)
        distances, index = found.distances.copy(), found.index.copy()
        distances[again], index[again] = exact.distances, self.order[exact.index]
        return Nearest(distances, index)

    def _search_many(
        self, queries: NDArray[np.float32], probes: int, not_from: tuple[Ints, Ints] | None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        probed = nearest_rows(queries, self.centres, probes, unit_length=True)
        by_list = np.argsort(probed, axis=None, kind="stable")
        bounds = np.searchsorted(probed.ravel()[by_list], np.arange(len(self.centres) + 1))
        extended = with_ones(queries)

        def look(number: int) -> list[tuple[Ints, NDArray[np.float32], Ints]]:
            searching = by_list[bounds[number] : bounds[number + 1]] // probes
            first, last = self.offsets[number], self.offsets[number + 1]
            members = with_lack(self.patches[first:last])
            found: list[tuple[Ints, NDArray[np.float32], Ints]] = []
            step = max(1, self.similarities_at_once // len(members))
            for block in blocks(len(searching), step):
                rows = searching[block]
                similar = extended[rows] @ members.T
                if not_from is not None:
                    own = not_from[0][rows][:, None] == not_from[1][self.order[first:last]]
                    similar[own] = -np.inf
                at = similar.argmax(axis=1)
                found.append((rows, similar[np.arange(len(rows)), at], first + at))
            return found

        best = np.full(len(queries), -np.inf, np.float32)
        index = np.zeros(len(queries), np.int64)
        for found in in_threads(look, np.flatnonzero(np.diff(bounds)).tolist()):
            for rows, top, at in found:
                better = top > best[rows]
                best[rows[better]], index[rows[better]] = top[better], at[better]
        return best + half_lack(queries), index


def highest(scores: Floats, valid: Bools | None) -> NDArray[np.int64]:
    """(n_images, n_highest): the patches of each image that are searched again, those with the
    highest scores. scores: (n_images, n_patches). valid: which patches count."""
    count = min(max(1, round(AGAIN_SHARE * scores.shape[1])), AGAIN_MOST)
    values = scores if valid is None else np.where(valid, scores, -np.inf)
    return np.argsort(-values, axis=1, kind="stable")[:, :count]


def distances_to_others(
    queries: Floats, images: Ints, bank: Floats, owner: Ints
) -> NDArray[np.float32]:
    """(n,): the exact distance of each query to the nearest patch of the bank that is not of its
    own image. images: (n,), of the queries. owner: (n_bank,), of the patches of the bank, sorted.
    """
    best = np.full(len(queries), np.inf, np.float32)
    # The bank in pieces that all queries but those of one image are compared with.
    kept_from = np.where(np.isin(owner, images), owner, -1)
    bounds = [0, *(np.flatnonzero(np.diff(kept_from)) + 1), len(bank)]
    for first, last in pairwise(bounds):
        some = np.flatnonzero(images != kept_from[first])
        found = nearest_in_bank(queries[some], bank[first:last], sizes=AGAIN_SIZES)
        best[some] = np.minimum(best[some], found.distances)
    return best


def build_lists(bank: Floats, *, random_state: int = 0, iterations: int = 6) -> InvertedLists:
    """Cut a bank (n_bank, dim) into about 2.5 sqrt(n_bank) lists by spherical k-means.

    The centres come from a sample of 48 patches per list. Every patch then joins the list with the
    nearest centre.
    """
    n_lists = int(min(max(2.5 * np.sqrt(len(bank)), 1), len(bank)))
    rng = np.random.default_rng(random_state)
    sample = bank[np.sort(rng.permutation(len(bank))[: 48 * n_lists])].astype(np.float32)
    centres = sample[np.sort(rng.permutation(len(sample))[:n_lists])]
    for _ in range(iterations):
        nearest = nearest_rows(sample, centres, unit_length=True)[:, 0]
        centres = _mean_directions(sample, nearest, centres)
    lists = nearest_rows(bank, centres, unit_length=True)[:, 0]
    order = np.argsort(lists, kind="stable")
    used, first = np.unique(lists[order], return_index=True)  # drops empty lists
    offsets = np.append(first, len(bank))
    return InvertedLists(centres[used], bank[order], offsets, order)


def _mean_directions(
    sample: NDArray[np.float32], nearest: Ints, centres: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The normalised mean of each centre's members. A centre without members stays as it is."""
    order = np.argsort(nearest, kind="stable")
    used, first = np.unique(nearest[order], return_index=True)
    moved = centres.copy()
    sums = np.add.reduceat(sample[order], first, axis=0)
    moved[used] = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)
    return moved

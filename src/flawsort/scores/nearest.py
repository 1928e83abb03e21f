"""The inner loop: for each patch, find the nearest patch of each reference bag, or of all of them.

A matrix product gives the similarities of patches (`scores.distances`), and the nearest patch is
the one with the largest: a product followed by a maximum. Two rules make it fast on a CPU. The
products are cut into blocks that stay in the processor's cache until their maximum is taken. And
blocks run in threads with a single-threaded BLAS each, so that the maxima use all cores too.
`scores.engines` has the same functions in other arithmetic and on GPUs, and chooses among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Floats, Ints, Progress
from flawsort.core.threads import blocks, in_blocks, in_threads, single_threaded_blas
from flawsort.scores.distances import (
    Factors,
    distance,
    distances_to_found,
    factors,
    half_lack,
    with_lack,
    with_ones,
)
from flawsort.scores.peer_statistics import PeerStatistic

# Rows of a block: 256 x 1,024 similarities take 1 MB, which fits the second-level cache of a core.
BLOCK_ROWS = 256
BANK_BLOCK = 1024
# The number of images that are compared with a peer together; more save little and take memory.
STRIPE = 4
# The number of peers they are compared with at once, which bounds the memory of finished threads.
PEERS_AT_ONCE = 64
# The bytes of a bank that are held in single precision at a time.
SLAB_BYTES = 2**29
# The number of similarities that a thread computes at once when lists have any length (16 MB).
SIMILARITIES_AT_ONCE = 4_000_000
BothWays: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]
# A bag in the form that a BagProduct multiplies; its `operands` make it.
Operand: TypeAlias = Any


@dataclass(frozen=True)
class BlockSizes:
    """The sizes of the blocks that the products are cut into.

    rows: of the patches that are compared. bank: of the patches of the bank. slab: the bytes of the
    bank in single precision at a time. stripe: images that are compared with a peer together.
    peers: those they are compared with at once.
    """

    rows: int = BLOCK_ROWS
    bank: int = BANK_BLOCK
    slab: int = SLAB_BYTES
    stripe: int = STRIPE
    peers: int = PEERS_AT_ONCE


BLOCK_SIZES = BlockSizes()


@dataclass(frozen=True)
class Nearest:
    """distances: (n,), to the nearest patch of a bank. index: (n,), the row of that patch."""

    distances: NDArray[np.float32]
    index: NDArray[np.int64]


def search_flop(n_queries: int, n_bank: int, dim: int) -> float:
    """The number of floating-point operations of an exact search."""
    return 2.0 * n_queries * n_bank * dim


def nearest_in_bank(
    queries: Floats,
    bank: Floats,
    *,
    sizes: BlockSizes = BLOCK_SIZES,
    progress: Progress | None = None,
) -> Nearest:
    """For each query the nearest patch of the bank, exactly.

    queries: (n, dim). bank: (n_bank, dim). sizes: of the blocks.
    """
    slabs = list(blocks(len(bank), _slab_rows(bank.shape[1], sizes)))
    best = np.full(len(queries), -np.inf, np.float32)
    index = np.zeros(len(queries), np.int64)
    n_pieces = -(-len(queries) // sizes.rows)
    with single_threaded_blas():
        for number, slab in enumerate(slabs):

            def report(done: int, before: int = number * n_pieces) -> None:
                if progress:
                    progress("scoring", before + done, len(slabs) * n_pieces)

            reference = with_lack(bank[slab])
            block_of = _improve(best, queries, reference, sizes, report)
            found = np.flatnonzero(block_of >= 0)
            place = _index_in_block(queries[found], reference, block_of[found], sizes.bank)
            index[found] = slab.start + place
    return Nearest(distances_to_found(best, queries, bank, index), index)


def _slab_rows(dim: int, sizes: BlockSizes) -> int:
    """The patches of a bank that are in single precision at a time: whole blocks."""
    return max(1, sizes.slab // (4 * (dim + 1) * sizes.bank)) * sizes.bank


def _improve(
    best: NDArray[np.float32],
    queries: Floats,
    bank: NDArray[np.float32],
    sizes: BlockSizes,
    report: Callable[[int], None],
) -> NDArray[np.int64]:
    """Raise the best similarities (n,) to those of a slab of the bank, in place. Returns the block
    of the slab where each query's best is, or -1 where nothing is better."""
    pieces = list(blocks(len(queries), sizes.rows))
    block_of = np.full(len(queries), -1)

    def search(some: slice) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        values = with_ones(queries[some])
        top, found_in = _best_block(values, bank, sizes.bank)
        return top + half_lack(values[:, :-1]), found_in

    for done, (some, (top, found_in)) in enumerate(
        zip(pieces, in_threads(search, pieces), strict=True), start=1
    ):
        better = top > best[some]
        best[some][better] = top[better]
        block_of[some][better] = found_in[better]
        report(done)
    return block_of


def _best_block(
    queries: NDArray[np.float32], bank: NDArray[np.float32], bank_block: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Each query's best similarity, and the block of the bank where it is. Maxima are much faster
    than their positions, which `_index_in_block` finds later."""
    best = np.full(len(queries), -np.inf, np.float32)
    block_of = np.zeros(len(queries), np.int64)
    for number, some in enumerate(blocks(len(bank), bank_block)):
        top = (queries @ bank[some].T).max(axis=1)
        better = top > best
        best[better] = top[better]
        block_of[better] = number
    return best, block_of


def _index_in_block(
    queries: Floats, bank: NDArray[np.float32], block_of: NDArray[np.int64], bank_block: int
) -> NDArray[np.int64]:
    """The row of the nearest patch: compares each query again, only with its best block."""
    order = np.argsort(block_of, kind="stable")
    n_blocks = -(-len(bank) // bank_block)
    bounds = np.searchsorted(block_of[order], np.arange(n_blocks + 1))
    step = SIMILARITIES_AT_ONCE // bank_block
    pieces = [
        (number, order[start : min(start + step, bounds[number + 1])])
        for number in range(n_blocks)
        for start in range(bounds[number], bounds[number + 1], step)
    ]

    def look(piece: tuple[int, NDArray[np.int64]]) -> NDArray[np.int64]:
        first = piece[0] * bank_block
        similar = with_ones(queries[piece[1]]) @ bank[first : first + bank_block].T
        found: NDArray[np.int64] = first + similar.argmax(axis=1)
        return found

    index = np.empty(len(queries), np.int64)
    for (_, rows), found in zip(pieces, in_threads(look, pieces), strict=True):
        index[rows] = found
    return index


def nearest_rows(
    points: Floats,
    others: NDArray[np.float32],
    count: int = 1,
    *,
    unit_length: bool = False,
    at_once: int = BLOCK_ROWS,
) -> NDArray[np.int64]:
    """(n, count): the rows of the `others` nearest to each point, in no particular order.

    points: (n, dim). others: (m, dim). unit_length: whether the others have unit length; dot
    products alone then give the order. at_once: points in a block. Computed in single precision.
    """
    half_squares = None if unit_length else (others**2).sum(axis=1) / 2

    def rank(some: slice) -> NDArray[np.int64]:
        similar = np.asarray(points[some], np.float32) @ others.T
        if half_squares is not None:
            similar -= half_squares
        if count == 1:
            nearest: NDArray[np.int64] = similar.argmax(axis=1)[:, None]
            return nearest
        return np.argpartition(similar, -count, axis=1)[:, -count:]

    return in_blocks(rank, len(points), at_once)


class Operands(Protocol):
    """Bags in the form in which they are multiplied, by row."""

    def __getitem__(self, row: int, /) -> Operand: ...


class BagProduct(Protocol):
    """How two bags are compared."""

    def operands(self, patches: Floats) -> Operands:
        """patches: (n_images, n_patches, dim)."""

    def compare(self, first: Operand, second: Operand) -> BothWays:
        """The distances from each patch of a bag to the nearest patch of the other bag, for the
        first and for the second bag."""


@dataclass(frozen=True)
class Singles:
    """Bags multiplied in single precision, by NumPy's BLAS. rows: of a block."""

    rows: int = BLOCK_ROWS

    def operands(self, patches: Floats) -> Operands:
        return _Converted(patches)

    def compare(self, first: Operand, second: Operand) -> BothWays:
        one: Factors = first
        other: Factors = second
        rows = np.empty(len(one.right), np.float32)
        columns = np.full(len(other.right), -np.inf, np.float32)
        for some in blocks(len(rows), self.rows):
            similar = one.left[some] @ other.right.T
            rows[some] = similar.max(axis=1)
            np.maximum(columns, similar.max(axis=0), out=columns)
        return distance(rows), distance(columns)


@dataclass(frozen=True)
class _Converted:
    """Converts each bag on access: converting all at once would double the memory."""

    patches: Floats

    def __getitem__(self, row: int, /) -> Factors:
        return factors(self.patches[row])


SINGLES = Singles()


def fold_peers(
    patches: Floats,
    peers: Ints,
    statistic: PeerStatistic,
    *,
    extra: Floats | None = None,
    bags: BagProduct = SINGLES,
    sizes: BlockSizes = BLOCK_SIZES,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """(n_images, n_patches): for each patch the statistic of its distances to all peers, each taken
    to the nearest patch of the peer.

    patches: (n_images, n_patches, dim). peers: rows of the images that all others are compared
    with; no image is its own peer. extra: (n_extra, n_patches, dim), further peers of all images
    that are not scored themselves, such as unlabelled normal images; they are the peers n_images,
    n_images + 1 and so on. bags: how two bags are multiplied. sizes: of the stripes and of their
    peers. Each pair is multiplied once: the maxima along rows serve one image, those along columns
    the other.
    """
    n_images = len(patches)
    n_extra = 0 if extra is None else len(extra)
    is_peer = np.zeros(n_images, bool)
    is_peer[peers] = True
    n_peers = int(is_peer.sum())
    total = (n_peers + n_extra) * n_images - n_peers * (n_peers + 1) // 2
    rows = np.concatenate([np.flatnonzero(is_peer), n_images + np.arange(n_extra)])
    done = 0
    of_images = bags.operands(patches)
    of_extra = bags.operands(patches[:0] if extra is None else extra)

    def compare(block: tuple[int, int]) -> list[tuple[int, int, BothWays]]:
        """Compare a few images with some peers, each of which is prepared once."""
        stripe = range(block[0], min(block[0] + sizes.stripe, n_images))
        own = [of_images[image] for image in stripe]
        found = []
        for peer in rows[block[1] : block[1] + sizes.peers].tolist():
            # Of two peers only the first is compared, so that no pair is multiplied twice.
            compared = [i for i in stripe if i < peer or (i > peer and not is_peer[i])]
            if compared:
                bag = of_images[peer] if peer < n_images else of_extra[peer - n_images]
                found += [(i, peer, bags.compare(own[i - stripe.start], bag)) for i in compared]
        return found

    pieces = product(range(0, n_images, sizes.stripe), range(0, len(rows), sizes.peers))
    with single_threaded_blas():
        for results in in_threads(compare, pieces):
            for image, peer, (mine, theirs) in results:
                statistic.add(image, peer, mine)
                if is_peer[image] and peer < n_images:
                    statistic.add(peer, image, theirs)
            done += len(results)
            if progress:
                progress("scoring", done, total)
    return statistic.result()


def fold_references(
    patches: Floats,
    references: Floats,
    statistic: PeerStatistic,
    *,
    self_rows: Ints | None = None,
    bags: BagProduct = SINGLES,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Like fold_peers, for images that are compared with references and not with each other.

    patches: (n_images, n_patches, dim). references: (n_references, n_patches, dim); the number of a
    peer is its row there. self_rows: (n_images,), the row of `references` that is the image itself
    and is left out, or -1 for none; None for all -1.
    """
    of_images, prepared = bags.operands(patches), bags.operands(references)
    of_references = [prepared[row] for row in range(len(references))]

    def compare(image: int) -> list[tuple[int, NDArray[np.float32]]]:
        bag = of_images[image]
        return [
            (peer, bags.compare(bag, reference)[0])
            for peer, reference in enumerate(of_references)
            if self_rows is None or peer != self_rows[image]
        ]

    with single_threaded_blas():
        for image, results in enumerate(in_threads(compare, range(len(patches)))):
            for peer, distances in results:
                statistic.add(image, peer, distances)
            if progress:
                progress("scoring", image + 1, len(patches))
    return statistic.result()


def expected_from_peers(
    patches: Floats, chosen: Ints, references: Floats, self_rows: Ints
) -> NDArray[np.float32]:
    """(n_images, n_chosen, dim): what the references show in place of each chosen patch: the mean
    of its nearest patch in each reference.

    patches: (n_images, n_patches, dim). chosen: (n_images, n_chosen), the numbers of the chosen
    patches. references: (n_references, n_patches, dim). self_rows: (n_images,), the row of
    `references` that is the image itself and is left out, or -1 for none.
    """
    bank = np.asarray(references, np.float32)
    lack = half_lack(bank.reshape(-1, bank.shape[2])).reshape(bank.shape[:2])

    def expect(image: int) -> NDArray[np.float32]:
        queries = patches[image, chosen[image]].astype(np.float32)
        total = np.zeros(queries.shape, np.float32)
        others = [row for row in range(len(bank)) if row != self_rows[image]]
        for row in others:
            similar = queries @ bank[row].T
            similar += lack[row]
            total += bank[row, similar.argmax(axis=1)]
        total /= max(len(others), 1)
        return total

    expected = np.empty((*chosen.shape, patches.shape[2]), np.float32)
    with single_threaded_blas():
        for image, means in enumerate(in_threads(expect, range(len(patches)))):
            expected[image] = means
    return expected

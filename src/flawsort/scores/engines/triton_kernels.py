"""Fused kernels for CUDA: they compare two blocks of patches and keep only the largest similarities
(`scores.distances`): the products, and half of what the squared lengths lack to 1, from which the
sums start.

The product of two bags of 1,024 patches is a million similarities, of which only 2,048 maxima are
needed. Writing them to memory and reading them back would take longer than the arithmetic; here
they stay in registers. The caller pads bags with copies of their last patch, which change no
maximum, and patches with zeros, so the kernels need no masks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from flawsort.scores.engines.torch_patches import Patches

# The number of patches of the other bag, or of the bank, in a tile.
TILE = 128
# Up to this dimension, the queries of a search in a bank stay in shared memory.
RESIDENT_DIM = 192
# The queries of a search are distributed over the GPU's processors. If there are too few queries,
# the bank is also cut, into at most this many pieces.
MOST_PIECES = 64


@dataclass(frozen=True)
class Shape:
    """The shape of a launch: rows and depth of a tile, warps, and stages of the software
    pipeline."""

    rows: int
    depth: int
    warps: int
    stages: int


def _pair_shape(n_patches: int, dtype: torch.dtype) -> Shape:
    if dtype == torch.float32:
        return Shape(128, 32, 8, 3)
    # 256 rows are fastest if they need no more padding than 128.
    if n_patches % 256 == 0:
        return Shape(256, 64, 8, 4)
    return Shape(128, 64, 4, 3)


@triton.jit
def _pairs_kernel(
    first_bags,
    second_bags,
    first_lack,
    second_lack,
    pairs,
    along,
    across,
    N_PATCHES: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    BOTH_WAYS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One program: compare ROWS patches of a pair's first bag with all patches of the second."""
    BLOCKS: tl.constexpr = N_PATCHES // ROWS
    pair = (tl.program_id(0) // BLOCKS).to(tl.int64)
    block = tl.program_id(0) % BLOCKS
    row = tl.load(pairs + 2 * pair) * N_PATCHES + block * ROWS
    column = tl.load(pairs + 2 * pair + 1) * N_PATCHES
    best = tl.full((ROWS,), -float("inf"), tl.float32)
    own_lack = tl.load(first_lack + row + tl.arange(0, ROWS))
    out = across + (pair * BLOCKS + block) * N_PATCHES + tl.arange(0, TILE)
    for tile in tl.range(0, N_PATCHES // TILE, flatten=True):
        lack = tl.load(second_lack + column + tile * TILE + tl.arange(0, TILE))
        similar = own_lack[:, None] + lack[None, :]
        for depth in range(0, DIM, DEPTH):
            left = first_bags.load([row, depth])
            right = second_bags.load([column + tile * TILE, depth])
            similar = tl.dot(left, right.T, similar, input_precision=PRECISION)
        best = tl.maximum(best, tl.max(similar, 1))
        if BOTH_WAYS:
            tl.store(out + tile * TILE, tl.max(similar, 0))
    tl.store(along + pair * N_PATCHES + block * ROWS + tl.arange(0, ROWS), best)


def pair_maxima(
    first: Patches, second: Patches, pairs: torch.Tensor, *, both_ways: bool, tf32: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(n_pairs, n_patches) twice: for each patch of the first bag of a pair, its largest similarity
    with a patch of the second; and the same for the second bag if `both_ways`, else None.

    first, second: bags; n_patches a multiple of 128, dim of 8. pairs: (n_pairs, 2), int32, rows of
    first and of second.
    """
    n_patches, dim = first.values.shape[1:]
    device = first.values.device
    shape = _pair_shape(n_patches, first.values.dtype)
    blocks = n_patches // shape.rows
    along = torch.empty((len(pairs), n_patches), device=device)
    across = torch.empty((len(pairs), blocks, n_patches) if both_ways else (1,), device=device)
    _pairs_kernel[(len(pairs) * blocks,)](
        TensorDescriptor.from_tensor(first.values.flatten(0, 1), [shape.rows, shape.depth]),
        TensorDescriptor.from_tensor(second.values.flatten(0, 1), [TILE, shape.depth]),
        first.lack,
        second.lack,
        pairs,
        along,
        across,
        n_patches,
        dim,
        shape.rows,
        TILE,
        shape.depth,
        both_ways,
        "tf32" if tf32 else "ieee",
        num_warps=shape.warps,
        num_stages=shape.stages,
    )
    return along, across.amax(1) if both_ways else None


@triton.jit
def _bank_kernel(
    queries,
    bank,
    bank_lack,
    best_out,
    tile_out,
    n_queries,
    n_tiles,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One program: compare ROWS queries with one piece of the bank."""
    block, piece = tl.program_id(0), tl.program_id(1)
    per_piece = tl.cdiv(n_tiles, tl.num_programs(1))
    start = piece * per_piece
    best = tl.full((ROWS,), -float("inf"), tl.float32)
    best_tile = tl.zeros((ROWS,), tl.int32)
    for tile in tl.range(start, tl.minimum(start + per_piece, n_tiles), flatten=True):
        lack = tl.load(bank_lack + tile * TILE + tl.arange(0, TILE))
        similar = tl.zeros((ROWS, TILE), tl.float32) + lack[None, :]
        for depth in range(0, DIM, DEPTH):
            left = queries.load([block * ROWS, depth])
            right = bank.load([tile * TILE, depth])
            similar = tl.dot(left, right.T, similar, input_precision=PRECISION)
        top = tl.max(similar, 1)
        better = top > best  # of equal ones the first, as everywhere
        best = tl.where(better, top, best)
        best_tile = tl.where(better, tile, best_tile)
    out = piece.to(tl.int64) * n_queries + block * ROWS + tl.arange(0, ROWS)
    tl.store(best_out + out, best)
    tl.store(tile_out + out, best_tile)


@triton.jit
def _resident_bank_kernel(
    queries,
    queries_second,
    queries_third,
    bank,
    bank_second,
    bank_third,
    bank_lack,
    best_out,
    tile_out,
    n_queries,
    n_tiles,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    THIRD: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Like _bank_kernel, for patches of low dimension: the queries are loaded only once. The
    dimension is cut into up to three parts, each a power of two, to need little padding."""
    block, piece = tl.program_id(0), tl.program_id(1)
    per_piece = tl.cdiv(n_tiles, tl.num_programs(1))
    start = piece * per_piece
    best = tl.full((ROWS,), -float("inf"), tl.float32)
    best_tile = tl.zeros((ROWS,), tl.int32)
    left = queries.load([block * ROWS, 0])
    if SECOND:
        left_second = queries_second.load([block * ROWS, FIRST])
    if THIRD:
        left_third = queries_third.load([block * ROWS, FIRST + SECOND])
    for tile in tl.range(start, tl.minimum(start + per_piece, n_tiles), num_stages=STAGES):
        row = tile * TILE
        lack = tl.load(bank_lack + row + tl.arange(0, TILE))
        similar = tl.zeros((ROWS, TILE), tl.float32) + lack[None, :]
        similar = tl.dot(left, bank.load([row, 0]).T, similar)
        if SECOND:
            similar = tl.dot(left_second, bank_second.load([row, FIRST]).T, similar)
        if THIRD:
            similar = tl.dot(left_third, bank_third.load([row, FIRST + SECOND]).T, similar)
        top = tl.max(similar, 1)
        better = top > best
        best = tl.where(better, top, best)
        best_tile = tl.where(better, tile, best_tile)
    out = piece.to(tl.int64) * n_queries + block * ROWS + tl.arange(0, ROWS)
    tl.store(best_out + out, best)
    tl.store(tile_out + out, best_tile)


@triton.jit
def _index_kernel(
    queries,
    bank,
    bank_lack,
    tiles,
    index_out,
    DIM: tl.constexpr,  # known when it is compiled, so that loads are as wide as its factors allow
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One program: compare one query with its best tile, to find the position of the maximum."""
    query = tl.program_id(0).to(tl.int64)
    first = tl.load(tiles + query).to(tl.int64) * TILE
    rows = first + tl.arange(0, TILE)
    similar = tl.load(bank_lack + rows)
    for depth in range(0, DIM, DEPTH):
        at = depth + tl.arange(0, DEPTH)
        left = tl.load(queries + query * DIM + at, mask=at < DIM, other=0.0).to(tl.float32)
        right = tl.load(bank + rows[:, None] * DIM + at[None, :], mask=at[None, :] < DIM, other=0.0)
        similar += tl.sum(left[None, :] * right.to(tl.float32), 1)
    tl.store(index_out + query, first + tl.argmax(similar, 0))


def bank_maxima(
    asked: Patches, known: Patches, *, n_processors: int, tf32: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(n,) and (n,): each query's largest similarity with a patch of the bank, and its row there.

    asked: the queries (n, dim). known: the bank (n_bank, dim). n and n_bank are multiples of 128,
    dim of 8.
    """
    queries, bank = asked.values, known.values
    n_queries, dim = queries.shape
    blocks = n_queries // TILE
    pieces = max(1, min(4 * n_processors // blocks, MOST_PIECES, len(bank) // TILE))
    best = torch.empty((pieces, n_queries), device=queries.device)
    tiles = torch.empty((pieces, n_queries), dtype=torch.int32, device=queries.device)
    if dim <= RESIDENT_DIM and queries.dtype != torch.float32:
        # Two programs of this shape share a processor: one multiplies while the other compares.
        tile = TILE // 2
        parts = _parts(dim)
        _resident_bank_kernel[(blocks, pieces)](
            *[TensorDescriptor.from_tensor(queries, [TILE, part or 16]) for part in parts],
            *[TensorDescriptor.from_tensor(bank, [tile, part or 16]) for part in parts],
            known.lack,
            best,
            tiles,
            n_queries,
            len(bank) // tile,
            TILE,
            tile,
            *parts,
            3,
            num_warps=8,
        )
    else:
        # Tiles of 256 patches where the bank allows.
        single = queries.dtype == torch.float32
        tile = TILE if single or len(bank) % (2 * TILE) else 2 * TILE
        depth = 32 if single else 64
        _bank_kernel[(blocks, pieces)](
            TensorDescriptor.from_tensor(queries, [TILE, depth]),
            TensorDescriptor.from_tensor(bank, [tile, depth]),
            known.lack,
            best,
            tiles,
            n_queries,
            len(bank) // tile,
            dim,
            TILE,
            tile,
            depth,
            "tf32" if tf32 else "ieee",
            num_warps=8,
            num_stages=3,
        )
    top, index = _with_index(queries, known, best, tiles, tile)
    return top + asked.lack, index


def _parts(dim: int) -> tuple[int, int, int]:
    """The parts that a low dimension is cut into: 168 into 128, 32 and 16."""
    rest = -(-max(0, dim - 128) // 16) * 16
    if rest == 48:
        return 128, 32, 16
    return 128, rest, 0


def _with_index(
    queries: torch.Tensor, bank: Patches, best: torch.Tensor, tiles: torch.Tensor, tile: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The best of all pieces, and its position; of equal ones, that of the first piece."""
    top = best.amax(0)
    first = (best == top).int().argmax(0, keepdim=True)
    tiles = tiles.gather(0, first)[0].contiguous()
    index = torch.empty(len(queries), dtype=torch.int64, device=queries.device)
    _index_kernel[(len(queries),)](
        queries, bank.values, bank.lack, tiles, index, queries.shape[1], tile, 64, num_warps=4
    )
    return top, index

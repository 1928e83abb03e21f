"""Checks of the fused kernels, to be run in a process of their own: Triton reads whether it is to
interpret its kernels, for want of a GPU, when it is imported.

Sizes are small, as interpreted kernels are slow, but for those that only a GPU checks.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from helpers.bags import Array, unit_vectors
from helpers.engine_checks import (
    Told,
    check_bank,
    check_duplicates,
    check_expected,
    check_means,
    check_peers,
    check_references,
    check_statistics,
    check_ties,
    some_bags,
)
from helpers.oracles import naive_nearest

# Squared distances: products of halves are exact in single precision and in tf32, sums nearly so.
SINGLES = 6e-6
# Operands rounded to eight bits, 2**-9 each; 2 - 2 cos doubles it.
BFLOATS = 4 * 2**-9
# Where products are written out in half precision.
HALVES = 2e-3
INTERPRETED = bool(os.environ.get("TRITON_INTERPRET"))


def fused(arithmetic: str = "float16", **pieces: int) -> Any:
    """pieces: the sizes of some, if they are not the usual ones."""
    from flawsort.scores.engines.torch_engine import Pieces, TorchEngine

    device = "cpu" if INTERPRETED else "cuda"
    return TorchEngine(device, arithmetic, fused=True, pieces=Pieces(**pieces))  # type: ignore[arg-type]


def in_small_pieces() -> Any:
    """All that is cut into pieces, cut into small ones."""
    return fused(pairs=4, distances=4 * 6 * 5 * 2, queries=100, bank=128)


def two_tiles_of_rows() -> None:
    """130 patches are 256 with padding: one block of rows, two tiles; in float32 two blocks."""
    patches, extra = some_bags("random", 3, 130, 40), some_bags("random", 1, 130, 40, seed=1)
    for arithmetic in ("float16", "float32"):
        check_peers(fused(arithmetic), patches, extra=extra, squared=SINGLES)


def three_blocks_and_negative_maxima() -> None:
    """300 patches are 384: three blocks of rows. Padding with zeros would be found to be near."""
    check_peers(fused(), some_bags("opposed", 2, 300, 7), squared=SINGLES)
    check_peers(fused("float32"), some_bags("opposed", 2, 49, 7), squared=SINGLES)


def several_steps_of_depth() -> None:
    patches = some_bags("clumped", 4, 49, 200)
    check_peers(fused(), patches, [1, 3], squared=SINGLES)
    check_peers(fused("tf32"), patches[:2], squared=SINGLES)


def whole_tiles() -> None:
    patches = some_bags("random", 2, 256, 64)
    check_peers(fused(), patches, squared=SINGLES)
    check_references(fused(), patches[:1], patches, squared=SINGLES)


def one_of_everything() -> None:
    for n, n_patches, dim in ((1, 5, 3), (2, 1, 1), (2, 1, 9)):
        patches = some_bags("random", n, n_patches, dim)
        extra = some_bags("random", 1, n_patches, dim, seed=1)
        check_peers(fused(), patches, squared=SINGLES)
        check_peers(fused(), patches, extra=extra, squared=SINGLES)
        check_peers(fused(), patches, [0], squared=SINGLES)
        check_peers(fused(), patches, extra=extra[:0], squared=SINGLES)
        check_bank(fused(), patches[0], extra[0], squared=SINGLES)


def references_and_oneself_among_them() -> None:
    patches = some_bags("clumped", 4, 33, 12)
    check_references(fused(), patches, patches[1:3], [-1, 0, 1, -1], squared=SINGLES)
    check_references(fused(), patches[:1], patches[1:], squared=SINGLES)


def pieces_of_pairs() -> None:
    patches, extra = some_bags("random", 5, 5, 8), some_bags("random", 3, 5, 8, seed=1)
    engine = in_small_pieces()
    check_peers(engine, patches, extra=extra, squared=SINGLES)
    check_statistics(engine, patches, list(range(5)), extra=extra, atol=1e-3)
    check_references(engine, patches, extra, squared=SINGLES)


def statistics_of_many_pairs() -> None:
    patches, extra = some_bags("random", 5, 21, 8), some_bags("random", 2, 21, 8, seed=1)
    check_statistics(fused(), patches, list(range(5)), atol=1e-3)
    check_statistics(fused(), patches, [0, 1, 4], extra=extra, atol=1e-3)


def a_table_that_does_not_fit() -> None:
    """Told so before, or by the GPU while it is filled: then each image for itself."""
    import torch

    patches, extra = some_bags("random", 4, 9, 8), some_bags("random", 2, 9, 8, seed=1)
    engine = fused()

    def full(*arguments: Any) -> None:
        raise torch.OutOfMemoryError("too much")

    with (
        patch.object(type(engine), "_fits", lambda *sizes: False),
        patch.object(type(engine), "_table", side_effect=AssertionError),
    ):
        check_peers(engine, patches, extra=extra, squared=SINGLES)
    with patch.object(type(engine), "_table", full):
        check_peers(engine, patches, extra=extra, squared=SINGLES)
        check_statistics(engine, patches, list(range(4)), atol=1e-3)


def maxima_of_any_pairs() -> None:
    """The kernel itself: pairs of two different sets of bags, in any order, one way or both."""
    import torch

    from flawsort.scores.engines.torch_patches import Patches
    from flawsort.scores.engines.triton_kernels import pair_maxima

    device = fused()._device
    first, second = some_bags("opposed", 2, 128, 8), some_bags("random", 3, 128, 8)
    pairs = [(1, 2), (0, 0), (1, 2), (0, 1)]
    arguments = (
        Patches.of(torch.from_numpy(first).to(device)),
        Patches.of(torch.from_numpy(second).to(device)),
        torch.tensor(pairs, dtype=torch.int32, device=device),
    )
    along, across = pair_maxima(*arguments, both_ways=True, tf32=False)
    one_way, nothing = pair_maxima(*arguments, both_ways=False, tf32=False)
    assert nothing is None
    assert across is not None
    assert torch.equal(along, one_way)
    for row, (one, other) in enumerate(pairs):
        apart = first[one].astype(np.float64)[:, None] - second[other].astype(np.float64)
        similar = 1 - (apart**2).sum(axis=2) / 2
        np.testing.assert_allclose(along[row].cpu(), similar.max(axis=1), rtol=0, atol=SINGLES)
        np.testing.assert_allclose(across[row].cpu(), similar.max(axis=0), rtol=0, atol=SINGLES)


def banks_of_short_patches() -> None:
    """Up to 128 numbers, and up to 192, where the rest is a second product."""
    for dim, n_bank in ((7, 400), (136, 130), (168, 300), (190, 130)):
        queries, bank = unit_vectors(130, dim, seed=1), unit_vectors(n_bank, dim, seed=2)
        halves = queries.astype(np.float16), bank.astype(np.float16)
        check_bank(fused(), *halves, squared=SINGLES)


def banks_of_long_patches() -> None:
    """In tiles of 128 patches, where their number is odd; banks_shared_out has an even one."""
    queries = unit_vectors(20, 200, seed=1, dtype=np.float16)
    bank = unit_vectors(300, 200, seed=2, dtype=np.float16)
    check_bank(fused(), queries, bank, squared=SINGLES)


def banks_in_single_precision() -> None:
    queries, bank = unit_vectors(130, 9, seed=1), unit_vectors(300, 9, seed=2)
    check_bank(fused("float32"), queries, bank, squared=SINGLES)
    halves = some_bags("opposed", 2, 40, 9)
    check_bank(fused("tf32"), *halves, squared=SINGLES)
    check_bank(fused(), *halves, squared=SINGLES)


def banks_shared_out() -> None:
    """The bank in as many pieces as there are processors for, more than tiles or fewer."""
    import torch

    from flawsort.scores.engines.torch_patches import Patches
    from flawsort.scores.engines.triton_kernels import bank_maxima

    device = fused()._device
    for dim, n_tiles, dtype, n_processors in (
        (8, 5, np.float16, 0),
        (8, 5, np.float16, 1),
        (8, 5, np.float16, 100),
        (200, 6, np.float16, 1),  # in tiles of 256, fewer than there are pieces
        (8, 5, np.float32, 1),
    ):
        # All point away from each other: nothing beyond the bank's end may be taken for a patch.
        queries = np.abs(unit_vectors(128, dim, seed=1, dtype=dtype))
        bank = -np.abs(unit_vectors(128 * n_tiles, dim, seed=2, dtype=dtype))
        expected, index = naive_nearest(queries, bank)
        best, found = bank_maxima(
            Patches.of(torch.from_numpy(queries).to(device)),
            Patches.of(torch.from_numpy(bank).to(device)),
            n_processors=n_processors,
            tf32=False,
        )
        np.testing.assert_allclose(2 - 2 * best.cpu().numpy(), expected**2, rtol=0, atol=SINGLES)
        np.testing.assert_array_equal(found.cpu(), index)


def the_first_of_equal_ones() -> None:
    for arithmetic in ("float16", "float32"):
        check_ties(fused(arithmetic), 700)


def duplicates_at_no_distance() -> None:
    for arithmetic in ("float16", "tf32"):
        check_duplicates(fused(arithmetic))


def pieces_of_banks() -> None:
    queries, bank = some_bags("random", 2, 140, 6)
    check_bank(in_small_pieces(), queries, bank, squared=SINGLES)
    check_ties(in_small_pieces(), 260)


def what_torch_does_alone() -> None:
    check_expected(fused(), np.float16)
    check_means(fused(), 4, 6, masked=True)


def names() -> None:
    where = "the CPU" if INTERPRETED else ""
    assert fused().name.startswith(f"Triton on {where}")
    assert fused().name.endswith(", float16")


def the_same_each_time() -> None:
    patches = some_bags("clumped", 3, 40, 16)
    results = []
    for _ in range(2):
        told = Told()
        fused().fold_peers(patches, np.arange(3), told)
        results.append(told.pairs)
    for pair, distances in results[0].items():
        np.testing.assert_array_equal(distances, results[1][pair])


def large_bags() -> None:
    """On a GPU only: several blocks of 256 rows, and bfloat16, which Triton interprets not."""
    patches: Array = some_bags("clumped", 2, 600, 168)
    for arithmetic, squared in (("float16", SINGLES), ("bfloat16", BFLOATS), ("float32", SINGLES)):
        for n_patches in (600, 512):
            bags = patches[:, :n_patches].copy()
            check_peers(fused(arithmetic), bags, extra=bags[:1], squared=squared)
        bank = unit_vectors(2000, 168, seed=3, dtype=np.float16)
        check_bank(fused(arithmetic), patches[0, :300], bank, squared=squared)


def plain_products() -> None:
    """On a GPU only: without kernels."""
    from flawsort.scores.engines.torch_engine import TorchEngine

    for arithmetic, squared in (("float32", SINGLES), ("float16", HALVES)):
        engine = TorchEngine("cuda", arithmetic, fused=False)  # type: ignore[arg-type]
        patches = some_bags("clumped", 4, 130, 40)
        check_peers(engine, patches, extra=patches[:1], squared=squared)
        check_statistics(engine, some_bags("random", 5, 21, 8), [0, 1, 4], atol=5e-3)
        check_bank(engine, patches[0], patches[1], squared=squared)
        check_expected(engine, np.float16)
        check_means(engine, 4, 6, masked=True)


CHECKS: tuple[Callable[[], None], ...] = (
    two_tiles_of_rows,
    three_blocks_and_negative_maxima,
    several_steps_of_depth,
    whole_tiles,
    one_of_everything,
    references_and_oneself_among_them,
    pieces_of_pairs,
    statistics_of_many_pairs,
    a_table_that_does_not_fit,
    maxima_of_any_pairs,
    banks_of_short_patches,
    banks_of_long_patches,
    banks_in_single_precision,
    banks_shared_out,
    the_first_of_equal_ones,
    duplicates_at_no_distance,
    pieces_of_banks,
    what_torch_does_alone,
    names,
    the_same_each_time,
)
GPU_CHECKS: tuple[Callable[[], None], ...] = (large_bags, plain_products)


def main() -> None:
    """Prints, as JSON by the check's name, what went wrong in it: nothing at all, one hopes."""
    outcomes = {}
    for check in CHECKS if INTERPRETED else (*CHECKS, *GPU_CHECKS):
        try:
            check()
            outcomes[check.__name__] = ""
        except Exception:
            outcomes[check.__name__] = traceback.format_exc()
    print(json.dumps(outcomes))

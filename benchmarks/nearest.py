"""Compare the search for nearest patches with NumPy's matrix rate, in one run on this machine.

    python benchmarks/nearest.py

Prints the rate of plain sgemm and, as ratios to it, the rates of the loop over peers (each product
serves two directions but is counted once), of the same loop in eight bits, and of the exact search
among normals. Then compares the inverted lists with the exact search: time, recall, and the excess
of their distances.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from flawsort.scores.engines.int8 import Int8
from flawsort.scores.inverted_lists import build_lists
from flawsort.scores.nearest import fold_peers, nearest_in_bank, search_flop
from flawsort.scores.peer_statistics import MeanOverNearestPeers, MeanOverPeers

PATCHES = 1024


def unit_patches(n: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """(n, dim), float16: clustered patches, like those of real images."""
    clumps = rng.standard_normal((256, dim))
    patches = clumps[rng.integers(256, size=n)] + 0.7 * rng.standard_normal((n, dim))
    return (patches / np.linalg.norm(patches, axis=1, keepdims=True)).astype(np.float16)


def best_of(work: Callable[[], object], repeats: int) -> float:
    """The seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def sgemm_rate(dim: int, repeats: int) -> float:
    """GFLOP/s of one large product with all cores, written to allocated memory."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((8192, dim)).astype(np.float32)
    b = np.ascontiguousarray(rng.standard_normal((8192, dim)).astype(np.float32).T)
    out = np.empty((8192, 8192), np.float32)
    seconds = best_of(lambda: np.matmul(a, b, out=out), repeats)
    return search_flop(8192, 8192, dim) / seconds / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dims", type=int, nargs="+", default=[168, 512, 1024])
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(
        f"{'dim':>5} {'sgemm':>8} {'peers, mean':>12} {'nearest fifth':>14} {'int8':>6} {'bank':>6}"
    )
    print(f"{'':>5} {'GFLOP/s':>8} {'ratio':>12} {'ratio':>14} {'ratio':>6} {'ratio':>6}")
    n = options.images
    for dim in options.dims:
        rng = np.random.default_rng(1)
        bags = unit_patches(n * PATCHES, dim, rng).reshape(n, PATCHES, dim)
        peers = np.arange(n)
        rate = sgemm_rate(dim, options.repeats)
        pair_flop = search_flop(PATCHES, PATCHES, dim) * n * (n - 1) / 2
        mean = best_of(
            lambda b=bags, p=peers: fold_peers(b, p, MeanOverPeers(n, PATCHES)), options.repeats
        )
        fifth = best_of(
            lambda b=bags, p=peers: fold_peers(b, p, MeanOverNearestPeers(n, PATCHES, n // 5)),
            options.repeats,
        )
        rounded = Int8(dim)
        eight = best_of(
            lambda b=bags, p=peers, r=rounded: fold_peers(
                b, p, MeanOverNearestPeers(n, PATCHES, n // 5), bags=r
            ),
            options.repeats,
        )
        queries, bank = bags[:8].reshape(-1, dim), bags[8:].reshape(-1, dim)
        search = best_of(lambda q=queries, b=bank: nearest_in_bank(q, b), options.repeats)
        bank_flop = search_flop(len(queries), len(bank), dim)
        print(
            f"{dim:>5} {rate:>8.1f} {pair_flop / mean / 1e9 / rate:>12.2f} "
            f"{pair_flop / fifth / 1e9 / rate:>14.2f} {pair_flop / eight / 1e9 / rate:>6.2f} "
            f"{bank_flop / search / 1e9 / rate:>6.2f}"
        )
    compare_lists(options.dims[0])


def compare_lists(dim: int) -> None:
    rng = np.random.default_rng(2)
    bank = unit_patches(200 * PATCHES, dim, rng)
    queries = unit_patches(16 * PATCHES, dim, rng)
    start = time.perf_counter()
    exact = nearest_in_bank(queries, bank)
    exact_s = time.perf_counter() - start
    start = time.perf_counter()
    lists = build_lists(bank)
    build_s = time.perf_counter() - start
    print(
        f"\n{len(queries):,} queries in a bank of {len(bank):,}, dim {dim}: exact {exact_s:.2f} s"
    )
    print(f"lists: {len(lists.centres):,}, built in {build_s:.2f} s")
    print(f"{'probes':>6} {'seconds':>8} {'faster':>7} {'recall':>7} {'too long by':>12}")
    for probes in (1, 4, 8, 16, 32):
        start = time.perf_counter()
        found = lists.search(queries, probes=probes)
        seconds = time.perf_counter() - start
        recall = float((found.index == exact.index).mean())
        excess = float((found.distances / exact.distances - 1).mean())
        print(
            f"{probes:>6} {seconds:>8.2f} {exact_s / seconds:>6.1f}x {recall:>7.3f} {excess:>12.2%}"
        )


if __name__ == "__main__":
    main()

"""Measure the peak resident memory of grouping many images without normals.

    python benchmarks/memory.py [--images 1000] [--seconds 60]

Random bags of 1,024 patches with 168 dimensions replace images, since memory does not depend on
what images show. All pairs of 1,000 images take a quarter of an hour on two cores. So after the
given number of seconds, random distances replace the products; all other steps, up to the linkage
and the advice, are unchanged.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

import numpy as np

from flawsort import AnomalyClusterer, Bags, Method
from flawsort.scores.engines.int8 import Int8

PATCHES, DIM = 1024, 168


def peak_mib() -> float:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    patches = np.empty((options.images, PATCHES, DIM), np.float16)
    for image in range(options.images):
        one = rng.standard_normal((PATCHES, DIM), np.float32)
        patches[image] = one / np.linalg.norm(one, axis=1, keepdims=True)
    print(f"{options.images} images of {PATCHES} patches, dim {DIM}")
    print(f"bags held                {patches.nbytes / 2**20:>8.0f} MiB, peak {peak_mib():.0f} MiB")
    compare_bags, start = Int8.compare, time.monotonic()
    multiplied = 0

    def compare(product: Int8, first: tuple, second: tuple) -> tuple[np.ndarray, np.ndarray]:
        nonlocal multiplied
        if time.monotonic() - start < options.seconds:
            multiplied += 1
            return compare_bags(product, first, second)
        guess = np.random.default_rng(0).random((2, PATCHES), np.float32)
        return guess[0], guess[1]

    Int8.compare = compare
    model = AnomalyClusterer(method=Method(n_peers="all"), n_clusters=6)
    model.fit(Bags(patches, (32, 32)))
    pairs = options.images * (options.images - 1) // 2
    print(f"grouped, all pairs       {pairs:>8,} pairs, {multiplied:,} multiplied; ", end="")
    print(f"peak {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()

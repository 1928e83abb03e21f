"""The peak of resident memory when many images are scored against each other.

    python benchmarks/memory.py [--images 1000] [--seconds 60]

Random bags of 1,024 patches with 168 dimensions stand in for images: memory does not depend on
what they show. All pairs of 1,000 images take a quarter of an hour on two cores, so scoring is
stopped after the given time; what it holds is allocated at its start.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import sys
import time

import numpy as np

from flawsort.presets import PRESETS
from flawsort.records import Bags
from flawsort.references import compare_with_peers

PATCHES, DIM = 1024, 168


class TimeUpError(Exception):
    pass


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
    start, share = time.monotonic(), 0.0

    def watch(_stage: str, done: int, total: int) -> None:
        nonlocal share
        share = done / total
        if time.monotonic() - start > options.seconds:
            raise TimeUpError

    with contextlib.suppress(TimeUpError):
        compare_with_peers(
            Bags(patches, (32, 32)),
            n_peers="all",
            nearest_share=PRESETS["default"].nearest_share,
            progress=watch,
        )
    print(f"scored, {share:>4.0%} of the pairs{'':<5} peak {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()

"""Measure Ward's tree of many images: time, memory, and agreement with SciPy's tree.

    python benchmarks/hierarchy.py [--images 5000 20000] [--embeddings FILE.npy] [--jitter 0.05]

Prints the time and the peak resident memory for each number of images. Then, for the smallest
number, prints how well cuts at k = 2 to 20 agree (ARI) with those of SciPy's tree: cuts of this
tree, and of trees in two levels (mini-batch k-means, then Ward's merges of its clusters), which it
replaces. Embeddings are a synthetic mixture, or drawn from FILE with jitter. The length of the
jitter is given in units of the median distance between an image and its nearest neighbour.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score

from flawsort.clusters import large_ward as hierarchy
from flawsort.clusters.placement import centres
from flawsort.clusters.ward import cut, ward_linkage

KS = range(2, 21)
DIM, KINDS = 169, 12


def peak_mib() -> float:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def mixture(n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, DIM): overlapping clusters of different sizes and widths."""
    kinds = rng.choice(KINDS, n, p=np.arange(1, KINDS + 1) / (KINDS * (KINDS + 1) / 2))
    middles = rng.standard_normal((KINDS, DIM), np.float32)
    widths = rng.uniform(0.5, 1.2, KINDS).astype(np.float32)
    return middles[kinds] + widths[kinds, None] * rng.standard_normal((n, DIM), np.float32)


def drawn(given: np.ndarray, n: int, jitter: float, rng: np.random.Generator) -> np.ndarray:
    """(n, dim): random rows of `given`, each with random jitter."""
    far = cdist(given, given)
    np.fill_diagonal(far, np.inf)
    length = jitter * float(np.median(far.min(axis=1))) / np.sqrt(given.shape[1])
    noise = rng.standard_normal((n, given.shape[1]), np.float32)
    return given[rng.integers(len(given), size=n)] + np.float32(length) * noise


def two_levels(embeddings: np.ndarray, n_micro: int) -> dict[int, np.ndarray]:
    """The groups for each k when Ward's method merges the clusters of mini-batch k-means."""
    found = MiniBatchKMeans(n_micro, n_init=1, batch_size=4096, random_state=0).fit(embeddings)
    _, labels = np.unique(found.labels_, return_inverse=True)
    merges = hierarchy.weighted_ward(centres(embeddings, labels), np.bincount(labels))
    return {k: cut(merges, k)[labels] for k in KS}


def agreement(ours: dict[int, np.ndarray], plain: dict[int, np.ndarray]) -> str:
    values = [adjusted_rand_score(ours[k], plain[k]) for k in KS]
    return f"{np.mean(values):>9.4f} {min(values):>9.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, nargs="+", default=[5000, 20_000])
    parser.add_argument("--embeddings", type=Path)
    parser.add_argument("--jitter", type=float, default=0.05)
    options = parser.parse_args()
    limits = hierarchy.Limits(plain=1)  # use the method for large sets at any size
    given = None if options.embeddings is None else np.load(options.embeddings).astype(np.float32)

    def embeddings(n: int) -> np.ndarray:
        rng = np.random.default_rng(0)
        return mixture(n, rng) if given is None else drawn(given, n, options.jitter, rng)

    print(f"{'images':>8} {'seconds':>8} {'peak MiB':>9}")
    for n in sorted(options.images):
        made = embeddings(n)
        start = time.perf_counter()
        hierarchy.tree(made, limits=limits)
        print(f"{n:>8,} {time.perf_counter() - start:>8.1f} {peak_mib():>9.0f}", flush=True)
    made = embeddings(min(options.images))
    start = time.perf_counter()
    merges = ward_linkage(made)
    print(f"\n{len(made):,} images, SciPy: {time.perf_counter() - start:.1f} s")
    ours = hierarchy.tree(made, limits=limits)
    apart = np.abs(ours[:, 2] - merges[:, 2]).max() / merges[-1, 2]
    print(f"heights differ by at most {apart:.0e} of the highest")
    print(f"{'ARI with its cuts at k = 2 to 20':<34} {'mean':>9} {'least':>9}")
    plain = {k: cut(merges, k) for k in KS}
    print(f"{'this tree':<34} {agreement({k: cut(ours, k) for k in KS}, plain)}")
    for share in (2, 4, 10):
        name = f"two levels, {len(made) // share:,} micro-clusters"
        print(f"{name:<34} {agreement(two_levels(made, len(made) // share), plain)}", flush=True)


if __name__ == "__main__":
    main()

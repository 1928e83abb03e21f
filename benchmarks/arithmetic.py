"""Measure speed and quality of each arithmetic of the comparison, on a CPU.

    python benchmarks/arithmetic.py --data FOLDER

FOLDER holds sets in MVTec AD's layout. For each way to compare bags, prints the means over the sets
of: milliseconds per pair of images, the speed relative to float32, the difference of the scores
from those of float32 (in standard deviations of the scores), and NMI with the true k, without
normals. Projections use the first axes of a principal component analysis, or random axes.
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from flawsort.backbones import load_backbone
from flawsort.backbones.cache import BagCache, default_cache_folder
from flawsort.backbones.embed import cache_setting, embed
from flawsort.clusters.ward import cut, ward_linkage
from flawsort.embeddings.method import Method
from flawsort.fitting.fit import describe_set
from flawsort.fitting.options import FitOptions
from flawsort.fitting.source import HeldSource
from flawsort.images.view import View
from flawsort.research.metrics import agreement
from flawsort.research.truth import load_datasets
from flawsort.scores.engines import CpuEngine, choose_engine


class Projected(CpuEngine):
    """Compares patches after a projection to fewer dimensions, at unit length."""

    def __init__(self, count: int, kind: str) -> None:
        super().__init__("float32")
        self._count, self._kind = count, kind

    def fold_peers(self, patches, *arguments, **options):  # type: ignore[no-untyped-def]
        dim = patches.shape[2]
        axes = np.linalg.qr(np.random.default_rng(0).standard_normal((dim, dim)))[0]
        if self._kind == "PCA":
            some = patches[::4].reshape(-1, dim).astype(np.float64)
            axes = np.linalg.eigh(some.T @ some)[1][:, ::-1]
        fewer = patches.astype(np.float32) @ axes[:, : self._count].astype(np.float32)
        fewer /= np.maximum(np.linalg.norm(fewer, axis=2, keepdims=True), 1e-9)
        return super().fold_peers(fewer, *arguments, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    engines = {
        "float32": CpuEngine("float32"),
        "int8": CpuEngine("int8"),
        "PCA to 96": Projected(96, "PCA"),
        "PCA to 48": Projected(48, "PCA"),
        "random to 96": Projected(96, "random"),
    }
    if find_spec("torch"):
        engines["bfloat16, torch"] = choose_engine("cpu", "bfloat16")
    backbone, view = load_backbone("efficientnet-lite2"), View()
    cache = BagCache(
        default_cache_folder(), cache_setting(backbone, view), max_pixels=view.max_pixels
    )
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in engines}
    for data in load_datasets(options.data):
        bags = embed(data.images, backbone, view, cache=cache).bags
        source = HeldSource(data.images, data.images, bags)
        truth = np.array(data.labels)
        counted = truth != "combined"
        k, pairs = len(set(truth[counted])), len(bags) * (len(bags) - 1) / 2
        exact = None
        for name, engine in engines.items():
            start = time.perf_counter()
            method = Method(n_peers="all")
            found = describe_set(source, None, FitOptions(method, engine)).described
            seconds = time.perf_counter() - start
            exact = found.scores if exact is None else exact
            error = float(np.sqrt(np.mean((found.scores - exact) ** 2)) / exact.std())
            labels = cut(ward_linkage(found.embeddings), k)
            nmi = agreement(truth[counted], labels[counted]).nmi
            rows[name].append((1000 * seconds / pairs, error, nmi))
            print(f"  {data.name} {name}: {seconds:.1f} s, NMI {nmi:.3f}", flush=True)
    print(f"{'':<18} {'ms/pair':>10} {'faster':>7} {'error':>7} {'NMI':>6}")
    first = np.mean([row[0] for row in rows["float32"]])
    for name, found in rows.items():
        time_of_pair, error, nmi = np.mean(found, axis=0)
        print(
            f"{name:<18} {time_of_pair:>10.2f} {first / time_of_pair:>6.1f}x {error:>7.3f} "
            f"{nmi:>6.3f}"
        )


if __name__ == "__main__":
    main()

"""How well the groups match the true kinds of flaws, on data sets with known truth.

    python benchmarks/quality.py --data DIR [--data DIR ...]

DIR is one MVTec AD category or a folder of them, the magnetic tiles, or a folder per label. The
true number of kinds is used as k (an oracle), as in the paper; `combined` is left out of the
figures. Without normals every set is grouped by itself; with normals where the set has some.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from flawsort import AnomalyClusterer
from flawsort.datasets import EXCLUDED_LABELS, LabelledSet, load_datasets
from flawsort.metrics import agreement

FIGURES = ("nmi", "ari", "f1")


def evaluate(
    data: LabelledSet, preset: str, with_normals: bool, options: argparse.Namespace
) -> None:
    """Print one row of the table, and keep its figures for the mean."""
    rows = [i for i, label in enumerate(data.labels) if label not in EXCLUDED_LABELS]
    truth = [data.labels[i] for i in rows]
    model = AnomalyClusterer(
        n_clusters=len(set(truth)),
        method=preset,
        backbone=options.backbone,
        image_size=options.image_size,
        cache=options.cache,
    )
    start = time.perf_counter()
    model.fit(data.images, normal=data.normals if with_normals else None)
    seconds = time.perf_counter() - start
    if len(model.images_) != len(data.images):
        raise SystemExit(f"{data.name}: unreadable images: {model.images_.set_aside}")
    found = agreement(truth, model.labels_[rows])
    advised = agreement(truth, cut_at(model, model.advice_.k)[rows])
    figures = [getattr(found, name) for name in FIGURES]
    figures += [advised.nmi, abs(model.advice_.k - len(set(truth)))]
    MEANS[preset, with_normals].append((data.name, figures))
    print(
        f"{data.name:<16} {preset:<8} {'normals' if with_normals else 'none':<8} "
        + " ".join(f"{value:>6.3f}" for value in figures[:3])
        + f"   k {len(set(truth))}, advised {model.advice_.k} ({model.advice_.low}-"
        f"{model.advice_.high}): NMI {advised.nmi:.3f}   {seconds:>6.1f} s",
        flush=True,
    )


def cut_at(model: AnomalyClusterer, k: int) -> np.ndarray:
    from flawsort.cluster import cut

    return cut(model.linkage_, k)


MEANS: dict[tuple[str, bool], list[tuple[str, list[float]]]] = defaultdict(list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--presets", nargs="+", default=["paper", "default"])
    parser.add_argument("--modes", nargs="+", default=["none", "normals"])
    parser.add_argument("--backbone", default="efficientnet-lite2")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--cache", type=Path, help="folder for embedded images")
    options = parser.parse_args()
    print(f"{'set':<16} {'preset':<8} {'normals':<8} " + " ".join(f"{n:>6}" for n in FIGURES))
    for folder in options.data:
        MEANS.clear()
        for data in load_datasets(folder):
            for mode in options.modes:
                for preset in options.presets:
                    if mode == "none" or data.normals is not None:
                        evaluate(data, preset, mode == "normals", options)
        print_means()


def print_means() -> None:
    """The means over the sets of one folder."""
    for (preset, with_normals), entries in MEANS.items():
        means = np.mean([figures for _, figures in entries], axis=0)
        name, normals = f"mean of {len(entries)}", "normals" if with_normals else "none"
        print(
            f"{name:<16} {preset:<8} {normals:<8} "
            + " ".join(f"{value:>6.3f}" for value in means[:3])
            + f"   with the advised k: NMI {means[3]:.3f}, off by {means[4]:.1f}"
        )


if __name__ == "__main__":
    main()

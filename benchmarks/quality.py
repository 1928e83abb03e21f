"""Measure how well the groups match the true kinds of flaws, on data sets with known truth.

    python benchmarks/quality.py --data DIR [--data DIR ...] [--subsets 20]

DIR is one MVTec AD category or a folder of categories, the magnetic tiles, or a folder with one
subfolder per label. The true number of kinds is used as k (an oracle), as in the paper; the metrics
leave out `combined`. Every set is grouped without normals, and also with normals if it has some.
A single cut is noisy, so --subsets also prints the mean and the standard error of NMI over cuts of
that many random subsets of 90% of the images, with the embeddings of the whole set. Published
results follow the means if the sets are the four categories or the magnetic tiles. --larger adds
rows with another backbone and the default method.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flawsort import AnomalyClusterer
from flawsort.research.metrics import agreement
from flawsort.research.truth import EXCLUDED_LABELS, LabelledSet, load_datasets

FIGURES = ("nmi", "ari", "f1")
FOUR = {"bottle", "hazelnut", "leather", "transistor"}
# NMI without and with normals as published, each paper with its own backbone.
PUBLISHED = {
    "the paper, WideResNet-50": {"four": (0.604, 0.728), "magnetic-tile": (0.179, 0.390)},
    "AnomalyNCD": {"four": (0.667, 0.735), "magnetic-tile": (0.268, 0.380)},
    "UniFormaly": {"magnetic-tile": (None, 0.421)},
}


def evaluate(data: LabelledSet, row: str, with_normals: bool, options: argparse.Namespace) -> None:
    """Print one row of the table, and record its metrics for the mean."""
    rows = [i for i, label in enumerate(data.labels) if label not in EXCLUDED_LABELS]
    truth = [data.labels[i] for i in rows]
    larger = row == "larger"
    model = AnomalyClusterer(
        n_clusters=len(set(truth)),
        method="default" if larger else row,
        backbone=options.larger if larger else options.backbone,
        backbone_weights=options.larger_weights if larger else None,
        image_size=options.image_size,
        cache=options.cache,
        max_memory=options.max_memory,
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
    over_subsets = subset_figures(model.embeddings_, data.labels, options.subsets)
    figures += over_subsets
    MEANS[row, with_normals].append((data.name, figures))
    print(
        f"{data.name:<16} {row:<8} {'normals' if with_normals else 'none':<8} "
        + " ".join(f"{value:>6.3f}" for value in figures[:3])
        + (f"   {over_subsets[0]:.3f} +- {over_subsets[1]:.3f}" if over_subsets else "")
        + f"   k {len(set(truth))}, advised {model.advice_.k} ({model.advice_.low}-"
        f"{model.advice_.high}): NMI {advised.nmi:.3f}   {seconds:>6.1f} s",
        flush=True,
    )


def subset_figures(embeddings: np.ndarray, labels: Sequence[str], count: int) -> list[float]:
    """The mean NMI over random subsets and its standard error; empty without subsets."""
    from flawsort.clusters.large_ward import tree
    from flawsort.clusters.ward import cut

    found = []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(labels))
        some = np.sort(order[: round(0.9 * len(labels))])
        rows = [place for place, i in enumerate(some) if labels[i] not in EXCLUDED_LABELS]
        truth = [labels[some[place]] for place in rows]
        groups = cut(tree(embeddings[some]), len(set(truth)))
        found.append(agreement(truth, groups[rows]).nmi)
    return [float(np.mean(found)), float(np.std(found) / np.sqrt(count))] if found else []


def cut_at(model: AnomalyClusterer, k: int) -> np.ndarray:
    from flawsort.clusters.ward import cut

    return cut(model.linkage_, k)


MEANS: dict[tuple[str, bool], list[tuple[str, list[float]]]] = defaultdict(list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--presets", nargs="+", default=["paper", "default"])
    parser.add_argument("--modes", nargs="+", default=["none", "normals"])
    parser.add_argument("--backbone", default="efficientnet-lite2")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--larger", help="another backbone, by its name or path")
    parser.add_argument("--larger-weights", type=Path, help="its weights, where it needs a file")
    parser.add_argument("--subsets", type=int, default=0)
    parser.add_argument("--max-memory", help="hold larger sets in memory, like 64GB")
    parser.add_argument("--cache", type=Path, help="folder for embedded images")
    options = parser.parse_args()
    print(f"{'set':<16} {'preset':<8} {'normals':<8} " + " ".join(f"{n:>6}" for n in FIGURES))
    for folder in options.data:
        MEANS.clear()
        for data in load_datasets(folder):
            for mode in options.modes:
                for row in [*options.presets, *(["larger"] if options.larger else [])]:
                    if mode == "none" or data.normals is not None:
                        evaluate(data, row, mode == "normals", options)
        print_means()


def print_means() -> None:
    """Print the means over the sets of one folder, and published results for them."""
    for (preset, with_normals), entries in MEANS.items():
        means = np.mean([figures for _, figures in entries], axis=0)
        name, normals = f"mean of {len(entries)}", "normals" if with_normals else "none"
        print(
            f"{name:<16} {preset:<8} {normals:<8} "
            + " ".join(f"{value:>6.3f}" for value in means[:3])
            + (f"   {means[5]:.3f}" if len(means) > 5 else "")
            + f"   with the advised k: NMI {means[3]:.3f}, off by {means[4]:.1f}"
        )
    names = {name for entries in MEANS.values() for name, _ in entries}
    which = "four" if names == FOUR else "".join(names)
    for method, figures in PUBLISHED.items():
        for value, normals in zip(figures.get(which, ()), ("none", "normals"), strict=False):
            if value is not None:
                print(f"{'published':<16} {method}, {normals}: NMI {value:.3f}")


if __name__ == "__main__":
    main()

"""Measure how well images that show several kinds of flaw are recognised.

    python benchmarks/combined.py --data DIR [--data DIR ...]

No data set labels the kinds that its `combined` images show. So this script makes images of two
kinds from images of one kind: it pastes the marked flaw of an image, blended and matched in
brightness, at the same place into an image of another kind, if the two flaws do not overlap. Up to
two such images for each ordered pair of kinds are added to the set, which is then grouped with the
true number of kinds as k. Each group is assigned the most frequent kind of its images of one kind.

recall: the share of the true kinds that are predicted; "by group" uses only an image's group.
precision: the share of the predicted kinds that are true. several: the share of the images of one
kind that are predicted to show several. DIR as for quality.py, with masks.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from flawsort import AnomalyClusterer
from flawsort.research.metrics import agreement, several_kinds
from flawsort.research.truth import EXCLUDED_LABELS, LabelledSet, load_datasets

TRIES = 20
OVERLAP = 0.05
FEWEST_PIXELS = 20


def pasted(flawed: Image.Image, mask: Image.Image, onto: Image.Image) -> Image.Image:
    """Paste the marked part of an image into another image. All three have the same size."""
    marked = np.asarray(mask) > 0
    around = (np.asarray(mask.filter(ImageFilter.MaxFilter(9))) > 0) & ~marked
    one, other = (np.asarray(image.convert("RGB"), np.float64) for image in (flawed, onto))
    offset = (other[around] - one[around]).mean(axis=0) if around.any() else 0.0
    soft = mask.filter(ImageFilter.MaxFilter(5)).filter(ImageFilter.GaussianBlur(2))
    share = np.asarray(soft, np.float64)[..., None] / 255
    mixed = other * (1 - share) + (one + offset) * share
    return Image.fromarray(np.clip(mixed, 0, 255).astype(np.uint8))


def binary(path: Path, size: tuple[int, int]) -> Image.Image:
    with Image.open(path) as mask:
        marked = np.asarray(mask.convert("L").resize(size, Image.Resampling.NEAREST)) > 0
    return Image.fromarray((marked * 255).astype(np.uint8))


def make(data: LabelledSet, folder: Path, each: int) -> dict[str, set[str]]:
    """Write images of two kinds as PNG files. Returns the kinds of each by its path."""
    rng = np.random.default_rng(0)
    by_kind: dict[str, list[tuple[Path, Path]]] = defaultdict(list)
    for source, label, mask in zip(data.images.sources, data.labels, data.masks, strict=True):
        if mask is not None and label not in EXCLUDED_LABELS:
            by_kind[label].append((Path(str(source)), mask))
    made: dict[str, set[str]] = {}
    for kind, under in itertools.permutations(sorted(by_kind), 2):
        count = 0
        for _ in range(TRIES):
            flawed, mask = by_kind[kind][rng.integers(len(by_kind[kind]))]
            onto, onto_mask = by_kind[under][rng.integers(len(by_kind[under]))]
            with Image.open(onto) as image, Image.open(flawed) as other:
                size = image.size
                marked, there = binary(mask, size), binary(onto_mask, size)
                both = [np.asarray(one) > 0 for one in (marked, there)]
                least = min(one.sum() for one in both)
                if least < FEWEST_PIXELS or (both[0] & both[1]).sum() > OVERLAP * least:
                    continue
                path = folder / f"{len(made):03}.png"
                pasted(other.resize(size), marked, image).save(path)
            made[str(path)] = {kind, under}
            count += 1
            if count == each:
                break
    return made


def evaluate(
    data: LabelledSet, made: dict[str, set[str]], normals: bool, cache: Path
) -> list[float]:
    truth: dict[str, set[str]] = dict(made)
    for source, label in zip(data.images.sources, data.labels, strict=True):
        if label not in EXCLUDED_LABELS:
            truth[str(source)] = {label}
    single = {next(iter(kinds)) for kinds in truth.values() if len(kinds) == 1}
    model = AnomalyClusterer(n_clusters=len(single), cache=cache)
    model.fit(sorted(truth), normal=data.normals if normals else None)
    wanted = [truth[str(source)] for source in model.images_.sources]
    one = [row for row, kinds in enumerate(wanted) if len(kinds) == 1]
    two = [row for row, kinds in enumerate(wanted) if len(kinds) > 1]
    found = agreement([next(iter(wanted[row])) for row in one], model.labels_[one])
    best = found.confusion.argmax(axis=0)
    class_of = {g: found.classes[row] for g, row in zip(found.clusters, best, strict=True)}
    answered = several_kinds([wanted[row] for row in two], [model.kinds_[r] for r in two], class_of)
    seem = float(np.mean([len(model.kinds_[row]) > 1 for row in one]))
    return [answered.recall, answered.recall_of_label, answered.precision, found.purity, seem]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--each", type=int, default=2, help="images for each ordered pair of kinds")
    parser.add_argument("--cache", type=Path, help="folder for embedded images")
    options = parser.parse_args()
    columns = ("recall", "by group", "precision", "purity", "several")
    print(f"{'set':<16} {'normals':<8} {'images':>6} " + " ".join(f"{c:>9}" for c in columns))
    rows: dict[str, list[list[float]]] = defaultdict(list)
    for folder in options.data:
        for data in load_datasets(folder):
            with tempfile.TemporaryDirectory() as temporary:
                made = make(data, Path(temporary), options.each)
                cache = options.cache or Path(temporary) / "cache"
                for mode in ("none", "normals"):
                    if not made or (mode == "normals" and data.normals is None):
                        continue
                    figures = evaluate(data, made, mode == "normals", cache)
                    rows[mode].append(figures)
                    shown = " ".join(f"{value:>9.3f}" for value in figures)
                    print(f"{data.name:<16} {mode:<8} {len(made):>6} {shown}", flush=True)
    for mode, figures in rows.items():
        means = " ".join(f"{value:>9.3f}" for value in np.mean(figures, axis=0))
        print(f"{f'mean of {len(figures)}':<16} {mode:<8} {'':>6} {means}")


if __name__ == "__main__":
    main()

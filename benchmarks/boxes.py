"""Measure which kinds the boxes of exports get after a review.

    python benchmarks/boxes.py --data DIR [--data DIR ...] [--answers 10 --answers all]

Groups each set with its known-good images. A simulated person then says the kind of some images of
each kind, truthfully. A region lies on a flaw if a quarter of it does, by the masks of the set. The
table counts the regions of all sets together: those on a flaw by what their box says (the right
kind, a wrong one, unknown, or no box), and those beside a flaw that get a box all the same, with
a kind or as unknown. "by cluster" takes the group of the cluster that a region resembles; "taught"
is what exports do. DIR as for quality.py, with masks and known-good images.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from flawsort import AnomalyClusterer
from flawsort.core.records import Floats, Ints
from flawsort.labels.edit_checks import Edit
from flawsort.labels.edits import apply
from flawsort.labels.groups import Labelling, first_labelling, region_groups, without_flaw
from flawsort.labels.regions import UNKNOWN, settled_regions
from flawsort.labels.state import State
from flawsort.labels.suggestions import TeachingSpace
from flawsort.research.truth import EXCLUDED_LABELS, LabelledSet, load_datasets
from flawsort.runs.run import Run

ON_A_FLAW = 0.25
NORMAL = "good"
RULES: dict[str, Callable[[Run, State], Ints]] = {
    "by cluster": lambda run, state: region_groups(run, state.settled),
    "taught": settled_regions,
}


def answered(run: Run, kinds: list[str], n: int | None, seed: int) -> State:
    """A run after a person said the kind of n images of each kind; None for all."""
    now, order = first_labelling(run), np.random.default_rng(seed).permutation(len(kinds))
    linkage = np.asarray(run.linkage)
    for kind in sorted({*kinds} - {*EXCLUDED_LABELS}):
        rows = [int(row) for row in order if kinds[row] == kind][:n]
        to = {"to": "normal"} if kind == NORMAL else {"to": "new", "name": kind}
        now = apply(Edit("move", {"images": sorted(rows), **to}), now, linkage)
    space = TeachingSpace.of(run)
    return State(1, now, None, None, 0, True, lambda: space)


def on_flaws(run: Run, masks: list[Path | None]) -> Floats:
    """(n_regions,): the share of the patches of each region that lie on a marked flaw."""
    rows, columns = run.grid
    marked = np.zeros((len(run), rows * columns), bool)
    for row, path in enumerate(masks):
        if path is not None:
            with Image.open(path) as mask:
                pixels = np.asarray(mask.convert("L").resize((columns * 8, rows * 8), 0)) > 0
            marked[row] = pixels.reshape(rows, 8, columns, 8).mean(axis=(1, 3)).ravel() > 0.05
    places = enumerate(run.region_rows.tolist())
    return np.array([marked[row][run.outlines[place]].mean() for place, row in places])


def count(run: Run, now: Labelling, groups: Ints, kinds: list[str], over: Floats) -> Counter[str]:
    """How many regions get which box."""
    found: Counter[str] = Counter()
    aside = without_flaw(now)
    for place, (row, group) in enumerate(zip(run.region_rows.tolist(), groups, strict=True)):
        own = now.groups[int(now.labels[row])]
        shown = own if group == UNKNOWN else now.groups[int(group)]
        box = "none" if aside[row] or shown.role == "normal" else "kind"
        if box == "kind" and group == UNKNOWN:
            box = "unknown"
        flaw = over[place] >= ON_A_FLAW and kinds[row] != NORMAL
        if flaw and box == "kind":
            box = "right" if shown.title == kinds[row] else "wrong"
        found[f"{'on' if flaw else 'beside'} {box}"] += 1
    return found


def measure(
    data: LabelledSet, answers: list[int | None], seeds: int, cache: Path | None
) -> dict[tuple[int | None, str], Counter[str]]:
    model = AnomalyClusterer(cache=cache or "auto").fit(data.images, normal=data.normals)
    run = model.make_run()
    row_of = {name: row for row, name in enumerate(data.images.names)}
    rows = [row_of[name] for name in run.names]
    kinds = [str(data.labels[row]) for row in rows]
    over = on_flaws(run, [data.masks[row] for row in rows])
    found: dict[tuple[int | None, str], Counter[str]] = {}
    for n in answers:
        for seed in range(seeds if n else 1):
            state = answered(run, kinds, n, seed)
            for rule, groups in RULES.items():
                counted = count(run, state.settled, groups(run, state), kinds, over)
                found[n, rule] = found.get((n, rule), Counter()) + counted
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--answers", action="append", help="for each kind, or all; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, help="random choices of the images")
    parser.add_argument("--cache", type=Path, help="folder for embedded images")
    options = parser.parse_args()
    answers = [None if n == "all" else int(n) for n in options.answers or ["3", "10", "all"]]
    total: dict[tuple[int | None, str], Counter[str]] = {}
    for folder in options.data:
        for data in load_datasets(folder):
            if data.normals is None or not any(data.masks):
                continue
            for key, counted in measure(data, answers, options.seeds, options.cache).items():
                total[key] = total.get(key, Counter()) + counted
            print(f"{data.name}: done", flush=True)
    columns = ("on right", "on wrong", "on unknown", "on none", "beside kind", "beside unknown")
    print(f"{'answers':<8} {'rule':<11}" + "".join(f"{name:>15}" for name in columns))
    for (n, rule), counted in total.items():
        shown = "".join(f"{counted[name]:>15}" for name in columns)
        print(f"{n or 'all'!s:<8} {rule:<11}{shown}")


if __name__ == "__main__":
    main()

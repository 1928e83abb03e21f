"""One measurement: a row of a table on one set. Kept as a small JSON file, so that it is done once.

Jobs know nothing of tables: the same one serves every table that has its row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from flawsort.core.errors import OptionError
from flawsort.core.records import Ints
from flawsort.embeddings.method import Method
from flawsort.research.metrics import (
    agreement,
    area_under_purity,
    collapsed,
    pixel_auroc,
    purity_curve,
    reduction_at,
)
from flawsort.research.paper.deep_rows import PREFIX, Training, train_rival
from flawsort.research.paper.methods import (
    NEEDS_NORMALS,
    PAPER,
    SCORED,
    TEMPERATURES,
    Top,
    represent,
    represent_subsets,
    represent_temperatures,
    scores_of,
    weights_of,
)
from flawsort.research.paper.protocol import Task
from flawsort.research.paper.shared import Products

# A metric's value, or one for each random subset.
Figures: TypeAlias = dict[str, float | list[float]]
Measure: TypeAlias = Literal["groups", "subsets", "purity", "localisation", "deep"]

# Random draws of a part of the normals, over which their mean is taken.
NORMAL_DRAWS = 3
PIXEL_SIDE = 256
_AGREED = ("nmi", "ari", "f1", "f1_micro", "purity")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One row of a table, and how it is measured.

    row: one of `methods.ROWS`, or "deep/" and one of `deep_rows.RIVALS`. method, top: the
    temperature of the weights, and which patches they are for. best: try every temperature and
    keep the best by NMI, or, of a deep row, the epoch with the best accuracy; either looks at the
    truth. n_seeds: the number of random subsets. share: of the normals. training: of a deep row.
    """

    row: str
    measure: Measure = "groups"
    clusterer: str = "ward"
    method: Method = PAPER
    top: Top | None = None
    best: bool = False
    n_seeds: int = 0
    share: float = 1.0
    training: Training | None = None

    @property
    def n_draws(self) -> int:
        """How many random subsets, or parts of the normals, it measures; 1 if it draws nothing."""
        if self.training is not None:
            return self.training.n_seeds
        if self.measure == "subsets":
            return self.n_seeds
        return NORMAL_DRAWS if self.share < 1 else 1

    def key(self) -> str:
        """A name for its file: all that decides the result besides set, backbone and search."""
        parts = [self.measure, self.row, self.clusterer]
        if self.row in SCORED:
            if self.best:
                parts.append("best-of=" + ",".join(map(repr, TEMPERATURES)))
            else:
                chosen = describe_weights(self.method, self.top)
                parts += [f"{name}={value!r}" for name, value in chosen.items()]
        if self.n_seeds:
            parts.append(f"seeds={self.n_seeds}")
        if self.share < 1:
            parts.append(f"share={self.share:g}x{NORMAL_DRAWS}")
        return "_".join(parts).replace(" ", "+")

    def lacks(self, task: Task) -> str:
        """What the set lacks for this job, or "" if nothing."""
        if self.row in NEEDS_NORMALS and task.data.normals is None:
            return "normal images"
        needs_masks = self.row == "wa-mask" or self.measure == "localisation"
        if not needs_masks:
            return ""
        marked = {
            label for label, mask in zip(task.data.labels, task.data.masks, strict=True) if mask
        }
        bare = sum(
            label in marked and mask is None
            for label, mask in zip(task.data.labels, task.data.masks, strict=True)
        )
        if not marked:
            return "masks"
        return f"masks for {bare} of its flawed images" if bare else ""


def describe_weights(method: Method, top: Top | None = None) -> dict[str, float]:
    """How sharply weights focus, by name: a relative temperature or the paper's tau, and top k."""
    chosen: dict[str, float] = {}
    if method.absolute_temperature is not None:
        chosen["tau"] = method.absolute_temperature
    elif method.temperature is not None:
        chosen["temperature"] = method.temperature
    if top is None:
        return chosen
    return {"top": top.count} if top.hard else {**chosen, "top": top.count}


def run_job(products: Products, job: Job, *, drawn: Callable[[int], None] | None = None) -> Figures:
    """The figures of a job, from its file if it was done before.

    A job of several draws that was interrupted goes on after the last one that was done.
    drawn: told how many of the job's draws are done, as they are.
    """
    if job.training is not None:  # whose dear part has files of its own
        return _deep(products, job, job.training, drawn)
    way = products.search if job.row == "wa-semi" else ""
    path = products.folder / "figures" / f"{job.key()}{way}.json"
    part = path.with_suffix(".part")
    kept = _read(path)
    if isinstance(kept, dict):
        return kept
    found = _read_draws(part, job)
    if found and drawn:
        drawn(len(found))
    for figures in _MEASURES[job.measure](products, job, len(found)):
        found.append(figures)
        if len(found) < job.n_draws:
            _write(part, found)
        if drawn:
            drawn(len(found))
    whole = _together(found, job)
    _write(path, whole)
    part.unlink(missing_ok=True)
    return whole


def measure_epoch(task: Task, labels: Ints, *, best: bool = False) -> tuple[int, Figures]:
    """The last epoch, counted from 0, or the best one by the truth, and its metrics.

    labels: (n_epochs, n_images). The paper's best epoch is that of the best accuracy, the share
    matched.
    """
    first = 0 if best else len(labels) - 1
    measured = [_agreement(task, one) for one in labels[first:]]
    place = int(np.argmax([one["f1_micro"] for one in measured]))
    return first + place, measured[place]


def _read(path: Path) -> Any:
    """What a JSON file holds; None where it is missing or damaged, to be computed again."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _read_draws(path: Path, job: Job) -> list[Figures]:
    """The figures of the draws that were done before an interruption, in order."""
    found = _read(path)
    whole = isinstance(found, list) and all(
        isinstance(one, dict) and set(one) == set(_AGREED) for one in found
    )
    return found if whole and len(found) < job.n_draws else []


def _write(path: Path, content: Figures | list[Figures]) -> None:
    """All of the file or nothing of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content) + "\n", "utf-8")
    temporary.replace(path)


def _together(found: Sequence[Figures], job: Job) -> Figures:
    """A list for each metric, one value a subset; the mean over the parts of the normals."""
    if job.measure == "subsets":
        return {name: [one[name] for one in found] for name in _AGREED}  # type: ignore[misc]
    if len(found) == 1:
        return found[0]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def _agreement(task: Task, labels: Ints, rows: Sequence[int] | Ints | None = None) -> Figures:
    """Metrics of the groups of some images (all by default), of which only some count."""
    truth = task.truth if rows is None else [task.truth[row] for row in rows]
    counted = [(name, label) for name, label in zip(truth, labels, strict=True) if name is not None]
    found = agreement([name for name, _ in counted], [int(label) for _, label in counted])
    return {name: float(getattr(found, name)) for name in _AGREED}


def _groups(products: Products, job: Job, start: int) -> Iterator[Figures]:
    task = products.task
    if job.best:
        yield _best(products, job)
        return
    for seed in range(start, job.n_draws):
        shown = represent(products, job.row, job.method, top=job.top, share=job.share, seed=seed)
        yield _agreement(task, shown.labels(task.n_classes, job.clusterer))


def _best(products: Products, job: Job) -> Figures:
    task = products.task
    best: Figures = {}
    shown = represent_temperatures(products, job.row, TEMPERATURES)
    for value, one in zip(TEMPERATURES, shown, strict=True):
        figures = _agreement(task, one.labels(task.n_classes, job.clusterer))
        if not best or float(figures["nmi"]) > float(best["nmi"]):  # type: ignore[arg-type]
            best = {**figures, "temperature": value}
    return best


def _subsets(products: Products, job: Job, start: int) -> Iterator[Figures]:
    """Of each random subset; k is the true number of types in it."""
    task = products.task
    subsets = represent_subsets(products, job.row, job.method, job.n_seeds)
    for rows, shown in islice(subsets, start, None):
        k = len({task.truth[row] for row in rows} - {None})
        yield _agreement(task, shown.labels(k, job.clusterer), rows)


def _deep(
    products: Products, job: Job, training: Training, drawn: Callable[[int], None] | None
) -> Figures:
    """A list for each metric, one value a seed; also which epoch it was, whether all images were in
    one cluster then, and on what it was trained. idle: of the last epoch's row, in how many epochs
    there was nothing to learn."""
    found = []
    for seed in range(training.n_seeds):
        try:
            epochs = train_rival(products, job.row.removeprefix(PREFIX), seed, training)
        except OptionError as error:  # training that broke down, which another seed may not
            raise OptionError(f"with seed {seed}: {error}") from error
        epoch, figures = measure_epoch(products.task, epochs.labels, best=job.best)
        figures |= {
            "epoch": epoch + 1.0,
            "collapsed": float(collapsed(epochs.labels[epoch])),
            "gpu": float(epochs.gpu),
            "bfloat16": float(epochs.bfloat16),
        }
        if not job.best:
            figures["idle"] = float(np.isnan(epochs.losses).sum())
        found.append(figures)
        if drawn:
            drawn(len(found))
    return {name: [float(one[name]) for one in found] for name in found[0]}  # type: ignore[arg-type]


def _purity(products: Products, job: Job, start: int) -> Iterator[Figures]:
    curve = purity_curve(products.task.truth, represent(products, job.row, job.method).linkage())
    yield {
        "mauc": area_under_purity(curve),
        "r90": reduction_at(curve, 0.9),
        "r95": reduction_at(curve, 0.95),
        "r99": reduction_at(curve, 0.99),
        "curve": [round(float(value), 6) for value in curve],
    }


def _localisation(products: Products, job: Job, start: int) -> Iterator[Figures]:
    """Pixel-level AUROC of the scores, and of the weights, which sum to 1 in each image."""
    sides = (PIXEL_SIDE, PIXEL_SIDE)
    masks = [None if mask is None else mask >= 0.5 for mask in products.masks(sides)]
    scores, weights = scores_of(products, job.row), weights_of(products, job.row, job.method)
    grid = products.bags.grid
    yield {
        "pixel-auroc": pixel_auroc(scores, grid, masks, side=PIXEL_SIDE),
        "pixel-auroc-weights": pixel_auroc(weights, grid, masks, side=PIXEL_SIDE),
    }


# The figures of each draw of a job, from the draw at `start` on.
_MEASURES: dict[str, Callable[[Products, Job, int], Iterator[Figures]]] = {
    "groups": _groups,
    "subsets": _subsets,
    "purity": _purity,
    "localisation": _localisation,
}

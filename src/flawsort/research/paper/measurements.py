"""One measurement: a row of a table on one set, stored as a small JSON file and done only once.

Jobs are independent of tables: one job serves every table that has its row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from flawsort.core.errors import OptionError
from flawsort.core.records import Ints
from flawsort.core.storage import write_whole
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
from flawsort.research.paper.shared import PreparedSet

# The value of each metric, or a list with one value for each random subset.
Figures: TypeAlias = dict[str, float | list[float]]
Measure: TypeAlias = Literal["groups", "subsets", "purity", "localisation", "deep"]

# The number of random draws of a share of the normals; results are their mean.
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
        """The number of random subsets, or of draws of normals; 1 if nothing is random."""
        if self.training is not None:
            return self.training.n_seeds
        if self.measure == "subsets":
            return self.n_seeds
        return NORMAL_DRAWS if self.share < 1 else 1

    def key(self) -> str:
        """The name of its file: all that decides the result besides set, backbone and search."""
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


def run_job(
    prepared: PreparedSet, job: Job, *, drawn: Callable[[int], None] | None = None
) -> Figures:
    """The figures of a job, from its file if it was done before.

    An interrupted job resumes after its last finished draw. drawn: called with the number of
    finished draws after each of them.
    """
    if job.training is not None:  # trainings are stored in files of their own
        return _deep(prepared, job, job.training, drawn)
    way = prepared.search if job.row == "wa-semi" else ""
    path = prepared.folder / "figures" / f"{job.key()}{way}.json"
    part = path.with_suffix(".part")
    kept = _read(path)
    if isinstance(kept, dict):
        return kept
    found = _read_draws(part, job)
    if found and drawn:
        drawn(len(found))
    for figures in _MEASURES[job.measure](prepared, job, len(found)):
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

    labels: (n_epochs, n_images). The best epoch is the one with the best accuracy (f1_micro), as in
    the paper.
    """
    first = 0 if best else len(labels) - 1
    measured = [_agreement(task, one) for one in labels[first:]]
    place = int(np.argmax([one["f1_micro"] for one in measured]))
    return first + place, measured[place]


def _read(path: Path) -> Any:
    """The content of a JSON file; None if it is missing or damaged."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _read_draws(path: Path, job: Job) -> list[Figures]:
    """The figures of the draws that were finished before an interruption, in order."""
    found = _read(path)
    whole = isinstance(found, list) and all(
        isinstance(one, dict) and set(one) == set(_AGREED) for one in found
    )
    return found if whole and len(found) < job.n_draws else []


def _write(path: Path, content: Figures | list[Figures]) -> None:
    write_whole(path, json.dumps(content) + "\n", parents=True, durable=False)


def _together(found: Sequence[Figures], job: Job) -> Figures:
    """A list of values for each metric of subsets; otherwise the mean over the draws of normals."""
    if job.measure == "subsets":
        return {name: [one[name] for one in found] for name in _AGREED}  # type: ignore[misc]
    if len(found) == 1:
        return found[0]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def _agreement(task: Task, labels: Ints, rows: Sequence[int] | Ints | None = None) -> Figures:
    """Metrics of the groups of these images (all by default), over those that count."""
    truth = task.truth if rows is None else [task.truth[row] for row in rows]
    counted = [(name, label) for name, label in zip(truth, labels, strict=True) if name is not None]
    found = agreement([name for name, _ in counted], [int(label) for _, label in counted])
    return {name: float(getattr(found, name)) for name in _AGREED}


def _groups(prepared: PreparedSet, job: Job, start: int) -> Iterator[Figures]:
    task = prepared.task
    if job.best:
        yield _best(prepared, job)
        return
    for seed in range(start, job.n_draws):
        shown = represent(prepared, job.row, job.method, top=job.top, share=job.share, seed=seed)
        yield _agreement(task, shown.labels(task.n_classes, job.clusterer))


def _best(prepared: PreparedSet, job: Job) -> Figures:
    task = prepared.task
    best: Figures = {}
    shown = represent_temperatures(prepared, job.row, TEMPERATURES)
    for value, one in zip(TEMPERATURES, shown, strict=True):
        figures = _agreement(task, one.labels(task.n_classes, job.clusterer))
        if not best or float(figures["nmi"]) > float(best["nmi"]):  # type: ignore[arg-type]
            best = {**figures, "temperature": value}
    return best


def _subsets(prepared: PreparedSet, job: Job, start: int) -> Iterator[Figures]:
    """One entry a random subset; k is the true number of types in it."""
    task = prepared.task
    subsets = represent_subsets(prepared, job.row, job.method, job.n_seeds)
    for rows, shown in islice(subsets, start, None):
        k = len({task.truth[row] for row in rows} - {None})
        yield _agreement(task, shown.labels(k, job.clusterer), rows)


def _deep(
    prepared: PreparedSet, job: Job, training: Training, drawn: Callable[[int], None] | None
) -> Figures:
    """A list for each metric, one value a seed. Also: epoch, which one was measured; collapsed, if
    all images were in one cluster; gpu and bfloat16, how it was trained; idle (of the last epoch's
    row), the number of epochs with nothing to learn."""
    found = []
    for seed in range(training.n_seeds):
        try:
            epochs = train_rival(prepared, job.row.removeprefix(PREFIX), seed, training)
        except OptionError as error:  # training that diverged
            raise OptionError(f"with seed {seed}: {error}") from error
        epoch, figures = measure_epoch(prepared.task, epochs.labels, best=job.best)
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


def _purity(prepared: PreparedSet, job: Job, start: int) -> Iterator[Figures]:
    curve = purity_curve(prepared.task.truth, represent(prepared, job.row, job.method).linkage())
    yield {
        "mauc": area_under_purity(curve),
        "r90": reduction_at(curve, 0.9),
        "r95": reduction_at(curve, 0.95),
        "r99": reduction_at(curve, 0.99),
        "curve": [round(float(value), 6) for value in curve],
    }


def _localisation(prepared: PreparedSet, job: Job, start: int) -> Iterator[Figures]:
    """Pixel-level AUROC of the scores, and of the weights, which sum to 1 in each image."""
    sides = (PIXEL_SIDE, PIXEL_SIDE)
    masks = [None if mask is None else mask >= 0.5 for mask in prepared.masks(sides)]
    scores, weights = scores_of(prepared, job.row), weights_of(prepared, job.row, job.method)
    grid = prepared.bags.grid
    yield {
        "pixel-auroc": pixel_auroc(scores, grid, masks, side=PIXEL_SIDE),
        "pixel-auroc-weights": pixel_auroc(weights, grid, masks, side=PIXEL_SIDE),
    }


# Measures yield the figures of each draw of a job, from the draw number `start` on.
_MEASURES: dict[str, Callable[[PreparedSet, Job, int], Iterator[Figures]]] = {
    "groups": _groups,
    "subsets": _subsets,
    "purity": _purity,
    "localisation": _localisation,
}

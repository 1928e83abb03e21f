"""A table of the paper with numbers: its rows measured on every set, and their means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flawsort.core.errors import BackboneError, FlawsortError
from flawsort.core.records import Progress
from flawsort.research.paper.catalogue import FOUR, TABLES, Options, Table
from flawsort.research.paper.deep_rows import PREFIX, RIVALS
from flawsort.research.paper.effort import search_notes
from flawsort.research.paper.measurements import Figures, Job, run_job
from flawsort.research.paper.methods import SCORED
from flawsort.research.paper.protocol import GROUPS, OBJECTS, TEXTURES
from flawsort.research.paper.published import lookup, published, tables
from flawsort.research.paper.shared import PreparedSet

__all__ = ["FOUR", "TABLES", "Cell", "Filled", "Options", "Table", "fill"]

# The groups of sets whose mean the paper prints.
_WHOLE = ({*OBJECTS}, {*TEXTURES}, {"mtd"})


@dataclass(frozen=True)
class Cell:
    """One number. set: the name of a set, a group of sets, or "overall". of: the number of sets in
    the mean. over_images: the mean with each set weighted by its number of images. paper: the
    published number. paper_same: the mean of the published numbers over the same sets, if these are
    not the whole group and the paper has each of them."""

    set: str
    row: str
    metric: str
    value: float | None
    stderr: float | None = None
    over_images: float | None = None
    of: int = 1
    paper: float | None = None
    paper_stderr: float | None = None
    paper_same: float | None = None


@dataclass(frozen=True)
class Filled:
    """A table with its numbers. figures: the result of the job of each (set, row)."""

    table: Table
    backbone: str
    cells: tuple[Cell, ...]
    figures: dict[tuple[str, str], Figures]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    n_images: dict[str, int]
    settings: dict[str, Any] = field(default_factory=dict)


def fill(
    table: Table,
    prepared: Sequence[PreparedSet],
    options: Options,
    *,
    settings: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Filled:
    """Run every job of a table on every set that has what the job needs.

    settings: further choices, for the files. progress: called after every random draw of every row
    of every set; a row without draws is one step.
    """
    rows = [(label, job) for label, job in table.rows(options)]
    figures: dict[tuple[str, str], Figures] = {}
    runs = _Runs()
    steps = _Steps(table, [job for _, job in rows], len(prepared), progress)
    for one in prepared:
        for label, job in rows:
            steps.begin(one.task.name, label, job)
            found = runs.run(one, label, job, steps.drawn)
            if found is not None:
                figures[one.task.name, label] = found
            steps.end()
        one.release()
    groups = {one.task.name: one.task.group for one in prepared}
    n_images = {one.task.name: len(one.task.counted) for one in prepared}
    cells = _cells(table, [label for label, _ in rows], figures, groups, n_images)
    searched = search_notes(prepared, [job for _, job in rows])
    return Filled(
        table,
        prepared[0].backbone.info.name if prepared else "",
        tuple(cells),
        figures,
        tuple(runs.skipped),
        (*_notes(table, options), *searched, *_collapses(figures), *_idle(figures)),
        n_images,
        {**_shown(table, options), **_places(figures), **(settings or {})},
    )


def _shown(table: Table, options: Options) -> dict[str, Any]:
    """The choices of the options that the table follows."""
    chosen = options.describe()
    if table.sweeps:
        chosen.pop("temperature", None)
        chosen.pop("tau", None)
    return chosen


class _Runs:
    """Runs jobs. A training that fails skips its own rows only, and is reported once."""

    def __init__(self) -> None:
        self.skipped: list[str] = []
        self._no_weights = False
        self._failed: set[tuple[str, str]] = set()

    def run(
        self, prepared: PreparedSet, label: str, job: Job, drawn: Callable[[int], None]
    ) -> Figures | None:
        """The figures of a job; None if it was skipped."""
        name = prepared.task.name
        lacking = job.lacks(prepared.task)
        if lacking:
            self.skipped.append(f"{name}, {label}: no {lacking}")
            return None
        # The rows of the last and the best epoch share a training, which would fail again.
        if (name, job.row) in self._failed or (self._no_weights and _pretrained(job)):
            return None
        try:
            return run_job(prepared, job, drawn=drawn)
        except FlawsortError as error:
            if job.training is None:
                raise
            reason = str(error).rstrip(".")
            if isinstance(error, BackboneError) and _pretrained(job):
                self._no_weights = True
                self.skipped.append(f"deep/... from ImageNet weights: {reason}")
            else:
                self._failed.add((name, job.row))
                self.skipped.append(f"{name}, {label}: {reason}")
            return None


class _Steps:
    """Progress over sets x rows x draws: "table NAME (set, row, seed 3 of 100)"."""

    def __init__(
        self, table: Table, jobs: Sequence[Job], n_sets: int, progress: Progress | None
    ) -> None:
        self._stage = f"table {table.name}"
        self._progress = progress
        self._total = n_sets * sum(job.n_draws for job in jobs)
        self._before = self._draws = 0
        self._where = ""

    def begin(self, name: str, label: str, job: Job) -> None:
        """A row of a set begins."""
        self._where, self._draws = f"{name}, {label}", job.n_draws
        self._tell(self._where, 0)

    def drawn(self, done: int) -> None:
        """This many draws of the row are done."""
        if self._draws > 1:
            self._tell(f"{self._where}, seed {done} of {self._draws}", done)

    def end(self) -> None:
        """The row is done, or was skipped."""
        self._before += self._draws
        self._tell(self._where, 0)

    def _tell(self, where: str, done: int) -> None:
        if self._progress:
            self._progress(f"{self._stage} ({where})", self._before + done, self._total)


def _cells(
    table: Table,
    labels: Sequence[str],
    figures: dict[tuple[str, str], Figures],
    groups: dict[str, str],
    n_images: dict[str, int],
) -> list[Cell]:
    """The sets one by one if the table shows them, then the means of the groups and of all."""
    columns: list[tuple[str, list[str]]] = []
    if table.per_set:
        columns += [(name, [name]) for name in groups if groups[name] != "mtd"]
    for group in (*GROUPS, "other"):
        members = [name for name in groups if groups[name] == group]
        if members:
            columns.append((group, members))
    ours = [name for name in groups if groups[name] != "other"]
    if len(ours) > 1:
        columns.append(("overall", ours))
    # Deep rows that are not run here show the paper's numbers alone.
    cells = published(table.name) if table.name in tables() else ()
    known = dict.fromkeys(
        cell.row for cell in cells if cell.row.startswith(PREFIX) and cell.row not in labels
    )
    return [
        _cell(table, column, members, label, metric, figures, n_images)
        for column, members in columns
        for label in (*labels, *known)
        for metric in table.metrics
    ]


def _cell(
    table: Table,
    column: str,
    members: Sequence[str],
    label: str,
    metric: str,
    figures: dict[tuple[str, str], Figures],
    n_images: dict[str, int],
) -> Cell:
    there = [name for name in members if metric in figures.get((name, label), {})]
    found = [(figures[name, label][metric], n_images[name]) for name in there]
    source = table.paper_table or table.name
    paper = lookup(source, column, label, metric) if source in tables() else None
    value = stderr = over_images = None
    if found:
        # (n_sets, n_subsets); one column if there are no subsets.
        values = np.array([np.atleast_1d(entry) for entry, _ in found], np.float64)
        means = values.mean(axis=0)
        value = float(means.mean())
        stderr = float(means.std(ddof=1) / np.sqrt(len(means))) if len(means) > 1 else None
        over_images = float(np.average(values.mean(axis=1), weights=[n for _, n in found]))
    return Cell(
        column,
        label,
        metric,
        value,
        stderr,
        over_images,
        len(found),
        None if paper is None else paper.value,
        None if paper is None else paper.stderr,
        _same_sets(table, there, label, metric, paper is not None),
    )


def _same_sets(
    table: Table, there: Sequence[str], label: str, metric: str, has_mean: bool
) -> float | None:
    """The paper's mean over some sets, from its numbers for each (Table 7). None if it lacks one of
    them, or if the sets are a whole group, whose mean it prints."""
    if not table.by_category or not there or (has_mean and set(there) in _WHOLE):
        return None
    found = [lookup("per-category", name, label, metric) for name in there]
    if None in found:
        return None
    return float(np.mean([one.value for one in found if one is not None]))


def _pretrained(job: Job) -> bool:
    """Whether it trains a network from ImageNet weights, which may be unavailable."""
    return job.training is not None and RIVALS[job.row.removeprefix(PREFIX)][1]


def _collapses(figures: dict[tuple[str, str], Figures]) -> list[str]:
    """Notes on trainings that ended with all images in one cluster."""
    lines = []
    for (name, label), found in figures.items():
        seeds = found.get("collapsed", [])
        if isinstance(seeds, list) and any(seeds):
            which = ", ".join(str(seed) for seed, gone in enumerate(seeds) if gone)
            lines.append(f"Collapsed into one cluster: {name}, {label}, seed {which}.")
    return lines


def _idle(figures: dict[tuple[str, str], Figures]) -> list[str]:
    """Notes on trainings that had epochs with nothing to learn."""
    lines = []
    for (name, label), found in figures.items():
        idle, epochs = np.atleast_1d(found.get("idle", 0)), np.atleast_1d(found.get("epoch", 0))
        seeds = np.flatnonzero(idle)
        if len(seeds):
            *others, last = [f"{idle[seed]:.0f}" for seed in seeds]
            counts = f"{', '.join(others)} and {last}" if others else last
            which = ("seeds " if others else "seed ") + ", ".join(map(str, seeds))
            lines.append(
                f"Nothing to learn (no confident answer): {name}, {label}, {counts} of "
                f"{epochs.max():.0f} epochs ({which})."
            )
    return lines


def _places(figures: dict[tuple[str, str], Figures]) -> dict[str, str]:
    """The devices that networks were trained on, maybe of another machine."""
    seen = {
        ("GPU" if gpu else "CPU") + (" (bfloat16)" if half else "")
        for found in figures.values()
        for gpu, half in zip(
            np.atleast_1d(found.get("gpu", [])),
            np.atleast_1d(found.get("bfloat16", [])),
            strict=True,
        )
    }
    return {"deep trained on": " and ".join(sorted(seen))} if seen else {}


def _notes(table: Table, options: Options) -> list[str]:
    notes = [table.remark] if table.remark else []
    if "nmi" in table.metrics:
        notes.append("k is the true number of types in each set: an oracle, as in the paper.")
    jobs = [job for _, job in table.rows(options)]
    if any(job.best and job.training for job in jobs):
        notes.append("-best is the epoch with the best accuracy by the truth: an oracle.")
        if options.training and options.training.n_seeds > 1:
            notes.append("After ±, the standard error over seeds.")
    if any(job.best and not job.training for job in jobs):
        notes.append("The temperature is the best of several for each set by NMI: an oracle.")
    elif options.best and any(_at_chosen_temperature(job, options) for job in jobs):
        used = f"{options.method.temperature:g}"
        notes.append(f"The best temperature is not looked for here; {used} was used.")
    return notes


def _at_chosen_temperature(job: Job, options: Options) -> bool:
    return job.row in SCORED and job.top is None and job.method == options.method

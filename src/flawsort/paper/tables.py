"""The tables and figures of the paper by name: their rows, what they need, and how to fill them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flawsort.clusterers import CLUSTERERS
from flawsort.distances import HAUSDORFF_VARIANTS
from flawsort.paper.jobs import Figures, Job, run_job
from flawsort.paper.methods import SCORED, TEMPERATURE, TEMPERATURES, TOP_COUNTS, Focus
from flawsort.paper.products import Products
from flawsort.paper.protocol import GROUPS, OBJECTS, TEXTURES
from flawsort.paper.published import lookup, published, tables
from flawsort.records import Progress

FOUR = ("average", "max-hausdorff", "wa", "wa-semi")
AGREED = ("nmi", "ari", "f1", "f1_micro")
NORMAL_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
# Sets whose mean the paper itself prints.
_WHOLE = ({*OBJECTS}, {*TEXTURES}, {"mtd"})
# Of a deep clustering method only the paper's numbers are shown.
NOT_RUN = "deep/"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may choose for a table; `focus` and `best` concern the weighted averages."""

    focus: Focus = field(default_factory=Focus)
    best: bool = False
    n_seeds: int = 100

    def describe(self) -> dict[str, Any]:
        """What was chosen, for the files."""
        chosen: dict[str, Any] = {"temperature": "best"} if self.best else self.focus.describe()
        return {**chosen, "subsets": self.n_seeds}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, or a figure of numbers.

    rows: from the options to the label of each row and its job. metrics: what is shown of a job.
    paper_table: where the published numbers are, if not under the same name. by_category: the
    paper also has these rows for each category. per_set: every set has its own column.
    last_layer: made for the last hidden layer of a network. extractors: one part a network.
    """

    name: str
    title: str
    source: str
    needs: str
    rows: Callable[[Options], list[tuple[str, Job]]]
    metrics: tuple[str, ...]
    paper_table: str = ""
    by_category: bool = False
    per_set: bool = False
    last_layer: bool = False
    extractors: bool = False


@dataclass(frozen=True)
class Cell:
    """One number. set: a set's name, a group of sets, or "overall". of: how many sets the mean is
    over. over_images: the mean with each set weighted by its images. paper: the published one.
    paper_same: the mean of the published ones over the same sets, where those are not all of the
    group and the paper has them one by one."""

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
    """A table with its numbers. figures: of each (set, row), as its job gave them."""

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
    products: Sequence[Products],
    options: Options,
    *,
    settings: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Filled:
    """Run every job of a table on every set that has what it takes.

    settings: what else there is to say of how it was done, for the files.
    """
    rows = [(label, job) for label, job in table.rows(options)]
    figures: dict[tuple[str, str], Figures] = {}
    skipped: list[str] = []
    done, total = 0, len(rows) * len(products)
    for one in products:
        for label, job in rows:
            lacking = job.lacks(one.task)
            if lacking:
                skipped.append(f"{one.task.name}, {label}: no {lacking}")
            else:
                figures[one.task.name, label] = run_job(one, job)
            done += 1
            if progress:
                progress(f"table {table.name}", done, total)
        one.release()
    groups = {one.task.name: one.task.group for one in products}
    n_images = {one.task.name: len(one.task.counted) for one in products}
    cells = _cells(table, [label for label, _ in rows], figures, groups, n_images)
    return Filled(
        table,
        products[0].backbone.info.name if products else "",
        tuple(cells),
        figures,
        tuple(skipped),
        tuple(_notes(table, options)),
        n_images,
        {**options.describe(), **(settings or {})},
    )


def _cells(
    table: Table,
    labels: Sequence[str],
    figures: dict[tuple[str, str], Figures],
    groups: dict[str, str],
    n_images: dict[str, int],
) -> list[Cell]:
    """The sets one by one where a table shows them, then the means of the groups and of all."""
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
    # What the paper has and is not run here stands beside the rest.
    cells = published(table.name) if table.name in tables() else ()
    known = dict.fromkeys(cell.row for cell in cells if cell.row.startswith(NOT_RUN))
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
        # One column a random subset; a single one where there are none.
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
    """The paper's mean over some sets, from its numbers for each (Table 7); None where it lacks
    them, or where the sets are a whole group, whose mean it has."""
    if not table.by_category or not there or (has_mean and set(there) in _WHOLE):
        return None
    found = [lookup("per-category", name, label, metric) for name in there]
    if None in found:
        return None
    return float(np.mean([one.value for one in found if one is not None]))


def _notes(table: Table, options: Options) -> list[str]:
    notes = []
    if "nmi" in table.metrics:
        notes.append("k is the true number of types in each set: an oracle, as in the paper.")
    if any(job.best for _, job in table.rows(options)):
        notes.append("The temperature is the best of several for each set by NMI: an oracle.")
    elif options.best and any(
        job.method in SCORED and job.focus == options.focus for _, job in table.rows(options)
    ):
        notes.append(f"The best temperature is not looked for here; {TEMPERATURE:g} was used.")
    return notes


def _four(options: Options, **changes: Any) -> list[tuple[str, Job]]:
    return [(row, _job(row, options, **changes)) for row in FOUR]


def _job(row: str, options: Options, **changes: Any) -> Job:
    # The best temperature is looked for where groups at the true k are all that is measured.
    free = not {"focus", "measure", "share"} & set(changes)
    best = options.best and row.startswith("wa") and row != "wa-mask" and free
    return replace(Job(method=row, focus=options.focus, best=best), **changes)


def _clusterers(options: Options, **changes: Any) -> list[tuple[str, Job]]:
    rows = []
    for clusterer in CLUSTERERS:
        for distance in ("max-hausdorff", "wa"):
            if distance == "wa" or clusterer not in ("kmeans", "gmm"):
                job = _job(distance, options, clusterer=clusterer, **changes)
                rows.append((f"{distance}/{clusterer}", job))
    return rows


def _sweep(options: Options) -> list[tuple[str, Job]]:
    return [
        (f"{row} {value:g}", _job(row, options, focus=Focus(temperature=value)))
        for row in ("wa", "wa-semi")
        for value in TEMPERATURES
    ]


def _tops(options: Options) -> list[tuple[str, Job]]:
    rows = []
    for row in ("wa", "wa-semi"):
        for count in TOP_COUNTS:
            hard, soft = Focus(temperature=None, top=count), replace(options.focus, top=count)
            rows.append((f"{row} hard {count}", _job(row, options, focus=hard)))
            rows.append((f"{row} soft {count}", _job(row, options, focus=soft)))
    return rows


def _shares(options: Options) -> list[tuple[str, Job]]:
    focus = options.focus
    parts = [
        (f"wa-semi {share:g}", _job("wa-semi", options, share=share)) for share in NORMAL_SHARES
    ]
    return [("wa", _job("wa", options, focus=focus)), *parts]


def _variants(options: Options) -> list[tuple[str, Job]]:
    over = {"mean": "wa", "max": "wa-max", "min": "wa-min", "mean, normals too": "wa-extra"}
    return [(label, _job(row, options)) for label, row in over.items()]


def _poolings(options: Options) -> list[tuple[str, Job]]:
    rows = (*FOUR, "max", "gem", "spoc", "bag-of-words")
    subsets = {"measure": "subsets", "n_seeds": options.n_seeds}
    return [(row, _job(row, options, **subsets)) for row in rows]


_TABLES = (
    Table(
        name="main",
        title="Distances with Ward clustering",
        source="Table 1",
        needs="normals for wa-semi",
        rows=_four,
        metrics=AGREED,
        by_category=True,
    ),
    Table(
        name="per-category",
        title="The same for each category, and weights from masks",
        source="Table 7",
        needs="normals for wa-semi, masks for wa-mask",
        rows=lambda options: [*_four(options), ("wa-mask", _job("wa-mask", options))],
        metrics=AGREED,
        by_category=True,
        per_set=True,
    ),
    Table(
        name="clusterers",
        title="Clusterers on two distances",
        source="Table 2",
        needs="",
        rows=_clusterers,
        metrics=("nmi",),
    ),
    Table(
        name="clusterers-full",
        title="Clusterers on two distances, all metrics",
        source="Table 8",
        needs="",
        rows=_clusterers,
        metrics=AGREED,
    ),
    Table(
        name="clusterers-subsets",
        title="Clusterers on random subsets",
        source="Table 10",
        needs="",
        rows=lambda options: _clusterers(options, measure="subsets", n_seeds=options.n_seeds),
        metrics=("nmi",),
    ),
    Table(
        name="purity",
        title="Purity of over-clustering",
        source="Table 3 and its figures",
        needs="normals for wa-semi",
        rows=lambda options: _four(options, measure="purity"),
        metrics=("mauc", "r90", "r95", "r99"),
    ),
    Table(
        name="poolings",
        title="Pooling baselines on random subsets",
        source="Table 9",
        needs="normals for wa-semi",
        rows=_poolings,
        metrics=("nmi", "ari", "f1"),
    ),
    Table(
        name="patch-vs-holistic",
        title="Patches of the last layer against the whole image",
        source="Table 4 and its figure",
        needs="a network's last layer (NAME:last), normals for wa-semi",
        rows=lambda options: [
            (row, _job(row, options)) for row in ("holistic", "max-hausdorff", "wa", "wa-semi")
        ],
        metrics=("nmi",),
        last_layer=True,
        extractors=True,
    ),
    Table(
        name="hausdorff",
        title="Variants of the Hausdorff distance",
        source="Table 5, top",
        needs="",
        rows=lambda options: [(row, _job(row, options)) for row in HAUSDORFF_VARIANTS],
        metrics=("nmi",),
    ),
    Table(
        name="weights",
        title="Variants of the unsupervised weights",
        source="Table 5, bottom; with extra normals from its appendix",
        needs="normals for the last row",
        rows=_variants,
        metrics=("nmi",),
    ),
    Table(
        name="tau",
        title="Sensitivity to the temperature",
        source="figures on tau",
        needs="normals for wa-semi",
        rows=_sweep,
        metrics=("nmi",),
    ),
    Table(
        name="top-k",
        title="Hard and soft top-k weights",
        source="figure on k, Appendix A.1",
        needs="normals for wa-semi",
        rows=_tops,
        metrics=("nmi",),
    ),
    Table(
        name="labelled-normals",
        title="A part of the labelled normals",
        source="figure on labelled normals, Appendix A.2",
        needs="normals",
        rows=_shares,
        metrics=("nmi",),
    ),
    Table(
        name="feature-extractors",
        title="Feature extractors",
        source="figures on feature extractors, Appendix A.4",
        needs="several networks (--backbone more than once), normals for wa-semi",
        rows=_four,
        metrics=("nmi",),
        extractors=True,
    ),
    Table(
        name="localisation",
        title="Pixel-level AUROC of scores and weights",
        source="Section 4.3",
        needs="masks, normals for wa-semi",
        rows=lambda options: [
            (row, _job(row, options, measure="localisation")) for row in ("wa", "wa-semi")
        ],
        metrics=("pixel-auroc", "pixel-auroc-weights"),
        paper_table="text",
    ),
)
TABLES = {table.name: table for table in _TABLES}

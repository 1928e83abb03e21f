"""The tables of the paper and its figures of numbers, by name: their rows and requirements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flawsort.clusters.clusterers import CLUSTERERS
from flawsort.embeddings.method import Method
from flawsort.research.paper.deep_rows import BEST, PREFIX, RIVALS, Training
from flawsort.research.paper.measurements import Job, describe_weights
from flawsort.research.paper.methods import PAPER, SCORED, TAUS, TEMPERATURES, TOP_COUNTS, Top
from flawsort.scores.hausdorff import HAUSDORFF_VARIANTS

FOUR = ("average", "max-hausdorff", "wa", "wa-semi")
AGREED = ("nmi", "ari", "f1", "f1_micro")
NORMAL_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may choose for a table.

    method: the temperature of the weighted averages. best: try several temperatures and keep the
    best by the truth. n_seeds: the number of random subsets. training: of the deep rows; None
    leaves them out.
    """

    method: Method = PAPER
    best: bool = False
    n_seeds: int = 100
    training: Training | None = None

    def describe(self) -> dict[str, Any]:
        """The choices, for the files."""
        best: dict[str, Any] = {"temperature": "best"}
        chosen = best if self.best else describe_weights(self.method)
        deep = {} if self.training is None else self.training.describe()
        return {**chosen, "subsets": self.n_seeds, **deep}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, or a figure of numbers.

    source: where the paper has it. needs: what a set must have. rows: from the options to the label
    and the job of each row. metrics: the columns. paper_table: where the published numbers are, if
    not under the same name. by_category: the paper also has these rows for each category. per_set:
    every set has its own column. deep: it has rows of deep clustering. sweeps: its rows have
    temperatures of their own. subsets: it uses random subsets. last_layer: it is about the last
    hidden layer of a network. extractors: it has one part for each network. remark: what is not as
    in the paper, with these inputs.
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
    deep: bool = False
    sweeps: bool = False
    subsets: bool = False
    last_layer: bool = False
    extractors: bool = False
    remark: str = ""

    def of_other_layers(self, backbone: str) -> Table:
        """The same for a backbone whose last hidden layer is not known."""
        return replace(
            self,
            title="Patches against the whole image, not of the last layer",
            remark=f"The last hidden layer of {backbone} is not known: these are the layers that "
            "its patches usually come from. The paper's numbers are for the last layer.",
        )


def _four(options: Options, **changes: Any) -> list[tuple[str, Job]]:
    return [(row, _job(row, options, **changes)) for row in FOUR]


def _job(row: str, options: Options, **changes: Any) -> Job:
    # The best temperature is searched for only where groups at the true k are measured.
    free = not {"method", "top", "measure", "share"} & set(changes)
    best = options.best and row in SCORED and free
    return replace(Job(row=row, method=options.method, best=best), **changes)


def _clusterers(options: Options, **changes: Any) -> list[tuple[str, Job]]:
    rows = []
    for clusterer in CLUSTERERS:
        for distance in ("max-hausdorff", "wa"):
            if distance == "wa" or clusterer not in ("kmeans", "gmm"):
                job = _job(distance, options, clusterer=clusterer, **changes)
                rows.append((f"{distance}/{clusterer}", job))
    return rows


def _clusterers_and_rivals(options: Options) -> list[tuple[str, Job]]:
    rows = _clusterers(options)
    if options.training is not None:
        for rival in RIVALS:
            job = Job(row=PREFIX + rival, measure="deep", training=options.training)
            rows.append((job.row, job))
            rows.append((job.row + BEST, replace(job, best=True)))
    return rows


def _sweep(options: Options) -> list[tuple[str, Job]]:
    return [
        (f"{row} {value:g}", _job(row, options, method=replace(PAPER, temperature=value)))
        for row in ("wa", "wa-semi")
        for value in TEMPERATURES
    ]


def _absolute_sweep(options: Options) -> list[tuple[str, Job]]:
    rows = []
    for row in ("wa", "wa-semi"):
        for tau in TAUS:
            method = replace(PAPER, temperature=None, absolute_temperature=tau)
            rows.append((f"{row} {tau:g}", _job(row, options, method=method)))
    return rows


def _tops(options: Options) -> list[tuple[str, Job]]:
    rows = []
    for row in ("wa", "wa-semi"):
        for count in TOP_COUNTS:
            for kind in ("hard", "soft"):
                top = Top(count=count, hard=kind == "hard")
                rows.append((f"{row} {kind} {count}", _job(row, options, top=top)))
    return rows


def _shares(options: Options) -> list[tuple[str, Job]]:
    parts = [
        (f"wa-semi {share:g}", _job("wa-semi", options, share=share)) for share in NORMAL_SHARES
    ]
    return [("wa", _job("wa", options, method=options.method)), *parts]


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
        needs="a GPU and flawsort[torch] for deep/...",
        rows=_clusterers_and_rivals,
        metrics=("nmi",),
        deep=True,
    ),
    Table(
        name="clusterers-full",
        title="Clusterers on two distances, all metrics",
        source="Table 8",
        needs="a GPU and flawsort[torch] for deep/...",
        rows=_clusterers_and_rivals,
        metrics=AGREED,
        deep=True,
    ),
    Table(
        name="clusterers-subsets",
        title="Clusterers on random subsets",
        source="Table 10",
        needs="",
        rows=lambda options: _clusterers(options, measure="subsets", n_seeds=options.n_seeds),
        metrics=("nmi",),
        subsets=True,
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
        subsets=True,
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
        sweeps=True,
    ),
    Table(
        name="tau-absolute",
        title="Sensitivity to the paper's tau",
        source="figures on tau",
        needs="normals for wa-semi",
        rows=_absolute_sweep,
        metrics=("nmi",),
        sweeps=True,
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
        metrics=("pixel-auroc-weights", "pixel-auroc"),
        paper_table="text",
    ),
)
TABLES = {table.name: table for table in _TABLES}

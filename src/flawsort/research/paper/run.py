"""`flawsort paper`: tables and figures by name, computed, rendered and written to a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flawsort.backbones import DEFAULT_BACKBONE, Backbone, find_network, load_backbone
from flawsort.backbones.networks import LAST
from flawsort.core.errors import BackboneError, FlawsortError, OptionError
from flawsort.core.records import Progress
from flawsort.images.view import View
from flawsort.research.paper.deep_rows import Training
from flawsort.research.paper.figures import FIGURES, draw, draw_attention, draw_clusters
from flawsort.research.paper.protocol import Task, find_tasks, missing_from
from flawsort.research.paper.render import as_csv, as_json, as_latex, as_text
from flawsort.research.paper.shared import Products
from flawsort.research.paper.tables import TABLES, Filled, Options, Table, fill
from flawsort.scores.engines import choose_engine

DEFAULT_NETWORK = "wide_resnet50"
# Figures of images rather than of a table's numbers.
PICTURES = {"attention": "Figure 3", "clusters": "figure of clusters, Section 4.5"}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where the images and the network come from, and where everything goes.

    deep: whether the networks of deep clustering are trained, None where there is a GPU; training:
    how."""

    data: tuple[Path, ...]
    output: Path
    backbones: tuple[str, ...] = (DEFAULT_NETWORK,)
    weights: Path | None = None
    image_size: int | None = None
    view: View = field(default_factory=View)
    device: str | None = None
    exact: bool | None = None
    split_seed: int = 0
    only: tuple[str, ...] = ()
    deep: bool | None = None
    training: Training = field(default_factory=Training)
    options: Options = field(default_factory=Options)

    def describe(self, products: Sequence[Products]) -> dict[str, Any]:
        """What was chosen, for the files."""
        sizes = {" x ".join(map(str, one.backbone.info.input_size)) for one in products}
        search = {None: "by size", True: "exact", False: "approximate"}[self.exact]
        return {
            "input": ", ".join(sorted(sizes)),
            "resample": self.view.resample,
            "search among normals": search,
            "split seed": self.split_seed,
        }


@dataclass(frozen=True)
class Outcome:
    """What came of one name: its text, its numbers, and the files that hold them."""

    name: str
    text: str
    filled: tuple[Filled, ...]
    files: tuple[Path, ...]

    def summary(self) -> dict[str, Any]:
        """What scripts want to know, as JSON-able values."""
        return {
            "name": self.name,
            "files": [str(path) for path in self.files],
            "parts": [
                {
                    "backbone": part.backbone,
                    "notes": list(part.notes),
                    "skipped": list(part.skipped),
                    "cells": [asdict(cell) for cell in part.cells],
                }
                for part in self.filled
            ],
        }


def listing() -> list[tuple[str, str, str, str]]:
    """Name, what it is, where the paper has it, and what it needs, of every table and figure."""
    rows = [
        (table.name, table.title, table.source, table.needs or "images alone")
        for table in TABLES.values()
    ]
    for name, source in PICTURES.items():
        rows.append((name, FIGURES[name], source, "flawsort[paper]; normals, masks if there are"))
    return rows


def run_paper(
    names: Sequence[str],
    setting: Setting,
    *,
    done: Callable[[Outcome], None] | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Every named table and figure; "all" stands for all of them. done: told of each at once."""
    known = (*TABLES, *PICTURES)
    wanted = list(known) if list(names) == ["all"] else list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise OptionError(
            f"must be all or some of {', '.join(known)}. Got '{', '.join(unknown)}'.",
            parameter="table",
        )
    if setting.weights is not None and len(setting.backbones) > 1:
        raise OptionError(
            f"One file of weights fits one backbone. Got {len(setting.backbones)} backbones."
        )
    _check_deep(wanted, setting)
    tasks = find_tasks(setting.data, only=setting.only, split_seed=setting.split_seed)
    bench = _Bench(tasks, setting, progress)
    setting.output.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for name in wanted:
        drawn = name in PICTURES
        made = _picture(name, bench, setting) if drawn else _table(TABLES[name], bench, setting)
        outcomes.append(made)
        if done:
            done(made)
    return outcomes


def _check_deep(wanted: Sequence[str], setting: Setting) -> None:
    """Options of deep clustering where nothing of it is trained are a mistake."""
    chosen, usual = setting.training, Training()
    given = [
        f"{option} {value}"
        for option, value, default in (
            ("--deep-weights", chosen.weights, usual.weights),
            ("--deep-seeds", chosen.n_seeds, usual.n_seeds),
            ("--deep-epochs", chosen.n_epochs, usual.n_epochs),
        )
        if value != default
    ]
    if setting.deep is False and given:
        raise OptionError(
            "With --no-deep no network of deep clustering is trained: leave it out, or the options "
            f"of their training. Got --no-deep and {' and '.join(given)}."
        )
    having = [table.name for table in TABLES.values() if table.deep]
    given = (["--deep"] if setting.deep else []) + given
    if given and not set(wanted) & set(having):
        raise OptionError(
            f"Deep clustering is part of the tables {' and '.join(having)} only: ask for one of "
            f"them, or leave out {' and '.join(given)}. Got the tables {', '.join(wanted)}."
        )


class _Bench:
    """The products of every set for each backbone, opened once."""

    def __init__(self, tasks: Sequence[Task], setting: Setting, progress: Progress | None) -> None:
        self.tasks = tasks
        self.progress = progress
        self._setting = setting
        self._opened: dict[str, list[Products]] = {}

    def products(self, backbone: str) -> list[Products]:
        if backbone not in self._opened:
            setting = self._setting
            loaded = _load(backbone, setting)
            self._opened[backbone] = [
                Products(
                    task,
                    loaded,
                    setting.output,
                    view=setting.view,
                    exact=setting.exact,
                    engine=choose_engine(setting.device, exact=True),
                    progress=self.progress,
                )
                for task in self.tasks
            ]
        return self._opened[backbone]

    def forget(self) -> None:
        """Let go of every network."""
        self._opened.clear()


def _load(backbone: str, setting: Setting) -> Backbone:
    try:
        return load_backbone(
            backbone,
            image_size=setting.image_size,
            weights=setting.weights,
            device=setting.device,
        )
    except BackboneError as error:
        if find_network(backbone) is None:
            raise
        raise BackboneError(
            f"{error} Or name a backbone that needs no torch: --backbone {DEFAULT_BACKBONE}, which "
            "is inside, or the path of an ONNX file."
        ) from error


def _table(table: Table, bench: _Bench, setting: Setting) -> Outcome:
    names = setting.backbones if table.extractors else setting.backbones[:1]
    filled, missing = [], []
    options = setting.options
    if table.deep:
        options, remark = _with_rivals(setting)
        missing += [remark] if remark else []
    unloaded = 0
    for name in names:
        try:
            products = bench.products(_layer(name, table))
        except BackboneError as error:
            if len(names) == 1:
                raise
            missing.append(f"Skipped: {error}")  # the other networks are no worse for it
            unloaded += 1
            if unloaded == len(names):
                raise
            continue
        said = setting.describe(products)
        filled.append(fill(table, products, options, settings=said, progress=bench.progress))
        if len(names) > 1:
            bench.forget()  # many networks do not fit into memory together
    lacking = [
        f"Not given of the paper's {group} sets: {', '.join(absent)}."
        for group, absent in missing_from(bench.tasks).items()
    ]
    remarks = [*missing, *lacking]
    text = "\n".join(as_text(part) for part in filled) + "".join(f"{one}\n" for one in remarks)
    stem = setting.output / table.name
    files = [
        _written(stem.with_suffix(".txt"), text),
        _written(stem.with_suffix(".csv"), as_csv(filled)),
        _written(stem.with_suffix(".json"), as_json(filled)),
        _written(stem.with_suffix(".tex"), "\n".join(as_latex(part) for part in filled)),
    ]
    if table.name in FIGURES and filled:
        try:
            files += draw(table.name, filled, setting.output)
        except FlawsortError as error:  # no matplotlib, say: the numbers are there all the same
            text += f"No figure: {error}\n"
    return Outcome(table.name, text, tuple(filled), tuple(files))


def _with_rivals(setting: Setting) -> tuple[Options, str]:
    """The options with the deep rows where they are trained, else why they are not."""
    if setting.deep is None:
        try:
            import flawsort.research.deep
            from flawsort.backbones.timm import choose_device
        except BackboneError:
            return setting.options, "deep/... were not trained: that needs flawsort[torch]."
        if choose_device(setting.device).type == "cpu":
            remark = "deep/... were not trained: without a GPU it takes hours (--deep does it)."
            return setting.options, remark
    elif setting.deep:
        import flawsort.research.deep  # noqa: F401  # to fail at once where it cannot be had
    else:
        return setting.options, ""
    if setting.training.weights is not None:
        _check_weights(setting.training.weights)
    training = replace(setting.training, device=setting.device)
    return replace(setting.options, training=training), ""


def _check_weights(path: Path) -> None:
    """Before hours of training."""
    from flawsort.research.deep.networks import Residual

    try:
        Residual(weights=path)
    except FlawsortError as error:
        if error.parameter is not None:  # the file as such, by whatever name
            raise OptionError(error.args[0], parameter="deep_weights") from error
        raise OptionError(f"cannot be used: {error}", parameter="deep_weights") from error


def _picture(name: str, bench: _Bench, setting: Setting) -> Outcome:
    files: list[Path] = []
    remark = ""
    drawing = draw_attention if name == "attention" else draw_clusters
    everything = bench.products(setting.backbones[0])
    try:
        for products in everything:
            files += drawing(products, setting.output, method=setting.options.method)
            products.release()
    except OptionError as error:  # no matplotlib, say: tables are no worse for it
        remark = f"No figure: {error}\n"
    text = "".join(f"{path}\n" for path in files) + remark
    return Outcome(name, text, (), tuple(files))


def _layer(backbone: str, table: Table) -> str:
    """A network's last layer, for the tables that are about it."""
    last = f"{backbone}{LAST}"
    return last if table.last_layer and find_network(last) is not None else backbone


def _written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path

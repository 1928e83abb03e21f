"""`flawsort paper`: computes tables and figures by name and writes them to a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from flawsort.backbones import DEFAULT_BACKBONE, Backbone, find_network, load_backbone
from flawsort.backbones.networks import LAST
from flawsort.core.devices import CPU, choose_device
from flawsort.core.errors import BackboneError, FlawsortError, OptionError
from flawsort.core.records import Progress
from flawsort.core.storage import write_whole
from flawsort.images.view import View
from flawsort.research.paper.deep_rows import Training
from flawsort.research.paper.effort import foretold, search_notes
from flawsort.research.paper.figures import (
    FIGURES,
    draw,
    draw_attention,
    draw_clusters,
    draw_maximum,
)
from flawsort.research.paper.layout import DPI
from flawsort.research.paper.measurements import Job, describe_weights
from flawsort.research.paper.protocol import Task, find_tasks, missing_from
from flawsort.research.paper.render import as_csv, as_json, as_latex, as_text
from flawsort.research.paper.shared import PreparedSet
from flawsort.research.paper.tables import TABLES, Filled, Options, Table, fill
from flawsort.scores.engines import choose_engine

DEFAULT_NETWORK = "wide_resnet50"
# Figures that show images, not the numbers of a table.


@dataclass(frozen=True)
class Picture:
    """A figure of images. source: where the paper has it. rows: what is compared for it."""

    source: str
    draw: Callable[..., list[Path]]
    rows: tuple[str, ...] = ("max-hausdorff", "wa", "wa-semi")


PICTURES = {
    "attention": Picture("Figure 3", draw_attention),
    "clusters": Picture("figure of clusters, Section 4.5", draw_clusters),
    "maximum": Picture("Figure 12", draw_maximum, ("wa", "wa-max")),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The inputs, the choices and the output folder of a run.

    exact: search normals exactly, otherwise in inverted lists. leave_out: cluster without the
    images that the metrics do not count, those of the type `combined`. deep: train deep clustering;
    None if there is a GPU. training: how it is trained. dpi: of the PNG files.
    """

    data: tuple[Path, ...]
    output: Path
    backbones: tuple[str, ...] = (DEFAULT_NETWORK,)
    weights: Path | None = None
    image_size: int | None = None
    view: View = field(default_factory=View)
    device: str | None = None
    exact: bool = True
    split_seed: int = 0
    only: tuple[str, ...] = ()
    leave_out: bool = False
    deep: bool | None = None
    training: Training = field(default_factory=Training)
    options: Options = field(default_factory=Options)
    dpi: int = DPI

    def describe(self, prepared: Sequence[PreparedSet]) -> dict[str, Any]:
        """The choices, for the files."""
        sizes = {" x ".join(map(str, one.backbone.info.input_size)) for one in prepared}
        search = "exact" if self.exact else "approximate, in inverted lists"
        return {
            "input": ", ".join(sorted(sizes)),
            "resample": self.view.resample,
            "search among normals": search,
            "split seed": self.split_seed,
            **({"combined": "left out before clustering"} if self.leave_out else {}),
        }

    def stem(self, name: str) -> str:
        """The name of the files of a table or figure: its own, and what differs from the defaults
        in what it shows, so that another setting overwrites nothing."""
        chosen, usual = self.options, Options()
        parts: list[tuple[str, object]] = []
        if name in PICTURES or not TABLES[name].sweeps:
            if chosen.best:
                parts.append(("temperature", "best"))
            elif chosen.method != usual.method:
                parts += describe_weights(chosen.method).items()
        if name in TABLES and TABLES[name].subsets and chosen.n_seeds != usual.n_seeds:
            parts.append(("seeds", chosen.n_seeds))
        if name in TABLES and TABLES[name].deep:
            parts += [
                (f"deep-{field}", value)
                for field, value, default in (
                    ("seeds", self.training.n_seeds, 3),
                    ("epochs", self.training.n_epochs, None),
                    ("times", self.training.times, 1),
                    ("scan-rate", self.training.scan_rate, None),
                    ("weights", _file_stem(self.training.weights), None),
                )
                if value != default
            ]
        if self.view.resample != View().resample:
            parts.append(("resample", self.view.resample))
        if self.split_seed:
            parts.append(("split-seed", self.split_seed))
        words = [f"{label}-{_shown(value)}" for label, value in parts]
        words += [] if self.exact else ["approximate"]
        words += ["without-combined"] if self.leave_out else []
        return "_".join([name, *words])


@dataclass(frozen=True)
class Outcome:
    """The result for one name: its text, its numbers, and the files that hold them."""

    name: str
    text: str
    filled: tuple[Filled, ...]
    files: tuple[Path, ...]

    def summary(self) -> dict[str, Any]:
        """For scripts, in values that JSON can hold."""
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
    """Name, title, place in the paper and requirements of every table and figure."""
    rows = [
        (table.name, table.title, table.source, table.needs or "images alone")
        for table in TABLES.values()
    ]
    for name, picture in PICTURES.items():
        needs = "flawsort[paper]; normals, masks if there are"
        rows.append((name, FIGURES[name], picture.source, needs))
    return rows


def run_paper(
    names: Sequence[str],
    setting: Setting,
    *,
    done: Callable[[Outcome], None] | None = None,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Compute the named tables and figures, or "all". done: called with each as it is finished.
    notice: called with a sentence before comparisons that take long."""
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
    tasks = find_tasks(
        setting.data,
        only=setting.only,
        split_seed=setting.split_seed,
        leave_out=setting.leave_out,
    )
    bench = _Bench(tasks, setting, progress, notice)
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
    """Refuse options of deep clustering if no deep network is trained."""
    chosen, usual = setting.training, Training()
    given = [
        f"{option} {value}"
        for option, value, default in (
            ("--deep-weights", chosen.weights, usual.weights),
            ("--deep-seeds", chosen.n_seeds, usual.n_seeds),
            ("--deep-epochs", chosen.n_epochs, usual.n_epochs),
            ("--deep-times", chosen.times, usual.times),
            ("--deep-scan-rate", chosen.scan_rate, usual.scan_rate),
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
    """The prepared sets for each backbone, opened once."""

    def __init__(
        self,
        tasks: Sequence[Task],
        setting: Setting,
        progress: Progress | None,
        notice: Callable[[str], None] | None,
    ) -> None:
        self.tasks = tasks
        self.progress = progress
        self._notice = notice
        self._setting = setting
        self._opened: dict[str, list[PreparedSet]] = {}

    def prepared(self, backbone: str) -> list[PreparedSet]:
        if backbone not in self._opened:
            setting = self._setting
            loaded = _load(backbone, setting)
            self._opened[backbone] = [
                PreparedSet(
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

    def foretell(self, name: str, prepared: Sequence[PreparedSet], jobs: Sequence[Job]) -> None:
        """Say how long the comparisons of a table or figure take."""
        sentence = foretold(prepared, jobs) if self._notice else ""
        if self._notice and sentence:
            self._notice(f"{name}: {sentence}")

    def forget(self) -> None:
        """Free every network."""
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
        shown, layer = _layer(name, table)
        try:
            prepared = bench.prepared(layer)
        except BackboneError as error:
            if len(names) == 1:
                raise
            missing.append(f"Skipped: {error}")  # the other networks are still measured
            unloaded += 1
            if unloaded == len(names):
                raise
            continue
        chosen = setting.describe(prepared)
        bench.foretell(table.name, prepared, [job for _, job in table.rows(options)])
        filled.append(fill(shown, prepared, options, settings=chosen, progress=bench.progress))
        if len(names) > 1:
            bench.forget()  # many networks together do not fit into memory
    lacking = [
        f"Not given of the paper's {group} sets: {', '.join(absent)}."
        for group, absent in missing_from(bench.tasks).items()
    ]
    remarks = [*missing, *lacking]
    text = "\n".join(as_text(part) for part in filled) + "".join(f"{one}\n" for one in remarks)
    stem = setting.stem(table.name)
    contents = {
        "txt": text,
        "csv": as_csv(filled),
        "json": as_json(filled),
        "tex": "\n".join(as_latex(part) for part in filled),
    }
    files = [
        _written(setting.output / f"{stem}.{suffix}", content)
        for suffix, content in contents.items()
    ]
    if table.name in FIGURES and filled:
        try:
            files += draw(table.name, filled, setting.output, stem=stem, dpi=setting.dpi)
        except FlawsortError as error:  # such as no matplotlib: the numbers are still written
            text += f"No figure: {error}\n"
    return Outcome(table.name, text, tuple(filled), tuple(files))


def _with_rivals(setting: Setting) -> tuple[Options, str]:
    """The options with deep rows if they are trained, and otherwise a remark on why not."""
    if setting.deep is None:
        try:
            import flawsort.research.deep
        except BackboneError:
            return setting.options, "deep/... were not trained: that needs flawsort[torch]."
        if choose_device(setting.device) == CPU:
            remark = "deep/... were not trained: without a GPU it takes hours (--deep does it)."
            return setting.options, remark
    elif setting.deep:
        import flawsort.research.deep  # noqa: F401  # to fail at once if torch is missing
    else:
        return setting.options, ""
    if setting.training.weights is not None:
        _check_weights(setting.training.weights)
    training = replace(setting.training, device=setting.device)
    return replace(setting.options, training=training), ""


def _check_weights(path: Path) -> None:
    """Fail before hours of training if the weights do not fit."""
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
    drawing = PICTURES[name].draw
    everything = bench.prepared(setting.backbones[0])
    jobs = [Job(row=row) for row in PICTURES[name].rows]
    bench.foretell(name, everything, jobs)
    try:
        for prepared in everything:
            method = setting.options.method
            stem = setting.stem(name).replace(name, f"{name}-{prepared.task.name}", 1)
            files += drawing(prepared, setting.output, method=method, stem=stem, dpi=setting.dpi)
            prepared.release()
    except OptionError as error:  # such as no matplotlib: tables are still written
        remark = f"No figure: {error}\n"
    searched = search_notes(everything, jobs)
    text = "".join(f"{line}\n" for line in (*files, *searched)) + remark
    return Outcome(name, text, (), tuple(files))


def _layer(backbone: str, table: Table) -> tuple[Table, str]:
    """The table and the backbone, or its last layer for a table that is about it. Where that is not
    known, the table says so."""
    if not table.last_layer:
        return table, backbone
    last = f"{backbone.removesuffix(LAST)}{LAST}"
    if find_network(last) is not None:
        return table, last
    return table.of_other_layers(Path(backbone).name), backbone


def _file_stem(path: Path | None) -> str | None:
    """The name of a file as part of another one's: letters, digits, dots, hyphens."""
    return None if path is None else re.sub(r"[^\w.-]", "-", path.stem, flags=re.ASCII)


def _shown(value: object) -> str:
    """A number or a word as part of a file's name."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _written(path: Path, text: str) -> Path:
    write_whole(path, text)
    return path

"""The paper's figures of numbers, drawn from tables. Figures of images: `example_figures`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flawsort.core.errors import InputError, OptionError
from flawsort.research.paper.example_figures import draw_attention, draw_clusters
from flawsort.research.paper.layout import (
    DPI,
    GROUP_NAMES,
    INK,
    METHODS,
    house_style,
    printable,
    set_name,
    write,
)
from flawsort.research.paper.maximum_figure import draw_maximum
from flawsort.research.paper.tables import FOUR, Filled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "draw", "draw_attention", "draw_clusters", "draw_maximum"]

FIGURES = {
    "purity": "purity against the number of clusters, for each set",
    "tau": "agreement with the truth (NMI) against the temperature",
    "tau-absolute": "agreement with the truth (NMI) against the paper's tau",
    "top-k": "agreement with the truth (NMI) against the number of patches that count",
    "labelled-normals": "agreement with the truth (NMI) against the share of labelled normals",
    "feature-extractors": "agreement with the truth (NMI) of four distances, for each network",
    "patch-vs-holistic": "patches against the whole image, for each network",
    "attention": "images with what each distance looks at, for each set",
    "clusters": "the images of 16 clusters, for each set",
    "maximum": "a normal pattern that the maximum over the other images takes for unusual",
}

# Colours of Okabe and Ito, which are distinct with every kind of colour blindness. Lines also
# differ in their dashes.
_METHOD_LINES: dict[str, dict[str, Any]] = {
    "average": {"color": "#7f7f7f", "linestyle": (0, (1, 1))},
    "max-hausdorff": {"color": "#d55e00", "linestyle": (0, (5, 1.5))},
    "wa": {"color": "#0072b2", "linestyle": (0, (6, 1.2, 1.2, 1.2))},
    "wa-semi": {"color": "#009e73", "linestyle": "solid"},
}
_GROUP_COLOURS = {
    "object": "#0072b2",
    "texture": "#e69f00",
    "mtd": "#b05a8c",
    "other": "#7f7f7f",
}
_GROUP_MARKERS = {"object": "o", "texture": "s", "mtd": "^", "other": "D"}
_NMI = "Normalised mutual information"
# The most panels in a row; the shortest part of a bar that has a number, in longest bars.
_ACROSS = 4
_ROOM = 0.12
_OTHER_LAYERS = "(not its last layer)"


def draw(
    name: str, filled: Sequence[Filled], folder: Path, *, stem: str = "", dpi: int = DPI
) -> list[Path]:
    """Draw a figure of numbers: <stem>.svg and <stem>.png in the folder, by default <name>.

    filled: the table of that name, once for each network. Groups and rows without a number are
    left out. dpi: of the PNG file. draw_attention and draw_clusters draw the figures of images.
    """
    if name not in _DRAWN:
        raise OptionError(f"name must be one of {', '.join(_DRAWN)}. Got '{name}'.")
    with house_style():
        figure = _DRAWN[name](filled)
        if figure is None:
            raise InputError(
                f"The figure '{name}' has nothing to draw: none of its rows has a number. "
                "Fill the table of that name with sets that have what it needs."
            )
        return write(figure, folder, stem or name, FIGURES[name], dpi=dpi)


def _purity(filled: Sequence[Filled]) -> Figure | None:
    """One panel a set with the areas beside it; the names of the methods above all panels."""
    panels = []
    for part in filled:
        for name in dict.fromkeys(name for name, _ in part.figures):
            curves = {row: part.figures.get((name, row), {}) for row in FOUR}
            curves = {row: figures for row, figures in curves.items() if "curve" in figures}
            if curves:
                panels.append((_headed(set_name(name), part, filled), curves))
    if not panels:
        return None
    figure, axes = _panels(len(panels), 2.35, 1.6, x_label="Number of clusters", y_label="Purity")
    for place, (title, curves) in zip(axes, panels, strict=True):
        place.set_title(title)
        for row, figures in curves.items():
            purity = np.atleast_1d(figures["curve"])
            area = f"{float(np.mean(figures['mauc'])):.3f}"
            place.plot(np.arange(1, len(purity) + 1), purity, label=area, **_METHOD_LINES[row])
        place.set(xlim=(0, None), ylim=(0, 1.03), yticks=(0, 0.5, 1))
        place.legend(
            title="Area (mAUC)",
            loc="center left",
            bbox_to_anchor=(1, 0.5),
            fontsize=7,
            title_fontsize=7,
            handletextpad=0.5,
        )
    shown = [row for row in FOUR if any(row in curves for _, curves in panels)]
    _legend(figure, [_line(METHODS[row], **_METHOD_LINES[row]) for row in shown])
    return figure


def _temperatures(filled: Sequence[Filled]) -> Figure | None:
    label = "Temperature, in standard deviations of the set's scores"
    return _sweeps(filled, {"": ("", "solid")}, label, steps=(1, 3))


def _taus(filled: Sequence[Filled]) -> Figure | None:
    label = "Tau, in units of the distance between unit vectors"
    return _sweeps(filled, {"": ("", "solid")}, label, steps=(1,))


def _top_counts(filled: Sequence[Filled]) -> Figure | None:
    kinds = {
        " hard": ("hard: equal weights", (0, (4, 1.5))),
        " soft": ("soft: by score", "solid"),
    }
    return _sweeps(filled, kinds, "Patches of an image that count (k)", steps=(1,))


def _sweeps(
    filled: Sequence[Filled], kinds: dict[str, tuple[str, Any]], x_label: str, steps: Sequence[int]
) -> Figure | None:
    """One panel for each of the weighted averages, one line a group and kind.

    kinds: from the part of a row's label after the method to a name and dashes. steps: the
    multiples in each decade that have a number on the axis.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator

    panels = []
    for part in filled:
        for method in ("wa", "wa-semi"):
            lines = {
                (group, kind): points
                for kind in kinds
                for group, points in _points(part, f"{method}{kind}").items()
            }
            if lines:
                panels.append((_headed(METHODS[method], part, filled), lines))
    if not panels:
        return None
    figure, axes = _panels(len(panels), 3.2, 2.4, x_label=x_label, y_label=_NMI, across=2)
    for place, (title, lines) in zip(axes, panels, strict=True):
        place.set_title(title)
        for (group, kind), points in lines.items():
            place.plot(*points, linestyle=kinds[kind][1], **_group_line(group))
        place.set_xscale("log")
        place.xaxis.set_major_locator(LogLocator(subs=steps))
        place.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        place.minorticks_off()
    _from_zero(axes)
    there = {group for _, lines in panels for group, _ in lines}
    handles = _group_handles(there)
    if len(kinds) > 1:
        handles += [_line(name, color=INK, linestyle=dashes) for name, dashes in kinds.values()]
    _legend(figure, handles)
    return figure


def _normal_shares(filled: Sequence[Filled]) -> Figure | None:
    """NMI against the share of normals; dotted, the NMI without normals."""
    panels = [(part, _points(part, "wa-semi")) for part in filled]
    panels = [(part, lines) for part, lines in panels if lines]
    if not panels:
        return None
    label = "Share of the normal images that are labelled"
    figure, axes = _panels(len(panels), 3.6, 2.4, x_label=label, y_label=_NMI, across=2)
    for place, (part, lines) in zip(axes, panels, strict=True):
        place.set_title(_headed("", part, filled))
        without = _values(part)
        for group, points in lines.items():
            place.plot(*points, **_group_line(group))
            if (group, "wa") in without:
                place.axhline(without[group, "wa"], color=_GROUP_COLOURS[group], linestyle=":")
        place.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        place.set_xlim(0, 1.03)
    _from_zero(axes)
    there = {group for _, lines in panels for group in lines}
    handles = _group_handles(there)
    if any((group, "wa") in _values(part) for part, lines in panels for group in lines):
        handles.append(_line("unsupervised", color=INK, linestyle=":"))
    _legend(figure, handles)
    return figure


def _bars(filled: Sequence[Filled]) -> Figure | None:
    """One panel a network and one bar a method, in which the NMI of the groups are stacked."""
    from matplotlib.patches import Patch

    panels = [(part, _values(part)) for part in filled]
    panels = [(part, values) for part, values in panels if values]
    there = {place for _, values in panels for place in values}
    rows = [row for row in METHODS if row in {row for _, row in there}]
    if not rows:
        return None
    label = f"{_NMI}, added up over the groups of sets"
    bars = [
        sum(values.get((group, row), 0) for group in GROUP_NAMES)
        for _, values in panels
        for row in rows
    ]
    longest = max(0.1, *bars)
    figure, axes = _panels(len(panels), 2.3, 0.3 * len(rows) + 0.5, x_label=label)
    for place, (part, values) in zip(axes, panels, strict=True):
        layers = f"\n{_OTHER_LAYERS}" if part.table.remark else ""
        place.set_title(printable(part.backbone) + layers)
        place.set_xlim(0, 1.02 * longest)
        _stack(place, rows, values, _ROOM * longest)
    groups = {group for group, row in there if row in rows}
    _legend(
        figure,
        [
            Patch(color=_GROUP_COLOURS[group], label=name)
            for group, name in GROUP_NAMES.items()
            if group in groups
        ],
    )
    return figure


def _stack(
    place: Axes, rows: Sequence[str], values: dict[tuple[str, str], float], room: float
) -> None:
    ends = dict.fromkeys(rows, 0.0)
    for group in GROUP_NAMES:
        for at, row in enumerate(rows):
            value = values.get((group, row))
            if value is None:
                continue
            place.barh(at, value, 0.72, left=ends[row], color=_GROUP_COLOURS[group])
            if value > room:
                middle, ink = ends[row] + value / 2, "black" if group == "texture" else "white"
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5}
                place.text(middle, at, f"{value:.2f}", color=ink, **look)
            ends[row] += value
    place.set_yticks(range(len(rows)), [METHODS[row].replace(", ", ",\n") for row in rows])
    place.set_ylim(len(rows) - 0.5, -0.5)
    place.tick_params(axis="y", length=0)
    place.grid(axis="y", visible=False)


def _values(part: Filled) -> dict[tuple[str, str], float]:
    """The NMI of each (group, row) that has one."""
    return {
        (cell.set, cell.row): cell.value
        for cell in part.cells
        if cell.set in GROUP_NAMES and cell.metric == "nmi" and cell.value is not None
    }


def _points(part: Filled, prefix: str) -> dict[str, tuple[list[float], list[float]]]:
    """For each group: the numbers in the labels "<prefix> <number>", ascending, and their NMI."""
    found: dict[str, list[tuple[float, float]]] = {}
    for (group, row), value in _values(part).items():
        head, _, number = row.rpartition(" ")
        if head == prefix:
            found.setdefault(group, []).append((float(number), value))
    return {
        group: ([x for x, _ in sorted(pairs)], [y for _, y in sorted(pairs)])
        for group, pairs in found.items()
    }


def _panels(
    count: int,
    width: float,
    height: float,
    *,
    x_label: str,
    y_label: str = "",
    across: int = _ACROSS,
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels that share their vertical axis. width, height: in inches."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    across = min(across, count)
    down = -(-count // across)
    size = (max(4.6, width * across + 0.4), height * down + 0.75)
    figure = Figure(size, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06))
    places = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for place in places[count:]:
        place.remove()
    for place in places[:count]:
        place.grid(visible=True)
    figure.supxlabel(x_label, fontsize=8)
    if y_label:
        figure.supylabel(y_label, fontsize=8)
    return figure, list(places[:count])


def _from_zero(axes: Sequence[Axes]) -> None:
    """Let the vertical axis, which the panels share, begin at 0, once all of them are drawn: a
    limit set before would cut off what is higher in later ones."""
    axes[0].set_ylim(bottom=0)


def _headed(title: str, part: Filled, filled: Sequence[Filled]) -> str:
    """The title of a panel, with the name of the network if there are several."""
    parts = [title, printable(part.backbone) if len(filled) > 1 else ""]
    return ", ".join(text for text in parts if text)


def _legend(figure: Figure, handles: list[Any]) -> None:
    """A legend above the panels, in as many columns as fit."""
    widths = [0.48 + 0.062 * len(str(handle.get_label())) for handle in handles]  # in inches
    room = figure.get_figwidth()
    columns = len(handles) if sum(widths) <= room else max(1, int(room / max(widths)))
    further = -(-len(handles) // columns) - 1
    figure.set_figheight(figure.get_figheight() + 0.18 * further)  # none of it from the panels
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)


def _group_handles(there: set[str]) -> list[Any]:
    return [
        _line(GROUP_NAMES[group], **_group_line(group)) for group in GROUP_NAMES if group in there
    ]


def _group_line(group: str) -> dict[str, Any]:
    return {"color": _GROUP_COLOURS[group], "marker": _GROUP_MARKERS[group], "markersize": 3.5}


def _line(label: str, **look: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


_DRAWN: dict[str, Callable[[Sequence[Filled]], Figure | None]] = {
    "purity": _purity,
    "tau": _temperatures,
    "tau-absolute": _taus,
    "top-k": _top_counts,
    "labelled-normals": _normal_shares,
    "feature-extractors": _bars,
    "patch-vs-holistic": _bars,
}

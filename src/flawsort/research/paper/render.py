"""A table as text, CSV, JSON and LaTeX, with the published numbers beside ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from flawsort.core.tables import csv_text
from flawsort.research.paper.protocol import OBJECTS, TEXTURES
from flawsort.research.paper.tables import Cell, Filled

METRIC_NAMES = {
    "nmi": "NMI",
    "ari": "ARI",
    "f1": "F1",
    "f1_micro": "F1 micro",
    "mauc": "mAUC",
    "r90": "R@0.9",
    "r95": "R@0.95",
    "r99": "R@0.99",
    "pixel-auroc-weights": "pixel AUROC",
    "pixel-auroc": "of scores",
}
_SIZES = {"object": len(OBJECTS), "texture": len(TEXTURES), "mtd": 1}
_NOTHING = "-"


def as_text(filled: Filled) -> str:
    """For a terminal: our numbers, and the paper's in brackets."""
    table = filled.table
    lines = [f"{table.title} ({table.source}), {filled.backbone}", "Ours (the paper's)", ""]
    for head, columns, rows in _blocks(filled):
        lines += _aligned(head, columns, rows)
        lines.append("")
    lines += _remarks(filled)
    return "\n".join(lines).rstrip() + "\n"


def as_latex(filled: Filled) -> str:
    """A tabular for each block of the table; needs the package booktabs."""
    lines = [f"% {filled.table.title} ({filled.table.source}), {filled.backbone}"]
    lines += [f"% {remark}" for remark in _remarks(filled)]
    for head, columns, rows in _blocks(filled):
        lines += [f"\\begin{{tabular}}{{l{'r' * len(columns)}}}", "\\toprule"]
        lines.append(" & ".join(map(_escaped, (head, *columns))) + " \\\\")
        lines.append("\\midrule")
        lines += [" & ".join(map(_escaped, (label, *cells))) + " \\\\" for label, cells in rows]
        lines += ["\\bottomrule", "\\end{tabular}", ""]
    return "\n".join(lines).rstrip() + "\n"


def as_csv(filled: Sequence[Filled]) -> str:
    """One row for each number."""
    fields = list(Cell.__dataclass_fields__)
    rows = [
        [part.table.name, part.backbone, *(getattr(cell, name) for name in fields)]
        for part in filled
        for cell in part.cells
    ]
    return csv_text([["table", "backbone", *fields], *rows])


def as_json(filled: Sequence[Filled]) -> str:
    """Everything, including the figures of each set."""
    parts = [
        {
            "table": part.table.name,
            "title": part.table.title,
            "source": part.table.source,
            "backbone": part.backbone,
            "settings": part.settings,
            "notes": list(part.notes),
            "skipped": list(part.skipped),
            "images": part.n_images,
            "cells": [asdict(cell) for cell in part.cells],
            "sets": [
                {"set": name, "row": row, **figures}
                for (name, row), figures in part.figures.items()
            ],
        }
        for part in filled
    ]
    return json.dumps(parts, indent=1) + "\n"


def _blocks(filled: Filled) -> list[tuple[str, list[str], list[tuple[str, list[str]]]]]:
    """Head, columns and rows: sets as columns where there is one metric, else a block a set."""
    by_place = {(cell.set, cell.row, cell.metric): cell for cell in filled.cells}
    sets = list(dict.fromkeys(cell.set for cell in filled.cells))
    labels = list(dict.fromkeys(cell.row for cell in filled.cells))
    metrics = filled.table.metrics
    if len(metrics) == 1:
        rows = [
            (label, [_shown(by_place[name, label, metrics[0]]) for name in sets])
            for label in labels
        ]
        return [(METRIC_NAMES[metrics[0]], [_headed(name, filled) for name in sets], rows)]
    heads = [METRIC_NAMES[metric] for metric in metrics]
    return [
        (
            _headed(name, filled),
            heads,
            [
                (label, [_shown(by_place[name, label, metric]) for metric in metrics])
                for label in labels
            ],
        )
        for name in sets
    ]


def _headed(name: str, filled: Filled) -> str:
    """The name of a set or group; of a group also the number of sets in the mean."""
    of = max(cell.of for cell in filled.cells if cell.set == name)
    if name == "overall" or name == "other":
        return f"{name} ({of} sets)"
    if _SIZES.get(name, 1) > 1:
        return f"{name} ({of} of {_SIZES[name]})"
    return {"mtd": "MTD"}.get(name, name)


def _shown(cell: Cell) -> str:
    ours = _NOTHING if cell.value is None else f"{cell.value:.3f}"
    if cell.stderr is not None:
        ours += f"±{cell.stderr:.3f}"
    if cell.paper_same is not None:
        return f"{ours} (={cell.paper_same:.3f})"
    if cell.paper is None:
        return ours
    paper = f"{cell.paper:.3f}" + (f"±{cell.paper_stderr:.3f}" if cell.paper_stderr else "")
    return f"{ours} ({paper})"


def _aligned(
    head: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]
) -> list[str]:
    first = max(len(head), *(len(label) for label, _ in rows))
    widths = [
        max(len(column), *(len(cells[place]) for _, cells in rows))
        for place, column in enumerate(columns)
    ]
    lines = [(head, columns), *rows]
    return [
        f"{label:<{first}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for label, cells in lines
    ]


def _remarks(filled: Filled) -> list[str]:
    skipped = [f"Skipped: {entry}." for entry in filled.skipped]
    notes = list(filled.notes)
    if any(cell.paper_same is not None for cell in filled.cells):
        notes.append("After =, the paper's mean over the same sets, from its Table 7.")
    sizes = ((cell, _SIZES.get(cell.set, 0)) for cell in filled.cells if cell.paper_same is None)
    if any(cell.value is not None and cell.paper and cell.of < size for cell, size in sizes):
        notes.append("The paper's means of object and texture are over 10 and 5 categories.")
    if any(c.set == "overall" and c.paper and c.paper_same is None for c in filled.cells):
        notes.append("The paper's overall number is over its own sets.")
    settings = ", ".join(f"{name} {value}" for name, value in filled.settings.items())
    return [*notes, *skipped, f"Settings: {settings}."]


def _escaped(text: str) -> str:
    for plain in "&%_#":
        text = text.replace(plain, f"\\{plain}")
    return text.replace("±", "$\\pm$")

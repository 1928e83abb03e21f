"""The paper's own numbers: published.json holds them digit for digit, table by table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flawsort.core.errors import OptionError


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    set: "object", "texture", "mtd", "overall" or an MVTec category by its folder's name.
    row: the method; "<distance>/<clusterer>" in the tables of clusterers.
    metric: "nmi", "ari", "f1", "mauc", "r90", "r95", "r99" or
    "pixel-auroc-weights".
    stderr: the standard error, None if the paper gives none.
    """

    set: str
    row: str
    metric: str
    value: float
    stderr: float | None


def tables() -> tuple[str, ...]:
    """The names of the tables, in the paper's order; "text" holds numbers from running text."""
    return tuple(_document()["tables"])


@cache
def published(table: str) -> tuple[Cell, ...]:
    """The cells of a table, in reading order."""
    found = _document()["tables"].get(table)
    if found is None:
        raise OptionError(f"table must be one of {', '.join(tables())}. Got {table!r}.")
    return tuple(
        Cell(cell["set"], cell["row"], cell["metric"], cell["value"], cell.get("stderr"))
        for cell in found["cells"]
    )


def lookup(table: str, set: str, row: str, metric: str) -> Cell | None:
    """One cell of a table; None if the paper has no such number."""
    wanted = (set, row, metric)
    cells = published(table)
    return next((cell for cell in cells if (cell.set, cell.row, cell.metric) == wanted), None)


@cache
def _document() -> dict[str, Any]:
    path = Path(__file__).with_name("published.json")
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document

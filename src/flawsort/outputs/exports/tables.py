"""Images, regions and groups as tables: CSV or parquet."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from flawsort.core.records import SetAside
from flawsort.labels.groups import region_groups
from flawsort.outputs.exports.content import UNKNOWN, Content
from flawsort.outputs.exports.naming import clean
from flawsort.outputs.exports.writing import Link, write_text
from flawsort.runs.folder import Table, table_csv

# Between the kinds of an image. In a title within such a list it becomes a comma.
BETWEEN = ";"

_INTEGERS = ("group", "cluster", "region", "images", "confirmed_images")
_FLOATS = ("score", "typicality", "confidence", "heat", "x", "y", "width", "height")
_FLAGS = ("confirmed",)


def write_csv(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """images.csv, regions.csv and groups.csv."""
    for name, table in tables(content).items():
        texts = {
            column: [str(value).lower() if isinstance(value, bool) else value for value in values]
            for column, values in table.items()
        }
        write_text(folder / f"{name}.csv", table_csv(texts))
    return []


def write_parquet(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """images.parquet, regions.parquet and groups.parquet."""
    for name, table in tables(content).items():
        (folder / f"{name}.parquet").write_bytes(_parquet(table))
    return []


def tables(content: Content) -> dict[str, Table]:
    """The three tables by name. docs/reference/run-format.md explains the columns of the run."""
    return {
        "images": images_table(content),
        "regions": _regions_table(content),
        "groups": _groups_table(content),
    }


def images_table(content: Content) -> Table:
    """A row an image: its group with title and role, all its kinds by title and by id, and whether
    a person has confirmed it."""
    table, labels = content.run.table, content.labelling.labels.tolist()
    rows = range(len(labels))
    named = [[title.replace(BETWEEN, ",") for title in content.kind_titles(row)] for row in rows]
    return {
        "name": [clean(name) for name in table["name"]],
        "path": [clean(path) for path in table["path"]],
        "sha256": list(table["sha256"]),
        "group": labels,
        "title": [content.titles[label] for label in labels],
        "role": [content.role(row) for row in rows],
        "kinds": [BETWEEN.join(titles) for titles in named],
        "kind_groups": [BETWEEN.join(map(str, content.kinds[row])) for row in rows],
        "confirmed": content.labelling.confirmed.tolist(),
        "cluster": list(table["cluster"]),
        "score": list(table["score"]),
        "typicality": list(table["typicality"]),
        "flags": list(table["flags"]),
    }


def _regions_table(content: Content) -> Table:
    """All regions of the run, each with its group as the groups stand; -1 and no title where it is
    like none."""
    table, groups = content.run.regions, region_groups(content.run, content.labelling).tolist()
    kept = ("region", "confidence", "score", "heat", "x", "y", "width", "height", "mask")
    return {
        "name": [clean(name) for name in table["name"]],
        "group": groups,
        "title": ["" if group == UNKNOWN else content.titles[group] for group in groups],
        **{column: list(table[column]) for column in kept},
    }


def _groups_table(content: Content) -> Table:
    labelling = content.labelling
    members = [labelling.members(group.id) for group in content.groups]
    return {
        "group": [group.id for group in content.groups],
        "title": [content.titles[group.id] for group in content.groups],
        "role": [group.role for group in content.groups],
        "images": [len(rows) for rows in members],
        "confirmed_images": [int(labelling.confirmed[rows].sum()) for rows in members],
    }


def _parquet(table: Table) -> bytes:
    import arro3.core as arrow
    from arro3.io import write_parquet as write

    types = dict.fromkeys(_INTEGERS, arrow.DataType.int64())
    types |= dict.fromkeys(_FLOATS, arrow.DataType.float64())
    types |= dict.fromkeys(_FLAGS, arrow.DataType.bool())
    text = arrow.DataType.string()
    columns: dict[str, Any] = {
        name: arrow.Array(values, type=types.get(name, text)) for name, values in table.items()
    }
    stream = io.BytesIO()
    write(arrow.Table.from_pydict(columns), stream)
    return stream.getvalue()

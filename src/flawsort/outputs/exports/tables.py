"""Images, regions and groups as tables: CSV or parquet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flawsort.core.records import SetAside
from flawsort.core.tables import INTEGER, NUMBER, TEXT, Column, Columns, Table, Type
from flawsort.core.text import clean
from flawsort.outputs.exports.content import UNKNOWN, Content
from flawsort.outputs.exports.writing import Link, write_text
from flawsort.runs.tables import ImageGroups, group_columns

SEVERITY_OF_IMAGE = "of its group: critical, major, minor or none; empty if nobody said it"
# Separates the kinds of an image. Within a title it is replaced by a comma.
BETWEEN = ";"


def write_csv(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """images.csv, regions.csv and groups.csv."""
    for name, (columns, table) in tables(content).items():
        write_text(folder / f"{name}.csv", columns.csv(table))
    return []


def write_parquet(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """images.parquet, regions.parquet and groups.parquet."""
    for name, (columns, table) in tables(content).items():
        (folder / f"{name}.parquet").write_bytes(columns.parquet(table))
    return []


def tables(content: Content) -> dict[str, tuple[Columns[Any], Table]]:
    """The columns and the table of images, of regions and of groups."""
    return {
        "images": (IMAGES, IMAGES.build(content)),
        "regions": (REGIONS, REGIONS.build(_GroupedRegions(content))),
        "groups": (GROUPS, GROUPS.build(content)),
    }


def _of_images(name: str, type: Type, doc: str) -> Column[Content]:
    """A column copied from the run."""
    return Column(name, type, doc, lambda of: of.run.table[name])


def _of_rows(
    name: str, type: Type, doc: str, value: Callable[[Content, int], Any]
) -> Column[Content]:
    """A column computed row by row."""
    return Column(name, type, doc, lambda of: [value(of, row) for row in range(len(of.run))])


def kind_titles(content: Content, row: int) -> str:
    """All kinds of an image, its own first, as one text."""
    return BETWEEN.join(title.replace(BETWEEN, ",") for title in content.kind_titles(row))


def _groups(content: Content) -> ImageGroups:
    rows = range(len(content.run))
    return ImageGroups(
        [content.title(row) for row in rows],
        content.probability,
        [content.decided(row) for row in rows],
    )


IMAGES = Columns[Content](
    Column("name", TEXT, "of the image", lambda of: [clean(name) for name in of.run.names]),
    Column(
        "path",
        TEXT,
        "where the file was",
        lambda of: [clean(path) for path in of.run.table["path"]],
    ),
    _of_images("sha256", TEXT, "of the file's bytes"),
    *group_columns(_groups),
    Column("group_id", INTEGER, "the id of its group", lambda of: of.labelling.labels.tolist()),
    _of_rows("role", TEXT, "of its group: flaw, normal or unsure", Content.role),
    _of_rows("severity", TEXT, SEVERITY_OF_IMAGE, Content.severity),
    _of_rows("note", TEXT, "what people wrote about the image", Content.note),
    _of_rows("kinds", TEXT, "the titles of all its groups, with ; between", kind_titles),
    _of_rows(
        "kind_groups",
        TEXT,
        "the ids of all its groups, with ; between",
        lambda of, row: BETWEEN.join(map(str, of.kinds[row])),
    ),
    _of_images("cluster", INTEGER, "the cluster that was computed, before people changed it"),
    _of_images("score", NUMBER, "how unusual the image is"),
    _of_images("typicality", NUMBER, "1 for the most typical image of its cluster, falling to 0"),
    _of_images("flags", TEXT, "of duplicate, borderline, looks-normal, with ; between"),
)
"""The columns of images.csv and images.parquet: an image with its group as decided or suggested."""


@dataclass(frozen=True)
class _GroupedRegions:
    content: Content

    @property
    def groups(self) -> list[int]:
        """The current group of each region; UNKNOWN if it shows none."""
        return list(self.content.of_regions)

    @property
    def titles(self) -> list[str]:
        titles = self.content.titles
        return ["" if group == UNKNOWN else titles[group] for group in self.groups]


def _of_regions(name: str, type: Type, doc: str) -> Column[_GroupedRegions]:
    """A column copied from the run."""
    return Column(name, type, doc, lambda of: of.content.run.regions[name])


REGIONS = Columns[_GroupedRegions](
    Column(
        "name",
        TEXT,
        "of the image",
        lambda of: [clean(name) for name in of.content.run.regions["name"]],
    ),
    Column("group", TEXT, "what the group that it is like is called", lambda of: of.titles),
    Column("group_id", INTEGER, "the id of that group, or -1", lambda of: of.groups),
    _of_regions("region", INTEGER, "counts from 0 within the image, the hottest first"),
    _of_regions("confidence", NUMBER, "how clearly it is like that group, 0 to 1"),
    _of_regions("score", NUMBER, "the score of its most unusual patch"),
    _of_regions("heat", NUMBER, "its most unusual patch on the scale of the heat maps, 0 to 1"),
    _of_regions("x", NUMBER, "left of the box around it, in fractions of the upright image"),
    _of_regions("y", NUMBER, "top of that box"),
    _of_regions("width", NUMBER, "of that box"),
    _of_regions("height", NUMBER, "of that box"),
    _of_regions("mask", TEXT, "its patches, counted row by row: 37-39 69 are 37, 38, 39 and 69"),
)
"""The columns of regions.csv and regions.parquet: all regions of the run."""


def _sizes(content: Content) -> list[int]:
    return [len(content.labelling.members(group.id)) for group in content.groups]


def _decided(content: Content) -> list[int]:
    members = [content.labelling.members(group.id) for group in content.groups]
    return [sum(map(content.decided, rows.tolist())) for rows in members]


GROUPS = Columns[Content](
    Column("group", TEXT, "what it is called", lambda of: [of.titles[one.id] for one in of.groups]),
    Column("group_id", INTEGER, "its id", lambda of: [group.id for group in of.groups]),
    Column("role", TEXT, "flaw, normal or unsure", lambda of: [group.role for group in of.groups]),
    Column(
        "severity",
        TEXT,
        "critical, major, minor or none; empty if nobody said it",
        lambda of: [group.severity for group in of.groups],
    ),
    Column("note", TEXT, "what people wrote about it", lambda of: [one.note for one in of.groups]),
    Column("images", INTEGER, "how many images it has", _sizes),
    Column("decided_images", INTEGER, "how many of them a person has decided", _decided),
)
"""The columns of groups.csv and groups.parquet."""

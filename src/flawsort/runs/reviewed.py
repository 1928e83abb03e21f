"""The table of images of a run that people have reviewed: with the groups as they left them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flawsort.core.records import Bools, Ints
from flawsort.core.tables import INTEGER, TEXT, Column, Columns, Table
from flawsort.runs.tables import SEVERAL, ImageGroups, first_groups, group_columns

# What the column kinds says until people review the run; code needs it afterwards, too.
CLUSTERS = "clusters"
# After these columns come those of the review.
_FIRST = ("name", "path", "sha256")


@dataclass(frozen=True)
class ReviewedGroups:
    """What people read of images. groups: as in every table. ids, roles, severities: of the group
    of each image. notes: on the images. kinds, titles: all groups of each image, its own first, as
    ids and as people read them."""

    groups: ImageGroups
    ids: Sequence[int]
    roles: Sequence[str]
    severities: Sequence[str]
    notes: Sequence[str]
    kinds: Sequence[Sequence[int]]
    titles: Sequence[Sequence[str]]

    def columns(self) -> Table:
        """The columns of REVIEWED."""
        return REVIEWED.build(self)


REVIEWED = Columns[ReviewedGroups](
    *group_columns(lambda of: of.groups),
    Column("group_id", INTEGER, "the number of its group", lambda of: of.ids),
    Column("role", TEXT, "of its group: flaw, normal or unsure", lambda of: of.roles),
    Column("severity", TEXT, "of its group; empty if nobody said it", lambda of: of.severities),
    Column("note", TEXT, "what people wrote about the image", lambda of: of.notes),
    Column(
        "kinds",
        TEXT,
        "what all its groups are called, separated by ;",
        lambda of: [SEVERAL.join(one.replace(SEVERAL, ",") for one in some) for some in of.titles],
    ),
    Column(
        "kind_groups",
        TEXT,
        "the numbers of these groups",
        lambda of: [SEVERAL.join(map(str, some)) for some in of.kinds],
    ),
)
"""The columns about groups in images.csv and images.parquet of a reviewed run."""


def reviewed_table(table: Table, reviewed: ReviewedGroups) -> Table:
    """A table of images with what people said. What was computed stays in the others columns."""
    first = {name: table[name] for name in _FIRST}
    new, known = reviewed.columns(), computed_kinds(table)
    others = {name: values for name, values in table.items() if name not in {*first, *new}}
    before = {"cluster": others.pop("cluster"), CLUSTERS: known}
    return {**first, **new, **before, **others}


def unreviewed_table(table: Table, looks_normal: Bools, labels: Ints) -> Table:
    """A table of images as it was before anybody reviewed the run. looks_normal, labels: (n,)."""
    groups = first_groups(labels, looks_normal).columns()
    last = {"cluster": table["cluster"], "kinds": computed_kinds(table)}
    given = {*_FIRST, *groups, *last}
    new = {column.name for column in REVIEWED} | {CLUSTERS}
    others = {name: values for name, values in table.items() if name not in given | new}
    return {**{name: table[name] for name in _FIRST}, **groups, **last, **others}


def is_reviewed(table: Table) -> bool:
    """Whether a table of images is one of `reviewed_table`."""
    return CLUSTERS in table


def computed_kinds(table: Table) -> list[str]:
    """For each image its cluster, then the other clusters that its regions resemble."""
    kinds: list[str] = table.get(CLUSTERS, table["kinds"])
    return kinds

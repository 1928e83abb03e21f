"""Names of groups: words that mean normal, names that are refused, and what is offered instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flawsort.core.errors import OptionError
from flawsort.labels.groups import Group, Labelling
from flawsort.runs.tables import NEW_KIND_TITLE

# Names that say that there is no flaw, and names that tables and pages use for something else.
NORMAL_NAMES = ("normal", "good", "ok")
RESERVED_NAMES = ("unsure", NEW_KIND_TITLE)


class RefusedName(OptionError):  # noqa: N818
    """A name that people would take for another group. taken: the id of the group that has it
    already; None if the name means normal or has another meaning. normal: whether it means
    normal."""

    def __init__(self, problem: str, *, taken: int | None = None, normal: bool = False) -> None:
        super().__init__(problem)
        self.taken, self.normal = taken, normal


@dataclass(frozen=True)
class Offer:
    """An edit that would make the names of groups clear. kind: "merge" two groups of one name, or
    give a group whose name means normal the role "normal". groups: their ids; the others would be
    merged into the first."""

    kind: Literal["merge", "normal"]
    groups: tuple[int, ...]


def means_normal(name: str) -> bool:
    """Whether a name or a label says that there is no flaw."""
    return name.strip().casefold() in NORMAL_NAMES


def check_not_reserved(name: str) -> None:
    """RefusedName for a name that tables and pages use for something else."""
    if name.casefold() in RESERVED_NAMES:
        raise RefusedName(f"name: {name!r} has a meaning of its own. Choose another name.")


def check_names(before: Labelling, after: Labelling) -> None:
    """RefusedName if a group has got a name that people would take for another group. Edits that
    were made earlier are not checked, so that their log can be read."""
    for group in after.groups.values():
        known = before.groups.get(group.id)
        if not group.name or (known is not None and known.name == group.name):
            continue
        if means_normal(group.name) and group.role != "normal":
            raise RefusedName(
                f"name: {group.name!r} means images without a flaw. Give the group the role "
                "normal, or choose another name.",
                normal=True,
            )
        check_not_reserved(group.name)
        for other in after.groups.values():
            if other.id != group.id and _same_title(other, group):
                raise RefusedName(
                    f"name: there is a group {group.name!r} already. Move the images there or "
                    "merge the groups, or choose another name.",
                    taken=other.id,
                )


def offers(labelling: Labelling) -> list[Offer]:
    """What to offer for names that are not clear, as earlier edits, labels from a file or the
    clustering may have left them. Groups that a person called different are not offered again."""
    return [*_of_one_name(labelling), *_called_normal(labelling)]


def _of_one_name(labelling: Labelling) -> Iterator[Offer]:
    there = set(np.unique(labelling.labels).tolist())
    first: dict[str, Group] = {}
    for group in labelling.groups.values():
        # A group without images and without a name is shown nowhere.
        if group.role == "unsure" or not (group.name or group.id in there):
            continue
        known = first.setdefault(group.title.casefold(), group)
        if known is not group and frozenset((known.id, group.id)) not in labelling.different:
            yield Offer("merge", (known.id, group.id))


def _called_normal(labelling: Labelling) -> Iterator[Offer]:
    for group in labelling.groups.values():
        if group.role != "normal" and means_normal(group.name):
            yield Offer("normal", (group.id,))


def _same_title(one: Group, other: Group) -> bool:
    return one.title.casefold() == other.title.casefold()

"""Whether an edit still means what its author saw, after others have changed the groups.

Several people answer at once. An edit that names images and groups which nobody else has touched is
added on top of the newer edits. Any other one is refused, and its author looks again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flawsort.core.records import Ints
from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import Labelling

# Kinds of edits that name the images and groups that they are about. The others, such as a cut, are
# about everything.
NAMING = frozenset(
    (
        "accept",
        "reject",
        "move",
        "several",
        "split",
        "name",
        "role",
        "severity",
        "note",
        "different",
    )
)
# The versions that are kept, and the bytes of their groups at most: fewer of a very large run.
# Whoever saw an older one looks again.
KEPT_VERSIONS = 64
KEPT_BYTES = 2**26


@dataclass(frozen=True)
class Shown:
    """What people see at a version. groups: (n_images,), the group that each image is shown in, as
    decided or suggested."""

    labelling: Labelling
    groups: Ints

    def image(self, row: int) -> tuple[object, ...]:
        now = self.labelling
        return (
            int(self.groups[row]),
            bool(now.confirmed[row]),
            now.several.get(row),
            now.rejected.get(row),
            now.notes.get(row),
        )


@dataclass
class ShownVersions:
    """What people saw at the last versions."""

    _kept: OrderedDict[int, Shown] = field(default_factory=OrderedDict)

    def keep(self, version: int, shown: Shown) -> None:
        self._kept[version] = shown
        most = min(KEPT_VERSIONS, max(1, KEPT_BYTES // max(1, shown.groups.nbytes)))
        while len(self._kept) > most:
            self._kept.popitem(last=False)

    def at(self, version: int) -> Shown | None:
        """None if it is not known any more, or nobody has asked for it."""
        return self._kept.get(version)


def stands(edit: Edit, before: Shown, now: Shown) -> bool:
    """Whether all images and groups that an edit names look now as they did before. A group that is
    named by itself, say to give it a name, has the same images too."""
    if edit.kind not in NAMING or not isinstance(edit.payload, Mapping):
        return False
    rows = _rows(edit.payload)
    if rows is None or (edit.kind == "accept" and not rows):
        return False
    if not all(0 <= row < len(now.groups) and before.image(row) == now.image(row) for row in rows):
        return False
    named = _groups(edit.payload)
    if not rows and not all(_same_images(one, before.labelling, now.labelling) for one in named):
        return False
    named |= {int(before.groups[row]) for row in rows}
    if rows and _filled(named, before.labelling, now.labelling):
        return False
    return all(before.labelling.groups.get(one) == now.labelling.groups.get(one) for one in named)


def _filled(groups: set[int], before: Labelling, now: Labelling) -> bool:
    """Whether a cut or a merge has put images into one of the groups. An image that somebody moved
    there is an answer, and leaves the group what it was."""
    came = (now.labels != before.labels) & ~now.confirmed
    return bool(np.isin(now.labels[came], list(groups)).any())


def _same_images(group: int, before: Labelling, now: Labelling) -> bool:
    """Whether a group has the images that it had, but for those that are only suggested."""
    return np.array_equal(before.labels == group, now.labels == group)


def _rows(payload: Mapping[str, object]) -> list[int] | None:
    """The images that a payload names; None if it has something else in their place."""
    given = payload.get("images", [payload["image"]] if "image" in payload else [])
    if not isinstance(given, list) or any(type(row) is not int for row in given):
        return None
    return given


def _groups(payload: Mapping[str, object]) -> set[int]:
    several = payload.get("groups")
    named = [
        payload.get("group"),
        payload.get("to"),
        *(several if isinstance(several, list) else ()),
    ]
    return {one for one in named if type(one) is int}

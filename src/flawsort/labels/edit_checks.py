"""Checks of every value in an edit, since edits come from outside."""

from __future__ import annotations

import reprlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.labels.groups import ROLES, Group, Labelling, Role

LONGEST_NAME = 200
# Ids are stored as 64-bit integers, and the id after the largest must fit, too.
_LARGEST_ID = 2**53
# Characters that change the direction of text, and characters that XML does not allow.
_REFUSED = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufffe\uffff")
_REFUSED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")

Payload: TypeAlias = Mapping[str, Any]
# The required and the optional keys of each kind of edit.
KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "name": (("group", "name"), ()),
    "role": (("group", "role"), ()),
    "merge": (("groups", "into"), ()),
    "split": (("group", "images"), ("name",)),
    "move": (("images", "to"), ("name",)),
    "several": (("images", "groups"), ()),
    "accept": ((), ("group", "images")),
    "cut": (("k",), ()),
    "carry": (("groups", "labels", "confirmed", "several", "k"), ("spent",)),
}
KINDS = tuple(KEYS)


@dataclass(frozen=True)
class Edit:
    """kind: one of KINDS, or undo or redo. payload: its details, as JSON can hold them."""

    kind: str
    payload: Payload = field(default_factory=dict)


def checked_payload(edit: Edit) -> Payload:
    """The payload of an edit, with its kind and keys checked."""
    if not isinstance(edit.kind, str) or edit.kind not in KEYS:
        raise OptionError(f"kind must be one of {', '.join(KINDS)}. Got {reprlib.repr(edit.kind)}.")
    if not isinstance(edit.payload, Mapping):
        raise OptionError(
            f"The payload of {edit.kind} must be a mapping. Got {reprlib.repr(edit.payload)}."
        )
    needed, optional = KEYS[edit.kind]
    keys = edit.payload.keys()
    if not set(needed) <= keys or not keys <= {*needed, *optional}:
        takes = ", ".join([*needed, *(f"{key} (optional)" for key in optional)])
        raise OptionError(f"{edit.kind} takes {takes}. Got {listed(edit.payload)}.")
    return edit.payload


def target_of(given: Payload, now: Labelling) -> Group:
    """The target of a move: an existing group or a new one."""
    to, name = given["to"], name_of(given.get("name"))
    if to == "new":
        return Group(now.next_id, name)
    if name:
        raise OptionError(
            f"name is for images that move to a new group. Got {name!r} with to = "
            f"{reprlib.repr(to)}: leave it out."
        )
    for role in ROLES[1:]:
        if to == role:
            first = next(iter(now.with_role(role)), None)
            return Group(now.next_id, role=role) if first is None else now.groups[first]
    if isinstance(to, str):
        raise OptionError(
            f"to must be the id of a group, or normal, unsure or new. Got {reprlib.repr(to)}."
        )
    return now.groups[group_of(to, now, "to")]


def group_of(value: object, now: Labelling, what: str = "group") -> int:
    number = number_of(value, what)
    if number not in now.groups:
        raise OptionError(
            f"{what}: there is no group {reprlib.repr(number)}. The current groups are "
            f"{listed(now.groups)}."
        )
    return number


def groups_of(values: object, now: Labelling, what: str = "groups") -> list[int]:
    """Distinct group ids in the given order."""
    return list(dict.fromkeys(group_of(value, now, what) for value in integers_of(values, what)))


def rows_of(
    values: object, now: Labelling, what: str = "images", *, least: int = 1
) -> NDArray[np.int64]:
    """Distinct rows in ascending order."""
    rows, n = integers_of(values, what), len(now.labels)
    if len(rows) < least:
        raise OptionError(f"{what} must hold at least one image. Got none.")
    if rows and not (min(rows) >= 0 and max(rows) < n):
        wrong = next(row for row in rows if not 0 <= row < n)
        raise OptionError(
            f"{what} must be rows of the run's table, 0 to {n - 1}. Got {reprlib.repr(wrong)}."
        )
    return np.array(sorted(set(rows)), np.int64)


def integers_of(values: object, what: str) -> Sequence[int]:
    if not isinstance(values, list | tuple):
        raise OptionError(f"{what} must be a list of whole numbers. Got {reprlib.repr(values)}.")
    if not set(map(type, values)) <= {int}:  # True is no row
        wrong = next(value for value in values if type(value) is not int)
        raise OptionError(f"{what} must be whole numbers. Got {reprlib.repr(wrong)} among them.")
    return values


def number_of(value: object, what: str = "k") -> int:
    if type(value) is not int:
        raise OptionError(f"{what} must be a whole number. Got {reprlib.repr(value)}.")
    return value


def name_of(value: object) -> str:
    return checked_text(value, "name")


def role_of(value: object) -> Role:
    for role in ROLES:
        if value == role:
            return role
    raise OptionError(f"role must be one of {', '.join(ROLES)}. Got {reprlib.repr(value)}.")


def carried_groups(values: object) -> dict[int, Group]:
    if not isinstance(values, list | tuple) or not values:
        raise OptionError(f"groups must be a list of groups. Got {reprlib.repr(values)}.")
    found: dict[int, Group] = {}
    for value in values:
        if not isinstance(value, Mapping) or value.keys() != {"id", "name", "role"}:
            raise OptionError(
                f"groups must each have id, name and role. Got {reprlib.repr(value)}."
            )
        number = number_of(value["id"], "id")
        if not 0 <= number < _LARGEST_ID or number in found:
            raise OptionError(f"id must be 0 or more, and unique. Got {reprlib.repr(number)}.")
        found[number] = Group(number, name_of(value["name"]), role_of(value["role"]))
    return dict(sorted(found.items()))


def carried_several(values: object, known: Labelling) -> dict[int, tuple[int, ...]]:
    if not isinstance(values, Mapping):
        raise OptionError(f"several must map rows to group ids. Got {reprlib.repr(values)}.")
    found = {}
    for key, kinds in values.items():
        # Keys of JSON objects are strings.
        digits = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 16
        row = int(key) if digits else key
        found[int(rows_of([row], known, "several")[0])] = tuple(groups_of(kinds, known, "several"))
    return found


def checked_text(value: object, what: str) -> str:
    """A short text that a person typed, stripped of spaces; "" for None."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise OptionError(f"{what} must be text. Got {reprlib.repr(value)}.")
    text = value.strip()
    if len(text) > LONGEST_NAME:
        raise OptionError(
            f"{what} must have at most {LONGEST_NAME} characters. Got {len(text)}: shorten it."
        )
    for character in text:
        if character in _REFUSED or unicodedata.category(character) in _REFUSED_CATEGORIES:
            raise OptionError(
                f"{what} must be one line without control characters. Got {character!a} in it."
            )
    return text


def listed(values: Iterable[object]) -> str:
    texts = [reprlib.repr(value) for value in values]
    more = f" and {len(texts) - 8} more" if len(texts) > 8 else ""
    return ", ".join(texts[:8]) + more or "none"

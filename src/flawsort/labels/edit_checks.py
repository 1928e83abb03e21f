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
from flawsort.labels.groups import ROLES, SEVERITIES, Group, Labelling, Role, Severity

LONGEST_NAME = 200
LONGEST_NOTE = 500
# Groups that are merged keep all their notes.
LONGEST_JOINED = 20 * LONGEST_NOTE
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
    "split": (("group", "images"), ("name", "at", "suggested")),
    "move": (("images", "to"), ("name", "at", "suggested")),
    "several": (("images", "groups"), ("at", "suggested")),
    "accept": ((), ("group", "images", "at", "suggested")),
    "reject": (("images", "group"), ("at", "suggested")),
    "audit": (("image", "to"), ("name",)),
    "teach": (("examples", "to"), ("name", "suggested")),
    "verdict": (("threshold",), ()),
    "different": (("groups",), ()),
    "severity": (("group", "severity"), ()),
    "note": (("note",), ("group", "image")),
    "cut": (("k",), ()),
    "carry": (
        ("groups", "labels", "confirmed", "several", "k"),
        ("spent", "rejected", "examples", "threshold", "different", "notes"),
    ),
}
KINDS = tuple(KEYS)
# What people do. "carry" brings the groups of an earlier run along, and only `cluster` writes it.
BY_PEOPLE = tuple(kind for kind in KINDS if kind != "carry")


@dataclass(frozen=True)
class Edit:
    """kind: one of KINDS, or undo or redo. payload: its details, as JSON can hold them."""

    kind: str
    payload: Payload = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One entry of the log. seq: counts from 1, or on from the log of the run that was replaced.
    at: the time in UTC. author: a name, or ""."""

    seq: int
    at: str
    author: str
    edit: Edit


def check_by_people(kind: str) -> None:
    """Refuse an edit that people cannot make themselves."""
    if kind not in BY_PEOPLE:
        raise OptionError(f"kind must be one of {', '.join(BY_PEOPLE)}. Got {reprlib.repr(kind)}.")


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


def pair_of(values: object, now: Labelling, what: str = "groups") -> frozenset[int]:
    """Two different groups."""
    pair = frozenset(groups_of(values, now, what))
    if len(pair) != 2:
        raise OptionError(f"{what} must be two different groups. Got {reprlib.repr(values)}.")
    return pair


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


def where_suggested(given: Payload, rows: NDArray[np.int64], now: Labelling) -> NDArray[np.int64]:
    """(n_rows,): the group that was suggested for each image when a person answered; without a
    note of it, the group that the image is in."""
    if "at" not in given:
        return now.labels[rows]
    at = [group_of(group, now, "at") for group in integers_of(given["at"], "at")]
    if len(at) != len(rows):
        raise OptionError(f"at must hold one group for each image, {len(rows)}. Got {len(at)}.")
    return np.array(at, np.int64)


def suggested_of(given: Payload, n: int) -> list[int | None]:
    """The group that was suggested for each of n images before a person answered, None where
    nothing was. Without a note of it, as in edits of older versions, nothing is known to have been
    suggested."""
    if "suggested" not in given:
        return [None] * n
    values = given["suggested"]
    if not isinstance(values, list | tuple) or not set(map(type, values)) <= {int, type(None)}:
        raise OptionError(
            f"suggested must be a list of whole numbers or null. Got {reprlib.repr(values)}."
        )
    if len(values) != n:
        raise OptionError(f"suggested must hold one for each image, {n}. Got {len(values)}.")
    return list(values)


def threshold_of(value: object) -> float | None:
    """A probability, or None for no threshold."""
    if value is None:
        return None
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not 0 <= float(value) <= 1:  # type: ignore[arg-type]
        raise OptionError(f"threshold must be between 0 and 1. Got {reprlib.repr(value)}.")
    return float(value)  # type: ignore[arg-type]


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


def severity_of(value: object) -> Severity:
    for severity in SEVERITIES:
        if value == severity:
            return severity
    known = ", ".join(filter(None, SEVERITIES))
    raise OptionError(
        f"severity must be one of {known}, or '' for none given. Got {reprlib.repr(value)}."
    )


def note_of(value: object, longest: int = LONGEST_NOTE) -> str:
    return checked_text(value, "note", longest)


def carried_groups(values: object) -> dict[int, Group]:
    if not isinstance(values, list | tuple) or not values:
        raise OptionError(f"groups must be a list of groups. Got {reprlib.repr(values)}.")
    found: dict[int, Group] = {}
    for value in values:
        needed, more = {"id", "name", "role"}, {"severity", "note"}
        if not isinstance(value, Mapping) or not needed <= value.keys() <= needed | more:
            raise OptionError(
                f"groups must each have id, name and role. Got {reprlib.repr(value)}."
            )
        number = number_of(value["id"], "id")
        if not 0 <= number < _LARGEST_ID or number in found:
            raise OptionError(f"id must be 0 or more, and unique. Got {reprlib.repr(number)}.")
        found[number] = Group(
            number,
            name_of(value["name"]),
            role_of(value["role"]),
            severity_of(value.get("severity", "")),
            note_of(value.get("note"), LONGEST_JOINED),
        )
    return dict(sorted(found.items()))


def carried_several(
    values: object, known: Labelling, what: str = "several"
) -> dict[int, tuple[int, ...]]:
    if not isinstance(values, Mapping):
        raise OptionError(f"{what} must map rows to group ids. Got {reprlib.repr(values)}.")
    return {
        _row_of_key(key, known, what): tuple(groups_of(kinds, known, what))
        for key, kinds in values.items()
    }


def carried_notes(values: object, known: Labelling) -> dict[int, str]:
    if not isinstance(values, Mapping):
        raise OptionError(f"notes must map rows to texts. Got {reprlib.repr(values)}.")
    return {_row_of_key(key, known, "notes"): note_of(note) for key, note in values.items()}


def _row_of_key(key: object, known: Labelling, what: str) -> int:
    # Keys of JSON objects are strings.
    digits = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 16
    return int(rows_of([int(str(key)) if digits else key], known, what)[0])


def carried_pairs(values: object, known: Labelling) -> frozenset[frozenset[int]]:
    if not isinstance(values, list | tuple):
        raise OptionError(f"different must be a list of pairs. Got {reprlib.repr(values)}.")
    return frozenset(pair_of(pair, known, "different") for pair in values)


def checked_text(value: object, what: str, longest: int = LONGEST_NAME) -> str:
    """A short text that a person typed, stripped of spaces; "" for None."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise OptionError(f"{what} must be text. Got {reprlib.repr(value)}.")
    text = value.strip()
    if len(text) > longest:
        raise OptionError(
            f"{what} must have at most {longest} characters. Got {len(text)}: shorten it."
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

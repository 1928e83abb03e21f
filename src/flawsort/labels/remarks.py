"""What people say of groups and images besides what they show: how severe a flaw is, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flawsort.core.errors import OptionError
from flawsort.core.records import Floats
from flawsort.labels.edit_checks import (
    LONGEST_JOINED,
    Payload,
    group_of,
    listed,
    note_of,
    rows_of,
    severity_of,
)
from flawsort.labels.group_changes import with_group
from flawsort.labels.groups import Group, Labelling

# Between the notes of groups that became one.
BETWEEN = " / "


def change_severity(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    """The severity of a kind of flaw; "" takes it back."""
    group = now.groups[group_of(given["group"], now)]
    severity = severity_of(given["severity"])
    if severity and group.role != "flaw":
        raise OptionError(
            f"severity is for kinds of flaws. Got group {group.id}, whose role is {group.role}."
        )
    return with_group(now, replace(group, severity=severity))


def change_note(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    """The note on a group or an image; "" removes it."""
    note = note_of(given["note"])
    if ("group" in given) == ("image" in given):
        raise OptionError(f"note takes either group or image. Got {listed(given)}.")
    if "group" in given:
        group = now.groups[group_of(given["group"], now)]
        return with_group(now, replace(group, note=note))
    row = int(rows_of([given["image"]], now, "image")[0])
    notes = {**now.notes, row: note}
    if not note:
        del notes[row]
    return replace(now, notes=dict(sorted(notes.items())))


def joined(group: Group, others: Sequence[Group]) -> Group:
    """A group into which others are merged: the first name and severity that people gave, its own
    before those of the others, and the notes of all."""
    all_ = (group, *others)
    notes = dict.fromkeys(one.note for one in all_ if one.note)
    return replace(
        group,
        name=next((one.name for one in all_ if one.name), ""),
        severity=next((one.severity for one in all_ if one.severity), ""),
        note=BETWEEN.join(notes)[:LONGEST_JOINED].strip(),
    )

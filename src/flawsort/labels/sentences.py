"""Edits as short sentences, for the undo and redo buttons and the history."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flawsort.core.text import pluralise
from flawsort.labels.edit_checks import (
    Edit,
    Payload,
    checked_payload,
    group_of,
    groups_of,
    name_of,
    note_of,
    number_of,
    pair_of,
    role_of,
    rows_of,
    severity_of,
    target_of,
    threshold_of,
)
from flawsort.labels.groups import Labelling

# A severity in a sentence; as much of a note as a line has room for.
SAID = {"critical": "critical", "major": "major", "minor": "minor", "none": "of no severity"}
SHORT = 60


def describe(edit: Edit, labelling: Labelling) -> str:
    """An edit as a short sentence, for the undo button. labelling: before the edit."""
    given = checked_payload(edit)
    return _SENTENCES[edit.kind](given, labelling)


def _name_in_words(given: Payload, now: Labelling) -> str:
    group, name = now.groups[group_of(given["group"], now)], name_of(given["name"])
    if not name:
        return f"Remove the name of {group.title}"
    return f"Rename {group.title} to {name}" if group.name else f"Name {group.title} {name}"


def _role_in_words(given: Payload, now: Labelling) -> str:
    role = {"flaw": "a flaw", "normal": "normal", "unsure": "unsure"}[role_of(given["role"])]
    return f"Mark {_titles([given['group']], now)} as {role}"


def _merge_in_words(given: Payload, now: Labelling) -> str:
    others = [group for group in groups_of(given["groups"], now) if group != given["into"]]
    return f"Merge {_titles(others, now)} into {_titles([given['into']], now)}"


def _split_in_words(given: Payload, now: Labelling) -> str:
    name = name_of(given.get("name"))
    of = f"Split {_images(given, now)} from {_titles([given['group']], now)}"
    return f"{of} as {name}" if name else of


def _move_in_words(given: Payload, now: Labelling) -> str:
    return f"Move {_images(given, now)} to {_target(given, now)}"


def _several_in_words(given: Payload, now: Labelling) -> str:
    others = groups_of(given["groups"], now)
    kinds = f"also {_titles(others, now)}" if others else "of one kind only"
    return f"Mark {_images(given, now)} as {kinds}"


def _accept_in_words(given: Payload, now: Labelling) -> str:
    what = _titles([given["group"]], now) if "group" in given else _images(given, now)
    return f"Accept {what}"


def _reject_in_words(given: Payload, now: Labelling) -> str:
    is_ = "is" if len(rows_of(given["images"], now)) == 1 else "are"
    return f"Say that {_images(given, now)} {is_} not {_titles([given['group']], now)}"


def _teach_in_words(given: Payload, now: Labelling) -> str:
    return f"Teach {_target(given, now)} with {pluralise(len(given['examples']), 'new image')}"


def _verdict_in_words(given: Payload, now: Labelling) -> str:
    limit = threshold_of(given["threshold"])
    return "Remove the limit for OK" if limit is None else f"Set the limit for OK to {limit:.1%}"


def _different_in_words(given: Payload, now: Labelling) -> str:
    return f"Keep {_titles(sorted(pair_of(given['groups'], now)), now)} apart"


def _severity_in_words(given: Payload, now: Labelling) -> str:
    severity, title = severity_of(given["severity"]), _titles([given["group"]], now)
    return f"Call {title} {SAID[severity]}" if severity else f"Take back how severe {title} is"


def _note_in_words(given: Payload, now: Labelling) -> str:
    note = note_of(given["note"])
    what = _titles([given["group"]], now) if "group" in given else "1 image"
    short = note if len(note) <= SHORT else f"{note[: SHORT - 1].rstrip()}\u2026"
    return f"Note on {what}: {short}" if note else f"Remove the note on {what}"


_SENTENCES: dict[str, Callable[[Payload, Labelling], str]] = {
    "name": _name_in_words,
    "role": _role_in_words,
    "merge": _merge_in_words,
    "split": _split_in_words,
    "move": _move_in_words,
    "several": _several_in_words,
    "accept": _accept_in_words,
    "reject": _reject_in_words,
    "audit": lambda given, now: f"Audit 1 image as {_target(given, now)}",
    "teach": _teach_in_words,
    "verdict": _verdict_in_words,
    "different": _different_in_words,
    "severity": _severity_in_words,
    "note": _note_in_words,
    "cut": lambda given, now: f"Cut into {pluralise(number_of(given['k']), 'group')}",
    "carry": lambda given, now: f"Take over {pluralise(len(given['groups']), 'group')}",
}


def _target(given: Payload, now: Labelling) -> str:
    target = target_of(given, now)
    return f"a new group {target.name}".rstrip() if given["to"] == "new" else target.title


def _images(given: Payload, now: Labelling) -> str:
    return pluralise(len(rows_of(given["images"], now)), "image")


def _titles(groups: Sequence[int], now: Labelling) -> str:
    titles = [now.groups[group_of(group, now)].title for group in groups]
    if len(titles) > 3:
        return f"{len(titles)} groups"
    return " and ".join([*filter(None, [", ".join(titles[:-1])]), *titles[-1:]])

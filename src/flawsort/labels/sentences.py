"""Edits as short sentences, for the undo and redo buttons."""

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
    number_of,
    role_of,
    rows_of,
    target_of,
)
from flawsort.labels.groups import Labelling


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
    target = target_of(given, now)
    where = target.title
    if given["to"] == "new":
        where = f"a new group {target.name}".rstrip()
    return f"Move {_images(given, now)} to {where}"


def _several_in_words(given: Payload, now: Labelling) -> str:
    others = groups_of(given["groups"], now)
    kinds = f"also {_titles(others, now)}" if others else "of one kind only"
    return f"Mark {_images(given, now)} as {kinds}"


def _accept_in_words(given: Payload, now: Labelling) -> str:
    what = _images(given, now) if "images" in given else _titles([given["group"]], now)
    return f"Accept {what}"


_SENTENCES: dict[str, Callable[[Payload, Labelling], str]] = {
    "name": _name_in_words,
    "role": _role_in_words,
    "merge": _merge_in_words,
    "split": _split_in_words,
    "move": _move_in_words,
    "several": _several_in_words,
    "accept": _accept_in_words,
    "cut": lambda given, now: f"Cut into {pluralise(number_of(given['k']), 'group')}",
    "carry": lambda given, now: f"Take over {pluralise(len(given['groups']), 'group')}",
}


def _images(given: Payload, now: Labelling) -> str:
    return pluralise(len(rows_of(given["images"], now)), "image")


def _titles(groups: Sequence[int], now: Labelling) -> str:
    titles = [now.groups[group_of(group, now)].title for group in groups]
    if len(titles) > 3:
        return f"{len(titles)} groups"
    return " and ".join([*filter(None, [", ".join(titles[:-1])]), *titles[-1:]])

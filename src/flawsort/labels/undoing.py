"""Undo and redo of an edit that is not the last one, so that nothing else changes.

An edit that is undone takes what it changed back to how it was before it. That is safe if no later
edit in force touched or named any of it, and if the later edits do exactly the same without it.
Otherwise a later answer rests on it, and the undo is refused. A redo is the same the other way
round.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import Labelling

# What an edit does, at one place of the log.
Apply = Callable[[Edit, Labelling], Labelling]


@dataclass(frozen=True)
class Things:
    """What an edit is about. rows: of images. groups: ids. others: examples by their content,
    pairs of groups, the limit for OK, the cut of the tree."""

    rows: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    others: frozenset[Hashable] = frozenset()

    def meets(self, other: Things) -> bool:
        """Whether anything is in both."""
        return bool(
            self.rows & other.rows or self.groups & other.groups or self.others & other.others
        )

    def within(self, other: Things) -> bool:
        """Whether everything is in the other."""
        return (
            self.rows <= other.rows and self.groups <= other.groups and self.others <= other.others
        )

    def joined(self, other: Things) -> Things:
        return Things(
            self.rows | other.rows, self.groups | other.groups, self.others | other.others
        )


def differences(one: Labelling, other: Labelling) -> Things:
    """What two labellings of the same images do not have in common."""
    differs = (one.labels != other.labels) | (one.confirmed != other.confirmed)
    rows = set(np.flatnonzero(differs).tolist())
    # Several kinds, rejections, audits and notes are said of few images.
    for mine, others in (
        (one.several, other.several),
        (_not_empty(one.rejected), _not_empty(other.rejected)),
        (one.audits, other.audits),
        (one.notes, other.notes),
    ):
        rows |= _unequal(mine, others)
    examples = [{e.sha256: e.group for e in each.examples} for each in (one, other)]
    others_: set[Hashable] = set(_unequal(*examples)) | (one.different ^ other.different)
    others_ |= {"threshold"} if one.threshold != other.threshold else set()
    others_ |= {"cut"} if one.k != other.k else set()
    return Things(
        frozenset(rows), frozenset(_unequal(one.groups, other.groups)), frozenset(others_)
    )


def touched(edit: Edit, before: Labelling, after: Labelling) -> Things:
    """Everything that an edit changed or named."""
    changed = differences(before, after)
    given = edit.payload
    rows = {*given.get("images", ()), *([given["image"]] if "image" in given else [])}
    groups = {*given.get("at", ()), *_listed(given.get("groups"))}
    groups |= {given[key] for key in ("group", "into", "to") if type(given.get(key)) is int}
    moved = after.labels[sorted(changed.rows)].tolist()  # also to the group that "normal" means
    examples = {one["sha256"] for one in given.get("examples", ())}
    named = Things(frozenset(rows), frozenset(groups | set(moved)), frozenset(examples))
    return changed.joined(named)


def replayed(
    steps: Sequence[Edit | None],
    ids: Sequence[int],
    now: Labelling,
    instead: Labelling,
    apply: Apply,
) -> Labelling | int:
    """What becomes of the groups if those after an edit are others, or why they must not be.

    steps: the later edits in order, None for those that are undone, with the ids that these leave
    unused. now: the groups at that place as they are. instead: as they would be. Gives the groups
    after all steps, or the place among the steps of the first that rests on what would change.
    """
    changed = differences(now, instead)
    for place, (edit, unused) in enumerate(zip(steps, ids, strict=True)):
        if edit is None:
            now, instead = (replace(each, next_id=each.next_id + unused) for each in (now, instead))
            continue
        after = apply(edit, now)
        try:
            other = apply(edit, instead)
        except OptionError:
            return place
        same = other.next_id == after.next_id and differences(after, other).within(changed)
        kept = not differences(instead, other).meets(changed)
        if touched(edit, now, after).meets(changed) or not same or not kept:
            return place
        now, instead = after, other
    return instead


def _unequal(one: Mapping[Any, object], other: Mapping[Any, object]) -> set[Any]:
    """The keys of which two mappings say different things."""
    if one is other:
        return set()
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def _not_empty(rejected: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    return {row: groups for row, groups in rejected.items() if groups}


def _listed(groups: object) -> list[int]:
    """The groups that an edit lists; a carried run describes its groups instead."""
    return [one for one in groups if type(one) is int] if isinstance(groups, list) else []

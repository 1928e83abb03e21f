"""The log of edits: which of them are in force after all undos and redos.

An undo without a number takes the last edit in force back, and a redo without one brings the edit
back that was undone last, until the next edit. With a number, {"of": 7}, they are about one edit,
which keeps its place among the others. Whether that is safe is for `undoing` to say.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import Edit, Entry, number_of

UNDO, REDO, CARRY, TEACH = "undo", "redo", "carry", "teach"
MOST_IDS = 2**53


@dataclass
class Step:
    """An edit and its place in the log. ids: where it is undone, how many ids of groups stay unused
    in its place, since later edits know the groups that they made by the ids that follow."""

    entry: Entry
    in_force: bool = True
    ids: int = 0

    @property
    def edit(self) -> Edit:
        return self.entry.edit


@dataclass(frozen=True)
class Past:
    """An entry of the log as it was made. place: of the step that it added, undid or redid among
    the steps; None if there was none. what: which of these it did."""

    entry: Entry
    what: Literal["edit", "undo", "redo"]
    place: int | None


@dataclass
class History:
    """steps: all edits, in force or not, in order. past: all entries. undone: the places of the
    edits that a redo without a number brings back, the next one last. redoable: the same for each
    author, of edits that they undid and after which they made no other."""

    steps: list[Step] = field(default_factory=list)
    past: list[Past] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    redoable: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, log: Iterable[Edit | Entry]) -> History:
        """log: entries, or edits that are counted from 1."""
        found = cls()
        for number, one in enumerate(log, 1):
            found.add(one if isinstance(one, Entry) else Entry(number, "", "", one))
        return found

    @property
    def done(self) -> list[Edit]:
        """The edits in force."""
        return [step.edit for step in self.steps if step.in_force]

    @property
    def last(self) -> int | None:
        """The place of the last edit in force."""
        places = reversed(range(len(self.steps)))
        return next((place for place in places if self.steps[place].in_force), None)

    def place(self, seq: int) -> int | None:
        """The place of an edit by its number in the log."""
        found = (at for at, step in enumerate(self.steps) if step.entry.seq == seq)
        return next(found, None)

    def add(self, entry: Entry) -> int:
        """Add the next entry of the log. An undo or redo with nothing to act on has no effect.
        Gives the place from which on the groups may be others now."""
        kind = entry.edit.kind
        if kind not in (UNDO, REDO):
            place = len(self.steps)
            self.steps.append(Step(entry))
            self.undone.clear()
            self.redoable.pop(entry.author, None)
            self.past.append(Past(entry, "edit", place))
            return place
        number, ids = _checked(entry.edit)
        if kind == UNDO:
            found = self._undo(number, ids, entry.author)
            self.past.append(Past(entry, "undo", found))
        else:
            found = self._redo(number)
            self.past.append(Past(entry, "redo", found))
        return len(self.steps) if found is None else found

    def _undo(self, number: int | None, ids: int, author: str) -> int | None:
        last = self.last
        place = last if number is None else self.place(number)
        if place is None or not self.steps[place].in_force:
            return None
        self.steps[place].in_force = False
        self.steps[place].ids = ids if place != last else 0
        if place == last:
            self.undone.append(place)
        self.redoable.setdefault(author, []).append(place)
        return place

    def _redo(self, number: int | None) -> int | None:
        last = self.undone[-1] if self.undone else None
        place = last if number is None else self.place(number)
        if place is None or self.steps[place].in_force:
            return None
        self.steps[place].in_force = True
        for places in (self.undone, *self.redoable.values()):
            if place in places:
                places.remove(place)
        return place


def effective(log: Iterable[Edit | Entry]) -> list[Edit]:
    """The edits in force after all undos and redos of the log."""
    return History.of(log).done


def _checked(edit: Edit) -> tuple[int | None, int]:
    """The number of the edit that an undo or redo is about, or None, and the ids left unused."""
    given = dict(edit.payload)
    of, ids = given.pop("of", None), number_of(given.pop("ids", 0), "ids")
    if given or not 0 <= ids < MOST_IDS:
        raise OptionError(
            f"{edit.kind} takes of (optional), ids (optional). Got {reprlib.repr(edit.payload)}."
        )
    return None if of is None else number_of(of, "of"), ids

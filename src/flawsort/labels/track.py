"""The edits of a session, the states they went through, and who made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import Edit, Entry
from flawsort.labels.edits import Spent, apply, spend
from flawsort.labels.groups import Labelling, first_labelling
from flawsort.labels.log import CARRY, TEACH, UNDO, History, Past
from flawsort.labels.sentences import describe
from flawsort.labels.undoing import replayed
from flawsort.runs.run import Run

# A session keeps the last 64 states and every 64th older one: an undo replays at most 64 edits, and
# thousands of edits do not need memory for thousands of states.
KEPT_STATES = 64
# The images that the history shows of an edit.
SHOWN_ROWS = 8


@dataclass(frozen=True)
class OwnEdits:
    """What a person could undo and redo: the number of the edit and its sentence, or None."""

    undo: tuple[int, str] | None = None
    redo: tuple[int, str] | None = None


@dataclass(frozen=True)
class Told:
    """An entry of the log for people. words: what was done. what: an edit, an undo or a redo.
    in_force: whether the edit is in force; of an undo or redo, False. rows: up to SHOWN_ROWS of its
    images, of n_rows. group: the group that it names, or None."""

    entry: Entry
    what: Literal["edit", "undo", "redo"]
    words: str
    in_force: bool
    rows: tuple[int, ...]
    n_rows: int
    group: int | None


@dataclass(frozen=True)
class Now:
    """The groups after all edits; the rest as in a State of a session."""

    labelling: Labelling
    undo: str | None
    redo: str | None
    spent: int
    edited: bool
    own: Mapping[str, OwnEdits] = field(default_factory=dict)


class Track:
    """The steps of the log, and the states that are kept of those they went through.

    kept_states: how many of the last states to keep, and which of the older ones: every such one.
    """

    def __init__(self, run: Run, kept_states: int) -> None:
        self._linkage, self._dim = np.asarray(run.linkage), run.embeddings.shape[1]
        first = first_labelling(run)
        self._kept_states = kept_states
        self._first = first, Spent(frozenset(), np.zeros(len(first.labels), bool))
        self.clear()

    def clear(self) -> None:
        self._history = History()
        self._sentences: list[str] = []
        self._states: dict[int, tuple[Labelling, Spent]] = {0: self._first}

    def add(self, entries: Sequence[Entry]) -> None:
        """Add more of the log. Edits that it also undoes are never applied."""
        kept = len(self._history.steps)
        for entry in entries:
            kept = min(kept, self._history.add(entry))
        for place in [place for place in self._states if place > kept]:
            del self._states[place]
        self._catch_up()

    def now(self) -> Now:
        """The groups after all edits."""
        history = self._history
        labelling, spent = self._states[len(history.steps)]
        # Labels carried over from another run cannot be undone by one key press too many.
        begun = [step.edit.kind for step in history.steps if step.in_force] == [CARRY]
        undo = None if history.last is None or begun else self._sentences[history.last]
        redo = self._sentences[history.undone[-1]] if history.undone else None
        edited = history.last is not None
        return Now(labelling, undo, redo, spent.total, edited, self._own())

    def applied(self, edit: Edit, labelling: Labelling) -> Labelling:
        """The groups after one edit; OptionError if it is not valid."""
        found = apply(edit, labelling, self._linkage)
        new = found.examples if edit.kind in (CARRY, TEACH) else ()
        for example in new:
            if len(example.vector) != self._dim:
                raise OptionError(
                    f"vector must have the {self._dim} numbers of the run's embeddings. "
                    f"Got {len(example.vector)}."
                )
        return found

    def step(self, kind: str, of: int, author: str) -> tuple[Edit, Labelling]:
        """The undo or redo of one edit, and the groups after it. of: its number. OptionError if it
        is somebody else's, or a later edit rests on it. Edits without an author are everybody's."""
        steps, place = self._history.steps, self._history.place(of)
        if place is None or steps[place].in_force is (kind != UNDO):
            raise OptionError(
                f"of must be the number of an edit that can be {kind}ne. Got {of}. Look at the "
                "history again."
            )
        step, words = steps[place], self._sentences[place]
        if step.edit.kind == CARRY:
            raise OptionError("What was taken over from an earlier run cannot be undone.")
        if step.entry.author not in ("", author):
            raise OptionError(
                f"Only {step.entry.author} can {kind} '{words}'. Ask {step.entry.author}, or make "
                "another edit."
            )
        before = self._state_at(place)
        after = self.applied(step.edit, before)
        later = steps[place + 1 :]
        if kind == UNDO:
            used = after.next_id - before.next_id if any(one.in_force for one in later) else 0
            instead = replace(before, next_id=before.next_id + used)
            found = self._replayed(after, instead, place, kind)
            return Edit(kind, {"of": of, "ids": used}), found
        unused = replace(before, next_id=before.next_id + step.ids)
        found = self._replayed(unused, after, place, kind)
        return Edit(kind, {"of": of}), found

    def told(self, before: int | None, most: int) -> list[Told]:
        """The entries of the log for people, the last first. before: only those with a smaller
        number."""
        past = [one for one in self._history.past if before is None or one.entry.seq < before]
        return [self._told(one) for one in reversed(past[-most:] if most else [])]

    def _told(self, one: Past) -> Told:
        if one.place is None:
            words = f"{one.what.capitalize()}, with nothing to {one.what}"
            return Told(one.entry, one.what, words, False, (), 0, None)
        step, words = self._history.steps[one.place], self._sentences[one.place]
        given = step.edit.payload
        rows = given.get("images", [given["image"]] if "image" in given else [])
        group = next((given[key] for key in ("group", "into", "to") if key in given), None)
        return Told(
            one.entry,
            one.what,
            words,
            one.what == "edit" and step.in_force,
            tuple(sorted(set(rows))[:SHOWN_ROWS]),
            len(set(rows)),
            group if type(group) is int else None,
        )

    def _own(self) -> dict[str, OwnEdits]:
        history, steps = self._history, self._history.steps
        found: dict[str, OwnEdits] = {}
        for place, step in enumerate(steps):
            if step.in_force and step.edit.kind != CARRY:
                found[step.entry.author] = OwnEdits((step.entry.seq, self._sentences[place]))
        for author, places in history.redoable.items():
            if places:
                redo = steps[places[-1]].entry.seq, self._sentences[places[-1]]
                found[author] = OwnEdits(found.get(author, OwnEdits()).undo, redo)
        return found

    def _replayed(self, now: Labelling, instead: Labelling, place: int, kind: str) -> Labelling:
        """The groups after all edits with other ones after the edit at a place. OptionError if a
        later edit rests on what would change."""
        later = self._history.steps[place + 1 :]
        edits = [step.edit if step.in_force else None for step in later]
        found = replayed(edits, [step.ids for step in later], now, instead, self.applied)
        if isinstance(found, Labelling):
            return found
        rests = self._history.steps[place + 1 + found].entry
        by = f" by {rests.author}" if rests.author else ""
        words = self._sentences[place + 1 + found]
        raise OptionError(
            f"'{self._sentences[place]}' cannot be {kind}ne, because a later answer rests on it: "
            f"'{words}'{by}. Undo that one first, or make another edit."
        )

    def _state_at(self, place: int) -> Labelling:
        """The groups before the step at a place."""
        start = max(one for one in self._states if one <= place)
        labelling = self._states[start][0]
        for step in self._history.steps[start:place]:
            if step.in_force:
                labelling = self.applied(step.edit, labelling)
            elif step.ids:
                labelling = replace(labelling, next_id=labelling.next_id + step.ids)
        return labelling

    def _catch_up(self) -> None:
        """Apply the edits in force on top of the last kept state."""
        steps, start = self._history.steps, max(self._states)
        known = self._sentences[start:]
        del self._sentences[start:]
        for place in range(start, len(steps)):
            step = steps[place]
            labelling, spent = self._states[place]
            if step.in_force:
                after = self.applied(step.edit, labelling)
                self._sentences.append(describe(step.edit, labelling))
                self._states[place + 1] = after, spend(step.edit, labelling, spent)
            else:
                old = known[place - start] if place - start < len(known) else None
                self._sentences.append(old or _in_words(step.edit, labelling))
                if step.ids:
                    labelling = replace(labelling, next_id=labelling.next_id + step.ids)
                self._states[place + 1] = labelling, spent
            gone = place + 1 - self._kept_states
            if gone % self._kept_states:
                self._states.pop(gone, None)


def _in_words(edit: Edit, labelling: Labelling) -> str:
    """An edit that was undone, where its groups may be gone."""
    try:
        return describe(edit, labelling)
    except OptionError:
        return f"An edit of the kind {edit.kind}"

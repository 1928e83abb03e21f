"""The JSON bodies about people: the history of edits, what each could undo, and their questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from flawsort.labels.track import OwnEdits, Told

# Longer names are refused, as names of groups are.
LONGEST_AUTHOR = 200
# Who asks for a question: a text that a page makes up once. "" asks without taking it.
Asker = Annotated[str, Field(max_length=64, pattern="^[A-Za-z0-9-]*$")]
MOST_ENTRIES = 500


class LeaveBody(BaseModel):
    """Who looks at no question any more."""

    model_config = ConfigDict(strict=True, extra="forbid")

    asker: Asker


class StepBody(BaseModel):
    """An edit that a person could undo or redo: its number in the log and its sentence."""

    seq: int
    words: str


class OwnBody(BaseModel):
    """What a person could undo and redo of their own edits, or null."""

    undo: StepBody | None
    redo: StepBody | None


class EntryBody(BaseModel):
    """An entry of the log. at: the time in UTC. author: "" if nobody gave a name. what: edit, undo
    or redo. words: what was done. in_force: whether an edit is in force. rows: the first of its
    images, of n_rows. group: the group that it names, or null."""

    seq: int
    at: str
    author: str
    what: str
    words: str
    in_force: bool
    rows: list[int]
    n_rows: int
    group: int | None


class HistoryBody(BaseModel):
    """The entries, the last first. version: of the log. more: whether there are earlier ones."""

    version: int
    entries: list[EntryBody]
    more: bool


def describe_history(version: int, told: Sequence[Told], n: int) -> HistoryBody:
    """told: up to n + 1 entries; the last of more than n only tells that there are more."""
    entries = [
        EntryBody(
            seq=one.entry.seq,
            at=one.entry.at,
            author=one.entry.author,
            what=one.what,
            words=one.words,
            in_force=one.in_force,
            rows=list(one.rows),
            n_rows=one.n_rows,
            group=one.group,
        )
        for one in told[:n]
    ]
    return HistoryBody(version=version, entries=entries, more=len(told) > n)


def describe_own(own: Mapping[str, OwnEdits]) -> dict[str, OwnBody]:
    """What each person could undo and redo, by name."""
    return {
        author: OwnBody(undo=_step(edits.undo), redo=_step(edits.redo))
        for author, edits in own.items()
    }


def _step(given: tuple[int, str] | None) -> StepBody | None:
    return None if given is None else StepBody(seq=given[0], words=given[1])

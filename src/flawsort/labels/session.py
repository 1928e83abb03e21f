"""A run with its edits: the current groups, and what the model taught by them suggests."""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.core.errors import FlawsortError, OptionError, Replaced, first_line
from flawsort.core.text import printable
from flawsort.labels import tables
from flawsort.labels.edit_checks import Edit, Payload
from flawsort.labels.edit_file import as_json, damaged
from flawsort.labels.edits import replay
from flawsort.labels.groups import Labelling, first_labelling
from flawsort.labels.log import REDO, UNDO
from flawsort.labels.names import check_names
from flawsort.labels.standing import ShownVersions, stands
from flawsort.labels.state import State
from flawsort.labels.store import Closing, Conflict, EditStore
from flawsort.labels.suggestions import Suggestions, TeachingSpace
from flawsort.labels.track import KEPT_STATES, Told, Track
from flawsort.runs.folder import EDITS, open_run
from flawsort.runs.run import Run
from flawsort.runs.tables import known_numbers

LOG = logging.getLogger(__name__)
BEHIND = (
    "images.csv and images.parquet of '%s' do not have the last edits yet (%s). They are written "
    "when the run is opened the next time."
)
# The edits of images that note what was suggested for them.
NOTED = ("accept", "several", "reject", "split", "move")


class Session(Closing):
    """A run with its edits and current groups. Safe for several threads.

    folder: of the run. run: the result of open_run, if the run is already open. kept_states: how
    many of the last states to keep, and which of the older ones: every such one.
    """

    def __init__(
        self, folder: str | Path, run: Run | None = None, *, kept_states: int = KEPT_STATES
    ) -> None:
        self.folder = Path(folder)
        self.run = open_run(self.folder) if run is None else run
        self._store = EditStore(self.folder / EDITS)
        self._lock = threading.RLock()
        self._track = Track(self.run, kept_states)
        self._seen = ShownVersions()
        self._now = self._state(0)
        self._told = False
        try:
            self.refresh()
        except BaseException:
            self.let_go()
            raise

    @cached_property
    def space(self) -> TeachingSpace:
        """The run's images as the model sees them."""
        return TeachingSpace.of(self.run)

    @property
    def state(self) -> State:
        """The state at one version, as of the last refresh or edit."""
        return self._now

    @property
    def version(self) -> int:
        return self._now.version

    @property
    def labelling(self) -> Labelling:
        return self._now.labelling

    @property
    def can_undo(self) -> str | None:
        """The edit that would be undone, as a sentence; None if there is none."""
        return self._now.undo

    @property
    def can_redo(self) -> str | None:
        """The edit that would be redone, as a sentence; None if there is none."""
        return self._now.redo

    @property
    def labels_spent(self) -> int:
        """The number of labels given: one for each group that was named, given a role or accepted,
        and one for each image that was moved, accepted singly or given several kinds. Counts edits
        in force only."""
        return self._now.spent

    @property
    def writable(self) -> bool:
        """Whether edits can be saved."""
        return self._store.writable

    def refresh(self) -> State:
        """Apply the edits that others have added since."""
        with self._lock:
            entries = self._store.log(self._now.version)
            if entries:
                try:
                    self._track.add(entries)
                except OptionError as error:
                    self._track.clear()  # the next refresh starts from the beginning
                    self._now = self._state(0)
                    raise damaged(self.folder / EDITS, f"an edit does not fit: {error}") from error
                self._leave()
                self._now = self._state(entries[-1].seq)
            return self._now

    def _leave(self) -> None:
        """Keep what people saw of the current state, if anybody did, before it is an older one."""
        if "suggestions" in self._now.__dict__:
            self._seen.keep(self._now.version, self._now.shown)

    def edit(
        self,
        kind: str,
        payload: Payload,
        version: int,
        author: str = "",
        *,
        seen: Suggestions | None = None,
        suggested: Sequence[int | None] | None = None,
    ) -> Labelling:
        """Make an edit on top of a version; it is saved when this returns. If that is not the
        current version, the edit is added where all that it names looks as it did then, and raises
        Conflict otherwise. Raises OptionError if the edit is not valid. seen: for a move that
        is one of several, what was suggested before all of them. suggested: for images outside the
        run, the group that was suggested for each example, UNSEEN for a new kind, None for
        nothing."""
        with self._lock:
            # A copy as it will be read back, which the caller cannot change.
            edit = Edit(kind, json.loads(as_json(payload)))
            self._check(version, edit)
            edit = with_suggestions(edit, self.state, seen)
            if suggested is not None:
                edit = Edit(kind, _with_note(edit.payload, suggested))
            check_names(self.labelling, self._track.applied(edit, self.labelling))
            return self._append(edit, author)

    def undo(self, version: int, author: str = "", *, of: int | None = None) -> Labelling:
        """Undo the last edit in force. of: the number of another edit, which must be by the same
        author; OptionError if a later edit rests on it."""
        return self._step(UNDO, version, author, of)

    def redo(self, version: int, author: str = "", *, of: int | None = None) -> Labelling:
        """Redo the edit that was undone last. of: the number of another edit that was undone, as
        for `undo`."""
        return self._step(REDO, version, author, of)

    def history(self, before: int | None = None, most: int = 100) -> list[Told]:
        """Who did what and when, the last first. before: only entries with a smaller number. most:
        of entries."""
        with self._lock:
            self.refresh()
            return self._track.told(before, most)

    def update_table(self) -> None:
        """Write images.csv and images.parquet as the groups are now, unless they are as they should
        be. A log says why that failed, once: the next session tries it again."""
        try:
            state = self.refresh()
        except (FlawsortError, OSError):
            return  # whoever asks for the groups is told
        try:
            tables.update_table(self.run, self.folder, state, self._store.held)
        except (Conflict, Replaced):
            pass  # somebody else has written it just now, or the run
        except Exception as error:  # whatever a forged run makes of the code that reads it
            if getattr(error, "errno", None) != errno.EROFS and not self._told:
                self._told = True
                why = f"{type(error).__name__}, {first_line(error)}"
                LOG.warning(BEHIND, printable(self.folder), printable(why))

    def close(self) -> None:
        """Bring the tables up to date, and close the file of edits."""
        self.update_table()
        self.let_go()

    def let_go(self) -> None:
        """Close the file of edits."""
        self._store.close()

    def _step(self, kind: str, version: int, author: str, of: int | None) -> Labelling:
        with self._lock:
            self._check(version)
            if of is not None:
                edit, after = self._track.step(kind, of, author.strip())
                if kind == REDO:
                    check_names(self.labelling, after)
                return self._append(edit, author)
            if (self.can_undo if kind == UNDO else self.can_redo) is None:
                raise OptionError(f"There is nothing to {kind}.")
            return self._append(Edit(kind), author)

    def _state(self, version: int) -> State:
        now = self._track.now()
        return State(
            version,
            now.labelling,
            now.undo,
            now.redo,
            now.spent,
            now.edited,
            lambda: self.space,
            now.own,
        )

    def _check(self, version: int, edit: Edit | None = None) -> None:
        """Raise Conflict unless a version is the current one, or what an edit names looks now as it
        did then."""
        self.refresh()
        if version == self.version:
            return
        before = self._seen.at(version) if type(version) is int else None
        if edit is None or before is None or not stands(edit, before, self.state.shown):
            raise Conflict(version, self.version)

    def _append(self, edit: Edit, author: str) -> Labelling:
        self._store.append(edit, self.version, author)
        return self.refresh().labelling


def read_labelling(folder: Path, run: Run | None = None) -> Labelling:
    """The groups of a run as people left them, or as clustered if nobody has edited them. run: the
    result of open_run, if the run is already open."""
    run = open_run(folder) if run is None else run
    path = Path(folder) / EDITS
    with EditStore(path) as store:
        log = store.log()
    try:
        return replay(log, first_labelling(run), np.asarray(run.linkage))
    except OptionError as error:
        raise damaged(path, f"an edit does not fit: {error}") from error


def read_settled(folder: Path, run: Run | None = None) -> State:
    """The groups of a run with what people taught, for tables, reports and exports."""
    with Session(folder, run) as session:
        return session.state


def with_suggestions(edit: Edit, state: State, seen: Suggestions | None = None) -> Edit:
    """The edit with a note of what was suggested for its images, so that a replay of the log needs
    no model: `at` is where each was shown, `suggested` what the model thought of it. Accepting a
    group means its images as they are shown: decided or suggested. An edit that is not valid stays
    as it is, and is refused when it is applied. seen: as in Session.edit."""
    if not isinstance(edit.payload, Mapping):
        return edit
    given = {key: value for key, value in edit.payload.items() if key not in ("at", "suggested")}
    whole = edit.kind == "accept" and type(given.get("group")) is int
    images = given.get("images")
    if edit.kind not in NOTED or (whole and "images" in given):
        return Edit(edit.kind, given)
    if whole:
        images = np.flatnonzero(state.suggestions.groups == given["group"]).tolist()
        if given["group"] in state.labelling.groups and not images:
            raise OptionError(
                f"group must have images to accept. Got {given['group']}, which is empty."
            )
    if not isinstance(images, list) or not images:
        return Edit(edit.kind, given)
    if all(type(row) is int and 0 <= row < len(state.labelling.labels) for row in images):
        rows, found = sorted(set(images)), state.suggestions if seen is None else seen
        # Where nothing was taught about a group, nothing was suggested: it is as clustered.
        known = known_numbers(found.probability[rows])
        groups: list[int] = found.groups[rows].tolist()
        suggested = [
            None if sure is None else group for group, sure in zip(groups, known, strict=True)
        ]
        given["images"] = rows
        if edit.kind != "move":
            given["at"] = groups
        given = _with_note(given, suggested)
    return Edit(edit.kind, given)


def _with_note(given: Payload, suggested: Sequence[int | None]) -> dict[str, Any]:
    """The payload with a note of what was suggested, if anything was."""
    noted = any(group is not None for group in suggested)
    return {**given, **({"suggested": list(suggested)} if noted else {})}

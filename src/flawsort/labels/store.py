"""The log of a run's edits in SQLite, and a session that keeps the groups up to date.

Edits are only ever added. An edit is on the disk before it takes effect, and it is accepted only on
top of the version that its author saw, so two tabs, people or processes cannot overwrite each other
unnoticed. A run that nobody has edited has no file.
"""

from __future__ import annotations

import contextlib
import json
import os
import reprlib
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import numpy as np

from flawsort.core.errors import OptionError, RunError
from flawsort.core.records import Floats
from flawsort.labels.edit_checks import Edit, Payload, checked_text
from flawsort.labels.edit_file import (
    BUSY_SECONDS,
    as_json,
    damaged,
    explained,
    inode_of,
    is_empty,
    last_number,
    prepare,
    read_only,
    transaction,
)
from flawsort.labels.edits import CARRY, REDO, UNDO, History, Spent, apply, replay, spend
from flawsort.labels.groups import Labelling, first_labelling
from flawsort.labels.sentences import describe
from flawsort.runs.folder import EDITS, open_run
from flawsort.runs.run import Run

# A session keeps the last 64 states and every 64th older one: an undo replays at most 64 edits, and
# thousands of edits do not need memory for thousands of states.
KEPT_STATES = 64


class Conflict(OptionError):  # noqa: N818
    """Somebody else changed the groups first. version: the current one."""

    def __init__(self, seen: int, version: int) -> None:
        super().__init__(
            "The groups have changed meanwhile: this edit is based on version "
            f"{reprlib.repr(seen)}, and the current version is {version}. Check the groups, and "
            "make the edit again if it is still right."
        )
        self.version = version


@dataclass(frozen=True)
class Entry:
    """One entry of the log. seq: counts from 1. at: the time in UTC. author: a name, or ""."""

    seq: int
    at: str
    author: str
    edit: Edit


class _Closed(ABC):
    """Closes its file at the end of a with statement."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class EditStore(_Closed):
    """The log of a run's edits. path: the file, which is created with the first edit.
    busy_seconds: how long to wait while another process holds the file.

    Several threads may share a store, and several processes the file. A store whose file or folder
    cannot be written is read-only: see `writable`.
    """

    def __init__(self, path: str | Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self._path = Path(path).absolute()
        self._busy_seconds = busy_seconds
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._folder = inode_of(self._path.parent)
        with self._reading():  # raises at once if the file is damaged
            pass

    @property
    def writable(self) -> bool:
        """Whether edits can be added."""
        path = self._path
        return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))

    def version(self) -> int:
        """The number of the last entry; 0 if there is none."""
        with self._reading() as connection:
            return 0 if connection is None else last_number(connection)

    def log(self, since: int = 0) -> list[Entry]:
        """The entries after a version, in order."""
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                "SELECT seq, at, author, kind, payload FROM edits WHERE seq > ? ORDER BY seq",
                (since,),
            )
            return [self._entry(*row) for row in rows]

    def append(self, edit: Edit, version: int, author: str = "") -> int:
        """Add an entry on top of a version, and return its number. When this returns, the entry is
        on the disk. Raises Conflict if somebody has added an entry since that version."""
        values = (checked_text(author, "author"), edit.kind, as_json(edit.payload))
        if type(version) is not int:
            raise OptionError(f"version must be a whole number. Got {version!r}.")
        with self._lock, explained(self._path, busy_seconds=self._busy_seconds):
            self._check_place()
            if not self.writable:
                raise RunError(
                    f"The edits in '{self._path}' cannot be written: the file or its folder is "
                    "read-only. Copy the run to a writable folder, and open it there."
                )
            connection = self._connected()
            with transaction(connection):
                current = last_number(connection)
                if current != version:
                    raise Conflict(version, current)
                at = datetime.now(UTC).isoformat(timespec="milliseconds")
                added = connection.execute(
                    "INSERT INTO edits (at, author, kind, payload) VALUES (?, ?, ?, ?)",
                    (at, *values),
                )
                seq = added.lastrowid
            assert seq is not None
            return seq

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._file = None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection to read from; None if there is no file yet."""
        with self._lock, explained(self._path, busy_seconds=self._busy_seconds):
            self._check_place()
            if self._connection is None and not self._path.exists():
                yield None
            elif self._connection is not None or self.writable:
                yield self._connected()
            else:
                with read_only(self._path, busy_seconds=self._busy_seconds) as connection:
                    yield None if is_empty(connection) else connection

    def _connected(self) -> sqlite3.Connection:
        """The open connection; creates the file if there is none."""
        if self._connection is None:
            connection = sqlite3.connect(
                self._path,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                prepare(connection, self._path, busy_seconds=self._busy_seconds)
            except BaseException:
                connection.close()
                raise
            self._connection, self._file = connection, inode_of(self._path)
        return self._connection

    def _check_place(self) -> None:
        """RunError if the run was replaced or its file removed: edits would be wrong or lost."""
        moved = self._connection is not None and inode_of(self._path) != self._file
        if moved or inode_of(self._path.parent) != self._folder:
            raise RunError(
                f"The run in '{self._path.parent}' or its {self._path.name} was removed or "
                "replaced since it was opened. Open it again."
            )

    def _entry(self, seq: int, at: str, author: str, kind: str, payload: str) -> Entry:
        try:
            return Entry(seq, at, author, Edit(kind, json.loads(payload)))
        except (ValueError, TypeError) as error:
            raise damaged(self._path, f"edit {seq}: {error}") from error


@dataclass(frozen=True)
class State:
    """The groups at a version. undo, redo: the edit that would be undone or redone, as a sentence,
    or None. spent: the number of labels given. edited: whether any edit is in force."""

    version: int
    labelling: Labelling
    undo: str | None
    redo: str | None
    spent: int
    edited: bool


class Session(_Closed):
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
        self._track = _Track(first_labelling(self.run), np.asarray(self.run.linkage), kept_states)
        self._now = self._track.state(0)
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

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
                    self._track.add([entry.edit for entry in entries])
                except OptionError as error:
                    self._track.clear()  # the next refresh starts from the beginning
                    self._now = self._track.state(0)
                    raise damaged(self.folder / EDITS, f"an edit does not fit: {error}") from error
                self._now = self._track.state(entries[-1].seq)
            return self._now

    def edit(self, kind: str, payload: Payload, version: int, author: str = "") -> Labelling:
        """Make an edit on top of a version; it is saved when this returns. Raises Conflict if that
        is not the current version, and OptionError if the edit is not valid."""
        with self._lock:
            self._check(version)
            # A copy as it will be read back, which the caller cannot change.
            edit = Edit(kind, json.loads(as_json(payload)))
            apply(edit, self.labelling, self._track.linkage)
            return self._append(edit, author)

    def undo(self, version: int, author: str = "") -> Labelling:
        """Undo the last edit in force."""
        return self._step(UNDO, version, author)

    def redo(self, version: int, author: str = "") -> Labelling:
        """Redo the edit that was undone last."""
        return self._step(REDO, version, author)

    def close(self) -> None:
        """Close the file of edits."""
        self._store.close()

    def _step(self, kind: str, version: int, author: str) -> Labelling:
        with self._lock:
            self._check(version)
            if (self.can_undo if kind == UNDO else self.can_redo) is None:
                raise OptionError(f"There is nothing to {kind}.")
            return self._append(Edit(kind), author)

    def _check(self, version: int) -> None:
        self.refresh()
        if version != self.version:
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
        log = [entry.edit for entry in store.log()]
    try:
        return replay(log, first_labelling(run), np.asarray(run.linkage))
    except OptionError as error:
        raise damaged(path, f"an edit does not fit: {error}") from error


class _Track:
    """The edits in force, and the states that are kept of those they went through.

    kept_states: of a Session.
    """

    def __init__(self, first: Labelling, linkage: Floats, kept_states: int) -> None:
        self.linkage = linkage
        self._kept_states = kept_states
        self._first = first, Spent(frozenset(), np.zeros(len(first.labels), bool))
        self.clear()

    def clear(self) -> None:
        self._history = History()
        self._sentences: list[str] = []
        self._states: dict[int, tuple[Labelling, Spent]] = {0: self._first}

    def add(self, entries: list[Edit]) -> None:
        """Add more of the log. Edits that it also undoes are never applied."""
        kept = len(self._history.done)
        for entry in entries:
            self._history.add(entry)
            kept = min(kept, len(self._history.done))
        for place in [place for place in self._states if place > kept]:
            del self._states[place]
        self._catch_up()

    def state(self, version: int) -> State:
        history = self._history
        labelling, spent = self._states[len(history.done)]
        # Labels carried over from another run cannot be undone by one key press too many.
        begun = len(history.done) == 1 and history.done[0].kind == CARRY
        undo = self._sentences[-1] if history.done and not begun else None
        redo = describe(history.undone[-1], labelling) if history.undone else None
        return State(version, labelling, undo, redo, spent.total, bool(history.done))

    def _catch_up(self) -> None:
        """Apply the edits in force on top of the last kept state."""
        done, start = self._history.done, max(self._states)
        del self._sentences[start:]
        for place in range(start, len(done)):
            labelling, spent = self._states[place]
            edit = done[place]
            after = apply(edit, labelling, self.linkage)
            self._sentences.append(describe(edit, labelling))
            self._states[place + 1] = after, spend(edit, labelling, spent)
            old = place + 1 - self._kept_states
            if old % self._kept_states:
                self._states.pop(old, None)

"""The log of a run's edits in SQLite.

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
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from flawsort.core.errors import OptionError, Replaced, RunError
from flawsort.labels.edit_checks import Edit, Entry, checked_text
from flawsort.labels.edit_file import (
    BUSY_SECONDS,
    as_json,
    check_regular,
    damaged,
    explained,
    inode_of,
    is_empty,
    last_number,
    prepare,
    read_only,
    transaction,
)


class Conflict(OptionError):  # noqa: N818
    """Somebody else changed the groups first. version: the current one."""

    def __init__(self, seen: int, version: int) -> None:
        super().__init__(
            "The groups have changed meanwhile: this edit is based on version "
            f"{reprlib.repr(seen)}, and the current version is {version}. Check the groups, and "
            "make the edit again if it is still right."
        )
        self.version = version


class Closing(ABC):
    """Closes its file at the end of a with statement."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()


class EditStore(Closing):
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

    def append(self, edit: Edit, version: int, author: str = "", *, follows: int = 0) -> int:
        """Add an entry on top of a version, and return its number. When this returns, the entry is
        on the disk. Raises Conflict if somebody has added an entry since that version, and Replaced
        if the run is another one now. follows: the version of the run that this one replaces, so
        that no version means two things; for the first entry."""
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
                self._check_place()  # again, as the run may have been replaced during the wait
                current = last_number(connection)
                if current != version:
                    raise Conflict(version, current)
                at = datetime.now(UTC).isoformat(timespec="milliseconds")
                seq = (current or follows) + 1
                connection.execute(
                    "INSERT INTO edits (seq, at, author, kind, payload) VALUES (?, ?, ?, ?, ?)",
                    (seq, at, *values),
                )
            return seq

    @contextlib.contextmanager
    def held(self) -> Iterator[int]:
        """Nobody can add an entry within the with statement. Gives the current version.

        Replaces a run: whoever adds an entry waits, and then finds that the run is another one. A
        run without edits gets an empty file to wait at. Other threads with the same store wait too:
        they share its connection, and so would be within its transaction.
        """
        with self._lock:
            # Where files cannot be moved while they are open, no review can be open either.
            if sys.platform == "win32" or not self.writable:
                version = self.version()
                self.close()
                yield version
                return
            with explained(self._path, busy_seconds=self._busy_seconds):
                self._check_place()
                connection = self._connected()
                connection.execute("BEGIN IMMEDIATE")
            try:
                yield last_number(connection)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file. SQLite leaves the files beside it if another database is there now."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._file = None

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection to read from; None if there is no file yet."""
        with self._lock, explained(self._path, busy_seconds=self._busy_seconds):
            self._check_place()
            if self._connection is None:
                check_regular(self._path)
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
            raise Replaced(
                f"The run in '{self._path.parent}' or its {self._path.name} was removed or "
                "replaced since it was opened. Open it again."
            )

    def _entry(self, seq: int, at: str, author: str, kind: str, payload: str) -> Entry:
        try:
            return Entry(seq, at, author, Edit(kind, json.loads(payload)))
        except (ValueError, TypeError, RecursionError) as error:
            raise damaged(self._path, f"edit {seq}: {error}") from error

"""The SQLite file of a run's edits: create, check, read and write it."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flawsort.core.errors import OptionError, RunError
from flawsort.runs.folder import EDITS

FORMAT_VERSION = 1
# Identifies a file of edits among SQLite databases: "flsr".
APPLICATION_ID = 0x666C7372
# Another process holds the file for milliseconds at a time.
BUSY_SECONDS = 20.0
_SCHEMA = f"""
CREATE TABLE edits (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, author TEXT NOT NULL,
    kind TEXT NOT NULL, payload TEXT NOT NULL
);
CREATE TRIGGER edits_stay BEFORE UPDATE ON edits
BEGIN SELECT RAISE(ABORT, 'edits are only ever added'); END;
CREATE TRIGGER edits_remain BEFORE DELETE ON edits
BEGIN SELECT RAISE(ABORT, 'edits are only ever added'); END;
CREATE TRIGGER edits_are_not_replaced BEFORE INSERT ON edits
WHEN EXISTS (SELECT 1 FROM edits WHERE seq = NEW.seq)
BEGIN SELECT RAISE(ABORT, 'edits are only ever added'); END;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {FORMAT_VERSION};
"""
# What SQLite notes of the schema, which has been the same since the first version. By itself it
# adds a table for AUTOINCREMENT.
_OBJECTS = "SELECT sql FROM sqlite_master WHERE name <> 'sqlite_sequence'"


def prepare(
    connection: sqlite3.Connection, path: Path, *, busy_seconds: float = BUSY_SECONDS
) -> None:
    """Create the schema in an empty file; check an existing one. busy_seconds: how long to wait
    for another process."""
    connection.execute("PRAGMA synchronous = FULL")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        if not is_empty(connection):
            _check(connection, path)  # before changing a file of another program
        _to_wal(connection, busy_seconds)
    if is_empty(connection):  # else do not wait for somebody who writes
        with transaction(connection):
            if is_empty(connection):
                for statement in _statements(_SCHEMA):
                    connection.execute(statement)
    _check(connection, path)


def _to_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    # SQLite does not wait for another process that switches to WAL at the same time.
    end = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _statements(script: str) -> Iterator[str]:
    """The statements one by one: executescript would commit the transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


_OBJECTS_MADE = [one.strip().removesuffix(";") for one in _statements(_SCHEMA) if "CREATE" in one]


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """RunError for a file that is damaged, newer, or of another program."""
    if is_empty(connection):  # its creator was killed before it was complete: no edit in it
        return
    number = connection.execute("PRAGMA application_id").fetchone()[0]
    if number != APPLICATION_ID:
        raise RunError(
            f"'{path}' is a database of another program. Move it away to start again from the "
            "clustered groups."
        )
    # A view, a trigger or a computed column of somebody else could make reading or writing endless.
    objects = [one for (one,) in connection.execute(_OBJECTS)]
    if sorted(map(str, objects)) != sorted(_OBJECTS_MADE):
        raise damaged(path, "it holds other tables than one of edits")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != FORMAT_VERSION:
        raise RunError(
            f"The edits in '{path}' have format version {version}; this flawsort reads version "
            f"{FORMAT_VERSION}. Install a newer flawsort to open them."
        )
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise damaged(path, " ".join(found.split()))


@contextlib.contextmanager
def read_only(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing, not even beside the file. busy_seconds: how long to wait
    for another process.

    If no process has the file open, SQLite must create a file beside it to read the write-ahead
    log. A copy is read instead: without such a process, nothing changes meanwhile.
    """
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(contextlib.closing(_opened(path, busy_seconds)))
            _check(connection, path)
        except sqlite3.OperationalError:
            copied = Path(stack.enter_context(tempfile.TemporaryDirectory())) / EDITS
            for suffix in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{path}{suffix}", f"{copied}{suffix}")
            connection = stack.enter_context(contextlib.closing(_opened(copied, busy_seconds)))
            _check(connection, path)
        yield connection


def _opened(path: Path, busy_seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
    )


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that excludes other writers: all of it is committed, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def explained(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Iterator[None]:
    """Turn errors of SQLite and the system into a RunError that says what to do. busy_seconds: how
    long was waited for another process."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise RunError(
                f"The edits in '{path}' have been locked by another process for more than "
                f"{busy_seconds:.0f} seconds. Try again; nothing was changed."
            ) from error
        raise RunError(
            f"The edits in '{path}' cannot be read or written: {error}. Check the free disk "
            "space and the permissions of the folder. Edits saved before are kept."
        ) from error
    except sqlite3.DatabaseError as error:
        raise damaged(path, str(error)) from error
    except OSError as error:
        raise RunError(
            f"The edits in '{path}' cannot be read: {error.strerror or error}. Check the "
            "permissions of the file and its folder."
        ) from error


def damaged(path: Path, why: str) -> RunError:
    return RunError(
        f"The edits in '{path}' are damaged ({why}). Restore the file from a backup, or move it "
        f"away, with {EDITS}-wal and {EDITS}-shm, to start again from the clustered groups."
    )


def is_empty(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def last_number(connection: sqlite3.Connection) -> int:
    """The number of the last entry; 0 if there is none."""
    last = connection.execute("SELECT max(seq) FROM edits").fetchone()[0]
    return 0 if last is None else int(last)


def check_regular(path: Path) -> None:
    """OSError for a pipe or a device, which would be waited for without end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def inode_of(path: Path) -> tuple[int, int] | None:
    """Identifies a file, so that a replacement is noticed; None if there is no file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def as_json(payload: Any) -> str:
    """A payload as the text that is stored."""
    try:
        return json.dumps(payload, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"The payload of an edit must be valid JSON: {error}.") from error

"""The journal of a watched folder, in SQLite: what is done, and what is still to be done.

A round is first written into the journal as a whole: its files, what is to be added to which file
and which batch, and which events are to be passed on. Then it is carried out. Each of these steps
may be repeated without doing anything twice, so a process that is killed at any point goes on where
it was.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from flawsort.core.errors import OptionError, RunError, first_line
from flawsort.daily.incoming import Arrived, stamp_of
from flawsort.labels.edit_file import check_regular, transaction
from flawsort.labels.store import Closing
from flawsort.runs.folder import JOURNAL

# Identifies a journal among SQLite databases: "flsw".
APPLICATION_ID = 0x666C7377
FORMAT_VERSION = 1
_SCHEMA = (
    "CREATE TABLE files (path BLOB PRIMARY KEY, size INTEGER NOT NULL, changed INTEGER NOT NULL, "
    "sha256 TEXT NOT NULL, reason TEXT NOT NULL, at TEXT NOT NULL)",
    "CREATE TABLE appends (path BLOB NOT NULL, begin INTEGER NOT NULL, content BLOB NOT NULL)",
    "CREATE TABLE keeps (name TEXT NOT NULL, part INTEGER NOT NULL, file TEXT NOT NULL, "
    "content BLOB NOT NULL)",
    "CREATE TABLE due (id INTEGER PRIMARY KEY AUTOINCREMENT, action TEXT NOT NULL, "
    "event TEXT NOT NULL, attempts INTEGER NOT NULL, again REAL NOT NULL)",
    "CREATE TABLE kept (period TEXT PRIMARY KEY, name TEXT NOT NULL, n INTEGER NOT NULL)",
    "CREATE TABLE counts (period TEXT, grp INTEGER, n INTEGER NOT NULL, PRIMARY KEY (period, grp))",
    "CREATE TABLE risen (period TEXT, grp INTEGER, PRIMARY KEY (period, grp))",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
)
_OBJECTS = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Addition:
    """Images for a batch that the run keeps. period: that it is for. name: of the batch. part: of
    it. n: images. files: of `files_of`."""

    period: str
    name: str
    part: int
    n: int
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class Due:
    """An event that is to be passed on. action: "exec" or "post". attempts: how often that was
    tried."""

    id: int
    action: str
    event: Mapping[str, Any]
    attempts: int


@dataclass
class Round:
    """What is to be noted together. files: with their SHA-256, or with the reason why they were set
    aside. appends: bytes for files that grow. additions: to batches. counts: images by period and
    group. events: to be passed on, by action."""

    number: int
    files: list[tuple[Arrived, str, str]] = field(default_factory=list)
    appends: list[tuple[Path, bytes]] = field(default_factory=list)
    additions: list[Addition] = field(default_factory=list)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    risen: list[tuple[str, int]] = field(default_factory=list)
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)


class Journal(Closing):
    """The journal in a run's folder. One process at a time may have it open."""

    def __init__(self, run: Path) -> None:
        self.path = run / JOURNAL
        with self._explained():
            check_regular(self.path)
            self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=0.2)
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        self._connection.close()

    def knows(self, stamp: bytes) -> bool:
        """Whether a file was sorted or set aside as it is now."""
        return stamp in self._stamps

    @property
    def next_number(self) -> int:
        """The number of the next round."""
        return self.fact("round") + 1

    def commit(self, done: Round) -> None:
        """Write a round, as a whole."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._writing() as execute:
            for one, sha256, reason in done.files:
                row = (os.fsencode(one.path), one.size, one.changed, sha256, reason, now)
                execute("REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", row)
            for path, content in done.appends:
                begin = path.stat().st_size if path.exists() else 0
                execute("INSERT INTO appends VALUES (?, ?, ?)", (os.fsencode(path), begin, content))
            for add in done.additions:
                files = [(add.name, add.part, *one) for one in add.files.items()]
                self._connection.executemany("INSERT INTO keeps VALUES (?, ?, ?, ?)", files)
                execute(
                    "INSERT INTO kept VALUES (?, ?, ?) ON CONFLICT (period) "
                    "DO UPDATE SET name = excluded.name, n = n + excluded.n",
                    (add.period, add.name, add.n),
                )
            self._note(done)
            execute("REPLACE INTO facts VALUES ('round', ?)", (done.number,))
        self._stamps.update(one.stamp for one, _, _ in done.files)

    def _note(self, done: Round) -> None:
        execute = self._connection.execute
        for (period, group), n in done.counts.items():
            execute(
                "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT (period, grp) "
                "DO UPDATE SET n = n + excluded.n",
                (period, group, n),
            )
        for period, group in done.risen:
            execute("INSERT OR IGNORE INTO risen VALUES (?, ?)", (period, group))
        for action, event in done.events:
            text = json.dumps(event, ensure_ascii=False)
            execute(
                "INSERT INTO due (action, event, attempts, again) VALUES (?, ?, 0, 0)",
                (action, text),
            )

    def to_append(self) -> list[tuple[Path, int, bytes]]:
        """What the last round adds to files: path, place, and bytes."""
        return self._rows(_append, "SELECT path, begin, content FROM appends")

    def to_keep(self) -> list[tuple[str, int, dict[str, bytes]]]:
        """What it adds to batches: name, part, and files."""
        found: dict[tuple[str, int], dict[str, bytes]] = {}
        for batch, file, content in self._rows(
            _keep, "SELECT name, part, file, content FROM keeps"
        ):
            found.setdefault(batch, {})[file] = content
        return [(name, part, files) for (name, part), files in found.items()]

    def carried_out(self) -> None:
        """Forget what the last round was to add: it is all there."""
        with self._writing() as execute:
            execute("DELETE FROM appends")
            execute("DELETE FROM keeps")

    def kept_for(self, period: str) -> tuple[str, int] | None:
        """The name of the batch for a period, and its number of images; None if there is none."""
        query = "SELECT name, n FROM kept WHERE period = ?"
        rows = self._rows(lambda name, n: (str(name), int(n)), query, (period,))
        return rows[0] if rows else None

    def kept_names(self) -> list[str]:
        """The batches, the first one first."""
        return self._rows(str, "SELECT name FROM kept ORDER BY rowid")

    def counts(self) -> list[tuple[str, int, int]]:
        """Period, group, and number of images; what came first at first."""
        return self._rows(
            lambda period, group, n: (str(period), int(group), int(n)),
            "SELECT period, grp, n FROM counts ORDER BY rowid",
        )

    def count_again(self, counts: Mapping[tuple[str, int], int], version: int) -> None:
        """Replace the counts by those of the groups at this version of what people said."""
        with self._writing() as execute:
            execute("DELETE FROM counts")
            for (period, group), n in counts.items():
                execute("INSERT INTO counts VALUES (?, ?, ?)", (period, group, n))
            execute("REPLACE INTO facts VALUES ('counted', ?)", (version,))

    def risen(self) -> set[tuple[str, int]]:
        """The rises that were told: period and group."""
        told = self._rows(lambda a, b: (str(a), int(b)), "SELECT period, grp FROM risen")
        return set(told)

    def due(self, now: float) -> list[Due]:
        """The events that are to be passed on by now, the oldest first."""
        return self._rows(
            _due,
            "SELECT id, action, event, attempts FROM due WHERE again <= ? ORDER BY id LIMIT 256",
            (now,),
        )

    @property
    def n_due(self) -> int:
        """How many events are still to be passed on."""
        return self._rows(int, "SELECT count(*) FROM due")[0]

    def begin(self, due: Due, again: float) -> None:
        """Note that an event is being passed on. again: when to try again if that fails."""
        with self._writing() as execute:
            execute(
                "UPDATE due SET attempts = attempts + 1, again = ? WHERE id = ?", (again, due.id)
            )

    def passed_on(self, due: Due) -> None:
        """Forget an event: it was passed on, or given up."""
        with self._writing() as execute:
            execute("DELETE FROM due WHERE id = ?", (due.id,))

    def fact(self, name: str) -> int:
        rows = self._rows(int, "SELECT value FROM facts WHERE name = ?", (name,))
        return rows[0] if rows else 0

    def _rows(
        self, read: Callable[..., _Value], query: str, values: Sequence[object] = ()
    ) -> list[_Value]:
        """The rows of a query. read: makes a value of the columns of a row; they may hold anything,
        since a journal may come from anybody."""
        with self._explained():
            return [read(*row) for row in self._connection.execute(query, tuple(values))]

    def _open(self) -> None:
        """Hold the file, make its tables, and learn what is done."""
        execute = self._connection.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA synchronous = FULL")
        with transaction(self._connection):  # holds the file until it is closed
            if not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _SCHEMA:
                    execute(statement)
                execute(f"PRAGMA application_id = {APPLICATION_ID}")
                execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        facts = ("application_id", "user_version")
        found = [execute(f"PRAGMA {name}").fetchone()[0] for name in facts]
        if found != [APPLICATION_ID, FORMAT_VERSION]:
            raise RunError(
                f"'{self.path}' is not the journal of this version of flawsort. Install a newer "
                "one, or move the file away; then all files of the folder are sorted again."
            )
        # Others, such as triggers, would do what nobody expects.
        objects = {row[0] for row in execute(_OBJECTS)}
        if objects != set(_SCHEMA):
            raise ValueError(f"it holds other tables than flawsort makes ({len(objects)})")
        self._stamps = set(self._rows(_stamp, "SELECT path, size, changed FROM files"))

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._explained(), transaction(self._connection):
            yield self._connection.execute

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise OptionError(
                    f"Another flawsort watch sorts into '{self.path.parent}' already. Name all "
                    "folders in one command, or end the other one."
                ) from error
            raise RunError(
                f"The journal '{self.path}' cannot be used: {error}. Check the free disk space and "
                "the permissions of the folder. If the file is damaged, restore it from a backup, "
                "or move it away; then all files of the folder are sorted again."
            ) from error
        except OSError as error:
            raise RunError(
                f"The journal '{self.path}' cannot be used: {error.strerror or error}."
            ) from error
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise RunError(
                f"The journal '{self.path}' is damaged: {first_line(error)}. Restore it from a "
                "backup, or move it away; then all files of the folder are sorted again."
            ) from error


def _append(path: Any, begin: Any, content: Any) -> tuple[Path, int, bytes]:
    return Path(os.fsdecode(_bytes(path))), int(begin), _bytes(content)


def _keep(name: Any, part: Any, file: Any, content: Any) -> tuple[tuple[str, int], str, bytes]:
    return (str(name), int(part)), str(file), _bytes(content)


def _due(number: Any, action: Any, event: Any, attempts: Any) -> Due:
    found = json.loads(event)
    if not isinstance(found, dict):
        raise ValueError("an event is no object")
    return Due(int(number), str(action), found, int(attempts))


def _stamp(path: Any, size: Any, changed: Any) -> bytes:
    return stamp_of(_bytes(path), int(size), int(changed))


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):  # of a number, Python would make so many zeros
        raise TypeError(f"bytes are expected, not {type(value).__name__}")
    return value

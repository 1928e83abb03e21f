"""The file of edits: nothing lost, nothing doubled, nothing overwritten."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort import OptionError, RunError
from flawsort.labels.edit_checks import Edit
from flawsort.labels.edit_file import last_number
from flawsort.labels.store import Conflict, EditStore, Entry
from flawsort.runs.folder import EDITS, save_run
from flawsort.runs.run import Run
from helpers.edits import accept, as_anybody, fill, fill_at_once, lock, open_files
from helpers.plates import LONG, contents

# Adds edits as fast as it can, each on top of the last, and prints the number of each that is in.
APPEND = """
import sys
from flawsort.labels.edit_checks import Edit
from flawsort.labels.store import Conflict, EditStore

path, author, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
store = EditStore(path, busy_seconds=600)
version = store.version()
done = 0
while done < count:
    try:
        version = store.append(Edit("accept", {"images": [done]}), version, author)
    except Conflict as conflict:
        assert conflict.version > version
        version = conflict.version
        continue
    print(version, done, flush=True)
    done += 1
store.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / EDITS


# ---- the log ----


def test_a_run_that_nobody_has_edited_has_no_file(path: Path) -> None:
    store = EditStore(path)
    assert (store.version(), store.log(), store.writable) == (0, [], True)
    assert list(path.parent.iterdir()) == []


def test_entries_are_as_they_were_added(path: Path) -> None:
    name = '\U0001f529 "quoted"; DROP TABLE edits;--'
    edits = [Edit("name", {"group": 1, "name": name}), Edit("undo"), accept(3, 1)]
    store = EditStore(path)
    for version, edit in enumerate(edits):
        assert store.append(edit, version, "Jo ") == version + 1
    log = store.log()
    assert [entry.edit for entry in log] == edits
    assert [entry.seq for entry in log] == [1, 2, 3]
    assert {entry.author for entry in log} == {"Jo"}
    moments = [datetime.fromisoformat(entry.at) for entry in log]
    assert moments == sorted(moments)
    assert all(abs(datetime.now(UTC) - moment) < timedelta(minutes=1) for moment in moments)
    assert store.log(2) == log[2:]
    assert store.log(3) == []
    store.close()
    with EditStore(str(path)) as again:
        assert again.log() == log
        assert again.version() == 3
        assert isinstance(again.log()[0], Entry)


def test_it_goes_on_after_it_was_closed(path: Path) -> None:
    store = EditStore(path)
    store.append(accept(0), 0)
    store.close()
    store.close()
    assert store.append(accept(1), 1) == 2
    assert store.version() == 2
    store.close()
    assert not any(name.startswith(str(path)) for name in open_files())
    assert [file.name for file in path.parent.iterdir()] == [EDITS]  # the log beside it is gone


def test_it_is_written_through(path: Path) -> None:
    store = EditStore(path)
    store.append(accept(0), 0)
    connection = store._connected()
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_conflict(path: Path) -> None:
    one, other = EditStore(path), EditStore(path)
    assert one.append(accept(0), 0) == 1
    text = (
        r"based on version 0, and the current version is 1\. Check the groups, and make the edit "
        r"again"
    )
    with pytest.raises(Conflict, match=text) as caught:
        other.append(accept(1), 0)
    assert caught.value.version == 1
    assert isinstance(caught.value, OptionError)
    with pytest.raises(Conflict):  # nobody saw a version that is not there yet
        other.append(accept(1), 2)
    assert other.log() == one.log()
    assert len(one.log()) == 1
    assert other.append(accept(1), 1) == 2
    assert one.version() == 2


@pytest.mark.parametrize("version", [None, "0", True, 0.0])
def test_a_version_is_a_number(path: Path, version: Any) -> None:
    with pytest.raises(OptionError, match=r"version must be a whole number\. Got "):
        EditStore(path).append(accept(0), version)
    assert not path.exists()


@pytest.mark.parametrize("payload", [{"images": {1}}, {"k": float("nan")}, {"k": np.int64(3)}])
def test_a_payload_is_json(path: Path, payload: Any) -> None:
    with pytest.raises(OptionError, match="payload of an edit must be valid JSON"):
        EditStore(path).append(Edit("accept", payload), 0)


@pytest.mark.parametrize("author", ["a\0b", "x" * 201, "\ud83d", 7])
def test_an_author_is_a_short_text(path: Path, author: Any) -> None:
    with pytest.raises(OptionError, match="author must"):
        EditStore(path).append(accept(0), 0, author)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE edits SET payload = '{}' WHERE seq = 2",
        "DELETE FROM edits WHERE seq = 2",
        "DELETE FROM edits",
        "REPLACE INTO edits VALUES (2, '', '', 'accept', '{}')",
        "INSERT OR REPLACE INTO edits VALUES (2, '', '', 'accept', '{}')",
    ],
)
def test_edits_are_only_ever_added(path: Path, statement: str) -> None:
    fill(path, 3)
    before = EditStore(path).log()
    with contextlib.closing(sqlite3.connect(path)) as other:
        with pytest.raises(sqlite3.IntegrityError, match="edits are only ever added"):
            other.execute(statement)
        other.commit()
    assert EditStore(path).log() == before


def test_the_table(path: Path) -> None:
    fill(path, 1)
    with contextlib.closing(sqlite3.connect(path)) as other:
        columns = [row[1:3] for row in other.execute("PRAGMA table_info(edits)")]
    assert columns == [
        ("seq", "INTEGER"),
        ("at", "TEXT"),
        ("author", "TEXT"),
        ("kind", "TEXT"),
        ("payload", "TEXT"),
    ]


# ---- several at once, and a sudden end ----


def starting(path: Path, author: str, count: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", APPEND, str(path), author, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_processes_that_add_at_once(path: Path) -> None:
    count = 25
    processes = {author: starting(path, author, count) for author in ("a", "b", "c")}
    for process in processes.values():  # there is no file yet: they make it at once, too
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    acknowledged = {}
    for author, process in processes.items():
        out, err = process.communicate(timeout=LONG)
        assert (process.returncode, err) == (0, "")
        for line in out.splitlines():
            seq, number = map(int, line.split())
            assert seq not in acknowledged  # exactly one wins each version
            acknowledged[seq] = (author, number)
    log = EditStore(path).log()
    assert [entry.seq for entry in log] == list(range(1, 3 * count + 1))
    found = {entry.seq: (entry.author, entry.edit.payload["images"][0]) for entry in log}
    assert found == acknowledged


def test_a_process_that_is_killed_loses_nothing_it_has_acknowledged(path: Path) -> None:
    acknowledged: dict[int, int] = {}
    for turn in range(3):
        process = starting(path, f"turn {turn}", 100_000)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        for _ in range(25 + 10 * turn):
            seq, number = map(int, process.stdout.readline().split())
            acknowledged[seq] = number
        os.kill(process.pid, signal.SIGKILL)
        for line in process.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                seq, number = map(int, line.split())
                acknowledged[seq] = number
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        assert process.returncode == -signal.SIGKILL
        log = EditStore(path).log()
        assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
        found = {entry.seq: entry.edit.payload["images"][0] for entry in log}
        assert acknowledged.items() <= found.items()
        assert len(found) - len(acknowledged) <= turn + 1  # at most the one it was about to tell


def test_one_that_was_killed_while_it_made_the_file(path: Path) -> None:
    path.touch()
    assert EditStore(path).version() == 0
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    store = EditStore(path)
    assert store.log() == []
    assert store.append(accept(0), 0) == 1


def test_a_file_that_another_holds(path: Path) -> None:
    store = EditStore(path, busy_seconds=0.1)
    store.append(accept(0), 0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            RunError, match=r"locked by another process for more than 0 seconds\. Try"
        ):
            store.append(accept(1), 1)
        assert store.version() == 1  # reading goes on
        other.execute("ROLLBACK")
    assert store.append(accept(1), 1) == 2


def test_a_full_disk(path: Path) -> None:
    store = EditStore(path)
    store.append(accept(0), 0)
    pages = store._connected().execute("PRAGMA page_count").fetchone()[0]
    store._connected().execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(RunError, match=r"database or disk is full\. Check the free disk space"):
        store.append(Edit("name", {"name": "x" * 50_000}), 1)
    assert store.version() == 1
    assert store.append(accept(1), 1) == 2


# ---- files that are no good ----


def test_no_database(path: Path) -> None:
    path.write_text("these are not edits " * 500)
    before = path.read_bytes()
    text = (
        rf"The edits in '{re.escape(str(path))}' are damaged \(file is not a database\)\. "
        rf"Restore the file from a backup, or move it away, with {EDITS}-wal and {EDITS}-shm"
    )
    with pytest.raises(RunError, match=text):
        EditStore(path)
    assert path.read_bytes() == before


def test_a_damaged_database(path: Path) -> None:
    fill_at_once(path, [accept(number % 30) for number in range(400)])
    content = bytearray(path.read_bytes())
    content[2 * 4096 : 5 * 4096] = os.urandom(3 * 4096)
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"are damaged \(.*\)\. Restore the file from a backup"):
        EditStore(path)
    path.write_bytes(content[: 4096 + 100])
    with pytest.raises(RunError, match="are damaged"):
        EditStore(path)


def test_an_entry_that_is_no_json(path: Path) -> None:
    fill(path, 2)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO edits (at, author, kind, payload) VALUES ('', '', 'cut', '{')")
        other.commit()
    store = EditStore(path)
    with pytest.raises(RunError, match=r"are damaged \(edit 3: "):
        store.log()


ENDLESS = "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n)"
FORGED = {
    "a trigger": "DROP TRIGGER edits_stay; CREATE TRIGGER edits_stay BEFORE INSERT ON edits "
    f"WHEN {ENDLESS} > 0 BEGIN SELECT 1; END;",
    "a column": "DROP TABLE edits; CREATE TABLE edits (seq INTEGER PRIMARY KEY AUTOINCREMENT, at "
    "TEXT, author TEXT, kind TEXT, x TEXT, payload AS (hex(zeroblob(400000000))) VIRTUAL); "
    "INSERT INTO edits (at, author, kind) VALUES ('', '', 'cut');",
    "no trigger": "DROP TRIGGER edits_remain;",
    "one more": "CREATE INDEX kinds ON edits (kind);",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_schema_that_somebody_has_changed(path: Path, name: str) -> None:
    """No statement of it is run: it could go on without end."""
    fill(path, 2)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executescript(FORGED[name])
    with pytest.raises(RunError, match="holds other tables than one of edits"):
        EditStore(path)


def test_the_schema_of_the_first_version(path: Path) -> None:
    """As 0.1 wrote it."""
    made = """
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
PRAGMA application_id = 1718383474;
PRAGMA user_version = 1;
INSERT INTO edits (at, author, kind, payload) VALUES ('', '', 'accept', '{"images": [1]}');
"""
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executescript(made)
    assert EditStore(path).append(accept(2), 1) == 2


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_the_database_of_another_program(path: Path, mode: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA journal_mode = {mode}")
        other.execute("CREATE TABLE edits (seq INTEGER)")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(
        RunError, match=r"is a database of another program\. Move it away to start again"
    ):
        EditStore(path)
    assert path.read_bytes() == before


def test_a_newer_format(path: Path) -> None:
    fill(path, 1)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 2")
    text = r"have format version 2; this flawsort reads version 1\. Install a newer flawsort"
    with pytest.raises(RunError, match=text):
        EditStore(path)


def test_a_folder_in_its_place(path: Path) -> None:
    path.mkdir()
    with pytest.raises(RunError, match=r"cannot be read: it is not a regular file\."):
        EditStore(path)


# ---- folders that cannot be written ----


def check_read_only(path: Path, count: int) -> None:
    before = contents(path.parent)
    with as_anybody(), EditStore(path) as store:
        assert not store.writable
        assert store.version() == count
        assert [entry.edit for entry in store.log()] == [accept(row) for row in range(count)]
        with pytest.raises(
            RunError, match=r"cannot be written: the file or its folder is read-only"
        ):
            store.append(accept(0), count)
        assert store.version() == count
    assert contents(path.parent) == before


@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="needs users as Unix has them")
class TestReadOnly:
    def test_without_edits(self, public: Path) -> None:
        lock(public)
        check_read_only(public / EDITS, 0)

    def test_with_edits(self, public: Path) -> None:
        fill(public / EDITS, 5)
        lock(public)
        check_read_only(public / EDITS, 5)

    def test_an_empty_file(self, public: Path) -> None:
        (public / EDITS).touch()
        lock(public)
        check_read_only(public / EDITS, 0)

    @pytest.mark.parametrize("beside", ["-wal", "-shm"])
    def test_with_what_a_killed_process_left(self, public: Path, beside: str) -> None:
        """The edits are in the write-ahead log alone. -wal: without the -shm; -shm: with it."""
        with tempfile.TemporaryDirectory() as elsewhere:
            store = EditStore(Path(elsewhere) / EDITS)
            for number in range(5):
                store.append(accept(number), number)
            for suffix in {"", "-wal", beside}:
                shutil.copyfile(f"{elsewhere}/{EDITS}{suffix}", f"{public / EDITS}{suffix}")
            store.close()
        lock(public)
        before = {path.name for path in public.iterdir()}
        check_read_only(public / EDITS, 5)
        assert {path.name for path in public.iterdir()} == before

    def test_what_another_writes_is_seen(self, public: Path) -> None:
        writer = EditStore(public / EDITS)
        writer.append(accept(0), 0)
        public.chmod(0o755)
        for path in public.iterdir():
            path.chmod(0o644)
        if os.geteuid() != 0:
            pytest.skip("needs a second user")
        with as_anybody():
            reader = EditStore(public / EDITS)
            assert reader.version() == 1
        writer.append(accept(1), 1)
        with as_anybody():
            assert [entry.seq for entry in reader.log()] == [1, 2]
        assert writer.append(accept(2), 2) == 3
        writer.close()
        with as_anybody():
            assert reader.version() == 3

    def test_a_damaged_file(self, public: Path) -> None:
        (public / EDITS).write_bytes(os.urandom(5000))
        lock(public)
        with as_anybody(), pytest.raises(RunError, match="are damaged"):
            EditStore(public / EDITS)

    def test_a_file_that_cannot_be_read(self, public: Path) -> None:
        fill(public / EDITS, 1)
        lock(public)
        (public / EDITS).chmod(0o000)
        with as_anybody(), pytest.raises(RunError, match="cannot be read"):
            EditStore(public / EDITS)


# ---- a run that was replaced ----


@pytest.mark.parametrize("edited", [False, True])
def test_nothing_is_added_to_a_run_that_was_replaced(folder: Path, run: Run, edited: bool) -> None:
    store = EditStore(folder / EDITS)
    if edited:
        store.append(accept(0), 0)
    save_run(run, folder, overwrite=True, carried=True)
    with pytest.raises(RunError, match="was removed or replaced"):
        store.append(accept(1), int(edited))
    assert not (folder / EDITS).exists()
    store.close()


def test_threads_with_the_same_store_wait_while_it_is_held(tmp_path: Path) -> None:
    """They share its connection: an edit would be within the transaction, and be rolled back."""
    with EditStore(tmp_path / EDITS) as store:
        assert store.append(accept(0), 0) == 1
        held, go_on, numbers = threading.Event(), threading.Event(), list[int]()

        def hold() -> None:
            with store.held() as version:
                numbers.append(version)
                held.set()
                go_on.wait(LONG)
                numbers.append(last_number(store._connected()))

        holding = threading.Thread(target=hold)
        holding.start()
        assert held.wait(LONG)
        adding = threading.Thread(target=lambda: numbers.append(store.append(accept(1), 1)))
        closing = threading.Thread(target=store.close)
        adding.start()
        closing.start()
        adding.join(0.2)
        assert adding.is_alive()
        assert closing.is_alive()
        go_on.set()
        for thread in (holding, adding, closing):
            thread.join(LONG)
        assert numbers == [1, 1, 2]
        assert store.version() == 2

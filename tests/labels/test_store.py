"""The file of edits and sessions over it: nothing lost, nothing doubled, nothing overwritten."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort import AnomalyClusterer, Bags, OptionError, RunError, open_run
from flawsort.labels import store as module
from flawsort.labels.edit_checks import Edit
from flawsort.labels.edits import effective, replay
from flawsort.labels.groups import Labelling, first_labelling
from flawsort.labels.sentences import describe
from flawsort.labels.store import (
    Conflict,
    EditStore,
    Entry,
    Session,
    read_labelling,
)
from flawsort.runs.convert import make_run
from flawsort.runs.folder import EDITS, save_run
from flawsort.runs.run import Run
from helpers.bags import flawed_patches
from helpers.plates import contents, run_code, start
from helpers.runs import build_run

N = 30
# Adds edits as fast as it can, each on top of the last, and prints the number of each that is in.
APPEND = """
import sys
from flawsort.labels.edit_checks import Edit
from flawsort.labels.store import Conflict, EditStore

path, author, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
store = EditStore(path)
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
"""
EDIT = """
import sys
from flawsort.labels.store import Session

with Session(sys.argv[1]) as session:
    session.edit("name", {"group": 0, "name": "from outside"}, session.version, "another")
    session.edit("move", {"images": [3, 4], "to": "new"}, session.version)
    session.undo(session.version)
    print(session.version)
"""
SERVE = """
import sys, time
from flawsort.labels.store import Session

session = Session(sys.argv[1])
session.edit("name", {"group": 0, "name": "dents"}, 0)
session.edit("accept", {"images": [3, 4]}, 1)
print(session.version, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test opens is closed after it."""
    opened: list[EditStore] = []
    initialize = EditStore.__init__

    def remember(self: EditStore, path: str | Path, **options: Any) -> None:
        opened.append(self)
        initialize(self, path, **options)

    monkeypatch.setattr(EditStore, "__init__", remember)
    yield
    for store in opened:
        store.close()


@pytest.fixture(scope="module")
def model() -> AnomalyClusterer:
    patches = flawed_patches([0] * 8 + [1] * 9 + [2] * 7 + [3] * 6)
    return AnomalyClusterer(n_clusters=4, random_state=0).fit(Bags(patches, (6, 6)))


@pytest.fixture(scope="module")
def run(model: AnomalyClusterer) -> Run:
    return make_run(model.fitted_)


@pytest.fixture(scope="module")
def original(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "run"
    save_run(run, folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run #1? 100% öre"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / EDITS


def accept(*rows: int) -> Edit:
    return Edit("accept", {"images": list(rows)})


def fill(path: Path, count: int) -> None:
    with EditStore(path) as store:
        for number in range(count):
            store.append(accept(number % N), number)


def fill_at_once(path: Path, edits: list[Edit]) -> None:
    """Many edits, without waiting for the disk after each."""
    with EditStore(path) as store:
        store.append(edits[0], 0)
    rows = [(edit.kind, json.dumps(edit.payload)) for edit in edits[1:]]
    statement = "INSERT INTO edits (at, author, kind, payload) VALUES ('', '', ?, ?)"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executemany(statement, rows)
        other.commit()


def same(one: Labelling, other: Labelling) -> bool:
    arrays = np.array_equal(one.labels, other.labels) and np.array_equal(
        one.confirmed, other.confirmed
    )
    rest = [(each.groups, each.several, each.k, each.next_id) for each in (one, other)]
    return arrays and rest[0] == rest[1]


def open_files() -> list[str]:
    """None where the system does not tell."""
    if not Path("/proc/self/fd").is_dir():
        return []
    return [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]


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
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
        for line in out.splitlines():
            seq, number = map(int, line.split())
            assert seq not in acknowledged  # exactly one wins each version
            acknowledged[seq] = (author, number)
    log = EditStore(path).log()
    assert [entry.seq for entry in log] == list(range(1, 3 * count + 1))
    found = {entry.seq: (entry.author, entry.edit.payload["images"][0]) for entry in log}
    assert found == acknowledged


def test_threads_that_edit_at_once(folder: Path) -> None:
    session = Session(folder)
    failures: list[BaseException] = []

    def work(group: int) -> None:
        try:
            for number in range(10):
                while True:
                    state = session.state
                    assert state.version >= number
                    try:
                        payload = {"group": group, "name": f"{group} {number}"}
                        session.edit("name", payload, state.version)
                        break
                    except Conflict:
                        session.refresh()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(group,)) for group in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert session.version == 40
    assert [group.name for group in session.labelling.groups.values()] == [
        f"{group} 9" for group in range(4)
    ]
    session.close()


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
    fill_at_once(path, [accept(number % N) for number in range(400)])
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
    with pytest.raises(
        RunError, match=r"cannot be read or written: unable to open database file\."
    ):
        EditStore(path)


def test_an_edit_that_does_not_fit(folder: Path) -> None:
    session = Session(folder)
    with EditStore(folder / EDITS) as store:
        store.append(Edit("accept", {"group": 77}), 0)
    text = r"are damaged \(an edit does not fit: group: there is no group 77\."
    for _ in range(2):  # and not once only
        with pytest.raises(RunError, match=text):
            session.refresh()
    with pytest.raises(RunError, match=text):
        read_labelling(folder)
    session.close()
    with pytest.raises(RunError, match=text):
        Session(folder)
    assert not any(EDITS in name for name in open_files())


# ---- folders that cannot be written ----


@contextlib.contextmanager
def as_anybody() -> Iterator[None]:
    """Without the rights of root, who may write wherever he likes."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.fixture
def public(original: Path) -> Iterator[Path]:
    """A copy of the run that everybody can read, in a folder that becomes read-only by `lock`."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(shutil.copytree(original, Path(place) / "run"))
        (Path(place) / "run").chmod(0o755)


def lock(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)


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

    def test_a_session(self, public: Path) -> None:
        with Session(public) as session:
            session.edit("name", {"group": 0, "name": "dents"}, 0)
        lock(public)
        with as_anybody(), Session(public) as session:
            assert not session.writable
            assert session.labelling.groups[0].name == "dents"
            with pytest.raises(RunError, match="Copy the run to a writable folder"):
                session.edit("name", {"group": 0, "name": "pits"}, 1)
            assert (session.version, session.labelling.groups[0].name) == (1, "dents")
            assert read_labelling(public).groups[0].name == "dents"

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


# ---- sessions ----


def test_a_session_of_a_run_without_edits(folder: Path, run: Run) -> None:
    before = contents(folder)
    session = Session(folder)
    assert session.version == session.labels_spent == 0
    assert (session.can_undo, session.can_redo) == (None, None)
    assert same(session.labelling, first_labelling(run))
    assert same(read_labelling(folder), first_labelling(run))
    assert session.writable
    with pytest.raises(OptionError, match=r"There is nothing to undo\."):
        session.undo(0)
    with pytest.raises(OptionError, match=r"There is nothing to redo\."):
        session.redo(0)
    assert contents(folder) == before


def test_edit_undo_redo(folder: Path) -> None:
    session = Session(str(folder))
    begun = session.labelling
    named = session.edit("name", {"group": 1, "name": "dents"}, 0, "Jo")
    assert named is session.labelling
    assert named.groups[1].name == "dents"
    assert (session.version, session.can_undo, session.labels_spent) == (1, "Name Group 1 dents", 1)
    session.edit("move", {"images": [1, 2, 3], "to": 1}, 1)
    state = session.state
    assert (state.version, state.undo, state.redo, state.spent) == (
        2,
        "Move 3 images to dents",
        None,
        4,
    )
    assert same(session.undo(2, "Jo"), named)
    state = session.state
    assert (state.undo, state.redo) == ("Name Group 1 dents", "Move 3 images to dents")
    assert (state.version, state.spent) == (3, 1)
    assert same(session.undo(3), begun)
    assert (session.can_undo, session.can_redo) == (None, "Name Group 1 dents")
    assert session.labels_spent == 0
    session.redo(4)
    assert (session.labelling.groups[1].name, session.labels_spent) == ("dents", 1)
    again = session.redo(5)
    assert again.labels[[1, 2, 3]].tolist() == [1, 1, 1]
    assert session.labels_spent == 4
    session.undo(6)
    session.edit("cut", {"k": 2}, 7)
    assert session.can_redo is None
    with pytest.raises(OptionError, match=r"There is nothing to redo\."):
        session.redo(8)
    with EditStore(folder / EDITS) as store:
        kinds = [entry.edit.kind for entry in store.log()]
        authors = [entry.author for entry in store.log()]
    assert kinds == ["name", "move", "undo", "undo", "redo", "redo", "undo", "cut"]
    assert authors == ["Jo", "", "Jo", "", "", "", "", ""]
    with Session(folder) as other:
        assert dataclasses.replace(other.state, labelling=session.labelling) == session.state
        assert same(other.labelling, session.labelling)
    session.close()


def test_nonsense_is_not_saved(folder: Path) -> None:
    session = Session(folder)
    session.edit("accept", {"images": [0]}, 0)
    state = session.state
    cases: list[tuple[Any, Any, str]] = [
        ("accept", {"images": [N]}, "rows of the run's table"),
        ("undo", {}, "kind must be one of"),
        (None, {}, "kind must be one of"),
        ("accept", [0], "must be a mapping"),
        ("accept", {"images": {0}}, "must be valid JSON"),
        ("name", {"group": 0, "name": "\ud83d"}, "without control characters"),
    ]
    for kind, payload, text in cases:
        with pytest.raises(OptionError, match=text):
            session.edit(kind, payload, 1)
    with pytest.raises(OptionError, match="author must"):
        session.edit("accept", {"images": [1]}, 1, "\0")
    assert session.refresh() is state
    assert EditStore(folder / EDITS).version() == 1


def test_two_sessions_do_not_overwrite_each_other(folder: Path) -> None:
    one, other = Session(folder), Session(folder)
    one.edit("name", {"group": 0, "name": "dents"}, 0)
    for attempt in (
        lambda: other.edit("name", {"group": 0, "name": "pits"}, 0),
        lambda: other.undo(0),
        lambda: other.redo(0),
    ):
        with pytest.raises(
            Conflict, match="based on version 0, and the current version is 1"
        ) as caught:
            attempt()
        assert caught.value.version == 1
    assert other.labelling.groups[0].name == "dents"  # it has seen it by now
    with pytest.raises(Conflict):
        one.edit("name", {"group": 0, "name": "pits"}, 2)
    other.undo(1)
    assert one.labelling.groups[0].name == "dents"  # until it looks
    assert one.refresh().labelling.groups[0].name == ""
    assert (one.version, one.can_redo) == (2, "Name Group 0 dents")


def test_one_that_comes_between_the_look_and_the_edit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, other = Session(folder), EditStore(folder / EDITS)
    append = EditStore.append

    def late(self: EditStore, edit: Edit, version: int, author: str = "") -> int:
        monkeypatch.setattr(EditStore, "append", append)
        other.append(accept(5), 0)
        return append(self, edit, version, author)

    monkeypatch.setattr(EditStore, "append", late)
    with pytest.raises(Conflict) as caught:
        session.edit("accept", {"images": [1]}, 0)
    assert caught.value.version == 1
    session.refresh()
    assert np.flatnonzero(session.labelling.confirmed).tolist() == [5]


def test_what_another_process_wrote_is_seen(folder: Path) -> None:
    session = Session(folder)
    session.edit("accept", {"images": [0]}, 0)
    answer = run_code(EDIT, folder)
    assert (answer.code, answer.out, answer.err) == (0, "4\n", "")
    assert session.version == 1
    state = session.refresh()
    assert state.version == 4
    assert state.labelling.groups[0].name == "from outside"
    assert state.undo == "Name Group 0 from outside"
    assert state.redo == "Move 2 images to a new group"
    assert state.spent == 2
    assert session.refresh() is state
    session.redo(4)
    assert same(read_labelling(folder), session.labelling)


def test_a_server_that_is_killed(folder: Path) -> None:
    process = start(SERVE, folder)
    assert process.stdout is not None
    told = process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert told == "2\n"
    assert (folder / f"{EDITS}-wal").stat().st_size > 0
    with Session(folder) as session:
        assert session.version == 2
        assert session.labelling.groups[0].name == "dents"
        assert session.can_undo == "Accept 2 images"


@pytest.mark.parametrize("kept", [1, 3, 64])
@pytest.mark.parametrize("seed", range(4))
def test_random_sessions_are_as_a_stack_of_states(
    folder: Path, run: Run, seed: int, kept: int
) -> None:
    """Three sessions over one file, used in turn, one of which is opened anew each time."""
    opened = partial(Session, folder, run, kept_states=kept)
    rng = np.random.default_rng(seed)
    sessions = [opened(), opened()]
    first = first_labelling(run)
    past: list[tuple[Labelling, str | None, int]] = [(first, None, 0)]
    future: list[tuple[Labelling, str | None, int]] = []
    log: list[Edit] = []
    for _ in range(40):
        session = sessions[rng.integers(2)] if rng.random() < 0.8 else opened()
        version = session.refresh().version
        assert version == len(log)
        what = rng.random()
        if what < 0.3 and len(past) > 1:
            session.undo(version)
            log.append(Edit("undo"))
            future.append(past.pop())
        elif what < 0.5 and future:
            session.redo(version)
            log.append(Edit("redo"))
            past.append(future.pop())
        else:
            edit = random_edit(rng, past[-1][0])
            sentence = describe(edit, past[-1][0])
            session.edit(edit.kind, edit.payload, version)
            log.append(edit)
            now = replay(log, first, run.linkage)
            past.append((now, sentence, naive_spent(effective(log))))
            future = []
        labelling, sentence_now, spent = past[-1]
        state = session.state
        assert same(state.labelling, labelling)
        assert (state.version, state.undo, state.spent) == (len(log), sentence_now, spent)
        assert state.redo == (future[-1][1] if future else None)
        if session not in sessions:
            session.close()
    assert same(read_labelling(folder), past[-1][0])
    for session in sessions:
        session.close()


def random_edit(rng: np.random.Generator, now: Labelling) -> Edit:
    group = int(rng.choice(list(now.groups)))
    rows = [int(row) for row in rng.choice(N, 3)]
    return [
        Edit("move", {"images": rows, "to": ["new", "unsure", group][rng.integers(3)]}),
        Edit("name", {"group": group, "name": f"kind {rng.integers(9)}"}),
        Edit("several", {"images": rows, "groups": [group]}),
        Edit("cut", {"k": int(rng.integers(2, 9))}),
        accept(*rows),
    ][rng.integers(5)]


def naive_spent(edits: list[Edit]) -> int:
    groups = {edit.payload["group"] for edit in edits if edit.kind == "name"}
    return len(groups) + len({row for edit in edits for row in edit.payload.get("images", ())})


def test_a_long_session_keeps_few_states(folder: Path, run: Run) -> None:
    fill_at_once(folder / EDITS, [accept(number % N) for number in range(1000)])
    session = Session(folder, run)
    assert session.version == 1000
    assert len(session._track._states) <= 64 + 1000 // 64 + 1
    for number in range(80):
        session.undo(1000 + number)
        assert len(session._track._states) <= 64 + 1000 // 64 + 1
    assert session.can_undo == "Accept 1 image"
    assert np.count_nonzero(session.labelling.confirmed) == N


@pytest.mark.parametrize("kept", [1, 2, 3, 5])
def test_sentences_go_with_their_edits(folder: Path, run: Run, kept: int) -> None:
    session = Session(folder, run, kept_states=kept)
    done: list[str] = []
    number = 0
    for edits, undos in ((9, 6), (4, 2), (3, 1), (0, 1), (2, 8)):
        for _ in range(edits):
            number += 1
            session.edit("accept", {"images": list(range(number))}, session.version)
            done.append(f"Accept {number} image{'s' if number > 1 else ''}")
            assert session.can_undo == done[-1]
        for _ in range(undos):
            assert session.can_undo == done.pop()
            session.undo(session.version)
    assert session.can_undo is None
    session.close()


def test_what_is_undone_again_is_not_worked_out(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EditStore(folder / EDITS) as store:
        for edit in (accept(0), accept(1), Edit("undo"), accept(2), Edit("undo"), Edit("undo")):
            store.append(edit, store.version())
    made = []
    apply = module.apply

    def count(edit: Edit, *rest: Any) -> Labelling:
        made.append(edit)
        return apply(edit, *rest)

    monkeypatch.setattr(module, "apply", count)
    session = Session(folder, run)
    assert made == []
    session.redo(6)
    assert made == [accept(0)]
    made.clear()
    with EditStore(folder / EDITS) as store:
        store.append(accept(7), 7)
    session.refresh()
    assert made == [accept(7)]  # and nothing that it knew


def test_a_payload_is_the_sessions_own(folder: Path) -> None:
    session = Session(folder)
    payload: dict[str, Any] = {"images": [1, 2]}
    session.edit("accept", payload, 0)
    payload["images"].append(3)
    session.edit("cut", {"k": 3}, 1)
    session.undo(2)
    session.undo(3)
    session.redo(4)
    assert np.flatnonzero(session.labelling.confirmed).tolist() == [1, 2]
    # As JSON has it, from the first moment on: keys are texts there, and tuples are lists.
    labels = session.labelling.labels.tolist()
    carry = {
        "groups": [{"id": group, "name": "", "role": "flaw"} for group in sorted(set(labels))],
        "labels": tuple(labels),
        "confirmed": (),
        "several": {3: ()},
        "k": 4,
    }
    assert session.edit("carry", carry, 5).several == {3: ()}
    assert same(read_labelling(folder), session.labelling)


def test_read_labelling(folder: Path, run: Run) -> None:
    session = Session(folder)
    session.edit("name", {"group": 2, "name": "cracks"}, 0)
    session.edit("accept", {"group": 2}, 1)
    session.close()
    before = open_files()
    found = read_labelling(folder, run)
    assert same(found, session.labelling)
    assert found.groups[2].name == "cracks"
    assert sorted(open_files()) == sorted(before)
    assert not (folder / f"{EDITS}-wal").exists()
    shutil.rmtree(folder)
    with pytest.raises(RunError, match="No run folder at"):
        read_labelling(folder)


@pytest.mark.parametrize("edited", [False, True])
def test_a_run_that_was_replaced(folder: Path, run: Run, edited: bool) -> None:
    session = Session(folder)
    if edited:
        session.edit("accept", {"images": [0]}, 0)
    save_run(run, folder, overwrite=True, carried=True)
    with pytest.raises(
        RunError, match=r"was removed or replaced since it was opened\. Open it again"
    ):
        session.edit("accept", {"images": [1]}, session.version)
    with pytest.raises(RunError, match="was removed or replaced"):
        session.refresh()
    assert not (folder / EDITS).exists()
    session.close()
    assert Session(folder).version == 0


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


def test_a_file_that_was_removed(folder: Path) -> None:
    session = Session(folder)
    session.edit("accept", {"images": [0]}, 0)
    (folder / EDITS).unlink()
    with pytest.raises(
        RunError, match=r"was removed or replaced since it was opened\. Open it again"
    ):
        session.edit("accept", {"images": [1]}, 1)


def test_a_run_is_opened_with_its_edits_in_it(folder: Path, run: Run) -> None:
    Session(folder).edit("accept", {"images": [0]}, 0)
    assert open_run(folder).table == run.table


def test_thousands_of_edits_of_thousands_of_images(path: Path) -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 40, n)
    large = build_run(clusters.tolist())
    edits = [Edit("name", {"group": 0, "name": "dents"})]
    for number in range(1, 5000):
        rows = rng.integers(0, n, 5).tolist()
        move = Edit("move", {"images": rows, "to": number % 40})
        edits.append(move if number % 10 else Edit("undo"))
    fill_at_once(path, edits)
    start = time.process_time()
    session = Session(path.parent, large)
    assert time.process_time() - start < 3.0  # a third of a second; machines may be busy
    assert session.version == 5000
    assert session.labels_spent == 1 + np.count_nonzero(session.labelling.confirmed)
    start = time.process_time()
    for _ in range(20):
        session.undo(session.version)
        session.edit("accept", {"images": [5]}, session.version)
    assert time.process_time() - start < 3.0
    session.close()

"""Whatever happens while something is written, the old thing or the new one is there, whole."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flawsort.core import storage, temporaries
from flawsort.core.errors import FlawsortError
from flawsort.core.records import RemoteFile
from flawsort.core.storage import (
    Unpublished,
    new_file,
    new_folder,
    read_known,
    recover,
    replace_together,
    settle,
    sha256,
    try_writing,
    write_whole,
)
from flawsort.core.temporaries import beside, clear_left_overs
from flawsort.runs.changes import replace_files
from flawsort.runs.folder import open_run, read_text, save_run
from helpers import faults
from helpers.faults import Fault, Killed, watched
from helpers.plates import LONG, contents, fingerprint, run_code
from helpers.writers import WRITERS, Writer, all_writers

# Those that replace a folder that is there.
FOLDERS = ["run", "export csv"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


class Bench:
    """A writer, and the folders in which it has written nothing, the old and the new version."""

    def __init__(self, writer: Writer, folder: Path, existing: bool) -> None:
        self.writer, self.existing, self._folder = writer, existing, folder
        self.recovered: list[str] = []
        self.before, self.after = folder / "before", folder / "after"
        for place in (self.before, self.after):
            place.mkdir(parents=True)
            writer.begin(place)
            if existing:
                writer.write(place, 0)
        with watched(Fault(self.after)) as counted:
            writer.write(self.after, 1)
        self.old, self.new = writer.read(self.before), writer.read(self.after)
        n_steps = len(counted.steps)
        # The last ones always: there it comes to its place, and what was there goes.
        self.tried = sorted({*range(0, n_steps, writer.every), *range(n_steps)[-4:]})
        assert n_steps > 1
        assert self.old != self.new

    def fresh(self) -> Path:
        """A copy of the old version, to write the new one to."""
        place = self._folder / "here"
        shutil.rmtree(place, ignore_errors=True)
        return Path(shutil.copytree(self.before, place, symlinks=True))

    def write(self, place: Path, fault: Fault) -> BaseException | None:
        """What the writer raises, if anything. Its errors are the system's, or flawsort's own."""
        with watched(fault):
            try:
                self.writer.write(place, 1)
            except (OSError, FlawsortError, Killed) as error:
                return error
        return None

    def check_whole(self, place: Path) -> None:
        found = self.writer.read(place)
        if not self.writer.separate:
            assert found in (self.old, self.new)
            return
        for name, content in found.items():
            assert content in (self.old.get(name), self.new.get(name)), name

    def check_nothing_left(self, place: Path) -> None:
        """But for a folder that is whole and could not be moved: somebody was told where it is."""
        left = [name for name in names(place) if not name.startswith(".run.finished-")]
        if self.writer.separate:
            assert [name for name in left if "/." in f"/{name}"] == []
        else:
            assert left in (names(self.before), names(self.after))


def names(place: Path) -> list[str]:
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())


@pytest.fixture(scope="module", params=[True, False], ids=["replaced", "new"])
def existing(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module", params=WRITERS)
def bench(
    request: pytest.FixtureRequest,
    existing: bool,
    parts: Path,
    saved: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bench:
    writer = all_writers(parts, saved)[request.param]
    if existing and not writer.replaces:
        pytest.skip("is never replaced")
    return Bench(writer, tmp_path_factory.mktemp("bench").resolve(), existing)


class TestEveryWriter:
    def test_an_error_at_any_step(self, bench: Bench) -> None:
        for step in bench.tried:
            for name in ("ENOSPC", "EACCES") if bench.existing else ("ENOSPC",):
                place = bench.fresh()
                fault = Fault(place, faults.error(name), step)
                bench.write(place, fault)
                bench.check_whole(place)
                # What cannot be removed stays until the next writer comes.
                if fault.met not in ("os.remove", "os.rmdir"):
                    bench.check_nothing_left(place)

    def test_a_disk_that_lets_nothing_be_done_from_a_step_on(self, bench: Bench) -> None:
        for step in bench.tried:
            place = bench.fresh()
            bench.write(place, Fault(place, faults.error("EPERM"), step, lasting=True))
            for folder in bench.recovered:
                recover(place / folder)
            bench.check_whole(place)

    def test_a_kill_at_any_step(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        for step in bench.tried:
            place = bench.fresh()
            error = bench.write(place, Fault(place, faults.killed, step, lasting=True))
            assert isinstance(error, Killed)
            for folder in bench.recovered:
                recover(place / folder)
            bench.check_whole(place)
            # The next process writes the same again, and clears what was left.
            faults.as_a_new_process(monkeypatch)
            if not bench.writer.replaces and bench.writer.read(place) == bench.new:
                continue
            bench.writer.write(place, 1)
            assert bench.writer.read(place) == bench.new
            assert names(place) == names(bench.after)

    def test_a_disk_that_is_full_in_the_middle_of_a_file(self, bench: Bench) -> None:
        for n_bytes in (0, 5, 3000):
            place = bench.fresh()
            with faults.full_after(n_bytes):
                bench.write(place, Fault(place))
            bench.check_whole(place)
            bench.check_nothing_left(place)


@pytest.mark.parametrize("name", FOLDERS)
class TestSystemsThatCannotExchangeFolders:
    """Two moves instead of one step: killed between them, the old folder comes back."""

    @pytest.fixture(autouse=True)
    def _no_exchange(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage, "_exchange", lambda one, other: False)

    def test_errors(self, name: str, parts: Path, saved: Path, tmp_path: Path) -> None:
        bench = Bench(all_writers(parts, saved)[name], tmp_path, True)
        TestEveryWriter().test_an_error_at_any_step(bench)
        bench.recovered = ["out"]
        TestEveryWriter().test_a_disk_that_lets_nothing_be_done_from_a_step_on(bench)

    def test_kills(
        self, name: str, parts: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = Bench(all_writers(parts, saved)[name], tmp_path, True)
        bench.recovered = ["out"]  # opening a run does it too
        TestEveryWriter().test_a_kill_at_any_step(bench, monkeypatch)


# ---- files ----


class TestFile:
    @pytest.mark.parametrize(
        "content",
        ["text \u00f6\n", b"bytes", [b"pie", memoryview(b"ces")], lambda file: file.write(b"x")],
        ids=["text", "bytes", "pieces", "a function"],
    )
    def test_contents(self, tmp_path: Path, content: Any) -> None:
        write_whole(tmp_path / "x", content)
        expected = {"text \u00f6\n": "text \u00f6\n".encode(), b"bytes": b"bytes"}
        known = expected.get(content) if isinstance(content, str | bytes) else None
        assert (tmp_path / "x").read_bytes() == (
            known or (b"x" if callable(content) else b"pieces")
        )
        assert names(tmp_path) == ["x"]

    def test_folders_above_it_are_made_when_asked_for(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            write_whole(tmp_path / "a/b/x", "")
        write_whole(tmp_path / "a/b/x", "", parents=True)
        assert names(tmp_path) == ["a/b/x"]

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "there")
        for text in ("first", "second"):
            write_whole(tmp_path / "link", text)
            assert (tmp_path / "there").read_text() == text
        assert (tmp_path / "link").is_symlink()

    def test_a_device_and_a_pipe_are_not_replaced(self, tmp_path: Path) -> None:
        write_whole(Path(os.devnull), "nothing")
        assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        read: list[bytes] = []
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
        reader.start()
        write_whole(pipe, "through")
        reader.join(LONG)
        assert read == [b"through"]
        assert pipe.is_fifo()
        with pytest.raises(IsADirectoryError):
            write_whole(tmp_path, "")

    def test_the_mode_is_kept(self, tmp_path: Path) -> None:
        write_whole(tmp_path / "x", "first")
        (tmp_path / "x").chmod(0o660)
        write_whole(tmp_path / "x", "second")
        assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o660

    def test_a_file_that_may_not_be_written_is_not_replaced(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_whole(tmp_path / "x", "mine")
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        for attempt in (
            lambda: write_whole(tmp_path / "x", ""),
            lambda: try_writing(tmp_path / "x"),
        ):
            with pytest.raises(PermissionError, match="Permission denied"):
                attempt()
        with pytest.raises(PermissionError, match="Permission denied"):
            replace_together(tmp_path, {"x": "", "y": ""})
        assert contents(tmp_path) == {"x": b"mine"}

    @pytest.mark.parametrize("name", ["x" * 255, "\u00f6" * 127, "line\nbreak", "-.partial-1"])
    def test_names_of_every_kind(
        self, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / name
        with pytest.raises(Killed), watched(Fault(tmp_path, faults.killed, 1, lasting=True)):
            write_whole(place, "half")
        assert len(names(tmp_path)) == 1
        faults.as_a_new_process(monkeypatch)
        write_whole(place, "whole")
        assert contents(tmp_path) == {name: b"whole"}

    def test_many_threads_at_once(self, tmp_path: Path) -> None:
        texts = [f"{n}" * 100_000 for n in range(8)]
        threads = [
            threading.Thread(target=write_whole, args=(tmp_path / "x", text)) for text in texts * 4
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert (tmp_path / "x").read_text() in texts
        assert names(tmp_path) == ["x"]

    def test_a_path_to_write_to(self, tmp_path: Path) -> None:
        with new_file(tmp_path / "x") as partial:
            partial.write_text("whole")
            assert not (tmp_path / "x").exists()
        assert contents(tmp_path) == {"x": b"whole"}
        with pytest.raises(FileNotFoundError), new_file(tmp_path / "y"):
            pass  # nothing was written
        with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "x") as partial:
            _half(partial, KeyboardInterrupt)
        assert contents(tmp_path) == {"x": b"whole"}

    def test_windows_is_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another program has the file open for a moment."""
        (tmp_path / "new").write_text("new")
        real, refused = os.replace, [True, True]

        def replace(source: Path, target: Path) -> None:
            if refused:
                refused.pop()
                raise PermissionError(13, "The process cannot access the file")
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
        monkeypatch.setattr(storage, "sys", SimpleNamespace(platform="win32"))
        monkeypatch.setattr(storage, "PATIENCE", 60.0)
        storage._move(tmp_path / "new", tmp_path / "x")
        assert contents(tmp_path) == {"x": b"new"}
        refused += [True]
        monkeypatch.setattr(storage, "PATIENCE", 0.0)
        with pytest.raises(PermissionError, match="cannot access"):
            storage._move(tmp_path / "x", tmp_path / "y")


class TestStore:
    @pytest.mark.parametrize("place", ["{}/a/b.bin", "file://{}/a/b.bin", "memory://bucket{}/b"])
    def test_whole(self, tmp_path: Path, place: str) -> None:
        if "://" in place:
            pytest.importorskip("fsspec")
        url = place.format(tmp_path)
        for text in ("first", "second"):
            write_whole(url, text, parents=True)
        found = RemoteFile(url) if "://" in url else Path(url)
        assert found.read_bytes() == b"second"

    def test_nothing_is_left_of_a_failure(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        local = pytest.importorskip("fsspec.implementations.local")

        write_whole(f"file://{tmp_path}/x", b"first")
        monkeypatch.setattr(local.LocalFileSystem, "mv", faults.full_disk)
        with pytest.raises(OSError, match="No space left"):
            write_whole(f"file://{tmp_path}/x", b"second")
        assert contents(tmp_path) == {"x": b"first"}


def _half(path: Path, error: type[BaseException]) -> None:
    path.write_text("half")
    raise error


# ---- folders ----


class TestFolder:
    def test_filled_and_replaced(self, tmp_path: Path) -> None:
        for text in ("first", "second"):
            with new_folder(tmp_path / "a/x") as partial:
                (partial / text).write_text(text)
        assert contents(tmp_path) == {"a/x/second": b"second"}
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["x"]

    def test_not_replaced(self, tmp_path: Path) -> None:
        with new_folder(tmp_path / "x", replace=False) as partial:
            (partial / "first").touch()
        with (
            pytest.raises(FileExistsError, match="File exists"),
            new_folder(tmp_path / "x", replace=False) as partial,
        ):
            (partial / "second").touch()
        assert names(tmp_path) == ["x/first"]

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_an_error_inside(self, tmp_path: Path, error: type[BaseException]) -> None:
        with pytest.raises(error), new_folder(tmp_path / "x", rescue=True) as partial:
            _half(partial / "half", error)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
    @pytest.mark.parametrize("rescue", [True, False])
    def test_kept_from_its_place(self, tmp_path: Path, rescue: bool, error: BaseException) -> None:
        def refuse() -> None:
            raise error

        expected = Unpublished if rescue and isinstance(error, Exception) else type(error)
        with (
            pytest.raises(expected) as seen,
            new_folder(tmp_path / "x", rescue=rescue, before_publish=refuse) as partial,
        ):
            (partial / "whole").touch()
        left = list(tmp_path.iterdir())
        assert [path.name.partition("-")[0] for path in left] == [".x.finished"][: int(rescue)]
        if isinstance(seen.value, Unpublished):
            assert seen.value.kept == left[0]
            assert seen.value.__cause__ is error
        clear_left_overs(tmp_path)
        assert list(tmp_path.iterdir()) == left  # it is a person's to move

    def test_a_place_on_a_system_without_the_call(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.platform", "win32")
        assert not storage._exchange(tmp_path / "a", tmp_path / "b")
        monkeypatch.undo()
        with pytest.raises(FileNotFoundError):
            storage._exchange(tmp_path / "a", tmp_path / "b")

    def test_recovery_only_where_nobody_is_at_it(self, tmp_path: Path) -> None:
        old = beside(tmp_path.resolve() / "x", "old")
        old.mkdir()
        with temporaries.claimed(old):
            recover(tmp_path / "x")
            assert not (tmp_path / "x").exists()
        recover(tmp_path / "y")
        assert old.exists()
        recover(tmp_path / "x")
        assert [path.name for path in tmp_path.iterdir()] == ["x"]
        beside(tmp_path.resolve() / "x", "old").mkdir()
        recover(tmp_path / "x")
        assert [path.name for path in tmp_path.iterdir()] == ["x"]


# ---- several files as one ----


class TestTogether:
    def test_what_was_killed_is_as_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace_together(tmp_path, {"a": "old", "b": "old", "last": "old"})
        known = sha256(tmp_path / "a")
        with watched(Fault(tmp_path)) as counted:
            replace_together(tmp_path, {"a": "old", "b": "old", "last": "old"})
        moves = [n for n, step in enumerate(counted.steps) if step.startswith("os.rename")]
        for step in moves:
            with pytest.raises(Killed), watched(Fault(tmp_path, faults.killed, step, lasting=True)):
                replace_together(tmp_path, {"a": "new", "b": "new", "last": "new"})
            assert (tmp_path / "last").read_text() == "old"
            assert [read_known(tmp_path / name, known) for name in "ab"] == [b"old"] * 2
            assert read_known(tmp_path / "a", "0" * 64) is None
            settle(tmp_path, {"a": known, "b": known})
            assert contents(tmp_path) == {"a": b"old", "b": b"old", "last": b"old"}

    def test_a_copy_that_is_of_no_use_goes(self, tmp_path: Path) -> None:
        write_whole(tmp_path / "a", "now")
        for name in ("a", "gone", "unknown"):
            beside(tmp_path.resolve() / name, "kept").write_text("before")
        settle(tmp_path, {"a": sha256(tmp_path / "a"), "gone": "0" * 64})
        assert contents(tmp_path) == {"a": b"now"}


# ---- a process that is really killed ----


KILLED = """
import sys
from pathlib import Path
from flawsort import open_run
from flawsort.runs.changes import replace_files
from flawsort.runs.folder import save_run
from helpers import faults
from helpers.faults import Fault, watched

way, saved, folder, step = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
run = open_run(saved)
with watched(Fault(folder.parent, faults.kill, step)):
    if way == "save":
        save_run(run, folder, overwrite=True)
    else:
        replace_files(folder, {"evaluation.json": "new", "report.html": "new"})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
@pytest.mark.parametrize(("way", "steps"), [("save", (0, 3, 17, 20)), ("replace", (3, 5, 7))])
def test_a_process_that_is_killed(
    way: str, steps: tuple[int, ...], saved: Path, tmp_path: Path
) -> None:
    folder = tmp_path.resolve() / "here/run"
    shutil.copytree(saved, folder)
    replace_files(folder, {"evaluation.json": "old", "report.html": "old"})
    old = fingerprint(open_run(folder))
    for step in steps:
        answer = run_code(KILLED, way, saved, folder, str(step))
        assert answer.code == -signal.SIGKILL, answer.err
        assert fingerprint(open_run(folder)) == old
        found = [read_text(folder, name) for name in ("evaluation.json", "report.html")]
        assert found in (["old"] * 2, [None] * 2)
    replace_files(folder, {"evaluation.json": "last"})
    assert read_text(folder, "evaluation.json") == "last"
    save_run(open_run(folder), folder, overwrite=True)
    assert list(folder.parent.iterdir()) == [folder]
    assert not [name for name in names(folder) if name.startswith(".")]

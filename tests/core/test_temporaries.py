"""What killed processes left, told from what is being written."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from flawsort.core import temporaries
from flawsort.core.temporaries import beside, clear_left_overs, sole_worker
from helpers.plates import LONG, start

# No machine has this number: a name has six letters of a hash.
ELSEWHERE = "000000"


class TestLeftOvers:
    def test_of_the_dead_and_of_nobody_else(self, tmp_path: Path) -> None:
        tmp_path = tmp_path.resolve()
        here = temporaries._machine()
        dead = start("pass")
        dead.communicate(timeout=LONG)
        alive = start("import time; print('here', flush=True); time.sleep(600)")
        try:
            assert alive.stdout is not None
            assert alive.stdout.readline() == "here\n"
            kept = [
                f".x.partial-{here}-{alive.pid}-0",  # is being written
                f".x.partial-{ELSEWHERE}-{dead.pid}-0",  # by a process of another machine
                f".x.finished-{here}-{dead.pid}-0",
                f".x.kept-{here}-{dead.pid}-0",
                f".x.partial-{dead.pid}",
                f".x.partial-{here}-{dead.pid}-0.txt",
                f"x.partial-{here}-{dead.pid}-0",
                ".x.partial-notes",
            ]
            old = f".x.partial-{ELSEWHERE}-{alive.pid}-1"
            gone = [f".x.partial-{here}-{dead.pid}-0", f".y.partial-{here}-{os.getpid()}-9", old]
            for name in (*kept, *gone):
                (tmp_path / name).mkdir()
                (tmp_path / name / "half").write_text("half a file")
            (tmp_path / f".z.partial-{here}-{dead.pid}-7").write_text("half")
            os.utime(tmp_path / old, (time.time() - 90_000,) * 2)
            mine = beside(tmp_path / "mine", "partial")
            mine.touch()
            with temporaries.claimed(mine):
                clear_left_overs(tmp_path)
            assert {path.name for path in tmp_path.iterdir()} == {*kept, mine.name}
        finally:
            alive.kill()
            alive.communicate(timeout=LONG)

    def test_a_folder_that_cannot_be_listed(self, tmp_path: Path) -> None:
        clear_left_overs(tmp_path / "nothing")
        (tmp_path / "file").touch()
        clear_left_overs(tmp_path / "file")


AT_WORK = """
import sys, time
from pathlib import Path
from flawsort.core.temporaries import sole_worker

with sole_worker(Path(sys.argv[1])) as alone:
    print(alone, flush=True)
    time.sleep(600)
"""


class TestSoleWorker:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        place = tmp_path / "run"
        with sole_worker(place) as first, sole_worker(tmp_path / "other") as other:
            assert first
            assert other
            with sole_worker(place) as second:
                assert not second
            clear_left_overs(tmp_path)  # they are in use
            assert len(list(tmp_path.iterdir())) == 2
        assert list(tmp_path.iterdir()) == []
        with sole_worker(place) as again:
            assert again

    def test_another_process_and_its_end(self, tmp_path: Path) -> None:
        worker = start(AT_WORK, tmp_path / "run")
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "True\n"
            with sole_worker(tmp_path / "run") as alone:
                assert not alone
        finally:
            worker.kill()
            worker.communicate(timeout=LONG)
        assert len(list(tmp_path.iterdir())) == 1  # nobody could remove it
        with sole_worker(tmp_path / "run") as alone:
            assert alone
        assert list(tmp_path.iterdir()) == []

    def test_what_a_killed_one_left_goes_with_the_rest(self, tmp_path: Path) -> None:
        (tmp_path / ".run.flawsort-claim").touch()
        (tmp_path / ".mine.flawsort-claim").write_text("somebody else's")
        (tmp_path / ".link.flawsort-claim").symlink_to(tmp_path / "nowhere")
        clear_left_overs(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            ".link.flawsort-claim", ".mine.flawsort-claim",
        ]  # fmt: skip

    def test_the_last_worker_removes_the_file_that_the_next_one_has_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A lock on a file that is gone says nothing, so the next one makes another."""
        import fcntl

        real, opened = fcntl.flock, []

        def flock(file: int, how: int) -> None:
            if not opened:
                (tmp_path / ".run.flawsort-claim").unlink()
            opened.append(os.fstat(file).st_ino)
            real(file, how)

        monkeypatch.setattr(fcntl, "flock", flock)
        with sole_worker(tmp_path / "run") as alone:
            assert alone
            assert len(opened) == 2
            assert (tmp_path / ".run.flawsort-claim").stat().st_ino == opened[1]

    def test_a_system_without_locks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import fcntl

        def flock(file: int, how: int) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", flock)
        for _ in range(2):
            with sole_worker(tmp_path / "run") as alone, sole_worker(tmp_path / "run") as second:
                assert alone
                assert second
        monkeypatch.undo()
        with sole_worker(tmp_path / "no such folder" / "run") as alone:
            assert alone

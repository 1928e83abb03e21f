"""What killed processes left, told from what is being written."""

from __future__ import annotations

import os
import time
from pathlib import Path

from flawsort.core import temporaries
from flawsort.core.temporaries import beside, clear_left_overs
from helpers.plates import start

# No machine has this number: a name has six letters of a hash.
ELSEWHERE = "000000"


class TestLeftOvers:
    def test_of_the_dead_and_of_nobody_else(self, tmp_path: Path) -> None:
        tmp_path = tmp_path.resolve()
        here = temporaries._machine()
        dead = start("pass")
        dead.communicate(timeout=60)
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
            alive.communicate(timeout=60)

    def test_a_folder_that_cannot_be_listed(self, tmp_path: Path) -> None:
        clear_left_overs(tmp_path / "nothing")
        (tmp_path / "file").touch()
        clear_left_overs(tmp_path / "file")

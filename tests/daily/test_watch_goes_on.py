"""flawsort watch that runs on: half-written files, a kill, a restart, and Ctrl-C."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image

from flawsort.runs.assigned import kept_names, open_kept
from helpers.plates import LONG, MAIN, plate, start

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL and SIGINT")
# A shell may have started the tests with SIGINT ignored, which children inherit. Ctrl-C can come
# between the opening of a file and the block that closes it: Python then closes it when it is
# forgotten, with a warning that only these tests would turn into a traceback.
INTERRUPTED_MAIN = f"""
import signal, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)
warnings.simplefilter("ignore", ResourceWarning)
{MAIN}
"""
FEW_THREADS = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}


def file_of(number: int) -> bytes:
    written = io.BytesIO()
    Image.fromarray(plate(("dent", "streak")[number % 2], number)).save(written, "PNG")
    return written.getvalue()


def names_in(lines: Path) -> list[str]:
    """The images among the whole lines."""
    text = lines.read_text("utf-8") if lines.exists() else ""
    events = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return sorted(one["name"] for one in events if one["event"] == "image")


@contextmanager
def watching(here: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own; it ends by itself only with --once."""
    words = ("watch", here / "incoming", "--run", here / "run", "--settle", "0.2", "--every", "0.1")
    outputs = ("-o", here / "table.csv", "-o", here / "all.jsonl")
    process = start(INTERRUPTED_MAIN, *words, *outputs, *more, **FEW_THREADS)
    guard = threading.Timer(LONG, process.kill)  # instead of standing still
    guard.start()
    try:
        yield process
    finally:
        guard.cancel()
        process.kill()
        process.communicate()


def until(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    """Waits for what the process does, however long it takes."""
    while not reached():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_each_file_is_sorted_once(saved: Path, tmp_path: Path) -> None:
    """Whatever the clock says: half a photo is never an image, and the whole one is one once."""
    shutil.copytree(saved, tmp_path / "run")
    incoming, lines = tmp_path / "incoming", tmp_path / "all.jsonl"
    incoming.mkdir()
    photos = [file_of(number) for number in range(5)]
    with watching(tmp_path) as process, (incoming / "2.png").open("wb", buffering=0) as file:
        for number in (0, 1):
            (incoming / f"{number}.png").write_bytes(photos[number])
        half = iter(photos[2][: len(photos[2]) // 2])

        def others_are_sorted() -> bool:
            file.write(bytes(itertools.islice(half, 1)))  # grows while the others are sorted
            return len(names_in(lines)) >= 2

        until(process, others_are_sorted)
        assert names_in(lines) == ["0.png", "1.png"]
        process.kill()
        assert process.wait() == -signal.SIGKILL
        file.seek(0)
        file.write(photos[2])
    with watching(tmp_path) as process:
        (incoming / "3.png").write_bytes(photos[3])
        until(process, lambda: len(names_in(lines)) == 4)
        (incoming / "4.png").write_bytes(photos[4])
        until(process, lambda: "4.png" in names_in(lines))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, (out, err)
    assert "Traceback" not in err
    once = [f"{number}.png" for number in range(5)]
    assert names_in(lines) == once
    with (tmp_path / "table.csv").open(newline="", encoding="utf-8") as table:
        assert sorted(row["name"] for row in csv.DictReader(table)) == once
    with watching(tmp_path, "--once") as process:  # finishes what Ctrl-C left of the last round
        out, err = process.communicate()
        assert process.returncode == 0, (out, err)
    assert names_in(lines) == once
    run = tmp_path / "run"
    kept = [name for one in kept_names(run) for name in open_kept(run, one).table["name"]]
    assert sorted(kept) == once

"""The tables of a run while people review it, and when the review ends or is killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flawsort.labels import tables
from flawsort.labels.session import read_settled
from flawsort.review import upkeep
from flawsort.review.app import make_app
from flawsort.review.upkeep import Upkeep
from flawsort.runs.changes import replace_files, tables_version
from flawsort.runs.folder import open_run
from helpers.plates import MAIN, start
from helpers.review_client import RunClient, closing_libraries, copied

# Seconds until something that comes soon is given up.
LONG = 60.0


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return copied(saved, tmp_path)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "QUIET", 0.01)


def groups(folder: Path) -> set[str]:
    with (folder / "images.csv").open(newline="", encoding="utf-8") as file:
        return {row["group"] for row in csv.DictReader(file)}


def wait_for(version: int, folder: Path) -> None:
    end = time.monotonic() + LONG
    while tables_version(folder) != version:
        assert time.monotonic() < end, "the tables are not written"
        time.sleep(0.02)


class TestUpkeep:
    def test_one_write_after_many_edits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(upkeep, "QUIET", 0.3)
        written = threading.Semaphore(0)
        kept = Upkeep(written.release)
        for _ in range(20):
            kept.soon()
        assert written.acquire(timeout=LONG)
        assert not written.acquire(timeout=0.6)
        kept.soon()
        assert written.acquire(timeout=LONG)

    def test_people_who_never_stop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(upkeep, "QUIET", LONG)
        monkeypatch.setattr(upkeep, "LONGEST", 0.2)
        written = threading.Event()
        kept = Upkeep(written.set)
        end = time.monotonic() + LONG
        while not written.wait(0.05):
            assert time.monotonic() < end
            kept.soon()
        kept.close()

    def test_nothing_after_the_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(upkeep, "QUIET", 0.2)
        written = threading.Event()
        kept = Upkeep(written.set)
        kept.soon()
        kept.close()
        assert not written.wait(0.5)


@pytest.mark.usefixtures("quick")
class TestWhilePeopleWork:
    def test_they_follow(self, folder: Path) -> None:
        client = RunClient(make_app([folder]))
        library = client.app.state.library  # type: ignore[attr-defined]
        found = library.get("run")
        assert client.edit("name", group=0, name="deep dent").status == 200
        wait_for(1, folder)
        assert "deep dent" in groups(folder)
        # The review goes on with the run as it is open.
        assert library.get("run") is found
        assert library.at_hand("run") is found
        assert client.edit("name", group=1, name="streak").status == 200
        wait_for(2, folder)
        assert {"deep dent", "streak"} <= groups(folder)
        assert client.step("undo").status == 200
        wait_for(3, folder)
        assert "streak" not in groups(folder)

    def test_another_review_of_the_run(self, folder: Path) -> None:
        one, other = (RunClient(make_app([folder])) for _ in range(2))
        opened = [client.app.state.library.get("run") for client in (one, other)]  # type: ignore[attr-defined]
        for number in range(4):
            client = (one, other)[number % 2]
            assert client.edit("name", group=0, name=f"name {number}").status == 200
            wait_for(number + 1, folder)
        for client, found in zip((one, other), opened, strict=True):
            assert client.app.state.library.get("run") is found  # type: ignore[attr-defined]
            assert client.state()["version"] == 4
        assert "name 3" in groups(folder)
        open_run(folder)

    def test_what_a_killed_one_left(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as never:
            never.setattr(tables, "replace_table", lambda *_: None)
            assert RunClient(make_app([folder])).edit("name", group=0, name="left").status == 200
            time.sleep(0.3)
        assert "left" not in groups(folder)
        RunClient(make_app([folder])).state()
        wait_for(1, folder)
        assert "left" in groups(folder)

    @pytest.mark.skipif(os.name != "posix", reason="makes pipes and links to devices")
    @pytest.mark.parametrize("what", ["pipe", "device", "backup", "sparse backup"])
    def test_a_run_that_somebody_forged(
        self, folder: Path, what: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        table, backup = folder / "images.csv", folder / ".images.csv.kept-000000-1-1"
        if what == "pipe":
            table.unlink()
            os.mkfifo(table)
        elif what == "device":
            table.unlink()
            table.symlink_to("/dev/zero")
        elif what == "backup":
            os.mkfifo(backup)
            os.utime(backup, (1, 1))
        else:
            replace_files(folder, {"report.html": "a report"})
            backup = folder / ".report.html.kept-000000-1-1"
            with backup.open("wb") as file:
                file.truncate(2**43)
            os.utime(backup, (1, 1))
        client = RunClient(make_app([folder]))
        assert client.edit("name", group=0, name="any").status == 200
        ended = threading.Thread(target=client.app.state.library.close, daemon=True)  # type: ignore[attr-defined]
        ended.start()
        ended.join(LONG)
        assert not ended.is_alive(), "it hangs"
        if what in ("pipe", "device"):
            (said,) = caplog.records
            assert said.getMessage().count("\n") == 0
            assert "is not a regular file" in said.getMessage()
        else:
            assert not backup.exists()
            assert "any" in groups(folder)
        assert client.state()["version"] == 1


@pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
class TestTheEnd:
    @pytest.fixture
    def process(self, folder: Path) -> Iterator[subprocess.Popen[str]]:
        """The command, after somebody has named a group."""
        first = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        words = ("review", folder, "--port", "0", "--no-open", "--no-token")
        started = start(first + MAIN, *words)
        try:
            assert started.stdout is not None
            address = started.stdout.readline().removeprefix("Review: ").strip()
            payload = {"group": 0, "name": "at last"}
            body: Any = {"version": 0, "kind": "name", "payload": payload}
            request = urllib.request.Request(
                f"{address}r/run/api/edits",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request) as reply:
                assert reply.status == 200
            yield started
        finally:
            started.kill()
            started.communicate()

    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
    def test_in_order(
        self, folder: Path, process: subprocess.Popen[str], how: signal.Signals
    ) -> None:
        process.send_signal(how)
        process.communicate(timeout=LONG)
        assert "at last" in groups(folder)
        assert tables_version(folder) == 1

    def test_killed(self, folder: Path, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()
        assert "at last" not in groups(folder)
        assert read_settled(folder).version == 1
        assert "at last" in groups(folder)
        assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]

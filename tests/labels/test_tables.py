"""The tables in the folder of a run that people review: with the groups as they left them."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flawsort import AnomalyClusterer, Run
from flawsort import open_run as open_
from flawsort.core.storage import sha256
from flawsort.core.tables import read_parquet
from flawsort.labels import tables
from flawsort.labels.session import Session, read_settled
from flawsort.outputs.exports import Choices, export_run
from flawsort.runs import changes
from flawsort.runs import folder as run_folder
from flawsort.runs.changes import replace_files, tables_version
from flawsort.runs.folder import (
    EDITS,
    MANIFEST,
    manifest_stamp,
    open_run,
    read_text,
    save_run,
    stamp_of,
)
from flawsort.runs.reviewed import CLUSTERS, REVIEWED
from helpers.faults import full_disk
from helpers.plates import contents, fingerprint, run_code

TABLES = ("images.csv", "images.parquet")
NAME = "=deep; dent"


def review(folder: Path) -> None:
    """A group gets a name, and an image a second kind and a note; then the process is killed."""
    session = Session(folder)
    session.edit("name", {"group": 0, "name": NAME}, 0)
    session.edit("move", {"images": [0, 3], "to": 0}, 1)
    session.edit("several", {"images": [20], "groups": [2, 0]}, 2)
    session.edit("severity", {"group": 0, "severity": "major"}, 3)
    session.edit("note", {"image": 1, "note": "look again"}, 4)
    session.let_go()


def rows(folder: Path) -> list[dict[str, str]]:
    text = (folder / "images.csv").read_text("utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def groups(folder: Path) -> list[str]:
    return [row["group"] for row in rows(folder)]


def of_tables(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (*TABLES, MANIFEST)}


def check_hashes(folder: Path) -> None:
    files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
    assert {name: sha256(folder / name) for name in files} == files


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_nobody_has_reviewed_it(folder: Path) -> None:
    before = contents(folder)
    with Session(folder):
        pass
    run = open_(folder)
    run.to_frame(), run.suggestions()
    kept = {name: one for name, one in contents(folder).items() if not name.startswith(EDITS)}
    assert kept == before


def test_they_say_what_an_export_says(folder: Path, tmp_path: Path) -> None:
    review(folder)
    state = read_settled(folder)
    run = open_run(folder)
    export_run(
        run,
        state.settled,
        "csv",
        tmp_path / "out",
        probability=state.suggestions.probability,
        regions=tables.settled_regions(run, state),
        choices=Choices(),
    )
    named = [column.name for column in REVIEWED]
    for shown, exported in zip(rows(folder), rows(tmp_path / "out"), strict=True):
        assert {name: shown[name] for name in named} == {name: exported[name] for name in named}
        assert shown["cluster"] == exported["cluster"]
    stored = read_parquet((folder / "images.parquet").read_bytes())
    assert stored == run.table
    assert list(rows(folder)[0]) == list(stored)
    frame = open_(folder).to_frame()
    assert all(list(frame[name]) == values for name, values in stored.items())
    assert stored["group"][0] == NAME
    assert (stored["severity"][0], stored["note"][1]) == ("major", "look again")
    assert stored["kinds"][20] == "Group 2;=deep, dent"
    assert (stored["kind_groups"][20], stored["decided"][20]) == ("2;0", True)
    assert any(value is not None for value in stored["probability"])


def test_what_was_computed_stays(folder: Path, run: Run) -> None:
    review(folder)
    read_settled(folder)
    check_hashes(folder)
    found, before = open_run(folder), fingerprint(run)
    now = fingerprint(found)
    assert {name for name in before if now[name] != before[name]} == {"table"}
    assert found.kinds == run.kinds
    assert found.table[CLUSTERS] == run.table["kinds"]
    assert found.labels.tolist() == run.labels.tolist()
    assert found.unreviewed().table == run.table
    assert list(found.unreviewed().table) == list(run.table)
    assert "tables" not in found.manifest
    # The same edits give the same suggestions, from either table.
    first, again = read_settled(folder, run).suggestions, read_settled(folder, found).suggestions
    assert first.groups.tolist() == again.groups.tolist()
    assert first.probability.tobytes() == again.probability.tobytes()


def test_written_once_for_each_state(folder: Path) -> None:
    review(folder)
    read_settled(folder)
    before = of_tables(folder)
    stamps = [(folder / name).stat().st_mtime_ns for name in before]
    read_settled(folder)
    assert [(folder / name).stat().st_mtime_ns for name in before] == stamps
    assert tables_version(folder) == 5
    with Session(folder) as session:
        session.undo(5)
    assert tables_version(folder) == 6
    assert rows(folder)[1]["note"] == ""
    assert not hidden(folder)


def test_taught_from_python(folder: Path) -> None:
    run = open_(folder)
    run.teach({run.names[0]: "hole", run.names[-1]: "normal"})
    assert (groups(folder)[0], groups(folder)[-1]) == ("hole", "normal")
    assert [row["decided"] for row in rows(folder)].count("true") == 2


def test_edits_that_were_moved_away(folder: Path) -> None:
    before = of_tables(folder)
    review(folder)
    read_settled(folder)
    assert of_tables(folder) != before
    for name in (EDITS, f"{EDITS}-wal", f"{EDITS}-shm"):
        (folder / name).unlink(missing_ok=True)
    read_settled(folder)
    assert of_tables(folder) == before


def test_a_run_of_known_labels(model: AnomalyClusterer, folder: Path, tmp_path: Path) -> None:
    """Right from the start, and not in a copy without the edits."""
    taught = AnomalyClusterer(n_clusters=4, random_state=0)
    bags = model.fitted_
    taught.fitted_, taught._loaded = bags, None
    start = tmp_path / "new"
    review(folder)
    from flawsort.labels.start import Start

    taught._start = Start.read(bags.images, labels_from=folder)
    taught._begun, _ = taught._begin(taught._start)  # type: ignore[arg-type]
    taught.save(start, report=False)
    before = of_tables(start)
    assert tables_version(start) == 1
    assert {NAME, "Group 2"} <= {row.removeprefix("'") for row in groups(start)}
    assert rows(start)[20]["kind_groups"] == "2;0"
    read_settled(start)
    assert of_tables(start) == before
    AnomalyClusterer.load(start).save(tmp_path / "copy", report=False)
    assert {row[:6] for row in groups(tmp_path / "copy")} == {"Group "}
    assert list(rows(tmp_path / "copy")[0]) == list(model.save(tmp_path / "plain").table)


class TestWhereNobodyMayWrite:
    @pytest.fixture(params=["folder", *TABLES, MANIFEST])
    def closed(
        self, request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Path:
        review(folder)
        place = folder if request.param == "folder" else folder / request.param
        real = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: Path(path) != place and real(path, mode)
        )
        return folder

    def test_they_stay(self, closed: Path, caplog: pytest.LogCaptureFixture) -> None:
        before = of_tables(closed)
        assert read_settled(closed).version == 5
        assert of_tables(closed) == before
        assert not caplog.records

    def test_a_disk_that_is_read_only(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        review(folder)
        before = of_tables(folder)

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr(changes, "replace_together", refuse)
        assert read_settled(folder).version == 5
        assert of_tables(folder) == before
        assert not caplog.records


def test_a_full_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    review(folder)
    before = of_tables(folder)
    with monkeypatch.context() as full:
        full.setattr("flawsort.core.storage._fill", full_disk)
        assert read_settled(folder).version == 5
    (said,) = caplog.records
    assert said.levelno == logging.WARNING
    assert f"of '{folder}' do not have the last edits yet (OSError, " in said.getMessage()
    assert of_tables(folder) == before
    assert not hidden(folder)
    read_settled(folder)
    assert tables_version(folder) == 5


KILLED = """
import sys
from pathlib import Path
from flawsort.labels.session import Session
from helpers import faults
from helpers.faults import Fault, watched

folder, step = Path(sys.argv[1]), int(sys.argv[2])
session = Session(folder)
session.state.suggestions
with watched(Fault(folder.parent, faults.kill, step)):
    session.close()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
def test_a_process_that_is_killed(folder: Path, tmp_path: Path) -> None:
    review(folder)
    made = Path(shutil.copytree(folder, tmp_path / "made"))
    read_settled(made)
    old, new = of_tables(folder), of_tables(made)
    met = []
    for step in range(0, 40, 4):
        here = Path(shutil.copytree(folder, tmp_path / "here")).resolve()
        answer = run_code(KILLED, here, str(step))
        met.append(answer.code)
        found = open_run(here).table
        assert found["group"] in ([one["group"] for one in t] for t in (_table(old), _table(new)))
        read_settled(here)
        assert of_tables(here) == new
        assert not hidden(here)
        shutil.rmtree(here)
        if answer.code == 0:
            break
    assert met[:-1] == [-signal.SIGKILL] * (len(met) - 1)
    assert len(met) > 3
    assert met[-1] == 0


def _table(files: dict[str, bytes]) -> list[dict[str, Any]]:
    table = read_parquet(files["images.parquet"])
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


class TestAtOnce:
    def test_several_who_write_and_read(self, folder: Path, run: Run) -> None:
        failed: list[BaseException] = []

        def work(author: str) -> None:
            try:
                for number in range(6):
                    with Session(folder, run) as session:
                        payload = {"group": 0, "name": f"{author} {number}"}
                        session.edit("name", payload, session.version, author)
                    replace_files(folder, {"report.html": f"{author} {number}"})
                    open_run(folder)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(author,)) for author in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Two who name a group at once are told so; nothing else goes wrong.
        assert {type(error).__name__ for error in failed} <= {"Conflict"}
        version = read_settled(folder).version
        assert tables_version(folder) == version
        check_hashes(folder)
        assert groups(folder) == read_parquet((folder / TABLES[1]).read_bytes())["group"]
        assert not hidden(folder)

    def test_who_writes_a_report_meanwhile(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each lists the files of the other in the manifest."""
        review(folder)
        real, texts = changes.replace_together, {"report.html": "meanwhile"}
        other = threading.Thread(target=replace_files, args=(folder, texts))

        def slowly(*given: Any, **options: Any) -> None:
            if other.ident is None:
                other.start()
                other.join(0.5)
                assert other.is_alive()
            real(*given, **options)

        monkeypatch.setattr(changes, "replace_together", slowly)
        read_settled(folder)
        other.join()
        assert tables_version(folder) == 5
        assert read_text(folder, "report.html") == "meanwhile"
        check_hashes(folder)

    def test_who_reads_meanwhile(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The table is replaced between the manifest and itself."""
        review(folder)
        real, met = run_folder._read, []

        def late(*given: Any) -> bytes:
            if not met:
                met.append(given[-1])
                read_settled(folder, before)
            return real(*given)

        before = open_run(folder)
        monkeypatch.setattr(run_folder, "_read", late)
        assert open_run(folder).table["group"][0] == NAME
        assert met == ["images.parquet"]

    def test_older_ones_are_not_brought_back(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        review(folder)
        real = tables.replace_table

        def later(*given: Any) -> None:
            monkeypatch.setattr(tables, "replace_table", real)
            with Session(folder) as other:
                other.edit("name", {"group": 0, "name": "newest"}, 5)
            real(*given)

        monkeypatch.setattr(tables, "replace_table", later)
        read_settled(folder)
        assert groups(folder)[0] == "newest"
        assert tables_version(folder) == 6

    def test_edits_wait_only_while_files_are_moved(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And the tables know of the edits before."""
        review(folder)
        real = changes.replace_together

        def meanwhile(*given: Any, **options: Any) -> None:
            session = Session(folder)
            session.edit("name", {"group": 1, "name": "meanwhile"}, 5)
            session.let_go()
            real(*given, **options)

        with monkeypatch.context() as slow:
            slow.setattr(changes, "replace_together", meanwhile)
            read_settled(folder)
        assert tables_version(folder) == 5
        assert "meanwhile" not in groups(folder)
        read_settled(folder)
        assert "meanwhile" in groups(folder)


class TestAnotherRun:
    def test_one_that_was_replaced_while_it_was_open(
        self, folder: Path, run: Run, tmp_path: Path
    ) -> None:
        review(folder)
        session = Session(folder)
        shutil.move(folder, tmp_path / "old")
        save_run(run, folder)
        before = contents(folder)
        session.close()
        assert contents(folder) == before

    def test_one_that_is_replaced_in_the_last_moment(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        review(folder)
        real, met = changes.replace_together, []

        def exchanged(*given: Any, **options: Any) -> None:
            shutil.move(folder, tmp_path / "old")
            shutil.copytree(tmp_path / "old", folder, ignore=shutil.ignore_patterns(".*"))
            met.append(contents(folder))
            real(*given, **options)

        monkeypatch.setattr(changes, "replace_together", exchanged)
        assert read_settled(folder).version == 5
        found = contents(folder)
        assert {name: found[name] for name in met[0]} == met[0]

    def test_one_that_was_replaced_before(
        self, folder: Path, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A notebook may hold a run that is another one by now."""
        opened = open_run(folder)
        manifest = {**run.manifest, "timings": {"total": 12.5}}
        save_run(replace(run, manifest=manifest), folder, overwrite=True)
        review(folder)
        before = of_tables(folder)
        read_settled(folder, opened)
        assert of_tables(folder) == before
        assert not caplog.records

    def test_the_stamp_is_that_of_the_run(self, folder: Path, run: Run) -> None:
        stamp, manifest = stamp_of(folder), manifest_stamp(folder)
        review(folder)
        read_settled(folder)
        replace_files(folder, {"report.html": "new"})
        assert stamp_of(folder) == stamp is not None
        assert manifest_stamp(folder) != manifest
        shutil.rmtree(folder)
        assert stamp_of(folder) is None
        save_run(run, folder)
        assert stamp_of(folder) != stamp

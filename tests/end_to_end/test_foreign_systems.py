"""What flawsort writes and keeps on Windows and macOS, which are simulated: see the helper."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flawsort import InputError, OptionError, RunError, open_run
from flawsort.backbones.cache import Bag, BagCache
from flawsort.core import durable, machine, storage, temporaries
from flawsort.core.storage import new_file, new_folder, recover, write_whole
from flawsort.core.store import prune
from flawsort.core.temporaries import beside, clear_left_overs, sole_worker
from flawsort.images.find import find_images
from flawsort.labels.groups import first_labelling
from flawsort.labels.session import Session
from flawsort.labels.store import EditStore
from flawsort.outputs.exports import FORMATS, Choices, export_run
from flawsort.review.app import make_app
from flawsort.runs.assigned import Kept, check_name, keep
from flawsort.runs.folder import EDITS, save_run
from helpers.export_runs import CLUSTERS, HOSTILE_NAMES, HOSTILE_TITLES, make_run
from helpers.foreign_systems import (
    NEEDS_PROC,
    Windows,
    one_name_in_any_case,
    open_files,
    windows,
)
from helpers.plates import contents
from helpers.review_client import RunClient, closing_libraries, copied
from helpers.writers import WRITERS, all_writers

pytestmark = NEEDS_PROC


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Windows]:
    """This folder, on Windows."""
    with windows(tmp_path) as system:
        yield system


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody closes a file in these tests, so nobody waits for it."""
    monkeypatch.setattr(storage, "PATIENCE", 0.0)


# ---- the simulation itself ----


class TestTheSimulation:
    def test_an_open_file_stays(self, here: Windows) -> None:
        (here.folder / "a").mkdir()
        (here.folder / "a/x").touch()
        (here.folder / "y").touch()
        with (here.folder / "a/x").open("rb"):
            assert here.folder / "a/x" in open_files()
            for refused in (
                lambda: os.replace(here.folder / "y", here.folder / "a/x"),
                lambda: os.replace(here.folder / "a", here.folder / "b"),
                lambda: os.unlink(here.folder / "a/x"),
            ):
                with pytest.raises(PermissionError, match="another process"):
                    refused()
        os.replace(here.folder / "a", here.folder / "b")
        assert contents(here.folder) == {"b/x": b"", "y": b""}

    def test_what_is_mapped_is_open(self, here: Windows) -> None:
        np.save(here.folder / "x.npy", np.zeros(9))
        mapped = np.load(here.folder / "x.npy", mmap_mode="r")
        with pytest.raises(PermissionError):
            os.unlink(here.folder / "x.npy")
        del mapped

    @pytest.mark.parametrize("name", ["a:b", "aux.txt", "nul", "x. ", "COM¹", "what?"])
    def test_names(self, here: Windows, name: str) -> None:
        with pytest.raises(OSError, match="name is incorrect"):
            (here.folder / name).mkdir()
        with pytest.raises(OSError, match="name is incorrect"):
            (here.folder / name).write_text("")

    def test_long_paths(self, here: Windows) -> None:
        deep = here.folder / ("a" * 120) / ("b" * 100)
        deep.mkdir(parents=True)
        (deep / ("c" * 29)).touch()  # 259 with C:\\here before it
        for refused in ((deep / ("c" * 30)).touch, (deep / ("d" * 20)).mkdir):
            with pytest.raises(FileNotFoundError):
                refused()

    def test_case_and_accents(self, tmp_path: Path) -> None:
        with one_name_in_any_case(tmp_path):
            (tmp_path / "Größe").mkdir()
            (tmp_path / "Größe/a.TXT").write_text("x")
            spelt = unicodedata.normalize("NFD", "GRÖßE")
            assert (tmp_path / spelt / "A.txt").read_text() == "x"
            assert os.listdir(tmp_path) == ["Größe"]
            with pytest.raises(FileExistsError):
                (tmp_path / spelt).mkdir()


# ---- Windows ----


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "checkpoint"])
def test_every_writer_writes_and_replaces_on_windows(
    name: str, tmp_path: Path, saved: Path
) -> None:
    """Nothing that flawsort reads or writes stays open in the way, and no name is forbidden."""
    parts, place = tmp_path / "parts", tmp_path / "here"
    parts.mkdir()
    place.mkdir()
    writer = all_writers(parts, saved)[name]
    writer.begin(place)
    with windows(place) as system:
        for version in (0, 1) if writer.replaces else (0,):
            writer.write(place, version)
            assert writer.read(place) is not None
    assert system.refused == []
    left = [path.name for path in place.rglob(".*") if path.name != ".flawsort-export.json"]
    assert left == []


class TestStorageOnWindows:
    def test_a_file_that_is_open_is_not_replaced_but_whole(
        self, here: Windows, impatient: None
    ) -> None:
        write_whole(here.folder / "x", "old")
        with (here.folder / "x").open("rb"), pytest.raises(PermissionError):
            write_whole(here.folder / "x", "new")
        assert contents(here.folder) == {"x": b"old"}

    def test_a_path_that_is_too_long_is_called_so(self, here: Windows) -> None:
        """Windows itself says that there is no such file."""
        deep = here.folder / ("a" * 120) / ("b" * 100)
        why = r"takes 259 unless its setting LongPathsEnabled allows more"
        with pytest.raises(OSError, match=why):
            write_whole(deep / ("c" * 40), "new", parents=True)
        with pytest.raises(OSError, match=why), new_folder(deep / ("c" * 10)):
            pass
        with pytest.raises(OSError, match=why), new_folder(deep.parent / "x") as folder:
            (folder / ("c" * 150)).touch()
        assert contents(here.folder) == {}
        with pytest.raises(FileNotFoundError):  # not every one is too long
            write_whole(here.folder / "none" / "x", "new")

    def test_it_is_waited_for(self, here: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
        """As for a virus scanner."""
        write_whole(here.folder / "x", "old")
        reader = (here.folder / "x").open("rb")
        monkeypatch.setattr(storage.time, "sleep", lambda seconds: reader.close())
        write_whole(here.folder / "x", "new")
        assert contents(here.folder) == {"x": b"new"}

    def test_read_only_files_do_not_stay(self, here: Windows, impatient: None) -> None:
        with new_folder(here.folder / "x") as folder:
            (folder / "photo").write_text("")
            (folder / "photo").chmod(0o444)
        with new_folder(here.folder / "x") as folder:
            (folder / "other").touch()
        assert contents(here.folder) == {"x/other": b""}

    def test_one_worker_at_a_time(self, here: Windows) -> None:
        with sole_worker(here.folder / "run") as first:
            with sole_worker(here.folder / "run") as second:
                assert (first, second) == (True, False)
            clear_left_overs(here.folder)  # it is in use
            assert len(contents(here.folder)) == 1
        assert contents(here.folder) == {}
        with sole_worker(here.folder / "run") as again:
            assert again

    def test_a_replacement_that_was_killed_between_its_two_moves(self, tmp_path: Path) -> None:
        """Windows exchanges no folders, so the old one is away for a moment."""
        other = os.getppid()
        for alive in (True, False):
            with windows(tmp_path, alive=lambda process, alive=alive: alive):
                old = beside(tmp_path / "run", "old")
                old = old.with_name(old.name.replace(f"-{os.getpid()}-", f"-{other}-"))
                old.mkdir(exist_ok=True)
                recover(tmp_path / "run")
                assert (tmp_path / "run").exists() == (not alive)
                shutil.rmtree(old, ignore_errors=True)

    def test_left_overs_of_the_dead_go(self, tmp_path: Path) -> None:
        for alive in (True, False):
            with windows(tmp_path, alive=lambda process, alive=alive: alive):
                name = f".x.partial-{temporaries._machine()}-{os.getppid()}-0"
                (tmp_path / name).touch()
                clear_left_overs(tmp_path)
                assert (tmp_path / name).exists() == alive

    def test_files_are_flushed_through_a_handle_that_may_write(
        self, here: Windows, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        modes = []

        def sync(file: int) -> None:
            modes.append(fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE)

        monkeypatch.setattr(durable, "_sync", sync)
        with new_file(here.folder / "x") as partial:
            partial.write_text("")
        assert modes == [os.O_RDWR]  # a folder cannot be opened

    def test_the_memory(self, here: Windows) -> None:
        assert machine.memory() == 16 * 2**30


class TestRunsOnWindows:
    def test_a_run_is_replaced(self, here: Windows, saved: Path, impatient: None) -> None:
        folder = copied(saved, here.folder)
        again = replace(open_run(saved), manifest={**open_run(saved).manifest, "seed": 7})
        save_run(again, folder, overwrite=True)
        assert open_run(folder).manifest["seed"] == 7
        assert [path.name for path in here.folder.iterdir()] == [folder.name]

    def test_a_run_under_review_stays_and_the_new_one_is_kept(
        self, here: Windows, saved: Path, impatient: None
    ) -> None:
        folder = copied(saved, here.folder)
        run = open_run(saved)
        with Session(folder) as session:
            session.edit("accept", {"images": [0]}, 0)
            with pytest.raises(RunError, match="could not be moved to") as refused:
                save_run(run, folder, overwrite=True, carried=True)
            session.edit("accept", {"images": [1]}, 1)
        with EditStore(folder / EDITS) as store:
            assert store.version() == 2
        kept = next(here.folder.glob(".*finished*"))
        assert str(kept) in str(refused.value)
        assert np.array_equal(open_run(kept).labels, run.labels)

    def test_the_review_keeps_nothing_open_but_the_edits(
        self, here: Windows, saved: Path, impatient: None
    ) -> None:
        """So a run that nobody has edited is replaced while the review shows it."""
        folder = copied(saved, here.folder)
        with closing_libraries():
            client = RunClient(make_app([folder], cache=here.folder / "cache"))
            before = client.state()
            assert client.api("images/0/thumbnail").status in (200, 404)
            assert [one for one in open_files() if one.is_relative_to(folder)] == []
            save_run(open_run(saved), folder, overwrite=True)
            assert client.state()["version"] == before["version"]
            assert client.edit("accept", images=[0]).status == 200

    @pytest.mark.parametrize("name", ["aux", "COM1", "con.monday", "monday."])
    def test_batches_have_names_for_every_system(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(OptionError, match="no name that Windows reserves"):
            check_name(tmp_path, name)

    def test_the_cache_goes_on_where_a_bag_is_in_use(self, here: Windows, impatient: None) -> None:
        bags = BagCache(here.folder, {})
        bag = Bag(np.zeros((6, 4), np.float16), (2, 3))
        for digest in ("one", "two"):
            bags.store(digest, bag)
        used = next(here.folder.rglob("*.bag"))
        with used.open("rb"):
            bags.store("one", bag)
            bags.store("two", bag)
            prune([(here.folder, ".bag")], 0)
            assert [path for path in here.folder.rglob("*.bag")] == [used]
        prune([(here.folder, ".bag")], 0)
        assert contents(here.folder) == {}


class TestExportsOnWindows:
    @pytest.mark.parametrize("format", [name for name in FORMATS if name != "book-pdf"])
    def test_hostile_names(self, format: str, tmp_path: Path) -> None:
        run = make_run(tmp_path / "parts", names=HOSTILE_NAMES, clusters=CLUSTERS)
        first = first_labelling(run)
        titled = zip(first.groups.items(), HOSTILE_TITLES, strict=False)
        groups = {group: replace(one, name=title) for (group, one), title in titled}
        labelling = replace(first, groups={**first.groups, **groups})
        place = tmp_path / "out"
        place.mkdir()
        output = place / f"all{FORMATS[format].suffix}"
        with windows(place) as system:
            for overwrite in (False, True):
                written = export_run(
                    run, labelling, format, output, choices=Choices(overwrite=overwrite)
                )
        assert system.refused == []
        assert written.paths
        assert [path for path in place.iterdir() if path != output] == []

    def test_read_only_photos_are_copied_to_files_that_can_be_removed(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "parts")
        for path in (tmp_path / "parts").iterdir():
            path.chmod(0o444)
        with windows(tmp_path / "out") as system:
            for _ in range(2):
                export_run(
                    run,
                    first_labelling(run),
                    "folders",
                    tmp_path / "out/all",
                    choices=Choices(overwrite=True),
                )
        assert system.refused == []
        copies = [path for path in (tmp_path / "out").rglob("*.png")]
        assert len(copies) == len(run)
        assert all(path.stat().st_mode & stat.S_IWRITE for path in copies)

    def test_links_need_a_privilege(self, here: Windows) -> None:
        run = make_run(here.folder / "parts")
        with pytest.raises(OptionError, match=r"privilege.*Copy images instead"):
            export_run(
                run,
                first_labelling(run),
                "folders",
                here.folder / "out",
                choices=Choices(link="link"),
            )
        assert not (here.folder / "out").exists()


# ---- macOS, and Windows too ----


class TestOneNameInAnyCase:
    def test_an_export_does_not_replace_the_images_that_it_is_made_of(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "first/Sorted")
        (tmp_path / "first/Sorted/.flawsort-export.json").write_text("{}")
        with one_name_in_any_case(tmp_path), pytest.raises(InputError, match="holds 12 of the"):
            export_run(
                run,
                first_labelling(run),
                "folders",
                tmp_path / "first/sorted",
                choices=Choices(overwrite=True),
            )
        assert len(list((tmp_path / "first/Sorted").glob("*.png"))) == len(run)

    @pytest.mark.parametrize("format", ["folders", "imagefolder", "yolo", "yolo-classify", "coco"])
    def test_names_that_differ_in_case_or_accents_stay_apart(
        self, format: str, tmp_path: Path
    ) -> None:
        names = ("A/same.png", "a/SAME.png", "ä.png", "a\u0308.png", "Ä.png", "b.png")
        run = make_run(tmp_path / "parts", names=names, regions=(), clusters=(0, 0, 0, 1, 1, 1))
        titles = ("Kratzer", "kratzer")
        first = first_labelling(run)
        groups = {
            group: replace(one, name=title)
            for (group, one), title in zip(first.groups.items(), titles, strict=True)
        }
        place = tmp_path / "out"
        place.mkdir()
        with one_name_in_any_case(place):
            export_run(run, replace(first, groups=groups), format, place / "all")
            assert len([path for path in place.rglob("*.png")]) == len(names)

    def test_lots_that_differ_in_case_are_two_batches(self, tmp_path: Path) -> None:
        with one_name_in_any_case(tmp_path):
            table = {"name": ["a"], "cluster": [-1]}
            for name in ("lot-a", "LOT-A"):
                keep(tmp_path, Kept(name, table, (b"jpeg",), {"at": "2026-01-01"}))
            assert sorted(os.listdir(tmp_path / "assigned")) == ["LOT-A-2", "lot-a"]

    def test_photos_are_found_once(self, plates: Path, tmp_path: Path) -> None:
        shutil.copytree(plates / "good", tmp_path / "Good")
        with one_name_in_any_case(tmp_path):
            found = find_images([tmp_path / "good"])
        assert len(found) == 10

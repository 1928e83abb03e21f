"""What `assign` and `evaluate` say: where they cannot write, and of one image."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from flawsort import OptionError
from flawsort.cli.actions import render_again
from flawsort.cli.assign_actions import check_table_path, show_assignment
from flawsort.cli.evaluate_actions import _show_reviewed, evaluate_run
from helpers import faults
from helpers.faults import Fault, watched
from helpers.plates import Cli, contents, write_plates


class TestTablePath:
    def test_a_place_that_cannot_be_written(
        self, tmp_path: Path, saved: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def closed(self: Path, *_: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))

        def never(*_: object, **__: object) -> None:
            raise AssertionError("it was begun")

        monkeypatch.setattr("flawsort.cli.assign_actions.assign_images", never)
        monkeypatch.setattr(Path, "open", closed)
        place = tmp_path / "new.csv"
        answer = cli("assign", tmp_path, "--run", saved, "-o", place)
        assert answer.code == 2
        told = f"Cannot write '{place}': Permission denied. Choose another place with -o."
        assert told in answer.err

    def test_a_file_that_cannot_be_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = tmp_path / "old.csv"
        place.write_text("kept")
        monkeypatch.setattr("os.access", lambda *_: False)
        with pytest.raises(OptionError, match=r"Cannot write .*old.csv': Permission denied"):
            check_table_path(place)
        assert place.read_text() == "kept"

    def test_it_leaves_everything_as_it_is(self, tmp_path: Path) -> None:
        old, new, link = (tmp_path / name for name in ("old.csv", "new.parquet", "link.csv"))
        old.write_text("kept")
        link.symlink_to(tmp_path / "elsewhere.csv")
        for place in (None, old, new, link):
            check_table_path(place)
        assert old.read_text() == "kept"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "old.csv"]
        (tmp_path / "folder.csv").mkdir()
        with pytest.raises(OptionError, match=r"folder.csv' is a folder. Name a file"):
            check_table_path(tmp_path / "folder.csv")


class TestAssignment:
    def test_one_image(self, tmp_path: Path, saved: Path, cli: Cli) -> None:
        write_plates(tmp_path / "one", ["dent"])
        answer = cli("assign", tmp_path / "one", "--run", saved, "-q", "--no-cache")
        assert answer.code == 0, answer.err
        assert answer.out.startswith("1 image sorted into the groups of ")
        assert not answer.out.endswith("\n\n")

    def test_every_table_is_set_off(self, tmp_path: Path, saved: Path, cli: Cli) -> None:
        write_plates(tmp_path / "new" / "a", ["dent", "streak"])
        write_plates(tmp_path / "new" / "b", ["streak"])
        line = ("assign", tmp_path / "new", "--run", saved, "--by", "folder", "-q", "--no-cache")
        answer = cli(*line, "-o", tmp_path / "t.csv")
        assert answer.code == 0, answer.err
        blocks = answer.out.split("\n\n")
        begin = [block.split()[0] for block in blocks]
        assert begin == ["3", "cluster", "name", "folder", "Table:"]

    @pytest.mark.parametrize(
        ("sizes", "said"),
        [
            ([1], "1 proposed, of 1 image."),
            ([4], "1 proposed, of 4 images."),
            ([3, 1], "2 proposed, of 3 and 1 images."),
            ([5, 3, 2], "3 proposed, of 5, 3 and 2 images."),
        ],
    )
    def test_new_kinds(
        self, capsys: pytest.CaptureFixture[str], sizes: list[int], said: str
    ) -> None:
        rise = {"group": -1, "period": "today", "count": 1, "expected": 0.0}
        result: dict[str, Any] = {
            "run": "run", "n_images": 0, "counts": {"-1": 1}, "titles": {"-1": "New kind"},
            "images": [], "periods": {}, "by": "day", "rises": [rise], "new_kinds": sizes,
            "set_aside": [], "kept": None,
        }  # fmt: skip
        show_assignment(result, None)
        out = capsys.readouterr().out
        assert f"New kinds: {said}\n" in out
        assert "in today: 1 image, 0.0 expected" in out


class TestEvaluation:
    def test_a_run_that_cannot_be_written(self, tmp_path: Path, saved: Path) -> None:
        shutil.copytree(saved, tmp_path / "run")
        (tmp_path / "truth.csv").write_text("path,label\ndent00.png,dent\nstreak07.png,streak\n")
        told = r"Cannot write '.*run/evaluation.json': Permission denied\. .* evaluate the copy\.$"
        closed = Fault(tmp_path, faults.error("EACCES"), 0)
        with watched(closed), pytest.raises(OptionError, match=told):
            evaluate_run(tmp_path / "run", tmp_path / "truth.csv")

    @pytest.mark.parametrize(
        ("n", "said"),
        [
            (1, "for 1 label spent; the tree alone needs 1 group for that. 1 image is confirmed."),
            (2, "2 labels spent; the tree alone needs 2 groups for that. 2 images are confirmed."),
        ],
    )
    def test_as_reviewed(self, capsys: pytest.CaptureFixture[str], n: int, said: str) -> None:
        _show_reviewed(
            {"purity": 1, "nmi": 1, "labels_spent": n, "labels_of_the_tree": n, "n_confirmed": n}
        )
        assert said in capsys.readouterr().out


class TestHeatMaps:
    def test_each_is_whole_or_not_there(self, tmp_path: Path, saved: Path) -> None:
        render_again(saved, tmp_path / "page.html", tmp_path / "whole")
        whole = contents(tmp_path / "whole")
        full = Fault(tmp_path / "maps", faults.error("ENOSPC"), 10)
        told = "Cannot write the heat map '.*png': No space left on device"
        with watched(full), pytest.raises(OptionError, match=told):
            render_again(saved, tmp_path / "page.html", tmp_path / "maps")
        found = contents(tmp_path / "maps")
        assert 0 < len(found) < len(whole)
        assert found.items() <= whole.items()

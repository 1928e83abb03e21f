"""The command `flawsort assign`: JSON, tables, text, what is kept, and odd names."""

from __future__ import annotations

import csv
import errno
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import arro3.io
import pytest
import typer
from PIL import Image

import flawsort
from flawsort import OptionError
from flawsort.cli import app
from flawsort.cli.assign import check_table_path
from flawsort.cli.assign_summary import show_assignment
from flawsort.runs.assigned import open_kept
from flawsort.scores.engines import CpuEngine
from helpers.command_line import SMALL
from helpers.plates import KINDS, MAIN, Cli, contents, run_code, write_plates

SHARED = (
    "device", "arithmetic", "glob", "runner", "address", "workers", "parts", "cache", "no_cache",
    "quiet", "as_json",
)  # fmt: skip
ASSIGNED = {
    "name", "path", "sha256", "group", "probability", "decided", "verdict", "cluster", "kinds",
    "nearest", "runner_up", "novelty", "score", "looks_normal", "period", "proposal", "x", "y",
    "width", "height", "match", "match_down", "match_across",
}  # fmt: skip


class TestAssign:
    def test_json(self, here: Path, cli: Cli) -> None:
        answer = cli("assign", "parts", "--run", "run", "-q", "--json")
        assert (answer.code, answer.err) == (0, "")
        told = json.loads(answer.out)
        assert told.keys() == {
            "run", "n_images", "kept", "by", "periods", "rises", "new_kinds", "counts", "taught",
            "threshold", "verdicts", "notes", "set_aside", "images",
        }  # fmt: skip
        assert (told["kept"], told["by"], told["new_kinds"]) == (None, "day", [])
        assert (told["taught"], told["threshold"]) == (0, None)
        assert told["counts"] == {"Group 0": 7, "Group 1": 7}
        assert told["verdicts"] == {"OK": 0, "not OK": 0, "": 14}
        assert told["images"][0].keys() == ASSIGNED
        table = flawsort.open_run("run").table
        assert [row["cluster"] for row in told["images"]] == table["cluster"]
        assert [row["score"] for row in told["images"]] == pytest.approx(table["score"])
        assert Path(told["images"][0]["path"]).is_absolute()

    def test_kept_and_counted_by_lot(self, here: Path, cli: Cli) -> None:
        lots = "".join(f"{kind}{i:02d}.png,lot {i % 2}\n" for i, kind in enumerate(KINDS))
        (here / "lots.csv").write_text("name,lot\n" + lots)
        line = ("assign", "parts", "--run", "run", "-q", "--keep", "monday", "--by", "lots.csv")
        answer = cli(*line)
        assert (answer.code, answer.err) == (0, "")
        assert re.search(r"lots.csv +Group 0 +Group 1", answer.out)
        assert re.search(r"lot 0 +4 +3\n", answer.out)
        assert answer.out.endswith("Kept: run/assigned/monday\nNext: flawsort review run\n")
        kept = open_kept(here / "run", "monday")
        assert kept.table.keys() == ASSIGNED
        assert kept.table["period"] == [f"lot {i % 2}" for i in range(14)]
        assert len(kept.thumbnails) == 14
        run = flawsort.open_run("run")
        assert kept.vectors is not None
        assert kept.vectors.shape == run.embeddings.shape
        assert abs(kept.vectors - run.embeddings).max() < 2e-3
        assert all(one.startswith(b"\xff\xd8") for one in kept.thumbnails)
        assert kept.about["by"] == "lots.csv"
        before = contents(here / "run")
        for option, word in (("monday", "already keeps"), ("../x", "--keep must be letters")):
            answer = cli("assign", "parts", "--run", "run", "-q", "--keep", option)
            assert answer.code == 2
            assert word in answer.err
        answer = cli("assign", "parts", "--run", "run", "-q", "--by", "nothing.csv")
        assert answer.code == 2
        assert (
            "--by must be day, week, month, folder or a CSV file that exists. Got 'nothing.csv'"
            in answer.err
        )
        assert contents(here / "run") == before

    def test_new_kinds_are_proposed(self, here: Path, cli: Cli) -> None:
        for number in range(3):
            Image.new("RGB", (64, 64), (9, 250, 30 + number)).save(here / f"green{number}.png")
        told = json.loads(
            cli("assign", "green0.png", "green1.png", "one", "-r", "run", "-q", "--json").out
        )
        assert told["counts"]["new kind"] >= 2
        assert sum(told["new_kinds"]) == told["counts"]["new kind"]
        green = [row for row in told["images"] if row["name"].startswith("green")]
        assert {row["proposal"] for row in green} == {0}
        known = [row for row in told["images"] if row["cluster"] >= 0]
        assert all(row["proposal"] == -1 for row in known)
        answer = cli("assign", "green0.png", "green1.png", "one", "-r", "run", "-q")
        assert re.search(r"\n\d images fit no group of the run; they look like", answer.out)

    @pytest.mark.parametrize("arithmetic", ["float32", "int8"])
    def test_device_and_arithmetic(
        self, here: Path, cli: Cli, arithmetic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        used: list[str] = []
        real = CpuEngine.fold_references

        def watched(self: CpuEngine, *others: Any, **options: Any) -> Any:
            used.append(self.name)
            return real(self, *others, **options)

        monkeypatch.setattr(CpuEngine, "fold_references", watched)
        assert cli("cluster", "parts", "-o", "new", "-k", "2", *SMALL).code == 0
        line = ("--device", "cpu", "--arithmetic", arithmetic, "-q", "--json")
        told = json.loads(cli("assign", "parts", "-r", "new", *line).out)
        assert len(used) == 1
        assert used[0].endswith(arithmetic)
        model = flawsort.AnomalyClusterer.load("new", device="cpu", arithmetic=arithmetic)
        _, found, _ = model.assign("parts")
        assert [row["novelty"] for row in told["images"]] == found.novelty.tolist()

    def test_options_mean_the_same_for_both_commands(self) -> None:
        group = typer.main.get_command(app)
        told = []
        for name in ("cluster", "assign"):
            parser = group.commands[name]  # type: ignore[attr-defined]
            options = {one.name: (one.opts, one.help, one.default) for one in parser.params[1:]}
            told.append([options[key] for key in SHARED])
        assert told[0] == told[1]
        assert told[0][0][0] == ["--device"]

    def test_progress(self, here: Path, cli: Cli) -> None:
        answer = cli("assign", "parts", "-r", "run", "--no-cache")
        lines = answer.err.splitlines()
        assert lines[0] == "sorting: 0 of 14"
        assert lines[-1].startswith("sorting: 14 of 14")

    def test_tables(self, here: Path, cli: Cli) -> None:
        told = json.loads(cli("assign", "parts", "-r", "run", "-q", "--json").out)["images"]
        answer = cli("assign", "parts", "-r", "run", "-q", "-o", "new.csv")
        assert answer.out.endswith("Table: new.csv\nNext: flawsort review run\n")
        cli("assign", "parts", "-r", "run", "-q", "-o", "new.parquet")
        with (here / "new.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert rows[0].keys() == ASSIGNED
        table = arro3.io.read_parquet(here / "new.parquet").read_all()
        for name in ASSIGNED:
            values = table.column(name).to_pylist()
            assert values == [row[name] for row in told]
            if isinstance(values[0], float):
                assert [float(row[name]) for row in rows] == pytest.approx(values, rel=1e-5)
            else:
                words = {None: "", True: "true", False: "false"}
                shown = [
                    words[one] if one in (None, True, False) and type(one) is not int else str(one)
                    for one in values
                ]
                assert [row[name] for row in rows] == shown

    def test_text(self, here: Path, cli: Cli) -> None:
        (here / "bad.png").write_text("no image")
        answer = cli("assign", "good", "one", "bad.png", "--run", "run", "-q")
        assert answer.code == 0
        assert "11 images sorted into the groups of run." in answer.out
        assert re.search(r"\n +normal +10\n", answer.out) or re.search(
            r"\nnormal +10\n", answer.out
        )
        assert "new kind" not in answer.out.split("Nobody has taught")[0]
        assert "dent00.png" in answer.out
        assert "Set aside: bad.png: not an image" in answer.out

    @pytest.mark.skipif(sys.platform != "linux", reason="names must be text there")
    def test_names_that_are_no_text(self, here: Path, plates: Path, cli: Cli) -> None:
        (here / "odd").mkdir()
        for place, kind in enumerate(("dent00", "streak07")):
            name = b"odd/%d\xff.png" % place
            shutil.copy(plates / "parts" / f"{kind}.png", name.decode("utf-8", "surrogateescape"))
        told = cli("assign", "odd", "--run", "run", "-q", "--json", "-o", "odd.csv")
        assert told.code == 0
        assert [row["name"] for row in json.loads(told.out)["images"]] == [
            "0\\udcff.png",
            "1\\udcff.png",
        ]
        answer = cli("cluster", "odd", "-o", "new", "-k", "2", *SMALL)
        assert (answer.code, answer.err) == (0, "")

    def test_a_terminal_that_has_only_ascii(self, here: Path, plates: Path) -> None:
        (here / "é😀").mkdir()
        shutil.copy(plates / "parts" / "dent00.png", here / "é😀" / "ü.png")
        answer = run_code(
            MAIN, "assign", "é😀", "--run", "run", "-q", PYTHONIOENCODING="ascii", PYTHONUTF8="0"
        )
        assert (answer.code, answer.err) == (0, "")
        assert "\\xfc.png" in answer.out


class TestTablePath:
    def test_a_place_that_cannot_be_written(
        self, tmp_path: Path, saved: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def closed(self: Path, *_: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))

        def never(*_: object, **__: object) -> None:
            raise AssertionError("it was begun")

        monkeypatch.setattr("flawsort.cli.assign.assign_images", never)
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


class TestSummary:
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
        assert begin == ["3", "group", "name", "folder", "Table:"]

    @pytest.mark.parametrize(
        ("sizes", "said"),
        [
            ([1], "1 image fits no group of the run."),
            ([4], "4 images fit no group of the run; they look like one new kind."),
            (
                [3, 1],
                "4 images fit no group of the run; they look like 2 new kinds, of 3 and 1 images.",
            ),
            ([5, 3, 2], "they look like 3 new kinds, of 5, 3 and 2 images."),
        ],
    )
    def test_new_kinds(
        self, capsys: pytest.CaptureFixture[str], sizes: list[int], said: str
    ) -> None:
        rise = {"group": "new kind", "period": "today", "count": 1, "expected": 0.0}
        result: dict[str, Any] = {
            "run": "run", "n_images": 0, "counts": {"new kind": 1}, "taught": 0, "threshold": None,
            "images": [], "periods": {}, "by": "day", "rises": [rise], "new_kinds": sizes,
            "notes": [], "set_aside": [], "kept": None,
        }  # fmt: skip
        show_assignment(result, None)
        out = capsys.readouterr().out
        assert f"{said}\n" in out
        assert "More frequent: new kind in today: 1 image, 0.0 expected.\n" in out

    @pytest.mark.parametrize(
        ("n", "said"),
        [
            (1, "1 image with a group is unlike the images of the run (novelty above 1). "),
            (2, "2 images with a group are unlike the images of the run (novelty above 1). "),
        ],
    )
    def test_groups_of_images_that_are_unlike_the_run(
        self, capsys: pytest.CaptureFixture[str], n: int, said: str
    ) -> None:
        usual = {"name": "a.png", "group": "dent", "probability": 0.9, "score": 1.0, "novelty": 0.5,
                 "cluster": 0, "decided": False}  # fmt: skip
        strange = usual | {"cluster": -1, "novelty": 2.1}
        others = [strange | {"group": "new kind"}, strange | {"probability": None}]
        result: dict[str, Any] = {
            "run": "run", "n_images": 3 + n, "counts": {"dent": 2 + n, "new kind": 1}, "taught": 1,
            "threshold": None, "images": [usual, *others, *[strange] * n], "periods": {},
            "by": "day", "rises": [], "new_kinds": [1], "notes": [], "set_aside": [], "kept": None,
        }  # fmt: skip
        show_assignment(result, None)
        assert said in capsys.readouterr().out
        show_assignment(result | {"images": [usual, *others]}, None)
        assert "unlike" not in capsys.readouterr().out

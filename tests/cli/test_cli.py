"""The command line: exit codes, one line for an error, JSON for scripts, text for people."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import arro3.io
import pytest
import typer
from PIL import Image

import flawsort
from flawsort import View
from flawsort.backbones import NETWORKS, catalogue
from flawsort.cli import KEPT, LEFT, app, console
from flawsort.cli import sample_images as demo
from flawsort.cli.actions import show_backbones, show_clusters
from flawsort.images.view import thumbnail
from flawsort.runs.assigned import open_kept
from flawsort.scores.engines import CpuEngine
from helpers.plates import (
    KINDS,
    MAIN,
    STALLING_MAIN,
    Answer,
    Cli,
    contents,
    run_code,
    start,
    write_plates,
)

SMALL = ("--image-size", "64", "-q")
IMAGE = {
    "name", "path", "sha256", "cluster", "kinds", "score", "distance", "typicality", "runner_up",
    "runner_up_distance", "flags",
}  # fmt: skip
ASSIGNED = {
    "name", "path", "sha256", "cluster", "title", "kinds", "confidence", "nearest", "runner_up",
    "novelty", "score", "period", "proposal",
}  # fmt: skip
EVALUATION = {
    "nmi", "ari", "f1", "f1_micro", "purity", "classes", "clusters", "confusion", "n_evaluated",
    "excluded", "true_k", "at_true_k", "truth", "several_kinds",
}  # fmt: skip


@pytest.fixture
def here(plates: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with parts/, good/, a run/ and things that are no use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").symlink_to(plates / "parts")
    (tmp_path / "good").symlink_to(plates / "good")
    shutil.copytree(saved, tmp_path / "run")
    (tmp_path / "empty").mkdir()
    write_plates(tmp_path / "one", ["dent"])
    (tmp_path / "text.onnx").write_text("not a network")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "manifest.json").write_text('{"name": "a web application"}')
    (tmp_path / "labels.csv").write_text("path,label\nelsewhere.png,dent\n")
    (tmp_path / "truth.csv").write_text(
        "path,label\n" + "".join(f"{kind}{i:02d}.png,{kind}\n" for i, kind in enumerate(KINDS))
    )
    return tmp_path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes standard output a terminal of so many columns."""

    def make(columns: int) -> None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    return make


def plain(text: str) -> str:
    """What a terminal shows, without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def assert_refused(answer: Answer, message: str) -> None:
    assert answer.code == 2
    assert answer.out == ""
    assert re.fullmatch(r"flawsort: [^\n]*\n", answer.err)
    assert message in answer.err


class TestErrors:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("cluster nowhere -o new", "'nowhere' does not exist. Check the path"),
            ("cluster empty -o new", "No images under 'empty/'. Looked for .png, .jpg,"),
            ("cluster one -o new", "images are needed to group them."),
            ("cluster parts -o new -k 15", "must be between 2 and 14 (the number of images). Got"),
            ("cluster parts -o new -k 0", "--clusters must be at least 2. Got 0."),
            ("cluster parts -o new -k x", "--clusters must be auto or a whole number. Got 'x'."),
            ("cluster parts -o new --preset x", "--preset must be one of default, paper. Got 'x'"),
            ("cluster parts -o new --fit x", "--fit must be one of stretch, pad, crop. Got 'x'."),
            ("cluster parts -o new --roi x", "--roi must be left,top,right,bottom"),
            ("cluster parts -o new --roi 9,9,1,1", "with left < right and top < bottom."),
            ("cluster parts -o new --roi text.onnx", "The mask 'text.onnx' cannot be used"),
            ("cluster parts -o new --tile 0", "--tile must be like 2x3 (rows x columns) or 2"),
            ("cluster parts -o new --max-pixels 0", "--max-pixels must be at least 1. Got 0."),
            (
                "cluster parts -o new --workers 2",
                "--workers is of a Ray cluster, and runner 'local' has none",
            ),
            (
                "cluster parts -o new --cache x --no-cache",
                "--cache and --no-cache contradict each other: leave one out. Got --cache 'x'.",
            ),
            (
                "assign parts --run run --cache x --no-cache",
                "--cache and --no-cache contradict each other: leave one out. Got --cache 'x'.",
            ),
            ("cluster parts -o new --backbone no.onnx", "Cannot read the backbone file 'no.onnx'"),
            ("cluster parts -o new --backbone text.onnx", "is not an ONNX file that onnxruntime"),
            ("cluster parts -o new --backbone vgg", "backbone must be one of efficientnet-lite2"),
            ("cluster parts -o new --image-size 65", "must be a multiple of 32 between 32 and"),
            ("cluster parts -o new --seed x", "--seed must be a whole number. Got 'x'."),
            ("cluster parts -o new --seed=1.5", "--seed must be a whole number. Got '1.5'."),
            ("cluster parts -o new --image-size x", "--image-size must be a whole number. Got"),
            ("cluster parts -o new --max-pixels x", "--max-pixels must be a whole number. Got"),
            ("cluster parts -o new --workers x", "--workers must be a whole number. Got 'x'."),
            ("cluster parts -o new --temperature x", "--temperature must be a number. Got 'x'."),
            (
                "cluster parts -o new --absolute-temperature x",
                "--absolute-temperature must be a number. Got 'x'.",
            ),
            ("cluster parts -o new --nearest-share ,2", "--nearest-share must be a number. Got"),
            ("review run --port x", "--port must be a whole number. Got 'x'."),
            ("paper --list --tau x", "--tau must be a number. Got 'x'."),
            ("paper --list --seeds x", "--seeds must be a whole number. Got 'x'."),
            ("paper --list --split-seed x", "--split-seed must be a whole number. Got 'x'."),
            ("paper --list --image-size x", "--image-size must be a whole number. Got 'x'."),
            ("paper --list --deep-seeds x", "--deep-seeds must be a whole number. Got 'x'."),
            ("paper --list --deep-epochs x", "--deep-epochs must be a whole number. Got 'x'."),
            ("cluster parts -o new --weights x", "weights must be 'auto' or 'uniform'. Got 'x'."),
            ("cluster parts -n good -o new --weights uniform", "so normal images have no use"),
            ("cluster parts -o new --pooling x", "pooling must be 'residual' or 'average'."),
            ("cluster parts -o new --peers x", "--peers must be all or a whole number. Got 'x'."),
            ("cluster parts -o new --peers 1", "--peers must be 'all' or at least 2. Got 1."),
            ("cluster parts -o new --temperature inf", "greater than 0 and finite. Got inf."),
            ("cluster parts -o new --nearest-share 2", "--nearest-share must be greater than 0"),
            ("cluster parts -o new --seed -1", "--seed must be a whole number from 0."),
            ("cluster parts -o new --glob *.tif", "whose name matches '*.tif'"),
            ("cluster parts -o new --normal empty", "No images under 'empty/'."),
            ("cluster parts -o new --truth labels.csv", "None of the 14 images has a label among"),
            ("cluster parts -o run", "already holds a run. Name another one, or pass --overwrite"),
            ("cluster parts -o file", "The output 'file' is a file."),
            ("cluster parts -o one --overwrite", "holds files that are not a flawsort run."),
            ("cluster parts -o app --overwrite", "holds files that are not a flawsort run."),
            ("cluster parts -o file/new", "Cannot write to"),
            ("cluster parts --hlep", "No such option: --hlep"),
            ("cluster", "Missing argument 'IMAGES...'. Try 'flawsort cluster --help'."),
            ("report", "Missing argument 'RUN'."),
            ("cluster parts -o", "Option '-o' requires an argument."),
            (
                "sort parts",
                "No such command 'sort'. Did you mean 'report', 'export'? Try 'flawsort --help'.",
            ),
            ("assign parts", "Missing option '--run'"),
            ("assign parts --run empty", "'empty' is not a flawsort run: it has no manifest.json"),
            ("assign parts --run nowhere", "No run folder at 'nowhere'."),
            ("assign nowhere --run run", "'nowhere' does not exist."),
            ("assign parts --run run -o x.txt", "The table must be a .csv or .parquet file."),
            ("assign parts --run run -o no/x.csv", "There is no folder"),
            (
                "assign parts --run run --device tpu",
                "device must be cpu, cuda or cuda:N. Got 'tpu'.",
            ),
            ("assign nowhere --run run --device cpu --arithmetic x", "on cpu. Got 'x'."),
            ("evaluate run --truth labels.csv", "None of the 14 images has a label among the 1 of"),
            ("evaluate run --truth file", "must have a column path or name or file or image"),
            ("evaluate run --truth parts", "'parts' has no labels"),
            ("evaluate run --truth nowhere", "The truth 'nowhere' does not exist."),
            ("evaluate run", "Missing option '--truth'"),
            ("report one", "'one' is not a flawsort run"),
            ("report run -o no/page.html", "Cannot write 'no/page.html': No such file"),
            ("report run --heatmaps file", "Cannot write the heat map 'file/dent00.png.png'"),
            ("demo -o one", "The folder 'one' holds other files."),
            ("demo -o file", "The output 'file' is a file."),
        ],
    )
    def test_one_line_and_exit_code_2(self, here: Path, cli: Cli, line: str, message: str) -> None:
        before = contents(here)
        assert_refused(cli(*line.split()), message)
        after = contents(here)
        after.pop("run/report.html")
        assert {name: before[name] for name in after} == after
        assert not (here / "new").exists()

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("cluster nowhere -o new --debug", "'nowhere' does not exist."),
            ("--debug cluster parts --seed x", "--seed must be a whole number. Got 'x'."),
            ("cluster parts --hlep --debug", "No such option: --hlep"),
        ],
    )
    def test_debug_shows_the_traceback_too(
        self, here: Path, cli: Cli, line: str, message: str
    ) -> None:
        answer = cli(*line.split())
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("Traceback")
        assert message in answer.err.splitlines()[-1]

    def test_in_a_process_of_its_own(self, here: Path) -> None:
        answer = run_code(MAIN, "cluster", "nowhere", "-o", "new")
        assert_refused(answer, "'nowhere' does not exist.")

    @pytest.mark.parametrize(
        ("error", "code", "message"),
        [
            (OSError(28, "No space left on device", "x/y"), 2, "'x/y': No space left on device."),
            (OSError(28, "No space left on device"), 2, "flawsort: No space left on device."),
            (RuntimeError("odd\nthing"), 1, "unexpected RuntimeError: odd thing. This is a bug"),
            (KeyboardInterrupt(), 130, "interrupted. Embedded images are kept"),
        ],
    )
    def test_errors_that_are_not_ours(
        self,
        here: Path,
        cli: Cli,
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        code: int,
        message: str,
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("flawsort.cli.actions.cluster_images", fail)
        answer = cli("cluster", "parts", "-o", "new")
        assert answer.code == code
        assert message in answer.err
        assert answer.err.count("\n") == 1
        if code == 1:
            answer = cli("--debug", "cluster", "parts", "-o", "new")
            assert answer.code == code
            assert answer.err.startswith("Traceback")
            assert answer.err.endswith("This is a bug of flawsort; it happened as shown above.\n")

    @pytest.mark.parametrize(
        ("line", "work", "said"),
        [
            ("assign parts -r run", "cli.assign_actions.assign_images", KEPT),
            ("assign parts -r run --no-cache", "cli.assign_actions.assign_images", ""),
            ("cluster parts -o new --no-cache", "cli.actions.cluster_images", ""),
            ("demo -o new", "cli.sample_images.make_demo_images", KEPT),
            ("paper --list", "research.paper.run.listing", LEFT["paper"]),
            ("review run", "cli.review_actions.review", LEFT["review"]),
            ("report run", "cli.actions.render_again", ""),
            ("export run -f csv -o x.csv", "cli.export_actions.export", ""),
            ("evaluate run --truth truth.csv", "cli.evaluate_actions.evaluate_run", ""),
            ("backbones", "cli.actions.list_backbones", ""),
        ],
    )
    def test_what_an_interrupted_command_leaves(
        self,
        here: Path,
        cli: Cli,
        monkeypatch: pytest.MonkeyPatch,
        line: str,
        work: str,
        said: str,
    ) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(f"flawsort.{work}", interrupted)
        assert cli(*line.split()) == Answer(130, "", f"flawsort: interrupted.{said}\n")

    @pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for another process")
    def test_ctrl_c(self, here: Path) -> None:
        line = ("cluster", "parts", "-o", "new", "--no-cache", "--image-size", "64")
        # A shell may have started the tests with SIGINT ignored, which children inherit.
        listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        with start(listening + STALLING_MAIN, "embedding", *line) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "stalled\n"
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=60)
            finally:
                process.kill()
        assert (process.returncode, err) == (130, "flawsort: interrupted.\n")
        assert not (here / "new").exists()


class TestCluster:
    def test_json(self, here: Path, cli: Cli) -> None:
        answer = cli("cluster", "parts", "-n", "good", "-o", "new", "-k", "2", *SMALL, "--json")
        assert (answer.code, answer.err) == (0, "")
        told = json.loads(answer.out)
        assert told.keys() == {
            "run", "report", "mode", "n_images", "n_normals", "clusters", "warnings", "set_aside",
            "timings", "evaluation", "groups", "images",
        }  # fmt: skip
        assert (told["run"], told["n_images"], told["n_normals"]) == ("new", 14, 10)
        assert [entry["group"] for entry in told["groups"]] == [0, 1]
        assert sum(entry["n_images"] for entry in told["groups"]) == 14
        assert all(len(entry["typical"]) == 3 for entry in told["groups"])
        assert told["evaluation"] is None
        assert told["images"][0].keys() == IMAGE
        assert told["clusters"]["chosen"] == "given"
        assert Path(told["report"]).is_file()
        timings = json.loads((here / "new" / "manifest.json").read_text("utf-8"))["timings"]
        assert timings.keys() == {
            "find", "embed", "score", "regions", "cluster", "report", "total",
        }  # fmt: skip
        parts = sum(seconds for stage, seconds in timings.items() if stage != "total")
        assert 0 < timings["report"] < parts <= timings["total"] + 0.01  # each is rounded
        with (here / "new" / "images.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["cluster"] for row in rows] == [str(row["cluster"]) for row in told["images"]]

    def test_text(self, here: Path, cli: Cli) -> None:
        answer = cli(
            "cluster", "parts", "--normal", "good", "-o", "new", "-k", "2", "--image-size", "64",
            "--truth", "truth.csv",
        )  # fmt: skip
        assert answer.code == 0
        assert (
            "14 images and 10 known-good ones: compared with 640 known-good patches" in answer.out
        )
        assert re.search(r"group +images +mean score +most typical", answer.out)
        assert "Advice on the number of groups: " in answer.out
        assert "NMI 1.000, ARI 1.000, F1 1.000, with 2 groups for 2 kinds." in answer.out
        assert answer.out.endswith("Report: new/report.html\n")
        lines = answer.err.splitlines()
        last = {line.partition(":")[0]: line for line in lines}
        assert list(last)[-3:] == ["scoring", "measuring", "comparing"]
        assert last["scoring"].startswith("scoring: 4 of 4")
        assert last["measuring"].startswith("measuring: 14 of 14")
        assert last["comparing"].startswith("comparing: 14 of 14")
        assert all(re.match(r"[a-z ]+: [\d,]+ of [\d,]+", line) for line in lines)
        assert len(set(lines)) == len(lines)
        assert "\x1b" not in answer.out + answer.err

    def test_good_and_bad_files(self, here: Path, plates: Path, cli: Cli) -> None:
        shutil.copytree(plates / "parts", here / "mixed")
        whole = (here / "mixed" / "dent00.png").read_bytes()
        (here / "mixed" / "cut.png").write_bytes(whole[: len(whole) // 2])
        (here / "mixed" / "empty.png").touch()
        (here / "mixed" / "text.png").write_text("no image")
        (here / "mixed" / "link.png").symlink_to(here / "nowhere.png")
        (here / "mixed" / "notes.txt").write_text("not looked at")
        shutil.copytree(plates / "good", here / "known")
        (here / "known" / "link.png").symlink_to(here / "nowhere.png")
        line = ("cluster", "mixed", "--normal", "known", "-k", "2", *SMALL)
        answer = cli(*line, "-o", "new")
        assert (answer.code, answer.err) == (0, "")
        assert "Set aside: link.png: is a broken link" in answer.out
        assert "Set aside (known good): link.png: is a broken link" in answer.out
        told = json.loads(cli(*line, "-o", "other", "--json").out)
        reasons = {entry["name"]: entry["reason"] for entry in told["set_aside"]}
        assert reasons.keys() == {"cut.png", "empty.png", "text.png", "link.png"}
        assert reasons["empty.png"] == "is empty (0 bytes)"
        assert "truncated" in reasons["cut.png"]
        assert "not an image" in reasons["text.png"]
        assert told["n_images"] == 14
        page = (here / "new" / "report.html").read_text("utf-8")
        assert all(name in page for name in reasons)

    def test_choices_reach_the_manifest(self, here: Path, cli: Cli) -> None:
        answer = cli(
            "cluster", "parts", "-o", "new", "-k", "3", *SMALL, "--preset", "paper", "--peers", "5",
            "--absolute-temperature", "0.5", "--seed", "7", "--fit", "pad", "--roi", "0,0,1,0.5",
            "--tile", "1x2", "--no-cache", "--max-pixels", "99999",
        )  # fmt: skip
        assert answer.code == 0
        kept = json.loads((here / "new" / "manifest.json").read_text("utf-8"))["settings"]
        expected = {
            "preset": "own", "clusters": 3, "pooling": "average", "n_peers": 5, "temperature": None,
            "absolute_temperature": 0.5, "nearest_share": 1.0, "seed": 7, "fit": "pad",
            "roi": [0.0, 0.0, 1.0, 0.5], "tiles": [1, 2], "max_pixels": 99999,
        }  # fmt: skip
        assert {name: kept[name] for name in expected} == expected

    def test_uniform_needs_no_second_option(self, here: Path, cli: Cli) -> None:
        told = cli("cluster", "parts", "-o", "new", *SMALL, "--weights", "uniform", "--json")
        assert json.loads(told.out)["mode"] == "uniform"

    def test_overwrite(self, here: Path, cli: Cli) -> None:
        assert cli("cluster", "parts", "-o", "run", "-k", "3", *SMALL, "--overwrite").code == 0
        assert set(flawsort.open_run("run").table["cluster"]) == {0, 1, 2}

    def test_glob_and_list(self, here: Path, cli: Cli) -> None:
        line = ("-o", "new", "-k", "2", *SMALL, "--json", "--overwrite")
        assert json.loads(cli("cluster", "parts", "--glob", "s*", *line).out)["n_images"] == 7
        (here / "list.txt").write_text("parts/dent00.png\nparts/streak08.png\n# end\n")
        assert json.loads(cli("cluster", "list.txt", *line).out)["n_images"] == 2

    def test_of_one_there_is_one(self, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = flawsort.open_run(saved)
        run.manifest.update(n_images=1, n_normals=1)
        run.table["kinds"][:] = ["0;1"] + ["0"] * 13
        show_clusters(run, saved, {"nmi": 1, "ari": 1, "f1": 1, "clusters": [0], "true_k": 1})
        text = capsys.readouterr().out
        assert text.startswith("1 image and 1 known-good one: ")
        assert "\n1 of the images seems to show several kinds: " in text
        assert ", with 1 group for 1 kind.\n" in text


class TestAssign:
    def test_json(self, here: Path, cli: Cli) -> None:
        answer = cli("assign", "parts", "--run", "run", "-q", "--json")
        assert (answer.code, answer.err) == (0, "")
        told = json.loads(answer.out)
        assert told.keys() == {
            "run", "n_images", "kept", "by", "periods", "rises", "new_kinds", "counts", "titles",
            "set_aside", "images",
        }  # fmt: skip
        assert (told["kept"], told["by"], told["new_kinds"]) == (None, "day", [])
        assert told["counts"] == {"0": 7, "1": 7}
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
        assert answer.out.endswith(
            "Kept: run/assigned/monday; see them with flawsort review run.\n"
        )
        kept = open_kept(here / "run", "monday")
        assert kept.table.keys() == ASSIGNED
        assert kept.table["period"] == [f"lot {i % 2}" for i in range(14)]
        assert len(kept.thumbnails) == 14
        assert all(one.startswith(b"\xff\xd8") for one in kept.thumbnails)
        assert kept.about["by"] == "lots.csv"
        before = contents(here / "run")
        for option, word in (("monday", "already keeps"), ("../x", "must be letters")):
            answer = cli("assign", "parts", "--run", "run", "-q", "--keep", option)
            assert answer.code == 2
            assert word in answer.err
        answer = cli("assign", "parts", "--run", "run", "-q", "--by", "nothing.csv")
        assert answer.code == 2
        assert "a CSV file that exists. Got 'nothing.csv'" in answer.err
        assert contents(here / "run") == before

    def test_new_kinds_are_proposed(self, here: Path, cli: Cli) -> None:
        for number in range(3):
            Image.new("RGB", (64, 64), (9, 250, 30 + number)).save(here / f"green{number}.png")
        told = json.loads(
            cli("assign", "green0.png", "green1.png", "one", "-r", "run", "-q", "--json").out
        )
        assert told["counts"]["-1"] >= 2
        assert sum(told["new_kinds"]) == told["counts"]["-1"]
        green = [row for row in told["images"] if row["name"].startswith("green")]
        assert {row["proposal"] for row in green} == {0}
        known = [row for row in told["images"] if row["cluster"] >= 0]
        assert all(row["proposal"] == -1 for row in known)
        answer = cli("assign", "green0.png", "green1.png", "one", "-r", "run", "-q")
        assert "New kinds: 1 proposed, of " in answer.out

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
            told.append([options[key] for key in ("device", "arithmetic", "glob", "cache")])
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
        assert answer.out.endswith("Table: new.csv\n")
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
                assert [row[name] for row in rows] == [str(value) for value in values]

    def test_text(self, here: Path, cli: Cli) -> None:
        (here / "bad.png").write_text("no image")
        answer = cli("assign", "good", "one", "bad.png", "--run", "run", "-q")
        assert answer.code == 0
        assert "11 images sorted into the groups of run." in answer.out
        assert "New kind" in answer.out
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


class TestEvaluateAndReport:
    def test_the_evaluation_stays(self, here: Path, cli: Cli) -> None:
        answer = cli("evaluate", "run", "--truth", "truth.csv", "--json")
        assert (answer.code, answer.err) == (0, "")
        told = json.loads(answer.out)
        assert told.keys() == EVALUATION
        assert told["nmi"] == told["at_true_k"]["nmi"] == 1
        assert told["confusion"] == [[7, 0], [0, 7]]
        page = (here / "run" / "report.html").read_text("utf-8")
        assert "F1 micro" in page
        (here / "run" / "report.html").unlink()
        answer = cli("report", "run")
        assert (answer.code, answer.out) == (0, "Report: run/report.html\n")
        assert (here / "run" / "report.html").read_text("utf-8") == page
        assert json.loads((here / "run" / "evaluation.json").read_text("utf-8")) == told
        assert flawsort.open_run("run").table["name"][0] == "dent00.png"

    def test_text(self, here: Path, cli: Cli) -> None:
        (here / "some.csv").write_text(
            "name,class\ndent00.png,dent\nstreak07.png,streak\ndent01.png,combined\n"
        )
        answer = cli("evaluate", "run", "--truth", "some.csv")
        assert answer.code == 0
        assert re.search(r"if cut into the true number +2 +1\.000", answer.out)
        assert re.search(r"true kind +group 0 +group 1", answer.out)
        assert answer.out.endswith("2 of 14 images evaluated; left out: combined.\n")

    def test_images_of_several_kinds(self, here: Path, cli: Cli) -> None:
        (here / "some.csv").write_text(
            "name,class\ndent00.png,dent\nstreak07.png,streak\ndent01.png,dent; streak\n"
        )
        answer = cli("evaluate", "run", "--truth", "some.csv")
        assert answer.code == 0
        assert re.search(
            r"\nImages of several kinds: 1\. \d+% of their kinds are among", answer.out
        )
        assert "(50% by the group alone)" in answer.out
        assert answer.out.endswith("2 of 14 images evaluated.\n")
        told = json.loads((here / "run" / "evaluation.json").read_text("utf-8"))
        assert told["several_kinds"]["n_images"] == 1
        assert told["classes"] == ["dent", "streak"]

    def test_report_elsewhere_and_heat_maps(self, here: Path, cli: Cli) -> None:
        before = contents(here / "run")
        answer = cli("report", "run", "-o", "page.html", "--heatmaps", "maps", "--json")
        assert (answer.code, answer.err) == (0, "")
        assert json.loads(answer.out) == {"report": "page.html", "heat maps": "maps"}
        assert contents(here / "run") == before
        assert (here / "page.html").read_bytes() == before["report.html"]
        maps = sorted((here / "maps").iterdir())
        assert len(maps) == 14
        assert maps[0].name == "dent00.png.png"
        with Image.open(maps[0]) as picture:
            assert (picture.format, picture.mode) == ("PNG", "RGB")

    def test_heat_maps_of_images_that_are_gone(self, here: Path, cli: Cli) -> None:
        (here / "parts").unlink()
        shutil.copytree(here / "good", here / "parts")
        cli("cluster", "parts", "--glob", "*0[0-2]*", "-o", "new", "-k", "2", *SMALL)
        shutil.rmtree(here / "parts")
        assert cli("report", "new", "--heatmaps", "maps").code == 0
        assert len(list((here / "maps").iterdir())) == 3

    def test_padding_is_cold(self, here: Path, cli: Cli) -> None:
        (here / "wide").mkdir()
        for path in sorted((here / "parts").iterdir())[5:9]:
            with Image.open(path) as picture:
                picture.crop((0, 16, 64, 48)).save(here / "wide" / path.name)
        cli("cluster", "wide", "-n", "good", "-o", "new", "-k", "2", *SMALL, "--fit", "pad")
        cli("report", "new", "--heatmaps", "maps")
        assert len(list((here / "maps").iterdir())) == 4
        for path in (here / "maps").iterdir():
            with Image.open(path) as picture:
                drawn = picture.crop((0, 0, 768, 40))
            plain = thumbnail(here / "wide" / path.stem, View(fit="pad"), (64, 64), 768)
            assert drawn.tobytes() == plain.crop((0, 0, 768, 40)).tobytes()


class TestTheRest:
    def test_backbones(self, cli: Cli) -> None:
        told = json.loads(cli("backbones", "--json").out)
        assert [entry["name"] for entry in told] == [*catalogue(), *NETWORKS]
        assert told[0].keys() == {
            "name", "file", "sha256", "licence", "origin", "input_size", "state", "dim", "grid",
            "bytes",
        }  # fmt: skip
        assert told[0]["state"] == "verified"
        text = cli("backbones").out
        assert told[0]["sha256"] in text
        assert "--backbone PATH.onnx" in text
        assert told[-1].keys() == {
            "name", "model", "licence", "input_size", "dim", "grid", "state",
        }  # fmt: skip
        assert all(name in text for name in NETWORKS)

    @pytest.mark.parametrize("columns", [60, 80])
    def test_backbones_on_a_terminal(
        self, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str], columns: int
    ) -> None:
        told = [
            {
                "name": name,
                "model": network.model,
                "licence": network.licence,
                "input_size": [256, 256],
                "dim": 1024,
                "grid": [32, 32],
                "state": "needs flawsort[torch]",
            }
            for name, network in NETWORKS.items()
        ]
        terminal(columns)
        show_backbones(told)
        text = plain(capsys.readouterr().out)
        lines = [line.rstrip() for line in text.splitlines()]
        assert text.count("needs flawsort[torch]") == 1
        for entry in told:
            start, end = f"{entry['name']} ", f"256 x 256   1024  32 x 32  {entry['licence']}"
            assert sum(line.startswith(start) and line.endswith(end) for line in lines) == 1
        assert "(no room here for model; --json has all)" in lines
        assert max(map(len, lines)) <= 80

    def test_version_and_help(self, cli: Cli) -> None:
        assert cli("--version") == Answer(0, f"flawsort {flawsort.__version__}\n", "")
        answer = cli()
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.startswith("Usage: flawsort [OPTIONS] COMMAND [ARGS]...\n")
        assert "\n  cluster " in answer.out
        assert cli("--help") == answer

    def test_help_names_every_pooling(self, cli: Cli) -> None:
        from flawsort.embeddings.pooling import POOLINGS

        text = " ".join(cli("cluster", "--help").out.split())
        for name, one in POOLINGS.items():
            assert f"{name} ({one.summary})" in text

    def test_help_names_every_format(self, cli: Cli) -> None:
        from flawsort.outputs.exports import FORMATS

        words = re.findall(r"[\w-]+", cli("export", "--help").out)
        assert set(FORMATS) <= set(words)

    @pytest.mark.parametrize(
        "command",
        [
            "cluster",
            "assign",
            "review",
            "export",
            "evaluate",
            "report",
            "backbones",
            "paper",
            "demo",
        ],
    )
    def test_help_is_for_people(self, cli: Cli, command: str) -> None:
        text = cli(command, "--help").out
        assert not re.search(r"[{}<>]|\b(TEXT|INTEGER|FLOAT|str|int)\b", text)
        usage = {
            "cluster": " IMAGES...",
            "assign": " IMAGES...",
            "paper": "",
            "backbones": "",
            "demo": "",
        }
        if command != "review":  # older parsers do not say that these may be left out
            assert text.splitlines()[0] == (
                f"Usage: flawsort {command} [OPTIONS]{usage.get(command, ' RUN')}"
            )

    def test_nothing_slow_is_imported_before_a_command_is_known(self) -> None:
        code = "import sys, flawsort.cli; print('numpy' in sys.modules)"
        assert run_code(code) == Answer(0, "False\n", "")

    def test_a_reader_that_has_seen_enough(self, here: Path) -> None:
        code = f"import os, sys; os.close(1); os.dup2(os.pipe()[1], 1); {MAIN}"
        process = start(code, "assign", "parts", "--run", "run", "--json", "-q")
        assert "Traceback" not in process.communicate(timeout=60)[1]


class TestDemo:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Seven images, which nobody groups."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("flawsort.cli.sample_images.KINDS", dict.fromkeys(demo.KINDS, 1))
        monkeypatch.setattr("flawsort.cli.sample_images.N_GOOD", 1)
        monkeypatch.setattr("flawsort.cli.run_cluster", lambda *_, **__: None)

    def test_goes_on_when_it_was_interrupted(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert cli("demo", "-o", "whole").code == 0
        real, made = demo._picture, []

        def interrupted(*given: Any) -> Image.Image:
            made.append(given)
            if len(made) == 3:
                raise KeyboardInterrupt
            return real(*given)

        with monkeypatch.context() as patch:
            patch.setattr("flawsort.cli.sample_images._picture", interrupted)
            answer = cli("demo", "-o", "new")
        assert (answer.code, len(list(Path("new/parts").iterdir()))) == (130, 2)
        answer = cli("demo", "-o", "new")
        assert (answer.code, answer.out) == (0, "")
        assert answer.err.splitlines()[0] == "making images: 0 of 7"
        assert answer.err.splitlines()[-1].startswith("making images: 7 of 7")
        assert contents(Path("new")) == contents(Path("whole"))
        assert cli("demo", "-o", "new", "-q") == Answer(0, "", "")  # nor is a finished one refused

    @pytest.mark.parametrize("truth", [None, "path,label\ndent00.png,dent\n", ""])
    def test_keeps_out_of_other_folders(self, cli: Cli, truth: str | None) -> None:
        Path("mine/parts").mkdir(parents=True)
        if truth is not None:
            Path("mine/truth.csv").write_text(truth)
        before = contents(Path("mine"))
        assert_refused(cli("demo", "-o", "mine"), "The folder 'mine' holds other files.")
        assert contents(Path("mine")) == before

    @pytest.mark.parametrize("what", ["edits.sqlite", "assigned"])
    def test_keeps_what_people_put_in(self, cli: Cli, what: str) -> None:
        assert cli("demo", "-o", "new", "-q").code == 0
        (Path("new/run") / what).mkdir(parents=True)
        answer = cli("demo", "-o", "new")
        assert_refused(answer, "would be removed with it. Name another folder with -o.")
        assert "--labels-from" not in answer.err


class TestTables:
    COLUMNS = ("name", "cluster", "title", "confidence", "score")
    ROWS = tuple((f"noise{i}.png", i, "a dent at the edge of it", 0.5, 1.25) for i in range(2))

    def lines(
        self, capsys: pytest.CaptureFixture[str], rows: Sequence[Sequence[object]] = ROWS
    ) -> list[str]:
        console.print_table("", self.COLUMNS, rows)
        return [line.rstrip() for line in plain(capsys.readouterr().out).splitlines()]

    def test_sentences_are_folded_and_nothing_else(
        self, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        terminal(60)
        assert self.lines(capsys) == [
            "name        cluster  title                 confidence  score",
            "noise0.png        0  a dent at the edge         0.500  1.250",
            "                     of it",
            "noise1.png        1  a dent at the edge         0.500  1.250",
            "                     of it",
        ]

    def test_the_last_columns_are_left_out(
        self, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        terminal(52)
        lines = self.lines(capsys)
        assert lines[0].split() == ["name", "cluster", "title", "confidence"]
        assert lines[1].endswith(" 0.500")
        assert lines[-1] == "(no room here for score; --json has all)"
        terminal(4)
        assert self.lines(capsys)[0] == "name"

    def test_a_long_name_leaves_room(
        self, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        terminal(80)
        lines = self.lines(capsys, [("x" * 100, 3, "dent", 0.5, 1.25)])
        assert lines[1] == "x" * 45 + "        3  dent        0.500  1.250"
        assert lines[2:] == ["x" * 45, "x" * 10]

    def test_without_a_terminal_every_row_is_a_line(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = self.lines(capsys, [("x" * 300, 3, "words " * 40, 0.5, 1.25)] * 3)
        assert len(lines) == 4
        assert lines[3].endswith(" 0.500  1.250")

    def test_names_of_columns_are_no_markup(self, capsys: pytest.CaptureFixture[str]) -> None:
        console.print_table("", ["day", "[red]dent\x1b[2J"], [["monday", 3]])
        assert capsys.readouterr().out.startswith("day     [red]dent\\x1b[2J")


class TestProgress:
    def test_plain_lines(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: now)
        with console.showing_progress(quiet=False) as progress:
            assert progress is not None
            progress("embedding", 20, 1000)
            now += 2
            progress("embedding", 40, 1000)  # too soon
            now += 8
            progress("embedding", 120, 1000)
            now += 88
            progress("embedding", 1000, 1000)
            progress("embedding", 1000, 1000)
            progress("scoring", 5, 5)
        assert capsys.readouterr().err.splitlines() == [
            "embedding: 20 of 1,000",
            "embedding: 120 of 1,000, 10.0 a second, 1:28 left",
            "embedding: 1,000 of 1,000, 10.0 a second, 98.0 s",
            "scoring: 5 of 5",
        ]

    def test_quiet(self) -> None:
        with console.showing_progress(quiet=True) as progress:
            assert progress is None

    def test_live(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        with console.showing_progress(quiet=False) as progress:
            assert progress is not None
            for done in range(11):
                progress("embedding", done, 10)
        shown = capsys.readouterr().err
        assert "embedding" in shown
        assert "10/10" in shown

"""The command `flawsort cluster`: JSON for scripts, text for people, its choices, its help."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

import flawsort
from flawsort.cli.cluster_summary import show_clusters
from flawsort.embeddings.heat import NORMAL_PRECISION
from flawsort.embeddings.pooling import POOLINGS
from flawsort.runs.folder import prepared_output
from helpers.command_line import SMALL, assert_refused
from helpers.plates import Cli, plate

IMAGE = {
    "name", "path", "sha256", "group", "probability", "decided", "cluster", "kinds", "score",
    "distance", "typicality", "runner_up", "runner_up_distance", "flags", "match", "match_down",
    "match_across",
}  # fmt: skip


class TestCluster:
    def test_json(self, here: Path, cli: Cli) -> None:
        answer = cli("cluster", "parts", "-n", "good", "-o", "new", "-k", "2", *SMALL, "--json")
        assert (answer.code, answer.err) == (0, "")
        told = json.loads(answer.out)
        assert told.keys() == {
            "run", "report", "mode", "n_images", "n_normals", "clusters", "warnings", "set_aside",
            "timings", "evaluation", "groups", "images", "health",
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
            "find", "embed", "calibrate", "score", "regions", "cluster", "report", "total",
        }  # fmt: skip
        parts = sum(seconds for stage, seconds in timings.items() if stage != "total")
        assert 0 < timings["report"] < parts <= timings["total"] + 0.01  # each is rounded
        with (here / "new" / "images.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["cluster"] for row in rows] == [str(row["cluster"]) for row in told["images"]]

    def test_text(self, here: Path, cli: Cli) -> None:
        answer = cli(
            "cluster", "parts", "--normal", "good", "-o", "new", "-k", "2", "--image-size", "64",
            "--truth", "truth.csv", "--preset", "fast",
        )  # fmt: skip
        assert answer.code == 0
        assert (
            "14 images and 10 known-good ones: compared with 640 known-good patches" in answer.out
        )
        assert re.search(r"group +images +mean score +most typical", answer.out)
        assert "\nNumber of groups: 2. The images suggest " in answer.out
        assert "NMI 1.000, ARI 1.000, F1 1.000, with 2 groups for 2 kinds." in answer.out
        assert answer.out.endswith("Report: new/report.html\nNext: flawsort review new\n")
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

    def test_two_at_once(self, here: Path, cli: Cli) -> None:
        with prepared_output(here / "new", overwrite=False):
            answer = cli("cluster", "parts", "-o", "new", *SMALL)
        assert_refused(answer, "Another flawsort is making a run in 'new' at this moment. Wait ")
        assert not (here / "new").exists()

    def test_glob_and_list(self, here: Path, cli: Cli) -> None:
        line = ("-o", "new", "-k", "2", *SMALL, "--json", "--overwrite")
        assert json.loads(cli("cluster", "parts", "--glob", "s*", *line).out)["n_images"] == 7
        (here / "list.txt").write_text("parts/dent00.png\nparts/streak08.png\n# end\n")
        assert json.loads(cli("cluster", "list.txt", *line).out)["n_images"] == 2

    def test_help_begins_with_what_people_need(self, cli: Cli) -> None:
        text = cli("cluster", "--help").out
        headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
        assert headings == [
            "Arguments", "Options", "What is known already", "Looking at images",
            "Comparing images", "Memory and clusters of machines", "The paper's choices",
            "Output and scripts",
        ]  # fmt: skip
        sections = re.split(r"^\S.*:\n", text, flags=re.MULTILINE)[2:]
        named = [re.findall(r"^  (?:-\w, )?(--[\w-]+)", part, re.MULTILINE) for part in sections]
        assert named[0] == [
            "--normal", "--output", "--clusters", "--preset", "--labels-from", "--truth", "--roi",
            "--tile", "--device", "--overwrite",
        ]  # fmt: skip
        assert named[1] == ["--labels", "--examples"]
        assert all(named)
        assert named[-1][-1] == "--help"
        assert max(map(len, text.splitlines())) <= 80
        assert "\x1b" not in text

    def test_open(self, here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[str] = []
        monkeypatch.setattr("webbrowser.open", opened.append)
        assert cli("cluster", "parts", "-o", "new", "-k", "2", *SMALL, "--open").code == 0
        assert opened == [(here / "new" / "report.html").as_uri()]

    def test_help_names_every_pooling(self, cli: Cli) -> None:
        text = " ".join(cli("cluster", "--help").out.split())
        for name, one in POOLINGS.items():
            assert f"{name} ({one.summary})" in text

    def test_of_one_there_is_one(self, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = flawsort.open_run(saved)
        run.manifest.update(n_images=1, n_normals=1)
        run.table["kinds"][:] = ["0;1"] + ["0"] * 13
        show_clusters(run, saved, {"nmi": 1, "ari": 1, "f1": 1, "clusters": [0], "true_k": 1})
        text = capsys.readouterr().out
        assert text.startswith("1 image and 1 known-good one: ")
        assert "\n1 of the images seems to show several kinds of flaw: " in text
        assert ", with 1 group for 1 kind.\n" in text

    @pytest.mark.parametrize("group", [None, 1])
    def test_what_looks_normal_comes_with_how_often_that_was_wrong(
        self, saved: Path, capsys: pytest.CaptureFixture[str], group: int | None
    ) -> None:
        run = flawsort.open_run(saved)
        normal = [cluster == group for cluster in run.table["cluster"]]
        run.table["flags"][:] = ["looks-normal" if one else "" for one in normal]
        show_clusters(run, saved, None)
        text = " ".join(capsys.readouterr().out.split())
        assert (" looks normal " in text) == any(normal)
        assert (str(NORMAL_PRECISION) in text) == any(normal)


class TestKnown:
    """Start from labels of some images, and from examples."""

    @pytest.fixture
    def known(self, here: Path) -> Path:
        """The folder with known.csv, which names three dents and one good one of more/."""
        (here / "known.csv").write_text(
            "name,label\ndent00.png,hole\ndent01.png,hole\ndent02.png,hole\n"
            "good20.png,Good\ngood21.png,normal\ngood22.png,good\nelsewhere.png,hole\n"
        )
        (here / "more").mkdir()
        for number in range(20, 26):
            Image.fromarray(plate("good", number)).save(here / "more" / f"good{number}.png")
        return here

    def test_labels(self, known: Path, cli: Cli) -> None:
        line = ("cluster", "parts", "more", "-n", "good", "--labels", "known.csv", "-o", "new")
        answer = cli(*line, *SMALL)
        assert answer.code == 0, answer.err
        for group, n_images, decided in (("hole", 7, 3), ("normal", 6, 3), ("Group 2", 7, 0)):
            assert re.search(rf"^{group} +{n_images} +{decided} ", answer.out, re.MULTILINE)
        assert "\nNumber of groups: 3, 2 of them known and 1 new. Images that" in answer.out
        assert "Note: From known.csv: 6 labels of 2 kinds.\n" in answer.out
        assert "Note: 1 row of known.csv is about no image of this run, 'elsewhere.png'.\n" in (
            answer.out
        )
        called = {"dent": "hole", "good": "normal", "streak": "Group 2"}
        run = flawsort.open_run("new")
        assert run.table["group"] == [called[re.split(r"\d", name)[0]] for name in run.names]
        assert sum(run.table["decided"]) == 6
        assert {group.title: group.size for group in run.groups} == {
            "hole": 7, "normal": 6, "Group 2": 7,
        }  # fmt: skip
        # The same again replaces it, since nobody has edited it.
        told = json.loads(cli(*line, "--overwrite", *SMALL, "--json").out)
        assert [(one["group"], one["n_decided"], one["new"]) for one in told["groups"]] == [
            ("hole", 3, False), ("Group 2", 0, True), ("normal", 3, False),
        ]  # fmt: skip
        assert told["groups"][0]["looks_normal"] is False
        run.teach({"streak07.png": "line"})
        answer = cli(*line, "--overwrite", *SMALL)
        assert answer.code == 2
        assert "holds edits of reviewers, which would be lost" in answer.err

    def test_examples(self, known: Path, cli: Cli) -> None:
        for number in range(3):
            (known / "kinds" / "line").mkdir(parents=True, exist_ok=True)
            picture = Image.fromarray(plate("streak", 90 + number))
            picture.save(known / "kinds" / "line" / f"{number}.png")
        answer = cli(
            "cluster", "parts", "more", "-n", "good", "--labels", "known.csv", "--examples",
            "kinds", "-o", "new", *SMALL,
        )  # fmt: skip
        assert answer.code == 0, answer.err
        assert "Note: From kinds: 3 examples of 1 kind.\n" in answer.out
        run = flawsort.open_run("new")
        assert len(run) == 20  # examples are not grouped
        called = {"dent": "hole", "good": "normal", "streak": "line"}
        assert run.table["group"] == [called[re.split(r"\d", name)[0]] for name in run.names]
        # and the next run starts from all of this.
        again = cli("cluster", "parts", "-n", "good", "--labels-from", "new", "-o", "next", *SMALL)
        assert again.code == 0, again.err
        assert set(flawsort.open_run("next").table["group"]) == {"hole", "line"}

    @pytest.mark.parametrize(
        ("option", "message"),
        [
            (("--labels", "gone.csv"), "The labels 'gone.csv' do not exist. Check the path."),
            (("--labels", "labels.csv"), "such as 'elsewhere.png', is one of the 14 images"),
            (("--labels", "file"), "'file' must have a column path or name and a column label"),
            (("--examples", "gone"), "The examples 'gone' must be a folder that holds a folder "),
            (("--examples", "one"), "Got 1 image and no folder of images."),
        ],
    )
    def test_refuses(self, here: Path, cli: Cli, option: tuple[str, str], message: str) -> None:
        answer = cli("cluster", "parts", *option, "-o", "new", *SMALL)
        assert answer.code == 2
        assert message in answer.err
        assert not (here / "new").exists()

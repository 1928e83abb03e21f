"""The command `flawsort cluster`: JSON for scripts, text for people, its choices, its help."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

import flawsort
from flawsort.cli.cluster_summary import show_clusters
from flawsort.embeddings.pooling import POOLINGS
from helpers.command_line import SMALL
from helpers.plates import Cli

IMAGE = {
    "name", "path", "sha256", "cluster", "kinds", "score", "distance", "typicality", "runner_up",
    "runner_up_distance", "flags",
}  # fmt: skip


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

    def test_glob_and_list(self, here: Path, cli: Cli) -> None:
        line = ("-o", "new", "-k", "2", *SMALL, "--json", "--overwrite")
        assert json.loads(cli("cluster", "parts", "--glob", "s*", *line).out)["n_images"] == 7
        (here / "list.txt").write_text("parts/dent00.png\nparts/streak08.png\n# end\n")
        assert json.loads(cli("cluster", "list.txt", *line).out)["n_images"] == 2

    def test_help_begins_with_what_people_need(self, cli: Cli) -> None:
        text = cli("cluster", "--help").out
        headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
        assert headings == [
            "Arguments", "Options", "Looking at images", "Comparing images",
            "Memory and clusters of machines", "The paper's choices", "Output and scripts",
        ]  # fmt: skip
        sections = re.split(r"^\S.*:\n", text, flags=re.MULTILINE)[2:]
        named = [re.findall(r"^  (?:-\w, )?(--[\w-]+)", part, re.MULTILINE) for part in sections]
        assert named[0] == [
            "--normal", "--output", "--clusters", "--preset", "--labels-from", "--truth", "--roi",
            "--tile", "--device", "--overwrite",
        ]  # fmt: skip
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

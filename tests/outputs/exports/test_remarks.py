"""Severities and notes in exports: where they are, and that they do no harm."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flawsort import Run
from flawsort.labels.groups import Labelling
from flawsort.outputs.exports import export_run
from helpers.export_runs import NAMES, make_run, named
from helpers.html import Page

FORMULA = "=HYPERLINK(1)"
SCRIPT = "</p><script>alert(1)</script> -- ]]> & \u202f"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "parts")


@pytest.fixture
def labelling(run: Run) -> Labelling:
    """The first group is critical and has a note, and so have two images."""
    now = named(run, "dent", "streak")
    first = replace(now.groups[0], severity="critical", note=SCRIPT)
    groups = {**now.groups, 0: first, 1: replace(now.groups[1], severity="none")}
    return replace(now, groups=groups, notes={0: FORMULA, 6: SCRIPT})


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


def check(images: list[Any], severity: str, note: str, first: str = FORMULA) -> None:
    """images: by row."""
    assert [image[severity] for image in images] == ["critical"] * 5 + ["none"] * 4 + [""] * 3
    assert [image[note] for image in images] == [first, *[""] * 5, SCRIPT, *[""] * 5]


def test_csv(run: Run, labelling: Labelling, tmp_path: Path) -> None:
    export_run(run, labelling, "csv", tmp_path / "out")
    check(rows_of(tmp_path / "out/images.csv"), "severity", "note", "'" + FORMULA)
    groups = rows_of(tmp_path / "out/groups.csv")
    assert [row["severity"] for row in groups] == ["critical", "none", ""]
    assert [row["note"] for row in groups] == [SCRIPT, "", ""]


def test_folders(run: Run, labelling: Labelling, tmp_path: Path) -> None:
    export_run(run, labelling, "folders", tmp_path / "out")
    check(rows_of(tmp_path / "out/images.csv"), "severity", "note", "'" + FORMULA)


def test_coco(run: Run, labelling: Labelling, tmp_path: Path) -> None:
    export_run(run, labelling, "coco", tmp_path / "out")
    found = json.loads((tmp_path / "out/annotations/instances_default.json").read_text("utf-8"))
    check(found["images"], "flawsort_severity", "flawsort_note")
    severities = {one["name"]: one["flawsort_severity"] for one in found["categories"]}
    assert (severities["dent"], severities["streak"]) == ("critical", "none")


def test_imagefolder(run: Run, labelling: Labelling, tmp_path: Path) -> None:
    export_run(run, labelling, "imagefolder", tmp_path / "out")
    lines = (tmp_path / "out/train/metadata.jsonl").read_text("utf-8").splitlines()
    by_name = {one["name"]: one for one in map(json.loads, lines)}
    check([by_name[name] for name in NAMES], "severity", "note")


def test_label_studio(run: Run, labelling: Labelling, tmp_path: Path) -> None:
    export_run(run, labelling, "label-studio", tmp_path / "out")
    tasks = json.loads((tmp_path / "out/tasks.json").read_text("utf-8"))
    check([task["data"] for task in tasks], "severity", "note")


def test_book(run: Run, labelling: Labelling, tmp_path: Path) -> None:
    export_run(run, labelling, "book", tmp_path / "book.html")
    text = (tmp_path / "book.html").read_text("utf-8")
    words = Page(text).words()
    assert "<script>" not in text
    assert "critical" in words
    assert "no severity" in words
    assert "Note: </p><script>alert(1)</script>" in words


def test_a_group_without_images_that_has_a_note(
    run: Run, labelling: Labelling, tmp_path: Path
) -> None:
    alone = replace(labelling.groups[1], id=7, name="", note="only on Mondays")
    groups = {**labelling.groups, 7: alone}
    export_run(run, replace(labelling, groups=groups), "csv", tmp_path / "out")
    assert rows_of(tmp_path / "out/groups.csv")[-1]["note"] == "only on Mondays"

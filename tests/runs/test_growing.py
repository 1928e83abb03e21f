"""Batches that grow: what a journal of somebody else asks for is written nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from flawsort import RunError
from flawsort.core.temporaries import beside
from flawsort.runs.assigned import Kept, files_of, open_kept
from flawsort.runs.growing import grow
from helpers.plates import contents


def addition(*names: str) -> dict[str, bytes]:
    texts = {column: list(names) for column in ("name", "path", "sha256", "period")}
    numbers = {column: [0] * len(names) for column in ("cluster", "nearest", "proposal")}
    measures = {column: [0.5] * len(names) for column in ("novelty", "score")}
    table = {**texts, **numbers, **measures}
    about = {"at": "2026-01-01", "n_images": len(names)}
    return files_of(Kept("day", table, (b"",) * len(names), about))


def test_part_after_part_and_nothing_twice(tmp_path: Path) -> None:
    for number, part in ((1, 1), (1, 1), (2, 1), (2, 1), (3, 2)):
        grow(tmp_path, "day", part, number, addition(f"{number}.png"))
    assert open_kept(tmp_path, "day").table["name"] == ["1.png", "2.png", "3.png"]


def test_an_old_part_that_a_killed_process_was_removing_goes(tmp_path: Path) -> None:
    for number in (1, 2):
        grow(tmp_path, "day", 1, number, addition(f"{number}.png"))
    before = contents(tmp_path)
    old = beside(tmp_path / "assigned/day/part-00001", "partial")
    old.mkdir()
    (old / "table.parquet").touch()
    grow(tmp_path, "day", 1, 2, addition("2.png"))  # it is there already
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "part", "file"),
    [
        ("../../theirs", 1, "thumbnails.bin"),
        ("/theirs", 1, "thumbnails.bin"),
        ("", 1, "thumbnails.bin"),
        (".", 1, "thumbnails.bin"),
        ("day", 1, "../../../theirs"),
        ("day", 1, "/theirs"),
        ("day", 1, ".bashrc"),
        ("day", -1, "thumbnails.bin"),
        ("day", 100_000, "thumbnails.bin"),
    ],
)
@pytest.mark.parametrize("begun", [True, False])
def test_nothing_is_written_elsewhere(
    name: str, part: int, file: str, begun: bool, tmp_path: Path
) -> None:
    run = tmp_path / "a" / "run"
    run.mkdir(parents=True)
    if begun:
        grow(run, "day", 1, 1, addition("a.png"))
    before = contents(tmp_path)
    with pytest.raises(RunError, match="That is no batch of the run"):
        grow(run, name, part, 2, {**addition("b.png"), file: b"theirs"})
    assert contents(tmp_path) == before

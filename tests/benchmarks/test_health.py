"""benchmarks/health.py: what its planted faults show, when a finding is right, and its tables."""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort.core.records import ImageSet
from flawsort.health.record import Finding
from helpers.facts import GRID, N, made_facts

SIDE = 100


@pytest.fixture(scope="module")
def script(quality: ModuleType) -> ModuleType:
    return importlib.import_module("health")


@pytest.fixture(scope="module")
def faults(quality: ModuleType) -> ModuleType:
    return importlib.import_module("health_faults")


@pytest.fixture
def case(faults: ModuleType, tmp_path: Path) -> Any:
    """Ten grey pictures of two kinds."""
    paths = []
    for row in range(10):
        paths.append(tmp_path / f"{row}.png")
        Image.new("RGB", (SIDE, SIDE), (100 + row,) * 3).save(paths[-1])
    names = tuple(f"{row:04d}.jpg" for row in range(10))
    images = ImageSet(names, tuple(paths), tuple(map(str, range(10))))
    return faults.Case(images, None, ("good", "cut") * 5, (None,) * 10)


def planted(faults: ModuleType, name: str, case: Any, folder: Path) -> Any:
    (fault,) = [one for one in faults.FAULTS if one.name == name]
    empty = ImageSet((), (), ())
    return fault.plant(case, faults.Spare(empty, empty), folder)


def pixels(case: Any) -> list[np.ndarray]:
    return [np.asarray(Image.open(path)).astype(int) for path in case.images.sources]


def test_dust_lies_on_the_table_and_away_from_the_border(
    faults: ModuleType, case: Any, tmp_path: Path
) -> None:
    for before, after in zip(
        pixels(case), pixels(planted(faults, "dust on the table", case, tmp_path)), strict=True
    ):
        dusty = (np.abs(after - before).max(axis=2) > 60).nonzero()
        assert len(dusty[0]) > 10
        for side in dusty:
            assert side.min() >= 0.05 * SIDE
            assert side.max() <= 0.95 * SIDE
            assert not ((side > 0.2 * SIDE) & (side < 0.8 * SIDE)).any()


def test_three_images_are_odd(faults: ModuleType, case: Any, tmp_path: Path) -> None:
    odd = planted(faults, "3 odd images", case, tmp_path)
    sizes = [one.shape[:2] for one in pixels(odd)]
    assert sorted(sizes)[-3:] == [(2 * SIDE, 3 * SIDE)] * 3
    assert sizes.count((SIDE, SIDE)) == 7
    assert [size != (SIDE, SIDE) for size in sizes] == list(odd.half)


def test_half_of_each_kind_is_changed(faults: ModuleType, case: Any, tmp_path: Path) -> None:
    lots = planted(faults, "half brighter", case, tmp_path)
    brighter = [
        after.mean() - before.mean() > 10
        for before, after in zip(pixels(case), pixels(lots), strict=True)
    ]
    assert brighter == list(lots.half)
    for kind in ("good", "cut"):
        changed = sum(h for h, label in zip(lots.half, case.truth, strict=True) if label == kind)
        assert changed in (2, 3)
    assert {name.split("/")[0] for name in lots.images.names} == {"lot-1", "lot-2"}


def judged(script: ModuleType, *findings: Finding, fault: str = "as it is", **changes: Any) -> Any:
    """Two groups, each a kind, with masks where told."""
    facts = made_facts(image_scores=np.arange(N) % 2 + np.arange(N) / 1000)
    one = script.Judged(
        "plates", "normals", fault, facts, findings, ("good", "cut") * (N // 2), ("",) * N,
        (False,) * N, 0.1,
    )  # fmt: skip
    return dataclasses.replace(one, **changes)


def test_a_finding_about_heat_is_right_where_the_flaw_is_elsewhere(
    script: ModuleType, tmp_path: Path
) -> None:
    one = judged(script)
    row = 1
    down, across = divmod(int(one.facts.scores[row].argmax()), GRID[1])
    for there, wanted in ((True, False), (False, True)):
        mask = np.zeros(GRID, np.uint8)
        mask[down if there else (down + 8) % GRID[0], across] = 255
        path = tmp_path / f"{there}.png"
        Image.fromarray(mask).save(path)
        masks = tuple(str(path) if place == row else "" for place in range(N))
        finding = Finding("heat-at-border", "", "", 1.0, None, (one.facts.names[row],))
        assert script.right(dataclasses.replace(one, masks=masks), finding) is wanted
    assert script.right(one, finding) is None  # no masks


def test_a_finding_about_a_group_is_right_if_it_is_no_kind(script: ModuleType) -> None:
    one = judged(script)
    finding = Finding("group-follows", "", "", 9.0, 1, one.facts.names[1::2])
    assert script.kind_f1(one, 1) == 1
    assert script.right(one, finding) is False
    mixed = tuple("abcd"[row // 2 % 4] for row in range(N))
    assert script.right(dataclasses.replace(one, truth=mixed), finding) is True
    assert script.right(one, Finding("few-normals", "", "", 1.0)) is None


def test_good_and_flawed_that_come_badly_apart(script: ModuleType) -> None:
    one, finding = judged(script), Finding("not-apart", "", "", 0.0)
    assert script.right(one, finding) is False
    facts = dataclasses.replace(one.facts, image_scores=np.arange(N) / 1.0)
    assert script.right(dataclasses.replace(one, facts=facts), finding) is True


def test_the_tables(script: ModuleType) -> None:
    unsteady = Finding("unsteady-groups", "", "", 0.5)
    folder = Finding("groups-follow", "The groups follow the folder: ...", "", 1.0)
    found = [
        judged(script, unsteady),
        judged(script, folder, fault=script.IN_FOLDERS),
        judged(script, fault=script.IN_FOLDERS),
        judged(script, folder, fault="half brighter", half=(False, True) * (N // 2)),
        judged(script, folder, fault="half brighter", half=(False, False, True, True) * (N // 4)),
    ]
    rows = {line.split()[0]: line.split()[1:] for line in script.findings_table(found)}
    assert rows["unsteady-groups"] == ["1", "of", "1", "0", "of", "1", "0%"]
    assert rows["copies"] == ["0", "of", "1"]
    assert script.folders_line(found).endswith("in 1 of 2 groupings (plates).")
    assert "called unsteady: 0 of 2 are no kind" in script.groups_line(found)
    (line,) = [one for one in script.faults_table(found) if one.startswith("half brighter")]
    # Planted twice, followed once and found there; the other finding is elsewhere.
    assert line.split()[2:6] == ["2", "1", "1", "1"]


def test_folders_are_kinds_only_in_their_rows(
    script: ModuleType, saved: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(saved, tmp_path / "run")
    told = [[label, "", False] for label in ("dent", "streak") * 7]
    (run / "case.json").write_text(json.dumps(told))
    plain = script.judged(run, "plates", "normals", script.AS_IT_IS)
    folders = script.judged(run, "plates", "normals", script.IN_FOLDERS)
    assert set(plain.facts.filed.folder) == {""}
    assert folders.facts.filed.folder == folders.truth == ("dent", "streak") * 7

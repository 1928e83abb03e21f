"""A reviewed run sorts tomorrow's images: every reviewed kind by name, and good ones as normal."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import flawsort
from flawsort import AnomalyClusterer
from flawsort.labels.session import Session
from flawsort.labels.verdict import verdict_curve
from flawsort.runs.assigned import open_kept
from helpers.plates import SIDE, Cli, settings

KINDS = ("dent", "spot", "streak", "band", "good")
# As many as a person reviewed who then found half of 41 new images sorted wrongly.
N_REVIEWED, N_NEW = 120, 41


def picture(kind: str, number: int) -> NDArray[np.uint8]:
    """(64, 64, 3): grey metal with a dark square, a bright square, an upright red line, a level
    blue one, or nothing on it."""
    rng = np.random.default_rng([number, len(kind), ord(kind[0])])
    plate = rng.normal(120, 8, (SIDE, SIDE, 3))
    row, column = rng.integers(14, 44, 2)
    if kind == "dent":
        plate[row : row + 10, column : column + 10] = 10
    if kind == "spot":
        plate[row : row + 10, column : column + 10] = 245
    if kind == "streak":
        plate[:, column : column + 3] = (250, 60, 40)
    if kind == "band":
        plate[row : row + 3] = (40, 60, 250)
    return np.clip(plate, 0, 255).astype(np.uint8)


def write(folder: Path, kinds: Sequence[str], start: int = 0) -> None:
    folder.mkdir(parents=True)
    for number, kind in enumerate(kinds, start):
        Image.fromarray(picture(kind, number)).save(folder / f"{kind}{number:03d}.png")


def kind_of(name: str) -> str:
    return name.rstrip(".png0123456789")


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with old/, new/, good/ and run/: two clusters, though there are five kinds."""
    folder = tmp_path_factory.mktemp("teaching")
    write(folder / "old", [KINDS[number % 5] for number in range(N_REVIEWED)])
    write(folder / "new", [KINDS[number % 5] for number in range(N_NEW)], 500)
    write(folder / "good", ["good"] * 16, 900)
    model = AnomalyClusterer(**settings(n_clusters=2))
    model.fit(folder / "old", normal=folder / "good").save(folder / "run")
    return folder


@pytest.fixture(scope="module")
def reviewed(clustered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in which a person has put every image into the group of its kind."""
    folder = tmp_path_factory.mktemp("reviewed") / "run"
    shutil.copytree(clustered / "run", folder)
    with Session(folder) as session:
        for kind in KINDS:
            rows = [row for row, name in enumerate(session.run.names) if kind_of(name) == kind]
            where = {"to": "normal"} if kind == "good" else {"to": "new", "name": kind}
            session.edit("move", {"images": rows, **where}, session.version)
    return folder


def wanted(name: str) -> str:
    return {"good": "normal"}.get(kind_of(name), kind_of(name))


def test_every_reviewed_kind_is_given_by_name(clustered: Path, reviewed: Path, cli: Cli) -> None:
    table = clustered / "new.csv"
    line = ("assign", clustered / "new", "--run", reviewed, "-q", "--no-cache", "-o", table)
    answer = cli(*line)
    assert answer.code == 0, answer.err
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == N_NEW
    assert [row["group"] for row in rows] == [wanted(row["name"]) for row in rows]
    assert {row["decided"] for row in rows} == {"false"}
    assert all(0 <= float(row["probability"]) <= 1 for row in rows if row["probability"])
    assert sum(bool(row["probability"]) for row in rows) > 0.9 * N_NEW
    for kind in ("dent", "spot", "streak", "band", "normal"):
        assert kind in answer.out
    # The same in Python.
    found = flawsort.open_run(reviewed).predict(clustered / "new")
    assert list(found["group"]) == [row["group"] for row in rows]


def test_before_the_review_there_are_only_clusters(clustered: Path, cli: Cli) -> None:
    line = ("assign", clustered / "new", "--run", clustered / "run", "-q", "--no-cache", "--json")
    told = json.loads(cli(*line).out)
    assert told["taught"] == 0
    known = {row["group"] for row in told["images"]}
    assert known <= {"Group 0", "Group 1", "normal", "new kind"}
    good = [row for row in told["images"] if kind_of(row["name"]) == "good"]
    assert "new kind" not in {row["group"] for row in good}


def test_an_image_that_was_moved_to_normal_stays_there(
    clustered: Path, reviewed: Path, tmp_path: Path, cli: Cli
) -> None:
    shutil.copytree(reviewed, tmp_path / "run")
    with Session(tmp_path / "run") as session:
        row = session.run.row_of["dent000.png"]
        session.edit("move", {"images": [row], "to": "normal"}, session.version)
        session.edit("verdict", {"threshold": 0.5}, session.version)
    (tmp_path / "again").mkdir()
    shutil.copy(clustered / "old" / "dent000.png", tmp_path / "again" / "renamed.png")
    shutil.copy(clustered / "old" / "dent005.png", tmp_path / "again" / "still.png")
    shutil.copy(clustered / "good" / "good900.png", tmp_path / "again" / "zero.png")
    told = json.loads(
        cli("assign", tmp_path / "again", "-r", tmp_path / "run", "-q", "--no-cache", "--json").out
    )
    facts = [
        (row["group"], row["decided"], row["probability"], row["verdict"]) for row in told["images"]
    ]
    assert facts == [
        ("normal", True, None, "OK"), ("dent", True, None, "not OK"), ("normal", True, None, "OK"),
    ]  # fmt: skip
    assert told["verdicts"] == {"OK": 2, "not OK": 1, "": 0}
    assert told["threshold"] == 0.5


def test_verdicts_by_a_threshold_of_the_persons_own_curve(
    clustered: Path, reviewed: Path, tmp_path: Path, cli: Cli
) -> None:
    shutil.copytree(reviewed, tmp_path / "run")
    with Session(tmp_path / "run") as session:
        curve = verdict_curve(session.labelling, session.state.space())
        assert curve is not None
        assert (curve.n_flaws, curve.n_normal) == (96, 24)
        best = min(curve.costs, key=lambda cost: cost.missed + cost.false_alarms)
        assert best.missed + best.false_alarms <= 3
        session.edit("verdict", {"threshold": best.threshold}, session.version)
    line = ("assign", clustered / "new", "-r", tmp_path / "run", "-q", "--no-cache")
    told = json.loads(cli(*line, "--json").out)
    said = {row["name"]: row["verdict"] for row in told["images"]}
    right = [said[name] == ("OK" if kind_of(name) == "good" else "not OK") for name in said]
    assert sum(right) >= N_NEW - 1
    told = cli(*line).out
    assert "Verdict: " in told
    assert "not OK" in told


def test_what_is_kept_can_teach(clustered: Path, reviewed: Path, tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(reviewed, tmp_path / "run")
    line = ("assign", clustered / "new", "-r", tmp_path / "run", "-q", "--no-cache")
    assert cli(*line, "--keep", "monday").code == 0
    kept = open_kept(tmp_path / "run", "monday")
    assert kept.vectors is not None
    assert kept.vectors.shape == (N_NEW, flawsort.open_run(reviewed).embeddings.shape[1])
    assert kept.table["group"] == [wanted(name) for name in kept.table["name"]]

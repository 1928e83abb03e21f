"""The pictures of close looks: the most unusual place, its match, and all pixels of a file."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort import Run, open_run
from flawsort.review.app import make_app
from flawsort.runs.folder import save_run
from helpers.review_client import Reply, RunClient


@pytest.fixture(scope="module")
def run(seen_closely: Path) -> Run:
    return open_run(seen_closely)


@pytest.fixture(scope="module")
def looker(seen_closely: Path) -> RunClient:
    return RunClient(make_app([seen_closely]))


def picture(reply: Reply) -> Image.Image:
    assert reply.status == 200, reply.body
    return Image.open(io.BytesIO(reply.body))


@pytest.fixture
def own(run: Run, plates: Path, tmp_path: Path) -> Path:
    """A run whose images are its own."""
    shutil.copytree(plates / "parts", tmp_path / "parts")
    paths = [str(tmp_path / "parts" / name) for name in run.table["name"]]
    save_run(dataclasses.replace(run, table={**run.table, "path": paths}), tmp_path / "run")
    return tmp_path


def client_of(own: Path) -> RunClient:
    return RunClient(make_app([own / "run"]))


def test_tiles_are_the_runs_own(looker: RunClient, run: Run) -> None:
    assert run.close_ups is not None
    assert looker.get("/r/run/flaw/3.jpg").body == run.close_ups[3]
    assert looker.get("/r/run/close/3.jpg").status == 200
    assert looker.api("run").data["places"] is True


def test_the_place_and_what_matches_it(looker: RunClient, run: Run) -> None:
    for row in (0, 9):
        found = looker.api(f"place/{row}").data
        assert found["match"] == run.table["match"][row]
        left, top, right, bottom = found["box"]
        assert row != 0 or (right - left) * (bottom - top) < 1
        here, there = (
            picture(looker.get(f"/r/run/{what}/{row}.jpg")) for what in ("close", "match")
        )
        assert here.size == there.size == (round(64 * (right - left)), round(64 * (bottom - top)))
        apart = np.abs(np.asarray(here, float) - np.asarray(there, float)).max(axis=2)
        assert apart.max() > 60  # the flaw
        assert np.median(apart) < 40  # and noise


def test_the_heat_of_a_place_is_a_piece_of_the_heat(looker: RunClient, run: Run) -> None:
    whole = np.asarray(picture(looker.get("/r/run/heat/2.png")), float)
    left, top, right, bottom = looker.api("place/2").data["box"]
    piece = np.asarray(picture(looker.get("/r/run/flaw-heat/2.png")), float)
    high, wide = whole.shape[:2]
    cut = whole[round(top * high) : round(bottom * high), round(left * wide) : round(right * wide)]
    assert cut.shape == piece.shape
    assert np.abs(cut - piece).mean() < 3
    assert piece[..., 3].max() == whole[..., 3].max()


def test_all_pixels_of_the_file(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    large = rng.integers(0, 256, (500, 2000, 3), np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    Image.fromarray(large).save(tmp_path / "large.png")
    content = (tmp_path / "large.png").read_bytes()
    table = {**run.table, "path": [str(tmp_path / "large.png"), *run.table["path"][1:]]}
    table["sha256"] = [hashlib.sha256(content).hexdigest(), *table["sha256"][1:]]
    save_run(dataclasses.replace(run, table=table), tmp_path / "run")
    client = RunClient(make_app([tmp_path / "run"]))
    shown = picture(client.get("/r/run/full/0.jpg"))
    assert shown.size == (4000, 1000)
    assert np.abs(np.asarray(shown, float) - large).mean() < 12
    assert picture(client.get("/r/run/image/0.jpg")).size == (1600, 400)


def test_without_the_files_the_run_still_shows_the_place(own: Path, run: Run) -> None:
    assert run.close_ups is not None
    assert run.matches is not None
    shutil.rmtree(own / "parts")
    client = client_of(own)
    assert client.get("/r/run/close/1.jpg").body == run.close_ups[1]
    assert client.get("/r/run/match/1.jpg").body == run.matches[1]
    assert client.get("/r/run/full/1.jpg").status == 404


def test_another_file_of_that_name_is_not_shown(own: Path, run: Run) -> None:
    (own / "parts" / "dent00.png").write_bytes((own / "parts" / "dent01.png").read_bytes())
    assert run.close_ups is not None
    client = client_of(own)
    assert client.get("/r/run/close/0.jpg").body == run.close_ups[0]
    assert "has changed" in client.get("/r/run/full/0.jpg").detail


def test_an_older_run_has_places_but_no_matches(own: Path, run: Run) -> None:
    table = {name: column for name, column in run.table.items() if "match" not in name}
    table["path"] = open_run(own / "run").table["path"]
    older = dataclasses.replace(run, table=table, close_ups=None, matches=None, gallery=None)
    save_run(older, own / "older" / "run")
    client = RunClient(make_app([own / "older" / "run"]))
    assert picture(client.get("/r/run/flaw/0.jpg")).format == "JPEG"
    assert client.api("place/0").data["match"] is None
    assert client.get("/r/run/match/0.jpg").status == 404

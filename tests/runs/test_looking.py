"""The most unusual place of the images of a run: its box, and pictures of it and of its match."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort import Run, open_run
from flawsort.images.originals import aspect_of
from flawsort.runs.looking import Looking
from flawsort.runs.run import source_of
from helpers.plates import SIDE, plate


@pytest.fixture(scope="module")
def run(seen_closely: Path) -> Run:
    return open_run(seen_closely)


def pixels(jpeg: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"), float)


def source_of_match(run: Run, row: int) -> Path:
    match = Looking(run).match(row)
    assert match is not None
    source = source_of(run.normal_paths[match.name][0])
    assert isinstance(source, Path)
    return source


def test_the_box_is_that_of_the_stored_close_up(run: Run) -> None:
    """Cut out of the picture of the image, it shows the same."""
    assert run.close_ups is not None
    for row in range(len(run)):
        left, top, right, bottom = Looking(run).box(row, aspect_of(run.thumbnails[row]))
        assert 0 <= left < right <= 1
        assert 0 <= top < bottom <= 1
        assert row != 0 or (right - left) * (bottom - top) < 1
        stored = pixels(run.close_ups[row])
        whole = Image.open(run.table["path"][row]).convert("RGB")
        box = tuple(round(SIDE * side) for side in (left, top, right, bottom))
        cut = np.asarray(whole.crop(box), float)  # type: ignore[arg-type]
        assert cut.shape == stored.shape
        assert np.abs(cut - stored).mean() < 10


def test_the_place_is_at_the_flaw(run: Run) -> None:
    looking, dark = Looking(run), plate("dent", 0).mean(axis=2) < 50
    patch = SIDE // run.grid[0]
    top, left, bottom, right = patch * looking.patches[0]
    assert dark[top:bottom, left:right].any()


def test_a_pair_is_cut_from_the_files(run: Run) -> None:
    assert run.close_ups is not None
    assert run.matches is not None
    source = run.source(0)
    here, there = Looking(run).pair(0, source, source_of_match(run, 0), 1000)
    assert pixels(here).shape == pixels(there).shape == pixels(run.close_ups[0]).shape
    assert np.abs(pixels(here) - pixels(run.close_ups[0])).mean() < 1
    assert np.abs(pixels(there) - pixels(run.matches[0])).mean() < 1
    small, _ = Looking(run).pair(0, source, source_of_match(run, 0), 16)
    assert max(pixels(small).shape[:2]) == 16


def test_without_a_match_there_is_only_the_place(run: Run, tmp_path: Path) -> None:
    assert Looking(run).pair(0, run.source(0), None, 100)[1] == b""
    assert Looking(run).pair(0, tmp_path / "gone.png", source_of_match(run, 0), 100)[0] == b""
    older = {name: column for name, column in run.table.items() if not name.startswith("match")}
    looking = Looking(dataclasses.replace(run, table=older))
    assert looking.match(0) is None
    assert len(looking.box(0, 1.0)) == 4


def test_where_nothing_was_compared_no_place_is_unusual(run: Run) -> None:
    assert Looking(run).known
    uniform = dataclasses.replace(run, manifest={**run.manifest, "mode": "uniform"})
    assert not Looking(uniform).known

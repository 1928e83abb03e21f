"""The small pictures that a run keeps: close-ups, and the matching places beside them."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort import AnomalyClusterer, View, open_run
from flawsort.images.closeups import close_up_box, whole_pixels
from flawsort.runs import pictures
from flawsort.runs.assigned import open_kept
from flawsort.runs.pictures import Looked, Sides, make_close_ups, place_in
from helpers.plates import KINDS, Cli, plate, plate_arrays, settings, write_plates

ROWS = np.arange(14)


def opened(jpeg: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(jpeg)) as picture:
        return np.asarray(picture.convert("RGB"), int)


@pytest.fixture
def looked(fitted: AnomalyClusterer) -> Looked:
    whole = fitted.fitted_
    assert whole.places is not None
    return Looked.of(whole.images, whole.places.boxes, whole.places.matches, whole)


def test_a_close_up_shows_the_place_as_the_file_does(saved: Path, looked: Looked) -> None:
    run = open_run(saved)
    assert run.close_ups is not None
    frame = (0.0, 0.0, 64.0, 64.0)
    for row, jpeg in enumerate(run.close_ups):
        place = place_in(looked.boxes[row], frame, run.grid)
        move = looked.matches[row, 1:].tolist()
        box = whole_pixels(close_up_box(place, frame, run.grid, (move[0], move[1])))
        left, top, right, bottom = map(int, box)
        with Image.open(run.source(row)) as picture:
            wanted = np.asarray(picture.convert("RGB"), int)[top:bottom, left:right]
        found = opened(jpeg)
        assert found.shape == wanted.shape
        assert abs(found - wanted).mean() < 12


def test_the_matching_place_is_of_a_good_plate(saved: Path) -> None:
    run = open_run(saved)
    assert run.close_ups is not None
    assert run.matches is not None
    for row, (here, there) in enumerate(zip(run.close_ups, run.matches, strict=True)):
        assert opened(here).shape == opened(there).shape
        if run.names[row].startswith("dent"):  # dark squares
            assert opened(here).min(axis=2).min() < 40 < 70 < opened(there).min(axis=2).min()


def test_each_image_is_shown_with_its_own_match() -> None:
    """The second image matches the first of two plain plates, the first matches the second."""
    images = plate_arrays(("good", "good", "good"))
    plain = [np.full((64, 64), level, np.uint8) for level in (40, 220)]
    boxes = np.tile([2, 2, 3, 3], (3, 1))
    matches = np.array([[1, 0, 0], [0, 0, 0], [-1, 0, 0]])
    looked = Looked(images, boxes, matches, plain, View(), (64, 64), (16, 16))
    shown = make_close_ups(looked, np.arange(3))[1]
    assert [round(opened(jpeg).mean(), -1) for jpeg in shown[:2]] == [220, 40]
    assert shown[2] == b""


def test_only_the_rows_asked_for(looked: Looked) -> None:
    close_ups, matches = make_close_ups(looked, np.array([3, 11]))
    for some in (close_ups, matches):
        assert [row for row, jpeg in enumerate(some) if jpeg] == [3, 11]
    whole = make_close_ups(looked, ROWS)[0]
    assert [whole[row] for row in (3, 11)] == [close_ups[row] for row in (3, 11)]


def test_their_size_follows_what_is_shown(looked: Looked) -> None:
    sides = Sides(((3, 20),), smallest=10)
    for rows, longest in ((ROWS[:3], 20), (ROWS[:4], 10)):
        made = make_close_ups(looked, rows, sides=sides)
        assert {max(opened(one[0]).shape[:2]) for one in made} == {longest}


def test_files_that_are_gone(tmp_path: Path) -> None:
    write_plates(tmp_path / "parts", KINDS)
    shutil.copytree(tmp_path / "parts", tmp_path / "good")
    model = AnomalyClusterer(n_clusters=2, **settings())
    model.fit(tmp_path / "parts", normal=plate_arrays(("good",) * 9))
    (tmp_path / "parts/dent00.png").unlink()
    (tmp_path / "parts/dent01.png").write_bytes(b"no image")
    run = model.make_run()
    assert run.close_ups is not None
    assert run.matches is not None
    assert [row for row in ROWS if not run.close_ups[row]] == [0, 1]
    assert [row for row in ROWS if not run.matches[row]] == [0, 1]
    assert set(run.normal_paths) == set(run.table["match"]) | set(run.normal_paths)
    assert all(path == "" for path, _ in run.normal_paths.values())


def test_normals_that_are_gone_leave_the_close_ups(tmp_path: Path) -> None:
    write_plates(tmp_path / "good", ("good",) * 8)
    model = AnomalyClusterer(n_clusters=2, **settings())
    model.fit(plate_arrays(), normal=tmp_path / "good")
    shutil.rmtree(tmp_path / "good")
    run = model.make_run()
    assert run.close_ups is not None
    assert all(run.close_ups)
    assert run.matches == (b"",) * 14


def test_large_photos_are_decoded_by_few_threads(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    in_threads = pictures.in_threads

    def counted(*given: object, threads: int, **options: int) -> object:
        asked.append(threads)
        return in_threads(*given, threads=threads, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pictures, "in_threads", counted)
    monkeypatch.setattr(pictures, "n_threads", lambda: 8)
    make_close_ups(looked, ROWS[:2])
    monkeypatch.setattr(pictures, "DECODED_BYTES", 2 * 2 * 3 * 64 * 64 + 1)
    make_close_ups(looked, ROWS[:2])
    monkeypatch.setattr(pictures, "DECODED_BYTES", 1)
    make_close_ups(looked, ROWS[:2])
    assert asked == [8, 2, 1]


def test_new_images_that_are_kept_have_close_ups_too(saved: Path, tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(saved, tmp_path / "run")
    (tmp_path / "new").mkdir()
    Image.fromarray(plate("dent", 71)).save(tmp_path / "new/a.png")
    Image.fromarray(plate("good", 72)).save(tmp_path / "new/b.png")
    answer = cli("assign", tmp_path / "new", "--run", tmp_path / "run", "-q", "--keep", "may")
    assert (answer.code, answer.err) == (0, "")
    kept = open_kept(tmp_path / "run", "may")
    assert kept.close_ups is not None
    assert kept.matches is not None
    assert opened(kept.close_ups[0]).min() < 40 < 70 < opened(kept.matches[0]).min()
    table = kept.table
    assert table["match"][0].startswith("good")
    left, top = 64 * table["x"][0], 64 * table["y"][0]
    right, bottom = left + 64 * table["width"][0], top + 64 * table["height"][0]
    dark = plate("dent", 71).max(axis=2) < 30
    rows, columns = np.nonzero(dark)
    assert left <= columns.mean() <= right
    assert top <= rows.mean() <= bottom

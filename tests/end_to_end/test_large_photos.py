"""Large photos from a folder to a run: in tiles by themselves, with flaws where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter

import flawsort
from flawsort.fitting.memory import USUAL_SIZES
from flawsort.images.view import View
from flawsort.scores.reference import PeerCounts
from helpers.plates import Cli

SIDE = 1300
FLAWED = 4
# Left, top, right, bottom of each flaw, in pixels.
PLACES = [(200, 300, 236, 336), (1000, 100, 1036, 136), (640, 640, 676, 676), (60, 1200, 96, 1236)]


def photo(seed: int, place: tuple[int, int, int, int] | None = None) -> Image.Image:
    """A soft grey texture, with a dark cross if there is a place for it."""
    noise = np.random.default_rng(seed).integers(0, 256, (SIDE // 4, SIDE // 4)).astype(np.uint8)
    soft = Image.fromarray(noise).filter(ImageFilter.GaussianBlur(2)).resize((SIDE, SIDE))
    values = np.asarray(soft).astype(int) // 2 + 70
    if place is not None:
        left, top, right, bottom = place
        middle = ((top + bottom) // 2, (left + right) // 2)
        values[top:bottom, middle[1] - 4 : middle[1] + 4] = 5
        values[middle[0] - 4 : middle[0] + 4, left:right] = 250
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for name in ("parts", "good"):
        (folder / name).mkdir()
    for number in range(6):
        photo(number).save(folder / "parts" / f"good-{number}.jpg", quality=95)
    for number, place in enumerate(PLACES):
        photo(20 + number, place).save(folder / "parts" / f"flawed-{number}.jpg", quality=95)
    for number in range(10):
        photo(40 + number).save(folder / "good" / f"{number}.jpg", quality=95)
    (folder / "parts" / "clip.mp4").write_bytes(b"a video")
    return folder


@pytest.fixture(scope="module")
def run(photos: Path) -> flawsort.Run:
    said: list[str] = []
    model = flawsort.AnomalyClusterer(method="fast", n_clusters=2, cache=None, notice=said.append)
    model.fit(photos / "parts", normal=photos / "good")
    (line,) = said
    assert line.startswith("Photos of 1,300 x 1,300 pixels: looked at in 3 x 3 tiles. About ")
    assert "--fit stretch would shrink them 2.5 times" in line
    saved = model.save(photos / "run", report=False)
    np.testing.assert_allclose(saved.table["score"], model.image_scores_, rtol=1e-5)
    return saved


def test_one_result_an_image(run: flawsort.Run) -> None:
    assert run.view.tiles == (3, 3)
    assert len(run) == 10
    flawed = np.array([name.startswith("flawed") for name in run.names])
    assert not run.looks_normal[flawed].any()
    assert run.looks_normal[~flawed].mean() >= 0.8
    score = np.array(run.table["score"])
    assert score[flawed].min() > 1.5 * score[~flawed].max()
    assert set(run.labels[flawed]).isdisjoint(run.labels[~flawed])


def test_regions_lie_on_the_photo(run: flawsort.Run) -> None:
    sides = zip(*(run.regions[side] for side in ("x", "y", "width", "height")), strict=True)
    boxes: dict[str, tuple[float, ...]] = {}
    for name, box in zip(run.regions["name"], sides, strict=True):
        boxes.setdefault(name, tuple(SIDE * value for value in box))  # the hottest comes first
    for number, (left, top, right, bottom) in enumerate(PLACES):
        x, y, width, height = boxes[f"flawed-{number}.jpg"]
        assert x <= (left + right) / 2 <= x + width
        assert y <= (top + bottom) / 2 <= y + height
        assert max(width, height) < 200


def test_new_photos_are_looked_at_like_those_of_the_run(run: flawsort.Run, photos: Path) -> None:
    model = flawsort.AnomalyClusterer.load(photos / "run")
    model.cache = None
    new = [np.asarray(photo(70)), np.asarray(photo(71, (900, 900, 936, 936)))]
    images, found, scores = model.assign(new)
    assert scores.shape == (2, run.grid[0] * run.grid[1])
    flawed = run.labels[run.names.index("flawed-0.jpg")]
    assert (found.nearest == flawed).tolist() == [False, True]
    assert len(images) == 2


def test_without_normals(photos: Path) -> None:
    model = flawsort.AnomalyClusterer(method="fast", n_clusters=2, cache=None)
    model.fit(photos / "parts")
    assert model.view_.tiles == (3, 3)
    flawed = np.array([name.startswith("flawed") for name in model.images_.names])
    assert model.image_scores_[flawed].min() > model.image_scores_[~flawed].max()
    assert "compared with each other" in model.scored_


@pytest.mark.parametrize("view", [View(tiles=(1, 1)), View(roi=(0, 0, 0.5, 0.5))])
def test_a_view_of_ones_own_is_kept(photos: Path, view: View) -> None:
    said: list[str] = []
    model = flawsort.AnomalyClusterer(method="fast", cache=None, view=view, notice=said.append)
    model.fit(photos / "good")
    assert model.view_.tiles == (1, 1)
    assert said == []


def test_the_paper_looks_at_whole_images(photos: Path) -> None:
    model = flawsort.AnomalyClusterer(method="paper", cache=None).fit(photos / "good")
    assert model.view_.tiles == (1, 1)


def test_on_the_command_line(photos: Path, cli: Cli, tmp_path: Path) -> None:
    line = ("cluster", str(photos / "parts"), "--no-cache", "--preset", "fast", "-k", "2")
    answer = cli(*line, "-o", str(tmp_path / "run"))
    assert answer.code == 0
    assert "looked at in 3 x 3 tiles. About" in answer.err
    assert "Note: Skipped 1 file: 1 MP4 (cut it into frames: ffmpeg -i VIDEO.mp4" in answer.out
    assert flawsort.open_run(tmp_path / "run").view.tiles == (3, 3)
    answer = cli(*line, "-o", str(tmp_path / "whole"), "--fit", "stretch")
    assert "tiles" not in answer.err
    assert flawsort.open_run(tmp_path / "whole").view.tiles == (1, 1)
    both = ("--fit", "crop", "--tile", "2x2", "-q")
    answer = cli(*line, "-o", str(tmp_path / "both"), *both)
    assert (answer.code, answer.err) == (0, "")
    view = flawsort.open_run(tmp_path / "both").view
    assert (view.fit, view.tiles) == ("crop", (2, 2))
    answer = cli("assign", str(photos / "parts"), "--run", str(tmp_path / "run"), "--no-cache")
    assert "Note: Skipped 1 file: 1 MP4" in answer.out
    assert "in 3 x 3 tiles, as the images of the run. About " in answer.err
    assert "times smaller" not in answer.out
    # The run whose images are looked at whole says what it does not see of large ones.
    answer = cli("assign", str(photos / "parts"), "--run", str(tmp_path / "whole"), "--no-cache")
    assert "tiles" not in answer.err
    assert "Note: 10 of the 10 images are looked at 2.5 times smaller" in answer.out
    assert "Sort them into a run of images of this size." in answer.out


def test_a_few_large_photos_among_small_ones_are_told(cli: Cli, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for number in range(22):
        small = photo(number).crop((0, 0, 300, 300))
        small.resize((1400, 1400) if number < 2 else (300, 300)).save(parts / f"{number:02d}.png")
    line = ("cluster", str(parts), "--no-cache", "--preset", "fast", "-k", "2", "-q")
    answer = cli(*line, "-o", str(tmp_path / "run"))
    assert "- 2 of the 22 images are looked at 2.7 times smaller" in answer.out
    assert "00.png, 01.png" in answer.out


def test_streamed_photos_have_the_same_groups(run: flawsort.Run, photos: Path) -> None:
    model = flawsort.AnomalyClusterer(method="fast", n_clusters=2, cache=None)
    model.sizes = replace(USUAL_SIZES, in_memory=2**22)
    model.fit(photos / "parts", normal=photos / "good")
    assert model.scores_.dtype == np.float16
    assert model.labels_.tolist() == run.labels.tolist()
    np.testing.assert_allclose(model.image_scores_, run.table["score"], rtol=0.3)


def test_streamed_photos_without_normals(photos: Path) -> None:
    model = flawsort.AnomalyClusterer(method="fast", n_clusters=2, cache=None)
    model.sizes = replace(USUAL_SIZES, in_memory=2**22, peers=PeerCounts(4, 8, 8))
    model.fit(photos / "parts")
    assert "sample of 8" in model.scored_
    flawed = np.array([name.startswith("flawed") for name in model.images_.names])
    assert model.image_scores_[flawed].min() > model.image_scores_[~flawed].max()

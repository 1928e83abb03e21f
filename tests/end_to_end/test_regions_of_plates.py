"""From files to regions: flaws that were drawn are found in their place, and as what they are."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import flawsort
from flawsort import AnomalyClusterer, View
from flawsort.embeddings.regions import mask_cells
from flawsort.runs.convert import make_run

SIDE, WIDE, PATCH = 192, 24, 8
FLAWS = (("dent",),) * 6 + (("blot",),) * 6 + (("dent", "blot"),)
BOTH, COPY = "12-dent-blot.png", "a-copy-of-12.png"
COLOURS = {"dent": (10, 10, 10), "blot": (250, 60, 40)}
# A plate within a larger picture, for a region of interest.
OFFSET = (40, 16)
ROI = (OFFSET[0], OFFSET[1], OFFSET[0] + SIDE, OFFSET[1] + SIDE)

Places = dict[str, dict[str, tuple[int, int]]]


def plate(number: int, flaws: tuple[str, ...]) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Grey metal with squares on it, no two in the same half, and the left and top of each."""
    rng = np.random.default_rng(number)
    picture = rng.normal(120, 8, (SIDE, SIDE, 3))
    places = {}
    for turn, flaw in enumerate(flaws):
        top = int(rng.integers(8, SIDE - 8 - WIDE))
        left = int(rng.integers(8, SIDE // 4 - WIDE // 2)) + SIDE * 13 // 24 * ((turn + number) % 2)
        picture[top : top + WIDE, left : left + WIDE] = COLOURS[flaw]
        places[flaw] = (left, top)
    return np.clip(picture, 0, 255).astype(np.uint8), places


def framed(picture: NDArray[np.uint8]) -> Image.Image:
    frame = np.zeros((SIDE + 32, SIDE + 64, 3), np.uint8)
    frame[ROI[1] : ROI[3], ROI[0] : ROI[2]] = picture
    return Image.fromarray(frame)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Places]:
    """plain/ and framed/, each with parts/ and good/; and where the flaws are on the plates."""
    folder = tmp_path_factory.mktemp("drawn")
    places: Places = {}
    pictures = {}
    for number, flaws in enumerate(FLAWS):
        name = f"{number:02d}-{'-'.join(flaws)}.png"
        pictures[f"parts/{name}"], places[name] = plate(number, flaws)
    pictures[f"parts/{COPY}"], places[COPY] = pictures[f"parts/{BOTH}"], places[BOTH]
    for number in range(8):
        pictures[f"good/{number}.png"], _ = plate(100 + number, ())
    for name, picture in pictures.items():
        for way in ("plain", "framed"):
            (folder / way / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / "plain" / name)
        framed(picture).save(folder / "framed" / name)
    return folder, places


def fit(folder: Path, images: Any = None, **parameters: Any) -> AnomalyClusterer:
    given = {"method": "fast", "image_size": SIDE, "cache": None, **parameters}
    model = AnomalyClusterer(n_clusters=2, **given)
    return model.fit(images or folder / "parts", normal=folder / "good")


@pytest.fixture(scope="module")
def model(drawn: tuple[Path, Places]) -> AnomalyClusterer:
    return fit(drawn[0] / "plain")


def row_of(model: AnomalyClusterer, name: str) -> int:
    return model.images_.names.index(name)


def group_of(model: AnomalyClusterer, flaw: str) -> int:
    return int(model.labels_[row_of(model, {"dent": "00-dent.png", "blot": "06-blot.png"}[flaw])])


def assert_same_regions(one: AnomalyClusterer, other: AnomalyClusterer) -> None:
    for field in fields(one.regions_):
        if field.name != "outlines":
            first, second = getattr(one.regions_, field.name), getattr(other.regions_, field.name)
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second)
    for name in ("images", "peaks", "cells", "ends"):
        first, second = getattr(one.regions_.outlines, name), getattr(other.regions_.outlines, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    assert one.kinds_ == other.kinds_


def test_an_image_with_two_flaws_shows_both_kinds(
    model: AnomalyClusterer, drawn: tuple[Path, Places]
) -> None:
    groups = {flaw: group_of(model, flaw) for flaw in COLOURS}
    assert set(groups.values()) == {0, 1}
    for name, kinds in zip(model.images_.names, model.kinds_, strict=True):
        assert set(kinds) == {groups[flaw] for flaw in drawn[1][name]}
        assert len(set(kinds)) == len(kinds)
    assert model.looks_normal_ is not None
    assert not model.looks_normal_.any()
    assert model.heat_.normal_below is not None


def test_regions_lie_where_the_flaws_were_drawn(
    model: AnomalyClusterer, drawn: tuple[Path, Places]
) -> None:
    outlines = model.regions_.outlines
    boxes = outlines.boxes(model.grid_) * SIDE
    _, columns = model.grid_
    found: dict[str, set[str]] = {name: set() for name in model.images_.names}
    for region, image in enumerate(outlines.images):
        name = model.images_.names[image]
        cells = set(outlines[region].tolist())
        for flaw, (left, top) in drawn[1][name].items():
            middle = (top + WIDE // 2) // PATCH * columns + (left + WIDE // 2) // PATCH
            if middle not in cells:
                continue
            found[name].add(flaw)
            assert model.regions_.nearest[region] == group_of(model, flaw)
            # Beside another flaw it may be like no image, since patches look around them.
            accepted = {group_of(model, flaw)} | ({-1} if name in (BOTH, COPY) else set())
            assert model.regions_.labels[region] in accepted
            # The whole flaw is within the box, and nothing is hotter than a place near the flaw.
            assert (boxes[region, :2] <= [left, top]).all()
            assert (boxes[region, 2:] >= [left + WIDE, top + WIDE]).all()
            own = np.array(sorted(cells))
            hottest = own[model.scores_[image, own].argmax()]
            place = (np.array([hottest % columns, hottest // columns]) + 0.5) * PATCH
            assert np.abs(place - [left + WIDE / 2, top + WIDE / 2]).max() <= 1.5 * WIDE
    assert found == {name: set(places) for name, places in drawn[1].items()}


def test_names_and_the_order_of_files_change_nothing(
    model: AnomalyClusterer, drawn: tuple[Path, Places]
) -> None:
    names = list(model.images_.names)
    order = np.random.default_rng(4).permutation(len(names)).tolist()
    folder = drawn[0] / "plain"
    other = fit(folder, [folder / "parts" / names[row] for row in order])
    assert [path.rpartition("/")[2] for path in other.images_.names] == [names[i] for i in order]
    assert other.kinds_ == tuple(model.kinds_[row] for row in order)
    for place, row in enumerate(order):
        mine = np.flatnonzero(other.regions_.outlines.images == place)
        theirs = np.flatnonzero(model.regions_.outlines.images == row)
        np.testing.assert_array_equal(other.regions_.labels[mine], model.regions_.labels[theirs])
        np.testing.assert_array_equal(
            other.regions_.confidence[mine], model.regions_.confidence[theirs]
        )
        for one, two in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(
                other.regions_.outlines[one], model.regions_.outlines[two]
            )


def test_a_saved_run_keeps_regions_and_kinds(model: AnomalyClusterer, tmp_path: Path) -> None:
    model.save(tmp_path / "run", report=False)
    loaded = AnomalyClusterer.load(tmp_path / "run")
    assert_same_regions(model, loaded)
    assert loaded.looks_normal_ is not None
    run = flawsort.open_run(tmp_path / "run")
    assert run.table["kinds"] == [";".join(map(str, kinds)) for kinds in model.kinds_]
    assert ";" in run.table["kinds"][row_of(model, BOTH)]
    table, outlines = run.regions, model.regions_.outlines
    assert table["name"] == [model.images_.names[row] for row in outlines.images]
    both = [n for name, n in zip(table["name"], table["region"], strict=True) if name == BOTH]
    assert both == list(range(len(both)))
    assert len(both) > 1
    np.testing.assert_array_equal(table["cluster"], model.regions_.labels)
    np.testing.assert_array_equal(table["score"], outlines.peaks.astype(np.float64))
    np.testing.assert_array_equal(table["heat"], model.heat_.normalise(outlines.peaks))
    boxes = outlines.boxes(model.grid_)
    for region, mask in enumerate(table["mask"]):
        np.testing.assert_array_equal(mask_cells([mask])[0], outlines[region])
        corner = [table["x"][region], table["y"][region]]
        span = [table["width"][region], table["height"][region]]
        np.testing.assert_allclose([*corner, *np.add(corner, span)], boxes[region])


def test_boxes_are_told_in_the_whole_image(
    model: AnomalyClusterer, drawn: tuple[Path, Places], tmp_path: Path
) -> None:
    names = list(model.images_.names)
    parts = tmp_path / "framed" / "parts"
    for folder in ("parts", "good"):
        (tmp_path / "framed" / folder).mkdir(parents=True)
        for path in (drawn[0] / "framed" / folder).iterdir():
            (tmp_path / "framed" / folder / path.name).write_bytes(path.read_bytes())
    other = fit(tmp_path / "framed", [parts / name for name in names], view=View(roi=ROI))
    np.testing.assert_allclose(other.scores_, model.scores_, atol=1e-3)
    (parts / names[0]).unlink()  # one that has gone since is told as it was seen
    table = make_run(other.fitted_).regions
    outlines = other.regions_.outlines
    boxes = outlines.boxes(other.grid_)
    for region, image in enumerate(outlines.images):
        left, top, right, bottom = boxes[region] * SIDE
        corner = [table["x"][region], table["y"][region]]
        span = [table["width"][region], table["height"][region]]
        if image == 0:
            np.testing.assert_allclose(corner, [left / SIDE, top / SIDE])
            continue
        whole = [SIDE + 64, SIDE + 32]
        np.testing.assert_allclose(corner, np.array([OFFSET[0] + left, OFFSET[1] + top]) / whole)
        np.testing.assert_allclose(span, np.array([right - left, bottom - top]) / whole)
    assert 0 in outlines.images

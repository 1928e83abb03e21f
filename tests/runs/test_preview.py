"""A part of a large run to look at: which images, their tree, and the page they make."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort import AnomalyClusterer, open_run
from flawsort.clusters.ward import cut, linkage_of
from flawsort.outputs.report import render_report
from flawsort.runs import convert as storing
from flawsort.runs import preview
from flawsort.runs.folder import REPORT, save_run
from flawsort.runs.pictures import SIDES, Sides, make_thumbnails
from flawsort.runs.preview import Limits, shown_rows
from flawsort.runs.run import Run
from helpers.bags import same_partition
from helpers.html import Page
from helpers.plates import KINDS, Cli, contents, fingerprint
from helpers.report_runs import make_evaluation, make_run

# A page of a few images, and one that is smaller still.
PART, FEW = Limits(15, 3), Limits(6, 2)


def table(sizes: list[int], *, seed: int = 0) -> dict[str, list[Any]]:
    """Groups of these sizes, mixed, each image as typical as chance will have it."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return {"cluster": labels.tolist(), "typicality": rng.random(len(labels)).round(2).tolist()}


# ---- which images ----


def test_up_to_the_limit_all_are_shown() -> None:
    limits = Limits(30, 2)
    np.testing.assert_array_equal(shown_rows(table([20, 9, 1]), limits), np.arange(30))
    assert len(shown_rows(table([20, 10, 1]), limits)) < 31


def test_the_limits_of_a_page() -> None:
    assert (preview.SHOWN_IMAGES, preview.SHOWN_OF_A_GROUP) == (5000, 50)
    assert Limits() == Limits(5000, 50)
    sizes = [4000, 2000, 51, 50, 3]
    made = table(sizes)
    rows = shown_rows(made)
    shown = np.bincount(np.array(made["cluster"])[rows])
    assert shown.tolist() == [round(5000 * 4000 / 6104), round(5000 * 2000 / 6104), 50, 50, 3]


@pytest.mark.parametrize("sizes", [[60, 30, 5, 2, 1], [98], [14] * 7, [91, 7]])
def test_each_group_is_spread_from_most_to_least_typical(sizes: list[int]) -> None:
    limits = Limits(40, 3)
    made = table(sizes)
    rows = shown_rows(made, limits)
    assert rows.tolist() == sorted(set(rows.tolist()))
    labels, typical = np.array(made["cluster"]), np.array(made["typicality"])
    for group, size in enumerate(sizes):
        members = np.flatnonzero(labels == group)
        shown = np.intersect1d(rows, members)
        count = max(round(40 * size / 98), min(3, size))
        assert len(shown) == count
        ranked = members[np.argsort(-typical[members], kind="stable")]
        assert ranked[0] in shown
        assert ranked[-1] in shown
        # Evenly: neighbours of those shown are as far apart as any others, but for rounding.
        gaps = np.diff(np.flatnonzero(np.isin(ranked, shown)))
        assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
    np.testing.assert_array_equal(shown_rows(made, limits), rows)


# ---- the page ----


def test_small_runs_are_shown_as_they_are() -> None:
    run = make_run()
    part, rows = preview.excerpt(run)
    assert part is run
    np.testing.assert_array_equal(rows, np.arange(40))
    # Nor is a part made where it would hold everybody.
    assert preview.excerpt(run, Limits(39, 40))[0] is run


def test_a_part_of_a_run_lines_up() -> None:
    valid = np.random.default_rng(1).random((40, 20)) > 0.3
    run = dataclasses.replace(make_run(), valid=valid)
    before = fingerprint(run)
    part, rows = preview.excerpt(run, PART)
    assert 15 <= len(rows) < 40
    np.testing.assert_array_equal(rows, shown_rows(run.table, PART))
    for name, values in run.table.items():
        assert part.table[name] == [values[row] for row in rows]
    for name in ("scores", "valid", "weights", "embeddings", "layout"):
        np.testing.assert_array_equal(getattr(part, name), getattr(run, name)[rows])
    np.testing.assert_array_equal(part.linkage, linkage_of(run.linkage, rows))
    assert part.thumbnails == tuple(run.thumbnails[row] for row in rows)
    assert part.reference is run.reference
    check_regions(run, part)
    sizes = np.bincount(run.table["cluster"])
    assert part.manifest["warnings"] == [
        f"This page shows {len(rows)} of 40 images, spread evenly in each group from the most to "
        "the least typical; images.csv lists all. Images by group: "
        + ", ".join(f"{group}: {size}" for group, size in enumerate(sizes))
        + ".",
        "mind <b>this</b>",
    ]
    assert {**part.manifest, "warnings": 0} == {**run.manifest, "warnings": 0}
    # The groups that the run was saved with are a cut of the part's tree too.
    k = len(sizes)
    assert same_partition(cut(part.linkage, k), np.array(part.table["cluster"]))
    assert fingerprint(run) == before


def check_regions(run: Run, part: Run) -> None:
    """The part has the regions of its images and no others, each with its own embedding."""
    shown = set(part.table["name"])
    kept = [row for row, name in enumerate(run.regions["name"]) if name in shown]
    assert 0 < len(kept) < len(run.regions["name"])
    assert part.regions.keys() == run.regions.keys()
    for column, values in run.regions.items():
        assert part.regions[column] == [values[row] for row in kept]
    np.testing.assert_array_equal(part.region_embeddings, run.region_embeddings[kept])
    # Image after image, of each all of them.
    places = [part.table["name"].index(name) for name in part.regions["name"]]
    assert places == sorted(places)
    for name in shown:
        counts = [one.regions["name"].count(name) for one in (part, run)]
        assert counts[0] == counts[1]


@pytest.mark.parametrize("where", ["nowhere", "not among those shown"])
def test_a_part_without_regions(where: str) -> None:
    run = make_run()
    shown = {run.table["name"][row] for row in shown_rows(run.table, PART)}
    if where == "nowhere":
        shown = set(run.table["name"])
    kept = [row for row, name in enumerate(run.regions["name"]) if name not in shown]
    bare = {column: [values[row] for row in kept] for column, values in run.regions.items()}
    run = dataclasses.replace(run, regions=bare, region_embeddings=run.region_embeddings[kept])
    part, _ = preview.excerpt(run, PART)
    assert part.regions == {column: [] for column in run.regions}
    assert part.region_embeddings.shape == (0, 48)
    assert part.region_embeddings.dtype == run.region_embeddings.dtype


def test_the_page_of_a_large_run() -> None:
    run, everybody = make_run(), make_run()
    evaluation = make_evaluation(run)
    evaluation["truth"] = [f"kind of {row}" for row in range(40)]
    rows = shown_rows(run.table, PART)
    blank = tuple(one if row in rows else b"" for row, one in enumerate(run.thumbnails))
    run = dataclasses.replace(run, thumbnails=blank)
    page = Page(render_report(run, evaluation, limits=PART))
    data = page.data()
    assert data["n"] == len(data["names"]) == len(data["thumbs"]) == len(rows)
    assert data["cluster"] == [run.table["cluster"][row] for row in rows]
    assert data["truth"] == [f"kind of {row}" for row in rows]
    assert data["k"]["saved"] == 4
    assert f"This page shows {len(rows)} of 40 images" in page.words()
    sizes = np.bincount(run.table["cluster"])
    assert ", ".join(f"{group}: {size}" for group, size in enumerate(sizes)) in page.words()
    again = render_report(run, evaluation, limits=PART)
    assert render_report(run, evaluation, limits=PART) == again
    assert Page(render_report(run, limits=PART)).data()["truth"] is None
    assert "This page shows" not in Page(render_report(everybody)).words()


# ---- saved runs ----


def save_large(model: AnomalyClusterer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save a run with a page of six images; the commands make such pages too."""
    run = storing.make_run(model.fitted_, limits=FEW)
    render = partial(render_report, limits=FEW)
    save_run(run, folder, extra={REPORT: render(run)})
    monkeypatch.setattr("flawsort.outputs.report.render_report", render)
    monkeypatch.setattr("flawsort.research.evaluate.render_report", render)


@pytest.fixture
def large(fitted: AnomalyClusterer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run of the 14 plates, too many for a page of six."""
    monkeypatch.chdir(tmp_path)
    save_large(fitted, tmp_path / "run", monkeypatch)
    return tmp_path / "run"


def thumbnails_of(model: AnomalyClusterer, count: int, sides: Sides = SIDES) -> tuple[bytes, ...]:
    size = model.fitted_.input_size
    return make_thumbnails(model.images_, model.view_, size, np.arange(count), sides=sides)


def test_thumbnails_are_made_of_what_is_shown(large: Path, fitted: AnomalyClusterer) -> None:
    run = open_run(large)
    rows = shown_rows(run.table, FEW)
    assert 6 <= len(rows) < 14
    assert [row for row, one in enumerate(run.thumbnails) if one] == rows.tolist()
    assert len(run.thumbnails) == 14
    whole = thumbnails_of(fitted, 14)
    assert all(one.startswith(b"\xff\xd8") for one in whole)
    assert [run.thumbnails[row] for row in rows] == [whole[row] for row in rows]


def test_their_size_follows_what_is_shown(fitted: AnomalyClusterer) -> None:
    made = [thumbnails_of(fitted, count, Sides(((6, 32),), smallest=16)) for count in (6, 7)]
    sizes = [next(len(one) for one in some if one) for some in made]
    assert sizes[0] > sizes[1]


def test_a_large_run_is_saved_and_opened_whole(large: Path, tmp_path: Path) -> None:
    run = open_run(large)
    assert set(run.regions["name"]) > {run.table["name"][row] for row in shown_rows(run.table, FEW)}
    save_run(run, tmp_path / "again")
    assert fingerprint(open_run(tmp_path / "again")) == fingerprint(run)
    first, second = contents(large), contents(tmp_path / "again")
    assert {name for name in first if first[name] != second.get(name)} == {
        "manifest.json",
        "report.html",
    }


def test_its_report_is_the_same_when_made_again(large: Path, cli: Cli) -> None:
    page = (large / "report.html").read_text("utf-8")
    assert "This page shows 6 of 14 images" in Page(page).words()
    assert "14 images sorted into 2 groups" in Page(page).words()
    assert "images.csv lists all. Images by group: 0: 7, 1: 7." in Page(page).words()
    assert cli("report", large).code == 0
    assert (large / "report.html").read_text("utf-8") == page
    names = [f"{kind}{number:02d}.png" for number, kind in enumerate(KINDS)]
    lines = "".join(f"{name},is {name}\n" for name in names)
    Path("truth.csv").write_text(f"path,label\n{lines}")
    assert cli("evaluate", large, "--truth", "truth.csv").code == 0
    evaluated = (large / "report.html").read_text("utf-8")
    data = Page(evaluated).data()
    assert data["truth"] == [f"is {name}" for name in data["names"]]
    assert cli("report", large).code == 0
    assert (large / "report.html").read_text("utf-8") == evaluated
    manifest = json.loads((large / "manifest.json").read_text("utf-8"))
    assert not any("This page shows" in one for one in manifest["warnings"])
    listed = (large / "images.csv").read_text("utf-8")
    assert len(re.findall("\n", listed)) == 15


def test_heat_maps_where_file_and_thumbnail_are_missing(
    plates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    shutil.copytree(plates / "parts", tmp_path / "parts")
    model = AnomalyClusterer(n_clusters=2, image_size=64, cache=None)
    save_large(model.fit(tmp_path / "parts"), tmp_path / "run", monkeypatch)
    shutil.rmtree(tmp_path / "parts")
    answer = cli("report", tmp_path / "run", "--heatmaps", tmp_path / "maps")
    assert answer.code in (0, 2), answer.err

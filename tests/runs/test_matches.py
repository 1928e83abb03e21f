"""The best matching places of a run: in its tables, stored, and for new images."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from flawsort import AnomalyClusterer, open_run
from flawsort.core.errors import InputError
from flawsort.embeddings.places import Places
from flawsort.runs.matches import (
    Match,
    gallery_digests,
    gallery_names,
    hot_peers,
    match_in,
    matched_places,
    places_of,
)
from helpers.part_batches import assert_same_values
from helpers.plates import KINDS, NORMALS, plate, settings, write_plates
from helpers.runs import MadeRegion, build_run


@pytest.fixture(scope="module")
def alone(plates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the plates without normals."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    AnomalyClusterer(n_clusters=2, **settings()).fit(plates / "parts").save(folder)
    return folder


def test_every_image_and_every_region_matches_a_normal(saved: Path, plates: Path) -> None:
    run = open_run(saved)
    normals = {path.name for path in (plates / "good").iterdir()}
    assert set(run.table["match"]) <= normals
    assert set(run.regions["match"]) <= normals
    for row in range(len(run.regions["name"])):
        if run.regions["region"][row] == 0:  # the hottest region is the image's place
            image = run.row_of[run.regions["name"][row]]
            assert match_in(run.regions, row) == match_in(run.table, image)
    assert {Path(path).name: digest for path, digest in run.normal_paths.values()} == {
        name: digest for name, (_, digest) in run.normal_paths.items()
    }
    assert all(Path(path).is_file() for path, _ in run.normal_paths.values())


def test_without_normals_it_matches_another_image(alone: Path) -> None:
    run = open_run(alone)
    assert set(run.table["match"]) <= set(run.names)
    assert all(match != name for match, name in zip(run.table["match"], run.names, strict=True))
    assert run.normal_paths == {}


@pytest.mark.parametrize("way", ["saved", "alone"])
def test_places_are_stored_and_restored(way: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(way)
    run, fitted = open_run(folder), AnomalyClusterer.load(folder).fitted_
    places = places_of(run)
    assert places is not None
    assert_same_values(fitted.places, places)
    assert fitted.gallery == gallery_digests(run)
    names = gallery_names(run)
    assert [names[image] for image in places.matches[:, 0]] == run.table["match"]
    assert len(places.of_regions) == len(run.regions["name"])
    of_images, of_regions = matched_places(fitted)
    assert of_images is not None
    assert of_regions is not None
    assert of_images.along(0) == run.table["match_down"]
    assert of_regions.along(1) == run.regions["match_across"]
    if way == "saved":
        assert sorted(names) == sorted(run.normal_paths)
        assert hot_peers(run) is None
    else:
        hot = hot_peers(run)
        assert hot is not None
        assert hot.shape == (len(names), run.scores.shape[1])
        assert 0 < hot.mean() < 0.5
        row = run.row_of[names[3]]
        np.testing.assert_array_equal(hot[3], run.scores[row] > run.heat.low)


@pytest.mark.parametrize("way", ["saved", "alone"])
def test_new_images_match_as_those_of_the_fit(
    way: str, request: pytest.FixtureRequest, fitted: AnomalyClusterer
) -> None:
    model = AnomalyClusterer.load(request.getfixturevalue(way))
    model.cache = None
    found = model.assign([plate("dent", 60), plate("good", 61), plate("dent", 0)])[1]
    assert found.boxes is not None
    assert found.matches is not None
    assert (found.matches[:, 0] >= 0).all()
    again = model.fitted_.images.digests
    digest = model.assign([plate("dent", 0)])[0].digests[0]
    assert digest not in again  # an array is another content than its file
    if way == "saved":
        fresh = fitted.assign([plate("dent", 60), plate("good", 61), plate("dent", 0)])[1]
        assert fresh.matches is not None
        np.testing.assert_array_equal(fresh.matches, found.matches)
        np.testing.assert_array_equal(fresh.boxes, found.boxes)


def test_images_of_the_run_keep_their_places(saved: Path, plates: Path) -> None:
    model = AnomalyClusterer.load(saved)
    model.cache = None
    images, found, _ = model.assign(plates / "parts")
    places = model.fitted_.places
    assert places is not None
    assert images.names == model.images_.names
    np.testing.assert_array_equal(found.boxes, places.boxes)
    np.testing.assert_array_equal(found.matches, places.matches)


def test_copies_have_the_same_place(tmp_path: Path, plates: Path) -> None:
    write_plates(tmp_path / "parts", KINDS[:8])
    shutil.copy(tmp_path / "parts/dent00.png", tmp_path / "parts/zz.png")
    write_plates(tmp_path / "good", NORMALS[:8])
    shutil.copy(tmp_path / "good/good03.png", tmp_path / "good/aa.png")
    model = AnomalyClusterer(n_clusters=2, **settings())
    run = model.fit(tmp_path / "parts", normal=tmp_path / "good").make_run()
    first, second = run.row_of["dent00.png"], run.row_of["zz.png"]
    assert match_in(run.table, first) == match_in(run.table, second)
    # Of normals with one content the first by name.
    assert "good03.png" not in {*run.table["match"], *run.regions["match"]}


def test_a_run_of_an_older_version(saved: Path, tmp_path: Path) -> None:
    run = open_run(saved)
    for table in (run.table, run.regions):
        for name in ("match", "match_down", "match_across"):
            del table[name]
    older = dataclasses.replace(run, gallery=None, close_ups=None, matches=None)
    manifest = json.loads(json.dumps(older.manifest))
    for entry in manifest["inputs"]["normals"]:
        del entry["path"]
    older = dataclasses.replace(older, manifest=manifest)
    assert match_in(older.table, 0) is None
    assert places_of(older) is None
    assert gallery_digests(older) == ()
    assert {path for path, _ in older.normal_paths.values()} == {""}
    from flawsort.runs.folder import save_run

    save_run(older, tmp_path / "run")
    model = AnomalyClusterer.load(tmp_path / "run")
    model.cache = None
    found = model.assign([plate("dent", 60)])[1]
    assert found.matches is not None
    assert found.matches.tolist() == [[-1, 0, 0]]


def test_matches_in_a_table() -> None:
    regions = [MadeRegion(0, 0, "1", match=("good.png", 2, -3)), MadeRegion(1, 0, "1")]
    run = build_run([0, 0], regions=regions)
    assert match_in(run.regions, 0) == Match("good.png", 2, -3)
    assert match_in(run.regions, 1) is None
    assert match_in({"name": ["a"]}, 0) is None


def test_places_must_belong_to_the_images(fitted: AnomalyClusterer) -> None:
    whole = fitted.fitted_
    assert whole.places is not None
    for name, shape in (("boxes", "(14, 4)"), ("matches", "(14, 3)"), ("of_regions", "3)")):
        values = getattr(whole.places, name)[1:]
        wrong: Places = dataclasses.replace(whole.places, **{name: values})
        with pytest.raises(
            InputError, match=rf"places.{name} must have the shape .*{shape[-4:-1]}"
        ):
            dataclasses.replace(whole, places=wrong)

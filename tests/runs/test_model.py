"""The fitted model in a run: two views, damage, and runs of the format before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort import AnomalyClusterer, Method, RunError, open_run
from flawsort.backbones import BackboneChoice, open_backbone
from flawsort.core.records import Bags
from flawsort.core.storage import sha256
from flawsort.embeddings.describer import Describer
from flawsort.fitting.source import embed_views
from flawsort.images.find import array_images
from flawsort.runs.convert import fitted_of, make_run
from flawsort.runs.model import looks_of, method_of, view_arrays
from flawsort.scores.views import CalibratedReference, stored_views
from helpers.onnx_files import average_pool, two_strides
from helpers.part_batches import assert_same_values
from helpers.plates import NORMALS, contents, plate, plate_arrays

NEW = [plate(kind, 50 + number) for number, kind in enumerate(("dent", "streak", "good"))]
PLAIN = Method(calibrated=False, mean_share=0.0, shorten=0.0)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two ONNX files: maps of stride 8 and 16 together, and maps of stride 4."""
    folder = tmp_path_factory.mktemp("networks")
    paths = folder / "two.onnx", folder / "fine.onnx"
    paths[0].write_bytes(two_strides())
    paths[1].write_bytes(average_pool(4))
    return paths


def fit(networks: tuple[Path, ...], *, normals: bool = True, **given: Any) -> AnomalyClusterer:
    views = [BackboneChoice(networks[0], image_size=64)]
    if len(networks) > 1:
        views.append(BackboneChoice(networks[1], image_size=64, grid=5))
    model = AnomalyClusterer(n_clusters=2, backbone=views, cache=None, **given)
    return model.fit(plate_arrays(), normal=plate_arrays(NORMALS) if normals else None)


@pytest.fixture(scope="module", params=[True, False], ids=["normals", "peers"])
def fitted(request: pytest.FixtureRequest, networks: tuple[Path, Path]) -> AnomalyClusterer:
    return fit(networks, normals=request.param)


@pytest.fixture(scope="module")
def saved(fitted: AnomalyClusterer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run"
    fitted.save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the manifest of a run; its hashes become those of the files."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    names = [name for name in manifest["files"] if (folder / name).exists()]
    manifest["files"] = {name: sha256(folder / name) for name in names}
    path.write_text(json.dumps(manifest))


def change_views(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the arrays of views.npz."""
    with np.load(folder / "views.npz") as stored:
        arrays = dict(stored)
    edit(arrays)
    np.savez(folder / "views.npz", **arrays)
    change(folder, lambda manifest: None)


def assert_same_state(one: Describer, other: Describer) -> None:
    assert one.method == other.method
    assert (one.temperature, one.spread, one.mean_share) == (
        other.temperature, other.spread, other.mean_share,
    )  # fmt: skip
    assert one.heat == other.heat
    assert_same_values(one.axes, other.axes)
    for look, again in zip(one.looks, other.looks, strict=True):
        assert_same_values(look, again)
    assert one.reference is not None
    assert other.reference is not None
    stored = stored_views(one.reference), stored_views(other.reference)
    for view, again_view in zip(*stored, strict=True):
        assert view.grid == again_view.grid
        for array, copy in zip(view.arrays(), again_view.arrays(), strict=True):
            np.testing.assert_array_equal(array, copy)


def bags_of(model: AnomalyClusterer) -> Bags:
    """The new images in the views of a model."""
    backbones = [open_backbone(choice) for choice in model.fitted_.opened]
    bags, _ = embed_views(array_images(NEW), backbones, model.fitted_.view)
    assert bags is not None
    return bags


def test_a_run_of_two_views_opens_to_the_same_describer(
    fitted: AnomalyClusterer, folder: Path
) -> None:
    opened = AnomalyClusterer.load(folder)
    assert_same_state(opened.describer_, fitted.describer_)
    assert len(opened.describer_.looks) == 2
    assert isinstance(opened.describer_.reference, CalibratedReference)
    assert opened.fitted_.backbones == fitted.fitted_.backbones
    assert opened.fitted_.opened == tuple(
        BackboneChoice(str(one.name), one.weights, one.image_size, one.grid)
        for one in fitted.fitted_.opened
    )
    assert opened.fitted_.bag_shapes == ((64, 6), (25, 3))


def test_new_images_are_described_the_same(fitted: AnomalyClusterer, folder: Path) -> None:
    opened = AnomalyClusterer.load(folder)
    one, other = fitted.assign(NEW), opened.assign(NEW)
    assert one[0] == other[0]
    np.testing.assert_array_equal(one[2], other[2])
    assert_same_values(one[1], other[1])
    described = [
        fitted.describer_.describe(bags_of(fitted)),
        opened.describer_.describe(bags_of(opened)),
    ]
    assert_same_values(*described)
    assert np.isfinite(described[0].embeddings).all()


def test_bytes_are_the_same_twice(fitted: AnomalyClusterer, folder: Path, tmp_path: Path) -> None:
    fitted.save(tmp_path / "again")
    assert contents(tmp_path / "again") == contents(folder)
    AnomalyClusterer.load(folder).save(tmp_path / "opened")
    assert contents(tmp_path / "opened") == contents(folder)


def test_two_fits_store_the_same_model(networks: tuple[Path, Path], tmp_path: Path) -> None:
    stored = []
    for number in range(2):
        fit(networks).save(tmp_path / str(number))
        stored.append(contents(tmp_path / str(number)))
    for name in ("views.npz", "whitening.npy", "reference.npy", "scores.npy", "embeddings.npy"):
        assert stored[0][name] == stored[1][name]


def test_what_is_stored(fitted: AnomalyClusterer, folder: Path) -> None:
    run = open_run(folder)
    assert run.manifest["format"]["version"] == 4
    model = run.manifest["model"]
    assert [entry["grid"] for entry in model["looks"]] == [[8, 8], [5, 5]]
    assert [entry["dim"] for entry in model["looks"]] == [6, 3]
    assert all(entry["spread"] > 0 for entry in model["looks"])
    assert [entry["grid_side"] for entry in model["views"]] == [None, 5]
    assert [Path(entry["backbone"]).name for entry in model["views"]] == ["two.onnx", "fine.onnx"]
    assert run.manifest["backbone"]["dim"] == 6
    assert [entry["grid"] for entry in run.manifest["beside"]] == [5]
    assert run.views is not None
    common = {
        "embedding-centre", "view-0-places", "view-0-mean-centre", "view-1-reference",
        "view-1-places", "view-1-whitening", "view-1-mean-centre",
    }  # fmt: skip
    of_normals = {"view-0-mean-whitening", "view-1-mean-whitening", "view-1-rows"}
    with_normals = fitted.fitted_.normals is not None
    assert run.views.keys() == (common | of_normals if with_normals else common)


def test_lists_of_both_views_are_stored(networks: tuple[Path, Path], tmp_path: Path) -> None:
    model = fit(networks, method=Method(exact=False))
    model.save(tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.lists is not None
    assert run.views is not None
    assert {"view-1-list-centres", "view-1-list-offsets"} <= run.views.keys()
    opened = AnomalyClusterer.load(tmp_path / "run")
    np.testing.assert_array_equal(model.assign(NEW)[2], opened.assign(NEW)[2])


def test_one_view_without_calibration_needs_no_further_file(
    networks: tuple[Path, Path], tmp_path: Path
) -> None:
    fit(networks[:1], method=PLAIN).save(tmp_path / "run")
    assert not (tmp_path / "run" / "views.npz").exists()
    assert open_run(tmp_path / "run").views is None


def test_uniform_weights_have_looks_and_no_reference(
    networks: tuple[Path, Path], tmp_path: Path
) -> None:
    method = Method(weights="uniform", pooling="average")
    model = fit(networks, normals=False, method=method)
    model.save(tmp_path / "run")
    opened = AnomalyClusterer.load(tmp_path / "run")
    assert opened.describer_.reference is None
    assert opened.describer_.shapes == ((64, 6), (25, 3))
    np.testing.assert_array_equal(opened.assign(NEW)[1].labels, model.assign(NEW)[1].labels)


def test_arrays_of_the_first_view_that_a_run_declares_are_not_stored_twice(
    fitted: AnomalyClusterer,
) -> None:
    describer = fitted.describer_
    assert describer.reference is not None
    stored = stored_views(describer.reference)
    arrays = view_arrays(stored, describer.looks)
    assert not {"view-0-reference", "view-0-whitening"} & arrays.keys()
    run = make_run(fitted.fitted_)
    np.testing.assert_array_equal(run.reference, stored[0].reference.patches)  # type: ignore[arg-type]
    for look, again in zip(describer.looks, looks_of(run), strict=True):
        assert_same_values(look, again)


# ---- damage ----


def test_a_damaged_file_is_noticed(folder: Path) -> None:
    path = folder / "views.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(RunError, match=r"views\.npz has changed since it was written"):
        open_run(folder)
    path.unlink()
    with pytest.raises(RunError, match=r"views\.npz is missing"):
        open_run(folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"not a file of arrays"])
def test_a_file_that_holds_no_arrays(folder: Path, content: bytes) -> None:
    """With a hash that agrees: written so, or changed together with the manifest."""
    (folder / "views.npz").write_bytes(content)
    change(folder, lambda manifest: None)
    with pytest.raises(RunError, match="damaged"):
        open_run(folder)


@pytest.mark.parametrize(
    "name", ["view-0-places", "view-1-places", "view-1-reference", "embedding-centre"]
)
def test_a_missing_array(folder: Path, name: str) -> None:
    change_views(folder, lambda arrays: arrays.pop(name))
    with pytest.raises(RunError, match="is damaged"):
        fitted_of(open_run(folder))


@pytest.mark.parametrize(
    "name",
    [
        "view-0-places",
        "view-1-places",
        "view-1-whitening",
        "view-1-reference",
        "view-0-mean-centre",
        "embedding-centre",
    ],
)
def test_an_array_of_another_shape(folder: Path, name: str) -> None:
    change_views(folder, lambda arrays: arrays.update({name: arrays[name][..., :-1]}))
    with pytest.raises(RunError, match=rf"is damaged: {name} has the shape .* instead of"):
        fitted_of(open_run(folder))


def test_no_views_at_all(folder: Path) -> None:
    (folder / "views.npz").unlink()
    change(folder, lambda manifest: None)
    with pytest.raises(RunError, match="is damaged"):
        fitted_of(open_run(folder))


@pytest.mark.parametrize("key", ["grid", "dim", "spread"])
def test_a_look_without_an_entry(folder: Path, key: str) -> None:
    change(folder, lambda manifest: manifest["model"]["looks"][1].pop(key))
    with pytest.raises(RunError, match=f"is damaged: missing or invalid .*'{key}'"):
        fitted_of(open_run(folder))


# ---- the format before ----


def as_format_3(folder: Path) -> None:
    """Write a run of one view, without calibration and mean patches, as version 3 did."""

    def older(manifest: dict[str, Any]) -> None:
        manifest["format"]["version"] = 3
        model = manifest["model"]
        for name in ("calibrated", "mean_share", "shorten"):
            del model["method"][name], manifest["settings"][name]
        del model["looks"], model["mean_share"], manifest["settings"]["share of the mean patches"]
        (view,) = model.pop("views")
        del view["grid_side"]
        model |= view
        if model["axes"] is not None:
            model["axes"] = model["axes"]["extents"]
        del manifest["heat"]["normal_below"], manifest["beside"], manifest["backbone"]["grid"]

    assert not (folder / "views.npz").exists()
    change(folder, older)


@pytest.mark.parametrize("normals", [True, False])
@pytest.mark.parametrize("pooling", ["residual", "average"])
def test_a_run_of_format_3_opens_and_assigns(
    networks: tuple[Path, Path], tmp_path: Path, normals: bool, pooling: str
) -> None:
    method = Method(calibrated=False, mean_share=0.0, shorten=0.0, pooling=pooling)
    model = fit(networks[:1], normals=normals, method=method)
    model.save(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "older")
    as_format_3(tmp_path / "older")
    run = open_run(tmp_path / "older")
    assert run.manifest["format"]["version"] == 3
    assert run.heat.normal_below is None
    opened = AnomalyClusterer.from_run(run)
    assert opened.describer_.method == method
    assert opened.fitted_.bag_shapes == ((64, 6),)
    assert opened.fitted_.backbones == model.fitted_.backbones
    assert opened.fitted_.opened == AnomalyClusterer.load(tmp_path / "run").fitted_.opened
    one, other = model.assign(NEW), opened.assign(NEW)
    np.testing.assert_array_equal(one[2], other[2])
    assert other[1].looks_normal is not None  # such a run does not say which scores are normal
    assert not other[1].looks_normal.any()
    assert one[1].looks_normal is not None
    assert (model.describer_.heat.normal_below is not None) == normals
    unlike = np.where(one[1].labels == -2, -1, one[1].labels)
    np.testing.assert_array_equal(unlike, other[1].labels)
    for name in ("nearest", "confidence", "novelty", "placed"):
        assert_same_values(getattr(one[1], name), getattr(other[1], name))
    parts = plate_arrays()
    np.testing.assert_array_equal(opened.predict(parts), model.predict(parts))


def test_a_run_of_format_3_is_saved_in_the_format_of_today(
    networks: tuple[Path, Path], tmp_path: Path
) -> None:
    fit(networks[:1], method=PLAIN).save(tmp_path / "older")
    as_format_3(tmp_path / "older")
    opened = AnomalyClusterer.load(tmp_path / "older")
    make_run(opened.fitted_)
    assert opened.looks_normal_ is None
    described = opened.assign(NEW)
    again = fitted_of(make_run(opened.fitted_))
    assert_same_state(again.describer, opened.describer_)
    assert described[1].labels.shape == (3,)


def test_other_formats_are_refused(folder: Path) -> None:
    for version in (2, 5, "4", None):
        change(folder, lambda manifest, v=version: manifest["format"].update(version=v))
        with pytest.raises(RunError, match=f"format version {version}; .* reads versions 3 and 4"):
            open_run(folder)


def test_what_an_older_method_was() -> None:
    fields = {"pooling": "residual", "nearest_share": 0.2}
    older = Method(shorten=0.0, expected_normals=0)
    assert method_of({"method": fields}) == replace(older, calibrated=False, mean_share=0.0)
    assert method_of({"method": fields, "looks": []}) == older


def test_a_run_from_before_lengths_were_shortened(
    networks: tuple[Path, Path], tmp_path: Path
) -> None:
    model = fit(networks, method=Method(shorten=0.0))
    model.save(tmp_path / "run")

    def older(manifest: dict[str, Any]) -> None:
        del manifest["model"]["method"]["shorten"], manifest["settings"]["shorten"]
        del manifest["model"]["axes"]["shortening"]

    change(tmp_path / "run", older)
    opened = AnomalyClusterer.load(tmp_path / "run")
    assert_same_state(opened.describer_, model.describer_)
    np.testing.assert_array_equal(model.assign(NEW)[2], opened.assign(NEW)[2])


def test_a_run_from_before_the_mean_of_many_normals_was_expected(
    networks: tuple[Path, Path], tmp_path: Path
) -> None:
    model = fit(networks, method=Method(expected_normals=0))
    model.save(tmp_path / "run")
    other = fit(networks)
    assert not np.allclose(other.embeddings_, model.embeddings_, atol=1e-3)

    def older(manifest: dict[str, Any]) -> None:
        del manifest["model"]["method"]["expected_normals"]
        del manifest["settings"]["expected_normals"]

    change(tmp_path / "run", older)
    opened = AnomalyClusterer.load(tmp_path / "run")
    assert_same_state(opened.describer_, model.describer_)
    np.testing.assert_array_equal(model.assign(NEW)[2], opened.assign(NEW)[2])

"""Run folders: round trips, damage, interruptions, and names of every kind."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from copy import copy as copy_of
from pathlib import Path

import arro3.io
import numpy as np
import pytest
from PIL import Image

import flawsort
from flawsort import AnomalyClusterer, BackboneError, Bags, Method, OptionError, Run, RunError, View
from flawsort import open_run as open_
from flawsort.backbones import DEFAULT_BACKBONE, BackboneChoice, catalogue, entry_path
from flawsort.clusters.kinds import Regions
from flawsort.core.tables import unguarded
from flawsort.embeddings.regions import Outlines, mask_cells
from flawsort.fitting.memory import Sizes
from flawsort.runs.changes import replace_files
from flawsort.runs.convert import make_run
from flawsort.runs.folder import prepared_output, save_run
from flawsort.scores.engines import CpuEngine, CpuLimits, choose_engine
from helpers import faults
from helpers.faults import Fault, watched
from helpers.part_batches import assert_same_values
from helpers.plates import (
    NORMALS,
    Cli,
    contents,
    fingerprint,
    plate,
    plate_arrays,
    run_code,
    settings,
    write_plates,
)

# What only a run has whose images were compared with others.
PLACES = {"close-ups.bin", "close-ups.npy", "gallery.npz", "matches.bin", "matches.npy"}
FILES = PLACES | {
    "embeddings.npy", "health.json", "images.csv", "images.parquet", "layout.npy", "linkage.npy",
    "manifest.json",
    "reference.npy", "region-embeddings.npy", "regions.csv", "regions.parquet", "report.html",
    "scores.npy", "thumbnails.bin", "thumbnails.npy", "views.npz", "weights.npy", "whitening.npy",
}  # fmt: skip
# What a run is not opened from.
NOT_READ = {"manifest.json", "report.html", "images.csv", "regions.csv"}
COLUMNS = {
    "images": [
        "name", "path", "sha256", "group", "probability", "decided", "cluster", "kinds", "score",
        "distance", "typicality", "runner_up", "runner_up_distance", "flags", "match",
        "match_down", "match_across",
    ],
    "regions": [
        "name", "region", "cluster", "nearest", "confidence", "score", "heat", "x", "y", "width",
        "height", "mask", "match", "match_down", "match_across",
    ],
}  # fmt: skip
# All but the quarter at the top left.
INSIDE = np.kron(np.array([[0, 255], [255, 255]], np.uint8), np.ones((32, 32), np.uint8))
LISTS = {"list-centres.npy", "list-offsets.npy"}
OPEN = """
import json, sys
from pathlib import Path
from helpers.plates import fingerprint
from flawsort import AnomalyClusterer, open_run

print(json.dumps(fingerprint(open_run(Path(sys.argv[1])))))
model = AnomalyClusterer.load(sys.argv[1])
model.cache = None
images, found, scores = model.assign(sys.argv[2])
told = [images.names, found.labels.tolist(), found.nearest.tolist(), found.novelty.tolist(),
        found.confidence.tolist(), scores.tolist(), found.kinds]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def run(fitted: AnomalyClusterer) -> Run:
    return make_run(fitted.fitted_)


@pytest.fixture(scope="module")
def masked(plates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run made with inverted lists and with a mask, which is gone."""
    folder = tmp_path_factory.mktemp("masked")
    Image.fromarray(INSIDE).save(folder / "mask.png")
    model = AnomalyClusterer(
        **settings(n_clusters=2, view=View(mask=folder / "mask.png"), method=Method(exact=False))
    )
    model.fit(plates / "parts", normal=plates / "good").save(folder / "run")
    (folder / "mask.png").unlink()
    return folder / "run"


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """A run of one's own to damage."""
    return Path(shutil.copytree(saved, tmp_path / "run"))


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


class TestRoundTrip:
    @pytest.mark.parametrize(
        "way", ["normals", "peers", "padded", "uniform", "lists", "mask", "views", "paper"]
    )
    def test_in_a_new_process(
        self, way: str, plates: Path, fitted: AnomalyClusterer, tmp_path: Path
    ) -> None:
        model = fitted
        if way == "padded":
            parameters = settings(n_clusters=3, view=View(fit="pad", roi=(0, 0, 1, 0.5)))
            model = AnomalyClusterer(**parameters).fit(plates / "parts", normal=plates / "good")
        if way == "peers":
            model = AnomalyClusterer(**settings(n_clusters=np.int64(4), random_state=np.int64(3)))
            model.fit(plates / "parts")
        if way == "uniform":
            method = Method(weights="uniform", pooling="average")
            model = AnomalyClusterer(**settings(method=method)).fit(plates / "parts")
        if way == "lists":
            model = AnomalyClusterer(**settings(method=Method(exact=False)))
            model.fit(plates / "parts", normal=plates / "good")
        if way == "views":  # two, with inverted lists each
            views = [BackboneChoice(DEFAULT_BACKBONE, image_size=size) for size in (64, 96)]
            method = Method(exact=False)
            model = AnomalyClusterer(n_clusters=2, backbone=views, method=method, cache=None)
            model.fit(plates / "parts", normal=plates / "good")
        if way == "paper":
            model = AnomalyClusterer(**settings(n_clusters=2, method="paper"))
            model.fit(plates / "parts")
        if way == "mask":
            Image.fromarray(np.tile(np.uint8([9, 0]).repeat(32), (64, 1))).save(tmp_path / "m.tif")
            model = AnomalyClusterer(**settings(view=View(mask=tmp_path / "m.tif")))
            model.fit(plates / "parts")
        model.save(tmp_path / "run")
        answer = run_code(OPEN, tmp_path / "run", plates / "good")
        assert (answer.code, answer.err) == (0, "")
        opened, assigned = (json.loads(line) for line in answer.out.splitlines())
        assert opened == fingerprint(make_run(model.fitted_))
        images, found, scores = model.assign(plates / "good")
        assert assigned == [
            list(images.names),
            found.labels.tolist(),
            found.nearest.tolist(),
            found.novelty.tolist(),
            found.confidence.tolist(),
            scores.tolist(),
            [list(groups) for groups in found.kinds],
        ]

    def test_loaded_model(self, fitted: AnomalyClusterer, saved: Path) -> None:
        model = AnomalyClusterer.load(str(saved))
        assert model.get_params()["n_clusters"] == 2
        for name in ("labels_", "embeddings_", "linkage_", "scores_", "weights_"):
            assert np.array_equal(getattr(model, name), getattr(fitted, name))
        for name in ("grid_", "heat_", "view_", "n_clusters_", "backbones_", "n_dims_"):
            assert getattr(model, name) == getattr(fitted, name)
        assert model.images_.names == fitted.images_.names
        assert model.images_.digests == fitted.images_.digests
        assert len(model.regions_) >= 14
        assert_same_values(model.regions_, fitted.regions_)
        assert model.kinds_ == fitted.kinds_
        for name in ("method", "temperature", "spread", "heat", "mean_share"):
            assert getattr(model.describer_, name) == getattr(fitted.describer_, name)
        assert model.describer_.axes is not None
        assert_same_values(model.describer_.axes, fitted.describer_.axes)
        (look,), (kept,) = fitted.describer_.looks, model.describer_.looks
        assert_same_values(kept, look)
        assert look.arrays().keys() == {"whitening", "mean-centre", "mean-whitening"}
        assert look.whitening is not None
        assert look.whitening.dtype == np.float32
        assert look.whitening.shape == (fitted.n_dims_, fitted.n_dims_)
        assert np.load(saved / "whitening.npy").tobytes() == look.whitening.tobytes()
        images, found = fitted.assign([plate("dent", 60), plate("good", 61)])[:2]
        again = model.assign([plate("dent", 60), plate("good", 61)])
        assert again[0].names == images.names
        assert np.array_equal(again[1].novelty, found.novelty)
        assert again[1].kinds == found.kinds

    def test_a_run_of_the_format_before(self, plates: Path, tmp_path: Path) -> None:
        """One view, neither calibrated scores nor mean patches, and no word of any of these."""
        method = Method(calibrated=False, mean_share=0, shorten=0)
        model = AnomalyClusterer(**settings(n_clusters=2, method=method))
        model.fit(plates / "parts", normal=plates / "good").save(tmp_path / "run")
        path = tmp_path / "run" / "manifest.json"
        manifest = json.loads(path.read_text("utf-8"))
        manifest["format"]["version"] = 3
        assert "views.npz" not in manifest["files"]
        del manifest["beside"], manifest["heat"]["normal_below"], manifest["backbone"]["grid"]
        stored = manifest["model"]
        (opened,) = stored.pop("views")
        stored |= {name: opened[name] for name in ("backbone", "backbone_weights", "image_size")}
        stored["axes"] = stored["axes"]["extents"]
        for name in ("looks", "mean_share"):
            del stored[name]
        for name in ("calibrated", "mean_share", "shorten"):
            del stored["method"][name]
        path.write_text(json.dumps(manifest), "utf-8")
        loaded = AnomalyClusterer.load(tmp_path / "run")
        loaded.cache = None
        assert loaded.describer_.method == method
        assert loaded.looks_normal_ is None
        assert_same_values(loaded.describer_.axes, model.describer_.axes)
        for name in ("temperature", "spread", "mean_share"):
            assert getattr(loaded.describer_, name) == getattr(model.describer_, name)
        assert_same_values(loaded.describer_.looks[0], model.describer_.looks[0])
        new = [plate("dent", 60), plate("good", 61)]
        wanted, found = model.assign(new), loaded.assign(new)
        assert np.array_equal(found[2], wanted[2])
        assert np.array_equal(found[1].novelty, wanted[1].novelty)
        assert np.array_equal(loaded.predict(plates / "parts"), model.labels_)

    def test_the_table_of_regions(self, fitted: AnomalyClusterer, saved: Path) -> None:
        run, regions = open_(saved), fitted.regions_
        table, outlines = run.regions, regions.outlines
        assert {len(column) for column in table.values()} == {len(regions)}
        assert table["name"] == [fitted.images_.names[row] for row in outlines.images]
        assert table["cluster"] == regions.labels.tolist()
        assert table["score"] == outlines.peaks.tolist()
        first = {name: table["name"].index(name) for name in table["name"]}
        rows = [row - first[name] for row, name in enumerate(table["name"])]
        assert table["region"] == rows
        for row in range(len(regions)):
            assert np.array_equal(mask_cells([table["mask"][row]])[0], outlines[row])
        boxes = np.array([table[name] for name in ("x", "y", "width", "height")]).T
        boxes[:, 2:] += boxes[:, :2]
        np.testing.assert_allclose(boxes, outlines.boxes(fitted.grid_), atol=1e-12)
        assert run.region_embeddings.dtype == np.float32
        assert np.array_equal(run.region_embeddings, regions.embeddings)
        assert run.table["kinds"] == [";".join(map(str, one)) for one in fitted.kinds_]

    def test_regions_like_no_group(self, fitted: AnomalyClusterer, tmp_path: Path) -> None:
        model = copy_of(fitted)
        labels = np.where(np.arange(len(model.regions_)) % 3 == 0, -1, model.regions_.labels)
        regions = dataclasses.replace(model.regions_, labels=labels)
        model.fitted_ = dataclasses.replace(model.fitted_, regions=regions)
        model.save(tmp_path / "run")
        assert open_(tmp_path / "run").regions["cluster"] == labels.tolist()
        assert_same_values(AnomalyClusterer.load(tmp_path / "run").regions_, model.regions_)

    def test_regions_in_the_order_of_the_images(self, plates: Path, tmp_path: Path) -> None:
        """Copies of one content have its regions each, whatever they are called."""
        for name, source in (("z", "dent00"), ("b", "streak08"), ("m", "dent00"), ("a", "dent01")):
            shutil.copy(plates / "parts" / f"{source}.png", tmp_path / f"{name}.png")
        model = AnomalyClusterer(**settings(n_clusters=2))
        model.fit(tmp_path, normal=plates / "good").save(tmp_path / "run")
        run = open_(tmp_path / "run")
        names = run.table["name"]
        places = [names.index(name) for name in run.regions["name"]]
        assert places == sorted(places)
        own = {
            name: [row for row, one in enumerate(run.regions["name"]) if one == name]
            for name in names
        }
        assert all(own.values())
        for column, values in run.regions.items():
            if column != "name":
                first, second = ([values[row] for row in own[one]] for one in ("m.png", "z.png"))
                assert first == second
        assert np.array_equal(
            run.region_embeddings[own["m.png"]], run.region_embeddings[own["z.png"]]
        )
        assert_same_values(AnomalyClusterer.load(tmp_path / "run").regions_, model.regions_)

    @pytest.mark.parametrize("way", ["uniform", "even", "emptied"])
    def test_a_run_without_any_region(self, plates: Path, tmp_path: Path, way: str) -> None:
        method = Method(weights="uniform", pooling="average") if way == "uniform" else Method()
        model = AnomalyClusterer(**settings(n_clusters=2, method=method))
        if way == "even":  # two images of which each patch is as unusual as any other
            model.fit(Bags(np.eye(2, 8, dtype=np.float32)[:, None].repeat(16, axis=1), (4, 4)))
        else:
            model.fit(plates / "parts")
        if way == "emptied":
            none = np.empty(0, np.int64)
            embeddings = model.regions_.embeddings[:0]
            regions = Regions(Outlines.of([]), embeddings, none, none, np.empty(0))
            places = model.fitted_.places
            assert places is not None
            places = dataclasses.replace(places, of_regions=places.of_regions[:0])
            model.fitted_ = dataclasses.replace(model.fitted_, regions=regions, places=places)
        assert len(model.regions_) == 0
        run = make_run(model.fitted_)
        assert run.region_embeddings.shape == (0, run.embeddings.shape[1])
        assert run.table["kinds"] == [str(label) for label in model.labels_]
        model.save(tmp_path / "run")
        assert fingerprint(open_(tmp_path / "run")) == fingerprint(run)
        table = arro3.io.read_parquet(tmp_path / "run" / "regions.parquet").read_all()
        types = {name: str(table.column(name).type) for name in table.column_names}
        assert "Utf8" in types["name"]
        assert "Int64" in types["cluster"]
        assert "Float64" in types["x"]
        assert (tmp_path / "run" / "regions.csv").read_text().splitlines() == [",".join(types)]
        loaded = AnomalyClusterer.load(tmp_path / "run")
        assert_same_values(loaded.regions_, model.regions_)
        assert loaded.kinds_ == model.kinds_

    @pytest.mark.parametrize("weights", ["auto", "uniform"])
    def test_averages_have_no_whitening(self, plates: Path, tmp_path: Path, weights: str) -> None:
        method = Method(weights=weights, pooling="average")
        model = AnomalyClusterer(**settings(n_clusters=2, method=method)).fit(plates / "parts")
        model.save(tmp_path / "run")
        absent = {"whitening.npy"}
        if weights == "uniform":
            absent |= {"reference.npy", "views.npz"} | PLACES
        assert contents(tmp_path / "run").keys() == FILES - absent
        assert open_(tmp_path / "run").whitening is None
        assert AnomalyClusterer.load(tmp_path / "run").describer_.looks[0].whitening is None

    @pytest.mark.parametrize("way", ["normals", "peers"])
    def test_a_loaded_model_computes_where_it_is_told(
        self, plates: Path, saved: Path, tmp_path: Path, way: str
    ) -> None:
        folder = saved
        if way == "peers":
            folder = tmp_path / "run"
            AnomalyClusterer(**settings(n_clusters=2)).fit(plates / "parts").save(folder)

        def engine(**options: str) -> tuple[str, str | None, str | None]:
            model = AnomalyClusterer.load(folder, **options)
            assert model.describer_.reference is not None
            return model.describer_.reference.engine.name, model.device, model.arithmetic

        assert engine() == (choose_engine().name, None, None)
        assert engine(device="cpu") == ("the CPU, int8 where the work is large", "cpu", None)
        plain = ("NumPy on the CPU, float32", "cpu", "float32")
        assert engine(device="cpu", arithmetic="float32") == plain
        small = ("onnxruntime on the CPU, int8", "cpu", "int8")
        assert engine(device="cpu", arithmetic="int8") == small
        with pytest.raises(OptionError, match=r"device must be cpu, cuda or cuda:N\. Got 'tpu'"):
            engine(device="tpu")
        with pytest.raises(OptionError, match=r"arithmetic must be one of int8, .* Got 'int4'"):
            engine(device="cpu", arithmetic="int4")

    def test_the_device_is_the_networks_too(
        self, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[object] = []

        def stop(*_: object, device: object, **__: object) -> None:
            asked.append(device)
            raise BackboneError("far enough")

        monkeypatch.setattr("flawsort.estimator.open_backbone", stop)
        for options in ({}, {"device": "cpu"}):
            with pytest.raises(BackboneError, match="far enough"):
                AnomalyClusterer.load(saved, **options).predict([plate("dent", 1)])
        assert asked == [None, "cpu"]

    def test_a_loaded_model_saves_the_same_run(self, saved: Path, tmp_path: Path) -> None:
        AnomalyClusterer.load(saved).save(tmp_path / "again")
        first, second = contents(saved), contents(tmp_path / "again")
        assert {name: first[name] == second.get(name) for name in first} == dict.fromkeys(
            first, True
        )
        assert first.keys() == second.keys()

    def test_bags(self, tmp_path: Path, cli: Cli) -> None:
        patches = np.random.default_rng(0).normal(size=(5, 4, 8)).astype(np.float32)
        patches /= np.linalg.norm(patches, axis=2, keepdims=True)
        model = AnomalyClusterer(n_clusters=2).fit(Bags(patches, (2, 2)))
        model.save(tmp_path / "run")
        assert fingerprint(open_(tmp_path / "run")) == fingerprint(make_run(model.fitted_))
        loaded = AnomalyClusterer.load(tmp_path / "run")
        assert np.array_equal(
            loaded.predict(Bags(patches, (2, 2))), model.predict(Bags(patches, (2, 2)))
        )
        assert cli("report", tmp_path / "run", "--heatmaps", tmp_path / "maps").code == 0
        assert len(list((tmp_path / "maps").iterdir())) == 5

    def test_the_mask_is_part_of_the_run(
        self, plates: Path, tmp_path: Path, masked: Path, cli: Cli
    ) -> None:
        kept = open_(masked).mask
        assert kept is not None
        with Image.open(io.BytesIO(kept)) as picture:
            assert np.array_equal(np.asarray(picture), INSIDE)
        shutil.copytree(masked, tmp_path / "moved")
        loaded = AnomalyClusterer.load(tmp_path / "moved")
        loaded.cache = None
        assert loaded.valid_ is not None
        assert loaded.valid_.sum() == 14 * 48
        _, found, scores = loaded.assign(plates / "parts")
        assert np.array_equal(found.labels, loaded.labels_)
        # Lists are asked in the order of the images, which was that of content in the fit.
        assert np.allclose(scores[loaded.valid_], loaded.scores_[loaded.valid_], atol=1e-6)
        assert np.all(scores[~loaded.valid_] == scores.min())
        assert cli("assign", plates / "good", "--run", tmp_path / "moved", "-q").code == 0
        answer = cli("report", tmp_path / "moved", "--heatmaps", tmp_path / "maps")
        assert (answer.code, answer.err) == (0, "")
        assert len(list((tmp_path / "maps").iterdir())) == 14

    @pytest.mark.parametrize("decided", ["by size", "by the method"])
    def test_inverted_lists_are_part_of_the_run(
        self, plates: Path, tmp_path: Path, decided: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        method = Method(exact=None if decided == "by size" else False)
        model = AnomalyClusterer(**settings(n_clusters=2, method=method))
        if decided == "by size":
            model.sizes = Sizes(cpu=CpuLimits(exact_flop=0.0))
        model.fit(plates / "parts", normal=plates / "good").save(tmp_path / "run")
        assert "inverted lists" in model.scored_
        assert contents(tmp_path / "run").keys() == FILES | LISTS
        run = open_(tmp_path / "run")
        assert run.lists is not None
        assert run.reference is not None
        centres, offsets = run.lists
        assert len(offsets) == len(centres) + 1
        assert offsets[-1] == len(run.reference) == 640

        def fail(*_: object, **__: object) -> None:
            raise AssertionError("built again")

        wanted = model.assign([plate("dent", 50), plate("streak", 51), plate("good", 52)])
        # As few patches as these would be searched exactly if their number decided.
        monkeypatch.setattr("flawsort.scores.reference.build_lists", fail)
        loaded = AnomalyClusterer.load(tmp_path / "run")
        found = loaded.assign([plate("dent", 50), plate("streak", 51), plate("good", 52)])
        assert np.array_equal(found[2], wanted[2])
        for name in ("labels", "nearest", "confidence", "novelty"):
            assert np.array_equal(getattr(found[1], name), getattr(wanted[1], name))
        assert np.array_equal(loaded.predict(plates / "parts"), model.labels_)

    def test_an_exact_run_stays_exact(
        self, plates: Path, saved: Path, fitted: AnomalyClusterer
    ) -> None:
        loaded = AnomalyClusterer.load(saved)
        loaded.describer_.reference.engine = CpuEngine("auto", limits=CpuLimits(exact_flop=0.0))
        loaded.cache = None
        assert np.array_equal(loaded.assign(plates / "parts")[2], fitted.scores_)
        assert open_(saved).lists is None
        assert open_(saved).mask is None

    def test_lists_whitening_and_mask_are_not_needed(self, run: Run) -> None:
        left_out = ("lists", "whitening", "mask", "health")
        names = {field.name for field in dataclasses.fields(run)} - set(left_out)
        bare = Run(**{name: getattr(run, name) for name in names})
        assert (bare.lists, bare.whitening, bare.mask, bare.health) == (None, None, None, None)

    def test_a_backbone_file_is_found_from_any_folder_and_verified(
        self, plates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        embedded = entry_path(catalogue()[DEFAULT_BACKBONE])
        shutil.copy(embedded, tmp_path / "own.onnx")
        monkeypatch.chdir(tmp_path)
        model = AnomalyClusterer(**settings(n_clusters=2, backbone="own.onnx"))
        model.fit(plates / "parts", normal=plates / "good").save("run")
        monkeypatch.chdir("/")
        loaded = AnomalyClusterer.load(tmp_path / "run")
        loaded.cache = None
        assert np.array_equal(loaded.predict(plates / "parts"), model.labels_)
        # A trailing field that readers of the format skip: the same graph in another file.
        (tmp_path / "own.onnx").write_bytes(embedded.read_bytes() + b"\xfa\x7f\x01x")
        with pytest.raises(BackboneError, match="has changed since the fit: its SHA-256 is"):
            loaded.predict(plates / "parts")


class TestBytes:
    def test_twice_the_same(self, plates: Path, tmp_path: Path) -> None:
        folders = [tmp_path / name for name in ("one", "two")]
        for folder in folders:
            model = AnomalyClusterer(**settings(n_clusters=2))
            model.fit(plates / "parts", normal=plates / "good").save(folder)
        one, two = (contents(folder) for folder in folders)
        manifests = [json.loads(files.pop("manifest.json")) for files in (one, two)]
        assert one.keys() == two.keys() == FILES - {"manifest.json"}
        assert [name for name in one if one[name] != two[name]] == []
        for manifest in manifests:
            assert manifest.pop("timings").keys() == model.timings_.keys()
        assert manifests[0] == manifests[1]

    def test_manifest(self, saved: Path, plates: Path) -> None:
        manifest = json.loads((saved / "manifest.json").read_text("utf-8"))
        assert manifest["format"] == {"name": "flawsort-run", "version": 4}
        assert manifest["flawsort"] == flawsort.__version__
        assert manifest["files"].keys() == FILES - {"manifest.json"}
        assert manifest["mode"] == "with normals"
        assert (manifest["n_images"], manifest["n_normals"]) == (14, 10)
        assert manifest["settings"]["preset"] == "own"  # images of 64 pixels
        assert manifest["backbone"]["input_size"] == [64, 64]
        assert manifest["beside"] == []
        assert manifest["clusters"]["chosen"] == "given"
        assert {"numpy", "onnxruntime", "python"} <= manifest["versions"].keys()
        inputs = manifest["inputs"]
        assert [entry["name"] for entry in inputs["images"]][:1] == ["dent00.png"]
        assert len(inputs["images"][0]["sha256"]) == 64
        assert len(inputs["normals"]) == 10

    @pytest.mark.parametrize("which", ["images", "regions"])
    def test_csv_and_parquet_agree(self, saved: Path, fitted: AnomalyClusterer, which: str) -> None:
        with (saved / f"{which}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        table = arro3.io.read_parquet(saved / f"{which}.parquet").read_all()
        assert list(rows[0]) == table.column_names == COLUMNS[which]
        for name in table.column_names:
            values = table.column(name).to_pylist()
            written = [row[name] for row in rows]
            if isinstance(values[0], float):
                assert [float(cell) for cell in written] == pytest.approx(values, rel=1e-5)
            elif name in ("probability", "decided"):  # nobody has decided or taught anything
                nothing = {"probability": (None, ""), "decided": (False, "false")}[name]
                assert list(zip(values, written, strict=True)) == [nothing] * len(rows)
            else:
                assert written == [str(value) for value in values]
        labels = fitted.labels_ if which == "images" else fitted.regions_.labels
        assert [int(row["cluster"]) for row in rows] == labels.tolist()
        if which == "images":
            assert Path(rows[0]["path"]).is_absolute()

    def test_a_run_that_does_not_say_what_its_groups_are_called(
        self, run: Run, tmp_path: Path
    ) -> None:
        """Those of earlier versions have neither of the three columns."""
        added = ("group", "probability", "decided")
        table = {name: run.table[name] for name in run.table if name not in added}
        flags = [
            "looks-normal" if label else words
            for label, words in zip(run.labels, table["flags"], strict=True)
        ]
        older = dataclasses.replace(run, table={**table, "flags": flags})
        save_run(older, tmp_path / "older")
        assert "group" not in (tmp_path / "older" / "images.csv").read_text().splitlines()[0]
        opened = open_(tmp_path / "older")
        assert list(opened.table) == COLUMNS["images"]
        assert opened.table["group"] == ["normal" if label else "Group 0" for label in run.labels]
        assert set(opened.table["probability"]) == {None}
        assert set(opened.table["decided"]) == {False}
        before = contents(tmp_path / "older")
        assert AnomalyClusterer.load(tmp_path / "older").n_clusters_ == 2
        assert contents(tmp_path / "older") == before


class TestDamage:
    @pytest.mark.parametrize("name", sorted(FILES - NOT_READ))
    def test_a_flipped_byte(self, copy: Path, name: str) -> None:
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        with pytest.raises(RunError, match=f"is damaged: {name} has changed since it was written"):
            open_(copy)

    @pytest.mark.parametrize("name", [*sorted(LISTS), "mask"])
    def test_lists_and_mask(self, masked: Path, tmp_path: Path, name: str) -> None:
        shutil.copytree(masked, tmp_path / "run")
        content = bytearray((tmp_path / "run" / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / "run" / name).write_bytes(content)
        with pytest.raises(RunError, match=f"is damaged: {name} has changed since it was written"):
            AnomalyClusterer.load(tmp_path / "run")
        (tmp_path / "run" / name).unlink()
        with pytest.raises(RunError, match=f"is damaged: {name} is missing"):
            AnomalyClusterer.load(tmp_path / "run")

    @pytest.mark.parametrize(
        "name",
        [
            "scores.npy",
            "images.parquet",
            "reference.npy",
            "regions.parquet",
            "region-embeddings.npy",
            "whitening.npy",
        ],
    )
    def test_a_missing_file(self, copy: Path, name: str) -> None:
        (copy / name).unlink()
        with pytest.raises(RunError, match=f"The run '.*' is damaged: {name} is missing"):
            AnomalyClusterer.load(copy)

    @pytest.mark.parametrize("share", [0, 0.5, 0.99])
    def test_a_truncated_manifest(self, copy: Path, share: float) -> None:
        text = (copy / "manifest.json").read_bytes()
        (copy / "manifest.json").write_bytes(text[: int(share * len(text))])
        with pytest.raises(RunError, match=r"is damaged: manifest\.json cannot be read"):
            open_(copy)

    def test_a_manifest_that_lacks_parts(self, copy: Path) -> None:
        edit_manifest(copy, model={})
        with pytest.raises(
            RunError, match="is damaged: missing or invalid in its manifest: 'method'"
        ):
            AnomalyClusterer.load(copy)
        edit_manifest(copy, files={})
        with pytest.raises(RunError, match="is damaged"):
            open_(copy)

    def test_a_newer_format(self, copy: Path) -> None:
        edit_manifest(copy, format={"name": "flawsort-run", "version": 5}, flawsort="9.1")
        message = (
            r"has format version 5; this flawsort reads versions 3 and 4\. It was written by "
            r"flawsort 9\.1"
        )
        with pytest.raises(RunError, match=message):
            open_(copy)

    def test_not_a_run(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match=r"No run folder at .* Check the path, or make one"):
            open_(tmp_path / "nowhere")
        with pytest.raises(RunError, match=r"is not a flawsort run: it has no manifest\.json"):
            open_(str(tmp_path))
        for text in ("[]", "{}", '{"format": {"name": "other"}}', '{"format": 1}'):
            (tmp_path / "manifest.json").write_text(text)
            with pytest.raises(RunError, match=r"flawsort did not write its manifest\.json"):
                open_(tmp_path)


class TestOutput:
    def test_an_existing_run_needs_overwrite(self, run: Run, copy: Path) -> None:
        before = contents(copy)
        with pytest.raises(
            OptionError, match=r"^overwrite is needed to replace the run that is in .*run' already"
        ):
            save_run(run, copy)
        assert contents(copy) == before
        (copy / "old.txt").touch()
        save_run(run, copy, overwrite=True)
        assert contents(copy).keys() == FILES - {"report.html"}
        assert list(copy.parent.iterdir()) == [copy]

    def test_a_file_is_refused(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "run").write_text("mine")
        with pytest.raises(OptionError, match=r"is a file\. Name a folder that does not exist yet"):
            save_run(run, tmp_path / "run", overwrite=True)
        assert (tmp_path / "run").read_text() == "mine"

    def test_foreign_files_are_not_touched(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "thesis.txt").write_text("years of work")
        for overwrite in (False, True):
            with pytest.raises(OptionError, match="holds files that are not a flawsort run"):
                save_run(run, tmp_path / "run", overwrite=overwrite)
        assert contents(tmp_path) == {"run/thesis.txt": b"years of work"}

    @pytest.mark.parametrize(
        "text",
        ['{"name": "a web application"}', "[]", "", "{", '{"format": {"name": "other"}}',
         '{"format": "flawsort-run"}', "null"],
    )  # fmt: skip
    def test_the_manifest_of_something_else_is_not_touched(
        self, run: Run, tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "manifest.json").write_text(text)
        (tmp_path / "run" / "index.html").write_text("mine")
        before = contents(tmp_path)
        for overwrite in (False, True):
            with pytest.raises(OptionError, match="holds files that are not a flawsort run"):
                save_run(run, tmp_path / "run", overwrite=overwrite)
        assert contents(tmp_path) == before

    def test_a_run_of_a_newer_format_can_be_replaced(self, run: Run, copy: Path) -> None:
        edit_manifest(copy, format={"name": "flawsort-run", "version": 5})
        with pytest.raises(OptionError, match="overwrite is needed to replace"):
            save_run(run, copy)
        save_run(run, copy, overwrite=True)
        assert fingerprint(open_(copy)) == fingerprint(run)

    @pytest.mark.parametrize("existing", [False, True])
    def test_a_mount_point_is_refused(
        self, run: Run, saved: Path, tmp_path: Path, existing: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = tmp_path / "disk"
        if existing:
            shutil.copytree(saved, folder)
        else:
            folder.mkdir()
        before = contents(tmp_path)
        monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == folder)
        with pytest.raises(OptionError, match=r"is a mount point.*Name a folder inside it: '.*run"):
            save_run(run, folder, overwrite=True)
        assert contents(tmp_path) == before
        if not existing:
            save_run(run, folder / "run")
            assert fingerprint(open_(folder / "run")) == fingerprint(run)

    def test_an_empty_folder_and_missing_parents_will_do(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        for folder in (tmp_path / "empty", tmp_path / "a" / "b" / "run.v1"):
            save_run(run, folder)
            assert fingerprint(open_(folder)) == fingerprint(run)

    def test_the_current_folder_and_a_link(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        save_run(run, Path())
        (tmp_path / "link").symlink_to(tmp_path / "here")
        save_run(run, tmp_path / "link", overwrite=True)
        assert (tmp_path / "link").is_symlink()
        assert fingerprint(open_(tmp_path / "here")) == fingerprint(run)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "link"]

    def test_a_place_that_cannot_be_written(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(OptionError, match=r"Cannot write to .* Choose another place\.$"):
            save_run(run, tmp_path / "file" / "run")

    def test_replaced_files_are_known_to_the_manifest(self, copy: Path) -> None:
        replace_files(copy, {"report.html": "new", "evaluation.json": "{}"})
        files = json.loads((copy / "manifest.json").read_text("utf-8"))["files"]
        assert (copy / "report.html").read_text() == "new"
        assert files.keys() >= {"report.html", "evaluation.json"}
        assert not [path for path in copy.iterdir() if path.name.startswith(".")]


class TestInterruption:
    """Of what happens at each step of saving see tests/core/test_storage.py."""

    @pytest.mark.parametrize("rescued", [False, True])
    @pytest.mark.parametrize("existing", [False, True])
    def test_a_run_that_cannot_be_moved_stays(
        self, run: Run, saved: Path, tmp_path: Path, existing: bool, rescued: bool
    ) -> None:
        folder = tmp_path / "run"
        if existing:
            shutil.copytree(saved, folder)
        busy = Fault(tmp_path, faults.error("EBUSY"), 0, lasting=not rescued, only="os.rename")
        with watched(busy), pytest.raises(RunError) as refused:
            save_run(run, folder, overwrite=True)
        (kept,) = (path for path in tmp_path.iterdir() if path != folder)
        assert kept.name.startswith(".run.finished-" if rescued else ".run.partial-")
        assert str(refused.value) == (
            f"The run is complete but could not be moved to '{folder}': Device or resource busy. "
            f"It is in '{kept}'. Move it yourself."
        )
        assert fingerprint(open_(kept)) == fingerprint(run)
        assert folder.exists() == existing
        if existing:
            assert contents(folder) == contents(saved)


class TestTwoAtOnce:
    def test_the_second_is_refused_before_it_begins(self, run: Run, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        with prepared_output(folder, overwrite=False):
            for way in (folder, tmp_path / "a/../run"):
                (tmp_path / "a").mkdir(exist_ok=True)
                with (
                    pytest.raises(
                        OptionError, match=r"Another flawsort is making a run in '.*run'"
                    ),
                    prepared_output(way, overwrite=True),
                ):
                    pass
            save_run(run, folder, prepared=True)
        assert fingerprint(open_(folder)) == fingerprint(run)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "run"]
        with prepared_output(folder, overwrite=True):
            pass

    @pytest.mark.parametrize("when", ["before it is written", "while it is written"])
    def test_a_place_that_was_taken_meanwhile(
        self, run: Run, saved: Path, tmp_path: Path, when: str
    ) -> None:
        """As by another machine, where there are no locks: neither result is lost."""
        folder = tmp_path / "run"

        def take(*_: object) -> None:
            if not folder.exists():
                shutil.copytree(saved, folder)

        with prepared_output(folder, overwrite=False):
            if when == "before it is written":
                take()
            with pytest.raises(RunError, match="complete but could not be moved to") as told:
                save_run(run, folder, prepared=True, furnish=take)
        assert contents(folder) == contents(saved)
        (kept,) = (path for path in tmp_path.iterdir() if path != folder)
        assert f"It is in '{kept}'. Move it yourself." in str(told.value)
        assert fingerprint(open_(kept)) == fingerprint(run)

    def test_batches_that_a_killed_process_left_do_not_count(self, run: Run, copy: Path) -> None:
        (copy / "assigned/.monday.partial-000000-1-0").mkdir(parents=True)
        save_run(run, copy, overwrite=True)
        (copy / "assigned/monday").mkdir(parents=True)
        with pytest.raises(RunError, match="keeps new images in 'assigned', which would be lost"):
            save_run(run, copy, overwrite=True)

    def test_what_a_watched_folder_still_has_to_tell_is_not_lost(
        self, run: Run, copy: Path
    ) -> None:
        (copy / "watch.sqlite").touch()
        with pytest.raises(RunError, match=r"not be moved to .* its journal watch.sqlite would be"):
            save_run(run, copy, overwrite=True)
        with (
            pytest.raises(OptionError, match=r"its journal watch\.sqlite would be lost"),
            prepared_output(copy, overwrite=True),
        ):
            pass
        assert (copy / "watch.sqlite").exists()


class TestMap:
    def test_names_move_no_point(self, plates: Path, tmp_path: Path, run: Run) -> None:
        (tmp_path / "renamed").mkdir()
        places = np.random.default_rng(0).permutation(14)
        for path, number in zip(sorted((plates / "parts").iterdir()), places, strict=True):
            shutil.copy(path, tmp_path / "renamed" / f"{number:02d}.png")
        model = AnomalyClusterer(**settings(n_clusters=2))
        renamed = make_run(model.fit(tmp_path / "renamed", normal=plates / "good").fitted_)
        assert np.array_equal(renamed.layout[places], run.layout)
        assert not np.array_equal(renamed.layout, run.layout)


class TestFlags:
    def test_only_compared_images_look_normal(self, plates: Path) -> None:
        sources = [plates / "parts", plates / "good" / "good00.png"]
        compared = AnomalyClusterer(**settings(n_clusters=3)).fit(sources, normal=plates / "good")
        flags = dict(
            zip(compared.images_.names, make_run(compared.fitted_).table["flags"], strict=True)
        )
        assert "looks-normal" in flags["good00.png"].split(";")
        method = Method(weights="uniform", pooling="average")
        alike = AnomalyClusterer(**settings(n_clusters=3, method=method)).fit(sources)
        found = make_run(alike.fitted_)
        assert not any("looks-normal" in words for words in found.table["flags"])
        assert found.manifest["mode"] == "uniform"


NAMES = (
    "new\nline.png", "return\rcarriage.png", 'quote".png', "comma,semi;colon.png", "=1+1.png",
    "😀 é.png", "<script>alert(1)<:script>.png", " space .png", "a:b.png", "a_b.png",
    "\x1b[31mred.png",
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of images with odd names, one of them outside the folder of the list naming it."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "in").mkdir()
    for number, name in enumerate(NAMES):
        Image.fromarray(plate("dent", number)).save(folder / "in" / name)
    write_plates(folder / "outside", ["streak"] * 3)
    lines = [f"../outside/streak0{i}.png" for i in range(3)] + ["../in/a_b.png"]
    (folder / "list").mkdir()
    (folder / "list" / "list.txt").write_text("\n".join(lines))
    model = AnomalyClusterer(**settings(n_clusters=2))
    sources = [str(folder / "in"), str(folder / "list" / "list.txt")]
    model.fit(sources, normal=plate_arrays(NORMALS)).save(folder / "run")
    return folder


class TestNames:
    def test_tables(self, hostile: Path) -> None:
        names = sorted([*NAMES, *(f"../outside/streak0{i}.png" for i in range(3))])
        run = open_(hostile / "run")
        assert run.table["name"] == names
        text = (hostile / "run" / "images.csv").read_bytes().decode()
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        assert [unguarded(row["name"]) for row in rows] == names
        assert all(Path(row["path"]).is_file() for row in rows)
        manifest = json.loads((hostile / "run" / "manifest.json").read_text("utf-8"))
        assert [entry["name"] for entry in manifest["inputs"]["images"]] == names

    def test_heat_maps_stay_in_their_folder(self, hostile: Path, cli: Cli) -> None:
        before = contents(hostile)
        answer = cli("report", hostile / "run", "--heatmaps", hostile / "deep" / "maps", "--json")
        assert answer.code == 0
        written = {name for name in contents(hostile) if name not in before}
        assert len(written) == len(NAMES) + 3
        assert all(name.startswith("deep/maps/") and name.endswith(".png") for name in written)
        assert "deep/maps/outside/streak00.png.png" in written
        for name in written:
            with Image.open(hostile / name) as picture:
                assert picture.size == (768, 768)

    def test_the_terminal_gets_no_control_characters(self, hostile: Path, cli: Cli) -> None:
        answer = cli("assign", hostile / "in", "--run", hostile / "run", "--no-cache")
        assert answer.code == 0
        assert "new\\x0aline.png" in answer.out
        assert "\\x1b[31mred.png" in answer.out
        assert "\x1b" not in answer.out
        assert "\r" not in answer.out

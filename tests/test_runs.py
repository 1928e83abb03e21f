"""Run folders: round trips, damage, interruptions, and names of every kind."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
from pathlib import Path

import arro3.io
import numpy as np
import pytest
from PIL import Image

import flawsort
from flawsort import AnomalyClusterer, BackboneError, Bags, Method, OptionError, Run, RunError, View
from flawsort import open_run as open_
from flawsort.runs import replace_files, save_run
from flawsort.storing import make_run
from plates import (
    NORMALS,
    Cli,
    contents,
    fingerprint,
    plate,
    plate_arrays,
    run_code,
    settings,
    start,
    write_plates,
)

FILES = {
    "embeddings.npy", "images.csv", "images.parquet", "layout.npy", "linkage.npy", "manifest.json",
    "reference.npy", "report.html", "scores.npy", "thumbnails.bin", "thumbnails.npy", "weights.npy",
}  # fmt: skip
OPEN = """
import json, sys
from pathlib import Path
from plates import fingerprint
from flawsort import AnomalyClusterer, open_run

print(json.dumps(fingerprint(open_run(Path(sys.argv[1])))))
model = AnomalyClusterer.load(sys.argv[1])
model.cache = None
images, found, scores = model.assign(sys.argv[2])
told = [images.names, found.labels.tolist(), found.nearest.tolist(), found.novelty.tolist(),
        found.confidence.tolist(), scores.tolist()]
print(json.dumps(told))
"""
# Saves a run again and stops for ever where the largest file is to be written.
STALL = """
import sys, time
from pathlib import Path
import numpy as np
from flawsort import open_run
from flawsort.runs import save_run

def stall(file, values, **options):
    if isinstance(file, Path):
        file.write_bytes(b"half a file")
        print("stalled", flush=True)
        time.sleep(600)
    return save(file, values, **options)

run, save = open_run(sys.argv[1]), np.save
np.save = stall
save_run(run, Path(sys.argv[2]), overwrite=True)
"""


@pytest.fixture(scope="module")
def run(fitted: AnomalyClusterer) -> Run:
    return make_run(fitted)


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    """A run of one's own to damage."""
    return Path(shutil.copytree(saved, tmp_path / "run"))


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


class TestRoundTrip:
    @pytest.mark.parametrize("way", ["normals", "peers", "padded", "uniform"])
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
        model.save(tmp_path / "run")
        answer = run_code(OPEN, tmp_path / "run", plates / "good")
        assert (answer.code, answer.err) == (0, "")
        opened, assigned = (json.loads(line) for line in answer.out.splitlines())
        assert opened == fingerprint(make_run(model))
        images, found, scores = model.assign(plates / "good")
        assert assigned == [
            list(images.names),
            found.labels.tolist(),
            found.nearest.tolist(),
            found.novelty.tolist(),
            found.confidence.tolist(),
            scores.tolist(),
        ]

    def test_loaded_model(self, fitted: AnomalyClusterer, saved: Path) -> None:
        model = AnomalyClusterer.load(str(saved))
        assert model.get_params()["n_clusters"] == 2
        for name in ("labels_", "embeddings_", "linkage_", "scores_", "weights_"):
            assert np.array_equal(getattr(model, name), getattr(fitted, name))
        for name in ("grid_", "heat_", "view_", "n_clusters_", "backbone_", "n_dims_"):
            assert getattr(model, name) == getattr(fitted, name)
        assert model.images_.names == fitted.images_.names
        assert model.images_.digests == fitted.images_.digests

    def test_a_loaded_model_is_not_saved_again(self, saved: Path, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="loaded from a run: copy the run's folder instead"):
            AnomalyClusterer.load(saved).save(tmp_path / "again")

    def test_bags(self, tmp_path: Path, cli: Cli) -> None:
        patches = np.random.default_rng(0).normal(size=(5, 4, 8)).astype(np.float32)
        patches /= np.linalg.norm(patches, axis=2, keepdims=True)
        model = AnomalyClusterer(n_clusters=2).fit(Bags(patches, (2, 2)))
        model.save(tmp_path / "run")
        assert fingerprint(open_(tmp_path / "run")) == fingerprint(make_run(model))
        loaded = AnomalyClusterer.load(tmp_path / "run")
        assert np.array_equal(
            loaded.predict(Bags(patches, (2, 2))), model.predict(Bags(patches, (2, 2)))
        )
        assert cli("report", tmp_path / "run", "--heatmaps", tmp_path / "maps").code == 0
        assert len(list((tmp_path / "maps").iterdir())) == 5

    def test_mask_is_found_again_or_asked_for(self, plates: Path, tmp_path: Path) -> None:
        mask = tmp_path / "mask.png"
        Image.fromarray(np.tile(np.uint8([0, 255]).repeat(32), (64, 1))).save(mask)
        model = AnomalyClusterer(**settings(n_clusters=2, view=View(mask=mask)))
        model.fit(plates / "parts").save(tmp_path / "run")
        loaded = AnomalyClusterer.load(tmp_path / "run")
        loaded.cache = None
        assert np.array_equal(loaded.predict(plates / "parts"), model.predict(plates / "parts"))
        Image.fromarray(np.full((64, 64), 255, np.uint8)).save(mask)
        with pytest.raises(OptionError, match="The mask must be the file that the view was made"):
            AnomalyClusterer.load(tmp_path / "run")

    def test_a_backbone_file_is_found_from_any_folder_and_verified(
        self, plates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        embedded = next(Path(flawsort.__file__).parent.glob("backbones/*.onnx"))
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
        with pytest.raises(BackboneError, match="is not the one of the fit any more"):
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
        assert manifest["format"] == {"name": "flawsort-run", "version": 1}
        assert manifest["flawsort"] == flawsort.__version__
        assert manifest["files"].keys() == FILES - {"manifest.json"}
        assert manifest["mode"] == "with normals"
        assert (manifest["n_images"], manifest["n_normals"]) == (14, 10)
        assert manifest["settings"]["preset"] == "default"
        assert manifest["backbone"]["input_size"] == [64, 64]
        assert manifest["clusters"]["chosen"] == "given"
        assert {"numpy", "onnxruntime", "python"} <= manifest["versions"].keys()
        inputs = manifest["inputs"]
        assert [entry["name"] for entry in inputs["images"]][:1] == ["dent00.png"]
        assert len(inputs["images"][0]["sha256"]) == 64
        assert len(inputs["normals"]) == 10

    def test_csv_and_parquet_agree(self, saved: Path, fitted: AnomalyClusterer) -> None:
        with (saved / "images.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        table = arro3.io.read_parquet(saved / "images.parquet").read_all()
        assert list(rows[0]) == table.column_names
        assert list(rows[0]) == [
            "name", "path", "sha256", "cluster", "score", "distance", "typicality", "runner_up",
            "runner_up_distance", "flags",
        ]  # fmt: skip
        for name in table.column_names:
            values = table.column(name).to_pylist()
            written = [row[name] for row in rows]
            if isinstance(values[0], float):
                assert [float(cell) for cell in written] == pytest.approx(values, rel=1e-5)
            else:
                assert written == [str(value) for value in values]
        assert [int(row["cluster"]) for row in rows] == fitted.labels_.tolist()
        assert Path(rows[0]["path"]).is_absolute()


class TestDamage:
    @pytest.mark.parametrize("name", sorted(FILES - {"manifest.json", "report.html", "images.csv"}))
    def test_a_flipped_byte(self, copy: Path, name: str) -> None:
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        with pytest.raises(RunError, match=f"is damaged: {name} has changed since it was written"):
            open_(copy)

    @pytest.mark.parametrize("name", ["scores.npy", "images.parquet", "reference.npy"])
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
        with pytest.raises(RunError, match="is damaged: its manifest lacks or garbles 'method'"):
            AnomalyClusterer.load(copy)
        edit_manifest(copy, files={})
        with pytest.raises(RunError, match="is damaged"):
            open_(copy)

    def test_a_newer_format(self, copy: Path) -> None:
        edit_manifest(copy, format={"name": "flawsort-run", "version": 2}, flawsort="9.1")
        message = (
            r"has format version 2; this flawsort reads version 1\. It was written by flawsort 9\.1"
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
            with pytest.raises(RunError, match=r"manifest\.json is not one of flawsort's"):
                open_(tmp_path)


class TestOutput:
    def test_an_existing_run_needs_overwrite(self, run: Run, copy: Path) -> None:
        before = contents(copy)
        with pytest.raises(OptionError, match=r"already holds a run.*pass --overwrite to replace"):
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
        with pytest.raises(OptionError, match=r"Cannot write to .* Choose another place with -o"):
            save_run(run, tmp_path / "file" / "run")

    def test_replaced_files_are_known_to_the_manifest(self, copy: Path) -> None:
        replace_files(copy, {"report.html": "new", "evaluation.json": "{}"})
        files = json.loads((copy / "manifest.json").read_text("utf-8"))["files"]
        assert (copy / "report.html").read_text() == "new"
        assert files.keys() >= {"report.html", "evaluation.json"}
        assert not [path for path in copy.iterdir() if path.name.startswith(".")]


class TestInterruption:
    def test_a_failure_leaves_nothing(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("flawsort.runs._write_json", fail)
            with pytest.raises(OSError, match="No space left"):
                save_run(run, tmp_path / "run")
        assert list(tmp_path.iterdir()) == []
        save_run(run, tmp_path / "run")
        before = contents(tmp_path)
        monkeypatch.setattr("flawsort.runs._write_json", fail)
        with pytest.raises(OSError, match="No space left"):
            save_run(run, tmp_path / "run", overwrite=True)
        assert contents(tmp_path) == before

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
    @pytest.mark.parametrize("existing", [False, True])
    def test_kill_while_saving(self, existing: bool, run: Run, saved: Path, tmp_path: Path) -> None:
        folder = tmp_path / "run"
        if existing:
            shutil.copytree(saved, folder)
        process = start(STALL, saved, folder)
        assert process.stdout is not None
        assert process.stdout.readline() == "stalled\n"
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        assert folder.exists() == existing
        left = [path for path in tmp_path.iterdir() if path != folder]
        assert [path.name for path in left] == [".run.partial"]
        with pytest.raises(RunError, match="is not a flawsort run"):
            open_(left[0])
        if existing:
            assert contents(folder) == contents(saved)
        save_run(run, folder, overwrite=existing)
        assert fingerprint(open_(folder)) == fingerprint(run)
        assert list(tmp_path.iterdir()) == [folder]

    def test_kill_between_the_two_moves(self, run: Run, saved: Path, tmp_path: Path) -> None:
        """The old run has given way and the new one is not there yet: the old one comes back."""
        folder = tmp_path / "run"
        shutil.copytree(saved, tmp_path / ".run.old")
        shutil.copytree(saved, tmp_path / ".run.partial")
        with pytest.raises(OptionError, match="already holds a run"):
            save_run(run, folder)
        assert contents(folder) == contents(saved)
        save_run(run, folder, overwrite=True)
        assert list(tmp_path.iterdir()) == [folder]


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
        assert [row["name"] for row in rows] == names
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

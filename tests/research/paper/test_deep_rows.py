"""Deep clustering as rows of the tables: what is kept, the last and the best epoch, what is said.

Fake trainings stand for the real ones but in one test, which needs torch.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import multiprocessing
import queue
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flawsort.backbones import load_backbone
from flawsort.core.errors import BackboneError, InputError, OptionError
from flawsort.research.metrics import agreement
from flawsort.research.paper import deep_rows, measurements
from flawsort.research.paper.deep_rows import BEST, PREFIX, RIVALS, Epochs, Training, train_rival
from flawsort.research.paper.protocol import Task, find_tasks
from flawsort.research.paper.published import lookup
from flawsort.research.paper.run import Outcome, Setting, run_paper
from flawsort.research.paper.shared import PreparedSet
from flawsort.research.paper.tables import TABLES, Options
from helpers.paper_sets import make_mvtec, make_tiles
from helpers.plates import Cli

FAKE = Training(n_seeds=2)
SMALL = ("--backbone", "efficientnet-lite2", "--image-size", "64", "-q")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sets")
    return make_mvtec(folder / "mvtec"), make_tiles(folder / "tiles")


def fake_labels(task: Task, rival: str, seed: int) -> NDArray[np.int16]:
    """(4, n): by chance, half right, right but for one image, all in one cluster."""
    rng = np.random.default_rng([seed, *rival.encode()])
    names = sorted({name for name in task.truth if name is not None})
    right = np.array([names.index(name) if name is not None else 0 for name in task.truth])
    half = np.where(rng.random(len(right)) < 0.5, right, 0)
    nearly = right.copy()
    nearly[seed] = (nearly[seed] + 1) % len(names)
    chance = rng.integers(len(names), size=len(right))
    return np.stack([chance, half, nearly, np.zeros_like(right)]).astype(np.int16)


def fake_epochs(task: Task, rival: str, seed: int) -> Epochs:
    """SCAN has nothing to learn in the last 1 + seed epochs, GATCluster in the first of seed 1. All
    but IIC are trained on a GPU."""
    losses = np.ones(4)
    if rival == "scan":
        losses[-1 - seed :] = np.nan
    if rival == "gatcluster" and seed == 1:
        losses[0] = np.nan
    gpu = rival != "iic"
    return Epochs(fake_labels(task, rival, seed), losses, gpu, gpu)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_training(monkeypatch)


def fake_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake epochs instead of trainings, as if there were a GPU."""

    def train(prepared: PreparedSet, rival: str, seed: int, training: Training) -> Epochs:
        return fake_epochs(prepared.task, rival, seed)

    monkeypatch.setattr(measurements, "train_rival", train)
    monkeypatch.setattr("flawsort.research.paper.run._with_rivals", with_rivals)


def with_rivals(setting: Setting) -> tuple[Options, str]:
    return Options(n_seeds=setting.options.n_seeds, training=setting.training), ""


def run(sets: tuple[Path, ...], output: Path, name: str, **others: Any) -> Outcome:
    chosen = {"backbones": ("efficientnet-lite2",), "image_size": 64, "training": FAKE, **others}
    (outcome,) = run_paper([name], Setting(data=sets, output=output, **chosen))
    return outcome


def naive(task: Task, labels: NDArray[Any]) -> Any:
    counted = [(n, int(i)) for n, i in zip(task.truth, labels, strict=True) if n is not None]
    return agreement([name for name, _ in counted], [label for _, label in counted])


class TestRows:
    def test_they_are_the_papers_and_ours(self) -> None:
        names = ("iic", "gatcluster", "scan")
        assert tuple(RIVALS)[:3] == names
        for name in names:
            assert lookup("clusterers", "mtd", PREFIX + name, "nmi") is not None
            assert lookup("clusterers-full", "mtd", PREFIX + name + BEST, "f1") is not None

    def test_without_training_there_are_none(self) -> None:
        for table in TABLES.values():
            assert not any(label.startswith(PREFIX) for label, _ in table.rows(Options()))

    def test_with_training_two_tables_have_them(self) -> None:
        options = Options(training=FAKE)
        having = [
            table.name
            for table in TABLES.values()
            if any(label.startswith(PREFIX) for label, _ in table.rows(options))
        ]
        assert having == ["clusterers", "clusterers-full"]
        assert having == [table.name for table in TABLES.values() if table.deep]


class TestLength:
    """How long networks are trained. A stub stands for the methods, which need torch."""

    class Stub:
        def __init__(self, **options: int | None) -> None:
            self.options = options

        def get_params(self, deep: bool) -> dict[str, int | None]:
            return self.options

        def set_params(self, **options: int) -> None:
            self.options |= options

    @pytest.mark.parametrize(
        ("training", "expected"),
        [
            (Training(), (100, 25)),
            (Training(times=5), (500, 125)),
            (Training(n_epochs=7), (7, 1)),
            (Training(n_epochs=8, times=3), (24, 6)),
        ],
    )
    def test_of_scan(self, training: Training, expected: tuple[int, int]) -> None:
        method: Any = self.Stub(n_epochs=100, label_epochs=25)
        deep_rows._lengthen(method, training, 90)
        assert (method.options["n_epochs"], method.options["label_epochs"]) == expected

    def test_of_iic_depends_on_the_number_of_images(self) -> None:
        pytest.importorskip("timm")
        for n_photos, epochs in ((83, 200), (583, 50), (300, 100)):
            method: Any = self.Stub(n_epochs=None, batch_size=140)
            deep_rows._lengthen(method, Training(times=5), n_photos)
            assert method.options["n_epochs"] == 5 * epochs

    def test_the_files_say_it(self) -> None:
        assert Training().describe()["deep epochs"] == "each method's own"
        assert Training(times=5).describe()["deep epochs"] == "each method's own, 5 times"
        assert Training(n_epochs=2, times=5).describe()["deep epochs"] == 10
        assert "deep scan rate" not in Training().describe()
        assert Training(scan_rate=5.0).describe()["deep scan rate"] == 5.0


class TestTable:
    @pytest.fixture(scope="class")
    @staticmethod
    def outcome(
        sets: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[Outcome]:
        with pytest.MonkeyPatch.context() as patch:
            fake_training(patch)
            yield run(sets[:1], tmp_path_factory.mktemp("full"), "clusterers-full")

    def test_last_and_best_epoch(self, outcome: Outcome, sets: tuple[Path, Path]) -> None:
        tasks = find_tasks(sets[:1])
        (filled,) = outcome.filled
        for rival in RIVALS:
            for label, metric in ((rival, "nmi"), (rival + BEST, "nmi"), (rival + BEST, "f1")):
                expected = []
                for seed in range(2):
                    for task in tasks:
                        labels = fake_labels(task, rival, seed)
                        scores = [naive(task, one) for one in labels]
                        accuracy = [score.f1_micro for score in scores]
                        place = int(np.argmax(accuracy)) if label.endswith(BEST) else -1
                        expected.append((task.name, getattr(scores[place], metric)))
                for task in tasks:
                    (cell,) = (
                        one
                        for one in filled.cells
                        if (one.set, one.row, one.metric) == (task.group, PREFIX + label, metric)
                    )
                    values = [value for name, value in expected if name == task.name]
                    assert cell.value == pytest.approx(np.mean(values))
                    if len(values) > 1:
                        error = np.std(values, ddof=1) / np.sqrt(len(values))
                        assert cell.stderr == pytest.approx(error)

    def test_the_best_epoch_is_an_oracle_and_said_to_be(self, outcome: Outcome) -> None:
        assert "-best is the epoch with the best accuracy by the truth: an oracle." in outcome.text
        assert "best of several for each set by NMI" not in outcome.text

    def test_a_collapse_is_said(self, outcome: Outcome) -> None:
        assert "Collapsed into one cluster: bottle, deep/iic, seed 0, 1." in outcome.text
        assert "deep/iic-best, seed" not in outcome.text

    def test_the_files_have_each_seed(self, outcome: Outcome) -> None:
        (path,) = (path for path in outcome.files if path.suffix == ".json")
        (part,) = json.loads(path.read_text("utf-8"))
        (row,) = (
            one
            for one in part["sets"]
            if (one["set"], one["row"]) == ("bottle", "deep/gatcluster-best")
        )
        assert len(row["nmi"]) == 2
        assert row["epoch"] == [3, 3]
        assert row["collapsed"] == [0, 0]
        assert part["settings"]["deep seeds"] == 2
        assert part["settings"]["deep epochs"] == "each method's own"
        assert row["gpu"] == row["bfloat16"] == [1, 1]

    def test_where_it_was_trained_is_said(self, outcome: Outcome) -> None:
        (filled,) = outcome.filled
        assert filled.settings["deep trained on"] == "CPU and GPU (bfloat16)"
        assert "deep trained on CPU and GPU (bfloat16)" in outcome.text

    def test_epochs_without_anything_to_learn_are_said(self, outcome: Outcome) -> None:
        told = "Nothing to learn (no confident answer): "
        lines = [line for line in outcome.text.splitlines() if line.startswith(told)]
        assert lines == [
            f"{told}{name}, {what}"
            for name in ("bottle", "leather")
            for what in (
                "deep/gatcluster, 1 of 4 epochs (seed 1).",
                "deep/scan, 1 and 2 of 4 epochs (seeds 0, 1).",
            )
        ]

    def test_weights_that_are_not_there_cost_their_rows_only(
        self, faked: Any, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_weights(prepared: PreparedSet, rival: str, *_: object) -> Epochs:
            if RIVALS[rival][1]:
                raise BackboneError("The weights could not be downloaded.")
            return fake_epochs(prepared.task, rival, 0)

        monkeypatch.setattr(measurements, "train_rival", no_weights)
        outcome = run(sets[:1], tmp_path, "clusterers")
        (filled,) = outcome.filled
        values = {one.row: one.value for one in filled.cells if one.set == "object"}
        assert values["deep/scan"] is None
        assert values["deep/scan-random"] is not None
        assert values["deep/iic-pretrained-best"] is None
        told = "Skipped: deep/... from ImageNet weights: The weights could not be downloaded."
        assert outcome.text.count(told) == 1
        assert outcome.text.count("Skipped") == 1

    def test_a_training_that_breaks_down_costs_its_rows_only(
        self, sets: tuple[Path, Path], tmp_path: Path, faked: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried = []

        def broken(prepared: PreparedSet, rival: str, seed: int, *_: object) -> Epochs:
            if (prepared.task.name, rival, seed) == ("bottle", "scan", 1):
                tried.append(seed)
                raise OptionError("Training broke down: the loss is nan. Try a smaller rate.")
            return fake_epochs(prepared.task, rival, seed)

        monkeypatch.setattr(measurements, "train_rival", broken)
        outcome = run(sets[:1], tmp_path, "clusterers")
        (filled,) = outcome.filled
        values = {(one.set, one.row): one.value for one in filled.cells}
        assert values["object", "deep/scan"] is None
        assert values["object", "deep/scan-best"] is None
        gone = {place for place, value in values.items() if value is None}
        assert gone == {("object", "deep/scan"), ("object", "deep/scan-best")}
        (skipped,) = filled.skipped
        assert skipped == (
            "bottle, deep/scan: with seed 1: Training broke down: the loss is nan. Try a smaller "
            "rate"
        )
        assert tried == [1]  # not once more for the best epoch


class TestUnusedOptions:
    @pytest.mark.parametrize(
        ("deep", "training", "told"),
        [
            (True, Training(), "leave out --deep. Got the tables main, tau."),
            (None, Training(weights=Path("x.pth")), "leave out --deep-weights x.pth. Got"),
            (True, Training(n_seeds=5), "leave out --deep and --deep-seeds 5. Got"),
        ],
    )
    def test_no_table_has_such_rows(
        self, sets: tuple[Path, Path], tmp_path: Path, deep: bool, training: Training, told: str
    ) -> None:
        setting = Setting(data=sets, output=tmp_path / "out", deep=deep, training=training)
        with pytest.raises(OptionError) as raised:
            run_paper(["main", "tau"], setting)
        assert "is part of the tables clusterers and clusterers-full only" in str(raised.value)
        assert told in str(raised.value)
        assert not (tmp_path / "out").exists()

    def test_no_deep_and_how_to_train_it(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        training = Training(n_epochs=5, times=2, scan_rate=5.0, weights=Path("x.pth"))
        setting = Setting(data=sets, output=tmp_path, deep=False, training=training)
        told = (
            "Got --no-deep and --deep-weights x.pth and --deep-epochs 5 and --deep-times 2 and "
            "--deep-scan-rate 5.0."
        )
        with pytest.raises(OptionError, match=told):
            run_paper(["clusterers"], setting)

    def test_one_table_of_several_is_enough(self, sets: tuple[Path, Path], faked: Any) -> None:
        from flawsort.research.paper.run import _check_deep

        setting = Setting(data=sets, output=Path(), deep=True, training=FAKE)
        _check_deep(["main", "clusterers"], setting)
        _check_deep(["main"], Setting(data=sets, output=Path(), deep=False))


class TestDescription:
    def test_which_weights(self, tmp_path: Path) -> None:
        assert Training().describe()["deep weights"] == "by download"
        file = tmp_path / "some.pth"
        file.write_bytes(b"weights")
        digest = hashlib.sha256(b"weights").hexdigest()[:12]
        assert Training(weights=file).describe()["deep weights"] == f"some.pth (sha256 {digest})"


class TestWhenTheyAreTrained:
    def test_not_where_there_is_no_torch(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in [name for name in sys.modules if name.startswith("flawsort.research.deep")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "torch", None)
        text = run(sets[1:], tmp_path, "clusterers").text
        assert "deep/... were not trained: that needs flawsort[torch]." in text
        assert "- (0.071)" in text  # the paper's number is there all the same
        with pytest.raises(BackboneError, match=r"trains networks in torch.*flawsort\[torch\]"):
            run(sets[1:], tmp_path, "clusterers", deep=True)

    def test_not_without_a_gpu_unless_asked(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        pytest.importorskip("timm")
        text = run(sets[1:], tmp_path, "clusterers", device="cpu").text
        assert "without a GPU it takes hours (--deep does it)" in text

    @pytest.mark.parametrize(
        ("name", "told"),
        [("x.txt", "must be a file that ends in"), ("x.safetensors", "cannot be used: ")],
    )
    def test_wrong_weights_are_noticed_at_once(
        self, sets: tuple[Path, Path], tmp_path: Path, name: str, told: str
    ) -> None:
        pytest.importorskip("timm")
        file = tmp_path / name
        file.write_text("no weights")
        training = Training(weights=file)
        with pytest.raises(OptionError, match=f"^deep_weights {told}"):
            run(sets[1:], tmp_path, "clusterers", deep=True, training=training)
        assert not (tmp_path / "trained").exists()

    def test_not_when_told_so(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        text = run(sets[1:], tmp_path, "clusterers", deep=False, training=Training()).text
        assert "were not trained" not in text

    @pytest.mark.usefixtures("one_torch_thread")
    def test_trained_once_and_kept(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("timm")
        from flawsort.research.deep import estimator, networks

        monkeypatch.setattr(networks, "RESIDUAL", "resnet18")
        make = deep_rows._make

        def make_small(prepared: PreparedSet, rival: str, *others: Any) -> Any:
            small = {"side": 40, "crop_size": 32} if rival == "iic" else {"image_size": 56}
            return make(prepared, rival, *others).set_params(**small)

        monkeypatch.setattr(deep_rows, "_make", make_small)
        (task,) = find_tasks(sets[1:])
        backbone = load_backbone("efficientnet-lite2", image_size=64)
        prepared = PreparedSet(task, backbone, tmp_path)
        training = Training(n_epochs=1, device="cpu")
        for rival, n_epochs in (("iic", 1), ("scan-random", 2)):
            first = train_rival(prepared, rival, 0, training)
            assert first.labels.shape == (n_epochs, len(task.truth))
            assert first.losses.shape == (n_epochs,)
            assert (first.gpu, first.bfloat16) == (False, False)
        kept = sorted(path.name for path in (tmp_path / "trained").iterdir())
        assert [name.rpartition("-")[0] for name in kept] == ["mtd-iic-0", "mtd-scan-random-0"]
        (tmp_path / "trained" / kept[1]).rename(tmp_path / "done.npz")
        damaged = (tmp_path / "trained" / kept[1]).with_suffix(".safetensors")
        damaged.write_bytes(b"cut")
        again = train_rival(prepared, "scan-random", 0, training)
        assert np.array_equal(again.labels, first.labels)
        assert not damaged.exists()
        monkeypatch.setattr(estimator, "train", None)  # another training would fail
        again = train_rival(prepared, "scan-random", 0, training)
        assert np.array_equal(again.labels, first.labels)
        with pytest.raises(TypeError):
            train_rival(prepared, "scan-random", 1, training)


class FakeTraining:
    """Instead of the real one: labels by chance, in the order of content, and how often it was
    asked for."""

    def __init__(self) -> None:
        self.count = 0
        self.labels: list[NDArray[np.int16]] = []

    def __call__(self, stages: object, *, fingerprint: str, **_: object) -> Any:
        from flawsort.research.deep.training import History

        self.count += 1
        n = 10  # of different content
        rng = np.random.default_rng(list(bytes.fromhex(fingerprint)))
        self.labels = [rng.integers(3, size=n).astype(np.int16) for _ in range(2)]
        return History([1.0, np.nan], [3.0, 3.0], self.labels, np.zeros((n, 3), np.float32))


class TestKeptLabels:
    """They are of contents, wherever the files are and whatever they are called."""

    @pytest.fixture
    def tiles(self, tmp_path: Path) -> Path:
        return make_tiles(tmp_path / "tiles")

    @pytest.fixture
    def training(self, monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
        pytest.importorskip("timm")
        from flawsort.research.deep import estimator

        fake = FakeTraining()
        monkeypatch.setattr(estimator, "train", fake)
        return fake

    def trained(self, tiles: Path) -> tuple[Task, Epochs]:
        (task,) = find_tasks([tiles])
        backbone = load_backbone("efficientnet-lite2", image_size=64)
        prepared = PreparedSet(task, backbone, tiles.parent)
        return task, train_rival(prepared, "gatcluster", 0, Training(device="cpu"))

    def by_content(self, task: Task, epochs: Epochs) -> dict[str, list[int]]:
        return dict(zip(task.data.images.digests, epochs.labels.T.tolist(), strict=True))

    def test_folders_change_names(self, tiles: Path, training: FakeTraining) -> None:
        task, before = self.trained(tiles)
        contents = sorted(set(task.data.images.digests))
        said = dict(zip(contents, np.stack(training.labels).T.tolist(), strict=True))
        assert self.by_content(task, before) == said
        (tiles / "MT_Crack").rename(tiles / "MT_Other")
        (tiles / "MT_Blowhole").rename(tiles / "MT_Crack")
        (tiles / "MT_Other").rename(tiles / "MT_Blowhole")
        renamed, after = self.trained(tiles)
        assert renamed.data.images.digests != task.data.images.digests
        assert self.by_content(renamed, after) == self.by_content(task, before)
        assert np.array_equal(after.losses, before.losses, equal_nan=True)
        assert training.count == 1

    def test_a_copy_is_where_its_original_is(self, tiles: Path, training: FakeTraining) -> None:
        task, before = self.trained(tiles)
        crack = tiles / "MT_Crack" / "Imgs"
        shutil.copy(crack / "exp3.jpg", crack / "exp00.jpg")
        copied, after = self.trained(tiles)
        assert after.labels.shape == (2, len(task.truth) + 1)
        assert self.by_content(copied, after) == self.by_content(task, before)
        names, digests = copied.data.images.names, copied.data.images.digests
        (place,) = (row for row, name in enumerate(names) if name.endswith("exp00.jpg"))
        assert digests.count(digests[place]) == 2
        expected = self.by_content(task, before)[digests[place]]
        assert after.labels[:, place].tolist() == expected
        assert training.count == 1

    @pytest.mark.parametrize("change", ["no digests", "other digests"])
    def test_a_file_of_other_contents_is_not_used(
        self, tiles: Path, training: FakeTraining, change: str
    ) -> None:
        task, before = self.trained(tiles)
        (path,) = (tiles.parent / "trained").glob("*.npz")
        with np.load(path) as stored:
            arrays = dict(stored)
        digests = arrays.pop("digests")
        assert digests.tolist() == sorted(set(task.data.images.digests))
        if change == "other digests":
            arrays["digests"] = digests[::-1]
        np.savez(path, **arrays)
        again = self.trained(tiles)[1]
        assert np.array_equal(again.labels, before.labels)
        assert training.count == 2

    def test_an_image_that_cannot_be_read(self, tiles: Path, training: FakeTraining) -> None:
        (tiles / "MT_Crack" / "Imgs" / "exp9.jpg").write_bytes(b"no image")
        told = r"'mtd' has 1 image that cannot be read, the first '.*exp9.jpg'"
        with pytest.raises(InputError, match=told):
            self.trained(tiles)
        assert not list((tiles.parent / "trained").glob("*.npz"))


class TestWeights:
    """Said before any image is looked at: there is none here."""

    @pytest.fixture
    def nowhere(self, tmp_path: Path) -> Path:
        pytest.importorskip("timm")
        return tmp_path / "nonexistent.pth"

    def test_they_are_not_left_unused(self, nowhere: Path) -> None:
        from flawsort.research.deep import IIC, SCAN

        told = r"pass pretrained=True too, or leave them out\. Got weights '.*nonexistent.pth'"
        for method in (
            IIC(n_clusters=3, weights=str(nowhere)),
            SCAN(n_clusters=3, weights=nowhere, pretrained=False),
        ):
            with pytest.raises(OptionError, match=told):
                method.fit(nowhere.parent / "no images")

    def test_they_must_be_there(self, nowhere: Path) -> None:
        from flawsort.research.deep import IIC

        method = IIC(n_clusters=3, weights=nowhere, pretrained=True)
        with pytest.raises(OptionError, match=r"weights must be a file\. Got '.*nonexistent.pth'"):
            method.fit(nowhere.parent / "no images")


class TestBenchmark:
    """benchmarks/deep.py: one training that fails is not all of them, and is not forgotten."""

    @pytest.fixture
    def script(self) -> ModuleType:
        path = Path(__file__).parents[3] / "benchmarks" / "deep.py"
        spec = importlib.util.spec_from_file_location("benchmark_of_deep", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    @pytest.mark.usefixtures("one_torch_thread")
    def test_a_lane_goes_on(
        self,
        script: ModuleType,
        sets: tuple[Path, Path],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def train(prepared: PreparedSet, rival: str, seed: int, training: Training) -> Epochs:
            if seed == 0:
                raise RuntimeError("CUDA out of memory.\nMuch more.")
            return fake_epochs(prepared.task, rival, seed)

        monkeypatch.setattr(script, "train_rival", train)
        given = argparse.Namespace(
            threads=1, output=tmp_path, data=sets[1:], only=[], weights=None, device="cpu",
            epochs=None, times=1, scan_rate=None, until=time.time() + 60,
        )  # fmt: skip
        jobs_left: Any = queue.Queue()
        for seed in range(2):
            jobs_left.put(("mtd", "iic", seed))
        done = multiprocessing.get_context("spawn").Value("i", 0)
        script.lane(3, given, jobs_left, done)
        assert done.value == 1
        failed, trained = capsys.readouterr().out.splitlines()
        assert "iic             seed 0: failed, RuntimeError: CUDA out of memory., 0 s" in failed
        (task,) = find_tasks(sets[1:])
        scores = [naive(task, labels) for labels in fake_labels(task, "iic", 1)]
        best = int(np.argmax([score.f1_micro for score in scores]))
        told = f"NMI {scores[-1].nmi:.3f}, {scores[best].nmi:.3f} after epoch {best + 1}, the best"
        assert told in trained

    def test_less_than_was_asked_for(
        self,
        script: ModuleType,
        sets: tuple[Path, Path],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        options = ["--data", str(sets[1]), "--rival", "iic", "--lanes", "0", "-o", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["deep.py", *options])
        with pytest.raises(SystemExit) as ended:
            script.main()
        assert ended.value.code == 1
        assert "0 of 3 trainings are done" in capsys.readouterr().out


class TestCommand:
    @pytest.mark.parametrize(
        ("options", "error"),
        [
            (("--deep-seeds", "0"), "--deep-seeds must be at least 1. Got 0."),
            (("--deep-epochs", "-1"), "--deep-epochs must be at least 1. Got -1."),
            (("--deep-times", "0"), "--deep-times must be at least 1. Got 0."),
            (("--deep-scan-rate", "0"), "--deep-scan-rate must be a number greater than 0. Got 0"),
            (("--deep-weights", "none.pth"), "--deep-weights must be a file of weights. Got"),
        ],
    )
    def test_bad_options(
        self, cli: Cli, sets: tuple[Path, Path], options: tuple[str, ...], error: str
    ) -> None:
        answer = cli("paper", "--data", str(sets[1]), "-t", "clusterers", *options, *SMALL)
        assert answer.code == 2
        assert error in answer.err

    def test_options_arrive(
        self, cli: Cli, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        weights = tmp_path / "some.safetensors"
        weights.write_bytes(b"")
        asked: list[Setting] = []
        monkeypatch.setattr(
            "flawsort.research.paper.run.run_paper",
            lambda names, setting, **_: asked.append(setting) or [],
        )
        options = ("--deep", "--deep-seeds", "5", "--deep-epochs", "7", "--deep-times", "2")
        options += ("--deep-scan-rate", "5", "--deep-weights")
        answer = cli(
            "paper", "--data", str(sets[1]), "-t", "clusterers", *options, str(weights), *SMALL
        )
        assert answer.code == 0
        (setting,) = asked
        assert setting.deep is True
        assert setting.training == Training(
            n_seeds=5, n_epochs=7, times=2, scan_rate=5, weights=weights
        )

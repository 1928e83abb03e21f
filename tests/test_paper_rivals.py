"""Deep clustering as rows of the tables: what is kept, the last and the best epoch, what is said.

Fake trainings stand for the real ones but in one test, which needs torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flawsort.backbones import load_backbone
from flawsort.errors import BackboneError, OptionError
from flawsort.metrics import agreement
from flawsort.paper import jobs
from flawsort.paper.products import Products
from flawsort.paper.protocol import Task, find_tasks
from flawsort.paper.published import lookup
from flawsort.paper.rivals import BEST, PREFIX, RIVALS, Training
from flawsort.paper.run import Outcome, Setting, run_paper
from flawsort.paper.tables import TABLES, Options
from paper_sets import make_mvtec, make_tiles
from plates import Cli

FAKE = Training(n_seeds=2)
SMALL = ("--backbone", "efficientnet-lite2", "--image-size", "64", "-q")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sets")
    return make_mvtec(folder / "mvtec"), make_tiles(folder / "tiles")


def fake_epochs(task: Task, rival: str, seed: int) -> NDArray[np.int16]:
    """(4, n): by chance, half right, right but for one image, all in one cluster."""
    rng = np.random.default_rng([seed, *rival.encode()])
    names = sorted({name for name in task.truth if name is not None})
    right = np.array([names.index(name) if name is not None else 0 for name in task.truth])
    half = np.where(rng.random(len(right)) < 0.5, right, 0)
    nearly = right.copy()
    nearly[seed] = (nearly[seed] + 1) % len(names)
    chance = rng.integers(len(names), size=len(right))
    return np.stack([chance, half, nearly, np.zeros_like(right)]).astype(np.int16)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What was trained, in order."""
    asked: list[tuple[str, str, int]] = []

    def train(products: Products, rival: str, seed: int, training: Training) -> NDArray[np.int16]:
        asked.append((products.task.name, rival, seed))
        return fake_epochs(products.task, rival, seed)

    monkeypatch.setattr(jobs, "epoch_labels", train)
    monkeypatch.setattr("flawsort.paper.run._with_rivals", with_rivals)
    return asked


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


class TestTable:
    @pytest.fixture
    def outcome(self, faked: Any, sets: tuple[Path, Path], tmp_path: Path) -> Outcome:
        return run(sets[:1], tmp_path, "clusterers-full")

    def test_last_and_best_epoch(self, outcome: Outcome, sets: tuple[Path, Path]) -> None:
        tasks = find_tasks(sets[:1])
        (filled,) = outcome.filled
        for rival in RIVALS:
            for label, metric in ((rival, "nmi"), (rival + BEST, "nmi"), (rival + BEST, "f1")):
                expected = []
                for seed in range(2):
                    for task in tasks:
                        epochs = fake_epochs(task, rival, seed)
                        scores = [naive(task, labels) for labels in epochs]
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

    def test_weights_that_are_not_there_cost_their_rows_only(
        self, faked: Any, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_weights(products: Products, rival: str, *_: object) -> NDArray[np.int16]:
            if RIVALS[rival][1]:
                raise BackboneError("The weights could not be downloaded.")
            return fake_epochs(products.task, rival, 0)

        monkeypatch.setattr(jobs, "epoch_labels", no_weights)
        outcome = run(sets[:1], tmp_path, "clusterers")
        (filled,) = outcome.filled
        values = {one.row: one.value for one in filled.cells if one.set == "object"}
        assert values["deep/scan"] is None
        assert values["deep/scan-random"] is not None
        assert values["deep/iic-pretrained-best"] is None
        told = "Skipped: deep/... from ImageNet weights: The weights could not be downloaded."
        assert outcome.text.count(told) == 1
        assert outcome.text.count("Skipped") == 1


class TestWhenTheyAreTrained:
    def test_not_where_there_is_no_torch(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in [name for name in sys.modules if name.startswith("flawsort.deep")]:
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

    @pytest.mark.parametrize("name", ["x.txt", "x.safetensors"])
    def test_wrong_weights_are_noticed_at_once(
        self, sets: tuple[Path, Path], tmp_path: Path, name: str
    ) -> None:
        pytest.importorskip("timm")
        file = tmp_path / name
        file.write_text("no weights")
        training = Training(weights=file)
        with pytest.raises(OptionError, match="--deep-weights cannot be used: "):
            run(sets[1:], tmp_path, "clusterers", deep=True, training=training)
        assert not (tmp_path / "trained").exists()

    def test_not_when_told_so(self, sets: tuple[Path, Path], tmp_path: Path) -> None:
        text = run(sets[1:], tmp_path, "clusterers", deep=False).text
        assert "were not trained" not in text

    @pytest.mark.usefixtures("one_torch_thread")
    def test_trained_once_and_kept(
        self, sets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("timm")
        from flawsort.deep import estimator, networks
        from flawsort.paper.rivals import epoch_labels

        monkeypatch.setattr(networks, "RESIDUAL", "resnet18")
        (task,) = find_tasks(sets[1:])
        backbone = load_backbone("efficientnet-lite2", image_size=64)
        products = Products(task, backbone, tmp_path)
        training = Training(n_epochs=1, device="cpu")
        for rival, n_epochs in (("iic", 1), ("scan-random", 2)):
            first = epoch_labels(products, rival, 0, training)
            assert first.shape == (n_epochs, len(task.truth))
        kept = sorted(path.name for path in (tmp_path / "trained").iterdir())
        assert [name.rpartition("-")[0] for name in kept] == ["mtd-iic-0", "mtd-scan-random-0"]
        (tmp_path / "trained" / kept[1]).rename(tmp_path / "done.npz")
        damaged = (tmp_path / "trained" / kept[1]).with_suffix(".safetensors")
        damaged.write_bytes(b"cut")
        assert np.array_equal(epoch_labels(products, "scan-random", 0, training), first)
        assert not damaged.exists()
        monkeypatch.setattr(estimator, "train", None)  # another training would fail
        assert np.array_equal(epoch_labels(products, "scan-random", 0, training), first)
        with pytest.raises(TypeError):
            epoch_labels(products, "scan-random", 1, training)


class TestCommand:
    @pytest.mark.parametrize(
        ("options", "error"),
        [
            (("--deep-seeds", "0"), "--deep-seeds must be at least 1. Got 0."),
            (("--deep-epochs", "-1"), "--deep-epochs must be at least 1. Got -1."),
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
            "flawsort.paper.run.run_paper", lambda names, setting, **_: asked.append(setting) or []
        )
        options = ("--deep", "--deep-seeds", "5", "--deep-epochs", "7", "--deep-weights")
        answer = cli(
            "paper", "--data", str(sets[1]), "-t", "clusterers", *options, str(weights), *SMALL
        )
        assert answer.code == 0
        (setting,) = asked
        assert setting.deep is True
        assert setting.training == Training(n_seeds=5, n_epochs=7, weights=weights)

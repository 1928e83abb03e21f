"""The loop that trains deep clustering: epochs, checkpoints that resume, what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from safetensors.torch import save_file  # noqa: E402

from flawsort.core.errors import OptionError  # noqa: E402
from flawsort.research.deep import checkpoints  # noqa: E402
from flawsort.research.deep.training import (  # noqa: E402
    Course,
    History,
    batch_count,
    batches,
    train,
)
from helpers.faults import no_space  # noqa: E402

N, K = 12, 3

pytestmark = pytest.mark.usefixtures("one_torch_thread")


class Fitting:
    """A stage that fits a linear layer to random numbers; Adam or SGD with momentum."""

    def __init__(self, name: str, layer: Any, optimizer: Any, n_epochs: int) -> None:
        self.name = name
        self.n_epochs = n_epochs
        self.modules = {"layer": layer}
        self.optimizer = optimizer
        self._inputs = torch.tensor(np.random.default_rng(1).normal(size=(N, 4)), dtype=torch.float)

    def epoch(self, rng: np.random.Generator) -> float:
        targets = torch.tensor(rng.normal(size=(N, K)), dtype=torch.float)
        loss = ((self.modules["layer"](self._inputs) - targets) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def assign(self) -> Any:
        with torch.no_grad():
            return torch.softmax(self.modules["layer"](self._inputs), dim=1)


def stages(epochs: tuple[int, int] = (4, 3)) -> list[Any]:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, K)
    adam, sgd = torch.optim.Adam, torch.optim.SGD
    return [
        lambda: Fitting("first", layer, adam(layer.parameters(), lr=0.1), epochs[0]),
        lambda: Fitting("second", layer, sgd(layer.parameters(), lr=0.1, momentum=0.9), epochs[1]),
    ]


def run(path: Path | None = None, *, stop_at: int | None = None, seed: int = 3) -> History:
    """Train; raise KeyboardInterrupt once so many epochs are done."""
    seen = 0

    def progress(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == stop_at:
            raise KeyboardInterrupt

    return train(
        stages(), seed=seed, fingerprint="abc", checkpoint=path, every=0.0, progress=progress
    )


class TestTrain:
    def test_every_epoch_is_noted(self) -> None:
        history = run()
        assert len(history.losses) == len(history.sizes) == len(history.labels) == 7
        assert history.labels[0].shape == (N,)
        assert history.probabilities.shape == (N, K)
        assert np.array_equal(history.probabilities.argmax(axis=1), history.labels[-1])

    def test_the_seed_decides(self) -> None:
        assert run().losses == run().losses
        assert run().losses != run(seed=4).losses

    @pytest.mark.parametrize("stop_at", [1, 3, 4, 5, 7])
    def test_stopped_training_ends_as_if_it_were_not(self, tmp_path: Path, stop_at: int) -> None:
        whole = run()
        path = tmp_path / "deeper" / "kept.safetensors"
        with pytest.raises(KeyboardInterrupt):
            run(path, stop_at=stop_at)
        again = run(path)
        assert again.losses == whole.losses
        assert again.sizes == whole.sizes
        assert np.array_equal(np.stack(again.labels), np.stack(whole.labels))
        assert np.array_equal(again.probabilities, whole.probabilities)

    def test_what_is_done_is_not_done_again(self, tmp_path: Path) -> None:
        path = tmp_path / "kept.safetensors"
        whole = run(path)
        assert run(path, stop_at=1).losses == whole.losses  # no epoch, so nobody is told of one

    def test_a_checkpoint_of_another_training_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "kept.safetensors"
        run(path)
        with pytest.raises(OptionError, match=r"is of another training.*Name another file"):
            train(stages(), seed=3, fingerprint="xyz", checkpoint=path)
        assert run(path).losses  # and is left as it was

    @pytest.mark.parametrize("damage", ["cut", "empty", "other", "older", "weights"])
    def test_a_file_that_is_no_checkpoint_is_left_alone(self, tmp_path: Path, damage: str) -> None:
        path = tmp_path / "kept.safetensors"
        with pytest.raises(KeyboardInterrupt):
            run(path, stop_at=3)
        if damage in ("older", "weights"):
            said, tensors = checkpoints.load(path) or ({}, {})
            older = {"flawsort": json.dumps({**said, "format": 0})}
            save_file(tensors, path, older if damage == "older" else None)
        else:
            content = path.read_bytes()
            path.write_bytes({"cut": content[:-40], "empty": b"", "other": b"hello " * 20}[damage])
        before = path.read_bytes()
        with pytest.raises(OptionError, match=r"not one that this version can go on from.*delete"):
            run(path)
        assert path.read_bytes() == before

    @pytest.mark.parametrize("part", ["fingerprint", "stage", "losses", "a tensor", "a slope"])
    def test_a_checkpoint_that_lacks_a_part_is_left_alone(self, tmp_path: Path, part: str) -> None:
        path = tmp_path / "kept.safetensors"
        with pytest.raises(KeyboardInterrupt):
            run(path, stop_at=3)
        said, tensors = checkpoints.load(path) or ({}, {})
        said.pop(part, None)
        for kind, prefix in (("a tensor", "module."), ("a slope", "optimizer.")):
            if part == kind:
                name = next(name for name in tensors if name.startswith(prefix))
                tensors[name] = torch.zeros(1, 2, 3)
        save_file(tensors, path, {"flawsort": json.dumps(said)})
        with pytest.raises(OptionError, match=r"not one that this version can go on from.*delete"):
            run(path)

    def test_too_little_memory_is_no_fault_of_the_checkpoint(
        self, tmp_path: Path, monkeypatch: Any
    ) -> None:
        def full(*_: object) -> None:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

        path = tmp_path / "kept.safetensors"
        with pytest.raises(KeyboardInterrupt):
            run(path, stop_at=3)
        monkeypatch.setattr(checkpoints, "restore_optimizer", full)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            run(path)

    def test_a_place_that_cannot_be_written_is_noticed_at_once(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        with pytest.raises(OptionError, match="must be a file"):
            run(tmp_path / "folder", stop_at=1)
        (tmp_path / "file").write_text("x")
        with pytest.raises(OptionError, match="cannot be written"):
            run(tmp_path / "file" / "kept.safetensors", stop_at=1)

    def test_a_full_disk_costs_the_checkpoint_only(self, tmp_path: Path, monkeypatch: Any) -> None:
        path = tmp_path / "kept.safetensors"
        with pytest.raises(KeyboardInterrupt):
            run(path, stop_at=3)
        before = path.read_bytes()

        def full(_: object, place: Path, **__: object) -> None:
            place.write_bytes(b"half")
            raise no_space()

        monkeypatch.setattr(checkpoints, "save_file", full)
        history = run(path)
        assert history.losses == run().losses
        assert history.trouble == [
            f"The checkpoint '{path}' could not be written: No space left on device."
        ]
        assert path.read_bytes() == before
        assert [one.name for one in tmp_path.iterdir()] == ["kept.safetensors"]

    def test_a_loss_that_is_no_number_ends_it(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(Fitting, "epoch", lambda *_: float("nan"))
        told = r"broke down: .* after epoch 1 of stage 'first' \(its loss is nan\)"
        with pytest.raises(OptionError, match=told):
            run()

    def test_answers_that_are_no_numbers_end_it(self, monkeypatch: Any) -> None:
        """Where nothing is learnt any more there is no loss to show it."""
        monkeypatch.setattr(Fitting, "epoch", lambda *_: None)
        monkeypatch.setattr(Fitting, "assign", lambda *_: torch.full((4, 2), torch.nan))
        with pytest.raises(OptionError, match=r"broke down: there are no finite numbers"):
            run()

    def test_an_epoch_with_nothing_to_learn(self, monkeypatch: Any, tmp_path: Path) -> None:
        told: list[str] = []
        monkeypatch.setattr(Fitting, "epoch", lambda *_: None)
        path = tmp_path / "kept.safetensors"
        for _ in range(2):  # the second time from the file
            history = train(
                stages((1, 1)),
                seed=3,
                fingerprint="",
                checkpoint=path,
                progress=lambda stage, *_: told.append(stage),
            )
            assert np.isnan(history.losses).tolist() == [True, True]
        assert "(second, nothing to learn, " in told[-1]

    def test_it_is_written_every_so_often_and_at_the_end(
        self, tmp_path: Path, monkeypatch: Any
    ) -> None:
        written: list[int] = []
        save = checkpoints.save

        def noted(path: Path, said: dict[str, Any], tensors: Any) -> None:
            written.append(said["stage"] * 10 + said["epoch"])
            save(path, said, tensors)

        monkeypatch.setattr(checkpoints, "save", noted)
        path = tmp_path / "kept.safetensors"
        train(stages(), seed=3, fingerprint="abc", checkpoint=path, every=1e9)
        assert written == [13]
        path.unlink()
        run(path)
        assert written[1:] == [1, 2, 3, 4, 11, 12, 13]

    def test_progress_says_loss_and_clusters(self) -> None:
        told: list[tuple[str, int, int]] = []
        history = train(
            stages((1, 2)), seed=3, fingerprint="", progress=lambda *one: told.append(one), name="x"
        )
        assert [one[1:] for one in told] == [(1, 1), (1, 2), (2, 2)]
        assert told[-1][0] == (
            f"x (second, loss {history.losses[-1]:.3f}, {history.sizes[-1]:.1f} clusters)"
        )


class TestParts:
    @pytest.mark.parametrize(("n", "size"), [(83, 32), (5, 8), (64, 64), (96, 64), (2, 2)])
    def test_batches_have_every_row_once(self, n: int, size: int) -> None:
        parts = batches(n, size, np.random.default_rng(0))
        assert len(parts) == batch_count(n, size)
        assert sorted(np.concatenate(parts)) == list(range(n))
        assert min(map(len, parts)) >= 2
        assert max(map(len, parts)) - min(map(len, parts)) <= 1

    def test_an_optimizer_comes_back(self) -> None:
        course: Course = stages()[0]()
        course.epoch(np.random.default_rng(0))
        tensors = checkpoints.optimizer_tensors(course.optimizer)
        assert tensors
        other: Course = stages()[0]()
        checkpoints.restore_optimizer(other.optimizer, tensors)
        again = checkpoints.optimizer_tensors(other.optimizer)
        assert again.keys() == tensors.keys()
        assert all(torch.equal(again[key], tensors[key]) for key in tensors)

    def test_its_memory_is_laid_out_as_the_network_is(self) -> None:
        layer = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(layer.parameters())
        layer(torch.ones(1, 3, 4, 4)).sum().backward()
        optimizer.step()
        tensors = checkpoints.optimizer_tensors(optimizer)
        plain = {key: value.contiguous() for key, value in tensors.items()}  # as a file has them
        checkpoints.restore_optimizer(optimizer, plain)
        memory = optimizer.state[layer.weight]["exp_avg"]
        assert memory.stride() == layer.weight.stride()
        assert torch.equal(memory, tensors["0.exp_avg"])

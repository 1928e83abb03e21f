"""The training loop of all three methods: epochs, their history, progress and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from flawsort.core.devices import gpu_of
from flawsort.core.errors import OptionError
from flawsort.core.records import Floats, Progress
from flawsort.research.deep import checkpoints
from flawsort.research.metrics import effective_clusters

# The batch size of inference.
INFERENCE_BATCH = 256


class Course(Protocol):
    """A stage of training. modules: those that it trains, by name. epoch: trains on all images once
    and returns the mean loss, None if there was nothing to learn. assign: the current
    probabilities (n, k)."""

    name: str
    n_epochs: int
    modules: dict[str, nn.Module]
    optimizer: torch.optim.Optimizer

    def epoch(self, rng: np.random.Generator) -> float | None: ...

    def assign(self) -> torch.Tensor: ...


@dataclass
class History:
    """One entry an epoch. losses: NaN if there was nothing to learn. labels: (n,) each. sizes: the
    effective number of clusters, exp of the entropy of their sizes: 1 if all images are in one.
    probabilities: (n, k), of the last epoch. trouble: problems that did not stop the training."""

    losses: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    labels: list[NDArray[np.int16]] = field(default_factory=list)
    probabilities: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    trouble: list[str] = field(default_factory=list)


def train(
    stages: Sequence[Callable[[], Course]],
    *,
    seed: int,
    fingerprint: str,
    checkpoint: Path | None = None,
    every: float = 60.0,
    progress: Progress | None = None,
    name: str = "training",
) -> History:
    """Run the stages one after the other, from the checkpoint if there is one.

    fingerprint: identifies everything that decides the result. checkpoint: rewritten every `every`
    seconds, and at the end. Each epoch has a random generator of its own, so that an interrupted
    training ends as if it had not been interrupted.
    """
    history = History()
    written = monotonic()
    found = None if checkpoint is None else _kept(checkpoint, fingerprint)
    begin, done = (0, 0) if found is None else (found[0]["stage"], found[0]["epoch"])
    for number, build in enumerate(stages):
        course = build()
        if number < begin:
            continue
        if checkpoint is not None and found is not None and number == begin:
            try:
                _restore(course, history, *found)
            except torch.OutOfMemoryError:
                raise
            except (LookupError, RuntimeError, TypeError, ValueError) as error:
                raise checkpoints.foreign(checkpoint) from error
        else:
            done = 0
        for epoch in range(done, course.n_epochs):
            loss = course.epoch(np.random.default_rng([seed, number, epoch]))
            probabilities: Floats = course.assign().cpu().numpy()
            if not np.isfinite(probabilities).all() or not np.isfinite(loss or 0):
                raise OptionError(
                    f"Training broke down: there are no finite numbers after epoch {epoch + 1} of "
                    f"stage '{course.name}' (its loss is {loss}). Try a smaller learning rate."
                )
            _note(history, loss, probabilities)
            last = (number + 1, epoch + 1) == (len(stages), course.n_epochs)
            if checkpoint and (last or monotonic() - written >= every):
                reached = {"fingerprint": fingerprint, "stage": number, "epoch": epoch + 1}
                _keep(checkpoint, reached, course, history)
                written = monotonic()
            if progress:
                what = "nothing to learn" if loss is None else f"loss {loss:.3f}"
                place = f"{course.name}, {what}, {history.sizes[-1]:.1f} clusters"
                progress(f"{name} ({place})", epoch + 1, course.n_epochs)
    return history


def batches(n: int, size: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """All rows in random order, split into parts of about this size."""
    return np.array_split(rng.permutation(n), batch_count(n, size))


def batch_count(n: int, size: int) -> int:
    """The number of parts of about this size that n rows are split into."""
    return max(1, round(n / size))


@contextmanager
def mixed_precision(device: torch.device) -> Iterator[None]:
    """bfloat16 on a GPU that supports it, without scaling of the loss; else single precision."""
    gpu = gpu_of(device.type)
    able = gpu is not None and gpu.has_bfloat16(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=able):
        yield


@contextmanager
def repeatable() -> Iterator[None]:
    """Deterministic algorithms for convolutions."""
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False):
        yield


def infer(
    function: Callable[[torch.Tensor], torch.Tensor], photos: torch.Tensor, network: nn.Module
) -> torch.Tensor:
    """(n, ...): the function of all photos in inference mode, batch by batch, as float32."""
    network.eval()
    with torch.inference_mode(), mixed_precision(photos.device):
        return torch.cat([function(part).float() for part in photos.split(INFERENCE_BATCH)])


def _note(history: History, loss: float | None, probabilities: Floats) -> None:
    labels = probabilities.argmax(axis=1).astype(np.int16)
    history.losses.append(np.nan if loss is None else loss)
    history.labels.append(labels)
    history.sizes.append(effective_clusters(labels))
    history.probabilities = probabilities.astype(np.float32)


def _kept(path: Path, fingerprint: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """The state and tensors of the checkpoint of this training, if there is one."""
    checkpoints.check_place(path)
    found = checkpoints.load(path)
    if found is not None and not {"fingerprint", "stage", "epoch"} <= found[0].keys():
        raise checkpoints.foreign(path)
    if found is not None and found[0]["fingerprint"] != fingerprint:
        raise OptionError(
            f"checkpoint '{path}' is of another training: other images, options or seed. Name "
            "another file, or delete it."
        )
    return found


def _keep(path: Path, reached: dict[str, Any], course: Course, history: History) -> None:
    tensors = {
        f"module.{name}.{key}": value
        for name, module in course.modules.items()
        for key, value in module.state_dict().items()
    }
    memory = checkpoints.optimizer_tensors(course.optimizer)
    tensors |= {f"optimizer.{key}": value for key, value in memory.items()}
    tensors["history.labels"] = torch.from_numpy(np.stack(history.labels))
    tensors["history.probabilities"] = torch.from_numpy(history.probabilities)
    state = {**reached, "losses": history.losses, "sizes": history.sizes}
    try:
        checkpoints.save(path, state, tensors)
    except OSError as error:  # a full disk must not cost the training
        reason = error.strerror or error
        history.trouble = [f"The checkpoint '{path}' could not be written: {reason}."]


def _restore(
    course: Course, history: History, state: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> None:
    for name, module in course.modules.items():
        prefix = f"module.{name}."
        module.load_state_dict(_under(prefix, tensors))
    checkpoints.restore_optimizer(course.optimizer, _under("optimizer.", tensors))
    history.losses, history.sizes = list(state["losses"]), list(state["sizes"])
    history.labels = list(tensors["history.labels"].numpy())
    history.probabilities = tensors["history.probabilities"].numpy()


def _under(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {
        key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)
    }

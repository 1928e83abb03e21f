"""The deep clustering rows: networks trained on a set once for each seed, with results on disk.

They use the images alone, and no bags, scores or distances that other rows share.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.devices import gpu_of, torch_device
from flawsort.core.errors import OptionError
from flawsort.core.records import ImageSet
from flawsort.images.find import digest_of
from flawsort.images.inputs import content_rows, distinct_rows
from flawsort.research.paper.shared import PreparedSet, read_arrays, unreadable, write_arrays

if TYPE_CHECKING:
    from flawsort.research.deep.estimator import DeepClusterer

PREFIX = "deep/"
BEST = "-best"
# The name of a row -> its method, and whether training begins with ImageNet weights. In the paper
# SCAN does; it does not mention IIC, whose authors begin at random. The last two rows are ours.
RIVALS = {
    "iic": ("IIC", False),
    "gatcluster": ("GATCluster", False),
    "scan": ("SCAN", True),
    "iic-pretrained": ("IIC", True),
    "scan-random": ("SCAN", False),
}


@dataclass(frozen=True, kw_only=True)
class Training:
    """How networks are trained.

    n_seeds: the number of trainings of each row. n_epochs: None for the default of each method;
    SCAN's second step has a quarter of it. times: how many times as long as that. scan_rate: the
    learning rate of SCAN's first step; None for ours. weights: a file with ImageNet weights, None
    to download them. device: see flawsort.core.devices.
    """

    n_seeds: int = 3
    n_epochs: int | None = None
    times: int = 1
    scan_rate: float | None = None
    weights: Path | None = None
    device: str | None = None

    def describe(self) -> dict[str, Any]:
        """The choices, for the files."""
        weights = "by download"
        if self.weights is not None:
            digest, reason = digest_of(self.weights)
            which = reason or f"sha256 {digest[:12]}"
            weights = f"{self.weights.name} ({which})"
        return {
            "deep seeds": self.n_seeds,
            "deep epochs": self._length(),
            **({} if self.scan_rate is None else {"deep scan rate": self.scan_rate}),
            "deep weights": weights,
        }

    def _length(self) -> int | str:
        if self.n_epochs is not None:
            return self.n_epochs * self.times
        return "each method's own" + (f", {self.times} times" if self.times > 1 else "")


@dataclass(frozen=True)
class Epochs:
    """The result of a training. labels: (n_epochs, n_images), the groups after each epoch. losses:
    (n_epochs,), NaN if there was nothing to learn. gpu, bfloat16: how it was trained, maybe on
    another machine."""

    labels: NDArray[np.int16]
    losses: NDArray[np.float64]
    gpu: bool
    bfloat16: bool


def train_rival(prepared: PreparedSet, rival: str, seed: int, training: Training) -> Epochs:
    """Every epoch of a training, from its file if it was done before.

    An interrupted training resumes from its last checkpoint.
    """
    method = _make(prepared, rival, seed, training)
    images = prepared.task.data.images
    stem = f"{prepared.task.name}-{rival}-{seed}-{method.fingerprint(images)[:16]}"
    path = prepared.home / "trained" / f"{stem}.npz"
    kept = _spread(read_arrays(path) or {}, images)
    if kept is not None:
        return kept
    method.checkpoint = _checkpoint(path)
    method.fit(images)
    arrays = _arrays(method)
    found = _spread(arrays, images)
    if found is None:
        raise unreadable(prepared.task.name, images, method.images_)
    write_arrays(path, arrays)
    method.checkpoint.unlink(missing_ok=True)
    return found


def _arrays(method: DeepClusterer) -> dict[str, Any]:
    """What is stored of a training: one column for each distinct content, so that files may be
    renamed and copied."""
    import torch

    from flawsort.research.deep.training import mixed_precision

    rows = distinct_rows(method.images_)
    device = torch_device(method.device)
    with mixed_precision(device):
        bfloat16 = torch.is_autocast_enabled(device.type)
    return {
        "digests": np.array([method.images_.digests[row] for row in rows]),
        "labels": method.epoch_labels_[:, rows],
        "losses": method.losses_,
        "gpu": np.array(gpu_of(device.type) is not None),
        "bfloat16": np.array(bfloat16),
    }


def _spread(arrays: dict[str, Any], images: ImageSet) -> Epochs | None:
    """What was stored, in the order of these images; None if it is of other images."""
    if set(arrays) != {"digests", "labels", "losses", "gpu", "bfloat16"}:
        return None
    distinct = images.take(distinct_rows(images))
    if arrays["digests"].tolist() != list(distinct.digests):
        return None
    rows = content_rows(images, distinct)
    return Epochs(
        arrays["labels"][:, rows].astype(np.int16),
        arrays["losses"].astype(np.float64),
        bool(arrays["gpu"]),
        bool(arrays["bfloat16"]),
    )


def _checkpoint(path: Path) -> Path:
    """The path of the checkpoint until the training is done; a damaged one is deleted."""
    from flawsort.research.deep import checkpoints

    place = path.with_suffix(".safetensors")
    try:
        checkpoints.load(place)
    except OptionError:
        place.unlink()
    return place


def _make(prepared: PreparedSet, rival: str, seed: int, training: Training) -> DeepClusterer:
    from flawsort.research import deep

    name, pretrained = RIVALS[rival]
    k = prepared.task.n_classes
    method: DeepClusterer
    if name == "GATCluster":
        method = deep.GATCluster(n_clusters=k)
    else:
        kind = deep.IIC if name == "IIC" else deep.SCAN
        weights = training.weights if pretrained else None
        method = kind(n_clusters=k, pretrained=pretrained, weights=weights)
    if name == "SCAN" and training.scan_rate is not None:
        method.set_params(learning_rate=training.scan_rate)
    _lengthen(method, training, len(distinct_rows(prepared.task.data.images)))
    method.set_params(
        random_state=seed,
        device=training.device,
        view=prepared.view,
        progress=prepared.progress,
    )
    return method


def _lengthen(method: DeepClusterer, training: Training, n_photos: int) -> None:
    """Set the epochs where the training is not of the default length, which keeps its old files."""
    if training.n_epochs is None and training.times == 1:
        return
    options = method.get_params(deep=False)
    epochs = training.n_epochs or options["n_epochs"]
    if epochs is None:
        from flawsort.research.deep.iic import usual_epochs

        epochs = usual_epochs(n_photos, options["batch_size"])
    epochs *= training.times
    method.set_params(n_epochs=epochs)
    if "label_epochs" in options:
        method.set_params(label_epochs=max(1, epochs // 4))

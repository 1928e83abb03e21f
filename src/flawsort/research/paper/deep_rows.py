"""The deep clustering rows: networks trained on a set, once for each seed, and what they said kept.

They look at the images themselves and at nothing else that the rows of a table share.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.core.records import ImageSet
from flawsort.images.find import digest_of
from flawsort.images.inputs import content_rows, distinct_rows
from flawsort.research.paper.shared import Products, read_arrays, unreadable, write_arrays

if TYPE_CHECKING:
    from flawsort.research.deep.estimator import DeepClusterer

PREFIX = "deep/"
BEST = "-best"
# A row's name -> the method and whether it begins with ImageNet weights, in the paper's order. It
# says so of SCAN, and nothing of IIC, whose authors begin at random; the last two are ours.
RIVALS = {
    "iic": ("IIC", False),
    "gatcluster": ("GATCluster", False),
    "scan": ("SCAN", True),
    "iic-pretrained": ("IIC", True),
    "scan-random": ("SCAN", False),
}


@dataclass(frozen=True, kw_only=True)
class Training:
    """How they are trained. n_seeds: how often each. n_epochs: of each method, None for its own
    number; SCAN labels itself for a quarter of it. weights: a file, None to have timm download
    them. device: as `choose_device`."""

    n_seeds: int = 3
    n_epochs: int | None = None
    weights: Path | None = None
    device: str | None = None

    def describe(self) -> dict[str, Any]:
        """What was chosen, for the files."""
        weights = "by download"
        if self.weights is not None:
            digest, reason = digest_of(self.weights)
            which = reason or f"sha256 {digest[:12]}"
            weights = f"{self.weights.name} ({which})"
        return {
            "deep seeds": self.n_seeds,
            "deep epochs": self.n_epochs or "each method's own",
            "deep weights": weights,
        }


@dataclass(frozen=True)
class Epochs:
    """What a training came to. labels: (n_epochs, n_images), the groups after each epoch. losses:
    (n_epochs,), NaN where there was nothing to learn. gpu, bfloat16: on and in what it was trained,
    whatever is here now."""

    labels: NDArray[np.int16]
    losses: NDArray[np.float64]
    gpu: bool
    bfloat16: bool


def train_rival(products: Products, rival: str, seed: int, training: Training) -> Epochs:
    """Every epoch of a training, from its file if it was done before.

    Training that was interrupted goes on from its last checkpoint.
    """
    method = _make(products, rival, seed, training)
    images = products.task.data.images
    stem = f"{products.task.name}-{rival}-{seed}-{method.fingerprint(images)[:16]}"
    path = products.home / "trained" / f"{stem}.npz"
    kept = _spread(read_arrays(path) or {}, images)
    if kept is not None:
        return kept
    method.checkpoint = _checkpoint(path)
    method.fit(images)
    arrays = _arrays(method)
    found = _spread(arrays, images)
    if found is None:
        raise unreadable(products.task.name, images, method.images_)
    write_arrays(path, arrays)
    method.checkpoint.unlink(missing_ok=True)
    return found


def _arrays(method: DeepClusterer) -> dict[str, Any]:
    """What is kept of a training: of each distinct content once, so that files may be renamed and
    copied."""
    import torch

    from flawsort.backbones.timm import choose_device
    from flawsort.research.deep.training import mixed_precision

    rows = distinct_rows(method.images_)
    device = choose_device(method.device)
    with mixed_precision(device):
        bfloat16 = torch.is_autocast_enabled(device.type)
    return {
        "digests": np.array([method.images_.digests[row] for row in rows]),
        "labels": method.epoch_labels_[:, rows],
        "losses": method.losses_,
        "gpu": np.array(device.type == "cuda"),
        "bfloat16": np.array(bfloat16),
    }


def _spread(arrays: dict[str, Any], images: ImageSet) -> Epochs | None:
    """What was kept, in the order of these images; None where it is not of them."""
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
    """Where the training of these results is kept until it is done; a damaged one is let go."""
    from flawsort.research.deep import checkpoints

    place = path.with_suffix(".safetensors")
    try:
        checkpoints.load(place)
    except OptionError:
        place.unlink()
    return place


def _make(products: Products, rival: str, seed: int, training: Training) -> DeepClusterer:
    from flawsort.research import deep

    name, pretrained = RIVALS[rival]
    k, epochs = products.task.n_classes, training.n_epochs
    method: DeepClusterer
    if name == "GATCluster":
        method = deep.GATCluster(n_clusters=k)
    else:
        kind = deep.IIC if name == "IIC" else deep.SCAN
        weights = training.weights if pretrained else None
        method = kind(n_clusters=k, pretrained=pretrained, weights=weights)
    if epochs is not None:
        method.set_params(n_epochs=epochs)
        if name == "SCAN":
            method.set_params(label_epochs=max(1, epochs // 4))
    method.set_params(
        random_state=seed,
        device=training.device,
        view=products.view,
        progress=products.progress,
    )
    return method

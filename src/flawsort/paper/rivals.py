"""The deep clustering rows: networks trained on a set, once for each seed, and what they said kept.

They look at the images themselves and at nothing else that the rows of a table share.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flawsort.errors import OptionError
from flawsort.paper.products import Products, read_arrays

if TYPE_CHECKING:
    from flawsort.deep.estimator import DeepClusterer

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
        weights = "by download" if self.weights is None else self.weights.name
        return {
            "deep seeds": self.n_seeds,
            "deep epochs": self.n_epochs or "each method's own",
            "deep weights": weights,
        }


def epoch_labels(
    products: Products, rival: str, seed: int, training: Training
) -> NDArray[np.int16]:
    """(n_epochs, n_images): the groups after each epoch, from their file if it was done before.

    Training that was interrupted goes on from its last checkpoint.
    """
    method = _make(products, rival, seed, training)
    images = products.task.data.images
    stem = f"{products.task.name}-{rival}-{seed}-{method.fingerprint(images)[:16]}"
    path = products.home / "trained" / f"{stem}.npz"
    found = read_arrays(path)
    if found is None:
        method.checkpoint = _checkpoint(path)
        method.fit(images)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez_compressed(file, labels=method.epoch_labels_, losses=method.losses_)
        temporary.replace(path)
        method.checkpoint.unlink(missing_ok=True)
        return method.epoch_labels_
    labels: NDArray[np.int16] = found["labels"].astype(np.int16)
    return labels


def _checkpoint(path: Path) -> Path:
    """Where the training of these results is kept until it is done; a damaged one is let go."""
    from flawsort.deep import checkpoints

    place = path.with_suffix(".safetensors")
    try:
        checkpoints.load(place)
    except OptionError:
        place.unlink()
    return place


def _make(products: Products, rival: str, seed: int, training: Training) -> DeepClusterer:
    from flawsort import deep

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

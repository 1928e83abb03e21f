"""GATCluster (Niu et al., Self-Supervised Gaussian-Attention Network for Image Clustering, ECCV
2020): a network that learns four tasks, with targets from its own assignments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from flawsort.core.devices import gpu_of
from flawsort.core.records import Ints, Progress
from flawsort.images.view import View
from flawsort.research.deep.augment import (
    as_floats,
    as_pixels,
    jitter,
    move,
    random_affine,
    random_flip,
)
from flawsort.research.deep.estimator import COMMON, RATE, DeepClusterer, Limit
from flawsort.research.deep.losses import (
    attention_loss,
    balanced_targets,
    entropy,
    invariance_loss,
    separability_loss,
    sharpened_targets,
)
from flawsort.research.deep.networks import AttentionNetwork
from flawsort.research.deep.training import Course, batches, infer, mixed_precision

# Weights of the four tasks.
SEPARABILITY, INVARIANCE, ENTROPY, ATTENTION = 1.0, 5.0, 3.0, 5.0
# If k-means finds a cluster of less than this share of the mean size, no pair counts as alike.
LEAST_SHARE = 0.1


class GATCluster(DeepClusterer):
    """Group images with a Gaussian-attention network.

    n_clusters: k. n_epochs: an epoch computes the targets and augments every image once, then
    trains on all images n_repeats times, batch_size at a time. learning_rate: Adam's.
    Other options are as in `IIC`. Training always begins at random.
    """

    name: ClassVar[str] = "GATCluster"
    limits: ClassVar[dict[str, Limit]] = {
        **COMMON,
        "n_repeats": Limit(1),
        "learning_rate": RATE,
    }

    def __init__(
        self,
        *,
        n_clusters: int,
        n_epochs: int = 60,
        n_repeats: int = 8,
        batch_size: int = 32,
        learning_rate: float = 1e-3,
        device: str | None = None,
        view: View | None = None,
        random_state: int = 0,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_epochs = n_epochs
        self.n_repeats = n_repeats
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.device = device
        self.view = view
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.progress = progress

    def _side(self) -> int:
        return AttentionNetwork.SIDE

    def _stages(self, photos: torch.Tensor) -> list[Callable[[], Course]]:
        network = AttentionNetwork(self.n_clusters)
        return [lambda: _FourTasks(self, network, photos)]


class _FourTasks:
    """The only stage."""

    name = "four tasks"

    def __init__(self, options: GATCluster, network: AttentionNetwork, photos: torch.Tensor):
        self.n_epochs = options.n_epochs
        self._options = options
        self._photos = photos
        self._network = network.to(photos.device, memory_format=torch.channels_last)
        self.modules: dict[str, nn.Module] = {"network": network}
        fused = gpu_of(photos.device.type) is not None
        self.optimizer = torch.optim.Adam(
            network.parameters(), lr=options.learning_rate, fused=fused
        )

    def epoch(self, rng: np.random.Generator) -> float:
        now = self.assign().clone()
        balanced, sharpened = balanced_targets(now), sharpened_targets(now)
        k, seed = self._options.n_clusters, int(rng.integers(2**31))
        alike = pairs_alike(_grouped(sharpened, k, seed), k).to(self._photos.device)
        changed = self._changed(rng)
        self._network.train()
        total = torch.zeros((), device=self._photos.device)
        for _ in range(self._options.n_repeats):
            for part in batches(len(self._photos), self._options.batch_size, rng):
                rows = torch.from_numpy(part).to(self._photos.device)
                with mixed_precision(self._photos.device):
                    whole, attended = self._network(changed[rows])
                loss = (
                    INVARIANCE * invariance_loss(whole, balanced[rows])
                    + SEPARABILITY * separability_loss(whole, alike[rows][:, rows])
                    - ENTROPY * (entropy(whole.mean(0)) + entropy(attended.mean(0)))
                    + ATTENTION * attention_loss(attended, sharpened[rows])
                )
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_value_(self._network.parameters(), 10)
                self.optimizer.step()
                total += loss.detach() * len(part)
        return float(total) / (self._options.n_repeats * len(self._photos))

    def assign(self) -> torch.Tensor:
        def predict(photos: torch.Tensor) -> torch.Tensor:
            whole: torch.Tensor = self._network(as_pixels(as_floats(photos)))[0]
            return whole

        return infer(predict, self._photos, self._network)

    def _changed(self, rng: np.random.Generator) -> torch.Tensor:
        """One augmented version of every image, as input of the network."""
        n = len(self._photos)
        moved = random_affine(n, rng, degrees=10, shift=0.1, scale=(0.8, 1.2), shear=10)
        moved = moved @ random_flip(n, rng)
        coloured = jitter(
            move(as_floats(self._photos), moved, AttentionNetwork.SIDE),
            rng,
            brightness=0.3,
            contrast=0.3,
            saturation=0,
            hue=0.2,
        )
        return as_pixels(coloured)


def _grouped(targets: torch.Tensor, k: int, seed: int) -> Ints:
    """(n,): the cluster of each image by k-means."""
    points = targets.double().cpu().numpy()
    with warnings.catch_warnings():
        # After a collapse there are fewer than k distinct points: `pairs_alike` handles that.
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        labels: Ints = KMeans(k, n_init=20, random_state=seed).fit_predict(points)
    return labels


def pairs_alike(labels: Ints, k: int) -> torch.Tensor:
    """(n, n): 1 where two images have the same label. While a cluster is missing or tiny, only the
    diagonal is 1."""
    sizes = np.bincount(labels, minlength=k)
    if sizes.min() < LEAST_SHARE * len(labels) / k:
        return torch.eye(len(labels))
    same: NDArray[np.bool_] = labels[:, None] == labels[None]
    return torch.from_numpy(same.astype(np.float32))

"""IIC (Ji et al., Invariant Information Clustering, ICCV 2019): maximises the mutual information
between the assignments of an image and of an augmented version of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from flawsort.core.errors import OptionError
from flawsort.core.records import Progress
from flawsort.images.view import View
from flawsort.research.deep.augment import (
    as_floats,
    as_pixels,
    jitter,
    move,
    random_crop,
    random_flip,
    sobel,
)
from flawsort.research.deep.estimator import COMMON, RATE, DeepClusterer, Limit
from flawsort.research.deep.losses import information_loss
from flawsort.research.deep.networks import HeadedResidual, Residual
from flawsort.research.deep.training import Course, batch_count, batches, infer, mixed_precision

# The default length of training: at least this many steps of each set of heads, and epochs.
LEAST_STEPS, LEAST_EPOCHS = 200, 50
# The two sets of heads, in the order in which an epoch trains them.
OVER, FINAL = "over", "final"


class IIC(DeepClusterer):
    """Group images by invariant information clustering.

    n_clusters: k. batch_size: images in a batch, each in n_repeats augmented versions. n_epochs: an
        epoch trains the over-clustering heads on all images, then the final ones; None for at
        least 200 steps of each and at least 50 epochs.
    n_heads: of each set; the one with the least loss predicts. over_clusters: the over-clustering
        heads have this many times k clusters. learning_rate: Adam's.
    crop_size, side: photos of side x side pixels are cropped to crop_size.
    pretrained: begin with ImageNet weights, from the file `weights` or by download, on colours;
        otherwise begin at random, on Sobel edges, as the authors do.
    device: "cpu", "cuda" or "cuda:N"; None for a GPU if there is one, in bfloat16 where possible.
    view: the part of each file that is used. random_state: the seed of every random choice.
    checkpoint: a file to resume from, rewritten every minute. progress: as AnomalyClusterer's.
    """

    name: ClassVar[str] = "IIC"
    limits: ClassVar[dict[str, Limit]] = {
        **COMMON,
        "n_epochs": Limit(1, optional=True),
        "n_repeats": Limit(1),
        "n_heads": Limit(1),
        "over_clusters": Limit(1),
        "learning_rate": RATE,
        "crop_size": Limit(32),
        "side": Limit(32),
    }

    def __init__(
        self,
        *,
        n_clusters: int,
        n_epochs: int | None = None,
        batch_size: int = 140,
        n_repeats: int = 3,
        n_heads: int = 5,
        over_clusters: int = 7,
        learning_rate: float = 1e-4,
        crop_size: int = 128,
        side: int = 192,
        pretrained: bool = False,
        weights: str | Path | None = None,
        device: str | None = None,
        view: View | None = None,
        random_state: int = 0,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.n_repeats = n_repeats
        self.n_heads = n_heads
        self.over_clusters = over_clusters
        self.learning_rate = learning_rate
        self.crop_size = crop_size
        self.side = side
        self.pretrained = pretrained
        self.weights = weights
        self.device = device
        self.view = view
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.progress = progress

    def _side(self) -> int:
        return self.side

    def _check(self) -> None:
        super()._check()
        if self.crop_size > self.side:
            raise OptionError(f"crop_size must be at most side, {self.side}. Got {self.crop_size}.")

    def _stages(self, photos: torch.Tensor) -> list[Callable[[], Course]]:
        trunk = Residual(
            weights=self._weights_file(),
            pretrained=self.pretrained,
            channels=3 if self.pretrained else 2,
        )
        heads = {
            OVER: (self.n_heads, self.over_clusters * self.n_clusters),
            FINAL: (self.n_heads, self.n_clusters),
        }
        network = HeadedResidual(trunk, heads)
        return [lambda: _Pairs(self, network, photos)]


def usual_epochs(n_photos: int, batch_size: int) -> int:
    """The epochs of a training of the default length."""
    return max(LEAST_EPOCHS, -(-LEAST_STEPS // batch_count(n_photos, batch_size)))


class _Pairs:
    """The only stage: images and their augmented versions."""

    name = "pairs"

    def __init__(self, options: IIC, network: HeadedResidual, photos: torch.Tensor) -> None:
        self.n_epochs = options.n_epochs or usual_epochs(len(photos), options.batch_size)
        self._options = options
        self._photos = photos
        self._network = network.to(photos.device, memory_format=torch.channels_last)
        self.modules: dict[str, nn.Module] = {"network": network}
        self.optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)

    def epoch(self, rng: np.random.Generator) -> float:
        self._network.train()
        losses = [self._train(head, rng) for head in (OVER, FINAL)]
        return losses[-1]

    def assign(self) -> torch.Tensor:
        def predict(photos: torch.Tensor) -> torch.Tensor:
            logits = self._network.predict(self._seen(as_floats(photos)), FINAL)
            return F.softmax(logits.float(), dim=1)

        return infer(predict, self._photos, self._network)

    def _train(self, head: str, rng: np.random.Generator) -> float:
        """The mean loss of those heads over all images."""
        sums = torch.zeros(self._options.n_heads, device=self._photos.device)
        for rows in batches(len(self._photos), self._options.batch_size, rng):
            losses = self._losses(head, rows, rng)
            self.optimizer.zero_grad(set_to_none=True)
            losses.mean().backward()
            self.optimizer.step()
            sums += losses.detach() * len(rows)
        mean = sums / len(self._photos)
        self._network.heads[head].losses.copy_(mean)
        return float(mean.mean())

    def _losses(
        self, head: str, rows: np.ndarray[tuple[int], np.dtype[np.int64]], rng: np.random.Generator
    ) -> torch.Tensor:
        """(n_heads,): of a batch."""
        options, n = self._options, len(rows)
        photos = as_floats(self._photos[torch.from_numpy(rows).to(self._photos.device)])
        share = options.crop_size / options.side
        plain = move(photos, random_crop(n, share, rng), options.crop_size)
        repeated = photos.repeat(options.n_repeats, 1, 1, 1)
        moved = random_crop(len(repeated), share, rng) @ random_flip(len(repeated), rng)
        changed = jitter(
            move(repeated, moved, options.crop_size),
            rng,
            brightness=0.4,
            contrast=0.4,
            saturation=0.4,
            hue=0.125,
        )
        with mixed_precision(photos.device):
            logits = self._network(self._seen(torch.cat([plain, changed])), head)
        shares = F.softmax(logits.float(), dim=2)
        first = shares[:, :n].repeat(1, options.n_repeats, 1)
        pairs = zip(first, shares[:, n:], strict=True)
        return torch.stack([information_loss(one, other) for one, other in pairs])

    def _seen(self, photos: torch.Tensor) -> torch.Tensor:
        if self._options.pretrained:
            return as_pixels(photos)
        return sobel(photos).contiguous(memory_format=torch.channels_last)

"""SCAN (Van Gansbeke et al., Learning to Classify Images without Labels, ECCV 2020): an image and
its neighbours in feature space belong together; then the network learns from its own confident
predictions. ImageNet weights replace its first step, self-supervised learning, as in the paper
that we compare with."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from flawsort.core.records import Progress
from flawsort.images.view import View
from flawsort.research.deep.augment import (
    as_floats,
    as_pixels,
    cut_out,
    jitter,
    move,
    normalise,
    random_flip,
    random_grey,
    random_resized_crop,
    strong,
    whole,
)
from flawsort.research.deep.estimator import COMMON, RATE, DeepClusterer, Limit
from flawsort.research.deep.losses import confident_loss, neighbour_loss
from flawsort.research.deep.networks import HeadedResidual, Residual, settle_norms, train_but_norms
from flawsort.research.deep.training import Course, batch_count, batches, infer, mixed_precision

HEADS = "clusters"
# The batch size that the authors' learning rates are for.
AUTHORS_BATCH = 512
# The batch size for measuring the statistics of batch norms of a random network.
STATISTICS_BATCH = 64


class SCAN(DeepClusterer):
    """Group images by semantic clustering of neighbours, then self-labelling.

    n_clusters: k. n_epochs, label_epochs: of the two steps. batch_size: images in a batch.
    n_heads: linear classifiers of the first step; the one with the least loss in any epoch is kept.
    n_neighbours: the nearest images that an image may be paired with; None for a quarter of the
        mean cluster size, 50 at most. entropy_weight: of the term for clusters of equal size.
    threshold: the probability above which a prediction is confident. learning_rate: of SGD in the
        first step, for a batch of 512, scaled to the batch. label_rate: of AdamW in the second.
    image_size: of the network's input; photos are cropped from a side 8/7 as long.
    pretrained: begin with ImageNet weights, from the file `weights` or by download; else at random.
    Other options are as in `IIC`.
    """

    name: ClassVar[str] = "SCAN"
    limits: ClassVar[dict[str, Limit]] = {
        **COMMON,
        "label_epochs": Limit(1),
        "n_heads": Limit(1),
        "n_neighbours": Limit(1, optional=True),
        "entropy_weight": Limit(0, 1e3, whole=False),
        "threshold": Limit(0, 1, whole=False),
        "learning_rate": RATE,
        "label_rate": RATE,
        "image_size": Limit(32),
    }

    def __init__(
        self,
        *,
        n_clusters: int,
        n_epochs: int = 100,
        label_epochs: int = 25,
        batch_size: int = 64,
        n_heads: int = 10,
        n_neighbours: int | None = None,
        entropy_weight: float = 5.0,
        threshold: float = 0.99,
        learning_rate: float = 20.0,
        label_rate: float = 1e-4,
        image_size: int = 224,
        pretrained: bool = True,
        weights: str | Path | None = None,
        device: str | None = None,
        view: View | None = None,
        random_state: int = 0,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_epochs = n_epochs
        self.label_epochs = label_epochs
        self.batch_size = batch_size
        self.n_heads = n_heads
        self.n_neighbours = n_neighbours
        self.entropy_weight = entropy_weight
        self.threshold = threshold
        self.learning_rate = learning_rate
        self.label_rate = label_rate
        self.image_size = image_size
        self.pretrained = pretrained
        self.weights = weights
        self.device = device
        self.view = view
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.progress = progress

    def _side(self) -> int:
        return round(self.image_size * 8 / 7)

    def _stages(self, photos: torch.Tensor) -> list[Callable[[], Course]]:
        trunk = Residual(weights=self._weights_file(), pretrained=self.pretrained)
        network = HeadedResidual(trunk, {HEADS: (self.n_heads, self.n_clusters)})
        network.to(photos.device, memory_format=torch.channels_last)
        size = self.image_size
        if not self.pretrained:
            parts = photos.tensor_split(batch_count(len(photos), STATISTICS_BATCH))
            settle_norms(trunk, (as_pixels(whole(as_floats(part), size)) for part in parts))
        # Images of one product share most of their features, and the authors' learning rate is for
        # the features of their own first step, whose length differs.
        trunk.centre(_features(trunk, photos, size))
        return [
            lambda: _Neighbours(self, network, photos),
            lambda: _SelfLabels(self, network, photos),
        ]


class _Neighbours:
    """The first stage: only heads are trained, on fixed features. The network keeps the heads of
    the epoch in which whole photos agreed best with their neighbours."""

    name = "neighbours"

    def __init__(self, options: SCAN, network: HeadedResidual, photos: torch.Tensor) -> None:
        self.n_epochs = options.n_epochs
        self._options = options
        self._photos = photos
        self._trunk, self._best = network.trunk, network.heads[HEADS]
        self._best.losses.fill_(torch.inf)
        self._learning = deepcopy(self._best)
        self.modules: dict[str, nn.Module] = {"network": network, "learning": self._learning}
        in_a_batch = len(photos) / batch_count(len(photos), options.batch_size)
        rate = options.learning_rate * in_a_batch / AUTHORS_BATCH
        self.optimizer = torch.optim.SGD(self._learning.parameters(), lr=rate, momentum=0.9)
        self._features = _features(network.trunk, photos, options.image_size)
        self._neighbours = nearest(self._features, neighbour_count(len(photos), options))
        self._of_each = self._neighbours.cpu().numpy()

    def epoch(self, rng: np.random.Generator) -> float:
        sums = torch.zeros(self._options.n_heads, device=self._photos.device)
        weight = self._options.entropy_weight
        for rows in batches(len(self._photos), self._options.batch_size, rng):
            anchors, neighbours = self._pairs(rows, rng)
            losses = torch.stack(
                [neighbour_loss(a, b, weight) for a, b in zip(anchors, neighbours, strict=True)]
            )
            self.optimizer.zero_grad(set_to_none=True)
            losses.sum().backward()
            self.optimizer.step()
            sums += losses.detach() * len(rows)
        self._keep_if_better()
        return float(sums.min()) / len(self._photos)

    def assign(self) -> torch.Tensor:
        with torch.inference_mode():
            return F.softmax(self._best(self._features), dim=2)[self._best.best]

    def _pairs(
        self, rows: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(n_heads, n, k) twice: the probabilities of these images and of a neighbour of each, both
        augmented."""
        picks = rng.integers(self._of_each.shape[1], size=len(rows))
        both = np.concatenate([rows, self._of_each[rows, picks]])
        place = self._photos.device
        photos = as_floats(self._photos[torch.from_numpy(both).to(place)])
        train_but_norms(self._trunk)
        with torch.inference_mode(), mixed_precision(place):
            features = self._trunk(as_pixels(_changed(photos, self._options.image_size, rng)))
        probabilities = F.softmax(self._learning(features.float().clone()), dim=2)
        anchors, neighbours = probabilities.split(len(rows), dim=1)
        return anchors, neighbours

    @torch.no_grad()
    def _keep_if_better(self) -> None:
        """The authors choose the epoch and the head by the loss of whole photos with all their
        neighbours, with entropy and agreement weighted the same."""
        probabilities = F.softmax(self._learning(self._features), dim=2)
        count = self._neighbours.shape[1]
        losses = torch.stack(
            [
                neighbour_loss(one.repeat_interleave(count, 0), one[self._neighbours.flatten()], 1)
                for one in probabilities
            ]
        )
        if losses.min() < self._best.losses.min():
            self._best.load_state_dict(self._learning.state_dict())
            self._best.losses.copy_(losses)


class _SelfLabels:
    """The second stage: the whole network learns its own confident predictions on strongly
    augmented images."""

    name = "self-labelling"

    def __init__(self, options: SCAN, network: HeadedResidual, photos: torch.Tensor) -> None:
        self.n_epochs = options.label_epochs
        self._options = options
        self._photos = photos
        self._network = network
        self.modules: dict[str, nn.Module] = {"network": network}
        # AdamW, not Adam: once the predictions fit, Adam would scale a gradient of weight decay
        # alone up to a full step, which destroys the network.
        rate = options.label_rate
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-4)

    def epoch(self, rng: np.random.Generator) -> float | None:
        place, size = self._photos.device, self._options.image_size
        total, count = torch.zeros((), device=place), 0
        for rows in batches(len(self._photos), self._options.batch_size, rng):
            photos = as_floats(self._photos[torch.from_numpy(rows).to(place)])
            predictions = infer(self._predict, photos, self._network)
            changed = cut_out(normalise(strong(photos, size, rng)), rng, 75 / 224)
            # Batch norms keep the statistics that the heads were trained with. `Residual.centre`
            # removes what moves all images alike: otherwise one step would move them all into one
            # cluster, since images of one product differ little compared with what they share.
            train_but_norms(self._network)
            with mixed_precision(place):
                pixels = changed.contiguous(memory_format=torch.channels_last)
                logits = self._network.predict(pixels, HEADS)
            loss = confident_loss(logits.float(), predictions.clone(), self._options.threshold)
            if loss is None:
                continue
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach() * len(rows)
            count += len(rows)
        trunk = self._network.trunk
        trunk.centre(_features(trunk, self._photos, size))
        return float(total) / count if count else None

    def assign(self) -> torch.Tensor:
        return infer(lambda part: self._predict(as_floats(part)), self._photos, self._network)

    def _predict(self, photos: torch.Tensor) -> torch.Tensor:
        logits = self._network.predict(as_pixels(whole(photos, self._options.image_size)), HEADS)
        return F.softmax(logits.float(), dim=1)


def _features(trunk: Residual, photos: torch.Tensor, size: int) -> torch.Tensor:
    """(n, width): the features of the whole photos, not augmented."""
    return infer(lambda part: trunk(as_pixels(whole(as_floats(part), size))), photos, trunk)


def neighbour_count(n: int, options: SCAN) -> int:
    """The number of neighbours of an image: `options.n_neighbours` or its default, below n."""
    wanted = options.n_neighbours
    if wanted is None:
        wanted = min(50, n // (4 * options.n_clusters))
    return min(max(1, wanted), n - 1)


def nearest(features: torch.Tensor, count: int) -> torch.Tensor:
    """(n, count): the rows of the most similar features by cosine, without the image itself."""
    directions = F.normalize(features.float(), dim=1)
    cosines = directions @ directions.T
    cosines.fill_diagonal_(-2)
    return cosines.topk(count, dim=1).indices


def _changed(photos: torch.Tensor, size: int, rng: np.random.Generator) -> torch.Tensor:
    """SimCLR's augmentations, with the authors' settings for ImageNet."""
    n = len(photos)
    moved = random_resized_crop(n, (0.2, 1.0), rng) @ random_flip(n, rng)
    coloured = jitter(
        move(photos, moved, size),
        rng,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        share=0.8,
    )
    return random_grey(coloured, rng, 0.2)

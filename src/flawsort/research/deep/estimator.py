"""What the three methods have in common: images in, labels and the history of training out."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin

from flawsort.backbones.networks import NETWORKS
from flawsort.backbones.timm import choose_device
from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bags, ImageSet, Ints, Progress
from flawsort.core.store import FORMAT
from flawsort.images.find import digest_of
from flawsort.images.inputs import Images, gather
from flawsort.images.view import View
from flawsort.research.deep.limits import Limit
from flawsort.research.deep.networks import RESIDUAL
from flawsort.research.deep.photos import load_photos
from flawsort.research.deep.training import Course, History, repeatable, train
from flawsort.research.metrics import collapsed

# Of 1 / k, which is what a network says that has learnt nothing.
HARDLY_SURE = 1.5
# What decides nothing but the rounding, or is described in another way.
_NOT_DECIDING = ("checkpoint", "device", "progress", "view", "weights")


class DeepClusterer(ClusterMixin, BaseEstimator):
    """A method that trains a network on the images that it groups.

    After `fit`, in the order of the images given: `labels_` (n,), `probabilities_` (n, k). An entry
    an epoch, of all stages: `epoch_labels_` (n_epochs, n), `losses_` (NaN where there was nothing
    to learn), and `effective_clusters_`, the number of clusters that their sizes amount to (exp of
    their entropy). Besides: `collapsed_`, whether (nearly) all images ended in one cluster;
    `images_`, what was used and what was set aside; `warnings_`.
    """

    name: ClassVar[str]
    limits: ClassVar[dict[str, Limit]]
    n_clusters: int
    batch_size: int
    device: str | None
    view: View | None
    random_state: int
    checkpoint: str | Path | None
    progress: Progress | None

    def fit(self, X: Images, y: object = None) -> DeepClusterer:
        """Train on the images and group them. X: folders, files, globs or list files, or arrays.

        y is ignored, as in every clusterer.
        """
        self._check()
        images = gather(X)
        if isinstance(images, Bags):
            raise InputError(f"{self.name} is trained on photos. Got Bags: pass the images.")
        found = load_photos(images, self._side(), self.view or View(), self.progress)
        photos, rows, self.images_ = found
        if len(photos) < self.n_clusters:
            raise InputError(
                f"There must be at least as many different images as clusters, {self.n_clusters}. "
                f"Got {len(photos)}."
            )
        place = choose_device(self.device)
        try:
            history = self._train(photos.to(place))
        except torch.cuda.OutOfMemoryError as error:
            raise OptionError(
                f"{self.name} needs more memory than {place} has left. Try a batch_size below "
                f"{self.batch_size}, or device='cpu'."
            ) from error
        return self._finish(history, rows)

    def fit_predict(self, X: Images, y: object = None) -> Ints:
        """(n,): the cluster of each image, as the last epoch has it."""
        self.fit(X)
        return self.labels_

    def _train(self, photos: torch.Tensor) -> History:
        with repeatable(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            return train(
                self._stages(photos),
                seed=self.random_state,
                fingerprint=self.fingerprint(self.images_),
                checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
                progress=self.progress,
                name=f"training {self.name}",
            )

    @abstractmethod
    def _side(self) -> int:
        """Of the photos that the method crops and changes."""

    @abstractmethod
    def _stages(self, photos: torch.Tensor) -> list[Callable[[], Course]]:
        """photos: (n, 3, side, side) bytes, on the device."""

    def _finish(self, history: History, rows: Ints) -> DeepClusterer:
        self.epoch_labels_: NDArray[np.int16] = np.stack(history.labels)[:, rows]
        self.labels_: NDArray[np.int64] = self.epoch_labels_[-1].astype(np.int64)
        self.probabilities_: NDArray[np.float32] = history.probabilities[rows]
        self.losses_ = np.array(history.losses)
        self.effective_clusters_ = np.array(history.sizes)
        self.collapsed_ = collapsed(history.labels[-1])
        self.warnings_: list[str] = list(history.trouble)
        idle = int(np.isnan(self.losses_).sum())
        if idle:
            self.warnings_.append(
                f"{self.name} had nothing to learn in {idle} of {len(self.losses_)} epochs: no "
                "image was assigned with enough confidence."
            )
        if self.collapsed_:
            # One cluster may lead by a hair among answers that are all alike still.
            hardly = self.probabilities_.max(axis=1).mean() < HARDLY_SURE / self.n_clusters
            advice = (
                "Too little was learnt: try more epochs." if hardly else "Try another random_state."
            )
            self.warnings_.append(
                f"{self.name} collapsed: (nearly) all images are in one of {self.n_clusters} "
                f"clusters. {advice}"
            )
        return self

    def _check(self) -> None:
        """Raise OptionError for an option out of its limits, before any image is read."""
        for name, limit in self.limits.items():
            limit.check(name, getattr(self, name))
        weights = self.get_params(deep=False).get("weights")
        if weights is None:
            return
        file = self._weights_file()
        if file is None:
            raise OptionError(
                "weights are what a pretrained network begins with: pass pretrained=True too, or "
                f"leave them out. Got weights '{weights}' and pretrained=False."
            )
        if not file.is_file():
            raise OptionError(f"weights must be a file. Got '{file}', which is none.")

    def _weights_file(self) -> Path | None:
        """The file of weights to begin with, if there is one and it is to be used."""
        options = self.get_params(deep=False)
        used = options.get("pretrained") and options.get("weights") is not None
        return Path(options["weights"]) if used else None

    def _weights_digest(self) -> str | None:
        """Which weights it begins with; None for random ones."""
        if not self.get_params(deep=False).get("pretrained"):
            return None
        file = self._weights_file()
        return NETWORKS[RESIDUAL].model if file is None else digest_of(file)[0]

    def fingerprint(self, images: ImageSet) -> str:
        """Over all that decides the result: the method, its options, weights and contents."""
        options: dict[str, Any] = self.get_params(deep=False)
        view = options["view"] or View()
        described = {
            "format": FORMAT,
            "method": self.name,
            "options": {
                name: float(value) if isinstance(value, Real) else repr(value)
                for name, value in options.items()
                if name not in _NOT_DECIDING
            },
            "view": view.describe(),
            "weights": self._weights_digest(),
            "images": sorted(set(images.digests)),
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

"""What the three methods have in common: images in, labels and the history of training out."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin

from flawsort.backbones.timm import choose_device
from flawsort.deep.checkpoints import FORMAT
from flawsort.deep.photos import load_photos
from flawsort.deep.training import COLLAPSED, Course, History, repeatable, train
from flawsort.errors import InputError, OptionError
from flawsort.files import digest_of
from flawsort.images import View
from flawsort.inputs import Images, gather
from flawsort.records import Bags, ImageSet, Ints, Progress

# What changes nothing about the result.
_WITHOUT_EFFECT = ("checkpoint", "device", "progress", "weights")


class DeepClusterer(ClusterMixin, BaseEstimator):
    """A method that trains a network on the images that it groups.

    After `fit`, in the order of the images given: `labels_` (n,), `probabilities_` (n, k). An entry
    an epoch: `epoch_labels_` (n_epochs, n), `losses_`, and `effective_clusters_`, the number of
    clusters that their sizes amount to (exp of their entropy). Besides: `collapsed_`, whether all
    images ended in one cluster; `images_`, what was used and what was set aside; `warnings_`.
    """

    name: ClassVar[str]
    # Options that the method chooses itself where they are None.
    may_be_none: ClassVar[tuple[str, ...]] = ()
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
        with repeatable(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.random_state)
            history = train(
                self._stages(photos.to(place)),
                seed=self.random_state,
                fingerprint=self.fingerprint(self.images_),
                checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
                progress=self.progress,
                name=f"training {self.name}",
            )
        return self._finish(history, rows)

    def fit_predict(self, X: Images, y: object = None) -> Ints:
        """(n,): the cluster of each image, as the last epoch has it."""
        self.fit(X)
        return self.labels_

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
        self.collapsed_ = bool(self.effective_clusters_[-1] < COLLAPSED)
        self.warnings_: list[str] = []
        if self.collapsed_:
            self.warnings_.append(
                f"{self.name} collapsed: (nearly) all images are in one of {self.n_clusters} "
                "clusters. Try another random_state."
            )
        return self

    def _check(self) -> None:
        for name, least in (("n_clusters", 2), ("n_epochs", 1), ("batch_size", 2)):
            value = getattr(self, name)
            if value is None and name in self.may_be_none:
                continue
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
                raise OptionError(f"{name} must be an integer of at least {least}. Got {value!r}.")
        seed = self.random_state
        if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
            raise OptionError(f"random_state must be an integer from 0 to 2**32 - 1. Got {seed!r}.")

    def fingerprint(self, images: ImageSet) -> str:
        """Over all that decides the result: the method, its options, weights and contents."""
        options: dict[str, Any] = self.get_params(deep=False)
        weights = options.get("weights")
        view = options.pop("view") or View()
        kept = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT}
        described = {
            "format": FORMAT,
            "method": self.name,
            "options": {name: repr(value) for name, value in kept.items()},
            "view": view.describe(),
            "weights": None if weights is None else digest_of(Path(weights)),
            "images": sorted(set(images.digests)),
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

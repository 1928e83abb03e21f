"""The base of IIC, SCAN and GATCluster: images in, labels and the history of training out."""

from __future__ import annotations

import hashlib
import json
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin

from flawsort.backbones.networks import NETWORKS
from flawsort.core.devices import torch_device
from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bags, ImageSet, Ints, Progress, SetAside, Source
from flawsort.core.store import FORMAT
from flawsort.core.threads import in_threads
from flawsort.images.find import digest_of
from flawsort.images.inputs import Images, content_rows, distinct_rows, gather, used_images
from flawsort.images.view import UnreadableImage, View, decode
from flawsort.research.deep.networks import RESIDUAL
from flawsort.research.deep.training import Course, History, repeatable, train
from flawsort.research.metrics import collapsed

# A network that has learnt nothing gives every cluster the probability 1 / k. A mean below this
# many times 1 / k is hardly more.
HARDLY_SURE = 1.5
# Options that change nothing but the rounding, or that the fingerprint holds in another form.
_NOT_DECIDING = ("checkpoint", "device", "progress", "view", "weights")


@dataclass(frozen=True)
class Limit:
    """The range of an option: a number from least to most.

    whole: integers only. optional: None is accepted too.
    """

    least: float
    most: float = math.inf
    whole: bool = True
    optional: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise OptionError for a value outside the range."""
        if value is None and self.optional:
            return
        kind = Integral if self.whole else Real
        right = isinstance(value, kind) and not isinstance(value, bool)
        if right and self.least <= float(value) <= self.most:  # type: ignore[arg-type]
            return
        what = "an integer" if self.whole else "a number"
        reach = f"of at least {self.least:g}"
        if self.most < math.inf:
            reach = f"from {self.least:g} to {self.most:.10g}"
        other = ", or None" if self.optional else ""
        raise OptionError(f"{name} must be {what} {reach}{other}. Got {value!r}.")


# The range of a learning rate.
RATE = Limit(1e-9, 1e3, whole=False)
# The options that every method has.
COMMON = {
    "n_clusters": Limit(2),
    "n_epochs": Limit(1),
    "batch_size": Limit(2),
    "random_state": Limit(0, 2**32 - 1),
}


class DeepClusterer(ClusterMixin, BaseEstimator):
    """Trains a network on the images that it groups.

    After `fit`, in the order of the images given: `labels_` (n,) and `probabilities_` (n, k). For
    each epoch of all stages: `epoch_labels_` (n_epochs, n), `losses_` (NaN where there was nothing
    to learn) and `effective_clusters_`, exp of the entropy of the clusters' sizes. Also:
    `collapsed_`, whether nearly all images ended in one cluster; `images_`, the images that were
    used and those set aside; `warnings_`.
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
        place = torch_device(self.device)
        try:
            history = self._train(photos.to(place))
        except torch.OutOfMemoryError as error:
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
        """The side of the photos that the method crops and changes, in pixels."""

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
            # One cluster may be slightly ahead while all probabilities are still about 1 / k.
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
        """Raise OptionError for an option outside its range, before any image is read."""
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
        """The file of weights to begin with; None if there is none or it is not used."""
        options = self.get_params(deep=False)
        used = options.get("pretrained") and options.get("weights") is not None
        return Path(options["weights"]) if used else None

    def _weights_digest(self) -> str | None:
        """Identifies the weights that training begins with; None for random ones."""
        if not self.get_params(deep=False).get("pretrained"):
            return None
        file = self._weights_file()
        return NETWORKS[RESIDUAL].model if file is None else digest_of(file)[0]

    def fingerprint(self, images: ImageSet) -> str:
        """SHA-256 over all that decides the result: method, options, weights and images."""
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


def load_photos(
    images: ImageSet, side: int, view: View, progress: Progress | None = None
) -> tuple[torch.Tensor, Ints, ImageSet]:
    """All images of a set as one tensor, each distinct content once, in the order of content.

    Returns the photos (n_distinct, 3, side, side) as bytes, the row of its photo for each usable
    image, and the usable images. The order makes training independent of names and copies.
    """
    if view.layout != (1, 1):
        raise OptionError(f"A photo is trained on whole: view.tiles must be 1x1. Got {view.tiles}.")
    distinct = images.take(distinct_rows(images))
    photos: list[NDArray[np.uint8]] = []
    bad: list[SetAside] = []

    def read(source: Source) -> NDArray[np.uint8] | str:
        try:
            frame = decode(source, view, (side, side)).frames[0]
        except (UnreadableImage, OptionError, OSError) as error:
            return str(error)
        photo: NDArray[np.uint8] = np.rint(frame * 255).astype(np.uint8)
        return photo

    for row, found in enumerate(in_threads(read, distinct.sources)):
        if isinstance(found, str):
            bad.append(SetAside(distinct.names[row], found))
        else:
            photos.append(found)
        if progress:
            progress("reading", row + 1, len(distinct))
    if len(photos) < 2:
        why = f" The first, '{bad[0].name}': {bad[0].reason}." if bad else ""
        raise InputError(
            f"There must be at least 2 images of different content to train on. Got {len(photos)} "
            f"of {len(images) + len(images.set_aside)}.{why}"
        )
    kept = distinct.without(bad)
    usable = used_images(images, kept)
    return torch.from_numpy(np.stack(photos)), content_rows(usable, kept), usable

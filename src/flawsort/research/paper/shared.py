"""What the rows of the tables share: bags, scores and distances, computed once for each set.

Results are stored in a folder under a key over the images, the backbone and the settings, so that
an interrupted table resumes where it stopped and later tables reuse them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones import Backbone
from flawsort.backbones.cache import BagCache
from flawsort.backbones.embed import cache_setting, embed
from flawsort.core.errors import InputError
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, Progress
from flawsort.core.storage import write_whole
from flawsort.core.store import FORMAT
from flawsort.core.text import pluralise
from flawsort.images.budget import BUDGET
from flawsort.images.find import digest_of
from flawsort.images.inputs import with_window
from flawsort.images.maps import cell_means, read_mask
from flawsort.images.view import View, thumbnail
from flawsort.research.paper.protocol import Task, subset_rows
from flawsort.scores.engines import CpuEngine, Engine
from flawsort.scores.peer_statistics import (
    Combined,
    DirectedMinima,
    MaxOverPeers,
    MeanOverPeers,
    MinOverPeers,
    Tensor,
)
from flawsort.scores.recall import Recall
from flawsort.scores.reference import NormalReference


@dataclass(frozen=True)
class Peers:
    """Every image against the others.

    mean, most, least: (n_images, n_patches), the mean, maximum and minimum over the other images of
    the distance to the nearest patch there (Eq. 5 and its variants). minima: the basis of the
    Hausdorff distances.
    """

    mean: NDArray[np.float32]
    most: NDArray[np.float32]
    least: NDArray[np.float32]
    minima: DirectedMinima


class PreparedSet:
    """A set with a backbone: its bags, scores and distances, each computed on first use."""

    def __init__(
        self,
        task: Task,
        backbone: Backbone,
        folder: Path,
        *,
        view: View | None = None,
        exact: bool = True,
        engine: Engine | None = None,
        progress: Progress | None = None,
    ) -> None:
        """folder: where results are stored. exact: search normals exactly, otherwise in inverted
        lists. engine: compares patches; None for the CPU in float32."""
        self.task = task
        self.backbone = backbone
        self.view = with_window(view or View(), task.data.images, task.data.normals)
        self.exact = exact
        self.engine = engine or CpuEngine()
        self.search = "-exact" if exact else "-lists"
        self.progress = progress
        self.home = folder
        self._bags_folder = folder / "bags"
        normals = task.data.normals
        key = {
            "format": FORMAT,
            "images": task.data.images.digests,
            "normals": () if normals is None else normals.digests,
            "labels": task.data.labels,
            "masks": [None if path is None else digest_of(path) for path in task.data.masks],
            "bags": cache_setting(backbone, self.view),
        }
        self.key = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
        self.folder = folder / "computed" / f"{task.name}-{self.key}"

    @cached_property
    def bags(self) -> Bags:
        """The bags of the images to cluster."""
        return self._embed(self.task.data.images, "image", self.backbone)

    @cached_property
    def normals(self) -> Bags:
        """The bags of the known-normal images."""
        if self.task.data.normals is None:
            raise InputError(f"'{self.task.name}' has no normal images beside its test images.")
        return self._embed(self.task.data.normals, "normal", self.backbone)

    @cached_property
    def holistic(self) -> NDArray[np.float32]:
        """(n_images, dim): the feature maps averaged over the image, unit length."""
        bags = self._embed(self.task.data.images, "image", _WholeImage(self.backbone))
        return bags.patches[:, 0].astype(np.float32)

    @cached_property
    def peers(self) -> Peers:
        """The images against each other, all pairs."""
        n = len(self.task.truth)
        arrays = self._kept("peers", self._compare_peers)
        minima = DirectedMinima(n)
        minima.largest, minima.mean, minima.smallest = (
            arrays["largest"],
            arrays["average"],
            arrays["smallest"],
        )
        return Peers(arrays["mean"], arrays["most"], arrays["least"], minima)

    def peers_with_normals(self) -> NDArray[np.float32]:
        """(n_images, n_patches): as `peers.mean` with the normals as further, unlabelled peers."""

        def compute() -> dict[str, Floats]:
            mean = MeanOverPeers(len(self.bags), self.bags.n_patches)
            self.engine.fold_peers(
                self.bags.patches,
                np.arange(len(self.bags)),
                mean,
                extra=self.normals.patches,
                progress=self.progress,
            )
            return {"mean": mean.result()}

        return self._kept("peers-with-normals", compute)["mean"]

    def normal_scores(self, share: float = 1.0, seed: int = 0) -> NDArray[np.float32]:
        """(n_images, n_patches): distances to the nearest patch of a share of the normals (Eq. 6).

        seed: draws the normals; with one seed, a smaller share is part of a larger one.
        """

        def compute() -> dict[str, Floats]:
            order = np.random.default_rng(seed).permutation(len(self.normals))
            count = max(1, round(share * len(order)))
            chosen = self.normals.take(np.sort(order[:count])) if share < 1 else self.normals
            reference = NormalReference.from_bags(chosen, exact=self.exact, engine=self.engine)
            found = reference.compare(self.bags, progress=self.progress)
            recall = found.recall(0)
            if recall is None:
                return {"scores": found.scores}
            measured = np.array([recall.right, recall.of, recall.n_images])
            return {"scores": found.scores, "recall": measured}

        return self._kept(self.normals_name(share, seed), compute)["scores"]

    def recall_of_normals(self, share: float = 1.0, seed: int = 0) -> Recall | None:
        """What the search behind `normal_scores` found; None if it was exact or not made yet."""
        measured = (read_arrays(self._file_of(self.normals_name(share, seed))) or {}).get("recall")
        return None if measured is None else Recall(*measured.tolist())

    def normals_name(self, share: float = 1.0, seed: int = 0) -> str:
        """The name of what `normal_scores` computes."""
        return f"normals{self.search}" + (f"-{share:g}-{seed}" if share < 1 else "")

    def has(self, name: str) -> bool:
        """Whether a comparison of that name is on the disk already."""
        return self._file_of(name).exists()

    def _file_of(self, name: str) -> Path:
        return self.folder / f"{name}.npz"

    def mean_distances(self) -> NDArray[np.float32]:
        """(n_images, n_images): the "mean-mean" variant, which takes a sweep of its own."""

        def compute() -> dict[str, Floats]:
            return {"distances": self.engine.mean_distances(self.bags, progress=self.progress)}

        return self._kept("mean-distances", compute)["distances"]

    def subset_scores(self, n_seeds: int) -> NDArray[np.float32]:
        """(n_seeds, n_images, n_patches): as `peers.mean`, over the peers of each random subset.

        Images that are not in a subset are scored against it too.
        """

        def compute() -> dict[str, Floats]:
            n = len(self.bags)
            members = np.zeros((n_seeds, n), bool)
            for seed in range(n_seeds):
                members[seed, subset_rows(n, seed)] = True
            sums = _SubsetMeans(members, self.bags.n_patches)
            self.engine.fold_peers(self.bags.patches, np.arange(n), sums, progress=self.progress)
            return {"scores": sums.result()}

        return self._kept(f"subsets-{n_seeds}", compute)["scores"]

    @cached_property
    def mask_shares(self) -> NDArray[np.float32]:
        """(n_images, n_patches): how much of each patch the ground-truth mask covers."""
        rows, columns = self.bags.grid
        masks = self.masks((columns, rows))
        empty = np.zeros((rows, columns), np.float32)
        return np.stack([(empty if mask is None else mask).ravel() for mask in masks])

    def masks(self, size: tuple[int, int]) -> list[NDArray[np.float32] | None]:
        """Each image's mask averaged over the area of each cell of (width, height), in 0..1; None
        where there is none."""
        return [None if path is None else _mask(path, size) for path in self.task.data.masks]

    def picture(self, row: int, side: int) -> NDArray[np.uint8]:
        """(height, width, 3): an image as the backbone sees it. side: of its longer side."""
        source = self.task.data.images.sources[row]
        image = thumbnail(source, self.view, self.backbone.info.input_size, side)
        return np.asarray(image)

    def release(self) -> None:
        """Free the memory; everything is on disk."""
        for name in ("bags", "normals", "peers", "holistic", "mask_shares"):
            self.__dict__.pop(name, None)

    def _compare_peers(self) -> dict[str, Floats]:
        shape = (len(self.bags), self.bags.n_patches)
        mean, most, least = MeanOverPeers(*shape), MaxOverPeers(*shape), MinOverPeers(*shape)
        minima = DirectedMinima(len(self.bags), self.bags.valid)
        statistic = Combined([mean, most, least, minima])
        images = np.arange(len(self.bags))
        self.engine.fold_peers(self.bags.patches, images, statistic, progress=self.progress)
        return {
            "mean": mean.result(),
            "most": most.result(),
            "least": least.result(),
            "largest": minima.largest,
            "average": minima.mean,
            "smallest": minima.smallest,
        }

    def _embed(self, images: ImageSet, kind: str, backbone: Backbone) -> Bags:
        setting = cache_setting(backbone, self.view)
        cache = BagCache(
            self._bags_folder, setting, max_pixels=self.view.max_pixels, memory=BUDGET.limit
        )
        found = embed(images, backbone, self.view, cache=cache, kind=kind, progress=self.progress)
        if len(found.images) != len(images):
            raise unreadable(self.task.name, images, found.images, kind)
        return found.bags

    def _kept(self, name: str, compute: Callable[[], dict[str, Floats]]) -> dict[str, Floats]:
        """Arrays from the folder, or computed and stored there."""
        path = self._file_of(name)
        found = read_arrays(path)
        if found is None:
            found = compute()
            write_arrays(path, found)
        return found


class _WholeImage:
    """A backbone whose maps are averaged to a single patch: the holistic representation."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        digest = hashlib.sha256(f"{backbone.info.sha256} holistic".encode()).hexdigest()
        self.info = replace(backbone.info, sha256=digest, pooling_kernel=1)

    def feature_maps(self, pixels: Floats) -> list[Floats]:
        """Maps (n, channels, 1, 1)."""
        maps = self._backbone.feature_maps(pixels)
        return [one.mean(axis=(2, 3), keepdims=True) for one in maps]


class _SubsetMeans:
    """The mean over the peers of each of several subsets, in one sweep over all pairs."""

    def __init__(self, members: Bools, n_patches: int) -> None:
        self._members = members
        self._sums = np.zeros((*members.shape, n_patches), np.float32)

    def add(self, image: int, peer: int, distances: NDArray[np.float32]) -> None:
        self._sums[self._members[:, peer], image] += distances

    def add_many(self, images: Ints, peers: Ints, distances: Tensor, own: Tensor) -> None:
        counted = own.new_tensor(self._members[:, peers]).to(distances.dtype)
        others = distances.masked_fill(own[:, :, None], 0)
        for row, one in zip(images, others, strict=True):
            self._sums[:, row] = (counted @ one).cpu().numpy()

    def result(self) -> NDArray[np.float32]:
        # An image of a subset is not its own peer.
        others = self._members.sum(axis=1)[:, np.newaxis] - self._members
        means: NDArray[np.float32] = self._sums / np.maximum(others, 1)[..., np.newaxis]
        return means.astype(np.float32)


def _mask(path: Path, size: tuple[int, int]) -> NDArray[np.float32]:
    marked = read_mask(path)
    high, wide = marked.shape
    return cell_means(marked, (0, 0, wide, high), (size[1], size[0]))


def unreadable(name: str, images: ImageSet, used: ImageSet, kind: str = "image") -> InputError:
    """The error for a set with unreadable images. used: those that could be read."""
    first = used.set_aside[len(images.set_aside)]
    return InputError(
        f"'{name}' has {pluralise(len(images) - len(used), kind)} that cannot be read, the first "
        f"'{first.name}': {first.reason}. A table needs all of them."
    )


def read_arrays(path: Path) -> dict[str, Floats] | None:
    """The arrays of a file; None if it is missing or damaged."""
    import zipfile

    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError):
        return None


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a file, for `read_arrays`."""

    def write(file: IO[bytes]) -> None:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # of its other, newer options

    write_whole(path, write, parents=True, durable=False)

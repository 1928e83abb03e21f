"""Sources of bags: files that a backbone embeds, or Bags in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from flawsort.backbones import Backbone
from flawsort.backbones.cache import BagCache, default_cache_folder
from flawsort.backbones.embed import cache_setting, embed, embed_batch
from flawsort.core.errors import InputError
from flawsort.core.records import Bags, ImageSet, Progress
from flawsort.embeddings.method import Method
from flawsort.fitting.memory import USUAL_SIZES, Need, Sizes, must_stream
from flawsort.images.inputs import checked, distinct_rows, image_set_of, used_images
from flawsort.images.view import View
from flawsort.scores.reference import usual_peers


class Source(Protocol):
    """A set of images, and how to get their bags."""

    @property
    def images(self) -> ImageSet:
        """All images that were given, including copies."""

    @property
    def contents(self) -> ImageSet:
        """One image for each content, in the order of content. So neither names, nor the order of
        files, nor copies can change a result."""

    @property
    def setting(self) -> Mapping[str, object]:
        """Everything besides the content that decides a bag, and whether there is one."""

    def batch(self, images: ImageSet) -> tuple[Bags | None, ImageSet]:
        """The bags of the usable images (None if there are none), and these images, with the others
        set aside."""

    def hold(self) -> HeldSource:
        """Load all bags into memory. InputError if no image is usable."""

    def sampled(self, random_state: int, sizes: Sizes) -> Source:
        """The same set, or a sample of it that fits in memory."""

    def prune(self) -> None:
        """Keep the cache, if there is one, within its limit."""


@dataclass(frozen=True)
class FileSource:
    """Files or arrays that a backbone embeds.

    cache: a folder for bags, "auto" for the user's cache folder, None for no cache. kind: "image"
    or "normal", for messages and progress. keep_bags: store the bags of batches in the user's
    cache, where the bags of a large set would replace everything else.
    """

    images: ImageSet
    backbone: Backbone
    view: View
    cache: str | Path | None = None
    progress: Progress | None = None
    kind: str = "image"
    keep_bags: bool = False

    @cached_property
    def contents(self) -> ImageSet:
        return self.images.take(distinct_rows(self.images))

    @property
    def cache_folder(self) -> Path | None:
        if self.cache is None:
            return None
        return default_cache_folder() if self.cache == "auto" else Path(self.cache)

    @property
    def bag_setting(self) -> dict[str, object]:
        """Everything that decides a bag besides the image's content."""
        return cache_setting(self.backbone, self.view)

    @property
    def setting(self) -> dict[str, object]:
        return {**self.bag_setting, "max_pixels": self.view.max_pixels}

    def batch(self, images: ImageSet) -> tuple[Bags | None, ImageSet]:
        cache = None if self.cache == "auto" and not self.keep_bags else self._bag_cache()
        return embed_batch(images, self.backbone, self.view, cache)

    def hold(self) -> HeldSource:
        embedded = embed(
            self.contents,
            self.backbone,
            self.view,
            cache=self._bag_cache(),
            kind=self.kind,
            progress=self.progress,
        )
        return HeldSource(used_images(self.images, embedded.images), embedded.images, embedded.bags)

    def sampled(self, random_state: int, sizes: Sizes) -> FileSource:
        probe = self.first_bag()
        if probe is None:  # `hold` says why
            return self
        most = max(sizes.min_normals, int(sizes.in_memory // probe.patches.nbytes))
        order = np.random.default_rng(random_state).permutation(len(self.contents))
        chosen = {self.contents.digests[row] for row in order[:most]}
        rows = [row for row, digest in enumerate(self.images.digests) if digest in chosen]
        return replace(self, images=self.images.take(rows))

    def first_bag(self) -> Bags | None:
        """The bag of the first usable image, to measure its size."""
        for row in range(len(self.images)):
            probe, _ = embed_batch(self.images.take([row]), self.backbone, self.view)
            if probe is not None:
                return probe
        return None

    def prune(self) -> None:
        cache = self._bag_cache()
        if cache:
            cache.prune()

    def _bag_cache(self) -> BagCache | None:
        folder = self.cache_folder
        if folder is None:
            return None
        return BagCache(folder, self.bag_setting, max_pixels=self.view.max_pixels)


@dataclass(frozen=True)
class HeldSource:
    """Bags in memory. bags: of the contents, in the same order."""

    images: ImageSet
    contents: ImageSet
    bags: Bags

    @classmethod
    def of(cls, bags: Bags) -> HeldSource:
        """Check Bags that a caller gave."""
        bags = checked(bags)
        images = image_set_of(bags)
        rows = distinct_rows(images)
        return cls(images, images.take(rows), bags.take(rows))

    @property
    def setting(self) -> dict[str, object]:
        return {}

    def batch(self, images: ImageSet) -> tuple[Bags | None, ImageSet]:
        return self.bags.take([self._row_of[digest] for digest in images.digests]), images

    def hold(self) -> HeldSource:
        return self

    def sampled(self, random_state: int, sizes: Sizes) -> HeldSource:
        return self

    def prune(self) -> None: ...

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {digest: row for row, digest in enumerate(self.contents.digests)}


def held_sources(bags: Bags, normals: Bags | None) -> tuple[HeldSource, HeldSource | None]:
    """Check images and normals that a caller gave as Bags."""
    if normals is not None and normals.patches.shape[1:] != bags.patches.shape[1:]:
        raise InputError(
            "Images and normals must have the same number of patches and dimensions. Got "
            f"{bags.patches.shape[1:]} and {normals.patches.shape[1:]}."
        )
    return HeldSource.of(bags), None if normals is None else HeldSource.of(normals)


def streams(
    source: FileSource,
    normals: FileSource | None,
    method: Method,
    limit: int | None,
    sizes: Sizes = USUAL_SIZES,
) -> bool:
    """Whether a set must be streamed, by the size of its first bag. limit: in bytes."""
    probe = source.first_bag()
    if probe is None:  # the reasons are given when all images are embedded
        return False
    n = len(source.contents)
    peers = method.n_peers or usual_peers(n, sizes.peers)
    compared = normals is None and method.weights != "uniform"
    all_pairs = compared and (peers == "all" or peers >= n)
    n_normals = 0 if normals is None else len(normals.contents)
    sampled = int(peers) if compared and peers != "all" else 0
    need = Need(n, n_normals, probe.n_patches, probe.dim, sampled, sizes)
    return must_stream(need, limit, all_pairs=all_pairs)

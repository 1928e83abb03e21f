"""Files to bags for one run: with its backbone, its view and its cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones import Backbone
from flawsort.backbones.cache import BagCache, default_cache_folder
from flawsort.backbones.embed import Embedded, cache_setting, embed, embed_batch
from flawsort.core.errors import InputError
from flawsort.core.records import Bags, ImageSet, Progress
from flawsort.embeddings.method import Method
from flawsort.fitting.memory import IN_MEMORY, Need, shall_stream
from flawsort.images.inputs import checked, content_rows, distinct_rows, image_set_of, used_images
from flawsort.images.view import View
from flawsort.scores.reference import usual_peers

# However large a bag is, a sample of the normals has so many.
MIN_SAMPLED_NORMALS = 64


@dataclass(frozen=True)
class TakenIn:
    """A set with all its bags. bags, known: of distinct contents, of images and of normals.
    images, normals: those that could be used. rows: (n_images,), whose bag each image has."""

    bags: Bags
    images: ImageSet
    rows: NDArray[np.int64]
    known: Bags | None
    normals: ImageSet | None


@dataclass(frozen=True)
class Intake:
    """cache: a folder, "auto" for the user's own, None for none."""

    backbone: Backbone
    view: View
    cache: str | Path | None
    progress: Progress | None

    @property
    def cache_folder(self) -> Path | None:
        if self.cache is None:
            return None
        return default_cache_folder() if self.cache == "auto" else Path(self.cache)

    @property
    def setting(self) -> dict[str, object]:
        """All that decides a bag besides the image's content."""
        return cache_setting(self.backbone, self.view)

    def embed(self, images: ImageSet, kind: str = "image") -> Embedded:
        """The bags of all images that can be used."""
        return embed(
            images,
            self.backbone,
            self.view,
            cache=self._bag_cache(),
            kind=kind,
            progress=self.progress,
        )

    def take_in(self, images: ImageSet, normals: ImageSet | None) -> TakenIn:
        """All images and normals, each content once, in the order of content."""
        embedded = self.embed(images.take(distinct_rows(images)))
        used = used_images(images, embedded.images)
        rows = content_rows(used, embedded.images)
        if normals is None:
            return TakenIn(embedded.bags, used, rows, None, None)
        known = self.embed(normals.take(distinct_rows(normals)), "normal")
        return TakenIn(embedded.bags, used, rows, known.bags, used_images(normals, known.images))

    def batch(self, images: ImageSet, *, keep: bool = False) -> tuple[Bags | None, ImageSet]:
        """A few of many images. Their bags are only kept where a cache was asked for by name,
        unless told to keep them, and then they shall be pruned."""
        cache = None if self.cache == "auto" and not keep else self._bag_cache()
        return embed_batch(images, self.backbone, self.view, cache)

    def prune(self) -> None:
        """Keep the cache within its limit."""
        cache = self._bag_cache()
        if cache:
            cache.prune()

    def streams(
        self,
        images: ImageSet,
        normals: ImageSet | None,
        method: Method,
        limit: int | None,
    ) -> bool:
        """Whether a set is too large for memory, by the size of its first bag."""
        probe = self._first_bag(images)
        if probe is None:  # said with reasons when all are embedded
            return False
        n = len(set(images.digests))
        peers = method.n_peers or usual_peers(n)
        compared = normals is None and method.weights != "uniform"
        everybody = compared and (peers == "all" or peers >= n)
        n_normals = 0 if normals is None else len(set(normals.digests))
        sampled = int(peers) if compared and peers != "all" else 0
        need = Need(n, n_normals, probe.n_patches, probe.dim, sampled)
        return shall_stream(need, limit, everybody=everybody)

    def some_normals(self, normals: ImageSet, random_state: int) -> tuple[Bags, ImageSet, int]:
        """The bags of normal images, or of a sample as large as may be in memory at once; the
        images they are of; and of how many that could have been."""
        rows = distinct_rows(normals)
        probe = self._first_bag(normals.take(rows))
        most = len(rows)
        if probe is not None:
            most = max(MIN_SAMPLED_NORMALS, int(IN_MEMORY // probe.patches.nbytes))
        order = np.random.default_rng(random_state).permutation(len(rows))
        some = normals.take(rows[np.sort(order[:most])])
        known = self.embed(some, "normal")
        chosen = set(some.digests)
        copies = normals.take([i for i, one in enumerate(normals.digests) if one in chosen])
        return known.bags, used_images(copies, known.images), len(rows)

    def _first_bag(self, images: ImageSet) -> Bags | None:
        """The bag of the first image that can be used, to see how large one is."""
        for row in range(len(images)):
            probe, _ = embed_batch(images.take([row]), self.backbone, self.view)
            if probe is not None:
                return probe
        return None

    def _bag_cache(self) -> BagCache | None:
        folder = self.cache_folder
        if folder is None:
            return None
        return BagCache(folder, self.setting, max_pixels=self.view.max_pixels)


def take_in_bags(bags: Bags, normals: Bags | None) -> TakenIn:
    """The same of bags from outside, checked."""
    if normals is not None and normals.patches.shape[1:] != bags.patches.shape[1:]:
        raise InputError(
            "Images and normals must have the same number of patches and dimensions. Got "
            f"{bags.patches.shape[1:]} and {normals.patches.shape[1:]}."
        )
    bags = checked(bags)
    images = image_set_of(bags)
    distinct = distinct_rows(images)
    rows = content_rows(images, images.take(distinct))
    if normals is None:
        return TakenIn(bags.take(distinct), images, rows, None, None)
    normals = checked(normals)
    names = image_set_of(normals)
    return TakenIn(bags.take(distinct), images, rows, normals.take(distinct_rows(names)), names)

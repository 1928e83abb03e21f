"""Sources of bags: files that a backbone embeds, or Bags in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from flawsort.backbones import Backbone
from flawsort.backbones.cache import BagCache, default_cache_folder
from flawsort.backbones.embed import Embedded, cache_setting, embed, embed_batch, joined_grid
from flawsort.core.errors import InputError
from flawsort.core.records import Bags, ImageSet, Progress
from flawsort.embeddings.method import Method
from flawsort.fitting.memory import USUAL_SIZES, Need, Sizes, pair_bytes
from flawsort.images.budget import BUDGET
from flawsort.images.inputs import checked, distinct_rows, image_set_of, used_images
from flawsort.images.view import View
from flawsort.scores.reference import usual_peers

# (n_patches, dim) of a bag in each view.
Shapes: TypeAlias = tuple[tuple[int, int], ...]


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
    """Files or arrays that backbones embed, one for each view.

    cache: a folder for bags, "auto" for the user's cache folder, None for no cache. kind: "image"
    or "normal", for messages and progress. keep_bags: store the bags of batches in the user's
    cache, where the bags of a large set would replace everything else.
    """

    images: ImageSet
    backbones: tuple[Backbone, ...]
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
        return {"views": [cache_setting(backbone, self.view) for backbone in self.backbones]}

    @property
    def setting(self) -> dict[str, object]:
        limits = {"max_pixels": self.view.max_pixels, "decoding": BUDGET.given}
        return {**self.bag_setting, **limits}

    def batch(self, images: ImageSet) -> tuple[Bags | None, ImageSet]:
        keep = self.cache != "auto" or self.keep_bags
        caches = [self._bag_cache(backbone) if keep else None for backbone in self.backbones]
        return embed_views(images, self.backbones, self.view, caches)

    def hold(self) -> HeldSource:
        contents = self.contents
        found: list[Embedded] = []
        for number, backbone in enumerate(self.backbones, start=1):
            several = f", view {number} of {len(self.backbones)}"
            embedded = embed(
                contents,
                backbone,
                self.view,
                cache=self._bag_cache(backbone),
                kind=self.kind,
                which=several if len(self.backbones) > 1 else "",
                progress=self.progress,
            )
            contents = embedded.images
            found.append(embedded)
        bags = _beside([one.bags for one in found], [one.images for one in found], contents)
        return HeldSource(used_images(self.images, contents), contents, bags)

    def sampled(self, random_state: int, sizes: Sizes) -> FileSource:
        shapes = self.bag_shapes()
        if shapes is None:  # `hold` says why
            return self
        most = max(sizes.min_normals, sizes.in_memory // bag_bytes(shapes))
        order = np.random.default_rng(random_state).permutation(len(self.contents))
        chosen = {self.contents.digests[row] for row in order[:most]}
        rows = [row for row, digest in enumerate(self.images.digests) if digest in chosen]
        return replace(self, images=self.images.take(rows))

    def bag_shapes(self) -> Shapes | None:
        """(n_patches, dim) of a bag in each view; None if no image is usable. Of a photo in tiles
        only one tile is embedded."""
        whole = replace(self, view=replace(self.view, tiles=(1, 1)))
        probe = whole.first_bag()
        if probe is None:
            return None
        shapes = []
        for one, backbone in zip(probe.views, self.backbones, strict=True):
            size = backbone.info.input_size
            rows, columns = joined_grid(one.grid, self.view, size)
            shapes.append((rows * columns, one.dim))
        return tuple(shapes)

    def first_bag(self) -> Bags | None:
        """The bag of the first usable image, to measure its size."""
        for row in range(len(self.images)):
            probe, _ = embed_views(self.images.take([row]), self.backbones, self.view)
            if probe is not None:
                return probe
        return None

    def prune(self) -> None:
        cache = self._bag_cache(self.backbones[0])  # one limit serves all views
        if cache:
            cache.prune()

    def _bag_cache(self, backbone: Backbone) -> BagCache | None:
        folder = self.cache_folder
        if folder is None:
            return None
        setting = cache_setting(backbone, self.view)
        memory = BUDGET.limit
        return BagCache(folder, setting, max_pixels=self.view.max_pixels, memory=memory)


def embed_views(
    images: ImageSet,
    backbones: Sequence[Backbone],
    view: View,
    caches: Sequence[BagCache | None] | None = None,
) -> tuple[Bags | None, ImageSet]:
    """The bags of a batch in all views, of the images that are usable in each (None if there are
    none), and these images. caches: one for each backbone."""
    found: list[Bags] = []
    usable: list[ImageSet] = []
    for backbone, cache in zip(backbones, caches or [None] * len(backbones), strict=True):
        bags, images = embed_batch(images, backbone, view, cache)
        if bags is None:
            return None, images
        found.append(bags)
        usable.append(images)
    return _beside(found, usable, images), images


def _beside(found: list[Bags], usable: list[ImageSet], images: ImageSet) -> Bags:
    """The bags of several views of the same images. usable: the images of each; an image that fails
    in one view is left out of all."""
    matched = []
    for bags, own in zip(found, usable, strict=True):
        if len(own) > len(images):
            row_of = {digest: row for row, digest in enumerate(own.digests)}
            bags = bags.take([row_of[digest] for digest in images.digests])
        matched.append(bags)
    return replace(matched[0], beside=tuple(matched[1:])) if len(matched) > 1 else matched[0]


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
    if normals is not None and normals.shapes != bags.shapes:
        raise InputError(
            "Images and normals must have the same number of patches and dimensions in every view. "
            f"Got {_listed(bags.shapes)} and {_listed(normals.shapes)}."
        )
    return HeldSource.of(bags), None if normals is None else HeldSource.of(normals)


def needed(
    source: FileSource,
    normals: FileSource | None,
    method: Method,
    sizes: Sizes = USUAL_SIZES,
    *,
    decoding: int = 0,
) -> tuple[Need, bool] | None:
    """The memory that a set needs, by the size of its first bag, and whether all its images are
    compared with each other; None if no image is usable. decoding: see Need."""
    shapes = source.bag_shapes()
    if shapes is None:  # the reasons are given when all images are embedded
        return None
    if source.view.layout != (1, 1):
        sizes = sizes.for_photos(bag_bytes(shapes))
    n = len(source.contents)
    peers = method.n_peers or usual_peers(n, sizes.peers)
    compared = normals is None and method.compares
    all_pairs = method.is_held or (compared and (peers == "all" or peers >= n))
    n_normals = 0 if normals is None else len(normals.contents)
    sampled = int(peers) if compared and peers != "all" else 0
    pair, held = pair_bytes(method), method.held_for
    return Need(n, n_normals, shapes, sampled, sizes, decoding, pair, held), all_pairs


def bag_bytes(shapes: Shapes) -> int:
    """The bytes of a bag with these shapes."""
    return sum(2 * n_patches * dim for n_patches, dim in shapes)


def _listed(shapes: Sequence[tuple[int, int]]) -> str:
    return ", ".join(map(str, shapes))

"""Embed an ImageSet with a backbone into Bags: in batches, in threads, resumable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones import Backbone
from flawsort.backbones.cache import Bag, BagCache
from flawsort.backbones.float16 import to_half
from flawsort.backbones.patches import patch_embeddings
from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bags, Bools, ImageSet, Progress, SetAside, Source
from flawsort.core.threads import in_threads, single_threaded_blas
from flawsort.images.view import Pixels, UnreadableImage, View, decode

# Frames per batch, fewer if they have more pixels than this together. Each thread works on one
# batch; larger ones do not fit the processor's cache. Backbones on a GPU have a larger
# `batch_frames` of their own.
BATCH_FRAMES = 2
BATCH_PIXELS = 2 * 256 * 256
# The number of files that are read before a thread is free to decode them.
READ_AHEAD = 8
# A patch is valid if at least this share of it lies inside the region of interest, not on padding.
MIN_INSIDE = 0.5


@dataclass(frozen=True)
class Embedded:
    """The bags of the usable images, and those images, in the same order."""

    bags: Bags
    images: ImageSet


@dataclass
class _Collected:
    """Bags as they arrive, in one array that is allocated with the shape of the first one."""

    n_images: int
    patches: NDArray[np.float16] | None = None
    grid: tuple[int, int] = (0, 0)
    valid: Bools | None = None
    bad: dict[str, str] = field(default_factory=dict)

    def put(self, rows: Sequence[int], bag: Bag) -> None:
        if self.patches is None:
            self.patches = np.empty((self.n_images, *bag.patches.shape), np.float16)
            self.grid = bag.grid
        if bag.valid is not None and self.valid is None:
            self.valid = np.ones((self.n_images, len(bag.patches)), bool)
        for row in rows:
            self.patches[row] = bag.patches
            if self.valid is not None:
                self.valid[row] = True if bag.valid is None else bag.valid


@dataclass(frozen=True)
class _Embedder:
    """Turns pixels into bags. batch_frames: the frames that the backbone gets at a time."""

    backbone: Backbone
    view: View
    batch_frames: int

    @property
    def images_per_batch(self) -> int:
        return max(1, self.batch_frames // (self.view.tiles[0] * self.view.tiles[1]))

    def bags(self, loaded: Sequence[Pixels | str]) -> list[Bag | str]:
        """The bag of each image, or the reason why it has none."""
        usable = [pixels for pixels in loaded if isinstance(pixels, Pixels)]
        if not usable:
            return [pixels for pixels in loaded if isinstance(pixels, str)]
        frames = np.concatenate([pixels.frames for pixels in usable])
        halves = []
        for start in range(0, len(frames), self.batch_frames):
            maps = self.backbone.feature_maps(frames[start : start + self.batch_frames])
            info = self.backbone.info
            singles, grid = patch_embeddings(maps, info.pooling_kernel, info.grid)
            halves.append(to_half(singles))
        patches = halves[0] if len(halves) == 1 else np.concatenate(halves)
        per_image = patches.reshape(len(usable), -1, *patches.shape[1:])
        bags = iter(
            _one_bag(tiles, grid, self.view.tiles, pixels.inside)
            for tiles, pixels in zip(per_image, usable, strict=True)
        )
        return [pixels if isinstance(pixels, str) else next(bags) for pixels in loaded]


def frames_at_once(backbone: Backbone) -> int:
    """The number of frames that a backbone gets at a time."""
    suited: int | None = getattr(backbone, "batch_frames", None)
    if suited is not None:
        return suited
    height, width = backbone.info.input_size
    return min(BATCH_FRAMES, max(1, BATCH_PIXELS // (height * width)))


def cache_setting(backbone: Backbone, view: View) -> dict[str, object]:
    """Everything that determines a bag besides the image's content."""
    described = view.describe()
    del described["max_pixels"]  # it does not change a bag; the cache checks it
    return {
        "backbone": backbone.info.sha256,
        "input_size": list(backbone.info.input_size),
        "pooling": backbone.info.pooling_kernel,
        "grid": backbone.info.grid,
        "view": described,
    }


def embed(
    images: ImageSet,
    backbone: Backbone,
    view: View,
    *,
    cache: BagCache | None = None,
    kind: str = "image",
    which: str = "",
    batch_frames: int | None = None,
    progress: Progress | None = None,
) -> Embedded:
    """Embed each distinct content once, and set unusable files aside.

    Bags in the cache are not computed again, and each new bag is stored at once, so an interrupted
    run resumes where it stopped. kind: the name of the images in messages and progress, "image" or
    "normal". which: the view, for progress. batch_frames: the frames that the backbone gets at a
    time; None for as many as suit it.
    """
    embedder = _Embedder(backbone, view, batch_frames or frames_at_once(backbone))
    stage = ("embedding" if kind == "image" else f"embedding {kind}s") + which
    collected = _collect(images, embedder, cache, stage, progress)
    if cache:
        cache.prune()
    if collected.patches is None:
        raise nothing_usable(_reasons(collected, images), kind)
    return Embedded(*_finish(collected, images))


def embed_batch(
    images: ImageSet, backbone: Backbone, view: View, cache: BagCache | None = None
) -> tuple[Bags | None, ImageSet]:
    """Like `embed`, for one batch of a large set. Returns None for the bags if no image is
    usable."""
    embedder = _Embedder(backbone, view, frames_at_once(backbone))
    collected = _collect(images, embedder, cache, "embedding", None)
    if collected.patches is None:
        bad = zip(images.names, images.digests, strict=True)
        return None, images.without([SetAside(name, collected.bad[d]) for name, d in bad])
    return _finish(collected, images)


def _collect(
    images: ImageSet,
    embedder: _Embedder,
    cache: BagCache | None,
    stage: str,
    progress: Progress | None,
) -> _Collected:
    """The bags of all images, from the cache or newly computed, and the reasons for failures."""
    rows_of: dict[str, list[int]] = {}
    for row, digest in enumerate(images.digests):
        rows_of.setdefault(digest, []).append(row)
    collected = _Collected(len(images))
    missing = _take_cached(rows_of, cache, collected)
    done = len(rows_of) - len(missing)
    if progress:
        progress(stage, done, len(rows_of))
    sources = [images.sources[rows_of[digest][0]] for digest in missing]
    for digests, bags in _embed_missing(missing, sources, embedder, cache):
        for digest, bag in zip(digests, bags, strict=True):
            if isinstance(bag, Bag):
                collected.put(rows_of[digest], bag)
            else:
                collected.bad[digest] = bag
        done += len(digests)
        if progress:
            progress(stage, done, len(rows_of))
    return collected


def _take_cached(
    rows_of: dict[str, list[int]], cache: BagCache | None, collected: _Collected
) -> list[str]:
    """Collect the bags that are in the cache. Returns the digests of the others."""
    if cache is None:
        return list(rows_of)
    missing = []
    for digest, bag in zip(rows_of, in_threads(cache.load, rows_of), strict=True):
        if bag is None:
            missing.append(digest)
        else:
            collected.put(rows_of[digest], bag)
    return missing


def _embed_missing(
    digests: list[str],
    sources: list[Source],
    embedder: _Embedder,
    cache: BagCache | None,
) -> Iterator[tuple[list[str], list[Bag | str]]]:
    """Batches of digests, each digest with its bag or the reason why it has none.

    One thread reads files ahead, so that no processor waits for the disk. Each batch is then
    processed by one thread, which keeps it in that processor's cache.
    """
    per_batch = embedder.images_per_batch
    view, size = embedder.view, embedder.backbone.info.input_size

    def work(
        batch: tuple[list[str], list[NDArray[Any] | bytes | str]],
    ) -> tuple[list[str], list[Bag | str]]:
        names, contents = batch
        loaded = [_pixels(content, view, size) for content in contents]
        bags = embedder.bags(loaded)
        for name, bag in zip(names, bags, strict=True):
            if cache and isinstance(bag, Bag):
                cache.store(name, bag)
        return names, bags

    contents = in_threads(_content, zip(sources, digests, strict=True), threads=1, ahead=READ_AHEAD)
    batches = (
        (digests[start : start + per_batch], list(islice(contents, per_batch)))
        for start in range(0, len(digests), per_batch)
    )
    with single_threaded_blas():
        yield from in_threads(work, batches)


def _content(entry: tuple[Source, str]) -> NDArray[Any] | bytes | str:
    """The array, or the content of the file, or the reason why it cannot be used."""
    source, digest = entry
    if isinstance(source, np.ndarray):
        return source
    try:
        content = source.read_bytes()
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    # The cache is keyed by content, so the decoded bytes must be those that were hashed.
    if hashlib.sha256(content).hexdigest() != digest:
        return "it changed while it was being read"
    return content


def _pixels(content: NDArray[Any] | bytes | str, view: View, size: tuple[int, int]) -> Pixels | str:
    if isinstance(content, str):
        return content
    try:
        return decode(content, view, size)
    except (UnreadableImage, OptionError) as error:
        return str(error)


def _one_bag(
    tiles: NDArray[np.float16],
    grid: tuple[int, int],
    layout: tuple[int, int],
    inside: Bools | None,
) -> Bag | str:
    """Join the tiles (n_tiles, n_patches, dim) of an image into one bag on one grid."""
    (rows, cols), (down, across), dim = grid, layout, tiles.shape[2]
    patches = tiles.reshape(down, across, rows, cols, dim).transpose(0, 2, 1, 3, 4)
    patches = np.ascontiguousarray(patches).reshape(-1, dim)
    whole = (down * rows, across * cols)
    if inside is None:
        return Bag(patches, whole)
    valid = _share_inside(inside, whole) >= MIN_INSIDE
    if not valid.any():
        return "nothing of it lies inside the region of interest"
    patches[~valid] = patches[np.argmax(valid)]
    return Bag(patches, whole, valid)


def _share_inside(inside: Bools, grid: tuple[int, int]) -> NDArray[np.float64]:
    """(n_patches,): the share of each patch's pixels that are inside."""
    share = inside.astype(np.float64)
    for axis, count in enumerate(grid):
        edges = np.round(np.linspace(0, inside.shape[axis], count + 1)).astype(int)
        sums = np.add.reduceat(share, edges[:-1], axis=axis)
        share = sums / np.expand_dims(np.diff(edges), 1 - axis)
    return share.ravel()


def _finish(collected: _Collected, images: ImageSet) -> tuple[Bags, ImageSet]:
    """Remove the rows of unusable files, in place, because two copies may not fit in memory."""
    bad = [
        SetAside(name, collected.bad[digest])
        for name, digest in zip(images.names, images.digests, strict=True)
        if digest in collected.bad
    ]
    patches, valid = collected.patches, collected.valid
    assert patches is not None
    good = [row for row, digest in enumerate(images.digests) if digest not in collected.bad]
    if bad:
        for to, row in enumerate(good):
            patches[to] = patches[row]
        patches = patches[: len(good)]
        valid = None if valid is None else valid[good]
    return Bags(patches, collected.grid, valid), images.without(bad)


def nothing_usable(aside: Sequence[SetAside], kind: str = "image") -> InputError:
    """The error for a set without usable images. aside: the images that were set aside."""
    if len(aside) == 1:
        return InputError(f"No usable {kind}: '{aside[0].name}' was set aside: {aside[0].reason}.")
    first = f" The first, '{aside[0].name}': {aside[0].reason}." if aside else ""
    return InputError(f"No usable {kind}: all {len(aside):,} were set aside.{first}")


def _reasons(collected: _Collected, images: ImageSet) -> list[SetAside]:
    """All images that were set aside when none could be embedded: now, and then before."""
    now = zip(images.names, images.digests, strict=True)
    return [SetAside(name, collected.bad[digest]) for name, digest in now] + list(images.set_aside)

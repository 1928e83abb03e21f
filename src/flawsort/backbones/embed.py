"""Embed an ImageSet with a backbone into Bags: in batches, in threads, resumable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones import Backbone
from flawsort.backbones.cache import Bag, BagCache
from flawsort.backbones.float16 import to_half
from flawsort.backbones.patches import patch_embeddings
from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import (
    Bags,
    Bools,
    ImageSet,
    Progress,
    RemoteFile,
    SetAside,
    Source,
)
from flawsort.core.threads import blocks, in_threads, n_threads, single_threaded_blas
from flawsort.images.budget import BUDGET
from flawsort.images.view import Pixels, UnreadableImage, View, decode

# Frames per batch, fewer if they have more pixels than this together. Each thread works on one
# batch; larger ones do not fit the processor's cache. Backbones on a GPU have a larger
# `batch_frames` of their own.
BATCH_FRAMES = 2
BATCH_PIXELS = 2 * 256 * 256
# The number of files that are read before a thread is free to decode them, and the share of the
# budget for decoding that all of them together may take. Larger files, and those of more than so
# many bytes, are read by that thread.
READ_AHEAD = 8
READ_SHARE = 0.25
LARGEST_READ_AHEAD = 2**26
# Batches for each thread that wait or are in work.
BATCHES_AHEAD = 2
# A patch is valid if at least this share of it lies inside the region of interest, not on padding.
MIN_INSIDE = 0.5


# What is decoded: an array, the content of a file, or a file that is not read yet.
Content: TypeAlias = NDArray[Any] | bytes | Path | RemoteFile


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
        return max(1, self.batch_frames // (self.view.layout[0] * self.view.layout[1]))

    def bags(self, loaded: Sequence[Pixels | str]) -> list[Bag | str]:
        """The bag of each image, or the reason why it has none."""
        usable = [pixels for pixels in loaded if isinstance(pixels, Pixels)]
        if not usable:
            return [pixels for pixels in loaded if isinstance(pixels, str)]
        info = self.backbone.info
        halves = []
        for frames in self._frames(usable):
            maps = self.backbone.feature_maps(frames)
            singles, grid = patch_embeddings(maps, info.pooling_kernel, info.grid)
            halves.append(to_half(singles))
        patches = halves[0] if len(halves) == 1 else np.concatenate(halves)
        per_image = patches.reshape(len(usable), -1, *patches.shape[1:])
        bags = iter(
            _one_bag(tiles, grid, self.view, info.input_size, pixels.inside)
            for tiles, pixels in zip(per_image, usable, strict=True)
        )
        return [pixels if isinstance(pixels, str) else next(bags) for pixels in loaded]

    def _frames(self, usable: Sequence[Pixels]) -> Iterator[NDArray[np.float32]]:
        """The frames of all images, as many as the backbone gets at a time. Those of one large
        photo are made as they are needed."""
        if len(usable) == 1:
            (pixels,) = usable
            for block in blocks(len(pixels.corners), self.batch_frames):
                yield pixels.some(block.start, block.stop)
            return
        frames = np.concatenate([pixels.frames for pixels in usable])
        for block in blocks(len(frames), self.batch_frames):
            yield frames[block]


def frames_at_once(backbone: Backbone) -> int:
    """The number of frames that a backbone gets at a time."""
    suited: int | None = getattr(backbone, "batch_frames", None)
    if suited is not None:
        return suited
    height, width = backbone.info.input_size
    return min(BATCH_FRAMES, max(1, BATCH_PIXELS // (height * width)))


def joined_grid(grid: tuple[int, int], view: View, size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the patches of all tiles together. grid: of one tile. size: of the
    backbone's input."""
    rows, columns = (
        round(cells * canvas / side)
        for cells, canvas, side in zip(grid, view.canvas(size), size, strict=True)
    )
    return rows, columns


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
    return Embedded(*_finish(collected, images, embedder))


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
    return _finish(collected, images, embedder)


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

    One thread reads files ahead, so that no processor waits for the disk; large ones are read when
    the budget for decoding has room for them. Each batch is then processed by one thread, which
    keeps it in that processor's cache.
    """
    per_batch = embedder.images_per_batch
    view, size = embedder.view, embedder.backbone.info.input_size
    waiting = READ_AHEAD + BATCHES_AHEAD * n_threads() * per_batch
    most = min(LARGEST_READ_AHEAD, int(READ_SHARE * BUDGET.limit) // waiting)

    def work(batch: tuple[list[str], list[Content | str]]) -> tuple[list[str], list[Bag | str]]:
        names, contents = batch
        loaded = [
            _pixels(content, view, size, name)
            for name, content in zip(names, contents, strict=True)
        ]
        needs = [0 if isinstance(one, str) else one.needs for one in loaded]
        bags = [
            replace(bag, needs=need) if isinstance(bag, Bag) else bag
            for bag, need in zip(embedder.bags(loaded), needs, strict=True)
        ]
        for name, bag in zip(names, bags, strict=True):
            if cache and isinstance(bag, Bag):
                cache.store(name, bag)
        return names, bags

    contents = in_threads(
        lambda source: _content(source, most), sources, threads=1, ahead=READ_AHEAD
    )
    batches = (
        (digests[start : start + per_batch], list(islice(contents, per_batch)))
        for start in range(0, len(digests), per_batch)
    )
    with single_threaded_blas():
        yield from in_threads(work, batches, ahead=BATCHES_AHEAD)


def _content(source: Source, most: int) -> Content | str:
    """The array, or the content of a file of at most this many bytes, or the larger file itself,
    or the reason why it cannot be used."""
    if isinstance(source, np.ndarray):
        return source
    try:
        with source.open() if isinstance(source, RemoteFile) else source.open("rb") as file:
            content = file.read(most + 1)
    except (OSError, MemoryError) as error:
        return _unreadable(error)
    return content if len(content) <= most else source


def _unreadable(error: OSError | MemoryError) -> str:
    reason = getattr(error, "strerror", None) or str(error) or "there is not enough memory"
    return f"cannot be read: {reason}"


def _pixels(content: Content | str, view: View, size: tuple[int, int], digest: str) -> Pixels | str:
    """digest: the cache is keyed by content, so the decoded bytes must be those that were hashed.
    That of an array is of its values."""
    if isinstance(content, str):
        return content
    known = None if isinstance(content, np.ndarray) else digest
    try:
        return decode(content, view, size, digest=known)
    except (UnreadableImage, OptionError) as error:
        return str(error)
    except (OSError, MemoryError) as error:
        return _unreadable(error)


def _one_bag(
    tiles: NDArray[np.float16],
    grid: tuple[int, int],
    view: View,
    size: tuple[int, int],
    inside: Bools | None,
) -> Bag | str:
    """Join the tiles (n_tiles, n_patches, dim) of an image into one bag on one grid. size: of the
    backbone's input."""
    down, across = (
        _joined(*axis)
        for axis in zip(view.layout, view.steps(size), view.canvas(size), size, grid, strict=True)
    )
    tile = down[0][:, None] * view.layout[1] + across[0]
    patches = tiles[tile, down[1][:, None] * grid[1] + across[1]].reshape(-1, tiles.shape[2])
    whole = (len(down[0]), len(across[0]))
    if inside is None:
        return Bag(patches, whole)
    valid = _share_inside(inside, whole) >= MIN_INSIDE
    if not valid.any():
        return "nothing of it lies inside the region of interest"
    patches[~valid] = patches[np.argmax(valid)]
    return Bag(patches, whole, valid)


def _joined(
    n_tiles: int, step: int, canvas: int, side: int, cells: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each cell of the joined grid, along one axis, the tile that it is taken from, and its
    cell there: that of the tile whose middle is nearest, so that borders are left out where tiles
    overlap. step, canvas, side: in pixels, from tile to tile, of all tiles and of one. cells: of a
    tile."""
    count = round(cells * canvas / side)
    middles = (np.arange(count) + 0.5) * canvas / count
    tile = np.clip(np.rint((middles - side / 2) / step), 0, n_tiles - 1).astype(np.int64)
    cell = np.floor((middles - tile * step) * cells / side).astype(np.int64)
    return tile, np.clip(cell, 0, cells - 1)


def _tile_of(grid: tuple[int, int], view: View, size: tuple[int, int]) -> tuple[int, int] | None:
    """Rows and columns of the patches of one tile; None if there is only one. grid: of all."""
    if view.layout == (1, 1):
        return None
    rows, columns = (
        round(cells * side / canvas)
        for cells, side, canvas in zip(grid, size, view.canvas(size), strict=True)
    )
    return rows, columns


def _share_inside(inside: Bools, grid: tuple[int, int]) -> NDArray[np.float64]:
    """(n_patches,): the share of each patch's pixels that are inside."""
    share = inside.astype(np.float64)
    for axis, count in enumerate(grid):
        edges = np.round(np.linspace(0, inside.shape[axis], count + 1)).astype(int)
        sums = np.add.reduceat(share, edges[:-1], axis=axis)
        share = sums / np.expand_dims(np.diff(edges), 1 - axis)
    return share.ravel()


def _finish(collected: _Collected, images: ImageSet, embedder: _Embedder) -> tuple[Bags, ImageSet]:
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
    tile = _tile_of(collected.grid, embedder.view, embedder.backbone.info.input_size)
    return Bags(patches, collected.grid, valid, tile=tile), images.without(bad)


class NothingUsable(InputError):  # noqa: N818
    """None of the images of a set can be used. set_aside: all of them."""

    def __init__(self, problem: str, set_aside: Sequence[SetAside]) -> None:
        super().__init__(problem)
        self.set_aside = tuple(set_aside)


def nothing_usable(aside: Sequence[SetAside], kind: str = "image") -> NothingUsable:
    """The error for a set without usable images. aside: the images that were set aside."""
    if len(aside) == 1:
        what = f"'{aside[0].name}' was set aside: {aside[0].reason}."
    else:
        first = f" The first, '{aside[0].name}': {aside[0].reason}." if aside else ""
        what = f"all {len(aside):,} were set aside.{first}"
    return NothingUsable(f"No usable {kind}: {what}", aside)


def _reasons(collected: _Collected, images: ImageSet) -> list[SetAside]:
    """All images that were set aside when none could be embedded: now, and then before."""
    now = zip(images.names, images.digests, strict=True)
    return [SetAside(name, collected.bad[digest]) for name, digest in now] + list(images.set_aside)

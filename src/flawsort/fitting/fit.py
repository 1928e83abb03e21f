"""Sets that do not fit in memory: a reference first, then image by image past it.

Only two things need many bags at once: the reference, and the temperature, for which a sample of
the images is enough. Everything else looks at a batch, keeps what an image comes to (its scores,
its weights, one vector) and lets the bags go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones.embed import nothing_usable
from flawsort.core.errors import OptionError
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, Progress, SetAside
from flawsort.embeddings.describer import (
    EVERY_PATCH_ALIKE,
    Described,
    Describer,
    Features,
    every_patch_alike,
    fit_state,
)
from flawsort.embeddings.heat import calibrate
from flawsort.embeddings.method import Method
from flawsort.embeddings.regions import join_regions
from flawsort.fitting.parts import Batch, Part, PartFiles, run_setting
from flawsort.scores.engines import Engine
from flawsort.scores.reference import (
    NormalReference,
    PeerReference,
    Reference,
    usual_peers,
)

# Images in a batch: 22 MB of bags with the default backbone, and queries enough for a search.
BATCH_IMAGES = 64
# The temperature and the heat scale are measured on so many images.
SAMPLE_IMAGES = 512

# Images to the bags of those that can be used (None where there are none), and those images.
Embed: TypeAlias = Callable[[ImageSet], tuple[Bags | None, ImageSet]]


class Workers(Protocol):
    """Whoever describes batches: this process, or many machines."""

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        """What the images of each batch came to, in the order of the batches. Those of a run that
        was interrupted need not be described again."""

    def clear(self) -> None:
        """The run is finished: forget what was kept of it."""


@dataclass
class LocalWorkers:
    """Batches described one after the other, here; each takes all processors.

    setting: all that decides a bag besides the image's content. parts: a folder for finished
    batches, of flawsort's own: what was abandoned there is removed. None keeps none.
    """

    embed: Embed
    setting: Mapping[str, object] = field(default_factory=dict)
    parts: Path | None = None
    _files: PartFiles | None = field(default=None, init=False, repr=False)

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        files = None
        if self.parts is not None:
            setting = run_setting(self.setting, describer, batches)
            files = self._files = PartFiles(str(self.parts), setting)
            files.clear_abandoned()
        for batch in batches:
            part = files.load(batch) if files else None
            if part is None:
                part = describe_batch(batch, self.embed, describer)
                if files:
                    # A disk that is full or read-only costs what could have been saved by it.
                    with contextlib.suppress(OptionError):
                        files.store(batch, part)
            yield part

    def clear(self) -> None:
        if self._files is not None:
            self._files.clear()


@dataclass(frozen=True)
class Streamed:
    """A set described batch by batch. grid: of the patches. images: those that could be used, with
    those that could not set aside."""

    describer: Describer
    described: Described
    valid: Bools | None
    grid: tuple[int, int]
    images: ImageSet
    how: str


def fit_streamed(
    images: ImageSet,
    embed: Embed,
    normals: NormalReference | None,
    method: Method,
    *,
    engine: Engine,
    normal_scores: Floats | None = None,
    workers: Workers | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Streamed:
    """As `fit_describer`, with no more than a few hundred bags in memory, or as many as peers.

    images: of distinct contents, in the order of content. embed: for the reference, and for the
    rest where no workers are given. normals: what they are compared with; None for a sample of
    themselves (Eq. 7). normal_scores: of normal images, for the heat scale.
    """
    order = np.random.default_rng(random_state).permutation(len(images))
    begun = (
        _begin_alike(images, order, embed, method)
        if method.weights == "uniform"
        else _begin(images, order, embed, normals, normal_scores, method, engine, progress)
    )
    batches = _batches(images, begun.own)
    doing = workers or LocalWorkers(embed)
    parts = _described(batches, doing, begun.describer, progress)
    return _joined(images, parts, begun)


def describe_batch(batch: Batch, embed: Embed, describer: Describer) -> Part:
    """One batch from files to what is kept of it."""
    bags, usable = embed(batch.images)
    reasons = {entry.name: entry.reason for entry in usable.set_aside}
    if bags is None:
        return Part((), None, None, reasons)
    place = {digest: row for row, digest in enumerate(batch.images.digests)}
    rows = np.array([place[digest] for digest in usable.digests], np.int64)
    found = describer.features(bags, own=batch.own[rows])
    halved = replace(
        found, scores=found.scores.astype(np.float16), weights=found.weights.astype(np.float16)
    )
    return Part(usable.digests, halved, bags.valid, reasons)


@dataclass(frozen=True)
class _Begun:
    """What is settled before the batches. describer: without the axes of the extents.
    own: the peers among the images, by digest."""

    describer: Describer
    own: dict[str, int]
    grid: tuple[int, int]
    how: str


def _begin_alike(images: ImageSet, order: Ints, embed: Embed, method: Method) -> _Begun:
    """Nothing is compared: one bag shows the grid."""
    _, sample = _first_usable(images, order, embed, 1)
    return _Begun(every_patch_alike(method), {}, sample.grid, EVERY_PATCH_ALIKE)


def _begin(
    images: ImageSet,
    order: Ints,
    embed: Embed,
    normals: NormalReference | None,
    normal_scores: Floats | None,
    method: Method,
    engine: Engine,
    progress: Progress | None,
) -> _Begun:
    """The reference, and temperature, heat and whitening as a sample of the images has them."""
    n_peers = 0 if normals is not None else _n_peers(method, len(images))
    chosen, sample = _first_usable(images, order, embed, max(SAMPLE_IMAGES, n_peers))
    reference: Reference
    own: dict[str, int] = {}
    if normals is None:
        count = min(n_peers, len(chosen))
        peers = sample.patches[:count].copy()  # the rest of the sample is let go
        reference = PeerReference(peers, method.nearest_share, engine=engine)
        own = {images.digests[row]: place for place, row in enumerate(chosen[:count])}
    else:
        reference = normals
    reference = reference.for_many(len(images), sample.n_patches)
    looked = reference.compare(
        sample, own=_own(own, [images.digests[row] for row in chosen]), progress=progress
    )
    heat = calibrate(looked.scores, sample.valid, normal_scores)
    everyone = np.arange(len(sample))
    describer = fit_state(method, reference, sample, looked, everyone, heat=heat, progress=progress)
    return _Begun(describer, own, sample.grid, looked.how)


def _n_peers(method: Method, n_images: int) -> int:
    n_peers = method.n_peers or usual_peers(n_images)
    return n_images if n_peers == "all" else n_peers


def _batches(images: ImageSet, own: dict[str, int]) -> list[Batch]:
    batches = []
    for start in range(0, len(images), BATCH_IMAGES):
        some = images.take(range(start, min(start + BATCH_IMAGES, len(images))))
        some = ImageSet(some.names, some.sources, some.digests)
        batches.append(Batch(some, _own(own, some.digests)))
    return batches


def _described(
    batches: list[Batch], workers: Workers, describer: Describer, progress: Progress | None
) -> list[Part]:
    """The parts of all batches in order, as the workers do them."""
    parts: list[Part] = []
    n_images = sum(len(batch.images) for batch in batches)
    done = 0
    for batch, part in zip(batches, workers.describe(batches, describer), strict=True):
        parts.append(part)
        done += len(batch.images)
        if progress:
            progress("sorting", done, n_images)
    return parts


def _joined(images: ImageSet, parts: list[Part], begun: _Begun) -> Streamed:
    reasons = {name: reason for part in parts for name, reason in part.reasons.items()}
    usable = images.without([SetAside(name, reason) for name, reason in reasons.items()])
    parts = [part for part in parts if part.digests]
    if not parts:
        raise nothing_usable([SetAside(name, reason) for name, reason in reasons.items()])
    described_parts = [part.features for part in parts if part.features is not None]
    features = _together(described_parts)
    valid = None
    if any(part.valid is not None for part in parts):
        every = [
            np.ones(one.scores.shape, bool) if part.valid is None else part.valid
            for part, one in zip(parts, described_parts, strict=True)
        ]
        valid = np.concatenate(every)
    describer = begun.describer.with_axes(features)
    row_of = {digest: row for row, digest in enumerate(usable.digests)}
    how = begun.how
    reference = describer.reference
    if reference is not None and row_of.keys() <= begun.own.keys():
        how = f"compared with each other ({reference.engine.name})"
    return Streamed(describer, describer.join(features), valid, begun.grid, usable, how)


def _together(parts: list[Features]) -> Features:
    """The features of one batch of images after the other."""
    return Features(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.vectors for part in parts]),
        np.concatenate([part.extents for part in parts]),
        join_regions([(part.regions, len(part.scores)) for part in parts]),
    )


def _first_usable(
    images: ImageSet, order: Ints, embed: Embed, count: int
) -> tuple[list[int], Bags]:
    """The first `count` images of an order that can be used, and their bags."""
    rows: list[int] = []
    bags: list[Bags] = []
    before = len(images.set_aside)
    aside: list[SetAside] = []
    start = 0
    while len(rows) < count and start < len(order):
        some = order[start : start + count - len(rows)]
        start += len(some)
        found, usable = embed(images.take(some))
        place = {images.digests[row]: int(row) for row in some}
        rows += [place[digest] for digest in usable.digests]
        bags += [] if found is None else [found]
        aside += usable.set_aside[before:]
    if not bags:
        raise nothing_usable([*aside, *images.set_aside])
    patches = np.concatenate([one.patches for one in bags])[:count]
    valid = None
    if any(one.valid is not None for one in bags):
        every = [np.ones(b.patches.shape[:2], bool) if b.valid is None else b.valid for b in bags]
        valid = np.concatenate(every)[:count]
    return rows[:count], Bags(patches, bags[0].grid, valid)


def _own(own: dict[str, int], digests: tuple[str, ...] | list[str]) -> NDArray[np.int64]:
    return np.array([own.get(digest, -1) for digest in digests], np.int64)

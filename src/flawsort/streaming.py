"""Sets that do not fit in memory: a reference first, then image by image past it.

Only two things need many bags at once: the reference, and the temperature, for which a sample of
the images is enough. Everything else looks at a batch, keeps what an image comes to (its scores,
its weights, one vector) and lets the bags go.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.describe import Described, Describer, join_score
from flawsort.engines import Engine
from flawsort.errors import InputError
from flawsort.presets import Method
from flawsort.records import Bags, Bools, ImageSet, Ints, Progress, SetAside
from flawsort.references import (
    NormalReference,
    PeerReference,
    pair_flop,
    usual_peers,
)
from flawsort.weights import image_scores, score_spread

# Images in a batch: 22 MB of bags with the default backbone, and queries enough for a search.
BATCH_IMAGES = 64
# The temperature and the heat scale are measured on so many images.
SAMPLE_IMAGES = 512
# Bump when what a part holds changes its meaning.
FORMAT = 1
CHECKSUM_BYTES = 32
ABANDONED_AFTER = 30 * 24 * 3600

# Images to the bags of those that can be used (None where there are none), and those images.
Embed: TypeAlias = Callable[[ImageSet], tuple[Bags | None, ImageSet]]


@dataclass(frozen=True)
class Part:
    """What the images of a batch came to. scores, weights: (n, n_patches), float16. vectors:
    (n, dim). unusual: (n,), the image's own score. digests: whose they are; the others of the
    batch could not be used. reasons: why not, by name."""

    digests: tuple[str, ...]
    scores: NDArray[np.float16]
    weights: NDArray[np.float16]
    vectors: NDArray[np.float32]
    unusual: NDArray[np.float64]
    valid: Bools | None
    reasons: dict[str, str]


@dataclass(frozen=True)
class Batch:
    """Images to describe together. own: which of the peers each is itself, or -1."""

    images: ImageSet
    own: NDArray[np.int64]


class Workers(Protocol):
    """Whoever describes batches: this process, or many machines."""

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        """What the images of each batch came to, in the order of the batches."""


@dataclass(frozen=True)
class LocalWorkers:
    """Batches described one after the other, here; each takes all processors."""

    embed: Embed

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        for batch in batches:
            yield describe_batch(batch, self.embed, describer)


@dataclass(frozen=True)
class Streamed:
    """A set described batch by batch. grid: of the patches. sample: rows that the heat scale is
    measured on. images: those that could be used, with those that could not set aside."""

    describer: Describer
    described: Described
    valid: Bools | None
    grid: tuple[int, int]
    images: ImageSet
    sample: Ints
    how: str


def fit_streamed(
    images: ImageSet,
    embed: Embed,
    normals: NormalReference | None,
    method: Method,
    *,
    engine: Engine,
    parts: PartStore | None = None,
    workers: Workers | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Streamed:
    """As `fit_describer`, with no more than a few hundred bags in memory, or as many as peers.

    images: of distinct contents, in the order of content. embed: for the reference, and for the
    rest where no workers are given. normals: what they are compared with; None for a sample of
    themselves (Eq. 7). parts: where finished batches are kept, so that an interrupted run goes on.
    """
    order = np.random.default_rng(random_state).permutation(len(images))
    chosen, sample = _first_usable(images, order, embed, SAMPLE_IMAGES)
    reference: NormalReference | PeerReference
    own: dict[str, int] = {}
    if normals is None:
        n_peers = method.n_peers or usual_peers(len(images))
        wanted = len(images) if n_peers == "all" else n_peers
        if wanted > len(chosen) and len(order) > len(chosen):
            chosen, sample = _first_usable(images, order, embed, wanted)
        count = min(wanted, len(chosen))
        # One arithmetic for the whole set, however small its last batch.
        engine = engine.for_work(len(images) * count * pair_flop(sample))
        peers = sample.patches[:count].copy()  # the rest of the sample is let go
        reference = PeerReference(peers, method.nearest_share, engine=engine)
        own = {images.digests[row]: place for place, row in enumerate(chosen[:count])}
    else:
        reference = normals
        reference.decide(len(images) * sample.n_patches)
    looked = reference.compare(
        sample, own=_own(own, [images.digests[row] for row in chosen]), progress=progress
    )
    spread = score_spread(looked.scores, sample.valid)
    temperature = method.temperature_for(normals=normals is not None, spread=spread)
    bare = Describer(method, reference, temperature, None)
    grid, how = sample.grid, looked.how
    del sample, looked
    if parts:  # other peers, because a file could not be read, would be another temperature
        parts.bind(temperature)
    doing = workers or LocalWorkers(embed)
    found = list(_parts(images, doing, bare, own, parts, progress))
    return _joined(images, found, bare, grid, chosen, how)


def describe_batch(batch: Batch, embed: Embed, describer: Describer) -> Part:
    """One batch from files to what is kept of it."""
    bags, usable = embed(batch.images)
    reasons = {entry.name: entry.reason for entry in usable.set_aside}
    if bags is None:
        return Part((), *_nothing(), None, reasons)
    place = {digest: row for row, digest in enumerate(batch.images.digests)}
    rows = np.array([place[digest] for digest in usable.digests], np.int64)
    described = describer.describe(bags, own=batch.own[rows])
    return Part(
        usable.digests,
        described.scores.astype(np.float16),
        described.weights.astype(np.float16),
        described.embeddings,
        image_scores(described.scores, bags.valid),
        bags.valid,
        reasons,
    )


class PartStore:
    """Finished batches in a folder: 5 KB an image, where its bag would take 340."""

    def __init__(self, folder: Path, setting: dict[str, object]) -> None:
        """setting: all that decides what an image comes to, besides the images themselves."""
        text = json.dumps({"format": FORMAT, **setting}, sort_keys=True, default=str)
        self.folder = folder / hashlib.sha256(text.encode()).hexdigest()[:20]
        self._temperature = ""
        _forget_abandoned(folder)

    def bind(self, temperature: float) -> None:
        """Hold to the parts that were made with this temperature."""
        self._temperature = f"{temperature:.9g}"

    def has(self, images: ImageSet) -> bool:
        """Whether something was kept of exactly these images."""
        return self._path(images).is_file()

    def load(self, images: ImageSet) -> Part | None:
        """What was kept of exactly these images; None where nothing was, or it is damaged."""
        try:
            content = self._path(images).read_bytes()
            checksum, content = content[:CHECKSUM_BYTES], content[CHECKSUM_BYTES:]
            if hashlib.sha256(content).digest() != checksum:
                return None
            with np.load(io.BytesIO(content), allow_pickle=False) as kept:
                names = json.loads(str(kept["names"]))
                valid = kept["valid"] if "valid" in kept.files else None
                return Part(
                    tuple(names["digests"]),
                    kept["scores"],
                    kept["weights"],
                    kept["vectors"],
                    kept["unusual"],
                    valid,
                    names["reasons"],
                )
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError):
            return None

    def store(self, images: ImageSet, part: Part) -> None:
        """Keep a batch, whole or not at all. A disk that is full or read-only costs nothing but
        what could have been saved by it."""
        path = self._path(images)
        arrays = {
            "scores": part.scores,
            "weights": part.weights,
            "vectors": part.vectors,
            "unusual": part.unusual,
            "names": np.array(json.dumps({"digests": part.digests, "reasons": part.reasons})),
        }
        if part.valid is not None:
            arrays["valid"] = part.valid
        file = io.BytesIO()
        np.savez(file, **arrays)  # type: ignore[arg-type]  # of its other, newer options
        content = file.getvalue()
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(hashlib.sha256(content).digest() + content)
            temporary.replace(path)

    def clear(self) -> None:
        """The run is finished: its parts have no more use."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, images: ImageSet) -> Path:
        of = "".join([self._temperature, *images.digests])
        digest = hashlib.sha256(of.encode()).hexdigest()
        return self.folder / f"{digest[:32]}.npz"


def _forget_abandoned(folder: Path) -> None:
    """Remove the parts of runs that nobody has gone on with for a month."""
    with contextlib.suppress(OSError):
        for one in folder.iterdir():
            if one.stat().st_mtime < time.time() - ABANDONED_AFTER:
                shutil.rmtree(one, ignore_errors=True)


def _parts(
    images: ImageSet,
    workers: Workers,
    describer: Describer,
    own: dict[str, int],
    store: PartStore | None,
    progress: Progress | None,
) -> Iterator[Part]:
    """The parts of all batches in order: those kept, and the others as the workers do them."""
    batches = []
    for start in range(0, len(images), BATCH_IMAGES):
        some = images.take(range(start, min(start + BATCH_IMAGES, len(images))))
        some = ImageSet(some.names, some.sources, some.digests)
        batches.append(Batch(some, _own(own, some.digests)))
    kept = [store.has(batch.images) if store else False for batch in batches]
    missing = [batch for batch, there in zip(batches, kept, strict=True) if not there]
    fresh = workers.describe(missing, describer)
    done = 0
    for batch, there in zip(batches, kept, strict=True):
        part = store.load(batch.images) if store and there else None
        if part is None:
            # What is there and cannot be loaded is damaged.
            part = next(workers.describe([batch], describer) if there else fresh)
            if store:
                store.store(batch.images, part)
        yield part
        done += len(batch.images)
        if progress:
            progress("sorting", done, len(images))


def _joined(
    images: ImageSet,
    parts: list[Part],
    bare: Describer,
    grid: tuple[int, int],
    chosen: list[int],
    how: str,
) -> Streamed:
    reasons = {name: reason for part in parts for name, reason in part.reasons.items()}
    usable = images.without([SetAside(name, reason) for name, reason in reasons.items()])
    parts = [part for part in parts if part.digests]
    if not parts:
        first = f" The first, '{next(iter(reasons))}': {next(iter(reasons.values()))}."
        raise InputError(f"No usable image is left: all {len(images)} were set aside.{first}")
    scores, weights = _stacked(parts, "scores"), _stacked(parts, "weights")
    vectors, unusual = _stacked(parts, "vectors"), _stacked(parts, "unusual")
    valid = None
    if any(part.valid is not None for part in parts):
        every = [np.ones(p.scores.shape, bool) if p.valid is None else p.valid for p in parts]
        valid = np.concatenate(every)
    describer, embeddings = join_score(bare, vectors, unusual)
    row_of = {digest: row for row, digest in enumerate(usable.digests)}
    # A file of the sample may have gone since.
    there = [images.digests[row] for row in chosen if images.digests[row] in row_of]
    sample = np.sort([row_of[digest] for digest in there]).astype(np.int64)
    if not there:
        sample = np.arange(len(usable))
    return Streamed(
        describer, Described(scores, weights, embeddings), valid, grid, usable, sample, how
    )


def _stacked(parts: list[Part], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(part, name) for part in parts])


def _nothing() -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Scores, weights, vectors and unusualness of no image."""
    empty = np.empty((0, 0), np.float16)
    return empty, empty, empty.astype(np.float32), np.empty(0)


def _first_usable(
    images: ImageSet, order: Ints, embed: Embed, count: int
) -> tuple[list[int], Bags]:
    """The first `count` images of an order that can be used, and their bags."""
    rows: list[int] = []
    bags: list[Bags] = []
    aside: tuple[SetAside, ...] = ()
    start = 0
    while len(rows) < count and start < len(order):
        some = order[start : start + count - len(rows)]
        start += len(some)
        found, usable = embed(images.take(some))
        place = {images.digests[row]: int(row) for row in some}
        rows += [place[digest] for digest in usable.digests]
        bags += [] if found is None else [found]
        aside += usable.set_aside
    if not bags:
        first = f" The first, '{aside[0].name}': {aside[0].reason}." if aside else ""
        raise InputError(f"No usable image: all {len(order)} were set aside.{first}")
    patches = np.concatenate([one.patches for one in bags])[:count]
    valid = None
    if any(one.valid is not None for one in bags):
        every = [np.ones(b.patches.shape[:2], bool) if b.valid is None else b.valid for b in bags]
        valid = np.concatenate(every)[:count]
    return rows[:count], Bags(patches, bags[0].grid, valid)


def _own(own: dict[str, int], digests: tuple[str, ...] | list[str]) -> NDArray[np.int64]:
    return np.array([own.get(digest, -1) for digest in digests], np.int64)

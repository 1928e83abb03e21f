"""The loop over batches that `fit` and `assign` share, and the runner that works in this process.

Each batch is embedded and compared. Its results are kept (scores, weights, one vector per image,
regions), and its bags are freed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.core.records import Bags, ImageSet, Progress
from flawsort.embeddings.describer import Describer
from flawsort.fitting.memory import USUAL_SIZES, Sizes
from flawsort.fitting.parts import Batch, Part, PartFiles, run_setting
from flawsort.fitting.source import Source

# Returns the bags of the usable images (None if there are none), and these images.
Embed: TypeAlias = Callable[[ImageSet], tuple[Bags | None, ImageSet]]


class Runner(Protocol):
    """Describes batches, in this process or with the workers of a Ray cluster."""

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        """The part of each batch, in order. Batches that were finished before an interruption are
        not described again."""

    def clear(self) -> None:
        """Remove the finished batches: their results are safe."""


@dataclass
class LocalRunner:
    """Describes one batch after the other in this process, each with all processors.

    parts: a folder for finished batches that belongs to flawsort, which removes abandoned batches
    from it. None keeps no batches. half: keep scores and weights in half precision, for many
    images.
    """

    source: Source
    parts: Path | None = None
    half: bool = True
    sizes: Sizes = USUAL_SIZES
    _files: PartFiles | None = field(default=None, init=False, repr=False)

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        files = None
        if self.parts is not None:
            setting = run_setting(self.source.setting, describer, batches)
            files = self._files = PartFiles(str(self.parts), setting)
            files.clear_abandoned()
        for number, batch in enumerate(batches, start=1):
            part = files.load(batch) if files else None
            if part is None:
                part = describe_batch(batch, self.source.batch, describer, half=self.half)
                if files:
                    # A disk that is full or read-only costs only the chance to resume.
                    with contextlib.suppress(OptionError):
                        files.store(batch, part)
            if number % self.sizes.batches_between_pruning == 0 or number == len(batches):
                self.source.prune()
            yield part

    def clear(self) -> None:
        if self._files is not None:
            self._files.clear()


def make_batches(
    contents: ImageSet, size: int, peer_of: Mapping[str, int] | None = None
) -> list[Batch]:
    """Batches of `size` images each. peer_of: the row of an image among the peers, by its digest;
    None if no image is a peer."""
    batches = []
    for start in range(0, len(contents), size):
        chosen = contents.take(range(start, min(start + size, len(contents))))
        images = ImageSet(chosen.names, chosen.sources, chosen.digests)
        self_rows = None if peer_of is None else rows_of(images.digests, peer_of)
        batches.append(Batch(images, self_rows))
    return batches


def rows_of(digests: Sequence[str], row_of: Mapping[str, int]) -> NDArray[np.int64]:
    """(n,): the row of each digest, -1 if it has none."""
    return np.array([row_of.get(digest, -1) for digest in digests], np.int64)


def describe_batches(
    batches: Sequence[Batch],
    runner: Runner,
    describer: Describer,
    progress: Progress | None = None,
) -> Iterator[Part]:
    """The parts of all batches, in order, as the runner finishes them."""
    n_images, done = sum(len(batch.images) for batch in batches), 0
    for batch, part in zip(batches, runner.describe(batches, describer), strict=True):
        done += len(batch.images)
        if progress:
            progress("sorting", done, n_images)
        yield part


def describe_batch(batch: Batch, embed: Embed, describer: Describer, *, half: bool = True) -> Part:
    """Embed and describe one batch. half: scores and weights in float16."""
    bags, usable = embed(batch.images)
    reasons = {entry.name: entry.reason for entry in usable.set_aside}
    if bags is None:
        return Part((), None, None, reasons)
    self_rows = batch.self_rows
    if self_rows is not None:
        place = {digest: row for row, digest in enumerate(batch.images.digests)}
        self_rows = self_rows[[place[digest] for digest in usable.digests]]
    found = describer.features(bags, self_rows=self_rows)
    if half:
        scores, weights = found.scores.astype(np.float16), found.weights.astype(np.float16)
        found = replace(found, scores=scores, weights=weights)
    return Part(usable.digests, found, bags.valid, reasons)

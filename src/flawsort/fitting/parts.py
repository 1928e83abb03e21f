"""What batches came to as parquet files, so that an interrupted run goes on where it stopped.

A folder a run, on a disk or in an object store; one file a batch, one row an image: digest, name,
and then either reason (why it could not be used) or vector, extents, scores, weights, valid, and
outlines, peaks, region_vectors and region_extents of its regions. A file is there whole or not at
all, under a name that follows from what it is of: one that is there need not be computed again. It
takes 6 KB an image, where its bag would take 340.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.core.records import Bools, ImageSet
from flawsort.core.storage import folder_at
from flawsort.embeddings.describer import Describer, Features
from flawsort.embeddings.regions import Outlines, RegionFeatures

# Bump when what a part holds changes its meaning.
FORMAT = 4
# Nobody comes back to a run that was interrupted a month ago, and its parts fill the disk.
ABANDONED_AFTER = 30 * 24 * 3600

_SUFFIX = ".parquet"
# The folder of a run, as opposed to whatever else a person may keep beside it.
_RUN = re.compile(r"[0-9a-f]{20}")
_CHECKSUM_BYTES = 32
_REGION_COLUMNS = ("outlines", "peaks", "region_vectors", "region_extents")


@dataclass(frozen=True)
class Part:
    """What the images of a batch came to, scores and weights in float16. digests: whose it is; the
    others of the batch could not be used. features: None where none could. reasons: why not, by
    name."""

    digests: tuple[str, ...]
    features: Features | None
    valid: Bools | None
    reasons: dict[str, str]


@dataclass(frozen=True)
class Batch:
    """Images to describe together. own: which of the peers each is itself, or -1."""

    images: ImageSet
    own: NDArray[np.int64]


class PartFiles:
    """The parts of one run, below a local path or a URL."""

    def __init__(self, place: str, setting: Mapping[str, object]) -> None:
        """setting: all that decides what the images come to (`run_setting`)."""
        text = json.dumps({"format": FORMAT, **setting}, sort_keys=True, default=str)
        self.folder = f"{place.rstrip('/')}/{hashlib.sha256(text.encode()).hexdigest()[:20]}"
        self._files = folder_at(self.folder)

    def name(self, batch: Batch) -> str:
        """The name that a batch has here, whether or not it is there. Files that were renamed
        since are still the same batch."""
        of = json.dumps([batch.images.digests, batch.own.tolist()])
        return hashlib.sha256(of.encode()).hexdigest()[:32] + _SUFFIX

    def present(self) -> set[str]:
        """The names of all parts that are there."""
        with self._within_reach("listed"):
            return {name for name in self._files.names() if name.endswith(_SUFFIX)}

    def has(self, batch: Batch) -> bool:
        with self._within_reach("looked up"):
            return self._files.has(self.name(batch))

    def load(self, batch: Batch) -> Part | None:
        """What is kept of a batch; None where nothing is, or it is damaged."""
        try:
            content = _unsealed(self._files.read(self.name(batch)))
        except OSError:
            return None
        return None if content is None else _part(content, batch)

    def store(self, batch: Batch, part: Part) -> None:
        """Keep a part, whole or not at all."""
        content = _sealed(_parquet(batch, part))
        with self._within_reach("written"):
            self._files.write(self.name(batch), content)

    def remove(self, batch: Batch) -> None:
        with self._within_reach("removed"):
            self._files.remove(self.name(batch))

    def deaths(self, batch: Batch) -> int:
        """How many workers were lost over a batch, as far as `expect_death` was told."""
        with self._within_reach("read"):
            try:
                return len(self._files.read(f"{self.name(batch)}.deaths"))
            except FileNotFoundError:
                return 0

    def expect_death(self, batch: Batch) -> None:
        count = self.deaths(batch) + 1
        with self._within_reach("written"):
            self._files.write(f"{self.name(batch)}.deaths", b"x" * count)

    def forget_deaths(self, batch: Batch) -> None:
        with self._within_reach("removed"):
            self._files.remove(f"{self.name(batch)}.deaths")

    def clear(self) -> None:
        """The run is finished: its parts have no more use. Where they cannot be removed they stay;
        the run is none the worse for it."""
        with contextlib.suppress(OSError, OptionError):
            self._files.remove_all()

    def clear_abandoned(self) -> None:
        """Remove the parts of other runs beside these that nobody has gone on with for a month.
        For a folder on a disk that is flawsort's own."""
        here = Path(self.folder)
        before = time.time() - ABANDONED_AFTER
        # What cannot be listed or removed is somebody else's, or gone already.
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(here.parent)):
                with contextlib.suppress(OSError):
                    ours = _RUN.fullmatch(entry.name) and entry.name != here.name
                    if ours and entry.stat(follow_symlinks=False).st_mtime < before:
                        shutil.rmtree(entry.path)

    @contextlib.contextmanager
    def _within_reach(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise OptionError(
                f"The parts cannot be {what} in '{self.folder}': {why}. Name a folder or a URL "
                "where every worker may write."
            ) from error


def run_setting(
    bags: Mapping[str, object],
    describer: Describer,
    batches: Sequence[Batch],
    engine: str | None = None,
) -> dict[str, object]:
    """All that decides what the images of a run come to: how they are embedded, what they are
    compared with, and which they are. bags: what decides a bag besides the image's content.
    engine: where it is not the reference's own that compares."""
    reference = describer.reference
    content = hashlib.sha256()
    kind = "none"
    if reference is not None:
        stored = reference.stored()
        kind = stored.kind
        for array in (stored.patches, *(stored.lists or ())):
            content.update(_bytes(array))
        engine = engine or reference.engine.name
    if describer.whitening is not None:
        content.update(_bytes(describer.whitening))
    images = "".join(digest for batch in batches for digest in batch.images.digests)
    return {
        "bags": bags,
        "method": asdict(describer.method),
        "temperature": describer.temperature,
        "spread": describer.spread,
        "heat": asdict(describer.heat),
        "reference": [kind, content.hexdigest()],
        "engine": engine,
        # With the same normals two sets have parts alike: apart, neither clears the other's.
        "images": hashlib.sha256(images.encode()).hexdigest(),
    }


def _parquet(batch: Batch, part: Part) -> bytes:
    """A row an image: those described, then those set aside."""
    import arro3.core as arrow
    from arro3.io import write_parquet

    text, binary = arrow.DataType.string(), arrow.DataType.binary()
    name_of = dict(zip(batch.images.digests, batch.images.names, strict=True))
    digest_of = dict(zip(batch.images.names, batch.images.digests, strict=True))
    n, nothing = len(part.digests), [None] * len(part.reasons)
    features = part.features
    vectors = np.empty((0, 0), np.float32) if features is None else features.vectors
    # A list ends where the next begins; those of images set aside are empty.
    ends = np.arange(n + len(nothing) + 1).clip(max=n) * vectors.shape[1]
    columns: dict[str, Any] = {
        "digest": arrow.Array([*part.digests, *(digest_of[one] for one in part.reasons)], text),
        "name": arrow.Array([*(name_of[one] for one in part.digests), *part.reasons], text),
        "vector": arrow.list_array(
            arrow.Array.from_numpy(ends.astype(np.int32)),
            arrow.Array.from_numpy(np.ascontiguousarray(vectors, np.float32).ravel()),
        ),
    }
    for name, rows in _binaries(features, part.valid).items():
        columns[name] = arrow.Array([*rows, *nothing], binary)
    columns["reason"] = arrow.Array([None] * n + [*part.reasons.values()], text)
    content = io.BytesIO()
    table = arrow.Table.from_pydict(columns)
    write_parquet(table, content, compression="zstd(1)", dictionary_enabled=False)
    return content.getvalue()


def _part(content: bytes, batch: Batch) -> Part:
    from arro3.io import read_parquet

    table = read_parquet(io.BytesIO(content)).read_all()
    columns: dict[str, Any] = {name: table[name].to_pylist() for name in table.column_names}
    name_of = dict(zip(batch.images.digests, batch.images.names, strict=True))
    n = columns["reason"].count(None)  # those set aside come last
    aside = zip(columns["digest"][n:], columns["reason"][n:], strict=True)
    reasons = {name_of[digest]: reason for digest, reason in aside}
    if not n:
        return Part((), None, None, reasons)
    valid = None
    if columns["valid"][0] is not None:
        valid = _stacked(columns["valid"][:n], np.bool_)
    vectors = np.array(columns["vector"][:n], np.float32)
    extents = _stacked(columns["extents"][:n], np.float64)
    of_regions = {name: columns[name][:n] for name in _REGION_COLUMNS}
    features = Features(
        _stacked(columns["scores"][:n], np.float16),
        _stacked(columns["weights"][:n], np.float16),
        vectors,
        extents,
        _regions(of_regions, vectors.shape[1], extents.shape[1]),
    )
    return Part(tuple(columns["digest"][:n]), features, valid, reasons)


def _binaries(features: Features | None, valid: Bools | None) -> dict[str, list[bytes | None]]:
    """Columns of bytes, a row an image."""
    names = ("extents", "scores", "weights", "valid", *_REGION_COLUMNS)
    if features is None:
        return {name: [] for name in names}
    n, regions = len(features.scores), features.regions
    outlines = regions.outlines
    first = np.searchsorted(outlines.images, np.arange(n + 1))
    own = [range(a, b) for a, b in itertools.pairwise(first.tolist())]
    # Of each region how many patches it has, and which.
    patches = [[np.append(len(outlines[r]), outlines[r]) for r in some] for some in own]
    rows: tuple[list[Any], ...] = (
        _rows(features.extents),
        _rows(features.scores),
        _rows(features.weights),
        [None] * n if valid is None else _rows(valid),
        [b"".join(one.astype(np.int32).tobytes() for one in some) for some in patches],
        [outlines.peaks[some].tobytes() for some in own],
        [regions.vectors[some].tobytes() for some in own],
        [regions.extents[some].tobytes() for some in own],
    )
    return dict(zip(names, rows, strict=True))


def _regions(columns: dict[str, list[bytes]], dim: int, n_extents: int) -> RegionFeatures:
    found: list[tuple[int, float, NDArray[np.int32]]] = []
    for image, (outlined, peaks) in enumerate(
        zip(columns["outlines"], columns["peaks"], strict=True)
    ):
        patches = np.frombuffer(outlined, np.int32)
        start = 0
        for peak in np.frombuffer(peaks, np.float32).tolist():
            stop = start + 1 + int(patches[start])
            found.append((image, peak, patches[start + 1 : stop]))
            start = stop
    vectors = np.frombuffer(b"".join(columns["region_vectors"]), np.float32)
    extents = np.frombuffer(b"".join(columns["region_extents"]), np.float64)
    return RegionFeatures(
        Outlines.of(found),
        vectors.reshape(len(found), dim).copy(),
        extents.reshape(len(found), n_extents).copy(),
    )


def _sealed(content: bytes) -> bytes:
    """A parquet file with its SHA-256 in it, between the pages and the footer, where no reader
    looks unless it is sent there. Its own checksums leave out the footer."""
    at = len(content) - _footer_size(content)
    return content[:at] + hashlib.sha256(content).digest() + content[at:]


def _unsealed(content: bytes) -> bytes | None:
    """The file as it was before `_sealed`; None where it is not what was written."""
    at = len(content) - _footer_size(content)
    start = at - _CHECKSUM_BYTES
    if start < 0:
        return None
    before = content[:start] + content[at:]
    return before if hashlib.sha256(before).digest() == content[start:at] else None


def _footer_size(content: bytes) -> int:
    """The bytes from the footer on: itself, its length, and four letters."""
    return int.from_bytes(content[-8:-4], "little") + 8


def _rows(values: NDArray[Any]) -> list[bytes]:
    return [row.tobytes() for row in values]


def _stacked(rows: list[bytes], dtype: type) -> NDArray[Any]:
    joined: NDArray[Any] = np.frombuffer(b"".join(rows), dtype)
    return joined.reshape(len(rows), -1).copy() if rows else np.empty((0, 0), dtype)


def _bytes(values: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B")

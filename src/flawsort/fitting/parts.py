"""Parts: the results of finished batches, so that an interrupted run can resume.

Each run has a folder, on a disk or in an object store, with one file per batch. The name of a file
is a hash of its batch, so a batch whose file exists need not be computed again. A part takes 13 KB
per image; its bags would take 475 KB.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
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
from flawsort.core.storage import Piece
from flawsort.core.store import Store
from flawsort.embeddings.describer import Describer
from flawsort.embeddings.features import Features
from flawsort.embeddings.places import Places
from flawsort.embeddings.regions import Outlines, RegionFeatures
from flawsort.scores.views import references_of, stored_views

# Parts of a run that was interrupted a month ago are removed: they only fill the disk.
ABANDONED_AFTER = 30 * 24 * 3600

SUFFIX = ".part"
# The format of a part. Increase it when it changes: parts of another one are not read.
_FORMAT = 2
# The name of a run's folder, unlike other files that a person may keep beside it.
_RUN = re.compile(r"[0-9a-f]{20}")
_HEADER_BYTES = 4


@dataclass(frozen=True)
class Part:
    """The results of a batch, with scores and weights in float16. digests: of the usable images.
    features: None if no image is usable. reasons: why the other images are not usable, by name."""

    digests: tuple[str, ...]
    features: Features | None
    valid: Bools | None
    reasons: dict[str, str]


@dataclass(frozen=True)
class Batch:
    """Images to describe together. self_rows: for each image its own row among the peers, or -1;
    None if no image is a peer, as in `assign`."""

    images: ImageSet
    self_rows: NDArray[np.int64] | None = None


class PartFiles:
    """The parts of one run, below a local path or a URL."""

    def __init__(self, place: str, setting: Mapping[str, object]) -> None:
        """setting: everything that decides the results (`run_setting`)."""
        self._store = Store(place, setting, suffix=SUFFIX)
        self._files = self._store.files
        self.folder = self._store.folder

    def name(self, batch: Batch) -> str:
        """The file name for a batch, whether or not the file exists. It depends on the contents of
        the images, not on their names."""
        return self._store.name(_key(batch))

    def present(self) -> set[str]:
        """The names of all parts that exist."""
        with self._within_reach("listed"):
            return self._store.names()

    def has(self, batch: Batch) -> bool:
        with self._within_reach("looked up"):
            return self._store.has(_key(batch))

    def load(self, batch: Batch) -> Part | None:
        """The part of a batch; None if there is none, or if it is damaged."""
        content = self._store.load(_key(batch))
        return None if content is None else _part(content, batch)

    def store(self, batch: Batch, part: Part) -> None:
        """Write a part, whole or not at all."""
        with self._within_reach("written"):
            self._store.save(_key(batch), _pieces(batch, part))

    def remove(self, batch: Batch) -> None:
        with self._within_reach("removed"):
            self._store.remove(_key(batch))

    def deaths(self, batch: Batch) -> int:
        """The number of workers that died at a batch, as `expect_death` recorded them."""
        with self._within_reach("read"):
            try:
                return len(self._files.read(f"{self.name(batch)}.deaths"))
            except FileNotFoundError:
                return 0

    def expect_death(self, batch: Batch) -> None:
        """Record in advance that a worker may die at a batch."""
        count = self.deaths(batch) + 1
        with self._within_reach("written"):
            self._files.write(f"{self.name(batch)}.deaths", b"x" * count)

    def forget_deaths(self, batch: Batch) -> None:
        """Remove the record of `expect_death`."""
        with self._within_reach("removed"):
            self._files.remove(f"{self.name(batch)}.deaths")

    def clear(self) -> None:
        """Remove the parts of a finished run. Parts that cannot be removed stay, without harm."""
        with contextlib.suppress(OSError, OptionError):
            self._files.remove_all()

    def clear_abandoned(self) -> None:
        """Remove the parts of other runs that have not changed for a month. Only for a local folder
        that belongs to flawsort."""
        here = Path(self.folder)
        before = time.time() - ABANDONED_AFTER
        # Entries that cannot be listed or removed belong to others, or are already gone.
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
                "that every worker can write to."
            ) from error


def run_setting(
    bags: Mapping[str, object],
    describer: Describer,
    batches: Sequence[Batch],
    engine: str | None = None,
) -> dict[str, object]:
    """Everything that decides the results of a run: how images are embedded, the reference, and the
    images. bags: what decides a bag besides the image's content. engine: the name of the engine, if
    it is not the reference's."""
    reference = describer.reference
    content = hashlib.sha256()
    kind = "none"
    if reference is not None:
        kind = reference.kind
        engine = engine or ", ".join(one.engine.name for one in references_of(reference))
        for stored in stored_views(reference):
            for array in stored.arrays():
                content.update(_bytes(array))
    for look in describer.looks:
        for part in look.arrays().values():
            content.update(_bytes(part))
    images = "".join(digest for batch in batches for digest in batch.images.digests)
    return {
        "part": _FORMAT,
        "bags": bags,
        "method": asdict(describer.method),
        "views": describer.shapes,
        "temperature": describer.temperature,
        "spread": describer.spread,
        "heat": asdict(describer.heat),
        "reference": [kind, content.hexdigest()],
        "engine": engine,
        # Two sets with the same normals, or a fit and an assign, would share parts. In separate
        # folders, neither removes the parts of the other.
        "images": hashlib.sha256(images.encode()).hexdigest(),
        "new": all(batch.self_rows is None for batch in batches),
    }


def _key(batch: Batch) -> str:
    rows = None if batch.self_rows is None else batch.self_rows.tolist()
    return json.dumps([batch.images.digests, rows])


def _pieces(batch: Batch, part: Part) -> list[Piece]:
    """The length of the header, the header as JSON, and the arrays that it names."""
    digest_of = dict(zip(batch.images.names, batch.images.digests, strict=True))
    arrays = _arrays(part)
    header = {
        "digests": part.digests,
        "reasons": {digest_of[name]: reason for name, reason in part.reasons.items()},
        "arrays": [[name, values.dtype.str, values.shape] for name, values in arrays.items()],
    }
    text = json.dumps(header).encode()
    contents = [_bytes(values) for values in arrays.values() if values.size]
    return [len(text).to_bytes(_HEADER_BYTES, "little"), text, *contents]


def _part(content: memoryview, batch: Batch) -> Part:
    start = _HEADER_BYTES + int.from_bytes(content[:_HEADER_BYTES], "little")
    header = json.loads(bytes(content[_HEADER_BYTES:start]))
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype, shape in header["arrays"]:
        values = np.frombuffer(content, dtype, count=math.prod(shape), offset=start)
        arrays[name] = values.reshape(shape).copy()
        start += values.nbytes
    name_of = dict(zip(batch.images.digests, batch.images.names, strict=True))
    reasons = {name_of[digest]: reason for digest, reason in header["reasons"].items()}
    if not header["digests"]:
        return Part((), None, None, reasons)
    outlines = Outlines(*(arrays[name] for name in ("images", "peaks", "cells", "ends")))
    places = None
    if "boxes" in arrays:
        places = Places(arrays["boxes"], arrays["matches"], arrays["region_matches"])
    features = Features(
        arrays["scores"],
        arrays["weights"],
        arrays["vectors"],
        arrays["extents"],
        RegionFeatures(outlines, arrays["region_vectors"], arrays["region_extents"]),
        places,
    )
    return Part(tuple(header["digests"]), features, arrays.get("valid"), reasons)


def _arrays(part: Part) -> dict[str, NDArray[Any]]:
    features = part.features
    if features is None:
        return {}
    regions = features.regions
    arrays: dict[str, NDArray[Any]] = {
        "scores": features.scores,
        "weights": features.weights,
        "vectors": features.vectors,
        "extents": features.extents,
        "images": regions.outlines.images,
        "peaks": regions.outlines.peaks,
        "cells": regions.outlines.cells,
        "ends": regions.outlines.ends,
        "region_vectors": regions.vectors,
        "region_extents": regions.extents,
    }
    if features.places is not None:
        arrays |= {
            "boxes": features.places.boxes,
            "matches": features.places.matches,
            "region_matches": features.places.of_regions,
        }
    return arrays if part.valid is None else {**arrays, "valid": part.valid}


def _bytes(values: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B")

"""Bags kept on disk, so that an interrupted or repeated run computes only what is missing.

One file a bag, named by a key over the image's content, the backbone and the view: nothing in it
can go stale. One that is damaged is dropped and computed again.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools
from flawsort.core.storage import Piece
from flawsort.core.store import Store, prune

# A bag of the default backbone takes 0.34 MB: this keeps about 60,000 of them.
DEFAULT_LIMIT = 20 * 2**30
# Of an image, in pixels: the most that a file has room for.
ANY_SIZE = 2**64 - 1
_SUFFIX = ".bag"
_HEADER = struct.Struct("<4IQ")


@dataclass(frozen=True)
class Bag:
    """One image's patches: (n_patches, dim) float16, their grid, and which are valid, or None."""

    patches: NDArray[np.float16]
    grid: tuple[int, int]
    valid: Bools | None = None


def default_cache_folder() -> Path:
    """The user's cache folder for flawsort, as the operating system has it."""
    if chosen := os.environ.get("FLAWSORT_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "flawsort"


class BagCache:
    """Bags in a folder, found by image content within one setting of backbone and view.

    max_pixels: what an image may have. A bag that was made where larger ones were let in counts as
    missing, since its image may be one of these. limit: bytes of all bags together.
    """

    def __init__(
        self,
        folder: Path,
        setting: Mapping[str, Any],
        *,
        max_pixels: int = ANY_SIZE,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._folder = folder
        self._max_pixels = min(max_pixels, ANY_SIZE)
        self._limit = limit
        self._store = Store(folder, setting, suffix=_SUFFIX)

    def load(self, digest: str) -> Bag | None:
        """The bag of the image with that content; None where there is none that can be trusted."""
        content = self._store.load(digest)
        if content is None:
            return None
        bag, let_in = _unpack(content)
        return bag if let_in <= self._max_pixels else None

    def store(self, digest: str, bag: Bag) -> None:
        """Keep a bag. A full or read-only disk costs the next run time, and this one nothing."""
        with contextlib.suppress(OSError):
            self._store.save(digest, _packed(bag, self._max_pixels))

    def prune(self) -> None:
        """Remove the least recently used bags of any setting until the rest fits the limit."""
        prune(self._folder, _SUFFIX, self._limit)


def _packed(bag: Bag, max_pixels: int) -> list[Piece]:
    """What a file holds, piece by piece: the patches are written from where they lie."""
    return [
        _HEADER.pack(*bag.grid, bag.patches.shape[1], bag.valid is not None, max_pixels),
        np.ascontiguousarray(bag.patches, "<f2").data.cast("B"),
        b"" if bag.valid is None else np.packbits(bag.valid).tobytes(),
    ]


def _unpack(content: memoryview) -> tuple[Bag, int]:
    """The bag, and how many pixels images could have where it was made."""
    rows, cols, dim, masked, max_pixels = _HEADER.unpack_from(content)
    count = rows * cols
    stop = _HEADER.size + count * dim * 2
    patches = np.frombuffer(content[_HEADER.size : stop], "<f2").reshape(count, dim)
    valid = None
    if masked:
        bits = np.frombuffer(content[stop:], np.uint8)
        valid = np.unpackbits(bits, count=count).astype(bool)
    return Bag(patches.astype(np.float16), (rows, cols), valid), max_pixels

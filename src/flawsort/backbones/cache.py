"""A cache of bags on disk, so that an interrupted or repeated run computes only what is missing.

Each bag has its own file. Its name is a key of the image's content, the backbone and the view, so
it is never outdated. A damaged file is removed and its bag computed again.
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

# In bytes. The bags of an image take 0.48 MB with the preset default, so this is enough for about
# 45,000 images.
DEFAULT_LIMIT = 20 * 2**30
# In pixels or bytes: the largest size that the file format can record.
ANY_SIZE = 2**64 - 1
SUFFIX = ".bag"
_HEADER = struct.Struct("<4I2Q")


@dataclass(frozen=True)
class Bag:
    """The patches of one image: (n_patches, dim) float16, their grid, and (n_patches,) which are
    valid; None for all. needs: the bytes that decoding the image takes."""

    patches: NDArray[np.float16]
    grid: tuple[int, int]
    valid: Bools | None = None
    needs: int = 0


def default_cache_folder() -> Path:
    """$FLAWSORT_CACHE, or flawsort's folder in the operating system's cache folder of the user."""
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
    """Bags in a folder by image content, for one setting of backbone and view.

    max_pixels: the largest image that is accepted. A bag that was stored with a higher limit counts
    as missing, because its image may be too large. memory: the bytes that decoding an image may
    take; a bag whose image takes more counts as missing too, so that what is in the cache decides
    no result. limit: the size of all bags together, in bytes.
    """

    def __init__(
        self,
        folder: Path,
        setting: Mapping[str, Any],
        *,
        max_pixels: int = ANY_SIZE,
        memory: int = ANY_SIZE,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._folder = folder
        self._max_pixels = min(max_pixels, ANY_SIZE)
        self._memory = memory
        self._limit = limit
        self._store = Store(folder, setting, suffix=SUFFIX)

    def load(self, digest: str) -> Bag | None:
        """The bag of the image with that content; None if it is missing or damaged."""
        content = self._store.load(digest)
        if content is None:
            return None
        bag, accepted_pixels = _unpack(content)
        allowed = accepted_pixels <= self._max_pixels and bag.needs <= self._memory
        return bag if allowed else None

    def store(self, digest: str, bag: Bag) -> None:
        """Store a bag. Errors are ignored: on a full or read-only disk the next run is slower."""
        with contextlib.suppress(OSError):
            self._store.save(digest, _packed(bag, self._max_pixels))

    def prune(self) -> None:
        """Remove the least recently used bags of all settings until the rest fits the limit."""
        prune([(self._folder, SUFFIX)], self._limit)


def _packed(bag: Bag, max_pixels: int) -> list[Piece]:
    """The content of a file in pieces, so that the patches are written without a copy."""
    return [
        _HEADER.pack(*bag.grid, bag.patches.shape[1], bag.valid is not None, max_pixels, bag.needs),
        np.ascontiguousarray(bag.patches, "<f2").data.cast("B"),
        b"" if bag.valid is None else np.packbits(bag.valid).tobytes(),
    ]


def _unpack(content: memoryview) -> tuple[Bag, int]:
    """The bag, and the limit on pixels that it was stored with."""
    rows, cols, dim, masked, max_pixels, needs = _HEADER.unpack_from(content)
    count = rows * cols
    stop = _HEADER.size + count * dim * 2
    patches = np.frombuffer(content[_HEADER.size : stop], "<f2").reshape(count, dim)
    valid = None
    if masked:
        bits = np.frombuffer(content[stop:], np.uint8)
        valid = np.unpackbits(bits, count=count).astype(bool)
    return Bag(patches.astype(np.float16), (rows, cols), valid, needs), max_pixels

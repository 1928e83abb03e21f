"""Bags kept on disk, so that an interrupted or repeated run computes only what is missing.

One file a bag, named by a key over the image's content, the backbone and the view: nothing in it
can go stale. A file begins with the SHA-256 of the rest; one that does not match is dropped and
computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools

FORMAT = 3
# A bag of the default backbone takes 0.34 MB: this keeps about 60,000 of them.
DEFAULT_LIMIT = 20 * 2**30
# Of an image, in pixels: the most that a file has room for.
ANY_SIZE = 2**64 - 1
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
        described = json.dumps({"format": FORMAT, **setting}, sort_keys=True)
        self._setting = hashlib.sha256(described.encode()).hexdigest()

    def load(self, digest: str) -> Bag | None:
        """The bag of the image with that content; None where there is none that can be trusted."""
        path = self._path(digest)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        found = _unpack(content)
        try:
            if found is None:
                path.unlink()
            else:
                os.utime(path)  # the least recently used go first when the cache is full
        except OSError:
            pass
        if found is None:
            return None
        bag, let_in = found
        return bag if let_in <= self._max_pixels else None

    def store(self, digest: str, bag: Bag) -> None:
        """Keep a bag. A full or read-only disk costs the next run time, and this one nothing."""
        path = self._path(digest)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.writelines(_packed(bag, self._max_pixels))
            temporary.replace(path)
        except OSError:
            _remove(temporary)

    def prune(self) -> None:
        """Remove the least recently used bags until the rest fits the limit, and what processes
        left that were killed while they wrote."""
        yesterday = time.time() - 86_400
        for path in self._folder.glob("*/.*.bag.*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < yesterday:
                    path.unlink()
        try:
            found = [(path, path.stat()) for path in self._folder.glob("*/*.bag")]
        except OSError:
            return
        size = sum(stat.st_size for _, stat in found)
        for path, stat in sorted(found, key=lambda entry: entry[1].st_mtime):
            if size <= self._limit:
                break
            if _remove(path):
                size -= stat.st_size

    def _path(self, digest: str) -> Path:
        # A folder a setting and not many small ones: to open a file in one that was not used for
        # a while takes longer than to write it.
        key = hashlib.sha256(f"{digest}\n{self._setting}".encode()).hexdigest()
        return self._folder / self._setting[:16] / f"{key}.bag"


def _remove(path: Path) -> bool:
    """Whether the file is gone; a folder that lets nothing be removed is no reason to stop."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _packed(bag: Bag, max_pixels: int) -> list[bytes | memoryview]:
    """What a file holds, piece by piece: the patches are written from where they lie."""
    pieces: list[bytes | memoryview] = [
        _HEADER.pack(*bag.grid, bag.patches.shape[1], bag.valid is not None, max_pixels),
        np.ascontiguousarray(bag.patches, "<f2").data.cast("B"),
        b"" if bag.valid is None else np.packbits(bag.valid).tobytes(),
    ]
    check = hashlib.sha256()
    for piece in pieces:
        check.update(piece)
    return [check.digest(), *pieces]


def _unpack(content: bytes) -> tuple[Bag, int] | None:
    """The bag and how many pixels images could have where it was made; None if it is damaged."""
    check, payload = content[:32], memoryview(content)[32:]
    if len(payload) < _HEADER.size or hashlib.sha256(payload).digest() != check:
        return None
    rows, cols, dim, masked, max_pixels = _HEADER.unpack_from(payload)
    count = rows * cols
    stop = _HEADER.size + count * dim * 2
    patches = np.frombuffer(payload[_HEADER.size : stop], "<f2").reshape(count, dim)
    valid = None
    if masked:
        bits = np.frombuffer(payload[stop:], np.uint8)
        valid = np.unpackbits(bits, count=count).astype(bool)
    return Bag(patches.astype(np.float16), (rows, cols), valid), max_pixels

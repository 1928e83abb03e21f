"""Things that can be computed again, kept under keys: a file each, on a disk or in an object store.

A file ends with the SHA-256 of what stands before it. One that does not match counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flawsort.core.remote import as_os_error, file_system, is_url, read_bytes
from flawsort.core.storage import Content, Piece, write_whole
from flawsort.core.temporaries import clear_left_overs

FORMAT = 5
"""Of all that is kept to save time: bags, parts of batches, thumbnails, checkpoints and results of
the paper. Bump it when one of them changes its meaning; all of them are computed again then."""

_DIGEST_BYTES = 32


class Folder(Protocol):
    """Files by their names. Whatever goes wrong is an OSError."""

    def names(self) -> set[str]:
        """Of all files that are there; none where there is no such folder."""

    def has(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: Content) -> None:
        """Write a file so that it is there whole or not at all, and the folder with it."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def remove_all(self) -> None:
        """Remove the folder with all that is in it, if it is there."""


def folder_at(place: str) -> Folder:
    """The folder at a local path or a URL; it need not be there."""
    return StoredFolder(place) if is_url(place) else LocalFolder(Path(place))


@dataclass(frozen=True)
class LocalFolder:
    """A folder on a disk."""

    path: Path

    def names(self) -> set[str]:
        try:
            return {one.name for one in self.path.iterdir()}
        except FileNotFoundError:
            return set()

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def write(self, name: str, content: Content) -> None:
        write_whole(self.path / name, content, parents=True)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def remove_all(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)


@dataclass(frozen=True)
class StoredFolder:
    """What lies below a URL."""

    url: str

    def names(self) -> set[str]:
        system, path = file_system(self.url)
        try:
            with as_os_error():
                system.invalidate_cache()  # others write here too
                return {str(one).rpartition("/")[2] for one in system.ls(path, detail=False)}
        except FileNotFoundError:
            return set()

    def has(self, name: str) -> bool:
        system, path = file_system(f"{self.url}/{name}")
        with as_os_error():
            return bool(system.exists(path))

    def read(self, name: str) -> bytes:
        return read_bytes(f"{self.url}/{name}")

    def write(self, name: str, content: Content) -> None:
        write_whole(f"{self.url}/{name}", content)

    def remove(self, name: str) -> None:
        system, path = file_system(f"{self.url}/{name}")
        with as_os_error():
            if system.exists(path):
                system.rm_file(path)

    def remove_all(self) -> None:
        system, path = file_system(self.url)
        with as_os_error():
            if system.exists(path):
                system.rm(path, recursive=True)


class Store:
    """Things of one setting, in a folder of their own below a path or a URL.

    setting: all that decides what they are besides their keys. suffix: how their files end.
    """

    def __init__(self, place: str | Path, setting: Mapping[str, object], *, suffix: str) -> None:
        text = json.dumps({"format": FORMAT, **setting}, sort_keys=True, default=str)
        # A folder a setting and not many small ones: to open a file in one that was not used for a
        # while takes longer than to write it.
        of = hashlib.sha256(text.encode()).hexdigest()[:20]
        self.folder = f"{str(place).rstrip('/')}/{of}"
        self.files = folder_at(self.folder)
        self._suffix = suffix

    def name(self, key: str) -> str:
        """The name of the file of a key, whether or not it is there."""
        return hashlib.sha256(key.encode()).hexdigest()[:40] + self._suffix

    def names(self) -> set[str]:
        """Of the files that are there."""
        return {name for name in self.files.names() if name.endswith(self._suffix)}

    def has(self, key: str) -> bool:
        return self.files.has(self.name(key))

    def load(self, key: str) -> memoryview | None:
        """What is kept under a key; None where nothing is, or it cannot be read. What is damaged
        is removed."""
        name = self.name(key)
        try:
            content = unsealed(self.files.read(name))
        except OSError:
            return None
        with contextlib.suppress(OSError):
            if content is None:
                self.files.remove(name)
            elif isinstance(self.files, LocalFolder):
                os.utime(self.files.path / name)  # the least recently used go first
        return content

    def save(self, key: str, pieces: Iterable[Piece]) -> None:
        """Keep something, whole or not at all. OSError where that cannot be."""
        self.files.write(self.name(key), sealed(pieces))

    def remove(self, key: str) -> None:
        self.files.remove(self.name(key))


def sealed(pieces: Iterable[Piece]) -> Iterable[Piece]:
    """The pieces, and then the SHA-256 of them all."""
    check = hashlib.sha256()
    for piece in pieces:
        check.update(piece)
        yield piece
    yield check.digest()


def unsealed(content: bytes) -> memoryview | None:
    """What was sealed; None where it is not what was written."""
    payload, check = memoryview(content)[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).digest() == check else None


def prune(place: Path, suffix: str, limit: int) -> None:
    """Remove the least recently used files of all stores below a path, until the rest takes at
    most `limit` bytes, and what processes left that were killed while they wrote."""
    found: list[tuple[float, int, str]] = []
    for folder in _folders_in(place):
        clear_left_overs(Path(folder))
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(suffix) and not entry.name.startswith("."):
                    with contextlib.suppress(OSError):  # another process prunes it too
                        stat = entry.stat()
                        found.append((stat.st_mtime, stat.st_size, entry.path))
    size = sum(one[1] for one in found)
    for _, bytes_, path in sorted(found):
        if size <= limit:
            break
        with contextlib.suppress(OSError):  # a folder that lets nothing go is no reason to stop
            os.unlink(path)
            size -= bytes_


def _folders_in(place: Path) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []

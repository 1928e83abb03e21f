"""A key-value store for results that can be recomputed: one file each, on disk or at a URL.

Each file ends with the SHA-256 of its content. A file whose checksum does not match counts as
missing.
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

FORMAT = 7
"""The format version of everything that is stored to save time: bags, parts of batches, thumbnails,
checkpoints, and results of the paper. Increase it when the meaning of one of them changes; all of
them are then recomputed."""

_DIGEST_BYTES = 32


class Folder(Protocol):
    """A folder of files by name. All errors are raised as OSError."""

    def names(self) -> set[str]:
        """The names of all files; empty if the folder does not exist."""

    def has(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: Content) -> None:
        """Write a file atomically. Creates the folder if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    def remove_all(self) -> None:
        """Remove the folder and its content, if it exists."""


def folder_at(place: str) -> Folder:
    """The folder at a local path or a URL; it need not exist."""
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
        write_whole(self.path / name, content, parents=True, durable=False)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def remove_all(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)


@dataclass(frozen=True)
class StoredFolder:
    """A folder behind a URL."""

    url: str

    def names(self) -> set[str]:
        system, path = file_system(self.url)
        try:
            with as_os_error():
                system.invalidate_cache()  # other machines write here too
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
    """Values by key, in one folder per setting below a path or a URL.

    setting: everything that determines the values besides their keys. suffix: of the file names.
    """

    def __init__(self, place: str | Path, setting: Mapping[str, object], *, suffix: str) -> None:
        text = json.dumps({"format": FORMAT, **setting}, sort_keys=True, default=str)
        # One folder per setting instead of many small ones: opening a file in a folder that was not
        # used for a while takes longer than writing it.
        digest = hashlib.sha256(text.encode()).hexdigest()[:20]
        self.folder = f"{str(place).rstrip('/')}/{digest}"
        self.files = folder_at(self.folder)
        self._suffix = suffix

    def name(self, key: str) -> str:
        """The file name of a key, whether or not the file exists."""
        return hashlib.sha256(key.encode()).hexdigest()[:40] + self._suffix

    def names(self) -> set[str]:
        """The names of the existing files."""
        return {name for name in self.files.names() if name.endswith(self._suffix)}

    def has(self, key: str) -> bool:
        return self.files.has(self.name(key))

    def load(self, key: str) -> memoryview | None:
        """The value of a key; None if it is missing or unreadable. Damaged files are removed."""
        name = self.name(key)
        try:
            content = unsealed(self.files.read(name))
        except OSError:
            return None
        with contextlib.suppress(OSError):
            if content is None:
                self.files.remove(name)
            elif isinstance(self.files, LocalFolder):
                os.utime(self.files.path / name)  # `prune` removes the least recently used first
        return content

    def save(self, key: str, pieces: Iterable[Piece]) -> None:
        """Store a value atomically. Raises OSError if that fails."""
        self.files.write(self.name(key), sealed(pieces))

    def remove(self, key: str) -> None:
        self.files.remove(self.name(key))


def sealed(pieces: Iterable[Piece]) -> Iterable[Piece]:
    """The pieces, followed by the SHA-256 of all of them."""
    check = hashlib.sha256()
    for piece in pieces:
        check.update(piece)
        yield piece
    yield check.digest()


def unsealed(content: bytes) -> memoryview | None:
    """The content without its checksum; None if the checksum does not match."""
    payload, check = memoryview(content)[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return payload if hashlib.sha256(payload).digest() == check else None


@dataclass(frozen=True)
class StoredFile:
    """A file of a store on a disk. used: when it was last read or written, in seconds since 1970.
    size: in bytes."""

    used: float
    size: int
    path: str


def stored_files(place: Path, suffix: str) -> list[StoredFile]:
    """The files of all stores below a path."""
    found = []
    for folder in _folders_in(place):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(suffix) and not entry.name.startswith("."):
                    with contextlib.suppress(OSError):  # another process prunes it too
                        stat = entry.stat()
                        found.append(StoredFile(stat.st_mtime, stat.st_size, entry.path))
    return found


def prune(stores: Iterable[tuple[Path, str]], limit: int) -> int:
    """Remove the least recently used files of all stores below paths until the rest takes at most
    `limit` bytes, and the temporary files of killed processes. Returns the number of bytes of the
    removed files. stores: paths, each with the suffix of the files there."""
    found: list[StoredFile] = []
    for place, suffix in stores:
        for folder in _folders_in(place):
            clear_left_overs(Path(folder))
        found += stored_files(place, suffix)
    before = size = sum(file.size for file in found)
    for file in sorted(found, key=lambda one: (one.used, one.size, one.path)):
        if size <= limit:
            break
        with contextlib.suppress(OSError):  # go on if a file cannot be removed
            os.unlink(file.path)
            size -= file.size
    return before - size


def _folders_in(place: Path) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []

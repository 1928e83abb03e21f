"""A folder of files, on a disk or in an object store: listed, read, and written whole."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from flawsort.core.remote import as_os_error, file_system, is_url, read_bytes, write_whole


class Folder(Protocol):
    """Files by their names. Whatever goes wrong is an OSError."""

    def names(self) -> set[str]:
        """Of all files that are there; none where there is no such folder."""

    def has(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: bytes) -> None:
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

    def write(self, name: str, content: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f".{name}.{uuid4().hex[:12]}"
        try:
            temporary.write_bytes(content)
            temporary.replace(self.path / name)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                temporary.unlink(missing_ok=True)
            raise

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

    def write(self, name: str, content: bytes) -> None:
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

"""One full disk: the file system fails, or the process is killed, at any step of a writer.

A step is whatever Python does to files below a folder: it makes or opens a file to write to it,
renames, removes, copies. Python announces each of them to its audit hooks before it is done. What
SQLite does to its files it does itself; there, a step is a statement that changes a database.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flawsort.core import storage

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PATHS = {
    "open": (0,),
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.chmod": (0,),
    "sql": (0,),
}
# How a statement that changes a database begins.
_CHANGES = ("begin", "commit", "create", "delete", "drop", "insert", "replace", "update")


class Killed(BaseException):
    """Nothing catches it, and from here on nothing is done to any file."""


@dataclass
class Fault:
    """What to do at a step. at: the number of the step, from 0; None to count only. lasting: at
    every later step too. only: steps of one kind. sql: statements count as steps; only `kill` can
    happen there. steps: those that there were. met: the kind of the step that failed."""

    folder: Path
    action: Callable[[], None] | None = None
    at: int | None = None
    lasting: bool = False
    only: str = ""
    sql: bool = False
    steps: list[str] = field(default_factory=list)
    met: str = ""

    def meet(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._touches(event, arguments):
            return
        number = len(self.steps)
        self.steps.append(f"{event} {arguments[0]}")
        if self.at is None or self.action is None:
            return
        if number == self.at or (self.lasting and number > self.at):
            self.met = self.met or event
            self.action()

    def _touches(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if event not in _PATHS or (self.only and event != self.only):
            return False
        if event == "sql" and not self.sql:
            return False
        if event == "open" and not _writes(*arguments[1:3]):
            return False
        paths = self._paths(event, arguments)
        return any(path.is_relative_to(self.folder) for path in paths)

    def _paths(self, event: str, arguments: tuple[Any, ...]) -> list[Path]:
        descriptor = arguments[-1] if event in ("os.remove", "os.rmdir") else -1
        return [_path(arguments[place], descriptor) for place in _PATHS[event]]


_faults: list[Fault] = []
_installed: list[bool] = []
_connect = sqlite3.connect


@contextmanager
def watched(fault: Fault) -> Iterator[Fault]:
    """Let a fault happen within this block. Counts the steps of `fault.folder`."""
    if not _installed:  # a hook stays as long as the process does
        sys.addaudithook(lambda event, arguments: _hook(event, arguments))
        sqlite3.connect = _traced  # type: ignore[assignment]
        _installed.append(True)
    _faults.append(fault)
    try:
        yield fault
    finally:
        _faults.remove(fault)


class Disk:
    """Stands for what a power failure leaves: the files that were waited for.

    synced: their sizes when they were, by file. moved: what took its place. too_early: what did so
    before its content was on the disk. names_to_come: folders that have a new name, of a file or of
    a folder, which is not on the disk yet.
    """

    def __init__(self) -> None:
        self.synced: dict[tuple[int, int], int] = {}
        self.moved: list[Path] = []
        self.too_early: list[Path] = []
        self.names_to_come: set[Path] = set()

    def sync(self, file: int) -> None:
        """Takes the place of `durable._sync`."""
        found = os.fstat(file)
        self.synced[found.st_dev, found.st_ino] = found.st_size
        self.names_to_come.discard(Path(os.readlink(f"/proc/self/fd/{file}")))

    @contextmanager
    def watching(self, folder: Path) -> Iterator[None]:
        """Note what is moved below a folder within this block."""
        with watched(_Moves(folder, self)):
            yield

    def note(self, source: Path, target: Path) -> None:
        files = [path for path in (source, *source.rglob("*")) if path.is_file()]
        self.moved.append(target)
        self.too_early += [path for path in files if not self._is_safe(path)]
        self.names_to_come.add(target.parent)

    def _is_safe(self, path: Path) -> bool:
        found = path.stat()
        return self.synced.get((found.st_dev, found.st_ino)) == found.st_size


class _Moves(Fault):
    def __init__(self, folder: Path, disk: Disk) -> None:
        super().__init__(folder)
        self.disk = disk

    def meet(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("os.rename", "os.mkdir") or not self._touches(event, arguments):
            return
        path = _path(arguments[0], -1)
        if event == "os.rename":
            self.disk.note(path, _path(arguments[1], -1))
        elif not path.exists():  # mkdir also asks for folders that are there
            self.disk.names_to_come.add(path.parent)


def error(name: str) -> Callable[[], None]:
    """An action: the system refuses."""
    code = getattr(errno, name)

    def refuse() -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def no_space(path: str | None = None) -> OSError:
    """The error of a full disk. path: of the file that it names, if it names one."""
    about = () if path is None else (path,)
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *about)


def full_disk(*_: object, **__: object) -> None:
    """Stands for a function that writes: the disk is full."""
    raise no_space()


def killed() -> None:
    """An action: to a file this looks as if the process were killed; use it with lasting=True."""
    raise Killed


def kill() -> None:
    """An action: the process is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def full_after(n_bytes: int) -> Iterator[None]:
    """No file gets longer than this: writing more is refused in the middle of it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def as_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process remembers of the folders that it has cleared is forgotten."""
    monkeypatch.setattr(storage, "_cleared", set())


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for fault in list(_faults):
        fault.meet(event, arguments)


def _traced(path: Any, *given: Any, **options: Any) -> sqlite3.Connection:
    """A connection whose statements are steps. SQLite tells of them when it is too late to raise an
    exception."""
    connection = _connect(path, *given, **options)
    connection.set_trace_callback(partial(_statement, path))
    return connection


def _statement(path: Any, text: str) -> None:
    if text.split(maxsplit=1)[0].lower() in _CHANGES:
        for fault in list(_faults):
            fault.meet("sql", (path, text))


def _writes(mode: str | None, flags: int) -> bool:
    return bool(flags & _WRITING) if mode is None else any(letter in mode for letter in "wax+")


def _path(value: Any, descriptor: int) -> Path:
    if isinstance(value, int):  # an open file: it was announced when it was opened
        return Path()
    path = Path(os.fsdecode(value))
    if descriptor >= 0 and not path.is_absolute():
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")) / path
    return path.absolute()

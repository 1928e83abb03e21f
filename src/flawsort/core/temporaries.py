"""Temporary paths next to their final path, and the cleanup of those that killed processes left.

A temporary name holds the final name, and the machine and process that made it:
.NAME.KIND-MACHINE-PID-N. A file .NAME.flawsort-claim is locked by the process that works on NAME.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import platform
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["partial", "old", "kept", "finished"]
"""partial: not complete yet. old: a folder that is being replaced. kept: a backup of a file that is
being replaced. finished: a complete folder that could not be moved to its final path; the user has
to move it, and it never counts as abandoned."""

# In seconds. No process works for a day without creating a file, so older ones are abandoned.
ABANDONED_AFTER = 86_400
# In bytes. File names have at most 255, and a temporary name adds to the final one.
_LONGEST = 180
_CLAIM = ".flawsort-claim"
_NAME = re.compile(r"\.(.+)\.(partial|old|kept)-([0-9a-f]{6})-(\d+)-\d+", re.DOTALL)

# Follow no link and wait for no pipe, where there are such.
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

_numbers = itertools.count()
# Names, not paths: temporary names are unique, while several paths may lead to one folder.
_in_use: set[str] = set()


@contextmanager
def temporary(place: Path) -> Iterator[Path]:
    """A unique temporary path next to a final path. It is removed after an error."""
    path = beside(place, "partial")
    with claimed(path):
        try:
            yield path
        except BaseException:
            remove(path)
            raise


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder among the temporary files of the system that only this user can read, removed at
    the end of the block. `clear_abandoned` removes what killed processes left."""
    # A name that nobody can guess: another user could take it first.
    place = Path(tempfile.gettempdir()) / f"flawsort-{secrets.token_hex(8)}"
    with claimed(beside(place, "partial")) as folder:
        folder.mkdir(0o700)
        try:
            yield folder
        finally:
            remove(folder)


def clear_abandoned() -> None:
    """Remove the private folders of killed processes."""
    clear_left_overs(Path(tempfile.gettempdir()))


@contextmanager
def claimed(path: Path) -> Iterator[Path]:
    """Mark a path as in use, so that no thread of this process removes it as abandoned."""
    _in_use.add(path.name)
    try:
        yield path
    finally:
        _in_use.discard(path.name)


@contextmanager
def sole_worker(place: Path) -> Iterator[bool]:
    """Whether nobody else is within such a block for this path; True if that cannot be found out.

    The lock ends with the process, however it ends.
    """
    path = place.with_name(f".{_shortened(place.name)}{_CLAIM}")
    try:
        lock = _locked(path)
    except BlockingIOError:
        yield False
        return
    except OSError:  # such as a network drive without locks
        yield True
        return
    try:
        yield True
    finally:
        _unlock(lock, path)


def beside(place: Path, kind: Kind) -> Path:
    """A new temporary path next to a final path."""
    return place.with_name(temporary_name(place.name, kind))


def temporary_name(name: str, kind: Kind) -> str:
    """A new temporary name for a file or folder that gets the name `name` in the end."""
    return f".{_shortened(name)}.{kind}-{_machine()}-{os.getpid()}-{next(_numbers)}"


def named_for(place: Path, kind: Kind) -> list[Path]:
    """The temporary paths of a kind that belong to a final path, sorted by name."""
    found = _listed(place.parent, kind)
    return [path for path, name in found if name[1] == _shortened(place.name)]


def left_over(folder: Path, kind: Kind) -> list[tuple[Path, str]]:
    """The abandoned temporary paths of a kind in a folder, each with its final name (shortened if
    long)."""
    return [(path, name[1]) for path, name in _listed(folder, kind) if _abandoned(path, name)]


def has_left_overs(folder: Path) -> bool:
    """Whether a killed process left something in a folder, or somebody works there now."""
    claimed = any(name.endswith(_CLAIM) for name in _hidden(folder))
    return claimed or bool(left_over(folder, "partial") or left_over(folder, "kept"))


def clear_left_overs(folder: Path) -> None:
    """Remove the partial files and folders that killed processes left in a folder."""
    for path, _ in left_over(folder, "partial"):
        remove(path)
    for name in _hidden(folder):
        if name.endswith(_CLAIM):
            with suppress(OSError):  # somebody has it
                _unlock(_locked(folder / name, create=False), folder / name)


def remove(path: Path) -> None:
    """Remove a file or a folder. Errors are ignored."""
    if sys.platform == "win32":
        _allow_removal(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _allow_removal(path: Path) -> None:
    """Of a file, or of all files of a folder: read-only ones could not be removed."""
    inside = [Path(place) / name for place, _, names in os.walk(path) for name in names]
    for one in inside or [path]:
        with suppress(OSError):
            if not one.is_symlink():
                os.chmod(one, stat.S_IWRITE | stat.S_IREAD)


def _listed(folder: Path, kind: Kind) -> list[tuple[Path, re.Match[str]]]:
    """The temporary paths of a kind in a folder; none if the folder cannot be listed."""
    found = [(folder / name, _NAME.fullmatch(name)) for name in _hidden(folder)]
    return [(path, match) for path, match in found if match and match[2] == kind]


def _hidden(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name[0] == ".")
    except OSError:
        return []


def _locked(path: Path, *, create: bool = True) -> int:
    """A lock on an empty file, as its open descriptor. BlockingIOError if somebody has it, another
    OSError if the system has no locks."""
    flags = os.O_RDWR | _CAREFUL | (os.O_CREAT if create else 0)
    while True:
        file = os.open(path, flags, 0o644)
        try:
            if os.fstat(file).st_size:  # not ours
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            _lock(file)
            with suppress(FileNotFoundError):  # the last one to have it has removed it meanwhile
                if os.path.samestat(os.fstat(file), os.stat(path)):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _lock(file: int) -> None:
    if sys.platform == "win32":
        from flawsort.core import windows

        windows.lock(file)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock(lock: int, path: Path) -> None:
    if sys.platform == "win32":  # no open file can be removed there, also not by the next worker
        os.close(lock)
        remove(path)
        return
    try:
        with suppress(OSError):  # its folder may have been replaced, and another one locks it there
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                remove(path)
    finally:
        os.close(lock)


def _abandoned(path: Path, name: re.Match[str]) -> bool:
    """Whether a temporary is abandoned: its process has ended, or it has not changed for a day."""
    if path.name in _in_use:
        return False
    machine, process = name[3], int(name[4])
    if machine == _machine() and (process == os.getpid() or not _alive(process)):
        return True
    try:
        return path.stat().st_mtime < time.time() - ABANDONED_AFTER
    except OSError:
        return False


def _alive(process: int) -> bool:
    """Whether a process runs on this machine; True if that cannot be found out."""
    if sys.platform == "win32":
        from flawsort.core import windows

        return windows.is_alive(process)
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def _shortened(name: str) -> str:
    if len(os.fsencode(name)) <= _LONGEST:
        return name
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


@cache
def _machine() -> str:
    """A hash of this machine's name. Machines may share a folder, and each has its own PIDs."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]

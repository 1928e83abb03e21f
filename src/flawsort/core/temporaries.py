"""Temporary names beside a place, and what killed processes left under such names.

A name says of what it is, and which process of which machine made it: .NAME.KIND-MACHINE-PID-N.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["partial", "old", "kept", "finished"]
"""partial: not whole yet. old: a folder that is giving way to a new one. kept: a copy of a file
that is being replaced. finished: a folder that is whole and could not be moved to its place; it is
a person's to move, and never counts as left over."""

# In seconds. Nobody writes for a day without making a file: what is older is nobody's.
ABANDONED_AFTER = 86_400
# With what is added to it, a name has at most 255 bytes.
_LONGEST = 180
_NAME = re.compile(r"\.(.+)\.(partial|old|kept)-([0-9a-f]{6})-(\d+)-\d+", re.DOTALL)

_numbers = itertools.count()
# Names and not paths: a folder may be reached by several, and no two temporary names are alike.
_in_use: set[str] = set()


@contextmanager
def temporary(place: Path) -> Iterator[Path]:
    """A name beside a place that nobody else has. After an error nothing is left there."""
    path = beside(place, "partial")
    with claimed(path):
        try:
            yield path
        except BaseException:
            remove(path)
            raise


@contextmanager
def claimed(path: Path) -> Iterator[Path]:
    """While a path is in use, no thread of this process takes it for left over."""
    _in_use.add(path.name)
    try:
        yield path
    finally:
        _in_use.discard(path.name)


def beside(place: Path, kind: Kind) -> Path:
    """A new temporary path beside a place."""
    return place.with_name(temporary_name(place.name, kind))


def temporary_name(name: str, kind: Kind) -> str:
    """A new temporary name for what will be called `name`."""
    return f".{_shortened(name)}.{kind}-{_machine()}-{os.getpid()}-{next(_numbers)}"


def named_for(place: Path, kind: Kind) -> list[Path]:
    """The temporary paths of a kind beside a place that are of it, in the order of their names."""
    found = _listed(place.parent, kind)
    return [path for path, name in found if name[1] == _shortened(place.name)]


def left_over(folder: Path, kind: Kind) -> list[tuple[Path, str]]:
    """What processes left in a folder that were killed, and the name of that of which it is."""
    return [(path, name[1]) for path, name in _listed(folder, kind) if _abandoned(path, name)]


def clear_left_overs(folder: Path) -> None:
    """Remove what processes left in a folder that were killed while they wrote to it."""
    for path, _ in left_over(folder, "partial"):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder, as far as that is allowed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _listed(folder: Path, kind: Kind) -> list[tuple[Path, re.Match[str]]]:
    """Nothing where the folder cannot be listed."""
    try:
        names = sorted(name for name in os.listdir(folder) if name[0] == ".")
    except OSError:
        return []
    found = [(folder / name, _NAME.fullmatch(name)) for name in names]
    return [(path, match) for path, match in found if match and match[2] == kind]


def _abandoned(path: Path, name: re.Match[str]) -> bool:
    """Whether nobody will go on with it: its process has ended, or nobody did for a day."""
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
    """Whether a process of this machine is there, as far as that can be known."""
    if sys.platform == "win32":  # there, asking would end it
        return True
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
    """Folders may be shared by machines, which count their processes each on its own."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]

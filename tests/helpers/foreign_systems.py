"""Windows and macOS as far as files go, simulated on the system that runs the tests.

Windows: an open file cannot be moved, replaced or removed, nor a folder that holds one; no folder
takes the place of another; no file that is read-only is removed; links need a privilege; some names
cannot exist, nor paths of more than 259 characters, with C:\\here in front, and folders of 247;
there is no fork, no fcntl and no file mode. macOS: names that differ only in case or
in how an accent is written are one name.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import importlib
import io
import os
import re
import sqlite3
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from helpers.faults import Fault, watched

NEEDS_PROC = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="finds out in /proc which files are open"
)
# What os has on the systems of Unix only.
NOT_ON_WINDOWS = (
    "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_SYNC", "chown", "fork", "fchmod", "fchown",
    "geteuid", "getuid", "getgid", "getpgid", "killpg", "mkfifo", "mknod", "nice", "pread",
    "pwrite", "sched_getaffinity", "sendfile", "setsid", "statvfs", "sysconf", "uname", "wait",
)  # fmt: skip
_NO_NAME = re.compile(r'[<>:"|?*\\\x00-\x1f]|[ .]$')
# Of a path, and of a folder.
_LONGEST, _LONGEST_FOLDER = 259, 247
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]) *(\..*)?", re.IGNORECASE)


def open_files() -> set[Path]:
    """The regular files that this process has open or mapped, whoever opened them."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(Path(os.readlink(entry)))
        except OSError:  # of this very listing
            continue
    for line in Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines():
        found.add(Path(line.partition("/")[1] + line.partition("/")[2]))
    return {path for path in found if path.is_file()}


class Windows(Fault):
    """Refuses below a folder what Windows refuses. refused: what was, in order."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.resolve())
        self.refused: list[str] = []

    def meet(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._touches(event, arguments):
            return
        paths = [path for path in self._paths(event, arguments) if path.is_relative_to(self.folder)]
        if event in ("open", "os.mkdir", "os.rename"):
            self._check_name(event, paths[-1])
        if event in ("os.rename", "os.remove", "os.rmdir"):
            for path in paths:
                self._check_free(event, path)
        if event == "os.rename" and len(paths) == 2 and paths[1].is_dir():
            self._refuse(event, paths[1], PermissionError(errno.EACCES, "Access is denied"))
        if event == "os.symlink":
            why = "A required privilege is not held by the client"
            self._refuse(event, paths[-1], OSError(errno.EINVAL, why))

    def _check_name(self, event: str, path: Path) -> None:
        for part in path.relative_to(self.folder).parts:
            if _NO_NAME.search(part) or _DEVICE.fullmatch(part):
                error = OSError(errno.EINVAL, "The name is incorrect", str(path))
                self._refuse(event, path, error)
        shown = f"C:\\here\\{path.relative_to(self.folder)}"
        if len(shown) > (_LONGEST_FOLDER if event == "os.mkdir" else _LONGEST):
            why = "No such file or directory"  # Windows says no more than that
            self._refuse(event, path, FileNotFoundError(errno.ENOENT, why, str(path)))

    def _check_free(self, event: str, path: Path) -> None:
        held = [one for one in open_files() if one == path or one.is_relative_to(path)]
        if held:
            why = "The process cannot access the file because it is being used by another process"
            self._refuse(event, path, PermissionError(errno.EACCES, why, str(held[0])))
        target = event != "os.rename" and path.is_file() and not path.is_symlink()
        if target and not path.stat().st_mode & stat.S_IWRITE:
            self._refuse(event, path, PermissionError(errno.EACCES, "Access is denied", str(path)))

    def _refuse(self, event: str, path: Path, error: OSError) -> None:
        self.refused.append(f"{event} {path.relative_to(self.folder).as_posix()}")
        raise error


class _Lacking(ModuleType):
    """A module as another system has it. changed: what it has there. without: what it lacks."""

    def __init__(
        self, real: ModuleType, changed: dict[str, Any], without: tuple[str, ...] = ()
    ) -> None:
        super().__init__(real.__name__)
        self._real, self._without = real, without
        self.__dict__.update(changed)

    def __getattr__(self, name: str) -> Any:
        if name in self._without:
            raise AttributeError(f"module '{self._real.__name__}' has no attribute '{name}'")
        return getattr(self._real, name)


@contextmanager
def windows(folder: Path, *, alive: Callable[[int], bool] | None = None) -> Iterator[Windows]:
    """Let flawsort run on Windows within this block, with its files below a folder. alive: whether
    another process runs; None for none but this one."""
    system = Windows(folder)
    with pytest.MonkeyPatch.context() as patch, watched(system):
        patch.setitem(sys.modules, "msvcrt", _msvcrt())
        for module in ("fcntl", "resource", "pwd", "grp", "termios"):
            patch.setitem(sys.modules, module, None)
        for name, value in _api(alive or (lambda process: process == os.getpid())).items():
            patch.setattr(ctypes, name, value, raising=False)
        _import_for_windows(patch)
        here = _Lacking(os, {"name": "nt", "kill": _no_kill, "open": _open_file}, NOT_ON_WINDOWS)
        platform = _Lacking(sys, {"platform": "win32"})
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "flawsort" and module is not None:
                for own, stand_in in ((os, here), (sys, platform)):
                    if module.__dict__.get(own.__name__) is own:
                        patch.setattr(module, own.__name__, stand_in)
        yield system


def _import_for_windows(patch: pytest.MonkeyPatch) -> None:
    """flawsort.core.windows can be imported on Windows only."""
    with pytest.MonkeyPatch.context() as short:
        short.setattr(sys, "platform", "win32")
        sys.modules.pop("flawsort.core.windows", None)
        made = importlib.import_module("flawsort.core.windows")
    patch.setitem(sys.modules, "flawsort.core.windows", made)
    patch.setattr("flawsort.core.windows", made)


def _no_kill(process: int, signal: int) -> None:
    raise AssertionError("os.kill ends the process on Windows, whatever the signal")


def _open_file(path: Any, flags: int, *mode: int) -> int:
    """Windows opens no folder."""
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return os.open(path, flags, *mode)


def _msvcrt() -> ModuleType:
    """Its locks, by those of this system."""

    def locking(file: int, mode: int, n_bytes: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    made = ModuleType("msvcrt")
    made.__dict__.update(locking=locking, LK_NBLCK=2)
    return made


def _api(alive: Callable[[int], bool]) -> dict[str, Any]:
    """What ctypes has on Windows: processes and the memory, of 16 GB."""

    class Call:
        def __init__(self, does: Callable[..., int]) -> None:
            self.does, self.restype = does, None

        def __call__(self, *arguments: Any) -> int:
            return self.does(*arguments)

    def memory_status(status: Any) -> int:
        assert status._obj[0] == 64
        status._obj[1] = 16 * 2**30
        return 1

    def exit_code(handle: Any, code: Any) -> int:
        code._obj.value = 259
        return 1

    kernel = SimpleNamespace(
        OpenProcess=Call(lambda access, inherit, process: 7 if alive(process.value) else 0),
        GetExitCodeProcess=Call(exit_code),
        CloseHandle=Call(lambda handle: 1),
        GlobalMemoryStatusEx=Call(memory_status),
    )
    return {"WinDLL": lambda name, **options: kernel, "get_last_error": lambda: 87}


class OneName:
    """The names below a folder, as macOS and Windows look for them: neither case nor how an accent
    is written matters."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder.resolve())
        self._listdir = os.listdir

    def real(self, path: Any) -> Any:
        """The path as it was first written, if there is one."""
        if not isinstance(path, str | os.PathLike):
            return path
        text = os.fspath(path)
        if not isinstance(text, str) or not os.path.abspath(text).startswith(f"{self.folder}/"):
            return path
        place = self.folder
        for part in os.path.abspath(text)[len(self.folder) + 1 :].split("/"):
            place = f"{place}/{self._there(place, part)}"
        return place

    def _there(self, folder: str, part: str) -> str:
        try:
            names = self._listdir(folder)
        except OSError:
            return part
        return next((name for name in names if _one(name) == _one(part)), part)


def _one(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


@contextmanager
def one_name_in_any_case(folder: Path) -> Iterator[OneName]:
    """Let files below a folder be found in any case within this block."""
    names = OneName(folder)
    with pytest.MonkeyPatch.context() as patch:
        for module, function, n_paths in (
            *((os, name, 1) for name in _ONE_PATH),
            *((os, name, 2) for name in ("rename", "replace", "link", "symlink")),
            (io, "open", 1),
            (builtins, "open", 1),
            (sqlite3, "connect", 1),
        ):
            patch.setattr(module, function, _looked_up(getattr(module, function), names, n_paths))
        yield names


_ONE_PATH = (
    "stat", "lstat", "open", "mkdir", "rmdir", "unlink", "remove", "listdir", "scandir", "access",
    "chmod", "utime", "readlink",
)  # fmt: skip


def _looked_up(real: Callable[..., Any], names: OneName, n_paths: int) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        paths = arguments[:n_paths]
        if options.get("dir_fd") is None:
            paths = tuple(names.real(path) for path in paths)
        return real(*paths, *arguments[n_paths:], **options)

    return call

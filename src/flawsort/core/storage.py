"""Write files and folders atomically. No other module renames files or folders.

Everything is written under a temporary name next to its final path and moved there at the end. An
error removes the temporary. Those of a killed process are removed when the next process writes to
the same folder.

What is durable is on the disk before it takes its place, so that it is there after a power failure,
too. What can be computed again need not be: waiting for the disk takes milliseconds for each file.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, TypeAlias

from flawsort.core.durable import flush, flush_folder, flush_names
from flawsort.core.remote import as_os_error, file_system, is_url
from flawsort.core.temporaries import (
    beside,
    claimed,
    clear_left_overs,
    left_over,
    named_for,
    remove,
    temporary,
    temporary_name,
)

Piece: TypeAlias = bytes | memoryview
Content: TypeAlias = str | Piece | Iterable[Piece] | Callable[[IO[bytes]], object]
"""The content of a file: text, bytes, several pieces of bytes, or a function that writes it."""

# In seconds. Windows moves no file that another program, such as a virus scanner, has open.
PATIENCE = 2.0
# Characters of a path that Windows takes unless it is set to take more; of a folder 12 fewer.
LONGEST_ON_WINDOWS = 259
# In bytes: of files that are replaced together with others.
LARGEST_KEPT = 2**32
# Error codes of systems that cannot exchange two folders.
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}

# Folders in which this process has already removed abandoned temporary files.
_cleared: set[Path] = set()


class Unpublished(OSError):  # noqa: N818
    """A folder is complete but could not be moved to its final path; __cause__ has the reason.

    kept: where the folder is now.
    """

    def __init__(self, kept: Path) -> None:
        super().__init__(f"The folder is whole, in '{kept}'.")
        self.kept = kept


def write_whole(
    place: str | Path, content: Content, *, parents: bool = False, durable: bool = True
) -> None:
    """Write a file atomically: it is complete or does not exist. place: a path, or a URL as text.
    parents: create missing parent folders."""
    if is_url(place):
        _write_to_store(str(place), content)
        return
    with (
        new_file(Path(place), parents=parents, durable=durable) as partial,
        partial.open("wb") as file,
    ):
        _fill(file, content)


@contextmanager
def new_file(
    place: Path,
    *,
    parents: bool = False,
    durable: bool = True,
    before_publish: Callable[[], None] | None = None,
) -> Iterator[Path]:
    """A temporary path to write to, which becomes the file at `place` at the end. A link stays a
    link. A pipe or a device is written to directly. before_publish: as for `new_folder`."""
    replacing = place.exists()
    if replacing and not place.is_file():
        yield place
        return
    if place.is_symlink():
        place = place.resolve()
    options = (replacing, parents, durable, before_publish)
    with _length_explained(), _file_in(place, *options) as partial:
        yield partial


@contextmanager
def _file_in(
    place: Path,
    replacing: bool,
    parents: bool,
    durable: bool,
    before_publish: Callable[[], None] | None,
) -> Iterator[Path]:
    """As for `new_file`."""
    if parents:
        _make_folder(place.parent, durable=durable)
    if place.parent not in _cleared:  # once: listing a folder with many files is slow
        clear_left_overs(place.parent)
        _cleared.add(place.parent)
    if replacing:
        _check_writable(place)
    with temporary(place) as partial:
        yield partial
        if durable:
            flush(partial)
        if replacing:
            _keep_mode(place, partial)
        if before_publish is not None:
            before_publish()
        _move(partial, place)
        if durable:
            flush_names(place.parent)


@contextmanager
def new_folder(
    place: Path,
    *,
    replace: bool = True,
    rescue: bool = False,
    durable: bool = True,
    before_publish: Callable[[], None] | None = None,
) -> Iterator[Path]:
    """An empty folder to fill, which becomes the folder at `place` at the end.

    replace: whether an existing folder is replaced once the new one is complete (call `recover`
    before you test whether it exists); if False, an existing folder is an error. before_publish:
    called when the new folder is complete; it may raise to prevent the move. rescue: keep a
    complete folder that cannot be moved to `place` next to it, and raise Unpublished with its path.
    """
    place = place.resolve()
    with _length_explained():
        _make_folder(place.parent, durable=durable)
    clear_left_overs(place.parent)
    with claimed(beside(place, "partial")) as partial:
        try:
            with _length_explained():
                partial.mkdir()
                yield partial
        except BaseException:
            remove(partial)
            raise
        try:
            if durable:
                flush_folder(partial)
            if before_publish is not None:
                before_publish()
            replaced = _publish(partial, place, replace)
        except BaseException as error:
            if not rescue:
                remove(partial)
                raise
            kept = _rescued(partial, place)
            if isinstance(error, Exception):
                raise Unpublished(kept) from error
            raise
        if durable:
            flush_names(place.parent)
        if replaced is not None:
            remove(replaced)


@contextmanager
def _length_explained() -> Iterator[None]:
    """Windows says of a path that is too long only that it does not exist."""
    try:
        yield
    except FileNotFoundError as error:
        path = str(error.filename)
        if sys.platform != "win32" or len(path) <= LONGEST_ON_WINDOWS - 12:
            raise
        why = (
            f"a path of {len(path)} characters, and Windows takes {LONGEST_ON_WINDOWS} unless its "
            "setting LongPathsEnabled allows more. Change it, or choose a shorter path"
        )
        raise OSError(errno.ENAMETOOLONG, why, path) from error


def recover(place: Path) -> None:
    """Restore a folder if a process was killed between the two moves that replace it."""
    place = place.resolve()
    abandoned = {path for path, _ in left_over(place.parent, "old")}
    for old in named_for(place, "old"):
        if old in abandoned and place.exists():
            remove(old)
        elif old in abandoned:
            _move(old, place)


def replace_together(
    folder: Path,
    contents: Mapping[str, Content],
    *,
    hold: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Replace several files of a folder in one transaction: all of them, or none.

    hold: entered when everything is on the disk, until the files are in their places; it may raise
    to prevent that.

    The last file decides, because it holds the SHA-256 of the others. If the process is killed
    before that file is replaced, `read_known` still reads the old versions of the others, and
    `settle` restores them.
    """
    *others, last = contents
    kept: dict[str, Path] = {}
    with ExitStack() as stack:
        fresh = {name: stack.enter_context(temporary(folder / name)) for name in contents}
        for name, content in contents.items():
            with fresh[name].open("wb") as file:
                _fill(file, content)
            flush(fresh[name])
        try:
            for name in others:
                if (folder / name).exists():
                    kept[name] = stack.enter_context(_copy(folder / name))
                    flush(kept[name])
            flush_names(folder)
            with hold():
                _move_all(folder, fresh)
        except BaseException:
            if fresh[last].exists():
                _undo(folder, kept, [name for name in others if not fresh[name].exists()])
            raise
    flush_names(folder)
    for path in kept.values():
        remove(path)


def _move_all(folder: Path, fresh: Mapping[str, Path]) -> None:
    """Move files to their places, the last one when the others are there."""
    for place, (name, path) in enumerate(fresh.items(), 1):
        _check_writable(folder / name)
        _keep_mode(folder / name, path)
        if place == len(fresh):
            flush_names(folder)
        _move(path, folder / name)


def settle(folder: Path, hashes: Mapping[str, str]) -> None:
    """Finish a `replace_together` that was killed: restore old versions where they are the valid
    ones, and remove temporary files. hashes: the valid SHA-256 of each file of the folder."""
    for path, name in left_over(folder, "kept"):
        known = hashes.get(name)
        if known is not None and _holds(path, known) and not _holds(folder / name, known):
            _move(path, folder / name)
        else:
            remove(path)
    clear_left_overs(folder)


def read_known(path: Path, known: str) -> bytes | None:
    """The content of the file, or of its backup, with this SHA-256; None if neither has it."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() == known:
        return content
    return next(
        (kept.read_bytes() for kept in named_for(path, "kept") if _holds(kept, known)), None
    )


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def append(place: Path, content: bytes, at: int) -> None:
    """Add bytes to a file that only grows, and put them on the disk; the file is made if there is
    none. at: its length before.

    If the process is killed meanwhile, the same call writes what is missing, and nothing twice. If
    somebody else has changed the file after `at`, the bytes are added at its end.
    """
    new = not place.exists()
    with place.open("ab+") as file:
        file.seek(at)
        there = file.read(len(content))
        # At the end, wherever it was read.
        file.write(content[len(there) :] if content.startswith(there) else content)
    flush(place)
    if new:
        flush_names(place.parent)


def try_writing(place: Path) -> None:
    """Check before hours of work that a file or folder can be written; raise the OSError if not.

    Creates missing parent folders and removes abandoned temporary files, but changes nothing else.
    """
    place = place.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    clear_left_overs(place.parent)
    with temporary(place) as probe:
        _check_writable(place)
        probe.open("xb").close()
        probe.unlink()


def _holds(path: Path, known: str) -> bool:
    """False for what is no file of usual size, which could be read without end."""
    try:
        found = path.lstat()
        usual = stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_KEPT
        return usual and sha256(path) == known
    except OSError:
        return False


def _fill(file: IO[bytes], content: Content) -> None:
    if callable(content):
        content(file)
    elif isinstance(content, str):
        file.write(content.encode())
    elif isinstance(content, bytes | memoryview):
        file.write(content)
    else:
        file.writelines(content)


def _write_to_store(url: str, content: Content) -> None:
    stream = io.BytesIO()
    _fill(stream, content)
    system, path = file_system(url)
    folder, _, name = path.rpartition("/")
    partial = f"{folder}/{temporary_name(name, 'partial')}"
    with as_os_error():
        system.makedirs(folder, exist_ok=True)
        try:
            system.pipe_file(partial, stream.getvalue())
            system.mv(partial, path)
        except BaseException:
            with suppress(Exception):  # report the first error
                if system.exists(partial):
                    system.rm_file(partial)
            raise


def _make_folder(place: Path, *, durable: bool) -> None:
    """Make a folder and those above it, if there are none."""
    above = [one for one in (place, *place.parents) if not one.exists()]
    place.mkdir(parents=True, exist_ok=True)
    if durable:
        for one in above:
            flush_names(one.parent)


def _check_writable(place: Path) -> None:
    """Do not replace a read-only file, although the system would allow it."""
    if place.is_file() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))


def _keep_mode(place: Path, partial: Path) -> None:
    with suppress(OSError):
        if place.exists():
            shutil.copymode(place, partial)


def _move(source: Path, target: Path) -> None:
    """Rename a file or a folder. An existing file is replaced."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if sys.platform != "win32" or time.monotonic() >= end:
                raise
            time.sleep(0.05)


def _publish(partial: Path, place: Path, replace: bool) -> Path | None:
    """Move a folder to its final path. Returns the new path of the replaced folder, if any."""
    if not place.exists():
        _move(partial, place)
        return None
    if not replace:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place))
    if _exchange(partial, place):
        return partial
    with claimed(beside(place, "old")) as old:
        _move(place, old)
        try:
            _move(partial, place)
        except BaseException:
            with suppress(OSError):  # `recover` restores it later
                _move(old, place)
            raise
    return old


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders atomically. Returns False if the system does not support it."""
    import ctypes

    here, swap = -100, 2
    paths = os.fsencode(one), os.fsencode(other)
    calls = {
        "linux": ("renameat2", (here, paths[0], here, paths[1], swap)),
        "darwin": ("renamex_np", (*paths, swap)),
    }
    if sys.platform not in calls:
        return False
    name, arguments = calls[sys.platform]
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is None:
        return False
    sys.audit("os.rename", str(one), str(other), -1, -1)  # as os.rename does
    if call(*arguments) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _rescued(partial: Path, place: Path) -> Path:
    """Rename a complete folder so that it is never removed as abandoned. Returns its path."""
    finished = beside(place, "finished")
    try:
        _move(partial, finished)
    except OSError:
        return partial
    return finished


@contextmanager
def _copy(path: Path) -> Iterator[Path]:
    """A backup of a file next to it. It stays if the body of the `with` statement fails."""
    with claimed(beside(path, "kept")) as kept:
        try:
            shutil.copy2(path, kept)
        except BaseException:
            remove(kept)
            raise
        yield kept


def _undo(folder: Path, kept: Mapping[str, Path], moved: Iterable[str]) -> None:
    """Restore files from their backups. If that fails, the backups stay for `read_known`."""
    for name, path in kept.items():
        with suppress(OSError):
            _move(path, folder / name)
    for name in moved:
        if name not in kept:
            remove(folder / name)

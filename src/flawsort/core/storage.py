"""Files and folders that are there whole or not at all: the only module that renames any.

Everything is filled under a temporary name beside its place and moved there at the end. An error
removes it again. What a killed process leaves goes when the next one writes to the same folder.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias

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
"""What a file is to hold: text, bytes, pieces of them, or a function that writes to the file."""

# In seconds. Windows moves nothing that another program, such as a virus scanner, has open.
_PATIENCE = 2.0 if os.name == "nt" else 0.0
# What a system says that cannot let two folders change places.
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}

# Folders that this process has cleared of what others left.
_cleared: set[Path] = set()


class Unpublished(OSError):  # noqa: N818
    """A folder is whole but could not be moved to its place; the cause says why. kept: where it
    is."""

    def __init__(self, kept: Path) -> None:
        super().__init__(f"The folder is whole, in '{kept}'.")
        self.kept = kept


def write_whole(place: str | Path, content: Content, *, parents: bool = False) -> None:
    """Write a file so that it is there whole or not at all. place: a path, or a URL as text.
    parents: make the folders above it."""
    if is_url(place):
        _write_to_store(str(place), content)
        return
    with new_file(Path(place), parents=parents) as partial, partial.open("wb") as file:
        _fill(file, content)


@contextmanager
def new_file(place: Path, *, parents: bool = False) -> Iterator[Path]:
    """A path to write to, which becomes the file at `place` at the end. A link stays a link; a pipe
    or a device is written to as it is."""
    replacing = place.exists()
    if replacing and not place.is_file():
        yield place
        return
    if place.is_symlink():
        place = place.resolve()
    if parents:
        place.parent.mkdir(parents=True, exist_ok=True)
    if place.parent not in _cleared:  # once: it may hold many files, and get many more
        clear_left_overs(place.parent)
        _cleared.add(place.parent)
    if replacing:
        _check_writable(place)
    with temporary(place) as partial:
        yield partial
        if replacing:
            _keep_mode(place, partial)
        _move(partial, place)


@contextmanager
def new_folder(
    place: Path,
    *,
    replace: bool = True,
    rescue: bool = False,
    before_publish: Callable[[], None] | None = None,
) -> Iterator[Path]:
    """An empty folder to fill, which becomes the folder at `place` at the end.

    replace: a folder that is there gives way when the new one is whole (`recover` it before you
    look whether it is there); otherwise it is an error. before_publish: called when the new one is
    whole; may raise to keep it from its place. rescue: a new one that is whole but cannot be moved
    to its place stays beside it, and Unpublished says where.
    """
    place = place.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    clear_left_overs(place.parent)
    with claimed(beside(place, "partial")) as partial:
        try:
            partial.mkdir()
            yield partial
        except BaseException:
            remove(partial)
            raise
        try:
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
        if replaced is not None:
            remove(replaced)


def recover(place: Path) -> None:
    """Bring back a folder whose replacement was killed between its two moves."""
    place = place.resolve()
    abandoned = {path for path, _ in left_over(place.parent, "old")}
    for old in named_for(place, "old"):
        if old in abandoned and place.exists():
            remove(old)
        elif old in abandoned:
            _move(old, place)


def replace_together(folder: Path, contents: Mapping[str, Content]) -> None:
    """Replace several files of a folder as one: all of them are new, or none.

    The last one decides: it holds the SHA-256 of the others. Where this is killed before that one
    is in place, `read_known` finds the others as they were, and `settle` puts them back.
    """
    *others, last = contents
    kept: dict[str, Path] = {}
    with ExitStack() as stack:
        fresh = {name: stack.enter_context(temporary(folder / name)) for name in contents}
        for name, content in contents.items():
            with fresh[name].open("wb") as file:
                _fill(file, content)
        try:
            for name in others:
                if (folder / name).exists():
                    kept[name] = stack.enter_context(_copy(folder / name))
            for name, path in fresh.items():
                _check_writable(folder / name)
                _keep_mode(folder / name, path)
                _move(path, folder / name)
        except BaseException:
            if fresh[last].exists():
                _undo(folder, kept, [name for name in others if not fresh[name].exists()])
            raise
    for path in kept.values():
        remove(path)


def settle(folder: Path, hashes: Mapping[str, str]) -> None:
    """Put back what was killed within `replace_together`, and clear what it left. hashes: of the
    files of the folder."""
    for path, name in left_over(folder, "kept"):
        known = hashes.get(name)
        if known is not None and _holds(path, known) and not _holds(folder / name, known):
            _move(path, folder / name)
        else:
            remove(path)
    clear_left_overs(folder)


def read_known(path: Path, known: str) -> bytes | None:
    """What a file holds that has this SHA-256; None where it has another."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() == known:
        return content
    return next(
        (kept.read_bytes() for kept in named_for(path, "kept") if _holds(kept, known)), None
    )


def sha256(path: Path) -> str:
    """Of what a file holds, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def try_writing(place: Path) -> None:
    """Raise the OSError that a file or a folder at a place would raise at the end, before hours of
    work. Makes the folders above it; leaves what is there as it is, but for what was left over."""
    place = place.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    clear_left_overs(place.parent)
    with temporary(place) as probe:
        _check_writable(place)
        probe.open("xb").close()
        probe.unlink()


def _holds(path: Path, known: str) -> bool:
    try:
        return sha256(path) == known
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
            with suppress(Exception):  # the first error is the one to tell
                if system.exists(partial):
                    system.rm_file(partial)
            raise


def _check_writable(place: Path) -> None:
    """A file that may not be written is not replaced either."""
    if place.is_file() and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))


def _keep_mode(place: Path, partial: Path) -> None:
    with suppress(OSError):
        if place.exists():
            shutil.copymode(place, partial)


def _move(source: Path, target: Path, *, patience: float = _PATIENCE) -> None:
    """Rename a file or a folder. A file that is there is replaced."""
    end = time.monotonic() + patience
    while True:
        try:
            os.replace(source, target)
            return
        except PermissionError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)


def _publish(partial: Path, place: Path, replace: bool) -> Path | None:
    """Move a folder to its place. Returns where the one is now that was there, if any."""
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
            with suppress(OSError):  # then `recover` does it
                _move(old, place)
            raise
    return old


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step. False where the system cannot do that."""
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
    """A folder that is whole under a name that nobody takes for left over."""
    finished = beside(place, "finished")
    try:
        _move(partial, finished)
    except OSError:
        return partial
    return finished


@contextmanager
def _copy(path: Path) -> Iterator[Path]:
    """A copy of a file beside it, which stays after an error of another's."""
    with claimed(beside(path, "kept")) as kept:
        try:
            shutil.copy2(path, kept)
        except BaseException:
            remove(kept)
            raise
        yield kept


def _undo(folder: Path, kept: Mapping[str, Path], moved: Iterable[str]) -> None:
    """Put files back as they were. Where that fails their copies stay, for `read_known`."""
    for name, path in kept.items():
        with suppress(OSError):
            _move(path, folder / name)
    for name in moved:
        if name not in kept:
            remove(folder / name)

"""Wait until files are on the disk, so that they are there after a power failure."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

# Error codes of file systems that cannot say whether a file is on the disk.
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EROFS}


def flush(path: Path) -> None:
    """Wait until the content of a file is on the disk. OSError if it cannot be written there."""
    file = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        _sync(file)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        os.close(file)


def flush_names(folder: Path) -> None:
    """Wait until the names of a folder's files are on the disk, where the system can do that."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # the files are there anyway; only a power failure would show it
        file = os.open(folder, os.O_RDONLY)
        try:
            _sync(file)
        finally:
            os.close(file)


def flush_folder(folder: Path) -> None:
    """Wait until everything in a folder is on the disk."""
    for place, _, names in os.walk(folder):
        for name in names:
            flush(Path(place) / name)
        flush_names(Path(place))


def _sync(file: int) -> None:
    """macOS does not wait for the disk itself unless it is asked to."""
    if sys.platform != "win32":
        import fcntl

        thorough = getattr(fcntl, "F_FULLFSYNC", None)
        if thorough is not None:
            with suppress(OSError):
                fcntl.fcntl(file, thorough)
                return
    os.fsync(file)

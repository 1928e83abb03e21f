"""List and read files behind URLs, such as s3://bucket/parts, with fsspec."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from flawsort.core.errors import InputError, OptionError
from flawsort.core.text import first_line

# At least two letters, so that C:// stays a path.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Enough for the header of most images.
_RANGE = 2**16


def is_url(source: str | Path) -> bool:
    """Whether a source is a URL. A Path never is: it has lost the double slash."""
    return isinstance(source, str) and _URL.match(source) is not None


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL or of a local path, and the path within it."""
    try:
        import fsspec
    except ImportError as error:
        raise OptionError(
            f"'{url}' needs fsspec: pip install 'flawsort[ray]', or fsspec and the driver of the "
            "store (s3fs, gcsfs, adlfs, ...)."
        ) from error
    if "::" in url:
        raise OptionError(f"A URL must name one store, not a chain of them. Got '{url}'.")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:  # the driver of this store
        raise OptionError(f"'{url}' cannot be reached: {first_line(error)}.") from error
    except Exception as error:
        raise OptionError(
            f"'{url}' cannot be reached: {first_line(error)}. Check the URL, and the store's "
            "credentials in the environment."
        ) from error
    return system, path


def kind_of(url: str) -> str | None:
    """Whether a URL is a "folder" or a "file"; None if it does not exist."""
    system, path = file_system(url)
    with _as_input_error(url):
        system.invalidate_cache()
        if system.isfile(path):
            return "file"
        return "folder" if system.isdir(path) else None


def files_below(url: str, depth: int | None = None) -> list[str]:
    """The sorted relative paths of all files below a folder, at most `depth` levels deep, without
    hidden files and folders."""
    system, path = file_system(url)
    with _as_input_error(url):
        found = system.find(path, maxdepth=depth)
    base = system._strip_protocol(path).rstrip("/") + "/"
    names = [str(entry)[len(base) :] for entry in found if str(entry).startswith(base)]
    return sorted(name for name in names if not re.search(r"(^|/)\.", name))


def read_bytes(url: str) -> bytes:
    """The content of a file. All errors of the store are raised as OSError."""
    system, path = file_system(url)
    with as_os_error():
        return bytes(system.cat_file(path))


def open_ranges(url: str) -> BinaryIO:
    """A stream that fetches only the ranges that are read."""
    system, path = file_system(url)
    with as_os_error():
        stream: BinaryIO = system.open(path, "rb", block_size=_RANGE)
        return stream


@contextmanager
def as_os_error() -> Iterator[None]:
    """Turn any error of a store's driver into an OSError with the same message."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        known = (FileNotFoundError, errno.ENOENT), (PermissionError, errno.EACCES)
        for kind, code in known:
            if isinstance(error, kind):
                raise kind(code, os.strerror(code)) from error
        raise OSError(errno.EIO, first_line(error)) from error
    except Exception as error:
        raise OSError(errno.EIO, first_line(error)) from error


@contextmanager
def _as_input_error(url: str) -> Iterator[None]:
    """Turn a store's errors into an InputError: wrong credentials, missing buckets, no network."""
    try:
        yield
    except Exception as error:
        raise InputError(
            f"'{url}' cannot be listed: {first_line(error)}. Check the URL, the network, and the "
            "store's credentials in the environment."
        ) from error

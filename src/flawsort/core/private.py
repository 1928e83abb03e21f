"""Secrets in files that only their owner can read."""

from __future__ import annotations

import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Bytes of randomness of a secret; it has a third more characters.
STRENGTH = 24
LENGTH = len(secrets.token_urlsafe(STRENGTH))


def new_secret() -> str:
    """A secret that nobody can guess."""
    return secrets.token_urlsafe(STRENGTH)


def kept_secret(place: Path) -> str:
    """The secret in a file, which is made if there is none, or if others can read or change it. A
    new secret if the file cannot be written."""
    with suppress(OSError, ValueError):
        return _read(place)
    secret = new_secret()
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        _write(place, secret)
    return secret


@contextmanager
def private_file(name: str, text: str) -> Iterator[Path]:
    """A temporary file of that name in a folder of its own, which only this user can open."""
    with tempfile.TemporaryDirectory(prefix="flawsort-", ignore_cleanup_errors=True) as folder:
        place = Path(folder) / name
        _write(place, text)
        yield place


def _read(place: Path) -> str:
    file = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | _NEVER_WAIT)
    with os.fdopen(file, encoding="ascii") as stream:
        found = os.fstat(file)
        own = stat.S_ISREG(found.st_mode) and _is_private(found)
        secret = stream.read(LENGTH + 1) if own else ""
    if len(secret) != LENGTH or not secret.isprintable():
        raise ValueError("not a secret of this user")
    return secret


def _is_private(found: os.stat_result) -> bool:
    """Whether nobody else can read or change a file. On Windows, the folder of a user sees to
    that."""
    if sys.platform == "win32":
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _write(place: Path, text: str) -> None:
    """Never into a file that is there already: somebody else may have it open."""
    file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)


# A pipe in the place of the file must not be waited for.
_NEVER_WAIT = getattr(os, "O_NONBLOCK", 0)

"""Images that arrive over the network: files in a private folder until they are sorted."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flawsort.core.errors import InputError
from flawsort.core.records import ImageSet, SetAside
from flawsort.core.temporaries import private_folder
from flawsort.core.text import printable
from flawsort.images.find import digest_of

# The bytes that all requests together may hold before their images are sorted.
HELD_BYTES = 2**28
# Characters of the name of an image.
LONGEST_NAME = 300


class Busy(InputError):  # noqa: N818
    """The server has as much to do as it can hold."""


@dataclass(frozen=True)
class Upload:
    """An image as it was sent. name: for people."""

    name: str
    content: bytes


class Allowance:
    """How much of something all requests together may hold. full: what is said of one that wants
    more."""

    def __init__(self, most: int, full: str) -> None:
        self._most, self._full, self._held = most, full, 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        return self._held

    @contextmanager
    def holding(self) -> Iterator[Holding]:
        """Nothing at first, to which can be added within the block."""
        own = Holding(self)
        try:
            yield own
        finally:
            self._change(-own.amount)

    def _change(self, amount: int) -> None:
        with self._lock:
            if amount > 0 and self._held + amount > self._most:
                raise Busy(self._full)
            self._held += amount


class Holding:
    """What one request holds."""

    def __init__(self, of: Allowance) -> None:
        self._of, self.amount = of, 0

    def add(self, amount: int) -> None:
        """Raises Busy if there is no room for so much more."""
        self._of._change(amount)
        self.amount += amount


@contextmanager
def as_files(uploads: Sequence[Upload]) -> Iterator[ImageSet]:
    """The images as files in a folder that only this user can read. Their names are their places,
    "0" and so on. Those that are nothing are set aside."""
    with private_folder() as folder:
        paths = [folder / str(number) for number in range(len(uploads))]
        for path, upload in zip(paths, uploads, strict=True):
            path.write_bytes(upload.content)
        yield _image_set(paths)


def _image_set(paths: Sequence[Path]) -> ImageSet:
    found = [(str(place), path, *digest_of(path)) for place, path in enumerate(paths)]
    good = [one for one in found if not one[3]]
    return ImageSet(
        tuple(name for name, _, _, _ in good),
        tuple(path for _, path, _, _ in good),
        tuple(digest for _, _, digest, _ in good),
        tuple(SetAside(name, reason) for name, _, _, reason in found if reason),
    )


def decoded(name: str, text: str) -> Upload:
    """An image from base64, which may be the URL of data. InputError if it is none."""
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return Upload(shown_name(name), base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise InputError(f"content of '{shown_name(name)}' must be base64 ({error}).") from error


def shown_name(name: str) -> str:
    """A name that can always be printed."""
    return printable(name)[:LONGEST_NAME]

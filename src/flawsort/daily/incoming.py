"""The folders where new images arrive: which files are new, and complete.

The folders are looked at again and again. That works on every system and on network drives, where
notices of the system do not arrive. Looking at 10,000 files takes about 0.1 s.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import fsencode
from pathlib import Path

from flawsort.core.errors import InputError
from flawsort.core.records import ImageSet, SetAside
from flawsort.core.text import printable
from flawsort.core.threads import in_threads
from flawsort.images.find import digest_of, names_below
from flawsort.images.formats import kinds_of_files, skipped_line


@dataclass(frozen=True)
class Arrived:
    """A file that is there. name: for people, unique among the folders. changed: when, in
    nanoseconds."""

    path: Path
    name: str
    size: int
    changed: int

    @property
    def stamp(self) -> bytes:
        """Another one for another path, size or time of the last change."""
        return stamp_of(fsencode(self.path), self.size, self.changed)


def stamp_of(path: bytes, size: int, changed: int) -> bytes:
    """16 bytes, so that a million files take little memory."""
    return blake2b(b"%d %d %s" % (size, changed, path), digest_size=16).digest()


class Incoming:
    """The folders that are watched.

    glob: only files whose names match. settle: a file is complete if its size and its time of
    change stay the same for so many seconds. known: whether a file with this stamp is done. now: a
    clock, in seconds.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        known: Callable[[bytes], bool],
        *,
        glob: str | None = None,
        settle: float = 2.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise InputError(
                    f"The folder to watch must exist. There is no folder '{printable(folder)}'. "
                    "Make it, or check the path."
                )
        self._folders = [folder.absolute() for folder in folders]
        self._known, self._glob, self._settle, self._now = known, glob, settle, now
        # When files that are not done were first seen as they are.
        self._since: dict[bytes, float] = {}
        # How many files were not complete in the last look.
        self.waiting = 0
        self._problems: dict[str, str] = {}
        self._told: dict[str, str] = {}
        # The kinds of files that are no images here, and those of which that was said.
        self._skipped: Counter[str] = Counter()
        self._told_kinds: set[str] = set()

    def look(self) -> list[Arrived]:
        """The complete files that are not done, those that changed first at first."""
        now, before = self._now(), self._since
        self._since, self.waiting, ready = {}, 0, []
        for one in self._files():
            stamp = one.stamp
            if self._known(stamp):
                continue
            since = self._since[stamp] = before.get(stamp, now)
            if now - since >= self._settle and stamp in before:
                ready.append(one)
            else:
                self.waiting += 1
        return sorted(ready, key=lambda one: (one.changed, one.name))

    def problems(self) -> list[str]:
        """What could not be looked at in the last look, and could be before, in words."""
        told, self._told = self._told, self._problems
        return [f"{name}: {why}" for name, why in self._problems.items() if name not in told]

    def skipped(self) -> str:
        """A line about the files of kinds that are not looked at, once for each kind; or ""."""
        new = [entry for entry in self._skipped.items() if entry[0] not in self._told_kinds]
        self._told_kinds.update(kind for kind, _ in new)
        return skipped_line(new)

    def _files(self) -> Iterator[Arrived]:
        problems: list[SetAside] = []
        skipped: list[str] = []
        for folder, shown in zip(self._folders, _shown(self._folders), strict=True):
            if not folder.is_dir():
                problems.append(SetAside(printable(folder), "the folder is not there now"))
                continue
            images, others = names_below(folder, self._glob, problems)
            skipped += others
            for name in images:
                found = _stat(folder / name)
                if found is not None:
                    yield Arrived(folder / name, printable(f"{shown}{name}"), *found)
        self._skipped = Counter(dict(kinds_of_files(skipped)))
        self._problems = {one.name: one.reason for one in problems}


def hashed(arrived: Sequence[Arrived]) -> tuple[ImageSet, list[Arrived], list[Arrived]]:
    """The images that can be read; the files that they are, in the same order; and those that
    cannot be read, whose reasons are in `set_aside`, in the same order. Files that have changed
    since they were found are in neither: they are found again."""
    digests = list(in_threads(lambda one: digest_of(one.path), arrived))
    same = [
        (one, *found)
        for one, found in zip(arrived, digests, strict=True)
        if _stat(one.path) == (one.size, one.changed)
    ]
    good = [(one, digest) for one, digest, reason in same if not reason]
    bad = [(one, reason) for one, _, reason in same if reason]
    images = ImageSet(
        tuple(one.name for one, _ in good),
        tuple(one.path for one, _ in good),
        tuple(digest for _, digest in good),
        tuple(SetAside(one.name, reason) for one, reason in bad),
    )
    return images, [one for one, _ in good], [one for one, _ in bad]


def _shown(folders: Sequence[Path]) -> list[str]:
    """What stands before the names of the files of each folder, so that they are unique."""
    if len(folders) == 1:
        return [""]
    names = [folder.name for folder in folders]
    unique = len(set(names)) == len(names)
    return [f"{folder.name if unique else folder.as_posix()}/" for folder in folders]


def _stat(path: Path) -> tuple[int, int] | None:
    """Size and time of the last change of a file, or of a broken link; None if it is gone."""
    for follow in (True, False):
        try:
            found = path.stat(follow_symlinks=follow)
            return found.st_size, found.st_mtime_ns
        except (OSError, ValueError):
            continue
    return None

"""The runs that a review server shows, given as runs or folders of runs, opened on demand."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from flawsort.backbones.cache import default_cache_folder
from flawsort.core.errors import FlawsortError, OptionError, Replaced, RunError, first_line
from flawsort.core.text import printable
from flawsort.images.lookup import Lookup
from flawsort.labels.leases import Leases
from flawsort.labels.log import effective
from flawsort.labels.session import Session
from flawsort.labels.state import State
from flawsort.labels.store import Conflict, EditStore
from flawsort.review.facts import lots_of, sizes_of
from flawsort.review.pictures import Pictures
from flawsort.review.responses import (
    answered_rows,
    basis,
    describe_accuracy,
    describe_run,
    describe_state,
    describe_verdict,
    fingerprint,
)
from flawsort.review.schemas import AccuracyBody, LotsBody, SizesBody, VerdictBody
from flawsort.review.upkeep import Upkeep
from flawsort.runs.folder import (
    EDITS,
    MANIFEST,
    Stamp,
    manifest_stamp,
    open_run,
    read_manifest,
    stamp_of,
)
from flawsort.runs.run import Run
from flawsort.runs.trends import read_periods

# A run of 20,000 images takes about 250 MB.
MOST_OPEN = 4
# No run has as many.
MOST_IMAGES = 10**9
# In characters.
LONGEST_REASON = 1000

_Value = TypeVar("_Value")


class UnknownRun(RunError):  # noqa: N818
    """No run of that name is shown here."""


class OtherRun(Conflict):
    """The run was replaced by another one since the state that an edit is based on."""

    def __init__(self, version: int) -> None:
        OptionError.__init__(
            self,
            "The run was replaced meanwhile: it has other images or clusters now. Nothing was "
            "saved. Look at the run again, and make the edit again if it is still right.",
        )
        self.version = version


@dataclass(frozen=True)
class Entry:
    """A run in the list. reason: why it cannot be opened, or ""."""

    name: str
    n: int = 0
    groups: int = 0
    mode: str = ""
    reason: str = ""


class OpenRun:
    """A run that is open. Safe for several threads."""

    def __init__(
        self,
        name: str,
        folder: Path,
        cache: Path | None,
        lots: Lookup | None = None,
        fetch: Sequence[str] = (),
    ):
        self.name, self.folder, self._lots_table = name, folder, lots
        self.session = Session(folder, open_run(folder, fetch=fetch))
        self.upkeep = Upkeep(self.session.update_table)
        self.upkeep.soon()  # a process that was killed has left them behind, perhaps
        self.pictures = Pictures(self.run, cache)
        self.leases = Leases()
        self._state_body = _Latest[bytes]()
        self._answered = _Latest[set[int]]()
        self._accuracy = _Latest[AccuracyBody]()
        self._verdict = _Latest[VerdictBody]()
        self._lots: dict[str, LotsBody] = {}
        self._reading = threading.Lock()  # of files, which must not delay other requests
        self._lock = threading.RLock()

    @property
    def run(self) -> Run:
        return self.session.run

    @property
    def body(self) -> bytes:
        """The parts of the run that never change, as JSON."""
        with self._lock:  # other threads wait, which is faster than doing it twice
            return self._body

    @cached_property
    def _body(self) -> bytes:
        table = self._lots_table
        lots = "" if table is None else printable(table.path.name)
        return describe_run(self.name, self.run, lots).model_dump_json().encode()

    def lots(self, by: str) -> LotsBody:
        """The lot of each image."""
        with self._reading:
            if by not in self._lots:
                self._lots[by] = lots_of(self.run, by, self._lots_table)
            return self._lots[by]

    @property
    def sizes(self) -> SizesBody:
        """The size of each image; reading thousands of files takes seconds the first time."""
        with self._reading:
            return self._sizes

    @cached_property
    def _sizes(self) -> SizesBody:
        return sizes_of(self.run)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.run)

    @cached_property
    def basis(self) -> str:
        return basis(self.run)

    def state_body(self) -> tuple[str, bytes]:
        """A tag of the version, and the current groups as JSON."""
        state = self.session.state
        body = self._state_body.get(
            state,
            lambda: describe_state(self.run, state, self.basis).model_dump_json().encode(),
        )
        return f"{self.fingerprint}-{self.basis}-{state.version}", body

    def accuracy(self) -> AccuracyBody:
        """How right the groups are; the audit takes a moment."""
        state = self.session.state
        return self._accuracy.get(state, lambda: describe_accuracy(state))

    def verdict(self) -> VerdictBody:
        """What each threshold of OK and not OK costs; takes a moment."""
        state = self.session.state
        return self._verdict.get(state, lambda: describe_verdict(state))

    def answered(self) -> set[int]:
        """The rows that people answered for one by one."""
        state = self.session.state

        def read() -> set[int]:
            with EditStore(self.folder / EDITS) as store:
                log = [entry for entry in store.log() if entry.seq <= state.version]
            return answered_rows(effective(log))

        return self._answered.get(state, read)

    def close(self) -> None:
        """Bring the tables up to date, and let go of the file of edits. Requests that still use the
        run open that again."""
        self.upkeep.close()
        self.session.close()


class _Latest(Generic[_Value]):
    """What was derived from the current state. Safe for several threads: others wait, which is
    faster than doing it twice."""

    def __init__(self) -> None:
        self._known: tuple[State, _Value] | None = None
        self._lock = threading.Lock()

    def get(self, state: State, make: Callable[[], _Value]) -> _Value:
        with self._lock:
            if self._known is None or self._known[0] is not state:
                self._known = state, make()
            return self._known[1]


class Library:
    """Runs by name. folders: runs, or folders of runs. cache: the folder for thumbnails; None for
    the user's cache folder. lots: a CSV file with the lots of images; None for none. fetch: as of
    a Run."""

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        cache: Path | None = None,
        lots: Path | None = None,
        fetch: Sequence[str] = (),
    ):
        self._fetch = tuple(fetch)
        self._given = [Path(folder) for folder in folders]
        self._lots = None if lots is None else read_periods(lots)
        self._cache = default_cache_folder() if cache is None else cache
        self._folders: dict[str, Path] = {}
        self._listed: dict[str, tuple[Stamp, Entry]] = {}
        # Why runs cannot be opened, as long as none of their files changes: finding out may take
        # seconds and gigabytes.
        self._failed: dict[str, tuple[object, str]] = {}
        self._open: OrderedDict[str, tuple[Stamp, OpenRun]] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._check_given()

    def entries(self) -> list[Entry]:
        """All runs that exist now, by name."""
        self._scan()
        return [self._entry(name, folder) for name, folder in sorted(self._folders.items())]

    def get(self, name: str) -> OpenRun:
        """A run, opened if it is not open yet or was replaced since."""
        if name not in self._folders:
            self._scan()
        if name not in self._folders:
            raise UnknownRun(f"There is no run '{name}' here.")
        folder = self._folders[name]
        with self._lock:
            opening = self._opening.setdefault(name, threading.Lock())
        with opening:
            stamp = stamp_of(folder)
            if stamp is None:
                self._forget(name)
                raise UnknownRun(f"The run '{name}' no longer exists.")
            kept = self._open.get(name)
            if kept is None or kept[0] != stamp:
                self._forget(name)
                kept = stamp, self._opened(name, folder)
            with self._lock:
                self._open[name] = kept
                self._open.move_to_end(name)
                oldest = next(iter(self._open)) if len(self._open) > MOST_OPEN else None
            if oldest is not None:
                self._forget(oldest)
            return kept[1]

    def at_hand(self, name: str) -> OpenRun | None:
        """A run that is open, and is still the one in its folder; None otherwise. Never waits."""
        kept, folder = self._open.get(name), self._folders.get(name)
        if kept is None or folder is None or kept[0] != stamp_of(folder):
            return None
        return kept[1]

    def entry(self, name: str) -> Entry:
        """The list entry of a run, without opening it."""
        if name not in self._folders:
            self._scan()
        if name not in self._folders:
            raise UnknownRun(f"There is no run '{name}' here.")
        return self._entry(name, self._folders[name])

    def current(self, name: str) -> OpenRun:
        """A run with the edits that others have made meanwhile."""
        found = self.get(name)
        try:
            found.session.refresh()
        except (
            RunError
        ):  # the file of edits was replaced or is damaged; opening it again tells which
            self._forget(name)
            found = self.get(name)
        return found

    def write(
        self, found: OpenRun, given: str | None, change: Callable[[OpenRun], object]
    ) -> OpenRun:
        """Make an edit, and give the run that has it: another one if it was replaced just now.
        given: the basis of the state that the edit is based on, if the client knows it."""
        while True:
            if given is not None and given != found.basis:
                raise OtherRun(found.session.version)
            try:
                change(found)
                found.upkeep.soon()
                return found
            except Replaced:
                again = self.current(found.name)
                if again is found:
                    raise
                found = again

    def close(self) -> None:
        """Close all runs."""
        for name in list(self._open):
            self._forget(name)

    def _forget(self, name: str) -> None:
        with self._lock:
            kept = self._open.pop(name, None)
        if kept is not None:
            kept[1].close()

    def _opened(self, name: str, folder: Path) -> OpenRun:
        there, stamp = _files_of(folder), manifest_stamp(folder)
        known = self._failed.get(name)
        if known is not None and known[0] == there:
            raise RunError(known[1])
        try:
            return _opened(name, folder, self._cache, self._lots, self._fetch)
        except FlawsortError as error:
            reason = printable(str(error))[:LONGEST_REASON]
            if stamp is not None:
                self._listed[name] = stamp, Entry(name, reason=reason)
            if _stays(error):
                self._failed[name] = there, reason
            raise

    def _entry(self, name: str, folder: Path) -> Entry:
        stamp = manifest_stamp(folder)
        if stamp is None:
            return Entry(name, reason="The run no longer exists.")
        known = self._listed.get(name)
        if known is None or known[0] != stamp:
            known = stamp, _looked_at(name, folder)
            self._listed[name] = known
        return known[1]

    def _check_given(self) -> None:
        """Refuse folders without a run to review, before the server starts."""
        for folder in self._given:
            if not folder.is_dir():
                read_manifest(folder)  # raises the error
        entries = self.entries()
        if not entries:
            places = ", ".join(f"'{printable(folder)}'" for folder in self._given) or "no folder"
            raise RunError(
                f"There is no run in {places}. Point at the folder given to -o of flawsort "
                "cluster, or at one that holds such folders."
            )
        if all(entry.reason for entry in entries):
            raise RunError(entries[0].reason)

    def _scan(self) -> None:
        with self._lock:
            known = {folder: name for name, folder in self._folders.items()}
            for given in self._given:
                for folder in _runs_in(given):
                    if folder not in known:
                        known[folder] = self._new_name(folder)
                        self._folders[known[folder]] = folder

    def _new_name(self, folder: Path) -> str:
        name = printable(folder.name) or "run"
        names = (name if number == 1 else f"{name}-{number}" for number in range(1, 10**6))
        return next(name for name in names if name not in self._folders)


def _runs_in(given: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs in it; hidden ones are unfinished."""
    place = given.resolve()
    if (place / MANIFEST).exists():
        return [place]
    try:
        inside = sorted(place.iterdir())
    except OSError:
        return []
    return [one for one in inside if not one.name.startswith(".") and (one / MANIFEST).is_file()]


def _files_of(folder: Path) -> object:
    """Changes whenever a file of the run does. SQLite makes files of its own while it reads."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        found = [(one.name, one.stat(follow_symlinks=False)) for one in entries]
        return sorted(
            (name, stat.st_ino, stat.st_ctime_ns, stat.st_size)
            for name, stat in found
            if not name.endswith(("-wal", "-shm"))
        )
    return object()  # like no other


def _stays(error: FlawsortError) -> bool:
    """Whether the files of a run are why it cannot be opened, not a busy or full machine."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in (errno.ENOENT, errno.EINVAL)
    return not isinstance(cause, sqlite3.OperationalError | MemoryError)


def _opened(name: str, folder: Path, *given: Any) -> OpenRun:
    """A run that is open, with everything that the page asks for first. RunError if its files make
    anything of that fail."""
    found = None
    try:
        found = OpenRun(name, folder, *given)
        _ = found.run.view, found.body, found.state_body()
        return found
    except BaseException as error:
        if found is not None:
            found.upkeep.close()
            found.session.let_go()
        if isinstance(error, FlawsortError | OSError) or not isinstance(error, Exception):
            raise
        what = f"{type(error).__name__}, {first_line(error)}"
        raise RunError(f"The run '{name}' is damaged: {what}.") from error


def _looked_at(name: str, folder: Path) -> Entry:
    try:
        manifest = read_manifest(folder)
        n, groups = manifest["n_images"], manifest["clusters"]["n_clusters"]
        if not (type(n) is type(groups) is int and 0 < groups <= n < MOST_IMAGES):
            raise ValueError("the number of images or of groups")
        return Entry(name, n, groups, str(manifest["mode"])[:40])
    except FlawsortError as error:
        return Entry(name, reason=printable(str(error))[:LONGEST_REASON])
    except Exception as error:  # whatever a forged manifest makes of it
        reason = f"The run is damaged: {first_line(error)} is missing or not valid in its manifest."
        return Entry(name, reason=printable(reason))

"""The runs that a review server shows, given as runs or folders of runs, opened on demand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from flawsort.backbones.cache import default_cache_folder
from flawsort.core.errors import FlawsortError, RunError
from flawsort.core.text import printable
from flawsort.labels.edits import effective
from flawsort.labels.store import EditStore, Session, State
from flawsort.review.pictures import Pictures
from flawsort.review.responses import answered_rows, describe_run, describe_state, fingerprint
from flawsort.runs.folder import EDITS, MANIFEST, read_manifest
from flawsort.runs.run import Run

# A run of 20,000 images takes about 250 MB.
MOST_OPEN = 4

_Stamp = tuple[int, int, int]


class UnknownRun(RunError):  # noqa: N818
    """No run of that name is shown here."""


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

    def __init__(self, name: str, folder: Path, cache: Path | None):
        self.name, self.folder = name, folder
        self.session = Session(folder)
        self.pictures = Pictures(self.run, cache)
        self._state_body: tuple[State, bytes] | None = None
        self._answered: tuple[State, set[int]] | None = None
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
        return describe_run(self.name, self.run).model_dump_json().encode()

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.run)

    def state_body(self) -> tuple[str, bytes]:
        """A tag of the version, and the current groups as JSON."""
        state = self.session.state
        with self._lock:
            known = self._state_body
            if known is None or known[0] is not state:
                known = self._state_body = (
                    state,
                    describe_state(self.run, state).model_dump_json().encode(),
                )
            return f"{self.fingerprint}-{state.version}", known[1]

    def answered(self) -> set[int]:
        """The rows that people answered for one by one."""
        state = self.session.state
        with self._lock:
            found = self._answered
            if found is None or found[0] is not state:
                with EditStore(self.folder / EDITS) as store:
                    log = [entry.edit for entry in store.log() if entry.seq <= state.version]
                found = self._answered = state, answered_rows(effective(log))
            return found[1]


class Library:
    """Runs by name. folders: runs, or folders of runs. cache: the folder for thumbnails; None for
    the user's cache folder."""

    def __init__(self, folders: Sequence[Path], *, cache: Path | None = None):
        self._given = [Path(folder) for folder in folders]
        self._cache = default_cache_folder() if cache is None else cache
        self._folders: dict[str, Path] = {}
        self._listed: dict[str, tuple[_Stamp, Entry]] = {}
        self._open: OrderedDict[str, tuple[_Stamp, OpenRun]] = OrderedDict()
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
            stamp = _stamp(folder)
            if stamp is None:
                self._forget(name)
                raise UnknownRun(f"The run '{name}' no longer exists.")
            kept = self._open.get(name)
            if kept is None or kept[0] != stamp:
                self._forget(name)
                kept = stamp, self._opened(name, folder, stamp)
            with self._lock:
                self._open[name] = kept
                self._open.move_to_end(name)
                oldest = next(iter(self._open)) if len(self._open) > MOST_OPEN else None
            if oldest is not None:
                self._forget(oldest)
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

    def close(self) -> None:
        """Close all runs."""
        for name in list(self._open):
            self._forget(name)

    def _forget(self, name: str) -> None:
        with self._lock:
            kept = self._open.pop(name, None)
        if kept is not None:
            kept[1].session.close()  # requests that still use it open the file again

    def _opened(self, name: str, folder: Path, stamp: _Stamp) -> OpenRun:
        try:
            return OpenRun(name, folder, self._cache)
        except FlawsortError as error:
            self._listed[name] = stamp, Entry(name, reason=printable(str(error)))
            raise

    def _entry(self, name: str, folder: Path) -> Entry:
        stamp = _stamp(folder)
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


def _looked_at(name: str, folder: Path) -> Entry:
    try:
        manifest = read_manifest(folder)
        n, mode = int(manifest["n_images"]), str(manifest["mode"])
        return Entry(name, n, int(manifest["clusters"]["n_clusters"]), mode)
    except RunError as error:
        return Entry(name, reason=printable(str(error)))
    except (KeyError, TypeError, ValueError) as error:
        return Entry(
            name, reason=f"The run is damaged: {error} is missing or not valid in its manifest."
        )


def _stamp(folder: Path) -> _Stamp | None:
    """Changes whenever the run is replaced; None if the run is gone."""
    try:
        found = (folder / MANIFEST).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size

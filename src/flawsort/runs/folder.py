"""Save a run to a folder and open it again: JSON, npy and parquet; no pickle.

A run is saved whole or not at all. manifest.json has the SHA-256 of every other file; opening a run
checks the files that it reads. docs/reference/run-format.md describes all files.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload
from zipfile import BadZipFile

import numpy as np

from flawsort.core.errors import FlawsortError, OptionError, RunError, first_line
from flawsort.core.remote import is_url
from flawsort.core.storage import (
    Unpublished,
    new_folder,
    read_known,
    recover,
    sha256,
    try_writing,
)
from flawsort.core.temporaries import named_for, sole_worker
from flawsort.runs.run import PARTS, Manifest, Run
from flawsort.runs.tables import first_groups

FORMAT_NAME = "flawsort-run"
FORMAT_VERSION = 4
# Version 3 had one view, and no calibrated scores.
READABLE_VERSIONS = (3, FORMAT_VERSION)
MANIFEST = "manifest.json"
REPORT = "report.html"
# Files that people add to a run later.
EDITS = "edits.sqlite"
ASSIGNED = "assigned"
JOURNAL = "watch.sqlite"

# A file that stays as it is until the run is replaced.
LASTING = "linkage.npy"
# What the tables know of the edits, in the manifest.
TABLES = "tables"
# So often files that were replaced meanwhile are read again.
READ_AGAIN = 5

# It lists all images: about 160 bytes each.
LARGEST_MANIFEST = 2**30
PIECE = 2**20

Stamp: TypeAlias = tuple[int, int, int]
Opened = TypeVar("Opened", bound=Run)
Value = TypeVar("Value")
# Whether the edits of the run in a folder are part of the new run, so that none are lost.
Carried: TypeAlias = bool | Callable[[Path], bool]
# Keeps people from editing the run in a folder while the run in the other one replaces it.
Hold: TypeAlias = Callable[[Path, Path], AbstractContextManager[None]]


@contextmanager
def prepared_output(folder: Path, *, overwrite: bool, carried: Carried = False) -> Iterator[None]:
    """Refuse an output folder early if a run cannot be written there at the end, after hours of
    work. Nobody else can make a run there until the end of the block. carried: the edits of the
    existing run go into the new one."""
    _prepare(folder, overwrite)
    _protect(folder, carried)
    with sole_worker(folder.resolve()) as alone:
        if not alone:
            raise OptionError(
                f"Another flawsort is making a run in '{folder}' at this moment. Wait until it has "
                "finished, or name another folder."
            )
        yield


def _prepare(folder: Path, overwrite: bool) -> None:
    recover(folder)
    _check_free(folder, overwrite)
    try:
        try_writing(folder)
    except OSError as error:
        raise OptionError(
            f"Cannot write to '{folder.resolve().parent}': {error.strerror or error}. "
            "Choose another place."
        ) from error


def _check_free(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that a run must not replace."""
    if folder.exists() and not folder.is_dir():
        raise OptionError(
            f"The output '{folder}' is a file. Name a folder that does not exist yet."
        )
    if os.path.ismount(folder):
        raise OptionError(
            f"The output folder '{folder}' is a mount point, which cannot be replaced by a "
            f"finished run. Name a folder inside it: '{folder / 'run'}'."
        )
    if folder.is_dir() and any(folder.iterdir()):
        if not _holds_run(folder):
            raise OptionError(
                f"The output folder '{folder}' holds files that are not a flawsort run. "
                "Name a folder that is empty or does not exist yet."
            )
        if not overwrite:
            raise OptionError(
                f"is needed to replace the run that is in '{folder}' already. Or name another "
                "folder.",
                parameter="overwrite",
            )


def _protect(folder: Path, carried: Carried) -> None:
    """Refuse to remove edits, new images, and what is still to be done with them."""
    if (folder / EDITS).exists() and not (carried(folder) if callable(carried) else carried):
        raise OptionError(
            f"The run '{folder}' holds edits of reviewers, which would be lost. Keep them with "
            f"flawsort cluster --labels-from '{folder}', or name another folder."
        )
    kept = (folder / ASSIGNED).iterdir() if (folder / ASSIGNED).is_dir() else ()
    if any(not batch.name.startswith(".") for batch in kept):  # of killed processes
        raise OptionError(
            f"The run '{folder}' keeps new images in '{ASSIGNED}', which would be lost. "
            "Name another folder, or move them away."
        )
    if (folder / JOURNAL).exists():
        raise OptionError(
            f"flawsort watch sorts into the run '{folder}'; its journal {JOURNAL} would be lost. "
            "Name another folder, or move the journal away; then all files are sorted again."
        )


def save_run(
    run: Run,
    folder: Path,
    *,
    overwrite: bool = False,
    extra: Mapping[str, str] | None = None,
    furnish: Callable[[Path], None] | None = None,
    carried: Carried = False,
    hold: Hold | None = None,
    prepared: bool = False,
) -> None:
    """Write a run. extra: more files by name, such as the report. furnish: writes files that may
    change later into the folder, before it is moved to its place. carried: these files hold the
    edits of the existing run; without it, a run with edits is not replaced. hold: called when the
    run is complete, with the folder of the existing run and its own, until it is in its place.
    prepared: within `prepared_output`. If the folder is no longer free now, after hours of work,
    the run is kept beside it."""
    if not prepared:
        _prepare(folder, overwrite)
    try:
        with ExitStack() as held:

            def last_checks() -> None:
                """What people and other processes did meanwhile, when the run is safe."""
                if hold is not None:
                    held.enter_context(hold(folder, partial))
                _check_free(folder, overwrite)
                _protect(folder, carried)

            with new_folder(folder, rescue=True, before_publish=last_checks) as partial:
                _write(run, partial, extra or {})
                if furnish is not None:
                    furnish(partial)
    except Unpublished as error:
        cause = error.__cause__
        why = str(getattr(cause, "strerror", None) or cause).removesuffix(".")
        raise RunError(
            f"The run is complete but could not be moved to '{folder}': {why}. "
            f"It is in '{error.kept}'. Move it yourself."
        ) from error


def _write(run: Run, folder: Path, extra: Mapping[str, str]) -> None:
    """Fill an empty folder."""
    for name, content in run.files().items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:  # may be large: straight to disk
            np.save(folder / name, content, allow_pickle=False)
    for name, text in extra.items():
        (folder / name).write_bytes(text.encode())
    hashes = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    (folder / MANIFEST).write_bytes(as_json({**run.manifest, "files": hashes}).encode())


@overload
def open_run(folder: str | Path, *, fetch: Sequence[str] = ...) -> Run: ...
@overload
def open_run(folder: str | Path, kind: type[Opened], *, fetch: Sequence[str] = ...) -> Opened: ...
def open_run(folder: str | Path, kind: type[Run] = Run, *, fetch: Sequence[str] = ()) -> Run:
    """Read a whole run. RunError if it is damaged, has another format version, or is not a run.
    kind: the class of the result, which may add methods. fetch: as of a Run."""
    folder = Path(folder)
    wrong = [start for start in fetch if not is_url(start)]
    if wrong:
        raise OptionError(
            f"must be the beginning of a URL, such as s3://bucket/parts. Got '{wrong[0]}'.",
            parameter="fetch",
        )

    def read() -> Run:
        try:
            return _opened(folder, kind)
        except (FlawsortError, OSError):
            raise
        except Exception as error:  # whatever a forged file makes of the code that reads it
            raise RunError(
                f"The run '{folder}' is damaged: {type(error).__name__}, {first_line(error)}."
            ) from error

    return replace(_consistent(folder, read), fetch=tuple(fetch))


def _consistent(folder: Path, read: Callable[[], Value]) -> Value:
    """What is read from a run. Files that were replaced meanwhile are read again."""
    for _ in range(READ_AGAIN):
        before = manifest_stamp(folder)
        try:
            return read()
        except RunError:
            if manifest_stamp(folder) == before:
                raise
    return read()


def _opened(folder: Path, kind: type[Opened]) -> Opened:
    manifest = read_manifest(folder)
    most = _counts(manifest)
    parts: dict[str, Any] = dict.fromkeys(PARTS)
    for name, part in PARTS.items():
        if not part.optional or part.files[0] in manifest["files"]:
            try:
                limited = part.within(folder, most)
                contents = [_read(folder, manifest, file) for file in part.read_from]
                parts[name] = limited.decode(contents)
            except (ValueError, OSError, EOFError, BadZipFile) as error:
                files = " and ".join(part.read_from)
                raise RunError(
                    f"The run '{folder}' is damaged: {files} cannot be read ({error})."
                ) from error
    run = kind(manifest=described(manifest), folder=folder, **parts)
    run.check_values()
    if {"group", "probability", "decided"} <= run.table.keys():
        return run
    # Older runs do not say what their groups are called.
    return run.with_groups(first_groups(run.labels, run.looks_normal))


def _counts(manifest: Manifest) -> dict[str | int, int]:
    """How many images, patches and so on a run has at most, by its manifest."""
    n, (rows, columns) = manifest["n_images"], manifest["grid"]
    if not all(type(one) is int and one > 0 for one in (n, rows, columns)):
        raise ValueError("n_images and grid must be whole numbers above 0")
    patches = rows * columns
    return {"images": n, "merges": n - 1, "patches": patches, "regions": n * patches}


def described(manifest: Manifest) -> Manifest:
    """What the manifest says of the run, without what it says of the files."""
    return {key: value for key, value in manifest.items() if key not in ("files", TABLES)}


def stamp_of(folder: Path) -> Stamp | None:
    """Changes whenever the run is replaced, not when its tables or its report are; None if the run
    is gone."""
    found = manifest_stamp(folder)
    return found and (_stamp(folder / LASTING) or (0, 0, 0))


def manifest_stamp(folder: Path) -> Stamp | None:
    """Changes whenever any file that the manifest lists is replaced; None if the run is gone."""
    return _stamp(folder / MANIFEST)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a run and check its format."""
    path = folder / MANIFEST
    if not folder.is_dir():
        with contextlib.suppress(OSError):  # a disk that is read-only
            recover(folder)
    if not folder.is_dir():
        raise RunError(
            f"No run folder at '{folder}'. Check the path, or make one: flawsort cluster."
        )
    try:
        manifest = _read_json(path)
    except FileNotFoundError:
        raise RunError(
            f"'{folder}' is not a flawsort run: it has no {MANIFEST}. Give the output folder of "
            "flawsort cluster."
        ) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RunError(
            f"The run '{folder}' is damaged: {MANIFEST} cannot be read ({why})."
        ) from error
    declared = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(declared, dict) or declared.get("name") != FORMAT_NAME:
        raise RunError(f"'{folder}' is not a flawsort run: flawsort did not write its {MANIFEST}.")
    version = declared.get("version")
    if not isinstance(manifest.get("files"), dict):
        raise RunError(f"The run '{folder}' is damaged: its {MANIFEST} lists no files.")
    if type(version) is not int or version not in READABLE_VERSIONS:
        raise RunError(
            f"The run '{folder}' has format version {str(version)[:40]}; this flawsort reads "
            f"versions {' and '.join(map(str, READABLE_VERSIONS))}. It was written by flawsort "
            f"{str(manifest.get('flawsort'))[:40]}: install that version or newer to open it."
        )
    return dict(manifest)


def read_text(folder: Path, name: str) -> str | None:
    """Read and check a text file of a run; None if the run has no file of that name."""

    def read() -> str | None:
        manifest = read_manifest(folder)
        return _read(folder, manifest, name).decode() if name in manifest["files"] else None

    return _consistent(folder, read)


def _read(folder: Path, manifest: Manifest, name: str) -> bytes:
    try:
        path = folder / name
        for there in (path, *named_for(path, "kept")):
            check_regular(there)
        content = read_known(path, manifest["files"][name])
    except (OSError, KeyError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RunError(f"The run '{folder}' is damaged: {name} is missing ({why}).") from error
    if content is None:
        raise RunError(
            f"The run '{folder}' is damaged: {name} has changed since it was written. "
            "Make the run again with flawsort cluster."
        )
    return content


def _holds_run(folder: Path) -> bool:
    """Whether a folder holds a run of any format version."""
    try:
        manifest = _read_json(folder / MANIFEST)
        return bool(manifest["format"]["name"] == FORMAT_NAME)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _read_json(path: Path) -> Any:
    """OSError or ValueError if it is no file or no JSON."""
    check_regular(path)
    content = bytearray()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            content += piece
            # An empty file of any size costs nothing to make.
            if b"\0" in piece or len(content) > LARGEST_MANIFEST:
                raise ValueError(f"it is no text of at most {LARGEST_MANIFEST:,} bytes")
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def check_regular(path: Path) -> None:
    """OSError for a pipe or a device: reading it would never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def as_json(content: Manifest) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

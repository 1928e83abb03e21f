"""Save a run to a folder and open it again: JSON, npy and parquet; no pickle.

A run is saved whole or not at all. manifest.json has the SHA-256 of every other file; opening a run
checks the files that it reads. docs/reference/run-format.md describes all files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload
from zipfile import BadZipFile

import numpy as np

from flawsort.core.errors import OptionError, RunError
from flawsort.core.storage import (
    Unpublished,
    new_folder,
    read_known,
    recover,
    replace_together,
    settle,
    sha256,
    try_writing,
)
from flawsort.runs.run import PARTS, Manifest, Run

FORMAT_NAME = "flawsort-run"
FORMAT_VERSION = 4
# Version 3 had one view, and no calibrated scores.
READABLE_VERSIONS = (3, FORMAT_VERSION)
MANIFEST = "manifest.json"
REPORT = "report.html"
# Files that people add to a run later.
EDITS = "edits.sqlite"
ASSIGNED = "assigned"

Opened = TypeVar("Opened", bound=Run)


def prepare_output(folder: Path, *, overwrite: bool, carried: bool = False) -> None:
    """Refuse an output folder early if a run cannot be written there at the end, after hours of
    work. carried: the edits of the existing run go into the new one."""
    _prepare(folder, overwrite)
    _protect(folder, carried)


def _prepare(folder: Path, overwrite: bool) -> None:
    recover(folder)
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
    try:
        try_writing(folder)
    except OSError as error:
        raise OptionError(
            f"Cannot write to '{folder.resolve().parent}': {error.strerror or error}. "
            "Choose another place."
        ) from error


def _protect(folder: Path, carried: bool) -> None:
    """Refuse to remove edits and new images that people added to a run."""
    if (folder / EDITS).exists() and not carried:
        raise OptionError(
            f"The run '{folder}' holds edits of reviewers, which would be lost. Keep them with "
            f"flawsort cluster --labels-from '{folder}', or name another folder."
        )
    if (folder / ASSIGNED).exists():
        raise OptionError(
            f"The run '{folder}' keeps new images in '{ASSIGNED}', which would be lost. "
            "Name another folder, or move them away."
        )


def save_run(
    run: Run,
    folder: Path,
    *,
    overwrite: bool = False,
    extra: Mapping[str, str] | None = None,
    furnish: Callable[[Path], None] | None = None,
    carried: bool = False,
) -> None:
    """Write a run. extra: more files by name, such as the report. furnish: writes files that may
    change later into the folder, before it is moved to its place. carried: these files hold the
    edits of the existing run; without it, a run with edits is not replaced."""
    # Edits that people made meanwhile are checked at the end, when the run is safe.
    _prepare(folder, overwrite)
    try:
        with new_folder(
            folder, rescue=True, before_publish=lambda: _protect(folder, carried)
        ) as partial:
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
    (folder / MANIFEST).write_bytes(_json({**run.manifest, "files": hashes}).encode())


@overload
def open_run(folder: str | Path) -> Run: ...
@overload
def open_run(folder: str | Path, kind: type[Opened]) -> Opened: ...
def open_run(folder: str | Path, kind: type[Run] = Run) -> Run:
    """Read a whole run. RunError if it is damaged, has another format version, or is not a run.
    kind: the class of the result, which may add methods."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    parts: dict[str, Any] = dict.fromkeys(PARTS)
    for name, part in PARTS.items():
        if not part.optional or part.files[0] in manifest["files"]:
            contents = [_read(folder, manifest, file) for file in part.read_from]
            try:
                parts[name] = part.decode(contents)
            except (ValueError, OSError, EOFError, BadZipFile) as error:
                files = " and ".join(part.read_from)
                raise RunError(
                    f"The run '{folder}' is damaged: {files} cannot be read ({error})."
                ) from error
    described = {key: value for key, value in manifest.items() if key != "files"}
    return kind(manifest=described, folder=folder, **parts)


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
        manifest = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"'{folder}' is not a flawsort run: it has no {MANIFEST}. Give the output folder of "
            "flawsort cluster."
        ) from None
    except (OSError, ValueError) as error:
        raise RunError(
            f"The run '{folder}' is damaged: {MANIFEST} cannot be read ({error})."
        ) from error
    declared = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(declared, dict) or declared.get("name") != FORMAT_NAME:
        raise RunError(f"'{folder}' is not a flawsort run: flawsort did not write its {MANIFEST}.")
    if declared.get("version") not in READABLE_VERSIONS:
        raise RunError(
            f"The run '{folder}' has format version {declared.get('version')}; this flawsort reads "
            f"versions {' and '.join(map(str, READABLE_VERSIONS))}. It was written by flawsort "
            f"{manifest.get('flawsort')}: install that version or newer to open it."
        )
    return dict(manifest)


def replace_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write new files, such as the report, into a run: all of them, or none."""
    settle(folder, read_manifest(folder)["files"])
    contents = {name: text.encode() for name, text in texts.items()}
    manifest = read_manifest(folder)
    for name, content in contents.items():
        manifest["files"][name] = hashlib.sha256(content).hexdigest()
    replace_together(folder, {**contents, MANIFEST: _json(manifest)})


def read_text(folder: Path, name: str) -> str | None:
    """Read and check a text file of a run; None if the run has no file of that name."""
    manifest = read_manifest(folder)
    return _read(folder, manifest, name).decode() if name in manifest["files"] else None


def _read(folder: Path, manifest: Manifest, name: str) -> bytes:
    try:
        content = read_known(folder / name, manifest["files"][name])
    except (OSError, KeyError) as error:
        raise RunError(f"The run '{folder}' is damaged: {name} is missing ({error}).") from error
    if content is None:
        raise RunError(
            f"The run '{folder}' is damaged: {name} has changed since it was written. "
            "Make the run again with flawsort cluster."
        )
    return content


def _holds_run(folder: Path) -> bool:
    """Whether a folder holds a run of any format version."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        return bool(manifest["format"]["name"] == FORMAT_NAME)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _json(content: Manifest) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

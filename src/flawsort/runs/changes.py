"""Replace files of a saved run: its report, its evaluation, and its table of images."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from flawsort.core.errors import Replaced, RunError
from flawsort.core.storage import replace_together, settle
from flawsort.core.tables import Table
from flawsort.core.temporaries import has_left_overs, sole_worker
from flawsort.runs.folder import (
    MANIFEST,
    TABLES,
    as_json,
    check_regular,
    described,
    manifest_stamp,
    read_manifest,
)
from flawsort.runs.run import PARTS, Manifest, Run

# Seconds to wait while another process replaces files of the run.
PATIENCE = 20.0


def replace_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write new files, such as the report, into a run: all of them, or none."""
    _replace(folder, {name: text.encode() for name, text in texts.items()})


def tables_version(folder: Path) -> int:
    """The number of the last edit that the tables of a run know of; 0 if they know of none. Removes
    what a killed process left."""
    manifest = read_manifest(folder)
    if has_left_overs(folder):
        with _alone(folder):
            settle(folder, read_manifest(folder)["files"])
    return _version_in(manifest)


def replace_table(
    run: Run,
    folder: Path,
    table: Table,
    known: int,
    version: int,
    hold: Callable[[], AbstractContextManager[None]],
) -> None:
    """Write the table of images of a run into its folder. Replaced if that holds another run, or a
    table of another version than the known one. version: of the edits that the table knows of.
    hold: as for `replace_together`."""

    def change(manifest: Manifest) -> None:
        if json.dumps(run.manifest, sort_keys=True) != json.dumps(
            described(manifest), sort_keys=True
        ):
            raise Replaced(f"The run in '{folder}' was replaced since it was opened.")
        if _version_in(manifest) != known:
            raise Replaced(f"Somebody else has written the tables of '{folder}' meanwhile.")
        manifest.pop(TABLES, None)
        if version:
            manifest[TABLES] = {"version": version}

    _replace(folder, PARTS["table"].contents(table), change, hold)


def _replace(
    folder: Path,
    contents: Mapping[str, bytes],
    change: Callable[[Manifest], object] = lambda manifest: None,
    hold: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """change: of the manifest, besides the hashes. hold: as for `replace_together`."""
    with _alone(folder):
        stamp = manifest_stamp(folder)
        manifest = read_manifest(folder)
        settle(folder, manifest["files"])
        change(manifest)
        for name, content in contents.items():
            if (folder / name).exists():
                check_regular(folder / name)
            manifest["files"][name] = hashlib.sha256(content).hexdigest()

        @contextmanager
        def holding() -> Iterator[None]:
            with hold():
                if manifest_stamp(folder) != stamp:
                    raise Replaced(f"The run in '{folder}' was replaced meanwhile. Try again.")
                yield

        replace_together(folder, {**contents, MANIFEST: as_json(manifest)}, hold=holding)


def _version_in(manifest: Manifest) -> int:
    known = manifest.get(TABLES)
    version = known.get("version") if isinstance(known, dict) else 0
    return version if type(version) is int else 0


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else replaces files of the run within the block: the last one would bring back the
    hashes of files that the first one has replaced."""
    end = time.monotonic() + PATIENCE
    while True:
        with sole_worker(folder / MANIFEST) as alone:
            if alone:
                yield
                return
        if time.monotonic() >= end:
            raise RunError(
                f"Another flawsort has been writing into the run '{folder}' for more than "
                f"{PATIENCE:.0f} seconds. Try again; nothing was changed."
            )
        time.sleep(0.05)

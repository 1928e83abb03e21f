"""The table of images in the folder of a run, with the groups as people left them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from flawsort.labels.groups import kinds
from flawsort.labels.regions import settled_regions
from flawsort.labels.state import State
from flawsort.labels.store import Conflict
from flawsort.labels.suggestions import image_groups
from flawsort.runs.changes import replace_table, tables_version
from flawsort.runs.folder import MANIFEST
from flawsort.runs.reviewed import ReviewedGroups, is_reviewed, reviewed_table
from flawsort.runs.run import PARTS, Run


def reviewed_groups(run: Run, state: State) -> ReviewedGroups:
    """What people read of the images of a run."""
    now = state.settled
    ids: list[int] = now.labels.tolist()
    of_rows = [now.groups[group] for group in ids]
    shown = kinds(run, now, settled_regions(run, state))
    return ReviewedGroups(
        image_groups(state.labelling, state.suggestions),
        ids,
        [group.role for group in of_rows],
        [group.severity for group in of_rows],
        [now.notes.get(row, "") for row in range(len(ids))],
        shown,
        [[now.groups[group].title for group in some] for some in shown],
    )


def update_table(
    run: Run, folder: Path, state: State, held: Callable[[], AbstractContextManager[int]]
) -> None:
    """Write images.csv and images.parquet as people left the groups, unless they are as they should
    be. A run that nobody has reviewed stays as it is. held: as of an EditStore. Conflict or
    Replaced if somebody else has written newer ones, or another run, meanwhile."""
    if not (state.version or is_reviewed(run.table)) or not _may_write(folder):
        return
    known = tables_version(folder)
    if known == state.version:
        return

    @contextmanager
    def hold() -> Iterator[None]:
        with held() as current:
            if state.version < known <= current:
                raise Conflict(state.version, current)
            yield

    if state.version:
        table = reviewed_table(run.table, reviewed_groups(run, state))
    else:  # somebody has moved the edits away
        table = run.unreviewed().table
    replace_table(run, folder, table, known, state.version, hold)


def _may_write(folder: Path) -> bool:
    """False also where no run is saved."""
    files = [folder / name for name in (*PARTS["table"].files, MANIFEST)]
    there = (folder / MANIFEST).exists() and os.access(folder, os.W_OK)
    return there and all(os.access(file, os.W_OK) for file in files if file.exists())

"""Batches of new images that were assigned to a run later, by the current groups."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.core.errors import FlawsortError, InputError, RunError
from flawsort.labels.groups import Labelling, current_groups
from flawsort.outputs.charts import chart_svg
from flawsort.review.schemas import AssignedBody, AssignedEntryBody, CountsBody, RiseBody
from flawsort.runs.assigned import ASSIGNED, Kept, kept_names, open_kept
from flawsort.runs.run import Run
from flawsort.runs.trends import counts, rises

UNSEEN = -1
# A batch of 5,000 images takes about 30 MB.
BATCHES_OPEN = 4
COLUMNS = ("name", "cluster", "confidence", "nearest", "novelty", "score", "period", "proposal")


def assigned_list(folder: Path) -> list[AssignedEntryBody]:
    """The batches that a run keeps, in the order in which they were made."""
    found = []
    for name in kept_names(folder):
        try:
            kept = _batch(folder, name)
            n, at = len(kept.table["name"]), str(kept.about.get("at", ""))
            found.append(AssignedEntryBody(name=name, n=n, at=at, reason=""))
        except FlawsortError as error:
            found.append(AssignedEntryBody(name=name, n=0, at="", reason=str(error)))
    return found


def assigned_body(folder: Path, name: str, run: Run, labelling: Labelling) -> AssignedBody:
    """A batch by the current groups: new images of a cluster go where most of its own are."""
    kept = _batch(folder, name)
    groups = current_groups(kept.table["cluster"], run, labelling)
    by = counts(groups, kept.table["period"])
    proposal = np.array(kept.table["proposal"], np.int64)
    return AssignedBody(
        name=name,
        n=len(groups),
        at=str(kept.about.get("at", "")),
        by=str(kept.about.get("by", "")),
        table={column: kept.table[column] for column in COLUMNS},
        groups=groups.tolist(),
        thumbnails=[bool(one) for one in kept.thumbnails],
        counts=CountsBody(
            periods=[str(period) for period in by.periods],
            groups=[int(group) for group in by.groups],
            table=[[int(count) for count in row] for row in by.table],
        ),
        rises=[RiseBody(**asdict(rise)) for rise in rises(by)],
        proposals=[
            np.flatnonzero(proposal == kind).tolist()
            for kind in range(proposal.max(initial=-1) + 1)
        ],
    )


def assigned_chart(folder: Path, name: str, run: Run, labelling: Labelling) -> str:
    """A chart of the images of each group by period, as SVG."""
    kept = _batch(folder, name)
    by = counts(current_groups(kept.table["cluster"], run, labelling), kept.table["period"])
    titles = {group.id: group.title for group in labelling.groups.values()}
    return chart_svg(by, {**titles, UNSEEN: "new kinds"})


def assigned_thumb(folder: Path, name: str, row: int) -> bytes:
    """A JPEG of a new image."""
    thumbnails = _batch(folder, name).thumbnails
    if row >= len(thumbnails) or not thumbnails[row]:
        raise InputError(f"There is no picture of row {row}.")
    return thumbnails[row]


def _batch(folder: Path, name: str) -> Kept:
    if name not in kept_names(folder):
        raise InputError(f"The run has no batch '{name}'.")
    try:
        when = (folder / ASSIGNED / name).stat()
    except OSError as error:
        raise InputError(f"The run no longer has the batch '{name}'.") from error
    return _opened(folder, name, (when.st_ino, when.st_mtime_ns))


@lru_cache(maxsize=BATCHES_OPEN)
def _opened(folder: Path, name: str, stamp: tuple[int, int]) -> Kept:
    """stamp: changes when the batch is replaced."""
    try:
        kept = open_kept(folder, name)
    except (FlawsortError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the parquet reader panics at some damage, with no Exception
        raise RunError(f"The batch '{name}' is damaged: {error}.") from error
    _check(kept)
    return kept


def _check(kept: Kept) -> None:
    """RunError if columns are missing or differ in length."""
    missing = [column for column in COLUMNS if column not in kept.table]
    lengths: dict[str, Any] = {column: len(values) for column, values in kept.table.items()}
    lengths["thumbnails"] = len(kept.thumbnails)
    if missing or len(set(lengths.values())) > 1:
        raise RunError(f"The batch '{kept.name}' is damaged: {missing or lengths}.")

"""Batches of new images that were assigned to a run later, by the current groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import NORMAL, UNSEEN
from flawsort.core.errors import FlawsortError, InputError, OptionError
from flawsort.core.text import clean
from flawsort.images.view import UnreadableImage
from flawsort.labels.example_checks import packed
from flawsort.labels.newcomers import sort_kept
from flawsort.labels.state import State
from flawsort.outputs.charts import chart_svg
from flawsort.review.pictures import IMAGE_QUALITY, IMAGE_SIDE, checked_source, jpeg_of
from flawsort.review.schemas import AssignedBody, AssignedEntryBody, CountsBody, RiseBody
from flawsort.runs.assigned import (
    ASSIGNED,
    Kept,
    kept_names,
    n_kept,
    open_kept,
    parts_of,
    propose_kinds,
    read_about,
)
from flawsort.runs.run import Run, source_of
from flawsort.runs.tables import NORMAL_TITLE, known_numbers
from flawsort.runs.trends import counts, rises

# A batch of 5,000 images takes about 30 MB.
BATCHES_OPEN = 4
# Entries of the list, which the page asks for again and again.
ENTRIES_KNOWN = 4096
# New kinds are proposed among the latest images of a batch that grows, in less than a second.
MOST_PROPOSED = 2000
# Why an image cannot teach.
REASONS = {
    "older": "the batch was made by an older version, which kept no embeddings. Sort the images "
    "again with flawsort assign.",
    "many": "only the first images of a large batch are kept with their embeddings.",
    "run": "it is an image of the run itself. Decide it among the groups.",
}
SHOWN = ("name", "cluster", "nearest", "novelty", "score", "period", "proposal")


def assigned_list(folder: Path) -> list[AssignedEntryBody]:
    """The batches that a run keeps, in the order in which they were made."""
    found = []
    for name in kept_names(folder):
        try:
            found.append(_entry(folder, name, _stamp(folder, name)))
        except FlawsortError as error:
            found.append(AssignedEntryBody(name=name, n=0, at="", reason=str(error)))
    return found


def assigned_body(folder: Path, name: str, run: Run, state: State) -> AssignedBody:
    """A batch by what people have taught so far."""
    kept = _batch(folder, name)
    found = sort_kept(kept, run, state)
    groups = found.groups
    by = counts(groups, kept.table["period"])
    proposal = _proposal(kept, groups, run)
    return AssignedBody(
        name=name,
        n=len(groups),
        at=str(kept.about.get("at", "")),
        by=str(kept.about.get("by", "")),
        table={
            **{column: kept.table[column] for column in SHOWN},
            "probability": list(found.columns.probability),
        },
        groups=groups.tolist(),
        decided=found.decided.tolist(),
        verdicts=list(found.verdicts),
        teaches=_teaches(kept, run),
        thumbnails=[bool(one) for one in kept.thumbnails],
        counts=CountsBody(
            periods=[str(period) for period in by.periods],
            groups=[int(group) for group in by.groups],
            table=[[int(count) for count in row] for row in by.table],
        ),
        rises=[RiseBody(**asdict(rise)) for rise in rises(by)],
        proposals=[
            np.flatnonzero((proposal == kind) & (groups == UNSEEN)).tolist()
            for kind in range(proposal.max(initial=-1) + 1)
        ],
    )


def assigned_chart(folder: Path, name: str, run: Run, state: State) -> str:
    """A chart of the images of each group by period, as SVG."""
    kept = _batch(folder, name)
    by = counts(sort_kept(kept, run, state).groups, kept.table["period"])
    titles = {group.id: group.title for group in state.labelling.groups.values()}
    return chart_svg(by, {**titles, UNSEEN: "new kinds", NORMAL: NORMAL_TITLE})


def assigned_thumb(folder: Path, name: str, row: int) -> bytes:
    """A JPEG of a new image."""
    thumbnails = _batch(folder, name).thumbnails
    if row >= len(thumbnails) or not thumbnails[row]:
        raise InputError(f"There is no picture of row {row}.")
    return thumbnails[row]


def assigned_image(folder: Path, name: str, row: int, run: Run) -> bytes:
    """A JPEG of a new image as large as the page shows it: from its file, or its thumbnail if the
    file is gone or has changed."""
    table = _batch(folder, name).table
    if row >= len(table["name"]):
        raise InputError(f"There is no picture of row {row}.")
    try:
        path, title, digest = (str(table[key][row]) for key in ("path", "name", "sha256"))
        if not path:
            return assigned_thumb(folder, name, row)
        source = checked_source(lambda: source_of(path, run.fetch), title, digest)
        return jpeg_of(run, source, IMAGE_SIDE, IMAGE_QUALITY)
    except (InputError, UnreadableImage):
        return assigned_thumb(folder, name, row)


def examples_from(folder: Path, name: str, rows: Sequence[int], run: Run) -> list[dict[str, str]]:
    """New images as the edit `teach` holds them, each content once. OptionError if one of them
    cannot teach."""
    kept = _batch(folder, name)
    n, found, why_not = len(kept.table["name"]), {}, _teaches(kept, run)
    for row in rows:
        if not 0 <= row < n:
            raise OptionError(f"rows must be images of the batch, 0 to {n - 1}. Got {row}.")
        title, digest = str(kept.table["name"][row]), str(kept.table["sha256"][row])
        if why_not[row]:
            raise OptionError(f"'{title}' cannot teach: {REASONS[why_not[row]]}")
        assert kept.vectors is not None
        # With the path, another run can find the image again and learn from it, too.
        where = clean(str(kept.table["path"][row])) or clean(title)
        found[digest] = packed(where, digest, kept.vectors[row])
    return list(found.values())


def suggested_for(
    folder: Path, name: str, rows: Sequence[int], run: Run, state: State
) -> list[int | None]:
    """The group that is suggested for each of the examples that `examples_from` gives, UNSEEN for a
    new kind, None where a person decided or nothing is known."""
    kept = _batch(folder, name)
    found, digests = sort_kept(kept, run, state), kept.table["sha256"]
    first = {str(digests[row]): row for row in reversed(rows)}
    places = [first[digest] for digest in dict.fromkeys(str(digests[row]) for row in rows)]
    sure = known_numbers(found.probability[places])
    groups = found.groups[places].tolist()
    return [None if one is None else group for group, one in zip(groups, sure, strict=True)]


def _teaches(kept: Kept, run: Run) -> list[str]:
    """Why each image cannot teach: a key of REASONS, or "" if it can."""
    known, n = set(run.table["sha256"]), len(kept.table["name"])
    if kept.vectors is None:
        return ["older"] * n
    return [
        "run" if digest in known else "many" if row >= len(kept.vectors) else ""
        for row, digest in enumerate(kept.table["sha256"])
    ]


def _proposal(kept: Kept, groups: NDArray[np.int64], run: Run) -> NDArray[np.int64]:
    """(n,): the proposed new kind of each image, or -1. In a batch that grows they are found among
    the images that are there by now."""
    proposal = np.array(kept.table["proposal"], np.int64)
    if kept.about.get("grows") and kept.vectors is not None:
        rows = np.flatnonzero(groups[: len(kept.vectors)] == UNSEEN)[-MOST_PROPOSED:]
        unseen = np.asarray(kept.vectors, np.float32)[rows]
        proposal[rows] = propose_kinds(unseen, run.linkage, run.n_clusters)
    return proposal


def _batch(folder: Path, name: str) -> Kept:
    if name not in kept_names(folder):
        raise InputError(f"The run has no batch '{name}'.")
    return _opened(folder, name, _stamp(folder, name))


def _stamp(folder: Path, name: str) -> tuple[int, int]:
    """Changes when a batch is replaced, or has grown."""
    try:
        when = (folder / ASSIGNED / name).stat()
    except OSError as error:
        raise InputError(f"The run no longer has the batch '{name}'.") from error
    return when.st_ino, when.st_mtime_ns


@lru_cache(maxsize=ENTRIES_KNOWN)
def _entry(folder: Path, name: str, stamp: tuple[int, int]) -> AssignedEntryBody:
    """A batch in the list. One that grows says how many images it has; others are opened."""
    place = folder / ASSIGNED / name
    if parts_of(place):
        n, at = n_kept(folder, name), str(read_about(place).get("at", ""))
    else:
        kept = _opened(folder, name, stamp)
        n, at = len(kept.table["name"]), str(kept.about.get("at", ""))
    return AssignedEntryBody(name=name, n=n, at=at, reason="")


@lru_cache(maxsize=BATCHES_OPEN)
def _opened(folder: Path, name: str, stamp: tuple[int, int]) -> Kept:
    """stamp: changes when the batch is replaced."""
    return open_kept(folder, name)

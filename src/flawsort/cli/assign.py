"""The command `flawsort assign`: sorts new images into the groups of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.assign_summary import show_assignment
from flawsort.cli.options import (
    Address,
    Arithmetic,
    Cache,
    Device,
    Fetch,
    Glob,
    Json,
    NoCache,
    Parts,
    Quiet,
    Runner,
    Sources,
    Workers,
    among,
    cache_folder,
)
from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from flawsort.core.records import Progress
    from flawsort.core.tables import Table
    from flawsort.daily.sorter import Sorted
    from flawsort.labels.newcomers import Newcomers
    from flawsort.labels.state import State


def assign(
    sources: Sources,
    run: Annotated[
        Path,
        typer.Option("--run", "-r", metavar="RUN", help="The run with the groups to sort into."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a table: FILE.csv or FILE.parquet."
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Keep the images in the run as NAME, for the review."),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="Count images by day, week, month or folder, or by a CSV of lots.",
            autocompletion=among("day", "week", "month", "folder"),
        ),
    ] = "day",
    device: Device = None,
    glob: Glob = None,
    arithmetic: Arithmetic = None,
    runner: Runner = "local",
    address: Address = None,
    workers: Workers = None,
    parts: Parts = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    fetch: Fetch = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Sort new images into the groups of a run. By what people taught it in the review, an image
    gets a group by name, normal, or a new kind."""
    check_table_path(output)
    with console.showing_progress(quiet) as progress:
        result = assign_images(
            run,
            sources,
            glob=glob,
            output=output,
            keep_as=keep,
            by=by,
            where={
                "device": device,
                "arithmetic": arithmetic,
                "runner": runner,
                "address": address,
                "n_workers": workers,
                "parts": parts,
            },
            cache=cache_folder(cache, no_cache),
            progress=progress,
            notice=console.notice(quiet),
            fetch=fetch or [],
        )
    if as_json:
        console.print_json(result)
    else:
        show_assignment(result, output)


def assign_images(
    folder: Path,
    sources: list[str],
    *,
    glob: str | None = None,
    output: Path | None = None,
    keep_as: str | None = None,
    by: str = "day",
    where: dict[str, Any],
    cache: str | Path | None,
    progress: Progress | None,
    notice: Callable[[str], None] | None = None,
    fetch: Sequence[str] = (),
) -> dict[str, Any]:
    """Sort new images into the groups of a run. Returns a summary for JSON.

    output: the table to write. keep_as: the name under which the run keeps the images, for the
    review. by: count images by "day", "week", "month" or "folder", or by a CSV file. where: the
    parameters of AnomalyClusterer.load that choose device and runner. notice: as of
    AnomalyClusterer. fetch: as of a Run, for the pictures of what matches best.
    """
    import numpy as np

    from flawsort.daily.sorter import Sorter
    from flawsort.fitting.foresight import note_on_shrunk
    from flawsort.images.find import find_images
    from flawsort.images.inputs import notes_on_files
    from flawsort.runs.assigned import check_name, keep
    from flawsort.runs.preview import SHOWN_IMAGES
    from flawsort.runs.trends import SPANS, periods

    # Refuse a bad run or device before reading many files.
    with Sorter(folder, where=where, cache=cache, fetch=fetch) as sorter:
        if keep_as is not None:
            check_name(folder, keep_as)
        span = by if by in SPANS else Path(by)
        images = find_images(sources, glob=glob)
        periods(images.names, images.sources, span)  # refuses a bad table of lots early, too
        sorter.model.notice = notice
        kept_first = SHOWN_IMAGES if keep_as is not None else 0
        found = sorter.sort(images, keep_vectors=kept_first, keep_parts=True, progress=progress)
        when = periods(found.images.names, found.images.sources, span)
        table, new_kinds = sorter.table(found, when)
        if output is not None:
            write_table(table, output)
        kept = None
        if keep_as is not None:
            rows = np.arange(min(len(found.images), SHOWN_IMAGES))
            kept = keep(folder, sorter.kept(found, keep_as, table, by, rows))
        sorter.model.discard_parts()
        fitted = sorter.model.fitted_
        notes = notes_on_files(found.images)
        notes += [note_on_shrunk(found.images, fitted.view, fitted.input_size)]
        counted = (table, when, new_kinds)
        return _summary(folder, sorter.state, found, counted, kept, by, list(filter(None, notes)))


def _summary(
    folder: Path,
    state: State,
    found: Sorted,
    counted: tuple[Table, list[str], list[int]],
    kept: Path | None,
    by: str,
    notes: list[str],
) -> dict[str, Any]:
    """counted: the table, the period of each image, and the sizes of new kinds."""
    from flawsort.core.tables import as_rows

    table, when, new_kinds = counted
    aside = found.images.set_aside
    return {
        "run": str(folder),
        "n_images": len(found.images),
        "taught": state.suggestions.n_taught,
        "threshold": state.labelling.threshold,
        "kept": None if kept is None else str(kept),
        "by": by,
        **_counts(found.newcomers, when),
        "new_kinds": new_kinds,
        "notes": notes,
        "set_aside": [{"name": entry.name, "reason": entry.reason} for entry in aside],
        "images": as_rows(table),
    }


def _counts(newcomers: Newcomers, when: list[str]) -> dict[str, Any]:
    """The number of images per group, in total and by period, the groups that rise, and the number
    of images of each verdict."""
    from collections import Counter
    from dataclasses import asdict

    import numpy as np

    from flawsort.runs.trends import counts, rises

    # Groups in the order of their ids, then new kinds and normal images of no group. Groups with
    # the same title are one to a reader.
    order = np.lexsort((newcomers.groups, newcomers.groups < 0)).tolist()
    titles = list(dict.fromkeys(newcomers.titles[row] for row in order))
    number = {title: place for place, title in enumerate(titles)}
    found = counts(np.array([number[title] for title in newcomers.titles], np.int64), when)
    totals, verdicts = Counter(newcomers.titles), Counter(newcomers.verdicts)
    return {
        "counts": {title: totals[title] for title in titles},
        "verdicts": {verdict: verdicts[verdict] for verdict in ("OK", "not OK", "")},
        "periods": {
            period: {titles[group]: int(n) for group, n in zip(found.groups, row, strict=True)}
            for period, row in zip(found.periods, found.table, strict=True)
        },
        "rises": [{**asdict(rise), "group": titles[rise.group]} for rise in rises(found)],
    }


def check_table_path(path: Path | None) -> None:
    """Refuse a table that cannot be written, before anything is computed."""
    from flawsort.core.storage import try_writing

    if path is None:
        return
    if path.suffix not in (".csv", ".parquet"):
        raise OptionError(f"The table must be a .csv or .parquet file. Got '{path}'.")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"There is no folder '{path.absolute().parent}' to write the table to.")
    if path.is_dir():
        raise OptionError(f"The table '{path}' is a folder. Name a file.")
    try:
        try_writing(path)
    except OSError as error:
        raise OptionError(
            f"Cannot write '{path}': {error.strerror or error}. Choose another place with -o."
        ) from error


def write_table(table: Table, path: Path) -> None:
    """Write a table as CSV or parquet, by the file's suffix."""
    from flawsort.core.storage import write_whole
    from flawsort.runs.assigned import NEW_IMAGES

    as_csv = path.suffix == ".csv"
    content = NEW_IMAGES.csv(table).encode() if as_csv else NEW_IMAGES.parquet(table)
    try:
        write_whole(path, content)
    except OSError as error:
        raise OptionError(f"Cannot write '{path}': {error.strerror or error}.") from error

"""The command `flawsort assign`: sorts new images into the groups of a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.options import (
    Address,
    Arithmetic,
    Cache,
    Device,
    Glob,
    Json,
    NoCache,
    Parts,
    Quiet,
    Runner,
    Sources,
    Workers,
    cache_folder,
)
from flawsort.core.errors import OptionError
from flawsort.core.text import pluralise

if TYPE_CHECKING:
    from flawsort.core.records import ImageSet, Ints, Progress
    from flawsort.core.tables import Table
    from flawsort.estimator import AnomalyClusterer
    from flawsort.runs.run import Run

SHOWN_ROWS = 40
SHOWN_PERIODS = 12
NEW_KIND = "New kind"


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
            metavar="WHAT", help="Count images by day, week, month or folder, or by a CSV of lots."
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
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Sort new images into the groups of a run. Group -1 is for kinds that the run does not
    have."""
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
) -> dict[str, Any]:
    """Sort new images into the groups of a run. Returns a summary for JSON.

    output: the table to write. keep_as: the name under which the run keeps the images, for the
    review. by: count images by "day", "week", "month" or "folder", or by a CSV file. where: the
    parameters of AnomalyClusterer.load that choose device and runner.
    """
    import numpy as np

    from flawsort.core.tables import as_rows
    from flawsort.embeddings.weights import image_scores
    from flawsort.estimator import AnomalyClusterer
    from flawsort.images.find import find_images
    from flawsort.runs.assigned import (
        ASSIGNED,
        NEW_IMAGES,
        SortedImages,
        check_name,
        proposals,
        propose_kinds,
    )
    from flawsort.runs.folder import open_run
    from flawsort.runs.trends import SPANS, periods

    # Refuse a bad run or device before reading many files.
    run = open_run(folder)
    model = AnomalyClusterer.from_run(run, **where)
    if keep_as is not None:
        check_name(folder, keep_as)
    span = by if by in SPANS else Path(by)
    images = find_images(sources, glob=glob)
    periods(images.names, images.sources, span)  # refuses a bad table of lots early, too
    model.cache, model.progress = cache, progress
    usable, found, scores = model.assign(images, keep_parts=True)
    when = periods(usable.names, usable.sources, span)
    proposed = propose_kinds(found.unseen, model.linkage_, model.n_clusters_)
    table = NEW_IMAGES.build(
        SortedImages(
            usable,
            found,
            image_scores(scores, None),
            _titles(run, folder, found.labels.tolist()),
            when,
            proposals(found.labels.tolist(), proposed),
        )
    )
    if output is not None:
        write_table(table, output)
    if keep_as is not None:
        _keep(folder, keep_as, model, usable, table, by)
    model.discard_parts()
    return {
        "run": str(folder),
        "n_images": len(usable),
        "kept": None if keep_as is None else str(folder / ASSIGNED / keep_as),
        "by": by,
        **_counts(found.labels, when),
        "new_kinds": np.bincount(proposed).tolist(),
        "titles": dict(zip(map(str, table["cluster"]), table["title"], strict=True)),
        "set_aside": [{"name": entry.name, "reason": entry.reason} for entry in usable.set_aside],
        "images": as_rows(table),
    }


def _titles(run: Run, folder: Path, labels: list[int]) -> list[str]:
    """The title that each image's group has in the review; "New kind" for -1."""
    from flawsort.labels.groups import current_groups
    from flawsort.labels.store import read_labelling

    labelling = read_labelling(folder, run)
    now = current_groups(labels, run, labelling).tolist()
    return [NEW_KIND if group < 0 else labelling.groups[group].title for group in now]


def _counts(labels: Ints, when: list[str]) -> dict[str, Any]:
    """The number of images per group, in total and by period, and the groups that rise."""
    from collections import Counter
    from dataclasses import asdict

    from flawsort.runs.trends import counts, rises

    found = counts(labels, when)
    return {
        "counts": {str(label): n for label, n in sorted(Counter(labels.tolist()).items())},
        "periods": {
            period: {str(group): int(n) for group, n in zip(found.groups, row, strict=True)}
            for period, row in zip(found.periods, found.table, strict=True)
        },
        "rises": [asdict(rise) for rise in rises(found)],
    }


def _keep(
    folder: Path, name: str, model: AnomalyClusterer, images: ImageSet, table: Table, by: str
) -> None:
    from datetime import UTC, datetime

    import numpy as np

    from flawsort._version import __version__
    from flawsort.runs.assigned import Kept, keep
    from flawsort.runs.convert import make_thumbnails
    from flawsort.runs.preview import SHOWN_IMAGES

    at = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"at": at, "by": by, "n_images": len(images), "flawsort": __version__}
    rows = np.arange(min(len(images), SHOWN_IMAGES))
    shown = make_thumbnails(images, model.view_, model.fitted_.input_size, rows)
    keep(folder, Kept(name, table, shown, about))


def show_assignment(result: dict[str, Any], output: Path | None) -> None:
    """Print the counts by group, the images if they are few, and the images set aside."""
    titles = result["titles"]
    rows = [[label, titles[label], count] for label, count in result["counts"].items()]
    images = pluralise(result["n_images"], "image")
    console.say(f"{images} sorted into the groups of {result['run']}.")
    _show_table(["group", "", "images"], rows)
    if output is None or result["n_images"] <= SHOWN_ROWS:
        shown = result["images"][:SHOWN_ROWS]
        columns = ["name", "cluster", "title", "confidence", "nearest", "novelty", "score"]
        heads = ["name", "group", *columns[2:]]
        _show_table(heads, [[row[name] for name in columns] for row in shown])
        more = result["n_images"] - len(shown)
        if more:
            console.say(f"{more:,} more: -o FILE.csv writes all of them.")
        console.say(
            "A novelty above 1 means a new kind. A confidence near 0 means an uncertain group."
        )
    _show_periods(result)
    notes = [*_trend_notes(result), *_further_notes(result, output)]
    if notes:
        console.say()
    for note in notes:
        console.say(note)


def _show_table(columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table after an empty line."""
    console.say()
    console.print_table("", columns, rows)


def _show_periods(result: dict[str, Any]) -> None:
    """Print the number of images per group and period, if there are several periods."""
    by_period = result["periods"]
    if len(by_period) > 1:
        columns = [label for label in result["counts"]]
        heads = [result["titles"][label] for label in columns]
        last = list(by_period.items())[-SHOWN_PERIODS:]
        rows = [[period, *(found.get(label, 0) for label in columns)] for period, found in last]
        _show_table([result["by"], *heads], rows)


def _trend_notes(result: dict[str, Any]) -> list[str]:
    """Notes on groups that have become more frequent, and on images that fit no group."""
    notes = []
    for rise in result["rises"]:
        what = result["titles"][str(rise["group"])]
        notes.append(
            f"More frequent: {what} in {rise['period']}: {pluralise(rise['count'], 'image')}, "
            f"{rise['expected']:.1f} expected."
        )
    sizes = result["new_kinds"]
    if sizes:
        fit = "fits" if sum(sizes) == 1 else "fit"
        notes.append(f"{pluralise(sum(sizes), 'image')} {fit} no group of the run{_alike(sizes)}.")
    return notes


def _alike(sizes: list[int]) -> str:
    """How many new kinds the images that fit no group look like."""
    if len(sizes) == 1:
        return "; they look like one new kind" if sizes[0] > 1 else ""
    *others, last = map(str, sizes)
    return f"; they look like {len(sizes)} new kinds, of {', '.join(others)} and {last} images"


def _further_notes(result: dict[str, Any], output: Path | None) -> list[str]:
    """Notes on images set aside, on files written, and on the next step."""
    notes = [f"Set aside: {entry['name']}: {entry['reason']}" for entry in result["set_aside"]]
    if output is not None:
        notes.append(f"Table: {output}")
    if result["kept"]:
        notes += [f"Kept: {result['kept']}", f"Next: flawsort review {shlex.quote(result['run'])}"]
    return notes


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

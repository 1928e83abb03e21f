"""What `flawsort assign` does: new images into the groups of a run, shown and as a table."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from flawsort._version import __version__
from flawsort.cli import console
from flawsort.core.errors import OptionError
from flawsort.core.records import ImageSet, Ints, Progress
from flawsort.core.storage import try_writing, write_whole
from flawsort.core.tables import Table, as_rows
from flawsort.core.text import pluralise
from flawsort.embeddings.weights import image_scores
from flawsort.estimator import AnomalyClusterer
from flawsort.images.find import find_images
from flawsort.labels.groups import current_groups
from flawsort.labels.store import read_labelling
from flawsort.runs.assigned import (
    ASSIGNED,
    NEW_IMAGES,
    Kept,
    SortedImages,
    check_name,
    keep,
    proposals,
    propose_kinds,
)
from flawsort.runs.convert import make_thumbnails
from flawsort.runs.folder import open_run
from flawsort.runs.preview import SHOWN_IMAGES
from flawsort.runs.run import Run
from flawsort.runs.trends import SPANS, periods, rises
from flawsort.runs.trends import counts as count_by

SHOWN_ROWS = 40
SHOWN_PERIODS = 12
NEW_KIND = "New kind"


def assign_images(
    folder: Path,
    sources: list[str],
    *,
    glob: str | None,
    device: str | None,
    arithmetic: str | None,
    cache: str | Path | None,
    progress: Progress | None,
    output: Path | None = None,
    keep_as: str | None = None,
    by: str = "day",
) -> dict[str, Any]:
    """New images into the groups of a run, as a JSON-able summary.

    output: a table to write. keep_as: the name under which the run keeps them, for the review.
    by: what they are counted by: day, week, month, folder, or a CSV file.
    """
    # Whatever is wrong with the run or the device is said before many files are read.
    run = open_run(folder)
    model = AnomalyClusterer.from_run(run, device=device, arithmetic=arithmetic)
    if keep_as is not None:
        check_name(folder, keep_as)
    span = by if by in SPANS else Path(by)
    images = find_images(sources, glob=glob)
    periods(images.names, images.sources, span)  # and what is wrong with a table of lots
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
    counts = {int(label): int((found.labels == label).sum()) for label in np.unique(found.labels)}
    return {
        "run": str(folder),
        "n_images": len(usable),
        "kept": None if keep_as is None else str(folder / ASSIGNED / keep_as),
        "by": by,
        "periods": _by_period(found.labels, when),
        "rises": [asdict(rise) for rise in rises(count_by(found.labels, when))],
        "new_kinds": [int(n) for n in np.bincount(proposed)] if len(proposed) else [],
        "counts": {str(label): count for label, count in sorted(counts.items())},
        "titles": dict(zip(map(str, table["cluster"]), table["title"], strict=True)),
        "set_aside": [{"name": entry.name, "reason": entry.reason} for entry in usable.set_aside],
        "images": as_rows(table),
    }


def _titles(run: Run, folder: Path, labels: list[int]) -> list[str]:
    """What the group of each image is called in the review; "New kind" for -1."""
    labelling = read_labelling(folder, run)
    now = current_groups(labels, run, labelling).tolist()
    return [NEW_KIND if group < 0 else labelling.groups[group].title for group in now]


def _by_period(labels: Ints, when: list[str]) -> dict[str, dict[str, int]]:
    """Images of each group in each period."""
    found = count_by(labels, when)
    return {
        period: {str(group): int(n) for group, n in zip(found.groups, row, strict=True)}
        for period, row in zip(found.periods, found.table, strict=True)
    }


def _keep(
    folder: Path, name: str, model: AnomalyClusterer, images: ImageSet, table: Table, by: str
) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"at": at, "by": by, "n_images": len(images), "flawsort": __version__}
    rows = np.arange(min(len(images), SHOWN_IMAGES))
    shown = make_thumbnails(images, model.view_, model.fitted_.input_size, rows)
    keep(folder, Kept(name, table, shown, about))


def show_assignment(result: dict[str, Any], output: Path | None) -> None:
    """Counts by group, then the images if they are few, then what was set aside."""
    titles = result["titles"]
    rows = [[label, titles[label], count] for label, count in result["counts"].items()]
    images = pluralise(result["n_images"], "image")
    console.say(f"{images} sorted into the groups of {result['run']}.")
    _show_table(["cluster", "", "images"], rows)
    if output is None or result["n_images"] <= SHOWN_ROWS:
        shown = result["images"][:SHOWN_ROWS]
        columns = ["name", "cluster", "title", "confidence", "nearest", "novelty", "score"]
        _show_table(columns, [[row[name] for name in columns] for row in shown])
        more = result["n_images"] - len(shown)
        if more:
            console.say(f"{more:,} more: write them all with -o FILE.csv.")
    _show_periods(result)
    notes = [*_trend_notes(result), *_further_notes(result, output)]
    if notes:
        console.say()
    for note in notes:
        console.say(note)


def _show_table(columns: list[str], rows: list[list[Any]]) -> None:
    """Set off from whatever is above it."""
    console.say()
    console.print_table("", columns, rows)


def _show_periods(result: dict[str, Any]) -> None:
    """Images of each group by period where there are several."""
    by_period = result["periods"]
    if len(by_period) > 1:
        columns = [label for label in result["counts"]]
        heads = [result["titles"][label] for label in columns]
        last = list(by_period.items())[-SHOWN_PERIODS:]
        rows = [[period, *(found.get(label, 0) for label in columns)] for period, found in last]
        _show_table([result["by"], *heads], rows)


def _trend_notes(result: dict[str, Any]) -> list[str]:
    """What has risen, and what is new."""
    notes = []
    for rise in result["rises"]:
        what = result["titles"][str(rise["group"])]
        notes.append(
            f"Rise: {what} in {rise['period']}: {pluralise(rise['count'], 'image')}, "
            f"{rise['expected']:.1f} expected from before."
        )
    if result["new_kinds"]:
        *others, last = result["new_kinds"]
        before = f"{', '.join(map(str, others))} and " if others else ""
        sizes = f"{before}{last} image{'' if sum(result['new_kinds']) == 1 else 's'}"
        notes.append(f"New kinds: {len(result['new_kinds'])} proposed, of {sizes}.")
    return notes


def _further_notes(result: dict[str, Any], output: Path | None) -> list[str]:
    """What was set aside, and where the rest is."""
    notes = [f"Set aside: {entry['name']}: {entry['reason']}" for entry in result["set_aside"]]
    if output is not None:
        notes.append(f"Table: {output}")
    if result["kept"]:
        notes.append(f"Kept: {result['kept']}; see them with flawsort review {result['run']}.")
    return notes


def check_table_path(path: Path | None) -> None:
    """Refuse a table that could not be written, before anything is computed."""
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
    """A table as CSV or parquet, by the file's suffix."""
    as_csv = path.suffix == ".csv"
    content = NEW_IMAGES.csv(table).encode() if as_csv else NEW_IMAGES.parquet(table)
    try:
        write_whole(path, content)
    except OSError as error:
        raise OptionError(f"Cannot write '{path}': {error.strerror or error}.") from error

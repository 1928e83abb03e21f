"""What `flawsort assign` does: new images into the groups of a run, shown and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from flawsort import console
from flawsort.errors import OptionError
from flawsort.files import find_images, shown
from flawsort.records import Progress
from flawsort.runs import Table, table_csv, table_parquet
from flawsort.storing import load_model
from flawsort.weights import image_scores

SHOWN_ROWS = 40


def assign_images(
    folder: Path,
    sources: list[str],
    *,
    glob: str | None,
    device: str | None,
    arithmetic: str | None,
    cache: str | Path | None,
    progress: Progress | None,
) -> dict[str, Any]:
    """New images into the groups of a run, as a JSON-able summary."""
    # Whatever is wrong with the run or the device is said before many files are read.
    model = load_model(folder, device=device, arithmetic=arithmetic)
    model.cache, model.progress = cache, progress
    usable, found, scores = model.assign(find_images(sources, glob=glob))
    table: Table = {
        "name": list(usable.names),
        "path": ["" if isinstance(s, np.ndarray) else shown(s.absolute()) for s in usable.sources],
        "sha256": list(usable.digests),
        "cluster": found.labels.tolist(),
        "kinds": [";".join(map(str, groups)) for groups in found.kinds],
        "confidence": found.confidence.tolist(),
        "nearest": found.nearest.tolist(),
        "runner_up": found.placed.runner_up.tolist(),
        "novelty": found.novelty.tolist(),
        "score": image_scores(scores, None).tolist(),
    }
    counts = {int(label): int((found.labels == label).sum()) for label in np.unique(found.labels)}
    return {
        "run": str(folder),
        "n_images": len(usable),
        "counts": {str(label): count for label, count in sorted(counts.items())},
        "set_aside": [{"name": entry.name, "reason": entry.reason} for entry in usable.set_aside],
        "images": [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)],
    }


def show_assignment(result: dict[str, Any], output: Path | None) -> None:
    """Counts by group, then the images if they are few, then what was set aside."""
    rows = [
        ["new kind" if label == "-1" else f"group {label}", count]
        for label, count in result["counts"].items()
    ]
    console.say(f"{result['n_images']} images sorted into the groups of {result['run']}.")
    console.say()
    console.print_table("", ["", "images"], rows)
    console.say()
    if output is None or result["n_images"] <= SHOWN_ROWS:
        shown = result["images"][:SHOWN_ROWS]
        columns = ["name", "cluster", "confidence", "nearest", "novelty", "score"]
        console.print_table("", columns, [[row[name] for name in columns] for row in shown])
        more = result["n_images"] - len(shown)
        if more:
            console.say(f"{more} more: write them all with -o FILE.csv.")
    for entry in result["set_aside"]:
        console.say(f"Set aside: {entry['name']}: {entry['reason']}")
    if output is not None:
        console.say(f"Table: {output}")


def check_table_path(path: Path | None) -> None:
    """Refuse a table that could not be written, before anything is computed."""
    if path is None:
        return
    if path.suffix not in (".csv", ".parquet"):
        raise OptionError(f"The table must be a .csv or .parquet file. Got '{path}'.")
    if not path.absolute().parent.is_dir():
        raise OptionError(f"There is no folder '{path.absolute().parent}' to write the table to.")


def write_table(rows: list[dict[str, Any]], path: Path) -> None:
    """Rows as CSV or parquet, by the file's suffix."""
    table: Table = {name: [row[name] for row in rows] for name in rows[0]}
    content = table_csv(table).encode() if path.suffix == ".csv" else table_parquet(table)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OptionError(f"Cannot write '{path}': {error.strerror or error}.") from error

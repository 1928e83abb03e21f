"""What `flawsort export` does: a run with its groups as people left them, for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flawsort.cli import console
from flawsort.core.text import pluralise, printable
from flawsort.outputs.exports import FORMATS, write_export
from flawsort.runs.folder import open_run

SHOWN_NOTES = 8


def export(folder: Path, format: str, output: Path, link: str, overwrite: bool) -> dict[str, Any]:
    """Write an export, with the edits of the run; what was written as a JSON-able summary."""
    from flawsort.labels.store import read_labelling

    run = open_run(folder)
    labelling = read_labelling(folder, run)
    written = write_export(run, labelling, format, output, link=link, overwrite=overwrite)
    return {
        "run": str(folder),
        "format": format,
        "output": printable(output),
        "n_images": len(run) - len(written.left_out),
        "n_groups": len(set(labelling.labels.tolist())),
        "confirmed": int(labelling.confirmed.sum()),
        "files": [printable(path) for path in written.paths],
        "notes": [f"{entry.name}: {entry.reason}" for entry in written.left_out],
    }


def show_export(result: dict[str, Any]) -> None:
    """What was written and where, then what had to be left out."""
    images = pluralise(result["n_images"], "image")
    groups = pluralise(result["n_groups"], "group")
    console.say(
        f"{images} in {groups} of {result['run']}, {result['confirmed']:,} confirmed by a person."
    )
    if FORMATS[result["format"]].suffix:
        console.say(f"{result['format']}: {result['output']}")
    else:
        files = pluralise(len(result["files"]), "file")
        console.say(f"{result['format']}: {files} in {result['output']}")
    notes = result["notes"]
    for note in notes[:SHOWN_NOTES]:
        console.say(f"Left out: {note}")
    if len(notes) > SHOWN_NOTES:
        console.say(f"{len(notes) - SHOWN_NOTES:,} more are left out: left-out.txt lists them all.")

"""The command `flawsort export`: writes the groups of a run for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.options import Fetch, Json, RunFolder, among
from flawsort.core.text import pluralise, printable
from flawsort.outputs.exports import FORMATS, LINKS, UNKNOWN_REGIONS, Choices

SHOWN_NOTES = 8


def export(
    run: RunFolder,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="What to write; the formats are listed above.",
            autocompletion=among(*FORMATS),
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PATH", help="The folder to write, or the file for a book."
        ),
    ],
    link: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How to put images into folders: copy, link or hardlink.",
            autocompletion=among(*LINKS),
        ),
    ] = "copy",
    unknown: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="Regions that show no group: mark them as Unknown, or leave-out; chosen by format "
            "if omitted.",
            autocompletion=among(*UNKNOWN_REGIONS),
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Keep lots on one side of the validation split: day, week, month, folder, or a "
            "CSV of lots.",
            autocompletion=among("day", "week", "month", "folder"),
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing export.")
    ] = False,
    fetch: Fetch = None,
    as_json: Json = False,
) -> None:
    """Write the groups of a run for other tools. Includes the names and corrections that people
    gave."""
    choices = Choices(link, unknown, by, overwrite)
    result = export_folder(run, format, output, choices, fetch or [])
    if as_json:
        console.print_json(result)
    else:
        show_export(result)


# One line per format, and no name broken in two, since people copy the names.
export.__doc__ = "\n".join(
    [
        f"{cleandoc(export.__doc__ or '')}\n\n\b\nFormats:",
        *(f"  {entry.name:15}{entry.words}" for entry in FORMATS.values()),
    ]
)


def export_folder(
    folder: Path, format: str, output: Path, choices: Choices, fetch: Sequence[str] = ()
) -> dict[str, Any]:
    """Write an export of a run with its edits. Returns a summary for JSON. fetch: as of a Run."""
    from flawsort.labels.regions import UNKNOWN, settled_regions
    from flawsort.labels.session import read_settled
    from flawsort.labels.suggestions import decided
    from flawsort.outputs.exports import export_run
    from flawsort.runs.folder import open_run

    run = open_run(folder, fetch=fetch)
    state = read_settled(folder, run)
    labelling, regions = state.settled, settled_regions(run, state)
    written = export_run(
        run,
        labelling,
        format,
        output,
        probability=state.suggestions.probability,
        regions=regions,
        choices=choices,
    )
    return {
        "run": str(folder),
        "format": format,
        "output": printable(output),
        "n_images": len(run) - len(written.left_out),
        "n_groups": len(set(labelling.labels.tolist())),
        "decided": int(decided(labelling).sum()),
        "unknown_regions": int((regions == UNKNOWN).sum()),
        "files": [printable(path) for path in written.paths],
        "notes": [f"{entry.name}: {entry.reason}" for entry in written.left_out],
    }


def show_export(result: dict[str, Any]) -> None:
    """Print what was written and where, and the images that were left out."""
    images = pluralise(result["n_images"], "image")
    groups = pluralise(result["n_groups"], "group")
    console.say(
        f"{images} in {groups} of {result['run']}, {result['decided']:,} decided by a person."
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
    guide = next((path for path in result["files"] if path.endswith("/README.md")), None)
    if guide is not None:
        console.say(f"Next: read {guide}")

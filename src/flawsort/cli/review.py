"""The commands `flawsort review` and `flawsort export`: arguments to calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flawsort.cli import console
from flawsort.cli.options import Json, RunFolder, whole_number
from flawsort.outputs.exports import FORMATS


def review(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS...", help="Runs, or folders of runs; this folder if not said."
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST", help="Where to listen. Others than this machine need a token."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(parser=whole_number("--port"), metavar="N", help="0 for any that is free."),
    ] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", help="What others must know to come in; made up if not said."
        ),
    ] = None,
    browse: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, or only say the address.")
    ] = True,
) -> None:
    """Look at the groups of a run in a browser: name, merge, split, move, label, export."""
    from flawsort.cli.review_actions import review as serve

    serve(runs or [Path()], host=host, port=port, token=token, open_browser=browse)


def export(
    run: RunFolder,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="What to write; the formats are listed above.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="PATH", help="The folder to write; of a book, the file."
        ),
    ],
    link: Annotated[
        str, typer.Option(metavar="HOW", help="Images into folders by copy, link or hardlink.")
    ] = "copy",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there already.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the groups of a run, as people left them, for other tools."""
    from flawsort.cli.export_actions import export as write
    from flawsort.cli.export_actions import show_export

    result = write(run, format, output, link, overwrite)
    if as_json:
        console.print_json(result)
    else:
        show_export(result)


# A line each, and no name broken in two: people copy them from here.
export.__doc__ = "\n".join(
    [
        f"{export.__doc__}\n\n\b\nFormats:",
        *(f"  {one.name:15}{one.words}" for one in FORMATS.values()),
    ]
)

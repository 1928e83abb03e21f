"""The command `flawsort demo`: makes sample images with planted flaws, and groups them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flawsort.cli import console
from flawsort.cli.cluster import run_cluster
from flawsort.cli.options import Json, Open, Quiet


def demo(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the images and the run."),
    ] = Path("flawsort-demo"),
    browse: Open = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make sample images with planted flaws, and group them. Saves a run with its report."""
    from flawsort.cli.sample_images import check_demo_folder, make_demo_images

    check_demo_folder(output)
    with console.showing_progress(quiet) as progress:
        parts, good = make_demo_images(output, progress=progress)
    run_cluster(
        [str(parts)],
        [str(good)],
        output / "run",
        truth=output / "truth.csv",
        overwrite=True,
        browse=browse,
        quiet=quiet,
        as_json=as_json,
        parameters={"cache": output / "cache"},
    )

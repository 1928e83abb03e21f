"""The command `flawsort report`: writes the report of a run again, and its heat maps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flawsort.cli import console
from flawsort.cli.options import Json, RunFolder
from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from PIL import Image

    from flawsort.runs.run import Run

HEATMAP_SIDE = 768


def report(
    run: RunFolder,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the report to this file instead."
        ),
    ] = None,
    heatmaps: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write a PNG of each image with its heat map to FOLDER."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run again. Needs only the run."""
    written = render_again(run, output, heatmaps)
    if as_json:
        console.print_json(written)
    else:
        for what, where in written.items():
            console.say(f"{what.capitalize()}: {where}")


def render_again(folder: Path, output: Path | None, heatmaps: Path | None) -> dict[str, str]:
    """Render the report of a run from the run alone. Returns the path of everything written."""
    import json

    from flawsort.core.storage import write_whole
    from flawsort.outputs.report import render_report
    from flawsort.research.evaluate import EVALUATION
    from flawsort.runs.folder import REPORT, open_run, read_text, replace_files

    run = open_run(folder)
    kept = read_text(folder, EVALUATION)
    html = render_report(run, None if kept is None else json.loads(kept))
    place = output or folder / REPORT
    try:
        if output is None:
            replace_files(folder, {REPORT: html})
        else:
            write_whole(output, html)
    except OSError as error:
        hint = " Write it elsewhere with -o." if output is None else ""
        raise OptionError(f"Cannot write '{place}': {error.strerror or error}.{hint}") from error
    written = {"report": str(place)}
    if heatmaps is not None:
        _write_heatmaps(run, heatmaps)
        written["heat maps"] = str(heatmaps)
    return written


def _write_heatmaps(run: Run, output: Path) -> None:
    """Write one PNG per image, named after the image."""
    from functools import partial

    import numpy as np

    from flawsort.core.storage import write_whole
    from flawsort.embeddings.heat import overlay

    scores = run.scores if run.valid is None else np.where(run.valid, run.scores, np.nan)
    taken: set[Path] = set()
    for row, name in enumerate(run.names):
        drawn = overlay(_picture(run, row), scores[row], run.grid, run.heat)
        target = output / f"{_safe(name)}.png"
        if target in taken:
            target = target.with_name(f"{row}-{target.name}")
        taken.add(target)
        try:
            write_whole(target, partial(drawn.save, format="PNG"), parents=True)
        except OSError as error:
            raise OptionError(
                f"Cannot write the heat map '{target}': {error.strerror or error}."
            ) from error


def _picture(run: Run, row: int) -> Image.Image:
    """The image as the backbone sees it. If the file is gone: its thumbnail, or plain grey."""
    from io import BytesIO

    from PIL import Image

    from flawsort.images.view import UnreadableImage, thumbnail

    try:
        return thumbnail(run.source(row), run.view, run.input_size, HEATMAP_SIDE)
    except (UnreadableImage, OSError):
        if run.thumbnails[row]:  # in a large run only few images have one
            return Image.open(BytesIO(run.thumbnails[row])).convert("RGB")
        return Image.new("RGB", run.input_size[::-1], (128, 128, 128))


def _safe(name: str) -> Path:
    """A relative path that cannot leave the folder it is joined to."""
    parts = [part for part in Path(name).parts if part not in ("..", "/", "\\") and part.strip()]
    return Path(*(part.replace(":", "_").replace("\x00", "_") for part in parts or ["image"]))

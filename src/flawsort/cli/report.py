"""The command `flawsort report`: a run's page again, and its heat maps. Heavy imports inside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flawsort.cli import console
from flawsort.cli.options import Json, RunFolder
from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from PIL import Image

    from flawsort.core.records import Source
    from flawsort.images.view import View
    from flawsort.runs.folder import Run

HEATMAP_SIDE = 768


def report(
    run: RunFolder,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the page to this file instead."),
    ] = None,
    heatmaps: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write a PNG of each image with its heat map to FOLDER."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's report again, from the run alone."""
    written = render_again(run, output, heatmaps)
    if as_json:
        console.print_json(written)
    else:
        for what, where in written.items():
            console.say(f"{what.capitalize()}: {where}")


def render_again(folder: Path, output: Path | None, heatmaps: Path | None) -> dict[str, str]:
    """Render a run's report from the run alone; what was written, and where."""
    import json

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
            output.write_text(html, "utf-8")
    except OSError as error:
        hint = " Write it elsewhere with -o." if output is None else ""
        raise OptionError(f"Cannot write '{place}': {error.strerror or error}.{hint}") from error
    written = {"report": str(place)}
    if heatmaps is not None:
        _write_heatmaps(run, folder, heatmaps)
        written["heat maps"] = str(heatmaps)
    return written


def _write_heatmaps(run: Run, folder: Path, output: Path) -> None:
    """One PNG an image, named after it."""
    import numpy as np

    from flawsort.embeddings.heat import overlay
    from flawsort.runs.convert import rebuild, run_images

    model = rebuild(run, folder)
    size = (256, 256) if model.backbone_ is None else model.backbone_.input_size
    scores = run.scores if run.valid is None else np.where(run.valid, run.scores, np.nan)
    taken: set[Path] = set()
    for row, (name, source) in enumerate(
        zip(run.table["name"], run_images(run).sources, strict=True)
    ):
        picture = _picture(source, model.view_, size, run.thumbnails[row])
        drawn = overlay(picture, scores[row], model.grid_, model.heat_)
        target = output / f"{_safe(name)}.png"
        if target in taken:
            target = target.with_name(f"{row}-{target.name}")
        taken.add(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            drawn.save(target)
        except OSError as error:
            raise OptionError(
                f"Cannot write the heat map '{target}': {error.strerror or error}."
            ) from error


def _picture(source: Source, view: View, size: tuple[int, int], kept: bytes) -> Image.Image:
    """The image as the backbone sees it; of one that is gone its thumbnail, or grey."""
    from io import BytesIO

    from PIL import Image

    from flawsort.images.view import UnreadableImage, thumbnail

    try:
        return thumbnail(source, view, size, HEATMAP_SIDE)
    except (UnreadableImage, OSError):
        if kept:  # few images of a large run have one
            return Image.open(BytesIO(kept)).convert("RGB")
        return Image.new("RGB", size[::-1], (128, 128, 128))


def _safe(name: str) -> Path:
    """A relative path that cannot lead out of the folder it is put in."""
    parts = [part for part in Path(name).parts if part not in ("..", "/", "\\") and part.strip()]
    return Path(*(part.replace(":", "_").replace("\x00", "_") for part in parts or ["image"]))

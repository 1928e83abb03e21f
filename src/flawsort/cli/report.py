"""The command `flawsort report`: writes the report of a run again, and its heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flawsort.cli import console
from flawsort.cli.options import Fetch, Json, RunFolder, among
from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from PIL import Image

    from flawsort.runs.run import Run

HEATMAP_SIDE = 768
SPANS = ("day", "week", "month", "folder")


def report(
    run: RunFolder,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the report to this file instead."
        ),
    ] = None,
    pdf: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write groups, accuracy, Pareto and trend as a PDF, printed by Chromium.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Count images by day, week, month, folder, or a CSV of dates or lots; week if "
            "omitted.",
            autocompletion=among(*SPANS),
        ),
    ] = None,
    lots: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Split the Pareto by folder, day, week, month or a CSV of lots, too.",
            autocompletion=among(*SPANS),
        ),
    ] = None,
    heatmaps: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Also write a PNG of each image with its heat map to FOLDER."
        ),
    ] = None,
    browser: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM", help="The Chromium or Chrome that prints; found if omitted."
        ),
    ] = None,
    fetch: Fetch = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run again. It has the groups as people left them, and needs only the
    run."""
    choices = Choices(output, pdf, by, lots, heatmaps, browser)
    written = render_again(run, choices, fetch or [])
    if as_json:
        console.print_json(written)
    else:
        for what, where in written.items():
            console.say(f"{what[0].upper()}{what[1:]}: {where}")
        console.next_step("flawsort", "review", run)


@dataclass(frozen=True)
class Choices:
    """What is written where. output: of the page; None for its place in the run. pdf, heatmaps:
    None to write none. by, lots: as `by` of `periods`; by is None for weeks. browser: that prints
    the PDF; None to find one."""

    output: Path | None = None
    pdf: Path | None = None
    by: str | None = None
    lots: str | None = None
    heatmaps: Path | None = None
    browser: str | None = None


def render_again(
    folder: Path, choices: Choices | None = None, fetch: Sequence[str] = ()
) -> dict[str, str]:
    """Render the report of a run from the run alone. Returns the path of everything written.
    fetch: as of a Run, for the heat maps."""
    import json

    from flawsort.outputs.printing import find_browser, print_page
    from flawsort.outputs.report import read_reviewed, render_printed, render_report
    from flawsort.outputs.report.reviewed import PERIOD
    from flawsort.research.evaluate import EVALUATION
    from flawsort.runs.folder import open_run, read_text

    choices = choices or Choices()
    if choices.pdf is not None and choices.pdf.suffix.lower() != ".pdf":
        better = choices.pdf.with_name(f"{choices.pdf.name}.pdf")
        raise OptionError(
            f"must be a .pdf file. Got '{choices.pdf}'. Name it '{better}'.", parameter="pdf"
        )
    browser = find_browser(choices.browser) if choices.pdf is not None else None
    run = open_run(folder, fetch=fetch)
    kept = read_text(folder, EVALUATION)
    evaluation = None if kept is None else json.loads(kept)
    asked = any((choices.pdf, choices.by, choices.lots))
    by = choices.by or PERIOD
    reviewed = read_reviewed(folder, run, by=by, lots=choices.lots, always=asked)
    html = render_report(run, evaluation, reviewed=reviewed)
    written = {"report": _write_page(folder, choices, html)}
    if choices.pdf is not None and reviewed is not None:
        _write(choices.pdf, print_page(render_printed(reviewed), browser))
        written["PDF"] = str(choices.pdf)
    if choices.heatmaps is not None:
        _write_heatmaps(run, choices.heatmaps)
        written["heat maps"] = str(choices.heatmaps)
    return written


def _write_page(folder: Path, choices: Choices, html: str) -> str:
    """Write the page. Returns its path."""
    from flawsort.runs.changes import replace_files
    from flawsort.runs.folder import REPORT

    if choices.output is not None:
        _write(choices.output, html.encode())
        return str(choices.output)
    place = folder / REPORT
    try:
        replace_files(folder, {REPORT: html})
    except OSError as error:
        raise OptionError(
            f"Cannot write '{place}': {error.strerror or error}. Write it elsewhere with -o."
        ) from error
    return str(place)


def _write(place: Path, content: bytes) -> None:
    from flawsort.core.storage import write_whole

    try:
        write_whole(place, content)
    except OSError as error:
        raise OptionError(f"Cannot write '{place}': {error.strerror or error}.") from error


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
            write_whole(target, partial(drawn.save, format="PNG"), parents=True, durable=False)
        except OSError as error:
            raise OptionError(
                f"Cannot write the heat map '{target}': {error.strerror or error}."
            ) from error


def _picture(run: Run, row: int) -> Image.Image:
    """The image as the backbone sees it. If the file is gone: its thumbnail, or plain grey."""
    from PIL import Image

    from flawsort.images.originals import kept_picture
    from flawsort.images.view import UnreadableImage, thumbnail

    try:
        return thumbnail(run.source(row), run.view, run.input_size, HEATMAP_SIDE)
    except (UnreadableImage, OSError):
        if run.thumbnails[row]:  # in a large run only few images have one
            return kept_picture(run.thumbnails[row])
        return Image.new("RGB", run.input_size[::-1], (128, 128, 128))


def _safe(name: str) -> Path:
    """A relative path that cannot leave the folder it is joined to."""
    parts = [part for part in Path(name).parts if part not in ("..", "/", "\\") and part.strip()]
    return Path(*(part.replace(":", "_").replace("\x00", "_") for part in parts or ["image"]))

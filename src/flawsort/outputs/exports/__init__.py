"""The groups of a run, as people left them, for other tools."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from flawsort.core.records import SetAside
    from flawsort.labels.groups import Labelling
    from flawsort.outputs.exports.content import Content
    from flawsort.outputs.exports.writing import Link
    from flawsort.runs.folder import Run

FORMATS = {
    "csv": "tables of images, regions and groups as CSV",
    "parquet": "the same tables as parquet",
    "folders": "a folder for each group with its images",
    "coco": "COCO instances: regions as boxes and masks",
    "cvat": "CVAT for images 1.1: tags, boxes and masks",
    "label-studio": "Label Studio tasks with predictions, and the labelling configuration",
    "fiftyone": "a FiftyOneDataset folder",
    "imagefolder": "a Hugging Face imagefolder with metadata.jsonl",
    "book": "the defect book as one HTML file",
    "book-pdf": "the defect book as a PDF, printed by Chromium",
}
"""What can be exported, with a line on each."""

SUFFIXES = {"book": ".html", "book-pdf": ".pdf"}
"""The formats whose output is a file, and how it ends; that of the others is a folder."""

WITHOUT_IMAGES = ("csv", "parquet", *SUFFIXES)
"""The formats that hold no image files, which could be linked."""

LINKS = ("copy", "link", "hardlink")
"""How images get into an export: as copies, as symbolic links, or under a second name."""


@dataclass(frozen=True)
class Written:
    """What an export came to. paths: the files and links written, sorted. left_out: the images
    that are not in it, with the reason."""

    paths: list[Path]
    left_out: list[SetAside]


def export_run(
    run: Run,
    labelling: Labelling,
    format: str,
    output: Path,
    *,
    link: str = "copy",
    overwrite: bool = False,
) -> list[Path]:
    """Write a run with its groups as they stand, for another tool. Returns the files written.

    format: of FORMATS. output: a folder, or of a format in SUFFIXES a file; it is there whole or
    not at all. link: of LINKS. Images whose files are gone or have changed are left out, and listed
    in left-out.txt. The same run and groups give the same bytes.
    """
    return write_export(run, labelling, format, output, link=link, overwrite=overwrite).paths


def write_export(
    run: Run,
    labelling: Labelling,
    format: str,
    output: Path,
    *,
    link: str = "copy",
    overwrite: bool = False,
) -> Written:
    """As `export_run`, with the images that had to be left out."""
    _check("format", format, FORMATS)
    _check("link", link, LINKS)
    if link != "copy" and format in WITHOUT_IMAGES:
        raise OptionError(
            f"is for formats with images, and {format} has none. Got '{link}'.", parameter="link"
        )
    from flawsort.outputs.exports.content import gathered
    from flawsort.outputs.exports.writing import (
        MARKER,
        write_left_out,
        writing_file,
        writing_folder,
    )

    if format in SUFFIXES:
        with (
            writing_file(output, SUFFIXES[format], overwrite=overwrite) as path,
            gathered(run, labelling) as content,
        ):
            _write_book(content, path)
        return Written([output], [])
    with writing_folder(output, format, run, overwrite=overwrite) as folder:
        with gathered(run, labelling) as content:
            left_out = _writer(format)(content, folder, cast("Link", link))
        write_left_out(folder, left_out)
        files = sorted(path for path in folder.rglob("*") if not path.is_dir())
        names = [path.relative_to(folder) for path in files if path.name != MARKER]
    return Written([output / name for name in names], left_out)


def _check(name: str, value: str, accepted: Collection[str]) -> None:
    if value not in accepted:
        raise OptionError(f"must be one of {', '.join(accepted)}. Got '{value}'.", parameter=name)


def _writer(format: str) -> Callable[[Content, Path, Link], list[SetAside]]:
    # Imported when needed: --help lists the formats.
    from flawsort.outputs.exports import (
        coco,
        cvat,
        fiftyone,
        folders,
        imagefolder,
        label_studio,
        tables,
    )

    return {
        "csv": tables.write_csv,
        "parquet": tables.write_parquet,
        "folders": folders.write,
        "coco": coco.write,
        "cvat": cvat.write,
        "label-studio": label_studio.write,
        "fiftyone": fiftyone.write,
        "imagefolder": imagefolder.write,
    }[format]


def _write_book(content: Content, path: Path) -> None:
    from flawsort.outputs.exports.book import render_book
    from flawsort.outputs.exports.pdf import print_page
    from flawsort.outputs.exports.writing import write_text

    html = render_book(content)
    if path.suffix == ".pdf":
        print_page(html, path)
    else:
        write_text(path, html)

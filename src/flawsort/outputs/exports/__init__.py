"""Export the groups of a run, as people left them, to other tools. To add a format, write its
module and add a line to FORMATS: the command line, the review and the tests read that list."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from flawsort.core.records import SetAside
    from flawsort.labels.groups import Labelling
    from flawsort.outputs.exports.content import Content
    from flawsort.outputs.exports.writing import Link
    from flawsort.runs.run import Run

    Writer: TypeAlias = Callable[[Content, Path, Link], list[SetAside]]


@dataclass(frozen=True)
class Format:
    """An export format. name: the value of --format. title: as shown on pages. words: a line about
    what it writes. writer: "module:function" in this package; the module is imported when an export
    is written, so that --help loads none of them. suffix: of a format that is a single file; "" for
    a folder. images: whether the export holds image files.

    The function is a Writer: it writes the content to a new folder, or to the path of a single
    file, and returns the images that it left out with the reasons.
    """

    name: str
    title: str
    words: str
    writer: str
    suffix: str = ""
    images: bool = True

    def write(self, content: Content, path: Path, link: Link) -> list[SetAside]:
        module, function = self.writer.split(":")
        writer: Writer = getattr(import_module(f"{__name__}.{module}"), function)
        return writer(content, path, link)


FORMATS = {
    format.name: format
    for format in (
        Format(
            "csv",
            "CSV",
            "tables of images, regions and groups as CSV",
            "tables:write_csv",
            images=False,
        ),
        Format(
            "parquet",
            "Parquet",
            "the same tables as parquet",
            "tables:write_parquet",
            images=False,
        ),
        Format("folders", "Folders", "a folder for each group with its images", "folders:write"),
        Format("coco", "COCO", "COCO instances: regions as boxes and masks", "coco:write"),
        Format(
            "yolo",
            "YOLO (detection)",
            "YOLO boxes for Ultralytics, split for training and validation",
            "yolo:write_detect",
        ),
        Format(
            "yolo-classify",
            "YOLO (classification)",
            "YOLO class folders, split for training and validation",
            "yolo:write_classify",
        ),
        Format(
            "cvat",
            "CVAT for images 1.1",
            "CVAT for images 1.1: tags, boxes and masks",
            "cvat:write",
        ),
        Format(
            "label-studio",
            "Label Studio",
            "Label Studio tasks, predictions and labelling configuration",
            "label_studio:write",
        ),
        Format(
            "fiftyone",
            "FiftyOne",
            "COCO instances, and a script that loads them into FiftyOne",
            "fiftyone:write",
        ),
        Format(
            "imagefolder",
            "Hugging Face imagefolder",
            "a Hugging Face imagefolder with metadata.jsonl",
            "imagefolder:write",
        ),
        Format(
            "book",
            "Defect book (HTML)",
            "the defect book as one HTML file",
            "book:write",
            suffix=".html",
            images=False,
        ),
        Format(
            "book-pdf",
            "Defect book (PDF)",
            "the defect book as a PDF, printed by Chromium",
            "pdf:write",
            suffix=".pdf",
            images=False,
        ),
    )
}
"""The export formats by name."""

LINKS = ("copy", "link", "hardlink")
"""How images get into an export: as copies, symbolic links or hard links."""


@dataclass(frozen=True)
class Written:
    """The result of an export. paths: the files and links written, sorted. left_out: the images
    that are not in it, with the reasons."""

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
    """Write a run with its current groups for another tool. Returns the files written.

    format: one of FORMATS. output: a folder, or a file if the format has a suffix; it is written
    completely or not at all. link: one of LINKS. Images whose files are missing or changed are left
    out and listed in left-out.txt. The same run and groups give the same bytes.
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
    """Like `export_run`, but also returns the images that were left out."""
    _check("format", format, FORMATS)
    _check("link", link, LINKS)
    chosen, how = FORMATS[format], cast("Link", link)
    if link != "copy" and not chosen.images:
        raise OptionError(
            f"is for formats with images, and {format} has none. Got '{link}'.", parameter="link"
        )
    from flawsort.outputs.exports.content import gather_content
    from flawsort.outputs.exports.writing import (
        MARKER,
        write_left_out,
        writing_file,
        writing_folder,
    )

    if chosen.suffix:
        with writing_file(output, chosen.suffix, overwrite=overwrite) as path:
            left_out = chosen.write(gather_content(run, labelling), path, how)
        return Written([output], left_out)
    with writing_folder(output, format, run, overwrite=overwrite) as folder:
        left_out = chosen.write(gather_content(run, labelling), folder, how)
        write_left_out(folder, left_out)
        files = sorted(path for path in folder.rglob("*") if not path.is_dir())
        names = [path.relative_to(folder) for path in files if path.name != MARKER]
    return Written([output / name for name in names], left_out)


def _check(name: str, value: str, accepted: Collection[str]) -> None:
    if value not in accepted:
        raise OptionError(f"must be one of {', '.join(accepted)}. Got '{value}'.", parameter=name)

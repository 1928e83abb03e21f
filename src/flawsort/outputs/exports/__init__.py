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
    from flawsort.core.records import Floats, Ints, SetAside
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
    a folder. images: whether the export holds image files. unknown: what becomes of regions that
    show no group, unless people choose; "" for a format without regions. splits: whether images are
    split into those for training and for validation.

    The function is a Writer: it writes the content to a new folder, or to the path of a single
    file, and returns the images that it left out with the reasons.
    """

    name: str
    title: str
    words: str
    writer: str
    suffix: str = ""
    images: bool = True
    unknown: str = "mark"
    splits: bool = False

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
            unknown="",
        ),
        Format(
            "parquet",
            "Parquet",
            "the same tables as parquet",
            "tables:write_parquet",
            images=False,
            unknown="",
        ),
        Format(
            "folders",
            "Folders",
            "a folder for each group with its images",
            "folders:write",
            unknown="",
        ),
        Format("coco", "COCO", "COCO instances: regions as boxes and masks", "coco:write"),
        Format(
            "yolo",
            "YOLO (detection)",
            "YOLO boxes for Ultralytics, split for training and validation",
            "yolo:write_detect",
            unknown="leave-out",
            splits=True,
        ),
        Format(
            "yolo-classify",
            "YOLO (classification)",
            "YOLO class folders, split for training and validation",
            "yolo:write_classify",
            unknown="",
            splits=True,
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
            unknown="",
        ),
        Format(
            "book-pdf",
            "Defect book (PDF)",
            "the defect book as a PDF, printed by Chromium",
            "book:write_pdf",
            suffix=".pdf",
            images=False,
            unknown="",
        ),
    )
}
"""The export formats by name."""

LINKS = ("copy", "link", "hardlink")
"""How images get into an export: as copies, symbolic links or hard links."""


UNKNOWN_REGIONS = ("mark", "leave-out")
"""What may become of regions that show no group."""


@dataclass(frozen=True)
class Choices:
    """How an export is written.

    link: one of LINKS. unknown: one of UNKNOWN_REGIONS; None for what the format usually does. by:
    what makes a lot of images that stay on one side of a split: day, week, month, folder, or a CSV
    file; None for no lots. overwrite: replace an earlier export.
    """

    link: str = "copy"
    unknown: str | None = None
    by: str | Path | None = None
    overwrite: bool = False

    def check(self, format: Format) -> None:
        """OptionError if a choice is not accepted, or does not suit the format."""
        _check("link", self.link, LINKS)
        if self.link != "copy" and not format.images:
            raise OptionError(
                f"is for formats with images, and {format.name} has none. Got '{self.link}'.",
                parameter="link",
            )
        if self.unknown is not None:
            _check("unknown", self.unknown, UNKNOWN_REGIONS)
            if not format.unknown:
                raise OptionError(
                    f"is for formats with boxes, and {format.name} has none. Got '{self.unknown}'.",
                    parameter="unknown",
                )
        if self.by is not None and not format.splits:
            split = ", ".join(one.name for one in FORMATS.values() if one.splits)
            raise OptionError(
                f"is for formats that are split for validation ({split}). Got '{self.by}' with "
                f"{format.name}.",
                parameter="by",
            )


USUAL = Choices()


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
    probability: Floats | None = None,
    regions: Ints | None = None,
    choices: Choices = USUAL,
) -> Written:
    """Write a run with its current groups for another tool.

    format: one of FORMATS. output: a folder, or a file if the format has a suffix; it is written
    completely or not at all. Images whose files are missing or changed are left out and listed in
    left-out.txt. The same run and groups give the same bytes. probability: (n_images,), how sure
    the taught model is of each image's group, nan where it says nothing. regions: (n_regions,), the
    group that each region shows (`labels.regions`); None for the groups of their clusters.
    """
    _check("format", format, FORMATS)
    chosen = FORMATS[format]
    choices.check(chosen)
    from flawsort.outputs.exports.content import gather_content
    from flawsort.outputs.exports.writing import (
        MARKER,
        write_left_out,
        writing_file,
        writing_folder,
    )

    def write(place: Path) -> list[SetAside]:
        content = gather_content(
            run,
            labelling,
            probability=probability,
            regions=regions,
            unknown=choices.unknown or chosen.unknown,
            by=choices.by,
        )
        return chosen.write(content, place, cast("Link", choices.link))

    if chosen.suffix:
        with writing_file(output, chosen.suffix, overwrite=choices.overwrite) as path:
            left_out = write(path)
        return Written([output], left_out)
    with writing_folder(output, format, run, overwrite=choices.overwrite) as folder:
        left_out = write(folder)
        write_left_out(folder, left_out)
        files = sorted(path for path in folder.rglob("*") if not path.is_dir())
        names = [path.relative_to(folder) for path in files if path.name != MARKER]
    return Written([output / name for name in names], left_out)


def _check(name: str, value: str, accepted: Collection[str]) -> None:
    if value not in accepted:
        raise OptionError(f"must be one of {', '.join(accepted)}. Got '{value}'.", parameter=name)

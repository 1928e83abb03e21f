"""A folder for each group, with its images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flawsort.core.records import SetAside
from flawsort.core.tables import TEXT, Column, Columns
from flawsort.outputs.exports.content import Content, Picture, find_pictures
from flawsort.outputs.exports.naming import flat_names, folder_names
from flawsort.outputs.exports.tables import SEVERITY_OF_IMAGE, kind_titles
from flawsort.outputs.exports.writing import LEFT_OUT, Link, place_image, write_text
from flawsort.runs.tables import ImageGroups, group_columns

LIST = "images.csv"


def write(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """Each image goes into the folder of its own group. images.csv lists the image and all kinds of
    each file."""
    pictures, left_out = find_pictures(content)
    ids = [group.id for group in content.groups]
    # No folder may have the name of a file beside it.
    named = folder_names([content.titles[i] for i in ids], reserved=[LIST, LEFT_OUT])
    folder_of = dict(zip(ids, named, strict=True))
    files: dict[int, str] = {}
    for group in ids:
        own = [one for one in pictures if content.labelling.labels[one.row] == group]
        for picture, name in zip(own, flat_names([one.name for one in own]), strict=True):
            files[picture.row] = f"{folder_of[group]}/{name}"
    for picture in pictures:
        place_image(picture.source, folder / files[picture.row], link)
    listed = _Listed(content, [(files[one.row], one) for one in pictures])
    write_text(folder / LIST, FILES.csv(FILES.build(listed)))
    return left_out


@dataclass(frozen=True)
class _Listed:
    """The images of an export, each with its file."""

    content: Content
    files: list[tuple[str, Picture]]


def _groups(listed: _Listed) -> ImageGroups:
    content, rows = listed.content, [one.row for _, one in listed.files]
    return ImageGroups(
        [content.title(row) for row in rows],
        [content.probability[row] for row in rows],
        [content.decided(row) for row in rows],
    )


FILES = Columns[_Listed](
    Column("file", TEXT, "the file in the export", lambda of: [file for file, _ in of.files]),
    Column("name", TEXT, "of the image", lambda of: [one.name for _, one in of.files]),
    *group_columns(_groups),
    Column(
        "role",
        TEXT,
        "of its group: flaw, normal or unsure",
        lambda of: [of.content.role(one.row) for _, one in of.files],
    ),
    Column(
        "severity",
        TEXT,
        SEVERITY_OF_IMAGE,
        lambda of: [of.content.severity(one.row) for _, one in of.files],
    ),
    Column(
        "note",
        TEXT,
        "what people wrote about the image",
        lambda of: [of.content.note(one.row) for _, one in of.files],
    ),
    Column(
        "kinds",
        TEXT,
        "the titles of all its groups, with ; between",
        lambda of: [kind_titles(of.content, one.row) for _, one in of.files],
    ),
)
"""The columns of images.csv."""

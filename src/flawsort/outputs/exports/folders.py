"""A folder for each group, with its images."""

from __future__ import annotations

from pathlib import Path

from flawsort.core.records import SetAside
from flawsort.outputs.exports.content import Content, find_pictures
from flawsort.outputs.exports.naming import flat_names, folder_names
from flawsort.outputs.exports.writing import LEFT_OUT, Link, place_image, write_text
from flawsort.runs.folder import Table, table_csv

LIST = "images.csv"


def write(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """An image is in the folder of its own group. images.csv says which file is which image, and
    all its kinds."""
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
    table: Table = {"file": [], "name": [], "title": [], "role": [], "kinds": [], "confirmed": []}
    for picture in pictures:
        row = picture.row
        place_image(picture.source, folder / files[row], link)
        kinds = ";".join(title.replace(";", ",") for title in content.kind_titles(row))
        confirmed = str(content.confirmed(row)).lower()
        values = (files[row], picture.name, content.title(row), content.role(row), kinds, confirmed)
        for column, value in zip(table, values, strict=True):
            table[column].append(value)
    write_text(folder / LIST, table_csv(table))
    return left_out

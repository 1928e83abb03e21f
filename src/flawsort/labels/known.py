"""Labels that are known before a run is reviewed: from a CSV file, from Python, or as folders of
example images."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import ImageSet
from flawsort.core.text import pluralise, printable
from flawsort.images.find import find_images
from flawsort.images.lookup import Columns, Lookup, read_lookup
from flawsort.labels.edit_checks import name_of
from flawsort.labels.names import check_not_reserved, means_normal
from flawsort.runs.tables import NORMAL_TITLE

_COLUMNS = Columns("labels", ("path", "name"), ("label",))


@dataclass(frozen=True)
class KnownLabels:
    """Labels of images, by the SHA-256 of their content. notes: for the user, about labels that are
    not used."""

    by_content: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelledExamples:
    """Images that need not be in a run, and the label of each."""

    images: ImageSet
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def by_content(self) -> dict[str, str]:
        """The labels by the SHA-256 of the images."""
        return dict(zip(self.images.digests, self.labels, strict=True))


def read_labels(path: Path, images: ImageSet) -> KnownLabels:
    """The labels of a CSV file with a column `path` or `name`, and a column `label`.

    Rows match images as in every CSV file: by path, by name, or by an unambiguous base name. Rows
    without a label, and rows of images that are not there, are left out.
    """
    table = read_lookup(path, _COLUMNS)
    where = printable(path)
    if not table.rows:
        raise InputError(
            f"The labels '{where}' have no row with a label. Write one for some images."
        )
    matches = table.matches(images.names, images.sources)
    found: dict[str, str] = {}
    for name, rows in zip(images.names, matches, strict=True):
        labels = sorted({_checked(table.rows[row][1], f"of '{name}'") for row in rows})
        if len(labels) > 1:
            raise InputError(
                f"The labels '{where}' have two labels for '{name}': {labels[0]!r} and "
                f"{labels[1]!r}. Keep one of them."
            )
        if labels:
            found[name] = labels[0]
    if not found:
        raise InputError(
            f"None of the {pluralise(len(table.rows), 'row')} with a label in '{where}', such as "
            f"'{table.rows[0][0]}', is one of the {pluralise(len(images), 'image')}. Images are "
            "matched by path (absolute, or relative to the CSV file) or by name. Check that it is "
            "about them."
        )
    check_case(found.values())
    known = _by_content(images, found)
    unknown = sorted(set(range(len(table.rows))).difference(*matches))
    return replace(known, notes=known.notes + _about_no_image(unknown, table, where))


def given_labels(
    given: Mapping[str, Any] | Sequence[Any], images: ImageSet, rows: Sequence[int]
) -> KnownLabels:
    """Labels from Python: for each image one label or None, or a mapping from names to labels.

    rows: (n_images,), the place of each image in a sequence of labels.
    """
    if not isinstance(given, Mapping):
        given = {name: given[row] for name, row in zip(images.names, rows, strict=True)}
    return _by_content(images, checked_labels(given, images.names))


def checked_labels(labels: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Labels by the names of images, without unknown ones. InputError if one cannot be a label, or
    if its image is not there."""
    there = set(names)
    unknown = [name for name in labels if name not in there]
    if unknown:
        raise InputError(
            f"{len(unknown)} of the {pluralise(len(labels), 'name')} with a label "
            f"{'is' if len(unknown) == 1 else 'are'} not among the "
            f"{pluralise(len(there), 'image')}, the first {reprlib.repr(unknown[0])}. Names are "
            f"paths below the folder of the images, such as {reprlib.repr(min(there))}."
        )
    texts = {name: _text(label, name) for name, label in labels.items()}
    found = {name: label for name, label in texts.items() if label}
    check_case(found.values())
    return found


def find_examples(folder: Path) -> LabelledExamples:
    """The images in a folder with one folder for each label."""
    if not folder.is_dir():
        raise InputError(
            f"The examples '{printable(folder)}' must be a folder that holds a folder of images "
            "for each kind. It is not a folder."
        )
    images = find_images(folder)
    rows = [row for row, name in enumerate(images.names) if "/" in name]
    loose = [name for name in images.names if "/" not in name]
    if not rows:
        raise InputError(
            f"The examples '{printable(folder)}' must hold a folder of images for each kind. "
            f"Got {pluralise(len(loose), 'image')} and no folder of images."
        )
    notes: tuple[str, ...] = ()
    if loose:
        notes = (
            f"{pluralise(len(loose), 'example')} directly in {printable(folder)} "
            f"{'is' if len(loose) == 1 else 'are'} in no folder of a kind, and not used: "
            f"{loose[0]}{', ...' if len(loose) > 1 else ''}",
        )
    kept = images.take(rows)
    labels = [_checked(name.partition("/")[0], f"of '{name}'") for name in kept.names]
    check_case(labels)
    _check_once(kept, labels, printable(folder))
    return LabelledExamples(kept, tuple(labels), notes)


def _check_once(images: ImageSet, labels: Sequence[str], folder: str) -> None:
    """InputError if one image is an example of two kinds."""
    first: dict[str, int] = {}
    for row, digest in enumerate(images.digests):
        other = first.setdefault(digest, row)
        if labels[other] != labels[row]:
            raise InputError(
                f"The examples '{folder}' have one image in the folders of two kinds: "
                f"'{images.names[other]}' and '{images.names[row]}'. Keep one of them."
            )


def _about_no_image(unknown: Sequence[int], table: Lookup, where: str) -> tuple[str, ...]:
    if not unknown:
        return ()
    first = f"'{table.rows[unknown[0]][0]}'"
    one = len(unknown) == 1
    return (
        f"{pluralise(len(unknown), 'row')} of {where} {'is' if one else 'are'} about no image of "
        f"this run, {first if one else f'the first {first}'}.",
    )


def _by_content(images: ImageSet, labels: Mapping[str, str]) -> KnownLabels:
    """labels: by name. Copies of one image with different labels have none."""
    found: dict[str, dict[str, str]] = {}
    for name, digest in zip(images.names, images.digests, strict=True):
        if name in labels:
            found.setdefault(digest, {}).setdefault(_same(labels[name]), name)
    notes = tuple(
        f"{' and '.join(list(names.values())[:2])} are copies of one image with different labels, "
        "so neither counts."
        for names in found.values()
        if len(names) > 1
    )
    return KnownLabels(
        {digest: next(iter(names)) for digest, names in found.items() if len(names) == 1}, notes
    )


def _same(label: str) -> str:
    return NORMAL_TITLE if means_normal(label) else label


def _text(label: object, name: str) -> str:
    """A label from Python as text, "" if it is unknown: None, or the NaN of a table."""
    if label is None or (isinstance(label, float | np.floating) and math.isnan(label)):
        return ""
    if not isinstance(label, str):
        raise InputError(
            f"Labels must be text, or None where unknown. Got {reprlib.repr(label)} for '{name}'."
        )
    return _checked(label, f"of '{name}'")


def check_case(labels: Iterable[str], others: Iterable[str] = ()) -> None:
    """InputError if two of the labels differ in case only: people would take them for one group,
    and the review does not allow both. others: names of groups that are there already."""
    first: dict[str, str] = {}
    for label in (*others, *labels):
        known = first.setdefault(label.casefold(), label)
        if known != label:
            raise InputError(
                f"Labels must not differ in case only. Got {known!r} and {label!r}: write both in "
                "the same way, or give one of them another name."
            )


def _checked(label: str, where: str) -> str:
    try:
        name = name_of(label)
        check_not_reserved(name)
        return _same(name)
    except OptionError as error:
        raise InputError(f"The label {where} cannot name a group: {error}") from error

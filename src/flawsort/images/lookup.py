"""Look up values of images in a CSV file, such as labels or production lots."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from flawsort.core.errors import InputError
from flawsort.core.records import RemoteFile, Source
from flawsort.core.text import printable


@dataclass(frozen=True)
class Columns:
    """The two columns of a CSV file to read. Each may have several names; the first found is used.

    what: the values as messages call them, such as "truth" or "periods". files: names of the column
    with the image. values: names of the column with its value.
    """

    what: str
    files: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Lookup:
    """The rows of a CSV file that have an image and a value.

    path: the file. column: the name of the column of the values. rows: the image as written in the
    file, and its value.
    """

    path: Path
    column: str
    rows: tuple[tuple[str, str], ...]

    def values_of(self, names: Sequence[str], sources: Sequence[Source | str]) -> list[str | None]:
        """The value of each image; None if no row matches or the matching rows disagree.

        A row matches an image by its path (absolute or relative to the CSV file), by its name, or
        by its base name if only one image and one row have it. names: as in an ImageSet. sources:
        files, or their paths.
        """
        by_path: dict[str, set[str]] = {}
        by_name: dict[str, set[str]] = {}
        by_base: dict[str, list[str]] = {}
        for written, value in self.rows:
            posix = written.replace("\\", "/")
            by_path.setdefault(os.path.realpath(self.path.parent / posix), set()).add(value)
            by_name.setdefault(posix.removeprefix("./"), set()).add(value)
            by_base.setdefault(PurePosixPath(posix).name, []).append(value)
        bases = Counter(PurePosixPath(name).name for name in names)
        found: list[str | None] = []
        for name, source in zip(names, sources, strict=True):
            path, base = local_path(source), PurePosixPath(name).name
            values = None if path is None else by_path.get(os.path.realpath(path))
            values = values or by_name.get(name)
            if values is None and bases[base] == 1 and len(by_base.get(base, ())) == 1:
                values = set(by_base[base])
            found.append(only(values))
        return found


def read_lookup(path: Path, columns: Columns) -> Lookup:
    """Read a CSV file in UTF-8 with a header, separated by commas, semicolons or tabs."""
    what, plural = columns.what, columns.what.endswith("s")
    advice = f"Save {'them' if plural else 'it'} as CSV in UTF-8."
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"The {what} '{printable(path)}' cannot be read: {error}. {advice}"
        ) from error
    separator = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        there = {name.strip().lower(): name for name in reader.fieldnames or () if name}
        file, value = _first(columns.files, there), _first(columns.values, there)
        if file is None or value is None:
            raise InputError(
                f"The {what} '{printable(path)}' must have a column {' or '.join(columns.files)} "
                f"and a column {' or '.join(columns.values)}. "
                f"Got {', '.join(there) or 'no header'}."
            )
        rows = [
            ((row[there[file]] or "").strip(), (row[there[value]] or "").strip()) for row in reader
        ]
    except csv.Error as error:
        raise InputError(
            f"The {what} '{printable(path)}' {'are' if plural else 'is'} not a CSV file: {error}. "
            f"{advice}"
        ) from error
    return Lookup(path, value, tuple(row for row in rows if all(row)))


def local_path(source: Source | str) -> Path | None:
    """The path of an image's file; None for a URL or an array."""
    if isinstance(source, str):
        return Path(source) if source and "://" not in source else None
    return None if isinstance(source, RemoteFile | np.ndarray) else source


def only(values: set[str] | None) -> str | None:
    """The only value; None if there are none or several."""
    return next(iter(values)) if values is not None and len(values) == 1 else None


def _first(accepted: Sequence[str], there: Mapping[str, str]) -> str | None:
    return next((name for name in accepted if name in there), None)

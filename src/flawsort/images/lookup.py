"""Look up values of images in a CSV file, such as labels or production lots."""

from __future__ import annotations

import csv
import io
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from flawsort.core.errors import InputError
from flawsort.core.records import RemoteFile, Source
from flawsort.core.tables import unguarded
from flawsort.core.text import path_of, printable


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
        """The value of each image; None if no row matches or the matching rows disagree. names,
        sources: as for `matches`."""
        return [only({self.rows[row][1] for row in rows}) for rows in self.matches(names, sources)]

    def matches(
        self, names: Sequence[str], sources: Sequence[Source | str]
    ) -> list[tuple[int, ...]]:
        """The numbers of the rows that match each image.

        A row matches an image by its path (absolute or relative to the CSV file), by its name, or
        by its base name if only one image and one row have it. An accent may be a character of its
        own, as in names that come from macOS. names: as in an ImageSet. sources: files, or their
        paths.
        """
        by_path, by_name, by_base = _Rows(), _Rows(), _Rows()
        for row, (written, _) in enumerate(self.rows):
            # A backslash is part of a name here, or stands for a slash of Windows.
            for posix in dict.fromkeys((written, written.replace("\\", "/"))):
                by_path.add(os.path.realpath(self.path.parent / posix), row)
                by_name.add(posix.removeprefix("./"), row)
                by_base.add(PurePosixPath(posix).name, row)
        bases = Counter(_composed(PurePosixPath(name).name) for name in names)
        found: list[tuple[int, ...]] = []
        for name, source in zip(names, sources, strict=True):
            path, base = local_path(source), PurePosixPath(name).name
            rows = None if path is None else by_path.get(os.path.realpath(path))
            rows = rows or by_name.get(name)
            if not rows and bases[_composed(base)] == 1 and len(by_base.get(base)) == 1:
                rows = by_base.get(base)
            found.append(tuple(rows or ()))
        return found


class _Rows:
    """The rows that name a file, by that name."""

    def __init__(self) -> None:
        self._as_written: dict[str, list[int]] = {}
        self._composed: dict[str, list[int]] = {}

    def add(self, name: str, row: int) -> None:
        self._as_written.setdefault(name, []).append(row)
        self._composed.setdefault(_composed(name), []).append(row)

    def get(self, name: str) -> list[int]:
        """As it is written, before any other way to write it."""
        return self._as_written.get(name) or self._composed.get(_composed(name), [])


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def read_lookup(path: Path, columns: Columns) -> Lookup:
    """Read a CSV file in UTF-8 with a header, separated by commas, semicolons or tabs."""
    what, plural = columns.what, columns.what.endswith("s")
    advice = f"Save {'them' if plural else 'it'} as CSV in UTF-8."
    try:
        text = path.read_bytes().decode("utf-8-sig")  # names may hold line breaks of any kind
    except FileNotFoundError as error:
        verb = "do" if plural else "does"
        raise InputError(
            f"The {what} '{printable(path)}' {verb} not exist. Check the path."
        ) from error
    except OSError as error:
        raise InputError(
            f"The {what} '{printable(path)}' cannot be read: {error.strerror or error}."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"The {what} '{printable(path)}' cannot be read: {error}. {advice}"
        ) from error
    separator = max(",;\t", key=re.split("[\r\n]", text, maxsplit=1)[0].count)
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
        rows = [(_text(row[there[file]]), _text(row[there[value]])) for row in reader]
    except csv.Error as error:
        raise InputError(
            f"The {what} '{printable(path)}' {'are' if plural else 'is'} not a CSV file: {error}. "
            f"{advice}"
        ) from error
    return Lookup(path, value, tuple(row for row in rows if all(row)))


def _text(cell: str | None) -> str:
    return unguarded((cell or "").strip())


def local_path(source: Source | str) -> Path | None:
    """The path of an image's file; None for a URL or an array."""
    if isinstance(source, str):
        return path_of(source) if source and "://" not in source else None
    return None if isinstance(source, RemoteFile | np.ndarray) else source


def only(values: set[str] | None) -> str | None:
    """The only value; None if there are none or several."""
    return next(iter(values)) if values is not None and len(values) == 1 else None


def _first(accepted: Sequence[str], there: Mapping[str, str]) -> str | None:
    return next((name for name in accepted if name in there), None)

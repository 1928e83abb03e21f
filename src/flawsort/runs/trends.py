"""Counts the images of each group by day or lot, and finds the groups that rise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Ints, Source
from flawsort.core.text import printable
from flawsort.images.lookup import Columns, Lookup, local_path, read_lookup

UNKNOWN = "unknown"
SPANS = ("day", "week", "month", "folder")
# The chance of a false alarm, over all groups together.
LEVEL = 0.01

_COLUMNS = Columns(
    "periods", ("name", "path", "file", "image"), ("date", "day", "lot", "batch", "time")
)
_DATE_COLUMNS = ("date", "day", "time")


@dataclass(frozen=True)
class Counts:
    """periods: in natural order, "unknown" last. groups: ids, ascending. table: (n_periods,
    n_groups), the number of images."""

    periods: tuple[str, ...]
    groups: tuple[int, ...]
    table: NDArray[np.int64]


@dataclass(frozen=True)
class Increase:
    """A group whose share of the last period is higher than before.

    count: its images in the last period. expected: the number of images that its share of all
    earlier periods predicts. ratio: count / expected, None if expected is 0.
    """

    group: int
    period: str
    count: int
    expected: float
    ratio: float | None


def periods(
    names: Sequence[str],
    sources: Sequence[Source | str],
    by: str | Path,
    *,
    parameter: str = "by",
) -> list[str]:
    """The period of each image: "2024-05-17", "2024-W20", "2024-05", a folder or a lot, or
    "unknown".

    names: as in an ImageSet. sources: files, or their paths. by: "day", "week" or "month" of the
    file's last change, in local time; "folder" for the first folder of the name; or a CSV file
    with a column name, path, file or image, and a column date, day, lot, batch or time (the first
    of these that it has). Only the day of a date with a time is used. parameter: what `by` is
    called where people give it.
    """
    if len(names) != len(sources):
        raise InputError(
            f"names and sources must have the same length. Got {len(names)} and {len(sources)}."
        )
    if by == "folder":
        return [_folder(name) for name in names]
    if isinstance(by, str) and by in SPANS:
        return [_changed(local_path(source), by) for source in sources]
    table = Path(by)
    if not table.is_file():
        raise OptionError(
            f"must be {', '.join(SPANS)} or a CSV file that exists. Got '{printable(table)}'.",
            parameter=parameter,
        )
    return periods_of(read_periods(table), names, sources)


def read_periods(path: Path) -> Lookup:
    """The images and periods of a CSV file, as `periods` describes it."""
    table = read_lookup(path, _COLUMNS)
    if not has_dates(table):
        return table
    days = ((file, _day(value, path, table.column)) for file, value in table.rows)
    return replace(table, rows=tuple(days))


def has_dates(table: Lookup) -> bool:
    """Whether the periods are dates, whose order their names say."""
    return table.column in _DATE_COLUMNS


def periods_of(table: Lookup, names: Sequence[str], sources: Sequence[Source | str]) -> list[str]:
    """The period of each image by a CSV file; "unknown" for images that it does not have."""
    found = [period or UNKNOWN for period in table.values_of(names, sources)]
    if names and all(period == UNKNOWN for period in found):
        raise InputError(
            f"None of the {len(names)} images has a period in the {len(table.rows)} rows of "
            f"'{printable(table.path)}'. Images are matched by path, then by name. "
            "Check that the table belongs to these images."
        )
    return found


def in_order(periods: Iterable[str]) -> list[str]:
    """Each period once, in natural order: lot 10 follows lot 9, and "unknown" comes last."""
    return sorted(set(periods), key=_order)


def counts(labels: Ints, periods: Sequence[str]) -> Counts:
    """Count images by period and group. labels, periods: (n_images,), of each image."""
    if len(labels) != len(periods):
        raise InputError(
            f"labels and periods must have the same length. Got {len(labels)} and {len(periods)}."
        )
    order = in_order(periods)
    row_of = {period: row for row, period in enumerate(order)}
    rows = np.array([row_of[period] for period in periods], np.int64)
    groups, columns = np.unique(labels, return_inverse=True)
    table = np.zeros((len(order), len(groups)), np.int64)
    np.add.at(table, (rows, columns), 1)
    return Counts(tuple(order), tuple(groups.tolist()), table)


def rises(counts: Counts) -> list[Increase]:
    """The groups whose share of the last period is significantly higher than in all earlier ones,
    the most significant first; none if there is only one period. Unknown periods do not count.

    The test is Fisher's exact test of two shares, one-sided, with Bonferroni's correction for the
    number of groups: without a change, the last period is a random draw from all images. It does
    not treat the earlier share as exact, so a single image of a new group is not yet a rise.
    """
    from scipy.stats import hypergeom

    known = [row for row, period in enumerate(counts.periods) if period != UNKNOWN]
    if len(known) < 2:
        return []
    last, earlier = counts.table[known[-1]], counts.table[known[:-1]].sum(axis=0)
    n_last, n_all = last.sum(), last.sum() + earlier.sum()
    chances = hypergeom.sf(last - 1, n_all, last + earlier, n_last) * len(counts.groups)
    found = []
    for column in np.argsort(chances, kind="stable").tolist():
        if chances[column] >= LEVEL:
            break
        expected = float(earlier[column] / (n_all - n_last) * n_last)
        count = int(last[column])
        ratio = count / expected if expected else None
        group = counts.groups[column]
        found.append(Increase(group, counts.periods[known[-1]], count, expected, ratio))
    return found


def _folder(name: str) -> str:
    first, slash, _ = name.partition("/")
    # A full path, which is the name if short names are not unique, has no first folder.
    return first if slash and first and "://" not in name else UNKNOWN


def _changed(path: Path | None, span: str) -> str:
    if path is None:
        return UNKNOWN
    try:
        at = datetime.fromtimestamp(path.stat().st_mtime)
    except (OSError, OverflowError, ValueError):  # the file is gone, or its time is out of range
        return UNKNOWN
    if span == "week":
        week = at.isocalendar()
        return f"{week.year}-W{week.week:02d}"
    return f"{at:%Y-%m}" if span == "month" else f"{at:%Y-%m-%d}"


def _day(value: str, path: Path, column: str) -> str:
    if re.fullmatch(r"\d{4}-(\d{2}|W\d{2})", value):  # a month or a week
        return value
    try:
        return datetime.fromisoformat(value).date().isoformat()
    except ValueError as error:
        raise InputError(
            f"The column {column} of '{printable(path)}' must have dates such as 2024-05-17 or "
            f"2024-05-17 13:45. Got '{value}'. "
            "Correct the dates, or rename the column to lot to use its values as they are."
        ) from error


def _order(period: str) -> tuple[bool, str, str]:
    """A sort key: numbers by value, so that lot 10 follows lot 9, and "unknown" last."""
    padded = re.sub(r"\d+", lambda digits: digits[0].zfill(20), period)
    return period == UNKNOWN, padded, period

"""How many images of each group there are by day or lot, and which of them rise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Ints, Source
from flawsort.core.text import printable
from flawsort.images.lookup import Columns, local_path, read_lookup

UNKNOWN = "unknown"
SPANS = ("day", "week", "month", "folder")
# A rise is one that chance brings about in one case of a hundred, over all groups together.
LEVEL = 0.01

_COLUMNS = Columns(
    "periods", ("name", "path", "file", "image"), ("date", "day", "lot", "batch", "time")
)
_DATE_COLUMNS = ("date", "day", "time")


@dataclass(frozen=True)
class Counts:
    """periods: as people order them, "unknown" last. groups: ids, ascending. table: (n_periods,
    n_groups), images of each group in each period."""

    periods: tuple[str, ...]
    groups: tuple[int, ...]
    table: NDArray[np.int64]


@dataclass(frozen=True)
class Increase:
    """A group whose share of the last period is above what it was before.

    count: its images in the last period. expected: as many as its share of all earlier periods
    makes of the last one. ratio: of the two, None where none was expected.
    """

    group: int
    period: str
    count: int
    expected: float
    ratio: float | None


def periods(names: Sequence[str], sources: Sequence[Source | str], by: str | Path) -> list[str]:
    """The period of each image: "2024-05-17", "2024-W20", "2024-05", a folder or a lot; "unknown"
    where nothing says it.

    names: as of an ImageSet. sources: files, or their paths. by: "day", "week" or "month" in which
    the file was last changed, by this machine's clock; "folder" for the first folder of the name;
    or a CSV file with a column name, path, file or image, and a column date, day, lot, batch or
    time, the first of these that it has. Of dates with a time the day counts.
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
            parameter="by",
        )
    return _of_table(table, names, sources)


def counts(labels: Ints, periods: Sequence[str]) -> Counts:
    """labels, periods: (n_images,), the group and the period of each image."""
    if len(labels) != len(periods):
        raise InputError(
            f"labels and periods must have the same length. Got {len(labels)} and {len(periods)}."
        )
    order = sorted(set(periods), key=_order)
    row_of = {period: row for row, period in enumerate(order)}
    rows = np.array([row_of[period] for period in periods], np.int64)
    groups, columns = np.unique(labels, return_inverse=True)
    table = np.zeros((len(order), len(groups)), np.int64)
    np.add.at(table, (rows, columns), 1)
    return Counts(tuple(order), tuple(groups.tolist()), table)


def rises(counts: Counts) -> list[Increase]:
    """The groups whose share of the last period is clearly above that of all earlier ones, the
    clearest first; none where there is no earlier one. Unknown periods do not count.

    If nothing changed, the last period is a draw from all images: Fisher's exact test of two
    shares, one-sided, with Bonferroni's correction for the number of groups. The earlier share is
    not taken for known, so that one image of a group that was never seen before is no rise yet.
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
    # A full path, which is a name where short ones are not unique, has no first folder.
    return first if slash and first and "://" not in name else UNKNOWN


def _changed(path: Path | None, span: str) -> str:
    if path is None:
        return UNKNOWN
    try:
        at = datetime.fromtimestamp(path.stat().st_mtime)
    except (OSError, OverflowError, ValueError):  # gone, or a time that no calendar has
        return UNKNOWN
    if span == "week":
        week = at.isocalendar()
        return f"{week.year}-W{week.week:02d}"
    return f"{at:%Y-%m}" if span == "month" else f"{at:%Y-%m-%d}"


def _of_table(path: Path, names: Sequence[str], sources: Sequence[Source | str]) -> list[str]:
    table = read_lookup(path, _COLUMNS)
    if table.column in _DATE_COLUMNS:
        days = [(file, _day(value, path, table.column)) for file, value in table.rows]
        table = replace(table, rows=tuple(days))
    found = [period or UNKNOWN for period in table.values_of(names, sources)]
    if names and all(period == UNKNOWN for period in found):
        raise InputError(
            f"None of the {len(names)} images has a period among the {len(table.rows)} of "
            f"'{printable(path)}'. Images are matched by path, then by name. "
            "Check that it is the table of these images."
        )
    return found


def _day(value: str, path: Path, column: str) -> str:
    if re.fullmatch(r"\d{4}-(\d{2}|W\d{2})", value):  # a month or a week
        return value
    try:
        return datetime.fromisoformat(value).date().isoformat()
    except ValueError as error:
        raise InputError(
            f"The column {column} of '{printable(path)}' must have dates such as 2024-05-17 or "
            f"2024-05-17 13:45, which can be put in order. Got '{value}'. "
            "Write them so, or call the column lot to take its values as they are."
        ) from error


def _order(period: str) -> tuple[bool, str, str]:
    """Numbers by their size, so that lot 10 comes after lot 9; what is unknown last."""
    padded = re.sub(r"\d+", lambda digits: digits[0].zfill(20), period)
    return period == UNKNOWN, padded, period

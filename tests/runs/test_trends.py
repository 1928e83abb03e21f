"""Counts by day or lot: where a period comes from, and what counts as a rise."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import fisher_exact

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import RemoteFile
from flawsort.runs.trends import Counts, Increase, counts, periods, rises


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def dated(path: Path, when: datetime) -> Path:
    """A file that was last changed then, by this machine's clock."""
    written(path, "x")
    os.utime(path, (when.timestamp(), when.timestamp()))
    return path


# ---- where a period comes from ----


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("day", ["2024-12-30", "2021-01-03", "2024-05-07"]),
        ("week", ["2025-W01", "2020-W53", "2024-W19"]),
        ("month", ["2024-12", "2021-01", "2024-05"]),
    ],
)
def test_from_the_time_of_files(tmp_path: Path, by: str, expected: list[str]) -> None:
    times = datetime(2024, 12, 30, 0, 0, 1), datetime(2021, 1, 3, 23, 59), datetime(2024, 5, 7, 12)
    files = [dated(tmp_path / f"{row}.png", time) for row, time in enumerate(times)]
    assert periods(["a", "b", "c"], files, by) == expected
    assert periods(["a", "b", "c"], [str(file) for file in files], by) == expected


def test_what_has_no_time_is_unknown(tmp_path: Path) -> None:
    sources = [
        tmp_path / "gone.png",
        RemoteFile("s3://parts/7.png"),
        np.zeros((2, 2)),
        "",
        "s3://parts/8.png",
    ]
    assert periods(list("abcde"), sources, "day") == ["unknown"] * 5


def test_a_time_that_no_calendar_has_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "a.png", "x")

    for seconds in (1e13, 1e30):
        monkeypatch.setattr(Path, "stat", lambda path, at=seconds: SimpleNamespace(st_mtime=at))
        assert periods(["a"], [file], "day") == ["unknown"]


def test_from_folders() -> None:
    names = ["lot 7/a.png", "lot 8/cam/b.png", "c.png", "/data/lot 9/d.png", "s3://x/lot/e.png"]
    found = periods(names, [""] * 5, "folder")
    assert found == ["lot 7", "lot 8", "unknown", "unknown", "unknown"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_from_a_table(tmp_path: Path, separator: str) -> None:
    rows = [
        (" Name ", "ID", "Lot"),
        ("one/a.png", "1", "7"),
        ("./one/b.png", "2", " 8 "),
        ("c.png", "3", "9"),  # the base name of one image
        ("one\\d.png", "4", "10"),
        (str(tmp_path / "real" / "e.png"), "5", "11"),
        ("real/f.png", "6", "12"),  # relative to the table
        ("g.png", "7", "13"),  # of two images
        ("one/h.png", "8", "14"),
        ("one/h.png", "9", "15"),  # contradicts itself
        ("one/i.png", "10", ""),
        ("j.png", "11", "16"),  # two rows for one base name
        ("elsewhere/j.png", "12", "16"),
    ]
    text = "\ufeff" + "\r\n".join(separator.join(row) for row in rows) + "\r\n"
    table = written(tmp_path / "lots.csv", text)
    of_names = {
        "one/a.png": "7", "one/b.png": "8", "two/b.png": "unknown", "two/c.png": "9",
        "one/d.png": "10", "x": "11", "y": "12", "one/g.png": "unknown", "two/g.png": "unknown",
        "one/h.png": "unknown", "one/i.png": "unknown", "two/j.png": "unknown",
    }  # fmt: skip
    sources = [Path("/nowhere") / name for name in of_names]
    sources[5:7] = tmp_path / "real" / "e.png", tmp_path / "real" / "f.png"
    found = periods(list(of_names), sources, table)
    assert dict(zip(of_names, found, strict=True)) == of_names
    assert periods(list(of_names), sources, str(table)) == found


def test_dates_of_a_table_are_days(tmp_path: Path) -> None:
    text = (
        "file,time,batch,date\n"
        "a,x,1,2024-05-17T13:45:10+02:00\nb,x,1,2024-05-17 09:00\nc,x,2,20240518\n"
        "d,x,2,2024-06\ne,x,2,2024-W23\n"
    )
    found = periods(list("abcdef"), [""] * 6, written(tmp_path / "t.csv", text))
    assert found == ["2024-05-17", "2024-05-17", "2024-05-18", "2024-06", "2024-W23", "unknown"]


def test_lots_are_taken_as_they_are(tmp_path: Path) -> None:
    table = written(tmp_path / "t.csv", "path,batch\na,17.05.2024\n")
    assert periods(["a"], [""], table) == ["17.05.2024"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,kind\na,b\n", "must have a column name or path or file or image and a column date "
         "or day or lot or batch or time. Got name, kind"),
        ("", "Got no header"),
        ("a,lot\n", "Got a, lot"),
        ("name,date\na,17.05.2024\n", r"The column date of '.*t.csv' must have dates such as "
         r"2024-05-17 .* Got '17.05.2024'. .* rename the column to lot"),
        ("name,lot\nb,1\nc,2\n", "None of the 1 images has a period in the 2 rows of '.*t.csv'"),
        ("name,lot\n" + "x" * 200_000 + ",1\n", r"are not a CSV file: field larger than .* UTF-8"),
    ],
)  # fmt: skip
def test_tables_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        periods(["a"], [""], written(tmp_path / "t.csv", text))


def test_what_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"name,lot\n\xff,1\n")
    with pytest.raises(InputError, match=r"The periods '.*t.csv' cannot be read: .*utf-8"):
        periods(["a"], [""], tmp_path / "t.csv")
    with pytest.raises(OptionError, match=r"by must be day, week, month, folder or a CSV file that "
                       r"exists. Got 'daily'"):  # fmt: skip
        periods(["a"], [""], "daily")
    with pytest.raises(InputError, match=r"the same length. Got 1 and 0"):
        periods(["a"], [], "day")


# ---- counts ----


def test_counts_against_loops() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice([-1, 4, 7, 11], 100)
    of = [f"lot {lot}" for lot in rng.integers(8, 13, 100)]
    of[3] = of[5] = "unknown"
    found = counts(labels, of)
    assert found.periods == ("lot 8", "lot 9", "lot 10", "lot 11", "lot 12", "unknown")
    assert found.groups == (-1, 4, 7, 11)
    assert found.table.dtype == np.int64
    for row, period in enumerate(found.periods):
        for column, group in enumerate(found.groups):
            there = [p == period and g == group for p, g in zip(of, labels, strict=True)]
            assert found.table[row, column] == sum(there)


def test_the_order_of_periods() -> None:
    of = ["zz", "unknown", "2024-10-01", "2024-09-30", "A2b10", "A2b9", "9" * 30]
    assert counts(np.zeros(7, int), of).periods == (
        "2024-09-30", "2024-10-01", "9" * 30, "A2b9", "A2b10", "zz", "unknown",
    )  # fmt: skip


def test_the_order_of_periods_is_the_same_every_time() -> None:
    alike = tuple("0" * zeros + "7" for zeros in range(9, -1, -1))
    assert counts(np.zeros(10, int), alike[::-1]).periods == alike


def test_counts_of_nothing_and_of_too_much() -> None:
    assert counts(np.array([], int), []).table.shape == (0, 0)
    with pytest.raises(InputError, match=r"labels and periods must have the same length. Got 2 "):
        counts(np.zeros(2, int), ["a"])


# ---- rises ----


def made(table: list[list[int]], periods: str = "abcdefgh") -> Counts:
    values = np.array(table)
    return Counts(tuple(periods[: len(values)]), tuple(range(values.shape[1])), values)


def test_a_rise() -> None:
    found = rises(made([[50, 20, 30], [50, 20, 30], [25, 5, 60]]))
    assert found == [Increase(2, "c", 60, 27.0, 60 / 27)]


def test_more_of_everything_is_no_rise_of_anything() -> None:
    assert rises(made([[5, 2, 3], [5, 2, 3], [500, 200, 300]])) == []


def test_a_fall_is_no_rise() -> None:
    assert [rise.group for rise in rises(made([[50, 50], [50, 50], [50, 0]]))] == [0]


def test_a_group_that_was_never_there() -> None:
    found = rises(made([[100, 0], [100, 0], [95, 5]]))
    assert found == [Increase(1, "c", 5, 0.0, None)]
    # One or two may be chance.
    assert rises(made([[100, 0], [100, 0], [98, 2]])) == []


def test_the_limit_is_the_exact_tests_shared_by_all_groups() -> None:
    """A group's count in the last period is raised by one until it is called a rise."""
    for n_groups in (2, 3, 30):
        nobody = [0] * (n_groups - 2)
        found = []
        for count in range(10, 90):
            table = [[400, *nobody, 40], [400, *nobody, 40], [400, *nobody, count]]
            chance = fisher_exact([[count, 400], [80, 800]], "greater").pvalue
            found.append(any(one.group == n_groups - 1 for one in rises(made(table))))
            assert found[-1] == (chance * n_groups < 0.01)
        assert any(found)
        assert not all(found)


def test_the_clearest_rise_is_the_first() -> None:
    found = rises(made([[900, 20, 20, 20], [900, 20, 20, 20], [900, 60, 120, 90]]))
    assert [rise.group for rise in found] == [2, 3, 1]


def test_unknown_periods_do_not_count() -> None:
    table = np.array([[50, 20], [20, 30], [0, 1000]])
    known = rises(Counts(("a", "b"), (0, 1), table[:2]))
    assert [(rise.group, rise.period) for rise in known] == [(1, "b")]
    assert rises(Counts(("a", "b", "unknown"), (0, 1), table)) == known
    assert rises(Counts(("a", "unknown"), (0, 1), table[1:])) == []


def test_one_period_and_none() -> None:
    assert rises(made([[3, 4]])) == []
    assert rises(counts(np.array([], int), [])) == []

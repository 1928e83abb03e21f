"""Tables: columns declared once, CSV, parquet, and what is shown without pandas."""

from __future__ import annotations

import csv
import io
import sys
from types import ModuleType
from typing import Any

import arro3.io
import pytest

from flawsort.core.errors import InputError
from flawsort.core.tables import (
    FLAG,
    INTEGER,
    NUMBER,
    TEXT,
    Column,
    Columns,
    Frame,
    as_rows,
    make_frame,
    read_parquet,
)

Parts = list[tuple[str, int, float, bool]]
COLUMNS = Columns[Parts](
    Column("name", TEXT, "of the part", lambda of: [one[0] for one in of]),
    Column("count", INTEGER, "how many", lambda of: [one[1] for one in of]),
    Column("share", NUMBER, "of all", lambda of: (one[2] for one in of)),
    Column("sure", FLAG, "whether", lambda of: [one[3] for one in of], optional=True),
)
PARTS: Parts = [
    ('a "b", c', 3, 1 / 3, True),
    ("line\nbreak\r", -1, 1e-9, False),
    ("", 0, 2.0, True),
    ("ö 🔩", 10**12, float("nan"), False),
]
TABLE = COLUMNS.build(PARTS)


def test_a_table_has_the_columns_in_their_order() -> None:
    assert list(TABLE) == [column.name for column in COLUMNS] == ["name", "count", "share", "sure"]
    assert all(type(values) is list and len(values) == 4 for values in TABLE.values())
    assert TABLE["count"] == [3, -1, 0, 10**12]


def test_csv() -> None:
    text = COLUMNS.csv(TABLE)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows == [
        ["name", "count", "share", "sure"],
        ['a "b", c', "3", "0.333333", "true"],
        ["line\nbreak\r", "-1", "1e-09", "false"],
        ["", "0", "2", "true"],
        ["ö 🔩", "1000000000000", "nan", "false"],
    ]


def test_parquet_round_trip() -> None:
    table = COLUMNS.build(PARTS[:3])
    assert read_parquet(COLUMNS.parquet(table)) == table
    back = read_parquet(COLUMNS.parquet(TABLE))
    assert list(back) == list(TABLE)
    assert COLUMNS.parquet(table) == COLUMNS.parquet(table)


@pytest.mark.parametrize("n", [0, 2])
def test_types_are_those_declared_however_many_rows_there_are(n: int) -> None:
    content = COLUMNS.parquet(COLUMNS.build(PARTS[:n]))
    table = arro3.io.read_parquet(io.BytesIO(content)).read_all()
    types = [str(table.column(name).type) for name in table.column_names]
    wanted = ("Utf8", "Int64", "Float64", "Boolean")
    assert all(one in found for one, found in zip(wanted, types, strict=True))
    assert COLUMNS.csv(COLUMNS.build([])) == "name,count,share,sure\n"


def test_a_table_may_have_fewer_columns_or_others() -> None:
    table = {"count": [1], "later": [2], "text": ["x"], "ratio": [0.1234567], "seen": [True]}
    assert COLUMNS.csv(table) == "count,later,text,ratio,seen\n1,2,x,0.123457,true\n"
    assert read_parquet(COLUMNS.parquet(table)) == table
    assert read_parquet(COLUMNS.parquet({"none": []})) == {"none": []}


def test_what_a_table_lacks() -> None:
    assert COLUMNS.missing(TABLE) == []
    assert COLUMNS.missing({"share": [], "later": []}) == ["name", "count"]
    assert COLUMNS.missing({"name": [], "count": [], "share": []}) == []  # the last may be absent


def test_rows() -> None:
    assert as_rows({"a": [1, 2], "b": ["x", "y"]}) == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert as_rows({"a": []}) == []


@pytest.fixture
def no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)


@pytest.mark.usefixtures("no_pandas")
class TestFrame:
    def test_columns_rows_and_length(self) -> None:
        frame = make_frame(TABLE)
        assert isinstance(frame, Frame)
        assert frame.columns == list(TABLE)
        assert len(frame) == 4
        assert frame["count"] == [3, -1, 0, 10**12]
        assert frame.rows[0] == {"name": 'a "b", c', "count": 3, "share": 1 / 3, "sure": True}
        assert len(make_frame({})) == 0
        with pytest.raises(InputError, match=r"must be one of name, count, .* Got 'size'"):
            frame["size"]

    def test_it_says_what_it_is(self) -> None:
        shown = repr(make_frame(TABLE))
        lines = shown.splitlines()
        assert lines[0].split() == ["name", "count", "share", "sure"]
        assert lines[1].split("  ")[0] == 'a "b", c'
        assert lines[1].split()[-3:] == ["3", "0.333333", "true"]
        assert "line?break?" in lines[2]
        assert (
            lines[-1] == "[4 rows x 4 columns; for a DataFrame install pandas: pip install pandas]"
        )
        assert len(lines) == 6

    def test_a_long_table_is_short(self) -> None:
        long = make_frame({"name": ["x" * 1000] * 5000, "n": list(range(5000))})
        assert len(repr(long)) < 1000
        assert "5,000 rows" in repr(long)

    def test_html_is_escaped(self) -> None:
        shown = make_frame({"<b>": ["<script>alert(1)</script>"]})._repr_html_()
        assert "<script>" not in shown
        assert "&lt;script&gt;" in shown
        assert "<th>&lt;b&gt;</th>" in shown
        assert "pip install pandas" in shown


def test_with_pandas_it_is_a_data_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    pandas = ModuleType("pandas")
    pandas.DataFrame = lambda table: given.append(table) or "a frame"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert make_frame(TABLE) == "a frame"
    assert given == [TABLE]

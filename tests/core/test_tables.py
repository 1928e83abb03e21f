"""Tables: columns declared once, CSV, parquet, and what is shown without pandas."""

from __future__ import annotations

import csv
import io
import sys
from types import ModuleType
from typing import Any

import arro3.io
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
    csv_text,
    guarded,
    make_frame,
    read_parquet,
    unguarded,
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


# Text in which everything that can end a cell, or begin one that is run, is frequent.
CELLS = st.text(
    st.one_of(
        st.sampled_from("=+-@\uff1d'\"\t\r\n;, a1\0\ufeff\u200b\xad"), st.characters(codec="utf-8")
    )
)
# What nobody sees, and a spreadsheet may read past.
UNSEEN = "\0\x01\x1b\x7f\xad\u180e\u200b\u200e\u202e\u2060\ufeff"
RUN = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class TestSpreadsheets:
    @given(CELLS)
    @example("=HYPERLINK(0)")
    @example("'=1")
    @example("\t=1")
    @example(";'-1")
    @example("\ufeff=1")
    @example("'\0=1")
    def test_no_cell_is_run_and_each_is_read_back(self, text: str) -> None:
        cell = guarded(text)
        assert not cell.startswith((*RUN, *UNSEEN, "\t", "\r", "\n", " "))
        assert unguarded(cell) == text
        # A program that is told to split at semicolons or tabs begins a cell behind them.
        for separator in ";\t":
            pieces = cell.split(separator)
            assert not any(piece.lstrip(UNSEEN).startswith(RUN) for piece in pieces)

    @given(CELLS)
    def test_what_is_harmless_stays_as_it_is(self, text: str) -> None:
        plain = text.isprintable() and not text[:1].isspace()
        if not any(sign in text for sign in (*RUN, "'")) and plain:
            assert guarded(text) == unguarded(text) == text

    @given(st.lists(st.tuples(CELLS, st.integers(-9, 9), st.floats(-9, 9), CELLS), max_size=5))
    def test_a_table_of_any_text(self, rows: list[tuple[str, int, float, str]]) -> None:
        table = {
            "name": [row[0] for row in rows],
            "count": [row[1] for row in rows],
            "share": [row[2] for row in rows],
            "@undeclared": [row[3] for row in rows],
        }
        head, *found = csv.reader(io.StringIO(COLUMNS.csv(table), newline=""))
        assert head == ["name", "count", "share", "'@undeclared"]
        assert [unguarded(cell) for row in found for cell in (row[0], row[3])] == [
            text for row in rows for text in (row[0], row[3])
        ]
        # Numbers stay numbers.
        assert [int(row[1]) for row in found] == table["count"]
        assert [row[2] for row in found] == [f"{share:.6g}" for share in table["share"]]

    def test_rows_without_declared_columns(self) -> None:
        rows = [["name", "value"], ["=a", -1], ["b", -0.1 - 0.2], ["", None], ["-", True]]
        assert csv_text(rows) == (
            "name,value\n'=a,-1\nb,-0.30000000000000004\n,\n'-,True\n"
        )  # fmt: skip


def test_parquet_round_trip() -> None:
    table = COLUMNS.build(PARTS[:3])
    assert read_parquet(COLUMNS.parquet(table)) == table
    back = read_parquet(COLUMNS.parquet(TABLE))
    assert list(back) == list(TABLE)
    assert COLUMNS.parquet(table) == COLUMNS.parquet(table)


def test_what_is_not_known() -> None:
    table = {
        "name": ["a", None], "count": [None, 1], "share": [None, 0.5], "sure": [None, True],
        "later": [None, 2.5], "empty": [None, None],
    }  # fmt: skip
    assert COLUMNS.csv(table) == "name,count,share,sure,later,empty\na,,,,,\n,1,0.5,true,2.5,\n"
    assert read_parquet(COLUMNS.parquet(table)) == table
    unknown = {"share": [None, None], "sure": [None, None]}
    assert read_parquet(COLUMNS.parquet(unknown)) == unknown
    read = arro3.io.read_parquet(io.BytesIO(COLUMNS.parquet(unknown))).read_all()
    assert "Float64" in str(read.column("share").type)
    assert "None" not in repr(Frame(table))


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


def test_cells_of_a_table_from_anybody_have_a_limit() -> None:
    def stored(cell: str) -> bytes:
        return COLUMNS.parquet({"name": [cell] * 8, "count": [1] * 8, "share": [0.5] * 8})

    long = stored("x" * 2**22)
    assert len(read_parquet(long)["name"]) == 8
    with pytest.raises(ValueError, match="its rows are longer than 16,384 bytes"):
        read_parquet(long, 8)
    assert read_parquet(stored("x" * 2**14), 8)["name"][7] == "x" * 2**14


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

"""Tables with declared columns. Only this module writes CSV, and reads and writes parquet."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from flawsort.core.errors import InputError

# The columns by name, all of the same length, in the order in which they are written.
Table: TypeAlias = dict[str, list[Any]]
Of = TypeVar("Of")

# A spreadsheet runs a cell that begins with one of these, also in its wide form, and reads past
# white space before it, and perhaps past what nobody sees. A program that is told to split at
# semicolons or tabs begins a cell there.
_RUN = "=+\\-@\uff1d\uff0b\uff0d\uff20"
_UNSEEN = (
    "\\0-\\x08\\x0e-\\x1b\x7f-\x84\x86-\x9f\xad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
)
_GUARDED = re.compile(rf"(?:\A|(?<=[;\t]))('*)(?=[{_RUN}{_UNSEEN}])|\A('*)(?=\s)")
_GUARD = "'"

# What a table from anybody may take: this, and so much for each row. Rows of flawsort have some
# hundred bytes.
LEAST_BYTES = 2**24
LONGEST_ROW = 2**14

FRAME_ROWS = 10
FRAME_WIDTH = 32


@dataclass(frozen=True)
class Type:
    """The type of a column. arrow: its name in a parquet file. form: formats a value as text, for
    CSV files and for display. values: the types of its values. A value of any type may be None,
    which is shown as nothing."""

    arrow: str
    form: Callable[[Any], str]
    values: type | tuple[type, ...] = str

    def show(self, value: Any) -> str:
        return "" if value is None else self.form(value)

    def cells(self, values: Iterable[Any]) -> Iterator[str]:
        """Values as cells of a CSV file: those of text are guarded, numbers stay as they are."""
        shown = map(self.show, values)
        return map(guarded, shown) if self.arrow == "string" else shown


TEXT = Type("string", str)
INTEGER = Type("int64", str, int)
NUMBER = Type("float64", "{:.6g}".format, (float, int))
FLAG = Type("bool", lambda value: "true" if value else "false", bool)
_TYPES = {bool: FLAG, int: INTEGER, float: NUMBER}


@dataclass(frozen=True)
class Column(Generic[Of]):
    """A column of a table. doc: what it means. values: gives one value per row, from the source of
    the table. optional: added to an existing format, so older tables lack it."""

    name: str
    type: Type
    doc: str
    values: Callable[[Of], Iterable[Any]]
    optional: bool = False


class Columns(Generic[Of]):
    """The declared columns of one kind of table. A table may lack some of them, or have others."""

    def __init__(self, *columns: Column[Of]) -> None:
        self._columns = {column.name: column for column in columns}

    def __iter__(self) -> Iterator[Column[Of]]:
        return iter(self._columns.values())

    def build(self, source: Of) -> Table:
        """The table of a source."""
        return {name: list(column.values(source)) for name, column in self._columns.items()}

    def missing(self, table: Table) -> list[str]:
        """The names of the required columns that a table lacks."""
        needed = [column for column in self._columns.values() if not column.optional]
        return [column.name for column in needed if column.name not in table]

    def wrong_types(self, table: Table) -> dict[str, str]:
        """The columns of a table with values of another type than declared, and that type. Only
        optional columns, and numbers, may have no value."""
        wrong = {}
        for column in self._columns.values():
            there = set(map(type, table.get(column.name, ())))
            wanted = column.type.values
            known = set(wanted if isinstance(wanted, tuple) else (wanted,))
            if column.optional or column.type is NUMBER:
                known.add(type(None))
            if not there <= known:
                wrong[column.name] = f"values of the type {column.type.arrow}"
        return wrong

    def csv(self, table: Table) -> str:
        """A table as CSV text, with numbers to six significant digits."""
        columns = [self._type(name, values).cells(values) for name, values in table.items()]
        return _csv_lines([map(guarded, table), *zip(*columns, strict=True)])

    def parquet(self, table: Table) -> bytes:
        """A table as a parquet file."""
        import arro3.core as arrow
        from arro3.io import write_parquet

        types = {
            kind.arrow: getattr(arrow.DataType, kind.arrow)()
            for kind in (TEXT, INTEGER, NUMBER, FLAG)
        }
        columns: dict[str, Any] = {
            name: arrow.Array(values, type=types[self._type(name, values).arrow])
            for name, values in table.items()
        }
        content = io.BytesIO()
        write_parquet(arrow.Table.from_pydict(columns), content)
        return content.getvalue()

    def _type(self, name: str, values: Sequence[Any]) -> Type:
        """The declared type of a column; for an undeclared one, the type of its first value."""
        if name in self._columns:
            return self._columns[name].type
        first = next((value for value in values if value is not None), "")
        return _TYPES.get(type(first), TEXT)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV text, numbers with all their digits. A cell may be None, which is empty."""
    return _csv_lines([_cell(value) for value in row] for row in rows)


def guarded(cell: str) -> str:
    """Text as a cell of a CSV file that no spreadsheet runs as a formula: with an apostrophe before
    what would be run. `unguarded` gives the text back, whatever it was."""
    return _GUARDED.sub(lambda found: found[0] + _GUARD, cell)


def unguarded(cell: str) -> str:
    """The text of a cell of a CSV file."""
    return _GUARDED.sub(lambda found: found[0].removesuffix(_GUARD), cell)


def read_parquet(content: bytes, most: int | None = None) -> Table:
    """The columns of a parquet file. most: of rows. ValueError if it is damaged, or has more rows
    or longer ones: a few kilobytes can hold millions of equal ones."""
    import arro3.core as arrow
    from arro3.io import read_parquet as read

    try:
        reader, batches, rows, size = read(io.BytesIO(content)), [], 0, 0
        for batch in reader:
            batches.append(batch)
            rows += batch.num_rows
            if most is not None and rows > most:
                raise ValueError(f"it has more than {most:,} rows")
            size += batch.nbytes
            if most is not None and size > LEAST_BYTES + most * LONGEST_ROW:
                raise ValueError(f"its rows are longer than {LONGEST_ROW:,} bytes")
        table = arrow.Table.from_batches(batches, schema=reader.schema)
        columns: dict[str, Any] = {name: table.column(name) for name in table.column_names}
        return {name: column.to_pylist() for name, column in columns.items()}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # at some damage the reader panics, which is no Exception
        raise ValueError(f"it is no table: {str(error)[:200]}") from error


def as_rows(table: Table) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries, column name to value."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


class Frame:
    """A simple table for use without pandas. `frame["score"]` is a column, `rows` are the rows as
    dictionaries, and `len` is their number."""

    def __init__(self, table: Table) -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        return list(self._table)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return as_rows(self._table)

    def __len__(self) -> int:
        return len(next(iter(self._table.values()), []))

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self._table:
            raise InputError(f"column must be one of {', '.join(self._table)}. Got {column!r}.")
        return self._table[column]

    def __repr__(self) -> str:
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([*padded, self._note()])

    def _repr_html_(self) -> str:
        head, *lines = self._lines()
        heads = "".join(f"<th>{html.escape(name)}</th>" for name in head)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>"
            for line in lines
        )
        return f"<table><tr>{heads}</tr>{body}</table><p>{html.escape(self._note())}</p>"

    def _lines(self) -> list[list[str]]:
        """The names of the columns and the first rows, as short text without line breaks."""
        first = zip(*(values[:FRAME_ROWS] for values in self._table.values()), strict=True)
        shown = [[_TYPES.get(type(value), TEXT).show(value) for value in row] for row in first]
        return [list(self._table), *([_short(cell) for cell in row] for row in shown)]

    def _note(self) -> str:
        size = f"{len(self):,} rows x {len(self._table)} columns"
        return f"[{size}; for a DataFrame install pandas: pip install pandas]"


def make_frame(table: Table) -> Any:
    """A table as a pandas DataFrame, or as a Frame if pandas is not installed."""
    try:
        import pandas
    except ImportError:
        return Frame(table)
    return pandas.DataFrame(table)


def _short(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in text)
    return plain if len(plain) <= FRAME_WIDTH else f"{plain[: FRAME_WIDTH - 3]}..."


def _cell(value: object) -> str:
    if value is None:
        return ""
    return guarded(value) if isinstance(value, str) else str(value)


def _csv_lines(rows: Iterable[Iterable[str]]) -> str:
    return "".join(f"{_csv_line(list(row))}\n" for row in rows)


def _csv_line(cells: Sequence[str]) -> str:
    # The writer quotes only the line breaks of its own terminator, and file names may contain "\r"
    # and "\n".
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")

"""Journals of watched folders as somebody else could make them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from flawsort.daily.journal import JOURNAL, Journal


def forge(run: Path, statement: str, values: Sequence[object] = ()) -> None:
    """Change the journal of a run, which is made if there is none, by a statement of SQL."""
    with Journal(run):
        pass
    with closing(sqlite3.connect(run / JOURNAL)) as file:
        file.execute(statement, tuple(values))
        file.commit()


def forge_row(run: Path, table: str, values: Sequence[object]) -> None:
    forge(run, f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

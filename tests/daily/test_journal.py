"""A journal may come from anybody, as a run may: it costs one sentence and does nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flawsort import RunError
from flawsort.daily.journal import Journal
from helpers.journals import forge, forge_row


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("files", (b"/a.png", "x", 0, "", "", "")),
        ("files", (10**12, 0, 0, "", "", "")),
        ("appends", ("text", 0, b"")),
        ("appends", (b"/a.csv", "x", b"")),
        ("appends", (b"/a.csv", 0, 10**12)),
        ("keeps", ("day", "x", "about.json", b"")),
        ("keeps", ("day", 1, "about.json", 10**12)),
        ("due", (1, "exec", "not JSON", 0, 0)),
        ("due", (1, "exec", "[" * 200_000, 0, 0)),
        ("due", (1, "exec", "[]", 0, 0)),
        ("due", (1, "exec", "{}", "x", 0)),
        ("counts", ("day", "x", 1)),
        ("facts", ("round", "x")),
    ],
    ids=str,
)
def test_values_that_cannot_be(table: str, values: tuple[Any, ...], tmp_path: Path) -> None:
    forge_row(tmp_path, table, values)
    with pytest.raises(RunError, match=r"is damaged: .* Restore it from a backup, or move"):
        read_all(tmp_path)


def read_all(run: Path) -> None:
    with Journal(run) as journal:
        for read in (journal.to_append, journal.to_keep, journal.counts, journal.risen):
            read()
        journal.due(0.0)
        journal.fact("round")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER more AFTER INSERT ON files BEGIN DELETE FROM due; END",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TABLE more (a)",
        "DROP TABLE risen",
    ],
)
def test_other_things_in_it(statement: str, tmp_path: Path) -> None:
    forge(tmp_path, statement)
    with pytest.raises(RunError, match="holds other tables than flawsort makes"):
        Journal(tmp_path)


def test_its_own_is_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        read_all(tmp_path)

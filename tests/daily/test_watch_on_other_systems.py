"""Watching folders where files are locked, and where names ignore case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flawsort.core.storage import append
from flawsort.daily import watch
from flawsort.daily.journal import Journal, Round
from flawsort.daily.watch import Watch, Wishes


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    (tmp_path / "run").mkdir()
    with Journal(tmp_path / "run") as opened:
        yield opened


def watching(journal: Journal, said: list[str], *outputs: Path) -> Watch:
    """A watch of nothing."""
    sorter: Any = SimpleNamespace(folder=journal.path.parent)
    incoming: Any = SimpleNamespace(look=lambda: [], problems=lambda: [], skipped=str)
    return Watch(
        sorter,
        journal,
        incoming,
        Wishes(outputs=outputs),
        tell=lambda told: None,
        say=said.append,
        pause=lambda seconds: None,
    )


def test_a_file_that_is_open_in_a_spreadsheet_is_waited_for(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows lets nobody else write to it. Nothing is lost, and nothing is said twice."""
    lines, said = tmp_path / "all.jsonl", list[str]()
    watched = watching(journal, said, lines)
    journal.commit(Round(1, appends=[(lines, b"one\n")]))

    def refuse(place: Path, content: bytes, at: int) -> None:
        raise PermissionError(13, "Permission denied", str(place))

    monkeypatch.setattr(watch, "append", refuse)
    again = watching(journal, said, lines)  # as one that was ended meanwhile
    for one in (watched, watched, again):
        one.run_once(0)
    waiting = f"Waiting for '{lines}': Permission denied. Is it open in another program?"
    assert said == [waiting, waiting]
    assert journal.to_append()
    monkeypatch.setattr(watch, "append", append)
    watched.run_once(0)
    again.run_once(0)
    assert lines.read_bytes() == b"one\n"
    assert journal.to_append() == []


@pytest.mark.parametrize(
    ("period", "begin"),
    [
        ("2026-W47", "2026-W47"),
        ("lot-7", "lot-7"),
        ("LOT-A", "LOT-A.2"),  # this round makes lot-a and LOT-B
        ("lot-b", "lot-b.2"),
        ("aux", "lot-aux-"),
        ("COM1.b", "lot-COM1.b-"),
        ("lot 7", "lot-7-"),
        ("...", "lot-"),
    ],
)
def test_a_batch_has_a_name_for_every_system(journal: Journal, period: str, begin: str) -> None:
    name = watching(journal, [])._new_name(period, ["lot-a", "LOT-B"])
    assert name.startswith(begin)
    assert begin.endswith("-") or name == begin

"""What the terminal shows: tables and progress."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from flawsort.cli import console
from helpers.command_line import plain


class TestTables:
    COLUMNS = ("name", "cluster", "title", "confidence", "score")
    ROWS = tuple((f"noise{i}.png", i, "a dent at the edge of it", 0.5, 1.25) for i in range(2))

    def lines(
        self, capsys: pytest.CaptureFixture[str], rows: Sequence[Sequence[object]] = ROWS
    ) -> list[str]:
        console.print_table("", self.COLUMNS, rows)
        return [line.rstrip() for line in plain(capsys.readouterr().out).splitlines()]

    def test_sentences_are_folded_and_nothing_else(
        self, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        terminal(60)
        assert self.lines(capsys) == [
            "name        cluster  title                 confidence  score",
            "noise0.png        0  a dent at the edge         0.500  1.250",
            "                     of it",
            "noise1.png        1  a dent at the edge         0.500  1.250",
            "                     of it",
        ]

    def test_the_last_columns_are_left_out(
        self, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        terminal(52)
        lines = self.lines(capsys)
        assert lines[0].split() == ["name", "cluster", "title", "confidence"]
        assert lines[1].endswith(" 0.500")
        assert lines[-1] == "(terminal too narrow for score; --json has all columns)"
        terminal(4)
        assert self.lines(capsys)[0] == "name"

    def test_a_long_name_leaves_room(
        self, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        terminal(80)
        lines = self.lines(capsys, [("x" * 100, 3, "dent", 0.5, 1.25)])
        assert lines[1] == "x" * 45 + "        3  dent        0.500  1.250"
        assert lines[2:] == ["x" * 45, "x" * 10]

    def test_without_a_terminal_every_row_is_a_line(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = self.lines(capsys, [("x" * 300, 3, "words " * 40, 0.5, 1.25)] * 3)
        assert len(lines) == 4
        assert lines[3].endswith(" 0.500  1.250")

    def test_names_of_columns_are_no_markup(self, capsys: pytest.CaptureFixture[str]) -> None:
        console.print_table("", ["day", "[red]dent\x1b[2J"], [["monday", 3]])
        assert capsys.readouterr().out.startswith("day     [red]dent\\x1b[2J")


class TestProgress:
    def test_plain_lines(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: now)
        with console.showing_progress(quiet=False) as progress:
            assert progress is not None
            progress("embedding", 20, 1000)
            now += 2
            progress("embedding", 40, 1000)  # too soon
            now += 8
            progress("embedding", 120, 1000)
            now += 88
            progress("embedding", 1000, 1000)
            progress("embedding", 1000, 1000)
            progress("scoring", 5, 5)
        assert capsys.readouterr().err.splitlines() == [
            "embedding: 20 of 1,000",
            "embedding: 120 of 1,000, 10.0 a second, 1:28 left",
            "embedding: 1,000 of 1,000, 10.0 a second, 98.0 s",
            "scoring: 5 of 5",
        ]

    def test_quiet(self) -> None:
        with console.showing_progress(quiet=True) as progress:
            assert progress is None

    def test_live(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        with console.showing_progress(quiet=False) as progress:
            assert progress is not None
            for done in range(11):
                progress("embedding", done, 10)
        shown = capsys.readouterr().err
        assert "embedding" in shown
        assert "10/10" in shown


def test_another_place_is_no_other_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with console.showing_progress(quiet=False) as progress:
        assert progress is not None
        progress("table x (bottle, wa)", 0, 40)
        for done in range(1, 11):
            now += 1
            progress(f"table x (bottle, wa, seed {done} of 10)", done, 40)
        progress("scoring", 1, 2)
        progress("table x (my (\x1b) set, wa, seed 1 of 10)", 11, 40)
    assert capsys.readouterr().err.splitlines() == [
        "table x (bottle, wa): 0 of 40",
        "table x (bottle, wa, seed 5 of 10): 5 of 40, 1.0 a second, 0:35 left",
        "table x (bottle, wa, seed 10 of 10): 10 of 40, 1.0 a second, 0:30 left",
        "scoring: 1 of 2",
        "table x (my (\\x1b) set, wa, seed 1 of 10): 11 of 40",
    ]


@pytest.mark.parametrize("finished", [False, True])
def test_a_terminal_shows_one_bar_and_the_place_below(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, value)
    with console.showing_progress(quiet=False) as progress:
        assert progress is not None
        for done in range(1, 4):
            progress(f"table x (bottle, [b]wa, seed {done} of 4)", done, 4)
        progress("scoring", 1, 2)
        if finished:
            progress("table x (bottle, [b]wa)", 4, 4)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    frame = [line for line in text.splitlines() if line][-2 if finished else -3 :]
    assert frame[0].startswith("table x ")
    assert ("4/4" if finished else "3/4") in frame[0]
    assert frame[1].startswith("scoring ")
    assert frame[2:] == ([] if finished else ["bottle, [b]wa, seed 3 of 4"])

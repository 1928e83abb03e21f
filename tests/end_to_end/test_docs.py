"""The documents as they are rendered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.plates import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
RULE = re.compile(r"\|?(\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?")


def lines_outside_of_code(text: str) -> Iterator[tuple[int, str]]:
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
        else:
            yield number, line.strip()


def cells(row: str) -> list[str]:
    """The cells of a row as GitHub cuts it: at each pipe that has no backslash, in code too."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]


def broken_rows(text: str) -> list[str]:
    """Rows with another number of cells than their head, and rows without any."""
    wrong = []
    before, width = "", 0
    for number, line in lines_outside_of_code(text):
        if width and line.startswith("|"):
            if len(cells(line)) != width:
                wrong.append(f"line {number} has {len(cells(line))} cells, not {width}")
        elif RULE.fullmatch(line) and "|" in line:
            width = len(cells(line))
            if len(cells(before)) != width:
                wrong.append(f"line {number - 1} has {len(cells(before))} heads, not {width}")
        else:
            if before.startswith("|") and not width:
                wrong.append(f"line {number - 1} is a row of no table")
            width = 0
        before = line
    if before.startswith("|") and not width:
        wrong.append("the last line is a row of no table")
    return wrong


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_rows_have_as_many_cells_as_their_head(path: Path) -> None:
    assert broken_rows(path.read_text("utf-8")) == []


def test_broken_rows_are_found() -> None:
    good = "| a | b |\n| --- | --: |\n| 1 | `x \\| y` |\n| 2 | |\n\ntext | more\n"
    assert broken_rows(good) == []
    assert broken_rows(good.replace("| 2 | |", "| 2 | | 3 |")) == ["line 4 has 3 cells, not 2"]
    assert broken_rows(good.replace("\\| y", "| y")) == ["line 3 has 3 cells, not 2"]
    assert broken_rows(good.replace("| a | b |", "| a |")) == ["line 1 has 1 heads, not 2"]
    assert broken_rows(good.replace("| 2 |", "\n| 2 |")) == ["line 5 is a row of no table"]
    assert broken_rows("| a |\n") == ["the last line is a row of no table"]
    assert broken_rows("```\n| a |\n```\n") == []

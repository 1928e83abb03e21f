"""The documents: tables as they are rendered, links, and names of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from helpers.plates import ROOT

SOURCES = ROOT / "src" / "flawsort"
INDEX = ROOT / "docs" / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [*(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING")), *PAGES]
# [text](target), also with an image as its text, and without a title behind the target.
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
PAGE = re.compile(r"\b(?:docs/[\w/-]+|[A-Z]+)\.md\b")
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


def prose(path: Path) -> str:
    return "\n".join(line for _, line in lines_outside_of_code(path.read_text("utf-8")))


def links(path: Path) -> list[str]:
    """The targets of a document's links and images within this project."""
    text = re.sub(r"`[^`\n]*`", "", prose(path))
    return [unquote(target) for target in LINK.findall(text) if "://" not in target]


def anchors(path: Path) -> set[str]:
    """What GitHub calls the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken_links(path: Path) -> list[str]:
    """Links to files that are not there, or to headings that the file does not have."""
    broken = []
    for target in links(path):
        place, _, anchor = target.partition("#")
        file = (path.parent / place).resolve() if place else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    return broken


def reachable(start: Path) -> set[Path]:
    """The documents that links lead to from one of them."""
    found, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        near = {(here.parent / target.partition("#")[0]).resolve() for target in links(here)}
        new = {file for file in near - found if file.suffix == ".md" and file.is_file()}
        found |= new
        waiting += new
    return found


def defined_in(module: Path) -> set[str]:
    """The names that a module defines or imports at its top."""
    names: set[str] = set()
    for node in ast.parse(module.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for one in targets if isinstance(one, ast.Name)}
    return names


def is_in_the_code(name: str) -> bool:
    """Whether ROOM.MODULE or ROOM.MODULE.NAME is there."""
    place, parts = SOURCES, name.split(".")
    for number, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").is_file():
            rest = parts[number + 1 :]
            return not rest or rest[0] in defined_in(place / f"{part}.py")
        else:
            return part in defined_in(place / "__init__.py")
    return True


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_every_page_can_be_reached_from_the_index() -> None:
    assert INDEX in reachable(ROOT / "README.md")
    assert {*DOCUMENTS} - reachable(INDEX) == set()


def test_every_picture_is_shown() -> None:
    shown = {(path.parent / target).resolve() for path in DOCUMENTS for target in links(path)}
    assert {*(ROOT / "docs" / "images").iterdir()} - shown == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_code_are_there(path: Path) -> None:
    rooms = "|".join(one.name for one in SOURCES.iterdir() if (one / "__init__.py").is_file())
    files = "csv|json|npy|parquet"
    names = re.findall(rf"`(?:flawsort\.)?((?:{rooms})(?:\.(?!{files})\w+)+)`", prose(path))
    paths = re.findall(rf"`((?:{rooms})/[\w/]+\.(?:py|js))`", prose(path))
    assert [name for name in names if not is_in_the_code(name)] == []
    assert [name for name in paths if not (SOURCES / name).exists()] == []


@pytest.mark.parametrize("path", [ROOT / "README.md", *PAGES], ids=lambda path: path.name)
def test_benchmarks_and_tools_are_there(path: Path) -> None:
    names = re.findall(r"\b(?:benchmarks|tools|tests)/[a-z_/]+\.py\b", path.read_text("utf-8"))
    assert [name for name in names if not (ROOT / name).is_file()] == []


def test_pages_that_the_code_names_are_there() -> None:
    files = [ROOT / "pyproject.toml", *SOURCES.rglob("*.py"), *SOURCES.rglob("*.js")]
    files += [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tools").glob("*.py")]
    named = {(file, name) for file in files for name in PAGE.findall(file.read_text("utf-8"))}
    assert named
    assert [pair for pair in named if not (ROOT / pair[1]).is_file()] == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# The Title, `code`\n```\n# no heading\n```\n", encoding="utf-8")
    page.write_text(
        "[a](other.md) [b](other.md#the-title-code) [c](#d) [e](https://example.com/x.md)\n"
        "[![f](gone.png)](other.md#no-heading) `[g](code.md)`\n```\n[h](code.md)\n```\n# D\n",
        encoding="utf-8",
    )
    assert broken_links(page) == ["gone.png", "other.md#no-heading"]
    assert reachable(page) == {page, other}
    assert reachable(other) == {other}


def test_names_that_are_gone_are_found() -> None:
    assert all(map(is_in_the_code, ("core", "core.errors", "core.errors.InputError")))
    assert is_in_the_code("backbones.load_backbone")
    assert not any(map(is_in_the_code, ("core.errands", "core.errors.Oops", "backbones.Oops")))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
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

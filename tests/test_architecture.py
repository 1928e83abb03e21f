"""The house: a module imports its own room and rooms above it, inside functions too."""

from __future__ import annotations

import ast
import os
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from helpers.plates import ROOT

SOURCES = ROOT / "src" / "flawsort"
ROOMS = (
    "core", "images", "backbones", "scores", "embeddings", "clusters", "fitting", "health", "runs",
    "labels", "outputs", "serving", "review", "research", "estimator", "daily", "cli",
)  # fmt: skip
MODULES = {
    ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCES.rglob("*.py")
    if path.parent != SOURCES or path.stem == "estimator"
}


MOVES = ("replace", "rename", "renames", "move")


def imports_of(path: Path) -> set[str]:
    """The modules of flawsort that a file imports, at its top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("flawsort.") for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            base = str(node.module).removeprefix("flawsort.").removeprefix("flawsort")
            inside = {f"{base}.{alias.name}".lstrip(".") for alias in node.names}
            found |= (inside & MODULES.keys()) or {base}
    return found & MODULES.keys()


def room_of(module: str) -> str:
    return module.partition(".")[0]


def test_the_house_has_these_rooms_and_nothing_else() -> None:
    there = {name for name in os.listdir(SOURCES) if name != "__pycache__"}
    assert there == {*ROOMS, "estimator.py", "__init__.py", "_version.py", "py.typed"} - {
        "estimator"
    }


def test_a_module_imports_its_own_room_and_rooms_above_it() -> None:
    against = [
        (module, other)
        for module, path in MODULES.items()
        for other in imports_of(path)
        if ROOMS.index(room_of(other)) > ROOMS.index(room_of(module))
    ]
    assert against == []


def test_only_the_command_line_and_run_evaluate_import_research() -> None:
    """So nothing that sorts images can see the truth."""
    importers = {
        room_of(module)
        for module, path in MODULES.items()
        if any(room_of(other) == "research" for other in imports_of(path))
    }
    assert importers == {"research", "cli", "estimator"}
    tree = ast.parse(MODULES["estimator"].read_text("utf-8"))
    methods = {
        (one.name, method.name)
        for one in tree.body
        if isinstance(one, ast.ClassDef)
        for method in one.body
        if "flawsort.research" in ast.unparse(method) and isinstance(method, ast.FunctionDef)
    }
    assert methods == {("Run", "evaluate")}
    assert ast.unparse(tree).count("flawsort.research") == 1


def test_no_two_modules_need_each_other() -> None:
    TopologicalSorter({module: imports_of(path) for module, path in MODULES.items()}).prepare()


def renames_in(path: Path) -> list[str]:
    """The calls in a file that move a file or a folder: those of os, shutil, Path and fsspec."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "shutil"):
            found += [one.name for one in node.names if one.name in MOVES]
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name, of = node.func.attr, node.func.value
        of_system = isinstance(of, ast.Name) and of.id in ("os", "shutil")
        # What is replaced in a text has two arguments, in a record or a time named ones.
        of_path = name in ("rename", "mv") or (
            name == "replace" and len(node.args) == 1 and not node.keywords
        )
        if of_path or (of_system and name in MOVES):
            found.append(ast.unparse(node))
    return found


def test_only_storage_renames_files() -> None:
    renaming = {module: renames_in(path) for module, path in MODULES.items()}
    assert [module for module, calls in renaming.items() if calls] == ["core.storage"]


def test_only_tables_write_csv() -> None:
    """There a cell is guarded against spreadsheets. What it guards, `images.lookup` reads."""
    using = {
        module: set(re.findall(r"\bcsv\.(\w*[wW]riter)\b", path.read_text("utf-8")))
        for module, path in MODULES.items()
    }
    assert {module for module, found in using.items() if found} == {"core.tables"}
    importing = {
        module for module, path in MODULES.items() if "import csv\n" in path.read_text("utf-8")
    }
    assert importing == {"core.tables", "images.lookup"}


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("os.replace(a, b)", 1),
        ("os.rename(a, b)", 1),
        ("os.renames(a, b)", 1),
        ("shutil.move(a, b)", 1),
        ("from os import replace", 1),
        ("from shutil import copy, move as elsewhere", 1),
        ("path.rename(other)", 1),
        ("path.with_name('x').replace(other)", 1),
        ("system.mv(a, b)", 1),
        ("text.replace('a', 'b')", 0),
        ("text.replace('a', 'b', 1)", 0),
        ("time.replace(hour=1)", 0),
        ("dataclasses.replace(view, mask=None)", 0),
        ("replace(view, mask=None)", 0),
        ("frame.move(3)", 0),
    ],
)
def test_what_a_rename_is(tmp_path: Path, line: str, count: int) -> None:
    (tmp_path / "module.py").write_text(line, "utf-8")
    assert len(renames_in(tmp_path / "module.py")) == count

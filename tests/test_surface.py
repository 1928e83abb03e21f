"""The surface: public names, what is imported when, and the documents."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from pathlib import Path

import pytest
import typer

import flawsort
from flawsort.cli import app
from flawsort.outputs.exports import FORMATS
from helpers.plates import MAIN, ROOT, run_code

HEAVY = (
    "torch",
    "timm",
    "matplotlib",
    "onnxruntime",
    "sklearn",
    "scipy",
    "PIL",
    "arro3",
    "jinja2",
    "ray",
    "pyarrow",
    "fsspec",
)
COMMANDS = (
    "cluster", "assign", "watch", "serve", "review", "export", "evaluate", "report", "backbones",
    "paper", "demo", "config", "cache", "doctor",
)  # fmt: skip


def blocks(text: str) -> list[str]:
    """The fenced code blocks of a Markdown text."""
    return re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class TestNames:
    def test_all(self) -> None:
        assert flawsort.__all__ == [
            "AnomalyClusterer",
            "BackboneError",
            "Bags",
            "FlawsortError",
            "InputError",
            "Method",
            "OptionError",
            "Run",
            "RunError",
            "View",
            "__version__",
            "open_run",
        ]

    def test_every_name_is_there(self) -> None:
        assert all(getattr(flawsort, name) is not None for name in flawsort.__all__)
        assert dir(flawsort) == sorted(flawsort.__all__)
        with pytest.raises(AttributeError, match="module 'flawsort' has no attribute 'sort_all'"):
            _ = flawsort.sort_all

    def test_errors_are_one_family(self) -> None:
        for name in ("BackboneError", "InputError", "OptionError", "RunError"):
            assert issubclass(getattr(flawsort, name), flawsort.FlawsortError)
        assert issubclass(flawsort.OptionError, ValueError)

    def test_commands(self) -> None:
        assert tuple(typer.main.get_command(app).commands) == COMMANDS  # type: ignore[attr-defined]


class TestImports:
    CODE = f"""
import sys
try:
    {{statement}}
finally:
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    print("loaded", *loaded, file=sys.stderr)
"""

    @pytest.mark.parametrize(
        "arguments",
        [["--help"], ["--version"], [], *([command, "--help"] for command in COMMANDS)],
        ids=" ".join,
    )
    def test_help_loads_nothing_heavy(self, arguments: list[str]) -> None:
        answer = run_code(self.CODE.format(statement=MAIN), *arguments)
        assert (answer.code, answer.err) == (0, "loaded\n")
        assert "flawsort" in answer.out

    def test_the_package_loads_nothing_heavy(self) -> None:
        answer = run_code(self.CODE.format(statement="import flawsort; flawsort.RunError"))
        assert (answer.code, answer.err) == (0, "loaded\n")

    def test_clustering_needs_no_torch(self) -> None:
        code = self.CODE.format(statement="from flawsort import AnomalyClusterer")
        loaded = run_code(code).err.split()
        assert "torch" not in loaded
        assert "onnxruntime" not in loaded
        assert "sklearn" in loaded  # or this file would see nothing at all


class TestDocuments:
    @pytest.mark.parametrize("command", ["", *COMMANDS])
    def test_every_option_is_documented(self, command: str) -> None:
        text = (ROOT / "docs" / "reference" / "command-line.md").read_text("utf-8")
        group = typer.main.get_command(app)
        parser = group.commands[command] if command else group  # type: ignore[attr-defined]
        options = [
            name
            for parameter in parser.params
            if parameter.param_type_name == "option"
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name != "--help"
        ]
        assert options or command == "backbones"
        missing = [name for name in options if not re.search(rf"{re.escape(name)}(?![\w-])", text)]
        assert missing == []
        assert f"flawsort {command}".strip() in text

    def test_every_public_name_is_documented(self) -> None:
        text = (ROOT / "docs" / "reference" / "python-api.md").read_text("utf-8")
        assert [name for name in flawsort.__all__ if f"`{name}`" not in text] == []

    def test_every_export_is_documented(self) -> None:
        text = (ROOT / "docs" / "reference" / "export-formats.md").read_text("utf-8")
        assert [name for name in FORMATS if f"`{name}`" not in text] == []

    def test_every_dependency_has_a_reason(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        reasons = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Why each dependency")
        extras = project["optional-dependencies"]
        packages = [*project["dependencies"], *(one for some in extras.values() for one in some)]
        names = [re.split(r"[\[<>=]", package)[0] for package in packages]
        assert [name for name in names if not re.search(rf"\b{name}\b", reasons[2])] == []
        assert [extra for extra in extras if f"| `{extra}` |" not in reasons[2]] == []

    def test_readme_begins_with_the_demo_and_the_tests(self) -> None:
        demo, tests = blocks((ROOT / "README.md").read_text("utf-8"))[:2]
        assert "pip install" in demo
        assert "flawsort demo" in demo
        assert "pip install" in tests
        assert "[test" in tests
        assert "pytest" in tests

    def test_ci_runs_the_block_itself(self) -> None:
        script = (ROOT / ".ci" / "run").read_text("utf-8")
        assert os.access(ROOT / ".ci" / "run", os.X_OK)
        assert "README.md" in script
        second = blocks((ROOT / "README.md").read_text("utf-8"))[1]
        lines = {line.strip() for line in script.splitlines()}
        assert not lines & {line.strip() for line in second.splitlines() if line.strip()}
        commands = [line for line in script.splitlines() if not line.lstrip().startswith("#")]
        # Everything comes from the README but what is skipped there for want of torch.
        joined = "\n".join(commands).replace("|\n", "| ")
        assert [one for one in joined.splitlines() if "pytest" in one and "grep" not in one] == []
        assert all(any(tool in line for line in commands) for tool in ("ruff", "mypy"))

    def test_ci_runs_every_test_that_needs_torch(self) -> None:
        """The README's block skips them, as it installs no torch."""
        script = (ROOT / ".ci" / "run").read_text("utf-8")
        (pattern,) = re.findall(r"grep -rlE '(.*)' tests", script)
        tests = ROOT / "tests"
        helpers = [path for path in (tests / "helpers").glob("*.py") if looks_for_torch(path)]
        of_helper = re.compile("|".join(rf"helpers(\.| import .*){one.stem}\b" for one in helpers))
        needing = [
            path
            for path in tests.rglob("test_*.py")
            if looks_for_torch(path) or of_helper.search(path.read_text("utf-8"))
        ]
        assert tests / "scores/engines/test_triton_kernels.py" in needing
        assert tests / "core/test_durable.py" in needing
        assert [one for one in needing if not re.search(pattern, one.read_text("utf-8"))] == []


def looks_for_torch(path: Path) -> bool:
    """Whether the tests of a file depend on the package being there."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    asked = [
        one.args[0]
        for one in nodes
        if isinstance(one, ast.Call)
        and getattr(one.func, "attr", getattr(one.func, "id", "")) in ("find_spec", "importorskip")
    ]
    named = {one.value for one in asked if isinstance(one, ast.Constant)}
    if not all(isinstance(one, ast.Constant) for one in asked):
        # A variable, whose values are somewhere in the file.
        named |= {one.value for one in nodes if isinstance(one, ast.Constant)}
    return not named.isdisjoint(("torch", "timm", "triton"))

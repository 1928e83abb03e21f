"""The surface: public names, what is imported when, the order of modules, and the documents."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest
import typer

import flawsort
from flawsort.cli import app
from plates import MAIN, ROOT, run_code

SOURCES = ROOT / "src" / "flawsort"
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
    "cluster", "assign", "review", "export", "evaluate", "report", "backbones", "paper", "demo",
)  # fmt: skip
# A module imports only modules above it. Imports inside functions, which run later, are free.
ORDER = (
    "errors", "words", "records", "remote", "folders", "threads", "raycluster", "files", "inputs",
    "asked",
    "raster", "images", "datasets",
    "backbones.protocol", "backbones.catalogue", "backbones.networks", "backbones.onnx",
    "backbones.weightfiles", "backbones.timm", "backbones.half", "backbones.patches", "backbones",
    "cache", "embed",
    "statistics", "nearest", "lists", "distances", "engines.protocol", "engines.int8",
    "engines.cpu", "engines.kernels", "engines.tensors", "engines", "references",
    "weights", "heatmaps", "regions", "extent", "pooling", "baselines",
    "presets", "describe", "cluster",
    "clusterers", "advice", "assign", "kinds", "metrics", "hierarchy", "constraints",
    "grouping",
    "memory", "intake", "partfiles", "streaming", "fleet", "groundwork", "newcomers", "pipeline",
    "runs", "labelling", "queueing", "trends", "keeping", "excerpt", "summary", "storing",
    "report.payload", "report.page", "report", "demo",
    "exports.naming", "exports.masks", "exports.content", "exports.output", "exports.choosing",
    "exports.tables", "exports.folders", "exports.imagefolder", "exports.coco", "exports.cvat",
    "exports.label_studio", "exports.fiftyone", "exports.book", "exports.pdf", "exports",
    "review", "review.payloads", "review.sentences", "review.edits", "review.editfile",
    "review.store", "review.bodies", "review.guard", "review.pages",
    "review.pictures", "review.answers", "review.assigned", "review.download", "review.library",
    "review.app", "review.serving", "carrying",
    "deep.limits", "deep.losses", "deep.augment", "deep.photos", "deep.networks",
    "deep.checkpoints",
    "deep.training", "deep.estimator", "deep.iic", "deep.scan", "deep.gatcluster", "deep",
    "paper", "paper.published", "paper.protocol", "paper.products", "paper.rivals",
    "paper.methods", "paper.jobs",
    "paper.catalogue", "paper.tables", "paper.render", "paper.sheet", "paper.pictures",
    "paper.figures", "paper.run",
    "console", "commands_evaluate", "commands", "commands_assign", "commands_export",
    "commands_review", "cli_options", "cli_cluster", "cli_paper", "cli_review", "cli",
)  # fmt: skip


def modules() -> dict[str, Path]:
    """Every module of the package by its name below it; the package itself is not one of them."""
    found = {}
    for path in SOURCES.rglob("*.py"):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    del found[""], found["_version"]
    return found


def imports_of(path: Path) -> set[str]:
    """The flawsort modules that a file imports when it is itself imported."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            module = str(node.module)
            inside = {f"{module}.{alias.name}" for alias in node.names}
            known = {f"flawsort.{name}" for name in modules()}
            found |= (inside & known) or {module}
        waiting += ast.iter_child_nodes(node)
    ours = {name.removeprefix("flawsort.") for name in found if name.startswith("flawsort.")}
    return ours - {"_version"}


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

    def test_every_module_has_its_place(self) -> None:
        assert len(set(ORDER)) == len(ORDER)
        assert modules().keys() == set(ORDER)

    @pytest.mark.parametrize("name", ORDER)
    def test_modules_import_only_what_is_above_them(self, name: str) -> None:
        above = set(ORDER[: ORDER.index(name)])
        assert imports_of(modules()[name]) <= above

    def test_the_parser_of_imports_sees_them(self) -> None:
        assert {"runs", "storing", "console", "backbones.patches"} <= imports_of(
            modules()["commands"]
        )
        assert "commands" not in imports_of(modules()["cli"])  # only inside functions


class TestDocuments:
    @pytest.mark.parametrize("command", ["", *COMMANDS])
    def test_every_option_is_documented(self, command: str) -> None:
        text = (ROOT / "docs" / "command-line.md").read_text("utf-8")
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
        assert [line for line in commands if "pytest" in line and "importorskip" not in line] == []
        assert all(any(tool in line for line in commands) for tool in ("ruff", "mypy"))

"""Arguments and options that several commands share, and the plain-text help."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from flawsort.cli import console
from flawsort.cli.project import find_project
from flawsort.core.devices import ACCEPTED, CPU, GPUS
from flawsort.core.errors import FlawsortError, OptionError
from flawsort.core.text import either

_T = TypeVar("_T")

# Other users of a machine see the words of a command, and not its environment.
TOKEN_VARIABLE = "FLAWSORT_TOKEN"

# Headings of the help. The options that most people need come first, then the others in the order
# in which a command declares them.
FIRST = "Options"
FEW_OPTIONS = 8
KNOWN = "What is known already"
IMAGES = "Looking at images"
COMPARING = "Comparing images"
MACHINES = "Memory and clusters of machines"
PAPER = "The paper's choices"
SCRIPTS = "Output and scripts"

# Parameters of the library whose option has a different name.
_NAMES = {
    "n_clusters": "clusters",
    "n_peers": "peers",
    "n_workers": "workers",
    "random_state": "seed",
    "method": "preset",
    "tiles": "tile",
}


def among(*names: str) -> Callable[[str], list[str]]:
    """The names that begin with what was typed, for the completion of a shell."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGES...", help="Folders, image files, 'globs' or .txt lists of files."
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run: the output folder of flawsort cluster.")
]
Fetch = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URL",
        help="Read images of the run that are below this URL, such as s3://bucket/parts; several "
        "if repeated.",
    ),
]
Glob = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="In folders, use only files with matching names, such as '*.png'.",
        rich_help_panel=IMAGES,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        help=f"Device to compute on: {ACCEPTED}; by default a GPU if there is one.",
        autocompletion=among(CPU, *GPUS),
    ),
]
Arithmetic = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Precision of the comparison: int8, float32, bfloat16, float16 or tf32; chosen by "
        "size if omitted.",
        rich_help_panel=COMPARING,
        autocompletion=among("int8", "float32", "bfloat16", "float16", "tf32"),
    ),
]
Runner = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="local, or ray to distribute the work over a Ray cluster.",
        autocompletion=among("local", "ray"),
        rich_help_panel=MACHINES,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Address of a running Ray cluster; if omitted, one is started on this machine.",
        rich_help_panel=MACHINES,
    ),
]
Parts = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder or URL for finished batches; every worker must be able to write there.",
        rich_help_panel=MACHINES,
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder to keep embedded images in; the user's cache folder if omitted.",
        rich_help_panel=MACHINES,
    ),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Do not keep embedded images.", rich_help_panel=MACHINES),
]
Open = Annotated[
    bool,
    typer.Option("--open", help="Open the report in a browser.", rich_help_panel=SCRIPTS),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Do not show progress.", rich_help_panel=SCRIPTS),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON document instead of text.", rich_help_panel=SCRIPTS
    ),
]


class PlainCommand(TyperCommand):
    """A command with plain-text help under headings, and with the options of the project. Its
    errors name its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take options that are not in the command line from the project's file."""
        if not ctx.resilient_parsing:  # as for the completion of a shell
            self._read_project(ctx, args)
        return super().parse_args(ctx, args)

    def _read_project(self, ctx: Any, args: list[str]) -> None:
        group, name = ctx.find_root(), self.name or ""
        given = self.make_parser(ctx).parse_args(args=list(args))[0]
        # A command that stands alone, without a group, has no project.
        if given.get("help") or name == "config" or group.params.get("no_config", True):
            return
        paths = [
            path
            for parameter in self.params
            if parameter.param_type_name == "argument"
            for path in _listed(given.get(parameter.name or ""))
        ]
        project = find_project(paths, group.command.commands)
        if project is None or not project.options[name]:
            return
        ctx.default_map = dict(project.options[name])
        say = console.notice(bool(given.get("quiet")))
        if say is not None:
            say(f"Options from '{project.path}': {console.typed(project.words[name])}")

    def invoke(self, ctx: Any) -> Any:
        """Run the command. An error about a parameter names the option that sets it."""
        try:
            return super().invoke(ctx)
        except FlawsortError as error:
            if error.parameter is not None:
                error.parameter = self._option(error.parameter)
            raise

    def _option(self, parameter: str) -> str:
        """The option that sets a parameter of the library, or the parameter if there is none."""
        wanted = _NAMES.get(parameter, parameter)
        for option in self.params:
            if option.name == wanted and option.param_type_name == "option":
                return str(max(option.opts, key=len))
        return parameter

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Writes `IMAGES...`, where newer versions of the parser write `{IMAGES...}...`."""
        once = r"\.{3}([]}])\.{3}$"
        pieces = super().collect_usage_pieces(ctx)
        return [re.sub(once, r"...\1", piece).strip("{}") for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options that most people need, and the others under headings.
        Fills in names from registries."""
        arguments: list[tuple[str, str]] = []
        options: dict[str, list[tuple[str, str]]] = {FIRST: []}
        of_help: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                # Newer versions of the parser write `IMAGES... <list[str]>` for an argument.
                arguments.append((record[0].partition(" <")[0], record[1]))
            elif parameter.name == "help":
                of_help.append(record)
            else:
                heading = getattr(parameter, "rich_help_panel", None) or FIRST
                options.setdefault(heading, []).append(record)
        few = sum(map(len, options.values())) <= FEW_OPTIONS
        for heading in [name for name in options if name != FIRST]:
            if few or len(options[heading]) == 1:  # needs no separate heading
                options[FIRST] += options.pop(heading)
        options[list(options)[-1]] += of_help
        for heading, records in {"Arguments": arguments, **options}.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl([(name, _filled(text)) for name, text in records])


def _listed(value: Any) -> list[str]:
    """The texts of an argument, which may be one, several or none."""
    found = value if isinstance(value, list | tuple) else [value]
    return [one for one in found if isinstance(one, str)]


def _filled(text: str) -> str:
    """Fill the names of a registry into a help text. The registry is loaded only if the text needs
    it, since that takes longer than the rest of `--help`."""
    if "{poolings}" in text:
        from flawsort.embeddings.pooling import POOLINGS

        listed = either(f"{name} ({pooling.summary})" for name, pooling in POOLINGS.items())
        return text.replace("{poolings}", listed)
    return text


def whole_number(option: str) -> Callable[[str], int]:
    """A parser for an option that takes a whole number."""
    return _parser(option, int, "a whole number")


def any_number(option: str) -> Callable[[str], float]:
    """A parser for an option that takes a number."""
    return _parser(option, float, "a number")


def _parser(option: str, convert: Callable[[str], _T], kind: str) -> Callable[[str], _T]:
    def parse(text: str) -> _T:
        try:
            return convert(text)
        except ValueError:
            # Not OptionError: it is a ValueError, which typer reports with its own sentence.
            raise FlawsortError(f"{option} must be {kind}. Got '{text}'.") from None

    return parse


Workers = Annotated[
    int | None,
    typer.Option(
        parser=whole_number("--workers"),
        metavar="N",
        help="Number of Ray workers; as many as fit if omitted.",
        rich_help_panel=MACHINES,
    ),
]


def cache_folder(cache: Path | None, no_cache: bool) -> Path | str | None:
    """The cache that --cache and --no-cache choose: a folder, "auto", or None for no cache."""
    if cache is not None and no_cache:
        raise OptionError(f"cannot be combined with --no-cache. Got '{cache}'.", parameter="cache")
    return None if no_cache else (cache or "auto")


def number_or(text: str, word: str, parameter: str) -> Any:
    """A whole number, or the word that is accepted instead."""
    if text == word:
        return word
    try:
        return int(text)
    except ValueError:
        problem = f"must be {word} or a whole number. Got '{text}'."
        raise OptionError(problem, parameter=parameter) from None

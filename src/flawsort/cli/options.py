"""Arguments and options that several commands share, and the plain help that shows them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from flawsort.core.devices import ACCEPTED
from flawsort.core.errors import FlawsortError, OptionError
from flawsort.core.text import either

_T = TypeVar("_T")

# Headings of the help: first the options that people need, then the others, in the order in which
# a command declares them.
FIRST = "Options"
FEW_OPTIONS = 8
IMAGES = "Looking at images"
COMPARING = "Comparing images"
MACHINES = "Memory and clusters of machines"
PAPER = "The paper's choices"
SCRIPTS = "Output and scripts"

# Parameters of the library whose option has another name.
_NAMES = {
    "n_clusters": "clusters",
    "n_peers": "peers",
    "n_workers": "workers",
    "random_state": "seed",
    "method": "preset",
    "tiles": "tile",
}

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGES...", help="Folders, image files, 'globs' or .txt lists of files."
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder given to -o of flawsort cluster.")
]
Glob = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="Take only files with matching names from folders, such as '*.png'.",
        rich_help_panel=IMAGES,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        help=f"Computing device: {ACCEPTED}; a GPU is used by default if there is one.",
    ),
]
Arithmetic = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Precision of the comparison: int8, float32, bfloat16, float16 or tf32; chosen by "
        "size if omitted.",
        rich_help_panel=COMPARING,
    ),
]
Runner = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="local, or ray to distribute the work over a Ray cluster.",
        rich_help_panel=MACHINES,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Address of the Ray cluster; one is started on this machine if omitted.",
        rich_help_panel=MACHINES,
    ),
]
Parts = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder or URL for finished batches, which every worker can write to.",
        rich_help_panel=MACHINES,
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder for embedded images; the user's cache folder if omitted.",
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
    """A command whose help is plain text under headings, and whose errors name its options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an error about a parameter is told about the option that sets it."""
        try:
            return super().invoke(ctx)
        except FlawsortError as error:
            if error.parameter is not None:
                error.parameter = self._option(error.parameter)
            raise

    def _option(self, parameter: str) -> str:
        """The option that sets a parameter of the library; the parameter where there is none."""
        wanted = _NAMES.get(parameter, parameter)
        for one in self.params:
            if one.name == wanted and one.param_type_name == "option":
                return str(max(one.opts, key=len))
        return parameter

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`IMAGES...`, where newer parsers say `{IMAGES...}...`."""
        once = r"\.{3}([]}])\.{3}$"
        pieces = super().collect_usage_pieces(ctx)
        return [re.sub(once, r"...\1", piece).strip("{}") for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, the options that people need first, then the others under their headings,
        with names from registries filled in."""
        arguments: list[tuple[str, str]] = []
        options: dict[str, list[tuple[str, str]]] = {FIRST: []}
        of_help: list[tuple[str, str]] = []
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is None:
                continue
            if one.param_type_name == "argument":
                # Newer parsers say `IMAGES... <list[str]>` of an argument.
                arguments.append((record[0].partition(" <")[0], record[1]))
            elif one.name == "help":
                of_help.append(record)
            else:
                heading = getattr(one, "rich_help_panel", None) or FIRST
                options.setdefault(heading, []).append(record)
        few = sum(map(len, options.values())) <= FEW_OPTIONS
        for heading in [name for name in options if name != FIRST]:
            if few or len(options[heading]) == 1:  # needs no heading of its own
                options[FIRST] += options.pop(heading)
        options[list(options)[-1]] += of_help
        for heading, records in {"Arguments": arguments, **options}.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl([(name, _filled(text)) for name, text in records])


def _filled(text: str) -> str:
    """Help with the names of a registry. It is loaded only for the help that shows it, since
    that takes longer than all else of `--help`."""
    if "{poolings}" in text:
        from flawsort.embeddings.pooling import POOLINGS

        listed = either(f"{name} ({one.summary})" for name, one in POOLINGS.items())
        return text.replace("{poolings}", listed)
    return text


def whole_number(option: str) -> Callable[[str], int]:
    """The parser of an option that is a whole number."""
    return _parser(option, int, "a whole number")


def any_number(option: str) -> Callable[[str], float]:
    """The parser of an option that is a number."""
    return _parser(option, float, "a number")


def _parser(option: str, convert: Callable[[str], _T], kind: str) -> Callable[[str], _T]:
    def parse(text: str) -> _T:
        try:
            return convert(text)
        except ValueError:
            # No OptionError: that is a ValueError, for which typer has a sentence of its own.
            raise FlawsortError(f"{option} must be {kind}. Got '{text}'.") from None

    return parse


Workers = Annotated[
    int | None,
    typer.Option(
        parser=whole_number("--workers"),
        metavar="N",
        help="Number of workers of the Ray cluster; as many as fit if omitted.",
        rich_help_panel=MACHINES,
    ),
]


def cache_folder(cache: Path | None, no_cache: bool) -> Path | str | None:
    """The cache that --cache and --no-cache choose: a folder, "auto", or None for no cache."""
    if cache is not None and no_cache:
        raise OptionError(
            f"contradicts --no-cache: leave one out. Got '{cache}'.", parameter="cache"
        )
    return None if no_cache else (cache or "auto")


def number_or(text: str, word: str, parameter: str) -> Any:
    """A whole number, or the one word that is accepted in its place."""
    if text == word:
        return word
    try:
        return int(text)
    except ValueError:
        problem = f"must be {word} or a whole number. Got '{text}'."
        raise OptionError(problem, parameter=parameter) from None

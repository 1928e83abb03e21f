"""Arguments and options that several commands have, each said once."""

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
# What errors call a parameter, where the option has another name.
_OPTIONS = {
    "n_clusters": "--clusters",
    "n_peers": "--peers",
    "n_workers": "--workers",
    "random_state": "--seed",
    "max_memory": "--max-memory",
    "max_pixels": "--max-pixels",
    "image_size": "--image-size",
    "nearest_share": "--nearest-share",
    "absolute_temperature": "--absolute-temperature",
}
# These are words of the language too: an option only where a message is about them.
_WORDS = {
    "tiles": "--tile",
    "roi": "--roi",
    "fit": "--fit",
    "runner": "--runner",
    "address": "--address",
    "parts": "--parts",
    "device": "--device",
    "arithmetic": "--arithmetic",
    "weights": "--weights",
    "pooling": "--pooling",
    "temperature": "--temperature",
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
    typer.Option(metavar="PATTERN", help="Only files of folders whose name matches, like '*.png'."),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="DEVICE",
        help=f"Where patches are compared and networks run: {ACCEPTED}.",
    ),
]
Arithmetic = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="int8, float32, bfloat16, float16 or tf32; chosen by size if not said.",
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder for embedded images; the user's own if not said."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep no embedded images.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts.")]


class PlainCommand(TyperCommand):
    """A command whose help names its arguments as they are typed: no braces, no Python types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`IMAGES...`, where newer parsers say `{IMAGES...}...`."""
        once = r"\.{3}([]}])\.{3}$"
        pieces = super().collect_usage_pieces(ctx)
        return [re.sub(once, r"...\1", piece).strip("{}") for piece in pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then options, with names from registries filled in. Newer parsers say
        `IMAGES... <list[str]>` of an argument."""
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            there = [one for one in self.get_params(ctx) if one.param_type_name == kind]
            records = [record for one in there if (record := one.get_help_record(ctx))]
            if kind == "argument":
                records = [(name.partition(" <")[0], text) for name, text in records]
            records = [(name, _filled(text)) for name, text in records]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


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
            # No OptionError: that is a ValueError, which typer puts into words of its own.
            raise FlawsortError(f"{option} must be {kind}. Got '{text}'.") from None

    return parse


def cache_asked_for(cache: Path | None, no_cache: bool) -> Path | str | None:
    """What --cache and --no-cache come to."""
    if cache is not None and no_cache:
        raise OptionError(
            f"--cache and --no-cache contradict each other: leave one out. Got --cache '{cache}'."
        )
    return None if no_cache else (cache or "auto")


def with_options(message: str) -> str:
    """An error's message with the options that were typed in place of Python's parameters."""
    message = re.sub(rf"\b({'|'.join(_OPTIONS)})\b", lambda one: _OPTIONS[one[1]], message)
    return re.sub(rf"^({'|'.join(_WORDS)})(?= (?:must|is) )", lambda one: _WORDS[one[1]], message)

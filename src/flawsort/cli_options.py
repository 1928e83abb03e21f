"""Arguments and options that several commands have, each said once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from flawsort.errors import OptionError

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
    "engine": "--engine",
    "address": "--address",
    "parts": "--parts",
    "device": "--device",
    "arithmetic": "--arithmetic",
    "weights": "--weights",
    "pooling": "--pooling",
    "temperature": "--temperature",
}

Sources = Annotated[
    list[str], typer.Argument(help="Folders, image files, 'globs' or .txt lists of files.")
]
RunFolder = Annotated[Path, typer.Argument(help="The folder given to -o of flawsort cluster.")]
Glob = Annotated[
    str | None, typer.Option(help="Only files of folders whose name matches, like '*.png'.")
]
Device = Annotated[
    str | None,
    typer.Option(help="Where patches are compared and networks run: cpu, cuda or cuda:N."),
]
Arithmetic = Annotated[
    str | None,
    typer.Option(help="int8, float32, bfloat16, float16 or tf32; chosen by size if not said."),
]
Cache = Annotated[
    Path | None, typer.Option(help="Folder for embedded images; the user's own if not said.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep no embedded images.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts.")]


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

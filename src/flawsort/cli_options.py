"""Arguments and options that several commands have, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flawsort.errors import OptionError

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

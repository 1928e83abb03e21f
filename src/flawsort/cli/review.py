"""The command `flawsort review`: serves the groups of runs to a browser, until Ctrl-C."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from flawsort.cli import console
from flawsort.cli.options import TOKEN_VARIABLE, Fetch, whole_number


def review(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS...", help="Runs, or folders of runs; the current folder if omitted."
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Address to listen on, such as 0.0.0.0 to let in other machines, with a token.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            parser=whole_number("--port"),
            metavar="N",
            help="Port to listen on, or the next free one if it is busy; 0 for any free port.",
        ),
    ] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Token that every browser must present; generated if omitted. Better in the "
            "variable FLAWSORT_TOKEN, which other users do not see.",
        ),
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option("--no-token", help="Ask for no token: let in every user of this machine."),
    ] = False,
    lots: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A CSV of lots to filter images by, as for --by of flawsort assign.",
        ),
    ] = None,
    fetch: Fetch = None,
    browse: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, or only print the address.")
    ] = True,
) -> None:
    """Review the groups of runs in a browser. Name, merge, split and export groups, and move and
    label images."""
    serve_runs(
        runs or [Path()],
        host=host,
        port=port,
        token=token if no_token else token or os.environ.get(TOKEN_VARIABLE),
        no_token=no_token,
        lots=lots,
        fetch=fetch or [],
        open_browser=browse,
    )


def serve_runs(
    folders: list[Path],
    host: str,
    port: int,
    token: str | None,
    open_browser: bool,
    lots: Path | None = None,
    *,
    no_token: bool = False,
    fetch: Sequence[str] = (),
) -> None:
    """Serve runs, or folders of runs, and print the address."""
    from flawsort.review.server import serve
    from flawsort.serving.listening import address_for_others

    def announce(address: str) -> None:
        console.say(f"Review: {address}")
        listening = urlsplit(address).port
        if port and listening != port:
            console.say(f"Port {port} is busy, so this is port {listening}.")
        for_others = address_for_others(address, host)
        if for_others is not None:
            console.say(
                f"From other machines: {for_others} (or with this machine's IP address instead of "
                "its name)"
            )
        console.say("Every edit is saved at once. Stop with Ctrl-C.")
        sys.stdout.flush()  # a program may wait for the address on a pipe

    serve(
        folders,
        host=host,
        port=port,
        token=token,
        no_token=no_token,
        lots=lots,
        fetch=fetch,
        open_browser=open_browser,
        announce=announce,
    )

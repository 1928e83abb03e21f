"""The command `flawsort review`: serves the groups of runs to a browser, until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flawsort.cli import console
from flawsort.cli.options import whole_number


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
            metavar="HOST", help="Address to listen on. Other machines must present a token."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            parser=whole_number("--port"),
            metavar="N",
            help="Port to listen on; 0 for any free port.",
        ),
    ] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", help="Token that other machines must present; generated if omitted."
        ),
    ] = None,
    browse: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, or only print the address.")
    ] = True,
) -> None:
    """Review the groups of runs in a browser. Name, merge, split and export groups, and move and
    label images."""
    serve_runs(runs or [Path()], host=host, port=port, token=token, open_browser=browse)


def serve_runs(
    folders: list[Path], host: str, port: int, token: str | None, open_browser: bool
) -> None:
    """Serve runs, or folders of runs, and print the address."""
    from flawsort.review.server import address_for_others, serve

    def announce(address: str) -> None:
        console.say(f"Review: {address}")
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
        open_browser=open_browser,
        announce=announce,
    )

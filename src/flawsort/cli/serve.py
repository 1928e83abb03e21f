"""The command `flawsort serve`: sorts images that programs send, until Ctrl-C."""

from __future__ import annotations

import os
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from flawsort.cli import console
from flawsort.cli.options import TOKEN_VARIABLE, Arithmetic, Device, RunFolder, whole_number


def serve(
    run: RunFolder,
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
    ] = 8764,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            help="Token that every client must present; generated if omitted. Better in the "
            "variable FLAWSORT_TOKEN, which other users do not see.",
        ),
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option("--no-token", help="Ask for no token: let in every user of this machine."),
    ] = False,
    max_body: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The largest request; 64MB if omitted."),
    ] = None,
    device: Device = None,
    arithmetic: Arithmetic = None,
) -> None:
    """Sort images that programs send over the network. Answers with JSON: their groups in a run, by
    what people have taught it so far."""
    from flawsort.daily.server import Door
    from flawsort.daily.server import serve as serve_run
    from flawsort.daily.service import LARGEST_BODY
    from flawsort.fitting.memory import parse_size
    from flawsort.serving.listening import address_for_others

    given = token if no_token else token or os.environ.get(TOKEN_VARIABLE)

    largest = LARGEST_BODY if max_body is None else parse_size(max_body, "max_body")

    def announce(address: str, needed: str | None) -> None:
        console.say(f"Service: {address}")
        listening = urlsplit(address).port
        if port and listening != port:
            console.say(f"Port {port} is busy, so this is port {listening}.")
        for_others = address_for_others(address, host)
        if for_others is not None:
            console.say(f"From other machines: {for_others}")
        if needed is not None and needed != given:  # one's own need not stand in a log
            console.say(f"Token: {needed} (as header: 'Authorization: Bearer {needed}')")
        console.say("Stop with Ctrl-C.")
        sys.stdout.flush()  # a program may wait for the address on a pipe

    serve_run(
        run,
        Door(host, port, given, no_token, largest),
        where={"device": device, "arithmetic": arithmetic},
        announce=announce,
    )

"""What `flawsort review` does: the groups of runs in a browser, until Ctrl-C."""

from __future__ import annotations

import sys
from pathlib import Path

from flawsort.cli import console


def review(
    folders: list[Path], host: str, port: int, token: str | None, open_browser: bool
) -> None:
    """Serve runs, or folders of runs, and say where."""
    from flawsort.review.server import address_for_others, serve

    def announce(address: str) -> None:
        console.say(f"Review: {address}")
        for_others = address_for_others(address, host)
        if for_others is not None:
            console.say(
                f"From other machines: {for_others} (or with this machine's IP address in place of "
                "its name)"
            )
        console.say("Every edit is saved at once. Ctrl-C ends it.")
        sys.stdout.flush()  # whoever waits for the address reads it from a pipe

    serve(
        folders,
        host=host,
        port=port,
        token=token,
        open_browser=open_browser,
        announce=announce,
    )

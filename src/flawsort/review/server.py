"""Run the review server on a port of this machine until Ctrl-C."""

from __future__ import annotations

import html
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from flawsort.backbones.cache import default_cache_folder
from flawsort.core.private import private_file
from flawsort.review.app import make_app
from flawsort.serving.access import check_token
from flawsort.serving.listening import (
    address_of,
    choose_token,
    ending_in_order,
    listening,
    names_of,
    run_app,
)

# Seconds that running requests get to finish after Ctrl-C; edits take milliseconds.
PATIENCE = 3
# In the user's cache folder. The token stays the same, so that a page that is open goes on when the
# review is started again.
TOKEN_FILE = "review-token"
# Seconds to wait for the run to open, so that the first page appears at once. A very large run
# takes longer; its page then shows that it is opening.
OPENING = 2.0
_LEADS_ON = """<!doctype html><meta charset="utf-8"><title>flawsort review</title>
<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0; url={address}">
<p><a href="{address}">Open the review</a></p>
"""


def serve(
    folders: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    no_token: bool = False,
    lots: Path | None = None,
    fetch: Sequence[str] = (),
    open_browser: bool = True,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve runs until Ctrl-C, which is raised as KeyboardInterrupt after everything is closed.

    port: if it is busy, the next free one; 0 for any free port. token: that every client must
    present; generated if omitted. no_token: let in everybody on this machine, all its users. lots:
    a CSV file with the lots of images, to filter by. fetch: the beginnings of URLs from which
    images may be read. announce: called with the address once the server accepts connections.
    """
    kept = default_cache_folder() / TOKEN_FILE
    token = choose_token(host, token, no_token=no_token, kept=kept)
    names = names_of(host)
    check_token(token, names)
    app = make_app(folders, token, hosts=names, lots=lots, fetch=fetch)
    with ExitStack() as stack:
        stack.enter_context(ending_in_order())
        listener = stack.enter_context(listening(host, port))
        address = address_of(host, listener.getsockname()[1], token)
        if app.state.warming is not None:
            app.state.warming.join(OPENING)
        # The socket listens already: early requests wait until the server starts.
        announce(address)
        if open_browser:
            page = address
            if token is not None:
                # Everybody sees the address of a browser that is started in the list of processes.
                leads_on = _LEADS_ON.format(address=html.escape(address))
                page = stack.enter_context(private_file("review.html", leads_on)).as_uri()
            threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
        run_app(app, listener, patience=PATIENCE)

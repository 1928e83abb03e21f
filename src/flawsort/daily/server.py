"""Run the service on a port of this machine until Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flawsort.backbones.cache import default_cache_folder
from flawsort.core.temporaries import clear_abandoned
from flawsort.daily.current import CurrentRun
from flawsort.daily.service import LARGEST_BODY, make_service
from flawsort.serving.access import check_token
from flawsort.serving.listening import (
    address_of,
    choose_token,
    ending_in_order,
    listening,
    names_of,
    run_app,
)

# Seconds that images which are being sorted get to be answered.
PATIENCE = 30
# In the user's cache folder. The token stays the same, so that clients go on when the service is
# started again.
TOKEN_FILE = "service-token"


@dataclass(frozen=True)
class Door:
    """Where the service listens, and whom it lets in. token: generated if omitted. no_token: let in
    everybody on this machine. largest_body: of a request, in bytes."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    no_token: bool = False
    largest_body: int = LARGEST_BODY


def serve(
    folder: Path,
    door: Door,
    *,
    where: Mapping[str, Any],
    announce: Callable[[str, str | None], None],
) -> None:
    """Serve a run until Ctrl-C, which is raised as KeyboardInterrupt after everything is closed.

    where: as of a Sorter. announce: called with the address and the token once the run is
    open and the service listens.
    """
    host, kept = door.host, default_cache_folder() / TOKEN_FILE
    token = choose_token(host, door.token, no_token=door.no_token, kept=kept)
    names = names_of(host)
    check_token(token, names)
    with ExitStack() as stack:
        stack.enter_context(ending_in_order())
        listener = stack.enter_context(listening(host, door.port))
        clear_abandoned()
        run = stack.enter_context(CurrentRun(folder, where=where))
        app = make_service(run, token, hosts=names, largest_body=door.largest_body)
        announce(address_of(host, listener.getsockname()[1], None), token)
        run_app(app, listener, patience=PATIENCE)

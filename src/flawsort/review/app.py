"""The review server: pages, pictures and JSON over a folder of runs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse, Response

from flawsort._version import __version__
from flawsort.core.errors import FlawsortError, InputError, OptionError
from flawsort.core.text import printable
from flawsort.labels.names import RefusedName
from flawsort.labels.store import Conflict
from flawsort.review import new_image_routes, people_routes, routes
from flawsort.review.library import Library, UnknownRun
from flawsort.serving.access import Guard, check_token
from flawsort.serving.problems import (
    LONGEST_DETAIL,
    NO_TELEMETRY,
    explain_fault,
    explain_system,
    explain_validation,
)


def make_app(
    folders: Sequence[Path],
    token: str | None = None,
    *,
    hosts: Sequence[str] = (),
    cache: Path | None = None,
    lots: Path | None = None,
    fetch: Sequence[str] = (),
) -> FastAPI:
    """The server as an ASGI application.

    folders: runs, or folders of runs. token: required from every client; None for no token. hosts:
    accepted host names besides the loopback ones, "*" for any; they need a token. cache: the folder
    for thumbnails; None for the user's cache folder. lots: a CSV file with the lots of images, to
    filter by. fetch: the beginnings of URLs from which images may be read.
    """
    check_token(token, hosts)
    library = Library(folders, cache=cache, lots=lots, fetch=fetch)
    app = FastAPI(
        title="flawsort review",
        version=__version__,
        description="The groups of clustered images, as computed and as edited by people.",
        docs_url=None,  # those pages load scripts from other sites
        redoc_url=None,
        telemetry=NO_TELEMETRY,
        lifespan=_lifespan,
    )
    app.state.library = library
    app.state.warming = _warming(library)
    app.include_router(routes.router)
    app.include_router(people_routes.router)
    app.include_router(new_image_routes.router)
    app.add_exception_handler(FlawsortError, _explain)
    app.add_exception_handler(RequestValidationError, explain_validation)
    app.add_exception_handler(OSError, explain_system)
    app.add_exception_handler(Exception, explain_fault)
    app.add_middleware(Guard, hosts=tuple(hosts), token=token)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.library.close()


def _warming(library: Library) -> threading.Thread | None:
    """A thread that opens the only run in advance; None if there are several runs."""
    usable = [entry.name for entry in library.entries() if not entry.reason]

    def open_it() -> None:
        with suppress(FlawsortError, OSError):  # reported when a request opens the run
            found = library.get(usable[0])
            _ = found.body, found.state_body()

    if len(usable) != 1:
        return None
    thread = threading.Thread(target=open_it, daemon=True)
    thread.start()
    return thread


def _explain(request: Request, error: Exception) -> Response:
    """flawsort's own errors, with the status that fits."""
    body: dict[str, Any] = {"detail": printable(str(error))[:LONGEST_DETAIL]}
    if isinstance(error, RefusedName):
        return JSONResponse({**body, "taken": error.taken, "normal": error.normal}, 422)
    if isinstance(error, Conflict):
        return JSONResponse({**body, "version": error.version}, 409)
    if isinstance(error, UnknownRun | InputError):
        return JSONResponse(body, 404)
    if isinstance(error, OptionError):
        return JSONResponse(body, 422)
    # A run that cannot be read is not found; one that cannot be written is forbidden to change.
    return JSONResponse(body, 403 if request.method == "POST" else 404)

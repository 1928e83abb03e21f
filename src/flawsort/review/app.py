"""The review server: pages, pictures and JSON over a folder of runs. Routes are thin."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from flawsort._version import __version__
from flawsort.core.errors import FlawsortError, InputError, OptionError
from flawsort.core.text import printable
from flawsort.labels.store import Conflict
from flawsort.review import pages
from flawsort.review.access import Guard, check_token
from flawsort.review.assigned import assigned_body, assigned_chart, assigned_list, assigned_thumb
from flawsort.review.download import export_zip
from flawsort.review.library import Library, OpenRun, UnknownRun
from flawsort.review.pictures import MEDIA_TYPES, What
from flawsort.review.responses import MOST_SIMILAR, describe_queue, similar_images, split_group
from flawsort.review.schemas import (
    LARGEST_WHOLE,
    AssignedBody,
    AssignedEntryBody,
    ConflictProblem,
    EditBody,
    PartsBody,
    Problem,
    QueueBody,
    RunBody,
    RunEntryBody,
    SimilarBody,
    StateBody,
    VersionBody,
)

if TYPE_CHECKING:
    from fastapi.telemetry import (
        TelemetryConfig,
    )  # older versions lack the module, but accept the setting

# A picture requested with ?v=fingerprint never changes; without it, it may when a run is replaced.
FOR_EVER = "private, max-age=31536000, immutable"
FOR_A_WHILE = "private, max-age=60"
ASK_AGAIN = "private, no-cache"
# The longest error message, in characters.
LONGEST_DETAIL = 2000
# Overrides the settings of the environment.
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no such run, row, group or file"},
    422: {"model": Problem, "description": "The request is not valid; the detail says why"},
}
_EDIT_PROBLEMS: dict[int | str, dict[str, Any]] = {
    **_PROBLEMS,
    403: {"model": Problem, "description": "The run cannot be written"},
    409: {"model": ConflictProblem, "description": "Somebody else changed the groups first"},
}
router = APIRouter(responses=_PROBLEMS)


def make_app(
    folders: Sequence[Path],
    token: str | None = None,
    *,
    hosts: Sequence[str] = (),
    cache: Path | None = None,
) -> FastAPI:
    """The server as an ASGI application.

    folders: runs, or folders of runs. token: required from every client; None for no token. hosts:
    accepted host names besides the loopback ones, "*" for any; they need a token. cache: the folder
    for thumbnails; None for the user's cache folder.
    """
    check_token(token, hosts)
    library = Library(folders, cache=cache)
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
    app.include_router(router)
    app.add_exception_handler(FlawsortError, _explain)
    app.add_exception_handler(RequestValidationError, _explain_validation)
    app.add_exception_handler(OSError, _explain_system)
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


# ---- Parameters of requests ----


def _library(request: Request) -> Library:
    library: Library = request.app.state.library
    return library


def _opened(request: Request, run: str) -> OpenRun:
    return _library(request).get(run)


def _current(request: Request, run: str) -> OpenRun:
    return _library(request).current(run)


Opened = Annotated[OpenRun, Depends(_opened)]
Current = Annotated[OpenRun, Depends(_current)]
Whole = Annotated[int, Field(ge=0, le=LARGEST_WHOLE)]
Row = Annotated[int, InPath(ge=0, le=LARGEST_WHOLE)]


def _row(found: OpenRun, row: int) -> int:
    n = len(found.run)
    if row >= n:
        raise InputError(f"The run has the rows 0 to {n - 1}. Got {row}.")
    return row


# ---- Pages ----


@router.get("/", response_class=HTMLResponse)
def runs_page(request: Request) -> Response:
    """The list of runs, or the only run."""
    entries = _library(request).entries()
    if len(entries) == 1 and not entries[0].reason:
        return RedirectResponse(_address(entries[0].name), 303)
    return HTMLResponse(pages.runs_page(_entries(request)))


@router.get("/api/runs", response_model=list[RunEntryBody])
def list_runs(request: Request) -> list[RunEntryBody]:
    """The runs that can be reviewed here."""
    return _entries(request)


@router.get("/r/{run}/", response_class=HTMLResponse)
def run_page(request: Request, run: str) -> Response:
    """The page of a run."""
    library = _library(request)
    try:
        reason = library.entry(run).reason  # opening the run would delay the first page
    except UnknownRun as error:
        reason = str(error)
    if reason:
        return HTMLResponse(pages.problem_page(run, reason), 404)
    return HTMLResponse(pages.run_page(run, several=len(library.entries()) > 1))


@router.get("/static/{name:path}", responses={200: {"content": {"text/javascript": {}}}})
def static_file(request: Request, name: str) -> Response:
    """Scripts and styles of the pages."""
    content, media_type = pages.static_file(name)
    keep = FOR_EVER if request.query_params.get("v") == pages.static_version() else ASK_AGAIN
    tag = hashlib.sha256(content).hexdigest()[:40]
    return _tagged(request, tag, lambda: content, media_type, keep)


# ---- The run and its state ----


@router.get("/r/{run}/api/run", response_model=RunBody)
def get_run(request: Request, found: Opened) -> Response:
    """The parts of a run that never change."""
    body = found.body
    tag = hashlib.sha256(body).hexdigest()[:40]
    return _tagged(request, tag, lambda: body, "application/json", ASK_AGAIN)


@router.get("/r/{run}/api/state", response_model=StateBody)
def get_state(request: Request, found: Current) -> Response:
    """The current groups."""
    tag, body = found.state_body()
    return _tagged(request, tag, lambda: body, "application/json", ASK_AGAIN)


@router.post("/r/{run}/api/edits", response_model=StateBody, responses=_EDIT_PROBLEMS)
def post_edit(found: Current, body: EditBody) -> Response:
    """Make an edit; it is saved before the answer is sent."""
    found.session.edit(body.kind, body.payload, body.version, body.author)
    return _state(found)


@router.post("/r/{run}/api/undo", response_model=StateBody, responses=_EDIT_PROBLEMS)
def post_undo(found: Current, body: VersionBody) -> Response:
    """Undo the last edit in force."""
    found.session.undo(body.version)
    return _state(found)


@router.post("/r/{run}/api/redo", response_model=StateBody, responses=_EDIT_PROBLEMS)
def post_redo(found: Current, body: VersionBody) -> Response:
    """Redo the edit that was undone last."""
    found.session.redo(body.version)
    return _state(found)


@router.get("/r/{run}/api/similar/{row}", response_model=list[SimilarBody])
def get_similar(
    found: Opened, row: Row, n: Annotated[int, Query(ge=1, le=MOST_SIMILAR)] = 12
) -> list[SimilarBody]:
    """The images most similar to one image."""
    return similar_images(found.run, _row(found, row), n)


@router.get("/r/{run}/api/split/{group}", response_model=PartsBody)
def get_split(
    found: Current,
    group: Row,
    parts: Annotated[int, Query(ge=2, le=LARGEST_WHOLE)] = 2,
) -> PartsBody:
    """A preview of a group split along the tree; changes nothing."""
    labelling = found.session.labelling
    if group not in labelling.groups:
        raise InputError(f"There is no group {group}.")
    return split_group(found.run, labelling, group, parts)


@router.get("/r/{run}/api/queue", response_model=QueueBody)
def get_queue(
    found: Current,
    skip: Annotated[
        list[Whole] | None, Query(description="ids of groups to ask about later")
    ] = None,
    later: Annotated[list[Whole] | None, Query(description="rows to ask about later")] = None,
) -> QueueBody:
    """The most informative question to ask next."""
    rows = [_row(found, row) for row in later or ()]
    return describe_queue(found.run, found.session.state, skip or (), found.answered().union(rows))


# ---- Images assigned later ----


@router.get("/r/{run}/api/assigned", response_model=list[AssignedEntryBody])
def get_assigned_list(found: Opened) -> list[AssignedEntryBody]:
    """The batches of new images that the run keeps."""
    return assigned_list(found.folder)


@router.get("/r/{run}/api/assigned/{name}", response_model=AssignedBody)
def get_assigned(found: Current, name: str) -> AssignedBody:
    """A batch: the groups of its images, counts by period, and proposed new kinds."""
    return assigned_body(found.folder, name, found.run, found.session.labelling)


@router.get(
    "/r/{run}/assigned/{name}/chart.svg", responses={200: {"content": {"image/svg+xml": {}}}}
)
def get_assigned_chart(found: Current, name: str) -> Response:
    """Images of each group by period."""
    chart = assigned_chart(found.folder, name, found.run, found.session.labelling)
    return Response(chart, media_type="image/svg+xml")


@router.get(
    "/r/{run}/assigned/{name}/thumb/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}}
)
def get_assigned_thumb(request: Request, found: Opened, name: str, row: Row) -> Response:
    """The thumbnail of a new image."""
    content = assigned_thumb(found.folder, name, row)
    tag = hashlib.sha256(content).hexdigest()[:40]
    return _tagged(request, tag, lambda: content, "image/jpeg", FOR_A_WHILE)


# ---- Pictures and exports ----


@router.get("/r/{run}/thumb/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}})
def get_thumb(request: Request, found: Opened, row: Row) -> Response:
    """The thumbnail of an image."""
    return _picture(request, found, "thumb", row)


@router.get("/r/{run}/image/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}})
def get_image(request: Request, found: Opened, row: Row) -> Response:
    """An image as it was analysed, up to 1,600 pixels."""
    return _picture(request, found, "image", row)


@router.get("/r/{run}/heat/{row}.png", responses={200: {"content": {"image/png": {}}}})
def get_heat(request: Request, found: Opened, row: Row) -> Response:
    """The heat map of an image, to lay over it."""
    return _picture(request, found, "heat", row)


@router.get("/r/{run}/export/{format}", responses={200: {"content": {"application/zip": {}}}})
def get_export(found: Current, format: str) -> Response:
    """An export for another tool, as a zip."""
    pieces: Iterator[bytes] = export_zip(found.run, found.session.labelling, format)
    name = quote(f"{found.name}-{format}.zip", safe="")
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
    return StreamingResponse(pieces, media_type="application/zip", headers=headers)


# ---- Answers ----


def _address(name: str) -> str:
    return f"/r/{quote(name, safe='')}/"


def _entries(request: Request) -> list[RunEntryBody]:
    return [
        RunEntryBody(
            name=entry.name,
            url=_address(entry.name),
            n=entry.n,
            groups=entry.groups,
            mode=entry.mode,
            reason=entry.reason,
        )
        for entry in _library(request).entries()
    ]


def _state(found: OpenRun) -> Response:
    return Response(found.state_body()[1], media_type="application/json")


def _picture(request: Request, found: OpenRun, what: What, row: int) -> Response:
    row = _row(found, row)
    keep = FOR_EVER if request.query_params.get("v") == found.fingerprint else FOR_A_WHILE
    tag = found.pictures.tag(what, row)
    make = lambda: found.pictures.picture(what, row)  # noqa: E731
    return _tagged(request, tag, make, MEDIA_TYPES[what], keep)


def _tagged(
    request: Request, tag: str, make: Callable[[], bytes], media_type: str, keep: str
) -> Response:
    """An answer with an ETag, or 304 if the browser has it already."""
    headers = {"etag": f'"{tag}"', "cache-control": keep}
    if f'"{tag}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(make(), media_type=media_type, headers=headers)


def _explain(request: Request, error: Exception) -> Response:
    """flawsort's own errors, with the status that fits."""
    body: dict[str, Any] = {"detail": printable(str(error))[:LONGEST_DETAIL]}
    if isinstance(error, Conflict):
        return JSONResponse({**body, "version": error.version}, 409)
    if isinstance(error, UnknownRun | InputError):
        return JSONResponse(body, 404)
    if isinstance(error, OptionError):
        return JSONResponse(body, 422)
    # A run that cannot be read is not found; one that cannot be written is forbidden to change.
    return JSONResponse(body, 403 if request.method == "POST" else 404)


def _explain_system(_: Request, error: Exception) -> Response:
    """Errors of the system, such as a full disk or a folder without read permission."""
    assert isinstance(error, OSError)
    return JSONResponse({"detail": printable(f"{error.strerror or error}.")[:LONGEST_DETAIL]}, 507)


def _explain_validation(_: Request, error: Exception) -> Response:
    """A sentence without the value that was sent, which may not be text."""
    assert isinstance(error, RequestValidationError)
    texts = []
    for fault in error.errors()[:8]:
        parts = [str(part) for part in fault["loc"] if part not in ("body", "path", "query")]
        texts.append(f"{'.'.join(parts) or 'The body'}: {fault['msg']}")
    return JSONResponse({"detail": printable("; ".join(texts) + ".")[:LONGEST_DETAIL]}, 422)

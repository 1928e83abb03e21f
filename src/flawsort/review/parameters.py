"""What the routes of the review server share: parameters of requests, and forms of answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi import Path as InPath
from pydantic import Field
from starlette.responses import Response

from flawsort.core.errors import InputError
from flawsort.review.library import Library, OpenRun
from flawsort.review.schemas import (
    LARGEST_WHOLE,
    ConflictProblem,
    NameProblem,
    Problem,
    VersionBody,
)

# A picture requested with ?v=fingerprint never changes; without it, it may when a run is replaced.
FOR_EVER = "private, max-age=31536000, immutable"
FOR_A_WHILE = "private, max-age=60"
ASK_AGAIN = "private, no-cache"

PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "There is no such run, row, group or file"},
    422: {"model": Problem, "description": "The request is not valid; the detail says why"},
}
EDIT_PROBLEMS: dict[int | str, dict[str, Any]] = {
    **PROBLEMS,
    403: {"model": Problem, "description": "The run cannot be written"},
    422: {"model": NameProblem, "description": "The edit is not valid; the detail says why"},
    409: {"model": ConflictProblem, "description": "Somebody else changed the groups first"},
}


def library_of(request: Request) -> Library:
    library: Library = request.app.state.library
    return library


def _opened(request: Request, run: str) -> OpenRun:
    return library_of(request).get(run)


def _current(request: Request, run: str) -> OpenRun:
    return library_of(request).current(run)


Opened = Annotated[OpenRun, Depends(_opened)]
Current = Annotated[OpenRun, Depends(_current)]
Whole = Annotated[int, Field(ge=0, le=LARGEST_WHOLE)]
Row = Annotated[int, InPath(ge=0, le=LARGEST_WHOLE)]


def checked_row(found: OpenRun, row: int) -> int:
    n = len(found.run)
    if row >= n:
        raise InputError(f"The run has the rows 0 to {n - 1}. Got {row}.")
    return row


def written(
    request: Request, found: OpenRun, body: VersionBody, change: Callable[[OpenRun], object]
) -> Response:
    """Make an edit, and answer with the new state."""
    now = library_of(request).write(found, body.basis, change)
    return Response(now.state_body()[1], media_type="application/json")


def tagged(
    request: Request, tag: str, make: Callable[[], bytes], media_type: str, keep: str
) -> Response:
    """An answer with an ETag, or 304 if the browser has it already."""
    headers = {"etag": f'"{tag}"', "cache-control": keep}
    if f'"{tag}"' in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(make(), media_type=media_type, headers=headers)

"""The routes of the review server for images that were assigned to a run later."""

from __future__ import annotations

import hashlib
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from flawsort.review.assigned import (
    assigned_body,
    assigned_chart,
    assigned_image,
    assigned_list,
    assigned_thumb,
    examples_from,
    suggested_for,
)
from flawsort.review.library import OpenRun
from flawsort.review.parameters import (
    EDIT_PROBLEMS,
    FOR_A_WHILE,
    PROBLEMS,
    Current,
    Opened,
    Row,
    tagged,
    written,
)
from flawsort.review.schemas import (
    AnswersBody,
    AssignedBody,
    AssignedEntryBody,
    StateBody,
    VerdictBody,
)

router = APIRouter(responses=PROBLEMS)


@router.get("/r/{run}/api/assigned", response_model=list[AssignedEntryBody])
def get_assigned_list(found: Opened) -> list[AssignedEntryBody]:
    """The batches of new images that the run keeps."""
    return assigned_list(found.folder)


@router.get("/r/{run}/api/assigned/{name}", response_model=AssignedBody)
def get_assigned(found: Current, name: str) -> AssignedBody:
    """A batch: the groups of its images, counts by period, and proposed new kinds."""
    return assigned_body(found.folder, name, found.run, found.session.state)


@router.post(
    "/r/{run}/api/assigned/{name}/answers", response_model=StateBody, responses=EDIT_PROBLEMS
)
def post_answers(request: Request, found: Current, name: str, body: AnswersBody) -> Response:
    """Say what new images show, which teaches; it is saved before the answer is sent."""

    def teach(run: OpenRun) -> None:
        payload: dict[str, Any] = {
            "examples": examples_from(run.folder, name, body.rows, run.run),
            "to": body.to,
        }
        if body.name is not None:
            payload["name"] = body.name
        now = run.session.state
        seen = suggested_for(run.folder, name, body.rows, run.run, now)
        run.session.edit("teach", payload, body.version, body.author, suggested=seen)

    return written(request, found, body, teach)


@router.get("/r/{run}/api/verdict", response_model=VerdictBody)
def get_verdict(found: Current) -> VerdictBody:
    """What each threshold of OK and not OK costs, measured on the answers."""
    return found.verdict()


@router.get(
    "/r/{run}/assigned/{name}/chart.svg", responses={200: {"content": {"image/svg+xml": {}}}}
)
def get_assigned_chart(found: Current, name: str) -> Response:
    """Images of each group by period."""
    chart = assigned_chart(found.folder, name, found.run, found.session.state)
    return Response(chart, media_type="image/svg+xml")


@router.get(
    "/r/{run}/assigned/{name}/thumb/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}}
)
def get_assigned_thumb(request: Request, found: Opened, name: str, row: Row) -> Response:
    """The thumbnail of a new image."""
    content = assigned_thumb(found.folder, name, row)
    tag = hashlib.sha256(content).hexdigest()[:40]
    return tagged(request, tag, lambda: content, "image/jpeg", FOR_A_WHILE)


@router.get(
    "/r/{run}/assigned/{name}/image/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}}
)
def get_assigned_image(request: Request, found: Opened, name: str, row: Row) -> Response:
    """A new image, up to 1,600 pixels."""
    content = assigned_image(found.folder, name, row, found.run)
    tag = hashlib.sha256(content).hexdigest()[:40]
    return tagged(request, tag, lambda: content, "image/jpeg", FOR_A_WHILE)

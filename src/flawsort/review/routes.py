"""The routes of the review server: pages, pictures and JSON of a run. Routes are thin."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from flawsort.core.errors import InputError
from flawsort.core.text import printable
from flawsort.labels.edit_checks import check_by_people
from flawsort.review import pages
from flawsort.review.download import export_zip
from flawsort.review.library import OpenRun, UnknownRun
from flawsort.review.parameters import (
    ASK_AGAIN,
    EDIT_PROBLEMS,
    FOR_A_WHILE,
    FOR_EVER,
    PROBLEMS,
    Current,
    Opened,
    Row,
    checked_row,
    library_of,
    tagged,
    written,
)
from flawsort.review.pictures import HEATS, What
from flawsort.review.responses import (
    MOST_SIMILAR,
    describe_audit,
    similar_images,
    split_group,
)
from flawsort.review.schemas import (
    LARGEST_WHOLE,
    AccuracyBody,
    AuditBody,
    EditBody,
    LotsBody,
    PartsBody,
    PlaceBody,
    RunBody,
    RunEntryBody,
    SimilarBody,
    SizesBody,
    StateBody,
    StepOfBody,
)

router = APIRouter(responses=PROBLEMS)


# ---- Pages ----


@router.get("/", response_class=HTMLResponse)
def runs_page(request: Request) -> Response:
    """The list of runs, or the only run."""
    entries = library_of(request).entries()
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
    library = library_of(request)
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
    return tagged(request, tag, lambda: content, media_type, keep)


# ---- The run and its state ----


@router.get("/r/{run}/api/run", response_model=RunBody)
def get_run(request: Request, found: Opened) -> Response:
    """The parts of a run that never change."""
    body = found.body
    tag = hashlib.sha256(body).hexdigest()[:40]
    return tagged(request, tag, lambda: body, "application/json", ASK_AGAIN)


@router.get("/r/{run}/api/state", response_model=StateBody)
def get_state(request: Request, found: Current) -> Response:
    """The current groups."""
    tag, body = found.state_body()
    return tagged(request, tag, lambda: body, "application/json", ASK_AGAIN)


@router.post("/r/{run}/api/edits", response_model=StateBody, responses=EDIT_PROBLEMS)
def post_edit(request: Request, found: Current, body: EditBody) -> Response:
    """Make an edit; it is saved before the answer is sent."""
    check_by_people(body.kind)
    return written(
        request,
        found,
        body,
        lambda run: run.session.edit(body.kind, body.payload, body.version, body.author),
    )


@router.post("/r/{run}/api/undo", response_model=StateBody, responses=EDIT_PROBLEMS)
def post_undo(request: Request, found: Current, body: StepOfBody) -> Response:
    """Undo an edit, by itself or the last in force."""
    return written(
        request,
        found,
        body,
        lambda run: run.session.undo(body.version, body.author, of=body.of),
    )


@router.post("/r/{run}/api/redo", response_model=StateBody, responses=EDIT_PROBLEMS)
def post_redo(request: Request, found: Current, body: StepOfBody) -> Response:
    """Redo an edit, by itself or the one that was undone last."""
    return written(
        request,
        found,
        body,
        lambda run: run.session.redo(body.version, body.author, of=body.of),
    )


@router.get("/r/{run}/api/lots", response_model=LotsBody)
def get_lots(
    found: Opened,
    by: Annotated[str, Query(description="day, week, month, folder, or lots for the CSV file")],
) -> LotsBody:
    """The lot of each image, to filter by."""
    return found.lots(by)


@router.get("/r/{run}/api/sizes", response_model=SizesBody)
def get_sizes(found: Opened) -> SizesBody:
    """The size of each image in pixels, to filter by."""
    return found.sizes


@router.get("/r/{run}/api/similar/{row}", response_model=list[SimilarBody])
def get_similar(
    found: Opened, row: Row, n: Annotated[int, Query(ge=1, le=MOST_SIMILAR)] = 12
) -> list[SimilarBody]:
    """The images most similar to one image."""
    return similar_images(found.run, checked_row(found, row), n)


@router.get("/r/{run}/api/place/{row}", response_model=PlaceBody)
def get_place(found: Opened, row: Row) -> PlaceBody:
    """The most unusual place of an image, and the image that shows the like of it."""
    row = checked_row(found, row)
    match = found.pictures.looking.match(row)
    return PlaceBody(
        box=list(found.pictures.box(row)), match=None if match is None else printable(match.name)
    )


@router.get("/r/{run}/api/split/{group}", response_model=PartsBody)
def get_split(
    found: Current,
    group: Row,
    parts: Annotated[int, Query(ge=2, le=LARGEST_WHOLE)] = 2,
) -> PartsBody:
    """A preview of a group split along the tree; changes nothing."""
    settled = found.session.state.settled
    if group not in settled.groups:
        raise InputError(f"There is no group {group}.")
    return split_group(found.run, settled, group, parts)


@router.get("/r/{run}/api/accuracy", response_model=AccuracyBody)
def get_accuracy(found: Current) -> AccuracyBody:
    """How right the suggestions were, and the groups are."""
    return found.accuracy()


@router.get("/r/{run}/api/audit", response_model=AuditBody)
def get_audit(found: Current) -> AuditBody:
    """The next random image to answer for, without its group."""
    return describe_audit(found.session.labelling, found.fingerprint)


# ---- Pictures and exports ----


@router.get("/r/{run}/thumb/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}})
async def get_thumb(request: Request, run: str, row: Row) -> Response:
    """The thumbnail of an image."""
    library = library_of(request)
    found = library.at_hand(run)
    # A page asks for hundreds. Those in memory do not wait for a thread, all of which edits may
    # have.
    if found is not None and row < len(found.run) and found.run.thumbnails[row]:
        return _picture(request, found, "thumb", row)
    return await run_in_threadpool(lambda: _picture(request, library.get(run), "thumb", row))


@router.get("/r/{run}/image/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}})
def get_image(request: Request, found: Opened, row: Row) -> Response:
    """An image as it was analysed, up to 1,600 pixels."""
    return _picture(request, found, "image", row)


@router.get("/r/{run}/full/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}})
def get_full(request: Request, found: Opened, row: Row) -> Response:
    """An image as it was analysed, in the pixels of its file."""
    return _picture(request, found, "full", row)


@router.get("/r/{run}/flaw/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}})
def get_flaw(request: Request, found: Opened, row: Row) -> Response:
    """The most unusual place of an image with its surroundings, small."""
    return _picture(request, found, "flaw", row)


@router.get("/r/{run}/close/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}})
def get_close(request: Request, found: Opened, row: Row) -> Response:
    """The most unusual place of an image with its surroundings, up to 512 pixels."""
    return _picture(request, found, "close", row)


@router.get("/r/{run}/match/{row}.jpg", responses={200: {"content": {"image/jpeg": {}}}})
def get_match(request: Request, found: Opened, row: Row) -> Response:
    """The place that matches it best, aligned with it."""
    return _picture(request, found, "match", row)


@router.get("/r/{run}/heat/{row}.png", responses={200: {"content": {"image/png": {}}}})
def get_heat(request: Request, found: Opened, row: Row) -> Response:
    """The heat map of an image, to lay over it."""
    return _picture(request, found, "heat", row)


@router.get("/r/{run}/flaw-heat/{row}.png", responses={200: {"content": {"image/png": {}}}})
def get_flaw_heat(request: Request, found: Opened, row: Row) -> Response:
    """The heat map of the most unusual place of an image, to lay over it."""
    return _picture(request, found, "flaw-heat", row)


@router.get("/r/{run}/export/{format}", responses={200: {"content": {"application/zip": {}}}})
def get_export(found: Current, format: str) -> Response:
    """An export for another tool, as a zip."""
    pieces: Iterator[bytes] = export_zip(found.run, found.session.state, format)
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
        for entry in library_of(request).entries()
    ]


def _picture(request: Request, found: OpenRun, what: What, row: int) -> Response:
    row = checked_row(found, row)
    keep = FOR_EVER if request.query_params.get("v") == found.fingerprint else FOR_A_WHILE
    tag = found.pictures.tag(what, row)
    make = lambda: found.pictures.picture(what, row)  # noqa: E731
    return tagged(request, tag, make, "image/png" if what in HEATS else "image/jpeg", keep)

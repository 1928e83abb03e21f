"""The service: sorts images that are sent to it, and answers with JSON."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flawsort._version import __version__
from flawsort.core.errors import FlawsortError, InputError, OptionError
from flawsort.core.text import printable
from flawsort.daily.answers import (
    AboutBody,
    AnswerBody,
    BatchBody,
    HealthBody,
    ImageBody,
    ProblemBody,
)
from flawsort.daily.current import CurrentRun
from flawsort.daily.metrics import MEDIA_TYPE, Metrics
from flawsort.daily.uploads import HELD_BYTES, Allowance, Busy, Upload, decoded, shown_name
from flawsort.serving.access import JSON, Guard, check_token
from flawsort.serving.problems import (
    LONGEST_DETAIL,
    NO_TELEMETRY,
    explain_fault,
    explain_system,
    explain_validation,
)

# Requests whose images wait, or are being sorted. More are told to come again.
MOST_WAITING = 64
COME_AGAIN = "1"
# Bytes of a request unless something else is said: the largest photo, or a batch of small ones.
LARGEST_BODY = 64 * 2**20
# What a batch takes besides its body: its text, and its images.
TEXT_FACTOR = 3
IMAGE, IMAGES, HEALTH, METRICS, ABOUT = "/image", "/images", "/health", "/metrics", "/"
# None that a form of another page can send without asking first.
IMAGE_TYPES = (
    "application/octet-stream", "image/jpeg", "image/png", "image/tiff", "image/bmp", "image/webp",
    "image/gif", "image/heic", "image/heif", "image/avif",
)  # fmt: skip
ADVICE = (
    "send the header 'Authorization: Bearer TOKEN' with the token of flawsort serve, which is "
    "printed at its start or set in FLAWSORT_TOKEN"
)
_Answer = TypeVar("_Answer")
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemBody, "description": meaning}
    for status, meaning in (
        (413, "The body is too large"),
        (415, "The content type is none of those that are taken"),
        (422, "The image or the request cannot be used; the detail says why"),
        (429, "Too many requests are waiting; come again"),
    )
}
_RAW = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}} for kind in IMAGE_TYPES
        },
    }
}


def make_service(
    run: CurrentRun,
    token: str | None = None,
    *,
    hosts: Sequence[str] = (),
    largest_body: int = LARGEST_BODY,
    most_waiting: int = MOST_WAITING,
) -> FastAPI:
    """The service as an ASGI application. The run stays open.

    token, hosts: as for the review. largest_body: of a request, in bytes. most_waiting: requests
    that are sorted or wait for it.
    """
    check_token(token, hosts)
    desk = _Desk(run, most_waiting, max(HELD_BYTES, TEXT_FACTOR * largest_body))
    app = FastAPI(
        title="flawsort serve",
        version=__version__,
        description="Sorts images by the kind of flaw they show.",
        docs_url=None,  # those pages load scripts from other sites
        redoc_url=None,
        telemetry=NO_TELEMETRY,
        lifespan=_lifespan,
    )
    app.state.desk = desk
    app.add_api_route(ABOUT, _about, response_model=AboutBody, responses=_PROBLEMS)
    app.add_api_route(HEALTH, _health, response_model=HealthBody)
    app.add_api_route(HEALTH, _health, methods=["HEAD"], include_in_schema=False)
    app.add_api_route(METRICS, _metrics, response_class=Response)
    app.add_api_route(
        IMAGE,
        _image,
        methods=["POST"],
        response_model=ImageBody,
        responses=_PROBLEMS,
        openapi_extra=_RAW,
    )
    batch = {"content": {JSON: {"schema": BatchBody.model_json_schema()}}, "required": True}
    app.add_api_route(
        IMAGES,
        _batch,
        methods=["POST"],
        response_model=AnswerBody,
        responses=_PROBLEMS,
        openapi_extra={"requestBody": batch},
    )
    for error, handler in (
        (FlawsortError, _explain),
        (ClientDisconnect, _gone),
        (MemoryError, _no_memory),
        (RequestValidationError, explain_validation),
        (OSError, explain_system),
        (Exception, explain_fault),
    ):
        app.add_exception_handler(error, handler)
    app.add_middleware(
        Guard,
        hosts=tuple(hosts),
        token=token,
        largest_body=largest_body,
        takes=(JSON, *IMAGE_TYPES),
        open_paths=(HEALTH,),
        advice=ADVICE,
    )
    app.add_middleware(_Counted, metrics=desk.metrics)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.desk.close()


class _Desk:
    """What the routes share: the run, which one thread asks, and how much may wait for it."""

    def __init__(self, run: CurrentRun, most_waiting: int, most_bytes: int) -> None:
        busy = "Too many requests are waiting. Come again in a moment."
        self.run = run
        self.waiting = Allowance(most_waiting, busy)
        self.bytes = Allowance(most_bytes, busy)
        # One thread: the comparison uses all processors by itself, and the same images must give
        # the same bits whatever else is asked.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flawsort-serve")
        self.metrics = Metrics(
            {
                "waiting": ("Requests that wait or are being sorted.", lambda: self.waiting.held),
                "held_bytes": ("Bytes of requests in memory.", lambda: self.bytes.held),
                "groups_version": ("Grows with every edit in the review.", lambda: run.version),
                "run_reopened": ("How often the run was replaced.", lambda: run.reopened),
            }
        )

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def sorted(self, uploads: Sequence[Upload], heat_map: bool) -> AnswerBody:
        with self.waiting.holding() as place:
            place.add(1)
            body = await self.ask(lambda: self.run.answer(uploads, heat_map=heat_map))
        groups = [one.group for one in body.images]
        verdicts = [one.verdict for one in body.images]
        self.metrics.sorted(groups, verdicts, len(body.set_aside))
        return body

    async def ask(self, question: Callable[[], _Answer]) -> _Answer:
        """The answer of the thread that has the run."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, question)


async def _about(request: Request) -> AboutBody:
    """What the run knows now."""
    desk = _desk(request)
    with desk.waiting.holding() as place:
        place.add(1)
        return await desk.ask(desk.run.about)


async def _health() -> HealthBody:
    """Whether the service answers. Everybody may ask."""
    return HealthBody()


async def _metrics(request: Request) -> Response:
    """Counts and times, in the text format of Prometheus."""
    return Response(_desk(request).metrics.text(), media_type=MEDIA_TYPE)


async def _image(request: Request, name: str = "", heat_map: bool = False) -> Response:
    """Sort one image, which is the body. name: for the answer."""
    desk = _desk(request)
    if _kind(request) == JSON:
        raise HTTPException(415, f"One image has its own content type. Send {JSON} to {IMAGES}.")
    with desk.bytes.holding() as held:
        content = bytearray()
        async for piece in request.stream():
            held.add(len(piece))
            content += piece
        body = await desk.sorted([Upload(shown_name(name), bytes(content))], heat_map)
    if body.set_aside:
        raise InputError(f"The image cannot be used: {body.set_aside[0].reason}.")
    return Response(body.images[0].model_dump_json(), media_type=JSON)


async def _batch(request: Request) -> Response:
    """Sort several images. Those that cannot be used are set aside with their reasons."""
    desk = _desk(request)
    if _kind(request) != JSON:
        raise HTTPException(415, f"The content type must be {JSON}. Send an image to {IMAGE}.")
    with desk.bytes.holding() as held:
        content = bytearray()
        async for piece in request.stream():
            held.add(TEXT_FACTOR * len(piece))
            content += piece
        uploads, heat_map = await run_in_threadpool(_read_batch, bytes(content))
        body = await desk.sorted(uploads, heat_map)
    return Response(body.model_dump_json(), media_type=JSON)


def _read_batch(content: bytes) -> tuple[list[Upload], bool]:
    try:
        sent = BatchBody.model_validate_json(content)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_input=False)) from None
    uploads = [
        decoded(one.name or str(place), one.content) for place, one in enumerate(sent.images)
    ]
    return uploads, sent.heat_map


def _desk(request: Request) -> _Desk:
    desk: _Desk = request.app.state.desk
    return desk


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _explain(_: Request, error: Exception) -> Response:
    """flawsort's own errors."""
    body = {"detail": printable(str(error))[:LONGEST_DETAIL]}
    if isinstance(error, Busy):
        return JSONResponse(body, 429, {"retry-after": COME_AGAIN})
    # Nothing that a client sends makes the run unreadable.
    return JSONResponse(body, 422 if isinstance(error, InputError | OptionError) else 503)


def _gone(*_: object) -> Response:
    """A client that has closed the connection before its request was whole: nobody reads this."""
    return JSONResponse({"detail": "The request ended before it was whole."}, 400)


def _no_memory(*_: object) -> Response:
    return JSONResponse({"detail": "There is not enough memory."}, 503, {"retry-after": COME_AGAIN})


class _Counted:
    """Middleware that counts every request, also those that are refused."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        known = (IMAGE, IMAGES, HEALTH, METRICS, ABOUT)
        path = scope["path"] if scope["path"] in known else "other"
        begin, status = time.monotonic(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            self._metrics.answered(path, status, time.monotonic() - begin)

"""What a server may choose: the content types that it takes, and what it shows to everybody."""

from __future__ import annotations

import pytest
from starlette.responses import PlainTextResponse

from flawsort.serving.access import Guard
from helpers.review_client import Client

TOKEN = "0123456789abcdef-token"


def guarded(**options: object) -> Client:
    return Client(Guard(PlainTextResponse("it"), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "status"),
    [("image/png", 200), ("IMAGE/PNG; x=y", 200), ("application/json", 415), ("", 415),
     ("text/plain", 415), ("image/x-png", 415)],
)  # fmt: skip
def test_content_types(kind: str, status: int) -> None:
    reply = guarded(takes=("image/png", "image/jpeg")).post("/", b"x", content_type=kind)
    assert reply.status == status
    if status == 415:
        assert reply.detail == "The content type must be image/png or image/jpeg."


def test_what_everybody_may_read() -> None:
    client = guarded(token=TOKEN, open_paths=("/health",), advice="ask the owner")
    assert client.get("/health").status == client.send("HEAD", "/health").status == 200
    for target in ("/", "/health/", "/healthy", "//health", "/health/../metrics"):
        reply = client.get(target)
        assert (reply.status, reply.detail) == (401, "A token is needed: ask the owner.")
    assert client.post("/health", {}).status == 401
    assert client.get("/health", host="evil.example").status == 400

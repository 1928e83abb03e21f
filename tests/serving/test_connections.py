"""Clients that only wait, and errors that happen thousands of times."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from flawsort.serving.connections import BACKLOG, Limits, Once, connection_with, limits_here
from helpers.plates import LONG

PAUSE = 0.02


def ask(port: int) -> bytes:
    """The answer to a request, whole."""
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b""))


def is_closed(client: socket.socket) -> bool:
    """Whether the server closes a connection before the test gives up."""
    client.settimeout(LONG)
    try:
        return client.recv(65536) == b""
    except ConnectionResetError:
        return True


def is_refused(client: socket.socket, piece: bytes) -> bool:
    """Whether a connection takes no more bytes."""
    time.sleep(PAUSE)
    try:
        client.sendall(piece)
    except OSError:
        return True
    return False


# More than the buffers of both sides hold, also where the system lets them grow.
MUCH = bytes(2**20)
PIECES_OF_MUCH = 32
# What the application was asked for.
asked: list[str] = []


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """The smallest application: a little at /, much at /much."""
    while (await receive()).get("more_body"):
        pass
    asked.append(scope["path"])
    pieces = [MUCH] * PIECES_OF_MUCH if scope["path"] == "/much" else [b"it"]
    length = (b"content-length", str(sum(map(len, pieces))).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def serving(limits: Limits) -> Iterator[int]:
    """The port of a server in this process."""
    with running(limits) as (port, _):
        yield port


@contextmanager
def running(limits: Limits) -> Iterator[tuple[int, set[Any]]]:
    """The port of a server in this process, and its open connections."""
    config = uvicorn.Config(
        answer, http=connection_with(limits), lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1], server.server_state.connections
        finally:
            server.should_exit = True
            thread.join()


class TestWaiting:
    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"GET / HTTP/1.1\r\nHost: 127",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1",
        ],
    )
    def test_half_a_request_ends(self, sent: bytes) -> None:
        with (
            serving(Limits(headers=0.2, body=0.2)) as port,
            socket.create_connection(("127.0.0.1", port)) as client,
        ):
            client.sendall(sent)
            assert is_closed(client)

    def test_byte_by_byte_gives_no_more_time(self) -> None:
        with (
            serving(Limits(headers=0.5)) as port,
            socket.create_connection(("127.0.0.1", port)) as client,
        ):
            assert any(is_refused(client, b"G") for _ in range(int(LONG / PAUSE)))

    def test_a_connection_that_is_used_again_and_then_stuck(self) -> None:
        with (
            serving(Limits(headers=5.0)) as port,
            socket.create_connection(("127.0.0.1", port)) as client,
        ):
            for _ in range(2):
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                found = b""
                while not found.endswith(b"it"):
                    piece = client.recv(65536)
                    assert piece, "closed before the answer"
                    found += piece
            client.sendall(b"GET /")
            assert is_closed(client)

    def test_those_that_have_waited_longest_go_first(self) -> None:
        with serving(Limits(connections=8)) as port:
            waiting = []
            for _ in range(40):
                client = socket.create_connection(("127.0.0.1", port))
                client.sendall(b"GET / HTTP/1.1\r\nHost:")
                waiting.append(client)
            assert b"200 OK" in ask(port)
            assert all(map(is_closed, waiting[:30]))
            for client in waiting:
                client.close()


def test_requests_without_waiting_for_answers_get_one() -> None:
    """Whatever their number, they take the time of one."""
    with running(Limits()) as (port, connections):
        asked.clear()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /hurry HTTP/1.1\r\nHost: a\r\n\r\n" * 50)
            assert soon(lambda: bool(asked) and not connections)
    assert asked == ["/hurry"]


def not_reading(port: int, sent: bytes) -> socket.socket:
    """A client that asks and reads no answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect(("127.0.0.1", port))
    client.sendall(sent)
    return client


def soon(known: Callable[[], bool]) -> bool:
    """Whether something comes about before the test gives up."""
    end = time.monotonic() + LONG
    while not known() and time.monotonic() < end:
        time.sleep(PAUSE)
    return known()


class TestNotReading:
    @pytest.mark.parametrize(
        "sent",
        [
            b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /much HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n" * 200,
        ],
    )
    def test_it_ends(self, sent: bytes) -> None:
        with running(Limits(reading=0.2)) as (port, connections):
            asked.clear()
            with not_reading(port, sent):
                assert soon(lambda: asked == ["/much"])
                assert soon(lambda: not connections)

    def test_it_takes_nobody_the_place(self) -> None:
        with running(Limits(connections=8)) as (port, _), ExitStack() as clients:
            asked.clear()
            for number in range(20):
                request = b"GET /much HTTP/1.1\r\nHost: a\r\n\r\n"
                clients.enter_context(not_reading(port, request))
                assert soon(lambda n=number: len(asked) == n + 1)  # type: ignore[misc]
            assert b"200 OK" in ask(port)

    def test_what_is_read_gives_more_time(self) -> None:
        """Without a clock: the deadline of a client that has read on is another one."""
        loop = Loop()
        made = connection_at(loop, Transport())
        for _ in range(2):
            made.pause_writing()
            assert (made.waits_for, loop.running()) == ("reading", [2])
            made.resume_writing()
            assert (made.waits_for, loop.running()) == ("headers", [1])
        assert len(loop.handles) == 5

    def test_an_ended_answer_that_nobody_takes(self) -> None:
        loop, transport = Loop(), Transport()
        made = connection_at(loop, transport)
        transport.closing, transport.waiting = True, 9
        made.on_response_complete()
        assert (made.waits_for, loop.running()) == ("reading", [2])


def connection_at(loop: Any, transport: asyncio.Transport) -> Any:
    """A connection that nobody serves, with one second for headers and two for reading."""
    config = uvicorn.Config(answer, log_config=None)
    kind = connection_with(Limits(headers=1, reading=2))
    made = kind(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    made.connection_made(transport)
    return made


class Handle:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.cancelled = seconds, False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Notes what is to happen later."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []

    def call_later(self, seconds: float, *_: Any) -> Handle:
        self.handles.append(Handle(seconds))
        return self.handles[-1]

    def running(self) -> list[float]:
        return [one.seconds for one in self.handles if not one.cancelled]


class Transport(asyncio.Transport):
    """Goes nowhere."""

    closing, waiting = False, 0

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.waiting


def test_limits_leave_files_for_the_rest() -> None:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY:
        assert 8 <= limits_here().connections < soft


@pytest.mark.parametrize("connections", [8, 64, 512])
def test_a_new_client_is_read_before_its_place_is_taken(connections: int) -> None:
    """Up to three rounds of accepting come before its request is read."""
    limits = Limits(connections)
    assert 1 <= limits.backlog <= BACKLOG
    assert 3 * limits.backlog < connections


class TestOnce:
    def record(self, message: str, level: int = logging.ERROR, error: Any = None) -> Any:
        return logging.LogRecord("uvicorn.error", level, "f.py", 1, message, None, error)

    def test_the_same_error_once(self) -> None:
        once = Once()
        errors = []
        for kind in (ValueError, ValueError, KeyError):
            try:
                raise kind("x")
            except Exception:
                errors.append(sys.exc_info())
        shown = [once.filter(self.record("failed", error=error)) for error in errors]
        assert shown == [True, False, True]
        assert [once.filter(self.record("other")) for _ in range(3)] == [True, False, False]
        assert [once.filter(self.record("told", logging.INFO)) for _ in range(2)] == [True, True]

    def test_never_without_end(self) -> None:
        once = Once()
        assert sum(once.filter(self.record(f"error {number}")) for number in range(5000)) == 500

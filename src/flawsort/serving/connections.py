"""The connections of a server: how many there are, how long they may wait, and what is
logged of them.

Clients that send half a request, or nothing, or do not read what they asked for, must not stop the
server, and neither must errors that happen thousands of times.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Thirty people with six connections of a browser each are 180.
MOST_CONNECTIONS = 512
# At most this many connections are accepted at once, before any of them is counted.
BACKLOG = 64
# Seconds to send a request line and headers, and then a body of at most 32 MB.
HEADERS_WITHIN = 15.0
BODY_WITHIN = 120.0
# Seconds to read some of the answers that wait, which are then at most about 64 kB and what the
# system holds.
READ_WITHIN = 120.0
# Different errors that are remembered; more are not logged.
MOST_ERRORS = 500
LOGGERS = ("uvicorn.error", "asyncio")


@dataclass(frozen=True)
class Limits:
    """connections: at most so many are open. headers, body: seconds in which a client must have
    sent them. reading: seconds in which it must have read on."""

    connections: int = MOST_CONNECTIONS
    headers: float = HEADERS_WITHIN
    body: float = BODY_WITHIN
    reading: float = READ_WITHIN

    @property
    def backlog(self) -> int:
        """Connections that are accepted at once. The event loop accepts twice before it reads what
        a new client has sent, which must not be closed to make room for those that came after."""
        return max(1, min(BACKLOG, self.connections // 4))


class Connection(H11Protocol):
    """A connection that is closed if its client does not send a whole request or does not read its
    answers in time, or if others need its place and it has waited the longest."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._since = time.monotonic()
        self._state = ""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._hurries:
            self.cycle.keep_alive = False  # it is closed after this answer
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = time.monotonic()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._since = time.monotonic()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    @property
    def waits_for(self) -> str:
        """What the client has to do: send "headers" or "body" of a request, or go on "reading"; ""
        while its request is being answered."""
        ending = self.transport.is_closing() and self.transport.get_write_buffer_size() > 0
        if self.flow.write_paused or ending:
            return "reading"
        if self.cycle is None or self.cycle.response_complete:
            return "headers"
        return "body" if self.cycle.more_body else ""

    @property
    def _hurries(self) -> bool:
        """Whether the client has sent another request before its last one is answered. No browser
        does; but 20 kB can ask 500 times, which would keep the server busy."""
        answering = self.cycle is not None and not self.cycle.response_complete
        return answering and self.conn.their_state is h11.DONE and bool(self.conn.trailing_data[0])

    def _watch(self) -> None:
        """Give the client time for what it has to do now. What it sends of a request adds no time;
        what it reads does, as an export may take hours."""
        state = self.waits_for
        if state == self._state and (self._deadline is not None or not state):
            return
        self._stop_watching()
        self._state = state
        if state == "reading" or (state and not self.transport.is_closing()):
            self._deadline = self.loop.call_later(getattr(self.limits, state), self._give_up)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.abort()

    def _make_room(self) -> None:
        """Close the connection that has waited longest for its client; if all are being answered,
        the newest, which is this one."""
        others = [one for one in self.connections if isinstance(one, Connection) and one.waits_for]
        oldest = min(others, key=lambda one: one._since, default=self)
        self.connections.discard(oldest)  # its end is noted later, and more may come before
        oldest.transport.abort()


def connection_with(limits: Limits) -> type[Connection]:
    """The class of connections with these limits."""

    class Limited(Connection):
        pass

    Limited.limits = limits
    return Limited


def limits_here() -> Limits:
    """The limits that this process can keep: half of the files that it may have open are for
    connections."""
    files = 1024
    if sys.platform != "win32":
        import resource

        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        files = MOST_CONNECTIONS * 2 if soft == resource.RLIM_INFINITY else soft
    return Limits(connections=max(8, min(MOST_CONNECTIONS, (files - 2 * BACKLOG) // 2)))


class Once(logging.Filter):
    """Lets each error through once: what has been logged already says all that there is to know,
    and a client could fill the disk with the rest."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[tuple[object, ...]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        key: tuple[object, ...] = (record.name, str(record.msg)[:200])
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])[-1:]
            key += (record.exc_info[0], *((one.filename, one.lineno) for one in frames))
        if key in self._seen or len(self._seen) >= MOST_ERRORS:
            return False
        self._seen.add(key)
        return True


def log_once() -> None:
    """Log each error of a server once."""
    known = Once()
    for name in LOGGERS:
        logger = logging.getLogger(name)
        for old in [one for one in logger.filters if isinstance(one, Once)]:
            logger.removeFilter(old)
        logger.addFilter(known)

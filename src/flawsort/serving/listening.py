"""Listen on a port of this machine, and serve an application there until it is told to end."""

from __future__ import annotations

import errno
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from starlette.types import ASGIApp

from flawsort.core.errors import OptionError
from flawsort.core.private import kept_secret, new_secret
from flawsort.serving.access import ANY_HOST, is_loopback
from flawsort.serving.connections import BACKLOG, connection_with, limits_here, log_once

# So many ports are tried, from the given one on, if others are busy.
PORTS_TRIED = 20
THIS_MACHINE = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::", "")
# Errors about the host, not the port.
NO_SUCH_HOST = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def run_app(app: ASGIApp, listener: socket.socket, *, patience: int) -> None:
    """Serve an application until Ctrl-C, which is raised as KeyboardInterrupt after everything is
    closed. patience: the seconds that running requests get to finish."""
    import uvicorn

    limits = limits_here()
    config = uvicorn.Config(
        app,
        http=connection_with(limits),
        backlog=limits.backlog,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=patience,
    )
    log_once()
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
    # After its shutdown, uvicorn passes the signal on to the previous handler. There may be none:
    # shells make background commands ignore Ctrl-C.
    if server.should_exit:
        raise KeyboardInterrupt


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Within the block, the signal that ends a service (SIGTERM) closes what is open, as Ctrl-C
    does, and the process ends with 0. Other threads than the main one get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(*_: object) -> NoReturn:
    raise SystemExit(0)


def choose_token(host: str, given: str | None, *, no_token: bool, kept: Path) -> str | None:
    """The token that clients must present, or None. kept: the file of the one that is used on this
    machine."""
    if given is not None and no_token:
        raise OptionError(
            "cannot be given with --no-token. Leave out one of them.", parameter="token"
        )
    if given is not None or no_token:
        return given
    # One that is shared with others must not open the servers that are not.
    return kept_secret(kept) if is_loopback(host) else new_secret()


def names_of(host: str) -> list[str]:
    """The host names that a server at this address answers to."""
    return [ANY_HOST] if host in ANY_ADDRESS else [host]


def address_for_others(address: str, host: str) -> str | None:
    """The address with this machine's name, if the server listens on all addresses; None if it
    listens on `host` only. The name is not looked up, since that may take long."""
    if host not in ANY_ADDRESS:
        return None
    return address.replace(THIS_MACHINE, socket.gethostname(), 1)


def address_of(host: str, port: int, token: str | None) -> str:
    """The address to open in a browser on this machine."""
    name = THIS_MACHINE if host in ANY_ADDRESS else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens on the port, or on the next one that is not busy."""
    if not 0 <= port <= 65535:
        raise OptionError(f"must be between 0 and 65535. Got {port}.", parameter="port")
    last = min(port + PORTS_TRIED, 65536) - 1 if port else 0
    candidate = port
    while True:
        try:
            return _bound(host, candidate)
        except OSError as error:
            if not _is_busy(error) or candidate >= last:
                raise OptionError(_no_port(host, port, candidate, error)) from error
        candidate += 1


def _is_busy(error: OSError) -> bool:
    """Whether the next port may be free. Windows forbids a port that another program has for
    itself, or that the system keeps."""
    forbidden = sys.platform == "win32" and error.errno == errno.EACCES
    return forbidden or error.errno == errno.EADDRINUSE


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without an explicit TCP protocol, asyncio delays small answers by 40 ms (no TCP_NODELAY).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform == "win32":  # otherwise another program could take the port, too
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except OSError:
        listener.close()
        raise


def _no_port(host: str, first: int, last: int, error: OSError) -> str:
    """Why no port from the first to the last can be listened on, and what to do."""
    advice = "Choose another port, or 0 for any free port."
    if isinstance(error, socket.gaierror) or error.errno in NO_SUCH_HOST:
        advice = (
            "That host is not an address of this machine. Name one of its addresses, or 0.0.0.0 "
            "for all of them."
        )
    ports = f"port {first}" if first == last else f"ports {first} to {last}"
    return f"Cannot listen on {host}, {ports}: {error.strerror or error}. {advice}"

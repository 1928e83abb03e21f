"""Run the review server on a port of this machine until Ctrl-C."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from flawsort.core.errors import OptionError
from flawsort.review.access import ANY_HOST, check_token, is_loopback
from flawsort.review.app import make_app

# Seconds that requests under way at Ctrl-C may take to finish; edits take milliseconds.
PATIENCE = 3
BACKLOG = 256
# Seconds to wait for the run to open, so that the first page comes at once. For a very large run
# the page itself says that it is being opened.
OPENING = 2.0
THIS_MACHINE = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::", "")
# What is wrong is the host, not its port.
NO_SUCH_HOST = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def serve(
    folders: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    open_browser: bool = True,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve runs until Ctrl-C, which comes out as KeyboardInterrupt when all is closed.

    port: 0 for any that is free. token: generated if omitted, for a host that others can reach.
    announce: called with the address once it answers.
    """
    import uvicorn

    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    names = [ANY_HOST] if host in ANY_ADDRESS else [host]
    check_token(token, names)
    app = make_app(folders, token, hosts=names)
    with _listening(host, port) as listener:
        address = _address(host, listener.getsockname()[1], token)
        if app.state.warming is not None:
            app.state.warming.join(OPENING)
        # The socket listens already: whoever comes before the server does waits a moment.
        announce(address)
        if open_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=PATIENCE,
        )
        server = uvicorn.Server(config)
        server.run(sockets=[listener])
    # When it has closed down, uvicorn passes the signal on to whatever handled it before. That may
    # be nothing: a shell has commands in the background ignore Ctrl-C.
    if server.should_exit:
        raise KeyboardInterrupt


def address_for_others(address: str, host: str) -> str | None:
    """The address with this machine's name in it, where a server listens to all that reach it; None
    where it is known by `host` alone. Whether others know that name is not asked, since that may
    take long."""
    if host not in ANY_ADDRESS:
        return None
    return address.replace(THIS_MACHINE, socket.gethostname(), 1)


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise OptionError(f"must be between 0 and 65535. Got {port}.", parameter="port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Of a socket that does not say TCP, asyncio leaves small answers waiting for 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        advice = "Choose another port, or 0 for any that is free."
        if isinstance(error, socket.gaierror) or error.errno in NO_SUCH_HOST:
            advice = (
                "That host is no address of this machine: name one that is, or 0.0.0.0 for all "
                "that it has."
            )
        raise OptionError(
            f"Cannot listen on {host}, port {port}: {error.strerror or error}. {advice}"
        ) from error


def _address(host: str, port: int, token: str | None) -> str:
    """What to open in a browser on this machine."""
    name = THIS_MACHINE if host in ANY_ADDRESS else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")

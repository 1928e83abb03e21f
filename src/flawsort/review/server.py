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

# Seconds that running requests get to finish after Ctrl-C; edits take milliseconds.
PATIENCE = 3
BACKLOG = 256
# Seconds to wait for the run to open, so that the first page appears at once. A very large run
# takes longer; its page then shows that it is opening.
OPENING = 2.0
THIS_MACHINE = "127.0.0.1"
ANY_ADDRESS = ("0.0.0.0", "::", "")
# Errors about the host, not the port.
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
    """Serve runs until Ctrl-C, which is raised as KeyboardInterrupt after everything is closed.

    port: 0 for any free port. token: generated if omitted and others can reach the host. announce:
    called with the address once the server accepts connections.
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
        # The socket listens already: early requests wait until the server starts.
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
    # After its shutdown, uvicorn passes the signal on to the previous handler. There may be none:
    # shells make background commands ignore Ctrl-C.
    if server.should_exit:
        raise KeyboardInterrupt


def address_for_others(address: str, host: str) -> str | None:
    """The address with this machine's name, if the server listens on all addresses; None if it
    listens on `host` only. The name is not looked up, since that may take long."""
    if host not in ANY_ADDRESS:
        return None
    return address.replace(THIS_MACHINE, socket.gethostname(), 1)


def _listening(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise OptionError(f"must be between 0 and 65535. Got {port}.", parameter="port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without an explicit TCP protocol, asyncio delays small answers by 40 ms (no TCP_NODELAY).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        advice = "Choose another port, or 0 for any free port."
        if isinstance(error, socket.gaierror) or error.errno in NO_SUCH_HOST:
            advice = (
                "That host is not an address of this machine. Name one of its addresses, or "
                "0.0.0.0 for all of them."
            )
        raise OptionError(
            f"Cannot listen on {host}, port {port}: {error.strerror or error}. {advice}"
        ) from error


def _address(host: str, port: int, token: str | None) -> str:
    """The address to open in a browser on this machine."""
    name = THIS_MACHINE if host in ANY_ADDRESS else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")

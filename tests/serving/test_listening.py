"""A server that is told to end closes what is open."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from flawsort.core.errors import OptionError
from flawsort.serving import listening as module
from flawsort.serving.listening import ending_in_order, listening
from helpers.plates import LONG, start

CODE = """
import socket, sys
from starlette.responses import PlainTextResponse
from flawsort.serving.listening import ending_in_order, listening, run_app

try:
    with ending_in_order(), listening("127.0.0.1", 0) as listener:
        print(listener.getsockname()[1], flush=True)
        run_app(PlainTextResponse("it"), listener, patience=1)
except KeyboardInterrupt:
    sys.exit(130)
finally:
    print("closed", flush=True)
"""
NEEDS_POSIX = pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")


@NEEDS_POSIX
@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_ends_in_order(how: signal.Signals, code: int) -> None:
    process = start(CODE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        # Once it answers, it listens to signals, even where it was started with Ctrl-C ignored.
        with socket.create_connection(("127.0.0.1", port), timeout=LONG) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in client.recv(4096)
        process.send_signal(how)
        out, err = process.communicate(timeout=LONG)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out, err) == (code, "closed\n", "")


@NEEDS_POSIX
def test_the_signal_is_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ending_in_order():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_in_another_thread_there_are_no_signals() -> None:
    entered = []

    def enter() -> None:
        with ending_in_order():
            entered.append(True)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [True]


class WindowsSocket:
    """A socket of a system that keeps the first port for itself."""

    options: ClassVar[list[int]] = []

    def __init__(self, *_: object) -> None:
        self.port = 0

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options.append(option)

    def bind(self, address: tuple[str, int]) -> None:
        if address[1] == 8000:
            raise PermissionError(errno.EACCES, "An attempt was made to access a socket")
        self.port = address[1]

    def listen(self, backlog: int) -> None: ...

    def close(self) -> None: ...


def test_ports_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that the system keeps is as good as busy, and nobody else can take ours."""
    monkeypatch.setattr(socket, "socket", WindowsSocket)
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", -5, raising=False)
    monkeypatch.setattr(module, "sys", SimpleNamespace(platform="win32"))
    found: Any = listening("127.0.0.1", 8000)
    assert found.port == 8001
    assert WindowsSocket.options == [-5, -5]
    monkeypatch.setattr(module, "sys", SimpleNamespace(platform="linux"))
    with pytest.raises(OptionError, match=r"Cannot listen on 127\.0\.0\.1"):
        listening("127.0.0.1", 8000)

"""How events are passed on."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flawsort.core.errors import OptionError
from flawsort.daily import delivery
from flawsort.daily.delivery import Actions, Refused, Unreachable
from flawsort.daily.journal import Due
from helpers.plates import LONG

LINE = r'"C:\Program Files\alarm.exe" --to "line 3" '


@pytest.mark.parametrize(
    ("platform", "run"),
    [
        ("win32", LINE.strip()),  # Windows splits it by rules of its own
        ("linux", [r"C:\Program Files\alarm.exe", "--to", "line 3"]),
    ],
)
def test_a_command_is_split_as_the_system_does(
    monkeypatch: pytest.MonkeyPatch, platform: str, run: object
) -> None:
    given: list[Any] = []

    def started(command: Any, **_: Any) -> SimpleNamespace:
        given.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(delivery.subprocess, "run", started)
    monkeypatch.setattr(delivery, "sys", SimpleNamespace(platform=platform))
    Actions(LINE).carry_out(Due(1, "exec", {"event": "image"}, 0))
    assert given == [run]


@pytest.mark.parametrize("platform", ["win32", "linux"])
def test_a_command_names_a_program(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(delivery, "sys", SimpleNamespace(platform=platform))
    with pytest.raises(OptionError, match="must name a program"):
        Actions("  ")


EVENT = Due(1, "exec", {"event": "image"}, 0)
POST = Due(1, "post", {"event": "image"}, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs sh")
class TestCommands:
    def test_what_it_starts_may_go_on(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program that it leaves in the background keeps its errors open."""
        monkeypatch.setattr(delivery, "COMMAND_WITHIN", 120.0)
        noted = tmp_path / "process"
        Actions(f"sh -c 'sleep 600 & echo $! > {noted}'").carry_out(EVENT)
        os.kill(int(noted.read_text()), signal.SIGKILL)  # it is still there

    def test_the_end_of_its_errors_is_told(self) -> None:
        noisy = "sh -c 'yes nothing | head -c 20000000 >&2; echo the reason >&2; exit 3'"
        with pytest.raises(Refused, match=r"ended with 3 \(the reason\)"):
            Actions(noisy).carry_out(EVENT)


class TestAddresses:
    @pytest.mark.parametrize(
        "address",
        [
            "file:///etc/passwd",
            "ftp://host/",
            "http://name:word@host/",
            "http:///path",
            "http://host:0/",
            "http://host:99999/",
            "http://host/a b",
            "http://host/\r\nX-Header: theirs",
            "http://ho\tst/",
            "http://h\u00f6st/",
        ],
    )
    def test_others_are_refused(self, address: str) -> None:
        with pytest.raises(OptionError, match="must be http://HOST"):
            Actions(address=address)

    @pytest.fixture
    def dripping(self) -> Iterator[str]:
        """An address that sends its answer byte by byte, without an end."""
        ended = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer() -> None:
                other, _ = listener.accept()
                with other:
                    other.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                    with suppress(OSError):  # nobody listens any more
                        while not ended.wait(0.05):
                            other.sendall(b"x")

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
            ended.set()
            thread.join(LONG)

    def test_one_that_answers_byte_by_byte_stops_nothing(
        self, dripping: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delivery, "PASSED_ON_WITHIN", 0.5)
        with pytest.raises(Unreachable, match="the address took longer than"):
            Actions(address=dripping).carry_out(POST)

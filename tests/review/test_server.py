"""Who is let in by default, what other users of the machine see of it, and clients that only
wait."""

from __future__ import annotations

import os
import re
import resource
import socket
import stat
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import uvicorn

from flawsort import OptionError
from flawsort.core.private import LENGTH, kept_secret, private_file
from flawsort.review.server import TOKEN_FILE, serve
from helpers.html import Page
from helpers.plates import LONG, ROOT, start

NEEDS_POSIX = pytest.mark.skipif(os.name != "posix", reason="needs the permissions of POSIX")
LIMITED = """
import resource, sys
from pathlib import Path
from flawsort.review.server import serve

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
serve([Path(sys.argv[1])], open_browser=False, no_token=True,
      announce=lambda address: print(address, flush=True))
"""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    """Gives the address that is announced, and does not run the server."""
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    monkeypatch.setenv("FLAWSORT_CACHE", str(tmp_path / "cache"))

    def announced(folder: Path, **options: Any) -> str:
        said: list[str] = []
        serve([folder], announce=said.append, **{"open_browser": False, **options})
        return said[0]

    return announced


class TestToken:
    def test_on_this_machine_too(self, saved: Path, served: Callable[..., str]) -> None:
        first = served(saved)
        assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/\?token=\S{{{LENGTH}}}", first)
        # The same for the next start, so that open pages go on.
        assert served(saved).partition("?")[2] == first.partition("?")[2]

    def test_none_if_one_wants_none(self, saved: Path, served: Callable[..., str]) -> None:
        assert "token" not in served(saved, no_token=True)
        with pytest.raises(OptionError, match=r"^token cannot be given with --no-token"):
            served(saved, no_token=True, token="0123456789abcdef")
        with pytest.raises(OptionError, match=r"^token must be given for a host that others can"):
            served(saved, no_token=True, host="0.0.0.0")

    def test_a_shared_one_opens_nothing_else(self, saved: Path, served: Callable[..., str]) -> None:
        own, *shared = (served(saved, host=host) for host in ("127.0.0.1", "0.0.0.0", "0.0.0.0"))
        tokens = {address.partition("token=")[2] for address in (own, *shared)}
        assert len(tokens) == 3

    def test_of_the_environment(
        self, saved: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Any]
    ) -> None:
        """Other users see the words of a command, and not its environment."""
        given: list[Any] = []
        monkeypatch.setattr("flawsort.review.server.serve", lambda *_, **o: given.append(o))
        monkeypatch.setenv("FLAWSORT_TOKEN", "a-token-from-elsewhere")
        assert cli("review", saved, "--no-open").code == 0
        assert cli("review", saved, "--no-open", "--token", "another-one-0123").code == 0
        assert cli("review", saved, "--no-token").code == 0
        assert [(one["token"], one["no_token"]) for one in given] == [
            ("a-token-from-elsewhere", False),
            ("another-one-0123", False),
            (None, True),
        ]

    @NEEDS_POSIX
    def test_the_browser_is_opened_by_a_file_of_ones_own(
        self, saved: Path, served: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The address of a browser that is started stands in the list of processes."""
        opened: list[tuple[str, int, int, str]] = []
        seen = threading.Event()

        def browse(address: str) -> None:
            place = Path(unquote(urlsplit(address).path))
            modes = (place.stat().st_mode & 0o777, place.parent.stat().st_mode & 0o777)
            opened.append((address, *modes, place.read_text("utf-8")))
            seen.set()

        monkeypatch.setattr("webbrowser.open", browse)
        monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: seen.wait(LONG))
        address = served(saved, open_browser=True)
        ((page, own, folder, text),) = opened
        token = address.partition("token=")[2]
        assert page.startswith("file://")
        assert token not in page
        assert (own, folder) == (0o600, 0o700)
        assert ("href", address) in Page(text).attributes
        assert ("content", f"0; url={address}") in Page(text).attributes
        assert not Path(unquote(urlsplit(page).path)).exists()  # gone with the server

    @NEEDS_POSIX
    def test_nothing_of_it_in_the_list_of_processes(self, saved: Path) -> None:
        process = start(
            "import sys; from flawsort.cli import main; main()",
            "review", saved, "--port", "0", "--no-open",
        )  # fmt: skip
        try:
            assert process.stdout is not None
            token = process.stdout.readline().strip().partition("?token=")[2]
            listed = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(process.pid)],
                                    capture_output=True, text=True, check=True).stdout  # fmt: skip
        finally:
            process.kill()
            process.communicate()
        assert "review" in listed
        assert len(token) == LENGTH
        assert token not in listed


@NEEDS_POSIX
class TestSecrets:
    def test_only_their_owner_can_read_them(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            secret = kept_secret(tmp_path / "cache" / TOKEN_FILE)
        finally:
            os.umask(before)
        place = tmp_path / "cache" / TOKEN_FILE
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert place.read_text() == secret == kept_secret(place)

    @pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
    def test_one_that_others_can_open_is_replaced(self, tmp_path: Path, mode: int) -> None:
        place = tmp_path / TOKEN_FILE
        secret = kept_secret(place)
        place.chmod(mode)
        assert kept_secret(place) != secret
        assert stat.S_IMODE(place.stat().st_mode) == 0o600

    @pytest.mark.parametrize("content", [b"", b"short", b"x" * 200, b"\xff" * LENGTH])
    def test_what_is_no_secret_is_replaced(self, tmp_path: Path, content: bytes) -> None:
        place = tmp_path / TOKEN_FILE
        place.touch(0o600)
        place.write_bytes(content)
        assert len(kept_secret(place)) == LENGTH
        assert len(place.read_text()) == LENGTH

    def test_links_and_pipes_are_not_followed(self, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.touch(0o600)
        other.write_text("y" * LENGTH)
        place = tmp_path / TOKEN_FILE
        place.symlink_to(other)
        assert kept_secret(place) != "y" * LENGTH
        assert other.read_text() == "y" * LENGTH
        place.unlink()
        os.mkfifo(place, 0o600)
        assert len(kept_secret(place)) == LENGTH
        assert place.is_file()

    def test_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        place = tmp_path / "file" / TOKEN_FILE
        assert kept_secret(place) != kept_secret(place)

    def test_a_private_file_is_gone_afterwards(self) -> None:
        with private_file("a.html", "\u00fc") as place:
            assert place.read_text("utf-8") == "\u00fc"
        assert not place.parent.exists()


def ask(port: int, path: str = "/api/runs") -> bytes:
    """The answer to a request, whole."""
    with socket.create_connection(("127.0.0.1", port), timeout=LONG) as client:
        client.sendall(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
        )
        return b"".join(iter(lambda: client.recv(65536), b""))


@NEEDS_POSIX
def test_a_thousand_half_sent_requests(saved: Path) -> None:
    """They neither stop the server nor fill the disk with messages."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = 600
    if hard != resource.RLIM_INFINITY and hard < n + 200:
        pytest.skip(f"this process may have {hard} files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 200), hard))
    process = start(LIMITED, saved, "256")
    waiting = []
    try:
        assert process.stdout is not None
        port = urlsplit(process.stdout.readline().strip()).port
        assert port is not None
        for _ in range(n):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
            waiting.append(client)
        for client in waiting:
            with suppress(OSError):
                client.send(b"GET / HTTP/1.1\r\nHost: 127")
        for _ in range(20):
            assert b"200 OK" in ask(port)
    finally:
        for client in waiting:
            client.close()
        process.kill()
        err = process.communicate()[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(err) < 20_000, err[:2000]


def test_the_tool_of_the_screenshots_asks_for_none() -> None:
    """It opens pages by their address."""
    assert "no_token=True" in (ROOT / "tools/screenshots.py").read_text()

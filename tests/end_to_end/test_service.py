"""A real server process: images go in over the network, and nothing that a client does stops it."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from PIL import Image

from flawsort import open_run
from helpers.plates import LONG, MAIN, Cli, plate, start, write_plates
from helpers.review_client import copied
from helpers.service import assigned, batch_of, check_same

NEEDS_POSIX = pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")


def file_of(kind: str, number: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(plate(kind, number)).save(content, "PNG")
    return content.getvalue()


@dataclass
class Server:
    """flawsort serve in a process of its own."""

    run: Path
    temporary: Path
    port: int = 0
    token: str = ""
    process: subprocess.Popen[str] | None = None
    said: list[str] = field(default_factory=list)

    def begin(self, *options: str, **environment: str) -> None:
        self.process = start(
            MAIN, "serve", self.run, "--port", str(self.port), "--device", "cpu", *options,
            TMPDIR=str(self.temporary), **environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.said = []
        for line in self.process.stdout:
            self.said.append(line.strip())
            if line.startswith("Stop with"):
                break
        else:
            raise AssertionError(self.process.communicate()[1])
        self.port = int(self.said[0].rstrip("/").rpartition(":")[2])
        given = re.match(r"Token: (\S+) ", self.said[1])
        self.token = given[1] if given else environment.get("FLAWSORT_TOKEN", "")

    def ask(
        self,
        path: str,
        content: bytes | None = None,
        kind: str = "image/png",
        token: str | None = None,
    ) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        if content is not None:
            headers["Content-Type"] = kind
        request = Request(f"http://127.0.0.1:{self.port}{path}", content, headers)
        try:
            with urlopen(request, timeout=LONG) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            with error:
                return error.code, error.read()

    def image(self, content: bytes) -> Any:
        status, body = self.ask("/image", content)
        assert status == 200, body
        return json.loads(body)

    def comes_to(self, line: str) -> str:
        """The metrics once they have a line: a server notes what a client did a moment later."""
        end = time.monotonic() + LONG
        while line not in (text := self.ask("/metrics")[1].decode()):
            assert time.monotonic() < end, text
            time.sleep(0.02)
        return text

    def batch(self, contents: list[bytes]) -> Any:
        sent = json.dumps(batch_of(contents)).encode()
        status, body = self.ask("/images", sent, "application/json")
        assert status == 200, body
        return json.loads(body)

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        assert self.process is not None
        self.process.send_signal(how)
        _, err = self.process.communicate(timeout=LONG)
        return self.process.returncode, err


@pytest.fixture(scope="module")
def shared(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose run nobody changes."""
    server = Server(saved, tmp_path_factory.mktemp("uploads"))
    server.begin()
    yield server
    code, err = server.end()
    assert code == 0
    # What is no HTTP is logged, once.
    assert err in ("", "WARNING:  Invalid HTTP request received.\n")
    assert list(server.temporary.iterdir()) == []


@pytest.fixture
def own(saved: Path, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "uploads").mkdir()
    server = Server(copied(saved, tmp_path), tmp_path / "uploads")
    yield server
    if server.process is not None:
        server.process.kill()
        server.process.communicate(timeout=LONG)


def test_it_says_what_assign_says(shared: Server, saved: Path, cli: Cli, tmp_path: Path) -> None:
    write_plates(tmp_path / "new", ["dent"] * 3 + ["ring"] * 2)
    sources = sorted((tmp_path / "new").iterdir())
    said = shared.batch([one.read_bytes() for one in sources])["images"]
    for one, row in zip(said, assigned(cli, saved, sources), strict=True):
        check_same(one, row)
    (row,) = assigned(cli, saved, sources[:1])
    check_same(shared.image(sources[0].read_bytes()), row)


def test_the_token(shared: Server) -> None:
    assert shared.said[1].startswith("Token: ")
    for token in ("", "wrong-token-0123456789"):
        assert shared.ask("/image", file_of("dent", 1), token=token)[0] == 401
        assert shared.ask("/metrics", token=token)[0] == 401
        assert shared.ask("/health", token=token) == (200, b'{"status":"ok"}')
    assert shared.ask("/metrics")[0] == 200


def test_several_clients_at_once(shared: Server) -> None:
    """Each gets the answer to its own image, the same as alone."""
    contents = [file_of(("dent", "streak", "ring")[n % 3], 60 + n) for n in range(6)]
    alone = [shared.image(content) for content in contents]
    found: dict[tuple[int, int], Any] = {}

    def send(client: int) -> None:
        for place, content in enumerate(contents):
            found[client, place] = shared.image(content)

    threads = [threading.Thread(target=send, args=(client,)) for client in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[client, place] == alone[place] for client, place in found)
    assert len(found) == 4 * len(contents)


def test_a_huge_body(shared: Server) -> None:
    """It is refused by its word, and if it says nothing, before all of it has come."""
    head = (
        f"POST /image HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
        f"Authorization: Bearer {shared.token}\r\n"
    )
    with socket.create_connection(("127.0.0.1", shared.port), timeout=LONG) as client:
        client.sendall(f"{head}Content-Length: {10**12}\r\n\r\n".encode())
        assert b" 413 " in client.recv(65536)
    piece = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    with socket.create_connection(("127.0.0.1", shared.port), timeout=LONG) as client:
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        answered = b""
        with suppress(OSError):  # it has stopped listening
            for _ in range(80):
                client.sendall(piece)
        with suppress(OSError):
            answered = client.recv(65536)
        assert answered == b"" or b" 413 " in answered
    assert shared.image(file_of("dent", 1))["name"] == ""
    shared.comes_to("flawsort_held_bytes 0\n")
    shared.comes_to('flawsort_errors_total{reason="too large"} 2\n')


def test_requests_that_are_sent_by_half(shared: Server) -> None:
    head = (
        "POST /image HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
        f"Authorization: Bearer {shared.token}\r\nContent-Length: 100000\r\n\r\n"
    ).encode()
    waiting = []
    for sent in (b"", b"POST /ima", head, head + b"x" * 1000, b"\x00\xff" * 50, head * 3) * 10:
        client = socket.create_connection(("127.0.0.1", shared.port), timeout=LONG)
        client.sendall(sent)
        waiting.append(client)
    assert shared.image(file_of("dent", 2))
    for client in waiting:
        client.close()
    assert shared.image(file_of("dent", 2))
    assert 'status="5' not in shared.comes_to("flawsort_held_bytes 0\n")


def test_clients_that_leave_before_the_answer(shared: Server) -> None:
    content = file_of("dent", 3)
    head = (
        "POST /image HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
        f"Authorization: Bearer {shared.token}\r\nContent-Length: {len(content)}\r\n\r\n"
    ).encode()
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", shared.port), timeout=LONG) as client:
            client.sendall(head + content)
    assert shared.image(content)


@pytest.mark.parametrize("cut", [0, 1, 8, 20, 33, 60, 150, 400])
def test_images_that_are_cut_off_or_garbled(shared: Server, cut: int) -> None:
    whole = file_of("dent", 4)
    garbled = bytearray(whole)
    garbled[cut : cut + 40] = bytes(byte ^ 0x5A for byte in whole[cut : cut + 40])
    for content in (whole[:cut], bytes(garbled)):
        assert shared.ask("/image", content)[0] in (200, 422)
    body = json.dumps({"images": [{"content": base64.b64encode(bytes(garbled)).decode()}]})
    assert shared.ask("/images", body.encode(), "application/json")[0] == 200
    assert shared.ask("/images", body.encode()[: cut + 5], "application/json")[0] == 422


@NEEDS_POSIX
def test_killed_and_started_again(own: Server) -> None:
    """Nothing is left of what was sent, the token stays, and the answers too."""
    own.begin()
    before, token = own.image(file_of("dent", 5)), own.token
    stop, sent = threading.Event(), []

    def send() -> None:
        while not stop.is_set():
            try:
                sent.append(own.ask("/image", file_of("dent", 5))[0])
            except (OSError, HTTPException):  # it ended before, or in the middle of an answer
                return

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(sent) < 3:
        assert own.process is not None
        assert own.process.poll() is None
        time.sleep(0.02)
    own.end(signal.SIGKILL)
    stop.set()
    for thread in threads:
        thread.join()
    left = [one for one in own.temporary.rglob("*") if one.is_file()]
    own.begin()
    assert own.token == token
    assert [one for one in left if one.exists()] == []
    assert own.image(file_of("dent", 5)) == before
    assert own.end()[0] == 0
    assert list(own.temporary.iterdir()) == []


def test_what_people_teach_counts_without_a_restart(own: Server) -> None:
    own.begin(FLAWSORT_TOKEN="a-token-of-ones-own-0123")
    assert not [line for line in own.said if "Token" in line]  # it need not stand in a log
    before = own.image(file_of("dent", 6))
    assert (before["group"][:6], before["probability"]) == ("Group ", None)
    said = {f"dent0{number}.png": "dent" for number in range(3)}
    said |= {f"streak{number:02d}.png": "streak" for number in range(7, 10)}
    open_run(own.run).teach(said)
    after = own.image(file_of("dent", 6))
    assert after["group"] == "dent"
    assert after["probability"] > 0.5
    assert after["regions"][0]["kind"] == "dent"


@NEEDS_POSIX
@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_what_is_being_sorted_is_answered_before_it_ends(
    own: Server, how: signal.Signals, code: int
) -> None:
    own.begin()
    content = json.dumps(batch_of([file_of("dent", n) for n in range(60)])).encode()
    answers: list[int] = []
    for _ in range(20):  # a busy machine may look only when it is sorted already
        answers.clear()
        seen = False
        thread = threading.Thread(
            target=lambda: answers.append(own.ask("/images", content, "application/json")[0])
        )
        thread.start()
        while not seen and thread.is_alive():
            seen = "flawsort_waiting 1" in own.ask("/metrics")[1].decode()
        if seen:
            break
        thread.join()
    assert seen
    ended, err = own.end(how)
    thread.join()
    assert (answers, ended) == ([200], code)
    assert "Traceback" not in err
    assert list(own.temporary.iterdir()) == []


def test_a_run_that_is_none(tmp_path: Path) -> None:
    process = start(MAIN, "serve", tmp_path, "--port", "0", TMPDIR=tempfile.gettempdir())
    _, err = process.communicate(timeout=LONG)
    assert process.returncode == 2
    assert "Traceback" not in err
    assert err.count("\n") == 1

"""Events are passed on at least once each, to nobody else, and to nobody for ever."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from flawsort.core.errors import OptionError
from flawsort.daily import delivery
from flawsort.daily.delivery import MOST_REFUSALS, WAITS, Actions, Deliverer
from flawsort.daily.journal import Journal, Round
from helpers.plates import LONG

EVENT = {"event": "image", "id": "1.0", "group": "=1+1; rm -rf /", "path": "/a b.png"}
NOTE = "import sys; open(sys.argv[1], 'ab').write(sys.stdin.buffer.read() + b'\\n')"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Listener:
    """A server on this machine that answers with the codes in turn, and notes what it gets."""

    def __init__(self, *codes: int) -> None:
        self.got: list[dict[str, Any]] = []
        left = list(codes)
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                listener.got.append(json.loads(body))
                code = left.pop(0) if len(left) > 1 else left[0]
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", listener.address + "elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late; how long one waits for answers is tested elsewhere."""
    for limit in ("COMMAND_WITHIN", "ANSWER_WITHIN", "PASSED_ON_WITHIN"):
        monkeypatch.setattr(delivery, limit, LONG)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path) as journal:
        yield journal


def due(journal: Journal, *actions: str, events: int = 1) -> None:
    done = Round(journal.next_number)
    done.events = [
        (action, {**EVENT, "id": f"1.{number}"}) for number in range(events) for action in actions
    ]
    journal.commit(done)


def test_a_command_gets_the_event(journal: Journal, tmp_path: Path) -> None:
    due(journal, "exec", events=2)
    noted = tmp_path / "noted"
    actions = Actions(f'"{sys.executable}" -c "{NOTE}" "{noted}"')
    said: list[str] = []
    assert Deliverer(journal, actions, said.append).deliver() == 2
    lines = [json.loads(line) for line in noted.read_text().splitlines()]
    assert [(one["id"], one["attempt"]) for one in lines] == [("1.0", 1), ("1.1", 1)]
    assert lines[0]["group"] == EVENT["group"]
    assert (said, journal.n_due) == ([], 0)


def test_no_shell_reads_the_command(journal: Journal, tmp_path: Path) -> None:
    due(journal, "exec")
    touched = tmp_path / "touched"
    Deliverer(journal, Actions(f"echo a; touch {touched}"), lambda _: None).deliver()
    assert not touched.exists()


def test_a_command_that_fails_is_tried_again_and_given_up(journal: Journal) -> None:
    due(journal, "exec")
    clock, said = Clock(), list[str]()
    actions = Actions(f'"{sys.executable}" -c "import sys; sys.exit(3)"')
    deliverer = Deliverer(journal, actions, said.append, clock)
    for number, wait in enumerate((*WAITS, 0.0)):
        assert deliverer.deliver() == (number + 1 == MOST_REFUSALS)
        assert f"event 1.0, attempt {number + 1}" in said[-1]
        clock.now += wait - 0.5
        assert deliverer.deliver() == 0  # not before its time
        clock.now += 0.5
    assert said[-1].startswith("Given up")
    assert (len(said), journal.n_due) == (MOST_REFUSALS, 0)


def test_an_address_gets_the_event(journal: Journal) -> None:
    listener = Listener(204)
    due(journal, "post")
    assert Deliverer(journal, Actions(address=listener.address), print).deliver() == 1
    listener.close()
    assert listener.got == [{**EVENT, "attempt": 1}]


def test_an_address_that_does_not_answer_is_tried_for_ever(journal: Journal) -> None:
    listener = Listener(503)
    due(journal, "post", events=2)
    clock, said = Clock(), list[str]()
    deliverer = Deliverer(journal, Actions(address=listener.address), said.append, clock)
    for number in range(MOST_REFUSALS + 2):
        assert deliverer.deliver() == 0
        assert len(listener.got) == number + 1  # the second event does not wait in vain, too
        clock.now += WAITS[-1]
    listener.close()
    assert journal.n_due == 2


def test_no_other_host_hears_of_it(journal: Journal) -> None:
    listener = Listener(302, 200)
    due(journal, "post")
    said: list[str] = []
    assert Deliverer(journal, Actions(address=listener.address), said.append).deliver() == 0
    listener.close()
    assert len(listener.got) == 1
    assert "the address answered with 302" in said[0]


@pytest.mark.parametrize(
    "address",
    ["", "file:///etc/passwd", "ftp://host/", "http://", "http://user:word@host/", "http://a b/",
     "http://host:0/", "http://host:x/"],
)  # fmt: skip
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(OptionError, match="must be http://HOST"):
        Actions(address=address)


@pytest.mark.parametrize("command", ["", "  ", "'open"])
def test_commands_that_are_none(command: str) -> None:
    with pytest.raises(OptionError, match="must "):
        Actions(command)

"""What `flawsort serve` passes on, and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flawsort.daily.server import Door
from helpers.plates import Cli

TOKEN = "a-token-of-ones-own-0123"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Door, dict[str, Any]]]:
    """What the server is started with; it says an address and a token, and ends."""
    found: list[tuple[Path, Door, dict[str, Any]]] = []

    def serve(folder: Path, door: Door, *, announce: Any, **options: Any) -> None:
        found.append((folder, door, options))
        announce("http://127.0.0.1:8765/", door.token or "generated-token-0123")

    monkeypatch.setattr("flawsort.daily.server.serve", serve)
    monkeypatch.delenv("FLAWSORT_TOKEN", raising=False)
    return found


def test_the_defaults(cli: Cli, given: list[Any]) -> None:
    answer = cli("serve", "run")
    assert (answer.code, answer.err) == (0, "")
    folder, door, options = given[0]
    assert folder == Path("run")
    assert door == Door("127.0.0.1", 8764, None, False, 64 * 2**20)
    assert options == {"where": {"device": None, "arithmetic": None}}
    assert answer.out.splitlines() == [
        "Service: http://127.0.0.1:8765/",
        "Port 8764 is busy, so this is port 8765.",
        "Token: generated-token-0123 (as header: 'Authorization: Bearer generated-token-0123')",
        "Stop with Ctrl-C.",
    ]


def test_a_token_of_ones_own_is_not_printed(
    cli: Cli, given: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAWSORT_TOKEN", TOKEN)
    assert "Token" not in cli("serve", "run", "--port", "0").out
    assert "Token" not in cli("serve", "run", "--token", f"{TOKEN}-b").out
    cli("serve", "run", "--no-token")
    assert [door.token for _, door, _ in given] == [TOKEN, f"{TOKEN}-b", None]
    assert given[2][1].no_token


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--max-body", "much"], "--max-body must be a size such as"),
        (["--port", "x"], "--port must be a whole number"),
    ],
)
def test_what_is_refused(cli: Cli, given: list[Any], words: list[str], told: str) -> None:
    answer = cli("serve", "run", *words)
    assert (answer.code, given) == (2, [])
    assert told in answer.err


def test_other_machines_need_a_token(cli: Cli, saved: Path) -> None:
    answer = cli("serve", saved, "--host", "0.0.0.0", "--no-token")
    assert answer.code == 2
    assert answer.err.endswith(
        "--token must be given for a host that others can reach. Got no token for all addresses of "
        "this machine.\n"
    )

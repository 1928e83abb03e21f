"""The API under requests that no person would send: never a 500, and the state stays whole."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from flawsort import open_run
from flawsort.labels.session import read_settled
from flawsort.review.app import make_app
from helpers.review_client import (
    Reply,
    RunClient,
    check_state,
    closing_libraries,
    copied,
    keep_new_images,
)

N = 14
NUMBERS = (0, 1, 2, 3, 13, 14, -1, 99, 2**31, 2**53, 2**63, 2**64, 10**30, -(2**63) - 1)
TEXTS = (
    "", "0", "a", "new", "normal", "unsure", "flaw", "\x00", "a\x00", "\n", "\ud800", "\U0001f600",
    "../..", "<script>", "' OR 1=1", "a" * 200, "a" * 300, "\u202e", "\ufffe", "NaN", "None", "%s",
    "{}", "__class__", "e\u0301" * 99, "\u0663",
)  # fmt: skip
KINDS = (
    "name", "role", "merge", "split", "move", "several", "accept", "reject", "audit", "teach",
    "verdict", "different", "severity", "note", "cut", "carry", "undo", "redo", "", "NAME",
    "__init__", "\x00", "paint",
)  # fmt: skip
FIELDS = (
    "group", "name", "role", "groups", "into", "images", "to", "k", "labels", "confirmed",
    "several", "spent", "id", "image", "threshold", "examples", "at", "severity", "note", "x", "",
)  # fmt: skip
# A body beyond what Python writes: numbers that are none, and JSON that is none.
RAW = (
    b"", b"{", b"[]", b"nul", b'{"version":1e999}', b"\xff", b'{"a":' * 3000, b"[" * 100_000,
    b'{"version":0,"kind":"name","payload":{"group":0,"name":"\\ud800"}}',
    b'{"version":0,"version":1,"kind":"cut","payload":{"k":NaN}}', b"-", b"9" * 5000,
    b'{"version":0,"kind":"cut","payload":{"k":-Infinity}}', b'"\\u0000"', b"{} {}",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


class Fuzz:
    """Random requests to a server, from what its openapi.json says that it takes."""

    def __init__(self, client: RunClient, seed: int) -> None:
        self.client, self.random = client, random.Random(seed)
        self.described = client.get("/openapi.json").data
        self.routes = [
            (method, path, operation)
            for path, methods in sorted(self.described["paths"].items())
            for method, operation in sorted(methods.items())
            if "/export/" not in path
        ]

    def value(self, depth: int = 0) -> Any:
        """Anything that JSON can hold."""
        pick = self.random.random()
        if pick < 0.35:
            return self.random.choice(NUMBERS)
        if pick < 0.55:
            return self.random.choice(TEXTS)
        if pick < 0.65:
            return self.random.choice((None, True, False, 0.5, -0.0, 1e300, 3.0))
        if depth > 2 or pick < 0.85:
            return [self.random.randrange(-1, N + 1) for _ in range(self.random.randrange(5))]
        names = self.random.sample(FIELDS, self.random.randrange(4))
        return {name: self.value(depth + 1) for name in names}

    def payload(self, state: Any) -> dict[str, Any]:
        """Of an edit: half of the values could be right."""
        ids = [group["id"] for group in state["groups"]]
        likely: dict[str, Any] = {
            "group": self.random.choice(ids),
            "name": self.random.choice(TEXTS),
            "role": self.random.choice(("flaw", "normal", "unsure")),
            "groups": self.random.sample(ids, self.random.randrange(len(ids) + 1)),
            "into": self.random.choice(ids),
            "images": self.random.sample(range(N), self.random.randrange(1, 6)),
            "to": self.random.choice([*ids, "new", "normal", "unsure"]),
            "k": self.random.randrange(1, N + 2),
            "image": self.random.randrange(N + 1),
            "threshold": self.random.choice((None, 0, 0.5, 1)),
            "severity": self.random.choice(("", "critical", "major", "minor", "none")),
            "note": self.random.choice(TEXTS),
        }
        chosen = self.random.sample(FIELDS, self.random.randrange(1, 5))
        return {
            name: likely[name] if name in likely and self.random.random() < 0.7 else self.value()
            for name in chosen
        }

    def likely_edit(self, state: Any) -> dict[str, Any]:
        """An edit with the fields that its kind has."""
        fields = {
            "name": ("group", "name"), "role": ("group", "role"), "merge": ("groups", "into"),
            "split": ("group", "images"), "move": ("images", "to"), "several": ("images", "groups"),
            "accept": ("group",), "reject": ("images", "group"), "audit": ("image", "to"),
            "verdict": ("threshold",), "cut": ("k",), "severity": ("group", "severity"),
            "note": ("image", "note"),
        }  # fmt: skip
        kind = self.random.choice(sorted(fields))
        payload: dict[str, Any] = {}
        while set(payload) != set(fields[kind]):
            payload |= {k: v for k, v in self.payload(state).items() if k in fields[kind]}
        return {"version": state["version"], "kind": kind, "payload": payload}

    def body(self, operation: Any, state: Any) -> bytes:
        """Of a POST: raw bytes, any JSON, or the schema's fields with likely values."""
        pick = self.random.random()
        if pick < 0.1:
            return self.random.choice(RAW)
        if pick < 0.2:
            return json.dumps(self.value()).encode()
        schema = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        names = self.described["components"]["schemas"][schema.rpartition("/")[2]]["properties"]
        if "kind" in names and pick < 0.6:
            return json.dumps(self.likely_edit(state)).encode()
        given = {
            "version": state["version"] if self.random.random() < 0.7 else self.value(),
            "kind": self.random.choice(KINDS) if self.random.random() < 0.9 else self.value(),
            "payload": self.payload(state) if self.random.random() < 0.9 else self.value(),
            "author": self.random.choice(TEXTS) if self.random.random() < 0.9 else self.value(),
            "basis": state["basis"] if self.random.random() < 0.9 else self.value(),
            "asker": self.random.choice(("ann", "ben-2", self.value())),
            "of": self.random.choice((None, *range(1, 9), self.value())),
            "rows": self.random.choice(([0], [1, 2], [3, 0], [5], self.value())),
            "to": self.random.choice((0, 1, "new", "normal", "unsure", self.value())),
            "name": self.random.choice((None, "dent", self.value())),
        }
        left = [name for name in names if self.random.random() < 0.95]
        if self.random.random() < 0.05:
            left.append("author" if "author" not in names else "version")
        return json.dumps({name: given[name] for name in left}).encode()

    def target(self, path: str, operation: Any) -> str:
        for parameter in operation.get("parameters", ()):
            name = parameter["name"]
            choices = [*NUMBERS, *TEXTS, *range(N), *range(3)]
            value: Any = self.random.choice(choices)
            if name == "run" and self.random.random() < 0.95:
                value = "run"
            if name == "name" and "assigned" in path and self.random.random() < 0.8:
                value = "may"
            text = quote(str(value).encode("utf-8", "surrogatepass"), safe="")
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", text)
                path = path.replace(f"{{{name}:path}}", text)
            elif self.random.random() < 0.7:
                path += f"{'&' if '?' in path else '?'}{quote(name)}={text}"
        return path

    def send(self, state: Any) -> Reply:
        method, path, operation = self.random.choice(self.routes)
        if method == "post" or self.random.random() < 0.5:  # edits are what matters
            posts = [route for route in self.routes if route[0] == "post"]
            edits = [route for route in posts if route[1].endswith("/edits")]
            method, path, operation = self.random.choice([*posts, *(edits * 4)])
        target = self.target(path, operation)
        if method == "post":
            return self.client.post(target, self.body(operation, state))
        return self.client.get(target)


@pytest.mark.parametrize("seed", range(4))
def test_no_request_breaks_it(saved: Path, tmp_path: Path, seed: int) -> None:
    folder = copied(saved, tmp_path)
    keep_new_images(folder, open_run(folder))
    fuzz = Fuzz(RunClient(make_app([folder])), seed)
    state = fuzz.client.state()
    seen: dict[int, int] = {}
    for _ in range(200):
        reply = fuzz.send(state)
        assert reply.status < 500, reply
        seen[reply.status] = seen.get(reply.status, 0) + 1
        if reply.headers.get("content-type") == "application/json":
            assert reply.data is not None
            assert reply.status < 400 or reply.detail
        after = fuzz.client.state()
        check_state(after, N)
        if reply.status >= 400:
            assert after == state
        state = after
    # All sorts of answers came, or this would say nothing. Another route makes all requests others:
    # over many seeds at least 9 edits were taken.
    assert {200, 404, 422} <= seen.keys()
    assert state["version"] > 5
    assert min(seen[200], seen[422]) > 15
    assert RunClient(make_app([folder])).state() == state
    assert read_settled(folder).settled.labels.tolist() == state["labels"]


def test_it_is_the_same_each_time(saved: Path, tmp_path: Path) -> None:
    """A failure can be looked at again."""
    states = []
    for name in ("a", "b"):
        fuzz = Fuzz(RunClient(make_app([copied(saved, tmp_path / name)])), 5)
        state = fuzz.client.state()
        for _ in range(40):
            fuzz.send(state)
            state = fuzz.client.state()
        states.append(state)
    assert states[0] == states[1]


def test_versions_only_count_up(saved: Path, tmp_path: Path) -> None:
    """Two people who edit at random: each edit that was taken is one version, and none is lost."""
    folder = copied(saved, tmp_path)
    people = [Fuzz(RunClient(make_app([folder])), seed) for seed in (6, 7)]
    seen = [person.client.state() for person in people]
    taken = 0
    draw = random.Random(8)
    for _ in range(120):
        who = draw.randrange(2)
        reply = people[who].client.post("/r/run/api/edits", people[who].likely_edit(seen[who]))
        assert reply.status in (200, 409, 422), reply
        if reply.status == 200:
            taken += 1
            assert reply.data["version"] == taken
            seen[who] = reply.data
        elif reply.status == 409:
            assert reply.data["version"] == taken > seen[who]["version"]
            seen[who] = people[who].client.state()
        check_state(people[1 - who].client.state(), N)
    assert taken > 20
    assert people[0].client.state() == people[1].client.state()

"""Talk to the review server in this process, as a browser or as somebody who is none."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from starlette.types import ASGIApp

from flawsort import Run
from flawsort.review.library import Library
from flawsort.runs.assigned import Kept, keep

HOST = "127.0.0.1:8765"


@dataclass(frozen=True)
class Reply:
    """headers: in lower case; several of a name come as the last one."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def detail(self) -> str:
        assert isinstance(self.data["detail"], str), self.data
        return str(self.data["detail"])


@dataclass
class Client:
    """A browser on one page of the server: it sends Host, Origin, and the cookies it was given."""

    app: ASGIApp
    host: str = HOST
    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, target: str, **headers: str) -> Reply:
        return self.send("GET", target, headers=_named(headers))

    def post(self, target: str, content: Any, **headers: str) -> Reply:
        """content: bytes as they are, all else as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        own = {"content-type": "application/json", "origin": f"http://{self.host}"}
        return self.send("POST", target, body, {**own, **_named(headers)})

    def send(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """target: the path as it goes over the wire, with a query. A header of "" is not sent."""
        given = {"host": self.host, "content-length": str(len(body)), **self.headers}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        given |= headers or {}
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value]
        return asyncio.run(self._exchange(method, target, body, pairs))

    async def _exchange(
        self, method: str, target: str, body: bytes, pairs: list[tuple[bytes, bytes]]
    ) -> Reply:
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": pairs,
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8765),
            "state": {},
        }
        waiting = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            if waiting:
                return waiting.pop()
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        headers = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        if "set-cookie" in headers:
            name, _, value = headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        content = b"".join(message.get("body", b"") for message in sent[1:])
        return Reply(sent[0]["status"], headers, content)


class RunClient(Client):
    """A client on the page of one run."""

    run: str = "run"

    def api(self, what: str) -> Reply:
        return self.get(f"/r/{self.run}/api/{what}")

    def state(self) -> Any:
        reply = self.api("state")
        assert reply.status == 200, reply.body
        return reply.data

    def edit(self, kind: str, version: int | None = None, **payload: Any) -> Reply:
        """Make an edit, on top of the state as it is unless a version is given."""
        on = self.state()["version"] if version is None else version
        body = {"version": on, "kind": kind, "payload": payload}
        return self.post(f"/r/{self.run}/api/edits", body)

    def step(self, what: str, version: int | None = None) -> Reply:
        """Undo or redo."""
        on = self.state()["version"] if version is None else version
        return self.post(f"/r/{self.run}/api/{what}", {"version": on})


@contextmanager
def closing_libraries() -> Iterator[None]:
    """Lets go of the runs of all servers that are made inside."""
    made: list[Library] = []

    def remembered(self: Library, *given: Any, **options: Any) -> None:
        begin(self, *given, **options)
        made.append(self)

    begin = Library.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Library, "__init__", remembered)
        yield
    for library in made:
        library.close()


def copied(run: Path, folder: Path, name: str = "run") -> Path:
    """A run of one's own to edit."""
    return Path(shutil.copytree(run, folder / name))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def keep_new_images(folder: Path, run: Run, *, path: Path | None = None) -> None:
    """A batch "may" of six images: two new dents, two new streaks, an image of the run, and one
    without an embedding. path: said to be that of the first."""
    like = [0, 1, 7, 8, 13]
    table = {
        "name": [f"new{number}.png" for number in range(6)],
        "path": [str(path or ""), "", "/nowhere/x.png", "", "", ""],
        "sha256": [*map(digest, "abcd"), run.table["sha256"][13], digest("f")],
        "cluster": [*(run.table["cluster"][row] for row in like), -1],
        "kinds": [""] * 6,
        "nearest": [0] * 6,
        "runner_up": [1] * 6,
        "novelty": [0.1] * 6,
        "score": [9.0] * 6,
        "period": ["monday"] * 6,
        "proposal": [-1] * 6,
    }
    vectors = np.asarray(run.embeddings[like], np.float16)
    keep(folder, Kept("may", table, run.thumbnails[:6], {}, vectors))


def check_state(state: Any, n: int) -> None:
    """Whatever was done, the groups and the images belong together."""
    ids = [group["id"] for group in state["groups"]]
    assert len(set(ids)) == len(ids)
    assert len(state["labels"]) == n
    assert set(state["labels"]) <= set(ids)
    decided, percent = set(state["decided"]), base64.b64decode(state["probability"])
    assert len(percent) == n
    assert all(value <= 100 or value == 255 for value in percent)
    assert all(percent[row] == 255 for row in decided)
    for group in state["groups"]:
        own = [row for row, label in enumerate(state["labels"]) if label == group["id"]]
        assert group["n"] == len(own)
        assert group["decided"] == len(set(own) & decided)
        assert group["suggested"] == sum(percent[row] <= 100 for row in own)
        assert group["role"] in ("flaw", "normal", "unsure")
        assert group["title"]
    for row, kinds in state["kinds"].items():
        assert kinds[0] == state["labels"][int(row)]
        assert len(set(kinds)) == len(kinds) > 1
        assert set(kinds) <= set(ids)
    assert state["decided"] == sorted(decided)
    assert all(0 <= row < n for row in decided)


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    """Header names as keywords: content_type is content-type."""
    return {name.replace("_", "-"): value for name, value in headers.items()}

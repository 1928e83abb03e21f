"""Many people at once on one review: how long they wait, and whether its memory stays.

What a person waits for an edit is counted from the first request until it is in, with all that were
refused because somebody else was faster.

Each client has a connection of its own. It looks at a screen of pictures, makes an edit, asks
whether others have made some, and pauses, as a person does. A bare request, for an address that
leads nowhere, is the least that the server can do: what it takes tells how busy the machine is.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

SCREEN = 40
BARE, THUMBNAIL, EDIT, LOOK = "nothing (404)", "thumbnail", "one POST", "look for edits"
# From the first POST of an edit until it is in, with everything between.
IN = "edit, until in"
# A POST of an edit that somebody else was faster with.
REFUSED = "POST refused"
GOAL = 0.25


@dataclass
class Taken:
    """Seconds by what was asked."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def show(self) -> None:
        bare = np.percentile(self.seconds[BARE], 99)
        print(f"{'':<16} {'n':>7} {'median':>7} {'p99':>7} {'slowest':>7} {'p99 / bare':>10}")
        for name, seconds in self.seconds.items():
            took = np.array(seconds)
            high = np.percentile(took, 99)
            print(
                f"{name:<16} {len(took):>7,} {np.median(took):>7.3f} {high:>7.3f} "
                f"{took.max():>7.3f} {high / bare:>10.1f}"
            )
        slow = [one for one in (THUMBNAIL, IN) if np.percentile(self.seconds[one], 99) > GOAL]
        print(f"p99 above {GOAL:.3f} s: {', '.join(slow) or 'none'}")


class Client:
    """One person. shown: rows with thumbnails. kinds: the groups that rows belong to."""

    def __init__(self, page: str, number: int, shown: list[int], n: int, taken: Taken) -> None:
        self._page, self._shown, self._n, self._taken = urlsplit(page), shown, n, taken
        self._random = random.Random(number)
        self._version, self._tag = 0, ""

    async def connect(self) -> None:
        host, port = self._page.hostname, self._page.port
        self._reader, self._writer = await asyncio.open_connection(host, port)

    async def work(self, every: float, until: float) -> None:
        """Go on until a time of the monotonic clock, a screen and an edit each so many seconds."""
        await asyncio.sleep(self._random.random() * every)
        while time.monotonic() < until:
            start = time.monotonic()
            for _ in range(SCREEN):
                await self.thumbnail()
            await self.edit()
            await self.look()
            for _ in range(4):
                await self._timed(BARE, "GET", "nowhere")
            await asyncio.sleep(max(0.0, start + every - time.monotonic()))

    async def hurry(self, left: list[int]) -> None:
        """Ask without a pause until nothing is left to ask: mostly for thumbnails."""
        while left[0] > 0:
            left[0] -= 1
            if left[0] % 100 == 0:
                await self.edit()
            elif left[0] % 100 == 50:
                await self.look()
            else:
                await self.thumbnail()

    async def thumbnail(self) -> None:
        await self._timed(THUMBNAIL, "GET", f"thumb/{self._random.choice(self._shown)}.jpg")

    async def look(self) -> None:
        await self._timed(LOOK, "GET", "api/state", headers={"If-None-Match": self._tag})
        self._version = int(self._tag.strip('"').rpartition("-")[2])

    async def edit(self) -> None:
        """Accept an image. If somebody was faster, ask what they did, and send it again at once, as
        the page does. What a person waits is the time until the edit is in."""
        row = self._random.randrange(self._n)
        start = time.perf_counter()
        while True:
            payload = {"images": [row]}
            body = {"version": self._version, "kind": "accept", "payload": payload}
            status, answer = await self._timed(EDIT, "POST", "api/edits", body)
            if status == 200:
                self._version = answer["version"]
                self._taken.seconds[IN].append(time.perf_counter() - start)
                return
            await self.look()

    async def _timed(
        self, name: str, method: str, path: str, body: Any = None, headers: Any = None
    ) -> tuple[int, Any]:
        start = time.perf_counter()
        try:
            status, content, tag = await self._ask(method, path, body, headers or {})
        except (asyncio.IncompleteReadError, ConnectionError):  # it was idle for too long
            await self.connect()
            status, content, tag = await self._ask(method, path, body, headers or {})
        kept = REFUSED if status == 409 else name
        self._taken.seconds[kept].append(time.perf_counter() - start)
        self._tag = tag if name == LOOK else self._tag
        assert status in (200, 304, 409) or name == BARE, content[:300]
        return status, json.loads(content) if name == EDIT else None

    async def _ask(
        self, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[int, bytes, str]:
        sent = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {self._page.path}{path} HTTP/1.1", f"Host: {self._page.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(sent)}"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + sent)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        given = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
        length = int(given.get("content-length", 0))
        content = await self._reader.readexactly(length) if length else b""
        return int(head[0].split()[1]), content, given.get("etag", "")


def measure_load(page: str, process: int, shown: list[int], n: int, options: Any) -> None:
    """Print what clients wait, and the memory of the server. page: the address of the run. process:
    the server's. n: images."""
    asyncio.run(_measured(page, process, shown, n, options))


async def _measured(page: str, process: int, shown: list[int], n: int, options: Any) -> None:
    taken = Taken()
    clients = [Client(page, number, shown, n, taken) for number in range(options.clients)]
    for client in clients:
        await client.connect()
    print(f"\n{len(clients)} clients, each {SCREEN} thumbnails and an edit in {options.every:g} s;")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    until = time.monotonic() + options.seconds
    await asyncio.gather(*(client.work(options.every, until) for client in clients))
    taken.show()
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}\n")
    print("requests without a pause, and the memory of the server afterwards in MiB")
    for part in range(options.parts + 1):
        print(f"{part * options.requests // options.parts:>8,} {memory(process):>8.0f}", flush=True)
        left = [options.requests // options.parts]
        if part < options.parts:
            await asyncio.gather(*(client.hurry(left) for client in clients))


def memory(process: int) -> float:
    """The resident memory of a process in MiB, on Linux."""
    status = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 2**10

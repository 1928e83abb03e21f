"""The review in a real browser: its server, a tab, and what a person does in it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from helpers.plates import LONG, start

CHROMIUM = os.environ.get("FLAWSORT_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium: apt install chromium, or name one in the variable FLAWSORT_CHROMIUM",
)

SERVER = """
import sys
from pathlib import Path
from flawsort.review.server import serve

serve([Path(sys.argv[1])], port=int(sys.argv[2]), open_browser=False,
      lots=Path(sys.argv[3]) if sys.argv[3] else None,
      announce=lambda address: print(address, flush=True))
"""
# A busy machine takes more than ten seconds for a page. Nothing passes because of a longer wait.
PATIENCE = 60_000
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)

expect.set_options(timeout=PATIENCE)


@dataclass
class Server:
    """The real server over one run, in a process of its own. lots: a CSV file to filter by."""

    folder: Path
    lots: Path | None = None
    address: str = ""
    token: str = ""
    port: int = 0
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = start(SERVER, self.folder, str(self.port), str(self.lots or ""))
        assert self.process.stdout is not None
        said = self.process.stdout.readline().strip()
        assert said, self.process.communicate()[1]
        self.address, _, self.token = said.partition("?token=")
        self.port = int(self.address.rstrip("/").rpartition(":")[2])

    @property
    def page(self) -> str:
        return f"{self.address}r/{self.folder.name}/"

    def state(self) -> dict[str, Any]:
        with urlopen(Request(f"{self.page}api/state", headers=self._bearer)) as answer:
            return dict(json.load(answer))

    def post(self, what: str, **body: Any) -> None:
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self._bearer}
        urlopen(Request(f"{self.page}api/{what}", content, headers)).close()

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.communicate(timeout=LONG)
            self.process = None


@dataclass
class Desk:
    """A tab with the app in it, and what a person does there."""

    page: Page
    server: Server
    wrong: list[str] = field(default_factory=list)

    def open(self, place: str = "") -> Desk:
        self.page.goto(f"{self.server.page}?token={self.server.token}{place}")
        expect(self.page.locator("html[data-ready]")).to_be_attached()
        return self

    def go(self, title: str) -> None:
        """Open a page by its tab. A browser tells of the new address a moment after the click."""
        tabs = self.page.get_by_role("navigation", name="Pages")
        link = tabs.get_by_role("link", name=title, exact=True)
        link.click()
        expect(link).to_have_attribute("aria-current", "page")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def grid(self) -> Locator:
        return self.page.get_by_role("listbox", name="Images of")

    def shown(self) -> list[int]:
        """The rows in the grid, in their order."""
        return rows_in(self.grid())

    def in_grid(self, *keys: str) -> None:
        self.grid().focus()
        self.press(*keys)

    def item(self, title: str) -> Locator:
        items = self.page.locator(".rail-item")
        return items.filter(has=self.page.locator(".title", has_text=re.compile(f"^{title}$")))

    def titles(self) -> list[str]:
        return self.page.locator("#rail .rail-item:not(.all) .title").all_text_contents()

    def state(self) -> dict[str, Any]:
        """As the server has it."""
        return self.server.state()

    def sizes(self) -> dict[str, int]:
        return {group["title"]: group["n"] for group in self.state()["groups"]}

    def saved(self, sentence: str) -> None:
        """What was done last is saved, and the page says so."""
        expect(self.page.locator("#undo")).to_have_attribute(
            "aria-label", re.compile(f"^Undo: .*{sentence}", re.IGNORECASE)
        )

    def type(self, text: str) -> None:
        """Into the dialog that is open, and Enter."""
        expect(self.page.locator("dialog[open] input[type=text]")).to_be_focused()
        self.page.keyboard.insert_text(text)
        self.press("Enter")
        expect(self.page.locator("dialog[open]:not(.image-view)")).to_have_count(0)

    def rename(self, text: str) -> None:
        self.in_grid("r")
        self.type(text)
        self.saved(re.escape(text))


Open = Callable[..., Desk]


def rows_in(grid: Locator) -> list[int]:
    """The rows of its images at one moment: it may be drawn again between two questions."""
    cells = grid.get_by_role("option")
    rows: list[int] = cells.evaluate_all("(all) => all.map((one) => Number(one.dataset.row))")
    return rows


def soon(page: Page, known: Callable[[], bool]) -> bool:
    """Whether something that no locator tells comes about before the test gives up."""
    end = time.monotonic() + PATIENCE / 1000
    while not known() and time.monotonic() < end:
        page.wait_for_timeout(50)
    return known()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not kill it; `desk` begins each with no edits in force."""
    folder = tmp_path_factory.mktemp("review") / "plates"
    shutil.copytree(saved, folder)
    server = Server(folder)
    server.start()
    yield server
    server.end()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = person_at(browser, "Ada")
    yield context
    context.close()


def person_at(browser: Browser, name: str | None) -> BrowserContext:
    """A browser of its own, where somebody has given a name; None if nobody has been asked yet.
    Tests of one person are the same person to the queue."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(PATIENCE)
    if name is not None:
        known = f"""localStorage.setItem("flawsort.person", {json.dumps(name)});
            sessionStorage.setItem("flawsort.asker", {json.dumps(name)});"""
        context.add_init_script(known)
    return context


@pytest.fixture
def tabs(context: BrowserContext) -> Iterator[Open]:
    """Opens tabs. Whatever goes wrong in one of them, unseen by a person, fails the test."""
    desks: list[Desk] = []

    def open_tab(server: Server, place: str = "") -> Desk:
        desk = Desk(context.new_page(), server)
        desk.page.on("pageerror", lambda error: desk.wrong.append(str(error)))
        desk.page.on("dialog", lambda dialog: (desk.wrong.append(dialog.message), dialog.dismiss()))
        desk.page.on("console", lambda said: _listen(desk, said.type, said.text))
        desks.append(desk)
        return desk.open(place)

    yield open_tab
    assert [desk.wrong for desk in desks] == [[]] * len(desks)


def _listen(desk: Desk, kind: str, text: str) -> None:
    # A browser reports refused edits and dead servers by itself; both are tested for here.
    if kind == "error" and not re.search(r"Failed to load resource.*(409|422|ERR_)", text):
        desk.wrong.append(text)


@pytest.fixture
def desk(server: Server, tabs: Open) -> Desk:
    """The first group of a run as the clustering left it: dents and streaks, 7 each."""
    while (now := server.state())["undo"]:
        server.post("undo", version=now["version"])
    return tabs(server, "#groups/0")


@pytest.fixture
def decided(server: Server, tabs: Open) -> Desk:
    """The same with every image decided, so that an edit moves no image but its own."""
    while (now := server.state())["undo"]:
        server.post("undo", version=now["version"])
    accept(server, range(14))
    return tabs(server, "#groups/0")


def accept(server: Server, rows: Iterable[int]) -> None:
    version, payload = server.state()["version"], {"images": list(rows)}
    server.post("edits", version=version, kind="accept", payload=payload)


def pretend(context: BrowserContext, n: int) -> None:
    """A run of n images, all of which look like the first few."""

    def run(route: Any) -> None:
        body = route.fetch().json()
        for column in ("names", "clusters", "scores", "typicality", "runner_up", "flags"):
            body[column] = [body[column][row % 14] for row in range(n)]
        route.fulfill(json={**body, "n": n})

    def state(route: Any) -> None:
        body = route.fetch().json()
        labels = [body["labels"][row % 14] for row in range(n)]
        sure = base64.b64encode(bytes(50 + row % 50 for row in range(n))).decode()
        route.fulfill(json={**body, "labels": labels, "probability": sure})

    def picture(route: Any) -> None:
        route.fulfill(body=PIXEL, content_type="image/png")

    context.route("**/api/run", run)
    context.route("**/api/state", state)
    context.route(re.compile(r"/(thumb|heat)/\d+\."), picture)

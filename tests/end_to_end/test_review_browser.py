"""The review app in a real browser: every edit, two tabs at once, and a server that dies."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytest.importorskip(
    "playwright", reason="no playwright: pip install playwright, and have a Chromium on PATH"
)

from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from helpers.plates import start

CHROMIUM = os.environ.get("FLAWSORT_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no Chromium: apt install chromium, or name one in the variable FLAWSORT_CHROMIUM",
)

SERVER = """
import sys
from pathlib import Path
from flawsort.review.server import serve

serve([Path(sys.argv[1])], port=int(sys.argv[2]), open_browser=False,
      announce=lambda address: print(address, flush=True))
"""
PATIENCE = 10_000
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> & \"'` \U0001f529 {{ 7 * 7 }}"

expect.set_options(timeout=PATIENCE)


@dataclass
class Server:
    """The real server over one run, in a process of its own."""

    folder: Path
    address: str = ""
    port: int = 0
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = start(SERVER, self.folder, str(self.port))
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address, self.process.communicate()[1]
        self.port = int(self.address.rstrip("/").rpartition(":")[2])

    @property
    def page(self) -> str:
        return f"{self.address}r/{self.folder.name}/"

    def state(self) -> dict[str, Any]:
        with urlopen(f"{self.page}api/state") as answer:
            return dict(json.load(answer))

    def post(self, what: str, **body: Any) -> None:
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        urlopen(Request(f"{self.page}api/{what}", content, headers)).close()

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.communicate(timeout=30)
            self.process = None


@dataclass
class Desk:
    """A tab with the app in it, and what a person does there."""

    page: Page
    server: Server
    wrong: list[str] = field(default_factory=list)

    def open(self, place: str = "") -> Desk:
        self.page.goto(self.server.page + place)
        expect(self.page.locator("html[data-ready]")).to_be_attached()
        return self

    def go(self, title: str) -> None:
        self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=title).click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def grid(self) -> Locator:
        return self.page.get_by_role("listbox", name="Images of")

    def shown(self) -> list[int]:
        """The rows in the grid, in their order."""
        cells = self.grid().get_by_role("option").all()
        return [int(cell.get_attribute("data-row") or -1) for cell in cells]

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
        expect(self.page.locator("dialog[open]")).to_have_count(0)

    def rename(self, text: str) -> None:
        self.in_grid("r")
        self.type(text)
        self.saved(re.escape(text))


Open = Callable[..., Desk]


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
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


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


class TestGroups:
    def test_a_name_is_given_kept_and_taken_away_again(self, desk: Desk) -> None:
        assert desk.titles() == ["Group 0", "Group 1"]
        desk.rename("scratches")
        desk.saved("scratches")
        expect(desk.page.get_by_role("heading", name="scratches")).to_be_visible()
        desk.page.reload()
        expect(desk.item("scratches")).to_be_visible()
        desk.press("Control+z")
        expect(desk.item("Group 0")).to_be_visible()
        desk.press("Control+Shift+z")
        expect(desk.item("scratches")).to_be_visible()

    def test_two_groups_become_one(self, desk: Desk) -> None:
        desk.rename("one kind")
        desk.item("Group 1").click()
        desk.in_grid("g")
        desk.type("one k")
        desk.saved("merge")
        assert desk.sizes() == {"one kind": 14}
        # The group that was looked at is gone: the page shows the one it went into.
        expect(desk.page.get_by_role("heading", name="one kind")).to_be_visible()
        desk.page.locator("#undo").click()
        expect(desk.item("Group 1")).to_be_visible()
        assert desk.sizes() == {"one kind": 7, "Group 1": 7}

    def test_what_is_selected_becomes_a_group(self, desk: Desk) -> None:
        desk.in_grid("Space", "ArrowRight", "ArrowRight", "Space", "s")
        desk.type("odd ones")
        desk.saved("odd ones|split")
        assert desk.sizes() == {"Group 0": 5, "Group 1": 7, "odd ones": 2}
        expect(desk.page.locator(".selection")).to_be_hidden()

    def test_a_group_is_parted_where_the_tree_parts_it(self, desk: Desk) -> None:
        desk.in_grid("s")
        expect(desk.page.locator("dialog .part")).to_have_count(2)
        desk.page.get_by_role("slider", name="Number of parts").press("ArrowRight")
        expect(desk.page.locator("dialog .part")).to_have_count(3)
        desk.page.get_by_role("button", name="Split", exact=True).click()
        expect(desk.page.locator(".rail-item:not(.all)")).to_have_count(4)
        sizes = desk.sizes()
        assert sum(sizes.values()) == 14
        assert sizes["Group 0"] == max(sizes[f"Group {group}"] for group in (0, 2, 3))

    def test_images_are_dragged_to_a_group(self, desk: Desk) -> None:
        cells = desk.grid().get_by_role("option")
        cells.nth(0).click()
        cells.nth(2).click(modifiers=["Shift"])
        cells.nth(1).click(modifiers=["ControlOrMeta"])
        expect(desk.page.locator(".selection strong")).to_have_text("2 images selected")
        moved = [int(cells.nth(at).get_attribute("data-row") or -1) for at in (0, 2)]
        cells.nth(2).drag_to(desk.item("Group 1"))
        desk.saved("2 images")
        state = desk.state()
        assert {state["labels"][row] for row in moved} == {1}
        assert state["confirmed"] == sorted(moved)

    def test_keys_move_the_image_in_focus(self, desk: Desk) -> None:
        desk.in_grid("2")
        desk.saved("Group 1")
        desk.in_grid("n")
        desk.saved("Normal")
        desk.in_grid("u")
        desk.saved("Unsure")
        desk.in_grid("m")
        desk.type("brand new")
        desk.saved("brand new")
        sizes = desk.sizes()
        assert sizes == {"Group 0": 3, "Group 1": 8, "Normal": 1, "Unsure": 1, "brand new": 1}
        assert len(desk.state()["confirmed"]) == 3

    def test_a_key_moves_nothing_that_is_not_in_focus(self, desk: Desk) -> None:
        desk.page.locator("#help").focus()
        desk.press("n")
        expect(desk.page.locator("#toast")).to_contain_text("Select an image first")
        assert desk.sizes() == {"Group 0": 7, "Group 1": 7}

    def test_a_group_is_accepted_and_given_a_role(self, desk: Desk) -> None:
        desk.in_grid("a")
        desk.saved("accept")
        expect(desk.item("Group 0")).to_contain_text("7 confirmed")
        assert len(desk.state()["confirmed"]) == 7
        desk.page.get_by_label("Role of the group").select_option("normal")
        desk.saved("normal")
        assert [group["role"] for group in desk.state()["groups"]] == ["normal", "flaw"]

    def test_an_image_is_opened_moved_and_given_several_kinds(self, desk: Desk) -> None:
        desk.in_grid("Enter")
        box = desk.page.locator("dialog.image-view")
        expect(box).to_contain_text("1 of 7")
        expect(box.locator(".alike .thumb")).to_have_count(12)
        desk.press("ArrowRight")
        expect(box).to_contain_text("2 of 7")
        desk.press("k")
        desk.page.locator("dialog .option", has_text="Group 1").click()
        desk.page.get_by_role("button", name="Save").click()
        expect(box.locator(".facts")).to_contain_text("Also shows")
        desk.press("n")
        expect(box.locator(".facts")).to_contain_text("Normal")
        desk.press("Escape")
        expect(box).to_have_count(0)
        state = desk.state()
        assert list(state["kinds"].values()) == [[2, 1]]

    def test_orders_and_search(self, desk: Desk) -> None:
        run = desk.page.evaluate("fetch('api/run').then((r) => r.json())")
        labels = desk.state()["labels"]
        rows = [row for row, label in enumerate(labels) if label == 0]
        assert desk.shown() == sorted(rows, key=lambda row: -run["typicality"][row])
        desk.page.get_by_label("Order of the images").select_option("odd")
        assert desk.shown() == sorted(rows, key=lambda row: -run["scores"][row])
        desk.page.get_by_role("searchbox").fill(run["names"][rows[3]])
        assert desk.shown() == [rows[3]]


class TestOtherPages:
    def test_another_number_of_groups_is_seen_first_and_then_made(self, desk: Desk) -> None:
        desk.go("Tree")
        slider = desk.page.get_by_role("slider", name="Number of groups")
        slider.press("ArrowRight")
        slider.press("ArrowRight")
        expect(desk.page.locator(".tree-page .card")).to_have_count(4)
        assert desk.state()["k"] == 2
        slider.press("Enter")
        desk.saved("4")
        assert desk.state()["k"] == 4
        assert len(desk.sizes()) == 4
        desk.press("Control+z")
        expect(desk.page.locator(".tree-page .card")).to_have_count(2)

    def test_a_lasso_makes_a_group(self, desk: Desk) -> None:
        desk.go("Map")
        box = desk.page.locator("canvas.map").bounding_box()
        assert box is not None
        mouse = desk.page.mouse
        left, top = box["x"] + 3, box["y"] + 3
        right, bottom = box["x"] + box["width"] - 3, box["y"] + box["height"] - 3
        mouse.move(left, top)
        mouse.down()
        for x, y in [(right, top), (right, bottom), (left, bottom)]:
            mouse.move(x, y, steps=4)
        mouse.up()
        expect(desk.page.locator(".selection strong")).to_have_text("14 images selected")
        # Only what lies to the left of the middle: some of them, not all.
        middle = (left + right) / 2
        mouse.move(left, top)
        mouse.down()
        for x, y in [(middle, top), (middle, bottom), (left, bottom)]:
            mouse.move(x, y, steps=4)
        mouse.up()
        some = desk.page.locator(".selection strong")
        expect(some).not_to_have_text("14 images selected")
        number = int((some.text_content() or "").split()[0])
        assert 0 < number < 14
        desk.page.get_by_role("button", name="New group").click()
        desk.type("on the left")
        expect(desk.item("on the left")).to_be_visible()
        assert desk.sizes()["on the left"] == number

    def test_the_map_works_without_a_mouse(self, desk: Desk) -> None:
        desk.go("Map")
        desk.page.locator("canvas.map").focus()
        desk.press(
            "ArrowRight", "Space", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Enter"
        )
        expect(desk.page.locator("dialog.image-view")).to_be_visible()
        desk.press("Escape")
        expect(desk.page.locator(".selection strong")).to_have_text("1 image selected")

    def test_the_queue_is_answered_by_keys_alone(self, desk: Desk) -> None:
        desk.press("Alt+4")
        head = desk.page.locator(".question-head")
        expect(head).to_contain_text("Group")
        first = head.locator("h1").text_content() or ""
        desk.press("n")
        desk.type("dents")
        expect(head).to_contain_text("dents")
        desk.press("Enter")
        expect(head.locator("h1")).not_to_contain_text("dents")
        desk.press("0")
        expect(head.locator("h1")).to_have_text("Nothing left to ask")
        state = desk.state()
        assert len(state["confirmed"]) == 14
        roles = {group["title"]: group["role"] for group in state["groups"]}
        assert roles == {"dents": "flaw", "Normal": "normal"}
        assert first not in roles
        expect(desk.page.locator(".tiles")).to_contain_text("14 of 14")
        expect(desk.page.locator(".tiles")).to_contain_text(str(state["spent"]))

    def test_pages_without_content_say_so(self, desk: Desk) -> None:
        desk.go("New images")
        expect(desk.page.get_by_text("No new images")).to_be_visible()
        desk.go("Export")
        expect(desk.page.get_by_text("14 images in 2 groups")).to_be_visible()

    def test_new_images_of_one_group_are_picked_out(self, desk: Desk) -> None:
        batch = {
            "name": "monday", "n": 3, "at": "", "by": "", "groups": [0, 1, -1], "rises": [],
            "table": {"name": ["a.png", "b.png", "c.png"], "confidence": [0.9, 0.8, 0.1]},
            "thumbnails": [False] * 3, "proposals": [],
            "counts": {"periods": ["mon"], "groups": [-1, 0, 1], "table": [[1, 1, 1]]},
        }  # fmt: skip
        listed = [{"name": "monday", "n": 3, "at": "", "reason": ""}]
        desk.page.route("**/api/assigned", lambda route: route.fulfill(json=listed))
        desk.page.route("**/api/assigned/monday", lambda route: route.fulfill(json=batch))
        desk.go("New images")
        thumbs = desk.page.locator(".new-page .thumb")
        expect(thumbs).to_have_count(3)
        desk.page.locator(".new-page").get_by_role("button", name="Group 1").click()
        expect(thumbs).to_have_count(1)
        desk.press("r")  # a group that is picked out here is not one to rename
        expect(desk.page.locator("#toast")).to_contain_text("Choose a group in the list first")

    def test_the_keys_are_all_listed(self, desk: Desk) -> None:
        desk.press("?")
        expect(desk.page.get_by_role("dialog", name="Keys")).to_contain_text("Ctrl + Shift + Z")
        desk.press("Escape")

    def test_four_hundred_pixels_are_enough(self, desk: Desk) -> None:
        desk.page.set_viewport_size({"width": 400, "height": 800})
        for title in ("Groups", "Map", "Tree", "Queue", "New images", "Export"):
            desk.go(title)
            wide = desk.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 400, title
        desk.go("Groups")
        desk.page.locator("#drawer-open").click()
        desk.item("Group 1").click()
        expect(desk.page.get_by_role("heading", name="Group 1")).to_be_visible()
        expect(desk.page.locator("#rail")).not_to_be_in_viewport()


class TestManyImages:
    def test_only_those_in_view_exist(
        self, server: Server, context: BrowserContext, tabs: Open
    ) -> None:
        n = 20_000
        _pretend(context, n)
        desk = tabs(server, "#groups/all")
        cells = desk.page.locator(".grid .cell")
        expect(cells.first).to_be_visible()
        assert cells.count() < 300
        desk.in_grid("End")
        expect(desk.page.locator(f'.cell[aria-posinset="{n}"]')).to_be_in_viewport()
        assert cells.count() < 300
        took = desk.page.evaluate(SCROLL)
        assert took < 100, "a frame of scrolling took too long"


SCROLL = """async () => {
  const grid = document.querySelector(".groups-page .grid");
  const gaps = [];
  let last = performance.now();
  for (let i = 0; i < 40; i++) {
    grid.scrollTop = 60000 + i * 240;
    await new Promise(requestAnimationFrame);
    gaps.push(performance.now() - last);
    last = performance.now();
  }
  return gaps.sort((a, b) => a - b)[36];
}"""


def _pretend(context: BrowserContext, n: int) -> None:
    """A run of n images, all of which look like the first few."""

    def run(route: Any) -> None:
        body = route.fetch().json()
        for column in ("names", "clusters", "scores", "typicality", "runner_up", "flags"):
            body[column] = [body[column][row % 14] for row in range(n)]
        route.fulfill(json={**body, "n": n})

    def state(route: Any) -> None:
        body = route.fetch().json()
        route.fulfill(json={**body, "labels": [body["labels"][row % 14] for row in range(n)]})

    def picture(route: Any) -> None:
        route.fulfill(body=PIXEL, content_type="image/png")

    context.route("**/api/run", run)
    context.route("**/api/state", state)
    context.route(re.compile(r"/(thumb|heat)/\d+\."), picture)


class TestOthers:
    def test_two_tabs_cannot_overwrite_each_other(
        self, desk: Desk, server: Server, tabs: Open
    ) -> None:
        other = tabs(server, "#groups/0")
        other.in_grid("Space")
        desk.rename("first")
        desk.saved("first")
        other.press("2")
        banner = other.page.get_by_role("alert")
        expect(banner).to_contain_text("Somebody else changed")
        expect(banner).to_contain_text("nothing was overwritten")
        # It shows what the other did, keeps what was selected, and does nothing by itself.
        expect(other.item("first")).to_be_visible()
        expect(other.page.locator(".selection strong")).to_have_text("1 image selected")
        assert desk.sizes() == {"first": 7, "Group 1": 7}
        other.page.get_by_role("button", name="Discard it").click()
        expect(banner).to_be_hidden()
        expect(other.page.locator(".selection strong")).to_have_text("1 image selected")
        desk.rename("first again")
        other.press("2")
        other.page.get_by_role("button", name="Apply it now").click()
        other.saved("Group 1")
        expect(banner).to_be_hidden()
        assert desk.sizes() == {"first again": 6, "Group 1": 8}

    def test_an_undo_never_hits_what_somebody_else_did(
        self, desk: Desk, server: Server, tabs: Open
    ) -> None:
        desk.rename("mine")
        other = tabs(server, "#groups/1")
        other.rename("theirs")
        desk.press("Control+z")
        expect(desk.page.locator("#toast")).to_contain_text("Nothing was undone")
        expect(desk.item("theirs")).to_be_visible()
        expect(desk.page.get_by_role("alert")).to_be_hidden()
        assert desk.sizes() == {"mine": 7, "theirs": 7}

    def test_nothing_is_lost_when_the_server_is_killed(
        self, saved: Path, tmp_path: Path, tabs: Open
    ) -> None:
        shutil.copytree(saved, tmp_path / "plates")
        server = Server(tmp_path / "plates")
        server.start()
        try:
            desk = tabs(server, "#groups/0")
            desk.rename("kept")
            desk.saved("kept")
            desk.in_grid("2")
            desk.saved("Group 1")
            # In the middle of an edit: it has been sent, and nobody will ever take it.
            assert server.process is not None
            server.process.send_signal(signal.SIGSTOP)
            desk.in_grid("n")
            desk.page.wait_for_timeout(200)
            server.end(signal.SIGKILL)
            banner = desk.page.get_by_role("alert")
            expect(banner).to_contain_text("The server does not answer")
            expect(banner).to_contain_text("move 1 image to Normal")
            desk.in_grid("u")  # refused meanwhile, and said
            expect(desk.page.locator("#toast")).to_contain_text("Not saved")
            server.start()
            expect(banner).to_contain_text("The server is back")
            assert desk.sizes() == {"kept": 6, "Group 1": 8}
            desk.page.get_by_role("button", name="Send again").click()
            desk.saved("Normal")
            desk.page.reload()
            expect(desk.item("kept")).to_be_visible()
            assert desk.sizes() == {"kept": 5, "Group 1": 8, "Normal": 1}
        finally:
            server.end()

    def test_an_edit_whose_answer_was_lost_is_made_once(self, desk: Desk) -> None:
        def cut(route: Any) -> None:
            route.fetch()
            route.abort()

        desk.page.route("**/api/edits", cut, times=1)
        desk.in_grid("2")
        banner = desk.page.get_by_role("alert")
        expect(banner).to_contain_text("The last change is “Move 1 image to Group 1”")
        desk.page.get_by_role("button", name="Discard it").click()
        expect(banner).to_be_hidden()
        assert desk.sizes() == {"Group 0": 6, "Group 1": 8}


class TestNames:
    def test_a_hostile_name_is_text_everywhere(self, desk: Desk) -> None:
        desk.rename(HOSTILE)
        heading = desk.page.locator(".group-head h1")
        expect(heading).to_have_text(HOSTILE)
        assert HOSTILE in desk.titles()
        for title in ("Map", "Tree", "Queue", "New images", "Export", "Groups"):
            desk.go(title)
        desk.in_grid("Space", "m")
        expect(desk.page.locator("dialog .option", has_text="onerror")).to_be_visible()
        desk.press("Escape")
        assert (
            desk.page.evaluate("document.querySelectorAll('img[onerror], body script').length") == 0
        )

    def test_a_name_that_is_refused_says_why(self, desk: Desk) -> None:
        desk.in_grid("r")
        desk.type("turned \u202e round")
        expect(desk.page.locator("#toast")).to_contain_text("Not saved")
        assert desk.sizes() == {"Group 0": 7, "Group 1": 7}

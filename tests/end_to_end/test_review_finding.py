"""Finding images in the review, in a real browser: filters, orders, addresses, the lasso."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "playwright", reason="no playwright: pip install playwright, and have a Chromium on PATH"
)

from playwright.sync_api import BrowserContext, Locator, expect

from flawsort import Run, open_run
from helpers.review_desk import NEEDS_CHROMIUM, Desk, Open, Server, accept, pretend

pytestmark = NEEDS_CHROMIUM

N = 14


@pytest.fixture(scope="module")
def run(saved: Path) -> Run:
    return open_run(saved)


@pytest.fixture
def whole(desk: Desk) -> Desk:
    """All images of the run as the clustering left it."""
    desk.page.locator("#rail .all").click()
    return desk


def open_filters(desk: Desk) -> Locator:
    desk.press("/")
    return desk.page.get_by_role("dialog", name="Filters")


def chips(desk: Desk) -> list[str]:
    return desk.page.locator(".page:visible .chip-words").all_text_contents()


def found(desk: Desk) -> Locator:
    return desk.page.locator(".page:visible .found")


def filters_of(desk: Desk) -> str:
    """The part of the address after the page, once it is there."""
    address: str = after(desk, 400, "location.href")
    return address.partition("?")[2]


def after(desk: Desk, milliseconds: int, what: str) -> Any:
    """The value of an expression a moment later by the clock of the page, in which whatever the
    page began before with a shorter delay comes first, however slow it is."""
    moment = f"new Promise((done) => setTimeout(done, {milliseconds}))"
    frame = "new Promise(requestAnimationFrame)"
    return desk.page.evaluate(f"async () => {{ await {moment}; await {frame}; return {what}; }}")


def scores_above(run: Run, least: float) -> list[int]:
    return [row for row in range(N) if run.table["score"][row] >= least]


def middle_score(run: Run) -> float:
    """Between the seventh and the eighth score, with two digits."""
    return float(np.round(np.median(run.table["score"]), 2))


class TestFilters:
    def test_a_filter_is_a_chip_a_count_and_an_address(self, whole: Desk, run: Run) -> None:
        least = middle_score(run)
        rows = scores_above(run, least)
        assert 0 < len(rows) < N
        box = open_filters(whole)
        expect(box.get_by_role("searchbox", name="File name")).to_be_focused()
        box.get_by_role("spinbutton", name="Least anomaly score").fill(str(least))
        whole.press("Enter")
        expect(box.get_by_role("button", name=f"Show {len(rows)} image")).to_be_visible()
        box.get_by_role("button", name="Show").click()
        expect(found(whole)).to_have_text(f"{len(rows)} of 14 images")
        assert sorted(whole.shown()) == rows
        assert len(chips(whole)) == 1
        assert chips(whole)[0].startswith("Anomaly score: at least")
        assert filters_of(whole) == f"score={least}.."
        # A reload and a link show the same.
        whole.page.reload()
        expect(found(whole)).to_have_text(f"{len(rows)} of 14 images")
        assert sorted(whole.shown()) == rows
        whole.page.get_by_role("button", name="Remove the filter Anomaly score").click()
        expect(found(whole)).to_be_hidden()
        assert len(whole.shown()) == N
        assert filters_of(whole) == ""

    def test_filters_combine_and_the_groups_say_how_many_they_have(
        self, whole: Desk, server: Server, run: Run, tabs: Open
    ) -> None:
        accept(server, [0, 1, 7])
        least = middle_score(run)
        wanted = [row for row in scores_above(run, least) if row in (0, 1, 7)]
        labels = server.state()["labels"]
        desk = tabs(server, f"#groups/all?state=decided&score={least}..")
        assert sorted(desk.shown()) == wanted
        expect(found(desk)).to_have_text(f"{len(wanted)} of 14 images")
        for group in (0, 1):
            n = sum(labels[row] == group for row in wanted)
            expect(desk.item(f"Group {group}").locator(".number")).to_have_text(f"{n} of 7")
        # Within one group they hold as well.
        desk.item("Group 0").click()
        assert sorted(desk.shown()) == [row for row in wanted if labels[row] == 0]
        desk.page.get_by_role("button", name="Clear all").click()
        expect(desk.grid().get_by_role("option")).to_have_count(7)

    def test_every_choice_says_how_many_images_it_has(self, whole: Desk, run: Run) -> None:
        flags = run.table["flags"]
        box = open_filters(whole)
        box.get_by_role("checkbox", name="No flag").check()
        plain = [row for row in range(N) if not flags[row]]
        labels = whole.state()["labels"]
        for group in (0, 1):
            n = sum(labels[row] == group for row in plain)
            choice = box.locator(".choice", has_text=f"Group {group}").first
            expect(choice.locator(".number")).to_have_text(str(n))
        box.get_by_role("checkbox", name="Group 1").first.check()
        done = sum(labels[row] == 1 for row in plain)
        expect(box.locator(".box-foot .primary")).to_have_text(
            f"Show {done} image{'' if done == 1 else 's'}" if done else "No image is left"
        )
        # One more choice of the same column adds images, and its number does not change.
        choice = box.locator(".choice", has_text="Group 0").first
        n = sum(labels[row] == 0 for row in plain)
        expect(choice.locator(".number")).to_have_text(str(n))

    def test_what_the_address_does_not_say_right_is_left_out(
        self, desk: Desk, server: Server, tabs: Open
    ) -> None:
        other = tabs(server, "#groups/all?score=much&colour=red&state=decided&sort=weight")
        expect(other.page.locator("#toast")).to_contain_text("score=much, colour=red, sort=weight")
        assert chips(other) == ["Decided or not: Decided"]
        assert filters_of(other) == "state=decided"
        expect(other.page.get_by_text("No image here meets these filters")).to_be_visible()
        other.page.get_by_role("button", name="Clear the filters").click()
        assert len(other.shown()) == N

    def test_names_of_hostile_choices_are_text(self, server: Server, tabs: Open) -> None:
        hostile = "%3Cimg%20src=x%20onerror=alert(1)%3E"
        desk = tabs(server, f"#groups/all?flags={hostile}&name={hostile}")
        assert len(chips(desk)) == 2
        assert desk.page.locator(".chips img").count() == 0

    def test_the_slider_and_the_keyboard_alone(self, whole: Desk, run: Run) -> None:
        box = open_filters(whole)
        slider = box.get_by_role("slider", name="Size of the flaw, from")
        slider.focus()
        whole.press("ArrowRight")
        expect(box.locator(".box-foot .primary")).not_to_have_text("Show 14 images")
        whole.press("Escape")
        expect(box).to_have_count(0)
        # The focus is back where one came from, and a chip is removed by a key.
        expect(whole.page.get_by_role("button", name="Filters…").first).to_be_focused()
        assert len(chips(whole)) == 1
        whole.page.locator(".page:visible .chip-words").focus()
        whole.press("Delete")
        assert chips(whole) == []
        expect(whole.page.get_by_role("button", name="Filters…").first).to_be_focused()

    def test_back_and_other_pages_keep_what_was_looked_for(self, whole: Desk) -> None:
        search = whole.page.get_by_role("searchbox", name="Search by file name")
        search.fill("dent")
        expect(found(whole)).to_have_text("7 of 14 images")
        whole.go("Map")
        expect(found(whole)).to_have_text("7 of 14 images")
        assert filters_of(whole) == "name=dent"
        whole.go("Tree")
        assert filters_of(whole) == ""
        whole.go("Groups")
        expect(found(whole)).to_have_text("7 of 14 images")
        search.fill("streak")
        assert filters_of(whole) == "name=streak"
        whole.page.go_back()
        whole.page.go_back()
        expect(whole.page.locator(".map-page")).to_be_visible()
        expect(found(whole)).to_have_text("7 of 14 images")
        assert chips(whole) == ["File name: “dent”"]

    def test_what_a_filter_hides_is_not_acted_on(self, whole: Desk) -> None:
        whole.in_grid("Control+a")
        expect(whole.page.locator(".selection strong")).to_have_text("14 images selected")
        whole.page.get_by_role("searchbox", name="Search by file name").fill("dent0")
        expect(found(whole)).to_have_text("7 of 14 images")
        expect(whole.page.locator(".selection strong")).to_have_text("7 images selected")
        whole.in_grid("a")
        whole.saved("accept 7 images")
        assert whole.state()["decided"] == [0, 1, 2, 3, 4, 5, 6]

    def test_four_hundred_pixels_are_enough(self, desk: Desk) -> None:
        desk.page.set_viewport_size({"width": 400, "height": 800})
        desk.page.locator(".page:visible").get_by_role("button", name="Filters…").click()
        box = desk.page.get_by_role("dialog", name="Filters")
        box.get_by_role("checkbox", name="As clustered").check()
        box.get_by_role("button", name="Show 7 images").click()
        expect(found(desk)).to_be_in_viewport()
        for place in ("#groups/all?flags=none&flags=borderline&score=0..99&name=e", "#map?name=e"):
            desk.open(place)
            assert desk.page.evaluate("document.documentElement.scrollWidth") <= 400


class TestFacts:
    """Folders, lots, days and sizes."""

    @pytest.fixture
    def shop(self, saved: Path, run: Run, tmp_path: Path, tabs: Open) -> Iterator[Desk]:
        """Images in folders and in lots of five."""
        shutil.copytree(saved, tmp_path / "plates")
        rows = [f"{name},lot {8 + row // 5}" for row, name in enumerate(run.names)]
        (tmp_path / "lots.csv").write_text("\n".join(["name,lot", *rows]), encoding="utf-8")
        server = Server(tmp_path / "plates", tmp_path / "lots.csv")
        server.start()
        try:
            yield tabs(server, "#groups/all")
        finally:
            server.end()

    def test_by_lot(self, shop: Desk) -> None:
        box = open_filters(shop)
        box.get_by_text("Lot", exact=True).click()
        choices = box.locator("details", has_text="Lot").last.locator(".choice")
        expect(choices).to_have_text(["lot 85", "lot 95", "lot 104"])
        box.get_by_role("checkbox", name="lot 10").check()
        box.get_by_role("button", name="Show 4 images").click()
        assert sorted(shop.shown()) == [10, 11, 12, 13]
        assert filters_of(shop) == "lot=lot+10"
        shop.page.reload()
        expect(found(shop)).to_have_text("4 of 14 images")
        shop.page.get_by_role("button", name="Clear all").click()
        shop.page.get_by_label("Order of the images").select_option("lot")
        lots = [row // 5 for row in shop.shown()]
        assert lots == sorted(lots)

    def test_by_day_and_by_the_size_of_the_file(self, shop: Desk) -> None:
        box = open_filters(shop)
        box.get_by_text("Day", exact=True).click()
        choices = box.locator(".filter-field", has_text="Of the last change").locator(".choice")
        expect(choices.first).to_be_visible()
        assert sum(int(n) for n in choices.locator(".number").all_text_contents()) == N
        box.get_by_text("Size of the image").click()
        box.get_by_role("spinbutton", name="Least size of the image").fill("65")
        shop.press("Enter")
        expect(box.locator(".box-foot .primary")).to_have_text("No image is left")
        box.get_by_role("spinbutton", name="Least size of the image").fill("64")
        shop.press("Enter")
        expect(box.locator(".box-foot .primary")).to_have_text("Show 14 images")

    def test_a_link_to_lots_that_the_server_does_not_have(
        self, desk: Desk, server: Server, tabs: Open
    ) -> None:
        other = tabs(server, "#groups/all?lot=8")
        expect(other.page.locator("#toast")).to_contain_text("Start the review with --lots")
        expect(other.grid().get_by_role("option")).to_have_count(N)
        assert chips(other) == []

    def test_by_folder_with_the_folders_below(
        self, desk: Desk, server: Server, context: BrowserContext, tabs: Open
    ) -> None:
        def moved(route: Any) -> None:
            body = route.fetch().json()
            at = ["", "a/", "a/b/", "a/b/", "c/"]
            names = [f"{at[row % 5]}{name}" for row, name in enumerate(body["names"])]
            route.fulfill(json={**body, "names": names})

        context.route("**/api/run", moved)
        other = tabs(server, "#groups/all?folder=a")
        assert sorted(other.shown()) == [row for row in range(N) if row % 5 in (1, 2, 3)]
        box = open_filters(other)
        names = box.locator("details", has_text="Folder").last.locator(".choice .clip")
        expect(names).to_have_text(["(no folder)", "a", "a/b", "c"])
        other.press("Escape")
        other.page.get_by_label("Order of the images").select_option("folder")
        below = [row % 5 for row in other.shown()]
        assert below == sorted(below, key=[9, 0, 1, 1, 2].__getitem__)


class TestOrders:
    def test_by_any_column(self, whole: Desk, run: Run) -> None:
        table, region_rows = run.table, run.region_rows
        cells = np.zeros(N)
        for region in range(len(run.outlines)):
            cells[region_rows[region]] += len(run.outlines[region])
        labels = whole.state()["labels"]
        typical = [-value for value in table["typicality"]]
        border = ["borderline" in flags for flags in table["flags"]]
        keys: dict[str, Any] = {
            "-typical": lambda row: (typical[row], row),
            "typical": lambda row: (-typical[row], typical[row], row),
            "name": lambda row: row,
            "-name": lambda row: -row,
            "score": lambda row: (table["score"][row], row),
            "-score": lambda row: (-table["score"][row], row),
            "-area": lambda row: (-cells[row], typical[row], row),
            "area": lambda row: (cells[row], typical[row], row),
            "group": lambda row: (labels[row], typical[row], row),
            "flags": lambda row: (not border[row], -typical[row], typical[row], row),
        }
        orders = whole.page.get_by_label("Order of the images")
        for text, key in keys.items():
            orders.select_option(text)
            assert whole.shown() == sorted(range(N), key=key), text
            assert filters_of(whole) == ("" if text == "-typical" else f"sort={text}")

    def test_decided_ones_last(self, desk: Desk, server: Server, tabs: Open) -> None:
        accept(server, [2, 9])
        other = tabs(server, "#groups/all?sort=state")
        assert sorted(other.shown()[-2:]) == [2, 9]
        other.page.get_by_label("Order of the images").select_option("-state")
        assert sorted(other.shown()[:2]) == [2, 9]


def draw_lasso(desk: Desk, share: float = 1.0, *, more: bool = False) -> None:
    """Around the left part of the map."""
    box = desk.page.locator("canvas.map").bounding_box()
    assert box is not None
    mouse = desk.page.mouse
    left, top = box["x"] + 3, box["y"] + 3
    right, bottom = box["x"] + share * box["width"] - 3, box["y"] + box["height"] - 3
    if more:
        desk.page.keyboard.down("Shift")
    mouse.move(left, top)
    mouse.down()
    for x, y in [(right, top), (right, bottom), (left, bottom)]:
        mouse.move(x, y, steps=4)
    mouse.up()
    if more:
        desk.page.keyboard.up("Shift")


def picture_of(desk: Desk) -> str:
    drawn: str = after(desk, 150, "document.querySelector('canvas.map').toDataURL()")
    return drawn


class TestMap:
    def caught(self, desk: Desk) -> Locator:
        return desk.page.get_by_role("listbox", name="Images caught on the map")

    def test_what_a_lasso_caught_is_beside_the_map(self, decided: Desk) -> None:
        desk = decided
        desk.go("Map")
        expect(desk.page.get_by_text("Draw around images on the map")).to_be_visible()
        draw_lasso(desk)
        cells = self.caught(desk).get_by_role("option")
        expect(cells).to_have_count(N)
        panel = desk.page.get_by_role("complementary", name="Caught images")
        expect(panel).to_contain_text("14 images caught")
        expect(panel).to_contain_text("Group 0 7")
        draw_lasso(desk, 0.5)
        expect(cells).not_to_have_count(N)
        some = cells.count()
        assert 0 < some < N
        expect(desk.page.locator(".selection strong")).to_have_text(f"{some} images selected")
        draw_lasso(desk, more=True)
        expect(cells).to_have_count(N)
        # Select one in the grid: it lights up on the map, and is moved like any other.
        desk.press("Escape")
        before = picture_of(desk)
        cells.nth(2).click()
        lit = picture_of(desk)
        assert lit != before
        row = int(cells.nth(2).get_attribute("data-row") or -1)
        to = 1 - desk.state()["labels"][row]
        desk.press(str(to + 1))
        desk.saved(f"Group {to}")
        assert desk.state()["labels"][row] == to
        # It stays in sight, and can be taken back.
        expect(cells).to_have_count(N)
        desk.press("Control+z")
        expect(panel).to_contain_text("Group 0 7")
        panel.get_by_role("button", name="Close").click()
        expect(cells).to_have_count(0)

    def test_the_focus_in_the_grid_is_marked_on_the_map(self, desk: Desk) -> None:
        desk.go("Map")
        draw_lasso(desk)
        desk.press("Escape")
        self.caught(desk).focus()
        first = picture_of(desk)
        desk.press("ArrowRight")
        assert picture_of(desk) != first

    def test_accept_and_split_off(self, desk: Desk) -> None:
        desk.go("Map")
        draw_lasso(desk)
        self.caught(desk).focus()
        desk.press("Escape", "Home", "a")
        desk.saved("accept 1 image")
        desk.press("Control+z", "Home", "Space", "ArrowRight", "Space", "s")
        desk.type("odd")
        desk.saved("odd")
        assert len(desk.state()["decided"]) == 2

    def test_only_what_is_shown_is_caught(self, desk: Desk) -> None:
        desk.go("Map")
        desk.page.locator(".map-page").get_by_role("searchbox").fill("dent0")
        expect(found(desk)).to_have_text("7 of 14 images")
        draw_lasso(desk)
        expect(desk.page.locator(".selection strong")).to_have_text("7 images selected")
        desk.item("Group 1").click()
        draw_lasso(desk)
        labels = desk.state()["labels"]
        rows = [row for row in range(7) if labels[row] == 1]
        expect(self.caught(desk).get_by_role("option")).to_have_count(len(rows))
        # The group is in the address as well.
        expect(desk.page).to_have_url(re.compile(r"#map/1\?name=dent0"))
        desk.page.reload()
        expect(desk.item("Group 1")).to_have_attribute("aria-current", "true")

    def test_without_a_mouse(self, desk: Desk) -> None:
        desk.go("Map")
        desk.press("c")
        expect(desk.page.locator("#toast")).to_contain_text("Go to an image on the map first")
        desk.page.locator("canvas.map").focus()
        desk.press("ArrowRight", "c")
        cells = self.caught(desk).get_by_role("option")
        expect(cells.first).to_be_visible()
        few = cells.count()
        for _ in range(12):
            desk.press("c")
        expect(cells).to_have_count(N)
        assert few < N
        desk.press("a")
        desk.saved("accept 14 images")

    def test_on_a_phone_the_grid_is_below_the_map(self, desk: Desk) -> None:
        desk.page.set_viewport_size({"width": 400, "height": 800})
        desk.go("Map")
        expect(desk.page.get_by_role("complementary", name="Caught images")).to_be_hidden()
        draw_lasso(desk)
        expect(self.caught(desk).get_by_role("option").first).to_be_in_viewport()
        map_box = desk.page.locator("canvas.map").bounding_box()
        grid_box = self.caught(desk).bounding_box()
        assert map_box is not None
        assert grid_box is not None
        assert map_box["y"] + map_box["height"] <= grid_box["y"]
        assert desk.page.evaluate("document.documentElement.scrollWidth") <= 400


class TestManyImages:
    def test_filters_of_twenty_thousand(
        self, server: Server, context: BrowserContext, tabs: Open
    ) -> None:
        asked = []
        for n in (4_000, 20_000):
            pretend(context, n)
            desk = tabs(server, "#groups/all")
            asked.append(desk.page.evaluate(FILTERS))
        # How often an image's score or name is read: a count, which other work does not change. For
        # five times as many images five times as often, with an order a little more.
        few, many = asked
        for name in ("score", "name", "order"):
            assert few[name]["found"] >= 1_000
            assert few[name]["asked"] >= 1_000
            assert many[name]["asked"] <= 7 * few[name]["asked"], (name, asked)
            assert many[name]["cells"] < 1_000  # those that are seen, and not all
        desk.page.keyboard.press("/")
        box = desk.page.get_by_role("dialog", name="Filters")
        expect(box.locator(".box-foot .primary")).to_have_text(re.compile("^Show [0-9,]+ images$"))


FILTERS = """async () => {
  const { query } = await import("/static/query.js");
  const { model } = await import("/static/model.js");
  const seen = {};
  const scores = model.run.scores, names = model.run.names;
  let asked = 0;
  const counted = (list) => new Proxy(list, { get: (own, key) => {
    if (typeof key === "string" && key >= "0" && key < ":") asked++;
    return Reflect.get(own, key);
  } });
  Object.assign(model.run, { scores: counted(scores), names: counted(names) });
  const look = async (name, action) => {
    asked = 0;
    action();
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const all = model.state.labels.map((_, row) => row);
    const found = query.rows(all).length;
    seen[name] = { asked, found, cells: document.querySelectorAll(".groups-page .cell").length };
  };
  await look("score", () => query.set("score", [0, null]));
  await look("name", () => query.set("name", "1"));
  await look("order", () => query.order("-score"));
  return seen;
}"""

"""Groups of the review in a real browser: two side by side, names, numbers, orders, accepting."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "playwright", reason="no playwright: pip install playwright, and have a Chromium on PATH"
)

from playwright.sync_api import Locator, expect

from flawsort import Run, open_run
from flawsort.labels.edit_checks import Edit
from flawsort.labels.store import EditStore
from flawsort.runs.folder import EDITS
from helpers.review_desk import NEEDS_CHROMIUM, Desk, Open, Server, accept, rows_in

pytestmark = NEEDS_CHROMIUM

N = 14


@pytest.fixture(scope="module")
def run(saved: Path) -> Run:
    return open_run(saved)


def edit(server: Server, kind: str, **payload: object) -> None:
    server.post("edits", version=server.state()["version"], kind=kind, payload=payload)


def cut(desk: Desk, k: int, place: str) -> None:
    """Cut the tree anew, and open a page of it."""
    edit(desk.server, "cut", k=k)
    accept(desk.server, range(N))  # so that a name moves no image
    desk.page.reload()
    desk.open(place)


def rows_of(desk: Desk, group: int) -> list[int]:
    return [row for row, label in enumerate(desk.state()["labels"]) if label == group]


def dialog(desk: Desk) -> Locator:
    return desk.page.locator("dialog[open]")


def test_the_next_nearest_group_is_one_that_is_there(desk: Desk) -> None:
    """Clusters are not the groups any more once their images are in groups that people made."""
    for cluster, name in ((0, "dent"), (1, "streak")):
        edit(desk.server, "move", images=rows_of(desk, cluster), to="new", name=name)
    desk.page.reload()
    desk.item("dent").click()
    desk.in_grid("Enter")
    facts = desk.page.locator("dialog.image-view .facts > div", has_text="Next nearest group")
    expect(facts.locator("dd")).to_have_text("streak")
    desk.press("Escape")
    desk.in_grid("c")
    expect(desk.page.locator(".side")).to_have_count(2)
    last = desk.page.locator(".facts-table tbody tr", has_text="Nearest to the other")
    assert last.locator("td").all_text_contents() == ["7 of 7", "7 of 7"]


class TestCompare:
    def side(self, desk: Desk, title: str) -> Locator:
        return desk.page.locator(f'.side[aria-label="{title}"]')

    def test_two_groups_with_their_numbers(self, desk: Desk, run: Run) -> None:
        desk.in_grid("c")
        expect(desk.page).to_have_url(re.compile("#compare/0/1"))
        table = desk.page.get_by_role("table", name="The two groups in numbers")
        labels = np.array(desk.state()["labels"])
        scores = np.array(run.table["score"])
        for column, group in enumerate((0, 1)):
            cells = table.locator(f"tbody td:nth-of-type({column + 1})").all_text_contents()
            assert cells[:2] == ["7", "0 of 7"]
            low, middle, high = np.quantile(scores[labels == group], [0.25, 0.5, 0.75])
            said = [float(n) for n in re.findall(r"[\d.]+", cells[2])]
            assert said[0] == pytest.approx(middle, rel=0.005)
            assert low * 0.9 < said[1] <= said[0] <= said[2] < high * 1.1
            with_regions = len(set(run.region_rows.tolist()) & set(rows_of(desk, group)))
            assert cells[3] == f"{with_regions} of 7"
            near = [row for row in rows_of(desk, group) if run.table["runner_up"][row] != group]
            assert cells[6] == f"{len(near)} of 7"
        typical = desk.page.get_by_role("listbox", name="Typical images of Group 0")
        shown = rows_in(typical)
        assert shown == sorted(rows_of(desk, 0), key=lambda row: -run.table["typicality"][row])
        borderline = desk.page.get_by_role("listbox", name="Borderline images of Group 0")
        assert set(shown) == set(rows_in(borderline))
        charts = desk.page.locator(".compared [role=img]")
        expect(charts).to_have_count(3)

    def test_the_same_or_different(self, desk: Desk) -> None:
        desk.open("#compare/0/1")
        desk.press("d")
        desk.saved("Keep Group 0 and Group 1 apart")
        assert desk.state()["different"] == [[0, 1]]
        expect(desk.page.get_by_text("You said that these are two kinds")).to_be_visible()
        expect(desk.page.get_by_role("button", name="Two kinds")).to_be_disabled()
        desk.press("Control+z")
        expect(desk.page.get_by_text("Merged, all 14 images are Group 0")).to_be_visible()
        desk.press("g")
        desk.saved("merge Group 1 into Group 0")
        assert desk.sizes() == {"Group 0": 14}
        expect(desk.page.get_by_text("There is only one group")).to_be_visible()
        desk.press("Control+z")
        expect(self.side(desk, "Group 1")).to_be_visible()
        assert desk.sizes() == {"Group 0": 7, "Group 1": 7}

    def test_any_two_are_picked(self, desk: Desk) -> None:
        cut(desk, 4, "#compare/0/1")
        desk.page.get_by_role("button", name="Group 1: choose another group").click()
        desk.type("Group 3")
        expect(self.side(desk, "Group 3")).to_be_visible()
        expect(desk.page).to_have_url(re.compile("#compare/0/3$"))
        desk.item("Group 2").click()  # in the list: the second one
        expect(self.side(desk, "Group 2")).to_be_visible()
        desk.press("w")
        expect(desk.page.locator(".compare-head h1")).to_have_text("Group 2andGroup 0")
        expect(desk.page).to_have_url(re.compile("#compare/2/0$"))
        desk.page.reload()
        expect(desk.page.locator(".compare-head h1")).to_have_text("Group 2andGroup 0")
        # After a merge the page goes on with the nearest of the others.
        desk.press("g")
        desk.saved("merge")
        expect(desk.page.locator(".side")).to_have_count(2)
        expect(self.side(desk, "Group 0")).to_have_count(0)

    def test_images_are_moved_from_side_to_side(self, desk: Desk) -> None:
        desk.open("#compare/0/1")
        typical = desk.page.get_by_role("listbox", name="Typical images of Group 0")
        typical.focus()
        row = int(typical.get_by_role("option").first.get_attribute("data-row") or -1)
        desk.press("2")
        desk.saved("Group 1")
        assert desk.state()["labels"][row] == 1

    def test_it_fits_a_phone(self, desk: Desk) -> None:
        desk.page.set_viewport_size({"width": 400, "height": 800})
        desk.open("#compare/0/1")
        assert desk.page.evaluate("document.documentElement.scrollWidth") <= 400
        boxes = [self.side(desk, f"Group {n}").bounding_box() for n in (0, 1)]
        assert boxes[0] is not None
        assert boxes[1] is not None
        assert boxes[0]["y"] == boxes[1]["y"]
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]


class TestNames:
    def test_a_name_that_is_taken_is_an_offer_to_merge(self, desk: Desk) -> None:
        desk.rename("dent")
        desk.item("Group 1").click()
        desk.in_grid("r")
        desk.page.keyboard.insert_text("Dent")
        desk.press("Enter")
        expect(dialog(desk)).to_contain_text("There is a group dent already")
        expect(dialog(desk)).to_contain_text("Merge Group 1 (7 images) into dent (7 images)?")
        desk.press("Escape")
        assert desk.sizes() == {"dent": 7, "Group 1": 7}
        desk.in_grid("r")
        desk.page.keyboard.insert_text("Dent")
        desk.press("Enter")
        dialog(desk).get_by_role("button", name="Another name").click()
        desk.type("streak")
        desk.saved("streak")
        desk.in_grid("r")
        desk.page.keyboard.insert_text("dent")
        desk.press("Enter")
        expect(dialog(desk).get_by_role("button", name="Merge them")).to_be_focused()
        desk.press("Enter")
        desk.saved("merge streak into dent")
        assert desk.sizes() == {"dent": 14}
        desk.press("Control+z")
        expect(desk.item("streak")).to_be_visible()

    @pytest.mark.parametrize("name", ["Normal", "good", "OK"])
    def test_a_group_called_normal_is_offered_the_role(self, desk: Desk, name: str) -> None:
        desk.in_grid("r")
        desk.page.keyboard.insert_text(name)
        desk.press("Enter")
        expect(dialog(desk)).to_contain_text(f"“{name}” means images without a flaw")
        desk.press("Enter")
        desk.saved("Mark Group 0 as normal")
        assert [group["role"] for group in desk.state()["groups"]] == ["normal", "flaw"]
        desk.press("Control+z")
        expect(desk.page.get_by_label("Role of the group")).to_have_value("flaw")

    def test_a_new_group_of_a_known_name_joins_it(self, decided: Desk) -> None:
        desk = decided
        desk.rename("dent")
        desk.item("Group 1").click()
        desk.in_grid("Space", "ArrowRight", "Space", "s")
        desk.page.keyboard.insert_text("dent")
        desk.press("Enter")
        expect(dialog(desk)).to_contain_text("Put 2 images into dent (7 images)?")
        desk.press("Enter")
        desk.saved("Move 2 images to dent")
        assert desk.sizes() == {"dent": 9, "Group 1": 5}
        expect(desk.page.locator(".selection")).to_be_hidden()
        desk.in_grid("s")
        desk.press("Escape")
        desk.in_grid("m")
        desk.page.keyboard.insert_text("ok")
        desk.press("Enter")
        expect(dialog(desk)).to_contain_text("Move 1 image to normal?")
        desk.press("Enter")
        desk.saved("Move 1 image to normal")
        assert desk.sizes() == {"dent": 9, "Group 1": 4, "normal": 1}

    def test_a_typed_name_of_a_group_offers_no_second_one(self, desk: Desk) -> None:
        desk.rename("dent")
        desk.in_grid("m")
        desk.page.keyboard.insert_text("dent")
        expect(dialog(desk).get_by_role("option")).to_have_count(1)
        desk.page.keyboard.insert_text("s")
        expect(dialog(desk).get_by_role("option", name="New group “dents”")).to_be_visible()

    @pytest.fixture
    def unclear(self, saved: Path, tmp_path: Path, tabs: Open) -> Iterator[Desk]:
        """Names that an earlier version accepted."""
        folder = Path(shutil.copytree(saved, tmp_path / "plates"))
        with EditStore(folder / EDITS) as store:
            for number, (group, name) in enumerate([(0, "ok"), (1, "OK")]):
                store.append(Edit("name", {"group": group, "name": name}), number, "")
        server = Server(folder)
        server.start()
        try:
            yield tabs(server, "#groups/1")
        finally:
            server.end()

    def test_names_that_are_there_already(self, unclear: Desk) -> None:
        desk = unclear
        notes = desk.page.locator(".notice[role=note]")  # not the health check
        expect(notes).to_have_count(2)
        expect(notes.first).to_contain_text("Two groups are called ok: 7 images and 7 images")
        notes.first.get_by_role("button", name="Compare").click()
        expect(desk.page).to_have_url(re.compile("#compare/0/1"))
        desk.item("OK").click()
        desk.open("#groups/1")
        notes.first.get_by_role("button", name="Keep them apart").click()
        desk.saved("apart")
        expect(notes).to_have_count(1)
        desk.press("Control+z")
        notes.first.get_by_role("button", name="Merge them").click()
        desk.saved("merge")
        expect(notes).to_have_count(1)
        notes.get_by_role("button", name="Mark it as normal").click()
        desk.saved("normal")
        expect(notes).to_have_count(0)
        assert [(g["title"], g["role"], g["n"]) for g in desk.state()["groups"]] == [
            ("ok", "normal", 14)
        ]


class TestNumbers:
    def keys(self, desk: Desk) -> dict[str, str]:
        """What is printed beside each kind of flaw."""
        items = desk.page.locator("#rail section").first.locator(".rail-item")
        return {
            item.locator(".title").inner_text(): item.locator("kbd").inner_text()
            if item.locator("kbd.none").count() == 0
            else ""
            for item in items.all()
        }

    def test_a_group_keeps_its_number(self, desk: Desk) -> None:
        cut(desk, 4, "#groups/3")
        assert self.keys(desk) == {f"Group {n}": str(n + 1) for n in range(4)}
        desk.rename("zinc")  # named ones come first, and keep their number
        assert self.keys(desk) == {
            "zinc": "4", "Group 0": "1", "Group 1": "2", "Group 2": "3",
        }  # fmt: skip
        desk.page.reload()
        expect(desk.item("zinc").locator("kbd")).to_have_text("4")
        desk.item("Group 0").click()
        row = desk.shown()[0]
        desk.in_grid("Home", "4")
        desk.saved("Move 1 image to zinc")
        assert desk.state()["labels"][row] == 3
        # A group that is gone leaves its number to the next new one, and gets it back by an undo.
        desk.item("Group 1").click()
        desk.in_grid("g")
        desk.type("Group 2")
        desk.saved("merge")
        assert "2" not in self.keys(desk).values()
        desk.in_grid("2")
        expect(desk.page.locator("#toast")).to_contain_text("No group has the number 2")
        desk.press("Control+z")
        expect(desk.item("Group 1").locator("kbd")).to_have_text("2")

    def test_more_than_nine_groups(self, desk: Desk) -> None:
        cut(desk, 12, "#groups/11")
        keys = self.keys(desk)
        assert [keys[f"Group {n}"] for n in range(12)] == [*"123456789", "", "", ""]
        expect(desk.page.locator(".rail-hint")).to_contain_text("picked by name: press M")
        # A tenth group takes the number of one without a name once it has one itself.
        desk.rename("rare")
        assert self.keys(desk)["rare"] == "9"
        assert self.keys(desk)["Group 8"] == ""
        desk.in_grid("Home", "9")
        desk.saved("Move 1 image to rare")

    def test_the_order_of_the_groups_changes_no_number(self, desk: Desk) -> None:
        cut(desk, 7, "#groups/0")
        before = self.keys(desk)
        sizes = desk.sizes()
        desk.page.get_by_label("Order of the groups").select_option("size")
        found = desk.titles()
        assert [sizes[t] for t in found] == sorted(sizes.values(), reverse=True)
        assert self.keys(desk) == before
        # The keys for the next and the previous group follow the list.
        desk.item(found[0]).click()
        desk.in_grid("]")
        expect(desk.item(found[1])).to_have_attribute("aria-current", "true")
        desk.page.get_by_role("searchbox", name="Search by file name").fill("dent0")
        expect(desk.item(found[0]).locator(".number")).to_contain_text(f"of {sizes[found[0]]}")
        assert self.keys(desk) == before

    def test_a_group_is_found_by_its_name(self, desk: Desk) -> None:
        cut(desk, 13, "#groups/0")
        desk.page.get_by_role("searchbox", name="Find a group").fill("12")
        assert desk.titles() == ["Group 12"]
        desk.item("Group 12").click()
        expect(desk.page.get_by_role("heading", name="Group 12")).to_be_visible()


class TestAccepting:
    def test_a_accepts_what_is_in_focus_or_selected_and_nothing_else(self, desk: Desk) -> None:
        desk.item("Group 1").focus()
        desk.press("a")
        expect(desk.page.locator("#toast")).to_contain_text("Select an image first")
        assert desk.state()["decided"] == []
        desk.in_grid("Home", "a")
        desk.saved("accept 1 image")
        assert len(desk.state()["decided"]) == 1
        desk.press("Control+a")
        expect(desk.page.locator(".selection strong")).to_have_text("7 images selected")
        desk.press("a")
        toast = desk.page.locator("#toast")
        expect(toast).to_contain_text("Saved: Accept 7 images")
        toast.get_by_role("button", name="Undo").click()
        expect(toast).to_contain_text("Undone")
        assert len(desk.state()["decided"]) == 1

    def test_images_of_several_groups_are_listed_first(self, desk: Desk) -> None:
        desk.page.locator("#rail .all").click()
        yes = desk.page.locator(".groups-page .sure-bar .primary")
        expect(yes).to_contain_text("Accept all 14 shown")
        desk.in_grid("Shift+a")
        expect(dialog(desk)).to_contain_text("Accept 14 images in 2 groups?")
        expect(dialog(desk)).to_contain_text("7 Group 0, 7 Group 1")
        desk.press("Escape")
        assert desk.state()["decided"] == []
        desk.page.get_by_role("searchbox", name="Search by file name").fill("dent00")
        expect(yes).to_contain_text("Accept all 1 shown")
        desk.in_grid("Shift+a")  # of one group: at once, with an undo
        desk.saved("accept 1 image")
        assert desk.state()["decided"] == [0]

    def test_what_is_selected_elsewhere_is_said(self, desk: Desk) -> None:
        desk.in_grid("Control+a")
        bar = desk.page.locator(".selection strong")
        expect(bar).to_have_text("7 images selected")
        desk.go("Tree")
        expect(bar).to_have_text("7 images selected, not shown here")
        desk.open("#groups/0")
        desk.page.locator("#rail .all").click()
        desk.in_grid("Control+a")
        desk.go("Map")
        expect(bar).to_have_text("14 images selected")
        desk.item("Group 0").click()
        expect(bar).to_have_text("14 images selected, 7 of them not shown here")

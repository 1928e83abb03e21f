"""The review app in a real browser: every edit, two tabs at once, and a server that dies."""

from __future__ import annotations

import base64
import io
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "playwright", reason="no playwright: pip install playwright, and have a Chromium on PATH"
)

from PIL import Image
from playwright.sync_api import BrowserContext, Locator, Route, expect

from flawsort import open_run
from flawsort.runs.folder import save_run
from helpers.review_client import keep_new_images
from helpers.review_desk import NEEDS_CHROMIUM, Desk, Open, Server, accept, pretend, rows_in, soon
from helpers.runs import build_run

pytestmark = NEEDS_CHROMIUM

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script> & \"'` \U0001f529 {{ 7 * 7 }}"


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

    def test_what_is_selected_becomes_a_group(self, decided: Desk) -> None:
        desk = decided
        desk.in_grid("Space", "ArrowRight", "ArrowRight", "Space", "s")
        desk.type("odd ones")
        desk.saved("odd ones|split")
        assert desk.sizes() == {"Group 0": 5, "Group 1": 7, "odd ones": 2}
        expect(desk.page.locator(".selection")).to_be_hidden()

    def test_a_group_is_parted_where_the_tree_parts_it(self, decided: Desk) -> None:
        desk = decided
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
        assert state["decided"] == sorted(moved)

    def test_keys_move_the_image_in_focus(self, decided: Desk) -> None:
        desk = decided
        desk.in_grid("2")
        desk.saved("Group 1")
        desk.in_grid("n")
        desk.saved("normal")
        desk.in_grid("u")
        desk.saved("unsure")
        desk.in_grid("m")
        desk.type("brand new")
        desk.saved("brand new")
        sizes = desk.sizes()
        assert sizes == {"Group 0": 3, "Group 1": 8, "normal": 1, "Unsure": 1, "brand new": 1}
        assert len(desk.state()["decided"]) == 13

    def test_a_key_moves_nothing_that_is_not_in_focus(self, desk: Desk) -> None:
        desk.page.locator("#help").focus()
        desk.press("n")
        expect(desk.page.locator("#toast")).to_contain_text("Select an image first")
        assert desk.sizes() == {"Group 0": 7, "Group 1": 7}

    def test_a_group_is_accepted_and_given_a_role(self, desk: Desk) -> None:
        desk.in_grid("Shift+a")
        desk.saved("accept")
        expect(desk.item("Group 0")).to_contain_text("7 decided")
        assert len(desk.state()["decided"]) == 7
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
        row = int(box.get_attribute("aria-label")[-6:-4])
        desk.press("n")
        expect(box).to_contain_text("3 of 7")  # after a decision the next image comes
        desk.press("ArrowLeft")
        expect(box.locator(".facts")).to_contain_text("normal")
        desk.press("Escape")
        expect(box).to_have_count(0)
        state = desk.state()
        assert state["decided"] == [row]
        assert list(state["kinds"].values()) == [[2, 1]]

    def test_orders_and_search(self, desk: Desk) -> None:
        run = desk.page.evaluate("fetch('api/run').then((r) => r.json())")
        labels = desk.state()["labels"]
        rows = [row for row, label in enumerate(labels) if label == 0]
        assert desk.shown() == sorted(rows, key=lambda row: -run["typicality"][row])
        desk.page.get_by_label("Order of the images").select_option("-score")
        assert desk.shown() == sorted(rows, key=lambda row: -run["scores"][row])
        desk.page.get_by_role("searchbox").fill(run["names"][rows[3]])
        assert desk.shown() == [rows[3]]


class TestSuggestions:
    """Dents are the rows 0 to 6, streaks 7 to 13."""

    def teach(self, desk: Desk) -> None:
        """Name one dent and one streak."""
        for row, name in ((0, "dent"), (7, "streak")):
            desk.page.locator("#rail .all").click()
            desk.page.locator(f'.cell[data-row="{row}"]').click()
            desk.press("s")
            desk.type(name)
            desk.saved(name)

    def test_one_answer_each_suggests_the_rest(self, desk: Desk) -> None:
        self.teach(desk)
        assert {title: n for title, n in desk.sizes().items() if n} == {"dent": 7, "streak": 7}
        # The clusters that have no images left are gone from the list.
        assert desk.titles() == ["dent", "streak"]
        expect(desk.page.locator("#toast")).to_contain_text("moved by this answer")
        desk.item("dent").click()
        expect(desk.page.locator(".group-head")).to_contain_text(
            "7 images · 1 decided · 6 suggested"
        )
        soft = desk.grid().locator(".cell.suggested")
        expect(soft).to_have_count(6)
        expect(soft.first.locator(".sign.maybe")).to_have_text(re.compile(r"^\d+%$"))
        expect(soft.first).to_have_attribute("title", re.compile(r"suggested, \d+% sure"))
        expect(desk.grid().locator(".cell:not(.suggested) .sign.sure")).to_have_count(1)
        # Undo takes back what the answers taught.
        desk.press("Control+z", "Control+z")
        expect(desk.item("dent")).to_have_count(0)
        assert desk.titles() == ["Group 0", "Group 1"]
        assert set(base64.b64decode(desk.state()["probability"])) == {255}

    def test_least_sure_first_and_only_suggested(self, desk: Desk) -> None:
        self.teach(desk)
        desk.item("dent").click()
        sure = base64.b64decode(desk.state()["probability"])
        desk.press("/")
        desk.page.get_by_role("checkbox", name="Suggested").check()
        desk.press("Escape")
        desk.page.get_by_label("Order of the images").select_option("sure")
        shown = desk.shown()
        assert sorted(shown) == [1, 2, 3, 4, 5, 6]
        assert [sure[row] for row in shown] == sorted(sure[row] for row in shown)
        desk.page.get_by_label("Order of the images").select_option("-sure")
        assert [sure[row] for row in desk.shown()] == sorted((sure[r] for r in shown), reverse=True)

    def test_accept_one_a_line_and_all_that_are_sure(self, desk: Desk) -> None:
        self.teach(desk)
        desk.item("dent").click()
        desk.page.get_by_label("Order of the images").select_option("sure")
        first = desk.shown()[0]
        desk.in_grid("Home", "a")
        desk.saved("accept 1 image")
        assert first in desk.state()["decided"]
        # A slider says from which confidence on; the count is shown before anything happens.
        desk.item("streak").click()
        sure = base64.b64decode(desk.state()["probability"])
        least = sorted(sure[row] for row in range(8, 14))[3]
        slider = desk.page.get_by_role("slider", name="How sure the model must be")
        slider.fill(str(least))
        enough = [row for row in range(8, 14) if sure[row] >= least]
        expect(desk.page.locator(".sure-bar .primary")).to_contain_text(f"Accept {len(enough)}")
        desk.in_grid("Shift+a")
        desk.saved("accept")
        assert set(enough) | {7} <= set(desk.state()["decided"])
        assert desk.state()["decided"] == sorted({0, first, 7, *enough})
        # A line of the grid.
        desk.press("Control+z")
        expect(desk.page.locator(".sure-bar .primary")).to_contain_text(f"Accept {len(enough)}")
        desk.in_grid("Shift+Space", "a")
        desk.saved("accept")
        assert len(desk.state()["decided"]) > 3

    def test_what_is_rejected_leaves_and_teaches(self, desk: Desk) -> None:
        self.teach(desk)
        desk.item("dent").click()
        desk.page.get_by_label("Order of the images").select_option("sure")
        row = desk.shown()[0]
        dent = desk.state()["labels"][row]
        desk.in_grid("Home", "x")
        desk.saved("is not dent")
        assert desk.state()["labels"][row] != dent
        expect(desk.page.locator(f'.grid [role=option][data-row="{row}"]')).to_have_count(0)
        assert row not in desk.state()["decided"]
        desk.press("Control+z")
        expect(desk.page.locator(f'.grid [role=option][data-row="{row}"]')).to_have_count(1)
        assert desk.state()["labels"][row] == dent

    def test_what_is_decided_never_moves_by_itself(self, desk: Desk) -> None:
        self.teach(desk)
        desk.item("dent").click()
        desk.in_grid("Control+a", "a")
        desk.saved("accept 7 images")
        before = desk.state()["labels"][:7]
        desk.item("streak").click()
        desk.in_grid("n")  # a streak is normal
        desk.saved("normal")
        assert desk.state()["labels"][:7] == before

    def test_two_tabs_one_teaches_and_the_other_follows(
        self, desk: Desk, server: Server, tabs: Open
    ) -> None:
        self.teach(desk)
        other = tabs(server, "#groups/0")
        assert other.titles() == ["dent", "streak"]
        other.item("dent").click()
        desk.item("dent").click()
        desk.in_grid("x")
        desk.saved("is not dent")
        other.in_grid("a")
        banner = other.page.get_by_role("alert")
        expect(banner).to_contain_text("Somebody else changed")
        other.page.get_by_role("button", name="Discard it").click()
        assert other.state()["decided"] == [0, 7]

    def test_a_killed_server_comes_back_with_the_same_suggestions(
        self, saved: Path, tmp_path: Path, tabs: Open
    ) -> None:
        shutil.copytree(saved, tmp_path / "plates")
        server = Server(tmp_path / "plates")
        server.start()
        try:
            desk = tabs(server, "#groups/0")
            self.teach(desk)
            before = desk.state()
            desk.item("dent").click()
            assert server.process is not None
            server.process.send_signal(signal.SIGSTOP)
            with desk.page.expect_request("**/api/edits"):
                desk.in_grid("Control+a", "a")  # sent, and nobody will ever take it
            server.end(signal.SIGKILL)
            banner = desk.page.get_by_role("alert")
            expect(banner).to_contain_text("accept 7 images")
            server.start()
            expect(banner).to_contain_text("The server is back")
            assert desk.state() == before
            desk.page.get_by_role("button", name="Send again").click()
            desk.saved("accept 7 images")
            assert desk.state()["decided"] == [*range(8)]
        finally:
            server.end()


class TestNewImages:
    @pytest.fixture
    def fresh(self, saved: Path, tmp_path: Path, tabs: Open) -> Iterator[Desk]:
        """A run with a batch of new images; a streak and a dent of it are told apart."""
        shutil.copytree(saved, tmp_path / "plates")
        keep_new_images(tmp_path / "plates", open_run(saved))
        server = Server(tmp_path / "plates")
        server.start()
        try:
            yield tabs(server, "#new")
        finally:
            server.end()

    def thumb(self, desk: Desk, name: str) -> Locator:
        return desk.page.locator(f'.new-page .thumb[aria-label^="{name}"]')

    def open_image(self, desk: Desk, name: str) -> Locator:
        self.thumb(desk, name).click()
        box = desk.page.locator("dialog.new-view")
        expect(box.locator(".picture.here")).to_be_visible()
        return box

    def back_to(self, box: Locator, name: str) -> None:
        """From the next image, which came after an answer."""
        expect(box).not_to_have_attribute("aria-label", name)
        box.press("ArrowLeft")
        expect(box).to_have_attribute("aria-label", name)

    def test_the_first_of_a_new_group_teaches_the_others(self, fresh: Desk) -> None:
        box = self.open_image(fresh, "new0.png")
        expect(box.locator(".facts")).to_contain_text("by its nearest cluster")
        fresh.press("s")
        fresh.type("dent")
        fresh.saved("Teach a new group dent with 1 new image")
        expect(box).not_to_have_attribute("aria-label", "new0.png")  # the next one comes
        fresh.press("ArrowLeft")
        expect(box.locator(".facts")).to_contain_text("decided")
        fresh.press("Escape")
        self.open_image(fresh, "new2.png")
        fresh.press("s")
        fresh.type("streak")
        fresh.saved("streak")
        fresh.press("Escape")
        for name, group in (("new1.png", "dent"), ("new3.png", "streak")):
            label = re.compile(rf"{name} · {group} · suggested, \d+% sure")
            expect(self.thumb(fresh, name)).to_have_attribute("aria-label", label)
        # The images of the run follow as well.
        assert {t: n for t, n in fresh.sizes().items() if n} == {"dent": 7, "streak": 7}
        # Accepted, corrected by number and by name, and taken back.
        key = fresh.item("streak").locator("kbd").text_content()
        assert key
        box = self.open_image(fresh, "new1.png")
        fresh.press("a")
        fresh.saved("Teach dent with 1 new image")
        self.back_to(box, "new1.png")
        expect(box.locator(".facts")).to_contain_text("decided")
        fresh.press(key)
        fresh.saved("Teach streak")
        self.back_to(box, "new1.png")
        expect(box.locator(".facts")).to_contain_text("streak")
        fresh.press("m")
        fresh.type("den")
        fresh.saved("Teach dent")
        self.back_to(box, "new1.png")
        fresh.press("n")
        fresh.saved("normal")
        self.back_to(box, "new1.png")
        expect(box.locator(".facts")).to_contain_text("normal")
        for _ in range(4):
            fresh.press("Control+z")
        expect(box.locator(".facts")).to_contain_text("suggested")
        expect(box.locator(".facts")).to_contain_text("dent")

    def test_what_cannot_teach_says_why(self, fresh: Desk) -> None:
        box = self.open_image(fresh, "new4.png")
        expect(box.locator(".hint")).to_contain_text("an image of the run itself")
        expect(box.get_by_role("button", name="Accept")).to_be_disabled()
        fresh.press("n")
        expect(fresh.page.locator("#toast")).to_contain_text("an image of the run itself")
        assert fresh.state()["version"] == 0

    def test_a_batch_of_an_older_version_says_so(self, fresh: Desk) -> None:
        (fresh.server.folder / "assigned" / "may" / "vectors.npy").unlink()
        fresh.page.reload()
        expect(fresh.page.locator(".new-page .warnings")).to_contain_text("older version")

    def test_all_that_are_sure_are_accepted_and_a_threshold_is_chosen(self, fresh: Desk) -> None:
        panel = fresh.page.locator(".verdict")
        expect(panel).to_contain_text("There are 0 and 0 so far")
        server = fresh.server
        streaks = server.state()["labels"][7]
        payloads: list[tuple[str, dict[str, Any]]] = [
            ("role", {"group": streaks, "role": "normal"}),
            ("accept", {"images": list(range(14))}),
        ]
        for kind, payload in payloads:
            server.post("edits", version=server.state()["version"], kind=kind, payload=payload)
        fresh.page.reload()
        expect(panel).to_contain_text("There are 7 and 7 so far")
        slider = fresh.page.get_by_role("slider", name="How sure the model must be")
        slider.fill("0")
        # Of many images the surest are not drawn, so the button does not say that they are shown.
        yes = fresh.page.locator(".new-page .sure-bar .primary")
        expect(yes).to_have_text(re.compile(r"^Accept all 4\s*Shift A$"))
        fresh.press("Shift+a")
        expect(panel).to_contain_text("There are 9 and 9 so far")
        # One more of each, so that the curve has its ten.
        examples = [
            {"name": f"x{n}", "sha256": str(n) * 64, "vector": v} for n, v in _vectors(fresh)
        ]
        for example, to in zip(examples, (server.state()["labels"][0], "normal"), strict=True):
            version, payload = server.state()["version"], {"examples": [example], "to": to}
            server.post("edits", version=version, kind="teach", payload=payload)
        fresh.page.reload()
        expect(panel.locator(".curve-line")).to_be_visible()
        expect(panel).to_contain_text(re.compile(r"Missed flaws: \d+ of 10"))
        expect(panel).to_contain_text(re.compile(r"False alarms: \d+ of 10"))
        threshold = panel.get_by_role("slider", name="Threshold")
        threshold.press("Home")
        expect(panel).to_contain_text("Missed flaws: 10 of 10")
        threshold.press("End")
        expect(panel).to_contain_text("False alarms: 10 of 10")
        threshold.press("ArrowLeft")
        panel.get_by_role("button", name="Use this").click()
        fresh.saved("OK")
        expect(panel).to_contain_text(re.compile(r"\d OK · \d not OK"))
        expect(self.thumb(fresh, "new0.png")).to_have_attribute("aria-label", re.compile("not OK$"))
        panel.get_by_role("button", name="No verdict").click()
        expect(panel.locator("> .strong")).to_be_hidden()


def _vectors(desk: Desk) -> list[tuple[int, str]]:
    """Embeddings of a dent and a streak, as an edit holds them."""
    embeddings = open_run(desk.server.folder).embeddings
    packed = [base64.b64encode(embeddings[row].astype("<f2").tobytes()) for row in (3, 10)]
    return [(number, text.decode()) for number, text in enumerate(packed, 1)]


class TestAccuracy:
    def test_the_audit_shows_nothing_that_tells_the_group(self, desk: Desk) -> None:
        desk.rename("dents")
        desk.go("Accuracy")
        page = desk.page.locator(".accuracy-page")
        expect(page).to_contain_text("0 of 10")
        desk.press("b")
        expect(page.get_by_role("heading", name="What does this image show?")).to_be_visible()
        picture = page.locator(".stage .picture.here")
        expect(picture).to_be_visible()
        assert picture.locator(".glow, .region").count() == 0
        named = page.locator(".stage").inner_html()
        assert not re.search("dent|streak|Group", named)
        expect(desk.page.locator("#rail")).to_be_hidden()
        desk.press("b")
        expect(page.get_by_role("heading", name="How right is it?")).to_be_visible()

    def test_an_image_is_answered_for_once(self, desk: Desk) -> None:
        desk.go("Accuracy")
        desk.press("b")
        page, held = desk.page.locator(".accuracy-page"), list[Any]()
        before = desk.state()["version"]
        expect(page.locator(".stage .picture.here")).to_be_visible()
        desk.page.route("**/api/audit", lambda route: held.append(route))
        desk.press("n")
        desk.saved("audit")
        assert soon(desk.page, lambda: bool(held))
        desk.press("n")  # the next image is not there yet
        desk.page.wait_for_timeout(300)
        assert desk.state()["version"] == before + 1
        for route in held:
            route.continue_()
        desk.page.unroute("**/api/audit")
        expect(page.locator("[role=status]")).to_have_text("1 answer so far")
        desk.press("n")
        expect(page.locator("[role=status]")).to_have_text("2 answers so far")

    def test_ten_answers_give_a_number_and_undo_takes_one_back(self, desk: Desk) -> None:
        labels = desk.state()["labels"]
        flaws = [group["id"] for group in desk.state()["groups"]]
        desk.go("Accuracy")
        desk.press("b")
        page = desk.page.locator(".accuracy-page")
        stage = page.locator(".stage img")
        for number in range(10):
            expect(page.locator("[role=status]")).to_have_text(
                f"{number} answer{'' if number == 1 else 's'} so far"
            )
            source = stage.get_attribute("src") or ""
            row = int(re.findall(r"image/(\d+)", source)[0])
            desk.press(str(flaws.index(labels[row]) + 1))
            desk.saved("audit")
        expect(page.locator("[role=status]")).to_have_text("10 answers so far")
        desk.press("u")  # cannot tell: does not count
        expect(stage).not_to_have_attribute("src", re.compile(f"image/{row}[.]"))
        desk.press("b")
        audit = page.locator(".estimate").nth(1)
        expect(audit).to_contain_text("100%")
        expect(audit).to_contain_text(re.compile(r"between \d+ and 100% · 10 answers"))
        desk.press("Control+z", "Control+z")
        expect(audit).to_contain_text("9 of 10")
        expect(audit).not_to_contain_text("100%")

    def test_the_queue_says_how_many_were_answered_together(self, desk: Desk) -> None:
        """A share that many answers at a time made is not shown without saying so."""

        def answer(route: Route) -> None:
            found = route.fetch().json()
            measured = {"n": 35, "together": 34, "share": 1.0, "low": 0.93, "high": 1.0}
            route.fulfill(json=found | {"suggestions": found["suggestions"] | measured})

        desk.page.route("**/api/queue?*", answer)
        desk.go("Queue")
        expect(desk.page.locator(".queue-page")).to_contain_text(
            "90% interval: between 93 and 100%; 35 answers, 34 of them several at a time"
        )


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
        expect(head).to_contain_text("Is this one kind?")
        first = head.locator("h1").text_content() or ""
        shown = self.in_question(desk)
        desk.press("n")
        desk.type("dents")
        desk.saved("accept")
        # Named and accepted: exactly the images that were shown.
        assert desk.state()["decided"] == sorted(shown)
        expect(head.locator("h1")).not_to_have_text(first)
        other = self.in_question(desk)
        desk.press("0")
        desk.saved("normal")
        assert desk.state()["decided"] == sorted(shown + other)
        self.goes_on(desk)
        for _ in range(14):
            if (head.locator("h1").text_content() or "").startswith("Nothing"):
                break
            before = desk.state()["version"]
            desk.press("Enter")
            expect(desk.page.locator("#toast")).to_contain_text("Saved")
            desk.page.wait_for_function(
                "version => fetch('api/state').then(r => r.json()).then(s => s.version > version)",
                arg=before,
            )
            self.goes_on(desk)
        expect(head.locator("h1")).to_have_text("Nothing left to ask")
        state = desk.state()
        assert state["decided"] == list(range(14))
        roles = {group["title"]: group["role"] for group in state["groups"] if group["n"]}
        assert roles == {"dents": "flaw", "normal": "normal"}
        expect(desk.page.locator(".tiles")).to_contain_text("14 of 14")

    def goes_on(self, desk: Desk) -> None:
        """The next question is there: it is drawn with the number of images that are done."""
        done = f"{len(desk.state()['decided'])} of 14"
        expect(desk.page.locator(".tiles dd").first).to_have_text(done)

    def in_question(self, desk: Desk) -> list[int]:
        grid = desk.page.locator(".queue-page .grid:visible")
        expect(grid.get_by_role("option").first).to_be_visible()
        return rows_in(grid)

    def test_a_question_goes_on_about_the_rest(self, desk: Desk) -> None:
        desk.go("Queue")
        shown = self.in_question(desk)
        assert len(shown) > 2
        title = desk.page.locator(".question-head h1").text_content() or ""
        desk.press("Home", "Space", "x")
        desk.saved("is not")
        expect(desk.page.locator(".queue-page .grid:visible [role=option]")).to_have_count(
            len(shown) - 1
        )
        assert self.in_question(desk) == shown[1:]
        expect(desk.page.locator(".question-head h1")).to_have_text(title)
        desk.press("Enter")
        desk.saved("accept")
        assert desk.state()["decided"] == sorted(shown[1:])

    @pytest.mark.parametrize(("key", "said"), [("x", "apart"), ("Enter", "merge")])
    def test_one_kind_or_two(self, desk: Desk, key: str, said: str) -> None:
        labels = desk.state()["labels"]
        rows = [[row for row, label in enumerate(labels) if label == group] for group in (0, 1)]
        question = {
            "kind": "pair", "group": 0, "other": 1, "rows": rows[0][:3], "why": "They look alike.",
            "other_rows": rows[1][:2],
        }  # fmt: skip

        def ask(route: Any) -> None:
            route.fulfill(json={**route.fetch().json(), "question": question})

        desk.page.route("**/api/queue?*", ask, times=1)
        desk.go("Queue")
        expect(desk.page.locator(".question-head h1")).to_have_text("Group 0andGroup 1")
        cells = desk.page.locator(".queue-page .grid:visible [role=option]")
        expect(cells).to_have_count(5)
        desk.press(key)
        desk.saved(said)
        titles = {group["title"] for group in desk.state()["groups"]}
        assert titles == ({"Group 0", "Group 1"} if key == "x" else {"Group 0"})

    def test_pages_without_content_say_so(self, desk: Desk) -> None:
        desk.go("New images")
        expect(desk.page.get_by_text("No new images")).to_be_visible()
        desk.go("Export")
        expect(desk.page.get_by_text("14 images in 2 groups")).to_be_visible()

    def test_new_images_of_one_group_are_picked_out(self, desk: Desk) -> None:
        batch = {
            "name": "monday", "n": 3, "at": "", "by": "", "groups": [0, 1, -1], "rises": [],
            "table": {
                "name": ["a.png", "b.png", "c.png"],
                "cluster": [-1, 1, -1],
                "probability": [0.9, 0.8, None],
            },
            "decided": [False] * 3, "verdicts": [""] * 3, "teaches": ["older"] * 3,
            "thumbnails": [False] * 3, "proposals": [[2]],
            "counts": {"periods": ["mon"], "groups": [-1, 0, 1], "table": [[1, 1, 1]]},
        }  # fmt: skip
        listed = [{"name": "monday", "n": 3, "at": "", "reason": ""}]
        desk.page.route("**/api/assigned", lambda route: route.fulfill(json=listed))
        desk.page.route("**/api/assigned/monday", lambda route: route.fulfill(json=batch))
        desk.go("New images")
        thumbs = desk.page.locator(".new-page .thumb")
        expect(thumbs).to_have_count(4)  # the new kind is proposed, too
        alone = desk.page.get_by_text("This image matches no group of this run.")
        expect(alone).to_be_visible()
        # The model is sure of a.png, which is unlike all images that it has learnt from.
        told = "suggested, 90% sure, but unlike the images of the run"
        expect(thumbs.nth(1)).to_have_attribute("aria-label", f"a.png · Group 0 · {told}")
        expect(desk.page.get_by_text("1 image with a group is unlike")).to_be_visible()
        desk.page.locator(".new-page").get_by_role("button", name="Group 1", exact=True).click()
        expect(thumbs).to_have_count(2)
        expect(desk.page.get_by_text("1 image with a group is unlike")).to_be_hidden()
        desk.press("r")  # a group that is picked out here is not one to rename
        expect(desk.page.locator("#toast")).to_contain_text("Choose a group in the list first")

    def test_the_keys_are_all_listed(self, desk: Desk) -> None:
        desk.press("?")
        expect(desk.page.get_by_role("dialog", name="Keys")).to_contain_text("Ctrl + Shift + Z")
        desk.press("Escape")

    def test_the_head_of_the_page_fits_any_window(self, desk: Desk) -> None:
        desk.rename("a name that makes the sentence of the undo long")
        for width in (1920, 1440, 1280, 1200, 1000, 850, 400):
            desk.page.set_viewport_size({"width": width, "height": 600})
            last = desk.page.locator("#help").bounding_box()
            assert last is not None
            assert last["x"] + last["width"] <= width
            expect(desk.page.locator("#tabs [aria-current]")).to_be_in_viewport()

    def test_four_hundred_pixels_are_enough(self, desk: Desk) -> None:
        desk.page.set_viewport_size({"width": 400, "height": 800})
        for title in (
            "Groups",
            "Map",
            "Tree",
            "Queue",
            "Compare",
            "Accuracy",
            "New images",
            "Export",
        ):
            desk.go(title)
            wide = desk.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 400, title
        desk.go("Groups")
        desk.page.locator("#drawer-open").click()
        desk.item("Group 1").click()
        heading = desk.page.get_by_role("heading", name="Group 1")
        expect(heading).to_be_visible()
        assert heading.evaluate("node => node.scrollWidth <= node.clientWidth")  # the name is whole
        expect(desk.page.locator("#rail")).not_to_be_in_viewport()


class TestManyImages:
    def test_only_those_in_view_exist(
        self, server: Server, context: BrowserContext, tabs: Open
    ) -> None:
        n = 20_000
        pretend(context, n)
        desk = tabs(server, "#groups/all")
        cells = desk.page.locator(".grid .cell")
        expect(cells.first).to_be_visible()
        assert cells.count() < 300
        desk.in_grid("End")
        expect(desk.page.locator(f'.cell[aria-posinset="{n}"]')).to_be_in_viewport()
        assert cells.count() < 300
        # While it scrolls, a frame makes the cells of the lines that come into view, and no others.
        made = desk.page.evaluate(SCROLL)
        assert 0 < made["cells"] <= made["lines"] * made["across"]
        assert made["most"] < 300

    @pytest.fixture
    def many(self, tmp_path: Path) -> Iterator[Server]:
        """20,000 images in four clusters."""
        file = io.BytesIO()
        Image.new("RGB", (8, 8), "grey").save(file, "JPEG")
        small = (file.getvalue(),) * 20_000
        run = build_run([row % 4 for row in range(20_000)], dim=8, thumbnails=small)
        save_run(run, tmp_path / "many")
        server = Server(tmp_path / "many")
        server.start()
        yield server
        server.end()

    def test_an_answer_shows_what_it_taught(self, many: Server, tabs: Open) -> None:
        desk = tabs(many, "#groups/0")
        head = desk.page.locator(".group-head")
        expect(head).to_contain_text("5,000 images · 5,000 as clustered")
        desk.in_grid("a")
        desk.saved("accept 1 image")
        expect(head).to_contain_text("5,000 images · 1 decided · 4,999 suggested")
        soft = desk.grid().locator(".cell.suggested").first
        expect(soft).to_have_attribute("title", re.compile(r"suggested, \d+% sure"))
        # The next answer is about another kind, and the images of the first stay there.
        desk.item("Group 1").click()
        desk.in_grid("a")
        expect(head).to_contain_text("5,000 images · 1 decided · 4,999 suggested")
        assert many.state()["labels"] == [row % 4 for row in range(20_000)]
        desk.press("Control+z")
        expect(head).to_contain_text("5,000 images · 5,000 as clustered")


SCROLL = """async () => {
  const grid = document.querySelector(".groups-page .grid");
  const cells = () => [...grid.querySelectorAll(".cell")];
  const tops = () => new Set(cells().map((cell) => cell.getBoundingClientRect().top)).size;
  const frame = () => new Promise(requestAnimationFrame);
  grid.scrollTop = 60000;
  await new Promise((done) => setTimeout(done, 300)); // a jump is drawn a moment later
  await frame();
  const across = Math.round(cells().length / tops());
  const step = cells()[across].getBoundingClientRect().top - cells()[0].getBoundingClientRect().top;
  const drawn = tops();
  let made = 0;
  let most = 0;
  new MutationObserver((all) => { for (const one of all) made += one.addedNodes.length; })
    .observe(grid.querySelector(".sheet"), { childList: true });
  for (let i = 1; i <= 40; i++) {
    grid.scrollTop = 60000 + i * 240;
    await frame();
    most = Math.max(most, cells().length);
  }
  await frame();
  return { cells: made, most, across, lines: Math.ceil((40 * 240) / step) + drawn };
}"""


class TestOthers:
    def test_two_tabs_cannot_overwrite_each_other(
        self, decided: Desk, server: Server, tabs: Open
    ) -> None:
        desk, other = decided, tabs(server, "#groups/0")
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
        expect(desk.page.locator("#toast")).to_contain_text("Undone: Name Group 0 mine")
        expect(desk.item("theirs")).to_be_visible()
        expect(desk.page.get_by_role("alert")).to_be_hidden()
        assert desk.sizes() == {"Group 0": 7, "theirs": 7}

    def test_nothing_is_lost_when_the_server_is_killed(
        self, saved: Path, tmp_path: Path, tabs: Open
    ) -> None:
        shutil.copytree(saved, tmp_path / "plates")
        server = Server(tmp_path / "plates")
        server.start()
        accept(server, range(14))
        try:
            desk = tabs(server, "#groups/0")
            desk.rename("kept")
            desk.saved("kept")
            desk.in_grid("2")
            desk.saved("Group 1")
            # In the middle of an edit: it has been sent, and nobody will ever take it.
            assert server.process is not None
            server.process.send_signal(signal.SIGSTOP)
            with desk.page.expect_request("**/api/edits"):
                desk.in_grid("n")
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
            desk.saved("normal")
            desk.page.reload()
            expect(desk.item("kept")).to_be_visible()
            assert desk.sizes() == {"kept": 5, "Group 1": 8, "normal": 1}
        finally:
            server.end()

    def test_an_edit_whose_answer_was_lost_is_made_once(self, decided: Desk) -> None:
        desk = decided

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
        for title in (
            "Map",
            "Tree",
            "Queue",
            "Compare",
            "Accuracy",
            "New images",
            "Export",
            "Groups",
        ):
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

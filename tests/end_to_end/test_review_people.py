"""Two people review one run in two browsers: who did what, undo of one's own, a queue for both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, expect

from flawsort.labels.store import EditStore
from flawsort.runs.folder import EDITS
from helpers.review_desk import (
    NEEDS_CHROMIUM,
    Desk,
    Server,
    browser,
    person_at,
    server,
    soon,
)

pytestmark = NEEDS_CHROMIUM
__all__ = ["browser", "server"]
HOSTILE = '<img src=x onerror="alert(1)"> =1+1'
At = Callable[..., Desk]


@pytest.fixture
def at(browser: Browser, server: Server) -> Iterator[At]:
    """The desk of a person with a browser of their own, at a run without edits in force."""
    while (now := server.state())["undo"]:
        server.post("undo", version=now["version"])
    contexts: list[BrowserContext] = []
    desks: list[Desk] = []

    def sit(name: str | None, place: str = "#groups/0") -> Desk:
        contexts.append(person_at(browser, name))
        desk = Desk(contexts[-1].new_page(), server)
        desk.page.on("pageerror", lambda error: desk.wrong.append(str(error)))
        desk.page.on("dialog", lambda dialog: (desk.wrong.append(dialog.message), dialog.dismiss()))
        desks.append(desk)
        return desk.open(place)

    yield sit
    for context in contexts:
        context.close()
    assert [desk.wrong for desk in desks] == [[]] * len(desks)


def authors(server: Server) -> list[str]:
    with EditStore(server.folder / EDITS) as store:
        return [entry.author for entry in store.log()]


def api(server: Server, what: str) -> Any:
    headers = {"Authorization": f"Bearer {server.token}"}
    with urlopen(Request(f"{server.page}api/{what}", headers=headers)) as answer:
        return json.load(answer)


def entry(desk: Desk, words: str) -> Locator:
    items = desk.page.locator(".history-item:not(.reversal)")
    return items.filter(has=desk.page.locator(".words", has_text=re.compile(f"^{words}$"))).first


def toast(desk: Desk) -> Locator:
    return desk.page.locator("#toast")


def test_a_name_is_asked_once(at: At, server: Server) -> None:
    desk = at(None)
    person = desk.page.locator("#person")
    expect(person).to_be_hidden()
    desk.in_grid("r")
    desk.page.keyboard.insert_text("dents")
    desk.press("Enter")
    dialog = desk.page.get_by_role("dialog", name="Who are you?")
    expect(dialog).to_be_visible()
    assert desk.state()["undo"] is None  # nothing is saved before
    desk.page.keyboard.insert_text("Zoé\u202e")
    desk.press("Enter")
    desk.saved("dents")
    assert authors(server)[-1] == "Zoé"
    expect(person).to_have_attribute("aria-label", "You are Zoé. Change it.")
    desk.rename("pits")
    desk.page.reload()
    desk.rename("spots")
    assert authors(server)[-3:] == ["Zoé"] * 3
    person.click()
    desk.type("")
    desk.rename("holes")
    assert authors(server)[-1] == ""


def test_who_does_not_say_a_name_saves_nothing(at: At) -> None:
    desk = at(None)
    version = desk.state()["version"]
    desk.in_grid("a")
    expect(desk.page.get_by_role("dialog", name="Who are you?")).to_be_visible()
    desk.press("Escape")
    expect(toast(desk)).to_contain_text("Not saved, because nobody said who makes it: accept")
    assert desk.state()["version"] == version


def test_two_people_and_their_history(at: At) -> None:
    ann, ben = at("Ann"), at("Ben", "#groups/1")
    ann.rename("dents")
    ben.rename("streaks")  # on what he saw before: it is about something else
    expect(ben.page.get_by_role("alert")).to_be_hidden()
    ann.press("Control+z")
    expect(toast(ann)).to_contain_text("Undone: Name Group 0 dents")
    ann.press("Control+Shift+z")
    expect(toast(ann)).to_contain_text("Redone: Name Group 0 dents")
    ben.press("Control+z")
    expect(toast(ben)).to_contain_text("Undone: Name Group 1 streaks")
    ben.press("Control+Shift+z")
    expect(toast(ben)).to_contain_text("Redone")
    ann.go("History")
    words = entry(ann, "Name Group 1 streaks")
    expect(words.locator(".who")).to_have_text("Ben")
    expect(words.get_by_role("button", name="Undo")).to_have_count(0)
    expect(entry(ann, "Name Group 0 dents").locator(".who")).to_have_text("Ann")
    ann.page.get_by_label("Whose edits").select_option("Ben")
    expect(entry(ann, "Name Group 0 dents")).to_have_count(0)
    expect(words).to_be_visible()


def test_undo_of_an_earlier_edit_of_ones_own(at: At) -> None:
    ann = at("Ann")
    ann.rename("dents")
    ann.go("Groups")
    ann.item("Group 1").click()
    ann.rename("streaks")
    ben = at("Ben", "#groups/1")
    ben.in_grid("a")  # it is one of the streaks
    ben.saved("Accept 1 image")
    ann.go("History")
    entry(ann, "Name Group 1 streaks").get_by_role("button", name="Undo").click()
    expect(toast(ann)).to_contain_text(
        "Not saved: 'Name Group 1 streaks' cannot be undone, because a later answer rests on it: "
        "'Accept 1 image' by Ben."
    )
    entry(ann, "Name Group 0 dents").get_by_role("button", name="Undo").click()
    expect(toast(ann)).to_contain_text("Undone: Name Group 0 dents")
    expect(entry(ann, "Name Group 0 dents")).to_have_class(re.compile("undone"))
    assert set(ann.sizes()) == {"Group 0", "streaks"}
    assert len(ann.state()["decided"]) == 1
    entry(ann, "Name Group 0 dents").get_by_role("button", name="Do again").click()
    expect(toast(ann)).to_contain_text("Redone: Name Group 0 dents")
    assert set(ann.sizes()) == {"dents", "streaks"}


def test_what_somebody_else_touched_is_asked_about(at: At) -> None:
    ann, ben = at("Ann"), at("Ben")
    ann.rename("dents")
    ben.in_grid("r")
    ben.type("pits")
    expect(ben.page.get_by_role("alert")).to_contain_text("Somebody else changed these groups")
    assert set(ben.sizes()) == {"dents", "Group 1"}
    ben.page.get_by_role("button", name="Discard it").click()


def test_one_queue_for_two(at: At, server: Server) -> None:
    ann, ben = at("Ann", "#queue"), at("Ben", "#queue")

    def shown(desk: Desk) -> set[int]:
        expect(desk.page.locator(".question-head h1")).not_to_be_empty()
        cells = desk.page.locator(".queue-page .cell").all()
        return {int(cell.get_attribute("data-row") or -1) for cell in cells}

    mine, theirs = shown(ann), shown(ben)
    assert mine
    assert theirs
    assert not mine & theirs
    ben.press("Enter")
    ben.saved("Accept")
    expect(ben.page.locator(".question-head")).to_be_visible()
    # What Ben answered leaves Ann's question as it is, also when her page learns of it.
    ann.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(toast(ann)).to_contain_text("Changed by somebody else: Accept")
    assert shown(ann) == mine
    ann.press("Enter")
    ann.saved("Accept")
    assert set(ann.state()["decided"]) == mine | theirs
    # Who leaves the page gives the question back.
    ann.go("Groups")
    ben.go("Groups")
    assert soon(ann.page, lambda: api(server, "queue")["others"] == 0)


def test_severities_and_notes(at: At) -> None:
    ann = at("Ann")
    ann.page.get_by_label("Severity of the group").select_option("critical")
    ann.saved("Call Group 0 critical")
    ann.page.get_by_role("button", name="Note…").click()
    ann.type(HOSTILE)
    ann.saved("Note on Group 0")
    ann.in_grid("t")
    ann.type("deep " + HOSTILE)
    ann.saved("Note on 1 image")
    ben = at("Ben")
    expect(ben.page.locator(".group-head .note")).to_contain_text(HOSTILE)
    expect(ben.page.get_by_label("Severity of the group")).to_have_value("critical")
    expect(ben.page.locator(".rail-item .severity")).to_have_text("critical")
    noted = ben.grid().get_by_role("option", name=f"note: deep {HOSTILE}")
    expect(noted.locator(".sign.noted")).to_be_visible()
    noted.dblclick()
    expect(ben.page.locator("dialog .facts")).to_contain_text(f"deep {HOSTILE}")
    ben.press("t")
    ben.type("")
    ben.saved("Remove the note")
    ben.press("Escape")
    expect(ben.page.locator(".sign.noted")).to_have_count(0)


def test_hostile_names(at: At) -> None:
    ann = at(HOSTILE)
    ann.rename(HOSTILE)
    ann.go("History")
    expect(ann.page.locator(".history-item .who").first).to_have_text(HOSTILE)
    expect(ann.page.locator("#person")).to_have_attribute("title", f"You are {HOSTILE}. Change it.")
    assert ann.page.locator("img[src=x]").count() == 0


def test_an_edit_that_waits_is_not_made_on_what_its_author_never_saw(
    at: At, server: Server
) -> None:
    """The answer to Ben's first edit holds Ann's; his second one was made before he saw it."""
    ben = at("Ben")
    now = server.state()
    first, second = [row for row, group in enumerate(now["labels"]) if group == 0][:2]
    done: list[bool] = []

    def ann_is_faster(route: Any) -> None:
        if not done:
            done.append(True)
            note = {"image": second, "note": "scrap"}
            server.post("edits", version=now["version"], kind="note", payload=note, author="Ann")
        route.continue_()

    ben.page.route("**/api/edits", ann_is_faster)
    ben.page.evaluate(
        """async ([first, second]) => {
            const loaded = performance.getEntriesByType("resource").map((one) => one.name);
            const { edit } = await import(loaded.find((name) => name.includes("/editing.js")));
            edit("accept", { images: [first] }, "accept an image");
            edit("move", { images: [second], to: 1 }, "move an image");
        }""",
        [first, second],
    )
    banner = ben.page.locator("#banner")
    expect(banner).to_contain_text("Somebody else changed these groups first. Not saved yet")
    after = server.state()
    assert after["version"] == now["version"] + 2
    assert (first in after["decided"], second in after["decided"]) == (True, False)
    banner.get_by_role("button", name="Apply it now").click()
    ben.saved("Move 1 image")
    assert server.state()["labels"][second] == 1

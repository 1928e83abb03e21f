"""The health check in a real browser: above the groups, on the page Accuracy, beside the groups
that it is about, and in the report."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "playwright", reason="no playwright: pip install playwright, and have a Chromium on PATH"
)

from playwright.sync_api import Browser, Locator, expect

from flawsort import open_run
from flawsort.health.record import Finding, Health
from flawsort.outputs.report import render_report
from flawsort.runs.folder import save_run
from flawsort.runs.run import Run
from helpers.review_desk import NEEDS_CHROMIUM, Desk, Open, Server

pytestmark = NEEDS_CHROMIUM

TITLE = "Before you trust the groups"


@pytest.fixture(scope="module")
def run(saved: Path) -> Run:
    """The plates, with findings about one group, about some images, and about all."""
    run = open_run(saved)
    second = tuple(name for name, label in zip(run.names, run.labels, strict=True) if label == 1)
    findings = (
        Finding("few-normals", "There are few <b>good</b> ones.", "Give more.", 5.0),
        Finding(
            "heat-at-border", "It is at the border.", "Leave it out.", 0.6, None, run.names[:3]
        ),
        Finding("group-follows", "Group 1 is told by light.", "Merge it.", 9.0, 1, second),
    )
    return dataclasses.replace(run, health=Health(findings, ("Sizes are not known.",)))


@pytest.fixture
def shop(run: Run, tmp_path: Path, tabs: Open) -> Iterator[Desk]:
    save_run(run, tmp_path / "plates")
    server = Server(tmp_path / "plates")
    server.start()
    try:
        yield tabs(server, "#groups/0")
    finally:
        server.end()


def notice(desk: Desk) -> Locator:
    return desk.page.get_by_role("region", name=TITLE)


def on_accuracy(desk: Desk) -> Locator:
    desk.go("Accuracy")
    return desk.page.locator(".accuracy-page section.health")


def test_findings_are_shown_until_they_are_read(shop: Desk, run: Run) -> None:
    assert run.health is not None
    expect(notice(shop).get_by_role("listitem")).to_have_count(3)
    for item, finding in zip(
        notice(shop).get_by_role("listitem").all(), run.health.findings, strict=True
    ):
        expect(item).to_contain_text(f"{finding.sentence} {finding.advice}")
    notice(shop).get_by_role("button", name="Got it").click()
    expect(notice(shop)).to_have_count(0)
    shop.page.reload()
    expect(shop.grid().get_by_role("option").first).to_be_visible()
    expect(notice(shop)).to_have_count(0)
    section = on_accuracy(shop)
    expect(section.get_by_role("listitem")).to_have_count(3)
    expect(section).to_contain_text("Sizes are not known.")


def test_the_group_and_the_images_in_question(shop: Desk) -> None:
    notice(shop).get_by_role("button", name="Show the group").click()
    expect(shop.page).to_have_url(re.compile("#groups/1$"))
    notice(shop).get_by_role("button", name="Select 3 images").click()
    expect(shop.page).to_have_url(re.compile("#groups/all$"))
    expect(shop.grid().locator("[aria-selected=true]")).to_have_count(3)
    assert shop.grid().locator("[aria-selected=true]").evaluate_all(
        "(found) => found.map((one) => Number(one.dataset.row)).sort()"
    ) == [0, 1, 2]


def test_a_group_with_a_finding_is_marked(shop: Desk) -> None:
    rail = shop.page.get_by_role("navigation", name="Groups")
    marks = rail.get_by_role("img", name="Group 1 is told by light.")
    expect(marks).to_have_count(1)
    expect(
        rail.locator('[data-group="1"]').get_by_role("img", name="told by light")
    ).to_be_visible()
    head = shop.page.locator(".group-head")
    expect(head).not_to_contain_text("told by light")
    rail.locator('[data-group="1"]').click()
    expect(head).to_contain_text("Group 1 is told by light. Merge it.")


def test_after_another_cut_findings_are_of_the_first_one(shop: Desk) -> None:
    now = shop.server.state()
    shop.server.post("edits", version=now["version"], kind="cut", payload={"k": 3})
    shop.page.reload()
    items = notice(shop).get_by_role("listitem")
    expect(items.nth(2)).to_contain_text(
        "Of the first 2 groups, not of those shown now: Group 1 is"
    )
    expect(items.nth(2).get_by_role("button")).to_have_text("Select 7 images")
    expect(items.nth(0)).not_to_contain_text("first 2 groups")
    expect(shop.page.locator(".finding-mark")).to_have_count(0)


def test_without_findings_there_is_no_notice(run: Run, tmp_path: Path, tabs: Open) -> None:
    save_run(dataclasses.replace(run, health=Health()), tmp_path / "plates")
    server = Server(tmp_path / "plates")
    server.start()
    try:
        desk = tabs(server, "#groups/0")
        expect(desk.grid().get_by_role("option").first).to_be_visible()
        expect(notice(desk)).to_have_count(0)
        expect(desk.page.locator(".finding-mark")).to_have_count(0)
        expect(on_accuracy(desk)).to_contain_text("Nothing was found that speaks against them.")
    finally:
        server.end()


def test_the_report_has_all_of_it(run: Run, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render_report(run), "utf-8")
    page = browser.new_page()
    try:
        page.goto((tmp_path / "report.html").as_uri())
        section = page.get_by_role("region", name=TITLE)
        expect(section.get_by_role("listitem")).to_have_count(3)
        # Text, and no markup.
        expect(section).to_contain_text("There are few <b>good</b> ones. Give more.")
        expect(section).to_contain_text("Sizes are not known.")
    finally:
        page.close()

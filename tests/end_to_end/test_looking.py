"""Looking closely in a real browser: tiles of the flaw, zoom, outlines, the matching place, and the
next image after a decision; in the review, the report and the book."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "playwright", reason="no playwright: pip install playwright, and have a Chromium on PATH"
)

from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from flawsort import Run, open_run
from flawsort.outputs.report import render_report
from flawsort.runs.folder import save_run
from flawsort.runs.preview import Limits
from helpers.review_desk import NEEDS_CHROMIUM, PATIENCE, Desk, Open, Server, soon

pytestmark = NEEDS_CHROMIUM

LARGE = 2400


@pytest.fixture(scope="module")
def saved(seen_closely: Path) -> Path:
    return seen_closely


@pytest.fixture(scope="module")
def run(saved: Path) -> Run:
    return open_run(saved)


@pytest.fixture
def view(desk: Desk) -> Locator:
    """The large view of the first image of the first group."""
    desk.in_grid("Home", "Enter")
    box = desk.page.locator("dialog.image-view")
    expect(box.locator(".stage .picture.here")).to_be_visible()
    return box


def stage(view: Locator) -> Locator:
    return view.locator(".stage, .box-stage")


def looks_at(view: Locator) -> list[float]:
    """How many times larger than its frame allows the picture is, and the fractions of it that are
    in the middle of the frame."""
    found: list[float] = stage(view).evaluate(
        """(frame) => {
          const a = frame.getBoundingClientRect();
          const b = frame.querySelector(".picture").getBoundingClientRect();
          const fit = Math.min(a.width, a.height * (b.width / b.height));
          const [across, down] = [a.left + a.width / 2 - b.left, a.top + a.height / 2 - b.top];
          return [b.width / fit, across / b.width, down / b.height];
        }"""
    )
    return found


def zoomed(view: Locator, zoom: float, within: float = 0.1) -> None:
    """The picture is shown this large, at once or when it has loaded."""
    soon(view.page, lambda: looks_at(view)[0] == pytest.approx(zoom, rel=within))
    assert looks_at(view)[0] == pytest.approx(zoom, rel=within)


def box_of(desk: Desk, view: Locator) -> list[float]:
    """How large the most unusual place of the image fills the frame, and its middle."""
    source = view.locator(".picture img").first.get_attribute("src") or ""
    row = int(re.findall(r"image/(\d+)", source)[0])
    left, top, right, bottom = desk.page.evaluate(
        f"fetch('api/place/{row}').then((r) => r.json())"
    )["box"]
    return [1 / (right - left), (left + right) / 2, (top + bottom) / 2]


def wheel(page: Page, frame: Locator, across: float, down: float, turn: float) -> None:
    box = frame.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
    page.mouse.wheel(0, turn)


def close(view: Locator, wanted: list[float], within: float = 0.02) -> None:
    """The picture is shown so large and there, at once or when it has loaded."""
    soon(view.page, lambda: looks_at(view) == pytest.approx(wanted, abs=within))
    assert looks_at(view) == pytest.approx(wanted, abs=within)


class TestTiles:
    def test_one_key_swaps_the_flaw_and_the_whole(self, desk: Desk, tabs: Open) -> None:
        pictures = desk.grid().locator(".cell img:not(.glow)")
        expect(pictures.first).to_have_attribute("src", re.compile(r"^thumb/"))
        desk.in_grid("v")
        expect(pictures.first).to_have_attribute("src", re.compile(r"^flaw/"))
        heat = desk.grid().locator(".cell img.glow").first
        expect(heat).to_have_attribute("src", re.compile(r"^flaw-heat/"))
        tiles = desk.page.get_by_role("group", name="What tiles show").first
        expect(tiles.get_by_role("button", name="Flaw")).to_have_attribute("aria-pressed", "true")
        # The browser remembers it.
        desk.page.reload()
        expect(pictures.first).to_have_attribute("src", re.compile(r"^flaw/"))
        tiles.get_by_role("button", name="Whole").click()
        expect(pictures.first).to_have_attribute("src", re.compile(r"^thumb/"))

    def test_they_are_in_the_queue_and_beside_two_groups_too(self, desk: Desk) -> None:
        desk.in_grid("v")
        for page in ("Queue", "Compare"):
            desk.go(page)
            shown = desk.page.locator(".page:visible .cell img:not(.glow)").first
            expect(shown).to_have_attribute("src", re.compile(r"^flaw/"))
            desk.press("v")
            expect(shown).to_have_attribute("src", re.compile(r"^thumb/"))
            desk.press("v")

    def test_the_whole_is_shown_where_there_is_no_such_picture(
        self, desk: Desk, context: BrowserContext
    ) -> None:
        context.route(re.compile(r"/flaw/\d+\."), lambda route: route.abort())
        desk.in_grid("v")
        expect(desk.grid().locator(".cell img:not(.glow)").first).to_have_attribute(
            "src", re.compile(r"^thumb/")
        )
        desk.wrong.clear()  # the browser says that it got no picture


class TestZoom:
    def test_the_wheel_zooms_where_the_mouse_is(self, desk: Desk, view: Locator) -> None:
        close(view, [1, 0.5, 0.5])
        wheel(desk.page, stage(view), 0.5, 0.5, -300)
        zoomed(view, np.e, 0.05)
        before = looks_at(view)
        assert before[1:] == pytest.approx([0.5, 0.5], abs=0.02)
        # What is under the mouse stays there.
        wheel(desk.page, stage(view), 0.25, 0.75, -120)
        assert soon(desk.page, lambda: looks_at(view)[0] > before[0])
        assert looks_at(view)[1] < before[1]
        assert looks_at(view)[2] > before[2]
        wheel(desk.page, stage(view), 0.5, 0.5, 3000)
        close(view, [1, 0.5, 0.5])

    def test_next_and_previous_keep_it(self, desk: Desk, view: Locator) -> None:
        wheel(desk.page, stage(view), 0.4, 0.6, -400)
        assert soon(desk.page, lambda: looks_at(view)[0] > 3)
        before = looks_at(view)
        for key in ("ArrowRight", "ArrowLeft"):
            name = view.get_attribute("aria-label")
            desk.press(key)
            expect(view).not_to_have_attribute("aria-label", name or "")
            expect(view.locator(".stage .picture.here")).to_be_visible()
            close(view, before)

    def test_dragging_keys_and_buttons(self, desk: Desk, view: Locator) -> None:
        desk.press("+", "+", "+")
        zoom, across, down = looks_at(view)
        assert zoom == pytest.approx(1.5**3, rel=0.02)
        box = stage(view).bounding_box()
        assert box is not None
        desk.page.mouse.move(box["x"] + 300, box["y"] + 300)
        desk.page.mouse.down()
        desk.page.mouse.move(box["x"] + 200, box["y"] + 240, steps=4)
        desk.page.mouse.up()
        assert looks_at(view)[1] > across + 0.02
        assert looks_at(view)[2] > down + 0.02
        desk.press("Shift+ArrowLeft")
        assert looks_at(view)[1] < across + 0.02
        desk.press("-")
        assert looks_at(view)[0] == pytest.approx(1.5**2, rel=0.02)
        view.get_by_role("button", name="All", exact=True).click()
        close(view, [1, 0.5, 0.5])
        expect(view).to_contain_text("1 of 7")  # no key went to another image

    def test_to_the_flaw_and_back(self, desk: Desk, view: Locator) -> None:
        wanted = box_of(desk, view)
        desk.press("z")
        expect(stage(view)).to_have_class(re.compile("zoomed"))
        zoomed(view, wanted[0], 0.05)
        assert looks_at(view)[1:] == pytest.approx(wanted[1:], abs=0.05)
        desk.press("z")
        close(view, [1, 0.5, 0.5])

    def test_the_flaw_is_followed_until_one_moves(self, desk: Desk, view: Locator) -> None:
        """Each image has its flaw elsewhere: the same place would show bare material."""
        alone = []  # what it shows for each image alone
        for place in range(1, 6):
            expect(view).to_contain_text(f"{place} of 7")
            expect(view.locator(".stage .picture.here")).to_be_visible()
            desk.press("z")
            expect(stage(view)).to_have_class(re.compile("zoomed"))
            alone.append(looks_at(view))
            desk.press("z")
            close(view, [1, 0.5, 0.5])
            desk.press("ArrowRight")
        desk.press(*["ArrowLeft"] * 5)
        expect(view).to_contain_text("1 of 7")
        desk.press("z")
        for wanted in alone:
            close(view, wanted, 0.03)
            desk.press("ArrowRight")
        assert np.ptp([one[1:] for one in alone], axis=0).max() > 0.1
        expect(view).to_contain_text("6 of 7")
        expect(view.locator(".stage .picture.here")).to_be_visible()
        desk.press("+")
        before = looks_at(view)
        name = view.get_attribute("aria-label")
        desk.press("ArrowRight")
        expect(view).not_to_have_attribute("aria-label", name or "")
        expect(view.locator(".stage .picture.here")).to_be_visible()
        box_of(desk, view)  # by now the page would know where the flaw of this one is
        close(view, before)

    def test_two_fingers(self, desk: Desk, view: Locator) -> None:
        pinch(stage(view), apart=(60, 180))
        zoomed(view, 3)
        assert looks_at(view)[1:] == pytest.approx([0.5, 0.5], abs=0.05)
        pinch(stage(view), apart=(180, 30))
        close(view, [1, 0.5, 0.5])

    def test_to_the_pixels_of_the_file(self, run: Run, tmp_path: Path, tabs: Open) -> None:
        """A photo of 2,400 pixels, of which the page first has 1,600."""
        with Image.open(run.table["path"][0]) as plate:
            plate.resize((LARGE, LARGE), Image.Resampling.NEAREST).save(tmp_path / "large.png")
        table = {**run.table, "path": [str(tmp_path / "large.png"), *run.table["path"][1:]]}
        digest = hashlib.sha256((tmp_path / "large.png").read_bytes()).hexdigest()
        table["sha256"] = [digest, *table["sha256"][1:]]
        save_run(dataclasses.replace(run, table=table), tmp_path / "plates")
        server = Server(tmp_path / "plates")
        server.start()
        try:
            desk = tabs(server, "#groups/all?sort=name")
            desk.in_grid("Home", "Enter")
            view = desk.page.locator("dialog.image-view")
            expect(view.locator(".stage .picture.here")).to_be_visible()
            words = view.locator(".zoom-words")
            fully = view.locator('.picture img[src^="full/"]')
            assert fully.count() == 0  # the reduced one has enough pixels
            view.get_by_role("button", name="1:1").click()
            expect(words).to_have_text("100%")
            for _ in range(3):
                wheel(desk.page, stage(view), 0.5, 0.5, -200)
            expect(fully).to_have_count(1)
            expect(view.locator(".picture[data-sharp=there]")).to_be_visible()
            assert fully.evaluate("(image) => image.naturalWidth") == LARGE
            assert int((words.text_content() or "0").rstrip("%")) > 300
            view.get_by_role("button", name="1:1").click()
            expect(words).to_have_text("100%")
            shown = stage(view).locator(".picture").bounding_box()
            assert shown is not None
            assert shown["width"] == pytest.approx(LARGE, abs=2)
        finally:
            server.end()


PINCH = """(frame, [from, to]) => {
  const box = frame.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  frame.setPointerCapture = () => {};
  const send = (type, id, at) => frame.dispatchEvent(new PointerEvent(type, {
    pointerId: id, pointerType: "touch", clientX: x + at, clientY: y, bubbles: true,
  }));
  send("pointerdown", 11, -from / 2);
  send("pointerdown", 12, from / 2);
  for (let step = 1; step <= 10; step++) {
    const apart = from + ((to - from) * step) / 10;
    send("pointermove", 11, -apart / 2);
    send("pointermove", 12, apart / 2);
  }
  send("pointerup", 11, -to / 2);
  send("pointerup", 12, to / 2);
}"""


def pinch(frame: Locator, apart: tuple[int, int]) -> None:
    """Two fingers in the middle of a frame, from this far apart to that."""
    frame.evaluate(PINCH, list(apart))


class TestHeat:
    def test_as_an_outline_or_as_colours(self, desk: Desk, view: Locator) -> None:
        colours, lines = view.locator(".stage img.glow"), view.locator(".stage svg.outline path")
        expect(colours).to_have_count(1)
        desk.press("e")
        expect(lines).to_have_count(2)
        expect(colours).to_have_count(0)
        assert "M" in (lines.last.get_attribute("d") or "")
        desk.press("e")
        expect(colours).to_have_count(1)
        # An outline is heat, too.
        desk.press("h")
        expect(colours).to_have_count(0)
        desk.press("e")
        expect(lines).to_have_count(2)
        desk.press("Escape")
        expect(desk.grid().locator("svg.outline").first).to_be_visible()
        desk.in_grid("e")
        expect(desk.grid().locator("svg.outline")).to_have_count(0)

    def test_the_line_goes_around_the_flaw(self, desk: Desk, view: Locator) -> None:
        desk.press("e")
        line = view.locator(".stage svg.outline")
        expect(line).to_be_visible()
        around = line.locator("path").last.bounding_box()
        flaw = view.locator(".region").first.bounding_box()
        assert around is not None
        assert flaw is not None
        assert around["x"] < flaw["x"] + flaw["width"] / 2 < around["x"] + around["width"]
        assert around["y"] < flaw["y"] + flaw["height"] / 2 < around["y"] + around["height"]


BRIGHT = """(canvas) => {
  const context = canvas.getContext("2d");
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const levels = [];
  for (let i = 0; i < data.length; i += 4) levels.push(data[i]);
  levels.sort((a, b) => a - b);
  return { most: levels.at(-1), middle: levels[levels.length >> 1] };
}"""


class TestBeside:
    def test_the_matching_place_and_the_difference(
        self, desk: Desk, view: Locator, run: Run
    ) -> None:
        place = view.get_by_role("region", name="The most unusual place")
        expect(place.locator("figcaption")).to_have_text(
            ["Here", "Best matching known-good image", "Difference"]
        )
        expect(place.locator(".hint")).to_have_text(re.compile(r"^From: good\d+\.png$"))
        levels = place.locator("canvas.difference").evaluate(BRIGHT)
        assert levels["most"] == 255  # at the flaw
        assert levels["middle"] < 90  # and nothing but noise beside it
        first = place.locator("img").first.get_attribute("src")
        desk.press("ArrowRight")
        expect(place.locator("img").first).not_to_have_attribute("src", first or "")

    def test_alike_pictures_do_not_differ(self, desk: Desk) -> None:
        """Another exposure is no difference, either; half of what shows fully is half as bright."""
        for spot, most in ((0, 0), (32, 127)):
            desk.page.evaluate(DIFFER, spot)
            levels = desk.page.locator("body > canvas.difference").evaluate(BRIGHT)
            assert levels["most"] == pytest.approx(most, abs=2)
            assert levels["middle"] == 0


DIFFER = """async (spot) => {
  const { differenceOf } = await import("/static/difference.js");
  const drawn = async (level, more) => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: 60, height: 60 });
    const context = canvas.getContext("2d");
    context.fillStyle = `rgb(${level}, ${level + 10}, ${level})`;
    context.fillRect(0, 0, 60, 60);
    context.fillStyle = `rgb(${level}, ${level + 10 + more}, ${level})`;
    context.fillRect(20, 20, 20, 20);
    const image = new Image();
    image.src = canvas.toDataURL();
    await image.decode();
    return image;
  };
  document.querySelector("body > canvas.difference")?.remove();
  document.body.append(differenceOf(await drawn(100, 0), await drawn(130, spot)));
}"""


class TestDecisions:
    def test_after_a_decision_the_next_image_comes(self, desk: Desk, view: Locator) -> None:
        names = [view.get_attribute("aria-label")]
        for place, key in enumerate(("a", "n", "2"), start=2):
            desk.press(key)
            expect(view).to_contain_text(f"{place} of 7")
            names.append(view.get_attribute("aria-label"))
        assert len(set(names)) == 4
        assert len(desk.state()["decided"]) == 3
        # Going back and undoing stay on an image.
        desk.press("ArrowLeft", "Control+z")
        desk.saved("normal")
        expect(view).to_contain_text("3 of 7")

    def test_the_last_one_stays(self, desk: Desk, view: Locator) -> None:
        for _ in range(6):
            desk.press("ArrowRight")
        expect(view).to_contain_text("7 of 7")
        desk.press("a")
        desk.saved("accept 1 image")
        expect(view).to_contain_text("7 of 7")
        expect(view.locator(".facts")).to_contain_text("decided")

    def test_on_a_phone(self, desk: Desk) -> None:
        desk.page.set_viewport_size({"width": 400, "height": 800})
        desk.in_grid("Home", "Enter")
        view = desk.page.locator("dialog.image-view")
        expect(view.locator(".stage .picture.here")).to_be_visible()
        pinch(stage(view), apart=(40, 120))
        zoomed(view, 3)
        view.get_by_role("button", name="Accept").click()
        expect(view).to_have_attribute("aria-label", re.compile("png"))
        desk.saved("accept 1 image")
        expect(view).to_contain_text("2 of 7")
        zoomed(view, 3)
        assert desk.page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.fixture
def file(browser: Browser, tmp_path: Path) -> Iterator[Callable[[str], Page]]:
    """Opens a page that is one file; it may ask for nothing else."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(PATIENCE)
    asked: list[str] = []
    wrong: list[str] = []

    def open_file(html: str) -> Page:
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield open_file
    context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith("data:")] == asked[:1]


class TestReport:
    @pytest.fixture
    def report(self, run: Run, file: Callable[[str], Page]) -> Page:
        return file(render_report(run))

    def test_one_key_swaps_the_flaw_and_the_whole(self, report: Page, run: Run) -> None:
        first = report.locator(".thumb img").first
        whole = first.get_attribute("src")
        report.keyboard.press("v")
        expect(first).not_to_have_attribute("src", whole or "")
        expect(report.locator("#tile-flaw")).to_have_attribute("aria-pressed", "true")
        report.keyboard.press("e")
        expect(report.locator(".thumb svg.outline").first).to_be_attached()
        report.locator("#tile-whole").click()
        expect(first).to_have_attribute("src", whole or "")

    def test_zoom_the_match_and_the_next_one(self, report: Page) -> None:
        report.locator(".thumb").first.click()
        box = report.locator("#box")
        expect(box.locator("figcaption")).to_have_count(3)
        expect(box.locator("figcaption").nth(1)).to_have_text(re.compile("known-good image: good"))
        levels = box.locator("canvas.difference").evaluate(BRIGHT)
        assert levels["most"] == 255
        report.keyboard.press("z")
        before = looks_at(box)
        assert before[0] > 1.2
        wheel(report, stage(box), 0.5, 0.5, -200)
        before = looks_at(box)
        report.keyboard.press("ArrowRight")
        expect(report.locator("#box-place")).to_have_text(re.compile("^2 of"))
        close(box, before)
        pinch(stage(box), apart=(200, 10))
        close(box, [1, 0.5, 0.5])

    def test_the_flaw_is_followed(self, report: Page) -> None:
        report.locator(".thumb").first.click()
        box = report.locator("#box")
        report.keyboard.press("z")
        seen = []
        for place in (2, 3, 4):
            report.keyboard.press("ArrowRight")
            expect(report.locator("#box-place")).to_have_text(re.compile(f"^{place} of"))
            followed = looks_at(box)
            report.keyboard.press("z")
            close(box, [1, 0.5, 0.5])
            report.keyboard.press("z")  # what it shows for this image alone
            close(box, followed, 0.03)
            seen.append(followed[1:])
        assert np.ptp(seen, axis=0).max() > 0.05

    def test_the_close_up_lies_where_it_was_cut(self, report: Page) -> None:
        """In the large view it replaces a part of the small picture, and shows the same there."""
        report.locator(".thumb").first.click()
        shown = report.locator("#box .picture img")
        expect(shown).to_have_count(2)
        apart: float = shown.last.evaluate(OVERLAP)
        assert apart < 12

    def test_a_run_without_close_ups(self, run: Run, file: Callable[[str], Page]) -> None:
        page = file(render_report(dataclasses.replace(run, close_ups=None, matches=None)))
        expect(page.locator("#tiles")).to_be_hidden()
        page.keyboard.press("v")
        page.locator(".thumb").first.click()
        expect(page.locator("#box .picture img")).to_have_count(1)
        expect(page.locator("#box figure")).to_have_count(0)


OVERLAP = """async (fine) => {
  const whole = fine.parentElement.querySelector("img");
  await Promise.all([fine.decode(), whole.decode()]);
  const side = (name, of) => (parseFloat(fine.style[name]) / 100) * of;
  const [wide, high] = [whole.naturalWidth, whole.naturalHeight];
  const size = [Math.round(side("width", wide)), Math.round(side("height", high))];
  const pixels = (image, ...from) => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: size[0], height: size[1] });
    const context = canvas.getContext("2d");
    context.drawImage(image, ...from, 0, 0, ...size);
    return context.getImageData(0, 0, ...size).data;
  };
  const one = pixels(fine, 0, 0, fine.naturalWidth, fine.naturalHeight);
  const from = [side("left", wide), side("top", high), side("width", wide), side("height", high)];
  const other = pixels(whole, ...from);
  return one.reduce((sum, value, i) => sum + Math.abs(value - other[i]), 0) / one.length;
}"""


class TestBook:
    def test_one_key_swaps_the_flaw_and_the_whole(
        self, run: Run, saved: Path, file: Callable[[str], Page], tmp_path: Path
    ) -> None:
        run.export("book", tmp_path / "book.html")
        page = file((tmp_path / "book.html").read_text("utf-8"))
        flaws = page.locator("figure .of-flaw:not(.difference):visible")
        whole, apart = page.locator(".of-whole:visible"), page.locator(".difference canvas:visible")
        expect(flaws).to_have_count(0)
        n = whole.count()
        assert n
        page.keyboard.press("v")
        expect(whole).to_have_count(0)
        expect(flaws).to_have_count(n)  # the place and its match, for the image and its heat
        expect(apart).to_have_count(n // 2)
        levels = apart.first.evaluate(BRIGHT)
        assert levels["most"] == 255
        assert levels["middle"] < 90
        page.get_by_role("button", name="Show the flaws alone").click()
        expect(flaws).to_have_count(0)
        expect(apart).to_have_count(0)
        page.keyboard.press("v")
        expect(apart).to_have_count(n // 2)  # drawn once

    def test_without_close_ups_it_runs_nothing(self, run: Run, tmp_path: Path) -> None:
        bare = dataclasses.replace(run, close_ups=None, matches=None)
        bare.export("book", tmp_path / "book.html")
        text = (tmp_path / "book.html").read_text("utf-8")
        assert "<script" not in text
        assert "Show the flaws alone" not in text


def test_the_report_says_when_it_shows_an_excerpt(run: Run) -> None:
    shown = render_report(run, limits=Limits(images=6, of_a_group=2))
    assert "This page shows 6 of 14 images" in shown

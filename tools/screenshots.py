"""Take the screenshots of the review app for docs/, at 1440 and 400 pixels.

    pip install playwright   # and a Chromium on PATH, or named in FLAWSORT_CHROMIUM
    python tools/screenshots.py [FOLDER]

Makes the demo run with new images, in FOLDER (reused if it exists) or in a temporary folder, names
its groups as a person would, and writes docs/images/review-*.jpg.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, sync_playwright

from flawsort.cli.sample_images import make_demo_images
from flawsort.labels.accuracy import next_audit
from flawsort.labels.session import Session
from flawsort.review.responses import fingerprint

DOCS = Path(__file__).parents[1] / "docs/images"
CHROMIUM = os.environ.get("FLAWSORT_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SERVER = """
import sys
from pathlib import Path
from flawsort.review.server import serve

serve([Path(sys.argv[1])], no_token=True, open_browser=False,
      announce=lambda address: print(address, flush=True))
"""
SIZES = {1440: 900, 400: 860}
QUALITY = 70
LARGEST = 170_000
AUDITED = 14
PERSON, COLLEAGUE = "Ada", "Grace"
DAYS = ("2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05", "2026-03-06")


@dataclass(frozen=True)
class Shot:
    """name: of the file. place: the part of the address after the run. prepare: actions on the page
    before the shot. widths: in pixels. dark: use dark colours."""

    name: str
    place: str
    prepare: Callable[[Page], None] = lambda page: None
    widths: tuple[int, ...] = (1440, 400)
    dark: bool = False


def select_some(page: Page) -> None:
    """Select a few images by keys, only on the wide page: at 400 pixels the bar covers them."""
    if page.viewport_size and page.viewport_size["width"] > 800:
        page.locator(".groups-page .grid").focus()
        for key in ("ArrowRight", "Space", "ArrowRight", "Space", "ArrowRight"):
            page.keyboard.press(key)


def open_image(page: Page) -> None:
    page.locator(".groups-page .grid").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator("dialog .alike .thumb").nth(11).wait_for()


def look_closely(page: Page) -> None:
    """Zoom to the flaw, with the heat as an outline."""
    open_image(page)
    page.keyboard.press("e")
    page.keyboard.press("z")
    page.locator("dialog canvas.difference").wait_for()


def open_new(page: Page) -> None:
    page.locator(".new-page .thumb").first.click()
    page.locator("dialog .picture.here").wait_for()


def draw_lasso(page: Page) -> None:
    """Draw around the upper left corner of the map, where many images lie."""
    box = page.locator("canvas.map").bounding_box()
    assert box is not None
    angles = np.linspace(0, 2 * np.pi, 40)
    radius = 0.2 * min(box["width"], box["height"])
    middle = page.evaluate(MIDDLE_OF_SECOND_GROUP)
    places = [(middle[0] + radius * np.cos(a), middle[1] + radius * np.sin(a)) for a in angles]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place)
    page.mouse.up()
    page.mouse.move(box["x"] + 5, box["y"] + 5)


MIDDLE_OF_SECOND_GROUP = """async () => {
  const get = (path) => fetch(path).then((reply) => reply.json());
  const [run, state] = await Promise.all(["api/run", "api/state"].map(get));
  const raw = Uint8Array.from(atob(run.layout), (c) => c.charCodeAt(0));
  const layout = new Uint16Array(raw.buffer);
  const rows = state.labels.flatMap((id, row) => (id === 1 ? [row] : []));
  const total = (axis) => rows.reduce((sum, row) => sum + layout[2 * row + axis], 0);
  const mean = (axis) => total(axis) / rows.length / 65535;
  const box = document.querySelector("canvas.map").getBoundingClientRect();
  const span = Math.min(box.width, box.height - 62) - 52;
  const [across, down] = [box.left + box.width / 2, box.top + (box.height - 62) / 2];
  return [across + (mean(0) - .5) * span, down + (mean(1) - .5) * span];
}"""


def cut_finer(page: Page) -> None:
    for _ in range(2):
        page.get_by_role("button", name="One group more").click()


SHOTS = (
    Shot("groups", "#groups/1", select_some),
    Shot("groups-dark", "#groups/3", widths=(1440,), dark=True),
    Shot("image", "#groups/1", open_image),
    Shot("close", "#groups/1", look_closely),
    Shot("flaws", "#groups/1", lambda page: page.keyboard.press("v"), widths=(1440,)),
    Shot("map", "#map", draw_lasso),
    Shot("tree", "#tree", cut_finer),
    Shot("queue", "#queue"),
    Shot("accuracy", "#accuracy"),
    Shot("audit", "#accuracy", lambda page: page.keyboard.press("b")),
    Shot("new", "#new"),
    Shot("new-image", "#new", open_new, widths=(1440,)),
    Shot("verdict", "#new", lambda page: page.locator(".verdict").scroll_into_view_if_needed()),
    Shot("export", "#export"),
    Shot("history", "#history"),
    Shot("keys", "#groups/1", lambda page: page.keyboard.press("?"), widths=(1440,)),
)


def main() -> None:
    if CHROMIUM is None:
        sys.exit("No Chromium found: install it, or set FLAWSORT_CHROMIUM to its path.")
    DOCS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(sys.argv[1] if len(sys.argv) > 1 else temporary) / "demo"
        if not place.exists():
            make_run(place)
        with serving(place / "runs") as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            take(browser, address)
            browser.close()


def take(browser: Browser, address: str) -> None:
    for width, height in SIZES.items():
        with page_of(browser, width, height) as page:
            page.goto(address)
            write(page, f"review-runs-{width}.jpg")
    for shot in SHOTS:
        for width in shot.widths:
            with page_of(browser, width, SIZES[width], dark=shot.dark) as page:
                page.goto(f"{address}r/plates/{shot.place}")
                page.locator("html[data-ready]").wait_for(state="attached")
                page.wait_for_timeout(700)
                shot.prepare(page)
                write(page, f"review-{shot.name}-{width}.jpg")


@contextmanager
def page_of(browser: Browser, width: int, height: int, *, dark: bool = False) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    context.add_init_script(f"""localStorage.setItem("flawsort.person", "{PERSON}");
        sessionStorage.setItem("flawsort.asker", "shots");""")
    yield context.new_page()
    context.close()


def write(page: Page, name: str) -> None:
    """Save the page as a JPEG. Exits if the file is too large for the repository."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        picture.convert("RGB").save(DOCS / name, quality=QUALITY, optimize=True)
    size = (DOCS / name).stat().st_size
    print(f"{name}  {size / 1000:.0f} kB")
    if size > LARGEST:
        sys.exit(f"{name} has {size:,} bytes; at most {LARGEST:,} are allowed.")


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a server over a folder of runs."""
    command = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


# ---- The run that is shown ----


def make_run(place: Path) -> None:
    """Make runs/plates with names and new images, and a second run to choose from."""
    flawsort("demo", "-o", place / "made")
    (place / "runs").mkdir(parents=True)
    shutil.copytree(place / "made/run", place / "runs/plates")
    shutil.copytree(place / "made/run", place / "runs/plates-first-try")
    make_new_images(place / "new")
    run = place / "runs/plates"
    flawsort("assign", place / "new", "--run", run, "--keep", "week-10", "--by", "folder")
    label(run, place / "made/truth.csv")


def flawsort(*arguments: str | Path) -> None:
    code = "from flawsort.cli import main; main()"
    words = [str(argument) for argument in arguments]
    subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.DEVNULL)


def make_new_images(folder: Path) -> None:
    """One folder per day: mostly good parts, more scratches each day, and a new kind at the end."""
    parts, _ = make_demo_images(folder.with_name("more"), random_state=1)
    by_kind = defaultdict(list)
    with (parts.parent / "truth.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            by_kind[row["label"]].append(parts / Path(row["path"]).name)
    others = ("stain", "pits", "edge chip", "missing hole")
    for day, name in enumerate(DAYS):
        last = name == DAYS[-1]
        (folder / name).mkdir(parents=True)
        chosen = [by_kind["good"].pop() for _ in range(4)]
        chosen += [by_kind["scratch"].pop() for _ in range(10 if last else day % 2)]
        chosen += [by_kind[kind].pop() for kind in others for _ in range(1 if last else 2)]
        for source in chosen:
            shutil.copy(source, folder / name / source.name)
    for number in range(5):
        paint(by_kind["edge chip"].pop(), folder / DAYS[-1] / f"painted-{number}.png", number)


def paint(source: Path, output: Path, number: int) -> None:
    """Paint a green streak across a part, which resembles no group of the run."""
    rng = np.random.default_rng(number)
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    pen = ImageDraw.Draw(picture)
    for _ in range(6):
        x, y = rng.integers(40, 210, 2)
        pen.ellipse((x, y, x + 46, y + 18), fill=(20, 200, 60))
    picture.save(output)


def label(run: Path, truth: Path) -> None:
    """Edit the run as a person would: name most groups, decide some images of each, and audit."""
    with truth.open(newline="") as file:
        kind_of = {Path(row["path"]).name: row["label"] for row in csv.DictReader(file)}
    session = Session(run)
    labels, names = session.labelling.labels, session.run.table["name"]
    votes: dict[int, Counter[str]] = defaultdict(Counter)
    for name, group in zip(names, labels.tolist(), strict=True):
        votes[group][kind_of[name]] += 1
    titles = {group: found.most_common(1)[0][0] for group, found in votes.items()}
    flaws = [group for group, title in sorted(titles.items()) if title != "good"]

    def do(kind: str, author: str = PERSON, **payload: object) -> None:
        session.edit(kind, payload, session.version, author)

    good = next(group for group, title in titles.items() if title == "good")
    for group in flaws[:-1]:
        do("name", group=group, name=titles[group])
    for group in (good, *flaws[:-1]):
        for row in np.flatnonzero(labels == group)[: 10 if group == good else 3].tolist():
            do("accept", images=[row])
    do("several", images=np.flatnonzero(labels == flaws[0])[:2].tolist(), groups=[flaws[1]])
    group_of = {title: group for group, title in titles.items()}
    seed = int(fingerprint(session.run), 16)
    for _ in range(AUDITED):
        row = next_audit(session.labelling, seed)
        assert row is not None
        do("audit", COLLEAGUE, image=row, to=group_of[kind_of[names[row]]])
    for group, severity in zip(flaws, ("critical", "minor", "major"), strict=False):
        do("severity", COLLEAGUE, group=group, severity=severity)
    do("note", group=flaws[0], note="Often at the left edge: ask the press shop.")
    do("note", COLLEAGUE, image=int(np.flatnonzero(labels == flaws[0])[0]), note="Deep")
    undone = session.version
    do("move", images=[int(np.flatnonzero(labels == flaws[1])[0])], to=flaws[0])
    session.undo(session.version, COLLEAGUE, of=undone)
    session.close()


if __name__ == "__main__":
    main()

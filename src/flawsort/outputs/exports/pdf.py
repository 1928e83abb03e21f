"""The defect book as a PDF, printed by an installed Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from flawsort.core.errors import OptionError
from flawsort.core.records import SetAside
from flawsort.outputs.exports.book import render_book
from flawsort.outputs.exports.content import Content
from flawsort.outputs.exports.writing import Link

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VARIABLE = "FLAWSORT_CHROMIUM"
SECONDS = 300

_DATE = re.compile(rb"\(D:\d{14}[^)]*\)")


def write(content: Content, path: Path, link: Link) -> list[SetAside]:
    """The book as a PDF file."""
    print_page(render_book(content), path)
    return []


def print_page(html: str, path: Path) -> None:
    """Write a page that fetches nothing as a PDF. The same page gives the same bytes."""
    browser = find_browser()
    with tempfile.TemporaryDirectory(prefix="flawsort-") as folder:
        page, printed = Path(folder) / "page.html", Path(folder) / "page.pdf"
        page.write_text(html, "utf-8")
        command = [
            browser,
            "--headless",
            "--disable-gpu",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
            f"--print-to-pdf={printed}",
        ]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium does not start as root with a sandbox
        command.append(page.as_uri())
        try:
            answer = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OptionError(f"'{browser}' could not print the book: {error}.") from error
        if not printed.is_file():
            lines = answer.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
            raise OptionError(
                f"'{browser}' could not print the book. Its last message: {lines[-1]}. "
                f"Name another browser in {VARIABLE}, or export 'book' and print that page."
            )
        path.write_bytes(_undated(printed.read_bytes()))


def find_browser() -> str:
    """The browser to print with: the one in FLAWSORT_CHROMIUM, or one on the path."""
    named = os.environ.get(VARIABLE, "")
    for name in [named] if named else BROWSERS:
        found = shutil.which(name)
        if found:
            return found
    looked = f"'{named}', which {VARIABLE} names," if named else f"{', '.join(BROWSERS)}"
    raise OptionError(
        f"A PDF is printed by Chromium or Chrome. Looked for {looked} and found none. Install one "
        f"(Debian: apt install chromium), name it in {VARIABLE}, or export 'book' and print that."
    )


def _undated(content: bytes) -> bytes:
    """Replace every date by a fixed one of the same length."""
    return _DATE.sub(
        lambda found: b"(D:20000101000000" + b"Z".ljust(len(found[0]) - 18) + b")", content
    )

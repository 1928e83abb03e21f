"""The defect book as a PDF, printed by the Chromium of the system."""

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
            command.append("--no-sandbox")  # as root it does not start with one
        command.append(page.as_uri())
        try:
            answer = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OptionError(f"'{browser}' could not print the book: {error}.") from error
        if not printed.is_file():
            said = answer.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
            raise OptionError(
                f"'{browser}' could not print the book. Its last message: {said[-1]}. "
                f"Name another browser in {VARIABLE}, or export 'book' and print that page."
            )
        path.write_bytes(_undated(printed.read_bytes()))


def find_browser() -> str:
    """The program to print with: what FLAWSORT_CHROMIUM names, or one that is on the path."""
    asked = os.environ.get(VARIABLE, "")
    for name in [asked] if asked else BROWSERS:
        found = shutil.which(name)
        if found:
            return found
    looked = f"'{asked}', which {VARIABLE} names," if asked else f"{', '.join(BROWSERS)}"
    raise OptionError(
        f"A PDF is printed by Chromium or Chrome. Looked for {looked} and found none. Install one "
        f"(Debian: apt install chromium), name it in {VARIABLE}, or export 'book' and print that."
    )


def _undated(content: bytes) -> bytes:
    """Without the time at which it was made, every date of the same length as before."""
    return _DATE.sub(
        lambda found: b"(D:20000101000000" + b"Z".ljust(len(found[0]) - 18) + b")", content
    )

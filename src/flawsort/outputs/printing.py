"""Pages as PDF files, printed by a Chromium that is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from flawsort.core.errors import OptionError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Where installers put a browser that is not on the path, by the system's name in Python.
INSTALLED = {
    "darwin": (
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
        "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    ),
    "win32": (
        r"%ProgramFiles%\Google\Chrome\Application\chrome.exe",
        r"%ProgramFiles(x86)%\Google\Chrome\Application\chrome.exe",
        r"%LocalAppData%\Google\Chrome\Application\chrome.exe",
        r"%ProgramFiles(x86)%\Microsoft\Edge\Application\msedge.exe",
    ),
}
VARIABLE = "FLAWSORT_CHROMIUM"
# A browser asks its makers for updates by itself, even with the first three. So no name of a host
# leads anywhere, and nothing that has an address instead is asked for.
NO_CONNECTION = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-breakpad",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--proxy-server=127.0.0.1:1",
)
SECONDS = 300

_DATE = re.compile(rb"\(D:\d{14}[^)]*\)")


def print_page(html: str, browser: str | None = None) -> bytes:
    """A page that fetches nothing as a PDF. The same page gives the same bytes.

    browser: the program to print with; None for `find_browser`. OptionError if there is none, or if
    it cannot print.
    """
    program = find_browser(browser)
    with tempfile.TemporaryDirectory(prefix="flawsort-") as folder:
        page, printed = Path(folder) / "page.html", Path(folder) / "page.pdf"
        page.write_text(html, "utf-8")
        command = [
            program,
            "--headless",
            "--disable-gpu",
            "--disable-extensions",
            *NO_CONNECTION,
            "--no-first-run",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
            f"--crash-dumps-dir={folder}/crashes",
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
            raise OptionError(f"'{program}' could not print the page: {error}.") from error
        if not printed.is_file():
            lines = answer.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
            raise OptionError(
                f"'{program}' could not print the page. Its last message: {lines[-1]}. "
                f"Name another browser in {VARIABLE}, or write HTML and print that page."
            )
        return _undated(printed.read_bytes())


def find_browser(named: str | None = None) -> str:
    """The browser to print with: the one named, or in FLAWSORT_CHROMIUM, or one that is installed.
    OptionError if there is none."""
    variable = os.environ.get(VARIABLE, "")
    wanted = named or variable
    places = [os.path.expandvars(place) for place in INSTALLED.get(sys.platform, ())]
    for name in [wanted] if wanted else [*BROWSERS, *places]:
        found = shutil.which(name)
        if found:
            return found
    whose = "" if named or not variable else f", which {VARIABLE} names,"
    looked = f"'{wanted}'{whose}" if wanted else ", ".join(BROWSERS)
    raise OptionError(
        f"A PDF is printed by Chromium or Chrome. Looked for {looked} and found none. Install one "
        f"(Debian: apt install chromium), name it in {VARIABLE}, or write HTML and print that page."
    )


def _undated(content: bytes) -> bytes:
    """Replace every date by a fixed one of the same length."""
    return _DATE.sub(
        lambda found: b"(D:20000101000000" + b"Z".ljust(len(found[0]) - 18) + b")", content
    )

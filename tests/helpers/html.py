"""A page as a parser sees it, and as a browser does."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from helpers.plates import LONG

_VOID = frozenset({"meta", "input", "img", "br", "link"})

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium or Chrome on PATH")


class Page(HTMLParser):
    """A page or a piece of one. tags: each with its attributes. texts: each with the element that
    it is in, "" for none. Every element must be closed, and in order."""

    def __init__(self, html: str | bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._stack: list[str] = []
        self.feed(html if isinstance(html, str) else html.decode())
        self.close()
        assert self._stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._stack[-1] if self._stack else "", data))

    @property
    def names(self) -> list[str]:
        """Of the tags."""
        return [tag for tag, _ in self.tags]

    @property
    def attributes(self) -> list[tuple[str, str | None]]:
        """Of all tags: names and values."""
        return [pair for _, attributes in self.tags for pair in attributes.items()]

    @property
    def text(self) -> str:
        """What people read, as it is written."""
        return "".join(text for tag, text in self.texts if tag not in ("script", "style"))

    def words(self) -> str:
        """What people read, with single spaces."""
        return " ".join(self.text.split())

    def data(self) -> dict[str, Any]:
        """Of a report: the first of its two scripts."""
        scripts = [text for tag, text in self.texts if tag == "script"]
        assert len(scripts) == 2
        parsed: dict[str, Any] = json.loads(scripts[0])
        return parsed


def browse(html: str, folder: Path, fragment: str = "") -> str:
    """The page's elements after its script ran, as text; fails if the script complained."""
    (folder / "report.html").write_text(html, encoding="utf-8")
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--v=0",
         "--virtual-time-budget=3000", "--window-size=1440,2000", "--dump-dom",
         f"file://{folder / 'report.html'}{fragment}"],
        capture_output=True, text=True, timeout=LONG, check=False,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def shown_sizes(dom: str) -> list[int]:
    return [int(size) for size in re.findall(r'<article[^>]*data-size="(\d+)"', dom)]

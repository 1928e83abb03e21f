"""A page as a parser sees it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

_VOID = frozenset({"meta", "input", "img", "br", "link"})


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

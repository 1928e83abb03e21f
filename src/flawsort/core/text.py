"""Numbers and names in sentences, and text that can be shown and written whatever it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

# Control characters, halves of characters, and what is no character. XML forbids most of them.
NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def pluralise(number: int, noun: str, *, none: str = "0") -> str:
    """ "1 image", "1,234 images", "2 entries". none: what stands for 0."""
    plural = f"{noun[:-1]}ies" if noun[-1] == "y" and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{f'{number:,}' if number else none} {noun if number == 1 else plural}"


def either(names: Iterable[str]) -> str:
    """ "a", "a or b", "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def clean(text: object) -> str:
    """Text that any file can hold, XML too: what cannot be written becomes U+FFFD."""
    return NO_TEXT.sub("\ufffd", str(text))


def printable(path: object) -> str:
    """A path, or any text, that can always be printed and saved, and told from others: forward
    slashes, and bytes that are no text escaped."""
    text = path.as_posix() if isinstance(path, PurePath) else str(path)
    return text.encode("utf-8", "backslashreplace").decode()


def first_line(error: Exception) -> str:
    """What an error says, as part of a sentence: one line of at most 300 characters."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300].rstrip(".")

"""Numbers and names in sentences, and text that can always be printed and saved."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

# Control characters, surrogates and non-characters. XML forbids most of them.
NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def pluralise(number: int, noun: str, *, none: str = "0") -> str:
    """ "1 image", "1,234 images", "2 entries". none: the text for 0."""
    plural = f"{noun[:-1]}ies" if noun[-1] == "y" and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{f'{number:,}' if number else none} {noun if number == 1 else plural}"


def either(names: Iterable[str]) -> str:
    """ "a", "a or b", "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def clean(text: object) -> str:
    """Text that is valid in any file, including XML. Forbidden characters become U+FFFD."""
    return NO_TEXT.sub("\ufffd", str(text))


def printable(path: object) -> str:
    """A path or other text in a form that can always be printed and saved: with forward slashes,
    and with undecodable bytes escaped, so that different paths stay different."""
    text = path.as_posix() if isinstance(path, PurePath) else str(path)
    return text.encode("utf-8", "backslashreplace").decode()


def first_line(error: Exception) -> str:
    """The first line of an error message without its full stop, at most 300 characters."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300].rstrip(".")

"""Numbers and names in sentences."""

from __future__ import annotations

from collections.abc import Iterable


def pluralise(number: int, noun: str, *, none: str = "0") -> str:
    """ "1 image", "1,234 images", "2 entries". none: what stands for 0."""
    plural = f"{noun[:-1]}ies" if noun[-1] == "y" and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{f'{number:,}' if number else none} {noun if number == 1 else plural}"


def either(names: Iterable[str]) -> str:
    """ "a", "a or b", "a, b or c"."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last

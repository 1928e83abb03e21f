"""Numbers and names in sentences, and text that can always be printed and saved."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePath

# What `printable` makes of a byte that is no UTF-8.
_BYTE = re.compile(r"\\udc([89a-f][0-9a-f])")
# Control characters, surrogates and non-characters. XML forbids most of them.
NO_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Names that Windows reserves for devices, with any suffix, and with spaces before it.
_DEVICES = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3]) *(\.|$)", re.IGNORECASE
)


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


def is_device(name: str) -> bool:
    """Whether Windows takes a file name for a device, such as aux.txt: no file has it there."""
    return _DEVICES.match(name) is not None


def path_of(text: str) -> Path:
    """The path that `printable` gave as that text, with the bytes that the file system has."""
    path = Path(text)
    if not _BYTE.search(text) or os.path.lexists(path):  # a name may really hold such letters
        return path
    return Path(_BYTE.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text))


def shown_size(size: int) -> str:
    """A number of bytes for people."""
    if size < 2**20:
        return f"{size:,} bytes"
    return f"{size / 2**20:.0f} MB" if size < 2**30 else f"{size / 2**30:.1f} GB"


def first_line(error: Exception) -> str:
    """The first line of an error message without its full stop, at most 300 characters."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300].rstrip(".")

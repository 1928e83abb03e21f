"""Safe names for files, folders and labels, whatever the names of groups are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

from flawsort.core.text import NO_TEXT, clean, is_device

# A file name may have 255 bytes; this leaves room for a number after it and for temporary names.
LONGEST_PART = 160

_NO_FILE = re.compile(r'[<>:"/\\|?*]')


def safe_part(text: str) -> str:
    """A file or folder name that is valid and harmless on every system."""
    plain = _NO_FILE.sub("_", NO_TEXT.sub("_", unicodedata.normalize("NFC", text))).strip(" ")
    # Avoid hidden files, command options, and folders that some readers skip.
    plain = re.sub(r"^(\.+|-+|_{2,})", "_", plain)
    plain = _shortened(plain, LONGEST_PART).rstrip(" .")
    if is_device(plain):
        plain = f"_{plain}"
    return plain or "_"


def safe_paths(names: Sequence[str]) -> list[str]:
    """A relative path for each name, with forward slashes and its folders kept. All paths are
    distinct, even where case is ignored."""
    parts = [[safe_part(part) for part in name.split("/") if part] or ["_"] for name in names]
    folders = {_folded("/".join(path[:end])) for path in parts for end in range(1, len(path))}
    return _distinct(["/".join(path) for path in parts], _folded, folders)


def flat_names(names: Sequence[str]) -> list[str]:
    """Like `safe_paths`, without folders: parts/7.png becomes parts_7.png."""
    joined = ["_".join(part for part in name.split("/") if part) for name in names]
    return _distinct([safe_part(name) for name in joined], _folded, set())


def folder_names(titles: Sequence[str], reserved: Sequence[str] = ()) -> list[str]:
    """A folder name for each title; all are distinct, and none is reserved."""
    taken = {_folded(name) for name in reserved}
    return _distinct([safe_part(title) for title in titles], _folded, taken, suffixes=False)


def distinct_titles(titles: Sequence[str], longest: int | None = None) -> list[str]:
    """The titles, cleaned, at most `longest` characters long, and numbered where two are equal."""
    cleaned = [clean(title).strip() or "?" for title in titles]
    if longest is not None:  # with room for a number behind those that are cut
        long = [len(title) > longest for title in cleaned]
        pairs = zip(cleaned, long, strict=True)
        cleaned = [title[: longest - 6].rstrip() if cut else title for title, cut in pairs]
    return _distinct(cleaned, str, set(), suffixes=False)


def _distinct(
    names: Sequence[str], key: Callable[[str], str], taken: set[str], *, suffixes: bool = True
) -> list[str]:
    """The names, made distinct: the second of two equal names gets (2) after its stem."""
    used = taken | {key(name) for name in names}
    seen: set[str] = set(taken)
    last: dict[str, int] = {}
    found = []
    for name in names:
        chosen = name
        if key(name) in seen:
            suffix = PurePosixPath(name).suffix if suffixes else ""
            stem = name.removesuffix(suffix)
            number = last.get(key(name), 1)
            while key(chosen) in used:
                number += 1
                chosen = f"{stem} ({number}){suffix}"
            last[key(name)] = number
        seen.add(key(chosen))
        used.add(key(chosen))
        found.append(chosen)
    return found


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def _shortened(name: str, longest: int) -> str:
    """A name cut to `longest` bytes of UTF-8, with its suffix kept."""
    if len(name.encode()) <= longest:
        return name
    suffix = PurePosixPath(name).suffix
    suffix = suffix if len(suffix.encode()) <= 16 else ""
    kept = name.removesuffix(suffix).encode()[: longest - len(suffix.encode())]
    return kept.decode(errors="ignore") + suffix

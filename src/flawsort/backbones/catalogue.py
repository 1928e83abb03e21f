"""The backbones that ship with flawsort, as data: catalogue.json says where each came from."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TypedDict

# The best of those small enough to ship; docs/evidence/results.md has the measurements.
DEFAULT_BACKBONE = "efficientnet-lite2"

_FOLDER = Path(__file__).parent


class Entry(TypedDict):
    file: str
    sha256: str
    licence: str
    origin: str
    input_size: list[int]


@cache
def catalogue() -> dict[str, Entry]:
    """Name -> what is recorded of it."""
    entries: dict[str, Entry] = json.loads((_FOLDER / "catalogue.json").read_text("utf-8"))
    return entries


def entry_path(entry: Entry) -> Path:
    """Where the file of an entry lies."""
    return _FOLDER / entry["file"]

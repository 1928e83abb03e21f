"""The embedded backbones. catalogue.json records the origin and licence of each."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NotRequired, TypedDict

# The best backbone small enough to ship; docs/evidence/results.md has the measurements.
DEFAULT_BACKBONE = "efficientnet-lite2"
SECOND_BACKBONE = "dinov2-small"

_FOLDER = Path(__file__).parent


class Entry(TypedDict):
    file: str
    sha256: str
    licence: str
    origin: str
    input_size: list[int]
    pooling_kernel: NotRequired[int]


@cache
def catalogue() -> dict[str, Entry]:
    """The embedded backbones by name."""
    entries: dict[str, Entry] = json.loads((_FOLDER / "catalogue.json").read_text("utf-8"))
    return entries


def entry_path(entry: Entry) -> Path:
    """The path of an entry's file."""
    return _FOLDER / entry["file"]

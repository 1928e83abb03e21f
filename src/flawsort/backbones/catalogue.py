"""The embedded backbones. catalogue.json records the origin and licence of each."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import NotRequired, TypedDict

from flawsort.backbones.base import POOLING_KERNEL, BackboneInfo
from flawsort.core.errors import BackboneError

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


def read_entry(name: str, entry: Entry) -> tuple[bytes, BackboneInfo]:
    """The content of an entry's file, whose SHA-256 is checked, and what a run records about it."""
    content = read_file(entry_path(entry))
    digest = hashlib.sha256(content).hexdigest()
    if digest != entry["sha256"]:
        raise BackboneError(
            f"The embedded backbone '{name}' is damaged: its SHA-256 is {digest} instead of "
            f"{entry['sha256']}. Install flawsort again."
        )
    height, width = entry["input_size"]
    kernel = entry.get("pooling_kernel", POOLING_KERNEL)
    origin = entry["origin"]
    return content, BackboneInfo(name, digest, entry["licence"], origin, (height, width), kernel)


def read_file(path: Path) -> bytes:
    """The content of a backbone's file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise BackboneError(
            f"Cannot read the backbone file '{path}': {error.strerror or error}."
        ) from error

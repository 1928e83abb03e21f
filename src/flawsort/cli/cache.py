"""The command `flawsort cache`: shows what is kept to save time, and removes the oldest of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.options import Json
from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from flawsort.core.store import StoredFile


def cache(
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Remove the least recently used files until the rest fits --limit."
        ),
    ] = False,
    limit: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="With --prune: the size of what stays, like 5GB; 0 for nothing."
        ),
    ] = "20GB",
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="The cache to look at; the user's cache folder if omitted."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show or remove what is kept to save time. All of it is computed again if it is missing."""
    result = look_at_cache(cache, prune=prune, limit=limit)
    if as_json:
        console.print_json(result)
    else:
        show_cache(result)


def look_at_cache(folder: Path | None, *, prune: bool = False, limit: str = "0") -> dict[str, Any]:
    """The number of files of each kind and their size, after the pruning if it is wanted. folder:
    None for the user's cache folder. limit: of the pruning, as people write a size."""
    from flawsort.backbones.cache import default_cache_folder
    from flawsort.core import store
    from flawsort.fitting.memory import parse_size

    size = 0 if limit.strip() == "0" else parse_size(limit, "limit")
    place = default_cache_folder() if folder is None else folder
    if folder is not None and not folder.is_dir():
        raise OptionError(f"must be a folder that exists. Got '{folder}'.", parameter="cache")
    stores = _stores(place)
    freed = store.prune(stores.values(), size) if prune else 0
    found = {kind: store.stored_files(*where) for kind, where in stores.items()}
    return {
        "cache": str(place),
        "freed": freed,
        "size": sum(file.size for files in found.values() for file in files),
        "kinds": [_kind(kind, files) for kind, files in found.items()],
    }


def _stores(place: Path) -> dict[str, tuple[Path, str]]:
    """What a cache holds: the folder of each kind, and the suffix of its files."""
    from flawsort.backbones.cache import SUFFIX as BAGS
    from flawsort.fitting.parts import SUFFIX as PARTS
    from flawsort.review.pictures import SUFFIX as PICTURES
    from flawsort.review.pictures import THUMBNAILS

    return {
        "embedded images": (place, BAGS),
        "finished batches": (place / "parts", PARTS),
        "pictures of the review": (place / THUMBNAILS, PICTURES),
    }


def _kind(name: str, files: list[StoredFile]) -> dict[str, Any]:
    from datetime import datetime

    oldest = min((file.used for file in files), default=None)
    return {
        "kind": name,
        "files": len(files),
        "size": sum(file.size for file in files),
        "oldest": None if oldest is None else f"{datetime.fromtimestamp(oldest):%Y-%m-%d}",
    }


def show_cache(result: dict[str, Any]) -> None:
    """Print a row for each kind, and what was removed."""
    from flawsort.core.text import shown_size

    console.say(f"Cache: {result['cache']}")
    console.say()
    rows = [
        [one["kind"], one["files"], shown_size(one["size"]), one["oldest"] or ""]
        for one in result["kinds"]
    ]
    console.print_table("", ["kind", "files", "size", "oldest use"], rows)
    console.say()
    if result["freed"]:
        console.say(f"Removed: {shown_size(result['freed'])}.")
    console.say(
        f"Together: {shown_size(result['size'])}. All of it is computed again if it is missing."
    )

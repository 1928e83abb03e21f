"""Batches of new images that grow: part after part, each a folder that is replaced as a whole.

run/assigned/NAME/ has about.json and part-00001, part-00002, ... Only the last part is written
again, so adding to a batch of any size takes the same time and memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flawsort.core.errors import OptionError, RunError
from flawsort.core.storage import new_folder, recover
from flawsort.core.temporaries import clear_left_overs
from flawsort.core.text import printable
from flawsort.runs.assigned import (
    ABOUT,
    ASSIGNED,
    FILES,
    PART,
    Kept,
    files_of,
    is_name,
    joined,
    kept_in,
    read_kept,
)

# Images in a part: about 6 MB with their pictures.
PART_IMAGES = 256


def grow(run: Path, name: str, part: int, number: int, files: Mapping[str, bytes]) -> None:
    """Add images to a part of a batch; both are made if they do not exist.

    number: of this addition. One that the part has already is not added again, so the same call may
    be repeated after an interruption. files: of `files_of`. RunError if name, part or files are not
    those of a batch: a journal may come from anybody, and must not write elsewhere.
    """
    place = run / ASSIGNED / name
    if not (is_name(name) and PART.fullmatch(_name(part)) and FILES.issuperset(files)):
        raise RunError(
            f"Images are to be kept in '{printable(place)}', part {part}, as "
            f"{printable(', '.join(files))}. That is no batch of the run."
        )
    try:
        if not place.exists():
            with new_folder(place, replace=False) as partial:
                _write(partial / _name(part), {**files, ABOUT: _numbered(files, number)})
                (partial / ABOUT).write_bytes(files[ABOUT])
            return
        target = place / _name(part)
        recover(target)
        added = {**files, ABOUT: _numbered(files, number)}
        if target.exists():
            before = read_kept(name, target)
            if int(before.about.get("number", -1)) >= number:
                clear_left_overs(place)  # it may have been killed while it removed the old part
                return
            added = files_of(_together(before, kept_in(name, files.get), number))
        with new_folder(target) as partial:
            _write(partial, added)
    except OSError as error:
        raise OptionError(f"Cannot keep images in '{place}': {error.strerror or error}.") from error
    except (ValueError, TypeError) as error:
        raise RunError(f"The images kept in '{place}' are damaged: {error}.") from error


def _together(before: Kept, added: Kept, number: int) -> Kept:
    n = len(before.thumbnails) + len(added.thumbnails)
    return replace(joined([before, added]), about={"number": number, "n_images": n})


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)


def _numbered(files: Mapping[str, bytes], number: int) -> bytes:
    """What a part says of itself."""
    about: dict[str, Any] = json.loads(files[ABOUT])
    return json.dumps({"number": number, "n_images": about["n_images"]}).encode()


def _name(part: int) -> str:
    return f"part-{part:05d}"

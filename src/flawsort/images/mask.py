"""The mask of a view: which part of each image is looked at."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from flawsort.core.errors import InputError
from flawsort.core.text import printable
from flawsort.images.decode import MAX_PIXELS, UnreadableImage, load


@dataclass(frozen=True)
class Mask:
    """image: 255 inside and 0 outside. digest: the SHA-256 of the file."""

    image: Image.Image
    digest: str


def read_mask(mask: Path | bytes) -> Mask:
    """A mask file, or its bytes. A file is read once, and again when it changes."""
    if isinstance(mask, bytes):
        return _read(mask, 0, len(mask))
    try:
        status = mask.stat()
    except OSError as error:
        raise InputError(
            f"The mask {mask_name(mask)} cannot be read: {error.strerror}. Check the path."
        ) from error
    return _read(mask, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read(mask: Path | bytes, _changed: int, _size: int) -> Mask:
    try:
        raster = load(mask, MAX_PIXELS, backdrop="black")
    except UnreadableImage as error:
        raise InputError(f"The mask {mask_name(mask)} cannot be used: {error}.") from error
    values = raster.pixels16 if raster.pixels8 is None else np.asarray(raster.pixels8)
    assert values is not None
    inside = np.any(values.reshape(*values.shape[:2], -1) != 0, axis=2)
    if raster.opacity is not None:
        inside &= raster.opacity > 0
    if not inside.any():
        raise InputError(
            f"The mask {mask_name(mask)} covers nothing: all its pixels are zero. "
            "Paint the part to use in white."
        )
    content = mask if isinstance(mask, bytes) else mask.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return Mask(Image.fromarray(inside.astype(np.uint8) * 255), digest)


def mask_name(mask: Path | bytes) -> str:
    """What a message calls a mask."""
    return "of the run" if isinstance(mask, bytes) else f"'{printable(mask)}'"

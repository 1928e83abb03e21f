"""One budget for the memory of all images that are decoded at a time, and what a decode takes.

A file of a megabyte can decode to gigabytes. What it will take is known from its header. An image
that does not fit beside the others that are being decoded waits for them; one that would not fit
alone is not decoded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import ImageFile

from flawsort.core.machine import memory

# In bytes. Less is never refused: an estimate of the memory of a run includes this much.
LEAST = 32 * 2**20
# The share of this machine's memory that decoding may take if nothing else is said.
SHARE = 0.5
# In bytes, of a machine that does not say how much memory it has.
UNKNOWN = 8 * 2**30
_CGROUP = Path("/sys/fs/cgroup/memory.max")

# Bytes of a pixel as pillow holds it; other modes take 4.
_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
# Bytes of a pixel inside the decoder of a format, beside the image that it fills, at most: a TIFF
# may be one strip, an animation holds frames, and the formats of plugins whole planes. These and
# the next ones are measured: benchmarks/memory.py decoding.
_DECODER = {"JPEG": 0, "BMP": 2, "GIF": 2, "TIFF": 6, "WEBP": 12}
_OTHER_DECODER = 16
# Of each colour of a pixel at full size: a progressive JPEG is held as coefficients.
_COEFFICIENT = 2
_TRANSPARENT = 13  # an RGBA copy, the colours alone, the ground, and the opacity
_CONVERTED = 4
# Of deep images, with the planes of 4 bytes that are made of them; grey beside two copies.
_DEEP_GREY = 4
_DEEP_GREY_ALPHA = 18
_DEEP_COLOUR = 22
_KEYED = 5


class Budget:
    """Bytes that threads take and give back. limit: None for a share of this machine's memory."""

    def __init__(self, limit: int | None = None) -> None:
        self._given = limit
        self._used = 0
        self._freed = threading.Condition()
        self._mine = threading.local()

    @property
    def limit(self) -> int:
        return usual_limit() if self._given is None else max(LEAST, self._given)

    @property
    def given(self) -> int | None:
        """The limit, if somebody set one."""
        return None if self._given is None else self.limit

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """Hold this many bytes, at most the limit; wait until they are free.

        A thread that holds some already does not wait: two that wait for each other would never
        end.
        """
        depth = getattr(self._mine, "depth", 0)
        with self._freed:
            if depth == 0:
                self._freed.wait_for(lambda: self._used == 0 or self._used + size <= self.limit)
            self._used += size
        self._mine.depth = depth + 1
        try:
            yield
        finally:
            self._mine.depth = depth
            with self._freed:
                self._used -= size
                self._freed.notify_all()

    @contextmanager
    def limited(self, limit: int | None) -> Iterator[None]:
        """Another limit within the block, for all threads. None: leave it as it is."""
        before = self._given
        if limit is not None:
            self._given = limit
        try:
            yield
        finally:
            self._given = before
            with self._freed:
                self._freed.notify_all()


BUDGET = Budget()
"""The budget of this process."""


def usual_limit() -> int:
    """The bytes that decoding may take if nothing else is said."""
    return int(SHARE * _machine_memory())


def decoding_bytes(
    image: ImageFile.ImageFile, full: tuple[int, int], layout: str, *, turned: bool
) -> int:
    """What decoding a file takes, from its header, until its pixels are ready to be resized.

    image: opened and not loaded; its size is the one that it is decoded to. full: the size in the
    file. layout: of its samples, as decode.py calls it. turned: its EXIF data turns it.
    """
    stored = _STORED.get(image.mode, 4)
    each = stored * (2 if turned else 1)
    # The rows of a PNG come as they are stored.
    each += stored if image.format == "PNG" else _DECODER.get(str(image.format), _OTHER_DECODER)
    if layout == "8 bits":
        transparent = "transparency" in image.info
        if transparent or image.mode in ("LA", "PA", "La", "RGBA", "RGBa"):
            each += _TRANSPARENT
        elif image.mode not in ("RGB", "L"):
            each += _CONVERTED
    else:
        more = {"grey and alpha": _DEEP_GREY_ALPHA, "colour": _DEEP_COLOUR}
        each += more.get(layout, _DEEP_GREY + 2 * stored)
        each += _KEYED if "transparency" in image.info else 0
    total = each * image.size[0] * image.size[1]
    if image.info.get("progressive") or image.info.get("progression"):
        total += _COEFFICIENT * len(image.getbands()) * full[0] * full[1]
    return total


def _machine_memory() -> int:
    """The memory of this machine, or of the container that this process runs in."""
    found = memory() or UNKNOWN
    try:
        return min(found, int(_CGROUP.read_text("ascii")))
    except (OSError, ValueError):  # no container, or one without a limit
        return found


def resizing_bytes(size: tuple[int, int], canvas: tuple[int, int], planes: int) -> int:
    """What resizing takes beside the image. size: its width and height. canvas: the height and
    width that it gets. planes: of numbers in single precision; 0 for an image of 8 bits."""
    between = 4 * canvas[1] * size[1]  # pillow resizes across first
    return between + canvas[0] * canvas[1] * (8 * planes or 12)

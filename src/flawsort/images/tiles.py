"""The size of photos decides how closely they are looked at: small ones whole, large ones in tiles.

A network has an input of a few hundred pixels. A photo of 4,000 x 6,000 shrunk to it loses every
flaw of less than a few dozen pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Source
from flawsort.core.text import pluralise
from flawsort.core.threads import in_threads
from flawsort.images.decode import UnreadableImage, upright_size
from flawsort.images.view import MAX_TILES, OVERLAP, View

# Images are looked at in tiles if they would be shrunk by more than this.
MOST_SHRUNK = 2.0
# Tiles are shrunk by at most this. A little less than full size already costs: docs/evidence.
TILES_SHRUNK = 1.0
# Relative to the network's input, or to this many pixels if it is smaller: a preset with a small
# input is chosen to be fast.
LEAST_INPUT = 512
# If sizes differ, those of this share of the images decide, the largest ones.
LARGE_SHARE = 0.1
# Reading headers waits for the disk more than it computes.
_THREADS = 8


# So many names are listed of images that are shrunk.
_LISTED = 5

# Height and width of what a view shows of an image, in pixels; None if that is not known.
Size: TypeAlias = tuple[int, int] | None


def photo_sizes(sources: Sequence[Source], view: View) -> list[Size]:
    """The size of each image, from its header. Not known of images that cannot be decoded within
    the budget."""

    def measured(source: Source) -> Size:
        try:
            return view.shown(upright_size(source, view.max_pixels, decodable=True))
        except (UnreadableImage, OSError):
            return None  # it is set aside later, with the reason

    return list(in_threads(measured, sources, threads=_THREADS))


def photo_size(sources: Sequence[Source], view: View) -> Size:
    """The size of images, or if they differ, a size that most images do not exceed. None if no
    header can be read."""
    found = [one for one in photo_sizes(sources, view) if one is not None]
    if not found:
        return None
    found.sort(key=lambda one: (one[0] * one[1], one))
    return found[math.ceil((1 - LARGE_SHARE) * len(found)) - 1]


def tiles_for(photo: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of overlapping tiles for photos of this height and width; (1, 1) for small
    ones. size: (height, width) of the network's input."""
    if shrunk(photo, size, (1, 1)) <= MOST_SHRUNK:
        return 1, 1
    rows, columns = (
        _count(length, max(side, LEAST_INPUT)) for length, side in zip(photo, size, strict=True)
    )
    return rows, columns


def shrunk(photo: tuple[int, int], size: tuple[int, int], tiles: tuple[int, int]) -> float:
    """How many times smaller photos of this height and width are looked at, along the axis where
    it is more. size: as for `tiles_for`; an input below LEAST_INPUT counts as that."""
    full = (max(size[0], LEAST_INPUT), max(size[1], LEAST_INPUT))
    canvas = View(tiles=tiles).canvas(full)
    return max(length / side for length, side in zip(photo, canvas, strict=True))


def shrunk_each(
    photos: Sequence[Size], size: tuple[int, int], tiles: tuple[int, int]
) -> NDArray[np.float64]:
    """(n,): how many times smaller each photo is looked at; 0 if its size is not known."""
    return np.array([0.0 if one is None else shrunk(one, size, tiles) for one in photos])


def about_shrunk(names: Sequence[str], times: NDArray[np.float64]) -> str:
    """A sentence about the images that are looked at much smaller than they are; "" if none is.
    times: as of `shrunk_each`."""
    rows = np.flatnonzero(times > MOST_SHRUNK)
    if not len(rows):
        return ""
    listed = ", ".join(names[row] for row in rows[:_LISTED])
    more = f" and {len(rows) - _LISTED:,} more" if len(rows) > _LISTED else ""
    one = len(rows) == 1
    smaller = f"{times[rows].min():.1f} times smaller than {'it is' if one else 'they are'}"
    return (
        f"{len(rows):,} of the {pluralise(len(names), 'image')} {'is' if one else 'are'} looked at "
        f"{smaller}{'' if one else ' or more'}, so that small flaws cannot be seen: {listed}{more}."
    )


def _count(length: int, side: int) -> int:
    """The number of overlapping tiles along one axis."""
    step = side - int(OVERLAP * side)
    count = 1 + math.ceil((length / TILES_SHRUNK - side) / step)
    return min(max(count, 1), MAX_TILES)

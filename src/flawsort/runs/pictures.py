"""The small pictures that a run keeps: each image, its most unusual place, and what matches it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from flawsort.core.grids import Grid
from flawsort.core.records import ImageSet, Ints, Source
from flawsort.core.threads import in_threads, n_threads
from flawsort.fitting.fitted import Fitted
from flawsort.images.budget import BUDGET
from flawsort.images.closeups import (
    Move,
    Sheet,
    close_up_box,
    matching_box,
    matching_picture,
    picture_size,
    whole_pixels,
)
from flawsort.images.decode import upright_size
from flawsort.images.originals import whole_picture
from flawsort.images.view import Box, UnreadableImage, View, frame_of, thumbnail

# (number of images, long side of their pictures): keeps a report within tens of megabytes.
UP_TO = ((500, 256), (1500, 192), (4000, 128))
SMALLEST = 96
QUALITY = 82
# Whole images that are held at a time may take this many bytes, two of them for each thread, and at
# most half of the budget for decoding.
DECODED_BYTES = 2**29
# Images that were given as Bags have one pixel in the place of a picture.
NO_PICTURE = (1, 1)


@dataclass(frozen=True)
class Sides:
    """up_to: up to how many images their pictures are how long. smallest: of more images."""

    up_to: tuple[tuple[int, int], ...] = UP_TO
    smallest: int = SMALLEST

    def of(self, n_images: int) -> int:
        """The long side of the pictures of this many images."""
        return next((side for most, side in self.up_to if n_images <= most), self.smallest)


SIDES = Sides()


def make_thumbnails(
    images: ImageSet, view: View, size: tuple[int, int], rows: Ints, *, sides: Sides = SIDES
) -> tuple[bytes, ...]:
    """A JPEG for each of the rows, empty bytes for other images. size: of the backbone's input."""
    side = sides.of(len(rows))

    def make(row: int) -> bytes:
        try:
            picture = thumbnail(images.sources[row], view, size, side)
        except (UnreadableImage, OSError):  # the file was removed after it was embedded
            picture = thumbnail(np.full((8, 8), 128, np.uint8), View(), size, side)
        return _jpeg(picture)

    made = dict(zip(rows.tolist(), in_threads(make, rows.tolist(), ahead=8), strict=True))
    return tuple(made.get(row, b"") for row in range(len(images)))


@dataclass(frozen=True)
class Looked:
    """The most unusual places of images, to make pictures of.

    sources: of the images. boxes: (n, 4), in patches: top, left, bottom, right. matches: (n, 3),
    see Match. gallery: the images that the matches number. view, size, grid: of all of them.
    """

    sources: Sequence[Source]
    boxes: Ints
    matches: Ints
    gallery: Sequence[Source]
    view: View
    size: tuple[int, int]
    grid: Grid

    @classmethod
    def of(cls, images: ImageSet, boxes: Ints, matches: Ints, fitted: Fitted) -> Looked:
        """Those of images that were compared with the reference of a fit."""
        known = fitted.images if fitted.normals is None else fitted.normals
        source_of = dict(zip(known.digests, known.sources, strict=True))
        return cls(
            images.sources,
            boxes,
            matches,
            [source_of[digest] for digest in fitted.gallery],
            fitted.view,
            fitted.input_size,
            fitted.grid,
        )

    def frame(self, image: tuple[int, int]) -> Box:
        return frame_of(self.view, self.size, image)


def make_close_ups(
    looked: Looked, rows: Ints, *, sides: Sides = SIDES
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """For each image a JPEG of its most unusual place, cut from the file at full resolution, and
    one of the matching place, aligned with it. Empty bytes for images that are not among the rows,
    that cannot be read, or that nothing matches."""
    side = sides.of(len(rows))
    by_match: dict[int, list[int]] = {}
    for row in rows.tolist():
        # Images without a match have nothing to share.
        image = int(looked.matches[row, 0])
        by_match.setdefault(image if image >= 0 else -1 - row, []).append(row)

    def make(some: list[int]) -> dict[int, tuple[bytes, bytes]]:
        match = int(looked.matches[some[0], 0])
        there = None if match < 0 else _sheet(looked, looked.gallery[match])
        return {row: _pair(looked, row, there, side) for row in some}

    threads = _threads(looked, rows)
    made: dict[int, tuple[bytes, bytes]] = {}
    for found in in_threads(make, by_match.values(), threads=threads, ahead=1):
        made |= found
    pairs = [made.get(row, (b"", b"")) for row in range(len(looked.sources))]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def place_in(box: Ints, frame: Box, grid: Grid) -> Box:
    """A box in patches (top, left, bottom, right) as left, top, right, bottom in a frame."""
    top, left, bottom, right = box.tolist()
    wide, high = (frame[2] - frame[0]) / grid[1], (frame[3] - frame[1]) / grid[0]
    return (
        frame[0] + left * wide,
        frame[1] + top * high,
        frame[0] + right * wide,
        frame[1] + bottom * high,
    )


def _pair(looked: Looked, row: int, there: Sheet | None, side: int) -> tuple[bytes, bytes]:
    here = _sheet(looked, looked.sources[row])
    if here is None:
        return b"", b""
    move: Move = tuple(looked.matches[row, 1:].tolist())
    place = place_in(looked.boxes[row], here.frame, looked.grid)
    box = whole_pixels(close_up_box(place, here.frame, looked.grid, move))
    picture = here.cut(box, picture_size(box, side))
    if there is None:
        return _jpeg(picture), b""
    other = matching_box(box, here.frame, there.frame, move, looked.grid)
    return _jpeg(picture), _jpeg(matching_picture(picture, box, place, there, other, looked.grid))


def _sheet(looked: Looked, source: Source) -> Sheet | None:
    """A whole image at full resolution; None if its file is gone, or if there never was one."""
    try:
        picture = whole_picture(source, looked.view)
        if picture.size == NO_PICTURE:
            return None
        return Sheet(picture, picture.size, looked.frame(picture.size))
    except (UnreadableImage, OSError):
        return None


def _threads(looked: Looked, rows: Ints) -> int:
    largest = 1
    for row in rows.tolist():
        try:
            wide, high = upright_size(looked.sources[row], looked.view.max_pixels)
            largest = max(largest, 3 * wide * high)
        except (UnreadableImage, OSError):
            continue
    return max(1, min(n_threads(), min(DECODED_BYTES, BUDGET.limit // 2) // (2 * largest)))


def _jpeg(picture: Image.Image) -> bytes:
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=QUALITY)
    return content.getvalue()

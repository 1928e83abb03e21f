"""Convert whatever a user passes as images to one form, and find images with the same content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from flawsort.core.errors import InputError
from flawsort.core.records import Bags, ImageSet, RemoteFile, SetAside
from flawsort.core.remote import is_url
from flawsort.core.text import pluralise
from flawsort.core.threads import in_threads
from flawsort.images.decode import MAX_PIXELS, n_frames, picture_array
from flawsort.images.find import array_images, find_images
from flawsort.images.formats import skipped_line
from flawsort.images.view import View
from flawsort.images.window import measure_window

# Files with these suffixes may have several pages or frames. A PNG or WebP rarely has, and there
# may be very many of them to open.
_OF_SEVERAL = (".tif", ".tiff", ".gif")
_LISTED = 3
# Reading headers waits for the disk more than it computes.
_HEADER_THREADS = 8

Array: TypeAlias = NDArray[Any]
Images: TypeAlias = (
    str | Path | Sequence[str | Path] | Array | Image | Sequence[Array | Image] | ImageSet | Bags
)


def gather(given: Images) -> ImageSet | Bags:
    """Find and check whatever a user passes as images.

    An array (height, width[, 1, 3 or 4]) is one image; an array of any other shape is a stack of
    images.
    """
    if isinstance(given, ImageSet | Bags):
        return given
    if isinstance(given, str | Path):
        return find_images(given)
    if isinstance(given, np.ndarray):
        return array_images([given] if _is_one_image(given) else given)
    if not isinstance(given, Image | Iterable):
        raise InputError(
            "Images must be folders, files, globs or list files, arrays or PIL images, or Bags. "
            f"Got {type(given).__name__}."
        )
    items: list[Any] = [given] if isinstance(given, Image) else list(given)
    if items and all(isinstance(item, str | Path) for item in items):
        return _in_given_order(find_images(items), [_place(item) for item in items])
    for row, item in enumerate(items):
        items[row] = picture_array(row, item) if isinstance(item, Image) else item
    return array_images(items)


def given_places(given: Images, images: ImageSet) -> tuple[list[int], int]:
    """(n_images,): the place of each image among those that a user passed, and their number. Images
    that were passed one by one keep their places when others are set aside; those of folders are
    counted in the order of their names."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        paths = [item for item in given if isinstance(item, str | Path)]
        place: dict[object, int] = {}
        for row, path in enumerate(paths):
            place.setdefault(_place(path), row)
        one_by_one = not any(isinstance(source, np.ndarray) for source in images.sources)
        if one_by_one and place.keys() >= set(images.sources):
            return [place[source] for source in images.sources], len(paths)
    return list(range(len(images))), len(images)


def _is_one_image(array: NDArray[Any]) -> bool:
    return array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))


def _place(item: str | Path) -> Path | RemoteFile:
    return RemoteFile(item) if isinstance(item, str) and is_url(item) else Path(item)


def _in_given_order(images: ImageSet, given: list[Path | RemoteFile]) -> ImageSet:
    """Keep the order of files that were passed one by one, so that results have the same order."""
    place = {path: row for row, path in reversed(list(enumerate(given)))}
    if not all(
        source in place for source in images.sources if isinstance(source, Path | RemoteFile)
    ):
        return images
    return images.take(sorted(range(len(images)), key=lambda row: place[images.sources[row]]))  # type: ignore[index]


def image_set_of(bags: Bags) -> ImageSet:
    """An ImageSet for bags, which have no files: the digests are those of the patches in all
    views."""
    blank = np.full((1, 1), 128, np.uint8)
    digests = []
    for row in range(len(bags)):
        content = hashlib.sha256()
        for view in bags.views:
            content.update(view.patches[row].tobytes())
            content.update(b"" if view.valid is None else view.valid[row].tobytes())
        digests.append(content.hexdigest())
    return ImageSet(
        tuple(f"bag-{row:05d}" for row in range(len(bags))), (blank,) * len(bags), tuple(digests)
    )


def checked(bags: Bags) -> Bags:
    """Check bags that a user passes: patches must be finite and of unit length, with a valid one in
    each image and view. Invalid patches are replaced by a valid one of the same image."""
    first, *others = (_checked(view) for view in bags.views)
    return replace(first, beside=tuple(others)) if others else first


def _checked(bags: Bags) -> Bags:
    """The same for one view."""
    lengths = np.stack([np.linalg.norm(bag.astype(np.float32), axis=1) for bag in bags.patches])
    if bags.valid is not None:
        lengths = lengths[bags.valid]
    if not np.allclose(lengths, 1, atol=0.01):
        raise InputError(
            "patches must be finite and of unit length. Got lengths from "
            f"{lengths.min():.3g} to {lengths.max():.3g}. Divide each patch by its length."
        )
    if bags.valid is None or bags.valid.all():
        return bags
    if not bags.valid.any(axis=1).all():
        raise InputError("Every image needs a valid patch. Got one with none; leave it out.")
    patches = bags.patches.copy()
    for bag, valid in zip(patches, bags.valid, strict=True):
        bag[~valid] = bag[valid.argmax()]
    return replace(bags, patches=patches)


def check_found(images: ImageSet) -> None:
    """Raise InputError for fewer than 2 images, before any is decoded."""
    if len(images) >= 2:
        return
    what = "array" if any(isinstance(source, np.ndarray) for source in images.sources) else "file"
    bad, aside = images.set_aside, ""
    if bad:
        were = "1 was set aside," if len(bad) == 1 else f"{len(bad)} were set aside, the first"
        aside = f"; {were} '{bad[0].name}': {bad[0].reason}"
    found = pluralise(len(images), what, none="no")
    raise InputError(f"At least 2 images are needed to group them. Found {found}{aside}.")


def with_window(view: View, images: ImageSet, normals: ImageSet | None = None) -> View:
    """The view with a window measured on all images of more than 8 bits, unless it has one."""
    if view.window is not None:
        return view
    sources = images.sources + (() if normals is None else normals.sources)
    return replace(view, window=measure_window(sources, view.max_pixels))


def notes_on_files(images: ImageSet, max_pixels: int = MAX_PIXELS) -> list[str]:
    """What happened to files that are not looked at, or not in full: those of other kinds, and the
    further pages or frames of others."""
    notes = [line] if (line := skipped_line(images.skipped)) else []
    rows = [i for i, name in enumerate(images.names) if name.lower().endswith(_OF_SEVERAL)]
    counts = in_threads(
        lambda row: n_frames(images.sources[row], max_pixels), rows, threads=_HEADER_THREADS
    )
    several = [(images.names[row], n) for row, n in zip(rows, counts, strict=True) if n > 1]
    if several:
        listed = ", ".join(f"{name} ({n:,})" for name, n in several[:_LISTED])
        more = f" and {len(several) - _LISTED:,} more" if len(several) > _LISTED else ""
        has = "has several pages or frames" if len(several) == 1 else "have several pages or frames"
        notes.append(
            f"{pluralise(len(several), 'file')} {has}; only the first was taken: {listed}{more}."
        )
    return notes


def distinct_rows(images: ImageSet) -> NDArray[np.int64]:
    """The rows of the first image of each content, sorted by digest."""
    first = {digest: row for row, digest in reversed(list(enumerate(images.digests)))}
    return np.array([first[digest] for digest in sorted(first)], np.int64)


def content_rows(images: ImageSet, distinct: ImageSet) -> NDArray[np.int64]:
    """(n_images,): for each image the row of its content in `distinct`."""
    row = {digest: place for place, digest in enumerate(distinct.digests)}
    return np.array([row[digest] for digest in images.digests], np.int64)


def used_images(images: ImageSet, embedded: ImageSet) -> ImageSet:
    """The images whose content was embedded. The others are set aside, including copies."""
    good = set(embedded.digests)
    reasons = {entry.name: entry.reason for entry in embedded.set_aside}
    of_first = {images.digests[row]: images.names[row] for row in distinct_rows(images)}
    return images.without(
        [
            SetAside(name, reasons[of_first[digest]])
            for name, digest in zip(images.names, images.digests, strict=True)
            if digest not in good
        ]
    )

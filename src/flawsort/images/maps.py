"""Masks and heat maps that belong to images: found by name, and brought to the grid of patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.core.grids import Grid
from flawsort.core.records import Floats, ImageSet, Source
from flawsort.core.text import pluralise, printable
from flawsort.core.threads import in_threads
from flawsort.images.decode import MAX_PIXELS, UnreadableImage, load, upright_size
from flawsort.images.formats import IMAGE_SUFFIXES
from flawsort.images.view import Box, View, frame_of

MASKS = "masks"
ARRAY_SUFFIX = ".npy"
# MVTec AD names the mask of 001.png so.
_MASK_ENDING = "_mask"

# A folder, or an array (height, width) for each image by its name.
GivenMaps: TypeAlias = str | Path | Mapping[str, Floats]


@dataclass(frozen=True)
class Maps:
    """The masks or heat maps of a set of images.

    kind: "masks" or "heat-maps". by_digest: the file or array (height, width) of an image, by its
    SHA-256. view, size: how images are looked at, see `decode`. notes: what a person should know of
    images without a map, and of maps that are not used.
    """

    kind: str
    by_digest: Mapping[str, Path | Floats]
    view: View
    size: tuple[int, int]
    notes: tuple[str, ...] = ()

    def on_grid(self, images: ImageSet, grid: Grid) -> NDArray[np.float32]:
        """(n_images, n_patches): the mean over each patch; of a mask the share that is marked. 0
        where an image has no mask."""

        def read(row: int) -> NDArray[np.float32]:
            given = self.by_digest.get(images.digests[row])
            if given is None:
                return np.zeros(grid[0] * grid[1], np.float32)
            values = read_mask(given) if self.kind == MASKS else read_heat(given)
            box = self._box(images.sources[row], values.shape)
            return cell_means(values, box, grid).ravel()

        return np.stack(list(in_threads(read, range(len(images)))))

    def _box(self, source: Source, shape: tuple[int, ...]) -> Box:
        """The part of a map of this shape that the grid of patches is stretched over."""
        high, wide = shape
        if self.view.fit == "stretch" and self.view.roi is None and self.view.mask is None:
            return 0, 0, wide, high
        image = upright_size(source, self.view.max_pixels)
        left, top, right, bottom = frame_of(self.view, self.size, image)
        across, down = wide / image[0], high / image[1]
        return left * across, top * down, right * across, bottom * down


def find_maps(
    given: GivenMaps | None, kind: str, images: ImageSet, view: View, size: tuple[int, int]
) -> Maps:
    """The masks or heat maps of images. given: a folder, or arrays by the names of images. kind,
    view, size: see Maps.

    A file belongs to the image of the same name but for the suffix and `_mask` at its end: with
    folders, or without them where that name is unique. Every image needs a heat map; an image
    without a mask counts as unmarked.
    """
    what = called(kind)
    if given is None:
        raise OptionError(
            f"must name the folder of the {what} for the weights '{kind}'. Got none.",
            parameter="maps",
        )
    if not isinstance(given, str | Path | Mapping):
        raise OptionError(
            f"must be a folder of {what}, or arrays by the names of the images. Got {given!r}.",
            parameter="maps",
        )
    found: dict[str, Path | Floats]
    if isinstance(given, Mapping):
        found = {name: given[name] for name in images.names if name in given}
        unused = [str(name) for name in given if name not in found]
        place = "The arrays"
    else:
        folder = Path(given)
        if not folder.is_dir():
            raise OptionError(
                f"must be a folder of {what}. Got '{printable(folder)}'.", parameter="maps"
            )
        paths, unused = _by_name(folder, images.names)
        found, place = dict(paths), f"'{printable(folder)}'"
    missing = [name for name in images.names if name not in found]
    if missing and (kind != MASKS or not found):
        raise InputError(
            f"{place} must have {what} named as the images, such as {_examples(images.names[0])}. "
            f"Got none for {pluralise(len(missing), 'image')} of {len(images)}, the first "
            f"'{printable(missing[0])}'."
        )
    by_digest: dict[str, Path | Floats] = {}
    others = []
    for name, digest in zip(images.names, images.digests, strict=True):
        if name in found:
            first = by_digest.setdefault(digest, found[name])
            if first is not found[name] and not _alike(first, found[name], kind):
                others.append(name)
    notes = (*_missing_notes(images, by_digest), *_unused_notes(what, unused, others))
    return Maps(kind, by_digest, view, size, notes)


def _missing_notes(images: ImageSet, by_digest: Mapping[str, Path | Floats]) -> list[str]:
    """What happens to images without a mask; heat maps are never missing. A copy of an image that
    has one has it too."""
    n = len(images)
    without = sum(digest not in by_digest for digest in images.digests)
    if not without:
        return []
    have = "1 image has a mask" if n - without == 1 else f"{n - without:,} images have a mask"
    return [f"{have} and {without:,} of {n:,} have none: of these every patch counts the same."]


def _unused_notes(what: str, unused: Sequence[str], others: Sequence[str]) -> list[str]:
    """unused: the names of maps without an image. others: those of images that are copies of
    another one with another map."""
    notes = []
    if unused:
        belong = "belongs" if len(unused) == 1 else "belong"
        notes.append(
            f"{len(unused):,} of the {what} {belong} to none of the images, such as "
            f"'{printable(unused[0])}'."
        )
    if others:
        are = "1 image is a copy" if len(others) == 1 else f"{len(others):,} images are copies"
        notes.append(
            f"{are} of another one, with other {what} than that one, such as "
            f"'{printable(others[0])}'. Copies have the map of the first one."
        )
    return notes


def _examples(name: str) -> str:
    """The names that the map of an image may have."""
    stem = PurePosixPath(name).stem
    return f"{stem}.png or {stem}{ARRAY_SUFFIX}"


def _alike(one: Path | Floats, other: Path | Floats, kind: str) -> bool:
    """Whether two maps say the same."""
    read = read_mask if kind == MASKS else read_heat
    return np.array_equal(read(one), read(other))


def read_mask(given: Path | Floats) -> NDArray[np.float64]:
    """(height, width), 1 where a mask is marked and 0 elsewhere: marked is what is above half of
    its largest value, since masks are 0 and 1, or 0 and 255."""
    values = _read(given, "mask")
    return np.asarray(values > max(float(values.max()), 0.0) / 2, np.float64)


def read_heat(given: Path | Floats) -> NDArray[np.float64]:
    """(height, width): the values of a heat map. Those of a picture are in 0..1."""
    return _read(given, "heat map")


def cell_means(values: Floats, box: Box, grid: Grid) -> NDArray[np.float32]:
    """(rows, columns): the exact mean of values (height, width) over each cell of a grid that is
    stretched over a box: left, top, right, bottom in pixels. Of a cell that extends beyond the
    values only what lies inside counts; 0 if nothing does."""
    down = _covered(values.shape[0], box[1], box[3], grid[0])
    across = _covered(values.shape[1], box[0], box[2], grid[1])
    return np.asarray(down @ values @ across.T, np.float32)


def _covered(n: int, low: float, high: float, cells: int) -> NDArray[np.float64]:
    """(cells, n): how much each of n pixels counts in the mean over a cell, on one axis."""
    edges = low + np.arange(cells + 1)[:, None] * (high - low) / cells
    pixels = np.arange(n)
    covered = np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels)
    covered = covered.clip(min=0)
    total = covered.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = covered / np.where(total > 0, total, 1)
    return shares


def _by_name(folder: Path, names: Sequence[str]) -> tuple[dict[str, Path], list[str]]:
    """The file of each image that has one, and the names of the files that no image has."""
    suffixes = (*IMAGE_SUFFIXES, ARRAY_SUFFIX)
    whole: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in suffixes or not path.is_file():
            continue
        key = _key(path.relative_to(folder).as_posix()).removesuffix(_MASK_ENDING)
        if key in whole:
            raise InputError(
                f"An image has one map. Got two of the same name, '{printable(whole[key])}' and "
                f"'{printable(path)}': remove one."
            )
        whole[key] = path
    bases = Counter(PurePosixPath(key).name for key in whole)
    base = {PurePosixPath(key).name: path for key, path in whole.items()}
    own = Counter(PurePosixPath(_key(name)).name for name in names)
    found = {}
    for name in names:
        key = _key(name)
        alone = PurePosixPath(key).name
        if key in whole:
            found[name] = whole[key]
        elif bases[alone] == 1 and own[alone] == 1:
            found[name] = base[alone]
    used = set(found.values())
    unused = [path.relative_to(folder).as_posix() for path in whole.values() if path not in used]
    return found, unused


def _key(name: str) -> str:
    return PurePosixPath(name).with_suffix("").as_posix()


def called(kind: str) -> str:
    """What people call them."""
    return kind.replace("-", " ")


def _read(given: Path | Floats, what: str) -> NDArray[np.float64]:
    name = f"The {what} '{printable(given)}'" if isinstance(given, Path) else f"A {what}"
    try:
        values = _values(given) if isinstance(given, Path) else np.asarray(given)
    except (UnreadableImage, OSError, ValueError, EOFError) as error:
        raise InputError(f"{name} cannot be read: {error}.") from error
    if values.ndim == 3 and values.shape[2] in (3, 4) and what == "mask":
        values = values[..., :3].max(axis=2)
    if values.ndim == 3 and values.shape[2] == 3 and (values == values[..., :1]).all():
        values = values[..., 0]
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "biuf":
        raise InputError(
            f"{name} must be one number for each pixel, (height, width). Got the shape "
            f"{values.shape}; a picture in colours does not tell how hot a place is."
        )
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(f"{name} must be finite. Got infinite or NaN values.")
    return numbers


def _values(path: Path) -> Floats:
    """What a file holds: the array of a .npy file, or the pixels of a picture in 0..1."""
    if path.suffix.lower() == ARRAY_SUFFIX:
        stored: Floats = np.load(path, allow_pickle=False)
        return stored
    raster = load(path, MAX_PIXELS, backdrop="black")
    if raster.pixels8 is not None:
        return np.asarray(raster.pixels8) / np.float64(255)
    assert raster.pixels16 is not None
    values = raster.pixels16
    values = values[..., 0] if values.shape[2] == 1 else values
    return values / np.float64(65535) if values.dtype == np.uint16 else values

"""The values that stages pass on: immutable, with shapes checked on construction."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.text import pluralise

Floats: TypeAlias = NDArray[np.floating[Any]]
Ints: TypeAlias = NDArray[np.integer[Any]]
Bools: TypeAlias = NDArray[np.bool_]
# Called with the name of a stage, the number of finished steps, and their total number.
Progress: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True)
class RemoteFile:
    """A file in an object store or another place that fsspec can read: s3://bucket/parts/7.png.

    asked: whether the user asked for it. A run may come from anybody and name any URL, and reading
    that would send a request there.
    """

    url: str
    asked: bool = True

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        return Path(self.name).suffix

    def absolute(self) -> RemoteFile:
        """Itself, as a URL is always absolute. For use in place of a Path."""
        return self

    def read_bytes(self) -> bytes:
        """The content of the file. All errors of the store are raised as OSError."""
        from flawsort.core.remote import read_bytes

        self._check_asked()
        return read_bytes(self.url)

    def open(self) -> BinaryIO:
        """A stream that fetches only the ranges that are read."""
        from flawsort.core.remote import open_ranges

        self._check_asked()
        return open_ranges(self.url)

    def _check_asked(self) -> None:
        if not self.asked:
            raise OSError(errno.EACCES, f"it is at {self.url[:200]}, and only --fetch allows that")


# Where the pixels of an image are: a file, one behind a URL, or an array (height, width[, 3]).
Source: TypeAlias = Path | RemoteFile | NDArray[Any]


@dataclass(frozen=True)
class SetAside:
    """A file that could not be used, and why. The work goes on without it, and reports it."""

    name: str
    reason: str


@dataclass(frozen=True, repr=False)
class ImageSet:
    """Images to work on, in the order in which results are shown.

    names: unique and readable: the path below the source folder, with forward slashes.
    sources: where the pixels are.
    digests: SHA-256 of each file's bytes (or of the array), as hexadecimal.
    set_aside: files that were found and could not be used.
    skipped: the kinds of the other files of the sources, which were not looked at, and how many
        there are of each.
    """

    names: tuple[str, ...]
    sources: tuple[Source, ...]
    digests: tuple[str, ...]
    set_aside: tuple[SetAside, ...] = ()
    skipped: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.sources) == len(self.digests):
            raise InputError(
                "names, sources and digests must have the same length. Got "
                f"{len(self.names)}, {len(self.sources)} and {len(self.digests)}."
            )

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        first = ", ".join(map(repr, self.names[:3]))
        more = ", ..." if len(self) > 3 else ""
        aside = f"; {len(self.set_aside):,} set aside" if self.set_aside else ""
        return f"<ImageSet of {len(self):,}: {first}{more}{aside}>"

    def take(self, rows: Sequence[int] | Ints) -> ImageSet:
        """The images at `rows`, in that order. `set_aside` and `skipped` stay the same."""
        return ImageSet(
            tuple(self.names[i] for i in rows),
            tuple(self.sources[i] for i in rows),
            tuple(self.digests[i] for i in rows),
            self.set_aside,
            self.skipped,
        )

    def without(self, bad: Sequence[SetAside]) -> ImageSet:
        """The set without the images named in `bad`, which are added to `set_aside`."""
        names = {entry.name for entry in bad}
        kept = self.take([i for i, name in enumerate(self.names) if name not in names])
        return replace(kept, set_aside=self.set_aside + tuple(bad))

    def duplicates(self) -> tuple[tuple[str, ...], ...]:
        """Groups of names whose content is identical."""
        groups: dict[str, list[str]] = {}
        for name, digest in zip(self.names, self.digests, strict=True):
            groups.setdefault(digest, []).append(name)
        return tuple(tuple(group) for group in groups.values() if len(group) > 1)


@dataclass(frozen=True, repr=False)
class Bags:
    """The patch embeddings of a set of images (the paper's Z_i), in the order of the set.

    patches: (n_images, n_patches, dim), float16 or float32, each patch of unit length.
    grid: rows and columns of the patches on the image; rows * columns = n_patches.
    valid: (n_images, n_patches), False where a patch shows padding or lies outside the region of
        interest. Such patches never get weight; they hold a copy of a valid patch of the same
        bag, so that a minimum over the bag needs no special case. None: all are valid.
    beside: the bags of the same images in further views, with other backbones or input sizes. The
        first view is the one whose grid scores and regions use.
    tile: rows and columns of the patches of one tile, for photos that were looked at in several;
        None for images that were looked at whole.
    """

    patches: Floats
    grid: tuple[int, int]
    valid: Bools | None = None
    beside: tuple[Bags, ...] = ()
    tile: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.patches.ndim != 3 or 0 in self.patches.shape:
            raise InputError(
                "patches must have the shape (n_images, n_patches, dim) with no empty side. "
                f"Got {self.patches.shape}."
            )
        if self.grid[0] * self.grid[1] != self.patches.shape[1]:
            raise InputError(
                f"grid must multiply to the number of patches, {self.patches.shape[1]}. "
                f"Got {self.grid[0]} x {self.grid[1]}."
            )
        if self.valid is not None and self.valid.shape != self.patches.shape[:2]:
            raise InputError(
                f"valid must have the shape {self.patches.shape[:2]}. Got {self.valid.shape}."
            )
        if self.tile is not None and not all(
            1 <= part <= whole for part, whole in zip(self.tile, self.grid, strict=True)
        ):
            raise InputError(f"tile must lie within the grid {self.grid}. Got {self.tile}.")
        for other in self.beside:
            if len(other) != len(self) or other.beside:
                raise InputError(
                    f"Every view must show the same {len(self)} images, and have no views of its "
                    f"own. Got {len(other)} images and {len(other.beside)} views."
                )

    def __len__(self) -> int:
        return int(self.patches.shape[0])

    def __repr__(self) -> str:
        rows, columns = self.grid
        more = f", and {pluralise(len(self.beside), 'more view')}" if self.beside else ""
        return (
            f"Bags({len(self)} images, {rows} x {columns} patches of {self.dim} dimensions, "
            f"{self.patches.dtype}{more})"
        )

    @property
    def views(self) -> tuple[Bags, ...]:
        """The bags of each view alone, the first view first."""
        return (replace(self, beside=()), *self.beside) if self.beside else (self,)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(n_patches, dim) of a bag in each view."""
        return tuple((one.n_patches, one.dim) for one in self.views)

    @property
    def nbytes(self) -> int:
        """The memory of all patches."""
        return sum(one.patches.nbytes for one in self.views)

    @property
    def n_patches(self) -> int:
        return int(self.patches.shape[1])

    @property
    def dim(self) -> int:
        return int(self.patches.shape[2])

    def valid_patches(self, image: int) -> NDArray[np.float32]:
        """(n_valid, dim): the valid patches of one image, in single precision."""
        bag: Floats = self.patches[image]
        if self.valid is not None:
            bag = bag[self.valid[image]]
        return bag.astype(np.float32)

    def take(self, rows: Sequence[int] | Ints) -> Bags:
        """The bags at `rows`, in that order."""
        index = np.asarray(rows)
        valid = None if self.valid is None else self.valid[index]
        beside = tuple(other.take(rows) for other in self.beside)
        return Bags(self.patches[index], self.grid, valid, beside, self.tile)

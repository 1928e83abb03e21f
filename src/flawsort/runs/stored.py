"""How the parts of a run are stored. Each part declares its files, its shape and whether it is
optional; writing, reading, checking and selecting rows follow from this declaration."""

from __future__ import annotations

import io
import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import linkage_of
from flawsort.core.records import Ints
from flawsort.core.tables import LEAST_BYTES, LONGEST_ROW, Columns, read_parquet
from flawsort.core.temporaries import named_for
from flawsort.health.record import Health

# The content of a file: an array, saved as .npy, or bytes, saved as they are.
Content: TypeAlias = NDArray[Any] | bytes

# In bytes: of a thumbnail, which has about 10 kB; of other files whose size nothing tells; of
# arrays that may be read before anything is known of them.
LARGEST_PICTURE = 2**20
LARGEST_FILE = 2**28
LITTLE = 2**24
# Of what the manifest does not count, such as the numbers of an embedding.
LARGEST_SIDE = 2**20


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """A part of a run.

    files: the names of its files. shape: for each side a number, or what the side counts: "images",
    "merges", "regions", "patches" or "dims"; () if the shape is not fixed. optional: the part is
    None if a run has none of its files.
    """

    files: tuple[str, ...]
    shape: tuple[str | int, ...] = ()
    optional: bool = False

    @property
    def counts(self) -> str | int | None:
        """What its first side counts; None if the shape is not fixed."""
        return self.shape[0] if self.shape else None

    @property
    def read_from(self) -> tuple[str, ...]:
        """The files from which it is read. The other files are for people."""
        return self.files

    @abstractmethod
    def encode(self, value: Any) -> tuple[Content, ...]:
        """The contents of its files."""

    @abstractmethod
    def decode(self, contents: list[bytes]) -> Any:
        """The part, from the contents of the files in `read_from`."""

    def contents(self, value: Any) -> dict[str, bytes]:
        """The bytes of its files, by name."""
        return {
            file: content if isinstance(content, bytes) else _saved(content)
            for file, content in zip(self.files, self.encode(value), strict=True)
        }

    def within(self, place: Path, most: Mapping[str | int, int]) -> Self:
        """This part of a run in a folder, before it is read. most: of images, patches and so on.
        ValueError if a file is larger than the part can be: the run may come from anybody, and an
        empty file of any size costs nothing to make."""
        return self

    def faults(self, name: str, value: Any, sizes: Mapping[str | int, int]) -> list[str]:
        """Messages about a wrong shape. sizes: the number of images, regions and so on."""
        if not self.shape or len(value) == sizes[self.shape[0]]:
            return []
        return [f"{name} has {len(value)}"]

    def take(self, value: Any, rows: Ints) -> Any:
        """The entries at `rows`, in that order."""
        return value[rows]


class ArrayPart(Part):
    """An array in a .npy file."""

    def encode(self, value: Any) -> tuple[Content, ...]:
        return (value,)

    def decode(self, contents: list[bytes]) -> Any:
        return _load(contents[0])

    def within(self, place: Path, most: Mapping[str | int, int]) -> Self:
        _check_array(place / self.files[0], [_most(side, most) for side in self.shape])
        return self

    def faults(self, name: str, value: Any, sizes: Mapping[str | int, int]) -> list[str]:
        wanted = tuple(side if isinstance(side, int) else sizes[side] for side in self.shape)
        if not self.shape or value.shape == wanted:
            return []
        if value.ndim == len(wanted) and value.shape[1:] == wanted[1:]:
            return [f"{name} has {len(value)}"]
        return [f"{name} has the shape {value.shape} instead of {wanted}"]


class TreePart(ArrayPart):
    """The merges of a tree whose leaves are the images."""

    def take(self, value: Any, rows: Ints) -> Any:
        return linkage_of(value, rows)


class ArraysPart(Part):
    """Several arrays, each in a .npy file."""

    def encode(self, value: Any) -> tuple[Content, ...]:
        return tuple(value)

    def decode(self, contents: list[bytes]) -> Any:
        return tuple(map(_load, contents))

    def within(self, place: Path, most: Mapping[str | int, int]) -> Self:
        for file in self.files:
            _check_array(place / file, ())
        return self


class NamedArraysPart(Part):
    """Several arrays by name, in one .npz file."""

    def encode(self, value: Any) -> tuple[Content, ...]:
        content = io.BytesIO()
        np.savez(content, **value)  # with a fixed date, so the bytes depend on the arrays alone
        return (content.getvalue(),)

    def decode(self, contents: list[bytes]) -> Any:
        with zipfile.ZipFile(io.BytesIO(contents[0])) as archive:
            # What numpy writes is as large as it says, and not packed.
            if sum(entry.file_size for entry in archive.infolist()) > len(contents[0]):
                raise ValueError("it must not be packed")
        with np.load(io.BytesIO(contents[0]), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


@dataclass(frozen=True, kw_only=True)
class TablePart(Part):
    """A table as a parquet file, and then as a CSV file for people."""

    columns: Columns[Any]
    most: int | None = None

    @property
    def read_from(self) -> tuple[str, ...]:
        return self.files[:1]

    def encode(self, value: Any) -> tuple[Content, ...]:
        return self.columns.parquet(value), self.columns.csv(value).encode()

    def decode(self, contents: list[bytes]) -> Any:
        return read_parquet(contents[0], self.most)

    def within(self, place: Path, most: Mapping[str | int, int]) -> Self:
        rows = _most(self.shape[0], most)
        for file in self.files:  # also the one for people, which is copied when it is replaced
            _check_size(place / file, LEAST_BYTES + rows * LONGEST_ROW)
        return replace(self, most=rows)

    def faults(self, name: str, value: Any, sizes: Mapping[str | int, int]) -> list[str]:
        n, file = sizes[self.shape[0]], self.files[0]
        wrong = {column: len(values) for column, values in value.items() if len(values) != n}
        missing = self.columns.missing(value)
        lacking = [f"{file} lacks the columns {', '.join(missing)}"] if missing else []
        return lacking + [f"column {column} of {file} has {n}" for column, n in wrong.items()]

    def take(self, value: Any, rows: Ints) -> Any:
        return {column: [values[row] for row in rows] for column, values in value.items()}


class PicturesPart(Part):
    """Small files, such as thumbnails: one file with their bytes one after the other, and a .npy
    file with the end of each."""

    def encode(self, value: Any) -> tuple[Content, ...]:
        return b"".join(value), np.cumsum([len(one) for one in value], dtype=np.int64)

    def decode(self, contents: list[bytes]) -> Any:
        content, places = contents[0], _load(contents[1])
        steps = np.diff(places, prepend=0)
        if places.dtype.kind not in "iu" or places.ndim != 1 or (steps < 0).any():
            raise ValueError("the ends of its files must be ascending whole numbers")
        ends = places.tolist()
        return tuple(content[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True))

    def within(self, place: Path, most: Mapping[str | int, int]) -> Self:
        n = _most(self.shape[0], most)
        _check_size(place / self.files[0], n * LARGEST_PICTURE)
        _check_array(place / self.files[1], [n])
        return self

    def take(self, value: Any, rows: Ints) -> Any:
        return tuple(value[row] for row in rows)


class HealthPart(Part):
    """What the health check found, as JSON."""

    def encode(self, value: Any) -> tuple[Content, ...]:
        return (value.to_json(),)

    def decode(self, contents: list[bytes]) -> Any:
        return Health.from_json(contents[0])

    def within(self, place: Path, most: Mapping[str | int, int]) -> Self:
        _check_size(place / self.files[0], LARGEST_FILE)
        return self


class FilePart(Part):
    """A file whose bytes are stored unchanged."""

    def encode(self, value: Any) -> tuple[Content, ...]:
        return (value,)

    def decode(self, contents: list[bytes]) -> Any:
        return contents[0]

    def within(self, place: Path, most: Mapping[str | int, int]) -> Self:
        _check_size(place / self.files[0], LARGEST_FILE)
        return self


def _saved(values: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.save(content, values, allow_pickle=False)
    return content.getvalue()


def _load(content: bytes) -> NDArray[Any]:
    loaded: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    return loaded


def _most(side: str | int, most: Mapping[str | int, int]) -> int:
    return side if isinstance(side, int) else most.get(side, LARGEST_SIDE)


def _there(path: Path) -> list[Path]:
    """The file and its backups, as far as they are there."""
    return [one for one in (path, *named_for(path, "kept")) if one.is_file()]


def _check_size(path: Path, most: int) -> None:
    for there in _there(path):
        if there.stat().st_size > most:
            raise ValueError(f"it has more than {most:,} bytes")


def _check_array(path: Path, sides: Sequence[int]) -> None:
    """ValueError unless a large file is as large as its header says, and no side larger than that
    of `sides`; () for any shape. Others cost little, and their hash tells more of what is wrong."""
    for there in _there(path):
        if there.stat().st_size <= LITTLE:
            continue
        with there.open("rb") as file:
            version = np.lib.format.read_magic(file)
            form = np.lib.format
            old = version == (1, 0)
            read = form.read_array_header_1_0 if old else form.read_array_header_2_0
            shape, _, dtype = read(file)
            size = file.tell() + math.prod(shape) * dtype.itemsize
        if dtype.kind not in "biufc" or there.stat().st_size != size:
            raise ValueError("it is no array of numbers, or of another size than it says")
        if sides and any(a > b for a, b in zip(shape, sides, strict=False)):
            raise ValueError(f"it has the shape {shape} instead of at most {tuple(sides)}")

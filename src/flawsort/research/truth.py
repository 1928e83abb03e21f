"""Folder layouts that carry the truth: which label each image has, and where its flaw is.

Labels are for measuring only (metrics, the paper's tables, a report's evaluation part).
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from flawsort.core.errors import InputError
from flawsort.core.records import ImageSet, SetAside
from flawsort.core.text import printable
from flawsort.images.find import find_images
from flawsort.images.formats import IMAGE_SUFFIXES
from flawsort.images.lookup import Columns, only, read_lookup

Layout: TypeAlias = Literal["category", "tiles", "folders"]

# The paper clusters images of these types with the others and leaves them out of the metrics:
# each shows several flaws at once, so no single group is right for it.
EXCLUDED_LABELS = ("combined",)

NORMAL_LIST = "train_normal.txt"

_KNOWN_LAYOUTS = (
    "an MVTec AD category (test/<type>/, train/good/, ground_truth/<type>/), a folder of such "
    "categories, magnetic tiles (MT_<type>/Imgs/*.jpg), or one folder for each label"
)
_TILE_PREFIX = "MT_"
_TILE_NORMAL = "MT_Free"
_TILE_GLOB = "MT_*/Imgs/*.[jJ][pP]*[gG]"
# Where the official list of normals is missing: its share, drawn with a seed.
_NORMAL_SHARE = 0.8
_COLUMNS = Columns("truth", ("path", "name", "file", "image"), ("label", "class", "truth"))


@dataclass(frozen=True)
class LabelledSet:
    """Images with their truth. `labels` and `masks` follow the order of `images`.

    masks: the file that marks each image's flaw, None where there is none.
    normals: images known to be good, apart from `images`; None if the layout has none.
    layout: how the folder is laid out.
    """

    name: str
    images: ImageSet
    labels: tuple[str, ...]
    masks: tuple[Path | None, ...]
    normals: ImageSet | None
    layout: Layout = "folders"

    def __post_init__(self) -> None:
        if not len(self.images) == len(self.labels) == len(self.masks):
            raise InputError(
                "images, labels and masks must have the same length. Got "
                f"{len(self.images)}, {len(self.labels)} and {len(self.masks)}."
            )

    def take(self, rows: Sequence[int]) -> LabelledSet:
        """The set with these images only, and all normals."""
        return replace(
            self,
            images=self.images.take(rows),
            labels=tuple(self.labels[row] for row in rows),
            masks=tuple(self.masks[row] for row in rows),
        )


@dataclass(frozen=True)
class FoundSet:
    """A labelled set that is known by the names of its folders, before any file is opened."""

    name: str
    folder: Path
    layout: Layout


def find_datasets(path: Path) -> list[FoundSet]:
    """The labelled sets in a folder, as `load_datasets` knows them; no file is opened."""
    if not path.is_dir():
        raise InputError(
            f"'{printable(path)}' is not a folder. Datasets are folders: {_KNOWN_LAYOUTS}."
        )
    if _is_category(path):
        return [_found(path, "category")]
    folders = _subfolders(path)
    categories = [folder for folder in folders if _is_category(folder)]
    if categories:
        return [_found(folder, "category") for folder in categories]
    if any(
        folder.name.startswith(_TILE_PREFIX) and (folder / "Imgs").is_dir() for folder in folders
    ):
        return [_found(path, "tiles")]
    return [_found(path, "folders")]


def load_dataset(found: FoundSet, *, split_seed: int = 0) -> LabelledSet:
    """The images of a set with their labels.

    split_seed: draws which of the good magnetic tiles are normals, where no list names them.
    """
    if found.layout == "category":
        return _load_category(found)
    if found.layout == "tiles":
        return _load_tiles(found, split_seed)
    return _load_folders(found)


def load_datasets(path: Path, *, split_seed: int = 0) -> list[LabelledSet]:
    """The labelled sets in a folder, sorted by name: several for a folder of MVTec categories.

    Knows an MVTec AD category, a folder of them, magnetic tiles, and one folder for each label.
    split_seed: draws which of the good magnetic tiles are normals, where no list names them.
    """
    return [load_dataset(found, split_seed=split_seed) for found in find_datasets(path)]


def read_truth(truth: Path, images: ImageSet) -> tuple[str | None, ...]:
    """The true label of each image, None where it is not known.

    truth: a folder of a layout that load_datasets knows, where an image is the file with the same
    resolved path or, failing that, the same content; or a CSV file with a column path, name, file
    or image, and a column label, class or truth, where an image is the row with its path (absolute
    or relative to the CSV file), its name, or its base name if only one image and one row have it.
    An image with two different labels has none.
    """
    if truth.is_dir():
        labels, size = _truth_of_folder(truth, images)
    elif truth.is_file():
        labels, size = _truth_of_table(truth, images)
    else:
        raise InputError(
            f"The truth '{printable(truth)}' does not exist. Name a CSV file or a folder: "
            f"{_KNOWN_LAYOUTS}."
        )
    if not any(label is not None for label in labels):
        raise InputError(
            f"None of the {len(images)} images has a label among the {size} of "
            f"'{printable(truth)}'. "
            "Images are matched by path, then by content (folder) or by name (CSV). "
            "Check that it is the truth of these images."
        )
    return labels


def _is_category(path: Path) -> bool:
    # A folder called test is not enough: it must hold types.
    return (path / "test").is_dir() and bool(_subfolders(path / "test"))


def _subfolders(path: Path) -> list[Path]:
    return sorted(
        entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )


def _found(folder: Path, layout: Layout) -> FoundSet:
    return FoundSet(printable(Path(os.path.abspath(folder)).name), folder, layout)


def _load_category(found: FoundSet) -> LabelledSet:
    path = found.folder
    images = _below_a_folder(find_images(path / "test"))
    masks = tuple(_category_mask(path / "ground_truth", name) for name in images.names)
    good = path / "train" / "good"
    normals = None
    if any(entry.suffix.lower() in IMAGE_SUFFIXES for entry in good.rglob("*")):
        # Found from train/, so that the names carry the label as those of the images do.
        good_ones = find_images(path / "train", glob="good/*")
        normals = good_ones if len(good_ones) else None
    labels = tuple(_first_folder(name) for name in images.names)
    return LabelledSet(found.name, images, labels, masks, normals, found.layout)


def _category_mask(folder: Path, name: str) -> Path | None:
    place = PurePosixPath(name)
    for stem in (f"{place.stem}_mask", place.stem):
        for suffix in IMAGE_SUFFIXES:
            mask = folder / place.parent / f"{stem}{suffix}"
            if mask.is_file():
                return mask
    return None


def _load_tiles(found: FoundSet, split_seed: int) -> LabelledSet:
    path = found.folder
    # The .png beside each .jpg is its mask, not an image.
    tiles = find_images(path, glob=_TILE_GLOB)
    chosen = _normal_tiles(path, tiles.names, split_seed)
    normal = [i for i, name in enumerate(tiles.names) if name in chosen]
    images = tiles.take([i for i, name in enumerate(tiles.names) if name not in chosen])
    masks = []
    for name in images.names:
        mask = path / PurePosixPath(name).with_suffix(".png")
        masks.append(mask if mask.is_file() else None)
    return LabelledSet(
        found.name,
        images,
        tuple(_first_folder(name).removeprefix(_TILE_PREFIX) for name in images.names),
        tuple(masks),
        tiles.take(normal) if normal else None,
        found.layout,
    )


def _normal_tiles(path: Path, names: Sequence[str], seed: int) -> set[str]:
    """The names of the images to be used as normals."""
    listing = path / NORMAL_LIST
    if not listing.is_file():
        good = sorted(name for name in names if _first_folder(name) == _TILE_NORMAL)
        return set(random.Random(seed).sample(good, int(_NORMAL_SHARE * len(good))))
    lines = listing.read_text("utf-8-sig", "backslashreplace").splitlines()
    wanted = {PurePosixPath(line.strip()).name for line in lines if line.strip()}
    chosen = {name for name in names if PurePosixPath(name).name in wanted}
    if not chosen:
        raise InputError(
            f"None of the {len(wanted)} files that '{printable(listing)}' names is among the "
            f"{len(names)} images beside it. Write one file name a line, or remove the list."
        )
    return chosen


def _load_folders(found: FoundSet) -> LabelledSet:
    images = _below_a_folder(find_images(found.folder))
    labels = tuple(_first_folder(name) for name in images.names)
    if len(set(labels)) < 2:
        raise InputError(
            f"'{printable(found.folder)}' has no labels: {len(set(labels))} of its folders have "
            f"images. Known layouts: {_KNOWN_LAYOUTS}."
        )
    return LabelledSet(found.name, images, labels, (None,) * len(images), None, found.layout)


def _below_a_folder(images: ImageSet) -> ImageSet:
    loose = [name for name in images.names if "/" not in name]
    return images.without([SetAside(name, "has no label: it is in no folder") for name in loose])


def _first_folder(name: str) -> str:
    return name.partition("/")[0]


def _truth_of_folder(truth: Path, images: ImageSet) -> tuple[tuple[str | None, ...], int]:
    by_path: dict[str, set[str]] = {}
    by_content: dict[str, set[str]] = {}
    for part in load_datasets(truth):
        labelled = [(part.images, part.labels)]
        if part.normals is not None:
            names = part.normals.names
            labels = tuple(_first_folder(name).removeprefix(_TILE_PREFIX) for name in names)
            labelled.append((part.normals, labels))
        for known, labels in labelled:
            for source, digest, label in zip(known.sources, known.digests, labels, strict=True):
                by_content.setdefault(digest, set()).add(label)
                if isinstance(source, Path):
                    by_path.setdefault(os.path.realpath(source), set()).add(label)
    found: list[str | None] = []
    for source, digest in zip(images.sources, images.digests, strict=True):
        real = os.path.realpath(source) if isinstance(source, Path) else ""
        found.append(only(by_path.get(real) or by_content.get(digest)))
    return tuple(found), len(by_path)


def _truth_of_table(truth: Path, images: ImageSet) -> tuple[tuple[str | None, ...], int]:
    table = read_lookup(truth, _COLUMNS)
    return tuple(table.values_of(images.names, images.sources)), len(table.rows)

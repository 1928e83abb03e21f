"""The paper's protocol: its sets, the images that metrics count, and its random subsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.research.truth import (
    EXCLUDED_LABELS,
    FoundSet,
    LabelledSet,
    find_datasets,
    load_dataset,
)

OBJECTS = (
    "bottle", "cable", "capsule", "hazelnut", "metal_nut", "pill", "screw", "toothbrush",
    "transistor", "zipper",
)  # fmt: skip
TEXTURES = ("carpet", "grid", "leather", "tile", "wood")
GROUPS = ("object", "texture", "mtd")
# The supplement's protocol: random subsets of this share of the test images.
SUBSET_SHARE = 0.9


@dataclass(frozen=True)
class Task:
    """One set to cluster, all its images at once (transductive).

    group: "object", "texture" or "mtd" as in the paper's tables, or "other".
    truth: the type of each image; None if the protocol leaves it out of the metrics.
    n_classes: the true number of types, which the paper uses as k: an oracle.
    """

    data: LabelledSet
    group: str
    truth: tuple[str | None, ...]
    n_classes: int

    @property
    def name(self) -> str:
        """ "mtd" for the magnetic tiles, whatever their folder is called."""
        return "mtd" if self.group == "mtd" else self.data.name

    @property
    def counted(self) -> NDArray[np.int64]:
        """The rows of the images that the metrics count."""
        return np.array([row for row, label in enumerate(self.truth) if label is not None])


def find_tasks(
    folders: Sequence[Path],
    *,
    only: Sequence[str] = (),
    split_seed: int = 0,
    leave_out: bool = False,
) -> list[Task]:
    """The sets in the folders, in the order of the paper's tables.

    only: the names of the sets to load, all if empty; no file of another set is opened.
    split_seed: draws the normals of the magnetic tiles if no list names them. leave_out: cluster
    without the images that the metrics do not count.
    """
    found = [(_name(one), one) for folder in folders for one in find_datasets(folder)]
    names = [name for name, _ in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"Each set may be given once. Got {', '.join(twice)} more than once.")
    known = (*OBJECTS, *TEXTURES, "mtd")
    found.sort(key=lambda one: (known.index(one[0]) if one[0] in known else 99, one[0]))
    absent = [name for name in only if name not in names]
    if absent:
        there = ", ".join(name for name, _ in found)
        raise OptionError(
            f"must name sets among {there}. Got {', '.join(absent)}.", parameter="only"
        )
    return [
        _task(load_dataset(one, split_seed=split_seed), leave_out=leave_out)
        for name, one in found
        if not only or name in only
    ]


def missing_from(tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """The sets of the paper that are missing here, by group."""
    there = {task.name for task in tasks}
    wanted = {"object": OBJECTS, "texture": TEXTURES, "mtd": ("mtd",)}
    lacking = {
        group: tuple(name for name in names if name not in there) for group, names in wanted.items()
    }
    return {group: names for group, names in lacking.items() if names}


def subset_rows(n_images: int, seed: int) -> NDArray[np.int64]:
    """The images of a random subset, sorted: SUBSET_SHARE of them, at least two."""
    size = max(2, round(SUBSET_SHARE * n_images))
    return np.sort(np.random.default_rng(seed).permutation(n_images)[:size])


def _group(found: FoundSet | LabelledSet) -> str:
    if found.name in OBJECTS:
        return "object"
    if found.name in TEXTURES:
        return "texture"
    return "mtd" if found.layout == "tiles" else "other"


def _name(found: FoundSet | LabelledSet) -> str:
    return "mtd" if _group(found) == "mtd" else found.name


def _task(data: LabelledSet, *, leave_out: bool = False) -> Task:
    for found in (data.images, data.normals):
        if found is not None and found.set_aside:
            first = found.set_aside[0]
            raise InputError(
                f"'{data.name}' has {len(found.set_aside)} images that cannot be used, the first "
                f"'{first.name}': {first.reason}. A table needs all of them: repair or remove them."
            )
    if leave_out:
        counted = [row for row, label in enumerate(data.labels) if label not in EXCLUDED_LABELS]
        data = data.take(counted)
    truth = tuple(None if label in EXCLUDED_LABELS else label for label in data.labels)
    n_classes = len(set(truth) - {None})
    if n_classes < 2:
        raise InputError(
            f"A set must have images of at least 2 types to be measured. '{data.name}' has "
            f"{n_classes}; leave it out."
        )
    return Task(data, _group(data), truth, n_classes)

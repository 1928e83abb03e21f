"""The paper's protocol: which sets there are, what is counted, and over what a mean is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.datasets import EXCLUDED_LABELS, LabelledSet, load_datasets
from flawsort.errors import InputError

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
    truth: each image's type; None where the protocol leaves it out of the metrics.
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


def find_tasks(folders: Sequence[Path], *, split_seed: int = 0) -> list[Task]:
    """The sets in the folders, in the order of the paper's tables.

    split_seed: draws the normals of the magnetic tiles where no list names them.
    """
    tasks = [
        _task(data) for folder in folders for data in load_datasets(folder, split_seed=split_seed)
    ]
    names = [task.name for task in tasks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"Each set may be given once. Got {', '.join(twice)} more than once.")
    known = (*OBJECTS, *TEXTURES, "mtd")
    return sorted(
        tasks, key=lambda task: (known.index(task.name) if task.name in known else 99, task.name)
    )


def _task(data: LabelledSet) -> Task:
    group = "other"
    if data.name in OBJECTS:
        group = "object"
    elif data.name in TEXTURES:
        group = "texture"
    elif data.layout == "tiles":
        group = "mtd"
    for found in (data.images, data.normals):
        if found is not None and found.set_aside:
            first = found.set_aside[0]
            raise InputError(
                f"'{data.name}' has {len(found.set_aside)} images that cannot be used, the first "
                f"'{first.name}': {first.reason}. A table needs all of them: repair or remove them."
            )
    truth = tuple(None if label in EXCLUDED_LABELS else label for label in data.labels)
    n_classes = len(set(truth) - {None})
    if n_classes < 2:
        raise InputError(
            f"A set must have images of at least 2 types to be measured. '{data.name}' has "
            f"{n_classes}; leave it out."
        )
    return Task(data, group, truth, n_classes)


def missing_from(tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """What the paper measured and these sets lack, by group."""
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

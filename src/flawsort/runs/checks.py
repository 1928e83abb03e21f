"""Checks of the values in a run's files. Hashes only show that a file is the one that was written:
a run may come from anybody, and no value of it may cost memory, time or another run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.tables import Columns, Table
from flawsort.runs.reviewed import computed_kinds
from flawsort.runs.tables import IMAGES, REGIONS, SEVERAL

# Pixels on a side of a backbone's input. The largest are below 1,000.
LARGEST_INPUT = 8192
# As `embeddings.regions.mask_text` writes it.
_MASK = re.compile(r"\d{1,7}(-\d{1,7})?( \d{1,7}(-\d{1,7})?)*")
_NUMBER = re.compile(r"\d{1,9}")


def wrong_values(
    images: Table,
    regions: Table,
    arrays: Mapping[str, NDArray[Any]],
    n_clusters: int,
    grid: tuple[int, int],
) -> list[str]:
    """What is wrong with the values of a run whose parts have the right shapes. arrays: its arrays
    of numbers by name, among them linkage."""
    n = len(images["name"])
    found = [*_wrong_types(IMAGES, images), *_wrong_types(REGIONS, regions)]
    if not 1 <= n_clusters <= n:
        found.append(f"n_clusters must be between 1 and {n} (the number of images)")
    found += [f"{name} must hold finite numbers" for name in arrays if not _finite(arrays[name])]
    if not found and not _is_tree(arrays["linkage"]):
        found.append("linkage is no tree of the images")
    return found or [
        *_wrong_clusters(images, n_clusters, regions),
        *_wrong_masks(regions["mask"], grid),
    ]


def wrong_sizes(grid: tuple[int, int], size: tuple[int, int], tiles: tuple[int, int]) -> list[str]:
    """What is wrong with the sides of the grid, of a backbone's input, and with the number of
    tiles: each of them makes pictures larger."""
    if min(grid) < 1 or not all(1 <= side <= LARGEST_INPUT for side in size):
        return [f"its input must be 1 to {LARGEST_INPUT} pixels on each side"]
    if any(not 1 <= some <= side for some, side in zip(tiles, grid, strict=True)):
        return ["it must have fewer tiles than patches"]
    return []


def _wrong_types(columns: Columns[Any], table: Table) -> list[str]:
    return [f"column {name} must hold {what}" for name, what in columns.wrong_types(table).items()]


def _finite(values: NDArray[Any]) -> bool:
    return values.dtype in (np.float16, np.float32, np.float64) and bool(np.isfinite(values).all())


def _is_tree(linkage: NDArray[Any]) -> bool:
    """Whether each merge joins two different clusters that are there, and each is joined once."""
    children = linkage[:, :2]
    last = len(linkage) + 1 + np.arange(len(linkage))[:, None]
    whole = bool(((children >= 0) & (children < last) & (children == np.floor(children))).all())
    return whole and len(np.unique(children)) == children.size


def _wrong_clusters(images: Table, n_clusters: int, regions: Table) -> list[str]:
    columns = {
        "cluster": (images["cluster"], 0),
        "cluster of a region": (regions["cluster"], -1),
        "nearest of a region": (regions["nearest"], -1),
    }
    wrong = [
        f"column {name} must be {least} to {n_clusters - 1}"
        for name, (values, least) in columns.items()
        if values and not (least <= min(values) and max(values) < n_clusters)
    ]
    kinds = {kind for text in set(computed_kinds(images)) for kind in text.split(SEVERAL)}
    if not all(_NUMBER.fullmatch(kind) and int(kind) < n_clusters for kind in kinds):
        wrong.append(f"column kinds must name clusters, 0 to {n_clusters - 1}")
    return wrong


def _wrong_masks(masks: Sequence[str], grid: tuple[int, int]) -> list[str]:
    n_patches = grid[0] * grid[1]

    def fits(mask: str) -> bool:
        if len(mask) > 8 * n_patches or not _MASK.fullmatch(mask):
            return False
        runs = [run.partition("-") for run in mask.split(" ")]
        ends = [(int(first), int(last or first)) for first, _, last in runs]
        ordered = all(first <= last < n_patches for first, last in ends)
        return ordered and sum(last - first + 1 for first, last in ends) <= n_patches

    wrong = any(not fits(mask) for mask in set(masks))
    return [f"column mask must list patches, 0 to {n_patches - 1}"] if wrong else []

"""Selects the images of a large run that a page shows: nobody can view a hundred thousand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Ints
from flawsort.core.tables import Table
from flawsort.runs.run import Run

# A page shows at most this many images. In a larger run only these have thumbnails.
SHOWN_IMAGES = 5000
# A page shows at least this many images of each group, if the group has as many.
SHOWN_OF_A_GROUP = 50


@dataclass(frozen=True)
class Limits:
    """How much a page shows. images: at most this many. of_a_group: at least this many of each
    group, if the group has as many."""

    images: int = SHOWN_IMAGES
    of_a_group: int = SHOWN_OF_A_GROUP


PAGE = Limits()


def shown_rows(
    table: Table, limits: Limits = PAGE, labels: Ints | None = None
) -> NDArray[np.int64]:
    """The rows of the images to show: all, or a share of each group, spread evenly from its most
    typical to its least typical image. labels: of the groups; None for the clusters."""
    n = len(table["cluster"])
    if n <= limits.images:
        return np.arange(n)
    labels = np.array(table["cluster"]) if labels is None else np.asarray(labels)
    typical = np.array(table["typicality"])
    chosen = []
    groups = np.unique(labels)
    at_least = max(1, min(limits.of_a_group, limits.images // len(groups)))
    for group in groups:
        members = np.flatnonzero(labels == group)
        ranked = members[np.argsort(-typical[members], kind="stable")]
        count = max(round(limits.images * len(members) / n), min(at_least, len(members)))
        places = np.linspace(0, len(ranked) - 1, count).round().astype(np.int64)
        chosen.append(ranked[places])
    return np.sort(np.concatenate(chosen))


def excerpt(
    run: Run,
    limits: Limits = PAGE,
    labels: Ints | None = None,
    titles: Mapping[int, str] | None = None,
) -> tuple[Run, NDArray[np.int64]]:
    """The run with only the images to show, and their rows in the whole run. labels, titles: of
    the groups; None for the clusters."""
    rows = shown_rows(run.table, limits, labels)
    if len(rows) == len(run):
        return run, rows
    counted = np.bincount(run.labels if labels is None else labels)
    names = titles or {}
    sizes = ", ".join(f"{names.get(group, group)}: {n:,}" for group, n in enumerate(counted) if n)
    note = (
        f"This page shows {len(rows):,} of {len(run):,} images, spread evenly in each group from "
        f"the most to the least typical; images.csv lists all. Images by group: {sizes}."
    )
    warnings = [note, *run.manifest.get("warnings", [])]
    return replace(run.take(rows), manifest={**run.manifest, "warnings": warnings}), rows

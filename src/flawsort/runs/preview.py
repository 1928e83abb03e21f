"""A part of a large run to look at: a page with a hundred thousand images helps nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Floats, Ints
from flawsort.runs.folder import Run, Table

# A page shows so many images. Of a larger run only these have thumbnails.
SHOWN_IMAGES = 5000
# and of each group at least so many, if it has them.
SHOWN_OF_A_GROUP = 50


def shown_rows(table: Table) -> NDArray[np.int64]:
    """The rows of the images to show: all, or of each group a share of them, spread evenly from
    its most typical image to its least typical one."""
    n = len(table["cluster"])
    if n <= SHOWN_IMAGES:
        return np.arange(n)
    labels, typical = np.array(table["cluster"]), np.array(table["typicality"])
    chosen = []
    groups = np.unique(labels)
    at_least = max(1, min(SHOWN_OF_A_GROUP, SHOWN_IMAGES // len(groups)))
    for group in groups:
        members = np.flatnonzero(labels == group)
        ranked = members[np.argsort(-typical[members], kind="stable")]
        count = max(round(SHOWN_IMAGES * len(members) / n), min(at_least, len(members)))
        places = np.linspace(0, len(ranked) - 1, count).round().astype(np.int64)
        chosen.append(ranked[places])
    return np.sort(np.concatenate(chosen))


def excerpt(run: Run) -> tuple[Run, NDArray[np.int64]]:
    """The run with the images that are shown alone, and their rows in the whole one."""
    rows = shown_rows(run.table)
    if len(rows) == len(run.table["name"]):
        return run, rows
    note = (
        f"This page shows {len(rows):,} of {len(run.table['name']):,} images, of each group evenly "
        f"from its most typical to its least typical one; images.csv lists all. "
        f"All images by group: {_sizes(run.table)}."
    )
    place = {run.table["name"][row] for row in rows}
    shown = [index for index, name in enumerate(run.regions["name"]) if name in place]
    part = replace(
        run,
        regions={name: [values[row] for row in shown] for name, values in run.regions.items()},
        region_embeddings=run.region_embeddings[shown],
        manifest={**run.manifest, "warnings": [note, *run.manifest.get("warnings", [])]},
        table={name: [values[row] for row in rows] for name, values in run.table.items()},
        scores=run.scores[rows],
        valid=None if run.valid is None else run.valid[rows],
        weights=run.weights[rows],
        embeddings=run.embeddings[rows],
        linkage=linkage_of(run.linkage, rows),
        layout=run.layout[rows],
        thumbnails=tuple(run.thumbnails[row] for row in rows),
    )
    return part, rows


def linkage_of(merges: Floats, rows: Ints) -> NDArray[np.float64]:
    """(len(rows) - 1, 4): the tree of some of the leaves, in the order of `rows`: what is left of
    the whole tree (n - 1, 4) when the others are taken off it."""
    n = len(merges) + 1
    place = np.full(2 * n - 1, -1)
    place[rows] = np.arange(len(rows))
    sizes = [1] * len(rows)
    kept = []
    for step, (left, right, height) in enumerate(merges[:, :3].tolist()):
        one, other = place[int(left)], place[int(right)]
        if one < 0 or other < 0:
            place[n + step] = max(one, other)
            continue
        place[n + step] = len(sizes)
        sizes.append(sizes[one] + sizes[other])
        kept.append((min(one, other), max(one, other), height, sizes[-1]))
    return np.array(kept, np.float64).reshape(-1, 4)


def _sizes(table: Table) -> str:
    groups, counts = np.unique(table["cluster"], return_counts=True)
    return ", ".join(f"{group}: {count:,}" for group, count in zip(groups, counts, strict=True))

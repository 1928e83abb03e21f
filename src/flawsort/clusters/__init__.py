"""Embeddings to groups: build the tree, advise where to cut it, and cut it.

Each step has its own module; `group` runs all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.advice import Advice, Link, advise
from flawsort.clusters.clusterers import (
    LINKAGES,
    WARD,
    cluster_distances,
    cluster_embeddings,
    linkage_from_distances,
    linkage_from_embeddings,
    linkage_of_groups,
)
from flawsort.clusters.large_ward import tree
from flawsort.clusters.ward import cut, reorder_leaves, ward_linkage
from flawsort.core.errors import OptionError
from flawsort.core.records import Floats, Ints, Progress
from flawsort.core.text import either
from flawsort.embeddings.method import EMBEDDINGS, WITHOUT_PAIRS

# The distances of all pairs of so many images take 800 MB, and a clusterer holds a few copies.
MOST_IN_PAIRS = 10_000


@dataclass(frozen=True)
class Grouped:
    """labels: (n,). linkage: (n - 1, 4). n_clusters: the number of clusters made."""

    labels: NDArray[np.int64]
    linkage: NDArray[np.float64]
    n_clusters: int
    advice: Advice


def group(
    embeddings: NDArray[np.float32],
    order: Ints,
    n_clusters: int | Literal["auto"],
    *,
    clusterer: str = WARD,
    distances: Floats | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Grouped:
    """Link, advise and cut.

    embeddings: (n, dim). order: (n,), the order in which rows are linked; an order by content makes
    the result depend on the images alone. clusterer: one of `clusterers.CLUSTERERS`. Those that
    make no tree get one that has their groups. distances: (n, n), grouped instead of the
    embeddings.
    """
    check_pairs(len(order), clusterer, given=distances is not None)
    ordered = embeddings[order]
    square = None if distances is None else distances[np.ix_(order, order)]
    linkage = clusterer if clusterer in LINKAGES else WARD
    link = _link(ordered, square, linkage)
    if square is None and linkage == WARD:
        merges = tree(ordered, progress=progress)
    else:
        merges = link(np.arange(len(order)))
    advice = advise(ordered, merges, link=link, random_state=random_state)
    k = advice.k if n_clusters == "auto" else int(n_clusters)
    if clusterer not in LINKAGES:
        if square is None:
            found = cluster_embeddings(ordered, k, clusterer, random_state)
        else:
            found = cluster_distances(square, k, clusterer, random_state)
        k = int(found.max()) + 1  # fewer than asked for if images are alike
        merges = linkage_of_groups(ordered, found, square)
    # Groups of equal size are numbered by their first image in that order, too.
    labels = cut(merges, k)[np.argsort(order)]
    return Grouped(labels, reorder_leaves(merges, order), k, advice)


def check_pairs(n: int, clusterer: str, *, given: bool) -> None:
    """Refuse more images than the distances of all pairs fit in memory for. given: whether the
    distances are given."""
    if n <= MOST_IN_PAIRS or (clusterer in WITHOUT_PAIRS and not given):
        return
    if given:
        raise OptionError(
            f"must be '{EMBEDDINGS}' for more than {MOST_IN_PAIRS:,} images: otherwise the "
            f"distances of all pairs are held. Got {n:,} images.",
            parameter="distance",
        )
    able = either(f"'{name}'" for name in WITHOUT_PAIRS)
    raise OptionError(
        f"must be {able} for more than {MOST_IN_PAIRS:,} images: the others hold the distances of "
        f"all pairs. Got '{clusterer}' and {n:,} images.",
        parameter="clusterer",
    )


def _link(embeddings: NDArray[np.float32], distances: Floats | None, linkage: str) -> Link:
    """The merges of some of the images, by their rows."""

    def link(rows: Ints) -> NDArray[np.float64]:
        if distances is not None:
            return linkage_from_distances(distances[np.ix_(rows, rows)], linkage)
        if linkage == WARD:
            return ward_linkage(embeddings[rows])
        return linkage_from_embeddings(embeddings[rows], linkage)

    return link

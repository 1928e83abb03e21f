"""Embeddings to groups: build the tree, advise where to cut it, and cut it.

Each step has its own module; `group` runs all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.advice import Advice, advise
from flawsort.clusters.constrained import constrained_tree
from flawsort.clusters.large_ward import tree
from flawsort.clusters.ward import cut, number_by_size, reorder_leaves
from flawsort.core.records import Ints, Progress


@dataclass(frozen=True)
class Grouped:
    """labels: (n,). linkage: (n - 1, 4). n_clusters: the number of groups made. notes: messages
    for the user."""

    labels: NDArray[np.int64]
    linkage: NDArray[np.float64]
    n_clusters: int
    advice: Advice
    notes: tuple[str, ...] = ()


def group(
    embeddings: NDArray[np.float32],
    order: Ints,
    n_clusters: int | Literal["auto"],
    *,
    known_groups: Ints | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> Grouped:
    """Link, advise and cut.

    embeddings: (n, dim). order: (n,), the order in which rows are linked; an order by content makes
    the result depend on the images alone. known_groups: (n,), the group that a person put each
    image in, -1 for none. Images of one known group stay together, images of different ones stay
    apart, and the result has at least as many groups.
    """
    ordered = embeddings[order]
    if known_groups is None or (known_groups < 0).all():
        merges, at_least = tree(ordered, progress=progress), 1
    else:
        merges = constrained_tree(ordered, known_groups[order])
        at_least = len(np.unique(known_groups[known_groups >= 0]))
    advice = advise(ordered, merges, random_state=random_state)
    wanted = advice.k if n_clusters == "auto" else int(n_clusters)
    notes: tuple[str, ...] = ()
    if wanted < at_least:
        notes = (
            f"Made {at_least} groups instead of {wanted}: reviewers of the earlier run kept that "
            "many apart.",
        )
    k = max(wanted, at_least)
    labels = cut(merges, k)[np.argsort(order)]
    return Grouped(number_by_size(labels), reorder_leaves(merges, order), k, advice, notes)

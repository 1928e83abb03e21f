"""Embeddings to groups: the tree, the advice on where to cut it, and the cut. Each has a module
of its own here; `group` does them all."""

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
    """labels: (n,). linkage: (n - 1, 4). n_clusters: as cut. notes: what a person should know."""

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
    """Link, advise and cut. embeddings: (n, dim). order: in which they are linked, so that a result
    follows from what images hold. known_groups: (n,), the group that a person put each image in, -1
    for none: images of one stay together, those of two apart, and there are at least as many."""
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

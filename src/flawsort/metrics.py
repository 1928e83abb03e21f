"""How well groups agree with a truth that is given as an argument, never found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.errors import InputError
from flawsort.records import Ints


@dataclass(frozen=True)
class Agreement:
    """Groups against truth.

    f1 is averaged with the classes' sizes as weights, as in the paper; f1_micro is the share of
    images whose group is matched with their class. purity: the share that belongs to its group's
    most frequent class. confusion: (n_classes, n_clusters) counts.
    """

    nmi: float
    ari: float
    f1: float
    f1_micro: float
    purity: float
    classes: tuple[str, ...]
    clusters: tuple[int, ...]
    confusion: NDArray[np.int64]


def agreement(truth: Sequence[str], labels: Sequence[int] | Ints) -> Agreement:
    """Compare groups with true classes. truth, labels: one an image."""
    if len(truth) != len(labels) or not len(truth):
        raise InputError(
            "truth and labels must have the same length, at least 1. "
            f"Got {len(truth)} and {len(labels)}."
        )
    from sklearn.metrics import adjusted_rand_score, f1_score, normalized_mutual_info_score

    classes, true_rows = np.unique(np.asarray(truth, dtype=str), return_inverse=True)
    clusters, columns = np.unique(np.asarray(labels), return_inverse=True)
    confusion = np.zeros((len(classes), len(clusters)), np.int64)
    np.add.at(confusion, (true_rows, columns), 1)
    matched: NDArray[np.int64] = match_clusters(confusion)[columns]
    return Agreement(
        nmi=float(normalized_mutual_info_score(true_rows, columns)),
        ari=float(adjusted_rand_score(true_rows, columns)),
        f1=float(f1_score(true_rows, matched, average="weighted", zero_division=0)),
        f1_micro=float((matched == true_rows).mean()),
        purity=float(confusion.max(axis=0).sum() / confusion.sum()),
        classes=tuple(str(name) for name in classes),
        clusters=tuple(int(number) for number in clusters),
        confusion=confusion,
    )


def match_clusters(confusion: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each cluster its class under the best one-to-one matching (Hungarian algorithm).

    confusion: (n_classes, n_clusters). Clusters left over get the numbers past the last class,
    which no image has as its true class, so that they count as wrong.
    """
    from scipy.optimize import linear_sum_assignment

    n_classes, n_clusters = confusion.shape
    matched: NDArray[np.int64] = np.arange(n_classes, n_classes + n_clusters)
    rows, columns = linear_sum_assignment(confusion, maximize=True)
    matched[columns] = rows
    return matched

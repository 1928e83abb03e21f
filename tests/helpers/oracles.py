"""Slow, plain answers to check fast ones against: distances, scores, weights, averages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Fold = Callable[[Sequence[float]], float]


def naive_distance(first: Array, second: Array) -> float:
    """The length of the difference, in double precision: right for vectors of any length."""
    return math.sqrt(sum((float(a) - float(b)) ** 2 for a, b in zip(first, second, strict=True)))


def naive_nearest(queries: Array, bank: Array) -> tuple[Array, Array]:
    """(n,), (n,): distance and index of the nearest patch of the bank, the first of equal ones."""
    distances, index = [], []
    doubles = bank.astype(np.float64)
    for query in queries.astype(np.float64):
        squares = ((doubles - query) ** 2).sum(axis=1)
        distances.append(np.sqrt(squares.min()))
        index.append(int(squares.argmin()))
    return np.array(distances), np.array(index)


def naive_expected(patches: Array, normals: Array) -> Array:
    """(n_images, n_patches, dim): the mean of the patch of each normal that is nearest to a patch.
    patches: (n_images, n_patches, dim). normals: (n_normals, n_patches, dim)."""
    queries = patches.reshape(-1, patches.shape[2])
    nearest = [bag[naive_nearest(queries, bag)[1]].astype(np.float64) for bag in normals]
    found: Array = np.mean(nearest, axis=0).reshape(patches.shape)
    return found


def naive_peer_distances(patches: Array, others: Array) -> Array:
    """(n_others, n_patches): from each patch of one bag to the nearest of each other bag."""
    return np.array(
        [
            [min(naive_distance(patch, other) for other in bag) for patch in patches]
            for bag in others
        ]
    )


def naive_table(patches: Array, others: Array) -> Array:
    """(n, n_others, n_patches): from each patch to the nearest one of each other bag."""
    return np.array([[naive_nearest(bag, other)[0] for other in others] for bag in patches])


def naive_scores(patches: Array, peers: list[int], count: int | None = None) -> Array:
    """(n, n_patches): the mean over all peers but oneself, or over the `count` nearest ones."""
    rows = []
    for image, bag in enumerate(patches):
        far = naive_peer_distances(bag, patches[[j for j in peers if j != image]])
        rows.append(np.sort(far, axis=0)[:count].mean(axis=0))
    return np.array(rows)


def naive_softmax(scores: Array, temperature: float) -> Array:
    """(n, n_patches): exp(score / temperature), rows scaled to sum to 1."""
    rows = [[math.exp(float(score) / temperature) for score in row] for row in scores]
    return np.array([[power / math.fsum(row) for power in row] for row in rows])


def naive_average(patches: Array, weights: Array) -> Array:
    """(n, dim): the weighted average of each image's patches."""
    return np.array(
        [
            sum(
                float(weight) * patch.astype(np.float64) for weight, patch in zip(w, b, strict=True)
            )
            for w, b in zip(weights, patches, strict=True)
        ]
    )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# Appendix C: over the patches of one bag, over those of the other, over the two directions.
HAUSDORFF: dict[str, tuple[Fold, Fold, Fold]] = {
    "mean-mean": (mean, mean, max),
    "max-min max": (max, min, max),
    "max-min mean": (max, min, mean),
    "min-min": (min, min, max),
    "mean-min max": (mean, min, max),
    "mean-min mean": (mean, min, mean),
}


def naive_directed(first: Array, second: Array, over: Fold, inner: Fold) -> float:
    """The distance from one bag to another."""
    return over([inner([naive_distance(m, n) for n in second]) for m in first])


def naive_hausdorff(bags: Sequence[Array], variant: str) -> Array:
    """(n, n): distances between bags of valid patches. variant: one of HAUSDORFF."""
    over, inner, between = HAUSDORFF[variant]

    expected = np.zeros((len(bags), len(bags)))
    for i, one in enumerate(bags):
        for j, other in enumerate(bags):
            if i != j:
                there = naive_directed(one, other, over, inner)
                back = naive_directed(other, one, over, inner)
                expected[i, j] = between([there, back])
    return expected


def naive_smoothed(places: Array, grid: tuple[int, int]) -> Array:
    """The mean over each place and its eight neighbours; a neighbour outside is the border."""
    rows, columns = grid
    table, found = places.reshape(grid), np.empty(grid)
    for row in range(rows):
        for column in range(columns):
            around = [
                table[min(max(row + y, 0), rows - 1), min(max(column + x, 0), columns - 1)]
                for y in (-1, 0, 1)
                for x in (-1, 0, 1)
            ]
            found[row, column] = sum(around) / 9
    return found.ravel()

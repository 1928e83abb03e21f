"""Euclidean distances between patches from one matrix product.

Patches are stored in half precision, so their length is 1 only to three parts in ten thousand. A
distance that takes it for 1 is wrong by up to .02 between equal patches. So the product has two
more columns, half of what the squared lengths lack to 1:

    (a, (1 - |a|^2) / 2, 1) . (b, 1, (1 - |b|^2) / 2)  =  1 - |a - b|^2 / 2

It is called the similarity here. It is the dot product of vectors of unit length, and its maximum
is the nearest patch, whatever the lengths are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Floats, Ints
from flawsort.core.threads import blocks

# Similarities are right to about 1e-6 in single precision. Squared distances below this cannot be
# told from 0 and are 0: equal patches are at no distance, and distances below .002 do not occur.
ROUNDING = 4e-6
# Where the nearest patch is known, distances below this are computed from the difference of the
# two patches, which is right however small it is.
NEAR = 0.05
# The number of patches whose differences are held at a time.
DIFFERENCES_AT_ONCE = 4096


@dataclass(frozen=True)
class Factors:
    """A bag as the right factor of a product, (n, dim + 2), and as the left one, which is made when
    it is asked for: bags that others are compared with need none."""

    right: NDArray[np.float32]

    @cached_property
    def left(self) -> NDArray[np.float32]:
        left = self.right.copy()
        left[:, -2:] = self.right[:, :-3:-1]
        return left


def factors(patches: Floats) -> Factors:
    """The two factors of a bag (n, dim). The left one of one bag times the transposed right one of
    another gives their similarities."""
    n, dim = patches.shape
    right = np.ones((n, dim + 2), np.float32)
    right[:, :dim] = patches
    right[:, -1] = half_lack(right[:, :dim])
    return Factors(right)


def half_lack(patches: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n,): half of what the squared lengths of patches (n, dim) lack to 1.

    Summed in double precision: a sum in single precision depends on where in memory a patch lies,
    so the same patch would have other distances in another order of the images.
    """
    squares = np.einsum("pd,pd->p", patches, patches, dtype=np.float64)
    return np.asarray((1 - squares) / 2, np.float32)


def with_ones(patches: Floats) -> NDArray[np.float32]:
    """(n, dim + 1): queries for a search in a bank, in single precision. Times the transposed
    `with_lack` of the bank they give the similarities less what the query lacks, which is the same
    for all patches of the bank."""
    values = np.ones((len(patches), patches.shape[1] + 1), np.float32)
    values[:, :-1] = patches
    return values


def with_lack(patches: Floats) -> NDArray[np.float32]:
    """(n, dim + 1): the patches of a bank for `with_ones`."""
    values = with_ones(patches)
    values[:, -1] = half_lack(values[:, :-1])
    return values


def distance(similarity: Floats) -> NDArray[np.float32]:
    """Euclidean distances from similarities; 0 where rounding is all that is left."""
    squared: NDArray[np.float32] = (2 - 2 * similarity).astype(np.float32)
    return np.sqrt(np.where(squared < ROUNDING, np.float32(0), squared))


def distances_to_found(
    similarity: Floats, queries: Floats, bank: Floats, index: Ints
) -> NDArray[np.float32]:
    """(n,): the distances of queries (n, dim) to the patches of the bank at `index` (n,).

    similarity: (n,), as a product gave it. Small distances are computed again, without it.
    """
    distances = distance(similarity)
    near = np.flatnonzero(distances < NEAR)
    for some in blocks(len(near), DIFFERENCES_AT_ONCE):
        rows = near[some]
        apart = queries[rows].astype(np.float32) - bank[index[rows]].astype(np.float32)
        distances[rows] = np.sqrt(np.einsum("pd,pd->p", apart, apart))
    return distances

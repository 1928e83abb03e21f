"""The coordinates in which the taught model compares images.

An embedding has hundreds of numbers, most of which hardly vary over a run. The coordinates are the
directions in which the run varies most, the strong ones stretched further: what varies most over a
whole run tells kinds apart better than the rest. This is the part of the model that needs no
answers, so it is made once for a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.records import Floats
from flawsort.core.threads import blocks, in_blocks, single_threaded_blas

# All four were chosen on the dev sets (docs/evidence/experiments.md, "Teaching").
# The number of directions. With 64 nothing is lost at ten answers a kind, but a point with all.
N_DIRECTIONS = 128
# A direction with the spread s is stretched by s to this power.
STRETCH = 0.5
# A coordinate vector of the length r is divided by r to this power: the strength of a flaw counts
# less than its kind, and an outlier cannot dominate.
SHORTEN = 0.5
# Larger runs are measured by this many of their images, evenly spaced.
MOST_ROWS = 20_000
# Directions that vary less than this share of the strongest one vary by rounding alone.
NO_SPREAD = 1e-3
ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class Space:
    """How embeddings become coordinates.

    centre: (dim,), the mean embedding of the run. directions: (dim, n_directions), with the factor
    of each direction. size: the mean square length of the run's coordinates before it is made 1.
    mean: (n_directions,) and moment: (n_directions, n_directions), the mean of the run's
    coordinates and of their products.
    """

    centre: NDArray[np.float32]
    directions: NDArray[np.float32]
    size: float
    mean: NDArray[np.float64]
    moment: NDArray[np.float64]

    @classmethod
    def of(cls, embeddings: Floats) -> Space:
        """The space of a run. embeddings: (n_images, dim)."""
        if embeddings.ndim != 2 or not len(embeddings):
            raise InputError(
                f"Embeddings must have the shape (n_images, dim), with at least one image. Got "
                f"{embeddings.shape}."
            )
        step = -(-len(embeddings) // MOST_ROWS)
        some = np.asarray(embeddings[::step], np.float32)
        with single_threaded_blas():
            centre = some.mean(axis=0, dtype=np.float64).astype(np.float32)
            variances, directions = np.linalg.eigh(_products(some, centre))
        n = max(min(N_DIRECTIONS, len(some) - 1), 1)
        spreads = np.sqrt(np.maximum(variances[::-1][:n], 0.0))
        kept = spreads >= NO_SPREAD * float(spreads[0])
        spreads, directions = spreads[kept], directions[:, ::-1][:, :n][:, kept]
        # The lengths before shortening have a mean square of 1.
        factors = spreads**STRETCH / np.sqrt(max((spreads ** (2 * STRETCH + 2)).sum(), 1e-30))
        found = cls(
            centre, (directions * factors).astype(np.float32), 1.0, np.empty(0), np.empty(0)
        )
        return found._measured(some)

    def coordinates(self, embeddings: Floats) -> NDArray[np.float32]:
        """(n_images, n_directions): the coordinates of embeddings (n_images, dim), of the run or
        of new images."""
        if embeddings.ndim != 2 or embeddings.shape[1] != len(self.centre):
            raise InputError(
                f"Embeddings must have the shape (n_images, {len(self.centre)}), as in the run. "
                f"Got {embeddings.shape}."
            )
        if not len(embeddings):
            return np.empty((0, self.directions.shape[1]), np.float32)
        return in_blocks(
            lambda some: self._project(embeddings[some]), len(embeddings), ROWS_AT_ONCE
        )

    def _project(self, embeddings: Floats) -> NDArray[np.float32]:
        along = (np.asarray(embeddings, np.float32) - self.centre) @ self.directions
        lengths = np.sqrt((along**2).sum(axis=1, keepdims=True))
        shortened = along / np.maximum(lengths, np.float32(1e-9)) ** np.float32(SHORTEN)
        return np.asarray(shortened / np.float32(np.sqrt(self.size)), np.float32)

    def _measured(self, embeddings: NDArray[np.float32]) -> Space:
        """This space with the size, mean and moment of the run's coordinates."""
        before = self.coordinates(embeddings)
        size = max(float((before.astype(np.float64) ** 2).sum(axis=1).mean()), 1e-30)
        scale = 1 / np.sqrt(size)
        with single_threaded_blas():
            moment = _products(before, np.zeros(before.shape[1], np.float32)) * scale**2
        mean = before.mean(axis=0, dtype=np.float64) * scale
        return Space(self.centre, self.directions, size, mean, moment)


def _products(vectors: NDArray[np.float32], centre: NDArray[np.float32]) -> NDArray[np.float64]:
    """(dim, dim): the mean product of each two columns of vectors (n, dim) without their centre."""
    total = np.zeros((vectors.shape[1],) * 2)
    for some in blocks(len(vectors), ROWS_AT_ONCE):
        part = vectors[some] - centre
        total += part.T @ part
    return total / len(vectors)

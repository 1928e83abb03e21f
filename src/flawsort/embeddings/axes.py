"""Puts the parts of an embedding side by side: pooled patches, mean patches and extents.

Pooled patches show what is unusual. The mean patch shows the image as a whole, which matters where
the flaw fills the image or nothing is usual. Each part gets a share of the spread of the others.
Then long embeddings are shortened: how strong a flaw is counts less than what it looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bags, Floats
from flawsort.embeddings.extent import ExtentAxes
from flawsort.embeddings.pooling import average_pooling, inverse_root
from flawsort.embeddings.weights import uniform_weights
from flawsort.scores.reference import MIN_CALIBRATION

# The share of the mean patches in the spread of an embedding. Chosen on all dev sets together
# (docs/evidence/experiments.md).
MEAN_SHARE = 0.35
# Among peers the share grows with the part of the distance between random patches that remains
# between a patch and its nearest peers. Where this part is large nothing is usual, and what an
# image shows as a whole tells more.
UNEXPLAINED = (0.61, 0.65)
PEER_MEAN_SHARES = (0.28, 0.8)
# A vector that is shorter than this share of the usual length is at the mean but for rounding.
NO_LENGTH = 1e-6
# A block whose vectors spread less than this varies by rounding alone.
NO_SPREAD = 1e-5


@dataclass(frozen=True)
class MeanPatch:
    """How mean patches are measured in one view. centre: (dim,). whitening: (dim, dim), reduces the
    directions in which the mean patches of normals vary; None without normals."""

    centre: NDArray[np.float32]
    whitening: NDArray[np.float32] | None = None

    @classmethod
    def of_normals(cls, normals: Bags) -> MeanPatch | None:
        """Fitted to the normals of one view; None if there are too few."""
        if len(normals) < MIN_CALIBRATION:
            return None
        means = mean_patches(normals).astype(np.float64)
        whitening = inverse_root(np.cov(means.T))
        return cls(means.mean(axis=0).astype(np.float32), whitening)

    def measure(self, means: Floats) -> NDArray[np.float32]:
        """(n, dim): mean patches (n, dim) as coordinates."""
        found = means - self.centre
        whitened = found if self.whitening is None else found @ self.whitening
        return np.asarray(whitened, np.float32)


@dataclass(frozen=True, eq=False)
class Shortening:
    """How long embeddings are shortened. centre: (dim,), the mean of the set, which becomes 0.
    length: the root mean square length of the set from there, which stays as it is. power: 0 leaves
    all lengths alone, 1 makes them equal."""

    centre: NDArray[np.float32]
    length: float
    power: float

    @classmethod
    def fit(cls, vectors: Floats, power: float) -> Shortening:
        """vectors: (n_images, dim), of the whole set."""
        centre = vectors.mean(axis=0, dtype=np.float64)
        return cls(centre.astype(np.float32), _spread(vectors), power)

    def apply(self, vectors: NDArray[np.float32]) -> None:
        """Shorten vectors (n, dim) in place."""
        vectors -= self.centre
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        least = max(NO_LENGTH * self.length, NO_SPREAD)
        factors = (self.length / np.maximum(np.sqrt(squares), least)) ** self.power
        vectors *= factors[:, None].astype(np.float32)


@dataclass(frozen=True, eq=False)
class Axes:
    """How the parts of an embedding are scaled. blocks: the number of columns of each block of the
    vectors. scales: the factor of each block. extents: how extents are appended. shortening: of
    what is joined; None if lengths are left alone."""

    blocks: tuple[int, ...]
    scales: tuple[float, ...]
    extents: ExtentAxes
    shortening: Shortening | None = None

    @classmethod
    def fit(
        cls,
        vectors: Floats,
        found: NDArray[np.float64],
        *,
        pooled: Sequence[int],
        means: Sequence[int],
        spread: float,
        mean_share: float,
        shorten: float = 0.0,
    ) -> Axes:
        """vectors: (n_images, dim), blocks of pooled patches, then of mean patches. found: the
        extents of the same images. pooled, means: the columns of each block. spread: the standard
        deviation of the set's scores. mean_share: the spread of all mean patches as a share of the
        spread of the rest. shorten: see Method."""
        blocks = (*pooled, *means)
        spreads = np.array([_spread(block) for block in _split(vectors, blocks)])
        # A block that varies by rounding alone stays as small as it is.
        scales = 1 / np.where(spreads > NO_SPREAD, spreads, 1.0)
        if len(pooled) == 1:
            scales[0] = 1.0  # in its own units
        n = len(pooled)
        total = float(np.sqrt(((spreads * scales)[:n] ** 2).sum()))
        extents = ExtentAxes.fit(total, found, spread)
        rest = np.hypot(total, _spread(extents.measure(found)))
        scales[n:] *= mean_share * rest / np.sqrt(max(len(means), 1))
        joined = cls(blocks, tuple(scales.tolist()), extents)
        if not shorten:
            return joined
        short = Shortening.fit(joined.join(vectors, found), shorten)
        return replace(joined, shortening=short)

    def join(self, vectors: Floats, found: NDArray[np.float64]) -> NDArray[np.float32]:
        """(n_images, dim + n_extents): the embeddings."""
        joined = self._side_by_side(vectors, found)
        if self.shortening is not None:
            self.shortening.apply(joined)
        return joined

    def _side_by_side(self, vectors: Floats, found: NDArray[np.float64]) -> NDArray[np.float32]:
        measured = self.extents.measure(found)
        joined = np.empty((len(vectors), vectors.shape[1] + measured.shape[1]), np.float32)
        scales = np.repeat(self.scales, self.blocks)
        # In double precision, but without such a copy of the vectors, which may be many.
        np.multiply(vectors, scales, out=joined[:, : len(scales)], casting="same_kind")
        joined[:, len(scales) :] = measured
        return joined


def mean_patches(bags: Bags) -> NDArray[np.float32]:
    """(n_images, dim): the mean of each image's valid patches."""
    return average_pooling(bags.patches, uniform_weights(bags.patches.shape[:2], bags.valid))


def share_among_peers(bags: Sequence[Bags], scores: Sequence[Floats]) -> float:
    """The share of the mean patches for a set without normals. bags, scores: of each view, scores
    before calibration."""
    parts = [_unexplained(one, values) for one, values in zip(bags, scores, strict=True)]
    known = [part for part in parts if part is not None]
    if not known:
        return PEER_MEAN_SHARES[0]
    return float(np.interp(np.mean(known), UNEXPLAINED, PEER_MEAN_SHARES))


def _unexplained(bags: Bags, scores: Floats) -> float | None:
    """The mean score relative to the distance between random patches of different images; None if
    it is undefined."""
    n = len(bags)
    if n < 2:
        return None
    means = mean_patches(bags).astype(np.float64)
    between = ((means.sum(axis=0) ** 2).sum() - (means**2).sum()) / (n * (n - 1))
    apart = np.sqrt(max(2 - 2 * between, 0.0))
    counted = scores if bags.valid is None else scores[bags.valid]
    return float(np.mean(counted, dtype=np.float64) / apart) if apart > 1e-6 else None


def _split(vectors: Floats, blocks: Sequence[int]) -> list[Floats]:
    return np.split(np.asarray(vectors), np.cumsum(blocks)[:-1], axis=1)


def _spread(values: Floats) -> float:
    return float(np.sqrt(np.asarray(values).var(axis=0, dtype=np.float64).sum()))

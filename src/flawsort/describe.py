"""Bags to embeddings: compare, weigh, pool. Fitted once on a set, then repeatable on new bags."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.engines import Engine
from flawsort.extent import ExtentAxes, extents
from flawsort.nearest import search_flop
from flawsort.pooling import (
    ORDINARY_IMAGES,
    average_pooling,
    keep_heaviest,
    residual_pooling,
    residual_whitening,
)
from flawsort.presets import Method
from flawsort.records import Bags, Ints, Progress
from flawsort.references import Comparison, NormalReference, PeerReference, compare_with_peers
from flawsort.weights import score_spread, soft_weights, uniform_weights

Reference: TypeAlias = NormalReference | PeerReference

EVERY_PATCH_ALIKE = "every patch alike"


@dataclass(frozen=True)
class Described:
    """scores, weights: (n_images, n_patches). embeddings: (n_images, dim)."""

    scores: NDArray[np.float32]
    weights: NDArray[np.float32]
    embeddings: NDArray[np.float32]


@dataclass(frozen=True)
class Describer:
    """All that it takes to describe new bags as those of a fitted set were.

    reference: None where every patch counts the same. temperature: in the units of the scores.
    spread: the standard deviation of the set's scores. whitening: (dim, dim), of residuals, and
    axes: how the extent of what is unusual joins the embedding; None where patches are averaged.
    """

    method: Method
    reference: Reference | None
    temperature: float
    spread: float
    whitening: NDArray[np.float32] | None = None
    axes: ExtentAxes | None = None

    def describe(
        self, bags: Bags, *, own: Ints | None = None, progress: Progress | None = None
    ) -> Described:
        """Describe new bags. own: (n_images,), see PeerReference.compare."""
        if self.reference is None:
            return _describe_uniformly(bags)
        comparison = self.reference.compare(bags, own=own, progress=progress)
        weights, pooled = self.pool(bags, comparison, progress)
        if self.axes is not None:
            pooled = self.axes.append(pooled, self.extents(comparison.scores, bags))
        return Described(comparison.scores, weights, pooled)

    def pool(
        self, bags: Bags, comparison: Comparison, progress: Progress | None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Weights (n_images, n_patches) and pooled patches (n_images, dim)."""
        weights = soft_weights(comparison.scores, self.temperature, bags.valid)
        if self.method.pooling == "average":
            return weights, average_pooling(bags.patches, weights)
        weights = keep_heaviest(weights)
        return weights, residual_pooling(
            bags, weights, comparison.expected, whitening=self.whitening, progress=progress
        )

    def extents(self, scores: NDArray[np.float32], bags: Bags) -> NDArray[np.float64]:
        """See flawsort.extent; of no use, and none, where patches are averaged. scores: (n_images,
        n_patches), of these bags."""
        if self.method.pooling != "residual":
            return np.empty((len(scores), 0))
        return extents(scores, bags.grid, self.spread, bags.valid)

    def for_many(self, n_images: int) -> Describer:
        """The same for so many images that come in batches: one arithmetic for them all, however
        small the last batch."""
        if not isinstance(self.reference, PeerReference):
            return self  # how a bank is searched is settled
        n_peers, n_patches, dim = self.reference.peers.shape
        reference = copy(self.reference)
        flop = n_images * n_peers * search_flop(n_patches, n_patches, dim)
        reference.engine = reference.engine.for_work(flop)
        return replace(self, reference=reference)

    def scores_of_normals(self, normals: Bags | None) -> NDArray[np.float32] | None:
        """See NormalReference.scores_of_normals; None where there are no normals."""
        if normals is None or not isinstance(self.reference, NormalReference):
            return None
        return self.reference.scores_of_normals(normals)


def fit_describer(
    bags: Bags,
    normals: Bags | None,
    method: Method,
    *,
    engine: Engine | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> tuple[Describer, Described, str]:
    """Describe a set by itself, from its normals if there are any; the words say how.

    engine: where patches are compared; None for the CPU in float32.
    """
    if method.weights == "uniform":
        return Describer(method, None, 1.0, 1.0), _describe_uniformly(bags), EVERY_PATCH_ALIKE
    reference: Reference
    if normals is not None:
        reference = NormalReference.from_bags(
            normals, exact=method.exact, engine=engine, random_state=random_state
        )
        comparison = reference.compare(bags, progress=progress)
    else:
        comparison, reference = compare_with_peers(
            bags,
            n_peers=method.n_peers,
            nearest_share=method.nearest_share,
            engine=engine,
            random_state=random_state,
            progress=progress,
        )
    order = np.random.default_rng(random_state).permutation(len(bags))
    bare = settle(method, reference, bags, comparison, order, progress=progress)
    weights, pooled = bare.pool(bags, comparison, progress)
    fitted, joined = join_extents(bare, pooled, bare.extents(comparison.scores, bags))
    return fitted, Described(comparison.scores, weights, joined), comparison.how


def settle(
    method: Method,
    reference: Reference,
    bags: Bags,
    comparison: Comparison,
    order: Ints,
    *,
    progress: Progress | None = None,
) -> Describer:
    """What images are described with besides the reference, by bags that were compared with it:
    the temperature and the whitening. order: of the bags, of which the first are measured."""
    spread = score_spread(comparison.scores, bags.valid)
    normals = isinstance(reference, NormalReference)
    temperature = method.temperature_for(normals=normals, spread=spread)
    whitening = None
    if method.pooling == "residual":
        rows = order[:ORDINARY_IMAGES]
        whitening = residual_whitening(
            bags, comparison.scores, comparison.expected, rows, progress=progress
        )
    return Describer(method, reference, temperature, spread, whitening)


def join_extents(
    bare: Describer, pooled: NDArray[np.float32], found: NDArray[np.float64]
) -> tuple[Describer, NDArray[np.float32]]:
    """The describer with axes for the extent of what is unusual, where its pooling wants them,
    and the embeddings with them. pooled: (n_images, dim). found: (n_images, N_EXTENTS)."""
    if bare.method.pooling != "residual":
        return bare, pooled
    axes = ExtentAxes.fit(pooled, found, bare.spread)
    return replace(bare, axes=axes), axes.append(pooled, found)


def _describe_uniformly(bags: Bags) -> Described:
    weights = uniform_weights(bags.patches.shape[:2], bags.valid)
    return Described(np.zeros_like(weights), weights, average_pooling(bags.patches, weights))

"""Bags to embeddings: compare, weight, pool. Fitted once on a set, then applied to new bags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bags, Bools, Floats, Ints, Progress
from flawsort.embeddings.extent import ExtentAxes, extents
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.method import Method
from flawsort.embeddings.pooling import POOLINGS, Pooling
from flawsort.embeddings.regions import (
    Outlines,
    RegionFeatures,
    find_regions,
    region_scores,
    region_weights,
)
from flawsort.embeddings.weights import score_spread, soft_weights, uniform_weights
from flawsort.scores.reference import Comparison, Reference

EVERY_PATCH_ALIKE = "every patch alike"


@dataclass(frozen=True)
class Features:
    """The features of images before the extents are appended to the vectors.

    scores, weights: (n_images, n_patches). vectors: (n_images, dim). extents: (n_images,
    n_extents), without columns if the pooling does not use them. regions: of all images.
    """

    scores: NDArray[np.floating[Any]]
    weights: NDArray[np.floating[Any]]
    vectors: NDArray[np.float32]
    extents: NDArray[np.float64]
    regions: RegionFeatures


@dataclass(frozen=True)
class Described:
    """The embeddings of images and of their regions, in the same space.

    scores, weights: (n_images, n_patches). embeddings: (n_images, dim). outlines: the regions of
    all images. region_embeddings: (n_regions, dim).
    """

    scores: NDArray[np.floating[Any]]
    weights: NDArray[np.floating[Any]]
    embeddings: NDArray[np.float32]
    outlines: Outlines
    region_embeddings: NDArray[np.float32]


@dataclass(frozen=True, repr=False)
class Describer:
    """The fitted state that computes embeddings, for new bags in the same way as for the set.

    reference: None if every patch counts the same. temperature: in the units of the scores.
    spread: the standard deviation of the set's scores. heat: the scale on which scores look normal
    or hot. whitening: (dim, dim), of residuals. axes: how extents are appended to embeddings.
    Both are None if the pooling does not use them.
    """

    method: Method
    reference: Reference | None
    temperature: float
    spread: float
    heat: HeatScale
    whitening: NDArray[np.float32] | None = None
    axes: ExtentAxes | None = None

    def __repr__(self) -> str:
        reference = "none" if self.reference is None else self.reference.kind
        return f"Describer({self.method}; reference: {reference})"

    @property
    def pooling(self) -> Pooling:
        """The pooling that turns patches into one vector."""
        return POOLINGS[self.method.pooling]

    def describe(
        self, bags: Bags, *, self_rows: Ints | None = None, progress: Progress | None = None
    ) -> Described:
        """Compute the embeddings of bags. self_rows: (n_images,), see Reference.compare."""
        return self.join(self.features(bags, self_rows=self_rows, progress=progress))

    def features(
        self, bags: Bags, *, self_rows: Ints | None = None, progress: Progress | None = None
    ) -> Features:
        """Compute features, before the extents are appended. self_rows: as for `describe`."""
        if self.reference is None:
            return self._uniform_features(bags)
        comparison = self.reference.compare(bags, self_rows=self_rows, progress=progress)
        return self.pool(bags, comparison, progress=progress)

    def pool(
        self, bags: Bags, comparison: Comparison, *, progress: Progress | None = None
    ) -> Features:
        """Compute the features of bags from their comparison with the reference."""
        scores, valid = comparison.scores, bags.valid
        weights, among = self.pooling.focus(soft_weights(scores, self.temperature, valid))
        outlines = find_regions(scores, bags.grid, self.heat, among=among, valid=valid)
        inside = region_weights(scores, outlines, self.temperature, among)
        vectors, of_regions = self.pooling.pool(
            bags,
            weights,
            comparison.expected,
            parts=(outlines.images, inside),
            whitening=self.whitening,
            progress=progress,
        )
        alone = region_scores(scores, outlines, self.heat)
        seen = None if valid is None else valid[outlines.images]
        regions = RegionFeatures(outlines, of_regions, self._extents(alone, bags.grid, seen))
        return Features(scores, weights, vectors, self._extents(scores, bags.grid, valid), regions)

    def _uniform_features(self, bags: Bags) -> Features:
        """The features without a reference: zero scores, uniform weights, no regions."""
        weights = uniform_weights(bags.patches.shape[:2], bags.valid)
        vectors, of_regions = self.pooling.pool(bags, weights, None)
        none = RegionFeatures(Outlines.of([]), of_regions, np.empty((0, 0)))
        return Features(np.zeros_like(weights), weights, vectors, np.empty((len(bags), 0)), none)

    def join(self, features: Features) -> Described:
        """Append the extents of images and regions to their vectors."""
        vectors, of_regions = features.vectors, features.regions.vectors
        if self.axes is not None:
            vectors = self.axes.append(vectors, features.extents)
            of_regions = self.axes.append(of_regions, features.regions.extents)
        outlines = features.regions.outlines
        return Described(features.scores, features.weights, vectors, outlines, of_regions)

    def with_axes(self, features: Features) -> Describer:
        """The same Describer with axes fitted to the extents of these images; unchanged if the
        pooling does not use extents."""
        if not self.pooling.uses_extents or self.reference is None:
            return self
        axes = ExtentAxes.fit(features.vectors, features.extents, self.spread)
        return replace(self, axes=axes)

    def _extents(
        self, scores: Floats, grid: tuple[int, int], valid: Bools | None
    ) -> NDArray[np.float64]:
        """(n_images, n_extents); no columns if the pooling does not use extents."""
        if not self.pooling.uses_extents:
            return np.empty((len(scores), 0))
        return extents(scores, grid, self.spread, valid)

    def for_many(self, n_images: int, n_patches: int) -> Describer:
        """The same Describer for this many images in batches; see Reference.for_many."""
        if self.reference is None:
            return self
        return replace(self, reference=self.reference.for_many(n_images, n_patches))


def fit_state(
    method: Method,
    reference: Reference,
    bags: Bags,
    comparison: Comparison,
    order: Ints,
    *,
    heat: HeatScale,
    progress: Progress | None = None,
) -> Describer:
    """A Describer with the temperature and the whitening fitted to bags that were compared with the
    reference. order: of the bags; the whitening is measured on the first of them."""
    spread = score_spread(comparison.scores, bags.valid)
    temperature = method.temperature_for(normals=reference.knows_normal, spread=spread)
    pooling = POOLINGS[method.pooling]
    whitening = pooling.fit_whitening(bags, comparison, order, progress=progress)
    return Describer(method, reference, temperature, spread, heat, whitening)


def every_patch_alike(method: Method) -> Describer:
    """A Describer without a reference: every patch counts the same."""
    return Describer(method, None, 1.0, 1.0, HeatScale(0.0, 1.0))

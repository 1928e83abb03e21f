"""Bags to embeddings: compare, weight, pool. Fitted once on a set, then applied to new bags."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.grids import Grid, shared_out
from flawsort.core.records import Bags, Bools, Floats, Ints, Progress
from flawsort.core.text import pluralise
from flawsort.core.threads import blocks
from flawsort.embeddings.axes import Axes, MeanPatch, mean_patches
from flawsort.embeddings.extent import extents
from flawsort.embeddings.features import Described, Features, join_features
from flawsort.embeddings.heat import HeatScale, calibrate
from flawsort.embeddings.method import Method
from flawsort.embeddings.photos import most_unusual_parts
from flawsort.embeddings.places import find_places
from flawsort.embeddings.pooling import CHOSEN_SHARE, POOLINGS, Pooling, average_pooling
from flawsort.embeddings.regions import (
    Outlines,
    RegionFeatures,
    find_regions,
    region_scores,
    region_weights,
)
from flawsort.embeddings.weights import score_spread, uniform_weights
from flawsort.scores.reference import Comparison, NormalReference, Reference

EVERY_PATCH_ALIKE = "every patch alike"
# The number of photos whose parts are cut out at a time, which bounds the memory.
PHOTOS_AT_ONCE = 8


@dataclass(frozen=True)
class Look:
    """The fitted state of one view. grid, dim, tile: of its bags. whitening: (dim, dim), of
    residuals; None if the pooling does not use it. mean: how mean patches are measured; None if
    they take no part."""

    grid: Grid
    dim: int
    whitening: NDArray[np.float32] | None = None
    mean: MeanPatch | None = None
    tile: Grid | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n_patches, dim) of a bag."""
        return self.grid[0] * self.grid[1], self.dim

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """The arrays of its state, by name, those that it has."""
        mean = self.mean
        found = {
            "whitening": self.whitening,
            "mean-centre": None if mean is None else mean.centre,
            "mean-whitening": None if mean is None else mean.whitening,
        }
        return {name: values for name, values in found.items() if values is not None}


@dataclass(frozen=True, repr=False)
class Describer:
    """The fitted state that computes embeddings, for new bags in the same way as for the set.

    looks: the state of each view. reference: None if every patch counts the same. temperature: in
    the units of the scores. spread: the standard deviation of the set's scores. heat: the scale on
    which scores look normal or hot. mean_share: of the mean patches in an embedding. axes: how the
    parts of an embedding are joined; None if there is only one. hot: (n_peers, n_patches), which
    patches of the peers are unusual themselves; None if the reference has none.
    """

    method: Method
    looks: tuple[Look, ...]
    reference: Reference | None
    temperature: float
    spread: float
    heat: HeatScale
    mean_share: float = 0.0
    axes: Axes | None = None
    hot: Bools | None = None

    def __repr__(self) -> str:
        reference = "none" if self.reference is None else self.reference.kind
        views = pluralise(len(self.looks), "view")
        return f"Describer({self.method}; {views}; reference: {reference})"

    @property
    def pooling(self) -> Pooling:
        """The pooling that turns patches into one vector."""
        return POOLINGS[self.method.pooling]

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """(n_patches, dim) of a bag in each view."""
        return tuple(look.shape for look in self.looks)

    def describe(
        self, bags: Bags, *, self_rows: Ints | None = None, progress: Progress | None = None
    ) -> Described:
        """Compute the embeddings of bags. self_rows: (n_images,), see Reference.compare."""
        return self.join(self.features(bags, self_rows=self_rows, progress=progress))

    def features(
        self, bags: Bags, *, self_rows: Ints | None = None, progress: Progress | None = None
    ) -> Features:
        """Compute features, before they are joined. self_rows: as for `describe`."""
        self.check_new()
        if self.looks[0].tile is None and bags.tile is not None:
            # An older run took a photo of several tiles as one image.
            first, *others = (replace(one, tile=None) for one in bags.views)
            bags = replace(first, beside=tuple(others))
        if self.reference is None:
            return self._uniform_features(bags)
        comparison = self.reference.compare(bags, self_rows=self_rows, progress=progress)
        return self.pool(bags, comparison, progress=progress)

    def check_new(self) -> None:
        """Refuse new images where weights come from files: they have none."""
        if self.method.takes_maps:
            raise InputError(
                f"New images cannot be described: the weights of this run are from "
                f"{self.method.weights} of its own images. Group the new ones in a run of their "
                "own, with theirs."
            )

    def pool(
        self, bags: Bags, comparison: Comparison, *, progress: Progress | None = None
    ) -> Features:
        """Compute the features of bags from their comparison with the reference. Photos of several
        tiles are described by their most unusual part."""
        if self.looks[0].tile is not None and self.pooling.uses_extents:
            features = self._of_photos(bags, comparison, progress)
        else:
            features = self._of_images(bags, comparison, progress=progress)
        outlines = features.regions.outlines
        places = find_places(
            comparison.scores, bags.valid, outlines, bags.grid, comparison.match, self.hot
        )
        return replace(features, places=places)

    def _of_photos(self, bags: Bags, comparison: Comparison, progress: Progress | None) -> Features:
        found = []
        for some in blocks(len(bags), PHOTOS_AT_ONCE):
            rows = np.arange(some.start, some.stop)
            parts = most_unusual_parts(bags, comparison.scores, self.heat, rows)
            features = self._of_images(
                parts.bags(bags), parts.comparison(comparison, bags), outlines=parts.outlines
            )
            found.append(parts.whole(features))
            if progress:
                progress("comparing", some.stop, len(bags))
        return join_features(found)

    def _of_images(
        self,
        bags: Bags,
        comparison: Comparison,
        *,
        outlines: Outlines | None = None,
        progress: Progress | None = None,
    ) -> Features:
        """The features of images, or of parts of photos. outlines: the regions, if they are known
        already; those without a patch that is pooled are left out."""
        scores, valid = comparison.scores, bags.valid
        weights, among = self.pooling.focus(self.method.weigh(scores, self.temperature, valid))
        if outlines is None:
            outlines = find_regions(scores, bags.grid, self.heat, among=among, valid=valid)
        elif among is not None:
            outlines = outlines.touching(among)
        inside = region_weights(scores, outlines, self.temperature, among)
        pooled: list[NDArray[np.float32]] = []
        of_regions: list[NDArray[np.float32]] = []
        for look, one, compared in zip(self.looks, bags.views, comparison.by_view, strict=True):
            whole, parts = self.pooling.pool(
                one,
                _moved(weights, bags, one),
                compared.expected,
                parts=(outlines.images, _moved(inside, bags, one, outlines.images)),
                whitening=look.whitening,
                # On a coarser grid the same places touch more of the patches.
                chosen_share=CHOSEN_SHARE if one.grid == bags.grid else 2 * CHOSEN_SHARE,
                progress=progress,
            )
            pooled.append(whole)
            of_regions.append(parts)
        means, of_parts = self._means(bags, outlines)
        vectors = np.concatenate([*pooled, *means], axis=1)
        region_vectors = [*of_regions, *of_parts]
        alone = region_scores(scores, outlines, self.heat)
        seen = None if valid is None else valid[outlines.images]
        regions = RegionFeatures(
            outlines,
            np.concatenate(region_vectors, axis=1),
            self._extents(alone, bags.grid, seen),
        )
        return Features(scores, weights, vectors, self._extents(scores, bags.grid, valid), regions)

    def _means(
        self, bags: Bags, outlines: Outlines
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
        """The mean patches of each view, of images and of regions; none if they take no part. That
        of a region is the mean over its image without the other regions."""
        if not any(look.mean for look in self.looks):
            return [], []
        kept = outlines.without_others(bags.n_patches)
        shared = np.flatnonzero(~kept.all(axis=1))
        images, kept = outlines.images[shared], kept[shared]
        valid = kept if bags.valid is None else kept & bags.valid[images]
        weights = uniform_weights(kept.shape, valid)
        whole, parts = [], []
        for look, one in zip(self.looks, bags.views, strict=True):
            if look.mean is None:
                continue
            means = mean_patches(one)
            alone = means[outlines.images]
            moved = _moved(weights, bags, one, images)
            alone[shared] = average_pooling(one.patches, moved, images)
            whole.append(look.mean.measure(means))
            parts.append(look.mean.measure(alone))
        return whole, parts

    def _uniform_features(self, bags: Bags) -> Features:
        """The features without a reference: zero scores, uniform weights, no regions."""
        weights = uniform_weights(bags.patches.shape[:2], bags.valid)
        pooled = []
        for one in bags.views:
            alike = uniform_weights(one.patches.shape[:2], one.valid)
            pooled.append(self.pooling.pool(one, alike, None)[0])
        vectors = np.concatenate(pooled, axis=1)
        none = RegionFeatures(Outlines.of([]), vectors[:0], np.empty((0, 0)))
        return Features(np.zeros_like(weights), weights, vectors, np.empty((len(bags), 0)), none)

    def join(self, features: Features) -> Described:
        """Scale the parts of images and regions, and put them side by side."""
        vectors, of_regions = features.vectors, features.regions.vectors
        if self.axes is not None:
            vectors = self.axes.join(vectors, features.extents)
            of_regions = self.axes.join(of_regions, features.regions.extents)
        outlines = features.regions.outlines
        return Described(
            features.scores, features.weights, vectors, outlines, of_regions, features.places
        )

    def with_axes(self, features: Features) -> Describer:
        """The same Describer with axes fitted to these images; unchanged if the pooling does not
        use extents."""
        if not self.pooling.uses_extents or self.reference is None:
            return self
        axes = Axes.fit(
            features.vectors,
            features.extents,
            pooled=[look.dim for look in self.looks],
            means=[look.dim for look in self.looks if look.mean is not None],
            spread=self.spread,
            mean_share=self.mean_share,
            shorten=self.method.shorten_for(normals=self.reference.kind == NormalReference.kind),
        )
        return replace(self, axes=axes)

    def _extents(self, scores: Floats, grid: Grid, valid: Bools | None) -> NDArray[np.float64]:
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
    means: tuple[MeanPatch | None, ...] = (),
    mean_share: float = 0.0,
    hot: Bools | None = None,
    progress: Progress | None = None,
) -> Describer:
    """A Describer with the temperature and the whitening fitted to bags that were compared with the
    reference. order: of the bags; the whitening is measured on the first of them. means: how mean
    patches are measured in each view; empty if they take no part. mean_share, hot: see
    Describer."""
    spread = score_spread(comparison.scores, bags.valid)
    temperature = method.temperature_for(spread)
    pooling = POOLINGS[method.pooling]
    measured = means or (None,) * len(bags.views)
    looks = tuple(
        Look(
            one.grid,
            one.dim,
            pooling.fit_whitening(one, compared, order, progress=progress),
            mean if pooling.uses_extents else None,
            one.tile,
        )
        for one, compared, mean in zip(bags.views, comparison.by_view, measured, strict=True)
    )
    return Describer(
        method, looks, reference, temperature, spread, heat, mean_share=mean_share, hot=hot
    )


def every_patch_alike(method: Method, bags: Bags) -> Describer:
    """A Describer without a reference: every patch counts the same."""
    looks = tuple(Look(one.grid, one.dim, tile=one.tile) for one in bags.views)
    return Describer(method, looks, None, 1.0, 1.0, HeatScale(0.0, 1.0))


def fit_to_maps(method: Method, bags: Bags, looked: Comparison) -> Describer:
    """A Describer without a reference, whose scores are given with the images. What a mask marks is
    hot."""
    spread = score_spread(looked.scores, bags.valid)
    heat = HeatScale(0.0, 1.0)
    if method.weights != "masks":
        heat = calibrate(looked.scores, bags.valid, tile=bags.tile)
    return replace(
        every_patch_alike(method, bags),
        temperature=method.temperature_for(spread),
        spread=spread,
        heat=heat,
    )


def _moved(
    weights: NDArray[np.float32], bags: Bags, view: Bags, images: Ints | None = None
) -> NDArray[np.float32]:
    """Weights on the grid of the first view of bags, brought to the grid of one of its views; rows
    sum to 1. images: the image of each row; None for one row per image."""
    if view.patches is bags.patches:
        return weights
    moved = shared_out(weights, bags.grid, view.grid)
    if view.valid is not None:
        valid = view.valid if images is None else view.valid[images]
        # Where only padding is left, every valid patch counts the same.
        alone = (moved * valid).sum(axis=1) <= 0
        moved = np.where(valid, np.where(alone[:, None], 1.0, moved), 0.0).astype(np.float32)
    scaled: NDArray[np.float32] = moved / moved.sum(axis=1, keepdims=True)
    return scaled

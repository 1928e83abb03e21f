"""Pool patches with weights into one vector per image.

To add a pooling, write a subclass of `Pooling` and add it to `POOLINGS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bags, Bools, Floats, Ints, Progress
from flawsort.core.threads import blocks
from flawsort.scores.reference import Comparison, Expected

# Residual pooling uses the eighth of an image's patches with the largest weights: the soft top-k
# weights of the paper's appendix. A flaw covers less than that, and with a soft temperature the
# many other patches together would outweigh it.
CHOSEN_SHARE = 1 / 8
# The common part of an image's residuals (lighting, focus, batch) is measured on this many patches,
# evenly spread, and subtracted.
BACKGROUND_PATCHES = 64
# The length of a residual shows how strong a flaw is, and its direction shows the kind. The square
# root of the length keeps weak flaws near normal images without letting strength outweigh kind.
RESIDUAL_POWER = 0.5
# Ordinary patches also differ from the expected ones, in some directions more than in others. The
# differences are measured on the background patches of this many images, among those with scores in
# the lower half.
ORDINARY_IMAGES = 256
ORDINARY_SHARE = 0.5
# This multiple of the mean variance is added to the variance of each direction.
SHRINKAGE = 1.0
# For parts of images, sorted by image: (n_parts,) the image and (n_parts, n_patches) the weights.
PartWeights: TypeAlias = tuple[Ints, Floats]
# Expected patches are computed for this many images at a time, which bounds the memory.
IMAGES_AT_ONCE = 64


class Pooling(ABC):
    """Turns the patches of an image or a region into one vector.

    name: the value of the option. summary: a few words for the help. needs_reference: whether
    images must be compared with a reference. uses_extents: whether mean patches and extents
    (flawsort.embeddings.axes) are appended to its vectors.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    needs_reference: ClassVar[bool] = False
    uses_extents: ClassVar[bool] = False

    def focus(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], Bools | None]:
        """The weights to pool with, and (n_images, n_patches) the patches that regions may use;
        None for all. weights: (n_images, n_patches)."""
        return weights, None

    def fit_whitening(
        self, bags: Bags, comparison: Comparison, order: Ints, *, progress: Progress | None = None
    ) -> NDArray[np.float32] | None:
        """(dim, dim): the matrix that vectors are multiplied with, measured on the first bags of an
        order; None for no whitening."""
        return None

    @abstractmethod
    def pool(
        self,
        bags: Bags,
        weights: Floats,
        expected: Expected | None,
        *,
        parts: PartWeights | None = None,
        whitening: Floats | None = None,
        chosen_share: float = CHOSEN_SHARE,
        progress: Progress | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(n_images, dim) and (n_parts, dim): the vectors of images, and of parts of images.

        weights: (n_images, n_patches), from `focus`. expected: see Comparison; None without a
        reference. parts: with weights only on the patches that `focus` allows. whitening: from
        `fit_whitening`. chosen_share: the share of the patches that may have weight.
        """


class ResidualPooling(Pooling):
    """The weighted average of the differences between patches and the reference."""

    name = "residual"
    summary = "what sets patches apart from the reference"
    needs_reference = True
    uses_extents = True

    def __init__(self, *, ordinary_images: int = ORDINARY_IMAGES) -> None:
        """ordinary_images: the whitening is measured on this many images."""
        self.ordinary_images = ordinary_images

    def focus(self, weights: NDArray[np.float32]) -> tuple[NDArray[np.float32], Bools | None]:
        """Only the weights of the heaviest patches: expected patches are slow to compute."""
        kept = keep_heaviest(weights)
        return kept, kept > 0

    def fit_whitening(
        self, bags: Bags, comparison: Comparison, order: Ints, *, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        """See `residual_whitening`."""
        rows = order[: self.ordinary_images]
        return residual_whitening(
            bags, comparison.scores, comparison.expected, rows, progress=progress
        )

    def pool(
        self,
        bags: Bags,
        weights: Floats,
        expected: Expected | None,
        *,
        parts: PartWeights | None = None,
        whitening: Floats | None = None,
        chosen_share: float = CHOSEN_SHARE,
        progress: Progress | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """See `residual_pooling`."""
        if expected is None:
            raise ValueError("residual pooling needs images that were compared with a reference")
        return residual_pooling(
            bags,
            weights,
            expected,
            parts=parts,
            whitening=whitening,
            chosen_share=chosen_share,
            progress=progress,
        )


class AveragePooling(Pooling):
    """The weighted average of the patches (Eq. 1)."""

    name = "average"
    summary = "the patches themselves, as in the paper"

    def pool(
        self,
        bags: Bags,
        weights: Floats,
        expected: Expected | None,
        *,
        parts: PartWeights | None = None,
        whitening: Floats | None = None,
        chosen_share: float = CHOSEN_SHARE,
        progress: Progress | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """See `average_pooling`."""
        images_of, weights_of = parts or no_parts(bags.n_patches)
        whole = average_pooling(bags.patches, weights)
        return whole, average_pooling(bags.patches, weights_of, images_of)


# By name, the default first. The help and error messages list them in this order.
POOLINGS: dict[str, Pooling] = {
    pooling.name: pooling for pooling in (ResidualPooling(), AveragePooling())
}


def average_pooling(
    patches: Floats, weights: Floats, images: Ints | None = None
) -> NDArray[np.float32]:
    """The weighted average of each image's patches (Eq. 1).

    patches: (n_images, n_patches, dim). weights: (n_images, n_patches), rows sum to 1. Returns
    (n_images, dim). Several sets of weights at once, (n_sets, n_images, n_patches), give (n_sets,
    n_images, dim). images: the image of each row of weights; None for one row per image.
    """
    rows = range(len(patches)) if images is None else images
    pooled = np.empty((*weights.shape[:-1], patches.shape[2]), np.float32)
    for row, image in zip(range(weights.shape[-2]), rows, strict=True):
        bag = patches[image].astype(np.float32)  # one at a time, to save memory
        pooled[..., row, :] = weights[..., row, :] @ bag
    return pooled


def keep_heaviest(weights: Floats) -> NDArray[np.float32]:
    """The weights of the heaviest CHOSEN_SHARE of each image's patches, scaled to sum to 1; 0
    elsewhere."""
    kept = np.zeros(weights.shape, np.float32)
    chosen = _heaviest(weights)
    np.put_along_axis(kept, chosen, np.take_along_axis(weights, chosen, axis=1), axis=1)
    kept /= kept.sum(axis=1, keepdims=True)
    return kept


def residual_pooling(
    bags: Bags,
    weights: Floats,
    expected: Expected,
    *,
    parts: PartWeights | None = None,
    whitening: Floats | None = None,
    chosen_share: float = CHOSEN_SHARE,
    images_at_once: int = IMAGES_AT_ONCE,
    progress: Progress | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The weighted average of residuals: the differences between patches and the expected ones.

    weights: (n_images, n_patches), from `keep_heaviest`. expected: see Comparison. parts: other
    weights for the same patches. whitening: (dim, dim), see `residual_whitening`.
    chosen_share: the share of the patches, the heaviest, that are pooled. images_at_once:
    expected patches are asked for in batches of this many images. Returns
    (n_images, dim) and (n_parts, dim): the pooled residual minus the image's background residual,
    whitened, with its length raised to the power RESIDUAL_POWER.
    """
    images_of, weights_of = parts or no_parts(weights.shape[1])
    chosen = _heaviest(weights, chosen_share)
    n_chosen = chosen.shape[1]
    both = np.concatenate([chosen, _background(bags.valid, *weights.shape)], axis=1)
    pooled = np.empty((len(bags), bags.dim), np.float32)
    pooled_parts = np.empty((len(images_of), bags.dim), np.float32)
    if progress:
        progress("comparing", 0, len(bags))
    for some in blocks(len(bags), images_at_once):
        images = np.arange(some.start, some.stop)
        for image, normal in zip(images, expected(images, both[images]), strict=True):
            residual = bags.patches[image, both[image]].astype(np.float32) - normal
            background = residual[n_chosen:].mean(axis=0)
            whole = _shares(weights[image : image + 1, chosen[image]])[0]
            pooled[image] = whole @ residual[:n_chosen] - background
            own = slice(*np.searchsorted(images_of, [image, image + 1]))
            flaws = _shares(weights_of[own][:, chosen[image]]) @ residual[:n_chosen]
            pooled_parts[own] = flaws - background
        if progress:
            progress("comparing", some.stop, len(bags))
    return _scaled(pooled, whitening), _scaled(pooled_parts, whitening)


def _shares(weights: Floats) -> NDArray[np.float32]:
    """Weights scaled to sum to 1 in each row. On a coarser grid some lie on patches that are not
    among the chosen ones; where all of them do, every chosen patch counts the same."""
    kept = np.asarray(weights, np.float32)
    totals = kept.sum(axis=1, keepdims=True)
    kept = np.where(totals > 0, kept, np.float32(1))
    return np.asarray(kept / kept.sum(axis=1, keepdims=True), np.float32)


def no_parts(n_patches: int) -> PartWeights:
    return np.empty(0, np.int64), np.empty((0, n_patches), np.float32)


def _scaled(pooled: NDArray[np.float32], whitening: Floats | None) -> NDArray[np.float32]:
    """Whiten vectors, and raise their lengths to the power RESIDUAL_POWER."""
    if whitening is not None:
        pooled = pooled @ np.asarray(whitening, np.float32)
    length = np.linalg.norm(pooled, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = pooled * np.maximum(length, 1e-12) ** (RESIDUAL_POWER - 1.0)
    return scaled


def residual_whitening(
    bags: Bags,
    scores: Floats,
    expected: Expected,
    rows: Ints,
    *,
    images_at_once: int = IMAGES_AT_ONCE,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """(dim, dim): a matrix that reduces the directions in which ordinary patches vary.

    It is the inverse square root of the covariance of their residuals, shrunk towards a multiple
    of the identity. scores: (n_images, n_patches). rows: (n_rows,), the images to measure it on.
    images_at_once: as for `residual_pooling`.
    """
    places = _background(bags.valid, *scores.shape)[rows]
    seen = scores[rows] if bags.valid is None else scores[rows][bags.valid[rows]]
    loudest = np.quantile(seen, ORDINARY_SHARE)
    n, total, products = 0, np.zeros(bags.dim), np.zeros((bags.dim, bags.dim))
    if progress:
        progress("measuring", 0, len(rows))
    for some in blocks(len(rows), images_at_once):
        images, chosen = rows[some], places[some]
        residual = bags.patches[images[:, None], chosen].astype(np.float64)
        residual -= expected(images, chosen)
        ordinary = residual[scores[images[:, None], chosen] <= loudest]
        n += len(ordinary)
        total += ordinary.sum(axis=0)
        products += ordinary.T @ ordinary
        if progress:
            progress("measuring", some.stop, len(rows))
    mean = total / max(n, 1)
    return inverse_root(products / max(n, 1) - np.outer(mean, mean))


def inverse_root(covariance: NDArray[np.float64]) -> NDArray[np.float32]:
    """(dim, dim): the inverse square root of a covariance, shrunk towards a multiple of the
    identity."""
    variances, directions = np.linalg.eigh(covariance)
    usual = float(variances.clip(min=0).mean())
    if usual <= 1e-12:  # no variation: every direction counts the same
        return np.eye(len(covariance), dtype=np.float32)
    # Scaled so that an average direction keeps its length.
    gains = np.sqrt((1 + SHRINKAGE) * usual / (variances.clip(min=0) + SHRINKAGE * usual))
    whitening: NDArray[np.float64] = (directions * gains) @ directions.T
    return whitening.astype(np.float32)


def _heaviest(weights: Floats, share: float = CHOSEN_SHARE) -> NDArray[np.int64]:
    """(n_images, n_chosen): the share of the patches with the largest weights, heaviest first."""
    count = max(1, round(share * weights.shape[1]))
    return np.argsort(-np.asarray(weights), axis=1, kind="stable")[:, :count]


def _background(valid: Bools | None, n_images: int, n_patches: int) -> NDArray[np.int64]:
    """(n_images, n_background): valid patches spread evenly over each image."""
    count = min(BACKGROUND_PATCHES, n_patches)

    def spread(available: NDArray[np.int64]) -> NDArray[np.int64]:
        return available[np.linspace(0, len(available) - 1, count).round().astype(np.int64)]

    if valid is None:
        return np.tile(spread(np.arange(n_patches)), (n_images, 1))
    return np.stack([spread(np.flatnonzero(row)) for row in valid])

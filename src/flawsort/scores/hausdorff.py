"""Distances between bags of patches: the Hausdorff family of the paper's Appendix C.

A variant is named as in the paper's table: first how the distances between patches are combined
into the distance from one bag to another (Eq. 3), then how the two directions are combined (Eq. 2).
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bags, Progress
from flawsort.core.threads import blocks, in_threads, single_threaded_blas
from flawsort.scores.distances import Factors, factors
from flawsort.scores.nearest import BLOCK_SIZES, BlockSizes
from flawsort.scores.peer_statistics import DirectedMinima

MEAN_MEAN = "mean-mean"
HAUSDORFF_VARIANTS = (
    MEAN_MEAN,
    "max-min max",
    "max-min mean",
    "min-min",
    "mean-min max",
    "mean-min mean",
)


def hausdorff(minima: DirectedMinima, variant: str) -> NDArray[np.float32]:
    """(n_images, n_images): a Hausdorff distance, symmetric and with a zero diagonal.

    minima: of all pairs of images. variant: one of HAUSDORFF_VARIANTS except "mean-mean", for which
    see mean_distances. "max-min max" is the maximum Hausdorff distance (Eq. 2).
    """
    if variant not in HAUSDORFF_VARIANTS[1:]:
        names = ", ".join(f"'{name}'" for name in HAUSDORFF_VARIANTS[1:])
        raise OptionError(f"variant must be one of {names}. Got '{variant}'.")
    within, _, between = variant.partition(" ")
    there = {"max-min": minima.largest, "mean-min": minima.mean, "min-min": minima.smallest}[within]
    if np.isnan(there).any():
        raise InputError(
            "minima must cover all pairs of images. Got minima with "
            f"{np.isnan(there).sum()} comparisons missing: make all images peers."
        )
    back = there.T
    if between == "max":
        return np.maximum(there, back)
    if between == "mean":
        return (there + back) / np.float32(2)
    return np.minimum(there, back)  # min-min: the same in both directions


def mean_distances(
    bags: Bags, *, sizes: BlockSizes = BLOCK_SIZES, progress: Progress | None = None
) -> NDArray[np.float32]:
    """(n_images, n_images): the mean distance of all pairs of valid patches, "mean-mean".

    Symmetric; each pair of bags is multiplied once. The diagonal is set to zero, although the mean
    distance within a bag is not, because clustering relies on d(i, i) = 0. sizes: of the blocks.
    """
    n_images = len(bags)
    total = n_images * (n_images - 1) // 2
    done = 0

    def compare(block: tuple[int, int]) -> list[tuple[int, int, float]]:
        """Compare a few images with some of the later ones."""
        stripe = range(block[0], min(block[0] + sizes.stripe, n_images))
        others = range(max(block[1], stripe.start + 1), min(block[1] + sizes.peers, n_images))
        own = [factors(bags.valid_patches(image)) for image in stripe] if others else []
        found = []
        for other in others:
            bag = factors(bags.valid_patches(other))
            earlier = [image for image in stripe if image < other]
            found += [
                (i, other, _mean_distance(own[i - stripe.start], bag, sizes.rows)) for i in earlier
            ]
        return found

    means = np.zeros((n_images, n_images), np.float32)
    pieces = product(range(0, n_images, sizes.stripe), range(0, n_images, sizes.peers))
    with single_threaded_blas():
        for results in in_threads(compare, pieces):
            for image, other, mean in results:
                means[image, other] = means[other, image] = mean
            done += len(results)
            if progress:
                progress("scoring", done, total)
    return means


def _mean_distance(first: Factors, second: Factors, block_rows: int) -> float:
    """The mean of distances.distance over all pairs, computed in place so that a block stays in the
    processor's cache."""
    left, right = first.left, second.right
    total = 0.0
    for some in blocks(len(left), block_rows):
        distances = left[some] @ right.T
        np.subtract(1, distances, out=distances)  # half of their squares
        np.maximum(distances, 0, out=distances)
        np.sqrt(distances, out=distances)
        total += float(distances.sum())
    return float(np.sqrt(2)) * total / (len(left) * len(right))

"""The pooling baselines that the paper compares itself with: max, GeM, SPoC and bag-of-words.

Each turns the valid patches of an image into one vector and ignores how unusual they are. Images
are read one at a time, so a memory-mapped set is never in memory as a whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.core.records import Bags
from flawsort.embeddings.pooling import average_pooling
from flawsort.embeddings.weights import soft_weights

GEM_POWER = 20.0
SPOC_SIGMA = 1000.0
CODEBOOK_WORDS = 512
# GeM is defined for positive numbers only: smaller values, negative ones too, are raised to this.
GEM_FLOOR = 1e-6
# The codebook is learnt from at most this many patches (0.4 GB in 1024 dimensions).
CODEBOOK_PATCHES = 100_000
CODEBOOK_BATCH = 4096


def max_pooling(bags: Bags) -> NDArray[np.float32]:
    """(n_images, dim): the largest value of each dimension over an image's valid patches."""
    pooled = np.empty((len(bags), bags.dim), np.float32)
    for image in range(len(bags)):
        pooled[image] = bags.valid_patches(image).max(axis=0)
    return pooled


def gem_pooling(bags: Bags, p: float = GEM_POWER) -> NDArray[np.float32]:
    """(n_images, dim): the generalised mean mean(x^p)^(1/p) of each dimension.

    Values below GEM_FLOOR are raised to it, as GeM does. p = 1 is then the mean; the larger p, the
    nearer the maximum.
    """
    if not 0 < p < np.inf:
        raise OptionError(f"p must be greater than 0 and finite. Got {p}.")
    pooled = np.empty((len(bags), bags.dim), np.float32)
    for image in range(len(bags)):
        bag = np.maximum(bags.valid_patches(image), np.float32(GEM_FLOOR))
        # In shares of the maximum: 0.01 to the power 20 is 0 in single precision.
        top = bag.max(axis=0)
        means = np.power(bag / top, p).mean(axis=0, dtype=np.float64)
        pooled[image] = top * means ** (1.0 / p)
    return pooled


def spoc_pooling(bags: Bags, sigma: float = SPOC_SIGMA) -> NDArray[np.float32]:
    """(n_images, dim): the mean of an image's patches, in which central ones weigh more (SPoC).

    sigma: the width of the Gaussian prior around the middle of the grid, in patches; infinity
    gives the mean.

    Of Babenko and Lempitsky (2015) this is the sum pooling and the centre prior. The prior is
    scaled to sum to 1, and neither their PCA nor the last scaling to unit length is done: the
    paper's numbers for sigma = 1000 equal those of its plain average, which is not scaled either.
    """
    if not sigma > 0:
        raise OptionError(f"sigma must be greater than 0. Got {sigma}.")
    rows, columns = bags.grid
    down = (np.arange(rows) - (rows - 1) / 2) / sigma
    across = (np.arange(columns) - (columns - 1) / 2) / sigma
    exponents = -(down[:, None] ** 2 + across**2).ravel() / 2
    weights = soft_weights(np.broadcast_to(exponents, bags.patches.shape[:2]), 1.0, bags.valid)
    return average_pooling(bags.patches, weights)


def bag_of_words(
    bags: Bags,
    n_words: int = CODEBOOK_WORDS,
    random_state: int = 0,
    *,
    most_patches: int = CODEBOOK_PATCHES,
) -> NDArray[np.float32]:
    """(n_images, n_words or fewer): the share of an image's patches nearest to each word.

    The words are k-means centres (mini-batches) of at most `most_patches` valid patches, evenly
    spread over the set. With no more distinct patches than n_words, each of them is a word. Rows
    sum to 1 and are not scaled to unit length, so padding does not set an image apart.
    """
    if n_words < 1:
        raise OptionError(f"n_words must be at least 1. Got {n_words}.")
    words = _codebook(_evenly_spread(bags, most_patches), n_words, random_state)
    half_squares = (words.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) / 2
    histogram = np.empty((len(bags), len(words)), np.float32)
    for image in range(len(bags)):
        nearest = (bags.valid_patches(image) @ words.T - half_squares).argmax(axis=1)
        histogram[image] = np.bincount(nearest, minlength=len(words)) / len(nearest)
    return histogram


def _evenly_spread(bags: Bags, most: int) -> NDArray[np.float32]:
    """(n_sample, dim): valid patches at even steps through the set, at most `most` of them."""
    counts = np.full(len(bags), bags.n_patches) if bags.valid is None else bags.valid.sum(axis=1)
    ends = np.cumsum(counts)
    size = min(int(ends[-1]), most)
    places = np.linspace(0, ends[-1] - 1, size).round().astype(np.int64)
    cuts = np.searchsorted(places, np.append(0, ends))
    sample = np.empty((size, bags.dim), np.float32)
    for image in range(len(bags)):
        here = slice(cuts[image], cuts[image + 1])
        sample[here] = bags.valid_patches(image)[places[here] - (ends[image] - counts[image])]
    return sample


def _codebook(sample: NDArray[np.float32], n_words: int, random_state: int) -> NDArray[np.float32]:
    """(n_words or fewer, dim): the words for a sample (n_sample, dim)."""
    distinct: dict[bytes, int] = {}
    for row, patch in enumerate(sample + np.float32(0)):  # -0.0 becomes 0.0
        distinct.setdefault(patch.tobytes(), row)
        if len(distinct) > n_words:
            break
    else:
        return sample[list(distinct.values())]
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    model = MiniBatchKMeans(
        n_words,
        batch_size=CODEBOOK_BATCH,
        init_size=min(len(sample), 3 * max(CODEBOOK_BATCH, n_words)),
        n_init=1,
        random_state=random_state,
    )
    # One thread: several of them add in another order each time, which rounds otherwise.
    with threadpool_limits(limits=1):
        model.fit(sample)
    words: NDArray[np.float32] = model.cluster_centers_.astype(np.float32)
    return words

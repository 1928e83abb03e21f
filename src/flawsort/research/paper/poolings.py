"""The pooling baselines that the paper compares itself with: max, GeM, SPoC and bag-of-words.

Each makes one vector an image of its patches, without weights of what is unusual. Images are
read one at a time, so that a memory-mapped set stays where it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bools, Floats
from flawsort.embeddings.pooling import average_pooling
from flawsort.embeddings.weights import soft_weights

GEM_POWER = 20.0
SPOC_SIGMA = 1000.0
CODEBOOK_WORDS = 512
# GeM is defined for positive numbers only; smaller ones, also negative ones, count as this.
GEM_FLOOR = 1e-6
# The codebook is learnt from at most so many patches (0.4 GB in 1024 dimensions).
CODEBOOK_PATCHES = 100_000
CODEBOOK_BATCH = 4096


def max_pooling(patches: Floats, valid: Bools | None = None) -> NDArray[np.float32]:
    """The largest value of each dimension over an image's valid patches.

    patches: (n_images, n_patches, dim). valid: (n_images, n_patches), None for all.
    Returns (n_images, dim).
    """
    _check(patches, valid)
    pooled = np.empty((len(patches), patches.shape[2]), np.float32)
    for image in range(len(patches)):
        pooled[image] = _bag(patches, valid, image).max(axis=0)
    return pooled


def gem_pooling(
    patches: Floats, valid: Bools | None = None, p: float = GEM_POWER
) -> NDArray[np.float32]:
    """The generalised mean of each dimension, mean(x^p)^(1/p), over an image's valid patches.

    patches: (n_images, n_patches, dim). Values below GEM_FLOOR, also negative ones, are raised to
    it, as GeM does. p = 1 is then the mean; the larger p, the nearer the maximum.
    Returns (n_images, dim).
    """
    if not 0 < p < np.inf:
        raise OptionError(f"p must be greater than 0 and finite. Got {p}.")
    _check(patches, valid)
    pooled = np.empty((len(patches), patches.shape[2]), np.float32)
    for image in range(len(patches)):
        bag = np.maximum(_bag(patches, valid, image), np.float32(GEM_FLOOR))
        # In shares of the maximum: 0.01 to the power 20 is 0 in single precision.
        top = bag.max(axis=0)
        means = np.power(bag / top, p).mean(axis=0, dtype=np.float64)
        pooled[image] = top * means ** (1.0 / p)
    return pooled


def spoc_pooling(
    patches: Floats,
    grid: tuple[int, int],
    valid: Bools | None = None,
    sigma: float = SPOC_SIGMA,
) -> NDArray[np.float32]:
    """The mean of an image's valid patches, the more central ones counting more (SPoC).

    patches: (n_images, n_patches, dim), row by row of the grid (rows, columns). sigma: the width
    of the Gaussian prior around the middle of the grid, in patches; infinity gives the mean.
    Returns (n_images, dim).

    Of Babenko and Lempitsky (2015) this is the sum pooling and the centre prior. The prior is
    scaled to sum to 1, and neither their PCA nor the last scaling to unit length is done: the
    paper's numbers for sigma = 1000 equal those of its plain average, which is not scaled either.
    """
    if not sigma > 0:
        raise OptionError(f"sigma must be greater than 0. Got {sigma}.")
    _check(patches, valid)
    rows, columns = grid
    if rows * columns != patches.shape[1]:
        raise InputError(
            f"grid must multiply to the number of patches, {patches.shape[1]}. "
            f"Got {rows} x {columns}."
        )
    down = (np.arange(rows) - (rows - 1) / 2) / sigma
    across = (np.arange(columns) - (columns - 1) / 2) / sigma
    exponents = -(down[:, None] ** 2 + across**2).ravel() / 2
    weights = soft_weights(np.broadcast_to(exponents, patches.shape[:2]), 1.0, valid)
    return average_pooling(patches, weights)


def bag_of_words(
    patches: Floats,
    valid: Bools | None = None,
    n_words: int = CODEBOOK_WORDS,
    random_state: int = 0,
) -> NDArray[np.float32]:
    """How often each word of a codebook is the nearest one to a patch of the image.

    patches: (n_images, n_patches, dim). The words are k-means centres (mini-batches) of at most
    CODEBOOK_PATCHES valid patches, spread evenly over the set. With no more distinct patches than
    n_words, each of them is a word.
    Returns (n_images, n_words or fewer): the counts as shares, rows sum to 1. Shares rather than
    unit length: then images with more padding are not set apart by it.
    """
    if n_words < 1:
        raise OptionError(f"n_words must be at least 1. Got {n_words}.")
    _check(patches, valid)
    words = _codebook(_evenly_spread(patches, valid), n_words, random_state)
    half_squares = (words.astype(np.float64) ** 2).sum(axis=1).astype(np.float32) / 2
    histogram = np.empty((len(patches), len(words)), np.float32)
    for image in range(len(patches)):
        nearest = (_bag(patches, valid, image) @ words.T - half_squares).argmax(axis=1)
        histogram[image] = np.bincount(nearest, minlength=len(words)) / len(nearest)
    return histogram


def _evenly_spread(patches: Floats, valid: Bools | None) -> NDArray[np.float32]:
    """(n_some, dim): valid patches at even steps through the set, at most CODEBOOK_PATCHES."""
    n_images, n_patches, dim = patches.shape
    counts = np.full(n_images, n_patches) if valid is None else valid.sum(axis=1)
    ends = np.cumsum(counts)
    size = min(int(ends[-1]), CODEBOOK_PATCHES)
    places = np.linspace(0, ends[-1] - 1, size).round().astype(np.int64)
    cuts = np.searchsorted(places, np.append(0, ends))
    sample = np.empty((size, dim), np.float32)
    for image in range(n_images):
        here = slice(cuts[image], cuts[image + 1])
        sample[here] = _bag(patches, valid, image)[places[here] - (ends[image] - counts[image])]
    return sample


def _codebook(sample: NDArray[np.float32], n_words: int, random_state: int) -> NDArray[np.float32]:
    """(n_words or fewer, dim): the words for a sample (n_some, dim)."""
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
    # One thread: sums taken by several come out in another order each time.
    with threadpool_limits(limits=1):
        model.fit(sample)
    words: NDArray[np.float32] = model.cluster_centers_.astype(np.float32)
    return words


def _bag(patches: Floats, valid: Bools | None, image: int) -> NDArray[np.float32]:
    """(n_valid, dim): the valid patches of one image."""
    bag: NDArray[np.float32] = np.asarray(patches[image], np.float32)
    return bag if valid is None else bag[valid[image]]


def _check(patches: Floats, valid: Bools | None) -> None:
    if patches.ndim != 3 or 0 in patches.shape:
        raise InputError(
            "patches must have the shape (n_images, n_patches, dim) with no empty side. "
            f"Got {patches.shape}."
        )
    if valid is None:
        return
    if valid.shape != patches.shape[:2]:
        raise InputError(f"valid must have the shape {patches.shape[:2]}. Got {valid.shape}.")
    empty = np.flatnonzero(~valid.any(axis=1))
    if len(empty):
        raise InputError(
            f"valid must leave every image a patch. Got none for image {empty[0]}; leave such "
            "images out."
        )

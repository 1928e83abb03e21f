"""The map of a run: its images in two dimensions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Floats, Ints
from flawsort.core.threads import in_blocks

# At most this many images are laid out by t-SNE. The others are placed beside their nearest images
# in this sample.
LAYOUT_LIMIT = 1500
LAYOUT_PERPLEXITY = 20.0
# The number of other images compared with the sample at a time: 6 MB of distances.
OTHERS_AT_ONCE = 512


def two_dimensional_layout(
    embeddings: Floats, *, random_state: int = 0, limit: int = LAYOUT_LIMIT
) -> NDArray[np.float32]:
    """(n, 2) in 0..1: images with similar embeddings lie near each other. limit: at most this many
    images are laid out by t-SNE, the others beside them."""
    values = np.asarray(embeddings, np.float64)
    order = np.random.default_rng(random_state).permutation(len(values))
    landmarks = np.sort(order[:limit])
    points = np.empty((len(values), 2))
    points[landmarks] = _layout_landmarks(values[landmarks], random_state)
    others = np.sort(order[limit:])
    if len(others):
        points[others] = _beside_landmarks(values, landmarks, others, points[landmarks])
    low, high = points.min(axis=0), points.max(axis=0)
    inside: NDArray[np.float64] = (points - low) / np.maximum(high - low, 1e-12)
    return inside.astype(np.float32)


def _layout_landmarks(values: NDArray[np.float64], random_state: int) -> NDArray[np.float64]:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if np.ptp(values, axis=0).max() < 1e-12:  # all equal, or only one image
        return np.zeros((len(values), 2))
    # One thread: several threads add numbers in a different order each time, and t-SNE turns the
    # rounding errors into a different map.
    with threadpool_limits(limits=1):
        dim = min(32, *values.shape)
        reduced = PCA(dim, svd_solver="full").fit_transform(values)
        if len(values) < 5:
            return np.pad(reduced, ((0, 0), (0, 2)))[:, :2]
        perplexity = min(LAYOUT_PERPLEXITY, (len(values) - 1) / 3)
        scaled = reduced / max(reduced[:, 0].std(), 1e-12)
        init = np.pad(scaled, ((0, 0), (0, 2)))[:, :2] * 1e-4
        tsne = TSNE(2, perplexity=perplexity, init=init, random_state=random_state, n_jobs=1)
        laid: NDArray[np.float64] = tsne.fit_transform(scaled).astype(np.float64)
        return laid


def _beside_landmarks(
    values: NDArray[np.float64], landmarks: Ints, others: Ints, points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean position of the three nearest landmarks, weighted by closeness."""
    from scipy.spatial.distance import cdist

    def beside(block: slice) -> NDArray[np.float64]:
        far = cdist(values[others[block]], values[landmarks])
        nearest = np.argsort(far, axis=1, kind="stable")[:, :3]
        closeness = 1 / (np.take_along_axis(far, nearest, axis=1) + 1e-9)
        share = closeness / closeness.sum(axis=1, keepdims=True)
        placed: NDArray[np.float64] = (points[nearest] * share[..., None]).sum(axis=1)
        return placed

    return in_blocks(beside, len(others), OTHERS_AT_ONCE)

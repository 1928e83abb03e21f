"""The clusterers: Ward's, which is the usual one, and those that the paper compares with it, on
embeddings or on given distances.

All are given the number of groups. A clusterer may find fewer if images are alike. Groups are
numbered by size, the largest 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.large_ward import joined_trees, rows_of_groups, tree_of_groups
from flawsort.clusters.ward import cut, number_by_size
from flawsort.core.errors import OptionError
from flawsort.core.records import Floats, Ints
from flawsort.embeddings.method import CLUSTERERS as CLUSTERERS
from flawsort.embeddings.method import LINKAGES as LINKAGES
from flawsort.embeddings.method import NEED_VECTORS

Linkage: TypeAlias = Literal["single", "complete", "average", "ward"]
WARD = "ward"

# Added to the variances of a Gaussian, in units of the mean variance of the data along the axes
# that it spans. For unit-length patches this is close to scikit-learn's absolute default.
GMM_FLOOR = 1e-3
# Weaker affinities are raised to this, so that no image is cut off from all others.
LEAST_AFFINITY = 1e-12
# The most rounds of k-medoids; it converges long before.
MEDOID_ROUNDS = 300
# How far distances may be from symmetric, and their diagonal from 0, in units of the largest.
# In single precision the distance of a vector to itself, from its dot product, is up to 3e-4.
SYMMETRY = 1e-5
DIAGONAL = 1e-2


def cluster_embeddings(
    embeddings: Floats, n_clusters: int, clusterer: str = "ward", random_state: int = 0
) -> NDArray[np.int64]:
    """(n,) labels. embeddings: (n, dim). clusterer: one of CLUSTERERS.

    All but "kmeans" and "gmm" work on the Euclidean distances, as `cluster_distances` does.
    kmeans: the best of 10 starts. gmm: Gaussians with full covariance, see `_gmm`.
    """
    vectors = _vectors(embeddings)
    _check(clusterer, n_clusters, len(vectors))
    if clusterer not in NEED_VECTORS:
        return _by_distances(_euclidean(vectors), n_clusters, clusterer, random_state)
    if n_clusters in (1, len(vectors)):
        return _trivial(len(vectors), n_clusters)
    with _repeatable():
        if clusterer == "gmm":
            return number_by_size(_gmm(vectors, n_clusters, random_state))
        return number_by_size(_kmeans(vectors, n_clusters, random_state))


def cluster_distances(
    distances: Floats, n_clusters: int, clusterer: str = "ward", random_state: int = 0
) -> NDArray[np.int64]:
    """(n,) labels. distances: (n, n), symmetric. clusterer: one of CLUSTERERS without vectors.

    kmedoids: Park and Jun (2009). spectral: on the affinities exp(-d^2 / (2 sigma^2)) with the
    median distance as sigma; the paper gives no value. Linkages: see `linkage_from_distances`.
    """
    square = _square(distances)
    _check(clusterer, n_clusters, len(square))
    if clusterer in NEED_VECTORS:
        accepted = ", ".join(name for name in CLUSTERERS if name not in NEED_VECTORS)
        raise OptionError(
            f"clusterer must be one of {accepted} where only distances are given. "
            f"Got '{clusterer}', which needs vectors: use cluster_embeddings."
        )
    return _by_distances(square, n_clusters, clusterer, random_state)


def linkage_from_embeddings(embeddings: Floats, method: str = "ward") -> NDArray[np.float64]:
    """(n - 1, 4): the merges of a linkage, in SciPy's convention. embeddings: (n, dim)."""
    return _linkage(_euclidean(_vectors(embeddings)), method)


def linkage_from_distances(distances: Floats, method: str = "ward") -> NDArray[np.float64]:
    """(n - 1, 4): the merges of a linkage, in SciPy's convention. distances: (n, n).

    Ward's method is defined for Euclidean distances. On others, such as Hausdorff's, its formula
    for the distance of merged groups (Lance and Williams) is applied to them as it stands.
    """
    return _linkage(_square(distances), method)


def linkage_of_groups(
    embeddings: Floats, labels: Ints, distances: Floats | None = None
) -> NDArray[np.float64]:
    """(n - 1, 4): a tree that has these groups: its cut into as many gives them.

    Below are Ward's trees of each group, above them a tree of the groups: Ward's of their centres,
    or, where distances are given, by the mean distance of their images. labels: (n,), all from 0 to
    the largest. distances: (n, n), to use instead of the embeddings (n, dim).
    """
    if distances is None:
        return tree_of_groups(np.asarray(embeddings, np.float32), labels)
    square = _square(distances)
    member = np.eye(int(labels.max()) + 1)[labels]
    sizes = member.sum(axis=0)
    between = member.T @ square @ member / np.outer(sizes, sizes)
    np.fill_diagonal(between, 0)
    inner = [_linkage(square[np.ix_(rows, rows)], WARD) for rows in rows_of_groups(labels)]
    return joined_trees(labels, inner, _linkage((between + between.T) / 2, "average"))


def _by_distances(
    square: NDArray[np.float64], n_clusters: int, clusterer: str, random_state: int
) -> NDArray[np.int64]:
    if clusterer in LINKAGES:
        return cut(_linkage(square, clusterer), n_clusters)
    if n_clusters in (1, len(square)):
        return _trivial(len(square), n_clusters)
    if clusterer == "kmedoids":
        return number_by_size(_kmedoids(square, n_clusters))
    with _repeatable():
        return number_by_size(_spectral(square, n_clusters, random_state))


def _linkage(square: NDArray[np.float64], method: str) -> NDArray[np.float64]:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    if method not in LINKAGES:
        raise OptionError(f"method must be one of {', '.join(LINKAGES)}. Got '{method}'.")
    if len(square) == 1:
        return np.empty((0, 4))
    condensed: NDArray[np.float64] = squareform(square, checks=False)
    merges: NDArray[np.float64] = linkage(condensed, method=cast(Linkage, method))
    return merges


def _kmeans(vectors: NDArray[np.float64], n_clusters: int, random_state: int) -> NDArray[np.int64]:
    from sklearn.cluster import KMeans

    model = KMeans(n_clusters, n_init=10, random_state=random_state)
    labels: NDArray[np.int64] = model.fit_predict(vectors).astype(np.int64)
    return labels


def _gmm(vectors: NDArray[np.float64], n_clusters: int, random_state: int) -> NDArray[np.int64]:
    """Gaussians with full covariance, from a k-means start; the likeliest one of each image.

    n images span at most n - 1 axes; along all others every Gaussian has the floor as its variance.
    So the Gaussians are fitted along the spanned axes only: the labels are the same, and the work
    grows with n^3 instead of dim^3.
    """
    from sklearn.mixture import GaussianMixture

    centred = vectors - vectors.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    spanned = sizes > 1e-10 * np.linalg.norm(vectors)  # smaller ones are rounding errors
    if not spanned.any():
        return np.zeros(len(vectors), np.int64)  # all images are alike
    # Scaled to the largest axis, so that results do not depend on the unit of the data.
    axes = left[:, spanned] * (sizes[spanned] / sizes[0])
    model = GaussianMixture(
        n_clusters, reg_covar=GMM_FLOOR * float(axes.var(axis=0).mean()), random_state=random_state
    )
    labels: NDArray[np.int64] = model.fit_predict(axes).astype(np.int64)
    return labels


def _spectral(square: NDArray[np.float64], n_clusters: int, random_state: int) -> NDArray[np.int64]:
    from sklearn.cluster import SpectralClustering

    pairs = square[np.triu_indices(len(square), 1)]
    # With many duplicates the median is 0: take that of the other distances.
    sigma = float(np.median(pairs))
    if not sigma:
        sigma = float(np.median(pairs[pairs > 0])) if pairs.any() else 1.0
    affinity = np.maximum(np.exp(-((square / sigma) ** 2) / 2), LEAST_AFFINITY)
    model = SpectralClustering(n_clusters, affinity="precomputed", random_state=random_state)
    labels: NDArray[np.int64] = model.fit_predict(affinity).astype(np.int64)
    return labels


def _kmedoids(square: NDArray[np.float64], n_clusters: int) -> NDArray[np.int64]:
    """Park and Jun (2009): start from the most central images, then alternate. Deterministic.

    An image is central if its distances to all images are small, each divided by the sum of
    distances of the other image.
    """
    sums = square.sum(axis=1, keepdims=True)
    shares = np.divide(square, sums, out=np.zeros_like(square), where=sums > 0)
    medoids = np.argsort(shares.sum(axis=0), kind="stable")[:n_clusters]
    labels: NDArray[np.int64] = square[:, medoids].argmin(axis=1)
    for _ in range(MEDOID_ROUNDS):
        before = medoids.copy()
        for group in np.unique(labels):  # a group that duplicates left empty keeps its medoid
            members = np.flatnonzero(labels == group)
            # The medoid comes first, so it changes only if another sum is smaller. Otherwise it
            # could alternate between equal ones for ever.
            candidates = np.append(medoids[group], members)
            costs = square[np.ix_(members, candidates)].sum(axis=0)
            medoids[group] = candidates[costs.argmin()]
        labels = square[:, medoids].argmin(axis=1)
        if np.array_equal(medoids, before):
            break
    return labels


def _trivial(n: int, n_clusters: int) -> NDArray[np.int64]:
    """All images in one group, or each in its own."""
    return np.zeros(n, np.int64) if n_clusters == 1 else np.arange(n)


@contextmanager
def _repeatable() -> Iterator[None]:
    """One thread, since several of them add in varying order, and no ConvergenceWarning.

    Fewer groups than requested are allowed here, and Gaussians that still move after
    scikit-learn's 100 rounds are accepted.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _euclidean(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.spatial.distance import pdist, squareform

    square: NDArray[np.float64] = squareform(pdist(vectors))
    return square


def _vectors(embeddings: Floats) -> NDArray[np.float64]:
    vectors: NDArray[np.float64] = np.asarray(embeddings, np.float64)
    if vectors.ndim != 2 or 0 in vectors.shape:
        raise OptionError(
            f"embeddings must have the shape (n, dim) with no empty side. Got {vectors.shape}."
        )
    if not np.isfinite(vectors).all():
        raise OptionError("embeddings must be finite. Got infinite or NaN values.")
    return vectors


def _square(distances: Floats) -> NDArray[np.float64]:
    """A copy of checked distances in double precision, exactly symmetric, the diagonal 0."""
    square: NDArray[np.float64] = np.array(distances, np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1] or not len(square):
        raise OptionError(
            f"distances must have the shape (n, n), n at least 1. Got {square.shape}."
        )
    if not np.isfinite(square).all() or square.min() < 0:
        raise OptionError(
            "distances must be finite and not negative. "
            f"Got values from {square.min()} to {square.max()}."
        )
    largest = float(square.max())
    apart = float(np.abs(square - square.T).max())
    if apart > SYMMETRY * largest:
        raise OptionError(
            f"distances must be symmetric. Got two that differ by {apart:.3g}, the largest being "
            f"{largest:.3g}; for a directed distance take np.maximum(d, d.T)."
        )
    own = float(square.diagonal().max())
    if own > DIAGONAL * largest:
        raise OptionError(
            f"distances must have a diagonal of zeros. Got up to {own:.3g} on it, the largest "
            f"being {largest:.3g}; are they similarities?"
        )
    square = (square + square.T) / 2
    np.fill_diagonal(square, 0)
    return square


def _check(clusterer: str, n_clusters: int, n: int) -> None:
    if clusterer not in CLUSTERERS:
        raise OptionError(f"clusterer must be one of {', '.join(CLUSTERERS)}. Got '{clusterer}'.")
    if not 1 <= n_clusters <= n:
        raise OptionError(
            f"n_clusters must be between 1 and {n} (the number of images). Got {n_clusters}."
        )

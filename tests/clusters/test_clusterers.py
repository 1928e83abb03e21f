"""The paper's clusterers, against plain loops, scikit-learn and one another."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import is_valid_linkage
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from flawsort.clusters import clusterers
from flawsort.clusters.clusterers import (
    CLUSTERERS,
    GMM_FLOOR,
    LINKAGES,
    cluster_distances,
    cluster_embeddings,
    linkage_from_distances,
    linkage_from_embeddings,
)
from flawsort.clusters.ward import cut, number_by_size, ward_linkage
from flawsort.core.errors import OptionError
from helpers.bags import Array, blobs, same_partition

ON_DISTANCES = tuple(name for name in CLUSTERERS if name not in ("kmeans", "gmm"))
SIZES = [7, 9, 6]


def noise(n: int, dim: int = 3, *, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, dim))


def distances_of(embeddings: Array) -> Array:
    return np.array([[math.dist(a, b) for b in embeddings] for a in embeddings])


# ---- what all have in common ----


def test_the_names() -> None:
    expected = ("kmeans", "gmm", "kmedoids", "spectral", "single", "complete", "average", "ward")
    assert expected == CLUSTERERS


@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_blobs_are_found_and_numbered_by_size(clusterer: str) -> None:
    order = np.random.default_rng(1).permutation(sum(SIZES))
    embeddings = blobs(SIZES, dim=30, spread=1)[order].astype(np.float32)
    before = embeddings.copy()
    labels = cluster_embeddings(embeddings, 3, clusterer)
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, np.repeat([1, 0, 2], SIZES)[order])
    np.testing.assert_array_equal(embeddings, before)


@pytest.mark.parametrize("clusterer", ON_DISTANCES)
def test_embeddings_are_their_distances(clusterer: str) -> None:
    embeddings = noise(25)
    distances = distances_of(embeddings)
    before = distances.copy()
    for k in (1, 2, 5, 24, 25):
        np.testing.assert_array_equal(
            cluster_distances(distances, k, clusterer), cluster_embeddings(embeddings, k, clusterer)
        )
    np.testing.assert_array_equal(distances, before)


@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_the_same_answer_every_time(clusterer: str) -> None:
    embeddings = noise(40, 60)
    first = cluster_embeddings(embeddings, 6, clusterer, random_state=3)
    np.testing.assert_array_equal(first, cluster_embeddings(embeddings, 6, clusterer, 3))
    # Images all over the place in other units: still the same groups.
    np.testing.assert_array_equal(first, cluster_embeddings(1e-3 * embeddings, 6, clusterer, 3))


@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_one_group_and_as_many_as_images(clusterer: str) -> None:
    for n in (1, 2, 6):
        embeddings = noise(n)
        np.testing.assert_array_equal(cluster_embeddings(embeddings, 1, clusterer), [0] * n)
        np.testing.assert_array_equal(cluster_embeddings(embeddings, n, clusterer), range(n))


@given(
    clusterer=st.sampled_from(CLUSTERERS),
    n=st.integers(1, 12),
    k=st.integers(1, 12),
    values=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_duplicates_give_at_most_as_many_groups(
    clusterer: str, n: int, k: int, values: int, seed: int
) -> None:
    lattice = 0.1 * np.random.default_rng(seed).integers(0, values, (n, 2)) + 0.7
    k = min(k, n)
    labels = cluster_embeddings(lattice, k, clusterer)
    assert labels.shape == (n,)
    sizes = np.bincount(labels)
    assert 1 <= len(sizes) <= k
    assert (sizes > 0).all()
    np.testing.assert_array_equal(labels, number_by_size(labels))


@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_images_that_are_all_alike(clusterer: str) -> None:
    # 0.1 has no exact mean: what differs from it is rounding.
    labels = cluster_embeddings(np.full((6, 3), 0.1), 3, clusterer)
    assert 1 <= len(np.unique(labels)) <= 3
    if clusterer in ("kmeans", "gmm", "kmedoids"):
        np.testing.assert_array_equal(labels, [0] * 6)


@pytest.mark.parametrize("clusterer", ["kmeans", "gmm", "spectral"])
def test_more_groups_than_distinct_images(clusterer: str) -> None:
    embeddings = np.repeat(4 * np.eye(3), [5, 3, 2], axis=0)
    labels = cluster_embeddings(embeddings, 5, clusterer)
    for first, second in ((0, 5), (5, 8), (0, 8)):
        assert labels[first] != labels[second]


@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_an_image_far_from_all_others(clusterer: str) -> None:
    embeddings = np.zeros((6, 2))
    embeddings[2] = 1e8
    expected = [0, 0, 1, 0, 0, 0]
    if clusterer == "kmedoids":  # the two most central images are alike
        np.testing.assert_array_equal(cluster_embeddings(embeddings, 2, clusterer), [0] * 6)
        return
    np.testing.assert_array_equal(cluster_embeddings(embeddings, 2, clusterer), expected)
    embeddings += noise(6, 2)  # now it is far in units of the median distance, too
    np.testing.assert_array_equal(cluster_embeddings(embeddings, 2, clusterer), expected)


# ---- linkages ----


def between(distances: Array, first: list[int], second: list[int], method: str) -> float:
    pairs = [float(distances[a, b]) for a in first for b in second]
    if method == "average":
        return sum(pairs) / len(pairs)
    return min(pairs) if method == "single" else max(pairs)


def naive_cut(distances: Array, n_clusters: int, method: str) -> Array:
    """Merge the two nearest groups, again and again."""
    groups = [[i] for i in range(len(distances))]
    while len(groups) > n_clusters:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a)]
        a, b = min(pairs, key=lambda p: between(distances, groups[p[0]], groups[p[1]], method))
        groups[b] += groups.pop(a)
    labels = np.empty(len(distances), int)
    for number, rows in enumerate(groups):
        labels[rows] = number
    return labels


def naive_ward(distances: Array, n_clusters: int) -> Array:
    """Lance and Williams's formula on squared distances, whatever they are."""
    squares = {(a, b): float(distances[a, b]) ** 2 for a in range(len(distances)) for b in range(a)}
    groups = {i: [i] for i in range(len(distances))}
    while len(groups) > n_clusters:
        a, b = min(squares, key=lambda pair: squares[pair])
        near = squares.pop((a, b))
        p, q = len(groups[a]), len(groups[b])
        for c in groups.keys() - {a, b}:
            r = len(groups[c])
            to_a, to_b = (max(a, c), min(a, c)), (max(b, c), min(b, c))
            far = (p + r) * squares.pop(to_a) + (q + r) * squares[to_b] - r * near
            squares[to_b] = far / (p + q + r)
        groups[b] += groups.pop(a)
    labels = np.empty(len(distances), int)
    for number, rows in enumerate(groups.values()):
        labels[rows] = number
    return labels


def odd_distances(n: int, *, seed: int = 4) -> Array:
    """Symmetric, but those of no points anywhere, and most of them small."""
    values = np.random.default_rng(seed).random((n, n)) ** 2 + 0.1
    distances = values + values.T
    np.fill_diagonal(distances, 0)
    return distances


@pytest.mark.parametrize("method", LINKAGES)
@pytest.mark.parametrize("k", [2, 3, 7])
def test_linkages_against_loops(method: str, k: int) -> None:
    for distances in (odd_distances(14), distances_of(noise(14))):
        ward = method == "ward"
        expected = naive_ward(distances, k) if ward else naive_cut(distances, k, method)
        assert same_partition(cluster_distances(distances, k, method), expected)


@pytest.mark.parametrize("method", LINKAGES)
def test_linkages_have_scipys_form(method: str) -> None:
    embeddings = noise(12)
    merges = linkage_from_embeddings(embeddings, method)
    assert merges.shape == (11, 4)
    assert is_valid_linkage(merges)
    np.testing.assert_allclose(merges, linkage_from_distances(distances_of(embeddings), method))
    for k in range(1, 13):
        np.testing.assert_array_equal(cluster_embeddings(embeddings, k, method), cut(merges, k))
    assert linkage_from_embeddings(embeddings[:1], method).shape == (0, 4)
    assert linkage_from_distances(np.zeros((1, 1)), method).shape == (0, 4)


def test_wards_linkage_is_the_one_of_the_pipeline() -> None:
    embeddings = noise(20).astype(np.float32)
    np.testing.assert_allclose(linkage_from_embeddings(embeddings), ward_linkage(embeddings))


# ---- k-medoids ----


def naive_kmedoids(distances: Array, k: int) -> Array:
    n = len(distances)
    sums = [sum(distances[i]) for i in range(n)]
    centrality = [sum(distances[i, j] / sums[i] for i in range(n)) for j in range(n)]
    medoids = sorted(range(n), key=lambda j: centrality[j])[:k]
    while True:
        labels = [min(range(k), key=lambda g: distances[i, medoids[g]]) for i in range(n)]
        moved = []
        for g in range(k):
            members = [i for i in range(n) if labels[i] == g]
            costs = {j: sum(distances[i, j] for i in members) for j in [medoids[g], *members]}
            moved.append(min(costs, key=lambda j: costs[j]))
        if moved == medoids:
            return np.array(labels)
        medoids = moved


@pytest.mark.parametrize("k", [2, 3, 5, 11])
@pytest.mark.parametrize("seed", range(4))
def test_kmedoids_against_loops(k: int, seed: int) -> None:
    for distances in (distances_of(noise(30, 2, seed=seed)), odd_distances(30)):
        found = cluster_distances(distances, k, "kmedoids", random_state=seed)
        assert same_partition(found, naive_kmedoids(distances, k))


def test_kmedoids_ends_where_medoids_are_equally_good() -> None:
    distances = 1.0 - np.eye(9)
    labels = cluster_distances(distances, 3, "kmedoids")
    np.testing.assert_array_equal(np.bincount(labels), [7, 1, 1])


# ---- spectral ----


def test_spectral_against_its_definition() -> None:
    for seed in range(12):
        distances = odd_distances(12, seed=seed)
        sigma = float(np.median([distances[i, j] for i in range(12) for j in range(i)]))
        affinity = np.exp(-(distances**2) / (2 * sigma**2))
        np.fill_diagonal(affinity, 0)
        degrees = affinity.sum(axis=1)
        _, vectors = np.linalg.eigh(affinity / np.sqrt(degrees[:, None] * degrees))
        mapped = vectors[:, -3:] / np.sqrt(degrees)[:, None]
        expected = KMeans(3, n_init=10, random_state=0).fit_predict(mapped)
        assert same_partition(cluster_distances(distances, 3, "spectral"), expected)


# ---- Gaussians ----


@pytest.mark.parametrize(("n", "dim"), [(40, 3), (24, 60)])
def test_gaussians_along_the_spanned_axes_are_those_of_all_axes(n: int, dim: int) -> None:
    spread = np.linspace(0.2, 2, dim)
    embeddings = noise(n, dim, seed=5) * spread + 1.5 * noise(3, dim)[np.arange(n) % 3] + 7
    axes = min(n - 1, dim)
    floor = GMM_FLOOR * float(embeddings.var(axis=0).sum()) / axes
    model = GaussianMixture(3, covariance_type="full", reg_covar=floor, random_state=0)
    expected = model.fit_predict(embeddings)
    assert same_partition(cluster_embeddings(embeddings, 3, "gmm"), expected)
    if n > dim:  # where there is room for a covariance, it matters
        assert not same_partition(cluster_embeddings(embeddings, 3, "kmeans"), expected)


def test_rounding_is_no_axis() -> None:
    last_bits = np.spacing(0.7) * np.random.default_rng(0).integers(0, 2, (8, 3))
    np.testing.assert_array_equal(cluster_embeddings(0.7 + last_bits, 2, "gmm"), [0] * 8)


def test_kmeans_is_the_best_of_its_starts() -> None:
    embeddings = noise(60, 2, seed=8)
    labels = cluster_embeddings(embeddings, 7, "kmeans")

    def squares(groups: Array) -> float:
        parts = [embeddings[groups == g] for g in np.unique(groups)]
        return sum(float(((part - part.mean(axis=0)) ** 2).sum()) for part in parts)

    starts = [KMeans(7, n_init=n, random_state=0).fit_predict(embeddings) for n in (1, 10)]
    assert squares(labels) == pytest.approx(squares(starts[1]))
    assert squares(labels) < squares(starts[0])


# ---- what is refused ----


def test_unknown_names() -> None:
    names = r"kmeans, gmm, kmedoids, spectral, single, complete, average, ward"
    with pytest.raises(OptionError, match=rf"clusterer must be one of {names}\. Got 'dbscan'\."):
        cluster_embeddings(noise(4), 2, "dbscan")
    with pytest.raises(OptionError, match=rf"clusterer must be one of {names}\. Got 'dbscan'\."):
        cluster_distances(np.zeros((4, 4)), 2, "dbscan")
    with pytest.raises(
        OptionError, match=r"one of single, complete, average, ward\. Got 'median'\."
    ):
        linkage_from_embeddings(noise(4), "median")


@pytest.mark.parametrize("clusterer", ["kmeans", "gmm"])
def test_distances_are_no_vectors(clusterer: str) -> None:
    with pytest.raises(
        OptionError,
        match=rf"one of kmedoids, spectral, .* Got '{clusterer}', which needs vectors",
    ):
        cluster_distances(np.zeros((4, 4)), 1, clusterer)


@pytest.mark.parametrize("clusterer", CLUSTERERS)
@pytest.mark.parametrize("k", [0, -1, 6])
def test_numbers_of_groups_out_of_range(clusterer: str, k: int) -> None:
    match = rf"between 1 and 5 \(the number of images\)\. Got {k}\."
    with pytest.raises(OptionError, match=match):
        cluster_embeddings(noise(5), k, clusterer)
    with pytest.raises(OptionError, match=match):
        cluster_distances(distances_of(noise(5)), k, clusterer)


@pytest.mark.parametrize("use", [lambda d: cluster_distances(d, 1), linkage_from_distances])
def test_bad_distances(use: object) -> None:
    assert callable(use)
    for shape in [(3, 4), (3,), (2, 2, 2), (0, 0)]:
        with pytest.raises(OptionError, match=r"\(n, n\), n at least 1\. Got \(" + str(shape)[1:2]):
            use(np.zeros(shape))
    distances = distances_of(noise(5))
    lopsided = distances.copy()
    lopsided[1, 3] += 0.25
    with pytest.raises(OptionError, match=r"must be symmetric\. Got two that differ by 0\.25, "):
        use(lopsided)
    with pytest.raises(OptionError, match=r"diagonal of zeros\. Got up to 1 on it"):
        use(np.ones((3, 3)))
    for bad in (-distances, np.full((3, 3), np.nan), np.full((3, 3), np.inf)):
        with pytest.raises(OptionError, match=r"finite and not negative\. Got values from"):
            use(bad)


def test_distances_may_be_off_by_rounding() -> None:
    distances = distances_of(noise(8)).astype(np.float32)
    noisy = distances + 1e-6 * np.random.default_rng(0).random((8, 8)).astype(np.float32)
    np.fill_diagonal(noisy, 3e-4)
    np.testing.assert_array_equal(cluster_distances(noisy, 3), cluster_distances(distances, 3))
    square = clusterers._square(noisy)
    np.testing.assert_array_equal(square, square.T)
    np.testing.assert_array_equal(square.diagonal(), 0)
    np.testing.assert_allclose(square, distances, atol=1e-5)


@pytest.mark.parametrize("use", [lambda e: cluster_embeddings(e, 1), linkage_from_embeddings])
def test_bad_embeddings(use: object) -> None:
    assert callable(use)
    for shape in [(3,), (0, 4), (4, 0)]:
        with pytest.raises(OptionError, match=r"\(n, dim\) with no empty side\. Got \("):
            use(np.zeros(shape))
    with pytest.raises(OptionError, match=r"embeddings must be finite"):
        use(np.array([[0.0, np.nan]]))

"""Link, advise and cut."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.clusters import MOST_IN_PAIRS, check_pairs, group
from flawsort.clusters.large_ward import tree
from flawsort.clusters.ward import cut
from flawsort.core.errors import OptionError
from flawsort.embeddings.method import CLUSTERERS
from helpers.bags import blobs

SIZES = [12, 9, 6]


def some() -> tuple[np.ndarray, np.ndarray]:
    points = blobs(SIZES).astype(np.float32)
    return points, np.random.default_rng(1).permutation(len(points))


def test_the_place_of_images_numbers_no_group() -> None:
    """Equal sizes: a number says nothing of the names of files."""
    points = blobs([4, 4, 4, 4]).astype(np.float32)
    order = np.random.default_rng(1).permutation(16)
    first = group(points, order, 4).labels
    for seed in range(6):
        moved = np.random.default_rng(seed).permutation(16)
        again = group(points[moved], np.argsort(moved)[order], 4).labels
        np.testing.assert_array_equal(again, first[moved])


def test_groups_are_those_of_the_tree() -> None:
    points, order = some()
    found = group(points, order, 3)
    expected = np.empty(len(points), np.int64)
    expected[order] = cut(tree(points[order]), 3)
    np.testing.assert_array_equal(found.labels, expected)
    assert np.bincount(found.labels).tolist() == SIZES
    np.testing.assert_array_equal(found.labels, cut(found.linkage, 3))
    assert found.n_clusters == 3
    assert group(points, order, "auto").n_clusters == found.advice.k


@pytest.mark.parametrize("clusterer", CLUSTERERS)
@pytest.mark.parametrize("given", [False, True])
def test_only_what_holds_all_pairs_is_refused(clusterer: str, given: bool) -> None:
    check_pairs(MOST_IN_PAIRS, clusterer, given=given)
    if given:
        with pytest.raises(OptionError, match=r"^distance must be 'embeddings' for more than 10,0"):
            check_pairs(MOST_IN_PAIRS + 1, clusterer, given=True)
    elif clusterer in ("ward", "kmeans", "gmm"):
        check_pairs(MOST_IN_PAIRS + 1, clusterer, given=False)
    else:
        said = r"^clusterer must be 'ward', 'kmeans' or 'gmm' for more than 10,000 images: the"
        with pytest.raises(OptionError, match=said):
            check_pairs(MOST_IN_PAIRS + 1, clusterer, given=False)

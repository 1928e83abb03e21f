"""Link, advise, cut, and respect known groups."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort import AnomalyClusterer, Bags
from flawsort.clusters import group
from flawsort.clusters.large_ward import tree
from flawsort.clusters.ward import cut
from flawsort.core.records import ImageSet
from flawsort.images.inputs import groups_of
from helpers.bags import blobs

SIZES = [12, 9, 6]


def some() -> tuple[np.ndarray, np.ndarray]:
    points = blobs(SIZES).astype(np.float32)
    return points, np.random.default_rng(1).permutation(len(points))


def test_groups_are_those_of_the_tree() -> None:
    points, order = some()
    found = group(points, order, 3)
    expected = np.empty(len(points), np.int64)
    expected[order] = cut(tree(points[order]), 3)
    np.testing.assert_array_equal(found.labels, expected)
    assert np.bincount(found.labels).tolist() == SIZES
    np.testing.assert_array_equal(found.labels, cut(found.linkage, 3))
    assert (found.n_clusters, found.notes) == (3, ())
    assert group(points, order, "auto").n_clusters == found.advice.k


@pytest.mark.parametrize("known_groups", [None, np.full(27, -1)])
def test_no_known_group(known_groups: np.ndarray | None) -> None:
    points, order = some()
    found = group(points, order, 3, known_groups=known_groups)
    np.testing.assert_array_equal(found.linkage, group(points, order, 3).linkage)


def test_known_groups_are_kept() -> None:
    points, order = some()
    known_groups = np.full(27, -1)
    known_groups[[0, 13]] = 7  # of two blobs
    known_groups[[1, 2]] = 4  # and one of those kept apart from it
    found = group(points, order, 4, known_groups=known_groups)
    assert found.labels[0] == found.labels[13] != found.labels[1] == found.labels[2]
    assert found.notes == ()
    few = group(points, order, 2, known_groups=np.where(np.arange(27) < 5, np.arange(27), -1))
    assert few.n_clusters == len(set(few.labels)) == 5
    assert len(set(few.labels[:5])) == 5
    assert few.notes[0].startswith("Made 5 groups instead of 2: reviewers of the earlier run kept")


def test_known_groups_by_content() -> None:
    images = ImageSet(("a", "b", "c"), (np.zeros((1, 1)),) * 3, ("1f", "2e", "1f"))
    assert groups_of(images, {"1f": 5, "9d": 2}).tolist() == [5, -1, 5]


def test_an_estimator_that_is_told() -> None:
    rng = np.random.default_rng(0)
    patches = rng.normal(size=(12, 16, 8))
    patches[:6, :3, 0] += 9
    patches[6:, :3, 1] += 9
    patches /= np.linalg.norm(patches, axis=2, keepdims=True)
    bags = Bags(patches.astype(np.float32), (4, 4))
    free = AnomalyClusterer(n_clusters=2, method="paper").fit(bags)
    digests = free.images_.digests
    assert free.labels_[0] != free.labels_[7]
    told = AnomalyClusterer(n_clusters=2, method="paper")
    told.fit(bags, known_groups={digests[0]: 0, digests[7]: 0, digests[1]: 1})
    assert told.labels_[0] == told.labels_[7] != told.labels_[1]
    assert told.warnings_ == free.warnings_
    more = AnomalyClusterer(n_clusters=2, method="paper").fit(
        bags, known_groups=dict(zip(digests[:3], range(3), strict=True))
    )
    assert more.n_clusters_ == 3
    assert "Made 3 groups instead of 2: " in more.warnings_[-1]

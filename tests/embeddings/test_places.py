"""The most unusual place of each image, and of images of several batches."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort import Bags, Method
from flawsort.core.records import Bools, Ints
from flawsort.embeddings.places import find_places, hottest_boxes, join_places, patch_boxes
from flawsort.embeddings.regions import Outlines
from flawsort.fitting.comparing import known_good
from flawsort.fitting.fit import DescribedSet, describe_set
from flawsort.fitting.memory import Sizes
from flawsort.fitting.options import FitOptions
from flawsort.fitting.runner import LocalRunner
from flawsort.scores.engines import CpuEngine
from helpers.bags import flawed_patches
from helpers.described import held

GRID = (4, 5)
# Two regions of the first image, none of the second, one of the third.
OUTLINES = Outlines.of(
    [(0, 0.9, np.array([6, 7, 11])), (0, 0.5, np.array([19])), (2, 0.3, np.array([0]))]
)
SCORES = np.zeros((3, 20))
SCORES[0, 7], SCORES[0, 19], SCORES[1, 13], SCORES[2, 0], SCORES[1, 4] = 0.9, 0.5, 0.2, 0.3, 0.1


def told(images: Ints, boxes: Ints, hot: Bools | None) -> np.ndarray:
    """A Match that tells what it was asked: the image and the upper left corner."""
    assert hot is None or hot.shape == (2, 20)
    return np.column_stack([images, boxes[:, :2]])


def test_boxes_of_regions_in_patches() -> None:
    assert patch_boxes(OUTLINES, GRID).tolist() == [[1, 1, 3, 3], [3, 4, 4, 5], [0, 0, 1, 1]]
    assert patch_boxes(Outlines.of([]), GRID).shape == (0, 4)


def test_the_hottest_region_or_the_hottest_patch() -> None:
    boxes, first = hottest_boxes(SCORES, None, OUTLINES, GRID)
    assert boxes.tolist() == [[1, 1, 3, 3], [2, 3, 3, 4], [0, 0, 1, 1]]
    assert first.tolist() == [0, -1, 2]
    valid = np.ones((3, 20), bool)
    valid[1, 13] = False
    assert hottest_boxes(SCORES, valid, OUTLINES, GRID)[0][1].tolist() == [0, 4, 1, 5]


def test_every_region_is_matched_and_every_image() -> None:
    found = find_places(SCORES, None, OUTLINES, GRID, told, np.zeros((2, 20), bool))
    assert found.of_regions.tolist() == [[0, 1, 1], [0, 3, 4], [2, 0, 0]]
    assert found.matches.tolist() == [[0, 1, 1], [1, 2, 3], [2, 0, 0]]
    both = join_places([found, found]).take([3, 1], [5, 0])
    assert both.matches.tolist() == [[0, 1, 1], [1, 2, 3]]
    assert both.boxes.tolist() == [[1, 1, 3, 3], [2, 3, 3, 4]]
    assert both.of_regions.tolist() == [[2, 0, 0], [0, 1, 1]]


def described(bags: Bags, normals: Bags | None, *, streamed: bool) -> DescribedSet:
    """A set in memory, or five images at a time."""
    options = FitOptions(Method(), CpuEngine(), sizes=Sizes(batch_images=5))
    known = None
    if normals is not None:
        known = known_good(held(normals), len(bags), options, whole=True)
    source = held(bags)
    return describe_set(source, known, options, LocalRunner(source) if streamed else None)


def test_a_streamed_set_finds_the_places_that_it_finds_in_memory() -> None:
    bags = Bags(flawed_patches([1] * 10 + [2] * 10 + [0] * 4, seed=1), (6, 6))
    normals = Bags(flawed_patches([0] * 9, seed=2), (6, 6))
    whole, parts = (described(bags, normals, streamed=way) for way in (False, True))
    assert whole.gallery == parts.gallery == held(normals).images.digests
    assert whole.described.places is not None
    assert parts.described.places is not None
    for name in ("boxes", "matches", "of_regions"):
        values = getattr(whole.described.places, name)
        np.testing.assert_array_equal(getattr(parts.described.places, name), values)
    assert (whole.described.places.matches[:, 0] >= 0).all()
    assert len(whole.described.places.of_regions) == len(whole.described.outlines) > 20


@pytest.mark.parametrize("streamed", [False, True])
def test_among_peers_no_image_matches_itself(streamed: bool) -> None:
    bags = Bags(flawed_patches([1] * 10 + [2] * 10 + [0] * 4, seed=1), (6, 6))
    found = described(bags, None, streamed=streamed)
    assert sorted(found.gallery) == sorted(held(bags).images.digests)
    assert found.described.places is not None
    own = [found.gallery[image] for image in found.described.places.matches[:, 0]]
    assert all(one != other for one, other in zip(own, found.images.digests, strict=True))


@pytest.mark.parametrize("streamed", [False, True])
def test_peers_that_are_flawed_there_are_no_match(streamed: bool) -> None:
    """The two flawed images are alike in all else, too."""
    patches = flawed_patches([0] * 20, seed=3).reshape(20, 6, 6, 12)
    patches[1] = patches[0]
    patches[:2, 2:4, 2:4] = -patches[0, 0, 0]
    found = described(Bags(patches.reshape(20, 36, 12), (6, 6)), None, streamed=streamed)
    assert found.described.places is not None
    assert found.described.places.boxes[:2].tolist() == [[2, 2, 4, 4]] * 2
    names = [found.gallery[image] for image in found.described.places.matches[:2, 0]]
    assert all(int(name.split()[1]) >= 2 for name in names)

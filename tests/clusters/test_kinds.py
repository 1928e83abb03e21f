"""All kinds that an image shows: regions sorted, kinds gathered, groups that look normal."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.clusters.assign import Groups
from flawsort.clusters.kinds import find_plain_groups, kinds_of_images, sort_regions
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE
from flawsort.embeddings.regions import Outlines
from helpers.bags import blobs

SIZES = [20, 15, 10]


def groups() -> Groups:
    return Groups.of(blobs(SIZES), np.repeat(np.arange(3), SIZES))


def outlines(images: list[int]) -> Outlines:
    """Regions of one patch, each another one, hotter than the next."""
    found = [(image, 9.0 - n, np.array([n, n + 20])) for n, image in enumerate(images)]
    return Outlines.of(found)


# ---- sort_regions ----


def test_regions_go_to_the_group_that_they_are_like() -> None:
    found, middles = groups(), 8 * np.eye(3, 6)
    embeddings = np.stack([middles[2], middles[0], -middles[1], middles[1]]).astype(np.float32)
    given = outlines([0, 0, 1, 3])
    regions = sort_regions(given, embeddings, found, np.arange(4))
    assert len(regions) == 4
    assert regions.labels.tolist() == [2, 0, -1, 1]
    single = found.assign(embeddings)
    np.testing.assert_array_equal(regions.nearest, single.nearest)
    np.testing.assert_array_equal(regions.confidence, single.confidence)
    assert (regions.confidence > 0).tolist() == [True, True, False, True]
    np.testing.assert_array_equal(regions.embeddings, embeddings)
    for field in ("images", "peaks", "cells", "ends"):
        np.testing.assert_array_equal(getattr(regions.outlines, field), getattr(given, field))


def test_copies_have_the_regions_of_their_content() -> None:
    middles = 8 * np.eye(3, 6)
    embeddings = np.stack([middles[2], middles[0], -middles[1], middles[1]]).astype(np.float32)
    given = outlines([0, 0, 1, 3])
    rows = [3, 0, 2, 0, 1]  # of five images; the third has a content without regions
    regions = sort_regions(given, embeddings, groups(), np.array(rows))
    chosen = [3, 0, 1, 0, 1, 2]
    assert regions.outlines.images.tolist() == [0, 1, 1, 3, 3, 4]
    assert regions.labels.tolist() == [1, 2, 0, 2, 0, -1]
    np.testing.assert_array_equal(regions.nearest, groups().assign(embeddings).nearest[chosen])
    np.testing.assert_array_equal(regions.embeddings, embeddings[chosen])
    np.testing.assert_array_equal(regions.outlines.peaks, given.peaks[chosen])
    for place, region in enumerate(chosen):
        np.testing.assert_array_equal(regions.outlines[place], given[region])


def test_no_regions_at_all() -> None:
    none = sort_regions(Outlines.of([]), np.empty((0, 6), np.float32), groups(), np.arange(4))
    assert len(none) == len(none.outlines) == len(none.confidence) == 0
    assert none.embeddings.shape == (0, 6)


# ---- kinds_of_images ----


def kinds(labels: list[int], regions: list[tuple[int, int]], normal: set[int] | None = None) -> str:
    """As text. regions: image and group of each."""
    images, of = np.array(regions, np.int64).reshape(-1, 2).T
    found = kinds_of_images(np.array(labels), images, of, frozenset(normal or ()))
    return " ".join("+".join(map(str, one)) for one in found)


def test_its_own_group_comes_first_then_the_others_from_the_hottest_region_on() -> None:
    assert kinds([0, 1, 2], [(0, 2), (0, 1), (2, 0)]) == "0+2+1 1 2+0"


def test_a_kind_is_told_once() -> None:
    assert kinds([0, 1], [(0, 0), (0, 1), (0, 0), (0, 1), (1, 1)]) == "0+1 1"


def test_a_region_like_no_image_is_no_kind() -> None:
    assert kinds([0, 1], [(0, -1), (1, 0), (1, -1)]) == "0 1+0"
    # but an image that is not known may have regions that are.
    assert kinds([-1, -1], [(0, 1), (0, -1)]) == "-1+1 -1"


def test_a_region_is_not_like_a_group_that_looks_normal() -> None:
    assert kinds([0, 1, 2], [(0, 1), (1, 2), (2, 1), (2, 0)], {1}) == "0 1+2 2+0"


def test_images_without_regions_have_their_group() -> None:
    assert kinds([1, 0, 1], []) == "1 0 1"
    assert kinds([], []) == ""


def test_kinds_are_plain_numbers() -> None:
    found = kinds_of_images(np.array([0]), np.array([0]), np.array([1]), frozenset())
    assert found == ((0, 1),)
    assert all(type(one) is int for one in found[0])


# ---- find_plain_groups ----


def test_nothing_is_known_to_be_normal_without_normals() -> None:
    assert find_plain_groups(None, np.array([0, 1]), np.array([0, 1])) == frozenset()


@pytest.mark.parametrize("n_standing_out", [0, 1, 2, 3, 4])
def test_in_a_plain_group_nothing_stands_out(n_standing_out: int) -> None:
    labels = np.array([0, 0, 0, 0, 3, 3])
    images = np.repeat(np.arange(n_standing_out), 2)  # two regions each
    found = find_plain_groups(None, labels, np.append(images, [4, 5]))
    assert found == (frozenset({0}) if n_standing_out < 2 else frozenset())
    assert find_plain_groups(np.zeros(6, bool), labels, np.append(images, [4, 5])) == found


@pytest.mark.parametrize("warm", [0, 1, 2])
def test_nearly_all_images_of_a_normal_group_look_normal(warm: int) -> None:
    labels = np.array([0] * 3 + [2] * 10)
    looks_normal = np.array([False, True, False] + [True] * 10)
    looks_normal[3 : 3 + warm] = False
    normal = (10 - warm) / 10 >= NORMAL_GROUP_SHARE
    assert normal == (warm < 2)
    found = find_plain_groups(looks_normal, labels, np.arange(13))
    assert found == (frozenset({2}) if normal else frozenset())
    assert find_plain_groups(looks_normal, labels.tolist(), np.arange(13)) == found


def test_groups_that_look_normal_are_plain_numbers() -> None:
    looks_normal = np.array([False, True, True, False])
    found = find_plain_groups(looks_normal, np.array([0, 1, 2, 3]), np.arange(4))
    assert found == {1, 2}
    assert all(type(group) is int for group in found)


# ---- groups of a large set ----


def test_a_part_of_a_large_set_says_what_is_known() -> None:
    points, labels = blobs(SIZES), np.repeat(np.arange(3), SIZES)
    whole = Groups.of(points, labels)
    for most, step in ((45, 1), (44, 2), (23, 2), (22, 3), (15, 3)):
        part = Groups.of(points, labels, most=most)
        assert len(part.fitted) <= most
        np.testing.assert_array_equal(part.fitted, points[::step])
        # The groups themselves are those of all images.
        np.testing.assert_array_equal(part.middles, whole.middles)
        np.testing.assert_array_equal(part.margins, whole.margins)
        assert part.limit == Groups.of(points[::step], labels[::step]).limit

"""Regions of score maps: against a plain flood, hand-made landscapes, and what describes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.regions import (
    EDGE,
    MOST_OF_AN_IMAGE,
    SADDLE,
    SUMMIT,
    Outlines,
    RegionFeatures,
    find_regions,
    join_regions,
    mask_cells,
    mask_text,
    region_scores,
    region_weights,
    regions_of_images,
)

Array = NDArray[Any]

HEAT = HeatScale(0.0, 1.0)  # scores are heat
SCALE = HeatScale(0.3, 1.7)
GRIDS = [(1, 1), (1, 12), (7, 1), (2, 2), (4, 6), (8, 5), (7, 9)]


# ---- plain answers ----


def around(cell: tuple[int, int], grid: tuple[int, int]) -> list[tuple[int, int]]:
    y, x = cell
    return [
        (y + down, x + across)
        for down in (-1, 0, 1)
        for across in (-1, 0, 1)
        if (down, across) != (0, 0) and 0 <= y + down < grid[0] and 0 <= x + across < grid[1]
    ]


def from_the_top(heat: Array) -> list[tuple[int, int]]:
    """The warm cells of a map, the hottest first, of equal ones the first."""
    warm = [(y, x) for y, x in np.ndindex(heat.shape) if heat[y, x] > 0]
    return sorted(warm, key=lambda cell: -heat[cell])


def flooded(heat: Array) -> list[list[int]]:
    """The cells of each region by a flood from the top, every merger painted over at once."""
    painted = np.full(heat.shape, -1)
    tops: list[float] = []
    for cell in from_the_top(heat):
        touched = sorted({int(painted[near]) for near in around(cell, heat.shape)} - {-1})
        if not touched:
            painted[cell] = len(tops)
            tops.append(heat[cell])
            continue
        painted[cell] = touched[0]
        for lower in touched[1:]:
            if heat[cell] >= SADDLE * tops[lower]:
                painted[painted == lower] = touched[0]
    found = []
    for region, top in enumerate(tops):
        cells = np.flatnonzero((painted == region) & (heat >= EDGE * top)).tolist()
        if top >= SUMMIT and (painted == region).any():
            found.append(cells)
    return found


def standing_summits(heat: Array) -> list[int]:
    """The cells from which every way to an earlier one descends below a share of them: no flood,
    just a walk from each cell."""
    order = from_the_top(heat)
    found = []
    for rank, summit in enumerate(order):
        if heat[summit] < SUMMIT:
            continue
        reached, ahead = {summit}, [summit]
        while ahead:
            for near in around(ahead.pop(), heat.shape):
                if near not in reached and heat[near] > 0 and heat[near] >= SADDLE * heat[summit]:
                    reached.add(near)
                    ahead.append(near)
        if not reached & set(order[:rank]):
            found.append(summit[0] * heat.shape[1] + summit[1])
    return found


def random_scores(grid: tuple[int, int], kind: str, n_images: int = 6) -> Array:
    """(n_images, n_patches), about a third of them normal."""
    rng = np.random.default_rng([*grid, len(kind)])
    values = rng.random((n_images, *grid))
    if kind == "smooth":  # large basins
        for axis in (1, 2):
            if values.shape[axis] > 1:
                ones = (np.roll(values, 1, axis), values, np.roll(values, -1, axis))
                values = np.mean(ones, axis=0)
        values = (values - values.min()) / max(float(np.ptp(values)), 1e-9)
    if kind == "ties":
        values = np.round(values * 10) / 10
    return (values * 2).reshape(n_images, -1)


def lists(outlines: Outlines, image: int) -> list[list[int]]:
    """The cells of the regions of an image."""
    return [outlines[row].tolist() for row in np.flatnonzero(outlines.images == image)]


def one_row(*heat: float, among: list[bool] | None = None) -> list[list[int]]:
    """The regions of a map of one row."""
    only = None if among is None else np.array([among])
    return lists(find_regions(np.array([heat]), (1, len(heat)), HEAT, among=only), 0)


# ---- find_regions ----


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("kind", ["plain", "smooth", "ties"])
@pytest.mark.parametrize("grid", GRIDS)
def test_regions_are_those_of_a_plain_flood(grid: tuple[int, int], kind: str, hidden: bool) -> None:
    scores = random_scores(grid, kind)
    valid = np.random.default_rng(5).random(scores.shape) > 0.25 if hidden else None
    before = scores.copy()
    outlines = find_regions(scores, grid, SCALE, valid=valid, most=1000, rows_at_once=4)
    np.testing.assert_array_equal(scores, before)
    assert outlines.images.tolist() == sorted(outlines.images)
    for image, row in enumerate(scores):
        heat = (row - SCALE.low) / (SCALE.high - SCALE.low)
        if valid is not None:
            heat[~valid[image]] = -1
        found = lists(outlines, image)
        assert found == flooded(heat.reshape(grid))
        # np.argmax takes the first of equal ones, as the order does.
        tops = [cells[int(np.argmax(heat[cells]))] for cells in found]
        assert tops == standing_summits(heat.reshape(grid))
        own = outlines.peaks[outlines.images == image]
        np.testing.assert_array_equal(own, row[tops].astype(np.float32))
    assert len(outlines) > 0


def test_the_flood_is_worth_asking() -> None:
    """Many regions, and many summits that do not stand for themselves."""
    regions, summits = 0, 0
    for row in random_scores((7, 9), "plain"):
        heat = ((row - SCALE.low) / (SCALE.high - SCALE.low)).reshape(7, 9)
        regions += len(flooded(heat))
        summits += sum(
            all(heat[near] < heat[cell] for near in around(cell, (7, 9)))
            for cell in from_the_top(heat)
        )
    assert 5 < regions < summits - 5


def test_two_summits_with_a_valley_between() -> None:
    assert one_row(1.0, 0.6, 0.9) == [[0, 1], [2]]  # the valley is the higher one's
    assert one_row(0.9, 0.6, 1.0) == [[1, 2], [0]]  # which comes first
    assert one_row(1.0, 0.65, 0.9) == [[0, 1, 2]]
    assert one_row(1.0, SADDLE, 1.0) == [[0, 1, 2]]  # it goes down to, not below
    assert one_row(1.0, np.nextafter(SADDLE, 0), 1.0) == [[0, 1], [2]]


def test_the_share_is_one_of_the_lower_summit() -> None:
    assert one_row(0.8, 0.3, 0.4) == [[0, 1, 2]]
    assert one_row(0.8, 0.3, 0.7) == [[0, 1], [2]]


def test_a_region_is_the_upper_part_of_what_flows_to_it() -> None:
    assert one_row(1.0, EDGE, 0.3, 0.1) == [[0, 1]]
    assert one_row(1.0, np.nextafter(EDGE, 0), 0.3, 0.1) == [[0]]
    assert one_row(1.0, 0.0, 0.2, 0.08, 0.06) == [[0], [2, 3]]  # each by its own summit
    # A lower summit that is part of a higher one is measured by that.
    assert one_row(1.0, 0.3, 0.32) == [[0]]
    assert one_row(1.0, 0.3, 0.4) == [[0, 2]]


def test_a_summit_that_is_part_of_another_goes_where_that_goes() -> None:
    assert one_row(1.0, 0.5, 0.8, 0.75, 0.78) == [[0, 1], [2, 3, 4]]
    assert one_row(0.78, 0.75, 0.8, 0.74, 1.0) == [[0, 1, 2, 3, 4]]


def test_a_valley_that_goes_down_to_normal_parts_regions() -> None:
    assert one_row(1.0, 0.0, 1.0, -0.2, 0.5, 0.4, 0.0) == [[0], [2], [4, 5]]


def test_corners_touch() -> None:
    heat = np.array([[1.0, 0, 0, 0.9], [0, 0.8, 0, 0], [0, 0, 0.85, 0]])
    assert lists(find_regions(heat.reshape(1, -1), (3, 4), HEAT), 0) == [[0, 5, 10], [3]]


def test_the_end_of_a_row_is_not_next_to_the_beginning_of_another() -> None:
    heat = np.zeros((3, 4))
    heat[0, 3], heat[2, 0] = 1.0, 0.9
    heat[1, 0] = 0.8
    assert lists(find_regions(heat.reshape(1, -1), (3, 4), HEAT), 0) == [[3], [4, 8]]


def test_a_summit_counts_from_a_heat_on() -> None:
    assert one_row(SUMMIT, 0.05, 0.0) == [[0, 1]]
    assert one_row(np.nextafter(SUMMIT, 0), 0.05, 0.0) == []
    assert one_row(0.09, 0.0, 0.5, 0.0, 0.09) == [[2]]


def test_heat_beyond_the_scale_still_has_an_order() -> None:
    assert one_row(2.0, 1.2, 3.0) == [[1, 2], [0]]


def test_padding_parts_regions_and_belongs_to_none() -> None:
    scores = np.array([[1.0, 5.0, 0.9], [1.0, 0.9, 0.9], [2.0, 2.0, 2.0]])
    valid = np.array([[True, False, True], [True, True, True], [False, False, False]])
    outlines = find_regions(scores, (1, 3), HEAT, valid=valid)
    assert [lists(outlines, image) for image in range(3)] == [[[0], [2]], [[0, 1, 2]], []]
    np.testing.assert_array_equal(outlines.peaks, np.float32([1.0, 0.9, 1.0]))


def test_only_the_hottest_of_many() -> None:
    heat = np.zeros((9, 9))
    heat[::2, ::2] = np.random.default_rng(0).permutation(25).reshape(5, 5) / 30 + 0.11
    flat = heat.reshape(1, -1)
    hottest = np.argsort(-flat[0])[:25].tolist()
    assert lists(find_regions(flat, (9, 9), HEAT), 0) == [[c] for c in hottest[:MOST_OF_AN_IMAGE]]
    # Those that are left out are not counted.
    among = np.ones(flat.shape, bool)
    among[0, hottest[3:8]] = False
    kept = hottest[:3] + hottest[8:]
    found = find_regions(flat, (9, 9), HEAT, among=among)
    assert lists(found, 0) == [[cell] for cell in kept[:MOST_OF_AN_IMAGE]]


def test_a_region_needs_one_of_the_patches_among_which_it_is_sought() -> None:
    # One is enough, the region keeps its others, and what flows where does not change.
    assert one_row(1.0, 0.6, 0.9, 0.5, among=[False, True, False, False]) == [[0, 1]]
    assert one_row(1.0, 0.6, 0.9, 0.5, among=[False, False, False, True]) == [[2, 3]]
    assert one_row(1.0, 0.6, 0.9, 0.5, among=[False] * 4) == []


def test_among_is_that_of_the_image() -> None:
    scores = np.tile([1.0, 0.0, 0.5], (5, 1))
    among = np.zeros(scores.shape, bool)
    among[[1, 4], [2, 0]] = True
    outlines = find_regions(scores, (1, 3), HEAT, among=among, rows_at_once=2)
    assert outlines.images.tolist() == [1, 4]
    assert outlines.cells.tolist() == [2, 0]


def test_scores_are_measured_on_the_scale() -> None:
    scores = np.array([[3.0, 3.19, 3.21], [2.0, 5.0, 4.0]], np.float16)
    outlines = find_regions(scores, (1, 3), HeatScale(3.0, 5.0))
    assert [lists(outlines, image) for image in (0, 1)] == [[[1, 2]], [[1, 2]]]
    assert outlines.peaks.dtype == np.float32
    np.testing.assert_array_equal(outlines.peaks, scores.max(axis=1).astype(np.float32))


def test_nothing_to_find() -> None:
    for scores in (np.zeros((0, 6)), np.zeros((3, 6)), np.full((2, 6), -4.0)):
        outlines = find_regions(scores, (2, 3), HEAT)
        assert len(outlines) == 0
        assert outlines.masks(6).shape == (0, 6)
        assert outlines.boxes((2, 3)).shape == (0, 4)
        assert region_weights(scores, outlines, 1.0).shape == (0, 6)
        assert region_scores(scores, outlines, HEAT).shape == (0, 6)


# ---- what describes them ----


@pytest.fixture(scope="module")
def landscape() -> tuple[Array, Outlines]:
    """(5, 40) scores on a grid of 8 x 5, and regions of theirs; the third image has none."""
    scores = random_scores((8, 5), "plain", 5)
    scores[2] = 0.1
    outlines = find_regions(scores, (8, 5), SCALE)
    assert len(outlines) > 8
    return scores, outlines


@pytest.mark.parametrize("some", [False, True])
def test_weights_are_those_of_nothing_but_the_region(
    landscape: tuple[Array, Outlines], some: bool
) -> None:
    scores, outlines = landscape
    among = None
    if some:
        among = np.random.default_rng(1).random(scores.shape) < 0.5
        outlines = find_regions(scores, (8, 5), SCALE, among=among)
    expected = np.zeros((len(outlines), 40))
    for region, image in enumerate(outlines.images):
        cells = [c for c in outlines[region] if among is None or among[image, c]]
        shares = [np.exp(scores[image, cell] / 0.4) for cell in cells]
        expected[region, cells] = np.array(shares) / sum(shares)
    weights = region_weights(scores, outlines, 0.4, among)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    np.testing.assert_array_equal(weights > 0, expected > 0)


def test_scores_are_those_of_an_image_with_one_flaw(landscape: tuple[Array, Outlines]) -> None:
    scores, outlines = landscape
    before = scores.copy()
    alone = region_scores(scores.astype(np.float32), outlines, SCALE)
    for region, image in enumerate(outlines.images):
        for cell in range(40):
            score = float(np.float32(scores[image, cell]))
            inside = cell in outlines[region]
            assert alone[region, cell] == (score if inside else min(score, SCALE.low))
    np.testing.assert_array_equal(scores, before)
    # So the region is all that is warm.
    for region, row in enumerate(alone):
        np.testing.assert_array_equal(np.flatnonzero(row > SCALE.low), outlines[region])


# ---- masks and boxes ----


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([5], "5"),
        (range(12), "0-11"),
        ([3, 4], "3-4"),
        ([37, 38, 39, 69], "37-39 69"),
        ([0, 2, 4, 5], "0 2 4-5"),
    ],
)
def test_masks_as_text(cells: Any, text: str) -> None:
    given = np.array(list(cells), np.int32)
    assert mask_text(given) == text
    back, ends = mask_cells([text])
    assert ends.tolist() == [len(given)]
    assert back.dtype == np.int32
    np.testing.assert_array_equal(back, given)


def test_any_mask_comes_back() -> None:
    rng = np.random.default_rng(2)
    for share in (0.05, 0.5, 0.95):
        cells = np.flatnonzero(rng.random(1024) < share)
        np.testing.assert_array_equal(mask_cells([mask_text(cells)])[0], cells)


def test_several_masks_come_back_one_after_the_other() -> None:
    rng = np.random.default_rng(3)
    shares = (0.0, 0.01, 0.9, 0.0, 1.0, 0.5)
    given = [np.flatnonzero(rng.random(64) < share) for share in shares]
    cells, ends = mask_cells([mask_text(one) for one in given])
    assert (cells.dtype, ends.dtype) == (np.int32, np.int64)
    np.testing.assert_array_equal(cells, np.concatenate(given))
    assert ends.tolist() == np.cumsum([len(one) for one in given]).tolist()
    assert [one.tolist() for one in mask_cells([])] == [[], []]


def test_boxes_of_masks_that_go_around_the_end_of_a_row() -> None:
    cells, ends = mask_cells(["5-9 14", "3", "0-15", "1-2 5-6"])
    outlines = Outlines(np.arange(4), np.ones(4, np.float32), cells, ends)
    boxes = [(0, 1, 4, 4), (3, 0, 4, 1), (0, 0, 4, 4), (1, 0, 3, 2)]
    np.testing.assert_array_equal(outlines.boxes((4, 4)) * 4, boxes)
    assert Outlines.of([]).boxes((4, 4)).shape == (0, 4)


def test_masks_and_cells(landscape: tuple[Array, Outlines]) -> None:
    _, outlines = landscape
    masks = outlines.masks(40)
    assert masks.shape == (len(outlines), 40)
    for region, mask in enumerate(masks):
        np.testing.assert_array_equal(np.flatnonzero(mask), outlines[region])
    assert sum(len(outlines[region]) for region in range(len(outlines))) == len(outlines.cells)


def test_boxes() -> None:
    # On a grid of 4 rows and 5 columns.
    shapes = [[0], [19], [6, 12], list(range(20)), [4, 9, 13]]
    outlines = Outlines.of([(0, 1.0, np.array(cells)) for cells in shapes])
    assert outlines.boxes((4, 5)).tolist() == [
        [0, 0, 1 / 5, 1 / 4],
        [4 / 5, 3 / 4, 1, 1],
        [1 / 5, 1 / 4, 3 / 5, 3 / 4],
        [0, 0, 1, 1],
        [3 / 5, 0, 1, 3 / 4],
    ]


# ---- sets of regions ----


def test_take(landscape: tuple[Array, Outlines]) -> None:
    _, outlines = landscape
    chosen, images = [3, 0, 3, 7], [10, 11, 11, 40]
    taken = outlines.take(chosen, images)
    assert taken.images.tolist() == images
    np.testing.assert_array_equal(taken.peaks, outlines.peaks[chosen])
    for place, region in enumerate(chosen):
        np.testing.assert_array_equal(taken[place], outlines[region])
    for field in ("images", "peaks", "cells", "ends"):
        assert getattr(taken, field).dtype == getattr(outlines, field).dtype
    assert len(outlines.take([], [])) == 0
    with pytest.raises(ValueError, match="zip"):
        outlines.take([0, 1], [0])


def features(outlines: Outlines, seed: int) -> RegionFeatures:
    rng = np.random.default_rng(seed)
    vectors = rng.random((len(outlines), 3)).astype(np.float32)
    return RegionFeatures(outlines, vectors, rng.random((len(outlines), 2)))


def test_batches_joined_are_as_one(landscape: tuple[Array, Outlines]) -> None:
    scores, outlines = landscape
    whole = features(outlines, 0)
    parts, done = [], 0
    for first, last in ((0, 2), (2, 3), (3, 5)):  # the second batch has no regions
        part = find_regions(scores[first:last], (8, 5), SCALE)
        own = slice(done, done + len(part))
        parts.append((RegionFeatures(part, whole.vectors[own], whole.extents[own]), last - first))
        done += len(part)
    assert len(parts[1][0].outlines) == 0
    joined = join_regions(parts)
    for field in ("images", "peaks", "cells", "ends"):
        np.testing.assert_array_equal(getattr(joined.outlines, field), getattr(outlines, field))
    np.testing.assert_array_equal(joined.vectors, whole.vectors)
    np.testing.assert_array_equal(joined.extents, whole.extents)
    none = join_regions([parts[1], parts[1]])
    assert (len(none.outlines), none.vectors.shape, none.extents.shape) == (0, (0, 3), (0, 2))


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4], [2, 4, 4, 0, 2, 4, 1], [2, 2], [], [3]])
def test_regions_of_copies(landscape: tuple[Array, Outlines], rows: list[int]) -> None:
    _, outlines = landscape
    expected = [
        (region, image)
        for image, row in enumerate(rows)
        for region in range(len(outlines))
        if outlines.images[region] == row
    ]
    chosen, images = regions_of_images(outlines, np.array(rows, np.int64))
    assert list(zip(chosen.tolist(), images.tolist(), strict=True)) == expected


def test_images_without_any_region() -> None:
    chosen, images = regions_of_images(Outlines.of([]), np.array([0, 1, 0]))
    assert (len(chosen), len(images)) == (0, 0)


def test_an_image_without_its_other_regions() -> None:
    outlines = Outlines.of(
        [(0, 3.0, np.array([0, 1])), (0, 2.0, np.array([3])), (2, 1.0, np.array([2, 3]))]
    )
    kept = [np.flatnonzero(row).tolist() for row in outlines.without_others(5)]
    assert kept == [[0, 1, 2, 4], [2, 3, 4], [0, 1, 2, 3, 4]]
    assert Outlines.of([]).without_others(5).shape == (0, 5)

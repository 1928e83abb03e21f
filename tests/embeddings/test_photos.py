"""Large photos are described by their most unusual part, and are normal only if all of them is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flawsort import AnomalyClusterer, Bags, Method
from flawsort.embeddings.describer import PHOTOS_AT_ONCE
from flawsort.embeddings.heat import HeatScale, calibrate
from flawsort.embeddings.photos import most_unusual_parts
from flawsort.embeddings.weights import image_scores
from helpers.bags import same_partition
from helpers.described import fit_describer

GRID, TILE, DIM = (24, 32), (8, 8), 16
SECOND = ((12, 16), (4, 4))
METHOD = Method(mean_share=0)


def photos(kinds: list[int], *, seed: int, second: bool = False) -> Bags:
    """Bags of 24 x 32 patches, 3 x 4 tiles, all alike but for noise, with a spot of 2 x 2 patches
    of the kind anywhere; kind 0 has none."""
    rng, common = np.random.default_rng(seed), np.random.default_rng(0)
    background = common.standard_normal(DIM)
    flaws = 2 * common.standard_normal((3, DIM))
    patches = background + 0.2 * rng.standard_normal((len(kinds), *GRID, DIM))
    for bag, kind in zip(patches, kinds, strict=True):
        if kind:
            row, column = rng.integers(0, 23), rng.integers(0, 31)
            bag[row : row + 2, column : column + 2] = flaws[kind] + 0.1 * rng.standard_normal(DIM)
    first = Bags(_unit(patches).reshape(len(kinds), -1, DIM), GRID, tile=TILE)
    if not second:
        return first
    halves = patches.reshape(len(kinds), 12, 2, 16, 2, DIM).mean(axis=(2, 4))
    beside = Bags(_unit(halves).reshape(len(kinds), -1, DIM), SECOND[0], tile=SECOND[1])
    return replace(first, beside=(beside,))


def _unit(patches: np.ndarray) -> np.ndarray:
    return (patches / np.linalg.norm(patches, axis=-1, keepdims=True)).astype(np.float16)


def hot(places: dict[int, list[tuple[int, int, float]]], n: int) -> np.ndarray:
    """Scores of 0 with peaks. places: row, column and height of the peaks of each photo."""
    scores = np.zeros((n, *GRID), np.float32)
    for photo, peaks in places.items():
        for row, column, height in peaks:
            scores[photo, row, column] = height
    return scores.reshape(n, -1)


# ---- parts ----


def test_the_window_lies_around_the_peak() -> None:
    bags = photos([0] * 4, seed=1)
    scores = hot({0: [(12, 20, 5)], 1: [(0, 0, 5)], 2: [(23, 31, 5)], 3: [(12, 30, 5)]}, 4)
    parts = most_unusual_parts(bags, scores, HeatScale(1.0, 2.0), np.arange(4))
    assert parts.photos.tolist() == [0, 1, 2, 3]
    corners = [divmod(int(cells[0]), GRID[1]) for cells in parts.cells]
    assert corners == [(8, 16), (0, 0), (16, 24), (8, 24)]
    cut = parts.bags(bags)
    assert (cut.grid, cut.tile) == (TILE, None)
    whole = bags.patches[0].reshape(*GRID, DIM)
    np.testing.assert_array_equal(cut.patches[0].reshape(*TILE, DIM), whole[8:16, 16:24])


def test_a_region_elsewhere_has_a_window_of_its_own() -> None:
    bags = photos([0] * 3, seed=1)
    peaks = {0: [(4, 4, 9), (5, 6, 3), (20, 28, 5)], 2: [(10, 10, 4), (20, 20, 7)]}
    parts = most_unusual_parts(bags, hot(peaks, 3), HeatScale(1.0, 2.0), np.arange(3))
    assert parts.photos.tolist() == [0, 1, 2, 0, 2]
    assert parts.outlines.images.tolist() == [0, 0, 2, 3, 4]
    assert parts.whole_regions.images.tolist() == [0, 0, 2, 0, 2]
    for region in range(5):
        part = parts.outlines.images[region]
        cells = parts.cells[part][parts.outlines[region]]
        np.testing.assert_array_equal(cells, parts.whole_regions[region])


def test_rows_of_a_larger_set_and_a_region_larger_than_a_tile() -> None:
    bags = photos([0] * 3, seed=1)
    scores = np.zeros((3, *GRID), np.float32)
    scores[2, 3:20, 5] = 4
    scores[2, 15, 5] = 5
    parts = most_unusual_parts(bags, scores.reshape(3, -1), HeatScale(1.0, 2.0), np.array([1, 2]))
    assert (parts.rows.tolist(), parts.photos.tolist()) == ([1, 2], [0, 1, 1])
    assert len(parts.whole_regions[0]) == 17
    assert 0 < len(parts.outlines[0]) <= 8  # as much as the window shows
    assert 15 * GRID[1] + 5 in parts.cells[parts.outlines.images[0]]


def test_padding_is_never_the_most_unusual() -> None:
    valid = np.ones((1, GRID[0] * GRID[1]), bool)
    valid[0, : 4 * GRID[1]] = False
    bags = replace(photos([0], seed=1), valid=valid)
    scores = hot({0: [(1, 1, 9), (20, 20, 5)]}, 1)
    parts = most_unusual_parts(bags, scores, HeatScale(1.0, 2.0), np.array([0]))
    assert divmod(int(parts.cells[0][0]), GRID[1]) == (16, 16)


# ---- the whole way ----


@pytest.mark.parametrize("second", [False, True])
def test_a_photo_is_described_as_its_window_alone(second: bool) -> None:
    kinds = [1, 2, 0] * 4
    bags, normals = (photos(k, seed=s, second=second) for k, s in ((kinds, 3), ([0] * 10, 4)))
    assert len(bags) > PHOTOS_AT_ONCE
    describer, found, _ = fit_describer(bags, normals, METHOD)
    assert describer.reference is not None
    compared = describer.reference.compare(bags)
    parts = most_unusual_parts(bags, compared.scores, describer.heat, np.arange(len(bags)))
    small = replace(describer, looks=tuple(replace(look, tile=None) for look in describer.looks))
    alone = small.join(small.pool(parts.bags(bags), parts.comparison(compared, bags)))
    n = len(bags)
    np.testing.assert_allclose(found.embeddings, alone.embeddings[:n], rtol=1e-4, atol=1e-5)
    assert found.weights.shape == found.scores.shape == (n, GRID[0] * GRID[1])
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, rtol=1e-5)
    for row, kind in enumerate(kinds):
        if kind:  # all weight lies near the spot
            assert np.count_nonzero(found.weights[row]) <= TILE[0] * TILE[1]
            assert row in found.outlines.images
    assert (np.diff(found.outlines.images) >= 0).all()


def test_a_small_flaw_makes_a_large_photo_unusual() -> None:
    kinds = [0] * 10 + [1] * 5 + [2] * 5
    bags, normals = photos(kinds, seed=5), photos([0] * 12, seed=6)
    model = AnomalyClusterer(n_clusters=3, method=METHOD).fit(bags, normal=normals)
    assert model.looks_normal_ is not None
    assert model.looks_normal_[:10].mean() >= 0.8
    assert not model.looks_normal_[10:].any()
    assert same_partition(model.labels_, np.array(kinds))
    assert model.image_scores_[10:].min() > model.image_scores_[:10].max()
    order = np.random.default_rng(0).permutation(len(kinds))
    new = photos([kinds[row] for row in order], seed=7)
    expected = model.labels_[[kinds.index(kinds[row]) for row in order]]
    np.testing.assert_array_equal(model.assign(new)[1].nearest, expected)


@pytest.mark.parametrize("with_normals", [True, False])
def test_an_older_run_takes_a_photo_as_one_image(with_normals: bool) -> None:
    bags, normals = (
        photos([1, 2, 0] * 4, seed=3, second=True),
        photos([0] * 10, seed=4, second=True),
    )
    first, second = (replace(one, tile=None) for one in bags.views)
    plain = replace(first, beside=(second,))
    good = [replace(one, tile=None) for one in normals.views] if with_normals else None
    known = None if good is None else replace(good[0], beside=(good[1],))
    describer, _, _ = fit_describer(plain, known, METHOD)
    new = photos([1, 2, 0], seed=8, second=True)
    first, second = (replace(one, tile=None) for one in new.views)
    expected = describer.describe(replace(first, beside=(second,)))
    np.testing.assert_array_equal(describer.describe(new).embeddings, expected.embeddings)


def test_a_small_flaw_is_found_among_peers() -> None:
    kinds = [0] * 10 + [1] * 5 + [2] * 5
    model = AnomalyClusterer(n_clusters=3, method=METHOD).fit(photos(kinds, seed=5))
    assert same_partition(model.labels_, np.array(kinds))


# ---- scores and heat ----


def test_the_score_of_a_photo_takes_as_many_patches_as_that_of_a_tile() -> None:
    scores = np.random.default_rng(0).standard_normal((5, 40_000))
    top = -np.sort(-scores, axis=1)
    np.testing.assert_allclose(image_scores(scores), top[:, :400].mean(axis=1))
    np.testing.assert_allclose(image_scores(scores, tile=(20, 20)), top[:, :4].mean(axis=1))
    assert image_scores(scores, tile=(2, 2)).tolist() == top[:, 0].tolist()


def test_a_normal_photo_has_no_more_hot_patches_than_a_normal_image() -> None:
    normal = np.random.default_rng(0).standard_normal((20, 10_000))
    scale = calibrate(normal, None, normal, tile=(10, 10))
    assert scale.low == pytest.approx(np.percentile(normal, 99.99))
    assert (normal > scale.low).sum(axis=1).mean() == pytest.approx(1, abs=0.01)
    assert scale.normal_below is not None
    assert scale.normal_below > calibrate(normal, None, normal).normal_below  # type: ignore[operator]

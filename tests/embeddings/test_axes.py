"""The parts of an embedding side by side: mean patches, shares of the spread, several views."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.grids import shared_out
from flawsort.core.records import Bags
from flawsort.embeddings.axes import (
    MEAN_SHARE,
    PEER_MEAN_SHARES,
    UNEXPLAINED,
    Axes,
    MeanPatch,
    mean_patches,
    share_among_peers,
)
from flawsort.embeddings.describer import Describer, _moved
from flawsort.embeddings.extent import N_EXTENTS, extents
from flawsort.embeddings.features import Described
from flawsort.embeddings.method import SHORTEN, Method, resolve
from flawsort.embeddings.pooling import RESIDUAL_POWER, SHRINKAGE
from flawsort.scores.reference import MIN_CALIBRATION
from helpers.bags import Array, flawed_patches, same_partition, unit_vectors
from helpers.described import fit_describer
from helpers.oracles import naive_expected, naive_softmax
from helpers.part_batches import assert_same_values

KINDS = [0, 1, 2, 0, 0, 2, 1, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]


def spread(values: Array) -> float:
    """The root of the summed variances."""
    return float(np.sqrt(np.asarray(values, np.float64).var(axis=0).sum()))


def two_views(kinds: list[int], *, masked: bool = False, copied: int = 0) -> Bags:
    """6 x 6 patches, and beside them 4 x 4 of another backbone that sees the same kinds.

    masked: the lower third of every image is padding, a copy of one patch.
    """
    views = []
    for seed, side in ((3, 6), (1, 4)):  # padding hides no flaw wholly with these seeds
        patches = flawed_patches(kinds, n_patches=side * side, seed=seed)
        valid = None
        if masked:
            valid = np.ones((len(kinds), side * side), bool)
            valid[:, (side - side // 3) * side :] = False
            for bag, inside in zip(patches, valid, strict=True):
                bag[~inside] = bag[copied]
        views.append(Bags(patches, (side, side), valid))
    return dataclasses.replace(views[0], beside=(views[1],))


def normals() -> Bags:
    return two_views([0] * 9)


# ---- mean patches ----


@pytest.mark.parametrize("masked", [False, True])
def test_mean_patches(masked: bool) -> None:
    bags = two_views(KINDS, masked=masked).views[0]
    expected = []
    for image in range(len(bags)):
        counted = [
            patch.astype(np.float64)
            for place, patch in enumerate(bags.patches[image])
            if bags.valid is None or bags.valid[image, place]
        ]
        expected.append(sum(counted) / len(counted))
    np.testing.assert_allclose(mean_patches(bags), expected, atol=1e-6)


def test_mean_patches_are_measured_from_the_centre() -> None:
    bags = two_views(KINDS).views[0]
    centre = unit_vectors(12, seed=4)
    found = MeanPatch(centre).measure(mean_patches(bags))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, mean_patches(bags) - centre, atol=1e-6)


def test_mean_patches_of_normals_are_whitened() -> None:
    bags = Bags(unit_vectors(30, 9, 5, seed=2), (3, 3))
    fitted = MeanPatch.of_normals(bags)
    assert fitted is not None
    assert fitted.whitening is not None
    means = mean_patches(bags).astype(np.float64)
    np.testing.assert_allclose(fitted.centre, means.mean(axis=0), atol=1e-6)
    variances, directions = np.linalg.eigh(np.cov(means.T))
    usual = variances.mean()
    gains = np.sqrt((1 + SHRINKAGE) * usual / (variances + SHRINKAGE * usual))
    expected = (means - means.mean(axis=0)) @ directions * gains
    np.testing.assert_allclose(fitted.measure(mean_patches(bags)) @ directions, expected, atol=1e-5)


def test_too_few_normals_are_not_whitened() -> None:
    bags = Bags(unit_vectors(MIN_CALIBRATION, 9, 5), (3, 3))
    assert MeanPatch.of_normals(bags) is not None
    assert MeanPatch.of_normals(bags.take(range(MIN_CALIBRATION - 1))) is None


def test_equal_normals_leave_every_direction_alone() -> None:
    bags = Bags(np.repeat(unit_vectors(1, 9, 5), 10, axis=0), (3, 3))
    fitted = MeanPatch.of_normals(bags)
    assert fitted is not None
    np.testing.assert_array_equal(fitted.whitening, np.eye(5))  # type: ignore[arg-type]


# ---- shares of the spread ----


def parts(n: int = 40, seed: int = 0) -> tuple[Array, Array]:
    """Vectors in blocks of 3, 4 and 3, 4 columns, each on a scale of its own, and extents."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, 14)) * np.repeat([1, 20, 0.1, 300], [3, 4, 3, 4])
    scores = rng.standard_normal((n, 36))
    return vectors.astype(np.float32), extents(scores, (6, 6), 1.0)


@pytest.mark.parametrize("share", [0.0, 0.45, 1.0, 2.0])
def test_mean_patches_have_their_share_of_the_spread(share: float) -> None:
    vectors, found = parts()
    axes = Axes.fit(vectors, found, pooled=(3, 4), means=(3, 4), spread=1.0, mean_share=share)
    joined = axes.join(vectors, found)
    assert (joined.shape, joined.dtype) == ((40, 14 + N_EXTENTS), np.float32)
    pooled = [spread(joined[:, :3]), spread(joined[:, 3:7])]
    np.testing.assert_allclose(pooled, 1, rtol=1e-5)  # each view counts the same
    rest = spread(np.column_stack([joined[:, :7], joined[:, 14:]]))
    means = [spread(joined[:, 7:10]), spread(joined[:, 10:14])]
    assert means[0] == pytest.approx(means[1], rel=1e-5)
    assert spread(joined[:, 7:14]) == pytest.approx(share * rest, rel=1e-5, abs=1e-9)


def test_one_view_stays_in_its_own_units() -> None:
    vectors, found = parts()
    axes = Axes.fit(
        vectors[:, :7], found, pooled=(3,), means=(4,), spread=1.0, mean_share=MEAN_SHARE
    )
    joined = axes.join(vectors[:, :7], found)
    np.testing.assert_array_equal(joined[:, :3], vectors[:, :3])
    rest = spread(np.column_stack([joined[:, :3], joined[:, 7:]]))
    assert spread(joined[:, 3:7]) == pytest.approx(MEAN_SHARE * rest, rel=1e-5)


def test_without_mean_patches() -> None:
    vectors, found = parts()
    axes = Axes.fit(vectors[:, :3], found, pooled=(3,), means=(), spread=1.0, mean_share=0.0)
    assert (axes.blocks, axes.scales) == ((3,), (1.0,))
    joined = axes.join(vectors[:, :3], found)
    np.testing.assert_array_equal(joined[:, :3], vectors[:, :3])


def test_a_part_that_does_not_vary_stays_finite() -> None:
    vectors, found = parts()
    vectors[:, 3:10] = 1.0
    axes = Axes.fit(vectors, found, pooled=(3, 4), means=(3, 4), spread=1.0, mean_share=0.45)
    assert np.isfinite(axes.join(vectors, found)).all()
    joined = axes.join(vectors, found)
    np.testing.assert_allclose(np.ptp(joined[:, 3:10], axis=0), 0, atol=1e-3)


def test_axes_do_not_depend_on_the_order() -> None:
    vectors, found = parts()
    order = np.random.default_rng(1).permutation(len(vectors))
    given = {"pooled": (3, 4), "means": (3, 4), "spread": 1.0, "mean_share": 0.45}
    one = Axes.fit(vectors, found, **given)  # type: ignore[arg-type]
    other = Axes.fit(vectors[order], found[order], **given)  # type: ignore[arg-type]
    np.testing.assert_allclose(one.scales, other.scales, rtol=1e-12)
    np.testing.assert_allclose(one.extents.scales, other.extents.scales, rtol=1e-12)


def test_vectors_are_not_modified() -> None:
    vectors, found = parts()
    before = vectors.copy(), found.copy()
    axes = Axes.fit(vectors, found, pooled=(3, 4), means=(3, 4), spread=1.0, mean_share=0.45)
    axes.join(vectors, found)
    np.testing.assert_array_equal(vectors, before[0])
    np.testing.assert_array_equal(found, before[1])


# ---- lengths ----


def lengthened(embeddings: Array, axes: Axes | None) -> Array:
    """Embeddings as they were before they were shortened."""
    assert axes is not None
    short = axes.shortening
    assert short is not None
    lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1, keepdims=True) / short.length
    return np.asarray(embeddings * lengths ** (short.power / (1 - short.power)) + short.centre)


@pytest.mark.parametrize("power", [SHORTEN, 1.0])
def test_long_embeddings_are_shortened(power: float) -> None:
    vectors, found = parts()
    vectors[7] *= 30
    given = {"pooled": (3, 4), "means": (3, 4), "spread": 1.0, "mean_share": 0.45}
    axes = Axes.fit(vectors, found, shorten=power, **given)  # type: ignore[arg-type]
    full = Axes.fit(vectors, found, **given).join(vectors, found).astype(np.float64)
    apart = full - full.mean(axis=0)
    lengths = [float(np.sqrt(sum(value**2 for value in row))) for row in apart]
    usual = float(np.sqrt(np.mean(np.square(lengths))))
    expected = [row * (usual / length) ** power for row, length in zip(apart, lengths, strict=True)]
    np.testing.assert_allclose(axes.join(vectors, found), expected, rtol=1e-4, atol=1e-4)
    # New images are measured from the mean of the set that was fitted.
    np.testing.assert_allclose(
        axes.join(vectors[:3], found[:3]), expected[:3], rtol=1e-4, atol=1e-4
    )


def test_equal_embeddings_stay_equal_and_finite() -> None:
    vectors, found = np.ones((5, 7), np.float32), np.ones((5, N_EXTENTS))
    axes = Axes.fit(
        vectors, found, pooled=(3, 4), means=(), spread=1.0, mean_share=0.0, shorten=0.5
    )
    np.testing.assert_allclose(axes.join(vectors, found), 0, atol=1e-6)
    moved = axes.join(vectors + np.float32(0.5), found)
    assert np.isfinite(moved).all()
    np.testing.assert_array_equal(moved, np.tile(moved[:1], (5, 1)))


# ---- the share among peers ----


def between(bags: Bags) -> float:
    """The root of the mean squared distance between random patches of different images."""
    squares = [
        2 - 2 * float(one.astype(np.float64) @ other.astype(np.float64))
        for i in range(len(bags))
        for j in range(len(bags))
        if i != j
        for one in bags.valid_patches(i)
        for other in bags.valid_patches(j)
    ]
    return float(np.sqrt(np.mean(squares)))


@pytest.mark.parametrize("masked", [False, True])
def test_the_share_grows_with_what_is_left_unexplained(masked: bool) -> None:
    bags = two_views([0, 1, 0, 2], masked=masked).views[0]
    apart = between(bags)
    low, high = UNEXPLAINED
    for part, expected in (
        (0.1, PEER_MEAN_SHARES[0]),
        (low, PEER_MEAN_SHARES[0]),
        ((low + high) / 2, sum(PEER_MEAN_SHARES) / 2),
        (high, PEER_MEAN_SHARES[1]),
        (2.0, PEER_MEAN_SHARES[1]),
    ):
        scores = np.full((4, 36), part * apart, np.float32)
        if bags.valid is not None:
            scores[~bags.valid] = 77
        assert share_among_peers([bags], [scores]) == pytest.approx(expected, abs=1e-3)


def test_views_are_averaged_for_the_share() -> None:
    views = two_views([0, 1, 0, 2]).views
    low, high = UNEXPLAINED
    scores = [
        np.full(one.patches.shape[:2], part * between(one))
        for one, part in zip(views, (low - 0.03, high + 0.03), strict=True)
    ]
    middle = sum(PEER_MEAN_SHARES) / 2
    assert share_among_peers(views, scores) == pytest.approx(middle, abs=1e-3)


def test_the_share_of_a_set_that_tells_nothing() -> None:
    one = Bags(unit_vectors(1, 4, 5), (2, 2))
    assert share_among_peers([one], [np.ones((1, 4))]) == PEER_MEAN_SHARES[0]
    same = Bags(np.tile(np.eye(5, dtype=np.float32)[0], (3, 4, 1)), (2, 2))
    assert share_among_peers([same], [np.zeros((3, 4))]) == PEER_MEAN_SHARES[0]


def test_the_share_does_not_depend_on_the_order() -> None:
    bags = two_views([0, 1, 0, 2]).views[0]
    scores = 0.63 * between(bags) + 0.01 * np.random.default_rng(0).random((4, 36))
    order = [2, 0, 3, 1]
    one, other = (
        share_among_peers([bags], [scores]),
        share_among_peers([bags.take(order)], [scores[order]]),
    )
    assert PEER_MEAN_SHARES[0] < one < PEER_MEAN_SHARES[1]
    assert one == pytest.approx(other, abs=1e-6)


# ---- weights on the grid of another view ----


def fine(n: int) -> Bags:
    return Bags(unit_vectors(n, 36, 3), (6, 6))


@pytest.mark.parametrize("side", [3, 4, 9])
@pytest.mark.parametrize("masked", [False, True])
def test_moved_weights_sum_to_1(side: int, masked: bool) -> None:
    weights = np.random.default_rng(0).random((5, 36)).astype(np.float32)
    weights[:, ::3] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    valid = None
    if masked:
        valid = np.random.default_rng(1).random((5, side * side)) > 0.4
        valid[:, 0] = True
    view = Bags(unit_vectors(5, side * side, 3), (side, side), valid)
    before = weights.copy()
    moved = _moved(weights, fine(len(weights)), view)
    np.testing.assert_array_equal(weights, before)
    assert (moved.shape, moved.dtype) == ((5, side * side), np.float32)
    np.testing.assert_allclose(moved.sum(axis=1), 1, rtol=1e-5)
    assert (moved >= 0).all()
    if valid is not None:
        assert not moved[~valid].any()


def test_weights_move_to_where_they_were() -> None:
    corner = np.zeros((2, 36), np.float32)
    corner[0, 0] = corner[1, 35] = 1
    view = Bags(unit_vectors(2, 9, 3), (3, 3))
    np.testing.assert_allclose(
        _moved(corner, fine(len(corner)), view), np.eye(9)[[0, 8]], atol=1e-6
    )
    rows = _moved(corner[[1, 1, 0]], fine(2), view, np.array([1, 1, 0]))
    np.testing.assert_allclose(rows, np.eye(9)[[8, 8, 0]], atol=1e-6)


def test_weights_in_padding_of_another_view_are_spread_evenly() -> None:
    """Where a view shows only padding, all that it shows counts the same."""
    corner = np.zeros((1, 36), np.float32)
    corner[0, 35] = 1
    for side in (3, 6):
        valid = np.ones((1, side * side), bool)
        valid[0, side * side // 2 :] = False
        view = Bags(unit_vectors(1, side * side, 3), (side, side), valid)
        moved = _moved(corner, fine(len(corner)), view)
        n_valid = int(valid.sum())
        np.testing.assert_allclose(moved, valid / n_valid, atol=1e-6)


def test_the_same_weights_on_the_same_grid() -> None:
    weights = np.random.default_rng(0).random((2, 9)).astype(np.float32)
    view = Bags(unit_vectors(2, 9, 3), (3, 3))
    both = dataclasses.replace(view, beside=(Bags(unit_vectors(2, 9, 4), (3, 3)),))
    assert _moved(weights, both, both.views[0]) is weights
    before = weights.copy()
    moved = _moved(weights, both, both.views[1])
    np.testing.assert_allclose(moved, weights / weights.sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(weights, before)


# ---- a set in two views ----


def fit(bags: Bags, known: Bags | None, **method: object) -> tuple[Describer, Described]:
    describer, described, _ = fit_describer(bags, known, Method(**method))  # type: ignore[arg-type]
    return describer, described


@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_two_views_are_described_together(with_normals: bool, masked: bool) -> None:
    bags = two_views(KINDS, masked=masked)
    known = two_views([0] * 9, masked=masked) if with_normals else None
    describer, described = fit(bags, known)
    assert [(look.grid, look.dim) for look in describer.looks] == [((6, 6), 12), ((4, 4), 12)]
    assert describer.shapes == bags.shapes
    assert described.scores.shape == described.weights.shape == (20, 36)
    assert described.embeddings.shape == (20, 4 * 12 + N_EXTENTS)
    np.testing.assert_allclose(described.weights.sum(axis=1), 1, rtol=1e-5)
    assert described.region_embeddings.shape == (len(described.outlines), 4 * 12 + N_EXTENTS)
    assert np.isfinite(described.embeddings).all()
    assert np.isfinite(described.region_embeddings).all()
    assert same_partition(cut(ward_linkage(described.embeddings), 3), np.array(KINDS))
    assert describer.axes is not None
    full = lengthened(described.embeddings, describer.axes)
    blocks = np.split(full, [12, 24, 36, 48], axis=1)
    assert spread(blocks[0]) == pytest.approx(1, rel=1e-4)
    assert spread(blocks[1]) == pytest.approx(1, rel=1e-4)
    rest = spread(np.column_stack([*blocks[:2], blocks[4]]))
    means = spread(np.column_stack(blocks[2:4]))
    assert means == pytest.approx(describer.mean_share * rest, rel=1e-4)
    if with_normals:
        assert describer.mean_share == MEAN_SHARE


@pytest.mark.parametrize("with_normals", [False, True])
def test_new_bags_are_described_as_those_of_the_set(with_normals: bool) -> None:
    bags = two_views(KINDS)
    describer, described = fit(bags, normals() if with_normals else None, n_peers="all")
    rows = np.arange(len(bags))
    again = describer.describe(bags, self_rows=None if with_normals else rows)
    np.testing.assert_allclose(again.scores, described.scores, atol=1e-3)
    np.testing.assert_allclose(again.embeddings, described.embeddings, atol=1e-3)
    few = describer.describe(bags.take([4, 1]), self_rows=None if with_normals else rows[[4, 1]])
    np.testing.assert_allclose(few.embeddings, described.embeddings[[4, 1]], atol=1e-3)


@pytest.mark.parametrize("with_normals", [False, True])
def test_the_order_of_images_changes_nothing(with_normals: bool) -> None:
    bags, known = two_views(KINDS), normals() if with_normals else None
    order = np.random.default_rng(3).permutation(len(bags))
    one, straight = fit(bags, known)
    other, permuted = fit(bags.take(order), known)
    assert one.mean_share == pytest.approx(other.mean_share, abs=1e-6)
    np.testing.assert_allclose(permuted.scores, straight.scores[order], atol=1e-3)
    np.testing.assert_allclose(permuted.embeddings, straight.embeddings[order], atol=2e-3)


@pytest.mark.parametrize("with_normals", [False, True])
def test_fits_repeat_and_leave_bags_alone(with_normals: bool) -> None:
    bags, known = two_views(KINDS, masked=True), normals() if with_normals else None
    before = [one.patches.copy() for one in bags.views]
    assert_same_values(fit(bags, known)[1], fit(bags, known)[1])
    for one, patches in zip(bags.views, before, strict=True):
        np.testing.assert_array_equal(one.patches, patches)


@pytest.mark.parametrize("with_normals", [False, True])
def test_padding_of_neither_view_has_a_say(with_normals: bool) -> None:
    known = normals() if with_normals else None
    described = [fit(two_views(KINDS, masked=True, copied=c), known)[1] for c in (0, 7)]
    for one in described:
        assert not one.weights[:, 24:].any()
    np.testing.assert_allclose(described[0].embeddings, described[1].embeddings, atol=1e-3)
    np.testing.assert_array_equal(described[0].outlines.images, described[1].outlines.images)
    np.testing.assert_allclose(
        described[0].region_embeddings, described[1].region_embeddings, atol=1e-3
    )


def test_a_flaw_of_one_view_alone_is_found_and_described() -> None:
    """The second backbone sees what the first is blind to."""
    seen = two_views(KINDS)
    blind = Bags(flawed_patches([0] * len(KINDS), n_patches=36, seed=0), (6, 6))
    bags = dataclasses.replace(blind, beside=seen.beside)
    _, described = fit(bags, normals())
    flawed = np.array(KINDS) > 0
    highest = described.scores.max(axis=1)
    assert highest[flawed].min() > highest[~flawed].max()
    assert set(described.outlines.images.tolist()) >= set(np.flatnonzero(flawed).tolist())
    _, alone = fit(blind, normals().views[0])
    assert alone.scores.max(axis=1)[flawed].min() < alone.scores.max(axis=1)[~flawed].max()


@pytest.mark.parametrize("masked", [False, True])
def test_images_and_regions_are_pooled_in_the_second_view(masked: bool) -> None:
    """Against plain residuals, with the weights of the first view moved by area."""
    bags, known = two_views(KINDS, masked=masked), normals()
    describer, described = fit(bags, known, mean_share=0.0)
    second, look = bags.views[1], describer.looks[1]
    assert describer.axes is not None
    assert look.whitening is not None
    residual = second.patches - naive_expected(second.patches, known.views[1].patches)

    def pooled(image: int, weights: Array) -> Array:
        moved = shared_out(weights[None], (6, 6), (4, 4))[0]
        inside = np.arange(16)
        if second.valid is not None:
            inside = np.flatnonzero(second.valid[image])
            moved = np.where(second.valid[image], moved, 0)
        moved = moved / moved.sum()
        heaviest = np.argsort(-moved, kind="stable")[:4]  # a quarter of the patches
        evenly = inside[np.rint(np.linspace(0, len(inside) - 1, 16)).astype(int)]
        kept = moved[heaviest] / moved[heaviest].sum()
        flaw = kept @ residual[image, heaviest] - residual[image, evenly].mean(axis=0)
        flaw = flaw @ look.whitening
        return np.asarray(flaw * np.linalg.norm(flaw) ** (RESIDUAL_POWER - 1))

    full = lengthened(described.embeddings, describer.axes)
    of_regions = lengthened(described.region_embeddings, describer.axes)
    found = full[:, 12:24] / describer.axes.scales[1]
    wanted = [pooled(image, described.weights[image]) for image in range(20)]
    np.testing.assert_allclose(found, wanted, atol=5e-3)
    checked = 0
    for region, image in enumerate(described.outlines.images):
        cells = described.outlines[region]
        cells = cells[described.weights[image, cells] > 0]
        inside = np.zeros(36, np.float32)
        inside[cells] = naive_softmax(described.scores[[image]][:, cells], describer.temperature)[0]
        of_image = _moved(described.weights[[image]], bags.take([image]), second.take([image]))
        chosen = np.argsort(-of_image[0], kind="stable")[:4]
        moved = shared_out(inside[None], (6, 6), (4, 4))[0]
        if set(np.flatnonzero(moved)) <= set(chosen):  # nothing of it is left out
            got = of_regions[region, 12:24] / describer.axes.scales[1]
            np.testing.assert_allclose(got, pooled(int(image), inside), atol=5e-3)
            checked += 1
    assert checked


@pytest.mark.parametrize("with_normals", [False, True])
def test_one_view_without_calibration_is_the_plain_method(with_normals: bool) -> None:
    """No mean patch, no calibration: pooled residuals and extents, as in the first version."""
    bags = two_views(KINDS).views[0]
    known = normals().views[0] if with_normals else None
    describer, described = fit(bags, known, calibrated=False, mean_share=0.0)
    assert described.embeddings.shape == (20, 12 + N_EXTENTS)
    assert (describer.mean_share, describer.looks[0].mean) == (0.0, None)
    assert describer.axes is not None
    assert describer.axes.scales == (1.0,)
    reference = describer.reference
    assert reference is not None
    rows = None if with_normals else np.arange(20)
    plain = reference.compare(bags, self_rows=rows)
    np.testing.assert_allclose(described.scores, plain.scores, atol=1e-4)
    assert plain.views == ()
    features = describer.features(bags, self_rows=rows)
    full = lengthened(described.embeddings, describer.axes)
    np.testing.assert_allclose(full[:, :12], features.vectors, atol=1e-4)
    found = extents(described.scores, (6, 6), describer.spread)
    np.testing.assert_allclose(full[:, 12:], describer.axes.extents.measure(found), atol=1e-4)


def test_calibration_of_one_view_changes_its_scores_alone() -> None:
    bags, known = two_views(KINDS).views[0], normals().views[0]
    plain, raw = fit(bags, known, calibrated=False, mean_share=0.0)
    describer, described = fit(bags, known, mean_share=0.0)
    assert described.embeddings.shape == raw.embeddings.shape
    reference = describer.reference
    usual = reference.views[0].usual  # type: ignore[union-attr]
    np.testing.assert_allclose(
        described.scores, (raw.scores - usual.places) / usual.spread, atol=1e-3
    )
    np.testing.assert_array_equal(plain.looks[0].shape, describer.looks[0].shape)


def test_the_paper_has_no_mean_patches() -> None:
    bags = two_views(KINDS).views[0]
    describer, described, _ = fit_describer(bags, None, resolve("paper"))
    assert (describer.axes, describer.mean_share, describer.looks[0].mean) == (None, 0.0, None)
    assert described.embeddings.shape == (20, 12)


def test_average_pooling_has_no_share_of_mean_patches() -> None:
    describer, described = fit(two_views(KINDS), normals(), pooling="average")
    assert (describer.mean_share, describer.looks[0].mean) == (0.0, None)
    assert described.embeddings.shape == (20, 24)


def test_uniform_weights_in_two_views() -> None:
    bags = two_views(KINDS, masked=True)
    describer, described = fit(bags, None, weights="uniform", pooling="average")
    expected = np.concatenate([mean_patches(one) for one in bags.views], axis=1)
    np.testing.assert_allclose(described.embeddings, expected, atol=1e-6)
    assert (describer.reference, len(described.outlines)) == (None, 0)
    assert describer.shapes == bags.shapes

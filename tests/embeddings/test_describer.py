"""Bags to embeddings, end to end and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.records import Bags
from flawsort.embeddings.axes import MEAN_SHARE
from flawsort.embeddings.describer import fit_state
from flawsort.embeddings.extent import N_EXTENTS, ExtentAxes, extents
from flawsort.embeddings.heat import HeatScale, calibrate
from flawsort.embeddings.method import EXPECTED_NORMALS, SHORTEN, TEMPERATURE, Method, resolve
from flawsort.embeddings.pooling import (
    ORDINARY_SHARE,
    POOLINGS,
    RESIDUAL_POWER,
    SHRINKAGE,
    ResidualPooling,
    keep_heaviest,
    residual_whitening,
)
from flawsort.embeddings.regions import find_regions, regions_of_images
from flawsort.scores import reference as references
from flawsort.scores.engines import CpuEngine, CpuLimits
from flawsort.scores.reference import NormalReference, PeerReference, compare_with_peers
from flawsort.scores.usual import calibrate_normals, usual_of_normals
from helpers.bags import Array, flawed_patches, same_partition
from helpers.described import check_heat, fit_describer
from helpers.oracles import (
    naive_expected,
    naive_nearest,
    naive_peer_distances,
    naive_smoothed,
    naive_softmax,
)
from helpers.part_batches import assert_same_values

# No kind has so many images that a flaw has the nearest fifth of its peers among them.
KINDS = [0, 1, 2, 0, 0, 2, 1, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]
METHODS = [
    pytest.param(resolve("default"), id="default"),
    pytest.param(resolve("paper"), id="paper"),
]


def flawed_bags(*, n_patches: int = 36, seed: int = 0) -> Bags:
    return Bags(flawed_patches(KINDS, n_patches=n_patches, seed=seed), (6, n_patches // 6))


def normal_bags(*, n_patches: int = 36) -> Bags:
    return Bags(flawed_patches([0] * 9 + [1], n_patches=n_patches)[:9], (6, n_patches // 6))


def inverse_root(covariance: Array) -> Array:
    usual = np.trace(covariance) / len(covariance)
    shrunk = covariance / usual + SHRINKAGE * np.eye(len(covariance))
    variances, directions = np.linalg.eigh(shrunk / (1 + SHRINKAGE))
    return directions @ np.diag(variances**-0.5) @ directions.T


def naive_usual(normals: Bags) -> tuple[Array, float]:
    """What to subtract at each place, and the unit: from normals, each against the others."""
    left_out = np.array(
        [
            naive_nearest(bag, np.delete(normals.patches, row, axis=0).reshape(-1, normals.dim))[0]
            for row, bag in enumerate(normals.patches)
        ]
    )
    smooth = naive_smoothed(left_out.mean(axis=0), normals.grid)
    rest = left_out - smooth
    return smooth + rest.mean(), float(rest.std())


def spread_of(values: Array) -> float:
    """The length of the standard deviations of all columns."""
    return float(np.sqrt(values.var(axis=0).sum()))


# ---- against loops ----


def test_the_paper_s_method() -> None:
    bags = Bags(flawed_patches(KINDS[:6], n_patches=12), (3, 4))
    fitted, described, how = fit_describer(bags, None, resolve("paper"))
    scores = np.array(
        [
            naive_peer_distances(bag, np.delete(bags.patches, image, axis=0)).mean(axis=0)
            for image, bag in enumerate(bags.patches)
        ]
    )
    temperature = 0.3 * scores.std()
    weights = naive_softmax(scores, temperature)
    embeddings = np.einsum("im,imd->id", weights, bags.patches.astype(np.float64))
    assert how == "compared with each other (NumPy on the CPU, float32)"
    assert fitted.temperature == pytest.approx(temperature, rel=1e-3)
    assert fitted.spread == pytest.approx(scores.std(), rel=1e-3)
    assert fitted.axes is None
    assert fitted.looks[0].whitening is fitted.looks[0].mean is None
    np.testing.assert_allclose(described.scores, scores, atol=1e-3)
    np.testing.assert_allclose(described.weights, weights, atol=2e-3)
    np.testing.assert_allclose(described.embeddings, embeddings, atol=2e-3)


def test_the_default_method_with_normals() -> None:
    bags, normals = flawed_bags(n_patches=30), normal_bags(n_patches=30)
    fitted, described, how = fit_describer(bags, normals, Method())
    bank = normals.patches.reshape(-1, bags.dim)
    distances, _ = naive_nearest(bags.patches.reshape(-1, bags.dim), bank)
    places, unit = naive_usual(normals)
    calibrated = (distances.reshape(described.scores.shape) - places) / unit
    np.testing.assert_allclose(described.scores, calibrated, atol=1e-3 / unit)
    weights = keep_heaviest(naive_softmax(described.scores, TEMPERATURE * described.scores.std()))
    np.testing.assert_allclose(described.weights, weights, atol=1e-5)
    residual = bags.patches - naive_expected(bags.patches, normals.patches)
    pooled = np.einsum("im,imd->id", weights, residual) - residual.mean(axis=1)
    quiet = described.scores <= np.quantile(described.scores, ORDINARY_SHARE)
    whitening = inverse_root(np.cov(residual[quiet].T, bias=True))
    (look,) = fitted.looks
    assert look.whitening is not None
    np.testing.assert_allclose(look.whitening, whitening, atol=1e-3)
    pooled = pooled @ whitening
    pooled *= np.linalg.norm(pooled, axis=1, keepdims=True) ** (RESIDUAL_POWER - 1)
    assert fitted.spread == pytest.approx(described.scores.std(), rel=1e-5)
    found = extents(described.scores, (6, 5), fitted.spread)
    axes = ExtentAxes.fit(spread_of(pooled), found, fitted.spread)
    assert fitted.axes is not None
    np.testing.assert_allclose(fitted.axes.extents.centres, axes.centres, rtol=1e-6)
    np.testing.assert_allclose(fitted.axes.extents.scales, axes.scales, rtol=1e-2)
    of_normals = normals.patches.astype(np.float64).mean(axis=1)
    means = bags.patches.astype(np.float64).mean(axis=1) - of_normals.mean(axis=0)
    means = means @ inverse_root(np.cov(of_normals.T))
    measured = axes.measure(found)
    means *= MEAN_SHARE * np.hypot(spread_of(pooled), spread_of(measured)) / spread_of(means)
    assert fitted.mean_share == MEAN_SHARE
    assert fitted.axes.blocks == (bags.dim, bags.dim)
    assert described.embeddings.shape == (20, 2 * bags.dim + N_EXTENTS)
    expected = np.concatenate([pooled, means, measured], axis=1)
    expected -= expected.mean(axis=0)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    expected *= (spread_of(expected) / lengths) ** SHORTEN
    np.testing.assert_allclose(described.embeddings, expected, atol=4e-3)
    assert "270 known-good patches" in how


def test_every_patch_alike() -> None:
    bags = flawed_bags()
    method = Method(weights="uniform", pooling="average")
    fitted, described, how = fit_describer(bags, normal_bags(), method)
    assert how == "every patch alike"
    np.testing.assert_allclose(described.weights, 1 / 36, rtol=1e-6)
    np.testing.assert_allclose(
        described.embeddings, bags.patches.astype(np.float64).mean(axis=1), atol=1e-6
    )
    np.testing.assert_array_equal(fitted.describe(bags).embeddings, described.embeddings)
    assert not described.scores.any()
    assert fitted.looks[0].whitening is fitted.axes is fitted.reference is None
    # Nothing stands out where nothing was compared.
    assert len(described.outlines) == 0
    assert described.region_embeddings.shape == (0, bags.dim)
    assert described.region_embeddings.dtype == np.float32
    assert fitted.heat == HeatScale(0.0, 1.0)


# ---- regions ----


def busy_bags(*, masked: bool) -> Bags:
    """The flawed bags, but for two without a flaw: the first has seven spots, the fourth a wide
    one. Patches that do not count are at the left, of every other bag also at the right."""
    bags = flawed_bags()
    patches = bags.patches.copy()
    flaw = bags.patches[1, 31] + 0.05 * np.random.default_rng(1).standard_normal((13, 12))
    patches[0, [1, 3, 5, 13, 15, 17, 27]] = flaw[:7]
    patches[3, [8, 9, 10, 14, 15, 16]] = flaw[7:]
    patches /= np.linalg.norm(patches.astype(np.float32), axis=2, keepdims=True)
    if not masked:
        return Bags(patches, bags.grid)
    valid = np.ones((len(KINDS), 6, 6), bool)
    valid[:, :, 0] = valid[::2, :, -1] = False
    inside = valid.reshape(len(KINDS), -1)
    for bag, counts in zip(patches, inside, strict=True):
        bag[~counts] = bag[3]  # a flaw in the first
    return Bags(patches, bags.grid, inside)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_the_scale_of_the_heat_is_that_of_the_set(
    method: Method, with_normals: bool, masked: bool
) -> None:
    bags = busy_bags(masked=masked)
    normals = normal_bags() if with_normals else None
    fitted, described, _ = fit_describer(bags, normals, method)
    known = None
    if normals is not None:
        known = NormalReference.from_bags(normals, exact=method.exact).scores_of_normals(normals)
        assert known is not None
        if method.calibrated:
            usual = usual_of_normals(known, normals.grid)
            known = calibrate_normals(known, normals.grid, usual)
    check_heat(fitted.heat, calibrate(described.scores, bags.valid, known), rel=1e-3)
    if with_normals:
        of_the_set = calibrate(described.scores, bags.valid)
        assert fitted.heat.low != pytest.approx(of_the_set.low, rel=1e-2)


@pytest.mark.parametrize("masked", [False, True])
def test_regions_of_averages(masked: bool) -> None:
    bags = busy_bags(masked=masked)
    fitted, described, _ = fit_describer(bags, None, resolve("paper"))
    scores, outlines = described.scores, described.outlines
    found = find_regions(scores, bags.grid, fitted.heat, valid=bags.valid)
    assert_same_values(outlines, found)
    assert {0, 2, 3, 5, 10} <= set(outlines.images.tolist())
    assert described.region_embeddings.shape == (len(outlines), bags.dim)
    for region in range(len(outlines)):
        image, cells = outlines.images[region], outlines[region]
        weights = naive_softmax(scores[[image]][:, cells], fitted.temperature)[0]
        expected = weights @ bags.patches[image, cells].astype(np.float64)
        np.testing.assert_allclose(described.region_embeddings[region], expected, atol=1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_regions_of_residuals(masked: bool) -> None:
    bags = busy_bags(masked=masked)
    normals = normal_bags()
    fitted, described, _ = fit_describer(bags, normals, Method())
    scores, outlines = described.scores, described.outlines
    among = described.weights > 0
    found = find_regions(scores, bags.grid, fitted.heat, among=among, valid=bags.valid)
    assert_same_values(outlines, found)
    # Regions that none of the heaviest patches is in cannot be described; others reach farther.
    assert len(outlines) < len(find_regions(scores, bags.grid, fitted.heat, valid=bags.valid))
    assert not among[outlines.images][outlines.masks(36)].all()
    assert np.isin(np.flatnonzero(KINDS), outlines.images).all()
    assert fitted.axes is not None
    (look,) = fitted.looks
    assert look.whitening is not None
    assert look.mean is not None
    residual = bags.patches - naive_expected(bags.patches, normals.patches)
    for region in range(len(outlines)):
        image = outlines.images[region]
        cells = [cell for cell in outlines[region] if among[image, cell]]
        flaw = (
            naive_softmax(scores[[image]][:, cells], fitted.temperature)[0] @ residual[image, cells]
        )
        inside = np.arange(36) if bags.valid is None else np.flatnonzero(bags.valid[image])
        evenly = inside[np.rint(np.linspace(0, len(inside) - 1, 36)).astype(int)]
        pooled = (flaw - residual[image, evenly].mean(axis=0)) @ look.whitening
        pooled *= np.linalg.norm(pooled) ** (RESIDUAL_POWER - 1)
        # As if nothing else of the image stood out.
        alone = np.minimum(scores[image], fitted.heat.low)
        alone[outlines[region]] = scores[image, outlines[region]]
        valid = None if bags.valid is None else bags.valid[[image]]
        extent = extents(alone[None], bags.grid, fitted.spread, valid)
        others = [one for one in np.flatnonzero(outlines.images == image) if one != region]
        rest = set(inside) - {cell for other in others for cell in outlines[other]}
        mean = bags.patches[image, sorted(rest)].astype(np.float64).mean(axis=0) - look.mean.centre
        vector = np.concatenate([pooled, mean @ look.mean.whitening])
        expected = fitted.axes.join(vector[None], extent)[0]
        np.testing.assert_allclose(described.region_embeddings[region], expected, atol=2e-3)


@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_permuting_images_permutes_their_regions(method: Method, with_normals: bool) -> None:
    bags, normals = flawed_bags(), normal_bags() if with_normals else None
    order = np.random.default_rng(3).permutation(len(bags))
    _, straight, _ = fit_describer(bags, normals, method)
    _, permuted, _ = fit_describer(bags.take(order), normals, method)
    chosen, images = regions_of_images(straight.outlines, order)
    np.testing.assert_array_equal(permuted.outlines.images, images)
    for place, region in enumerate(chosen):
        np.testing.assert_array_equal(permuted.outlines[place], straight.outlines[region])
    np.testing.assert_allclose(
        permuted.region_embeddings, straight.region_embeddings[chosen], atol=1e-4
    )


# ---- what is settled by the set ----


@pytest.mark.parametrize("with_normals", [False, True])
def test_the_first_images_of_the_order_are_measured(
    monkeypatch: pytest.MonkeyPatch, with_normals: bool
) -> None:
    monkeypatch.setitem(POOLINGS, "residual", ResidualPooling(ordinary_images=7))
    bags, method = flawed_bags(), Method(n_peers=9, calibrated=False)
    reference: NormalReference | PeerReference
    if with_normals:
        normals = normal_bags()
        reference = NormalReference.from_bags(normals, expected_normals=EXPECTED_NORMALS)
        comparison = reference.compare(bags)
    else:
        comparison, reference = compare_with_peers(
            bags, n_peers=9, nearest_share=method.nearest_share
        )
    order = np.random.default_rng(6).permutation(len(bags))
    heat = HeatScale(0.2, 0.7)
    settled = fit_state(method, reference, bags, comparison, order, heat=heat)
    scores = comparison.scores
    measured = residual_whitening(bags, scores, comparison.expected, order[:7])
    np.testing.assert_array_equal(settled.looks[0].whitening, measured)
    assert not np.array_equal(
        measured, residual_whitening(bags, scores, comparison.expected, order)
    )
    assert settled.spread == pytest.approx(scores.std(), rel=1e-5)
    assert settled.temperature == method.temperature_for(settled.spread)
    assert (settled.method, settled.reference, settled.axes) == (method, reference, None)
    assert settled.heat is heat
    average = fit_state(Method(pooling="average"), reference, bags, comparison, order, heat=heat)
    assert average.looks[0].whitening is None
    # So it is in a fit, in an order that the seed decides.
    normals = normal_bags() if with_normals else None
    order = np.random.default_rng(0).permutation(len(bags))
    fitted, _, _ = fit_describer(bags, normals, method, random_state=0)
    again = fit_state(method, reference, bags, comparison, order, heat=heat)
    np.testing.assert_array_equal(fitted.looks[0].whitening, again.looks[0].whitening)
    other, _, _ = fit_describer(bags, normals, method, random_state=1)
    assert not np.array_equal(other.looks[0].whitening, fitted.looks[0].whitening)


# ---- what it is for ----


@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_images_are_grouped_by_their_flaws(method: Method, with_normals: bool) -> None:
    normals = normal_bags() if with_normals else None
    _, described, _ = fit_describer(flawed_bags(), normals, method)
    assert same_partition(cut(ward_linkage(described.embeddings), 3), np.array(KINDS))


@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_permuting_images_permutes_the_rows_alone(method: Method, with_normals: bool) -> None:
    bags = flawed_bags()
    normals = normal_bags() if with_normals else None
    order = np.random.default_rng(3).permutation(len(bags))
    _, straight, _ = fit_describer(bags, normals, method)
    _, permuted, _ = fit_describer(bags.take(order), normals, method)
    # Matrix products round a place by where it lies in them, and scores are in standard deviations.
    np.testing.assert_allclose(permuted.scores, straight.scores[order], atol=1e-3)
    np.testing.assert_allclose(permuted.weights, straight.weights[order], atol=1e-3)
    np.testing.assert_allclose(permuted.embeddings, straight.embeddings[order], atol=1e-3)
    groups = [cut(ward_linkage(one.embeddings), 3) for one in (straight, permuted)]
    assert same_partition(groups[0][order], groups[1])


def test_permuting_patches_changes_nothing_of_the_papers_embeddings() -> None:
    bags = flawed_bags()
    order = np.random.default_rng(4).permutation(bags.n_patches)
    _, straight, _ = fit_describer(bags, None, resolve("paper"))
    _, permuted, _ = fit_describer(Bags(bags.patches[:, order], bags.grid), None, resolve("paper"))
    np.testing.assert_allclose(permuted.embeddings, straight.embeddings, atol=1e-4)
    np.testing.assert_allclose(permuted.weights, straight.weights[:, order], atol=1e-4)


@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_bags_are_not_modified_and_runs_repeat(method: Method, with_normals: bool) -> None:
    bags, normals = flawed_bags(), normal_bags() if with_normals else None
    before = bags.patches.copy()
    _, first, _ = fit_describer(bags, normals, method)
    _, second, _ = fit_describer(bags, normals, method)
    np.testing.assert_array_equal(bags.patches, before)
    assert_same_values(first, second)


@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_patches_that_do_not_count_have_no_say(method: Method, with_normals: bool) -> None:
    patches = flawed_patches(KINDS, n_patches=36)
    valid = np.ones(patches.shape[:2], bool)
    valid[:, 30:] = False
    normals = normal_bags() if with_normals else None
    described = []
    for copied in (0, 7):  # whichever valid patch they hold a copy of
        patches[:, 30:] = patches[:, [copied]]
        _, one, _ = fit_describer(Bags(patches.copy(), (6, 6), valid), normals, method)
        described.append(one)
        assert not one.weights[:, 30:].any()
        np.testing.assert_allclose(one.weights.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(described[0].embeddings, described[1].embeddings, atol=1e-5)


def test_duplicates_and_two_images_stay_finite() -> None:
    one = flawed_patches([1], n_patches=16)
    for method in ("default", "paper"):
        _, described, _ = fit_describer(
            Bags(np.repeat(one, 4, axis=0), (4, 4)), None, resolve(method)
        )
        assert np.isfinite(described.embeddings).all()
        np.testing.assert_allclose(np.ptp(described.embeddings, axis=0), 0, atol=1e-6)
        _, two, _ = fit_describer(Bags(flawed_patches([1, 2]), (6, 6)), None, resolve(method))
        assert np.isfinite(two.embeddings).all()


# ---- new bags ----


@pytest.mark.parametrize("method", METHODS)
def test_the_same_bags_are_described_as_they_were(method: Method) -> None:
    bags, normals = flawed_bags(), normal_bags()
    fitted, described, _ = fit_describer(bags, normals, method)
    assert_same_values(fitted.describe(bags), described)
    assert (fitted.looks[0].whitening is None) == (method.pooling == "average")
    one = fitted.describe(bags.take([4]))
    np.testing.assert_allclose(one.embeddings, described.embeddings[4:5], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_new_bags_lie_with_the_fitted_ones_of_their_kind(method: Method) -> None:
    bags = flawed_bags()
    new = Bags(flawed_patches(KINDS + KINDS)[20:], bags.grid)
    bags = Bags(flawed_patches(KINDS + KINDS)[:20], bags.grid)
    fitted, described, _ = fit_describer(bags, None, method)
    placed = fitted.describe(new).embeddings
    far = np.linalg.norm(placed[:, None] - described.embeddings[None], axis=2)
    np.testing.assert_array_equal(np.array(KINDS)[far.argmin(axis=1)], KINDS)


@pytest.mark.parametrize("exact", [True, False])
def test_new_bags_are_searched_as_the_method_says(
    monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    # Decided by size it would be the other way round.
    engine = CpuEngine(limits=CpuLimits(exact_flop=0.0 if exact else np.inf))
    bags, normals = flawed_bags(), normal_bags()
    fitted, _, how = fit_describer(bags, normals, Method(exact=exact), engine=engine)
    assert ("approximately" in how) is not exact
    seen: list[bool | None] = []
    compare = references.NormalReference.compare

    def watched(self: references.NormalReference, *args: object, **options: object) -> object:
        comparison = compare(self, *args, **options)  # type: ignore[arg-type]
        seen.append("approximately" not in comparison.how)
        return comparison

    monkeypatch.setattr(references.NormalReference, "compare", watched)
    fitted.describe(bags)
    assert seen == [exact]

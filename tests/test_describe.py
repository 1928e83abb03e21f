"""Bags to embeddings, end to end and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from bags import Array, flawed_patches, naive_nearest, naive_peer_distances, same_partition
from flawsort import describe, references
from flawsort.cluster import cut, ward_linkage
from flawsort.describe import fit_describer, settle
from flawsort.engines import cpu
from flawsort.extent import N_EXTENTS, ExtentAxes, extents
from flawsort.pooling import (
    ORDINARY_SHARE,
    RESIDUAL_POWER,
    SHRINKAGE,
    keep_heaviest,
    residual_whitening,
)
from flawsort.presets import Method, resolve
from flawsort.records import Bags
from flawsort.references import NormalReference, PeerReference, compare_with_peers

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


def softmax(scores: Array, temperature: float) -> Array:
    powers = np.exp(scores.astype(np.float64) / temperature)
    return powers / powers.sum(axis=1, keepdims=True)


def inverse_root(covariance: Array) -> Array:
    usual = np.trace(covariance) / len(covariance)
    shrunk = covariance / usual + SHRINKAGE * np.eye(len(covariance))
    variances, directions = np.linalg.eigh(shrunk / (1 + SHRINKAGE))
    return directions @ np.diag(variances**-0.5) @ directions.T


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
    weights = softmax(scores, temperature)
    embeddings = np.einsum("im,imd->id", weights, bags.patches.astype(np.float64))
    assert how == "compared with each other (NumPy on the CPU, float32)"
    assert fitted.temperature == pytest.approx(temperature, rel=1e-3)
    assert fitted.spread == pytest.approx(scores.std(), rel=1e-3)
    assert fitted.axes is None
    assert fitted.whitening is None
    np.testing.assert_allclose(described.scores, scores, atol=1e-3)
    np.testing.assert_allclose(described.weights, weights, atol=2e-3)
    np.testing.assert_allclose(described.embeddings, embeddings, atol=2e-3)


def test_the_default_method_with_normals() -> None:
    bags, normals = flawed_bags(n_patches=30), normal_bags(n_patches=30)
    fitted, described, how = fit_describer(bags, normals, Method())
    bank = normals.patches.reshape(-1, bags.dim)
    distances, index = naive_nearest(bags.patches.reshape(-1, bags.dim), bank)
    np.testing.assert_allclose(described.scores.ravel(), distances, atol=1e-3)
    weights = keep_heaviest(softmax(described.scores, described.scores.std()))
    np.testing.assert_allclose(described.weights, weights, atol=1e-5)
    residual = bags.patches.astype(np.float64) - bank[index].reshape(bags.patches.shape)
    pooled = np.einsum("im,imd->id", weights, residual) - residual.mean(axis=1)
    quiet = described.scores <= np.quantile(described.scores, ORDINARY_SHARE)
    whitening = inverse_root(np.cov(residual[quiet].T, bias=True))
    assert fitted.whitening is not None
    np.testing.assert_allclose(fitted.whitening, whitening, atol=1e-3)
    pooled = pooled @ whitening
    pooled *= np.linalg.norm(pooled, axis=1, keepdims=True) ** (RESIDUAL_POWER - 1)
    assert fitted.spread == pytest.approx(described.scores.std(), rel=1e-5)
    found = extents(described.scores, (6, 5), fitted.spread)
    axes = ExtentAxes.fit(pooled, found, fitted.spread)
    assert fitted.axes is not None
    np.testing.assert_allclose(fitted.axes.centres, axes.centres, rtol=1e-6)
    np.testing.assert_allclose(fitted.axes.scales, axes.scales, rtol=1e-2)
    assert described.embeddings.shape == (20, bags.dim + N_EXTENTS)
    np.testing.assert_allclose(described.embeddings, axes.append(pooled, found), atol=2e-3)
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
    assert fitted.whitening is fitted.axes is fitted.reference is None


# ---- what is settled by the set ----


@pytest.mark.parametrize("with_normals", [False, True])
def test_the_first_images_of_the_order_are_measured(
    monkeypatch: pytest.MonkeyPatch, with_normals: bool
) -> None:
    monkeypatch.setattr(describe, "ORDINARY_IMAGES", 7)
    bags, method = flawed_bags(), Method(n_peers=9)
    reference: NormalReference | PeerReference
    if with_normals:
        reference = NormalReference.from_bags(normal_bags())
        comparison = reference.compare(bags)
    else:
        comparison, reference = compare_with_peers(
            bags, n_peers=9, nearest_share=method.nearest_share
        )
    order = np.random.default_rng(6).permutation(len(bags))
    settled = settle(method, reference, bags, comparison, order)
    scores = comparison.scores
    measured = residual_whitening(bags, scores, comparison.expected, order[:7])
    np.testing.assert_array_equal(settled.whitening, measured)
    assert not np.array_equal(
        measured, residual_whitening(bags, scores, comparison.expected, order)
    )
    assert settled.spread == pytest.approx(scores.std(), rel=1e-5)
    assert settled.temperature == method.temperature_for(
        normals=with_normals, spread=settled.spread
    )
    assert (settled.method, settled.reference, settled.axes) == (method, reference, None)
    average = settle(Method(pooling="average"), reference, bags, comparison, order)
    assert average.whitening is None
    # So it is in a fit, in an order that the seed decides.
    normals = normal_bags() if with_normals else None
    order = np.random.default_rng(0).permutation(len(bags))
    fitted, _, _ = fit_describer(bags, normals, method, random_state=0)
    np.testing.assert_array_equal(
        fitted.whitening, settle(method, reference, bags, comparison, order).whitening
    )
    other, _, _ = fit_describer(bags, normals, method, random_state=1)
    assert not np.array_equal(other.whitening, fitted.whitening)


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
    np.testing.assert_allclose(permuted.scores, straight.scores[order], atol=1e-5)
    np.testing.assert_allclose(permuted.weights, straight.weights[order], atol=1e-4)
    np.testing.assert_allclose(permuted.embeddings, straight.embeddings[order], atol=1e-4)
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
    np.testing.assert_array_equal(first.embeddings, second.embeddings)


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
    again = fitted.describe(bags)
    np.testing.assert_array_equal(again.scores, described.scores)
    np.testing.assert_array_equal(again.weights, described.weights)
    np.testing.assert_array_equal(again.embeddings, described.embeddings)
    assert (fitted.whitening is None) == (method.pooling == "average")
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
    monkeypatch.setattr(cpu, "EXACT_FLOP", 0.0 if exact else np.inf)
    bags, normals = flawed_bags(), normal_bags()
    fitted, _, how = fit_describer(bags, normals, Method(exact=exact))
    assert ("exactly" in how) is exact
    seen: list[bool | None] = []
    compare = references.NormalReference.compare

    def watched(self: references.NormalReference, *args: object, **options: object) -> object:
        comparison = compare(self, *args, **options)  # type: ignore[arg-type]
        seen.append("exactly" in comparison.how)
        return comparison

    monkeypatch.setattr(references.NormalReference, "compare", watched)
    fitted.describe(bags)
    assert seen == [exact]

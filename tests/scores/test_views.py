"""References of several views: calibrated, joined on the first grid, stored and restored."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from flawsort.core.grids import interpolated
from flawsort.core.records import Bags
from flawsort.scores.engines import CpuEngine, CpuLimits
from flawsort.scores.reference import NormalReference, PeerReference, compare_with_peers
from flawsort.scores.usual import (
    Usual,
    calibrate_normals,
    usual_of_normals,
    usual_of_peers,
)
from flawsort.scores.views import (
    CalibratedReference,
    Combined,
    Compared,
    ViewReference,
    combine,
    references_of,
    restore_views,
    stored_views,
)
from helpers.bags import Array, flawed_patches, unit_vectors

KINDS = [0, 1, 2, 0, 0, 2, 1, 0, 0, 0]


def views_of(kinds: list[int], *, seed: int = 0, masked: bool = False) -> Bags:
    """6 x 6 patches, and beside them 4 x 4 of another seed."""
    other = Bags(flawed_patches(kinds, n_patches=16, seed=seed + 1), (4, 4))
    bags = Bags(flawed_patches(kinds, n_patches=36, seed=seed), (6, 6), beside=(other,))
    return with_padding(bags) if masked else bags


def with_padding(bags: Bags, *, copied: int = 0) -> Bags:
    """The lower third of every image is padding, which holds copies of one patch."""
    padded = []
    for one in bags.views:
        rows, columns = one.grid
        valid = np.ones((len(one), rows, columns), bool)
        valid[:, rows - rows // 3 :] = False
        valid = valid.reshape(len(one), -1)
        patches = one.patches.copy()
        for bag, inside in zip(patches, valid, strict=True):
            bag[~inside] = bag[copied]
        padded.append(Bags(patches, one.grid, valid))
    return dataclasses.replace(padded[0], beside=tuple(padded[1:]))


def compare(bags: Bags, normals: Bags | None) -> tuple[list[Compared], tuple[Array, ...] | None]:
    """Every view compared, and the scores of its normals."""
    if normals is None:
        pairs = [compare_with_peers(one, nearest_share=0.2) for one in bags.views]
        return [Compared(*pair) for pair in pairs], None
    found, known = [], []
    for one, good in zip(bags.views, normals.views, strict=True):
        reference = NormalReference.from_bags(good)
        scores = reference.scores_of_normals(good)
        assert scores is not None
        found.append(Compared(reference.compare(one), reference))
        known.append(scores)
    return found, tuple(known)


def combined(bags: Bags, normals: Bags | None) -> Combined:
    found, known = compare(bags, normals)
    return combine(found, bags, known, calibrated=True)


NORMALS = views_of([0] * 9, seed=0)


@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_views_are_joined_on_the_first_grid(with_normals: bool, masked: bool) -> None:
    bags = views_of(KINDS, masked=masked)
    normals = NORMALS if with_normals else None
    found, known = compare(bags, normals)
    together = combine(found, bags, known, calibrated=True)
    moved = []
    for number, (one, view) in enumerate(zip(found, bags.views, strict=True)):
        scores = one.comparison.scores
        if known is not None:
            usual = usual_of_normals(known[number], view.grid)
        else:
            usual = usual_of_peers(scores, view.grid, view.valid)
        own = (scores - usual.places) / usual.spread
        np.testing.assert_allclose(together.comparison.views[number].scores, own, atol=1e-5)
        if number and view.valid is not None:
            # The weighted mean of the patches that count, or the first view where none is near.
            share = interpolated(view.valid.astype(float), view.grid, (6, 6))
            counted = interpolated(np.where(view.valid, own, 0), view.grid, (6, 6))
            moved.append(np.where(share > 1e-6, counted / np.maximum(share, 1e-6), moved[0]))
        else:
            moved.append(interpolated(own, view.grid, (6, 6)))
    assert together.comparison.scores.dtype == np.float32
    np.testing.assert_allclose(together.comparison.scores, sum(moved) / 2, atol=1e-4)
    assert (together.normal_scores is None) == (not with_normals)


def test_each_view_keeps_its_own_expected_patches() -> None:
    bags = views_of(KINDS)
    found, known = compare(bags, NORMALS)
    together = combine(found, bags, known, calibrated=True).comparison
    rows, chosen = np.array([1, 2]), np.array([[0, 5], [3, 3]])
    for one, own in zip(found, together.by_view, strict=True):
        np.testing.assert_array_equal(
            own.expected(rows, chosen), one.comparison.expected(rows, chosen)
        )
    np.testing.assert_array_equal(
        together.expected(rows, chosen), found[0].comparison.expected(rows, chosen)
    )


def test_scores_of_normals_are_calibrated_and_joined() -> None:
    normals = with_padding(views_of([0] * 9))
    found, known = compare(views_of(KINDS, masked=True), normals)
    assert known is not None
    together = combine(found, views_of(KINDS, masked=True), known, calibrated=True)
    scores = together.normal_scores
    assert scores is not None
    assert normals.valid is not None
    assert (scores.shape, scores.dtype) == ((9, 36), np.float32)
    np.testing.assert_array_equal(np.isfinite(scores), normals.valid)
    reference = together.reference
    assert isinstance(reference, CalibratedReference)
    own = []
    for view, values in zip(reference.views, known, strict=True):
        alone = calibrate_normals(values, view.grid, view.usual)
        lowest = np.nanmin(alone, axis=1, keepdims=True)
        filled = np.where(np.isfinite(alone), alone, lowest)
        own.append(interpolated(filled, view.grid, (6, 6)))
    expected = np.where(normals.valid, sum(own) / 2, np.nan)
    np.testing.assert_allclose(scores, expected, atol=1e-4)


@pytest.mark.parametrize("with_normals", [False, True])
def test_padding_does_not_leak(with_normals: bool) -> None:
    """Whichever valid patch the padding holds a copy of."""
    normals = with_padding(NORMALS) if with_normals else None
    found = []
    for copied in (0, 7):
        bags = with_padding(views_of(KINDS), copied=copied)
        assert bags.valid is not None
        found.append(combined(bags, normals).comparison.scores[bags.valid])
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_a_flaw_beside_padding_keeps_its_score() -> None:
    usual = Usual(np.zeros(4, np.float32), 1.0)
    bank = NormalReference(unit_vectors(1, 4, 5, seed=1)[0])
    views = (
        ViewReference(bank, Usual(np.zeros(16, np.float32), 1.0), (4, 4)),
        ViewReference(bank, usual, (2, 2)),
    )
    coarse = np.array([[6, -1, -1, -1]], np.float32)
    valid = np.array([[True, False, True, False]])
    found = CalibratedReference(views).join(
        [np.full((1, 16), 6, np.float32), coarse], [None, valid]
    )
    assert found[0, :4] == pytest.approx([6, 6, 6, 6])


def test_padding_that_differs_between_views_of_one_grid_does_not_leak() -> None:
    """Where only the second view has padding, its copies there tell nothing of that place."""
    first = unit_vectors(3, 4, 5, seed=1)
    reference = CalibratedReference(
        tuple(
            ViewReference(NormalReference(first[0]), Usual(np.zeros(4, np.float32), 1.0), (2, 2))
            for _ in range(2)
        )
    )
    scores = np.array([[1, 2, 3, 4]], np.float32)
    valid = np.array([[True, True, True, False]])
    found = []
    for inside_padding in (-7.0, 50.0):
        other = np.array([[5, 6, 7, inside_padding]], np.float32)
        found.append(reference.join([scores, other], [None, valid]))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0][0], [3, 4, 5, 4])


def test_a_view_without_calibration_is_left_alone() -> None:
    bags = views_of(KINDS).views[0]
    (one,), known = compare(bags, NORMALS.views[0])
    assert known is not None
    together = combine([one], bags, known, calibrated=False)
    assert together.comparison is one.comparison
    assert together.reference is one.reference
    np.testing.assert_array_equal(together.normal_scores, known[0])  # type: ignore[arg-type]
    assert combine([one], bags, None, calibrated=False).normal_scores is None


# ---- new images ----


@pytest.mark.parametrize("with_normals", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_stored_and_restored(with_normals: bool, masked: bool) -> None:
    bags, new = views_of(KINDS, masked=masked), views_of([0, 1, 2], seed=0, masked=masked)
    reference = combined(bags, NORMALS if with_normals else None).reference
    restored = restore_views(stored_views(reference), nearest_share=0.2)
    assert isinstance(restored, CalibratedReference)
    assert restored.kind == reference.kind == ("normals" if with_normals else "peers")
    assert restored.knows_normal is reference.knows_normal is with_normals
    one, other = reference.compare(new), restored.compare(new)
    np.testing.assert_array_equal(one.scores, other.scores)
    for own, again in zip(one.views, other.views, strict=True):
        np.testing.assert_array_equal(own.scores, again.scores)
    for first, second in zip(stored_views(reference), stored_views(restored), strict=True):
        assert first.grid == second.grid
        for array, copy in zip(first.arrays(), second.arrays(), strict=True):
            np.testing.assert_array_equal(array, copy)
    np.testing.assert_array_equal(restored.stored().patches, stored_views(reference)[0].reference.patches)  # fmt: skip  # noqa: E501


def test_a_reference_of_one_view_is_stored_and_restored() -> None:
    bags = views_of(KINDS).views[0]
    (one,), _ = compare(bags, NORMALS.views[0])
    (stored,) = stored_views(one.reference)
    assert (stored.usual, stored.grid) == (None, None)
    assert len(stored.arrays()) == 1
    restored = restore_views([stored], nearest_share=0.2)
    assert isinstance(restored, NormalReference)
    np.testing.assert_array_equal(restored.compare(bags).scores, one.comparison.scores)


def test_lists_of_every_view_are_stored() -> None:
    bags = views_of(KINDS)
    views = []
    for one, good in zip(bags.views, NORMALS.views, strict=True):
        reference = NormalReference.from_bags(good, exact=False)
        usual = usual_of_peers(reference.compare(one).scores, one.grid)
        views.append(ViewReference(reference, usual, one.grid))
    both = CalibratedReference(tuple(views))
    stored = stored_views(both)
    assert all(one.reference.lists is not None for one in stored)
    assert [len(one.arrays()) for one in stored] == [5, 5]
    restored = restore_views(stored, nearest_share=0.2)
    np.testing.assert_array_equal(restored.compare(bags).scores, both.compare(bags).scores)


def test_arrays_tell_references_apart() -> None:
    stored = stored_views(combined(views_of(KINDS), NORMALS).reference)[0]
    assert stored.usual is not None
    other = dataclasses.replace(stored, usual=Usual(stored.usual.places, 2 * stored.usual.spread))
    assert any(
        not np.array_equal(a, b) for a, b in zip(stored.arrays(), other.arrays(), strict=True)
    )


def test_the_engine_is_that_of_all_views() -> None:
    for normals in (None, NORMALS):
        reference = combined(views_of(KINDS), normals).reference
        engine = CpuEngine()
        reference.engine = engine
        assert reference.engine is engine
        assert isinstance(reference, CalibratedReference)
        assert all(one.engine is engine for one in references_of(reference))
        restored = restore_views(stored_views(reference), nearest_share=0.2, engine=engine)
        assert isinstance(restored, CalibratedReference)
        assert all(view.reference.engine is engine for view in restored.views)


def test_for_many_settles_every_view(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = combined(views_of(KINDS), None).reference
    asked: list[tuple[int, int]] = []
    for_many = PeerReference.for_many

    def watched(self: PeerReference, n_images: int, n_patches: int) -> Any:
        asked.append((n_images, n_patches))
        return for_many(self, n_images, n_patches)

    monkeypatch.setattr(PeerReference, "for_many", watched)
    settled = reference.for_many(1000, 36)
    assert asked == [(1000, 36), (1000, 16)]
    assert isinstance(settled, CalibratedReference)
    assert isinstance(reference, CalibratedReference)
    for one, before in zip(settled.views, reference.views, strict=True):
        assert one.usual is before.usual
        assert one.grid == before.grid
    new = views_of([1, 0])
    np.testing.assert_allclose(
        settled.compare(new).scores, reference.compare(new).scores, atol=1e-4
    )


def test_for_many_decides_the_search_of_every_view() -> None:
    limits = CpuLimits(exact_flop=0.0)
    views = tuple(
        ViewReference(
            NormalReference.from_bags(one, engine=CpuEngine(limits=limits)),
            Usual(np.zeros(one.n_patches, np.float32), 1.0),
            one.grid,
        )
        for one in NORMALS.views
    )
    settled = CalibratedReference(views).for_many(10, 36)
    assert [view.reference.exact for view in settled.views] == [False, False]  # type: ignore[attr-defined]


def test_self_rows_reach_every_view() -> None:
    """An image that is among the peers is not compared with itself."""
    bags = views_of(KINDS)
    views = tuple(
        ViewReference(
            PeerReference(one.patches, 0.2),
            Usual(np.zeros(one.n_patches, np.float32), 1.0),
            one.grid,
        )
        for one in bags.views
    )
    reference = CalibratedReference(views)
    rows = np.arange(len(bags))
    for own, one in zip(reference.compare(bags, self_rows=rows).views, bags.views, strict=True):
        alone = compare_with_peers(one, n_peers="all", nearest_share=0.2)[0]
        np.testing.assert_allclose(own.scores, alone.scores, atol=1e-5)

"""New images into the groups of a run, or to none."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest

from flawsort.clusters import assign as assign_module
from flawsort.clusters.assign import KNOWN_QUANTILE, NEIGHBOURS, Assignment, AtOnce, Groups, joined
from helpers.bags import Array, blobs

SIZES = [20, 15, 10]
LABELS = np.repeat([0, 1, 2], SIZES)
FITTED = blobs(SIZES)


def naive_neighbours(points: Array, fitted: Array, *, itself: bool) -> list[float]:
    means = []
    for row, point in enumerate(points):
        far = [
            float(np.sqrt(((point - other) ** 2).sum()))
            for number, other in enumerate(fitted)
            if not (itself and number == row)
        ]
        nearest = sorted(far)[:NEIGHBOURS]
        means.append(sum(nearest) / len(nearest))
    return means


def assigned(new: Array, fitted: Array, labels: Array) -> Assignment:
    return Groups.of(fitted, labels).assign(new)


def test_new_members_of_a_blob_join_it() -> None:
    new = blobs(SIZES, seed=5)
    found = assigned(new, FITTED, LABELS)
    np.testing.assert_array_equal(found.nearest, LABELS)
    known = found.labels >= 0
    assert known.mean() > 0.85
    np.testing.assert_array_equal(found.labels[known], LABELS[known])
    assert (found.confidence >= 0).all()
    assert (found.confidence <= 1).all()
    assert not found.confidence[~known].any()


def test_the_images_of_the_run_go_back_to_their_groups() -> None:
    found = assigned(FITTED, FITTED, LABELS)
    np.testing.assert_array_equal(found.labels, LABELS)
    # Each is as clear as its rank among them says.
    np.testing.assert_allclose(np.sort(found.confidence), np.arange(1, 46) / 45)


def test_a_kind_not_seen_before_is_none_of_them() -> None:
    far = np.full((1, 6), 30.0)
    between = FITTED[:1] / 2 + FITTED[20:21] / 2
    found = assigned(np.concatenate([far, between]), FITTED, LABELS)
    np.testing.assert_array_equal(found.labels, [-1, -1])
    np.testing.assert_array_equal(found.confidence, [0, 0])
    assert (found.novelty > 1).all()
    assert found.nearest[1] in (0, 1)
    assert np.isfinite(found.placed.distance).all()


def test_novelty_against_loops() -> None:
    new = np.concatenate([blobs([3, 3, 3], seed=7), np.full((1, 6), 5.0)])
    limit = np.quantile(naive_neighbours(FITTED, FITTED, itself=True), KNOWN_QUANTILE)
    expected = np.array(naive_neighbours(new, FITTED, itself=False)) / limit
    found = assigned(new, FITTED, LABELS)
    np.testing.assert_allclose(found.novelty, expected)
    np.testing.assert_array_equal(found.labels == -1, expected > 1)


@pytest.mark.parametrize(("points", "fitted"), [(512, 2048), (512, 7), (31, 64), (600, 1)])
def test_neighbours_in_blocks_are_those_of_the_whole(points: int, fitted: int) -> None:
    many = np.random.default_rng(0).standard_normal((530, 2)).astype(np.float32)
    found = assign_module._neighbour_distance(
        many, many, itself=True, at_once=AtOnce(points, fitted)
    )
    rows = [0, 5, 511, 512, 529]
    for row in rows:
        others = np.delete(many, row, axis=0).astype(np.float64)
        (expected,) = naive_neighbours(many[[row]].astype(np.float64), others, itself=False)
        assert found[row] == pytest.approx(expected)


def test_no_block_is_large() -> None:
    peaks = []
    for n in (2_000, 20_000):
        rng = np.random.default_rng(0)
        fitted, new = rng.standard_normal((n, 8)), rng.standard_normal((64, 8))
        tracemalloc.start()
        assign_module._neighbour_distance(new, fitted, itself=False, at_once=AtOnce(16, 64))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 200_000


def test_neighbours_far_from_the_origin() -> None:
    """Products lose digits there; the distances must not."""
    few = np.random.default_rng(0).standard_normal((40, 5)) + 3000
    found = assign_module._neighbour_distance(few, few, itself=True)
    np.testing.assert_allclose(found, naive_neighbours(few, few, itself=True), rtol=1e-9)


@pytest.mark.parametrize("at_once", [4, 2048])
def test_batches_are_sorted_as_the_whole(at_once: int) -> None:
    new = np.concatenate([blobs([9, 9, 9], seed=7), np.full((2, 6), 5.0)])
    whole = assigned(new, FITTED, LABELS)
    groups = Groups.of(FITTED, LABELS, at_once=AtOnce(fitted=at_once))
    parts = [groups.assign(new[start : start + 4]) for start in range(0, len(new), 4)]
    together = joined(parts)
    order = np.random.default_rng(0).permutation(len(new))
    for found, rows in ((together, slice(None)), (together.take(order), order)):
        for name in ("labels", "nearest", "confidence", "novelty"):
            assert getattr(found, name).dtype == getattr(whole, name).dtype
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[rows])
        for name in ("distance", "runner_up", "runner_up_distance"):
            expected = getattr(whole.placed, name)[rows]
            np.testing.assert_array_equal(getattr(found.placed, name), expected)


def test_confidence_grows_towards_the_middle() -> None:
    middles = np.stack([FITTED[group == LABELS].mean(axis=0) for group in (0, 1)])
    steps = np.linspace(0, 0.45, 10)[:, None]
    on_the_way = middles[0] * (1 - steps) + middles[1] * steps
    # A dense fit, so that nothing on the way is new.
    fitted = np.concatenate([FITTED, np.repeat(on_the_way, 4, axis=0)])
    labels = np.concatenate([LABELS, np.zeros(40, int)])
    found = assigned(on_the_way, fitted, labels)
    np.testing.assert_array_equal(found.labels, 0)
    middle = fitted[labels == 0].mean(axis=0)
    nearest_first = np.argsort(np.linalg.norm(on_the_way - middle, axis=1))
    assert found.confidence[nearest_first[0]] > found.confidence[nearest_first[-1]]
    beyond = found.confidence[nearest_first.min() :]
    assert beyond[0] > beyond[-1]
    assert found.confidence[-1] == found.confidence.min()


def test_confidence_is_the_share_of_images_that_are_less_clear() -> None:
    found = assigned(FITTED[:5] + 0.01, FITTED, LABELS)
    middles = np.stack([FITTED[group == LABELS].mean(axis=0) for group in range(3)])

    def margin(point: Array, own: int) -> float:
        far = np.linalg.norm(middles - point, axis=1)
        return float(1 - min(far[own] / np.delete(far, own).min(), 1))

    fitted = [margin(point, own) for point, own in zip(FITTED, LABELS, strict=True)]
    for row in range(5):
        mine = margin(FITTED[row] + 0.01, 0)
        assert found.confidence[row] == pytest.approx(np.mean([other <= mine for other in fitted]))


def test_a_run_of_one_group() -> None:
    fitted = blobs([12])
    found = assigned(np.concatenate([fitted, fitted[:1] + 50]), fitted, np.zeros(12, int))
    np.testing.assert_array_equal(found.labels, [0] * 12 + [-1])
    np.testing.assert_array_equal(found.confidence, [1] * 12 + [0])
    np.testing.assert_array_equal(found.placed.runner_up, [-1] * 13)


def test_a_run_of_identical_images() -> None:
    fitted = np.ones((6, 3))
    labels = np.array([0, 0, 0, 0, 1, 1])
    found = assigned(np.array([[1.0, 1, 1], [1, 1, 2]]), fitted, labels)
    np.testing.assert_array_equal(found.labels, [0, -1])
    assert np.isfinite(found.confidence).all()
    assert np.isfinite(found.novelty).all()


@pytest.mark.parametrize("n", [2, 3])
def test_a_run_of_two_or_three_images(n: int) -> None:
    fitted = 8.0 * np.eye(n)
    found = assigned(fitted + 0.1, fitted, np.arange(n))
    np.testing.assert_array_equal(found.nearest, np.arange(n))
    assert np.isfinite(found.novelty).all()


@pytest.mark.parametrize(("most", "asked"), [(45, 45), (44, 23), (20, 15), (2, 2), (None, 45)])
def test_novelty_may_be_asked_of_some(most: int | None, asked: int) -> None:
    order = np.random.default_rng(0).permutation(45)
    fitted, labels = FITTED[order], LABELS[order]
    every, groups = Groups.of(fitted, labels), Groups.of(fitted, labels, most=most)
    step = -(-45 // asked)
    np.testing.assert_array_equal(groups.fitted, fitted[::step])
    assert len(groups.fitted) == asked
    assert groups.limit == Groups.of(fitted[::step], labels[::step]).limit
    # Where the groups are is known from all of them.
    np.testing.assert_array_equal(groups.middles, every.middles)
    np.testing.assert_array_equal(groups.margins, every.margins)
    if asked > NEIGHBOURS:
        found = groups.assign(blobs(SIZES, seed=5))
        np.testing.assert_array_equal(found.nearest, LABELS)


def test_kinds_go_along() -> None:
    found = assigned(FITTED[[0, 20, 40]], FITTED, LABELS)
    assert found.kinds == found.take([1, 1]).kinds == joined([found, found]).kinds == ()
    told = dataclasses.replace(found, kinds=((0,), (1, 2), (2, 0, 1)))
    assert told.take([2, 0, 2]).kinds == ((2, 0, 1), (0,), (2, 0, 1))
    assert told.take([]).kinds == ()
    assert joined([told.take([2]), told]).kinds == ((2, 0, 1), (0,), (1, 2), (2, 0, 1))


def test_good_images_are_no_new_kind() -> None:
    """Rows: two of the first group, three that are far from all groups."""
    new = np.concatenate([FITTED[:2], np.full((3, 6), 30.0)])
    looks, known = np.array([1, 0, 1, 1, 0], bool), np.array([0, 1, 0, 1, 0], bool)
    found = assigned(new, FITTED, LABELS).seen_as(
        new, None, looks_normal=looks | known, known_good=known
    )
    # An image that looks normal stays in a group that it is like. One that was given as normal
    # does not.
    assert found.labels.tolist() == [0, -2, -2, -2, -1]
    assert (found.confidence > 0).tolist() == [True, False, False, False, False]
    np.testing.assert_array_equal(found.unseen, new[4:])
    np.testing.assert_array_equal(found.take([4, 2, 4]).unseen, new[[4, 4]])
    assert "1 of a kind not seen before" in repr(found)
    assert found.judged is None


def test_the_judge_says_what_is_strange() -> None:
    new = np.concatenate([FITTED[:2], np.full((3, 6), 30.0)])
    said = np.array([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0, 1, 0], [0, 0, 1]])
    asked: list[Array] = []

    def judge(vectors: Array, looks_normal: Array) -> Array:
        assert looks_normal is looks
        asked.append(vectors)
        return said

    looks = np.array([0, 0, 1, 0, 0], bool)
    found = assigned(new, FITTED, LABELS).seen_as(
        new, judge, looks_normal=looks, known_good=np.zeros(5, bool)
    )
    np.testing.assert_array_equal(asked, [new])
    assert found.strange.tolist() == [True, False, False, False, True]
    np.testing.assert_array_equal(found.unseen, new[[0, 4]])
    order = [4, 1, 4, 0]
    both = joined([found.take(order), found])
    assert both.judged is not None
    assert both.judged.dtype == np.float32
    np.testing.assert_allclose(both.judged, np.concatenate([said[order], said]))
    np.testing.assert_array_equal(both.unseen, new[[4, 4, 0, 0, 4]])
    assert both.looks_normal is not None
    assert both.looks_normal.tolist() == [False] * 6 + [True] + [False] * 2
    assert both.vectors is None
    kept = dataclasses.replace(found, vectors=new.astype(np.float16))
    assert kept.take([3, 0]).vectors.tolist() == kept.vectors[[3, 0]].tolist()  # type: ignore[union-attr,index]
    few = dataclasses.replace(found, vectors=new[:2].astype(np.float16))
    assert few.take([1, 0, 2, 1]).vectors.tolist() == few.vectors[[1, 0]].tolist()  # type: ignore[union-attr,index]


def test_nothing_to_assign() -> None:
    found = assigned(np.empty((0, 6)), FITTED, LABELS)
    assert found.labels.shape == found.nearest.shape == found.confidence.shape == (0,)


def test_inputs_are_not_modified() -> None:
    before = FITTED.copy(), LABELS.copy()
    assigned(FITTED, FITTED, LABELS)
    np.testing.assert_array_equal(FITTED, before[0])
    np.testing.assert_array_equal(LABELS, before[1])

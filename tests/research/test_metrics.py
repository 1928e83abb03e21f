"""Agreement with a truth, against scikit-learn, plain loops and every possible matching."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, roc_auc_score

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.errors import InputError, OptionError
from flawsort.research.metrics import (
    agreement,
    area_under_purity,
    auroc,
    collapsed,
    effective_clusters,
    match_clusters,
    pixel_auroc,
    precision_and_recall,
    purity_curve,
    reduction_at,
    several_kinds,
)
from helpers.bags import Array, blobs


def naive_f1(truth: list[str], found: list[str]) -> float:
    """F1 of each class, averaged with the classes' sizes as weights."""
    total = 0.0
    for name in set(truth):
        hits = sum(t == f == name for t, f in zip(truth, found, strict=True))
        precision = hits / max(found.count(name), 1)
        recall = hits / truth.count(name)
        if hits:
            total += truth.count(name) * 2 * precision * recall / (precision + recall)
    return total / len(truth)


def every_matching(truth: list[str], labels: list[int]) -> list[list[str]]:
    """The truth that every one-to-one matching of clusters and classes predicts."""
    classes, clusters = sorted(set(truth)), sorted(set(labels))
    padded = classes + [f"nobody {i}" for i in range(len(clusters) - len(classes))]
    return [
        [dict(zip(clusters, chosen, strict=True))[label] for label in labels]
        for chosen in permutations(padded, len(clusters))
    ]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 3)), min_size=1, max_size=25))
@settings(max_examples=60, deadline=None)
def test_agreement_against_loops(pairs: list[tuple[str, int]]) -> None:
    truth, labels = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = agreement(truth, labels)
    matchings = every_matching(truth, labels)
    right = [sum(t == p for t, p in zip(truth, one, strict=True)) for one in matchings]
    assert found.f1_micro == pytest.approx(max(right) / len(truth))
    # Several matchings may be the best; it is one of them.
    best = [one for one, hits in zip(matchings, right, strict=True) if hits == max(right)]
    assert any(found.f1 == pytest.approx(naive_f1(truth, one)) for one in best)
    assert found.nmi == pytest.approx(normalized_mutual_info_score(truth, labels))
    assert found.ari == pytest.approx(adjusted_rand_score(truth, labels))
    purity = sum(
        max(sum(pair == (name, group) for pair in pairs) for name in set(truth))
        for group in set(labels)
    )
    assert found.purity == pytest.approx(purity / len(truth))
    assert found.classes == tuple(sorted(set(truth)))
    assert found.clusters == tuple(sorted(set(labels)))
    for row, name in enumerate(found.classes):
        for column, group in enumerate(found.clusters):
            assert found.confusion[row, column] == pairs.count((name, group))


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2], [2, 2, 0, 0, 1], [-1, -1, 7, 7, 3]])
def test_the_same_partition_is_perfect_whatever_its_numbers(labels: list[int]) -> None:
    found = agreement(["hole", "hole", "dent", "dent", "good"], np.array(labels))
    assert found.nmi == pytest.approx(1)
    assert (found.ari, found.f1, found.f1_micro, found.purity) == (1, 1, 1, 1)


def test_more_clusters_than_classes_cost_f1_but_not_purity() -> None:
    found = agreement(["a"] * 4 + ["b"] * 4, [0, 0, 0, 1, 2, 2, 3, 3])
    assert found.purity == 1
    assert found.f1_micro == pytest.approx(5 / 8)
    assert found.f1 == pytest.approx((2 * 1 * 0.75 / 1.75 + 2 * 1 * 0.5 / 1.5) / 2)


def test_fewer_clusters_than_classes() -> None:
    found = agreement(["a", "a", "b", "b", "c"], [0] * 5)
    assert found.f1_micro == pytest.approx(2 / 5)
    assert found.purity == pytest.approx(2 / 5)
    assert found.f1 == pytest.approx(2 / 5 * (2 * 0.4 * 1 / 1.4))
    assert found.ari == 0


def test_one_image_and_images_that_are_all_different() -> None:
    assert agreement(["a"], [0]).f1 == 1
    names = [f"class {i}" for i in range(12)]
    found = agreement(names, list(range(12)))
    assert (found.f1, found.ari) == (1, 1)


def test_permuting_images_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    truth, labels = rng.choice(list("abc"), 40), rng.integers(0, 4, 40)
    order = rng.permutation(40)
    first = agreement(truth.tolist(), labels)
    second = agreement(truth[order].tolist(), labels[order])
    for name in ("nmi", "ari", "f1", "f1_micro", "purity"):
        assert getattr(first, name) == pytest.approx(getattr(second, name))
    np.testing.assert_array_equal(first.confusion, second.confusion)


@pytest.mark.parametrize(
    ("confusion", "matched"),
    [
        ([[5, 0], [0, 5]], [0, 1]),
        ([[5, 4], [4, 0]], [1, 0]),  # not the largest first
        ([[1, 9, 2]], [1, 0, 3]),
        ([[1], [9], [2]], [1]),
    ],
)
def test_matching(confusion: list[list[int]], matched: list[int]) -> None:
    table: Array = np.array(confusion)
    found = match_clusters(table)
    if table.shape[1] > table.shape[0]:
        left_over = np.delete(found, 1)
        assert found[1] == 0
        assert (left_over >= table.shape[0]).all()
        assert len(set(left_over.tolist())) == len(left_over)
    else:
        np.testing.assert_array_equal(found, matched)


@pytest.mark.parametrize(("truth", "labels"), [(["a"], [0, 1]), ([], [])])
def test_truth_and_labels_of_unequal_length(truth: list[str], labels: list[int]) -> None:
    with pytest.raises(
        InputError,
        match=rf"same length, at least 1\. Got {len(truth)} and {len(labels)}\.",
    ):
        agreement(truth, labels)


# ---- purity ----


@given(
    truth=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=2, max_size=20),
    seed=st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_the_purity_of_every_cut(truth: list[str | None], seed: int) -> None:
    truth = [*truth, "b"]
    n = len(truth)
    merges = ward_linkage(np.random.default_rng(seed).integers(0, 4, (n, 2)))  # with ties
    before = merges.copy()
    curve = purity_curve(truth, merges)
    np.testing.assert_array_equal(merges, before)
    assert curve.shape == (n,)
    assert curve.dtype == np.float64
    assert curve[-1] == 1
    known = [i for i in range(n) if truth[i] is not None]
    for k in range(1, n + 1):
        pairs = Counter((int(cut(merges, k)[i]), truth[i]) for i in known)
        largest = [max(pairs[group, name] for name in "abc") for group in range(k)]
        assert curve[k - 1] == pytest.approx(sum(largest) / len(known), abs=1e-12)


def test_blobs_are_pure_from_their_number_on() -> None:
    truth = ["a"] * 5 + ["b"] * 4 + ["c"] * 3
    curve = purity_curve(truth, ward_linkage(blobs([5, 4, 3])))
    np.testing.assert_allclose(curve, [5 / 12, 9 / 12, *[1] * 10])
    np.testing.assert_array_equal(purity_curve(["a"], np.empty((0, 4))), [1])
    assert area_under_purity(curve) == pytest.approx((14 / 24 + 21 / 24 + 9) / 12)
    assert reduction_at(curve, 0.95) == pytest.approx(1 - 3 / 12)


def test_truth_of_another_length_or_none_at_all() -> None:
    merges = ward_linkage(blobs([3]))
    with pytest.raises(InputError, match=r"each of the 3 images of the linkage\. Got 2\."):
        purity_curve(["a", "b"], merges)
    with pytest.raises(InputError, match=r"at least one image\. Got None for all\."):
        purity_curve([None] * 3, merges)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_areas_against_loops(values: list[float]) -> None:
    area = sum((a + b) / 2 for a, b in pairwise(values))
    assert area_under_purity(np.array(values)) == pytest.approx(area / len(values), abs=1e-12)


def test_the_area_under_purity_1_tends_to_1() -> None:
    for n in (1, 2, 10, 1000):
        assert area_under_purity(np.ones(n)) == pytest.approx((n - 1) / n)


@pytest.mark.parametrize(
    ("purity", "k"), [(0.1, 1), (0.3, 1), (0.31, 2), (0.7, 3), (0.9, 4), (0.95, 6), (1, 10)]
)
def test_reductions(purity: float, k: int) -> None:
    curve = np.array([3, 6, 7, 9, 9, 9.6, 9.7, 9.8, 9.9, 10]) / 10
    assert reduction_at(curve, purity) == pytest.approx(1 - k / 10)


def test_a_purity_that_is_exactly_a_share_counts_as_reached() -> None:
    for n in range(1, 120):
        for hits in range(1, n + 1):
            assert reduction_at(np.array([hits / n, 1.0]), hits / n) == 0.5


def test_bad_curves_and_purities() -> None:
    for bad in (np.empty(0), np.ones((2, 2))):
        with pytest.raises(InputError, match=r"curve must have the shape \(n,\), n at least 1"):
            area_under_purity(bad)
        with pytest.raises(InputError, match=r"curve must have the shape \(n,\), n at least 1"):
            reduction_at(bad, 0.9)
    for purity in (0, -0.5, 1.01, np.nan):
        with pytest.raises(OptionError, match=rf"0 and at most 1\. Got {purity}\."):
            reduction_at(np.ones(3), purity)
    with pytest.raises(InputError, match=r"reach the purity 0\.9 somewhere\. Got 0\.5 at most\."):
        reduction_at(np.array([0.2, 0.5]), 0.9)


# ---- good and flawed images ----


@given(
    scores=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=20),
    seed=st.integers(0, 999),
)
@settings(max_examples=60, deadline=None)
def test_images_against_all_pairs(scores: list[float], seed: int) -> None:
    flawed = np.random.default_rng(seed).random(len(scores)) < 0.5
    flawed[:2] = (True, False)
    values = np.array(scores)
    pairs = [
        (values[i], values[j]) for i in np.flatnonzero(flawed) for j in np.flatnonzero(~flawed)
    ]
    share = sum((one > other) + (one == other) / 2 for one, other in pairs) / len(pairs)
    assert auroc(values, flawed) == pytest.approx(share, abs=1e-12)
    np.testing.assert_array_equal(values, scores)


def test_images_that_are_all_flawed_or_all_good_have_no_auroc() -> None:
    assert auroc(np.arange(3.0), np.ones(3, bool)) is None
    assert auroc(np.arange(3.0), np.zeros(3, bool)) is None


def test_precision_and_recall_by_hand() -> None:
    true = np.array([True, True, True, False, False])
    found = np.array([True, False, False, True, False])
    assert precision_and_recall(found, true) == (1 / 2, 1 / 3)
    assert precision_and_recall(true, true) == (1, 1)
    nothing = np.zeros(5, bool)
    assert precision_and_recall(nothing, true) == (None, 0)
    assert precision_and_recall(found, nothing) == (0, None)


def test_images_that_cannot_be_judged() -> None:
    with pytest.raises(InputError, match=r"scores and flawed must .* Got \(3,\) and \(2,\)\."):
        auroc(np.arange(3.0), np.ones(2, bool))
    with pytest.raises(InputError, match=r"found and true must .* Got \(1, 2\) and \(1, 2\)\."):
        precision_and_recall(np.ones((1, 2), bool), np.ones((1, 2), bool))
    with pytest.raises(InputError, match="scores must be finite"):
        auroc(np.array([1, np.nan]), np.array([True, False]))


# ---- pixels ----


def naive_pixel(heat: Array, side: int, y: int, x: int) -> float:
    """Bilinear between the middles of the cells, held at the edges."""
    total = 0.0
    rows, columns = heat.shape
    down = min(max((y + 0.5) * rows / side - 0.5, 0), rows - 1)
    across = min(max((x + 0.5) * columns / side - 0.5, 0), columns - 1)
    for r in range(rows):
        for c in range(columns):
            share = max(1 - abs(down - r), 0) * max(1 - abs(across - c), 0)
            total += share * float(heat[r, c])
    return total


def naive_auroc(
    scores: Array, grid: tuple[int, int], masks: list[Array | None], side: int
) -> float:
    pixels, marks = [], []
    for row, mask in zip(scores, masks, strict=True):
        for y in range(side):
            for x in range(side):
                pixels.append(naive_pixel(row.reshape(grid), side, y, x))
                if mask is None:
                    marks.append(False)
                else:
                    height, width = mask.shape
                    at = int((y + 0.5) / side * height), int((x + 0.5) / side * width)
                    marks.append(bool(mask[at]))
    return float(roc_auc_score(marks, np.array(pixels).astype(np.float32)))


@pytest.mark.parametrize("side", [2, 6, 13])
@pytest.mark.parametrize("grid", [(1, 1), (1, 4), (3, 4), (5, 2)])
@pytest.mark.parametrize("tied", [False, True])
def test_pixels_against_scikit_learn(side: int, grid: tuple[int, int], tied: bool) -> None:
    rng = np.random.default_rng(side)
    scores = rng.random((4, grid[0] * grid[1]))
    if tied:
        scores = np.round(2 * scores) / 2
    masks = [rng.random(size) < 0.3 for size in ((7, 5), (13, 13), (1, 20))]
    masks = [*masks, None]
    before = scores.copy()
    found = pixel_auroc(scores, grid, masks, side)
    assert found == pytest.approx(naive_auroc(scores, grid, masks, side), abs=1e-9)
    np.testing.assert_array_equal(scores, before)


def test_pixels_in_small_blocks() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 3, (3, 16)).astype(np.float32)
    masks = [rng.random((16, 16)) < 0.5 for _ in range(3)]
    whole = pixel_auroc(scores, (4, 4), masks, 16)
    assert pixel_auroc(scores, (4, 4), masks, 16, pixels_at_once=7) == whole


def test_good_bad_and_constant_maps() -> None:
    mask = np.zeros((8, 8), bool)
    mask[:4] = True
    scores = np.repeat([1.0, 0.7, 0.3, 0.0], 4)[None]
    assert pixel_auroc(scores, (4, 4), [mask]) == 1
    assert pixel_auroc(-scores, (4, 4), [mask]) == 0
    # Interpolated, equal patches still make equal pixels: exactly chance.
    assert pixel_auroc(np.full((1, 21), 0.1), (3, 7), [mask]) == 0.5


def test_masks_of_numbers_are_taken_as_marks() -> None:
    mask = np.zeros((8, 8), np.uint8)
    mask[2:5, 1:4] = 255
    scores = np.random.default_rng(0).random((1, 16))
    boolean = pixel_auroc(scores, (4, 4), [mask > 0], 32)
    assert pixel_auroc(scores, (4, 4), [mask], 32) == boolean


def test_maps_that_cannot_be_judged() -> None:
    scores, mask = np.random.default_rng(0).random((2, 4)), np.ones((3, 3), bool)
    mask[0] = False
    grid = (2, 2)
    with pytest.raises(InputError, match=r"Got 0 of 32 pixels marked\."):
        pixel_auroc(scores, grid, [~np.ones((3, 3), bool), None], 4)
    with pytest.raises(InputError, match=r"Got 32 of 32 pixels marked\."):
        pixel_auroc(scores, grid, [np.ones((3, 3), bool)] * 2, 4)
    with pytest.raises(InputError, match=r"shape \(1, 4\): 1 masks, .* 2 x 2 .* Got \(2, 4\)\."):
        pixel_auroc(scores, grid, [mask])
    with pytest.raises(InputError, match=r"shape \(2, 6\).* Got \(2, 4\)\."):
        pixel_auroc(scores, (2, 3), [mask, None])
    with pytest.raises(InputError, match=r"\(height, width\).* Got \(3, 3, 1\) for image 1\."):
        pixel_auroc(scores, grid, [None, mask[..., None]])
    with pytest.raises(InputError, match=r"scores must be finite"):
        pixel_auroc(scores * np.nan, grid, [mask, None])
    with pytest.raises(OptionError, match=r"side must be at least 1 pixel\. Got 0\."):
        pixel_auroc(scores, grid, [mask, None], 0)


# ---- several kinds ----


class TestSeveralKinds:
    CLASS_OF: ClassVar = {0: "dent", 1: "stain", 2: "dent", 3: "good"}

    def test_by_hand(self) -> None:
        truth = [{"dent", "stain"}, {"stain", "tear"}, {"dent", "stain", "tear"}]
        kinds = [(0, 1), (3, 2), (1, 0, 2)]
        found = several_kinds(truth, kinds, self.CLASS_OF)
        assert found.n_images == 3
        assert found.recall == pytest.approx((1 + 0 + 2 / 3) / 3)
        assert found.recall_of_label == pytest.approx((1 / 2 + 0 + 1 / 3) / 3)
        # Two groups of one class are one answer.
        assert found.precision == pytest.approx((1 + 0 + 1) / 3)

    def test_groups_that_stand_for_nothing_are_no_answers(self) -> None:
        found = several_kinds([{"dent", "stain"}], [(-1, 0, 9)], self.CLASS_OF)
        assert (found.recall, found.recall_of_label, found.precision) == (0.5, 0, 1)
        nothing = several_kinds([{"dent", "stain"}], [(-1,)], self.CLASS_OF)
        assert (nothing.recall, nothing.precision) == (0, 0)

    @pytest.mark.parametrize("kinds", [[], [(0,), (1,)]])
    def test_lengths(self, kinds: list[tuple[int, ...]]) -> None:
        with pytest.raises(InputError, match=rf"at least 1. Got 1 and {len(kinds)}"):
            several_kinds([{"dent"}], kinds, self.CLASS_OF)

    def test_nobody(self) -> None:
        with pytest.raises(InputError, match="Got 0 and 0"):
            several_kinds([], [], self.CLASS_OF)


class TestEffectiveClusters:
    def test_sizes_decide(self) -> None:
        assert effective_clusters(np.zeros(9, int)) == pytest.approx(1)
        assert effective_clusters(np.arange(12) % 4) == pytest.approx(4)
        naive = np.exp(-sum(share * np.log(share) for share in (0.75, 0.25)))
        assert effective_clusters([5, 5, 5, 2]) == pytest.approx(naive)

    def test_one_image_apart_is_a_collapse_too(self) -> None:
        assert collapsed([3] * 10)
        assert collapsed([0] * 580 + [1, 2, 3])
        assert not collapsed([0] * 8 + [1])

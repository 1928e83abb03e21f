"""Agreement with a truth, against scikit-learn and against every possible matching."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from bags import Array
from flawsort.errors import InputError
from flawsort.metrics import agreement, match_clusters


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

"""How much of something groups explain."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.health.measures import (
    explained,
    explained_kinds,
    explained_order,
    ranked_apart,
    told_apart,
    without_odd,
)

RNG = np.random.default_rng(3)
NOISE = RNG.normal(0, 1, 4000)
LABELS = np.arange(4000) % 2


def test_the_share_of_the_variance() -> None:
    assert abs(explained(NOISE, LABELS)) < 0.01
    # Between the means 0 and 2 lies a variance of 1, as large as that of the noise.
    assert explained(NOISE + 2 * LABELS, LABELS) == pytest.approx(0.5, abs=0.03)
    assert told_apart(NOISE + 3 * LABELS, LABELS == 1) == pytest.approx(3.0, abs=0.2)


def test_odd_values_are_moved_to_the_next() -> None:
    values = np.arange(40.0)[RNG.permutation(40)][:, None]
    moved = without_odd(values)
    assert (moved.min(), moved.max()) == (7, 32)
    inner = (values >= 7) & (values <= 32)
    np.testing.assert_array_equal(moved[inner], values[inner])
    assert without_odd(np.r_[np.zeros(33), np.ones(7)][:, None]).max() == 0
    assert without_odd(np.r_[np.zeros(32), np.ones(8)][:, None]).max() == 1
    # Of a large set a tenth, and of a tiny one at most half.
    assert without_odd(np.r_[np.zeros(901), np.ones(99)][:, None]).max() == 0
    assert len(np.unique(without_odd(np.arange(5.0)[:, None]))) == 1


def test_kinds_are_explained_beyond_chance() -> None:
    assert explained_kinds(["a", "b"] * 2000, LABELS) == pytest.approx(1.0)
    assert explained_kinds(["a", "a", "b", "b"] * 1000, LABELS) == pytest.approx(0.0, abs=0.01)
    assert explained_kinds(["a"] * 4000, LABELS) == 0.0
    # Thirty groups of two images each explain half of the entropy by chance alone.
    labels, means = np.arange(60) // 2, []
    for seed in range(20):
        folders = np.random.default_rng(seed).permutation(list("ab" * 30))
        means.append(explained_kinds(folders.tolist(), labels))
    assert abs(np.mean(means)) < 0.05


def test_neighbours_in_an_order() -> None:
    days = np.arange(100) / 24
    halves = np.arange(100) // 50
    # One of 99 pairs is of both groups, where 50 of 99 would be by chance.
    by_chance = 49 / 99
    expected = (98 / 99 - by_chance) / (1 - by_chance)
    assert explained_order(days, halves) == pytest.approx(expected)
    assert explained_order(days, LABELS[:100]) < 0
    mixed = [explained_order(days, RNG.permutation(halves)) for _ in range(50)]
    assert abs(np.mean(mixed)) < 0.05
    assert explained_order(np.where(days > 1, np.nan, days), halves) == 0
    assert explained_order(np.floor(days), halves) == 0  # days only
    assert explained_order(days, np.arange(100) // 100) == 0  # one group


def test_shares_of_pairs() -> None:
    inside = LABELS[:60] == 1
    assert ranked_apart(np.where(inside, 1.0, 2.0), inside) == 1
    assert ranked_apart(np.zeros(60), inside) == 0.5
    naive = np.mean([[one > other for other in NOISE[:60][~inside]] for one in NOISE[:60][inside]])
    assert ranked_apart(NOISE[:60], inside) == pytest.approx(max(naive, 1 - naive))
    assert ranked_apart(NOISE[:60], np.arange(60) < 7) == 0

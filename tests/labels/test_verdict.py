"""The curve of missed flaws against false alarms, from answers that did not teach."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flawsort.labels.accuracy import wilson
from flawsort.labels.groups import Example, Group, Labelling, first_labelling
from flawsort.labels.suggestions import TeachingSpace, teach
from flawsort.labels.verdict import MOST_THRESHOLDS, verdict_curve
from flawsort.runs.run import Run
from helpers.runs import build_run

DIM = 10
CLUSTERS = np.repeat([0, 1, 2], 40).tolist()
GROUPS = {0: Group(0, "dent"), 1: Group(1, "streak"), 2: Group(2, role="normal")}


def run_of(spread: float, seed: int = 0) -> Run:
    """Two kinds of flaws and normal images. spread: how much they overlap."""
    rng = np.random.default_rng(seed)
    middles = 3 * np.eye(DIM)[CLUSTERS]
    embeddings = middles + spread * rng.standard_normal((len(CLUSTERS), DIM))
    return build_run(CLUSTERS, dim=DIM, embeddings=embeddings.astype(np.float32))


def answered(run: Run, rows: list[int], labels: list[int] | None = None, **more: Any) -> Labelling:
    """A person has said what these rows are: their cluster, or these labels."""
    first = first_labelling(run)
    now, confirmed = first.labels.copy(), first.confirmed.copy()
    now[rows] = run.labels[rows] if labels is None else labels
    confirmed[rows] = True
    return replace(first, groups=GROUPS, labels=now, confirmed=confirmed, **more)


EVERY = list(range(0, 120, 2))


def test_nothing_below_ten_answers_of_each_side() -> None:
    run = run_of(0.3)
    space = TeachingSpace.of(run)
    assert verdict_curve(first_labelling(run), space) is None
    nine = [*range(9), *range(80, 100)]
    assert verdict_curve(answered(run, nine), space) is None
    assert verdict_curve(answered(run, [*range(20), *range(80, 89)]), space) is None
    found = verdict_curve(answered(run, [*range(10), *range(80, 90)]), space)
    assert found is not None
    assert (found.n_flaws, found.n_normal) == (10, 10)


def test_against_loops() -> None:
    """Each part is judged by a model that is taught by the other nine."""
    run = run_of(1.0)
    space, labelling = TeachingSpace.of(run), answered(run, EVERY)
    chances = {}
    sides = (
        [row for row in EVERY if run.labels[row] != 2],
        [row for row in EVERY if run.labels[row] == 2],
    )
    for fold in range(10):
        out = [row for side in sides for place, row in enumerate(side) if place % 10 == fold]
        taught = teach(answered(run, [row for row in EVERY if row not in out]), space)
        assert taught is not None
        for row in out:
            said = taught.probabilities(space.coordinates[[row]])
            new = said[0, -1] > 0.5  # what is called a new kind is not OK
            chances[row] = 0.0 if new else said[0, taught.groups.index(2)]
    curve = verdict_curve(labelling, space)
    assert curve is not None
    thresholds = [cost.threshold for cost in curve.costs]
    assert thresholds == sorted(set(thresholds))
    assert (thresholds[0], thresholds[-1]) == (0.0, 1.0)
    np.testing.assert_allclose(thresholds[1:-1], sorted(chances.values()), rtol=1e-6)
    for cost in curve.costs[::7]:
        at = cost.threshold * (1 - 1e-6)  # one row at a time is rounded differently
        missed = sum(chances[row] >= at for row in sides[0])
        alarms = sum(chances[row] < at for row in sides[1])
        assert (cost.missed, cost.false_alarms) == (missed, alarms)
        assert cost.missed_interval == wilson(missed / len(sides[0]), len(sides[0]))
        assert cost.false_alarms_interval == wilson(alarms / len(sides[1]), len(sides[1]))
    assert (curve.costs[0].missed, curve.costs[0].false_alarms) == (len(sides[0]), 0)
    missed = [cost.missed for cost in curve.costs]
    alarms = [cost.false_alarms for cost in curve.costs]
    assert missed == sorted(missed, reverse=True)
    assert alarms == sorted(alarms)
    assert verdict_curve(labelling, space) == curve


def test_images_that_differ_clearly_cost_nothing() -> None:
    run = run_of(0.2)
    curve = verdict_curve(answered(run, EVERY), TeachingSpace.of(run))
    assert curve is not None
    assert any(cost.missed == cost.false_alarms == 0 for cost in curve.costs)


def test_what_looks_like_a_new_kind_is_not_ok() -> None:
    """A normal image that is unlike all others is a false alarm at every threshold above 0."""
    embeddings = run_of(0.3).embeddings.copy()
    embeddings[80] = 6 * np.eye(DIM)[9] + 0.2 * embeddings[80]
    run = build_run(CLUSTERS, dim=DIM, embeddings=embeddings)
    curve = verdict_curve(answered(run, EVERY), TeachingSpace.of(run))
    assert curve is not None
    assert [cost.false_alarms for cost in curve.costs][:2] == [0, 1]


def test_answers_at_random_are_not_flattered() -> None:
    """A model that had learnt these answers by heart would know them all."""
    rng = np.random.default_rng(0)
    run = run_of(1.0)
    rows = list(range(120))
    labelling = answered(run, rows, rng.choice([0, 2], len(rows)).tolist())
    curve = verdict_curve(labelling, TeachingSpace.of(run))
    assert curve is not None
    shares = [
        cost.missed / curve.n_flaws + cost.false_alarms / curve.n_normal for cost in curve.costs
    ]
    assert min(shares) > 0.7


def test_images_outside_the_run_count() -> None:
    run = run_of(0.3)
    space = TeachingSpace.of(run)
    normal = [
        Example(f"{row}.png", f"{row:064}", 2, np.asarray(run.embeddings[row], np.float32))
        for row in range(80, 95)
    ]
    labelling = answered(run, list(range(30)), examples=tuple(normal))
    curve = verdict_curve(labelling, space)
    assert curve is not None
    assert (curve.n_flaws, curve.n_normal) == (30, 15)
    assert any(cost.missed == cost.false_alarms == 0 for cost in curve.costs)


@pytest.mark.parametrize("n", [100, 1200])
def test_a_curve_has_a_limited_number_of_thresholds(n: int) -> None:
    rng = np.random.default_rng(1)
    clusters = (rng.permutation(n) % 3).tolist()
    run = build_run(clusters, dim=DIM, embeddings=rng.standard_normal((n, DIM)).astype(np.float32))
    curve = verdict_curve(answered(run, list(range(n))), TeachingSpace.of(run))
    assert curve is not None
    assert len(curve.costs) <= MOST_THRESHOLDS
    assert (curve.costs[0].threshold, curve.costs[-1].threshold) == (0.0, 1.0)

"""How often the groups are right, as measured: against loops, and over many simulated reviews."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.labels.accuracy import (
    LEAST_ANSWERS,
    Estimate,
    audited,
    audited_groups,
    next_audit,
    suggestions_were_right,
    wilson,
)
from flawsort.labels.edit_checks import Edit
from flawsort.labels.edits import apply
from flawsort.labels.groups import Answer, Group, Labelling
from flawsort.labels.queue import next_question
from flawsort.labels.space import Space
from flawsort.labels.suggestions import TeachingSpace, suggest
from helpers.bags import Array
from helpers.plates import ROOT

TREE = np.empty((0, 4))
REVIEWS = 200
QUEUE_REVIEWS = 24
WANTED = 0.85


@pytest.fixture(scope="module")
def people() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("simulated_person")


def made_up(seed: int) -> tuple[Array, Array]:
    """Embeddings and the kinds of their images, which overlap more or less."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(3, 7))
    truth = rng.choice(k, int(rng.integers(90, 200)), p=rng.dirichlet(np.full(k, 3.0)))
    truth = np.unique(truth, return_inverse=True)[1]
    values = 1.5 * rng.standard_normal((k, 12))[truth]
    values += rng.uniform(0.4, 3.5) * rng.standard_normal((len(truth), 12))
    return values.astype(np.float32), truth


def begun(values: Array, k: int) -> tuple[Labelling, TeachingSpace]:
    seen, n = Space.of(values), len(values)
    space = TeachingSpace(seen, seen.coordinates(values), np.zeros(n, bool))
    labels = cut(ward_linkage(values), k)
    groups = {number: Group(number) for number in range(k)}
    return Labelling(groups, labels, np.zeros(n, bool), k, k), space


# ---- the measures ----


def test_wilson() -> None:
    # The ends are where a share would be just 1.645 standard deviations from the measured one.
    for share, n in ((0.5, 10), (0.9, 40), (0.25, 12.5)):
        for end in wilson(share, n):
            assert abs(share - end) == pytest.approx(1.6448536 * np.sqrt(end * (1 - end) / n))
    assert wilson(1.0, 20)[1] == 1.0
    assert wilson(0.0, 20)[0] == 0.0
    assert wilson(1.0, 20)[0] == pytest.approx(20 / (20 + 1.6448536**2))


def test_estimates() -> None:
    plain = Estimate(20, 15)
    assert plain.share == 0.75
    assert plain.interval == wilson(0.75, 20)
    few = Estimate(20, 15, others=20)  # as many others as answers: half as much is known
    low, high = wilson(0.75, 10)
    assert few.interval == (np.floor(low * 20) / 20, np.ceil(high * 20) / 20)
    many = Estimate(20, 15, others=10**9)
    np.testing.assert_allclose(many.interval, plain.interval, atol=1e-6)
    assert Estimate(20, 20, others=0).interval == wilson(1.0, 20)


def test_suggestions_against_answers() -> None:
    now, _ = begun(made_up(0)[0], 4)
    given = [Answer(0, 0)] * 6 + [Answer(1, 2)] + [Answer(3, -2)]
    few = replace(now, answers=dict(enumerate([*given, Answer(2, 2, together=True)])))
    assert len(few.answers) == LEAST_ANSWERS - 1
    assert suggestions_were_right(few) is None
    enough = replace(now, answers={**few.answers, "a": Answer(2, 3)})
    assert suggestions_were_right(enough) == Estimate(10, 7, together=1)
    normal = {group: replace(one, role="normal") for group, one in now.groups.items() if group > 1}
    same = replace(enough, groups={**now.groups, **normal})
    assert suggestions_were_right(same) == Estimate(10, 8, together=1)  # normal groups are one kind


def audit(now: Labelling, row: int, to: int) -> Labelling:
    return apply(Edit("audit", {"image": row, "to": to}), now, TREE)


def test_the_audit_of_what_was_decided() -> None:
    now, space = begun(made_up(1)[0], 3)
    rows = [int(row) for group in range(3) for row in now.members(group)[:4]]
    now = apply(Edit("accept", {"images": rows}), now, TREE)
    was = {row: int(now.labels[row]) for row in rows}
    for place, row in enumerate(rows):
        if place < 9:
            assert audited(now, space) is None
        wrong = place % 4 == 3
        now = audit(now, row, (was[row] + wrong) % 3)
    found = audited(now, space)
    assert found == Estimate(12, 9, len(now.labels) - 12)


def test_the_audit_of_what_was_suggested_leaves_its_answers_out() -> None:
    values, truth = made_up(5)
    now, space = begun(values, int(truth.max()) + 1)
    now = apply(Edit("accept", {"images": list(range(0, 30, 3))}), now, TREE)
    rows = [row for row in range(1, 90, 3) if not now.confirmed[row]][:20]
    before = now
    for row in rows:
        now = audit(now, row, int(truth[row]))
    right = 0
    for fold in range(10):
        some = rows[fold::10]
        labels, confirmed = now.labels.copy(), now.confirmed.copy()
        labels[some], confirmed[some] = before.labels[some], False
        without = replace(now, labels=labels, confirmed=confirmed, audits={})
        found = suggest(without, space).groups
        right += sum(int(found[row]) == int(truth[row]) for row in some)
    assert audited(now, space) == Estimate(20, right, len(truth) - 20)


def test_images_that_nobody_can_tell_do_not_count() -> None:
    now, space = begun(made_up(2)[0], 3)
    for row in range(10):
        now = audit(now, row, 0)
    doubted = apply(Edit("audit", {"image": 10, "to": "unsure"}), now, TREE)
    found = audited(doubted, space)
    assert found is not None
    assert (found.n, found.others) == (10, len(now.labels) - 11)


def test_the_audit_empties_a_group() -> None:
    """The cluster with the largest id has one image, which the audit puts elsewhere: the cluster is
    gone, and what was said of it counts as wrong."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [20, 20, 1])
    values = rng.normal(0, 1, (41, 8)) + np.array([0, 3, 9])[labels, None]
    seen = Space.of(values.astype(np.float32))
    space = TeachingSpace(seen, seen.coordinates(values), np.zeros(41, bool))
    groups = {group: Group(group) for group in range(3)}
    now = Labelling(groups, labels, np.zeros(41, bool), 3, 3)
    for row in [*range(5), *range(20, 25)]:
        now = audit(now, row, int(labels[row]))
    assert audited(now, space) == Estimate(10, 10, 31)
    now = audit(now, 40, 0)
    assert sorted(now.groups) == [0, 1]
    assert audited(now, space) == Estimate(11, 10, 30)
    assert audited_groups(now, space, now.labels).keys() == {0, 1}


def test_the_audit_of_each_group() -> None:
    now, space = begun(made_up(1)[0], 3)
    rows = {group: [int(row) for row in now.members(group)[:12]] for group in range(3)}
    now = apply(
        Edit("accept", {"images": [row for some in rows.values() for row in some]}), now, TREE
    )
    shown = now.labels.copy()
    for place, row in enumerate(rows[0]):  # nine of twelve are right
        now = audit(now, row, 1 if place % 4 == 3 else 0)
    for row in rows[1][:9]:
        now = audit(now, row, 1)
    found = audited_groups(now, space, shown)
    outside = np.count_nonzero(shown == 0) - 12
    assert found[0] == (12, Estimate(12, 9, outside))
    assert found[1] == (9, None)
    assert found[2] == (0, None)
    # Both are normal: then an image of the one was right in the other, too.
    normal = {group: replace(one, role="normal") for group, one in now.groups.items() if group < 2}
    one = audited_groups(replace(now, groups={**now.groups, **normal}), space, shown)
    assert one[0] == one[1]
    assert one[0][1] is not None
    assert (one[0][1].n, one[0][1].right) == (21, 21)


def test_the_audit_is_drawn_at_random() -> None:
    now, _ = begun(made_up(3)[0], 3)
    n = len(now.labels)
    order: list[int] = []
    while (row := next_audit(now, 7)) is not None:
        assert row == next_audit(now, 7)
        order.append(row)
        now = audit(now, row, 0)
    assert sorted(order) == list(range(n))
    assert order != sorted(order)
    again, _ = begun(made_up(3)[0], 3)
    firsts = [next_audit(again, seed) for seed in range(300)]
    assert len(set(firsts)) > n / 2


# ---- over many reviews ----


def reviewed(people: ModuleType, seed: int, *, careless: bool) -> tuple[Estimate, float]:
    """The estimate of an audit after a review, and the share of the other images that is right."""
    values, truth = made_up(seed)
    rng = np.random.default_rng(seed)
    k = int(truth.max()) + 1
    now, space = begun(values, k)
    person = people.Person(truth, careless=careless)
    if careless:
        person.take_over(now)
    review = people.Review(now, space)
    for _ in review.steps(person):
        if review.clicks >= k:
            break
    for _ in range(int(rng.choice([12, 25, 40]))):
        row: Any = next_audit(review.labelling, seed)
        review.apply(person.audit(row, review.labelling), review.state)
    state = review.state
    others = np.ones(len(truth), bool)
    others[list(state.labelling.audits)] = False
    found = audited(state.labelling, space)
    assert found is not None
    return found, float(person.right(state)[others].mean())


def answered(people: ModuleType, seed: int) -> tuple[Estimate | None, float]:
    """What is said of the suggestions after a review in the queue by a careful person, who picks
    out the odd images of a question and answers for the rest at once; and how many of those asked
    about, for which something was suggested, were right when they were asked about."""
    values, truth = made_up(seed)
    k = int(truth.max()) + 1
    now, space = begun(values, k)
    person, review, right = people.Person(truth), people.Review(now, space), list[bool]()
    while review.clicks < 12 * k:
        question = next_question(state := review.state, space)
        if question is None:
            break
        edits, clicks = person.answer(question, state.labelling)
        if question.kind != "pair":
            rows = np.array(question.rows)
            known = rows[~np.isnan(state.suggestions.probability[rows])]
            right += person.right(state)[known].tolist()
        review.clicks += clicks
        for one in edits:
            review.apply(one, review.state)  # the model has learned from the one before
    return suggestions_were_right(review.labelling), float(np.mean(right))


def test_the_interval_of_the_suggestions_holds_the_truth(people: ModuleType) -> None:
    held, off, truths = [], [], []
    for seed in range(QUEUE_REVIEWS):
        found, truth = answered(people, seed)
        assert found is not None
        low, high = found.interval
        held.append(low <= truth <= high)
        off.append(found.share - truth)
        truths.append(truth)
    assert np.mean(held) >= WANTED
    assert abs(np.mean(off)) < 0.03  # and not off to one side
    assert np.ptp(truths) > 0.3


def test_the_interval_of_the_audit_holds_the_truth(people: ModuleType) -> None:
    """Also for people who accept everything, who think that their groups are right."""
    for careless in (False, True):
        held, truths = [], []
        for seed in range(REVIEWS // 2):
            found, truth = reviewed(people, seed, careless=careless)
            low, high = found.interval
            held.append(low <= truth <= high)
            truths.append(truth)
        assert np.mean(held) >= WANTED
        assert np.ptp(truths) > 0.4  # easy sets and hard ones

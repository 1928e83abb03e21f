"""The simulated person: what they say, what it costs, and that it is true."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from flawsort.labels.edits import apply
from flawsort.labels.groups import Group, Labelling
from flawsort.labels.queue import Question
from flawsort.labels.space import Space
from flawsort.labels.suggestions import TeachingSpace
from helpers.plates import ROOT

TRUTH = np.repeat([0, 1, 2], [30, 20, 10])
TREE = np.empty((0, 4))


@pytest.fixture(scope="module")
def people() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("simulated_person")


def first() -> Labelling:
    labels = np.where(TRUTH == 2, 1, TRUTH)  # two kinds in one cluster
    groups = {0: Group(0), 1: Group(1)}
    return Labelling(groups, labels, np.zeros(len(TRUTH), bool), 2, 2)


def space() -> TeachingSpace:
    rng = np.random.default_rng(0)
    values = 2 * rng.standard_normal((3, 10))[TRUTH] + rng.standard_normal((len(TRUTH), 10))
    seen = Space.of(values.astype(np.float32))
    return TeachingSpace(seen, seen.coordinates(values), np.zeros(len(TRUTH), bool))


def group_question(*rows: int) -> Question:
    return Question("group", 1, rows, "")


def test_one_kind_is_one_answer(people: ModuleType) -> None:
    person = people.Person(TRUTH)
    (edit,), clicks = person.answer(group_question(30, 31, 32), first())
    assert (edit.kind, clicks) == ("move", 1)
    assert edit.payload == {"images": [30, 31, 32], "to": "new", "name": "kind 1"}
    now = apply(edit, first(), TREE)
    (again,), _ = person.answer(Question("image", 1, (33,), ""), now)
    assert again.payload == {"images": [33], "to": person.groups[1]}


def test_each_image_of_another_kind_costs_an_answer(people: ModuleType) -> None:
    person = people.Person(TRUTH, normal=2)
    edits, clicks = person.answer(group_question(30, 50, 31, 51, 0), first())
    assert clicks == len(edits) == 4
    now = first()
    for edit in edits:
        now = apply(edit, now, TREE)
    said = {row: now.groups[int(now.labels[row])] for row in (30, 31, 50, 51, 0)}
    assert said[30] == said[31]
    assert said[50] == said[51]
    assert said[50].role == "normal"
    assert len({group.id for group in said.values()}) == 3
    assert now.confirmed.sum() == 5


def test_careless_people_accept_everything_but_look_at_an_audit(people: ModuleType) -> None:
    person = people.Person(TRUTH, careless=True)
    person.take_over(first())
    assert person.groups == {0: 0, 1: 1}
    (edit,), clicks = person.answer(group_question(30, 50), first())
    assert (edit.kind, edit.payload, clicks) == ("accept", {"images": [30, 50]}, 1)
    assert person.audit(0, first()).payload == {"image": 0, "to": 0}
    assert person.audit(50, first()).payload == {"image": 50, "to": "new", "name": "kind 2"}


@pytest.mark.parametrize(("other", "kind"), [((31, 32), "merge"), ((50, 51), "different")])
def test_pairs(people: ModuleType, other: Any, kind: str) -> None:
    question = Question("pair", 0, (30, 33), "", 1, other)
    (edit,), clicks = people.Person(TRUTH).answer(question, first())
    assert (edit.kind, clicks) == (kind, 1)
    assert edit.payload["groups"] == [0, 1]
    ((careless,), _) = people.Person(TRUTH, careless=True).answer(question, first())
    assert careless.kind == "different"


def test_a_whole_review(people: ModuleType) -> None:
    person, review = people.Person(TRUTH), people.Review(first(), space())
    shares, clicks = [], [0]
    for state in review.steps(person):
        shares.append(person.right(state).mean())
        clicks.append(review.clicks)
    assert review.labelling.confirmed.all()
    assert shares[-1] == 1.0
    assert (np.diff(clicks) > 0).all()
    assert review.clicks < len(TRUTH)  # questions about many images at once pay


def test_shares_after_some_answers(people: ModuleType) -> None:
    review = people.Review(first(), space())
    person = people.Person(TRUTH)
    after = {0: people.Shares(0.0, 0.0)}  # by clicks: right of all, and of those not decided
    for state in review.steps(person):
        right, open_ = person.right(state), ~state.labelling.confirmed
        rest = right[open_].mean() if open_.any() else after[max(after)].rest
        after[review.clicks] = people.Shares(float(right.mean()), float(rest))
    wanted = [0, 1, 2, 5, 9, 1000]
    found = people.shares_after(people.Person(TRUTH), people.Review(first(), space()), wanted)
    assert found == [after[max(one for one in after if one <= clicks)] for clicks in wanted]
    assert found[0].all == 0.0
    assert found[-1].all == 1.0
    assert any(one.rest < one.all for one in found)


def test_the_rest_is_what_nobody_has_named(people: ModuleType) -> None:
    review, person = people.Review(first(), space()), people.Person(TRUTH)
    rows = [0, 1, 30, 31]  # none of the last kind
    found = people.share_after_naming(person, review, rows)
    right = person.right(review.state)
    rest = np.setdiff1d(np.arange(len(TRUTH)), rows)
    assert found.rest == right[rest].mean() < found.all == right.mean()

"""What is asked next, on groups made up for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flawsort.labels.edit_checks import Edit
from flawsort.labels.edits import apply
from flawsort.labels.groups import Group, Labelling, Role
from flawsort.labels.queue import (
    CLUSTER_EXAMPLES,
    DOUBTFUL,
    EXAMPLES,
    LEAST_PROBABILITY,
    PAIR_EXAMPLES,
    Question,
    next_question,
    progress,
)
from flawsort.labels.space import Space
from flawsort.labels.state import State
from flawsort.labels.suggestions import TeachingSpace
from helpers.bags import Array
from helpers.speed import within

SIZES = (20, 16, 12, 8)
TRUTH = np.repeat(np.arange(4), SIZES)


def points(spread: float, truth: Any = TRUTH, dim: int = 16, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    middles = 2.0 * rng.standard_normal((int(max(truth)) + 1, dim))
    values = middles[truth] + spread * rng.standard_normal((len(truth), dim))
    return np.asarray(values, np.float32)


def space_of(values: Array) -> TeachingSpace:
    seen = Space.of(values)
    return TeachingSpace(seen, seen.coordinates(values), np.zeros(len(values), bool))


SPACE = space_of(points(0.5))
HARD = space_of(points(1.6))


def labelled(
    labels: Sequence[int] | Array = TRUTH,
    *,
    confirmed: Sequence[int] | Array = (),
    names: Mapping[int, str] | None = None,
    roles: Mapping[int, Role] | None = None,
) -> Labelling:
    names, roles = names or {}, roles or {}
    ids = sorted({*np.asarray(labels).tolist(), *names, *roles})
    done = np.zeros(len(labels), bool)
    done[np.asarray(confirmed, int)] = True
    groups = {one: Group(one, names.get(one, ""), roles.get(one, "flaw")) for one in ids}
    return Labelling(groups, np.asarray(labels, np.int64), done, len(ids), max(ids) + 1)


def state_of(labelling: Labelling, space: TeachingSpace = SPACE) -> State:
    return State(0, labelling, None, None, 0, True, lambda: space)


def asked(labelling: Labelling, space: TeachingSpace = SPACE, **options: Any) -> Question | None:
    return next_question(state_of(labelling, space), space, **options)


def ask(labelling: Labelling, space: TeachingSpace = SPACE, **options: Any) -> Question:
    question = asked(labelling, space, **options)
    assert question is not None
    return question


def taught(each: int = 2, *, named: bool = True) -> Labelling:
    """The true groups, with the first images of each decided."""
    rows = [int(row) for kind in range(4) for row in np.flatnonzero(kind == TRUTH)[:each]]
    names = {kind: f"kind {kind}" for kind in range(4)} if named else None
    return labelled(confirmed=rows, names=names)


# ---- clusters that nobody has said anything about ----


def test_the_largest_cluster_comes_first() -> None:
    question = ask(labelled())
    assert (question.kind, question.group) == ("group", 0)
    inside = SPACE.coordinates[TRUTH == 0].astype(np.float64)
    far = ((inside - inside.mean(axis=0)) ** 2).sum(axis=1)
    assert list(question.rows) == np.argsort(far)[:CLUSTER_EXAMPLES].tolist()
    assert question.why == "Nobody has said yet what this group of 20 images is."
    skipped = ask(labelled(), skipped=[0])
    assert skipped.group == 1


def test_a_cluster_that_was_named_is_not_asked_about_again() -> None:
    question = ask(labelled(names={0: "dents"}, confirmed=[0, 1, 2]))
    assert question.group == 1
    assert set(question.rows) <= set(np.flatnonzero(TRUTH == 1).tolist())


def test_normal_clusters_are_one() -> None:
    now = labelled(roles={1: "normal", 2: "normal"})
    question = ask(now)
    assert question.group == 1  # 16 + 12 images
    assert question.why == "Nobody has said yet what this group of 28 images is."


def test_unsure_groups_are_no_cluster() -> None:
    now = labelled(roles={0: "unsure"})
    assert ask(now).group == 1


# ---- bunches ----


def test_a_bunch_has_typical_and_doubtful_images_none_of_them_decided() -> None:
    now = taught()
    question = ask(now, HARD)
    suggestions = state_of(now, HARD).suggestions
    rows = list(question.rows)
    assert question.kind == "group"
    assert len(rows) == len(set(rows)) <= EXAMPLES
    assert not now.confirmed[rows].any()
    assert (suggestions.groups[rows] == question.group).all()
    assert (suggestions.probability[rows] >= LEAST_PROBABILITY).all()
    clear, doubtful = rows[:-DOUBTFUL], rows[-DOUBTFUL:]
    sure = suggestions.probability
    assert sure[clear].min() > sure[doubtful].min()
    title = now.groups[question.group].title
    assert question.why == f"These are suggested to be '{title}', some of them with doubt."


def test_kinds_with_few_examples_come_first() -> None:
    each = {0: 1, 1: 9, 2: 9, 3: 4}
    rows = [int(row) for kind in range(4) for row in np.flatnonzero(kind == TRUTH)[: each[kind]]]
    now = labelled(confirmed=rows, names={kind: f"kind {kind}" for kind in range(4)})
    assert ask(now, HARD).group == 0


def test_skipped_groups_and_answered_images_are_left_out() -> None:
    now = taught()
    question = ask(now, HARD)
    assert ask(now, HARD, skipped=[question.group]).group != question.group
    again = ask(now, HARD, answered=question.rows)
    assert not set(again.rows) & set(question.rows)


# ---- single images ----


def test_images_that_cannot_be_placed_are_asked_one_by_one() -> None:
    now = taught()
    suggestions = state_of(now, HARD).suggestions
    question = ask(now, HARD, skipped=range(4))
    assert (question.kind, len(question.rows)) == ("image", 1)
    (row,) = question.rows
    assert not now.confirmed[row]
    assert question.group == suggestions.groups[row]
    assert question.why.startswith("It is not clear whether this is 'kind ")
    # Doubtful beside the others, though not the most doubtful of all, which may be like nothing.
    open_ = ~now.confirmed
    assert suggestions.probability[row] <= np.median(suggestions.probability[open_])
    assert ask(now, HARD, skipped=range(4), answered=[row]).rows != (row,)


def test_an_outlier_waits_although_it_is_doubtful() -> None:
    values = points(1.6)
    values[5] += 10.0  # like nothing else
    space = space_of(values)
    now, order = taught(), list[int]()
    for _ in range(11):
        order.append(ask(now, space, skipped=range(4), answered=order).rows[0])
    sure = state_of(now, space).suggestions.probability
    doubtful = np.flatnonzero(~now.confirmed)[np.argsort(sure[~now.confirmed])].tolist()
    assert doubtful.index(5) < 4
    assert 5 not in order[:8]


def test_all_images_are_asked_about_in_the_end() -> None:
    now, seen = taught(1), 0
    for _ in range(200):
        question = asked(now, HARD)
        if question is None:
            break
        rows = list(question.rows)
        assert not now.confirmed[rows].any()
        kinds = {int(TRUTH[row]) for row in rows}
        for kind in kinds:
            some = [row for row in rows if TRUTH[row] == kind]
            now = apply(Edit("move", {"images": some, "to": kind}), now, np.empty((0, 4)))
        seen += len(rows)
    assert asked(now, HARD) is None
    assert seen == len(TRUTH) - 4
    assert progress(now) == (len(TRUTH), len(TRUTH))


def test_nothing_is_left_to_ask() -> None:
    assert asked(labelled(confirmed=range(len(TRUTH)))) is None
    now = taught()
    assert asked(now, answered=range(len(TRUTH))) is None


# ---- pairs ----


def halves() -> tuple[Labelling, TeachingSpace]:
    """Group 4 is half of group 0, and both were accepted without a name."""
    labels = TRUTH.copy()
    labels[1:20:2] = 4
    return labelled(labels, confirmed=range(len(TRUTH) - 4)), space_of(points(1.0))


def test_two_groups_that_may_be_one() -> None:
    now, space = halves()
    question = ask(now, space)
    assert (question.kind, question.group, question.other) == ("pair", 0, 4)
    for rows, group in ((question.rows, 0), (question.other_rows, 4)):
        assert len(rows) == PAIR_EXAMPLES
        assert (now.labels[list(rows)] == group).all()
    assert question.why == "'Group 0' and 'Group 4' look alike. Are they the same?"


def test_what_is_known_to_be_different_is_not_asked() -> None:
    now, space = halves()
    said = apply(Edit("different", {"groups": [4, 0]}), now, np.empty((0, 4)))
    assert ask(said, space).kind != "pair"
    assert ask(now, space, skipped=[4]).kind != "pair"
    named = {**now.groups, 0: Group(0, "dents"), 4: Group(4, "pits")}
    assert ask(replace(now, groups=named), space).kind != "pair"  # two names say it
    one = {**now.groups, 0: Group(0, "dents")}
    assert ask(replace(now, groups=one), space).kind == "pair"
    merged = apply(Edit("merge", {"groups": [4], "into": 0}), now, np.empty((0, 4)))
    assert ask(merged, space).kind != "pair"


# ---- and ----


@pytest.mark.parametrize("seed", range(3))
def test_the_same_groups_give_the_same_question(seed: int) -> None:
    space = space_of(points(1.2, seed=seed))
    now = taught(1 + seed)
    assert asked(now, space) == asked(now, space_of(points(1.2, seed=seed)))


def test_progress_counts_what_people_decided() -> None:
    assert progress(taught()) == (8, len(TRUTH))
    several = replace(taught(), several={50: (1,)})
    assert progress(several) == (9, len(TRUTH))


def test_no_sentence_claims_more_than_is_known() -> None:
    for now in (labelled(), taught(), halves()[0]):
        why = ask(now, HARD).why
        assert "%" not in why
        assert "belong together" not in why


def test_one_image() -> None:
    space = TeachingSpace(
        Space.of(np.ones((1, 3), np.float32)), np.zeros((1, 1), np.float32), np.zeros(1, bool)
    )
    now = labelled([0])
    question = ask(now, space)
    assert (question.kind, question.rows) == ("image", (0,))
    assert asked(now, space, answered=[0]) is None


def test_twenty_thousand_images_and_forty_kinds() -> None:
    rng = np.random.default_rng(0)
    n, k = 20_000, 40
    truth = rng.integers(0, k, n)
    space = space_of(points(2.0, truth, dim=256))
    confirmed = rng.permutation(n)[:800]
    now = labelled(truth, confirmed=confirmed, names={kind: str(kind) for kind in range(k)})
    state = state_of(now, space)
    assert state.suggestions.taught is not None
    assert within(0.5, lambda: next_question(state, space)) is not None  # 0.04 s

"""What is suggested for undecided images, from what people said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.labels.edit_checks import Edit
from flawsort.labels.edits import apply
from flawsort.labels.example_checks import packed
from flawsort.labels.groups import Group, Labelling
from flawsort.labels.space import Space
from flawsort.labels.suggestions import (
    TYPICAL,
    TeachingSpace,
    class_of,
    decided,
    examples_of,
    judge,
    settled,
    suggest,
    teach,
)
from helpers.bags import Array
from helpers.speed import within

SIZES = [14, 12, 10, 8]
TRUTH = np.repeat(np.arange(4), SIZES)
N = len(TRUTH)


def points(spread: float = 0.6, dim: int = 12) -> Array:
    rng = np.random.default_rng(3)
    middles = 3.0 * rng.standard_normal((4, dim))
    return np.asarray(middles[TRUTH] + spread * rng.standard_normal((N, dim)), np.float32)


POINTS = points()
LINKAGE = ward_linkage(POINTS)


def space(looks_normal: Any = None) -> TeachingSpace:
    seen = Space.of(POINTS)
    normal = np.zeros(N, bool) if looks_normal is None else looks_normal
    return TeachingSpace(seen, seen.coordinates(POINTS), normal)


SPACE = space()


def first(k: int = 4) -> Labelling:
    groups = {number: Group(number) for number in range(k)}
    return Labelling(groups, cut(LINKAGE, k), np.zeros(N, bool), k, k)


def after(*log: Edit, before: Labelling | None = None) -> Labelling:
    now = first() if before is None else before
    for entry in log:
        now = apply(entry, now, LINKAGE)
    return now


def edit(kind: str, **payload: Any) -> Edit:
    return Edit(kind, payload)


def rows_of_kind(kind: int) -> list[int]:
    return [int(row) for row in np.flatnonzero(kind == TRUTH)]


def test_without_answers_the_clusters_are_as_they_are() -> None:
    found = suggest(first(), SPACE)
    assert found.groups.tolist() == first().labels.tolist()
    assert np.isnan(found.probability).all()
    assert (found.taught, found.n_taught) == (None, 0)


def test_answers_teach() -> None:
    one = first(1)  # everything in one group, so nothing is known but the answers
    log = [edit("move", images=rows_of_kind(kind)[:2], to="new") for kind in range(4)]
    now = after(*log, before=one)
    found = suggest(now, SPACE)
    groups = {int(found.groups[rows_of_kind(kind)[0]]) for kind in range(4)}
    assert len(groups) == 4
    for kind in range(4):
        rows = rows_of_kind(kind)
        assert (found.groups[rows] == found.groups[rows[0]]).mean() > 0.9
    open_ = ~now.confirmed
    assert np.isnan(found.probability[now.confirmed]).all()
    known = open_ & (found.groups != 0)
    assert ((found.probability[known] > 0) & (found.probability[known] <= 1)).all()
    final = settled(now, found)
    assert final.labels.tolist() == found.groups.tolist()
    assert final.confirmed.tolist() == now.confirmed.tolist()
    assert now.labels[open_].tolist() == [0] * int(open_.sum())  # and nothing was moved


def test_what_is_rejected_cannot_come_back_and_teaches() -> None:
    log = [edit("move", images=rows_of_kind(kind)[:2], to="new") for kind in range(4)]
    before = after(*log, before=first(1))
    row = rows_of_kind(2)[5]
    was = int(suggest(before, SPACE).groups[row])
    now = after(edit("reject", images=[row], group=was, at=[was]), before=before)
    found = suggest(now, SPACE)
    assert found.groups[row] != was
    assert [row, was] in examples_of(now, SPACE).rejected.tolist()
    later = after(edit("move", images=rows_of_kind(2)[6:9], to=was), before=now)
    assert suggest(later, SPACE).groups[row] != was  # whatever else is said


def test_normal_groups_are_one_kind() -> None:
    log = [edit("role", group=group, role="normal") for group in (1, 3)]
    now = after(*log)
    assert class_of(now) == {0: 0, 1: 1, 2: 2, 3: 1}
    rows = [int(now.members(group)[0]) for group in range(4)]
    taught = after(edit("accept", images=rows), before=now)
    assert set(examples_of(taught, SPACE).belongs[:, 1].tolist()) == {0, 1, 2}
    found = suggest(taught, SPACE)
    assert found.taught is not None
    assert found.taught.groups == (0, 1, 2)
    assert found.taught.normal == (1,)
    # An image stays in its own of them, although the model knows one only.
    assert (found.groups[now.members(3)] == 3).mean() > 0.8


def test_unsure_groups_are_not_taught() -> None:
    now = after(edit("role", group=2, role="unsure"), edit("accept", images=list(range(N))))
    assert 2 not in class_of(now)
    assert 2 not in examples_of(now, SPACE).belongs[:, 1]


def test_what_a_person_is_unsure_about_stays_there() -> None:
    now = after(*(edit("accept", images=first().members(group)[:3].tolist()) for group in range(4)))
    row = int(now.members(0)[-1])
    aside = after(edit("move", images=[row], to="unsure"), before=now)
    found = suggest(aside, SPACE)
    assert found.groups[row] == aside.with_role("unsure")[0]
    assert np.isnan(found.probability[row])
    # What is only known not to be of a group waits there too, and is suggested elsewhere.
    out = suggest(after(edit("reject", images=[row], group=1), before=aside), SPACE)
    assert out.groups[row] == 0
    assert out.probability[row] > 0.5


def test_a_named_group_is_taught_by_its_typical_images() -> None:
    now = after(edit("name", group=1, name="dents"))
    inside = now.members(1)
    middle = SPACE.coordinates[inside].mean(axis=0)
    far = [float(((SPACE.coordinates[row] - middle) ** 2).sum()) for row in inside]
    typical = sorted(int(inside[place]) for place in np.argsort(far)[:TYPICAL])
    assert examples_of(now, SPACE).belongs.tolist() == [[row, 1] for row in typical]
    row = next(int(row) for row in inside if row not in typical)
    said = after(edit("accept", images=[row]), before=now)
    assert examples_of(said, SPACE).belongs.tolist() == [[row, 1]]  # an answer says more
    outside = packed("a", "0" * 64, POINTS[0])
    taught = after(edit("teach", examples=[outside], to=1), before=now)
    assert examples_of(taught, SPACE).belongs.tolist() == [[N, 1]]


def test_a_normal_group_teaches_once_anything_does() -> None:
    now = after(edit("role", group=2, role="normal"))
    assert suggest(now, SPACE).taught is None  # nobody has said anything of a kind
    row = int(now.members(0)[0])
    taught = after(edit("accept", images=[row]), before=now)
    belongs = examples_of(taught, SPACE).belongs.tolist()
    normal = [place for place, group in belongs if group == 2]
    assert [row, 0] in belongs
    assert len(normal) == TYPICAL
    assert set(normal) <= set(now.members(2).tolist())
    said = after(edit("move", images=[int(now.members(1)[0])], to=2), before=taught)
    assert [place for place, group in examples_of(said, SPACE).belongs.tolist() if group == 2] == [
        int(now.members(1)[0])
    ]


def test_a_normal_group_teaches_where_others_are_only_named() -> None:
    normal = edit("role", group=2, role="normal")
    names = [edit("name", group=group, name=f"kind {group}") for group in (0, 1, 3)]
    now = after(normal, *names)
    assert {group for _, group in examples_of(now, SPACE).belongs.tolist()} == {0, 1, 2, 3}
    found = suggest(now, SPACE)
    assert found.taught is not None
    assert found.taught.normal == (2,)
    assert (found.groups[now.members(2)] == 2).all()  # none of them became a flaw
    # One name is enough, and the order of the edits is not important.
    taught = suggest(after(names[0], normal), SPACE).taught
    assert taught is not None
    assert taught.groups == (0, 2)


def test_images_in_no_group() -> None:
    """As where the group of an image is gone, and only its answer said where it is."""
    now = after(*(edit("accept", images=first().members(group)[:3].tolist()) for group in range(4)))
    row = int(now.members(0)[-1])
    labels = now.labels.copy()
    labels[row] = -1
    out = replace(now, labels=labels)
    taught = teach(out, SPACE)
    assert taught is not None
    groups, probability = judge(out, taught, SPACE, np.array([row]))
    assert groups.tolist() == [0]
    assert probability[0] > 0.5
    none_of_these = replace(out, rejected={row: (0, 1, 2, 3)})
    groups, probability = judge(none_of_these, taught, SPACE, np.array([row]))
    assert groups.tolist() == [-1]
    assert np.isnan(probability).all()


def test_images_outside_the_run_teach() -> None:
    rng = np.random.default_rng(0)
    log = []
    for kind in range(4):
        near = POINTS[rows_of_kind(kind)[:2]] + 0.1 * rng.standard_normal((2, POINTS.shape[1]))
        examples = [packed("x", f"{kind * 2 + i:064x}", one) for i, one in enumerate(near)]
        log.append(edit("teach", examples=examples, to="new", name=f"kind {kind}"))
    now = after(*log, before=first(1))
    found = suggest(now, SPACE)
    assert not now.confirmed.any()
    for kind in range(4):
        assert (found.groups[rows_of_kind(kind)] == kind + 1).mean() > 0.9


def test_several_kinds_all_teach() -> None:
    now = after(edit("several", images=[0], groups=[2, 3], at=[1]))
    assert sorted(examples_of(now, SPACE).belongs.tolist()) == [[0, 1], [0, 2], [0, 3]]
    assert decided(now)[0]


def test_images_that_look_normal_are_no_new_kind() -> None:
    normal = np.zeros(N, bool)
    normal[rows_of_kind(3)] = True
    log = [
        edit("move", images=rows_of_kind(0)[:3], to="new"),
        edit("move", images=rows_of_kind(1)[:1], to="normal"),
    ]
    now = after(*log, before=first(1))
    found = suggest(now, space(normal))
    group = int(now.with_role("normal")[0])
    rows = rows_of_kind(3)
    assert (found.groups[rows] == 0).sum() == 0  # "none of these" would leave them where they are
    assert (found.groups[rows] == group).any()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_decided_never_moves_by_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    now, said = first(), {}
    for _ in range(40):
        groups = suggest(now, SPACE).groups
        assert {row: int(groups[row]) for row in said} == said
        row, ids = int(rng.integers(N)), list(now.groups)
        kind = str(rng.choice(["move", "accept", "reject", "audit", "name", "teach"]))
        to = int(rng.choice(ids))
        if kind == "move":
            made = edit(kind, images=[row], to=to, at=[int(groups[row])])
        elif kind == "accept":
            made = edit(kind, images=[row], at=[int(groups[row])])
        elif kind == "reject" and now.groups[to].role != "unsure":
            made = edit(kind, images=[row], group=to, at=[int(groups[row])])
        elif kind == "audit":
            made = edit(kind, image=row, to=to)
        elif kind == "teach":
            made = edit(kind, examples=[packed("a", f"{row:064x}", POINTS[row])], to=to)
        else:
            made = edit("name", group=to, name=f"kind {rng.integers(9)}")
        now = after(made, before=now)
        if made.kind in ("move", "accept", "audit", "reject"):
            said.pop(row, None)
            if now.confirmed[row]:
                said[row] = int(now.labels[row])
    assert len(said) > 5


def test_twenty_thousand_images_and_forty_kinds() -> None:
    rng = np.random.default_rng(0)
    n, k = 20_000, 40
    truth = rng.integers(0, k, n)
    values = (2 * rng.standard_normal((k, 256)))[truth] + rng.standard_normal((n, 256))
    seen = Space.of(values.astype(np.float32))
    large = TeachingSpace(seen, seen.coordinates(values.astype(np.float32)), np.zeros(n, bool))
    groups = {number: Group(number, f"kind {number}") for number in range(k)}
    confirmed = np.zeros(n, bool)
    confirmed[rng.permutation(n)[:400]] = True
    now = Labelling(groups, truth, confirmed, k, k)
    suggest(now, large)
    within(0.6, lambda: suggest(now, large))  # 0.1 s

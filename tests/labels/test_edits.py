"""Edits of groups: each kind against a slow, plain answer, what it refuses, undo and redo."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import KINDS, Edit
from flawsort.labels.edits import Spent, apply, replay, spend
from flawsort.labels.example_checks import packed
from flawsort.labels.groups import Group, Labelling
from flawsort.labels.log import effective
from flawsort.labels.sentences import describe
from helpers.bags import Array, blobs
from helpers.speed import within

N = 24
LINKAGE = ward_linkage(blobs([9, 6, 5, 4], spread=2.5))
# What a labelling is to the naive answers: row -> group, rows, row -> groups, id -> (name, role).
Naive = dict[str, Any]


def edit(kind: str, **payload: Any) -> Edit:
    return Edit(kind, payload)


def first(k: int = 4) -> Labelling:
    groups = {number: Group(number) for number in range(k)}
    return Labelling(groups, cut(LINKAGE, k), np.zeros(N, bool), k, k)


def after(*log: Edit, before: Labelling | None = None) -> Labelling:
    now = first() if before is None else before
    for entry in log:
        now = apply(entry, now, LINKAGE)
    return now


def plain(labelling: Labelling) -> Naive:
    return {
        "labels": labelling.labels.tolist(),
        "confirmed": sorted(np.flatnonzero(labelling.confirmed).tolist()),
        "several": {row: list(kinds) for row, kinds in labelling.several.items()},
        "groups": {group.id: (group.name, group.role) for group in labelling.groups.values()},
        "k": labelling.k,
        "next_id": labelling.next_id,
        "rejected": {row: list(kinds) for row, kinds in labelling.rejected.items() if kinds},
        "examples": {
            one.sha256: (one.name, one.group, one.vector.tolist()) for one in labelling.examples
        },
        "answers": {image: (one.suggested, one.given) for image, one in labelling.answers.items()},
        "audits": {row: (one.group, one.decided) for row, one in labelling.audits.items()},
        "threshold": labelling.threshold,
        "different": {tuple(sorted(pair)) for pair in labelling.different},
    }


def members(state: Naive, group: int) -> list[int]:
    return [row for row in range(N) if state["labels"][row] == group]


# ---- the slow, plain answers ----


def naive(entry: Edit, before: Naive) -> Naive:
    """The state after any edit but a cut, image by image."""
    state = copy.deepcopy(before)
    given = entry.payload
    groups, labels = state["groups"], state["labels"]
    if entry.kind == "name":
        groups[given["group"]] = (given["name"].strip(), groups[given["group"]][1])
    elif entry.kind == "role":
        groups[given["group"]] = (groups[given["group"]][0], given["role"])
    elif entry.kind == "merge":
        naive_merge(state, given["groups"], given["into"])
    elif entry.kind == "split":
        naive_move(state, {"images": given["images"], "to": "new", "name": given.get("name", "")})
    elif entry.kind == "move":
        whole = [
            group
            for group in set(labels)
            if len(members(state, group)) > 1 and set(members(state, group)) <= set(given["images"])
        ]
        naive_move(state, given)
        to = state["labels"][given["images"][0]]
        for row, (group, decided) in before["audits"].items():
            if group in whole and not unsure(state, to):
                state["audits"][row] = (to, decided)
    elif entry.kind == "several":
        for row in given["images"]:
            state["several"][row] = list(given["groups"])
            for group in given["groups"]:
                let_in(state, row, group)
    elif entry.kind == "accept":
        for row in given.get("images") or members(state, given["group"]):
            naive_move(state, {"images": [row], "to": labels[row]}, confirm=True)
    elif entry.kind == "audit":
        row = given["image"]
        before_it = (labels[row], row in state["confirmed"])
        state["audits"].setdefault(row, before_it)
        naive_move(state, {**given, "images": [row]})
    elif entry.kind == "reject":
        naive_reject(state, given)
    elif entry.kind == "verdict":
        state["threshold"] = given["threshold"]
    elif entry.kind == "different":
        state["different"].add(tuple(sorted(given["groups"])))
    elif entry.kind == "teach":
        to = naive_target(state, given)
        for one in given["examples"]:
            state["examples"].pop(one["sha256"], None)
            if not unsure(state, to):
                numbers = np.frombuffer(base64.b64decode(one["vector"]), np.float16).tolist()
                state["examples"][one["sha256"]] = (one["name"], to, numbers)
    clean_several(state)
    leave_rejected(state)
    return state


def let_in(state: Naive, row: int, group: int) -> None:
    if row in state["rejected"]:
        state["rejected"][row] = [kind for kind in state["rejected"][row] if kind != group]
        if not state["rejected"][row]:
            del state["rejected"][row]


def naive_reject(state: Naive, given: Any) -> None:
    left = set()
    for row in sorted(set(given["images"])):
        known = state["rejected"].setdefault(row, [])
        if given["group"] not in known:
            known.append(given["group"])
        if row in state["several"]:
            state["several"][row] = [
                kind for kind in state["several"][row] if not alike(state, kind, given["group"])
            ]
        if alike(state, state["labels"][row], given["group"]):
            left.add(state["labels"][row])
            kinds = [kind for kind in state["several"].get(row, []) if not unsure(state, kind)]
            if kinds:
                naive_move(state, {"images": [row], "to": kinds[0]}, confirm=None)
                continue
            if not state["several"].get(row):
                state["several"].pop(row, None)
            if row in state["confirmed"]:
                state["confirmed"].remove(row)


def leave_rejected(state: Naive) -> None:
    """Undecided images leave groups that they are not of; decided ones do not."""
    rows = []
    for row, kinds in list(state["rejected"].items()):
        own = state["labels"][row]
        against = [kind for kind in kinds if alike(state, kind, own)]
        if against and row in state["confirmed"]:
            for kind in against:
                let_in(state, row, kind)
        elif against and not unsure(state, own):
            rows.append(row)
    if rows:
        naive_move(state, {"images": sorted(rows), "to": "unsure"})


def alike(state: Naive, one: int, other: int) -> bool:
    roles = [state["groups"][group][1] for group in (one, other) if group in state["groups"]]
    return one == other or roles == ["normal", "normal"]


def naive_merge(state: Naive, merged: list[int], into: int) -> None:
    others = [group for group in merged if group != into]
    name, role = state["groups"][into]
    for group in others:
        name = name or state["groups"].pop(group, ("",))[0]
        state["groups"].pop(group, None)
    state["groups"][into] = (name, role)
    state["labels"] = [into if label in others else label for label in state["labels"]]
    for row, kinds in state["several"].items():
        state["several"][row] = [into if kind in others else kind for kind in kinds]
    for row, kinds in state["rejected"].items():
        known = [into if kind in others else kind for kind in kinds]
        shown = state["several"].get(row, [])
        state["rejected"][row] = [kind for kind in dict.fromkeys(known) if kind not in shown]
    state["rejected"] = {row: kinds for row, kinds in state["rejected"].items() if kinds}
    for sha, (title, group, numbers) in state["examples"].items():
        state["examples"][sha] = (title, into if group in others else group, numbers)
    for row, (group, decided) in state["audits"].items():
        state["audits"][row] = (into if group in others else group, decided)
    state["answers"] = {
        image: tuple(into if group in others else group for group in answer)
        for image, answer in state["answers"].items()
    }
    pairs = [tuple(into if one in others else one for one in pair) for pair in state["different"]]
    state["different"] = {tuple(sorted(pair)) for pair in pairs if pair[0] != pair[1]}


def naive_target(state: Naive, given: Any) -> int:
    groups, to = state["groups"], given["to"]
    if not isinstance(to, str):
        return int(to)
    of_role = [group for group in sorted(groups) if groups[group][1] == to]
    if to == "new" or not of_role:
        role = "flaw" if to == "new" else to
        groups[state["next_id"]] = (given.get("name", "").strip(), role)
        of_role = [state["next_id"]]
        state["next_id"] += 1
    return int(of_role[0])


def naive_move(state: Naive, given: Any, confirm: bool | None = False) -> None:
    """confirm: also in an unsure group, as accept does; None: as it was."""
    left = {state["labels"][row] for row in given["images"]}
    to = naive_target(state, given)
    for row in given["images"]:
        state["labels"][row] = to
        if confirm is not None:
            undecided = {row} if unsure(state, to) and not confirm else set()
            state["confirmed"] = sorted({*state["confirmed"], row} - undecided)
    clean_several(state)
    for group in left - {to}:
        drop_if_empty(state, group)


def unsure(state: Naive, group: int) -> bool:
    return bool(state["groups"][group][1] == "unsure")


def test_a_kind_that_an_image_is_given_is_not_lost_when_it_leaves_it() -> None:
    """It is suggested elsewhere, its cluster becomes empty, and the person names that cluster as
    another kind."""
    row = int(first().members(3)[0])
    alone = after(edit("merge", groups=[3], into=2), edit("move", images=[row], to="new"))
    group = int(alone.labels[row])
    now = after(edit("several", images=[row], groups=[group], at=[0]), before=alone)
    assert now.labels[row] == 0
    assert now.several[row] == (group,)
    assert group in now.groups


def clean_several(state: Naive) -> None:
    for row, kinds in state["several"].items():
        once = list(dict.fromkeys(kinds))
        state["several"][row] = [kind for kind in once if kind != state["labels"][row]]


def drop_if_empty(state: Naive, group: int) -> None:
    shown = any(group in kinds for kinds in state["several"].values())
    taught = any(group == one[1] for one in state["examples"].values())
    if taught or group not in state["groups"]:
        return
    if not members(state, group) and not state["groups"][group][0] and not shown:
        del state["groups"][group]


def naive_clusters(k: int) -> list[set[int]]:
    """The groups left by the first n - k merges, the largest first, of equal ones by first row."""
    nodes: dict[int, set[int]] = {row: {row} for row in range(N)}
    for step in range(N - k):
        one, other = (int(node) for node in LINKAGE[step, :2])
        nodes[N + step] = nodes.pop(one) | nodes.pop(other)
    return sorted(nodes.values(), key=lambda rows: (-len(rows), min(rows)))


def check_cut(before: Naive, now: Naive, k: int) -> None:
    """All that is promised of a cut, whichever of equally good matchings it took."""
    clusters = naive_clusters(k)
    old = [group for group in sorted(before["groups"]) if not unsure(before, group)]
    stay = {row for row, group in enumerate(before["labels"]) if unsure(before, group)}
    stay |= set(before["confirmed"])
    shared = np.array(
        [[len(rows & set(members(before, group))) for group in old] for rows in clusters]
    ).reshape(k, len(old))
    best = shared[linear_sum_assignment(-shared)].sum()
    heirs: dict[int, int] = {}
    # Those that would come into a group that they are not of wait among the unsure ones.
    out = {row for row in now["rejected"] if unsure(now, now["labels"][row])} - stay
    for number, rows in enumerate(clusters):
        free = {now["labels"][row] for row in rows - stay - out}
        assert len(free) <= 1
        for heir in free:
            heirs[number] = heir
    made = [heir for heir in heirs.values() if heir not in before["groups"]]
    unseen = [rows for rows in clusters if rows - stay and not rows - stay - out]
    if unseen:  # whether a group was made for one of them cannot be seen afterwards
        assert before["next_id"] <= min(made, default=now["next_id"])
        assert max(made, default=0) < now["next_id"]
        return
    assert made == list(range(before["next_id"], before["next_id"] + len(made)))
    assert len(set(heirs.values())) == len(heirs)
    assert not any(heir in before["groups"] and unsure(before, heir) for heir in heirs.values())
    # Those whose images all stay tell no heir: the best that can be left for them.
    kept = sum(shared[number, old.index(heir)] for number, heir in heirs.items() if heir in old)
    rest = [number for number in range(k) if number not in heirs]
    left = [place for place, group in enumerate(old) if group not in heirs.values()]
    below = shared[np.ix_(rest, left)]
    assert kept + below[linear_sum_assignment(-below)].sum() == best
    assert [now["labels"][row] for row in stay] == [before["labels"][row] for row in stay]
    for row in out:
        heir = next(heir for number, heir in heirs.items() if row in clusters[number])
        assert any(alike(now, heir, kind) for kind in now["rejected"][row])
    waits = {now["labels"][row] for row in out}
    assert len(waits) <= 1
    if not waits <= before["groups"].keys():
        made.append(before["next_id"] + len(made))
        assert waits == {made[-1]}
        assert now["groups"][made[-1]] == ("", "unsure")
    expected = {
        **before["groups"],
        **{group: ("", now["groups"][group][1]) for group in made if group in now["groups"]},
    }
    want = {**before, "labels": now["labels"], "groups": expected, "k": k}
    want["next_id"] += len(made)
    want = copy.deepcopy(want)
    clean_several(want)
    for group in list(want["groups"]):
        drop_if_empty(want, group)
    assert now == want


def random_edit(rng: np.random.Generator, now: Labelling) -> Edit:
    """One that makes sense as the groups stand."""
    ids = list(now.groups)
    group = int(rng.choice(ids))
    rows = [int(row) for row in rng.choice(N, rng.integers(1, 7))]  # some of them twice
    name = str(rng.choice(["", "dent", " scratch ", "Delle \U0001f529"]))
    own = now.members(group).tolist()
    kind = str(rng.choice(KINDS[:-1]))
    to: Any = [group, "normal", "unsure", "new"][rng.integers(4)]
    named = {"name": name} if to == "new" else {}
    if kind == "name":
        return edit(kind, group=group, name=name)
    if kind == "role":
        return edit(kind, group=group, role=str(rng.choice(["flaw", "normal", "unsure"])))
    if kind == "merge" and len(ids) > 1:
        some = [int(one) for one in rng.permutation(ids)[: rng.integers(2, 4)]]
        return edit(kind, groups=some, into=some[rng.integers(len(some))])
    if kind == "split" and len(own) > 1:
        part = [int(row) for row in rng.permutation(own)[: rng.integers(1, len(own))]]
        return edit(kind, group=group, images=part, name=name)
    if kind == "move":
        return edit(kind, images=rows, to=to, **named)
    if kind == "audit":
        return edit(kind, image=rows[0], to=to, **named)
    if kind == "teach":
        examples = [example(int(one)) for one in rng.permutation(6)[: rng.integers(1, 3)]]
        return edit(kind, examples=examples, to=to, **named)
    if kind == "verdict":
        return edit(kind, threshold=[None, 0, 0.5][rng.integers(3)])
    if kind == "different" and len(ids) > 1:
        return edit(kind, groups=[int(one) for one in rng.permutation(ids)[:2]])
    if kind == "reject" and now.groups[group].role != "unsure":
        some = [int(row) for row in rng.permutation(own)[:2]] if rng.random() < 0.7 else rows
        return edit(kind, images=some or rows, group=group)
    if kind == "several":
        others = [int(one) for one in rng.choice(ids, rng.integers(0, 3))]
        return edit(kind, images=rows, groups=others)
    if kind == "accept" and own:
        return edit(kind, group=group) if rng.random() < 0.3 else edit(kind, images=rows[:2])
    return edit("cut", k=int(rng.integers(1, 12)))


def example(number: int) -> dict[str, str]:
    return packed(f"new {number}", f"{number:064x}", np.arange(3) + number)


def check_sound(labelling: Labelling) -> None:
    """What every labelling is, whatever was done to it."""
    groups = labelling.groups
    assert list(groups) == sorted(groups)
    assert all(group.id == number < labelling.next_id for number, group in groups.items())
    assert labelling.labels.dtype == np.int64
    assert labelling.confirmed.dtype == np.bool_
    assert set(labelling.labels.tolist()) <= set(groups)
    for row, kinds in labelling.several.items():
        assert set(kinds) <= set(groups) - {int(labelling.labels[row])}
        assert len(set(kinds)) == len(kinds)
    for row, kinds in labelling.rejected.items():
        own = int(labelling.labels[row])
        assert len(set(kinds)) == len(kinds)
        assert groups[own].role == "unsure" or not any(
            labelling.same_kind(kind, own) for kind in kinds
        )
        assert not set(kinds) & set(labelling.several.get(row, ()))
    assert {one.group for one in labelling.examples} <= set(groups)
    assert len({one.sha256 for one in labelling.examples}) == len(labelling.examples)
    assert all(len(pair) == 2 for pair in labelling.different)


# ---- each kind ----


def test_name() -> None:
    now = after(edit("name", group=2, name="  dents \n"))
    assert now.groups[2] == Group(2, "dents")
    assert after(edit("name", group=2, name=""), before=now).groups[2].title == "Group 2"
    longest = "\U0001f529" * 200
    assert after(edit("name", group=0, name=f" {longest} ")).groups[0].name == longest


@pytest.mark.parametrize("role", ["flaw", "normal", "unsure"])
def test_role(role: str) -> None:
    assert after(edit("role", group=1, role=role)).groups[1] == Group(1, role=role)  # type: ignore[arg-type]


def test_merge() -> None:
    before = after(
        edit("name", group=3, name="dents"),
        edit("name", group=2, name="cracks"),
        edit("role", group=3, role="normal"),
        edit("accept", group=3),
        edit("several", images=[0, 1], groups=[3, 2, 1]),
    )
    now = after(edit("merge", groups=[3, 1, 0, 2], into=1), before=before)
    assert now.groups == {1: Group(1, "dents")}  # its own role, and the first name of the others
    assert set(now.labels.tolist()) == {1}
    assert now.several == {0: (), 1: ()}
    np.testing.assert_array_equal(now.confirmed, before.confirmed)
    assert now.next_id == 4
    kept = after(edit("merge", groups=[3], into=2), before=before)
    assert kept.groups[2] == Group(2, "cracks")
    own = int(before.labels[0])
    assert kept.several[0] == tuple(kind for kind in (2, 1) if kind != own)


def test_split() -> None:
    before = after(edit("role", group=0, role="normal"), edit("accept", images=[0, 1]))
    rows = before.members(0).tolist()
    now = after(edit("split", group=0, images=rows[2:4] + rows[3:4], name="burr "), before=before)
    assert now.members(4).tolist() == rows[2:4]
    assert now.members(0).tolist() == rows[:2] + rows[4:]
    assert now.groups[4] == Group(4, "burr", "flaw")
    assert now.next_id == 5
    # A person chose the images that are split off, and nothing else.
    decided = {*np.flatnonzero(before.confirmed).tolist(), *rows[2:4]}
    assert set(np.flatnonzero(now.confirmed).tolist()) == decided
    assert after(edit("split", group=0, images=rows[:1]), before=before).groups[4] == Group(4)
    assert after(edit("split", group=0, images=rows[:1], name=None)).groups[4] == Group(4)


@pytest.mark.parametrize("to", [2, "normal", "unsure", "new"])
def test_move(to: Any) -> None:
    before = after(edit("accept", images=[0, 5, 9]))
    now = after(edit("move", images=[0, 20, 0], to=to), before=before)
    place = to if to == 2 else 4
    assert now.labels[[0, 20]].tolist() == [place, place]
    assert now.groups[place].role == (to if to in ("normal", "unsure") else "flaw")
    assert now.next_id == (4 if to == 2 else 5)
    rows = [5, 9] if to == "unsure" else [0, 5, 9, 20]
    assert np.flatnonzero(now.confirmed).tolist() == rows
    others = [row for row in range(N) if row not in (0, 20)]
    assert now.labels[others].tolist() == before.labels[others].tolist()


def test_roles_have_one_group_to_move_to() -> None:
    log = [edit("role", group=2, role="normal"), edit("role", group=1, role="normal")]
    now = after(*log, edit("move", images=[0], to="normal"), edit("move", images=[1], to="unsure"))
    assert now.labels[:2].tolist() == [1, 4]
    again = after(edit("move", images=[2], to="unsure"), before=now)
    assert (again.labels[2], again.next_id) == (4, 5)


def test_a_move_to_a_group_that_is_unsure_confirms_nothing() -> None:
    now = after(edit("role", group=1, role="unsure"), edit("move", images=[0, 20], to=1))
    assert not now.confirmed.any()


def test_groups_that_a_move_empties() -> None:
    rows = first().members(3).tolist()
    away = edit("move", images=rows, to=0)
    assert list(after(away).groups) == [0, 1, 2]
    named = after(edit("name", group=3, name="dents"), away)
    assert list(named.groups) == [0, 1, 2, 3]
    unnamed = after(edit("name", group=3, name=""), before=named)
    assert list(unnamed.groups) == [0, 1, 2, 3]
    later = edit("move", images=[0], to=1)  # which does not empty it
    assert list(after(later, before=unnamed).groups) == [0, 1, 2, 3]
    assert list(after(edit("cut", k=3), before=unnamed).groups) == [0, 1, 2]
    # A kind that an image shows beside its own is not empty.
    shown = after(edit("several", images=[first().members(1)[0].item()], groups=[3]), away)
    assert list(shown.groups) == [0, 1, 2, 3]
    assert after(edit("move", images=rows, to=3)).labels.tolist() == first().labels.tolist()
    # New ones never get the id of one that is gone.
    assert list(after(edit("move", images=first().members(3).tolist(), to="new")).groups)[-1] == 4
    assert 3 not in after(edit("move", images=rows, to="new")).groups


def test_several() -> None:
    own = first().labels.tolist()
    now = after(edit("several", images=[0, 20, 20], groups=[2, own[0], 2, own[20]]))
    assert now.several == {
        0: tuple(kind for kind in dict.fromkeys((2, own[0], own[20])) if kind != own[0]),
        20: tuple(kind for kind in dict.fromkeys((2, own[0], own[20])) if kind != own[20]),
    }
    assert not now.confirmed.any()
    assert after(edit("several", images=[0], groups=[]), before=now).several[0] == ()
    other = next(iter(now.several[0]))
    moved = after(edit("move", images=[0], to=other), before=now)
    assert other not in moved.several[0]


def test_accept() -> None:
    now = after(edit("accept", group=2))
    np.testing.assert_array_equal(now.confirmed, now.labels == 2)
    again = after(edit("accept", images=[1, 3, 3]), before=now)
    assert set(np.flatnonzero(again.confirmed)) == {*np.flatnonzero(now.confirmed), 1, 3}


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 8, N])
def test_cut_of_untouched_groups(k: int) -> None:
    before = first()
    now = after(edit("cut", k=k))
    check_cut(plain(before), plain(now), k)
    assert len(now.groups) == now.k == k
    np.testing.assert_array_equal(
        cut(LINKAGE, k) == cut(LINKAGE, k)[0], now.labels == now.labels[0]
    )
    back = after(edit("cut", k=4), before=now)
    assert len(back.groups) == 4
    assert all((back.labels == group).sum() for group in back.groups)


def test_the_same_cut_changes_nothing() -> None:
    before = after(edit("name", group=1, name="dents"), edit("role", group=3, role="normal"))
    assert plain(after(edit("cut", k=4), before=before)) == plain(before)


def test_cut_keeps_names_with_their_images() -> None:
    before = after(edit("name", group=0, name="dents"), edit("name", group=3, name="cracks"))
    finer = after(edit("cut", k=8), before=before)
    for group in (0, 3):
        inside = finer.members(group)
        assert len(inside)
        assert set(before.labels[inside].tolist()) == {group}
    coarse = after(edit("cut", k=1), before=before)
    assert coarse.groups.keys() == {0, 3}  # the largest, and the named one that is left empty
    assert set(coarse.labels.tolist()) == {0}


def test_cut_leaves_what_is_confirmed() -> None:
    before = after(edit("accept", group=1), edit("move", images=[0], to="new", name="odd"))
    now = after(edit("cut", k=2), before=before)
    rows = np.flatnonzero(before.confirmed)
    np.testing.assert_array_equal(now.labels[rows], before.labels[rows])
    check_cut(plain(before), plain(now), 2)
    doubted = after(edit("move", images=[0, 5, 9], to="unsure"))
    again = after(edit("cut", k=2), before=doubted)
    assert set(again.labels[[0, 5, 9]]) == set(doubted.labels[[0, 5, 9]])
    assert (again.labels == doubted.labels[0]).sum() == 3
    check_cut(plain(doubted), plain(again), 2)
    everything = after(edit("accept", images=list(range(N))))
    cut_now = after(edit("cut", k=9), before=everything)
    np.testing.assert_array_equal(cut_now.labels, everything.labels)
    assert (cut_now.k, cut_now.next_id, len(cut_now.groups)) == (9, 4, 4)


def test_cut_takes_the_best_of_all_matchings_and_not_the_first() -> None:
    tree = ward_linkage(np.array([[0.0]] * 7 + [[9.0]] * 2) + np.arange(9)[:, None] / 100)
    labels = np.array([5, 5, 5, 5, 7, 7, 7, 5, 5])
    before = Labelling({5: Group(5), 7: Group(7)}, labels, np.zeros(9, bool), 2, 8)
    now = apply(edit("cut", k=2), before, tree)
    # The first cluster shares four images with group 5 and three with group 7, the second two with
    # group 5: 3 + 2 images keep their group, and not 4, as if the largest overlap went first.
    assert now.labels.tolist() == [7] * 7 + [5] * 2


def test_one_image() -> None:
    alone = Labelling({0: Group(0)}, np.zeros(1, np.int64), np.zeros(1, bool), 1, 1)
    none = np.zeros((0, 4))
    assert apply(edit("cut", k=1), alone, none).labels.tolist() == [0]
    with pytest.raises(OptionError, match=r"k must be between 1 and 1 \(the number of images\)"):
        apply(edit("cut", k=2), alone, none)
    with pytest.raises(OptionError, match="must leave at least one image in group 0"):
        apply(edit("split", group=0, images=[0]), alone, none)


def carried() -> dict[str, Any]:
    return {
        "groups": [
            {"id": 12, "name": " dents ", "role": "flaw"},
            {"id": 7, "name": "", "role": "normal"},
            {"id": 9, "name": "cracks", "role": "flaw"},
        ],
        "labels": [12] * 20 + [7] * 4,
        "confirmed": [3, 1, 3],
        "several": {"0": [9, 12, 9], "22": []},
        "k": 5,
    }


def test_carry() -> None:
    now = after(edit("name", group=0, name="old"), Edit("carry", carried()))
    assert plain(now) == {
        "labels": [12] * 20 + [7] * 4,
        "confirmed": [1, 3],
        "several": {0: [9], 22: []},
        "groups": {7: ("", "normal"), 9: ("cracks", "flaw"), 12: ("dents", "flaw")},
        "k": 5,
        "next_id": 13,
        "rejected": {},
        "examples": {},
        "answers": {},
        "audits": {},
        "threshold": None,
        "different": set(),
    }
    check_sound(now)
    few = {**carried(), "groups": [{"id": 1, "name": "", "role": "flaw"}], "labels": [1] * N}
    few["several"] = {}
    assert after(Edit("carry", few)).next_id == 4  # an id of this run is not given again either


def test_carry_of_what_was_taught() -> None:
    taught = {
        "rejected": {"2": [9, 7], "1": [12], "4": [12]},
        "examples": [{**example(3), "group": 9}],
        "threshold": 0.25,
        "different": [[9, 7]],
    }
    now = after(Edit("carry", {**carried(), **taught}))
    check_sound(now)
    # Image 1 was decided to be there; image 4 was not, so it leaves.
    assert plain(now)["rejected"] == {2: [9, 7], 4: [12]}
    assert now.groups[int(now.labels[4])] == Group(13, role="unsure")
    assert (now.labels[1], now.labels[2]) == (12, 12)
    assert plain(now)["examples"] == {f"{3:064x}": ("new 3", 9, [3.0, 4.0, 5.0])}
    assert (now.threshold, now.different) == (0.25, {frozenset({7, 9})})
    before = after(edit("audit", image=0, to=1), edit("accept", images=[3], at=[2]))
    again = after(Edit("carry", carried()), before=before)
    assert (again.audits, again.answers) == ({}, {})  # they measured another run


# ---- what teaches ----


def test_reject() -> None:
    own = int(first().labels[0])
    now = after(edit("reject", images=[0, 5], group=own))
    place = int(now.labels[0])
    assert now.groups[place] == Group(4, role="unsure")
    assert now.rejected[0] == (own,)
    assert not now.confirmed.any()
    assert not now.answers  # nothing is known of what was suggested
    again = after(edit("reject", images=[0], group=own), before=now)
    assert (again.rejected[0], again.labels[0]) == ((own,), place)
    other = (own + 1) % 4
    more = after(edit("reject", images=[0], group=other), before=again)
    assert more.rejected[0] == (own, other)
    back = after(edit("move", images=[0], to=own), before=more)
    assert (back.labels[0], back.rejected[0]) == (own, (other,))  # a later answer wins


def test_reject_of_what_was_decided() -> None:
    own = int(first().labels[0])
    now = after(edit("accept", images=[0]), edit("reject", images=[0], group=own))
    assert (now.groups[int(now.labels[0])].role, now.confirmed[0]) == ("unsure", False)
    other = (own + 1) % 4
    kept = after(edit("accept", images=[0]), edit("reject", images=[0], group=other))
    assert (kept.labels[0], kept.confirmed[0]) == (own, True)
    assert kept.rejected[0] == (other,)


def test_reject_of_one_of_several_kinds() -> None:
    own = int(first().labels[0])
    one, two = [group for group in range(4) if group != own][:2]
    before = after(edit("several", images=[0], groups=[one, two], at=[own]))
    now = after(edit("reject", images=[0], group=two), before=before)
    assert (now.labels[0], now.several[0], now.confirmed[0]) == (own, (one,), True)
    now = after(edit("reject", images=[0], group=own), before=before)
    assert (now.labels[0], now.several[0], now.confirmed[0]) == (one, (two,), True)
    again = after(edit("several", images=[0], groups=[own], at=[one]), before=now)
    assert (again.several[0], again.rejected[0]) == ((own,), ())


def test_normal_groups_are_one_kind_to_reject() -> None:
    roles = [edit("role", group=group, role="normal") for group in (1, 2)]
    row = int(first().members(2)[0])
    now = after(*roles, edit("reject", images=[row], group=1))
    assert now.groups[int(now.labels[row])].role == "unsure"
    back = after(edit("move", images=[row], to=2), before=now)
    assert back.rejected[row] == ()
    later = after(edit("reject", images=[row], group=1), *roles)  # the role comes afterwards
    assert later.groups[int(later.labels[row])].role == "unsure"


def test_answers_to_what_was_suggested() -> None:
    now = after(edit("accept", images=[0], at=[2], suggested=[2]))
    assert (now.labels[0], now.confirmed[0]) == (2, True)
    assert plain(now)["answers"] == {0: (2, 2)}
    log = [
        edit("move", images=[1], to=3, suggested=[2]),
        edit("reject", images=[2], group=1, at=[1], suggested=[1]),
        edit("reject", images=[3], group=1, at=[0], suggested=[0]),  # says nothing of that
        edit("several", images=[4], groups=[1], at=[2], suggested=[2]),
        edit("split", group=1, images=[5], at=[1], suggested=[1]),
        edit("move", images=[6], to="unsure", suggested=[1]),  # nor does this
        edit("move", images=[1], to=2, suggested=[3]),  # has its answer
        edit("accept", images=[7, 8, 9], at=[1, 3, 1], suggested=[1, 3, None]),
        edit("move", images=[10, 11], to=0, suggested=[0, 3]),
        edit("accept", images=[12]),  # nothing had been suggested
    ]
    now = after(*log)
    several = {7: (1, 1), 8: (3, 3), 10: (0, 0), 11: (3, 0)}
    one = {1: (2, 3), 2: (1, -2), 4: (2, 2), 5: (1, 4)}
    assert plain(now)["answers"] == {**one, **several}
    assert {row for row, answer in now.answers.items() if answer.together} == set(several)
    merged = plain(after(edit("merge", groups=[2], into=3), before=now))["answers"]
    assert merged == {**one, **several, 1: (3, 3), 4: (3, 3)}


def test_answers_about_images_outside_the_run() -> None:
    first_, second, third, fourth = (f"{number:064x}" for number in range(1, 5))
    log = [
        edit("teach", examples=[example(1), example(2)], to=2, suggested=[2, None]),
        edit("teach", examples=[example(3)], to="new", name="rust", suggested=[-1]),
        edit("teach", examples=[example(4)], to=0, suggested=[-1]),
        edit("teach", examples=[example(1)], to=3, suggested=[2]),  # has its answer
        edit("teach", examples=[example(5)], to="unsure", suggested=[2]),
        edit("teach", examples=[example(6)], to=1),
    ]
    now = after(*log)
    assert plain(now)["answers"] == {first_: (2, 2), third: (-1, -1), fourth: (-1, 0)}
    assert second not in now.answers
    assert now.answers[first_].together
    assert not now.answers[third].together


def test_edits_of_older_versions_measure_nothing() -> None:
    """They note where images were shown, but not whether anything was suggested."""
    log = [edit("accept", images=[0], at=[2]), edit("move", images=[1, 2], to=3, at=[0, 0])]
    now = after(*log)
    assert now.labels[:3].tolist() == [2, 3, 3]
    assert not now.answers


def test_an_accepted_group_is_what_was_shown() -> None:
    now = after(edit("accept", group=1, images=[0, 1], at=[1, 1]))
    assert now.labels[:2].tolist() == [1, 1]
    assert np.flatnonzero(now.confirmed).tolist() == [0, 1]
    assert spent_by([edit("accept", group=1, images=[0, 1], at=[1, 1])]) == 1


def test_audit() -> None:
    own = first().labels.tolist()
    now = after(edit("accept", images=[1]), edit("audit", image=0, to=3))
    now = after(edit("audit", image=1, to="new", name="rust"), before=now)
    assert plain(now)["audits"] == {0: (own[0], False), 1: (own[1], True)}
    assert (now.labels[0], now.groups[int(now.labels[1])].name) == (3, "rust")
    assert now.confirmed[:2].all()
    assert not now.answers  # nothing was suggested to the person
    again = after(edit("audit", image=0, to=2), before=now)
    assert (again.labels[0], plain(again)["audits"][0]) == (2, (own[0], False))
    doubted = after(edit("audit", image=2, to="unsure"), before=now)
    assert not doubted.confirmed[2]
    into = (own[0] + 1) % 4
    merged = after(edit("merge", groups=[own[0]], into=into), before=now)
    assert plain(merged)["audits"][0] == (into, False)


def test_the_audit_of_a_group_that_moves() -> None:
    rows = first().members(1).tolist()
    now = after(edit("accept", images=rows), edit("audit", image=rows[0], to=1))
    some = after(edit("move", images=rows[1:], to=2), before=now)
    assert plain(some)["audits"] == {rows[0]: (1, True)}
    whole = after(edit("move", images=rows, to=2), before=now)
    assert plain(whole)["audits"] == {rows[0]: (2, True)}  # and the image is there, as was right
    # A group of one image: moving it says that both answers were wrong.
    alone = after(edit("move", images=[rows[0]], to=1), edit("move", images=rows[1:], to=2))
    audit = after(edit("audit", image=rows[0], to=1), before=alone)
    assert plain(after(edit("move", images=[rows[0]], to=3), before=audit))["audits"] == {
        rows[0]: (1, True)
    }


def test_teach() -> None:
    now = after(edit("teach", examples=[example(1), example(2)], to="new", name="rust"))
    assert now.groups[4] == Group(4, "rust")
    assert [one.group for one in now.examples] == [4, 4]
    assert now.examples[1].vector.dtype == np.float32
    again = after(edit("teach", examples=[example(1)], to=2), before=now)
    assert {one.sha256: one.group for one in again.examples} == {f"{1:064x}": 2, f"{2:064x}": 4}
    merged = after(edit("merge", groups=[4], into=1), before=again)
    assert [one.group for one in merged.examples] == [1, 2]
    gone = after(edit("teach", examples=[example(1)], to="unsure"), before=again)
    assert [one.sha256 for one in gone.examples] == [f"{2:064x}"]
    # A group stays as long as an example is of it, even without a name and without an image.
    nameless = after(edit("teach", examples=[example(1)], to="new"))
    assert 4 in after(edit("cut", k=3), before=nameless).groups
    moved = after(edit("move", images=[0], to=4), edit("move", images=[0], to=1), before=nameless)
    assert 4 in moved.groups


def test_verdict() -> None:
    assert after(edit("verdict", threshold=0.3)).threshold == 0.3
    assert after(edit("verdict", threshold=1)).threshold == 1.0
    assert after(edit("verdict", threshold=1), edit("verdict", threshold=None)).threshold is None


def test_different() -> None:
    now = after(edit("different", groups=[3, 1]), edit("different", groups=[0, 2]))
    assert now.different == {frozenset({1, 3}), frozenset({0, 2})}
    assert after(edit("different", groups=[1, 3]), before=now).different == now.different
    merged = after(edit("merge", groups=[3], into=2), before=now)
    assert merged.different == {frozenset({1, 2}), frozenset({0, 2})}
    assert after(edit("merge", groups=[3], into=1), before=now).different == {frozenset({0, 2})}


def test_merge_of_a_group_and_one_that_an_image_is_not_of() -> None:
    rows = {group: int(first().members(group)[0]) for group in (0, 1)}
    before = after(
        edit("accept", images=[rows[0]]),
        edit("reject", images=[rows[0], rows[1]], group=2),
        edit("several", images=[20], groups=[3]),
        edit("reject", images=[20], group=2),
    )
    now = after(edit("merge", groups=[0, 1, 3], into=2), before=before)
    assert (now.labels[rows[0]], now.rejected[rows[0]]) == (2, ())  # decided to be in it
    assert now.groups[int(now.labels[rows[1]])].role == "unsure"  # only clustered into it
    assert now.rejected[20] == ()  # a person gave it that kind


def test_a_cut_keeps_what_was_taught() -> None:
    before = after(
        edit("reject", images=[0], group=int(first().labels[0])),
        edit("audit", image=1, to=2),
        edit("accept", images=[2], at=[1], suggested=[1]),
        edit("teach", examples=[example(1)], to=3),
        edit("verdict", threshold=0.5),
        edit("different", groups=[0, 1]),
    )
    now = after(edit("cut", k=7), before=before)
    for key in ("rejected", "audits", "answers", "examples", "threshold", "different"):
        assert plain(now)[key] == plain(before)[key], key
        assert plain(now)[key], key


# ---- what makes no sense ----


CASES: list[tuple[str, Any, str]] = [
    ("paint", {}, r"kind must be one of name, role, merge, .*, carry\. Got 'paint'\."),
    ("undo", {}, r"kind must be one of .* Got 'undo'\."),
    (["name"], {}, r"kind must be one of .* Got \['name'\]\."),
    ("name", None, r"The payload of name must be a mapping\. Got None\."),
    ("name", {"group": 0}, r"name takes group, name\. Got 'group'\."),
    ("cut", {}, r"cut takes k\. Got none\."),
    ("cut", {"k": 2, "K": 3}, r"cut takes k\. Got 'k', 'K'\."),
    (
        "split",
        {"group": 0},
        r"split takes group, images, name \(optional\), at \(optional\), suggested "
        r"\(optional\)\. Got 'group'\.",
    ),
    (
        "name",
        {"group": 4, "name": "x"},
        r"group: there is no group 4\. The current groups are 0, 1, 2, 3\.",
    ),
    ("name", {"group": -1, "name": "x"}, r"there is no group -1"),
    ("name", {"group": 10**400, "name": "x"}, r"there is no group 1000\d*\.\.\.\d*000\."),
    ("name", {"group": True, "name": "x"}, r"group must be a whole number\. Got True\."),
    ("name", {"group": "1", "name": "x"}, r"group must be a whole number\. Got '1'\."),
    ("name", {"group": [1], "name": "x"}, r"group must be a whole number\. Got \[1\]\."),
    ("name", {"group": 1.0, "name": "x"}, r"group must be a whole number\. Got 1\.0\."),
    ("name", {"group": 1, "name": 5}, r"name must be text\. Got 5\."),
    ("name", {"group": 1, "name": None}, r"name must be text\. Got None: pass ''"),
    ("name", {"group": 1, "name": "x" * 201}, r"at most 200 characters\. Got 201: shorten it\."),
    ("name", {"group": 1, "name": "a\0b"}, r"without control characters\. Got '\\x00' in it\."),
    ("name", {"group": 1, "name": "a\nb"}, r"one line without control .* Got '\\n' in it\."),
    ("name", {"group": 1, "name": "a\x7f"}, r"Got '\\x7f' in it\."),
    ("name", {"group": 1, "name": "a\u2028b"}, r"Got '\\u2028' in it\."),
    ("name", {"group": 1, "name": "gnp\u202eexe"}, r"Got '\\u202e' in it\."),
    ("name", {"group": 1, "name": "half \ud83d"}, r"Got '\\ud83d' in it\."),
    ("name", {"group": 1, "name": "no XML \uffff"}, r"Got '\\uffff' in it\."),
    ("role", {"group": 1, "role": "odd"}, r"role must be one of flaw, normal, unsure\. Got 'odd'"),
    ("role", {"group": 1, "role": ["flaw"]}, r"role must be one of .* Got \['flaw'\]\."),
    ("merge", {"groups": [], "into": 1}, r"merge into group 1, other than itself\. Got \[\]\."),
    ("merge", {"groups": [1, 1], "into": 1}, r"other than itself\. Got \[1, 1\]\."),
    ("merge", {"groups": [9], "into": 1}, r"groups: there is no group 9\."),
    ("merge", {"groups": [0], "into": 9}, r"into: there is no group 9\."),
    ("merge", {"groups": "01", "into": 1}, r"groups must be a list of whole numbers\. Got '01'\."),
    ("merge", {"groups": [0, None], "into": 1}, r"groups must be whole numbers\. Got None among"),
    ("split", {"group": 0, "images": []}, r"images must hold at least one image\. Got none\."),
    ("split", {"group": 9, "images": [0]}, r"there is no group 9"),
    ("split", {"group": 0, "images": [0], "name": "\t\a"}, r"without control characters"),
    ("move", {"images": [], "to": 1}, r"images must hold at least one image\. Got none\."),
    ("move", {"images": [0, N], "to": 1}, r"rows of the run's table, 0 to 23\. Got 24\."),
    ("move", {"images": [3, -1], "to": 1}, r"rows of the run's table, 0 to 23\. Got -1\."),
    ("move", {"images": [10**30], "to": 1}, r"rows of the run's table, 0 to 23\. Got 10+\."),
    ("move", {"images": [False], "to": 1}, r"images must be whole numbers\. Got False among them"),
    ("move", {"images": {"0": 1}, "to": 1}, r"images must be a list of whole numbers\. Got \{"),
    ("move", {"images": [0], "to": 9}, r"to: there is no group 9\."),
    ("move", {"images": [0], "to": "flaw"}, r"a group, or normal, unsure or new\. Got 'flaw'"),
    ("move", {"images": [0], "to": None}, r"to must be a whole number\. Got None\."),
    ("move", {"images": [0], "to": 1, "name": "x"}, r"move to a new group\. Got 'x' with to = 1"),
    ("move", {"images": [0], "to": "normal", "name": "x"}, r"with to = 'normal': leave it out"),
    ("several", {"images": [], "groups": [1]}, r"images must hold at least one image"),
    ("several", {"images": [0], "groups": [9]}, r"groups: there is no group 9\."),
    ("several", {"images": [0], "groups": 1}, r"groups must be a list of whole numbers\. Got 1\."),
    ("accept", {}, r"accept takes either group or images\. Got none\."),
    ("accept", {"group": 1, "images": [0]}, r"either group or images\. Got 'group', 'images'\."),
    ("accept", {"images": []}, r"images must hold at least one image"),
    ("accept", {"group": 9}, r"there is no group 9"),
    ("accept", {"group": 1, "at": [1]}, r"at must hold one group for each image, \d+\. Got 1\."),
    ("accept", {"images": [0], "at": [9]}, r"at: there is no group 9"),
    ("accept", {"images": [0], "at": 1}, r"at must be a list of whole numbers"),
    ("move", {"images": [0], "to": 1, "suggested": [1, 2]}, r"hold one for each image, 1\. Got 2"),
    ("move", {"images": [0], "to": 1, "suggested": [True]}, r"suggested must be a list of whole"),
    ("move", {"images": [0], "to": 1, "suggested": 1}, r"suggested must be a list of whole"),
    ("reject", {"images": [0], "group": 9}, r"there is no group 9"),
    ("reject", {"images": [], "group": 1}, r"images must hold at least one image"),
    ("audit", {"image": N, "to": 1}, r"image must be rows of the run's table, 0 to 23\. Got 24"),
    ("audit", {"image": [0], "to": 1}, r"image must be whole numbers\. Got \[0\]"),
    ("audit", {"image": 0, "to": 1, "at": [1]}, r"audit takes image, to, name \(optional\)\. Got"),
    ("verdict", {"threshold": 1.1}, r"threshold must be between 0 and 1\. Got 1\.1"),
    ("verdict", {"threshold": -0.1}, r"threshold must be between 0 and 1\. Got -0\.1"),
    ("verdict", {"threshold": True}, r"threshold must be between 0 and 1\. Got True"),
    ("verdict", {"threshold": "1"}, r"threshold must be between 0 and 1\. Got '1'"),
    ("verdict", {"threshold": float("nan")}, r"threshold must be between 0 and 1\. Got nan"),
    ("verdict", {}, r"verdict takes threshold\. Got none"),
    ("different", {"groups": [1]}, r"groups must be two different groups\. Got \[1\]"),
    ("different", {"groups": [1, 1]}, r"groups must be two different groups\. Got \[1, 1\]"),
    ("different", {"groups": [1, 2, 3]}, r"groups must be two different groups"),
    ("different", {"groups": [1, 9]}, r"there is no group 9"),
    ("cut", {"k": 0}, r"k must be between 1 and 24 \(the number of images\)\. Got 0\."),
    ("cut", {"k": N + 1}, r"k must be between 1 and 24 \(the number of images\)\. Got 25\."),
    ("cut", {"k": "4"}, r"k must be a whole number\. Got '4'\."),
    ("cut", {"k": True}, r"k must be a whole number\. Got True\."),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "payload", "text"), CASES)
def test_nonsense_is_refused(kind: Any, payload: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text) as caught:
        after(Edit(kind, payload))
    assert len(str(caught.value)) < 400


def test_nothing_is_rejected_for_being_unsure() -> None:
    unsure = after(edit("move", images=[0], to="unsure"))
    with pytest.raises(OptionError, match=r"group must be a kind.* Got 4\."):
        after(edit("reject", images=[0], group=4), before=unsure)


def test_more_nonsense() -> None:
    outside = int(first().members(1)[0])
    with pytest.raises(
        OptionError, match=f"to be split from it. Got {outside}, which is in group 1"
    ):
        after(edit("split", group=0, images=[int(first().members(0)[0]), outside]))
    whole = first().members(0).tolist()
    with pytest.raises(
        OptionError, match=f"at least one image in group 0.* Got all {len(whole)} of them"
    ):
        after(edit("split", group=0, images=whole))
    empty = after(edit("name", group=0, name="dents"), edit("move", images=whole, to=1))
    with pytest.raises(OptionError, match=r"must have images to accept\. Got 0, which is empty"):
        after(edit("accept", group=0), before=empty)
    with pytest.raises(
        OptionError, match=r"The current groups are 0, 1, 2, 3, 4, 5, 6, 7 and 12 more\."
    ):
        after(edit("accept", group=99), before=first(20))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"groups": []}, r"groups must be a list of groups\. Got \[\]"),
        ({"groups": {"id": 1}}, r"groups must be a list of groups"),
        ({"groups": [7]}, r"groups must each have id, name and role\. Got 7"),
        ({"groups": [{"id": 7, "name": ""}]}, r"groups must each have id, name and role"),
        ({"groups": [{"id": -7, "name": "", "role": "flaw"}]}, r"id must be 0 or more"),
        ({"groups": [{"id": 2**60, "name": "", "role": "flaw"}]}, r"id must be 0 or more"),
        ({"groups": [{"id": "7", "name": "", "role": "flaw"}]}, r"id must be a whole number"),
        ({"groups": [{"id": 7, "name": "\0", "role": "flaw"}]}, r"without control characters"),
        ({"groups": [{"id": 7, "name": "", "role": "bad"}]}, r"role must be one of"),
        ({"groups": carried()["groups"] + carried()["groups"][:1]}, r"0 or more, and unique.* 12"),
        ({"labels": [12] * 23}, r"labels must be a list of 24 group ids, one per image"),
        ({"labels": "x" * 24}, r"labels must be a list of 24 group ids"),
        ({"labels": [12] * 23 + [8]},
         r"labels: there is no group 8\. The current groups are 7, 9, 12"),
        ({"labels": [12] * 23 + [True]}, r"labels must be whole numbers\. Got True"),
        ({"confirmed": [24]}, r"confirmed must be rows of the run's table, 0 to 23\. Got 24"),
        ({"several": [1]}, r"several must map rows to group ids\. Got \[1\]"),
        ({"several": {"24": []}}, r"several must be rows of the run's table, 0 to 23\. Got 24"),
        ({"several": {"-1": []}}, r"several must be whole numbers\. Got '-1'"),
        ({"several": {"one": []}}, r"several must be whole numbers\. Got 'one'"),
        ({"several": {"\u00b2": []}}, r"several must be whole numbers"),
        ({"several": {"1": [8]}}, r"several: there is no group 8"),
        ({"k": 0}, r"k must be between 1 and 24"),
        ({"k": 25}, r"k must be between 1 and 24"),
        ({"k": None}, r"k must be a whole number"),
        ({"spent": -1}, r"spent must be 0 or more\. Got -1"),
        ({"spent": "1"}, r"spent must be a whole number\. Got '1'"),
        ({"rejected": [1]}, r"rejected must map rows to group ids\. Got \[1\]"),
        ({"rejected": {"1": [8]}}, r"rejected: there is no group 8"),
        ({"rejected": {"24": [7]}}, r"rejected must be rows of the run's table"),
        ({"examples": [{**packed("a", "0" * 64, np.ones(3))}]}, r"must each have group, name"),
        ({"examples": [{**packed("a", "0" * 64, np.ones(3)), "group": 8}]}, r"no group 8"),
        ({"threshold": 2}, r"threshold must be between 0 and 1\. Got 2"),
        ({"different": 7}, r"different must be a list of pairs\. Got 7"),
        ({"different": [[7, 8]]}, r"different: there is no group 8"),
        ({"different": [[7, 7]]}, r"different must be two different groups"),
        ({"more": 1}, r"carry takes groups, labels, confirmed, several, k, spent \(optional\)"),
    ],
)  # fmt: skip
def test_nonsense_is_not_carried(change: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        after(Edit("carry", {**carried(), **change}))


# ---- in words ----


@pytest.mark.parametrize(
    ("kind", "payload", "sentence"),
    [
        ("name", {"group": 3, "name": " pits "}, "Name Group 3 pits"),
        ("name", {"group": 0, "name": "pits"}, "Rename dents to pits"),
        ("name", {"group": 0, "name": " "}, "Remove the name of dents"),
        ("role", {"group": 3, "role": "flaw"}, "Mark Group 3 as a flaw"),
        ("role", {"group": 3, "role": "normal"}, "Mark Group 3 as normal"),
        ("role", {"group": 0, "role": "unsure"}, "Mark dents as unsure"),
        ("merge", {"groups": [3], "into": 0}, "Merge Group 3 into dents"),
        ("merge", {"groups": [3, 0, 2, 3], "into": 0}, "Merge Group 3 and Group 2 into dents"),
        ("merge", {"groups": [0, 1, 3], "into": 2}, "Merge dents, normal and Group 3 into Group 2"),
        ("merge", {"groups": [0, 1, 3, 4], "into": 2}, "Merge 4 groups into Group 2"),
        ("split", {"group": 0, "images": [1]}, "Split 1 image from dents"),
        ("split", {"group": 0, "images": [1, 2], "name": "a"}, "Split 2 images from dents as a"),
        ("move", {"images": [1, 2, 2], "to": 0}, "Move 2 images to dents"),
        ("move", {"images": [1], "to": "normal"}, "Move 1 image to normal"),
        ("move", {"images": [1], "to": "unsure"}, "Move 1 image to Unsure"),
        ("move", {"images": [1], "to": "new"}, "Move 1 image to a new group"),
        ("move", {"images": [1], "to": "new", "name": "rust"}, "Move 1 image to a new group rust"),
        ("several", {"images": [1], "groups": [3, 0]}, "Mark 1 image as also Group 3 and dents"),
        ("several", {"images": [1, 2], "groups": []}, "Mark 2 images as of one kind only"),
        ("accept", {"group": 0}, "Accept dents"),
        ("accept", {"images": [1, 2]}, "Accept 2 images"),
        ("accept", {"group": 0, "images": [1, 2], "at": [0, 0]}, "Accept dents"),
        ("reject", {"images": [1], "group": 0}, "Say that 1 image is not dents"),
        ("reject", {"images": [1, 2], "group": 3}, "Say that 2 images are not Group 3"),
        ("audit", {"image": 1, "to": 0}, "Audit 1 image as dents"),
        ("audit", {"image": 1, "to": "normal"}, "Audit 1 image as normal"),
        ("audit", {"image": 1, "to": "new", "name": "a"}, "Audit 1 image as a new group a"),
        ("teach", {"examples": [example(1)], "to": 0}, "Teach dents with 1 new image"),
        ("teach", {"examples": [example(1), example(2)], "to": "new", "name": "rust"},
         "Teach a new group rust with 2 new images"),
        ("verdict", {"threshold": 0.955}, "Set the limit for OK to 95.5%"),
        ("verdict", {"threshold": None}, "Remove the limit for OK"),
        ("different", {"groups": [3, 0]}, "Keep dents and Group 3 apart"),
        ("severity", {"group": 0, "severity": "major"}, "Call dents major"),
        ("severity", {"group": 3, "severity": "none"}, "Call Group 3 of no severity"),
        ("severity", {"group": 3, "severity": ""}, "Take back how severe Group 3 is"),
        ("note", {"group": 0, "note": "deep"}, "Note on dents: deep"),
        ("note", {"image": 3, "note": "x" * 61}, f"Note on 1 image: {'x' * 59}\u2026"),
        ("note", {"image": 3, "note": " "}, "Remove the note on 1 image"),
        ("cut", {"k": 12}, "Cut into 12 groups"),
        ("cut", {"k": 1}, "Cut into 1 group"),
        ("carry", carried(), "Take over 3 groups"),
    ],
)  # fmt: skip
def test_sentences(kind: str, payload: dict[str, Any], sentence: str) -> None:
    before = after(
        edit("name", group=0, name="dents"), edit("role", group=1, role="normal"), before=first(5)
    )
    assert describe(Edit(kind, payload), before) == sentence


def test_a_sentence_about_nonsense() -> None:
    with pytest.raises(OptionError, match="kind must be one of"):
        describe(Edit("undo"), first())
    with pytest.raises(OptionError, match="there is no group 9"):
        describe(edit("accept", group=9), first())


# ---- one after the other ----


def test_effective() -> None:
    a, b, c, d = (edit("accept", images=[row]) for row in range(4))
    undo, redo = Edit("undo"), Edit("redo")
    assert effective([]) == []
    assert effective([a, b, undo]) == [a]
    assert effective([a, b, undo, undo, undo, c]) == [c]
    assert effective([a, b, undo, redo, redo]) == [a, b]
    assert effective([a, b, c, undo, undo, redo]) == [a, b]
    assert effective([a, b, c, undo, undo, d, redo]) == [a, d]
    assert effective([undo, redo, a]) == [a]
    assert effective([a, b, undo, c, undo, undo, redo, redo]) == [a, c]


@dataclass
class Stack:
    """Undo and redo as anybody would write them: by keeping every state."""

    past: list[tuple[Naive, int]]
    future: list[tuple[Naive, int]]

    def undo(self) -> None:
        if len(self.past) > 1:
            self.future.append(self.past.pop())

    def redo(self) -> None:
        if self.future:
            self.past.append(self.future.pop())

    def do(self, state: Naive, spent: int) -> None:
        self.past.append((state, spent))
        self.future = []


def naive_spent(log: list[Edit], states: list[Naive]) -> int:
    """states: before each edit of the log."""
    groups: set[int] = set()
    images: set[int] = set()
    taught = 0
    for entry, before in zip(log, states, strict=True):
        given = entry.payload
        named = bool(given.get("name", "").strip())
        if entry.kind in ("role", "accept") and "group" in given:
            groups.add(given["group"])
        if entry.kind == "name" and named:
            groups.add(given["group"])
        if entry.kind in ("split", "move", "audit", "teach") and named:
            groups.add(before["next_id"])
        if entry.kind in ("move", "accept", "several", "reject"):
            images |= set(given.get("images", []))
        if entry.kind == "audit":
            images.add(given["image"])
        taught += len(given.get("examples", []))
    return len(groups) + len(images) + taught


@pytest.mark.parametrize("seed", range(12))
def test_random_edits_are_as_the_naive_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log: list[Edit] = []
    stack = Stack([(plain(first()), 0)], [])
    for _ in range(60):
        what = rng.random()
        if what < 0.2:
            log.append(Edit("undo"))
            stack.undo()
        elif what < 0.35:
            log.append(Edit("redo"))
            stack.redo()
        else:
            now = replay(log, first(), LINKAGE)
            made = random_edit(rng, now)
            before = stack.past[-1][0]
            found = apply(made, now, LINKAGE)
            check_sound(found)
            if made.kind == "cut":
                check_cut(before, plain(found), made.payload["k"])
                state = plain(found)
            else:
                state = naive(made, before)
            log.append(made)
            done = effective(log)
            spent = naive_spent(done, [past[0] for past in stack.past])
            stack.do(state, spent)
        replayed = replay(log, first(), LINKAGE)
        assert plain(replayed) == stack.past[-1][0]
        assert spent_by(log) == stack.past[-1][1]
    assert len(stack.past) > 5


def spent_by(log: list[Edit]) -> int:
    now, spent = first(), Spent(frozenset(), np.zeros(N, bool))
    for entry in effective(log):
        spent = spend(entry, now, spent)
        now = apply(entry, now, LINKAGE)
    return spent.total


def test_labels_spent() -> None:
    rows = first().members(0).tolist()
    log = [
        (edit("name", group=0, name="dents"), 1),
        (edit("name", group=0, name="pits"), 1),
        (edit("accept", group=0), 1),
        (edit("role", group=0, role="normal"), 1),
        (edit("name", group=1, name=" "), 1),
        (edit("role", group=2, role="unsure"), 2),
        (edit("move", images=[0, 1, 1], to=0), 4),
        (edit("accept", images=[1, 2]), 5),
        (edit("several", images=[2, 3], groups=[1]), 6),
        (edit("cut", k=5), 6),
        (edit("merge", groups=[1], into=0), 6),
        (edit("split", group=0, images=rows[:2]), 6),
        (edit("split", group=0, images=rows[2:3], name="burr"), 7),
        (edit("move", images=[4], to="new"), 8),
        (edit("move", images=[4], to="new", name="rust"), 9),
        (Edit("carry", carried()), 9),
        (edit("name", group=7, name="a"), 10),
        (Edit("carry", {**carried(), "spent": 5}), 15),
    ]
    for stop, (_, count) in enumerate(log, 1):
        assert spent_by([entry for entry, _ in log[:stop]]) == count, log[stop - 1][0]
    undone = [entry for entry, _ in log] + [Edit("undo")] * 9
    assert spent_by(undone) == 6


def test_nothing_old_is_changed() -> None:
    rng = np.random.default_rng(5)
    now = first()
    spent = Spent(frozenset(), np.zeros(N, bool))
    linkage = LINKAGE.copy()
    linkage.flags.writeable = False
    for step in range(200):
        made = random_edit(rng, now) if step % 50 else Edit("carry", carried())
        before, text = copy.deepcopy(now), json.dumps(made.payload)
        for values in (now.labels, now.confirmed, spent.images):
            values.flags.writeable = False
        count = spent.total
        later = apply(made, now, linkage)
        later_spent = spend(made, now, spent)
        assert plain(now) == plain(before)
        assert json.dumps(made.payload) == text
        assert spent.total == count
        now, spent = later, later_spent


def test_edits_are_as_good_from_json() -> None:
    rng = np.random.default_rng(6)
    log = [Edit("carry", carried())]
    for _ in range(50):
        log.append(random_edit(rng, replay(log, first(), LINKAGE)))
    read = [Edit(entry.kind, json.loads(json.dumps(entry.payload))) for entry in log]
    assert plain(replay(read, first(), LINKAGE)) == plain(replay(log, first(), LINKAGE))


def test_thousands_of_edits_of_thousands_of_images() -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 40, n)
    begun = Labelling({i: Group(i) for i in range(40)}, labels, np.zeros(n, bool), 40, 40)
    log = []
    for number in range(5000):
        rows = rng.integers(0, n, 5).tolist()
        log.append(
            [
                edit("move", images=rows, to=number % 40),
                edit("name", group=number % 40, name=f"kind {number}"),
                edit("several", images=rows, groups=[number % 40]),
                edit("accept", images=rows),
            ][number % 4]
        )
    now = within(2.0, lambda: replay(log, begun, np.zeros((n - 1, 4))))  # a quarter of a second
    assert now.confirmed.sum() > 9_000


def test_a_cut_of_thousands_into_thousands() -> None:
    n = 20_000
    tree: Array = np.zeros((n - 1, 4))  # a ladder: each image joins all those before it
    tree[:, 0] = np.concatenate([[0], n + np.arange(n - 2)])
    tree[:, 1] = np.arange(1, n)
    tree[:, 2] = np.arange(n - 1)
    labels = np.arange(n) // 4
    begun = Labelling({i: Group(i) for i in range(n // 4)}, labels, np.zeros(n, bool), 40, n // 4)
    now = within(4.0, lambda: apply(edit("cut", k=n), begun, tree))
    assert len(now.groups) == n
    assert len(set(now.labels.tolist())) == n
    # Of the four images of a group one goes on with its id.
    assert set(range(n // 4)) <= set(now.labels.tolist())
    assert all(
        now.labels[row] in (row // 4, *range(n // 4, now.next_id)) for row in range(0, n, 97)
    )

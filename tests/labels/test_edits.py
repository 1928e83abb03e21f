"""Edits of groups: each kind against a slow, plain answer, what it refuses, undo and redo."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import KINDS, Edit
from flawsort.labels.edits import Spent, apply, effective, replay, spend
from flawsort.labels.groups import Group, Labelling
from flawsort.labels.sentences import describe
from helpers.bags import Array, blobs

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
        groups[state["next_id"]] = (given.get("name", "").strip(), "flaw")
        for row in given["images"]:
            labels[row] = state["next_id"]
        state["next_id"] += 1
    elif entry.kind == "move":
        naive_move(state, given)
    elif entry.kind == "several":
        for row in given["images"]:
            state["several"][row] = list(given["groups"])
    elif entry.kind == "accept":
        rows = given.get("images") or members(state, given["group"])
        state["confirmed"] = sorted({*state["confirmed"], *rows})
    clean_several(state)
    return state


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


def naive_move(state: Naive, given: Any) -> None:
    groups, to = state["groups"], given["to"]
    left = {state["labels"][row] for row in given["images"]}
    if isinstance(to, str):
        of_role = [group for group in sorted(groups) if groups[group][1] == to]
        if to == "new" or not of_role:
            role = "flaw" if to == "new" else to
            groups[state["next_id"]] = (given.get("name", "").strip(), role)
            of_role = [state["next_id"]]
            state["next_id"] += 1
        to = of_role[0]
    for row in given["images"]:
        state["labels"][row] = to
        state["confirmed"] = sorted(
            {*state["confirmed"], row} - ({row} if unsure(state, to) else set())
        )
    clean_several(state)
    for group in left - {to}:
        drop_if_empty(state, group)


def unsure(state: Naive, group: int) -> bool:
    return bool(state["groups"][group][1] == "unsure")


def clean_several(state: Naive) -> None:
    for row, kinds in state["several"].items():
        once = list(dict.fromkeys(kinds))
        state["several"][row] = [kind for kind in once if kind != state["labels"][row]]


def drop_if_empty(state: Naive, group: int) -> None:
    shown = any(group in kinds for kinds in state["several"].values())
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
    for number, rows in enumerate(clusters):
        free = {now["labels"][row] for row in rows - stay}
        assert len(free) <= 1
        for heir in free:
            heirs[number] = heir
    made = [heir for heir in heirs.values() if heir not in before["groups"]]
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
    expected = {**before["groups"], **{group: ("", "flaw") for group in made}}
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
        to: Any = [group, "normal", "unsure", "new"][rng.integers(4)]
        return edit(kind, images=rows, to=to, **({"name": name} if to == "new" else {}))
    if kind == "several":
        others = [int(one) for one in rng.choice(ids, rng.integers(0, 3))]
        return edit(kind, images=rows, groups=others)
    if kind == "accept" and own:
        return edit(kind, group=group) if rng.random() < 0.3 else edit(kind, images=rows[:2])
    return edit("cut", k=int(rng.integers(1, 12)))


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
    np.testing.assert_array_equal(now.confirmed, before.confirmed)
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
    }
    check_sound(now)
    few = {**carried(), "groups": [{"id": 1, "name": "", "role": "flaw"}], "labels": [1] * N}
    few["several"] = {}
    assert after(Edit("carry", few)).next_id == 4  # an id of this run is not given again either


# ---- what makes no sense ----


CASES: list[tuple[str, Any, str]] = [
    ("paint", {}, r"kind must be one of name, role, merge, .*, carry\. Got 'paint'\."),
    ("undo", {}, r"kind must be one of .* Got 'undo'\."),
    (["name"], {}, r"kind must be one of .* Got \['name'\]\."),
    ("name", None, r"The payload of name must be a mapping\. Got None\."),
    ("name", {"group": 0}, r"name takes group, name\. Got 'group'\."),
    ("cut", {}, r"cut takes k\. Got none\."),
    ("cut", {"k": 2, "K": 3}, r"cut takes k\. Got 'k', 'K'\."),
    ("split", {"group": 0}, r"split takes group, images, name \(optional\)\. Got 'group'\."),
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
        ("merge", {"groups": [0, 1, 3], "into": 2}, "Merge dents, Normal and Group 3 into Group 2"),
        ("merge", {"groups": [0, 1, 3, 4], "into": 2}, "Merge 4 groups into Group 2"),
        ("split", {"group": 0, "images": [1]}, "Split 1 image from dents"),
        ("split", {"group": 0, "images": [1, 2], "name": "a"}, "Split 2 images from dents as a"),
        ("move", {"images": [1, 2, 2], "to": 0}, "Move 2 images to dents"),
        ("move", {"images": [1], "to": "normal"}, "Move 1 image to Normal"),
        ("move", {"images": [1], "to": "unsure"}, "Move 1 image to Unsure"),
        ("move", {"images": [1], "to": "new"}, "Move 1 image to a new group"),
        ("move", {"images": [1], "to": "new", "name": "rust"}, "Move 1 image to a new group rust"),
        ("several", {"images": [1], "groups": [3, 0]}, "Mark 1 image as also Group 3 and dents"),
        ("several", {"images": [1, 2], "groups": []}, "Mark 2 images as of one kind only"),
        ("accept", {"group": 0}, "Accept dents"),
        ("accept", {"images": [1, 2]}, "Accept 2 images"),
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
    for entry, before in zip(log, states, strict=True):
        given = entry.payload
        named = bool(given.get("name", "").strip())
        if entry.kind in ("role", "accept") and "group" in given:
            groups.add(given["group"])
        if entry.kind == "name" and named:
            groups.add(given["group"])
        if entry.kind in ("split", "move") and named:
            groups.add(before["next_id"])
        if entry.kind in ("move", "accept", "several"):
            images |= set(given.get("images", []))
    return len(groups) + len(images)


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
    start = time.process_time()
    now = replay(log, begun, np.zeros((n - 1, 4)))
    assert time.process_time() - start < 2.0  # a quarter of a second; machines may be busy
    assert now.confirmed.sum() > 9_000


def test_a_cut_of_thousands_into_thousands() -> None:
    n = 20_000
    tree: Array = np.zeros((n - 1, 4))  # a ladder: each image joins all those before it
    tree[:, 0] = np.concatenate([[0], n + np.arange(n - 2)])
    tree[:, 1] = np.arange(1, n)
    tree[:, 2] = np.arange(n - 1)
    labels = np.arange(n) // 4
    begun = Labelling({i: Group(i) for i in range(n // 4)}, labels, np.zeros(n, bool), 40, n // 4)
    start = time.process_time()
    now = apply(edit("cut", k=n), begun, tree)
    assert time.process_time() - start < 4.0
    assert len(now.groups) == n
    assert len(set(now.labels.tolist())) == n
    # Of the four images of a group one goes on with its id.
    assert set(range(n // 4)) <= set(now.labels.tolist())
    assert all(
        now.labels[row] in (row // 4, *range(n // 4, now.next_id)) for row in range(0, n, 97)
    )

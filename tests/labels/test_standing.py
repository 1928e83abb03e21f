"""Which edits are added on top of newer ones: those about what nobody else has touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort.labels import standing as module
from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import Group, Labelling
from flawsort.labels.session import Session
from flawsort.labels.standing import Shown, ShownVersions, stands
from flawsort.labels.store import Conflict, EditStore
from flawsort.runs.folder import EDITS

GROUPS = {number: Group(number, f"kind {number}") for number in range(3)}
BEFORE = Shown(
    Labelling(GROUPS, np.array([0, 0, 1, 1, 2]), np.zeros(5, bool), 3, 3), np.array([0, 0, 1, 1, 2])
)
SHOWN = ("groups", "confirmed", "several", "rejected", "notes")


def changed(**labelling: Any) -> Shown:
    shown = labelling.pop("shown", BEFORE.groups)
    return Shown(replace(BEFORE.labelling, **labelling), np.asarray(shown))


@pytest.mark.parametrize(
    "now",
    [
        changed(shown=[0, 1, 1, 1, 2]),
        changed(confirmed=np.array([False, True, False, False, False])),
        changed(several={1: (2,)}),
        changed(rejected={1: (0,)}),
        changed(notes={1: "look again"}),
    ],
    ids=SHOWN,
)
def test_what_names_an_image_stands_while_the_image_looks_the_same(now: Shown) -> None:
    move = {"to": 2}
    for kind, payload in (("accept", {}), ("move", move), ("reject", {}), ("split", {})):
        assert stands(Edit(kind, {"images": [0, 2], **payload}), BEFORE, now)
        assert not stands(Edit(kind, {"images": [0, 1], **payload}), BEFORE, now)
    assert stands(Edit("note", {"image": 0, "note": "x"}), BEFORE, now)
    assert not stands(Edit("note", {"image": 1, "note": "x"}), BEFORE, now)


@pytest.mark.parametrize(
    "group",
    [
        Group(1, "another name"),
        Group(1, "kind 1", role="normal"),
        Group(1, "kind 1", severity="minor"),
        Group(1, "kind 1", note="see the norm"),
        None,
    ],
)
def test_what_names_a_group_stands_while_the_group_looks_the_same(group: Group | None) -> None:
    others = {number: one for number, one in GROUPS.items() if number != 1}
    now = changed(groups=others if group is None else {**others, 1: group})
    for payload in ({"images": [2]}, {"images": [0], "to": 1}, {"images": [0], "groups": [0, 1]}):
        assert not stands(Edit("move", payload), BEFORE, now)
    assert stands(Edit("move", {"images": [0], "to": 2}), BEFORE, now)
    assert not stands(Edit("name", {"group": 1, "name": "dent"}), BEFORE, now)
    assert stands(Edit("name", {"group": 0, "name": "dent"}), BEFORE, now)


def test_what_names_a_group_alone_stands_while_it_has_the_same_images() -> None:
    now = changed(labels=np.array([0, 0, 1, 2, 2]))  # as after a merge or a cut
    edits = [
        Edit("name", {"group": 1, "name": "dent"}),
        Edit("role", {"group": 2, "role": "normal"}),
        Edit("different", {"groups": [0, 1]}),
    ]
    assert all(stands(edit, BEFORE, BEFORE) for edit in edits)
    assert not any(stands(edit, BEFORE, now) for edit in edits)
    assert stands(Edit("name", {"group": 0, "name": "dent"}), BEFORE, now)
    move = Edit("move", {"images": [0], "to": 2})
    assert stands(Edit("move", {"images": [0], "to": 1}), BEFORE, now)
    assert not stands(move, BEFORE, now)
    # Somebody moved one image there: that is an answer.
    moved = changed(labels=now.labelling.labels, confirmed=np.array([False] * 3 + [True, False]))
    assert stands(move, BEFORE, moved)


@pytest.mark.parametrize(
    "edit",
    [
        Edit("cut", {"k": 3}),
        Edit("merge", {"groups": [0, 1]}),
        Edit("accept", {"group": 0}),  # its images as they are shown, whichever these are
        Edit("accept", {"images": "0"}),
        Edit("accept", {"images": [0.0]}),
        Edit("accept", {"images": [5]}),
        Edit("accept", {"images": [-1]}),
        Edit("accept"),
    ],
)
def test_what_is_about_everything_or_is_no_edit_stands_on_nothing(edit: Edit) -> None:
    assert not stands(edit, BEFORE, BEFORE)


def test_versions_are_kept_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ShownVersions()
    for version in range(module.KEPT_VERSIONS + 3):
        seen.keep(version, BEFORE)
    assert seen.at(2) is None
    assert seen.at(3) is BEFORE
    monkeypatch.setattr(module, "KEPT_BYTES", 2 * BEFORE.groups.nbytes)
    seen.keep(100, BEFORE)
    assert [seen.at(version) is None for version in (module.KEPT_VERSIONS + 1, 100)] == [
        True,
        False,
    ]


def test_people_who_answer_at_once_all_get_in(folder: Path) -> None:
    """Of an older version only if its author saw it, and if nobody touched what the edit names."""
    with Session(folder) as one, Session(folder) as other:
        saw = [int(group) for group in one.state.suggestions.groups]
        one.edit("accept", {"images": [0]}, 0, "Ann")
        assert other.state.suggestions.groups.tolist() == saw
        now = one.edit("accept", {"images": [1]}, 0, "Ben")
        assert now.confirmed[[0, 1]].all()
        assert other.edit("accept", {"images": [2]}, 0, "Cid").confirmed[[0, 1, 2]].all()
        another = next(group for group in sorted(set(saw)) if group != saw[3])
        one.edit("move", {"images": [3], "to": another}, 3)
        with pytest.raises(Conflict):
            one.edit("accept", {"images": [3]}, 0)
        with pytest.raises(Conflict):
            one.edit("cut", {"k": 2}, 0)
        with pytest.raises(Conflict):
            one.undo(0)
        with pytest.raises(Conflict, match="version 99"):
            one.edit("accept", {"images": [4]}, 99)
    with EditStore(folder / EDITS) as store:
        assert [entry.edit.payload["images"] for entry in store.log()] == [[0], [1], [2], [3]]


def test_nobody_saw_a_version_that_nobody_asked_for(folder: Path) -> None:
    with Session(folder) as session, Session(folder) as other:
        session.edit("name", {"group": 0, "name": "dents"}, 0)
        with pytest.raises(Conflict):  # it never showed version 0
            other.edit("name", {"group": 1, "name": "stains"}, 0)

"""Undo of an edit that is not the last: exactly what it did, or a refusal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import Labelling
from flawsort.labels.session import Session, read_labelling
from flawsort.labels.undoing import differences
from flawsort.runs.run import Run
from helpers.edits import same

PEOPLE = ("Ann", "Ben")


def edit(session: Session, author: str, kind: str, **payload: object) -> int:
    """Gives the number of the edit."""
    session.edit(kind, payload, session.version, author)
    return session.version


def refused(session: Session, of: int, author: str, what: str = "undo") -> str:
    before, version = session.labelling, session.version
    with pytest.raises(OptionError) as error:
        getattr(session, what)(session.version, author, of=of)
    assert (session.version, session.labelling is before) == (version, True)
    return str(error.value)


def test_only_what_it_did(folder: Path) -> None:
    with Session(folder) as session:
        first = session.labelling
        moved = edit(session, "Ann", "move", images=[0], to=1)
        edit(session, "Ben", "move", images=[1], to=2)
        session.undo(session.version, "Ann", of=moved)
        now = session.labelling
        assert (now.labels[0], now.labels[1]) == (first.labels[0], 2)
        assert np.flatnonzero(now.confirmed).tolist() == [1]
        session.redo(session.version, "Ann", of=moved)
        assert (session.labelling.labels[0], session.labelling.labels[1]) == (1, 2)
    assert same(read_labelling(folder), session.labelling)


def test_only_ones_own(folder: Path) -> None:
    with Session(folder) as session:
        number = edit(session, "Ben", "name", group=1, name="dents")
        assert refused(session, number, "Ann") == (
            "Only Ben can undo 'Name Group 1 dents'. Ask Ben, or make another edit."
        )
        assert "Only Ben" in refused(session, number, "")
        nobody = edit(session, "", "accept", images=[3])
        session.undo(session.version, "Ann", of=nobody)  # an edit without a name is everybody's
        session.undo(session.version, " Ben ", of=number)
        assert session.labelling.groups[1].name == ""


def test_a_later_answer_rests_on_it(folder: Path) -> None:
    with Session(folder) as session:
        named = edit(session, "Ann", "name", group=1, name="dents")
        later = edit(session, "Ben", "move", images=[0], to=1)
        text = (
            "'Name Group 1 dents' cannot be undone, because a later answer rests on it: "
            "'Move 1 image to dents' by Ben. Undo that one first, or make another edit."
        )
        assert refused(session, named, "Ann") == text
        session.undo(session.version, "Ben", of=later)
        session.undo(session.version, "Ann", of=named)
        assert session.labelling.groups[1].name == ""
        # And its redo rests on nothing, until somebody uses the name again.
        edit(session, "Ben", "accept", images=[int(session.labelling.members(1)[0])])
        assert "cannot be redone" in refused(session, named, "Ann", "redo")


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (("move", {"images": [0], "to": "new", "name": "rust"}), ("accept", {"images": [0]})),
        (("move", {"images": [0], "to": 1}), ("note", {"image": 0, "note": "deep"})),
        (("move", {"images": [0], "to": 1}), ("merge", {"groups": [0], "into": 2})),
        (("role", {"group": 3, "role": "normal"}), ("move", {"images": [0], "to": "normal"})),
        (("severity", {"group": 1, "severity": "major"}), ("name", {"group": 1, "name": "dents"})),
        (("cut", {"k": 6}), ("cut", {"k": 4})),
        (("verdict", {"threshold": 0.5}), ("verdict", {"threshold": 0.9})),
        (("different", {"groups": [0, 1]}), ("merge", {"groups": [0], "into": 1})),
        (("reject", {"images": [0], "group": 0}), ("move", {"images": [0, 9], "to": 1})),
    ],
)
def test_what_counts_as_resting_on_it(
    folder: Path, mine: tuple[str, dict[str, object]], theirs: tuple[str, dict[str, object]]
) -> None:
    with Session(folder) as session:
        number = edit(session, "Ann", mine[0], **mine[1])
        edit(session, "Ben", theirs[0], **theirs[1])
        assert "a later answer rests on it" in refused(session, number, "Ann")


def test_later_groups_keep_their_ids(folder: Path) -> None:
    with Session(folder) as session:
        number = edit(session, "Ann", "move", images=[0], to="new", name="rust")
        edit(session, "Ben", "move", images=[1], to="new", name="glue")
        edit(session, "Ben", "move", images=[2], to=5)
        session.undo(session.version, "Ann", of=number)
        assert session.labelling.groups[5].name == "glue"
        assert session.labelling.members(5).tolist() == [1, 2]
        assert 4 not in session.labelling.groups
        edit(session, "Ben", "move", images=[3], to="new")
        assert 6 in session.labelling.groups
    assert read_labelling(folder).groups[5].name == "glue"


def test_a_redo_must_not_take_an_id_or_a_name(folder: Path) -> None:
    with Session(folder) as session:
        number = edit(session, "Ann", "move", images=[0], to="new", name="rust")
        session.undo(session.version, "Ann", of=number)
        edit(session, "Ben", "move", images=[1], to="new", name="glue")  # has the id of rust now
        assert "cannot be redone" in refused(session, number, "Ann", "redo")
        named = edit(session, "Ann", "name", group=1, name="dents")
        session.undo(session.version, "Ann", of=named)
        edit(session, "Ben", "name", group=2, name="dents")
        assert "there is a group 'dents' already" in refused(session, named, "Ann", "redo")


def test_numbers_that_are_none(folder: Path) -> None:
    with Session(folder) as session:
        number = edit(session, "Ann", "accept", images=[0])
        assert "of must be the number of an edit that can be undone. Got 9" in refused(
            session, 9, "Ann"
        )
        assert "that can be redone. Got 1" in refused(session, number, "Ann", "redo")
        session.undo(session.version, "Ann", of=number)
        assert "that can be undone. Got 1" in refused(session, number, "Ann")
        assert "Got 2" in refused(session, 2, "Ann")  # the undo itself


@pytest.mark.parametrize("kept", [1, 3, 64])
@pytest.mark.parametrize("seed", range(6))
def test_random_edits_of_two_people(folder: Path, run: Run, seed: int, kept: int) -> None:
    """An undo gives back exactly what the edit changed and touches nothing else, or is refused."""
    rng = np.random.default_rng(seed)
    done = 0
    with Session(folder, run, kept_states=kept) as session:
        states: dict[int, tuple[Labelling, Labelling]] = {}
        for _ in range(30):
            made = random_edit(rng, session.labelling)
            before = session.labelling
            try:
                number = edit(session, PEOPLE[rng.integers(2)], made.kind, **made.payload)
            except OptionError:
                continue
            states[number] = before, session.labelling
        for number in rng.permutation(list(states)).tolist():
            now = session.labelling
            author = next(
                told.entry.author for told in session.history() if told.entry.seq == number
            )
            then = undone(session, author, number)
            if then is None:
                continue
            done += 1
            before, after = states[number]
            changed = differences(before, after)
            assert differences(now, then).within(changed)
            assert not differences(before, then).meets(changed)
            check_read(folder, run, then)
            assert same(session.redo(session.version, author, of=number), now)
            check_read(folder, run, now)
            if rng.random() < 0.5:  # so that others are undone with gaps between them
                session.undo(session.version, author, of=number)
    assert done


def undone(session: Session, author: str, number: int) -> Labelling | None:
    """The groups without an edit; None if a later answer rests on it."""
    try:
        return session.undo(session.version, author, of=number)
    except OptionError as error:
        if "a later answer rests on it" not in str(error):
            raise
    return None


def check_read(folder: Path, run: Run, now: Labelling) -> None:
    """The file says the same."""
    assert same(read_labelling(folder, run), now)


def random_edit(rng: np.random.Generator, now: Labelling) -> Edit:
    group, other = (int(one) for one in rng.choice(list(now.groups), 2))
    rows = sorted({int(row) for row in rng.choice(len(now.labels), 2)})
    to = ["new", "unsure", "normal", group][rng.integers(4)]
    name = f"kind {rng.integers(99)}"
    return [
        Edit("move", {"images": rows, "to": to}),
        Edit("move", {"images": rows[:1], "to": "new", "name": name}),
        Edit("name", {"group": group, "name": name}),
        Edit("several", {"images": rows[:1], "groups": [group]}),
        Edit("accept", {"images": rows}),
        Edit("reject", {"images": rows[:1], "group": group}),
        Edit("merge", {"groups": [other], "into": group}),
        Edit("severity", {"group": group, "severity": "minor"}),
        Edit("note", {"image": rows[0], "note": name}),
        Edit("audit", {"image": rows[0], "to": group}),
        Edit("role", {"group": group, "role": "normal"}),
    ][rng.choice(11, p=[0.15, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05, 0.1, 0.1, 0.05, 0.05])]

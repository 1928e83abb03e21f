"""Teach a saved run from Python."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flawsort import InputError, OptionError, Run, RunError, open_run
from flawsort.labels.session import Session
from flawsort.labels.store import EditStore
from flawsort.labels.teach import measured, teach_run
from flawsort.runs.folder import EDITS


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Run:
    """Two groups: 7 dents and 7 streaks."""
    shutil.copytree(saved, tmp_path / "run")
    return open_run(tmp_path / "run")


def log(run: Run) -> list[tuple[str, str]]:
    assert run.folder is not None
    with EditStore(run.folder / EDITS) as store:
        return [(entry.edit.kind, str(entry.edit.payload["to"])) for entry in store.log()]


def test_labels_are_edits_like_those_of_a_review(run: Run) -> None:
    labels = {
        "streak07.png": "line", "dent00.png": "hole", "dent01.png": " hole ",
        "streak08.png": "line",
        "dent02.png": None, "streak09.png": "Good",
    }  # fmt: skip
    assert run.teach(labels) is run
    assert log(run) == [("move", "new"), ("move", "new"), ("move", "normal")]
    frame = run.suggestions()
    found = {
        name: (group, decided)
        for name, group, decided in zip(
            frame["name"], frame["group"], frame["decided"], strict=True
        )
    }
    assert found["dent01.png"] == ("hole", True)
    assert found["streak08.png"] == ("line", True)
    assert found["streak09.png"] == ("normal", True)
    assert found["dent02.png"][1] is False
    assert {group.title for group in run.groups} >= {"hole", "line", "normal"}
    # Again: the groups are there already.
    run.teach({"dent03.png": "hole", "streak10.png": "normal"})
    assert [to for _, to in log(run)[3:]] == ["2", "normal"]
    with Session(run.folder) as session:  # type: ignore[arg-type]
        assert session.can_undo is not None
        session.undo(session.version)
    assert not run.suggestions()["decided"][run.row_of["streak10.png"]]


def test_what_was_taught_decides_the_others(run: Run) -> None:
    run.teach({name: name[:4] for name in run.names if name[-5] in "0123789"})
    frame = run.suggestions()
    for name, group, sure, decided in zip(
        frame["name"], frame["group"], frame["probability"], frame["decided"], strict=True
    ):
        assert group == name[:4]
        assert decided or 0.5 < sure <= 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"dent00.png": "hole", "gone.png": "hole"}, "1 of the 2 names with a label is not among "),
        ({"dent00.png": "hole", "dent01.png": 3}, "must be text, or None where unknown. Got 3 for"),
        (
            {"dent00.png": "a", "dent01.png": "a\nb"},
            "The label of 'dent01.png' cannot name a group",
        ),
        ({"dent00.png": "a", "dent01.png": "unsure"}, "'unsure' has a meaning of its own"),
        ({"dent00.png": "a", "dent01.png": "New Kind"}, "'New Kind' has a meaning of its own"),
        ({"dent00.png": "a", "dent01.png": "A"}, "differ in case only. Got 'a' and 'A': write "),
    ],
)
def test_all_or_nothing(run: Run, labels: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run.teach(labels)
    assert run.folder is not None
    assert not (run.folder / EDITS).exists()


def test_names_of_other_groups_are_refused_before_anything_is_written(run: Run) -> None:
    run.teach({"dent00.png": "hole"})
    for label in ("Hole", "Group 1"):
        with pytest.raises(OptionError, match=f"there is a group '{label}' already"):
            run.teach({"dent01.png": "a", "dent02.png": label})
    assert log(run) == [("move", "new")]


def test_a_run_that_is_not_saved(run: Run) -> None:
    with pytest.raises(RunError, match=r"The run is not saved, so nobody can teach it\. Save it"):
        teach_run(replace(run, folder=None), {"dent00.png": "hole"})


def test_accuracy_needs_answers(run: Run) -> None:
    assert run.accuracy() == {"suggestions": None, "audit": None}
    assert run.folder is not None
    with Session(run.folder) as session:
        for row in range(12):
            session.edit("audit", {"image": row, "to": 0 if row < 7 else 1}, session.version)
        state = session.state
    found = run.accuracy()["audit"]
    assert found is not None
    assert found == measured(state)["audit"]
    assert found["n"] == 12
    assert 0 <= found["low"] < found["share"] <= found["high"] <= 1
    run.teach({name: kind(name) for name in run.names[:12]})
    assert run.accuracy()["suggestions"] is None  # an audited image is decided already


def test_each_label_is_an_answer_to_what_was_suggested_before(run: Run) -> None:
    first = ("dent00.png", "dent01.png", "streak07.png")
    run.teach({name: kind(name) for name in first})
    # Nothing was suggested before the first labels, so they measure nothing.
    assert answers(run) == []
    before = run.suggestions()
    suggested = dict(zip(before["name"], before["group"], strict=True))
    rest = [name for name in run.names if name not in first]
    # Two labels are not what was suggested, and one image has its label already.
    given = {name: kind(name) for name in [*rest, first[0]]} | {rest[0]: "streak", rest[-1]: "x"}
    run.teach(given)
    right = sum(suggested[name] == given[name] for name in rest)
    assert 0 < right <= len(rest) - 2
    assert sorted(answers(run)) == [False] * (len(rest) - right) + [True] * right
    found = run.accuracy()["suggestions"]
    assert found is not None
    assert (found["n"], found["share"]) == (len(rest), right / len(rest))
    with Session(run.folder) as session:  # type: ignore[arg-type]
        session.undo(session.version)
        assert len(session.labelling.answers) == len(rest) - 1


def test_a_group_that_the_labels_empty_was_not_the_answer(run: Run) -> None:
    assert run.folder is not None
    with Session(run.folder) as session:  # the two clusters are taught the other way round
        session.edit("move", {"images": [0, 1, 2], "to": 1}, 0)
        session.edit("move", {"images": [7, 8, 9], "to": 0}, session.version)
        assert set(session.state.suggestions.groups[3:7]) == {1}
        assert len(session.labelling.answers) == 3  # to the second edit: 1 was known by then
    # The first label takes all that is left of group 1, in which the dents were suggested to be.
    lines = {name: "line" for name in run.names if kind(name) == "streak" or name < "dent03"}
    run.teach({**lines, "dent03.png": "pit", "dent04.png": "pit"})
    assert [group.id for group in run.groups if group.title == "Group 1"] == []
    assert answers(run) == [False] * (3 + len(lines) - 6 + 2)


def kind(name: str) -> str:
    return "dent" if name.startswith("dent") else "streak"


def answers(run: Run) -> list[bool]:
    """Whether each answer was what had been suggested."""
    assert run.folder is not None
    with Session(run.folder) as session:
        return [one.suggested == one.given for one in session.labelling.answers.values()]

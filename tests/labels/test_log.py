"""Which edits of a log are in force."""

from __future__ import annotations

from typing import Any

import pytest

from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import Edit, Entry
from flawsort.labels.log import History, effective

A, B, C, D = (Edit("accept", {"images": [row]}) for row in range(4))
UNDO, REDO = Edit("undo"), Edit("redo")


def undo(of: Any, **more: Any) -> Edit:
    return Edit("undo", {"of": of, **more})


def redo(of: Any) -> Edit:
    return Edit("redo", {"of": of})


@pytest.mark.parametrize(
    ("log", "in_force"),
    [
        ([A, B, C, undo(2)], [A, C]),
        ([A, B, C, undo(2), redo(2)], [A, B, C]),  # in its place, not at the end
        ([A, B, C, undo(2), UNDO, UNDO], []),
        ([A, B, C, undo(2), UNDO, REDO, redo(2)], [A, B, C]),
        ([A, B, undo(2), REDO], [A, B]),  # the last one: as an undo without a number
        ([A, B, C, undo(1), REDO], [B, C]),  # a redo without a number is not about it
        ([A, B, undo(2), C, redo(2)], [A, B, C]),
        ([A, B, undo(2), C, REDO], [A, C]),  # an edit made a redo without a number pointless
        ([A, undo(7), undo(0), redo(1), redo(9)], [A]),
        ([A, B, undo(1), undo(1), redo(2)], [B]),
        ([A, undo(1), undo(1), D], [D]),
    ],
)
def test_undo_and_redo_of_one_edit(log: list[Edit], in_force: list[Edit]) -> None:
    assert effective(log) == in_force


def test_numbers_go_on_from_a_run_that_was_replaced() -> None:
    entries = [Entry(40, "", "", A), Entry(41, "", "", B), Entry(42, "", "", undo(40))]
    assert effective(entries) == [B]


@pytest.mark.parametrize(
    "payload", [{"of": "1"}, {"of": True}, {"ids": -1}, {"ids": 2**60}, {"ids": None}, {"more": 1}]
)
def test_nonsense(payload: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        effective([A, Edit("undo", payload)])


def test_what_each_author_could_redo() -> None:
    def entry(number: int, author: str, edit: Edit) -> Entry:
        return Entry(number, "", author, edit)

    log = [entry(1, "Ann", A), entry(2, "Ben", B), entry(3, "Ann", undo(1))]
    assert History.of(log).redoable == {"Ann": [0]}
    log.append(entry(4, "Ben", C))  # does not take Ann's redo away
    assert History.of(log).redoable == {"Ann": [0]}
    assert History.of([*log, entry(5, "Ann", D)]).redoable == {}
    assert History.of([*log, entry(5, "Ann", redo(1))]).redoable == {"Ann": []}

"""Severities and notes: what is kept, what is refused, and how they go along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import LONGEST_NOTE
from flawsort.labels.groups import Labelling
from flawsort.labels.session import Session, read_labelling
from helpers.edits import same


def after(folder: Path, *edits: tuple[str, dict[str, Any]]) -> Labelling:
    with Session(folder) as session:
        for kind, payload in edits:
            session.edit(kind, payload, session.version)
    assert same(read_labelling(folder), session.labelling)
    return session.labelling


def test_severities(folder: Path) -> None:
    now = after(
        folder,
        ("severity", {"group": 1, "severity": "critical"}),
        ("severity", {"group": 2, "severity": "none"}),
        ("severity", {"group": 3, "severity": "minor"}),
        ("severity", {"group": 3, "severity": ""}),
    )
    assert [now.groups[group].severity for group in range(4)] == ["", "critical", "none", ""]


@pytest.mark.parametrize("severity", ["Critical", "bad", None, 1, ["minor"], "<b>minor</b>"])
def test_nonsense_is_no_severity(folder: Path, severity: object) -> None:
    with pytest.raises(OptionError, match="severity must be one of critical, major, minor, none"):
        after(folder, ("severity", {"group": 1, "severity": severity}))


def test_only_flaws_are_severe(folder: Path) -> None:
    with pytest.raises(OptionError, match="severity is for kinds of flaws"):
        after(
            folder,
            ("role", {"group": 1, "role": "normal"}),
            ("severity", {"group": 1, "severity": "minor"}),
        )


def test_notes(folder: Path) -> None:
    now = after(
        folder,
        ("note", {"group": 1, "note": "  ask the supplier  "}),
        ("note", {"image": 7, "note": "<img src=x onerror=alert(1)>"}),
        ("note", {"image": 3, "note": "=1+1"}),
        ("note", {"image": 4, "note": "gone soon"}),
        ("note", {"image": 4, "note": ""}),
    )
    assert now.groups[1].note == "ask the supplier"
    assert now.notes == {3: "=1+1", 7: "<img src=x onerror=alert(1)>"}  # as it was typed
    assert list(now.notes) == [3, 7]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"note": "x" * (LONGEST_NOTE + 1), "image": 1}, "at most 500 characters. Got 501"),
        ({"note": "a\nb", "image": 1}, "one line without control characters"),
        ({"note": "a\x00b", "image": 1}, "one line without control characters"),
        ({"note": "a\u202eb", "image": 1}, "one line without control characters"),
        ({"note": 7, "image": 1}, "note must be text. Got 7"),
        ({"note": "a"}, "note takes either group or image"),
        ({"note": "a", "image": 1, "group": 1}, "note takes either group or image"),
        ({"note": "a", "image": 99}, "rows of the run's table"),
        ({"note": "a", "group": 99}, "there is no group 99"),
        ({"note": "a", "image": True}, "whole numbers"),
    ],
)
def test_nonsense_is_no_note(folder: Path, payload: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        after(folder, ("note", payload))


def test_groups_that_become_one(folder: Path) -> None:
    now = after(
        folder,
        ("note", {"group": 1, "note": "left side"}),
        ("note", {"group": 2, "note": "right side"}),
        ("note", {"group": 3, "note": "left side"}),
        ("severity", {"group": 2, "severity": "major"}),
        ("severity", {"group": 3, "severity": "minor"}),
        ("merge", {"groups": [3, 2], "into": 1}),
    )
    # Groups without a severity of their own take the first that people gave.
    assert (now.groups[1].severity, now.groups[1].note) == ("minor", "left side / right side")


def test_a_group_with_a_note_is_not_lost(folder: Path) -> None:
    with Session(folder) as session:
        rows = session.labelling.members(2).tolist()
    now = after(
        folder,
        ("note", {"group": 2, "note": "only on Mondays"}),
        ("move", {"images": rows, "to": 1}),
    )
    assert now.groups[2].note == "only on Mondays"


def test_they_cost_no_labels_and_teach_nothing(folder: Path) -> None:
    with Session(folder) as session:
        before = session.state.suggestions
        session.edit("severity", {"group": 1, "severity": "major"}, 0)
        session.edit("note", {"image": 1, "note": "deep"}, 1)
        assert session.labels_spent == 0
        assert np.array_equal(session.state.suggestions.groups, before.groups)
        assert session.state.suggestions.taught is None

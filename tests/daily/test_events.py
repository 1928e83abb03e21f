"""Which events somebody wants to hear of, and what they say."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from flawsort.core.errors import OptionError
from flawsort.daily.events import Condition, as_line, image_events, numbered, rise_events

DENT = {"event": "image", "group": "dent", "verdict": "not OK", "also": []}
BOTH = {"event": "image", "group": "streak", "verdict": "not OK", "also": ["dent", "hole"]}
ASIDE = {"event": "set aside", "name": "a.png"}
RISE = {"event": "rise", "group": "dent", "normal": False}
MORE_GOOD = {"event": "rise", "group": "normal", "normal": True}


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("kind=dent", [DENT, BOTH]),
        (" kind = dent ", [DENT, BOTH]),
        ("kind=streak", [BOTH]),
        ("kind=hole", [BOTH]),
        ("kind=Dent", []),
        ("verdict=not OK", [DENT, BOTH]),
        ("verdict=OK", []),
        ("rise", [RISE]),
        ("rise=dent", [RISE]),
        ("rise=normal", [MORE_GOOD]),
        ("rise=other", []),
        ("set aside", [ASIDE]),
    ],
)
def test_conditions(text: str, heard: list[dict[str, Any]]) -> None:
    condition = Condition.parse(text)
    events = (DENT, BOTH, ASIDE, RISE, MORE_GOOD)
    assert [event for event in events if condition.holds(event)] == heard


@pytest.mark.parametrize(
    "text", ["", "kind", "kind=", "verdict", "verdict=ok", "rise=", "set aside=x", "group=dent"]
)
def test_conditions_that_are_none(text: str) -> None:
    with pytest.raises(OptionError, match="must be kind=NAME, "):
        Condition.parse(text)


def test_a_line_for_each_event() -> None:
    rows = [{"name": "a\nb", "score": math.nan}, {"name": "\u00e9", "score": 1.0}]
    events = image_events(rows, [[], ["dent"]])
    told = numbered(events, 7, "2026-11-19T08:00:00+00:00")
    lines = b"".join(map(as_line, told)).decode().splitlines()
    first, second = map(json.loads, lines)
    assert (first["id"], first["name"], first["score"]) == ("7.0", "a\nb", None)
    assert (second["event"], second["id"], second["name"]) == ("image", "7.1", "\u00e9")
    assert (first["also"], second["also"]) == ([], ["dent"])


def test_a_rise_is_of_the_last_period() -> None:
    usual = [(f"2026-11-{day:02d}", group, 20) for day in range(1, 8) for group in (0, 1)]
    assert rise_events(usual, {0: "dent", 1: "streak"}) == []
    many = [*usual, ("2026-11-08", 0, 60), ("2026-11-08", 1, 20)]
    [(increase, event)] = rise_events(many, {0: "dent", 1: "streak"})
    assert (increase.group, increase.period) == (0, "2026-11-08")
    assert (event["event"], event["group"], event["count"]) == ("rise", "dent", 60)


def test_more_good_parts_are_marked() -> None:
    usual = [("2026-11-01", 0, 20), ("2026-11-01", 3, 20), ("2026-11-02", 3, 20)]
    [(_, event)] = rise_events(usual, {3: "fine"}, normal=[3])
    assert (event["group"], event["normal"]) == ("fine", True)
    [(_, event)] = rise_events(usual, {3: "fine"}, normal=[0])
    assert event["normal"] is False


def test_the_last_lot_is_the_one_that_came_last() -> None:
    """Whatever it is called."""
    counted = [("Z17", 0, 20), ("Z17", 1, 20), ("B02", 0, 60), ("B02", 1, 1)]
    [(increase, _)] = rise_events(counted, {}, by_arrival=True)
    assert (increase.period, increase.group) == ("B02", 0)
    [(increase, _)] = rise_events(counted, {})  # days: the last one by its name
    assert (increase.period, increase.group) == ("Z17", 1)

"""What happened to new images, as a program reads it, and which of it somebody wants to hear of."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from flawsort.core.errors import OptionError
from flawsort.core.text import either
from flawsort.labels.groups import Labelling
from flawsort.labels.newcomers import NOT_OK, OK
from flawsort.runs.tables import NEW_KIND_TITLE, NORMAL_TITLE
from flawsort.runs.trends import Counts, Increase, in_order, rises

# One JSON object: "event" is IMAGE, ASIDE or RISE; "id" is unique in a run.
Event: TypeAlias = dict[str, Any]
IMAGE, ASIDE, RISE = "image", "set aside", "rise"
ACCEPTED = ("kind=NAME", "verdict=OK", "verdict=not OK", "rise", "rise=NAME", "set aside")


@dataclass(frozen=True)
class Condition:
    """Which events somebody wants to hear of. what: "kind", "verdict", RISE or ASIDE. value: "" for
    any."""

    what: str
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> Condition:
        what, mark, value = (part.strip() for part in text.partition("="))
        right = {
            "kind": bool(value),
            "verdict": value in (OK, NOT_OK),
            RISE: bool(value) == bool(mark),
            ASIDE: not mark,
        }
        if not right.get(what, False):
            raise OptionError(f"must be {either(ACCEPTED)}. Got '{text}'.", parameter="on")
        return cls(what, value)

    def holds(self, event: Event) -> bool:
        if self.what == "kind":
            return bool(
                event["event"] == IMAGE and self.value in (event["group"], *event.get("also", ()))
            )
        if self.what == "verdict":
            return bool(event["event"] == IMAGE and event["verdict"] == self.value)
        if self.what == RISE and not self.value:  # more good parts are no alarm
            return bool(event["event"] == RISE and not event["normal"])
        return bool(event["event"] == self.what) and self.value in ("", event.get("group"))

    def unknown(self, labelling: Labelling) -> bool:
        """Whether the name is no group that people have named by now."""
        titles = {group.title for group in labelling.groups.values()}
        return (
            self.what in ("kind", RISE)
            and bool(self.value)
            and self.value not in titles | {NEW_KIND_TITLE, NORMAL_TITLE}
        )


def image_events(rows: Iterable[Mapping[str, Any]], also: Iterable[Sequence[str]]) -> list[Event]:
    """rows: of the table of new images. also: what each shows besides its group."""
    pairs = zip(rows, also, strict=True)
    return [{"event": IMAGE, **row, "also": list(others)} for row, others in pairs]


def numbered(events: Sequence[Event], number: int, at: str) -> list[Event]:
    """The events of a round with their ids and the time."""
    return [
        {"event": one["event"], "id": f"{number}.{place}", "at": at, **one}
        for place, one in enumerate(events)
    ]


def rise_events(
    counted: Sequence[tuple[str, int, int]],
    titles: Mapping[int, str],
    *,
    normal: Collection[int] = (),
    by_arrival: bool = False,
) -> list[tuple[Increase, Event]]:
    """The groups that rise in the last period. counted: period, group, and number of images.
    normal: the groups without a flaw. by_arrival: the last period is the one that `counted` has
    last for the first time, otherwise the last one by its name."""
    known = dict.fromkeys(period for period, _, _ in counted)
    periods = list(known) if by_arrival else in_order(known)
    groups = sorted({group for _, group, _ in counted})
    table = np.zeros((len(periods), len(groups)), np.int64)
    for period, group, n in counted:
        table[periods.index(period), groups.index(group)] = n
    found = rises(Counts(tuple(periods), tuple(groups), table))
    return [
        (
            one,
            {
                "event": RISE,
                **asdict(one),
                "group": titles.get(one.group, str(one.group)),
                "normal": one.group in normal,
            },
        )
        for one in found
    ]


def as_line(event: Event) -> bytes:
    """One line of JSON. Values that JSON does not have become null."""
    plain = {key: None if value != value else value for key, value in event.items()}
    return (json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n").encode()

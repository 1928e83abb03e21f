"""Who looks at which question of the queue, so that two people never answer the same one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from flawsort.labels.queue import Question, next_question
from flawsort.labels.state import State
from flawsort.labels.suggestions import class_of, decided

# Longer than people look at one question without any answer; the page asks again while it is open.
LEASE_SECONDS = 120.0
# So many people answer at a time; of more, the one who asked longest ago loses the question.
MOST_ASKERS = 64


@dataclass(frozen=True)
class Asked:
    """The question for one person, None if there is none. others: how many other people have a
    question now."""

    question: Question | None
    others: int


@dataclass(frozen=True)
class _Lease:
    """known: whether the group was taught when the question was asked."""

    question: Question
    until: float
    known: bool


class Leases:
    """The questions that people have, each for a short while. Safe for several threads.

    seconds: how long. clock: gives the time in seconds.
    """

    def __init__(
        self, seconds: float = LEASE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._leases: dict[str, _Lease] = {}

    def ask(
        self,
        asker: str,
        state: State,
        *,
        skipped: Collection[int] = (),
        answered: Collection[int] = (),
        hold: bool = False,
    ) -> Asked:
        """The next question for a person that nobody else has, and its lease. asker: who asks; ""
        gets a question without a lease. skipped, answered: as for `next_question`. hold: rather the
        question that the person has already, as far as it is still open."""
        with self._lock:  # choosing too, or two people would be given the same
            now = self._clock()
            live = {who: one for who, one in self._leases.items() if one.until > now}
            own = live.pop(asker, None)
            known = _known(state)
            question = None
            if hold and own and own.known is (own.question.group in known):
                question = still_open(own.question, state, skipped, answered)
            if question is None:
                groups, rows = _taken(live.values())
                question = next_question(
                    state,
                    state.space(),
                    skipped={*skipped, *groups},
                    answered={*answered, *rows},
                )
            others = len(live)
            if question is not None and asker:
                while len(live) >= MOST_ASKERS:
                    del live[min(live, key=lambda who: live[who].until)]
                live[asker] = _Lease(question, now + self._seconds, question.group in known)
            self._leases = live
            return Asked(question, others)

    def leave(self, asker: str) -> None:
        """The person looks at no question any more."""
        with self._lock:
            self._leases.pop(asker, None)


def still_open(
    question: Question,
    state: State,
    skipped: Collection[int] = (),
    answered: Collection[int] = (),
) -> Question | None:
    """A question with the images that nobody has decided yet and that are still shown there; None
    if nothing is left of it. skipped, answered: as for `next_question`."""
    now, kind_of = state.labelling, class_of(state.labelling)
    groups = [one for one in (question.group, question.other) if one is not None]
    if any(one not in now.groups or one in skipped for one in groups):
        return None
    if question.other is not None:
        return None if frozenset(groups) in now.different else question
    shown, done = state.suggestions.groups, decided(now)
    here = kind_of.get(question.group, question.group)
    rows = tuple(
        row
        for row in question.rows
        if not done[row]
        and row not in answered
        and kind_of.get(int(shown[row]), int(shown[row])) == here
    )
    return replace(question, rows=rows) if rows else None


def _known(state: State) -> Collection[int]:
    """The groups that the model knows."""
    return () if state.suggestions.taught is None else state.suggestions.taught.groups


def _taken(leases: Collection[_Lease]) -> tuple[set[int], set[int]]:
    """The groups and the rows that are not asked about, because somebody answers for them. Of a
    group that is known, others may be asked about other images."""
    groups: set[int] = set()
    rows: set[int] = set()
    for lease in leases:
        question = lease.question
        if question.other is not None:
            groups |= {question.group, question.other}
            continue
        rows.update(question.rows)
        if question.kind == "group" and not lease.known:
            groups.add(question.group)
    return groups, rows

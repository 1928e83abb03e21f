"""Two people on one queue: never the same question, and nobody waits for somebody who left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from flawsort.labels import leases as module
from flawsort.labels.leases import LEASE_SECONDS, Leases, still_open
from flawsort.labels.queue import Question
from flawsort.labels.session import Session


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases(clock: Clock) -> Leases:
    return Leases(clock=clock)


@pytest.fixture
def session(folder: Path) -> Iterator[Session]:
    with Session(folder) as session:
        yield session


def ask(leases: Leases, session: Session, who: str, *, hold: bool = False) -> Question | None:
    return leases.ask(who, session.state, hold=hold).question


def test_two_people_get_different_questions(leases: Leases, session: Session) -> None:
    one, other = ask(leases, session, "ann"), ask(leases, session, "ben")
    assert one is not None
    assert other is not None
    assert one.group != other.group  # nobody has named either of them
    assert not set(one.rows) & set(other.rows)
    # The same person gets the same again, and is in nobody's way.
    assert ask(leases, session, "ann") == one
    assert ask(leases, session, "ben") == other


def test_to_the_end_of_the_queue(leases: Leases, session: Session, clock: Clock) -> None:
    """Three people answer everything, in a random order, and never look at the same image."""
    rng = np.random.default_rng(0)
    people = ("ann", "ben", "cem")
    looking: dict[str, Question] = {}
    answers = 0
    while True:
        who = people[rng.integers(3)]
        question = ask(leases, session, who)
        looking.pop(who, None)
        if question is None:
            if not looking:
                break
            who, question = next(iter(looking.items()))
            looking.pop(who)
        for other in looking.values():
            assert not set(other.rows) & set(question.rows)
        if rng.random() < 0.3:
            looking[who] = question  # and thinks about it, while others answer
            continue
        answers += 1
        if question.kind == "pair":
            payload = {"groups": [question.group, question.other]}
            session.edit("different", payload, session.version, who)
        else:
            session.edit("accept", {"images": list(question.rows)}, session.version, who)
        leases.leave(who)
        clock.now += 1
    assert answers > 4
    assert session.labelling.confirmed.all()


def test_a_lease_expires(leases: Leases, session: Session, clock: Clock) -> None:
    one = ask(leases, session, "ann")
    clock.now += LEASE_SECONDS - 1
    assert ask(leases, session, "ben") != one
    assert ask(leases, session, "ann", hold=True) == one  # looked at again: for another while
    clock.now += LEASE_SECONDS - 1
    assert ask(leases, session, "cem") != one
    clock.now += 2
    assert ask(leases, session, "ben") == one  # Ann went home


def test_leaving_gives_the_question_back(leases: Leases, session: Session) -> None:
    one = ask(leases, session, "ann")
    assert ask(leases, session, "ben") != one
    leases.leave("ann")
    leases.leave("nobody")
    assert ask(leases, session, "cem") == one


def test_asking_without_a_name_takes_nothing(leases: Leases, session: Session) -> None:
    one = ask(leases, session, "")
    assert ask(leases, session, "ann") == one
    assert ask(leases, session, "") != one
    assert leases.ask("", session.state).others == 1


def test_a_question_is_held_while_others_answer(leases: Leases, session: Session) -> None:
    one, other = ask(leases, session, "ann"), ask(leases, session, "ben")
    assert one is not None
    assert other is not None
    session.edit("accept", {"images": list(other.rows)}, session.version, "ben")
    assert ask(leases, session, "ann", hold=True) == one
    rows = [one.rows[0]]
    session.edit("move", {"images": rows, "to": "unsure"}, session.version, "ann")
    rest = ask(leases, session, "ann", hold=True)
    assert rest is not None
    assert set(rest.rows) <= set(one.rows) - set(rows)


def test_a_cluster_that_somebody_named_is_not_asked_about_again(
    leases: Leases, session: Session
) -> None:
    one = ask(leases, session, "ann")
    assert one is not None
    session.edit("name", {"group": one.group, "name": "dents"}, session.version, "ben")
    then = ask(leases, session, "ann", hold=True)
    assert then is not None
    assert "Nobody has said yet" not in then.why or then.group != one.group


def test_what_is_skipped_or_answered_is_not_held(leases: Leases, session: Session) -> None:
    one = ask(leases, session, "ann")
    assert one is not None
    asked = leases.ask("ann", session.state, skipped=[one.group], hold=True)
    assert asked.question is not None
    assert asked.question.group != one.group
    again = leases.ask("ben", session.state, answered=one.rows, hold=True)
    assert again.question is not None
    assert not set(again.question.rows) & set(one.rows)


def test_what_is_left_of_a_question(session: Session) -> None:
    state = session.state
    pair = Question("pair", 0, (0,), "", 1, (9,))
    assert still_open(pair, state) == pair
    session.edit("different", {"groups": [0, 1]}, session.version)
    assert still_open(pair, session.state) is None
    assert still_open(Question("image", 9, (0,), ""), state) is None  # the group is gone
    one = Question("image", 0, (0,), "")
    assert still_open(one, session.state) == one
    session.edit("move", {"images": [0], "to": 1}, session.version)
    assert still_open(one, session.state) is None


def test_nobody_takes_all_questions(
    leases: Leases, session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ASKERS", 3)
    first = ask(leases, session, "robot-0")
    for number in range(1, 9):
        clock.now += 0.1
        assert ask(leases, session, f"robot-{number}") is not None
    assert leases.ask("robot-8", session.state).others == 2
    assert first is not None


def test_people_who_ask_at_once(leases: Leases, session: Session) -> None:
    found: dict[str, Question | None] = {}

    def look(who: str) -> None:
        found[who] = ask(leases, session, who)

    threads = [Thread(target=look, args=(f"person-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = [row for question in found.values() if question for row in question.rows]
    assert len(rows) == len(set(rows)) > 0

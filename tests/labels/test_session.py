"""Sessions over the file of edits, and what the model suggests in them."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort import OptionError, RunError, open_run
from flawsort.labels import state as module
from flawsort.labels import track
from flawsort.labels.edit_checks import Edit
from flawsort.labels.edits import replay
from flawsort.labels.example_checks import packed
from flawsort.labels.groups import Labelling, first_labelling
from flawsort.labels.log import effective
from flawsort.labels.sentences import describe
from flawsort.labels.session import Session, read_labelling, read_settled
from flawsort.labels.store import Conflict, EditStore
from flawsort.labels.suggestions import Suggestions
from flawsort.runs.folder import EDITS, save_run
from flawsort.runs.run import Run
from helpers.edits import accept, as_anybody, fill_at_once, lock, open_files, same
from helpers.plates import LONG, contents, run_code, start
from helpers.runs import build_run
from helpers.speed import within

N = 30
EDIT = """
import sys
from flawsort.labels.session import Session

with Session(sys.argv[1]) as session:
    session.edit("name", {"group": 0, "name": "from outside"}, session.version, "another")
    session.edit("move", {"images": [3, 4], "to": "new"}, session.version)
    session.undo(session.version)
    print(session.version)
"""
SERVE = """
import sys, time
from flawsort.labels.session import Session

session = Session(sys.argv[1])
session.edit("name", {"group": 0, "name": "dents"}, 0)
session.edit("accept", {"images": [3, 4]}, 1)
print(session.version, flush=True)
time.sleep(600)
"""


def test_an_edit_that_does_not_fit(folder: Path) -> None:
    session = Session(folder)
    with EditStore(folder / EDITS) as store:
        store.append(Edit("accept", {"group": 77}), 0)
    text = r"are damaged \(an edit does not fit: group: there is no group 77\."
    for _ in range(2):  # and not once only
        with pytest.raises(RunError, match=text):
            session.refresh()
    with pytest.raises(RunError, match=text):
        read_labelling(folder)
    session.close()
    with pytest.raises(RunError, match=text):
        Session(folder)
    assert not any(EDITS in name for name in open_files())


def test_threads_that_edit_at_once(folder: Path) -> None:
    session = Session(folder)
    failures: list[BaseException] = []

    def work(group: int) -> None:
        try:
            for number in range(10):
                while True:
                    state = session.state
                    assert state.version >= number
                    try:
                        payload = {"group": group, "name": f"{group} {number}"}
                        session.edit("name", payload, state.version)
                        break
                    except Conflict:
                        session.refresh()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(group,)) for group in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert session.version == 40
    assert [group.name for group in session.labelling.groups.values()] == [
        f"{group} 9" for group in range(4)
    ]
    session.close()


@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="needs users as Unix has them")
def test_a_read_only_session(public: Path) -> None:
    with Session(public) as session:
        session.edit("name", {"group": 0, "name": "dents"}, 0)
    lock(public)
    with as_anybody(), Session(public) as session:
        assert not session.writable
        assert session.labelling.groups[0].name == "dents"
        with pytest.raises(RunError, match="Copy the run to a writable folder"):
            session.edit("name", {"group": 0, "name": "pits"}, 1)
        assert (session.version, session.labelling.groups[0].name) == (1, "dents")
        assert read_labelling(public).groups[0].name == "dents"


# ---- sessions ----


def test_a_session_of_a_run_without_edits(folder: Path, run: Run) -> None:
    before = contents(folder)
    session = Session(folder)
    assert session.version == session.labels_spent == 0
    assert (session.can_undo, session.can_redo) == (None, None)
    assert same(session.labelling, first_labelling(run))
    assert same(read_labelling(folder), first_labelling(run))
    assert session.writable
    with pytest.raises(OptionError, match=r"There is nothing to undo\."):
        session.undo(0)
    with pytest.raises(OptionError, match=r"There is nothing to redo\."):
        session.redo(0)
    assert contents(folder) == before


def test_edit_undo_redo(folder: Path) -> None:
    session = Session(str(folder))
    begun = session.labelling
    named = session.edit("name", {"group": 1, "name": "dents"}, 0, "Jo")
    assert named is session.labelling
    assert named.groups[1].name == "dents"
    assert (session.version, session.can_undo, session.labels_spent) == (1, "Name Group 1 dents", 1)
    session.edit("move", {"images": [1, 2, 3], "to": 1}, 1)
    state = session.state
    assert (state.version, state.undo, state.redo, state.spent) == (
        2,
        "Move 3 images to dents",
        None,
        4,
    )
    assert same(session.undo(2, "Jo"), named)
    state = session.state
    assert (state.undo, state.redo) == ("Name Group 1 dents", "Move 3 images to dents")
    assert (state.version, state.spent) == (3, 1)
    assert same(session.undo(3), begun)
    assert (session.can_undo, session.can_redo) == (None, "Name Group 1 dents")
    assert session.labels_spent == 0
    session.redo(4)
    assert (session.labelling.groups[1].name, session.labels_spent) == ("dents", 1)
    again = session.redo(5)
    assert again.labels[[1, 2, 3]].tolist() == [1, 1, 1]
    assert session.labels_spent == 4
    session.undo(6)
    session.edit("cut", {"k": 2}, 7)
    assert session.can_redo is None
    with pytest.raises(OptionError, match=r"There is nothing to redo\."):
        session.redo(8)
    with EditStore(folder / EDITS) as store:
        kinds = [entry.edit.kind for entry in store.log()]
        authors = [entry.author for entry in store.log()]
    assert kinds == ["name", "move", "undo", "undo", "redo", "redo", "undo", "cut"]
    assert authors == ["Jo", "", "Jo", "", "", "", "", ""]
    with Session(folder) as other:
        assert dataclasses.replace(other.state, labelling=session.labelling) == session.state
        assert same(other.labelling, session.labelling)
    session.close()


def test_nonsense_is_not_saved(folder: Path) -> None:
    session = Session(folder)
    session.edit("accept", {"images": [0]}, 0)
    state = session.state
    cases: list[tuple[Any, Any, str]] = [
        ("accept", {"images": [N]}, "rows of the run's table"),
        ("undo", {}, "kind must be one of"),
        (None, {}, "kind must be one of"),
        ("accept", [0], "must be a mapping"),
        ("accept", {"images": {0}}, "must be valid JSON"),
        ("name", {"group": 0, "name": "\ud83d"}, "without control characters"),
    ]
    for kind, payload, text in cases:
        with pytest.raises(OptionError, match=text):
            session.edit(kind, payload, 1)
    with pytest.raises(OptionError, match="author must"):
        session.edit("accept", {"images": [1]}, 1, "\0")
    assert session.refresh() is state
    assert EditStore(folder / EDITS).version() == 1


def test_two_sessions_do_not_overwrite_each_other(folder: Path) -> None:
    one, other = Session(folder), Session(folder)
    one.edit("name", {"group": 0, "name": "dents"}, 0)
    for attempt in (
        lambda: other.edit("name", {"group": 0, "name": "pits"}, 0),
        lambda: other.undo(0),
        lambda: other.redo(0),
    ):
        with pytest.raises(
            Conflict, match="based on version 0, and the current version is 1"
        ) as caught:
            attempt()
        assert caught.value.version == 1
    assert other.labelling.groups[0].name == "dents"  # it has seen it by now
    with pytest.raises(Conflict):
        one.edit("name", {"group": 0, "name": "pits"}, 2)
    other.undo(1)
    assert one.labelling.groups[0].name == "dents"  # until it looks
    assert one.refresh().labelling.groups[0].name == ""
    assert (one.version, one.can_redo) == (2, "Name Group 0 dents")


def test_one_that_comes_between_the_look_and_the_edit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, other = Session(folder), EditStore(folder / EDITS)
    append = EditStore.append

    def late(self: EditStore, edit: Edit, version: int, author: str = "") -> int:
        monkeypatch.setattr(EditStore, "append", append)
        other.append(accept(5), 0)
        return append(self, edit, version, author)

    monkeypatch.setattr(EditStore, "append", late)
    with pytest.raises(Conflict) as caught:
        session.edit("accept", {"images": [1]}, 0)
    assert caught.value.version == 1
    session.refresh()
    assert np.flatnonzero(session.labelling.confirmed).tolist() == [5]


def test_what_another_process_wrote_is_seen(folder: Path) -> None:
    session = Session(folder)
    session.edit("accept", {"images": [0]}, 0)
    answer = run_code(EDIT, folder)
    assert (answer.code, answer.out, answer.err) == (0, "4\n", "")
    assert session.version == 1
    state = session.refresh()
    assert state.version == 4
    assert state.labelling.groups[0].name == "from outside"
    assert state.undo == "Name Group 0 from outside"
    assert state.redo == "Move 2 images to a new group"
    assert state.spent == 2
    assert session.refresh() is state
    session.redo(4)
    assert same(read_labelling(folder), session.labelling)


def test_a_server_that_is_killed(folder: Path) -> None:
    process = start(SERVE, folder)
    assert process.stdout is not None
    told = process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=LONG)
    assert told == "2\n"
    assert (folder / f"{EDITS}-wal").stat().st_size > 0
    with Session(folder) as session:
        assert session.version == 2
        assert session.labelling.groups[0].name == "dents"
        assert session.can_undo == "Accept 2 images"


@pytest.mark.parametrize("kept", [1, 3, 64])
@pytest.mark.parametrize("seed", range(4))
def test_random_sessions_are_as_a_stack_of_states(
    folder: Path, run: Run, seed: int, kept: int
) -> None:
    """Three sessions over one file, used in turn, one of which is opened anew each time."""
    opened = partial(Session, folder, run, kept_states=kept)
    rng = np.random.default_rng(seed)
    sessions = [opened(), opened()]
    first = first_labelling(run)
    past: list[tuple[Labelling, str | None, int]] = [(first, None, 0)]
    future: list[tuple[Labelling, str | None, int]] = []
    log: list[Edit] = []
    for _ in range(40):
        session = sessions[rng.integers(2)] if rng.random() < 0.8 else opened()
        version = session.refresh().version
        assert version == len(log)
        what = rng.random()
        if what < 0.3 and len(past) > 1:
            session.undo(version)
            log.append(Edit("undo"))
            future.append(past.pop())
        elif what < 0.5 and future:
            session.redo(version)
            log.append(Edit("redo"))
            past.append(future.pop())
        else:
            made = random_edit(rng, past[-1][0])
            session.edit(made.kind, made.payload, version)
            edit = stored(folder)
            # As it was made, with a note of what was suggested.
            assert {key: edit.payload[key] for key in made.payload if key != "images"} == {
                key: value for key, value in made.payload.items() if key != "images"
            }
            assert set(edit.payload.get("images", ())) == set(made.payload.get("images", ()))
            sentence = describe(edit, past[-1][0])
            log.append(edit)
            now = replay(log, first, run.linkage)
            past.append((now, sentence, naive_spent(effective(log))))
            future = []
        labelling, sentence_now, spent = past[-1]
        state = session.state
        assert same(state.labelling, labelling)
        assert (state.version, state.undo, state.spent) == (len(log), sentence_now, spent)
        assert state.redo == (future[-1][1] if future else None)
        if session not in sessions:
            session.close()
    assert same(read_labelling(folder), past[-1][0])
    for session in sessions:
        session.close()


def stored(folder: Path) -> Edit:
    """The last edit in the file."""
    with EditStore(folder / EDITS) as store:
        return store.log()[-1].edit


def random_edit(rng: np.random.Generator, now: Labelling) -> Edit:
    group = int(rng.choice(list(now.groups)))
    rows = [int(row) for row in rng.choice(N, 3)]
    return [
        Edit("move", {"images": rows, "to": ["new", "unsure", group][rng.integers(3)]}),
        Edit("name", {"group": group, "name": f"kind {rng.integers(9)} of {group}"}),
        Edit("several", {"images": rows, "groups": [group]}),
        Edit("cut", {"k": int(rng.integers(2, 9))}),
        accept(*rows),
    ][rng.integers(5)]


def naive_spent(edits: list[Edit]) -> int:
    groups = {edit.payload["group"] for edit in edits if edit.kind == "name"}
    return len(groups) + len({row for edit in edits for row in edit.payload.get("images", ())})


def test_a_long_session_keeps_few_states(folder: Path, run: Run) -> None:
    fill_at_once(folder / EDITS, [accept(number % N) for number in range(1000)])
    session = Session(folder, run)
    assert session.version == 1000
    assert len(session._track._states) <= 64 + 1000 // 64 + 1
    for number in range(80):
        session.undo(1000 + number)
        assert len(session._track._states) <= 64 + 1000 // 64 + 1
    assert session.can_undo == "Accept 1 image"
    assert np.count_nonzero(session.labelling.confirmed) == N


@pytest.mark.parametrize("kept", [1, 2, 3, 5])
def test_sentences_go_with_their_edits(folder: Path, run: Run, kept: int) -> None:
    session = Session(folder, run, kept_states=kept)
    done: list[str] = []
    number = 0
    for edits, undos in ((9, 6), (4, 2), (3, 1), (0, 1), (2, 8)):
        for _ in range(edits):
            number += 1
            session.edit("accept", {"images": list(range(number))}, session.version)
            done.append(f"Accept {number} image{'s' if number > 1 else ''}")
            assert session.can_undo == done[-1]
        for _ in range(undos):
            assert session.can_undo == done.pop()
            session.undo(session.version)
    assert session.can_undo is None
    session.close()


def test_what_is_undone_again_is_not_worked_out(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EditStore(folder / EDITS) as store:
        for edit in (accept(0), accept(1), Edit("undo"), accept(2), Edit("undo"), Edit("undo")):
            store.append(edit, store.version())
    made = []
    apply = track.apply

    def count(edit: Edit, *rest: Any) -> Labelling:
        made.append(edit)
        return apply(edit, *rest)

    monkeypatch.setattr(track, "apply", count)
    session = Session(folder, run)
    assert made == []
    session.redo(6)
    assert made == [accept(0)]
    made.clear()
    with EditStore(folder / EDITS) as store:
        store.append(accept(7), 7)
    session.refresh()
    assert made == [accept(7)]  # and nothing that it knew


def test_a_payload_is_the_sessions_own(folder: Path) -> None:
    session = Session(folder)
    payload: dict[str, Any] = {"images": [1, 2]}
    session.edit("accept", payload, 0)
    payload["images"].append(3)
    session.edit("cut", {"k": 3}, 1)
    session.undo(2)
    session.undo(3)
    session.redo(4)
    assert np.flatnonzero(session.labelling.confirmed).tolist() == [1, 2]
    # As JSON has it, from the first moment on: keys are texts there, and tuples are lists.
    labels = session.labelling.labels.tolist()
    carry = {
        "groups": [{"id": group, "name": "", "role": "flaw"} for group in sorted(set(labels))],
        "labels": tuple(labels),
        "confirmed": (),
        "several": {3: ()},
        "k": 4,
    }
    assert session.edit("carry", carry, 5).several == {3: ()}
    assert same(read_labelling(folder), session.labelling)


def test_read_labelling(folder: Path, run: Run) -> None:
    session = Session(folder)
    session.edit("name", {"group": 2, "name": "cracks"}, 0)
    session.edit("accept", {"group": 2}, 1)
    session.close()
    before = open_files()
    found = read_labelling(folder, run)
    assert same(found, session.labelling)
    assert found.groups[2].name == "cracks"
    assert sorted(open_files()) == sorted(before)
    assert not (folder / f"{EDITS}-wal").exists()
    shutil.rmtree(folder)
    with pytest.raises(RunError, match="No run folder at"):
        read_labelling(folder)


@pytest.mark.parametrize("edited", [False, True])
def test_a_run_that_was_replaced(folder: Path, run: Run, edited: bool) -> None:
    session = Session(folder)
    if edited:
        session.edit("accept", {"images": [0]}, 0)
    save_run(run, folder, overwrite=True, carried=True)
    with pytest.raises(
        RunError, match=r"was removed or replaced since it was opened\. Open it again"
    ):
        session.edit("accept", {"images": [1]}, session.version)
    with pytest.raises(RunError, match="was removed or replaced"):
        session.refresh()
    assert not (folder / EDITS).exists()
    session.close()
    assert Session(folder).version == 0


def test_a_file_that_was_removed(folder: Path) -> None:
    session = Session(folder)
    session.edit("accept", {"images": [0]}, 0)
    (folder / EDITS).unlink()
    with pytest.raises(
        RunError, match=r"was removed or replaced since it was opened\. Open it again"
    ):
        session.edit("accept", {"images": [1]}, 1)


def test_a_run_is_opened_with_its_edits_in_it(folder: Path, run: Run) -> None:
    Session(folder).edit("accept", {"images": [0]}, 0)
    assert open_run(folder).table == run.table


def test_thousands_of_edits_of_thousands_of_images(tmp_path: Path) -> None:
    path = tmp_path / EDITS
    n = 20_000
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 40, n)
    large = build_run(clusters.tolist())
    edits = [Edit("name", {"group": 0, "name": "dents"})]
    for number in range(1, 5000):
        rows = rng.integers(0, n, 5).tolist()
        move = Edit("move", {"images": rows, "to": number % 40})
        edits.append(move if number % 10 else Edit("undo"))
    fill_at_once(path, edits)
    within(3.0, lambda: Session(path.parent, large).close())  # a third of a second
    session = Session(path.parent, large)
    assert session.version == 5000
    assert session.labels_spent == 1 + np.count_nonzero(session.labelling.confirmed)

    def change() -> None:
        for _ in range(20):
            session.undo(session.version)
            session.edit("accept", {"images": [5]}, session.version)

    within(3.0, change)
    session.close()


# ---- what is suggested ----


def taught_session(folder: Path, run: Run) -> Session:
    """Two groups with a name and two decided images each."""
    session = Session(folder, run)
    for group, name in ((0, "dents"), (1, "cracks")):
        session.edit("name", {"group": group, "name": name}, session.version)
        rows = first_labelling(run).members(group)[:2].tolist()
        session.edit("accept", {"images": rows}, session.version)
    return session


def test_a_client_cannot_say_what_was_suggested(folder: Path, run: Run) -> None:
    session = taught_session(folder, run)
    row = int(np.flatnonzero(~session.labelling.confirmed)[0])
    suggested = int(session.state.suggestions.groups[row])
    forged = (suggested + 1) % 4
    payload: dict[str, Any] = {"images": [row], "at": [forged], "suggested": [forged]}
    session.edit("accept", payload, session.version)
    kept = {"images": [row], "at": [suggested], "suggested": [suggested]}
    assert stored(folder).payload == kept
    assert session.labelling.labels[row] == suggested
    answer = session.labelling.answers[row]
    assert (answer.suggested, answer.given) == (suggested, suggested)
    session.edit("name", {"group": 0, "name": "pits", "at": [1]}, session.version)
    assert stored(folder).payload == {"group": 0, "name": "pits"}
    payload = {"group": 0, "images": [row], "at": [0]}
    with pytest.raises(OptionError, match="accept takes either group or images"):
        session.edit("accept", payload, session.version)


@pytest.mark.parametrize("group", [True, 1.0, "1", [1], None])
def test_a_group_to_accept_is_a_number(folder: Path, run: Run, group: Any) -> None:
    session = taught_session(folder, run)
    with pytest.raises(OptionError, match="group must be a whole number"):
        session.edit("accept", {"group": group}, session.version)


def test_accepting_a_group_means_what_is_shown_in_it(folder: Path, run: Run) -> None:
    session = Session(folder, run)
    # All but the most typical image of group 1 are put into group 0, so that it is suggested there.
    rows = first_labelling(run).members(1)
    inside = run.embeddings[rows]
    near = int(rows[((inside - inside.mean(axis=0)) ** 2).sum(axis=1).argmin()])
    others = [int(row) for row in rows if row != near]
    session.edit("move", {"images": others, "to": 0}, session.version)
    shown = np.flatnonzero(session.state.suggestions.groups == 0).tolist()
    assert near in shown
    assert session.labelling.labels[near] == 1
    with pytest.raises(OptionError, match=r"must have images to accept\. Got 1, which is empty"):
        session.edit("accept", {"group": 1}, session.version)
    spent = session.labels_spent
    session.edit("accept", {"group": 0}, session.version)
    assert np.flatnonzero(session.labelling.confirmed).tolist() == shown
    assert session.labelling.labels[near] == 0
    assert (session.can_undo, session.labels_spent) == ("Accept Group 0", spent + 1)
    assert 1 not in session.labelling.groups
    session.undo(session.version)
    assert session.labelling.labels[near] == 1


def test_what_was_suggested_is_noted(folder: Path, run: Run) -> None:
    session = Session(folder, run)
    # Before anything is taught, nothing is suggested that an answer could be compared with.
    session.edit("move", {"images": [3], "to": 1}, session.version)
    assert stored(folder).payload == {"images": [3], "to": 1}
    session.edit("accept", {"images": [10]}, session.version)
    was = session.state.suggestions
    known = np.flatnonzero(~np.isnan(was.probability))[[0, -1]].tolist()
    clustered = np.flatnonzero(np.isnan(was.probability) & ~session.labelling.confirmed)[0]
    rows = sorted([3, *known, int(clustered)])  # decided, suggested, and neither
    payload = {"images": [*reversed(rows), 3], "to": 2, "suggested": [2, 2, 2, 2]}
    session.edit("move", payload, session.version)
    noted = [int(was.groups[row]) if row in known else None for row in rows]
    assert 2 not in noted
    assert stored(folder).payload == {"images": rows, "to": 2, "suggested": noted}
    answers = session.labelling.answers
    assert {row: (one.suggested, one.given) for row, one in answers.items()} == {
        row: (int(was.groups[row]), 2) for row in known
    }
    # Of images outside the run, whoever shows them says it; a client cannot.
    example = packed("a", "0" * 64, run.embeddings[5])
    forged = {"examples": [example], "to": 2, "suggested": [2]}
    session.edit("teach", forged, session.version, suggested=[1])
    assert stored(folder).payload == {**forged, "suggested": [1]}
    assert session.labelling.answers["0" * 64].suggested == 1
    other = {**forged, "examples": [packed("b", "1" * 64, run.embeddings[5])]}
    session.edit("teach", other, session.version)
    assert "suggested" not in stored(folder).payload


def test_undo_removes_what_an_answer_taught(folder: Path, run: Run) -> None:
    session = taught_session(folder, run)
    before = session.state.suggestions
    edits: list[tuple[str, dict[str, Any]]] = [
        ("reject", {"images": [20], "group": 0}),
        ("audit", {"image": 21, "to": "new", "name": "rust"}),
        ("teach", {"examples": [packed("a", "0" * 64, run.embeddings[5])], "to": 2}),
        ("verdict", {"threshold": 0.9}),
        ("different", {"groups": [0, 1]}),
        ("accept", {"images": [22]}),
        ("several", {"images": [23], "groups": [1]}),
    ]
    for kind, payload in edits:
        labelling = session.labelling
        session.edit(kind, payload, session.version)
        assert not same(session.labelling, labelling), kind
        later, suggested = session.labelling, session.state.suggestions
        session.undo(session.version)
        assert same(session.labelling, labelling), kind
        assert same_suggestions(session.state.suggestions, before), kind
        session.redo(session.version)
        assert same(session.labelling, later), kind
        assert same_suggestions(session.state.suggestions, suggested), kind
        session.undo(session.version)


def same_suggestions(one: Suggestions, other: Suggestions) -> bool:
    return (
        one.groups.tobytes() == other.groups.tobytes()
        and one.probability.tobytes() == other.probability.tobytes()
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_gives_the_same_suggestions_to_the_last_digit(
    folder: Path, run: Run, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    session = taught_session(folder, run)
    for _ in range(25):
        groups = list(session.labelling.groups)
        row, group = int(rng.integers(N)), int(rng.choice(groups))
        kind, payload = [
            ("accept", {"images": [row]}),
            ("move", {"images": [row], "to": group}),
            ("audit", {"image": row, "to": group}),
            ("teach", {"examples": [packed("a", f"{row:064x}", run.embeddings[row])], "to": 0}),
            ("reject", {"images": [row], "group": 0}),
            ("several", {"images": [row], "groups": [group]}),
        ][rng.integers(6)]
        session.edit(kind, payload, session.version)
        if rng.random() < 0.2:
            session.undo(session.version)
        with Session(folder, kept_states=2) as other:
            assert same(other.labelling, session.labelling)
            assert same_suggestions(other.state.suggestions, session.state.suggestions)
    state = read_settled(folder)
    assert state.settled.labels.tolist() == session.state.suggestions.groups.tolist()
    assert state.settled.confirmed.tolist() == session.labelling.confirmed.tolist()


def test_an_example_has_the_numbers_of_the_run(folder: Path, run: Run) -> None:
    session = Session(folder, run)
    dim = run.embeddings.shape[1]
    text = rf"vector must have the {dim} numbers of the run's embeddings\. Got {dim - 1}\."
    short = packed("a", "0" * 64, np.ones(dim - 1))
    with pytest.raises(OptionError, match=text):
        session.edit("teach", {"examples": [short], "to": 0}, 0)
    assert session.version == 0
    session.edit("teach", {"examples": [packed("a", "0" * 64, np.ones(dim))], "to": 0}, 0)
    assert session.labels_spent == 1


def test_edits_that_need_no_suggestion_do_not_wait_for_one(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = taught_session(folder, run)

    def fail(*_: Any) -> None:
        raise AssertionError("the model was asked")

    monkeypatch.setattr(module, "suggest", fail)
    session.edit("name", {"group": 2, "name": "a"}, session.version)
    session.edit("role", {"group": 3, "role": "normal"}, session.version)
    session.edit("audit", {"image": 3, "to": 2}, session.version)
    with pytest.raises(AssertionError, match="the model was asked"):
        session.edit("accept", {"images": [4]}, session.version)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Dents", "already"),
        ("dents ", "already"),
        ("group 2", "already"),
        ("Normal", "role normal"),
        ("good", "role normal"),
        ("unsure", "meaning of its own"),
        ("New kind", "meaning of its own"),
    ],
)
def test_a_name_stands_for_one_group(folder: Path, name: str, said: str) -> None:
    with Session(folder) as session:
        session.edit("name", {"group": 0, "name": "dents"}, 0)
        vector = packed("x", "0" * 64, session.run.embeddings[0])
        edits: list[tuple[str, dict[str, Any]]] = [
            ("name", {"group": 1, "name": name}),
            ("move", {"images": [1], "to": "new", "name": name}),
            ("audit", {"image": 1, "to": "new", "name": name}),
            ("teach", {"examples": [vector], "to": "new", "name": name}),
        ]
        for kind, payload in edits:
            with pytest.raises(OptionError, match=said):
                session.edit(kind, payload, 1)
        assert session.version == 1
        session.edit("name", {"group": 0, "name": "Dents"}, 1)  # its own name in capitals
        session.edit("role", {"group": 1, "role": "normal"}, 2)
        session.edit("name", {"group": 1, "name": "good"}, 3)

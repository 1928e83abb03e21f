"""What the API says and takes of several people: authors, the history, and one queue for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flawsort.labels.session import Session
from flawsort.review.app import make_app
from flawsort.review.people import LONGEST_AUTHOR, MOST_ENTRIES
from helpers.review_client import Reply, RunClient, closing_libraries, copied

HOSTILE = "<script>alert(1)</script> =1+1"


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return copied(saved, tmp_path)


@pytest.fixture
def client(folder: Path) -> RunClient:
    return RunClient(make_app([folder]))


def edit(client: RunClient, author: str, kind: str, **payload: Any) -> Reply:
    body = {"version": client.state()["version"], "kind": kind, "payload": payload}
    return client.post("/r/run/api/edits", {**body, "author": author})


def step(client: RunClient, author: str, what: str, of: int | None) -> Reply:
    body = {"version": client.state()["version"], "author": author, "of": of}
    return client.post(f"/r/run/api/{what}", body)


def test_who_did_what_and_when(client: RunClient) -> None:
    edit(client, "Ann", "name", group=0, name="dents")
    edit(client, HOSTILE, "move", images=[3, 1], to=1)
    step(client, "Ann", "undo", 1)
    found = client.api("history").data
    assert found["version"] == 3
    assert not found["more"]
    told = [(one["seq"], one["author"], one["what"], one["words"]) for one in found["entries"]]
    assert told == [
        (3, "Ann", "undo", "Name Group 0 dents"),
        (2, HOSTILE, "edit", "Move 2 images to Group 1"),
        (1, "Ann", "edit", "Name Group 0 dents"),
    ]
    assert [one["in_force"] for one in found["entries"]] == [False, True, False]
    moved = found["entries"][1]
    assert (moved["rows"], moved["n_rows"], moved["group"]) == ([1, 3], 2, 1)
    assert all(one["at"].endswith("+00:00") for one in found["entries"])


def test_a_page_of_the_history(client: RunClient) -> None:
    for row in range(5):
        edit(client, "", "accept", images=[row])
    first = client.api("history?n=2").data
    assert ([one["seq"] for one in first["entries"]], first["more"]) == ([5, 4], True)
    last = client.api("history?n=3&before=4").data
    assert ([one["seq"] for one in last["entries"]], last["more"]) == ([3, 2, 1], False)
    for query in ("n=0", f"n={MOST_ENTRIES + 1}", "before=-1", "before=x", "n=1e3"):
        assert client.api(f"history?{query}").status == 422


def test_what_each_could_undo(client: RunClient) -> None:
    edit(client, "Ann", "accept", images=[0])
    edit(client, "Ben", "accept", images=[1, 2])
    edit(client, "", "accept", images=[3])
    step(client, "Ann", "undo", 1)
    own = client.state()["own"]
    assert own["Ann"] == {"undo": None, "redo": {"seq": 1, "words": "Accept 1 image"}}
    assert own["Ben"] == {"undo": {"seq": 2, "words": "Accept 2 images"}, "redo": None}
    assert own[""]["undo"]["seq"] == 3
    assert client.state()["decided"] == [1, 2, 3]


def test_only_ones_own(client: RunClient) -> None:
    edit(client, "Ben", "accept", images=[1])
    reply = step(client, "Ann", "undo", 1)
    assert reply.status == 422
    assert reply.detail.startswith("Only Ben can undo 'Accept 1 image'.")
    assert step(client, "Ben", "undo", 1).status == 200
    # Without a number it is the last edit, whoever made it: for programs that are alone.
    assert step(client, "Ann", "redo", None).status == 200
    assert step(client, "Ann", "undo", None).status == 200


@pytest.mark.parametrize("of", ["1", 1.0, True, -1, 2**64, [1], {}])
def test_nonsense_is_no_number(client: RunClient, of: Any) -> None:
    edit(client, "", "accept", images=[1])
    assert step(client, "", "undo", of).status == 422
    assert client.state()["version"] == 1


@pytest.mark.parametrize(
    "author", ["a\nb", "\x00", "\u202e", "a\u2028b", "\ud800", "x" * (LONGEST_AUTHOR + 1), 7, ["a"]]
)
def test_nonsense_is_no_author(client: RunClient, author: Any) -> None:
    assert edit(client, author, "accept", images=[1]).status == 422
    assert step(client, author, "undo", None).status == 422
    assert client.state()["version"] == 0


def test_a_stale_undo_is_a_conflict(client: RunClient) -> None:
    edit(client, "Ann", "accept", images=[0])
    edit(client, "Ben", "accept", images=[1])
    body = {"version": 1, "author": "Ann", "of": 1}
    assert client.post("/r/run/api/undo", body).status == 409


def test_the_history_of_a_run_that_was_opened_again(client: RunClient, folder: Path) -> None:
    edit(client, "Ann", "move", images=[0], to="new", name="rust")
    edit(client, "Ann", "name", group=2, name="glue")
    client.step("undo")
    client.step("undo")
    before = client.api("history").data
    again = RunClient(make_app([folder]))
    words = [one["words"] for one in again.api("history").data["entries"]]
    # What was undone is described where that is possible without doing it.
    assert words[-1] == before["entries"][-1]["words"] == "Move 1 image to a new group rust"
    assert words[-2] == "An edit of the kind name"
    assert len(words) == 4


def test_notes_and_severities_in_the_state(client: RunClient) -> None:
    edit(client, "Ann", "note", image=4, note=HOSTILE)
    edit(client, "Ann", "note", group=1, note="left side")
    edit(client, "Ann", "severity", group=1, severity="major")
    state = client.state()
    assert state["notes"] == {"4": HOSTILE}
    group = next(one for one in state["groups"] if one["id"] == 1)
    assert (group["severity"], group["note"]) == ("major", "left side")
    assert state["spent"] == 0


class TestQueue:
    def ask(self, client: RunClient, who: str, more: str = "") -> Any:
        reply = client.api(f"queue?asker={who}{more}")
        assert reply.status == 200, reply.body
        return reply.data

    def test_two_people(self, client: RunClient) -> None:
        one, other = self.ask(client, "ann"), self.ask(client, "ben")
        assert (one["others"], other["others"]) == (0, 1)
        assert not set(one["question"]["rows"]) & set(other["question"]["rows"])
        third = self.ask(client, "cem")
        taken = {*one["question"]["rows"], *other["question"]["rows"]}
        assert third["question"] is None or not taken & set(third["question"]["rows"])
        assert third["others"] == 2

    def test_holding_a_question(self, client: RunClient) -> None:
        one, other = self.ask(client, "ann"), self.ask(client, "ben")
        edit(client, "Ben", "accept", images=other["question"]["rows"])
        assert self.ask(client, "ann", "&hold=true")["question"] == one["question"]

    def test_leaving(self, client: RunClient) -> None:
        one = self.ask(client, "ann")
        assert client.post("/r/run/api/queue/leave", {"asker": "ann"}).status == 200
        assert self.ask(client, "ben")["question"] == one["question"]

    @pytest.mark.parametrize("who", ["a%00b", "a%20b", "%3Cb%3E", "x" * 65, "%C3%A9"])
    def test_nonsense_asks_nothing(self, client: RunClient, who: str) -> None:
        assert client.api(f"queue?asker={who}").status == 422

    @pytest.mark.parametrize("body", [{}, {"asker": 7}, {"asker": "<b>"}, {"asker": "a", "x": 1}])
    def test_nonsense_leaves_nothing(self, client: RunClient, body: dict[str, Any]) -> None:
        assert client.post("/r/run/api/queue/leave", body).status == 422


def test_a_log_of_an_older_version_is_read(folder: Path) -> None:
    """Entries without numbers and without authors, as they were written before people had names."""
    with Session(folder) as session:
        session.edit("accept", {"images": [0]}, 0)
        session.undo(1)
        session.redo(2)
        session.edit("name", {"group": 0, "name": "dents"}, 3)
    client = RunClient(make_app([folder]))
    assert client.state()["own"][""]["undo"] == {"seq": 4, "words": "Name Group 0 dents"}
    assert [one["what"] for one in client.api("history").data["entries"]] == [
        "edit", "redo", "undo", "edit",
    ]  # fmt: skip
    assert step(client, "Ann", "undo", 4).status == 200

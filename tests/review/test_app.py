"""The review server: every route, two people at once, pictures, runs that come and go."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import errno
import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from numpy.typing import NDArray
from PIL import Image

from flawsort import OptionError, Run, RunError, open_run
from flawsort.cli.review import serve_runs
from flawsort.core.store import unsealed
from flawsort.embeddings.heat import HeatScale, colour_table
from flawsort.embeddings.regions import Outlines, mask_cells
from flawsort.labels.accuracy import wilson
from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import first_labelling, kinds
from flawsort.labels.regions import settled_regions
from flawsort.labels.session import read_labelling, read_settled
from flawsort.labels.store import EditStore
from flawsort.labels.suggestions import decided
from flawsort.outputs.exports import FORMATS, export_run
from flawsort.outputs.web import SCRIPTS, shared_script
from flawsort.review import library as shelf
from flawsort.review import pages
from flawsort.review.app import make_app
from flawsort.review.library import Library
from flawsort.review.pictures import PictureFiles
from flawsort.review.responses import answered_rows
from flawsort.review.server import serve
from flawsort.runs.folder import EDITS, LASTING, save_run
from flawsort.serving.listening import PORTS_TRIED, listening
from helpers.faults import full_disk
from helpers.plates import LONG, MAIN, start
from helpers.review_client import Client, Reply, RunClient, check_state, closing_libraries, copied

N = 14


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return copied(saved, tmp_path)


@pytest.fixture
def client(folder: Path) -> RunClient:
    return RunClient(make_app([folder]))


@pytest.fixture(scope="module")
def looker(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> RunClient:
    """Of a run that no test edits."""
    return RunClient(make_app([copied(saved, tmp_path_factory.mktemp("looked-at"))]))


@pytest.fixture(scope="module")
def run(saved: Path) -> Run:
    return open_run(saved)


def unpacked(text: str, dtype: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), dtype)


def picture(reply: Reply) -> Image.Image:
    assert reply.status == 200, reply.body
    return Image.open(io.BytesIO(reply.body))


def group_of(state: Any, number: int) -> Any:
    return next(group for group in state["groups"] if group["id"] == number)


class TestRun:
    def test_it_is_what_the_run_holds(self, looker: RunClient, run: Run) -> None:
        said = looker.api("run").data
        assert (said["name"], said["n"], said["mode"]) == ("run", N, "with normals")
        assert said["k"] == {"saved": 2, "min": 2, "max": N}
        assert said["grid"] == run.manifest["grid"]
        heat = run.manifest["heat"]
        assert said["heat"] == {name: heat[name] for name in ("low", "high")}
        assert said["names"] == run.table["name"]
        assert said["clusters"] == run.table["cluster"]
        assert said["runner_up"] == run.table["runner_up"]
        assert said["flags"] == run.table["flags"]
        np.testing.assert_allclose(said["scores"], run.table["score"], rtol=1e-5)
        np.testing.assert_allclose(said["typicality"], run.table["typicality"], rtol=1e-5)
        assert said["formats"] == [
            {"name": one.name, "title": one.title, "words": one.words} for one in FORMATS.values()
        ]

    def test_arrays_come_packed(self, looker: RunClient, run: Run) -> None:
        said = looker.api("run").data
        merges = unpacked(said["merges"], "<i4").reshape(-1, 2)
        np.testing.assert_array_equal(merges, run.linkage[:, :2])
        np.testing.assert_allclose(unpacked(said["heights"], "<f4"), run.linkage[:, 2], rtol=1e-6)
        layout = unpacked(said["layout"], "<u2").reshape(-1, 2)
        np.testing.assert_allclose(layout / 65535, run.layout, atol=1e-5)

    def test_regions_have_the_boxes_of_their_masks(self, looker: RunClient, run: Run) -> None:
        said = looker.api("run").data["regions"]
        assert len(said["image"]) == len(run.regions["name"]) > 0
        found = zip(said["image"], run.regions["score"], run.regions["mask"], strict=True)
        outlines = Outlines.of([(row, score, mask_cells([m])[0]) for row, score, m in found])
        rows, columns = run.manifest["grid"]
        boxes = np.rint(outlines.boxes((rows, columns)) * 1000)
        np.testing.assert_array_equal(np.reshape(said["box"], (-1, 4)), boxes)
        assert [run.table["name"][row] for row in said["image"]] == run.regions["name"]
        assert said["cluster"] == run.regions["cluster"]

    def test_a_browser_that_has_it_is_told_so(self, looker: RunClient) -> None:
        tag = looker.api("run").headers["etag"]
        again = looker.get("/r/run/api/run", if_none_match=tag)
        assert (again.status, again.body) == (304, b"")
        assert looker.get("/r/run/api/run", if_none_match='"another"').status == 200

    def test_numbers_that_json_cannot_hold(self, run: Run, tmp_path: Path) -> None:
        score = [float("nan"), float("inf"), *run.table["score"][2:]]
        save_run(dataclasses.replace(run, table={**run.table, "score": score}), tmp_path / "run")
        said = RunClient(make_app([tmp_path / "run"])).api("run").data
        assert said["scores"][:2] == [None, None]
        assert said["scores"][2] == pytest.approx(score[2], rel=1e-5)


class TestState:
    def test_as_the_clustering_left_it(self, looker: RunClient, run: Run) -> None:
        state, first = looker.state(), first_labelling(run)
        check_state(state, N)
        assert (state["version"], state["k"], state["spent"]) == (0, 2, 0)
        assert (state["undo"], state["redo"], state["decided"]) == (None, None, [])
        assert state["labels"] == first.labels.tolist()
        several = {row: list(some) for row, some in enumerate(kinds(run, first)) if len(some) > 1}
        assert {int(row): some for row, some in state["kinds"].items()} == several
        assert set(unpacked(state["probability"], "u1")) == {255}  # nothing is taught

    def test_an_answer_suggests_the_rest(self, client: RunClient, folder: Path) -> None:
        """Seven dents, then seven streaks; one of each is named."""
        client.edit("move", images=[0], to="new", name="dent")
        state = client.edit("move", images=[7], to="new", name="streak").data
        check_state(state, N)
        assert state["decided"] == [0, 7]
        suggested = read_settled(folder).suggestions
        assert state["labels"] == suggested.groups.tolist() == [2] * 7 + [3] * 7
        percent = unpacked(state["probability"], "u1")
        known = np.delete(np.arange(N), [0, 7])
        np.testing.assert_allclose(percent[known] / 100, suggested.probability[known], atol=0.011)
        assert (percent[known] / 100 <= suggested.probability[known]).all()
        assert [group_of(state, kind)["suggested"] for kind in (2, 3)] == [6, 6]
        assert client.step("undo").data["labels"] != state["labels"]
        assert client.step("redo").data["probability"] == state["probability"]

    def test_the_tag_changes_with_the_version(self, client: RunClient) -> None:
        tag = client.api("state").headers["etag"]
        assert client.get("/r/run/api/state", if_none_match=tag).status == 304
        client.edit("name", group=0, name="dents")
        assert client.get("/r/run/api/state", if_none_match=tag).status == 200


class TestEdits:
    EDITS: tuple[tuple[str, dict[str, Any]], ...] = (
        ("name", {"group": 0, "name": " dents "}),
        ("role", {"group": 1, "role": "normal"}),
        ("split", {"group": 0, "images": [0, 1], "name": "deep"}),
        ("move", {"images": [2, 7], "to": "new", "name": "odd"}),
        ("move", {"images": [3], "to": "unsure"}),
        ("several", {"images": [4], "groups": [1]}),
        ("accept", {"group": 0}),
        ("accept", {"images": [8, 9]}),
        ("reject", {"images": [10], "group": 1}),
        ("audit", {"image": 11, "to": 0}),
        ("verdict", {"threshold": 0.5}),
        ("cut", {"k": 4}),
        ("merge", {"groups": [1, 2], "into": 2}),
    )

    def test_every_kind_does_what_edits_say(
        self, client: RunClient, folder: Path, run: Run
    ) -> None:
        for number, (kind, payload) in enumerate(self.EDITS, 1):
            reply = client.edit(kind, **payload)
            assert reply.status == 200, reply.body
            state = reply.data
            check_state(state, N)
            assert state == client.state()
            assert state["version"] == number
            now = read_settled(folder, run)
            expected = now.settled
            assert state["labels"] == expected.labels.tolist()
            assert state["decided"] == np.flatnonzero(decided(expected)).tolist()
            named = {group["id"]: (group["name"], group["role"]) for group in state["groups"]}
            assert named == {id: (one.name, one.role) for id, one in expected.groups.items()}
            several = {
                str(row): list(some)
                for row, some in enumerate(kinds(run, expected, settled_regions(run, now)))
            }
            assert state["kinds"] == {row: s for row, s in several.items() if len(s) > 1}
            assert state["undo"]
        assert group_of(client.state(), 0)["title"] == "dents"

    def test_a_named_group_may_be_empty(self, client: RunClient) -> None:
        client.edit("name", group=0, name="dents")
        rows = [row for row, label in enumerate(client.state()["labels"]) if label == 0]
        state = client.edit("move", images=rows, to=1).data
        check_state(state, N)
        assert group_of(state, 0)["n"] == 0
        assert client.api("queue").status == 200
        assert "needs 2 images" in client.api("split/0").detail

    def test_undo_all_and_redo_all(self, client: RunClient) -> None:
        seen = [client.state()]
        for kind, payload in self.EDITS:
            seen.append(client.edit(kind, **payload).data)
        fixed = ("labels", "probability", "groups", "decided", "kinds", "k", "spent", "undo")
        for before in reversed(seen[:-1]):
            state = client.step("undo").data
            assert [state[key] for key in fixed] == [before[key] for key in fixed]
        assert client.step("undo").status == 422
        assert client.step("undo").detail == "There is nothing to undo."
        for after in seen[1:]:
            state = client.step("redo").data
            assert [state[key] for key in fixed] == [after[key] for key in fixed]
        assert client.step("redo").detail == "There is nothing to redo."
        assert client.state()["version"] == 3 * len(self.EDITS)

    def test_all_of_it_is_there_after_a_restart(self, client: RunClient, folder: Path) -> None:
        for kind, payload in self.EDITS:
            client.edit(kind, **payload)
        client.step("undo")
        assert RunClient(make_app([folder])).state() == client.state()
        labels = read_settled(folder).settled.labels
        assert labels.tolist() == client.state()["labels"]

    def test_a_conflict_changes_nothing(self, client: RunClient) -> None:
        client.edit("name", group=0, name="dents")
        before = client.state()
        for reply in (
            client.edit("name", version=0, group=0, name="scratches"),
            client.step("undo", version=0),
            client.step("redo", version=0),
            client.edit("name", version=2, group=0, name="from the future"),
        ):
            assert reply.status == 409
            assert reply.data["version"] == 1
            assert "changed meanwhile" in reply.detail
        assert client.state() == before

    @pytest.mark.parametrize(
        ("kind", "payload", "said"),
        [
            ("paint", {}, "paint"),
            ("undo", {}, "undo"),
            ("name", {}, "name"),
            ("name", {"group": 99, "name": "a"}, "99"),
            ("name", {"group": "0", "name": "a"}, "group"),
            ("name", {"group": 0, "name": "a\x00b"}, "control"),
            ("name", {"group": 0, "name": "a" * 201}, "200"),
            ("role", {"group": 0, "role": "king"}, "king"),
            ("move", {"images": [], "to": 1}, "images"),
            ("move", {"images": [N], "to": 1}, str(N)),
            ("move", {"images": [-1], "to": 1}, "-1"),
            ("move", {"images": [True], "to": 1}, "images"),
            ("cut", {"k": N + 1}, str(N)),
            ("cut", {"k": 1.5}, "1.5"),
            ("split", {"group": 0, "images": list(range(N))}, "split"),
        ],
    )
    def test_nonsense(self, looker: RunClient, kind: str, payload: Any, said: str) -> None:
        reply = looker.edit(kind, **payload)
        assert reply.status == 422, reply.body
        assert said in reply.detail
        assert looker.state()["version"] == 0

    def test_only_cluster_carries_groups_over(self, looker: RunClient) -> None:
        """It could say anything of all images at once, and undo does not reach it."""
        groups = [{"id": 0, "name": "mine", "role": "flaw"}]
        everything = {"groups": groups, "labels": [0] * N, "confirmed": [], "several": {}, "k": 1}
        reply = looker.edit("carry", **everything)
        assert reply.status == 422, reply.body
        assert "kind must be one of name, " in reply.detail
        assert reply.detail.endswith("severity, note, cut. Got 'carry'.")
        assert looker.state()["version"] == 0

    @pytest.mark.parametrize(
        "body",
        [
            b"", b"{", b"null", b"[]", b"1", b'"text"', b"\xff\xfe", b"{}",
            b'{"version": 0, "kind": "cut"}',
            b'{"version": "0", "kind": "cut", "payload": {"k": 3}}',
            b'{"version": 0.0, "kind": "cut", "payload": {"k": 3}}',
            b'{"version": true, "kind": "cut", "payload": {"k": 3}}',
            b'{"version": -1, "kind": "cut", "payload": {"k": 3}}',
            b'{"version": 1e400, "kind": "cut", "payload": {"k": 3}}',
            b'{"version": NaN, "kind": "cut", "payload": {"k": 3}}',
            b'{"version": 0, "kind": "cut", "payload": [3]}',
            b'{"version": 0, "kind": "cut", "payload": {"k": 3}, "more": 1}',
            b'{"version": 0, "kind": "cut", "payload": {"k": NaN}}',
            b'{"version": 0, "kind": "name", "payload": {"group": 0, "name": "\\ud800"}}',
            b'{"version": 0, "kind": "\\ud800", "payload": {}}',
            b'{"version": 0, "kind": "cut", "payload": {"k": 3}, "author": "\\u0000"}',
            b'{"version": 0, "kind": "cut", "payload": {"k": 3}, "author": "' + b"a" * 201 + b'"}',
            b'{"version": 0, "kind": "cut", "payload": {"k": ' + b"9" * 5000 + b"}}",
            b'{"version": 0, "kind": "cut", "payload": ' + b'{"k":' * 20000 + b"1" + b"}" * 20000,
        ],
    )  # fmt: skip
    def test_bodies_that_are_none(self, looker: RunClient, body: bytes) -> None:
        reply = looker.post("/r/run/api/edits", body)
        assert reply.status in (400, 422), reply.body
        assert reply.detail
        assert looker.state()["version"] == 0

    def test_the_author_is_kept(self, client: RunClient, folder: Path) -> None:
        body = {"version": 0, "kind": "cut", "payload": {"k": 3}, "author": "Ann É"}
        assert client.post("/r/run/api/edits", body).status == 200
        with EditStore(folder / EDITS) as store:
            assert [entry.author for entry in store.log()] == ["Ann É"]

    def test_a_run_that_cannot_be_written(
        self, client: RunClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(EditStore, "writable", property(lambda _: False))
        reply = client.edit("name", group=0, name="dents")
        assert reply.status == 403
        assert "read-only" in reply.detail
        assert client.state()["version"] == 0


class TestTwoPeople:
    def test_each_sees_what_the_other_did(self, folder: Path) -> None:
        one, other = RunClient(make_app([folder])), RunClient(make_app([folder]))
        assert one.edit("name", group=0, name="dents").status == 200
        assert group_of(other.state(), 0)["name"] == "dents"
        assert other.edit("move", images=[0], to=1).status == 200
        assert one.state() == other.state()
        assert one.step("undo").data["version"] == 3
        assert other.state()["redo"] == one.state()["redo"] is not None

    def test_of_many_at_once_one_wins(self, folder: Path) -> None:
        clients = [RunClient(make_app([folder])) for _ in range(2)] * 4
        for client in clients[:2]:
            # FastAPI makes up the checks of a route when it is first asked for, in the one thread
            # that a server has; here each client is a thread of its own.
            assert client.edit("name", version=9, group=0, name="too late").status == 409
        statuses: list[int] = []

        def name(number: int) -> None:
            reply = clients[number].edit("name", version=0, group=0, name=f"name {number}")
            statuses.append(reply.status)

        threads = [threading.Thread(target=name, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [200] + [409] * 7
        assert clients[0].state()["version"] == 1


class TestLookups:
    def test_similar_images(self, looker: RunClient, run: Run) -> None:
        for row in (0, N - 1):
            found = looker.api(f"similar/{row}?n=5").data
            far = [np.linalg.norm(run.embeddings[row] - other) for other in run.embeddings]
            nearest = sorted((d, i) for i, d in enumerate(far) if i != row)[:5]
            assert [one["row"] for one in found] == [i for _, i in nearest]
            assert [one["distance"] for one in found] == pytest.approx([d for d, _ in nearest])
        assert len(looker.api("similar/3").data) == 12
        assert len(looker.api("similar/3?n=200").data) == N - 1

    @pytest.mark.parametrize(
        ("what", "status"),
        [
            (f"similar/{N}", 404), ("similar/-1", 422), ("similar/x", 422), ("similar/1.5", 422),
            ("similar/0?n=0", 422), ("similar/0?n=201", 422), ("similar/0?n=x", 422),
            (f"similar/{10**30}", 422), ("split/99", 404), ("split/-1", 422), ("split/x", 422),
            ("split/0?parts=1", 422), ("split/0?parts=99", 422), ("queue?skip=x", 422),
            ("queue?skip=-1", 422), (f"queue?later={N}", 404), ("nothing", 404),
        ],
    )  # fmt: skip
    def test_what_is_not_there(self, looker: RunClient, what: str, status: int) -> None:
        reply = looker.api(what)
        assert reply.status == status, reply.body
        assert reply.detail

    def test_a_group_is_split_where_the_tree_was_merged(self, looker: RunClient, run: Run) -> None:
        members: dict[int, set[int]] = {row: {row} for row in range(N)}
        for step, (left, right) in enumerate(run.linkage[:, :2].astype(int)):
            members[N + step] = members[left] | members[right]
        labels = looker.state()["labels"]
        for group in (0, 1):
            own = {row for row in range(N) if labels[row] == group}
            node = next(node for node, some in members.items() if some == own)
            children = run.linkage[node - N, :2].astype(int)
            expected = sorted((sorted(members[child]) for child in children), key=len, reverse=True)
            parts = looker.api(f"split/{group}").data["parts"]
            assert sorted(map(sorted, parts)) == sorted(expected)
            assert [len(part) for part in parts] == [len(part) for part in expected]
            three = looker.api(f"split/{group}?parts=3").data["parts"]
            assert sorted(row for part in three for row in part) == sorted(own)
            assert len(three) == 3

    def test_into_more_parts_than_images(self, looker: RunClient) -> None:
        assert looker.api("split/0?parts=8").detail == "parts must be between 2 and 7. Got 8."

    def test_a_single_image_cannot_be_split(self, client: RunClient) -> None:
        for group in (0, 1):
            client.edit("accept", group=group)  # or others would be suggested beside it
        client.edit("move", images=[0], to="new")
        assert client.api("split/2").status == 422
        assert "needs 2 images" in client.api("split/2").detail


class TestQueue:
    def test_until_nothing_is_left(self, client: RunClient) -> None:
        """Whoever accepts what is shown decides exactly that, and every image in the end."""
        seen: list[int] = []
        for _ in range(N):
            queue = client.api("queue").data
            question = queue["question"]
            if question is None:
                break
            assert question["kind"] in ("group", "image")
            assert question["why"]
            assert (question["other"], question["other_rows"]) == (None, [])
            labels, rows = client.state()["labels"], question["rows"]
            assert {labels[row] for row in rows} == {question["group"]}
            assert not set(rows) & set(seen)
            seen += rows
            state = client.edit("accept", images=rows).data
            assert state["decided"] == sorted(seen)
        queue = client.api("queue").data
        assert (queue["done"], queue["total"], queue["question"]) == (N, N, None)
        assert queue["spent"] == N
        assert sorted(seen) == list(range(N))

    def test_what_is_put_off_is_not_asked(self, looker: RunClient) -> None:
        question = looker.api("queue").data["question"]
        later = looker.api(f"queue?skip={question['group']}").data["question"]
        assert later["group"] == 1 - question["group"]
        rows = "&".join(f"later={row}" for row in range(N))
        assert looker.api(f"queue?{rows}").data["question"] is None

    def test_two_groups_that_may_be_one(self, client: RunClient) -> None:
        """Dents in two groups that nobody named: asked about, and told apart."""
        client.edit("accept", images=[0, 2, 4])
        client.edit("move", images=[1, 3, 5], to="new")
        question = client.api("queue?skip=1").data["question"]
        while question["kind"] == "group":
            client.edit("accept", images=question["rows"])
            question = client.api("queue").data["question"]
        assert question["kind"] == "pair"
        pair = sorted([question["group"], question["other"]])
        assert pair == sorted({client.state()["labels"][row] for row in (0, 3)})
        labels = client.state()["labels"]
        assert {labels[row] for row in question["rows"]} == {question["group"]}
        assert {labels[row] for row in question["other_rows"]} == {question["other"]}
        reply = client.edit("different", groups=pair)
        assert reply.status == 200
        question = client.api("queue").data["question"]
        assert question is None or question["kind"] != "pair"

    def test_rows_that_were_answered(self) -> None:
        done = [
            Edit("carry", {"confirmed": [7]}),
            Edit("accept", {"images": [3]}),
            Edit("accept", {"group": 0}),
            Edit("move", {"images": [1, 2], "to": 0}),
            Edit("several", {"images": [4], "groups": []}),
            Edit("split", {"group": 0, "images": [9]}),
        ]
        assert answered_rows(done) == {1, 2, 3, 4, 7}


class TestPictures:
    def test_thumbnails_are_the_runs_own(self, looker: RunClient, run: Run) -> None:
        for row in (0, N - 1):
            reply = looker.get(f"/r/run/thumb/{row}.jpg")
            assert reply.body == run.thumbnails[row]
            assert reply.headers["content-type"] == "image/jpeg"

    def test_thumbnails_in_memory_wait_for_no_thread(
        self, looker: RunClient, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Others have all threads: edits that wait for each other."""

        def refuse(*_: object) -> None:
            raise AssertionError("a thread is asked for")

        looker.get("/r/run/api/run")
        monkeypatch.setattr("flawsort.review.routes.run_in_threadpool", refuse)
        assert looker.get("/r/run/thumb/1.jpg").body == run.thumbnails[1]

    def test_a_run_at_hand_is_the_one_in_its_folder(self, folder: Path) -> None:
        library = make_app([folder]).state.library
        found = library.get("run")
        assert library.at_hand("run") is found
        assert library.at_hand("another") is None
        os.utime(folder / "manifest.json", (1, 1))  # as after a report
        assert library.at_hand("run") is found
        os.utime(folder / LASTING, (1, 1))
        assert library.at_hand("run") is None
        again = library.get("run")
        assert library.at_hand("run") is again is not found

    @pytest.mark.parametrize(
        "what",
        ["thumb/3.jpg", "image/3.jpg", "full/3.jpg", "flaw/3.jpg", "close/3.jpg", "match/3.jpg",
         "heat/3.png", "flaw-heat/3.png"],
    )  # fmt: skip
    def test_tags(self, looker: RunClient, what: str) -> None:
        reply = looker.get(f"/r/run/{what}")
        assert "max-age=60" in reply.headers["cache-control"]
        again = looker.get(f"/r/run/{what}", if_none_match=reply.headers["etag"])
        assert (again.status, again.body) == (304, b"")
        other = looker.get(f"/r/run/{what.replace('3', '4')}")
        assert other.headers["etag"] != reply.headers["etag"]
        fingerprint = looker.api("run").data["fingerprint"]
        for_ever = looker.get(f"/r/run/{what}?v={fingerprint}")
        assert "immutable" in for_ever.headers["cache-control"]
        assert "immutable" not in looker.get(f"/r/run/{what}?v=old").headers["cache-control"]

    def test_images_are_no_larger_than_the_file(self, looker: RunClient, run: Run) -> None:
        shown = picture(looker.get("/r/run/image/0.jpg"))
        assert (shown.format, shown.size) == ("JPEG", (64, 64))
        plate = np.asarray(Image.open(run.table["path"][0]).convert("RGB"), float)
        assert np.abs(np.asarray(shown, float) - plate).mean() < 8

    def test_large_images_are_reduced(self, tmp_path: Path, run: Run) -> None:
        write_large = Image.new("RGB", (4000, 1000), "red")
        write_large.save(tmp_path / "large.png")
        content = (tmp_path / "large.png").read_bytes()
        table = {**run.table}
        table["path"] = [str(tmp_path / "large.png"), *table["path"][1:]]
        table["sha256"] = [hashlib.sha256(content).hexdigest(), *table["sha256"][1:]]
        save_run(dataclasses.replace(run, table=table), tmp_path / "run")
        shown = picture(RunClient(make_app([tmp_path / "run"])).get("/r/run/image/0.jpg"))
        assert shown.size == (1600, 400)

    def test_heat_lies_over_the_grid(self, looker: RunClient, run: Run) -> None:
        rows, columns = run.manifest["grid"]
        heat = HeatScale(**run.manifest["heat"]).normalise(run.scores).reshape(-1, rows, columns)
        for row in range(N):
            shown = picture(looker.get(f"/r/run/heat/{row}.png"))
            assert (shown.format, shown.mode) == ("PNG", "RGBA")
            assert shown.size == (8 * columns, 8 * rows)
            large = Image.fromarray(heat[row].astype(np.float32)).resize(shown.size, 3)
            index = np.rint(np.clip(np.asarray(large), 0, 1) * 255).astype(int)
            np.testing.assert_array_equal(np.asarray(shown), colour_table()[index])
        assert heat.max() == 1  # or nothing of it would be seen

    def test_what_does_not_count_is_cold(self, run: Run, tmp_path: Path) -> None:
        valid = np.zeros(run.scores.shape, bool)
        hot = dataclasses.replace(run, scores=np.full_like(run.scores, 1e6), valid=valid)
        save_run(hot, tmp_path / "run")
        client = RunClient(make_app([tmp_path / "run"]))
        assert not np.asarray(picture(client.get("/r/run/heat/0.png")))[..., 3].any()

    @pytest.mark.parametrize(
        ("what", "status"),
        [(f"thumb/{N}.jpg", 404), ("thumb/-1.jpg", 422), ("image/x.jpg", 422), ("heat/1.jpg", 404),
         ("heat/99999999999999999999.png", 422), ("thumb/1", 404), ("thumb/0x1.jpg", 422)],
    )  # fmt: skip
    def test_rows_that_are_none(self, looker: RunClient, what: str, status: int) -> None:
        assert looker.get(f"/r/run/{what}").status == status


class TestMadeThumbnails:
    """Of a large run only some images have thumbnails in it; the others are made and kept."""

    @pytest.fixture
    def bare(self, run: Run, plates: Path, tmp_path: Path) -> Path:
        """A run without thumbnails, whose images are its own."""
        shutil.copytree(plates / "parts", tmp_path / "parts")
        paths = [str(tmp_path / "parts" / name) for name in run.table["name"]]
        table = {**run.table, "path": paths}
        save_run(dataclasses.replace(run, table=table, thumbnails=(b"",) * N), tmp_path / "run")
        return tmp_path

    def client(self, bare: Path) -> RunClient:
        return RunClient(make_app([bare / "run"], cache=bare / "cache"))

    def test_made_once_and_kept(self, bare: Path) -> None:
        reply = self.client(bare).get("/r/run/thumb/0.jpg")
        assert picture(reply).size == (64, 64)
        kept = list((bare / "cache" / "thumbnails").glob("*/*.jpg"))
        assert [unsealed(path.read_bytes()) for path in kept] == [reply.body]
        shutil.rmtree(bare / "parts")
        again = self.client(bare)
        assert again.get("/r/run/thumb/0.jpg").body == reply.body
        gone = again.get("/r/run/thumb/1.jpg")
        assert gone.status == 404
        assert gone.detail == "The image 'dent01.png' cannot be shown: it does not exist."

    def test_a_file_that_has_changed_is_not_shown(self, bare: Path) -> None:
        (bare / "parts" / "dent00.png").write_bytes((bare / "parts" / "dent01.png").read_bytes())
        client = self.client(bare)
        for what in ("thumb", "image"):
            reply = client.get(f"/r/run/{what}/0.jpg")
            assert reply.status == 404
            assert "has changed since it was clustered" in reply.detail

    def test_a_damaged_one_is_made_again(self, bare: Path) -> None:
        good = self.client(bare).get("/r/run/thumb/0.jpg").body
        [kept] = (bare / "cache" / "thumbnails").glob("*/*.jpg")
        whole = kept.read_bytes()
        assert whole.startswith(good)  # anything that shows pictures shows it
        kept.write_bytes(good[:50])
        assert self.client(bare).get("/r/run/thumb/0.jpg").body == good
        assert kept.read_bytes() == whole

    def test_a_cache_that_cannot_be_written(self, bare: Path) -> None:
        (bare / "cache").write_text("a file is in the way")
        assert self.client(bare).get("/r/run/thumb/0.jpg").status == 200

    def test_arrays_have_no_file(self, run: Run, tmp_path: Path) -> None:
        table = {**run.table, "path": [""] * N}
        save_run(dataclasses.replace(run, table=table), tmp_path / "run")
        reply = RunClient(make_app([tmp_path / "run"])).get("/r/run/image/0.jpg")
        assert reply.status == 404
        assert "was given as an array and has no file" in reply.detail

    def test_the_oldest_go_when_there_are_too_many(self, tmp_path: Path) -> None:
        files = PictureFiles(tmp_path, limit=300)
        for number in range(4):
            before = set(tmp_path.rglob("*.jpg"))
            content = b"\xff\xd8" + bytes([number] * 96) + b"\xff\xd9"
            assert files.get(f"{number:040x}", lambda made=content: made) == content
            (path,) = set(tmp_path.rglob("*.jpg")) - before
            os.utime(path, (number, number))
        files.prune()
        left = sorted(path.read_bytes()[2] for path in tmp_path.rglob("*.jpg"))
        assert left == [2, 3]


class TestAccuracy:
    @pytest.fixture
    def client(self, client: RunClient) -> RunClient:
        """Both groups have names, so that something is suggested for all images."""
        for group in (0, 1):
            client.edit("name", group=group, name=f"kind {group}")
        return client

    def test_nothing_is_said_of_few_answers(self, client: RunClient) -> None:
        for row in range(9):
            client.edit("move", images=[row], to=0)
        said = client.api("accuracy").data
        nothing = {"share": None, "low": None, "high": None, "together": 0}
        assert said["suggestions"] == {"n": 9, "least": 10, **nothing}
        assert said["audit"] == {"n": 0, "least": 10, **nothing}
        assert client.api("queue").data["suggestions"] == said["suggestions"]

    def test_suggestions_are_compared_with_the_answers_that_follow(self, client: RunClient) -> None:
        for row in range(12):  # two against what was suggested
            wrong = row in (3, 8)
            now = client.state()["labels"][row]
            client.edit("move", images=[row], to=1 - now if wrong else now)
        said = client.api("accuracy").data["suggestions"]
        assert (said["n"], said["together"], said["share"]) == (12, 0, pytest.approx(10 / 12))
        assert said["low"] == pytest.approx(wilson(10 / 12, 12)[0])
        assert said["high"] == pytest.approx(wilson(10 / 12, 12)[1])
        client.edit("accept", images=[11, 12, 13])  # one of them has its answer
        said = client.api("accuracy").data["suggestions"]
        assert (said["n"], said["together"], said["share"]) == (14, 2, pytest.approx(12 / 14))
        client.step("undo")
        client.step("undo")
        assert client.api("accuracy").data["suggestions"]["n"] == 11

    def test_the_audit_goes_through_all_images_in_a_random_order(
        self, client: RunClient, folder: Path
    ) -> None:
        labels, seen = client.state()["labels"], []
        for number in range(N):
            asked = client.api("audit").data
            assert asked.keys() == {"row", "n"}  # nothing that tells its group
            assert asked["n"] == number
            seen.append(asked["row"])
            client.edit("audit", image=asked["row"], to=labels[asked["row"]])
            if number == 4:
                client.step("undo")  # it is asked again
                assert client.api("audit").data["row"] == seen[-1]
                client.step("redo")
        assert sorted(seen) == list(range(N)) != seen
        assert client.api("audit").data == {"row": None, "n": N}
        audit = client.api("accuracy").data["audit"]
        assert (audit["n"], audit["share"]) == (N, 1.0)
        assert 0.8 < audit["low"] < audit["high"] == 1.0
        again = RunClient(make_app([folder]))
        assert again.api("accuracy").data["audit"] == audit

    def test_an_image_that_nobody_can_tell_does_not_count(self, client: RunClient) -> None:
        row = client.api("audit").data["row"]
        state = client.edit("audit", image=row, to="unsure").data
        assert state["decided"] == []
        asked = client.api("audit").data
        assert (asked["n"], asked["row"] != row) == (0, True)

    def test_a_wrong_audit_is_refused(self, looker: RunClient) -> None:
        for payload in ({"image": N, "to": 0}, {"image": 0}, {"image": [0], "to": 0}):
            reply = looker.edit("audit", **payload)
            assert reply.status == 422, payload
            assert reply.detail


class TestExport:
    def test_the_zip_holds_what_the_export_writes(
        self, client: RunClient, folder: Path, tmp_path: Path
    ) -> None:
        client.edit("name", group=0, name="dents")
        reply = client.get("/r/run/export/csv")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/zip")
        assert reply.headers["content-disposition"] == "attachment; filename*=UTF-8''run-csv.zip"
        run, out = open_run(folder), tmp_path / "out"
        state = read_settled(folder)
        sure = state.suggestions.probability
        written = export_run(run, state.settled, "csv", out / "csv", probability=sure)
        with zipfile.ZipFile(io.BytesIO(reply.body)) as archive:
            assert archive.testzip() is None
            found = {name: archive.read(name) for name in archive.namelist()}
            assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert found == {
            path.relative_to(out).as_posix(): path.read_bytes() for path in written.paths
        }
        assert any(b"dents" in content for content in found.values())
        assert client.get("/r/run/export/csv").body == reply.body

    @pytest.mark.parametrize("format", [name for name in FORMATS if name != "book-pdf"])
    def test_every_format(self, looker: RunClient, format: str) -> None:
        reply = looker.get(f"/r/run/export/{format}")
        assert reply.status == 200, reply.body
        with zipfile.ZipFile(io.BytesIO(reply.body)) as archive:
            assert archive.testzip() is None
            assert archive.namelist()
            assert not any(name.startswith("/") or ".." in name for name in archive.namelist())
        assert looker.get(f"/r/run/export/{format}").body == reply.body
        assert b"flawsort-export-" not in reply.body  # where it was made says nothing

    @pytest.mark.parametrize("format", ["xls", "..", "csv%2F..", "CSV", "%00"])
    def test_formats_that_are_none(self, looker: RunClient, format: str) -> None:
        assert looker.get(f"/r/run/export/{format}").status == 404

    def test_nothing_is_left_behind(
        self, looker: RunClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert looker.get("/r/run/export/csv").status == 200
        monkeypatch.setattr("flawsort.review.download.export_run", full_disk)
        reply = looker.get("/r/run/export/csv")
        assert (reply.status, reply.detail) == (507, "No space left on device.")
        assert list(tmp_path.iterdir()) == []


class TestLibrary:
    @pytest.fixture
    def runs(self, saved: Path, tmp_path: Path) -> Path:
        """A folder with two runs, a third that is damaged, and what is no run."""
        for name in ("one", "two", "three"):
            copied(saved, tmp_path, name)
        (tmp_path / "three" / "manifest.json").write_text("{", "utf-8")
        (tmp_path / "notes").mkdir()
        copied(saved, tmp_path, ".two.partial-1")
        return tmp_path

    def test_a_folder_of_runs(self, runs: Path) -> None:
        client = Client(make_app([runs]))
        entries = client.get("/api/runs").data
        assert [entry["name"] for entry in entries] == ["one", "three", "two"]
        assert [(entry["n"], entry["groups"]) for entry in entries] == [(N, 2), (0, 0), (N, 2)]
        assert entries[0]["url"] == "/r/one/"
        assert "manifest.json cannot be read" in entries[1]["reason"]
        assert client.get("/").status == 200
        reply = client.get("/r/three/api/run")
        assert reply.status == 404
        assert "manifest.json cannot be read" in reply.detail
        page = client.get("/r/three/")
        assert page.status == 404
        assert b"manifest.json cannot be read" in page.body
        assert client.get("/r/notes/").status == 404

    def test_edits_go_to_their_own_run(self, runs: Path) -> None:
        app = make_app([runs])
        one, two = RunClient(app), RunClient(app)
        one.run, two.run = "one", "two"
        one.edit("name", group=0, name="dents")
        assert (one.state()["version"], two.state()["version"]) == (1, 0)
        assert (runs / "one" / EDITS).exists()
        assert not (runs / "two" / EDITS).exists()

    def test_the_only_run_is_gone_to(self, looker: RunClient) -> None:
        reply = looker.get("/")
        assert (reply.status, reply.headers["location"]) == (303, "/r/run/")

    def test_runs_of_the_same_name(self, saved: Path, tmp_path: Path) -> None:
        places = [copied(saved, tmp_path / part) for part in ("a", "b")]
        library = Library([*places, places[0], tmp_path / "a"])
        assert [entry.name for entry in library.entries()] == ["run", "run-2"]
        assert library.get("run-2").folder == places[1].resolve()

    def test_a_run_that_comes_later(self, runs: Path, saved: Path) -> None:
        client = Client(make_app([runs]))
        copied(saved, runs, "four")
        assert client.get("/r/four/api/state").status == 200
        assert len(client.get("/api/runs").data) == 4

    def test_a_run_that_was_replaced(self, client: RunClient, folder: Path, run: Run) -> None:
        client.edit("name", group=0, name="dents")
        mirrored = dataclasses.replace(run, layout=1 - run.layout)
        before = client.api("run").data
        save_run(mirrored, folder, overwrite=True, carried=True)
        after = client.api("run").data
        assert after["layout"] != before["layout"]
        assert after["fingerprint"] != before["fingerprint"]
        assert client.state()["version"] == 0

    def test_edits_that_were_put_back(self, client: RunClient, folder: Path) -> None:
        client.edit("name", group=0, name="dents")
        backup = folder.parent / "backup.sqlite"
        with EditStore(backup) as store:
            store.append(Edit("name", {"group": 0, "name": "from a backup"}), 0)
        for suffix in ("", "-wal", "-shm"):
            (folder / f"{EDITS}{suffix}").unlink(missing_ok=True)
        shutil.copy(backup, folder / EDITS)
        assert group_of(client.state(), 0)["name"] == "from a backup"

    def test_a_run_that_goes_away(self, client: RunClient, folder: Path) -> None:
        assert client.state()["version"] == 0
        shutil.rmtree(folder)
        for what in ("api/run", "api/state", "thumb/0.jpg"):
            reply = client.get(f"/r/run/{what}")
            assert (reply.status, reply.detail) == (404, "The run 'run' no longer exists.")
        assert client.get("/r/run/").status == 404

    @pytest.mark.parametrize("name", ["scores.npy", "images.parquet", EDITS])
    def test_damage_that_only_opening_shows(self, runs: Path, name: str) -> None:
        (runs / "two" / name).write_bytes(b"damaged, and long enough to be looked at" * 9)
        client = Client(make_app([runs]))
        assert not client.get("/api/runs").data[2]["reason"]
        reply = client.get("/r/two/api/run")
        assert reply.status == 404
        assert name in reply.detail
        assert name in client.get("/api/runs").data[2]["reason"]
        assert client.get("/r/one/api/run").status == 200

    def test_nothing_to_review(self, tmp_path: Path, saved: Path) -> None:
        with pytest.raises(RunError, match="There is no run in"):
            make_app([tmp_path])
        with pytest.raises(RunError, match="No run folder at"):
            make_app([tmp_path / "nowhere"])
        with pytest.raises(RunError, match="There is no run in no folder"):
            make_app([])
        copied(saved, tmp_path)
        (tmp_path / "run" / "manifest.json").write_text("{}", "utf-8")
        with pytest.raises(RunError, match="is not a flawsort run"):
            make_app([tmp_path])

    def test_few_are_open_at_once(self, saved: Path, tmp_path: Path) -> None:
        names = [f"run{number}" for number in range(shelf.MOST_OPEN + 2)]
        for name in names:
            copied(saved, tmp_path, name)
        library = Library([tmp_path])
        first = library.get(names[0])
        for name in names[1:]:
            library.get(name)
        assert len(library._open) == shelf.MOST_OPEN
        assert first.session.edit("cut", {"k": 3}, 0).k == 3  # whoever still has it may go on
        first.session.close()
        assert library.current(names[0]) is not first
        assert library.current(names[0]).session.version == 1
        assert library.get(names[0]) is library.get(names[0])
        library.close()


class TestPages:
    def test_the_page_of_a_run(self, looker: RunClient) -> None:
        reply = looker.get("/r/run/")
        assert reply.status == 200
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        text = reply.body.decode()
        assert "<title>run" in text
        assert pages.static_version() in text
        assert not re.search(r"<script(?![^>]*\bsrc=)", text)  # nothing inline, which CSP refuses
        assert not re.search(r"https?://", text)
        for address in re.findall(r'(?:href|src)="(/static/[^"]+)"', text):
            assert looker.get(address).status == 200, address

    def test_without_the_slash_one_is_sent_there(self, looker: RunClient) -> None:
        reply = looker.get("/r/run")
        assert reply.status in (301, 303, 307, 308)
        assert reply.headers["location"].endswith("/r/run/")

    def test_static_files(self, looker: RunClient) -> None:
        folder = Path(pages.__file__).parent / "static"
        types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
        found = [path for path in folder.rglob("*") if path.suffix in types]
        assert found
        for path in found:
            reply = looker.get(f"/static/{path.relative_to(folder).as_posix()}")
            assert reply.body == path.read_bytes()
            assert reply.headers["content-type"].startswith(types[path.suffix])
            assert "no-cache" in reply.headers["cache-control"]
        name = found[0].relative_to(folder).as_posix()
        kept = looker.get(f"/static/{name}?v={pages.static_version()}")
        assert "immutable" in kept.headers["cache-control"]
        assert looker.get(f"/static/{name}", if_none_match=kept.headers["etag"]).status == 304

    def test_scripts_import_what_is_served_and_all_of_them_come_at_once(
        self, looker: RunClient
    ) -> None:
        page = looker.get("/r/run/").body.decode()
        names = re.findall(r'<link rel="modulepreload" href="/static/([^"]+)">', page)
        assert names == sorted(set(names))
        assert {"main.js", "pages.js", *SCRIPTS} <= set(names)
        for name in names:
            text = looker.get(f"/static/{name}").body.decode()
            for imported in re.findall(r'^import .* from "\./(.+)";$', text, re.MULTILINE):
                assert imported in names, name

    def test_shared_scripts_are_those_of_the_report(self, looker: RunClient) -> None:
        for name in SCRIPTS:
            reply = looker.get(f"/static/{name}")
            assert reply.body.decode() == shared_script(name)
            assert reply.headers["content-type"].startswith("text/javascript")
            assert name not in os.listdir(Path(pages.__file__).parent / "static")

    def test_a_page_is_its_script_and_a_place_in_the_list(self) -> None:
        folder = Path(pages.__file__).parent / "static"
        listed = re.search(r"export const PAGES = \[(.*)\];", (folder / "pages.js").read_text())
        assert listed is not None
        declared = {}
        for script in folder.glob("*page.js"):
            text = script.read_text("utf-8")
            (name,) = re.findall(r"^export class (\w+Page) \{$", text, re.MULTILINE)
            found = dict(re.findall(r"^  static (place|title|rail) = (.*);$", text, re.MULTILINE))
            assert set(found) == {"place", "title", "rail"}
            declared[name] = found["place"]
        assert sorted(listed[1].split(", ")) == sorted(declared)
        assert len(set(declared.values())) == len(declared)

    def test_the_api_is_documented(self, looker: RunClient) -> None:
        described = looker.get("/openapi.json").data
        assert looker.get("/docs").status == looker.get("/redoc").status == 404
        api = {path: one for path, one in described["paths"].items() if "/api/" in path}
        assert len(api) == 20
        for one in api.values():
            for operation in one.values():
                assert operation["summary"]
                assert operation["description"]
                schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
                assert schema
        edits = api["/r/{run}/api/edits"]["post"]
        assert {"200", "403", "404", "409", "422"} <= set(edits["responses"])
        answers = api["/r/{run}/api/assigned/{name}/answers"]["post"]
        assert set(answers["responses"]) == set(edits["responses"])
        body = described["components"]["schemas"]["EditBody"]
        assert body["required"] == ["version", "kind", "payload"]
        for name, kind in (("422", "/NameProblem"), ("404", "/Problem")):
            schema = edits["responses"][name]["content"]["application/json"]["schema"]
            assert schema["$ref"].endswith(kind)


class TestTelemetry:
    def test_nothing_is_collected(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whatever the environment says: it would ask for exporters, which are not installed."""
        monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        app = make_app([folder])
        said: list[str] = []
        waiting = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]

        async def receive() -> Any:
            return waiting.pop()

        async def send(message: Any) -> None:
            said.append(message["type"])

        RunClient(app).edit("cut", k=3)
        library = app.state.library
        store = library.get("run").session._store
        asyncio.run(app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send))
        assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert caplog.records == []
        assert store._connection is None  # let go of at the end


class TestServing:
    @pytest.mark.parametrize("before", ["default_int_handler", "SIG_IGN"])
    def test_the_command_until_ctrl_c(self, folder: Path, before: str) -> None:
        """Also of a command that a shell started in the background, where signals are ignored."""
        first = f"import signal; signal.signal(signal.SIGINT, signal.{before}); "
        process = start(first + MAIN, "review", folder, "--port", "0", "--no-open")
        try:
            assert process.stdout is not None
            address = process.stdout.readline().removeprefix("Review: ").strip()
            address, _, token = address.partition("?token=")
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(f"{address}?token={token}") as page:
                assert page.geturl() == f"{address}r/run/"
                assert page.status == 200
            request = urllib.request.Request(
                f"{address}r/run/api/edits",
                json.dumps({"version": 0, "kind": "cut", "payload": {"k": 3}}).encode(),
                {"Content-Type": "application/json"},
            )
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request)
            with browser.open(request) as reply:
                assert json.load(reply)["version"] == 1
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=LONG)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 130, err
        assert "interrupted. Every edit was saved" in err
        assert "Traceback" not in err
        assert read_labelling(folder).k == 3

    def test_a_port_that_is_taken(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with listening("127.0.0.1", port) as listener:
                assert port < listener.getsockname()[1] < port + PORTS_TRIED
            monkeypatch.setattr("flawsort.serving.listening.PORTS_TRIED", 1)
            told = f"Cannot listen on 127.0.0.1, port {port}: .* Choose another port"
            with pytest.raises(OptionError, match=told):
                serve([folder], port=port, open_browser=False)
        with pytest.raises(OptionError, match="port must be between 0 and 65535"):
            serve([folder], port=65536, open_browser=False)

    @pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "no.such.host.invalid"])
    def test_a_host_that_is_not_this_machine(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, host: str
    ) -> None:
        class Elsewhere(socket.socket):
            def bind(self, address: object) -> None:  # no name is looked up
                if host.endswith("invalid"):
                    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
                raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

        monkeypatch.setattr(socket, "socket", Elsewhere)
        told = (
            f"Cannot listen on {re.escape(host)}, port 0: .* That host is not an address of this "
        )
        with pytest.raises(OptionError, match=told) as error:
            serve([folder], host=host, open_browser=False)
        assert "another port" not in str(error.value)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "127.0.0.1", "box.local"])
    def test_the_address_for_others(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        host: str,
    ) -> None:
        def served(folders: list[Path], *, announce: Callable[[str], None], **_: object) -> None:
            announce("http://127.0.0.1:8766/?token=x")

        monkeypatch.setattr("flawsort.review.server.serve", served)
        monkeypatch.setattr(socket, "gethostname", lambda: "line-3")
        serve_runs([folder], host, 8765, None, False)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "Review: http://127.0.0.1:8766/?token=x"
        assert lines[1] == "Port 8765 is busy, so this is port 8766."
        others = [line for line in lines if line.startswith("From other machines: ")]
        assert len(others) == (host in ("0.0.0.0", "::"))
        for line in others:
            assert "From other machines: http://line-3:8766/?token=x (or" in line

    def test_the_only_run_is_open_when_it_begins(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
        opened: list[str] = []
        begin = shelf.OpenRun.__init__

        def slowly(self: shelf.OpenRun, name: str, *given: Any) -> None:
            time.sleep(0.2)
            begin(self, name, *given)
            opened.append(name)

        monkeypatch.setattr(shelf.OpenRun, "__init__", slowly)
        said: list[list[str]] = []
        serve([folder], open_browser=False, announce=lambda _: said.append(list(opened)))
        copied(folder, folder.parent, "other")
        serve([folder.parent], open_browser=False, announce=lambda _: said.append(list(opened)))
        assert said == [["run"], ["run"]]  # of several none is opened before it is chosen

    def test_small_answers_do_not_wait(self) -> None:
        with listening("127.0.0.1", 0) as listener:
            assert listener.proto == socket.IPPROTO_TCP  # or asyncio does not set TCP_NODELAY

    def test_what_is_announced(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
        opened: list[str] = []
        seen = threading.Event()
        monkeypatch.setattr("webbrowser.open", lambda url: (opened.append(url), seen.set()))
        said: list[str] = []
        serve([folder], open_browser=True, no_token=True, announce=said.append)
        assert seen.wait(LONG)
        assert opened == said
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", said[0])
        serve([folder], host="0.0.0.0", open_browser=False, announce=said.append)
        serve([folder], host="0.0.0.0", open_browser=False, announce=said.append)
        tokens = [
            re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=(\S{32})", one) for one in said[1:]
        ]
        assert tokens[0] is not None
        assert tokens[1] is not None
        assert tokens[0][1] != tokens[1][1]
        own = "a token of my own".replace(" ", "-")
        serve([folder], token=own, open_browser=False, announce=said.append)
        assert said[-1].endswith(f"/?token={own}")
        with pytest.raises(OptionError, match=r"^token must be 16 to 200 printable"):
            serve([folder], token="short", open_browser=False)
        assert len(opened) == 1

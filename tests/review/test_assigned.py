"""New images in the review: batches, answers that teach, and the verdict."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort import Run, open_run
from flawsort.labels.session import read_settled
from flawsort.labels.store import EditStore
from flawsort.labels.verdict import verdict_curve
from flawsort.review.app import make_app
from flawsort.runs.assigned import Kept, keep, open_kept
from helpers.review_client import (
    Reply,
    RunClient,
    check_state,
    closing_libraries,
    copied,
    digest,
    keep_new_images,
)

N = 14


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return copied(saved, tmp_path)


@pytest.fixture(scope="module")
def run(saved: Path) -> Run:
    return open_run(saved)


@pytest.fixture(scope="module")
def looker(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> RunClient:
    """Of a run that no test edits."""
    return RunClient(make_app([copied(saved, tmp_path_factory.mktemp("looked-at"))]))


class TestBatches:
    TABLE = {  # noqa: RUF012
        "name": ["a<b>.png", "b.png", "c.png", "d.png"],
        "path": ["", "", "", ""],
        "sha256": ["0" * 64] * 4,
        "cluster": [0, 1, -1, -1],
        "kinds": ["0", "1", "-1", "-1"],
        "nearest": [0, 1, 1, 1],
        "runner_up": [1, 0, 0, 0],
        "novelty": [0.1, 0.2, 2.0, 3.0],
        "score": [1.0, 2.0, 3.0, 4.0],
        "period": ["2024-05-01", "2024-05-02", "2024-05-02", "2024-05-02"],
        "proposal": [-1, -1, 0, 1],
    }

    @pytest.fixture
    def with_batch(self, folder: Path, run: Run) -> RunClient:
        thumbnails = (*run.thumbnails[:3], b"")
        about = {"at": "2024-05-03T10:00:00+00:00", "by": "day"}
        keep(folder, Kept("may", self.TABLE, thumbnails, about))
        return RunClient(make_app([folder]))

    def test_a_run_without_any(self, looker: RunClient) -> None:
        assert looker.api("assigned").data == []
        reply = looker.api("assigned/may")
        assert (reply.status, reply.detail) == (404, "The run has no batch 'may'.")

    def test_the_list(self, with_batch: RunClient) -> None:
        entry = {"name": "may", "n": 4, "at": "2024-05-03T10:00:00+00:00", "reason": ""}
        assert with_batch.api("assigned").data == [entry]

    def test_where_they_are(self, with_batch: RunClient) -> None:
        said = with_batch.api("assigned/may").data
        assert (said["n"], said["by"], said["groups"]) == (4, "day", [0, 1, -1, -1])
        assert said["table"]["name"] == self.TABLE["name"]
        assert "path" not in said["table"]
        assert said["thumbnails"] == [True, True, True, False]
        assert said["proposals"] == [[2], [3]]
        assert said["decided"] == [False] * 4
        assert said["verdicts"] == [""] * 4
        assert said["teaches"] == ["older"] * 4
        assert said["table"]["probability"] == [None] * 4
        counts = said["counts"]
        assert counts["periods"] == ["2024-05-01", "2024-05-02"]
        found = {
            (period, group): n
            for period, row in zip(counts["periods"], counts["table"], strict=True)
            for group, n in zip(counts["groups"], row, strict=True)
        }
        assert found[("2024-05-01", 0)] == 1
        assert found[("2024-05-02", 1)] == 1
        assert found[("2024-05-02", -1)] == 2
        assert sum(found.values()) == 4

    def test_what_was_taught_since_counts(self, with_batch: RunClient, folder: Path) -> None:
        """The last image is as the first of the run, which a person calls x."""
        run = open_run(folder)
        vectors = np.concatenate([run.embeddings[[3, 4, 5]], run.embeddings[[0]]])
        table = {**self.TABLE, "cluster": [0, 1, -1, 0], "novelty": [0.1, 0.2, 2.0, 0.1]}
        about = {"at": "2024-06-01"}
        keep(folder, Kept("june", table, (b"",) * 4, about, vectors.astype(np.float16)))
        before = with_batch.api("assigned/june").data
        assert before["groups"] == [0, 1, -1, 0]
        with_batch.edit("move", images=[0, 1, 2], to="new", name="x")
        said = with_batch.api("assigned/june").data
        (new,) = [
            group["id"] for group in with_batch.api("state").data["groups"] if group["name"] == "x"
        ]
        assert said["groups"][3] == new
        assert said["table"]["probability"][3] > 0.5
        # What is no longer of a new kind is no longer proposed as one.
        assert [row for rows in said["proposals"] for row in rows] == [
            row for row, group in enumerate(said["groups"]) if group == -1
        ]
        # Without vectors nothing can be taught about it.
        assert with_batch.api("assigned/may").data["groups"][2:] == [-1, -1]

    def test_they_go_with_their_group(self, with_batch: RunClient) -> None:
        with_batch.edit("merge", groups=[0, 1], into=1)
        assert with_batch.api("assigned/may").data["groups"] == [1, 1, -1, -1]

    def test_thumbnails_and_chart(self, with_batch: RunClient, run: Run) -> None:
        reply = with_batch.get("/r/run/assigned/may/thumb/1.jpg")
        assert reply.body == run.thumbnails[1]
        again = with_batch.get(
            "/r/run/assigned/may/thumb/1.jpg", if_none_match=reply.headers["etag"]
        )
        assert again.status == 304
        for row in (3, 4):
            assert with_batch.get(f"/r/run/assigned/may/thumb/{row}.jpg").status == 404
        with_batch.edit("name", group=0, name="<script>alert(1)</script>")
        chart = with_batch.get("/r/run/assigned/may/chart.svg")
        assert chart.headers["content-type"].startswith("image/svg+xml")
        assert b"<svg" in chart.body
        assert b"<script" not in chart.body

    @pytest.mark.parametrize("name", ["..", "%2e%2e", ".", "may%00", "May", "%2Fetc", "x" * 300])
    def test_names_that_are_none(self, with_batch: RunClient, name: str) -> None:
        assert with_batch.api(f"assigned/{name}").status == 404

    def test_a_damaged_one_is_listed_with_its_reason(
        self, with_batch: RunClient, folder: Path
    ) -> None:
        (folder / "assigned" / "may" / "table.parquet").write_bytes(b"damaged")
        shutil.move(folder / "assigned" / "may", folder / "assigned" / "june")
        [entry] = with_batch.api("assigned").data
        assert (entry["name"], entry["n"]) == ("june", 0)
        assert "damaged" in entry["reason"]
        assert with_batch.api("assigned/june").status == 404


class TestAnswers:
    """To the images of keep_new_images."""

    @pytest.fixture
    def client(self, folder: Path, run: Run, plates: Path) -> RunClient:
        # The first one's file has other bytes than were sorted.
        keep_new_images(folder, run, path=plates / "parts" / run.table["name"][0])
        return RunClient(make_app([folder]))

    def batch(self, client: RunClient) -> Any:
        reply = client.api("assigned/may")
        assert reply.status == 200, reply.body
        return reply.data

    def answer(self, client: RunClient, rows: Any, to: Any, **more: Any) -> Reply:
        body = {"version": client.state()["version"], "rows": rows, "to": to, **more}
        return client.post("/r/run/api/assigned/may/answers", body)

    def test_an_answer_teaches_all_images(self, client: RunClient, folder: Path) -> None:
        before = self.batch(client)
        assert before["teaches"] == ["", "", "", "", "run", "many"]
        assert before["decided"] == [False] * 6
        state = self.answer(client, [0], "new", name="dent").data
        check_state(state, N)
        assert state["undo"] == "Teach a new group dent with 1 new image"
        dent = next(group["id"] for group in state["groups"] if group["name"] == "dent")
        state = self.answer(client, [2], "new", name="streak").data
        streak = next(group["id"] for group in state["groups"] if group["name"] == "streak")
        # Images of the run follow, and so do the other new ones.
        assert state["labels"] == [dent] * 7 + [streak] * 7
        assert state["decided"] == []
        said = self.batch(client)
        assert said["groups"][:5] == [dent, dent, streak, streak, streak]
        assert said["decided"] == [True, False, True, False, False, False]
        assert said["table"]["probability"][0] is None
        assert all(0.5 < said["table"]["probability"][row] <= 1 for row in (1, 3, 4))
        # Undo removes the example with what it taught, and a restart changes nothing.
        again = RunClient(make_app([folder]))
        assert again.state() == client.state()
        client.step("undo")
        client.step("undo")
        assert self.batch(client) == before

    def test_an_answer_is_compared_with_what_was_suggested(
        self, client: RunClient, folder: Path
    ) -> None:
        def answers() -> dict[int | str, tuple[int, int]]:
            found = read_settled(folder).labelling.answers
            return {image: (one.suggested, one.given) for image, one in found.items()}

        self.answer(client, [0], 0)  # nothing is taught yet, so nothing was suggested
        assert answers() == {}
        self.answer(client, [2], 1)
        before = self.batch(client)
        assert before["groups"][:4] == [0, 0, 1, 1]
        sure = [before["table"]["probability"][row] is not None for row in range(4)]
        assert sure == [False, True, False, True]
        self.answer(client, [1], 0)
        first, second = (str(self.digests(folder)[row]) for row in (1, 3))
        assert answers() == {first: (0, 0)}
        self.answer(client, [3, 2], "new", name="rust")  # the other one was decided
        assert {image: one[0] for image, one in answers().items()} == {first: 0, second: 1}
        assert answers()[second][1] == -1

    def digests(self, folder: Path) -> list[str]:
        return list(open_kept(folder, "may").table["sha256"])

    def test_an_answer_is_corrected(self, client: RunClient, folder: Path) -> None:
        self.answer(client, [0, 2], 0)
        self.answer(client, [2], 1)
        examples = read_settled(folder).labelling.examples
        names = {Path(one.name).name: one.group for one in examples}
        assert names == {"dent00.png": 0, "x.png": 1}
        np.testing.assert_array_equal(
            examples[0].vector, np.float32(np.float16(open_run(folder).embeddings[0]))
        )
        self.answer(client, [0], "normal")
        assert self.batch(client)["groups"][0] == client.state()["groups"][-1]["id"]
        self.answer(client, [0, 2], "unsure")
        assert read_settled(folder).labelling.examples == ()
        assert self.batch(client)["decided"] == [False] * 6

    @pytest.mark.parametrize(
        ("rows", "more", "said"),
        [
            ([4], {"to": 0}, "image of the run itself"),
            ([5], {"to": 0}, "first images of a large batch"),
            ([6], {"to": 0}, "0 to 5"),
            ([-1], {"to": 0}, "-1"),
            ([], {"to": 0}, "rows"),
            ("0", {"to": 0}, "rows"),
            ([0.0], {"to": 0}, "rows"),
            ([True], {"to": 0}, "rows"),
            ([0], {"to": 99}, "99"),
            ([0], {"to": "somewhere"}, "somewhere"),
            ([0], {"to": None}, "to"),
            ([0], {"to": True}, "to"),
            ([0], {"to": 0, "name": "dent"}, "dent"),
            ([0], {"to": "new", "name": "a" * 201}, "200"),
            ([0], {"to": "new", "name": "a\x00"}, "control"),
            ([0], {"to": 0, "vector": []}, "vector"),
            ([0], {"to": 0, "author": "a" * 201}, "author"),
        ],
    )
    def test_nonsense(self, client: RunClient, rows: Any, more: Any, said: str) -> None:
        before = client.state()
        reply = self.answer(client, rows, **more)
        assert reply.status == 422, reply.body
        assert said in reply.detail
        assert client.state() == before

    def test_a_batch_of_an_older_version(self, client: RunClient, folder: Path) -> None:
        (folder / "assigned" / "may" / "vectors.npy").unlink()
        again = RunClient(make_app([folder]))
        reply = self.answer(again, [0], 0)
        assert reply.status == 422
        assert reply.detail == (
            "'new0.png' cannot teach: the batch was made by an older version, which kept no "
            "embeddings. Sort the images again with flawsort assign."
        )
        assert set(self.batch(again)["teaches"]) == {"older"}

    def test_conflicts_and_what_is_not_there(self, client: RunClient) -> None:
        client.edit("name", group=0, name="dents")
        body = {"version": 0, "rows": [0], "to": 0}
        reply = client.post("/r/run/api/assigned/may/answers", body)
        assert (reply.status, reply.data["version"]) == (409, 1)
        for name in ("june", "..", "may%00"):
            reply = client.post(f"/r/run/api/assigned/{name}/answers", {**body, "version": 1})
            assert reply.status == 404, name
        assert client.post("/r/none/api/assigned/may/answers", body).status == 404
        assert client.state()["version"] == 1

    def test_only_pages_of_this_server_may_answer(self, client: RunClient) -> None:
        body = {"version": 0, "rows": [0], "to": 0}
        target = "/r/run/api/assigned/may/answers"
        assert client.post(target, body, origin="http://elsewhere.example").status == 403
        assert client.post(target, body, content_type="text/plain").status in (403, 415)
        assert client.state()["version"] == 0

    def test_a_run_that_cannot_be_written(
        self, client: RunClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(EditStore, "writable", property(lambda _: False))
        reply = self.answer(client, [0], 0)
        assert reply.status == 403
        assert "read-only" in reply.detail

    def test_vectors_that_do_not_fit(self, client: RunClient, folder: Path) -> None:
        place = folder / "assigned" / "may" / "vectors.npy"
        np.save(place, np.zeros((9, 4), np.float16))
        reply = RunClient(make_app([folder])).api("assigned/may")
        assert reply.status == 404
        assert "damaged" in reply.detail

    def test_pictures_are_large_where_the_file_is_there(
        self, client: RunClient, folder: Path, run: Run
    ) -> None:
        # The file has other bytes than were sorted, is gone, or never was: the thumbnail.
        for row in (0, 1, 2):
            reply = client.get(f"/r/run/assigned/may/image/{row}.jpg")
            assert reply.body == run.thumbnails[row]
            assert reply.headers["content-type"] == "image/jpeg"
        assert client.get("/r/run/assigned/may/image/6.jpg").status == 404
        assert client.get("/r/run/assigned/june/image/0.jpg").status == 404
        Image.new("RGB", (700, 300), "red").save(folder.parent / "large.png")
        content = (folder.parent / "large.png").read_bytes()
        table = {
            **TestBatches.TABLE,
            "path": [str(folder.parent / "large.png"), "", "", ""],
            "sha256": [hashlib.sha256(content).hexdigest(), *map(digest, "bcd")],
        }
        keep(folder, Kept("june", table, (b"",) * 4, {}))
        reply = client.get("/r/run/assigned/june/image/0.jpg")
        assert reply.status == 200
        assert reply.body.startswith(b"\xff\xd8")
        assert client.get("/r/run/assigned/june/image/1.jpg").status == 404
        again = client.get("/r/run/assigned/june/image/0.jpg", if_none_match=reply.headers["etag"])
        assert again.status == 304


class TestVerdict:
    def decide(self, client: RunClient, folder: Path, n: int) -> None:
        """n dents as flaws and n streaks as normal, the others stay open."""
        client.edit("role", group=client.state()["labels"][7], role="normal")
        client.edit("accept", images=[*range(n), *range(7, 7 + n)])

    def test_nothing_before_there_are_enough_answers(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = RunClient(make_app([folder]))
        self.decide(client, folder, 7)
        said = client.api("verdict").data
        assert said == {"n_flaws": 7, "n_normal": 7, "least": 10, "threshold": None, "costs": []}

    def test_the_curve_and_the_choice(self, folder: Path, run: Run) -> None:
        """With examples from outside there are enough: two more of each, named and normal."""
        n = 8
        like = [0, 1, 2, 3, 7, 8, 9, 10]
        table = {
            **{key: [values[0]] * n for key, values in TestBatches.TABLE.items()},
            "name": [f"new{row}.png" for row in range(n)],
            "sha256": [digest(str(row)) for row in range(n)],
        }
        vectors = np.asarray(run.embeddings[like], np.float16)
        keep(folder, Kept("may", table, (b"",) * n, {}, vectors))
        client = RunClient(make_app([folder]))
        self.decide(client, folder, 7)
        dents = client.state()["labels"][0]
        for rows, to in (([0, 1, 2], dents), ([4, 5, 6], "normal")):
            body = {"version": client.state()["version"], "rows": rows, "to": to}
            assert client.post("/r/run/api/assigned/may/answers", body).status == 200
        said = client.api("verdict").data
        state = read_settled(folder)
        curve = verdict_curve(state.labelling, state.space())
        assert curve is not None
        assert (said["n_flaws"], said["n_normal"], said["threshold"]) == (10, 10, None)
        assert [cost["threshold"] for cost in said["costs"]] == [c.threshold for c in curve.costs]
        assert said["costs"][0]["missed"] == 10
        assert said["costs"][-1]["false_alarms"] == 10
        assert min(cost["missed"] + cost["false_alarms"] for cost in said["costs"]) <= 2
        assert set(client.api("assigned/may").data["verdicts"]) == {""}
        best = min(said["costs"], key=lambda cost: cost["missed"] + cost["false_alarms"])
        client.edit("verdict", threshold=best["threshold"])
        assert client.api("verdict").data["threshold"] == best["threshold"]
        verdicts = client.api("assigned/may").data["verdicts"]
        assert verdicts[:3] == ["not OK"] * 3  # as decided
        assert verdicts[4:7] == ["OK"] * 3
        assert (verdicts[3], verdicts[7]) == ("not OK", "OK")
        client.edit("verdict", threshold=None)
        assert set(client.api("assigned/may").data["verdicts"]) == {""}

    @pytest.mark.parametrize("threshold", [-0.1, 1.1, "0.5", True, [0.5]])
    def test_thresholds_that_are_none(self, looker: RunClient, threshold: Any) -> None:
        reply = looker.edit("verdict", threshold=threshold)
        assert reply.status == 422
        assert "threshold" in reply.detail

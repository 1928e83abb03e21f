"""The service in this process: what it answers, and whom."""

from __future__ import annotations

import base64
import io
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort import AnomalyClusterer, View, open_run
from flawsort.core.errors import RunError
from flawsort.daily.answers import MOST_IMAGES
from flawsort.daily.current import CurrentRun
from flawsort.daily.sorter import Sorter
from flawsort.labels.session import Session
from flawsort.runs.folder import EDITS
from flawsort.serving.access import HEADERS
from helpers.picture_files import png16
from helpers.plates import LONG, SIDE, Cli, plate, settings, write_plates
from helpers.review_client import copied
from helpers.service import ServiceClient, assigned, batch_of, check_same, service_on

TOKEN = "0123456789abcdef-token"


def file_of(kind: str, number: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(plate(kind, number)).save(content, "PNG")
    return content.getvalue()


@pytest.fixture(scope="module")
def client(saved: Path) -> Iterator[ServiceClient]:
    with service_on(saved) as found:
        yield found


@pytest.fixture(scope="module")
def without_normals(plates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("without") / "run"
    AnomalyClusterer(n_clusters=2, **settings()).fit(plates / "parts").save(folder, report=False)
    return folder


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """New images: dents, streaks, good ones and rings, and a copy."""
    folder = tmp_path_factory.mktemp("fresh") / "new"
    write_plates(folder, ["dent"] * 20 + ["streak"] * 3 + ["good"] * 3 + ["ring"] * 3)
    found = sorted(folder.iterdir())[14:]
    shutil.copy(found[0], folder / "copy.png")
    return [*found, folder / "copy.png"]


def teach(run: Path) -> None:
    """What a person says in the review, and a threshold."""
    said = {f"dent0{number}.png": "dent" for number in range(3)}
    said |= {f"streak{number:02d}.png": "streak" for number in range(7, 10)}
    open_run(run).teach(said)


class TestAnswers:
    @pytest.mark.parametrize("taught", [False, True])
    @pytest.mark.parametrize("normals", [True, False])
    def test_bit_for_bit_what_assign_says(
        self,
        saved: Path,
        without_normals: Path,
        fresh: list[Path],
        cli: Cli,
        tmp_path: Path,
        taught: bool,
        normals: bool,
    ) -> None:
        run = copied(saved if normals else without_normals, tmp_path)
        if taught:
            teach(run)
            with Session(run) as session:
                session.edit("verdict", {"threshold": 0.4}, session.version)
        with service_on(run) as client:
            together = client.batch([one.read_bytes() for one in fresh]).data
            rows = assigned(cli, run, fresh)
            assert [one["index"] for one in together["images"]] == list(range(len(fresh)))
            for said, row in zip(together["images"], rows, strict=True):
                check_same(said, row)
            for source in fresh[::4]:
                (row,) = assigned(cli, run, [source])
                check_same(client.image(source.read_bytes()).data, row)
        if taught:
            assert "not OK" in {one["verdict"] for one in together["images"]} <= {"OK", "not OK"}
            assert {"dent", "streak"} <= {one["group"] for one in together["images"]}
            assert together["version"] > 0

    def test_an_image_of_the_run_has_its_regions(
        self, client: ServiceClient, saved: Path, plates: Path
    ) -> None:
        run = open_run(saved)
        for row in (0, 1, 8):
            content = (plates / "parts" / run.names[row]).read_bytes()
            said = client.image(content).data["regions"]
            own = np.flatnonzero(run.region_rows == row)
            assert len(said) == len(own) > 0
            for region, place in zip(said, own.tolist(), strict=True):
                for name in ("x", "y", "width", "height"):
                    assert region[name] == run.regions[name][place] * SIDE
                for name in ("cluster", "confidence", "score", "heat"):
                    assert region[name] == run.regions[name][place]

    def test_boxes_are_in_pixels_of_the_upright_photo(self, client: ServiceClient) -> None:
        """A photo that its header turns, and that is larger than what the run looks at."""
        picture = np.full((240, 480, 3), 120, np.uint8)
        picture[150:190, 60:120] = 10
        content = io.BytesIO()
        exif = Image.Exif()
        exif[0x0112] = 6  # turned to the right to be upright: 240 wide and 480 high
        Image.fromarray(picture).save(content, "JPEG", exif=exif, quality=95)
        said = client.image(content.getvalue(), content_type="image/jpeg").data
        assert (said["photo_width"], said["photo_height"]) == (240, 480)
        # The dark square lies there in the upright photo.
        middle = (240 - 170, 90)
        for box in (said["regions"][0], said["place"]):
            assert box["x"] <= middle[0] <= box["x"] + box["width"]
            assert box["y"] <= middle[1] <= box["y"] + box["height"]
            assert box["x"] + box["width"] <= 240

    def test_kinds_of_regions_follow_the_review(self, saved: Path, tmp_path: Path) -> None:
        run = copied(saved, tmp_path)
        teach(run)
        both = plate("dent", 3)
        both[:, 50:53] = (250, 60, 40)
        content = io.BytesIO()
        Image.fromarray(both).save(content, "PNG")
        with service_on(run) as client:
            said = client.image(content.getvalue()).data
        assert {"dent", "streak"} >= {one["kind"] for one in said["regions"]} - {None}
        assert said["regions"][0]["kind"] in ("dent", "streak")

    def test_the_heat_map_only_if_asked_for(self, client: ServiceClient, saved: Path) -> None:
        content = file_of("dent", 30)
        assert client.image(content).data["heat_map"] is None
        said = client.image(content, "?heat_map=true").data
        heat = said["heat_map"]
        rows, columns = open_run(saved).grid
        with Image.open(io.BytesIO(base64.b64decode(heat["png"]))) as picture:
            assert (picture.format, picture.mode) == ("PNG", "RGBA")
            assert picture.size == (8 * columns, 8 * rows)
            opacity = np.asarray(picture)[..., 3]
        assert [heat[name] for name in ("x", "y", "width", "height")] == [0, 0, SIDE, SIDE]
        # It is hottest in the most unusual place.
        down, across = np.unravel_index(opacity.argmax(), opacity.shape)
        place = said["regions"][0]
        at = across / opacity.shape[1] * SIDE, down / opacity.shape[0] * SIDE
        assert place["x"] <= at[0] <= place["x"] + place["width"]
        assert place["y"] <= at[1] <= place["y"] + place["height"]
        assert client.batch([content], heat_map=True).data["images"][0]["heat_map"] == heat

    def test_the_heat_map_of_a_padded_photo_reaches_beyond_it(
        self, plates: Path, tmp_path: Path
    ) -> None:
        model = AnomalyClusterer(n_clusters=2, view=View(fit="pad"), **settings())
        model.fit(plates / "parts").save(tmp_path / "run", report=False)
        picture = Image.fromarray(plate("dent", 30)).resize((128, 64))
        content = io.BytesIO()
        picture.save(content, "PNG")
        with service_on(tmp_path / "run") as client:
            heat = client.image(content.getvalue(), "?heat_map=1").data["heat_map"]
        assert [heat[name] for name in ("x", "y", "width", "height")] == [0, -32, 128, 128]

    def test_names_stay(self, client: ServiceClient) -> None:
        name = "a/\u00fc b.png"
        assert client.image(file_of("dent", 31), "?name=a/%C3%BC%20b.png").data["name"] == name
        sent = batch_of([file_of("dent", 31)] * 2)
        sent["images"][1]["name"] = name
        said = client.post("/images", sent).data["images"]
        assert [one["name"] for one in said] == ["0", name]

    def test_what_cannot_be_used_is_set_aside(self, client: ServiceClient) -> None:
        whole = file_of("dent", 32)
        sent = [b"no image", whole, b"", whole[:200], png16(np.zeros((8, 8, 1), np.uint16)), whole]
        said = client.batch(sent).data
        assert [one["index"] for one in said["images"]] == [1, 5]
        assert [one["index"] for one in said["set_aside"]] == [0, 2, 3, 4]
        assert "not an image" in said["set_aside"][0]["reason"]
        assert all(one["reason"] for one in said["set_aside"])
        for content in (sent[0], sent[2], sent[3], sent[4]):
            reply = client.image(content)
            assert reply.status == 422
            assert reply.detail.startswith("The image cannot be used: ")
        assert client.batch([b"x"]).data["images"] == []

    def test_a_photo_of_too_many_pixels(self, client: ServiceClient) -> None:
        content = io.BytesIO()
        Image.new("1", (30_000, 30_000)).save(content, "PNG")
        reply = client.image(content.getvalue())
        assert reply.status == 422
        assert "pixels" in reply.detail

    def test_an_image_at_which_the_program_fails_stops_no_other(
        self, client: ServiceClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain, bad = Sorter.sort, file_of("ring", 40)

        def failing(self: Sorter, images: object, **options: object) -> object:
            if any(Path(str(one)).read_bytes() == bad for one in images.sources):  # type: ignore[attr-defined]
                raise ZeroDivisionError("by zero")
            return plain(self, images, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Sorter, "sort", failing)
        said = client.batch([file_of("dent", 41), bad, file_of("dent", 42)]).data
        assert [one["index"] for one in said["images"]] == [0, 2]
        assert said["set_aside"][0]["index"] == 1
        assert "This is a bug in flawsort" in said["set_aside"][0]["reason"]
        assert client.image(bad).status == 422


class TestRequests:
    @pytest.mark.parametrize(
        ("sent", "why"),
        [
            (b"", "JSON"), (b"[]", "object"), (b"{}", "images"), (b"\xff", ""),
            (b'{"images": []}', "at least 1"), (b'{"images": [{}]}', "content"),
            (b'{"images": [{"content": 3}]}', "string"), (b"[" * 100_000, ""),
            (b'{"images": [{"content": "####"}]}', "must be base64"),
            (b'{"images": [{"content": "aGVsbG8="}], "heat": true}', "heat"),
        ],
    )  # fmt: skip
    def test_batches_that_are_none(self, client: ServiceClient, sent: bytes, why: str) -> None:
        reply = client.post("/images", sent)
        assert reply.status == 422
        assert why in reply.detail

    def test_no_more_images_than_a_batch_has(self, client: ServiceClient) -> None:
        reply = client.batch([b"x"] * (MOST_IMAGES + 1))
        assert reply.status == 422
        assert f"at most {MOST_IMAGES}" in reply.detail

    def test_each_kind_has_its_place(self, client: ServiceClient) -> None:
        assert client.post("/image", {}).status == 415
        assert client.post("/images", b"x", content_type="image/png").status == 415
        assert client.image(b"x", content_type="text/plain").status == 415
        assert client.image(b"x", "?heat_map=perhaps").status == 422
        assert client.get("/image").status == 405
        assert client.get("/none").status == 404

    def test_a_page_of_another_site_reaches_nothing(self, client: ServiceClient) -> None:
        content = file_of("dent", 1)
        assert client.image(content, origin="http://evil.example").status == 403
        assert client.image(content, sec_fetch_site="cross-site").status == 403
        assert client.image(content, host="evil.example").status == 400

    def test_a_body_that_is_too_large(self, saved: Path) -> None:
        with service_on(saved, largest_body=1000) as client:
            assert client.image(b"x" * 1001).status == 413
            assert client.image(b"x" * 1001, content_length="").status == 413
            assert client.image(b"x" * 1000).status == 422

    def test_more_bytes_than_all_requests_may_hold(
        self, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flawsort.daily.service.HELD_BYTES", 500)
        with service_on(saved, largest_body=200) as client:
            app = client.app
            app.state.desk.bytes._held = 550  # type: ignore[attr-defined]
            reply = client.image(b"x" * 100)
            assert (reply.status, reply.headers["retry-after"]) == (429, "1")
            app.state.desk.bytes._held = 0  # type: ignore[attr-defined]
            assert client.image(b"x" * 100).status == 422

    def test_more_requests_than_may_wait(
        self, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on = threading.Event(), threading.Event()
        plain = CurrentRun.answer

        def slowly(self: CurrentRun, *given: object, **options: object) -> object:
            begun.set()
            go_on.wait(LONG)
            return plain(self, *given, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(CurrentRun, "answer", slowly)
        content, replies = file_of("dent", 33), []
        with service_on(saved, most_waiting=1) as client:
            thread = threading.Thread(target=lambda: replies.append(client.image(content)))
            thread.start()
            assert begun.wait(LONG)
            refused = client.image(content)
            assert (refused.status, refused.headers["retry-after"]) == (429, "1")
            assert client.get("/health").status == 200
            go_on.set()
            thread.join()
            assert [one.status for one in replies] == [200]
            assert client.image(content).status == 200

    def test_memory_that_is_not_there(
        self, client: ServiceClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none(*_: object, **__: object) -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr("flawsort.daily.sorter.Sorter.sort", none)
            assert client.image(file_of("dent", 1)).status == 503
        assert client.image(file_of("dent", 1)).status == 200


class TestToken:
    def test_everything_but_the_health_needs_it(self, saved: Path) -> None:
        with service_on(saved, TOKEN) as client:
            for target in ("/", "/metrics", "/openapi.json", "/none"):
                assert client.get(target).status == 401
            for given in ("", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}"):
                reply = client.image(file_of("dent", 1), authorization=given)
                assert reply.status == 401
                assert "A token is needed" in reply.detail
            assert client.get("/health").data == {"status": "ok"}
            assert client.get("/health", host="evil.example").status == 400
            client.headers = {"authorization": f"Bearer {TOKEN}"}
            assert client.image(file_of("dent", 1)).status == 200
            text = client.get("/metrics").body.decode()
            assert 'flawsort_errors_total{reason="token"} 8' in text

    def test_headers_on_every_answer(self, client: ServiceClient) -> None:
        for reply in (client.get("/"), client.get("/none"), client.image(b"x")):
            assert {name: reply.headers[name] for name in HEADERS} == HEADERS
            assert reply.headers["cache-control"] == "no-store"


class TestTeaching:
    def test_what_people_teach_counts_at_once(self, saved: Path, tmp_path: Path) -> None:
        run = copied(saved, tmp_path)
        with service_on(run) as client:
            before = client.image(file_of("dent", 34)).data
            assert (before["group"][:6], before["probability"]) == ("Group ", None)
            assert client.get("/").data["taught"] == 0
            teach(run)
            after = client.image(file_of("dent", 34)).data
            assert after["group"] == "dent"
            assert after["probability"] > 0.5
            about = client.get("/").data
            assert about["taught"] == 2
            assert {"dent", "streak"} <= {one["name"] for one in about["groups"]}
            # The model was not opened again for it.
            assert "flawsort_run_reopened 0" in client.get("/metrics").body.decode()

    def test_a_run_that_is_replaced(
        self, saved: Path, without_normals: Path, fresh: list[Path], cli: Cli, tmp_path: Path
    ) -> None:
        run = copied(saved, tmp_path)
        with service_on(run) as client:
            assert client.image(fresh[0].read_bytes()).status == 200
            shutil.rmtree(run)
            shutil.copytree(without_normals, run)
            (row,) = assigned(cli, run, fresh[:1])
            check_same(client.image(fresh[0].read_bytes()).data, row)
            assert "flawsort_run_reopened 1" in client.get("/metrics").body.decode()

    def test_a_run_that_is_gone_or_damaged_answers_as_before(
        self, saved: Path, tmp_path: Path
    ) -> None:
        run, away = copied(saved, tmp_path), tmp_path / "away"
        content = file_of("dent", 35)
        with service_on(run) as client:
            before = client.image(content).data
            run.rename(away)
            assert client.image(content).data == before
            assert client.get("/").data["problem"]
            run.mkdir()
            (run / "manifest.json").write_text("{")
            assert client.image(content).data == before
            assert client.get("/health").status == 200
            shutil.rmtree(run)
            away.rename(run)
            client.app.state.desk.run._failed_at = -1e9  # type: ignore[attr-defined]
            assert client.image(content).data == before
            assert client.get("/").data["problem"] is None

    def test_edits_that_are_damaged(self, saved: Path, tmp_path: Path) -> None:
        run = copied(saved, tmp_path)
        teach(run)
        content = file_of("dent", 36)
        with service_on(run) as client:
            before = client.image(content).data
            (run / EDITS).unlink()
            (run / EDITS).write_bytes(b"no database" * 100)
            assert client.image(content).data == before
            assert client.get("/").data["problem"]

    def test_a_run_that_cannot_be_opened_is_refused_at_the_start(self, tmp_path: Path) -> None:
        with pytest.raises(RunError), service_on(tmp_path):
            pass


def test_it_documents_itself(client: ServiceClient) -> None:
    described = client.get("/openapi.json").data
    assert set(described["paths"]) == {"/", "/health", "/metrics", "/image", "/images"}
    image = described["paths"]["/image"]["post"]
    assert "image/png" in image["requestBody"]["content"]
    assert {"name", "heat_map"} == {one["name"] for one in image["parameters"]}
    schemas = described["components"]["schemas"]
    assert set(client.image(file_of("dent", 1)).data) == set(schemas["ImageBody"]["properties"])
    batch = described["paths"]["/images"]["post"]["requestBody"]["content"]["application/json"]
    assert json.dumps(batch).count("content")

"""Runs that somebody forged, with valid hashes, beside one that is right: each costs itself one
sentence, and the server and the other run nothing."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import sqlite3
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort import OptionError, Run, RunError, open_run
from flawsort.core import remote
from flawsort.core.records import RemoteFile
from flawsort.core.tables import read_parquet
from flawsort.labels.store import EditStore
from flawsort.outputs.exports import FORMATS
from flawsort.review import library
from flawsort.review.app import make_app
from flawsort.runs.folder import EDITS, MANIFEST
from flawsort.runs.tables import IMAGES, REGIONS
from helpers.plates import LONG
from helpers.review_client import RunClient, closing_libraries, copied, keep_new_images

pytestmark = pytest.mark.skipif(os.name != "posix", reason="makes pipes and links to devices")
READING = (
    "/r/run/", "/r/run/api/run", "/r/run/api/state", "/r/run/api/queue", "/r/run/api/accuracy",
    "/r/run/api/audit", "/r/run/api/verdict", "/r/run/api/similar/0", "/r/run/api/split/0",
    "/r/run/api/sizes", "/r/run/api/lots?by=day", "/r/run/api/lots?by=folder",
    "/r/run/thumb/0.jpg", "/r/run/image/0.jpg", "/r/run/heat/0.png", "/r/run/api/assigned",
    "/r/run/full/0.jpg", "/r/run/flaw/0.jpg", "/r/run/close/0.jpg", "/r/run/match/0.jpg",
    "/r/run/flaw-heat/0.png", "/r/run/api/place/0", "/r/run/api/history",
    "/r/run/api/assigned/may", "/r/run/assigned/may/chart.svg", "/r/run/assigned/may/thumb/0.jpg",
    "/r/run/assigned/may/image/0.jpg", "/r/run/export/csv", "/r/run/export/coco",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _let_go() -> Iterator[None]:
    with closing_libraries():
        yield


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A run to forge, with new images, and one beside it that is right."""
    copied(saved, tmp_path / "runs", "right")
    made = copied(saved, tmp_path / "runs")
    keep_new_images(made, open_run(made))
    return made


def forge(folder: Path, name: str, content: bytes) -> None:
    """Replace a file, with a manifest that says that it is right."""
    (folder / name).write_bytes(content)
    change(folder, lambda found: found["files"].update({name: sha256(content)}))


def change(folder: Path, how: Callable[[Any], object]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    how(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def saved_array(values: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def column(folder: Path, name: str, values: Callable[[list[Any]], list[Any]]) -> None:
    """Replace a column of images, or of regions: "regions.mask"."""
    of, _, name = name.rpartition(".")
    file, columns = ("regions", REGIONS) if of else ("images", IMAGES)
    table = read_parquet((folder / f"{file}.parquet").read_bytes())
    table[name] = values(table[name])
    forge(folder, f"{file}.parquet", _parquet(columns, table, name))


def _parquet(columns: Any, table: Any, changed: str) -> bytes:
    """Of a table whose changed column may have another type than declared."""
    import arro3.core as arrow
    from arro3.io import write_parquet

    whole = read_parquet(columns.parquet({**table, changed: [None] * len(table[changed])}))
    assert whole.keys() == table.keys()
    types = {str: "string", int: "int64", float: "float64", bool: "bool"}
    made = {}
    for name, values in table.items():
        first = next((value for value in values if value is not None), "")
        kind = getattr(arrow.DataType, types[type(first)])()
        made[name] = arrow.Array(values, type=kind)
    content = io.BytesIO()
    write_parquet(arrow.Table.from_pydict(made), content)
    return content.getvalue()


def in_manifest(*path: Any, value: Any) -> Callable[[Path], None]:
    def how(manifest: Any) -> None:
        *above, last = path
        for key in above:
            manifest = manifest[key]
        manifest[last] = value

    return lambda folder: change(folder, how)


def replaced_by(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def how(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return how


def array(name: str, make: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: forge(folder, name, saved_array(make(np.load(folder / name))))


def columns_of(name: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: column(folder, name, lambda values: [value] * len(values))


def first_of(name: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: column(folder, name, lambda values: [value, *values[1:]])


def endless_view(place: Path) -> None:
    with sqlite3.connect(place) as made:
        made.executescript(
            "PRAGMA application_id = 0x666C7372; PRAGMA user_version = 1;"
            "CREATE VIEW edits AS WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 "
            "FROM n) SELECT seq, '' AS at, '' AS author, 'cut' AS kind, '{}' AS payload FROM n;"
        )
    made.close()


def packed_zeros(folder: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", saved_array(np.zeros(10**7)))
    forge(folder, "views.npz", content.getvalue())


def panicking_table(folder: Path) -> None:
    """Damage at which the reader of parquet panics: among the bytes of the footer."""
    content = bytearray((folder / "images.parquet").read_bytes())
    for place in range(len(content) - 400, len(content) - 8, 3):
        content[place] ^= 0x55
    forge(folder, "images.parquet", bytes(content))


def several_edits(folder: Path) -> None:
    """A payload that is nested as deeply as it is long."""
    with EditStore(folder / EDITS) as store, store.held():
        pass
    with sqlite3.connect(folder / EDITS) as made:
        made.execute(
            "INSERT INTO edits (at, author, kind, payload) VALUES ('', '', 'cut', ?)",
            ("[" * 200_000,),
        )
    made.close()


def sparse(name: str) -> Callable[[Path], None]:
    """A file of nothing that is large and takes no room."""

    def make(place: Path) -> None:
        with place.open("wb") as file:
            file.truncate(2**33)

    return replaced_by(name, make)


def sparse_array(folder: Path) -> None:
    """One that is as large as it says, in a run that says it has 14 images."""
    header = io.BytesIO()
    shape = (2**27, 8)
    np.lib.format.write_array_header_1_0(
        header, {"shape": shape, "fortran_order": False, "descr": "<f8"}
    )
    with (folder / "scores.npy").open("wb") as file:
        file.write(header.getvalue())
        file.truncate(file.tell() + 8 * 2**30)


def millions_of_rows(folder: Path) -> None:
    """A few kilobytes."""
    table = read_parquet((folder / "images.parquet").read_bytes())
    many = {name: values[:1] * 10**6 for name, values in table.items()}
    forge(folder, "images.parquet", _parquet(IMAGES, many, "name"))


def long_cells(folder: Path) -> None:
    """As many rows as there should be, equal and of megabytes each."""
    table = read_parquet((folder / "images.parquet").read_bytes())
    n = len(table["name"])
    forge(folder, "images.parquet", _parquet(IMAGES, {**table, "name": ["x" * 2**22] * n}, "name"))


DAMAGED = {
    "a sparse manifest": sparse(MANIFEST),
    "sparse scores": sparse("scores.npy"),
    "sparse scores that say so": sparse_array,
    "sparse pictures": sparse("thumbnails.bin"),
    "sparse findings": sparse("health.json"),
    "millions of rows": millions_of_rows,
    "long cells": long_cells,
    "a sparse table": sparse("images.parquet"),
    "brackets": lambda folder: (folder / MANIFEST).write_text("[" * 200_000),
    "a list": lambda folder: (folder / MANIFEST).write_text("[]"),
    "a pipe as manifest": replaced_by(MANIFEST, os.mkfifo),
    "a pipe as scores": replaced_by("scores.npy", os.mkfifo),
    "a pipe as a backup": lambda folder: (
        os.mkfifo(folder / ".scores.npy.kept-000000-1-1"),
        (folder / "scores.npy").write_bytes(b""),
    ),
    "a device": replaced_by("scores.npy", lambda place: place.symlink_to("/dev/zero")),
    "a pipe as edits": replaced_by(EDITS, os.mkfifo),
    "edits without end": replaced_by(EDITS, endless_view),
    "nested edits": several_edits,
    "a billion clusters": in_manifest("clusters", "n_clusters", value=10**9),
    "infinite clusters": in_manifest("clusters", "n_clusters", value=float("inf")),
    "digits": in_manifest("n_images", value=10**400),
    "no clusters": in_manifest("clusters", value=None),
    "files that are none": in_manifest("files", value=7),
    "a hash that is none": in_manifest("files", "scores.npy", value=["x"]),
    "a version that is none": in_manifest("format", "version", value={"a": []}),
    "a grid that is none": in_manifest("grid", value=[-1, -64]),
    "a huge input": in_manifest("backbone", "input_size", value=[10**6, 10**6]),
    "a million tiles": in_manifest("view", "tiles", value=[1000, 1000]),
    "a view that is none": in_manifest("view", value=[]),
    "heat without end": in_manifest("heat", "high", value=float("nan")),
    "a panic": panicking_table,
    "no table": lambda folder: forge(folder, "images.parquet", b"PAR1" + bytes(9000) + b"PAR1"),
    "zeros": packed_zeros,
    "names that are numbers": lambda folder: column(folder, "name", lambda v: list(range(len(v)))),
    "clusters that are text": columns_of("cluster", "0"),
    "no cluster": columns_of("cluster", None),
    "a cluster far away": first_of("cluster", 2**40),
    "a cluster below": first_of("cluster", -5),
    "kinds of nothing": first_of("kinds", "0;x"),
    "kinds far away": first_of("kinds", "0;99999999999999999999999"),
    "typicality that is text": columns_of("typicality", "x"),
    "a mask without end": first_of("regions.mask", "0-4000000"),
    "a mask of nothing": first_of("regions.mask", "x"),
    "a region of nothing": first_of("regions.name", "nobody.png"),
    "a region far away": first_of("regions.cluster", 10**12),
    "a tree of itself": array("linkage.npy", np.zeros_like),
    "a tree of nothing": array("linkage.npy", lambda old: old * np.nan),
    "a tree far away": array("linkage.npy", lambda old: old + 1e12),
    "embeddings of nothing": array("embeddings.npy", lambda old: old * np.nan),
    "embeddings that are text": array("embeddings.npy", lambda old: old.astype("U8")),
    "complex scores": array("scores.npy", lambda old: old.astype(complex)),
    "a map of nothing": array("layout.npy", lambda old: old + np.inf),
    "pictures all over": array("thumbnails.npy", lambda old: np.resize([10**9, 0], len(old))),
    "pictures that are none": array("thumbnails.npy", lambda old: old + 0.5),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_run(folder: Path, name: str) -> None:
    DAMAGED[name](folder)
    told: list[Any] = []
    look = threading.Thread(target=lambda: told.append(list(_asked(folder))), daemon=True)
    look.start()
    look.join(LONG)
    assert told, "it hangs"
    for target, reply in told[0]:
        assert reply.status < 500, (target, reply)
        if reply.status != 200:
            text = reply.body.decode()
            assert len(text) < 2000, text
            assert "Traceback" not in text
    with pytest.raises(RunError) as error:
        open_alone(folder)
    assert str(error.value).count("\n") == 0
    assert 20 < len(str(error.value)) < 1000


def open_alone(folder: Path) -> None:
    make_app([folder]).state.library.get("run")


def _asked(folder: Path, more: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """All answers about the runs of a folder; those of the other run are right."""
    client = RunClient(make_app([folder.parent]))
    for target in (*READING, *more):
        yield target, client.get(target)
    listed = client.get("/api/runs").data
    assert {entry["name"] for entry in listed} >= {"right"}
    for what in ("run", "state", "queue"):
        assert client.get(f"/r/right/api/{what}").status == 200
    assert client.get("/r/right/image/0.jpg").status == 200


def small_jpeg(size: tuple[int, int] = (8, 8)) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", size).save(content, "JPEG")
    return content.getvalue()


def large_jpeg() -> bytes:
    """A small file that says that it is 60,000 pixels high and wide."""
    content = small_jpeg()
    sides = (8).to_bytes(2, "big") * 2
    return content.replace(sides, (60_000).to_bytes(2, "big") * 2, 1)


def large_png() -> bytes:
    content = io.BytesIO()
    Image.new("1", (14_000, 14_000)).save(content, "PNG")
    return content.getvalue()


PICTURES = {
    "garbage": b"not a picture",
    "a page": b"<script>alert(1)</script>",
    "a bomb": large_png(),
    "a large one": large_jpeg(),
    "half of one": small_jpeg((64, 64))[:-40],
    "text before the end": small_jpeg()[:30] + b"x" * 300,
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_that_are_none(folder: Path, name: str) -> None:
    for file in ("thumbnails", "close-ups", "matches"):
        n = len(np.load(folder / f"{file}.npy"))
        forge(folder, f"{file}.bin", PICTURES[name] * n)
        forge(folder, f"{file}.npy", saved_array(np.cumsum([len(PICTURES[name])] * n)))
    more = [f"/r/run/export/{one}" for one in FORMATS if "pdf" not in one]
    for target, reply in _asked(folder, more):
        assert reply.status < 500, (target, reply)


class TestKnownReasons:
    """What is known to be damaged is not read again, until something there changes."""

    @pytest.fixture
    def read(self, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        seen: list[Path] = []
        real = library.open_run

        def noted(place: Path, **given: Any) -> Any:
            seen.append(place)
            return real(place, **given)

        monkeypatch.setattr(library, "open_run", noted)
        return seen

    def test_it_is_read_once(self, folder: Path, read: list[Path]) -> None:
        whole = (folder / "scores.npy").read_bytes()
        forge(folder, "scores.npy", saved_array(np.zeros(3)))
        client = RunClient(make_app([folder.parent]))
        replies = [client.get(f"/r/run/api/{what}") for what in ("run", "state", "queue")]
        assert {one.status for one in replies} == {replies[0].status}
        assert replies[0].status != 200
        assert len({one.detail for one in replies}) == 1
        assert len(read) == 1
        forge(folder, "scores.npy", whole)
        assert client.get("/r/run/api/run").status == 200

    def test_another_file_is_mended(self, folder: Path, read: list[Path]) -> None:
        """The manifest stays as it was."""
        (folder / EDITS).write_text("these are not edits" * 99)
        client = RunClient(make_app([folder.parent]))
        assert [client.get("/r/run/api/run").status == 200 for _ in range(2)] == [False, False]
        assert len(read) == 1
        (folder / EDITS).unlink()
        assert client.get("/r/run/api/run").status == 200

    @pytest.mark.parametrize("cause", [MemoryError(), OSError(errno.EMFILE, "too many files")])
    def test_what_may_pass_is_tried_again(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, cause: Exception
    ) -> None:
        client = RunClient(make_app([folder.parent]))
        with monkeypatch.context() as busy:

            def fail(*_: Any, **__: Any) -> Any:
                raise RunError("busy") from cause

            busy.setattr(library, "open_run", fail)
            assert client.get("/r/run/api/run").status != 200
        assert client.get("/r/run/api/run").status == 200


BATCHES = {
    "a pipe": lambda batch: replaced_by("table.parquet", os.mkfifo)(batch),
    "a pipe that tells": lambda batch: replaced_by("about.json", os.mkfifo)(batch),
    "brackets": lambda batch: (batch / "about.json").write_text("[" * 200_000),
    "no table": lambda batch: (batch / "table.parquet").write_bytes(b"PAR1" * 40),
    "vectors of nothing": array("vectors.npy", lambda old: old * np.nan),
}


@pytest.mark.parametrize("name", [name for name in BATCHES])
def test_a_damaged_batch(folder: Path, name: str) -> None:
    batch = folder / "assigned/may"
    if name == "vectors of nothing":
        np.save(batch / "vectors.npy", np.load(batch / "vectors.npy") * np.nan)
    else:
        BATCHES[name](batch)
    told: list[Any] = []
    look = threading.Thread(target=lambda: told.append(list(_asked(folder))), daemon=True)
    look.start()
    look.join(LONG)
    assert told, "it hangs"
    assert all(reply.status < 500 for _, reply in told[0]), told[0]
    shown = {target: reply.status for target, reply in told[0]}
    assert shown["/r/run/api/state"] == shown["/r/run/image/0.jpg"] == 200


def test_random_damage_with_right_hashes(saved: Path, tmp_path: Path) -> None:
    """Bytes of any file changed at random, which no check of a hash can show."""
    rng = np.random.default_rng(0)
    names = sorted(json.loads((saved / MANIFEST).read_text())["files"])
    made = copied(saved, tmp_path)
    for _ in range(60):
        name = names[rng.integers(len(names))]
        content = bytearray((saved / name).read_bytes())
        for place in rng.integers(0, len(content), 4) if content else []:
            content[place] = rng.integers(256)
        forge(made, name, bytes(content))
        try:
            client = RunClient(make_app([made]))
        except RunError:
            pass
        else:
            for target in READING[:8]:
                reply = client.get(target)
                assert reply.status < 500, (name, target, reply)
        shutil.copyfile(saved / name, made / name)
        shutil.copyfile(saved / MANIFEST, made / MANIFEST)


URLS = (
    "https://evil.example/collect/7.png",
    "file:///dev/zero",
    "s3://bucket/x/../../secret/7.png",
    "memory://a::https://evil.example/7",
)


class TestUrls:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The URLs that are opened."""
        seen: list[str] = []

        def refuse(url: str) -> Any:
            seen.append(url)
            raise OSError("no network here")

        monkeypatch.setattr(remote, "file_system", refuse)
        return seen

    @pytest.mark.parametrize("url", URLS)
    def test_none_is_fetched(self, folder: Path, asked: list[str], url: str) -> None:
        columns_of("path", url)(folder)
        change(folder, lambda found: found["inputs"]["normals"][0].update(path=url))
        shutil.rmtree(folder / "assigned")
        keep_new_images(folder, open_run(folder), path=url)  # type: ignore[arg-type]
        forge(folder, "thumbnails.npy", saved_array(np.zeros(14, np.int64)))
        client = RunClient(make_app([folder.parent]))
        replies = {target: client.get(target) for target in READING}
        assert all(reply.status < 500 for reply in replies.values()), replies
        assert "only --fetch allows that" in replies["/r/run/image/0.jpg"].detail
        for format in FORMATS:
            assert client.get(f"/r/run/export/{format}").status < 500
        open_run(folder).model()
        assert asked == []

    def test_one_that_was_asked_for(self, folder: Path, asked: list[str]) -> None:
        urls = ["s3://bucket/parts/1.png", "s3://bucket/parts-of-others/1.png",
                "s3://bucket/parts/../1.png", *["s3://other/1.png"] * 11]  # fmt: skip
        column(folder, "path", lambda values: urls)
        run = open_run(folder, fetch=["s3://bucket/parts"])
        sources = [run.source(row) for row in range(14)]
        allowed = [one.asked for one in sources if isinstance(one, RemoteFile)]
        assert allowed == [True, *[False] * 13]
        for one in sources[:3]:
            with pytest.raises(OSError, match=r"no network|only --fetch"):
                one.read_bytes()
            with pytest.raises(OSError, match=r"no network|only --fetch"):
                one.open()  # type: ignore[call-overload]
        assert asked == ["s3://bucket/parts/1.png"] * 2
        client = RunClient(make_app([folder.parent], fetch=["s3://bucket/parts/"]))
        assert "no network" in client.get("/r/run/image/0.jpg").detail
        assert "only --fetch" in client.get("/r/run/image/1.jpg").detail

    def test_the_beginning_must_be_a_url(self, folder: Path) -> None:
        with pytest.raises(OptionError, match=r"^fetch must be the beginning of a URL"):
            open_run(folder, fetch=["bucket/parts"])

    def test_images_that_were_clustered_here_were_asked_for(self, run: Run) -> None:
        assert run.fetch == ()


@pytest.fixture(scope="module")
def run(saved: Path) -> Run:
    return open_run(saved)

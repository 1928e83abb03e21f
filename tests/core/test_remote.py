"""Images behind URLs: found, named and read as files on a disk are."""

from __future__ import annotations

import builtins
import io
import pickle
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort import AnomalyClusterer, InputError, OptionError, View
from flawsort.backbones.embed import _content
from flawsort.clusters.placement import Placement
from flawsort.core.records import RemoteFile
from flawsort.core.remote import is_url
from flawsort.core.text import printable
from flawsort.images.decode import is_deep
from flawsort.images.find import find_images
from flawsort.images.view import UnreadableImage, decode, thumbnail
from flawsort.images.window import measure_window
from flawsort.runs.tables import images_table
from helpers.part_batches import assert_same_values
from helpers.plates import plate, settings, write_plates

needs_fsspec = pytest.mark.skipif(
    find_spec("fsspec") is None, reason="fsspec is not installed: pip install 'flawsort[ray]'"
)


def png(array: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def bucket() -> Iterator[Any]:
    """memory://bucket with a/dent.png, a/b/streak.PNG, an empty file, a note and hidden files."""
    import fsspec

    store = fsspec.filesystem("memory")
    files = {
        "a/dent.png": png(plate("dent", 0)),
        "a/b/streak.PNG": png(plate("streak", 1)),
        "empty.png": b"",
        "note.txt": b"no image",
        ".hidden.png": png(plate("good", 2)),
        ".thumbs/x.png": png(plate("good", 3)),
    }
    for name, content in files.items():
        store.pipe_file(f"/bucket/{name}", content)
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


class TestRemoteFile:
    def test_looks_like_a_path(self) -> None:
        file = RemoteFile("s3://bucket/parts/7.PNG")
        assert (file.name, file.suffix, str(file)) == ("7.PNG", ".PNG", "s3://bucket/parts/7.PNG")
        assert file.absolute() == file
        assert printable(file) == "s3://bucket/parts/7.PNG"
        assert pickle.loads(pickle.dumps(file)) == file

    @pytest.mark.parametrize(
        ("source", "answer"),
        [
            ("s3://bucket/x", True),
            ("memory://x", True),
            ("abfs+x://c@a/b", True),
            ("C://parts", False),
            ("parts/x://y", False),
            ("parts", False),
            (Path("s3://bucket"), False),
        ],
    )
    def test_what_a_url_is(self, source: str | Path, answer: bool) -> None:
        assert is_url(source) is answer

    def test_without_fsspec(self, monkeypatch: pytest.MonkeyPatch) -> None:
        there = builtins.__import__

        def missing(name: str, *arguments: Any, **keywords: Any) -> Any:
            if name == "fsspec":
                raise ImportError("No module named 'fsspec'")
            return there(name, *arguments, **keywords)

        monkeypatch.setattr(builtins, "__import__", missing)
        with pytest.raises(OptionError, match=r"'s3://b/x' needs fsspec: pip install 'flawsort\["):
            find_images("s3://b/x")


@needs_fsspec
@pytest.mark.usefixtures("bucket")
class TestFind:
    def test_a_folder(self) -> None:
        images = find_images("memory://bucket")
        assert images.names == ("a/b/streak.PNG", "a/dent.png")
        assert images.sources[1] == RemoteFile("memory://bucket/a/dent.png")
        assert [(entry.name, entry.reason) for entry in images.set_aside] == [
            ("empty.png", "is empty (0 bytes)")
        ]

    def test_as_on_a_disk(self, bucket: Any, tmp_path: Path) -> None:
        for path in bucket.find("/bucket"):
            here = tmp_path / path.removeprefix("/bucket/")
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(bucket.cat_file(path))
        there, disk, by_url = (
            find_images(source) for source in ("memory://bucket/", tmp_path, f"file://{tmp_path}")
        )
        assert there.names == disk.names == by_url.names
        assert there.digests == disk.digests == by_url.digests
        assert there.set_aside == disk.set_aside == by_url.set_aside

    @pytest.mark.parametrize(
        ("source", "names"),
        [
            ("memory://bucket/a/dent.png", ["dent.png"]),
            ("memory://bucket/*/*.png", ["a/dent.png"]),
            ("memory://bucket/a/**/s*", ["b/streak.PNG"]),
            ("memory://bucket/a/**/*", ["b/streak.PNG", "dent.png"]),
        ],
    )
    def test_files_and_patterns(self, source: str, names: list[str]) -> None:
        assert list(find_images(source).names) == names

    def test_narrowed(self) -> None:
        assert find_images("memory://bucket", glob="d*").names == ("a/dent.png",)
        assert find_images("memory://bucket", glob="a/b/*").names == ("a/b/streak.PNG",)
        with pytest.raises(InputError, match=r"under 'memory://bucket' whose name matches 'x\*'"):
            find_images("memory://bucket", glob="x*")

    def test_each_file_once_and_names_told_apart(self, tmp_path: Path) -> None:
        write_plates(tmp_path / "parts", ("good",))
        (tmp_path / "parts" / "good00.png").rename(tmp_path / "parts" / "dent.png")
        twice = ["memory://bucket/a", "memory://bucket/a/dent.png", str(tmp_path / "parts")]
        assert find_images(twice).names == ("a/b/streak.PNG", "a/dent.png", "parts/dent.png")

    def test_a_list(self, tmp_path: Path) -> None:
        list_file = tmp_path / "list.txt"
        list_file.write_text("memory://bucket/a/dent.png\nmemory://bucket/a/b/streak.PNG\n")
        assert find_images(list_file).names == ("b/streak.PNG", "dent.png")
        write_plates(tmp_path / "here", ("good",))
        list_file.write_text("memory://bucket/a/dent.png\nhere/good00.png\nmemory://nothing.png\n")
        images = find_images(list_file)
        assert images.names == ("here/good00.png", "memory://bucket/a/dent.png")
        assert images.set_aside[0].name == "memory://nothing.png"
        assert images.set_aside[0].reason == "does not exist"

    @pytest.mark.parametrize(
        ("source", "error", "message"),
        [
            ("memory://nowhere", InputError, "'memory://nowhere' does not exist. Check the URL"),
            ("memory://bucket/*.bmp", InputError, r"No images match 'memory://bucket/\*\.bmp'"),
            ("nothing://x", OptionError, "Protocol not known"),
            ("zip://x::memory://y.zip", OptionError, "must name one store, not a chain"),
        ],
    )
    def test_what_is_not_there(self, source: str, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            find_images(source)

    def test_a_store_out_of_reach(self, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def forbidden(*_: Any, **__: Any) -> None:
            raise RuntimeError("Access Denied\nrequest 123")

        monkeypatch.setattr(type(bucket), "find", forbidden)
        with pytest.raises(InputError, match="'memory://bucket' cannot be listed: Access Denied"):
            find_images("memory://bucket")
        monkeypatch.undo()
        monkeypatch.setattr(type(bucket), "cat_file", forbidden)
        images = find_images("memory://bucket")
        assert {entry.reason for entry in images.set_aside} == {"cannot be read: Access Denied"}


@needs_fsspec
class TestRead:
    def test_pixels_are_those_of_the_file(self, bucket: Any, tmp_path: Path) -> None:
        path, remote = tmp_path / "x.png", RemoteFile("memory://bucket/a/dent.png")
        path.write_bytes(bucket.cat_file("/bucket/a/dent.png"))
        here, there = (decode(source, View(), (32, 32)) for source in (path, remote))
        np.testing.assert_array_equal(here.frames, there.frames)
        small = [thumbnail(source, View(), (32, 32), 16) for source in (path, remote)]
        np.testing.assert_array_equal(*map(np.asarray, small))

    def test_depth(self, bucket: Any) -> None:
        deep = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
        bucket.pipe_file("/bucket/deep.png", png(deep))
        deep_one, shallow = (
            RemoteFile(f"memory://bucket/{name}") for name in ("deep.png", "a/dent.png")
        )
        assert is_deep(deep_one, 10**6)
        assert not is_deep(shallow, 10**6)
        assert not is_deep(RemoteFile("memory://bucket/empty.png"), 10**6)
        assert not is_deep(RemoteFile("memory://bucket/nothing.png"), 10**6)
        low, high = measure_window([shallow, deep_one]) or (0, 0)
        assert 0 <= low < high <= deep.max()

    def test_a_store_that_fails(self, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: Any, **__: Any) -> None:
            raise RuntimeError("slow down")

        remote = RemoteFile("memory://bucket/a/dent.png")
        monkeypatch.setattr(type(bucket), "open", broken)
        assert not is_deep(remote, 10**6)
        monkeypatch.setattr(type(bucket), "cat_file", broken)
        with pytest.raises(UnreadableImage, match=r"^cannot be read: slow down$"):
            decode(remote, View(), (32, 32))
        assert _content((remote, "digest")) == "cannot be read: slow down"

    def test_what_changed_meanwhile(self, bucket: Any) -> None:
        images = find_images("memory://bucket/a/dent.png")
        entry = images.sources[0], images.digests[0]
        assert _content(entry) == bucket.cat_file("/bucket/a/dent.png")
        bucket.pipe_file("/bucket/a/dent.png", png(plate("good", 5)))
        assert _content(entry) == "it changed while it was being read"

    def test_the_table_names_urls(self, bucket: Any) -> None:
        images = find_images("memory://bucket")
        zero = np.zeros(2)
        placed = Placement(zero, np.array([-1, -1]), zero)
        table = images_table(images, np.array([0, 0]), zero, placed, ((0,), (0,)), [[], []])
        assert table["path"] == [f"memory://bucket/{name}" for name in images.names]

    def test_a_fit_comes_to_the_same(self, bucket: Any, plates: Path) -> None:
        for path in sorted((plates / "parts").iterdir()):
            bucket.pipe_file(f"/plates/{path.name}", path.read_bytes())
        here = AnomalyClusterer(n_clusters=2, **settings()).fit(plates / "parts")
        there = AnomalyClusterer(n_clusters=2, **settings()).fit("memory://plates")
        np.testing.assert_array_equal(here.labels_, there.labels_)
        np.testing.assert_array_equal(here.embeddings_, there.embeddings_)
        assert_same_values(here.regions_, there.regions_)

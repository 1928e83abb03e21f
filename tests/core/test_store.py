"""Things under keys: they come back as they were or not at all, wherever they are kept."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from flawsort.core.store import LocalFolder, Store, StoredFolder, folder_at, prune
from helpers.plates import contents
from helpers.stores import PLACES, a_broken_store, needs_stores


class TestFolder:
    @pytest.mark.parametrize("place", PLACES)
    def test_files_by_their_names(self, tmp_path: Path, place: str) -> None:
        folder = folder_at(f"{place.format(tmp_path)}/a/b")
        assert folder.names() == set()
        assert not folder.has("x")
        with pytest.raises(FileNotFoundError):
            folder.read("x")
        folder.remove("x")
        folder.remove_all()
        folder.write("x", b"first")
        folder.write("x", b"second")
        folder.write("y", b"")
        assert folder.names() == {"x", "y"}
        assert (folder.read("x"), folder.read("y")) == (b"second", b"")
        assert folder.has("y")
        folder.remove("y")
        assert folder.names() == {"x"}
        folder.remove_all()
        assert folder.names() == set()

    def test_which_of_the_two(self, tmp_path: Path) -> None:
        assert folder_at("a/b") == LocalFolder(Path("a/b"))
        assert folder_at("s3://a/b") == StoredFolder("s3://a/b")

    @needs_stores
    def test_what_a_store_raises_is_an_os_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store = a_broken_store(monkeypatch, "ls", "exists", "rm_file", "rm", "cat_file", "mv")
        for attempt in (
            store.names,
            store.remove_all,
            lambda: store.has("x"),
            lambda: store.read("x"),
            lambda: store.remove("x"),
            lambda: store.write("x", b""),
        ):
            with pytest.raises(OSError, match="slow down"):
                attempt()


class TestStore:
    @pytest.mark.parametrize("place", PLACES)
    def test_round_trip(self, tmp_path: Path, place: str) -> None:
        store = Store(place.format(tmp_path), {"net": 1}, suffix=".thing")
        assert store.load("a") is None
        assert not store.has("a")
        store.save("a", [b"first ", memoryview(b"thing")])
        store.save("b", [])
        again = pickle.loads(pickle.dumps(store))
        assert again.load("a") == b"first thing"
        assert again.load("b") == b""
        assert again.names() == {store.name("a"), store.name("b")}
        again.remove("a")
        assert not store.has("a")
        assert store.load("a") is None

    def test_other_settings_have_other_things(self, tmp_path: Path) -> None:
        first = Store(tmp_path, {"net": 1, "fit": "pad"}, suffix=".x")
        first.save("a", [b"1"])
        assert Store(f"{tmp_path}/", {"fit": "pad", "net": 1}, suffix=".x").load("a") == b"1"
        for other in ({"net": 2, "fit": "pad"}, {"net": 1}, {}):
            assert Store(tmp_path, other, suffix=".x").load("a") is None

    def test_another_format_has_other_things(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Store(tmp_path, {}, suffix=".x").save("a", [b"1"])
        monkeypatch.setattr("flawsort.core.store.FORMAT", 0)
        assert Store(tmp_path, {}, suffix=".x").load("a") is None

    def test_damage_counts_as_missing(self, tmp_path: Path) -> None:
        store = Store(tmp_path, {}, suffix=".x")
        store.save("a", [b"a thing that is kept"])
        (name,) = contents(tmp_path)
        whole = (tmp_path / name).read_bytes()
        flipped = [
            whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] for at in range(len(whole))
        ]
        for damaged in (*flipped, *(whole[:size] for size in range(len(whole))), whole + b"x"):
            (tmp_path / name).write_bytes(damaged)
            assert store.load("a") is None
            assert contents(tmp_path) == {}  # so that the next one can be kept
        (tmp_path / name).write_bytes(whole)
        assert store.load("a") == b"a thing that is kept"

    def test_the_least_recently_used_go_first(self, tmp_path: Path) -> None:
        first, second = (Store(tmp_path, {"net": n}, suffix=".x") for n in (1, 2))
        for age, store in enumerate((first, second, first)):
            store.save(f"{age}", [bytes(68)])
            os.utime(Path(store.folder, store.name(f"{age}")), (9 - age, 9 - age))
        (tmp_path / "holidays").mkdir()
        (tmp_path / "holidays/photo.jpg").write_bytes(bytes(1000))
        assert first.load("2") is not None  # used, and so no longer the first to go
        assert prune([(tmp_path, ".x")], 200) == 100
        assert [first.has("0"), second.has("1"), first.has("2")] == [True, False, True]
        prune([(tmp_path, ".x")], 200)
        assert len(contents(tmp_path)) == 3
        assert prune([(tmp_path / "nothing", ".x")], 0) == 0

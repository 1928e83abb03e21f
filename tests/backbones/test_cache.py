"""Bags kept on disk: found again, never trusted blindly, never in the way."""

from __future__ import annotations

import dataclasses
import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest

from flawsort.backbones.cache import Bag, BagCache, default_cache_folder
from flawsort.core.temporaries import beside
from helpers.bags import unit_vectors


def made_bag(seed: int = 0, *, masked: bool = False) -> Bag:
    valid = np.random.default_rng(seed).random(15) > 0.5 if masked else None
    return Bag(unit_vectors(15, 4, seed=seed, dtype=np.float16), (3, 5), valid)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check_same(found: Bag | None, bag: Bag) -> None:
    assert found is not None
    assert found.patches.dtype == np.float16
    np.testing.assert_array_equal(found.patches, bag.patches)
    assert found.grid == bag.grid
    if bag.valid is None:
        assert found.valid is None
    else:
        assert found.valid is not None
        assert found.valid.dtype == bool
        np.testing.assert_array_equal(found.valid, bag.valid)


@pytest.mark.parametrize("masked", [False, True])
def test_a_bag_comes_back_as_it_was(tmp_path: Path, masked: bool) -> None:
    bag = made_bag(masked=masked)
    cache = BagCache(tmp_path / "cache", {"net": 1})
    assert cache.load("a") is None
    cache.store("a", bag)
    check_same(cache.load("a"), bag)
    check_same(BagCache(tmp_path / "cache", {"net": 1}).load("a"), bag)
    assert len(files(tmp_path)) == 1  # and nothing temporary


def test_a_bag_counts_where_its_image_was_let_in(tmp_path: Path) -> None:
    lax, strict = (BagCache(tmp_path, {}, max_pixels=count) for count in (1000, 10))
    lax.store("a", made_bag())
    assert strict.load("a") is None  # nobody knows how large its image was
    check_same(lax.load("a"), made_bag())  # and it is still there
    strict.store("a", made_bag())
    check_same(lax.load("a"), made_bag())
    check_same(BagCache(tmp_path, {}).load("a"), made_bag())


def test_a_bag_counts_where_its_image_would_be_decoded(tmp_path: Path) -> None:
    """What is in the cache decides no result: an image that is too large for the budget is set
    aside, whether or not its bag is there."""
    bag = dataclasses.replace(made_bag(), needs=1000)
    ample, tight = (BagCache(tmp_path, {}, memory=memory) for memory in (1000, 999))
    ample.store("a", bag)
    assert tight.load("a") is None
    check_same(ample.load("a"), bag)


def test_other_content_and_other_settings_have_other_bags(tmp_path: Path) -> None:
    cache, other = BagCache(tmp_path, {"net": 1, "fit": "pad"}), BagCache(tmp_path, {"net": 2})
    cache.store("a", made_bag(1))
    other.store("a", made_bag(2))
    cache.store("b", made_bag(3))
    check_same(cache.load("a"), made_bag(1))
    check_same(other.load("a"), made_bag(2))
    check_same(cache.load("b"), made_bag(3))
    assert other.load("b") is None
    # The order in which a setting is written down does not matter.
    check_same(BagCache(tmp_path, {"fit": "pad", "net": 1}).load("a"), made_bag(1))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("at", [0, 31, 32, 40, 47, 48, 100, -1])
def test_a_flipped_bit_is_noticed(tmp_path: Path, at: int, masked: bool) -> None:
    cache = BagCache(tmp_path, {})
    cache.store("a", made_bag(masked=masked))
    (path,) = files(tmp_path)
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)
    assert cache.load("a") is None
    assert files(tmp_path) == []  # so that the next one can be kept
    cache.store("a", made_bag(masked=masked))
    check_same(cache.load("a"), made_bag(masked=masked))


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 55, 56, 57, 100, 175])
def test_a_truncated_file_is_noticed(tmp_path: Path, length: int) -> None:
    cache = BagCache(tmp_path, {})
    cache.store("a", made_bag())
    (path,) = files(tmp_path)
    assert path.stat().st_size == 184
    path.write_bytes(path.read_bytes()[:length])
    assert cache.load("a") is None


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = BagCache(tmp_path, {}, limit=2 * 184)
    for age, name in enumerate(["new", "middle", "old"]):
        before = set(files(tmp_path))
        cache.store(name, made_bag())
        (path,) = set(files(tmp_path)) - before
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    assert cache.load("old") is not None  # used, and so no longer the first to go
    cache.prune()
    assert cache.load("middle") is None
    assert cache.load("old") is not None
    assert cache.load("new") is not None
    cache.prune()
    assert len(files(tmp_path)) == 2


def test_a_cache_that_fits_is_left_alone(tmp_path: Path) -> None:
    cache = BagCache(tmp_path / "none yet", {})
    cache.prune()
    cache.store("a", made_bag())
    cache.prune()
    assert cache.load("a") is not None


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    cache = BagCache(tmp_path, {})
    cache.store("a", made_bag())
    (bag,) = files(tmp_path)
    now = time.time()
    os.utime(bag, (now - 9e6, now - 9e6))
    # By a process of another machine, of which nobody knows here whether it is still at it.
    old, fresh = (bag.with_name(f".{bag.name}.partial-000000-{n}-0") for n in (11, 12))
    foreign = bag.with_name(".notes")
    for path, age in ((old, 90_000), (fresh, 80_000), (foreign, 9e6)):
        path.write_bytes(b"half a bag")
        os.utime(path, (now - age, now - age))
    beside(bag, "partial").write_bytes(b"half a bag")
    cache.prune()
    assert files(tmp_path) == sorted([bag, fresh, foreign])
    check_same(cache.load("a"), made_bag())


# ---- disks that fail ----


def test_a_file_in_place_of_the_folder_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder", "utf-8")
    cache = BagCache(tmp_path / "cache", {})
    cache.store("a", made_bag())
    assert cache.load("a") is None
    cache.prune()


def test_a_folder_that_lets_nothing_be_removed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BagCache(tmp_path, {}, limit=1)
    cache.store("a", made_bag())

    def refuse(path: Path | str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "unlink", refuse)
    cache.prune()
    assert cache.load("a") is not None
    files(tmp_path)[0].write_bytes(b"damaged")
    assert cache.load("a") is None


# ---- the folder ----


def test_the_folder_can_be_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAWSORT_CACHE", "/some/where")
    assert default_cache_folder() == Path("/some/where")


@pytest.mark.parametrize("chosen", [None, ""])
def test_the_folder_is_where_the_system_keeps_caches(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None
) -> None:
    monkeypatch.delenv("FLAWSORT_CACHE", raising=False)
    if chosen is not None:
        monkeypatch.setenv("FLAWSORT_CACHE", chosen)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    monkeypatch.setattr("flawsort.backbones.cache.sys.platform", "linux")
    assert default_cache_folder() == Path("/xdg/flawsort")
    monkeypatch.setattr("flawsort.backbones.cache.sys.platform", "win32")
    assert default_cache_folder() == Path("/local/flawsort")
    monkeypatch.setattr("flawsort.backbones.cache.sys.platform", "darwin")
    assert default_cache_folder() == Path.home() / "Library/Caches/flawsort"
    monkeypatch.setattr("flawsort.backbones.cache.sys.platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_folder() == Path.home() / ".cache/flawsort"

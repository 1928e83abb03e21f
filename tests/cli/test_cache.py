"""The command `flawsort cache`: what is counted, and what a pruning removes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flawsort.backbones.cache import SUFFIX as BAGS
from flawsort.core.store import Store
from flawsort.fitting.parts import SUFFIX as PARTS
from flawsort.review.pictures import SUFFIX as PICTURES
from helpers.command_line import assert_refused
from helpers.plates import Cli, contents

CHECKSUM = 32


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A bag of 1,000 bytes, a part of 2,000 and a picture of 3,000; the picture is the oldest."""
    for place, suffix, size, used in (
        ("", BAGS, 1000, 3e8),
        ("parts", PARTS, 2000, 2e8),
        ("thumbnails", PICTURES, 3000, 1e8),
    ):
        store = Store(tmp_path / place, {}, suffix=suffix)
        store.save("a", [bytes(size - CHECKSUM)])
        os.utime(Path(store.folder, store.name("a")), (used, used))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.png").write_bytes(bytes(9000))
    return tmp_path


def test_what_there_is(cache: Path, cli: Cli) -> None:
    before = contents(cache)
    found = json.loads(cli("cache", "--cache", cache, "--json").out)
    assert (found["cache"], found["size"], found["freed"]) == (str(cache), 6000, 0)
    kinds = {one["kind"]: (one["files"], one["size"]) for one in found["kinds"]}
    assert kinds == {
        "embedded images": (1, 1000),
        "finished batches": (1, 2000),
        "pictures of the review": (1, 3000),
    }
    assert found["kinds"][2]["oldest"].startswith("1973-03")
    text = cli("cache", "--cache", cache).out
    assert "Together: 6,000 bytes." in text
    assert "Removed" not in text
    assert contents(cache) == before


@pytest.mark.parametrize(
    ("limit", "left"),
    [("20GB", 6000), ("6000", 6000), ("5999", 3000), ("1K", 1000), ("0", 0)],
)
def test_the_oldest_go_first(cache: Path, cli: Cli, limit: str, left: int) -> None:
    text = cli("cache", "--cache", cache, "--prune", "--limit", limit).out
    assert f"Together: {left:,} bytes." in text
    assert ("Removed: " in text) == (left < 6000)
    assert sum(map(len, contents(cache).values())) == left + 9000  # what is not ours stays


def test_what_is_refused(tmp_path: Path, cli: Cli) -> None:
    assert_refused(
        cli("cache", "--cache", tmp_path / "no"), "--cache must be a folder that exists."
    )
    assert_refused(
        cli("cache", "--prune", "--limit", "much"),
        "--limit must be a size such as 4GB or 500M. Got 'much'.",
    )


def test_a_cache_that_nobody_has_used(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAWSORT_CACHE", str(tmp_path / "none"))
    answer = cli("cache", "--prune")
    assert answer.code == 0
    assert "Together: 0 bytes." in answer.out
    assert not (tmp_path / "none").exists()

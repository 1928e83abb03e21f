"""New images kept beside a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from flawsort.clusters.ward import ward_linkage
from flawsort.core.errors import OptionError, RunError
from flawsort.runs.assigned import (
    ABOUT,
    ASSIGNED,
    TABLE,
    Kept,
    check_name,
    keep,
    kept_names,
    open_kept,
    proposals,
    propose_kinds,
)
from helpers import faults
from helpers.bags import blobs
from helpers.faults import Fault, watched

PLAIN = {
    "path": ["a", "b"], "sha256": ["1", "2"], "nearest": [3, 0], "novelty": [0.5, 2.0],
    "score": [0.1, 0.2],
}  # fmt: skip


def a_batch(name: str = "monday", at: str = "2026-01-01") -> Kept:
    table = {
        "name": ["a <b>", "ö"], "group": ["dent", "new kind"], "probability": [0.25, None],
        "decided": [False, True], "verdict": ["OK", ""], "looks_normal": [True, False],
        "cluster": [3, -1], "period": ["x", "y"], "proposal": [-1, 0], **PLAIN,
    }  # fmt: skip
    return Kept(name, table, (b"jpeg", b""), {"at": at, "by": "day"})


def test_round_trip(tmp_path: Path) -> None:
    assert kept_names(tmp_path) == []
    place = keep(tmp_path, a_batch())
    assert place == tmp_path / ASSIGNED / "monday"
    assert open_kept(tmp_path, "monday") == a_batch()
    assert [path.name for path in (tmp_path / ASSIGNED).iterdir()] == ["monday"]


def test_vectors_are_kept(tmp_path: Path) -> None:
    vectors = np.array([[1, 2, 3]], np.float16)
    keep(tmp_path, dataclasses.replace(a_batch(), vectors=vectors))
    found = open_kept(tmp_path, "monday").vectors
    assert found is not None
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, vectors)
    keep(tmp_path, a_batch("tuesday"))
    assert open_kept(tmp_path, "tuesday").vectors is None


def test_a_batch_of_an_earlier_version(tmp_path: Path) -> None:
    table = {
        "name": ["a", "b"], "cluster": [3, -1], "title": ["dent", "New kind"],
        "confidence": [0.5, 0.0], "period": ["x", "y"], "proposal": [-1, 0], **PLAIN,
    }  # fmt: skip
    keep(tmp_path, Kept("old", table, (b"", b""), {"at": "2025-01-01"}))
    found = open_kept(tmp_path, "old")
    assert found.table["group"] == ["dent", "New kind"]
    assert found.table["probability"] == [None, None]
    assert found.table["decided"] == found.table["looks_normal"] == [False, False]
    assert found.table["verdict"] == ["", ""]
    assert found.vectors is None


def test_columns_that_are_missing_or_short(tmp_path: Path) -> None:
    whole = a_batch()
    fewer = {key: values for key, values in whole.table.items() if key != "path"}
    keep(tmp_path, dataclasses.replace(whole, name="fewer", table=fewer))
    keep(tmp_path, dataclasses.replace(whole, name="few", thumbnails=(b"",)))
    for name, what in (("fewer", "the table lacks path"), ("few", "differ in length")):
        with pytest.raises(RunError, match=f"are damaged: .*{what}"):
            open_kept(tmp_path, name)


def test_names_in_the_order_of_time(tmp_path: Path) -> None:
    for name, at in (("b", "2026-01-03"), ("c", "2026-01-01"), ("a", "2026-01-03")):
        keep(tmp_path, a_batch(name, at))
    (tmp_path / ASSIGNED / "no batch").mkdir()
    (tmp_path / ASSIGNED / "b" / ABOUT).write_text("{broken")
    assert kept_names(tmp_path) == ["b", "c", "a"]  # of b it is not known when


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", "a b", "ö", "x" * 81, "a\0"])
def test_names_that_are_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(OptionError, match="must be letters, digits, dots, dashes"):
        check_name(tmp_path, name)
    with pytest.raises(OptionError, match="keeps no images as"):
        open_kept(tmp_path, name)


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    check_name(tmp_path, "monday")
    keep(tmp_path, a_batch())
    with pytest.raises(OptionError, match="already keeps images as 'monday'"):
        check_name(tmp_path, "monday")
    # Taken while this one was at work: nothing is lost.
    assert keep(tmp_path, a_batch(at="2026-03-02")).name == "monday-2"
    assert keep(tmp_path, a_batch("monday")).name == "monday-3"
    assert open_kept(tmp_path, "monday") == a_batch()
    assert open_kept(tmp_path, "monday-2").about["at"] == "2026-03-02"
    assert keep(tmp_path, a_batch("x" * 80)).name == "x" * 80
    second = keep(tmp_path, a_batch("x" * 80)).name
    assert open_kept(tmp_path, second).table == a_batch().table


def test_what_fails_leaves_no_folder(tmp_path: Path) -> None:
    """An empty one would keep the run from being replaced."""
    check_name(tmp_path, "monday")
    assert list(tmp_path.iterdir()) == []
    with (
        watched(Fault(tmp_path, faults.error("ENOSPC"), 2, lasting=True, only="open")),
        pytest.raises(OptionError, match=r"Cannot keep images in .*No space left"),
    ):
        keep(tmp_path, a_batch())
    assert list(tmp_path.iterdir()) == []
    keep(tmp_path, a_batch())
    with (
        watched(Fault(tmp_path, faults.error("ENOSPC"), 2, only="open")),
        pytest.raises(OptionError, match=r"Cannot keep images in .*No space left"),
    ):
        keep(tmp_path, a_batch("tuesday"))
    assert [path.name for path in (tmp_path / ASSIGNED).iterdir()] == ["monday"]


@pytest.mark.parametrize("there", [False, True])
def test_a_run_that_cannot_keep_anything(there: bool, tmp_path: Path) -> None:
    """It is refused before anything is computed."""
    if there:
        keep(tmp_path, a_batch())
    before = sorted(tmp_path.rglob("*"))
    with (
        watched(Fault(tmp_path, faults.error("EACCES"), 0, lasting=True)),
        pytest.raises(OptionError, match=r"Cannot keep images in .*Permission denied"),
    ):
        check_name(tmp_path, "tuesday")
    assert sorted(tmp_path.rglob("*")) == before


def test_damage_is_told(tmp_path: Path) -> None:
    place = keep(tmp_path, a_batch())
    (place / TABLE).unlink()
    with pytest.raises(RunError, match="are damaged"):
        open_kept(tmp_path, "monday")
    assert json.loads((place / ABOUT).read_text("utf-8"))["by"] == "day"


def test_new_kinds_are_as_alike_as_those_of_the_run() -> None:
    run = blobs([8, 8, 8])
    unseen = blobs([5, 3]) + 100
    assert propose_kinds(unseen, ward_linkage(run), 3).tolist() == [0] * 5 + [1] * 3
    # A run whose groups are coarser has coarser new kinds; one of single images has none alike.
    assert set(propose_kinds(unseen, ward_linkage(run), 1).tolist()) == {0}
    assert sorted(propose_kinds(unseen, ward_linkage(run), 24).tolist()) == list(range(8))
    for few in (0, 1):
        assert propose_kinds(unseen[:few], ward_linkage(run), 3).tolist() == [0] * few


def test_the_place_of_new_images_numbers_no_kind() -> None:
    run, unseen = blobs([8, 8, 8]), blobs([3, 3, 3]) + 100
    first = propose_kinds(unseen, ward_linkage(run), 3)
    for seed in range(6):
        moved = np.random.default_rng(seed).permutation(9)
        again = propose_kinds(unseen[moved], ward_linkage(run), 3)
        assert again.tolist() == first[moved].tolist()


def test_proposals_stand_where_their_images_do() -> None:
    assert proposals([2, -1, 0, -1, -1], np.array([1, 0, 1])) == [-1, 1, -1, 0, 1]
    assert proposals([2, 0], np.empty(0, np.int64)) == [-1, -1]
    assert proposals([-2, -1, -2], np.array([0])) == [-1, 0, -1]  # normal images are no new kind

"""New images kept beside a run."""

from __future__ import annotations

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
from helpers.bags import blobs


def a_batch(name: str = "monday", at: str = "2026-01-01") -> Kept:
    table = {"name": ["a <b>", "ö"], "cluster": [3, -1], "period": ["x", "y"], "proposal": [-1, 0]}
    return Kept(name, table, (b"jpeg", b""), {"at": at, "by": "day"})


def test_round_trip(tmp_path: Path) -> None:
    assert kept_names(tmp_path) == []
    place = keep(tmp_path, a_batch())
    assert place == tmp_path / ASSIGNED / "monday"
    assert open_kept(tmp_path, "monday") == a_batch()
    assert [path.name for path in (tmp_path / ASSIGNED).iterdir()] == ["monday"]


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
    with pytest.raises(OptionError, match="Cannot keep images in"):
        keep(tmp_path, a_batch())
    assert open_kept(tmp_path, "monday") == a_batch()
    assert [path.name for path in (tmp_path / ASSIGNED).iterdir()] == ["monday"]


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


def test_proposals_stand_where_their_images_do() -> None:
    assert proposals([2, -1, 0, -1, -1], np.array([1, 0, 1])) == [-1, 1, -1, 0, 1]
    assert proposals([2, 0], np.empty(0, np.int64)) == [-1, -1]

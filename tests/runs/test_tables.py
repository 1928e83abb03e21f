"""The tables that people read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flawsort.clusters.kinds import Regions
from flawsort.clusters.placement import Placement, centres, place, typicality
from flawsort.core.records import ImageSet
from flawsort.core.tables import read_parquet
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.regions import Outlines
from flawsort.runs.tables import (
    IMAGES,
    ImageGroups,
    first_groups,
    image_flags,
    images_table,
    normal_clusters,
    regions_table,
    with_groups,
)
from helpers.bags import blobs


def image_set(digests: str) -> ImageSet:
    names = tuple(f"{i}.png" for i in range(len(digests)))
    return ImageSet(names, tuple(Path(name) for name in names), tuple(digests))


# ---- flags and the table ----


def test_flags() -> None:
    placed = Placement(
        distance=np.array([1.0, 0.95, 0.0, 2.0, 0.89]),
        runner_up=np.array([1, 1, 0, 0, 0]),
        runner_up_distance=np.array([2.0, 1.0, 0.0, 1.0, 1.0]),
    )
    looks_normal = np.array([False, False, False, False, True])
    images = image_set("abcda")
    assert image_flags(images, placed, looks_normal) == [
        ["duplicate"],
        ["borderline"],
        ["borderline"],  # in the middle of two equal centres
        ["borderline"],  # nearer to the other one
        ["duplicate", "looks-normal"],
    ]
    compared_with_nothing = image_flags(images, placed, None)
    assert compared_with_nothing == [
        ["duplicate"], ["borderline"], ["borderline"], ["borderline"], ["duplicate"],
    ]  # fmt: skip


def test_a_single_group_has_nothing_on_its_border() -> None:
    placed = Placement(np.array([0.0, 3.0]), np.array([-1, -1]), np.array([np.inf, np.inf]))
    assert image_flags(image_set("ab"), placed, np.zeros(2, bool)) == [[], []]


def test_the_table_has_one_plain_value_an_image() -> None:
    embeddings, labels = blobs([3, 2]), np.array([0, 0, 0, 1, 1])
    placed = place(embeddings, labels, centres(embeddings, labels))
    images = image_set("abcde")
    images = ImageSet(
        images.names, (*images.sources[:4], np.zeros((2, 2), np.uint8)), images.digests
    )
    flags = [["duplicate", "borderline"], [], [], [], ["looks-normal"]]
    kinds = ((0,), (0, 1), (0, 12, 1), (1,), (1, 0))
    table = images_table(images, labels, np.arange(5, dtype=np.float32), placed, kinds, flags)
    assert json.loads(json.dumps(table)) == table
    assert {len(column) for column in table.values()} == {5}
    assert table["name"] == list(images.names)
    assert table["path"][0] == (Path.cwd() / "0.png").as_posix()
    assert table["path"][4] == ""
    assert table["sha256"] == list("abcde")
    assert list(table)[:7] == [
        "name",
        "path",
        "sha256",
        "group",
        "probability",
        "decided",
        "cluster",
    ]
    assert table["group"] == ["Group 0"] * 3 + ["Group 1"] * 2
    assert (table["probability"], table["decided"]) == ([None] * 5, [False] * 5)
    assert table["cluster"] == [0, 0, 0, 1, 1]
    assert table["kinds"] == ["0", "0;1", "0;12;1", "1", "1;0"]
    assert table["score"] == [0, 1, 2, 3, 4]
    assert table["runner_up"] == [1, 1, 1, 0, 0]
    assert table["flags"] == ["duplicate;borderline", "", "", "", "looks-normal"]
    assert table["typicality"] == typicality(placed.distance, labels).tolist()


def test_a_runner_up_that_is_not_there_is_at_distance_zero() -> None:
    placed = Placement(np.array([1.0]), np.array([-1]), np.array([np.inf]))
    table = images_table(image_set("a"), np.array([0]), np.ones(1), placed, ((0,),), [[]])
    assert table["runner_up"] == [-1]
    assert table["runner_up_distance"] == [0.0]


def test_a_group_in_which_nearly_all_look_normal_is_called_so() -> None:
    labels = np.array([0] * 10 + [1] * 10 + [2])
    looks = np.array([True] * 9 + [False] + [True] * 8 + [False] * 2 + [True])
    found = first_groups(labels, looks)
    assert found.titles == ["normal"] * 10 + ["Group 1"] * 10 + ["normal"]
    assert normal_clusters(labels, looks) == {0, 2}


def test_groups_with_names_take_the_place_of_the_first() -> None:
    groups = ImageGroups(["dent, deep", "normal"], [0.25, None], [False, True])
    table = {
        "later": ["x", "y"],
        "cluster": [0, 1],
        "group": ["Group 0", "Group 1"],
        "name": ["a", "b"],
    }
    changed = with_groups(table, groups)
    assert list(changed) == ["name", "group", "probability", "decided", "cluster", "later"]
    assert table["group"] == ["Group 0", "Group 1"]
    lines = IMAGES.csv(changed).splitlines()
    assert lines[1:] == ['a,"dent, deep",0.25,false,0,x', "b,normal,,true,1,y"]
    back = read_parquet(IMAGES.parquet(changed))
    assert back == changed
    assert read_parquet(IMAGES.parquet(back)) == back


# ---- regions ----


def some_regions() -> Regions:
    """Two of the first image, none of the second, one of the third; on a grid of 2 by 4."""
    outlines = Outlines.of(
        [(0, 0.75, np.array([1, 2, 6])), (0, 0.5, np.array([4])), (2, 0.3, np.array([0, 1, 3]))]
    )
    embeddings = np.zeros((3, 2), np.float32)
    return Regions(
        outlines, embeddings, np.array([1, -1, 0]), np.array([1, 2, 0]), np.array([0.5, 0, 1.0])
    )


def test_the_table_has_one_plain_value_a_region() -> None:
    regions, images = some_regions(), image_set("abc")
    boxes = regions.outlines.boxes((2, 4))
    table = regions_table(images, regions, boxes, HeatScale(0.25, 0.5))
    assert json.loads(json.dumps(table)) == table
    assert list(table) == [
        "name", "region", "cluster", "nearest", "confidence", "score", "heat", "x", "y", "width",
        "height", "mask", "match", "match_down", "match_across",
    ]  # fmt: skip
    assert table["name"] == [images.names[row] for row in (0, 0, 2)]
    assert table["region"] == [0, 1, 0]
    assert table["cluster"] == [1, -1, 0]
    assert table["nearest"] == [1, 2, 0]
    assert table["confidence"] == [0.5, 0, 1]
    assert table["score"] == [float(np.float32(peak)) for peak in (0.75, 0.5, 0.3)]
    assert table["heat"] == pytest.approx([1, 1, 0.2])
    assert table["x"] == [0.25, 0, 0]
    assert table["y"] == [0, 0.5, 0]
    assert table["width"] == [0.5, 0.25, 1]
    assert table["height"] == [1, 0.5, 0.5]
    assert table["mask"] == ["1-2 6", "4", "0-1 3"]
    assert {type(one) for name in ("region", "cluster", "nearest") for one in table[name]} == {int}


def test_no_region_at_all() -> None:
    nothing = np.empty(0)
    none = Regions(
        Outlines.of([]), np.empty((0, 2), np.float32), nothing.astype(int), nothing.astype(int),
        nothing,
    )  # fmt: skip
    table = regions_table(image_set("abc"), none, np.empty((0, 4)), HeatScale(0.0, 1.0))
    assert len(table) == 15
    assert set(map(len, table.values())) == {0}

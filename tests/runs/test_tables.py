"""The table and the map that people read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flawsort.clusters.kinds import Regions
from flawsort.clusters.placement import Placement, centres, place, typicality
from flawsort.core.records import ImageSet
from flawsort.embeddings.heat import LOOKS_NORMAL_BELOW, HeatScale
from flawsort.embeddings.regions import Outlines
from flawsort.runs import tables as summary
from flawsort.runs.tables import (
    image_flags,
    images_table,
    regions_table,
    two_dimensional_layout,
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
    heat = np.array([0.9, 0.9, 0.9, 0.9, 0.1])
    images = image_set("abcda")
    assert image_flags(images, placed, heat) == [
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


def test_an_image_looks_normal_below_the_limit() -> None:
    placed = Placement(np.zeros(3), np.full(3, -1), np.full(3, np.inf))
    heat = np.array([LOOKS_NORMAL_BELOW - 1e-6, LOOKS_NORMAL_BELOW, 1.0])
    assert image_flags(image_set("abc"), placed, heat) == [["looks-normal"], [], []]


def test_a_single_group_has_nothing_on_its_border() -> None:
    placed = Placement(np.array([0.0, 3.0]), np.array([-1, -1]), np.array([np.inf, np.inf]))
    assert image_flags(image_set("ab"), placed, np.ones(2)) == [[], []]


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
        "height", "mask",
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
    assert len(table) == 12
    assert set(map(len, table.values())) == {0}


# ---- the map ----


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 20])
@pytest.mark.parametrize("kind", ["different", "identical", "all but one identical", "on a line"])
def test_maps_of_any_size_are_within_bounds(n: int, kind: str) -> None:
    embeddings = {
        "different": np.random.default_rng(0).standard_normal((n, 5)),
        "identical": np.ones((n, 5)),
        "all but one identical": np.eye(n, 5) * (np.arange(n) == 0)[:, None],
        "on a line": np.arange(n, dtype=np.float64)[:, None],
    }[kind]
    before = embeddings.copy()
    layout = two_dimensional_layout(embeddings)
    assert layout.shape == (n, 2)
    assert layout.dtype == np.float32
    assert np.isfinite(layout).all()
    assert layout.min() >= 0
    assert layout.max() <= 1
    if kind == "different" and n > 2:
        np.testing.assert_array_equal(layout.min(axis=0), 0)
        np.testing.assert_array_equal(layout.max(axis=0), 1)
    np.testing.assert_array_equal(embeddings, before)


def neighbours_agree(layout: np.ndarray, labels: np.ndarray) -> float:
    """The share of points whose nearest other point belongs to the same blob."""
    far = np.linalg.norm(layout[:, None] - layout[None], axis=2)
    np.fill_diagonal(far, np.inf)
    return float((labels[far.argmin(axis=1)] == labels).mean())


def test_images_that_are_alike_lie_near_each_other() -> None:
    layout = two_dimensional_layout(blobs([15, 15, 15]))
    assert neighbours_agree(layout, np.repeat([0, 1, 2], 15)) == 1


def test_the_map_is_the_same_each_time() -> None:
    embeddings = blobs([12, 12])
    first, second = two_dimensional_layout(embeddings), two_dimensional_layout(embeddings)
    np.testing.assert_array_equal(first, second)


def test_beyond_the_limit_images_lie_beside_their_nearest_landmarks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(summary, "LAYOUT_LIMIT", 24)
    embeddings = blobs([30, 30, 30])
    embeddings[-1] = embeddings[-2]
    layout = two_dimensional_layout(embeddings)
    assert np.isfinite(layout).all()
    assert layout.min() >= 0
    assert layout.max() <= 1
    assert neighbours_agree(layout, np.repeat([0, 1, 2], 30)) == 1
    np.testing.assert_array_equal(layout, two_dimensional_layout(embeddings))


def test_places_beside_landmarks_against_loops() -> None:
    rng = np.random.default_rng(0)
    values, points = rng.standard_normal((9, 3)), rng.random((5, 2))
    landmarks, others = np.array([0, 2, 4, 6, 8]), np.array([1, 3, 5, 7])
    found = summary._beside_landmarks(values, landmarks, others, points)
    for place_found, row in zip(found, others, strict=True):
        far = sorted(
            (float(np.linalg.norm(values[row] - values[m])), i) for i, m in enumerate(landmarks)
        )
        total = sum(1 / distance for distance, _ in far[:3])
        expected = sum(points[i] / distance for distance, i in far[:3]) / total
        np.testing.assert_allclose(place_found, expected, rtol=1e-6)

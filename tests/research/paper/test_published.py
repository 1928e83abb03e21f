"""The paper's numbers: complete, in the agreed schema, and as consistent as the paper is."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

import pytest

import flawsort.research.paper
from flawsort.core.errors import OptionError
from flawsort.research.paper.published import Cell, lookup, published, tables

DOCUMENT = Path(str(flawsort.research.paper.__file__)).with_name("published.json")
COUNTS = {
    "main": 48,
    "clusterers": 60,
    "purity": 32,
    "patch-vs-holistic": 12,
    "hausdorff": 18,
    "weights": 9,
    "per-category": 240,
    "clusterers-full": 162,
    "poolings": 48,
    "clusterers-subsets": 60,
    "text": 15,
}
OBJECTS = (
    "bottle", "cable", "capsule", "hazelnut", "metal_nut",
    "pill", "screw", "toothbrush", "transistor", "zipper",
)  # fmt: skip
TEXTURES = ("carpet", "grid", "leather", "tile", "wood")
DISTANCES = ("average", "max-hausdorff", "wa", "wa-semi")
POOLINGS = ("max", "gem", "spoc", "bag-of-words")
CLUSTERERS = ("kmeans", "gmm", "kmedoids", "spectral", "single", "complete", "average", "ward")
DEEP = tuple(f"deep/{name}{end}" for name in ("iic", "gatcluster", "scan") for end in ("", "-best"))
HAUSDORFF = (
    "mean-mean", "max-min max", "max-min mean", "min-min", "mean-min max", "mean-min mean",
)  # fmt: skip
SCORES = ("nmi", "ari", "f1")
# A mean of numbers rounded to three digits is off by up to 0.0005, and so is the printed mean.
ROUNDING = 0.001 + 1e-9


def value(table: str, part: str, row: str, metric: str) -> float:
    cell = lookup(table, part, row, metric)
    assert cell is not None, (table, part, row, metric)
    return cell.value


def keys(table: str) -> dict[tuple[str, str, str], Cell]:
    return {(cell.set, cell.row, cell.metric): cell for cell in published(table)}


# ---- what is there ----


def test_counts() -> None:
    assert {name: len(published(name)) for name in tables()} == COUNTS
    assert tables() == tuple(COUNTS)


def test_schema() -> None:
    document = json.loads(DOCUMENT.read_text("utf-8"))
    assert list(document) == ["paper", "tables"]
    assert (document["paper"]["venue"], document["paper"]["year"]) == ("WACV", 2023)
    assert document["paper"]["title"].startswith("Anomaly Clustering: ")
    for name, table in document["tables"].items():
        assert list(table) == ["label", "caption", "cells"]
        assert name == "text" or re.fullmatch(r"tab:\w+", table["label"])
        assert 20 < len(table["caption"]) < 100
        for cell in table["cells"]:
            assert list(cell)[:4] == ["set", "row", "metric", "value"]
            assert list(cell)[4:] in ([], ["stderr"])


def test_one_cell_a_line_with_three_digits() -> None:
    lines = [line for line in DOCUMENT.read_text("utf-8").splitlines() if '"row"' in line]
    number = r"-?[01]\.\d{3}"
    pattern = rf' {{8}}\{{.*"value": {number}(, "stderr": {number})?\}},?'
    assert len(lines) == sum(COUNTS.values())
    assert all(re.fullmatch(pattern, line) for line in lines)


@pytest.mark.parametrize("table", COUNTS)
def test_no_cell_twice(table: str) -> None:
    assert len(keys(table)) == len(published(table))


@pytest.mark.parametrize("table", COUNTS)
def test_values_are_scores(table: str) -> None:
    for cell in published(table):
        low = -0.02 if cell.metric == "ari" else 0.0  # a chance-adjusted index can be negative
        assert low <= cell.value <= 1.0
        assert cell.stderr is None or 0.0 < cell.stderr < 0.01


@pytest.mark.parametrize(
    ("table", "sets", "rows", "metrics"),
    [
        ("main", ("object", "texture", "mtd", "overall"), DISTANCES, SCORES),
        ("per-category", (*OBJECTS, *TEXTURES, "mtd"), (*DISTANCES, "wa-mask"), SCORES),
        ("purity", ("object", "texture"), DISTANCES, ("mauc", "r90", "r95", "r99")),
        ("poolings", ("object", "texture"), (*DISTANCES, *POOLINGS), SCORES),
        (
            "patch-vs-holistic",
            ("object", "texture", "mtd"),
            ("holistic", "max-hausdorff", "wa", "wa-semi"),
            ("nmi",),
        ),
        (
            "hausdorff",
            ("object", "texture", "mtd"),
            HAUSDORFF,
            ("nmi",),
        ),
        ("weights", ("object", "texture", "mtd"), ("mean", "max", "min"), ("nmi",)),
    ],
)
def test_full_tables(
    table: str, sets: tuple[str, ...], rows: tuple[str, ...], metrics: tuple[str, ...]
) -> None:
    assert set(keys(table)) == set(product(sets, rows, metrics))


@pytest.mark.parametrize(
    ("table", "missing", "metrics"),
    [
        ("clusterers", (), ("nmi",)),
        ("clusterers-full", ("kmedoids",), SCORES),
        ("clusterers-subsets", (), ("nmi",)),
    ],
)
def test_clusterer_tables(table: str, missing: tuple[str, ...], metrics: tuple[str, ...]) -> None:
    # k-means and mixtures need vectors, which the Hausdorff distance does not give.
    needs_vectors = ("kmeans", "gmm")
    names = [name for name in CLUSTERERS if name not in missing]
    rows = [f"wa/{name}" for name in names]
    rows += [f"max-hausdorff/{name}" for name in names if name not in needs_vectors]
    sets = ("object", "texture", "mtd")
    assert set(keys(table)) == set(product(sets, (*rows, *DEEP), metrics))


def test_standard_errors() -> None:
    assert all(cell.stderr is not None for cell in published("poolings"))
    for table in set(tables()) - {"poolings", "clusterers-subsets"}:
        assert all(cell.stderr is None for cell in published(table))
    for cell in published("clusterers-subsets"):
        repeated = cell.set != "mtd" and not cell.row.startswith("deep/")
        assert (cell.stderr is not None) == repeated


# ---- numbers read off the paper ----


@pytest.mark.parametrize(
    ("table", "cell"),
    [
        ("main", Cell("overall", "wa-semi", "f1", 0.663, None)),
        ("main", Cell("texture", "wa", "nmi", 0.674, None)),
        ("per-category", Cell("metal_nut", "wa", "ari", 0.439, None)),
        ("per-category", Cell("hazelnut", "average", "ari", -0.003, None)),
        ("per-category", Cell("transistor", "wa-mask", "ari", 0.921, None)),
        ("clusterers", Cell("texture", "max-hausdorff/kmedoids", "nmi", 0.274, None)),
        ("clusterers", Cell("object", "wa/spectral", "nmi", 0.428, None)),
        ("clusterers-full", Cell("mtd", "wa/complete", "f1", 0.310, None)),
        ("clusterers-full", Cell("texture", "deep/gatcluster-best", "ari", 0.202, None)),
        ("clusterers-subsets", Cell("texture", "wa/kmedoids", "nmi", 0.391, 0.006)),
        ("purity", Cell("texture", "max-hausdorff", "r95", 0.702, None)),
        ("poolings", Cell("object", "wa-semi", "ari", 0.477, 0.006)),
        ("poolings", Cell("texture", "gem", "f1", 0.660, 0.003)),
        ("patch-vs-holistic", Cell("mtd", "max-hausdorff", "nmi", 0.250, None)),
        ("hausdorff", Cell("texture", "mean-min max", "nmi", 0.400, None)),
        ("weights", Cell("object", "min", "nmi", 0.472, None)),
        ("text", Cell("overall", "wa", "pixel-auroc-weights", 0.912, None)),
        ("text", Cell("overall", "wa-semi", "pixel-auroc-weights", 0.973, None)),
    ],
)
def test_spot_checks(table: str, cell: Cell) -> None:
    assert lookup(table, cell.set, cell.row, cell.metric) == cell


def test_lookup_of_what_is_not_there() -> None:
    assert lookup("clusterers", "object", "max-hausdorff/kmeans", "nmi") is None
    assert lookup("main", "object", "wa", "purity") is None
    with pytest.raises(OptionError, match=r"table must be one of main, .*, text\. Got 'table 1'\."):
        lookup("table 1", "object", "wa", "nmi")


# ---- where the paper agrees with itself ----


@pytest.mark.parametrize("metric", SCORES)
@pytest.mark.parametrize("row", DISTANCES)
@pytest.mark.parametrize(("part", "categories"), [("object", OBJECTS), ("texture", TEXTURES)])
def test_means_over_categories(
    part: str, categories: tuple[str, ...], row: str, metric: str
) -> None:
    mean = sum(value("per-category", name, row, metric) for name in categories) / len(categories)
    assert abs(mean - value("main", part, row, metric)) <= ROUNDING


@pytest.mark.parametrize(("part", "categories"), [("object", OBJECTS), ("texture", TEXTURES)])
def test_means_with_masks(part: str, categories: tuple[str, ...]) -> None:
    values = [value("per-category", name, "wa-mask", "nmi") for name in categories]
    mean = sum(values) / len(values)
    assert abs(mean - value("text", part, "wa-mask", "nmi")) <= ROUNDING


def test_what_is_printed_twice_is_the_same() -> None:
    def repeats(table: str, other: str, rename: dict[str, str] | None = None) -> int:
        pairs = [
            (cell.value, twin.value)
            for cell in published(table)
            if rename is None or cell.row in rename
            if (
                twin := lookup(other, cell.set, (rename or {}).get(cell.row, cell.row), cell.metric)
            )
        ]
        assert all(first == second for first, second in pairs), (table, other)
        return len(pairs)

    ward = {"max-hausdorff": "max-hausdorff/ward", "wa": "wa/ward"}
    assert repeats("main", "per-category") == 12  # magnetic tiles
    assert repeats("main", "clusterers-full", ward) == 18
    assert repeats("poolings", "clusterers-subsets", ward) == 4
    assert repeats("clusterers", "clusterers-full") == 54
    assert repeats("hausdorff", "main", {"max-min max": "max-hausdorff"}) == 3
    assert repeats("weights", "main", {"mean": "wa"}) == 3
    in_tables = ("main", "per-category", "clusterers", "purity")
    assert sum(repeats("text", table) for table in in_tables) == 11


# ---- known disagreements and oddities of the paper: its numbers are kept as printed ----


def overall(row: str, metric: str, weights: tuple[int, int, int]) -> float:
    parts = zip(("object", "texture", "mtd"), weights, strict=True)
    return sum(weight * value("main", part, row, metric) for part, weight in parts) / sum(weights)


def test_known_overall_weighs_objects_as_5_and_textures_as_10() -> None:
    off = set()
    for row, metric in product(DISTANCES, SCORES):
        printed = value("main", "overall", row, metric)
        assert abs(printed - overall(row, metric, (5, 10, 1))) <= ROUNDING
        if abs(printed - overall(row, metric, (10, 5, 1))) > ROUNDING:
            off.add((row, metric))
    # There are 10 objects, 5 textures and 1 set of tiles; one number of twelve fits that by chance.
    assert off == set(product(DISTANCES, SCORES)) - {("average", "f1")}


def test_known_subset_table_repeats_cells_of_the_full_data() -> None:
    repeated = [cell for cell in published("clusterers-subsets") if cell.stderr is None]
    assert len(repeated) == 32
    for cell in repeated:
        assert value("clusterers", cell.set, cell.row, cell.metric) == cell.value


def test_known_iic_at_its_best_epoch_is_below_its_last_on_tiles() -> None:
    below = {
        (cell.set, cell.row, cell.metric)
        for cell in published("clusterers-full")
        if cell.row in DEEP[::2]
        and value("clusterers-full", cell.set, f"{cell.row}-best", cell.metric) < cell.value
    }
    assert below == set(product(("mtd",), ("deep/iic",), SCORES))


@pytest.mark.parametrize("row", ["deep/scan", "deep/scan-best"])
def test_known_scan_has_one_f1_for_objects_and_textures(row: str) -> None:
    both = [value("clusterers-full", part, row, "f1") for part in ("object", "texture")]
    assert both[0] == both[1]


def test_known_spoc_is_the_average() -> None:
    # Its sigma of 1000 is far wider than the grid of patches, so that all weigh the same.
    for cell in published("poolings"):
        if cell.row == "spoc":
            assert value("poolings", cell.set, "average", cell.metric) == cell.value


def test_known_normals_help_textures_only_on_subsets() -> None:
    gains = {
        table: value(table, "texture", "wa-semi", "nmi") - value(table, "texture", "wa", "nmi")
        for table in ("main", "poolings")
    }
    assert gains["main"] == pytest.approx(-0.005)
    assert gains["poolings"] == pytest.approx(0.037)


def test_known_max_is_not_always_the_better_aggregate() -> None:
    # Section 5.3 says that it is; not for mean-min on objects.
    pairs = set(product(("object", "texture", "mtd"), ("max-min", "mean-min")))
    better = {
        (part, inner)
        for part, inner in pairs
        if value("hausdorff", part, f"{inner} max", "nmi")
        > value("hausdorff", part, f"{inner} mean", "nmi")
    }
    assert better == pairs - {("object", "mean-min")}

"""The preset `paper`, from image files to groups, against the paper's formulas in plain NumPy."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from flawsort import AnomalyClusterer
from flawsort.backbones import Backbone, load_backbone
from flawsort.core.errors import OptionError
from flawsort.core.records import Bags
from flawsort.embeddings.method import PRESETS, Method
from flawsort.fitting.memory import Sizes
from flawsort.scores.engines import CpuLimits
from helpers.bags import Array, flawed_patches, same_partition
from helpers.plates import SIDE, settings, write_plates

KINDS = ("dent",) * 6 + ("streak",) * 6 + ("good",) * 4
# Any amount of work is too much to do exactly, wherever the size decides.
SMALL = Sizes(cpu=CpuLimits(exact_flop=0.0, singles_flop=0.0))


def bag_of(path: Path, backbone: Backbone) -> Array:
    """(n_patches, dim): each map 3 x 3 pooled, brought to the finest grid, of unit length."""
    pixels = np.asarray(Image.open(path), np.float32).transpose(2, 0, 1)[None] / 255
    maps = [one[0].astype(float) for one in backbone.feature_maps(pixels)]
    side, parts = max(one.shape[1] for one in maps), []
    for one in maps:
        n = one.shape[1]
        near = abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 1
        mean = near / near.sum(axis=1, keepdims=True)
        at = np.clip((np.arange(side) + 0.5) * n / side - 0.5, 0, n - 1)
        between = np.maximum(1 - abs(at[:, None] - np.arange(n)), 0) @ mean
        part = between @ one @ between.T
        parts.append(part / np.linalg.norm(part, axis=0))
    bag = np.concatenate(parts).reshape(-1, side * side).T / np.sqrt(len(parts))
    return bag.astype(np.float16).astype(float)  # patches are kept in half precision


def nearest(bag: Array, other: Array) -> Array:
    return np.asarray(
        [np.sqrt(((patch - other) ** 2).sum(axis=1)).min() for patch in bag], np.float64
    )


def by_hand(bags: list[Array], normals: list[Array] | None, k: int) -> tuple[Array, ...]:
    """Scores (Eq. 5, or Eq. 6 with normals), weights, weighted averages (Eq. 1), Ward's groups."""
    if normals is None:
        others = [[b for b in bags if b is not bag] for bag in bags]
        scores = np.array(
            [
                np.mean([nearest(bag, o) for o in rest], axis=0)
                for bag, rest in zip(bags, others, strict=True)
            ]
        )
    else:
        scores = np.array([nearest(bag, np.concatenate(normals)) for bag in bags])
    weights = np.exp(scores / (0.3 * scores.std()))
    weights /= weights.sum(axis=1, keepdims=True)
    averages = np.array([w @ bag for w, bag in zip(weights, bags, strict=True)])
    groups = fcluster(linkage(pdist(averages), "ward"), k, "maxclust")
    return scores, weights, averages, groups


@pytest.fixture(scope="module")
def plates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("by-hand")
    write_plates(home / "parts", KINDS)
    write_plates(home / "good", ("good",) * 10)
    return home


@pytest.fixture(scope="module")
def expected(plates: Path) -> dict[bool, tuple[Array, ...]]:
    """Without and with normals."""
    backbone = load_backbone("efficientnet-lite2", image_size=SIDE)
    bags, normals = (
        [bag_of(path, backbone) for path in sorted((plates / name).iterdir())]
        for name in ("parts", "good")
    )
    return {False: by_hand(bags, None, 3), True: by_hand(bags, normals, 3)}


def fitted(plates: Path, normals: bool, method: str | Method, **others: Any) -> AnomalyClusterer:
    model = AnomalyClusterer(n_clusters=3, method=method, **settings(device="cpu", **others))
    model.sizes = SMALL
    return model.fit(plates / "parts", normal=plates / "good" if normals else None)


@pytest.mark.parametrize("normals", [False, True])
def test_the_preset_is_the_paper(
    plates: Path, expected: dict[bool, tuple[Array, ...]], normals: bool
) -> None:
    model = fitted(plates, normals, "paper")
    scores, weights, averages, groups = expected[normals]
    np.testing.assert_allclose(model.scores_, scores, atol=1e-4)
    np.testing.assert_allclose(model.weights_, weights, rtol=5e-3)
    np.testing.assert_allclose(model.embeddings_, averages, atol=2e-4)
    assert same_partition(model.labels_, groups)
    assert model.scored_ == (
        "compared with 640 known-good patches, searched exactly (NumPy on the CPU, float32)"
        if normals
        else "compared with each other (NumPy on the CPU, float32)"
    )


def test_in_inverted_lists_only_if_asked_and_then_it_says_how_good(
    plates: Path, expected: dict[bool, tuple[Array, ...]]
) -> None:
    model = fitted(plates, True, replace(PRESETS["paper"], exact=False))
    scores, _, averages, groups = expected[True]
    # 16 of 63 lists are searched: no distance is too short, and most are right.
    assert (model.scores_ >= scores - 1e-4).all()
    assert (model.scores_ <= scores + 1e-4).mean() > 0.9
    np.testing.assert_allclose(model.embeddings_, averages, atol=0.02)
    assert same_partition(model.labels_, groups)
    assert re.fullmatch(
        r"compared with 640 known-good patches, searched approximately \(inverted lists; the "
        r"highest-scoring patches exactly\); the nearest was found for [0-9.]+% of the 80 "
        r"highest-scoring patches of 8 images",
        model.scored_,
    )


@pytest.mark.parametrize("arithmetic", [None, "int8"])
def test_in_eight_bits_only_if_asked_and_then_it_says_how_good(
    plates: Path, expected: dict[bool, tuple[Array, ...]], arithmetic: str | None
) -> None:
    model = fitted(plates, False, replace(PRESETS["paper"], exact=False), arithmetic=arithmetic)
    scores, _, averages, groups = expected[False]
    np.testing.assert_allclose(model.scores_, scores, atol=5e-3)
    np.testing.assert_allclose(model.embeddings_, averages, atol=0.01)
    assert same_partition(model.labels_, groups)
    assert re.fullmatch(
        r"compared with each other \(onnxruntime on the CPU, int8\); [0-9.]+% of the 80 "
        r"highest-scoring patches of 8 images are the highest in single precision too",
        model.scored_,
    )


@pytest.mark.parametrize("normals", [False, True])
def test_eight_bits_are_never_called_exact(plates: Path, normals: bool) -> None:
    said = r"arithmetic must be one that does not round distances, .* Got 'int8'\."
    with pytest.raises(OptionError, match=said):
        fitted(plates, normals, "paper", arithmetic="int8")
    uniform = replace(PRESETS["paper"], weights="uniform")
    assert fitted(plates, False, uniform, arithmetic="int8").labels_ is not None  # compares nothing


def test_the_recall_of_every_view_is_told() -> None:
    """The groups rest on all views, so that the first one's is not enough."""
    patches = flawed_patches([0] * 12 + [1] * 12)
    other = flawed_patches([0] * 12 + [1] * 12, seed=1)
    bags = Bags(patches, (6, 6), beside=(Bags(other, (6, 6)),))
    normals = bags.take(range(12))
    one = r"the nearest was found for [0-9.]+% of the 80 highest-scoring patches of 8 images"
    for known, told in ((normals, rf"{one}; view 2: {one}"), (None, r".*; view 2: .* too")):
        model = AnomalyClusterer(method=Method(exact=False), arithmetic="int8", n_clusters=2)
        said = model.fit(bags, normal=known).scored_
        assert re.search(rf"; view 1: {told}$", said), said
    exact = AnomalyClusterer(method=Method(exact=True), n_clusters=2).fit(bags).scored_
    assert exact == "compared with each other (NumPy on the CPU, float32)"


def test_other_presets_decide_by_size(plates: Path) -> None:
    model = fitted(plates, True, "fast")
    assert model.scored_.endswith(
        "searched approximately (inverted lists; the highest-scoring patches exactly)"
    )
    assert "int8" in fitted(plates, False, "fast").scored_

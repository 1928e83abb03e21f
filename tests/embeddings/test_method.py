"""The choices of the method and the presets."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from flawsort.backbones import DEFAULT_BACKBONE, SECOND_BACKBONE, BackboneChoice
from flawsort.core.errors import OptionError
from flawsort.core.text import either
from flawsort.embeddings.method import (
    PRESETS,
    TEMPERATURE,
    VIEWS,
    Method,
    poolings_of_any_weights,
    preset_of,
    resolve,
    views_of,
)
from flawsort.embeddings.pooling import POOLINGS

POOLING_NAMES = either(f"'{name}'" for name in POOLINGS)
UNIFORM_POOLINGS = either(f"'{name}'" for name in poolings_of_any_weights())


def test_presets_by_name_and_methods_as_given() -> None:
    assert resolve("default") == Method()
    paper = resolve("paper")
    assert (paper.pooling, paper.nearest_share, paper.n_peers) == ("average", 1.0, "all")
    method = Method(temperature=2.0)
    assert resolve(method) is method
    assert (paper.calibrated, paper.mean_share) == (False, 0)
    assert [PRESETS[name].exact for name in PRESETS] == [None, None, True]
    assert list(PRESETS) == list(VIEWS) == ["default", "fast", "paper"]


def test_repr_shows_what_differs_from_the_default() -> None:
    assert repr(Method()) == "Method()"
    method = Method(temperature=2.0, clusterer="average")
    assert repr(method) == "Method(temperature=2.0, clusterer='average')"
    assert all(eval(repr(one), {"Method": Method}) == one for one in (method, *PRESETS.values()))


def test_the_views_of_presets() -> None:
    """The default looks with two networks, closely; a method of your own as well."""
    close, second = views_of("default")
    assert close == BackboneChoice(DEFAULT_BACKBONE, image_size=512, grid=32)
    assert second == BackboneChoice(SECOND_BACKBONE)
    assert views_of("fast") == views_of("paper") == (BackboneChoice(DEFAULT_BACKBONE),)
    assert views_of(Method(temperature=2.0)) == (close, second)


def test_presets_are_known_by_method_and_views() -> None:
    for name in PRESETS:
        assert preset_of(resolve(name), views_of(name)) == name
    assert preset_of(Method(temperature=2.0), views_of("default")) is None
    assert preset_of(resolve("paper"), views_of("default")) is None
    assert preset_of(Method(), (BackboneChoice(DEFAULT_BACKBONE, image_size=64),)) is None


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(
        OptionError, match=r"method must be one of default, fast, paper or a Method\. Got 'papre'\."
    ):
        resolve("papre")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"weights": "max"},
            r"weights must be 'auto', 'uniform', 'masks' or 'heat-maps'\. Got 'ma",
        ),
        (
            {"among_peers": "sum", "nearest_share": 1.0},
            "among_peers must be 'mean', 'max' or 'min'",
        ),
        ({"among_peers": "max"}, r"among_peers must be 'mean' where only the nearest peers count"),
        (
            {
                "among_peers": "max",
                "nearest_share": 1.0,
                "weights": "uniform",
                "pooling": "average",
            },
            r"among_peers is about images that are compared, and the weights 'uniform' compare no",
        ),
        ({"top_k": 0}, r"top_k must be a whole number of patches, at least 1\. Got 0\."),
        ({"top_k": 2.5}, r"top_k must be a whole number of patches, at least 1\. Got 2\.5\."),
        ({"top_k": True}, r"top_k must be a whole number of patches"),
        ({"top_k": 2, "weights": "masks", "pooling": "average"}, r"top_k needs scores, which the "),
        ({"top_weights": "hard"}, r"top_weights says how the patches of top_k are weighed"),
        ({"distance": "cosine"}, r"distance must be 'embeddings', 'mean-mean', 'max-min max'"),
        ({"clusterer": "dbscan"}, r"clusterer must be 'kmeans', 'gmm', 'kmedoids', 'spectral', "),
        (
            {"clusterer": "gmm", "distance": "min-min"},
            r"clusterer must be 'kmedoids', 'spectral', ",
        ),
        ({"weights": "masks"}, rf"pooling must be {UNIFORM_POOLINGS} for weights from masks: "),
        ({"pooling": "max"}, rf"pooling must be {POOLING_NAMES}\. Got 'max'\."),
        ({"nearest_share": 0.0}, r"greater than 0 and at most 1\. Got 0\.0\."),
        ({"nearest_share": 1.1}, r"greater than 0 and at most 1\. Got 1\.1\."),
        ({"nearest_share": math.nan}, r"greater than 0 and at most 1\. Got nan\."),
        ({"n_peers": 1}, r"n_peers must be 'all' or at least 2\. Got 1\."),
        ({"n_peers": "some"}, r"n_peers must be 'all' or at least 2\. Got some\."),
        ({"temperature": 0.0}, r"^temperature must be greater than 0 and finite\. Got 0\.0\."),
        ({"temperature": math.inf}, r"^temperature must be greater than 0 and finite\. Got inf\."),
        ({"absolute_temperature": -1.0}, r"^absolute_temperature must be greater than 0"),
        ({"mean_share": -0.1}, r"mean_share must be at least 0 and at most 10\. Got -0\.1\."),
        ({"mean_share": math.nan}, r"mean_share must be at least 0 and at most 10\. Got nan\."),
        ({"temperature": 1.0, "absolute_temperature": 1.0}, r"one of the two, not both\."),
        (
            {"weights": "uniform"},
            rf"pooling must be {UNIFORM_POOLINGS} for uniform weights: .* no residual to pool",
        ),
    ],
)
def test_choices_outside_what_is_accepted(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Method(**options)


def test_the_poolings_of_today() -> None:
    assert list(POOLINGS)[:2] == ["residual", "average"]
    assert Method().pooling == "residual"
    assert poolings_of_any_weights()[0] == "average"


def test_numbers_of_numpy_are_plain_ones() -> None:
    """A run writes them as JSON."""
    method = Method(top_k=np.int64(5), n_peers=np.int32(9))  # type: ignore[arg-type]
    assert method == Method(top_k=5, n_peers=9)
    assert json.dumps([method.top_k, method.n_peers]) == "[5, 9]"
    with pytest.raises(OptionError, match=r"top_k must be a whole number .* Got 0\."):
        Method(top_k=np.int64(0))  # type: ignore[arg-type]


@pytest.mark.parametrize("n_peers", [None, "all", 2, 500])
def test_numbers_of_peers_that_are_accepted(n_peers: Any) -> None:
    assert Method(n_peers=n_peers).n_peers == n_peers


def test_temperatures_are_relative_to_the_spread_unless_absolute() -> None:
    assert Method().temperature_for(2.0) == 2 * TEMPERATURE
    assert Method(temperature=0.7).temperature_for(2.0) == 1.4
    assert Method(absolute_temperature=0.7).temperature_for(2.0) == 0.7


def test_what_a_method_needs() -> None:
    assert Method().compares
    assert not Method().is_held
    assert Method(weights="heat-maps").compares
    for method in (
        Method(weights="heat-maps", pooling="average"),
        Method(weights="masks", pooling="average"),
        Method(weights="uniform", pooling="average"),
    ):
        assert not method.compares
        assert method.has_scores == method.takes_maps == (method.weights != "uniform")
        assert method.is_held == method.takes_maps
    assert Method(distance="min-min").is_held

"""The choices of the method and the presets."""

from __future__ import annotations

import math
from typing import Any

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
    assert list(PRESETS) == list(VIEWS) == ["default", "fast", "paper"]


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
        ({"weights": "max"}, r"weights must be 'auto' or 'uniform'\. Got 'max'\."),
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


@pytest.mark.parametrize("n_peers", [None, "all", 2, 500])
def test_numbers_of_peers_that_are_accepted(n_peers: Any) -> None:
    assert Method(n_peers=n_peers).n_peers == n_peers


def test_temperatures_are_relative_to_the_spread_unless_absolute() -> None:
    assert Method().temperature_for(2.0) == 2 * TEMPERATURE
    assert Method(temperature=0.7).temperature_for(2.0) == 1.4
    assert Method(absolute_temperature=0.7).temperature_for(2.0) == 0.7

"""Images outside the run in edits: what comes back of them, and forged ones."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from flawsort.core.errors import OptionError
from flawsort.labels.example_checks import (
    carried_examples,
    examples_of,
    packed,
    packed_example,
)
from flawsort.labels.groups import Group, Labelling

KNOWN = Labelling({4: Group(4)}, np.full(3, 4), np.zeros(3, bool), 1, 5)
SHA = "0123456789abcdef" * 4


def vector(*values: float) -> str:
    return base64.b64encode(np.array(values, np.float16).tobytes()).decode()


def test_what_is_packed_comes_back() -> None:
    values = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    (found,) = examples_of([packed(" new one.png ", SHA, values)], 4)
    assert (found.name, found.sha256, found.group) == ("new one.png", SHA, 4)
    np.testing.assert_array_equal(found.vector, values.astype(np.float16).astype(np.float32))
    (again,) = carried_examples([packed_example(found)], KNOWN)
    assert (again.name, again.sha256, again.group) == (found.name, SHA, 4)
    np.testing.assert_array_equal(again.vector, found.vector)


def test_of_an_image_that_is_carried_twice_the_last_counts() -> None:
    twice = [{**packed("a", SHA, np.full(2, number)), "group": 4} for number in (1, 2)]
    (found,) = carried_examples(twice, KNOWN)
    assert found.vector.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"sha256": SHA[:-1]}, r"sha256 must be 64 hexadecimal digits\. Got '0123"),
        ({"sha256": SHA.upper()}, r"sha256 must be 64 hexadecimal digits"),
        ({"sha256": 7}, r"sha256 must be 64 hexadecimal digits\. Got 7"),
        ({"name": "a\0"}, r"name must be one line without control characters"),
        ({"name": ["a"]}, r"name must be text"),
        ({"vector": ""}, r"vector must hold finite numbers"),
        ({"vector": "AAA"}, r"vector must be half-precision numbers in base64"),
        ({"vector": "AA=="}, r"vector must be half-precision numbers in base64"),
        ({"vector": "A A="}, r"vector must be half-precision numbers in base64"),
        ({"vector": "\u00e9\u00e9\u00e9\u00e9"}, r"vector must be half-precision numbers"),
        ({"vector": [1.0]}, r"vector must be half-precision numbers in base64\. Got \[1\.0\]"),
        ({"vector": vector(1, np.nan)}, r"vector must hold finite numbers"),
        ({"vector": vector(np.inf)}, r"vector must hold finite numbers"),
        ({"group": 4}, r"examples must each have name, sha256, vector"),
    ],
)
def test_forged_images_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text) as caught:
        examples_of([{**packed("a", SHA, np.ones(2)), **change}], 4)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("examples", "text"),
    [
        ([], r"examples must hold at least one image"),
        ({"0": 1}, r"examples must be a list of images"),
        ([7], r"examples must each have name, sha256, vector\. Got 7"),
        ([{"name": "a"}], r"examples must each have name, sha256, vector"),
        ([packed("a", SHA, np.ones(2))] * 2, r"must be different images\. Got one of them twice"),
    ],
)
def test_forged_lists_are_refused(examples: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        examples_of(examples, 4)


def test_anything_else_is_refused_with_an_error_that_says_so() -> None:
    """Values of any type in any place: they are taken as they are meant, or refused."""
    rng = np.random.default_rng(1)
    values: list[Any] = [None, True, 3, -1.5, "", "x", SHA, "AAAA", [], [SHA], {}, {"name": "a"}]
    taken = 0
    for _ in range(3000):
        one: dict[str, Any] = dict(packed("a", SHA, np.ones(2)))
        for key in list(one):
            if rng.random() < 0.4:
                one[key] = values[rng.integers(len(values))]
        if rng.random() < 0.1:
            one.pop(str(rng.choice(list(one))))
        try:
            (found,) = examples_of([one], 4)
        except OptionError:
            continue
        taken += 1
        assert found.sha256 == one["sha256"] == SHA
        assert np.isfinite(found.vector).all()
    assert 500 < taken < 2500

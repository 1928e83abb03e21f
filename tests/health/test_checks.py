"""The list of checks: nothing is found where nothing is wrong, and findings come in order."""

from __future__ import annotations

import numpy as np

from flawsort.health.checks import CHECKS, copies, examine, shrunk
from flawsort.images.view import View
from helpers.facts import N, changed, made_facts


def test_nothing_is_wrong_with_the_images_of_the_tests() -> None:
    for normals in (30, 0):
        assert examine(made_facts(normals=normals)).findings == ()


def test_the_most_serious_come_first_and_what_is_missing_is_told() -> None:
    facts = made_facts(normals=3, digests=("a",) * N, missing=("Nobody knows.",))
    found = examine(facts)
    codes = [code for check in CHECKS for code in check.codes]
    order = [codes.index(one.code) for one in found.findings]
    assert [one.code for one in found.findings] == ["few-normals", "copies"]
    assert order == sorted(order)
    assert found.not_looked_at == ("Nobody knows.",)
    assert len(set(codes)) == len(codes)


def test_images_much_larger_than_what_is_looked_at() -> None:
    large = {"width": np.full(N, 6000.0), "height": np.full(N, 4000.0), "input_size": (512, 512)}
    (found,) = shrunk(made_facts(**large))
    assert found.value == 6000 / 512
    assert "11.7 times smaller" in found.sentence
    assert shrunk(made_facts(**large, view=View(tiles=(9, 13)))) == []
    assert (
        shrunk(made_facts(**{**large, "width": np.full(N, 1000.0), "height": np.full(N, 900.0)}))
        == []
    )
    assert shrunk(made_facts(**{**large, "width": np.full(N, np.nan)})) == []


def test_a_few_large_images_among_small_ones_are_named() -> None:
    large = np.arange(N) < 2
    sizes = {"width": np.where(large, 2000.0, 500.0), "height": np.where(large, 1500.0, 400.0)}
    facts = made_facts(**sizes, input_size=(512, 512))
    (found,) = shrunk(facts)
    assert found.value == 2000 / 512
    assert found.images == ("000.png", "001.png")
    assert found.sentence == (
        "2 of the 40 images are looked at 3.9 times smaller than they are or more, so that small "
        "flaws cannot be seen: 000.png, 001.png."
    )
    assert found.advice.endswith("--tile 4x5.")
    assert shrunk(made_facts(**sizes, input_size=(512, 512), view=View(tiles=(4, 5)))) == []
    (found,) = shrunk(
        changed(facts, width=np.where(np.arange(N) < 1, 2000.0, 500.0), height=400.0 + 0 * large)
    )
    assert found.sentence.startswith(
        "1 of the 40 images is looked at 3.9 times smaller than it is,"
    )


def test_copies_are_counted_without_their_first() -> None:
    digests = ("a", "a", "b", "a", *(str(row) for row in range(N - 4)))
    (found,) = copies(made_facts(digests=digests))
    assert found.images == ("001.png", "003.png")
    assert found.sentence == "2 of the 40 images are exact copies of others."
    assert copies(made_facts()) == []

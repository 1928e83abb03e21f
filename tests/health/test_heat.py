"""Where the heat lies: on the background, at the border, or always in one place."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from flawsort.health import heat
from flawsort.health.facts import ROWS_AT_ONCE, Facts
from flawsort.health.heat import _look, elsewhere
from flawsort.health.normals import unlike
from flawsort.health.pictures import SIDE
from helpers.facts import GRID, N, changed, made_facts

CODES = {"heat-on-background", "heat-at-border", "same-place"}


def hot(facts: Facts, rows: range, places: list[int]) -> Facts:
    scores = facts.scores.copy()
    for row, place in zip(rows, places, strict=True):
        scores[row, place] = 5.0
    return changed(facts, scores=scores, image_scores=scores.max(axis=1))


def test_heat_inside_the_part_is_no_finding() -> None:
    assert elsewhere(made_facts()) == []


def test_heat_at_the_border() -> None:
    border = [row * GRID[1] + column for row in range(8) for column in (0, 23)]
    facts = hot(made_facts(), range(30), [border[row % 16] for row in range(30)])
    (found,) = elsewhere(facts)
    assert found.code == "heat-at-border"
    assert found.sentence.startswith("In 30 of 35 unusual images, the most unusual place is at the")
    assert found.images == facts.names[:30]
    assert "known-good" in found.advice
    (found,) = elsewhere(changed(facts, normal_digests=None))
    assert "known-good" not in found.advice
    assert elsewhere(changed(facts, compared=False)) == []
    # The same places, few of the unusual images.
    assert elsewhere(hot(made_facts(), range(9), border[:9])) == []


def test_the_border_of_padding_counts_and_padding_does_not() -> None:
    valid = np.ones((N, *GRID), bool)
    valid[:, :, :3] = False
    inside = [(row % 18 + 1) * GRID[1] + 3 for row in range(30)]
    facts = hot(made_facts(), range(30), inside)
    assert elsewhere(facts) == []
    (found,) = elsewhere(changed(facts, valid=valid.reshape(N, -1)))
    assert found.code == "heat-at-border"
    padding = hot(made_facts(), range(30), [place - 2 for place in inside])
    assert elsewhere(changed(padding, valid=valid.reshape(N, -1))) == []


def test_heat_on_a_plain_background() -> None:
    background = np.zeros((N, SIDE, SIDE), bool)
    background[:, :, : SIDE // 2] = True
    left = [GRID[1] * (2 + row % 9) + 2 + row % 7 for row in range(30)]
    facts = changed(hot(made_facts(), range(30), left), background=background)
    (found,) = elsewhere(facts)
    assert found.code == "heat-on-background"
    assert len(found.images) >= 30
    background[: N // 10] = False  # so many images show none
    assert elsewhere(changed(facts, background=background)) == []


def test_one_place_that_is_always_hot() -> None:
    place = 4 * GRID[1] + 20
    facts = hot(made_facts(), range(36), [place] * 36)
    (found,) = elsewhere(facts)
    assert (found.code, found.value) == ("same-place", 0.9)
    assert found.sentence == "One place, at the top right, is unusual in 36 of 40 images."
    everywhere = changed(facts, scores=facts.scores + 5.0)
    assert elsewhere(everywhere) == []


def test_blocks_of_images_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    valid = np.random.default_rng(1).random((N, GRID[0] * GRID[1])) < 0.9
    border = [row * GRID[1] for row in range(1, 19)]
    facts = hot(made_facts(valid=valid), range(30), [border[row % 18] for row in range(30)])
    whole = _look(facts)
    monkeypatch.setattr(heat, "ROWS_AT_ONCE", 7)
    parts = _look(facts)
    for name in ("rows", "peaks", "at_border", "by_chance", "often"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


def test_the_memory_of_large_sets_does_not_grow_with_their_patches() -> None:
    """Numbers of half precision: a copy in double precision would take four times as much."""
    n = 3000
    facts = made_facts(n)
    facts = changed(facts, scores=facts.scores.astype(np.float16))
    elsewhere(facts)
    tracemalloc.start()
    try:
        elsewhere(facts)
        unlike(facts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * ROWS_AT_ONCE * facts.scores.shape[1] * 8 + 200 * n

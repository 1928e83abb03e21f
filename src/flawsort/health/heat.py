"""Checks of where the heat lies: on the part, or where no flaw can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools
from flawsort.core.text import pluralise
from flawsort.core.threads import blocks
from flawsort.health.facts import ROWS_AT_ONCE, Facts
from flawsort.health.pictures import SIDE
from flawsort.health.record import Finding

# The thresholds are chosen over all sets of docs/evidence/health.md.
# The hottest places of at least this share of the unusual images, and of at least so many images.
MOST = 0.5
LEAST_IMAGES = 8
# At the border means more often than if places were drawn at random by this factor.
MORE_THAN_CHANCE = 3.0
# A background is known if it is seen in at least this share of the images.
LEAST_SEEN = 0.95
# One place is hot in at least this share of all images, and by so much more often than nine tenths
# of the places.
ALWAYS = 0.8
ELSEWHERE = 0.9
CLEARLY = 0.3

Rows: TypeAlias = NDArray[np.int64]


def elsewhere(facts: Facts) -> list[Finding]:
    """The hottest places lie on a plain background, at the border, or all in one place: of these
    the one that holds for most images."""
    if not facts.compared:
        return []
    seen = _look(facts)
    found = [way(facts, seen) for way in (_on_background, _at_border, _in_one_place)]
    made = [one for one in found if one is not None]
    return [max(made, key=lambda one: one.value)] if made else []


@dataclass(frozen=True)
class _Seen:
    """rows: of the unusual images. peaks: the hottest patch of each, and at_border: whether that is
    at the border. by_chance: the share of the patches that are. often: (n_patches,), the share of
    all images in which a patch is hot."""

    rows: Rows
    peaks: Rows
    at_border: Bools
    by_chance: float
    often: NDArray[np.float64]


def _look(facts: Facts) -> _Seen:
    """A few images at a time: intermediate results take more memory than the scores."""
    n, n_patches = facts.scores.shape
    peaks, at_border = np.zeros(n, np.int64), np.zeros(n, bool)
    unusual, often = np.zeros(n, bool), np.zeros(n_patches)
    n_counted = n_border = 0
    for rows in blocks(n, ROWS_AT_ONCE):
        counted = _counted(facts, rows)
        scores = np.where(counted, np.nan_to_num(facts.scores[rows], nan=-np.inf), -np.inf)
        border, own = _border(counted, facts.grid), np.arange(len(scores))
        peaks[rows] = scores.argmax(axis=1)
        at_border[rows] = border[own, peaks[rows]]
        unusual[rows] = scores.max(axis=1) > facts.heat.low
        often += (scores > facts.heat.low).sum(axis=0)
        n_counted, n_border = n_counted + int(counted.sum()), n_border + int(border.sum())
    if facts.heat.normal_below is not None:
        unusual &= facts.image_scores > facts.heat.normal_below
    rows_of = np.flatnonzero(unusual)
    chance = n_border / max(n_counted, 1)
    return _Seen(rows_of, peaks[rows_of], at_border[rows_of], chance, often / n)


def _on_background(facts: Facts, seen: _Seen) -> Finding | None:
    background, rows = facts.pictured.background, seen.rows
    if background.any(axis=(1, 2)).mean() < LEAST_SEEN:
        return None
    down, across = np.divmod(seen.peaks, facts.grid[1])
    there = background[rows, down * SIDE // facts.grid[0], across * SIDE // facts.grid[1]]
    if not _most(there):
        return None
    return _finding(
        facts,
        "heat-on-background",
        rows[there],
        len(rows),
        "is on the plain background and not on the part",
        "Clean the background, or leave it out with --roi and a mask image of the part.",
    )


def _at_border(facts: Facts, seen: _Seen) -> Finding | None:
    """At the border of the picture, of the padding, or of the region of interest."""
    there = seen.at_border
    if not _most(there) or there.mean() < MORE_THAN_CHANCE * seen.by_chance:
        return None
    return _finding(
        facts,
        "heat-at-border",
        seen.rows[there],
        len(seen.rows),
        "is at the border of what is looked at",
        "If nothing can be wrong there, leave the border out with --roi, or take pictures that "
        "show the same surroundings as the known-good ones."
        if facts.normal_digests is not None
        else "If nothing can be wrong there, leave the border out with --roi.",
    )


def _in_one_place(facts: Facts, seen: _Seen) -> Finding | None:
    """One place is hot in nearly all images, and most others are not."""
    if len(facts) < LEAST_IMAGES:
        return None
    place, share = int(seen.often.argmax()), float(seen.often.max())
    if share < ALWAYS or share - np.quantile(seen.often, ELSEWHERE) < CLEARLY:
        return None
    where = _words(*divmod(place, facts.grid[1]), facts.grid)
    hot = np.nan_to_num(facts.scores[:, place], nan=-np.inf) > facts.heat.low
    if facts.valid is not None:
        hot &= facts.valid[:, place]
    rows = np.flatnonzero(hot)
    return Finding(
        "same-place",
        f"One place, {where}, is unusual in {len(rows):,} of {pluralise(len(facts), 'image')}.",
        "If that is dirt on the lens, a stamp or a clamp and no flaw, remove it, or leave the "
        "place out with --roi and a mask image.",
        share,
        None,
        tuple(facts.names[row] for row in rows),
    )


def _counted(facts: Facts, rows: slice) -> Bools:
    """(n, n_patches): the patches that count, of some of the images."""
    return np.ones(facts.scores[rows].shape, bool) if facts.valid is None else facts.valid[rows]


def _border(counted: Bools, grid: tuple[int, int]) -> Bools:
    """(n, n_patches): the patches that count and that have a neighbour which does not."""
    maps = counted.reshape(-1, *grid)
    padded = np.pad(maps, ((0, 0), (1, 1), (1, 1)))
    inner = padded[:, :-2, 1:-1] & padded[:, 2:, 1:-1] & padded[:, 1:-1, :-2] & padded[:, 1:-1, 2:]
    border: Bools = (maps & ~inner).reshape(counted.shape)
    return border


def _most(there: Bools) -> bool:
    return bool(there.sum() >= LEAST_IMAGES and there.mean() >= MOST)


def _words(down: int, across: int, grid: tuple[int, int]) -> str:
    """A place in words: "at the top right"."""
    third = int(3 * (down + 0.5) / grid[0]), int(3 * (across + 0.5) / grid[1])
    words = (("top", "", "bottom")[third[0]], ("left", "", "right")[third[1]])
    side = " ".join(filter(None, words))
    return f"at the {side}" if side else "in the middle"


def _finding(
    facts: Facts,
    code: str,
    rows: Rows,
    n: int,
    where: str,
    advice: str,
) -> Finding:
    said = f"In {len(rows):,} of {pluralise(n, 'unusual image')}, the most unusual place {where}."
    return Finding(code, said, advice, len(rows) / n, None, tuple(facts.names[i] for i in rows))

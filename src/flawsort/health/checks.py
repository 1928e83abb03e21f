"""The list of checks. To add one, write a function from Facts to findings and name it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flawsort.core.text import pluralise
from flawsort.health import groups, heat, normals
from flawsort.health.facts import Facts
from flawsort.health.record import Finding, Health
from flawsort.images.tiles import MOST_SHRUNK, about_shrunk, tiles_for


@dataclass(frozen=True)
class Check:
    """codes: of the findings that it can make. find: makes them."""

    codes: tuple[str, ...]
    find: Callable[[Facts], list[Finding]]


def shrunk(facts: Facts) -> list[Finding]:
    """Images are much larger than what the network sees of them."""
    times = facts.shrunk
    large = np.flatnonzero(times > MOST_SHRUNK)
    if not len(large):
        return []
    names = tuple(facts.names[row] for row in large)
    if 2 * len(large) > (times > 0).sum():
        usual = float(np.median(times[large]))
        sentence = (
            f"The images are looked at {usual:.1f} times smaller than they are, so that small "
            "flaws cannot be seen."
        )
        advice = (
            "Leave out --fit and --tile 1x1 (and use the preset default): large photos are then "
            "looked at in tiles."
        )
        return [Finding("shrunk", sentence, advice, usual, None, names)]
    photo = facts.photos[int(times.argmax())]
    assert photo is not None
    rows, columns = tiles_for(photo, facts.input_size)
    advice = (
        "Sort images of different sizes apart, or look at all of them more closely with --tile "
        f"{rows}x{columns}."
    )
    sentence = about_shrunk(facts.names, times)
    return [Finding("shrunk", sentence, advice, float(times.max()), None, names)]


def copies(facts: Facts) -> list[Finding]:
    """Images that are exact copies of others."""
    first: dict[str, str] = {}
    names = [
        name
        for name, digest in zip(facts.names, facts.digests, strict=True)
        if first.setdefault(digest, name) != name
    ]
    if not names:
        return []
    what = "is an exact copy of another" if len(names) == 1 else "are exact copies of others"
    return [
        Finding(
            "copies",
            f"{len(names):,} of the {pluralise(len(facts), 'image')} {what}.",
            "Leave copies out if groups are to be counted: each counts as an image.",
            float(len(names)),
            None,
            tuple(names),
        )
    ]


# The most serious first: in this order the findings are shown.
CHECKS = (
    Check(("normals-unlike",), normals.unlike),
    Check(("shrunk",), shrunk),
    Check(("few-normals",), normals.few),
    Check(("normals-among-images",), normals.among_images),
    Check(("heat-on-background", "heat-at-border", "same-place"), heat.elsewhere),
    Check(("not-apart",), normals.nothing_stands_out),
    Check(("single-images",), groups.single),
    Check(("groups-follow", "group-follows"), groups.follows),
    Check(("unsteady-groups",), groups.unsteady),
    Check(("copies",), copies),
)


def examine(facts: Facts) -> Health:
    """What all checks find, and what could not be looked at."""
    found = [finding for check in CHECKS for finding in check.find(facts)]
    return Health(tuple(found), facts.missing)

"""Checks of the known-good images: whether there are enough, and of the same kind as the images."""

from __future__ import annotations

import numpy as np

from flawsort.core.text import pluralise
from flawsort.core.threads import blocks
from flawsort.health.facts import ROWS_AT_ONCE, Facts
from flawsort.health.record import Finding

# Fewer known-good images than this rarely show everything that is normal (docs/evidence/health.md).
FEW_NORMALS = 10
# A flaw covers less than this share of most images; another product differs everywhere.
UNLIKE = 0.6
# Nothing stands out if at most this share of the images is unusual, as chance alone makes them,
# and if even the highest score is below this multiple of the limit.
BY_CHANCE = 0.06
FAR_OUT = 1.5
LEAST_IMAGES = 8


def unlike(facts: Facts) -> list[Finding]:
    """Most of most images is unlike the known-good ones."""
    if facts.normal_digests is None or not facts.compared:
        return []
    covered = np.empty(len(facts))
    for rows in blocks(len(facts), ROWS_AT_ONCE):
        hot = facts.scores[rows] > facts.heat.low
        valid = np.ones(hot.shape, bool) if facts.valid is None else facts.valid[rows]
        covered[rows] = (hot & valid).sum(axis=1) / np.maximum(valid.sum(axis=1), 1)
    usual = float(np.median(covered))
    if usual < UNLIKE:
        return []
    return [
        Finding(
            "normals-unlike",
            f"The images are unlike the known-good ones nearly everywhere: half of them over "
            f"{usual:.0%} of their area or more.",
            "Give known-good images of the same product, taken in the same way (light, camera, "
            "distance), or none.",
            usual,
        )
    ]


def few(facts: Facts) -> list[Finding]:
    """There are few known-good images."""
    if facts.normal_digests is None:
        return []
    known = len(set(facts.normal_digests))
    if known >= FEW_NORMALS:
        return []
    return [
        Finding(
            "few-normals",
            f"There are only {known} known-good images: what they do not show looks unusual."
            if known > 1
            else "There is only 1 known-good image: what it does not show looks unusual.",
            f"Give at least {FEW_NORMALS}, better 30 or more, that show everything that is normal.",
            float(known),
        )
    ]


def among_images(facts: Facts) -> list[Finding]:
    """Known-good images are among the images."""
    both = set(facts.normal_digests or ()) & set(facts.digests)
    if not both:
        return []
    names = tuple(
        name for name, digest in zip(facts.names, facts.digests, strict=True) if digest in both
    )
    return [
        Finding(
            "normals-among-images",
            f"{len(names):,} of the images {'is' if len(names) == 1 else 'are'} also among the "
            "known-good ones, and will look normal whatever they show.",
            "Leave them out of the one or the other.",
            float(len(names)),
            None,
            names,
        )
    ]


def nothing_stands_out(facts: Facts) -> list[Finding]:
    """No more images are unusual than chance makes them."""
    below = facts.heat.normal_below
    if below is None or not facts.compared or len(facts) < LEAST_IMAGES:
        return []
    unusual = facts.image_scores > below
    share = float(unusual.mean())
    if share > BY_CHANCE or facts.image_scores.max() > FAR_OUT * below:
        return []
    n, few_words = len(facts), pluralise(int(unusual.sum()), "image", none="None")
    start = f"Only {few_words} of {n:,} are" if unusual.sum() > 1 else f"Only 1 image of {n:,} is"
    start = start if unusual.any() else f"None of the {n:,} images is"
    return [
        Finding(
            "not-apart",
            f"{start} more unusual than known-good ones usually are, and none is far from them.",
            "If flawed images are among them, their flaws do not show at this size: look closer "
            "with --tile 2x2, or at a smaller region with --roi.",
            share,
        )
    ]

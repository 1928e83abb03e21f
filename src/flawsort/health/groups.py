"""Checks of the groups: whether they follow something besides the flaw, and hold together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.clusterers import WARD, cluster_embeddings
from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.records import Bools, Ints
from flawsort.core.text import pluralise
from flawsort.core.threads import in_threads
from flawsort.health.facts import Facts
from flawsort.health.measures import (
    LEAST_MEMBERS,
    explained,
    explained_kinds,
    explained_order,
    ranked_apart,
    told_apart,
)
from flawsort.health.record import Finding

# The thresholds are chosen over all sets of docs/evidence/health.md.
# The groups explain at least this share of how images differ, in brightness or the like.
FOLLOWED = 0.85
# The images of a group lie at least so many standard deviations from the others.
TOLD_APART = 5.0
# Folders are kinds of flaws, and no lots, if the scores of one rank above or below those of the
# others for this share of the pairs.
SCORED_APART = 0.95
FOLDER = "the folder"

RESAMPLES = 10
KEPT = 0.9
MOST_RESAMPLED = 1000
# Groups that other samples find again less than this well are not the same groups.
STEADY = 0.75
# A set of fewer groups may have single images by itself.
LEAST_GROUPS = 4


def follows(facts: Facts) -> list[Finding]:
    """Findings about all groups together if they follow something; else about single groups."""
    number, kinds, labels = _numbers(facts), _kinds(facts), facts.labels
    shares = {name: explained(values, labels) for name, values in number.items()}
    shares |= {name: explained_kinds(values, labels) for name, values in kinds.items()}
    shares |= {name: _in_order(facts, values) for name, values in _orders(facts).items()}
    found = {name: share for name, share in shares.items() if share >= FOLLOWED}
    if found:
        return [_of_all(found)]
    groups = range(facts.n_groups)
    return [one for group in groups for one in _of_group(facts, group, number, kinds)]


def single(facts: Facts) -> list[Finding]:
    """Most groups have one image."""
    sizes = np.bincount(facts.labels)
    alone = int((sizes == 1).sum())
    if facts.n_groups < LEAST_GROUPS or 2 * alone <= facts.n_groups:
        return []
    return [
        Finding(
            "single-images",
            f"{alone:,} of the {facts.n_groups:,} groups have a single image.",
            "Ask for fewer groups with --clusters, or move the slider of the report or the tree of "
            "the review, to see which images belong together.",
            alone / facts.n_groups,
            None,
            _names(facts, sizes[facts.labels] == 1),
        )
    ]


def unsteady(facts: Facts) -> list[Finding]:
    """The groups that a random part of the images does not show again."""
    if len(facts) < 2 * LEAST_MEMBERS or facts.n_groups < 2 or facts.clusterer is None:
        return []
    again = steadiness(facts)
    loose = [group for group in np.argsort(again, kind="stable").tolist() if again[group] < STEADY]
    if not loose:
        return []
    if len(loose) == facts.n_groups:
        return [
            Finding(
                "unsteady-groups",
                "No group stays the same when a random tenth of the images is left out.",
                "Do not read the groups as kinds of flaws: look at the images one by one, teach a "
                "few of them in the review, or add images.",
                float(again.max()),
            )
        ]
    listed = ", ".join(map(str, sorted(loose)))
    what = f"Group {listed} changes" if len(loose) == 1 else f"Groups {listed} change"
    return [
        Finding(
            "unsteady-groups",
            f"{what} when a random tenth of the images is left out; the others stay the same.",
            "Look at these images before you name the group, and split or merge it in the review."
            if len(loose) == 1
            else "Look at these images before you name the groups, and split or merge them in the "
            "review.",
            float(again[loose[0]]),
            loose[0] if len(loose) == 1 else None,
            _names(facts, np.isin(facts.labels, loose)),
        )
    ]


def steadiness(facts: Facts) -> NDArray[np.float64]:
    """(n_groups,): how well random 90% of the images, cut into as many groups, show each group
    again: the share that it and the group most like it have in common, on average (Hennig 2007)."""
    n, k, labels = len(facts), facts.n_groups, facts.labels
    size = min(round(KEPT * n), MOST_RESAMPLED)
    rng = np.random.default_rng(facts.random_state)
    order = np.array(sorted(range(n), key=facts.digests.__getitem__))  # names change nothing
    samples = [np.sort(rng.permutation(n)[:size]) for _ in range(RESAMPLES)]

    def again(sample: NDArray[np.int64]) -> NDArray[np.float64]:
        rows = order[sample]
        found = _grouped_again(facts, rows, min(k, size))
        both = np.zeros((k, k))
        np.add.at(both, (labels[rows], found), 1)
        either = both.sum(axis=1)[:, None] + both.sum(axis=0)[None] - both
        shared: NDArray[np.float64] = (both / np.maximum(either, 1)).max(axis=1)
        return np.where(both.sum(axis=1) > 0, shared, np.nan)

    found = np.array(list(in_threads(again, samples)))
    there = np.isfinite(found)
    total = np.where(there, found, 0.0).sum(axis=0)
    means: NDArray[np.float64] = np.where(
        there.any(axis=0), total / np.maximum(there.sum(axis=0), 1), 1.0
    )
    return means


def _grouped_again(facts: Facts, rows: Ints, k: int) -> NDArray[np.int64]:
    """(n_rows,): k groups of some of the images, made as those of the run."""
    if facts.clusterer == WARD:
        return cut(ward_linkage(facts.embeddings[rows]), k)
    return cluster_embeddings(facts.embeddings[rows], k, str(facts.clusterer), facts.random_state)


def _numbers(facts: Facts) -> dict[str, NDArray[np.float64]]:
    """What groups may follow, in words, and its values."""
    seen, files = facts.pictured, facts.filed
    return {
        "brightness": seen.brightness,
        "colour": np.stack([seen.red, seen.blue], axis=1),
        "the position of the part": np.stack([seen.across, seen.down], axis=1),
        "the direction that the part is turned to": seen.turned,
        "the shape of the picture": np.log(files.width / files.height),
        "the size of the picture": np.log(files.width * files.height),
        "the size of the file": np.log(files.size / (files.width * files.height)),
    }


def _kinds(facts: Facts) -> dict[str, tuple[str, ...]]:
    days = np.floor(np.nan_to_num(facts.filed.day)).astype(int)
    kinds = {"the day": tuple(map(str, days.tolist()))}
    return kinds if _scored_by_folder(facts) else {FOLDER: facts.filed.folder, **kinds}


def _scored_by_folder(facts: Facts) -> bool:
    """Whether one folder is scored unlike the others, such as the one with good images: then
    folders are likely kinds of flaws, and groups that follow them are right."""
    own = np.unique(np.array(facts.filed.folder), return_inverse=True)[1]
    if not facts.compared:
        return False
    scores = facts.image_scores.astype(np.float64)
    apart = [ranked_apart(scores, own == folder) for folder in range(own.max() + 1)]
    return max(apart) >= SCORED_APART


def _orders(facts: Facts) -> dict[str, NDArray[np.float64]]:
    day = facts.filed.day
    several = len(np.unique(np.floor(day[np.isfinite(day)]))) > 1
    return {"the order in time": day} | ({"the hour of the day": day % 1} if several else {})


def _in_order(facts: Facts, values: NDArray[np.float64]) -> float:
    # Names change nothing: equal times are taken in the order of content.
    order = np.array(sorted(range(len(facts)), key=facts.digests.__getitem__))
    return explained_order(values[order], facts.labels[order])


def _of_all(found: dict[str, float]) -> Finding:
    shares = _and([f"{share:.0%}" for share in found.values()])
    what = "it" if len(found) == 1 else "them"
    return Finding(
        "groups-follow",
        f"The groups follow {_and(list(found))}: they explain {shares} of {what}.",
        "If that is how the images were taken and no flaw, sort the images of each lot or light "
        f"alone, or merge the groups of one kind in the review.{_if_kinds(found)}",
        max(found.values()),
    )


def _if_kinds(found: dict[str, float]) -> str:
    return " If the folders are kinds of flaws, this is right." if FOLDER in found else ""


def _of_group(
    facts: Facts,
    group: int,
    number: dict[str, NDArray[np.float64]],
    kinds: dict[str, tuple[str, ...]],
) -> list[Finding]:
    inside = facts.labels == group
    if min(inside.sum(), (~inside).sum()) < LEAST_MEMBERS:
        return []
    areas = {name: told_apart(values, inside) for name, values in number.items()}
    for name, values in kinds.items():
        _, own = np.unique(np.array(values), return_inverse=True)
        areas[name] = max(
            told_apart((own == kind).astype(float), inside) for kind in np.unique(own)
        )
    found = {name: area for name, area in areas.items() if area >= TOLD_APART}
    if not found:
        return []
    return [
        Finding(
            "group-follows",
            f"Group {group} ({pluralise(int(inside.sum()), 'image')}) is told from the others by "
            f"{_and(list(found))}.",
            "If that is how its images were taken and no flaw, merge it in the review, or sort "
            f"such images apart.{_if_kinds(found)}",
            max(found.values()),
            group,
            _names(facts, inside),
        )
    ]


def _names(facts: Facts, chosen: Bools) -> tuple[str, ...]:
    return tuple(facts.names[row] for row in np.flatnonzero(chosen))


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

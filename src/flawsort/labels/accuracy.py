"""How often the groups are right, measured on what people answered.

Two measures. Suggestions are compared with the answers that followed them: this is how right the
model was while it learned, on the images that were answered for, if people looked at them. The
audit shows random images without the suggestion: this is how right the groups are now, for the
images that it did not show, whether people look or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Ints
from flawsort.labels.groups import Labelling
from flawsort.labels.suggestions import TeachingSpace, class_of, judge, teach

# Fewer answers than this say too little to be shown.
LEAST_ANSWERS = 10
# Standard normal quantile of a 90% interval.
Z90 = 1.6448536269514722
# The audited images are left out of the teaching in this many parts.
FOLDS = 10


@dataclass(frozen=True)
class Estimate:
    """A share that was measured. n: the number of answers. right: how many agreed. others: the
    number of images that it is to tell about, beside those answered; None if there is no end of
    them. together: how many of the answers were given several at a time."""

    n: int
    right: int
    others: int | None = None
    together: int = 0

    @property
    def share(self) -> float:
        return self.right / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The 90% interval of the share of right ones among the others."""
        if not self.others:
            return wilson(self.share, self.n)
        # Two samples differ by chance, the one that was answered and the one that was not. The
        # share of the latter is a whole number of images.
        low, high = wilson(self.share, 1 / (1 / self.n + 1 / self.others))
        return floor(low * self.others) / self.others, ceil(high * self.others) / self.others


def wilson(share: float, n: float) -> tuple[float, float]:
    """The 90% score interval of a share of n answers (Wilson, 1927), which holds for few answers
    and for shares near 0 and 1."""
    z = Z90
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    # All or none of the answers give 0 or 1 but for rounding.
    low = 0.0 if share == 0 else max(0.0, float(middle - half))
    return low, 1.0 if share == 1 else min(1.0, float(middle + half))


def suggestions_were_right(labelling: Labelling) -> Estimate | None:
    """How often the suggestion just before the first answer about an image was the answer; None
    below LEAST_ANSWERS answers."""
    taught_as, answers = class_of(labelling), list(labelling.answers.values())
    if len(answers) < LEAST_ANSWERS:
        return None
    right = sum(
        taught_as.get(one.suggested, one.suggested) == taught_as.get(one.given, one.given)
        for one in answers
    )
    return Estimate(len(answers), right, together=sum(one.together for one in answers))


def audited(labelling: Labelling, space: TeachingSpace) -> Estimate | None:
    """How often the groups of the images outside the audit are right; None below LEAST_ANSWERS
    answers.

    An audited image that a person had decided before is right if that was the same group. Any
    other one is judged by a model that was not taught with its answer.
    """
    compared = _compared(labelling, space)
    if len(compared) < LEAST_ANSWERS:
        return None
    others = len(labelling.labels) - len(labelling.audits)
    return Estimate(len(compared), sum(one == other for one, other in compared), others)


def audited_groups(
    labelling: Labelling, space: TeachingSpace, shown: Ints
) -> dict[int, tuple[int, Estimate | None]]:
    """By group: the number of audited images that were shown in it, and how often that was right;
    None below LEAST_ANSWERS of them. shown: (n_images,), the groups as people see them. All normal
    groups are one."""
    taught_as = class_of(labelling)
    compared = _compared(labelling, space)
    now = np.array([taught_as.get(group, group) for group in np.asarray(shown).tolist()], np.int64)
    outside = np.ones(len(now), bool)
    outside[list(labelling.audits)] = False
    found: dict[int, tuple[int, Estimate | None]] = {}
    for group in labelling.groups:
        kind = taught_as.get(group, group)
        answers = [other == kind for one, other in compared if one == kind]
        n, others = len(answers), int(np.count_nonzero(outside & (now == kind)))
        enough = n >= LEAST_ANSWERS
        found[group] = n, Estimate(n, sum(answers), others) if enough else None
    return found


def next_audit(labelling: Labelling, seed: int) -> int | None:
    """The row of the next random image; None if all were audited. seed: of the run, so that the
    order is the same whenever it is asked for."""
    for row in np.random.default_rng(seed).permutation(len(labelling.labels)).tolist():
        if row not in labelling.audits:
            return int(row)
    return None


def _compared(labelling: Labelling, space: TeachingSpace) -> list[tuple[int, int]]:
    """Of each audited image with an answer: the class of the group that was said without it, and
    the class of the answer. None if there are fewer than LEAST_ANSWERS."""
    rows = np.array([row for row in labelling.audits if labelling.confirmed[row]], np.int64)
    if len(rows) < LEAST_ANSWERS:
        return []
    said = np.array([labelling.audits[row].group for row in rows.tolist()], np.int64)
    open_ = np.array([not labelling.audits[row].decided for row in rows.tolist()])
    for fold in range(FOLDS):
        some = open_ & (np.arange(len(rows)) % FOLDS == fold)
        if some.any():
            said[some] = _said_without(labelling, space, rows[some], said[some])
    taught_as = class_of(labelling)
    pairs = zip(said.tolist(), labelling.labels[rows].tolist(), strict=True)
    return [(taught_as.get(one, one), taught_as.get(other, other)) for one, other in pairs]


def _said_without(
    labelling: Labelling,
    space: TeachingSpace,
    rows: NDArray[np.int64],
    before: NDArray[np.int64],
) -> NDArray[np.int64]:
    """(n_rows,): the groups of audited images without their answers. before: where they were, -1
    for a group that is gone since."""
    before = np.where(np.isin(before, list(labelling.groups)), before, -1)
    labels, confirmed = labelling.labels.copy(), labelling.confirmed.copy()
    labels[rows], confirmed[rows] = before, False
    gone = set(rows.tolist())
    several = {row: kinds for row, kinds in labelling.several.items() if row not in gone}
    earlier = replace(labelling, labels=labels, confirmed=confirmed, several=several)
    taught = teach(earlier, space)
    return before if taught is None else judge(earlier, taught, space, rows)[0]

"""The next question to a reviewer, chosen so that few answers teach much.

First the clusters that nobody has said anything about: one answer settles many images. Then bunches
of images that the model suggests to be of one group, the doubtful ones among them, where a look and
a click decide a dozen images. Single images come last: those that the model cannot place. Groups
with few examples come before others throughout.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Ints
from flawsort.core.threads import single_threaded_blas
from flawsort.labels.groups import Labelling
from flawsort.labels.state import State
from flawsort.labels.suggestions import TeachingSpace, class_of, decided

# Chosen on dev sets (docs/evidence/experiments.md, "Teaching"), where most matter little.
# The images that a question shows: of a cluster that nobody has named, of a bunch that the model
# suggests to be of one group, and how many of those are doubtful ones; of each group of a pair.
CLUSTER_EXAMPLES = 4
EXAMPLES = 12
DOUBTFUL = 6
PAIR_EXAMPLES = 6
# Fewer images, and images below this probability, are asked about one by one.
LEAST_TOGETHER = 2
LEAST_PROBABILITY = 0.3
# Two groups may be one if their centres are nearer than this many times their spread.
NEAR = 0.6
# At most this many doubtful images are compared with each other, and with as many others as
# NEIGHBOURS, which limits the time.
CANDIDATES = 64
NEIGHBOURS = 512


@dataclass(frozen=True)
class Question:
    """kind: "group" asks what some images are that seem to be of one group, "image" what one image
    is, "pair" whether two groups are one. group: the group where the images are suggested to be, or
    the first of the pair. rows: the images to show, none of which is decided in a question about a
    group or an image; an answer is about exactly these. why: the reason for the question, a
    sentence for people; not escaped. other, other_rows: the second group of a pair and its images
    to show."""

    kind: Literal["group", "image", "pair"]
    group: int
    rows: tuple[int, ...]
    why: str
    other: int | None = None
    other_rows: tuple[int, ...] = ()


def next_question(
    state: State,
    space: TeachingSpace,
    *,
    skipped: Collection[int] = (),
    answered: Collection[int] = (),
) -> Question | None:
    """The next question, or None when there is nothing left to ask.

    space: of the run. skipped: ids of groups not to ask about now. answered: rows that were asked
    about one by one and are not asked about again.
    """
    view = _View(state, space, frozenset(skipped), frozenset(answered))
    if not len(view.open):
        return None
    with single_threaded_blas():  # the same digits on any number of cores
        return _about_cluster(view) or _about_pair(view) or _about_bunch(view) or _about_image(view)


def progress(labelling: Labelling) -> tuple[int, int]:
    """The number of decided images, and of all images."""
    return int(decided(labelling).sum()), len(labelling.confirmed)


class _View:
    """What the questions are chosen from.

    open: the rows to ask about. groups: (n_images,), the group of each image as decided or
    suggested, one for all normal groups. doubt: (n_images,), how unlikely the suggestion is, 1
    where nothing is taught about the group. taught: the groups that the model knows, with the
    number of their examples.
    """

    def __init__(
        self,
        state: State,
        space: TeachingSpace,
        skipped: frozenset[int],
        answered: frozenset[int],
    ) -> None:
        self.labelling, self.coordinates = state.labelling, space.coordinates
        self.skipped = skipped
        suggestions = state.suggestions
        self.shown = suggestions.groups
        self.kind_of = class_of(self.labelling)
        self.groups = np.array(
            [self.kind_of.get(group, -1) for group in self.shown.tolist()], np.int64
        )
        self.doubt = np.where(np.isnan(suggestions.probability), 1.0, 1 - suggestions.probability)
        asked = decided(self.labelling)
        self.decided = asked.copy()
        asked[list(answered)] = True
        self.open: NDArray[np.int64] = np.flatnonzero(~asked)
        known = () if suggestions.taught is None else suggestions.taught.groups
        self.taught = {
            group: int(np.count_nonzero(self.decided & (self.groups == group))) for group in known
        }

    def open_of(self, group: int) -> NDArray[np.int64]:
        return np.asarray(self.open[self.groups[self.open] == group], np.int64)

    def typical(self, rows: Ints) -> NDArray[np.int64]:
        """The images in the order of their distance from their mean."""
        inside = self.coordinates[rows].astype(np.float64)
        far = ((inside - inside.mean(axis=0)) ** 2).sum(axis=1)
        return np.asarray(rows[np.argsort(far, kind="stable")], np.int64)

    def teaches(self, rows: Ints) -> NDArray[np.float64]:
        """(n_rows,): how much an answer about an image teaches: it is doubtful, like many that are
        open, and unlike those decided."""
        worth = self.doubt[rows] * self._resemble(rows, self.open).mean(axis=1)
        known = np.flatnonzero(self.decided)
        if not len(known):
            return np.asarray(worth)
        return np.asarray(worth * (1 - self._resemble(rows, known).max(axis=1)))

    def diverse(self, rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """Up to n images that teach much and are unlike each other, one after the other."""
        worth, alike = self.teaches(rows), self._resemble(rows, rows)
        chosen: list[int] = []
        for _ in range(min(n, len(rows))):
            chosen.append(int(worth.argmax()))
            worth = worth * (1 - alike[chosen[-1]])
            worth[chosen] = -1.0
        return rows[chosen]

    def _resemble(self, rows: Ints, others: Ints) -> NDArray[np.float64]:
        """(n_rows, n_others): how much images resemble others, 1 if they are equal. Of many others
        some, evenly spaced. The coordinates of a run have a mean square length of 1."""
        one = self.coordinates[rows]
        other = self.coordinates[others[:: -(-len(others) // NEIGHBOURS)]]
        far = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
        return np.asarray(np.exp(-np.maximum(far, 0)), np.float64)


def _about_cluster(view: _View) -> Question | None:
    """About the largest cluster of which nobody has said anything."""
    sizes = {
        group: len(view.open_of(group))
        for group in np.unique(view.groups[view.open]).tolist()
        if group >= 0 and group not in view.taught and group not in view.skipped
    }
    if not sizes or max(sizes.values()) < LEAST_TOGETHER:
        return None
    group = max(sizes, key=lambda one: (sizes[one], -one))
    shown = view.typical(view.open_of(group))[:CLUSTER_EXAMPLES]
    why = f"Nobody has said yet what this group of {sizes[group]:,} images is."
    return Question("group", group, tuple(shown.tolist()), why)


def _about_bunch(view: _View) -> Question | None:
    """About images that are suggested to be of one group, where a click teaches most."""
    best, found = 0.0, None
    for group, examples in view.taught.items():
        rows = view.open_of(group)
        likely = rows[view.doubt[rows] <= 1 - LEAST_PROBABILITY]
        if group in view.skipped or len(likely) < LEAST_TOGETHER:
            continue
        order = likely[np.argsort(view.doubt[likely], kind="stable")]
        shown = _some(order, view.diverse(order[::-1][:CANDIDATES], DOUBTFUL))
        # One click, and one more for each image that turns out to be something else.
        clicks = 1 + view.doubt[shown].sum()
        worth = view.teaches(shown).sum() / clicks / np.sqrt(1 + examples)
        if found is None or worth > best:
            best, found = worth, (group, shown)
    if found is None:
        return None
    group, shown = found
    title = view.labelling.groups[group].title
    why = f"These are suggested to be '{title}', some of them with doubt."
    return Question("group", group, tuple(shown.tolist()), why)


def _about_image(view: _View) -> Question:
    """About the image that teaches most, of those that the model cannot place."""
    order = view.open[np.argsort(-view.doubt[view.open], kind="stable")][:CANDIDATES]
    row = int(view.diverse(order, 1)[0])
    group = view.labelling.groups[int(view.shown[row])]
    why = f"It is not clear whether this is '{group.title}'."
    if group.role == "unsure":
        why = "Nobody has decided yet what this is."
    return Question("image", group.id, (row,), why)


def _about_pair(view: _View) -> Question | None:
    """About the two nearest groups, if they may be one and nobody has said so."""
    groups = [
        group for group in sorted(view.taught) if view.taught[group] and group not in view.skipped
    ]
    members = {group: np.flatnonzero(view.decided & (view.groups == group)) for group in groups}
    best, found = NEAR, None
    for one, other in combinations(groups, 2):
        if not _may_be_one(view.labelling, one, other):
            continue
        near = _nearness(view.coordinates[members[one]], view.coordinates[members[other]])
        if near < best:
            best, found = near, (one, other)
    if found is None:
        return None
    one, other = found
    shown = [tuple(view.typical(members[group])[:PAIR_EXAMPLES].tolist()) for group in found]
    titles = [view.labelling.groups[group].title for group in found]
    why = f"'{titles[0]}' and '{titles[1]}' look alike. Are they the same?"
    return Question("pair", one, shown[0], why, other, shown[1])


def _may_be_one(labelling: Labelling, one: int, other: int) -> bool:
    """Two names say that groups are different, and so does their role or a person."""
    groups = labelling.groups[one], labelling.groups[other]
    named = all(group.name for group in groups)
    known = frozenset({one, other}) in labelling.different
    return not named and not known and groups[0].role == groups[1].role


def _nearness(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """The distance between the centres of two groups, relative to their spread."""
    middles = [part.mean(axis=0, dtype=np.float64) for part in (one, other)]
    spreads = [
        np.sqrt(((part - middle) ** 2).sum(axis=1).mean())
        for part, middle in zip((one, other), middles, strict=True)
    ]
    return float(np.sqrt(((middles[0] - middles[1]) ** 2).sum()) / max(sum(spreads), 1e-12))


def _some(typical: NDArray[np.int64], doubtful: NDArray[np.int64]) -> NDArray[np.int64]:
    """Images of a group: typical ones first, then doubtful ones. Both are in order."""
    clear = typical[~np.isin(typical, doubtful)][: EXAMPLES - len(doubtful)]
    return np.concatenate([clear, doubtful])

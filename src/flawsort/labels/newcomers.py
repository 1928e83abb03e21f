"""New images by the groups that people taught: a name, normal, or a new kind.

Nothing taught: an image has the group of its cluster. Otherwise it has the group that the model
gives it, and the group of its cluster only where the model knows nothing of that group. What a
person decided of an image with the same bytes stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import NORMAL, UNSEEN, Assignment, Judge, resembles_none
from flawsort.core.records import Bools, Floats, ImageSet, Ints
from flawsort.labels.groups import Labelling, current_groups
from flawsort.labels.space import Space
from flawsort.labels.state import State
from flawsort.labels.suggestions import Suggestions, class_of, decided
from flawsort.labels.taught import Taught, most_likely
from flawsort.runs.assigned import Kept
from flawsort.runs.run import Run
from flawsort.runs.tables import NEW_KIND_TITLE, NORMAL_TITLE, ImageGroups, known_numbers

OK, NOT_OK, NO_VERDICT = "OK", "not OK", ""
# Until normal images are taught, an image that looks normal is normal unless a flaw is this likely.
# With less, most good images are called a flaw; with more, faint flaws are lost
# (docs/method/method.md).
SURE_OF_FLAW = 0.8


class Origin(Protocol):
    """What new images are compared with: a run, or the results of a fit."""

    @property
    def labels(self) -> NDArray[np.int64]: ...
    @property
    def images(self) -> ImageSet: ...
    @property
    def normal_digests(self) -> frozenset[str]: ...


@dataclass(frozen=True, eq=False)
class Arrivals:
    """What is known of new images. All arrays are (n,) unless another shape is given.

    digests: their SHA-256. clusters: the cluster of the run that each is near, UNSEEN or NORMAL.
    looks_normal: as in an Assignment. judged: (n, n_taught + 1), what the judge of `judge_of` said,
    nan in the rows of images that it did not see; None if it saw none.
    """

    digests: Sequence[str]
    clusters: Ints
    looks_normal: Bools
    judged: Floats | None = None

    @classmethod
    def of(cls, images: ImageSet, found: Assignment) -> Arrivals:
        """What `assign` found."""
        looks_normal = found.looks_normal
        if looks_normal is None:
            looks_normal = np.zeros(len(images), bool)
        return cls(images.digests, found.labels, looks_normal, found.judged)


@dataclass(frozen=True, eq=False)
class Newcomers:
    """The groups of new images. All arrays are (n,).

    groups: ids of groups, UNSEEN for a new kind, or NORMAL where the run has no normal group.
    titles: what people read. probability: of that group; nan where a person decided, or the model
    does not know it. decided: whether a person decided the group of this very image. verdicts:
    "OK", "not OK", or "" without a threshold or a probability.
    """

    groups: NDArray[np.int64]
    titles: tuple[str, ...]
    probability: NDArray[np.float64]
    decided: Bools
    verdicts: tuple[str, ...]

    @property
    def columns(self) -> ImageGroups:
        """The groups for a table."""
        return ImageGroups(self.titles, known_numbers(self.probability), self.decided.tolist())


def judge_of(suggestions: Suggestions, space: Space) -> Judge | None:
    """What the taught model thinks of new images, for `assign`; None if nothing was taught. space:
    of the run."""
    taught = suggestions.taught
    if taught is None:
        return None

    def judge(vectors: Floats, looks_normal: Bools) -> Floats:
        return taught.probabilities(space.coordinates(vectors), looks_normal=looks_normal)

    return judge


def sort_kept(kept: Kept, run: Run, state: State) -> Newcomers:
    """The groups of a kept batch by what people have taught since. Images without a vector have the
    groups of their clusters."""
    table, judged = kept.table, None
    looks_normal = np.array(table["looks_normal"], bool)
    judge = judge_of(state.suggestions, state.space().space)
    if judge is not None and kept.vectors is not None and len(kept.vectors):
        n, vectors = len(looks_normal), np.asarray(kept.vectors, np.float32)
        seen = judge(vectors, looks_normal[: len(vectors)])
        judged = np.full((n, seen.shape[1]), np.nan)
        judged[: len(vectors)] = seen
    arrivals = Arrivals(table["sha256"], np.array(table["cluster"], np.int64), looks_normal, judged)
    return sort_newcomers(arrivals, run, state.labelling, state.suggestions)


def sort_newcomers(
    arrivals: Arrivals, origin: Origin, labelling: Labelling, suggestions: Suggestions
) -> Newcomers:
    """The groups of new images. labelling, suggestions: of the run that they are compared with."""
    groups = current_groups(arrivals.clusters.tolist(), origin.labels, labelling)
    normal = next(iter(labelling.with_role("normal")), NORMAL)
    groups[arrivals.clusters == NORMAL] = normal
    probability, chance = np.full(len(groups), np.nan), np.full(len(groups), np.nan)
    if arrivals.judged is not None and suggestions.taught is not None:
        seen = _Seen.of(arrivals, labelling, suggestions.taught, normal)
        groups, probability = seen.place(groups)
        # What shows none of the known kinds is no good image, however normal it may be besides.
        chance = np.where((groups == UNSEEN) & seen.rows, 0.0, seen.normal_chance)
    known = _Known.of(origin, labelling, normal)
    fixed = np.zeros(len(groups), bool)
    for place, digest in enumerate(arrivals.digests):
        row = known.rows.get(digest)
        if digest in known.decided:
            groups[place], probability[place], fixed[place] = known.decided[digest], np.nan, True
        elif row is not None:
            groups[place], probability[place] = (
                suggestions.groups[row],
                suggestions.probability[row],
            )
            if set(labelling.rejected.get(row, ())) & set(labelling.with_role("normal")):
                chance[place] = 0.0
    return Newcomers(
        groups,
        tuple(title_of(group, labelling) for group in groups.tolist()),
        probability,
        fixed,
        _verdicts(groups, chance, fixed, labelling),
    )


@dataclass(frozen=True, eq=False)
class _Seen:
    """Images that the judge saw. normal: the id for normal images. rows: (n,), which were seen."""

    arrivals: Arrivals
    labelling: Labelling
    taught: Taught
    normal: int
    rows: Bools
    judged: NDArray[np.float64]

    @classmethod
    def of(cls, arrivals: Arrivals, labelling: Labelling, taught: Taught, normal: int) -> _Seen:
        judged = np.asarray(arrivals.judged, np.float64)
        return cls(arrivals, labelling, taught, normal, np.isfinite(judged[:, -1]), judged)

    def place(self, clustered: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(n,) each: the groups and their probabilities. clustered: (n,), the groups of the
        clusters, for images that were not seen and for groups that nobody taught."""
        judged, looks_normal = np.nan_to_num(self.judged), self.arrivals.looks_normal
        best = most_likely(judged)
        groups = np.array([*self.taught.groups, UNSEEN], np.int64)[best]
        probability = np.take_along_axis(judged, best[:, None], axis=1)[:, 0]
        open_ = self._untaught(clustered) & (groups == UNSEEN)
        good = looks_normal & ((groups == UNSEEN) | self._in_doubt(judged))
        groups[good], probability[good] = self.normal, np.nan
        # A good image is never a new kind.
        far = resembles_none(judged, self.arrivals.clusters) & (groups != UNSEEN) & ~looks_normal
        groups[far], probability[far] = UNSEEN, np.nan
        seen = self.rows & ~open_
        return np.where(seen, groups, clustered), np.where(seen, probability, np.nan)

    @property
    def normal_chance(self) -> NDArray[np.float64]:
        """(n,): the probability that an image is normal; nan where it was not seen."""
        columns = np.isin(self.taught.groups, self.taught.normal)
        chance: NDArray[np.float64] = self.judged[:, :-1][:, columns].sum(axis=1)
        if not columns.any():  # then whatever looks normal and resembles no flaw is
            chance = np.where(self.arrivals.looks_normal, self.judged[:, -1], 0.0)
        return np.where(self.rows, chance, np.nan)

    def _in_doubt(self, judged: NDArray[np.float64]) -> Bools:
        """(n,): whether it takes little to call an image normal. A model that knows flaws alone has
        no better name for a good image."""
        if self.taught.normal:
            return np.zeros(len(judged), bool)
        unsure: Bools = judged[:, :-1].max(axis=1) < SURE_OF_FLAW
        return unsure

    def _untaught(self, clustered: NDArray[np.int64]) -> Bools:
        """Images of clusters whose groups nobody has taught anything about."""
        taught_as = class_of(self.labelling)
        found = [
            group in taught_as and taught_as[group] not in self.taught.groups
            for group in clustered.tolist()
        ]
        return np.array(found, bool)


@dataclass(frozen=True, eq=False)
class _Known:
    """Images that were there before, by digest. rows: those of the run, a decided copy first.
    decided: the groups that people gave to images of the run, to examples and to normals."""

    rows: Mapping[str, int]
    decided: Mapping[str, int]

    @classmethod
    def of(cls, origin: Origin, labelling: Labelling, normal: int) -> _Known:
        digests = origin.images.digests
        rows = {digest: row for row, digest in reversed(list(enumerate(digests)))}
        said = np.flatnonzero(decided(labelling)).tolist()
        return cls(
            rows,
            {
                **dict.fromkeys(origin.normal_digests, normal),
                **{one.sha256: one.group for one in labelling.examples},
                **{digests[row]: int(labelling.labels[row]) for row in said},
            },
        )


def title_of(group: int, labelling: Labelling) -> str:
    """What people call a group of new images."""
    if group == UNSEEN:
        return NEW_KIND_TITLE
    return NORMAL_TITLE if group == NORMAL else labelling.groups[group].title


def _verdicts(
    groups: NDArray[np.int64], chance: NDArray[np.float64], fixed: Bools, labelling: Labelling
) -> tuple[str, ...]:
    """chance: (n,), that an image is normal. fixed: (n,), decided by a person."""
    threshold = labelling.threshold
    if threshold is None:
        return (NO_VERDICT,) * len(groups)
    roles = {group.id: group.role for group in labelling.groups.values()} | {NORMAL: "normal"}
    said = {"normal": OK, "flaw": NOT_OK, "unsure": NO_VERDICT}
    found = []
    for group, value, person in zip(groups.tolist(), chance.tolist(), fixed.tolist(), strict=True):
        if person:
            found.append(said[roles[group]])
        elif np.isnan(value):
            found.append(NO_VERDICT)
        else:
            found.append(OK if value >= threshold else NOT_OK)
    return tuple(found)

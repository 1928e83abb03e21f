"""The groups of regions, after people have answered: each box gets the kind that it shows.

What a person said of an image settles the region of an image that has one. In an image of several
regions the taught model says which region shows what, among the kinds that the person gave. The
regions of images that nobody has decided are judged by the model alone.
docs/evidence/experiments.md, "The kinds of boxes", has what each rule gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import NORMAL
from flawsort.clusters.kinds import Regions, find_plain_groups
from flawsort.core.records import Ints
from flawsort.labels.groups import Labelling, current_groups, region_groups, without_flaw
from flawsort.labels.newcomers import Arrivals, Newcomers
from flawsort.labels.state import State
from flawsort.labels.suggestions import class_of, decided
from flawsort.labels.taught import Taught, most_likely, rule_out
from flawsort.runs.run import Run

# In place of a group: a region that shows none of them.
UNKNOWN = -1
# Who puts an image into one group does not say that it shows no other kind. A region shows another
# one if the model is this sure. With more, second kinds are lost; with less, more boxes of images
# that show one kind are wrong.
SURE_OF_OTHER = 0.6


def settled_regions(run: Run, state: State) -> NDArray[np.int64]:
    """(n_regions,): the group that each region shows, as people and the model they taught say;
    UNKNOWN if it shows none of them. A region without a flaw is in a group with the role normal.
    Nothing taught: the group where most images of the cluster that it resembles are."""
    labelling, taught = state.settled, state.suggestions.taught
    found = region_groups(run, labelling)
    if taught is None or not len(found):
        return found
    judged = _Judged.of(run, state, labelling, taught)
    images = run.region_rows
    found = judged.by_model(found)
    places = np.flatnonzero(decided(labelling)[images])
    found[places] = judged.of_decided(images, places)
    aside = without_flaw(labelling)[images]
    found[aside] = labelling.labels[images[aside]]
    return found


def newcomer_regions(
    regions: Regions, newcomers: Newcomers, arrivals: Arrivals, run: Run, state: State
) -> NDArray[np.int64]:
    """(n_regions,): the group that each region of new images shows, by the same rules. An image of
    the run keeps what its regions show there.

    regions: with the rows of the new images. newcomers: the groups of these. arrivals: what is
    known of them.
    """
    labelling, taught = state.settled, state.suggestions.taught
    images = regions.outlines.images
    own, like = newcomers.groups[images], regions.labels
    found = np.where(
        like == arrivals.clusters[images], own, current_groups(like.tolist(), run.labels, labelling)
    )
    if taught is not None and len(found):
        coordinates = state.space().space.coordinates(regions.embeddings)
        found = _Judged(labelling, taught, taught.probabilities(coordinates)).by_model(found)
    decided_here = newcomers.decided[images]
    first = np.zeros(len(images), bool)
    first[np.unique(images, return_index=True)[1]] = True
    flaw = np.isin(own, labelling.with_role("flaw"))
    found = np.where(decided_here & (first | ~flaw), own, found)
    known, settled = _rows_of(run, labelling), settled_regions(run, state)
    for image in np.unique(images).tolist():
        row = known.get(arrivals.digests[image])
        if row is not None:
            found[images == image] = settled[run.region_rows == row]
    return np.asarray(found, np.int64)


def newcomer_kinds(
    regions: Regions, newcomers: Newcomers, arrivals: Arrivals, run: Run, state: State
) -> list[list[int]]:
    """The kinds of flaw that the regions of each new image show besides its own group, the hottest
    first; none for an image without a flaw. The parameters are those of `newcomer_regions`."""
    labelling = state.settled
    plain = find_plain_groups(None, labelling.labels, run.region_rows)
    flaws = {group for group in labelling.with_role("flaw") if group not in plain}
    free = ~np.isin(newcomers.groups, [NORMAL, *labelling.with_role("normal")])
    shown = newcomer_regions(regions, newcomers, arrivals, run, state).tolist()
    found: list[list[int]] = [[] for _ in newcomers.titles]
    for image, group in zip(regions.outlines.images.tolist(), shown, strict=True):
        another = group in flaws and group not in (newcomers.groups[image], *found[image])
        if another and free[image]:
            found[image].append(group)
    return found


def _rows_of(run: Run, labelling: Labelling) -> dict[str, int]:
    """The row of each content of the run, of a decided copy if there is one."""
    digests = run.images.digests
    rows = {digest: row for row, digest in reversed(list(enumerate(digests)))}
    said = np.flatnonzero(decided(labelling)).tolist()
    return {**rows, **{digests[row]: row for row in said}}


@dataclass(frozen=True, eq=False)
class _Judged:
    """What the model says of the regions. probabilities: (n_regions, n_groups + 1), where the
    groups that people rejected for an image have none."""

    labelling: Labelling
    taught: Taught
    probabilities: NDArray[np.float64]

    @classmethod
    def of(cls, run: Run, state: State, labelling: Labelling, taught: Taught) -> _Judged:
        found = taught.probabilities(state.space().region_coordinates)
        column_of = {group: column for column, group in enumerate(taught.groups)}
        taught_as = class_of(labelling)
        ruled_out = [
            (place, column_of[taught_as[group]])
            for row, groups in labelling.rejected.items()
            for place in np.flatnonzero(run.region_rows == row).tolist()
            for group in groups
            if taught_as.get(group) in column_of
        ]
        if ruled_out:
            places, columns = np.array(ruled_out, np.int64).T
            found = rule_out(found, places, columns)
        return cls(labelling, taught, found)

    @property
    def _normal(self) -> NDArray[np.bool_]:
        """(n_groups,): which groups have no flaw."""
        return np.asarray(np.isin(self.taught.groups, self.taught.normal))

    def by_model(self, clustered: Ints) -> NDArray[np.int64]:
        """(n_regions,): the groups by the model alone. clustered: (n_regions,), the groups of the
        clusters, for regions that resemble a group which nobody has taught."""
        names = np.array([*self.taught.groups, UNKNOWN], np.int64)
        found = names[most_likely(self.probabilities)]
        taught_as = class_of(self.labelling)
        untaught = [
            group
            for group in self.labelling.groups
            if taught_as.get(group, group) not in self.taught.groups
        ]
        return np.where((found == UNKNOWN) & np.isin(clustered, untaught), clustered, found)

    def of_decided(self, images: Ints, places: Ints) -> NDArray[np.int64]:
        """(n_places,): the groups of the regions at `places`, of images that a person has decided.
        The hottest region of an image shows a kind that the person gave, unless it surely shows
        another. images: (n_regions,), the row of each region's image."""
        probabilities, rows = self.probabilities[places], images[places]
        groups = np.array(self.taught.groups, np.int64)
        kinds = np.where(self._given(rows), probabilities[:, :-1], -1.0)
        found, best = groups[kinds.argmax(axis=1)], kinds.max(axis=1)
        first = np.unique(images, return_index=True)[1]
        later = ~np.isin(places, first)
        normal = probabilities[:, :-1][:, self._normal].sum(axis=1)
        found[later & (probabilities[:, -1] >= best)] = UNKNOWN
        if self._normal.any():
            found[later & (normal > best)] = self.taught.normal[0]
        flaws = np.where(self._normal, 0.0, probabilities[:, :-1])
        alone = np.bincount(images)[rows] == 1
        listed = np.isin(rows, list(self.labelling.several))
        sure = (flaws.max(axis=1) >= SURE_OF_OTHER) & ~alone & ~listed
        return np.asarray(np.where(sure, groups[flaws.argmax(axis=1)], found), np.int64)

    def _given(self, rows: Ints) -> NDArray[np.bool_]:
        """(n_rows, n_groups): the kinds of flaw that a person gave the image of each row."""
        own = self.labelling.labels[rows]
        found = own[:, None] == np.array(self.taught.groups)
        for row, groups in self.labelling.several.items():
            found[rows == row] |= np.isin(self.taught.groups, groups)
        return np.asarray(found & ~self._normal)

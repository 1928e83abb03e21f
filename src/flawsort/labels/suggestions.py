"""What the taught model thinks of the images that nobody has decided.

The model is fitted to the answers of people and to the run's embeddings, nothing else. So replaying
the edits gives the same suggestions, and undoing an answer removes what it taught.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.records import Bools, Floats, Ints
from flawsort.labels.groups import Labelling
from flawsort.labels.space import Space
from flawsort.labels.taught import Examples, Taught, most_likely, rule_out
from flawsort.runs.run import Run
from flawsort.runs.tables import ImageGroups, known_numbers

# A group that a person named, but none of whose images they decided, is taught by its most typical
# images: the name was given to what these show. So is a normal group, once anything else is taught,
# be it by an answer or by a name: otherwise its images could only be suggested to be flaws.
TYPICAL = 3


@dataclass(frozen=True, eq=False)
class TeachingSpace:
    """The run's images as the model sees them. coordinates: (n_images, n_directions), in `space`.
    looks_normal: (n_images,), images whose score is that of known-good ones. regions: (n_regions,
    dim), the embeddings of the regions; None if nobody needs them."""

    space: Space
    coordinates: NDArray[np.float32]
    looks_normal: Bools
    regions: Floats | None = None

    @classmethod
    def of(cls, run: Run) -> TeachingSpace:
        embeddings = np.asarray(run.embeddings)
        space = Space.of(embeddings)
        coordinates = space.coordinates(embeddings)
        return cls(space, coordinates, run.looks_normal, run.region_embeddings)

    @cached_property
    def region_coordinates(self) -> NDArray[np.float32]:
        """(n_regions, n_directions): the regions in the same space."""
        if self.regions is None:
            raise InputError("This space has no regions. Make it from a run.")
        return self.space.coordinates(self.regions)


@dataclass(frozen=True, eq=False)
class Suggestions:
    """The groups of all images, as far as they are known.

    groups: (n_images,), the id of each image's group: as a person decided, else as the model
    suggests, else as clustered. probability: (n_images,), of that group; nan where a person
    decided, or nothing is taught about the group. taught: None until somebody has answered.
    """

    groups: NDArray[np.int64]
    probability: NDArray[np.float64]
    taught: Taught | None

    @property
    def n_taught(self) -> int:
        """The number of groups that the model knows."""
        return 0 if self.taught is None else len(self.taught.groups)


def suggest(labelling: Labelling, space: TeachingSpace) -> Suggestions:
    """The groups of all images. space: of the run."""
    taught = teach(labelling, space)
    groups, probability = labelling.labels.copy(), np.full(len(labelling.labels), np.nan)
    if taught is not None:
        open_ = np.flatnonzero(~decided(labelling) & ~_put_aside(labelling))
        groups[open_], probability[open_] = judge(labelling, taught, space, open_)
    return Suggestions(groups, probability, taught)


def teach(labelling: Labelling, space: TeachingSpace) -> Taught | None:
    """The model of the current answers; None if there are none."""
    examples = examples_of(labelling, space)
    if not len(examples.belongs):
        return None
    return Taught.fit(examples, space.space, normal=labelling.with_role("normal"))


def judge(
    labelling: Labelling, taught: Taught, space: TeachingSpace, rows: Ints
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(n_rows,) each: the suggested group of some images of the run and its probability, nan where
    nothing is taught about the group. An image unlike all taught groups stays where it is, which is
    -1 for an image that the labelling has in no group."""
    column_of = {group: column for column, group in enumerate(taught.groups)}
    taught_as = class_of(labelling)
    found = taught.probabilities(space.coordinates[rows], looks_normal=space.looks_normal[rows])
    place_of = dict(zip(rows.tolist(), range(len(rows)), strict=True)) if labelling.rejected else {}
    ruled_out = [
        (place_of[row], column_of[taught_as[group]])
        for row, groups in labelling.rejected.items()
        for group in groups
        if row in place_of and taught_as.get(group) in column_of
    ]
    if ruled_out:
        places, columns = np.array(ruled_out, np.int64).T
        found = rule_out(found, places, columns)
    best = most_likely(found)
    now = labelling.labels[rows]
    # For each id of a group: the id under which it is taught, and its column; -1 for none.
    classes = _by_id(taught_as, labelling)
    columns = _by_id({group: column_of.get(one, -1) for group, one in taught_as.items()}, labelling)
    chosen = np.array([*taught.groups, -1], np.int64)[best]
    # Normal groups are one to the model, and an image stays in its own of them.
    groups = np.where((chosen < 0) | (chosen == classes[now]), now, chosen)
    of_group = columns[groups]
    probability = np.where(of_group < 0, np.nan, found[np.arange(len(rows)), of_group])
    return groups, probability


def _by_id(values: Mapping[int, int], labelling: Labelling) -> NDArray[np.int64]:
    """The values of groups as an array over their ids; -1 for the others, and for no group, which
    is -1, the last place."""
    found = np.full(2 + max((*labelling.groups, *values), default=-1), -1, np.int64)
    found[list(values)] = list(values.values())
    return found


def examples_of(labelling: Labelling, space: TeachingSpace) -> Examples:
    """What people said, for the model."""
    taught_as = class_of(labelling)
    belongs = [
        (row, taught_as[kind])
        for row in np.flatnonzero(decided(labelling)).tolist()
        for kind in (int(labelling.labels[row]), *labelling.several.get(row, ()))
        if kind in taught_as
    ]
    outside = [one for one in labelling.examples if one.group in taught_as]
    n, coordinates = len(space.coordinates), space.coordinates
    if outside:
        vectors = np.stack([one.vector for one in outside])
        coordinates = np.concatenate([coordinates, space.space.coordinates(vectors)])
        belongs += [(n + place, taught_as[one.group]) for place, one in enumerate(outside)]
    belongs += _typical(labelling, space, {group for _, group in belongs})
    rejected = [
        (row, taught_as[group])
        for row, groups in labelling.rejected.items()
        for group in groups
        if group in taught_as
    ]
    return Examples.of(coordinates, belongs, rejected)


def settled(labelling: Labelling, suggestions: Suggestions) -> Labelling:
    """The groups with every image where it is decided or suggested to be, for tables, reports and
    exports."""
    return replace(labelling, labels=suggestions.groups)


def decided(labelling: Labelling) -> Bools:
    """(n_images,): whether a person has said what an image shows."""
    found = labelling.confirmed.copy()
    found[[row for row in labelling.several]] = True
    return found


def image_groups(labelling: Labelling, suggestions: Suggestions) -> ImageGroups:
    """The groups of the run's images as people read them, for tables."""
    return ImageGroups(
        [labelling.groups[group].title for group in suggestions.groups.tolist()],
        known_numbers(suggestions.probability),
        decided(labelling).tolist(),
    )


def _put_aside(labelling: Labelling) -> Bools:
    """(n_images,): images that a person put among the unsure ones, which stay there. Those of which
    a person only said what they are not may be suggested elsewhere."""
    aside: Bools = np.isin(labelling.labels, labelling.with_role("unsure"))
    aside[[row for row, groups in labelling.rejected.items() if groups]] = False
    return aside


def class_of(labelling: Labelling) -> dict[int, int]:
    """The id under which each group is taught. All normal groups are one, the first of them. Unsure
    groups are not taught."""
    normal = labelling.with_role("normal")
    return {
        group.id: normal[0] if group.role == "normal" else group.id
        for group in labelling.groups.values()
        if group.role != "unsure"
    }


def _typical(
    labelling: Labelling, space: TeachingSpace, known: Collection[int]
) -> list[tuple[int, int]]:
    """The most typical images, as row and group, of the named and normal groups that nothing else
    teaches. known: the groups that have examples."""
    taught_as, found = class_of(labelling), []
    members = {
        group.id: rows
        for group in labelling.groups.values()
        if (group.name or group.role == "normal")
        and taught_as.get(group.id, -1) not in {-1, *known}
        and len(rows := labelling.members(group.id))
    }
    if not known and not any(labelling.groups[group].name for group in members):
        return []
    for group, rows in members.items():
        inside = space.coordinates[rows]
        far = ((inside - inside.mean(axis=0, dtype=np.float64)) ** 2).sum(axis=1)
        chosen = rows[np.argsort(far, kind="stable")[:TYPICAL]]
        found += [(row, taught_as[group]) for row in chosen.tolist()]
    return found

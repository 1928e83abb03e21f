"""The groups that a run begins with, if something is known of its images.

Known kinds stay whole: an image that nobody decided goes where the taught model puts it. Only
images that are none of the known kinds are grouped as they were clustered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.core.records import Bools, Ints
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE
from flawsort.fitting.fitted import Fitted
from flawsort.labels.edit_checks import Edit, target_of
from flawsort.labels.edits import apply
from flawsort.labels.example_checks import packed_example
from flawsort.labels.group_changes import moved, placed
from flawsort.labels.groups import Example, Group, Labelling
from flawsort.labels.log import CARRY
from flawsort.labels.names import means_normal
from flawsort.labels.space import Space
from flawsort.labels.store import EditStore
from flawsort.labels.suggestions import Suggestions, TeachingSpace, image_groups, settled, suggest
from flawsort.labels.taught import Taught
from flawsort.runs.folder import EDITS
from flawsort.runs.run import Run

# Fewer images of one cluster are too few to be called a kind of their own.
FEWEST_OF_A_KIND = 3
NO_GROUP = -1
AUTHOR = "flawsort"


@dataclass(frozen=True)
class Known:
    """What people said of images. Images are named by their SHA-256, so files may be renamed.

    groups: by id. next_id: the id of the next new group. decided: the group of an image. several,
    rejected: the other groups of an image, and those that it is not of. examples: images outside
    the run, with their embeddings in it. before: the group so far of an image that nobody decided.
    threshold, different: as in a Labelling. notes: on images. spent: the number of labels given.
    """

    groups: Mapping[int, Group] = field(default_factory=dict)
    next_id: int = 0
    decided: Mapping[str, int] = field(default_factory=dict)
    several: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rejected: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    before: Mapping[str, int] = field(default_factory=dict)
    threshold: float | None = None
    different: frozenset[frozenset[int]] = frozenset()
    notes: Mapping[str, str] = field(default_factory=dict)
    spent: int = 0

    def with_labels(self, labels: Mapping[str, str]) -> Known:
        """The same with more images decided. labels: by SHA-256; the name of a group means it."""
        known, ids = self.with_names(labels.values())
        given = {image: ids[label] for image, label in labels.items()}
        new = sum(self.decided.get(image) != group for image, group in given.items())
        return replace(known, decided={**self.decided, **given}, spent=self.spent + new)

    def with_names(self, labels: Iterable[str]) -> tuple[Known, dict[str, int]]:
        """The same with a group for each label, and the ids of these groups."""
        groups, next_id = dict(self.groups), self.next_id
        ids: dict[str, int] = {}
        for label in sorted(set(labels), key=lambda one: (means_normal(one), one)):
            made = Group(next_id, role="normal") if means_normal(label) else Group(next_id, label)
            same = [one.id for one in groups.values() if _is_same(one, made)]
            ids[label] = same[0] if same else next_id
            if not same:
                groups[next_id], next_id = made, next_id + 1
        return replace(self, groups=groups, next_id=next_id), ids


@dataclass(frozen=True, eq=False)
class Clustered:
    """What was computed. digests: SHA-256 of the images. clusters: (n,). space: the images as the
    model sees them."""

    digests: Sequence[str]
    clusters: Ints
    space: TeachingSpace

    @classmethod
    def of(cls, fitted: Fitted) -> Clustered:
        """The results of a fit."""
        space, looks = Space.of(fitted.embeddings), fitted.looks_normal
        looks = np.zeros(len(fitted.images), bool) if looks is None else looks
        seen = TeachingSpace(space, space.coordinates(fitted.embeddings), looks)
        return cls(fitted.images.digests, fitted.labels, seen)


@dataclass(frozen=True, eq=False)
class Begun:
    """The groups that a run begins with. suggestions: of the model that they teach. space: the
    images as that model sees them. spent: the number of labels that people gave."""

    labelling: Labelling
    suggestions: Suggestions
    space: TeachingSpace
    spent: int = 0

    @property
    def settled(self) -> Labelling:
        """The groups with every image where it is decided or suggested to be."""
        return settled(self.labelling, self.suggestions)

    def named(self, run: Run) -> Run:
        """The run with these groups in its table of images."""
        return run.with_groups(image_groups(self.labelling, self.suggestions))

    def write(self, folder: Path, *, follows: int = 0) -> None:
        """Write the groups into the folder of a new run, as its first edit. follows: the version of
        the edits of the run that it replaces."""
        with EditStore(folder / EDITS) as store:
            store.append(carry_edit(self.labelling, self.spent), 0, AUTHOR, follows=follows)


def begin(known: Known, found: Clustered) -> Begun:
    """The groups that a run begins with.

    Decided images are in their groups, all others where the taught model puts them. Of images that
    are none of the known kinds, those that look normal are normal; the others of one cluster are a
    group of their own if they are enough to be a kind, or else go to the most likely known group.
    If nothing is taught, the clusters are the groups, and continue those of the earlier run.
    """
    now = _as_clustered(known, found)
    first = suggest(now, found.space)
    now = replace(now, labels=first.groups)
    if first.taught is not None:
        now = _with_normal(now, _strange(now, first.taught), found.space.looks_normal)
        # Images that look normal teach what is normal, if nobody has.
        second = suggest(now, found.space)
        taught = second.taught or first.taught
        now = replace(now, labels=second.groups)
        now = _without_few(now, _strange(now, taught), taught, found.space)
    # Stored as it will be read back, so that the saved run says the same.
    now = _tidied(now, known.next_id)
    now = apply(carry_edit(now), now, np.empty((len(now.labels) - 1, 4)))
    return Begun(now, suggest(now, found.space), found.space, known.spent)


def only_begun(folder: Path) -> bool:
    """Whether nobody has edited a run since it began."""
    with EditStore(folder / EDITS) as store:
        log = store.log()
    return all(entry.edit.kind == CARRY and entry.author == AUTHOR for entry in log)


def is_edited(folder: Path) -> bool:
    """Whether a run has any edit, in force or not."""
    with EditStore(folder / EDITS) as store:
        return store.version() > 0


def carry_edit(labelling: Labelling, spent: int = 0) -> Edit:
    """Groups as the first edit of a run. spent: the number of labels that people gave."""
    return Edit(
        CARRY,
        {
            "groups": [
                {
                    "id": group.id,
                    "name": group.name,
                    "role": group.role,
                    "severity": group.severity,
                    "note": group.note,
                }
                for group in labelling.groups.values()
            ],
            "labels": labelling.labels.tolist(),
            "confirmed": np.flatnonzero(labelling.confirmed).tolist(),
            "several": _as_keys(labelling.several),
            "rejected": _as_keys(labelling.rejected),
            "examples": [packed_example(example) for example in labelling.examples],
            "threshold": labelling.threshold,
            "different": sorted(map(sorted, labelling.different)),
            "notes": {str(row): note for row, note in labelling.notes.items()},
            "k": labelling.k,
            "spent": spent,
        },
    )


def continued(clusters: Ints, before: Ints, next_id: int) -> NDArray[np.int64]:
    """(n,): the ids of the groups that clusters continue, new ids from next_id for the others.

    clusters: (n,). before: (n,), the id of an image's group so far, or -1. Each id goes to one
    cluster; as many images as possible keep their id.
    """
    from scipy.optimize import linear_sum_assignment

    places, rows = np.unique(clusters, return_inverse=True)
    ids = np.unique(before[before >= 0]).astype(np.int64)
    if len(ids) and next_id <= ids[-1]:
        raise OptionError(f"next_id must be above {ids[-1]}, the largest id. Got {next_id}.")
    shared = np.zeros((len(places), len(ids)))
    there = before >= 0
    np.add.at(shared, (rows[there], np.searchsorted(ids, before[there])), 1)
    id_of = np.full(len(places), NO_GROUP, np.int64)
    for row, column in zip(*linear_sum_assignment(shared, maximize=True), strict=True):
        if shared[row, column]:
            id_of[row] = ids[column]
    new = id_of < 0
    id_of[new] = next_id + np.arange(new.sum())
    return id_of[rows]


def _as_clustered(known: Known, found: Clustered) -> Labelling:
    """Decided images and images that wait to be decided are in their groups, all others in the
    groups that their clusters continue."""
    decided, before = (_of_each(ids, found.digests) for ids in (known.decided, known.before))
    unsure = [group.id for group in known.groups.values() if group.role == "unsure"]
    # A kind with answers goes on by these, not by its old members.
    taught = {*known.decided.values(), *(one.group for one in known.examples)}
    open_ = np.where(np.isin(before, [*unsure, *taught]), NO_GROUP, before)
    labels = continued(found.clusters, np.where(decided >= 0, NO_GROUP, open_), known.next_id)
    labels = np.where(np.isin(before, unsure), before, labels)
    labels = np.where(decided >= 0, decided, labels)
    groups = dict(known.groups)
    known_normal = any(group.role == "normal" for group in groups.values())
    for group in set(np.unique(labels).tolist()) - groups.keys():
        share = found.space.looks_normal[labels == group].mean()
        normal = not known_normal and share >= NORMAL_GROUP_SHARE
        groups[group] = Group(group, role="normal" if normal else "flaw")
    return Labelling(
        dict(sorted(groups.items())),
        labels,
        decided >= 0,
        len(np.unique(found.clusters)),
        max(known.next_id, max(groups) + 1),
        _by_row(known.several, found.digests),
        _by_row(known.rejected, found.digests),
        known.examples,
        threshold=known.threshold,
        different=known.different,
        notes={
            row: known.notes[digest]
            for row, digest in enumerate(found.digests)
            if digest in known.notes
        },
    )


def _strange(now: Labelling, taught: Taught) -> NDArray[np.int64]:
    """The rows of images in groups that nobody has said anything of."""
    unknown = [
        group.id
        for group in now.groups.values()
        if group.role == "flaw" and not group.name and group.id not in taught.groups
    ]
    return np.flatnonzero(np.isin(now.labels, unknown))


def _with_normal(now: Labelling, rows: NDArray[np.int64], looks_normal: Bools) -> Labelling:
    """Those of the rows that look normal are in the normal group."""
    rows = rows[looks_normal[rows]]
    return moved(now, rows, target_of({"to": "normal"}, now), now.confirmed) if len(rows) else now


def _without_few(
    now: Labelling, rows: NDArray[np.int64], taught: Taught, space: TeachingSpace
) -> Labelling:
    """Those of the rows whose group has too few images are in the most likely taught group."""
    few = rows[np.bincount(now.labels)[now.labels[rows]] < FEWEST_OF_A_KIND]
    likely = taught.probabilities(space.coordinates[few])[:, :-1]
    for place, row in enumerate(few.tolist()):
        likely[place, np.isin(taught.groups, now.rejected.get(row, ()))] = -1.0
    return placed(now, few, np.array(taught.groups)[likely.argmax(axis=1)], now.confirmed)


def _tidied(now: Labelling, first_new: int) -> Labelling:
    """The groups without those that nothing is said of: no image, no name, no other mention. The
    ids of new groups follow on first_new."""
    named = {group.id for group in now.groups.values() if group.told}
    pairs = (*now.several.values(), *now.rejected.values(), *now.different)
    others = {group for some in pairs for group in some}
    taught = {one.group for one in now.examples}
    kept = sorted({*np.unique(now.labels).tolist(), *named, *others, *taught})
    new = [group for group in kept if group >= first_new]
    id_of = {group: first_new + place for place, group in enumerate(new)}
    groups = [replace(now.groups[group], id=id_of.get(group, group)) for group in kept]
    labels = np.array([id_of.get(group, group) for group in now.labels.tolist()], np.int64)
    return replace(
        now,
        groups={group.id: group for group in groups},
        labels=labels,
        next_id=first_new + len(new),
    )


def _is_same(group: Group, made: Group) -> bool:
    return group.role == "normal" if made.role == "normal" else group.name == made.name


def _of_each(ids: Mapping[str, int], digests: Sequence[str]) -> NDArray[np.int64]:
    return np.array([ids.get(digest, NO_GROUP) for digest in digests], np.int64)


def _by_row(
    groups: Mapping[str, tuple[int, ...]], digests: Sequence[str]
) -> dict[int, tuple[int, ...]]:
    return {row: groups[digest] for row, digest in enumerate(digests) if digest in groups}


def _as_keys(groups: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(row): list(some) for row, some in groups.items()}

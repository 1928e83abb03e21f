"""What people made of the groups of a run: names, merges, moves, and what they have confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.kinds import find_plain_groups
from flawsort.core.records import Bools, Ints
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE
from flawsort.runs.run import Run

Role: TypeAlias = Literal["flaw", "normal", "unsure"]
ROLES: tuple[Role, ...] = ("flaw", "normal", "unsure")
# Eight colours told apart by people with any colour vision, times seven shapes, as SVG draws them:
# those of report/pictures.js and review/static/marks.js.
COLOURS = (
    "#0072b2", "#e08214", "#009e73", "#c65c9c", "#56b4e9", "#b2400b", "#9a8c00", "#7b6bb5",
)  # fmt: skip
SHAPES = (
    "M1 0A1 1 0 1 1 -1 0A1 1 0 1 1 1 0Z",
    "M-.9 -.9H.9V.9H-.9Z",
    "M0 -1.15L1.1 .85H-1.1Z",
    "M0 -1.25L1.1 0L0 1.25L-1.1 0Z",
    "M-.4 -1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
    "M0 1.15L1.1 -.85H-1.1Z",
    "M-.6 -1H.6L1.2 0L.6 1H-.6L-1.2 0Z",
)
# The colour of images that are like no group.
NO_GROUP = "#7d858c"


@dataclass(frozen=True)
class Group:
    """id: stays with the group whatever becomes of it, and is not given again. name: "" until a
    person gives it one. role: a kind of flaw, no flaw, or images that somebody is unsure about."""

    id: int
    name: str = ""
    role: Role = "flaw"

    @property
    def title(self) -> str:
        """What it is called: its name, or a number until it has one."""
        if self.name:
            return self.name
        return {"flaw": f"Group {self.id}", "normal": "Normal", "unsure": "Unsure"}[self.role]

    @property
    def colour(self) -> str:
        """It goes with the id, wherever the group is shown."""
        return COLOURS[self.id % len(COLOURS)]

    @property
    def shape(self) -> str:
        return SHAPES[self.id % len(SHAPES)]


@dataclass(frozen=True)
class Labelling:
    """The groups of a run as they stand.

    groups: by id, also those that are empty. labels: (n_images,), the id of each image's group.
    confirmed: (n_images,), whether a person put the image there, or accepted that it is.
    several: the images that a person gave several kinds: row -> the other groups' ids, perhaps
    none. k: how many groups the tree was last cut into. next_id: of the next group that is made.
    """

    groups: Mapping[int, Group]
    labels: NDArray[np.int64]
    confirmed: Bools
    k: int
    next_id: int
    several: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def members(self, group: int) -> NDArray[np.int64]:
        """The rows of a group's images."""
        return np.flatnonzero(self.labels == group)

    def with_role(self, role: Role) -> list[int]:
        """The ids of the groups of a role."""
        return [group.id for group in self.groups.values() if group.role == role]


def first_labelling(run: Run) -> Labelling:
    """As the clustering left it: a group a cluster, with the cluster's number for an id. A group
    nearly all of whose images look normal has that role."""
    labels, normal = run.labels.copy(), run.looks_normal
    groups = {}
    for cluster in range(run.n_clusters):
        looks = bool(normal[labels == cluster].mean() >= NORMAL_GROUP_SHARE)
        groups[cluster] = Group(cluster, role="normal" if looks else "flaw")
    return Labelling(groups, labels, np.zeros(len(labels), bool), len(groups), len(groups))


def region_groups(run: Run, labelling: Labelling) -> NDArray[np.int64]:
    """(n_regions,): the group of each region as the groups stand, -1 for those like no group.

    A region that is like its image's own cluster is where the image is now; another one where most
    images of the cluster that it is like are now.
    """
    images, like = run.region_rows, np.array(run.regions["cluster"], np.int64)
    now = current_groups(like.tolist(), run, labelling)
    own = like == run.labels[images]
    return np.where(own, labelling.labels[images], now)


def current_groups(clusters: Sequence[int], run: Run, labelling: Labelling) -> NDArray[np.int64]:
    """(n,): the group where most images of each cluster of the run are now; -1 stays so."""
    own = run.labels
    moved = {int(cluster): _most(labelling.labels[own == cluster]) for cluster in np.unique(own)}
    return np.array([moved.get(cluster, -1) for cluster in clusters], np.int64)


def without_flaw(labelling: Labelling) -> Bools:
    """(n_images,): whether a person has put the image into a group that is no flaw."""
    found: Bools = labelling.confirmed & ~np.isin(labelling.labels, labelling.with_role("flaw"))
    return found


def kinds(run: Run, labelling: Labelling) -> list[tuple[int, ...]]:
    """All groups of each image, its own first: the others as a person gave them, or else those of
    its regions, as far as they are flaws. To put an image into a group that is no flaw says that it
    has none."""
    found = [[label] for label in labelling.labels.tolist()]
    of_regions = region_groups(run, labelling).tolist()
    plain = find_plain_groups(None, labelling.labels, run.region_rows)
    settled = without_flaw(labelling)
    for row, group in zip(run.region_rows.tolist(), of_regions, strict=True):
        if row in labelling.several or settled[row] or group < 0 or group in found[row]:
            continue
        if labelling.groups[group].role == "flaw" and group not in plain:
            found[row].append(group)
    for row, others in labelling.several.items():
        found[row] += [group for group in others if group not in found[row]]
    return [tuple(some) for some in found]


def _most(labels: Ints) -> int:
    values, counts = np.unique(labels, return_counts=True)
    return int(values[counts.argmax()])

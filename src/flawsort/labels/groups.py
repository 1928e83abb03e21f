"""The groups of a run as people left them: names, roles, members and confirmed images."""

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
# Eight colours that stay distinct with any colour vision, times seven shapes as SVG paths. The
# pages read them through outputs/web.
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
# The colour of images that resemble no group.
NO_GROUP = "#7d858c"


@dataclass(frozen=True)
class Group:
    """id: permanent, and never reused. name: "" until a person gives one. role: a kind of flaw,
    normal (no flaw), or unsure (undecided images)."""

    id: int
    name: str = ""
    role: Role = "flaw"

    @property
    def title(self) -> str:
        """The name, or a title from the role and id until there is one."""
        if self.name:
            return self.name
        return {"flaw": f"Group {self.id}", "normal": "Normal", "unsure": "Unsure"}[self.role]

    @property
    def colour(self) -> str:
        """Depends on the id only, so it is the same wherever the group is shown."""
        return COLOURS[self.id % len(COLOURS)]

    @property
    def shape(self) -> str:
        return SHAPES[self.id % len(SHAPES)]


@dataclass(frozen=True)
class Labelling:
    """The current groups of a run.

    groups: by id, including empty ones. labels: (n_images,), the id of each image's group.
    confirmed: (n_images,), whether a person put the image into its group or accepted it there.
    several: the other kinds that a person gave an image: row -> group ids, possibly none. k: the
    number of groups at the last cut of the tree. next_id: the id of the next new group.
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
        """The ids of the groups with a role."""
        return [group.id for group in self.groups.values() if group.role == role]


def first_labelling(run: Run) -> Labelling:
    """The labelling before any edit: one group per cluster, with the cluster's number as its id. A
    group has the role normal if nearly all of its images look normal."""
    labels, normal = run.labels.copy(), run.looks_normal
    groups = {}
    for cluster in range(run.n_clusters):
        looks = bool(normal[labels == cluster].mean() >= NORMAL_GROUP_SHARE)
        groups[cluster] = Group(cluster, role="normal" if looks else "flaw")
    return Labelling(groups, labels, np.zeros(len(labels), bool), len(groups), len(groups))


def region_groups(run: Run, labelling: Labelling) -> NDArray[np.int64]:
    """(n_regions,): the current group of each region, -1 for regions that resemble no group.

    A region that resembles its image's own cluster has the image's current group. Any other region
    has the group where most images of the cluster that it resembles are now.
    """
    images, like = run.region_rows, np.array(run.regions["cluster"], np.int64)
    now = current_groups(like.tolist(), run, labelling)
    own = like == run.labels[images]
    return np.where(own, labelling.labels[images], now)


def current_groups(clusters: Sequence[int], run: Run, labelling: Labelling) -> NDArray[np.int64]:
    """(n,): the group where most images of each cluster of the run are now; -1 stays -1."""
    own = run.labels
    moved = {int(cluster): _most(labelling.labels[own == cluster]) for cluster in np.unique(own)}
    return np.array([moved.get(cluster, -1) for cluster in clusters], np.int64)


def without_flaw(labelling: Labelling) -> Bools:
    """(n_images,): whether a person has put the image into a group without the role flaw."""
    found: Bools = labelling.confirmed & ~np.isin(labelling.labels, labelling.with_role("flaw"))
    return found


def kinds(run: Run, labelling: Labelling) -> list[tuple[int, ...]]:
    """All groups of each image, its own first. The others are those that a person gave it, or else
    the flaws that its regions resemble. An image that a person has put into a group without the
    role flaw has no others."""
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
    return [tuple(groups) for groups in found]


def _most(labels: Ints) -> int:
    values, counts = np.unique(labels, return_counts=True)
    return int(values[counts.argmax()])

"""The groups of a run as people left them: names, roles, members and confirmed images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.kinds import find_plain_groups
from flawsort.core.records import Bools, Ints
from flawsort.runs.run import Run
from flawsort.runs.tables import first_title, normal_clusters

Role: TypeAlias = Literal["flaw", "normal", "unsure"]
ROLES: tuple[Role, ...] = ("flaw", "normal", "unsure")
# "": nobody has said it. The worst comes first.
Severity: TypeAlias = Literal["", "critical", "major", "minor", "none"]
SEVERITIES: tuple[Severity, ...] = ("", "critical", "major", "minor", "none")
SEVERITY_TITLES = {
    "critical": "critical",
    "major": "major",
    "minor": "minor",
    "none": "no severity",
}
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
    normal (no flaw), or unsure (undecided images). severity: of the flaw, "" until a person says
    it. note: what people wrote about it, or ""."""

    id: int
    name: str = ""
    role: Role = "flaw"
    severity: Severity = ""
    note: str = ""

    @property
    def told(self) -> bool:
        """Whether a person has said anything of it that would be lost with the group."""
        return bool(self.name or self.severity or self.note)

    @property
    def title(self) -> str:
        """The name, or a title from the role and id until there is one."""
        if self.name:
            return self.name
        if self.role == "unsure":
            return "Unsure"
        return first_title(self.id, normal=self.role == "normal")

    @property
    def colour(self) -> str:
        """Depends on the id only, so it is the same wherever the group is shown."""
        return COLOURS[self.id % len(COLOURS)]

    @property
    def shape(self) -> str:
        return SHAPES[self.id % len(SHAPES)]


@dataclass(frozen=True, eq=False)
class Example:
    """An image outside the run that a person put into a group. sha256: of its bytes. vector:
    (dim,), its embedding in this run."""

    name: str
    sha256: str
    group: int
    vector: NDArray[np.float32]


@dataclass(frozen=True)
class Answer:
    """The first answer about an image. suggested: the group that was suggested just before. given:
    the group that the person chose, or -2 if they only said that it is not the suggested one. For
    an image outside the run -1 is a new kind in both. together: whether several images were
    answered at once."""

    suggested: int
    given: int
    together: bool = False


@dataclass(frozen=True)
class Audit:
    """A random image that a person put into a group without seeing the suggestion. group: where it
    was before. decided: whether a person had put it there."""

    group: int
    decided: bool


@dataclass(frozen=True)
class Labelling:
    """The groups of a run and what people said of its images.

    groups: by id, including empty ones. labels: (n_images,), the id of the group that each image
    was put or clustered into. confirmed: (n_images,), whether a person decided that. several: the
    other kinds that a person gave an image: row -> group ids, possibly none. k: the number of
    groups at the last cut of the tree. next_id: the id of the next new group. rejected: the groups
    that an image is not of: row -> group ids. examples: images outside the run, one per SHA-256.
    answers: about images for which something was suggested, by row, or by the SHA-256 of images
    outside the run. audits: by row. threshold: a new image is OK if its
    probability of being normal is at least this; None if nobody has chosen it. different: pairs of
    groups that a person called different kinds. notes: what people wrote about images, by row.
    """

    groups: Mapping[int, Group]
    labels: NDArray[np.int64]
    confirmed: Bools
    k: int
    next_id: int
    several: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    rejected: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    answers: Mapping[int | str, Answer] = field(default_factory=dict)
    audits: Mapping[int, Audit] = field(default_factory=dict)
    threshold: float | None = None
    different: frozenset[frozenset[int]] = frozenset()
    notes: Mapping[int, str] = field(default_factory=dict)

    def members(self, group: int) -> NDArray[np.int64]:
        """The rows of a group's images."""
        return np.flatnonzero(self.labels == group)

    def with_role(self, role: Role) -> list[int]:
        """The ids of the groups with a role."""
        return [group.id for group in self.groups.values() if group.role == role]

    def same_kind(self, one: int, other: int) -> bool:
        """Whether two groups are one kind: the same group, or both normal."""
        normal = self.with_role("normal")
        return one == other or (one in normal and other in normal)


def first_labelling(run: Run) -> Labelling:
    """The labelling before any edit: one group per cluster, with the cluster's number as its id. A
    group has the role normal if nearly all of its images look normal."""
    labels = run.labels.copy()
    normal = normal_clusters(labels, run.looks_normal)
    groups = {
        cluster: Group(cluster, role="normal" if cluster in normal else "flaw")
        for cluster in range(run.n_clusters)
    }
    return Labelling(groups, labels, np.zeros(len(labels), bool), len(groups), len(groups))


def region_groups(run: Run, labelling: Labelling) -> NDArray[np.int64]:
    """(n_regions,): the current group of each region, -1 for regions that resemble no group.

    A region that resembles its image's own cluster has the image's current group. Any other region
    has the group where most images of the cluster that it resembles are now.
    """
    images, like = run.region_rows, np.array(run.regions["cluster"], np.int64)
    now = current_groups(like.tolist(), run.labels, labelling)
    own = like == run.labels[images]
    return np.where(own, labelling.labels[images], now)


def current_groups(clusters: Sequence[int], own: Ints, labelling: Labelling) -> NDArray[np.int64]:
    """(n,): the group where most images of each cluster of the run are now; -1 stays -1. own:
    (n_images,), the clusters of the run's images."""
    wanted, place = np.unique(np.asarray(clusters, np.int64), return_inverse=True)
    members = [labelling.labels[own == cluster] for cluster in wanted.tolist()]
    moved = [_most(some) if len(some) else -1 for some in members]
    return np.array(moved, np.int64)[place]


def without_flaw(labelling: Labelling) -> Bools:
    """(n_images,): whether a person has put the image into a group without the role flaw."""
    found: Bools = labelling.confirmed & ~np.isin(labelling.labels, labelling.with_role("flaw"))
    return found


def kinds(run: Run, labelling: Labelling, regions: Ints | None = None) -> list[tuple[int, ...]]:
    """All groups of each image, its own first, then `other_kinds`."""
    others = other_kinds(run, labelling, regions)
    return [(own, *others.get(row, ())) for row, own in enumerate(labelling.labels.tolist())]


def other_kinds(
    run: Run, labelling: Labelling, regions: Ints | None = None
) -> dict[int, tuple[int, ...]]:
    """The further groups of the images that have some, by their rows, which ascend. They are those
    that a person gave, or else the flaws that the image's regions show. An image that a person has
    put into a group without the role flaw has no others. regions: (n_regions,), the group of each;
    None for `region_groups`."""
    rows, own = run.region_rows, labelling.labels
    of_regions = region_groups(run, labelling) if regions is None else regions
    plain = find_plain_groups(None, own, rows)
    flaws = [group for group in labelling.with_role("flaw") if group not in plain]
    free = ~without_flaw(labelling)
    free[list(labelling.several)] = False
    chosen = np.flatnonzero(free[rows] & (of_regions != own[rows]) & np.isin(of_regions, flaws))
    found: dict[int, list[int]] = {}
    given = [(row, other) for row, others in labelling.several.items() for other in others]
    shown = zip(rows[chosen].tolist(), of_regions[chosen].tolist(), strict=True)
    groups = own.tolist()  # one number of an array at a time would take twice as long
    for row, group in (*shown, *given):
        there = found.setdefault(row, [])
        if group != groups[row] and group not in there:
            there.append(group)
    return {row: tuple(found[row]) for row in sorted(found) if found[row]}


def _most(labels: Ints) -> int:
    values, counts = np.unique(labels, return_counts=True)
    return int(values[counts.argmax()])

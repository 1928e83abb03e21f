"""The tables of a clustering for people: one row per image, and one row per region."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.kinds import Kinds, Regions
from flawsort.clusters.placement import Placement, typicality
from flawsort.core.records import Bools, Floats, ImageSet, Ints
from flawsort.core.tables import FLAG, INTEGER, NUMBER, TEXT, Column, Columns, Of, Table
from flawsort.core.text import printable
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE, HeatScale
from flawsort.embeddings.regions import Outlines, mask_text

# Separates the kinds of an image, in tables and in truths.
SEVERAL = ";"
# A flag of an image.
LOOKS_NORMAL = "looks-normal"


# What people read where no group has a name.
NORMAL_TITLE = "normal"
NEW_KIND_TITLE = "new kind"


@dataclass(frozen=True)
class ImageGroups:
    """The groups of images as people read them. titles: of the group of each image. probability:
    how sure the taught model is of it; None where a person decided or nothing was taught. decided:
    whether a person did."""

    titles: Sequence[str]
    probability: Sequence[float | None]
    decided: Sequence[bool]

    def columns(self) -> Table:
        """The columns that `group_columns` declares."""
        return Columns[ImageGroups](*group_columns(lambda of: of)).build(self)


@dataclass(frozen=True)
class Matched:
    """Where the reference shows the like of some places. names: of the known-good image, or without
    these of the image of the run, or None. moves: (n, 2), how many patches down and across the
    place lies there from where it is here."""

    names: Sequence[str | None]
    moves: Ints

    @classmethod
    def of(cls, matches: Ints, gallery: Sequence[str]) -> Matched:
        """matches: (n, 3), see Match. gallery: the names of the reference's images."""
        names = [gallery[image] if image >= 0 else None for image in matches[:, 0].tolist()]
        return cls(names, matches[:, 1:])

    @classmethod
    def nothing(cls, n: int) -> Matched:
        """Of n places where nothing was compared."""
        return cls([None] * n, np.zeros((n, 2), np.int64))

    def along(self, axis: int) -> list[int | None]:
        """The moves down (0) or across (1)."""
        moves = zip(self.names, self.moves[:, axis].tolist(), strict=True)
        return [None if name is None else move for name, move in moves]


@dataclass(frozen=True)
class ClusteredImages:
    """The data of images.csv. labels, scores: (n_images,). placed: the distances of the images to
    the centres of the clusters. kinds, flags: of each image. matched: its most unusual place."""

    images: ImageSet
    groups: ImageGroups
    labels: Ints
    scores: Floats
    placed: Placement
    kinds: Kinds
    flags: Sequence[Sequence[str]]
    matched: Matched


def group_columns(groups: Callable[[Of], ImageGroups]) -> tuple[Column[Of], ...]:
    """The columns that every table of images has for people. groups: of the table's source."""
    return (
        Column(
            "group",
            TEXT,
            "what its group is called: a name, normal, or Group 3 where nobody named it",
            lambda of: groups(of).titles,
            optional=True,
        ),
        Column(
            "probability",
            NUMBER,
            "how sure the taught model is of the group; empty if decided or if nothing was taught",
            lambda of: groups(of).probability,
            optional=True,
        ),
        Column(
            "decided",
            FLAG,
            "whether a person decided the group",
            lambda of: groups(of).decided,
            optional=True,
        ),
    )


def match_columns(matched: Callable[[Of], Matched]) -> tuple[Column[Of], ...]:
    """The columns about the best matching place. matched: of the table's source."""
    return (
        Column(
            "match",
            TEXT,
            "the known-good image (without these: the image of the run) whose place matches best",
            lambda of: matched(of).names,
            optional=True,
        ),
        Column(
            "match_down",
            INTEGER,
            "how many patches further down that place lies there",
            lambda of: matched(of).along(0),
            optional=True,
        ),
        Column(
            "match_across",
            INTEGER,
            "how many patches further to the right",
            lambda of: matched(of).along(1),
            optional=True,
        ),
    )


IMAGES = Columns[ClusteredImages](
    Column(
        "name",
        TEXT,
        "the path below the folder given, with forward slashes; unique",
        lambda of: of.images.names,
    ),
    Column("path", TEXT, "where the file was", lambda of: source_paths(of.images)),
    Column("sha256", TEXT, "of the file's bytes", lambda of: of.images.digests),
    *group_columns(lambda of: of.groups),
    Column("cluster", INTEGER, "what was computed, 0 the largest", lambda of: of.labels.tolist()),
    Column(
        "kinds",
        TEXT,
        "the cluster, then the other clusters that regions of the image resemble, separated by ;",
        lambda of: [SEVERAL.join(map(str, groups)) for groups in of.kinds],
    ),
    Column(
        "score",
        NUMBER,
        "how unusual the image is: the mean score of its most unusual patches, 1 in 100",
        lambda of: np.asarray(of.scores, np.float64).tolist(),
    ),
    Column(
        "distance", NUMBER, "to the centre of its group", lambda of: of.placed.distance.tolist()
    ),
    Column(
        "typicality",
        NUMBER,
        "1 for the image nearest to its group's centre, falling evenly to 0",
        lambda of: typicality(of.placed.distance, of.labels).tolist(),
    ),
    Column(
        "runner_up", INTEGER, "the second nearest group", lambda of: of.placed.runner_up.tolist()
    ),
    Column(
        "runner_up_distance",
        NUMBER,
        "to the centre of the second nearest group; 0 if there is none",
        lambda of: _finite(of.placed.runner_up_distance).tolist(),
    ),
    Column(
        "flags",
        TEXT,
        "any of duplicate, borderline, looks-normal, separated by ;",
        lambda of: [SEVERAL.join(words) for words in of.flags],
    ),
    *match_columns(lambda of: of.matched),
)
"""The columns of images.csv and images.parquet."""


@dataclass(frozen=True)
class LocatedRegions:
    """The data of regions.csv. boxes: (n_regions, 4), left, top, right, bottom in fractions of the
    upright image."""

    images: ImageSet
    regions: Regions
    boxes: NDArray[np.float64]
    scale: HeatScale
    matched: Matched

    @property
    def outlines(self) -> Outlines:
        return self.regions.outlines


REGIONS = Columns[LocatedRegions](
    Column(
        "name",
        TEXT,
        "of the image",
        lambda of: [of.images.names[row] for row in of.outlines.images],
    ),
    Column(
        "region",
        INTEGER,
        "number within the image, from 0; the hottest first",
        lambda of: _number_within(of.outlines.images).tolist(),
    ),
    Column(
        "cluster",
        INTEGER,
        "the group that it resembles; -1 if it resembles no image of the run",
        lambda of: of.regions.labels.tolist(),
    ),
    Column(
        "nearest",
        INTEGER,
        "the nearest group, also where cluster is -1",
        lambda of: of.regions.nearest.tolist(),
    ),
    Column(
        "confidence",
        NUMBER,
        "the share of the run's images that lie less clearly in their group; 0 where cluster is -1",
        lambda of: of.regions.confidence.tolist(),
    ),
    Column(
        "score",
        NUMBER,
        "the score of its most unusual patch",
        lambda of: of.outlines.peaks.astype(np.float64).tolist(),
    ),
    Column(
        "heat",
        NUMBER,
        "its most unusual patch on the scale of the heat maps, 0 to 1",
        lambda of: of.scale.normalise(of.outlines.peaks).tolist(),
    ),
    Column(
        "x",
        NUMBER,
        "left of the box around it, in fractions of the upright image",
        lambda of: of.boxes[:, 0].tolist(),
    ),
    Column("y", NUMBER, "top of that box", lambda of: of.boxes[:, 1].tolist()),
    Column(
        "width",
        NUMBER,
        "of that box",
        lambda of: (of.boxes[:, 2] - of.boxes[:, 0]).tolist(),
    ),
    Column(
        "height",
        NUMBER,
        "of that box",
        lambda of: (of.boxes[:, 3] - of.boxes[:, 1]).tolist(),
    ),
    Column(
        "mask",
        TEXT,
        "its patches, counted row by row over the grid: 37-39 69 are 37, 38, 39 and 69",
        lambda of: [mask_text(of.outlines[region]) for region in range(len(of.outlines))],
    ),
    *match_columns(lambda of: of.matched),
)
"""The columns of regions.csv and regions.parquet."""


def images_table(
    images: ImageSet,
    labels: Ints,
    scores: Floats,
    placed: Placement,
    kinds: Kinds,
    flags: Sequence[Sequence[str]],
    matched: Matched | None = None,
) -> Table:
    """The table of images.csv and images.parquet, with the groups before anybody has named one."""
    matched = matched or Matched.nothing(len(images))
    looks_normal = np.array([LOOKS_NORMAL in words for words in flags], bool)
    groups = first_groups(labels, looks_normal)
    return IMAGES.build(
        ClusteredImages(images, groups, labels, scores, placed, kinds, flags, matched)
    )


def first_groups(labels: Ints, looks_normal: Bools) -> ImageGroups:
    """The groups before any edit: one for each cluster. labels, looks_normal: (n_images,)."""
    normal = normal_clusters(labels, looks_normal)
    titles = [first_title(label, normal=label in normal) for label in labels.tolist()]
    return ImageGroups(titles, [None] * len(titles), [False] * len(titles))


def first_title(cluster: int, *, normal: bool) -> str:
    """What the group of a cluster is called until a person names it."""
    return NORMAL_TITLE if normal else f"Group {cluster}"


def normal_clusters(labels: Ints, looks_normal: Bools) -> frozenset[int]:
    """The clusters in which nearly all images look normal. labels, looks_normal: (n_images,)."""
    found = np.unique(labels).tolist()
    return frozenset(
        one for one in found if looks_normal[labels == one].mean() >= NORMAL_GROUP_SHARE
    )


def with_groups(table: Table, groups: ImageGroups) -> Table:
    """A table of images with these groups, in the order of its declared columns."""
    changed = {**table, **groups.columns()}
    declared = [column.name for column in IMAGES if column.name in changed]
    return {name: changed[name] for name in dict.fromkeys([*declared, *changed])}


def regions_table(
    images: ImageSet,
    regions: Regions,
    boxes: NDArray[np.float64],
    scale: HeatScale,
    matched: Matched | None = None,
) -> Table:
    """The table of regions.csv and regions.parquet. boxes: (n_regions, 4), left, top, right,
    bottom in fractions of the upright image."""
    matched = matched or Matched.nothing(len(regions))
    return REGIONS.build(LocatedRegions(images, regions, boxes, scale, matched))


def known_numbers(values: Floats) -> list[float | None]:
    """Numbers (n,) as a column, with None in the place of nan."""
    return [None if np.isnan(value) else value for value in np.asarray(values, float).tolist()]


def source_paths(images: ImageSet) -> list[str]:
    """The paths of images as text; "" for an array."""
    return [
        "" if isinstance(source, np.ndarray) else printable(source.absolute())
        for source in images.sources
    ]


def _finite(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(distances), distances, 0)


def _number_within(images: Ints) -> NDArray[np.int64]:
    """(n_regions,): the number of each region within its image, from 0. images: the row of each
    region's image, ascending."""
    return np.arange(len(images)) - np.searchsorted(images, images)


def image_flags(images: ImageSet, placed: Placement, looks_normal: Bools | None) -> list[list[str]]:
    """For each image the words that people may filter by.

    looks_normal: (n_images,); None if it is not known what is normal.
    """
    copies = {name for group in images.duplicates() for name in group}
    borderline = placed.borderline
    flags: list[list[str]] = []
    for row, name in enumerate(images.names):
        words = ["duplicate"] if name in copies else []
        if borderline[row]:
            words.append("borderline")
        if looks_normal is not None and looks_normal[row]:
            words.append(LOOKS_NORMAL)
        flags.append(words)
    return flags

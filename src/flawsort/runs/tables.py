"""The tables of a clustering for people: one row per image, and one row per region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.kinds import Kinds, Regions
from flawsort.clusters.placement import Placement, typicality
from flawsort.core.records import Bools, Floats, ImageSet, Ints
from flawsort.core.tables import INTEGER, NUMBER, TEXT, Column, Columns, Table
from flawsort.core.text import printable
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.regions import Outlines, mask_text

# Separates the kinds of an image, in tables and in truths.
SEVERAL = ";"
# A flag of an image.
LOOKS_NORMAL = "looks-normal"


@dataclass(frozen=True)
class ClusteredImages:
    """The data of images.csv. labels, scores: (n_images,). placed: the distances of the images to
    the centres of the clusters. kinds, flags: of each image."""

    images: ImageSet
    labels: Ints
    scores: Floats
    placed: Placement
    kinds: Kinds
    flags: Sequence[Sequence[str]]


IMAGES = Columns[ClusteredImages](
    Column(
        "name",
        TEXT,
        "the path below the folder given, with forward slashes; unique",
        lambda of: of.images.names,
    ),
    Column("path", TEXT, "where the file was", lambda of: source_paths(of.images)),
    Column("sha256", TEXT, "of the file's bytes", lambda of: of.images.digests),
    Column("cluster", INTEGER, "the group, 0 the largest", lambda of: of.labels.tolist()),
    Column(
        "kinds",
        TEXT,
        "the group, then the other groups that regions of the image resemble, separated by ;",
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
)
"""The columns of regions.csv and regions.parquet."""


def images_table(
    images: ImageSet,
    labels: Ints,
    scores: Floats,
    placed: Placement,
    kinds: Kinds,
    flags: Sequence[Sequence[str]],
) -> Table:
    """The table of images.csv and images.parquet."""
    return IMAGES.build(ClusteredImages(images, labels, scores, placed, kinds, flags))


def regions_table(
    images: ImageSet,
    regions: Regions,
    boxes: NDArray[np.float64],
    scale: HeatScale,
) -> Table:
    """The table of regions.csv and regions.parquet. boxes: (n_regions, 4), left, top, right,
    bottom in fractions of the upright image."""
    return REGIONS.build(LocatedRegions(images, regions, boxes, scale))


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

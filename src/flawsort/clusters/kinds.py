"""All kinds of flaws in an image: that of its group, and those that its regions resemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import Groups
from flawsort.core.records import Bools, Ints
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE
from flawsort.embeddings.regions import Outlines, regions_of_images

# In a group of flaws, at least this share of the images has a region.
STANDING_OUT_SHARE = 0.5

Kinds = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, repr=False)
class Regions:
    """The regions of a set of images, and the group that each resembles.

    outlines: where they are, by image row. embeddings: (n, dim). labels: (n,), the group, or -1
    where the region resembles no image of the run. nearest: (n,), the nearest group, whatever the
    label. confidence: (n,), as in an Assignment.
    """

    outlines: Outlines
    embeddings: NDArray[np.float32]
    labels: NDArray[np.int64]
    nearest: NDArray[np.int64]
    confidence: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Regions({len(self)} regions of {len(np.unique(self.outlines.images))} images)"

    def take(self, rows: Ints, images: Ints | None = None) -> Regions:
        """The regions at `rows`, in that order. images: the image of each, if it is another one."""
        owners = self.outlines.images[rows] if images is None else images
        return Regions(
            self.outlines.take(rows, owners),
            self.embeddings[rows],
            self.labels[rows],
            self.nearest[rows],
            self.confidence[rows],
        )


def sort_regions(
    outlines: Outlines, embeddings: NDArray[np.float32], groups: Groups, rows: Ints
) -> Regions:
    """Assign regions to the groups. rows: (n_images,), for each image the row of its content, as
    the outlines number them."""
    found = groups.assign(embeddings)
    chosen, images = regions_of_images(outlines, rows)
    whole = Regions(outlines, embeddings, found.labels, found.nearest, found.confidence)
    return whole.take(chosen, images)


def join_in_order(parts: Sequence[tuple[Regions, Ints]]) -> Regions:
    """The regions of several sets as one, sorted by image. parts: each with the image of each of
    its regions."""
    regions = [part for part, _ in parts]
    images = np.concatenate([owners for _, owners in parts])
    cells = [part.outlines[row] for part in regions for row in range(len(part))]
    peaks = np.concatenate([part.outlines.peaks for part in regions]).tolist()
    together = Regions(
        Outlines.of(list(zip(images.tolist(), peaks, cells, strict=True))),
        np.concatenate([part.embeddings for part in regions]),
        np.concatenate([part.labels for part in regions]),
        np.concatenate([part.nearest for part in regions]),
        np.concatenate([part.confidence for part in regions]),
    )
    order = np.argsort(images, kind="stable")
    return together.take(order)


def kinds_of_images(
    labels: Ints, images: Ints, region_labels: Ints, plain_groups: frozenset[int]
) -> Kinds:
    """For each image its own group, then the other groups that its regions resemble, the hottest
    region first. Plain groups are left out: a region that stands out does not belong to one.

    labels: (n_images,). images, region_labels: (n_regions,), the image of each region and its
    group or -1.
    """
    kinds: list[list[int]] = [[label] for label in labels.tolist()]
    for image, label in zip(images.tolist(), region_labels.tolist(), strict=True):
        if label >= 0 and label not in plain_groups and label not in kinds[image]:
            kinds[image].append(label)
    return tuple(map(tuple, kinds))


def find_plain_groups(
    looks_normal: Bools | None, labels: Sequence[int] | Ints, images: Ints
) -> frozenset[int]:
    """The groups in which nearly all images look normal, or in which most images have no region.

    looks_normal: (n_images,); None to judge by regions alone. images: (n_regions,), the image of
    each region.
    """
    of = np.asarray(labels)
    stands_out = np.zeros(len(of), bool)
    stands_out[images] = True
    plain = []
    for group in np.unique(of):
        own = of == group
        good = looks_normal is not None and looks_normal[own].mean() >= NORMAL_GROUP_SHARE
        if good or stands_out[own].mean() < STANDING_OUT_SHARE:
            plain.append(int(group))
    return frozenset(plain)

"""The part as the features of the normals show it: benchmarks/foreground.py --from features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from flawsort.core.records import Bags, Bools, Floats

# The direction that tells the part from the background is among the first few: on a board with
# holes the first one tells the holes from the copper.
DIRECTIONS = 3
# The background is plain where the border is nearly all background, and the two sides of the
# threshold explain this share of the variance. It is .64 for a normal distribution, .75 for an
# even one. Chosen by the sets that were measured (docs/evidence/experiments.md).
PLAIN_BORDER = 0.8
PLAIN_APART = 0.75
# A place where this share of the normals shows the part belongs to it.
SEEN = 0.1
# The smoothing of maps, in patches of the first view.
SMOOTH = 1.0
WAYS = ("both", "own", "place")


@dataclass(frozen=True)
class Foreground:
    """How the part is told from the background along one direction of the patches.

    number: of the direction, counted from the one with the most variance, from 1. mean, direction:
    (dim,). level: what lies above it is the part. border: the share of the border of the normals
    that lies below the threshold between the two sides. apart: the share of the variance that the
    two sides explain. place: (rows, columns), where the normals show the part.
    """

    number: int
    mean: Floats
    direction: Floats
    level: float
    border: float
    apart: float
    place: Bools

    @property
    def is_plain(self) -> bool:
        return self.border >= PLAIN_BORDER and self.apart >= PLAIN_APART

    def parts(self, bags: Bags, way: str = "both", margin: int = 0) -> Bools:
        """(n, rows, columns) on the grid of the first view: the part of each image, and `margin`
        patches around it.

        way: where the patches of the image itself are the part ("own"), where those of the normals
        are ("place"), or both together, so that neither a part that has moved nor the place of a
        missing one is cut off. An image that shows no part counts as nothing but part.
        """
        own = maps_of(bags, self.mean, self.direction) > self.level
        place = np.zeros_like(own) | self.place
        found = {"own": own, "place": place, "both": own | place}[way]
        if margin:
            found = np.stack([ndimage.binary_dilation(one, iterations=margin) for one in found])
        return found | ~found.any(axis=(1, 2), keepdims=True)


def directions_of(normals: Bags, at: float = 1.0) -> Iterator[Foreground]:
    """The first few principal directions of the patches of the last view, as foregrounds.

    at: where the level lies between the mean of the background (0) and the threshold (1): the less,
    the more counts as part.
    """
    patches = normals.views[-1].patches.astype(np.float64)
    patches = patches.reshape(-1, patches.shape[-1])
    mean = patches.mean(axis=0)
    _, axes = np.linalg.eigh((patches - mean).T @ (patches - mean))
    edge = np.ones(normals.grid, bool)
    edge[1:-1, 1:-1] = False
    for number in range(1, DIRECTIONS + 1):
        direction = axes[:, -number]
        maps = maps_of(normals, mean, direction)
        if maps[:, edge].mean() > maps[:, ~edge].mean():
            maps, direction = -maps, -direction
        threshold, apart = otsu(maps)
        below = maps[maps <= threshold].mean()
        level = float(below + at * (threshold - below))
        border = float((maps[:, edge] <= threshold).mean())
        place = (maps > level).mean(axis=0) >= SEEN
        yield Foreground(number, mean, direction, level, border, apart, place)


def foreground_of(normals: Bags, at: float = 1.0) -> Foreground | None:
    """That of the plain direction whose sides are furthest apart; None if there is none."""
    plain = [one for one in directions_of(normals, at) if one.is_plain]
    return max(plain, key=lambda one: one.apart, default=None)


def maps_of(bags: Bags, mean: Floats, direction: Floats) -> Floats:
    """(n, rows, columns): the patches of the last view along a direction, on the grid of the first
    view, smoothed."""
    last = bags.views[-1]
    along = (last.patches.astype(np.float64) - mean) @ direction
    along = along.reshape(len(bags), *last.grid)
    scale = [1.0, *(big / small for big, small in zip(bags.grid, last.grid, strict=True))]
    large = ndimage.zoom(along, scale, order=1, mode="nearest", grid_mode=True)
    return ndimage.gaussian_filter(large, (0, SMOOTH, SMOOTH), mode="nearest")


def otsu(values: Floats) -> tuple[float, float]:
    """The threshold whose two sides explain the most variance, and the share that they explain."""
    counts, edges = np.histogram(values, 256)
    middles, shares = (edges[1:] + edges[:-1]) / 2, counts / counts.sum()
    below, sums = np.cumsum(shares)[:-1], np.cumsum(shares * middles)[:-1]
    mean = (shares * middles).sum()
    between = (mean * below - sums) ** 2 / (below * (1 - below))
    best = int(between.argmax())
    variance = (shares * (middles - mean) ** 2).sum()
    return float(edges[best + 1]), float(between[best] / variance)

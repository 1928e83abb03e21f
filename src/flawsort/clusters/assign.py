"""Assign new images to the groups of a run with a confidence, or report them as a new kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.placement import Placement, centres, place, place_all
from flawsort.core.records import Bools, Floats, Ints
from flawsort.core.threads import blocks

# An image shows a kind not seen before when it is farther from its three nearest images of the
# run than 95 in 100 images of the run are from theirs. docs/method/method.md has the error rates.
NEIGHBOURS = 3
KNOWN_QUANTILE = 0.95
# That distance is measured on at most this many images of the run.
LIMIT_IMAGES = 4000
# In place of a cluster or group: a kind not seen before, and a good image where no group is normal.
UNSEEN = -1
NORMAL = -2
# An image that is near none of the run's images shows a new kind, unless the judge is this sure of
# one that it knows. docs/method/method.md has the error rates.
SURE = 0.8
# From embeddings (n, dim), and whether each image looks normal (n,), to probabilities (n, m). The
# last column is of none of the kinds that the others stand for.
Judge: TypeAlias = Callable[[Floats, Bools], Floats]
# Blocks of new images and of the run's images that are compared at a time: 8 MB of distances,
# which bounds the memory.
POINTS_AT_ONCE = 512
FITTED_AT_ONCE = 2048


@dataclass(frozen=True)
class AtOnce:
    """How many new images are compared with how many of the run's images at a time."""

    points: int = POINTS_AT_ONCE
    fitted: int = FITTED_AT_ONCE


USUAL = AtOnce()


@dataclass(frozen=True, repr=False)
class Assignment:
    """Where new images belong. All arrays are (n,) unless another shape is given.

    labels: the group, -1 for a kind not seen before, or -2 for a good image of no group. nearest:
    the group whose centre is nearest, whatever the label. confidence: the share of the run's images
    that lie less clearly in their group; 0 where the label is below 0. novelty: distance to the
    nearest images of the run, in units of the limit; above 1 the label is below 0. kinds: for each
    image its label and the other groups that its regions resemble (flawsort.clusters.kinds); empty
    without regions. looks_normal: whether an image was given as normal, or is no more unusual than
    those; None if nobody asked. judged: (n, m), what the judge said, or None without one.
    vectors: (n_kept, dim), the embeddings of the first images in float16, or None if none are kept.
    unseen: (n_strange, dim), the embeddings of the images that are `strange`, in their order.
    boxes, matches: (n, 4) and (n, 3), the most unusual place of each image, and the best matching
    place of the reference, as in Places; None if they are not known.
    """

    labels: NDArray[np.int64]
    nearest: NDArray[np.int64]
    confidence: NDArray[np.float64]
    novelty: NDArray[np.float64]
    placed: Placement
    unseen: Floats
    kinds: tuple[tuple[int, ...], ...] = ()
    looks_normal: Bools | None = None
    judged: NDArray[np.float32] | None = None
    vectors: NDArray[np.float16] | None = None
    boxes: NDArray[np.int64] | None = None
    matches: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return (
            f"Assignment({len(self.labels)} images, {len(self.unseen)} of a kind not seen before)"
        )

    @property
    def strange(self) -> Bools:
        """(n,): whether an image shows a kind not seen before: as `resembles_none` says if there
        was a judge, else by the label. An image that looks normal does not."""
        found: Bools = self.labels == UNSEEN
        if self.judged is not None:
            found = resembles_none(self.judged, self.labels)
        return found if self.looks_normal is None else found & ~self.looks_normal

    def seen_as(
        self, vectors: Floats, judge: Judge | None, *, looks_normal: Bools, known_good: Bools
    ) -> Assignment:
        """The assignment with what is known of the images beyond their nearest groups.

        vectors: (n, dim), their embeddings. looks_normal: (n,), as the field. known_good: (n,),
        whether the image was given as normal. Known-good images have the label -2, as have images
        that look normal and are near no group.
        """
        good = known_good | (looks_normal & (self.labels == UNSEEN))
        found = replace(
            self,
            labels=np.where(good, NORMAL, self.labels),
            confidence=np.where(good, 0.0, self.confidence),
            looks_normal=looks_normal,
            judged=None if judge is None else np.asarray(judge(vectors, looks_normal), np.float32),
        )
        return replace(found, unseen=np.asarray(vectors)[found.strange])

    def take(self, rows: Sequence[int] | Ints) -> Assignment:
        """The images at `rows`, in that order."""
        index = np.asarray(rows, np.int64)
        place_of = np.cumsum(self.strange) - 1
        return Assignment(
            labels=self.labels[index],
            nearest=self.nearest[index],
            confidence=self.confidence[index],
            novelty=self.novelty[index],
            placed=self.placed.take(index),
            unseen=self.unseen[place_of[index[self.strange[index]]]],
            kinds=tuple(self.kinds[row] for row in index) if self.kinds else (),
            looks_normal=None if self.looks_normal is None else self.looks_normal[index],
            judged=None if self.judged is None else self.judged[index],
            vectors=self._vectors_of(index),
            boxes=None if self.boxes is None else self.boxes[index],
            matches=None if self.matches is None else self.matches[index],
        )

    def _vectors_of(self, rows: Ints) -> NDArray[np.float16] | None:
        """The vectors of these rows, up to the first that has none."""
        if self.vectors is None:
            return None
        lacking = np.flatnonzero(rows >= len(self.vectors))
        return self.vectors[rows[: lacking[0]] if len(lacking) else rows]


@dataclass(frozen=True)
class Groups:
    """The groups of a run, measured once for any number of new images.

    fitted: (n_fitted, dim), the run's images that new ones are compared with. middles: (n_groups,
    dim), the centres. margins: (n,), how clearly each image of the run lies in its group, in
    ascending order. limit: the largest distance from the fitted images that counts as a known kind.
    at_once: the blocks that are compared.
    """

    fitted: Floats
    middles: NDArray[np.float64]
    margins: NDArray[np.float64]
    limit: float
    at_once: AtOnce = USUAL

    @classmethod
    def of(
        cls, fitted: Floats, labels: Ints, *, most: int | None = None, at_once: AtOnce = USUAL
    ) -> Groups:
        """fitted: (n, dim). labels: (n,), counting from 0. most: compare new images with at most
        this many of the run's images, evenly spread; None for all. at_once: as the field."""
        middles = centres(fitted, labels)
        margins = _margin(place(fitted, labels, middles))
        compared = fitted if most is None else fitted[:: -(-len(fitted) // most)]
        limit = _known_limit(compared, at_once)
        return cls(compared, middles, np.sort(margins), limit, at_once)

    def assign(self, new: Floats) -> Assignment:
        """Where new images belong. new: (n, dim)."""
        nearest, placed = place_all(new, self.middles)
        clearer_than = np.searchsorted(self.margins, _margin(placed), side="right")
        far = _neighbour_distance(new, self.fitted, itself=False, at_once=self.at_once)
        novelty = far / self.limit
        unseen = novelty > 1
        return Assignment(
            labels=np.where(unseen, UNSEEN, nearest),
            nearest=nearest,
            confidence=np.where(unseen, 0.0, clearer_than / len(self.margins)),
            novelty=novelty,
            placed=placed,
            unseen=np.asarray(new)[unseen],
        )


def resembles_none(judged: Floats, labels: Ints) -> Bools:
    """(n,): whether images show none of the kinds that a judge knows. judged: (n, m), what it said.
    labels: (n,), of an Assignment.

    Either none of the kinds is more likely than all of them, or the image is near none of the run's
    images and the judge is not sure.
    """
    far = (labels < 0) & (judged[:, :-1].max(axis=1) < SURE)
    found: Bools = (judged[:, -1] > 0.5) | far
    return found


def joined(parts: Sequence[Assignment]) -> Assignment:
    """The assignments of several batches of images as one, in order, without vectors."""
    return Assignment(
        labels=np.concatenate([part.labels for part in parts]),
        nearest=np.concatenate([part.nearest for part in parts]),
        confidence=np.concatenate([part.confidence for part in parts]),
        novelty=np.concatenate([part.novelty for part in parts]),
        placed=Placement.joined([part.placed for part in parts]),
        unseen=np.concatenate([part.unseen for part in parts]),
        kinds=tuple(kinds for part in parts for kinds in part.kinds),
        looks_normal=_together([part.looks_normal for part in parts]),
        judged=_together([part.judged for part in parts]),
        boxes=_together([part.boxes for part in parts]),
        matches=_together([part.matches for part in parts]),
    )


def _together(parts: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    """The arrays of all parts as one; None if the parts have none."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known else None


def _margin(placed: Placement) -> NDArray[np.float64]:
    """The margin of a Placement, but 0 beyond halfway: the label already gives the side of the
    border, and the margin only says how clear it is."""
    return np.maximum(placed.margin, 0.0)


def _known_limit(fitted: Floats, at_once: AtOnce) -> float:
    """The KNOWN_QUANTILE of the distances of the run's images to their nearest neighbours, measured
    on at most LIMIT_IMAGES images, evenly spread."""
    sample = fitted[:: -(-len(fitted) // LIMIT_IMAGES)]
    far = _neighbour_distance(sample, fitted, itself=True, at_once=at_once)
    return max(float(np.quantile(far, KNOWN_QUANTILE)), 1e-12)


def _neighbour_distance(
    points: Floats, fitted: Floats, *, itself: bool, at_once: AtOnce = USUAL
) -> NDArray[np.float64]:
    """(n,): the mean distance to the nearest fitted images.

    itself: the points are among the fitted ones, and none is its own neighbour.
    """
    count = min(NEIGHBOURS, len(fitted) - itself)
    means = np.empty(len(points))
    for block in blocks(len(points), at_once.points):
        queries = np.asarray(points[block], np.float64)
        nearest = _nearest(queries, fitted, count + itself, at_once.fitted)
        apart = fitted[nearest] - queries[:, None]
        # A point's distance to itself is 0 and adds nothing. Sorted, because the order of the terms
        # decides the last digit of a sum.
        far = np.sort(np.sqrt((apart**2).sum(axis=2)), axis=1)
        means[block] = far.sum(axis=1) / count
    return means


def _nearest(
    points: NDArray[np.float64], fitted: Floats, count: int, at_once: int
) -> NDArray[np.int64]:
    """(n, count): the rows of the nearest fitted images, searched `at_once` at a time.

    Dot products are many times faster than differences, and precise enough for the order once the
    mean of the points is subtracted.
    """
    middle = points.mean(axis=0)
    points = points - middle
    found = np.zeros((len(points), count), np.int64)
    nearest = np.full((len(points), count), np.inf)
    for block in blocks(len(fitted), at_once):
        others = np.asarray(fitted[block], np.float64) - middle
        # Squared distances without the point's squared length, which does not change the order.
        far = (others**2).sum(axis=1) - 2 * (points @ others.T)
        both = np.concatenate([nearest, far], axis=1)
        best = np.argpartition(both, count - 1, axis=1)[:, :count]
        earlier = np.take_along_axis(found, np.minimum(best, count - 1), axis=1)
        found = np.where(best < count, earlier, block.start + best - count)
        nearest = np.take_along_axis(both, best, axis=1)
    return found

"""The next question to a reviewer, chosen so that few answers label many images.

The paper labels clusters instead of images (Section 4.4): one answer about a group of one kind
labels all its images. So groups come first, the one that yields the most labels before the others,
and then single images that seem to be in the wrong group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.placement import centres, split_distances
from flawsort.core.errors import InputError
from flawsort.core.records import Bools, Floats
from flawsort.core.threads import blocks, single_threaded_blas
from flawsort.labels.groups import Labelling

EXAMPLES = 12
# In the estimated purity, the embeddings weigh as much as this many confirmed images.
PRIOR = 5
# The number of images compared with all centres at a time.
IMAGES_AT_ONCE = 4096


@dataclass(frozen=True)
class Question:
    """kind: "group" asks whether all images of a group belong together, "image" whether one image
    belongs to its group. group: an id. rows: the images to show: the most typical images of the
    group and then its most doubtful unconfirmed ones, or the single image. why: the reason for the
    question, a sentence for people; not escaped."""

    kind: Literal["group", "image"]
    group: int
    rows: tuple[int, ...]
    why: str


def next_question(
    labelling: Labelling,
    embeddings: Floats,
    *,
    skipped: Collection[int] = (),
    answered: Collection[int] = (),
) -> Question | None:
    """The next question, or None when there is nothing left to ask.

    First the group with the largest number of unconfirmed images times its estimated purity. When
    every group is confirmed, images in unsure groups, and then images nearer to another group's
    centre than to their own, smallest margin first.

    embeddings: (n_images, dim). skipped: ids of groups not to ask about now. answered: rows that
    were answered one by one and are not asked about again.
    """
    where = _Where.of(labelling, embeddings)
    gains = {}
    for group, purity in _purity(labelling, where).items():
        unconfirmed = np.count_nonzero(~labelling.confirmed[labelling.members(group)])
        asks = labelling.groups[group].role != "unsure" and group not in skipped
        if unconfirmed and asks:
            gains[group] = unconfirmed * purity
    if gains:
        return _about_group(labelling, where, max(gains, key=lambda group: gains[group]))
    return _about_image(labelling, where, answered)


def estimated_purity(
    labelling: Labelling, embeddings: Floats, *, images_at_once: int = IMAGES_AT_ONCE
) -> dict[int, float]:
    """For each group, the share of its images that seem to belong there, 0 to 1; 1 if it is empty.

    (confirmed + PRIOR x share) / (confirmed + PRIOR), where share is the share of images nearest
    to the group's own centre. embeddings: (n_images, dim). images_at_once: how many are compared
    with all centres at a time, which limits the memory.
    """
    return _purity(labelling, _Where.of(labelling, embeddings, images_at_once=images_at_once))


def progress(labelling: Labelling) -> tuple[int, int]:
    """The number of confirmed images, and of all images."""
    return int(labelling.confirmed.sum()), len(labelling.confirmed)


@dataclass(frozen=True)
class _Where:
    """Where images lie among the centres of groups. All arrays are (n_images,).

    own: squared distance to the centre of the image's group. other: to the nearest centre of
    another group, infinite if there is none. rival: the id of that group, or -1. lead: how much
    nearer that centre is than the next one. Unsure groups are not a kind, so other images are not
    compared with their centres.
    """

    own: NDArray[np.float64]
    other: NDArray[np.float64]
    rival: NDArray[np.int64]
    lead: NDArray[np.float64]

    @property
    def margin(self) -> NDArray[np.float64]:
        """How much nearer an image is to its own centre than to any other.

        A difference, unlike the margin of a Placement, which is a ratio: these distances come from
        matrix products, which are many times faster after each answer, and a ratio of two
        distances near 0 would be noise.
        """
        return np.sqrt(self.other) - np.sqrt(self.own)

    @classmethod
    def of(
        cls, labelling: Labelling, embeddings: Floats, *, images_at_once: int = IMAGES_AT_ONCE
    ) -> _Where:
        n = len(labelling.labels)
        if embeddings.ndim != 2 or len(embeddings) != n:
            raise InputError(
                f"embeddings must have the shape ({n}, dim), one row per image. "
                f"Got {embeddings.shape}."
            )
        ids, labels = np.unique(labelling.labels, return_inverse=True)
        kind = np.array([labelling.groups[group].role != "unsure" for group in ids.tolist()], bool)
        middles = centres(embeddings, labels)
        # Centred, because the squared distances below are differences of squares and lose digits.
        origin = middles.mean(axis=0)
        parts = []
        with single_threaded_blas():  # the same digits on any number of cores
            for block in blocks(n, images_at_once):
                parts.append(
                    _compare(embeddings[block] - origin, labels[block], middles - origin, kind)
                )
        own, other, rival, lead = (np.concatenate(found) for found in zip(*parts, strict=True))
        return cls(own, other, np.where(rival < 0, -1, ids[rival]), lead)


def _compare(
    values: Floats, labels: NDArray[np.int64], middles: NDArray[np.float64], kind: Bools
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """own, other, rival and lead of a _Where, for some images. kind: which groups are kinds."""
    far = values @ (-2 * middles.T)
    far += (middles**2).sum(axis=1)
    far += (values**2).sum(axis=1)[:, None]
    np.maximum(far, 0, out=far)
    own, rival, other = split_distances(far, labels, kind)
    far[np.arange(len(far)), rival] = np.inf  # where there is no rival, all are infinite already
    second = far.min(axis=1)
    none = np.isinf(second)
    lead = np.where(none, np.inf, np.sqrt(second) - np.sqrt(np.where(none, 0, other)))
    return own, other, rival, lead


def _purity(labelling: Labelling, where: _Where) -> dict[int, float]:
    at_home = where.own <= where.other
    found = {}
    for group in labelling.groups:
        rows = labelling.members(group)
        seen = int(labelling.confirmed[rows].sum())
        share = float(at_home[rows].mean()) if len(rows) else 1.0
        found[group] = (seen + PRIOR * share) / (seen + PRIOR)
    return found


def _about_group(labelling: Labelling, where: _Where, group: int) -> Question:
    rows = labelling.members(group)
    unconfirmed = rows[~labelling.confirmed[rows]]
    doubtful = unconfirmed[np.argsort(where.margin[unconfirmed], kind="stable")]
    typical = rows[np.argsort(where.own[rows], kind="stable")]
    few = doubtful[: EXAMPLES // 2].tolist()
    clear = [row for row in typical.tolist() if row not in few][: EXAMPLES - len(few)]
    n, at_home = len(unconfirmed), int((where.margin[unconfirmed] >= 0).sum())
    if n == 1:
        why = "One image of this group is left to confirm."
    elif at_home == n:
        why = f"One answer labels {n:,} images, all of which seem to belong together."
    else:
        why = f"One answer labels {n:,} images, {at_home:,} of which seem to belong together."
    return Question("group", group, (*clear, *few), why)


def _about_image(labelling: Labelling, where: _Where, answered: Collection[int]) -> Question | None:
    unsure_groups = labelling.with_role("unsure")
    unsure = np.isin(labelling.labels, unsure_groups)
    answered_before = np.zeros(len(unsure), np.bool_)
    # A person who gave an image several kinds has looked at it: it belongs between two groups.
    answered_before[[*answered, *labelling.several]] = True
    waiting = np.flatnonzero(unsure & ~labelling.confirmed & ~answered_before)
    if len(waiting):
        row = int(waiting[where.lead[waiting].argmin()])
        rival = int(where.rival[row])
        like = f"; it looks most like '{labelling.groups[rival].title}'" if rival >= 0 else ""
        why = f"Somebody was unsure about this image{like}."
    else:
        doubtful = np.flatnonzero(~unsure & ~answered_before & (where.margin < 0))
        if not len(doubtful):
            return None
        row = int(doubtful[where.margin[doubtful].argmin()])
        own, rival = int(labelling.labels[row]), int(where.rival[row])
        why = (
            f"It is in '{labelling.groups[own].title}', but looks more like "
            f"'{labelling.groups[rival].title}'."
        )
    return Question("image", int(labelling.labels[row]), (row,), why)

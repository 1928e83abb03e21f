"""New images into the groups of a run, however many: a batch at a time.

Of a batch only the scores stay, and where its images belong; the bags are let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones.embed import nothing_usable
from flawsort.clusters.assign import Assignment, Groups, joined
from flawsort.clusters.kinds import Regions, kinds_of_images
from flawsort.core.errors import InputError
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, Progress, SetAside
from flawsort.embeddings.describer import Described, Describer
from flawsort.fitting.fit import BATCH_IMAGES
from flawsort.fitting.memory import Need, shall_stream
from flawsort.fitting.source import Intake
from flawsort.images.inputs import checked, content_rows, distinct_rows, image_set_of, used_images

# The cache is pruned after so many batches, 1.4 GB of bags with the default backbone.
BATCHES_BETWEEN_PRUNING = 64

# Batches of distinct contents: the bags of those that can be used, None where there are none, and
# those images, with the others of the batch set aside.
Batches: TypeAlias = Iterable[tuple[Bags | None, ImageSet]]


def batches_of_files(images: ImageSet, intake: Intake, shape: tuple[int, int]) -> Batches:
    """Each content once, in the order of content, through the cache. shape: of a bag.

    So many images that a run of them would be streamed are not kept in the user's own cache, where
    they would push out everything else.
    """
    keep = not _are_many(len(distinct_rows(images)), shape)
    for number, rows in enumerate(_batch_rows(images), start=1):
        yield intake.batch(replace(images.take(rows), set_aside=()), keep=keep)
        if number % BATCHES_BETWEEN_PRUNING == 0:
            intake.prune()
    intake.prune()


def batches_of_bags(given: Bags, shape: tuple[int, int]) -> tuple[ImageSet, Batches]:
    """The same of bags from outside, checked first, and names for them. shape: of each."""
    _check_shape(given, shape)
    images, bags = image_set_of(given), checked(given)
    return images, ((bags.take(rows), images.take(rows)) for rows in _batch_rows(images))


def sort_newcomers(
    images: ImageSet,
    batches: Batches,
    describer: Describer,
    groups: Groups,
    *,
    shape: tuple[int, int],
    fitted: ImageSet,
    fitted_scores: Floats,
    fitted_regions: Regions,
    plain_groups: frozenset[int] = frozenset(),
    progress: Progress | None = None,
) -> tuple[ImageSet, Assignment, Floats]:
    """The usable images, where they belong, and their scores (n, n_patches).

    batches: of these images. shape: patches and dimensions that a bag must have. fitted,
    fitted_scores, fitted_regions: the images that the groups are of, and their scores and regions:
    one that comes again is described as it was, since compared with itself nothing of it is
    unusual. plain_groups: those that are no flaws. The scores are in half precision where a run of
    as many images would be streamed, as those of that run are.
    """
    distinct = images.take(distinct_rows(images))
    describer = describer.for_many(len(distinct), shape[0])
    row_of = {digest: row for row, digest in enumerate(fitted.digests)}
    kept = _Scores(images, shape, len(distinct))
    parts: list[Assignment] = []
    aside: list[SetAside] = []
    done = 0
    if progress:
        progress("sorting", done, len(distinct))
    for bags, usable in batches:
        if bags is not None:
            _check_shape(bags, shape)
            described = describer.describe(bags)
            again = [(row, row_of[d]) for row, d in enumerate(usable.digests) if d in row_of]
            for row, known in again:
                described.embeddings[row] = groups.fitted[known]
                described.scores[row] = fitted_scores[known]
            found = groups.assign(described.embeddings)
            regions = groups.assign(described.region_embeddings).labels
            owners, labels = _regions_of(described, regions, dict(again), fitted_regions)
            kinds = kinds_of_images(found.labels, owners, labels, plain_groups)
            parts.append(replace(found, kinds=kinds))
            kept.put(usable, described.scores, bags.valid)
        aside += usable.set_aside
        done += len(usable) + len(usable.set_aside)
        if progress:
            progress("sorting", done, len(distinct))
    usable = distinct.without(aside)
    used = used_images(images, usable)
    if not parts:
        raise nothing_usable(_newest_first(images, used))
    return used, joined(parts).take(content_rows(used, usable)), kept.of(used)


def _regions_of(
    described: Described, labels: Ints, again: dict[int, int], fitted: Regions
) -> tuple[Ints, Ints]:
    """The image and the group of each region of a batch. labels: of those that were described.
    again: the images of the batch that are in the run, and as which: their regions are the run's.
    """
    new = ~np.isin(described.outlines.images, list(again))
    owners, found = [described.outlines.images[new]], [labels[new]]
    for row, known in again.items():
        first, last = np.searchsorted(fitted.outlines.images, [known, known + 1])
        owners.append(np.full(last - first, row))
        found.append(fitted.labels[first:last])
    return np.concatenate(owners), np.concatenate(found)


class _Scores:
    """The scores of all images as they arrive, each in its place, so that they are there once."""

    def __init__(self, images: ImageSet, shape: tuple[int, int], n_distinct: int) -> None:
        half = _are_many(n_distinct, shape)
        self._images = images
        self._rows: dict[str, list[int]] = {}
        for row, digest in enumerate(images.digests):
            self._rows.setdefault(digest, []).append(row)
        self._scores = np.empty((len(images), shape[0]), np.float16 if half else np.float32)
        self._hidden: Bools | None = None

    def put(self, images: ImageSet, scores: NDArray[np.float32], valid: Bools | None) -> None:
        """scores, valid: (n, n_patches), of these images and of their copies."""
        if valid is not None and self._hidden is None:
            self._hidden = np.zeros(self._scores.shape, bool)
        for place, digest in enumerate(images.digests):
            rows = self._rows[digest]
            self._scores[rows] = scores[place]
            if self._hidden is not None and valid is not None:
                self._hidden[rows] = ~valid[place]

    def of(self, used: ImageSet) -> Floats:
        """(n_used, n_patches): of those that could be used; the gaps are closed in place."""
        scores, hidden = self._scores, self._hidden
        if len(used) < len(scores):
            there = set(used.digests)
            good = [row for row, one in enumerate(self._images.digests) if one in there]
            for to, row in enumerate(good):
                scores[to] = scores[row]
                if hidden is not None:
                    hidden[to] = hidden[row]
            scores = scores[: len(good)]
            hidden = None if hidden is None else hidden[: len(good)]
        if hidden is not None:  # padding never counts as unusual
            np.copyto(scores, scores.min(), where=hidden)
        return scores


def _are_many(n_distinct: int, shape: tuple[int, int]) -> bool:
    """Whether a run of so many contents would be streamed."""
    return shall_stream(Need(n_distinct, 0, *shape), None, everybody=False)


def _check_shape(bags: Bags, shape: tuple[int, int]) -> None:
    """shape: patches and dimensions of the bags of the fit."""
    if bags.patches.shape[1:] != shape:
        raise InputError(
            "New images must have as many patches and dimensions as those of the fit, "
            f"{shape}. Got {bags.patches.shape[1:]}."
        )


def _batch_rows(images: ImageSet) -> Iterator[NDArray[np.int64]]:
    rows = distinct_rows(images)
    for start in range(0, len(rows), BATCH_IMAGES):
        yield rows[start : start + BATCH_IMAGES]


def _newest_first(images: ImageSet, used: ImageSet) -> list[SetAside]:
    before = len(images.set_aside)
    return [*used.set_aside[before:], *used.set_aside[:before]]

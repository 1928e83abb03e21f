"""Sort any number of new images into the groups of a run, batch by batch.

Only the scores and the groups of a batch are kept; its bags are freed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from flawsort.backbones.embed import nothing_usable
from flawsort.clusters.assign import Assignment, Groups, joined
from flawsort.clusters.kinds import Regions, kinds_of_images
from flawsort.core.errors import InputError
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, Progress, SetAside
from flawsort.embeddings.describer import Described
from flawsort.fitting.fitted import Fitted
from flawsort.fitting.memory import USUAL_SIZES, Need, Sizes, must_stream
from flawsort.fitting.runner import Runner, describe_batches, make_batches
from flawsort.fitting.source import Source
from flawsort.images.inputs import content_rows, used_images

# (n_patches, dim) of a bag in each view.
Shapes: TypeAlias = tuple[tuple[int, int], ...]


def assign_set(
    source: Source,
    fitted: Fitted,
    runner: Runner,
    *,
    sizes: Sizes = USUAL_SIZES,
    progress: Progress | None = None,
) -> tuple[ImageSet, Assignment, Floats]:
    """The usable images, their groups, and their scores (n, n_patches), in the precision that the
    runner keeps.

    An image of the fit keeps its embedding and scores: compared with itself it would look normal.
    """
    images, contents = source.images, source.contents
    describer = fitted.describer.for_many(len(contents), fitted.bag_shapes[0][0])
    groups = Groups.of(fitted.embeddings, fitted.labels)
    row_of = {digest: row for row, digest in enumerate(fitted.images.digests)}
    kept = _Scores(images)
    found: list[Assignment] = []
    aside: list[SetAside] = []
    if progress:
        progress("sorting", 0, len(contents))
    batches = make_batches(contents, sizes.batch_images)
    for part in describe_batches(batches, runner, describer, progress):
        if part.features is not None:
            described = describer.join(part.features)
            again = {row: row_of[d] for row, d in enumerate(part.digests) if d in row_of}
            found.append(_assigned(described, again, groups, fitted))
            kept.put(part.digests, described.scores, part.valid)
        aside += [SetAside(name, reason) for name, reason in part.reasons.items()]
    usable = contents.without(aside)
    used = used_images(images, usable)
    if not found:
        raise nothing_usable(_newest_first(images, used))
    return used, joined(found).take(content_rows(used, usable)), kept.of(used)


def are_many(n_contents: int, shapes: Shapes, sizes: Sizes = USUAL_SIZES) -> bool:
    """Whether a fit of n_contents images would be streamed. shapes: of a bag in each view."""
    return must_stream(Need(n_contents, 0, shapes, sizes=sizes), None, all_pairs=False)


def check_shapes(bags: Bags, shapes: Shapes) -> None:
    """Refuse bags that do not have the shapes of the fit: (n_patches, dim) in each view."""
    if bags.shapes != shapes:
        wanted, found = (", ".join(map(str, some)) for some in (shapes, bags.shapes))
        raise InputError(
            "New images must have as many patches and dimensions as the images of the fit, "
            f"{wanted}. Got {found}."
        )


def _assigned(
    described: Described, again: dict[int, int], groups: Groups, fitted: Fitted
) -> Assignment:
    """The groups of a batch. again: row in the batch -> row in the fit, of images of the fit."""
    for row, known in again.items():
        described.embeddings[row] = fitted.embeddings[known]
        described.scores[row] = fitted.scores[known]
    found = groups.assign(described.embeddings)
    regions = groups.assign(described.region_embeddings).labels
    owners, labels = _regions_of(described, regions, again, fitted.regions)
    return replace(found, kinds=kinds_of_images(found.labels, owners, labels, fitted.plain_groups))


def _regions_of(
    described: Described, labels: Ints, again: dict[int, int], fitted: Regions
) -> tuple[Ints, Ints]:
    """The image and the group of each region of a batch. labels: of the described regions.
    again: row in the batch -> row in the fit, of images of the fit; these keep their regions.
    """
    new = ~np.isin(described.outlines.images, list(again))
    owners, found = [described.outlines.images[new]], [labels[new]]
    for row, known in again.items():
        first, last = np.searchsorted(fitted.outlines.images, [known, known + 1])
        owners.append(np.full(last - first, row))
        found.append(fitted.labels[first:last])
    return np.concatenate(owners), np.concatenate(found)


class _Scores:
    """Collects the scores of all images in one array, without a second copy."""

    def __init__(self, images: ImageSet) -> None:
        self._images = images
        self._rows: dict[str, list[int]] = {}
        for row, digest in enumerate(images.digests):
            self._rows.setdefault(digest, []).append(row)
        self._scores: Floats | None = None
        self._hidden: Bools | None = None

    def put(self, digests: tuple[str, ...], scores: Floats, valid: Bools | None) -> None:
        """Add a batch. scores, valid: (n, n_patches), of the images with these digests."""
        if self._scores is None:
            self._scores = np.empty((len(self._images), scores.shape[1]), scores.dtype)
        if valid is not None and self._hidden is None:
            self._hidden = np.zeros(self._scores.shape, bool)
        for place, digest in enumerate(digests):
            rows = self._rows[digest]
            self._scores[rows] = scores[place]
            if self._hidden is not None and valid is not None:
                self._hidden[rows] = ~valid[place]

    def of(self, used: ImageSet) -> Floats:
        """(n_used, n_patches): the scores of the usable images, moved together in place."""
        scores, hidden = self._scores, self._hidden
        assert scores is not None
        if len(used) < len(scores):
            usable = set(used.digests)
            good = [row for row, digest in enumerate(self._images.digests) if digest in usable]
            for to, row in enumerate(good):
                scores[to] = scores[row]
                if hidden is not None:
                    hidden[to] = hidden[row]
            scores = scores[: len(good)]
            hidden = None if hidden is None else hidden[: len(good)]
        if hidden is not None:  # padding never counts as unusual
            np.copyto(scores, scores.min(), where=hidden)
        return scores


def _newest_first(images: ImageSet, used: ImageSet) -> list[SetAside]:
    before = len(images.set_aside)
    return [*used.set_aside[before:], *used.set_aside[:before]]

"""Sort any number of new images into the groups of a run, batch by batch.

Only the scores and the groups of a batch are kept; its bags are freed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones.embed import nothing_usable
from flawsort.clusters.assign import NORMAL, Assignment, Judge, joined
from flawsort.clusters.kinds import Kinds, Regions, join_in_order, kinds_of_images, sort_regions
from flawsort.core.errors import InputError
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, Progress, SetAside
from flawsort.embeddings.features import Described
from flawsort.embeddings.regions import regions_of_images
from flawsort.embeddings.weights import image_scores
from flawsort.fitting.fitted import Fitted
from flawsort.fitting.memory import USUAL_SIZES, Need, Sizes, must_stream
from flawsort.fitting.runner import Runner, describe_batches, make_batches
from flawsort.fitting.source import Shapes, Source
from flawsort.images.inputs import content_rows, used_images

# Called with the digests of a batch, and with its regions.
OnRegions: TypeAlias = Callable[[Sequence[str], Regions], None]


def assign_set(
    source: Source,
    fitted: Fitted,
    runner: Runner,
    *,
    sizes: Sizes = USUAL_SIZES,
    progress: Progress | None = None,
    judge: Judge | None = None,
    keep_vectors: int = 0,
    as_one_of: int = 1,
    on_regions: OnRegions | None = None,
) -> tuple[ImageSet, Assignment, Floats]:
    """The usable images, their groups, and their scores (n, n_patches), in the precision that the
    runner keeps.

    judge: asked about each batch; what it says is kept in `judged`, so that the embeddings of many
    images need not be. keep_vectors: keep the embeddings of the first so many images given.
    as_one_of: images are compared as if there were at least so many, so that what arrives alone is
    compared as what arrives with others. on_regions: called with the digests of each batch and its
    regions, which are not kept otherwise.
    An image of the fit keeps its embedding and scores: compared with itself it would look normal.
    """
    fitted.describer.check_new()
    images, contents = source.images, source.contents
    many = max(len(contents), as_one_of)
    describer = fitted.describer.for_many(many, fitted.bag_shapes[0][0])
    kept_vectors = dict.fromkeys(images.digests[:keep_vectors])
    sorter = _Sorter(fitted, judge, kept_vectors, on_regions)
    kept = _Scores(images)
    found: list[Assignment] = []
    aside: list[SetAside] = []
    if progress:
        progress("sorting", 0, len(contents))
    batches = make_batches(contents, sizes.batch_images)
    for part in describe_batches(batches, runner, describer, progress):
        if part.features is not None:
            described = describer.join(part.features)
            found.append(sorter.assign(described, part.digests, part.valid))
            kept.put(part.digests, described.scores, part.valid)
        aside += [SetAside(name, reason) for name, reason in part.reasons.items()]
    usable = contents.without(aside)
    used = used_images(images, usable)
    if not found:
        raise nothing_usable(_newest_first(images, used))
    together = joined(found).take(content_rows(used, usable))
    return used, replace(together, vectors=sorter.vectors_of(used)), kept.of(used)


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


@dataclass(frozen=True)
class _Sorter:
    """Sorts one batch after the other. vectors: the embeddings that are to be kept, by digest; None
    until they are known."""

    fitted: Fitted
    judge: Judge | None
    vectors: dict[str, NDArray[np.float16] | None]
    on_regions: OnRegions | None

    def assign(
        self, described: Described, digests: Sequence[str], valid: Bools | None
    ) -> Assignment:
        """The groups of a batch. valid: (n, n_patches), None if all patches count."""
        fitted, vectors = self.fitted, described.embeddings
        row_of, normals = fitted.row_of, fitted.normal_digests
        again = {row: row_of[one] for row, one in enumerate(digests) if one in row_of}
        for row, known in again.items():
            vectors[row] = fitted.embeddings[known]
            described.scores[row] = fitted.scores[known]
        known_good = np.array([one in normals for one in digests], bool)
        looks_normal, below = known_good, fitted.heat.normal_below
        if below is not None:
            tile = fitted.describer.looks[0].tile
            looks_normal = known_good | (image_scores(described.scores, valid, tile) <= below)
        found = fitted.groups.assign(vectors).seen_as(
            vectors, self.judge, looks_normal=looks_normal, known_good=known_good
        )
        for digest, vector in zip(digests, vectors, strict=True):
            if digest in self.vectors:
                self.vectors[digest] = vector.astype(np.float16)
        boxes, matches = self._places(described, again)
        rows = np.arange(len(vectors))
        new = sort_regions(described.outlines, described.region_embeddings, fitted.groups, rows)
        regions = _with_known(new, fitted.regions, again)
        if self.on_regions is not None:
            self.on_regions(digests, regions)
        kinds = self._kinds(regions, found.labels)
        return replace(found, kinds=kinds, boxes=boxes, matches=matches)

    def _places(
        self, described: Described, again: dict[int, int]
    ) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
        """The most unusual place of each image, and where the reference shows the like. Images of
        the fit keep theirs. again: row in the batch -> row in the fit."""
        if described.places is None:
            return None, None
        boxes, matches = described.places.boxes, described.places.matches
        if self.fitted.places is not None:
            for row, known in again.items():
                boxes[row] = self.fitted.places.boxes[known]
                matches[row] = self.fitted.places.matches[known]
        return boxes, matches

    def vectors_of(self, used: ImageSet) -> NDArray[np.float16] | None:
        """(n_kept, dim): the embeddings of the first images, up to the first that is not kept."""
        known = [self.vectors.get(digest) for digest in used.digests]
        first = list(itertools.takewhile(lambda vector: vector is not None, known))
        return np.array(first) if first else None

    def _kinds(self, regions: Regions, labels: Ints) -> Kinds:
        """The label of each image, and the other groups that its regions resemble; none for a good
        image."""
        owners = regions.outlines.images
        shown = labels[owners] != NORMAL
        plain = self.fitted.plain_groups
        return kinds_of_images(labels, owners[shown], regions.labels[shown], plain)


def _with_known(new: Regions, known: Regions, again: Mapping[int, int]) -> Regions:
    """The regions of a batch, in which images of the fit have theirs. new: as found in the batch.
    known: those of the fit. again: row in the batch -> row in the fit."""
    if not again:
        return new
    kept = np.flatnonzero(~np.isin(new.outlines.images, list(again)))
    rows, images = regions_of_images(known.outlines, np.array(list(again.values())))
    return join_in_order(
        [
            (new.take(kept), new.outlines.images[kept]),
            (known.take(rows), np.array(list(again))[images]),
        ]
    )


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

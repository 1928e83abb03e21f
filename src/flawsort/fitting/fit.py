"""A set of images in, a Fitted out: in memory, streamed, and on a Ray cluster.

Only two things need many bags at once: the reference, and the temperature, for which a sample of
the images is enough. A set that fits in memory is one batch that is also the sample. Of a larger
one the sample comes first, and then batch after batch passes the reference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flawsort.backbones import BackboneInfo
from flawsort.backbones.embed import nothing_usable
from flawsort.clusters import group
from flawsort.clusters.assign import Groups
from flawsort.clusters.kinds import sort_regions
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, Progress, SetAside
from flawsort.embeddings.describer import (
    EVERY_PATCH_ALIKE,
    Described,
    Describer,
    Features,
    every_patch_alike,
    fit_state,
)
from flawsort.embeddings.heat import calibrate
from flawsort.embeddings.method import Method
from flawsort.embeddings.regions import join_regions
from flawsort.fitting.checks import check_count, input_warnings
from flawsort.fitting.fitted import BackboneChoice, Fitted
from flawsort.fitting.memory import USUAL_SIZES, Sizes
from flawsort.fitting.parts import Part
from flawsort.fitting.runner import Embed, Runner, describe_batches, make_batches, rows_of
from flawsort.fitting.source import Source
from flawsort.images.inputs import content_rows, groups_of, used_images
from flawsort.images.view import View
from flawsort.scores.engines import Engine
from flawsort.scores.reference import (
    Comparison,
    NormalReference,
    PeerReference,
    Reference,
    compare_with_peers,
    usual_peers,
)


@dataclass(frozen=True)
class FitOptions:
    """What a fit is to do. n_clusters: the number of groups, or "auto" to take the advice.
    known_groups: the group that people put images in, by SHA-256: those of one stay together, those
    of two apart."""

    method: Method
    engine: Engine
    n_clusters: int | Literal["auto"] = "auto"
    known_groups: Mapping[str, int] | None = None
    random_state: int = 0
    sizes: Sizes = USUAL_SIZES
    progress: Progress | None = None


class Stopwatch:
    """Adds up how long each stage takes, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        passed = time.perf_counter() - start
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + passed, 3)


@dataclass(frozen=True)
class KnownGood:
    """Normal images. scores: how unusual some of them look among the others, None where there are
    too few. images: those that are used. notes: what a person should know of them."""

    reference: NormalReference
    scores: Floats | None = None
    images: ImageSet | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DescribedSet:
    """A set that is described, each content once. images: those that could be used, with those
    that could not set aside. how: it was compared, in words."""

    describer: Describer
    described: Described
    valid: Bools | None
    grid: tuple[int, int]
    images: ImageSet
    how: str


def fit_set(
    source: Source,
    normals: Source | None,
    options: FitOptions,
    *,
    view: View,
    backbone: BackboneInfo | None,
    opened: BackboneChoice,
    runner: Runner | None = None,
    clock: Stopwatch | None = None,
) -> Fitted:
    """Describe a set, group it, and put everything in the order of the images given.

    runner: who describes the batches of a set that is streamed; None holds all of it in memory.
    view, backbone, opened: how the images are looked at, for the record.
    """
    clock = clock or Stopwatch()
    with clock("embed"):
        source = source.hold() if runner is None else source
    known = None
    if normals is not None:
        n_images = len(source.contents)
        known = known_good(normals, n_images, options, whole=runner is None, clock=clock)
    if runner is None:
        check_count(len(source.images), options.n_clusters, source.images)
    with clock("score"):
        found = describe_set(source, known, options, runner)
    images = used_images(source.images, found.images)
    used_normals = None if known is None else known.images
    # How many of a streamed set can be used is only known now.
    check_count(len(images), options.n_clusters, images)
    rows, described = content_rows(images, found.images), found.described
    # In the order of content, whatever the images are called.
    order = np.argsort(rows, kind="stable")
    embeddings = described.embeddings[rows]
    with clock("cluster"):
        told = options.known_groups
        grouped = group(
            embeddings,
            order,
            options.n_clusters,
            known_groups=None if told is None else groups_of(images, told),
            random_state=options.random_state,
            progress=options.progress,
        )
    with clock("regions"):
        most = options.sizes.compared_with_regions
        groups = Groups.of(embeddings[order], grouped.labels[order], most=most)
        regions = sort_regions(described.outlines, described.region_embeddings, groups, rows)
    notes = () if known is None else known.notes
    if backbone is not None:  # Bags have no files to name
        notes += tuple(input_warnings(images, used_normals))
    return Fitted(
        images=images,
        normals=used_normals,
        view=view,
        backbone=backbone,
        opened=opened,
        describer=found.describer,
        grid=found.grid,
        scores=described.scores[rows],
        weights=described.weights[rows],
        valid=None if found.valid is None else found.valid[rows],
        embeddings=embeddings,
        regions=regions,
        linkage=grouped.linkage,
        labels=grouped.labels,
        n_clusters=grouped.n_clusters,
        n_clusters_asked=options.n_clusters,
        advice=grouped.advice,
        scored=found.how,
        random_state=options.random_state,
        timings=clock.seconds,
        warnings=notes + grouped.notes,
    )


def known_good(
    normals: Source,
    n_images: int,
    options: FitOptions,
    *,
    whole: bool,
    clock: Stopwatch | None = None,
) -> KnownGood:
    """The normals, ready to compare n_images images with. whole: all of them; else as many as fit
    in memory."""
    clock, seed = clock or Stopwatch(), options.random_state
    with clock("embed"):
        chosen = normals if whole else normals.sampled(seed, options.sizes)
        held = chosen.hold()
        reference = NormalReference.from_bags(
            held.bags, exact=options.method.exact, engine=options.engine, random_state=seed
        )
        reference = reference.for_many(n_images, held.bags.n_patches)
    with clock("calibrate"):
        scores = reference.scores_of_normals(held.bags)
    notes: tuple[str, ...] = ()
    if len(chosen.contents) < len(normals.contents):
        notes = (
            f"A sample of {len(held.contents):,} of the {len(normals.contents):,} normal images is "
            "used, as many as fit in memory.",
        )
    return KnownGood(reference, scores, held.images, notes)


def describe_set(
    source: Source, known: KnownGood | None, options: FitOptions, runner: Runner | None = None
) -> DescribedSet:
    """Describe each content of a set once.

    known: what the images are compared with; None for each other, or for a sample of them (Eq. 7).
    runner: None holds all bags in memory; with one there are a few hundred at a time, or as many
    as peers, and scores and weights are in half precision.
    """
    if runner is None:
        source = source.hold()
    begun = _begin(source, known, options, whole=runner is None)
    parts = begun.parts
    if runner is not None:
        batches = make_batches(source.contents, options.sizes.batch_images, begun.peer_of)
        parts = list(describe_batches(batches, runner, begun.describer, options.progress))
    return _joined(source.contents, parts, begun)


@dataclass(frozen=True)
class _Sample:
    """Images whose bags are in memory while the set is measured. order: a random one of them."""

    images: ImageSet
    bags: Bags
    order: Ints


@dataclass(frozen=True)
class _Begun:
    """What is known before the first batch. describer: without the axes of the extents. peer_of:
    the peers among the images, by digest. parts: what the images came to, where the sample is the
    whole set."""

    describer: Describer
    peer_of: dict[str, int]
    grid: tuple[int, int]
    how: str
    parts: list[Part]


def _begin(source: Source, known: KnownGood | None, options: FitOptions, *, whole: bool) -> _Begun:
    """The reference, and temperature, heat and whitening as the sample has them."""
    method, progress = options.method, options.progress
    sample = _everything(source, options) if whole else _drawn(source, known, options)
    bags = sample.bags
    if method.weights == "uniform":
        describer, how = every_patch_alike(method), EVERY_PATCH_ALIKE
        peer_of: dict[str, int] = {}
        features = describer.features(bags) if whole else None
    else:
        n_images = len(source.contents)
        looked, reference, peer_of = _compare(sample, n_images, known, options, whole=whole)
        heat = calibrate(looked.scores, bags.valid, None if known is None else known.scores)
        describer = fit_state(
            method, reference, bags, looked, sample.order, heat=heat, progress=progress
        )
        how = looked.how
        features = describer.pool(bags, looked, progress=progress) if whole else None
    parts = [] if features is None else [Part(sample.images.digests, features, bags.valid, {})]
    return _Begun(describer, peer_of, bags.grid, how, parts)


def _compare(
    sample: _Sample,
    n_images: int,
    known: KnownGood | None,
    options: FitOptions,
    *,
    whole: bool,
) -> tuple[Comparison, Reference, dict[str, int]]:
    """The sample compared, what with, and the peers by digest. n_images: of the set."""
    bags, method, progress = sample.bags, options.method, options.progress
    if known is not None:
        normals = known.reference.for_many(n_images, bags.n_patches)
        return normals.compare(bags, progress=progress), normals, {}
    if whole:
        # A product of two bags serves both of them here, which is half the work.
        comparison, peers = compare_with_peers(
            bags,
            n_peers=method.n_peers,
            nearest_share=method.nearest_share,
            engine=options.engine,
            random_state=options.random_state,
            progress=progress,
        )
        return comparison, peers, {}
    count = min(_n_peers(method, n_images), len(bags))
    patches = bags.patches[:count].copy()  # the rest of the sample is let go
    sampled = PeerReference(patches, method.nearest_share, engine=options.engine)
    reference = sampled.for_many(n_images, bags.n_patches)
    peer_of = {digest: row for row, digest in enumerate(sample.images.digests[:count])}
    self_rows = rows_of(sample.images.digests, peer_of)
    return reference.compare(bags, self_rows=self_rows, progress=progress), reference, peer_of


def _n_peers(method: Method, n_images: int) -> int:
    n_peers = method.n_peers or usual_peers(n_images)
    return n_images if n_peers == "all" else n_peers


def _everything(source: Source, options: FitOptions) -> _Sample:
    held = source.hold()
    order = np.random.default_rng(options.random_state).permutation(len(held.bags))
    return _Sample(held.contents, held.bags, order)


def _drawn(source: Source, known: KnownGood | None, options: FitOptions) -> _Sample:
    """As many images as the measuring takes, at random."""
    contents, count = source.contents, options.sizes.sample_images
    if options.method.weights == "uniform":
        count = 1  # shows the grid; nothing is measured
    elif known is None:
        count = max(count, _n_peers(options.method, len(contents)))
    order = np.random.default_rng(options.random_state).permutation(len(contents))
    rows, bags = _first_usable(contents, order, source.batch, count)
    return _Sample(contents.take(rows), bags, np.arange(len(rows)))


def _first_usable(
    images: ImageSet, order: Ints, embed: Embed, count: int
) -> tuple[list[int], Bags]:
    """The first `count` images of an order that can be used, and their bags."""
    rows: list[int] = []
    bags: list[Bags] = []
    before = len(images.set_aside)
    aside: list[SetAside] = []
    start = 0
    while len(rows) < count and start < len(order):
        some = order[start : start + count - len(rows)]
        start += len(some)
        found, usable = embed(images.take(some))
        place = {images.digests[row]: int(row) for row in some}
        rows += [place[digest] for digest in usable.digests]
        bags += [] if found is None else [found]
        aside += usable.set_aside[before:]
    if not bags:
        raise nothing_usable([*aside, *images.set_aside])
    patches = np.concatenate([one.patches for one in bags])[:count]
    valid = _all_valid([(one.valid, one.patches.shape[:2]) for one in bags])
    return rows[:count], Bags(patches, bags[0].grid, None if valid is None else valid[:count])


def _joined(images: ImageSet, parts: list[Part], begun: _Begun) -> DescribedSet:
    aside = [SetAside(name, reason) for part in parts for name, reason in part.reasons.items()]
    usable = images.without(aside)
    features = [part.features for part in parts if part.features is not None]
    if not features:
        raise nothing_usable(aside)
    together = features[0] if len(features) == 1 else _together(features)
    valid = _all_valid(
        [(part.valid, part.features.scores.shape) for part in parts if part.features is not None]
    )
    describer = begun.describer.with_axes(together)
    how = begun.how
    reference = describer.reference
    if reference is not None and set(usable.digests) <= begun.peer_of.keys():
        how = f"compared with each other ({reference.engine.name})"
    return DescribedSet(describer, describer.join(together), valid, begun.grid, usable, how)


def _together(parts: list[Features]) -> Features:
    """The features of one batch of images after the other."""
    return Features(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.vectors for part in parts]),
        np.concatenate([part.extents for part in parts]),
        join_regions([(part.regions, len(part.scores)) for part in parts]),
    )


def _all_valid(parts: list[tuple[Bools | None, tuple[int, ...]]]) -> Bools | None:
    """Which patches count, of several batches with their shapes; None where all do."""
    if all(valid is None for valid, _ in parts):
        return None
    return np.concatenate(
        [np.ones(shape, bool) if valid is None else valid for valid, shape in parts]
    )

"""Fit a set of images: in memory, streamed, or on a Ray cluster. Returns a Fitted.

Only two steps need many bags at once: the reference and the temperature. A sample of the images is
enough for both. A set that fits in memory is one batch, which is also the sample. For a larger set
the sample is drawn first, and then each batch is compared with the reference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from flawsort.backbones import BackboneChoice, BackboneInfo
from flawsort.backbones.embed import nothing_usable
from flawsort.clusters import group
from flawsort.clusters.assign import Groups
from flawsort.clusters.kinds import sort_regions
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, Progress, SetAside
from flawsort.embeddings.axes import MEAN_SHARE, MeanPatch, share_among_peers
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
from flawsort.fitting.fitted import Fitted
from flawsort.fitting.memory import USUAL_SIZES, Sizes
from flawsort.fitting.parts import Part
from flawsort.fitting.runner import Embed, Runner, describe_batches, make_batches, rows_of
from flawsort.fitting.source import Source
from flawsort.images.inputs import content_rows, groups_of, used_images
from flawsort.images.view import View
from flawsort.scores.engines import Engine
from flawsort.scores.reference import (
    NormalReference,
    PeerReference,
    compare_with_peers,
    usual_peers,
)
from flawsort.scores.views import Compared, combine


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit. n_clusters: the number of groups, or "auto" to take the advice.
    known_groups: the group that people gave to some images, by SHA-256. Images of one group stay
    together; images of different groups stay apart."""

    method: Method
    engine: Engine
    n_clusters: int | Literal["auto"] = "auto"
    known_groups: Mapping[str, int] | None = None
    random_state: int = 0
    sizes: Sizes = USUAL_SIZES
    progress: Progress | None = None


class Stopwatch:
    """Measures the seconds that each stage takes."""

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
    """The normal images.

    references: of each view. scores: of each view, of some normals compared with the others; None
    if there are too few normals. means: how mean patches are measured in each view; empty if they
    take no part. images: those that are used. notes: for the user.
    """

    references: tuple[NormalReference, ...]
    scores: tuple[Floats, ...] | None = None
    means: tuple[MeanPatch | None, ...] = ()
    images: ImageSet | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DescribedSet:
    """The description of a set, each content once. images: the usable ones, with the others set
    aside. how: how they were compared, in words."""

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
    backbones: tuple[BackboneInfo, ...],
    opened: tuple[BackboneChoice, ...],
    runner: Runner | None = None,
    clock: Stopwatch | None = None,
) -> Fitted:
    """Describe a set, group it, and put everything in the order of the images given.

    runner: describes the batches of a streamed set; None holds the whole set in memory.
    view, backbones, opened: how the images are viewed, for the record.
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
    # Only now is the number of usable images of a streamed set known.
    check_count(len(images), options.n_clusters, images)
    rows, described = content_rows(images, found.images), found.described
    # In the order of content, so that file names have no influence.
    order = np.argsort(rows, kind="stable")
    embeddings = described.embeddings[rows]
    with clock("cluster"):
        known_groups = options.known_groups
        grouped = group(
            embeddings,
            order,
            options.n_clusters,
            known_groups=None if known_groups is None else groups_of(images, known_groups),
            random_state=options.random_state,
            progress=options.progress,
        )
    with clock("regions"):
        most = options.sizes.compared_with_regions
        groups = Groups.of(embeddings[order], grouped.labels[order], most=most)
        regions = sort_regions(described.outlines, described.region_embeddings, groups, rows)
    notes = () if known is None else known.notes
    if backbones:  # Bags have no files to name
        notes += tuple(input_warnings(images, used_normals))
    return Fitted(
        images=images,
        normals=used_normals,
        view=view,
        backbones=backbones,
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
        n_clusters_requested=options.n_clusters,
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
    """The normals as a reference for n_images images. whole: use all normals; otherwise as many as
    fit in memory."""
    clock, seed = clock or Stopwatch(), options.random_state
    with clock("embed"):
        chosen = normals if whole else normals.sampled(seed, options.sizes)
        held = chosen.hold()
        views = held.bags.views
        references = tuple(
            NormalReference.from_bags(
                one, exact=options.method.exact, engine=options.engine, random_state=seed
            ).for_many(n_images, one.n_patches)
            for one in views
        )
    with clock("calibrate"):
        scores = [ref.scores_of_normals(one) for ref, one in zip(references, views, strict=True)]
        means = tuple(map(MeanPatch.of_normals, views)) if options.method.has_means else ()
    notes: tuple[str, ...] = ()
    if len(chosen.contents) < len(normals.contents):
        notes = (
            f"Used a sample of {len(held.contents):,} of the {len(normals.contents):,} normal "
            "images, as many as fit in memory.",
        )
    known = [values for values in scores if values is not None]
    return KnownGood(references, tuple(known) or None, means, held.images, notes)


def describe_set(
    source: Source, known: KnownGood | None, options: FitOptions, runner: Runner | None = None
) -> DescribedSet:
    """Describe each content of a set once.

    known: the normals to compare with; None compares the images with each other, or with a sample
    of them (Eq. 7). runner: None holds all bags in memory. A runner holds a few hundred at a time,
    or as many as there are peers, and stores scores and weights in half precision.
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
    """Images whose bags are in memory while the set is measured. order: a random permutation."""

    images: ImageSet
    bags: Bags
    order: Ints


@dataclass(frozen=True)
class _Begun:
    """The state before the first batch. describer: without the axes of the extents. peer_of: the
    row of each peer, by digest. parts: the results, if the sample is the whole set."""

    describer: Describer
    peer_of: dict[str, int]
    grid: tuple[int, int]
    how: str
    parts: list[Part]


def _begin(source: Source, known: KnownGood | None, options: FitOptions, *, whole: bool) -> _Begun:
    """Make the reference, and measure temperature, heat and whitening on the sample."""
    method, progress = options.method, options.progress
    sample = _everything(source, options) if whole else _drawn(source, known, options)
    bags = sample.bags
    if method.weights == "uniform":
        describer, how = every_patch_alike(method, bags), EVERY_PATCH_ALIKE
        peer_of: dict[str, int] = {}
        features = describer.features(bags) if whole else None
    else:
        compared, peer_of = _compare(sample, len(source.contents), known, options, whole=whole)
        normal_scores = None if known is None else known.scores
        together = combine(compared, bags, normal_scores, calibrated=method.calibrated)
        looked = together.comparison
        heat = calibrate(looked.scores, bags.valid, together.normal_scores)
        describer = fit_state(
            method,
            together.reference,
            bags,
            looked,
            sample.order,
            heat=heat,
            means=_means(bags, known, method),
            mean_share=_mean_share(compared, bags, known, method),
            progress=progress,
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
) -> tuple[list[Compared], dict[str, int]]:
    """Compare the sample in each view. Returns the comparisons with their references, and the row
    of each peer by digest. n_images: of the set."""
    views = sample.bags.views
    if known is not None:
        pairs = zip(known.references, views, strict=True)
        return [_with_normals(one, bags, n_images, options) for one, bags in pairs], {}
    if whole:
        return [_with_all_peers(bags, options) for bags in views], {}
    count = min(_n_peers(options, n_images), len(sample.bags))
    peer_of = {digest: row for row, digest in enumerate(sample.images.digests[:count])}
    self_rows = rows_of(sample.images.digests, peer_of)
    return [_with_peers(bags, count, self_rows, n_images, options) for bags in views], peer_of


def _with_normals(
    reference: NormalReference, bags: Bags, n_images: int, options: FitOptions
) -> Compared:
    settled = reference.for_many(n_images, bags.n_patches)
    return Compared(settled.compare(bags, progress=options.progress), settled)


def _with_all_peers(bags: Bags, options: FitOptions) -> Compared:
    """Compare a whole set. One product of two bags serves both of them, which halves the work."""
    comparison, peers = compare_with_peers(
        bags,
        n_peers=options.method.n_peers,
        nearest_share=options.method.nearest_share,
        engine=options.engine,
        counts=options.sizes.peers,
        random_state=options.random_state,
        progress=options.progress,
    )
    return Compared(comparison, peers)


def _with_peers(
    bags: Bags, count: int, self_rows: Ints, n_images: int, options: FitOptions
) -> Compared:
    """Compare a sample with its first `count` images. n_images: of the set."""
    reference = PeerReference(
        bags.patches[:count].copy(),  # frees the rest of the sample
        options.method.nearest_share,
        engine=options.engine,
        counts=options.sizes.peers,
    ).for_many(n_images, bags.n_patches)
    comparison = reference.compare(bags, self_rows=self_rows, progress=options.progress)
    return Compared(comparison, reference)


def _means(bags: Bags, known: KnownGood | None, method: Method) -> tuple[MeanPatch | None, ...]:
    """How mean patches are measured in each view; empty if they take no part."""
    if not method.has_means:
        return ()
    zero = [MeanPatch(np.zeros(one.dim, np.float32)) for one in bags.views]
    if known is None:
        return tuple(zero)
    return tuple(mean or plain for mean, plain in zip(known.means, zero, strict=True))


def _mean_share(
    compared: list[Compared], bags: Bags, known: KnownGood | None, method: Method
) -> float:
    if not method.has_means:
        return 0.0
    if method.mean_share is not None:
        return method.mean_share
    if known is not None:
        return MEAN_SHARE
    return share_among_peers(bags.views, [one.comparison.scores for one in compared])


def _n_peers(options: FitOptions, n_images: int) -> int:
    n_peers = options.method.n_peers or usual_peers(n_images, options.sizes.peers)
    return n_images if n_peers == "all" else n_peers


def _everything(source: Source, options: FitOptions) -> _Sample:
    held = source.hold()
    order = np.random.default_rng(options.random_state).permutation(len(held.bags))
    return _Sample(held.contents, held.bags, order)


def _drawn(source: Source, known: KnownGood | None, options: FitOptions) -> _Sample:
    """A random sample, as large as the measurements need."""
    contents, count = source.contents, options.sizes.sample_images
    if options.method.weights == "uniform":
        count = 1  # shows the grid; nothing is measured
    elif known is None:
        count = max(count, _n_peers(options, len(contents)))
    order = np.random.default_rng(options.random_state).permutation(len(contents))
    rows, bags = _first_usable(contents, order, source.batch, count)
    return _Sample(contents.take(rows), bags, np.arange(len(rows)))


def _first_usable(
    images: ImageSet, order: Ints, embed: Embed, count: int
) -> tuple[list[int], Bags]:
    """The first `count` usable images of an order, and their bags."""
    rows: list[int] = []
    bags: list[Bags] = []
    before = len(images.set_aside)
    aside: list[SetAside] = []
    start = 0
    while len(rows) < count and start < len(order):
        chosen = order[start : start + count - len(rows)]
        start += len(chosen)
        found, usable = embed(images.take(chosen))
        place = {images.digests[row]: int(row) for row in chosen}
        rows += [place[digest] for digest in usable.digests]
        bags += [] if found is None else [found]
        aside += usable.set_aside[before:]
    if not bags:
        raise nothing_usable([*aside, *images.set_aside])
    return rows[:count], _first_bags(bags, count)


def _first_bags(found: list[Bags], count: int) -> Bags:
    """The first `count` of several bags, in all views."""
    views = []
    for parts in zip(*(one.views for one in found), strict=True):
        patches = np.concatenate([one.patches for one in parts])[:count]
        valid = _all_valid([(one.valid, one.patches.shape[:2]) for one in parts])
        views.append(Bags(patches, parts[0].grid, None if valid is None else valid[:count]))
    return replace(views[0], beside=tuple(views[1:]))


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
    """The features of several batches in one record."""
    return Features(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.vectors for part in parts]),
        np.concatenate([part.extents for part in parts]),
        join_regions([(part.regions, len(part.scores)) for part in parts]),
    )


def _all_valid(parts: list[tuple[Bools | None, tuple[int, ...]]]) -> Bools | None:
    """Which patches count. parts: `valid` and shape of each batch. None if all patches count."""
    if all(valid is None for valid, _ in parts):
        return None
    return np.concatenate(
        [np.ones(shape, bool) if valid is None else valid for valid, shape in parts]
    )

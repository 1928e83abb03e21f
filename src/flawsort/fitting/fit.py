"""Fit a set of images: in memory, streamed, or on a Ray cluster. Returns a Fitted.

Only two steps need many bags at once: the reference and the temperature. A sample of the images is
enough for both. A set that fits in memory is one batch, which is also the sample. For a larger set
the sample is drawn first, and then each batch is compared with the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flawsort.backbones import BackboneChoice, BackboneInfo
from flawsort.backbones.embed import nothing_usable
from flawsort.clusters import group
from flawsort.clusters.assign import Groups
from flawsort.clusters.kinds import sort_regions
from flawsort.core.records import Bools, ImageSet, SetAside
from flawsort.embeddings.describer import (
    EVERY_PATCH_ALIKE,
    Described,
    Describer,
    Features,
    every_patch_alike,
    fit_state,
)
from flawsort.embeddings.heat import calibrate
from flawsort.embeddings.regions import join_regions
from flawsort.fitting.checks import check_count, input_warnings
from flawsort.fitting.comparing import (
    KnownGood,
    all_valid,
    compare,
    drawn,
    everything,
    known_good,
    mean_share,
    means_of_views,
)
from flawsort.fitting.fitted import Fitted
from flawsort.fitting.options import FitOptions, Stopwatch
from flawsort.fitting.parts import Part
from flawsort.fitting.runner import Runner, describe_batches, make_batches
from flawsort.fitting.source import Source
from flawsort.images.inputs import content_rows, groups_of, used_images
from flawsort.images.view import View
from flawsort.scores.views import combine


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
    sample = everything(source, options) if whole else drawn(source, known, options)
    bags = sample.bags
    if method.weights == "uniform":
        describer, how = every_patch_alike(method, bags), EVERY_PATCH_ALIKE
        peer_of: dict[str, int] = {}
        features = describer.features(bags) if whole else None
    else:
        compared, peer_of = compare(sample, len(source.contents), known, options, whole=whole)
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
            means=means_of_views(bags, known, method),
            mean_share=mean_share(compared, bags, known, method),
            progress=progress,
        )
        how = looked.how
        features = describer.pool(bags, looked, progress=progress) if whole else None
    parts = [] if features is None else [Part(sample.images.digests, features, bags.valid, {})]
    return _Begun(describer, peer_of, bags.grid, how, parts)


def _joined(images: ImageSet, parts: list[Part], begun: _Begun) -> DescribedSet:
    aside = [SetAside(name, reason) for part in parts for name, reason in part.reasons.items()]
    usable = images.without(aside)
    features = [part.features for part in parts if part.features is not None]
    if not features:
        raise nothing_usable(aside)
    together = features[0] if len(features) == 1 else _together(features)
    valid = all_valid(
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

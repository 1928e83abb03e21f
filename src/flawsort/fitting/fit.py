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
from flawsort.clusters import check_pairs, group
from flawsort.clusters.assign import Groups
from flawsort.clusters.kinds import sort_regions
from flawsort.core.records import Bools, ImageSet, SetAside
from flawsort.embeddings.describer import (
    EVERY_PATCH_ALIKE,
    Describer,
    every_patch_alike,
    fit_state,
    fit_to_maps,
)
from flawsort.embeddings.features import Described, Features, join_features
from flawsort.embeddings.heat import HeatScale, calibrate
from flawsort.embeddings.method import EMBEDDINGS
from flawsort.embeddings.regions import regions_of_images
from flawsort.fitting.checks import check_count, input_notes, notes_on_groups
from flawsort.fitting.comparing import (
    KnownGood,
    Sample,
    all_valid,
    bag_distances,
    compare,
    drawn,
    everything,
    known_good,
    mean_share,
    means_of_views,
    weighed_by,
    weighed_instead,
)
from flawsort.fitting.fitted import Fitted
from flawsort.fitting.options import FitOptions, Stopwatch
from flawsort.fitting.parts import Part
from flawsort.fitting.runner import Runner, describe_batches, make_batches
from flawsort.fitting.source import Source
from flawsort.images.inputs import content_rows, used_images
from flawsort.images.view import View
from flawsort.scores.reference import PeerReference
from flawsort.scores.views import Combined, combine, references_of


@dataclass(frozen=True)
class DescribedSet:
    """The description of a set, each content once. images: the usable ones, with the others set
    aside. how: how they were compared, in words. gallery: the digests of the images of the
    reference, as the matches of places number them."""

    describer: Describer
    described: Described
    valid: Bools | None
    grid: tuple[int, int]
    images: ImageSet
    how: str
    gallery: tuple[str, ...] = ()


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
    clock, method = clock or Stopwatch(), options.method
    pairs = method.distance != EMBEDDINGS
    check_pairs(len(source.contents), method.clusterer, given=pairs)
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
        distances = None
        if pairs:
            distances = bag_distances(source.hold().bags, options)
    images = used_images(source.images, found.images)
    used_normals = None if known is None else known.images
    # Only now is the number of usable images of a streamed set known.
    check_count(len(images), options.n_clusters, images)
    rows, described = content_rows(images, found.images), found.described
    # In the order of content, so that file names have no influence.
    order = np.argsort(rows, kind="stable")
    embeddings = described.embeddings[rows]
    with clock("cluster"):
        grouped = group(
            embeddings,
            order,
            options.n_clusters,
            clusterer=method.clusterer,
            distances=None if distances is None else distances[np.ix_(rows, rows)],
            random_state=options.random_state,
            progress=options.progress,
        )
    with clock("regions"):
        most = options.sizes.compared_with_regions
        groups = Groups.of(embeddings[order], grouped.labels[order], most=most)
        regions = sort_regions(described.outlines, described.region_embeddings, groups, rows)
        places = described.places
        if places is not None:
            places = places.take(rows, regions_of_images(described.outlines, rows)[0])
    notes = () if known is None else known.notes
    notes += () if options.maps is None else options.maps.notes
    notes += notes_on_groups(method, options.n_clusters, grouped.n_clusters)
    if backbones:  # Bags have no files to name
        notes += tuple(input_notes(images, used_normals))
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
        warnings=notes,
        places=places,
        gallery=found.gallery,
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
    row of each peer, by digest. parts: the results, if the sample is the whole set. gallery: see
    DescribedSet."""

    describer: Describer
    peer_of: dict[str, int]
    grid: tuple[int, int]
    how: str
    parts: list[Part]
    gallery: tuple[str, ...] = ()


def _begin(source: Source, known: KnownGood | None, options: FitOptions, *, whole: bool) -> _Begun:
    """Make the reference, and measure temperature, heat and whitening on the sample."""
    method, progress = options.method, options.progress
    sample = everything(source, options) if whole else drawn(source, known, options)
    bags = sample.bags
    gallery: tuple[str, ...] = ()
    peer_of: dict[str, int] = {}
    if not method.compares:
        describer, how, features = _without_comparing(sample, options, whole=whole)
    else:
        compared, peer_of = compare(sample, len(source.contents), known, options, whole=whole)
        normal_scores = None if known is None else known.scores
        together = combine(compared, bags, normal_scores, calibrated=method.calibrated)
        if options.maps is not None:
            together = weighed_instead(together, sample, options.maps)
        looked = together.comparison
        heat = calibrate(looked.scores, bags.valid, together.normal_scores, tile=bags.tile)
        gallery, hot = _gallery(known, sample, together, heat)
        describer = fit_state(
            method,
            together.reference,
            bags,
            looked,
            sample.order,
            heat=heat,
            means=means_of_views(bags, known, method),
            mean_share=mean_share(compared, bags, known, method),
            hot=hot,
            progress=progress,
        )
        how = looked.how
        features = describer.pool(bags, looked, progress=progress) if whole else None
    parts = [] if features is None else [Part(sample.images.digests, features, bags.valid, {})]
    return _Begun(describer, peer_of, bags.grid, how, parts, gallery)


def _without_comparing(
    sample: Sample, options: FitOptions, *, whole: bool
) -> tuple[Describer, str, Features | None]:
    """What needs no reference: weights that are all the same, or those of masks or heat maps. The
    describer, how images were compared in words, and the features of a whole set."""
    bags = sample.bags
    if options.maps is None:
        describer = every_patch_alike(options.method, bags)
        return describer, EVERY_PATCH_ALIKE, describer.features(bags) if whole else None
    looked = weighed_by(sample, options.maps)
    describer = fit_to_maps(options.method, bags, looked)
    return describer, looked.how, describer.pool(bags, looked, progress=options.progress)


def _gallery(
    known: KnownGood | None, sample: Sample, together: Combined, heat: HeatScale
) -> tuple[tuple[str, ...], Bools | None]:
    """The digests of the images of the reference; and which patches of peers are unusual."""
    first = references_of(together.reference)[0]
    if known is not None or not isinstance(first, PeerReference):
        return () if known is None else known.digests, None
    digests = tuple(sample.images.digests[row] for row in first.rows)
    return digests, together.comparison.scores[first.rows] > heat.low


def _joined(images: ImageSet, parts: list[Part], begun: _Begun) -> DescribedSet:
    aside = [SetAside(name, reason) for part in parts for name, reason in part.reasons.items()]
    usable = images.without(aside)
    features = [part.features for part in parts if part.features is not None]
    if not features:
        raise nothing_usable(aside)
    together = join_features(features)
    valid = all_valid(
        [(part.valid, part.features.scores.shape) for part in parts if part.features is not None]
    )
    describer = begun.describer.with_axes(together)
    how = begun.how
    reference = describer.reference
    if reference is not None and set(usable.digests) <= begun.peer_of.keys():
        how = f"compared with each other ({how.partition(' (')[2]}"
    joined = describer.join(together)
    return DescribedSet(describer, joined, valid, begun.grid, usable, how, begun.gallery)

"""What a fit measures before its first batch: the normals, a sample of the images, and how they
compare in each view."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones.embed import nothing_usable
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, SetAside
from flawsort.embeddings.axes import MEAN_SHARE, MeanPatch, share_among_peers
from flawsort.embeddings.method import Method
from flawsort.fitting.options import FitOptions, Stopwatch
from flawsort.fitting.runner import Embed, rows_of
from flawsort.fitting.source import Source
from flawsort.images.maps import Maps, called
from flawsort.scores.hausdorff import MEAN_MEAN, hausdorff
from flawsort.scores.peer_statistics import DirectedMinima
from flawsort.scores.reference import (
    Comparison,
    NormalReference,
    PeerReference,
    compare_with_peers,
    usual_peers,
)
from flawsort.scores.views import Combined, Compared


@dataclass(frozen=True)
class KnownGood:
    """The normal images.

    references: of each view. scores: of each view, of some normals compared with the others; None
    if there are too few normals. means: how mean patches are measured in each view; empty if they
    take no part. images: those that are used. notes: for the user. digests: of the contents that
    the references were made of, in their order.
    """

    references: tuple[NormalReference, ...]
    scores: tuple[Floats, ...] | None = None
    means: tuple[MeanPatch | None, ...] = ()
    images: ImageSet | None = None
    notes: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()


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
                one,
                exact=options.method.exact,
                engine=options.engine,
                random_state=seed,
                expected_normals=options.method.expected_normals,
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
    digests = held.contents.digests
    return KnownGood(references, tuple(known) or None, means, held.images, notes, digests)


@dataclass(frozen=True)
class Sample:
    """Images whose bags are in memory while the set is measured. order: a random permutation."""

    images: ImageSet
    bags: Bags
    order: Ints


def compare(
    sample: Sample,
    n_images: int,
    known: KnownGood | None,
    options: FitOptions,
    *,
    whole: bool,
) -> tuple[list[Compared], dict[str, int]]:
    """Compare the sample in each view. Returns the comparisons with their references, and the row
    of each peer by digest. n_images: of the set."""
    compared, peer_of = _compared(sample, n_images, known, options, whole=whole)
    return _with_recalls(compared, options), peer_of


def _compared(
    sample: Sample, n_images: int, known: KnownGood | None, options: FitOptions, *, whole: bool
) -> tuple[list[Compared], dict[str, int]]:
    """See `compare`."""
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


def _with_recalls(compared: list[Compared], options: FitOptions) -> list[Compared]:
    """The same, with the recall of every view in the description of the first, which a run has, if
    it was asked for and not all are exact."""
    if not options.tell_recall:
        return compared
    found = [one.comparison.recall(options.random_state) for one in compared]
    if not any(found):
        return compared
    words = [str(one) for one in found]
    if len(found) > 1:
        words = [f"view {n}: {one or 'exact'}" for n, one in enumerate(found, start=1)]
    first, *others = compared
    told = replace(first.comparison, how="; ".join([first.comparison.how, *words]))
    return [replace(first, comparison=told), *others]


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
        over=options.method.among_peers,
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
        over=options.method.among_peers,
    ).for_many(n_images, bags.n_patches)
    comparison = reference.compare(bags, self_rows=self_rows, progress=options.progress)
    return Compared(comparison, reference)


def bag_distances(bags: Bags, options: FitOptions) -> NDArray[np.float32]:
    """(n_images, n_images): the distance of the method between all pairs of bags, always in single
    precision: some are decided by one pair of patches, where errors do not average out."""
    variant, everybody = options.method.distance, np.arange(len(bags))
    engine = options.engine.in_single_precision()
    if variant == MEAN_MEAN:
        return engine.mean_distances(bags, progress=options.progress)
    minima = DirectedMinima(len(bags), bags.valid)
    engine.fold_peers(bags.patches, everybody, minima, progress=options.progress)
    return hausdorff(minima, variant)


def weighed_by(sample: Sample, maps: Maps) -> Comparison:
    """Masks or heat maps in the place of scores."""

    def expected(images: Ints, chosen: Ints) -> NDArray[np.float32]:
        raise ValueError("no image was compared: there is no expected patch")

    scores = maps.on_grid(sample.images, sample.bags.grid)
    alone = Comparison(scores, expected, how=f"weighed by their {called(maps.kind)}")
    return replace(alone, views=(alone,) * len(sample.bags.views))


def weighed_instead(together: Combined, sample: Sample, maps: Maps) -> Combined:
    """The comparison with heat maps in the place of its scores."""
    compared, given = together.comparison, weighed_by(sample, maps)
    how = f"{compared.how}; {given.how}"
    # Without views of its own it stands for the only one, whose scores are to stay.
    found = replace(compared, scores=given.scores, how=how, views=compared.by_view)
    return replace(together, comparison=found, normal_scores=None)


def means_of_views(
    bags: Bags, known: KnownGood | None, method: Method
) -> tuple[MeanPatch | None, ...]:
    """How mean patches are measured in each view; empty if they take no part."""
    if not method.has_means or bags.tile is not None:
        return ()  # the mean of a part of a photo shows where the part lies, not what is wrong
    zero = [MeanPatch(np.zeros(one.dim, np.float32)) for one in bags.views]
    if known is None:
        return tuple(zero)
    return tuple(mean or plain for mean, plain in zip(known.means, zero, strict=True))


def mean_share(
    compared: list[Compared], bags: Bags, known: KnownGood | None, method: Method
) -> float:
    if not method.has_means or bags.tile is not None:
        return 0.0
    if method.mean_share is not None:
        return method.mean_share
    if known is not None:
        return MEAN_SHARE
    return share_among_peers(bags.views, [one.comparison.scores for one in compared])


def _n_peers(options: FitOptions, n_images: int) -> int:
    n_peers = options.method.n_peers or usual_peers(n_images, options.sizes.peers)
    return n_images if n_peers == "all" else n_peers


def everything(source: Source, options: FitOptions) -> Sample:
    held = source.hold()
    order = np.random.default_rng(options.random_state).permutation(len(held.bags))
    return Sample(held.contents, held.bags, order)


def drawn(source: Source, known: KnownGood | None, options: FitOptions) -> Sample:
    """A random sample, as large as the measurements need."""
    contents, count = source.contents, options.sizes.sample_images
    if not options.method.compares:
        count = 1  # shows the grid; nothing is measured
    elif known is None:
        count = max(count, _n_peers(options, len(contents)))
    order = np.random.default_rng(options.random_state).permutation(len(contents))
    rows, bags = _first_usable(contents, order, source.batch, count)
    return Sample(contents.take(rows), bags, np.arange(len(rows)))


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
        valid = all_valid([(one.valid, one.patches.shape[:2]) for one in parts])
        counted = None if valid is None else valid[:count]
        views.append(Bags(patches, parts[0].grid, counted, tile=parts[0].tile))
    return replace(views[0], beside=tuple(views[1:]))


def all_valid(parts: list[tuple[Bools | None, tuple[int, ...]]]) -> Bools | None:
    """Which patches count. parts: `valid` and shape of each batch. None if all patches count."""
    if all(valid is None for valid, _ in parts):
        return None
    return np.concatenate(
        [np.ones(shape, bool) if valid is None else valid for valid, shape in parts]
    )

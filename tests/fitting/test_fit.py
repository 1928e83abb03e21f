"""Sets that do not fit in memory: the same results, batch by batch, and after an interruption."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort import AnomalyClusterer, Method, View
from flawsort import clusters as grouping
from flawsort import estimator as pipeline
from flawsort.backbones import DEFAULT_BACKBONE, BackboneChoice, open_backbone
from flawsort.backbones.embed import embed_batch
from flawsort.clusters.advice import Advice
from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bags, ImageSet, SetAside
from flawsort.embeddings.axes import MeanPatch
from flawsort.embeddings.describer import Describer, Look
from flawsort.embeddings.extent import extents
from flawsort.embeddings.features import Described
from flawsort.embeddings.heat import HeatScale, calibrate
from flawsort.embeddings.method import TEMPERATURE
from flawsort.embeddings.pooling import residual_whitening
from flawsort.embeddings.regions import Outlines, find_regions, region_scores, regions_of_images
from flawsort.embeddings.weights import score_spread
from flawsort.fitting import comparing, foresight
from flawsort.fitting import source as source_module
from flawsort.fitting.comparing import KnownGood
from flawsort.fitting.fit import DescribedSet, describe_set
from flawsort.fitting.memory import USUAL_SIZES, Need, Sizes
from flawsort.fitting.options import FitOptions
from flawsort.fitting.parts import Batch, Part
from flawsort.fitting.runner import LocalRunner, describe_batch
from flawsort.fitting.source import FileSource, HeldSource
from flawsort.images.find import array_images, find_images
from flawsort.images.inputs import distinct_rows
from flawsort.scores.engines import CpuEngine, CpuLimits
from flawsort.scores.reference import (
    PEER_COUNTS,
    NormalReference,
    PeerCounts,
    PeerReference,
    Reference,
    compare_with_peers,
)
from flawsort.scores.usual import calibrate_normals, usual_of_normals, usual_of_peers
from flawsort.scores.views import CalibratedReference
from helpers.bags import flawed_patches, same_partition
from helpers.described import check_heat, fit_describer
from helpers.oracles import naive_peer_distances
from helpers.part_batches import assert_same_values
from helpers.plates import KINDS, SIDE, contents, plate, plate_arrays, settings, write_plates

BLANK = np.zeros((1, 1), np.uint8)
KINDS_OF_BAGS = [kind for kind in (1, 2, 3, 0) for _ in range(7)]
N = len(KINDS_OF_BAGS)
PEERS = Method(n_peers=9)
TURN = np.eye(12, k=1, dtype=np.float32)  # a whitening that tells


class Shelf:
    """A source of bags that are made up, each content once.

    bad: rows that cannot be used. calls: the names that were asked for each time. fails_at: the
    number of the call in which the power goes.
    """

    def __init__(
        self, *, bad: Sequence[int] = (), masked: bool = False, fails_at: int | None = None
    ) -> None:
        patches = flawed_patches(KINDS_OF_BAGS, n_patches=16)
        valid = None
        if masked:
            valid = np.random.default_rng(8).random((N, 16)) > 0.3
            valid[:, 3] = valid[5:10] = True  # a batch where all are
            for bag, inside in zip(patches, valid, strict=True):
                bag[~inside] = bag[3]
        self.bags = Bags(patches, (4, 4), valid)
        self.images = ImageSet(
            tuple(f"{row:02d}.png" for row in range(N)),
            (BLANK,) * N,
            tuple(f"digest {row:02d}" for row in range(N)),
        )
        self.bad = frozenset(bad)
        self.calls: list[list[int]] = []
        self.fails_at = fails_at
        self.told: dict[str, object] = {}

    @property
    def good(self) -> list[int]:
        return [row for row in range(N) if row not in self.bad]

    @property
    def contents(self) -> ImageSet:
        return self.images

    @property
    def setting(self) -> dict[str, object]:
        return self.told

    def hold(self) -> HeldSource:
        raise AssertionError("they are too many")

    def sampled(self, random_state: int, sizes: Sizes) -> Shelf:
        raise AssertionError("these are no normals")

    def prune(self) -> None: ...

    def batch(self, images: ImageSet) -> tuple[Bags | None, ImageSet]:
        rows = [int(digest.split()[1]) for digest in images.digests]
        self.calls.append(rows)
        if self.fails_at == len(self.calls):
            raise KeyboardInterrupt
        aside = [SetAside(f"{row:02d}.png", f"torn {row}") for row in rows if row in self.bad]
        good = [row for row in rows if row not in self.bad]
        if not good:
            return None, images.without(aside)
        bags = self.bags.take(good)
        if bags.valid is not None and bags.valid.all():
            bags = dataclasses.replace(bags, valid=None)
        return bags, images.without(aside)

    def stream(
        self,
        method: Method = PEERS,
        *,
        normals: NormalReference | None = None,
        normal_scores: Any = None,
        mean: MeanPatch | None = None,
        runner: Any = None,
        engine: Any = None,
        sample: int = USUAL_SIZES.sample_images,
        peers: PeerCounts = PEER_COUNTS,
        **options: Any,
    ) -> DescribedSet:
        """As a set that is too large for memory, five images at a time."""
        sizes = Sizes(batch_images=5, sample_images=sample, peers=peers)
        known = None
        if normals is not None:
            scores = None if normal_scores is None else (normal_scores,)
            known = KnownGood((normals,), scores, (mean,))
        given = FitOptions(method, engine or CpuEngine(), sizes=sizes, **options)
        return describe_set(self, known, given, runner or LocalRunner(self))


def assert_same(one: DescribedSet, other: DescribedSet) -> None:
    for name in ("scores", "weights", "embeddings"):
        first, second = getattr(one.described, name), getattr(other.described, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    assert len(one.described.outlines)
    assert_same_values(one.described.outlines, other.described.outlines)
    assert_same_values(one.described.region_embeddings, other.described.region_embeddings)
    assert one.images == other.images
    assert one.describer.heat == other.describer.heat
    assert one.describer.temperature == other.describer.temperature
    assert one.describer.spread == other.describer.spread
    assert_same_values(one.describer.axes, other.describer.axes)
    assert one.describer.mean_share == other.describer.mean_share
    for look, also in zip(one.describer.looks, other.describer.looks, strict=True):
        assert look.whitening is not None
        assert_same_values(look, also)


def only_view(reference: Reference | None) -> Reference:
    """The reference of the only view, whose scores are calibrated."""
    assert isinstance(reference, CalibratedReference)
    (view,) = reference.views
    return view.reference


def check_looks(found: Describer, expected: Describer) -> None:
    """The same state in each view, but for rounding."""
    for look, also in zip(found.looks, expected.looks, strict=True):
        assert (look.grid, look.dim) == (also.grid, also.dim)
        assert look.arrays().keys() == also.arrays().keys()
        for name, values in look.arrays().items():
            np.testing.assert_allclose(values, also.arrays()[name], atol=1e-5, err_msg=name)


# ---- the same as in memory ----


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(PEERS, id="default"),
        pytest.param(
            Method(n_peers=9, pooling="average", nearest_share=1.0, calibrated=False), id="paper"
        ),
        pytest.param(Method(n_peers=9, calibrated=False, mean_share=0), id="as they are"),
        pytest.param(Method(n_peers=9, absolute_temperature=0.2), id="tau"),
        pytest.param(Method(n_peers="all"), id="all"),
        pytest.param(Method(n_peers=1000), id="more than there are"),
    ],
)
def test_peers_as_in_memory(method: Method, masked: bool) -> None:
    shelf = Shelf(masked=masked)
    bags = dataclasses.replace(shelf.bags, patches=shelf.bags.patches.copy())
    describer, described, how = fit_describer(
        bags, None, method, engine=CpuEngine(), random_state=3
    )
    found = shelf.stream(method, random_state=3)
    check_described(found, describer, described)
    assert found.grid == (4, 4)
    assert (found.valid is None) == (not masked)
    if masked:
        np.testing.assert_array_equal(found.valid, bags.valid)
    assert found.images == shelf.images
    assert len(found.described.outlines) >= 10
    assert found.how == how
    assert how.startswith(
        "compared with a sample of 9 of them" if method.n_peers == 9 else "compared with each other"
    )
    np.testing.assert_array_equal(shelf.bags.patches, bags.patches)


@pytest.mark.parametrize("exact", [True, False, None])
def test_normals_as_in_memory(exact: bool | None) -> None:
    method, shelf = Method(exact=exact), Shelf()
    normals = Bags(flawed_patches([0] * 9, n_patches=16, seed=0), (4, 4))
    describer, described, how = fit_describer(shelf.bags, normals, method)
    reference = NormalReference.from_bags(
        normals, exact=exact, expected_normals=method.expected_normals
    )
    known = reference.scores_of_normals(normals)
    assert known is not None
    mean = MeanPatch.of_normals(normals)
    assert mean is not None
    found = shelf.stream(method, normals=reference, normal_scores=known, mean=mean)
    check_described(found, describer, described)
    assert len(found.described.outlines) >= 10
    assert found.how == how
    assert only_view(found.describer.reference) is reference


def check_described(found: DescribedSet, describer: Describer, described: Described) -> None:
    np.testing.assert_allclose(found.described.embeddings, described.embeddings, atol=1e-5)
    assert found.described.embeddings.dtype == np.float32
    for name in ("scores", "weights"):
        half = getattr(found.described, name)
        assert half.dtype == np.float16
        np.testing.assert_allclose(half, getattr(described, name), rtol=1e-3, atol=1e-5)
    check_outlines(found.described.outlines, described.outlines)
    assert found.described.region_embeddings.dtype == np.float32
    np.testing.assert_allclose(
        found.described.region_embeddings, described.region_embeddings, atol=1e-5
    )
    # The product of two matrices rounds a place by where it lies in them, and a standard deviation
    # of scores is small beside the distances that they are made of.
    check_heat(found.describer.heat, describer.heat, rel=1e-5)
    assert found.describer.temperature == pytest.approx(describer.temperature, rel=1e-6)
    assert found.describer.method == describer.method
    assert found.describer.spread == pytest.approx(describer.spread, rel=1e-6)
    averages = describer.method.pooling == "average"
    assert (found.describer.looks[0].whitening is None) == averages
    check_looks(found.describer, describer)
    assert found.describer.mean_share == pytest.approx(describer.mean_share, rel=1e-5)
    assert (found.describer.axes is None) == (describer.axes is None)
    if describer.axes is not None and found.describer.axes is not None:
        assert found.describer.axes.blocks == describer.axes.blocks
        assert found.describer.axes.scales == pytest.approx(describer.axes.scales, rel=1e-5)
        for name in ("centres", "scales"):
            fitted = getattr(found.describer.axes.extents, name)
            expected = getattr(describer.axes.extents, name)
            assert fitted == pytest.approx(expected, rel=1e-5, abs=1e-6)


def check_outlines(found: Outlines, expected: Outlines) -> None:
    """The same places, of the same height but for rounding."""
    for name in ("images", "cells", "ends"):
        assert_same_values(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.peaks, expected.peaks, rtol=1e-5)


def test_how_normals_are_searched_is_settled_for_the_whole_set() -> None:
    normals = Bags(flawed_patches([0] * 6, n_patches=16, seed=0), (4, 4))
    flop = 2 * (N * 16) * (6 * 16) * 12
    for limit, exact in ((flop, True), (flop - 1, False)):
        engine = CpuEngine(limits=CpuLimits(exact_flop=limit))
        reference = NormalReference.from_bags(normals, engine=engine)
        Shelf().stream(Method(), normals=reference, sample=3)
        assert reference.exact is exact


def test_one_arithmetic_for_the_whole_set() -> None:
    def singles_up_to(flop: int) -> CpuEngine:
        return CpuEngine("auto", limits=CpuLimits(singles_flop=flop))

    engine = singles_up_to(N * N * 2 * 16 * 16 * 12)
    assert "float32" in Shelf().stream(Method(n_peers=1000), engine=engine).how
    flop = N * 9 * 2 * 16 * 16 * 12
    assert "float32" in Shelf().stream(engine=singles_up_to(flop), sample=12).how
    found = Shelf().stream(engine=singles_up_to(flop - 1), sample=12)
    assert "int8" in found.how
    assert isinstance(only_view(found.describer.reference), PeerReference)
    assert found.describer.reference is not None
    assert found.describer.reference.engine.name == "onnxruntime on the CPU, int8"
    np.testing.assert_array_equal(
        found.described.scores,
        Shelf().stream(engine=CpuEngine("int8"), sample=12).described.scores,
    )


def test_the_size_of_the_whole_set_says_how_many_peers() -> None:
    peers = PeerCounts(all_up_to=12, sampled=7)
    assert "a sample of 7 of them" in Shelf().stream(Method(), sample=12, peers=peers).how


def test_known_scores_say_what_is_normal() -> None:
    normals = Bags(flawed_patches([0] * 6, n_patches=16, seed=0), (4, 4))
    reference, shelf = NormalReference.from_bags(normals), Shelf(masked=True)
    scores, valid = reference.compare(shelf.bags).scores, shelf.bags.valid
    for known in (None, np.linspace(0.5, 0.9, 32, dtype=np.float32).reshape(2, 16)):
        plain = Method(calibrated=False)
        found = shelf.stream(plain, normals=reference, normal_scores=known)
        expected = calibrate(scores, valid, known)
        check_heat(found.describer.heat, expected, rel=1e-6)
        assert (expected.low > 0.88) is (known is not None)
        # Calibrated, everything is on the scale of what is usual: of the normals, if it is known.
        if known is None:
            usual = usual_of_peers(scores, (4, 4), valid)
        else:
            usual = usual_of_normals(known, (4, 4))
        found = shelf.stream(Method(), normals=reference, normal_scores=known)
        np.testing.assert_allclose(
            found.described.scores, usual.calibrate(scores), rtol=1e-3, atol=1e-5
        )
        of_normals = None if known is None else calibrate_normals(known, (4, 4), usual)
        expected = calibrate(usual.calibrate(scores), valid, of_normals)
        check_heat(found.describer.heat, expected, rel=1e-5)
        assert (found.describer.heat.normal_below is None) is (known is None)


def test_temperature_heat_and_whitening_are_measured_on_a_sample() -> None:
    shelf = Shelf(masked=True)
    assert shelf.bags.valid is not None
    found = shelf.stream(random_state=4, sample=11)
    sample = np.random.default_rng(4).permutation(N)[:11]
    comparison, _ = compare_with_peers(shelf.bags, n_peers=9, nearest_share=0.2, random_state=4)
    seen = comparison.scores[sample]
    scores = usual_of_peers(seen, (4, 4), shelf.bags.valid[sample]).calibrate(comparison.scores)
    spread = score_spread(scores[sample], shelf.bags.valid[sample])
    assert found.describer.temperature == pytest.approx(TEMPERATURE * spread, rel=1e-5)
    heat = calibrate(scores[sample], shelf.bags.valid[sample])
    check_heat(found.describer.heat, heat, rel=1e-5)
    assert heat.low != pytest.approx(calibrate(scores, shelf.bags.valid).low, rel=1e-3)
    whitening = residual_whitening(shelf.bags, scores, comparison.expected, sample)
    np.testing.assert_allclose(found.describer.looks[0].whitening, whitening, atol=1e-5)
    every = residual_whitening(shelf.bags, scores, comparison.expected, np.arange(N))
    assert not np.allclose(every, whitening, atol=1e-3)
    np.testing.assert_allclose(found.described.scores, scores, rtol=1e-3, atol=1e-5)
    assert len(shelf.calls[0]) == 11
    assert shelf.calls[1:] == [list(range(N))[start : start + 5] for start in range(0, N, 5)]


def test_more_peers_than_the_sample_has() -> None:
    shelf = Shelf()
    found = shelf.stream(PEERS, sample=6)
    peers = only_view(found.describer.reference)
    assert isinstance(peers, PeerReference)
    assert len(peers.peers) == 9
    assert [len(call) for call in shelf.calls] == [9, 5, 5, 5, 5, 5, 3]  # each peer once


def test_everybody_who_can_be_used() -> None:
    """As many peers as there are good files: they are compared with each other."""
    shelf = Shelf(bad=[2, 20])
    assert shelf.stream(Method(n_peers=26)).how.startswith("compared with each other (NumPy")
    assert "a sample of 25 of them" in Shelf(bad=[2, 20]).stream(Method(n_peers=25)).how


@pytest.mark.parametrize("masked", [False, True])
def test_every_patch_alike(masked: bool) -> None:
    method, shelf = Method(weights="uniform", pooling="average"), Shelf(masked=masked, bad=[4])
    bags = shelf.bags.take(shelf.good)
    describer, described, how = fit_describer(bags, None, method)
    found = shelf.stream(method)
    check_described(found, describer, described)
    assert found.describer.reference is None
    assert found.how == how
    assert len(found.described.outlines) == 0
    assert found.images.names == tuple(f"{row:02d}.png" for row in shelf.good)
    assert len(shelf.calls[0]) == 1


def test_the_same_twice_and_another_with_another_seed() -> None:
    first = Shelf().stream(random_state=1)
    assert_same(first, Shelf().stream(random_state=1))
    other = Shelf().stream(random_state=2)
    assert not np.array_equal(first.described.scores, other.described.scores)


def test_progress_counts_images() -> None:
    calls: list[tuple[str, int, int]] = []
    Shelf(bad=[3, *range(5, 10)]).stream(progress=lambda *call: calls.append(call))
    sorting = [call for call in calls if call[0] == "sorting"]
    assert sorting == [("sorting", done, N) for done in (5, 10, 15, 20, 25, 28)]
    assert {call[0] for call in calls} == {"scoring", "measuring", "sorting"}


# ---- bad files ----


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([12], id="one"),
        pytest.param([0, 4, 27], id="at the ends of batches"),
        pytest.param([10, 11, 12, 13, 14], id="a whole batch"),
        pytest.param(list(range(20)), id="most"),
        pytest.param(np.random.default_rng(0).permutation(N)[:6].tolist(), id="all of the sample"),
        pytest.param(np.random.default_rng(0).permutation(N)[:5].tolist(), id="most of the sample"),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_bad_files_are_left_out(bad: list[int], masked: bool) -> None:
    shelf = Shelf(bad=bad, masked=masked)
    plain = Method(n_peers=4, nearest_share=1.0, calibrated=False)
    found = shelf.stream(plain, sample=6)
    good = shelf.good
    assert found.images.names == tuple(f"{row:02d}.png" for row in good)
    assert set(found.images.set_aside) == {SetAside(f"{row:02d}.png", f"torn {row}") for row in bad}
    assert len(found.images.set_aside) == len(bad)
    usable = [row for row in np.random.default_rng(0).permutation(N) if row not in bad]
    peers = usable[:4]
    # What is measured, is on those of the sample that can be used.
    assert isinstance(found.describer.reference, PeerReference)
    bags, own = shelf.bags.take(usable[:6]), np.array([0, 1, 2, 3, -1, -1])
    scores = found.describer.reference.compare(bags, self_rows=own).scores
    check_heat(found.describer.heat, calibrate(scores, bags.valid), rel=1e-6)
    check_regions_line_up(found, shelf.bags.take(good))
    patches = shelf.bags.patches
    for place, row in enumerate(good):
        others = patches[[peer for peer in peers if peer != row]]
        expected = naive_peer_distances(patches[row], others).mean(axis=0)
        np.testing.assert_allclose(found.described.scores[place], expected, atol=2e-3)
    if masked:
        assert shelf.bags.valid is not None
        np.testing.assert_array_equal(found.valid, shelf.bags.valid[good])
    # No more is embedded for the sample than it takes.
    assert len([call for call in shelf.calls if call != sorted(call)]) <= -(-(6 + len(bad)) // 6)


def check_regions_line_up(found: DescribedSet, bags: Bags) -> None:
    """Each region is of the image whose scores its highest one is among, and none is lost."""
    described, outlines = found.described, found.described.outlines
    assert len(outlines)
    assert described.region_embeddings.shape == (len(outlines), described.embeddings.shape[1])
    for region in range(len(outlines)):
        image, cells = outlines.images[region], outlines[region]
        seen = described.scores[image, cells].max()
        assert outlines.peaks[region] == pytest.approx(seen, rel=1e-3)
    among = described.weights > 0
    rough = find_regions(
        described.scores, bags.grid, found.describer.heat, among=among, valid=bags.valid
    )
    assert abs(len(rough) - len(outlines)) <= 1  # in half precision one may be just too low
    assert np.isin(rough.images, outlines.images).mean() > 0.9


def test_what_was_set_aside_before_stays_listed_once() -> None:
    shelf, old = Shelf(bad=[12]), SetAside("old.png", "known to be torn")
    shelf.images = dataclasses.replace(shelf.images, set_aside=(old,))
    assert shelf.stream().images.set_aside == (old, SetAside("12.png", "torn 12"))


def test_a_sample_in_pieces_of_which_some_have_no_padding() -> None:
    order = np.random.default_rng(0).permutation(N)
    shelf = Shelf(masked=True, bad=order[:3].tolist())
    assert shelf.bags.valid is not None
    shelf.bags.valid[order[:6]] = True
    shelf.bags.valid[order[6:9], :3] = False
    sample = order[3:9]
    found = shelf.stream(Method(n_peers=4, calibrated=False), sample=6)
    bags = shelf.bags.take(sample)
    own = np.array([0, 1, 2, 3, -1, -1])
    scores = PeerReference(bags.patches[:4], 0.2).compare(bags, self_rows=own).scores
    spread = score_spread(scores, bags.valid)
    assert found.describer.temperature == pytest.approx(TEMPERATURE * spread, rel=1e-6)
    assert spread != pytest.approx(score_spread(scores), rel=1e-3)


def test_all_bad() -> None:
    shelf = Shelf(bad=range(N))
    first = np.random.default_rng(0).permutation(N)[0]
    told = f"^No usable image: all 28 were set aside. The first, '{first:02d}.png': torn {first}.$"
    with pytest.raises(InputError, match=told):
        shelf.stream()


def test_every_image_is_counted_once_where_all_are_bad() -> None:
    shelf = Shelf(bad=range(N))
    images = dataclasses.replace(shelf.images, set_aside=(SetAside("before.png", "empty"),))

    def embed(some: ImageSet) -> tuple[None, ImageSet]:
        return None, some.without([SetAside(name, "torn") for name in some.names])

    for count in (1, 5, 100):
        with pytest.raises(InputError, match=r"all 29 were set aside\. The first, '00\.png': torn"):
            comparing._first_usable(images, np.arange(N), embed, count)


@pytest.mark.parametrize("method", [PEERS, Method(pooling="average", n_peers=9)])
def test_a_file_that_goes_away_on_the_way(method: Method) -> None:
    class Fading(Shelf):
        def batch(self, images: ImageSet) -> tuple[Bags | None, ImageSet]:
            found = super().batch(images)
            self.bad = frozenset([7])
            return found

    found = Fading().stream(method)
    assert found.images.set_aside == (SetAside("07.png", "torn 7"),)


# ---- batches ----


def a_describer(shelf: Shelf, rows: list[int]) -> Describer:
    """With some of the bags as peers."""
    reference = PeerReference(shelf.bags.patches[rows], 0.5)
    look = Look((4, 4), 12, TURN)
    return Describer(PEERS, (look,), reference, 0.1, 0.2, HeatScale(0.3, 0.8))


def test_a_batch_keeps_what_an_image_comes_to() -> None:
    shelf = Shelf(bad=[2], masked=True)
    describer = a_describer(shelf, [4, 1, 9])
    batch = Batch(shelf.images.take(range(5)), np.array([-1, 1, 5, -1, 0]))
    part = describe_batch(batch, shelf.batch, describer)
    rows = [0, 1, 3, 4]
    assert part.digests == tuple(shelf.images.digests[row] for row in rows)
    described = describer.describe(shelf.bags.take(rows), self_rows=np.array([-1, 1, -1, 0]))
    features = part.features
    assert features is not None
    assert_same_values(features.vectors, described.embeddings)
    assert not features.vectors[:, 0].any()  # whitened
    assert_same_values(features.scores, described.scores.astype(np.float16))
    assert_same_values(features.weights, described.weights.astype(np.float16))
    assert shelf.bags.valid is not None
    valid = shelf.bags.valid[rows]
    assert_same_values(features.extents, extents(described.scores, (4, 4), 0.2, valid))
    np.testing.assert_array_equal(part.valid, valid)
    assert part.reasons == {"02.png": "torn 2"}
    regions = features.regions
    assert len(regions.outlines)
    # Found before the scores are rounded.
    assert_same_values(regions.outlines, described.outlines)
    assert_same_values(regions.vectors, described.region_embeddings)
    alone = region_scores(described.scores, regions.outlines, describer.heat)
    found = extents(alone, (4, 4), 0.2, valid[regions.outlines.images])
    assert_same_values(regions.extents, found)


def test_a_batch_of_bad_files_says_why() -> None:
    shelf = Shelf(bad=range(5))
    part = describe_batch(
        Batch(shelf.images.take(range(5)), np.full(5, -1)),
        shelf.batch,
        a_describer(shelf, [0, 1, 2]),
    )
    assert (part.digests, part.features, part.valid) == ((), None, None)
    assert part.reasons == {f"{row:02d}.png": f"torn {row}" for row in range(5)}


def test_others_can_do_the_work(tmp_path: Path) -> None:
    class Counting:
        def __init__(self, shelf: Shelf) -> None:
            self.sizes: list[int] = []
            self._shelf = shelf

        def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
            self.sizes += [len(batch.images) for batch in batches]
            return LocalRunner(self._shelf).describe(batches, describer)

        def clear(self) -> None: ...

    here, there = Shelf(), Shelf()
    runner = Counting(there)
    found = here.stream(runner=runner)
    assert_same(found, Shelf().stream())
    assert runner.sizes == [5, 5, 5, 5, 5, 3]
    assert len(here.calls) == 1  # the sample
    assert len(there.calls) == 6


# ---- parts ----


def keeping(shelf: Shelf, folder: Path, **setting: object) -> LocalRunner:
    shelf.told = setting
    return LocalRunner(shelf, folder)


def parts_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.part"))


@pytest.mark.parametrize("bad", [[], [0, 6], [5, 6, 7, 8, 9]])
@pytest.mark.parametrize("masked", [False, True])
def test_an_interrupted_run_goes_on(tmp_path: Path, bad: list[int], masked: bool) -> None:
    whole = Shelf(bad=bad, masked=masked).stream()
    cut_short = Shelf(bad=bad, masked=masked, fails_at=5)  # the sample and three batches
    with pytest.raises(KeyboardInterrupt):
        cut_short.stream(runner=keeping(cut_short, tmp_path))
    assert len(parts_in(tmp_path)) == 3
    rest = Shelf(bad=bad, masked=masked)
    assert_same(rest.stream(runner=keeping(rest, tmp_path)), whole)
    assert rest.calls[1:] == [
        [15, 16, 17, 18, 19],
        [20, 21, 22, 23, 24],
        [25, 26, 27],
    ]
    assert len(parts_in(tmp_path)) == 6
    nothing = Shelf(bad=bad, masked=masked)
    runner = keeping(nothing, tmp_path)
    assert_same(nothing.stream(runner=runner), whole)
    assert len(nothing.calls) == 1
    runner.clear()
    assert list(tmp_path.iterdir()) == []
    runner.clear()


def test_damaged_parts_are_repaired(tmp_path: Path) -> None:
    first = Shelf()
    whole = first.stream(runner=keeping(first, tmp_path))
    paths = parts_in(tmp_path)
    paths[1].write_bytes(b"torn")
    paths[3].write_bytes(b"")
    paths[4].unlink()
    rest = Shelf()
    assert_same(rest.stream(runner=keeping(rest, tmp_path)), whole)
    assert len(rest.calls) == 1 + 3
    nothing = Shelf()
    nothing.stream(runner=keeping(nothing, tmp_path))
    assert len(nothing.calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"random_state": 1},
        {"method": Method(n_peers=8)},
        {"method": Method(n_peers=9, absolute_temperature=0.2)},
        {"engine": CpuEngine("int8")},
        {"backbone": "another"},
        {"normals": NormalReference(flawed_patches([0] * 6, n_patches=16).reshape(-1, 12))},
    ],
)
def test_another_run_takes_no_parts(tmp_path: Path, other: dict[str, Any]) -> None:
    first, second = Shelf(), Shelf()
    first.stream(runner=keeping(first, tmp_path, backbone="one"))
    backbone = other.pop("backbone", "one")
    runner = keeping(second, tmp_path, backbone=backbone)
    second.stream(**other, runner=runner)
    assert len(second.calls) == 1 + 6
    runner.clear()
    assert len(parts_in(tmp_path)) == 6  # those of the first


def test_a_disk_that_keeps_nothing_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    shelf = Shelf()
    runner = keeping(shelf, tmp_path / "file" / "parts")
    assert_same(shelf.stream(runner=runner), Shelf().stream())
    runner.clear()


def test_abandoned_parts_are_removed_and_not_the_run_s_own(tmp_path: Path) -> None:
    first = Shelf()
    first.stream(runner=keeping(first, tmp_path))
    [own] = tmp_path.iterdir()
    old = tmp_path / ("0" * 20)
    old.mkdir()
    for folder in (own, old):
        os.utime(folder, (0, 0))
    again = Shelf()
    again.stream(runner=keeping(again, tmp_path))
    assert len(again.calls) == 1
    assert list(tmp_path.iterdir()) == [own]


# ---- AnomalyClusterer ----


opened = functools.cache(open_backbone)
# Two networks that see the plates on grids of 8 x 8 and 12 x 12 patches.
TWO_VIEWS = (
    BackboneChoice(DEFAULT_BACKBONE, image_size=SIDE),
    BackboneChoice(DEFAULT_BACKBONE, image_size=96),
)
STREAMED = Sizes(in_memory=0, batch_images=4)
# If the arithmetic is left open, eight bits are taken.
IN_EIGHT_BITS = dataclasses.replace(STREAMED, cpu=CpuLimits(singles_flop=0))


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a backbone and to work out advice takes longer than all the rest together."""
    advice = Advice(2, 2, 2, False, "Said so.", ())
    monkeypatch.setattr(grouping, "advise", lambda *_, **__: advice)
    monkeypatch.setattr(pipeline, "open_backbone", opened)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set is too large for memory that is not compared with all of itself."""
    monkeypatch.setattr(AnomalyClusterer, "sizes", STREAMED)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own cache, empty."""
    monkeypatch.setenv("FLAWSORT_CACHE", str(tmp_path / "home"))
    return tmp_path / "home"


def fit(images: Any, normal: Any = None, **parameters: Any) -> AnomalyClusterer:
    given = settings(**{"n_clusters": 2, "method": Method(n_peers=6), **parameters})
    return AnomalyClusterer(**given).fit(images, normal=normal)


def check_alike(streamed: AnomalyClusterer, held: AnomalyClusterer) -> None:
    assert streamed.scores_.dtype == np.float16
    assert held.scores_.dtype == np.float32
    np.testing.assert_array_equal(streamed.labels_, held.labels_)
    np.testing.assert_allclose(streamed.embeddings_, held.embeddings_, atol=1e-5)
    np.testing.assert_allclose(streamed.linkage_, held.linkage_, atol=1e-4)
    np.testing.assert_allclose(streamed.scores_, held.scores_, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(streamed.weights_, held.weights_, rtol=1e-3, atol=1e-6)
    assert (streamed.valid_ is None) == (held.valid_ is None)
    if held.valid_ is not None:
        np.testing.assert_array_equal(streamed.valid_, held.valid_)
    check_heat(streamed.heat_, held.heat_, rel=1e-5)
    check_outlines(streamed.regions_.outlines, held.regions_.outlines)
    for name in ("labels", "nearest"):
        assert_same_values(getattr(streamed.regions_, name), getattr(held.regions_, name))
    np.testing.assert_allclose(streamed.regions_.embeddings, held.regions_.embeddings, atol=1e-5)
    # The only region of an image lies as clearly in a group as the image, but for rounding: which
    # of the two is ahead is left to chance.
    np.testing.assert_allclose(
        streamed.regions_.confidence, held.regions_.confidence, atol=1.01 / len(held.labels_)
    )
    assert streamed.kinds_ == held.kinds_
    assert (streamed.normals_ is None) == (held.normals_ is None)
    if streamed.normals_ is not None and held.normals_ is not None:
        assert sorted(streamed.normals_.names) == sorted(held.normals_.names)
    # The recall is measured on a sample, which is another one when streamed.
    assert without_recall(streamed.scored_) == without_recall(held.scored_)
    for name in ("grid_", "images_", "warnings_", "n_clusters_"):
        assert getattr(streamed, name) == getattr(held, name), name
    check_looks(streamed.describer_, held.describer_)
    assert streamed.backbones_ == held.backbones_
    assert streamed.n_dims_ == held.n_dims_


def without_recall(scored: str) -> str:
    return re.sub(r"found for [\d.]+% of", "found for some of", scored)


def mixed(folder: Path) -> Path:
    """Plates, copies of some, and a file that is no picture with a copy; names in no order."""
    folder.mkdir()
    for row, picture in enumerate(plate_arrays()):
        Image.fromarray(picture).save(folder / f"{row * 5 % 14:02d}.png")
    for name in ("00.png", "07.png", "07.png"):
        (folder / f"copy {len(list(folder.iterdir()))}.png").write_bytes(
            (folder / name).read_bytes()
        )
    return folder


@pytest.mark.parametrize("n_views", [1, 2])
@pytest.mark.parametrize("case", ["peers", "normals", "lists", "copies", "mask", "pad", "alike"])
def test_streamed_as_in_memory(
    case: str, n_views: int, plates: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    images: Any = plates / "parts"
    normal, view = None, None
    method = Method(n_peers=6, exact=False if case == "lists" else None)
    if case in ("normals", "lists"):
        normal = plates / "good"
    if case == "alike":
        method = Method(weights="uniform", pooling="average")
    if case == "copies":
        images = mixed(tmp_path / "mixed")
    if case == "mask":
        inside = np.zeros((64, 64), np.uint8)
        inside[16:, :48] = inside[:, :16] = 255
        Image.fromarray(inside).save(tmp_path / "mask.png")
        view = View(mask=tmp_path / "mask.png")
    if case == "pad":  # some are square and have no padding, whole batches of them too
        view = View(fit="pad")
        images = [one[:40] if row in (1, 2) else one for row, one in enumerate(plate_arrays())]
    given = {"backbone": TWO_VIEWS[:n_views], "view": view, "method": method, "random_state": 2}
    held = fit(images, normal, **given)
    request.getfixturevalue("streams")
    streamed = fit(images, normal, **given)
    check_alike(streamed, held)
    assert len(held.backbones_) == len(held.describer_.looks) == n_views
    assert (held.valid_ is not None) == (case in ("mask", "pad"))
    assert (len(held.regions_) == 0) == (case == "alike")
    assert ("inverted lists" in streamed.scored_) == (case == "lists")


@pytest.mark.usefixtures("streams")
def test_names_and_their_order_change_nothing(tmp_path: Path) -> None:
    arrays = plate_arrays()
    order = np.random.default_rng(5).permutation(14)
    first, second = fit(arrays), fit([arrays[row] for row in order])
    np.testing.assert_array_equal(first.embeddings_[order], second.embeddings_)
    np.testing.assert_array_equal(first.scores_[order], second.scores_)
    assert same_partition(first.labels_[order], second.labels_)
    chosen, images = regions_of_images(first.regions_.outlines, order)
    assert len(chosen) == len(first.regions_) > 0
    assert_same_values(second.regions_.outlines, first.regions_.outlines.take(chosen, images))
    assert_same_values(second.regions_.embeddings, first.regions_.embeddings[chosen])


@pytest.mark.usefixtures("streams")
def test_the_same_bytes_twice(plates: Path, tmp_path: Path) -> None:
    saved = []
    for name in ("one", "two"):
        fit(plates / "parts").save(tmp_path / name)
        files = contents(tmp_path / name)
        manifest = json.loads(files.pop("manifest.json"))
        del manifest["timings"]
        saved.append({**files, "manifest.json": manifest})
    assert saved[0] == saved[1]


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("normal", [False, True])
def test_a_streamed_run_sorts_new_images(plates: Path, tmp_path: Path, normal: bool) -> None:
    model = fit(plates / "parts", plates / "good" if normal else None)
    new = [plate("dent", 50), plate("streak", 51)]
    expected = model.assign(new)
    model.save(tmp_path / "run")
    loaded = AnomalyClusterer.load(tmp_path / "run")
    loaded.cache = None
    found = loaded.assign(new)
    np.testing.assert_array_equal(found[1].labels, expected[1].labels)
    np.testing.assert_allclose(found[2], expected[2], atol=1e-6)
    assert found[1].kinds == expected[1].kinds
    assert_same_values(loaded.regions_, model.regions_)
    np.testing.assert_array_equal(loaded.scores_, model.scores_)
    for look, also in zip(loaded.describer_.looks, model.describer_.looks, strict=True):
        assert look.whitening is not None
        assert_same_values(look, also)
    assert loaded.scores_.dtype == np.float16


@pytest.mark.parametrize(
    ("most", "streamed"), [(10**6, False), ("1M", False), (450_000, True), ("430 KB", True)]
)
def test_max_memory_decides(
    monkeypatch: pytest.MonkeyPatch, most: str | int, streamed: bool
) -> None:
    small = Sizes(base=0, per_image=0, sample_images=2, batch_images=1)
    monkeypatch.setattr(AnomalyClusterer, "sizes", small)
    model = fit(plate_arrays(), max_memory=most)
    assert model.scores_.dtype == (np.float16 if streamed else np.float32)


def test_max_memory_holds_for_uniform_weights_too(plates: Path) -> None:
    method = Method(weights="uniform", pooling="average")
    with pytest.raises(OptionError, match=r"^max_memory must be .* for 14 images, even in batches"):
        fit(plates / "parts", max_memory="1M", method=method)


def test_a_limit_that_cannot_be_met_is_told_before_the_work(plates: Path) -> None:
    def progress(*_: object) -> None:
        raise AssertionError("it went on")

    with pytest.raises(OptionError, match=r"^max_memory must be .* for 14 images.* Got 1 MB\."):
        fit(plates / "parts", max_memory="1M", progress=progress)
    with pytest.raises(
        OptionError, match=r"^max_memory must be at least 0\.4 GB to compare 14 images with"
    ):
        fit(plates / "parts", max_memory="1M", method="default", progress=progress)
    with pytest.raises(OptionError, match=r"^max_memory must be a size such as .* Got 'x'.$"):
        fit(plates / "nowhere", max_memory="x")


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(
    ("method", "normal", "streamed"),
    [
        (Method(), False, False),  # so few are compared with each other
        (Method(n_peers="all"), False, False),
        (Method(n_peers=14), False, False),
        (Method(n_peers=13), False, True),
        (Method(), True, True),
        (Method(n_peers="all"), True, True),
        (Method(weights="uniform", pooling="average"), False, True),
        (Method(weights="uniform", pooling="average", n_peers="all"), False, True),
    ],
)
def test_what_can_be_streamed(plates: Path, method: Method, normal: bool, streamed: bool) -> None:
    model = fit(plates / "parts", plates / "good" if normal else None, method=method)
    assert model.scores_.dtype == (np.float16 if streamed else np.float32)


# ---- bad files among real ones ----


@pytest.mark.usefixtures("streams")
def test_bad_files_of_a_folder(plates: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    shutil.copytree(plates / "parts", folder)
    for number in range(7):
        (folder / f"bad{number}.png").write_bytes(b"torn %d" % (number % 6))
    model = fit(folder)
    assert len(model.labels_) == len(model.images_) == 14
    assert [one.name for one in model.images_.set_aside] == [f"bad{i}.png" for i in range(7)]
    assert all(one.reason for one in model.images_.set_aside)
    assert model.scores_.dtype == np.float16
    for path in sorted(folder.glob("[ds]*.png"))[1:]:
        path.write_bytes(b"torn too" + path.name.encode())
    with pytest.raises(
        InputError,
        match=r"^At least 2 usable images are needed to group them. Got 1; 20 were set aside.$",
    ):
        fit(folder)
    sorted(folder.glob("dent*.png"))[0].write_bytes(b"the last")
    with pytest.raises(InputError, match=r"^No usable image: all 20 were set aside. The first"):
        fit(folder)


@pytest.mark.usefixtures("streams")
def test_bad_files_that_come_first_do_not_lift_the_limit(plates: Path, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    shutil.copytree(plates / "parts", folder)
    for number in range(8):
        (folder / f"bad{number}.png").write_bytes(b"torn %d" % number)
    assert fit(folder).scores_.dtype == np.float16


@pytest.mark.usefixtures("streams")
def test_a_bad_normal_that_comes_first(plates: Path, tmp_path: Path) -> None:
    folder = tmp_path / "good"
    shutil.copytree(plates / "good", folder)
    number = next(
        number
        for number in range(10_000)
        if _comes_first(folder / "bad.png", b"torn %d" % number, folder)
    )
    assert number >= 0
    model = fit(plates / "parts", folder)
    assert model.normals_ is not None
    assert [one.name for one in model.normals_.set_aside] == ["bad.png"]


def _comes_first(path: Path, content: bytes, folder: Path) -> bool:
    path.write_bytes(content)
    images = find_images(folder)
    return min(zip(images.digests, images.names, strict=True))[1] == path.name


@pytest.mark.usefixtures("streams")
def test_many_normals_are_a_sample(plates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eight = dataclasses.replace(STREAMED, in_memory=64 * 168 * 2 * 8 + 5, min_normals=3)
    monkeypatch.setattr(AnomalyClusterer, "sizes", eight)
    first, second = (fit(plates / "parts", plates / "good") for _ in range(2))
    assert first.warnings_ == [
        "Used a sample of 8 of the 10 normal images, as many as fit in memory."
    ]
    assert first.normals_ == second.normals_
    assert first.normals_ is not None
    assert len(first.normals_) == 8
    normals = only_view(first.describer_.reference)
    assert isinstance(normals, NormalReference)
    assert len(normals.bank) == 8 * 64
    np.testing.assert_array_equal(first.embeddings_, second.embeddings_)
    other = fit(plates / "parts", plates / "good", random_state=1)
    assert other.normals_ != first.normals_
    monkeypatch.setattr(AnomalyClusterer, "sizes", dataclasses.replace(eight, in_memory=0))
    least = fit(plates / "parts", plates / "good")
    assert least.normals_ is not None
    assert len(least.normals_) == 3


@pytest.mark.usefixtures("streams")
def test_names_of_normals_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    twenty = dataclasses.replace(STREAMED, in_memory=64 * 168 * 2 * 20, min_normals=3)
    monkeypatch.setattr(AnomalyClusterer, "sizes", twenty)
    good = plate_arrays(["good"] * 30)
    first, second = (fit(plate_arrays(), normals) for normals in (good, good[::-1]))
    one, other = (only_view(model.describer_.reference) for model in (first, second))
    assert isinstance(one, NormalReference)
    assert isinstance(other, NormalReference)
    np.testing.assert_array_equal(one.bank, other.bank)
    assert first.heat_ == second.heat_


@pytest.mark.usefixtures("streams")
def test_copies_among_the_normals_are_listed_as_in_memory(plates: Path, tmp_path: Path) -> None:
    folder = tmp_path / "good"
    shutil.copytree(plates / "good", folder)
    (folder / "copy.png").write_bytes((folder / "good00.png").read_bytes())
    model = fit(plates / "parts", folder)
    assert model.normals_ is not None
    assert len(model.normals_) == 11


# ---- caches and interruptions ----


class Embedding:
    """Counts the images that are embedded in batches, without the first of a fit, a probe."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        real = embed_batch

        def count(images: ImageSet, *rest: Any) -> Any:
            self.sizes.append(len(images))
            return real(images, *rest)

        monkeypatch.setattr(source_module, "embed_batch", count)

    def during(self, images: list[Any], **parameters: Any) -> list[int]:
        """Batch sizes after the probes (of the images, and of the normals) and the sample."""
        self.sizes = []
        fit(images, **parameters).discard_parts()
        probes = 2 if "normal" in parameters else 1
        assert self.sizes[: probes + 1] == [1] * probes + [len(images)]
        return self.sizes[probes + 1 :]


def stop_after(done: int) -> Any:
    def progress(stage: str, count: int, _: int) -> None:
        if stage == "sorting" and count >= done:
            raise KeyboardInterrupt

    return progress


def files_in(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.rglob("*") if path.is_file())


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize("named", [False, True])
def test_what_is_kept_on_disk(home: Path, tmp_path: Path, named: bool) -> None:
    cache: Any = tmp_path / "named" if named else "auto"
    folder = tmp_path / "named" if named else home
    with pytest.raises(KeyboardInterrupt):
        fit(plate_arrays(), cache=cache, progress=stop_after(8))
    bags = [".bag"] * 14 if named else []
    assert files_in(folder) == [*bags, ".part", ".part"]
    model = fit(plate_arrays(), cache=cache)
    assert files_in(folder) == [*bags, *[".part"] * 4]  # until the run is saved
    model.save(tmp_path / "run", report=False)
    assert files_in(folder) == bags
    assert not list((folder / "parts").iterdir())
    if named:
        assert not home.exists()


@pytest.mark.usefixtures("streams")
def test_no_cache_keeps_nothing(home: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(plate_arrays(), cache=None, progress=stop_after(8))
    assert not home.exists()


@pytest.mark.usefixtures("streams")
def test_a_fit_goes_on_where_it_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, embedding = plate_arrays(), Embedding(monkeypatch)
    whole = fit(arrays)
    assert embedding.during(arrays, cache="auto") == [4, 4, 4, 2]
    with pytest.raises(KeyboardInterrupt):
        fit(arrays, cache="auto", progress=stop_after(8))
    embedding.sizes = []
    model = fit(arrays[::-1], cache="auto")  # the same images, so the same batches
    assert embedding.sizes == [1, 14, 4, 2]
    model.discard_parts()
    for name in ("scores_", "weights_", "embeddings_"):
        np.testing.assert_array_equal(getattr(model, name)[::-1], getattr(whole, name))
    assert embedding.during(arrays, cache="auto") == [4, 4, 4, 2]  # all is cleared


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(
    ("case", "others"),
    [
        ("seed", {"random_state": 1}),
        ("method", {"method": Method(n_peers=5)}),
        ("view", {"view": View(tiles=(1, 2))}),
        ("normals", {}),
        ("float32", {"arithmetic": "float32"}),
    ],
)  # fmt: skip
def test_parts_are_not_taken_by_another_fit(
    home: Path, monkeypatch: pytest.MonkeyPatch, case: str, others: dict[str, Any]
) -> None:
    arrays, embedding = plate_arrays(), Embedding(monkeypatch)
    monkeypatch.setattr(AnomalyClusterer, "sizes", IN_EIGHT_BITS)
    with pytest.raises(KeyboardInterrupt):
        fit(arrays, cache="auto", progress=stop_after(8))
    if case == "normals":
        others = {"normal": plate_arrays(["good"] * 10)}
    assert embedding.during(arrays, cache="auto", **others) == [4, 4, 4, 2]
    # Those of the first are still there.
    assert embedding.during(arrays, cache="auto") == [4, 2]


@pytest.mark.usefixtures("streams")
def test_the_arithmetic_that_would_be_taken_is_the_same_fit(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays, embedding = plate_arrays(), Embedding(monkeypatch)
    monkeypatch.setattr(AnomalyClusterer, "sizes", IN_EIGHT_BITS)
    with pytest.raises(KeyboardInterrupt):
        fit(arrays, cache="auto", progress=stop_after(8))
    assert embedding.during(arrays, cache="auto", arithmetic="int8") == [4, 2]


@pytest.mark.usefixtures("streams")
def test_other_normals_are_another_fit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays, embedding = plate_arrays(), Embedding(monkeypatch)
    good = plate_arrays(["good"] * 11)
    with pytest.raises(KeyboardInterrupt):
        fit(arrays, good[:10], cache="auto", progress=stop_after(8))
    assert embedding.during(arrays, normal=good[1:], cache="auto") == [4, 4, 4, 2]
    assert embedding.during(arrays, normal=good[:10], cache="auto") == [4, 2]


@pytest.mark.usefixtures("streams")
def test_other_images_are_another_fit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedding = Embedding(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(plate_arrays(), cache="auto", progress=stop_after(8))
    # The first batches hold the same images, and yet they are compared with other peers.
    images = array_images(plate_arrays())
    arrays = [images.sources[row] for row in distinct_rows(images)[:13]]
    assert embedding.during(arrays, cache="auto") == [4, 4, 4, 1]
    assert embedding.during(plate_arrays(), cache="auto") == [4, 2]


# ---- FileSource ----


def test_a_bag_is_measured_on_the_first_image_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fitted: AnomalyClusterer
) -> None:
    write_plates(tmp_path / "parts", KINDS)
    for number in range(8):
        (tmp_path / "parts" / f"bad{number}.png").write_bytes(b"torn %d" % number)
    asked: list[Need] = []

    def ask(need: Need, limit: int | None, *, all_pairs: bool) -> bool:
        asked.append(need)
        assert limit == 77
        assert not all_pairs
        return True

    monkeypatch.setattr(foresight, "must_stream", ask)
    images = find_images(tmp_path / "parts")
    assert images.names[:9] == (*(f"bad{number}.png" for number in range(8)), "dent00.png")
    known = find_images(tmp_path / "parts").take([9, 10, 10])
    fewer = images.take([1, *range(7, 22), 15])
    source = FileSource(fewer, fitted._same_backbones(fitted.fitted_), View())
    normals = dataclasses.replace(source, images=known)
    assert foresight.foresee(source, normals, Method(), 77).streamed
    assert foresight.foresee(source, None, Method(n_peers=6), 77).streamed
    assert asked == [Need(16, 2, ((64, 168),)), Need(16, 0, ((64, 168),), 6)]


def test_where_things_are_kept(home: Path, tmp_path: Path, fitted: AnomalyClusterer) -> None:
    backbones = fitted._same_backbones(fitted.fitted_)
    folders = [
        FileSource(fitted.images_, backbones, View(), cache).cache_folder
        for cache in (None, "auto", tmp_path / "x", str(tmp_path / "x"))
    ]
    assert folders == [None, home, tmp_path / "x", tmp_path / "x"]

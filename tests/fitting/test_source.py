"""Sources of bags in several views: files that fail in one of them, caches, batches."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort.backbones import BackboneInfo
from flawsort.core.errors import InputError
from flawsort.core.records import Bags, ImageSet
from flawsort.embeddings.method import Method
from flawsort.fitting.comparing import known_good
from flawsort.fitting.fit import DescribedSet, describe_set
from flawsort.fitting.foresight import foresee
from flawsort.fitting.memory import Sizes
from flawsort.fitting.options import FitOptions
from flawsort.fitting.parts import run_setting
from flawsort.fitting.runner import LocalRunner
from flawsort.fitting.source import FileSource, HeldSource, embed_views, held_sources
from flawsort.images.find import find_images
from flawsort.images.view import View
from flawsort.scores.engines import CpuEngine, CpuLimits
from flawsort.scores.reference import PeerReference
from flawsort.scores.usual import Usual
from flawsort.scores.views import CalibratedReference, ViewReference, references_of
from helpers.bags import Array, unit_vectors
from helpers.plates import KINDS, NORMALS, plate

SIDE = 64
PADDED = View(fit="pad")


class Squares:
    """A backbone: mean and spread of the colours of each rectangle of an image of 64 x 64."""

    def __init__(self, height: int, width: int | None = None) -> None:
        self.cell = (height, width or height)
        name = "squares of {} x {}".format(*self.cell)
        self.info = BackboneInfo(name, name, "none", "a test", (SIDE, SIDE), 1)
        self.seen = 0

    def feature_maps(self, pixels: Array) -> list[Array]:
        self.seen += len(pixels)
        height, width = self.cell
        cut = pixels.reshape(len(pixels), 3, SIDE // height, height, SIDE // width, width)
        maps = np.concatenate([cut.mean(axis=(3, 5)), 3 * cut.std(axis=(3, 5))], axis=1)
        return [maps.astype(np.float32)]


# With padding, nothing of a thin image is left on a grid that is too coarse for it.
THIN = {"wide.png": (SIDE, 8), "tall.png": (8, SIDE)}
FINE, HIGH, WIDE, COARSE = (8, 8), (16, 8), (8, 16), (16, 16)
FAILING = [
    pytest.param((FINE, HIGH), {"wide.png"}, id="second"),
    pytest.param((WIDE, FINE), {"tall.png"}, id="first"),
    pytest.param((HIGH, WIDE), {"wide.png", "tall.png"}, id="either"),
    pytest.param((COARSE, FINE), {"wide.png", "tall.png"}, id="both"),
]


def write(folder: Path, kinds: Sequence[str], *, thin: bool = False) -> ImageSet:
    """Plates, and images that are thin."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, kind in enumerate(kinds):
        Image.fromarray(plate(kind, number)).save(folder / f"{kind}{number:02d}.png")
    for number, (name, size) in enumerate(THIN.items() if thin else ()):
        Image.new("RGB", size, (90, 120 + number, 40)).save(folder / name)
    return find_images(folder)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    return write(tmp_path_factory.mktemp("source") / "parts", KINDS)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    return write(tmp_path_factory.mktemp("source") / "good", NORMALS)


def two() -> tuple[Squares, Squares]:
    return Squares(8), Squares(16)


def source_of(images: ImageSet, **given: Any) -> FileSource:
    return FileSource(images, given.pop("backbones", two()), PADDED, **given)


# ---- bags ----


def test_every_view_has_the_bags_of_its_backbone(parts: ImageSet) -> None:
    held = source_of(parts).hold()
    assert held.bags.shapes == ((64, 6), (16, 6))
    assert [one.grid for one in held.bags.views] == [(8, 8), (4, 4)]
    for number, backbone in enumerate(two()):
        alone = source_of(parts, backbones=(backbone,)).hold()
        assert alone.contents == held.contents
        np.testing.assert_array_equal(alone.bags.patches, held.bags.views[number].patches)


def test_batches_have_the_bags_of_the_whole_set(parts: ImageSet) -> None:
    source = source_of(parts)
    held = source.hold()
    some = source.contents.take([5, 0, 3])
    bags, usable = source.batch(some)
    assert bags is not None
    assert usable == some
    for one, of_all in zip(bags.views, held.bags.views, strict=True):
        np.testing.assert_array_equal(one.patches, of_all.patches[[5, 0, 3]])
    probe = source.first_bag()
    assert probe is not None
    assert (len(probe), probe.shapes) == (1, held.bags.shapes)


@pytest.mark.parametrize(("cells", "failing"), FAILING)
def test_an_image_that_fails_in_one_view_is_set_aside_in_all(
    tmp_path: Path, cells: tuple[tuple[int, int], ...], failing: set[str]
) -> None:
    images = write(tmp_path, KINDS[5:9], thin=True)
    source = source_of(images, backbones=tuple(Squares(*cell) for cell in cells))
    held = source.hold()
    assert {entry.name for entry in held.images.set_aside} == failing
    assert set(images.names) - set(held.images.names) == failing
    for bags, usable in ((held.bags, held.contents), source.batch(source.contents)):
        assert bags is not None
        assert {entry.name for entry in usable.set_aside} == failing
        assert {entry.reason for entry in usable.set_aside} == {
            "nothing of it lies inside the region of interest"
        }
        assert [len(one) for one in bags.views] == [6 - len(failing)] * 2
        for cell, one in zip(cells, bags.views, strict=True):
            alone = source_of(usable, backbones=(Squares(*cell),)).batch(usable)[0]
            assert alone is not None
            np.testing.assert_array_equal(one.patches, alone.patches)
            inside = [
                np.ones(o.patches.shape[:2]) if o.valid is None else o.valid for o in (one, alone)
            ]
            np.testing.assert_array_equal(*inside)


def test_copies_of_a_failing_image_are_set_aside_too(tmp_path: Path) -> None:
    write(tmp_path, KINDS[5:9], thin=True)
    (tmp_path / "copy.png").write_bytes((tmp_path / "wide.png").read_bytes())
    images = find_images(tmp_path)
    held = source_of(images, backbones=(Squares(8), Squares(16, 8))).hold()
    assert sorted(entry.name for entry in held.images.set_aside) == ["copy.png", "wide.png"]


@pytest.mark.parametrize("cells", [(COARSE, FINE), (FINE, COARSE), (HIGH, WIDE)])
def test_nothing_is_left(tmp_path: Path, cells: tuple[tuple[int, int], ...]) -> None:
    images = write(tmp_path, (), thin=True)
    backbones = tuple(Squares(*cell) for cell in cells)
    source = source_of(images, backbones=backbones)
    bags, usable = source.batch(source.contents)
    assert bags is None
    assert sorted(entry.name for entry in usable.set_aside) == ["tall.png", "wide.png"]
    assert len(usable) == 0
    assert source.first_bag() is None
    assert embed_views(images, backbones, PADDED)[0] is None
    with pytest.raises(InputError, match="nothing of it lies inside"):
        source.hold()


# ---- caches ----


def test_each_view_has_a_cache_of_its_own(parts: ImageSet, tmp_path: Path) -> None:
    n = len(parts)
    backbones = two()
    first = source_of(parts, backbones=backbones, cache=tmp_path).hold()
    assert [backbone.seen for backbone in backbones] == [n, n]
    assert len(list(tmp_path.rglob("*.bag"))) == 2 * n
    again = two()
    second = source_of(parts, backbones=again, cache=tmp_path).hold()
    assert [backbone.seen for backbone in again] == [0, 0]
    for one, other in zip(first.bags.views, second.bags.views, strict=True):
        np.testing.assert_array_equal(one.patches, other.patches)
    # The order of views does not matter, nor whether the other is there; another grid does.
    turned = two()[::-1]
    source_of(parts, backbones=turned, cache=tmp_path).hold()
    assert [backbone.seen for backbone in turned] == [0, 0]
    coarse = Squares(8)
    coarse.info = dataclasses.replace(coarse.info, grid=4)
    bags = source_of(parts, backbones=(coarse,), cache=tmp_path).hold().bags
    assert (coarse.seen, bags.grid) == (n, (4, 4))


def test_batches_use_the_cache_of_each_view(parts: ImageSet, tmp_path: Path) -> None:
    backbones = two()
    source = source_of(parts, backbones=backbones, cache=tmp_path)
    source.batch(source.contents)
    source.batch(source.contents)
    assert [backbone.seen for backbone in backbones] == [len(parts)] * 2


def test_the_setting_tells_views_apart(parts: ImageSet) -> None:
    one, other = two()
    coarse = Squares(16)
    coarse.info = dataclasses.replace(coarse.info, grid=2)
    settings = [
        str(source_of(parts, backbones=backbones).setting)
        for backbones in ((one,), (other,), (one, other), (other, one), (one, coarse))
    ]
    assert len(set(settings)) == len(settings)


def test_progress_names_the_views(parts: ImageSet) -> None:
    stages: list[str] = []
    source_of(parts, progress=lambda stage, *_: stages.append(stage)).hold()
    assert list(dict.fromkeys(stages)) == ["embedding, view 1 of 2", "embedding, view 2 of 2"]
    stages.clear()
    given = {"backbones": (Squares(8),), "kind": "normal"}
    source_of(parts, progress=lambda stage, *_: stages.append(stage), **given).hold()
    assert set(stages) == {"embedding normals"}


# ---- memory ----


def test_a_sample_of_normals_counts_all_views(parts: ImageSet) -> None:
    bag = 2 * (64 * 6 + 16 * 6)
    sizes = Sizes(in_memory=5 * bag, min_normals=2)
    assert len(source_of(parts).sampled(0, sizes).images) == 5
    alone = source_of(parts, backbones=(Squares(8),))
    assert len(alone.sampled(0, sizes).images) == 5 * bag // (2 * 64 * 6)


def test_a_set_is_streamed_by_the_bags_of_all_views(parts: ImageSet) -> None:
    method = Method(n_peers=5)
    total = len(parts) * 2 * (64 * 6 + 16 * 6)
    for in_memory, expected in ((total, False), (total - 1, True)):
        sizes = Sizes(in_memory=in_memory)
        assert foresee(source_of(parts), None, method, None, sizes).streamed is expected
    alone = source_of(parts, backbones=(Squares(8),))
    assert not foresee(alone, None, method, None, Sizes(in_memory=total - 1)).streamed


# ---- Bags ----


def test_bags_of_several_views_are_held() -> None:
    first, second = unit_vectors(5, 4, 3), unit_vectors(5, 9, 6, seed=1)
    bags = Bags(first, (2, 2), beside=(Bags(second, (3, 3)),))
    source, none = held_sources(bags, None)
    assert none is None
    rows = [source.images.digests.index(digest) for digest in source.contents.digests]
    for one, given in zip(source.bags.views, bags.views, strict=True):
        np.testing.assert_array_equal(one.patches, given.patches[rows])
    found, _ = source.batch(source.contents.take([2, 0]))
    assert found is not None
    np.testing.assert_array_equal(found.beside[0].patches, second[[rows[2], rows[0]]])
    with pytest.raises(InputError, match=r"Got \(4, 3\), \(9, 6\) and \(4, 3\)\."):
        held_sources(bags, bags.views[0])


# ---- streamed as in memory ----


def described(
    images: ImageSet, normals: ImageSet | None, *, stream: bool, **method: Any
) -> DescribedSet:
    sizes = Sizes(batch_images=4)
    options = FitOptions(Method(**method), CpuEngine(), sizes=sizes)
    source = source_of(images)
    known = None
    if normals is not None:
        known = known_good(
            source_of(normals, kind="normal"), len(source.contents), options, whole=not stream
        )
    return describe_set(source, known, options, LocalRunner(source) if stream else None)


@pytest.mark.parametrize("with_normals", [False, True])
def test_streamed_is_as_in_memory(parts: ImageSet, good: ImageSet, with_normals: bool) -> None:
    normals = good if with_normals else None
    given = {} if with_normals else {"n_peers": len(parts)}
    whole = described(parts, normals, stream=False, **given)
    streamed = described(parts, normals, stream=True, **given)
    assert streamed.images == whole.images
    assert streamed.described.scores.dtype == np.float16
    assert streamed.grid == whole.grid == (8, 8)
    # In standard deviations of the normals' or the set's scores, of which some are nearly 0.
    np.testing.assert_allclose(
        streamed.described.scores, whole.described.scores, rtol=2e-3, atol=2e-2
    )
    np.testing.assert_allclose(
        streamed.described.weights, whole.described.weights, rtol=1e-2, atol=2e-3
    )
    assert streamed.describer.mean_share == pytest.approx(whole.describer.mean_share, abs=1e-4)
    assert streamed.describer.temperature == pytest.approx(whole.describer.temperature, rel=1e-3)
    np.testing.assert_allclose(streamed.described.embeddings, whole.described.embeddings, atol=2e-2)


@pytest.mark.parametrize("stream", [False, True])
def test_names_and_their_order_do_not_matter(
    parts: ImageSet, good: ImageSet, tmp_path: Path, stream: bool
) -> None:
    for number, path in enumerate(reversed(parts.sources)):
        assert isinstance(path, Path)
        (tmp_path / f"{number:02d}.png").write_bytes(path.read_bytes())
    renamed = find_images(tmp_path)
    assert renamed.digests == parts.digests[::-1]
    for normals in (None, good):
        one = described(parts, normals, stream=stream)
        other = described(renamed, normals, stream=stream)
        assert other.images.digests == one.images.digests
        np.testing.assert_array_equal(other.described.scores, one.described.scores)
        np.testing.assert_array_equal(other.described.embeddings, one.described.embeddings)


@pytest.mark.parametrize("with_normals", [False, True])
def test_images_that_fail_in_one_view_are_missing_from_a_stream(
    tmp_path: Path, good: ImageSet, with_normals: bool
) -> None:
    images = write(tmp_path, KINDS, thin=True)
    backbones = (Squares(*HIGH), Squares(*WIDE))
    source = source_of(images, backbones=backbones)
    options = FitOptions(Method(n_peers=16), CpuEngine(), sizes=Sizes(batch_images=4))
    known = None
    if with_normals:
        normals = source_of(good, backbones=backbones)
        known = known_good(normals, len(images), options, whole=False)
    streamed = describe_set(source, known, options, LocalRunner(source))
    whole = describe_set(source, known, options)
    for found in (streamed, whole):
        assert len(found.images) == len(found.described.scores) == len(KINDS)
    assert streamed.images.digests == whole.images.digests
    # In standard deviations of the normals' or the set's scores, of which some are nearly 0.
    np.testing.assert_allclose(
        streamed.described.scores, whole.described.scores, rtol=2e-3, atol=2e-2
    )
    assert {entry.name for entry in streamed.images.set_aside} == THIN.keys()


def test_a_held_source_keeps_its_views(parts: ImageSet) -> None:
    held = source_of(parts).hold()
    assert isinstance(held, HeldSource)
    assert held.hold() is held
    bags, _ = held.batch(held.contents.take([1]))
    assert bags is not None
    assert bags.shapes == held.bags.shapes


# ---- parts of finished batches ----


def test_parts_of_another_state_are_not_used(parts: ImageSet, good: ImageSet) -> None:
    """Whatever of any view decides a result also decides where its parts are kept."""
    describer = described(parts, good, stream=False).describer
    reference = describer.reference
    assert isinstance(reference, CalibratedReference)

    def setting(**changes: Any) -> str:
        return json.dumps(run_setting({}, dataclasses.replace(describer, **changes), []))

    def with_view(view: ViewReference) -> CalibratedReference:
        assert isinstance(reference, CalibratedReference)
        return CalibratedReference((reference.views[0], view))

    second, look = reference.views[1], describer.looks[1]
    assert look.mean is not None
    other_engine = copy.copy(second.reference)
    other_engine.engine = CpuEngine("int8")
    settings = [
        setting(),
        setting(reference=with_view(dataclasses.replace(second, reference=other_engine))),
        setting(
            reference=with_view(
                dataclasses.replace(
                    second, usual=dataclasses.replace(second.usual, spread=2 * second.usual.spread)
                )
            )
        ),
        setting(
            looks=(
                describer.looks[0],
                dataclasses.replace(
                    look, mean=dataclasses.replace(look.mean, centre=look.mean.centre + 1)
                ),
            )
        ),
    ]
    assert len(set(settings)) == len(settings)
    assert setting() == settings[0]


def test_each_view_has_an_engine_for_its_own_work(parts: ImageSet) -> None:
    """The finer view is compared in eight bits, the coarser one has too little work for that."""
    views = source_of(parts).hold().bags.views
    limits = CpuLimits(singles_flop=14 * 14 * 64 * 16 * 2 * 6)
    references = [
        PeerReference(one.patches, 0.2, engine=CpuEngine("auto", limits=limits)) for one in views
    ]
    usual = [Usual(np.zeros(one.n_patches, np.float32), 1.0) for one in views]
    both = CalibratedReference(
        tuple(
            ViewReference(one, places, bags.grid)
            for one, places, bags in zip(references, usual, views, strict=True)
        )
    )
    names = [one.engine.name for one in references_of(both.for_many(14, 64))]
    assert "int8" in names[0]
    assert "int8" not in names[1]

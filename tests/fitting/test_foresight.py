"""What a fit of large photos will take, known before it starts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from flawsort.backbones import BackboneInfo
from flawsort.core.errors import OptionError
from flawsort.core.records import ImageSet, RemoteFile
from flawsort.core.threads import n_threads
from flawsort.embeddings.method import PRESETS, Method
from flawsort.fitting import foresight
from flawsort.fitting.foresight import (
    comparing_rate,
    decoding_bytes,
    foresee,
    note_on_shrunk,
    tile_seconds,
    with_tiles,
)
from flawsort.fitting.memory import USUAL_SIZES, Sizes
from flawsort.fitting.source import FileSource, bag_bytes
from flawsort.images.find import find_images
from flawsort.images.view import View
from flawsort.scores.engines import CpuEngine, choose_engine

INPUT = (64, 64)


class Colours:
    """The mean colour of each square of 8 x 8, for images of 64 x 64."""

    def __init__(self) -> None:
        self.info = BackboneInfo("colours", "colours", "none", "a test", INPUT, pooling_kernel=1)

    def feature_maps(self, pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return [pixels.reshape(len(pixels), 3, 8, 8, 8, 8).mean(axis=(3, 5))]


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    for number in range(6):
        noise = np.random.default_rng(number).integers(0, 256, (120, 180, 3)).astype(np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    return find_images(tmp_path)


def source_of(images: ImageSet, tiles: tuple[int, int]) -> FileSource:
    return FileSource(images, (Colours(),), View(tiles=tiles))


# ---- tiles ----


@pytest.mark.parametrize(
    ("method", "tiles"),
    [
        (Method(), (4, 6)),
        (Method(calibrated=False), (1, 1)),
        (Method(weights="uniform", pooling="average"), (1, 1)),
    ],
)
def test_the_method_and_the_size_choose_tiles(
    tmp_path: Path, method: Method, tiles: tuple[int, int]
) -> None:
    Image.new("L", (2500, 1500)).save(tmp_path / "large.png")
    large = find_images(tmp_path)
    found = with_tiles(View(fit="pad"), (512, 512), large, None, method)
    assert found == View(fit="pad", tiles=tiles)
    chosen = View(tiles=(2, 1))
    assert with_tiles(chosen, (512, 512), large, None, method) is chosen


def test_normals_take_part(tmp_path: Path) -> None:
    for name, width in (("small", 100), ("large", 3000)):
        (tmp_path / name).mkdir()
        Image.new("L", (width, 50)).save(tmp_path / name / "a.png")
    small, large = (find_images(tmp_path / name) for name in ("small", "large"))
    assert with_tiles(View(), (512, 512), small, None, Method()).tiles == (1, 1)
    assert with_tiles(View(), (512, 512), small, large, Method()).tiles == (1, 7)


# ---- memory ----


def test_the_shapes_of_photos_are_known_from_one_tile(images: ImageSet) -> None:
    for tiles in ((1, 1), (2, 3), (5, 1)):
        source = source_of(images, tiles)
        shapes = source.bag_shapes()
        assert shapes == source.hold().bags.shapes
        assert bag_bytes(shapes) == source.hold().bags.nbytes // len(images)


def test_fewer_photos_are_held_at_a_time() -> None:
    usual = USUAL_SIZES
    small = usual.for_photos(500_000)
    assert replace(small, batches_between_pruning=64) == usual
    large = usual.for_photos(36 * 10**6)
    most = usual.in_memory // (36 * 10**6)
    assert (large.batch_images, large.sample_images) == (8, most // 2)
    assert (large.peers.all_up_to, large.peers.sampled) == (most, most // 2)
    huge = usual.for_photos(10**9)
    assert (huge.batch_images, huge.sample_images, huge.min_normals) == (8, 16, 8)
    assert huge.peers.stored == 8


def test_photos_that_do_not_fit_are_streamed(images: ImageSet) -> None:
    source = source_of(images, (2, 3))
    total = source.hold().bags.nbytes
    method = Method(n_peers=4)
    for in_memory, streamed in ((total, False), (total - 1, True)):
        found = foresee(source, None, method, None, Sizes(in_memory=in_memory))
        assert found.streamed is streamed
        assert found.sentence == ""
        assert found.sizes.batch_images == 8
    whole = foresee(source_of(images, (1, 1)), None, method, None, Sizes(in_memory=total))
    assert whole.sizes == Sizes(in_memory=total)
    # Photos that are being decoded count too, one of them at least.
    least = decoding_bytes((120, 180)) // n_threads()
    with pytest.raises(OptionError, match="max_memory must be at least"):
        foresee(source, None, method, Sizes().base + least - 1)


def test_decoding_gets_what_a_limit_leaves(images: ImageSet) -> None:
    source, method, limit = source_of(images, (2, 3)), Method(n_peers=4), Sizes().base + 2**26
    found, more = (foresee(source, None, method, limit + extra) for extra in (0, 1000))
    assert found.decoding is not None
    assert more.decoding is not None
    assert more.decoding - found.decoding == 1000
    # Not less than it was counted with, but for the canvas of each thread.
    assert found.decoding > decoding_bytes((120, 180)) // n_threads()
    assert found.decoding < 2**26
    assert foresee(source, None, method, None).decoding is None


# ---- the sentence ----


def test_the_sentence_says_what_it_takes_and_what_fit_would_save(
    images: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foresight, "tile_seconds", lambda backbones: 3.0)
    monkeypatch.setattr(foresight, "n_threads", lambda: 2)
    monkeypatch.setattr(foresight, "shrunk", lambda *given: 4.2)
    source = source_of(images, (2, 3))
    found = foresee(source, replace(source, kind="normal"), Method(), None, engine=CpuEngine())
    # 6 images and 6 normals of 6 tiles, on 2 processors.
    seconds = round(foresight.IN_ALL * 12 * 6 * 3 / 2 / 60)
    memory = r"[0-9.]+ (MB|GB)"
    assert re.fullmatch(
        rf"Photos of 120 x 180 pixels: looked at in 2 x 3 tiles\. About {seconds} minutes and "
        rf"{memory} of memory\. --fit stretch would shrink them 4\.2 times and not see small "
        rf"flaws, in about 36 seconds and {memory}\.",
        found.sentence,
    )
    whole = source_of(images, (1, 1))
    assert foresee(whole, None, Method(), None, engine=CpuEngine()).sentence == ""


PAPER = PRESETS["paper"]
# Operations to compare two bags of 64 patches of 3 numbers.
PAIR = 2 * 64 * 64 * 3


@pytest.mark.parametrize(
    ("method", "normals", "scored", "apart"),
    [
        (PAPER, False, 15, 0),  # each pair of 6 images once
        (PAPER, True, 36, 0),
        (Method(exact=True, n_peers=4), False, 24, 0),
        (replace(PAPER, exact=False), True, 0, 0),
        (Method(), False, 0, 0),
        (Method(weights="uniform", pooling="average", exact=True), False, 0, 0),
        # A distance between images is computed beside the scores, and always exactly.
        (replace(PAPER, distance="max-min max"), False, 15, 15),
        (replace(PAPER, distance="max-min max"), True, 36, 15),
        (replace(PAPER, distance="min-min", weights="uniform"), False, 0, 15),
        (replace(PAPER, distance="min-min", exact=False), False, 0, 15),
        (Method(distance="mean-mean"), False, 0, 15),
    ],
)
def test_a_long_exact_comparison_is_foretold(
    images: ImageSet,
    monkeypatch: pytest.MonkeyPatch,
    method: Method,
    normals: bool,
    scored: int,
    apart: int,
) -> None:
    asked: list[tuple[int, int]] = []

    def rate(engine: CpuEngine, n_patches: int, dim: int) -> float:
        asked.append((n_patches, dim))
        return PAIR / 120  # two minutes a pair

    monkeypatch.setattr(foresight, "SLOWEST", 1.0)
    monkeypatch.setattr(foresight, "comparing_rate", rate)
    source = source_of(images, (1, 1))
    known = replace(source, kind="normal") if normals else None
    # What fit takes for this method: whatever suits the amount of work, unless it is to be exact.
    engine = choose_engine("cpu", exact=method.exact is True)
    found = foresee(source, known, method, None, engine=engine).sentence
    said = []
    if scored:
        said.append(
            "Patches are compared exactly (NumPy on the CPU, float32), which takes about "
            f"{2 * scored} minutes. --approximate is faster, and then the results say how much of "
            "it is right."
        )
    if apart:
        said.append(
            "Distances between images are computed exactly (NumPy on the CPU, float32), which "
            f"takes about {2 * apart} minutes."
        )
    assert found == " ".join(said)
    assert asked == [(64, 3)] * len(said)
    assert foresee(source, known, method, None).sentence == ""
    monkeypatch.setattr(foresight, "LONG", 120.0 * max(scored, apart))
    assert foresee(source, known, method, None, engine=engine).sentence == ""


def test_the_rate_of_an_engine_is_measured() -> None:
    assert 1e6 < comparing_rate(CpuEngine(), 64, 16) < 1e15


def test_durations() -> None:
    times = (0.1, 89, 91, 3600, 7200)
    said = [foresight.duration(seconds) for seconds in times]
    assert said == ["1 second", "89 seconds", "2 minutes", "60 minutes", "2.0 hours"]


def test_the_time_of_a_tile_is_measured() -> None:
    one, two = tile_seconds((Colours(),)), tile_seconds((Colours(), Colours()))
    assert 0 < one < 5
    assert 0 < two < 5


def test_new_images_that_are_shrunk_are_named_but_not_those_of_a_url() -> None:
    large, small = np.zeros((1500, 400, 3), np.uint8), np.zeros((90, 80, 3), np.uint8)
    far = RemoteFile("s3://nobody/answers.png")
    images = ImageSet(("far.png", "large.png", "small.png"), (far, large, small), ("0", "1", "2"))
    assert note_on_shrunk(images, View(tiles=(1, 1)), (512, 512)) == (
        "1 of the 3 images is looked at 2.9 times smaller than it is, so that small flaws cannot "
        "be seen: large.png. Sort them into a run of images of this size."
    )
    assert note_on_shrunk(images, View(tiles=(4, 1)), (512, 512)) == ""

"""Sizes as people write them, what a run needs, and whether it streams."""

from __future__ import annotations

import itertools
import math
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from flawsort.clusters import group
from flawsort.core.errors import OptionError
from flawsort.embeddings.method import CLUSTERERS, EMBEDDINGS, WITHOUT_PAIRS, Method
from flawsort.fitting.memory import USUAL_SIZES, Need, must_stream, pair_bytes, parse_size

GB = 2**30
# One small network: 1,024 patches of 168 dimensions.
FAST = ((1024, 168),)
# Beside it, a network with 324 patches of 768 dimensions.
BOTH = (*FAST, (324, 768))


def need(n_images: int, n_normals: int = 0) -> Need:
    return Need(n_images, n_normals, FAST)


# ---- sizes ----


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        (4096, 4096),
        ("4096", 4096),
        ("512B", 512),
        ("3k", 3 * 2**10),
        ("500M", 500 * 2**20),
        ("500 MB", 500 * 2**20),
        ("4GB", 4 * GB),
        ("4gb", 4 * GB),
        ("4GiB", 4 * GB),
        (" 4 G ", 4 * GB),
        ("1.5GB", 3 * 2**29),
        ("2T", 2 * 2**40),
    ],
)
def test_sizes_as_people_write_them(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GB", "x", "4 XB", "4 GB please", "-1", "-4GB", "1,5GB", "4GB4", "1e9", ".5G", "5.G",
     0, "0", "0GB", "0.2", -5, True],
)  # fmt: skip
def test_what_is_no_size_is_refused(text: str | int) -> None:
    told = f"max_memory must be a size such as 4GB or 500M. Got '{text}'."
    with pytest.raises(OptionError, match=f"^{re.escape(told)}$"):
        parse_size(text)


# ---- needs ----


def test_a_bag_takes_two_bytes_a_number() -> None:
    assert need(1).bag == 2 * 1024 * 168
    assert need(10, 5).bags == 15 * 2 * 1024 * 168
    assert Need(1, 0, BOTH).bag == 2 * (1024 * 168 + 324 * 768)


def test_several_views_to_the_byte() -> None:
    """Scores are of the first view; embeddings have the columns of all; peers are compared in one
    view after the other."""
    n, bag = 1000, 2 * (1024 * 168 + 324 * 768)
    both = Need(n, 0, BOTH)
    columns = 2 * (168 + 768)
    results = n * (32 * 1024 + 16 * columns + USUAL_SIZES.per_image)
    peers = n * max(1024 * (2 * 168 + 128), 324 * (2 * 768 + 128))
    assert both.in_memory == USUAL_SIZES.base + n * bag + results + peers
    held = USUAL_SIZES.sample_images + USUAL_SIZES.batched_images
    results = n * (8 * 1024 + 16 * columns + USUAL_SIZES.per_image)
    assert both.streamed == USUAL_SIZES.base + held * bag + results


def test_a_known_need_to_the_byte() -> None:
    """What each figure of the estimate stands for, so that none is lost unseen."""
    bag, n = 2 * 1024 * 168, 1000
    alone, known = need(n), need(n, 100)
    in_memory = USUAL_SIZES.base + n * bag + n * (32 * 1024 + 32 * 168 + USUAL_SIZES.per_image)
    peers = n * 1024 * (2 * 168 + 128)
    assert alone.in_memory == in_memory + peers
    assert known.in_memory == in_memory + 100 * bag + max(peers, 3 * 100 * bag)
    streamed = USUAL_SIZES.base + (USUAL_SIZES.sample_images + USUAL_SIZES.batched_images) * bag
    streamed += n * (8 * 1024 + 32 * 168 + USUAL_SIZES.per_image)
    assert alone.streamed == streamed
    assert known.streamed == streamed + 4 * 100 * bag
    # A few images are never held more than thrice: as they are, and on the way.
    few = need(20)
    assert few.streamed == (
        USUAL_SIZES.base + 3 * 20 * bag + 20 * (8 * 1024 + 32 * 168 + USUAL_SIZES.per_image)
    )
    many = 10**6
    assert need(n, many).in_memory == in_memory + many * bag + USUAL_SIZES.bank
    assert need(n, many).streamed == streamed + USUAL_SIZES.in_memory + USUAL_SIZES.bank


@pytest.mark.parametrize("way", ["bags", "in_memory", "streamed"])
def test_more_of_anything_never_needs_less(way: str) -> None:
    sizes = itertools.product(
        [2, 1000, 200_000], [0, 1, 100, 5000, 50_000], [64, 1024, 9216], [24, 168, 1024]
    )
    for n_images, n_normals, n_patches, dim in sizes:
        shapes = ((n_patches, dim),)
        here = getattr(Need(n_images, n_normals, shapes), way)
        assert 0 < here < getattr(Need(n_images + 1, n_normals, shapes), way)
        assert here <= getattr(Need(n_images, n_normals + 1, shapes), way)
        assert here < getattr(Need(n_images, n_normals, ((n_patches + 1, dim),)), way)
        assert here < getattr(Need(n_images, n_normals, ((n_patches, dim + 1),)), way)
        assert here < getattr(Need(n_images, n_normals, (*shapes, (16, 8))), way)


def test_large_sets_need_less_when_streamed() -> None:
    assert need(5000).streamed < need(5000).in_memory / 2
    # Of an image little is left: a hundred thousand fit where their bags would take 32 GB.
    assert need(100_000).streamed < 4 * GB
    assert need(100_000).in_memory > 32 * GB


def test_the_estimate_knows_how_streaming_works() -> None:
    assert USUAL_SIZES.batched_images >= 2 * USUAL_SIZES.batch_images


def test_peers_beyond_the_sample_are_counted() -> None:
    few, many = (Need(10_000, 0, FAST, n_peers=n) for n in (128, 4096))
    beyond = 4096 - USUAL_SIZES.sample_images
    assert many.streamed - few.streamed == (beyond + 4096 - 128) * few.bag


def test_distances_of_all_pairs_are_counted() -> None:
    plain = need(1000)
    for pair in (20, 56):
        paired = replace(plain, pair=pair)
        assert paired.in_memory - plain.in_memory == pair * 1000**2
        assert paired.streamed - plain.streamed == pair * 1000**2


@pytest.mark.parametrize(
    ("clusterer", "distance"),
    [
        *((name, EMBEDDINGS) for name in ("average", "kmedoids", "spectral")),
        *((name, "max-min mean") for name in ("ward", "spectral")),
    ],
)
def test_no_clusterer_takes_more_for_a_pair_than_is_counted(clusterer: str, distance: str) -> None:
    method = Method(clusterer=clusterer, distance=distance)

    def peak(n: int) -> int:
        vectors = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
        given = None if distance == EMBEDDINGS else cdist(vectors, vectors).astype(np.float32)
        tracemalloc.start()
        if given is not None:
            np.fill_diagonal(given, 0)
            given = given[np.ix_(np.arange(n), np.arange(n))]  # as fit_set does
        group(vectors, np.arange(n), 3, clusterer=clusterer, distances=given)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(60)  # loads what is loaded once
    few, many = 100, 300
    each = (peak(many) - peak(few)) / (many**2 - few**2)
    # A little grows with the number of images and not of pairs.
    assert each <= pair_bytes(method) + 12


@pytest.mark.parametrize("clusterer", CLUSTERERS)
def test_what_holds_no_pairs_counts_none(clusterer: str) -> None:
    assert (pair_bytes(Method(clusterer=clusterer)) == 0) == (clusterer in WITHOUT_PAIRS)


# ---- which of the two ----


def test_without_a_limit_two_gigabytes_of_bags_are_held() -> None:
    most = 2 * GB // need(1).bag
    assert not must_stream(need(most), None, all_pairs=False)
    assert must_stream(need(most + 1), None, all_pairs=False)
    assert not must_stream(need(most - 5, 5), None, all_pairs=False)
    assert must_stream(need(most - 5, 6), None, all_pairs=False)
    # Whoever asked for all pairs gets them.
    assert not must_stream(need(100 * most), None, all_pairs=True)


@pytest.mark.parametrize("n_normals", [0, 3000])
def test_a_limit_decides_where_there_is_one(n_normals: int) -> None:
    large = need(20_000, n_normals)
    assert large.streamed < large.in_memory
    for all_pairs in (False, True):
        assert not must_stream(large, large.in_memory, all_pairs=all_pairs)
    assert must_stream(large, large.in_memory - 1, all_pairs=False)
    assert must_stream(large, large.streamed, all_pairs=False)
    with pytest.raises(OptionError):
        must_stream(large, large.streamed - 1, all_pairs=False)
    # What would be streamed without a limit is held where the limit allows it.
    assert must_stream(large, None, all_pairs=False)


def test_all_pairs_cannot_be_streamed() -> None:
    assert round(need(20_000).in_memory / GB, 2) == 16.58
    told = (
        "max_memory must be at least 16.6 GB to compare 20,000 images with each other. "
        "Got 4.0 GB. Allow more, or compare with 128 peers, which works in batches."
    )
    with pytest.raises(OptionError, match=f"^{re.escape(told)}$"):
        must_stream(need(20_000), 4 * GB, all_pairs=True)


@pytest.mark.parametrize(("n_images", "limit"), [(100, 100 * 2**20), (20_000, 500 * 2**20)])
def test_peers_are_not_advised_where_they_would_not_do(n_images: int, limit: int) -> None:
    with pytest.raises(
        OptionError, match=r"^max_memory must be .* with each other\. Got \d+ MB\.$"
    ):
        must_stream(need(n_images), limit, all_pairs=True)


@pytest.mark.parametrize(
    ("method", "held"),
    [
        (Method(weights="masks", pooling="average"), "weights from masks"),
        (Method(weights="heat-maps"), "weights from heat maps"),
        (Method(distance="min-min"), "the distance 'min-min'"),
    ],
)
def test_what_needs_all_images_at_once_is_said(method: Method, held: str) -> None:
    """Peers would not help: these are not batched."""
    some = replace(need(2000), held=method.held_for, pair=pair_bytes(method))
    size = math.ceil(10 * some.in_memory / GB) / 10
    told = (
        f"max_memory must be at least {size:.1f} GB for 2,000 images, all held at once for {held}. "
        "Got 1.0 GB. Allow more, or sort fewer images at a time."
    )
    with pytest.raises(OptionError, match=f"^{re.escape(told)}$"):
        must_stream(some, GB, all_pairs=True)


def test_wards_method_is_advised_where_pairs_are_too_many() -> None:
    many = replace(need(10_000), pair=pair_bytes(Method(clusterer="average")))
    with pytest.raises(OptionError, match=r", or take the clusterer 'ward', which holds no dist"):
        must_stream(many, 2 * GB, all_pairs=False)
    assert must_stream(replace(many, pair=0), 2 * GB, all_pairs=False)


def test_fewer_images_are_not_advised_where_they_would_not_do() -> None:
    with pytest.raises(
        OptionError, match=r"^max_memory must be at least [0-9.]+ GB .* 1,000 bytes\.$"
    ):
        must_stream(need(20_000), 1000, all_pairs=False)


def test_too_little_for_either_says_what_would_do() -> None:
    assert round(need(20_000).streamed / GB, 2) == 1.11
    told = (
        "max_memory must be at least 1.2 GB for 20,000 images, even in batches. Got 1.0 GB. "
        "Allow more, or sort fewer images at a time."
    )
    with pytest.raises(OptionError, match=f"^{re.escape(told)}$"):
        must_stream(need(20_000), GB, all_pairs=False)


@pytest.mark.parametrize("n_images", [50, 3935, 5489, 20_000, 98_000, 100_000])
def test_what_would_do_does(n_images: int) -> None:
    with pytest.raises(OptionError, match="even in batches") as told:
        must_stream(need(n_images), 2**20, all_pairs=False)
    allowed = re.search(r"at least ([0-9.]+ GB)", str(told.value))
    assert allowed is not None
    must_stream(need(n_images), parse_size(allowed[1]), all_pairs=False)

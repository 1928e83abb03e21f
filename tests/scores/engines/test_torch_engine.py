"""torch's plain products, where torch is installed: on the CPU, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flawsort.core.errors import OptionError
from flawsort.scores.engines import CpuEngine, choose_engine
from flawsort.scores.peer_statistics import (
    Combined,
    DirectedMinima,
    MaxOverPeers,
    MeanOverNearestPeers,
    MeanOverPeers,
    MinOverPeers,
)
from helpers.bags import Array, unit_vectors
from helpers.engine_checks import (
    Told,
    check_bank,
    check_duplicates,
    check_expected,
    check_means,
    check_peers,
    check_references,
    check_statistics,
    check_ties,
    some_bags,
)

# Squared distances in single precision; see test_nearest.py.
SINGLES = 6e-6
# Half of a squared distance, at most 2, is rounded to halves on the way out: to 2**-11 of it.
HALVES = 2e-3
# Operands and results rounded to eight bits: to 2**-9 each, and to 2**-8 of half of what is 4.
BFLOATS = 10 * 2**-9


# ---- statistics that are told of many pairs at once ----


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


def make_statistics(n: int, n_patches: int, valid: Array | None) -> list[Any]:
    return [
        MeanOverPeers(n, n_patches),
        MaxOverPeers(n, n_patches),
        MinOverPeers(n, n_patches),
        MeanOverNearestPeers(n, n_patches, 1),
        MeanOverNearestPeers(n, n_patches, 3),
        MeanOverNearestPeers(n, n_patches, 50),
        DirectedMinima(n),
        DirectedMinima(n, valid),
    ]


@pytest.mark.parametrize(
    ("n", "peers"),
    [
        pytest.param(5, [0, 1, 2, 3, 4], id="all"),
        pytest.param(5, [1, 3], id="a sample"),
        pytest.param(4, [0, 2, 4, 5, 6], id="extra ones"),
        pytest.param(3, [3, 4], id="extra ones only"),
        pytest.param(4, [2], id="one"),
        pytest.param(1, [0], id="nobody but oneself"),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_many_pairs_are_as_one_after_the_other(
    torch: Any, n: int, peers: list[int], together: bool
) -> None:
    rng = np.random.default_rng(n)
    n_patches = 7
    # Values that half precision holds exactly, zeros and ties among them.
    distances = (rng.integers(0, 64, (n, len(peers), n_patches)) / 32).astype(np.float32)
    own = np.arange(n)[:, None] == np.array(peers)
    distances[own] = 1.5  # as an engine may leave it, and nobody may use it
    valid = rng.random((n, n_patches)) < 0.5
    valid[:, 2] = True
    one_by_one, at_once = (make_statistics(n, n_patches, valid) for _ in range(2))
    for image, at in np.argwhere(~own):
        for statistic in one_by_one:
            statistic.add(int(image), peers[at], distances[image, at])
    told = [Combined(at_once)] if together else at_once
    for images in (np.arange(0, n, 2), np.arange(1, n, 2)):
        if len(images):
            tensors = torch.from_numpy(distances[images]), torch.from_numpy(own[images])
            before = tensors[0].clone()
            for statistic in told:
                statistic.add_many(images, np.array(peers), *tensors)
            assert torch.equal(tensors[0], before)  # the next one needs them too
    for expected, found in zip(one_by_one, at_once, strict=True):
        assert found.result().dtype == np.float32
        np.testing.assert_allclose(found.result(), expected.result(), rtol=1e-6)
    for expected, found in zip(one_by_one[-2:], at_once[-2:], strict=True):
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6)
        np.testing.assert_array_equal(found.smallest, expected.smallest)
        np.testing.assert_array_equal(found.largest, expected.largest)
    np.testing.assert_array_equal(Combined(at_once).result(), at_once[0].result())


# ---- torch, without fused kernels ----


def on_torch(arithmetic: Any = "float32", **pieces: int) -> Any:
    """pieces: the sizes of some, if they are not the usual ones."""
    pytest.importorskip("torch")
    from flawsort.scores.engines.torch_engine import Pieces, TorchEngine

    return TorchEngine("cpu", arithmetic, fused=False, pieces=Pieces(**pieces))


ARITHMETIC = [("float32", SINGLES), ("float16", HALVES), ("bfloat16", BFLOATS)]
SHAPES = [(5, 13, 7), (3, 130, 40), (4, 1, 3), (2, 6, 1)]


@pytest.mark.parametrize(("arithmetic", "squared"), ARITHMETIC)
@pytest.mark.parametrize("kind", ["random", "clumped", "opposed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_torch_compares_peers(
    arithmetic: str, squared: float, kind: str, shape: tuple[int, int, int]
) -> None:
    engine = on_torch(arithmetic)
    patches = some_bags(kind, *shape, seed=1)
    check_peers(engine, patches, squared=squared)
    check_peers(engine, patches, [1], squared=squared)
    extra = some_bags(kind, 2, *shape[1:], seed=2)
    check_peers(engine, patches, [1, 0], extra=extra, squared=squared)
    check_peers(engine, patches[:1], extra=extra, squared=squared)
    check_references(engine, patches, extra, squared=squared)
    own = [-1, *range(len(patches) - 1)]
    check_references(engine, patches, patches[1:], own, squared=squared)
    check_bank(engine, patches[0], patches[1:].reshape(-1, shape[2]), squared=squared)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(
    "similarities", [4 * 13 * 13 * 2, 4 * 4 * 2], ids=["two bags", "two queries"]
)
def test_torch_in_small_pieces(dtype: Any, similarities: int) -> None:
    """All that is cut into pieces, cut into small ones."""
    engine = on_torch(distances=4 * 3 * 13 * 2, similarities=similarities, queries=5, bank=4)
    patches = some_bags("random", 7, 13, 7, seed=1, dtype=dtype)
    check_peers(engine, patches, squared=SINGLES)
    check_peers(engine, patches, [2, 3], extra=patches[::3], squared=SINGLES)
    check_references(engine, patches, patches[:3], squared=SINGLES)
    check_statistics(engine, patches, list(range(7)), atol=1e-3)
    check_bank(engine, patches[0], patches[1], squared=SINGLES)
    check_ties(engine, 30)
    check_expected(engine, dtype)
    check_means(engine, 6, 13, masked=True)


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("peers", [list(range(6)), [0, 2, 3, 5]])
def test_torch_tells_statistics_of_many_pairs(peers: list[int], extra: bool) -> None:
    patches = some_bags("random", 6, 13, 7, seed=1)
    further = some_bags("random", 2, 13, 7, seed=2) if extra else None
    check_statistics(on_torch(), patches, peers, extra=further, atol=1e-3)


def test_torch_does_the_rest() -> None:
    engine = on_torch()
    check_bank(engine, *unit_vectors(2, 90, 6, seed=1), squared=SINGLES)
    check_bank(engine, *unit_vectors(2, 1, 1), squared=SINGLES)
    check_ties(engine, 300)
    for arithmetic in ("float32", "bfloat16"):  # these two are in float32 always
        for dtype in (np.float16, np.float32):
            check_expected(on_torch(arithmetic), dtype)
        for n, n_patches in ((5, 9), (2, 1), (1, 4)):
            for masked in (False, True):
                check_means(on_torch(arithmetic), n, n_patches, masked=masked)


@pytest.mark.parametrize("arithmetic", [arithmetic for arithmetic, _ in ARITHMETIC])
def test_duplicates_are_at_no_distance_in_torch(arithmetic: Any) -> None:
    check_duplicates(on_torch(arithmetic))


def test_torch_gives_what_the_cpu_engine_gives() -> None:
    patches = some_bags("clumped", 6, 30, 8)
    results = []
    for engine in (CpuEngine(), on_torch()):
        told = Told()
        engine.fold_peers(patches, np.arange(6), told, extra=patches[:2])
        results.append(told.pairs)
    assert results[0].keys() == results[1].keys()
    for key, one in results[0].items():
        np.testing.assert_allclose(results[1][key] ** 2, one**2, rtol=0, atol=SINGLES)


def test_torch_says_what_it_is_and_affords() -> None:
    engine = on_torch()
    assert engine.name == "torch on the CPU, float32"
    assert engine.for_work(1e30) is engine
    assert choose_engine("cpu", "bfloat16").name == "torch on the CPU, bfloat16"
    from flawsort.scores.engines.torch_engine import TorchEngine

    gpu = TorchEngine("cuda", "float16", fused=True)  # nothing is asked of it yet
    plain = TorchEngine("cuda", "float16", fused=False)
    assert gpu.exact_flop > plain.exact_flop > engine.exact_flop == CpuEngine().exact_flop


# ---- memory that ends ----


@pytest.mark.parametrize(
    ("total", "at_once", "fits", "expected"),
    [
        (10, 4, 10, [(0, 4), (4, 8), (8, 10)]),
        (10, 8, 3, [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]),
        (7, 100, 3, [(0, 3), (3, 6), (6, 7)]),
        (3, 2, 1, [(0, 1), (1, 2), (2, 3)]),
        (0, 2, 1, []),
    ],
)
def test_work_is_halved_until_it_fits(
    torch: Any, total: int, at_once: int, fits: int, expected: list[tuple[int, int]]
) -> None:
    done: list[tuple[int, int]] = []

    def work(start: int, stop: int) -> str:
        if stop - start > fits:
            raise torch.OutOfMemoryError("too much")
        done.append((start, stop))
        return f"{start} to {stop}"

    pieces = list(on_torch()._halving(total, at_once, work))
    assert pieces == [(start, stop, f"{start} to {stop}") for start, stop in expected]
    assert done == expected  # each of them once


def test_the_smallest_piece_does_not_fit(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = on_torch()
    monkeypatch.setattr(engine, "_memory", lambda: "0.2 of 8.0 GB free")

    def work(start: int, stop: int) -> None:
        if stop > 3:
            raise torch.OutOfMemoryError("too much")

    pieces = engine._halving(8, 8, work)
    with pytest.raises(OptionError) as error:
        list(pieces)
    assert str(error.value) == (
        "The GPU's memory (0.2 of 8.0 GB free) does not hold the smallest piece of the work. Free "
        "some of it, compare with fewer peers, or use the CPU."
    )


def test_a_fold_goes_on_in_smaller_pieces(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = on_torch()
    patches = some_bags("random", 7, 5, 4)
    compare = type(engine)._distances_to_bags

    def limited(self: Any, bags: Any, *others: Any) -> Any:
        if len(bags) > 2:
            raise torch.OutOfMemoryError("too much")
        return compare(self, bags, *others)

    monkeypatch.setattr(type(engine), "_distances_to_bags", limited)
    check_peers(engine, patches, squared=SINGLES)
    check_statistics(engine, patches, [0, 1, 4, 6], atol=1e-3)


def test_patches_that_do_not_fit(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = on_torch()

    def full(array: Array) -> None:
        raise torch.OutOfMemoryError("too much")

    monkeypatch.setattr(engine, "_memory", lambda: "0.2 of 8.0 GB free")
    monkeypatch.setattr(torch, "from_numpy", full)
    patches = np.zeros((3, 1024, 512), np.float16)  # 3 MB
    with pytest.raises(OptionError) as error:
        engine.fold_references(patches, patches, MeanOverPeers(3, 1024))
    assert str(error.value) == (
        "The GPU's memory (0.2 of 8.0 GB free) does not hold the patches to compare with. Free "
        "some of it, compare with fewer peers, or use the CPU."
    )


@pytest.mark.parametrize("arithmetic", ["bfloat16", "float32"])
def test_the_same_in_single_precision(arithmetic: Any) -> None:
    one = on_torch(arithmetic)
    single = one.in_single_precision()
    assert single.single_precision
    assert single.name == "torch on the CPU, float32"
    assert (single is one) == (arithmetic == "float32")

"""Eight bits, the engine on the CPU, and which engine is chosen. None of it needs torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from flawsort.backbones import DEFAULT_BACKBONE, load_backbone
from flawsort.core.devices import Cuda
from flawsort.core.errors import OptionError
from flawsort.core.records import Bags
from flawsort.embeddings.weights import soft_weights
from flawsort.fitting.source import FileSource
from flawsort.images.find import find_images
from flawsort.images.view import View
from flawsort.scores import engines
from flawsort.scores.engines import CpuEngine, CpuLimits, choose_engine, cpu, int8
from flawsort.scores.engines.int8 import Int8
from flawsort.scores.nearest import fold_peers
from flawsort.scores.peer_statistics import MeanOverPeers
from flawsort.scores.reference import compare_with_peers
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
from helpers.oracles import naive_nearest
from helpers.plates import SIDE, run_code, write_plates

# Squared distances in single precision; see test_nearest.py.
SINGLES = 6e-6
# Distances in eight bits: the worst, and their root mean square. In fewer than 40 and 168 numbers
# the errors average out less, and so they do where all patches are alike and rounded alike.
INT8_WORST, INT8_WORST_SMALL = 0.02, 0.04
INT8_RMS, INT8_RMS_ALIKE, INT8_RMS_SMALL = 0.003, 0.004, 0.015
DIMS = [1, 2, 3, 7, 20, 21, 40, 168, 384]


# ---- eight bits ----


def int8_errors(first: Array, second: Array) -> Array:
    """Of the distances of all patches of two bags, both ways."""
    product = Int8(first.shape[1])
    there, back = product.compare(
        product.operands(first[None])[0], product.operands(second[None])[0]
    )
    assert there.dtype == back.dtype == np.float32
    return np.concatenate(
        [there - naive_nearest(first, second)[0], back - naive_nearest(second, first)[0]]
    )


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("kind", ["random", "clumped", "opposed"])
def test_eight_bits_are_close(kind: str, dim: int) -> None:
    first = some_bags(kind, 2, 61, dim, seed=1, dtype=np.float32)[0]
    second = some_bags(kind, 2, 83, dim, seed=2, dtype=np.float32)[1]
    errors = int8_errors(first, second)
    assert errors.shape == (61 + 83,)
    assert np.abs(errors).max() < (INT8_WORST if dim >= 40 else INT8_WORST_SMALL)
    rms = INT8_RMS if kind == "random" else INT8_RMS_ALIKE
    assert np.sqrt((errors**2).mean()) < (rms if dim >= 168 else INT8_RMS_SMALL)


def test_what_rounding_adds_is_taken_off_again() -> None:
    # At a distance of 0.1 it would be 0.004, and its root mean square is a third of that.
    first = unit_vectors(400, 168, seed=1)
    second = first + 0.1 * unit_vectors(400, 168, seed=2)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    assert abs(int8_errors(first, second).mean()) < 5e-4


@pytest.mark.parametrize("length", [1e-4, 0.003, 0.01, 0.03])
def test_patches_that_are_all_but_equal_in_eight_bits(length: float) -> None:
    # What rounding adds is less where both are rounded alike, and more than it is taken off.
    first = unit_vectors(100, 168, seed=1)
    second = first + length * unit_vectors(100, 168, seed=2)
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    errors = int8_errors(first, second)
    assert np.abs(errors).max() < INT8_WORST


@pytest.mark.parametrize("dim", [3, 20, 21, 168])
def test_numbers_are_rounded_to_the_nearest_step(dim: int) -> None:
    bags = unit_vectors(2, 40, dim, seed=3)
    operands = Int8(dim).operands(bags)
    steps = 63 * max(1, np.sqrt(dim) / 4.5)
    turned = (bags @ int8._rotation(dim)).astype(np.float64) * steps
    assert np.abs(turned).max() < 63.5
    np.testing.assert_allclose(operands.rows[..., :dim] - 64.0, turned, rtol=0, atol=0.5001)
    np.testing.assert_array_equal(
        operands.columns[:, :dim].transpose(0, 2, 1), operands.rows[..., :dim] - 64.0
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_halves_and_singles_are_rounded_alike(dtype: Any) -> None:
    bags = unit_vectors(2, 30, 48, seed=4, dtype=dtype)
    errors = int8_errors(*bags)
    assert np.abs(errors).max() < INT8_WORST


@pytest.mark.parametrize("dim", DIMS)
def test_equal_patches_are_at_no_distance_in_eight_bits(dim: int) -> None:
    bag = unit_vectors(50, dim, seed=5)
    product = Int8(dim)
    operand = product.operands(bag[None])[0]
    there, back = product.compare(operand, operand)
    # The halves of squared lengths are rounded: two steps squared, of which dim / 6 come off.
    atol = 0 if dim >= 12 else np.sqrt(2 - dim / 6) / int8.LEVELS + 1e-6
    np.testing.assert_allclose(there, 0, rtol=0, atol=atol)
    np.testing.assert_array_equal(there, back)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 9), (9, 1), (8, 5), (37, 53), (16, 16)])
def test_a_product_is_made_some_rows_at_a_time(sizes: tuple[int, int]) -> None:
    first, second = unit_vectors(sizes[0], 24, seed=1), unit_vectors(sizes[1], 24, seed=2)
    product = Int8(24)
    operands = product.operands(first[None])[0], product.operands(second[None])[0]
    at_once = product.compare(*operands)
    swapped = product.compare(operands[1], operands[0])
    in_pieces = Int8(24, rows=8).compare(*operands)
    assert [len(one) for one in in_pieces] == list(sizes)
    for one, two, three in zip(at_once, in_pieces, swapped[::-1], strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)  # a pair is the same from both sides


@pytest.mark.parametrize("dim", [5, 21, 168])
def test_numbers_fit_two_products_in_sixteen_bits(dim: int) -> None:
    """Where two products are added in 16 bits, unsigned times signed must stay below 2**14."""
    axes = np.eye(dim, dtype=np.float32)
    turned_to_axes = int8._rotation(dim).T  # the rotation leaves all their length in one number
    bags = np.stack([axes, turned_to_axes, -turned_to_axes, unit_vectors(dim, dim), 3 * axes])
    operands = Int8(dim).operands(bags)
    rows, columns = operands[3]
    assert (rows.shape, columns.shape) == ((dim, dim + 4), (dim + 4, dim))
    assert (rows.dtype, columns.dtype) == (np.uint8, np.int8)
    assert operands.rows.max() <= 127
    assert operands.rows.min() >= 1
    assert np.abs(operands.columns.astype(int)).max() <= 63


@pytest.mark.parametrize("dim", [1, 2, 20, 21, 168])
def test_patches_along_one_axis(dim: int) -> None:
    axes = np.eye(dim, dtype=np.float32)
    errors = int8_errors(axes, np.concatenate([axes, -axes])[dim // 2 : dim // 2 + dim])
    assert np.abs(errors).max() < INT8_WORST_SMALL


def test_digits_make_up_the_number() -> None:
    values = np.arange(-5000, 5000, 0.25)
    high, low = int8._digits(values)
    np.testing.assert_array_equal(63 * high + low, np.clip(np.rint(values), -4000, 4000))
    for digit in (high, low):
        np.testing.assert_array_equal(digit, np.rint(digit))
        assert np.abs(digit).max() <= 63


@pytest.mark.parametrize("dim", [1, 2, 40])
def test_the_rotation_is_one_and_always_the_same(dim: int) -> None:
    rotation = int8._rotation(dim)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(dim), atol=1e-6)
    np.testing.assert_array_equal(int8._rotation.__wrapped__(dim), rotation)


def test_eight_bits_are_the_same_each_time_and_leave_the_patches_alone() -> None:
    bags = unit_vectors(5, 30, 12, seed=6)
    before = bags.copy()
    one, two = Int8(12).operands(bags), Int8(12).operands(bags)
    np.testing.assert_array_equal(bags, before)
    np.testing.assert_array_equal(one.rows, two.rows)
    np.testing.assert_array_equal(one.columns, two.columns)
    alone = Int8(12).operands(bags[3:4])[0]
    np.testing.assert_array_equal(one[3][0], alone[0])
    np.testing.assert_array_equal(one[3][1], alone[1])
    assert len(Int8(12).operands(bags[:0]).rows) == 0


def test_bags_may_be_multiplied_in_eight_bits_by_the_loop_itself() -> None:
    patches = unit_vectors(5, 9, 16, seed=2)
    found = fold_peers(patches, np.arange(5), MeanOverPeers(5, 9), bags=Int8(16))
    exact = fold_peers(patches, np.arange(5), MeanOverPeers(5, 9))
    np.testing.assert_allclose(found, exact, rtol=0, atol=INT8_WORST)


# ---- the engine on the CPU ----


@pytest.mark.parametrize(("n", "peers"), [(5, None), (6, [1, 4]), (2, None), (1, None), (3, [2])])
def test_the_cpu_engine_compares_peers(n: int, peers: list[int] | None) -> None:
    patches = some_bags("random", n, 13, 7, seed=n)
    extra = some_bags("random", 2, 13, 7, seed=50)
    for further in (None, extra):
        check_peers(CpuEngine(), patches, peers, extra=further, squared=SINGLES)


def test_the_cpu_engine_has_all_methods() -> None:
    engine = CpuEngine()
    patches = some_bags("clumped", 4, 11, 6)
    check_references(engine, patches, patches[1:3], [-1, 0, 1, -1], squared=SINGLES)
    check_references(engine, patches, patches[::-1].copy(), squared=SINGLES)
    check_statistics(engine, some_bags("random", 5, 11, 6), [0, 1, 3, 4], atol=1e-3)
    check_bank(engine, patches[0], patches[1], squared=SINGLES)
    check_ties(engine, 300)
    check_duplicates(engine)
    check_expected(engine, np.float16)
    check_means(engine, 4, 7, masked=True)


@pytest.mark.parametrize("arithmetic", ["int8", "float32", "auto"])
def test_eight_bits_are_for_the_comparison_of_bags(arithmetic: Any) -> None:
    patches = unit_vectors(6, 20, 32, seed=1)
    others = unit_vectors(3, 20, 32, seed=2)
    engine = CpuEngine(arithmetic)
    for run in (
        lambda one, told: one.fold_peers(patches, np.array([0, 2, 5]), told, extra=others),
        lambda one, told: one.fold_references(
            patches, patches[3:], told, self_rows=np.arange(6) - 3
        ),
    ):
        found, exact = Told(), Told()
        run(engine, found)
        run(CpuEngine(), exact)
        assert found.pairs.keys() == exact.pairs.keys()
        errors = np.array([found.pairs[key] - exact.pairs[key] for key in exact.pairs])
        assert np.abs(errors).max() < INT8_WORST
        assert bool(np.abs(errors).max() > 1e-4) is (arithmetic == "int8")
    # The rest is exact in any arithmetic.
    check_bank(engine, patches[0], others[0], squared=SINGLES)
    check_expected(engine, np.float32)
    check_means(engine, 3, 5, masked=False)


def test_duplicates_in_eight_bits_are_at_no_distance() -> None:
    check_duplicates(CpuEngine("int8"))


@pytest.fixture(scope="module")
def real_bags(tmp_path_factory: pytest.TempPathFactory) -> Bags:
    """Six plates as the embedded network sees them, and each of them once more."""
    folder = tmp_path_factory.mktemp("real") / "plates"
    write_plates(folder, ("dent", "dent", "streak", "streak", "good", "good"))
    backbone = load_backbone(DEFAULT_BACKBONE, image_size=SIDE)
    bags = FileSource(find_images(folder), (backbone,), View(tiles=(1, 1))).hold().bags
    assert bags.patches.dtype == np.float16
    lengths = np.linalg.norm(bags.patches.astype(np.float64), axis=2)
    assert np.abs(lengths - 1).max() > 1e-6  # rounded, as patches are on the disk
    return bags.take([*range(6), *range(6)])


@pytest.mark.parametrize("arithmetic", ["float32", "int8", "bfloat16"])
def test_duplicates_of_real_images_weigh_the_same_everywhere(
    real_bags: Bags, arithmetic: str
) -> None:
    if arithmetic == "bfloat16":
        pytest.importorskip("torch")
    engine = choose_engine("cpu", arithmetic)
    found, _ = compare_with_peers(real_bags, n_peers="all", over="min", engine=engine)
    np.testing.assert_array_equal(found.scores, 0)
    weights = soft_weights(found.scores, 1e-3)
    assert np.unique(weights).tolist() == [np.float32(1 / real_bags.n_patches)]
    # The patches of an image are apart from those of the others: the zeros are of its copy.
    alone, _ = compare_with_peers(real_bags.take(range(6)), over="min", engine=engine)
    assert (alone.scores > 0).mean() > 0.9
    queries = real_bags.patches[0]
    bank = real_bags.patches[6:].reshape(-1, real_bags.dim)
    np.testing.assert_array_equal(engine.nearest_in_bank(queries, bank).distances, 0)


def test_the_cpu_engine_says_what_it_is() -> None:
    assert CpuEngine().name == "NumPy on the CPU, float32"
    assert CpuEngine("float32").name == "NumPy on the CPU, float32"
    assert CpuEngine("int8").name == "onnxruntime on the CPU, int8"


def test_large_work_is_done_in_eight_bits() -> None:
    small, large = cpu.SINGLES_FLOP, 1.01 * cpu.SINGLES_FLOP
    assert "float32" in CpuEngine("auto").for_work(small).name
    assert "int8" in CpuEngine("auto").for_work(large).name
    for fixed in (CpuEngine("float32"), CpuEngine("int8")):
        assert fixed.for_work(small) is fixed
        assert fixed.for_work(large) is fixed
    more = CpuEngine("auto", limits=CpuLimits(singles_flop=2 * large))
    assert "float32" in more.for_work(large).name


def test_what_the_cpu_affords() -> None:
    assert CpuEngine("auto").exact_flop == cpu.EXACT_FLOP
    limits = CpuLimits(exact_flop=12.0)
    for engine in (CpuEngine("auto", limits=limits), choose_engine("cpu", limits=limits)):
        assert engine.exact_flop == 12
        assert engine.for_work(1.0).exact_flop == engine.for_work(1e30).exact_flop == 12


# ---- which one ----

Calls = list[tuple[str, str, bool]]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Calls]:
    """gpus(n): a machine with so many, and what is asked of torch there."""

    def pretend(n: int) -> Calls:
        calls: Calls = []

        def on_torch(device: str, arithmetic: str, *, fused: bool) -> CpuEngine:
            calls.append((device, arithmetic, fused))
            return CpuEngine()

        monkeypatch.setattr(Cuda, "count", lambda self: n)
        monkeypatch.setattr(engines, "_on_torch", on_torch)
        return calls

    return pretend


def has(monkeypatch: pytest.MonkeyPatch, name: str, there: bool) -> ModuleType:
    """An importable module of that name, empty, or none at all."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, name, module if there else None)
    return module


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("exact", [False, True])
def test_without_a_gpu_it_is_the_cpu(
    gpus: Callable[[int], Calls], device: str | None, exact: bool
) -> None:
    calls = gpus(0)
    engine = choose_engine(device, exact=exact)
    assert isinstance(engine, CpuEngine)
    assert "int8" in choose_engine(device, "int8", exact=exact).name
    assert "float32" in choose_engine(device, "float32", exact=exact).name
    for flop in (1.0, 1e15):
        eight_bits = "int8" in engine.for_work(flop).name
        assert eight_bits is (flop > 1 and not exact)
        assert "int8" in choose_engine(device, "int8").for_work(flop).name
        assert "float32" in choose_engine(device, "float32").for_work(flop).name
    assert calls == []
    choose_engine(device, "bfloat16")
    assert calls == [("cpu", "bfloat16", False)]


def test_nobody_looks_for_a_gpu_to_use_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "count", lambda self: pytest.fail("it would import torch"))
    assert isinstance(choose_engine("cpu"), CpuEngine)


@pytest.mark.parametrize("triton", [False, True])
@pytest.mark.parametrize(
    ("device", "arithmetic", "expected"),
    [
        (None, None, ("cuda", "float16")),
        ("cuda", None, ("cuda", "float16")),
        ("cuda:1", None, ("cuda:1", "float16")),
        (None, "tf32", ("cuda", "tf32")),
        ("cuda:0", "bfloat16", ("cuda:0", "bfloat16")),
        ("cuda", "float32", ("cuda", "float32")),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_a_gpu_is_taken_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
    gpus: Callable[[int], Calls],
    device: str | None,
    arithmetic: str | None,
    expected: tuple[str, str],
    triton: bool,
    exact: bool,
) -> None:
    calls = gpus(2)
    monkeypatch.setattr(engines, "_kernels_run", lambda device: triton)
    choose_engine(device, arithmetic, exact=exact)
    name, chosen = expected
    if exact and not triton and arithmetic is None:
        chosen = "float32"  # only the kernels add products of halves in single precision
    assert calls == [(name, chosen, triton)]
    assert isinstance(choose_engine("cpu"), CpuEngine)
    assert len(calls) == 1


@pytest.mark.parametrize("installed", [False, True])
def test_kernels_that_do_not_run_are_not_used(
    monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    has(monkeypatch, "triton", installed)
    run = engines._kernels_run.__wrapped__
    assert run("cuda:99") is False  # no such card, or no Triton, or no torch


@pytest.mark.parametrize("device", [None, "cuda", "cuda:0"])
def test_one_gpu_is_enough(gpus: Callable[[int], Calls], device: str | None) -> None:
    calls = gpus(1)
    choose_engine(device)
    assert [name for name, _, _ in calls] == [device or "cuda"]


@pytest.mark.parametrize("device", ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "0"])
def test_a_device_that_is_none(gpus: Callable[[int], Calls], device: str) -> None:
    gpus(1)
    with pytest.raises(OptionError) as error:
        choose_engine(device)
    assert str(error.value) == f"device must be cpu, cuda or cuda:N. Got '{device}'."


@pytest.mark.parametrize(
    ("device", "n_gpus", "arithmetic", "message"),
    [
        ("cpu", 1, "float16", "one of int8, float32, bfloat16 on cpu. Got 'float16'."),
        (None, 0, "tf32", "one of int8, float32, bfloat16 on cpu. Got 'tf32'."),
        ("cuda:1", 2, "int8", "one of float16, bfloat16, tf32, float32 on cuda. Got 'int8'."),
        (None, 1, "double", "one of float16, bfloat16, tf32, float32 on cuda. Got 'double'."),
    ],
)
def test_arithmetic_that_a_device_has_not(
    gpus: Callable[[int], Calls], device: str | None, n_gpus: int, arithmetic: str, message: str
) -> None:
    gpus(n_gpus)
    with pytest.raises(OptionError) as error:
        choose_engine(device, arithmetic)
    assert str(error.value) == f"arithmetic must be {message}"


@pytest.mark.parametrize("torch", [False, True])
@pytest.mark.parametrize(("device", "n_gpus"), [("cuda", 0), ("cuda:0", 0), ("cuda:9", 2)])
def test_a_gpu_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
    gpus: Callable[[int], Calls],
    device: str,
    n_gpus: int,
    torch: bool,
) -> None:
    calls = gpus(n_gpus)
    has(monkeypatch, "torch", torch)
    with pytest.raises(OptionError) as error:
        choose_engine(device)
    hint = "" if torch else " torch is not installed: pip install 'flawsort[torch]'."
    there = "no GPU" if n_gpus == 0 else f"{n_gpus} GPUs"
    assert str(error.value) == (
        f"device '{device}' is not there: {there} can be used here.{hint} Use cpu, or leave it out."
    )
    assert calls == []


def test_arithmetic_of_torch_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    has(monkeypatch, "torch", False)
    with pytest.raises(OptionError) as error:
        choose_engine("cpu", "bfloat16")
    assert str(error.value) == (
        "arithmetic 'bfloat16' on the CPU needs torch, which is not installed: "
        "pip install 'flawsort[torch]', or use int8 or float32."
    )


def test_torch_is_not_imported_to_find_no_gpu() -> None:
    code = """
import ctypes, sys
def missing(name):
    raise OSError(name)
ctypes.CDLL = missing
from flawsort.scores.engines import choose_engine
assert choose_engine().for_work(1).name == "NumPy on the CPU, float32"
assert choose_engine("cpu", "int8").name == "onnxruntime on the CPU, int8"
print([name for name in ("torch", "triton", "onnxruntime") if name in sys.modules])
"""
    answer = run_code(code)
    assert (answer.code, answer.out, answer.err) == (0, "[]\n", "")

"""Which devices there are, and which one a name stands for. None of it needs torch."""

from __future__ import annotations

import ctypes
import sys
from contextlib import nullcontext
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flawsort.core import devices
from flawsort.core.devices import ACCEPTED, GPUS, Cuda, Gpu, choose_device, gpu_of
from flawsort.core.errors import OptionError


def has(monkeypatch: pytest.MonkeyPatch, name: str, there: bool) -> ModuleType:
    """An importable module of that name, empty, or none at all."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, name, module if there else None)
    return module


class Other(Cuda):
    """A GPU of another kind, of which there is one."""

    kind = "other"

    def count(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("device", "n_gpus", "expected"),
    [
        (None, 0, "cpu"), (None, 2, "cuda"), ("cpu", 2, "cpu"), ("cuda", 1, "cuda"),
        ("cuda:0", 1, "cuda:0"), ("cuda:1", 2, "cuda:1"),
    ],
)  # fmt: skip
def test_the_device_of_a_name(
    monkeypatch: pytest.MonkeyPatch, device: str | None, n_gpus: int, expected: str
) -> None:
    monkeypatch.setattr(Cuda, "count", lambda self: n_gpus)
    assert choose_device(device) == expected
    gpu = gpu_of(expected)
    assert (gpu is None) == (expected == "cpu")


def test_devices_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "count", lambda self: 2)
    has(monkeypatch, "torch", True)
    assert ACCEPTED == "cpu, cuda or cuda:N"
    for device in ("", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "0", "cuda\n"):
        with pytest.raises(OptionError) as error:
            choose_device(device)
        assert str(error.value) == f"device must be cpu, cuda or cuda:N. Got '{device}'."
    with pytest.raises(OptionError, match=r"'cuda:2' is not there: 2 GPUs can be used here\. Use"):
        choose_device("cuda:2")


def test_another_kind_of_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    other: Gpu = Other()
    monkeypatch.setattr(Cuda, "count", lambda self: 0)
    monkeypatch.setitem(GPUS, "other", other)
    assert choose_device(None) == "other"  # the first of which there is one
    assert choose_device("other:0") == "other:0"
    assert gpu_of("other:0") is other
    with pytest.raises(OptionError, match=r"'other:1' is not there: 1 GPU can be used here\."):
        choose_device("other:1")


def test_nobody_looks_for_a_gpu_to_use_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "count", lambda self: pytest.fail("it would import torch"))
    assert choose_device("cpu") == "cpu"


@pytest.mark.parametrize("driver", [False, True])
@pytest.mark.parametrize("available", [False, True])
@pytest.mark.parametrize("there", [False, True])
def test_gpus_are_counted_by_torch(
    monkeypatch: pytest.MonkeyPatch, there: bool, available: bool, driver: bool
) -> None:
    module = has(monkeypatch, "torch", there)
    monkeypatch.setattr(
        module,
        "cuda",
        SimpleNamespace(is_available=lambda: available, device_count=lambda: 3),
        raising=False,
    )
    monkeypatch.setattr(devices, "_cuda_driver", lambda: driver)
    assert Cuda().count() == (3 if there and available and driver else 0)


class FakeDriver:
    def __init__(self, started: int, counted: int, n_gpus: int) -> None:
        self._answers = started, counted, n_gpus

    def cuInit(self, flags: int) -> int:  # noqa: N802
        assert flags == 0
        return self._answers[0]

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self._answers[2]
        return self._answers[1]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [((0, 0, 1), True), ((0, 0, 8), True), ((0, 0, 0), False), ((100, 0, 1), False),
     ((0, 3, 1), False)],
)  # fmt: skip
def test_the_driver_knows_whether_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[int, int, int], expected: bool
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(*answers))
    assert devices._cuda_driver() is expected


@pytest.mark.parametrize(
    ("platform", "library"), [("linux", "libcuda.so.1"), ("win32", "nvcuda.dll")]
)
def test_without_a_driver_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, platform: str, library: str
) -> None:
    asked = []

    def missing(name: str) -> None:
        asked.append(name)
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert devices._cuda_driver() is False
    assert asked == [library]


class FakeCuda:
    """torch.cuda of a machine with two GPUs; `seen` are the devices that were asked about."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def get_device_name(self, device: Any) -> str:
        self.seen.append(device)
        return "H200"

    def mem_get_info(self, device: Any) -> tuple[int, int]:
        self.seen.append(device)
        return 3, 8

    def get_device_properties(self, device: Any) -> SimpleNamespace:
        self.seen.append(device)
        return SimpleNamespace(multi_processor_count=132)

    def device(self, device: Any) -> nullcontext[None]:
        self.seen.append(device)
        return nullcontext()

    def is_bf16_supported(self, *, including_emulation: bool) -> bool:
        return not including_emulation

    def synchronize(self, device: Any) -> None:
        self.seen.append(device)

    def empty_cache(self) -> None:
        self.seen.append("emptied")


def test_what_cuda_says_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, gpu = FakeCuda(), gpu_of("cuda:1")
    monkeypatch.setattr(has(monkeypatch, "torch", True), "cuda", fake, raising=False)
    assert gpu is not None
    device: Any = object()
    assert gpu.model(device) == "H200"
    assert gpu.memory(device) == (3, 8)
    assert gpu.processors(device) == 132
    assert gpu.has_bfloat16(device) is True
    gpu.synchronize(device)
    gpu.free_cache()
    assert fake.seen == [device] * 5 + ["emptied"]

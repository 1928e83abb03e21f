"""The devices that compute: the CPU, and the GPUs that torch can use.

A `Gpu` holds everything that is specific to one kind of GPU. To support another kind, write a
subclass and add it to `GPUS` under the name that torch uses.
"""

from __future__ import annotations

import ctypes
import re
import sys
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from flawsort.core.errors import OptionError
from flawsort.core.text import either, pluralise

if TYPE_CHECKING:
    import torch

CPU = "cpu"


class Gpu(ABC):
    """One kind of GPU. All methods except `count` need torch, and take a torch device.

    kind: its name, as in "cuda" and "cuda:1". arithmetic: the number formats for products, the
    default first. has_triton: whether Triton supports it. exact_flop: the amount of work up to
    which a search is exact; it takes seconds. fused_flop: the same with Triton's kernels.
    """

    kind: ClassVar[str]
    arithmetic: ClassVar[tuple[str, ...]]
    exact_flop: ClassVar[float]
    fused_flop: ClassVar[float]
    has_triton: ClassVar[bool] = False

    @abstractmethod
    def count(self) -> int:
        """The number of usable GPUs; 0 if torch is not installed."""

    @abstractmethod
    def model(self, device: torch.device) -> str:
        """The manufacturer's name of the model."""

    @abstractmethod
    def memory(self, device: torch.device) -> tuple[int, int]:
        """Free and total memory in bytes."""

    @abstractmethod
    def processors(self, device: torch.device) -> int:
        """The number of multiprocessors, which is how many kernels run at once."""

    @abstractmethod
    def has_bfloat16(self, device: torch.device) -> bool:
        """Whether the hardware supports bfloat16."""

    @abstractmethod
    def synchronize(self, device: torch.device) -> None:
        """Wait until all work on the device is done."""

    @abstractmethod
    def free_cache(self) -> None:
        """Release the memory that torch has cached."""


class Cuda(Gpu):
    """NVIDIA GPUs."""

    kind = "cuda"
    arithmetic = ("float16", "bfloat16", "tf32", "float32")
    exact_flop = 1e15
    fused_flop = 5e15  # a large GPU does 5e14 per second
    has_triton = True

    def count(self) -> int:
        # torch takes seconds to import, so look for a driver first.
        if find_spec("torch") is None or not _cuda_driver():
            return 0
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def model(self, device: torch.device) -> str:
        import torch

        return str(torch.cuda.get_device_name(device))

    def memory(self, device: torch.device) -> tuple[int, int]:
        import torch

        free, total = torch.cuda.mem_get_info(device)
        return int(free), int(total)

    def processors(self, device: torch.device) -> int:
        import torch

        return int(torch.cuda.get_device_properties(device).multi_processor_count)

    def has_bfloat16(self, device: torch.device) -> bool:
        import torch

        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))

    def synchronize(self, device: torch.device) -> None:
        import torch

        torch.cuda.synchronize(device)

    def free_cache(self) -> None:
        import torch

        torch.cuda.empty_cache()


# By kind. The first kind found on a machine is the default.
GPUS: dict[str, Gpu] = {gpu.kind: gpu for gpu in (Cuda(),)}
# The accepted names, for messages and help.
ACCEPTED = either([CPU, *(name for kind in GPUS for name in (kind, f"{kind}:N"))])


def choose_device(device: str | None) -> str:
    """The name of a usable device. None chooses a GPU if there is one, else the CPU."""
    if device is None:
        return next((kind for kind, gpu in GPUS.items() if gpu.count()), CPU)
    if not re.fullmatch(rf"{CPU}|({'|'.join(GPUS)})(:[0-9]+)?", device):
        raise OptionError(f"must be {ACCEPTED}. Got '{device}'.", parameter="device")
    gpu = gpu_of(device)
    if gpu is not None and int(device.partition(":")[2] or 0) >= (count := gpu.count()):
        installed = find_spec("torch") is not None
        hint = "" if installed else " torch is not installed: pip install 'flawsort[torch]'."
        there = pluralise(count, "GPU") if count else "no GPU"
        raise OptionError(
            f"'{device}' is not there: {there} can be used here.{hint} Use cpu, or leave it out.",
            parameter="device",
        )
    return device


def torch_device(device: str | None) -> torch.device:
    """The torch device of that name; see `choose_device`."""
    import torch

    return torch.device(choose_device(device))


def gpu_of(device: str) -> Gpu | None:
    """The kind of GPU of a device; None for the CPU."""
    return GPUS.get(device.partition(":")[0])


def _cuda_driver() -> bool:
    """Whether the CUDA driver is installed and finds a GPU."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return False
    count = ctypes.c_int()
    known = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return bool(known and count.value > 0)

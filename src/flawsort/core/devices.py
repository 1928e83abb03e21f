"""The devices that compute: the CPU, and the GPUs that torch can use.

All that is particular to one kind of GPU is in a `Gpu`. For another kind, write a subclass and put
it into `GPUS`; torch calls it by the same name.
"""

from __future__ import annotations

import ctypes
import re
import sys
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from flawsort.core.errors import OptionError
from flawsort.core.text import either

if TYPE_CHECKING:
    import torch

CPU = "cpu"


class Gpu(ABC):
    """One kind of GPU. The methods but `count` need torch, and take one of its devices.

    kind: its name, as in "cuda" and "cuda:1". arithmetic: what products may be computed in, the
    default first. has_triton: whether Triton makes kernels for it. exact_flop: the work of an exact
    search that takes it seconds. fused_flop: the same in Triton's kernels.
    """

    kind: ClassVar[str]
    arithmetic: ClassVar[tuple[str, ...]]
    exact_flop: ClassVar[float]
    fused_flop: ClassVar[float]
    has_triton: ClassVar[bool] = False

    @abstractmethod
    def count(self) -> int:
        """How many can be used here; 0 also where torch is not installed."""

    @abstractmethod
    def model(self, device: torch.device) -> str:
        """What its maker calls it."""

    @abstractmethod
    def memory(self, device: torch.device) -> tuple[int, int]:
        """Bytes that are free, and that there are."""

    @abstractmethod
    def processors(self, device: torch.device) -> int:
        """How many kernels run at once."""

    @abstractmethod
    def has_bfloat16(self, device: torch.device) -> bool:
        """Whether it computes in bfloat16 itself."""

    @abstractmethod
    def synchronize(self, device: torch.device) -> None:
        """Wait for the work that was started."""

    @abstractmethod
    def free_cache(self) -> None:
        """Give back the memory that torch keeps for later."""


class Cuda(Gpu):
    """NVIDIA's."""

    kind = "cuda"
    arithmetic = ("float16", "bfloat16", "tf32", "float32")
    exact_flop = 1e15
    fused_flop = 5e15  # one of the larger kind does 5e14 a second
    has_triton = True

    def count(self) -> int:
        # torch takes seconds to import: only where there may be a GPU.
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


# By kind; of several on a machine the first is the default.
GPUS: dict[str, Gpu] = {one.kind: one for one in (Cuda(),)}
# What an option accepts, in words.
ACCEPTED = either([CPU, *(name for kind in GPUS for name in (kind, f"{kind}:N"))])


def choose_device(device: str | None) -> str:
    """The device of that name, checked; None for a GPU if there is one, else the CPU."""
    if device is None:
        return next((kind for kind, gpu in GPUS.items() if gpu.count()), CPU)
    if not re.fullmatch(rf"{CPU}|({'|'.join(GPUS)})(:[0-9]+)?", device):
        raise OptionError(f"must be {ACCEPTED}. Got '{device}'.", parameter="device")
    gpu = gpu_of(device)
    if gpu is not None and int(device.partition(":")[2] or 0) >= (count := gpu.count()):
        installed = find_spec("torch") is not None
        hint = "" if installed else " torch is not installed: pip install 'flawsort[torch]'."
        raise OptionError(
            f"'{device}' is not among the {count} GPUs that can be used here.{hint} Use cpu, or "
            "leave it out.",
            parameter="device",
        )
    return device


def torch_device(device: str | None) -> torch.device:
    """The same as torch has it."""
    import torch

    return torch.device(choose_device(device))


def gpu_of(device: str) -> Gpu | None:
    """The kind of GPU that a device is, None for the CPU."""
    return GPUS.get(device.partition(":")[0])


def _cuda_driver() -> bool:
    """Whether CUDA's driver is there and sees a GPU."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return False
    count = ctypes.c_int()
    known = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return bool(known and count.value > 0)

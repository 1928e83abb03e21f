"""Where patches are compared: on the CPU by NumPy or in eight bits, on a GPU by torch or Triton."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec

from flawsort.core.errors import OptionError
from flawsort.scores.engines.base import Engine
from flawsort.scores.engines.cpu import CpuEngine

__all__ = ["ARITHMETIC", "CpuEngine", "Engine", "choose_engine"]

# What each device can compute in, its default first.
ARITHMETIC = {
    "cpu": ("int8", "float32", "bfloat16"),
    "cuda": ("float16", "bfloat16", "tf32", "float32"),
}


def choose_engine(
    device: str | None = None, arithmetic: str | None = None, *, exact: bool = False
) -> Engine:
    """The engine for a device: None for a GPU if torch sees one, else the CPU.

    arithmetic: of the products, see ARITHMETIC; None for the fastest that is good enough for the
    size of the work, or, if exact, for one in which distances of float16 patches are right to the
    last digits of float32: float32 on the CPU, float16 (with sums in float32) on a GPU.
    """
    if device is not None and not re.fullmatch(r"cpu|cuda(:[0-9]+)?", device):
        raise OptionError(f"must be cpu, cuda or cuda:N. Got '{device}'.", parameter="device")
    n_gpus = 0 if device == "cpu" else _gpus()
    if device is None:
        device = "cuda" if n_gpus else "cpu"
    kind = device.partition(":")[0]
    if arithmetic is None and kind == "cpu":
        return CpuEngine("float32" if exact else "auto")
    if arithmetic is None:
        arithmetic = ARITHMETIC[kind][0]
    if arithmetic not in ARITHMETIC[kind]:
        raise OptionError(
            f"must be one of {', '.join(ARITHMETIC[kind])} on {kind}. Got '{arithmetic}'.",
            parameter="arithmetic",
        )
    if kind == "cuda":
        return _on_gpu(device, n_gpus, arithmetic)
    if arithmetic == "bfloat16":
        return _on_torch("cpu", arithmetic, fused=False)
    return CpuEngine("int8" if arithmetic == "int8" else "float32")


def _on_gpu(device: str, n_gpus: int, arithmetic: str) -> Engine:
    if int(device.partition(":")[2] or 0) >= n_gpus:
        torch = (
            "" if find_spec("torch") else " torch is not installed: pip install 'flawsort[torch]'."
        )
        raise OptionError(
            f"'{device}' is not among the {n_gpus} GPUs that can be used here.{torch} Use cpu, or "
            "leave it out.",
            parameter="device",
        )
    return _on_torch(device, arithmetic, fused=_kernels_run(device))


@cache
def _kernels_run(device: str) -> bool:
    """Whether Triton is there and its kernels run on this GPU: they need a compiler, and more
    shared memory than small cards have. Plain torch does the same without them."""
    if find_spec("triton") is None:
        return False
    try:
        import torch

        from flawsort.scores.engines.triton_kernels import bank_maxima, pair_maxima

        bags = torch.zeros((1, 256, 8), dtype=torch.float16, device=device)
        pair = torch.zeros((1, 2), dtype=torch.int32, device=device)
        pair_maxima(bags, bags, pair, both_ways=True, tf32=False)
        bank_maxima(bags[0], bags[0], n_processors=1, tf32=False)
        torch.cuda.synchronize(device)
    except Exception:  # whatever a compiler or a driver may raise
        return False
    return True


def _on_torch(device: str, arithmetic: str, *, fused: bool) -> Engine:
    if find_spec("torch") is None:
        raise OptionError(
            f"'{arithmetic}' on the CPU needs torch, which is not installed: "
            "pip install 'flawsort[torch]', or use int8 or float32.",
            parameter="arithmetic",
        )
    from flawsort.scores.engines.torch_engine import TorchEngine

    return TorchEngine(device, arithmetic, fused=fused)  # type: ignore[arg-type]  # checked above


def _gpus() -> int:
    """How many GPUs torch can use. It takes seconds to import: only where there may be some."""
    if find_spec("torch") is None or not _driver():
        return 0
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _driver() -> bool:
    """Whether CUDA's driver is there and sees a GPU."""
    import ctypes
    import sys

    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        return False
    count = ctypes.c_int()
    known = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return bool(known and count.value > 0)

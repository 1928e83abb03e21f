"""The engines that compare patches: on the CPU with NumPy or in int8, on a GPU with torch or
Triton."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from flawsort.core.devices import CPU, GPUS, choose_device, gpu_of
from flawsort.core.errors import OptionError
from flawsort.scores.engines.base import Engine
from flawsort.scores.engines.cpu import CPU_LIMITS, CpuEngine, CpuLimits

__all__ = ["ARITHMETIC", "CPU_LIMITS", "CpuEngine", "CpuLimits", "Engine", "choose_engine"]

# The arithmetic that each device supports, the default first.
ARITHMETIC = {
    CPU: ("int8", "float32", "bfloat16"),
    **{kind: gpu.arithmetic for kind, gpu in GPUS.items()},
}


def choose_engine(
    device: str | None = None,
    arithmetic: str | None = None,
    *,
    exact: bool = False,
    limits: CpuLimits = CPU_LIMITS,
) -> Engine:
    """The engine for a device. device: None for a GPU if torch finds one, else the CPU.

    arithmetic: of the products, see ARITHMETIC. None chooses the fastest that is precise enough for
    the amount of work. If `exact`, it chooses one that gives the distances of float16 patches in
    full float32 precision: float32 on the CPU; on a GPU float16, whose products the kernels add in
    float32, or float32 where they do not run. limits: of the CPU's engine.
    """
    device = choose_device(device)
    gpu = gpu_of(device)
    kind = CPU if gpu is None else gpu.kind
    if arithmetic is None and gpu is None:
        return CpuEngine("float32" if exact else "auto", limits=limits)
    fused = gpu is not None and gpu.has_triton and _kernels_run(device)
    if arithmetic is None:
        arithmetic = "float32" if exact and not fused else ARITHMETIC[kind][0]
    if arithmetic not in ARITHMETIC[kind]:
        raise OptionError(
            f"must be one of {', '.join(ARITHMETIC[kind])} on {kind}. Got '{arithmetic}'.",
            parameter="arithmetic",
        )
    if gpu is not None:
        return _on_torch(device, arithmetic, fused=fused)
    if arithmetic == "bfloat16":
        return _on_torch(CPU, arithmetic, fused=False)
    return CpuEngine("int8" if arithmetic == "int8" else "float32", limits=limits)


@cache
def _kernels_run(device: str) -> bool:
    """Whether Triton is installed and its kernels run on this GPU. They need a compiler, and more
    shared memory than small GPUs have. Plain torch gives the same results without them."""
    if find_spec("triton") is None:
        return False
    try:
        import torch

        from flawsort.scores.engines.torch_patches import Patches
        from flawsort.scores.engines.triton_kernels import bank_maxima, pair_maxima

        bags = Patches.of(torch.zeros((1, 256, 8), dtype=torch.float16, device=device))
        pair = torch.zeros((1, 2), dtype=torch.int32, device=device)
        pair_maxima(bags, bags, pair, both_ways=True, tf32=False)
        bank_maxima(bags[0], bags[0], n_processors=1, tf32=False)
        gpu = gpu_of(device)
        if gpu is not None:
            gpu.synchronize(torch.device(device))
    except Exception:  # a compiler or a driver may raise anything
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

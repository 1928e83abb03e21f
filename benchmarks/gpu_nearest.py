"""Compare the fused kernels with the matrix rate of the GPU, in one run.

    python benchmarks/gpu_nearest.py

Needs flawsort[torch] and a CUDA device. Prints three things. First the limits of the card: an
8192-cubed product in each arithmetic, and a copy. Then, for each number of dimensions and 1,024
patches per bag: the rate of the plain torch version (product, then amax), the rate of the kernels,
its ratio to the card's bfloat16 rate and to the plain version, and the largest error of a
similarity compared with float64. Last, the seconds for exact scores of a set as large as the
magnetic tiles (583 images, 761 normals), with and without normals, through the engine as `flawsort
cluster` calls it: with the patches on the card, and from and to the machine's memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
import triton.testing

from flawsort.scores.engines.torch_engine import TorchEngine
from flawsort.scores.engines.torch_patches import Patches
from flawsort.scores.engines.triton_kernels import bank_maxima, pair_maxima
from flawsort.scores.peer_statistics import MeanOverNearestPeers, MeanOverPeers

PATCHES = 1024
BAGS = 64
KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "tf32": torch.float32}


def median_ms(work: Callable[[], object]) -> float:
    return float(triton.testing.do_bench(work, warmup=25, rep=150, return_mode="median"))


def unit(n: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    values = torch.randn(n, dim, device="cuda")
    return (values / values.norm(dim=1, keepdim=True)).to(dtype)


def ceilings() -> float:
    """Print the limits of the card. Returns the TFLOP/s of the bfloat16 product."""
    rates = {}
    flop = 2 * 8192**3
    for name, dtype in KINDS.items():
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        a, b = unit(8192, 8192, dtype), unit(8192, 8192, dtype)
        rates[name] = flop / median_ms(lambda a=a, b=b: a @ b.T) / 1e9
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * 2**31 / median_ms(lambda: target.copy_(source)) / 1e9
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    shown = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
    print(f"8192-cubed products: {shown} TFLOP/s; copy {copied:.2f} TB/s read and written\n")
    return rates["bfloat16"]


def plain_rate(bags: torch.Tensor) -> float:
    """TFLOP/s of a product with every bag, then amax for each: one direction."""
    n, patches, dim = bags.shape
    flat = bags.flatten(0, 1)

    def work() -> None:
        for bag in bags[:8]:
            (bag @ flat.T).view(patches, n, patches).amax(2)

    return 2 * patches**2 * dim * n * 8 / median_ms(work) / 1e9


def pairs_row(dim: int, kind: str, peak: float) -> str:
    bags = unit(BAGS * PATCHES, dim, KINDS[kind]).view(BAGS, PATCHES, dim)
    pairs = torch.combinations(torch.arange(BAGS, device="cuda", dtype=torch.int32), 2)
    tf32 = kind == "tf32"
    ready = Patches.of(bags)
    along, across = pair_maxima(ready, ready, pairs, both_ways=True, tf32=tf32)
    assert across is not None
    errors = []
    for at in (0, 77, len(pairs) - 1):
        i, j = pairs[at].tolist()
        true = 1 - torch.cdist(bags[i].double(), bags[j].double()) ** 2 / 2
        errors += [(along[at] - true.amax(1)).abs().max(), (across[at] - true.amax(0)).abs().max()]
    rate = 2 * PATCHES**2 * dim * len(pairs) / 1e9
    rate /= median_ms(lambda: pair_maxima(ready, ready, pairs, both_ways=True, tf32=tf32))
    plain = plain_rate(bags)
    # Each pair serves both directions, for which the plain version multiplies twice.
    return (
        f"{'pairs, both ways':<18} {dim:>5} {kind:<9} {plain:>6.0f} {rate:>6.0f} "
        f"{rate / peak:>8.2f} {2 * rate / plain:>10.1f} {max(errors).item():>10.1e}"
    )


def bank_row(dim: int, kind: str, peak: float) -> str:
    queries, bank = unit(2**16, dim, KINDS[kind]), unit(2**17, dim, KINDS[kind])
    n_processors = torch.cuda.get_device_properties(0).multi_processor_count
    tf32 = kind == "tf32"
    asked, known = Patches.of(queries), Patches.of(bank)

    def search() -> tuple[torch.Tensor, torch.Tensor]:
        return bank_maxima(asked, known, n_processors=n_processors, tf32=tf32)

    def plain() -> None:
        for start in range(0, 2**14, 2**12):
            (queries[start : start + 2**12] @ bank.T).max(1)

    best, index = search()
    true = (1 - torch.cdist(queries[:64].double(), bank.double()) ** 2 / 2).max(1)
    error = (best[:64] - true.values).abs().max().item()
    found = (index[:64] == true.indices).float().mean().item()
    rate = 2 * len(queries) * len(bank) * dim / median_ms(search) / 1e9
    slow = 2 * 2**14 * len(bank) * dim / median_ms(plain) / 1e9
    return (
        f"{'bank, with index':<18} {dim:>5} {kind:<9} {slow:>6.0f} {rate:>6.0f} "
        f"{rate / peak:>8.2f} {rate / slow:>10.1f} {error:>10.1e}  {found:.0%} the same index"
    )


def whole_set(dim: int, n_images: int, n_normals: int) -> str:
    """Exact scores of a set, from NumPy arrays to NumPy arrays, and the same on the card alone."""
    rng = np.random.default_rng(0)

    def bags(n: int) -> np.ndarray:
        values = rng.standard_normal((n, PATCHES, dim), np.float32)
        values /= np.linalg.norm(values, axis=2, keepdims=True)
        return values.astype(np.float16)

    images, normals = bags(n_images), bags(n_normals).reshape(-1, dim)
    engine = TorchEngine("cuda", "float16", fused=True)
    peers = np.arange(n_images)

    def seconds(work: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return sorted(times)[1]

    def mean() -> None:
        engine.fold_peers(images, peers, MeanOverPeers(n_images, PATCHES))

    def fifth() -> None:
        statistic = MeanOverNearestPeers(n_images, PATCHES, n_images // 5)
        engine.fold_peers(images, peers, statistic)

    def semi() -> None:
        engine.nearest_in_bank(images.reshape(-1, dim), normals)

    mean()
    semi()
    tensor = Patches.of(torch.from_numpy(images).cuda())
    flat = Patches(tensor.values.flatten(0, 1), tensor.lack.flatten())
    bank = Patches.of(torch.from_numpy(normals).cuda())
    pairs = torch.combinations(torch.arange(n_images, device="cuda", dtype=torch.int32), 2)
    n_processors = torch.cuda.get_device_properties(0).multi_processor_count

    def on_card() -> None:
        sums = torch.zeros(n_images, PATCHES, device="cuda")
        for some in pairs.split(4096):
            along, across = pair_maxima(
                tensor, tensor, some.contiguous(), both_ways=True, tf32=False
            )
            assert across is not None
            sums.index_add_(0, some[:, 0], (2 - 2 * along).clamp_(min=0).sqrt_())
            sums.index_add_(0, some[:, 1], (2 - 2 * across).clamp_(min=0).sqrt_())
        bank_maxima(flat, bank, n_processors=n_processors, tf32=False)

    on_card()
    return (
        f"{dim:>5} {seconds(on_card):>22.2f} {seconds(mean):>12.2f} {seconds(fifth):>14.2f} "
        f"{seconds(semi):>13.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dims", type=int, nargs="+", default=[168, 256, 512, 1024])
    parser.add_argument("--images", type=int, default=583)
    parser.add_argument("--normals", type=int, default=761)
    options = parser.parse_args()
    torch.manual_seed(0)
    peak = ceilings()
    print(
        f"{'':<18} {'dim':>5} {'':<9} {'plain':>6} {'ours':>6} {'of bf16':>8} {'x plain':>10} error"
    )
    for dim in options.dims:
        for kind in KINDS:
            torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
            print(pairs_row(dim, kind, peak), flush=True)
            print(bank_row(dim, kind, peak), flush=True)
    print(f"\nSeconds for exact scores of {options.images} images and {options.normals} normals")
    print(
        f"{'dim':>5} {'both, on the card':>22} {'peers, mean':>12} {'nearest fifth':>14} "
        f"{'normals':>13}"
    )
    for dim in options.dims[:3]:
        print(whole_set(dim, options.images, options.normals), flush=True)


if __name__ == "__main__":
    main()

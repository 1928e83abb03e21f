"""Measure the peak resident memory of grouping images, of a hostile folder, and of decoding.

    python benchmarks/memory.py grouping [--images 1000] [--seconds 60]
    python benchmarks/memory.py hostile [--limit 1GB] [--preset default]
    python benchmarks/memory.py decoding [--side 3000]

grouping: many images without normals. Random bags of 1,024 patches with 168 dimensions replace
images, since memory does not depend on what images show. All pairs of 1,000 images take a quarter
of an hour on two cores. So after the given number of seconds, random distances replace the
products; all other steps, up to the linkage and the advice, are unchanged.

hostile: `flawsort cluster --max-memory LIMIT` of a folder with 80 usual images and a dozen small
files that decode to gigabytes, or that are gigabytes of nothing. Prints what was set aside, and
fails if the peak is more than 300 MB above the limit.

decoding: for each layout of files, the bytes of a pixel that decoding and resizing takes, and what
images/budget.py knew of it from the header.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from flawsort import AnomalyClusterer, Bags, Method
from flawsort.fitting.memory import parse_size
from flawsort.images.view import View, decode
from flawsort.scores.engines.int8 import Int8
from hostile_files import make_hostile, make_layouts, make_usual

PATCHES, DIM = 1024, 168
# What a run may take above its limit.
ABOVE = 300 * 2**20


def peak_mib() -> float:
    """Peak resident memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def grouping(options: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    patches = np.empty((options.images, PATCHES, DIM), np.float16)
    for image in range(options.images):
        one = rng.standard_normal((PATCHES, DIM), np.float32)
        patches[image] = one / np.linalg.norm(one, axis=1, keepdims=True)
    print(f"{options.images} images of {PATCHES} patches, dim {DIM}")
    print(f"bags held                {patches.nbytes / 2**20:>8.0f} MiB, peak {peak_mib():.0f} MiB")
    compare_bags, start = Int8.compare, time.monotonic()
    multiplied = 0

    def compare(product: Int8, first: tuple, second: tuple) -> tuple[np.ndarray, np.ndarray]:
        nonlocal multiplied
        if time.monotonic() - start < options.seconds:
            multiplied += 1
            return compare_bags(product, first, second)
        guess = np.random.default_rng(0).random((2, PATCHES), np.float32)
        return guess[0], guess[1]

    Int8.compare = compare
    model = AnomalyClusterer(method=Method(n_peers="all"), n_clusters=6)
    model.fit(Bags(patches, (32, 32)))
    pairs = options.images * (options.images - 1) // 2
    print(f"grouped, all pairs       {pairs:>8,} pairs, {multiplied:,} multiplied; ", end="")
    print(f"peak {peak_mib():.0f} MiB")


def hostile(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "parts"
        make_usual(folder)
        make_hostile(folder)
        where = ["-o", f"{scratch}/run", "--no-cache", "--max-memory", options.limit]
        job = [str(folder), *where, "--preset", options.preset, "--quiet"]
        start = time.monotonic()
        done = subprocess.run(["flawsort", "cluster", *job], capture_output=True, text=True)
        print(done.stdout + done.stderr)
        if done.returncode:
            sys.exit(f"flawsort ended with {done.returncode}")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        peak *= 1 if sys.platform == "darwin" else 2**10
    limit = parse_size(options.limit)
    print(f"limit {limit / 2**20:,.0f} MiB, peak {peak / 2**20:,.0f} MiB, ", end="")
    print(f"{time.monotonic() - start:.0f} s")
    if peak > limit + ABOVE:
        sys.exit("more than 300 MiB above the limit")


def decoding(options: argparse.Namespace) -> None:
    """Each decode in a process of its own: a peak is not forgotten."""
    with tempfile.TemporaryDirectory() as scratch:
        make_layouts(Path(scratch), options.side)
        for path in sorted(Path(scratch).iterdir()):
            for canvas in (512, options.side):
                job = [sys.executable, __file__, "one", str(path), "--canvas", str(canvas)]
                subprocess.run(job, check=True)


def one(options: argparse.Namespace) -> None:
    view = View(window=(0, 65535))
    decode(np.zeros((64, 64), np.uint16), view, (64, 64))  # loads what is loaded once
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak begins anew
    before = high_water()
    known = decode(options.file, view, (options.canvas, options.canvas)).needs
    used, size = high_water() - before, options.file.stat().st_size
    print(
        f"{options.file.name:<24} {size:>10,} bytes to {options.canvas:>5}: "
        f"{used / 2**20:>6.1f} MiB, known {known / 2**20:>6.1f} MiB"
    )


def high_water() -> int:
    """The peak resident memory of this process since it was last cleared, on Linux."""
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 2**10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)

    def command(work: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        made = commands.add_parser(work.__name__)
        made.set_defaults(work=work)
        return made

    of_grouping = command(grouping)
    of_grouping.add_argument("--images", type=int, default=1000)
    of_grouping.add_argument("--seconds", type=float, default=60)
    of_hostile = command(hostile)
    of_hostile.add_argument("--limit", default="1GB")
    of_hostile.add_argument("--preset", default="default")
    command(decoding).add_argument("--side", type=int, default=3000)
    of_one = command(one)
    of_one.add_argument("file", type=Path)
    of_one.add_argument("--canvas", type=int, default=512)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()

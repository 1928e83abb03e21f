"""Measure time and memory by number of images, with the default and with all pairs compared.

    python benchmarks/growth.py --data FOLDER [--images 250 500 ... 16000] [--exact-to 1000]
        [--device cuda]
    python benchmarks/growth.py --simulate 100000

FOLDER holds images (with sub-folders). Larger sets are made from them by rotation, mirroring,
shifts, lighting and noise, and written as JPEG. Each row is measured in a separate process: seconds
for embedding with scoring, for clustering, and in total, and peak resident memory. The exact
comparison (--peers all --exact) stops at --exact-to images, since its time grows with the square. A
plot on log axes is written to growth.svg if matplotlib is installed. --simulate measures memory for
a number of images that would take hours: a simulated backbone makes patches from the image's first
pixel, and images are compared with --peers of them; everything else is real.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from flawsort import AnomalyClusterer
from flawsort.backbones import BackboneChoice, BackboneInfo
from flawsort.embeddings.method import Method, views_of

SIDE = 256


def augmented(image: np.ndarray, seed: int) -> np.ndarray:
    """A variation of a photo."""
    rng = np.random.default_rng(seed)
    turned = np.rot90(image, int(rng.integers(4)))
    if rng.random() < 0.5:
        turned = turned[:, ::-1]
    shifted = np.roll(turned, rng.integers(-6, 7, 2), axis=(0, 1)).astype(np.float32)
    lit = shifted * rng.uniform(0.9, 1.1) + rng.normal(0, 3, shifted.shape)
    return np.clip(lit, 0, 255).astype(np.uint8)


def make_set(data: Path, n: int, folder: Path) -> list[Path]:
    """n files made from the images of a folder."""
    sources = sorted(p for p in data.rglob("*") if p.suffix.lower() in (".jpg", ".png"))
    images = [np.asarray(Image.open(p).convert("RGB").resize((SIDE, SIDE))) for p in sources[:400]]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(n):
        path = folder / f"{number:06d}.jpg"
        if not path.exists():
            pixels = augmented(images[number % len(images)], number)
            Image.fromarray(pixels).save(path, quality=85)
    return sorted(folder.glob("*.jpg"))[:n]


class Simulated:
    """A backbone that costs nothing: patches by a hash of the pixels, in the shape of one of the
    default's."""

    def __init__(self, choice: BackboneChoice) -> None:
        first = choice == views_of("default")[0]
        self.shape = (168, 32, 32) if first else (256, 16, 16)
        self.info = BackboneInfo(str(choice.name), "0" * 64, "none", "benchmark", (SIDE, SIDE))

    def feature_maps(self, pixels: np.ndarray) -> list[np.ndarray]:
        seeds = (pixels[:, 0, 0, 0] * 255).astype(int)
        return [
            np.stack(
                [
                    np.random.default_rng(seed).standard_normal(self.shape, np.float32)
                    for seed in seeds
                ]
            )
        ]


def measure(files: list[Path], *, exact: bool, device: str) -> dict[str, float]:
    method = Method(n_peers="all", exact=True) if exact else Method()
    start = time.perf_counter()
    model = AnomalyClusterer(n_clusters=6, method=method, cache=None, device=device)
    model.fit([str(path) for path in files])
    seconds = time.perf_counter() - start
    times = model.timings_
    return {
        "score": times.get("embed", 0.0) + times["score"],
        "cluster": times["cluster"],
        "all": seconds,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def simulate(n: int, n_peers: int) -> None:
    """One fit of n tiny images with the simulated backbone, in this process."""
    from flawsort import estimator as pipeline
    from flawsort.outputs.report import render_report
    from flawsort.runs.convert import make_run

    start = time.perf_counter()
    pipeline.open_backbone = lambda choice, **_: Simulated(choice)
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (8, 8), np.uint8) for _ in range(n)]
    last = [0.0]

    def progress(stage: str, done: int, total: int) -> None:
        if time.perf_counter() - last[0] > 30:
            last[0] = time.perf_counter()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
            print(f"  {stage} {done:,} of {total:,}, {last[0] - start:.0f} s, {peak:.0f} MiB")

    method = Method(n_peers=n_peers)
    model = AnomalyClusterer(
        n_clusters=6, method=method, cache=None, device="cpu", progress=progress
    )
    model.fit(pixels)
    render_report(make_run(model.fitted_))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{n:,} images, simulated backbone: {model.scored_}")
    print(f"{time.perf_counter() - start:.0f} s, peak {peak:.0f} MiB resident; {model.timings_}")


def plot(rows: list[dict[str, float]], path: Path) -> None:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for kind, label in ((0, "default"), (1, "all pairs, float32")):
        some = [row for row in rows if row["exact"] == kind]
        for axis, key in zip(axes, ("all", "memory"), strict=True):
            axis.loglog([row["n"] for row in some], [row[key] for row in some], "o-", label=label)
    axes[0].set(xlabel="images", ylabel="seconds")
    axes[1].set(xlabel="images", ylabel="peak memory, MiB")
    axes[0].legend(frameon=False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    counts = [250, 500, 1000, 2000, 4000, 8000, 16000]
    parser.add_argument("--images", type=int, nargs="+", default=counts)
    parser.add_argument("--exact-to", type=int, default=1000)
    work = Path(tempfile.gettempdir()) / "flawsort-growth"
    parser.add_argument("--work", type=Path, default=work)
    parser.add_argument("--device", default="cpu", help="device that compares patches")
    parser.add_argument("--simulate", type=int)
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.simulate:
        simulate(options.simulate, options.peers)
        return
    if options.one:
        files = sorted(options.work.glob("*.jpg"))[: options.one["n"]]
        print(json.dumps(measure(files, exact=bool(options.one["exact"]), device=options.device)))
        return
    if options.data is None:
        parser.error("give --data FOLDER, or --simulate COUNT")
    make_set(options.data, max(options.images), options.work)
    print(f"{'images':>7} {'':<8} {'embed and score':>16} {'cluster':>8} {'all':>8} {'MiB':>6}")
    rows = []
    for n in options.images:
        for exact in (0, 1) if n <= options.exact_to else (0,):
            one = json.dumps({"n": n, "exact": exact})
            command = [sys.executable, __file__, "--work", str(options.work)]
            command += ["--device", options.device, "--one", one]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            rows.append({"n": n, "exact": exact, **found})
            print(
                f"{n:>7,} {'exact' if exact else 'default':<8} {found['score']:>16.1f} "
                f"{found['cluster']:>8.1f} {found['all']:>8.1f} {found['memory']:>6.0f}",
                flush=True,
            )
    plot(rows, Path("growth.svg"))


if __name__ == "__main__":
    main()

"""How near embedding comes to bare onnxruntime on the same batches, in one run.

    python benchmarks/embed.py [FOLDER ...]

Bare, out of the box: onnxruntime with all cores on batches of 16 that are decoded already, and
nothing else. Bare, as we call it: the same on our own small batches, from as many threads as we
use. Ours: files to bags, decoding, patches, cache and all, as a ratio to each of them. Without a
folder the demo's images are made and used.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime

from flawsort.backbones import DEFAULT_BACKBONE, catalogue, entry_path, load_backbone
from flawsort.cache import BagCache
from flawsort.demo import make_demo_images
from flawsort.embed import BATCH_FRAMES, cache_setting, embed
from flawsort.files import find_images
from flawsort.images import View, decode
from flawsort.threads import in_threads

BARE_BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--backbone", default=DEFAULT_BACKBONE, choices=sorted(catalogue()))
    parser.add_argument("--most", type=int, default=400, help="images to use at the most")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folders = options.folders or [str(make_demo_images(Path(scratch) / "demo")[0])]
        compare(folders, options, Path(scratch))


def compare(folders: list[str], options: argparse.Namespace, scratch: Path) -> None:
    images = find_images(folders)
    images = images.take(range(min(len(images), options.most)))
    backbone, view = load_backbone(options.backbone), View()
    usable = embed(images, backbone, view).images
    size = backbone.info.input_size
    frames = np.concatenate([decode(source, view, size).frames for source in usable.sources])
    path = entry_path(catalogue()[options.backbone])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    starts = range(0, len(frames), BARE_BATCH)
    bare, same, ours, cached = [], [], [], []
    small = [frames[at : at + BATCH_FRAMES] for at in range(0, len(frames), BATCH_FRAMES)]
    for turn in range(options.repeats):
        start = time.perf_counter()
        for at in starts:
            session.run(None, {name: frames[at : at + BARE_BATCH]})
        bare.append(len(frames) / (time.perf_counter() - start))
        start = time.perf_counter()
        for _ in in_threads(backbone.feature_maps, small):
            pass
        same.append(len(frames) / (time.perf_counter() - start))
        cache = BagCache(scratch / f"cache{turn}", cache_setting(backbone, view))
        for rates in (ours, cached):
            start = time.perf_counter()
            embed(usable, backbone, view, cache=cache)
            rates.append(len(usable) / (time.perf_counter() - start))
    print(
        f"{len(usable)} images, {backbone.info.name} at {size[0]} x {size[1]}, best of {len(bare)}"
    )
    print(f"{'':<34} {'images/s':>9} {'to out of the box':>18} {'to same batches':>16}")
    for name, rates in (
        ("bare onnxruntime, out of the box", bare),
        ("bare onnxruntime, our batches", same),
        ("embed, from files, cache empty", ours),
        ("embed, all in the cache", cached),
    ):
        best = max(rates)
        print(f"{name:<34} {best:>9.1f} {best / max(bare):>18.2f} {best / max(same):>16.2f}")


if __name__ == "__main__":
    main()

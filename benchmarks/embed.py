"""How near embedding comes to bare onnxruntime on the same batches, in one run.

    python benchmarks/embed.py [FOLDER ...]

Bare: onnxruntime as it is out of the box, all cores, on batches of 16 that are decoded already,
and nothing else. Ours: files to bags, decoding, patches, cache and all. Without a folder the
demo's images are made and used.
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
from flawsort.embed import cache_setting, embed
from flawsort.files import find_images
from flawsort.images import View, decode

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
    bare, ours, cached = [], [], []
    for turn in range(options.repeats):
        start = time.perf_counter()
        for at in starts:
            session.run(None, {name: frames[at : at + BARE_BATCH]})
        bare.append(len(frames) / (time.perf_counter() - start))
        cache = BagCache(scratch / f"cache{turn}", cache_setting(backbone, view))
        for rates in (ours, cached):
            start = time.perf_counter()
            embed(usable, backbone, view, cache=cache)
            rates.append(len(usable) / (time.perf_counter() - start))
    print(
        f"{len(usable)} images, {backbone.info.name} at {size[0]} x {size[1]}, best of {len(bare)}"
    )
    print(f"{'':<34} {'images/s':>9} {'ratio':>6}")
    print(f"{'bare onnxruntime, decoded batches':<34} {max(bare):>9.1f} {1:>6.2f}")
    print(f"{'embed, from files, cache empty':<34} {max(ours):>9.1f} {max(ours) / max(bare):>6.2f}")
    print(f"{'embed, all in the cache':<34} {max(cached):>9.1f} {max(cached) / max(bare):>6.2f}")


if __name__ == "__main__":
    main()

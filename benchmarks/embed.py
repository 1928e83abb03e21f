"""Compare the speed of embedding with that of bare onnxruntime on the same batches, in one run.

    python benchmarks/embed.py [FOLDER ...]

Bare: only onnxruntime, on decoded batches. It is measured with its defaults (all cores for one
call) on large batches and on the small batches that flawsort uses, and as flawsort calls it (small
batches, one call per core). Ours: from files to bags, with decoding, patches and cache, as a ratio
to each. Without a folder the demo's images are made and used.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime

from flawsort.backbones import DEFAULT_BACKBONE, catalogue, entry_path, load_backbone
from flawsort.backbones.cache import BagCache
from flawsort.backbones.embed import cache_setting, embed, frames_at_once
from flawsort.cli.sample_images import make_demo_images
from flawsort.core.records import Floats
from flawsort.core.threads import in_threads
from flawsort.images.find import find_images
from flawsort.images.view import View, decode

BARE_BATCH = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--backbone", default=DEFAULT_BACKBONE, choices=sorted(catalogue()))
    parser.add_argument("--most", type=int, default=400, help="maximum number of images")
    parser.add_argument("--repeats", type=int, default=5)
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
    large = [frames[at : at + BARE_BATCH] for at in range(0, len(frames), BARE_BATCH)]
    few = frames_at_once(backbone)
    small = [frames[at : at + few] for at in range(0, len(frames), few)]

    def plain(batches: list[Floats]) -> None:
        for batch in batches:
            session.run(None, {name: batch})

    def as_called(batches: list[Floats]) -> None:
        for _ in in_threads(backbone.feature_maps, batches):
            pass

    rates: dict[str, list[float]] = {}

    def timed(what: str, work: Callable[[], object]) -> None:
        start = time.perf_counter()
        work()
        rates.setdefault(what, []).append(len(usable) / (time.perf_counter() - start))

    for turn in range(options.repeats):
        cache = BagCache(scratch / f"cache{turn}", cache_setting(backbone, view))
        timed(f"bare, batches of {BARE_BATCH}", partial(plain, large))
        timed("bare, same batches", partial(plain, small))
        timed("bare, same batches, our threads", partial(as_called, small))
        timed("ours, from files, cache empty", partial(embed, usable, backbone, view, cache=cache))
        timed("ours, all in the cache", partial(embed, usable, backbone, view, cache=cache))
    print(
        f"{len(usable)} images, {backbone.info.name} at {size[0]} x {size[1]}, medians of ", end=""
    )
    print(f"{options.repeats}; ratios to bare onnxruntime on")
    middle = {what: float(np.median(found)) for what, found in rates.items()}
    bare = [what for what in middle if what.startswith("bare")]
    heads = [f"batches of {BARE_BATCH}", "same batches", "our threads"]
    print(f"{'':<32} {'images/s':>9}" + "".join(f" {head:>14}" for head in heads))
    for what, rate in middle.items():
        ratios = "".join(f" {rate / middle[base]:>14.2f}" for base in bare)
        print(f"{what:<32} {rate:>9.1f}{ratios}")


if __name__ == "__main__":
    main()

"""Measure which photos count as near-duplicates when an export is split for validation.

    python benchmarks/near_duplicates.py --data DIR [--data DIR ...]

For each set: the share of its photos that nearly repeat another one, the most that belong together,
and how alike up to 40 photos are to what JPEG, noise and light make of them: the correlation that
19 in 20 of them reach. Below ALIKE it is not found. "moved" shifts a photo by 1 in 100 of its
width, which is not found and shows that other photos of the same part are not either. DIR as for
quality.py.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from flawsort.outputs.exports.splitting import ALIKE, SIDE, alike, detail_vectors
from flawsort.research.truth import load_datasets

MOST_CHANGED = 40


def noisy(picture: Image.Image) -> Image.Image:
    noise = np.random.default_rng(0).normal(0, 5, (*picture.size[::-1], 3))
    return Image.fromarray(np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8))


def moved(picture: Image.Image) -> Image.Image:
    by = max(1, picture.width // 100)
    return Image.fromarray(np.pad(np.asarray(picture), ((0, 0), (by, 0), (0, 0)), "edge")[:, :-by])


def jpeg(picture: Image.Image) -> Image.Image:
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=75)
    return Image.open(stream).convert("RGB")


WAYS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "jpeg": jpeg,
    "noise": noisy,
    "light": lambda picture: ImageEnhance.Brightness(picture).enhance(1.05),
    "moved": moved,
}


def grey(picture: Image.Image) -> NDArray[np.float32]:
    small = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(small, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    options = parser.parse_args()
    print(f"{'set':<18}{'photos':>8}{'repeat':>8}{'most':>6}" + "".join(f"{w:>8}" for w in WAYS))
    for folder in options.data:
        for data in load_datasets(folder):
            photos = [Image.open(str(path)).convert("RGB") for path in data.images.sources]
            greys = np.stack([grey(photo) for photo in photos])
            usual = np.median(greys, axis=0)
            vectors = detail_vectors(greys, usual)
            pairs = np.array(alike(vectors), np.int64).reshape(-1, 2)
            links = coo_array((np.ones(len(pairs)), pairs.T), shape=(len(photos),) * 2)
            sizes = np.bincount(connected_components(links, directed=False)[1])
            chosen = np.random.default_rng(0).permutation(len(photos))[:MOST_CHANGED]
            reached = []
            for change in WAYS.values():
                changed = np.stack([grey(change(photos[row])) for row in chosen])
                others = detail_vectors(changed, usual).astype(np.float64)
                reached.append(np.quantile((others * vectors[chosen]).sum(axis=1), 0.05))
            repeating = sizes[sizes > 1].sum() / len(photos)
            print(
                f"{data.name:<18}{len(photos):>8}{repeating:>8.2f}{sizes.max():>6}"
                + "".join(f"{value:>8.2f}" for value in reached),
                flush=True,
            )
    print(f"Alike from a correlation of {ALIKE}.")


if __name__ == "__main__":
    main()

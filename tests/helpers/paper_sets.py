"""Tiny data sets in the layouts of MVTec AD and of the magnetic tiles, with masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 64
CATEGORIES = ("bottle", "leather")
PER_TYPE = 4


def picture(kind: str, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """(64, 64, 3) with a flaw of that kind, and where it is."""
    rng = np.random.default_rng([seed, *kind.encode()])
    image = rng.normal(120, 6, (SIDE, SIDE, 3))
    marked = np.zeros((SIDE, SIDE), bool)
    row, column = rng.integers(10, 40, 2)
    if kind in ("hole", "Blowhole", "combined"):
        marked[row : row + 14, column : column + 14] = True
        image[row : row + 14, column : column + 14] = 5
    if kind in ("cut", "Crack", "combined"):
        marked[:, column : column + 4] = True
        image[:, column : column + 4] = (250, 60, 40)
    return np.clip(image, 0, 255).astype(np.uint8), marked


def make_mvtec(folder: Path, categories: tuple[str, ...] = CATEGORIES) -> Path:
    """Categories with the types good, hole and cut, one image of type combined, and normals."""
    for place, category in enumerate(categories):
        home = folder / category
        for kind in ("good", "hole", "cut", "combined"):
            for number in range(1 if kind == "combined" else PER_TYPE):
                image, marked = picture(kind, 100 * place + number)
                _save(image, home / "test" / kind / f"{number:03d}.png")
                if kind != "good":
                    mask = marked.astype(np.uint8) * 255
                    _save(mask, home / "ground_truth" / kind / f"{number:03d}_mask.png")
        for number in range(5):
            _save(picture("good", 500 + number)[0], home / "train" / "good" / f"{number:03d}.png")
    return folder


def make_tiles(folder: Path) -> Path:
    """Magnetic tiles: two kinds of flaws and Free, of which 80% are normals by seed."""
    for kind, count in (("Blowhole", PER_TYPE), ("Crack", PER_TYPE), ("Free", 10)):
        for number in range(count):
            image, marked = picture(kind, 900 + number)
            place = folder / f"MT_{kind}" / "Imgs"
            _save(image, place / f"exp{number}.jpg")
            _save(marked.astype(np.uint8) * 255, place / f"exp{number}.png")
    return folder


def _save(values: NDArray[np.uint8], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)

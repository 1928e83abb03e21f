"""Measure which flaws are found in large photos, by the size of the flaw in pixels.

    python benchmarks/large_photos.py --data DIR [DIR ...] [--size 4000x6000]
        [--flaws 20 50 100 200] [--photos 6] [--good 20] [--normals 12] [--ways shrunk 4x6 auto]
        [--preset default]

DIR is a category in the layout of MVTec AD with masks, best a texture: leather, carpet, grid. Each
photo is made of one of its normals, enlarged and laid side by side, each copy mirrored so that no
seam shows. A flawed photo gets one real flaw, cut out along its mask and scaled so that its longer
side has the size in pixels, at a random place. No two photos share a normal, as long as there are
enough. The photos are made once and kept in --folder.

A way is how the photos are looked at: `shrunk` (the whole photo in one look, `--fit`), `auto` (the
size decides), or tiles such as 4x6. For each way the table has the share of the flawed photos that
score above all but 5% of the good ones, for each size of flaw; the AUROC over all; which of the
good and which of the flawed photos are said to look normal; the NMI of good against flawed with as
many groups as advised; the seconds of the fit and the largest memory of the process so far.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from flawsort import AnomalyClusterer, View
from flawsort.images.view import parse_tiles
from flawsort.research.metrics import agreement, auroc

FALSE_ALARMS = 0.05
ENLARGED = 2.0
# The soft edge of a pasted flaw, relative to its size.
EDGE = 0.06


@dataclass(frozen=True)
class Photos:
    """Paths of the photos of one category. flawed: by the size of the flaw."""

    name: str
    normals: list[Path]
    good: list[Path]
    flawed: dict[int, list[Path]]

    @property
    def tested(self) -> list[Path]:
        return self.good + [path for paths in self.flawed.values() for path in paths]


def make_photos(category: Path, folder: Path, options: argparse.Namespace) -> Photos:
    """Make the photos of a category, unless the folder has them."""
    textures = sorted((category / "train" / "good").iterdir())
    counts = options.normals + options.good + options.photos * len(options.flaws)
    order = np.random.default_rng(options.seed).permutation(len(textures))
    sources = [textures[order[i % len(order)]] for i in range(counts)]
    place = folder / f"{category.name}-{options.size[0]}x{options.size[1]}"
    place.mkdir(parents=True, exist_ok=True)
    flaws = find_flaws(category)
    each = iter(enumerate(sources))
    normals = [
        _made(next(each), place / f"normal-{i}.jpg", options) for i in range(options.normals)
    ]
    good = [_made(next(each), place / f"good-{i}.jpg", options) for i in range(options.good)]
    flawed = {
        size: [
            _made(next(each), place / f"flaw-{size}-{i}.jpg", options, flaws, size)
            for i in range(options.photos)
        ]
        for size in options.flaws
    }
    return Photos(category.name, normals, good, flawed)


def find_flaws(category: Path) -> list[tuple[Path, Path]]:
    """The flawed images of a category, each with its mask."""
    found = []
    for mask in sorted((category / "ground_truth").rglob("*.png")):
        stem = mask.stem.removesuffix("_mask")
        for image in sorted((category / "test" / mask.parent.name).glob(f"{stem}.*")):
            found.append((image, mask))
    if not found:
        raise SystemExit(f"'{category}' has no masks: its flaws cannot be cut out.")
    return found


def _made(
    source: tuple[int, Path],
    path: Path,
    options: argparse.Namespace,
    flaws: Sequence[tuple[Path, Path]] = (),
    size: int = 0,
) -> Path:
    number, texture = source
    if path.exists():
        return path
    draw = np.random.default_rng([options.seed, number])
    photo = laid_out(Image.open(texture).convert("RGB"), options.size)
    if flaws:
        image, mask = flaws[int(draw.integers(len(flaws)))]
        flaw, shape = cut_out(image, mask, size)
        x = int(draw.integers(size, photo.width - size - flaw.width))
        y = int(draw.integers(size, photo.height - size - flaw.height))
        photo.paste(flaw, (x, y), shape)
    photo.save(path, quality=95)
    return path


def laid_out(texture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """A photo of (height, width): the texture enlarged, and mirrored at each seam."""
    wide, high = (round(ENLARGED * side) for side in texture.size)
    first = texture.resize((wide, high), Image.Resampling.BICUBIC)
    photo = Image.new("RGB", size[::-1])
    for row in range(-(-size[0] // high)):
        for column in range(-(-size[1] // wide)):
            copy = ImageOps.mirror(first) if column % 2 else first
            photo.paste(ImageOps.flip(copy) if row % 2 else copy, (column * wide, row * high))
    return photo


def cut_out(image: Path, mask: Path, size: int) -> tuple[Image.Image, Image.Image]:
    """A flaw and its shape with soft edges, the longer side of the flaw `size` pixels long."""
    marked = Image.open(mask).convert("L").point(lambda value: 255 if value else 0)
    picture = Image.open(image).convert("RGB")
    left, top, right, bottom = largest_piece(marked.resize(picture.size))
    margin = max(2, round(EDGE * max(right - left, bottom - top)))
    box = (left - margin, top - margin, right + margin, bottom + margin)
    scale = size / max(right - left, bottom - top)
    wide, high = (max(1, round((b - a) * scale)) for a, b in ((box[0], box[2]), (box[1], box[3])))
    flaw = picture.crop(box).resize((wide, high), Image.Resampling.LANCZOS)
    shape = marked.resize(picture.size).crop(box).resize((wide, high), Image.Resampling.BILINEAR)
    return flaw, shape.filter(ImageFilter.GaussianBlur(max(0.7, EDGE * size / 2)))


def largest_piece(mask: Image.Image) -> tuple[int, int, int, int]:
    """The box of the largest connected piece of a mask; a mask may mark several flaws."""
    marked = np.asarray(mask) > 0
    seen, best = np.zeros_like(marked), np.empty((0, 2), np.int64)
    for start in np.argwhere(marked):
        if not seen[tuple(start)]:
            piece = np.array(list(_flooded(marked, seen, (int(start[0]), int(start[1])))))
            best = piece if len(piece) > len(best) else best
    top, left = best.min(axis=0).tolist()
    bottom, right = (best.max(axis=0) + 1).tolist()
    return left, top, right, bottom


def _flooded(
    marked: NDArray[np.bool_], seen: NDArray[np.bool_], start: tuple[int, int]
) -> Iterator[tuple[int, int]]:
    todo = [start]
    seen[start] = True
    while todo:
        y, x = todo.pop()
        yield y, x
        for at in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            inside = 0 <= at[0] < marked.shape[0] and 0 <= at[1] < marked.shape[1]
            if inside and marked[at] and not seen[at]:
                seen[at] = True
                todo.append(at)


def measure(photos: Photos, way: str, options: argparse.Namespace) -> list[object]:
    """A row of the table."""
    model = AnomalyClusterer(method=options.preset, view=view_of(way), cache=options.cache)
    start = time.perf_counter()
    normals = [str(path) for path in photos.normals] if photos.normals else None
    model.fit([str(path) for path in photos.tested], normal=normals)
    seconds = time.perf_counter() - start
    scores = model.image_scores_
    n_good = len(photos.good)
    limit = np.quantile(scores[:n_good], 1 - FALSE_ALARMS)
    found, place = [], n_good
    for paths in photos.flawed.values():
        found.append(float((scores[place : place + len(paths)] > limit).mean()))
        place += len(paths)
    flawed = np.arange(len(scores)) >= n_good
    normal = model.looks_normal_
    said = ["-", "-"] if normal is None else [normal[:n_good].mean(), normal[n_good:].mean()]
    nmi = agreement(flawed.tolist(), model.labels_).nmi
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    tiles = "x".join(map(str, model.view_.layout))
    head = [photos.name, way, tiles, *found, float(np.mean(found)), auroc(scores, flawed), *said]
    return [*head, model.n_clusters_, nmi, round(seconds), memory]


def view_of(way: str) -> View:
    if way == "auto":
        return View()
    return View(tiles=(1, 1) if way == "shrunk" else parse_tiles(way))


def shown(values: Sequence[object]) -> str:
    cells = [f"{value:.2f}" if isinstance(value, float) else str(value) for value in values]
    return "| " + " | ".join(cells) + " |"


def parse_size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    return int(height), int(width)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--size", type=parse_size, default=(4000, 6000), help="height x width")
    parser.add_argument("--flaws", type=int, nargs="+", default=[20, 50, 100, 200])
    parser.add_argument("--photos", type=int, default=6, help="for each size of flaw")
    parser.add_argument("--good", type=int, default=20)
    parser.add_argument("--normals", type=int, default=12, help="0 to compare photos with others")
    parser.add_argument("--ways", nargs="+", default=["shrunk", "4x6", "auto"])
    parser.add_argument("--preset", default="default")
    parser.add_argument("--folder", type=Path, help="where the photos are made and kept")
    parser.add_argument("--cache", type=Path, help="keep embedded photos here")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = make_parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        sizes = [f"{size} px" for size in options.flaws]
        heads = ["set", "way", "tiles", *sizes, "mean", "AUROC", "good normal", "flawed normal"]
        print(shown([*heads, "groups", "NMI", "s", "GB"]))
        print(shown(["---"] * (len(heads) + 4)))
        for category in options.data:
            photos = make_photos(category, folder, options)
            for way in options.ways:
                print(shown(measure(photos, way, options)), flush=True)


if __name__ == "__main__":
    main()

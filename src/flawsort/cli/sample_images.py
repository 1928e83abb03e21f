"""Sample images for `flawsort demo`: a machined plate, good or with one of five kinds of flaw.

Each picture is a height map (plate, bore, holes, engraving, flaws) lit from one side, multiplied by
a colour (metal, stain). Flaws therefore reflect light as real ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.core.errors import OptionError
from flawsort.core.records import Progress
from flawsort.core.storage import write_whole
from flawsort.core.tables import csv_text
from flawsort.core.temporaries import clear_left_overs
from flawsort.runs.folder import ASSIGNED, EDITS, JOURNAL

SIZE = 256
KINDS = {
    "good": 20,
    "scratch": 14,
    "stain": 14,
    "pits": 13,
    "missing hole": 12,
    "edge chip": 15,
}
N_GOOD = 24
TRUTH = "truth.csv"

Field = NDArray[np.float64]
HOLES = ((-66.0, -66.0), (66.0, -66.0), (-66.0, 66.0), (66.0, 66.0))
# The engraved mark "F5", as strokes (x0, y0, x1, y1) around its own centre.
MARK = (
    (-14, -9, -14, 9), (-14, -9, -4, -9), (-14, 0, -6, 0),
    (4, -9, 14, -9), (4, -9, 4, -1), (4, -1, 12, -1), (13, 0, 13, 7), (4, 9, 12, 9),
)  # fmt: skip


def check_demo_folder(folder: Path) -> None:
    """Refuse a folder that holds other files, or a run that people have edited."""
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"The output '{folder}' is a file. Name a folder with -o.")
    clear_left_overs(folder)
    if folder.exists() and any(folder.iterdir()) and not _begun_here(folder):
        raise OptionError(
            f"The folder '{folder}' holds other files. Name one that does not exist yet with -o."
        )
    run = folder / "run"
    if any((run / added).exists() for added in (EDITS, ASSIGNED, JOURNAL)):
        raise OptionError(
            f"The run '{run}' holds edits or new images, which would be lost. "
            "Name another folder with -o."
        )


def make_demo_images(
    folder: Path,
    *,
    random_state: int = 0,
    progress: Progress | None = None,
    kinds: Mapping[str, int] = KINDS,
    n_good: int = N_GOOD,
) -> tuple[Path, Path]:
    """Write the demo's images. Returns the folders of the mixed and of the known-good parts.

    `parts/` holds 88 images in random order under neutral names, one exact copy, and one truncated
    file, to show how both are reported. `truth.csv` (path, label) has the kind of each readable
    part. The same random_state gives the same files. kinds: how many parts there are of each kind,
    at least one of them scratched. n_good: the number of known-good parts.
    """
    parts, good = folder / "parts", folder / "good"
    each = [kind for kind, count in kinds.items() for _ in range(count)]
    order = np.random.default_rng([random_state, 0]).permutation(len(each))
    truth = {_part_name(place): each[row] for place, row in enumerate(order)}
    copied = next(name for name, kind in truth.items() if kind == "scratch")
    copy, cut = _part_name(len(order)), _part_name(len(order) + 1)
    # Written first: it marks the folder as a demo, in case this is interrupted.
    _write_truth(folder, truth | {copy: "scratch"})
    parts.mkdir(exist_ok=True)
    good.mkdir(exist_ok=True)
    jobs = [(parts / name, kind, (1, place)) for place, (name, kind) in enumerate(truth.items())]
    jobs += [(good / f"good-{i + 1:04d}.png", "good", (2, i)) for i in range(n_good)]
    for done, (path, kind, own) in enumerate(jobs):
        if progress:
            progress("making images", done, len(jobs))
        rng = np.random.default_rng([random_state, *own])
        picture = _picture(kind, rng)
        write_whole(path, partial(picture.save, format="PNG", compress_level=1), durable=False)
    if progress:
        progress("making images", len(jobs), len(jobs))
    write_whole(parts / copy, (parts / copied).read_bytes(), durable=False)
    whole = (parts / _part_name(0)).read_bytes()
    write_whole(parts / cut, whole[: len(whole) // 3], durable=False)
    return parts, good


def _part_name(place: int) -> str:
    return f"part-{place + 1:04d}.png"


def _write_truth(folder: Path, truth: dict[str, str]) -> None:
    text = csv_text([("path", "label"), *truth.items()])
    write_whole(folder / TRUTH, text, parents=True, durable=False)


def _begun_here(folder: Path) -> bool:
    """Whether a folder holds a demo, finished or not: its truth begins with the first part."""
    try:
        lines = (folder / TRUTH).read_bytes().splitlines()
    except OSError:
        return False
    return len(lines) > 1 and lines[1].startswith(f"{_part_name(0)},".encode())


@dataclass
class _Part:
    """One part under construction: fields of shape (SIZE, SIZE) in the part's coordinates.

    x, y: pixels from the part's centre. height: in pixels. colour: (SIZE, SIZE, 3), a factor.
    edge: signed distance to the plate's outline, negative inside. holes: those to drill.
    """

    x: Field
    y: Field
    edge: Field
    height: Field
    colour: Field
    holes: list[tuple[float, float]]


def _picture(kind: str, rng: np.random.Generator) -> Image.Image:
    """(SIZE, SIZE) RGB. The flaw has its own random numbers and leaves the part unchanged."""
    part = _blank(rng)
    _FLAWS[kind](part, rng.spawn(1)[0])
    plate = _inside(part.edge)
    part.height += 5.0 * np.clip(-part.edge / 5.0, 0.0, 1.0) ** 0.7
    open_ = np.zeros_like(plate)
    for cx, cy, radius in [(0.0, 0.0, 34.0), *((*hole, 9.5) for hole in part.holes)]:
        distance = np.hypot(part.x - cx, part.y - cy) - radius
        part.height -= 3.5 * np.clip(1.0 - distance / 4.0, 0.0, 1.0)
        open_ = np.maximum(open_, _inside(distance))
    part.height -= 1.1 * _engraving(part)
    light = _light(part.height, rng)
    metal = light[..., None] * part.colour * np.array([0.985, 1.0, 1.02])
    ground = _ground(part, rng)
    picture = ground + plate[..., None] * (metal - ground)
    picture += open_[..., None] * (0.55 * ground + 0.01 - picture) * plate[..., None]
    picture += rng.normal(0.0, 0.008, (SIZE, SIZE, 1))
    return Image.fromarray(np.rint(np.clip(picture, 0.0, 1.0) * 255).astype(np.uint8))


def _blank(rng: np.random.Generator) -> _Part:
    """A flat plate with brush marks, slightly shifted and rotated, with all holes to drill."""
    shift, angle = rng.normal(0.0, 1.6, 2), np.deg2rad(rng.normal(0.0, 0.8))
    row, column = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    x = np.cos(angle) * (column - shift[0]) + np.sin(angle) * (row - shift[1])
    y = -np.sin(angle) * (column - shift[0]) + np.cos(angle) * (row - shift[1])
    corner, half = 16.0, 98.0
    dx, dy = np.abs(x) - half + corner, np.abs(y) - half + corner
    outside = np.hypot(np.maximum(dx, 0.0), np.maximum(dy, 0.0))
    edge = outside + np.minimum(np.maximum(dx, dy), 0.0) - corner
    return _Part(x, y, edge, _brushed(y, rng), np.ones((SIZE, SIZE, 3)), list(HOLES))


def _brushed(y: Field, rng: np.random.Generator) -> Field:
    """Height of the brush marks: long fine streaks along x."""
    long = np.interp(y, np.arange(-140, 140, 0.8), rng.normal(0.0, 0.035, 350))
    streaks = rng.normal(0.0, 1.0, (SIZE, SIZE + 48)).cumsum(axis=1)
    short = (streaks[:, 48:] - streaks[:, :-48]) / 48**0.5
    marks: Field = long + 0.035 * short
    return marks


def _engraving(part: _Part) -> Field:
    """1 in the grooves of the mark, 0 elsewhere."""
    depth = np.zeros_like(part.x)
    around = np.s_[176:212, 100:156]  # the mark and a margin; the rest would only cost time
    for stroke in MARK:
        x0, y0, x1, y1 = (float(value) for value in stroke)
        line = _to_segment(part.x[around], part.y[around] - 66.0, x0, y0, x1, y1)
        depth[around] = np.maximum(depth[around], _inside(line - 1.2))
    return depth


def _light(height: Field, rng: np.random.Generator) -> Field:
    """Brightness of a surface lit from the upper left, with a soft sheen across it."""
    slope_y, slope_x = np.gradient(height)
    length = np.sqrt(slope_x**2 + slope_y**2 + 1.0)
    lamp = np.array([-0.42, -0.58, 0.70]) + rng.normal(0.0, 0.015, 3)
    diffuse = np.clip((-slope_x * lamp[0] - slope_y * lamp[1] + lamp[2]) / length, 0.0, 1.2)
    row, column = np.mgrid[:SIZE, :SIZE] / SIZE
    centre = 0.42 + rng.normal(0.0, 0.03)
    sheen = 0.10 * np.exp(-(((row * 0.8 + column * 0.35 - centre) / 0.22) ** 2))
    brightness: Field = (0.10 + 0.72 * diffuse + sheen) * rng.normal(1.0, 0.015)
    return brightness


def _ground(part: _Part, rng: np.random.Generator) -> Field:
    """The dark mat under the part, with the part's soft shadow to the lower right."""
    grain = 0.17 + 0.012 * _clouds(rng, 24) + rng.normal(0.0, 0.006, (SIZE, SIZE))
    shadow = np.roll(part.edge, (5, 4), axis=(0, 1))
    grain = grain * (1.0 - 0.6 * np.exp(-np.maximum(shadow, 0.0) / 5.0))
    mat: Field = grain[..., None] * np.array([0.92, 1.0, 1.10])
    return mat


def _scratch(part: _Part, rng: np.random.Generator) -> None:
    """One to three thin grooves, slightly bent, at a slant to the brush marks."""
    angle = rng.uniform(0.35, 1.25) * rng.choice([-1.0, 1.0])
    cx, cy = _free_spot(rng, 58.0)
    length = rng.uniform(26.0, 46.0)
    for _ in range(int(rng.integers(1, 4))):
        bend = rng.normal(0.0, 0.0016)
        along, across = _turned(part, cx, cy, angle)
        line = np.abs(across - bend * along**2)
        groove = np.exp(-((line / 1.0) ** 2)) * _inside(np.abs(along) - length)
        part.height -= rng.uniform(1.3, 2.0) * groove
        part.colour *= (1.0 + 0.30 * groove)[..., None]
        cx, cy = cx + rng.uniform(4.0, 9.0), cy + rng.normal(0.0, 5.0)
        angle, length = angle + rng.normal(0.0, 0.05), length * rng.uniform(0.5, 0.9)


def _stain(part: _Part, rng: np.random.Generator) -> None:
    """A brown patch of oil or rust with a ragged, darker rim."""
    cx, cy = _free_spot(rng, 60.0)
    radius = rng.uniform(17.0, 30.0)
    ragged = np.hypot(part.x - cx, (part.y - cy) * rng.uniform(0.8, 1.3))
    distance = ragged - radius + 0.22 * radius * _clouds(rng, 9)
    body = 1.0 / (1.0 + np.exp(np.clip(distance / 2.2, -40.0, 40.0)))
    rim = np.exp(-(((distance + 2.5) / 2.5) ** 2))
    strength = rng.uniform(0.55, 0.95)
    cover = strength * (0.62 * body * (1.0 + 0.18 * _clouds(rng, 30)) + 0.26 * rim)
    part.colour *= 1.0 - np.clip(cover, 0.0, 0.9)[..., None] * np.array([0.42, 0.70, 0.98])


def _pits(part: _Part, rng: np.random.Generator) -> None:
    """A cluster of small dents."""
    cx, cy = _free_spot(rng, 60.0)
    for _ in range(int(rng.integers(8, 17))):
        px, py = rng.normal((cx, cy), 10.5)
        radius = rng.uniform(2.0, 4.2)
        bowl = np.clip(1.0 - ((part.x - px) ** 2 + (part.y - py) ** 2) / radius**2, 0.0, 1.0)
        part.height -= rng.uniform(0.8, 1.15) * radius * bowl
        part.colour *= (1.0 - 0.42 * bowl)[..., None]


def _missing_hole(part: _Part, rng: np.random.Generator) -> None:
    """One screw hole was never drilled; only the centre punch shows."""
    x, y = part.holes.pop(int(rng.integers(len(part.holes))))
    mark = np.exp(-((part.x - x) ** 2 + (part.y - y) ** 2) / 3.0)
    part.height -= rng.uniform(0.6, 1.4) * mark


def _edge_chip(part: _Part, rng: np.random.Generator) -> None:
    """A bite out of the outline, with a rough slope behind it."""
    side, along = int(rng.integers(4)), rng.uniform(-70.0, 70.0)
    cx, cy = ((along, -98.0), (98.0, along), (along, 98.0), (-98.0, along))[side]
    rough = 1.5 * _clouds(rng, 26)
    bite = np.full_like(part.edge, np.inf)
    for _ in range(3):
        px, py = rng.normal((cx, cy), 5.5)
        distance = np.hypot(part.x - px, part.y - py)
        bite = np.minimum(bite, distance - rng.uniform(8.0, 14.5) + rough)
    part.height -= 2.6 * np.clip(1.0 - bite / 7.0, 0.0, 1.0) + 0.5 * rough * (bite < 5.0)
    part.edge = np.maximum(part.edge, -bite)


def _nothing(part: _Part, rng: np.random.Generator) -> None:
    """A good part."""


_FLAWS: dict[str, Callable[[_Part, np.random.Generator], None]] = {
    "good": _nothing,
    "scratch": _scratch,
    "stain": _stain,
    "pits": _pits,
    "missing hole": _missing_hole,
    "edge chip": _edge_chip,
}


def _free_spot(rng: np.random.Generator, radius: float) -> tuple[float, float]:
    """A place on the ring of metal between the bore and the outline."""
    angle = rng.uniform(0.0, 2.0 * np.pi)
    return float(radius * np.cos(angle)), float(radius * np.sin(angle))


def _turned(part: _Part, cx: float, cy: float, angle: float) -> tuple[Field, Field]:
    dx, dy = part.x - cx, part.y - cy
    return (
        np.cos(angle) * dx + np.sin(angle) * dy,
        -np.sin(angle) * dx + np.cos(angle) * dy,
    )


def _to_segment(x: Field, y: Field, x0: float, y0: float, x1: float, y1: float) -> Field:
    """Distance of each place to a stroke."""
    dx, dy = x1 - x0, y1 - y0
    along = np.clip(((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
    distance: Field = np.hypot(x - x0 - along * dx, y - y0 - along * dy)
    return distance


def _inside(distance: Field) -> Field:
    """1 inside an outline, 0 outside, with a soft step one pixel wide."""
    return np.clip(0.5 - distance, 0.0, 1.0)


def _clouds(rng: np.random.Generator, cells: int) -> Field:
    """Smooth noise of mean 0 and spread about 1; `cells` bumps along each side."""
    coarse = Image.fromarray(rng.normal(0.0, 1.0, (cells, cells)).astype(np.float32))
    return np.asarray(coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC), dtype=np.float64)

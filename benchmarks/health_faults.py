"""The faults that benchmarks/health.py plants in sets of images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from flawsort.core.records import ImageSet
from flawsort.research.truth import EXCLUDED_LABELS, LabelledSet

FEW = 5
COPIES = 10
ODD = 3
# A day, in seconds, at which all files were changed, and the days between two lots.
DAY = 1_700_000_000
APART = 5 * 86_400
QUALITY = 95

Change = Callable[[Image.Image], Image.Image]


@dataclass(frozen=True)
class Case:
    """A set as it is grouped. truth: the label of each image. masks: the file that marks its flaw,
    or None. half: which images a fault was planted in, where that is a part of them."""

    images: ImageSet
    normals: ImageSet | None
    truth: tuple[str, ...]
    masks: tuple[Path | None, ...]
    half: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Spare:
    """others: normals of another product. good: good images of the set that are not in the case."""

    others: ImageSet
    good: ImageSet


@dataclass(frozen=True)
class Fault:
    """A fault. finds: the code of the finding that must be there; none if there must be no finding
    that is not there without the fault. plant: makes a case with it, from the case, what else there
    is, and a folder for files. followed: whether it only matters if groups follow it. sets: where
    it can be planted; everywhere if empty."""

    name: str
    finds: str
    plant: Callable[[Case, Spare, Path], Case]
    followed: bool = False
    sets: tuple[str, ...] = ()


def drawn(images: ImageSet, most: int, rows: Sequence[int] | None = None) -> list[int]:
    """The rows of a random sample, in order."""
    among = np.arange(len(images)) if rows is None else np.asarray(rows)
    return sorted(np.random.default_rng(0).permutation(among)[:most].tolist())


def case_of(data: LabelledSet, most: int, most_normals: int) -> Case:
    """A random sample of a set, with names that say nothing."""
    counted = [row for row, label in enumerate(data.labels) if label not in EXCLUDED_LABELS]
    rows, normals = drawn(data.images, most, counted), data.normals
    if normals is not None:
        normals = normals.take(drawn(normals, most_normals))
    images = data.images.take(rows)
    names = tuple(f"{row:04d}.jpg" for row in range(len(rows)))
    return Case(
        replace(images, names=names, set_aside=(), skipped=()),
        normals,
        tuple(data.labels[row] for row in rows),
        tuple(data.masks[row] for row in rows),
    )


def as_files(
    case: Case,
    folder: Path,
    change: Change | None = None,
    *,
    half: Sequence[bool] = (),
    lots: bool = False,
    quality: int = QUALITY,
) -> Case:
    """The case with its images written to a folder. change: of the pictures of the half, or of all
    without a half. lots: whether the half is in a folder and on a day of its own."""
    names, sources, digests = [], [], []
    for row, source in enumerate(case.images.sources):
        changed = half[row] if len(half) else True
        lot = "lot-2" if lots and changed else "lot-1"
        name = f"{lot}/{row:04d}.jpg" if lots else f"{row:04d}.jpg"
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if change is None or not changed:
            path.write_bytes(Path(str(source)).read_bytes())
        else:
            with Image.open(Path(str(source))) as picture:
                made = change(picture.convert("RGB"))
            made.save(path, "JPEG", quality=quality)
        at = DAY + (APART if lots and changed else 0)
        os.utime(path, (at, at))
        names.append(name)
        sources.append(path)
        digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
    images = ImageSet(tuple(names), tuple(sources), tuple(digests))
    return replace(case, images=images, half=tuple(map(bool, half)))


def half_of(case: Case) -> list[bool]:
    """A random half of the images of each label, so that it tells nothing about the flaw."""
    rng, chosen = np.random.default_rng(1), np.zeros(len(case.truth), bool)
    truth = np.array(case.truth)
    for label in np.unique(truth):
        rows = rng.permutation(np.flatnonzero(truth == label))
        chosen[rows[: (len(rows) + int(rng.integers(2))) // 2]] = True
    return chosen.tolist()


# ---- the faults ----


def _lots(case: Case, spare: Spare, folder: Path) -> Case:
    return as_files(case, folder, half=half_of(case), lots=True)


def _light(case: Case, spare: Spare, folder: Path) -> Case:
    def brighter(picture: Image.Image) -> Image.Image:
        return picture.point([min(255, round(1.3 * value + 20)) for value in range(256)] * 3)

    return as_files(case, folder, brighter, half=half_of(case), lots=True)


def _lamp(case: Case, spare: Spare, folder: Path) -> Case:
    """Half of the images under another lamp: darker, and much redder."""

    def under_lamp(picture: Image.Image) -> Image.Image:
        pixels = np.asarray(picture) * np.array([0.75, 0.55, 0.35])
        return Image.fromarray(pixels.astype(np.uint8))

    return as_files(case, folder, under_lamp, half=half_of(case), lots=True)


def _turned(case: Case, spare: Spare, folder: Path) -> Case:
    return as_files(
        case, folder, lambda one: one.transpose(Image.Transpose.ROTATE_90), half=half_of(case)
    )


def _compressed(case: Case, spare: Spare, folder: Path) -> Case:
    return as_files(case, folder, lambda one: one, half=half_of(case), quality=8)


def _spot(case: Case, spare: Spare, folder: Path) -> Case:
    """Dirt on the lens: the same dark spot in the same place."""

    def dirty(picture: Image.Image) -> Image.Image:
        pixels = np.asarray(picture).astype(np.float64)
        down, across = np.mgrid[: picture.height, : picture.width]
        far = np.hypot(down - 0.3 * picture.height, across - 0.7 * picture.width)
        shade = np.clip(far / (0.04 * min(picture.size)), 0, 1)[..., None]
        return Image.fromarray((pixels * shade + 20 * (1 - shade)).astype(np.uint8))

    return as_files(case, folder, dirty)


def _dust(case: Case, spare: Spare, folder: Path) -> Case:
    """Bright dust on the table: in each picture beside other corners, away from the border."""
    rng = np.random.default_rng(2)

    def dusty(picture: Image.Image) -> Image.Image:
        pixels = np.asarray(picture).copy()
        high, wide = picture.height, picture.width
        size = max(3, round(0.03 * min(high, wide)))
        for _ in range(6):
            down, across = ((0.06 + 0.08 * rng.random(2)) * np.array([high, wide])).astype(int)
            down = down if rng.integers(2) else high - size - down
            across = across if rng.integers(2) else wide - size - across
            pixels[down : down + size, across : across + size] = rng.integers(90, 250, 3)
        return Image.fromarray(pixels)

    return as_files(case, folder, dusty)


def _odd(case: Case, spare: Spare, folder: Path) -> Case:
    """A few images are much larger, brighter and of another shape."""

    def larger(picture: Image.Image) -> Image.Image:
        wide, high = picture.size
        bright = picture.point([min(255, round(1.3 * value + 20)) for value in range(256)] * 3)
        return bright.resize((3 * wide, 2 * high))

    chosen = np.random.default_rng(3).permutation(len(case.truth))[:ODD]
    half = [row in chosen for row in range(len(case.truth))]
    return as_files(case, folder, larger, half=half)


def _framed(case: Case, spare: Spare, folder: Path) -> Case:
    """A frame around the picture that the normals do not have, as of a scanner."""

    def framed(picture: Image.Image) -> Image.Image:
        pixels = np.asarray(picture).copy()
        wide = max(2, round(0.03 * min(picture.size)))
        inner = pixels[wide:-wide, wide:-wide].copy()
        pixels[:] = 235
        pixels[wide:-wide, wide:-wide] = inner
        return Image.fromarray(pixels)

    return as_files(case, folder, framed)


def _other_normals(case: Case, spare: Spare, folder: Path) -> Case:
    return replace(case, normals=spare.others)


def _few_normals(case: Case, spare: Spare, folder: Path) -> Case:
    assert case.normals is not None
    return replace(case, normals=case.normals.take(range(FEW)))


def _copies(case: Case, spare: Spare, folder: Path) -> Case:
    """Some normals lie among the images, too."""
    assert case.normals is not None
    copies = case.normals.take(range(COPIES))
    images = ImageSet(
        case.images.names + tuple(f"copy-{row}.jpg" for row in range(COPIES)),
        case.images.sources + copies.sources,
        case.images.digests + copies.digests,
    )
    return replace(
        case,
        images=images,
        truth=case.truth + ("good",) * COPIES,
        masks=case.masks + (None,) * COPIES,
    )


def _all_good(case: Case, spare: Spare, folder: Path) -> Case:
    n = len(spare.good)
    return as_files(Case(spare.good, case.normals, ("good",) * n, (None,) * n), folder)


FAULTS = (
    Fault("two lots alike", "", _lots),
    Fault("half brighter", "groups-follow", _light, followed=True),
    Fault("half under another lamp", "groups-follow", _lamp, followed=True),
    Fault("half turned", "groups-follow", _turned, followed=True),
    Fault("half compressed", "groups-follow", _compressed, followed=True),
    Fault("3 odd images", "", _odd),
    Fault("dirt on the lens", "same-place", _spot),
    Fault("dust on the table", "heat-on-background", _dust, sets=("bottle", "capsule", "hazelnut")),
    Fault("frame", "heat-at-border", _framed),
    Fault("other product", "normals-unlike", _other_normals),
    Fault("5 normals", "few-normals", _few_normals),
    Fault("copies", "normals-among-images", _copies),
    Fault("nothing wrong", "not-apart", _all_good),
)

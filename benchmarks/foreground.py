"""Measure whether heat lies beside the part, and what it would change to look at the part alone.

    python benchmarks/foreground.py --data DIR [--data DIR ...] [--only SET ...] [--busy SET ...]
        [--preset fast] [--images 60] [--normals 40] [--cache DIR]
        [--from features [--way both] [--margin 0] [--at 1]] [--from middle [--side 208]]
        [--draws 6]

The part is what differs from the colour of the border and is not joined to it, in sets whose
background is plain. With --from features it is found without colours and without knowing the set,
by the features of the normals: along the first few principal directions of their patches, with a
threshold between the two sides (foreground_features.py). It says whether the background is plain
by the same features, and sets without one are left out. The images of --busy are also cut out and
each put on a background of its own, a piece of the normals of --texture, so that no background is
like another; there the part is known exactly. Samples are random: up to --images images and
--normals normals.

--way: the part is where the patches of an image are the part (own), where those of a tenth of the
normals are (place), or both together. --margin: with so many patches around it. --at: the threshold
lies there between the mean of the background (0) and the one between the two sides (1).

--from middle takes a square in the middle of the picture (--side pixels of 256) for the part, which
shows what a foreground gives that knows nothing. --draws also measures so many random draws of 70%
of the images and half of the normals, and prints the mean gain over them with its standard error.

    part       the share of the picture that the part covers, with the patches beside it
    cut        the share of the marked flaws that lies beside the part, which would not be seen
    hurt       the share of the marked images that lose more than a tenth of their mark so
    heat       the share of the heat that lies beside the part (two patches from it or more)
    peak       the share of the unusual images whose hottest patch does
    pixels     AUROC of the heat of all patches of all images against the masks: as it is, and with
               no heat beside the part
    images     AUROC of the image scores: as it is, and with the part alone
    NMI        of the groups (the true number is given), as the mean over cuts of 10 random subsets
               of 90% of the images: as it is, and with the part alone; then the standard error of
               each, and that of their difference. The subsets overlap, so it is too small

"The part alone" means that patches beside the part do not count: neither in the normals nor in the
images (they are not `valid`). With colours it is the best that such a foreground could do, as the
part is cut with what is known of each set.
"""

from __future__ import annotations

import argparse
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage
from sklearn.metrics import normalized_mutual_info_score

from flawsort import AnomalyClusterer
from flawsort.backbones import BackboneChoice, open_backbone
from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints
from flawsort.embeddings.method import views_of
from flawsort.fitting.source import FileSource
from flawsort.images.view import View
from flawsort.research.metrics import auroc
from flawsort.research.truth import LabelledSet
from foreground_features import WAYS, directions_of, foreground_of
from health_faults import Case, case_of
from quality import GOOD_LABELS, load_sets

SIDE = 256
# As in flawsort.health.pictures: colours closer than this, of 255, are alike.
ALIKE = 24.0
LEAST_PLAIN = 0.7
# Patches this far from the part are beside it.
BESIDE = 2
SUBSETS = 10
SOURCES = ("colour", "features", "middle")
GAINS = ("pixels", "images", "NMI")
# An image is hurt by a foreground that cuts off more than this of its mark.
HURT = 0.1
COLUMNS = (
    *("part", "heat", "peak", "cut", "hurt", "pixels", "alone", "images", "alone"),
    *("NMI", "alone", "error", "error", "of both"),
)


@dataclass(frozen=True)
class Seen:
    """A sample with its bags and parts. parts, normal_parts: (n, SIDE, SIDE), True on the part."""

    case: Case
    images: Bags
    normals: Bags
    parts: Bools
    normal_parts: Bools

    def take(self, rows: Ints, normals: Ints) -> Seen:
        case = replace(
            self.case,
            images=self.case.images.take(rows),
            truth=tuple(self.case.truth[row] for row in rows),
            masks=tuple(self.case.masks[row] for row in rows),
        )
        images, beside = self.images.take(rows), self.normals.take(normals)
        return Seen(case, images, beside, self.parts[rows], self.normal_parts[normals])


def plain_part(picture: Image.Image) -> Bools | None:
    """(SIDE, SIDE): the part on a plain background; None if there is no plain background."""
    pixels = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), np.float64)
    edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    usual = np.median(edge, axis=0)
    alike = np.abs(pixels - usual).mean(axis=2) <= ALIKE
    if (np.abs(edge - usual).mean(axis=1) <= ALIKE).mean() < LEAST_PLAIN:
        return None
    joined, _ = ndimage.label(alike)
    rim = np.concatenate([joined[0], joined[-1], joined[:, 0], joined[:, -1]])
    background = np.isin(joined, np.unique(rim[rim > 0]))
    part: Bools = ndimage.binary_opening(~background, iterations=2)
    return part if 0.02 < part.mean() < 0.95 else None


def parts_of(images: ImageSet) -> Bools | None:
    """(n, SIDE, SIDE); None if fewer than nine in ten images have a plain background. Images
    without one count as nothing but part."""
    found = []
    for source in images.sources:
        with Image.open(Path(str(source))) as picture:
            found.append(plain_part(picture))
    if np.mean([one is not None for one in found]) < 0.9:
        return None
    whole = np.ones((SIDE, SIDE), bool)
    return np.stack([whole if one is None else one for one in found])


def on_busy(images: ImageSet, parts: Bools, textures: ImageSet, seed: int) -> ImageSet:
    """The images cut out, each on a random piece of a texture of a random brightness."""
    rng, sources, digests = np.random.default_rng(seed), [], []
    for source, part in zip(images.sources, parts, strict=True):
        with Image.open(Path(str(source))) as picture:
            pixels = np.asarray(picture.convert("RGB"), np.float64)
        with Image.open(Path(str(textures.sources[rng.integers(len(textures))]))) as texture:
            behind = np.asarray(texture.convert("RGB").resize((768, 768)), np.float64)
        high, wide = pixels.shape[:2]
        down, across = rng.integers(0, 768 - high + 1), rng.integers(0, 768 - wide + 1)
        behind = behind[down : down + high, across : across + wide] * rng.uniform(0.6, 1.4)
        mask = Image.fromarray(np.uint8(255 * part)).resize((wide, high))
        share = np.asarray(mask, np.float64)[..., None] / 255
        made = np.clip(pixels * share + behind * (1 - share), 0, 255).astype(np.uint8)
        content = io.BytesIO()
        Image.fromarray(made).save(content, "PNG")
        sources.append(made)
        digests.append(hashlib.sha256(content.getvalue()).hexdigest())
    return replace(images, sources=tuple(sources), digests=tuple(digests))


def bags_of(images: ImageSet, preset: str, cache: str | Path | None) -> Bags:
    """The bags of images in their order, in all views of a preset."""
    chosen = views_of(AnomalyClusterer(method=preset).method)
    backbones = tuple(open_backbone(one) for one in chosen if isinstance(one, BackboneChoice))
    held = FileSource(images, backbones, View(tiles=(1, 1)), cache).hold()
    row_of = {digest: row for row, digest in enumerate(held.contents.digests)}
    return held.bags.take([row_of[digest] for digest in images.digests])


def on_grid(parts: Bools, grid: tuple[int, int]) -> Bools:
    """(n, n_patches): patches that show any of the part, or that are beside one that does."""
    small = [
        np.asarray(Image.fromarray(np.uint8(255 * part)).resize(grid[::-1], Image.Resampling.BOX))
        for part in parts
    ]
    grown = [ndimage.binary_dilation(one > 12, iterations=BESIDE - 1) for one in small]
    return np.stack(grown).reshape(len(parts), -1)


def part_alone(bags: Bags, parts: Bools) -> Bags:
    """The bags without the patches beside the part, which hold a copy of another one."""
    views = []
    for one in bags.views:
        valid = on_grid(parts, one.grid)
        first = valid.argmax(axis=1)
        patches = np.where(
            valid[..., None], one.patches, one.patches[np.arange(len(one)), first][:, None]
        )
        views.append(replace(one, patches=patches, valid=valid))
    return replace(views[0], beside=tuple(views[1:]))


def masks_of(case: Case, grid: tuple[int, int]) -> Floats | None:
    """(n, n_patches): the share of each patch that is marked; None if there are no masks."""
    if not any(case.masks):
        return None
    found = np.zeros((len(case.truth), grid[0] * grid[1]))
    for row, path in enumerate(case.masks):
        if path is not None:
            with Image.open(path) as mask:
                small = mask.convert("L").resize(grid[::-1], Image.Resampling.BOX)
            found[row] = np.asarray(small, np.float64).ravel() / 255
    return found


def area(scores: NDArray[np.float64], marked: Bools) -> float:
    value = auroc(scores, marked)
    return float("nan") if value is None else float(value)


def cuts(marked: Floats | None, on_part: Bools) -> list[float]:
    """The share of all marks that lies beside the part, and that of the marked images that lose
    more than HURT of theirs. marked: (n, n_patches), the share of each patch that is marked."""
    if marked is None:
        return [float("nan")] * 2
    whole, beside = marked.sum(axis=1), np.where(on_part, 0, marked).sum(axis=1)
    flawed = whole > 0
    lost = beside[flawed] / whole[flawed]
    return [float(beside.sum() / whole.sum()), float((lost > HURT).mean())]


def measure(seen: Seen, preset: str) -> list[float]:
    case, images, normals = seen.case, seen.images, seen.normals
    k, good = len(set(case.truth)), np.isin(case.truth, GOOD_LABELS)
    model = AnomalyClusterer(method=preset, n_clusters=k).fit(images, normal=normals)
    alone = AnomalyClusterer(method=preset, n_clusters=k).fit(
        part_alone(images, seen.parts), normal=part_alone(normals, seen.normal_parts)
    )
    scores, on_part = np.asarray(model.scores_, np.float64), on_grid(seen.parts, images.grid)
    heat = model.heat_.normalise(scores)
    unusual = heat.max(axis=1) > 0
    peaks = ~on_part[np.arange(len(heat)), scores.argmax(axis=1)]
    marked = masks_of(case, images.grid)
    pixels = [float("nan")] * 2
    if marked is not None:
        hot = (marked > 0.25).ravel()
        pixels = [
            area(scores.ravel(), hot),
            area(np.where(on_part, scores, scores.min()).ravel(), hot),
        ]
    found = [nmi_of_subsets(one.embeddings_, list(case.truth), k) for one in (model, alone)]
    return [
        float(on_part.mean()),
        float(heat[~on_part].sum() / max(heat.sum(), 1e-9)),
        float(peaks[unusual].mean()) if unusual.any() else 0.0,
        *cuts(marked, on_part),
        *pixels,
        *(area(one.image_scores_, ~good) for one in (model, alone)),
        *(float(one.mean()) for one in found),
        *(standard_error(one) for one in (*found, found[1] - found[0])),
    ]


def gains(seen: Seen, preset: str, draws: int) -> NDArray[np.float64]:
    """(draws, 3): what the part alone adds to pixels, images and NMI, each with other images and
    other normals, as one sample alone may be lucky."""
    rng, found = np.random.default_rng(0), []
    for _ in range(draws):
        rows, normals = (
            np.sort(rng.permutation(len(bags))[: round(share * len(bags))])
            for bags, share in ((seen.images, 0.7), (seen.normals, 0.5))
        )
        figures = measure(seen.take(rows, normals), preset)
        columns = [COLUMNS.index(name) for name in GAINS]
        found.append([figures[column + 1] - figures[column] for column in columns])
    return np.array(found)


def nmi_of_subsets(embeddings: Floats, truth: list[str], k: int) -> NDArray[np.float64]:
    """(SUBSETS,): of cuts of random subsets, so that one cut does not decide."""
    rng, kinds, found = np.random.default_rng(0), np.array(truth), []
    for _ in range(SUBSETS):
        rows = np.sort(rng.permutation(len(kinds))[: round(0.9 * len(kinds))])
        labels = cut(ward_linkage(embeddings[rows]), k)
        found.append(normalized_mutual_info_score(kinds[rows], labels))
    return np.array(found)


def standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def samples(
    data: LabelledSet, textures: LabelledSet | None, options: argparse.Namespace
) -> list[tuple[str, Seen]]:
    case = case_of(data, options.images, options.normals)
    if case.normals is None:
        return []
    by_colour, wants_busy = options.source == "colour", data.name in options.busy
    parts = normal_parts = None
    if wants_busy or by_colour:
        parts, normal_parts = parts_of(case.images), parts_of(case.normals)
    cut_out = parts is not None and normal_parts is not None
    if not cut_out and (wants_busy or by_colour):
        print(f"{data.name:<18} no plain background")
    cases = [(data.name, case)] if cut_out or not by_colour else []
    if cut_out and wants_busy and textures is not None and textures.normals is not None:
        behind = textures.normals
        busy = replace(
            case,
            images=on_busy(case.images, parts, behind, 0),
            normals=on_busy(case.normals, normal_parts, behind, 1),
        )
        cases.append((f"{data.name}, busy", busy))
    return [
        (title, seen)
        for title, one in cases
        if (seen := with_parts(title, one, parts, normal_parts, options)) is not None
    ]


def with_parts(
    title: str,
    case: Case,
    parts: Bools | None,
    normal_parts: Bools | None,
    options: argparse.Namespace,
) -> Seen | None:
    """The case with the parts by colour, which are given, by features, or in the middle; None
    without a plain background."""
    assert case.normals is not None
    images, normals = (
        bags_of(one, options.preset, options.cache) for one in (case.images, case.normals)
    )
    if options.source == "features":
        for one in directions_of(normals, options.at):
            print(f"{title:<18} {one.number}: border {one.border:.3f}, apart {one.apart:.3f}")
        found = foreground_of(normals, options.at)
        print(f"{title:<18} {'no plain background' if found is None else f'takes {found.number}'}")
        if found is None:
            return None
        parts, normal_parts = (
            pictures_of(found.parts(one, options.way, options.margin)) for one in (images, normals)
        )
    if options.source == "middle":
        parts, normal_parts = (middle_of(len(one), options.side) for one in (images, normals))
    assert parts is not None
    assert normal_parts is not None
    return Seen(case, images, normals, parts, normal_parts)


def middle_of(count: int, side: int) -> Bools:
    """(count, SIDE, SIDE): a square in the middle."""
    parts, start = np.zeros((count, SIDE, SIDE), bool), (SIDE - side) // 2
    parts[:, start : start + side, start : start + side] = True
    return parts


def pictures_of(parts: Bools) -> Bools:
    """(n, rows, columns) -> (n, SIDE, SIDE)"""
    sized = [Image.fromarray(one).resize((SIDE, SIDE), Image.Resampling.NEAREST) for one in parts]
    return np.stack([np.asarray(one, bool) for one in sized])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--only", nargs="+", default=[], metavar="SET")
    parser.add_argument("--busy", nargs="*", default=[], metavar="SET")
    parser.add_argument("--texture", default="leather", metavar="SET")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--normals", type=int, default=40)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--from", dest="source", choices=SOURCES, default=SOURCES[0])
    parser.add_argument("--way", choices=WAYS, default=WAYS[0])
    parser.add_argument("--margin", type=int, default=0)
    parser.add_argument("--at", type=float, default=1.0)
    parser.add_argument("--side", type=int, default=208)
    parser.add_argument("--draws", type=int, default=0)
    options = parser.parse_args(arguments)
    names = [*options.only, options.texture] if options.only and options.busy else options.only
    sets = {one.name: one for one in load_sets(options.data, names)}
    print(f"{'set':<18}" + "".join(f"{name:>8}" for name in COLUMNS))
    for name in options.only or sets:
        for title, seen in samples(sets[name], sets.get(options.texture), options):
            figures = measure(seen, options.preset)
            print(f"{title:<18}" + "".join(f"{one:>8.3f}" for one in figures), flush=True)
            if options.draws:
                print_gains(title, gains(seen, options.preset, options.draws))


def print_gains(title: str, found: NDArray[np.float64]) -> None:
    each = [
        f"{name} {one.mean():+.3f} ({standard_error(one):.3f})"
        for name, one in zip(GAINS, found.T, strict=True)
    ]
    print(f"{title:<18} gain over {len(found)} draws: {', '.join(each)}", flush=True)


if __name__ == "__main__":
    main()

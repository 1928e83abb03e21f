"""Small runs to export: pictures on disk, three groups of them, and regions that stand out."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort import Run, View
from flawsort.labels.groups import Labelling, first_labelling
from helpers.runs import GRID as GRID
from helpers.runs import MadeRegion, build_run

INPUT = (64, 80)
# A run has twelve images: 0 to 4 in cluster 0, 5 to 8 in 1, 9 to 11 in 2.
CLUSTERS = (0,) * 5 + (1,) * 4 + (2,) * 3
SIZES = ((40, 30), (50, 40), (33, 47), (40, 30), (64, 16), (20, 20))
NAMES = tuple(f"lot {n // 5}/part-{n:02d}.png" for n in range(len(CLUSTERS)))
HOSTILE_NAMES = (
    "<script>alert(1)</script>.png",
    "../../outside.png",
    "/etc/absolute.png",
    "A/same.png",
    "a/SAME.png",
    "nul \x00 byte.png",
    "line\nbreak\t\x1b[31m.png",
    "\U0001f529 bolt \u202e gnp.png",
    "long-" + "x" * 300 + ".png",
    "con.png",
    'C:\\dir\\"quoted" & $image | *?.png',
    ".hidden/..",
)
HOSTILE_TITLES = (
    '</script ><img src=x onerror="alert(1)">',
    "../../up",
    "scratch",
    "Scratch",
    "nul \x00 and \x1b[31m \ud800",
    "\U0001f529; $image {{ 7 * 7 }}",
    "x" * 300,
    "x" * 300 + "y",
    "images.csv",
    "con",
    "]]> & 'more'",
)
# image, number, cluster, mask: the first three are like their own group, one is like another, one
# like none, and one is in an image of a group that looks normal.
REGIONS = (
    (0, 0, 0, "6-8 11-13"),
    (0, 1, 1, "18-19"),
    (1, 0, 0, "0-1 5"),
    (5, 0, 1, "9 13-14"),
    (6, 0, -1, "2"),
    (9, 0, 2, "7"),
)


def picture(number: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    return np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)


def make_run(
    folder: Path,
    *,
    names: Sequence[str] = NAMES,
    view: View | None = None,
    regions: Sequence[tuple[int, int, int, str]] = REGIONS,
    clusters: Sequence[int] = CLUSTERS,
) -> Run:
    """A run over pictures that are written to a folder. The last cluster looks normal."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}.png" for number in range(len(names))]
    for number, path in enumerate(paths):
        Image.fromarray(picture(number, SIZES[number % len(SIZES)])).save(path)
    rng = np.random.default_rng(0)
    k, n = max(clusters) + 1, len(names)
    return build_run(
        clusters,
        names=names,
        regions=[MadeRegion(image, cluster, mask) for image, _, cluster, mask in regions],
        view=view,
        embeddings=4.0 * np.eye(3)[np.array(clusters) % 3] + rng.random((n, 3)),
        scores=rng.random((n, GRID[0] * GRID[1])),
        thumbnails=tuple(jpeg(path) for path in paths),
        table={
            "path": [str(path) for path in paths],
            "sha256": [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths],
            "kinds": [str(cluster) for cluster in clusters],
            "flags": ["looks-normal" if c == k - 1 else "" for c in clusters],
        },
    )


def jpeg(path: Path) -> bytes:
    stream = io.BytesIO()
    with Image.open(path) as image:
        image.save(stream, "JPEG")
    return stream.getvalue()


def named(run: Run, *titles: str) -> Labelling:
    """The first labelling with names for its groups, "" for none; two images are confirmed."""
    labelling = first_labelling(run)
    groups = {
        number: replace(group, name=titles[number] if number < len(titles) else "")
        for number, group in labelling.groups.items()
    }
    confirmed = labelling.confirmed.copy()
    confirmed[[0, 5]] = True
    return replace(labelling, groups=groups, confirmed=confirmed)


def hostile(folder: Path) -> tuple[Run, Labelling]:
    """As many groups as there are hostile titles, and images with hostile names."""
    clusters = (*range(len(HOSTILE_TITLES)), 0)
    regions = [(row, 0, row, "7-8") for row in range(len(HOSTILE_TITLES) - 1)]
    run = make_run(folder, names=HOSTILE_NAMES, clusters=clusters, regions=regions)
    run.table["flags"] = [""] * len(clusters)
    return run, named(run, *HOSTILE_TITLES)

"""What the checks may look at: results of a fit, small pictures, and what the files say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Floats, Ints, RemoteFile, Source
from flawsort.core.threads import blocks, in_threads
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.method import EMBEDDINGS
from flawsort.fitting.fitted import Fitted
from flawsort.health.pictures import SIDE, Pictured, cold_squares, measured
from flawsort.images.decode import MAX_PIXELS, UnreadableImage, upright_size
from flawsort.images.tiles import Size, shrunk_each
from flawsort.images.view import View

# Reading headers waits for the disk more than it computes.
_THREADS = 8
# Of a larger set, so many files are opened; their sizes tell as much.
MOST_FILES = 5000
# The patches of so many images are looked at at a time.
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Filed:
    """What the files of images say, each (n,), NaN or "" where it is not known.

    width, height: of the upright image in pixels. size: of the file in bytes. day: when it was
    changed last, in days, with the time as a fraction. folder: the part of the name before the last
    slash.
    """

    width: NDArray[np.float64]
    height: NDArray[np.float64]
    size: NDArray[np.float64]
    day: NDArray[np.float64]
    folder: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """The facts about n images.

    digests: of their contents. normal_digests: of the normals, or None. scores, valid: (n,
    n_patches) on the grid. heat: their scale. image_scores, labels: (n,). embeddings: (n, dim).
    linkage: (n - 1, 4). compared: whether scores mean anything. pictured, filed: see there.
    clusterer: what grouped the embeddings, see Method; None if something else was grouped.
    input_size, view: how images are looked at. missing: what is not known, in sentences.
    """

    names: tuple[str, ...]
    digests: tuple[str, ...]
    normal_digests: tuple[str, ...] | None
    scores: Floats
    valid: Bools | None
    grid: tuple[int, int]
    heat: HeatScale
    image_scores: Floats
    labels: Ints
    embeddings: Floats
    linkage: Floats
    compared: bool
    pictured: Pictured
    filed: Filed
    view: View = field(default_factory=View)
    input_size: tuple[int, int] = (0, 0)
    random_state: int = 0
    clusterer: str | None = "ward"
    missing: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_groups(self) -> int:
        return int(self.labels.max()) + 1

    @cached_property
    def photos(self) -> list[Size]:
        """What the view shows of each image, in pixels."""
        files = self.filed
        return [
            self.view.shown((int(wide), int(high))) if np.isfinite(wide) else None
            for wide, high in zip(files.width, files.height, strict=True)
        ]

    @cached_property
    def shrunk(self) -> NDArray[np.float64]:
        """(n,): how many times smaller each image is looked at than it is; 0 if not known."""
        if 0 in self.input_size:
            return np.zeros(len(self))
        return shrunk_each(self.photos, self.input_size, self.view.layout)


def facts_of(fitted: Fitted, pictures: Sequence[bytes]) -> Facts:
    """The facts about the results of a fit. pictures: a small JPEG of each image's view, or empty
    bytes. Files are read only here, and only their headers."""
    images, compared = fitted.images, fitted.describer.method.has_scores
    # Bags have one pixel in the place of a picture.
    in_pictures = pictures if fitted.backbones else [b""] * len(images)
    filed, missing = _filed(images.names, images.sources)
    seen = sum(map(bool, in_pictures))
    missing += _unless_all(
        seen, len(images), "Brightness, colour, background, position and direction"
    )
    if compared and fitted.heat.normal_below is None:
        missing += (
            "Whether good and flawed images come apart is not known: that takes known-good images "
            "(--normal, 8 or more).",
        )
    clusterer: str | None = fitted.describer.method.clusterer
    if fitted.describer.method.distance != EMBEDDINGS:
        clusterer = None
        missing += (
            "Whether the groups stay the same without some of the images is not known: the "
            "distances between images are not stored.",
        )
    return Facts(
        names=images.names,
        digests=images.digests,
        normal_digests=None if fitted.normals is None else fitted.normals.digests,
        scores=fitted.scores,
        valid=fitted.valid,
        grid=fitted.grid,
        heat=fitted.heat,
        image_scores=fitted.image_scores,
        labels=fitted.labels,
        embeddings=fitted.embeddings,
        linkage=fitted.linkage,
        compared=compared,
        pictured=measured(in_pictures, _cold(fitted)),
        filed=filed,
        view=fitted.view,
        input_size=fitted.input_size if fitted.backbones else (0, 0),
        random_state=fitted.random_state,
        clusterer=clusterer,
        missing=missing,
    )


def _cold(fitted: Fitted) -> Bools:
    """(n, SIDE, SIDE): where images surely show no flaw, a few at a time: the heat of a large set
    takes more memory than all its scores."""
    cold = np.empty((len(fitted.images), SIDE, SIDE), bool)
    for rows in blocks(len(cold), ROWS_AT_ONCE):
        heat = fitted.heat.normalise(fitted.scores[rows])
        if fitted.valid is not None:
            heat = np.where(fitted.valid[rows], heat, 0.0)
        cold[rows] = cold_squares(heat, fitted.grid)
    return cold


def _unless_all(known: int, n: int, what: str) -> tuple[str, ...]:
    if known == n:
        return ()
    of = f"only of {known:,} of the {n:,} images" if known else "of no image"
    return (f"{what} are known {of}.",)


def _filed(names: Sequence[str], sources: Sequence[Source]) -> tuple[Filed, tuple[str, ...]]:
    """What the files say, and what is not known. Of a URL nothing is: that would be a request for
    each image."""
    n = len(names)
    rows = np.arange(n) if n <= MOST_FILES else np.linspace(0, n - 1, MOST_FILES).astype(int)
    local = [int(row) for row in rows if not isinstance(sources[row], RemoteFile)]
    values = np.full((4, n), np.nan)
    for row, found in zip(
        local, in_threads(lambda row: _of_file(sources[row]), local, threads=_THREADS), strict=True
    ):
        values[:, row] = found
    known = int(np.isfinite(values[0]).sum())
    missing = _unless_all(known, n, "Sizes and times of files")
    folders = tuple(name.rpartition("/")[0] for name in names)
    width, height, size, day = values
    return Filed(width, height, size, day, folders), missing


def _of_file(source: Source) -> tuple[float, float, float, float]:
    """Width, height, bytes and time of a file; NaN if it is gone, or if it is none."""
    if not isinstance(source, Path):
        return *upright_size(source, MAX_PIXELS), np.nan, np.nan
    try:
        about = source.stat()
        wide, high = upright_size(source, MAX_PIXELS)
        at = datetime.fromtimestamp(about.st_mtime)
        day = at.toordinal() + (at.hour + (at.minute + at.second / 60) / 60) / 24
    except (UnreadableImage, OSError, OverflowError, ValueError):
        return np.nan, np.nan, np.nan, np.nan
    return wide, high, about.st_size, day

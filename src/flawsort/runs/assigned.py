"""Batches of new images that were sorted into a run, and are kept in it for the review.

run/assigned/NAME/ holds table.parquet (one row per image, as `flawsort assign -o` writes it, with
its period and the proposed new kind), thumbnails.bin and thumbnails.npy, and about.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import Assignment
from flawsort.core.errors import OptionError, RunError
from flawsort.core.records import Floats, ImageSet
from flawsort.core.storage import new_folder
from flawsort.core.tables import INTEGER, NUMBER, TEXT, Column, Columns, Table, read_parquet
from flawsort.runs.folder import ASSIGNED as ASSIGNED
from flawsort.runs.stored import PicturesPart
from flawsort.runs.tables import SEVERAL, source_paths

TABLE, ABOUT = "table.parquet", "about.json"
THUMBNAILS = PicturesPart(files=("thumbnails.bin", "thumbnails.npy"))
# A name is used as a folder and in an address.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class SortedImages:
    """The data of the table of new images.

    found: their groups. scores: (n,), how unusual each image is. titles: of each image's group.
    periods: the period of each image. proposals: (n,), from `proposals`.
    """

    images: ImageSet
    found: Assignment
    scores: Floats
    titles: Sequence[str]
    periods: Sequence[str]
    proposals: Sequence[int]


NEW_IMAGES = Columns[SortedImages](
    Column("name", TEXT, "as in images.csv", lambda of: of.images.names),
    Column("path", TEXT, "where the file is", lambda of: source_paths(of.images)),
    Column("sha256", TEXT, "of the file's bytes", lambda of: of.images.digests),
    Column(
        "cluster", INTEGER, "of the run, or -1: a new kind", lambda of: of.found.labels.tolist()
    ),
    Column("title", TEXT, "the title of that group in the review", lambda of: of.titles),
    Column(
        "kinds",
        TEXT,
        "its cluster, then the other clusters that its regions resemble, separated by ;",
        lambda of: [SEVERAL.join(map(str, groups)) for groups in of.found.kinds],
    ),
    Column(
        "confidence",
        NUMBER,
        "the share of the run's images that lie less clearly in their group; 0 for a new kind",
        lambda of: of.found.confidence.tolist(),
    ),
    Column(
        "nearest",
        INTEGER,
        "the nearest cluster, also for a new kind",
        lambda of: of.found.nearest.tolist(),
    ),
    Column(
        "runner_up",
        INTEGER,
        "the second nearest cluster",
        lambda of: of.found.placed.runner_up.tolist(),
    ),
    Column(
        "novelty",
        NUMBER,
        "the distance to the nearest images of the run; above 1 it is a new kind",
        lambda of: of.found.novelty.tolist(),
    ),
    Column("score", NUMBER, "how unusual the image is", lambda of: of.scores.tolist()),
    Column("period", TEXT, "the day, lot or folder that it is counted in", lambda of: of.periods),
    Column(
        "proposal", INTEGER, "the proposed new kind, counted from 0, or -1", lambda of: of.proposals
    ),
)
"""The columns of `flawsort assign -o`, and of a batch that a run keeps."""


@dataclass(frozen=True)
class Kept:
    """A batch of new images. table: its columns. thumbnails: one JPEG per image, or empty bytes.
    about: when and how it was made."""

    name: str
    table: Table
    thumbnails: tuple[bytes, ...]
    about: dict[str, Any]


def check_name(run: Path, name: str) -> None:
    """Refuse a name that is taken or not allowed, before anything is computed."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            "must be letters, digits, dots, dashes and underscores, at most 80, and begin with a "
            f"letter or digit. Got '{name}'.",
            parameter="keep",
        )
    if (run / ASSIGNED / name).exists():
        raise OptionError(f"'{run}' already keeps images as '{name}'. Choose another name.")
    try:
        (run / ASSIGNED).mkdir(exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"Cannot keep images in '{run / ASSIGNED}': {error.strerror or error}."
        ) from error


def keep(run: Path, kept: Kept) -> Path:
    """Write a batch, whole or not at all. Returns its folder."""
    place = run / ASSIGNED / kept.name
    try:
        with new_folder(place, replace=False) as partial:
            (partial / TABLE).write_bytes(NEW_IMAGES.parquet(kept.table))
            for file, content in THUMBNAILS.contents(kept.thumbnails).items():
                (partial / file).write_bytes(content)
            (partial / ABOUT).write_text(json.dumps(kept.about, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise OptionError(f"Cannot keep images in '{place}': {error.strerror or error}.") from error
    return place


def kept_names(run: Path) -> list[str]:
    """The names of the batches that a run keeps, oldest first."""
    folder = run / ASSIGNED
    if not folder.is_dir():
        return []
    found = [entry.name for entry in folder.iterdir() if (entry / ABOUT).is_file()]
    names = [name for name in found if _NAME.fullmatch(name)]
    return sorted(names, key=lambda name: (str(_about(folder / name).get("at", "")), name))


def open_kept(run: Path, name: str) -> Kept:
    """A batch that a run keeps."""
    if not _NAME.fullmatch(name) or not (run / ASSIGNED / name / ABOUT).is_file():
        raise OptionError(f"The run keeps no images as '{name}'. It keeps: {kept_names(run)}.")
    folder = run / ASSIGNED / name
    try:
        table = read_parquet((folder / TABLE).read_bytes())
        contents = [(folder / file).read_bytes() for file in THUMBNAILS.files]
        thumbnails = THUMBNAILS.decode(contents)
    except (OSError, ValueError) as error:
        raise RunError(f"The images kept in '{folder}' are damaged: {error}.") from error
    return Kept(name, table, thumbnails, _about(folder))


def propose_kinds(unseen: Floats, linkage: Floats, n_clusters: int) -> NDArray[np.int64]:
    """(n_unseen,): proposed groups for images of new kinds, the largest first. They are cut at the
    height at which the run's tree was cut, so their images are as similar as those of the run's
    groups. unseen: (n_unseen, dim). linkage: of the run, (n - 1, 4)."""
    from scipy.cluster.hierarchy import fcluster

    from flawsort.clusters.ward import number_by_size, ward_linkage

    if len(unseen) < 2:
        return np.zeros(len(unseen), np.int64)
    made = len(linkage) + 1 - n_clusters
    height = float(linkage[made - 1, 2]) if made else 0.0
    labels = fcluster(ward_linkage(unseen), height, criterion="distance")
    return number_by_size(labels)


def proposals(labels: Sequence[int], proposed: NDArray[np.int64]) -> list[int]:
    """The proposed new kind of each image, -1 for images of a known kind. labels: of all images;
    -1 marks those that `proposed` covers."""
    waiting = iter(proposed.tolist())
    return [next(waiting) if label < 0 else -1 for label in labels]


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / ABOUT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(about) if isinstance(about, dict) else {}

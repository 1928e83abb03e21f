"""New images that were sorted into a run, kept beside it: what the review shows of them.

run/assigned/NAME/ holds table.parquet (a row an image, as `flawsort assign -o` writes it, with its
period and the proposed new kind), thumbnails.bin and thumbnails.npy, and about.json.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError, RunError
from flawsort.core.records import Floats
from flawsort.runs.folder import ASSIGNED as ASSIGNED
from flawsort.runs.folder import Table, read_table, table_parquet

TABLE, THUMBNAILS, ENDS, ABOUT = "table.parquet", "thumbnails.bin", "thumbnails.npy", "about.json"
# A name is a folder's, and part of an address.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class Kept:
    """A batch of new images. table: its columns. thumbnails: one JPEG an image, empty where there
    is none. about: when and how it was made."""

    name: str
    table: Table
    thumbnails: tuple[bytes, ...]
    about: dict[str, Any]


def check_name(run: Path, name: str) -> None:
    """Refuse a name that cannot be a folder's, or is taken, before anything is computed."""
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
    """Write a batch, whole or not at all; returns its folder."""
    place = run / ASSIGNED / kept.name
    partial = place.with_name(f".{kept.name}.{os.getpid()}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / TABLE).write_bytes(table_parquet(kept.table))
        (partial / THUMBNAILS).write_bytes(b"".join(kept.thumbnails))
        ends = np.cumsum([len(one) for one in kept.thumbnails], dtype=np.int64)
        np.save(partial / ENDS, ends, allow_pickle=False)
        (partial / ABOUT).write_text(json.dumps(kept.about, indent=2) + "\n", "utf-8")
        partial.rename(place)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise OptionError(f"Cannot keep images in '{place}': {error.strerror or error}.") from error
    return place


def kept_names(run: Path) -> list[str]:
    """The names of the batches that a run keeps, in the order in which they were made."""
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
        table = read_table((folder / TABLE).read_bytes())
        content = (folder / THUMBNAILS).read_bytes()
        ends = np.load(io.BytesIO((folder / ENDS).read_bytes()), allow_pickle=False).tolist()
    except (OSError, ValueError) as error:
        raise RunError(f"The images kept in '{folder}' are damaged: {error}.") from error
    starts = [0, *ends[:-1]]
    thumbnails = tuple(content[a:b] for a, b in zip(starts, ends, strict=True))
    return Kept(name, table, thumbnails, _about(folder))


def propose_kinds(unseen: Floats, linkage: Floats, n_clusters: int) -> NDArray[np.int64]:
    """(n_unseen,): images of new kinds as groups of their own, by size, that are as much alike as
    those of the run: merged as high as the run's tree was when it was cut. unseen: (n_unseen, dim).
    linkage: of the run, (n - 1, 4)."""
    from scipy.cluster.hierarchy import fcluster

    from flawsort.clusters.ward import number_by_size, ward_linkage

    if len(unseen) < 2:
        return np.zeros(len(unseen), np.int64)
    made = len(linkage) + 1 - n_clusters
    height = float(linkage[made - 1, 2]) if made else 0.0
    labels = fcluster(ward_linkage(unseen), height, criterion="distance")
    return number_by_size(labels)


def proposals(labels: Sequence[int], proposed: NDArray[np.int64]) -> list[int]:
    """The proposed new kind of each image, -1 for those of a known one. labels: of all images, -1
    for those that `proposed` is of."""
    waiting = iter(proposed.tolist())
    return [next(waiting) if label < 0 else -1 for label in labels]


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / ABOUT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(about) if isinstance(about, dict) else {}

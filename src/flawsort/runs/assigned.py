"""Batches of new images that were sorted into a run, and are kept in it for the review.

run/assigned/NAME/ holds table.parquet (one row per image, as `flawsort assign -o` writes it, with
its period and the proposed new kind), thumbnails.bin and thumbnails.npy, vectors.npy (embeddings of
the images with thumbnails, so that answers about them can teach), close-ups and matches as in a
run, and about.json. A batch that grows has about.json and parts (`flawsort.runs.growing`), each
with these files.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import UNSEEN, Assignment
from flawsort.core.errors import FlawsortError, OptionError, RunError
from flawsort.core.records import Floats, ImageSet
from flawsort.core.storage import new_folder, try_writing
from flawsort.core.tables import FLAG, INTEGER, NUMBER, TEXT, Column, Columns, Table, read_parquet
from flawsort.core.text import is_device
from flawsort.runs.folder import ASSIGNED as ASSIGNED
from flawsort.runs.stored import ArrayPart, Part, PicturesPart
from flawsort.runs.tables import (
    SEVERAL,
    ImageGroups,
    Matched,
    group_columns,
    match_columns,
    source_paths,
)

TABLE, ABOUT = "table.parquet", "about.json"
THUMBNAILS = PicturesPart(files=("thumbnails.bin", "thumbnails.npy"))
CLOSE_UPS = PicturesPart(files=("close-ups.bin", "close-ups.npy"), optional=True)
MATCHES = PicturesPart(files=("matches.bin", "matches.npy"), optional=True)
VECTORS = ArrayPart(files=("vectors.npy",), optional=True)
# All that a batch may have.
FILES = {TABLE, ABOUT, *THUMBNAILS.files, *CLOSE_UPS.files, *MATCHES.files, *VECTORS.files}
# The columns that every version has written.
COLUMNS = ("name", "path", "sha256", "cluster", "nearest", "novelty", "score", "period", "proposal")
# The columns with numbers of clusters, and of proposed ones: more than these cannot be meant.
_CLUSTERS = ("cluster", "nearest", "runner_up", "proposal")
_LARGEST = 1_000_000
# A part of a batch that grows.
PART = re.compile(r"part-[0-9]{5}")
# A name is used as a folder and in an address.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class SortedImages:
    """The data of the table of new images.

    found: their clusters. scores: (n,), how unusual each image is. groups: as people read them.
    verdicts: "OK", "not OK" or "" of each image. periods: the period of each image. proposals:
    (n,), from `proposals`. boxes: (n, 4), the most unusual place of each image: left, top, right,
    bottom in fractions of the upright image. matched: the best matching places. Both are None if
    nothing was compared.
    """

    images: ImageSet
    found: Assignment
    scores: Floats
    groups: ImageGroups
    verdicts: Sequence[str]
    periods: Sequence[str]
    proposals: Sequence[int]
    boxes: NDArray[np.float64] | None = None
    matched: Matched | None = None

    def side(self, of: int, minus: int | None = None) -> list[float | None]:
        """A side of the boxes, less another one."""
        if self.boxes is None:
            return [None] * len(self.images)
        less = 0.0 if minus is None else self.boxes[:, minus]
        found: list[float | None] = (self.boxes[:, of] - less).tolist()
        return found


def _matched(of: SortedImages) -> Matched:
    return of.matched or Matched.nothing(len(of.images))


def _looks_normal(of: SortedImages) -> list[bool]:
    found = of.found.looks_normal
    return [False] * len(of.images) if found is None else found.tolist()


NEW_IMAGES = Columns[SortedImages](
    Column("name", TEXT, "as in images.csv", lambda of: of.images.names),
    Column("path", TEXT, "where the file is", lambda of: source_paths(of.images)),
    Column("sha256", TEXT, "of the file's bytes", lambda of: of.images.digests),
    *group_columns(lambda of: of.groups),
    Column(
        "verdict",
        TEXT,
        "OK or not OK; empty until a person has chosen a threshold",
        lambda of: of.verdicts,
        optional=True,
    ),
    Column(
        "cluster",
        INTEGER,
        "the cluster of the run that it is near; -1: none, -2: none, and it looks normal",
        lambda of: of.found.labels.tolist(),
    ),
    Column(
        "kinds",
        TEXT,
        "its cluster, then the other clusters that its regions resemble, separated by ;",
        lambda of: [SEVERAL.join(map(str, groups)) for groups in of.found.kinds],
    ),
    Column(
        "nearest",
        INTEGER,
        "the nearest cluster, also where cluster is below 0",
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
        "the distance to the nearest images of the run; above 1 it is near none of them",
        lambda of: of.found.novelty.tolist(),
    ),
    Column("score", NUMBER, "how unusual the image is", lambda of: of.scores.tolist()),
    Column(
        "looks_normal",
        FLAG,
        "whether it was given as normal, or is no more unusual than those",
        _looks_normal,
        optional=True,
    ),
    Column("period", TEXT, "the day, lot or folder that it is counted in", lambda of: of.periods),
    Column(
        "proposal", INTEGER, "the proposed new kind, counted from 0, or -1", lambda of: of.proposals
    ),
    Column(
        "x",
        NUMBER,
        "left of its most unusual place, in fractions of the upright image",
        lambda of: of.side(0),
        optional=True,
    ),
    Column("y", NUMBER, "top of that place", lambda of: of.side(1), optional=True),
    Column("width", NUMBER, "of that place", lambda of: of.side(2, 0), optional=True),
    Column("height", NUMBER, "of that place", lambda of: of.side(3, 1), optional=True),
    *match_columns(_matched),
)
"""The columns of `flawsort assign -o`, and of a batch that a run keeps."""


@dataclass(frozen=True)
class Kept:
    """A batch of new images. table: its columns. thumbnails: one JPEG per image, or empty bytes.
    about: when and how it was made. vectors: (n_first, dim), the embeddings of the first images in
    float16; None in batches of earlier versions. close_ups, matches: as in a Run."""

    name: str
    table: Table
    thumbnails: tuple[bytes, ...]
    about: dict[str, Any]
    vectors: NDArray[np.float16] | None = field(default=None, compare=False)
    close_ups: tuple[bytes, ...] | None = None
    matches: tuple[bytes, ...] | None = None


def is_name(name: str) -> bool:
    """Whether a batch may have this name."""
    return bool(_NAME.fullmatch(name))


def check_name(run: Path, name: str) -> None:
    """Refuse a name that is taken or not allowed, before anything is computed."""
    if not is_name(name) or name.endswith(".") or is_device(name):
        raise OptionError(
            "must be letters, digits, dots, dashes and underscores, at most 80, begin with a "
            "letter or digit, end with no dot, and be no name that Windows reserves, such as aux. "
            f"Got '{name}'.",
            parameter="keep",
        )
    if (run / ASSIGNED / name).exists():
        raise OptionError(f"'{run}' already keeps images as '{name}'. Choose another name.")
    try:
        try_writing(run / ASSIGNED)
        if (run / ASSIGNED).exists():
            try_writing(run / ASSIGNED / name)
    except OSError as error:
        raise OptionError(
            f"Cannot keep images in '{run / ASSIGNED}': {error.strerror or error}."
        ) from error


def keep(run: Path, kept: Kept) -> Path:
    """Write a batch, whole or not at all. Returns its folder, whose name has a number if another
    process took the name meanwhile."""
    place = _free_place(run / ASSIGNED, kept.name)
    try:
        with new_folder(place, replace=False) as partial:
            for file, content in files_of(kept).items():
                (partial / file).write_bytes(content)
    except OSError as error:
        with suppress(OSError):  # there was none, and it is empty
            place.parent.rmdir()
        raise OptionError(f"Cannot keep images in '{place}': {error.strerror or error}.") from error
    return place


def _free_place(folder: Path, name: str) -> Path:
    place, number = folder / name, 2
    while place.exists():
        place, number = folder / f"{name[:70]}-{number}", number + 1
    return place


def files_of(kept: Kept) -> dict[str, bytes]:
    """The files of a batch."""
    files = {TABLE: NEW_IMAGES.parquet(kept.table), **THUMBNAILS.contents(kept.thumbnails)}
    for part, value in (
        (VECTORS, kept.vectors),
        (CLOSE_UPS, kept.close_ups),
        (MATCHES, kept.matches),
    ):
        if value is not None:
            files |= part.contents(value)
    return {**files, ABOUT: (json.dumps(kept.about, indent=2) + "\n").encode()}


def kept_names(run: Path) -> list[str]:
    """The names of the batches that a run keeps, oldest first."""
    folder = run / ASSIGNED
    if not folder.is_dir():
        return []
    found = [entry.name for entry in folder.iterdir() if (entry / ABOUT).is_file()]
    names = [name for name in found if is_name(name)]
    return sorted(names, key=lambda name: (str(read_about(folder / name).get("at", "")), name))


def open_kept(run: Path, name: str) -> Kept:
    """A batch that a run keeps."""
    if not is_name(name) or not (run / ASSIGNED / name / ABOUT).is_file():
        raise OptionError(f"The run keeps no images as '{name}'. It keeps: {kept_names(run)}.")
    folder = run / ASSIGNED / name
    try:
        parts = [read_kept(name, folder / part) for part in parts_of(folder)]
        if not parts:
            return read_kept(name, folder)
        return replace(joined(parts), about={**read_about(folder), "grows": True})
    except (FlawsortError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the parquet reader panics at some damage, with no Exception
        raise RunError(f"The images kept in '{folder}' are damaged: {error}.") from error


def parts_of(folder: Path) -> list[str]:
    """The names of the parts of a batch that grows, in order; none of other batches."""
    return sorted(entry.name for entry in folder.iterdir() if PART.fullmatch(entry.name))


def n_kept(run: Path, name: str) -> int:
    """How many images a batch says that it has, without reading it."""
    folder = run / ASSIGNED / name
    parts = parts_of(folder)
    places = [folder / one for one in parts] or [folder]
    found = [read_about(place).get("n_images") for place in places]
    counts = [n for n in found if type(n) is int and 0 <= n < _LARGEST]
    if len(counts) < len(found):
        raise RunError(f"The images kept in '{folder}' are damaged: {ABOUT} has no n_images.")
    return sum(counts)


def read_kept(name: str, folder: Path) -> Kept:
    """A batch, or a part of one, from its folder. OSError or ValueError if it is damaged."""
    return kept_in(name, lambda file: _content(folder / file) if (folder / file).exists() else None)


def kept_in(name: str, read: Callable[[str], bytes | None]) -> Kept:
    """A batch from its files. read: gives the content of a file, None if there is none."""

    def part(of: Part) -> Any:
        contents = [read(file) for file in of.files]
        known = [one for one in contents if one is not None]
        if len(known) < len(contents) and not (of.optional and not known):
            raise ValueError(f"{' or '.join(of.files)} is missing")
        return of.decode(known) if known else None

    table = read(TABLE)
    if table is None:
        raise ValueError(f"{TABLE} is missing")
    about = _described(read)
    filled = _filled(read_parquet(table, about.get("n_images", _LARGEST)))
    thumbnails, vectors = part(THUMBNAILS), part(VECTORS)
    _check(filled, thumbnails, vectors)
    close_ups, matches = part(CLOSE_UPS), part(MATCHES)
    return Kept(name, filled, thumbnails, about, vectors, close_ups, matches)


def joined(parts: Sequence[Kept]) -> Kept:
    """The images of several parts as one batch. Vectors are those of the first images, up to the
    first image that has none."""
    first = parts[0]
    vectors: list[NDArray[np.float16]] = []
    for part in parts:
        if part.vectors is None:
            break
        vectors.append(part.vectors)
        if len(part.vectors) < len(part.thumbnails):
            break
    return Kept(
        first.name,
        {column: [one for part in parts for one in part.table[column]] for column in first.table},
        tuple(one for part in parts for one in part.thumbnails),
        first.about,
        np.concatenate(vectors) if vectors else None,
        _pictures([part.close_ups for part in parts], parts),
        _pictures([part.matches for part in parts], parts),
    )


def _pictures(
    found: Sequence[tuple[bytes, ...] | None], parts: Sequence[Kept]
) -> tuple[bytes, ...] | None:
    """The pictures of all parts; empty ones for a part without any. None if no part has any."""
    if all(some is None for some in found):
        return None
    pairs = zip(found, parts, strict=True)
    return tuple(one for some, part in pairs for one in some or (b"",) * len(part.thumbnails))


def _content(path: Path) -> bytes:
    """The content of a file. OSError for a pipe or a device, whose reading would never end."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.read_bytes()


def _check(table: Table, thumbnails: tuple[bytes, ...], vectors: Any) -> None:
    """ValueError if a value cannot be right; the batch may come from anybody."""
    missing = [column for column in COLUMNS if column not in table]
    if missing:
        raise ValueError(f"the table lacks {', '.join(missing)}")
    lengths = {len(values) for values in (*table.values(), thumbnails)}
    if len(lengths) > 1:
        raise ValueError(f"columns and thumbnails differ in length: {sorted(lengths)}")
    wrong = NEW_IMAGES.wrong_types(table)
    if wrong:
        column, what = next(iter(wrong.items()))
        raise ValueError(f"column {column} must hold {what}")
    numbers = [value for name in _CLUSTERS for value in table.get(name, ()) if value is not None]
    if numbers and max(map(abs, numbers)) >= _LARGEST:
        raise ValueError(f"a cluster must be below {_LARGEST:,}")
    if vectors is None:
        return
    if vectors.dtype.kind != "f" or not np.isfinite(vectors).all():
        raise ValueError(f"{VECTORS.files[0]} must hold finite numbers")
    if vectors.ndim != 2 or len(vectors) > len(thumbnails):
        raise ValueError(f"{VECTORS.files[0]} has the shape {vectors.shape}")


def _filled(table: Table) -> Table:
    """A table with the columns that those of earlier versions lack."""
    n = len(next(iter(table.values()), []))
    groups = ImageGroups(table.get("title", [""] * n), [None] * n, [False] * n)
    added = {**groups.columns(), "verdict": [""] * n, "looks_normal": [False] * n}
    return {**table, **{name: added[name] for name in added if name not in table}}


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
    # Kinds of equal size are numbered by content, whatever the files are called.
    order = np.lexsort(unseen.T)
    labels = fcluster(ward_linkage(unseen[order]), height, criterion="distance")
    return number_by_size(labels)[np.argsort(order)]


def proposals(groups: Sequence[int], proposed: NDArray[np.int64]) -> list[int]:
    """The proposed new kind of each image, -1 for images of a known kind. groups: of all images;
    UNSEEN marks those that `proposed` covers."""
    waiting = iter(proposed.tolist())
    return [next(waiting) if group == UNSEEN else -1 for group in groups]


def read_about(folder: Path) -> dict[str, Any]:
    return _described(lambda file: _content(folder / file))


def _described(read: Callable[[str], bytes | None]) -> dict[str, Any]:
    try:
        about = json.loads((read(ABOUT) or b"").decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return dict(about) if isinstance(about, dict) else {}

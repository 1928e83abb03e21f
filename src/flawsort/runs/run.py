"""A run: all results of one clustering. This is the only place that declares its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, get_type_hints

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones.base import INPUT_SIZE_OF_PATCHES
from flawsort.clusters.kinds import Kinds, Regions
from flawsort.core.errors import RunError
from flawsort.core.records import Bools, Floats, ImageSet, Ints, RemoteFile, SetAside
from flawsort.core.remote import is_url
from flawsort.core.tables import Table
from flawsort.core.text import path_of, pluralise, printable
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.regions import Outlines, mask_cells
from flawsort.health.record import Health
from flawsort.images.view import UnreadableImage, View
from flawsort.runs.checks import wrong_sizes, wrong_values
from flawsort.runs.reviewed import computed_kinds, unreviewed_table
from flawsort.runs.stored import (
    ArrayPart,
    ArraysPart,
    Content,
    FilePart,
    HealthPart,
    NamedArraysPart,
    Part,
    PicturesPart,
    TablePart,
    TreePart,
)
from flawsort.runs.tables import IMAGES, LOOKS_NORMAL, REGIONS, SEVERAL, ImageGroups, with_groups

Manifest: TypeAlias = dict[str, Any]

LISTED_GROUPS = 8


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """All results of one clustering.

    manifest: settings, versions, evidence for k, timings, warnings (described with the run format).
    table: the columns of images.parquet when the run was opened, one value per image.
    regions: the columns of regions.parquet, one value per region, in the order of the images.
    region_embeddings: in the same space as embeddings.
    scores: how unusual each patch is.
    valid: which patches count; None if all do.
    weights: rows sum to 1.
    linkage: in SciPy's convention; it can be cut into any number of clusters.
    layout: the two-dimensional map, in 0..1.
    reference: the patches that `assign` compares new images with: (n, dim) from normals,
        (n_peers, n_patches, dim) from peers; None if nothing is compared.
    thumbnails: one JPEG per image. In a large run only the images that its report shows have one;
        the others have empty bytes.
    close_ups: one JPEG of the most unusual place of each image that has a thumbnail, cut from the
        file at full resolution, or empty bytes; None in a run of an older version.
    matches: one JPEG of the best matching place of the reference, aligned with the close-up.
    lists: centres and offsets of the inverted lists by which `reference` is sorted, or None.
    whitening: (dim, dim), the matrix that residuals are multiplied by, or None without residuals.
    views: the other arrays of the model, by name: calibration and mean patches of each view, and
        the references of further views; None if there are none.
    gallery: which images the reference is made of, so that the best matching places of new images
        are found, too; None if nothing is compared, and in a run of an older version.
    mask: the file with the region of interest, or None.
    health: what a person should know before trusting the groups; None in a run of an older version.
    folder: where the run is saved, or None.
    fetch: the beginnings of URLs from which images may be read. Others are not: the run may name
        any, and it may come from anybody.

    To add a part, declare it here: it is then saved, opened, checked and previewed with the others.
    """

    manifest: Manifest
    table: Annotated[
        Table,
        TablePart(files=("images.parquet", "images.csv"), columns=IMAGES, shape=("images",)),
    ]
    regions: Annotated[
        Table,
        TablePart(files=("regions.parquet", "regions.csv"), columns=REGIONS, shape=("regions",)),
    ]
    region_embeddings: Annotated[
        Floats, ArrayPart(files=("region-embeddings.npy",), shape=("regions", "dims"))
    ]
    scores: Annotated[Floats, ArrayPart(files=("scores.npy",), shape=("images", "patches"))]
    valid: Annotated[
        Bools | None,
        ArrayPart(files=("valid.npy",), shape=("images", "patches"), optional=True),
    ]
    weights: Annotated[Floats, ArrayPart(files=("weights.npy",), shape=("images", "patches"))]
    embeddings: Annotated[Floats, ArrayPart(files=("embeddings.npy",), shape=("images", "dims"))]
    linkage: Annotated[Floats, TreePart(files=("linkage.npy",), shape=("merges", 4))]
    layout: Annotated[Floats, ArrayPart(files=("layout.npy",), shape=("images", 2))]
    reference: Annotated[Floats | None, ArrayPart(files=("reference.npy",), optional=True)]
    thumbnails: Annotated[
        tuple[bytes, ...],
        PicturesPart(files=("thumbnails.bin", "thumbnails.npy"), shape=("images",)),
    ]
    close_ups: Annotated[
        tuple[bytes, ...] | None,
        PicturesPart(files=("close-ups.bin", "close-ups.npy"), shape=("images",), optional=True),
    ] = None
    matches: Annotated[
        tuple[bytes, ...] | None,
        PicturesPart(files=("matches.bin", "matches.npy"), shape=("images",), optional=True),
    ] = None
    lists: Annotated[
        tuple[Floats, Ints] | None,
        ArraysPart(files=("list-centres.npy", "list-offsets.npy"), optional=True),
    ] = None
    whitening: Annotated[Floats | None, ArrayPart(files=("whitening.npy",), optional=True)] = None
    views: Annotated[
        dict[str, NDArray[Any]] | None, NamedArraysPart(files=("views.npz",), optional=True)
    ] = None
    gallery: Annotated[
        dict[str, NDArray[Any]] | None, NamedArraysPart(files=("gallery.npz",), optional=True)
    ] = None
    mask: Annotated[bytes | None, FilePart(files=("mask",), optional=True)] = None
    health: Annotated[Health | None, HealthPart(files=("health.json",), optional=True)] = None
    folder: Path | None = None
    fetch: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            self._check()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise RunError(f"{self._name} is damaged: missing or invalid: {error}.") from error

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        sizes = np.bincount(self.labels, minlength=self.n_clusters).tolist()
        return three_lines(self, [(str(group), size) for group, size in enumerate(sizes)])

    @classmethod
    def of(cls, run: Run, folder: Path | None = None) -> Self:
        """The same run as an object of this class, saved in a folder."""
        parts = {field.name: getattr(run, field.name) for field in fields_of(Run)}
        return cls(**{**parts, "folder": folder or run.folder})

    def files(self) -> dict[str, Content]:
        """The contents of its files by name, except the manifest."""
        stored = {name: getattr(self, name) for name in PARTS}
        return {
            file: content
            for name, part in PARTS.items()
            if stored[name] is not None
            for file, content in zip(part.files, part.encode(stored[name]), strict=True)
        }

    def take(self, rows: Sequence[int] | Ints) -> Self:
        """The run with only the images at `rows`, in that order, with their regions and their
        tree. The manifest remains that of the whole run."""
        index = np.asarray(rows, np.int64)
        place = np.full(len(self), -1)
        place[index] = np.arange(len(index))
        of_regions = place[self.region_rows]
        regions = np.flatnonzero(of_regions >= 0)
        regions = regions[np.argsort(of_regions[regions], kind="stable")]
        chosen = {"images": index, "merges": index, "regions": regions}
        taken = {
            name: part.take(getattr(self, name), chosen[str(part.counts)])
            for name, part in PARTS.items()
            if part.counts is not None and getattr(self, name) is not None
        }
        return replace(self, **taken)

    def with_groups(self, groups: ImageGroups) -> Self:
        """The run with these groups in its table of images."""
        return replace(self, table=with_groups(self.table, groups))

    def unreviewed(self) -> Self:
        """The run with its table of images as it is before anybody says anything of them."""
        return replace(self, table=unreviewed_table(self.table, self.looks_normal, self.labels))

    # ---- from the manifest ----

    @property
    def mode(self) -> str:
        """With normals, unsupervised, or uniform."""
        return str(self.manifest["mode"])

    @property
    def n_clusters(self) -> int:
        return int(self.manifest["clusters"]["n_clusters"])

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        rows, columns = self.manifest["grid"]
        return int(rows), int(columns)

    @property
    def heat(self) -> HeatScale:
        """The scale of the heat maps."""
        heat = self.manifest["heat"]
        below = heat.get("normal_below")  # missing in older runs
        return HeatScale(
            float(heat["low"]), float(heat["high"]), None if below is None else float(below)
        )

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the backbone's input."""
        backbone = self.manifest["backbone"]
        height, width = backbone["input_size"] if backbone else INPUT_SIZE_OF_PATCHES
        return int(height), int(width)

    @cached_property
    def view(self) -> View:
        """How the images were viewed."""
        return View.from_description(self.manifest["view"], mask=self.mask)

    # ---- images ----

    @property
    def names(self) -> list[str]:
        return self.table["name"]

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each image by its name."""
        return {name: row for row, name in enumerate(self.names)}

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """(n_images,), read-only: the cluster of each image."""
        labels = np.array(self.table["cluster"], np.int64)
        labels.flags.writeable = False
        return labels

    @property
    def kinds(self) -> Kinds:
        """For each image its cluster, then the other clusters that its regions resemble."""
        return tuple(tuple(map(int, kinds.split(SEVERAL))) for kinds in computed_kinds(self.table))

    @property
    def looks_normal(self) -> Bools:
        """(n_images,): whether an image is flagged as looking normal."""
        flags = self.table["flags"]
        return np.array([LOOKS_NORMAL in words.split(SEVERAL) for words in flags], bool)

    def patch_heat(self, rows: int | slice = slice(None)) -> NDArray[np.float64]:
        """0..1: the heat of each patch, (n_patches,) for one row or (n_rows, n_patches) for
        several. Patches that do not count have heat 0."""
        heat = self.heat.normalise(self.scores[rows])
        return heat if self.valid is None else np.where(self.valid[rows], heat, 0.0)

    def rows_of(self, cluster: int) -> NDArray[np.int64]:
        """The rows of a cluster's images, the most typical first."""
        rows = np.flatnonzero(self.labels == cluster)
        typical = np.array([self.table["typicality"][row] for row in rows])
        return rows[np.argsort(-typical, kind="stable")]

    @cached_property
    def images(self) -> ImageSet:
        """The images, with the paths that they had when the run was made."""
        aside = [entry for entry in self.manifest["set_aside"] if entry["kind"] == "image"]
        return ImageSet(
            tuple(self.names),
            tuple(source_of(path, self.fetch) for path in self.table["path"]),
            tuple(self.table["sha256"]),
            tuple(SetAside(entry["name"], entry["reason"]) for entry in aside),
        )

    @cached_property
    def normal_paths(self) -> dict[str, tuple[str, str]]:
        """The path and the SHA-256 of the images that were given as normal, by name. The path is
        empty for an array, and in runs of older versions."""
        known = self.manifest.get("inputs", {}).get("normals") or []
        return {one["name"]: (one.get("path", ""), one["sha256"]) for one in known}

    @property
    def normal_digests(self) -> frozenset[str]:
        """The SHA-256 of the images that were given as normal."""
        known = self.manifest.get("inputs", {}).get("normals") or []
        return frozenset(entry["sha256"] for entry in known)

    def source(self, row: int) -> Path | RemoteFile:
        """The path of an image's file. UnreadableImage if the image was given as an array."""
        path = self.table["path"][row]
        if not path:
            raise UnreadableImage("was given as an array and has no file")
        return source_of(path, self.fetch)

    # ---- regions ----

    @cached_property
    def region_rows(self) -> NDArray[np.int64]:
        """(n_regions,): the row of each region's image."""
        return np.array([self.row_of[name] for name in self.regions["name"]], np.int64)

    @cached_property
    def outlines(self) -> Outlines:
        """Where the regions are."""
        cells, ends = mask_cells(self.regions["mask"])
        peaks = np.array(self.regions["score"], np.float32)
        return Outlines(self.region_rows, peaks, cells, ends)

    @property
    def found_regions(self) -> Regions:
        """The regions, and the cluster that each resembles."""
        return Regions(
            self.outlines,
            np.asarray(self.region_embeddings, np.float32),
            np.array(self.regions["cluster"], np.int64),
            np.array(self.regions["nearest"], np.int64),
            np.array(self.regions["confidence"], np.float64),
        )

    # ---- consistency ----

    @property
    def _name(self) -> str:
        return "The run" if self.folder is None else f"The run '{printable(self.folder)}'"

    def check_values(self) -> None:
        """RunError if a value in its files cannot be right; for a run that was read from them."""
        names = ("scores", "weights", "embeddings", "region_embeddings", "layout", "linkage")
        arrays = {name: getattr(self, name) for name in names}
        # A score may be anything: an image that cannot be compared has none.
        scores = {name: np.nan_to_num(arrays[name]) for name in ("scores", "weights")}
        wrong = wrong_values(
            self.table, self.regions, {**arrays, **scores}, self.n_clusters, self.grid
        )
        tiles = self.manifest["view"]["tiles"]
        tiles = (1, 1) if tiles is None else (int(tiles[0]), int(tiles[1]))
        wrong = wrong or wrong_sizes(self.grid, self.input_size, tiles)
        if wrong:
            raise RunError(f"{self._name} is damaged: {'; '.join(wrong[:4])}.")

    def _check(self) -> None:
        """RunError if its parts do not belong together, which hashes cannot show."""
        n, grid, patches = len(self.names), self.grid, self.scores.shape[1]
        sizes: dict[str | int, int] = {
            "images": n,
            "merges": n - 1,
            "regions": len(self.regions["name"]),
            "patches": patches,
            "dims": self.embeddings.shape[1],
        }
        wrong = [
            fault
            for name, part in PARTS.items()
            if not (part.optional and getattr(self, name) is None)
            for fault in part.faults(name, getattr(self, name), sizes)
        ]
        if not n or wrong:
            wrong = wrong or ["needs at least 1"]
            raise RunError(f"{self._name} has {pluralise(n, 'image')}, but {'; '.join(wrong)}.")
        if grid[0] * grid[1] != patches:
            raise RunError(
                f"{self._name} is inconsistent: its grid is {grid[0]} x {grid[1]}, but scores have "
                f"{patches} patches."
            )
        if not self.row_of.keys() >= set(self.regions["name"]):
            raise RunError(f"{self._name} has regions of unknown images.")
        _ = self.mode, self.n_clusters, self.heat, self.input_size, self.manifest["view"]


PARTS: dict[str, Part] = {
    name: declared.__metadata__[0]
    for name, declared in get_type_hints(Run, include_extras=True).items()
    if hasattr(declared, "__metadata__")
}
"""How each field of a run is stored, by name, except the manifest and the folder."""


def three_lines(run: Run, sizes: Sequence[tuple[str, int]]) -> str:
    """A run in three lines. sizes: title and number of images of each group."""
    more = f", and {len(sizes) - LISTED_GROUPS} more" if len(sizes) > LISTED_GROUPS else ""
    listed = ", ".join(f"{title} ({n:,})" for title, n in sizes[:LISTED_GROUPS])
    found = f"{pluralise(len(run), 'image')} in {pluralise(len(sizes), 'group')}"
    where = "not saved" if run.folder is None else f"in {printable(run.folder)}"
    return f"Run: {found}, {run.mode}\n  groups: {listed}{more}\n  {where}"


def source_of(path: str, fetch: Sequence[str] = ()) -> Path | RemoteFile:
    """The file at a path of a table. fetch: as of a Run."""
    if not is_url(path):
        return path_of(path)
    pieces = path.split("/")
    below = any(path.startswith(f"{start.rstrip('/')}/") for start in fetch)
    return RemoteFile(path, asked=path in fetch or (below and ".." not in pieces))

"""The content of an export in any format: images with titles and sizes, regions with pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.records import RemoteFile, SetAside
from flawsort.core.text import clean
from flawsort.core.threads import in_threads
from flawsort.images.decode import upright_size
from flawsort.images.find import digest_of
from flawsort.images.view import UnreadableImage
from flawsort.labels.groups import Group, Labelling, kinds, region_groups, without_flaw
from flawsort.outputs.exports.masks import Cutout, Lattice, lattice
from flawsort.outputs.exports.naming import distinct_titles, safe_paths
from flawsort.runs.run import Run

UNKNOWN = -1
"""In place of a group id: the region resembles no group."""

UNKNOWN_TITLE = "Unknown"


@dataclass(frozen=True)
class Region:
    """A region of an image. place: its row in the run's table of regions. group: the id of the
    group that it resembles, or UNKNOWN. cells: its patches. heat, confidence: as in that table."""

    place: int
    group: int
    cells: NDArray[np.int32]
    heat: float
    confidence: float


@dataclass(frozen=True)
class Picture:
    """An image whose file is unchanged. row: in the run's table. file: a safe path for a copy of
    it, with forward slashes. size: width and height, upright. lattice: positions of its patches."""

    row: int
    name: str
    file: str
    source: Path | RemoteFile
    size: tuple[int, int]
    regions: tuple[Region, ...]
    lattice: Lattice

    def cut(self, region: Region) -> Cutout:
        """A region of the image in pixels."""
        return self.lattice.cut(region.cells)


@dataclass(frozen=True)
class Content:
    """A run with its current groups.

    groups: those with an image or a name. titles: of all groups by id and of UNKNOWN, all distinct.
    kinds: the ids of each image's groups, its own first. regions: of each image, the hottest first;
    without regions of normal groups, and without unknown regions in images of such groups.
    """

    run: Run
    labelling: Labelling
    groups: tuple[Group, ...]
    titles: Mapping[int, str]
    kinds: Sequence[tuple[int, ...]]
    regions: Sequence[tuple[Region, ...]]

    @property
    def has_unknown(self) -> bool:
        """Whether any region resembles no group."""
        return any(region.group == UNKNOWN for regions in self.regions for region in regions)

    def title(self, row: int) -> str:
        """The title of an image's group."""
        return self.titles[int(self.labelling.labels[row])]

    def role(self, row: int) -> str:
        return self.labelling.groups[int(self.labelling.labels[row])].role

    def kind_titles(self, row: int) -> list[str]:
        """All kinds of an image, its own first."""
        return [self.titles[group] for group in self.kinds[row]]

    def confirmed(self, row: int) -> bool:
        return bool(self.labelling.confirmed[row])

    def label_titles(self) -> dict[int, str]:
        """All labels of regions and images: the groups, and UNKNOWN if any region needs it."""
        found = {group.id: self.titles[group.id] for group in self.groups}
        return {**found, UNKNOWN: self.titles[UNKNOWN]} if self.has_unknown else found


def gather_content(run: Run, labelling: Labelling) -> Content:
    """The content of a run with its current groups."""
    shown_kinds = kinds(run, labelling)
    used = {group for groups in shown_kinds for group in groups}
    ids = sorted(labelling.groups)
    titles = distinct_titles([*(labelling.groups[i].title for i in ids), UNKNOWN_TITLE])
    return Content(
        run,
        labelling,
        tuple(labelling.groups[i] for i in ids if i in used or labelling.groups[i].name),
        dict(zip([*ids, UNKNOWN], titles, strict=True)),
        shown_kinds,
        _regions(run, labelling),
    )


def find_pictures(content: Content) -> tuple[list[Picture], list[SetAside]]:
    """The images whose files are unchanged, and the others with the reasons."""
    names = [clean(name) for name in content.run.names]
    files = safe_paths(names)

    def look(item: tuple[int, str]) -> Picture | SetAside:
        row, file = item
        try:
            return _picture(content, row, file)
        except (UnreadableImage, OSError) as error:
            return SetAside(names[row], str(error))

    found = list(in_threads(look, enumerate(files), ahead=8))
    left_out = [one for one in found if isinstance(one, SetAside)]
    pictures = [one for one in found if isinstance(one, Picture)]
    if left_out and not pictures:
        raise InputError(
            f"None of the {len(found)} images can be read: {left_out[0].name} "
            f"{left_out[0].reason}. Restore the image files, or export csv or parquet."
        )
    return pictures, left_out


def _picture(content: Content, row: int, file: str) -> Picture:
    run, source = content.run, content.run.source(row)
    digest, reason = digest_of(source)
    if reason:
        raise UnreadableImage(reason)
    if digest != run.table["sha256"][row]:
        raise UnreadableImage("has changed since it was clustered")
    size = upright_size(source, run.view.max_pixels)
    return Picture(
        row,
        clean(run.names[row]),
        file,
        source,
        size,
        tuple(content.regions[row]),
        lattice(run.grid, run.view, run.input_size, source, size),
    )


def _regions(run: Run, labelling: Labelling) -> list[tuple[Region, ...]]:
    found: list[list[Region]] = [[] for _ in run.names]
    table, settled = run.regions, without_flaw(labelling)
    for place, group in enumerate(region_groups(run, labelling).tolist()):
        row = int(run.region_rows[place])
        if settled[row]:
            continue
        own = int(labelling.labels[row])
        given_kinds = labelling.several.get(row)
        if given_kinds is not None and group not in (own, *given_kinds):
            group = UNKNOWN  # a person gave the image other kinds
        role = labelling.groups[own if group == UNKNOWN else group].role
        if role == "normal":
            continue
        heat, confidence = float(table["heat"][place]), float(table["confidence"][place])
        found[row].append(Region(place, group, run.outlines[place], heat, confidence))
    return [tuple(regions) for regions in found]

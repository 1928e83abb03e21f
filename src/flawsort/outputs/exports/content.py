"""The content of an export in any format: images with titles and sizes, regions with pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.records import Bools, Floats, Ints, RemoteFile, SetAside
from flawsort.core.text import clean
from flawsort.core.threads import in_threads
from flawsort.images.decode import upright_size
from flawsort.images.find import digest_of
from flawsort.images.view import UnreadableImage
from flawsort.labels.groups import Group, Labelling, kinds, region_groups, without_flaw
from flawsort.labels.regions import UNKNOWN as UNKNOWN
from flawsort.labels.suggestions import decided
from flawsort.outputs.exports.masks import Cutout, Lattice, lattice
from flawsort.outputs.exports.naming import distinct_titles, safe_paths
from flawsort.runs.run import Run
from flawsort.runs.tables import known_numbers
from flawsort.runs.trends import UNKNOWN as UNKNOWN_PERIOD
from flawsort.runs.trends import periods

UNKNOWN_TITLE = "Unknown"
# What becomes of regions that show no group.
MARK, LEAVE_OUT = "mark", "leave-out"


@dataclass(frozen=True)
class Region:
    """A region of an image. place: its row in the run's table of regions. group: the id of the
    group that it shows, or UNKNOWN. cells: its patches. heat, confidence: as in that table."""

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

    groups: those with an image, or of which a person said anything. titles: of all groups by id and
    of UNKNOWN, all distinct. kinds: the ids of each image's groups, its own first. of_regions: the
    group of every region of the run, or UNKNOWN. regions: of each image, the hottest first; without
    regions of normal groups, and without unknown regions in images of such groups.
    probability: of each image's group by the taught model; None where a person decided or nothing
    was taught. lots: of each image, "" if unknown; None if images are not split by lot.
    """

    run: Run
    labelling: Labelling
    groups: tuple[Group, ...]
    titles: Mapping[int, str]
    kinds: Sequence[tuple[int, ...]]
    of_regions: Sequence[int]
    regions: Sequence[tuple[Region, ...]]
    probability: Sequence[float | None]
    lots: Sequence[str] | None = None

    @cached_property
    def _decided(self) -> Bools:
        return decided(self.labelling)

    @property
    def n_decided(self) -> int:
        """The number of images whose group a person decided."""
        return int(self._decided.sum())

    @property
    def has_unknown(self) -> bool:
        """Whether any region resembles no group."""
        return any(region.group == UNKNOWN for regions in self.regions for region in regions)

    def title(self, row: int) -> str:
        """The title of an image's group."""
        return self.titles[int(self.labelling.labels[row])]

    def role(self, row: int) -> str:
        return self.labelling.groups[int(self.labelling.labels[row])].role

    def severity(self, row: int) -> str:
        """How severe people called the flaw of an image's group; "" if nobody said it."""
        return self.labelling.groups[int(self.labelling.labels[row])].severity

    def note(self, row: int) -> str:
        """What people wrote about an image, or ""."""
        return self.labelling.notes.get(row, "")

    def kind_titles(self, row: int) -> list[str]:
        """All kinds of an image, its own first."""
        return [self.titles[group] for group in self.kinds[row]]

    def decided(self, row: int) -> bool:
        """Whether a person decided the group of an image."""
        return bool(self._decided[row])

    def label_titles(self) -> dict[int, str]:
        """All labels of regions and images: the groups, and UNKNOWN if any region needs it."""
        found = {group.id: self.titles[group.id] for group in self.groups}
        return {**found, UNKNOWN: self.titles[UNKNOWN]} if self.has_unknown else found


def gather_content(
    run: Run,
    labelling: Labelling,
    *,
    probability: Floats | None = None,
    regions: Ints | None = None,
    unknown: str = MARK,
    by: str | Path | None = None,
) -> Content:
    """The content of a run with its current groups.

    probability: (n_images,), of each image's group by the taught model, nan where it has none; None
    if nothing was taught. regions: (n_regions,), the group of each region, or UNKNOWN; None for the
    groups of their clusters. unknown: MARK keeps regions that show no group, LEAVE_OUT does not.
    by: what makes a lot of images, as for `periods`; None for no lots.
    """
    shown = region_groups(run, labelling) if regions is None else np.asarray(regions)
    shown_kinds = kinds(run, labelling, shown)
    used = {group for groups in shown_kinds for group in groups}
    ids = sorted(labelling.groups)
    titles = distinct_titles([*(labelling.groups[i].title for i in ids), UNKNOWN_TITLE])
    return Content(
        run,
        labelling,
        tuple(labelling.groups[i] for i in ids if i in used or labelling.groups[i].told),
        dict(zip([*ids, UNKNOWN], titles, strict=True)),
        shown_kinds,
        shown.tolist(),
        _regions(run, labelling, shown, unknown),
        [None] * len(run) if probability is None else known_numbers(probability),
        None if by is None else _lots(run, by),
    )


def _lots(run: Run, by: str | Path) -> list[str]:
    """The lot of each image, "" if unknown."""
    found = periods(run.names, run.table["path"], by)
    return ["" if lot == UNKNOWN_PERIOD else lot for lot in found]


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


def _regions(
    run: Run, labelling: Labelling, groups: Ints, unknown: str
) -> list[tuple[Region, ...]]:
    found: list[list[Region]] = [[] for _ in run.names]
    table, settled = run.regions, without_flaw(labelling)
    for place, group in enumerate(groups.tolist()):
        row = int(run.region_rows[place])
        if settled[row] or (group == UNKNOWN and unknown == LEAVE_OUT):
            continue
        own = int(labelling.labels[row])
        role = labelling.groups[own if group == UNKNOWN else group].role
        if role == "normal":
            continue
        heat, confidence = float(table["heat"][place]), float(table["confidence"][place])
        found[row].append(Region(place, group, run.outlines[place], heat, confidence))
    return [tuple(regions) for regions in found]

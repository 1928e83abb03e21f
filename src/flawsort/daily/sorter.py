"""A run that sorts new images: its model, and what people have taught it by now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np

from flawsort._version import __version__
from flawsort.backbones.embed import NothingUsable
from flawsort.clusters.assign import UNSEEN, Assignment
from flawsort.clusters.kinds import Regions, join_in_order
from flawsort.core.errors import FlawsortError
from flawsort.core.records import Floats, ImageSet, Ints, Progress, SetAside
from flawsort.core.tables import Table
from flawsort.embeddings.weights import image_scores
from flawsort.estimator import AnomalyClusterer
from flawsort.fitting.assign import OnRegions
from flawsort.labels.newcomers import Arrivals, Newcomers, judge_of, sort_newcomers, title_of
from flawsort.labels.regions import newcomer_kinds
from flawsort.labels.session import Session
from flawsort.labels.state import State
from flawsort.labels.store import Closing
from flawsort.runs.assigned import NEW_IMAGES, Kept, SortedImages, proposals, propose_kinds
from flawsort.runs.convert import located_places
from flawsort.runs.folder import open_run
from flawsort.runs.matches import matched_in
from flawsort.runs.pictures import SIDES, Looked, Sides, make_close_ups, make_thumbnails


@dataclass(frozen=True)
class Sorted:
    """New images with their clusters, their scores (n, n_patches) and their groups."""

    images: ImageSet
    found: Assignment
    scores: Floats
    newcomers: Newcomers


class Seen:
    """The regions of images, batch by batch, as `Sorter.sort` finds them."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Regions, int]] = {}

    def __call__(self, digests: Sequence[str], regions: Regions) -> None:
        for row, digest in enumerate(digests):
            self._of[digest] = regions, row

    def of(self, images: ImageSet) -> Regions:
        """The regions of these images, by their rows."""
        parts = []
        for row, digest in enumerate(images.digests):
            regions, place = self._of[digest]
            own = np.flatnonzero(regions.outlines.images == place)
            parts.append((regions.take(own), np.full(len(own), row)))
        return join_in_order(parts)


class Sorter(Closing):
    """A run with its model.

    folder: of the run. where: the parameters of AnomalyClusterer.load that choose device and
    runner. cache: as of AnomalyClusterer. fetch: as of a Run, for the pictures of what matches
    best. hold_open: keep the backbones open between two calls of `sort`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        where: Mapping[str, Any],
        cache: str | Path | None = None,
        fetch: Sequence[str] = (),
        hold_open: bool = False,
    ) -> None:
        self.folder = folder
        self.run = open_run(folder, fetch=fetch)
        self.model = AnomalyClusterer.from_run(self.run, **where)
        self.model.cache = cache
        self._session = Session(folder, self.run)
        if hold_open:
            self.model.hold_open()

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        self._session.close()

    @property
    def state(self) -> State:
        """The groups, as of the last refresh."""
        return self._session.state

    def refresh(self) -> State:
        """The groups with what people have taught since."""
        return self._session.refresh()

    def sort(
        self,
        images: ImageSet,
        *,
        keep_vectors: int = 0,
        keep_parts: bool = False,
        as_one_of: int = 1,
        on_regions: OnRegions | None = None,
        progress: Progress | None = None,
    ) -> Sorted:
        """The groups of the usable images. The parameters are those of AnomalyClusterer.assign."""
        state = self.state
        self.model.progress = progress
        usable, found, scores = self.model.assign(
            images,
            judge=judge_of(state.suggestions, state.space().space),
            keep_vectors=keep_vectors,
            keep_parts=keep_parts,
            as_one_of=as_one_of,
            on_regions=on_regions,
        )
        arrivals = Arrivals.of(usable, found)
        newcomers = sort_newcomers(arrivals, self.run, state.labelling, state.suggestions)
        return Sorted(usable, found, scores, newcomers)

    def try_sort(
        self,
        images: ImageSet,
        *,
        keep_vectors: bool = False,
        as_one_of: int = 1,
        on_regions: OnRegions | None = None,
    ) -> tuple[Sorted | None, list[SetAside]]:
        """The groups of the usable images, None if there are none, and those that are not usable.
        An image at which the program fails is one of these, so that one file stops nothing.
        keep_vectors: of all images. The others are those of `sort`."""
        if not len(images):
            return None, []
        try:
            found = self.sort(
                images,
                keep_vectors=len(images) if keep_vectors else 0,
                as_one_of=as_one_of,
                on_regions=on_regions,
            )
            return found, list(found.images.set_aside)
        except NothingUsable as error:
            return None, list(error.set_aside)
        except (FlawsortError, OSError, MemoryError):
            raise
        except Exception as error:
            bad = self._failing(images, error, as_one_of)
        failing = {one.name for one in bad}
        rest = [row for row, name in enumerate(images.names) if name not in failing]
        sorted_, more = self.try_sort(
            images.take(rest),
            keep_vectors=keep_vectors,
            as_one_of=as_one_of,
            on_regions=on_regions,
        )
        return sorted_, [*bad, *more]

    def _failing(self, images: ImageSet, error: Exception, as_one_of: int) -> list[SetAside]:
        """The images that cannot be sorted alone, of some that could not be sorted together."""
        if len(images) == 1:
            reason = f"unexpected {type(error).__name__}: {error}. This is a bug in flawsort"
            return [SetAside(images.names[0], reason)]
        rows = range(len(images))
        tried = [self.try_sort(images.take([row]), as_one_of=as_one_of) for row in rows]
        bad = [one for _, aside in tried for one in aside]
        if not bad:
            raise error
        return bad

    def table(self, found: Sorted, when: Sequence[str]) -> tuple[Table, list[int]]:
        """The table of new images, and the sizes of the new kinds that are proposed among them.
        when: the period of each image."""
        fitted, groups, boxes = self.model.fitted_, found.newcomers.groups, found.found.boxes
        unseen = found.found.unseen[groups[found.found.strange] == UNSEEN]
        proposed = propose_kinds(unseen, fitted.linkage, fitted.n_clusters)
        table = NEW_IMAGES.build(
            SortedImages(
                found.images,
                found.found,
                image_scores(found.scores, tile=fitted.describer.looks[0].tile),
                found.newcomers.columns,
                found.newcomers.verdicts,
                when,
                proposals(groups.tolist(), proposed),
                None if boxes is None else located_places(boxes, found.images, fitted),
                matched_in(fitted, found.found.matches),
            )
        )
        return table, np.bincount(proposed).tolist()

    def other_kinds(self, found: Sorted, seen: Seen) -> list[list[str]]:
        """What each image shows besides its group: the titles of `newcomer_kinds`. seen: the
        regions."""
        regions, arrivals = seen.of(found.images), Arrivals.of(found.images, found.found)
        kinds = newcomer_kinds(regions, found.newcomers, arrivals, self.run, self.state)
        return [[title_of(group, self.state.labelling) for group in groups] for groups in kinds]

    def kept(
        self, found: Sorted, name: str, table: Table, by: str, rows: Ints, *, sides: Sides = SIDES
    ) -> Kept:
        """The images as a run keeps them for the review. rows: those that get pictures, the first
        ones. sides: of the pictures."""
        images, fitted = found.images, self.model.fitted_
        at = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"at": at, "by": by, "n_images": len(images), "flawsort": __version__}
        size = fitted.input_size
        shown = make_thumbnails(images, fitted.view, size, rows, sides=sides)
        close_ups, matches = None, None
        boxes, places = found.found.boxes, found.found.matches
        if boxes is not None and places is not None:
            looked = Looked.of(images, boxes, places, fitted)
            close_ups, matches = make_close_ups(looked, rows, sides=sides)
        return Kept(name, table, shown, about, found.found.vectors, close_ups, matches)

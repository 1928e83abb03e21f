"""Where to look in the images of a saved run: the most unusual place of each, and its match."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Source
from flawsort.embeddings.places import hottest_boxes
from flawsort.images.closeups import close_up_box
from flawsort.images.view import Box
from flawsort.runs.matches import Match, match_in
from flawsort.runs.pictures import Looked, Sides, make_close_ups, place_in
from flawsort.runs.run import Run
from flawsort.scores.places import NOWHERE


@dataclass(frozen=True)
class Looking:
    """Where to look in the images of a run."""

    run: Run

    @property
    def known(self) -> bool:
        """Whether the images have a most unusual place: they do if patches were compared."""
        return self.run.mode != "uniform"

    @cached_property
    def patches(self) -> NDArray[np.int64]:
        """(n_images, 4): top, left, bottom and right of the most unusual place, in patches."""
        run = self.run
        return hottest_boxes(run.scores, run.valid, run.outlines, run.grid)[0]

    def match(self, row: int) -> Match | None:
        """The best matching place of the reference; None if there is none, or in an older run."""
        return match_in(self.run.table, row)

    def box(self, row: int, aspect: float) -> Box:
        """The close-up of an image: left, top, right, bottom in fractions of its picture. aspect:
        width over height of the picture."""
        grid, match = self.run.grid, self.match(row)
        frame = (0.0, 0.0, aspect, 1.0)
        move = (0, 0) if match is None else (match.down, match.across)
        box = close_up_box(place_in(self.patches[row], frame, grid), frame, grid, move)
        return box[0] / aspect, box[1], box[2] / aspect, box[3]

    def pair(
        self, row: int, source: Source, matching: Source | None, side: int
    ) -> tuple[bytes, bytes]:
        """JPEGs of the close-up and of the matching place, at most `side` pixels wide and high, cut
        from files. Empty bytes where a file cannot be read, or where there is no match."""
        run, match = self.run, self.match(row)
        found = NOWHERE
        if match is not None and matching is not None:
            found = (0, match.down, match.across)
        looked = Looked(
            [source],
            self.patches[row : row + 1],
            np.array([found], np.int64),
            [] if matching is None else [matching],
            run.view,
            run.input_size,
            run.grid,
        )
        here, there = make_close_ups(looked, np.array([0]), sides=Sides((), side))
        return here[0], there[0]

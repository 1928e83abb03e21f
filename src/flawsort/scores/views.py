"""A reference for several views of the same images, with calibrated scores on one grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.grids import Grid, interpolated
from flawsort.core.records import Bags, Bools, Floats, Ints, Progress
from flawsort.scores.engines import Engine
from flawsort.scores.reference import (
    Comparison,
    Reference,
    StoredReference,
    restore_reference,
)
from flawsort.scores.usual import (
    Usual,
    calibrate_normals,
    joined,
    usual_of_normals,
    usual_of_peers,
)


@dataclass(frozen=True)
class ViewReference:
    """The reference of one view, what is usual against it, and the view's grid."""

    reference: Reference
    usual: Usual
    grid: Grid

    def calibrated(self, comparison: Comparison) -> Comparison:
        """The same comparison with calibrated scores."""
        return replace(comparison, scores=self.usual.calibrate(comparison.scores))


@dataclass(frozen=True)
class Compared:
    """Images compared with the reference of one view, before calibration."""

    comparison: Comparison
    reference: Reference


@dataclass(frozen=True)
class Combined:
    """Images compared in all views. normal_scores: (n_normals, n_patches), of some normals compared
    with the others, NaN where a patch does not count; None if they are not known."""

    comparison: Comparison
    reference: Reference
    normal_scores: NDArray[np.float32] | None = None


def combine(
    compared: list[Compared],
    bags: Bags,
    normal_scores: tuple[Floats, ...] | None,
    *,
    calibrated: bool,
) -> Combined:
    """One comparison from those of all views.

    normal_scores: of each view, see Combined. calibrated: subtract the usual scores. Otherwise
    there is one view, as the scores of two backbones are not on one scale.
    """
    if not calibrated:
        (only,) = compared
        known = None if normal_scores is None else np.asarray(normal_scores[0], np.float32)
        return Combined(only.comparison, only.reference, known)
    views = []
    for number, (one, view) in enumerate(zip(compared, bags.views, strict=True)):
        if normal_scores is None:
            usual = usual_of_peers(one.comparison.scores, view.grid, view.valid)
        else:
            usual = usual_of_normals(normal_scores[number], view.grid)
        views.append(ViewReference(one.reference, usual, view.grid))
    reference = CalibratedReference(tuple(views))
    comparison = reference.combine([one.comparison for one in compared], bags)
    known = None if normal_scores is None else reference.of_normals(normal_scores)
    return Combined(comparison, reference, known)


class CalibratedReference:
    """The references of all views. Scores are calibrated in each view, and averaged over the views
    on the grid of the first."""

    def __init__(self, views: tuple[ViewReference, ...]) -> None:
        self.views = views

    @property
    def kind(self) -> str:
        return self.views[0].reference.kind

    @property
    def knows_normal(self) -> bool:
        return self.views[0].reference.knows_normal

    @property
    def engine(self) -> Engine:
        return self.views[0].reference.engine

    @engine.setter
    def engine(self, engine: Engine) -> None:
        for view in self.views:
            view.reference.engine = engine

    def compare(
        self, bags: Bags, *, self_rows: Ints | None = None, progress: Progress | None = None
    ) -> Comparison:
        """Compare images with the reference in each view. self_rows: see Reference."""
        found = [
            view.reference.compare(one, self_rows=self_rows, progress=progress)
            for view, one in zip(self.views, bags.views, strict=True)
        ]
        return self.combine(found, bags)

    def combine(self, found: list[Comparison], bags: Bags) -> Comparison:
        """One comparison from those of the views, before calibration."""
        own = [view.calibrated(one) for view, one in zip(self.views, found, strict=True)]
        scores = self.join([one.scores for one in own], [one.valid for one in bags.views])
        return Comparison(scores, own[0].expected, own[0].how, tuple(own), own[0].match)

    def join(
        self, scores: list[NDArray[np.float32]], valid: list[Bools | None]
    ) -> NDArray[np.float32]:
        """(n, n_patches): calibrated scores of all views on the grid of the first. valid: of each
        view."""
        grid = self.views[0].grid
        others = zip(self.views[1:], scores[1:], valid[1:], strict=True)
        moved = [
            _moved(values, counted, view.grid, grid, scores[0]) for view, values, counted in others
        ]
        return joined([scores[0], *moved])

    def of_normals(self, scores: tuple[Floats, ...]) -> NDArray[np.float32]:
        """(n_normals, n_patches): the calibrated scores of normals. scores: of each view, NaN where
        a patch does not count."""
        valid = [np.isfinite(values) for values in scores]
        own = [
            np.nan_to_num(calibrate_normals(values, view.grid, view.usual))
            for view, values in zip(self.views, scores, strict=True)
        ]
        together = self.join(own, list(valid))
        return np.where(valid[0], together, np.nan).astype(np.float32)

    def for_many(self, n_images: int, n_patches: int) -> CalibratedReference:
        """The same reference for this many images in batches; see Reference. Each view knows the
        number of its own patches."""
        settled = []
        for view in self.views:
            patches = view.grid[0] * view.grid[1]
            settled.append(replace(view, reference=view.reference.for_many(n_images, patches)))
        return CalibratedReference(tuple(settled))

    def stored(self) -> StoredReference:
        """What a run stores of the first view; see `stored_views` for all."""
        return self.views[0].reference.stored()


def references_of(reference: Reference) -> tuple[Reference, ...]:
    """The reference of each view."""
    if isinstance(reference, CalibratedReference):
        return tuple(view.reference for view in reference.views)
    return (reference,)


@dataclass(frozen=True)
class StoredView:
    """The part of a reference that a run stores for one view. usual: None if scores are not
    calibrated. grid: None in that case too."""

    reference: StoredReference
    usual: Usual | None = None
    grid: Grid | None = None

    def arrays(self) -> list[NDArray[Any]]:
        """All its arrays, to tell two references apart."""
        found: list[NDArray[Any]] = [self.reference.patches, *(self.reference.lists or ())]
        if self.usual is not None:
            found += [self.usual.places, np.array([self.usual.spread])]
        return found


def stored_views(reference: Reference) -> tuple[StoredView, ...]:
    """What a run stores of a reference, for each view."""
    if not isinstance(reference, CalibratedReference):
        return (StoredView(reference.stored()),)
    return tuple(StoredView(one.reference.stored(), one.usual, one.grid) for one in reference.views)


def restore_views(
    stored: Sequence[StoredView],
    *,
    nearest_share: float,
    over: str = "mean",
    expected_normals: int = 0,
    engine: Engine | None = None,
) -> Reference:
    """The reference that `stored_views` described. nearest_share, over, expected_normals: see
    restore_reference."""
    views = []
    for one in stored:
        reference = restore_reference(
            one.reference,
            nearest_share=nearest_share,
            over=over,
            expected_normals=expected_normals,
            engine=engine,
        )
        if one.usual is None or one.grid is None:
            return reference
        views.append(ViewReference(reference, one.usual, one.grid))
    return CalibratedReference(tuple(views))


def _moved(
    scores: NDArray[np.float32],
    valid: Bools | None,
    old: Grid,
    new: Grid,
    first: NDArray[np.float32],
) -> NDArray[np.float32]:
    """(n, n_patches of the new grid): scores on another grid, from the patches that count alone.
    first: the scores of the first view, taken where no patch that counts is near."""
    if valid is None:
        return interpolated(scores, old, new)
    share = interpolated(valid.astype(np.float32), old, new)
    found = interpolated(np.where(valid, scores, 0), old, new)
    return np.where(share > 1e-6, found / np.maximum(share, 1e-6), first).astype(np.float32)

"""The groups of a fitted estimator: from known labels, from the review, or as clustered."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.records import Floats, ImageSet, Ints
from flawsort.core.text import pluralise
from flawsort.fitting.attributes import FittedAttributes
from flawsort.fitting.fitted import Fitted
from flawsort.images.budget import BUDGET
from flawsort.images.inputs import Images, given_places
from flawsort.labels.beginning import Begun, Clustered, Known, begin
from flawsort.labels.known import given_labels
from flawsort.labels.session import Session, read_settled
from flawsort.labels.start import Start
from flawsort.labels.store import EditStore
from flawsort.runs.convert import make_run
from flawsort.runs.folder import EDITS
from flawsort.runs.run import Run

# Labels that are known: one or None for each image, or by the names of images.
Labels: TypeAlias = Sequence[str | None] | Mapping[str, str | None]


class GroupAttributes(FittedAttributes):
    """What an estimator knows of groups beyond its clusters."""

    # The run that a model was loaded from.
    _loaded: tuple[Fitted, Run] | None = None
    # What was known at the last fit, and the groups that follow from it.
    _start: Start | None = None
    _begun: Begun | None = None
    # The bytes that the memory limit of the last fit leaves for decoding images.
    _decoding: int | None = None

    @property
    def group_names_(self) -> tuple[str, ...]:
        """What the groups are called: by their labels, "normal", or "Group 3" for one that nobody
        named."""
        return tuple(group.title for group in self._groups.labelling.groups.values())

    @property
    def groups_(self) -> NDArray[np.int64]:
        """(n,): the place of each image's group in `group_names_`, as decided or suggested."""
        return self.places_of(self._groups.suggestions.groups)

    @property
    def probabilities_(self) -> NDArray[np.float64]:
        """(n,): how sure the taught model is of `groups_`; nan where a label was given, or where
        nothing was taught about the group."""
        return self._groups.suggestions.probability

    def make_run(self) -> Run:
        """The results as a run that is not saved yet."""
        fitted = self._checked()
        if self._loaded is not None and self._loaded[0] is fitted:
            return self._loaded[1].unreviewed()
        with BUDGET.limited(self._decoding):
            run = make_run(fitted)
        return run if self._begun is None else self._begun.named(run)

    def write_groups(self, run: Run, folder: Path, *, follows: int = 0) -> None:
        """Write the groups that a run begins with into its folder. What people said meanwhile in
        a run that this one starts from counts too. follows: the version of the edits of the run
        that it replaces."""
        now = None if self._start is None else self._start.again()
        if now is not None and now is not self._start:
            self._start, (self._begun, _) = now, self._begin(now)
        if self._begun is not None:
            self._begun.write(folder, follows=follows)
            with Session(folder, run):  # its end brings the tables up to date
                pass

    @contextmanager
    def hold_edits(self, run: Run, replaced: Path, folder: Path) -> Iterator[None]:
        """Nobody can edit a run within the with statement, which replaces it by `run` in
        `folder`. That begins with what people have said up to now."""
        if not replaced.is_dir():
            yield
            return
        with EditStore(replaced / EDITS) as store, store.held() as version:
            if version:
                (folder / EDITS).unlink(missing_ok=True)
                self.write_groups(run, folder, follows=version)
            yield

    def _may_replace(self, folder: Path) -> bool:
        """Whether the run in a folder can be replaced without losing what people said there."""
        start = self._start or Start()
        return start.may_replace(folder)

    def places_of(self, ids: Ints) -> NDArray[np.int64]:
        """(n,): the places of groups in `group_names_`; ids below 0 stay."""
        known = np.array(list(self._groups.labelling.groups), np.int64)
        return np.where(ids < 0, ids, np.searchsorted(known, ids))

    @property
    def _groups(self) -> Begun:
        return self._named or begin(Known(), Clustered.of(self._checked()))

    @property
    def _named(self) -> Begun | None:
        """The groups, if anything is known of them; None if they are the clusters."""
        fitted, loaded = self._checked(), self._loaded
        if self._begun is not None or loaded is None or loaded[0] is not fitted:
            return self._begun
        folder = loaded[1].folder
        if folder is None or not (folder / EDITS).exists():
            return None
        now = read_settled(folder, loaded[1])
        return Begun(now.labelling, now.suggestions, now.space(), now.spent)

    def _begin(self, start: Start) -> tuple[Begun | None, list[str]]:
        """The groups that follow from what is known, and notes about it."""
        fitted = self._checked()
        known, notes = start.known(fitted.images, self._embedded)
        return (None if known is None else begin(known, Clustered.of(fitted))), notes

    def _embedded(self, images: ImageSet) -> tuple[ImageSet, Floats]:
        """The usable ones of new images, and their embeddings (n, dim)."""
        raise NotImplementedError


def start_of(y: Labels | Start | None, given: Images, images: ImageSet) -> Start | None:
    """What a fit starts from. y: as the user passed it. images: those found in `given`."""
    if y is None or isinstance(y, Start):
        return y
    rows, n = given_places(given, images)
    if isinstance(y, str) or not hasattr(y, "__len__"):
        raise InputError(
            "y must be a list with one label or None for each image, or a mapping from names to "
            f"labels. Got {reprlib.repr(y)}."
        )
    if not isinstance(y, Mapping) and len(y) != n:
        raise InputError(
            f"y must have one label or None for each of the {pluralise(n, 'image')}. Got {len(y)}. "
            "For a folder, give a mapping from names to labels."
        )
    labels = given_labels(y, images, rows)
    return Start(labels=labels, notes=labels.notes)

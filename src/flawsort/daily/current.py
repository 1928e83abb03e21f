"""A run that answers as it is now: opened once, and again where it was replaced."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from flawsort._version import __version__
from flawsort.core.errors import FlawsortError
from flawsort.core.text import printable
from flawsort.daily.answers import AboutBody, AnswerBody, GroupBody, answer_of
from flawsort.daily.sorter import Seen, Sorter
from flawsort.daily.uploads import Upload, as_files
from flawsort.images.find import array_images
from flawsort.labels.store import Closing
from flawsort.runs.folder import stamp_of

# Seconds until a run that could not be read is tried again.
RETRY_AFTER = 5.0


class CurrentRun(Closing):
    """Sorts images with a run and what people have taught it by now. For one thread at a time.

    where: as of a Sorter. now: a clock, in seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        where: Mapping[str, Any],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._now = folder, now
        self._where = dict(where)
        self._stamp = stamp_of(folder)
        self._sorter = self._opened()
        self._failed_at = -RETRY_AFTER
        self._problem: str | None = None
        # How often the run was opened again.
        self.reopened = 0

    def close(self) -> None:
        self._sorter.close()

    @property
    def version(self) -> int:
        """Of the groups, as of the last answer."""
        return self._sorter.state.version

    def answer(self, uploads: Sequence[Upload], *, heat_map: bool = False) -> AnswerBody:
        """What the run says of some images, exactly as `flawsort assign` says it of them."""
        self._follow()
        with as_files(uploads) as images:
            seen = Seen()
            usable = replace(images, set_aside=())
            found, aside = self._sorter.try_sort(usable, on_regions=seen)
            aside = [*images.set_aside, *aside]
            return answer_of(self._sorter, found, aside, seen, uploads, heat_map=heat_map)

    def about(self) -> AboutBody:
        """What the run knows now."""
        self._follow()
        state = self._sorter.state
        groups = state.labelling.groups.values()
        return AboutBody(
            flawsort=__version__,
            version=state.version,
            taught=state.suggestions.n_taught,
            threshold=state.labelling.threshold,
            groups=[GroupBody(name=one.title, role=one.role) for one in groups],
            problem=self._problem,
        )

    def _follow(self) -> None:
        """Take in what people have taught since, and a run that has replaced this one. If that
        cannot be read, the run stays as it was."""
        stamp = stamp_of(self._folder)
        if self._problem is not None and self._now() - self._failed_at < RETRY_AFTER:
            return
        try:
            if stamp is not None and stamp == self._stamp and self._problem is None:
                try:
                    self._sorter.refresh()
                    return
                except FlawsortError:  # the file of edits was replaced
                    pass
            fresh = self._opened()
        except (FlawsortError, OSError) as error:
            self._problem, self._failed_at = printable(str(error)), self._now()
            return
        self._sorter.close()
        self._sorter, self._stamp, self._problem = fresh, stamp, None
        self.reopened += 1

    def _opened(self) -> Sorter:
        """The run with its backbones, which have looked at an image already."""
        sorter = Sorter(self._folder, where=self._where, hold_open=True)
        try:
            grey = np.full((64, 64, 3), 128, np.uint8)
            sorter.try_sort(array_images([grey]))
        except BaseException:
            sorter.close()
            raise
        return sorter

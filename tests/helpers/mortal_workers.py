"""Workers of a Ray cluster that keep a diary, and some that die. Ray imports this module itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from flawsort.core import threads
from flawsort.core.errors import FlawsortError
from flawsort.fitting import ray_workers as fleet
from flawsort.fitting.parts import Batch
from flawsort.fitting.ray_workers import BatchWorker


class DiaryWorker(BatchWorker):
    """Writes down who did which batch in how many threads: a line a batch, beside the parts."""

    def _finish(self, batch: Batch) -> FlawsortError | None:
        if not self._files.has(batch):
            with (Path(self._files.folder).parent / "diary").open("a") as diary:
                diary.write(f"{os.getpid()} {batch.images.names[0]} {threads.n_threads()}\n")
        return super()._finish(batch)


class OnceMortalWorker(DiaryWorker):
    """The first of all that comes to its second batch is killed in the middle of it."""

    _n_done = 0

    def _embed(self, images: Any) -> Any:
        found = super()._embed(images)
        self._n_done += 1
        if self._n_done == 2:
            try:
                (Path(self._files.folder).parent / "died").open("x").close()
            except FileExistsError:
                return found
            os.kill(os.getpid(), signal.SIGKILL)
        return found


class PoisonedWorker(DiaryWorker):
    """Dies over every batch."""

    def __init__(self, *arguments: Any) -> None:
        fleet.MAX_DEATHS = 2
        super().__init__(*arguments)

    def _embed(self, images: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

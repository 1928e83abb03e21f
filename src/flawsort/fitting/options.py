"""The options of a fit, and a clock for its stages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from flawsort.core.records import Progress
from flawsort.embeddings.method import Method
from flawsort.fitting.memory import USUAL_SIZES, Sizes
from flawsort.images.maps import Maps
from flawsort.scores.engines import Engine


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit. n_clusters: the number of groups, or "auto" to take the advice.
    tell_recall: say how good an approximate comparison is, because it was asked for. maps: of the
    images, where the method takes weights from them."""

    method: Method
    engine: Engine
    n_clusters: int | Literal["auto"] = "auto"
    random_state: int = 0
    sizes: Sizes = USUAL_SIZES
    progress: Progress | None = None
    tell_recall: bool = False
    maps: Maps | None = None


class Stopwatch:
    """Measures the seconds that each stage takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        passed = time.perf_counter() - start
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + passed, 3)

"""The default engine, without extra packages: NumPy's BLAS, or int8 if it is precise enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bags, Floats, Ints, Progress
from flawsort.scores import hausdorff as distances
from flawsort.scores import nearest
from flawsort.scores.engines.int8 import Int8
from flawsort.scores.nearest import SINGLES, BagProduct, Nearest
from flawsort.scores.peer_statistics import PeerStatistic

# About 5 seconds on two cores. Larger searches in a bank use inverted lists;
# docs/evidence/performance.md has their recall and the cost in NMI.
EXACT_FLOP = 5e11
# Up to this many operations, a few seconds, int8 saves nothing.
SINGLES_FLOP = 5e11


@dataclass(frozen=True)
class CpuLimits:
    """exact_flop: the number of operations up to which a search in a bank is exact. singles_flop:
    the number up to which bags are compared in float32 if the arithmetic is "auto"."""

    exact_flop: float = EXACT_FLOP
    singles_flop: float = SINGLES_FLOP


CPU_LIMITS = CpuLimits()


class CpuEngine:
    """Compares patches on the CPU.

    arithmetic: "float32"; "int8" for comparing bags with each other, where errors of 0.003 in a
    distance average out; "auto" for int8 if the work is large. The search in a bank is always in
    float32. limits: the amounts of work that decide how it is done.
    """

    def __init__(
        self,
        arithmetic: Literal["float32", "int8", "auto"] = "float32",
        *,
        limits: CpuLimits = CPU_LIMITS,
    ) -> None:
        self._arithmetic = arithmetic
        self._limits = limits

    @property
    def name(self) -> str:
        if self._arithmetic == "auto":
            return "the CPU, int8 where the work is large"
        return "onnxruntime on the CPU, int8" if self._arithmetic == "int8" else self.searched_by

    @property
    def searched_by(self) -> str:
        return "NumPy on the CPU, float32"

    @property
    def single_precision(self) -> bool:
        return self._arithmetic == "float32"

    @property
    def searches_in_single_precision(self) -> bool:
        return True

    def for_work(self, flop: float) -> CpuEngine:
        if self._arithmetic != "auto":
            return self
        small = flop <= self._limits.singles_flop
        return CpuEngine("float32" if small else "int8", limits=self._limits)

    def in_single_precision(self) -> CpuEngine:
        return self if self.single_precision else CpuEngine(limits=self._limits)

    @property
    def exact_flop(self) -> float:
        return self._limits.exact_flop

    def nearest_in_bank(
        self, queries: Floats, bank: Floats, *, progress: Progress | None = None
    ) -> Nearest:
        return nearest.nearest_in_bank(queries, bank, progress=progress)

    def fold_peers(
        self,
        patches: Floats,
        peers: Ints,
        statistic: PeerStatistic,
        *,
        extra: Floats | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        bags = self._product(patches)
        return nearest.fold_peers(
            patches, peers, statistic, extra=extra, bags=bags, progress=progress
        )

    def fold_references(
        self,
        patches: Floats,
        references: Floats,
        statistic: PeerStatistic,
        *,
        self_rows: Ints | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        bags = self._product(patches)
        return nearest.fold_references(
            patches, references, statistic, self_rows=self_rows, bags=bags, progress=progress
        )

    def expected_from_peers(
        self, patches: Floats, chosen: Ints, references: Floats, self_rows: Ints
    ) -> NDArray[np.float32]:
        return nearest.expected_from_peers(patches, chosen, references, self_rows)

    def mean_distances(
        self, bags: Bags, *, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        return distances.mean_distances(bags, progress=progress)

    def _product(self, patches: Floats) -> BagProduct:
        return Int8(patches.shape[2]) if self._arithmetic == "int8" else SINGLES

"""The interface of an engine: the inner loop of `scores.nearest` on a device, in an arithmetic."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bags, Floats, Ints, Progress
from flawsort.scores.nearest import Nearest
from flawsort.scores.peer_statistics import PeerStatistic


class Engine(Protocol):
    """Compares patches. All arrays are NumPy arrays. The methods are documented as functions in
    `scores.nearest` and `scores.hausdorff`."""

    @property
    def name(self) -> str:
        """Its name in the run, such as "NumPy on the CPU, float32"."""

    @property
    def searched_by(self) -> str:
        """The same, for the search in a bank."""

    @property
    def single_precision(self) -> bool:
        """Whether bags are compared with each other as in single precision. If not, distances are
        rounded further."""

    @property
    def searches_in_single_precision(self) -> bool:
        """The same of the search in a bank."""

    @property
    def exact_flop(self) -> float:
        """The number of operations up to which a search among normals is exact."""

    def for_work(self, flop: float) -> Engine:
        """The engine for this many operations: itself, unless its arithmetic depends on them."""

    def in_single_precision(self) -> Engine:
        """The engine that compares bags as in single precision, on the same device."""

    def nearest_in_bank(
        self, queries: Floats, bank: Floats, *, progress: Progress | None = None
    ) -> Nearest: ...

    def fold_peers(
        self,
        patches: Floats,
        peers: Ints,
        statistic: PeerStatistic,
        *,
        extra: Floats | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]: ...

    def fold_references(
        self,
        patches: Floats,
        references: Floats,
        statistic: PeerStatistic,
        *,
        self_rows: Ints | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]: ...

    def expected_from_peers(
        self, patches: Floats, chosen: Ints, references: Floats, self_rows: Ints
    ) -> NDArray[np.float32]: ...

    def mean_distances(
        self, bags: Bags, *, progress: Progress | None = None
    ) -> NDArray[np.float32]: ...

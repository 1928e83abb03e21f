"""The engine on torch: plain products on any device, and Triton's fused kernels on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from flawsort.core.devices import gpu_of
from flawsort.core.errors import OptionError
from flawsort.core.records import Bags, Floats, Ints, Progress
from flawsort.scores.distances import distances_to_found
from flawsort.scores.engines.cpu import EXACT_FLOP
from flawsort.scores.engines.torch_patches import (
    Patches,
    distances_of,
    half_lack,
    left_factor,
    right_factor,
)
from flawsort.scores.nearest import Nearest
from flawsort.scores.peer_statistics import Combined, PeerStatistic

Arithmetic: TypeAlias = Literal["float16", "bfloat16", "tf32", "float32"]
Kept = TypeVar("Kept")

_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "tf32": torch.float32,
    "float32": torch.float32,
}
# The size in bytes of the distances that are reduced at once.
DISTANCES_AT_ONCE = 2**29
# The size in bytes of the similarities that are held in memory at once, without fused kernels.
SIMILARITIES_AT_ONCE = 2**29
PAIRS_AT_ONCE = 4096
QUERIES_AT_ONCE = 2**17
# The number of patches of a bank that are searched at once on a CPU.
BANK_AT_ONCE = 2**18
# The table of all pairs, or a bank, takes at most this share of the free memory of the device.
SHARE_OF_MEMORY = 0.6
# For the kernels, the number of patches and their dimension are padded to multiples of these.
PATCHES_MULTIPLE = 128
DIM_MULTIPLE = 8


@dataclass(frozen=True)
class Pieces:
    """The sizes of the pieces that the work is cut into.

    distances, similarities: in bytes. pairs: of bags. queries: of a search. bank: patches of a
    bank; None for what fits a GPU's memory, and BANK_AT_ONCE on a CPU.
    """

    distances: int = DISTANCES_AT_ONCE
    similarities: int = SIMILARITIES_AT_ONCE
    pairs: int = PAIRS_AT_ONCE
    queries: int = QUERIES_AT_ONCE
    bank: int | None = None


PIECES = Pieces()


class TorchEngine:
    """Compares patches with torch.

    device: see flawsort.core.devices. arithmetic: of the products; sums are in float32. Bags are
    stored in float16, so products in float16 lose nothing. fused: whether to use Triton's kernels.
    pieces: the sizes of what is computed at once.
    """

    def __init__(
        self, device: str, arithmetic: Arithmetic, *, fused: bool, pieces: Pieces = PIECES
    ) -> None:
        self._pieces = pieces
        self._device = torch.device(device)
        self._arithmetic = arithmetic
        self._dtype = _DTYPES[arithmetic]
        self._fused = fused
        self._gpu = gpu_of(device)
        self.exact_flop = EXACT_FLOP
        if self._gpu is not None:
            self.exact_flop = self._gpu.fused_flop if fused else self._gpu.exact_flop

    @property
    def name(self) -> str:
        what = "Triton" if self._fused else "torch"
        where = "the CPU" if self._gpu is None else self._gpu.model(self._device)
        return f"{what} on {where}, {self._arithmetic}"

    @property
    def single_precision(self) -> bool:
        # Products of halves are exact, and the kernels add them in single precision.
        return self._arithmetic == "float32" or (self._fused and self._arithmetic != "bfloat16")

    @property
    def searches_in_single_precision(self) -> bool:
        return self.single_precision

    def for_work(self, flop: float) -> TorchEngine:
        return self

    def in_single_precision(self) -> TorchEngine:
        if self.single_precision:
            return self
        return TorchEngine(str(self._device), "float32", fused=False, pieces=self._pieces)

    @property
    def searched_by(self) -> str:
        return self.name

    def nearest_in_bank(
        self, queries: Floats, bank: Floats, *, progress: Progress | None = None
    ) -> Nearest:
        best = np.full(len(queries), -np.inf, np.float32)
        index = np.zeros(len(queries), np.int64)
        n_piece = self._bank_piece(bank.shape[1])
        starts = range(0, len(bank), n_piece)
        total, at_once = len(starts) * len(queries), self._pieces.queries
        for number, first in enumerate(starts):
            some = bank[first : first + n_piece]
            piece = self._kept(partial(self._patches, some))
            size = len(some)

            def search(start: int, stop: int, piece: Patches = piece) -> Any:
                return self._search(self._patches(queries[start:stop]), piece)

            for start, stop, (top, at) in self._halving(len(queries), at_once, search):
                found = top[: stop - start].cpu().numpy()
                # Padding repeats the last patch, so a match in the padding is a match with it.
                where = at[: stop - start].clamp(max=size - 1).cpu().numpy()
                better = found > best[start:stop]
                best[start:stop][better] = found[better]
                index[start:stop][better] = first + where[better]
                if progress:
                    progress("scoring", number * len(queries) + stop, total)
        return Nearest(distances_to_found(1 + best, queries, bank, index), index)

    def fold_peers(
        self,
        patches: Floats,
        peers: Ints,
        statistic: PeerStatistic,
        *,
        extra: Floats | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        rows = np.unique(peers)
        numbers = np.concatenate(
            [rows, len(patches) + np.arange(0 if extra is None else len(extra))]
        )
        self_rows = np.full(len(patches), -1)
        self_rows[rows] = np.arange(len(rows))
        everybody = len(rows) == len(patches)
        if everybody and self._fused and self._fits(len(patches), len(numbers), patches.shape[1]):
            try:
                table = self._table(patches, extra, numbers, progress)
            except torch.OutOfMemoryError:  # multiply each pair twice instead, in blocks
                self._free_cache()
            else:
                self._add(statistic, np.arange(len(patches)), numbers, table, self_rows)
                return statistic.result()
        references = patches if everybody else patches[rows]
        if extra is not None:
            references = np.concatenate([references, extra])
        return self._fold(patches, references, statistic, self_rows, numbers, progress)

    def fold_references(
        self,
        patches: Floats,
        references: Floats,
        statistic: PeerStatistic,
        *,
        self_rows: Ints | None = None,
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        nobody = np.full(len(patches), -1)
        numbers = np.arange(len(references))
        rows = nobody if self_rows is None else self_rows
        return self._fold(patches, references, statistic, rows, numbers, progress)

    def expected_from_peers(
        self, patches: Floats, chosen: Ints, references: Floats, self_rows: Ints
    ) -> NDArray[np.float32]:
        bank = self._kept(lambda: self._tensor(references).float())
        lack = half_lack(bank)
        expected = np.empty((*chosen.shape, patches.shape[2]), np.float32)

        def expect(start: int, stop: int) -> torch.Tensor:
            images = np.arange(start, stop)
            queries = self._tensor(patches[images[:, None], chosen[start:stop]]).float()
            mine = torch.as_tensor(self_rows[start:stop], device=self._device)
            total = torch.zeros_like(queries)
            for row, bag in enumerate(bank):
                nearest = bag[(queries @ bag.T).add_(lack[row]).argmax(2)]
                total += nearest * (mine != row)[:, None, None]
            others = len(bank) - (mine >= 0).float()
            return total / others.clamp(min=1)[:, None, None]

        each = max(1, 4 * chosen.shape[1] * references.shape[1])
        at_once = max(1, self._pieces.similarities // each)
        for start, stop, found in self._halving(len(patches), at_once, expect):
            expected[start:stop] = found.cpu().numpy()
        return expected

    def mean_distances(
        self, bags: Bags, *, progress: Progress | None = None
    ) -> NDArray[np.float32]:
        n, n_patches = bags.patches.shape[:2]
        patches = self._kept(lambda: right_factor(self._tensor(bags.patches).float()))
        valid = np.ones((n, n_patches), np.float32) if bags.valid is None else bags.valid
        counted = torch.as_tensor(valid, dtype=torch.float32, device=self._device)
        counted = counted / counted.sum(1, keepdim=True)
        means = np.zeros((n, n), np.float32)
        at_once = max(1, self._pieces.similarities // (4 * n_patches**2))
        for image in range(n - 1):
            own = left_factor(patches[image])

            def compare(start: int, stop: int, image: int = image, own: Any = own) -> torch.Tensor:
                others = slice(image + 1 + start, image + 1 + stop)
                closeness = own @ patches[others].flatten(0, 1).T
                distances = distances_of(closeness).view(n_patches, -1, n_patches)
                return torch.einsum("p,pjq,jq->j", counted[image], distances, counted[others])

            for start, stop, found in self._halving(n - 1 - image, at_once, compare):
                means[image, image + 1 + start : image + 1 + stop] = found.cpu().numpy()
            if progress:
                done = (image + 1) * n - (image + 1) * (image + 2) // 2
                progress("scoring", done, n * (n - 1) // 2)
        return means + means.T

    def _fold(
        self,
        patches: Floats,
        references: Floats,
        statistic: PeerStatistic,
        self_rows: Ints,
        numbers: Ints,
        progress: Progress | None,
    ) -> NDArray[np.float32]:
        """Compare each image with all references, one block of images at a time."""
        bank = self._kept(lambda: self._bags(references))
        n_patches = patches.shape[1]

        def compare(start: int, stop: int) -> torch.Tensor:
            return self._distances_to_bags(self._bags(patches[start:stop]), bank, n_patches)

        at_once = max(1, self._pieces.distances // max(1, 4 * len(references) * n_patches))
        for start, stop, distances in self._halving(len(patches), at_once, compare):
            images = np.arange(start, stop)
            self._add(statistic, images, numbers, distances, self_rows[start:stop])
            if progress:
                progress("scoring", stop * len(references), len(patches) * len(references))
        return statistic.result()

    def _table(
        self, patches: Floats, extra: Floats | None, numbers: Ints, progress: Progress | None
    ) -> torch.Tensor:
        """(n, n_peers, n_patches): the distances of all pairs of images, each multiplied once."""
        from flawsort.scores.engines.triton_kernels import pair_maxima

        n, n_patches = patches.shape[:2]
        bags = self._bags(patches)
        table = torch.empty((n, len(numbers), n_patches), device=self._device)
        table.diagonal(dim1=0, dim2=1).zero_()  # statistics ignore it, but it must be initialised
        pairs = torch.combinations(torch.arange(n, device=self._device, dtype=torch.int32), 2)
        total = len(pairs) + n * (len(numbers) - n)
        n_pairs = self._pieces.pairs
        for start in range(0, len(pairs), n_pairs):
            some = pairs[start : start + n_pairs].contiguous()
            along, across = pair_maxima(bags, bags, some, both_ways=True, tf32=self._tf32)
            assert across is not None
            one, other = some[:, 0].long(), some[:, 1].long()
            table[one, other] = distances_of(along - 1)[:, :n_patches]
            table[other, one] = distances_of(across - 1)[:, :n_patches]
            if progress:
                progress("scoring", min(start + n_pairs, len(pairs)), total)
        if extra is not None and len(extra):
            further = self._bags(extra)
            at_once = max(1, n_pairs // len(extra))
            for start in range(0, n, at_once):
                some = bags[start : start + at_once]
                table[start : start + at_once, n:] = self._distances_to_bags(
                    some, further, n_patches
                )
                if progress:
                    done = len(pairs) + min(start + at_once, n) * len(extra)
                    progress("scoring", done, total)
        return table

    def _distances_to_bags(
        self, bags: Patches, references: Patches, n_patches: int
    ) -> torch.Tensor:
        """(n, n_references, n_patches): the distance from each patch to the nearest patch of each
        reference."""
        n, n_references = len(bags), len(references)
        if self._fused:
            from flawsort.scores.engines.triton_kernels import pair_maxima

            own = torch.arange(n, device=self._device, dtype=torch.int32)
            theirs = torch.arange(n_references, device=self._device, dtype=torch.int32)
            pairs = torch.cartesian_prod(own, theirs)
            along, _ = pair_maxima(bags, references, pairs, both_ways=False, tf32=self._tf32)
            return distances_of(along - 1).view(n, n_references, -1)[:, :, :n_patches]
        result = torch.empty((n, n_references, n_patches), device=self._device)
        at_once = max(1, self._pieces.similarities // (self._dtype.itemsize * n_patches**2))
        for image, bag in enumerate(bags.values):
            own = left_factor(bag)
            for start in range(0, n_references, at_once):
                some = references.values[start : start + at_once]
                closeness = (own @ some.flatten(0, 1).T).view(n_patches, len(some), -1)
                result[image, start : start + at_once] = closeness.amax(2).T.float()
        return distances_of(result)

    def _search(self, queries: Patches, bank: Patches) -> tuple[torch.Tensor, torch.Tensor]:
        """(n,) and (n,): minus half the squared distance to the nearest patch, and its row."""
        if self._fused:
            from flawsort.scores.engines.triton_kernels import bank_maxima

            top, at = bank_maxima(queries, bank, n_processors=self._processors, tf32=self._tf32)
            return top - 1, at
        n_queries, values = len(queries), bank.values
        best = torch.empty(n_queries, device=self._device)
        index = torch.empty(n_queries, dtype=torch.int64, device=self._device)
        at_once = max(1, self._pieces.similarities // (self._dtype.itemsize * len(values)))
        for start in range(0, n_queries, at_once):
            some = left_factor(queries.values[start : start + at_once])
            top, at = (some @ values.T).max(1)
            best[start : start + at_once], index[start : start + at_once] = top.float(), at
        return best, index

    def _add(
        self,
        statistic: PeerStatistic,
        images: Ints,
        numbers: Ints,
        distances: torch.Tensor,
        self_rows: Ints,
    ) -> None:
        """Add distances to a statistic. self_rows: (n,), the reference that is the image itself, or
        -1."""
        if isinstance(statistic, Combined):  # separately: none gets them twice if memory runs out
            for part in statistic.statistics:
                self._add(part, images, numbers, distances, self_rows)
            return
        add_many = getattr(statistic, "add_many", None)
        if add_many is not None:
            mine = torch.as_tensor(self_rows, device=self._device)[:, None]
            same = mine == torch.arange(len(numbers), device=self._device)

            def add(start: int, stop: int) -> None:
                block = slice(start, stop)
                add_many(images[block], numbers, distances[block], same[block])

            each = max(1, 4 * len(numbers) * distances.shape[2])
            at_once = max(1, self._pieces.distances // each)
            for _ in self._halving(len(images), at_once, add):
                pass
            return
        for image, mine, rows in zip(images, self_rows, distances.cpu().numpy(), strict=True):
            for at, (peer, row) in enumerate(zip(numbers, rows, strict=True)):
                if at != mine:
                    statistic.add(int(image), int(peer), row)

    def _halving(
        self, total: int, at_once: int, work: Callable[[int, int], Any]
    ) -> Iterator[tuple[int, int, Any]]:
        """(start, stop, work(start, stop)) from 0 to total; in smaller pieces if memory ends."""
        start = 0
        while start < total:
            stop = min(start + at_once, total)
            try:
                result = work(start, stop)
            except torch.OutOfMemoryError as error:
                self._free_cache()
                if stop - start == 1:
                    raise OptionError(
                        f"The GPU's memory ({self._memory()}) does not hold the smallest piece of "
                        "the work. Free some of it, compare with fewer peers, or use the CPU."
                    ) from error
                at_once = (stop - start) // 2
                continue
            yield start, stop, result
            start = stop

    def _bags(self, patches: Floats) -> Patches:
        """(n, n_patches, dim): bags on the device: right factors, or padded for the kernels. Bags
        are padded with copies of their last patch and patches with zeros, which changes no
        result."""
        bags = self._tensor(patches).to(self._dtype)
        if not self._fused:
            bags = right_factor(bags)
            return Patches(bags, bags[..., -2])
        bags = torch.nn.functional.pad(bags, (0, -bags.shape[2] % DIM_MULTIPLE))
        missing = -bags.shape[1] % PATCHES_MULTIPLE
        if missing:
            bags = torch.cat([bags, bags[:, -1:].expand(-1, missing, -1)], 1)
        return Patches.of(bags.contiguous())

    def _patches(self, patches: Floats) -> Patches:
        """(n, dim): the same for patches."""
        return self._bags(patches[None])[0]

    def _tensor(self, values: Floats) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)

    def _kept(self, make: Callable[[], Kept]) -> Kept:
        """Tensors that must fit the device as a whole: the patches to compare with."""
        try:
            return make()
        except torch.OutOfMemoryError as error:
            raise OptionError(
                f"The GPU's memory ({self._memory()}) does not hold the patches to compare with. "
                "Free some of it, compare with fewer peers, or use the CPU."
            ) from error

    def _bank_piece(self, dim: int) -> int:
        """The number of patches of a bank that are on the device at a time."""
        if self._pieces.bank is not None:
            return self._pieces.bank
        if self._gpu is None:
            return BANK_AT_ONCE
        free = self._gpu.memory(self._device)[0]
        piece = int(free * SHARE_OF_MEMORY / 2) // int(self._dtype.itemsize * dim)
        return max(PATCHES_MULTIPLE, piece // PATCHES_MULTIPLE * PATCHES_MULTIPLE)

    def _fits(self, n_images: int, n_peers: int, n_patches: int) -> bool:
        if self._gpu is None:
            return True
        free = self._gpu.memory(self._device)[0]
        return 4 * n_images * n_peers * n_patches <= SHARE_OF_MEMORY * free

    def _memory(self) -> str:
        assert self._gpu is not None  # only GPUs raise OutOfMemoryError
        free, total = self._gpu.memory(self._device)
        return f"{free / 2**30:.1f} of {total / 2**30:.1f} GB free"

    @property
    def _processors(self) -> int:
        return 1 if self._gpu is None else self._gpu.processors(self._device)

    def _free_cache(self) -> None:
        if self._gpu is not None:
            self._gpu.free_cache()

    @property
    def _tf32(self) -> bool:
        return self._arithmetic == "tf32"

"""Statistics of an image's distances to its peers: the mean, the maximum, the mean of the nearest.

Distances are added one pair of images at a time (`add`). On a GPU, those of some images to all
their peers are added at once (`add_many`), so that they are reduced before they are copied to the
CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Ints

# A torch tensor; torch itself is not needed to name it.
Tensor: TypeAlias = Any


# What is taken over the peers: the mean (Eq. 5), and the paper's variants of it.
OVER_PEERS = ("mean", "max", "min")


class PeerStatistic(Protocol):
    """Reduces the distances of an image's patches to its peers."""

    def add(self, image: int, peer: int, distances: NDArray[np.float32]) -> None:
        """Add one pair. image, peer: rows. distances: (n_patches,), from each patch of the image to
        the nearest patch of the peer."""

    def result(self) -> NDArray[np.float32]:
        """(n_images, n_patches)."""


class ManyPeers(PeerStatistic, Protocol):
    """A statistic that also accepts many pairs at once: it adds all of them or, if memory runs out,
    none."""

    def add_many(self, images: Ints, peers: Ints, distances: Tensor, own: Tensor) -> None:
        """Add all peers of some images. images: (n,), rows. peers: (n_peers,), rows. distances:
        (n, n_peers, n_patches), float32. own: (n, n_peers), True where a peer is the image itself
        and must be ignored."""


class MeanOverPeers:
    """The mean over peers (Eq. 5). Memory: (n_images, n_patches)."""

    def __init__(self, n_images: int, n_patches: int) -> None:
        self._sums = np.zeros((n_images, n_patches), np.float64)
        self._counts = np.zeros((n_images, 1), np.int64)

    def add(self, image: int, peer: int, distances: NDArray[np.float32]) -> None:
        self._sums[image] += distances
        self._counts[image] += 1

    def add_many(self, images: Ints, peers: Ints, distances: Tensor, own: Tensor) -> None:
        sums = _to_numpy(distances.masked_fill(own[:, :, None], 0).sum(1))
        itself = _to_numpy(own.sum(1, keepdim=True))
        self._sums[images] += sums
        self._counts[images] += len(peers) - itself

    def result(self) -> NDArray[np.float32]:
        means: NDArray[np.float64] = self._sums / np.maximum(self._counts, 1)
        return means.astype(np.float32)


class MaxOverPeers:
    """The maximum over peers, in place of the mean in Eq. 5. Memory: (n_images, n_patches).

    Part of the paper's ablation: a normal pattern that a single peer lacks counts as unusual.
    """

    def __init__(self, n_images: int, n_patches: int) -> None:
        self._largest = np.zeros((n_images, n_patches), np.float32)

    def add(self, image: int, peer: int, distances: NDArray[np.float32]) -> None:
        np.maximum(self._largest[image], distances, out=self._largest[image])

    def add_many(self, images: Ints, peers: Ints, distances: Tensor, own: Tensor) -> None:
        largest = _to_numpy(distances.masked_fill(own[:, :, None], 0).amax(1))
        self._largest[images] = np.maximum(self._largest[images], largest)

    def result(self) -> NDArray[np.float32]:
        return self._largest.copy()


class MinOverPeers:
    """The minimum over peers, in place of the mean in Eq. 5. Memory: (n_images, n_patches).

    Part of the paper's ablation: nothing is unusual in an image that occurs twice.
    """

    def __init__(self, n_images: int, n_patches: int) -> None:
        self._smallest = np.full((n_images, n_patches), np.inf, np.float32)

    def add(self, image: int, peer: int, distances: NDArray[np.float32]) -> None:
        np.minimum(self._smallest[image], distances, out=self._smallest[image])

    def add_many(self, images: Ints, peers: Ints, distances: Tensor, own: Tensor) -> None:
        smallest = _to_numpy(distances.masked_fill(own[:, :, None], np.inf).amin(1))
        self._smallest[images] = np.minimum(self._smallest[images], smallest)

    def result(self) -> NDArray[np.float32]:
        # Without a peer there is no distance: 0, as for the mean and the maximum.
        return np.where(np.isinf(self._smallest), np.float32(0), self._smallest)


class MeanOverNearestPeers:
    """The mean over the `count` peers that are nearest to a patch.

    With it a normal patch need only resemble some of the images. The mean over all of them counts
    against it those that are rotated, lit or flawed differently. With `add`, the smallest distances
    so far are stored in half precision, and larger ones are dropped from time to time: memory is
    (n_images, count + 32, n_patches), where `count` is a fifth of the peers by default. The peers
    of an image must all be added with `add`, or all with one `add_many`.
    """

    ROOM = 32

    def __init__(self, n_images: int, n_patches: int, count: int) -> None:
        self._count = count
        self._means = np.zeros((n_images, n_patches), np.float32)
        self._kept: NDArray[np.float16] | None = None
        self._filled = np.zeros(n_images, np.int64)

    def add(self, image: int, peer: int, distances: NDArray[np.float32]) -> None:
        if self._kept is None:
            n_images, n_patches = self._means.shape
            shape = (n_images, self._count + self.ROOM, n_patches)
            self._kept = np.full(shape, np.inf, np.float16)
        if self._filled[image] == self._kept.shape[1]:
            self._sort_out(image, self._kept[image])
        self._kept[image, self._filled[image]] = distances
        self._filled[image] += 1

    def add_many(self, images: Ints, peers: Ints, distances: Tensor, own: Tensor) -> None:
        others = distances.masked_fill(own[:, :, None], np.inf)
        n_others = len(peers) - own.sum(1, keepdim=True)
        count = min(self._count, len(peers))
        # A GPU selects fastest along the last axis.
        nearest = others.transpose(1, 2).contiguous().topk(count, largest=False, sorted=False)[0]
        total = nearest.masked_fill(nearest.isinf(), 0).sum(2)
        self._means[images] = _to_numpy(total / n_others.clamp(1, count))

    def result(self) -> NDArray[np.float32]:
        means = self._means.copy()
        for image in np.flatnonzero(self._filled).tolist():
            assert self._kept is not None
            self._sort_out(image, self._kept[image])
            nearest = self._kept[image, : self._filled[image]]
            means[image] = nearest.mean(axis=0, dtype=np.float32)
        return means

    def _sort_out(self, image: int, kept: NDArray[np.float16]) -> None:
        if self._filled[image] <= self._count:
            return
        # Non-negative float16 numbers have the same order as their bits, which sort faster.
        bits = kept.view(np.uint16)
        bits.partition(self._count - 1, axis=0)
        bits[self._count :] = np.float16(np.inf).view(np.uint16)
        self._filled[image] = self._count


class DirectedMinima:
    """The directed distances between images that the Hausdorff distances are computed from.

    largest, mean, smallest: (n_images, n_images), over the patches of the row's image, of their
    distances to the nearest patch of the column's image (Eq. 3). The opposite direction is the
    transposed entry. The diagonal is zero; pairs that were not compared are NaN. Peers beyond
    n_images (`extra` in fold_peers) are left out.
    """

    def __init__(self, n_images: int, valid: Bools | None = None) -> None:
        """valid: (n_images, n_patches), the patches that count; None for all."""
        self._valid = valid
        self.largest = _unknown(n_images)
        self.mean = _unknown(n_images)
        self.smallest = _unknown(n_images)

    def add(self, image: int, peer: int, distances: NDArray[np.float32]) -> None:
        if peer >= len(self.largest):
            return
        counted = distances if self._valid is None else distances[self._valid[image]]
        self.largest[image, peer] = counted.max()
        self.mean[image, peer] = counted.mean(dtype=np.float64)
        self.smallest[image, peer] = counted.min()

    def add_many(self, images: Ints, peers: Ints, distances: Tensor, own: Tensor) -> None:
        known = peers < len(self.largest)
        where = np.ix_(images, peers[known])
        n_patches = distances.shape[2]
        valid = np.ones((len(images), n_patches), bool)
        if self._valid is not None:
            valid = self._valid[images]
        counted = own.new_tensor(valid)[:, None, :]
        outside = ~counted
        mean = distances.masked_fill(outside, 0).sum(2) / counted.sum(2)
        # An image is not its own peer, so the diagonal stays zero.
        largest = distances.masked_fill(outside, 0).amax(2)
        smallest = distances.masked_fill(outside, np.inf).amin(2)
        found = (largest, mean, smallest)
        arrays = [_to_numpy(values.masked_fill(own, 0))[:, known] for values in found]
        self.largest[where], self.mean[where], self.smallest[where] = arrays

    def result(self) -> NDArray[np.float32]:
        return self.largest


class Combined:
    """Passes distances on to several statistics, so that one comparison serves all of them."""

    def __init__(self, statistics: Sequence[ManyPeers]) -> None:
        """statistics: at least one. `result` returns that of the first; call it on the others."""
        self.statistics = tuple(statistics)

    def add(self, image: int, peer: int, distances: NDArray[np.float32]) -> None:
        for statistic in self.statistics:
            statistic.add(image, peer, distances)

    def add_many(self, images: Ints, peers: Ints, distances: Tensor, own: Tensor) -> None:
        for statistic in self.statistics:
            statistic.add_many(images, peers, distances, own)

    def result(self) -> NDArray[np.float32]:
        return self.statistics[0].result()


def _to_numpy(values: Tensor) -> NDArray[Any]:
    """A tensor as a NumPy array."""
    array: NDArray[Any] = values.cpu().numpy()
    return array


def _unknown(n_images: int) -> NDArray[np.float32]:
    values = np.full((n_images, n_images), np.nan, np.float32)
    np.fill_diagonal(values, 0)
    return values

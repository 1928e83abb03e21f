"""What every engine must get right, against plain loops in double precision.

Distances are compared squared, as dot products are: their errors are those of the arithmetic,
where the distance between two patches that are all but equal has the root of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flawsort.core.records import Bags
from flawsort.scores.engines import Engine
from flawsort.scores.peer_statistics import (
    Combined,
    DirectedMinima,
    MaxOverPeers,
    MeanOverNearestPeers,
    MeanOverPeers,
    MinOverPeers,
)
from helpers.bags import Array, unit_vectors
from helpers.oracles import naive_nearest, naive_table


def some_bags(
    kind: str, n: int, n_patches: int, dim: int, *, seed: int = 0, dtype: Any = np.float16
) -> Array:
    """(n, n_patches, dim): of random directions; "clumped", many of them all but the same; or
    "opposed", where a patch and those of the next image point away from each other."""
    if kind == "random":
        return unit_vectors(n, n_patches, dim, seed=seed, dtype=dtype)
    rng = np.random.default_rng(seed)
    centres = unit_vectors(5 if kind == "clumped" else 1, dim, seed=100)
    values = centres[rng.integers(len(centres), size=(n, n_patches))].astype(np.float64)
    spread = rng.choice([0, 0.003, 0.1], size=(n, n_patches, 1))
    values += spread * rng.standard_normal(values.shape) / np.sqrt(dim)
    if kind == "opposed":
        values[1::2] *= -1
    return (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(dtype)


class Told:
    """A statistic that is told of one pair at a time only, and keeps it."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[int, int], Array] = {}

    def add(self, image: int, peer: int, distances: Array) -> None:
        assert (image, peer) not in self.pairs
        self.pairs[image, peer] = distances.copy()

    def result(self) -> Array:
        return np.zeros(0, np.float32)


def check_peers(
    engine: Engine, patches: Array, peers: Any = None, *, extra: Array | None = None, squared: float
) -> None:
    """Every distance of fold_peers, and who was compared with whom. peers: None for all."""
    before = patches.copy()
    rows = np.arange(len(patches)) if peers is None else np.array(peers, int)
    told = Told()
    calls: list[tuple[str, int, int]] = []
    result = engine.fold_peers(
        patches, rows, told, extra=extra, progress=lambda *call: calls.append(call)
    )
    assert result.shape == (0,)
    everyone = patches if extra is None else np.concatenate([patches, extra])
    numbers = [*rows.tolist(), *range(len(patches), len(everyone))]
    wanted = {(i, j) for i in range(len(patches)) for j in numbers if i != j}
    assert told.pairs.keys() == wanted
    for (image, peer), found in told.pairs.items():
        expected = naive_nearest(patches[image], everyone[peer])[0]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found**2, expected**2, rtol=0, atol=squared)
    _check_progress(calls, bool(wanted))
    np.testing.assert_array_equal(patches, before)


def check_references(
    engine: Engine, patches: Array, references: Array, own: Any = None, *, squared: float
) -> None:
    told = Told()
    calls: list[tuple[str, int, int]] = []
    rows = None if own is None else np.array(own)
    engine.fold_references(
        patches, references, told, self_rows=rows, progress=lambda *call: calls.append(call)
    )
    left_out = [-1] * len(patches) if own is None else own
    wanted = {
        (i, j) for i in range(len(patches)) for j in range(len(references)) if j != left_out[i]
    }
    assert told.pairs.keys() == wanted
    for (image, peer), found in told.pairs.items():
        expected = naive_nearest(patches[image], references[peer])[0]
        np.testing.assert_allclose(found**2, expected**2, rtol=0, atol=squared)
    _check_progress(calls, bool(wanted))


def check_statistics(
    engine: Engine, patches: Array, peers: list[int], *, extra: Array | None = None, atol: float
) -> None:
    """Statistics that can be told of many pairs at once, through fold_peers. More than two peers
    must be left to each image."""
    n, n_patches = patches.shape[:2]
    valid = np.random.default_rng(n).random((n, n_patches)) < 0.7
    valid[:, 0] = True
    mean, largest = MeanOverPeers(n, n_patches), MaxOverPeers(n, n_patches)
    smallest, nearest = MinOverPeers(n, n_patches), MeanOverNearestPeers(n, n_patches, 2)
    directed, of_valid = DirectedMinima(n), DirectedMinima(n, valid)
    several = Combined([mean, largest, smallest, nearest, directed, of_valid])
    first = engine.fold_peers(patches, np.array(peers), several, extra=extra)
    np.testing.assert_array_equal(first, mean.result())
    everyone = patches if extra is None else np.concatenate([patches, extra])
    numbers = [*peers, *range(n, len(everyone))]
    table = naive_table(patches, everyone)

    def same(found: Array, expected: Any) -> None:
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)

    for image in range(n):
        far = table[image, [j for j in numbers if j != image]]
        same(mean.result()[image], far.mean(axis=0))
        same(largest.result()[image], far.max(axis=0))
        same(smallest.result()[image], far.min(axis=0))
        same(nearest.result()[image], np.sort(far, axis=0)[:2].mean(axis=0))
        for peer in range(n):
            for minima, counted in ((directed, slice(None)), (of_valid, valid[image])):
                ways = (minima.largest, minima.mean, minima.smallest)
                one = table[image, peer, counted]
                expected = [one.max(), one.mean(), one.min()]
                if peer == image:
                    expected = [0, 0, 0]
                elif peer not in peers:
                    expected = [np.nan] * 3
                same(np.array([way[image, peer] for way in ways]), expected)


def check_bank(engine: Engine, queries: Array, bank: Array, *, squared: float) -> None:
    """The distance is the nearest one's, and so is the index, but for those as near as that."""
    calls: list[tuple[str, int, int]] = []
    found = engine.nearest_in_bank(queries, bank, progress=lambda *call: calls.append(call))
    expected, _ = naive_nearest(queries, bank)
    assert found.distances.dtype == np.float32
    assert found.index.dtype == np.int64
    np.testing.assert_allclose(found.distances**2, expected**2, rtol=0, atol=squared)
    assert found.index.min() >= 0
    assert found.index.max() < len(bank)
    apart = queries.astype(np.float64) - bank[found.index].astype(np.float64)
    np.testing.assert_allclose((apart**2).sum(axis=1), expected**2, rtol=0, atol=squared)
    _check_progress(calls, True)


def check_ties(engine: Engine, n_bank: int) -> None:
    """Of equally near patches the first is taken; axes are exact in any arithmetic."""
    axes = np.eye(9, dtype=np.float16)
    which = np.random.default_rng(0).integers(1, 9, n_bank)
    which[-1] = 0  # the last one is found as well, and not in its padding
    found = engine.nearest_in_bank(axes, axes[which])
    _, index = naive_nearest(axes, axes[which])
    np.testing.assert_array_equal(found.index, index)
    np.testing.assert_array_equal(found.distances == 0, np.isin(np.arange(9), which))


def check_duplicates(engine: Engine) -> None:
    """Equal patches in half precision, whose length is not quite 1, are at no distance."""
    patches = unit_vectors(4, 30, 168, seed=4, dtype=np.float16)
    patches[2] = patches[0, ::-1]
    smallest = engine.fold_peers(patches, np.arange(4), MinOverPeers(4, 30))
    np.testing.assert_array_equal(smallest[[0, 2]], 0)
    assert smallest[[1, 3]].min() > 0.5
    found = engine.nearest_in_bank(patches[0], patches[2])
    np.testing.assert_array_equal(found.distances, 0)
    np.testing.assert_array_equal(found.index, np.arange(30)[::-1])


def check_expected(engine: Engine, dtype: Any) -> None:
    patches = unit_vectors(4, 6, 5, seed=1, dtype=dtype)
    references, own = patches[[3, 1]], np.array([-1, 1, -1, 0])
    chosen = np.array([[0, 5, 1], [2, 2, 3], [3, 1, 0], [4, 0, 0]])
    expected = engine.expected_from_peers(patches, chosen, references, own)
    assert (expected.shape, expected.dtype) == ((4, 3, 5), np.float32)
    for image in range(4):
        for place, patch in enumerate(chosen[image]):
            found = []
            for row, reference in enumerate(references):
                if row != own[image]:
                    _, index = naive_nearest(patches[image, [patch]], reference)
                    found.append(reference[index[0]].astype(np.float64))
            np.testing.assert_allclose(
                expected[image, place], np.mean(found, axis=0), rtol=1e-5, atol=1e-6
            )
    nobody = engine.expected_from_peers(patches[:1], chosen[:1], patches[:1], np.array([0]))
    np.testing.assert_array_equal(nobody, np.zeros((1, 3, 5)))


def check_means(engine: Engine, n: int, n_patches: int, *, masked: bool) -> None:
    patches = unit_vectors(n, n_patches, 4, seed=3, dtype=np.float16)
    valid = None
    if masked:
        valid = np.random.default_rng(1).random((n, n_patches)) < 0.6
        valid[:, -1] = True
    calls: list[tuple[str, int, int]] = []
    means = engine.mean_distances(
        Bags(patches, (1, n_patches), valid), progress=lambda *call: calls.append(call)
    )
    assert means.dtype == np.float32
    expected = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            one, other = (patches[k].astype(np.float64) for k in (i, j))
            if valid is not None:
                one, other = one[valid[i]], other[valid[j]]
            if i != j:
                apart = one[:, None] - other
                expected[i, j] = np.sqrt((apart**2).sum(axis=2)).mean()
    np.testing.assert_allclose(means, expected, rtol=0, atol=1e-5)
    total = n * (n - 1) // 2
    assert not calls or calls[-1] == ("scoring", total, total)
    _check_progress(calls, n > 1)


def _check_progress(calls: list[tuple[str, int, int]], some: bool) -> None:
    """It only grows, and ends with all that there is. some: whether there is any work."""
    assert calls or not some
    if calls:
        dones = [done for _, done, _ in calls]
        assert dones == sorted(dones)
        assert calls[-1] == ("scoring", calls[-1][2], calls[-1][2])
        assert len({total for _, _, total in calls}) == 1

"""Bags and blobs made up for tests, and slow, plain answers to check fast ones against."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def unit_vectors(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Random directions; the last side of the shape is their dimension."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(dtype)


def flawed_patches(kinds: list[int], *, n_patches: int = 36, seed: int = 0) -> Array:
    """(n_images, n_patches, 12): a common background, and in each image two patches of its kind.

    kinds: the kind of flaw of each image; 0 has none.
    """
    rng = np.random.default_rng(seed)
    background = rng.standard_normal((n_patches, 12))
    flaws = 3 * rng.standard_normal((max(kinds) + 1, 12))
    patches = background + 0.1 * rng.standard_normal((len(kinds), n_patches, 12))
    for image, kind in enumerate(kinds):
        if kind:
            at = rng.permutation(n_patches)[:2]
            patches[image, at] = flaws[kind] + 0.1 * rng.standard_normal((2, 12))
    patches /= np.linalg.norm(patches, axis=-1, keepdims=True)
    return patches.astype(np.float16)


def blobs(sizes: list[int], *, dim: int = 6, spread: float = 0.3, seed: int = 0) -> Array:
    """Points around as many centres as there are sizes, far apart, blob after blob."""
    rng = np.random.default_rng(seed)
    centres = 8 * np.eye(len(sizes), dim)
    return np.repeat(centres, sizes, axis=0) + spread * rng.standard_normal((sum(sizes), dim))


def naive_distance(first: Array, second: Array) -> float:
    """Between unit vectors, by their dot product in double precision.

    Vectors in half precision are of unit length to a part in a thousand only, which is why this
    is not the length of their difference.
    """
    cosine = sum(float(a) * float(b) for a, b in zip(first, second, strict=True))
    return float(np.sqrt(max(2 - 2 * cosine, 0)))


def naive_nearest(queries: Array, bank: Array) -> tuple[Array, Array]:
    """(n,), (n,): distance and index of the nearest patch of the bank, the first of equal ones."""
    distances, index = [], []
    for query in queries.astype(np.float64):
        cosines = (bank.astype(np.float64) * query).sum(axis=1)
        distances.append(np.sqrt(max(2 - 2 * cosines.max(), 0)))
        index.append(int(cosines.argmax()))
    return np.array(distances), np.array(index)


def naive_peer_distances(patches: Array, others: Array) -> Array:
    """(n_others, n_patches): from each patch of one bag to the nearest of each other bag."""
    return np.array(
        [
            [min(naive_distance(patch, other) for other in bag) for patch in patches]
            for bag in others
        ]
    )


def same_partition(first: Array, second: Array) -> bool:
    """Whether two labellings differ in the numbers of their groups only."""
    pairs = set(zip(np.asarray(first).tolist(), np.asarray(second).tolist(), strict=True))
    return len(pairs) == len(np.unique(first)) == len(np.unique(second))

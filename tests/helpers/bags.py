"""Bags and blobs made up for tests."""

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


def same_partition(first: Array, second: Array) -> bool:
    """Whether two labellings differ in the numbers of their groups only."""
    pairs = set(zip(np.asarray(first).tolist(), np.asarray(second).tolist(), strict=True))
    return len(pairs) == len(np.unique(first)) == len(np.unique(second))

"""Feature maps to patch embeddings: pool, resize to one grid, normalise, concatenate."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones.base import POOLING_KERNEL
from flawsort.core.errors import BackboneError, OptionError
from flawsort.core.grids import resizing
from flawsort.core.records import Floats


def patch_embeddings(
    maps: Sequence[Floats], kernel: int = POOLING_KERNEL, grid: int | None = None
) -> tuple[NDArray[np.float32], tuple[int, int]]:
    """Patches (n, rows * cols, dim) of unit length, and their grid (rows, cols).

    maps: (n, channels, rows, cols) each, of one or more strides. kernel: odd, 1 for no pooling.
    grid: the side of the grid that finer maps are averaged to; None for the finest grid.
    Every map is average pooled over kernel x kernel patches, resized to one grid, and
    normalised to unit length along its channels. The maps are then concatenated with equal weight,
    and the result is normalised to unit length.
    """
    if kernel < 1 or kernel % 2 == 0:
        raise OptionError(f"kernel must be an odd number, 1 or more. Got {kernel}.")
    rows, cols = (max(features.shape[axis] for features in maps) for axis in (2, 3))
    if grid is not None:
        rows, cols = min(rows, grid), min(cols, grid)
    n, dim = len(maps[0]), sum(features.shape[1] for features in maps)
    patches = np.empty((n, rows, cols, dim), np.float32)
    start = 0
    for features in maps:
        part = _pooled(np.asarray(features, np.float32), rows, cols, kernel)
        stop = start + part.shape[3]
        # The concatenation of unit vectors has the length sqrt(number of parts).
        scale = _scale_to(1 / np.sqrt(len(maps)), part)
        np.multiply(part, scale[..., np.newaxis], out=patches[..., start:stop])
        start = stop
    return patches.reshape(n, rows * cols, dim), (rows, cols)


def _pooled(maps: NDArray[np.float32], rows: int, cols: int, kernel: int) -> NDArray[np.float32]:
    """(n, rows, cols, channels): pooled and resized to the grid, by one matrix for each axis.

    The first product moves the channels to the last axis, which saves a separate transposition.
    """
    n, channels, height, width = maps.shape
    with np.errstate(invalid="ignore"):  # `_scale_to` reports values that are not finite
        across = np.matmul(_pool_and_resize(width, cols, kernel), maps.transpose(0, 2, 3, 1))
        across = across.reshape(n, height, cols * channels)
        down = np.matmul(_pool_and_resize(height, rows, kernel), across)
    pooled: NDArray[np.float32] = down.reshape(n, rows, cols, channels)
    return pooled


@cache
def _pool_and_resize(old: int, new: int, kernel: int) -> NDArray[np.float32]:
    """(new, old): a matrix that takes `kernel` times the mean over `kernel` neighbours, of which
    the border has fewer, and then resizes.

    Only directions matter in the end, so the factor changes nothing: away from the border the mean
    is a plain sum. At the border it is not, because resizing joins patches there with others.
    """
    reach = kernel // 2
    near = np.abs(np.subtract.outer(np.arange(old), np.arange(old))) <= reach
    means = near * (kernel / near.sum(axis=1, keepdims=True))
    matrix: NDArray[np.float32] = (resizing(old, new) @ means).astype(np.float32)
    return matrix


def _scale_to(length: float, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The factors that scale vectors along the last axis to a length. A zero vector has no
    direction and is replaced by ones, so that two such patches are equal."""
    found: NDArray[np.float32] = np.sqrt(np.einsum("nrsc,nrsc->nrs", vectors, vectors))
    if not np.isfinite(found).all():
        raise BackboneError("The backbone returned values that are not finite for this image.")
    empty = found < 1e-12
    if empty.any():
        vectors[empty] = 1
        found[empty] = np.sqrt(vectors.shape[-1])
    scale: NDArray[np.float32] = np.float32(length) / found
    return scale

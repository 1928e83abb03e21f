"""Feature maps to patch embeddings: pool, bring to one grid, unit length, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.errors import BackboneError
from flawsort.records import Floats

# The paper's kernel (Section 4, "Implementation"): each patch also sees its eight neighbours.
POOLING_KERNEL = 3


def patch_embeddings(
    maps: Sequence[Floats], dtype: type[np.floating[Any]] = np.float32
) -> tuple[Floats, tuple[int, int]]:
    """Patches (n, rows * cols, dim) of unit length, and their grid (rows, cols).

    maps: (n, channels, rows, cols) each, of one or several strides. Every map is average pooled,
    brought to the finest grid and made unit length along its channels; the maps then stand side
    by side, each with the same say, and the whole is made unit length.
    """
    rows = max(one.shape[2] for one in maps)
    cols = max(one.shape[3] for one in maps)
    n, dim = len(maps[0]), sum(one.shape[1] for one in maps)
    patches = np.empty((n, rows * cols, dim), dtype)
    for image in range(n):  # one at a time, which stays in the processor's cache
        start = 0
        for one in maps:
            part = _resize(_box_sum(np.asarray(one[image], np.float32)), rows, cols)
            # Parts of unit length side by side have the length sqrt(number of parts).
            _set_length(part, 1 / np.sqrt(len(maps)))
            stop = start + len(part)
            patches[image, :, start:stop] = part.reshape(len(part), -1).T
            start = stop
    return patches, (rows, cols)


def _box_sum(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums over 3 x 3 neighbours, of which there are fewer at the border. Only directions count
    in the end, so that a sum is as good as a mean over nine with zeros beyond the border."""
    across = maps.copy()
    across[..., 1:] += maps[..., :-1]
    across[..., :-1] += maps[..., 1:]
    down = across.copy()
    down[..., 1:, :] += across[..., :-1, :]
    down[..., :-1, :] += across[..., 1:, :]
    return down


def _resize(maps: NDArray[np.float32], rows: int, cols: int) -> NDArray[np.float32]:
    if maps.shape[1:] == (rows, cols):
        return maps
    down, across = _interpolation(maps.shape[1], rows), _interpolation(maps.shape[2], cols)
    resized: NDArray[np.float32] = np.matmul(np.matmul(down, maps), across.T)
    return resized


@cache
def _interpolation(old: int, new: int) -> NDArray[np.float32]:
    """(new, old): linear interpolation between the centres of cells, held at the borders."""
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.minimum(at.astype(int), max(old - 2, 0))
    matrix = np.zeros((new, old), np.float32)
    matrix[np.arange(new), low] = 1 - (at - low)
    matrix[np.arange(new), np.minimum(low + 1, old - 1)] += at - low
    return matrix


def _set_length(values: NDArray[np.float32], length: float) -> None:
    """Scale vectors along the first axis, in place. A vector of zeros, which has no direction,
    gets the one of all ones, so that two such patches are alike and not far apart."""
    found = np.sqrt(np.einsum("crs,crs->rs", values, values))
    if not np.isfinite(found).all():
        raise BackboneError("The backbone gave values that are not finite for this image.")
    empty = found < 1e-12
    if empty.any():
        values += empty
        found[empty] = np.sqrt(len(values))
    values *= length / found

"""Feature maps to patch embeddings: pool, bring to one grid, unit length, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from flawsort.errors import BackboneError
from flawsort.records import Floats

# The paper's kernel (Section 4, "Implementation"): each patch also sees its eight neighbours.
POOLING_KERNEL = 3


def patch_embeddings(maps: Sequence[Floats]) -> tuple[NDArray[np.float32], tuple[int, int]]:
    """Patches (n, rows * cols, dim) of unit length, and their grid (rows, cols).

    maps: (n, channels, rows, cols) each, of one or several strides. Every map is average pooled,
    made unit length along its channels and brought to the finest grid; the maps then stand side
    by side, each with the same say, and the whole is made unit length.
    """
    rows = max(one.shape[2] for one in maps)
    cols = max(one.shape[3] for one in maps)
    n, dim = len(maps[0]), sum(one.shape[1] for one in maps)
    patches = np.empty((n, rows * cols, dim), np.float32)
    start = 0
    for one in maps:
        part = _resize(_box_sum(np.asarray(one, np.float32)), rows, cols)
        stop = start + one.shape[1]
        _unit_length(part, axis=1)
        patches[..., start:stop] = part.reshape(n, one.shape[1], -1).transpose(0, 2, 1)
        start = stop
    _unit_length(patches, axis=2)
    if not np.isfinite(patches).all():
        raise BackboneError("The backbone gave values that are not finite for this image.")
    return patches, (rows, cols)


def _box_sum(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums over 3 x 3 neighbours. The unit length taken next makes a sum as good as a mean, also
    at the border, where there are fewer neighbours."""
    across = maps.copy()
    across[..., 1:] += maps[..., :-1]
    across[..., :-1] += maps[..., 1:]
    down = across.copy()
    down[..., 1:, :] += across[..., :-1, :]
    down[..., :-1, :] += across[..., 1:, :]
    return down


def _resize(maps: NDArray[np.float32], rows: int, cols: int) -> NDArray[np.float32]:
    if maps.shape[2:] == (rows, cols):
        return maps
    return _interpolation(maps.shape[2], rows) @ maps @ _interpolation(maps.shape[3], cols).T


@cache
def _interpolation(old: int, new: int) -> NDArray[np.float32]:
    """(new, old): linear interpolation between the centres of cells, held at the borders."""
    at = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    low = np.minimum(at.astype(int), max(old - 2, 0))
    matrix = np.zeros((new, old), np.float32)
    matrix[np.arange(new), low] = 1 - (at - low)
    matrix[np.arange(new), np.minimum(low + 1, old - 1)] += at - low
    return matrix


def _unit_length(values: NDArray[np.float32], axis: int) -> None:
    """In place. A vector of zeros, which has no direction, gets the one of all ones, so that two
    such patches are alike and not far apart."""
    length = np.sqrt(np.square(values).sum(axis=axis, keepdims=True))
    empty = length < 1e-12
    if empty.any():
        values += empty
        length[empty] = np.sqrt(values.shape[axis])
    values /= length

"""Values on one grid of patches brought to another, against plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flawsort.core.grids import Grid, interpolated, interpolation, overlaps, shared_out
from helpers.bags import Array

PAIRS: list[tuple[Grid, Grid]] = [
    ((6, 6), (4, 4)),
    ((4, 4), (6, 6)),
    ((3, 5), (7, 2)),
    ((7, 2), (3, 5)),
    ((8, 4), (4, 8)),
    ((1, 1), (3, 2)),
    ((3, 2), (1, 1)),
    ((1, 6), (4, 6)),
]


def values_on(grid: Grid, n: int = 3) -> Array:
    return np.random.default_rng(grid[0]).random((n, grid[0] * grid[1])).astype(np.float32)


def covered(old: int, new: int, cell: int, other: int) -> float:
    """The length that old cell `other` and new cell `cell` have in common, in old cells."""
    return max(0.0, min((cell + 1) * old / new, other + 1) - max(cell * old / new, other))


@pytest.mark.parametrize(("old", "new"), [(6, 4), (4, 6), (48, 32), (18, 32), (5, 5), (1, 3)])
def test_overlaps_are_the_shares_of_each_new_cell(old: int, new: int) -> None:
    shares = overlaps(old, new)
    assert shares.shape == (new, old)
    for cell, other in itertools.product(range(new), range(old)):
        expected = covered(old, new, cell, other) * new / old
        assert shares[cell, other] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_allclose(shares.sum(axis=0), new / old)


def test_overlaps_of_the_same_number_of_cells_change_nothing() -> None:
    np.testing.assert_array_equal(overlaps(5, 5), np.eye(5))
    np.testing.assert_array_equal(interpolation(5, 5), np.eye(5))


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_shared_out_against_a_loop(old: Grid, new: Grid) -> None:
    values = values_on(old)
    expected = np.zeros((3, *new))
    cells = [range(side) for side in (*new, *old)]
    for row, column, of_row, of_column in itertools.product(*cells):
        area = covered(old[0], new[0], row, of_row) * covered(old[1], new[1], column, of_column)
        expected[:, row, column] += area * values.reshape(3, *old)[:, of_row, of_column]
    found = shared_out(values, old, new)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.reshape(3, -1), atol=1e-6)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_shared_out_keeps_sums_and_signs(old: Grid, new: Grid) -> None:
    values = values_on(old)
    found = shared_out(values, old, new)
    np.testing.assert_allclose(found.sum(axis=1), values.sum(axis=1), rtol=1e-5)
    assert (found >= 0).all()


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_constants_stay_constant(old: Grid, new: Grid) -> None:
    same = np.full((2, old[0] * old[1]), 3.25, np.float32)
    np.testing.assert_allclose(interpolated(same, old, new), 3.25, rtol=1e-6)
    density = 3.25 * old[0] * old[1] / (new[0] * new[1])
    np.testing.assert_allclose(shared_out(same, old, new), density, rtol=1e-6)


@pytest.mark.parametrize("grid", [(4, 4), (3, 5), (1, 1)])
def test_the_same_grid_is_the_identity(grid: Grid) -> None:
    values = values_on(grid)
    np.testing.assert_array_equal(interpolated(values, grid, grid), values)
    np.testing.assert_array_equal(shared_out(values, grid, grid), values)
    assert interpolated(values.astype(np.float64), grid, grid).dtype == np.float32


def at(line: Array, place: float) -> float:
    """The value at a place, in cells, linear between the centres of cells and flat beyond."""
    centres = np.arange(len(line)) + 0.5
    return float(np.interp(place, centres, line))


@pytest.mark.parametrize(("old", "new"), [((3, 5), (7, 9)), ((2, 3), (4, 3)), ((1, 2), (3, 5))])
def test_finer_grids_are_interpolated(old: Grid, new: Grid) -> None:
    values = values_on(old)
    expected = np.empty((3, *new))
    for image, row, column in itertools.product(range(3), range(new[0]), range(new[1])):
        lines = values[image].reshape(old)
        across = np.array([at(line, (column + 0.5) * old[1] / new[1]) for line in lines])
        expected[image, row, column] = at(across, (row + 0.5) * old[0] / new[0])
    found = interpolated(values, old, new)
    assert (found.shape, found.dtype) == ((3, new[0] * new[1]), np.float32)
    np.testing.assert_allclose(found, expected.reshape(3, -1), atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [((9, 9), (3, 3)), ((6, 10), (4, 3)), ((8, 3), (4, 5))])
def test_nothing_is_lost_on_a_coarser_grid(old: Grid, new: Grid) -> None:
    """One high score raises some coarse cell, wherever it is."""
    alone = np.eye(old[0] * old[1], dtype=np.float32)
    moved = interpolated(alone, old, new)
    assert moved.sum(axis=1).min() > 0
    np.testing.assert_allclose(interpolated(np.ones_like(alone), old, new), 1, rtol=1e-6)
    if all(a % b == 0 for a, b in zip(old, new, strict=True)):
        blocks = values_on(old).reshape(3, new[0], old[0] // new[0], new[1], old[1] // new[1])
        np.testing.assert_allclose(
            interpolated(values_on(old), old, new), blocks.mean(axis=(2, 4)).reshape(3, -1),
            atol=1e-6,
        )  # fmt: skip


def test_empty_sets_of_values() -> None:
    none = np.empty((0, 12), np.float32)
    assert shared_out(none, (3, 4), (2, 2)).shape == (0, 4)
    assert interpolated(none, (3, 4), (5, 5)).shape == (0, 25)

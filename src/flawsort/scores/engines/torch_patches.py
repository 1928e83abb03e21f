"""Patches as tensors with what their squared lengths lack to 1; see `scores.distances`.

Plain products of torch are rounded to the precision of their operands, and similarities of near
patches are close to 1. So the factors here have more columns, and their product is minus half the
squared distance, which is close to 0 and keeps its digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flawsort.scores.distances import ROUNDING

# The columns of a factor beside those of the patch.
FURTHER = 5


@dataclass(frozen=True)
class Patches:
    """What the fused kernels compare. values: (n, dim) or (n_bags, n_patches, dim), contiguous.
    lack: float32, for each patch half of what its squared length lacks to 1."""

    values: torch.Tensor
    lack: torch.Tensor

    @classmethod
    def of(cls, values: torch.Tensor) -> Patches:
        return cls(values, half_lack(values))

    def __getitem__(self, some: slice | int) -> Patches:
        return Patches(self.values[some], self.lack[some])

    def __len__(self) -> int:
        return len(self.values)


def half_lack(values: torch.Tensor) -> torch.Tensor:
    """Half of what the squared lengths along the last axis lack to 1, in float32."""
    lengths = torch.linalg.vector_norm(values, dim=-1, dtype=torch.float32)
    return lengths.square_().neg_().add_(1).div_(2)


def right_factor(values: torch.Tensor) -> torch.Tensor:
    """(..., dim + FURTHER): patches (..., dim) with the columns 1, 1, what they lack, and -1. What
    they lack takes two columns, the second one for what rounding leaves of it: in bfloat16 it would
    be wrong by more than the squared distance of near patches."""
    exact = half_lack(values)[..., None]
    lack = exact.to(values.dtype)
    rest = (exact - lack.float()).to(values.dtype)
    one = torch.ones_like(lack)
    return torch.cat([values, one, one, lack, rest, -one], -1)


def left_factor(right: torch.Tensor) -> torch.Tensor:
    """The left factor of the same patches: what they lack, 1, 1 and 1. Times the transposed right
    one of others it is minus half the squared distance."""
    ones, lack = right[..., -FURTHER : -FURTHER + 2], right[..., -3:-1]
    return torch.cat([right[..., :-FURTHER], lack, ones, ones[..., :1]], -1)


def distances_of(closeness: torch.Tensor) -> torch.Tensor:
    """Distances from minus half their squares, in float32; 0 where rounding is all that is left."""
    squared = closeness.float().mul(-2)
    return squared.masked_fill_(squared < ROUNDING, 0).sqrt_()

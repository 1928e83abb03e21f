"""Batches and what they came to, made up."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from flawsort.extent import N_EXTENTS
from flawsort.partfiles import Batch, Part
from flawsort.records import ImageSet


def a_batch(n: int = 5, *, masked: bool = False) -> tuple[Batch, Part]:
    """Five images, of which the second could not be used."""
    rng = np.random.default_rng(3)
    names = tuple(f"{row} <ö>.png" for row in range(n))
    digests = tuple(f"{row:064x}" for row in range(n))
    images = ImageSet(names, tuple(Path(name) for name in names), digests)
    rows = [row for row in range(n) if row != 1]
    part = Part(
        tuple(digests[row] for row in rows),
        rng.normal(size=(len(rows), 6)).astype(np.float16),
        rng.random((len(rows), 6)).astype(np.float16),
        rng.normal(size=(len(rows), 3)).astype(np.float32),
        rng.normal(size=(len(rows), N_EXTENTS)),
        rng.random((len(rows), 6)) > 0.5 if masked else None,
        {names[1]: "not an image, as ö says"} if n > 1 else {},
    )
    return Batch(images, np.full(n, -1)), part


def assert_same_part(one: Part | None, other: Part) -> None:
    assert one is not None
    for field in dataclasses.fields(Part):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        else:
            assert mine == theirs

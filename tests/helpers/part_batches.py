"""Batches and what they came to, made up."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flawsort.core.records import ImageSet
from flawsort.embeddings.extent import N_EXTENTS
from flawsort.embeddings.features import Features
from flawsort.embeddings.regions import Outlines, RegionFeatures
from flawsort.fitting.parts import Batch, Part

N_PATCHES, DIM = 6, 3
# Of the images that could be used; none in front, between and behind.
N_REGIONS = (0, 3, 0, 2)


def a_batch(
    n: int = 5,
    *,
    masked: bool = False,
    n_regions: Sequence[int] = N_REGIONS,
    n_extents: int = N_EXTENTS,
) -> tuple[Batch, Part]:
    """Five images, of which the second could not be used."""
    rng = np.random.default_rng(3)
    names = tuple(f"{row} <ö>.png" for row in range(n))
    digests = tuple(f"{row:064x}" for row in range(n))
    images = ImageSet(names, tuple(Path(name) for name in names), digests)
    rows = [row for row in range(n) if row != 1]
    features = Features(
        rng.normal(size=(len(rows), N_PATCHES)).astype(np.float16),
        rng.random((len(rows), N_PATCHES)).astype(np.float16),
        rng.normal(size=(len(rows), DIM)).astype(np.float32),
        rng.normal(size=(len(rows), n_extents)),
        some_regions(rng, n_regions[: len(rows)], n_extents),
    )
    part = Part(
        tuple(digests[row] for row in rows),
        features,
        rng.random((len(rows), N_PATCHES)) > 0.5 if masked else None,
        {names[1]: "not an image, as ö says"} if n > 1 else {},
    )
    return Batch(images, np.full(n, -1)), part


def some_regions(
    rng: np.random.Generator, n_regions: Sequence[int], n_extents: int
) -> RegionFeatures:
    """So many regions of each image, with one to all of the patches."""
    found = []
    for image, count in enumerate(n_regions):
        for _ in range(count):
            cells = np.sort(rng.permutation(N_PATCHES)[: rng.integers(1, N_PATCHES + 1)])
            found.append((image, float(rng.random()), cells))
    return RegionFeatures(
        Outlines.of(found),
        rng.normal(size=(len(found), DIM)).astype(np.float32),
        rng.normal(size=(len(found), n_extents)),
    )


def assert_same_part(one: Part | None, other: Part) -> None:
    assert one is not None
    assert_same_values(one, other)


def assert_same_values(one: object, other: object) -> None:
    """Records of the same kind, field by field: arrays with type and shape and every bit."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            assert_same_values(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other

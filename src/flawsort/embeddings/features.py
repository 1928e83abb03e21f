"""The features of images before they are joined to embeddings, and those of several batches as
one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.embeddings.places import Places, join_places
from flawsort.embeddings.regions import Outlines, RegionFeatures, join_regions


@dataclass(frozen=True)
class Features:
    """The features of images before they are joined to embeddings.

    scores, weights: (n_images, n_patches). vectors: (n_images, dim), pooled patches of each view,
    then mean patches of each view. extents: (n_images, n_extents), without columns if the pooling
    does not use them. regions: of all images. places: the most unusual ones; None
    without a reference.
    """

    scores: NDArray[np.floating[Any]]
    weights: NDArray[np.floating[Any]]
    vectors: NDArray[np.float32]
    extents: NDArray[np.float64]
    regions: RegionFeatures
    places: Places | None = None


@dataclass(frozen=True)
class Described:
    """The embeddings of images and of their regions, in the same space.

    scores, weights: (n_images, n_patches). embeddings: (n_images, dim). outlines: the regions of
    all images. region_embeddings: (n_regions, dim). places: as in Features.
    """

    scores: NDArray[np.floating[Any]]
    weights: NDArray[np.floating[Any]]
    embeddings: NDArray[np.float32]
    outlines: Outlines
    region_embeddings: NDArray[np.float32]
    places: Places | None = None


def join_features(parts: Sequence[Features]) -> Features:
    """The features of several batches in one record, at least one."""
    if len(parts) == 1:
        return parts[0]
    places = [part.places for part in parts if part.places is not None]
    return Features(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.vectors for part in parts]),
        np.concatenate([part.extents for part in parts]),
        join_regions([(part.regions, len(part.scores)) for part in parts]),
        join_places(places) if len(places) == len(parts) else None,
    )

"""What people read of a clustering: a row an image, and a map in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.kinds import Kinds, Regions
from flawsort.clusters.placement import Placement, typicality
from flawsort.core.records import Floats, ImageSet, Ints
from flawsort.core.threads import in_blocks
from flawsort.embeddings.heat import LOOKS_NORMAL_BELOW, HeatScale
from flawsort.embeddings.regions import mask_text
from flawsort.images.find import printable
from flawsort.runs.folder import Table

# Between the kinds of an image, in tables and in truths.
SEVERAL = ";"
# The map is laid out by t-SNE; of more images than this a sample is, and the others are put beside
# those of the sample that they are nearest to.
LAYOUT_LIMIT = 1500
LAYOUT_PERPLEXITY = 20.0
# This many of the others are compared with the sample at a time, 6 MB of distances.
OTHERS_AT_ONCE = 512


def images_table(
    images: ImageSet,
    labels: Ints,
    scores: Floats,
    placed: Placement,
    kinds: Kinds,
    flags: Sequence[Sequence[str]],
) -> Table:
    """The columns of images.csv and images.parquet."""
    runner_up_distance = np.where(
        np.isfinite(placed.runner_up_distance), placed.runner_up_distance, 0
    )
    return {
        "name": list(images.names),
        "path": [
            "" if isinstance(source, np.ndarray) else printable(source.absolute())
            for source in images.sources
        ],
        "sha256": list(images.digests),
        "cluster": labels.tolist(),
        "kinds": [SEVERAL.join(map(str, groups)) for groups in kinds],
        "score": np.asarray(scores, np.float64).tolist(),
        "distance": placed.distance.tolist(),
        "typicality": typicality(placed.distance, labels).tolist(),
        "runner_up": placed.runner_up.tolist(),
        "runner_up_distance": runner_up_distance.tolist(),
        "flags": [";".join(some) for some in flags],
    }


def regions_table(
    images: ImageSet,
    regions: Regions,
    boxes: NDArray[np.float64],
    scale: HeatScale,
) -> Table:
    """The columns of regions.csv and regions.parquet. boxes: (n_regions, 4), left, top, right,
    bottom in fractions of the upright image."""
    outlines = regions.outlines
    first = np.searchsorted(outlines.images, outlines.images)
    return {
        "name": [images.names[row] for row in outlines.images],
        "region": (np.arange(len(outlines)) - first).tolist(),
        "cluster": regions.labels.tolist(),
        "nearest": regions.nearest.tolist(),
        "confidence": regions.confidence.tolist(),
        "score": outlines.peaks.astype(np.float64).tolist(),
        "heat": scale.normalise(outlines.peaks).tolist(),
        "x": boxes[:, 0].tolist(),
        "y": boxes[:, 1].tolist(),
        "width": (boxes[:, 2] - boxes[:, 0]).tolist(),
        "height": (boxes[:, 3] - boxes[:, 1]).tolist(),
        "mask": [mask_text(outlines[region]) for region in range(len(outlines))],
    }


def image_flags(images: ImageSet, placed: Placement, heat: Floats | None) -> list[list[str]]:
    """Words that a person may want to filter by, for each image.

    heat: (n_images,), as `image_heat` gives it; None where the images were not compared.
    """
    copies = {name for group in images.duplicates() for name in group}
    borderline = placed.borderline
    flags: list[list[str]] = []
    for row, name in enumerate(images.names):
        words = ["duplicate"] if name in copies else []
        if borderline[row]:
            words.append("borderline")
        if heat is not None and heat[row] < LOOKS_NORMAL_BELOW:
            words.append("looks-normal")
        flags.append(words)
    return flags


def two_dimensional_layout(embeddings: Floats, *, random_state: int = 0) -> NDArray[np.float32]:
    """(n, 2) in 0..1: images whose embeddings are alike lie near each other."""
    values = np.asarray(embeddings, np.float64)
    order = np.random.default_rng(random_state).permutation(len(values))
    landmarks = np.sort(order[:LAYOUT_LIMIT])
    points = np.empty((len(values), 2))
    points[landmarks] = _layout_landmarks(values[landmarks], random_state)
    others = np.sort(order[LAYOUT_LIMIT:])
    if len(others):
        points[others] = _beside_landmarks(values, landmarks, others, points[landmarks])
    low, high = points.min(axis=0), points.max(axis=0)
    inside: NDArray[np.float64] = (points - low) / np.maximum(high - low, 1e-12)
    return inside.astype(np.float32)


def _layout_landmarks(values: NDArray[np.float64], random_state: int) -> NDArray[np.float64]:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if np.ptp(values, axis=0).max() < 1e-12:  # all alike, also where there is but one
        return np.zeros((len(values), 2))
    # One thread: sums taken by several come out in another order each time, and t-SNE makes a
    # different map of that.
    with threadpool_limits(limits=1):
        dim = min(32, *values.shape)
        reduced = PCA(dim, svd_solver="full").fit_transform(values)
        if len(values) < 5:
            return np.pad(reduced, ((0, 0), (0, 2)))[:, :2]
        perplexity = min(LAYOUT_PERPLEXITY, (len(values) - 1) / 3)
        scaled = reduced / max(reduced[:, 0].std(), 1e-12)
        init = np.pad(scaled, ((0, 0), (0, 2)))[:, :2] * 1e-4
        tsne = TSNE(2, perplexity=perplexity, init=init, random_state=random_state, n_jobs=1)
        laid: NDArray[np.float64] = tsne.fit_transform(scaled).astype(np.float64)
        return laid


def _beside_landmarks(
    values: NDArray[np.float64], landmarks: Ints, others: Ints, points: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean place of an image's three nearest landmarks, the nearer the heavier."""
    from scipy.spatial.distance import cdist

    def beside(some: slice) -> NDArray[np.float64]:
        far = cdist(values[others[some]], values[landmarks])
        nearest = np.argsort(far, axis=1, kind="stable")[:, :3]
        closeness = 1 / (np.take_along_axis(far, nearest, axis=1) + 1e-9)
        share = closeness / closeness.sum(axis=1, keepdims=True)
        placed: NDArray[np.float64] = (points[nearest] * share[..., None]).sum(axis=1)
        return placed

    return in_blocks(beside, len(others), OTHERS_AT_ONCE)

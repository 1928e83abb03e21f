"""The rows of the tables: a set of images becomes vectors or distances, and those become groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.clusterers import (
    cluster_distances,
    cluster_embeddings,
    linkage_from_distances,
    linkage_from_embeddings,
)
from flawsort.core.errors import OptionError
from flawsort.core.records import Bags, Floats, Ints
from flawsort.embeddings.method import PRESETS, Method
from flawsort.embeddings.pooling import average_pooling
from flawsort.embeddings.weights import (
    hard_weights,
    mask_weights,
    score_spread,
    soft_top_weights,
    soft_weights,
    uniform_weights,
)
from flawsort.research.paper.poolings import bag_of_words, gem_pooling, max_pooling, spoc_pooling
from flawsort.research.paper.protocol import subset_rows
from flawsort.research.paper.shared import PreparedSet
from flawsort.scores.hausdorff import HAUSDORFF_VARIANTS, hausdorff

# The rows "wa" and "wa-semi" are this preset, without and with normals.
PAPER = PRESETS["paper"]
# Relative temperatures of the sweep. "best" takes the best of them by the truth: an oracle.
TEMPERATURES = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
# Absolute temperatures, the paper's tau, in units of the distance between unit vectors. The paper
# prints no values; below the first the weights are on one patch, above the last they are all alike.
TAUS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0, 2.0)
# Patches of the hard and the soft top-k weights (Appendix A.1), up to all of a 32 x 32 grid.
TOP_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

SCORED = ("wa", "wa-max", "wa-min", "wa-extra", "wa-semi")
NEEDS_NORMALS = ("wa-semi", "wa-extra")
# These come from one comparison of all images with each other.
FROM_PEERS = ("wa", "wa-max", "wa-min", "max-hausdorff", *HAUSDORFF_VARIANTS[1:])
_WEIGHTED = ("average", "wa-mask", *SCORED)
_POOLINGS: dict[str, Callable[[Bags], NDArray[np.float32]]] = {
    "max": max_pooling,
    "gem": gem_pooling,
    "spoc": spoc_pooling,
    "bag-of-words": bag_of_words,
}
ROWS = (*_WEIGHTED, "holistic", *_POOLINGS, "max-hausdorff", *HAUSDORFF_VARIANTS)


@dataclass(frozen=True)
class Representation:
    """What a clusterer works on: one vector an image (n, dim), or a distance a pair (n, n)."""

    values: NDArray[np.float32]
    kind: Literal["embeddings", "distances"] = "embeddings"

    def take(self, rows: Ints) -> Representation:
        """The same for some of the images."""
        values = self.values[rows]
        return Representation(values if self.kind == "embeddings" else values[:, rows], self.kind)

    def labels(self, n_clusters: int, clusterer: str = "ward", seed: int = 0) -> Ints:
        """(n,): the group of each image."""
        group = cluster_embeddings if self.kind == "embeddings" else cluster_distances
        return group(self.values, n_clusters, clusterer, random_state=seed)

    def linkage(self) -> NDArray[np.float64]:
        """(n - 1, 4): Ward's merges."""
        link = linkage_from_embeddings if self.kind == "embeddings" else linkage_from_distances
        return link(self.values, "ward")


@dataclass(frozen=True, kw_only=True)
class Top:
    """Weights for the patches with the highest scores alone (Appendix A.1).

    count: how many of an image's patches. hard: they count the same; otherwise by their scores.
    """

    count: int
    hard: bool = False


def represent(
    prepared: PreparedSet,
    row: str,
    method: Method = PAPER,
    *,
    top: Top | None = None,
    share: float = 1.0,
    seed: int = 0,
) -> Representation:
    """The vectors or distances of a row, one of ROWS. The other arguments: see `weights_of`."""
    if row in _WEIGHTED:
        weights = weights_of(prepared, row, method, top=top, share=share, seed=seed)
        return Representation(average_pooling(prepared.bags.patches, weights))
    if row in _POOLINGS:
        return Representation(_POOLINGS[row](prepared.bags))
    if row == "holistic":
        return Representation(prepared.holistic)
    if row == "max-hausdorff":
        row = "max-min max"
    if row not in HAUSDORFF_VARIANTS:
        raise OptionError(f"A row must be one of {', '.join(ROWS)}. Got '{row}'.")
    if row == "mean-mean":
        return Representation(prepared.mean_distances(), "distances")
    return Representation(hausdorff(prepared.peers.minima, row), "distances")


def represent_temperatures(
    prepared: PreparedSet, row: str, temperatures: Sequence[float]
) -> Iterator[Representation]:
    """As `represent` for each relative temperature; every bag is read once."""
    scores, valid = scores_of(prepared, row), prepared.bags.valid
    spread = score_spread(scores, valid)
    weights = [soft_weights(scores, value * spread, valid) for value in temperatures]
    for pooled in average_pooling(prepared.bags.patches, np.stack(weights)):
        yield Representation(pooled)


def represent_subsets(
    prepared: PreparedSet, row: str, method: Method, n_seeds: int
) -> Iterator[tuple[Ints, Representation]]:
    """The rows of each random subset and its representation, as if the other images were absent.

    Two things are measured on all images: the codebook of the bag of words, and the spread of the
    scores that a relative temperature is multiplied by.
    """
    n = len(prepared.task.truth)
    if row != "wa":
        whole = represent(prepared, row, method)
        for seed in range(n_seeds):
            rows = subset_rows(n, seed)
            yield rows, whole.take(rows)
        return
    tau = _tau(prepared, method, prepared.peers.mean)
    valid = prepared.bags.valid
    weights = [soft_weights(scores, tau, valid) for scores in prepared.subset_scores(n_seeds)]
    for seed, pooled in enumerate(average_pooling(prepared.bags.patches, np.stack(weights))):
        rows = subset_rows(n, seed)
        yield rows, Representation(pooled).take(rows)


def weights_of(
    prepared: PreparedSet,
    row: str,
    method: Method = PAPER,
    *,
    top: Top | None = None,
    share: float = 1.0,
    seed: int = 0,
) -> NDArray[np.float32]:
    """(n_images, n_patches): the weights of a row that is a weighted average; rows sum to 1.

    method: its temperature is used. share, seed: see `scores_of`.
    """
    valid = prepared.bags.valid
    if row == "average":
        return uniform_weights(prepared.bags.patches.shape[:2], valid)
    if row == "wa-mask":
        return mask_weights(prepared.mask_shares, valid)
    scores = scores_of(prepared, row, share=share, seed=seed)
    if top is not None and top.hard:
        return hard_weights(scores, top.count, valid)
    tau = _tau(prepared, method, scores)
    if top is not None:
        return soft_top_weights(scores, top.count, tau, valid)
    return soft_weights(scores, tau, valid)


def scores_of(
    prepared: PreparedSet, row: str, *, share: float = 1.0, seed: int = 0
) -> NDArray[np.float32]:
    """(n_images, n_patches): the scores behind the weights. row: one of SCORED.

    share, seed: of "wa-semi", the share of the normals that is used, and which ones.
    """
    if row == "wa-semi":
        return prepared.normal_scores(share, seed)
    if row == "wa-extra":
        return prepared.peers_with_normals()
    return {
        "wa": prepared.peers.mean,
        "wa-max": prepared.peers.most,
        "wa-min": prepared.peers.least,
    }[row]


def _tau(prepared: PreparedSet, method: Method, scores: Floats) -> float:
    """The temperature in the units of the scores."""
    spread = score_spread(scores, prepared.bags.valid)
    return method.temperature_for(spread)

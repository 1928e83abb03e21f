"""The rows of the tables: from a set's shared products to vectors or distances, then to groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.core.records import Floats, Ints
from flawsort.embeddings.weights import (
    hard_weights,
    mask_weights,
    score_spread,
    soft_top_weights,
    soft_weights,
    uniform_weights,
)
from flawsort.research.paper.clusterers import (
    cluster_distances,
    cluster_embeddings,
    linkage_from_distances,
    linkage_from_embeddings,
)
from flawsort.research.paper.poolings import bag_of_words, gem_pooling, max_pooling, spoc_pooling
from flawsort.research.paper.protocol import subset_rows
from flawsort.research.paper.shared import Products
from flawsort.scores.hausdorff import HAUSDORFF_VARIANTS, hausdorff

# The paper gives no value of tau. In standard deviations of a set's scores this one served all
# sets and backbones that we measured; "best" looks at the truth and is marked as an oracle.
TEMPERATURE = 0.3
TEMPERATURES = (0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
# Patches of the hard and the soft top-k weights (Appendix A.1), up to all of a 32 x 32 grid.
TOP_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, kw_only=True)
class Focus:
    """How sharply weights focus: a temperature relative to the spread of the set's scores, or the
    paper's absolute tau; besides, or instead, the number of patches that count."""

    temperature: float | None = TEMPERATURE
    tau: float | None = None
    top: int | None = None

    def weigh(self, scores: Floats, spread: float) -> NDArray[np.float32]:
        """(n_images, n_patches) weights of the scores; spread: their standard deviation."""
        if self.temperature is None and self.tau is None:
            if self.top is None:
                raise OptionError("A Focus must have a temperature, a tau or a top. Got none.")
            return hard_weights(scores, self.top)
        tau = self.tau if self.tau is not None else (self.temperature or 0.0) * spread
        if self.top is None:
            return soft_weights(scores, tau)
        return soft_top_weights(scores, self.top, tau)

    def describe(self) -> dict[str, float]:
        """What was said, for the results."""
        said = {"temperature": self.temperature, "tau": self.tau, "top": self.top}
        if self.tau is not None:
            del said["temperature"]
        return {name: value for name, value in said.items() if value is not None}


@dataclass(frozen=True)
class Representation:
    """What a clusterer works on: one vector an image (n, dim), or a distance a pair (n, n)."""

    values: NDArray[np.float32]
    kind: Literal["embeddings", "distances"]

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


def represent(
    products: Products, row: str, focus: Focus, *, share: float = 1.0, seed: int = 0
) -> Representation:
    """The vectors or distances that a row of a table stands for.

    share, seed: of "wa-semi", how many of the normals are used and which.
    """
    if row in SCORED:
        scores = scores_of(products, row, share=share, seed=seed)
        weights = focus.weigh(scores, score_spread(scores))
        return _vectors(_averaged(products, weights))
    if row in _VECTORS:
        return _vectors(_VECTORS[row](products))
    if row == "max-hausdorff":
        row = "max-min max"
    if row not in HAUSDORFF_VARIANTS:
        raise OptionError(f"A row must be one of {', '.join(ROWS)}. Got '{row}'.")
    if row == "mean-mean":
        return Representation(products.mean_distances(), "distances")
    return Representation(hausdorff(products.peers.minima, row), "distances")


def represent_focuses(
    products: Products, row: str, focuses: Sequence[Focus]
) -> Iterator[Representation]:
    """As `represent` for several focuses, reading each bag once."""
    scores = scores_of(products, row)
    spread = score_spread(scores)
    weights = np.stack([focus.weigh(scores, spread) for focus in focuses])
    for pooled in _pooled(products, weights):
        yield _vectors(pooled)


def represent_subsets(
    products: Products, row: str, focus: Focus, n_seeds: int
) -> Iterator[tuple[Ints, Representation]]:
    """The rows of each random subset and its representation, as if the other images were not there.

    Of the bag of words the codebook, and of the temperature the spread, are those of all images.
    """
    n = len(products.task.truth)
    if row != "wa":
        whole = represent(products, row, focus)
        for seed in range(n_seeds):
            rows = subset_rows(n, seed)
            yield rows, whole.take(rows)
        return
    spread = score_spread(products.peers.mean)
    scores = products.subset_scores(n_seeds)
    weights = np.stack([focus.weigh(one, spread) for one in scores])
    for seed, pooled in enumerate(_pooled(products, weights)):
        rows = subset_rows(n, seed)
        yield rows, _vectors(pooled).take(rows)


def scores_of(
    products: Products, row: str, *, share: float = 1.0, seed: int = 0
) -> NDArray[np.float32]:
    """(n_images, n_patches): the scores that a weighted average's weights are made from."""
    if row == "wa-semi":
        return products.normal_scores(share, seed)
    if row == "wa-extra":
        return products.peers_with_normals()
    return {
        "wa": products.peers.mean,
        "wa-max": products.peers.most,
        "wa-min": products.peers.least,
    }[row]


def _vectors(values: NDArray[np.float32]) -> Representation:
    return Representation(values, "embeddings")


def _pooled(products: Products, weights: Floats) -> NDArray[np.float32]:
    """(n_sets, n_images, dim): the weighted averages (Eq. 1) for weights (n_sets, n_images, m)."""
    patches = products.bags.patches
    pooled = np.empty((*weights.shape[:2], patches.shape[2]), np.float32)
    for image, bag in enumerate(patches):
        pooled[:, image] = weights[:, image] @ bag.astype(np.float32)
    return pooled


def _uniform(products: Products) -> NDArray[np.float32]:
    return _averaged(products, uniform_weights(products.bags.patches.shape[:2]))


def _masked(products: Products) -> NDArray[np.float32]:
    return _averaged(products, mask_weights(products.mask_shares))


def _averaged(products: Products, weights: Floats) -> NDArray[np.float32]:
    pooled: NDArray[np.float32] = _pooled(products, weights[np.newaxis])[0]
    return pooled


_VECTORS: dict[str, Callable[[Products], NDArray[np.float32]]] = {
    "average": _uniform,
    "holistic": lambda products: products.holistic,
    "wa-mask": _masked,
    "max": lambda products: max_pooling(products.bags.patches, None),
    "gem": lambda products: gem_pooling(products.bags.patches, None),
    "spoc": lambda products: spoc_pooling(products.bags.patches, products.bags.grid, None),
    "bag-of-words": lambda products: bag_of_words(products.bags.patches, None),
}
SCORED = ("wa", "wa-max", "wa-min", "wa-extra", "wa-semi")
ROWS = (*_VECTORS, *SCORED, "max-hausdorff", *HAUSDORFF_VARIANTS)
NEEDS_NORMALS = ("wa-semi", "wa-extra")

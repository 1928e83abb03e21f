"""The head of benchmarks/refine.py: a small network that learns from the clusters of one run.

It sees an image as its embedding and as its heaviest residual patches, which one attention head
joins into one vector. A layer of HIDDEN numbers and a softmax over the clusters follow. It learns
with Adam and changed images; the derivatives are written out, so that it needs NumPy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.records import Bools, Floats, Ints

# Whatever the true number of kinds: small clusters are purer, and k is not known.
CLUSTERS = 16
FEWEST_OF_A_CLUSTER = 4
# The surest images of each cluster teach: those with the largest margin, or probability.
TEACHING_SHARE = 0.6
# In the first round Ward's clusters are the labels, then the head's own answers.
ROUNDS = 2
STEPS = 150
HIDDEN = 64
RATE = 0.01
DECAY = 1e-3
# An image is changed anew in each step: every patch is dropped with this probability, and in this
# share of the draws only one region, or only one view, is left of it.
DROPPED = 0.5
ALONE = 0.2

Weights = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Seen:
    """What the head sees of n images.

    wholes: (1 + n_views, n, dim), the embeddings along their main axes: as they are, and then with
    the part of each other view replaced by its mean, so that one view is left. patches:
    (n, n_patches, width), residuals of all views. weights: (n, n_patches), of the patches of each
    view. view: (n_patches,), the view of each. region: (n, n_patches), the region of each; -1 for
    none.
    """

    wholes: Floats
    patches: Floats
    weights: Floats
    view: Ints
    region: Ints

    def __len__(self) -> int:
        return len(self.patches)


@dataclass(frozen=True)
class Shown:
    """Images as the head sees them once. whole: (n, dim). patches, weights: as in Seen. kept:
    (n, n_patches), the patches that are left, at least one of each image."""

    whole: Floats
    patches: Floats
    weights: Floats
    kept: Bools


def as_it_is(seen: Seen) -> Shown:
    """The images without a change."""
    return Shown(seen.wholes[0], seen.patches, seen.weights, seen.weights > 0)


def changed(seen: Seen, rows: Ints, rng: np.random.Generator) -> Shown:
    """Images in which patches are dropped, or that only one region or one view is left of."""
    n, n_views = len(rows), len(seen.wholes) - 1
    there = seen.weights[rows] > 0
    kept = there & (rng.random(there.shape) >= DROPPED)
    one_region, one_view = rng.random((2, n)) < ALONE
    # The region of a random patch, so that large ones are as likely as they are large.
    regions = seen.region[rows]
    marked = np.where(there & (regions >= 0), rng.random(there.shape), -1.0)
    chosen = regions[np.arange(n), marked.argmax(axis=1)]
    only = (regions == chosen[:, None]) & there
    one_region &= chosen >= 0
    kept[one_region] = only[one_region]
    views = rng.integers(n_views, size=n)
    one_view &= n_views > 1
    kept[one_view] &= (seen.view == views[:, None])[one_view]
    nothing = ~kept.any(axis=1)
    kept[nothing] = there[nothing]
    which = np.where(one_view, 1 + views, 0)
    return Shown(seen.wholes[which, rows], seen.patches[rows], seen.weights[rows], kept)


def new_weights(seen: Seen, n_clusters: int, rng: np.random.Generator) -> Weights:
    """A head before it has learnt anything. Its attention starts with the weights of the run."""
    dim, width = seen.wholes.shape[2], seen.patches.shape[2]
    across = dim + width
    return {
        "attention": np.zeros(width),
        "first": rng.normal(0, np.sqrt(2 / across), (across, HIDDEN)),
        "first bias": np.zeros(HIDDEN),
        "second": rng.normal(0, np.sqrt(1 / HIDDEN), (HIDDEN, n_clusters)),
        "second bias": np.zeros(n_clusters),
    }


def probabilities(weights: Weights, shown: Shown) -> NDArray[np.float64]:
    """(n, n_clusters): the head's answers."""
    return _forward(weights, shown)[-1]


def loss_and_slopes(weights: Weights, shown: Shown, labels: Ints) -> tuple[float, Weights]:
    """The mean cross entropy with DECAY on the matrices, and its derivatives."""
    shares, inputs, hidden, found = _forward(weights, shown)
    rows = np.arange(len(labels))
    matrices = ("attention", "first", "second")
    loss = -float(np.log(found[rows, labels] + 1e-12).mean())
    loss += DECAY / 2 * sum(float((weights[name] ** 2).sum()) for name in matrices)
    off = found.copy()
    off[rows, labels] -= 1
    off /= len(labels)
    back = (off @ weights["second"].T) * (hidden > 0)
    of_inputs = back @ weights["first"].T
    pooled = of_inputs[:, shown.whole.shape[1] :]
    of_shares = np.einsum("ntw,nw->nt", shown.patches, pooled)
    of_scores = shares * (of_shares - (shares * of_shares).sum(axis=1, keepdims=True))
    slopes = {
        "attention": np.einsum("nt,ntw->w", of_scores, shown.patches),
        "first": inputs.T @ back,
        "first bias": back.sum(axis=0),
        "second": hidden.T @ off,
        "second bias": off.sum(axis=0),
    }
    for name in matrices:
        slopes[name] = slopes[name] + DECAY * weights[name]
    return loss, slopes


def train(
    weights: Weights, seen: Seen, rows: Ints, labels: Ints, rng: np.random.Generator
) -> Weights:
    """A head that has learnt the labels (n_rows,) of these images."""
    weights = {name: values.copy() for name, values in weights.items()}
    means = {name: np.zeros_like(values) for name, values in weights.items()}
    squares = {name: np.zeros_like(values) for name, values in weights.items()}
    for step in range(1, STEPS + 1):
        _, slopes = loss_and_slopes(weights, changed(seen, rows, rng), labels)
        rate = RATE * (1 + np.cos(np.pi * step / STEPS)) / 2
        for name, slope in slopes.items():  # Adam
            means[name] = 0.9 * means[name] + 0.1 * slope
            squares[name] = 0.999 * squares[name] + 0.001 * slope**2
            mean, square = means[name] / (1 - 0.9**step), squares[name] / (1 - 0.999**step)
            weights[name] -= rate * mean / (np.sqrt(square) + 1e-8)
    return weights


def learnt(seen: Seen, embeddings: Floats, random_state: int = 0) -> NDArray[np.float64]:
    """(n, n_clusters): the answers of a head that was trained on a run's own clusters. embeddings:
    (n, dim), of the run."""
    rng = np.random.default_rng(random_state)
    n_clusters = int(np.clip(len(seen) // FEWEST_OF_A_CLUSTER, 2, CLUSTERS))
    labels = cut(ward_linkage(embeddings), n_clusters)
    sure = margins(embeddings, labels)
    weights = new_weights(seen, n_clusters, rng)
    for _ in range(ROUNDS):
        rows = surest(labels, sure)
        weights = train(weights, seen, rows, labels[rows], rng)
        found = probabilities(weights, as_it_is(seen))
        labels, sure = found.argmax(axis=1), found.max(axis=1)
    return found


def margins(embeddings: Floats, labels: Ints) -> NDArray[np.float64]:
    """(n,): how much nearer each image is to the centre of its cluster than to the next one."""
    member = np.eye(int(labels.max()) + 1)[labels]
    centres = (member.T @ embeddings) / member.sum(axis=0)[:, None]
    apart = np.linalg.norm(embeddings[:, None] - centres, axis=2)
    own = apart[np.arange(len(labels)), labels]
    return np.asarray(np.where(member > 0, np.inf, apart).min(axis=1) - own, np.float64)


def surest(labels: Ints, sure: Floats) -> NDArray[np.int64]:
    """The rows of the surest TEACHING_SHARE of each cluster, at least one of each."""
    found: list[int] = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        count = max(1, round(TEACHING_SHARE * len(rows)))
        found += rows[np.argsort(-sure[rows], kind="stable")[:count]].tolist()
    return np.sort(found)


def beside(embeddings: Floats, found: Floats, share: float) -> NDArray[np.float64]:
    """(n, dim + n_clusters): answers beside embeddings, with this share of their spread."""
    centred = found - found.mean(axis=0)
    own = np.sqrt((centred**2).sum(axis=1).mean())
    spread = np.sqrt(((embeddings - embeddings.mean(axis=0)) ** 2).sum(axis=1).mean())
    return np.concatenate([embeddings, centred * (share * spread / max(own, 1e-6))], axis=1)


def main_axes(rows: Floats, most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean (dim,) of rows (n, dim), and (dim, at most `most`) their main axes, scaled so that
    the rows have a spread of 1 along all of them together."""
    values = np.asarray(rows, np.float64)
    mean = values.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov((values - mean).T, bias=True))
    kept = np.argsort(-variances, kind="stable")[:most]
    total = float(variances[kept].clip(min=0).sum())
    return mean, axes[:, kept] / np.sqrt(max(total, 1e-12))


def side_by_side(of_views: Sequence[Floats]) -> NDArray[np.float64]:
    """(n, all patches, all widths): the patches of each view, (n, n_patches, width), in columns of
    their own."""
    n, total = len(of_views[0]), sum(one.shape[1] for one in of_views)
    joined = np.zeros((n, total, sum(one.shape[2] for one in of_views)))
    row = column = 0
    for one in of_views:
        joined[:, row : row + one.shape[1], column : column + one.shape[2]] = one
        row, column = row + one.shape[1], column + one.shape[2]
    return joined


def _forward(
    weights: Weights, shown: Shown
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The shares of the patches, the inputs of the first layer, its outputs, and the answers."""
    scores = shown.patches @ weights["attention"] + np.log(np.maximum(shown.weights, 1e-12))
    shares = _softmax(np.where(shown.kept, scores, -np.inf))
    pooled = np.einsum("nt,ntw->nw", shares, shown.patches)
    inputs = np.concatenate([shown.whole, pooled], axis=1)
    hidden = np.maximum(inputs @ weights["first"] + weights["first bias"], 0)
    return shares, inputs, hidden, _softmax(hidden @ weights["second"] + weights["second bias"])


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float64)

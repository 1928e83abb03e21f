"""Metrics of groups against true labels, which are always passed in and never looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bools, Floats, Ints

# The number of positive pixels that are ranked among the negative ones at a time.
PIXELS_AT_ONCE = 2**20
# A clustering has collapsed when its effective number of clusters is below this.
COLLAPSED = 1.05


@dataclass(frozen=True)
class Agreement:
    """Groups against truth.

    f1 is averaged with the classes' sizes as weights, as in the paper; f1_micro is the share of
    images whose group is matched with their class. purity: the share that belongs to its group's
    most frequent class. confusion: (n_classes, n_clusters) counts.
    """

    nmi: float
    ari: float
    f1: float
    f1_micro: float
    purity: float
    classes: tuple[str, ...]
    clusters: tuple[int, ...]
    confusion: NDArray[np.int64]


def agreement(truth: Sequence[str], labels: Sequence[int] | Ints) -> Agreement:
    """Compare groups with true classes. truth, labels: one an image."""
    if len(truth) != len(labels) or not len(truth):
        raise InputError(
            "truth and labels must have the same length, at least 1. "
            f"Got {len(truth)} and {len(labels)}."
        )
    from sklearn.metrics import adjusted_rand_score, f1_score, normalized_mutual_info_score

    classes, true_rows = np.unique(np.asarray(truth, dtype=str), return_inverse=True)
    clusters, columns = np.unique(np.asarray(labels), return_inverse=True)
    confusion = np.zeros((len(classes), len(clusters)), np.int64)
    np.add.at(confusion, (true_rows, columns), 1)
    matched: NDArray[np.int64] = match_clusters(confusion)[columns]
    return Agreement(
        nmi=float(normalized_mutual_info_score(true_rows, columns)),
        ari=float(adjusted_rand_score(true_rows, columns)),
        f1=float(f1_score(true_rows, matched, average="weighted", zero_division=0)),
        f1_micro=float((matched == true_rows).mean()),
        purity=float(confusion.max(axis=0).sum() / confusion.sum()),
        classes=tuple(str(name) for name in classes),
        clusters=tuple(int(number) for number in clusters),
        confusion=confusion,
    )


@dataclass(frozen=True)
class SeveralKinds:
    """Metrics of images that have more than one true kind.

    A group predicts its most frequent class. recall: the share of true kinds that are predicted;
    recall_of_label: the same with an image's own group alone. precision: the share of predictions
    that are right.
    """

    n_images: int
    recall: float
    recall_of_label: float
    precision: float


def several_kinds(
    truth: Sequence[Set[str]], kinds: Sequence[Sequence[int]], class_of: Mapping[int, str]
) -> SeveralKinds:
    """truth: the true kinds of each image. kinds: its predicted groups, its own group first.
    class_of: the most frequent class of each group."""
    if len(truth) != len(kinds) or not len(truth):
        raise InputError(
            "truth and kinds must have the same length, at least 1. "
            f"Got {len(truth)} and {len(kinds)}."
        )
    recalls, alone, right = [], [], []
    for true, groups in zip(truth, kinds, strict=True):
        answers = {class_of[group] for group in groups if group in class_of}
        own = {class_of[group] for group in groups[:1] if group in class_of}
        recalls.append(len(true & answers) / len(true))
        alone.append(len(true & own) / len(true))
        right.append(len(true & answers) / max(1, len(answers)))
    return SeveralKinds(
        len(truth), float(np.mean(recalls)), float(np.mean(alone)), float(np.mean(right))
    )


def effective_clusters(labels: Sequence[int] | Ints) -> float:
    """The effective number of clusters: exp of the entropy of their sizes. k clusters of equal size
    give k."""
    shares = np.unique(np.asarray(labels), return_counts=True)[1] / len(labels)
    return float(np.exp(-(shares * np.log(shares)).sum()))


def collapsed(labels: Sequence[int] | Ints) -> bool:
    """Whether nearly all images are in one cluster."""
    return effective_clusters(labels) < COLLAPSED


def match_clusters(confusion: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n_clusters,): the class of each cluster under the best one-to-one matching (Hungarian).

    confusion: (n_classes, n_clusters). Clusters without a match get numbers beyond the last class,
    so that they count as wrong.
    """
    from scipy.optimize import linear_sum_assignment

    n_classes, n_clusters = confusion.shape
    matched: NDArray[np.int64] = np.arange(n_classes, n_classes + n_clusters)
    rows, columns = linear_sum_assignment(confusion, maximize=True)
    matched[columns] = rows
    return matched


def purity_curve(truth: Sequence[str | None], merges: Floats) -> NDArray[np.float64]:
    """(n,): at [k - 1] the purity of the k groups that a linkage is cut into (Section 4.4).

    truth: one an image; those with None are clustered but not counted. merges: (n - 1, 4), in
    SciPy's convention. The curve never falls with k and ends at 1.
    """
    n = len(merges) + 1
    if len(truth) != n:
        raise InputError(
            f"truth must have one entry for each of the {n} images of the linkage. "
            f"Got {len(truth)}."
        )
    numbers = {name: i for i, name in enumerate(sorted({t for t in truth if t is not None}))}
    if not numbers:
        raise InputError("truth must be known for at least one image. Got None for all.")
    counts = np.zeros((n, len(numbers)), np.int64)
    for row, name in enumerate(truth):
        if name is not None:
            counts[row, numbers[name]] = 1
    # hits[k - 1]: the number of images of the most frequent class of their group. A merge changes
    # it for two groups only; their counts are added up in the row of the first.
    hits = np.empty(n, np.int64)
    hits[n - 1] = counts.sum()
    rows = [*range(n), *[0] * (n - 1)]
    for step, (left, right) in enumerate(merges[:, :2].astype(int).tolist()):
        kept, added = rows[left], rows[right]
        apart = counts[kept].max() + counts[added].max()
        counts[kept] += counts[added]
        hits[n - 2 - step] = hits[n - 1 - step] - apart + counts[kept].max()
        rows[n + step] = kept
    curve: NDArray[np.float64] = hits / hits[n - 1]
    return curve


def area_under_purity(curve: Floats) -> float:
    """The paper's mAUC: the area under a purity curve, divided by the number of images n.

    curve: (n,), the purity at k = 1..n, as `purity_curve` gives it. The area is that of the
    trapezoids between k = 1 and k = n, so a purity of 1 everywhere gives (n - 1) / n.
    """
    values = _curve(curve)
    return float(values.sum() - (values[0] + values[-1]) / 2) / len(values)


def reduction_at(curve: Floats, purity: float) -> float:
    """The paper's R@P: 1 - k / n for the smallest number of groups k with at least this purity.

    It is the share of labels saved by labelling k groups instead of n images.
    curve: (n,), the purity at k = 1..n, as `purity_curve` gives it.
    """
    values = _curve(curve)
    if not 0 < purity <= 1:
        raise OptionError(f"purity must be greater than 0 and at most 1. Got {purity}.")
    enough = np.flatnonzero(values >= purity)
    if not len(enough):
        raise InputError(
            f"curve must reach the purity {purity} somewhere. Got {values.max():.3g} at most."
        )
    return 1 - (int(enough[0]) + 1) / len(values)


def auroc(scores: Floats, flawed: Bools) -> float | None:
    """The area under the ROC curve: the share of pairs of a flawed and a good image in which the
    flawed one has the higher score. Equal scores count half. scores, flawed: one an image. None if
    all images are flawed, or none is.
    """
    _check_pairs(scores, flawed, "scores", "flawed")
    if not np.isfinite(scores).all():
        raise InputError("scores must be finite. Got infinite or NaN values.")
    if flawed.all() or not flawed.any():
        return None
    return _share_above(scores[flawed], scores[~flawed], PIXELS_AT_ONCE)


def precision_and_recall(found: Bools, true: Bools) -> tuple[float | None, float | None]:
    """The share of the found images that are true, and the share of the true ones that are found.
    found, true: one an image. None where there is nothing to take a share of.
    """
    _check_pairs(found, true, "found", "true")
    hits = int((found & true).sum())
    return (
        hits / int(found.sum()) if found.any() else None,
        hits / int(true.sum()) if true.any() else None,
    )


def pixel_auroc(
    scores: Floats,
    grid: tuple[int, int],
    masks: Sequence[Bools | None],
    side: int = 256,
    *,
    pixels_at_once: int = PIXELS_AT_ONCE,
) -> float:
    """The area under the ROC curve of single pixels, those of all images together.

    scores: (n_images, n_patches), row by row of the grid (rows, columns); enlarged to side x side
    pixels by bilinear interpolation between the middles of the patches, held at the edges.
    masks: for each image (height, width), True on the flaw, brought to the same size by nearest
    neighbour; None where nothing is marked. Equal scores count half. pixels_at_once: how many on
    flaws are compared at a time.
    """
    _check_maps(scores, grid, masks, side)
    marked = np.zeros((len(masks), side * side), bool)
    for image, mask in enumerate(masks):
        if mask is not None:
            marked[image] = _resize_mask(mask, side).ravel()
    n_marked = int(marked.sum())
    if n_marked in (0, marked.size):
        raise InputError(
            "masks must mark some pixels and leave others. "
            f"Got {n_marked} of {marked.size} pixels marked."
        )
    flaw, rest = np.empty(n_marked, np.float32), np.empty(marked.size - n_marked, np.float32)
    down, across = _interpolation(grid[0], side), _interpolation(grid[1], side)
    n_flaw = n_rest = 0
    for row, where in zip(np.asarray(scores, np.float32), marked, strict=True):
        # In double precision and rounded, so that patches of equal scores make equal pixels.
        pixels = (down @ row.reshape(grid) @ across.T).astype(np.float32).ravel()
        here = int(where.sum())
        flaw[n_flaw : n_flaw + here] = pixels[where]
        rest[n_rest : n_rest + len(pixels) - here] = pixels[~where]
        n_flaw, n_rest = n_flaw + here, n_rest + len(pixels) - here
    return _share_above(flaw, rest, pixels_at_once)


def _share_above(flaw: Floats, rest: Floats, at_once: int) -> float:
    """The share of pairs (flaw, rest) in which the first is larger. Sorts both in place."""
    flaw.sort()
    rest.sort()
    doubled = 0  # twice the pairs, as an exact integer
    for start in range(0, len(flaw), at_once):
        block = flaw[start : start + at_once]
        doubled += int(np.searchsorted(rest, block, "left").sum())
        doubled += int(np.searchsorted(rest, block, "right").sum())
    return doubled / (2 * len(flaw) * len(rest))


def _interpolation(n_patches: int, side: int) -> NDArray[np.float64]:
    """(side, n_patches): the weight of each patch in each pixel, along one axis."""
    middles = (np.arange(side) + 0.5) * n_patches / side - 0.5
    # Beyond the first and last middle np.interp holds the value.
    columns = [np.interp(middles, np.arange(n_patches), one) for one in np.eye(n_patches)]
    return np.stack(columns, axis=1)


def _resize_mask(mask: Bools, side: int) -> NDArray[np.bool_]:
    """(side, side): at each pixel the value of the mask under its middle."""
    doubled = 2 * np.arange(side) + 1
    rows, columns = (doubled * size // (2 * side) for size in mask.shape)
    resized: NDArray[np.bool_] = np.asarray(mask)[np.ix_(rows, columns)].astype(bool)
    return resized


def _check_pairs(one: Floats | Bools, other: Bools, name: str, other_name: str) -> None:
    if one.ndim != 1 or one.shape != other.shape:
        raise InputError(
            f"{name} and {other_name} must have the same shape (n_images,). "
            f"Got {one.shape} and {other.shape}."
        )


def _check_maps(
    scores: Floats, grid: tuple[int, int], masks: Sequence[Bools | None], side: int
) -> None:
    if side < 1:
        raise OptionError(f"side must be at least 1 pixel. Got {side}.")
    if scores.shape != (len(masks), grid[0] * grid[1]):
        raise InputError(
            f"scores must have the shape {(len(masks), grid[0] * grid[1])}: {len(masks)} masks, "
            f"and patches on a {grid[0]} x {grid[1]} grid. Got {scores.shape}."
        )
    if not np.isfinite(scores).all():
        raise InputError("scores must be finite. Got infinite or NaN values.")
    for image, mask in enumerate(masks):
        if mask is not None and (mask.ndim != 2 or 0 in mask.shape):
            raise InputError(
                "masks must have the shape (height, width) with no empty side, or be None. "
                f"Got {mask.shape} for image {image}."
            )


def _curve(curve: Floats) -> NDArray[np.float64]:
    values: NDArray[np.float64] = np.asarray(curve, np.float64)
    if values.ndim != 1 or not len(values):
        raise InputError(f"curve must have the shape (n,), n at least 1. Got {values.shape}.")
    return values

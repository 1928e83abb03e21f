"""The model that learns from what people said: from examples of groups to probabilities.

Groups are told apart by balanced least squares: each group counts the same, whether it has two
examples or two hundred. How sharply a difference counts is learnt by leaving each example out in
turn. "None of these" is likely where the run has many images but no group has examples, and far
from all groups. The constants were chosen on the dev sets (docs/evidence/experiments.md,
"Teaching").
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.records import Bools, Floats, Ints
from flawsort.core.threads import in_blocks, single_threaded_blas
from flawsort.labels.space import Space

# The weight of the regularisation, divided by the number of groups and by one more than the
# examples of a group. It hardly matters: half or twice as much changes the accuracy by less than a
# point.
RIDGE = 0.2
# The value of the constant coordinate. A small one lets groups differ little by it.
CONSTANT = 0.3
# The sharpness before there are examples to learn it from, for up to FEW_GROUPS groups. It grows
# with the root of their number. The sharpness of a set is within these factors of it, and usually
# within e to the power SHARPNESS_SPREAD.
SHARPNESS = 5.5
FEW_GROUPS = 8
SHARPNESS_SPREAD = 0.6
SHARPNESS_FACTORS = np.exp(np.linspace(-2.0, 1.5, 36))
# The weight of a rejection against that of an example. With more, what is rejected is less likely
# still, but so are good images of the group.
REJECTION = 0.25
# At most this many examples of each group are left out.
MOST_LEFT_OUT = 50
# The weight of the run, as a group of its own, against that of one group, and its least share of
# the weight of all groups.
RUN_WEIGHT = 0.5
RUN_SHARE = 0.1
# The log odds of "none of these": a constant, then the factors of how much an image resembles the
# run as a whole, how much it resembles a group, its distance from the nearest group, and of one
# divided by the number of groups: the fewer there are, the more are still missing.
NONE_ODDS = (-5.1, 8.2, -2.8, 1.0, 4.7)
ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class Examples:
    """What people said of images.

    coordinates: (n_images, n_directions), of the space. belongs: (n, 2), a row of `coordinates`
    and the id of a group that the image belongs to; an image that shows several kinds has several.
    rejected: (n, 2), a row and the id of a group that the image does not belong to.
    """

    coordinates: NDArray[np.float32]
    belongs: NDArray[np.int64]
    rejected: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        coordinates: Floats,
        belongs: Collection[tuple[int, int]],
        rejected: Collection[tuple[int, int]] = (),
    ) -> Examples:
        """Checked, each answer once. What an image belongs to cannot be rejected."""
        yes, no = _pairs(belongs, len(coordinates)), _pairs(rejected, len(coordinates))
        known = set(map(tuple, yes.tolist()))
        kept = [pair for pair in no.tolist() if tuple(pair) not in known]
        return cls(np.asarray(coordinates, np.float32), yes, _pairs(kept, len(coordinates)))


@dataclass(frozen=True)
class Taught:
    """A fitted model, for any images in the coordinates of its space.

    groups: the ids of the groups that have examples, ascending. normal: those without a flaw.
    weights: (n_directions, 3 n_groups + 1) and offsets: (3 n_groups + 1,), the linear functions of
    the coordinates: how each group differs from the others, how much an image resembles each group
    and then the run, and its squared distance from each group but for its own length. sharpness:
    how much a difference between groups counts.
    """

    groups: tuple[int, ...]
    normal: tuple[int, ...]
    weights: NDArray[np.float32]
    offsets: NDArray[np.float32]
    sharpness: float

    @classmethod
    def fit(cls, examples: Examples, space: Space, *, normal: Collection[int] = ()) -> Taught:
        """Learn from examples of at least one group. normal: ids of groups without a flaw."""
        if not len(examples.belongs):
            raise InputError("There are no examples to learn from. Give at least one.")
        with single_threaded_blas():
            sums = _Sums.of(examples)
            among = _solve(sums, sums.products, sums.means - sums.means.mean(axis=0), 1 / sums.k)
            resembles = _resemblance(sums, space)
            sharpness = _sharpness(sums, among)
        middles = sums.means[:, :-1]
        columns = np.vstack([among, resembles, np.c_[-2 * middles, (middles**2).sum(axis=1)]])
        columns[: 2 * sums.k + 1, -1] *= CONSTANT
        return cls(
            tuple(sums.groups.tolist()),
            tuple(sorted(set(normal) & set(sums.groups.tolist()))),
            np.ascontiguousarray(columns[:, :-1].T, np.float32),
            columns[:, -1].astype(np.float32),
            sharpness,
        )

    def probabilities(
        self, coordinates: Floats, *, looks_normal: Bools | None = None
    ) -> NDArray[np.float64]:
        """(n_images, n_groups + 1), rows sum to 1: the probability of each of `groups`, then that
        of none of these.

        coordinates: (n_images, n_directions). looks_normal: (n_images,), images that the scores
        call normal. Such an image is no new kind: if a normal group was taught, its groups share
        what it has of "none".
        """
        if not len(coordinates):
            return np.empty((0, len(self.groups) + 1))
        found = in_blocks(
            lambda some: self._block(np.asarray(coordinates[some], np.float32)),
            len(coordinates),
            ROWS_AT_ONCE,
        )
        if looks_normal is not None and self.normal:
            _none_is_normal(found, looks_normal, np.searchsorted(self.groups, self.normal))
        return found

    def _block(self, coordinates: NDArray[np.float32]) -> NDArray[np.float64]:
        k = len(self.groups)
        values = (coordinates @ self.weights + self.offsets).astype(np.float64)
        among = _softmax(values[:, :k] * self.sharpness)
        square = (coordinates.astype(np.float64) ** 2).sum(axis=1) + values[:, 2 * k + 1 :].min(
            axis=1
        )
        constant, run, group, distance, few = NONE_ODDS
        odds = run * values[:, 2 * k] + group * values[:, k : 2 * k].max(axis=1)
        odds += constant + distance * np.sqrt(np.maximum(square, 0.0)) + few / k
        none = 1 / (1 + np.exp(-np.clip(odds, -50.0, 50.0)))
        return np.column_stack([among * (1 - none)[:, None], none])


def most_likely(probabilities: NDArray[np.float64]) -> NDArray[np.int64]:
    """(n_images,): the column of the best group of each image, or the last one where none of these
    is more likely than all groups together. probabilities: (n_images, n_groups + 1)."""
    best = probabilities[:, :-1].argmax(axis=1)
    best[probabilities[:, -1] > 0.5] = probabilities.shape[1] - 1
    return np.asarray(best, np.int64)


def rule_out(probabilities: NDArray[np.float64], rows: Ints, columns: Ints) -> NDArray[np.float64]:
    """Probabilities (n_images, n_groups + 1) where the groups that a person rejected for an image
    have none: `columns[i]` is not the group of image `rows[i]`. Their share goes to the others."""
    found = probabilities.copy()
    found[rows, columns] = 0.0
    left = found.sum(axis=1)
    found[left <= 0, -1] = 1.0
    found /= found.sum(axis=1, keepdims=True)
    return found


@dataclass(frozen=True)
class _Sums:
    """What the solutions need of the examples.

    groups: (k,). vectors: (n, n_directions + 1), an example for each answer, with a constant; by
    group, and in an order that does not depend on that of the answers. labels: (n,), places in
    `groups`. weights: (n,), those of each group sum to 1 / k; an image of several groups shares
    its weight. typical: the number of examples of a group, where small groups count most.
    products: the mean product of each two columns of `vectors`. means: (k, n_directions + 1).
    rejected, rejected_labels: vectors that do not belong to a group. none: vectors that belong to
    no group.
    """

    groups: NDArray[np.int64]
    vectors: NDArray[np.float32]
    labels: NDArray[np.int64]
    weights: NDArray[np.float64]
    typical: float
    products: NDArray[np.float64]
    means: NDArray[np.float64]
    rejected: NDArray[np.float64]
    rejected_labels: NDArray[np.int64]
    none: NDArray[np.float64]

    @property
    def k(self) -> int:
        return len(self.groups)

    @property
    def ridge(self) -> float:
        return RIDGE / self.k / (self.typical + 1)

    @classmethod
    def of(cls, examples: Examples) -> _Sums:
        groups, labels = np.unique(examples.belongs[:, 1], return_inverse=True)
        rows = examples.belongs[:, 0]
        shares = 1 / np.bincount(rows)[rows]
        vectors = _with_constant(examples.coordinates[rows])
        order = _canonical(vectors, labels)
        vectors, labels, shares = vectors[order], labels[order], shares[order]
        counts = np.bincount(labels, shares)
        weights = shares / counts[labels] / len(groups)
        weighted = vectors * weights[:, None].astype(np.float32)
        starts = np.searchsorted(labels, np.arange(len(groups)))
        means = np.add.reduceat(weighted.astype(np.float64), starts) * len(groups)
        rejected, of, none = _rejections(examples, groups)
        return cls(
            groups,
            vectors,
            labels,
            weights,
            float(len(groups) / (1 / counts).sum()),
            (weighted.T @ vectors).astype(np.float64),
            means,
            rejected,
            of,
            none,
        )


def _solve(
    sums: _Sums, products: NDArray[np.float64], targets: NDArray[np.float64], level: float
) -> NDArray[np.float64]:
    """(n_functions, n_directions + 1): the linear functions with least squared error. The first k
    are those of the groups: an image that was rejected counts against its group.

    targets: (n_functions, n_directions + 1), mean products with the wanted values, for a mean
    weight of 1 / k. level: the wanted value of other groups, below 0.
    """
    ridge = sums.ridge * np.eye(len(products))
    found = np.linalg.solve(products + ridge, targets.T / sums.k).T
    weight = REJECTION / (sums.k * sums.typical)
    for label in np.unique(sums.rejected_labels):
        against = sums.rejected[sums.rejected_labels == label]
        more = products + ridge + weight * against.T @ against
        wanted = targets[label] / sums.k - weight * level * against.sum(axis=0)
        found[label] = np.linalg.solve(more, wanted)
    return np.asarray(found)


def _resemblance(sums: _Sums, space: Space) -> NDArray[np.float64]:
    """(k + 1, n_directions + 1): functions that are 1 for examples of a group and 0 for others,
    and last one for the run as a whole, which counts as a further group."""
    of_run = max(RUN_WEIGHT, RUN_SHARE * sums.k)
    total = sums.k + of_run
    constant = np.array([CONSTANT])
    mean = np.concatenate([space.mean, constant])
    moment = np.block(
        [
            [space.moment, space.mean[:, None] * CONSTANT],
            [space.mean[None] * CONSTANT, constant[None] ** 2],
        ]
    )
    weight = 1 / sums.typical
    products = (sums.k * sums.products + of_run * moment + weight * sums.none.T @ sums.none) / total
    run = of_run * mean + weight * sums.none.sum(axis=0)
    targets = np.vstack([sums.means, run]) * (sums.k / total)
    return _solve(sums, products, targets, 0.0)


def _sharpness(sums: _Sums, among: NDArray[np.float64]) -> float:
    """How sharply differences between groups count, as learnt from examples that are left out. The
    values of an example without itself follow from its leverage. A group with one example has
    nothing left to be recognised by, so it cannot be left out."""
    usual = SHARPNESS * np.sqrt(max(1.0, sums.k / FEW_GROUPS))
    chosen = _some_of_each(sums.labels)
    if not len(chosen) or sums.k < 2:
        return float(usual)
    vectors, labels = sums.vectors[chosen].astype(np.float64), sums.labels[chosen]
    inverse = np.linalg.inv(sums.products + sums.ridge * np.eye(len(sums.products)))
    leverage = sums.weights[chosen] * ((vectors @ inverse) * vectors).sum(axis=1)
    rows = np.arange(len(chosen))
    wanted = np.full((len(chosen), sums.k), -1 / sums.k)
    wanted[rows, labels] += 1
    part = np.minimum(leverage, 0.999)[:, None]
    values = (vectors @ among.T - part * wanted) / (1 - part)
    values -= values[rows, labels][:, None]
    counts = np.bincount(labels, minlength=sums.k)[labels]
    balanced = len(chosen) / np.count_nonzero(np.bincount(labels)) / counts
    losses = [
        balanced @ np.log(np.exp(np.minimum(usual * factor * values, 500.0)).sum(axis=1))
        + (np.log(factor) / SHARPNESS_SPREAD) ** 2 / 2
        for factor in SHARPNESS_FACTORS
    ]
    return float(usual * SHARPNESS_FACTORS[int(np.argmin(losses))])


def _some_of_each(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Examples to leave out: at most MOST_LEFT_OUT of each group, evenly spaced, and none of a
    group that has only one. labels: (n,), ascending."""
    found = [np.empty(0, np.int64)]
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) > 1:
            found.append(members[:: -(-len(members) // MOST_LEFT_OUT)])
    return np.concatenate(found)


def _rejections(
    examples: Examples, groups: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Vectors that do not belong to a group, the place of that group in `groups`, and the vectors
    that belong to none of the groups."""
    known = np.isin(examples.rejected[:, 1], groups)
    rows, labels = examples.rejected[known, 0], np.searchsorted(groups, examples.rejected[known, 1])
    vectors = _with_constant(examples.coordinates[rows])
    order = _canonical(vectors, labels)
    often, places = np.unique(rows, return_index=True)
    nowhere = places[np.bincount(rows, minlength=1)[often] == len(groups)] if len(rows) else places
    none = vectors[nowhere]
    none = none[_canonical(none, np.zeros(len(none), np.int64))]
    return vectors[order].astype(np.float64), labels[order], none.astype(np.float64)


def _canonical(vectors: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order by label and then by the first coordinates, so that sums come out the same to the
    last digit in whatever order the answers were given."""
    return np.lexsort((*vectors[:, 3::-1].T, labels))


def _with_constant(coordinates: NDArray[np.float32]) -> NDArray[np.float32]:
    constant = np.full((len(coordinates), 1), CONSTANT, np.float32)
    return np.hstack([np.asarray(coordinates, np.float32), constant])


def _pairs(pairs: Collection[tuple[int, int]], n_images: int) -> NDArray[np.int64]:
    found = np.unique(np.array(list(pairs), np.int64).reshape(-1, 2), axis=0)
    outside = found[(found[:, 0] < 0) | (found[:, 0] >= n_images), 0]
    if len(outside):
        raise InputError(
            f"The row of an answer must be between 0 and {n_images - 1}. Got {outside[0]}."
        )
    return found


def _none_is_normal(
    probabilities: NDArray[np.float64], rows: Bools, normal: NDArray[np.int64]
) -> None:
    """Give what these rows have of "none", q, to the groups: the part q of it to the normal groups
    and the rest to all in proportion. So an image that is like no group is normal, and one that is
    like a group stays there. In place."""
    found = probabilities[rows]
    none = found[:, -1:].copy()
    found[:, :-1] *= 1 + none
    there = found[:, normal].sum(axis=1, keepdims=True)
    shares = found[:, normal] / np.maximum(there, 1e-300)
    found[:, normal] += none**2 * np.where(there > 0, shares, 1 / len(normal))
    found[:, -1] = 0.0
    probabilities[rows] = found


def _softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))

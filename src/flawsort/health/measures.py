"""How much of something, such as brightness or the folder, groups explain."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Ints

# A group of fewer images is told apart by chance.
LEAST_MEMBERS = 8
# So many images more than groups: with a group for nearly each image, groups explain everything.
LEAST_SPARE = 8
# Values of fewer images do not count as far as they lie beyond the others, so that a few odd ones
# are not all that differs: LEAST_MEMBERS, and this share of the set.
ODD_SHARE = 0.1
# Of values that do not overlap at all.
CLEAR = 100.0
# Something is known only if it is known of this share of the images.
LEAST_KNOWN = 0.8
# Differences below these do not show: squared, in the units of each measurement.
LEAST_SPREAD = 1e-6
# The order in time says something if most files were changed at least this long, in days, after
# others: copying files also gives them times, one after the other.
LEAST_TIME = 1 / 24


def explained(values: NDArray[np.float64], labels: Ints) -> float:
    """The share of the variance of values (n,) or (n, m) that the groups explain, as it would be
    without chance; 0 if too few are known, or if no more than a few of them differ."""
    rows = values.reshape(len(values), -1)
    known = np.isfinite(rows).all(axis=1)
    if known.mean() < LEAST_KNOWN:
        return 0.0
    rows, own = rows[known], labels[known]
    return min(_explained(rows, own), _explained(without_odd(rows), own))


def without_odd(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, m): each column with its highest and lowest values moved to the next, for as many as are
    odd; all the same if nothing else is left."""
    n = len(rows)
    odd = min(max(LEAST_MEMBERS, math.ceil(ODD_SHARE * n)), (n + 1) // 2)
    ordered = np.sort(rows, axis=0)
    clipped: NDArray[np.float64] = np.clip(rows, ordered[odd - 1], ordered[n - odd])
    return clipped


def _explained(rows: NDArray[np.float64], labels: Ints) -> float:
    own = np.unique(labels, return_inverse=True)[1]
    n, k = len(rows), int(own.max(initial=-1)) + 1
    if k < 2 or n < k + LEAST_SPARE:
        return 0.0
    total = ((rows - rows.mean(axis=0)) ** 2).sum() / (n - 1)
    if total < LEAST_SPREAD:
        return 0.0
    means = np.array([rows[own == group].mean(axis=0) for group in range(k)])
    return float(1 - ((rows - means[own]) ** 2).sum() / (n - k) / total)


def explained_kinds(values: Sequence[str], labels: Ints) -> float:
    """The share of the entropy of values, such as folders, that the groups explain beyond what
    groups of these sizes would by chance."""
    from sklearn.metrics.cluster import expected_mutual_information

    _, own = np.unique(np.array(values), return_inverse=True)
    table = np.zeros((int(labels.max()) + 1, int(own.max()) + 1), np.int64)
    np.add.at(table, (labels, own), 1)
    table = table[table.sum(axis=1) > 0]
    counts, n = np.sort(table.sum(axis=0)), len(own)
    if len(counts) < 2 or len(table) < 2 or counts[-2] < LEAST_MEMBERS:
        return 0.0
    if n < len(table) + LEAST_SPARE:
        return 0.0
    whole = _entropy(counts)
    inside = sum(row.sum() * _entropy(row) for row in table) / n
    chance = float(expected_mutual_information(table, n))
    return float((whole - inside - chance) / max(whole - chance, 1e-12))


def explained_order(values: NDArray[np.float64], labels: Ints) -> float:
    """How much more often than by chance images that follow each other in the order of values (n,),
    such as times in days, are of one group: 1 if always, 0 if no more. 0 too if too few are known
    or different, or if they lie close together."""
    known = np.isfinite(values)
    rows, own = values[known], labels[known]
    n = len(rows)
    if known.mean() < LEAST_KNOWN or n < len(np.unique(own)) + LEAST_SPARE:
        return 0.0
    low, high = np.quantile(rows, [ODD_SHARE, 1 - ODD_SHARE])
    if high - low < LEAST_TIME or 2 * len(np.unique(rows)) < n:
        return 0.0
    ordered = own[np.argsort(rows, kind="stable")]
    same = float((ordered[1:] == ordered[:-1]).mean())
    counts = np.bincount(own)
    by_chance = float((counts * (counts - 1)).sum() / (n * (n - 1)))
    return (same - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0


def told_apart(values: NDArray[np.float64], inside: Bools) -> float:
    """How far values (n,) or (n, m) of the images inside a group lie from those of the others: the
    distance of the means in standard deviations within both; 0 if too few are known."""
    rows = values.reshape(len(values), -1)
    known = np.isfinite(rows).all(axis=1)
    rows, own = rows[known], inside[known]
    if min(own.sum(), (~own).sum()) < LEAST_MEMBERS or known.mean() < LEAST_KNOWN:
        return 0.0
    if ((rows - rows.mean(axis=0)) ** 2).sum() / len(rows) < LEAST_SPREAD:
        return 0.0
    # Along the line from the mean of the others to that of the group.
    along = rows @ (rows[own].mean(axis=0) - rows[~own].mean(axis=0))
    middle = np.where(own, along[own].mean(), along[~own].mean())
    spread = float(np.sqrt(((along - middle) ** 2).mean()))
    apart = float(abs(along[own].mean() - along[~own].mean()))
    return min(apart / spread, CLEAR) if spread > 0 else CLEAR


def ranked_apart(values: NDArray[np.float64], inside: Bools) -> float:
    """The share of pairs, one inside and one outside, of which the one inside is higher (or lower,
    if that is more): 0.5 for no difference, 1 for no overlap; 0 if one side is too small."""
    from scipy.stats import rankdata

    n, m = int(inside.sum()), int((~inside).sum())
    if min(n, m) < LEAST_MEMBERS:
        return 0.0
    above = (rankdata(values)[inside].sum() - n * (n + 1) / 2) / (n * m)
    return float(max(above, 1 - above))


def _entropy(counts: NDArray[np.int64]) -> float:
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())

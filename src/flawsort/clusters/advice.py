"""Advice on the number of groups, from the linkage and from stability under resampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.core.records import Floats, Ints
from flawsort.core.text import pluralise
from flawsort.core.threads import in_threads

# From rows (m,) to the merges (m - 1, 4) of these images.
Link: TypeAlias = Callable[[Ints], NDArray[np.float64]]

MAX_ADVISED = 20
RESAMPLES = 20
RESAMPLE_SHARE = 0.8
RESAMPLE_LIMIT = 1000
# Chosen on the dev sets, where the advised k was off by 1.4 on average over subsets and cost .016
# NMI against the true k (docs/evidence/experiments.md). Gaps count in proportion to k up to 8, the
# largest number of kinds that is common; cuts at 40% of the best score are plausible, at 60% they
# stand out; below a stability of 0.5 another sample of the images would be grouped differently.
GAP_BONUS_LIMIT = 8
PLAUSIBLE = 0.4
OUTSTANDING = 0.6
MIN_STABILITY = 0.5
# Wording only: from these stabilities on, the groups of subsets are called the same, and nearly the
# same.
SAME_GROUPS, NEARLY_SAME_GROUPS = 0.995, 0.8
# Among more different images, no cut up to MAX_ADVISED is near the height of copies.
MOST_WITH_COPIES = 10 * MAX_ADVISED
# Fewer images are too few for advice, whatever their tree looks like.
FEW_IMAGES = 6


@dataclass(frozen=True)
class Candidate:
    """The evidence for one k.

    stability: mean agreement (ARI) of the cut with cuts of resampled images, at most 1.
    gap: the relative difference in height between the first merge above the cut and the last one
        below it.
    score: both combined; the advice follows it.
    """

    k: int
    stability: float
    gap: float
    score: float


@dataclass(frozen=True)
class Advice:
    """The recommended number of groups, the range of nearly as good ones, and the evidence."""

    k: int
    low: int
    high: int
    ambiguous: bool
    reason: str
    candidates: tuple[Candidate, ...]


def stability(
    embeddings: Floats,
    merges: Floats,
    ks: NDArray[np.int64],
    random_state: int,
    *,
    largest: int = RESAMPLE_LIMIT,
    link: Link | None = None,
) -> NDArray[np.float64]:
    """(len(ks),): how well cuts of random subsets agree with the cut of the whole set. largest: the
    most images of a subset. link: see `advise`."""
    from sklearn.metrics import adjusted_rand_score

    n = len(embeddings)
    size = min(max(int(RESAMPLE_SHARE * n), 2), largest)
    rng = np.random.default_rng(random_state)
    subsets = [np.sort(rng.permutation(n)[:size]) for _ in range(RESAMPLES)]
    whole = {int(k): cut(merges, int(k)) for k in ks}

    def agree(rows: NDArray[np.int64]) -> list[float]:
        part = link(rows) if link else ward_linkage(np.asarray(embeddings)[rows])
        return [
            float(adjusted_rand_score(whole[int(k)][rows], cut(part, min(int(k), size))))
            for k in ks
        ]

    means: NDArray[np.float64] = np.mean(list(in_threads(agree, subsets)), axis=0)
    return means


def advise(
    embeddings: Floats, merges: Floats, *, link: Link | None = None, random_state: int = 0
) -> Advice:
    """Recommend a number of groups from the embeddings and their tree.

    link: makes the tree of a subset; None for Ward's on the embeddings.

    A cut is convincing when the next merge costs much more than the last one (gap), and when
    random subsets of the images are cut in the same way (stability). Gaps shrink as groups get
    small, so they count in proportion to k, up to GAP_BONUS_LIMIT groups. The advice is the
    plausible cut in the middle on a logarithmic scale: half as many groups are as far off as twice
    as many. The range spans the cuts that stand out, and the advised one. Copies do not count.
    """
    rows = _without_copies(embeddings)
    if len(rows) < len(embeddings):
        only, link = np.asarray(embeddings)[rows], _link_of(rows, embeddings, link)
        which = "different image"
        return _advise(only, link(np.arange(len(rows))), link, random_state, which)
    return _advise(embeddings, merges, link, random_state, "image")


def _advise(
    embeddings: Floats, merges: Floats, link: Link | None, random_state: int, which: str
) -> Advice:
    """which: what is counted, for a person."""
    n = len(embeddings)
    ks = np.arange(2, min(MAX_ADVISED, n - 1) + 1)
    if not len(ks):
        return Advice(n, n, n, True, _too_few(n, which), ())
    heights = np.asarray(merges)[:, 2]
    avoided, made = heights[n - ks], heights[n - ks - 1]
    gaps = (avoided - made) / np.maximum(avoided, 1e-12)
    stable = stability(embeddings, merges, ks, random_state, link=link)
    scores = gaps * np.minimum(ks, GAP_BONUS_LIMIT) * np.maximum(stable, 0)
    alike = not scores.max() > 0  # no cut separates the images: advise the fewest groups
    k = int(ks[0]) if alike else _middle(ks[scores >= PLAUSIBLE * scores.max()], scores)
    standing = sorted({k, *ks[scores >= OUTSTANDING * scores.max()].tolist()})
    low, high = standing[0], standing[-1]
    few = n < FEW_IMAGES
    ambiguous = alike or few or high > 2 * low or float(stable[k - 2]) < MIN_STABILITY
    candidates = tuple(
        Candidate(int(ks[i]), float(stable[i]), float(gaps[i]), float(scores[i]))
        for i in range(len(ks))
    )
    reason = "No number of groups stands out from the others."
    if not alike:
        reason = _too_few(n, which) if few else _reason(k, float(stable[k - 2]), standing)
    return Advice(k, low, high, ambiguous, reason, candidates)


def _without_copies(embeddings: Floats) -> Ints:
    """The rows without copies of earlier ones. Copies merge at height 0, and the cut just above has
    the largest possible gap: one copy would make each other image a group of its own. All rows if
    that cannot matter, or if a handful of images is repeated so often that copies are the set."""
    first: dict[bytes, int] = {}
    for row, vector in enumerate(np.asarray(embeddings)):
        first.setdefault(vector.tobytes(), row)
        if len(first) > MOST_WITH_COPIES:
            break
    n, distinct = len(embeddings), len(first)
    if distinct > MOST_WITH_COPIES or (distinct < FEW_IMAGES and n >= 2 * distinct):
        return np.arange(n)
    return np.array(list(first.values()))


def _link_of(rows: Ints, embeddings: Floats, link: Link | None) -> Link:
    """Links some of these rows, by their places among them."""
    if link is not None:
        return lambda places: link(rows[places])
    return lambda places: ward_linkage(np.asarray(embeddings)[rows[places]])


def _middle(plausible: NDArray[np.int64], scores: NDArray[np.float64]) -> int:
    """The plausible number in the middle of the range on a logarithmic scale; of two, the one with
    the higher score."""
    aside = np.abs(2 * np.log(plausible) - np.log(plausible[0]) - np.log(plausible[-1]))
    middle = plausible[aside <= aside.min() + 1e-9]
    return int(middle[scores[middle - 2].argmax()])


def _too_few(n: int, which: str) -> str:
    return f"{pluralise(n, which)} {'is' if n == 1 else 'are'} too few to tell."


def _reason(k: int, stable: float, standing: list[int]) -> str:
    subsets = "grouping random subsets of the images gives"
    if stable < MIN_STABILITY:
        return f"{subsets.capitalize()} different groups (agreement {stable:.2f} of 1)."
    same = "partly different groups"
    if stable >= NEARLY_SAME_GROUPS:
        same = "the same groups" if stable >= SAME_GROUPS else "nearly the same groups"
    same += f" (agreement {stable:.2f} of 1)"
    if len(standing) == 1:
        # Fewer than two groups is one group, which separates nothing.
        fewer = ", and with fewer groups clearly different images would be joined" if k > 2 else ""
        return f"{subsets.capitalize()} {same}{fewer}."
    cuts = ", ".join(str(other) for other in standing[:-1]) + f" and {standing[-1]}"
    which = "both" if len(standing) == 2 else "all"
    return f"{cuts} groups are {which} plausible; with {k}, {subsets} {same}."

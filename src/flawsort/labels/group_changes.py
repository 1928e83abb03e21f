"""How groups change: images move, groups come and go, and what refers to them follows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools
from flawsort.labels.groups import Answer, Audit, Group, Labelling

# Up to this many groups are searched one by one; for more, sorting all labels is faster.
_FEW_GROUPS = 20
Several: TypeAlias = Mapping[int, tuple[int, ...]]


def with_group(now: Labelling, group: Group) -> Labelling:
    return replace(now, groups={**now.groups, group.id: group})


def moved(now: Labelling, rows: NDArray[np.int64], to: Group, confirmed: Bools) -> Labelling:
    """Move images to a group, which may be new. Unnamed groups that become empty are removed."""
    groups = {**now.groups, to.id: to}
    next_id = max(now.next_id, to.id + 1)
    now = replace(now, groups=groups, next_id=next_id)
    return placed(now, rows, np.full(len(rows), to.id), confirmed)


def placed(
    now: Labelling, rows: NDArray[np.int64], at: NDArray[np.int64], confirmed: Bools
) -> Labelling:
    """Put each image into a group of its own choice. at: (n_rows,), ids of groups."""
    labels = now.labels.copy()
    labels[rows] = at
    several = without_own(now.several, labels, rows.tolist())
    groups = dict(now.groups)
    left = set(now.labels[rows].tolist()) - set(at.tolist())
    drop_empty(groups, labels, several, left, taught={one.group for one in now.examples})
    now = replace(now, groups=groups, labels=labels, confirmed=confirmed, several=several)
    return replace(now, rejected=_still_rejected(now, rows.tolist()))


def merged(now: Labelling, others: Iterable[int], into: int) -> Labelling:
    """Everything that refers to the groups `others` refers to the group `into`. The groups
    themselves stay."""
    gone = frozenset(others)

    def follow(group: int) -> int:
        return into if group in gone else group

    labels = np.where(np.isin(now.labels, list(gone)), into, now.labels)
    several = {row: tuple(dict.fromkeys(map(follow, kinds))) for row, kinds in now.several.items()}
    rejected = {  # what a person gave an image wins over what they rejected
        row: tuple(dict.fromkeys(g for g in map(follow, not_) if g not in several.get(row, ())))
        for row, not_ in now.rejected.items()
    }
    return replace(
        now,
        labels=labels,
        several=without_own(several, labels, several),
        rejected=rejected,
        examples=tuple(replace(one, group=follow(one.group)) for one in now.examples),
        answers={
            image: Answer(follow(one.suggested), follow(one.given), one.together)
            for image, one in now.answers.items()
        },
        audits={row: Audit(follow(one.group), one.decided) for row, one in now.audits.items()},
        different=frozenset(
            pair
            for pair in (frozenset(map(follow, old)) for old in now.different)
            if len(pair) == 2
        ),
    )


def without_rejected(now: Labelling) -> Labelling:
    """The groups with every undecided image out of the groups that a person rejected for it: it
    waits in an unsure group. What a person decided wins over an earlier rejection."""
    kept = _still_rejected(now, now.rejected)
    now = replace(now, rejected=kept)
    out = [
        row
        for row, groups in kept.items()
        if any(now.same_kind(group, own := int(now.labels[row])) for group in groups)
        if now.groups[own].role != "unsure"
    ]
    if not out:
        return now
    waiting = next(iter(now.with_role("unsure")), None)
    to = Group(now.next_id, role="unsure") if waiting is None else now.groups[waiting]
    return moved(now, np.array(sorted(out), np.int64), to, now.confirmed)


def _still_rejected(now: Labelling, rows: Iterable[int]) -> Several:
    """The rejected groups of images, without those of the kind that a person decided the image to
    be. rows: those to check."""
    changed = {}
    for row in now.rejected.keys() & set(rows) if now.rejected else ():
        own = int(now.labels[row])
        if now.confirmed[row]:
            kept = tuple(group for group in now.rejected[row] if not now.same_kind(group, own))
            changed[row] = kept
    return {**now.rejected, **changed} if changed else now.rejected


def without_own(several: Several, labels: NDArray[np.int64], rows: Iterable[int]) -> Several:
    """The further groups of images, without each image's own group. rows: those to check."""
    changed = {}
    for row in several.keys() & set(rows) if several else ():
        own = int(labels[row])
        if own in several[row]:
            changed[row] = tuple(kind for kind in several[row] if kind != own)
    return {**several, **changed} if changed else several


def drop_empty(
    groups: dict[int, Group],
    labels: NDArray[np.int64],
    several: Several,
    candidates: Iterable[int],
    *,
    taught: Collection[int] = (),
) -> None:
    """Remove the candidates of which nothing was said and that have no image, not even one that
    has the group as another kind: nothing that a person entered is lost. taught: groups with
    examples outside the run."""
    nameless = [group for group in candidates if not groups[group].told and group not in taught]
    if not nameless:
        return
    if len(nameless) > _FEW_GROUPS:
        empty = set(nameless) - set(np.unique(labels).tolist())
    else:  # the common case; a replay has thousands of such edits
        empty = {group for group in nameless if not (labels == group).any()}
    for group in empty.difference(*several.values()) if empty else ():
        del groups[group]


def heirs(clusters: NDArray[np.int64], now: Labelling) -> NDArray[np.int64]:
    """(k,): the group that each cluster continues, or -1. The matching is one to one and keeps as
    many images as possible in their groups. Unsure groups are not matched."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    ids = np.array(list(now.groups), np.int64)
    k = int(clusters.max()) + 1
    sure = ~np.isin(now.labels, now.with_role("unsure"))
    cells, shared = np.unique(
        clusters[sure] * len(ids) + np.searchsorted(ids, now.labels[sure]), return_counts=True
    )
    # Each cluster also has an extra column, which stands for no group. Costs are positive, because
    # a zero would mean no edge.
    most = int(shared.max(initial=0)) + 1
    costs = np.concatenate([most - shared, np.full(k, most)]).astype(np.float64)
    rows = np.concatenate([cells // len(ids), np.arange(k)])
    columns = np.concatenate([cells % len(ids), len(ids) + np.arange(k)])
    table = csr_matrix((costs, (rows, columns)), shape=(k, len(ids) + k))
    matched, column = min_weight_full_bipartite_matching(table)
    heirs = np.full(k, -1, np.int64)
    taken = column < len(ids)
    heirs[matched[taken]] = ids[column[taken]]
    return heirs

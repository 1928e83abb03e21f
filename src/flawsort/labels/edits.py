"""The edits that a person can make to the groups of a run, and their effect.

All functions are pure: an edit and a labelling give a new labelling. Undo and redo are entries of
the log like any other. The current state is the first labelling with all edits in force applied in
order.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import cut
from flawsort.core.errors import OptionError
from flawsort.core.records import Bools, Floats
from flawsort.labels.edit_checks import (
    Edit,
    Payload,
    carried_groups,
    carried_several,
    checked_payload,
    group_of,
    groups_of,
    integers_of,
    listed,
    name_of,
    number_of,
    role_of,
    rows_of,
    target_of,
)
from flawsort.labels.groups import Group, Labelling

UNDO, REDO, CARRY = "undo", "redo", "carry"
# Up to this many groups are searched one by one; for more, sorting all labels is faster.
_FEW_GROUPS = 20
Several: TypeAlias = Mapping[int, tuple[int, ...]]


@dataclass
class History:
    """done: the edits in force. undone: the edits that can be redone, the next one last."""

    done: list[Edit] = field(default_factory=list)
    undone: list[Edit] = field(default_factory=list)

    def add(self, entry: Edit) -> None:
        """Add the next entry of the log. An undo or redo with nothing to act on has no effect."""
        if entry.kind == UNDO:
            if self.done:
                self.undone.append(self.done.pop())
        elif entry.kind == REDO:
            if self.undone:
                self.done.append(self.undone.pop())
        else:
            self.done.append(entry)
            self.undone.clear()


@dataclass(frozen=True)
class Spent:
    """The labels that people have given. groups: ids that were named, given a role or accepted.
    images: (n_images,), those moved, accepted singly or given several kinds. earlier: the number
    of labels given in the run that this one was carried over from."""

    groups: frozenset[int]
    images: Bools
    earlier: int = 0

    @property
    def total(self) -> int:
        return self.earlier + len(self.groups) + int(np.count_nonzero(self.images))


def effective(log: Sequence[Edit]) -> list[Edit]:
    """The edits in force after all undos and redos of the log."""
    history = History()
    for entry in log:
        history.add(entry)
    return history.done


def replay(log: Sequence[Edit], first: Labelling, linkage: Floats) -> Labelling:
    """The groups after a whole log. first: before any edit. linkage: (n_images - 1, 4)."""
    for edit in effective(log):
        first = apply(edit, first, linkage)
    return first


def apply(edit: Edit, labelling: Labelling, linkage: Floats) -> Labelling:
    """The groups after one edit; OptionError if it is not valid for the current groups."""
    given = checked_payload(edit)
    return _CHANGES[edit.kind](given, labelling, linkage)


def spend(edit: Edit, before: Labelling, spent: Spent) -> Spent:
    """The labels given up to and including an edit of `before`. Each group and each image counts
    once, however often it is edited."""
    given = edit.payload
    if edit.kind == CARRY:
        images = np.zeros(len(before.labels), bool)
        return Spent(frozenset(), images, spent.total + given.get("spent", 0))
    group, images = None, spent.images
    if edit.kind in ("name", "role", "accept"):
        group = given.get("group")
    if edit.kind in ("split", "move"):  # the new group counts if it gets a name
        group = before.next_id
    if edit.kind in ("name", "split", "move") and not (given.get("name") or "").strip():
        group = None
    if edit.kind in ("move", "accept", "several") and "images" in given:
        images = images.copy()
        images[given["images"]] = True
    groups = spent.groups if group is None else spent.groups | {group}
    return Spent(groups, images, spent.earlier)


# ---- the effect of each kind of edit ----


def _change_name(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    group = now.groups[group_of(given["group"], now)]
    if given["name"] is None:
        raise OptionError("name must be text. Got None: pass '' to remove the name.")
    return _with_group(now, replace(group, name=name_of(given["name"])))


def _change_role(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    group = now.groups[group_of(given["group"], now)]
    return _with_group(now, replace(group, role=role_of(given["role"])))


def _merge(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    into = group_of(given["into"], now, "into")
    others = [group for group in groups_of(given["groups"], now) if group != into]
    if not others:
        raise OptionError(
            f"groups must name a group to merge into group {into}, other than itself. "
            f"Got {reprlib.repr(given['groups'])}."
        )
    names = [now.groups[group].name for group in (into, *others)]
    groups = {**now.groups, into: replace(now.groups[into], name=next(filter(None, names), ""))}
    for group in others:
        del groups[group]
    labels = np.where(np.isin(now.labels, others), into, now.labels)
    mapped = {
        row: tuple(dict.fromkeys(into if kind in others else kind for kind in kinds))
        for row, kinds in now.several.items()
    }
    several = _without_own(mapped, labels, mapped)
    return replace(now, groups=groups, labels=labels, several=several)


def _split(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    group = group_of(given["group"], now)
    rows = rows_of(given["images"], now)
    outside = rows[now.labels[rows] != group]
    if len(outside):
        raise OptionError(
            f"images must be in group {group} to be split from it. Got {outside[0]}, which is in "
            f"group {now.labels[outside[0]]}."
        )
    size = int(np.count_nonzero(now.labels == group))
    if len(rows) == size:
        raise OptionError(
            f"images must leave at least one image in group {group}. Got all {size} of them."
        )
    made = Group(now.next_id, name_of(given.get("name")))
    return _moved(now, rows, made, now.confirmed)


def _move(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    rows = rows_of(given["images"], now)
    target = target_of(given, now)
    confirmed = now.confirmed.copy()
    confirmed[rows] = target.role != "unsure"
    return _moved(now, rows, target, confirmed)


def _several(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    rows = rows_of(given["images"], now).tolist()
    groups = tuple(groups_of(given["groups"], now))
    several = _without_own({**now.several, **dict.fromkeys(rows, groups)}, now.labels, rows)
    return replace(now, several=several)


def _accept(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    if len(given) != 1:
        raise OptionError(f"accept takes either group or images. Got {listed(given)}.")
    if "images" in given:
        rows = rows_of(given["images"], now)
    else:
        group = group_of(given["group"], now)
        rows = now.members(group)
        if not len(rows):
            raise OptionError(f"group must have images to accept. Got {group}, which is empty.")
    confirmed = now.confirmed.copy()
    confirmed[rows] = True
    return replace(now, confirmed=confirmed)


def _cut(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    k = number_of(given["k"])
    n = len(now.labels)
    if not 1 <= k <= n:
        raise OptionError(
            f"k must be between 1 and {n} (the number of images). Got {reprlib.repr(k)}."
        )
    clusters = cut(linkage, k)
    heirs = _heirs(clusters, now)
    groups, next_id = dict(now.groups), now.next_id
    # Confirmed images and images in unsure groups stay where they are.
    stays = now.confirmed | np.isin(now.labels, now.with_role("unsure"))
    needed = np.bincount(clusters[~stays], minlength=k) > 0
    for cluster in np.flatnonzero(needed & (heirs < 0)).tolist():
        heirs[cluster] = next_id
        groups[next_id] = Group(next_id)
        next_id += 1
    labels = np.where(stays, now.labels, heirs[clusters])
    several = _without_own(now.several, labels, now.several)
    _drop_empty(groups, labels, several, list(groups))
    return Labelling(groups, labels, now.confirmed, k, next_id, several)


def _carry(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    n = len(now.labels)
    groups = carried_groups(given["groups"])
    known = Labelling(groups, now.labels, now.confirmed, now.k, max(groups) + 1)
    labels = given["labels"]
    if not isinstance(labels, list | tuple) or len(labels) != n:
        raise OptionError(
            f"labels must be a list of {n} group ids, one per image. Got {reprlib.repr(labels)}."
        )
    for label in dict.fromkeys(integers_of(labels, "labels")):
        group_of(label, known, "labels")
    confirmed = np.zeros(n, bool)
    confirmed[rows_of(given["confirmed"], now, "confirmed", least=0)] = True
    k = number_of(given["k"])
    if not 1 <= k <= n:
        raise OptionError(
            f"k must be between 1 and {n} (the number of images). Got {reprlib.repr(k)}."
        )
    if number_of(given.get("spent", 0), "spent") < 0:
        raise OptionError(f"spent must be 0 or more. Got {given['spent']}.")
    placed = np.array(labels, np.int64)
    several = carried_several(given["several"], known)
    next_id = max(now.next_id, known.next_id)
    return Labelling(groups, placed, confirmed, k, next_id, _without_own(several, placed, several))


_CHANGES: dict[str, Callable[[Payload, Labelling, Floats], Labelling]] = {
    "name": _change_name,
    "role": _change_role,
    "merge": _merge,
    "split": _split,
    "move": _move,
    "several": _several,
    "accept": _accept,
    "cut": _cut,
    "carry": _carry,
}
# ---- how groups change ----


def _with_group(now: Labelling, group: Group) -> Labelling:
    return replace(now, groups={**now.groups, group.id: group})


def _moved(now: Labelling, rows: NDArray[np.int64], to: Group, confirmed: Bools) -> Labelling:
    """Move images to a group, which may be new. Unnamed groups that become empty are removed."""
    labels = now.labels.copy()
    labels[rows] = to.id
    several = _without_own(now.several, labels, rows.tolist())
    groups = {**now.groups, to.id: to}
    _drop_empty(groups, labels, several, set(now.labels[rows].tolist()) - {to.id})
    next_id = max(now.next_id, to.id + 1)
    return replace(
        now, groups=groups, labels=labels, confirmed=confirmed, several=several, next_id=next_id
    )


def _without_own(several: Several, labels: NDArray[np.int64], rows: Iterable[int]) -> Several:
    """The other kinds of images, without each image's own group. rows: those to check."""
    changed = {}
    for row in several.keys() & set(rows) if several else ():
        own = int(labels[row])
        if own in several[row]:
            changed[row] = tuple(kind for kind in several[row] if kind != own)
    return {**several, **changed} if changed else several


def _drop_empty(
    groups: dict[int, Group],
    labels: NDArray[np.int64],
    several: Several,
    candidates: Iterable[int],
) -> None:
    """Remove the candidates that have no name and no image, not even one that has the group as
    another kind: nothing that a person entered is lost."""
    nameless = [group for group in candidates if not groups[group].name]
    if not nameless:
        return
    if len(nameless) > _FEW_GROUPS:
        empty = set(nameless) - set(np.unique(labels).tolist())
    else:  # the common case; a replay has thousands of such edits
        empty = {group for group in nameless if not (labels == group).any()}
    for group in empty.difference(*several.values()) if empty else ():
        del groups[group]


def _heirs(clusters: NDArray[np.int64], now: Labelling) -> NDArray[np.int64]:
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

"""The edits that a person can make to the groups of a run, and their effect.

All functions are pure: an edit and a labelling give a new labelling. The current state is the first
labelling with all edits in force applied in order; `log` says which these are.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import UNSEEN
from flawsort.clusters.ward import cut
from flawsort.core.errors import OptionError
from flawsort.core.records import Bools, Floats
from flawsort.labels.edit_checks import (
    Edit,
    Entry,
    Payload,
    carried_groups,
    carried_notes,
    carried_pairs,
    carried_several,
    checked_payload,
    group_of,
    groups_of,
    integers_of,
    listed,
    name_of,
    number_of,
    pair_of,
    role_of,
    rows_of,
    suggested_of,
    target_of,
    threshold_of,
    where_suggested,
)
from flawsort.labels.example_checks import carried_examples, examples_of
from flawsort.labels.group_changes import (
    drop_empty,
    heirs,
    merged,
    moved,
    placed,
    with_group,
    without_own,
    without_rejected,
)
from flawsort.labels.groups import Answer, Audit, Group, Labelling
from flawsort.labels.log import CARRY, History
from flawsort.labels.remarks import change_note, change_severity, joined

# The group of an answer that only says what an image is not.
NOT_THIS = -2


@dataclass(frozen=True)
class Spent:
    """The labels that people have given. groups: ids that were named, given a role or accepted.
    images: (n_images,), those moved, accepted, rejected, audited or given several kinds. earlier:
    the number of labels given in the run that this one was carried over from, and to images
    outside the run."""

    groups: frozenset[int]
    images: Bools
    earlier: int = 0

    @property
    def total(self) -> int:
        return self.earlier + len(self.groups) + int(np.count_nonzero(self.images))


def replay(log: Iterable[Edit | Entry], first: Labelling, linkage: Floats) -> Labelling:
    """The groups after a whole log. first: before any edit. linkage: (n_images - 1, 4)."""
    for step in History.of(log).steps:
        if step.in_force:
            first = apply(step.edit, first, linkage)
        elif step.ids:
            first = replace(first, next_id=first.next_id + step.ids)
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
    if edit.kind in ("split", "move", "audit", "teach"):  # a new group counts if it gets a name
        group = before.next_id
    if edit.kind not in ("role", "accept") and not (given.get("name") or "").strip():
        group = None
    single = edit.kind != "accept" or "group" not in given
    if edit.kind in ("move", "accept", "several", "reject") and "images" in given and single:
        images = images.copy()
        images[given["images"]] = True
    if edit.kind == "audit":
        images = images.copy()
        images[given["image"]] = True
    groups = spent.groups if group is None else spent.groups | {group}
    return Spent(groups, images, spent.earlier + len(given.get("examples", ())))


# ---- the effect of each kind of edit ----


def _change_name(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    group = now.groups[group_of(given["group"], now)]
    if given["name"] is None:
        raise OptionError("name must be text. Got None: pass '' to remove the name.")
    return with_group(now, replace(group, name=name_of(given["name"])))


def _change_role(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    group = now.groups[group_of(given["group"], now)]
    return without_rejected(with_group(now, replace(group, role=role_of(given["role"]))))


def _merge(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    into = group_of(given["into"], now, "into")
    others = [group for group in groups_of(given["groups"], now) if group != into]
    if not others:
        raise OptionError(
            f"groups must name a group to merge into group {into}, other than itself. "
            f"Got {reprlib.repr(given['groups'])}."
        )
    one = joined(now.groups[into], [now.groups[group] for group in others])
    groups = {**now.groups, into: one}
    for group in others:
        del groups[group]
    return without_rejected(replace(merged(now, others, into), groups=groups))


def _split(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    group = group_of(given["group"], now)
    rows = rows_of(given["images"], now)
    inside = where_suggested(given, rows, now)
    outside = rows[inside != group]
    if len(outside):
        raise OptionError(
            f"images must be in group {group} to be split from it. Got {outside[0]}, which is in "
            f"group {inside[rows == outside[0]][0]}."
        )
    if len(rows) == np.count_nonzero(now.labels == group) and "at" not in given:
        raise OptionError(
            f"images must leave at least one image in group {group}. Got all {len(rows)} of them."
        )
    made = Group(now.next_id, name_of(given.get("name")))
    now = _answered(given, rows.tolist(), now, [made.id] * len(rows))
    return moved(now, rows, made, _with(now.confirmed, rows))


def _move(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    rows = rows_of(given["images"], now)
    target = target_of(given, now)
    if target.role == "unsure":
        return moved(now, rows, target, _with(now.confirmed, rows, decided=False))
    now = _answered(given, rows.tolist(), now, [target.id] * len(rows))
    now = _audits_moved(now, rows, target.id)
    return moved(now, rows, target, _with(now.confirmed, rows))


def _audits_moved(now: Labelling, rows: NDArray[np.int64], to: int) -> Labelling:
    """Moving all images of a group is like merging it: what an audit found to be there, and to be
    right, still is. A single image that moves is a correction."""
    if not now.audits:
        return now
    groups, moving = np.unique(now.labels[rows], return_counts=True)
    whole = {
        group
        for group, n in zip(groups.tolist(), moving.tolist(), strict=True)
        if n > 1 and n == np.count_nonzero(now.labels == group)
    }
    followed = {
        row: replace(one, group=to) for row, one in now.audits.items() if one.group in whole
    }
    return replace(now, audits={**now.audits, **followed})


def _several(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    rows = rows_of(given["images"], now)
    groups = tuple(groups_of(given["groups"], now))
    kinds = {**now.several, **dict.fromkeys(rows.tolist(), groups)}
    # First the kinds: accepting removes groups without images that no image has as another kind.
    now = replace(now, several=kinds)
    if "at" in given:
        now = _accepted(given, rows, now)
    rejected = {
        row: tuple(group for group in not_ if row not in rows or group not in groups)
        for row, not_ in now.rejected.items()
    }
    several = without_own(now.several, now.labels, rows.tolist())
    return replace(now, several=several, rejected=rejected)


def _accept(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    # A session notes which images were in the group, as they were suggested then.
    said = given.keys() - {"suggested"}
    if len(said - {"at"}) != 1 and said != {"group", "images", "at"}:
        raise OptionError(f"accept takes either group or images. Got {listed(given)}.")
    if "images" in given:
        rows = rows_of(given["images"], now)
    else:
        group = group_of(given["group"], now)
        rows = now.members(group)
        if not len(rows):
            raise OptionError(f"group must have images to accept. Got {group}, which is empty.")
    return _accepted(given, rows, now)


def _accepted(given: Payload, rows: NDArray[np.int64], now: Labelling) -> Labelling:
    """Images decided to be in the groups where they are suggested."""
    at = where_suggested(given, rows, now)
    now = _answered(given, rows.tolist(), now, at.tolist())
    return placed(now, rows, at, _with(now.confirmed, rows))


def _reject(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    rows, group = rows_of(given["images"], now), group_of(given["group"], now)
    if now.groups[group].role == "unsure":
        raise OptionError(
            f"group must be a kind, since unsure images are of no kind yet. Got {group}."
        )
    now = _answered(given, rows.tolist(), now, [NOT_THIS] * len(rows), about=group)
    rejected, several, shows = dict(now.rejected), dict(now.several), {}
    for row in rows.tolist():
        rejected[row] = tuple(dict.fromkeys((*rejected.get(row, ()), group)))
        own, *others = int(now.labels[row]), *several.pop(row, ())
        others = [kind for kind in others if not now.same_kind(kind, group)]
        if row in now.several and (others or not now.same_kind(own, group)):
            several[row] = tuple(others)
        if now.same_kind(own, group):
            shows[row] = [kind for kind in others if now.groups[kind].role != "unsure"]
    now = replace(now, rejected=rejected, several=several)
    # An image that also shows another kind is of that one now. The rest wait among the undecided.
    for row in [row for row, others in shows.items() if others]:
        now = moved(now, np.array([row]), now.groups[shows.pop(row)[0]], now.confirmed)
    alone = np.array(list(shows), np.int64)
    return without_rejected(replace(now, confirmed=_with(now.confirmed, alone, decided=False)))


def _audit(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    rows, target = rows_of([given["image"]], now, "image"), target_of(given, now)
    row = int(rows[0])
    seen = Audit(int(now.labels[row]), bool(now.confirmed[row]))
    now = replace(now, audits={**now.audits, row: now.audits.get(row, seen)})
    return moved(now, rows, target, _with(now.confirmed, rows, decided=target.role != "unsure"))


def _teach(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    target = target_of(given, now)
    found = examples_of(given["examples"], target.id)
    new = {one.sha256 for one in found}
    kept = tuple(one for one in now.examples if one.sha256 not in new)
    teaching = () if target.role == "unsure" else tuple(found)
    if teaching:
        answer = UNSEEN if given["to"] == "new" else target.id
        now = _answered(given, [one.sha256 for one in found], now, [answer] * len(found))
    next_id = max(now.next_id, target.id + 1)
    groups = {**now.groups, target.id: target}
    return replace(now, groups=groups, examples=(*kept, *teaching), next_id=next_id)


def _verdict(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    return replace(now, threshold=threshold_of(given["threshold"]))


def _different(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    return replace(now, different=now.different | {pair_of(given["groups"], now)})


def _with(confirmed: Bools, rows: NDArray[np.int64], *, decided: bool = True) -> Bools:
    changed = confirmed.copy()
    changed[rows] = decided
    return changed


def _answered(
    given: Payload,
    images: Sequence[int | str],
    now: Labelling,
    groups: Sequence[int],
    *,
    about: int | None = None,
) -> Labelling:
    """Note the answers about images for which something had been suggested, each image once: its
    first answer counts. images: rows, or the SHA-256 of images outside the run. groups: the answer
    for each. about: only answers to suggestions of this kind say anything."""
    together = len(images) > 1
    found = {
        image: Answer(suggested, group, together)
        for image, suggested, group in zip(
            images, suggested_of(given, len(images)), groups, strict=True
        )
        if suggested is not None and image not in now.answers
        if about is None or now.same_kind(suggested, about)
    }
    return replace(now, answers={**now.answers, **found}) if found else now


def _cut(given: Payload, now: Labelling, linkage: Floats) -> Labelling:
    k = number_of(given["k"])
    n = len(now.labels)
    if not 1 <= k <= n:
        raise OptionError(
            f"k must be between 1 and {n} (the number of images). Got {reprlib.repr(k)}."
        )
    clusters = cut(linkage, k)
    found = heirs(clusters, now)
    groups, next_id = dict(now.groups), now.next_id
    # Confirmed images and images in unsure groups stay where they are.
    stays = now.confirmed | np.isin(now.labels, now.with_role("unsure"))
    needed = np.bincount(clusters[~stays], minlength=k) > 0
    for cluster in np.flatnonzero(needed & (found < 0)).tolist():
        found[cluster] = next_id
        groups[next_id] = Group(next_id)
        next_id += 1
    labels = np.where(stays, now.labels, found[clusters])
    several = without_own(now.several, labels, now.several)
    taught = {one.group for one in now.examples}
    drop_empty(groups, labels, several, list(groups), taught=taught)
    now = replace(now, groups=groups, labels=labels, k=k, next_id=next_id, several=several)
    return without_rejected(now)


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
    where = np.array(labels, np.int64)
    several = carried_several(given["several"], known)
    rejected = carried_several(given.get("rejected", {}), known, "rejected")
    next_id = max(now.next_id, known.next_id)
    taken = Labelling(
        groups,
        where,
        confirmed,
        k,
        next_id,
        without_own(several, where, several),
        rejected,
        tuple(carried_examples(given.get("examples", []), known)),
        threshold=threshold_of(given.get("threshold")),
        different=carried_pairs(given.get("different", []), known),
        notes=carried_notes(given.get("notes", {}), known),
    )
    return without_rejected(taken)


_CHANGES: dict[str, Callable[[Payload, Labelling, Floats], Labelling]] = {
    "name": _change_name,
    "role": _change_role,
    "merge": _merge,
    "split": _split,
    "move": _move,
    "several": _several,
    "accept": _accept,
    "reject": _reject,
    "audit": _audit,
    "teach": _teach,
    "verdict": _verdict,
    "different": _different,
    "severity": change_severity,
    "note": change_note,
    "cut": _cut,
    "carry": _carry,
}

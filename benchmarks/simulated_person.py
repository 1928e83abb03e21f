"""A simulated person who answers the questions of the review queue, and what their answers cost.

The person knows the kind of every image and answers truthfully. Every click counts as one answer: a
name for an image, a name for all images of a question, each image picked out of it as another kind,
"mixed", "same" and "different".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from flawsort.core.records import Bools, Floats, Ints
from flawsort.labels.edit_checks import Edit
from flawsort.labels.edits import apply
from flawsort.labels.groups import Group, Labelling
from flawsort.labels.queue import Question, next_question
from flawsort.labels.session import with_suggestions
from flawsort.labels.space import Space
from flawsort.labels.state import State
from flawsort.labels.suggestions import TeachingSpace, decided
from flawsort.runs.tables import normal_clusters

NO_TREE = np.empty((0, 4))


@dataclass
class Person:
    """truth: (n_images,), the kind of each image, from 0. normal: the kind without a flaw, or None.
    careless: accepts every suggestion. groups: the group that each kind has got, which is where the
    images of the kind belong."""

    truth: Ints
    normal: int | None = None
    careless: bool = False
    groups: dict[int, int] = field(default_factory=dict)

    def answer(self, question: Question, now: Labelling) -> tuple[list[Edit], int]:
        """The edits that say what the person says, and their number of clicks."""
        if question.kind == "pair":
            return self._about_pair(question, now)
        rows = list(question.rows)
        if self.careless:
            return [Edit("accept", {"images": rows})], 1
        if question.kind == "image":
            return [self.named(rows, int(self.truth[rows[0]]), now)], 1
        kind = Counter(self.truth[rows].tolist()).most_common(1)[0][0]
        edits: list[Edit] = []
        for row in (row for row in rows if self.truth[row] != kind):
            edits.append(self.named([row], int(self.truth[row]), now))
            now = apply(edits[-1], now, NO_TREE)
        edits.append(self.named([row for row in rows if self.truth[row] == kind], kind, now))
        return edits, len(edits)

    def named(self, rows: Sequence[int], kind: int, now: Labelling) -> Edit:
        """Images put into the group of a kind, which is made if there is none."""
        target: dict[str, object] = {"images": list(rows)}
        if kind in self.groups and self.groups[kind] in now.groups:
            return Edit("move", {**target, "to": self.groups[kind]})
        if kind == self.normal:
            first = now.with_role("normal")
            self.groups[kind] = first[0] if first else now.next_id
            return Edit("move", {**target, "to": "normal"})
        self.groups[kind] = now.next_id
        return Edit("move", {**target, "to": "new", "name": f"kind {kind}"})

    def _about_pair(self, question: Question, now: Labelling) -> tuple[list[Edit], int]:
        assert question.other is not None
        one, other = (self.truth[list(rows)] for rows in (question.rows, question.other_rows))
        pair = [question.group, question.other]
        if not self.careless and Counter(one.tolist()).most_common(1)[0][0] in other:
            return [Edit("merge", {"groups": pair, "into": pair[0]})], 1
        return [Edit("different", {"groups": pair})], 1

    def take_over(self, now: Labelling) -> None:
        """Take the clusters for the kinds that most of their images are of. A kind without such a
        cluster has no group yet."""
        best: dict[int, int] = {}
        for group in now.groups:
            kind, count = Counter(self.truth[now.members(group)].tolist()).most_common(1)[0]
            if count > best.get(kind, 0):
                best[kind], self.groups[kind] = count, group

    def audit(self, row: int, now: Labelling) -> Edit:
        """The answer to an image of the audit, which careless people look at, too: they are shown
        no suggestion that they could accept."""
        named = self.named([row], int(self.truth[row]), now).payload
        return Edit(
            "audit", {"image": row, **{key: named[key] for key in named.keys() - {"images"}}}
        )

    def right(self, state: State) -> Bools:
        """(n_images,): whether each image is in the group of its kind, decided or suggested."""
        now, found = state.labelling, state.suggestions.groups
        kind = np.full(len(found), -1)
        for one, group in self.groups.items():
            for other in now.groups:
                if now.same_kind(group, other):
                    kind[found == other] = one
        if self.normal is not None:
            kind[np.isin(found, now.with_role("normal"))] = self.normal
        return np.asarray(kind == self.truth)


@dataclass
class Review:
    """A review that goes on. clicks: the answers given so far."""

    labelling: Labelling
    space: TeachingSpace
    clicks: int = 0

    @classmethod
    def of(cls, embeddings: Floats, clusters: Ints, looks_normal: Bools) -> Review:
        """The review of a run that nobody has looked at."""
        vectors = np.asarray(embeddings, np.float32)
        space = Space.of(vectors)
        names, labels = np.unique(clusters, return_inverse=True)
        normal = normal_clusters(labels, looks_normal)
        groups = {
            group: Group(group, role="normal" if group in normal else "flaw")
            for group in range(len(names))
        }
        first = Labelling(groups, labels, np.zeros(len(labels), bool), len(names), len(names))
        return cls(first, TeachingSpace(space, space.coordinates(vectors), looks_normal))

    @property
    def state(self) -> State:
        return State(0, self.labelling, None, None, 0, True, lambda: self.space)

    def steps(self, person: Person) -> Iterator[State]:
        """The state after each answer to the queue, until nothing is left to ask."""
        while (question := next_question(state := self.state, self.space)) is not None:
            edits, clicks = person.answer(question, state.labelling)
            self.clicks += clicks
            for edit in edits:
                self.apply(edit, state)
            yield self.state

    def apply(self, edit: Edit, state: State) -> None:
        """Make an edit. state: as the person sees it."""
        self.labelling = apply(with_suggestions(edit, state), self.labelling, NO_TREE)


@dataclass(frozen=True)
class Shares:
    """The share of the images that is right: of all of them, and of the rest, which nobody decided;
    the rest as it last was, once all are decided."""

    all: float
    rest: float

    @classmethod
    def of(cls, person: Person, state: State, before: Shares | None = None) -> Shares:
        right, rest = person.right(state), ~decided(state.labelling)
        if before is not None and not rest.any():
            return cls(float(right.mean()), before.rest)
        return cls(float(right.mean()), float(right[rest].mean()))


def share_after_naming(person: Person, review: Review, rows: Sequence[int]) -> Shares:
    """What is right after these images were named one by one."""
    for row in rows:
        review.apply(person.named([row], int(person.truth[row]), review.labelling), review.state)
    return Shares.of(person, review.state)


def shares_after(person: Person, review: Review, answers: Sequence[int]) -> list[Shares]:
    """What is right after at most these numbers of answers, ascending, in the order of the queue. A
    question that costs more than is left is not answered any more."""
    now, found = Shares.of(person, review.state), list[Shares]()
    for state in review.steps(person):
        while len(found) < len(answers) and review.clicks > answers[len(found)]:
            found.append(now)
        if len(found) == len(answers):
            break
        now = Shares.of(person, state, now)
    return found + [now] * (len(answers) - len(found))

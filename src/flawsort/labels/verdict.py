"""OK or not OK: what a threshold costs, measured on the answers of the person who chooses it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools
from flawsort.labels.accuracy import FOLDS, LEAST_ANSWERS, wilson
from flawsort.labels.groups import Labelling
from flawsort.labels.suggestions import TeachingSpace, class_of, decided, teach
from flawsort.labels.taught import most_likely

# A curve has at most so many thresholds: more than a screen can show.
MOST_THRESHOLDS = 400


@dataclass(frozen=True)
class Cost:
    """What a threshold does to the answered images. missed: flaws that it calls OK. false_alarms:
    normal images that it calls not OK. Each with the 90% interval of its share."""

    threshold: float
    missed: int
    missed_interval: tuple[float, float]
    false_alarms: int
    false_alarms_interval: tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """The costs of all thresholds that make a difference, from 0 (all are OK) upwards. n_flaws,
    n_normal: the number of answers."""

    n_flaws: int
    n_normal: int
    costs: tuple[Cost, ...]


def verdict_curve(labelling: Labelling, space: TeachingSpace) -> Curve | None:
    """Missed flaws against false alarms; None below LEAST_ANSWERS answers of flaws or of normal
    images.

    Each answered image is judged by a model that was not taught with it, and is not OK if that
    calls it a new kind. Images outside the run count as well; whether these look normal is not
    known.
    """
    answers = _Answers.of(labelling)
    n_normal, n_flaws = int(answers.normal.sum()), int((~answers.normal).sum())
    if min(n_normal, n_flaws) < LEAST_ANSWERS:
        return None
    chances = np.empty(len(answers.normal))
    for fold in range(FOLDS):
        some = answers.folds == fold
        chances[some] = _chances_without(labelling, space, answers, some)
    good, bad = np.sort(chances[answers.normal]), np.sort(chances[~answers.normal])
    costs = []
    for threshold in _thresholds(chances).tolist():
        missed = n_flaws - int(np.searchsorted(bad, threshold))
        alarms = int(np.searchsorted(good, threshold))
        costs.append(
            Cost(
                threshold,
                missed,
                wilson(missed / n_flaws, n_flaws),
                alarms,
                wilson(alarms / n_normal, n_normal),
            )
        )
    return Curve(n_flaws, n_normal, tuple(costs))


def count_answers(labelling: Labelling) -> tuple[int, int]:
    """The number of answers that say flaw, and that say normal."""
    normal = _Answers.of(labelling).normal
    return int((~normal).sum()), int(normal.sum())


@dataclass(frozen=True, eq=False)
class _Answers:
    """The answers that say flaw or normal. rows: of the run. examples: places in the examples of
    the labelling. normal, folds: (n_rows + n_examples,), whether an answer says normal, and the
    part with which it is left out; each part has its share of both."""

    rows: NDArray[np.int64]
    examples: NDArray[np.int64]
    normal: Bools
    folds: NDArray[np.int64]

    @classmethod
    def of(cls, labelling: Labelling) -> _Answers:
        roles = {group.id: group.role for group in labelling.groups.values()}
        said = np.flatnonzero(decided(labelling))
        rows = [row for row in said.tolist() if roles[int(labelling.labels[row])] != "unsure"]
        examples = list(range(len(labelling.examples)))
        found = [roles[int(labelling.labels[row])] for row in rows]
        found += [roles[one.group] for one in labelling.examples]
        normal = np.array([role == "normal" for role in found], bool)
        folds = np.empty(len(normal), np.int64)
        for side in (normal, ~normal):
            folds[side] = np.arange(np.count_nonzero(side)) % FOLDS
        return cls(np.array(rows, np.int64), np.array(examples, np.int64), normal, folds)


def _chances_without(
    labelling: Labelling, space: TeachingSpace, answers: _Answers, some: Bools
) -> NDArray[np.float64]:
    """(n_some,): the probability that some answered images are normal, without their answers."""
    n_rows = len(answers.rows)
    rows, places = answers.rows[some[:n_rows]], answers.examples[some[n_rows:]]
    taught = teach(_without(labelling, rows, places), space)
    coordinates, looks_normal = space.coordinates[rows], space.looks_normal[rows]
    if len(places):
        vectors = np.stack([labelling.examples[place].vector for place in places.tolist()])
        coordinates = np.concatenate([coordinates, space.space.coordinates(vectors)])
        looks_normal = np.concatenate([looks_normal, np.zeros(len(places), bool)])
    if taught is None:
        return np.zeros(len(coordinates))
    normal = class_of(labelling)[labelling.with_role("normal")[0]]
    found = taught.probabilities(coordinates, looks_normal=looks_normal)
    chance: NDArray[np.float64] = found[:, :-1][:, np.isin(taught.groups, normal)].sum(axis=1)
    chance[most_likely(found) == len(taught.groups)] = 0.0  # as a new kind
    return chance


def _without(labelling: Labelling, rows: NDArray[np.int64], places: NDArray[np.int64]) -> Labelling:
    """The labelling as if nobody had answered for these rows and examples. The rows are in no
    group, so that they are not typical of one either."""
    labels, confirmed = labelling.labels.copy(), labelling.confirmed.copy()
    labels[rows], confirmed[rows] = -1, False
    gone, away = set(rows.tolist()), set(places.tolist())
    return replace(
        labelling,
        labels=labels,
        confirmed=confirmed,
        several={row: kinds for row, kinds in labelling.several.items() if row not in gone},
        rejected={row: kinds for row, kinds in labelling.rejected.items() if row not in gone},
        examples=tuple(one for place, one in enumerate(labelling.examples) if place not in away),
    )


def _thresholds(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """0, and the chances at which an image changes from OK to not OK, but not too many."""
    values = np.unique(np.concatenate([[0.0], chances, [1.0]]))
    if len(values) <= MOST_THRESHOLDS:
        return values
    places = np.linspace(0, len(values) - 1, MOST_THRESHOLDS).round().astype(np.int64)
    return np.asarray(values[places])

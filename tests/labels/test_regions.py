"""The groups of regions: what a person's answer settles, and what the model says of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flawsort.clusters.kinds import Regions
from flawsort.embeddings.regions import Outlines
from flawsort.labels.groups import Group, Labelling, first_labelling, region_groups
from flawsort.labels.newcomers import Arrivals, Newcomers
from flawsort.labels.regions import (
    SURE_OF_OTHER,
    UNKNOWN,
    newcomer_kinds,
    newcomer_regions,
    settled_regions,
)
from flawsort.labels.state import State
from flawsort.labels.suggestions import TeachingSpace
from flawsort.runs.run import Run
from helpers.runs import MadeRegion, build_run

# Images of three kinds, far apart: 0 to 9, 10 to 19 and 20 to 29.
EACH, DENT, STREAK, GOOD = 10, 0, 1, 2
AXES = 8.0 * np.eye(6)
NOWHERE = 60.0 * np.array([1, 1, 1, 0, 0, 0])


def points(rows: Sequence[int], seed: int = 0) -> np.ndarray[Any, Any]:
    """A point near the middle of each kind."""
    rng = np.random.default_rng(seed)
    return np.array([AXES[kind] for kind in rows]) + 0.3 * rng.standard_normal((len(rows), 6))


def make(regions: Sequence[tuple[int, int]], at: Sequence[Any]) -> Run:
    """A run of the three kinds. regions: the image and the cluster of each. at: the kind that each
    region shows, or a point."""
    clusters = np.repeat([0, 1, 2], EACH)
    where = [AXES[one] if isinstance(one, int) else one for one in at]
    return build_run(
        clusters.tolist(),
        regions=[MadeRegion(row, cluster, "7") for row, cluster in regions],
        embeddings=points(clusters.tolist()).astype(np.float32),
        region_embeddings=np.array(where, np.float32).reshape(-1, 6),
        dim=6,
    )


def state(
    run: Run,
    said: Mapping[int, int],
    *,
    several: Mapping[int, tuple[int, ...]] | None = None,
    good: bool = True,
    streak: str = "streak",
    rejected: Mapping[int, tuple[int, ...]] | None = None,
) -> State:
    """What people said: the group of images by row. good: whether the last group is normal. streak:
    the name of a group, "" if nobody gave it one."""
    first = first_labelling(run)
    labels, confirmed = first.labels.copy(), first.confirmed.copy()
    for row, group in said.items():
        labels[row], confirmed[row] = group, True
    groups = {
        DENT: Group(DENT, "dent"),
        STREAK: Group(STREAK, streak),
        GOOD: Group(GOOD, role="normal" if good else "flaw"),
        3: Group(3, "unsure ones", role="unsure"),
    }
    now = Labelling(groups, labels, confirmed, 3, 4, several=several or {}, rejected=rejected or {})
    return State(1, now, None, None, 0, True, lambda: TeachingSpace.of(run))


# Three answers of each kind.
SAID = {row: row // EACH for row in (1, 2, 3, 11, 12, 13, 21, 22, 23)}


def found(run: Run, now: State) -> list[int]:
    return settled_regions(run, now).tolist()


def test_nothing_taught_is_as_clustered() -> None:
    run = make([(0, 0), (10, -1)], [DENT, NOWHERE])
    first = replace(state(run, {}), labelling=first_labelling(run))
    assert found(run, first) == region_groups(run, first.labelling).tolist() == [DENT, UNKNOWN]


def test_the_only_region_of_a_decided_image_shows_what_the_person_said() -> None:
    """Whatever it resembles: nothing, a good image, or another kind."""
    for at in (NOWHERE, AXES[GOOD], AXES[STREAK]):
        run = make([(1, -1)], [at])
        assert found(run, state(run, SAID)) == [DENT]


def test_several_regions_of_an_image_of_one_kind() -> None:
    run = make([(1, -1)] * 4, [NOWHERE, DENT, GOOD, STREAK])
    assert found(run, state(run, SAID)) == [DENT, DENT, GOOD, STREAK]


def test_the_hottest_region_is_no_good_place_of_a_flawed_image() -> None:
    run = make([(1, -1), (1, -1)], [GOOD, GOOD])
    assert found(run, state(run, SAID)) == [DENT, GOOD]


def test_another_kind_must_be_sure() -> None:
    """On the way from one kind to the other, the region changes to the other one late."""
    ways = np.linspace(0, 1, 21)
    between = [AXES[DENT] * (1 - way) + AXES[STREAK] * way for way in ways]
    run = make([(1, -1)] * 22, [DENT, *between])
    now = state(run, SAID)
    got = found(run, now)[1:]
    taught = now.suggestions.taught
    assert taught is not None
    likely = taught.probabilities(now.space().region_coordinates)[1:, STREAK]
    assert got == [STREAK if value >= SURE_OF_OTHER else DENT for value in likely]
    assert {DENT, STREAK} == set(got)


def test_kinds_that_a_person_listed_are_all_there_are() -> None:
    run = make([(1, -1)] * 3, [STREAK, DENT, GOOD])
    assert found(run, state(run, SAID, several={1: ()})) == [DENT, DENT, GOOD]
    assert found(run, state(run, SAID, several={1: (STREAK,)})) == [STREAK, DENT, GOOD]


def test_without_normal_images_a_later_region_may_be_unknown() -> None:
    run = make([(1, -1), (1, -1), (1, -1)], [NOWHERE, NOWHERE, DENT])
    said = {row: group for row, group in SAID.items() if group != GOOD}
    assert found(run, state(run, said, good=False)) == [DENT, UNKNOWN, DENT]


def test_images_that_nobody_decided_are_judged_by_the_model() -> None:
    run = make([(5, 1), (5, -1), (5, 0)], [DENT, STREAK, GOOD])
    assert found(run, state(run, SAID)) == [DENT, STREAK, GOOD]


def test_a_kind_that_nobody_taught_is_unknown_unless_the_region_resembles_its_cluster() -> None:
    run = make([(5, -1), (15, -1), (15, 1), (5, 0)], [STREAK, STREAK, STREAK, DENT])
    said = {row: group for row, group in SAID.items() if group != STREAK}
    now = state(run, said, streak="")
    assert found(run, now) == [UNKNOWN, UNKNOWN, STREAK, DENT]


@pytest.mark.parametrize("group", [GOOD, 3])
def test_regions_of_images_without_a_flaw_go_with_the_image(group: int) -> None:
    run = make([(1, 0), (1, 1)], [DENT, STREAK])
    assert found(run, state(run, {**SAID, 1: group})) == [group, group]


def test_what_a_person_rejected_is_ruled_out() -> None:
    run = make([(5, 0)], [DENT])
    assert found(run, state(run, SAID)) == [DENT]
    assert found(run, state(run, SAID, rejected={5: (DENT,)})) != [DENT]


def test_a_run_without_regions() -> None:
    run = make([], [])
    assert found(run, state(run, SAID)) == []


class TestNewcomers:
    """The regions of new images, by the same rules."""

    def shown(
        self,
        run: Run,
        now: State,
        regions: Sequence[tuple[int, int, Any]],
        *,
        groups: Sequence[int],
        decided: Sequence[bool],
        digests: Sequence[str] = ("a", "b"),
        settle: Any = newcomer_regions,
    ) -> Any:
        """regions: the image, the cluster, and the kind or the point of each. groups, decided: of
        the new images, whose clusters are their groups. settle: what is asked."""
        where = [AXES[at] if isinstance(at, int) else at for _, _, at in regions]
        like = np.array([cluster for _, cluster, _ in regions], np.int64)
        found = Regions(
            Outlines.of([(image, 1.0, np.array([0])) for image, _, _ in regions]),
            np.array(where, np.float32).reshape(-1, 6),
            like,
            like,
            np.ones(len(like)),
        )
        n = len(groups)
        newcomers = Newcomers(
            np.array(groups), ("",) * n, np.zeros(n), np.array(decided), ("",) * n
        )
        arrivals = Arrivals(digests, np.array(groups), np.zeros(n, bool))
        settled = settle(found, newcomers, arrivals, run, now)
        return settled.tolist() if settle is newcomer_regions else settled

    def test_nothing_taught_is_as_clustered(self) -> None:
        run = make([], [])
        now = replace(state(run, {}), labelling=first_labelling(run))
        regions = [(0, DENT, DENT), (0, STREAK, STREAK), (1, -1, NOWHERE)]
        got = self.shown(run, now, regions, groups=[DENT, STREAK], decided=[False, False])
        assert got == [DENT, STREAK, UNKNOWN]

    def test_the_model_says_what_they_show(self) -> None:
        run = make([], [])
        regions = [(0, -1, STREAK), (0, DENT, DENT), (1, STREAK, GOOD), (1, -1, NOWHERE)]
        got = self.shown(
            run, state(run, SAID), regions, groups=[DENT, STREAK], decided=[False, False]
        )
        assert got[:3] == [STREAK, DENT, GOOD]

    def test_the_hottest_region_shows_what_a_person_said_of_the_image(self) -> None:
        run = make([], [])
        regions = [(0, -1, GOOD), (0, -1, STREAK), (1, -1, DENT), (1, -1, STREAK)]
        got = self.shown(run, state(run, SAID), regions, groups=[DENT, GOOD], decided=[True, True])
        assert got == [DENT, STREAK, GOOD, GOOD]

    def test_an_image_of_the_run_keeps_its_regions(self) -> None:
        run = make([(1, -1), (1, -1)], [NOWHERE, STREAK])
        now = state(run, SAID)
        digests = ("a", run.images.digests[1])
        regions = [(0, -1, GOOD), (1, -1, GOOD), (1, -1, GOOD)]
        got = self.shown(
            run, now, regions, groups=[DENT, DENT], decided=[False, True], digests=digests
        )
        assert got == [GOOD, *settled_regions(run, now).tolist()]

    def test_no_regions(self) -> None:
        run = make([], [])
        got = self.shown(run, state(run, SAID), [], groups=[DENT, DENT], decided=[False, False])
        assert got == []

    def test_the_other_kinds_of_an_image(self) -> None:
        """Each once, the hottest first, and none of an image that is normal."""
        run = make([(row, -1) for row in range(2 * EACH)], [NOWHERE] * 2 * EACH)
        regions = [
            *((0, -1, at) for at in (DENT, STREAK, GOOD, STREAK)),
            *((1, -1, at) for at in (NOWHERE, STREAK, DENT)),
            *((2, -1, at) for at in (DENT, STREAK)),
        ]
        got = self.shown(
            run,
            state(run, SAID),
            regions,
            groups=[DENT, UNKNOWN, GOOD],
            decided=[False] * 3,
            digests=("a", "b", "c"),
            settle=newcomer_kinds,
        )
        assert got == [[STREAK], [STREAK, DENT], []]

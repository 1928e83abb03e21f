"""New images by what people taught: names, normal, new kinds, and what was decided before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flawsort.clusters.assign import NORMAL, UNSEEN, Groups
from flawsort.core.records import Floats, ImageSet
from flawsort.labels.groups import Example, Group, Labelling, first_labelling
from flawsort.labels.newcomers import Arrivals, Newcomers, judge_of, sort_kept, sort_newcomers
from flawsort.labels.state import State
from flawsort.labels.suggestions import Suggestions, TeachingSpace, suggest
from flawsort.runs.assigned import Kept
from flawsort.runs.run import Run
from helpers.runs import build_run

# Four clusters of ten images, in directions of their own.
CLUSTERS = np.repeat([0, 1, 2, 3], 10).tolist()
DIM = 12
GOOD = "a" * 64


def vectors_of(kinds: list[int], seed: int) -> Floats:
    """(n, DIM): images of the clusters, or of a kind in a direction of its own."""
    rng = np.random.default_rng(seed)
    spread = 0.2 if seed else 0.3  # those of the run vary more
    return (4 * np.eye(DIM)[kinds] + spread * rng.standard_normal((len(kinds), DIM))).astype(
        np.float32
    )


@pytest.fixture(scope="module")
def run() -> Run:
    inputs = {"images": [], "normals": [{"name": "good.png", "sha256": GOOD}]}
    return build_run(
        CLUSTERS, dim=DIM, embeddings=vectors_of(CLUSTERS, 0), manifest={"inputs": inputs}
    )


@pytest.fixture(scope="module")
def space(run: Run) -> TeachingSpace:
    return TeachingSpace.of(run)


def decided_of(run: Run, said: dict[int, int], **values: Any) -> Labelling:
    """A labelling in which a person put these rows into these groups."""
    first = first_labelling(run)
    labels, confirmed = first.labels.copy(), first.confirmed.copy()
    for row, group in said.items():
        labels[row], confirmed[row] = group, True
    return replace(first, labels=labels, confirmed=confirmed, **values)


GROUPS = {0: Group(0, "dent"), 1: Group(1, "dent, deep"), 2: Group(2), 3: Group(3, role="normal")}
ALL = {row: CLUSTERS[row] for row in range(0, 40, 2)}


def sort(
    run: Run,
    space: TeachingSpace,
    labelling: Labelling,
    vectors: Floats,
    *,
    digests: list[str] | None = None,
    looks_normal: list[bool] | None = None,
) -> tuple[Newcomers, Suggestions]:
    suggestions = suggest(labelling, space)
    n = len(vectors)
    looks = np.zeros(n, bool) if looks_normal is None else np.array(looks_normal)
    found = Groups.of(run.embeddings, run.labels).assign(vectors)
    found = found.seen_as(
        vectors,
        judge_of(suggestions, space.space),
        looks_normal=looks,
        known_good=np.array([digest == GOOD for digest in digests or [""] * n]),
    )
    names = tuple(map(str, range(n)))
    images = ImageSet(names, (np.zeros((1, 1), np.uint8),) * n, tuple(digests or names))
    return sort_newcomers(Arrivals.of(images, found), run, labelling, suggestions), suggestions


class TestNothingTaught:
    def test_the_clusters_under_their_titles(self, run: Run, space: TeachingSpace) -> None:
        new = vectors_of([0, 1, 2, 9, 9], 1)
        looks = [False, False, True, False, True]
        found, _ = sort(run, space, first_labelling(run), new, looks_normal=looks)
        assert found.groups.tolist() == [0, 1, 2, UNSEEN, NORMAL]
        assert found.titles == ("Group 0", "Group 1", "Group 2", "new kind", "normal")
        assert np.isnan(found.probability).all()
        assert not found.decided.any()
        assert found.verdicts == ("",) * 5

    def test_normal_images_are_in_the_normal_group(self, run: Run, space: TeachingSpace) -> None:
        groups = {**first_labelling(run).groups, 3: Group(3, role="normal")}
        labelling = replace(first_labelling(run), groups=groups)
        found, _ = sort(run, space, labelling, vectors_of([9, 3], 1), looks_normal=[True, False])
        assert found.groups.tolist() == [3, 3]
        assert found.titles == ("normal", "normal")

    def test_a_copy_of_a_normal_is_normal(self, run: Run, space: TeachingSpace) -> None:
        found, _ = sort(
            run, space, first_labelling(run), vectors_of([0, 0], 1), digests=[GOOD, "b"]
        )
        assert found.titles == ("normal", "Group 0")
        assert found.decided.tolist() == [True, False]  # by the person who called it normal


class TestTaught:
    def test_groups_by_name_with_a_probability(self, run: Run, space: TeachingSpace) -> None:
        labelling = decided_of(run, ALL, groups=GROUPS)
        kinds = [0, 1, 2, 3] * 5
        found, _ = sort(run, space, labelling, vectors_of(kinds, 2))
        assert found.groups.tolist() == kinds
        assert found.titles[:4] == ("dent", "dent, deep", "Group 2", "normal")
        assert (found.probability > 0.5).all()
        assert not found.decided.any()
        columns = found.columns
        assert columns.titles == found.titles
        np.testing.assert_array_equal(columns.probability, found.probability)

    def test_kinds_that_are_no_cluster(self, run: Run, space: TeachingSpace) -> None:
        """Half of a cluster has another name: both can be given."""
        half = np.array(CLUSTERS) == 0
        embeddings = run.embeddings.copy()
        embeddings[5:10, 10] += 2.5  # still the same cluster, but not the same
        parted = replace(run, embeddings=embeddings)
        said = {row: (4 if row >= 5 else 0) if half[row] else CLUSTERS[row] for row in range(40)}
        labelling = decided_of(parted, said, groups={**GROUPS, 4: Group(4, "chip")}, next_id=5)
        new = vectors_of([0] * 10, 3)
        new[5:, 10] += 2.5
        found, _ = sort(parted, TeachingSpace.of(parted), labelling, new)
        assert found.titles == ("dent",) * 5 + ("chip",) * 5

    def test_a_new_kind_and_a_good_image(self, run: Run, space: TeachingSpace) -> None:
        flaws = {row: group for row, group in ALL.items() if group != 3}
        for said in (ALL, flaws):  # a normal group teaches, decided or not
            labelling = decided_of(run, said, groups=GROUPS)
            looks = [False, True, False]
            found, _ = sort(run, space, labelling, vectors_of([9, 9, 0], 4), looks_normal=looks)
            assert found.titles == ("new kind", "normal", "dent")
            assert found.groups[:2].tolist() == [UNSEEN, 3]
            assert np.isnan(found.probability[0])  # it is unlike the run, and the model is not sure
            assert 0 < found.probability[1] <= 1
            assert found.probability[2] > 0.9

    def test_a_run_without_a_normal_group(self, run: Run, space: TeachingSpace) -> None:
        groups = {**GROUPS, 3: Group(3, "scratch")}
        found, _ = sort(
            run,
            space,
            decided_of(run, ALL, groups=groups),
            vectors_of([9, 3], 4),
            looks_normal=[True, False],
        )
        assert found.groups.tolist() == [NORMAL, 3]
        assert found.titles == ("normal", "scratch")

    def test_a_group_that_nobody_taught_keeps_its_images(
        self, run: Run, space: TeachingSpace
    ) -> None:
        """One name alone does not make a new kind of all others."""
        groups = {**first_labelling(run).groups, 0: Group(0, "dent")}
        labelling = decided_of(run, {0: 0, 1: 0}, groups=groups)
        found, _ = sort(run, space, labelling, vectors_of([0, 1, 2, 9], 5))
        assert found.titles == ("dent", "Group 1", "Group 2", "new kind")
        assert np.isfinite(found.probability).tolist() == [True, False, False, True]

    def test_an_image_of_the_run_keeps_what_was_decided(
        self, run: Run, space: TeachingSpace
    ) -> None:
        """Row 4 was moved to normal, row 6 rejected; row 1 is open."""
        labelling = decided_of(run, {**ALL, 4: 3}, groups=GROUPS, rejected={7: (0,)})
        digests = [run.table["sha256"][row] for row in (4, 0, 1, 7)]
        found, suggestions = sort(
            run, space, labelling, run.embeddings[[4, 0, 1, 7]], digests=digests
        )
        assert found.titles[:3] == ("normal", "dent", "dent")
        assert found.decided.tolist() == [True, True, False, False]
        assert np.isnan(found.probability[:2]).all()
        assert found.groups[2:].tolist() == suggestions.groups[[1, 7]].tolist()
        assert found.groups[3] != 0
        np.testing.assert_array_equal(found.probability[2:], suggestions.probability[[1, 7]])

    def test_examples_and_normals_keep_what_was_said(self, run: Run, space: TeachingSpace) -> None:
        vector = vectors_of([1], 7)[0]
        labelling = decided_of(
            run, ALL, groups=GROUPS, examples=(Example("x.png", "b" * 64, 2, vector),)
        )
        found, _ = sort(
            run, space, labelling, np.stack([vector] * 3), digests=["b" * 64, GOOD, "c" * 64]
        )
        assert found.groups[:2].tolist() == [2, 3]
        assert found.decided.tolist() == [True, True, False]
        # A person who said otherwise of a normal is right.
        moved = replace(labelling, examples=(Example("g.png", GOOD, 0, vector),))
        found, _ = sort(run, space, moved, vector[None], digests=[GOOD])
        assert found.titles == ("dent",)


class TestVerdict:
    def test_ok_from_the_threshold_on(self, run: Run, space: TeachingSpace) -> None:
        labelling = decided_of(run, ALL, groups=GROUPS, threshold=0.5)
        digests = ["1", "2", "3", run.table["sha256"][0], run.table["sha256"][38], GOOD]
        vectors = np.concatenate([vectors_of([3, 0, 9], 8), run.embeddings[[0, 38, 0]]])
        found, _ = sort(run, space, labelling, vectors, digests=digests)
        assert found.titles[:3] == ("normal", "dent", "new kind")
        assert found.verdicts == ("OK", "not OK", "not OK", "not OK", "OK", "OK")
        strict = replace(labelling, threshold=1.0)
        assert sort(run, space, strict, vectors[:3])[0].verdicts == ("not OK",) * 3
        none = replace(labelling, threshold=0.0)
        assert sort(run, space, none, vectors[:3])[0].verdicts == ("OK",) * 3

    def test_a_new_kind_is_not_ok(self, run: Run, space: TeachingSpace) -> None:
        labelling = decided_of(run, ALL, groups=GROUPS, threshold=0.2)
        judged = np.array(
            [[0.1, 0.1, 0.0, 0.6, 0.2], [0.1, 0.0, 0.0, 0.3, 0.6], [0, 0, 0, 0.9, 0.1]]
        )
        # The first is near none of the run's images, the second resembles no kind.
        arrivals = Arrivals("abc", np.array([UNSEEN, 3, UNSEEN]), np.zeros(3, bool), judged)
        found = sort_newcomers(arrivals, run, labelling, suggest(labelling, space))
        assert found.titles == ("new kind", "new kind", "normal")
        assert found.verdicts == ("not OK", "not OK", "OK")

    def test_a_threshold_without_answers_says_nothing(self, run: Run, space: TeachingSpace) -> None:
        labelling = replace(first_labelling(run), threshold=0.5)
        found, _ = sort(run, space, labelling, vectors_of([0, 9], 8), digests=["1", GOOD])
        assert found.verdicts == ("", "OK")

    def test_what_is_said_not_to_be_normal_is_not_ok(self, run: Run, space: TeachingSpace) -> None:
        labelling = decided_of(run, ALL, groups=GROUPS, threshold=0.0, rejected={39: (3,)})
        digests = [run.table["sha256"][39], "1"]
        found, _ = sort(
            run, space, replace(labelling, threshold=0.1), run.embeddings[[39, 39]], digests=digests
        )
        assert found.verdicts == ("not OK", "OK")


def test_a_kept_batch_learns_what_is_taught_later(run: Run, space: TeachingSpace) -> None:
    labelling = decided_of(run, ALL, groups=GROUPS)
    vectors = vectors_of([1, 0, 3], 9)
    table = {
        "sha256": ["1", "2", "3", "4"], "cluster": [0, 0, UNSEEN, 2],
        "looks_normal": [False, False, True, False],
    }  # fmt: skip
    kept = Kept("monday", table, (b"",) * 4, {}, vectors.astype(np.float16))
    state = State(1, labelling, None, None, 1, True, lambda: space)
    found = sort_kept(kept, run, state)
    assert found.titles == ("dent, deep", "dent", "normal", "Group 2")
    assert np.isfinite(found.probability).tolist() == [True, True, True, False]
    assert found.groups[2] == 3
    # Batches of earlier versions have no vectors.
    found = sort_kept(replace(kept, vectors=None), run, state)
    assert found.titles == ("dent", "dent", "new kind", "Group 2")
    untaught = State(0, first_labelling(run), None, None, 0, False, lambda: space)
    assert sort_kept(kept, run, untaught).titles[:2] == ("Group 0", "Group 0")

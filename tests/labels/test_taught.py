"""The model that learns from answers: what each kind of answer teaches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.threads import limit
from flawsort.labels.space import Space
from flawsort.labels.taught import Examples, Taught, most_likely, rule_out

KINDS = 4
EACH = 40


@pytest.fixture(scope="module")
def truth() -> NDArray[np.int64]:
    return np.repeat(np.arange(KINDS), EACH)


@pytest.fixture(scope="module")
def embeddings(truth: NDArray[np.int64]) -> NDArray[np.float32]:
    """Four kinds, each around its own middle, in 30 numbers."""
    rng = np.random.default_rng(7)
    middles = rng.normal(size=(KINDS, 30)) * 1.2
    return (middles[truth] + rng.normal(size=(len(truth), 30))).astype(np.float32)


@pytest.fixture(scope="module")
def space(embeddings: NDArray[np.float32]) -> Space:
    return Space.of(embeddings)


@pytest.fixture(scope="module")
def coordinates(space: Space, embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    return space.coordinates(embeddings)


def some(truth: NDArray[np.int64], each: int, kinds: range = range(KINDS)) -> list[tuple[int, int]]:
    """The first images of each kind, as answers; group ids are ten times the kind."""
    return [(int(row), 10 * kind) for kind in kinds for row in np.flatnonzero(truth == kind)[:each]]


def test_a_few_examples_sort_the_rest(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    taught = Taught.fit(Examples.of(coordinates, some(truth, 3)), space)
    assert taught.groups == (0, 10, 20, 30)
    found = taught.probabilities(coordinates)
    assert found.shape == (len(truth), KINDS + 1)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert found.min() >= 0
    assert (most_likely(found) == truth).mean() > 0.95


def naive(
    coordinates: NDArray[np.float32],
    belongs: list[tuple[int, int]],
    rejected: list[tuple[int, int]],
    sharpness: float,
) -> NDArray[np.float64]:
    """The probabilities by their definition, one example after the other. The run is all of
    `coordinates`."""
    x = np.c_[coordinates.astype(np.float64), np.full(len(coordinates), 0.3)]
    groups = sorted({group for _, group in belongs})
    k, dim = len(groups), x.shape[1]
    share = {row: 1 / sum(one == row for one, _ in belongs) for row, _ in belongs}
    count = {group: sum(share[row] for row, one in belongs if one == group) for group in groups}
    typical = k / sum(1 / one for one in count.values())
    ridge = 0.2 / k / (typical + 1) * np.eye(dim)
    nowhere = {row for row, _ in rejected if sum(one == row for one, _ in rejected) == k}

    def solved(group: int | None, wanted: dict[bool, float], run: float) -> NDArray[np.float64]:
        """A function with the wanted values for examples of the group and for others."""
        total = 1 + run / k
        left, right = ridge.copy(), np.zeros(dim)
        for row, one in belongs:
            weight = share[row] / count[one] / k / total
            left += weight * np.outer(x[row], x[row])
            right += weight * wanted[one == group] * x[row]
        for row in range(len(x)) if run else ():
            left += run / k / total / len(x) * np.outer(x[row], x[row])
            right += run / k / total / len(x) * (group is None) * x[row]
        for row in nowhere if run else ():
            left += 1 / typical / k / total * np.outer(x[row], x[row])
            right += 1 / typical / k / total * (group is None) * x[row]
        for row, one in rejected:
            if one == group:
                weight = 0.25 / k / typical
                left += weight * np.outer(x[row], x[row])
                right += weight * wanted[False] * x[row]
        return np.asarray(x @ np.linalg.solve(left, right))

    among = [solved(group, {True: 1 - 1 / k, False: -1 / k}, 0.0) for group in groups]
    like = [solved(group, {True: 1.0, False: 0.0}, 0.5) for group in groups]
    run = solved(None, {True: 0.0, False: 0.0}, 0.5)
    means = [
        sum(share[row] * coordinates[row].astype(np.float64) for row, one in belongs if one == g)
        / count[g]
        for g in groups
    ]
    far = np.min([np.linalg.norm(coordinates - mean, axis=1) for mean in means], axis=0)
    odds = -5.1 + 8.2 * run - 2.8 * np.max(like, axis=0) + far + 4.7 / k
    raised = np.exp(sharpness * np.array(among)).T
    known = raised / raised.sum(axis=1, keepdims=True) / (1 + np.exp(odds))[:, None]
    return np.c_[known, 1 / (1 + np.exp(-odds))]


def test_probabilities_are_those_of_the_definition(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    """Groups of different size, an image of several kinds, rejections, one of them everywhere."""
    belongs = some(truth, 2) + some(truth, 9, range(1))[2:] + [(90, 0), (90, 20)]
    rejected = [(130, 0), (131, 0), (50, 20), *((150, group) for group in (0, 10, 20, 30))]
    taught = Taught.fit(Examples.of(coordinates, belongs, rejected), space)
    wanted = naive(coordinates, belongs, rejected, taught.sharpness)
    np.testing.assert_allclose(taught.probabilities(coordinates), wanted, atol=1e-3)


def test_the_order_of_the_answers_changes_nothing(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    answers, rejected = some(truth, 5), [(100, 10), (20, 30), (60, 0)]
    first = Taught.fit(Examples.of(coordinates, answers, rejected), space)
    moved = np.random.default_rng(1).permutation(len(coordinates))
    places = np.argsort(moved)
    turned = [(int(places[row]), group) for row, group in reversed(answers)]
    against = [(int(places[row]), group) for row, group in reversed(rejected)]
    second = Taught.fit(Examples.of(coordinates[moved], turned, against), space)
    assert first.weights.tobytes() == second.weights.tobytes()
    assert first.sharpness == second.sharpness


def test_the_number_of_threads_changes_nothing(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    many = np.tile(coordinates, (40, 1))
    with limit(1):
        one = Taught.fit(Examples.of(coordinates, some(truth, 20)), space).probabilities(many)
    two = Taught.fit(Examples.of(coordinates, some(truth, 20)), space).probabilities(many)
    assert one.tobytes() == two.tobytes()


def test_a_group_with_two_examples_counts_as_much_as_one_with_many(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    answers = some(truth, 2) + some(truth, 35, range(2))
    found = Taught.fit(Examples.of(coordinates, answers), space).probabilities(coordinates)
    rest = np.setdiff1d(np.arange(len(truth)), [row for row, _ in answers])
    small = rest[truth[rest] >= 2]
    assert (most_likely(found)[small] == truth[small]).mean() > 0.9


def test_the_same_answer_twice_counts_once(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    answers = some(truth, 2)
    once = Taught.fit(Examples.of(coordinates, answers), space)
    twice = Taught.fit(Examples.of(coordinates, answers + answers[:3]), space)
    assert once.weights.tobytes() == twice.weights.tobytes()


def test_an_image_of_several_kinds_shares_its_weight(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    """An image between two kinds that is of both leans to neither."""
    middle = ((coordinates[truth == 0].mean(axis=0) + coordinates[truth == 1].mean(axis=0)) / 2)[
        None
    ]
    all_of = np.vstack([coordinates, middle])
    row = len(coordinates)
    answers = some(truth, 4)
    both = Taught.fit(Examples.of(all_of, [*answers, (row, 0), (row, 10)]), space)
    one = Taught.fit(Examples.of(all_of, [*answers, (row, 0)]), space)
    of_both, of_one = both.probabilities(middle)[0], one.probabilities(middle)[0]
    assert of_both[0] < of_one[0]
    assert of_both[1] > of_one[1]
    assert of_both[:2].sum() > 0.8


def test_what_is_rejected_becomes_less_likely_and_so_do_its_likes(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    """Kind 3 has no examples, so its images look like another kind until that is rejected."""
    answers = some(truth, 4, range(3))
    before = Taught.fit(Examples.of(coordinates, answers), space).probabilities(coordinates)
    unknown = np.flatnonzero(truth == 3)
    kind = int(np.bincount(before[unknown, :3].argmax(axis=1)).argmax())
    rejected = [(int(row), 10 * kind) for row in unknown[:3]]
    taught = Taught.fit(Examples.of(coordinates, answers, rejected), space)
    after = taught.probabilities(coordinates)
    assert after[unknown[3:], kind].mean() < 0.8 * before[unknown[3:], kind].mean()
    known = np.flatnonzero(truth == kind)
    assert (most_likely(after)[known] == kind).mean() > 0.9


def test_an_image_that_belongs_to_a_group_cannot_be_rejected_there(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64]
) -> None:
    examples = Examples.of(coordinates, some(truth, 2), [(0, 0), (0, 10)])
    assert examples.rejected.tolist() == [[0, 10]]


def test_a_rejection_of_a_group_without_examples_teaches_nothing(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    plain = Taught.fit(Examples.of(coordinates, some(truth, 2)), space)
    other = Taught.fit(Examples.of(coordinates, some(truth, 2), [(5, 99)]), space)
    assert plain.weights.tobytes() == other.weights.tobytes()


def test_a_kind_without_examples_is_none_of_these(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    found = Taught.fit(Examples.of(coordinates, some(truth, 5, range(3))), space).probabilities(
        coordinates
    )
    hidden = truth == 3
    assert (most_likely(found)[hidden] == 3).mean() > 0.8
    assert (most_likely(found)[~hidden] == truth[~hidden]).mean() > 0.9


def test_a_single_group_is_told_from_the_rest(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    found = Taught.fit(Examples.of(coordinates, some(truth, 3, range(1))), space).probabilities(
        coordinates
    )
    assert found.shape == (len(truth), 2)
    assert found[truth == 0, 0].mean() > 0.6
    assert found[truth != 0, 0].mean() < 0.1


def test_images_that_are_rejected_everywhere_teach_none_of_these(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    answers = some(truth, 1, range(1))
    other = np.flatnonzero(truth == 1)
    before = Taught.fit(Examples.of(coordinates, answers), space)
    rejected = [(int(row), 0) for row in other[:4]]
    after = Taught.fit(Examples.of(coordinates, answers, rejected), space)
    less = before.probabilities(coordinates[other[4:]])[:, -1]
    more = after.probabilities(coordinates[other[4:]])[:, -1]
    assert more.mean() > less.mean()


def test_an_image_that_looks_normal_is_no_new_kind(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    examples = Examples.of(coordinates, some(truth, 4, range(3)))
    taught = Taught.fit(examples, space, normal=[10, 77])
    assert taught.normal == (10,)
    looks = truth == 3
    plain = taught.probabilities(coordinates)
    found = taught.probabilities(coordinates, looks_normal=looks)
    assert (found[looks, -1] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)
    none = plain[looks, -1]
    assert none.max() > 0.9  # like no group, so it is normal
    assert most_likely(found[looks])[none.argmax()] == 1
    np.testing.assert_allclose(found[looks, 0], plain[looks, 0] * (1 + none))
    np.testing.assert_array_equal(found[~looks], plain[~looks])
    untaught = Taught.fit(examples, space).probabilities(coordinates, looks_normal=looks)
    np.testing.assert_array_equal(untaught, plain)


def test_wrong_answers_make_it_less_sure(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    answers = some(truth, 12)
    rng = np.random.default_rng(3)
    wrong = [
        (row, int(rng.integers(KINDS)) * 10 if i % 2 else g) for i, (row, g) in enumerate(answers)
    ]
    sure = Taught.fit(Examples.of(coordinates, answers), space)
    unsure = Taught.fit(Examples.of(coordinates, wrong), space)
    assert unsure.sharpness < sure.sharpness
    assert (
        unsure.probabilities(coordinates)[:, :-1].max(axis=1).mean()
        < sure.probabilities(coordinates)[:, :-1].max(axis=1).mean()
    )


def test_left_out_examples_are_those_of_a_model_without_them(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    """More examples of clear kinds make it surer, step by step."""
    found = [
        Taught.fit(Examples.of(coordinates, some(truth, each)), space).sharpness
        for each in (1, 3, 12)
    ]
    assert found[0] == 5.5
    assert all(one < other for one, other in pairwise(found))


def test_groups_that_were_rejected_for_an_image_are_ruled_out() -> None:
    before = np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [0.1, 0.1, 0.8]])
    found = rule_out(before, np.array([0, 1, 1]), np.array([0, 0, 1]))
    np.testing.assert_allclose(found, [[0, 0.6, 0.4], [0, 0, 1], [0.1, 0.1, 0.8]])
    assert before[0, 0] == 0.5


def test_none_of_these_needs_more_than_all_groups_together() -> None:
    found = most_likely(np.array([[0.3, 0.25, 0.45], [0.3, 0.15, 0.55]]))
    assert found.tolist() == [0, 2]


def test_bad_answers_are_refused(coordinates: NDArray[np.float32], space: Space) -> None:
    with pytest.raises(InputError, match=r"between 0 and 159. Got 160"):
        Examples.of(coordinates, [(160, 1)])
    with pytest.raises(InputError, match="no examples to learn from"):
        Taught.fit(Examples.of(coordinates, []), space)


def test_no_images_have_no_probabilities(
    coordinates: NDArray[np.float32], truth: NDArray[np.int64], space: Space
) -> None:
    taught = Taught.fit(Examples.of(coordinates, some(truth, 1)), space)
    assert taught.probabilities(coordinates[:0]).shape == (0, KINDS + 1)

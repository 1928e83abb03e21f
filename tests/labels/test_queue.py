"""What is asked next, against loops and on groups made up for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from flawsort.core.errors import InputError
from flawsort.labels.groups import Group, Labelling, Role
from flawsort.labels.queue import Question, estimated_purity, next_question, progress
from helpers.bags import Array, blobs


def labelled(
    labels: Sequence[int] | Array,
    *,
    confirmed: Sequence[int] | Array = (),
    names: Mapping[int, str] | None = None,
    roles: Mapping[int, Role] | None = None,
    several: Mapping[int, tuple[int, ...]] | None = None,
) -> Labelling:
    names, roles = names or {}, roles or {}
    ids = sorted({*np.asarray(labels).tolist(), *names, *roles})
    done = np.zeros(len(labels), bool)
    done[np.asarray(confirmed, int)] = True
    return Labelling(
        {one: Group(one, names.get(one, ""), roles.get(one, "flaw")) for one in ids},
        np.asarray(labels, np.int64),
        done,
        len(ids),
        max(ids) + 1,
        several or {},
    )


def naive_margins(
    labelling: Labelling, values: Array
) -> tuple[list[float], list[float], list[int]]:
    """Of each image the distance to its own centre, how much farther others are, and whose it is;
    heaps of unsure images are only compared with for their own images."""
    middles = {
        group: np.mean([values[row] for row in labelling.members(group)], axis=0)
        for group in labelling.groups
        if len(labelling.members(group))
    }
    own, margins, rivals = [], [], []
    for row, label in enumerate(labelling.labels.tolist()):
        others = {
            group: float(np.linalg.norm(values[row] - middle))
            for group, middle in middles.items()
            if group != label and labelling.groups[group].role != "unsure"
        }
        own.append(float(np.linalg.norm(values[row] - middles[label])))
        rivals.append(min(others, key=lambda group: others[group]) if others else -1)
        margins.append(min(others.values(), default=np.inf) - own[-1])
    return own, margins, rivals


def scattered(n: int = 200, n_groups: int = 6, seed: int = 0) -> tuple[Labelling, Array]:
    """Groups that overlap, one of them of unsure images, partly confirmed; ids 0, 3, 6..."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_groups, n)
    values = rng.standard_normal((n_groups, 5))[labels] + rng.standard_normal((n, 5)) + 40
    confirmed = np.flatnonzero(rng.random(n) < 0.3)
    return labelled(3 * labels, confirmed=confirmed, roles={6: "unsure", 99: "flaw"}), values


# ---- how pure groups seem ----


@pytest.mark.parametrize("seed", range(4))
def test_purity_against_loops(seed: int) -> None:
    labelling, values = scattered(seed=seed)
    before = values.copy()
    found = estimated_purity(labelling, values, images_at_once=37)
    _, margins, _ = naive_margins(labelling, values)
    assert list(found) == list(labelling.groups)
    for group, purity in found.items():
        rows = labelling.members(group).tolist()
        share = np.mean([margins[row] >= 0 for row in rows]) if rows else 1.0
        seen = sum(bool(labelling.confirmed[row]) for row in rows)
        assert purity == pytest.approx((seen + 5 * share) / (seen + 5))
    np.testing.assert_array_equal(values, before)


def test_clear_groups_are_pure_and_confirming_makes_others_purer() -> None:
    values = blobs([10, 10])
    assert estimated_purity(labelled([0] * 10 + [1] * 10), values) == {0: 1.0, 1: 1.0}
    mixed = np.array([0] * 9 + [1] * 11)
    some = estimated_purity(labelled(mixed), values)
    assert some == {0: 1.0, 1: pytest.approx(10 / 11)}
    more = estimated_purity(labelled(mixed, confirmed=np.arange(10, 20)), values)
    assert more[1] == pytest.approx((10 + 5 * 10 / 11) / 15)


def test_one_group_and_empty_ones() -> None:
    assert estimated_purity(labelled([4] * 5, names={9: "dents"}), blobs([5])) == {4: 1.0, 9: 1.0}


def test_an_offset_costs_no_digits() -> None:
    labelling, values = scattered()
    assert estimated_purity(labelling, values + 1e7) == estimated_purity(labelling, values)


def test_each_image_a_group() -> None:
    values = np.random.default_rng(0).standard_normal((60, 7))
    labelling = labelled(np.arange(60))
    assert set(estimated_purity(labelling, values).values()) == {1.0}
    assert next_question(labelling, values) is not None


# ---- groups ----


def test_the_group_that_one_answer_labels_most_of_comes_first() -> None:
    values = blobs([6, 14, 9])
    labels = np.repeat([5, 1, 8], [6, 14, 9])
    found = next_question(labelled(labels), values)
    assert found is not None
    assert (found.kind, found.group) == ("group", 1)
    assert found.why == "One answer labels 14 images, all of which seem to belong together."
    # Those that are confirmed already are no gain.
    found = next_question(labelled(labels, confirmed=np.arange(6, 12)), values)
    assert found is not None
    assert found.group == 8


def test_a_pure_group_comes_before_a_larger_one_that_is_not() -> None:
    values = blobs([10, 12])
    values[16:] = values[:6]  # half of the second group looks like the first
    labels = np.repeat([0, 1], [10, 12])
    purity = estimated_purity(labelled(labels), values)
    assert 12 * purity[1] < 10 * purity[0]
    found = next_question(labelled(labels), values)
    assert found is not None
    assert found.group == 0
    found = next_question(labelled(labels, confirmed=np.arange(10)), values)
    assert found is not None
    assert found.why == "One answer labels 12 images, 6 of which seem to belong together."


def test_a_group_in_which_nothing_seems_right_is_asked_about_all_the_same() -> None:
    # Its two images lie beside the centres of the two other groups, its own centre between them.
    values = np.array([[0.0], [10.0], [0.5], [9.5]])
    labelling = labelled([0, 1, 2, 2], confirmed=[0, 1])
    assert estimated_purity(labelling, values)[2] == 0
    found = next_question(labelling, values)
    assert found is not None
    assert (found.kind, found.group) == ("group", 2)


@pytest.mark.parametrize("seed", range(4))
def test_the_question_against_loops(seed: int) -> None:
    labelling, values = scattered(seed=seed)
    own, margins, _ = naive_margins(labelling, values)
    purity = estimated_purity(labelling, values)
    gains = {
        group: sum(not labelling.confirmed[row] for row in labelling.members(group)) * purity[group]
        for group in labelling.groups
        if labelling.groups[group].role != "unsure"
    }
    found = next_question(labelling, values)
    assert found is not None
    assert found.group == max(gains, key=lambda group: gains[group])
    rows = labelling.members(found.group).tolist()
    doubtful = sorted(
        (row for row in rows if not labelling.confirmed[row]), key=lambda row: margins[row]
    )[:6]
    typical = sorted((row for row in rows if row not in doubtful), key=lambda row: own[row])[:6]
    assert found.rows == (*typical, *doubtful)


def test_a_small_group_is_shown_whole_and_once() -> None:
    values = blobs([7, 3])
    found = next_question(labelled([0] * 7 + [1] * 3, confirmed=[0, 1, 2]), values)
    assert found is not None
    assert sorted(found.rows) == list(range(7))
    assert set(found.rows[-4:]) == {3, 4, 5, 6}


def test_the_last_image_of_a_group() -> None:
    found = next_question(labelled([0, 0, 0], confirmed=[0, 2]), blobs([3]))
    assert found is not None
    assert sorted(found.rows) == [0, 1, 2]
    assert found.rows[-1] == 1
    assert found.why == "One image of this group is left to confirm."


def test_groups_that_are_skipped_come_no_more() -> None:
    labelling = labelled([0] * 5 + [1] * 4 + [2] * 3, roles={2: "normal"})
    values = blobs([5, 4, 3])
    asked: list[int] = []
    while found := next_question(labelling, values, skipped=asked):
        asked.append(found.group)
    assert asked == [0, 1, 2]


# ---- images ----


def accepted(labelling: Labelling) -> Labelling:
    unsure = np.isin(labelling.labels, labelling.with_role("unsure"))
    return replace(labelling, confirmed=~unsure)


def test_unsure_images_are_no_group_and_come_after_all_groups() -> None:
    values = blobs([5, 5, 4])
    values[10:] = [[4 + shift, 4 - shift, 0, 0, 0, 0] for shift in (1.0, -0.2, 3.0, -2.0)]
    values[11, 2] = 30  # far from both, and as near to one as to the other
    names = {0: "scratch", 1: "dent"}
    labels = [0] * 5 + [1] * 5 + [2] * 4
    labelling = labelled(labels, confirmed=np.arange(4), names=names, roles={2: "unsure"})
    found = next_question(labelling, values)
    assert found is not None
    assert (found.kind, found.group) == ("group", 1)
    # The one that is hardest to tell first, and then as far as nobody answered it.
    labelling = accepted(labelling)
    found = next_question(labelling, values)
    assert found == Question(
        "image", 2, (11,), "Somebody was unsure about this image; it looks most like 'dent'."
    )
    found = next_question(labelling, values, answered=[11])
    assert found is not None
    assert found.rows == (10,)
    assert found.why.endswith("it looks most like 'scratch'.")
    kept = replace(labelling, confirmed=np.arange(14) != 12)
    found = next_question(kept, values)
    assert found is not None
    assert found.rows == (12,)


def test_nothing_but_unsure_images() -> None:
    found = next_question(labelled([3, 3], roles={3: "unsure"}), blobs([2]))
    assert found == Question("image", 3, (0,), "Somebody was unsure about this image.")


@pytest.mark.parametrize("seed", range(3))
def test_doubtful_images_against_loops(seed: int) -> None:
    labelling, values = scattered(seed=seed)
    labelling = replace(labelling, confirmed=np.ones(200, bool))
    _, margins, rivals = naive_margins(labelling, values)
    doubtful = [row for row in range(200) if margins[row] < 0 and labelling.labels[row] != 6]
    doubtful.sort(key=lambda row: margins[row])
    asked: list[int] = []
    while found := next_question(labelling, values, answered=asked):
        (row,) = found.rows
        assert found == Question(
            "image",
            int(labelling.labels[row]),
            (row,),
            f"It is in 'Group {labelling.labels[row]}', but looks more like 'Group {rivals[row]}'.",
        )
        asked.append(row)
    assert asked == doubtful
    assert len(asked) > 10


def test_images_with_several_kinds_are_not_in_doubt() -> None:
    values = blobs([10, 10])
    labels = np.array([0] * 9 + [1] * 11)
    labelling = labelled(labels, confirmed=np.arange(20))
    found = next_question(labelling, values)
    assert found is not None
    assert found.rows == (9,)
    assert next_question(replace(labelling, several={9: (0,)}), values) is None


def test_nothing_is_left_to_ask() -> None:
    assert next_question(labelled([0, 0, 1, 1], confirmed=np.arange(4)), blobs([2, 2])) is None


# ---- the rest ----


def test_progress() -> None:
    assert progress(labelled([0, 0, 1, 1], confirmed=[1, 2, 3])) == (3, 4)


def test_embeddings_of_other_images_are_refused() -> None:
    for values in (np.zeros((3, 2)), np.zeros(4)):
        with pytest.raises(InputError, match=r"embeddings must have the shape \(4, dim\), one row"):
            estimated_purity(labelled([0, 0, 1, 1]), values)

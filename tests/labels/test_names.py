"""Names of groups: words that mean normal, names that are refused, and what is offered."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from flawsort.labels.groups import Group, Labelling
from flawsort.labels.names import Offer, RefusedName, check_names, means_normal, offers

LABELS = (0, 0, 1, 1, 2)


def labelling(
    groups: Mapping[int, tuple[str, str]], different: tuple[tuple[int, int], ...] = ()
) -> Labelling:
    """groups: name and role by id."""
    made = {id: Group(id, name, role) for id, (name, role) in groups.items()}  # type: ignore[arg-type]
    labels = np.array(LABELS)
    apart = frozenset(frozenset(pair) for pair in different)
    return Labelling(made, labels, labels < 0, 3, len(made), different=apart)


@pytest.mark.parametrize("name", ["normal", "good", "Good", " NORMAL ", "ok", "OK"])
def test_words_for_normal(name: str) -> None:
    assert means_normal(name)


@pytest.mark.parametrize("name", ["", "goods", "not normal", "not ok", "scratch"])
def test_other_words(name: str) -> None:
    assert not means_normal(name)


@pytest.mark.parametrize(
    ("name", "taken", "normal"),
    [("Dent", 0, False), ("group 1", 1, False), ("OK", None, True), ("New Kind", None, False)],
)
def test_a_refusal_says_what_could_be_done_instead(
    name: str, taken: int | None, normal: bool
) -> None:
    before = labelling({0: ("dent", "flaw"), 1: ("", "flaw"), 2: ("", "flaw")})
    after = labelling({0: ("dent", "flaw"), 1: ("", "flaw"), 2: (name, "flaw")})
    with pytest.raises(RefusedName) as refused:
        check_names(before, after)
    assert (refused.value.taken, refused.value.normal) == (taken, normal)


def test_what_was_named_earlier_is_not_refused() -> None:
    doubtful = labelling({0: ("dent", "flaw"), 1: ("Dent", "flaw"), 2: ("good", "flaw")})
    check_names(doubtful, doubtful)


class TestOffers:
    def test_none_for_clear_names(self) -> None:
        clear = {0: ("dent", "flaw"), 1: ("", "flaw"), 2: ("good", "normal")}
        assert offers(labelling(clear)) == []

    def test_groups_of_one_name_whatever_its_case(self) -> None:
        same = labelling({0: ("dent", "flaw"), 1: ("Dent", "flaw"), 2: ("DENT", "normal")})
        assert offers(same) == [Offer("merge", (0, 1)), Offer("merge", (0, 2))]

    def test_normal_groups_without_a_name_have_one_title(self) -> None:
        two = labelling({0: ("", "normal"), 1: ("", "flaw"), 2: ("", "normal")})
        assert offers(two) == [Offer("merge", (0, 2))]

    def test_not_for_groups_that_a_person_called_different(self) -> None:
        names = {0: ("dent", "flaw"), 1: ("dent", "flaw"), 2: ("dent", "flaw")}
        assert offers(labelling(names, ((0, 1),))) == [Offer("merge", (0, 2))]

    def test_not_for_groups_that_nobody_sees(self) -> None:
        unseen = labelling({0: ("", "normal"), 2: ("", "flaw"), 3: ("", "normal")})
        assert offers(unseen) == []
        named = labelling({0: ("dent", "flaw"), 2: ("", "flaw"), 3: ("dent", "flaw")})
        assert offers(named) == [Offer("merge", (0, 3))]

    def test_not_for_unsure_groups(self) -> None:
        unsure = labelling({0: ("", "unsure"), 1: ("", "unsure"), 2: ("", "flaw")})
        assert offers(unsure) == []

    def test_a_group_called_normal_is_offered_the_role(self) -> None:
        called = labelling({0: ("Good", "flaw"), 1: ("ok", "unsure"), 2: ("normal", "normal")})
        assert offers(called) == [Offer("normal", (0,)), Offer("normal", (1,))]

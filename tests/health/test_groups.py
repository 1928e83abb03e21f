"""What groups follow besides the flaw, and whether they hold."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.clusters.ward import cut, ward_linkage
from flawsort.health.groups import follows, single, steadiness, unsteady
from helpers.facts import N, changed, made_facts

LABELS = np.arange(N) % 2
RNG = np.random.default_rng(3)


def ring(n: int) -> np.ndarray:
    """(n, 3): points around a circle, which no cut parts better than another."""
    angles = np.random.default_rng(n).permutation(n) * 2 * np.pi / n
    return np.stack([np.cos(angles), np.sin(angles), np.zeros(n)], axis=1)


class TestFollows:
    def test_groups_follow_light_folder_and_day(self) -> None:
        assert follows(made_facts()) == []
        light = 100.0 + 40 * LABELS + RNG.normal(0, 2, N)
        folder = tuple(("monday/a", "tuesday/a")[label] for label in LABELS)
        both = {"folder": folder, "image_scores": RNG.normal(5, 1, N)}  # no folder is a good one
        (found,) = follows(made_facts(brightness=light, day=7.0 + LABELS, **both))
        assert found.code == "groups-follow"
        assert "brightness, the folder and the day" in found.sentence
        assert found.value == pytest.approx(1.0)

    def test_one_group_of_several(self) -> None:
        rows = np.arange(80)
        labels = np.where(rows % 10 == 2, 2, rows % 2)
        light = RNG.normal(100, 5, 80) + 32 * (labels == 2)
        facts = made_facts(80, labels=labels, brightness=light)
        (found,) = follows(facts)
        assert (found.code, found.group) == ("group-follows", 2)
        assert found.images == tuple(facts.names[row] for row in range(2, 80, 10))
        assert "told from the others by brightness." in found.sentence
        assert follows(changed(facts, brightness=light - 10 * (labels == 2))) == []

    def test_small_groups_and_small_differences_say_nothing(self) -> None:
        few = (np.arange(N) < 5).astype(int)
        assert follows(made_facts(labels=few, folder=tuple(map(str, few)))) == []
        assert follows(made_facts(width=1000 + 1e-4 * LABELS)) == []
        half_known = np.where(np.arange(N) < N // 2, np.nan, 100.0 * LABELS)
        assert follows(made_facts(brightness=half_known)) == []

    def test_a_few_odd_images_are_not_all_that_differs(self) -> None:
        """Two large pictures in a group of their own, among 40 of one size."""
        labels = np.where(np.arange(N) < 2, 8, np.arange(N) % 8)
        large = np.where(np.arange(N) < 2, 4000.0, 1000.0)
        assert follows(made_facts(labels=labels, width=large, height=large)) == []
        # The half of them is another matter.
        half = np.where(labels % 2, 4000.0, 1000.0)
        (found,) = follows(made_facts(labels=labels, width=half, height=half))
        assert "the size of the picture" in found.sentence

    def test_a_group_for_nearly_each_image_follows_nothing(self) -> None:
        n = 20
        labels = np.minimum(np.arange(n), n - 3)
        light = 100.0 + 9 * labels
        folder = tuple("abcd"[row % 4] for row in range(n))
        days = np.arange(n) / 4.0
        assert follows(made_facts(n, labels=labels, brightness=light, day=days)) == []
        assert follows(made_facts(n, labels=labels, folder=folder)) == []

    def test_how_much_is_explained_is_told_and_nothing_more(self) -> None:
        (found,) = follows(made_facts(brightness=100.0 + 40 * LABELS))
        assert found.sentence == "The groups follow brightness: they explain 100% of it."
        assert "folders" not in found.advice

    def test_folders_may_be_kinds_of_flaws(self) -> None:
        folder = tuple(("scratch", "dent")[label] for label in LABELS)
        facts = made_facts(folder=folder, image_scores=RNG.normal(5, 1, N))
        (found,) = follows(facts)
        assert found.advice.endswith("If the folders are kinds of flaws, this is right.")
        # The images of one folder are normal, and those of the other are not.
        scores = RNG.normal(1, 0.1, N) + 4 * LABELS
        assert follows(changed(facts, image_scores=scores)) == []
        (found,) = follows(changed(facts, image_scores=scores, compared=False))
        assert "the folder" in found.sentence

    def test_one_group_in_a_folder_of_its_own(self) -> None:
        rows = np.arange(80)
        labels = np.where(rows % 8 == 2, 2, rows % 2)
        folder = tuple("c" if label == 2 else "ab"[RNG.integers(2)] for label in labels)
        scores = RNG.normal(5, 1, 80)
        facts = made_facts(80, labels=labels, folder=folder, image_scores=scores)
        (found,) = follows(facts)
        assert found.sentence == "Group 2 (10 images) is told from the others by the folder."
        assert found.advice.endswith("If the folders are kinds of flaws, this is right.")

    def test_groups_follow_time_within_a_day(self) -> None:
        hours = (
            np.argsort(np.argsort(LABELS, kind="stable")) / 24 / 4
        )  # one each quarter of an hour
        (found,) = follows(made_facts(day=7.0 + hours))
        assert found.sentence.startswith("The groups follow the order in time: ")
        assert follows(made_facts(day=7.0 + RNG.permutation(hours))) == []
        # Files that were copied have times, too: within moments of each other.
        assert follows(made_facts(day=7.0 + hours / 1000)) == []

    def test_groups_follow_the_shift(self) -> None:
        """Early and late shifts of five days."""
        days = np.arange(N) % 10 // 2
        hour = np.where(LABELS, 8 + RNG.uniform(0, 6, N), 15 + RNG.uniform(0, 6, N))
        (found,) = follows(made_facts(day=days + hour / 24))
        assert found.sentence.startswith("The groups follow the hour of the day: ")


class TestSingle:
    def test_most_groups_have_one_image(self) -> None:
        labels = np.where(np.arange(N) < 5, np.arange(N) + 2, np.arange(N) % 2)
        facts = made_facts(labels=labels)
        (found,) = single(facts)
        assert found.sentence == "5 of the 7 groups have a single image."
        assert found.images == facts.names[:5]
        assert single(changed(facts, labels=np.where(labels > 3, 0, labels))) == []

    def test_one_odd_image_is_none_of_it(self) -> None:
        labels = np.where(np.arange(N) < 1, 2, LABELS)
        assert single(made_facts(labels=labels)) == []


class TestUnsteady:
    def test_groups_that_hold(self) -> None:
        facts = made_facts()
        np.testing.assert_allclose(steadiness(facts), 1.0)
        assert unsteady(facts) == []

    def test_all_groups_of_a_ring_change(self) -> None:
        points = ring(N)
        facts = made_facts(embeddings=points, labels=cut(ward_linkage(points), 4))
        (found,) = unsteady(facts)
        assert found.sentence.startswith("No group stays the same")
        assert found.images == ()
        assert 0 < found.value < 0.75

    def test_one_group_holds_and_two_do_not(self) -> None:
        points = np.concatenate([ring(24), ring(16) / 9 + 60])
        labels = cut(ward_linkage(points), 4)
        facts = made_facts(embeddings=points, labels=labels)
        (found,) = unsteady(facts)
        others = sorted({0, 1, 2, 3} - {int(labels[-1])})
        assert found.sentence.startswith(f"Groups {', '.join(map(str, others))} change")
        assert set(found.images) == set(facts.names[:24])

    def test_names_and_their_order_change_nothing(self) -> None:
        noise = RNG.normal(0, 1, (N, 6))
        labels = cut(ward_linkage(noise), 3)
        facts = made_facts(embeddings=noise, labels=labels)
        back = changed(
            facts, digests=facts.digests[::-1], embeddings=noise[::-1], labels=labels[::-1]
        )
        np.testing.assert_array_equal(steadiness(facts), steadiness(back))

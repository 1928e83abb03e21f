"""Advice on the number of groups."""

from __future__ import annotations

import re

import numpy as np
import pytest

from flawsort.clusters import advice as advice_module
from flawsort.clusters.advice import (
    GAP_BONUS_LIMIT,
    MAX_ADVISED,
    OUTSTANDING,
    PLAUSIBLE,
    Advice,
    advise,
    stability,
)
from flawsort.clusters.ward import ward_linkage
from helpers.bags import Array, blobs


def advised(embeddings: Array, *, random_state: int = 0) -> Advice:
    return advise(embeddings, ward_linkage(embeddings), random_state=random_state)


@pytest.mark.parametrize(
    "sizes",
    [[10, 10], [12, 8, 5], [6] * 4, [15, 9, 9, 4, 4, 4], [5] * 9, [4] * 14],
    ids=lambda sizes: f"{len(sizes)} blobs",
)
def test_clear_blobs_are_counted(sizes: list[int]) -> None:
    found = advised(blobs(sizes, dim=16))
    assert (found.k, found.low, found.high) == (len(sizes),) * 3
    assert not found.ambiguous
    joined = ", and with fewer groups clearly different images would be joined."
    # Fewer than two would be one, in which nothing is told apart.
    assert ("with fewer groups" in found.reason) == (len(sizes) > 2)
    assert re.fullmatch(
        r"Grouping random subsets of the images gives (the|nearly the) same groups "
        r"\(agreement [01]\.\d\d of 1\)"
        rf"({joined if len(sizes) > 2 else '.'})",
        found.reason,
    )
    (chosen,) = [one for one in found.candidates if one.k == found.k]
    assert chosen.stability > 0.9
    assert chosen.score == max(one.score for one in found.candidates)


def test_noise_is_ambiguous() -> None:
    # Of so many points; smaller sets without structure are not always recognised.
    for seed in range(3):
        noise = np.random.default_rng(seed).standard_normal((200, 8))
        found = advised(noise)
        assert found.ambiguous
        assert found.low <= found.k <= found.high


def test_blobs_of_blobs_have_a_range() -> None:
    rng = np.random.default_rng(0)
    pairs = np.array([[0.0, 0], [0, 2], [20, 0], [20, 2], [0, 20], [2, 20]])
    found = advised(np.repeat(pairs, 10, axis=0) + 0.3 * rng.standard_normal((60, 2)))
    assert (found.low, found.high) == (3, 6)
    assert found.k == 6
    assert found.reason.startswith("3 and 6 groups are both plausible; with 6, ")


def test_advised_is_the_middle_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(
        advice_module, "stability", lambda _, __, ks, ___, link: rng.random(len(ks))
    )
    seen: set[tuple[int, int]] = set()  # how many are plausible, and which is advised
    for _ in range(300):
        merges = np.zeros((11, 4))
        merges[:, 2] = np.sort(rng.random(11))
        found = advise(np.arange(24.0).reshape(12, 2), merges)  # no copies
        best = max(one.score for one in found.candidates)
        plausible = [one for one in found.candidates if one.score >= PLAUSIBLE * best]
        low, high = plausible[0].k, plausible[-1].k
        standing = [one.k for one in found.candidates if one.score >= OUTSTANDING * best]
        assert (found.low, found.high) == (min(found.k, *standing), max(found.k, *standing))
        # How far a number is from the middle of the range, as the larger of two ratios.
        ratios = [max(one.k**2 / (low * high), low * high / one.k**2) for one in plausible]
        nearest = [
            one
            for one, ratio in zip(plausible, ratios, strict=True)
            if ratio <= min(ratios) * (1 + 1e-9)
        ]
        assert found.k == max(nearest, key=lambda one: one.score).k
        seen.add((len(plausible), [one.k for one in plausible].index(found.k)))
    assert {(1, 0), (3, 1)} <= seen
    assert max(count for count, _ in seen) >= 5


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_images_are_too_few(n: int) -> None:
    embeddings = blobs([n])
    merges = ward_linkage(embeddings) if n > 1 else np.empty((0, 4))
    found = advise(embeddings, merges)
    assert (found.k, found.low, found.high, found.ambiguous) == (n, n, n, True)
    assert found.reason == ("1 image is" if n == 1 else "2 images are") + " too few to tell."
    assert found.candidates == ()


@pytest.mark.parametrize("n", [3, 4, 5])
def test_few_images_cannot_tell(n: int) -> None:
    for seed in range(20):
        embeddings = np.random.default_rng(seed).standard_normal((n, 3))
        found = advised(embeddings)
        assert 2 <= found.low <= found.k <= found.high < n
        assert found.ambiguous
        assert found.reason == f"{n} images are too few to tell."
    assert advised(blobs([3, 3])).reason.startswith("Grouping random subsets")


@pytest.mark.parametrize(
    ("k", "stable", "standing", "reason"),
    [
        (3, 0.49, [3], "Grouping .* gives different groups (agreement 0.49 of 1)."),
        (2, 0.55, [2], "Grouping .* gives partly different groups (agreement 0.55 of 1)."),
        (3, 0.79, [3], "gives partly different groups (agreement 0.79 of 1), and with fewer"),
        (2, 0.8, [2], "Grouping .* gives nearly the same groups (agreement 0.80 of 1)."),
        (2, 0.99, [2], "Grouping .* gives nearly the same groups (agreement 0.99 of 1)."),
        (3, 1.0, [3], "gives the same groups (agreement 1.00 of 1), and with fewer groups"),
        (2, 0.6, [2, 3], "2 and 3 groups are both plausible; with 2, .* partly different groups ("),
        (3, 0.9, [2, 3, 5], "2, 3 and 5 groups are all plausible; with 3, .* gives nearly the "),
    ],
)
def test_words_follow_the_agreement(
    k: int, stable: float, standing: list[int], reason: str
) -> None:
    pattern = ".*".join(map(re.escape, reason.split(".*")))
    text = advice_module._reason(k, stable, standing)
    assert re.search(pattern, text), text
    assert k > 2 or "fewer" not in text


def test_three_images_can_only_be_two_groups() -> None:
    found = advised(blobs([2, 1]))
    assert found.k == 2
    assert [one.k for one in found.candidates] == [2]
    assert np.isfinite(found.candidates[0].score)


@pytest.mark.parametrize("n", [3, 4, 5, 8, 30])
def test_identical_images_suggest_nothing(n: int) -> None:
    found = advised(np.ones((n, 4)))
    assert found.ambiguous
    assert found.reason == "No number of groups stands out from the others."
    assert 2 <= found.low <= found.k <= found.high <= max(2, n - 1)
    for one in found.candidates:
        assert np.isfinite([one.stability, one.gap, one.score]).all()


def test_duplicates_of_two_images_are_two_groups() -> None:
    found = advised(np.repeat(np.eye(2), [6, 5], axis=0))
    assert found.k == 2
    assert not found.ambiguous


@pytest.mark.parametrize(
    ("n", "copies"), [*((n, 1) for n in range(13, 21)), (18, 3)], ids=lambda value: str(value)
)
def test_copies_change_no_advice(n: int, copies: int) -> None:
    distinct = blobs([(n - copies) // 2, (n - copies + 1) // 2], spread=0.1)
    repeated = np.concatenate([distinct, distinct[:copies]])
    expected = advised(distinct)
    assert advised(repeated) == expected
    # The same where a function links rows, as it does for distances that are given.
    merges = ward_linkage(repeated)
    linked = advise(repeated, merges, link=lambda rows: ward_linkage(repeated[rows]))
    assert linked == expected


def test_copies_are_not_counted_among_too_few() -> None:
    four = np.random.default_rng(0).standard_normal((4, 3))
    found = advised(np.concatenate([four, four[:3]]))
    assert found.reason == "4 different images are too few to tell."
    assert found.k == advised(four).k


def test_two_copies_of_each_image_are_not_pairs() -> None:
    distinct = blobs([8, 8], spread=0.1)
    assert advised(np.repeat(distinct, 2, axis=0)) == advised(distinct)


def test_candidates_go_up_to_a_limit() -> None:
    assert [one.k for one in advised(blobs([9] * 4)).candidates] == list(range(2, MAX_ADVISED + 1))
    assert [one.k for one in advised(blobs([3] * 2)).candidates] == [2, 3, 4, 5]


def test_gaps_and_scores_against_loops() -> None:
    embeddings = blobs([7, 6, 5], spread=2.0)
    merges = ward_linkage(embeddings)
    found = advise(embeddings, merges)
    for one in found.candidates:
        # A cut at k undoes the last k - 1 merges.
        avoided, made = merges[-(one.k - 1), 2], merges[-one.k, 2]
        assert one.gap == pytest.approx((avoided - made) / avoided)
        assert one.score == pytest.approx(
            one.gap * min(one.k, GAP_BONUS_LIMIT) * max(one.stability, 0)
        )


def test_advice_is_the_same_each_time_and_changes_nothing() -> None:
    embeddings = np.random.default_rng(0).standard_normal((40, 5))
    merges = ward_linkage(embeddings)
    before = embeddings.copy(), merges.copy()
    assert advise(embeddings, merges) == advise(embeddings, merges)
    assert advise(embeddings, merges) != advise(embeddings, merges, random_state=1)
    np.testing.assert_array_equal(embeddings, before[0])
    np.testing.assert_array_equal(merges, before[1])


def test_stability_is_one_where_every_part_is_cut_alike() -> None:
    embeddings = blobs([10, 10, 10])
    ks = np.array([3, 6])
    stable = stability(embeddings, ward_linkage(embeddings), ks, 0)
    assert stable[0] == pytest.approx(1)
    assert stable[1] < 0.95


def test_resamples_of_large_sets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def watched(embeddings: Array) -> Array:
        sizes.append(len(embeddings))
        return ward_linkage(embeddings)

    embeddings = blobs([30, 30])
    merges = ward_linkage(embeddings)
    monkeypatch.setattr(advice_module, "ward_linkage", watched)
    # More groups than a part has images: it is cut into as many as it has.
    stable = stability(embeddings, merges, np.array([2, 20]), 0, largest=12)
    assert set(sizes) == {12}
    assert len(sizes) == advice_module.RESAMPLES
    assert stable[0] == pytest.approx(1)
    assert np.isfinite(stable).all()

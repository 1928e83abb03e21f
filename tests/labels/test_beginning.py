"""The groups that a run begins with: known kinds stay whole, and only new kinds are new groups."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort import OptionError
from flawsort.labels.beginning import (
    Begun,
    Clustered,
    Known,
    begin,
    carry_edit,
    continued,
    only_begun,
)
from flawsort.labels.edits import apply
from flawsort.labels.groups import Example, Group
from flawsort.labels.session import read_labelling, read_settled
from flawsort.labels.space import Space
from flawsort.labels.store import EditStore
from flawsort.labels.suggestions import TeachingSpace
from flawsort.runs.folder import EDITS, save_run
from helpers.bags import blobs
from helpers.runs import build_run, chain

# Kinds of 12, 10, 8 and 6 images in 16 dimensions, and three clusters within each.
SIZES = [12, 10, 8, 6]
KIND = np.repeat(np.arange(4), SIZES)
NAMES = ("bent", "cut", "dent", "edge")


def embeddings() -> np.ndarray:
    return np.asarray(blobs(SIZES, dim=16, spread=0.4), np.float32)


def clustered(clusters: Any = None, looks_normal: Any = (), of: Any = None) -> Clustered:
    """looks_normal: rows. of: embeddings in the place of the usual ones."""
    vectors = embeddings() if of is None else of
    space, looks = Space.of(vectors), np.zeros(len(vectors), bool)
    looks[list(looks_normal)] = True
    apart = 3 * KIND + np.arange(len(KIND)) % 3  # no cluster is a kind
    found = apart if clusters is None else np.asarray(clusters)
    digests = [f"{row:064x}" for row in range(len(vectors))]
    return Clustered(digests, found, TeachingSpace(space, space.coordinates(vectors), looks))


def labels(rows: Any, names: Any = NAMES) -> dict[str, str]:
    return {f"{row:064x}": names[KIND[row]] for row in rows}


def rows_of(kind: int) -> np.ndarray:
    return np.flatnonzero(np.equal(KIND, kind))


def some_of_each(n: int = 3, kinds: Any = range(4)) -> list[int]:
    return [row for one in kinds for row in rows_of(one)[:n].tolist()]


def titles(begun: Begun) -> list[str]:
    now = begun.settled
    return [now.groups[group].title for group in now.labels.tolist()]


def test_known_kinds_stay_whole() -> None:
    known = Known().with_labels(labels(some_of_each()))
    begun = begin(known, clustered())
    assert titles(begun) == [NAMES[kind] for kind in KIND]
    now = begun.labelling
    assert [(group.id, group.title) for group in now.groups.values()] == list(enumerate(NAMES))
    assert np.flatnonzero(now.confirmed).tolist() == some_of_each()
    assert now.k == 12
    assert begun.spent == 12
    sure = begun.suggestions.probability
    assert np.isnan(sure[now.confirmed]).all()
    assert (sure[~now.confirmed] > 0.5).all()


def test_a_kind_that_nobody_knows_is_a_group_of_its_own() -> None:
    known = Known().with_labels(labels(some_of_each(5, kinds=(0, 1, 2))))
    begun = begin(known, clustered(KIND))
    assert titles(begun) == [(*NAMES[:3], "Group 3")[kind] for kind in KIND]
    assert begun.labelling.groups[3] == Group(3)


def test_two_strange_images_are_no_kind() -> None:
    vectors = embeddings()[KIND < 3]
    vectors[-2:] = 9.0 + np.arange(16)
    known = Known().with_labels({name: label for name, label in labels(some_of_each(5)).items()
                                 if label != "edge"})  # fmt: skip
    kinds = np.where(np.arange(len(vectors)) < len(vectors) - 2, KIND[KIND < 3], 3)
    found = begin(known, clustered(kinds, of=vectors))
    assert set(titles(found)) == set(NAMES[:3])
    vectors = np.concatenate([vectors, vectors[-1:] + 0.1])
    three = begin(known, clustered([*kinds, 3], of=vectors))
    assert titles(three)[-3:] == ["Group 3"] * 3
    # Images that look normal are normal, even one alone, and even if nobody has seen a normal one.
    last = len(vectors) - 1
    two = begin(known, clustered([*kinds, 3], [last], of=vectors))
    assert titles(two)[-1] == "normal"
    assert set(titles(two)) == {*NAMES[:3], "normal"}  # and the two others are no kind
    assert [group.role for group in two.labelling.groups.values()][-1] == "normal"


def test_normal_and_good_are_the_normal_group() -> None:
    names = ("bent", "good", "dent", "Normal")
    begun = begin(Known().with_labels(labels(some_of_each(), names)), clustered())
    assert titles(begun) == [("bent", "normal", "dent", "normal")[kind] for kind in KIND]
    roles = {group.title: group.role for group in begun.labelling.groups.values()}
    assert roles == {"bent": "flaw", "dent": "flaw", "normal": "normal"}


def test_labels_that_are_names_of_groups() -> None:
    earlier = Known({4: Group(4, "dent"), 7: Group(7, role="normal")}, 8)
    known, ids = earlier.with_names(["good", "dent", "bent", "aged"])
    assert ids == {"aged": 8, "bent": 9, "dent": 4, "good": 7}
    assert list(known.groups) == [4, 7, 8, 9]
    assert known.next_id == 10
    once = known.with_labels({"x": "bent", "y": "dent"})
    assert once.decided == {"x": 9, "y": 4}
    again = once.with_labels({"x": "bent", "y": "aged"})  # one of them says nothing new
    assert (once.spent, again.spent, again.decided["y"]) == (2, 3, 8)


def test_nothing_known_is_the_clusters() -> None:
    normal = np.flatnonzero(KIND == 2)
    begun = begin(Known(), clustered(KIND, normal))
    assert begun.settled.labels.tolist() == KIND.tolist()
    assert [group.title for group in begun.labelling.groups.values()] == [
        "Group 0", "Group 1", "normal", "Group 3",
    ]  # fmt: skip
    assert begun.suggestions.taught is None
    assert np.isnan(begun.suggestions.probability).all()


def test_groups_that_nobody_decided_continue() -> None:
    groups = {3: Group(3), 5: Group(5, role="unsure"), 6: Group(6)}
    rows = {"unsure": np.flatnonzero(KIND == 0)[:2], 3: np.flatnonzero(KIND == 1)[:4]}
    before = {f"{row:064x}": 3 for row in rows[3]} | {f"{row:064x}": 5 for row in rows["unsure"]}
    begun = begin(Known(groups, 9, before=before), clustered(KIND))
    now = begun.labelling
    assert set(now.labels[KIND == 1]) == {3}
    assert now.labels[rows["unsure"]].tolist() == [5, 5]
    assert sorted(now.groups) == [3, 5, 9, 10, 11]  # nothing is left of group 6
    # Once kinds are known, a group that goes on must still be enough to be a kind.
    known = Known(groups, 9, before=before).with_labels(labels(some_of_each(4, kinds=(0, 2, 3))))
    begun = begin(known, clustered(KIND))
    assert set(begun.settled.labels[KIND == 1]) == {3}
    assert begun.labelling.groups[3].title == "Group 3"


def test_a_normal_group_stays_where_the_others_were_only_named() -> None:
    """As --labels-from does after a review that gave names to clusters and decided no image."""
    groups = {3: Group(3, role="normal"), **{one: Group(one, NAMES[one]) for one in range(3)}}
    before = {f"{row:064x}": int(KIND[row]) for row in range(0, len(KIND), 2)}
    begun = begin(Known(groups, 4, before=before), clustered())
    assert titles(begun) == [(*NAMES[:3], "normal")[kind] for kind in KIND]


def test_examples_outside_the_run_teach() -> None:
    known, ids = Known().with_labels(labels(some_of_each(3, (0, 1, 2)))).with_names(["edge"])
    outside = embeddings()[KIND == 3][:4].astype(np.float16).astype(np.float32)
    examples = tuple(
        Example(f"/far/{row}.png", f"{90 + row:064x}", ids["edge"], vector)
        for row, vector in enumerate(outside)
    )
    begun = begin(replace(known, examples=examples), clustered())
    assert titles(begun) == [NAMES[kind] for kind in KIND]
    assert [one.name for one in begun.labelling.examples] == [f"/far/{row}.png" for row in range(4)]


def test_what_an_image_is_not() -> None:
    vectors = embeddings()
    row = int(np.flatnonzero(KIND == 1)[-1])
    known = Known().with_labels(labels(some_of_each()))
    cut = next(group.id for group in known.groups.values() if group.name == "cut")
    rejecting = replace(known, rejected={f"{row:064x}": (cut,)})
    begun = begin(rejecting, clustered(of=vectors))
    assert titles(begun)[row] != "cut"
    assert begun.labelling.rejected == {row: (cut,)}


def test_the_first_edit_gives_the_groups_again(tmp_path: Path) -> None:
    run = build_run(KIND.tolist(), dim=16, embeddings=embeddings(), linkage=chain(len(KIND)))
    digests = run.table["sha256"]
    known = Known().with_labels({digests[row]: NAMES[KIND[row]] for row in some_of_each()})
    known = replace(
        known,
        several={digests[0]: (1,)},
        rejected={digests[-1]: (2,)},
        examples=(Example("x.png", "0" * 64, 3, embeddings()[-1].astype(np.float16) * 1.0),),
        threshold=0.25,
        different=frozenset({frozenset({0, 3})}),
        spent=17,
    )
    begun = begin(known, Clustered(digests, run.labels, TeachingSpace.of(run)))
    named = begun.named(run)
    save_run(named, tmp_path / "run", furnish=begun.write)
    now = read_labelling(tmp_path / "run")
    np.testing.assert_array_equal(now.labels, begun.labelling.labels)
    np.testing.assert_array_equal(now.confirmed, begun.labelling.confirmed)
    assert now.groups == begun.labelling.groups
    assert (now.several, now.rejected, now.threshold) == ({0: (1,)}, {len(KIND) - 1: (2,)}, 0.25)
    assert now.different == {frozenset({0, 3})}
    np.testing.assert_array_equal(now.examples[0].vector, begun.labelling.examples[0].vector)
    state = read_settled(tmp_path / "run")
    assert state.spent == 17
    np.testing.assert_array_equal(state.suggestions.groups, begun.suggestions.groups)
    np.testing.assert_array_equal(state.suggestions.probability, begun.suggestions.probability)
    assert named.table["group"] == titles(begun)
    assert [value is None for value in named.table["probability"]] == named.table["decided"]
    assert sum(named.table["decided"]) == len(some_of_each())


def test_nobody_has_edited_what_has_only_begun(tmp_path: Path) -> None:
    assert only_begun(tmp_path)
    now = begin(Known().with_labels(labels(some_of_each())), clustered())
    now.write(tmp_path)
    assert only_begun(tmp_path)
    with EditStore(tmp_path / EDITS) as store:
        store.append(carry_edit(now.labelling), 1, "somebody")
    assert not only_begun(tmp_path)


def test_an_edit_holds_everything() -> None:
    begun = begin(Known().with_labels(labels(some_of_each())), clustered())
    again = apply(carry_edit(begun.labelling, 5), begun.labelling, chain(len(KIND)))
    assert carry_edit(again, 5) == carry_edit(begun.labelling, 5)


# ---- ids that stay with their images ----


def test_clusters_take_over_the_ids_of_most_of_their_images() -> None:
    clusters = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    before = np.array([7, 7, 4, 4, 4, -1, -1, 4])
    ids = continued(clusters, before, 9)
    assert ids.tolist() == [7, 7, 7, 4, 4, 9, 9, 9]
    assert ids.dtype == np.int64


def test_an_id_goes_to_no_cluster_without_images_of_it() -> None:
    ids = continued(np.array([0, 0, 0, 1]), np.array([3, 3, 4, -1]), 5)
    assert ids.tolist() == [3, 3, 3, 5]


def test_all_new() -> None:
    assert continued(np.array([1, 0, 1, 2]), np.full(4, -1), 0).tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize("seed", range(5))
def test_the_ids_are_the_best_of_all_ways_to_give_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clusters, before = rng.integers(0, 4, 30), rng.integers(-1, 5, 30)
    kept = clusters.copy(), before.copy()
    ids = continued(clusters, before, 5)
    best = max((np.array(way)[clusters] == before).sum() for way in permutations(range(5), 4))
    assert (ids == before).sum() == best
    np.testing.assert_array_equal(clusters, kept[0])
    np.testing.assert_array_equal(before, kept[1])


def test_new_ids_are_above_all_others() -> None:
    with pytest.raises(OptionError, match=r"next_id must be above 5, the largest id\. Got 5\."):
        continued(np.zeros(3, int), np.full(3, 5), 5)

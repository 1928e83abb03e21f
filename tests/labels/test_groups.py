"""The groups of a run as people see them: where they begin, what regions and kinds become."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from flawsort import AnomalyClusterer, Bags, Method
from flawsort.labels.groups import (
    COLOURS,
    ROLES,
    SHAPES,
    Group,
    Labelling,
    first_labelling,
    kinds,
    region_groups,
)
from flawsort.runs import convert as storing
from flawsort.runs.run import Run
from helpers.bags import flawed_patches
from helpers.report_runs import make_run


def looking_normal(run: Run, rows: list[int]) -> Run:
    """The run with these images flagged, beside other flags."""
    flags = ["borderline"] * len(run.table["name"])
    for row in rows:
        flags[row] = "duplicate;looks-normal"
    return dataclasses.replace(run, table={**run.table, "flags": flags})


def changed(labelling: Labelling, **values: Any) -> Labelling:
    return dataclasses.replace(labelling, **values)


def naive_region_groups(run: Run, labelling: Labelling) -> list[int]:
    found = []
    for name, like in zip(run.regions["name"], run.regions["cluster"], strict=True):
        row = run.table["name"].index(name)
        if like == run.table["cluster"][row]:
            found.append(int(labelling.labels[row]))
            continue
        now = [
            int(label)
            for label, cluster in zip(labelling.labels, run.table["cluster"], strict=True)
            if cluster == like
        ]
        found.append(max(sorted(set(now)), key=now.count) if now else -1)
    return found


def naive_kinds(run: Run, labelling: Labelling) -> list[tuple[int, ...]]:
    groups = naive_region_groups(run, labelling)
    regions = list(zip(run.regions["name"], groups, strict=True))
    with_region = {name for name, _ in regions}
    names = run.table["name"]
    found = []
    for row, name in enumerate(names):
        own = int(labelling.labels[row])
        some = [own]
        for of, group in regions:
            members = [names[other] for other in np.flatnonzero(labelling.labels == group)]
            if of == name and group >= 0 and members:
                share = sum(other in with_region for other in members) / len(members)
                if share >= 0.5 and labelling.groups[group].role == "flaw":
                    some.append(group)
        if row in labelling.several:
            some = [own, *labelling.several[row]]
        found.append(tuple(dict.fromkeys(some)))
    return found


def test_it_begins_as_it_was_clustered() -> None:
    run = make_run(flagged=False)
    begun = first_labelling(run)
    assert begun.labels.tolist() == run.table["cluster"]
    assert begun.labels.dtype == np.int64
    assert begun.groups == {number: Group(number) for number in range(4)}
    assert (begun.k, begun.next_id, begun.several) == (4, 4, {})
    assert begun.confirmed.tolist() == [False] * 40
    begun.labels[0] = 3  # its own array
    assert run.table["cluster"] == make_run(flagged=False).table["cluster"]


def test_a_group_of_images_that_look_normal_is_normal() -> None:
    run = make_run(flagged=False)
    clusters = np.array(run.table["cluster"])
    members = np.flatnonzero(clusters == 0).tolist()
    enough = int(np.ceil(0.9 * len(members)))
    roles = [
        [group.role for group in first_labelling(looking_normal(run, rows)).groups.values()]
        for rows in (members, members[:enough], members[: enough - 1], [])
    ]
    plain = ["flaw"] * 4
    assert roles == [["normal", *plain[1:]], ["normal", *plain[1:]], plain, plain]


def test_titles() -> None:
    titles = [Group(7, role=role).title for role in ROLES]
    assert titles == ["Group 7", "normal", "Unsure"]
    assert [Group(7, "dents", role).title for role in ROLES] == ["dents"] * 3


def test_marks_are_the_same_wherever_groups_are_shown() -> None:
    assert [Group(number).colour for number in (0, 8, 15)] == [COLOURS[0], COLOURS[0], COLOURS[7]]
    assert [Group(number).shape for number in (0, 7, 13)] == [SHAPES[0], SHAPES[0], SHAPES[6]]


def test_members_and_roles() -> None:
    begun = first_labelling(make_run(flagged=False))
    assert begun.members(2).tolist() == [row for row in range(40) if begun.labels[row] == 2]
    assert begun.members(99).tolist() == []
    groups = {**begun.groups, 1: Group(1, role="unsure"), 3: Group(3, role="unsure")}
    of_roles = changed(begun, groups=groups)
    assert [of_roles.with_role(role) for role in ROLES] == [[0, 2], [], [1, 3]]


@pytest.mark.parametrize("seed", range(6))
def test_regions_and_kinds_go_with_the_images(seed: int) -> None:
    run = make_run(flagged=False)
    begun = first_labelling(run)
    rng = np.random.default_rng(seed)
    labels = np.where(rng.random(40) < 0.4, rng.integers(0, 6, 40), begun.labels)
    roles = rng.choice(["flaw", "flaw", "normal", "unsure"], 6).tolist()
    groups = {number: Group(number, role=role) for number, role in enumerate(roles)}
    given = {int(row): () for row in rng.choice(40, 3)}
    given |= {int(row): ((labels[row] + 1) % 6, (labels[row] + 2) % 6) for row in rng.choice(40, 3)}
    several = {row: tuple(map(int, some)) for row, some in given.items()}
    now = changed(begun, labels=labels, groups=groups, several=several, next_id=6)
    assert region_groups(run, now).tolist() == naive_region_groups(run, now)
    assert -1 in naive_region_groups(run, now)
    assert kinds(run, now) == naive_kinds(run, now)


@pytest.mark.parametrize(("normals", "step"), [(False, 10), (True, 9)])
def test_kinds_as_clustered(normals: bool, step: int) -> None:
    patches = flawed_patches([0] * 8 + [1] * 9 + [2] * 7 + [3] * 6)
    for row in range(9, 15):  # the lower half of an image with another flaw
        patches[row, 18:] = patches[row + step, 18:]
    # Without the mean patch, so that a region resembles a group by its flaw alone.
    model = AnomalyClusterer(n_clusters=4, method=Method(mean_share=0), random_state=0)
    good = Bags(patches[:8], (6, 6)) if normals else None
    run = storing.make_run(model.fit(Bags(patches, (6, 6)), normal=good).fitted_)
    begun = first_labelling(run)
    shown = [";".join(map(str, some)) for some in kinds(run, begun)]
    assert shown == run.table["kinds"]
    assert any(";" in some for some in shown)
    assert len(begun.with_role("normal")) == normals
    np.testing.assert_array_equal(region_groups(run, begun), run.regions["cluster"])


def test_a_group_in_which_nothing_stands_out_is_no_other_kind() -> None:
    run = make_run(flagged=False)
    begun = first_labelling(run)
    found = kinds(run, begun)
    assert found == naive_kinds(run, begun)
    cold = [group for group in begun.groups if not set(begun.members(group)) & with_regions(run)]
    assert len(cold) == 1
    assert cold[0] in region_groups(run, begun)
    assert all(cold[0] not in some[1:] for some in found)


def with_regions(run: Run) -> set[int]:
    return {run.table["name"].index(name) for name in run.regions["name"]}


def test_what_a_person_said_stands_before_the_regions() -> None:
    run = make_run(flagged=False)
    begun = first_labelling(run)
    row = next(row for row, some in enumerate(kinds(run, begun)) if len(some) == 2)
    own, other = kinds(run, begun)[row]
    third = next(group for group in begun.groups if group not in (own, other))
    assert kinds(run, changed(begun, several={row: ()}))[row] == (own,)
    assert kinds(run, changed(begun, several={row: (third,)}))[row] == (own, third)
    normal = {**begun.groups, other: Group(other, role="normal")}
    assert kinds(run, changed(begun, groups=normal))[row] == (own,)
    # An image that a person put among the normal ones, or is unsure about, shows no other kind.
    here = np.arange(40) == row
    for role in ROLES[1:]:
        put = changed(begun, groups={**begun.groups, own: Group(own, role=role)}, confirmed=here)
        assert kinds(run, put)[row] == (own,)
        assert kinds(run, changed(put, confirmed=~here))[row] == (own, other)
    assert kinds(run, changed(begun, confirmed=here))[row] == (own, other)


def test_a_run_without_regions() -> None:
    run = make_run(flagged=False)
    bare = dataclasses.replace(
        run,
        regions={name: [] for name in run.regions},
        region_embeddings=run.region_embeddings[:0],
    )
    begun = first_labelling(bare)
    assert region_groups(bare, begun).tolist() == []
    assert kinds(bare, begun) == [(label,) for label in begun.labels.tolist()]

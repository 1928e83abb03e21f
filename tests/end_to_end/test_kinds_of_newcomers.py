"""All kinds that new images show: those of the run as they were, new ones by their regions."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flawsort import AnomalyClusterer, Bags, Method
from flawsort.clusters.assign import Assignment, Groups, joined
from flawsort.clusters.kinds import STANDING_OUT_SHARE, Kinds
from flawsort.fitting.assign import assign_set
from flawsort.fitting.memory import Sizes
from flawsort.fitting.runner import LocalRunner
from flawsort.fitting.source import HeldSource

GRID = (8, 9)
N_PATCHES = 72
# Flaws of three kinds, one to an image, then two images with two, one of them twice, and good ones.
FLAWS = ((1,),) * 8 + ((2,),) * 8 + ((3,),) * 8 + ((1, 2), (3, 2), (3, 2)) + ((),) * 6
COPY = 26
SMALL_BATCHES = Sizes(batch_images=4)


def bags_with(flaws: Sequence[tuple[int, ...]], seed: int = 0) -> Bags:
    """A common background, and in each image a block of 2 x 2 patches for each of its flaws: the
    first one in the left part, the second in the right part."""
    base, rng = np.random.default_rng(99), np.random.default_rng(seed)
    background, kinds = base.standard_normal((N_PATCHES, 12)), 3 * base.standard_normal((4, 12))
    patches = background + 0.1 * rng.standard_normal((len(flaws), N_PATCHES, 12))
    for image, own in enumerate(flaws):
        for part, kind in enumerate(own):
            corner = rng.integers(0, 6) * GRID[1] + rng.integers(0, 3) + 5 * part
            block = corner + np.array([0, 1, GRID[1], GRID[1] + 1])
            patches[image, block] = kinds[kind] + 0.1 * rng.standard_normal((4, 12))
    patches /= np.linalg.norm(patches, axis=-1, keepdims=True)
    return Bags(patches.astype(np.float16), GRID)


@pytest.fixture(scope="module")
def parts() -> Bags:
    bags = bags_with(FLAWS)
    return bags.take([*range(COPY), COPY - 1, *range(COPY + 1, len(FLAWS))])


@pytest.fixture(scope="module")
def model(parts: Bags) -> AnomalyClusterer:
    """Shared: change a copy of it."""
    # With so few images the mean patch would make most regions of new images look like no group.
    model = AnomalyClusterer(n_clusters=4, method=Method(mean_share=0))
    model.sizes = SMALL_BATCHES
    return model.fit(parts, normal=bags_with([()] * 10, seed=1))


@pytest.fixture(scope="module")
def group_of(model: AnomalyClusterer) -> dict[int, int]:
    """The group of each kind of flaw; 0 is none."""
    groups = {1: 0, 2: 8, 3: 16, 0: len(FLAWS) - 1}
    return {kind: int(model.labels_[row]) for kind, row in groups.items()}


def sets(kinds: Kinds) -> list[set[int]]:
    return [set(one) for one in kinds]


def as_in_the_run(model: AnomalyClusterer, row: int, label: int) -> tuple[int, ...]:
    """What an image of the run shows when it comes again and is sorted into that group: among new
    images one that lies far from all others is of no group."""
    kinds = [label]
    for image, group in zip(model.regions_.outlines.images, model.regions_.labels, strict=True):
        if image == row and group not in (-1, *kinds, *model.fitted_.plain_groups):
            kinds.append(int(group))
    return tuple(kinds)


def turned(model: AnomalyClusterer) -> AnomalyClusterer:
    """The same with other groups for the regions of its images."""
    other = copy(model)
    regions = model.regions_
    regions = replace(regions, labels=(regions.labels + 1) % 4)
    other.fitted_ = replace(model.fitted_, regions=regions)
    return other


def test_kinds_of_the_run(model: AnomalyClusterer, group_of: dict[int, int]) -> None:
    assert sorted(group_of.values()) == [0, 1, 2, 3]
    expected = [{group_of[kind] for kind in own or (0,)} for own in FLAWS]
    assert sets(model.kinds_) == expected
    assert [one[0] for one in model.kinds_] == model.labels_.tolist()
    assert model.fitted_.plain_groups == {group_of[0]}
    # A flaw is where it was put, and there is nothing else.
    outlines = model.regions_.outlines
    counts = np.bincount(outlines.images, minlength=len(FLAWS))
    assert counts.tolist() == [len(own) for own in FLAWS]
    for row in range(len(outlines)):
        columns = outlines[row] % GRID[1]
        assert (columns < 5).all() or (columns >= 4).all()
        assert outlines.peaks[row] == model.scores_[outlines.images[row], outlines[row]].max()


def test_copies_have_the_same_regions(model: AnomalyClusterer) -> None:
    outlines = model.regions_.outlines
    first, second = (np.flatnonzero(outlines.images == row) for row in (COPY - 1, COPY))
    assert len(first) == len(second) == 2
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(outlines[one], outlines[other])
    np.testing.assert_array_equal(model.regions_.labels[first], model.regions_.labels[second])
    np.testing.assert_array_equal(
        model.regions_.embeddings[first], model.regions_.embeddings[second]
    )


def test_images_of_the_run_have_the_kinds_of_the_run(model: AnomalyClusterer, parts: Bags) -> None:
    rows = [*range(len(FLAWS)), COPY, 3, 24, 3]
    for one in (model, turned(model)):
        _, found, _ = one.assign(parts.take(rows))
        pairs = zip(rows, found.labels.tolist(), strict=True)
        assert found.kinds == tuple(as_in_the_run(one, row, label) for row, label in pairs)
        again = found.labels == one.labels_[rows]
        assert again.mean() > 0.8
        assert all(found.kinds[i] == one.kinds_[rows[i]] for i in np.flatnonzero(again))
    _, found, _ = model.assign(parts.take(rows))
    assert [one - {-1} for one in sets(found.kinds)] == [set(model.kinds_[row]) for row in rows]
    assert turned(model).kinds_ != model.kinds_


def test_new_images_have_the_kinds_of_their_flaws(
    model: AnomalyClusterer, group_of: dict[int, int]
) -> None:
    flaws = [(1, 2), (2,), (2, 3), (), (3, 1), (1,), (3, 3)]
    new = bags_with(flaws, seed=7)
    _, found, _ = model.assign(new)
    expected = [{group_of[kind] for kind in own or (0,)} for own in flaws]
    assert [one - {-1} for one in sets(found.kinds)] == expected
    assert [one[0] for one in found.kinds] == found.labels.tolist()
    # What the run's own images are like is nothing to them.
    assert turned(model).assign(new)[1].kinds == found.kinds
    # The hottest region comes first, whatever part of the image it is in.
    described = model.describer_.describe(new)
    groups = Groups.of(model.embeddings_, model.labels_)
    labels = groups.assign(described.region_embeddings).labels
    for image, own in enumerate(found.kinds):
        peaks = described.outlines.peaks[described.outlines.images == image]
        assert (np.diff(peaks) <= 0).all()
        like = list(dict.fromkeys(labels[described.outlines.images == image].tolist()))
        assert list(own[1:]) == [one for one in like if one not in (-1, own[0])]


def test_old_and_new_images_in_one_batch(model: AnomalyClusterer, parts: Bags) -> None:
    new = bags_with([(1, 2), (2, 3), (3, 1)], seed=7)
    alone = model.assign(new)[1].kinds
    known = [25, 1, 24]
    both = Bags(np.concatenate([new.patches, parts.patches[known]]), GRID)
    labels = model.assign(parts.take(known))[1].labels.tolist()
    for order in ([0, 1, 2, 3, 4, 5], [3, 0, 5, 2, 1, 4], [5, 5, 1, 1, 3]):
        for one in (model, turned(model)):
            again = map(as_in_the_run, [one] * 3, known, labels)
            own = (*alone, *again)
            found = one.assign(both.take(order))[1]
            assert found.kinds == tuple(own[row] for row in order)


def test_groups_that_look_normal_are_left_out(
    model: AnomalyClusterer, parts: Bags, group_of: dict[int, int]
) -> None:
    new = bags_with([(1, 2), (2, 3), (2,)], seed=7)
    together = Bags(np.concatenate([new.patches, parts.patches[[24]]]), GRID)

    def found(normal: frozenset[int]) -> Assignment:
        fitted, source = replace(model.fitted_), HeldSource.of(together)
        vars(fitted)["plain_groups"] = normal  # instead of what it would find
        return assign_set(source, fitted, LocalRunner(source), sizes=SMALL_BATCHES)[1]

    one, two, three = (group_of[kind] for kind in (1, 2, 3))
    every = found(frozenset())
    assert [kinds - {-1} for kinds in sets(every.kinds)] == [
        {one, two},
        {two, three},
        {two},
        {one, two},
    ]
    left_out = frozenset({one, two})
    some = found(left_out)
    # The group of the image itself stays.
    expected = [
        tuple(kind for kind in kinds if kind not in left_out or kind == label)
        for kinds, label in zip(every.kinds, every.labels, strict=True)
    ]
    assert some.kinds == tuple(expected)
    assert every.labels[0] in left_out
    assert len(some.kinds[0]) < len(every.kinds[0])
    assert len(some.kinds[3]) < len(every.kinds[3])


def test_a_model_leaves_out_its_own_normal_group(
    model: AnomalyClusterer, parts: Bags, group_of: dict[int, int]
) -> None:
    other = copy(model)
    labels = np.full(len(model.regions_), group_of[0])
    regions = replace(model.regions_, labels=labels)
    other.fitted_ = replace(model.fitted_, regions=regions)
    own = tuple((label,) for label in model.labels_.tolist())
    assert other.kinds_ == own
    found = other.assign(parts)[1]
    assert found.kinds == tuple((label,) for label in found.labels.tolist())


def test_without_normals_groups_are_plain_where_nothing_stands_out(parts: Bags) -> None:
    peers = AnomalyClusterer(n_clusters=4).fit(parts)
    assert peers.looks_normal_ is None
    plain = peers.fitted_.plain_groups
    standing_out = set(peers.regions_.outlines.images.tolist())
    for group in range(4):
        members = np.flatnonzero(peers.labels_ == group)
        share = np.mean([row in standing_out for row in members])
        assert (group in plain) == (share < STANDING_OUT_SHARE)
    assert len(peers.regions_) > 0


def test_where_every_patch_is_alike_there_are_no_regions(parts: Bags) -> None:
    method = Method(weights="uniform", pooling="average")
    alike = AnomalyClusterer(n_clusters=2, method=method).fit(parts)
    assert len(alike.regions_) == 0
    assert alike.kinds_ == tuple((label,) for label in alike.labels_.tolist())
    found = alike.assign(bags_with([(1, 2), ()], seed=7))[1]
    assert found.kinds == tuple((label,) for label in found.labels.tolist())


def test_a_loaded_model_gives_the_same(model: AnomalyClusterer, tmp_path: Path) -> None:
    model.save(tmp_path / "run", report=False)
    loaded = AnomalyClusterer.load(tmp_path / "run")
    assert loaded.kinds_ == model.kinds_
    new = bags_with([(1, 2), (2, 3), (3, 1), (2,), ()], seed=7)
    assert loaded.assign(new)[1].kinds == model.assign(new)[1].kinds


def test_assignments_are_taken_and_joined_with_their_kinds() -> None:
    plain = Groups.of(np.eye(4), np.array([0, 0, 1, 1])).assign(np.eye(4)[:3])
    assert plain.kinds == ()
    assert plain.take([2, 0]).kinds == ()
    found: Assignment = replace(plain, kinds=((0,), (0, 1), (1, 0)))
    assert found.take([2, 0, 2]).kinds == ((1, 0), (0,), (1, 0))
    assert joined([found, found.take([1])]).kinds == ((0,), (0, 1), (1, 0), (0, 1))

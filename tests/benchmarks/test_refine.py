"""benchmarks/refine.py: what its head learns, how it sees images, and a run on a small set."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from flawsort import AnomalyClusterer
from flawsort.core.records import Bags
from helpers.bags import blobs
from helpers.plates import plate


@pytest.fixture(scope="module")
def refine(quality: ModuleType) -> ModuleType:
    return importlib.import_module("refine")


@pytest.fixture(scope="module")
def head(refine: ModuleType) -> ModuleType:
    return importlib.import_module("refine_head")


def made_up(head: ModuleType, n: int = 12, *, seed: int = 0):  # type: ignore[no-untyped-def]
    """Images of two views with three patches each, of which the last one has no weight."""
    rng = np.random.default_rng(seed)
    patches = head.side_by_side([rng.normal(size=(n, 3, 2)), rng.normal(size=(n, 3, 4))])
    weights = rng.random((n, 6)) + 0.1
    weights[:, 5] = 0
    region = np.tile([0, 0, 1, 0, -1, -1], (n, 1))
    return head.Seen(rng.normal(size=(3, n, 5)), patches, weights, np.repeat([0, 1], 3), region)


class TestHead:
    def test_slopes_against_differences(self, head: ModuleType) -> None:
        seen = made_up(head)
        rng = np.random.default_rng(1)
        weights = head.new_weights(seen, 3, rng)
        weights["attention"] = rng.normal(size=6)
        weights["first bias"] = rng.normal(size=head.HIDDEN)
        labels = rng.integers(3, size=len(seen))
        shown = head.changed(seen, np.arange(len(seen)), rng)
        _, slopes = head.loss_and_slopes(weights, shown, labels)
        for name, values in weights.items():
            for place in rng.permutation(values.size)[:8]:
                both = []
                for step in (1e-6, -1e-6):
                    moved = {**weights, name: values.copy()}
                    moved[name].flat[place] += step
                    both.append(head.loss_and_slopes(moved, shown, labels)[0])
                numeric = (both[0] - both[1]) / 2e-6
                assert slopes[name].flat[place] == pytest.approx(numeric, abs=1e-6), name

    def test_it_learns_labels(self, head: ModuleType) -> None:
        seen = made_up(head)
        labels = np.arange(12) % 3
        rng = np.random.default_rng(0)
        weights = head.train(head.new_weights(seen, 3, rng), seen, np.arange(12), labels, rng)
        found = head.probabilities(weights, head.as_it_is(seen))
        assert (found.argmax(axis=1) == labels).all()
        assert found.sum(axis=1) == pytest.approx(1)

    def test_it_is_repeatable(self, head: ModuleType) -> None:
        seen, vectors = made_up(head, 24), blobs([8, 8, 8])
        first, again = (head.learnt(seen, vectors) for _ in range(2))
        assert np.array_equal(first, again)
        assert first.shape == (24, 6)
        assert not np.array_equal(first, head.learnt(seen, vectors, random_state=1))

    def test_attention_finds_the_patch_that_tells(self, head: ModuleType) -> None:
        """Kinds that only one of six patches shows, at any place, and the whole not at all."""
        rng = np.random.default_rng(0)
        patches = rng.normal(0, 0.3, (40, 6, 3))
        labels = np.arange(40) % 2
        telling = rng.integers(6, size=40)
        patches[np.arange(40), telling] = np.where(labels[:, None], [3, 3, 0], [3, -3, 0])
        seen = head.Seen(
            np.zeros((2, 40, 1)),
            patches,
            np.full((40, 6), 1 / 6),
            np.zeros(6, int),
            np.full((40, 6), -1),
        )
        weights = head.new_weights(seen, 2, rng)
        weights = head.train(weights, seen, np.arange(30), labels[:30], rng)
        found = head.probabilities(weights, head.as_it_is(seen))[30:].argmax(axis=1)
        assert (found == labels[30:]).all()
        shares = head._forward(weights, head.as_it_is(seen))[0]
        assert shares[np.arange(40), telling].min() > 1.2 / 6


class TestChanges:
    def test_what_is_left_of_an_image(self, head: ModuleType) -> None:
        seen = made_up(head, 2000)
        shown = head.changed(seen, np.arange(2000), np.random.default_rng(0))
        assert shown.kept.any(axis=1).all()
        assert not shown.kept[:, 5].any()  # without weight it is never shown
        alone = [(shown.whole == seen.wholes[which]).all(axis=1) for which in range(3)]
        assert np.sum(alone, axis=0).tolist() == [1] * 2000
        for view in (1, 2):
            assert 0.07 < alone[view].mean() < 0.13  # a fifth of the draws, of two views
            others = shown.kept[alone[view]][:, seen.view != view - 1]
            # Only where nothing would be left the patches of the other view stay.
            assert others.any(axis=1).mean() < 0.25
        whole = shown.kept[alone[0]]
        assert 0.4 < whole[:, :5].mean() < 0.6
        first_region = (whole[:, [0, 1, 3]].all(axis=1)) & ~whole[:, [2, 4]].any(axis=1)
        assert first_region.mean() > 0.1  # by chance it would be one in 32

    def test_one_view_and_no_regions(self, head: ModuleType) -> None:
        seen = head.Seen(
            np.ones((2, 50, 3)),
            np.ones((50, 4, 2)),
            np.ones((50, 4)),
            np.zeros(4, int),
            np.full((50, 4), -1),
        )
        shown = head.changed(seen, np.arange(50), np.random.default_rng(0))
        assert np.array_equal(shown.whole, seen.wholes[0])
        assert shown.kept.any(axis=1).all()


class TestLabels:
    def test_the_surest_of_each_cluster_teach(self, head: ModuleType) -> None:
        labels = np.array([0, 0, 0, 0, 0, 1, 1, 2])
        sure = np.array([5.0, 1, 4, 2, 3, 0, 1, 0])
        assert head.surest(labels, sure).tolist() == [0, 2, 4, 6, 7]

    def test_margins_against_loops(self, head: ModuleType) -> None:
        vectors = np.random.default_rng(0).normal(size=(9, 2))
        labels = np.array([0, 1, 2] * 3)
        centres = [vectors[labels == one].mean(axis=0) for one in range(3)]
        for row, found in enumerate(head.margins(vectors, labels)):
            apart = [float(np.linalg.norm(vectors[row] - centre)) for centre in centres]
            own = apart.pop(labels[row])
            assert found == pytest.approx(min(apart) - own)

    def test_answers_beside_embeddings(self, head: ModuleType) -> None:
        rng = np.random.default_rng(0)
        vectors, answers = rng.normal(size=(20, 4)), rng.random((20, 3))
        joined = head.beside(vectors, answers, 0.3)
        assert np.array_equal(joined[:, :4], vectors)
        spreads = [np.sqrt(one.var(axis=0).sum()) for one in (joined[:, :4], joined[:, 4:])]
        assert spreads[1] == pytest.approx(0.3 * spreads[0])
        alike = head.beside(vectors, np.full((20, 3), 1 / 3), 0.3)
        assert np.abs(alike[:, 4:]).max() < 1e-6


def small_bags(n: int, seed: int) -> Bags:
    rng = np.random.default_rng(seed)

    def of(grid: tuple[int, int], dim: int) -> Bags:
        patches = rng.normal(size=(n, grid[0] * grid[1], dim)) + 3
        patches /= np.linalg.norm(patches, axis=2, keepdims=True)
        return Bags(patches.astype(np.float32), grid)

    first = of((8, 8), 6)
    return Bags(first.patches, first.grid, beside=(of((4, 4), 5),))


class TestSeen:
    @pytest.mark.parametrize("known", [True, False])
    def test_residuals_against_plain_differences(self, refine: ModuleType, known: bool) -> None:
        bags, normals = small_bags(9, 0), small_bags(10, 1)
        model = AnomalyClusterer(n_clusters=2, arithmetic="float32").fit(
            bags, normal=normals if known else None
        )
        (first, _) = refine.references_of(model.fitted_.describer.reference)
        chosen = np.array([[0, 5, 63]] * 9)
        peers = {digest: row for row, digest in enumerate(model.fitted_.gallery)}
        own = refine.rows_of(model.images_.digests, {} if known else peers)
        found = refine.residuals(bags.views[0], first, chosen, own)
        for image in range(9):
            others = normals.patches if known else np.delete(bags.patches, image, axis=0)
            for place, patch in enumerate(chosen[image]):
                here = bags.patches[image, patch]
                near = np.mean(
                    [bag[np.linalg.norm(bag - here, axis=1).argmin()] for bag in others], axis=0
                )
                assert found[image, place] == pytest.approx(here - near, abs=1e-5)

    def test_both_views_with_their_weights_and_regions(self, refine: ModuleType) -> None:
        bags = small_bags(9, 0)
        model = AnomalyClusterer(n_clusters=2, arithmetic="float32").fit(bags)
        seen = refine.seen_of(model, bags)
        assert len(seen) == 9
        assert seen.view.tolist() == [0] * 64 + [1] * 16
        assert (seen.patches[:, :64, 6:] == 0).all()
        assert (seen.patches[:, 64:, :6] == 0).all()
        assert seen.weights[:, :64].sum(axis=1) == pytest.approx(1)
        assert seen.weights[:, 64:].sum(axis=1) == pytest.approx(1)
        # The heaviest patch of each image lies in one of its own regions, if it has any.
        outlines = model.fitted_.regions.outlines
        for image in range(9):
            heaviest = seen.region[image, 0]
            assert heaviest == -1 or outlines.images[heaviest] == image
        # Without the other view, what it said is the same for all images.
        columns = refine._columns(model, 2)
        assert sorted(np.concatenate(columns).tolist()) == list(range(6 + 5 + 6 + 5))


@pytest.fixture(scope="module")
def category(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of plates with known-good ones."""
    folder = tmp_path_factory.mktemp("sets") / "plates"
    for kind, places in (("dent", range(7)), ("streak", range(7, 14)), ("good", range(14, 20))):
        (folder / "test" / kind).mkdir(parents=True)
        for number in places:
            Image.fromarray(plate(kind, number)).save(folder / "test" / kind / f"{number}.png")
    (folder / "train" / "good").mkdir(parents=True)
    for number in range(20, 30):
        Image.fromarray(plate("good", number)).save(folder / "train" / "good" / f"{number}.png")
    return folder


def test_a_whole_run_is_measured_once(
    refine: ModuleType,
    category: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, cache = tmp_path / "rows.jsonl", tmp_path / "cache"
    given = ["--data", str(category), "--preset", "fast", "--subsets", "3", "--images", "18",
             "--normals", "9", "--results", str(path), "--cache", str(cache)]  # fmt: skip
    refine.main(given)
    first = capsys.readouterr().out
    rows = refine.read_json(path, refine.Row)
    assert [(row.mode, row.images, row.normals) for row in rows] == [
        ("none", 18, 0),
        ("normals", 18, 9),
    ]
    for row in rows:
        assert list(row.found) == ["default", "share .3", "share .5", "alone"]
        assert all(len(values) == 3 for values in row.found.values())
    assert rows[1].found["default"] == pytest.approx([1, 1, 1])  # plates are easy
    assert "(an oracle)" in first
    assert "This needs two sets" in first

    monkeypatch.setattr(refine, "measure", None)  # would fail if it were called
    refine.main(given)
    assert capsys.readouterr().out == first


def test_gains_are_of_the_same_subsets(refine: ModuleType) -> None:
    row = refine.Row(set="a", mode="none", preset="default", images=9, normals=0, subsets=2,
                     version="", seconds=1.0,
                     found={"default": [0.1, 0.5], "share .3": [0.2, 0.6], "share .5": [0.1, 0.1],
                            "alone": [0.0, 0.0]})  # fmt: skip
    assert refine.less(row, "share .3") == pytest.approx([0.1, 0.1])
    assert refine.with_error(refine.less(row, "share .3"), signed=True) == "+.100 +- .000"
    assert refine.with_error(refine.less(row, "share .5"), signed=True) == "-.200 +- .141"
    figures = refine.figures_of([row])
    assert figures == {
        "none": {"default": {"a": pytest.approx(0.3)}, "share .3": {"a": pytest.approx(0.4)},
                 "share .5": {"a": pytest.approx(0.1)}}
    }  # fmt: skip

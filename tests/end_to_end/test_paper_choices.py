"""Everything that the paper compares, for one's own images: each choice against plain loops, saved
and opened again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage
from scipy.spatial.distance import pdist, squareform

from flawsort import AnomalyClusterer, open_run
from flawsort.clusters.clusterers import CLUSTERERS
from flawsort.clusters.ward import cut
from flawsort.core.errors import FlawsortError, InputError, OptionError
from flawsort.core.records import Bags
from flawsort.embeddings.method import DISTANCES, EMBEDDINGS, LINKAGES, PRESETS, Method
from flawsort.embeddings.pooling import average_pooling
from helpers.bags import Array, flawed_patches, same_partition
from helpers.plates import SIDE, Cli, settings, write_plates

PAPER = PRESETS["paper"]
KINDS = [0] * 5 + [1] * 4 + [2] * 3
GRID = (6, 6)


@pytest.fixture(scope="module")
def bags() -> Bags:
    return Bags(flawed_patches(KINDS), GRID)


def fitted(bags: Bags, *, n_clusters: Any = 3, maps: Any = None, **changes: Any) -> Any:
    method = replace(PAPER, **changes)
    return AnomalyClusterer(n_clusters=n_clusters, method=method, maps=maps).fit(bags)


def distances(bags: Bags) -> Array:
    """(n, n, n_patches): from each patch of an image to the nearest one of another."""
    patches = bags.patches.astype(float)
    return np.array(
        [
            [np.sqrt(((one[:, None] - other[None]) ** 2).sum(2)).min(1) for other in patches]
            for one in patches
        ]
    )


def others(values: Array) -> Array:
    """The same without the image itself: (n, n - 1, n_patches)."""
    n = len(values)
    return np.array([values[i][[j for j in range(n) if j != i]] for i in range(n)])


class TestWeights:
    @pytest.mark.parametrize("over", ["mean", "max", "min"])
    def test_over_the_peers(self, bags: Bags, over: str) -> None:
        model = fitted(bags, among_peers=over)
        expected = getattr(others(distances(bags)), over)(axis=1)
        np.testing.assert_allclose(model.scores_, expected, atol=2e-4)
        again = AnomalyClusterer(method=replace(PAPER, among_peers=over), n_clusters=3)
        assert np.array_equal(again.fit(bags).scores_, model.scores_)

    @pytest.mark.parametrize("kind", ["soft", "hard"])
    def test_of_the_highest_scores_alone(self, bags: Bags, kind: Any) -> None:
        model = fitted(bags, top_k=3, top_weights=kind)
        scores = model.scores_.astype(float)
        for row, weights in zip(scores, model.weights_, strict=True):
            top = np.argsort(-row, kind="stable")[:3]
            expected = np.zeros(len(row))
            expected[top] = np.exp(row[top] / (0.3 * scores.std())) if kind == "soft" else 1.0
            np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-4)
        pooled = average_pooling(bags.patches, model.weights_)
        np.testing.assert_allclose(model.embeddings_, pooled, atol=1e-6)

    def test_of_the_default_pooling(self, bags: Bags) -> None:
        method = Method(top_k=1, top_weights="hard")
        model = AnomalyClusterer(n_clusters=3, method=method).fit(bags)
        assert ((model.weights_ > 0).sum(axis=1) == 1).all()
        assert (model.weights_.argmax(axis=1) == model.scores_.argmax(axis=1)).all()

    def test_new_images_are_compared_alike(self, bags: Bags, tmp_path: Path) -> None:
        model = fitted(bags, among_peers="max", top_k=4, top_weights="hard")
        model.save(tmp_path / "run", report=False)
        opened = AnomalyClusterer.load(tmp_path / "run")
        assert opened.describer_.method == model.describer_.method
        new = Bags(flawed_patches(KINDS[4:], seed=3), GRID)
        for one in (model, opened):
            found = one.describer_.describe(new)
            expected = [
                [np.sqrt(((p - bag.astype(float)) ** 2).sum(1)).min() for bag in bags.patches]
                for p in new.patches.reshape(-1, 12).astype(float)
            ]
            largest = np.max(expected, axis=1).reshape(len(new), -1)
            np.testing.assert_allclose(found.scores, largest, atol=2e-4)
            assert ((found.weights > 0).sum(axis=1) == 4).all()


class TestDistances:
    @pytest.mark.parametrize("name", [one for one in DISTANCES if one != EMBEDDINGS])
    def test_are_those_of_plain_loops(self, bags: Bags, name: str) -> None:
        patches = bags.patches.astype(float)
        n = len(patches)
        square = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                far = np.sqrt(((patches[i][:, None] - patches[j][None]) ** 2).sum(2))
                there, back = far.min(1), far.min(0)
                square[i, j] = {
                    "mean-mean": lambda far=far: far.mean(),
                    "max-min max": lambda a=there, b=back: max(a.max(), b.max()),
                    "max-min mean": lambda a=there, b=back: (a.max() + b.max()) / 2,
                    "min-min": lambda a=there: a.min(),
                    "mean-min max": lambda a=there, b=back: max(a.mean(), b.mean()),
                    "mean-min mean": lambda a=there, b=back: (a.mean() + b.mean()) / 2,
                }[name]()
        np.fill_diagonal(square, 0)
        model = fitted(bags, distance=name)
        expected = linkage(squareform(square, checks=False), "ward")
        np.testing.assert_allclose(model.linkage_[:, 2], expected[:, 2], atol=1e-3)
        if name.startswith("max-min"):  # in the others, images of one kind may be equally near
            assert same_partition(model.labels_, fcluster(expected, 3, "maxclust"))
        assert model.warnings_[0].startswith(f"The groups go by the distance {name} between images")

    @pytest.mark.parametrize("name", ["max-min max", "mean-mean"])
    def test_are_in_single_precision_whatever_the_scores_are(self, bags: Bags, name: str) -> None:
        found = [
            AnomalyClusterer(
                method=replace(PAPER, distance=name, exact=False), n_clusters=3, arithmetic=one
            ).fit(bags)
            for one in ("int8", "float32")
        ]
        assert np.array_equal(found[0].linkage_, found[1].linkage_)
        assert not np.array_equal(found[0].scores_, found[1].scores_)

    def test_several_views_have_none(self, bags: Bags) -> None:
        two = replace(bags, beside=(bags,))
        with pytest.raises(OptionError, match=r"distance must be 'embeddings' where images are"):
            AnomalyClusterer(method=Method(distance="min-min")).fit(two)

    def test_new_images_are_placed_by_embeddings(self, bags: Bags, tmp_path: Path) -> None:
        model = fitted(bags, distance="max-min max")
        model.save(tmp_path / "run")
        opened = AnomalyClusterer.load(tmp_path / "run")
        middles = [model.embeddings_[model.labels_ == one].mean(axis=0) for one in range(3)]
        far = np.linalg.norm(model.embeddings_[:, None] - np.array(middles)[None], axis=2)
        assert np.array_equal(opened.assign(bags)[1].nearest, far.argmin(axis=1))
        assert "max-min max" in (tmp_path / "run" / "report.html").read_text()


class TestClusterers:
    @pytest.mark.parametrize("clusterer", CLUSTERERS)
    @pytest.mark.parametrize("distance", [EMBEDDINGS, "max-min max"])
    def test_groups_trees_and_the_order_of_images(
        self, bags: Bags, clusterer: str, distance: str
    ) -> None:
        if distance != EMBEDDINGS and clusterer in ("kmeans", "gmm"):
            with pytest.raises(OptionError, match="clusterer must be 'kmedoids', 'spectral', "):
                fitted(bags, clusterer=clusterer, distance=distance)
            return
        model = fitted(bags, clusterer=clusterer, distance=distance)
        assert is_valid_linkage(model.linkage_)
        assert (np.diff(model.linkage_[:, 2]) >= 0).all()
        assert np.array_equal(cut(model.linkage_, model.n_clusters_), model.labels_)
        order = np.random.default_rng(1).permutation(len(bags))
        moved = fitted(bags.take(order), clusterer=clusterer, distance=distance)
        assert same_partition(moved.labels_, model.labels_[order])
        if clusterer in LINKAGES and distance == EMBEDDINGS:
            expected = linkage(pdist(model.embeddings_.astype(float)), clusterer)
            np.testing.assert_allclose(model.linkage_[:, 2], expected[:, 2], atol=1e-6)
        else:
            assert any(clusterer in note for note in model.warnings_) or clusterer in LINKAGES

    def test_blobs_are_found_by_all(self, bags: Bags) -> None:
        for clusterer in CLUSTERERS:
            model = fitted(bags, clusterer=clusterer, top_k=2)
            if clusterer != "spectral":  # its affinities join what lies near
                assert same_partition(model.labels_, np.array(KINDS)), clusterer

    def test_the_number_may_be_advised(self, bags: Bags) -> None:
        for clusterer in ("kmedoids", "average"):
            model = fitted(bags, clusterer=clusterer, top_k=2, n_clusters="auto")
            assert model.n_clusters_ == model.advice_.k == len(set(model.labels_))

    def test_fewer_groups_than_asked_for_are_said(self) -> None:
        patches = flawed_patches([0, 1])[[0, 1] * 3]
        patches[:, 0, 0] += np.arange(6) * np.float16(2e-3)  # copies but for a trace
        patches /= np.linalg.norm(patches.astype(np.float32), axis=2, keepdims=True)
        model = fitted(Bags(patches.astype(np.float16), GRID), n_clusters=5, clusterer="kmeans")
        assert model.n_clusters_ == len(set(model.labels_)) <= 5

    def test_a_run_understands_them(self, bags: Bags, tmp_path: Path) -> None:
        model = fitted(bags, clusterer="kmeans", top_k=2)
        run = model.save(tmp_path / "run")
        again = open_run(tmp_path / "run")
        assert np.array_equal(again.labels, model.labels_)
        assert again.manifest["settings"]["clusterer"] == "kmeans"
        assert list(again.table["cluster"]) == model.labels_.tolist()
        # Images of the run go to the group that k-means gave them: that of the nearest centre.
        assert list(again.predict(bags)["name"]) == list(run.table["name"])
        opened = AnomalyClusterer.load(tmp_path / "run")
        assert np.array_equal(opened.assign(bags)[1].nearest, model.labels_)
        assert opened.method.clusterer == "kmeans"

    def test_an_older_run_has_none_of_these_choices(self, bags: Bags, tmp_path: Path) -> None:
        from flawsort.runs.model import method_of

        run = fitted(bags).save(tmp_path / "run", report=False)
        model = dict(run.manifest["model"])
        new = ("among_peers", "top_k", "top_weights", "distance", "clusterer")
        model["method"] = {k: v for k, v in model["method"].items() if k not in new}
        assert method_of(model) == PAPER


class TestMaps:
    @pytest.fixture(scope="class")
    @staticmethod
    def plates(tmp_path_factory: pytest.TempPathFactory) -> Path:
        home = tmp_path_factory.mktemp("maps")
        write_plates(home / "parts", ("dent",) * 4 + ("streak",) * 4)
        rng = np.random.default_rng(0)
        (home / "masks").mkdir()
        (home / "heat").mkdir()
        for number, path in enumerate(sorted((home / "parts").iterdir())):
            marked = np.zeros((SIDE, SIDE), np.uint8)
            marked[8 : 8 + 8 * (1 + number % 3), 16:37] = 255
            if number:  # the first has no mask
                Image.fromarray(marked).save(home / "masks" / f"{path.stem}_mask.png")
            np.save(home / "heat" / f"{path.stem}.npy", rng.random((2 * SIDE, SIDE)))
        (home / "twice").mkdir()
        for name in ("dent00.npy", "dent00_mask.npy"):
            np.save(home / "twice" / name, np.ones((2, 2)))
        return home

    @staticmethod
    def model(plates: Path, maps: str | None, **changes: Any) -> AnomalyClusterer:
        given = None if maps is None else plates / maps
        chosen = settings(method=replace(PAPER, **changes), n_clusters=2, maps=given)
        return AnomalyClusterer(**chosen).fit(plates / "parts")

    def test_masks(self, plates: Path) -> None:
        model = self.model(plates, "masks", weights="masks")
        rows, columns = model.grid_
        for number, name in enumerate(model.images_.names):
            path = plates / "masks" / f"{Path(name).stem}_mask.png"
            expected = np.full(rows * columns, 1 / (rows * columns))
            if number:
                marked = np.asarray(Image.open(path)) > 0
                cell = marked.reshape(rows, SIDE // rows, columns, SIDE // columns).mean((1, 3))
                expected = cell.ravel() / cell.sum()
                np.testing.assert_allclose(model.scores_[number], cell.ravel(), atol=1e-6)
            np.testing.assert_allclose(model.weights_[number], expected, atol=1e-6)
        assert (model.heat_.low, model.heat_.high) == (0, 1)
        assert set(model.regions_.outlines.images) == set(range(1, len(model.images_)))
        assert model.scored_ == "weighed by their masks"
        assert model.warnings_[0].startswith("7 images have a mask and 1 of 8 have none: of these")
        assert model.describer_.reference is None

    def test_heat_of_another_detector(self, plates: Path) -> None:
        model = self.model(plates, "heat", weights="heat-maps")
        rows, columns = model.grid_
        scores = []
        for name in model.images_.names:
            heat = np.load(plates / "heat" / f"{Path(name).stem}.npy")
            cells = heat.reshape(rows, 2 * SIDE // rows, columns, SIDE // columns)
            scores.append(cells.mean((1, 3)).ravel())
        expected = np.exp(np.array(scores) / (0.3 * np.std(scores)))
        np.testing.assert_allclose(model.scores_, scores, atol=1e-6)
        np.testing.assert_allclose(
            model.weights_, expected / expected.sum(1, keepdims=True), rtol=1e-4
        )

    def test_heat_and_residuals(self, plates: Path) -> None:
        given = {path.name: np.ones((4, 4)) for path in (plates / "parts").iterdir()}
        for values in given.values():
            values[0, 0] = 9.0
        method = Method(weights="heat-maps")
        chosen = settings(method=method, n_clusters=2, maps=given)
        model = AnomalyClusterer(**chosen).fit(plates / "parts", normal=plates / "parts")
        assert "; weighed by their heat maps" in model.scored_
        assert (model.scores_[:, 0] == 9).all()
        assert model.looks_normal_ is None

    def test_new_images_have_none(self, plates: Path, tmp_path: Path) -> None:
        model = self.model(plates, "masks", weights="masks")
        model.save(tmp_path / "run")
        opened = AnomalyClusterer.load(tmp_path / "run")
        for one in (model, opened):
            with pytest.raises(InputError, match=r"^New images cannot be described: the weights "):
                one.predict(plates / "parts")
        assert "compared by what their masks mark" in (tmp_path / "run/report.html").read_text()

    @pytest.mark.parametrize(
        ("maps", "changes", "message"),
        [
            (None, {"weights": "masks"}, "maps must name the folder of the masks"),
            ("none", {"weights": "masks"}, "maps must be a folder of masks"),
            ("twice", {"weights": "masks"}, "An image has one map. Got two of the same name"),
            ("masks", {"weights": "heat-maps"}, "must have heat maps named as the images"),
            ("masks", {}, "maps is for the weights 'masks' and 'heat-maps'"),
        ],
    )
    def test_what_makes_no_sense(
        self, plates: Path, maps: str | None, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(FlawsortError, match=message):
            self.model(plates, maps, **changes)

    def test_too_little_memory_says_what_needs_it(self, plates: Path) -> None:
        method = replace(PAPER, weights="masks")
        chosen = settings(method=method, maps=plates / "masks", max_memory="100M")
        said = r"for 8 images, all held at once for weights from masks\. Got 100 MB\.$"
        with pytest.raises(OptionError, match=said):
            AnomalyClusterer(**chosen).fit(plates / "parts")

    def test_normals_have_no_effect_on_masks(self, plates: Path) -> None:
        method = replace(PAPER, weights="masks")
        model = AnomalyClusterer(**settings(method=method, maps=plates / "masks"))
        with pytest.raises(OptionError, match="'masks' does not compare images, so normal images"):
            model.fit(plates / "parts", normal=plates / "parts")

    def test_not_on_ray(self, plates: Path) -> None:
        method = replace(PAPER, weights="masks")
        model = AnomalyClusterer(**settings(method=method, maps=plates / "masks", runner="ray"))
        with pytest.raises(OptionError, match="'local' for weights from masks: all images are"):
            model.fit(plates / "parts")


class TestCommand:
    def test_examples_have_no_masks(self, cli: Cli, parts: Path, tmp_path: Path) -> None:
        maps, kinds = tmp_path / "maps", tmp_path / "kinds" / "dent"
        maps.mkdir()
        kinds.mkdir(parents=True)
        for path in sorted(parts.iterdir())[:2]:
            (maps / path.name).write_bytes(path.read_bytes())
            (kinds / path.name).write_bytes(path.read_bytes())
        options = ("--weights", "masks", "--maps", str(maps), "--examples", str(kinds.parent))
        run = tmp_path / "run"
        answer = cli(
            "cluster", str(parts), "-o", str(run), *options, "--preset", "fast", *self.SMALL
        )
        assert answer.code == 2
        assert "--examples are images outside the run, which have no masks." in answer.err

    @pytest.fixture(scope="class")
    @staticmethod
    def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
        home = tmp_path_factory.mktemp("command")
        write_plates(home / "parts", ("dent",) * 4 + ("streak",) * 4)
        return home / "parts"

    SMALL = ("--backbone", "efficientnet-lite2", "--image-size", str(SIDE), "--no-cache", "-q")

    def test_all_options_arrive(self, cli: Cli, parts: Path, tmp_path: Path) -> None:
        options = ("--distance", "mean-min-max", "--clusterer", "complete", "--among-peers", "min")
        options += ("--top-k", "5", "--top-weights", "hard", "--preset", "fast", "-k", "2")
        run = tmp_path / "run"
        answer = cli("cluster", str(parts), "-o", str(run), *options, *self.SMALL)
        assert (answer.code, answer.err) == (0, "")
        assert "Note: The groups go by the distance mean-min max between images." in answer.out
        method = open_run(run).manifest["model"]["method"]
        assert method["distance"] == "mean-min max"
        assert (method["clusterer"], method["among_peers"]) == ("complete", "min")
        assert (method["top_k"], method["top_weights"], method["nearest_share"]) == (5, "hard", 1)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--distance", "far"), "--distance must be 'embeddings', 'mean-mean'"),
            (("--clusterer", "k"), "--clusterer must be 'kmeans', 'gmm', 'kmedoids'"),
            (("--among-peers", "sum"), "--among-peers must be 'mean', 'max' or 'min'."),
            (("--top-k", "0"), "--top-k must be a whole number of patches, at least 1. Got 0."),
            (("--top-weights", "hard"), "--top-weights says how the patches of top_k are weighed"),
            (
                ("--top-weights", "hard", "--top-k", "4", "--temperature", "1"),
                "--temperature has no effect on hard weights",
            ),
            (
                ("--among-peers", "max", "--nearest-share", ".5"),
                "--among-peers must be 'mean' where only the nearest peers count.",
            ),
            (("--clusterer", "gmm", "--distance", "min-min"), "--clusterer must be 'kmedoids'"),
            (("--weights", "masks"), "--maps must name the folder of the masks"),
            (("--weights", "masks", "--pooling", "residual"), "--pooling must be 'average'"),
            (("--weights", "uniform", "--top-k", "3"), "--top-k needs scores"),
        ],
    )
    def test_one_line_says_what_makes_no_sense(
        self, cli: Cli, parts: Path, tmp_path: Path, options: tuple[str, ...], message: str
    ) -> None:
        answer = cli(
            "cluster", str(parts), "-o", str(tmp_path / "run"), *options, "--preset", "fast",
            *self.SMALL,
        )  # fmt: skip
        assert answer.code == 2
        assert message in answer.err
        assert len(answer.err.strip().splitlines()) <= 2

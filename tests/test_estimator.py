"""AnomalyClusterer: every kind of input, scikit-learn's conventions, determinism, errors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from flawsort import (
    AnomalyClusterer,
    BackboneError,
    Bags,
    InputError,
    Method,
    OptionError,
    Run,
    View,
    open_run,
)
from flawsort.backbones import BackboneInfo, load_backbone
from flawsort.backbones.embed import embed
from flawsort.backbones.patches import patch_embeddings
from flawsort.core.text import either
from flawsort.embeddings.extent import N_EXTENTS
from flawsort.embeddings.method import poolings_of_any_weights
from flawsort.embeddings.pooling import POOLINGS
from flawsort.health.record import Finding
from flawsort.images.find import array_images, find_images
from helpers.bags import same_partition
from helpers.part_batches import assert_same_values
from helpers.picture_files import png16
from helpers.plates import KINDS, NORMALS, SIDE, groups, plate, plate_arrays, settings, write_plates

POOLING_NAMES = either(f"'{name}'" for name in POOLINGS)
UNIFORM_POOLINGS = either(f"'{name}'" for name in poolings_of_any_weights())

RESULTS = ("labels_", "scores_", "weights_", "embeddings_", "linkage_")


def fit(images: Any, normal: Any = None, **parameters: Any) -> AnomalyClusterer:
    return AnomalyClusterer(**settings(n_clusters=2, **parameters)).fit(images, normal=normal)


def assert_same(one: AnomalyClusterer, other: AnomalyClusterer) -> None:
    for name in RESULTS:
        first, second = getattr(one, name), getattr(other, name)
        assert first.dtype == second.dtype
        assert np.array_equal(first, second), name
    assert (one.valid_ is None) == (other.valid_ is None)
    assert one.heat_ == other.heat_
    assert one.advice_ == other.advice_


def by_kind(model: AnomalyClusterer) -> bool:
    """Whether the groups are the planted kinds; names begin with the kind."""
    names = model.images_.names
    kinds = {frozenset(name for name in names if name[0] == letter) for letter in "ds"}
    return groups(model.labels_, names) == kinds


@pytest.fixture(scope="module")
def bags(plates: Path) -> tuple[Bags, Bags]:
    backbone = load_backbone("efficientnet-lite2", image_size=SIDE)
    parts, good = (find_images(plates / name) for name in ("parts", "good"))
    return embed(parts, backbone, View()).bags, embed(good, backbone, View()).bags


class TestInputs:
    def test_folder(self, fitted: AnomalyClusterer) -> None:
        n, n_patches = 14, 64
        assert by_kind(fitted)
        assert fitted.grid_ == (8, 8)
        assert fitted.scores_.shape == fitted.weights_.shape == (n, n_patches)
        assert fitted.embeddings_.shape[0] == n
        assert fitted.linkage_.shape == (n - 1, 4)
        assert fitted.valid_ is None
        assert fitted.warnings_ == []
        assert fitted.images_.names[0] == "dent00.png"
        assert np.allclose(fitted.weights_.sum(axis=1), 1, atol=1e-5)
        assert {"find", "embed", "score", "cluster"} <= fitted.timings_.keys()

    def test_the_flaw_has_the_weight(self, fitted: AnomalyClusterer) -> None:
        rng = np.random.default_rng([0, 0])
        rng.normal(120, 8, (SIDE, SIDE, 3))
        row, column = rng.integers(14, 44, 2)
        hot = int(fitted.scores_[0].argmax())
        assert abs(hot // 8 * 8 + 4 - (row + 5)) <= 12
        assert abs(hot % 8 * 8 + 4 - (column + 5)) <= 12

    @pytest.mark.parametrize("form", [str, Path])
    @pytest.mark.parametrize("seed", [1, 2])
    def test_results_line_up_with_a_list(
        self, fitted: AnomalyClusterer, plates: Path, form: type, seed: int
    ) -> None:
        order = np.random.default_rng(seed).permutation(14)
        names = [fitted.images_.names[row] for row in order]
        paths = [form(plates / "parts" / name) for name in names]
        model = fit(paths, plates / "good")
        assert list(model.images_.names) == names
        for name in ("scores_", "weights_", "embeddings_"):
            assert np.array_equal(getattr(model, name), getattr(fitted, name)[order])
        assert np.array_equal(model.linkage_[:, 2:], fitted.linkage_[:, 2:])
        assert groups(model.labels_, names) == groups(fitted.labels_, fitted.images_.names)
        assert model.heat_ == fitted.heat_
        assert model.advice_ == fitted.advice_
        assert np.array_equal(fitted.predict(paths), fitted.labels_[order])
        images, found, scores = fitted.assign(paths)
        assert list(images.names) == names
        assert np.array_equal(found.labels, fitted.labels_[order])
        assert np.allclose(scores, fitted.scores_[order], atol=1e-6)

    def test_a_list_with_a_folder_is_sorted_by_name(
        self, fitted: AnomalyClusterer, plates: Path
    ) -> None:
        single = plates / "parts" / "streak13.png"
        assert_same(fit([single, plates / "parts"], plates / "good"), fitted)
        assert_same(fit([str(plates / "parts"), str(single)], plates / "good"), fitted)

    def test_a_glob_and_an_image_set(self, fitted: AnomalyClusterer, plates: Path) -> None:
        assert_same(fit(str(plates / "parts" / "*.png"), plates / "good"), fitted)
        assert_same(fit(find_images(plates / "parts"), find_images(plates / "good")), fitted)

    def test_arrays(self, fitted: AnomalyClusterer) -> None:
        model = fit(plate_arrays(), plate_arrays(NORMALS))
        # Groups of equal size are numbered by content, and an array is other content than a file.
        assert same_partition(model.labels_, fitted.labels_)
        assert model.images_.names[3] == "image-00003"
        stacked = fit(np.stack(plate_arrays()), np.stack(plate_arrays(NORMALS)))
        assert_same(stacked, model)

    def test_one_array_is_one_image(self, fitted: AnomalyClusterer) -> None:
        array = plate("dent", 99)
        assert fitted.predict(array).tolist() == fitted.predict([array]).tolist() == [0]
        images, found, scores = fitted.assign(array)
        assert len(images) == len(found.labels) == len(scores) == 1
        with pytest.raises(InputError, match=r"At least 2 images .* Found 1 array\."):
            fit(array)

    def test_pil_images(self, fitted: AnomalyClusterer, plates: Path) -> None:
        paths = sorted((plates / "parts").iterdir())
        pictures = [Image.open(path) for path in paths]
        model = fit(pictures, [Image.open(path) for path in sorted((plates / "good").iterdir())])
        assert_same(model, fit(plate_arrays(), plate_arrays(NORMALS)))
        assert np.array_equal(fitted.predict(pictures), fitted.predict(paths))
        assert fitted.predict(pictures[0]).tolist() == fitted.labels_[:1].tolist()

    def test_bags(self, fitted: AnomalyClusterer, bags: tuple[Bags, Bags]) -> None:
        model = fit(*bags)
        assert np.array_equal(model.labels_, fitted.labels_)
        assert np.allclose(model.scores_, fitted.scores_, atol=1e-6)
        assert model.backbone_ is None
        assert model.images_.names[:2] == ("bag-00000", "bag-00001")
        assert np.array_equal(model.predict(bags[0]), model.labels_)

    def test_inputs_are_not_modified(self, bags: tuple[Bags, Bags]) -> None:
        arrays, normal = plate_arrays(), plate_arrays(NORMALS)
        kept = [array.copy() for array in arrays], [array.copy() for array in normal]
        fit(arrays, normal).predict(arrays)
        assert all(map(np.array_equal, arrays + normal, kept[0] + kept[1]))
        before = bags[0].patches.copy(), bags[1].patches.copy()
        fit(*bags).predict(bags[0])
        fit(bags[0])
        assert np.array_equal(bags[0].patches, before[0])
        assert np.array_equal(bags[1].patches, before[1])

    def test_bags_from_outside_are_checked(self, bags: tuple[Bags, Bags]) -> None:
        images, normals = bags
        fitted = fit(*bags)
        for value in (0.0, 2.0, np.nan, np.inf):
            odd = images.patches.copy()
            odd[3, 5] *= np.float16(value)
            wrong = Bags(odd, images.grid)
            for use in (
                lambda wrong=wrong: fit(wrong),
                lambda wrong=wrong: fit(images, wrong),
                lambda wrong=wrong: fitted.predict(wrong),
            ):
                with (
                    np.errstate(all="ignore"),
                    pytest.raises(InputError, match="must be finite and of unit length"),
                ):
                    use()
        valid = np.ones(images.patches.shape[:2], bool)
        valid[2] = False
        hidden = Bags(images.patches, images.grid, valid)
        for use in (
            lambda: fit(hidden, normals),
            lambda: fit(images, hidden),
            lambda: fitted.predict(hidden),
        ):
            with pytest.raises(InputError, match="Every image needs a valid patch"):
                use()

    @pytest.mark.parametrize("normal", [True, False])
    @pytest.mark.parametrize("method", ["default", "paper"])
    def test_what_patches_show_that_do_not_count_does_not_matter(
        self, bags: tuple[Bags, Bags], method: str, normal: bool
    ) -> None:
        models, answers = [], []
        for seed in (0, 1):
            rng = np.random.default_rng(7)
            made = []
            for given in bags:
                valid = rng.random(given.patches.shape[:2]) > 0.3
                patches = given.patches.copy()
                # Patches of other images, so that they would be near ones if they took part.
                others = bags[0].patches.reshape(-1, given.dim)
                strange = np.random.default_rng(seed).permutation(others)
                patches[~valid] = strange[: (~valid).sum()]
                made.append(Bags(patches, given.grid, valid))
            model = fit(made[0], made[1] if normal else None, method=method)
            models.append(model)
            answers.append(model.assign(made[1]))
        assert_same(*models)
        (_, one, scores), (_, other, other_scores) = answers
        assert np.array_equal(one.labels, other.labels)
        assert np.array_equal(one.novelty, other.novelty)
        assert np.array_equal(scores, other_scores)

    def test_bags_with_files_are_refused(self, plates: Path, bags: tuple[Bags, Bags]) -> None:
        message = "Give images and normals both as files or arrays, or both as Bags."
        for images, normal in ((bags[0], plates / "good"), (plates / "parts", bags[1])):
            with pytest.raises(InputError, match=message):
                fit(images, normal)

    def test_bags_of_another_shape_are_refused(self, bags: tuple[Bags, Bags]) -> None:
        narrow = Bags(bags[1].patches[..., :8], bags[1].grid)
        with pytest.raises(InputError, match=r"patches and dimensions in every view\. Got"):
            fit(bags[0], narrow)
        message = "as many patches and dimensions as the images of the fit"
        with pytest.raises(InputError, match=message):
            fit(*bags).predict(narrow)

    def test_paths_among_arrays_are_refused(self, plates: Path) -> None:
        mixed = [*plate_arrays(), plates / "parts" / "dent00.png"]
        with pytest.raises(
            InputError, match=r"Image 14 must be an array.*To use files, pass their"
        ):
            fit(mixed)

    def test_files_for_a_model_of_bags_are_refused(
        self, plates: Path, bags: tuple[Bags, Bags]
    ) -> None:
        with pytest.raises(InputError, match="fitted on Bags: give new images as Bags too"):
            fit(*bags).predict(plates / "parts")

    def test_bad_files_are_set_aside(self, plates: Path, tmp_path: Path) -> None:
        shutil.copytree(plates / "parts", tmp_path / "parts")
        whole = (tmp_path / "parts" / "dent00.png").read_bytes()
        (tmp_path / "parts" / "a-cut.png").write_bytes(whole[: len(whole) // 2])
        (tmp_path / "parts" / "empty.png").touch()
        model = fit(tmp_path / "parts", plates / "good")
        assert by_kind(model)
        reasons = {entry.name: entry.reason for entry in model.images_.set_aside}
        assert reasons.keys() == {"a-cut.png", "empty.png"}
        assert "truncated" in reasons["a-cut.png"]
        assert len(model.labels_) == len(model.images_) == len(model.scores_) == 14

    def test_predict_refuses_what_assign_goes_on_without(
        self, fitted: AnomalyClusterer, plates: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "cut.png").write_text("no image")
        (tmp_path / "empty.png").touch()
        good = plates / "parts" / "dent03.png"
        paths = [tmp_path / "cut.png", good, tmp_path / "empty.png"]
        images, found, scores = fitted.assign(paths)
        assert images.names == ("dent03.png",)
        assert {entry.name for entry in images.set_aside} == {"cut.png", "empty.png"}
        assert len(found.labels) == len(scores) == 1
        with pytest.raises(InputError) as refused:
            fitted.predict(paths)
        first = images.set_aside[0]
        assert str(refused.value) == (
            f"2 of the images cannot be used, the first '{first.name}': {first.reason}. "
            "Leave them out, or call assign, which sets them aside."
        )
        assert fitted.predict([good]).tolist() == fitted.labels_[3:4].tolist()


def with_copies(arrays: list[Any], *rows: int) -> list[Any]:
    return [*(arrays[row] for row in rows[:2]), *arrays, *(arrays[row] for row in rows[2:])]


class TestCopies:
    @pytest.mark.parametrize("normal", [True, False])
    @pytest.mark.parametrize("method", ["default", "paper", Method(n_peers=5)])
    def test_copies_change_nothing_for_anybody(self, method: Any, normal: bool) -> None:
        good = plate_arrays(NORMALS) if normal else None
        first = fit(plate_arrays(), good, method=method)
        copied = (13, 3, 0, 0, 0, 0, 0, 9)
        second = fit(with_copies(plate_arrays(), *copied), good, method=method)
        for name in ("scores_", "weights_", "embeddings_"):
            alone, among = getattr(first, name), getattr(second, name)
            assert np.array_equal(among[2:16], alone)
            assert np.array_equal(among[:2], alone[[13, 3]])
            assert np.array_equal(among[16:], alone[list(copied[2:])])
        assert second.heat_ == first.heat_
        assert second.describer_.temperature == first.describer_.temperature
        assert second.describer_.spread == first.describer_.spread
        assert_same_values(second.describer_.axes, first.describer_.axes)
        (look,), (again,) = first.describer_.looks, second.describer_.looks
        assert (look.whitening is None) == (method == "paper")
        assert look.arrays().keys() == again.arrays().keys()
        for name, values in look.arrays().items():
            assert np.array_equal(again.arrays()[name], values)
        assert second.scored_ == first.scored_
        assert len(second.labels_) == len(second.linkage_) + 1 == 22
        originals = second.labels_[2:16]
        assert second.labels_[:2].tolist() == originals[[13, 3]].tolist()
        assert second.labels_[16:].tolist() == originals[list(copied[2:])].tolist()

    def test_copies_of_files(self, fitted: AnomalyClusterer, plates: Path, tmp_path: Path) -> None:
        shutil.copytree(plates / "parts", tmp_path / "parts")
        for name in ("a.png", "z.png"):
            shutil.copy(plates / "parts" / "streak08.png", tmp_path / "parts" / name)
        model = fit(tmp_path / "parts", plates / "good")
        rows = [model.images_.names.index(name) for name in fitted.images_.names]
        for name in ("scores_", "weights_", "embeddings_"):
            assert np.array_equal(getattr(model, name)[rows], getattr(fitted, name))
            for copy in (0, 15):
                assert np.array_equal(getattr(model, name)[copy], getattr(fitted, name)[8])
        assert model.images_.duplicates() == (("a.png", "streak08.png", "z.png"),)

    def test_copies_of_bags(self, bags: tuple[Bags, Bags]) -> None:
        for normals in (None, bags[1]):
            first = fit(bags[0], normals)
            rows = np.array([5, *range(14), 5, 11])
            second = fit(bags[0].take(rows), normals)
            for name in ("scores_", "weights_", "embeddings_"):
                assert np.array_equal(getattr(second, name), getattr(first, name)[rows])

    def test_copies_of_normals(self, bags: tuple[Bags, Bags]) -> None:
        parts, good = plate_arrays(), plate_arrays(NORMALS)
        assert_same(fit(parts, with_copies(good, 3, 3, 7, 7, 7)), fit(parts, good))
        assert_same(fit(bags[0], bags[1].take([*range(10), 4, 4])), fit(*bags))

    def test_copies_of_what_cannot_be_used(self, plates: Path, tmp_path: Path) -> None:
        shutil.copytree(plates / "parts", tmp_path / "parts")
        for name in ("a.png", "m.png", "z.png"):
            (tmp_path / "parts" / name).write_text("no image")
        model = fit(tmp_path / "parts", plates / "good")
        assert by_kind(model)
        assert [entry.name for entry in model.images_.set_aside] == ["a.png", "m.png", "z.png"]
        assert all("not an image" in entry.reason for entry in model.images_.set_aside)

    @pytest.mark.parametrize("normal", [True, False])
    @pytest.mark.parametrize("method", ["default", "paper"])
    def test_nothing_but_copies(self, method: str, normal: bool) -> None:
        good = plate_arrays(NORMALS) if normal else None
        model = fit([plate("dent", 0)] * 3, good, method=method)
        assert np.isfinite(model.embeddings_).all()
        assert np.isfinite(model.scores_).all()
        assert (model.embeddings_ == model.embeddings_[0]).all()
        assert sorted(set(model.labels_)) == [0, 1]  # as asked for, whatever it means
        assert model.advice_.ambiguous

    @pytest.mark.parametrize("normal", [True, False])
    def test_two_contents(self, normal: bool) -> None:
        good = plate_arrays(NORMALS) if normal else None
        model = fit([plate("dent", 0), plate("streak", 1)] * 3, good)
        assert model.labels_.tolist() == [0, 1] * 3


class TestConventions:
    def test_parameters(self) -> None:
        model = AnomalyClusterer(n_clusters=3, method="paper", random_state=5)
        assert model.get_params()["method"] == "paper"
        assert model.set_params(n_clusters=4) is model
        copy = clone(model)
        assert copy is not model
        assert copy.get_params() == model.get_params()
        with pytest.raises(ValueError, match="Invalid parameter"):
            model.set_params(k=3)

    def test_constructor_only_stores(self) -> None:
        given = {"n_clusters": "x", "method": object(), "image_size": -1, "random_state": "y"}
        model = AnomalyClusterer(**given)
        assert all(getattr(model, name) is value for name, value in given.items())
        assert not [name for name in vars(model) if name.endswith("_")]

    def test_fit_returns_self_and_changes_no_parameter(self, bags: tuple[Bags, Bags]) -> None:
        model = AnomalyClusterer(**settings(n_clusters=np.int64(2)))
        before = model.get_params()
        assert model.fit(*bags[:1], normal=bags[1]) is model
        assert model.get_params() == before

    def test_labels_count_from_zero_by_size(self, bags: tuple[Bags, Bags]) -> None:
        for k in (2, 3, 5, 14):
            labels = AnomalyClusterer(**settings(n_clusters=k)).fit_predict(bags[0], normal=bags[1])
            assert labels.dtype.kind == "i"
            assert sorted(set(labels)) == list(range(k))
            sizes = np.bincount(labels)
            assert list(sizes) == sorted(sizes, reverse=True)

    def test_fit_predict_is_labels(self, fitted: AnomalyClusterer, bags: tuple[Bags, Bags]) -> None:
        model = AnomalyClusterer(**settings(n_clusters=2))
        labels = ["hole"] * 3 + [None] * 11  # change the groups, not the clusters
        found = model.fit_predict(bags[0], y=labels, normal=bags[1])
        assert np.array_equal(found, model.labels_)
        assert np.array_equal(found, fitted.labels_)

    def test_auto_takes_the_advice(self, bags: tuple[Bags, Bags]) -> None:
        model = AnomalyClusterer(**settings()).fit(bags[0], normal=bags[1])
        assert model.n_clusters_ == model.advice_.k == len(set(model.labels_))
        assert model.advice_.low <= 2

    def test_predict_on_the_same_images(self, fitted: AnomalyClusterer, plates: Path) -> None:
        assert np.array_equal(fitted.predict(plates / "parts"), fitted.labels_)

    def test_predict_says_when_a_kind_is_new(self, fitted: AnomalyClusterer) -> None:
        strange = np.zeros((SIDE, SIDE, 3), np.uint8)
        strange[::8] = 255
        assert fitted.predict([strange, plate("dent", 99)]).tolist() == [-1, fitted.labels_[0]]

    def test_not_fitted(self, plates: Path, tmp_path: Path) -> None:
        for use in (
            lambda model: model.predict(plates / "parts"),
            lambda model: model.assign(plates / "parts"),
            lambda model: model.save(tmp_path / "run"),
        ):
            for kind in (OptionError, NotFittedError):
                with pytest.raises(kind, match="not fitted yet: call fit or load first"):
                    use(AnomalyClusterer())

    def test_progress(self, plates: Path, bags: tuple[Bags, Bags]) -> None:
        heard: list[tuple[str, int, int]] = []
        fit(plates / "parts", plates / "good", progress=lambda *event: heard.append(event))
        assert heard[0] == ("embedding", 0, 14)
        stages = {"embedding", "embedding normals", "scoring", "measuring", "comparing"}
        assert {stage for stage, _, _ in heard} == stages
        for stage in ("measuring", "comparing"):  # or the time of the first batch passes in silence
            assert next(done for one, done, _ in heard if one == stage) == 0
        assert all(0 <= done <= total for _, done, total in heard)


class TestDeterminism:
    @pytest.mark.parametrize("normal", [True, False])
    def test_twice_the_same(self, plates: Path, normal: bool) -> None:
        good = plates / "good" if normal else None
        assert_same(fit(plates / "parts", good), fit(plates / "parts", good))

    @pytest.mark.parametrize("normal", [True, False])
    def test_names_and_order_change_nothing(
        self, plates: Path, tmp_path: Path, normal: bool
    ) -> None:
        good = plates / "good" if normal else None
        first = fit(plates / "parts", good)
        (tmp_path / "renamed").mkdir()
        places = np.random.default_rng(0).permutation(14)
        for path, place in zip(sorted((plates / "parts").iterdir()), places, strict=True):
            shutil.copy(path, tmp_path / "renamed" / f"{place:02d}.png")
        second = fit(tmp_path / "renamed", good)
        assert np.array_equal(second.embeddings_[places], first.embeddings_)
        assert np.array_equal(second.scores_[places], first.scores_)
        assert np.array_equal(second.labels_[places], first.labels_)  # their numbers, too
        assert np.array_equal(second.linkage_[:, 2], first.linkage_[:, 2])

    @pytest.mark.parametrize("method", ["default", "paper"])
    def test_permuted_arrays(self, method: str) -> None:
        arrays = plate_arrays()
        order = np.random.default_rng(1).permutation(len(arrays))
        first = fit(arrays, method=method)
        second = fit([arrays[row] for row in order], method=method)
        rows = [str(row) for row in order]
        assert np.array_equal(second.embeddings_, first.embeddings_[order])
        assert np.array_equal(second.weights_, first.weights_[order])
        assert groups(second.labels_, rows) == groups(first.labels_[order], rows)

    def test_permuted_bags_that_differ_in_valid_alone(self, bags: tuple[Bags, Bags]) -> None:
        patches = bags[0].patches[[0, 0, 8, 9]]
        valid = np.ones(patches.shape[:2], bool)
        valid[0, 32:], valid[1, :32] = False, False
        first = fit(Bags(patches, (8, 8), valid), bags[1])
        second = fit(Bags(patches[::-1], (8, 8), valid[::-1]), bags[1])
        assert np.array_equal(second.embeddings_[::-1], first.embeddings_)
        assert first.images_.duplicates() == ()

    def test_the_linkage_is_that_of_the_rows_shown(self, fitted: AnomalyClusterer) -> None:
        left, right, height, size = fitted.linkage_[0]
        one, other = fitted.embeddings_[[int(left), int(right)]].astype(np.float64)
        assert height == pytest.approx(np.linalg.norm(one - other), rel=1e-6)
        assert size == 2


class TestErrors:
    @pytest.mark.parametrize(
        ("n_clusters", "message"),
        [
            (0, r"n_clusters must be at least 2\. Got 0\."),
            (1, r"n_clusters must be at least 2\. Got 1\."),
            (-3, r"n_clusters must be at least 2\. Got -3\."),
            ("x", r"n_clusters must be 'auto' or a whole number\. Got 'x'\."),
            (True, r"n_clusters must be 'auto' or a whole number\. Got True\."),
            (2.0, r"n_clusters must be 'auto' or a whole number\. Got 2\.0\."),
            (None, r"n_clusters must be 'auto' or a whole number\. Got None\."),
            (15, r"n_clusters must be between 2 and 14 \(the number of images\)\. Got 15\."),
        ],
    )
    def test_n_clusters(self, plates: Path, n_clusters: Any, message: str) -> None:
        with pytest.raises(OptionError, match=message):
            AnomalyClusterer(**settings(n_clusters=n_clusters)).fit(plates / "parts")

    def test_n_clusters_of_usable_images(self, plates: Path, tmp_path: Path) -> None:
        shutil.copytree(plates / "parts", tmp_path / "parts")
        (tmp_path / "parts" / "dent00.png").write_text("no image")
        with pytest.raises(
            OptionError, match=r"between 2 and 13 \(the number of images\)\. Got 14"
        ):
            AnomalyClusterer(**settings(n_clusters=14)).fit(tmp_path / "parts")

    @pytest.mark.parametrize("seed", [-1, 1.5, "x", None, True])
    def test_random_state(self, seed: Any) -> None:
        with pytest.raises(OptionError, match=r"random_state must be a whole number from 0\. Got"):
            fit(plate_arrays(), random_state=seed)

    def test_fewer_than_two_images(self, plates: Path, tmp_path: Path) -> None:
        # Nothing has been read yet: the file may be damaged.
        message = r"^At least 2 images are needed to group them\. Found 1 "
        with pytest.raises(InputError, match=message + r"file\.$"):
            fit(plates / "parts" / "dent00.png")
        with pytest.raises(InputError, match=message + r"array\.$"):
            fit(plate_arrays(["dent"]))
        write_plates(tmp_path / "few", ["dent"])
        (tmp_path / "few" / "empty.png").touch()
        with pytest.raises(InputError, match=message + r"file; 1 was set aside, 'empty\.png': is"):
            fit(tmp_path / "few")
        (tmp_path / "few" / "blank.png").touch()
        with pytest.raises(InputError, match=r"file; 2 were set aside, the first 'blank\.png': is"):
            fit(tmp_path / "few")
        for name in ("empty", "blank"):
            (tmp_path / "few" / f"{name}.png").unlink()
        (tmp_path / "few" / "text.png").write_text("no image")
        with pytest.raises(InputError, match=r"Got 1; 1 was set aside\."):
            fit(tmp_path / "few")
        (tmp_path / "few" / "dent00.png").write_text("no image either")
        with pytest.raises(InputError, match=r"No usable image: all 2 were set aside\. The first"):
            fit(tmp_path / "few")

    def test_nothing_given(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="No images: the sequence of arrays is empty"):
            fit([])
        with pytest.raises(InputError, match="does not exist"):
            fit(tmp_path / "nowhere")
        with pytest.raises(InputError, match="No images under"):
            fit(tmp_path)

    def test_uniform_weights_have_no_use_for_normals(self, tmp_path: Path) -> None:
        method = Method(weights="uniform", pooling="average")
        with pytest.raises(
            OptionError, match=r"normal images have no effect\. Leave one of the two"
        ):
            fit(tmp_path / "not looked for", tmp_path / "nor this", method=method)

    def test_method(self) -> None:
        with pytest.raises(OptionError, match="method must be one of default, fast, paper or a"):
            fit(plate_arrays(), method="quick")

    @pytest.mark.parametrize(
        ("choices", "message"),
        [
            (
                {"weights": "x"},
                "weights must be 'auto', 'uniform', 'masks' or 'heat-maps'. Got 'x'.",
            ),
            ({"pooling": "max"}, f"pooling must be {POOLING_NAMES}. Got 'max'."),
            ({"nearest_share": 0}, "nearest_share must be greater than 0 and at most 1. Got 0."),
            ({"nearest_share": 1.1}, "at most 1. Got 1.1."),
            ({"n_peers": 1}, "n_peers must be 'all' or at least 2. Got 1."),
            ({"n_peers": "some"}, "n_peers must be 'all' or at least 2. Got some."),
            ({"temperature": 0.0}, "temperature must be greater than 0 and finite. Got 0.0."),
            ({"temperature": float("nan")}, "temperature must be greater than 0 and finite"),
            ({"temperature": float("inf")}, "temperature must be greater than 0 and finite"),
            ({"absolute_temperature": -1}, "absolute_temperature must be greater than 0"),
            ({"temperature": 1, "absolute_temperature": 1}, "not both"),
            ({"weights": "uniform"}, f"pooling must be {UNIFORM_POOLINGS} for uniform weights"),
        ],
    )
    def test_method_choices(self, choices: dict[str, Any], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            Method(**choices)

    def test_backbone(self, tmp_path: Path) -> None:
        with pytest.raises(BackboneError, match="backbone must be one of efficientnet-lite2, dino"):
            fit(plate_arrays(), backbone="resnet")
        with pytest.raises(BackboneError, match="image_size must be a multiple of 32"):
            AnomalyClusterer(n_clusters=2, image_size=50, cache=None).fit(plate_arrays())


class TestHealth:
    def test_normals_that_are_images_too(self, plates: Path) -> None:
        normal = [plates / "good", plates / "parts" / "dent00.png"]
        found = _findings(fit(plates / "parts", normal))
        assert found["normals-among-images"].images == ("dent00.png",)

    def test_few_normals(self) -> None:
        found = _findings(fit(plate_arrays(), plate_arrays(["good"] * 3)))
        assert found["few-normals"].sentence.startswith("There are only 3 known-good images:")

    def test_copies(self) -> None:
        arrays = plate_arrays()
        model = fit([*arrays, arrays[0], arrays[0], arrays[9]])
        found = _findings(model)
        assert found["copies"].sentence == "3 of the 17 images are exact copies of others."
        assert len(set(model.labels_[[0, 14, 15]])) == len(set(model.labels_[[9, 16]])) == 1


def _findings(model: AnomalyClusterer) -> dict[str, Finding]:
    health = model.make_run().health
    assert health is not None
    assert model.warnings_ == []
    return {one.code: one for one in health.findings}


class TestWays:
    def test_presets_differ(self, fitted: AnomalyClusterer, plates: Path) -> None:
        paper = fit(plates / "parts", plates / "good", method="paper")
        assert by_kind(paper)
        assert paper.n_dims_ == fitted.n_dims_ == paper.embeddings_.shape[1]
        # Beside pooled patches, mean patches and extents.
        assert fitted.embeddings_.shape[1] == 2 * paper.n_dims_ + N_EXTENTS
        assert not np.allclose(paper.weights_, fitted.weights_)
        average = fit(plate_arrays(), method="paper")
        assert not np.array_equal(average.scores_, fit(plate_arrays()).scores_)
        assert average.scored_ == "compared with each other (NumPy on the CPU, float32)"

    def test_uniform(self) -> None:
        model = fit(plate_arrays(), method=Method(weights="uniform", pooling="average"))
        assert np.all(model.weights_ == np.float32(1 / 64))
        assert np.all(model.scores_ == 0)
        assert model.scored_ == "every patch alike"
        assert np.array_equal(model.predict(plate_arrays()) >= 0, np.ones(14, bool))

    def test_sampled_peers(self) -> None:
        model = fit(plate_arrays(), method=Method(n_peers=5))
        assert model.scored_ == "compared with a sample of 5 of them (NumPy on the CPU, float32)"

    def test_padding_gets_no_weight(self) -> None:
        wide = [array[16:48] for array in plate_arrays()]
        good = [array[16:48] for array in plate_arrays(NORMALS)]
        model = fit(wide, good, view=View(fit="pad"))
        assert model.valid_ is not None
        rows = model.valid_.reshape(14, 8, 8)
        assert not rows[:, [0, 1, 6, 7]].any()
        assert rows[:, 2:6].all()
        assert np.all(model.weights_[~model.valid_] == 0)
        assert np.allclose(model.weights_.sum(axis=1), 1, atol=1e-5)
        assert np.array_equal(model.predict(wide), model.labels_)
        scores = model.assign(wide)[2]
        assert np.array_equal(scores[model.valid_], model.scores_[model.valid_])
        assert np.all(scores[~model.valid_] == scores.min())

    def test_mask(self, plates: Path, tmp_path: Path) -> None:
        inside = np.full((SIDE, SIDE), 255, np.uint8)
        inside[:32, :32] = 0
        Image.fromarray(inside).save(tmp_path / "mask.png")
        view = View(mask=tmp_path / "mask.png")
        model = fit(plates / "parts", plates / "good", view=view)
        assert model.valid_ is not None
        assert not model.valid_.reshape(14, 8, 8)[:, :4, :4].any()
        assert model.valid_.sum() == 14 * 48
        assert np.all(model.weights_[~model.valid_] == 0)

    def test_box(self) -> None:
        """A region of interest that leaves the flaws out leaves nothing to tell them by."""
        edges = [array.copy() for array in plate_arrays()]
        for array in edges:
            array[:, :12] = plate("good", 0)[:, :12]
        model = fit(edges, view=View(roi=(0, 0, 8, 64)))
        assert np.ptp(model.embeddings_, axis=0).max() < 1e-5

    def test_tiles(self, plates: Path) -> None:
        model = fit(plates / "parts", plates / "good", view=View(tiles=(2, 1)))
        assert model.grid_ == (15, 8)
        assert model.scores_.shape == (14, 120)
        assert by_kind(model)


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plates of 16 bits that use a small part of them, where 8 bits would show nothing."""
    folder = tmp_path_factory.mktemp("deep")
    for name, kinds in (("parts", KINDS), ("good", NORMALS)):
        (folder / name).mkdir()
        for number, kind in enumerate(kinds):
            values = 30_000 + plate(kind, number).astype(np.uint16)
            (folder / name / f"{kind}{number:02d}.png").write_bytes(png16(values))
    return folder


class TestDeepImages:
    def test_end_to_end(self, deep: Path, tmp_path: Path) -> None:
        model = fit(deep / "parts", deep / "good")
        assert by_kind(model)
        window = model.view_.window
        assert window is not None
        assert 30_000 <= window[0] < window[1] <= 30_255
        model.save(tmp_path / "run")
        loaded = AnomalyClusterer.load(tmp_path / "run")
        loaded.cache = None
        assert loaded.view_.window == window
        # One image alone would have another window: only that of the run gives the same scores.
        single = deep / "parts" / "streak13.png"
        assert np.allclose(loaded.assign(single)[2], model.scores_[-1:], atol=1e-6)
        assert loaded.predict(single).tolist() == model.labels_[-1:].tolist()

    def test_a_given_window_is_kept(self, deep: Path) -> None:
        view = View(window=(29_000, 31_000))
        assert fit(deep / "parts", deep / "good", view=view).view_.window == (29_000, 31_000)

    def test_shallow_images_have_no_window(self, fitted: AnomalyClusterer) -> None:
        assert fitted.view_.window is None


class Corners:
    """A stub of a backbone: every other pixel is a patch, its colour the patch's values."""

    info = BackboneInfo("corners", "0" * 64, "none", "a test", (8, 8))

    def feature_maps(self, pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return [pixels[:, :, ::2, ::2]]


def corner_bags(images: list[NDArray[np.uint8]]) -> NDArray[np.float64]:
    """(n, 16, 3): their patches, in half precision as bags have it."""
    pixels = np.stack(images).transpose(0, 3, 1, 2).astype(np.float32) / 255
    return patch_embeddings([pixels[:, :, ::2, ::2]])[0].astype(np.float16).astype(np.float64)


def distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Between vectors of any length: half precision makes them a little longer or shorter."""
    return float(np.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True))))


class TestGolden:
    @pytest.fixture
    def images(self) -> tuple[list[NDArray[np.uint8]], list[NDArray[np.uint8]]]:
        """Grey parts: three with a red corner, two with a blue side, one with a green middle."""
        parts = [np.full((8, 8, 3), 100 + i, np.uint8) for i in range(6)]
        for i, place in ((0, np.s_[:4, :4]), (2, np.s_[:4, 4:]), (5, np.s_[4:, 4:])):
            parts[i][place] = (220, 30, 30)
        for i, place in ((1, np.s_[:, :4]), (3, np.s_[:, 4:])):
            parts[i][place] = (30, 30, 220)
        parts[4][2:6, 2:6] = (30, 220, 30)
        return parts, [np.full((8, 8, 3), 90 + i, np.uint8) for i in range(10)]

    @pytest.fixture(autouse=True)
    def _stub(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flawsort.estimator.open_backbone", lambda *_, **__: Corners())

    @pytest.mark.parametrize("method", ["default", "paper"])
    def test_labels(self, images: Any, method: str) -> None:
        parts, good = images
        model = AnomalyClusterer(n_clusters=3, method=method, cache=None)
        assert model.fit_predict(parts, normal=good).tolist() == [0, 1, 0, 1, 2, 0]
        assert model.grid_ == (4, 4)
        assert model.predict(parts).tolist() == [0, 1, 0, 1, 2, 0]

    def test_scores_are_distances_to_the_nearest_normal_patch(self, images: Any) -> None:
        parts, good = images
        model = AnomalyClusterer(n_clusters=3, method="paper", cache=None).fit(parts, normal=good)
        normals = corner_bags(good).reshape(-1, 3)
        for image, patches in enumerate(corner_bags(parts)):
            for place, patch in enumerate(patches):
                nearest = min(distance(patch, normal) for normal in normals)
                assert model.scores_[image, place] == pytest.approx(nearest, abs=1e-5)

    def test_the_paper_from_peers(self, images: Any) -> None:
        model = AnomalyClusterer(n_clusters=3, method="paper", cache=None).fit(images[0])
        bags = corner_bags(images[0])
        scores = np.zeros((6, 16))
        for i, place in np.ndindex(6, 16):
            peers = [bags[j] for j in range(6) if j != i]
            scores[i, place] = np.mean(
                [min(distance(bags[i, place], patch) for patch in peer) for peer in peers]
            )
        # Squared distances below 4e-6 are 0, as rounding cannot tell them from it.
        assert np.allclose(model.scores_, scores, atol=2e-3)
        weights = np.exp(scores / (0.3 * scores.std()))
        weights /= weights.sum(axis=1, keepdims=True)
        assert np.allclose(model.weights_, weights, atol=1e-3)
        pooled = (weights[..., None] * bags).sum(axis=1)
        assert np.allclose(model.embeddings_, pooled, atol=1e-3)

    def test_another_backbone_later_is_refused(
        self, images: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = AnomalyClusterer(n_clusters=3, cache=None).fit(images[0], normal=images[1])
        monkeypatch.setattr(
            Corners, "info", BackboneInfo("corners", "1" * 64, "none", "a test", (8, 8))
        )
        with pytest.raises(BackboneError, match="has changed since the fit: its SHA-256 is"):
            model.predict(array_images(images[0]))


class TestRunInPython:
    """What `open_run` gives, and what `save` returns."""

    @pytest.fixture
    def run(self, saved: Path) -> Run:
        return open_run(saved)

    def test_save_returns_what_open_run_gives(
        self, fitted: AnomalyClusterer, tmp_path: Path
    ) -> None:
        made = fitted.save(tmp_path / "run", report=False)
        again = open_run(tmp_path / "run")
        assert type(made) is type(again) is Run
        assert repr(made) == repr(again)
        np.testing.assert_array_equal(made.labels, again.labels)

    def test_its_repr_is_three_lines(self, run: Run) -> None:
        assert len(repr(run).splitlines()) == 3
        assert "14 images in 2 groups" in repr(run)

    def test_a_notebook_shows_groups_as_thumbnails(self, run: Run) -> None:
        page = run._repr_html_()
        assert page.count("data:image/jpeg;base64,") == 12  # six of each group
        assert len(run.groups) == 2

    def test_to_frame_has_a_row_an_image(self, run: Run) -> None:
        frame = run.to_frame()
        assert len(frame) == 14
        assert list(frame["name"]) == run.names

    def test_show_opens_the_report(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[str] = []
        monkeypatch.setattr("webbrowser.open", opened.append)
        run.show()
        assert opened == [(run.folder / "report.html").absolute().as_uri()]

    def test_export(self, run: Run, tmp_path: Path) -> None:
        written = run.export("csv", tmp_path / "labels")
        assert tmp_path / "labels" / "images.csv" in written
        with pytest.raises(OptionError, match=r"format must be one of csv, "):
            run.export("xls", tmp_path / "no")

    def test_evaluate_takes_labels_by_name_by_row_and_from_files(
        self, run: Run, tmp_path: Path
    ) -> None:
        by_row = [name[:4] for name in run.names]
        by_name = dict(zip(run.names, by_row, strict=True))
        table = tmp_path / "truth.csv"
        table.write_text("name,label\n" + "".join(f"{a},{b}\n" for a, b in by_name.items()))
        found = [run.evaluate(truth) for truth in (by_row, by_name, table, str(table))]
        assert found[0]["nmi"] == pytest.approx(1.0)
        assert all(one == found[0] for one in found)
        assert not (run.folder / "evaluation.json").exists()

    def test_evaluate_refuses_labels_of_other_images(self, run: Run) -> None:
        with pytest.raises(InputError, match=r"a label for each of the 14 images .* Got 1"):
            run.evaluate(["dent"])
        with pytest.raises(InputError, match=r"1 name that the run does not have, .* 'x.png'"):
            run.evaluate({"x.png": "dent"})

    def test_predict_and_model(self, run: Run, plates: Path) -> None:
        model = run.model()
        np.testing.assert_array_equal(model.predict(plates / "parts"), run.labels)
        assert model.n_clusters_ == 2
        found = run.predict(plates / "parts")
        assert list(found.columns) == ["name", "group", "probability", "decided", "verdict"]
        assert list(found["name"]) == run.names
        assert list(found["group"]) == [f"Group {label}" for label in run.labels]
        assert not any(found["decided"])
        assert set(found["verdict"]) == {""}
        assert all(value is None or np.isnan(value) for value in found["probability"])
        assert set(run.predict(plates / "good")["group"]) == {"normal"}

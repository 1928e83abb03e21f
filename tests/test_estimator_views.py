"""AnomalyClusterer with several backbones, and what its presets open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from flawsort import AnomalyClusterer, BackboneError, Bags, InputError, Method, OptionError, View
from flawsort import estimator as pipeline
from flawsort.backbones import (
    DEFAULT_BACKBONE,
    SECOND_BACKBONE,
    Backbone,
    BackboneChoice,
    load_backbone,
    open_backbone,
)
from flawsort.embeddings.extent import N_EXTENTS
from flawsort.embeddings.method import VIEWS, preset_of, resolve, views_of
from flawsort.fitting.fitted import Fitted
from flawsort.fitting.memory import Sizes
from flawsort.fitting.source import embed_views
from flawsort.images.find import array_images
from helpers.bags import flawed_patches, same_partition
from helpers.onnx_files import average_pool, two_strides
from helpers.plates import KINDS, NORMALS, plate, plate_arrays

PARTS, GOOD = plate_arrays(), plate_arrays(NORMALS)
KIND_OF = np.array([kind == "dent" for kind in KINDS])


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two ONNX files: maps of stride 8 and 16 together, and maps of stride 4."""
    folder = tmp_path_factory.mktemp("networks")
    paths = [folder / "two.onnx", folder / "fine.onnx"]
    paths[0].write_bytes(two_strides())
    paths[1].write_bytes(average_pool(4))
    return paths


def model(backbone: Any, **given: Any) -> AnomalyClusterer:
    return AnomalyClusterer(**{"n_clusters": 2, "cache": None, "backbone": backbone, **given})


def views(networks: Sequence[Path], **given: Any) -> list[BackboneChoice]:
    return [BackboneChoice(path, image_size=64, **given) for path in networks]


def bags_of(networks: Sequence[Path], images: list[Any]) -> Bags:
    opened = [open_backbone(choice) for choice in views(networks)]
    bags, _ = embed_views(array_images(images), opened, View())
    assert bags is not None
    return bags


@pytest.fixture
def nothing_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be computed")

    for name in ("open_backbone", "gather", "fit_set"):
        monkeypatch.setattr(pipeline, name, refuse)


# ---- several backbones ----


def test_two_backbones_look_side_by_side(networks: list[Path]) -> None:
    found = model(views(networks)).fit(PARTS, normal=GOOD)
    assert found.grid_ == (8, 8)
    assert found.scores_.shape == (14, 64)
    assert found.fitted_.bag_shapes == ((64, 6), (256, 3))
    assert found.embeddings_.shape == (14, 2 * (6 + 3) + N_EXTENTS)
    assert len(found.fitted_.backbones) == 2
    assert len(set(found.labels_[KIND_OF])) == len(set(found.labels_[~KIND_OF])) == 1
    assert found.labels_[0] != found.labels_[-1]
    assert found.predict([plate("dent", 60), plate("streak", 61)]).shape == (2,)


def test_names_paths_and_choices_are_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / f"{stride}.onnx" for stride in (8, 16)]
    for path, stride in zip(paths, (8, 16), strict=True):
        path.write_bytes(average_pool(stride, size=(64, 64)))
    forms: list[Any] = [
        [str(paths[0]), paths[1]],
        (BackboneChoice(paths[0]), str(paths[1])),
        [BackboneChoice(path, image_size=64) for path in paths],
    ]
    found = [model(form).fit(PARTS) for form in forms]
    for one in found:
        assert one.fitted_.bag_shapes == ((64, 3), (16, 3))
        np.testing.assert_array_equal(one.embeddings_, found[0].embeddings_)


def test_bags_of_two_views_give_the_same_as_files(networks: list[Path]) -> None:
    files = model(views(networks)).fit(PARTS, normal=GOOD)
    bags = model(None).fit(bags_of(networks, PARTS), normal=bags_of(networks, GOOD))
    assert bags.fitted_.bag_shapes == files.fitted_.bag_shapes
    np.testing.assert_allclose(bags.scores_, files.scores_, atol=1e-3)
    np.testing.assert_array_equal(bags.labels_, files.labels_)
    new = [plate("dent", 60), plate("good", 61)]
    np.testing.assert_allclose(
        bags.assign(bags_of(networks, new))[2], files.assign(new)[2], atol=1e-3
    )
    with pytest.raises(InputError, match=r"as the images of the fit, \(64, 6\), \(256, 3\)\. Got "):
        bags.assign(bags_of(networks[:1], new))
    with pytest.raises(InputError, match="as Bags too"):
        bags.assign(new)


@pytest.mark.parametrize("normals", [True, False])
def test_streamed_as_in_memory(networks: list[Path], normals: bool) -> None:
    normal = GOOD if normals else None
    # With all as peers, all would have to be in memory.
    method = Method() if normals else Method(n_peers=13)
    whole = model(views(networks), method=method).fit(PARTS, normal=normal)
    streamed = model(views(networks), method=method)
    streamed.sizes = Sizes(in_memory=1, batch_images=4)
    streamed.fit(PARTS, normal=normal)
    assert streamed.scores_.dtype == np.float16
    # A squared distance at the limit of rounding is 0 or not, by where its product was computed.
    apart = np.abs(streamed.scores_ - whole.scores_)
    assert (apart > 5e-3 + 2e-3 * np.abs(whole.scores_)).mean() < 5e-3
    assert apart.max() < 0.5
    assert same_partition(streamed.labels_, whole.labels_)


def test_the_order_of_files_does_not_matter(networks: list[Path]) -> None:
    order = np.random.default_rng(0).permutation(14)
    for normal in (None, GOOD):
        one = model(views(networks)).fit(PARTS, normal=normal)
        other = model(views(networks)).fit([PARTS[row] for row in order], normal=normal)
        np.testing.assert_array_equal(other.scores_, one.scores_[order])
        np.testing.assert_array_equal(other.embeddings_, one.embeddings_[order])


def test_it_is_cloned_with_its_backbones(networks: list[Path]) -> None:
    given = views(networks)
    assert clone(model(given)).get_params()["backbone"] == given


def test_a_backbone_that_changed_is_noticed(networks: list[Path], tmp_path: Path) -> None:
    changing = tmp_path / "changing.onnx"
    changing.write_bytes(average_pool(8))
    found = model(views([networks[0], changing])).fit(PARTS, normal=GOOD)
    changing.write_bytes(average_pool(16))
    with pytest.raises(BackboneError, match=r"'.*changing\.onnx' has changed since the fit"):
        found.predict(PARTS[:2])


# ---- what is refused ----


@pytest.mark.parametrize("method", ["paper", Method(calibrated=False)])
def test_two_backbones_need_calibrated_scores(
    networks: list[Path], method: Any, nothing_opens: None
) -> None:
    with pytest.raises(
        OptionError, match=r"must be a single one if scores are not calibrated.*Got 2"
    ):
        model(networks, method=method).fit(PARTS)


def test_an_own_method_without_calibration_has_one_view() -> None:
    assert views_of(Method(calibrated=False)) == VIEWS["fast"]
    assert views_of(Method()) == VIEWS["default"]


def test_bags_need_calibrated_scores_in_two_views_only(networks: list[Path]) -> None:
    patches = flawed_patches([0, 1] * 6)
    one = Bags(patches, (6, 6))
    found = model(None, method=Method(calibrated=False)).fit(one)
    assert found.scores_.shape == (12, 36)
    two = Bags(patches, (6, 6), beside=(one,))
    with pytest.raises(InputError, match=r"Bags must have one view for scores .* Got 2\."):
        model(None, method=Method(calibrated=False)).fit(two)
    assert model(None).fit(two).fitted_.bag_shapes == ((36, 12), (36, 12))


def test_no_backbone_at_all(nothing_opens: None) -> None:
    with pytest.raises(OptionError, match=r"must name at least one\. Got none\."):
        model([]).fit(PARTS)


def test_bags_of_images_and_normals_in_other_views(networks: list[Path]) -> None:
    with pytest.raises(InputError, match="same number of patches and dimensions in every view"):
        model(None).fit(bags_of(networks, PARTS), normal=bags_of(networks[:1], GOOD))


# ---- presets ----


def opened_by(monkeypatch: pytest.MonkeyPatch, estimator: AnomalyClusterer) -> list[BackboneChoice]:
    """What a fit opens, before it opens it."""
    seen: list[BackboneChoice] = []

    class EnoughError(Exception):
        pass

    def watched(choices: tuple[BackboneChoice, ...]) -> tuple[Backbone, ...]:
        seen.extend(choices)
        raise EnoughError

    monkeypatch.setattr(estimator, "_open", watched)
    with pytest.raises(EnoughError):
        estimator.fit(PARTS)
    return seen


def test_the_views_of_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    close = [BackboneChoice(DEFAULT_BACKBONE, image_size=512, grid=32), BackboneChoice(SECOND_BACKBONE)]  # fmt: skip  # noqa: E501
    small = [BackboneChoice(DEFAULT_BACKBONE)]
    for method, expected in (
        ("default", close), ("fast", small), ("paper", small), (Method(temperature=2.0), close),
    ):  # fmt: skip
        assert opened_by(monkeypatch, AnomalyClusterer(method=method)) == expected
    assert AnomalyClusterer().get_params()["backbone"] is None


def test_an_image_size_is_that_of_the_first_view(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = opened_by(monkeypatch, AnomalyClusterer(image_size=256))
    assert first == BackboneChoice(DEFAULT_BACKBONE, image_size=256, grid=32)
    assert second == BackboneChoice(SECOND_BACKBONE)
    given = AnomalyClusterer(backbone=["a.onnx", "b.onnx"], image_size=96, backbone_weights="w")
    assert opened_by(monkeypatch, given) == [
        BackboneChoice("a.onnx", "w", 96), BackboneChoice("b.onnx"),
    ]  # fmt: skip
    (alone,) = opened_by(monkeypatch, AnomalyClusterer(backbone=Path("a.onnx")))
    assert alone == BackboneChoice(Path("a.onnx"))


def test_every_preset_has_views_and_a_name() -> None:
    for name, choices in VIEWS.items():
        assert views_of(name) == choices
        assert preset_of(resolve(name), choices) == name
    assert preset_of(Method(temperature=2.0), VIEWS["default"]) is None
    assert preset_of(resolve("paper"), VIEWS["default"]) is None
    assert views_of(Method()) == VIEWS["default"]


@pytest.mark.parametrize("preset", ["fast", "paper"])
def test_an_opened_run_keeps_its_preset(tmp_path: Path, preset: str) -> None:
    found = AnomalyClusterer(n_clusters=2, method=preset, cache=None).fit(PARTS[5:9])
    assert found.save(tmp_path / "run").manifest["settings"]["preset"] == preset
    opened = AnomalyClusterer.load(tmp_path / "run")
    assert (opened.method, opened.backbone) == (preset, None)
    assert opened.get_params()["image_size"] is None
    np.testing.assert_array_equal(opened.predict(PARTS[5:9]), found.labels_)


def test_an_opened_run_keeps_its_own_views(networks: list[Path], tmp_path: Path) -> None:
    found = model(views(networks, grid=4), method=Method(temperature=2.0)).fit(PARTS)
    assert found.save(tmp_path / "run").manifest["settings"]["preset"] == "own"
    opened = AnomalyClusterer.load(tmp_path / "run")
    assert opened.method == Method(temperature=2.0)
    assert [choice.grid for choice in opened.backbone] == [4, 4]  # type: ignore[union-attr]
    again = opened.fit(PARTS)
    np.testing.assert_array_equal(again.scores_, found.scores_)
    assert isinstance(again.fitted_, Fitted)


def test_one_network_at_another_size_is_an_own_choice(networks: list[Path]) -> None:
    backbone = load_backbone(networks[0], image_size=64)
    found = model(networks[0], image_size=64, method="fast").fit(PARTS)
    assert found.fitted_.backbones == (backbone.info,)
    assert preset_of(found.describer_.method, found.fitted_.opened) is None

"""IIC, SCAN and GATCluster as estimators, on toy sets of which the groups are known.

Narrow networks stand for the real ones, which a CPU would take minutes for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from flawsort.core.errors import InputError, OptionError  # noqa: E402
from flawsort.core.records import Bags  # noqa: E402
from flawsort.images.find import array_images  # noqa: E402
from flawsort.images.view import View  # noqa: E402
from flawsort.research.deep import (  # noqa: E402
    IIC,
    SCAN,
    GATCluster,
    estimator,
    networks,
    training,
)
from flawsort.research.deep.augment import as_floats, as_pixels  # noqa: E402
from flawsort.research.deep.gatcluster import pairs_alike  # noqa: E402
from flawsort.research.deep.scan import (  # noqa: E402
    HEADS,
    _features,
    _Neighbours,
    nearest,
    neighbour_count,
)
from flawsort.research.deep.training import infer  # noqa: E402
from flawsort.research.metrics import agreement  # noqa: E402

SIDE = 64

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "RESIDUAL", "resnet18")
    stages = ((8, 8, 8), (16, 16, 16), (32, 32, 32), (32, 32))
    monkeypatch.setattr(networks.AttentionNetwork, "STAGES", stages)


def stripes(kinds: tuple[str, ...], count: int = 8) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Plates with dark stripes down, bright ones across, or none, at any offset."""
    rng = np.random.default_rng(0)
    images, truth = [], []
    for kind in kinds:
        for _ in range(count):
            image = rng.normal(120, 6, (SIDE, SIDE, 3))
            striped = (np.arange(SIDE) + rng.integers(8)) % 8 < 3
            if kind == "down":
                image[:, striped] = 20
            if kind == "across":
                image[striped] = 230
            images.append(np.clip(image, 0, 255).astype(np.uint8))
            truth.append(kind)
    return images, truth


def iic(**options: Any) -> IIC:
    chosen = {"n_epochs": 2, "side": 40, "crop_size": 32, "n_repeats": 2, "batch_size": 16}
    return IIC(**{"n_clusters": 2, "over_clusters": 3, "device": "cpu", **chosen, **options})


def scan(**options: Any) -> SCAN:
    chosen = {"n_epochs": 2, "label_epochs": 2, "image_size": 56, "batch_size": 12, "n_heads": 3}
    return SCAN(**{"n_clusters": 2, "pretrained": False, "device": "cpu", **chosen, **options})


def gatcluster(**options: Any) -> GATCluster:
    chosen = {"n_epochs": 2, "n_repeats": 2, "batch_size": 12}
    return GATCluster(**{"n_clusters": 2, "device": "cpu", **chosen, **options})


@cache
def trained(make: Callable[..., Any]) -> Any:
    """The method after training on two kinds of stripes. Shared: read it, never change it."""
    return make().fit(stripes(("down", "across"), 4)[0])


MAKERS: dict[str, Callable[..., Any]] = {"iic": iic, "scan": scan, "gatcluster": gatcluster}
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
every_method = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def stopped_and_resumed(
    make: Callable[..., Any],
    images: list[NDArray[np.uint8]],
    checkpoint: Path,
    stop_at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """The method after a training that was interrupted after so many epochs and went on."""
    plain = training.train
    monkeypatch.setattr(estimator, "train", lambda *a, **k: plain(*a, **{**k, "every": 0.0}))
    seen = 0

    def stop(stage: str, done: int, total: int) -> None:
        nonlocal seen
        seen += stage.startswith("training")
        if seen == stop_at:
            raise KeyboardInterrupt

    checkpoint.unlink(missing_ok=True)
    with pytest.raises(KeyboardInterrupt):
        make(checkpoint=checkpoint, progress=stop).fit(images)
    return make(checkpoint=checkpoint).fit(images)


class TestKnownGroupsAreFound:
    """Any of three seeds may do: each method has starts from which it does not get there."""

    def check(self, make: Callable[..., Any], kinds: tuple[str, ...], **options: Any) -> None:
        images, truth = stripes(kinds)
        found = []
        for seed in range(3):
            method = make(n_clusters=len(kinds), random_state=seed, **options)
            labels = method.fit_predict(images)
            found.append(agreement(truth, labels.tolist()).nmi)
            if found[-1] == pytest.approx(1):
                assert not method.collapsed_
                assert method.losses_[-1] < method.losses_[0] or isinstance(method, SCAN)
                return
        raise AssertionError(f"NMI {found}")

    def test_iic(self) -> None:
        self.check(iic, ("down", "across"), n_epochs=16, learning_rate=1e-3)

    def test_scan(self) -> None:
        self.check(scan, ("plain", "down", "across"), n_epochs=20, label_epochs=3)

    def test_gatcluster(self) -> None:
        self.check(gatcluster, ("plain", "down", "across"), n_epochs=12, n_repeats=4)


@every_method
class TestEveryMethod:
    def test_results_have_their_shapes(self, make: Callable[..., Any]) -> None:
        method = trained(make)
        labels = method.labels_
        n_epochs = 4 if make is scan else 2
        assert labels.shape == (8,)
        assert labels.dtype == np.int64
        assert method.probabilities_.shape == (8, 2)
        assert np.allclose(method.probabilities_.sum(axis=1), 1, atol=1e-5)
        assert method.epoch_labels_.shape == (n_epochs, 8)
        assert np.array_equal(method.epoch_labels_[-1], labels)
        assert method.losses_.shape == method.effective_clusters_.shape == (n_epochs,)
        assert np.isfinite(method.losses_[:2]).all()
        assert len(method.images_) == 8

    @on_a_gpu
    def test_a_gpu_learns_in_mixed_precision(self, make: Callable[..., Any]) -> None:
        images, _ = stripes(("down", "across"), 4)
        once = {} if make is scan else {"n_repeats": 1}
        there, here = (make(device=name, **once).fit(images) for name in ("cuda", "cpu"))
        assert np.isfinite(there.losses_[:2]).all()
        # The same chance, so the same batches and changes: only the rounding differs, which many
        # steps would make large.
        assert np.allclose(there.losses_[0], here.losses_[0], rtol=0.1, atol=0.1)

    def test_halves_go_through_every_part(
        self, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Mixed precision as on a GPU, on the CPU."""
        images, _ = stripes(("down", "across"), 4)
        for module in ("training", "iic", "scan", "gatcluster"):
            monkeypatch.setattr(
                f"flawsort.research.deep.{module}.mixed_precision",
                lambda device: torch.autocast("cpu", torch.bfloat16),
            )
        method = make().fit(images)
        assert method.probabilities_.dtype == np.float32
        assert np.isfinite(method.losses_[:2]).all()

    def test_neither_order_nor_copies_matter(self, make: Callable[..., Any]) -> None:
        images, _ = stripes(("down", "across"), 4)
        first = trained(make)
        order = [3, 7, 0, 1, 2, 6, 5, 4, 4, 0]
        again = make()
        assert np.array_equal(again.fit_predict([images[row] for row in order]), again.labels_)
        assert np.array_equal(again.probabilities_, first.probabilities_[order])
        assert np.array_equal(again.epoch_labels_, first.epoch_labels_[:, order])

    def test_another_seed_is_another_training(self, make: Callable[..., Any]) -> None:
        images, _ = stripes(("down", "across"), 4)
        other = make(random_state=1).fit(images)
        assert not np.array_equal(trained(make).probabilities_, other.probabilities_)

    def test_it_goes_on_where_it_was_stopped(
        self, make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        images, _ = stripes(("down", "across"), 4)
        whole = trained(make)
        path = tmp_path / "half.safetensors"
        for stop_at in range(1, len(whole.losses_)):
            again = stopped_and_resumed(make, images, path, stop_at, monkeypatch)
            assert np.array_equal(again.probabilities_, whole.probabilities_)
            assert np.array_equal(again.losses_, whole.losses_, equal_nan=True)
        with pytest.raises(OptionError, match="is of another training"):
            make(checkpoint=path, random_state=9).fit(images)

    @on_a_gpu
    def test_it_goes_on_on_a_gpu(
        self, make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        images, _ = stripes(("down", "across"), 4)
        there = partial(make, device="cuda")
        whole = there().fit(images)
        path = tmp_path / "half.safetensors"
        for stop_at in range(1, len(whole.losses_)):
            again = stopped_and_resumed(there, images, path, stop_at, monkeypatch)
            # Kernels may add up in another order; a lost optimiser would show in the first digit.
            assert np.allclose(again.losses_, whole.losses_, rtol=0.02, equal_nan=True)

    def test_a_bad_file_is_set_aside(self, make: Callable[..., Any], tmp_path: Path) -> None:
        for number, image in enumerate(stripes(("down", "across"), 3)[0]):
            Image.fromarray(image).save(tmp_path / f"{number}.png")
        (tmp_path / "3.png").write_bytes(b"no image")
        method = make().fit(tmp_path)
        assert len(method.labels_) == len(method.images_) == 5
        assert [entry.name for entry in method.images_.set_aside] == ["3.png"]

    def test_what_it_cannot_take_is_said(self, make: Callable[..., Any]) -> None:
        images, _ = stripes(("down",), 3)
        with pytest.raises(OptionError, match=r"n_clusters must be an integer of at least 2\."):
            make(n_clusters=1).fit(images)
        with pytest.raises(OptionError, match="n_epochs must be an integer of at least 1"):
            make(n_epochs=0).fit(images)
        for seed in (-1, True, 2**32, 0.5):
            with pytest.raises(OptionError, match="random_state must be an integer from 0 to 429"):
                make(random_state=seed).fit(images)
        for rate in (0, float("nan"), "fast"):
            with pytest.raises(OptionError, match="learning_rate must be a number from 1e-09"):
                make(learning_rate=rate).fit(images)
        with pytest.raises(InputError, match=r"as many different images as clusters, 4\. Got 3"):
            make(n_clusters=4).fit(images)
        with pytest.raises(InputError, match=r"at least 2 images of different content.*Got 1 of 3"):
            make().fit([images[0]] * 3)
        with pytest.raises(InputError, match="is trained on photos"):
            make().fit(Bags(np.ones((2, 1, 1), np.float32), (1, 1)))
        with pytest.raises(OptionError, match=r"view\.tiles must be 1x1"):
            make(view=View(tiles=(2, 2))).fit(images)

    def test_too_little_memory_is_said(
        self, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

        monkeypatch.setattr(estimator, "train", full)
        with pytest.raises(
            OptionError, match=r"more memory than cpu has left\. Try a batch_size b"
        ):
            make().fit(stripes(("down", "across"), 2)[0])

    def test_it_is_an_estimator(self, make: Callable[..., Any]) -> None:
        from sklearn.base import clone

        method = make(random_state=3)
        assert clone(method).get_params() == method.get_params()
        assert "random_state=3" in repr(method)

    def test_the_fingerprint_is_of_what_matters(self, make: Callable[..., Any]) -> None:
        images = array_images(stripes(("down", "across"), 2)[0])
        first = make().fingerprint(images)
        assert make(device=None, checkpoint="x", progress=print).fingerprint(images) == first
        assert make(n_clusters=np.int64(2)).fingerprint(images) == first
        assert make(random_state=1).fingerprint(images) != first
        assert make(n_epochs=3).fingerprint(images) != first
        assert make(view=View(fit="crop")).fingerprint(images) != first
        assert make().fingerprint(images.take([0, 1, 2])) != first


@pytest.mark.parametrize(
    ("sure", "advice"),
    [(0.9, "Try another random_state."), (0.6, "Too little was learnt: try more epochs.")],
)
def test_a_collapse_is_reported(sure: float, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, _ = stripes(("down", "across"), 4)
    method = gatcluster(n_epochs=1, n_repeats=1)
    from flawsort.research.deep import gatcluster as module

    def one_cluster(self: Any) -> Any:
        return torch.tensor([[sure, 1 - sure]]).repeat(len(self._photos), 1)

    monkeypatch.setattr(module._FourTasks, "assign", one_cluster)
    method.fit(images)  # and k-means, which notices it too, does not warn
    assert method.collapsed_
    assert method.effective_clusters_[-1] == pytest.approx(1)
    assert method.warnings_ == [
        f"GATCluster collapsed: (nearly) all images are in one of 2 clusters. {advice}"
    ]


@pytest.mark.parametrize(
    ("method", "error"),
    [
        (iic(crop_size=64), "crop_size must be at most side, 40. Got 64."),
        (iic(n_heads=0), "n_heads must be an integer of at least 1. Got 0."),
        (iic(n_repeats=0), "n_repeats must be an integer of at least 1. Got 0."),
        (iic(side=8), "side must be an integer of at least 32. Got 8."),
        (scan(label_epochs=None), "label_epochs must be an integer of at least 1. Got None."),
        (scan(n_neighbours=2.5), "n_neighbours must be an integer of at least 1, or None. Got 2.5"),
        (scan(threshold=2.0), "threshold must be a number from 0 to 1. Got 2.0."),
        (gatcluster(n_repeats=0), "n_repeats must be an integer of at least 1. Got 0."),
    ],
    ids=repr,
)
def test_options_out_of_reach(method: Any, error: str) -> None:
    with pytest.raises(OptionError, match=re.escape(error)):
        method.fit(stripes(("down", "across"), 2)[0])


def test_nobody_is_confident() -> None:
    method = scan(threshold=1.0).fit(stripes(("down", "across"), 4)[0])
    assert np.isnan(method.losses_).tolist() == [False, False, True, True]
    assert method.warnings_[0] == (
        "SCAN had nothing to learn in 2 of 4 epochs: no image was assigned with enough confidence."
    )


def test_weights_count_where_they_are_used(tmp_path: Path) -> None:
    images = array_images(stripes(("down", "across"), 2)[0])
    file = tmp_path / "weights.safetensors"
    file.write_bytes(b"1")
    plain = scan().fingerprint(images)
    assert scan(weights=file).fingerprint(images) == plain  # not pretrained
    begun = scan(weights=file, pretrained=True).fingerprint(images)
    assert begun not in (plain, scan(pretrained=True).fingerprint(images))
    file.write_bytes(b"2")
    assert scan(weights=file, pretrained=True).fingerprint(images) != begun


def test_pairs_alike() -> None:
    labels = np.array([0, 1, 1, 0])
    naive = [[float(a == b) for b in labels] for a in labels]
    assert pairs_alike(labels, 2).tolist() == naive
    # A cluster is missing, or has less than a tenth of the mean.
    assert torch.equal(pairs_alike(labels, 3), torch.eye(4))
    lonely = np.array([1] + [0] * 39)
    assert torch.equal(pairs_alike(lonely, 2), torch.eye(40))
    assert pairs_alike(np.array([1, 1] + [0] * 38), 2).sum() == 4 + 38**2


def test_neighbours() -> None:
    features = torch.tensor(np.random.default_rng(0).normal(size=(7, 3)))
    found = nearest(features, 2)
    for row in range(7):
        cosines = [
            (float(features[row] @ other / features[row].norm() / other.norm()), -place)
            for place, other in enumerate(features)
            if place != row
        ]
        assert found[row].tolist() == [-place for _, place in sorted(cosines, reverse=True)[:2]]


def test_a_pair_is_an_image_and_a_neighbour_both_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.stack(stripes(("down", "across"), 4)[0])
    photos = torch.from_numpy(images).permute(0, 3, 1, 2)
    trunk = networks.Residual()
    network = networks.HeadedResidual(trunk, {HEADS: (3, 2)})
    trunk.centre(_features(trunk, photos, SIDE))
    course = _Neighbours(scan(n_neighbours=3, image_size=SIDE), network, photos)
    seen = []

    def darker(photos: Any, size: int, rng: Any) -> Any:
        seen.append(photos)
        return photos / 2

    monkeypatch.setattr("flawsort.research.deep.scan._changed", darker)
    rows = np.array([6, 1, 3])
    anchors, neighbours = course._pairs(rows, np.random.default_rng(0))
    (shown,) = seen
    assert torch.equal(shown[:3], as_floats(photos[rows]))
    for place, row in enumerate(rows):
        near = as_floats(photos[nearest(course._features, 3)[row]])
        assert (near == shown[3 + place]).flatten(1).all(1).any()

    # What the heads see of these six: less their mean, of mean length 1.
    features = infer(lambda part: trunk(as_pixels(part)), shown / 2, trunk).clone()
    features -= features.mean(0)
    features /= sum(one.norm() for one in features) / 6
    said = torch.softmax(course._learning(features), dim=2)
    assert torch.allclose(anchors, said[:, :3], atol=1e-5)
    assert torch.allclose(neighbours, said[:, 3:], atol=1e-5)


def test_the_heads_of_the_best_epoch_go_on() -> None:
    """By the loss of whole photos and all their neighbours, with entropy and agreement alike."""
    images = np.stack(stripes(("down", "across"), 4)[0])
    photos = torch.from_numpy(images).permute(0, 3, 1, 2)
    network = networks.HeadedResidual(networks.Residual(), {HEADS: (3, 2)})
    network.trunk.centre(_features(network.trunk, photos, SIDE))
    course = _Neighbours(scan(n_neighbours=3, image_size=SIDE, learning_rate=300), network, photos)
    kept = None
    for epoch in range(12):
        course.epoch(np.random.default_rng(epoch))
        said = torch.softmax(course._learning(course._features.clone()), dim=2).detach()
        losses = []
        for one in said.tolist():
            pairs = [(row, int(other)) for row in range(8) for other in course._neighbours[row]]
            agree = [sum(a * b for a, b in zip(one[r], one[o], strict=True)) for r, o in pairs]
            mean = [sum(column) / 8 for column in zip(*one, strict=True)]
            entropy = -sum(share * math.log(share) for share in mean)
            losses.append(-sum(map(math.log, agree)) / len(pairs) - entropy)
        if kept is None or min(losses) < kept[0]:
            kept = min(losses), said[int(np.argmin(losses))], epoch
        assert torch.allclose(course.assign(), kept[1], atol=1e-5)
    assert kept is not None
    assert kept[2] < 11  # some epoch was worse than one before


@pytest.mark.parametrize(
    ("n", "k", "asked", "count"),
    [(83, 4, None, 5), (583, 6, None, 24), (2000, 2, None, 50), (6, 3, None, 1), (6, 2, 20, 5)],
)
def test_neighbour_count(n: int, k: int, asked: int | None, count: int) -> None:
    assert neighbour_count(n, SCAN(n_clusters=k, n_neighbours=asked)) == count


def test_iic_trains_long_enough_on_a_small_set() -> None:
    from flawsort.research.deep.iic import _Pairs

    network = networks.HeadedResidual(networks.Residual(channels=2), {})
    for n, epochs in ((83, 200), (583, 50), (300, 100), (2000, 50)):
        assert _Pairs(IIC(n_clusters=2), network, torch.zeros(n, 1)).n_epochs == epochs

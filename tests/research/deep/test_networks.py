"""The networks of deep clustering, with random weights, against plain computations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bags import Array

torch: Any = pytest.importorskip("torch")
timm: Any = pytest.importorskip("timm")

from safetensors.torch import save_file  # noqa: E402

from flawsort.core.errors import BackboneError  # noqa: E402
from flawsort.research.deep.networks import (  # noqa: E402
    AttentionNetwork,
    GaussianAttention,
    HeadedResidual,
    Heads,
    Residual,
    settle_norms,
    train_but_norms,
)

nn = torch.nn


pytestmark = pytest.mark.usefixtures("one_torch_thread")


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape)
    return torch.tensor(values, dtype=torch.float32)


def unsettled(state: dict[str, Any]) -> dict[str, Any]:
    """Weights of norms at random too: timm begins with 0 in the last norm of each block, and with
    0 and 1 for all statistics, so that most of the network would not matter."""
    rng, changed = np.random.default_rng(0), {}
    for name, value in state.items():
        if value.ndim == 1:
            low, high = (-0.2, 0.2) if name.endswith(("bias", "running_mean")) else (0.4, 1.0)
            value = torch.tensor(rng.uniform(low, high, len(value)), dtype=torch.float32)
        changed[name] = value.contiguous()
    return changed


@pytest.fixture(scope="module")
def plain() -> Any:
    """timm's ResNet-50 without a classifier. Shared: read it, never change it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model("resnet50", num_classes=0)
    model.load_state_dict(unsettled(model.state_dict()))
    return model.eval()


@pytest.fixture(scope="module")
def photos() -> torch.Tensor:
    return noise(4, 3, 64, 64)


def write(state: dict[str, Any], path: Path, **metadata: str) -> Path:
    save_file(state, path, metadata=metadata or None)
    return path


def without(state: dict[str, Any], *layers: str) -> dict[str, Any]:
    return {name: value for name, value in state.items() if not name.startswith(layers)}


def look(network: Any, pixels: torch.Tensor) -> torch.Tensor:
    """What comes out where nothing is learnt."""
    network.eval()
    with torch.inference_mode():
        return network(pixels)


# ---- ResNet-50 ----


def test_weights_of_a_file(plain: Any, photos: torch.Tensor, tmp_path: Path) -> None:
    classifier = {"fc.weight": torch.ones(10, 2048), "fc.bias": torch.ones(10)}
    file = write(plain.state_dict() | classifier, tmp_path / "w.safetensors")
    network = Residual(weights=file)
    assert network.width == 2048
    expected = look(plain, photos)
    assert expected.std(0).mean() > 0.01 * expected.mean()  # photos differ
    np.testing.assert_allclose(look(network, photos), expected, rtol=1e-4, atol=1e-5)
    with torch.inference_mode():
        mean = plain.forward_features(photos).mean((2, 3))
    np.testing.assert_allclose(look(network, photos), mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "width"),
    [
        (("layer4.",), 1024),
        (("layer4.", "layer3."), 512),
        (("layer4.", "layer3.", "layer2."), 256),
    ],
    ids=["one", "two", "three"],
)
def test_a_file_without_the_last_stages(
    plain: Any, photos: torch.Tensor, tmp_path: Path, layers: tuple[str, ...], width: int
) -> None:
    file = write(without(plain.state_dict(), *layers), tmp_path / "w.safetensors")
    network = Residual(weights=file)
    assert network.width == width
    with torch.inference_mode():
        maps = plain.maxpool(plain.act1(plain.bn1(plain.conv1(photos))))
        for number in range(1, 5 - len(layers)):
            maps = getattr(plain, f"layer{number}")(maps)
    np.testing.assert_allclose(look(network, photos), maps.mean((2, 3)), rtol=1e-4, atol=1e-5)


def strides(stage: Any) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return [(block.conv1.stride, block.conv2.stride) for block in stage]


@pytest.mark.parametrize(("form", "moved"), [("original", True), ("other", False)])
def test_the_original_form_has_its_strides_in_the_first_convolution(
    plain: Any, photos: torch.Tensor, tmp_path: Path, form: str, moved: bool
) -> None:
    network = Residual(weights=write(plain.state_dict(), tmp_path / "w.safetensors", form=form))
    still, halved = (1, 1), (2, 2)
    assert set(strides(network.trunk.layer1)) == {(still, still)}
    for number in (2, 3, 4):
        first, *others = strides(getattr(network.trunk, f"layer{number}"))
        assert first == ((halved, still) if moved else (still, halved))
        assert set(others) == {(still, still)}
    same = torch.allclose(look(network, photos), look(plain, photos), rtol=1e-4, atol=1e-5)
    assert same is not moved


def test_the_original_form_without_the_last_stage(plain: Any, tmp_path: Path) -> None:
    state = without(plain.state_dict(), "layer4.")
    network = Residual(weights=write(state, tmp_path / "w.safetensors", form="original"))
    assert network.width == 1024
    assert strides(network.trunk.layer3)[0] == ((2, 2), (1, 1))


def test_weights_that_do_not_fit(plain: Any, tmp_path: Path) -> None:
    path, state = tmp_path / "w.safetensors", plain.state_dict()

    def refused(content: dict[str, Any], **options: Any) -> str:
        write(content, path)
        text = r"^The weights in '.*w\.safetensors' do not fit 'resnet50'\. Keys "
        with pytest.raises(BackboneError, match=text) as caught:
            Residual(weights=path, **options)
        return str(caught.value).partition("Keys ")[2]

    assert refused(without(state, "layer2.0.conv1.")) == "missing: layer2.0.conv1.weight."
    assert refused(state | {"extra": torch.ones(1)}) == "unexpected: extra."
    assert refused(state, channels=2) == "of another shape: conv1.weight."
    # Between the others no stage may be missing.
    assert refused(without(state, "layer3.")).startswith("missing: layer3.0.conv1.weight, ")
    foreign = refused({"head.0.weight": torch.ones(2), "stem": torch.ones(2)})
    assert foreign.startswith("missing: conv1.weight, bn1.weight, bn1.bias and ")
    assert foreign.endswith("; unexpected: stem.")


@pytest.mark.parametrize("file", ["w.safetensors", "w.pth"])
def test_a_file_that_is_no_weights(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(b"no weights")
    with pytest.raises(BackboneError, match=rf"{file}' is not a file of weights: it must hold"):
        Residual(weights=tmp_path / file)
    with pytest.raises(BackboneError, match=r"Cannot read .*gone\.pth': No such file"):
        Residual(weights=tmp_path / "gone.pth")


def test_timm_is_asked_for_weights_only_where_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def create_model(
        model: str, *, in_chans: int, num_classes: int, pretrained: bool = False
    ) -> None:
        asked.append((model, pretrained, in_chans, num_classes))
        raise OSError("Name or service not known\nand much more")

    monkeypatch.setattr(timm, "create_model", create_model)
    text = (
        r"^The weights of resnet50 could not be downloaded \(Name or service not known\)\. Give a "
        r"file of them, or train without\.$"
    )
    with pytest.raises(BackboneError, match=text):
        Residual(pretrained=True)
    with pytest.raises(OSError, match="Name or service"):  # of something else than a download
        Residual(channels=2)
    assert asked == [("resnet50.a1_in1k", True, 3, 0), ("resnet50.a1_in1k", False, 2, 0)]


def test_two_channels() -> None:
    network = Residual(channels=2)
    assert network.width == 2048
    assert look(network, noise(1, 2, 32, 32)).shape == (1, 2048)


# ---- centred features ----


@pytest.fixture
def fresh(plain: Any) -> Residual:
    network = Residual()
    network.trunk.load_state_dict(plain.state_dict())
    return network


@pytest.fixture(scope="module")
def many() -> torch.Tensor:
    return noise(8, 3, 64, 64)


def test_features_are_centred(fresh: Residual, many: torch.Tensor) -> None:
    raw = look(fresh, many)
    assert raw.mean(0).norm() > 1
    fresh.centre(raw)
    features = look(fresh, many)
    np.testing.assert_allclose(features.mean(0), 0, atol=1e-5)
    assert float(features.norm(dim=1).mean()) == pytest.approx(1, abs=1e-4)
    # All are moved and scaled alike, those that come later too.
    middle = raw.double().mean(0)
    length = (raw.double() - middle).norm(dim=1).mean()
    np.testing.assert_allclose(features, (raw - middle) / length, atol=1e-4)


def test_features_are_centred_again(fresh: Residual, many: torch.Tensor) -> None:
    fresh.centre(look(fresh, many))
    with torch.no_grad():
        fresh.trunk.layer4[-1].bn3.bias += 1
        fresh.trunk.layer4[-1].bn3.weight *= 1.5
    moved = look(fresh, many)
    assert moved.mean(0).norm() > 1
    fresh.centre(moved)
    features = look(fresh, many)
    np.testing.assert_allclose(features.mean(0), 0, atol=1e-5)
    lengths = (moved - moved.mean(0)).norm(dim=1)
    assert not 0.9 < lengths.mean() < 1.1
    np.testing.assert_allclose(features, (moved - moved.mean(0)) / lengths.mean(), atol=1e-4)


def test_in_training_it_is_the_mean_and_the_length_of_the_batch(
    fresh: Residual, many: torch.Tensor
) -> None:
    train_but_norms(fresh)
    with torch.no_grad():
        assert fresh(many[:5]).mean(0).norm() > 1  # nobody asked for it yet
    fresh.centre(look(fresh, many))
    batch = look(fresh, many[:5])
    assert batch.mean(0).norm() > 1e-3
    train_but_norms(fresh)
    with torch.no_grad():
        trained = fresh(many[:5])
    middle = batch - batch.mean(0)
    np.testing.assert_allclose(trained, middle / middle.norm(dim=1).mean(), atol=1e-4)
    fresh.train()
    np.testing.assert_allclose(fresh(many[:5]).detach().mean(0), 0, atol=1e-4)


def test_the_centre_is_saved_with_the_weights(fresh: Residual, many: torch.Tensor) -> None:
    fresh.centre(look(fresh, many))
    state = fresh.state_dict()
    assert state["middle"].shape == (fresh.width,)
    assert float(state["length"]) > 1e-6


def test_features_that_are_all_the_same_are_not_divided_by_zero(fresh: Residual) -> None:
    alike = torch.ones(4, 3, 32, 32)
    fresh.centre(look(fresh, alike))
    assert look(fresh, alike).isfinite().all()


# ---- norms ----


def two_norms() -> Any:
    network = nn.Sequential(
        nn.BatchNorm2d(3, momentum=0.3), nn.Conv2d(3, 2, 3), nn.ReLU(), nn.BatchNorm2d(2)
    )
    network[0].running_mean += 7  # what was seen before is forgotten
    network[0].num_batches_tracked += 9
    return network


def naive_statistics(batches: list[Array]) -> tuple[Array, Array]:
    """Mean and unbiased variance of each channel, the mean over batches."""
    means = [batch.mean((0, 2, 3)) for batch in batches]
    variances = [batch.var((0, 2, 3), ddof=1) for batch in batches]
    return np.mean(means, axis=0), np.mean(variances, axis=0)


@pytest.mark.parametrize("sizes", [[6], [2, 3, 4]], ids=["one batch", "three batches"])
def test_norms_settle_on_what_they_see(sizes: list[int]) -> None:
    network = two_norms()
    batches = [3 + 2 * noise(n, 3, 8, 8, seed=n) for n in sizes]
    weights = [parameter.detach().clone() for parameter in network.parameters()]
    settle_norms(network, iter(batches))

    mean, variance = naive_statistics([batch.double().numpy() for batch in batches])
    np.testing.assert_allclose(network[0].running_mean, mean, rtol=1e-4)
    np.testing.assert_allclose(network[0].running_var, variance, rtol=1e-4)
    # The second sees what the first makes of each batch with that batch's own statistics.
    seen = []
    for batch in batches:
        spread = batch.var((0, 2, 3), correction=0, keepdim=True)
        scaled = (batch - batch.mean((0, 2, 3), keepdim=True)) / (spread + 1e-5).sqrt()
        seen.append(network[2](network[1](scaled)).detach().double().numpy())
    mean, variance = naive_statistics(seen)
    np.testing.assert_allclose(network[3].running_mean, mean, rtol=1e-3)
    np.testing.assert_allclose(network[3].running_var, variance, rtol=1e-3)

    assert [network[0].momentum, network[3].momentum] == [0.3, 0.1]
    assert not any(module.training for module in network.modules())
    for parameter, before in zip(network.parameters(), weights, strict=True):
        assert torch.equal(parameter, before)
        assert parameter.grad is None


def test_the_norms_of_a_resnet_settle(fresh: Residual, many: torch.Tensor) -> None:
    settle_norms(fresh, [many])
    with torch.inference_mode():
        seen = fresh.trunk.conv1(many).double().numpy()
    mean, variance = naive_statistics([seen])
    np.testing.assert_allclose(fresh.trunk.bn1.running_mean, mean, atol=1e-4)
    np.testing.assert_allclose(fresh.trunk.bn1.running_var, variance, rtol=1e-3)
    assert fresh.trunk.bn1.momentum == 0.1
    assert not fresh.training


def test_all_but_norms_are_trained() -> None:
    network = two_norms().eval()
    before = [network[0].running_mean.clone(), network[3].running_mean.clone()]
    train_but_norms(network)
    assert [module.training for module in network] == [False, True, True, False]
    assert network.training
    network(noise(4, 3, 8, 8))
    for norm, mean in zip((network[0], network[3]), before, strict=True):
        assert torch.equal(norm.running_mean, mean)


# ---- heads ----


def test_heads_are_linear_layers_side_by_side() -> None:
    heads = Heads(5, 3, 4)
    with torch.no_grad():
        heads.linear.bias += noise(12)
    features = noise(7, 5)
    logits = heads(features).detach()
    assert logits.shape == (3, 7, 4)
    weight, bias = heads.linear.weight.detach(), heads.linear.bias.detach()
    for head in range(3):
        rows = slice(4 * head, 4 * head + 4)
        expected = features.double() @ weight[rows].double().T + bias[rows]
        np.testing.assert_allclose(logits[head], expected, atol=1e-6)


def test_heads_begin_undecided() -> None:
    heads = Heads(400, 10, 5)
    assert not heads.linear.bias.any()
    assert float(heads.linear.weight.detach().std()) == pytest.approx(0.01, rel=0.1)


def test_the_best_head_lost_least() -> None:
    heads = Heads(5, 4, 2)
    assert heads.best == 0
    heads.losses.copy_(torch.tensor([-1.0, -0.5, -3.0, 2.0]))
    assert heads.best == 2
    again = Heads(5, 4, 2)
    again.load_state_dict(heads.state_dict())
    assert again.best == 2


class Pixels(nn.Module):
    """A trunk that returns its input."""

    width = 6

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.flatten(1)


def test_the_best_head_of_a_name_is_asked() -> None:
    network = HeadedResidual(Pixels(), {"over": (2, 9), "final": (3, 4)})
    pixels = noise(5, 6, 1, 1)
    assert network(pixels, "over").shape == (2, 5, 9)
    assert network(pixels, "final").shape == (3, 5, 4)
    network.heads["over"].losses.copy_(torch.tensor([0.0, -1.0]))
    network.heads["final"].losses.copy_(torch.tensor([0.0, 1.0, -1.0]))
    for name, best in (("over", 1), ("final", 2)):
        expected = network.heads[name](pixels.flatten(1))[best]
        assert torch.equal(network.predict(pixels, name), expected)


# ---- GATCluster's network ----


@pytest.mark.parametrize("spread", [0.05, 0.6])
def test_a_soft_disc(spread: float) -> None:
    attention = GaussianAttention(2, 4, spread)
    maps = 3 * noise(5, 2, 4, 4)
    weights = attention.place.weight.detach().double().numpy()
    biases = attention.place.bias.detach().double().numpy()
    discs = attention(maps).detach()
    assert discs.shape == (5, 1, 4, 4)
    for image, disc in zip(maps.double().numpy(), discs, strict=True):
        said = [
            1 / (1 + math.exp(-(weight @ image.ravel() + bias)))
            for weight, bias in zip(weights, biases, strict=True)
        ]
        for row in range(4):
            for column in range(4):
                far = (row / 3 - said[0]) ** 2 + (column / 3 - said[1]) ** 2
                expected = math.exp(-far / (2 * spread * said[2] + 1e-5))
                assert float(disc[0, row, column]) == pytest.approx(expected, abs=1e-5)


def test_a_disc_is_where_it_is_said_to_be() -> None:
    attention = GaussianAttention(1, 5, 0.05)
    with torch.no_grad():
        attention.place.weight.zero_()
        attention.place.bias.copy_(torch.tensor([-20.0, 20.0, 0.0]))  # at the top right
        disc = attention(noise(1, 1, 5, 5))[0, 0]
    assert divmod(int(disc.argmax()), 5) == (0, 4)
    assert float(disc.max()) == pytest.approx(1, abs=1e-5)


@pytest.fixture(scope="module")
def attentive() -> AttentionNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AttentionNetwork(7).eval()


def test_the_attention_network(attentive: AttentionNetwork) -> None:
    pixels = noise(2, 3, 128, 128)
    with torch.inference_mode():
        whole, attended = attentive(pixels)
        maps = attentive.maps(pixels)
        mixed, disc = attentive.mixed(maps), attentive.attention(maps)
        assert maps.shape == mixed.shape == (2, 7, 6, 6)
        assert disc.shape == (2, 1, 6, 6)
        of_whole = attentive.of_all(mixed.mean((2, 3)))
        of_attended = attentive.of_attended((mixed * disc).sum((2, 3)))
    for found, logits in ((whole, of_whole), (attended, of_attended)):
        assert found.shape == (2, 7)
        assert (found >= 0).all()
        np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
        exps = np.exp(logits.double().numpy())
        np.testing.assert_allclose(found, exps / exps.sum(1, keepdims=True), atol=1e-5)
    assert not torch.allclose(whole, attended)


def test_eleven_convolutions_without_padding(attentive: AttentionNetwork) -> None:
    layers = [module for module in attentive.maps if isinstance(module, nn.Conv2d)]
    assert [layer.kernel_size for layer in layers] == [(3, 3)] * 11 + [(1, 1)]
    assert {layer.padding for layer in layers} == {(0, 0)}
    channels = [64, 64, 64, 128, 128, 128, 256, 256, 256, 256, 256, 7]
    assert [layer.out_channels for layer in layers] == channels


def test_classifiers_begin_as_the_identity(attentive: AttentionNetwork) -> None:
    features = noise(3, 7).abs()
    for classifier in (attentive.of_all, attentive.of_attended):
        np.testing.assert_array_equal(classifier(features.clone()).detach(), features)


def test_clusters_are_learnt_by_all_of_it() -> None:
    network = AttentionNetwork(3)
    whole, attended = network(noise(2, 3, 128, 128))
    (whole[:, 0].sum() + attended[:, 1].sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    for moved in (network.attention.place, network.of_all[0], network.maps[0]):
        assert moved.weight.grad.abs().sum() > 0

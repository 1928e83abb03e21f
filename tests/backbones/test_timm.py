"""Networks that run in torch: the table, and what timm makes of it. Weights here are random."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort.backbones import BackboneInfo, load_backbone
from flawsort.backbones.embed import cache_setting, embed
from flawsort.backbones.networks import NETWORKS, find_network
from flawsort.backbones.patches import patch_embeddings
from flawsort.backbones.timm import TimmBackbone, tap
from flawsort.core.devices import Cuda, torch_device
from flawsort.core.errors import BackboneError, FlawsortError, OptionError
from flawsort.images.find import array_images
from flawsort.images.view import View
from helpers.bags import Array


def noise(n: int, side: int) -> Array:
    return np.random.default_rng(0).random((n, 3, side, side), dtype=np.float32)


@cache
def random_backbone(name: str, side: int, seed: int = 0) -> TimmBackbone:
    return TimmBackbone.load(name, image_size=side, device="cpu", _random_seed=seed)


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks as small as these only wait for more
    yield torch
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def timm(torch: Any) -> Any:
    return pytest.importorskip("timm")


@pytest.fixture(scope="module")
def small(timm: Any) -> TimmBackbone:
    return random_backbone("resnet18", 64)


# ---- the table ----

PAPER = {
    **dict.fromkeys(["resnet18", "resnet50", "resnet101", "resnet152", "wide_resnet50"], (8, 3)),
    **dict.fromkeys(["efficientnet_b0", "efficientnet_b4", "efficientnet_b7"], (8, 3)),
    **dict.fromkeys(["vit_tiny", "vit_small", "vit_base", "vit_large"], (16, 1)),
}


def test_strides_and_kernels_are_the_papers() -> None:
    for name, (stride, kernel) in PAPER.items():
        assert NETWORKS[name].strides == (stride,)
        assert NETWORKS[name].kernel == kernel
    assert NETWORKS["vit_base"].taps == (6,)  # block 7 of 12 and 13 of 24, counted from one
    assert NETWORKS["vit_large"].taps == (12,)
    assert NETWORKS.keys() - PAPER.keys() == {
        "dinov2_small", "dinov2_base", "dinov3_small", "convnext_tiny", "convnext_base",
    }  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_are_sound(name: str) -> None:
    network = NETWORKS[name]
    assert len(network.taps) == len(network.strides) == len(network.channels)
    assert list(network.taps) == sorted(set(network.taps))
    assert network.input_size % network.step == 0
    assert network.kernel % 2 == 1
    assert "." in network.model  # the weights are pinned
    assert network.licence == ("DINOv3 License" if name == "dinov3_small" else "Apache-2.0")


def test_the_last_layer() -> None:
    last = find_network("wide_resnet50:last")
    assert last is not None  # 8 x 8 patches of 2,048 numbers for 256 pixels, as in the paper
    assert (last.taps, last.strides, last.channels, last.kernel) == ((), (32,), (2048,), 1)
    assert replace(last, taps=(2,), strides=(8,), channels=(512,), kernel=3) == find_network(
        "wide_resnet50"
    )
    assert find_network("wide_resnet50:first") is None
    assert find_network(":last") is None


# ---- the kernel on its way to the bags ----


class Ramp:
    """A map of stride 4 with two channels."""

    def __init__(self, kernel: int) -> None:
        self.info = BackboneInfo("ramp", "0" * 64, "none", "a test", (16, 16), kernel)

    def feature_maps(self, pixels: Array) -> list[Array]:
        return [pixels[:, :2, ::4, ::4] ** 2]


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_bags_are_pooled_as_the_backbone_says(kernel: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    bags = embed(array_images([pixels]), Ramp(kernel), View()).bags
    maps = Ramp(kernel).feature_maps(pixels.transpose(2, 0, 1)[None] / 255)
    np.testing.assert_allclose(bags.patches, patch_embeddings(maps, kernel)[0], atol=1e-3)
    assert cache_setting(Ramp(kernel), View())["pooling"] == kernel


def test_the_default_kernel_keeps_its_place_in_the_cache() -> None:
    assert BackboneInfo("x", "0", "none", "a test", (16, 16)).pooling_kernel == 3


# ---- without torch ----


@pytest.mark.parametrize("absent", [["timm", "torch"], ["timm"]], ids=" and ".join)
@pytest.mark.parametrize("name", ["wide_resnet50", "vit_base:last"])
def test_without_torch(monkeypatch: pytest.MonkeyPatch, absent: list[str], name: str) -> None:
    for module in absent:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        BackboneError,
        match=rf"'{name}' runs in torch, .*\. Install it with pip install \"flawsort\[torch\]\"\.",
    ):
        load_backbone(name)


@pytest.mark.parametrize(
    ("name", "size", "step"),
    [
        ("resnet18", 100, 32),
        ("vit_tiny", 224 + 8, 16),
        ("dinov2_small", 256, 14),
        ("resnet18", 0, 32),
        ("dinov2_small:last", 2058, 14),
    ],
)
def test_image_sizes_that_are_refused(name: str, size: int, step: int) -> None:
    with pytest.raises(
        BackboneError, match=rf"multiple of {step} between {step} and 2048 .*'{name}'\. Got {size}"
    ):
        load_backbone(name, image_size=size)


def test_a_name_outside_the_table() -> None:
    with pytest.raises(BackboneError, match=r"one of convnext_base, .*\. Got 'alexnet'\."):
        TimmBackbone.load("alexnet")


# ---- maps ----


@pytest.mark.parametrize("name", NETWORKS)
def test_channels_strides_and_licences_are_timms(name: str, timm: Any, torch: Any) -> None:
    side = NETWORKS[name].input_size
    with torch.device("meta"), torch.inference_mode():  # shapes alone, nothing is computed
        model = timm.create_model(NETWORKS[name].model, num_classes=0).eval()
        if hasattr(model, "set_input_size"):
            model.set_input_size((side, side))
        for variant in (name, f"{name}:last"):
            network = find_network(variant)
            assert network is not None
            maps = tap(model, network, torch.empty(1, 3, side, side))
            assert [tuple(one.shape) for one in maps] == [
                (1, channels, side // stride, side // stride)
                for channels, stride in zip(network.channels, network.strides, strict=True)
            ]
    recorded = timm.get_pretrained_cfg(NETWORKS[name].model)
    assert recorded.license == NETWORKS[name].licence.lower().replace(" ", "-")
    assert recorded.hf_hub_id
    if name in PAPER and name.startswith("vit"):
        assert recorded.input_size == (3, side, side)


# Name, side, and the layers whose outputs the maps must be.
LAYERS = [
    ("resnet18", 64, ["layer2"]),
    ("resnet18:last", 64, ["layer4"]),
    ("efficientnet_b0", 64, ["blocks.2"]),
    ("efficientnet_b0:last", 64, ["bn2"]),
    ("vit_tiny", 48, ["blocks.6"]),
    ("vit_tiny:last", 48, ["norm"]),
    ("dinov3_small", 48, ["blocks.5", "blocks.8"]),
    ("convnext_tiny", 64, ["stages.1", "stages.2"]),
    ("convnext_tiny:last", 64, ["stages.3"]),
]


@pytest.mark.parametrize(("name", "side", "layers"), LAYERS, ids=[row[0] for row in LAYERS])
def test_maps_are_the_outputs_of_those_layers(
    name: str, side: int, layers: list[str], timm: Any, torch: Any
) -> None:
    backbone = random_backbone(name, side)
    model, seen = backbone._model, {}
    hooks = [
        model.get_submodule(layer).register_forward_hook(
            lambda _, __, out, layer=layer: seen.update({layer: out})
        )
        for layer in layers
    ]
    images = noise(2, side)
    before = images.copy()
    maps = backbone.feature_maps(images)
    # Again, normalised by hand and through the whole network.
    mean = np.array(model.pretrained_cfg["mean"], np.float32).reshape(3, 1, 1)
    std = np.array(model.pretrained_cfg["std"], np.float32).reshape(3, 1, 1)
    with torch.inference_mode():
        model.forward_features(torch.from_numpy((images - mean) / std))
    for hook in hooks:
        hook.remove()
    assert len(maps) == len(layers)
    for one, layer in zip(maps, layers, strict=True):
        expected = seen[layer].numpy()
        assert one.dtype == np.float32
        if expected.ndim == 4:
            np.testing.assert_allclose(one, expected, atol=1e-5)
            continue
        rows, cols = one.shape[2:]
        assert (rows, cols) == (side // 16, side // 16)
        prefix = expected.shape[1] - rows * cols
        for row in range(rows):
            for col in range(cols):
                token = expected[:, prefix + row * cols + col]
                np.testing.assert_allclose(one[:, :, row, col], token, atol=1e-4)
    np.testing.assert_array_equal(images, before)


def test_a_transformer_tells_places_apart(timm: Any) -> None:
    (maps,) = random_backbone("vit_tiny", 48).feature_maps(np.full((1, 3, 48, 48), 0.5))
    assert np.ptp(maps, axis=(2, 3)).max() > 1e-3  # its positions came along to the new size


def test_images_are_not_mixed_and_runs_are_alike(small: TimmBackbone) -> None:
    images = noise(3, 64)
    (whole,) = small.feature_maps(images)
    (alone,) = small.feature_maps(images[1:2])
    np.testing.assert_allclose(whole[1:2], alone, atol=1e-5)
    images.flags.writeable = False
    for given in (images, images.astype(np.float64)):
        np.testing.assert_array_equal(small.feature_maps(given)[0], whole)
    assert small.feature_maps(noise(1, 96))[0].shape == (1, 128, 12, 12)


def test_a_size_that_does_not_fit(timm: Any) -> None:
    with pytest.raises(
        BackboneError, match=r"'vit_tiny' failed on a batch of shape \(1, 3, 32, 32\): \S"
    ):
        random_backbone("vit_tiny", 48).feature_maps(noise(1, 32))


# ---- what is recorded ----


def test_info(small: TimmBackbone) -> None:
    assert small.info.name == "resnet18"
    assert small.info.input_size == (64, 64)
    assert small.info.pooling_kernel == 3
    assert random_backbone("resnet18:last", 64).info.pooling_kernel == 1
    assert "resnet18.a1_in1k, random weights" in small.info.origin


def test_the_digest_changes_with_all_that_decides_a_patch(
    small: TimmBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert random_backbone("resnet18", 96).info.sha256 == small.info.sha256
    row = NETWORKS["resnet18"]
    digests = [small.info.sha256, random_backbone("resnet18", 64, seed=1).info.sha256]
    digests.append(random_backbone("resnet18:last", 64).info.sha256)
    for changed in (replace(row, kernel=1), replace(row, taps=(3,))):
        monkeypatch.setitem(NETWORKS, "resnet18", changed)
        digests.append(random_backbone.__wrapped__("resnet18", 64).info.sha256)
    monkeypatch.setitem(NETWORKS, "other", row)
    digests.append(random_backbone("other", 64).info.sha256)
    assert len(set(digests)) == 6


def test_random_weights_leave_torchs_own_randomness_alone(timm: Any, torch: Any) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    random_backbone.__wrapped__("resnet18", 64)
    assert torch.equal(torch.rand(3), expected)


# ---- weights from a file ----


def state_of(backbone: TimmBackbone) -> dict[str, Any]:
    return dict(backbone._model.state_dict())


def assert_same(mine: Any, theirs: TimmBackbone) -> None:
    side = theirs.info.input_size[0]
    assert mine.info.sha256 == theirs.info.sha256
    for one, other in zip(
        mine.feature_maps(noise(1, side)), theirs.feature_maps(noise(1, side)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "file",
    ["w.safetensors", "é w.SAFETENSORS", "w.pth", "w.pt", "w.bin", "wrapped.pth", "model.pt"],
)
def test_files_of_weights(tmp_path: Path, small: TimmBackbone, torch: Any, file: str) -> None:
    from safetensors.torch import save_file

    path, state = tmp_path / file, state_of(small)
    if path.suffix.lower() == ".safetensors":
        save_file(state, path)
    elif file == "wrapped.pth":
        parallel = {f"module.{key}": value for key, value in state.items()}
        torch.save({"state_dict": parallel, "epoch": 3}, path)
    else:
        torch.save({"model": state} if file == "model.pt" else state, path)
    loaded = load_backbone("resnet18", weights=path, image_size=64, device="cpu")
    assert_same(loaded, small)
    assert loaded.info.licence == "Apache-2.0 (of the published weights)"
    assert loaded.info.origin == f"timm's resnet18.a1_in1k, weights from the file '{file}'"


def test_heads_and_counts_are_neither_here_nor_there(
    tmp_path: Path, small: TimmBackbone, torch: Any
) -> None:
    counted = {k: v for k, v in state_of(small).items() if "num_batches_tracked" not in k}
    assert len(counted) < len(state_of(small))
    head = {"fc.weight": torch.ones(1000, 512), "fc.bias": torch.ones(1000)}
    torch.save(counted | head, tmp_path / "torchvision.pth")
    loaded = load_backbone(
        "resnet18", weights=tmp_path / "torchvision.pth", image_size=64, device="cpu"
    )
    assert_same(loaded, small)


def test_the_original_keys_of_dinov2(tmp_path: Path, timm: Any, torch: Any) -> None:
    expected = random_backbone("dinov2_small", 518)
    state = state_of(expected)
    state["register_tokens"] = state.pop("reg_token")
    # The original has a position for its class token too, which timm adds to the token.
    state["pos_embed"] = torch.cat([torch.zeros(1, 1, 384), state["pos_embed"]], dim=1)
    state["mask_token"] = torch.zeros(1, 384)
    torch.save(state, tmp_path / "dinov2.pt")
    loaded = load_backbone("dinov2_small", weights=tmp_path / "dinov2.pt", device="cpu")
    assert loaded.info.input_size == (448, 448)
    assert loaded.info.sha256 == expected.info.sha256


def test_weights_of_another_network(tmp_path: Path, small: TimmBackbone, torch: Any) -> None:
    path, state = tmp_path / "w.pth", state_of(small)

    def refused(name: str, content: dict[str, Any]) -> str:
        torch.save(content, path)
        with pytest.raises(BackboneError, match=rf"w\.pth' do not fit '{name}' \(.*\)\.") as caught:
            load_backbone(name, weights=path)
        return str(caught.value).partition("). ")[2]

    assert refused("vit_tiny", state) == (
        "Keys missing: cls_token, pos_embed, patch_embed.proj.weight and 147 more; "
        "unexpected: conv1.weight, bn1.weight, bn1.bias and 97 more."
    )
    rest = {key: value for key, value in state.items() if key != "layer1.0.conv1.weight"}
    assert refused("resnet18", rest) == "Keys missing: layer1.0.conv1.weight."
    assert refused("resnet18", state | {"extra": torch.ones(1)}) == "Keys unexpected: extra."
    narrow = state | {"conv1.weight": torch.ones(64, 1, 7, 7)}
    assert refused("resnet18", narrow) == "Keys of another shape: conv1.weight."
    assert "missing: stem.0.weight" in refused("convnext_tiny", state)


class RunsCode:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("it-ran"),)


@pytest.mark.parametrize("file", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights", b"\x00" * 64])
def test_files_that_are_no_weights(tmp_path: Path, timm: Any, file: str, content: bytes) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(BackboneError, match=rf"{file}' is not a file of weights: it must hold"):
        load_backbone("resnet18", weights=tmp_path / file)


def test_other_things_that_torch_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timm: Any, torch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for content in ([1, 2], {"epoch": 3}, {"state_dict": {}}, {"a": RunsCode()}, torch.ones(2)):
        torch.save(content, "w.pth")
        with pytest.raises(BackboneError, match=r"'w\.pth' is not a file of weights"):
            load_backbone("resnet18", weights=Path("w.pth"))
    assert not Path("it-ran").exists()


@pytest.mark.parametrize(
    ("file", "kind", "message"),
    [
        ("gone.pth", BackboneError, r"Cannot read the weights file '.*gone\.pth': No such file"),
        ("gone.safetensors", BackboneError, r"Cannot read .*gone\.safetensors': No such file"),
        ("folder.pt", BackboneError, r"Cannot read the weights file '.*folder\.pt': Is a dir"),
        ("w.npz", OptionError, r"ends in \.safetensors, \.pth, \.pt, \.bin\. Got '.*w\.npz'"),
    ],
)
def test_paths_of_weights(
    tmp_path: Path, timm: Any, file: str, kind: type[FlawsortError], message: str
) -> None:
    (tmp_path / "folder.pt").mkdir()
    with pytest.raises(kind, match=message):
        load_backbone("resnet18", weights=tmp_path / file)


# ---- weights from the hub ----


def test_without_a_network(timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def create_model(*_: object, **__: object) -> None:
        raise OSError("Name or service not known\nand much more")

    monkeypatch.setattr(timm, "create_model", create_model)
    with pytest.raises(BackboneError) as caught:
        load_backbone("wide_resnet50")
    assert str(caught.value) == (
        "The weights of 'wide_resnet50' could not be downloaded (Name or service not known). Load "
        "it once with an internet connection, or fetch the weights from "
        "https://huggingface.co/timm/wide_resnet50_2.racm_in1k and pass the file "
        "(--backbone-weights FILE, or --weights FILE of flawsort paper)."
    )


def test_timm_is_asked_for_pretrained_weights(
    timm: Any, monkeypatch: pytest.MonkeyPatch, small: TimmBackbone
) -> None:
    real, asked = timm.create_model, []

    def create_model(model: str, *, pretrained: bool, num_classes: int) -> Any:
        asked.append((model, pretrained, num_classes))
        return real(model, pretrained=False, num_classes=num_classes)

    monkeypatch.setattr(timm, "create_model", create_model)
    info = load_backbone("resnet18", device="cpu").info
    assert asked == [("resnet18.a1_in1k", True, 0)]
    assert (info.licence, info.input_size) == ("Apache-2.0", (256, 256))
    assert info.origin == (
        "timm's resnet18.a1_in1k, weights from https://huggingface.co/timm/resnet18.a1_in1k"
    )


def test_a_timm_that_is_too_old(timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "is_model_pretrained", lambda _: False)
    with pytest.raises(
        BackboneError,
        match=r"does not know 'vit_small_patch16_dinov3\.lvd1689m', which backbone 'dinov3_small' "
        r"needs\. Install a newer one",
    ):
        load_backbone("dinov3_small")


# ---- devices ----


@pytest.mark.parametrize("device", ["", "gpu", "cuda:", "cuda:x", "cpu:0", "mps"])
def test_devices_that_are_refused(timm: Any, device: str) -> None:
    with pytest.raises(OptionError, match=rf"must be cpu, cuda or cuda:N\. Got '{device}'\."):
        load_backbone("resnet18", device=device)


def test_a_gpu_that_is_not_there(timm: Any, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "count", lambda self: 1)
    with pytest.raises(
        OptionError, match=r"'cuda:1' is not there: 1 GPU can be used here\. Use cpu, or "
    ):
        load_backbone("resnet18", device="cuda:1")


def test_a_gpu_is_taken_where_there_is_one(
    timm: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, kind in ((2, "cuda"), (0, "cpu")):
        monkeypatch.setattr(Cuda, "count", lambda self, count=count: count)
        assert torch_device(None) == torch.device(kind)
    assert torch_device("cpu") == torch.device("cpu")

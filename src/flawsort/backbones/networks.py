"""The named networks that run in torch: their weights, layers and pooling.

The paper's networks follow its table of layers and kernels (Appendix, "Feature Extractor"). Its
"ResBlock 2", "Reduction 3" and "Block 7" are counted from one: then 7 of 12 and 13 of 24 are both
the first block of the second half. The only input size it names is 256 pixels ("Patch vs
Holistic"); the transformers get 224, the size they were trained at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# The suffix of a name that selects the last hidden layer, before any pooling.
LAST = ":last"


@dataclass(frozen=True)
class Network:
    """A network, and the layers that its patches come from.

    model: the name in timm, with the tag of the weights. licence: of the weights.
    input_size: side of the square image. step: the side must be a multiple of it; it is also the
    stride of the last hidden layer. last: the number of channels of that layer.
    taps: stages or blocks, numbered from 0 as in timm's `forward_intermediates`; empty for the last
    hidden layer. strides, channels: of the map at each tap. kernel: side of the average pooling
    over patches.
    """

    model: str
    licence: str
    input_size: int
    step: int
    last: int
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    channels: tuple[int, ...]
    kernel: int


def find_network(name: str) -> Network | None:
    """The network of that name, or None.

    NAME:last selects its last hidden layer, to compare patches with one holistic vector. The paper
    takes that layer "without average pooling", so the kernel is 1.
    """
    network = NETWORKS.get(name.removesuffix(LAST))
    if network is None or not name.endswith(LAST):
        return network
    return replace(network, taps=(), strides=(network.step,), channels=(network.last,), kernel=1)


def _convolutional(model: str, channels: int, last: int) -> Network:
    """A network of the paper's two convolutional families. Tap 2 has stride 8 in both: timm numbers
    a ResNet's stem 0, and an EfficientNet's reductions from 0."""
    return Network(model, "Apache-2.0", 256, 32, last, (2,), (8,), (channels,), 3)


def _transformer(model: str, block: int, width: int) -> Network:
    """A transformer of the paper. block: counted from one, as in the paper."""
    return Network(model, "Apache-2.0", 224, 16, width, (block - 1,), (16,), (width,), 1)


def _dino(model: str, licence: str, patch: int, width: int) -> Network:
    """Blocks 6 and 9 of 12, counted from one, on a grid of 32 x 32.

    At 336 pixels, on two MVTec categories with 16 normals each, a kernel of 3 found flawed pixels
    better than one of 1 (AUROC .965 and .877, .986 and .987), and the network's final norm on top
    of the blocks did not help (.951, .990).
    """
    taps, strides, channels = (5, 8), (patch, patch), (width, width)
    return Network(model, licence, 32 * patch, patch, width, taps, strides, channels, 3)


def _convnext(model: str, width: int) -> Network:
    """The ends of its stages of stride 8 and 16, as in the embedded default. width: at stride 8."""
    channels = (width, 2 * width)
    return Network(model, "Apache-2.0", 256, 32, 4 * width, (1, 2), (8, 16), channels, 3)


# The networks by name. timm's tags pin the weights, because the default of a bare name changes.
# The paper only says that its weights were trained on ImageNet. timm has not trained
# EfficientNet-B7; its weights are Google's, with the recipe (RandAugment) of the other two.
NETWORKS = {
    "resnet18": _convolutional("resnet18.a1_in1k", 128, 512),
    "resnet50": _convolutional("resnet50.a1_in1k", 512, 2048),
    "resnet101": _convolutional("resnet101.a1h_in1k", 512, 2048),
    "resnet152": _convolutional("resnet152.a1h_in1k", 512, 2048),
    "wide_resnet50": _convolutional("wide_resnet50_2.racm_in1k", 512, 2048),
    "efficientnet_b0": _convolutional("efficientnet_b0.ra_in1k", 40, 1280),
    "efficientnet_b4": _convolutional("efficientnet_b4.ra2_in1k", 56, 1792),
    "efficientnet_b7": _convolutional("tf_efficientnet_b7.ra_in1k", 80, 2560),
    "vit_tiny": _transformer("vit_tiny_patch16_224.augreg_in21k_ft_in1k", 7, 192),
    "vit_small": _transformer("vit_small_patch16_224.augreg_in21k_ft_in1k", 7, 384),
    "vit_base": _transformer("vit_base_patch16_224.augreg_in21k_ft_in1k", 7, 768),
    "vit_large": _transformer("vit_large_patch16_224.augreg_in21k_ft_in1k", 13, 1024),
    "dinov2_small": _dino("vit_small_patch14_reg4_dinov2.lvd142m", "Apache-2.0", 14, 384),
    "dinov2_base": _dino("vit_base_patch14_reg4_dinov2.lvd142m", "Apache-2.0", 14, 768),
    "dinov3_small": _dino("vit_small_patch16_dinov3.lvd1689m", "DINOv3 License", 16, 384),
    "convnext_tiny": _convnext("convnext_tiny.fb_in22k_ft_in1k", 192),
    "convnext_base": _convnext("convnext_base.fb_in22k_ft_in1k", 256),
}

"""The networks that are trained: ResNet-50 with heads (IIC and SCAN), and GATCluster's own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from flawsort.backbones.networks import NETWORKS
from flawsort.backbones.weight_files import fit_weights, read_metadata, read_weights
from flawsort.core.errors import BackboneError, first_line

RESIDUAL = "resnet50"
# Metadata of a .safetensors file whose network has the stride of a stage in the first 1 x 1
# convolution, as first published, and not in the 3 x 3 one, as today.
ORIGINAL_FORM = ("form", "original")


class Residual(nn.Module):
    """ResNet-50 up to its average over the image: (n, channels, height, width) to (n, width)."""

    def __init__(
        self,
        *,
        weights: Path | None = None,
        pretrained: bool = False,
        channels: int = 3,
    ) -> None:
        """weights: a file with timm's key names; stages that it lacks at the end are left out.
        pretrained: without a file, download timm's weights. channels: of the input; 3 if there
        are weights."""
        super().__init__()
        self.trunk = _trunk(weights, pretrained, channels)
        self.width = int(self.trunk.feature_info[-1 - _absent(self.trunk)]["num_chs"])
        self.register_buffer("centred", torch.zeros((), dtype=torch.bool))
        self.register_buffer("middle", torch.zeros(self.width))
        self.register_buffer("length", torch.ones(()))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = self.trunk.forward_features(pixels)
        features = maps.float().mean((2, 3))
        middle, length = self.middle, self.length
        if self.training and self.centred:
            middle, length = _middle_and_length(features)
        centred: torch.Tensor = (features - middle) / length
        return centred

    def centre(self, features: torch.Tensor) -> None:
        """Subtract the mean of these features from now on, and scale to a mean length of 1.

        In training mode the mean and the length of the batch are used instead: features of
        augmented photos have another mean and lie farther apart than those of whole photos.
        """
        middle, length = _middle_and_length(features)
        self.middle += middle * self.length
        self.length *= length
        self.centred.fill_(True)


def _middle_and_length(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    middle = features.mean(0)
    return middle, (features - middle).norm(dim=1).mean().clamp_min(1e-6)


def _trunk(weights: Path | None, pretrained: bool, channels: int) -> Any:
    import timm

    tag = NETWORKS[RESIDUAL].model
    if weights is None and pretrained:
        try:
            return timm.create_model(tag, pretrained=True, in_chans=channels, num_classes=0)
        except Exception as error:
            raise BackboneError(
                f"The weights of {RESIDUAL} could not be downloaded ({first_line(error)}). Give "
                "a file of them, or train without."
            ) from error
    trunk = timm.create_model(tag, in_chans=channels, num_classes=0)
    if weights is None:
        return trunk
    state = read_weights(weights)
    for number in (4, 3, 2):
        if any(key.startswith(f"layer{number}.") for key in state):
            break
        setattr(trunk, f"layer{number}", nn.Identity())
    name, form = ORIGINAL_FORM
    if read_metadata(weights).get(name) == form:
        _move_strides(trunk)
    fit_weights(trunk, state, weights, f"'{RESIDUAL}'")
    return trunk


def _absent(trunk: Any) -> int:
    return sum(isinstance(getattr(trunk, f"layer{number}"), nn.Identity) for number in (2, 3, 4))


def _move_strides(trunk: Any) -> None:
    for stage in (trunk.layer2, trunk.layer3, trunk.layer4):
        if not isinstance(stage, nn.Identity):
            first = stage[0]
            first.conv1.stride, first.conv2.stride = first.conv2.stride, first.conv1.stride


@torch.no_grad()
def settle_norms(network: nn.Module, batches: Iterable[torch.Tensor]) -> None:
    """Set the statistics of every batch norm to their mean over these batches of pixels."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
    network.train()
    for pixels in batches:
        network(pixels)
    network.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def train_but_norms(network: nn.Module) -> None:
    """As `network.train()`, but batch norms keep and use the statistics that they have."""
    network.train()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()


class Heads(nn.Module):
    """Several linear classifiers side by side: (n, width) to (n_heads, n, k), before softmax."""

    def __init__(self, width: int, n_heads: int, k: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, n_heads * k)
        self.shape = (n_heads, k)
        nn.init.normal_(self.linear.weight, std=0.01)
        nn.init.zeros_(self.linear.bias)
        # The loss of each head when it was last measured; the head with the least one predicts.
        self.register_buffer("losses", torch.zeros(n_heads))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.linear(features)
        return logits.reshape(len(features), *self.shape).transpose(0, 1)

    @property
    def best(self) -> int:
        """The head with the least loss."""
        return int(self.losses.argmin())


class HeadedResidual(nn.Module):
    """ResNet-50 and named sets of heads on top of it."""

    def __init__(self, trunk: Residual, heads: dict[str, tuple[int, int]]) -> None:
        """heads: name -> the number of heads, and the number of clusters of each."""
        super().__init__()
        self.trunk = trunk
        self.heads = nn.ModuleDict(
            {name: Heads(trunk.width, *shape) for name, shape in heads.items()}
        )

    def forward(self, pixels: torch.Tensor, head: str) -> torch.Tensor:
        """(n_heads, n, k): logits of the heads of that name."""
        logits: torch.Tensor = self.heads[head](self.trunk(pixels))
        return logits

    def predict(self, pixels: torch.Tensor, head: str) -> torch.Tensor:
        """(n, k): logits of the best of those heads."""
        return self(pixels, head)[self.heads[head].best]


class GaussianAttention(nn.Module):
    """Where to look: a soft disc (n, 1, rows, columns) whose middle and width a linear layer
    predicts."""

    def __init__(self, channels: int, grid: int, spread: float) -> None:
        super().__init__()
        self.place = nn.Linear(channels * grid * grid, 3)
        self.spread = spread
        across = torch.linspace(0, 1, grid)
        places = torch.stack(torch.meshgrid(across, across, indexing="ij"), dim=-1)
        self.register_buffer("places", places, persistent=False)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        middle_and_width = torch.sigmoid(self.place(maps.flatten(1)).float())
        middle = middle_and_width[:, None, None, :2]
        width = middle_and_width[:, 2, None, None]
        squares = ((self.places - middle) ** 2).sum(-1)
        return torch.exp(-squares / (2 * self.spread * width + 1e-5))[:, None]


class AttentionNetwork(nn.Module):
    """GATCluster's network: eleven 3 x 3 convolutions without padding, and two classifiers, one for
    the whole image and one for the part under a Gaussian."""

    # Channels of the convolutions of each stage; the size is halved between stages.
    STAGES = ((64, 64, 64), (128, 128, 128), (256, 256, 256), (256, 256))
    SIDE = 128
    GRID = 6

    def __init__(self, k: int, *, spread: float = 0.05) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 3
        for number, stage in enumerate(self.STAGES):
            layers += [nn.MaxPool2d(2)] if number else []
            for channels in stage:
                layers += _convolution(before, channels, 3)
                before = channels
        self.maps = nn.Sequential(*layers, *_convolution(before, k, 1))
        self.mixed = nn.Sequential(*_convolution(k, k, 1))
        self.attention = GaussianAttention(k, self.GRID, spread)
        self.of_all = _classifier(k)
        self.of_attended = _classifier(k)

    def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities (n, k) from the whole image and from the attended part."""
        maps = self.maps(pixels)
        mixed = self.mixed(maps).float()
        attended = (mixed * self.attention(maps)).sum((2, 3))
        with torch.autocast(pixels.device.type, enabled=False):
            whole = self.of_all(mixed.mean((2, 3)))
            return F.softmax(whole, dim=1), F.softmax(self.of_attended(attended), dim=1)


def _convolution(before: int, channels: int, kernel: int) -> list[nn.Module]:
    convolution = nn.Conv2d(before, channels, kernel)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(convolution.bias)
    return [convolution, nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]


def _classifier(k: int) -> nn.Module:
    """Begins as the identity: there is one feature for each cluster."""
    first, second = nn.Linear(k, k), nn.Linear(k, k)
    for linear in (first, second):
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
    return nn.Sequential(first, nn.ReLU(inplace=True), second)

"""Backbones: pixels to feature maps, behind one small protocol.

`load_backbone(name)` loads an embedded backbone, a network that runs in torch, or an ONNX file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flawsort.backbones.base import Backbone, BackboneChoice, BackboneInfo
from flawsort.backbones.catalogue import (
    DEFAULT_BACKBONE,
    SECOND_BACKBONE,
    Entry,
    catalogue,
    entry_path,
)
from flawsort.backbones.networks import LAST, NETWORKS, Network, find_network
from flawsort.core.errors import BackboneError, OptionError

__all__ = [
    "DEFAULT_BACKBONE",
    "NETWORKS",
    "SECOND_BACKBONE",
    "Backbone",
    "BackboneChoice",
    "BackboneInfo",
    "Network",
    "catalogue",
    "entry_path",
    "find_network",
    "load_backbone",
    "open_backbone",
]


def load_backbone(
    name: str | Path,
    *,
    image_size: int | None = None,
    weights: Path | None = None,
    device: str | None = None,
) -> Backbone:
    """Load an embedded backbone or a network by its name, or an ONNX file by its path.

    name: a path may be followed by the outputs to use: net.onnx#stride8,stride16.
    image_size: side of the square input, for backbones without a fixed one.
    weights: a file with the weights of a network; None downloads them with timm.
    device: where a network runs, see flawsort.core.devices; None for a GPU if there is one. ONNX
        files run on the CPU.
    """
    from flawsort.backbones.onnx import OnnxBackbone, split_outputs

    entry: Entry | None = catalogue().get(str(name))
    path, outputs = split_outputs(str(name))
    if entry is None and path.suffix.lower() != ".onnx":
        return _network(str(name), image_size, weights, device)
    if weights is not None:
        raise OptionError(
            f"are for the networks of flawsort[torch]; backbone '{name}' has its own. "
            f"Got '{weights}'; leave it out.",
            parameter="backbone_weights",
        )
    if entry is not None:
        return OnnxBackbone.from_catalogue(str(name), entry, image_size)
    return OnnxBackbone.from_file(path, image_size, outputs)


def open_backbone(choice: BackboneChoice, *, device: str | None = None) -> Backbone:
    """Load the backbone of a choice. device: see `load_backbone`."""
    backbone = load_backbone(
        choice.name,
        image_size=choice.image_size,
        weights=None if choice.weights is None else Path(choice.weights),
        device=device,
    )
    if choice.grid is not None:
        backbone.info = replace(backbone.info, grid=choice.grid)
    return backbone


def _network(
    name: str, image_size: int | None, weights: Path | None, device: str | None
) -> Backbone:
    from flawsort.backbones.timm import TimmBackbone

    if find_network(name) is None:
        raise BackboneError(
            f"must be one of {', '.join(catalogue())} or the path of an .onnx file. "
            f"Got '{name}'. flawsort[torch] adds {', '.join(NETWORKS)}, each also as NAME{LAST} "
            "for its last layer.",
            parameter="backbone",
        )
    return TimmBackbone.load(name, weights=weights, image_size=image_size, device=device)

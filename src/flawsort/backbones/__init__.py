"""Backbones: pixels to feature maps, behind one small protocol.

`load_backbone(name)` takes the name of an embedded backbone or the path of an ONNX file.
"""

from __future__ import annotations

from pathlib import Path

from flawsort.backbones.catalogue import DEFAULT_BACKBONE, Entry, catalogue, entry_path
from flawsort.backbones.protocol import Backbone, BackboneInfo
from flawsort.errors import BackboneError

__all__ = [
    "DEFAULT_BACKBONE",
    "Backbone",
    "BackboneInfo",
    "catalogue",
    "entry_path",
    "load_backbone",
]


def load_backbone(name: str | Path, *, image_size: int | None = None) -> Backbone:
    """The backbone of that name, or the ONNX file at that path.

    image_size: side of the square input, for backbones that leave it open.
    """
    from flawsort.backbones.onnx import OnnxBackbone

    entry: Entry | None = catalogue().get(str(name))
    if entry is not None:
        return OnnxBackbone.from_catalogue(str(name), entry, image_size)
    path = Path(name)
    if path.suffix.lower() != ".onnx":
        raise BackboneError(
            f"backbone must be one of {', '.join(sorted(catalogue()))} or the path of an .onnx "
            f"file. Got '{name}'."
        )
    return OnnxBackbone.from_file(path, image_size)

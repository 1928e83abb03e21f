"""What a backbone is: pixels in, feature maps out, and a record of where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from flawsort.core.errors import OptionError
from flawsort.core.records import Floats

# The paper's kernel (Section 4, "Implementation"): each patch also sees its eight neighbours.
POOLING_KERNEL = 3
# The input size that a run records when it starts from patches, without a backbone.
INPUT_SIZE_OF_PATCHES = (256, 256)


@dataclass(frozen=True)
class BackboneInfo:
    """What a run records about its backbone.

    input_size: (height, width) of its input. pooling_kernel: the side of the average pooling over
    its feature maps, 1 for none. grid: the side of the grid that finer feature maps are averaged
    to; None for the grid of the finest map.
    """

    name: str
    sha256: str
    licence: str
    origin: str
    input_size: tuple[int, int]
    pooling_kernel: int = POOLING_KERNEL
    grid: int | None = None


@dataclass(frozen=True)
class BackboneChoice:
    """How to open a backbone. name: of a backbone or network, or the path of an ONNX file. weights:
    a file with the network's weights. image_size: if the backbone does not fix it. grid: the side
    of the grid that finer feature maps are averaged to; None for the grid of the finest map."""

    name: str | Path
    weights: str | Path | None = None
    image_size: int | None = None
    grid: int | None = None

    def __post_init__(self) -> None:
        if self.grid is not None and self.grid < 1:
            raise OptionError(f"grid must be 1 or more, or None. Got {self.grid}.")


class Backbone(Protocol):
    """Turns pixels into feature maps."""

    info: BackboneInfo

    def feature_maps(self, pixels: Floats) -> list[Floats]:
        """pixels: (n, 3, height, width), RGB in 0..1. Returns maps (n, channels, rows, cols)."""
        ...

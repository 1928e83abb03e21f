"""What a backbone is: pixels in, feature maps out, and a record of where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from flawsort.core.records import Floats

# The paper's kernel (Section 4, "Implementation"): each patch also sees its eight neighbours.
POOLING_KERNEL = 3
# What a backbone would be given, where patches were given and there was none.
INPUT_SIZE_OF_PATCHES = (256, 256)


@dataclass(frozen=True)
class BackboneInfo:
    """What is recorded of a backbone in a run.

    input_size: (height, width) of the images it is given. pooling_kernel: the side of the average
    pooling over its maps, 1 for none.
    """

    name: str
    sha256: str
    licence: str
    origin: str
    input_size: tuple[int, int]
    pooling_kernel: int = POOLING_KERNEL


class Backbone(Protocol):
    """Turns pixels into feature maps."""

    @property
    def info(self) -> BackboneInfo: ...

    def feature_maps(self, pixels: Floats) -> list[Floats]:
        """pixels: (n, 3, height, width), RGB in 0..1. Returns maps (n, channels, rows, cols)."""
        ...

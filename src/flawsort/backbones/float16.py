"""Convert float32 to float16 with onnxruntime, which uses the processor's instruction for it.

NumPy converts one number at a time, which took as long for the patches of an image as pooling them.
The graph is a single Cast; tools/export_arithmetic.py writes it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones.graphs import open_graph

if TYPE_CHECKING:
    import onnxruntime


def to_half(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """The nearest float16 to each number, ties to even, exactly as `astype` gives it."""
    halves: NDArray[np.float16] = _session().run(None, {"single": values})[0]
    return halves


@cache
def _session() -> onnxruntime.InferenceSession:
    return open_graph(Path(__file__).with_name("half.onnx"))

"""The small graphs of arithmetic in the package. Each is checked against its SHA-256 before it
runs, as the embedded backbones are."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flawsort.backbones.catalogue import read_file
from flawsort.core.errors import BackboneError

if TYPE_CHECKING:
    import onnxruntime

# tools/export_arithmetic.py writes the files and prints these.
GRAPHS = {
    "half.onnx": "7618b01e7bb29d869cc2dc629e6c5d8fce36740722788e94e161d6f2c2c78913",
    "overflow.onnx": "c97cd9249509f584857011c7ecdc6dc07e440d4b7f6bc845059531660f56f5cf",
    "int8.onnx": "21d87cbe268ec8a4c55cee64e7417a015f207569caa34623835edfc70a5553b7",
}


def runtime() -> Any:
    """onnxruntime. On Windows it would report what it runs to the system, which may send it on."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def open_graph(path: Path) -> onnxruntime.InferenceSession:
    """A graph of the package, with one thread. BackboneError if it is not the one that was
    published."""
    content = read_file(path)
    digest = hashlib.sha256(content).hexdigest()
    if digest != GRAPHS[path.name]:
        raise BackboneError(
            f"The embedded graph '{path.name}' is damaged: its SHA-256 is {digest} instead of "
            f"{GRAPHS[path.name]}. Install flawsort again."
        )
    onnx = runtime()
    options = onnx.SessionOptions()
    options.intra_op_num_threads = 1
    session: onnxruntime.InferenceSession = onnx.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
    )
    return session

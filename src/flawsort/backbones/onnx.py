"""Backbones from ONNX files, run by onnxruntime on the CPU. Several threads may call them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flawsort.backbones.base import BackboneInfo
from flawsort.backbones.catalogue import Entry, read_entry, read_file
from flawsort.backbones.external_data import digest_with, external_files
from flawsort.backbones.graphs import open_graph, runtime
from flawsort.core.errors import BackboneError, first_line
from flawsort.core.records import Floats

if TYPE_CHECKING:
    import onnxruntime

# For files without a fixed input size; the size at which the default backbone was measured.
OPEN_INPUT_SIZE = 256
# Separates the path of a file from the outputs to use: net.onnx#stride8,stride16.
OUTPUTS_MARK = "#"
# onnxruntime's option for products of eight-bit numbers that do not overflow.
_EXACT_PRODUCTS = "session.x64quantprecision"


def split_outputs(name: str) -> tuple[Path, tuple[str, ...] | None]:
    """The path of an ONNX file, and the outputs that are named after it, if any."""
    path, mark, outputs = name.rpartition(OUTPUTS_MARK)
    if not mark or not path.lower().endswith(".onnx"):
        return Path(name), None
    return Path(path), tuple(part.strip() for part in outputs.split(","))


class OnnxBackbone:
    """An ONNX file with a float input (n, 3, height, width), RGB in 0..1, and feature maps as
    outputs."""

    def __init__(
        self,
        content: bytes | Path,
        info: BackboneInfo,
        image_size: int | None,
        outputs: tuple[str, ...] | None = None,
    ) -> None:
        """content: of the file; its path if it names others. outputs: the names of the outputs to
        use; None for all that are feature maps."""
        self._session = _open_session(content, info.name)
        self._outputs = None if outputs is None else list(outputs)
        _check_outputs(outputs, [output.name for output in self._session.get_outputs()], info.name)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type != "tensor(float)":
            raise BackboneError(
                f"Backbone '{info.name}' must have one float input (n, 3, height, width). Got "
                + ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs)
                + "."
            )
        self._input = inputs[0].name
        size = choose_input_size(info, inputs[0].shape, image_size)
        self.info = replace(info, input_size=size)
        self._fixed_batch = inputs[0].shape[0] if isinstance(inputs[0].shape[0], int) else None

    @classmethod
    def from_catalogue(cls, name: str, entry: Entry, image_size: int | None) -> OnnxBackbone:
        """Load an embedded backbone, and check its SHA-256."""
        content, info = read_entry(name, entry)
        return cls(content, info, image_size)

    @classmethod
    def from_file(
        cls, path: Path, image_size: int | None, outputs: tuple[str, ...] | None = None
    ) -> OnnxBackbone:
        """Load any ONNX file with one image input and at least one feature-map output, and the
        files with weights that it names."""
        content = read_file(path)
        files = external_files(content, path)
        digest, name = digest_with(hashlib.sha256(content).hexdigest(), files), path.name
        known = digest
        if outputs is not None:  # other outputs make another backbone of the same file
            chosen = ",".join(outputs)
            digest = hashlib.sha256(f"{digest}{OUTPUTS_MARK}{chosen}".encode()).hexdigest()
            name += f"{OUTPUTS_MARK}{chosen}"
        open_size = (OPEN_INPUT_SIZE, OPEN_INPUT_SIZE)
        info = BackboneInfo(name, digest, "not recorded", "a file given by path", open_size)
        if not files:
            return cls(content, info, image_size, outputs)
        # onnxruntime finds them beside the file, so it reads all of them itself.
        loaded = cls(path, info, image_size, outputs)
        if digest_with(hashlib.sha256(read_file(path)).hexdigest(), files) != known:
            raise BackboneError(
                f"The backbone '{path}' changed while it was being loaded. Try again."
            )
        return loaded

    def feature_maps(self, pixels: Floats) -> list[Floats]:
        """pixels: (n, 3, height, width), RGB in 0..1. Returns maps (n, channels, rows, cols)."""
        values = np.ascontiguousarray(pixels, dtype=np.float32)
        step = self._fixed_batch or len(values)
        parts = [self._run(values[start : start + step]) for start in range(0, len(values), step)]
        return [
            np.concatenate(maps) if len(parts) > 1 else maps[0] for maps in zip(*parts, strict=True)
        ]

    def _run(self, pixels: Floats) -> list[Floats]:
        missing = (self._fixed_batch or len(pixels)) - len(pixels)
        if missing:  # fill up the last batch of a graph with a fixed batch size
            pixels = np.concatenate([pixels, np.repeat(pixels[-1:], missing, axis=0)])
        try:
            outputs = self._session.run(self._outputs, {self._input: pixels})
        except Exception as error:
            raise BackboneError(
                f"Backbone '{self.info.name}' failed on a batch of shape {pixels.shape}: "
                f"{first_line(error)}"
            ) from error
        maps = [out for out in outputs if isinstance(out, np.ndarray) and out.ndim == 4]
        if not maps:
            raise BackboneError(
                f"Backbone '{self.info.name}' must have a feature-map output (n, channels, rows, "
                f"cols). Got shapes {[np.shape(out) for out in outputs]}."
            )
        return [out[: len(pixels) - missing] for out in maps]


def _open_session(content: bytes | Path, name: str) -> onnxruntime.InferenceSession:
    onnx = runtime()
    options = onnx.SessionOptions()
    options.log_severity_level = 3
    # One thread per call: `embed` calls from several threads, which never wait for each other.
    # Threads inside one call would wait for each other after every layer.
    options.intra_op_num_threads = 1
    if _products_overflow():
        options.add_session_config_entry(_EXACT_PRODUCTS, "1")
    try:
        session: onnxruntime.InferenceSession = onnx.InferenceSession(
            content, sess_options=options, providers=["CPUExecutionProvider"]
        )
        return session
    except Exception as error:
        raise BackboneError(
            f"Backbone '{name}' is not an ONNX file that onnxruntime can load: {first_line(error)}"
        ) from error


@cache
def _products_overflow() -> bool:
    """Whether products of eight-bit numbers overflow here, as they do on x86 without VNNI.

    They cost dinov2-small as much again as the rounding to eight bits (a cosine of .995). The exact
    products are right everywhere, but with VNNI they take 1.6 times as long.
    """
    session = open_graph(Path(__file__).with_name("overflow.onnx"))
    rows, columns = np.full((16, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    products = session.run(None, {"rows": rows, "columns": columns})[0]
    return bool((products != 64 * 255 * 127).any())


def _check_outputs(wanted: tuple[str, ...] | None, there: list[str], name: str) -> None:
    missing = [output for output in wanted or () if output not in there]
    if missing:
        raise BackboneError(
            f"The outputs of backbone '{name}' must be among {', '.join(there)}. "
            f"Got {', '.join(repr(output) for output in missing)}."
        )


def choose_input_size(
    info: BackboneInfo, shape: list[int | str | None], image_size: int | None
) -> tuple[int, int]:
    """(height, width): what the shape (n, 3, height, width) of a graph's input fixes, or
    image_size, or else what info says."""
    fixed = tuple(side for side in shape[2:] if isinstance(side, int) and side > 0)
    if len(fixed) == 2:
        if image_size is not None and fixed != (image_size, image_size):
            raise BackboneError(
                f"must be left out for backbone '{info.name}', which takes images of {fixed[0]} x "
                f"{fixed[1]} only. Got {image_size}.",
                parameter="image_size",
            )
        return fixed[0], fixed[1]
    if image_size is None:
        return info.input_size
    if not (32 <= image_size <= 2048 and image_size % 32 == 0):
        raise BackboneError(
            f"must be a multiple of 32 between 32 and 2048. Got {image_size}.",
            parameter="image_size",
        )
    return image_size, image_size

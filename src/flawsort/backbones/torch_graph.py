"""The embedded backbones on a GPU: their ONNX graphs, run by torch. It needs flawsort[torch].

Only the operations of those graphs are known here. Numbers are rounded to eight bits where the
graph says so, as onnxruntime does it on a CPU. Bags of both then differ no more than bags of two
processors with other instructions (mean cosine .9985 for block 9 of dinov2-small), and they share
their place in the cache: a run that was made on a GPU can be used on a CPU. Everything is computed
in single precision. Products in half precision made bags differ by a third more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones.base import BackboneInfo
from flawsort.backbones.catalogue import Entry, read_entry
from flawsort.backbones.onnx import choose_input_size
from flawsort.core.devices import CPU, choose_device
from flawsort.core.errors import BackboneError, first_line
from flawsort.core.records import Floats

if TYPE_CHECKING:
    import torch

# A tensor on the device, or whole numbers that describe shapes and stay on the CPU.
Value = Any
Attributes = dict[str, Any]

# Every call has this many frames, missing ones filled up, so that the same kernels run and an image
# has the same features in any batch. More would keep more files in memory while they wait.
BATCH_FRAMES = 8


@dataclass(frozen=True)
class _Step:
    """One operation. done_with: the values that no later step needs."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Attributes
    done_with: tuple[str, ...] = ()


class TorchGraph:
    """An embedded backbone that runs in torch."""

    def __init__(
        self,
        content: bytes,
        info: BackboneInfo,
        image_size: int | None,
        device: str,
        batch_frames: int = BATCH_FRAMES,
    ) -> None:
        """device: as torch names it. batch_frames: the images of each call."""
        import torch

        self.batch_frames = batch_frames
        self._device = torch.device(device)
        (self._input, shape), self._outputs, constants, steps = _read(content, info.name)
        self.info = replace(info, input_size=choose_input_size(info, shape, image_size))
        values = {key: _on_device(value, self._device) for key, value in constants.items()}
        self._constants, self._steps = _fold(values, steps, self._outputs)
        self._turn = Lock()  # one call at a time: a GPU does not get faster by more

    @classmethod
    def from_catalogue(
        cls, name: str, entry: Entry, image_size: int | None, device: str
    ) -> TorchGraph:
        """Load an embedded backbone, and check its SHA-256."""
        return cls(*read_entry(name, entry), image_size, device)

    def feature_maps(self, pixels: Floats) -> list[Floats]:
        """pixels: (n, 3, height, width), RGB in 0..1. Returns maps (n, channels, rows, cols)."""
        values = np.asarray(pixels, np.float32)
        starts = range(0, len(values), self.batch_frames)
        try:
            parts = [self._run(values[start : start + self.batch_frames]) for start in starts]
        except Exception as error:
            raise BackboneError(
                f"Backbone '{self.info.name}' failed on a batch of shape {values.shape}: "
                f"{first_line(error)}"
            ) from error
        return [
            np.concatenate(maps) if len(parts) > 1 else maps[0] for maps in zip(*parts, strict=True)
        ]

    def _run(self, pixels: NDArray[np.float32]) -> list[Floats]:
        import torch

        n = len(pixels)
        missing = np.repeat(pixels[-1:], self.batch_frames - n, axis=0)
        frames = torch.tensor(np.concatenate([pixels, missing]))
        # As for TimmBackbone: single precision, where convolutions would use 10-bit mantissas, and
        # products too if the caller allowed it.
        exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
        with self._turn, exact, _exact_products(), torch.inference_mode():
            values = dict(self._constants)
            values[self._input] = frames.to(self._device)
            for step in self._steps:
                _apply(step, values)
            return [values[name][:n].cpu().numpy() for name in self._outputs]


@contextmanager
def _exact_products() -> Iterator[None]:
    """Matrix products in single precision, whatever the caller's setting."""
    import torch

    products = torch.backends.cuda.matmul
    before, products.allow_tf32 = products.allow_tf32, False
    try:
        yield
    finally:
        products.allow_tf32 = before


def gpu_for_graphs(device: str | None) -> str | None:
    """The GPU that runs the embedded backbones; None where onnxruntime runs them on the CPU.

    device: see flawsort.core.devices.
    """
    if find_spec("torch") is None:
        return None
    if find_spec("onnx") is None:
        if device is None or device == CPU:
            return None
        raise BackboneError(
            "Embedded backbones need the package onnx to run on a GPU: pip install "
            f"'flawsort[torch]', or choose the device cpu. Got '{device}'."
        )
    chosen = choose_device(device)
    return None if chosen == CPU else chosen


def _read(
    content: bytes, name: str
) -> tuple[tuple[str, list[int | str | None]], list[str], dict[str, NDArray[Any]], list[_Step]]:
    """The input with its shape, the names of the outputs, the constants, and the steps."""
    import onnx

    graph = onnx.load_model_from_string(content).graph
    unknown = sorted({node.op_type for node in graph.node} - _OPERATIONS.keys())
    if unknown:
        raise BackboneError(
            f"Backbone '{name}' has operations that run on the CPU only: {', '.join(unknown)}. "
            "Use the device cpu."
        )
    dims = graph.input[0].type.tensor_type.shape.dim
    shape = [dim.dim_value or dim.dim_param for dim in dims]
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    steps = [
        _Step(
            node.op_type,
            tuple(node.input),
            tuple(node.output),
            {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute},
        )
        for node in graph.node
    ]
    return (graph.input[0].name, shape), [one.name for one in graph.output], constants, steps


def _on_device(constant: NDArray[Any], device: torch.device) -> Value:
    import torch

    if constant.dtype == np.int64:  # shapes and axes
        return constant.tolist()
    return torch.tensor(constant, device=device)


def _fold(
    values: dict[str, Value], steps: list[_Step], outputs: list[str]
) -> tuple[dict[str, Value], list[_Step]]:
    """Apply the steps that need no image. Returns the constants that are left, and the steps,
    which know what they need last."""
    left = []
    for step in steps:
        if values.keys() >= set(step.inputs):
            _apply(step, values)
        else:
            left.append(step)
    needed, last = {name for step in left for name in step.inputs}, set(outputs)
    constants = {key: value for key, value in values.items() if key in needed}
    ordered = []
    for step in reversed(left):
        done = tuple({*step.inputs} - last - constants.keys())
        last |= {*step.inputs}
        ordered.append(replace(step, done_with=done))
    return constants, ordered[::-1]


def _apply(step: _Step, values: dict[str, Value]) -> None:
    """Compute the outputs of a step, and forget what no later step needs."""
    found = _OPERATIONS[step.kind](*(values[name] for name in step.inputs), step.attributes)
    if len(step.outputs) == 1:
        values[step.outputs[0]] = found
    else:
        values.update(zip(step.outputs, found, strict=True))
    for name in step.done_with:
        del values[name]


# ---- operations, by their names in ONNX: the inputs, then the attributes ----


def _cast(x: torch.Tensor, attributes: Attributes) -> torch.Tensor:
    return x.float()  # the graphs cast to single precision only


def _clip(
    x: torch.Tensor, low: torch.Tensor, high: torch.Tensor, attributes: Attributes
) -> torch.Tensor:
    import torch

    return torch.clamp(x, low, high)


def _conv(
    x: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor, attributes: Attributes
) -> torch.Tensor:
    import torch.nn.functional as F

    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    x = F.pad(x, (left, right, top, bottom)) if top + left + bottom + right else x
    groups = attributes.get("group", 1)
    return F.conv2d(x, weights, bias, stride=tuple(attributes["strides"]), groups=groups)


def _dequantise(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, attributes: Attributes
) -> torch.Tensor:
    """Scales are for all numbers or for columns."""
    return (x.float() - zero.float()) * scale


def _layer_norm(
    x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor, attributes: Attributes
) -> torch.Tensor:
    import torch.nn.functional as F

    return F.layer_norm(x, x.shape[-1:], scale, bias, attributes["epsilon"])


def _max(x: torch.Tensor, y: torch.Tensor, attributes: Attributes) -> torch.Tensor:
    import torch

    return torch.maximum(x, y)


def _pad(x: torch.Tensor, pads: list[int], attributes: Attributes) -> torch.Tensor:
    """pads: before each axis, then after each axis."""
    import torch.nn.functional as F

    pairs = zip(pads[: x.ndim][::-1], pads[x.ndim :][::-1], strict=True)
    return F.pad(x, [side for pair in pairs for side in pair])


def _quantise(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, attributes: Attributes
) -> torch.Tensor:
    """Whole numbers from 0 to 255, kept in single precision."""
    return ((x / scale).round() + zero).clamp(0, 255)


def _reshape(x: torch.Tensor, shape: list[int], attributes: Attributes) -> torch.Tensor:
    return x.reshape([side or x.shape[axis] for axis, side in enumerate(shape)])


def _slice(
    x: torch.Tensor, start: list[int], stop: list[int], axis: list[int], attributes: Attributes
) -> torch.Tensor:
    return x.narrow(axis[0], start[0], stop[0] - start[0])


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "Abs": lambda x, _: x.abs(),
    "Add": lambda x, y, _: x + y,
    "Cast": _cast,
    "Clip": _clip,
    "Conv": _conv,
    "DequantizeLinear": _dequantise,
    "Div": lambda x, y, _: x / y,
    "Erf": lambda x, _: x.erf(),
    "LayerNormalization": _layer_norm,
    "MatMul": lambda x, y, _: x @ y,
    "Max": _max,
    "Mul": lambda x, y, _: x * y,
    "Pad": _pad,
    "QuantizeLinear": _quantise,
    "ReduceMax": lambda x, attributes: x.amax(attributes["axes"], keepdim=True),
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": lambda x, attributes: x.softmax(attributes["axis"]),
    "Split": lambda x, sizes, attributes: x.split(sizes, attributes["axis"]),
    "Sub": lambda x, y, _: x - y,
    "Transpose": lambda x, attributes: x.permute(attributes["perm"]),
}

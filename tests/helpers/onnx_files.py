"""Tiny ONNX files for tests, written byte by byte: the onnx package is not needed to run them.

A protobuf message is a sequence of fields; a field is a key (number and kind) and a value, either
a varint or a length and bytes. The numbers are those of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Sequence

FLOAT, INT64 = 1, 7


def average_pool(
    stride: int,
    *,
    batch: int | str = "n",
    channels: int = 3,
    size: tuple[int | str, int | str] = ("h", "w"),
    kind: int = FLOAT,
) -> bytes:
    """A network whose feature map is the mean colour of each stride x stride square."""
    squares = [("kernel_shape", [stride, stride]), ("strides", [stride, stride])]
    node = _node("AveragePool", ["pixels"], ["map"], squares)
    return _model([node], [("pixels", kind, (batch, channels, *size))], [("map", kind)])


def two_strides() -> bytes:
    """A network with two feature maps: mean colours of squares of 8 and of 16 pixels."""
    nodes = [
        _node(
            "AveragePool",
            ["pixels"],
            [f"stride{stride}"],
            [("kernel_shape", [stride, stride]), ("strides", [stride, stride])],
        )
        for stride in (8, 16)
    ]
    inputs = [("pixels", FLOAT, ("n", 3, "h", "w"))]
    return _model(nodes, inputs, [("stride8", FLOAT), ("stride16", FLOAT)])


def scaled(file: str, *, within: str = "initializer") -> bytes:
    """A network that multiplies an image by one number for each colour, which are in that file.
    within: where the tensor is: an "initializer", or an attribute of a node, "constant"."""
    entries = [(b"location", file.encode()), (b"offset", b"0"), (b"length", b"12")]
    tensor = b"".join(
        [
            *(_number(1, side) for side in (1, 3, 1, 1)),
            _number(2, FLOAT),
            _bytes(8, b"scale"),
            *(_bytes(13, _bytes(1, key) + _bytes(2, value)) for key, value in entries),
            _number(14, 1),
        ]
    )
    nodes = [_node("Mul", ["pixels", "scale"], ["scaled"], [])]
    nodes.append(
        _node("AveragePool", ["scaled"], ["map"], [("kernel_shape", [8, 8]), ("strides", [8, 8])])
    )
    initializers = [tensor]
    if within == "constant":
        attribute = _bytes(1, b"value") + _bytes(5, tensor) + _number(20, 4)
        constant = _bytes(2, b"scale") + _bytes(3, b"scale") + _bytes(4, b"Constant")
        nodes.insert(0, constant + _bytes(5, attribute))
        initializers = []
    inputs = [("pixels", FLOAT, ("n", 3, "h", "w"))]
    return _model(nodes, inputs, [("map", FLOAT)], initializers)


def without_maps() -> bytes:
    """A network whose only output is one row of numbers an image."""
    node = _node("Flatten", ["pixels"], ["row"], [])
    return _model([node], [("pixels", FLOAT, ("n", 3, "h", "w"))], [("row", FLOAT)])


def with_two_inputs() -> bytes:
    """A network that adds two images."""
    node = _node("Add", ["one", "other"], ["sum"], [])
    shape = ("n", 3, "h", "w")
    return _model([node], [("one", FLOAT, shape), ("other", FLOAT, shape)], [("sum", FLOAT)])


def of_rows() -> bytes:
    """A network that takes rows of numbers, not images."""
    return _model(
        [_node("Identity", ["row"], ["same"], [])], [("row", FLOAT, ("n", 8))], [("same", FLOAT)]
    )


Value = tuple[str, int, Sequence[int | str]]


def _model(
    nodes: list[bytes],
    inputs: list[Value],
    outputs: list[tuple[str, int]],
    initializers: Sequence[bytes] = (),
) -> bytes:
    graph = b"".join(
        [
            *(_bytes(1, node) for node in nodes),
            _bytes(2, b"graph"),
            *(_bytes(5, tensor) for tensor in initializers),
            *(_bytes(11, _value(*value)) for value in inputs),
            *(_bytes(12, _value(name, kind, None)) for name, kind in outputs),
        ]
    )
    opset = _bytes(1, b"") + _number(2, 13)
    return _number(1, 8) + _bytes(7, graph) + _bytes(8, opset)


def _node(
    kind: str, inputs: list[str], outputs: list[str], attributes: list[tuple[str, list[int]]]
) -> bytes:
    return b"".join(
        [
            *(_bytes(1, name.encode()) for name in inputs),
            *(_bytes(2, name.encode()) for name in outputs),
            _bytes(3, outputs[0].encode()),
            _bytes(4, kind.encode()),
            *(_bytes(5, _integers(name, values)) for name, values in attributes),
        ]
    )


def _integers(name: str, values: list[int]) -> bytes:
    return _bytes(1, name.encode()) + b"".join(_number(8, v) for v in values) + _number(20, 7)


def _value(name: str, kind: int, shape: Sequence[int | str] | None) -> bytes:
    tensor = _number(1, kind)
    if shape is not None:
        sides = [
            _number(1, side) if isinstance(side, int) else _bytes(2, side.encode())
            for side in shape
        ]
        tensor += _bytes(2, b"".join(_bytes(1, side) for side in sides))
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])

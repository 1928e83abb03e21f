"""Make the three small ONNX graphs that flawsort runs with onnxruntime instead of NumPy.

    pip install onnx
    python tools/export_arithmetic.py

Writes src/flawsort/backbones/half.onnx, a single Cast from float32 to float16 (onnxruntime uses the
processor's instruction for it, NumPy converts number by number),
src/flawsort/backbones/overflow.onnx, a single integer product to see whether it overflows, and
src/flawsort/scores/engines/int8.onnx, a single integer product (NumPy has no fast one). Prints
their SHA-256 for GRAPHS in src/flawsort/backbones/graphs.py.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from onnx import GraphProto, TensorProto, helper

PACKAGE = Path(__file__).parents[1] / "src/flawsort"
# The value that represents zero in the unsigned rows of flawsort.scores.engines.int8.
ZERO_POINT = 64


def half() -> GraphProto:
    return helper.make_graph(
        [helper.make_node("Cast", ["single"], ["half"], to=TensorProto.FLOAT16)],
        "half",
        [helper.make_tensor_value_info("single", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("half", TensorProto.FLOAT16, None)],
    )


def overflow() -> GraphProto:
    return _product("overflow", zero_point=0)


def int8() -> GraphProto:
    return _product("int8", ZERO_POINT)


def _product(name: str, zero_point: int) -> GraphProto:
    return helper.make_graph(
        [helper.make_node("MatMulInteger", ["rows", "columns", "zero"], ["products"])],
        name,
        [
            helper.make_tensor_value_info("rows", TensorProto.UINT8, ["n", "dim"]),
            helper.make_tensor_value_info("columns", TensorProto.INT8, ["dim", "m"]),
        ],
        [helper.make_tensor_value_info("products", TensorProto.INT32, ["n", "m"])],
        [helper.make_tensor("zero", TensorProto.UINT8, [], [zero_point])],
    )


def main() -> None:
    for path, graph in (
        ("backbones/half.onnx", half()),
        ("backbones/overflow.onnx", overflow()),
        ("scores/engines/int8.onnx", int8()),
    ):
        opsets = [helper.make_opsetid("", 13)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=8, producer_name="flawsort"
        )
        output = PACKAGE / path
        content = model.SerializeToString(deterministic=True)
        output.write_bytes(content)
        print(f"{path}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()

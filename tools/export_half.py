"""Make the graph by which flawsort turns float32 into float16: a single Cast.

    pip install onnx
    python tools/export_half.py

Writes src/flawsort/backbones/half.onnx. NumPy's own cast goes number by number, onnxruntime's uses
the processor's instruction for it.
"""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto, helper

OUTPUT = Path(__file__).parents[1] / "src/flawsort/backbones/half.onnx"


def main() -> None:
    graph = helper.make_graph(
        [helper.make_node("Cast", ["single"], ["half"], to=TensorProto.FLOAT16)],
        "half",
        [helper.make_tensor_value_info("single", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("half", TensorProto.FLOAT16, None)],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="flawsort"
    )
    OUTPUT.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()

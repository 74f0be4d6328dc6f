"""onnx-tool, which counts ONNX files without running them."""

from __future__ import annotations

import contextlib
import importlib
import io

import onnx

from irscope.ir.types import TensorType
from irscope.peers.base import CannotCount, Counted
from irscope.session import Model


def count(model: Model) -> Counted:
    """Its numbers for each node, which it calls multiply-adds."""
    import numpy as np

    onnx_tool = importlib.import_module("onnx_tool")
    inputs = {}
    for value in model.graph.inputs:
        type_ = value.type
        if not isinstance(type_, TensorType) or type_.shape is None or not type_.is_static or value.name is None:
            raise CannotCount(f"the sizes of input {value.name!r} are open; give them with --bind or --input to compare")
        found = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, _NAMES.get(type_.dtype.text, "FLOAT")))
        inputs[value.name] = np.zeros([int(size) for size in type_.shape if isinstance(size, int)], found)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        graph = onnx_tool.Model(model.program.path).graph
        graph.shape_infer(inputs)
        graph.profile()
    by_node: dict[str, float] = {}
    for node in graph.nodemap.values():
        macs = float(node.macs[0])
        if macs and node.output:
            by_node[node.output[0]] = by_node.get(node.output[0], 0) + macs
    return Counted(sum(by_node.values()), "multiply-adds", by_node)


_NAMES = {"f16": "FLOAT16", "f32": "FLOAT", "f64": "DOUBLE", "i64": "INT64", "i32": "INT32", "i8": "INT8", "u8": "UINT8", "bool": "BOOL"}

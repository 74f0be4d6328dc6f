"""What a session knows of shapes: beside what ONNX Runtime says of every value of the same file, which it then returns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import irscope
from irscope.ir.dims import SymDim
from irscope.ir.types import TensorType
from irscope.passes.ort.known import known_types
from tests.oracle.test_ort_kernels import node

WEIGHTS: dict[str, object] = {
    **{"one": 1, "two": 2, "first": [0], "ones": [1], "seven": [7], "from": [1], "to": [3], "minus": [-1]},
    **{"left": [-1, 1, 3], "kept": [0, 3, -1], "double": [1, 2, 1, 1], "wider": np.array([1, 1, 1, 2], np.float32)},
    **{"kernel": np.ones((5, 3, 1, 1), np.float32), "step": np.float32(1), "zero": np.uint8(0)},
}
INPUTS = {"x": [2, 3, 48, 64], "d": ["batch", 3, "height", 64], "n": [None, 3], "m": ["batch", 3]}
SHAPE = node("Shape", "x", "s")
UNSQUEEZED = [node("Gather", "s one", "a"), node("Unsqueeze", "a first", "b")]
CASES = {
    "shape": [SHAPE, node("ConstantOfShape", "s")],
    "open": [node("Shape", "d", "s"), node("ConstantOfShape", "s")],
    "number": [SHAPE, *UNSQUEEZED, node("ConstantOfShape", "b")],
    "number-of-open": [node("Shape", "d", "s"), *UNSQUEEZED, node("ConstantOfShape", "b")],
    "two": [SHAPE, *UNSQUEEZED, node("Concat", "b b", "c", axis=0), node("ConstantOfShape", "c")],
    "with-weight": [SHAPE, *UNSQUEEZED, node("Concat", "b seven", "c", axis=0), node("ConstantOfShape", "c")],
    "slice": [SHAPE, node("Slice", "s from to", "c"), node("ConstantOfShape", "c")],
    "product": [
        SHAPE,
        node("Gather", "s one", "a"),
        node("Mul", "a a", "p"),
        node("Unsqueeze", "p first", "b"),
        node("ConstantOfShape", "b"),
    ],
    "twice": [
        SHAPE,
        node("Gather", "s one", "a"),
        node("Mul", "a two", "p"),
        node("Unsqueeze", "p first", "b"),
        node("ConstantOfShape", "b"),
    ],
    "cast": [SHAPE, node("Cast", "s", "c", to=7), node("ConstantOfShape", "c")],
    "range": [SHAPE, node("Gather", "s one", "a"), node("Range", "one a one")],
    "reshape": [SHAPE, *UNSQUEEZED, node("Concat", "b minus", "c", axis=0), node("Reshape", "x c", "r"), node("Transpose", "r")],
    "conv": [node("AveragePool", "d", "a", kernel_shape=[3, 3], pads=[1] * 4), node("Relu", "a")],
    "names": [node("Add", "n m", "a"), node("Relu", "m", "b"), node("Sub", "a b")],
    "slices": [node("Slice", "d first ones ones", "a"), node("Slice", "d first ones")],
    "joined": [node("Concat", "m m", "a", axis=0), node("Concat", "m m", axis=1)],
    "left": [node("Reshape", "m left", "a"), node("Reshape", "d kept", "b"), node("Reshape", "m minus")],
    "scaled": [node("Tile", "d double", "a"), node("Resize", "d  wider", "b")],
    "fused": [node("FusedConv", "d kernel", "a", domain="com.microsoft")],
    "last": [
        node("Transpose", "d", "t", perm=[0, 2, 3, 1]),
        node("QuantizeLinear", "t step zero", "q"),
        node("NhwcMaxPool", "q", "p", kernel_shape=[1, 1], domain="com.microsoft"),
    ],
    "broadcast": [SHAPE, *UNSQUEEZED, node("Concat", "b seven", "c", axis=0), node("ConstantOfShape", "c", "f"), node("Add", "f g")],
}


def write(nodes: Sequence[onnx.NodeProto], path: Path, opset: int) -> list[str]:
    read = {one for each in nodes for one in each.input}
    made = [one for each in nodes for one in each.output]
    graph = helper.make_graph(
        nodes,
        "known",
        [helper.make_tensor_value_info(key, onnx.TensorProto.FLOAT, shape) for key, shape in INPUTS.items()],
        [onnx.ValueInfoProto(name=key) for key in made],
        [numpy_helper.from_array(np.array(value), key) for key, value in WEIGHTS.items() if key in read]
        + [numpy_helper.from_array(np.ones((3, 7), np.float32), "g")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=9),
        path,
    )
    return made


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("name", CASES)
def test_what_a_session_knows(name: str, opset: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    made = write(CASES[name], path, opset)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    types = {value.name: type_ for value, type_ in known_types(irscope.load(path).program).types.items()}
    names: dict[str, object] = {}
    for one in session.get_outputs():
        assert one.name in made
        mine = types[one.name]
        assert isinstance(mine, TensorType)
        if mine.shape is None:
            assert not one.shape
            continue
        assert len(mine.shape) == len(one.shape), (one.name, mine, one.shape)
        for size, theirs in zip(mine.shape, one.shape, strict=True):
            if isinstance(theirs, int) or isinstance(size, int):
                assert size == theirs, (one.name, mine, one.shape)
            else:
                # A size with a name has that name everywhere, one without never equals another.
                is_open = isinstance(size, SymDim) and size.is_unknown
                assert is_open is (theirs is None) and (is_open or names.setdefault(theirs, size) == size), (one.name, mine, one.shape)

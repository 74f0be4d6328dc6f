"""The graphs of the benchmark, small: every value as onnx's own inference has it, in any order of the nodes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from irscope.frontends.onnx import load_model
from irscope.ir.types import TensorType
from irscope.passes.inference.shapes import Shapes
from irscope.passkit.manager import Manager
from tests.tools.bench.onnx_big import write_model


@pytest.mark.parametrize("is_reversed", [False, True])
def test_every_value_of_two_layers(is_reversed: bool, tmp_path: Path) -> None:
    assert write_model(tmp_path / "two.onnx", 100) == 116
    proto = onnx.load(tmp_path / "two.onnx")
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True, strict_mode=True).graph
    expected = {info.name: _shown(info.type.tensor_type) for info in (*inferred.value_info, *inferred.output)}
    if is_reversed:
        nodes = list(proto.graph.node)[::-1]
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
    for info in proto.graph.output:
        info.ClearField("type")
    program = load_model(proto)
    found = Manager(program).get(Shapes())
    seen = {}
    for node in program.graph:
        for value in node.outputs:
            type_ = found.type_of(value)
            if value.name in expected and isinstance(type_, TensorType):
                seen[value.name] = [str(dim) for dim in type_.shape or ()]
    assert seen == expected
    assert not found.assumptions


def _shown(type_: onnx.TypeProto.Tensor) -> list[str]:
    return [dim.dim_param or str(dim.dim_value) for dim in type_.shape.dim]

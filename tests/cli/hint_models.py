"""Small models of every kind that leaves something unknown, for the test that types what hints print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
from onnx import helper

from tests.frontends.onnx.build import BOOL, FLOAT, INT64, graph, model, value


def _node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def _branch(condition: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], flag: str) -> onnx.ModelProto:
    """Two branches with results of different sizes."""
    one = graph([_node("Relu", "x", "a")], outputs=["a"])
    two = graph([_node("Concat", "x x", "b", axis=0)], outputs=["b"])
    return model([*condition, _node("If", flag, "y", then_branch=one, else_branch=two)], [value("x", [2, 3]), *inputs])


def flag() -> onnx.ModelProto:
    """The condition is an input."""
    return _branch([], [value("use-cache?", [], BOOL)], "use-cache?")


def compared() -> onnx.ModelProto:
    """The condition is computed from an input."""
    return _branch([_node("Greater", "k three", "c")], [value("k", [], INT64), value("three", [], INT64)], "c")


def from_data() -> onnx.ModelProto:
    """The condition depends on the values of a picture: no option decides it."""
    return _branch([_node("ReduceSum", "x", "s", keepdims=0), _node("Cast", "s", "c", to=BOOL)], [], "c")


def rankless() -> onnx.ModelProto:
    """An input of which the file says nothing but the element type."""
    proto = model([_node("Relu", "some:input", "y")], [value("some:input", [1])])
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    return proto


def nonzero() -> onnx.ModelProto:
    """A size that is the number of elements that are not 0."""
    return model([_node("NonZero", "x", "i"), _node("Cast", "i", "y", to=FLOAT)], [value("x", [4, 4])])


def axes() -> onnx.ModelProto:
    """Which axes are reduced is an input."""
    return model([_node("ReduceSum", "x axes", "y", keepdims=1)], [value("x", [4, 5, 6]), value("axes", [1], INT64)])


def several() -> onnx.ModelProto:
    """Three open sizes, none of them a batch."""
    return model([_node("MatMul", "a b", "c"), _node("Relu", "c", "y")], [value("a", ["rows", "inner"]), value("b", ["inner", "columns"])])


def ratio() -> onnx.ModelProto:
    """A size that is a quotient of symbols, which may be 0."""
    nodes = [_node("Reshape", "x shape", "y")]
    return model(nodes, [value("x", ["n", 12]), value("shape", [2], INT64)])


def trips() -> onnx.ModelProto:
    """How often a loop runs is an input."""
    body = graph(
        [_node("Identity", "go_in", "go_out"), _node("Concat", "s_in s_in", "s_out", axis=0)],
        [value("i", [], INT64), value("go_in", [], BOOL), value("s_in", None)],
        ["go_out", "s_out"],
    )
    return model([_node("Loop", "count go x", "y", body=body)], [value("x", [2, 3]), value("count", [], INT64), value("go", [], BOOL)])


LIMITED = """irscope 1
symbol batch [1,4]
symbol length [256,512]
graph @main {
  input %x: f32[batch,length,8]
  param %w: f32[8,8]
  %h: f32[batch,length,8] = nn.linear(%x, %w)
  %y: f32[batch,length,8] = nn.relu(%h)
  return %y
}
"""
"""Sizes that have limits: usual ones are outside."""

ONNX_MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    made.__name__: made for made in (flag, compared, from_data, rankless, nonzero, axes, several, ratio, trips)
}


def write(folder: Path) -> list[Path]:
    """All of them as files."""
    for name, made in ONNX_MODELS.items():
        (folder / f"{name}.onnx").write_bytes(made().SerializeToString())
    (folder / "limited.irs").write_text(LIMITED)
    return sorted(folder.iterdir())

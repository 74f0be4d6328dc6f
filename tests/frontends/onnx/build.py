"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper

from irscope.diagnostics import DiagnosticSink
from irscope.frontends.base import LoadOptions
from irscope.frontends.onnx import load_model
from irscope.ir.graph import Node
from irscope.ir.program import Program

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL


def value(name: str, shape: Sequence[int | str | None] | None = (2, 3), dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def ints(name: str, *values: int) -> onnx.TensorProto:
    return helper.make_tensor(name, INT64, [len(values)], values)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] = (),
    outputs: Sequence[str] = ("y",),
    initializers: Sequence[onnx.TensorProto] = (),
) -> onnx.GraphProto:
    made = helper.make_graph(list(nodes), "g", list(inputs), [], list(initializers))
    for name in outputs:
        made.output.add().name = name
    return made


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[str] = ("y",),
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 21,
    ir_version: int = 10,
    **domains: int,
) -> onnx.ModelProto:
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(domain.replace("_", "."), version) for domain, version in domains.items()),
    ]
    body = graph(nodes, [value("x")] if inputs is None else inputs, outputs, initializers)
    return helper.make_model(body, opset_imports=imports, ir_version=ir_version)


def load(proto: onnx.ModelProto, options: LoadOptions | None = None, sink: DiagnosticSink | None = None) -> Program:
    return load_model(proto, options=options, sink=sink)


def lowered(
    op_type: str, inputs: Sequence[str] = ("x",), *, opset: int = 21, domain: str = "", outputs: Sequence[str] = ("y",), **attrs: object
) -> list[Node]:
    """The nodes that one ONNX node becomes; each operand is an input of the model."""
    node = helper.make_node(op_type, list(inputs), list(outputs), domain=domain, **attrs)
    declared = [value(name) for name in dict.fromkeys(inputs) if name]
    domains = {domain.replace(".", "_"): 1} if domain else {}
    program = load(model([node], declared, [name for name in outputs if name], opset=opset, **domains))
    return list(program.graph)


def shown(program: Program) -> list[str]:
    return [
        f"{node.op}({', '.join('-' if value is None else value.name or '?' for value in node.inputs)})" for node in program.graph.walk()
    ]

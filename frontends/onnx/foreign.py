"""Operators that irscope has no lowering for: kept with their operands, attributes and declared types."""

from __future__ import annotations

import re

import onnx

from irscope.frontends.onnx.call import Call, Operand
from irscope.frontends.onnx.order import free_names
from irscope.frontends.onnx.versions import STANDARD
from irscope.frontends.onnx.weights import of_attributes, opaque_weight, role_of
from irscope.ir.graph import Attr, Role, Value
from irscope.ir.types import TensorType

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.]+")
_LONGEST_TEXT = 1024
_MOST_ITEMS = 256


def foreign_name(domain: str, op_type: str) -> str:
    """How a foreign operator is called: "onnx.Foo", "com.microsoft.Foo"."""
    clean = _NOT_IN_NAMES.sub("_", f"{'onnx' if domain == STANDARD else domain}.{op_type}"[:200])
    return clean if clean[0].isalpha() else f"x{clean}"


def keep_foreign(call: Call) -> None:
    """Add the node as it is. Weights and captured values of its graphs become operands, so that they count, and so do tensors and
    long lists of floats in its attributes."""
    operands: list[Operand] = list(call.inputs)
    for value in call.attrs.values():
        for graph in value if isinstance(value, tuple) else (value,):
            if isinstance(graph, onnx.GraphProto):
                operands.extend(_inside(call, graph))
    operands.extend(_in_attributes(call))
    body = call.body
    node = call.node(foreign_name(call.domain, call.op_type), operands, _plain_attributes(call))
    for name, result in zip(call.outputs, node.outputs, strict=True):
        proto = body.declared.get(name)
        if proto is not None:
            body.graph.set_type(result, body.model.types.of_result(proto, bindable=True))
    call.bind(node)


def _inside(call: Call, graph: onnx.GraphProto) -> list[Value]:
    """Weights of a graph that is not lowered, and what it reads from around it."""
    body = call.body
    found = [value for name in sorted(free_names(graph)) if body.knows(name) and (value := body.find(name)) is not None]
    pending = [graph]
    while pending:
        inner = pending.pop()
        found.extend(body.model.weight(tensor, body.prefix + tensor.name) for tensor in inner.initializer)
        for node in inner.node:
            for attribute in node.attribute:
                pending.extend(([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs))
    return found


def _in_attributes(call: Call) -> list[Value]:
    """Attributes of a foreign operator that may be weights."""
    if call.op_type == "EPContext":
        return [opaque_weight(call, "ep_cache_context")]
    names = [
        name
        for name, value in call.attrs.items()
        if isinstance(value, onnx.TensorProto)
        or (isinstance(value, tuple) and len(value) > _MOST_ITEMS and all(isinstance(item, float) for item in value))
    ]
    found = of_attributes(call, dict.fromkeys(names, Role.PARAMETER))
    for weight in found:
        if isinstance(weight.type, TensorType) and weight.type.shape is not None:
            weight.role = role_of(weight.type)
    return found


def _plain_attributes(call: Call) -> dict[str, Attr]:
    """The attributes that can stand in the IR: numbers, texts and short lists of them."""
    plain: dict[str, Attr] = {}
    for name, value in call.attrs.items():
        if not name.isidentifier():
            continue
        if (
            isinstance(value, int | float)
            or (isinstance(value, str) and len(value) <= _LONGEST_TEXT)
            or (isinstance(value, tuple) and len(value) <= _MOST_ITEMS and all(isinstance(item, int | float | str) for item in value))
        ):
            plain[name] = value
    return plain

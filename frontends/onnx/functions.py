"""Functions that a model brings along, or that a standard operator has as its definition: inlined at every call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import onnx

from irscope.frontends.onnx.attributes import AttrValue, decode
from irscope.frontends.onnx.body import Body
from irscope.frontends.onnx.call import Call, Mismatch
from irscope.frontends.onnx.failures import BAD_FUNCTION, TOO_LARGE, refuse, short
from irscope.frontends.onnx.scopes import Scopes
from irscope.frontends.onnx.versions import STANDARD, domain_of, read_opsets

if TYPE_CHECKING:
    from irscope.ir.graph import Value

FunctionKey: TypeAlias = "tuple[str, str, str]"
"""Domain, name and overload."""

_MOST_NODES = 5_000_000
_FREE_NODES = 100_000
_MOST_GROWTH = 64
_HAS_OVERLOAD = "overload" in onnx.FunctionProto.DESCRIPTOR.fields_by_name


class Functions:
    """The local functions of a model, checked to end and to stay of reasonable size when they are inlined."""

    def __init__(self, protos: Iterable[onnx.FunctionProto], where: str) -> None:
        self._where = where
        self._protos: dict[FunctionKey, onnx.FunctionProto] = {}
        for proto in protos:
            key = (domain_of(proto.domain), proto.name, proto.overload if _HAS_OVERLOAD else "")
            if key in self._protos:
                raise refuse(BAD_FUNCTION, f"the function '{short(proto.name)}' is defined twice", where, "the model is damaged")
            self._protos[key] = proto
        self._constants: dict[FunctionKey, dict[str, Value]] = {}

    def find(self, domain: str, name: str, overload: str) -> onnx.FunctionProto | None:
        return self._protos.get((domain, name, overload)) if self._protos else None

    def check_size(self, graph: onnx.GraphProto) -> None:
        """Refuse functions that call themselves, and models that inlining would blow up."""
        if not self._protos:
            return
        sizes: dict[FunctionKey, int] = {}
        calls = {key: self._calls(proto.node) for key, proto in self._protos.items()}
        own = {key: _count_nodes(proto.node) for key, proto in self._protos.items()}
        for start in self._protos:
            path: list[FunctionKey] = [start]
            on_path: set[FunctionKey] = {start}
            while path:
                key = path[-1]
                pending = next((callee for callee in calls[key] if callee not in sizes), None) if key not in sizes else None
                if pending is None:
                    sizes.setdefault(key, own[key] + sum(sizes[callee] * times for callee, times in calls[key].items()))
                    on_path.discard(path.pop())
                elif pending in on_path:
                    raise refuse(
                        BAD_FUNCTION, f"the function '{short(pending[1])}' calls itself", self._where, "ONNX functions must not recurse"
                    )
                else:
                    path.append(pending)
                    on_path.add(pending)
        in_file = _count_nodes(graph.node)
        total = in_file + sum(sizes[key] * times for key, times in self._calls(graph.node).items())
        if total > min(_MOST_NODES, _FREE_NODES + _MOST_GROWTH * (in_file + sum(own.values()))):
            raise refuse(
                TOO_LARGE, f"inlining its functions would make {total} nodes", self._where, "the file looks made to exhaust memory"
            )

    def _calls(self, nodes: Iterable[onnx.NodeProto]) -> Counter[FunctionKey]:
        found: Counter[FunctionKey] = Counter()
        for node in _walk(nodes):
            key = (domain_of(node.domain), node.op_type, node.overload if _HAS_OVERLOAD else "")
            if key in self._protos:
                found[key] += 1
        return found

    def inline(self, call: Call, proto: onnx.FunctionProto) -> None:
        """Put the nodes of a local function in place of a call."""
        key = (domain_of(proto.domain), proto.name, proto.overload if _HAS_OVERLOAD else "")
        inline(call, proto, self._constants.setdefault(key, {}))


def inline(call: Call, proto: onnx.FunctionProto, constants: dict[str, Value]) -> None:
    """Put the nodes of a function in place of a call; `constants` are shared by its calls."""
    if len(call.inputs) > len(proto.input) or len(call.outputs) > len(proto.output):
        raise Mismatch(f"the function takes {len(proto.input)} values and gives {len(proto.output)}")
    caller = call.body
    name = call.name.rpartition("/")[2] or call.op_type
    scope = caller.call_scope(call.scope, name, call.op_type)
    opsets = {STANDARD: caller.opsets[STANDARD], **read_opsets(proto.opset_import)}
    body = Body(caller.model, caller.graph, opsets, Scopes(scope), depth=caller.depth + 1)
    first = next((output for output in call.outputs if output), "")
    body.prefix = f"{caller.shown_name(call.name or first or call.op_type)}/"
    body.arguments = _arguments(call, proto)
    body.constants = constants
    if hasattr(proto, "value_info"):
        body.declare(proto.value_info)
    for index, formal in enumerate(proto.input):
        body.define(formal, call.operand(index))
    results = list(zip(proto.output, call.outputs, strict=False))
    for formal, actual in results:
        if actual:
            body.renamed[formal] = caller.shown_name(actual)
            if actual in caller.declared:
                body.declared[formal] = caller.declared[actual]
    body.lower_nodes(proto.node)
    for formal, actual in results:
        if actual:
            caller.values[actual] = body.find(formal)


def _arguments(call: Call, proto: onnx.FunctionProto) -> dict[str, AttrValue]:
    arguments = {attribute.name: decode(attribute) for attribute in getattr(proto, "attribute_proto", ())}
    for name in (*proto.attribute, *list(arguments)):
        if name in call.attrs:
            arguments[name] = call.attrs[name]
    return arguments


def _walk(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    """Nodes with those of the graphs inside them."""
    pending = [nodes]
    while pending:
        for node in pending.pop():
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g.node)
                pending.extend(graph.node for graph in attribute.graphs)


def _count_nodes(nodes: Iterable[onnx.NodeProto]) -> int:
    return sum(1 for _ in _walk(nodes))


def schema_function(op_type: str, version: int, domain: str) -> onnx.FunctionProto | None:
    """The definition of a standard operator by simpler ones, where the installed onnx has one that needs no types."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    body = schema.function_body
    return body if body.node else None

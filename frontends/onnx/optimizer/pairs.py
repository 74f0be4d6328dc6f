"""Level 1: pairs of QuantizeLinear and DequantizeLinear are moved, so that operators which only move data stand between them, and every
dequantised value has one reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from irscope.frontends.onnx.model import STANDARD
from irscope.frontends.onnx.optimizer.graph import MICROSOFT, OrtGraph, OrtNode
from irscope.frontends.onnx.optimizer.registry import Session, per_node, transformer
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor

_MOVES_DATA: Final = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Slice"})


def _is_q(node: OrtNode | None) -> bool:
    return node is not None and node.op == "QuantizeLinear" and node.domain in (STANDARD, MICROSOFT)


def _is_dq(node: OrtNode | None) -> bool:
    return node is not None and node.op == "DequantizeLinear" and node.domain in (STANDARD, MICROSOFT)


@per_node("EnsureUniqueDQForNodeUnit")
def ensure_unique(graph: OrtGraph, node: OrtNode) -> bool:
    """A DequantizeLinear for each reader; the first keeps the one that is there, unless it is also a result or read by graphs inside."""
    edges = graph.edges(node) if _is_dq(node) else []
    is_result = graph.makes_output(node)
    if not edges or (len(edges) == 1 and not is_result):
        return False
    own = [(reader, place) for reader, _, place in edges if place < len(reader.inputs)]
    if len(own) == len(edges) and not is_result:
        own = own[1:]
    for reader, place in own:
        name = graph.new_name(f"{node.outputs[0]}/duplicated")
        graph.types[name] = graph.type_of(node.outputs[0])
        graph.add_node(node.op, node.inputs, [name], node.attrs, node.domain, f"{node.name}/duplicated", node.provider)
        graph.set_input(reader, place, name)
    return bool(own)


class _Edge(NamedTuple):
    """Where a value goes from one node to another; no source for an input, no reader for a result of the graph."""

    name: str
    source: OrtNode | None
    reader: OrtNode | None
    place: int


def _moves(node: OrtNode | None) -> bool:
    """Return whether pairs are moved past a node."""
    if node is None or not node.is_standard:
        return False
    return node.op in _MOVES_DATA or (node.op == "MaxPool" and node.version >= 12)


def _has_constants(graph: OrtGraph, node: OrtNode) -> bool:
    """Return whether scale and zero point are single constants."""
    names = [node.input(1), *(node.inputs[2:3] if node.has_input(2) else ())]
    weights = [graph.constant(name) for name in names]
    return all(weight is not None and (not weight.shape or weight.shape == (1,)) for weight in weights)


def _after(graph: OrtGraph, node: OrtNode) -> list[_Edge]:
    """Return where the first result goes; nowhere if it is read and also a result of the graph."""
    name = node.outputs[0]
    edges = [_Edge(name, node, reader, place) for reader, result, place in graph.edges(node) if result == 0]
    if not edges:
        return [_Edge(name, node, None, 0)] if graph.is_output(name) else []
    return [] if graph.is_output(name) else edges


def _before(graph: OrtGraph, node: OrtNode) -> _Edge | None:
    """Where the first operand comes from, if that goes nowhere else."""
    name = node.input(0)
    made = graph.maker(name)
    if made is None:
        return _Edge(name, None, node, 0)
    edges = [edge for edge in graph.edges(made) if made.outputs[edge[1]] == name]
    return _Edge(name, made, node, 0) if len(edges) == 1 and not graph.is_output(name) else None


def _insert(graph: OrtGraph, edges: Sequence[_Edge], like: OrtNode) -> None:
    """A QuantizeLinear behind the source of some edges, and a DequantizeLinear in front of each reader."""
    name, source = edges[0].name, edges[0].source
    type_ = graph.type_of(name)
    parameters = like.inputs[1:3]
    code = graph.dtype(parameters[1]) if len(parameters) > 1 and parameters[1] else DType.U8
    before = name
    if source is not None:
        before = graph.new_name(f"{name}_pre_q")
        graph.types[before] = type_
        graph.set_outputs(source, [before if given == name else given for given in source.outputs])
    between = graph.new_name(f"{name}_q_to_dq")
    graph.types[between] = tensor(code, type_.shape if isinstance(type_, TensorType) else None)
    graph.add_node("QuantizeLinear", [before, *parameters], [between], domain=like.domain, name=f"{name}_q", provider=like.provider)
    for edge in edges:
        after = name if edge.reader is None else graph.new_name(f"{name}_post_dq")
        graph.types[after] = type_
        graph.add_node("DequantizeLinear", [between, *parameters], [after], domain=like.domain, name=f"{name}_dq", provider=like.provider)
        if edge.reader is not None:
            graph.set_input(edge.reader, edge.place, after)


@transformer("QDQPropagationTransformer")
def propagate_pairs(graph: OrtGraph, session: Session) -> bool:
    """Behind a DequantizeLinear forwards, then before a QuantizeLinear backwards, past operators that only move data."""
    changed = False
    for node in graph:
        for body in node.bodies.values():
            changed |= propagate_pairs(body, session)
    nodes = graph.order()
    for node in nodes:
        if _is_dq(node) and graph.is_fusable_pair(node) and _has_constants(graph, node):
            changed |= _forwards(graph, node)
    for node in nodes:
        if graph.nodes.get(node.index) is node and _is_q(node) and _has_constants(graph, node):
            changed |= _backwards(graph, node)
    return changed


def _next_edges(graph: OrtGraph, edge: _Edge) -> list[_Edge]:
    if edge.reader is None or not _moves(edge.reader) or edge.place >= len(edge.reader.inputs):
        return []
    return [one for one in _after(graph, edge.reader) if not _is_q(one.reader)]


def _forwards(graph: OrtGraph, node: OrtNode) -> bool:
    groups = [group for edge in _after(graph, node)[:1] if (group := _next_edges(graph, edge))]
    changed = False
    while groups:
        group = groups.pop()
        _insert(graph, group, node)
        changed = True
        groups.extend(following for edge in group if (following := _next_edges(graph, edge)))
    return changed


def _backwards(graph: OrtGraph, node: OrtNode) -> bool:
    changed = False
    edge = _before(graph, node)
    while edge is not None and edge.source is not None and _moves(edge.source):
        edge = _before(graph, edge.source)
        if edge is None or _is_dq(edge.source):
            break
        _insert(graph, [edge], node)
        changed = True
    return changed


@transformer("DoubleQDQPairsRemover")
def remove_double_pairs(graph: OrtGraph, session: Session) -> bool:
    """Of two pairs in a row the inner two nodes go, and the outer two get a scale for both."""
    changed = False
    for node in graph.order():
        if graph.nodes.get(node.index) is not node or not _is_dq(node) or graph.makes_output(node):
            continue
        parent, child = graph.input_node(node, 0), graph.sole_reader(node)
        if parent is None or child is None or not _is_q(parent) or not _is_q(child):
            continue
        last = graph.sole_reader(child)
        if (
            not _is_dq(last)
            or last is None
            or graph.sole_reader(parent) is not node
            or graph.makes_output(parent)
            or graph.makes_output(child)
        ):
            continue
        found = [_parameters(graph, one) for one in (parent, node, child, last)]
        if None in found or found[0] != found[1] or found[2] != found[3] or len(graph.input_edges(node)) != 1:
            continue
        if found[1] != found[2]:
            _set_parameters(graph, (parent, last), found)
        graph.set_input(last, 0, node.input(0))
        graph.remove_node(child)
        graph.remove_node(node)
        changed = True
    return changed


def _parameters(graph: OrtGraph, node: OrtNode) -> tuple[float, int, DType] | None:
    """Scale, zero point and the type of the codes, where they are single constants of 8 bits."""
    scale, zero = graph.scalar(node.input(1)), graph.scalar(node.input(2))
    code = graph.dtype(node.input(2))
    return None if scale is None or zero is None or code not in (DType.U8, DType.I8) else (float(scale), int(zero), code)


def _set_parameters(graph: OrtGraph, nodes: Sequence[OrtNode], found: Sequence[tuple[float, int, DType] | None]) -> None:
    """The range that both pairs let through."""
    inner = [one for one in found[1:3] if one is not None]
    code = inner[0][2]
    low, high = (0, 255) if code is DType.U8 else (-128, 127)
    least = max((low - zero) * scale for scale, zero, _ in inner)
    most = min((high - zero) * scale for scale, zero, _ in inner)
    scale = np.float32(most - least) / np.float32(high - low)
    zero = int(np.round(low - least / scale))
    for node in nodes:
        graph.set_input(node, 1, graph.add_weight(graph.new_name(f"DoubleQDQRemoved_{node.input(1)}"), np.array(scale, "<f4")))
        kind = "<u1" if code is DType.U8 else "<i1"
        graph.set_input(node, 2, graph.add_weight(graph.new_name(f"DoubleQDQRemoved_{node.input(2)}"), np.array(zero, kind)))

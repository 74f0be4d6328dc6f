"""Quantised graphs: pairs of QuantizeLinear and DequantizeLinear are moved at level 1, so that operators which only move data stand between
them; at level 2 an operator between DequantizeLinear and QuantizeLinear becomes one on integers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from irscope.frontends.onnx.model import STANDARD
from irscope.frontends.onnx.optimizer.graph import (
    CPU,
    CUDA,
    MICROSOFT,
    OrtGraph,
    OrtNode,
    Session,
    ends_in_one,
    is_scalar,
    per_node,
    reader_of,
    rule,
    transformer,
)
from irscope.frontends.onnx.optimizer.products import clip_limits
from irscope.frontends.onnx.types import AttrValue
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
    """An edge by which a value goes from one node to another; no source for an input, no reader for a result of the graph."""

    name: str
    source: OrtNode | None
    reader: OrtNode | None
    place: int


def _moves_past(node: OrtNode | None) -> bool:
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
    """Return where the first result goes: to readers, and out of the graph."""
    name = node.outputs[0]
    edges = [_Edge(name, node, reader, place) for reader, result, place in graph.edges(node) if result == 0]
    return [*edges, _Edge(name, node, None, 0)] if graph.is_output(name) else edges


def _before(graph: OrtGraph, node: OrtNode) -> _Edge | None:
    """Return the edge of the first operand, if its source has no other reader."""
    name = node.input(0)
    made = graph.maker(name)
    if made is None:
        return _Edge(name, None, node, 0)
    edges = [edge for edge in graph.edges(made) if made.outputs[edge[1]] == name]
    return _Edge(name, made, node, 0) if len(edges) == 1 and not graph.is_output(name) else None


def _insert(graph: OrtGraph, edges: Sequence[_Edge], like: OrtNode) -> None:
    """Insert a QuantizeLinear behind the source of some edges, and a DequantizeLinear in front of each reader."""
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
    """Move pairs before a QuantizeLinear backwards, then behind a DequantizeLinear forwards, past operators that only move data."""
    changed = False
    for node in graph:
        for body in node.bodies.values():
            changed |= propagate_pairs(body, session)
    nodes = graph.order()
    for node in nodes:
        if _is_q(node) and _has_constants(graph, node):
            changed |= _backwards(graph, node)
    for node in nodes:
        if _is_dq(node) and ends_in_one(graph, node) and _has_constants(graph, node):
            changed |= _forwards(graph, node)
    return changed


def _next_edges(graph: OrtGraph, edge: _Edge) -> list[_Edge]:
    """Return where a pair goes next: behind all readers of the edge's reader, or nowhere if one of them quantises already."""
    if not _moves_past(edge.reader) or edge.reader is None or edge.place >= len(edge.reader.inputs):
        return []
    following = _after(graph, edge.reader)
    return [] if any(_is_q(further.reader) for further in following) else following


def _forwards(graph: OrtGraph, node: OrtNode) -> bool:
    groups = deque(_next_edges(graph, edge) for edge in _after(graph, node))
    changed = False
    while groups:
        group = groups.popleft()
        if group:
            _insert(graph, group, node)
            changed = True
            groups.extend([_next_edges(graph, edge) for edge in group])
    return changed


def _backwards(graph: OrtGraph, node: OrtNode) -> bool:
    changed = False
    edge = _before(graph, node)
    while edge is not None and edge.source is not None and _moves_past(edge.source):
        edge = _before(graph, edge.source)
        if edge is None or _is_dq(edge.source):
            break
        _insert(graph, [edge], node)
        changed = True
    return changed


@transformer("DoubleQDQPairsRemover")
def remove_double_pairs(graph: OrtGraph, session: Session) -> bool:
    """Remove the inner two nodes of two pairs in a row; the outer two get a scale for both."""
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
        found = [_pair_parameters(graph, one) for one in (parent, node, child, last)]
        if None in found or found[0] != found[1] or found[2] != found[3] or len(graph.input_edges(node)) != 1:
            continue
        if found[1] != found[2]:
            _set_parameters(graph, (parent, last), found)
        graph.set_input(last, 0, node.input(0))
        graph.remove_node(child)
        graph.remove_node(node)
        changed = True
    return changed


def _pair_parameters(graph: OrtGraph, node: OrtNode) -> tuple[float, int, DType] | None:
    """Scale, zero point and the type of the codes, where they are single constants of 8 bits."""
    scale, zero = graph.scalar(node.input(1)), graph.scalar(node.input(2))
    code = graph.dtype(node.input(2))
    return None if scale is None or zero is None or code not in (DType.U8, DType.I8) else (float(scale), int(zero), code)


def _set_parameters(graph: OrtGraph, nodes: Sequence[OrtNode], found: Sequence[tuple[float, int, DType] | None]) -> None:
    """Set the range that both pairs let through."""
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


_Q: Final = "QuantizeLinear"
_DQ: Final = "DequantizeLinear"
_DOMAINS: Final = (STANDARD, MICROSOFT)
_RANGES: Final[Mapping[DType, tuple[int, int]]] = {
    DType.I8: (-128, 127),
    DType.U8: (0, 255),
    DType.I16: (-32768, 32767),
    DType.U16: (0, 65535),
}
_EPSILON: Final = 1e-6
_LONG: Final = frozenset({DType.I16, DType.U16})
_SHORT: Final = frozenset({DType.I4, DType.U4})


def _is(node: OrtNode | None, op: str) -> bool:
    return node is not None and node.op == op and node.domain in _DOMAINS


def _scale(graph: OrtGraph, node: OrtNode) -> float | None:
    """Return the scale of Q or DQ, where it is one constant number."""
    found = graph.scalar(node.input(1)) if is_scalar(graph, node.input(1)) else None
    return float(found) if found is not None else None


def _zero_point(graph: OrtGraph, node: OrtNode) -> int | None:
    """Return the same of the zero point, 0 where it is left out."""
    if not node.has_input(2):
        return 0
    found = graph.scalar(node.input(2)) if is_scalar(graph, node.input(2)) else None
    return int(found) if found is not None else None


def _is_pair(graph: OrtGraph, q: OrtNode, dq: OrtNode) -> bool:
    """QDQ::IsQDQPairSupported: one scale and one zero point for the tensor, equal on both sides."""
    if q.has_input(2) != dq.has_input(2) or q.domain != dq.domain:
        return False
    parameters = [(_scale(graph, node), _zero_point(graph, node)) for node in (q, dq)]
    if None in parameters[0] or parameters[0] != parameters[1]:
        return False
    return not q.has_input(2) or graph.dtype(q.input(2)) is graph.dtype(dq.input(2))


@dataclass
class _Group:
    """An operator with what stands around it."""

    target: OrtNode
    clip: OrtNode | None
    """A Clip or Relu between the operator and Q that quantising does too."""
    dqs: list[OrtNode]
    """By the operand that they make."""
    qs: list[OrtNode]

    @property
    def given(self) -> int:
        return sum(map(bool, self.target.inputs))


def _group(graph: OrtGraph, node: OrtNode) -> _Group | None:
    """NodeGroupSelector::GetQDQSelection, before the checks of the operator."""
    dqs = [made for name in node.inputs if _is(made := graph.maker(name), _DQ) and made is not None]
    clip = None
    after = reader_of(graph, node) if graph.edge_count(node) == 1 else None
    if after is not None and after.op in ("Relu", "Clip") and graph.edge_count(after) == 1 and not graph.makes_output(after):
        clip = after
    qs = [reader for reader, _, place in graph.edges(clip or node) if _is(reader, _Q) and place == 0]
    qs.sort(key=lambda q: (clip or node).outputs.index(q.input(0)))
    if clip is not None and (len(qs) != 1 or not _is_redundant(graph, clip, qs[0])):
        return None
    return _Group(node, clip, dqs, qs)


def _is_redundant(graph: OrtGraph, clip: OrtNode, q: OrtNode) -> bool:
    """QDQ::IsClipMadeRedundantByQ."""
    scale, zero = _scale(graph, q), _zero_point(graph, q)
    found = _RANGES.get(graph.dtype(q.input(2)) if q.has_input(2) else DType.U8)
    if scale is None or zero is None or found is None or not scale:
        return False
    lowest, highest = found
    if clip.op == "Relu":
        return zero == lowest
    limits = clip_limits(graph, clip)
    if limits is None:
        return False
    with np.errstate(over="ignore"):
        low, high = (float(np.rint(np.float32(limit) / np.float32(scale))) + zero for limit in limits)
    return low <= lowest and high >= highest


def _is_closed(graph: OrtGraph, group: _Group, dqs: int | None = None, *, may_be_open: bool = False) -> bool:
    """NodeGroupSelector::CheckQDQNodes: what is around the operator is around it alone."""
    if len(group.dqs) != (group.given if dqs is None else dqs):
        return False
    if any(graph.makes_output(dq) or graph.edge_count(dq) != 1 for dq in group.dqs):
        return False
    if not group.qs:
        return may_be_open
    results = sum(map(bool, group.target.outputs))
    return results == len(group.qs) == graph.edge_count(group.target) and not graph.makes_output(group.target)


def _code(graph: OrtGraph, dq: OrtNode) -> DType:
    return graph.dtype(dq.input(0))


def _made(graph: OrtGraph, q: OrtNode) -> DType:
    return graph.dtype(q.input(2)) if q.has_input(2) else graph.dtype(q.outputs[0])


def _with_zero_points(graph: OrtGraph, group: _Group) -> None:
    """Give Q and DQ without zero points one of their own."""
    for node in (*group.dqs, *group.qs):
        if node.has_input(2):
            continue
        is_signed = node.op == _DQ and _code(graph, node) is DType.I8
        name = (
            "init_optional_zero_point_int8_b33fd0fa-cd7b-4b10-ae5a-df64cabfe1f8"
            if is_signed
            else "init_optional_zero_point_uint8_b33f88f7-c464-43e3-8692-97ac832bb14a"
        )
        if name not in graph.weights:
            graph.add_weight(name, np.array(0, np.int8 if is_signed else np.uint8))
        graph.set_input(node, 2, name)


def _replace(
    graph: OrtGraph, group: _Group, op: str, inputs: Sequence[str], domain: str = MICROSOFT, attrs: Mapping[str, AttrValue] | None = None
) -> bool:
    """ReplaceWithNew: a node on integers in place of all."""
    target = group.target
    outputs = [q.outputs[0] for q in group.qs] if group.qs else list(target.outputs)
    given = dict(target.attrs if attrs is None else attrs)
    for node in (target, *([group.clip] if group.clip is not None else []), *group.qs):
        graph.remove_node(node)
    for dq in group.dqs:
        if not graph.edges(dq) and not graph.makes_output(dq):
            graph.remove_node(dq)
    graph.add_node(op, inputs, outputs, given, domain, target.name, target.provider)
    return True


def _drop(graph: OrtGraph, group: _Group) -> bool:
    """MergeIntoTarget: the operator itself runs on integers."""
    target = group.target
    graph.set_input(target, target.inputs.index(group.dqs[0].outputs[0]), group.dqs[0].input(0))
    graph.remove_node(group.dqs[0])
    for q in group.qs:
        outputs = [q.outputs[0] if name == q.input(0) else name for name in target.outputs]
        graph.remove_node(q)
        graph.set_outputs(target, outputs)
    return True


def _moves(*, long: bool, positive: bool) -> Callable[[OrtGraph, OrtNode], bool]:
    """Return the operators that do not look at values, or only compare them."""

    def apply(graph: OrtGraph, node: OrtNode) -> bool:
        group = _group(graph, node)
        if group is None or group.clip is not None or not _is_closed(graph, group, 1) or not group.qs:
            return False
        dq, q = group.dqs[0], group.qs[0]
        code = _code(graph, dq)
        if code is not _made(graph, q) or (code in _LONG and not long) or code in _SHORT:
            return False
        scale = _scale(graph, q)
        if positive and (scale is None or scale <= 0):
            return False
        return _is_pair(graph, q, dq) and _drop(graph, group)

    return apply


def _max_pool(graph: OrtGraph, node: OrtNode) -> bool:
    return node.version == 12 and _moves(long=False, positive=True)(graph, node)


def _arg_max(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None or group.clip is not None or len(group.dqs) != 1:
        return False
    dq = group.dqs[0]
    if graph.edge_count(dq) != 1 or graph.makes_output(dq) or _code(graph, dq) in _LONG | _SHORT:
        return False
    if _scale(graph, dq) is None or _zero_point(graph, dq) is None:
        return False
    return _drop(graph, _Group(node, None, group.dqs, []))


def _parameters(node: OrtNode) -> list[str]:
    return [node.input(1), node.input(2)]


def _unary(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None or not _is_closed(graph, group, 1) or not _is_byte(graph, group):
        return False
    _with_zero_points(graph, group)
    attrs = {**node.attrs, "opset": node.version} if node.op == "Softmax" else None
    return _replace(graph, group, f"QLinear{node.op}", [*group.dqs[0].inputs, *_parameters(group.qs[0])], attrs=attrs)


def _is_byte(graph: OrtGraph, group: _Group) -> bool:
    """Return whether all codes are of one type of at most 8 bits that kernels have."""
    codes = {*(_code(graph, dq) for dq in group.dqs), *(_made(graph, q) for q in group.qs)}
    return len(codes) == 1 and not codes & (_LONG | _SHORT)


def _binary(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None or not _is_closed(graph, group) or not _is_byte(graph, group):
        return False
    _with_zero_points(graph, group)
    left, right = group.dqs
    return _replace(graph, group, f"QLinear{node.op}", [*left.inputs, *right.inputs, *_parameters(group.qs[0])])


def _concat(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None or not _is_closed(graph, group) or not _is_byte(graph, group):
        return False
    _with_zero_points(graph, group)
    operands = [name for dq in group.dqs for name in dq.inputs]
    return _replace(graph, group, "QLinearConcat", [*_parameters(group.qs[0]), *operands])


def _where(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None or not _is_closed(graph, group, 2) or not _is_byte(graph, group):
        return False
    _with_zero_points(graph, group)
    operands = [name for dq in group.dqs for name in dq.inputs]
    return _replace(graph, group, "QLinearWhere", [node.input(0), *operands, *_parameters(group.qs[0])])


def _split(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None or group.clip is not None or not _is_closed(graph, group, 1):
        return False
    dq = group.dqs[0]
    if _code(graph, dq) in _SHORT:
        return False
    if any(_made(graph, q) is not _code(graph, dq) or not _is_pair(graph, q, dq) for q in group.qs):
        return False
    _with_zero_points(graph, group)
    sizes = [node.input(1)] if node.version >= 13 and node.has_input(1) else []
    return _replace(graph, group, "Split", [dq.input(0), *sizes], STANDARD)


def _fits(graph: OrtGraph, image: OrtNode, weight: OrtNode) -> bool:
    """Return whether there are kernels for these codes on x86: the image is unsigned."""
    codes = {_code(graph, image), _code(graph, weight)}
    return _code(graph, image) is not DType.I8 and not codes & (_LONG | _SHORT)


def _conv(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None or not _is_closed(graph, group) or len(group.dqs) < 2 or not group.qs:
        return False
    image, weight, *bias = group.dqs
    if _made(graph, group.qs[0]) is not _code(graph, image) or not _fits(graph, image, weight):
        return False
    if bias and _code(graph, bias[0]) is not DType.I32:
        return False
    _with_zero_points(graph, group)
    operands = [*image.inputs, *weight.inputs, *_parameters(group.qs[0]), *(one.input(0) for one in bias)]
    return _replace(graph, group, "QLinearConv", operands, STANDARD)


def _matmul(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None:
        return False
    if len(group.dqs) == 1:
        return _matmul_nbits(graph, group)
    if len(group.dqs) != 2 or not _fits(graph, *group.dqs):
        return False
    left, right = group.dqs
    if not group.qs:
        if group.clip is not None:
            return False
        _with_zero_points(graph, group)
        pairs = [name for place in (0, 1, 2) for name in (left.input(place), right.input(place))]
        return _replace(graph, group, "MatMulIntegerToFloat", pairs)
    if not _is_closed(graph, group) or _made(graph, group.qs[0]) is not _code(graph, left):
        return False
    _with_zero_points(graph, group)
    return _replace(graph, group, "QLinearMatMul", [*left.inputs, *right.inputs, *_parameters(group.qs[0])], STANDARD)


def _gemm(graph: OrtGraph, node: OrtNode) -> bool:
    group = _group(graph, node)
    if group is None or not _is_closed(graph, group, may_be_open=True) or len(group.dqs) < 2:
        return False
    left, right, *bias = group.dqs
    codes = {_code(graph, left), _code(graph, right)}
    if codes & (_LONG | _SHORT) or (_code(graph, left) is DType.I8 and len(codes) > 1):
        return False
    if group.qs and _made(graph, group.qs[0]) is not _code(graph, left):
        return False
    if bias and (node.attr("beta", 1.0) != 1.0 or node.attr("alpha", 1.0) != 1.0 or _code(graph, bias[0]) is not DType.I32):
        return False
    _with_zero_points(graph, group)
    attrs = {name: value for name, value in node.attrs.items() if name != "beta"}
    operands = [*left.inputs, *right.inputs, bias[0].input(0) if bias else ""]
    return _replace(graph, group, "QGemm", [*operands, *(_parameters(group.qs[0]) if group.qs else [])], attrs=attrs)


def _matmul_nbits(graph: OrtGraph, group: _Group) -> bool:
    """A weight in blocks of few bits along its rows: MatMulNBits has it transposed."""
    node, dq = group.target, group.dqs[0]
    weight, scale = graph.constant(dq.input(0)), graph.constant(dq.input(1))
    if (
        group.qs
        or group.clip is not None
        or node.input(1) != dq.outputs[0]
        or not ends_in_one(graph, dq)
        or weight is None
        or scale is None
    ):
        return False
    bits, block = _BITS.get(weight.dtype, 0), int(dq.attr("block_size", 0))
    if not bits or scale.dtype not in (DType.F32, DType.F16) or len(weight.shape) != 2 or int(dq.attr("axis", 1)) != 0:
        return False
    if block < 16 or block & (block - 1):
        return False
    inner, columns = weight.shape
    blocks = -(-inner // block)
    if scale.shape != (blocks, columns):
        return False
    shapes = [(DType.U8, (columns, blocks, block * bits // 8)), (scale.dtype, (columns * blocks,))]
    names = [dq.input(0), dq.input(1)]
    if dq.has_input(2) or weight.dtype in (DType.U4, DType.U8):
        shapes.append((DType.U8, (columns * -(-blocks * bits // 8),)))
        names.append(dq.input(2) or "fused_DQ_MatMul_zero_point")
    made = [
        graph.add_weight(graph.new_name(f"{name}_T"), None, tensor(dtype, shape))
        for name, (dtype, shape) in zip(names, shapes, strict=True)
    ]
    attrs: dict[str, AttrValue] = {"K": inner, "N": columns, "accuracy_level": 4, "bits": bits, "block_size": block}
    return _replace(graph, group, "MatMulNBits", [node.input(0), *made], attrs=attrs)


_BITS: Final = {DType.I4: 4, DType.U4: 4, DType.I8: 8, DType.U8: 8}

_COPIES = _moves(long=True, positive=False)
_RULES: Final[Mapping[str, Callable[[OrtGraph, OrtNode], bool]]] = {
    "Split": _split,
    "Resize": _moves(long=False, positive=False),
    "MaxPool": _max_pool,
    "ReduceMax": _moves(long=False, positive=True),
    "ReduceMin": _moves(long=False, positive=True),
    **dict.fromkeys(
        ("Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"), _COPIES
    ),
    "ArgMax": _arg_max,
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax"), _unary),
    "Add": _binary,
    "Mul": _binary,
    "Concat": _concat,
    "Conv": _conv,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Where": _where,
}


@rule("ReluQuantFusion", "Relu")
def relu_quant(graph: OrtGraph, relu: OrtNode) -> bool:
    """A Relu whose work QuantizeLinear does: its zero point, which the file gives, is the lowest code."""
    q = graph.sole_reader(relu)
    if q is None or not _is(q, _Q) or not q.has_input(2) or not graph.can_remove(relu):
        return False
    return _is_redundant(graph, relu, q) and graph.drop(relu)


@rule("ClipQuantFusion", "Clip")
def clip_quant(graph: OrtGraph, clip: OrtNode) -> bool:
    """A Clip to no less than QuantizeLinear can write."""
    q = graph.sole_reader(clip)
    if q is None or not _is(q, _Q) or not q.has_input(2) or not graph.can_remove(clip):
        return False
    if len(clip.inputs) > 1 and len(graph.input_edges(clip)) != 1:
        # ONNX Runtime takes out a node with several operands only where another node makes one of them.
        return False
    scale, zero, codes = _scale(graph, q), _zero_point(graph, q), _RANGES.get(graph.dtype(q.input(2)))
    limits = clip_limits(graph, clip)
    if scale is None or zero is None or codes is None or limits is None:
        return False
    lower, upper = ((code - zero) * scale for code in codes)
    return limits[0] - lower <= _EPSILON and upper - limits[1] <= _EPSILON and graph.drop(clip)


@per_node("QDQSelectorActionTransformer")
def qdq_selector_action(graph: OrtGraph, node: OrtNode) -> bool:
    if node.provider == CUDA and node.op == "MatMul":
        group = _group(graph, node)
        return group is not None and len(group.dqs) == 1 and _matmul_nbits(graph, group)
    apply = _RULES.get(node.op) if node.is_standard and node.provider == CPU else None
    return apply is not None and apply(graph, node)


@per_node("QDQS8ToU8Transformer")
def qdq_signed_to_unsigned(graph: OrtGraph, q: OrtNode) -> bool:
    """Values that are quantised to signed bytes are quantised to unsigned ones on x86."""
    if q.provider != CPU or not _is(q, _Q) or not ends_in_one(graph, q):
        return False
    dq = reader_of(graph, q)
    if dq is None or not _is(dq, _DQ) or len(q.inputs) != 3 or len(dq.inputs) != 3:
        return False
    for node in (q, dq):
        zero = graph.constant(node.input(2))
        if zero is None or zero.count != 1 or zero.dtype is not DType.I8:
            return False
    zeros = [graph.scalar(node.input(2)) for node in (q, dq)]
    if zeros[0] is None or zeros[0] != zeros[1]:
        return False
    name = graph.new_name("qdq_s8_to_u8_zp_conversion")
    # ONNX Runtime writes it as a number without axes, whatever it was before.
    graph.add_weight(name, np.array(int(zeros[0]) + 128, np.uint8))
    code = graph.new_name("qdq_s8_to_u8_quant")
    type_ = graph.type_of(q.outputs[0])
    if isinstance(type_, TensorType):
        graph.types[code] = tensor(DType.U8, type_.shape, type_.device)
    graph.set_outputs(q, [code])
    graph.set_inputs(q, [*q.inputs[:2], name])
    graph.set_inputs(dq, [code, dq.input(1), name])
    return True


@per_node("QDQFinalCleanupTransformer")
def qdq_final_cleanup(graph: OrtGraph, dq: OrtNode) -> bool:
    """DequantizeLinear and QuantizeLinear behind one another, with the same parameters, go."""
    if not _is(dq, _DQ) or not ends_in_one(graph, dq):
        return False
    q = reader_of(graph, dq)
    if q is None or not _is(q, _Q) or not _is_pair(graph, q, dq):
        return False
    result, source = q.outputs[0], dq.input(0)
    if graph.makes_output(q) and graph.edges(q):
        return False
    is_output, provider = graph.makes_output(q), q.provider
    graph.remove_node(dq)
    if not is_output:
        graph.replace_uses(result, source)
        graph.remove_node(q)
        return True
    graph.remove_node(q)
    maker = graph.maker(source)
    if maker is not None:
        graph.set_outputs(maker, [result if name == source else name for name in maker.outputs])
    else:
        graph.add_node("Identity", [source], [result], name=graph.new_node_name("QDQFinalCleanupTransformer"), provider=provider)
    return True

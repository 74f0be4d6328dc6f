"""Level 1: the rule-based transformer, whose rules look at one node and its neighbours, and fusions into Gemm and Reshape."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from irscope.frontends.onnx.optimizer.graph import OrtGraph, OrtNode, Session, Size, rule, transformer
from irscope.frontends.onnx.types import NUMBERS
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor

_FLOATS: Final = (DType.F32, DType.F16, DType.F64)
_GEMM_FLOATS: Final = (DType.F32, DType.F16, DType.BF16)
_MOST_INT: Final = 2**63 - 1


@rule("EliminateIdentity", "Identity")
def eliminate_identity(graph: OrtGraph, node: OrtNode) -> bool:
    """An Identity, also before a result of the graph where it is the only reader of what it copies."""
    if graph.can_remove(node):
        return graph.drop(node)
    made = graph.input_node(node, 0)
    if graph.edge_count(node) or not graph.makes_output(node) or made is None or graph.is_output(node.input(0)):
        return False
    place = made.outputs.index(node.input(0))
    if sum(result == place for _, result, _ in graph.edges(made)) > 1:
        return False
    name = node.outputs[0]
    graph.remove_node(node)
    graph.set_outputs(made, [name if at == place else other for at, other in enumerate(made.outputs)])
    return True


@rule("EliminateSlice", "Slice")
def eliminate_slice(graph: OrtGraph, node: OrtNode) -> bool:
    """A Slice from 0 to the end, written as the largest number."""
    if not graph.can_remove(node):
        return False
    if node.version >= 10:
        found = [graph.values(node.input(place)) for place in (1, 2)]
        if any(array is None for array in found):
            return False
        starts, ends = ([int(value) for value in array.reshape(-1)] for array in found if array is not None)
        if node.has_input(3) and graph.constant(node.input(3)) is None:
            return False
        if node.has_input(4):
            steps = graph.values(node.input(4))
            if steps is None or any(int(step) != 1 for step in steps.reshape(-1)):
                return False
    else:
        starts, ends = list(node.ints("starts") or ()), list(node.ints("ends") or ())
    if not starts or len(starts) != len(ends):
        return False
    if any(start != 0 or end < _MOST_INT for start, end in zip(starts, ends, strict=True)):
        return False
    return graph.drop(node)


@rule("UnsqueezeElimination", "Unsqueeze")
def eliminate_unsqueeze(graph: OrtGraph, node: OrtNode) -> bool:
    """An Unsqueeze of a constant."""
    weight = graph.constant(node.input(0))
    shape = graph.static_shape(node.outputs[0])
    if weight is None or shape is None or graph.makes_output(node) or (node.version >= 13 and graph.constant(node.input(1)) is None):
        return False
    array = weight.values()
    name = graph.new_name(f"UnsqueezeElimination_{node.input(0)}")
    graph.add_weight(name, None if array is None else array.reshape(shape), tensor(weight.dtype, shape))
    graph.weights[name].key = None if weight.identity is None else ("Reshape", weight.identity, shape)
    graph.replace_with_weight(node, name)
    return True


@rule("EliminateDropout", "Dropout")
def eliminate_dropout(graph: OrtGraph, node: OrtNode) -> bool:
    """A Dropout of which only the first result is used; from version 12 on not one that trains."""
    if any(result != 0 for _, result, _ in graph.edges(node)) or not graph.can_remove(node):
        return False
    if node.version >= 12:
        if node.has_input(1) and graph.constant(node.input(1)) is None:
            return False
        if node.has_input(2):
            training = graph.scalar(node.input(2))
            if training is None or training:
                return False
    return graph.drop(node)


@rule("ExpandElimination", "Expand")
def eliminate_expand(graph: OrtGraph, node: OrtNode) -> bool:
    """An Expand to sizes that the operand has already."""
    shape, wanted = graph.shape(node.input(0)), graph.values(node.input(1))
    if shape is None or wanted is None or wanted.ndim != 1 or not wanted.size or not graph.can_remove(node):
        return False
    sizes = [int(size) for size in wanted]
    if len(sizes) > len(shape):
        return False
    for dim, size in zip(reversed(shape), reversed(sizes), strict=False):
        if size > 1 and dim != size:
            return False
    return graph.drop(node)


@rule("CastElimination", "Cast")
def eliminate_cast(graph: OrtGraph, node: OrtNode) -> bool:
    """A Cast to the type that the operand has."""
    if graph.dtype(node.input(0)) is DType.UNKNOWN or node.attr("to") != NUMBERS.get(graph.dtype(node.input(0))):
        return False
    return graph.can_remove(node) and graph.drop(node)


@rule("PreShapeNodeElimination", "Cast")
def eliminate_before_shape(graph: OrtGraph, node: OrtNode) -> bool:
    """A Cast of which only shapes are read."""
    readers = graph.readers(node.outputs[0])
    if node.version < 13 or not readers or graph.input_node(node, 0) is None or any(reader.op != "Shape" for reader in readers):
        return False
    return graph.can_remove(node) and graph.drop(node)


_NEUTRAL: Final = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}


@rule("NoopElimination", "Add", "Sub", "Mul", "Div")
def eliminate_noop(graph: OrtGraph, node: OrtNode) -> bool:
    """x + 0, x - 0, x * 1 and x / 1, where the constant does not widen the shape."""
    if not node.is_standard:
        return False
    constants = [graph.constant(name) for name in node.inputs[:2]]
    if len(constants) < 2 or (constants[0] is None) == (constants[1] is None):
        return False
    place = 0 if constants[0] is not None else 1
    if place == 0 and node.op in ("Sub", "Div"):
        return False
    found = constants[place]
    shape = graph.shape(node.input(1 - place))
    if found is None or shape is None or len(found.shape) > len(shape) or found.count > 1:
        return False
    if found.count and (found.dtype not in (*_FLOATS, DType.I32, DType.I64) or graph.scalar(node.input(place)) != _NEUTRAL[node.op]):
        return False
    return graph.can_remove(node) and graph.drop(node)


@rule("DivMulFusion", "Div")
def fuse_div_mul(graph: OrtGraph, node: OrtNode) -> bool:
    """1 / x * y is y / x."""
    following = graph.sole_reader(node)
    if following is None or not following.matches("Mul") or following.version < 7 or node.version < 7 or graph.makes_output(node):
        return False
    if graph.scalar(node.input(0)) != 1:
        return False
    place = following.inputs.index(node.outputs[0])
    other = following.input(1 - place)
    if graph.dtype(other) is not graph.dtype(node.input(0)):
        return False
    graph.set_input(node, 0, other)
    _take_over(graph, node, following)
    return True


def _take_over(graph: OrtGraph, node: OrtNode, following: OrtNode) -> None:
    """Do graph_utils::FinalizeNodeFusion of two nodes: the first makes the second's results."""
    outputs = [name for name in following.outputs if name]
    graph.remove_node(following)
    graph.set_outputs(node, outputs)


@rule("FuseReluClip", "Relu")
def fuse_relu_clip(graph: OrtGraph, node: OrtNode) -> bool:
    """A Clip after a Relu that cuts at 0 or above does the Relu's work; else its lower limit becomes 0."""
    following = graph.sole_reader(node)
    if following is None or not following.matches("Clip") or following.version < 6 or graph.makes_output(node):
        return False
    if not graph.can_remove(node):
        return False
    if following.version < 11:
        if following.attr("min", 0.0) < 0 or "min" not in following.attrs:
            following.attrs["min"] = 0.0
    else:
        least: float | None = None
        if following.has_input(1):
            least = graph.scalar(following.input(1))
            if least is None or graph.dtype(following.input(1)) not in (DType.F32, DType.F16):
                return False
        elif graph.dtype(node.input(0)) not in (DType.F32, DType.F16):
            return False
        if least is None or least < 0:
            kind = np.dtype("<f4") if graph.dtype(node.input(0)) is DType.F32 else np.dtype("<f2")
            graph.set_input(following, 1, graph.add_weight(graph.new_name("FuseReluClip_clip_min"), np.array(0, kind)))
    return graph.drop(node)


@rule("NotWhereFusion", "Where")
def fuse_not_where(graph: OrtGraph, node: OrtNode) -> bool:
    """Replace Where(Not(c), a, b) by Where(c, b, a), where that is all that reads the Not."""
    negation = graph.input_node(node, 0)
    if negation is None or not negation.matches("Not") or graph.makes_output(negation):
        return False
    edges = graph.edges(negation)
    if any(reader.op != "Where" or place != 0 for reader, _, place in edges) or (graph.input_node(negation, 0) is None and len(edges) > 1):
        return False
    graph.set_inputs(node, [negation.input(0), node.input(2), node.input(1)])
    if len(edges) == 1:
        graph.remove_node(negation)
    return True


def _after_convolution(graph: OrtGraph, node: OrtNode, op: str, versions: tuple[int, ...], constants: tuple[int, ...]) -> OrtNode | None:
    """Return the one reader of a convolution with constant weights, if it is of this kind and its operands at these places are constant."""
    following = graph.sole_reader(node)
    if following is None or not node.is_standard or graph.makes_output(node) or not following.matches(op, versions):
        return None
    if len(graph.input_edges(following)) != 1:
        return None
    names = [node.input(1), *(node.inputs[2:3] if node.has_input(2) else ()), *(following.input(place) for place in constants)]
    weights = [graph.constant(name) for name in names]
    if any(weight is None or weight.dtype not in _FLOATS or weight.dtype is not graph.dtype(node.input(1)) for weight in weights):
        return None
    return following


def _channel_axis(shape: tuple[int, ...], rank: int, channels: int) -> bool:
    """Return whether a tensor is one number for each channel of what a filter of this rank makes."""
    axis = 1 if len(shape) == rank else 0 if len(shape) == rank - 1 else None
    return axis is not None and shape[axis] == channels and all(size == 1 for place, size in enumerate(shape) if place != axis)


@rule("ConvAddFusion", "Conv")
def fuse_conv_add(graph: OrtGraph, node: OrtNode) -> bool:
    """Adding one number a channel goes into the bias."""
    following = _after_convolution(graph, node, "Add", (7, 13, 14), (1,))
    if following is None:
        return False
    filters, added = graph.constant(node.input(1)), graph.constant(following.input(1))
    assert filters is not None
    assert added is not None
    if len(filters.shape) < 3 or not _channel_axis(added.shape, len(filters.shape), filters.shape[0]):
        return False
    bias = graph.new_name(f"ConvAddFusion_Add_B_{following.input(1)}")
    graph.add_weight(bias, None, tensor(filters.dtype, filters.shape[:1]))
    graph.set_input(node, 2, bias)
    _take_over(graph, node, following)
    return True


@rule("ConvMulFusion", "Conv")
def fuse_conv_mul(graph: OrtGraph, node: OrtNode) -> bool:
    """Multiplying with one number, or with one a channel, goes into the filter and the bias."""
    following = _after_convolution(graph, node, "Mul", (7, 13, 14), (1,))
    if following is None:
        return False
    filters, factor = graph.constant(node.input(1)), graph.constant(following.input(1))
    assert filters is not None
    assert factor is not None
    if len(filters.shape) < 3 or (factor.shape and not _channel_axis(factor.shape, len(filters.shape), filters.shape[0])):
        return False
    _scaled(graph, node, "ConvMulFusion")
    _take_over(graph, node, following)
    return True


def _scaled(graph: OrtGraph, node: OrtNode, what: str) -> None:
    """Give a node a filter and a bias of its own, of the same types."""
    for place, letter in ((1, "W"), (2, "B")):
        if node.has_input(place):
            type_ = graph.type_of(node.input(place))
            assert isinstance(type_, TensorType)
            graph.set_input(node, place, graph.add_weight(graph.new_name(f"{what}_{letter}_{node.input(place)}"), None, type_))


@rule("ConvBNFusion", "Conv")
def fuse_conv_norm(graph: OrtGraph, node: OrtNode) -> bool:
    """A batch normalisation goes into the filter and the bias."""
    following = _after_convolution(graph, node, "BatchNormalization", (7, 9, 14, 15), (1, 2, 3, 4))
    if following is None or any(following.outputs[1:]):
        return False
    filters = graph.constant(node.input(1))
    assert filters is not None
    shapes = {graph.static_shape(following.input(place)) for place in (1, 2, 3, 4)}
    if len(filters.shape) < 3 or shapes != {filters.shape[:1]}:
        return False
    had_bias = node.has_input(2)
    _scaled(graph, node, "ConvBnFusion")
    if not had_bias:
        bias = graph.add_weight(graph.new_name(f"ConvBnFusion_BN_B_{following.input(2)}"), None, tensor(filters.dtype, filters.shape[:1]))
        graph.set_input(node, 2, bias)
    _take_over(graph, node, following)
    return True


@rule("PadFusion", "Pad")
def fuse_pad(graph: OrtGraph, node: OrtNode) -> bool:
    """Padding with zeros before a convolution or pooling that pads explicitly or not at all, also with a Cast between."""
    following = graph.sole_reader(node)
    amounts = _padding(graph, node)
    if following is None or len(node.inputs) > 3 or graph.makes_output(node) or amounts is None:
        return False
    child = following
    if following.matches("Cast"):
        if graph.makes_output(following) or node.version < 11:
            return False
        inner = graph.sole_reader(following)
        if inner is None:
            return False
        child = inner
    given = child.ints("pads") or (0,) * len(amounts)
    if child.op not in ("Conv", "AveragePool", "MaxPool") or not child.is_standard or len(child.outputs) > 1:
        return False
    if child.attr("auto_pad", "NOTSET") != "NOTSET":
        return False
    if child.op == "AveragePool" and not child.attr("count_include_pad", 0) and any(amounts):
        return False
    if len(amounts) != len(given):
        return False
    child.attrs["pads"] = tuple(one + other for one, other in zip(given, amounts, strict=True))
    if following is not child:
        graph.types[following.outputs[0]] = tensor(graph.dtype(following.outputs[0]), getattr(graph.type_of(node.input(0)), "shape", None))
    graph.set_input(following, 0, node.input(0))
    graph.remove_node(node)
    return True


def _padding(graph: OrtGraph, node: OrtNode) -> list[int] | None:
    """Return what a Pad adds in front of and behind each axis but the first two; None for another value than 0, and where it takes away."""
    if node.attr("mode", "constant") != "constant":
        return None
    if node.version >= 11:
        pads = graph.values(node.input(1))
        # An operand that is spelled as an empty name is there to the session, and no constant.
        if pads is None or (len(node.inputs) > 2 and graph.scalar(node.input(2)) != 0):
            return None
        amounts = [int(value) for value in pads.reshape(-1)]
    elif node.attr("value", 0.0) != 0:
        return None
    else:
        amounts = list(node.ints("pads") or ())
    half = len(amounts) // 2
    if half < 2 or any(amounts[place] for place in (0, 1, half, half + 1)) or any(amount < 0 for amount in amounts):
        return None
    return amounts[2:half] + amounts[half + 2 :]


def _passes_bias(bias: tuple[Size, ...] | None, rows: Size, columns: Size) -> bool:
    """Return whether Gemm takes a bias of this shape: (N), (1, N), (M, 1) or (M, N)."""

    def same(one: Size, other: Size) -> bool:
        return one is not None and one == other

    if bias is None or len(bias) not in (1, 2):
        return False
    if len(bias) == 1:
        return same(bias[0], columns)
    return (bias[0] == 1 and same(bias[1], columns)) or (same(bias[0], rows) and (bias[1] == 1 or same(bias[1], columns)))


@rule("GemmSumFusion", "Gemm")
def fuse_gemm_sum(graph: OrtGraph, node: OrtNode) -> bool:
    """A sum of two behind a Gemm without bias."""
    following = graph.sole_reader(node)
    if node.version < 11 or len(node.inputs) != 2 or graph.makes_output(node) or following is None:
        return False
    if not following.matches("Sum", (6, 8, 13)) or len(following.inputs) != 2:
        return False
    other = following.input(1 if following.input(0) == node.outputs[0] else 0)
    shape = graph.shape(node.outputs[0])
    if shape is None or len(shape) != 2 or not _passes_bias(graph.shape(other), shape[0], shape[1]):
        return False
    graph.fuse([node, following], "Gemm", [*node.inputs, other], {**node.attrs, "beta": 1.0}, name=f"{node.name}_sum_transformed")
    return True


@rule("GemmTransposeFusion", "Gemm")
def fuse_gemm_transpose(graph: OrtGraph, node: OrtNode) -> bool:
    """Transposes of matrices before a Gemm, or behind one without bias, are its attributes."""
    if graph.edge_count(node) > 1:
        return False
    flags = [bool(node.attr("transA", 0)), bool(node.attr("transB", 0))]
    inputs = list(node.inputs)
    gone: list[OrtNode] = []
    found = False
    for place in (0, 1):
        made = graph.input_node(node, place)
        if made is None or not _is_matrix_transpose(graph, made) or graph.makes_output(made) or made.provider != node.provider:
            continue
        edges = graph.edges(made)
        if any(reader.op != "Gemm" for reader, _, _ in edges):
            continue
        flags[place] = not flags[place]
        inputs[place] = made.input(0)
        if len(edges) == 1:
            gone.append(made)
        found = True
    following = graph.sole_reader(node)
    behind = following is not None and len(node.inputs) <= 2 and node.version >= 11 and not graph.makes_output(node)
    if behind and following is not None and _is_matrix_transpose(graph, following) and following.provider == node.provider:
        inputs.reverse()
        flags = [not flags[1], not flags[0]]
        last = [node, following]
        found = True
    else:
        last = [node]
    if not found:
        return False
    attrs = {**node.attrs, "transA": int(flags[0]), "transB": int(flags[1])}
    graph.fuse([*gone, *last], "Gemm", inputs, attrs, name=f"{node.name}/GemmTransposeFusion/")
    return True


def _is_matrix_transpose(graph: OrtGraph, node: OrtNode) -> bool:
    if not node.matches("Transpose"):
        return False
    shape = graph.shape(node.input(0))
    if shape is not None and len(shape) != 2:
        return False
    perm = node.ints("perm")
    return shape is not None if perm is None else perm == (1, 0)


@rule("MatmulBNFusion", "MatMul")
def fuse_matmul_norm(graph: OrtGraph, node: OrtNode) -> bool:
    """A batch normalisation behind a MatMul, with Reshape and Transpose between, goes into the weight."""
    following = graph.sole_reader(node)
    first = following
    if following is None or graph.makes_output(node) or graph.constant(node.input(1)) is None:
        return False
    while following is not None and following.op in ("Reshape", "Transpose") and following.is_standard:
        following = graph.sole_reader(following)
    if following is None or not following.matches("BatchNormalization") or any(following.outputs[1:]):
        return False
    shape = graph.static_shape(node.input(1))
    if shape is None or len(shape) != 2 or any(graph.constant(following.input(place)) is None for place in (1, 2, 3, 4)):
        return False
    dtype = graph.dtype(node.input(1))
    if dtype not in _FLOATS or {graph.static_shape(following.input(place)) for place in (1, 2, 3, 4)} != {shape[1:]}:
        return False
    weight = graph.add_weight(graph.new_name(f"MatMulBnFusion_GemmB_{node.input(1)}"), None, tensor(dtype, shape))
    bias = graph.add_weight(graph.new_name("MatMulBnFusion_GemmBias"), None, tensor(dtype, shape[1:]))
    made = graph.fuse([node], "Gemm", [node.input(0), weight, bias], name="MatMulBnFusion_Gemm")
    before = made if first is following else graph.maker(following.input(0))
    assert before is not None
    _take_over(graph, before, following)
    return True


class _AttentionPatterns:
    """Products with biases that belong to an attention, which its fusion is to find as they are."""

    def __init__(self) -> None:
        self.norms: set[int] = set()
        self.sums: set[int] = set()

    def has(self, graph: OrtGraph, product: OrtNode, added: OrtNode) -> bool:
        parent = graph.input_node(product, 0)
        if (parent is not None and parent.index in self.norms) or added.index in self.sums:
            return True
        if parent is None or parent.op != "LayerNormalization":
            return False
        readers = [reader for reader, _, _ in graph.edges(parent)]
        sums = [reader for reader in readers if reader.op == "Add"]
        products = sum(reader.op == "MatMul" for reader in readers)
        shapes = sum(reader.op == "Shape" for reader in readers)
        if len(sums) != 1 or products != 3 or shapes != len(readers) - 4:
            return False
        place = 1 if sums[0].input(0) == parent.outputs[0] else 0
        other = graph.input_node(sums[0], place)
        if other is None or other.op != "Add":
            return False
        self.norms.add(parent.index)
        self.sums.add(other.index)
        return True


@transformer("MatMulAddFusion")
def fuse_matmul_add(graph: OrtGraph, session: Session) -> bool:
    """A product of matrices and a bias is a Gemm; with more axes of known sizes, between two reshapes."""
    changed = False
    patterns = _AttentionPatterns()
    for node in graph.order():
        if graph.nodes.get(node.index) is not node:
            continue
        for body in node.bodies.values():
            changed |= fuse_matmul_add(body, session)
        changed |= _fuse_matmul_add(graph, node, patterns)
    return changed


def _fuse_matmul_add(graph: OrtGraph, node: OrtNode, patterns: _AttentionPatterns) -> bool:
    following = graph.sole_reader(node)
    if not node.matches("MatMul", (1, 9, 13)) or following is None or graph.makes_output(node):
        return False
    if not following.matches("Add", (7, 13, 14)) or following.provider != node.provider:
        return False
    dtype = graph.dtype(node.input(0))
    left, right = graph.shape(node.input(0)), graph.shape(node.input(1))
    if dtype not in _GEMM_FLOATS or graph.dtype(following.input(0)) is not dtype or left is None or right is None or len(right) != 2:
        return False
    bias = following.input(1 if following.input(0) == node.outputs[0] else 0)
    shape = graph.shape(bias)
    if len(left) == 2:
        if not _passes_bias(shape, left[0], right[1]):
            return False
        graph.fuse([node, following], "Gemm", [*node.inputs, bias], name=f"{node.name}/MatMulAddFusion")
        return True
    if not node.provider and patterns.has(graph, node, following):
        # Level 1 leaves these to AttentionFusion, which comes before level 2 looks at them.
        return False
    sizes = graph.static_shape(node.input(0))
    inner, columns = right
    if sizes is None or not isinstance(inner, int) or not isinstance(columns, int) or shape != (columns,):
        return False
    rows = prod(sizes[:-1])
    result = following.outputs[0]
    before = graph.add_weight(graph.new_name("gemm_input_shape"), np.array((rows, inner), "<i8"))
    flat = graph.new_name("gemm_input_reshape_arg")
    graph.types[flat] = tensor(dtype, (rows, inner))
    first = graph.new_node_name("gemm_input_reshape")
    after = graph.add_weight(graph.new_name("gemm_output_shape"), np.array((*sizes[:-1], columns), "<i8"))
    product = graph.new_name("gemm_output_reshape_arg")
    graph.types[product] = tensor(dtype, (rows, columns))
    last = graph.new_node_name("gemm_output_reshape")
    provider = node.provider
    graph.remove_node(node)
    graph.remove_node(following)
    graph.add_node("Reshape", [node.input(0), before], [flat], name=first, provider=provider)
    graph.add_node("Reshape", [product, after], [result], name=last, provider=provider)
    graph.add_node("Gemm", [flat, node.input(1), bias], [product], name=f"{node.name}/MatMulAddFusion", provider=provider)
    return True

"""Level 1: what is computed from constants alone, what is computed twice, and constants that are equal."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import prod
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from irscope.budget import spend
from irscope.frontends.onnx.model import STANDARD
from irscope.frontends.onnx.optimizer.graph import MICROSOFT, Array, OrtGraph, OrtNode, Session, Weight, per_node, transformer
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.ort import WITHOUT_KERNEL, runs_halves

MOST_FOLDED: Final = 1 << 12
"""Elements of the largest tensor that is computed; of larger ones only the type is kept."""
_MOST_SHARED: Final = 8
"""TENSOR_ELEM_COUNT_THRESHOLD of ConstantSharing."""
_SHARED_TYPES: Final = (DType.F32, DType.F16, DType.F64, DType.I32, DType.I64)
_RANDOM: Final = frozenset({"RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Multinomial", "Bernoulli"})
_DETERMINISTIC: Final = frozenset([
    "Attention", "BiasGelu", "BiasSplitGelu", "BiasAdd", "CDist", "ComplexMul", "ComplexMulConj", "ConvTransposeWithDynamicPads",
    "CropAndResize", "DequantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "EmbedLayerNormalization", "ExpandDims",
    "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "GatherND", "Gelu", "GroupNorm", "GroupQueryAttention", "GridSample", "Inverse",
    "Irfft", "IsAllFinite", "LongformerAttention", "MatMulInteger16", "MatMulIntegerToFloat", "MatMulNBits", "MaxpoolWithMask",
    "MultiHeadAttention", "MurmurHash3", "NGramRepeatBlock", "NhwcConv", "NhwcMaxPool", "Pad", "QAttention", "QEmbedLayerNormalization",
    "QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool", "QLinearLeakyRelu",
    "QLinearMul", "QLinearReduceMean", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere", "QuantizeLinear", "QuickGelu", "Range",
    "ReduceSumInteger", "RelativePositionBias", "RemovePadding", "RestorePadding", "Rfft", "SampleOp", "SkipGroupNorm",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SparseToDenseMatMul", "Tokenizer", "TransposeMatMul", "Trilu",
    "UnfoldTensor", "Unique", "WordConvEmbedding",
])  # fmt: skip
"""Contributed operators that optimizer_utils::IsOperationDeterministic lists."""


def is_deterministic(node: OrtNode) -> bool:
    """optimizer_utils::IsOperationDeterministic."""
    if node.domain == STANDARD:
        return node.op not in _RANDOM
    return node.domain == MICROSOFT and node.op in _DETERMINISTIC


@transformer("ConstantSharing")
def share_constants(graph: OrtGraph, session: Session) -> bool:
    """Constants of a few elements with the same values become one, in the main graph."""
    changed = False
    first: dict[Hashable, str] = {}
    for name in sorted(graph.weights):
        weight = graph.weights[name]
        if (
            weight.dtype not in _SHARED_TYPES
            or not 0 < weight.count <= _MOST_SHARED
            or graph.constant(name) is None
            or graph.is_output(name)
        ):
            continue
        readers = graph.readers(name)
        array = weight.values() if readers and not any(name in reader.captured for reader in readers) else None
        if array is None:
            continue
        key = (weight.dtype, weight.shape, array.tobytes())
        if key in first:
            graph.replace_uses(name, first[key])
            changed = True
        else:
            first[key] = name
    return changed


@transformer("CommonSubexpressionElimination")
def eliminate_common(graph: OrtGraph, session: Session) -> bool:
    """Keep the first of the nodes that compute the same from the same operands."""
    changed = False
    number: dict[str, Hashable] = {}
    found: dict[Hashable, str] = {}
    for node in graph.order():
        for body in node.bodies.values():
            changed |= eliminate_common(body, session)
        if node.bodies or not is_deterministic(node) or node.op == "DequantizeLinear":
            continue
        attrs = _attribute_key(node)
        if attrs is None:
            continue
        inputs = list(node.inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        key = (node.op, node.domain, node.version, tuple(number.get(name, name) for name in inputs), attrs)
        replaced = False
        for place, name in enumerate(node.outputs):
            if not name:
                continue
            first = found.setdefault((key, place), name)
            number[name] = first
            if first != name and not graph.is_output(name):
                graph.replace_uses(name, first)
                replaced = True
        if replaced:
            changed = True
            if not graph.makes_output(node):
                graph.remove_node(node)
    return changed


def _attribute_key(node: OrtNode) -> Hashable | None:
    """Return the attributes to compare; None where one is a graph, which makes the node unlike any other."""
    items: list[tuple[str, str, Hashable]] = []
    for name, value in sorted(node.attrs.items()):
        if isinstance(value, onnx.TensorProto):
            items.append((name, "tensor", value.SerializeToString(deterministic=True)))
        elif isinstance(value, tuple) and all(isinstance(item, int | float | str) for item in value):
            items.append((name, "tuple", tuple(value)))
        elif value is None or isinstance(value, int | float | str):
            items.append((name, type(value).__name__, value))
        else:
            return None
    return tuple(items)


@transformer("ConstantFolding")
def fold_constants(graph: OrtGraph, session: Session) -> bool:
    """Nodes that read constants alone become constants, and shapes that are all numbers; of an If with a constant condition one graph is
    left."""
    changed = False
    for node in graph.order():
        if graph.nodes.get(node.index) is not node:
            continue
        for body in node.bodies.values():
            changed |= fold_constants(body, session)
        if node.op == "If" and node.is_standard:
            changed |= _inline_branch(graph, node)
        elif node.op == "Shape" and node.is_standard:
            changed |= _fold_shape(graph, node)
        elif _is_foldable(graph, node):
            changed |= _fold(graph, node)
    return changed


def _fold_shape(graph: OrtGraph, node: OrtNode) -> bool:
    shape = graph.static_shape(node.input(0))
    if shape is None:
        return False
    start, end = node.attr("start", 0), node.attr("end", len(shape))
    array = np.array(shape[start:end], "<i8")
    _become(graph, node, [Weight(tensor(DType.I64, array.shape), array=array)])
    return True


def _become(graph: OrtGraph, node: OrtNode, weights: Sequence[Weight | None]) -> None:
    """Put constants in place of a node, and take out what was computed for it alone."""
    above = [made for made, _ in graph.input_edges(node)]
    graph.remove_node(node)
    for name, weight in zip(node.outputs, weights, strict=True):
        if name and weight is not None:
            graph.weights[name] = weight
            graph.types[name] = weight.type
    for made in above:
        remove_upwards(graph, made)


def remove_upwards(graph: OrtGraph, node: OrtNode) -> None:
    """Remove a node without readers, and those that were computed for it alone (graph_utils::RemoveNodesWithOneOutputBottomUp)."""
    pending = [node]
    while pending:
        one = pending.pop()
        if graph.nodes.get(one.index) is not one or len(one.outputs) > 1 or graph.makes_output(one) or graph.edge_count(one):
            continue
        above = [made for made, _ in graph.input_edges(one)]
        graph.remove_node(one)
        pending.extend(above)


def _is_foldable(graph: OrtGraph, node: OrtNode) -> bool:
    if node.bodies or not is_deterministic(node) or not _is_constant_node(graph, node):
        return False
    if not all(isinstance(graph.type_of(name), TensorType) for name in node.outputs if name):
        return False
    if node.is_standard and node.op in WITHOUT_KERNEL:
        return False
    if node.op == "DequantizeLinear" and not _folds_whole_unit(graph, node):
        return False
    halves = any(graph.dtype(name) in (DType.F16, DType.BF16) for name in (*node.inputs[:1], *node.outputs[:1]) if name)
    return not halves or runs_halves(node.op, node.version)


def _is_constant_node(graph: OrtGraph, node: OrtNode) -> bool:
    """graph_utils::AllNodeInputsAreConstant."""
    return not graph.input_edges(node) and all(graph.constant(name) is not None for name in node.inputs if name)


def _folds_whole_unit(graph: OrtGraph, node: OrtNode) -> bool:
    """Return whether a dequantised constant is quantised again after one operator: then all three fold, else they stay for fusions."""
    following = graph.sole_reader(node) if not graph.makes_output(node) else None
    if (
        following is None
        or len(following.inputs) != 1
        or len(following.outputs) != 1
        or following.bodies
        or not is_deterministic(following)
    ):
        return False
    last = graph.sole_reader(following) if not graph.makes_output(following) else None
    return last is not None and last.op == "QuantizeLinear"


def _fold(graph: OrtGraph, node: OrtNode) -> bool:
    types = [graph.type_of(name) if name else None for name in node.outputs]
    arrays = _computed(graph, node, types)
    weights: list[Weight | None] = []
    for place, (name, type_) in enumerate(zip(node.outputs, types, strict=True)):
        if not name:
            weights.append(None)
            continue
        array = arrays[place] if arrays is not None else None
        if array is not None and isinstance(type_, TensorType):
            weights.append(Weight(tensor(type_.dtype, array.shape), array=array))
        elif isinstance(type_, TensorType) and graph.static_shape(name) is not None:
            weights.append(Weight(tensor(type_.dtype, graph.static_shape(name))))
        else:
            return False
    _name_alike(graph, node, weights)
    _become(graph, node, weights)
    return True


def _name_alike(graph: OrtGraph, node: OrtNode, weights: Sequence[Weight | None]) -> None:
    """Give weights whose values were not computed a key by what they are computed from: a session finds that it packs equal ones once."""
    operands = [graph.constant(name) for name in node.inputs if name]
    sources = [None if arg is None else arg.identity if arg.values(MOST_FOLDED) is None else _values_key(arg) for arg in operands]
    attrs = _attribute_key(node)
    if attrs is None or any(source is None for source in sources):
        return
    for place, weight in enumerate(weights):
        if weight is not None:
            weight.key = (node.op, node.version, attrs, tuple(sources), place)


def _values_key(weight: Weight) -> Hashable:
    array = weight.values(MOST_FOLDED)
    return None if array is None else (weight.dtype, weight.shape, array.tobytes())


def _computed(graph: OrtGraph, node: OrtNode, types: Sequence[object]) -> list[Array] | None:
    """Return the results of a node of constant operands, by the operators' numpy reference; None where they are large or unknown."""
    sizes = [graph.static_shape(name) for name in node.outputs if name]
    if any(shape is None or prod(shape) > MOST_FOLDED for shape in sizes):
        return None
    feeds: dict[str, Array] = {}
    for name in node.inputs:
        if name:
            array = graph.values(name, MOST_FOLDED)
            if array is None:
                return None
            feeds[name] = array
    if node.domain != STANDARD or any(array.dtype.kind in "OUS" for array in feeds.values()):
        return None
    spend(2000, "computing constants")
    try:
        return _run_reference(node, feeds, graph.opset())
    except Exception:  # the reference lacks operators and types, and raises what numpy raises
        return None


def _run_reference(node: OrtNode, feeds: dict[str, Array], opset: int) -> list[Array] | None:
    from onnx.reference import ReferenceEvaluator

    attributes = [
        value if isinstance(value, onnx.AttributeProto) else helper.make_attribute(name, value)
        for name, value in node.attrs.items()
        if value is not None and value != ()
    ]
    proto = helper.make_node(node.op, node.inputs, node.outputs)
    proto.attribute.extend(attributes)
    kinds = {name: numpy_helper.from_array(np.asarray(array, order="C"), name) for name, array in feeds.items()}
    made = helper.make_graph(
        [proto],
        "one",
        [],
        [helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in node.outputs if name],
        list(kinds.values()),
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", min(opset, onnx.defs.onnx_opset_version()))])
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(model).run(None, {})
    by_name = dict(zip([name for name in node.outputs if name], results, strict=True))
    if not all(isinstance(array, np.ndarray | np.generic) for array in by_name.values()):
        return None
    return [np.asarray(by_name[name]) if name else np.empty(0) for name in node.outputs]


def _inline_branch(graph: OrtGraph, node: OrtNode) -> bool:
    """An If whose condition is constant: the nodes of the branch that runs get the next numbers."""
    condition = graph.scalar(node.input(0))
    if condition is None:
        return False
    branch = node.bodies["then_branch" if condition else "else_branch"]
    graph.remove_node(node)
    made = {name for inner in branch for name in inner.outputs if name}
    names = {given: result for given, result in zip(branch.outputs, node.outputs, strict=False) if given in made}
    for name, weight in branch.weights.items():
        names[name] = graph.new_name(name)
        graph.weights[names[name]] = weight
    for name in sorted(made - set(names)):
        names[name] = graph.new_name(name)
        if name in branch.types:
            graph.types[names[name]] = branch.types[name]
    for inner in branch:
        _move(graph, inner, names)
    for given, result in zip(branch.outputs, node.outputs, strict=False):
        if given not in made and result:
            # The branch returns a value of the graph around it, or a constant of its own: a node hands it on.
            graph.add_node("Identity", [names.get(given, given)], [result], name=f"{node.name}_inlined")
    return True


def _move(graph: OrtGraph, inner: OrtNode, names: Mapping[str, str]) -> None:
    """Copy a node of an inner graph here, under this graph's names."""
    for body in inner.bodies.values():
        body.outer = graph
        for old in inner.captured:
            if names.get(old, old) != old:
                body.rename_captured(old, names[old])
    inputs, outputs, captured = ([names.get(name, name) for name in given] for given in (inner.inputs, inner.outputs, inner.captured))
    moved = OrtNode(
        graph, graph.next_index, inner.op, inner.domain, inner.version, inner.name, inputs, outputs, inner.attrs, inner.made_from
    )
    moved.bodies, moved.captured = inner.bodies, captured
    graph.enter(moved)


@per_node("ReshapeFusion")
def fuse_reshape(graph: OrtGraph, node: OrtNode) -> bool:
    """A Reshape whose sizes are taken from its own operand reads constants; several in a row are one."""
    if not node.matches("Reshape") or node.version < 5 or node.attr("allowzero", 0):
        return False
    return _constant_sizes(graph, node) or _fuse_row(graph, node)


def _constant_sizes(graph: OrtGraph, node: OrtNode) -> bool:
    joined = graph.input_node(node, 1)
    if joined is None or not joined.matches("Concat") or graph.makes_output(joined) or graph.edge_count(joined) != 1:
        return False
    sizes: list[int] = []
    for place, name in enumerate(joined.inputs):
        array = graph.values(name)
        if array is not None and array.dtype.kind == "i":
            sizes.extend(int(value) for value in array.reshape(-1))
            continue
        if _is_own_size(graph, node.input(0), joined, place, len(sizes)):
            sizes.append(0)
            continue
        shape = graph.shape(name)
        if shape != (1,):
            return False
        sizes.append(-1)
    if sizes.count(-1) > 1:
        return False
    name = joined.outputs[0]
    above = [made for made, _ in graph.input_edges(joined)]
    graph.remove_node(joined)
    graph.weights[name] = Weight(tensor(DType.I64, (len(sizes),)), array=np.array(sizes, "<i8"))
    for made in above:
        remove_upwards(graph, made)
    return True


def _is_own_size(graph: OrtGraph, root: str, joined: OrtNode, place: int, axis: int) -> bool:
    """Return whether an operand of the Concat is the size of this axis of `root`: Shape, then Gather and Unsqueeze."""
    made = graph.input_node(joined, place)
    if made is None:
        return False
    if made.op == "Unsqueeze":
        axes = made.ints("axes") if made.version < 13 else _ints(graph, made.input(1))
        gather = graph.input_node(made, 0)
        if axes is None or tuple(axes) != (0,) or gather is None:
            return False
        if gather.op != "Gather" or gather.attr("axis", 0) != 0:
            return False
        index = graph.scalar(gather.input(1))
        shape = graph.input_node(gather, 0)
        if index != axis or shape is None or shape.op != "Shape":
            return False
        return _has_same_size(graph, shape.input(0), root, axis)
    return False


def _has_same_size(graph: OrtGraph, name: str, root: str, axis: int) -> bool:
    """Return whether two values are one, or have one size along an axis: a number or a name, from the file or inferred."""
    if name == root:
        return True
    shapes = [graph.shape(one) or () for one in (name, root)]
    sizes = [shape[axis] if axis < len(shape) else None for shape in shapes]
    return sizes[0] is not None and sizes[0] == sizes[1]


def _ints(graph: OrtGraph, name: str) -> tuple[int, ...] | None:
    array = graph.values(name)
    return None if array is None else tuple([int(value) for value in array.reshape(-1)])


def _fuse_row(graph: OrtGraph, node: OrtNode) -> bool:
    row = [node]
    sizes: tuple[int, ...] | None = None
    while not graph.makes_output(row[-1]):
        following = graph.sole_reader(row[-1])
        if following is None or following.op not in ("Reshape", "Squeeze", "Unsqueeze") or following.input(0) != row[-1].outputs[0]:
            break
        if any(one.attr("allowzero", 0) for one in (row[-1], following)):
            break
        shape = graph.static_shape(following.outputs[0])
        if shape is None:
            break
        sizes = shape
        row.append(following)
    if len(row) < 2 or sizes is None:
        return False
    shape_name = graph.add_weight(graph.new_name(f"{node.name}_new_shape"), np.array(sizes, "<i8"))
    graph.fuse(row, "Reshape", [node.input(0), shape_name], name=f"{node.name}_new_reshape")
    return True

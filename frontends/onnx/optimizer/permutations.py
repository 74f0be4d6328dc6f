"""Permutations of axes, the edits of a graph by which the transpose optimizer moves them, and pairs of quantisation in their way.

A DequantizeLinear between a constant or a Transpose and the node that is transposed is looked past. Behind the optimizer, what stands
outside pairs of quantisation is put between such pairs again (FixQDQNodeUnits).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from irscope.frontends.onnx.model import STANDARD
from irscope.frontends.onnx.optimizer.graph import OrtGraph, OrtNode, Weight
from irscope.frontends.onnx.types import AttrValue
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor

Perm: TypeAlias = tuple[int, ...]
_DEQUANTIZE: Final = "DequantizeLinear"
_QUANTIZE: Final = "QuantizeLinear"


def inverted(perm: Sequence[int]) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def composed(first: Sequence[int], second: Sequence[int]) -> Perm:
    return tuple(first[place] for place in second)


def permutation_of(node: OrtNode) -> Perm | None:
    """Return the permutation of a Transpose that says it."""
    found = node.ints("perm")
    return found if found is not None and sorted(found) == list(range(len(found))) else None


def permuted(type_: Type, perm: Sequence[int]) -> Type:
    if not isinstance(type_, TensorType) or type_.shape is None or len(type_.shape) != len(perm):
        return type_
    return tensor(type_.dtype, tuple(type_.shape[place] for place in perm))


def axes_from_front(axes: Sequence[int], rank: int) -> list[int] | None:
    """Return axes counted from the front; None where they are no axes of this rank."""
    found = [axis + rank if axis < 0 else axis for axis in axes]
    return found if len(set(found)) == len(found) and all(0 <= axis < rank for axis in found) else None


def has_only_readers(graph: OrtGraph, name: str) -> bool:
    """Return whether all that read a value are operands of nodes: it is not the graph's result, and no graph inside reads it."""
    return not graph.is_output(name) and all(name not in reader.captured for reader in graph.readers(name))


def local_constant(graph: OrtGraph, name: str) -> Weight | None:
    return graph.constant(name) if name in graph.weights else None


def add_single(
    graph: OrtGraph, like: OrtNode, op: str, inputs: Sequence[str], attrs: Mapping[str, AttrValue], type_: Type, domain: str = STANDARD
) -> OrtNode:
    """Add a node with one result."""
    name = graph.new_node_name(op)
    result = f"{name}_out0"
    graph.types[result] = type_
    return graph.add_node(op, inputs, [result], attrs, domain, name, like.provider)


def copy_shape(graph: OrtGraph, source: str, target: str, perm: Sequence[int]) -> None:
    """Let ONNX Runtime know a new value by the shape of another, permuted: it copies what a file declares
    (ApiGraph::CopyValueInfo and ApiValueInfo::PermuteDims in core/optimizer/transpose_optimization/ort_optimizer_api_impl.cc), with names
    of sizes that it would not infer."""
    shape = graph.shape(source) if source in graph.known or source in graph.inputs else None
    if shape is not None and len(shape) == len(perm):
        graph.known[target] = tuple([shape[axis] for axis in perm])
        graph.shaped.add(target)


def replace_all(graph: OrtGraph, old: str, new: str, but: OrtNode | None = None) -> None:
    """Let all that read a value read another, apart from one node."""
    for reader in graph.readers(old):
        if reader is not but:
            graph.set_inputs(reader, [new if name == old else name for name in reader.inputs])


def move_output(graph: OrtGraph, source: OrtNode, place: int, target: OrtNode) -> None:
    """Let the target make the source's result, under its name; the source makes a new one."""
    name = source.outputs[place]
    fresh = graph.new_name(source.name)
    graph.set_outputs(source, [fresh if at == place else other for at, other in enumerate(source.outputs)])
    graph.set_outputs(target, [name])
    graph.types[fresh] = graph.type_of(name)


def remove_unread(graph: OrtGraph, node: OrtNode) -> None:
    if not graph.readers(node.outputs[0]) and not graph.is_output(node.outputs[0]):
        graph.remove_node(node)


def ints_of(graph: OrtGraph, name: str) -> list[int] | None:
    array = graph.values(name)
    return None if array is None else [int(value) for value in array.reshape(-1)]


def axes_of(graph: OrtGraph, node: OrtNode, since: int) -> list[int] | None:
    """Return the axes of a node, an attribute before this operator set and an operand from then on."""
    if graph.opset() < since:
        found = node.ints("axes")
        return None if found is None else list(found)
    return ints_of(graph, node.input(1))


def add_ints(graph: OrtGraph, values: Sequence[int], dtype: str = "<i8") -> str:
    return graph.add_weight(graph.new_name("const_transpose_optimizer"), np.array(values, dtype))


def quantised_axis(graph: OrtGraph, node: OrtNode) -> int | None:
    """Return the axis of a pair's node along which its scales lie, -1 where there is one for all; None where that is not known, and for
    blocks."""
    scale = graph.shape(node.input(1))
    if scale is None:
        return None
    if scale in ((), (1,)):
        return -1
    given = graph.shape(node.input(0))
    axes = None if given is None or node.attr("block_size", 0) else axes_from_front([node.attr("axis", 1)], len(given))
    return None if axes is None else axes[0]


def dequantized(graph: OrtGraph, name: str) -> OrtNode | None:
    """Return the DequantizeLinear that makes a value, if its operand may be transposed instead."""
    made = graph.maker(name)
    return made if made is not None and made.op == _DEQUANTIZE and quantised_axis(graph, made) is not None else None


def dequantized_constant(graph: OrtGraph, name: str) -> OrtNode | None:
    """Return the DequantizeLinear of a constant that makes a value with one reader."""
    made = dequantized(graph, name)
    if made is None or local_constant(graph, made.input(0)) is None or not has_only_readers(graph, made.input(0)):
        return None
    return made if only_reader(graph, made) is not None else None


def only_reader(graph: OrtGraph, node: OrtNode) -> OrtNode | None:
    """Return the one node that reads a node's first result, if nothing else does."""
    readers = graph.readers(node.outputs[0])
    return readers[0] if len(readers) == 1 and has_only_readers(graph, node.outputs[0]) else None


def set_dequantized(graph: OrtGraph, node: OrtNode, name: str, axes: Sequence[int]) -> None:
    """Let a DequantizeLinear read another value, whose axes are those of `axes` before."""
    axis = quantised_axis(graph, node)
    if axis is not None and axis >= 0:
        node.attrs["axis"] = list(axes).index(axis)
    graph.set_input(node, 0, name)
    given, made = graph.type_of(name), graph.type_of(node.outputs[0])
    if isinstance(given, TensorType) and isinstance(made, TensorType):
        graph.types[node.outputs[0]] = tensor(made.dtype, given.shape)


def widened_axes(rank: int, axes: Sequence[int]) -> list[int]:
    """Return for each axis of an unsqueezed value the axis before, -1 for new ones."""
    before = iter(range(rank))
    return [-1 if axis in axes else next(before) for axis in range(rank + len(axes))]


def add_pair_behind(graph: OrtGraph, dequantize: OrtNode) -> bool:
    """Put a pair behind the Transpose or Unsqueeze that alone reads what is dequantized (MakeQDQNodeUnit)."""
    node, axis = only_reader(graph, dequantize), quantised_axis(graph, dequantize)
    if node is None or axis is None:
        return False
    if axis >= 0:
        if node.op == "Transpose":
            axes: Sequence[int] | None = permutation_of(node)
        else:
            added, shape = axes_of(graph, node, 13), graph.shape(dequantize.outputs[0])
            axes = None if added is None or shape is None else widened_axes(len(shape), added)
        if axes is None:
            return False
        axis = list(axes).index(axis)
    quantize, behind = _pair(graph, node, dequantize, graph.dtype(dequantize.input(0)), graph.type_of(node.outputs[0]), axis)
    move_output(graph, node, 0, behind)
    graph.set_input(quantize, 0, node.outputs[0])
    return True


def _pair(graph: OrtGraph, like: OrtNode, given: OrtNode, code: DType, type_: Type, axis: int) -> tuple[OrtNode, OrtNode]:
    """Add a pair with the scale of a node; what it quantises is to be set."""
    attrs: dict[str, AttrValue] = {"axis": axis} if axis >= 0 else {}
    coded = tensor(code, type_.shape if isinstance(type_, TensorType) else None)
    quantize = add_single(graph, like, _QUANTIZE, ["", *given.inputs[1:]], attrs, coded, given.domain)
    return quantize, add_single(graph, like, _DEQUANTIZE, [quantize.outputs[0], *given.inputs[1:]], attrs, type_, given.domain)


def fold_undone(graph: OrtGraph, node: OrtNode) -> bool:
    """Compute a Transpose or Squeeze of a constant, which undoes what another reader of it needs."""
    constant = local_constant(graph, node.input(0)) if node.op in ("Transpose", "Squeeze") else None
    readers = graph.readers(node.outputs[0])
    if constant is None or not readers:
        return False
    array = constant.values()
    if node.op == "Transpose":
        perm = permutation_of(node)
        if perm is None:
            return False
        shape = tuple(constant.shape[axis] for axis in perm)
        folded = None if array is None else array.transpose(perm)
    else:
        axes = axes_of(graph, node, 13)
        if axes is None:
            return False
        shape = tuple(size for axis, size in enumerate(constant.shape) if axis not in axes and axis - len(constant.shape) not in axes)
        folded = None if array is None else array.reshape(shape)
    name = graph.add_weight(graph.new_name("const_transpose_optimizer"), folded, tensor(constant.dtype, shape))
    replace_all(graph, node.outputs[0], name)
    remove_unread(graph, node)
    return True


def repair_pairs(graph: OrtGraph, node: OrtNode) -> bool:
    """Remove a pair with nothing between, and put a Transpose that lost a side of its pairs between such again."""
    if node.op == _QUANTIZE:
        return _remove_empty(graph, node)
    return node.op == "Transpose" and (_has_pair_behind(graph, node) or _has_pair_before(graph, node))


def _remove_empty(graph: OrtGraph, node: OrtNode) -> bool:
    before = graph.maker(node.input(0))
    if before is None or before.op != _DEQUANTIZE or only_reader(graph, before) is not node or not _is_same_code(graph, before, node):
        return False
    name, result = before.input(0), node.outputs[0]
    # With several readers only if nothing else reads what is dequantized: graphs that sessions of 1.31 saved are so.
    if only_reader(graph, node) is not None or (
        graph.readers(name) == [before] and graph.readers(result) and has_only_readers(graph, result)
    ):
        replace_all(graph, result, name)
    else:
        source = graph.maker(name)
        if graph.readers(result) or not graph.is_output(result) or source is None or graph.readers(name) != [before]:
            return False
        graph.set_outputs(node, [""])
        graph.set_outputs(source, [result if made == name else made for made in source.outputs])
    graph.remove_node(before)
    graph.remove_node(node)
    return True


def _is_same_code(graph: OrtGraph, dequantize: OrtNode, quantize: OrtNode) -> bool:
    """CheckQDQNodePairMatch."""
    code = graph.dtype(dequantize.input(0))
    if dequantize.domain != quantize.domain or code is DType.UNKNOWN or code is not graph.dtype(quantize.outputs[0]):
        return False
    return all(_is_same_constant(graph, dequantize.input(place), quantize.input(place)) for place in (1, 2))


def _is_same_constant(graph: OrtGraph, first: str, second: str) -> bool:
    if first == second:
        return True
    arrays = [graph.values(name) for name in (first, second) if name]
    if any(array is None for array in arrays):
        return False
    known = [array for array in arrays if array is not None]
    # A zero point that is left out is zero.
    return not known[0].any() if len(known) == 1 else known[0].tobytes() == known[1].tobytes()


def _has_pair_behind(graph: OrtGraph, node: OrtNode) -> bool:
    """DQ, Transpose, another operator: a pair behind the Transpose is missing (TryFixTransposeMissingQ)."""
    before = graph.maker(node.input(0))
    readers = graph.readers(node.outputs[0])
    if before is None or before.op != _DEQUANTIZE or len(readers) > 1 or any(reader.op == _QUANTIZE for reader in readers):
        return False
    return add_pair_behind(graph, before)


def _has_pair_before(graph: OrtGraph, node: OrtNode) -> bool:
    """Another operator, Transpose, Q: a pair before the Transpose is missing (TryFixTransposeMissingDQ)."""
    quantize, name = only_reader(graph, node), node.input(0)
    source = graph.maker(name)
    if quantize is None or quantize.op != _QUANTIZE or source is None or source.op == _DEQUANTIZE or graph.readers(name) != [node]:
        return False
    axis = quantised_axis(graph, quantize)
    perm = permutation_of(node) if axis is not None and axis >= 0 else ()
    if axis is None or perm is None:
        return False
    new, behind = _pair(graph, node, quantize, graph.dtype(quantize.outputs[0]), graph.type_of(name), perm[axis] if perm else -1)
    place = source.outputs.index(name)
    move_output(graph, source, place, behind)
    graph.set_input(new, 0, source.outputs[place])
    return True

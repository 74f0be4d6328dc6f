"""Between levels 1 and 2: nodes are assigned to the provider, operators without a kernel are replaced by their function, and those without
one in half precision run between casts to single precision and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from irscope.frontends.onnx.optimizer.graph import MICROSOFT, OrtGraph, OrtNode, Weight, ends_in_one
from irscope.frontends.onnx.types import NUMBERS, NUMPY, AttrValue, decode
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor
from irscope.ops.ort import OF_LISTS, WITHOUT_KERNEL, runs_halves

_CPU: Final = "CPUExecutionProvider"
_ON_CUDA: Final = frozenset({"HardSwish"})
"""Those that the CUDA provider has a kernel for."""
_WIDTHS: Final = {
    DType.BOOL: 0,
    **dict.fromkeys([DType.I8, DType.U8, DType.I16, DType.U16, DType.I32, DType.U32, DType.I64, DType.U64], 1),
    **dict.fromkeys([DType.F16, DType.BF16, DType.F32, DType.F64], 2),
}
"""Rank of each type by what it can hold, coarsely."""


def _lacks_half(graph: OrtGraph, node: OrtNode) -> bool:
    """Return whether a node reads half precision and the CPU provider has no kernel for that."""
    return any(graph.dtype(name) is DType.F16 for name in node.inputs if name) and not runs_halves(node.op, node.version)


def partition(graph: OrtGraph, provider: str) -> None:
    """Assign every node that has a kernel, also inside."""
    on_cpu = provider == _CPU
    for node in graph.order():
        lacks = node.op in WITHOUT_KERNEL and (on_cpu or node.op not in _ON_CUDA)
        if node.is_standard and (lacks or (on_cpu and _lacks_half(graph, node))):
            _inline_function(graph, node)
    for node in graph:
        if not on_cpu or not _lacks_half(graph, node):
            node.provider = provider
        for body in node.bodies.values():
            partition(body, provider)


def _definition(graph: OrtGraph, node: OrtNode) -> onnx.FunctionProto | None:
    """Return the operator by simpler ones, in operators that the model's operator set has; None where there is none."""
    schema: Any = onnx.defs.get_schema(node.op, node.version)  # its stubs lack what is asked here
    try:
        versions = [version for version in schema.function_opset_versions if version <= graph.opset()]
        if versions:
            found: onnx.FunctionProto = onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(versions)))
            return found
        versions = [version for version in schema.context_dependent_function_opset_versions if version <= graph.opset()]
        if not versions:
            return None
        attributes = [helper.make_attribute(name, value) for name, value in node.attrs.items() if value is not None and value != ()]
        proto = helper.make_node(node.op, node.inputs, node.outputs)
        proto.attribute.extend(attributes)
        types = [_type_proto(graph.type_of(name)).SerializeToString() for name in node.inputs]
        made = schema.get_context_dependent_function_with_opset_version(max(versions), proto.SerializeToString(), types)
        return onnx.FunctionProto.FromString(made) if made else None
    except (AttributeError, RuntimeError, TypeError, ValueError):  # an older onnx package, or types that the function refuses
        return None


def _type_proto(type_: Type) -> onnx.TypeProto:
    if not isinstance(type_, TensorType):
        return onnx.TypeProto()
    shape = None if type_.shape is None else [dim if isinstance(dim, int) else None for dim in type_.shape]
    return helper.make_tensor_type_proto(NUMBERS[type_.dtype], shape)


def _inline_function(graph: OrtGraph, node: OrtNode) -> None:
    """Put the nodes of an operator's definition in place of a node, its constants as initializers."""
    definition = _definition(graph, node)
    if definition is None or not definition.node or any(one.HasField("g") for inner in definition.node for one in inner.attribute):
        return
    graph.remove_node(node)
    names = dict(zip(definition.input, node.inputs, strict=False))
    names.update(zip(definition.output, node.outputs, strict=False))
    own = graph.type_of(node.input(0))
    for inner in definition.node:
        for name in inner.output:
            if name and name not in names:
                names[name] = graph.new_name(f"_inlfunc_{node.op}_{name}")
        inputs = [names.get(name, "") for name in inner.input]
        if inner.op_type == "Constant":
            graph.add_weight(names[inner.output[0]], _constant(inner))
        elif inner.op_type == "CastLike" and (value := graph.constant(inputs[0])) is not None:
            array, dtype = value.values(), graph.dtype(inputs[1])
            kind = NUMPY.get(dtype)
            type_ = tensor(dtype, value.shape)
            graph.weights[names[inner.output[0]]] = Weight(type_, array=None if array is None or kind is None else array.astype(kind))
        else:
            _add_inlined(graph, node, inner, inputs, [names.get(name, "") for name in inner.output], own)


def _add_inlined(graph: OrtGraph, node: OrtNode, inner: onnx.NodeProto, inputs: list[str], outputs: list[str], own: Type) -> None:
    attrs: dict[str, AttrValue] = {one.name: decode(one) for one in inner.attribute if not one.ref_attr_name}
    attrs.update({one.name: node.attrs.get(one.ref_attr_name) for one in inner.attribute if one.ref_attr_name})
    made = graph.add_node(inner.op_type, inputs, outputs, attrs, MICROSOFT if inner.domain == MICROSOFT else "")
    keeps_shape = not made.op.startswith("Reduce") and own is graph.type_of(made.input(0))
    for name in made.outputs:
        if name and name not in graph.types:
            graph.types[name] = own if keeps_shape or not isinstance(own, TensorType) else tensor(own.dtype, None)


def _constant(inner: onnx.NodeProto) -> np.ndarray:
    attribute = inner.attribute[0]
    value = decode(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.array(value, "<i8" if attribute.name in ("value_int", "value_ints") else "<f4")


def insert_casts(graph: OrtGraph) -> bool:
    """InsertCastTransformer: a value is cast to single precision once, and new casts come last; double casts go afterwards."""
    changed = False
    nodes = list(graph)
    lacking = {node.index for node in nodes if not node.provider and _lacks_half(graph, node)}
    if lacking and len(nodes) > 1:
        # It marks them one by one, so that a neighbour of one that it has marked counts as lacking too.
        for node in nodes:
            if node.index not in lacking and _is_isolated(graph, node, lacking):
                lacking.add(node.index)
    floats: dict[str, str] = {}
    for node in graph.order():
        if node.index in lacking:
            _wrap(graph, node, floats)
            changed = True
    changed |= _remove_double_casts(graph)
    for node in graph:
        for body in node.bodies.values():
            changed |= insert_casts(body)
    return changed


def _halves(graph: OrtGraph, names: list[str]) -> list[str]:
    return [name for name in names if name and graph.dtype(name) is DType.F16]


def _is_isolated(graph: OrtGraph, node: OrtNode, lacking: set[int]) -> bool:
    """Return whether a node has only kernels without half precision around it: makers of its operands, inputs and weights aside, and all
    that read its results; of a list only the first counts (`OF_LISTS`)."""
    halves = _halves(graph, node.inputs)
    if node.bodies or not halves or graph.makes_output(node):
        return False
    makers = [made for name in node.inputs if (made := graph.maker(name)) is not None]
    some = slice(1) if node.op in OF_LISTS else slice(None)
    own = [made for name in _halves(graph, node.inputs[some]) if (made := graph.maker(name)) is not None]
    readers = [reader for name in _halves(graph, node.outputs[some]) for reader in graph.readers(name)]
    return bool(makers and readers) and all(one.index in lacking for one in (*own, *readers))


def _wrap(graph: OrtGraph, node: OrtNode, floats: dict[str, str]) -> None:
    node.provider = _CPU
    for name in dict.fromkeys(_halves(graph, node.inputs)):
        if name not in floats:
            floats[name] = _new_single(graph, name)
            graph.add_node("Cast", [name], [floats[name]], {"to": NUMBERS[DType.F32]}, provider=_CPU)
    graph.set_inputs(node, [floats.get(name, name) if graph.dtype(name) is DType.F16 else name for name in node.inputs])
    for place, name in enumerate(list(node.outputs)):
        if name and graph.dtype(name) is DType.F16:
            single = _new_single(graph, name)
            graph.set_outputs(node, [single if at == place else other for at, other in enumerate(node.outputs)])
            graph.add_node("Cast", [single], [name], {"to": NUMBERS[DType.F16]}, provider=_CPU)


def _new_single(graph: OrtGraph, name: str) -> str:
    single = graph.new_name(f"InsertedPrecisionFreeCast_{name}")
    type_ = graph.type_of(name)
    graph.types[single] = tensor(DType.F32, type_.shape if isinstance(type_, TensorType) else None)
    graph.known[single] = graph.known.get(name)
    graph.shaped.add(single)
    return single


def _casts(graph: OrtGraph) -> Iterator[OrtNode]:
    for node in graph:
        if graph.nodes.get(node.index) is node and node.matches("Cast"):
            yield node


def _remove_double_casts(graph: OrtGraph) -> bool:
    """RemoveDuplicateCastTransformer: casts whose only readers are casts, where the first does not lose more than the second."""
    changed = False
    for cast in _casts(graph):
        source, result = cast.input(0), cast.outputs[0]
        before, after = graph.dtype(source), graph.dtype(result)
        if (
            before not in _WIDTHS
            or after not in _WIDTHS
            or (_WIDTHS[before] == _WIDTHS[after] == 1 and (after.bits or 0) < (before.bits or 0))
        ):
            continue
        readers = graph.readers(result)
        again = [reader for reader in readers if reader.matches("Cast")]
        loses = _WIDTHS[before] > _WIDTHS[after]
        then = [graph.dtype(reader.outputs[0]) for reader in again]
        if any(one not in _WIDTHS or (loses and _WIDTHS[one] > _WIDTHS[after]) for one in then):
            continue
        for reader, one in zip(again, then, strict=True):
            if one is before and not graph.is_output(reader.outputs[0]):
                graph.replace_uses(reader.outputs[0], source)
                graph.remove_node(reader)
                changed = True
        if readers and len(again) == len(readers) and not graph.is_output(result):
            graph.replace_uses(result, source)
            graph.remove_node(cast)
            changed = True
    return changed


def single_constants(graph: OrtGraph) -> bool:
    """FuseFp16InitializerToFp32NodeTransformer: constants that are cast for one reader become single precision."""
    changed = False
    for cast in list(_casts(graph)):
        weight = graph.constant(cast.input(0))
        if weight is None or weight.dtype is not DType.F16 or graph.dtype(cast.outputs[0]) is not DType.F32 or not ends_in_one(graph, cast):
            continue
        array = weight.values()
        name = graph.new_name(f"FusedBack_{cast.input(0)}")
        graph.add_weight(name, None if array is None else array.astype("<f4"), tensor(DType.F32, weight.shape))
        graph.replace_with_weight(cast, name)
        changed = True
    return changed

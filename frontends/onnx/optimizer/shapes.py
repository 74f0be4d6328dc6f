"""What ONNX Runtime knows of shapes while it optimises: less than irscope does.

It infers shapes by ONNX's own rules, node by node, and does not follow the elements of shapes through arithmetic. Where a condition of a
transformer compares sizes, what irscope knows beyond that would let it fuse what a session does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx
from onnx import helper, numpy_helper, shape_inference

from irscope.frontends.onnx.model import STANDARD
from irscope.frontends.onnx.optimizer.graph import OrtGraph, OrtNode, Size
from irscope.frontends.onnx.types import NUMBERS
from irscope.ir.types import TensorType

_MOST_ELEMENTS = 64
"""Weights with more stand for their shape alone: none is a list of sizes."""
_MADE_UP = "unk__"
"""What ONNX's inference calls sizes that it does not know."""


def infer_known(graph: OrtGraph) -> None:
    """Bring the shapes that ONNX Runtime knows of the main graph's values up to date. What it knew it goes on knowing."""
    light = _light(graph)
    named = _names_of(light.graph)
    try:
        inferred = shape_inference.infer_shapes(light, check_type=False, strict_mode=False, data_prop=False).graph
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        return
    _note(graph, inferred, named)
    for node, proto in zip(graph.order(), inferred.node, strict=True):
        _note_bodies(node, proto, named)


def _names_of(light: onnx.GraphProto) -> frozenset[str]:
    """Names of sizes that begin like those that the inference makes up, and are the file's: that of an earlier inference wrote them."""
    infos = (*light.input, *light.output, *light.value_info)
    names = (dim.dim_param for info in infos for dim in info.type.tensor_type.shape.dim)
    return frozenset(name for name in names if name.startswith(_MADE_UP))


def _note(graph: OrtGraph, inferred: onnx.GraphProto, named: Collection[str]) -> None:
    for info in (*inferred.value_info, *inferred.output):
        if info.type.HasField("tensor_type"):
            sizes = sizes_of(info.type.tensor_type)
            graph.known[info.name] = sizes and tuple([None if _is_made_up(size, named) else size for size in sizes])
    for node in graph:
        for name in node.outputs:
            graph.known.setdefault(name, None)


def _is_made_up(size: Size, named: Collection[str]) -> bool:
    return isinstance(size, str) and size.startswith(_MADE_UP) and size not in named


def _note_bodies(node: OrtNode, proto: onnx.NodeProto, named: Collection[str]) -> None:
    """The same for graphs inside a node, as the file has them."""
    for attribute in proto.attribute:
        body = node.bodies.get(attribute.name)
        if body is None:
            continue
        _note(body, attribute.g, named)
        inside = {tuple(one.output): one for one in attribute.g.node}
        for one in body:
            if one.bodies and tuple(one.outputs) in inside:
                _note_bodies(one, inside[tuple(one.outputs)], named)


def sizes_of(type_: onnx.TypeProto.Tensor) -> tuple[Size, ...] | None:
    """The shape that a file declares."""
    return tuple([_size(dim) for dim in type_.shape.dim]) if type_.HasField("shape") else None


def _size(dim: onnx.TensorShapeProto.Dimension) -> Size:
    if dim.HasField("dim_value"):
        return dim.dim_value
    return dim.dim_param or None


def _light(graph: OrtGraph) -> onnx.ModelProto:
    """The model without the values of large weights, and with what is known already."""
    light = onnx.ModelProto(ir_version=onnx.IR_VERSION)
    for domain, version in graph.opsets.items():
        light.opset_import.append(helper.make_opsetid(domain, version))
    target = light.graph
    target.name = "known"
    target.node.extend(_nodes(graph))
    results = set(graph.outputs)
    for name in graph.inputs:
        if name not in graph.weights:
            target.input.append(_info(graph, name, graph.shape_of_type(name)))
    target.output.extend(_info(graph, name, graph.known.get(name)) for name in graph.outputs)
    for name, weight in graph.weights.items():
        array = weight.values(_MOST_ELEMENTS)
        if array is not None and weight.count <= _MOST_ELEMENTS and weight.dtype.is_integer:
            target.initializer.append(numpy_helper.from_array(array, name))
        else:
            target.value_info.append(_info(graph, name, weight.shape))
    target.value_info.extend(_info(graph, name, known) for name, known in graph.known.items() if known is not None and name not in results)
    target.value_info.extend(_others(graph, results | graph.known.keys()))
    return light


def _nodes(graph: OrtGraph) -> Iterator[onnx.NodeProto]:
    for node in graph.order():
        source = node.made_from
        is_as_read = node.read == node.attrs
        if source is not None and is_as_read and list(source.input) == node.inputs and list(source.output) == node.outputs:
            yield source
            continue
        proto = onnx.NodeProto(op_type=node.op, domain=node.domain, input=node.inputs, output=node.outputs)
        if source is not None:
            proto.attribute.extend(one for one in source.attribute if is_as_read or _is_kept(node, one.name))
        if source is None or not is_as_read:
            others = ((name, value) for name, value in node.attrs.items() if value not in (None, ()) and not _is_kept(node, name))
            proto.attribute.extend(helper.make_attribute(name, value) for name, value in others)
        yield proto


def _is_kept(node: OrtNode, name: str) -> bool:
    """Return whether an attribute is as the file has it."""
    return node.read is not None and name in node.attrs and node.read.get(name) == node.attrs[name] and name in node.read


def _others(graph: OrtGraph, listed: Collection[str]) -> Iterator[onnx.ValueInfoProto]:
    """Results of operators that ONNX has no rules for: ONNX Runtime has its own."""
    for node in graph:
        if not _has_rules(graph, node):
            for name in node.outputs:
                if name and name not in listed and isinstance(graph.type_of(name), TensorType):
                    yield _info(graph, name, graph.shape_of_type(name))


def _has_rules(graph: OrtGraph, node: OrtNode) -> bool:
    return node.domain == STANDARD and bool(onnx.defs.has(node.op, max_inclusive_version=graph.opset(), domain=STANDARD))


def _info(graph: OrtGraph, name: str, shape: tuple[Size, ...] | None) -> onnx.ValueInfoProto:
    info = onnx.ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = NUMBERS.get(graph.dtype(name), 0)
    if shape is not None:
        info.type.tensor_type.shape.SetInParent()
    for size in shape or ():
        dim = info.type.tensor_type.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif size is not None:
            dim.dim_param = size
    return info

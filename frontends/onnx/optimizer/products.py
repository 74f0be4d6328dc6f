"""Fusions of matrix products, convolutions, gathers and masks: level 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from irscope.frontends.onnx.optimizer.graph import (
    ADD,
    CPU,
    CUDA,
    FLOATS,
    MICROSOFT,
    OrtGraph,
    OrtNode,
    Session,
    ends_in_one,
    first_child,
    first_parent,
    has_dtypes,
    is_scalar,
    matching,
    other_operand,
    per_node,
    reader_of,
    transformer,
)
from irscope.frontends.onnx.types import AttrValue
from irscope.ir.dims import Dim
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor

_GEMM_ACTIVATIONS: Final = frozenset({
    "Elu", "HardSigmoid", "LeakyRelu", "ParametricSoftplus", "Relu", "ScaledTanh", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu",
})  # fmt: skip
_DEFAULTS: Final[dict[str, dict[str, AttrValue]]] = {
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": float(np.float32(0.2)), "beta": 0.5},
    "LeakyRelu": {"alpha": float(np.float32(0.01))},
    "Selu": {"alpha": float(np.float32(1.67326319217681884765625)), "gamma": float(np.float32(1.05070102214813232421875))},
    "ThresholdedRelu": {"alpha": 1.0},
}
"""Attributes of activations that stand in no file: ONNX Runtime adds them to every node."""


def activation_attrs(node: OrtNode) -> dict[str, AttrValue]:
    """Return the attributes of an activation, with those that the file leaves out."""
    return {**_DEFAULTS.get(node.op, {}), **node.attrs}


@per_node("GemmActivationFusion")
def gemm_activation(graph: OrtGraph, gemm: OrtNode) -> bool:
    if gemm.provider != CPU or not gemm.matches("Gemm", (7, 9, 11, 13)) or not ends_in_one(graph, gemm):
        return False
    if graph.dtype(gemm.outputs[0]) is not DType.F32:
        return False
    act = reader_of(graph, gemm)
    if act is None or not act.is_standard or act.op not in _GEMM_ACTIVATIONS:
        return False
    attrs: dict[str, AttrValue] = {**gemm.attrs, "activation": act.op}
    attrs.update({f"activation_{name}": value for name, value in activation_attrs(act).items()})
    graph.fuse([gemm, act], "FusedGemm", gemm.inputs, attrs, MICROSOFT, name=graph.new_node_name(f"fused {gemm.name}"))
    return True


_LOWEST, _HIGHEST = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)


@per_node("ConvActivationFusion")
def conv_activation(graph: OrtGraph, conv: OrtNode) -> bool:
    if conv.provider != CPU or not conv.matches("Conv", (1, 11, 22)) or not ends_in_one(graph, conv):
        return False
    act = reader_of(graph, conv)
    attrs = None if act is None or graph.dtype(conv.input(0)) is not DType.F32 else _of_activation(graph, act)
    if act is None or attrs is None:
        return False
    graph.fuse([conv, act], "FusedConv", conv.inputs, {**conv.attrs, **attrs}, MICROSOFT, name=conv.name)
    return True


@per_node("ConvAddActivationFusion")
def conv_add_activation(graph: OrtGraph, node: OrtNode) -> bool:
    """A convolution adds a tensor of its result's sizes, and applies an activation."""
    if node.provider != CPU or not node.matches("Conv", (1, 11)) or graph.dtype(node.input(0)) is not DType.F32:
        return False
    add = reader_of(graph, node) if ends_in_one(graph, node) else None
    if add is None or not add.matches("Add", ADD):
        return False
    shapes = [graph.shape(name) for name in add.inputs]
    if shapes[0] is None or len(shapes[0]) != 4 or shapes[0] != shapes[1] or not all(shapes[0]):
        return False
    conv = next((maker for maker, _ in graph.input_edges(add) if _may_add(graph, maker)), None)
    if conv is None:
        return False
    act = reader_of(graph, add) if ends_in_one(graph, add) else None
    attrs = None if act is None else _of_activation(graph, act)
    operands = [*conv.inputs, other_operand(add, conv.outputs[0])]
    nodes = [conv, add] if act is None or attrs is None else [conv, add, act]
    graph.fuse(nodes, "FusedConv", operands, {**conv.attrs, **(attrs or {})}, MICROSOFT, name=conv.name)
    return True


def _may_add(graph: OrtGraph, conv: OrtNode) -> bool:
    return conv.matches("Conv", (1, 11, 22)) and len(conv.inputs) == 3 and conv.has_input(2) and graph.edge_count(conv) == 1


def _of_activation(graph: OrtGraph, act: OrtNode) -> dict[str, AttrValue] | None:
    """Return the attributes of a convolution with an activation; None where it takes no such."""
    if not act.is_standard:
        return None
    if act.op in ("LeakyRelu", "HardSigmoid"):
        given = activation_attrs(act)
        params = tuple(given[name] for name in ("alpha", "beta") if name in given)
        return {"activation": act.op, "activation_params": params}  # type: ignore[dict-item]
    if act.op == "Clip":
        limits = clip_limits(graph, act)
        return None if limits is None else {"activation": act.op, "activation_params": limits}
    return {"activation": act.op} if act.op in ("Relu", "Sigmoid", "Tanh") else None


def clip_limits(graph: OrtGraph, clip: OrtNode) -> tuple[float, float] | None:
    """Return the limits of a Clip, where they are constants."""
    if clip.version < 11:
        return float(clip.attr("min", _LOWEST)), float(clip.attr("max", _HIGHEST))
    found = [default if not clip.has_input(place) else graph.scalar(clip.input(place)) for place, default in ((1, _LOWEST), (2, _HIGHEST))]
    return None if None in found else (float(found[0] or 0), float(found[1] or 0))


@per_node("MatMulIntegerToFloatFusion")
def matmul_integer_to_float(graph: OrtGraph, mul: OrtNode) -> bool:
    """A product of 8-bit integers, scaled, and a bias."""
    if mul.provider != CPU or not mul.matches("Mul", ADD):
        return False
    cast, scale = first_parent(graph, mul, "Cast"), first_parent(graph, mul, "Mul")
    product = first_parent(graph, cast, "MatMulInteger") if cast is not None else None
    if cast is None or scale is None or product is None:
        return False
    if not ends_in_one(graph, cast) or not ends_in_one(graph, product) or not ends_in_one(graph, scale):
        return False
    nodes = [product, cast, scale, mul]
    operands = [product.input(0), product.input(1), scale.input(0), scale.input(1), product.input(2), product.input(3)]
    add = first_child(graph, mul, "Add") if ends_in_one(graph, mul) else None
    bias = next((name for name in add.inputs[::-1] if graph.constant(name) is not None and _is_row(graph.shape(name))), "") if add else ""
    if add is not None and bias:
        nodes.append(add)
        operands.append(bias)
    graph.fuse(nodes, "MatMulIntegerToFloat", operands, domain=MICROSOFT, name=product.name)
    return True


def _is_row(shape: Sequence[object] | None) -> bool:
    """Return whether all sizes but the last are 1, and that one is more."""
    return shape is not None and len(shape) > 0 and all(size == 1 for size in shape[:-1]) and isinstance(shape[-1], int) and shape[-1] > 1


@per_node("DynamicQuantizeMatMulFusion")
def dynamic_quantize_matmul(graph: OrtGraph, node: OrtNode) -> bool:
    """MatMulIntegerToFloat of what DynamicQuantizeLinear makes for it alone."""
    if node.provider != CPU or not node.matches("MatMulIntegerToFloat", (1,), MICROSOFT):
        return False
    if any(node.has_input(place) and graph.constant(node.input(place)) is None for place in (1, 3, 5, 6)):
        return False
    quantize = first_parent(graph, node, "DynamicQuantizeLinear")
    if quantize is None or not ends_in_one(graph, quantize, 3):
        return False
    operands = [quantize.input(0), node.input(1), node.input(3), node.input(5), node.input(6)]
    graph.fuse([quantize, node], "DynamicQuantizeMatMul", operands, domain=MICROSOFT, name=node.name)
    return True


_MATMULS: Final = (9, 13)
_FLAGS: Final = ("transA", "transB", "transBatchA", "transBatchB")


def _is_product(node: OrtNode) -> bool:
    return node.matches("MatMul", _MATMULS) or node.matches("FusedMatMul", (1,), MICROSOFT)


@transformer("MatmulTransposeFusion")
def matmul_transpose(graph: OrtGraph, session: Session) -> bool:
    """Transposes of a product's operands, of the two last axes or of the first and the second last, become flags."""
    changed = False
    for node in graph.order():
        for body in node.bodies.values():
            changed |= matmul_transpose(body, session)
        if _is_product(node) and all(graph.dtype(name) in FLOATS for name in node.inputs[:2]):
            changed |= _take_transposes(graph, node)
    return changed


def _take_transposes(graph: OrtGraph, node: OrtNode) -> bool:
    flags = {name: int(node.attr(name, 0)) for name in _FLAGS}
    operands = list(node.inputs[:2])
    taken: dict[int, OrtNode] = {}
    for place, (flag, batch) in enumerate((("transA", "transBatchA"), ("transB", "transBatchB"))):
        found = None if flags[batch] else _transpose_of(graph, operands[place])
        if found is None and not flags[batch]:
            found = _behind_cast(graph, operands[place])
        if found is None:
            continue
        transpose, swaps, moves_batch = found
        if moves_batch and not _same_rank(graph, node):
            continue
        taken[place] = transpose
        flags[flag] ^= swaps
        flags[batch] ^= moves_batch
    if not taken:
        return False
    attrs: dict[str, AttrValue] = {**flags, "alpha": node.attr("alpha", 1.0)}
    for place, transpose in taken.items():
        operands[place] = transpose.input(0)
    graph.fuse([node], "FusedMatMul", operands, attrs, MICROSOFT, name=graph.new_node_name(f"{node.name}/MatmulTransposeFusion/"))
    for transpose in taken.values():
        if transpose.index in graph.nodes and not graph.readers(transpose.outputs[0]):
            graph.remove_node(transpose)
    return True


def _same_rank(graph: OrtGraph, node: OrtNode) -> bool:
    left, right = graph.shape(node.input(0)), graph.shape(node.input(1))
    return left is not None and right is not None and len(left) == len(right)


def _transpose_of(graph: OrtGraph, name: str) -> tuple[OrtNode, bool, bool] | None:
    """Return the transpose that makes an operand, whether it swaps the last axes, and whether it moves the first behind the batch's."""
    node = graph.maker(name)
    if node is None or node.op != "Transpose" or graph.makes_output(node):
        return None
    perm = node.ints("perm")
    if perm is None:
        shape = graph.shape(node.input(0))
        perm = None if shape is None else tuple(reversed(range(len(shape))))
    if perm is None or len(perm) < 2 or len(perm) - 1 not in perm[-2:]:
        return None
    if len(perm) >= 3 and perm[:-2] not in (tuple(range(len(perm) - 2)), tuple(range(1, len(perm) - 1))):
        return None
    return node, perm[-2] == len(perm) - 1, len(perm) >= 3 and perm[0] == 1


def _behind_cast(graph: OrtGraph, name: str) -> tuple[OrtNode, bool, bool] | None:
    """Return the same where a cast stands between: it changes places with the transpose."""
    cast = graph.maker(name)
    if cast is None or cast.op != "Cast":
        return None
    found = _transpose_of(graph, cast.input(0))
    if found is None:
        return None
    transpose, swaps, moves_batch = found
    between = f"{name}/MatmulTransposeFusion/"
    source, type_ = transpose.input(0), graph.type_of(transpose.input(0))
    if isinstance(type_, TensorType):
        graph.types[between] = tensor(graph.dtype(name), type_.shape, type_.device)
    graph.remove_node(cast)
    graph.add_node(
        "Cast", [source], [between], cast.attrs, name=graph.new_node_name(f"{cast.name}/MatmulTransposeFusion/"), provider=cast.provider
    )
    made = graph.add_node(
        "Transpose",
        [between],
        [name],
        transpose.attrs,
        name=graph.new_node_name(f"{transpose.name}/MatmulTransposeFusion/"),
        provider=cast.provider,
    )
    if not graph.readers(transpose.outputs[0]):
        graph.remove_node(transpose)
    return made, swaps, moves_batch


@per_node("MatMulScaleFusion")
def matmul_scale(graph: OrtGraph, node: OrtNode) -> bool:
    """Products with a constant number around a matrix product become its alpha."""
    allowed = {DType.F32, DType.F64} if node.provider == CPU else FLOATS
    if not node.provider or not _is_product(node) or not has_dtypes(graph, node, allowed):
        return False
    alpha = np.float32(node.attr("alpha", 1.0))
    operands, outputs = list(node.inputs), list(node.outputs)
    scales: list[OrtNode] = []
    for made, place in sorted(graph.input_edges(node), key=lambda edge: (edge[0].index, edge[1])):
        found = _scale_of(graph, made)
        if found is None or not graph.shape(found[1]):
            continue
        alpha = alpha * found[0]
        operands[place] = found[1]
        scales.append(made)
    after: OrtNode | None = None
    if ends_in_one(graph, node):
        after = reader_of(graph, node)
        found = _scale_of(graph, after) if after is not None else None
        if after is not None and found is not None:
            alpha = alpha * found[0]
            outputs = list(after.outputs)
        else:
            after = None
    if not scales and after is None:
        return False
    attrs: dict[str, AttrValue] = {**(node.attrs if node.op == "FusedMatMul" else {}), "alpha": float(alpha)}
    name = graph.new_node_name(f"{node.name}/MatMulScaleFusion/")
    graph.fuse([node, *([after] if after is not None else [])], "FusedMatMul", operands, attrs, MICROSOFT, name=name, outputs=outputs)
    for scale in dict.fromkeys(scales):
        if not graph.makes_output(scale) and not graph.edges(scale):
            graph.remove_node(scale)
    return True


def _scale_of(graph: OrtGraph, node: OrtNode) -> tuple[np.float32, str] | None:
    """Return the number that a node multiplies with, and its other operand."""
    if node.matches("Div", ADD):
        found = _factor(graph, node.input(1), node.input(0))
        return None if found is None else (np.float32(1.0) / found, node.input(0))
    if node.matches("Mul", ADD):
        for place in (0, 1):
            found = _factor(graph, node.input(place), node.input(1 - place))
            if found is not None:
                return found, node.input(1 - place)
    return None


def _factor(graph: OrtGraph, name: str, other: str) -> np.float32 | None:
    found = graph.constant(name)
    if found is None or found.count != 1 or len(found.shape) > len(graph.shape(other) or ()):
        return None
    value = graph.scalar(name)
    return None if value is None else np.float32(value)


@per_node("MatMulNBitsFusion")
def matmul_nbits_bias(graph: OrtGraph, product: OrtNode) -> bool:
    """A bias of a product with a weight of few bits."""
    is_plain = product.matches("MatMulNBits", (1,), MICROSOFT) and not product.has_input(5)
    if not product.provider or not is_plain or not ends_in_one(graph, product):
        return False
    add = reader_of(graph, product)
    bias = other_operand(add, product.outputs[0]) if add is not None and add.matches("Add", ADD) else ""
    if add is None or add.provider != product.provider or graph.constant(bias) is None or graph.shape(bias) != (product.attr("N"),):
        return False
    operands = [*product.inputs, "", ""][:5]
    graph.fuse([product, add], "MatMulNBits", [*operands, bias], product.attrs, MICROSOFT, name=product.name)
    return True


@transformer("GatherSliceToSplitFusion")
def gather_slice_to_split(graph: OrtGraph, session: Session) -> bool:
    """Gathers and slices that cover an axis without overlap."""
    if graph.opset() < 13:
        return False
    changed = False
    names = [name for name in graph.inputs if len(graph.readers(name)) > 1]
    names += [name for name in graph.weights if name not in graph.inputs and len(graph.readers(name)) > 1]
    for node in graph.order():
        for body in node.bodies.values():
            changed |= gather_slice_to_split(body, session)
        if node.op != "Shape" and len(node.outputs) == 1 and graph.edge_count(node) > 1:
            names.append(node.outputs[0])
    for name in names:
        changed |= _split(graph, name)
    return changed


def _split(graph: OrtGraph, name: str) -> bool:
    shape = graph.shape(name)
    readers = [reader for reader in graph.readers(name) if reader.op in ("Gather", "Slice") and reader.input(0) == name]
    if shape is None or len(readers) < 2:
        return False
    axis = _axis_of(graph, readers[0], len(shape))
    if axis is None or not isinstance(shape[axis], int):
        return False
    size = shape[axis]
    assert isinstance(size, int)
    parts: dict[int, tuple[OrtNode, int, bool]] = {}
    for reader in readers:
        part = _part_of(graph, reader, len(shape), axis, size)
        if part is None or part[0] in parts:
            return False
        parts[part[0]] = (reader, part[1], part[2])
    starts = sorted(parts)
    ends = [start + parts[start][1] for start in starts]
    if starts[0] != 0 or ends[-1] != size or ends[:-1] != starts[1:]:
        return False
    provider = readers[0].provider
    outputs: list[str] = []
    squeezes: list[tuple[str, str, str, str]] = []
    for start in starts:
        reader, count, squeezed = parts[start]
        result = reader.outputs[0]
        if squeezed:
            made = graph.new_name("split_output")
            graph.types[made] = tensor(graph.dtype(name), [count if at == axis else dim for at, dim in enumerate(_dims(graph, name))])
            axes = graph.add_weight(graph.new_node_name("squeeze_axes"), np.array([axis], np.int64))
            squeezes.append((graph.new_node_name("Squeeze"), made, axes, result))
            result = made
        outputs.append(result)
    for reader in readers:
        graph.remove_node(reader)
    for label, made, axes, result in squeezes:
        graph.add_node("Squeeze", [made, axes], [result], name=label, provider=provider)
    splits = graph.add_weight(graph.new_node_name("splits"), np.array([parts[start][1] for start in starts], np.int64))
    label = graph.new_node_name(f"{readers[-1].name}/GatherSliceToSplitFusion")
    graph.add_node("Split", [name, splits], outputs, {"axis": axis}, name=label, provider=provider)
    return True


def _dims(graph: OrtGraph, name: str) -> Sequence[Dim]:
    type_ = graph.type_of(name)
    assert isinstance(type_, TensorType) and type_.shape is not None
    return type_.shape


def _integer(graph: OrtGraph, name: str) -> int | None:
    if not name or not is_scalar(graph, name) or graph.dtype(name) is not DType.I64:
        return None
    found = graph.scalar(name)
    return found if isinstance(found, int) else None


def _axis_of(graph: OrtGraph, node: OrtNode, rank: int) -> int | None:
    axis = int(node.attr("axis", 0)) if node.op == "Gather" else _integer(graph, node.input(3))
    if axis is None:
        return None
    axis = axis + rank if axis < 0 else axis
    return axis if 0 <= axis < rank else None


def _part_of(graph: OrtGraph, node: OrtNode, rank: int, axis: int, size: int) -> tuple[int, int, bool] | None:
    """Return the start and the length of the part of the axis, and whether the axis is removed."""
    if not node.matches(node.op, (13,)) or _axis_of(graph, node, rank) != axis:
        return None
    start = _integer(graph, node.input(1))
    if start is None:
        return None
    start = start + size if start < 0 else start
    if node.op == "Gather":
        return (start, 1, graph.shape(node.input(1)) == ()) if 0 <= start < size else None
    end = _integer(graph, node.input(2))
    if end is None or (len(node.inputs) >= 5 and _integer(graph, node.input(4)) != 1):
        return None
    end = end + size if end < 0 else end
    start, end = max(0, min(start, size)), max(0, min(end, size))
    return (start, end - start, False) if start < end else None


@per_node("GatherToSliceFusion")
def gather_to_slice(graph: OrtGraph, node: OrtNode) -> bool:
    """A Gather of a Range."""
    if not node.matches("Range", (1, 11)) or graph.edge_count(node) != 1:
        return False
    gather = matching(graph, reader_of(graph, node), "Gather", (1, 11, 13))
    if gather is None or gather.input(1) != node.outputs[0]:
        return False
    made = [graph.new_name(f"unsqueeze_output_{place}") for place in range(3)]
    for name in made:
        graph.types[name] = tensor(graph.dtype(node.outputs[0]), (1,))
    operands, axis = list(node.inputs), int(gather.attr("axis", 0))
    source, outputs, provider = gather.input(0), list(gather.outputs), node.provider
    graph.remove_node(node)
    graph.remove_node(gather)
    axes = ""
    if graph.opset() >= 13:
        axes = graph.add_weight(graph.new_node_name("UnsqueezeAxesInitializer"), np.array([0], np.int64))
    for place, operand in enumerate(operands):
        label = graph.new_node_name(f"Unsqueeze_{place}")
        attrs: dict[str, AttrValue] = {} if axes else {"axes": (0,)}
        graph.add_node("Unsqueeze", [operand, axes] if axes else [operand], [made[place]], attrs, name=label, provider=provider)
    index = np.int64 if graph.dtype(operands[0]) is DType.I64 else np.int32
    along = graph.add_weight(graph.new_node_name("SliceAxesInitializer"), np.array([axis], index))
    graph.add_node("Slice", [source, made[0], made[1], along, made[2]], outputs, name=graph.new_node_name("Slice"), provider=provider)
    return True


@per_node("BiasSoftmaxFusion")
def bias_softmax(graph: OrtGraph, add: OrtNode) -> bool:
    """On CUDA: a mask that is added before a Softmax, where it is repeated over whole axes outside or between."""
    if add.provider != CUDA or not add.matches("Add", ADD) or not ends_in_one(graph, add):
        return False
    softmax = matching(graph, reader_of(graph, add), "Softmax", (1, 11, 13))
    if softmax is None or not has_dtypes(graph, add, FLOATS):
        return False
    left, right = graph.static_shape(add.input(0)), graph.static_shape(add.input(1))
    if left is None or right is None:
        return False
    data, mask = (0, 1) if len(left) >= len(right) and all(a >= b for a, b in zip(left[::-1], right[::-1], strict=False)) else (1, 0)
    whole, part = (left, right) if data == 0 else (right, left)
    axis = int(softmax.attr("axis", -1 if softmax.version >= 13 else 1))
    axis = axis + len(whole) if axis < 0 else axis
    if softmax.version >= 13 and axis != len(whole) - 1:
        return False
    part = (1,) * (len(whole) - len(part)) + part
    if part[axis:] != whole[axis:]:
        return False
    differs = [at for at in range(axis) if part[at] != whole[at]]
    if any(part[at] != 1 for at in differs):
        return False
    outer = differs == list(range(len(differs)))
    inner = bool(differs) and differs == list(range(differs[0], axis))
    if not outer and not inner:
        return False
    attrs: dict[str, AttrValue] = {"axis": axis, "is_inner_broadcast": int(inner)}
    name = graph.new_node_name("BiasSoftmax")
    graph.fuse([add, softmax], "BiasSoftmax", [add.input(data), add.input(mask)], attrs, MICROSOFT, name=name)
    return True

"""Fusions of activations and normalizations: those of level 2, and those of level 1 that make operators of newer ONNX.

Each follows the transformer of the name it is registered with, in onnxruntime/core/optimizer of version 1.31.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from irscope.frontends.onnx.model import STANDARD
from irscope.frontends.onnx.optimizer.graph import (
    ADD,
    CAST,
    CPU,
    CUDA,
    FLOATS,
    HALF_OR_MORE,
    MICROSOFT,
    POW,
    OrtGraph,
    OrtNode,
    ends_in_one,
    find_path,
    first_child,
    first_parent,
    has_dtypes,
    is_number,
    is_scalar,
    matching,
    other_operand,
    per_node,
    reader_of,
    readers_by_number,
)
from irscope.frontends.onnx.types import AttrValue
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor

_ROOTS_OF_TWO: Final = (1.4142099618911743, 1.4142135623730951)
"""The first is what some BERT models have."""
_GELU_IN_ONNX: Final = 20
"""Operator set with Gelu: from it on level 1 fuses, before it level 2."""


@per_node("GeluFusionL1")
def gelu_of_onnx(graph: OrtGraph, node: OrtNode) -> bool:
    return graph.opset() >= _GELU_IN_ONNX and _gelu(graph, node, STANDARD)


@per_node("GeluFusionL2")
def gelu_of_microsoft(graph: OrtGraph, node: OrtNode) -> bool:
    return graph.opset() < _GELU_IN_ONNX and _gelu(graph, node, MICROSOFT)


def _gelu(graph: OrtGraph, div: OrtNode, domain: str) -> bool:
    """x * 0.5 * (1 + erf(x / sqrt(2))), where the half comes before or after the product with the error function."""
    if not div.matches("Div", ADD) or not _links(graph, div) or not any(is_number(graph, div.input(1), root) for root in _ROOTS_OF_TWO):
        return False
    erf = matching(graph, reader_of(graph, div), "Erf", (9, 13), _links)
    if erf is None:
        return False
    add = matching(graph, reader_of(graph, erf), "Add", ADD, _links)
    if add is None:
        return False
    if not is_number(graph, other_operand(add, erf.outputs[0]), 1.0):
        return False
    mul = matching(graph, reader_of(graph, add), "Mul", ADD)
    if mul is None or not has_dtypes(graph, mul, HALF_OR_MORE):
        return False
    root = div.input(0)
    half = first_parent(graph, mul, "Mul")
    if half is not None:
        if not half.matches("Mul", ADD) or not _links(graph, half) or root not in half.inputs:
            return False
        nodes = [div, erf, add, half, mul]
    else:
        if not ends_in_one(graph, mul) or root not in mul.inputs:
            return False
        half = matching(graph, reader_of(graph, mul), "Mul", ADD)
        if half is None:
            return False
        nodes = [div, erf, add, mul, half]
    if not is_number(graph, other_operand(half, root if nodes[-1] is mul else mul.outputs[0]), 0.5):
        return False
    attrs: dict[str, AttrValue] = {"approximate": "none"} if domain == STANDARD else {}
    graph.fuse(nodes, "Gelu", [root], attrs, domain, name=graph.new_node_name("Gelu"))
    return True


def _links(graph: OrtGraph, node: OrtNode) -> bool:
    """Return whether it has one reader in the graph, and operands of the types that are fused."""
    return ends_in_one(graph, node) and has_dtypes(graph, node, HALF_OR_MORE)


@per_node("BiasGeluFusion")
def bias_gelu(graph: OrtGraph, add: OrtNode) -> bool:
    if not add.matches("Add", ADD) or not ends_in_one(graph, add):
        return False
    left, right = graph.shape(add.input(0)), graph.shape(add.input(1))
    if not left or not right or left[-1] is None or left[-1] != right[-1]:
        return False
    if len(left) == 1:
        operands = [add.input(1), add.input(0)]
    elif len(right) == 1:
        operands = [add.input(0), add.input(1)]
    else:
        return False
    gelu = reader_of(graph, add)
    if gelu is None or gelu.op not in ("Gelu", "FastGelu"):
        return False
    is_fast = gelu.op == "FastGelu" or (gelu.is_standard and gelu.attr("approximate", "none") == "tanh")
    if (gelu.domain != MICROSOFT and gelu.op != "Gelu") or (gelu.op == "FastGelu" and len(gelu.inputs) > 1):
        return False
    op = "FastGelu" if is_fast else "BiasGelu"
    graph.fuse([add, gelu], op, operands, domain=MICROSOFT, name=graph.new_node_name(op))
    return True


_CUBE: Final = 0.044715
_ROOT_OF_TWO_OVER_PI: Final = 0.7978845834732056


@per_node("FastGeluFusion")
def fast_gelu(graph: OrtGraph, node: OrtNode) -> bool:
    """x * 0.5 * (1 + tanh(...)), where the polynomial is written in one of two ways."""
    found = _first_polynomial(graph, node) or _second_polynomial(graph, node)
    if found is None:
        return False
    nodes, root = found
    tanh_input = nodes[3] if len(nodes) > 4 else nodes[-1]
    tanh = matching(graph, reader_of(graph, tanh_input), "Tanh", (6, 13), _is_fast)
    if tanh is None:
        return False
    add = matching(graph, reader_of(graph, tanh), "Add", ADD, _is_fast)
    if add is None:
        return False
    if not is_number(graph, other_operand(add, tanh.outputs[0]), 1.0):
        return False
    last = matching(graph, reader_of(graph, add), "Mul", ADD, _is_fast_end)
    if last is None:
        return False
    half = matching(graph, graph.maker(other_operand(last, add.outputs[0])), "Mul", ADD, _is_fast_end)
    if half is None:
        return False
    place = next((place for place in (0, 1) if is_number(graph, half.input(place), 0.5)), None)
    if place is None or half.input(1 - place) != root:
        return False
    # What it makes gets a name of its own, which fusing replaces by that of the last node.
    graph.new_name("fast_gelu_output")
    graph.fuse([*nodes, tanh, add, half, last], "FastGelu", [root], domain=MICROSOFT, name=graph.new_node_name("GPT2Gelu"))
    return True


def _is_fast(graph: OrtGraph, node: OrtNode) -> bool:
    return _is_fast_end(graph, node) and graph.edge_count(node) == 1


def _is_fast_end(graph: OrtGraph, node: OrtNode) -> bool:
    """The same of a product, that may have several readers."""
    allowed = {DType.F32} if node.provider == CPU else {DType.F32, DType.F16, DType.BF16}
    return has_dtypes(graph, node, allowed) and not graph.makes_output(node)


def _first_polynomial(graph: OrtGraph, first: OrtNode) -> tuple[list[OrtNode], str] | None:
    """k * x * (1 + c * x * x)."""
    if not first.matches("Mul", ADD) or graph.edge_count(first) != 1 or not _is_fast(graph, first):
        return None
    place = next((place for place in (0, 1) if is_number(graph, first.input(place), _CUBE)), None)
    if place is None:
        return None
    root = first.input(1 - place)
    square = matching(graph, reader_of(graph, first), "Mul", ADD, _is_fast)
    if square is None or other_operand(square, first.outputs[0]) != root:
        return None
    add = matching(graph, reader_of(graph, square), "Add", ADD, _is_fast)
    if add is None:
        return None
    if not is_number(graph, other_operand(add, square.outputs[0]), 1.0):
        return None
    product = matching(graph, reader_of(graph, add), "Mul", ADD, _is_fast)
    if product is None:
        return None
    scaled = graph.maker(other_operand(product, add.outputs[0]))
    if scaled is None or not _is_fast(graph, scaled) or len(scaled.inputs) < 2:
        return None
    place = next((place for place in (0, 1) if is_number(graph, scaled.input(place), _ROOT_OF_TWO_OVER_PI)), None)
    if place is None or scaled.input(1 - place) != root:
        return None
    return [first, square, add, product, scaled], root


def _second_polynomial(graph: OrtGraph, power: OrtNode) -> tuple[list[OrtNode], str] | None:
    """k * (x + c * x ** 3)."""
    if not power.matches("Pow", POW) or graph.edge_count(power) != 1 or not _is_fast(graph, power):
        return None
    if not is_number(graph, power.input(1), 3.0):
        return None
    root = power.input(0)
    cube = matching(graph, reader_of(graph, power), "Mul", ADD, _is_fast)
    if cube is None:
        return None
    if not is_number(graph, other_operand(cube, power.outputs[0]), 0.044714998453855515):
        return None
    add = matching(graph, reader_of(graph, cube), "Add", ADD, _is_fast)
    if add is None or other_operand(add, cube.outputs[0]) != root:
        return None
    if first_parent(graph, power, "Cast") is not None:
        return None
    scaled = matching(graph, reader_of(graph, add), "Mul", ADD, _is_fast)
    if scaled is None:
        return None
    if not is_number(graph, other_operand(scaled, add.outputs[0]), _ROOT_OF_TWO_OVER_PI):
        return None
    return [power, cube, add, scaled], root


@per_node("QuickGeluFusion")
def quick_gelu(graph: OrtGraph, node: OrtNode) -> bool:
    """x * sigmoid(alpha * x), or without alpha."""
    nodes: list[OrtNode] = []
    alpha, root, sigmoid = 1.0, "", node
    if node.matches("Mul", ADD) and graph.edge_count(node) == 1 and not graph.makes_output(node):
        for place in (0, 1):
            found = graph.scalar(node.input(place)) if is_scalar(graph, node.input(place)) else None
            if isinstance(found, float):
                alpha, root = found, node.input(1 - place)
                nodes.append(node)
                after = reader_of(graph, node)
                assert after is not None
                sigmoid = after
                break
    if not sigmoid.matches("Sigmoid", (6, 13)) or not ends_in_one(graph, sigmoid):
        return False
    nodes.append(sigmoid)
    root = root or sigmoid.input(0)
    mul = matching(graph, reader_of(graph, sigmoid), "Mul", ADD)
    if mul is None or other_operand(mul, sigmoid.outputs[0]) != root:
        return False
    name = graph.new_node_name(f"{mul.name}/QuickGeluFusion/")
    graph.fuse([*nodes, mul], "QuickGelu", [root], {"alpha": alpha}, MICROSOFT, name=name)
    return True


_LAYER_NORM_IN_ONNX: Final = 17
"""Operator set with LayerNormalization: from it on level 1 fuses, before it level 2."""
_EPSILON: Final = float(np.float32(1e-5))
_MEANS: Final = (1, 11, 13, 18)


@per_node("LayerNormFusionL1")
def layer_norm_of_onnx(graph: OrtGraph, node: OrtNode) -> bool:
    return graph.opset() >= _LAYER_NORM_IN_ONNX and _layer_norm(graph, node)


@per_node("LayerNormFusionL2")
def layer_norm_of_microsoft(graph: OrtGraph, node: OrtNode) -> bool:
    return graph.opset() < _LAYER_NORM_IN_ONNX and _layer_norm(graph, node)


def _layer_norm(graph: OrtGraph, mean: OrtNode) -> bool:
    """scale * (x - mean) / sqrt(var + epsilon) + bias, with casts where exporters put them."""
    if not mean.matches("ReduceMean", _MEANS) or graph.makes_output(mean) or not has_dtypes(graph, mean, FLOATS, 1):
        return False
    subs = readers_by_number(graph, mean)
    if len(subs) not in (1, 2) or any(sub.op != "Sub" for sub in subs):
        return False
    if not all(sub.matches("Sub", ADD) and has_dtypes(graph, sub, FLOATS) for sub in subs):
        return False
    root = mean.input(0)
    if any(next((name for name in sub.inputs if name != mean.outputs[0]), "") != root for sub in subs):
        return False
    nodes = [mean, subs[0]]
    before = graph.maker(root)
    if before is not None and before.matches("Cast", CAST) and ends_in_one(graph, before, len(subs) + 1):
        nodes.insert(0, before)
    else:
        before = None
    tail = _normalized(graph, mean, subs)
    if tail is None:
        return False
    power_mean, between, mul, add, epsilon = tail
    axes = _last_axes(graph, mean, root)
    if axes is None or len(axes) != 1 or axes != _last_axes(graph, power_mean, power_mean.input(0), root):
        return False
    scale, bias = _vector(graph, mul), _vector(graph, add)
    if not scale or not bias or _sized(graph, scale) != _sized(graph, bias):
        return False
    source = before.input(0) if before is not None else root
    if mean.provider == CPU and graph.dtype(source) is DType.F16:
        return False
    attrs: dict[str, AttrValue] = {"axis": axes[0], "epsilon": epsilon}
    if DType.F64 in (graph.dtype(source), graph.dtype(scale)):
        attrs["stash_type"] = 11
    name = graph.new_node_name(f"{mul.name}/LayerNormFusion/")
    graph.fuse([*nodes, *subs[1:], *between, mul, add], "LayerNormalization", [source, scale, bias], attrs, name=name)
    return True


def _normalized(graph: OrtGraph, mean: OrtNode, subs: Sequence[OrtNode]) -> tuple[OrtNode, list[OrtNode], OrtNode, OrtNode, float] | None:
    """Return what follows the difference from the mean: the mean of its square, all nodes up to the scale, scale, bias and epsilon."""
    sub = subs[0]
    between: list[OrtNode] = []
    cast = None
    if len(subs) == 1 and graph.edge_count(sub) == 1:
        after = reader_of(graph, sub)
        if after is not None and after.matches("Cast", CAST) and ends_in_one(graph, after, 2) and has_dtypes(graph, after, FLOATS):
            cast = after
            between.append(cast)
    if not ends_in_one(graph, sub, 2 if len(subs) == 1 and cast is None else 1):
        return None
    div = first_child(graph, cast or sub, "Div")
    if div is None and len(subs) == 2:
        div = first_child(graph, subs[1], "Div")
    if div is None or not div.matches("Div", ADD) or not _is_link(graph, div):
        return None
    variance = _variance(graph, div, subs, cast)
    if variance is None:
        return None
    between += [div, *variance]
    add, squares = variance[1], variance[2]
    mul = reader_of(graph, div)
    if mul is not None and mul.matches("Cast", CAST) and ends_in_one(graph, mul):
        between.append(mul)
        mul = reader_of(graph, mul)
    if mul is None or not mul.matches("Mul", ADD) or not _is_link(graph, mul):
        return None
    last = matching(graph, reader_of(graph, mul), "Add", ADD)
    if last is None or not has_dtypes(graph, last, FLOATS):
        return None
    return squares, between, mul, last, _epsilon(graph, add)


def _variance(graph: OrtGraph, div: OrtNode, subs: Sequence[OrtNode], cast: OrtNode | None) -> list[OrtNode] | None:
    """From the square root back to the square of the difference: root, sum with epsilon, mean, power, and a cast in front of that."""
    root = matching(graph, first_parent(graph, div, "Sqrt"), "Sqrt", (6, 13), _is_link)
    if root is None:
        return None
    add = matching(graph, graph.maker(root.input(0)), "Add", ADD, _is_link)
    if add is None:
        return None
    squares = matching(graph, first_parent(graph, add, "ReduceMean"), "ReduceMean", _MEANS, _is_mean_link)
    if squares is None:
        return None
    power = matching(graph, next((made for made, _ in graph.input_edges(squares)), None), "Pow", POW, _is_link)
    if power is None:
        return None
    found = [root, add, squares, power]
    other = first_parent(graph, power, "Cast")
    if other is not None and other is not cast:
        if not other.matches("Cast", CAST) or not ends_in_one(graph, other):
            return None
        found.append(other)
    elif other is None and first_parent(graph, power, "Sub") not in subs:
        return None
    return found


def _is_link(graph: OrtGraph, node: OrtNode) -> bool:
    return ends_in_one(graph, node) and has_dtypes(graph, node, FLOATS)


def _is_mean_link(graph: OrtGraph, mean: OrtNode) -> bool:
    """The same of a reduction, whose second operand are its axes."""
    return ends_in_one(graph, mean) and has_dtypes(graph, mean, FLOATS, 1)


def _epsilon(graph: OrtGraph, add: OrtNode) -> float:
    found = graph.constant(add.input(1))
    array = found.values() if found is not None and found.type.dtype is DType.F32 else None
    return _EPSILON if array is None or not array.size else float(array.reshape(-1)[0])


def _last_axes(graph: OrtGraph, mean: OrtNode, name: str, ranked: str = "") -> list[int] | None:
    """Return the axes of a mean, where they are the last ones, counted from the end if the rank is known."""
    found = mean.ints("axes")
    if found is None and len(mean.inputs) == 2:
        array = graph.values(mean.input(1))
        found = None if array is None else tuple(int(axis) for axis in array.reshape(-1))
    if not found:
        return None
    axes = sorted(found)
    if axes[-1] > 0:
        shape = graph.shape(ranked or name)
        if shape is None:
            return None
        axes = sorted(axis - len(shape) if axis >= 0 else axis for axis in axes)
    return axes if axes[-1] == -1 and axes == list(range(axes[0], 0)) else None


def _vector(graph: OrtGraph, node: OrtNode) -> str:
    """Return the last operand with one axis."""
    return next((name for name in reversed(node.inputs) if (shape := graph.shape(name)) is not None and len(shape) == 1), "")


def _sized(graph: OrtGraph, name: str) -> int:
    """Return the size of a vector; 0 where it has no number, as a protocol buffer says."""
    shape = graph.shape(name)
    return shape[0] if shape and isinstance(shape[0], int) else 0


@per_node("SimplifiedLayerNormFusion")
def simplified_layer_norm(graph: OrtGraph, power: OrtNode) -> bool:
    """scale * x / sqrt(mean(x ** 2) + epsilon)."""
    if not power.matches("Pow", POW) or not _is_link(graph, power):
        return False
    mean = matching(graph, first_child(graph, power, "ReduceMean"), "ReduceMean", _MEANS, _is_mean_link)
    if mean is None:
        return False
    add = matching(graph, first_child(graph, mean, "Add"), "Add", ADD, _is_link)
    if add is None:
        return False
    root = matching(graph, first_child(graph, add, "Sqrt"), "Sqrt", (6, 13), _is_link)
    if root is None:
        return False
    div = matching(graph, first_child(graph, root, "Div"), "Div", ADD, _is_link)
    if div is None or div.input(0) != power.input(0):
        return False
    nodes = [power, mean, add, root, div]
    source = power.input(0)
    on_gpu = power.provider == CUDA
    before = graph.maker(source)
    if on_gpu and before is not None and before.matches("Cast", CAST) and ends_in_one(graph, before, 2):
        nodes.insert(0, before)
        source = before.input(0)
    mul = reader_of(graph, div)
    if mul is not None and mul.matches("Cast", CAST) and ends_in_one(graph, mul):
        if not on_gpu:
            return False
        nodes.append(mul)
        mul = reader_of(graph, mul)
    if mul is None or not mul.matches("Mul", ADD) or not has_dtypes(graph, mul, FLOATS):
        return False
    axes = _last_axes(graph, mean, mean.input(0), power.input(0))
    scale = _vector(graph, mul)
    if axes is None or len(axes) != 1 or not scale or (power.provider == CPU and graph.dtype(source) is DType.F16):
        return False
    attrs: dict[str, AttrValue] = {"axis": axes[0], "epsilon": _epsilon(graph, add)}
    if DType.F64 in (graph.dtype(source), graph.dtype(scale)):
        attrs["stash_type"] = 11
    name = graph.new_node_name(f"{mul.name}/SimplifiedLayerNormFusion/")
    graph.fuse([*nodes, mul], "SimplifiedLayerNormalization", [source, scale], attrs, name=name)
    return True


_SKIPPED: Final = frozenset({DType.F16, DType.F32, DType.BF16})


@per_node("SkipLayerNormFusion")
def skip_layer_norm(graph: OrtGraph, norm: OrtNode) -> bool:
    """LayerNormalization of a sum, and a bias added to one side of the sum."""
    if not norm.matches("LayerNormalization", (1, 17)) or not has_dtypes(graph, norm, _SKIPPED):
        return False
    add = matching(graph, graph.input_node(norm, 0), "Add", ADD, _is_skip)
    # A sum in half precision has no kernel on a CPU, the norm has one.
    if add is None or add.provider != norm.provider:
        return False
    operands = [add.input(0), add.input(1), norm.input(1), norm.input(2)]
    nodes = [add, norm]
    for place in (0, 1):
        bias = graph.input_node(add, place)
        if bias is not None and bias.matches("Add", ADD) and bias.provider == norm.provider and _adds_vector(graph, bias):
            operands[place] = bias.input(0)
            operands.append(bias.input(1))
            nodes.insert(0, bias)
            break
    epsilon = norm.attr("epsilon", _EPSILON if norm.version == _LAYER_NORM_IN_ONNX else 1e-12)
    made = graph.dtype(norm.outputs[0])
    operands = [_as_float(graph, name, made, norm.provider) for name in operands]
    name = graph.new_node_name("SkipLayerNormalization")
    graph.fuse(nodes, "SkipLayerNormalization", operands, {"epsilon": epsilon}, MICROSOFT, name=name)
    return True


def _is_skip(graph: OrtGraph, add: OrtNode) -> bool:
    if not has_dtypes(graph, add, _SKIPPED) or not ends_in_one(graph, add):
        return False
    left, right = graph.shape(add.input(0)), graph.shape(add.input(1))
    if left is None or right is None or len(left) != 3 or len(right) != 3:
        return False
    return all(a is not None and a == b for a, b in zip(left, right, strict=True))


def _adds_vector(graph: OrtGraph, add: OrtNode) -> bool:
    if not has_dtypes(graph, add, _SKIPPED) or not ends_in_one(graph, add) or graph.constant(add.input(1)) is None:
        return False
    left, right = graph.shape(add.input(0)), graph.shape(add.input(1))
    return (
        left is not None and right is not None and len(left) == 3 and len(right) == 1 and isinstance(left[2], int) and left[2] == right[0]
    )


def _as_float(graph: OrtGraph, name: str, wanted: DType, provider: str) -> str:
    """Return the operand, cast to single precision where the result is in it."""
    if not name or wanted is not DType.F32 or graph.dtype(name) is DType.F32:
        return name
    cast = graph.new_name(f"{name}_Float")
    type_ = graph.type_of(name)
    if isinstance(type_, TensorType):
        graph.types[cast] = tensor(DType.F32, type_.shape, type_.device)
    graph.add_node("Cast", [name], [cast], {"to": 1}, name=graph.new_node_name(f"{name}_Cast"), provider=provider)
    return cast


@per_node("BiasSkipLayerNormFusion")
def bias_skip_layer_norm(graph: OrtGraph, norm: OrtNode) -> bool:
    """The bias of a product before SkipLayerNormalization."""
    if not norm.matches("SkipLayerNormalization", (1,), MICROSOFT) or len(norm.inputs) != 4:
        return False
    hidden = _sized(graph, norm.input(2)) or _sized(graph, norm.input(3))
    for side in (0, 1):
        for product in (0, 1):
            plain = [(side, "Add", ADD), (product, "MatMul", (1, 9, 13))]
            casts = [(side, "Add", ADD), (product, "Cast", (1, 6, 9, 13, 15)), (0, "MatMul", (1, 9, 13))]
            found = find_path(graph, norm, plain) or find_path(graph, norm, casts)
            if found is None or not ends_in_one(graph, found[0]):
                continue
            add = found[0]
            if add.provider != norm.provider:
                continue
            bias = add.input(1 - product)
            shape = graph.static_shape(bias)
            if graph.constant(bias) is None or shape is None or len(shape) != 1:
                continue
            whole = graph.shape(add.input(product))
            size = hidden or (whole[-1] if whole else 0)
            if size != shape[0]:
                continue
            operands = [*norm.inputs, bias]
            operands[side] = add.input(product)
            attrs, outputs = dict(norm.attrs), list(norm.outputs)
            graph.remove_node(add)
            graph.remove_node(norm)
            name = graph.new_node_name("SkipLayerNormalization")
            graph.add_node("SkipLayerNormalization", operands, outputs, attrs, MICROSOFT, name, norm.provider)
            return True
    return False

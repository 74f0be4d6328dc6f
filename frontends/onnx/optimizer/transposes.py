"""The transpose optimizer: pushes Transpose nodes down through others where that is likely to remove some of them.

It goes through the nodes once in topological order. A node that reads a transposed value reads the value itself instead, and its results
are transposed, if the number of axes that are transposed in front of it gets smaller. Constants are transposed for free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from irscope.frontends.onnx.optimizer.graph import CPU, MICROSOFT, OrtGraph, OrtNode, Session, Weight, transformer
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor

_OPSETS: Final = range(7, 29)
_UNKNOWN_RANK: Final = 5
"""Number of axes that a value of unknown rank counts with."""

Perm: TypeAlias = tuple[int, ...]


@immutable(slots=False)
class _Push:
    """A Transpose that is to be pushed through the node that reads it."""

    graph: OrtGraph
    transpose: OrtNode
    node: OrtNode
    perm: Perm
    places: Sequence[int]

    @property
    def inverse(self) -> Perm:
        return inverted(self.perm)


_Handle: TypeAlias = Callable[[_Push], bool]
_Places: TypeAlias = Callable[[OrtGraph, OrtNode], Sequence[int]]


@immutable(slots=False)
class _Handler:
    places: _Places
    """Operands that may be transposed."""
    handle: _Handle
    transposes_outputs: bool = True


def inverted(perm: Sequence[int]) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def composed(first: Sequence[int], second: Sequence[int]) -> Perm:
    return tuple(first[place] for place in second)


def _perm(node: OrtNode) -> Perm | None:
    """Return the permutation of a Transpose that says it."""
    found = node.ints("perm")
    return found if found is not None and sorted(found) == list(range(len(found))) else None


def _permuted(type_: Type, perm: Sequence[int]) -> Type:
    if not isinstance(type_, TensorType) or type_.shape is None or len(type_.shape) != len(perm):
        return type_
    return tensor(type_.dtype, tuple(type_.shape[place] for place in perm))


def _axes(axes: Sequence[int], rank: int) -> list[int] | None:
    """Axes counted from the front; None where they are no axes of this rank."""
    found = [axis + rank if axis < 0 else axis for axis in axes]
    return found if len(set(found)) == len(found) and all(0 <= axis < rank for axis in found) else None


# -- the graph ----------------------------------------------------------------------------------------------------------


def _is_comprehensive(graph: OrtGraph, name: str) -> bool:
    """Return whether all that read a value are operands of nodes: it is not the graph's result, and no graph inside reads it."""
    return not graph.is_output(name) and all(name not in reader.captured for reader in graph.readers(name))


def _local_constant(graph: OrtGraph, name: str) -> Weight | None:
    return graph.constant(name) if name in graph.weights else None


def _add(graph: OrtGraph, like: OrtNode, op: str, inputs: Sequence[str], attrs: dict[str, object], type_: Type) -> OrtNode:
    """A new node with one result."""
    name = graph.new_node_name(op)
    result = f"{name}_out0"
    graph.types[result] = type_
    return graph.add_node(op, inputs, [result], attrs, name=name, provider=like.provider)  # type: ignore[arg-type]


def _replace_all(graph: OrtGraph, old: str, new: str) -> None:
    for reader in graph.readers(old):
        graph.set_inputs(reader, [new if name == old else name for name in reader.inputs])


def _move_output(graph: OrtGraph, source: OrtNode, place: int, target: OrtNode) -> None:
    """Let the target make the source's result, under its name; the source makes a new one."""
    name = source.outputs[place]
    fresh = graph.new_name(source.name)
    graph.set_outputs(source, [fresh if at == place else other for at, other in enumerate(source.outputs)])
    graph.set_outputs(target, [name])
    graph.types[fresh] = graph.type_of(name)


def _transposed_weight(weight: Weight, perm: Sequence[int]) -> Weight:
    array = weight.values()
    shape = tuple(weight.shape[place] for place in perm)
    return Weight(tensor(weight.dtype, shape), array=None if array is None else array.transpose(perm))


def transpose_input(graph: OrtGraph, node: OrtNode, place: int, perm: Perm) -> None:
    """Make an operand a transposed one: by transposing a constant, by taking out a Transpose that it undoes, or by a new one."""
    name = node.input(place)
    constant = _local_constant(graph, name)
    graph.set_input(node, place, "")
    if constant is not None and _is_comprehensive(graph, name):
        if constant.count == 1:
            graph.set_input(node, place, name)
        elif constant.shape == (len(perm),):
            graph.set_input(node, place, _permuted_constant(graph, constant, perm))
        else:
            if graph.readers(name):
                undo = _add(graph, node, "Transpose", [name], {"perm": inverted(perm)}, constant.type)
                for reader in graph.readers(name):
                    if reader is not undo:
                        graph.set_inputs(reader, [undo.outputs[0] if given == name else given for given in reader.inputs])
            graph.weights[name] = _transposed_weight(constant, perm)
            graph.types[name] = graph.weights[name].type
            graph.set_input(node, place, name)
        return
    made = graph.maker(name)
    earlier = _perm(made) if made is not None and made.matches("Transpose") else None
    if made is not None and earlier is not None and len(earlier) == len(perm):
        if earlier == inverted(perm):
            graph.set_input(node, place, made.input(0))
        else:
            type_ = _permuted(graph.type_of(name), perm)
            both = _add(graph, node, "Transpose", [made.input(0)], {"perm": composed(earlier, perm)}, type_)
            graph.set_input(node, place, both.outputs[0])
        _remove_unread(graph, made)
        return
    for reader in graph.readers(name):
        if reader.matches("Transpose") and _perm(reader) == perm:
            graph.set_input(node, place, reader.outputs[0])
            return
    new = _add(graph, node, "Transpose", [name], {"perm": perm}, _permuted(graph.type_of(name), perm))
    graph.set_input(node, place, new.outputs[0])


def _remove_unread(graph: OrtGraph, node: OrtNode) -> None:
    if not graph.readers(node.outputs[0]) and not graph.is_output(node.outputs[0]):
        graph.remove_node(node)


def _permuted_constant(graph: OrtGraph, constant: Weight, order: Sequence[int]) -> str:
    array = constant.values()
    return graph.add_weight(graph.new_name("const_transpose_optimizer"), None if array is None else array[list(order)], constant.type)


def transpose_output(graph: OrtGraph, node: OrtNode, place: int, perm: Perm) -> str:
    """Put a Transpose behind a result, which keeps its name there."""
    name = node.outputs[place]
    type_ = graph.type_of(name)
    behind = _add(graph, node, "Transpose", [""], {"perm": perm}, type_)
    _move_output(graph, node, place, behind)
    graph.types[node.outputs[place]] = _permuted(type_, inverted(perm))
    graph.set_input(behind, 0, node.outputs[place])
    return name


def _transpose_outputs(push: _Push, perm: Perm) -> None:
    if perm != tuple(range(len(perm))):
        for place, name in enumerate(push.node.outputs):
            if name:
                transpose_output(push.graph, push.node, place, perm)


def _transpose_inputs(push: _Push) -> None:
    for place in push.places:
        transpose_input(push.graph, push.node, place, push.inverse)


def _ints(graph: OrtGraph, name: str) -> list[int] | None:
    array = graph.values(name)
    return None if array is None else [int(value) for value in array.reshape(-1)]


def _axes_of(graph: OrtGraph, node: OrtNode, since: int) -> list[int] | None:
    """Return the axes of a node, an attribute before this operator set and an operand from then on."""
    if graph.opset() < since:
        found = node.ints("axes")
        return None if found is None else list(found)
    return _ints(graph, node.input(1))


def _constant(graph: OrtGraph, values: Sequence[int], dtype: str = "<i8") -> str:
    return graph.add_weight(graph.new_name("const_transpose_optimizer"), np.array(values, dtype))


# -- cost -----------------------------------------------------------------------------------------------------------------


def _rank(graph: OrtGraph, name: str) -> int:
    shape = graph.shape(name)
    return _UNKNOWN_RANK if shape is None else sum(size != 1 for size in shape)


def _value_cost(graph: OrtGraph, name: str, perm: Perm) -> int:
    """Return what transposing a value costs that is likely transposed by `perm` already; negative where that takes a Transpose out."""
    made = graph.maker(name)
    if made is None:
        return 0 if graph.constant(name) is not None else _rank(graph, name)
    if made.op == "DequantizeLinear" and _local_constant(graph, made.input(0)) is not None and len(graph.readers(name)) == 1:
        return 0
    if made.matches("Transpose") and (earlier := _perm(made)) is not None:
        return -_rank(graph, name) if earlier == perm and _is_likely_removed(graph, made) else 0
    return _rank(graph, name)


def _is_likely_removed(graph: OrtGraph, transpose: OrtNode) -> bool:
    name = transpose.outputs[0]
    return _is_comprehensive(graph, name) and all(_handler(reader) is not None for reader in graph.readers(name))


def _cost(graph: OrtGraph, node: OrtNode, perm: Perm, leading: set[str], handler: _Handler, places: Sequence[int]) -> int:
    cost = sum(_value_cost(graph, node.input(place), perm) for place in places)
    if cost < 0 and handler.transposes_outputs and not any(name in leading for name in node.outputs):
        cost += max((_rank(graph, name) for name in node.outputs if name), default=0)
    return cost


# -- operators ------------------------------------------------------------------------------------------------------------


def _first(graph: OrtGraph, node: OrtNode) -> Sequence[int]:
    return (0,)


def _all(graph: OrtGraph, node: OrtNode) -> Sequence[int]:
    return range(len(node.inputs))


def _not_scalars(graph: OrtGraph, node: OrtNode) -> Sequence[int]:
    return [place for place, name in enumerate(node.inputs) if graph.shape(name) != ()]


def _simple(push: _Push) -> bool:
    _transpose_inputs(push)
    _transpose_outputs(push, push.perm)
    return True


def _broadcast(push: _Push) -> bool:
    graph, node, rank = push.graph, push.node, len(push.perm)
    ranks: list[int] = []
    for place in push.places:
        shape = graph.shape(node.input(place))
        if shape is None or len(shape) > rank:
            return False
        ranks.append(len(shape))
    for place, own in zip(push.places, ranks, strict=True):
        if own < rank:
            _unsqueeze_input(graph, node, place, list(range(rank - own)))
    return _simple(push)


def _unsqueeze_input(graph: OrtGraph, node: OrtNode, place: int, axes: list[int]) -> None:
    """Give an operand more axes of size 1 in front."""
    name = node.input(place)
    constant = _local_constant(graph, name)
    graph.set_input(node, place, "")
    if constant is not None and _is_comprehensive(graph, name):
        readers = graph.readers(name)
        if readers:
            undo = _squeezing(graph, node, "Squeeze", name, axes, constant.type)
            for reader in readers:
                graph.set_inputs(reader, [undo.outputs[0] if given == name else given for given in reader.inputs])
        array, shape = constant.values(), (1,) * len(axes) + constant.shape
        type_ = tensor(constant.dtype, shape)
        graph.weights[name] = Weight(type_, array=None if array is None else array.reshape(shape))
        graph.types[name] = type_
        graph.set_input(node, place, name)
        return
    made = graph.maker(name)
    if made is not None and made.matches("Squeeze") and _axes_of(graph, made, 13) == axes:
        graph.set_input(node, place, made.input(0))
        _remove_unread(graph, made)
        return
    old = graph.type_of(name)
    widened = tensor(old.dtype, (1,) * len(axes) + old.shape) if isinstance(old, TensorType) and old.shape is not None else old
    new = _squeezing(graph, node, "Unsqueeze", name, axes, widened)
    result = new.outputs[0]
    if made is not None and made.matches("Transpose") and (perm := _perm(made)) is not None:
        result = _push_unsqueeze(_Push(graph, made, new, perm, (0,)), axes)
    graph.set_input(node, place, result)


def _squeezing(graph: OrtGraph, like: OrtNode, op: str, name: str, axes: Sequence[int], type_: Type) -> OrtNode:
    if graph.opset() < 13:
        return _add(graph, like, op, [name], {"axes": tuple(axes)}, type_)
    return _add(graph, like, op, [name, _constant(graph, axes)], {}, type_)


def _along(default: int | None) -> _Handle:
    """Operators that work along an axis."""

    def handle(push: _Push) -> bool:
        axis = push.node.attr("axis", default)
        found = None if axis is None else _axes([axis], len(push.perm))
        if found is None:
            return False
        _simple(push)
        push.node.attrs["axis"] = push.perm[found[0]]
        return True

    return handle


def _softmax(push: _Push) -> bool:
    if push.graph.opset() >= 13:
        return _along(-1)(push)
    rank = len(push.perm)
    found = _axes([push.node.attr("axis", 1)], rank)
    if found is None or any((place < found[0]) != (push.perm[place] < found[0]) for place in range(rank)):
        return False
    return _simple(push)


def _shape(push: _Push) -> bool:
    """The shape of the value itself, its sizes in another order."""
    graph, node, rank = push.graph, push.node, len(push.perm)
    _transpose_inputs(push)
    order = push.perm
    if graph.opset() >= 15:
        order = push.perm[slice(*slice(node.attr("start", 0), node.attr("end", rank)).indices(rank))]
        node.attrs.pop("end", None)
        node.attrs["start"] = 0
    type_ = graph.type_of(node.outputs[0])
    gather = _add(graph, node, "Gather", ["", _constant(graph, order)], {"axis": 0}, type_)
    _move_output(graph, node, 0, gather)
    graph.types[node.outputs[0]] = tensor(DType.I64, (rank,))
    graph.set_input(gather, 0, node.outputs[0])
    return True


def _permute_operand(push: _Push, place: int, order: Sequence[int]) -> None:
    """Put the elements of a vector in another order."""
    graph, node = push.graph, push.node
    constant = graph.constant(node.input(place))
    if constant is not None and len(constant.shape) == 1 and constant.count in (0, len(order)):
        graph.set_input(node, place, _permuted_constant(graph, constant, order if constant.count else ()))
        return
    name = node.input(place)
    gather = _add(graph, node, "Gather", [name, _constant(graph, order)], {"axis": 0}, graph.type_of(name))
    graph.set_input(node, place, gather.outputs[0])


def _resize(push: _Push) -> bool:
    """Only for nodes of the CPU provider, between channels first and last."""
    if push.node.provider != CPU or push.perm not in ((0, 2, 3, 1), (0, 3, 1, 2)):
        return False
    rank, inverse = len(push.perm), push.inverse
    if push.graph.opset() < 11:
        _permute_operand(push, 1, inverse)
    else:
        if push.node.has_input(1):
            _permute_operand(push, 1, [*inverse, *(place + rank for place in inverse)])
        for place in range(2, len(push.node.inputs)):
            if push.node.has_input(place):
                _permute_operand(push, place, inverse)
    return _simple(push)


def _pad(push: _Push) -> bool:
    rank, inverse = len(push.perm), push.inverse
    order = [*inverse, *(place + rank for place in inverse)]
    if push.graph.opset() < 11:
        pads = push.node.ints("pads")
        if pads is None or len(pads) != 2 * rank:
            return False
        push.node.attrs["pads"] = tuple(pads[place] for place in order)
    else:
        _permute_operand(push, 1, order)
    return _simple(push)


def _squeezed_perm(axes: Sequence[int], perm: Perm) -> Perm:
    """Return the permutation of what is left without some axes, which are those of the value itself."""
    left = [axis for axis in range(len(perm)) if axis not in axes]
    return tuple(left.index(place) for place in perm if place not in axes)


def _reduce(push: _Push) -> bool:
    graph, node, perm = push.graph, push.node, push.perm
    keeps = bool(node.attr("keepdims", 1))
    since = 13 if node.op == "ReduceSum" else 18
    if graph.opset() < since:
        given = node.ints("axes")
        axes = None if given is None else list(given)
    elif not node.has_input(1):
        axes = None
    else:
        axes = _ints(graph, node.input(1))
        if axes is None:
            return False
    if not axes:
        is_kept = keeps or (graph.opset() >= since and bool(node.attr("noop_with_empty_axes", 0)))
        _transpose_inputs(push)
        if is_kept:
            _transpose_outputs(push, perm)
        return True
    found = _axes(axes, len(perm))
    if found is None:
        return False
    new = sorted(perm[axis] for axis in found)
    if graph.opset() < since:
        node.attrs["axes"] = tuple(new)
    else:
        graph.set_input(node, 1, _constant(graph, new))
    _transpose_inputs(push)
    _transpose_outputs(push, perm if keeps else _squeezed_perm(new, perm))
    return True


def _squeeze(push: _Push) -> bool:
    graph, node = push.graph, push.node
    given = _axes_of(graph, node, 13)
    found = None if given is None else _axes(given, len(push.perm))
    if found is None:
        return False
    new = sorted(push.perm[axis] for axis in found)
    if graph.opset() < 13:
        node.attrs["axes"] = tuple(new)
    else:
        graph.set_input(node, 1, _constant(graph, new))
    _transpose_inputs(push)
    _transpose_outputs(push, _squeezed_perm(new, push.perm))
    return True


def _push_unsqueeze(push: _Push, axes: Sequence[int]) -> str:
    _transpose_inputs(push)
    rank = len(push.perm) + len(axes)
    kept = [axis for axis in range(rank) if axis not in axes]
    moved = iter(push.perm)
    return transpose_output(push.graph, push.node, 0, tuple(axis if axis in axes else kept[next(moved)] for axis in range(rank)))


def _unsqueeze(push: _Push) -> bool:
    given = _axes_of(push.graph, push.node, 13)
    found = None if given is None else _axes(given, len(push.perm) + len(given))
    if found is None:
        return False
    _push_unsqueeze(push, found)
    return True


def _arg(push: _Push) -> bool:
    found = _axes([push.node.attr("axis", 0)], len(push.perm))
    if found is None:
        return False
    axis = push.perm[found[0]]
    push.node.attrs["axis"] = axis
    _transpose_inputs(push)
    _transpose_outputs(push, push.perm if push.node.attr("keepdims", 1) else _squeezed_perm([axis], push.perm))
    return True


def _slice(push: _Push) -> bool:
    graph, node, rank = push.graph, push.node, len(push.perm)
    if graph.opset() < 10:
        given: Sequence[int] = node.ints("axes") or range(len(node.ints("starts") or ()))
        found = _axes(given, rank)
        if found is None:
            return False
        node.attrs["axes"] = tuple(push.perm[axis] for axis in found)
        return _simple(push)
    if node.has_input(3):
        axes = _ints(graph, node.input(3))
        found = None if axes is None else _axes(axes, rank)
        dtype = graph.dtype(node.input(3))
    else:
        starts = graph.static_shape(node.input(1))
        found = list(range(starts[0])) if starts is not None and len(starts) == 1 else None
        dtype = graph.dtype(node.input(1))
    if found is None:
        return False
    graph.set_input(node, 3, _constant(graph, [push.perm[axis] for axis in found], "<i4" if dtype is DType.I32 else "<i8"))
    return _simple(push)


def _tile(push: _Push) -> bool:
    _permute_operand(push, 1, push.inverse)
    return _simple(push)


def _quantize(push: _Push) -> bool:
    node = push.node
    if (push.graph.opset() >= 13 or node.domain == MICROSOFT) and push.graph.shape(node.input(1)) != ():
        found = _axes([node.attr("axis", 1)], len(push.perm))
        if found is None:
            return False
        node.attrs["axis"] = push.perm[found[0]]
    return _simple(push)


def _transpose(push: _Push) -> bool:
    later = _perm(push.node)
    return later is not None and len(later) == len(push.perm) and _merge(push, later)


def _merge(push: _Push, later: Perm) -> bool:
    """Two transposes, or one and a Reshape that is like one."""
    graph, node, first = push.graph, push.node, push.transpose
    if later == push.inverse:
        _cancel(push)
        return True
    perm = composed(push.perm, later)
    if node.op == "Reshape":
        new = _add(graph, node, "Transpose", [first.input(0)], {"perm": perm}, graph.type_of(node.outputs[0]))
        _move_output(graph, node, 0, new)
        graph.remove_node(node)
    else:
        graph.set_input(node, 0, first.input(0))
        node.attrs["perm"] = perm
    _remove_unread(graph, first)
    return True


def _cancel(push: _Push) -> None:
    """Remove a Transpose and its inverse."""
    graph, node, first = push.graph, push.node, push.transpose
    source, result = first.input(0), node.outputs[0]
    if _is_comprehensive(graph, result):
        _replace_all(graph, result, source)
    else:
        made = graph.maker(source)
        if made is not None and _is_comprehensive(graph, source):
            graph.set_input(node, 0, "")
            _replace_all(graph, source, result)
            graph.set_outputs(node, [""])
            graph.set_outputs(made, [result if name == source else name for name in made.outputs])
        else:
            identity = _add(graph, node, "Identity", [""], {}, graph.type_of(result))
            _move_output(graph, node, 0, identity)
            graph.set_input(identity, 0, source)
    graph.remove_node(node)
    if graph.nodes.get(first.index) is first:
        _remove_unread(graph, first)


def _reshape(push: _Push) -> bool:
    """A Reshape that only moves axes of size 1 is like a Transpose."""
    graph, node = push.graph, push.node
    before = graph.static_shape(push.transpose.outputs[0])
    wanted = _ints(graph, node.input(1))
    if before is None or wanted is None or len(wanted) != len(before) or wanted.count(-1) > 1:
        return False
    zero = bool(node.attr("allowzero", 0)) if node.version > 13 else False
    after = [before[place] if size == 0 and not zero else size for place, size in enumerate(wanted)]
    total, known = _product(before), _product([size for size in after if size != -1])
    if -1 in after:
        if not known or total % known:
            return False
        after[after.index(-1)] = total // known
    elif known != total:
        return False
    perm = _matching(list(before), after)
    return perm is not None and _merge(push, perm)


def _product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


def _matching(sizes: list[int], wanted: Sequence[int]) -> Perm | None:
    """For each wanted size the first unused axis that has it; sizes other than 1 have to keep their order."""
    perm: list[int] = []
    for target in wanted:
        for place, size in enumerate(sizes):
            if size == target:
                perm.append(place)
                sizes[place] = -1
                break
            if size not in (-1, 1) and target != 1:
                return None
        else:
            return None
    return tuple(perm)


def _max_pool(push: _Push) -> bool:
    """Pooling of 8-bit integers on the CPU provider has a kernel for channels last."""
    graph, node, rank = push.graph, push.node, len(push.perm)
    if node.provider != CPU or any(node.outputs[1:]) or graph.dtype(node.outputs[0]) not in (DType.U8, DType.I8):
        return False
    if push.perm != (0, rank - 1, *range(1, rank - 1)):
        return False
    attrs = {name: value for name, value in node.attrs.items() if name != "storage_order"}
    graph.remove_node(node)
    made = graph.add_node("NhwcMaxPool", node.inputs, node.outputs[:1], attrs, MICROSOFT, node.name, node.provider)
    return _simple(_Push(graph, push.transpose, made, push.perm, push.places))


def _pool_last(push: _Push) -> bool:
    node, rank = push.node, len(push.perm)
    last = bool(node.attr("channels_last", 0))
    if rank < 2 or (push.inverse if last else push.perm) != (0, rank - 1, *range(1, rank - 1)):
        return False
    node.attrs["channels_last"] = int(not last)
    return _simple(push)


_SIMPLE: Final = (
    "Cast Exp Gelu Identity LeakyRelu Log Reciprocal Relu Sigmoid Sqrt Tanh Abs Not Ceil Floor Neg Erf HardSigmoid Round IsInf IsNaN Selu "
    "Shrink Sign Softplus Softsign ThresholdedRelu Celu HardSwish Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh"
)
_BROADCAST: Final = "Add Max Min Mul Sub Div And Or Xor Mod PRelu BitShift Equal Greater Less GreaterOrEqual LessOrEqual Mean Sum Pow Where"
_REDUCE: Final = "LogSum LogSumExp Max Mean Min Prod Sum SumSquare L1 L2"
_HANDLERS: Final[dict[str, _Handler]] = {
    **dict.fromkeys(_SIMPLE.split(), _Handler(_all, _simple)),
    **dict.fromkeys(_BROADCAST.split(), _Handler(_not_scalars, _broadcast)),
    **dict.fromkeys([f"Reduce{name}" for name in _REDUCE.split()], _Handler(_first, _reduce)),
    **dict.fromkeys(["Softmax", "Hardmax", "LogSoftmax"], _Handler(_first, _softmax)),
    **dict.fromkeys(["ArgMin", "ArgMax"], _Handler(_first, _arg)),
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear"], _Handler(_first, _quantize)),
    **dict.fromkeys(["Clip", "CastLike"], _Handler(_first, _simple)),
    "Transpose": _Handler(_first, _transpose, transposes_outputs=False),
    "Concat": _Handler(_all, _along(None)),
    "Split": _Handler(_first, _along(0)),
    "Shape": _Handler(_first, _shape, transposes_outputs=False),
    "Pad": _Handler(_first, _pad),
    "Squeeze": _Handler(_first, _squeeze),
    "Unsqueeze": _Handler(_first, _unsqueeze),
    "Slice": _Handler(_first, _slice),
    "Tile": _Handler(_first, _tile),
    "Reshape": _Handler(_first, _reshape, transposes_outputs=False),
    "MaxPool": _Handler(_first, _max_pool),
    "Resize": _Handler(_first, _resize),
}
_MICROSOFT_HANDLERS: Final[dict[str, _Handler]] = {
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear"], _Handler(_first, _quantize)),
    **dict.fromkeys(["QLinearAdd", "QLinearMul"], _Handler(lambda graph, node: (0, 3), _broadcast)),
    **dict.fromkeys(["QLinearAveragePool", "QLinearGlobalAveragePool"], _Handler(_first, _pool_last)),
    **dict.fromkeys(["QLinearLeakyRelu", "QLinearSigmoid"], _Handler(_first, _simple)),
    "QLinearConcat": _Handler(lambda graph, node: range(2, len(node.inputs), 3), _along(None)),
    "QLinearReduceMean": _Handler(_first, _reduce),
    "QLinearSoftmax": _Handler(_first, _softmax),
}


def _handler(node: OrtNode) -> _Handler | None:
    return _HANDLERS.get(node.op) if node.is_standard else _MICROSOFT_HANDLERS.get(node.op) if node.domain == MICROSOFT else None


# -- the pass -------------------------------------------------------------------------------------------------------------


@transformer("TransposeOptimizer")
def optimise_transposes(graph: OrtGraph, session: Session) -> bool:
    return optimise_within(graph, "")


@transformer("TransposeOptimizer_CPUExecutionProvider")
def optimise_transposes_of_provider(graph: OrtGraph, session: Session) -> bool:
    """The same again for nodes of the CPU provider, some of which it has kernels for with channels last."""
    return optimise_within(graph, CPU)


def optimise_within(graph: OrtGraph, provider: str) -> bool:
    changed = False
    if graph.opset() in _OPSETS:
        nodes = graph.order()
        leading = _leading_to_transposes(graph, nodes)
        for node in nodes:
            if graph.nodes.get(node.index) is node and node.provider in ("", provider):
                changed |= _push_one(graph, node, leading, provider)
    for node in graph.order():
        for body in node.bodies.values():
            changed |= optimise_within(body, provider)
    return changed


def _leading_to_transposes(graph: OrtGraph, nodes: Sequence[OrtNode]) -> set[str]:
    """Values from which operators that can be pushed through lead to a Transpose."""
    leading: set[str] = set()
    for node in reversed(nodes):
        if node.matches("Transpose"):
            leading.add(node.input(0))
            continue
        handler = _handler(node)
        if handler is not None and handler.transposes_outputs and any(name in leading for name in node.outputs):
            leading.update(node.input(place) for place in handler.places(graph, node))
    return leading


def _push_one(graph: OrtGraph, node: OrtNode, leading: set[str], provider: str) -> bool:
    for place, name in enumerate(list(node.inputs)):
        made = graph.maker(name)
        perm = _perm(made) if made is not None and made.matches("Transpose") else None
        handler = _handler(node)
        if made is None or perm is None or handler is None:
            continue
        places = list(handler.places(graph, node))
        if place not in places:
            continue
        is_free = node.matches("Transpose") or _is_preferred(graph, node, provider)
        if not is_free and _cost(graph, node, perm, leading, handler, places) >= 0:
            continue
        if handler.handle(_Push(graph, made, node, perm, places)):
            return True
    return False


def _is_preferred(graph: OrtGraph, node: OrtNode, provider: str) -> bool:
    """Operators that run faster with channels last on the CPU provider, whatever that costs."""
    if not provider or node.provider != CPU:
        return False
    if node.matches("MaxPool"):
        return True
    if not node.matches("Resize"):
        return False
    shape = graph.shape(node.input(0))
    is_byte = graph.dtype(node.input(0)) in (DType.U8, DType.I8)
    return shape is not None and len(shape) == 4 and is_byte and node.attr("mode") == "linear"

"""The transpose optimizer: pushes Transpose nodes down through others where that is likely to remove some of them.

It goes through the nodes once in topological order. A node that reads a transposed value reads the value itself instead, and its results
are transposed, if the number of axes that are transposed in front of it gets smaller. Constants are transposed for free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from irscope.frontends.onnx.optimizer.graph import CPU, MICROSOFT, OrtGraph, OrtNode, Session, Weight, transformer
from irscope.frontends.onnx.optimizer.permutations import (
    Perm,
    add_ints,
    add_pair_behind,
    add_single,
    axes_from_front,
    axes_of,
    composed,
    copy_shape,
    dequantized,
    dequantized_constant,
    fold_undone,
    has_only_readers,
    ints_of,
    inverted,
    local_constant,
    move_output,
    permutation_of,
    permuted,
    remove_unread,
    repair_pairs,
    replace_all,
    set_dequantized,
    widened_axes,
)
from irscope.immutable import immutable
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, Type, tensor

_OPSETS: Final = range(7, 29)
_UNKNOWN_RANK: Final = 5
"""Number of axes that a value of unknown rank counts with."""


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


def _transposed_weight(weight: Weight, perm: Sequence[int]) -> Weight:
    array = weight.values()
    shape = tuple(weight.shape[place] for place in perm)
    return Weight(tensor(weight.dtype, shape), array=None if array is None else array.transpose(perm))


def transpose_input(graph: OrtGraph, node: OrtNode, place: int, perm: Perm) -> None:
    """Make an operand a transposed one: by transposing a constant, by taking out a Transpose that it undoes, or by a new one. Looks past a
    DequantizeLinear in front of it."""
    name = node.input(place)
    if _transpose_constant(graph, node, place, perm):
        return
    graph.set_input(node, place, "")
    if _merge_with_earlier(graph, node, place, name, perm):
        return
    for reader in graph.readers(name):
        if reader.matches("Transpose") and permutation_of(reader) == perm:
            graph.set_input(node, place, reader.outputs[0])
            return
    new = add_single(graph, node, "Transpose", [name], {"perm": perm}, permuted(graph.type_of(name), perm))
    copy_shape(graph, name, new.outputs[0], perm)
    graph.set_input(node, place, new.outputs[0])
    before = dequantized(graph, name)
    if before is not None:
        add_pair_behind(graph, before)


def _transpose_constant(graph: OrtGraph, node: OrtNode, place: int, perm: Perm) -> bool:
    before, name = _source_of(graph, node, place)
    constant = local_constant(graph, name)
    if constant is None or not has_only_readers(graph, name):
        return False
    if constant.count == 1:
        return True
    if constant.shape == (len(perm),) and before is None:
        graph.set_input(node, place, _permuted_constant(graph, constant, perm))
        return True
    undo = partial(add_single, graph, node, "Transpose", [name], {"perm": inverted(perm)}, constant.type)
    _change_constant(graph, node, place, (before, name), _transposed_weight(constant, perm), perm, undo)
    return True


def _source_of(graph: OrtGraph, node: OrtNode, place: int) -> tuple[OrtNode | None, str]:
    """Return the DequantizeLinear between a constant and an operand, if there is one, and the name of the constant, or of the operand."""
    name = node.input(place)
    before = dequantized_constant(graph, name) if local_constant(graph, name) is None else None
    return before, name if before is None else before.input(0)


def _change_constant(
    graph: OrtGraph,
    node: OrtNode,
    place: int,
    source: tuple[OrtNode | None, str],
    changed: Weight,
    axes: Sequence[int],
    undo: Callable[[], OrtNode],
) -> None:
    """Change a constant operand in its place, whose axes are those of `axes` before; its other readers read what undoes that."""
    before, name = source
    graph.set_input(before or node, 0 if before else place, "")
    if graph.readers(name):
        behind = undo()
        replace_all(graph, name, behind.outputs[0], but=behind)
    graph.weights[name], graph.types[name] = changed, changed.type
    if before is not None:
        set_dequantized(graph, before, name, axes)
    else:
        graph.set_input(node, place, name)


def _merge_with_earlier(graph: OrtGraph, node: OrtNode, place: int, name: str, perm: Perm) -> bool:
    """Read what an earlier Transpose reads, where it is undone or there is nothing between."""
    before = dequantized(graph, name)
    made = graph.maker(name if before is None else before.input(0))
    earlier = permutation_of(made) if made is not None and made.matches("Transpose") else None
    if made is None or earlier is None or len(earlier) != len(perm):
        return False
    if earlier == inverted(perm):
        if before is not None:
            set_dequantized(graph, before, made.input(0), perm)
        graph.set_input(node, place, name if before is not None else made.input(0))
    elif before is None:
        type_ = permuted(graph.type_of(name), perm)
        both = add_single(graph, node, "Transpose", [made.input(0)], {"perm": composed(earlier, perm)}, type_)
        copy_shape(graph, name, both.outputs[0], perm)
        graph.set_input(node, place, both.outputs[0])
    else:
        return False
    remove_unread(graph, made)
    return True


def _permuted_constant(graph: OrtGraph, constant: Weight, order: Sequence[int]) -> str:
    array = constant.values()
    return graph.add_weight(graph.new_name("const_transpose_optimizer"), None if array is None else array[list(order)], constant.type)


def transpose_output(graph: OrtGraph, node: OrtNode, place: int, perm: Perm) -> str:
    """Put a Transpose behind a result, which keeps its name there."""
    name = node.outputs[place]
    type_ = graph.type_of(name)
    behind = add_single(graph, node, "Transpose", [""], {"perm": perm}, type_)
    move_output(graph, node, place, behind)
    graph.types[node.outputs[place]] = permuted(type_, inverted(perm))
    copy_shape(graph, name, node.outputs[place], inverted(perm))
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


def _rank(graph: OrtGraph, name: str) -> int:
    shape = graph.shape(name)
    return _UNKNOWN_RANK if shape is None else sum(size != 1 for size in shape)


def _value_cost(graph: OrtGraph, name: str, perm: Perm) -> int:
    """Return what transposing a value costs that is likely transposed by `perm` already; negative where that takes a Transpose out."""
    made = graph.maker(name)
    if made is None:
        return 0 if graph.constant(name) is not None else _rank(graph, name)
    if made.op == "DequantizeLinear" and local_constant(graph, made.input(0)) is not None and len(graph.readers(name)) == 1:
        return 0
    if made.matches("Transpose") and (earlier := permutation_of(made)) is not None:
        return -_rank(graph, name) if earlier == perm and _is_likely_removed(graph, made) else 0
    return _rank(graph, name)


def _is_likely_removed(graph: OrtGraph, transpose: OrtNode) -> bool:
    name = transpose.outputs[0]
    return has_only_readers(graph, name) and all(_handler(reader) is not None for reader in graph.readers(name))


def _cost(graph: OrtGraph, node: OrtNode, perm: Perm, leading: set[str], handler: _Handler, places: Sequence[int]) -> int:
    cost = sum(_value_cost(graph, node.input(place), perm) for place in places)
    if cost < 0 and handler.transposes_outputs and not any(name in leading for name in node.outputs):
        cost += max((_rank(graph, name) for name in node.outputs if name), default=0)
    return cost


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
    before, given = _source_of(graph, node, place)
    constant = local_constant(graph, given)
    if constant is not None and has_only_readers(graph, given):
        array, shape = constant.values(), (1,) * len(axes) + constant.shape
        wider = Weight(tensor(constant.dtype, shape), array=None if array is None else array.reshape(shape))
        undo = partial(_squeezing, graph, node, "Squeeze", given, axes, constant.type)
        _change_constant(graph, node, place, (before, given), wider, widened_axes(len(constant.shape), axes), undo)
        return
    graph.set_input(node, place, "")
    before = dequantized(graph, name)
    made = graph.maker(name if before is None else before.input(0))
    if made is not None and made.matches("Squeeze") and axes_of(graph, made, 13) == axes:
        rank = len(graph.shape(made.outputs[0]) or ())
        if before is not None:
            set_dequantized(graph, before, made.input(0), widened_axes(rank, axes))
        graph.set_input(node, place, name if before is not None else made.input(0))
        remove_unread(graph, made)
        return
    old = graph.type_of(name)
    widened = tensor(old.dtype, (1,) * len(axes) + old.shape) if isinstance(old, TensorType) and old.shape is not None else old
    new = _squeezing(graph, node, "Unsqueeze", name, axes, widened)
    result = new.outputs[0]
    made = graph.maker(name)
    if made is not None and made.matches("Transpose") and (perm := permutation_of(made)) is not None:
        result = _push_unsqueeze(_Push(graph, made, new, perm, (0,)), axes)
    graph.set_input(node, place, result)
    if before is not None:
        add_pair_behind(graph, before)


def _squeezing(graph: OrtGraph, like: OrtNode, op: str, name: str, axes: Sequence[int], type_: Type) -> OrtNode:
    if graph.opset() < 13:
        return add_single(graph, like, op, [name], {"axes": tuple(axes)}, type_)
    return add_single(graph, like, op, [name, add_ints(graph, axes)], {}, type_)


def _along(default: int | None) -> _Handle:
    """Return the operators that work along an axis."""

    def handle(push: _Push) -> bool:
        axis = push.node.attr("axis", default)
        found = None if axis is None else axes_from_front([axis], len(push.perm))
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
    found = axes_from_front([push.node.attr("axis", 1)], rank)
    if found is None or any((place < found[0]) != (push.perm[place] < found[0]) for place in range(rank)):
        return False
    return _simple(push)


def _shape(push: _Push) -> bool:
    """Return the shape of the value itself, its sizes in another order."""
    graph, node, rank = push.graph, push.node, len(push.perm)
    _transpose_inputs(push)
    order = push.perm
    if graph.opset() >= 15:
        order = push.perm[slice(*slice(node.attr("start", 0), node.attr("end", rank)).indices(rank))]
        node.attrs.pop("end", None)
        node.attrs["start"] = 0
    type_ = graph.type_of(node.outputs[0])
    gather = add_single(graph, node, "Gather", ["", add_ints(graph, order)], {"axis": 0}, type_)
    move_output(graph, node, 0, gather)
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
    gather = add_single(graph, node, "Gather", [name, add_ints(graph, order)], {"axis": 0}, graph.type_of(name))
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
        axes = ints_of(graph, node.input(1))
        if axes is None:
            return False
    if not axes:
        is_kept = keeps or (graph.opset() >= since and bool(node.attr("noop_with_empty_axes", 0)))
        _transpose_inputs(push)
        if is_kept:
            _transpose_outputs(push, perm)
        return True
    found = axes_from_front(axes, len(perm))
    if found is None:
        return False
    new = sorted(perm[axis] for axis in found)
    if graph.opset() < since:
        node.attrs["axes"] = tuple(new)
    else:
        graph.set_input(node, 1, add_ints(graph, new))
    _transpose_inputs(push)
    _transpose_outputs(push, perm if keeps else _squeezed_perm(new, perm))
    return True


def _squeeze(push: _Push) -> bool:
    graph, node = push.graph, push.node
    given = axes_of(graph, node, 13)
    found = None if given is None else axes_from_front(given, len(push.perm))
    if found is None:
        return False
    new = sorted(push.perm[axis] for axis in found)
    if graph.opset() < 13:
        node.attrs["axes"] = tuple(new)
    else:
        graph.set_input(node, 1, add_ints(graph, new))
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
    given = axes_of(push.graph, push.node, 13)
    found = None if given is None else axes_from_front(given, len(push.perm) + len(given))
    if found is None:
        return False
    _push_unsqueeze(push, found)
    return True


def _arg(push: _Push) -> bool:
    found = axes_from_front([push.node.attr("axis", 0)], len(push.perm))
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
        found = axes_from_front(given, rank)
        if found is None:
            return False
        node.attrs["axes"] = tuple(push.perm[axis] for axis in found)
        return _simple(push)
    if node.has_input(3):
        axes = ints_of(graph, node.input(3))
        found = None if axes is None else axes_from_front(axes, rank)
        dtype = graph.dtype(node.input(3))
    else:
        starts = graph.static_shape(node.input(1))
        found = list(range(starts[0])) if starts is not None and len(starts) == 1 else None
        dtype = graph.dtype(node.input(1))
    if found is None:
        return False
    graph.set_input(node, 3, add_ints(graph, [push.perm[axis] for axis in found], "<i4" if dtype is DType.I32 else "<i8"))
    return _simple(push)


def _tile(push: _Push) -> bool:
    _permute_operand(push, 1, push.inverse)
    return _simple(push)


def _quantize(push: _Push) -> bool:
    node = push.node
    if (push.graph.opset() >= 13 or node.domain == MICROSOFT) and push.graph.shape(node.input(1)) != ():
        found = axes_from_front([node.attr("axis", 1)], len(push.perm))
        if found is None:
            return False
        node.attrs["axis"] = push.perm[found[0]]
    return _simple(push)


def _transpose(push: _Push) -> bool:
    later = permutation_of(push.node)
    return later is not None and len(later) == len(push.perm) and _merge(push, later)


def _merge(push: _Push, later: Perm) -> bool:
    """Merge two transposes, or one and a Reshape that is like one."""
    graph, node, first = push.graph, push.node, push.transpose
    if later == push.inverse:
        _cancel(push)
        return True
    perm = composed(push.perm, later)
    if node.op == "Reshape":
        new = add_single(graph, node, "Transpose", [first.input(0)], {"perm": perm}, graph.type_of(node.outputs[0]))
        move_output(graph, node, 0, new)
        graph.remove_node(node)
    else:
        graph.set_input(node, 0, first.input(0))
        node.attrs["perm"] = perm
    remove_unread(graph, first)
    return True


def _cancel(push: _Push) -> None:
    """Remove a Transpose and its inverse."""
    graph, node, first = push.graph, push.node, push.transpose
    source, result = first.input(0), node.outputs[0]
    if has_only_readers(graph, result):
        replace_all(graph, result, source)
    else:
        made = graph.maker(source)
        if made is not None and has_only_readers(graph, source):
            graph.set_input(node, 0, "")
            replace_all(graph, source, result)
            graph.set_outputs(node, [""])
            graph.set_outputs(made, [result if name == source else name for name in made.outputs])
        else:
            identity = add_single(graph, node, "Identity", [""], {}, graph.type_of(result))
            move_output(graph, node, 0, identity)
            graph.set_input(identity, 0, source)
    graph.remove_node(node)
    if graph.nodes.get(first.index) is first:
        remove_unread(graph, first)


def _reshape(push: _Push) -> bool:
    """A Reshape that only moves axes of size 1 is like a Transpose."""
    graph, node = push.graph, push.node
    before = graph.static_shape(push.transpose.outputs[0])
    wanted = ints_of(graph, node.input(1))
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
    """Return, for each wanted size, the first unused axis that has it; sizes other than 1 have to keep their order."""
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
        if any(node.op == "DequantizeLinear" for node in nodes):
            for step in (fold_undone, repair_pairs):
                for node in graph.order():
                    if graph.nodes.get(node.index) is node and node.provider in ("", provider):
                        changed |= step(graph, node)
    for node in graph.order():
        for body in node.bodies.values():
            changed |= optimise_within(body, provider)
    return changed


def _leading_to_transposes(graph: OrtGraph, nodes: Sequence[OrtNode]) -> set[str]:
    """Return the values from which operators that can be pushed through lead to a Transpose."""
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
        perm = permutation_of(made) if made is not None and made.matches("Transpose") else None
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

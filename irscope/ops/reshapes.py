"""Views that keep the order of the elements: reshape and its special cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Unpack

from irscope.ir.dims import Dim, SymDim, bounds, equal, exact_div, floordiv, mod, product
from irscope.ir.types import Shape, TensorType, Type
from irscope.ops import layouts
from irscope.ops.facts import OpRole
from irscope.ops.layouts import has_memory_format, is_viewable
from irscope.ops.ort import alias
from irscope.ops.rules import MOST_COMBINED, any_of, as_size, free, given_axes, handed_on, length_of, moved, replaced, unknown_sizes
from irscope.ops.spec import SIZES, Facts, Family, Known, OpCall, OpSpec, RuleError, op
from irscope.ops.values import static_shape


def evaluate_reshape(call: OpCall) -> Known | None:
    """Evaluate rule: the same elements in the result's shape."""
    x, shape = call.value("x"), static_shape(call.results[0])
    return None if x is None or shape is None else x.reshape(shape)


def _infer_reshape(call: OpCall) -> TensorType:
    x = call.tensor("x")
    given = call.dims("shape")
    if given is None:
        return x.with_shape(_only_rank(call, x, length_of(call, "shape")))
    target = list(given) if call.attr("zero") != "copy" else _with_copies(call, given, x.shape)
    return x.with_shape(_fill_in(call, x.numel, target))


def _only_rank(call: OpCall, x: TensorType, rank: int | None) -> Shape:
    if rank == 1 and x.numel is not None:
        return (x.numel,)
    return unknown_sizes(call, "shape", rank)


def _with_copies(call: OpCall, given: Sequence[Dim], shape: Shape) -> list[Dim]:
    """Zeros replaced by the size of the input's axis at the same place."""
    target = list(given)
    for axis, dim in enumerate(given):
        if isinstance(dim, SymDim) or dim != 0:
            continue
        if shape is None:
            target[axis] = call.unknown("it is copied from the input, whose shape is not known", SIZES)
        elif axis < len(shape):
            target[axis] = call.context.note_size(shape[axis])
        else:
            raise RuleError(f"{call.spec.name}: axis {axis} is to be copied from an input of {len(shape)} axes")
    return target


def _fill_in(call: OpCall, total: Dim | None, target: list[Dim]) -> tuple[Dim, ...]:
    """Return the sizes with the one that is left open computed from the number of elements."""
    open_axes = [axis for axis, dim in enumerate(target) if not isinstance(dim, SymDim) and dim == -1]
    if len(open_axes) > 1:
        raise RuleError(f"{call.spec.name}: more than one size of {[str(dim) for dim in target]} is -1")
    unsure = [axis for axis, dim in enumerate(target) if _may_be_open(call, dim)]
    left = open_axes or [axis for axis, dim in enumerate(target) if isinstance(dim, SymDim) and dim.is_unknown]
    if total is not None and len(left) == 1 and (open_axes == left or not _is_unknown(total)) and set(unsure) <= set(left):
        axis = left[0]
        target[axis] = _quotient(call, total, [dim for other, dim in enumerate(target) if other != axis], target[axis])
        return tuple(as_size(call, dim, "shape", special=True) for dim in target)
    sizes = [
        call.unknown("the number of elements of the input is not known", SIZES)
        if axis in open_axes
        else as_size(call, dim, "shape", special=True)
        for axis, dim in enumerate(target)
    ]
    if total is not None and not open_axes and not unsure:
        call.same(total, product(sizes), "number of elements")
    return tuple(sizes)


def _is_unknown(dim: Dim) -> bool:
    return isinstance(dim, SymDim) and dim.is_unknown


def _may_be_open(call: OpCall, dim: Dim) -> bool:
    """Return whether a symbolic size may turn out to be -1."""
    low = bounds(dim)[0]
    return isinstance(dim, SymDim) and (low is None or low == -1) and dim not in call.context.sizes


def _quotient(call: OpCall, total: Dim, others: Sequence[Dim], open_dim: Dim) -> Dim:
    """Return the size that makes the number of elements right."""
    divisor = product(others)
    if equal(divisor, 0) is True:
        if isinstance(open_dim, SymDim):
            return open_dim
        raise RuleError(f"{call.spec.name}: -1 stands beside a size of 0")
    quotient = exact_div(total, divisor)
    if quotient is not None:
        return call.context.note_size(quotient)
    low = bounds(divisor)[0]
    if low is None or low < 1:
        return call.unknown(f"it is {total} elements divided by {divisor}, which may be 0", SIZES)
    call.same(mod(total, divisor), 0, f"{total} elements divide by {divisor}")
    return call.context.note_size(floordiv(total, divisor))


def _shares_reshape(call: OpCall) -> bool | None:
    result = call.results[0]
    return is_viewable(call.tensor("x"), result.shape)


def _infer_flatten(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x
    if not x.shape:
        return x.with_shape((1,))
    start, end = call.axis(call.int_attr("start"), len(x.shape)), call.axis(call.int_attr("end"), len(x.shape))
    if start > end:
        raise RuleError(f"{call.spec.name}: the first axis {start} comes after the last one, {end}")
    return x.with_shape((*x.shape[:start], product(x.shape[start : end + 1]), *x.shape[end + 1 :]))


def _infer_flatten_2d(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(call.unknown("the input's shape is not known", SIZES) for _ in range(2))
    rank, axis = len(x.shape), call.int_attr("axis")
    if not -rank <= axis <= rank:
        raise RuleError(f"axis {axis} of {call.spec.name} is outside a tensor of {rank} axes")
    axis = axis + rank if axis < 0 else axis
    return x.with_shape((product(x.shape[:axis]), product(x.shape[axis:])))


def _infer_squeeze(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    if not call.given("axes"):
        return x.with_shape(_without_ones(call, x.shape, range(len(x.shape)), strict=False))
    if not x.shape:
        return x
    axes = given_axes(call, "axes", len(x.shape))
    if axes is not None:
        return x.with_shape(_without_ones(call, x.shape, axes, strict=bool(call.attr("strict"))))
    count = length_of(call, "axes") if call.attr("strict") else None
    if count is None or not count <= len(x.shape) <= MOST_COMBINED:
        return x.with_shape(unknown_sizes(call, "axes", None if count is None else max(len(x.shape) - count, 0)))
    ones = [axis for axis, dim in enumerate(x.shape) if equal(dim, 1) is not False]
    shapes = [[dim for axis, dim in enumerate(x.shape) if axis not in gone] for gone in combinations(ones, count)]
    return x.with_shape(any_of(call, "axes", shapes))


def _without_ones(call: OpCall, shape: Sequence[Dim], axes: Sequence[int], *, strict: bool) -> Shape:
    kept: list[Dim] = []
    for axis, dim in enumerate(shape):
        verdict = equal(dim, 1) if axis in axes else False
        if verdict is False and axis in axes and strict:
            raise RuleError(f"{call.spec.name}: axis {axis} has size {dim}, not 1")
        if verdict is None and not strict:
            call.context.explain(f"the axis of size {dim} only goes if it is 1", SIZES)
            return None
        if verdict is None:
            call.same(dim, 1, "size of a removed axis")
        if verdict is False:
            kept.append(dim)
    return tuple(kept)


def _infer_unsqueeze(call: OpCall) -> TensorType:
    x = call.tensor("x")
    count = length_of(call, "axes")
    if x.shape is None or count is None:
        return x.with_shape(None)
    rank = len(x.shape) + count
    axes = given_axes(call, "axes", rank)
    if axes is not None:
        return x.with_shape(_with_ones(x.shape, axes))
    if rank > MOST_COMBINED:
        return x.with_shape(unknown_sizes(call, "axes", rank))
    return x.with_shape(any_of(call, "axes", [_with_ones(x.shape, places) for places in combinations(range(rank), count)]))


def _with_ones(shape: Sequence[Dim], places: Sequence[int]) -> tuple[Dim, ...]:
    kept = iter(shape)
    return tuple(1 if axis in places else next(kept) for axis in range(len(shape) + len(places)))


def _infer_unflatten(call: OpCall) -> TensorType:
    x = call.tensor("x")
    sizes = call.dims("sizes")
    if x.shape is None or sizes is None:
        return x.with_shape(None)
    axis = call.axis(call.int_attr("axis"), len(x.shape))
    return x.with_shape(replaced(x.shape, axis, *_fill_in(call, x.shape[axis], list(sizes))))


def infer_same(call: OpCall) -> Type:
    """Infer rule: the result has the first operand's type, whatever kind of value it is."""
    first = call.types[0]
    if first is None:
        raise RuleError(f"{call.spec.name} has no operand")
    return first


def _shares_contiguous(call: OpCall) -> bool | None:
    return has_memory_format(call.tensor("x"), call.attr("memory_format"))


def first_value(call: OpCall) -> Known | None:
    """Evaluate rule: the first operand's values unchanged."""
    return call.values[0]


def _view(schema: str, infer: Callable[[OpCall], Type], summary: str, *, copies: bool = False, **facts: Unpack[Facts]) -> OpSpec:
    return op(
        schema,
        Family.VIEW,
        infer=infer,
        cost=(lambda call: free(call) if _shares_reshape(call) is not False else moved(call)) if copies else free,
        evaluate=evaluate_reshape,
        shares=_shares_reshape if copies else None,
        summary=summary,
        **facts,
    )


def _infer_align(call: OpCall) -> Type:
    x, other = call.tensor("x"), call.tensor("like")
    if x.shape is None or other.shape is None:
        return x.with_shape(None)
    behind = len(other.shape) - call.axis(call.int_attr("axis"), len(other.shape)) - len(x.shape)
    if behind < 0:
        raise RuleError(f"{len(x.shape)} axes do not fit after axis {call.int_attr('axis')} of {len(other.shape)} ({call.spec.name})")
    return x.with_shape((*x.shape, *(1,) * behind))


OPS = (
    _view(
        "view.reshape(Tensor(a?) x, Dims shape, *, str zero='literal') -> Tensor(a?)",
        _infer_reshape,
        "Other sizes for the same elements: -1 is computed, 0 copies the input's size with zero='copy'.",
        copies=True,
        ort=alias("Reshape"),
        strides=layouts.reshaped,
        roles=frozenset({OpRole.LAYS_OUT, OpRole.RESHAPE, OpRole.UNIT_STRIDES}),
    ),
    _view(
        "view.flatten(Tensor(a?) x, *, int start=0, int end=-1) -> Tensor(a?)",
        _infer_flatten,
        "Makes one axis of all axes from `start` to `end`.",
        copies=True,
        strides=layouts.reshaped,
        roles=frozenset({OpRole.LAYS_OUT, OpRole.RESHAPE, OpRole.UNIT_STRIDES}),
    ),
    _view(
        "view.flatten_2d(Tensor(a?) x, *, int axis=1) -> Tensor(a?)",
        _infer_flatten_2d,
        "Makes a matrix: the axes before `axis` become rows, the others columns.",
        copies=True,
        ort=alias("Flatten"),
        strides=layouts.reshaped,
        roles=frozenset({OpRole.RESHAPE}),
    ),
    _view(
        "view.unflatten(Tensor(a) x, Dims sizes, *, int axis) -> Tensor(a)",
        _infer_unflatten,
        "Cuts one axis into several.",
        strides=layouts.reshaped,
        roles=frozenset({OpRole.RESHAPE}),
    ),
    _view(
        "view.squeeze(Tensor(a) x, Dims? axes, *, bool strict=False) -> Tensor(a)",
        _infer_squeeze,
        "Drops axes of size 1: those given, else all; with `strict` a given axis of another size is an error.",
        ort=alias("Squeeze"),
        strides=layouts.reshaped,
        roles=frozenset({OpRole.RESHAPE}),
    ),
    _view(
        "view.unsqueeze(Tensor(a) x, Dims axes) -> Tensor(a)",
        _infer_unsqueeze,
        "Inserts axes of size 1; positions are those in the result.",
        ort=alias("Unsqueeze"),
        strides=layouts.reshaped,
        roles=frozenset({OpRole.RESHAPE, OpRole.HANDS_ON_MASK}),
    ),
    _view(
        "view.align(Tensor(a) x, Tensor like, *, int axis) -> Tensor(a)",
        _infer_align,
        "Adds axes of size 1 after the others, so that the first one lines up with an axis of another tensor.",
        strides=layouts.UNSTATED,
    ),
    op(
        "view.alias(Tensor(a) x) -> Tensor(a)",
        Family.VIEW,
        infer=infer_same,
        cost=free,
        evaluate=first_value,
        summary="The same value under another name: identity, detach.",
        ort=alias("Identity"),
        strides=layouts.as_operand,
        items=handed_on,
        roles=frozenset({OpRole.RETURNS_OPERAND, OpRole.HANDS_ON_MASK}),
    ),
    op(
        "view.contiguous(Tensor(a?) x, *, str memory_format='contiguous_format') -> Tensor(a?)",
        Family.VIEW,
        infer=lambda call: call.tensor("x").with_shape(call.shape("x")),
        cost=lambda call: free(call) if _shares_contiguous(call) is not False else moved(call),
        evaluate=first_value,
        shares=_shares_contiguous,
        summary="The same elements in a memory format; the tensor itself where it already has it.",
        strides=layouts.contiguous,
        roles=frozenset({OpRole.COPY, OpRole.RETURNS_OPERAND, OpRole.LAYS_OUT}),
    ),
)

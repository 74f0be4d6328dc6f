"""Views: operators that pick, reorder or cut without moving elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from irscope.budget import claim
from irscope.ir.dims import Dim, SymDim, bounds, ceildiv, dim_max, dim_min, floordiv, mod
from irscope.ir.dtypes import DType
from irscope.ir.types import Shape, TensorType, Type
from irscope.ops import layouts
from irscope.ops.facts import OpRole
from irscope.ops.rules import (
    as_size,
    at_least,
    axis_attr,
    broadcast_dim,
    free,
    given_shape,
    length_of,
    python_slices,
    replaced,
    slice_axes,
    unknown_sizes,
)
from irscope.ops.spec import SIZES, Facts, Family, Known, OpCall, OpSpec, RuleError, op
from irscope.ops.values import static_shape

# Views that pick or reorder elements without moving them.

_FAR = 2**31 - 1
"""Exporters write this or a larger number where they mean the end of an axis."""


def _permutation(call: OpCall, rank: int) -> tuple[int, ...]:
    perm = call.attr("perm")
    if perm is None:
        return tuple(reversed(range(rank)))
    order = tuple(call.axis(axis, rank) for axis in perm)
    if sorted(order) != list(range(rank)):
        raise RuleError(f"{call.spec.name}: {list(perm)} is not an order of {rank} axes")
    return order


def _swapped(call: OpCall, rank: int) -> tuple[int, ...]:
    order = list(range(rank))
    if rank:
        a, b = axis_attr(call, rank, "axis0"), axis_attr(call, rank, "axis1")
        order[a], order[b] = order[b], order[a]
    return tuple(order)


def _moved(call: OpCall, rank: int) -> tuple[int, ...]:
    source = [call.axis(axis, rank) for axis in call.attr("source")]
    target = [call.axis(axis, rank) for axis in call.attr("destination")]
    order: list[int | None] = [None] * rank
    for origin, place in zip(source, target, strict=True):
        order[place] = origin
    rest = iter(axis for axis in range(rank) if axis not in source)
    return tuple(next(rest) if axis is None else axis for axis in order)


def _reordering(schema: str, order: Callable[[OpCall, int], tuple[int, ...]], summary: str, **facts: Unpack[Facts]) -> OpSpec:
    def infer(call: OpCall) -> TensorType:
        x = call.tensor("x")
        if x.shape is None:
            perm = call.attrs.get("perm")
            return x.with_shape(None if perm is None else unknown_sizes(call, "x", len(perm)))
        return x.with_shape([x.shape[axis] for axis in order(call, len(x.shape))])

    def evaluate(call: OpCall) -> Known | None:
        x = call.value("x")
        return None if x is None else x.transpose(order(call, x.ndim))

    return op(schema, Family.VIEW, infer=infer, cost=free, evaluate=evaluate, summary=summary, **facts)


def _infer_expand(call: OpCall) -> TensorType:
    x = call.tensor("x")
    target = call.dims("shape")
    if target is None:
        return x.with_shape(_expanded_by_unknown(call, x.shape))
    if x.shape is None:
        is_final = call.attr("mode") == "keep" and all(isinstance(dim, SymDim) or dim >= 0 for dim in target)
        return x.with_shape([as_size(call, dim, "shape") for dim in target] if is_final else None)
    rank = max(len(x.shape), len(target))
    old = (1,) * (rank - len(x.shape)) + x.shape
    new = (1,) * (rank - len(target)) + target
    if call.attr("mode") == "keep":
        if len(target) < len(x.shape):
            raise RuleError(f"{call.spec.name}: {len(x.shape)} axes cannot become {len(target)}")
        return x.with_shape(_kept_or_stretched(call, a, b) for a, b in zip(old, new, strict=True))
    return x.with_shape(broadcast_dim(call, a, as_size(call, b, "shape")) for a, b in zip(old, new, strict=True))


def _kept_or_stretched(call: OpCall, old: Dim, new: Dim) -> Dim:
    if not isinstance(new, SymDim) and new == -1:
        return old
    size = as_size(call, new, "shape", special=True)
    if not isinstance(old, SymDim) and old != 1:
        return call.same(old, size, "size of an expanded axis")
    return size


def _expanded_by_unknown(call: OpCall, shape: Shape) -> Shape:
    count = length_of(call, "shape")
    if count is None or shape is None:
        return unknown_sizes(call, "shape", None)
    rank = max(count, len(shape))
    sizes = unknown_sizes(call, "shape", rank)
    assert sizes is not None
    old = (1,) * (rank - len(shape)) + shape
    first_given = rank - count
    return tuple(
        a if axis < first_given or (not isinstance(a, SymDim) and a != 1) else b for axis, (a, b) in enumerate(zip(old, sizes, strict=True))
    )


def _evaluate_expand(call: OpCall) -> Known | None:
    x, shape = call.value("x"), static_shape(call.results[0])
    return None if x is None or shape is None else np.broadcast_to(x, shape).copy()


def clamped(call: OpCall, index: Dim, size: Dim, low: Dim, high: Dim) -> Dim:
    """Return an index that may count from the back or lie outside, as slices take it."""
    if not isinstance(index, SymDim):
        if index >= _FAR:
            return high
        if index <= -_FAR:
            return low
        return at_least(call, low, dim_min(index + size if index < 0 else index, high))
    lowest, highest = bounds(index)
    if (lowest is not None and lowest >= 0) or index in call.context.sizes:
        return at_least(call, low, dim_min(index, high))
    if highest is not None and highest < 0:
        return at_least(call, low, dim_min(index + size, high))
    return call.unknown(f"where a slice starts or ends depends on {index}, which may be negative", SIZES, None)


def sliced_size(call: OpCall, size: Dim, start: Dim, end: Dim, step: Dim) -> Dim:
    """Return how many elements a slice takes of an axis."""
    if isinstance(step, SymDim):
        return call.unknown("the step of a slice is not known", SIZES, 0, size)
    if step == 0:
        raise RuleError(f"{call.spec.name}: the step is 0")
    if not isinstance(size, SymDim) and size == 0:
        return 0
    if step > 0:
        first, last = clamped(call, start, size, 0, size), clamped(call, end, size, 0, size)
    else:
        first, last = clamped(call, start, size, 0, size - 1), clamped(call, end, size, -1, size - 1)
    if any(isinstance(edge, SymDim) and bounds(edge)[0] is None and edge not in call.context.sizes for edge in (first, last)):
        return call.unknown("where a slice starts or ends is not known", SIZES, 0, size)
    if step > 0:
        return at_least(call, 0, ceildiv(last - first, step))
    # Going down from the last position takes that one even of an axis without positions, unless it is told apart.
    return dim_max(ceildiv(first - last, -step), 0) * dim_min(size, 1)


def _infer_slice(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    axes = slice_axes(call, len(x.shape))
    starts, ends = call.dims("starts"), call.dims("ends")
    steps = call.dims("steps") if call.given("steps") else (1,) * len(axes or ())
    shape = list(x.shape)
    if axes is None or starts is None or ends is None or steps is None:
        for axis in range(len(shape)) if axes is None else axes:
            shape[axis] = call.unknown("it is cut by a slice whose limits are not known", "starts,ends,axes,steps", 0, shape[axis])
        return x.with_shape(shape)
    if not len(axes) == len(starts) == len(ends) == len(steps):
        raise RuleError(f"{call.spec.name}: {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps")
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        shape[axis] = sliced_size(call, call.context.note_size(shape[axis]), start, end, step)
    return x.with_shape(shape)


def _evaluate_slice(call: OpCall) -> Known | None:
    x = call.value("x")
    if x is None:
        return None
    parts = python_slices(call, x.shape)
    return None if parts is None else x[parts]


def _infer_select(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    axis = call.axis(call.int_attr("axis"), len(x.shape))
    return x.with_shape(replaced(x.shape, axis))


def _evaluate_select(call: OpCall) -> Known | None:
    x, index = call.value("x"), call.ints("index")
    if x is None or index is None:
        return None
    return np.asarray(np.take(x, index[0], axis=call.axis(call.int_attr("axis"), x.ndim)), dtype=x.dtype)


def _infer_narrow(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    axis = call.axis(call.int_attr("axis"), len(x.shape))
    length = call.dim("length")
    unknown = length is None
    size = call.unknown("the length is not known", "length", 0, x.shape[axis]) if unknown else as_size(call, length or 0, "length")
    return x.with_shape(replaced(x.shape, axis, size))


def _evaluate_narrow(call: OpCall) -> Known | None:
    x, start, shape = call.value("x"), call.ints("start"), static_shape(call.results[0])
    if x is None or start is None or shape is None:
        return None
    axis = call.axis(call.int_attr("axis"), x.ndim)
    first = start[0] + x.shape[axis] if start[0] < 0 else start[0]
    return np.take(x, range(first, first + shape[axis]), axis=axis)


def _diagonal_axes(call: OpCall, rank: int) -> tuple[int, int]:
    return call.axis(call.int_attr("axis0"), rank), call.axis(call.int_attr("axis1"), rank)


def _infer_diagonal(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    a, b = _diagonal_axes(call, len(x.shape))
    offset = call.int_attr("offset")
    rows, columns = x.shape[a] + min(offset, 0), x.shape[b] - max(offset, 0)
    kept = [dim for axis, dim in enumerate(x.shape) if axis not in (a, b)]
    return x.with_shape((*kept, dim_max(dim_min(rows, columns), 0)))


def _evaluate_diagonal(call: OpCall) -> Known | None:
    x = call.value("x")
    return None if x is None else np.diagonal(x, call.int_attr("offset"), *_diagonal_axes(call, x.ndim)).copy()


def _infer_unfold(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    shape = x.shape or (1,)
    axis, size = axis_attr(call, len(x.shape)), call.int_attr("size")
    count = floordiv(shape[axis] - size, call.int_attr("step")) + 1
    return x.with_shape((*replaced(shape, axis, count), size) if x.shape else (size,))


def _evaluate_strided(call: OpCall) -> Known | None:
    x, shape, strides, offset = call.value("x"), static_shape(call.results[0]), call.ints("strides"), call.ints("offset")
    if x is None or shape is None or strides is None:
        return None
    index: Any = np.asarray((offset or (0,))[0])
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        index = index + (np.arange(size) * stride).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.asarray(x.reshape(-1)[np.broadcast_to(index, shape)])


_PAIRS = {DType.C64: DType.F32, DType.C128: DType.F64}


def _infer_as_real(call: OpCall) -> TensorType:
    x = call.tensor("x")
    return x.with_shape(None if x.shape is None else (*x.shape, 2)).with_dtype(_PAIRS.get(x.dtype, DType.UNKNOWN))


def _infer_as_complex(call: OpCall) -> TensorType:
    x = call.tensor("x")
    whole = next((pair for pair, part in _PAIRS.items() if part is x.dtype), DType.UNKNOWN)
    if x.shape is None:
        return x.with_dtype(whole)
    if not x.shape:
        raise RuleError(f"{call.spec.name}: the tensor has no axis of real and imaginary parts")
    call.same(x.shape[-1], 2, "size of the last axis")
    return x.with_shape(x.shape[:-1]).with_dtype(whole)


def _infer_view_dtype(call: OpCall) -> TensorType:
    x, to = call.tensor("x"), call.attr("to")
    old, new = x.dtype.bits, to.bits
    if x.shape is None or old is None or new is None or old == new:
        return x.with_shape(x.shape).with_dtype(to)
    if not x.shape:
        raise RuleError(f"{call.spec.name}: a single {x.dtype} cannot be viewed as {to}")
    return x.with_shape((*x.shape[:-1], floordiv(x.shape[-1] * old, new))).with_dtype(to)


def _view(schema: str, infer: Callable[[OpCall], Type | Sequence[Type]], evaluate: Any, summary: str, **facts: Unpack[Facts]) -> OpSpec:
    return op(schema, Family.VIEW, infer=infer, cost=free, evaluate=evaluate, summary=summary, **facts)


_VIEWS = (
    _reordering(
        "view.permute(Tensor(a) x, *, int[]? perm) -> Tensor(a)",
        _permutation,
        "Reorders axes; without `perm` it reverses them.",
        strides=layouts.permuted,
        roles=frozenset({OpRole.TRANSPOSE}),
    ),
    _reordering(
        "view.transpose(Tensor(a) x, *, int axis0, int axis1) -> Tensor(a)",
        _swapped,
        "Swaps two axes.",
        strides=layouts.transposed,
        roles=frozenset({OpRole.TRANSPOSE}),
    ),
    _reordering(
        "view.movedim(Tensor(a) x, *, int[] source, int[] destination) -> Tensor(a)",
        _moved,
        "Moves axes to other places.",
        strides=layouts.axes_moved,
    ),
    _view(
        "view.expand(Tensor(a) x, Dims shape, *, str mode='broadcast') -> Tensor(a)",
        _infer_expand,
        _evaluate_expand,
        "Repeats axes of size 1 without a copy: mode 'broadcast' goes both ways, 'keep' leaves an axis given as -1.",
        strides=layouts.expanded,
        roles=frozenset({OpRole.EXPAND, OpRole.HANDS_ON_MASK}),
    ),
    _view(
        "view.slice(Tensor(a) x, Dims starts, Dims ends, Dims? axes, Dims? steps) -> Tensor(a)",
        _infer_slice,
        _evaluate_slice,
        "Takes a range of some axes; limits may count from the back and lie outside.",
        strides=layouts.sliced,
    ),
    _view(
        "view.select(Tensor(a) x, Dim index, *, int axis) -> Tensor(a)",
        _infer_select,
        _evaluate_select,
        "Takes one position of an axis.",
        strides=layouts.without_axis,
    ),
    _view(
        "view.narrow(Tensor(a) x, Dim start, Dim length, *, int axis) -> Tensor(a)",
        _infer_narrow,
        _evaluate_narrow,
        "Takes a number of positions of an axis.",
        strides=layouts.as_operand,
    ),
    _view(
        "view.diagonal(Tensor(a) x, *, int offset=0, int axis0=0, int axis1=1) -> Tensor(a)",
        _infer_diagonal,
        _evaluate_diagonal,
        "Takes a diagonal of two axes as a new last axis.",
        strides=layouts.diagonal,
    ),
    _view(
        "view.unfold(Tensor(a) x, *, int axis, int size, int step) -> Tensor(a)",
        _infer_unfold,
        None,
        "Windows of an axis as a new last axis.",
        strides=layouts.unfolded,
    ),
    _view(
        "view.as_strided(Tensor(a) x, Dims shape, Dims strides, Dim? offset) -> Tensor(a)",
        lambda call: call.tensor("x").with_shape(given_shape(call)),
        _evaluate_strided,
        "Any sizes and strides over the same storage.",
        strides=layouts.as_given,
    ),
    _view(
        "view.as_real(Tensor(a) x) -> Tensor(a)",
        _infer_as_real,
        None,
        "Complex numbers as pairs of real ones.",
        strides=layouts.complex_as_pairs,
    ),
    _view(
        "view.as_complex(Tensor(a) x) -> Tensor(a)",
        _infer_as_complex,
        None,
        "Pairs of real numbers as complex ones.",
        strides=layouts.pairs_as_complex,
    ),
    _view(
        "view.view_dtype(Tensor(a) x, *, dtype to) -> Tensor(a)",
        _infer_view_dtype,
        None,
        "Reads the same bytes as another element type.",
        strides=layouts.UNSTATED,
    ),
)


# Views that cut a tensor into several.

_MOST_DROPPED = 4096
"""Largest number of unused trailing parts that may lack a result; more are taken for a damaged file."""
_MOST_PARTS = 1_000_000
_BYTES_PER_PART = 400
"""A type, a value and its name, as measured."""


def parts_of(call: OpCall, x: TensorType, axis: int, sizes: Sequence[Dim]) -> list[TensorType]:
    """Return one type a part, each with its size of the axis that is cut."""
    if x.shape is None:
        return [x.with_shape(None)] * len(sizes)
    return [x.with_shape(replaced(x.shape, axis, size)) for size in sizes]


def _axis(call: OpCall, x: TensorType) -> int:
    return 0 if x.shape is None else call.axis(call.int_attr("axis"), len(x.shape))


def _infer_split(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    axis = _axis(call, x)
    if x.shape is None:
        return parts_of(call, x, axis, [0] * _parts_count(call))
    return parts_of(call, x, axis, split_sizes(call, x.shape[axis]))


def _reasonable(call: OpCall, count: int) -> int:
    """Return the number of parts, where they can be had: each of them takes memory."""
    claim(_BYTES_PER_PART * count, f"parts of a tensor ({call.spec.name})")
    if count > _MOST_PARTS:
        raise RuleError(f"{call.spec.name}: {count:,} parts are more than any program has")
    return count


def _parts_count(call: OpCall) -> int:
    count = length_of(call, "sizes")
    if count is None:
        given = call.attr("num_outputs")
        count = given if isinstance(given, int) else len(call.results)
    if count == 0 and not call.given("sizes"):
        raise RuleError(f"{call.spec.name}: the number of parts is not known")
    if call.results and count > len(call.results) + _MOST_DROPPED:
        raise RuleError(f"{call.spec.name}: {count} parts, but {len(call.results)} results")
    return _reasonable(call, count)


def split_sizes(call: OpCall, whole: Dim) -> list[Dim]:
    """Return sizes of the parts: given one by one, all but the last equal to `size`, or as many equal ones as there are results."""
    given = call.dims("sizes")
    if given is not None:
        sizes = [as_size(call, dim, "sizes") for dim in given]
        call.same(sum(sizes, start=0), whole, "sum of the parts' sizes")
        return sizes
    if call.given("sizes"):
        reason = "it depends on the values of operand 'sizes'"
        return [call.unknown(reason, "sizes", 0, whole) for _ in range(_parts_count(call))]
    size = call.attr("size")
    if size is not None:
        return _equal_parts(call, whole, size, _number_of_parts(call, whole, size))
    count = _parts_count(call)
    if call.attr("num_outputs") is None:
        call.same(mod(whole, count), 0, f"{whole} can be split into {count} equal parts")
        return [floordiv(whole, count)] * count
    return _equal_parts(call, whole, ceildiv(whole, count), count)


def _number_of_parts(call: OpCall, whole: Dim, size: Dim) -> int:
    count = dim_max(ceildiv(whole, size), 1) if isinstance(size, SymDim) or size > 0 else 1
    if not isinstance(count, SymDim):
        return count
    if not call.results:
        raise RuleError(f"{call.spec.name}: the number of parts of size {size} in {whole} is not known")
    return len(call.results)


def _equal_parts(call: OpCall, whole: Dim, size: Dim, count: int) -> list[Dim]:
    """Return the parts of one size, of which the last ones may be smaller or empty."""
    _reasonable(call, count)
    if not isinstance(whole, SymDim) and not isinstance(size, SymDim):
        return [max(0, min(size, whole - size * index)) for index in range(count)]
    # A part before the last one of `count` can only be short where the formula says that even the last one is missing.
    return [dim_max(dim_min(size, whole - size * index), 0) for index in range(count)]


def _infer_chunk(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    chunks = call.int_attr("chunks")
    if x.shape is None:
        return parts_of(call, x, 0, [0] * (len(call.results) or _reasonable(call, chunks)))
    axis = _axis(call, x)
    whole = x.shape[axis]
    if isinstance(whole, SymDim):
        return parts_of(call, x, axis, _equal_parts(call, whole, ceildiv(whole, chunks), len(call.results) or chunks))
    size = -(-whole // chunks)
    return parts_of(call, x, axis, _equal_parts(call, whole, size, -(-whole // size) if size else chunks))


def _infer_tensor_split(call: OpCall) -> Sequence[TensorType]:
    """The first `whole % sections` parts are one larger than the others."""
    x = call.tensor("x")
    sections = _reasonable(call, call.int_attr("sections"))
    if x.shape is None:
        return parts_of(call, x, 0, [0] * sections)
    axis = _axis(call, x)
    whole = x.shape[axis]
    return parts_of(call, x, axis, [floordiv(whole + sections - 1 - index, sections) for index in range(sections)])


def _infer_unbind(call: OpCall) -> Sequence[TensorType]:
    x = call.tensor("x")
    if x.shape is None:
        return [x.with_shape(None)] * len(call.results)
    axis = _axis(call, x)
    count = x.shape[axis]
    if isinstance(count, SymDim):
        if not call.results:
            raise RuleError(f"{call.spec.name}: the number of parts is the unbound size {count}")
        call.same(count, len(call.results), "number of parts")
        count = len(call.results)
    return [x.with_shape(replaced(x.shape, axis))] * _reasonable(call, count)


def _evaluate_parts(call: OpCall) -> list[Known] | None:
    x = call.value("x")
    shapes = [static_shape(result) for result in call.results]
    if x is None or None in shapes:
        return None
    axis = axis_attr(call, x.ndim)
    sizes = [shape[axis] for shape in shapes if shape is not None]
    return list(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def _evaluate_unbind(call: OpCall) -> list[Known] | None:
    x = call.value("x")
    if x is None:
        return None
    axis = axis_attr(call, x.ndim)
    return [np.asarray(np.take(x, index, axis=axis), dtype=x.dtype) for index in range(x.shape[axis])]


def _cut(
    schema: str,
    infer: Callable[[OpCall], Sequence[TensorType]],
    summary: str,
    evaluate: Callable[[OpCall], list[Known] | None] = _evaluate_parts,
    **facts: Unpack[Facts],
) -> OpSpec:
    return op(schema, Family.VIEW, infer=infer, cost=free, evaluate=evaluate, summary=summary, **facts)


_SPLITS = (
    _cut(
        "view.split(Tensor(a) x, Dims? sizes, *, int axis=0, Dim? size, int? num_outputs) -> Tensor(a)[]",
        _infer_split,
        "Cuts an axis into parts of the given `sizes`, of one `size`, or into as many equal parts as there are results.",
        strides=layouts.as_operand,
    ),
    _cut(
        "view.chunk(Tensor(a) x, *, int chunks, int axis=0) -> Tensor(a)[]",
        _infer_chunk,
        "Cuts an axis into at most `chunks` equal parts.",
        strides=layouts.as_operand,
    ),
    _cut(
        "view.tensor_split(Tensor(a) x, *, int sections, int axis=0) -> Tensor(a)[]",
        _infer_tensor_split,
        "Cuts an axis into `sections` parts whose sizes differ by at most one.",
        strides=layouts.as_operand,
    ),
    _cut(
        "view.unbind(Tensor(a) x, *, int axis=0) -> Tensor(a)[]",
        _infer_unbind,
        "One tensor a position of an axis.",
        _evaluate_unbind,
        strides=layouts.without_axis,
    ),
)


OPS = (*_VIEWS, *_SPLITS)

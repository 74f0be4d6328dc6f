"""Views that cut a tensor into several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np

from irscope.budget import claim
from irscope.ir.dims import Dim, SymDim, ceildiv, dim_max, dim_min, floordiv, mod
from irscope.ir.types import TensorType
from irscope.ops import layouts, slicing
from irscope.ops.rules import free
from irscope.ops.sizes import as_size, axis_attr, length_of, replaced
from irscope.ops.spec import Facts, Family, Known, OpCall, OpSpec, RuleError, op
from irscope.ops.values import static_shape

_MOST_DROPPED = 4096
"""How many unused trailing parts may lack a result; more are taken for a damaged file."""
_MOST_PARTS = 1_000_000
_BYTES_PER_PART = 400
"""A type, a value and its name, as measured."""


def parts_of(call: OpCall, x: TensorType, axis: int, sizes: Sequence[Dim]) -> list[TensorType]:
    """One type a part, each with its size of the axis that is cut."""
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
    """The number of parts, where they can be had: each of them takes memory."""
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
    """Sizes of the parts: given one by one, all but the last equal to `size`, or as many equal ones as there are results."""
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
    """Parts of one size, of which the last ones may be smaller or empty."""
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


OPS = (
    _cut(
        "view.split(Tensor(a) x, Dims? sizes, *, int axis=0, Dim? size, int? num_outputs) -> Tensor(a)[]",
        _infer_split,
        "Cuts an axis into parts of the given `sizes`, of one `size`, or into as many equal parts as there are results.",
        strides=layouts.as_operand,
        slices=slicing.split,
    ),
    _cut(
        "view.chunk(Tensor(a) x, *, int chunks, int axis=0) -> Tensor(a)[]",
        _infer_chunk,
        "Cuts an axis into at most `chunks` equal parts.",
        strides=layouts.as_operand,
        slices=slicing.split,
    ),
    _cut(
        "view.tensor_split(Tensor(a) x, *, int sections, int axis=0) -> Tensor(a)[]",
        _infer_tensor_split,
        "Cuts an axis into `sections` parts whose sizes differ by at most one.",
        strides=layouts.as_operand,
        slices=slicing.split,
    ),
    _cut(
        "view.unbind(Tensor(a) x, *, int axis=0) -> Tensor(a)[]",
        _infer_unbind,
        "One tensor a position of an axis.",
        _evaluate_unbind,
        strides=layouts.without_axis,
    ),
)

"""Operators that only move elements: copies, concatenation, padding, rearrangement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from irscope.ir.dims import Dim, SymDim, equal, product
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import layouts, slicing
from irscope.ops.binary import number_array
from irscope.ops.cost import Cost
from irscope.ops.ort import in_place
from irscope.ops.promotion import result_dtype
from irscope.ops.rules import broadcast_shapes, device_of, like_first, moved, total_bytes
from irscope.ops.scratch.picking import pad_rule, roll_rule
from irscope.ops.sizes import as_size, axis_attr, given_axes, length_of, replaced, unknown_sizes
from irscope.ops.spec import SIZES, Facts, Family, Known, OpCall, OpRole, OpSpec, RuleError, Temporaries, op
from irscope.ops.values import Array, as_ints, as_objects, is_symbolic, settle, static_shape


def alike(arrays: Sequence[Array]) -> list[Array]:
    """Arrays that may stand in one: all of objects where one is."""
    if any(array.dtype == object for array in arrays):
        return [array if array.dtype == object else as_objects(array) for array in arrays]
    return list(arrays)


def _infer_concat(call: OpCall) -> Type:
    parts = call.rest("xs")
    if not parts:
        raise RuleError(f"{call.spec.name} has no operands")
    dtype = result_dtype(parts)
    device = device_of(parts)
    shapes = _without_empty_vectors(call, [part.shape for part in parts])
    rank = next((len(shape) for shape in shapes if shape is not None), None)
    if rank is None:
        return tensor(dtype, None, device)
    axis = call.axis(call.int_attr("axis"), rank)
    return tensor(dtype, _joined(call, shapes, rank, axis), device)


def _without_empty_vectors(call: OpCall, shapes: Sequence[Shape]) -> Sequence[Shape]:
    """PyTorch skips empty vectors whatever the other ranks are."""
    if all(shape is None or len(shape) == 1 for shape in shapes):
        return shapes
    kept = [shape for shape in shapes if shape is None or len(shape) != 1 or equal(shape[0], 0) is False]
    for shape in shapes:
        if shape is not None and len(shape) == 1 and equal(shape[0], 0) is None:
            call.same(shape[0], 0, "size of a vector among tensors with more axes")
    return kept


def _joined(call: OpCall, shapes: Sequence[tuple[Dim, ...] | None], rank: int, axis: int) -> list[Dim]:
    known = [shape for shape in shapes if shape is not None]
    if any(len(shape) != rank for shape in known):
        raise RuleError(f"{call.spec.name}: the operands have {sorted({len(shape) for shape in known})} axes")
    result = list(known[0])
    for shape in known[1:]:
        for place in range(rank):
            if place != axis:
                result[place] = call.same(result[place], shape[place], f"size of axis {place}")
    result[axis] = sum((shape[axis] for shape in known), start=0)
    if len(known) < len(shapes):
        low = result[axis]
        result[axis] = call.unknown("an operand's shape is not known", SIZES, 0 if isinstance(low, SymDim) else low)
    return result


def _evaluate_concat(call: OpCall) -> Known | None:
    arrays = [value for value in call.values if value is not None]
    result = call.results[0]
    if len(arrays) < len(call.types) or result.shape is None:
        return None
    parts = [array for array in arrays if array.ndim == len(result.shape)]
    joined = np.concatenate(alike(parts), axis=call.axis(call.int_attr("axis"), len(result.shape)))
    return settle(joined, result.dtype)


def _infer_stack(call: OpCall) -> Type:
    parts = call.rest("xs")
    if not parts:
        raise RuleError(f"{call.spec.name} has no operands")
    dtype, device = result_dtype(parts), device_of(parts)
    known = [part.shape for part in parts if part.shape is not None]
    if not known:
        return tensor(dtype, None, device)
    shape = list(known[0])
    for other in known[1:]:
        if len(other) != len(shape):
            raise RuleError(f"{call.spec.name}: the operands have different numbers of axes")
        shape = [call.same(a, b, "sizes of stacked tensors") for a, b in zip(shape, other, strict=True)]
    axis = call.axis(call.int_attr("axis"), len(shape) + 1)
    return tensor(dtype, (*shape[:axis], len(parts), *shape[axis:]), device)


def _evaluate_stack(call: OpCall) -> Known | None:
    arrays = [value for value in call.values if value is not None]
    if len(arrays) < len(call.types):
        return None
    return settle(np.stack(alike(arrays), axis=call.axis(call.int_attr("axis"), arrays[0].ndim + 1)), call.made().dtype)


def _infer_tile(call: OpCall) -> TensorType:
    x, repeats = call.tensor("x"), call.dims("repeats")
    if x.shape is None:
        return x.with_shape(None)
    if repeats is None:
        count = length_of(call, "repeats")
        return x.with_shape(unknown_sizes(call, "repeats", None if count is None else max(count, len(x.shape))))
    rank = max(len(x.shape), len(repeats))
    old = (1,) * (rank - len(x.shape)) + x.shape
    times = (1,) * (rank - len(repeats)) + repeats
    return x.with_shape(size * as_size(call, count, "repeats") for size, count in zip(old, times, strict=True))


def _evaluate_tile(call: OpCall) -> Known | None:
    x, repeats = call.value("x"), call.ints("repeats")
    return None if x is None or repeats is None else np.tile(x, repeats)


def _infer_interleave(call: OpCall) -> TensorType:
    x = call.tensor("x")
    axis = call.attr("axis")
    if x.shape is None:
        return x.with_shape(None if axis is not None else unknown_sizes(call, "x", 1))
    shape = x.shape if axis is not None else (product(x.shape),)
    place = axis_attr(call, len(shape)) if axis is not None else 0
    return x.with_shape(replaced(shape or (1,), place, _interleaved_size(call, (shape or (1,))[place])))


def _interleaved_size(call: OpCall, size: Dim) -> Dim:
    count, total = call.attr("count"), call.attr("output_size")
    if total is not None:
        return as_size(call, total, "output_size")
    if count is not None:
        return size * as_size(call, count, "count")
    repeats = call.value("repeats")
    if repeats is None or is_symbolic(repeats):
        return call.unknown("it is the sum of the repeats", "repeats")
    return size * int(repeats.reshape(-1)[0]) if repeats.size == 1 else int(repeats.sum())


def _evaluate_interleave(call: OpCall) -> Known | None:
    x, count = call.value("x"), call.attr("count")
    repeats = np.asarray(count) if isinstance(count, int) else call.value("repeats")
    if x is None or repeats is None or is_symbolic(repeats):
        return None
    return np.repeat(x, repeats.astype(np.int64), axis=call.attr("axis"))


def _pads(call: OpCall, rank: int) -> list[tuple[Dim, Dim]] | None:
    """Elements added before and after each axis; None where they are not known."""
    pads = call.dims("pads")
    axes = given_axes(call, "axes", rank) if call.given("axes") else tuple(range(rank))
    if pads is None or axes is None:
        return None
    if len(pads) != 2 * len(axes):
        raise RuleError(f"{call.spec.name}: {len(pads)} pads for {len(axes)} axes")
    result: list[tuple[Dim, Dim]] = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        result[axis] = (pads[place], pads[place + len(axes)])
    return result


def _infer_pad(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    pads = _pads(call, len(x.shape))
    if pads is not None:
        return x.with_shape(size + before + after for size, (before, after) in zip(x.shape, pads, strict=True))
    axes = given_axes(call, "axes", len(x.shape)) if call.given("axes") else None
    return x.with_shape(
        size if axes is not None and axis not in axes else call.unknown("it depends on the values of operand 'pads'", "pads")
        for axis, size in enumerate(x.shape)
    )


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "replicate": "edge", "wrap": "wrap", "circular": "wrap"}


def _evaluate_pad(call: OpCall) -> Known | None:
    x = call.value("x")
    pads = None if x is None else _pads(call, x.ndim)
    mode = _PAD_MODES.get(call.attr("mode"))
    if x is None or pads is None or mode is None or any(isinstance(side, SymDim) for both in pads for side in both):
        return None
    cut = x[tuple(slice(max(0, -before), size - max(0, -after)) for size, (before, after) in zip(x.shape, pads, strict=True))]
    widths: Any = [(max(0, before), max(0, after)) for before, after in pads]
    if mode != "constant":
        return None if 0 in cut.shape or x.dtype == object else np.pad(cut, widths, mode=mode)  # type: ignore[call-overload]
    fill = call.value("value") if call.given("value") else number_array(call.attr("fill"))
    if fill is None or fill.size != 1 or (x.dtype != object and is_symbolic(fill)):
        return None
    return np.pad(cut, widths, constant_values=fill.reshape(-1)[0])


def _evaluate_flip(call: OpCall) -> Known | None:
    x = call.value("x")
    return None if x is None else np.flip(x, tuple(call.axis(axis, x.ndim) for axis in call.attr("axes")))


def _evaluate_roll(call: OpCall) -> Known | None:
    x = call.value("x")
    if x is None or any(isinstance(shift, SymDim) for shift in call.attr("shifts")):
        return None
    axes = call.attr("axes")
    return np.roll(x, call.attr("shifts"), axis=axes) if axes else np.roll(x, call.attr("shifts")[0])


def _evaluate_trilu(call: OpCall) -> Known | None:
    x = call.value("x")
    k = call.ints("k") if call.given("k") else (0,)
    if x is None or k is None or x.dtype == object:
        return None
    return np.triu(x, k[0]) if call.attr("upper") else np.tril(x, k[0])


def _evaluate_reverse_sequence(call: OpCall) -> Known | None:
    x, lengths = call.value("x"), call.value("sequence_lens")
    ints = None if lengths is None else as_ints(lengths)
    if x is None or ints is None:
        return None
    batch, time = call.axis(call.int_attr("batch_axis"), x.ndim), call.axis(call.int_attr("time_axis"), x.ndim)
    turned = np.moveaxis(x, (batch, time), (0, 1)).copy()
    for row, length in enumerate(ints):
        turned[row, :length] = turned[row, :length][::-1]
    return np.moveaxis(turned, (0, 1), (batch, time))


def _infer_crop_pad(call: OpCall) -> TensorType:
    x, target = call.tensor("x"), call.dims("shape")
    if x.shape is None:
        return x.with_shape(None)
    axes = given_axes(call, "axes", len(x.shape)) if call.given("axes") else tuple(range(len(x.shape)))
    shape = list(x.shape)
    for place, axis in enumerate(axes or ()):
        known = target[place] if target is not None else None
        reason = "it depends on the values of operand 'shape'"
        shape[axis] = call.unknown(reason, "shape") if known is None else as_size(call, known, "shape")
    return x.with_shape(shape)


def _evaluate_crop_pad(call: OpCall) -> Known | None:
    x, shape = call.value("x"), static_shape(call.results[0])
    if x is None or shape is None:
        return None
    made = np.zeros(shape, dtype=x.dtype)
    source, target = [], []
    for old, new in zip(x.shape, shape, strict=True):
        size = min(old, new)
        source.append(slice((old - size) // 2, (old - size) // 2 + size))
        target.append(slice((new - size) // 2, (new - size) // 2 + size))
    made[tuple(target)] = x[tuple(source)]
    return made


def _infer_meshgrid(call: OpCall) -> Sequence[TensorType]:
    parts = call.rest("xs")
    counts = [None if part.numel is None else part.numel for part in parts]
    shape = None if None in counts else [count for count in counts if count is not None]
    if shape is not None and call.attr("indexing") == "xy" and len(shape) > 1:
        shape[0], shape[1] = shape[1], shape[0]
    return [part.with_shape(shape) for part in parts]


def _infer_copy_into(call: OpCall) -> TensorType:
    x, source = call.tensor("x"), call.tensor("source")
    broadcast_shapes(call, [x.shape, source.shape])
    return x.with_shape(x.shape)


def _evaluate_copy_into(call: OpCall) -> Known | None:
    x, source = call.tensor("x"), call.value("source")
    shape = static_shape(x)
    return None if source is None or shape is None else settle(np.broadcast_to(source, shape), x.dtype).copy()


def first_copy(call: OpCall) -> Known | None:
    """Evaluate rule: the first operand's values unchanged."""
    return call.values[0]


def move(
    schema: str,
    infer: Any,
    evaluate: Callable[[OpCall], Any] | None,
    summary: str,
    family: Family = Family.MOVE,
    temporaries: Temporaries | None = None,
    **facts: Unpack[Facts],
) -> OpSpec:
    """A record of an operator that only moves elements."""
    return op(schema, family, infer=infer, cost=moved, evaluate=evaluate, temporaries=temporaries, summary=summary, **facts)


OPS = (
    move(
        "tensor.copy(Tensor x) -> Tensor",
        like_first,
        first_copy,
        "A copy in storage of its own.",
        strides=layouts.copied,
        roles=frozenset({OpRole.COPY, OpRole.LAYS_OUT}),
        slices=slicing.same,
    ),
    op(
        "tensor.copy_into(Tensor x, Tensor source) -> Tensor",
        Family.MOVE,
        infer=_infer_copy_into,
        cost=lambda call: Cost(read=total_bytes(call.types[1:])),
        evaluate=_evaluate_copy_into,
        needs_values=False,
        summary="One tensor's elements in the sizes and element type of another one, which it overwrites where it works in place.",
    ),
    move(
        "tensor.concat(Tensor[] xs, *, int axis) -> Tensor",
        _infer_concat,
        _evaluate_concat,
        "Joins tensors along an axis.",
        strides=layouts.joined,
        roles=frozenset({OpRole.CONCATENATE}),
        slices=slicing.joined,
    ),
    move(
        "tensor.stack(Tensor[] xs, *, int axis=0) -> Tensor",
        _infer_stack,
        _evaluate_stack,
        "Joins tensors along a new axis.",
        strides=layouts.stacked,
        roles=frozenset({OpRole.STACK}),
    ),
    move(
        "tensor.tile(Tensor x, Dims repeats) -> Tensor",
        _infer_tile,
        _evaluate_tile,
        "Repeats the whole tensor along each axis.",
        roles=frozenset({OpRole.SPREAD}),
    ),
    move(
        "tensor.repeat_interleave(Tensor x, Tensor? repeats, *, Dim? count, int? axis, Dim? output_size) -> Tensor",
        _infer_interleave,
        _evaluate_interleave,
        "Repeats each position of an axis, or of the flattened tensor.",
        roles=frozenset({OpRole.SPREAD}),
    ),
    move(
        "tensor.pad(Tensor x, Dims pads, Tensor? value, Dims? axes, *, str mode='constant', any fill=0) -> Tensor",
        _infer_pad,
        _evaluate_pad,
        "Adds elements around a tensor: all `pads` before, then all behind; negative ones cut off.",
        temporaries=pad_rule,
        strides=layouts.KEEPS_CHANNELS_LAST,
        slices=slicing.padded,
    ),
    move(
        "tensor.roll(Tensor x, *, Dims shifts, int[]? axes) -> Tensor",
        like_first,
        _evaluate_roll,
        "Moves elements around in a circle.",
        temporaries=roll_rule,
        strides=layouts.rolled,
    ),
    move("tensor.flip(Tensor x, *, int[] axes) -> Tensor", like_first, _evaluate_flip, "Reverses axes.", strides=layouts.POINTWISE),
    move(
        "tensor.trilu(Tensor x, Dim? k, *, bool upper=True) -> Tensor",
        like_first,
        _evaluate_trilu,
        "Keeps one side of a diagonal, zeros elsewhere.",
        ort=in_place("Trilu"),
        roles=frozenset({OpRole.TRIANGLE}),
    ),
    move(
        "tensor.reverse_sequence(Tensor x, Tensor sequence_lens, *, int batch_axis=1, int time_axis=0) -> Tensor",
        like_first,
        _evaluate_reverse_sequence,
        "Reverses the beginning of each sequence of a batch.",
    ),
    move(
        "tensor.center_crop_pad(Tensor x, Dims shape, *, int[]? axes) -> Tensor",
        _infer_crop_pad,
        _evaluate_crop_pad,
        "Crops or pads around the centre to the given sizes.",
    ),
    move(
        "tensor.meshgrid(Tensor[] xs, *, str indexing='ij') -> Tensor[]",
        _infer_meshgrid,
        None,
        "Coordinates of a grid from those of its axes.",
        strides=layouts.grid,
    ),
)

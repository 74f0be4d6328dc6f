"""Operators that move elements: joins, copies, padding, rearrangements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from irscope.ir.dims import Dim, SymDim, equal, floordiv, product
from irscope.ir.types import Shape, TensorType, Type, tensor
from irscope.ops import layouts
from irscope.ops.binary import number_array
from irscope.ops.cost import Cost
from irscope.ops.facts import OpRole
from irscope.ops.ort import in_place
from irscope.ops.rules import (
    as_size,
    axis_attr,
    broadcast_shapes,
    device_of,
    given_axes,
    length_of,
    like_first,
    moved,
    replaced,
    result_dtype,
    total_bytes,
    unknown_sizes,
)
from irscope.ops.scratch.ordering import pad_rule, roll_rule, windows_rule
from irscope.ops.spec import SIZES, Facts, Family, Known, OpCall, OpSpec, RuleError, numel, op
from irscope.ops.values import Array, as_ints, as_objects, is_symbolic, settle, static_shape

# Operators that only move elements: copies, concatenation, padding, rearrangement.


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
    """Return elements added before and after each axis; None where they are not known."""
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
    schema: str, infer: Any, evaluate: Callable[[OpCall], Any] | None, summary: str, family: Family = Family.MOVE, **facts: Unpack[Facts]
) -> OpSpec:
    """Return a record of an operator that only moves elements."""
    return op(schema, family, infer=infer, cost=moved, evaluate=evaluate, summary=summary, **facts)


_MOVE = (
    move(
        "tensor.copy(Tensor x) -> Tensor",
        like_first,
        first_copy,
        "A copy in storage of its own.",
        strides=layouts.copied,
        roles=frozenset({OpRole.COPY, OpRole.LAYS_OUT}),
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
        "Adds elements around a tensor: all `pads` before, then all after; negative ones cut off.",
        temporaries=pad_rule,
        strides=layouts.KEEPS_CHANNELS_LAST,
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


# Operators that trade channels for space and windows for columns.


def _infer_depth_to_space(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    *batch, channels, height, width = x.shape
    block = call.int_attr("blocksize")
    return x.with_shape((*batch, _divided(call, channels, block * block), height * block, width * block))


def _infer_space_to_depth(call: OpCall) -> TensorType:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    *batch, channels, height, width = x.shape
    block = call.int_attr("blocksize")
    return x.with_shape((*batch, channels * block * block, _divided(call, height, block), _divided(call, width, block)))


def _divided(call: OpCall, size: Dim, parts: Dim) -> Dim:
    quotient = floordiv(size, parts)
    call.same(quotient * parts, size, f"{size} divides by {parts}")
    return quotient


def _evaluate_depth_to_space(call: OpCall) -> Known | None:
    x, shape = call.value("x"), static_shape(call.results[0])
    if x is None or shape is None:
        return None
    block = call.int_attr("blocksize")
    *_, channels, height, width = x.shape
    if call.attr("mode") == "DCR":
        cut, order = (block, block, channels // block**2), (0, 3, 4, 1, 5, 2)
    else:
        cut, order = (channels // block**2, block, block), (0, 1, 4, 2, 5, 3)
    return x.reshape(-1, *cut, height, width).transpose(order).reshape(shape)


def _evaluate_space_to_depth(call: OpCall) -> Known | None:
    x, shape = call.value("x"), static_shape(call.results[0])
    if x is None or shape is None:
        return None
    block = call.int_attr("blocksize")
    *_, channels, height, width = x.shape
    cut = x.reshape(-1, channels, height // block, block, width // block, block)
    order = (0, 3, 5, 1, 2, 4) if call.attr("mode") == "DCR" else (0, 1, 3, 5, 2, 4)
    return cut.transpose(order).reshape(shape)


def _evaluate_channel_shuffle(call: OpCall) -> Known | None:
    x = call.value("x")
    if x is None:
        return None
    groups = call.int_attr("groups")
    return x.reshape(x.shape[0], groups, -1, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)


def _per_axis(call: OpCall, name: str, count: int, default: int) -> tuple[int, ...]:
    """Return one number an axis; a single given number counts for all."""
    given = tuple(call.attr(name) or ()) or (default,)
    return given * count if len(given) == 1 else given


def _windows(call: OpCall, size: Sequence[Dim], kernel: Sequence[Dim]) -> list[Dim]:
    """Return how many windows fit along each axis."""
    rank = len(size)
    strides, dilations = _per_axis(call, "strides", rank, 1), _per_axis(call, "dilations", rank, 1)
    pads = _per_axis(call, "pads", 2 * rank, 0)
    pads = pads * 2 if len(pads) == rank else pads
    return [
        floordiv(size[axis] + pads[axis] + pads[axis + rank] - dilations[axis] * (kernel[axis] - 1) - 1, strides[axis]) + 1
        for axis in range(rank)
    ]


def _infer_im2col(call: OpCall) -> TensorType:
    x = call.tensor("x")
    kernel = call.attr("kernel_shape")
    if x.shape is None:
        return x.with_shape(None)
    rank = len(kernel)
    if len(x.shape) not in (rank + 1, rank + 2):
        raise RuleError(f"{call.spec.name}: {len(x.shape)} axes for a window of {rank}")
    *batch, channels = x.shape[:-rank]
    return x.with_shape((*batch, channels * product(kernel), product(_windows(call, x.shape[-rank:], kernel))))


def _infer_col2im(call: OpCall) -> TensorType:
    x = call.tensor("x")
    image, block = call.dims("image_shape"), call.dims("block_shape")
    if x.shape is None or image is None:
        return x.with_shape(None)
    if block is None:
        channels: Dim = call.unknown("the number of channels depends on operand 'block_shape'", "block_shape")
    else:
        channels = _divided(call, x.shape[-2], product(block))
        call.same(x.shape[-1], product(_windows(call, image, block)), "number of windows")
    return x.with_shape((*x.shape[:-2], channels, *(as_size(call, size, "image_shape") for size in image)))


_REARRANGE = (
    move(
        "tensor.depth_to_space(Tensor x, *, int blocksize, str mode='DCR') -> Tensor",
        _infer_depth_to_space,
        _evaluate_depth_to_space,
        "Moves channels into blocks of height and width: mode DCR takes the blocks first, CRD the channels.",
        roles=frozenset({OpRole.UPSAMPLE}),
    ),
    move(
        "tensor.space_to_depth(Tensor x, *, int blocksize, str mode='DCR') -> Tensor",
        _infer_space_to_depth,
        _evaluate_space_to_depth,
        "Moves blocks of height and width into channels: mode DCR puts the blocks first, CRD the channels.",
    ),
    move(
        "tensor.channel_shuffle(Tensor x, *, int groups) -> Tensor",
        like_first,
        _evaluate_channel_shuffle,
        "Interleaves groups of channels.",
    ),
    move(
        "tensor.im2col(Tensor x, *, int[] kernel_shape, int[]? strides, int[]? pads, int[]? dilations) -> Tensor",
        _infer_im2col,
        None,
        "Writes every window as a column; one pad an axis counts for both ends.",
        temporaries=windows_rule,
    ),
    op(
        "tensor.col2im(Tensor x, Dims image_shape, Dims block_shape, *, int[]? strides, int[]? pads, int[]? dilations) -> Tensor",
        Family.MOVE,
        infer=_infer_col2im,
        cost=lambda call: Cost(elementwise=numel(call.types[0])),
        summary="Sums columns back into the windows they stand for.",
    ),
)


# Layouts with channels in blocks, as ONNX Runtime's CPU kernels like them.


def _infer_blocked(call: OpCall) -> Type:
    x = call.tensor("x")
    if x.shape is None:
        return x.with_shape(None)
    if len(x.shape) < 3:
        raise RuleError(f"{call.spec.name} needs images, not {x}")
    batch, rest = x.shape[0], list(x.shape[1:])
    channels = rest.pop() if call.attr("channels_last") else rest.pop(0)
    return x.with_shape((batch, _rounded_up(channels, call.int_attr("block")), *rest))


def _rounded_up(size: Dim, block: int) -> Dim:
    return floordiv(size + (block - 1), block) * block


_BLOCKED = (
    op(
        "tensor.block_channels(Tensor x, *, int block=16, bool channels_last=False) -> Tensor",
        Family.MOVE,
        infer=_infer_blocked,
        cost=moved,
        summary="Puts channels into blocks of 8 (AVX2) or 16 (AVX-512); channels that fill up the last block are added.",
    ),
)


OPS = (*_MOVE, *_REARRANGE, *_BLOCKED)

"""Operators that trade channels for space and windows for columns."""

from __future__ import annotations

from collections.abc import Sequence

from irscope.ir.dims import Dim, floordiv, product
from irscope.ir.types import TensorType
from irscope.ops.cost import Cost
from irscope.ops.move import move
from irscope.ops.rules import like_first
from irscope.ops.scratch.picking import windows_rule
from irscope.ops.sizes import as_size
from irscope.ops.spec import Family, Known, OpCall, OpRole, RuleError, numel, op
from irscope.ops.values import static_shape


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
    """One number an axis; a single given number counts for all."""
    given = tuple(call.attr(name) or ()) or (default,)
    return given * count if len(given) == 1 else given


def _windows(call: OpCall, size: Sequence[Dim], kernel: Sequence[Dim]) -> list[Dim]:
    """How many windows fit along each axis."""
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


OPS = (
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

"""Normalizations: saved statistics (made even without gradients), factors of each channel, contiguous copies."""

from __future__ import annotations

from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType
from irscope.ops.scratch.recorder import Scratch, count, is_channels_last, is_half, nbytes, rule, same, sizes, width

_SINGLE = 4
_EVAL_BATCH_LIMIT = 65535
_TRAINING_BATCH_LIMIT = 880801
_FLAT_BATCH_LIMIT = 131070


def _statistic(dtype: DType) -> int:
    """Bytes of a mean: single precision unless the elements are wider."""
    return max(width(dtype), _SINGLE)


def _trailing(axis: object, rank: int) -> int:
    """How many of the last axes are normalized over."""
    first = axis if isinstance(axis, int) else -1
    return -first if first < 0 else rank - first


@rule
def layer_norm_rule(scratch: Scratch) -> None:
    layer_norm(scratch, scratch.call.tensor("x"), _trailing(scratch.call.attr("axis"), len(sizes(scratch.call.tensor("x")))))


def layer_norm(scratch: Scratch, x: TensorType, trailing: int, make: str | None = None) -> str:
    """A copy that lies row by row, the result, mean and deviation of each row."""
    shape = sizes(x)
    rows = product(shape[: len(shape) - trailing]) * _statistic(x.dtype)
    copy = scratch.copy_unless_contiguous(x, "contiguous input")
    name = ""
    if make is None:
        scratch.result()
    else:
        name = scratch.take(make, nbytes(x))
    saved = len(scratch.call.results) > 1 and make is None
    if saved:
        scratch.result(1)
        scratch.result(2)
        scratch.drop(copy)
    else:
        mean, deviation = scratch.take("mean", rows), scratch.take("deviation", rows)
        scratch.drop(copy, mean, deviation)
    return name


@rule
def rms_norm_rule(scratch: Scratch) -> None:
    call = scratch.call
    x, scale = call.tensor("x"), call.maybe("scale")
    shape = sizes(x)
    rows = product(shape[: len(shape) - _trailing(call.attr("axis"), len(shape))]) * _statistic(x.dtype)
    if scale is None or scale.dtype is x.dtype:
        copy = scratch.copy_unless_contiguous(x, "contiguous input")
        scratch.result()
        deviation = scratch.take("deviation", rows)
        scratch.drop(copy, deviation)
        return
    # Weights of another type: composed of plain operators in single precision.
    full, wanted = count(x) * _SINGLE, max(width(scale.dtype), width(x.dtype))
    upcast = scratch.take("input in single precision", full) if is_half(x.dtype) else ""
    squares = scratch.take("squares", full)
    mean = scratch.take("mean of squares", rows)
    root = scratch.take("reciprocal root", rows)
    scratch.drop(mean, squares)
    scaled = scratch.take("normalized", full)
    weighted = scratch.take("weighted", count(x) * wanted)
    scratch.drop(scaled, upcast)
    scratch.result()
    scratch.drop(weighted, root)


@rule
def group_norm_rule(scratch: Scratch) -> None:
    """Mean and deviation of each group; with factors, their products with the deviation for each channel of each sample."""
    call = scratch.call
    x, scale, bias = call.tensor("x"), call.maybe("scale"), call.maybe("bias")
    shape = sizes(x)
    late = scratch.torch >= (2, 14)
    first = "" if late else scratch.copy_unless_contiguous(x, "contiguous input")
    scratch.result()
    statistics = shape[0] * call.int_attr("num_groups")
    saved = len(call.results) > 1
    names = [] if saved else [scratch.take(name, statistics * width(x.dtype)) for name in ("mean", "deviation")]
    if saved:
        scratch.result(1)
        scratch.result(2)
    kept_as_is = scratch.torch >= (2, 15) and is_channels_last(x)
    second = scratch.copy_unless_contiguous(x, "contiguous input") if late and not kept_as_is else ""
    widened = is_half(x.dtype) and scratch.torch >= (2, 13)
    wide = [scratch.take("statistics in single precision", statistics * _SINGLE) for _ in range(2)] if widened else []
    factors: list[str] = []
    if (scale is not None or bias is not None) and not _one_element_each(scratch, shape):
        factors = [scratch.take("factors of channels", shape[0] * shape[1] * _statistic(x.dtype)) for _ in range(2)]
    scratch.drop(*factors, *wide, second, *names, first)


def _one_element_each(scratch: Scratch, shape: tuple[Dim, ...]) -> bool:
    """Channels of one element go another way; since torch 2.15 only where there are no spatial axes."""
    return len(shape) == 2 if scratch.torch >= (2, 15) else same(product(shape[2:]), 1)


@rule
def instance_norm_rule(scratch: Scratch) -> None:
    """A batch normalization of all samples' channels as if they were one sample's; factors are repeated for each."""
    call = scratch.call
    x, scale, bias = call.tensor("x"), call.maybe("scale"), call.maybe("bias")
    shape = sizes(x)
    channels = shape[0] * shape[1]
    repeated = [scratch.take("repeated factors", channels * width(one.dtype)) for one in (scale, bias) if one is not None]
    copy = scratch.copy_unless_contiguous(x, "contiguous input")
    scratch.result()
    statistics = channels * _statistic(x.dtype)
    mean, deviation = scratch.take("mean", statistics), scratch.take("deviation", statistics)
    if scale is not None and bias is not None and not (is_half(x.dtype) and is_half(scale.dtype)):
        scratch.unknown("workspace and reserve", "cuDNN tells the size only on the device")
    scratch.drop(mean, deviation, copy, *reversed(repeated))


def _by_cudnn(x: TensorType, scale: TensorType | None, bias: TensorType | None, training: bool) -> bool:
    """Whether the library normalizes: with factors in single precision (or those of double), and not too large a batch."""
    if scale is None or bias is None or x.dtype is DType.BF16 or (x.dtype is DType.F16 and scale.dtype is not DType.F32):
        return False
    flat = len(sizes(x)) == 2
    if flat and not training:
        return False
    batch = sizes(x)[0]
    limit = _FLAT_BATCH_LIMIT if flat else _TRAINING_BATCH_LIMIT if training else _EVAL_BATCH_LIMIT
    return not isinstance(batch, int) or batch <= limit


@rule
def batch_norm_rule(scratch: Scratch) -> None:
    call = scratch.call
    x, scale, bias = call.tensor("x"), call.maybe("scale"), call.maybe("bias")
    training = call.spec.name == "nn.batch_norm_training"
    by_cudnn = _by_cudnn(x, scale, bias, training)
    copy = "" if not by_cudnn or is_channels_last(x) else scratch.copy_unless_contiguous(x, "contiguous input")
    scratch.result()
    saved: list[str] = []
    if len(call.results) > 1:
        scratch.result(1)
        scratch.result(2)
    elif training or not by_cudnn:
        saved = [scratch.take(name, sizes(x)[1] * _statistic(x.dtype)) for name in ("mean", "deviation")]
    if training and by_cudnn:
        scratch.unknown("workspace and reserve", "cuDNN tells the size only on the device")
    scratch.drop(*saved, copy)

"""What reductions, normalizations and functions of elements take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from irscope.immutable import immutable
from irscope.ir.dims import Dim, product
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.types import TensorType
from irscope.ops.scratch.recorder import Scratch, count, is_channels_last, is_half, nbytes, numbers, rule, same, sizes, strides, width
from irscope.ops.spec import Temporaries

if TYPE_CHECKING:
    from irscope.devices.catalogue import Target

# Functions of single elements that PyTorch puts together from other functions.

_SCALAR = 8
"""Bytes of a number that is made a tensor."""


@rule
def is_inf_rule(scratch: Scratch) -> None:
    """Magnitudes are compared; integers are finite without a look."""
    x = scratch.call.tensor("x")
    magnitudes = scratch.take("magnitudes", nbytes(x)) if x.dtype.is_float and scratch.source == "isinf" else ""
    scratch.result()
    scratch.drop(magnitudes)


@rule
def is_finite_rule(scratch: Scratch) -> None:
    """Elements that are equal to themselves and not infinite."""
    x = scratch.call.tensor("x")
    if not x.dtype.is_float:
        scratch.result()
        return
    magnitudes = scratch.take("magnitudes", nbytes(x))
    bounded, ordered = scratch.take("not infinite", count(x)), scratch.take("equal to itself", count(x))
    scratch.result()
    scratch.drop(ordered, bounded, magnitudes)


@rule
def power_rule(scratch: Scratch) -> None:
    """A number that is raised to the power of a tensor becomes a tensor first; any power of one is one."""
    scratch.result()
    base = scratch.call.attr("value")
    if scratch.call.attr("reverse") and isinstance(base, int | float) and base != 1:
        scratch.passing("base", _SCALAR)


# Reductions: where few results come of many elements, PyTorch splits each over thread blocks, which meet in global memory.

MAX_THREADS = 512
THREADS = 2048
"""Threads of a multiprocessor where the device's profile does not say."""
WORTH_VECTORS = 128
WARP = 32
INPUT_VECTOR = 4
WORK = (16, 256)
"""Fewest and most elements that a thread should have."""


@immutable(slots=False)
class Split:
    """Bytes of the two buffers of a reduction that several thread blocks share; zero where none do."""

    buffer: int = 0
    semaphores: int = 0


@immutable(slots=False)
class Axis:
    """A run of axes that a kernel walks as one."""

    size: int
    stride: int
    reduced: bool


def reduce_split(target: Target, axes: list[Axis], argument: int) -> Split:
    """Return the buffers of a reduction; `argument` is the size of what a thread carries from one block to the next."""
    inside = math.prod(axis.size for axis in axes if axis.reduced)
    outputs = math.prod(axis.size for axis in axes if not axis.reduced)
    if inside == 0 or outputs == 0:
        return Split()
    block = _block(axes, inside, outputs)
    work = _up(inside, block.x) if block.along_x else inside
    step_output = 1 if block.along_x else block.x
    fewest, most = WORK
    if work < min(block.y * fewest, most):
        return Split()
    work = _up(work, block.y)
    wanted = (target.device.multiprocessors or 1) * ((target.device.threads_per_multiprocessor or THREADS) // (block.x * block.y))
    grid = _up(outputs // block.vector, step_output)
    if work < most or grid > wanted:
        return Split()
    ctas = max(min(_up(wanted, grid), _up(work, fewest)), _up(work, most))
    if ctas <= 1:
        return Split()
    spread = 1 if block.along_x else block.x * block.vector
    return Split(argument * outputs * ctas * spread, 4 * grid)


@immutable(slots=False)
class _Block:
    """Threads of a block, and whether its rows run along what is reduced."""

    x: int
    y: int
    vector: int
    """Neighbouring results that one thread makes."""
    along_x: bool


def _block(axes: list[Axis], inside: int, outputs: int) -> _Block:
    kept = [axis for axis in axes if not axis.reduced]
    summed = [axis for axis in axes if axis.reduced]
    along_x = not kept or (bool(summed) and summed[-1].stride < kept[-1].stride)
    vector = 1
    if along_x:
        across, along = inside, outputs
        if summed and summed[-1].stride == 1 and across >= WORTH_VECTORS and len(axes) == 1:
            across //= INPUT_VECTOR
    else:
        across, along = outputs, inside
        if kept[-1].stride == 1:
            vector = _output_vector(axes, kept[-1])
            across //= vector
    limit = MAX_THREADS // vector
    wide, high = min(_last_pow2(across), limit), min(_last_pow2(along), limit)
    x = min(wide, WARP)
    y = min(high, limit // x)
    return _Block(min(wide, limit // y), y, vector, along_x)


def coalesced(shape: tuple[int, ...], steps: tuple[int, ...], reduced: set[int]) -> list[Axis]:
    """Return axes as a reduction kernel walks them, outermost first: sorted by stride, neighbours joined where they lie densely."""
    order = sorted((axis for axis in range(len(shape)) if shape[axis] != 1), key=lambda axis: (-steps[axis], axis))
    joined: list[Axis] = []
    for axis in order:
        one = Axis(shape[axis], steps[axis], axis in reduced)
        last = joined[-1] if joined else None
        if last is not None and last.reduced == one.reduced and last.stride == one.stride * one.size:
            joined[-1] = Axis(last.size * one.size, one.stride, one.reduced)
        else:
            joined.append(one)
    return joined


def axes_of(type_: TensorType, reduced: set[int]) -> list[Axis]:
    """Return the axes of a reduction over a tensor."""
    return coalesced(numbers(sizes(type_)), numbers(strides(type_)), reduced)


def reduce_in(scratch: Scratch, type_: TensorType, reduced: set[int], argument: int, what: str = "partial results") -> None:
    """The buffers of a reduction, taken and given back in the kernel's order."""
    split = reduce_split(scratch.target, axes_of(type_, reduced), argument)
    buffer = scratch.take(what, split.buffer)
    semaphores = scratch.take("semaphores", split.semaphores)
    scratch.drop(semaphores, buffer)


def accumulator(dtype: DType) -> int:
    """Return bytes in which sums of an element type are kept."""
    bits = dtype.bits or 32
    if dtype.kind is DTypeKind.COMPLEX:
        return max(bits // 8, 8)
    return max(bits // 8, 4) if dtype.is_float else 8


def _output_vector(axes: list[Axis], inner: Axis) -> int:
    """Return how many neighbouring results a thread makes at once: all that divides the sizes and the strides."""
    vector = 4
    places = [inner.size, *(axis.stride for axis in axes if axis is not inner)]
    while vector > 1 and any(place % vector for place in places):
        vector //= 2
    return vector


def _last_pow2(size: int) -> int:
    return 1 << (max(size, 1).bit_length() - 1)


def _up(a: int, b: int) -> int:
    return -(-a // b)


# Normalizations: saved statistics (made even without gradients), factors of each channel, contiguous copies.

_SINGLE = 4
_EVAL_BATCH_LIMIT = 65535
_TRAINING_BATCH_LIMIT = 880801
_FLAT_BATCH_LIMIT = 131070


def _statistic(dtype: DType) -> int:
    """Return the bytes of a mean: single precision unless the elements are wider."""
    return max(width(dtype), _SINGLE)


def _trailing(axis: object, rank: int) -> int:
    """Return how many of the last axes are normalized over."""
    first = axis if isinstance(axis, int) else -1
    return -first if first < 0 else rank - first


@rule
def layer_norm_rule(scratch: Scratch) -> None:
    layer_norm(scratch, scratch.call.tensor("x"), _trailing(scratch.call.attr("axis"), len(sizes(scratch.call.tensor("x")))))


def layer_norm(scratch: Scratch, x: TensorType, trailing: int, make: str | None = None) -> str:
    """Return a copy that lies row by row, the result, mean and deviation of each row."""
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
        if len(call.results) > 1:
            scratch.result(1)
            scratch.drop(copy)
        else:
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
    late = scratch.release.copies_after_result
    first = "" if late else scratch.copy_unless_contiguous(x, "contiguous input")
    scratch.result()
    statistics = shape[0] * call.int_attr("num_groups")
    saved = len(call.results) > 1
    names = [] if saved else [scratch.take(name, statistics * width(x.dtype)) for name in ("mean", "deviation")]
    if saved:
        scratch.result(1)
        scratch.result(2)
    kept_as_is = scratch.release.group_norm_of_channels_last and is_channels_last(x)
    second = scratch.copy_unless_contiguous(x, "contiguous input") if late and not kept_as_is else ""
    widened = is_half(x.dtype) and scratch.release.widens_group_norm
    wide = [scratch.take("statistics in single precision", statistics * _SINGLE) for _ in range(2)] if widened else []
    factors: list[str] = []
    if (scale is not None or bias is not None) and not _one_element_each(scratch, shape):
        factors = [scratch.take("factors of channels", shape[0] * shape[1] * _statistic(x.dtype)) for _ in range(2)]
    scratch.drop(*factors, *wide, second, *names, first)


def _one_element_each(scratch: Scratch, shape: tuple[Dim, ...]) -> bool:
    """Channels of one element go another way; since torch 2.15 only where there are no spatial axes."""
    return len(shape) == 2 if scratch.release.group_norm_of_channels_last else same(product(shape[2:]), 1)


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
        scratch.unknown("workspace and reserve", "cuDNN reports the size only on the device")
    scratch.drop(mean, deviation, copy, *reversed(repeated))


def _by_cudnn(x: TensorType, scale: TensorType | None, bias: TensorType | None, training: bool) -> bool:
    """Return whether the library normalizes: with factors in single precision (or those of double), and not too large a batch."""
    if scale is None or bias is None or x.dtype is DType.BF16 or (x.dtype is DType.F16 and scale.dtype is not DType.F32):
        return False
    flat = len(sizes(x)) == 2
    if flat and not training:
        return False
    batch = sizes(x)[0]
    limit = _FLAT_BATCH_LIMIT if flat else _TRAINING_BATCH_LIMIT if training else _EVAL_BATCH_LIMIT
    return not isinstance(batch, int) or batch <= limit


def _batch_norm(training: bool) -> Temporaries:
    @rule
    def write(scratch: Scratch) -> None:
        call = scratch.call
        x, scale, bias = call.tensor("x"), call.maybe("scale"), call.maybe("bias")
        by_cudnn = "native" not in scratch.source and _by_cudnn(x, scale, bias, training)
        copy = "" if not by_cudnn or is_channels_last(x) else scratch.copy_unless_contiguous(x, "contiguous input")
        scratch.result()
        saved: list[str] = []
        if len(call.results) > 1:
            scratch.result(1)
            scratch.result(2)
        elif (training or not by_cudnn) and "native" not in scratch.source:
            saved = [scratch.take(name, sizes(x)[1] * _statistic(x.dtype)) for name in ("mean", "deviation")]
        if training and by_cudnn:
            scratch.unknown("workspace and reserve", "cuDNN reports the size only on the device")
        scratch.drop(*saved, copy)

    return write


batch_norm_rule = _batch_norm(training=False)
batch_norm_training_rule = _batch_norm(training=True)

"""Convolutions, pooling and resizing: positions of maxima, contiguous copies, the workspace of cuDNN."""

from __future__ import annotations

from typing import Literal

from irscope.ir.dtypes import DType
from irscope.ir.types import TensorType, tensor
from irscope.ops.scratch.recorder import Scratch, count, is_channels_last, is_contiguous, nbytes, number, rule, same, sizes
from irscope.ops.spec import Temporaries

_INDEX = 8


def _in_format(type_: TensorType, channels_last: bool) -> bool:
    if channels_last:
        return is_contiguous(type_, "channels_last")
    return is_contiguous(type_)


def _convolution(direction: Literal["forward", "input"]) -> Temporaries:
    """Return operands in one memory format, the result, and the library's workspace while copies of operands are there."""

    @rule
    def write(scratch: Scratch) -> None:
        call = scratch.call
        x, w = given, filters = call.tensor("x"), call.tensor("w")
        spatial = len(sizes(w)) - 2
        padded = ""
        if call.attr("auto_pad") == "SAME_UPPER" and (wider := _uneven(scratch, x, w)) is not None:
            x = wider
            padded = scratch.take("unevenly padded input", nbytes(wider))
        rows = ""
        if spatial == 1:
            # Sequences are convolved as images of one row, and never with channels last.
            rows = scratch.copy_unless_contiguous(x, "contiguous input")
            x, w = as_image(x), as_image(w)
        batched = len(sizes(x)) == len(sizes(w))
        last = batched and spatial > 1 and (is_channels_last(x) or is_channels_last(w))
        if call.spec.name == "nn.conv" and is_depthwise(scratch, x, w) and not last:
            copy = scratch.copy_unless_contiguous(x, "contiguous input")
            scratch.result()
            scratch.drop(copy, rows, padded)
            return
        copy = "" if _in_format(x, last) else scratch.take("input in the kernel's layout", nbytes(x))
        scratch.result()
        weight = "" if _in_format(w, last) else scratch.take("weights in the kernel's layout", nbytes(w))
        scratch.convolve(direction, given, filters, call.results[0])
        scratch.drop(weight, copy, rows, padded)

    return write


conv_rule = _convolution("forward")
conv_transpose_rule = _convolution("input")
"""Rule of transposed convolutions, which are computed as the gradient of an input."""


def as_image(type_: TensorType) -> TensorType:
    """One row of pixels."""
    shape = sizes(type_)
    return tensor(type_.dtype, (*shape[:-1], 1, shape[-1]), type_.device)


def _uneven(scratch: Scratch, x: TensorType, w: TensorType) -> TensorType | None:
    """Return the padded input where the kernel needs one element more on one side."""
    kernel = [number(size) for size in sizes(w)[2:]]
    dilations = scratch.call.ints("dilations") or (1,) * len(kernel)
    extra = [(step * (size - 1)) % 2 for size, step in zip(kernel, dilations, strict=True)]
    if not any(extra):
        return None
    shape = sizes(x)
    lead = len(shape) - len(kernel)
    return x.with_shape((*shape[:lead], *(size + one for size, one in zip(shape[lead:], extra, strict=True))))


def is_depthwise(scratch: Scratch, x: TensorType, w: TensorType) -> bool:
    """Return whether PyTorch takes kernels of its own for one filter a channel; sequences are images of one row."""
    groups = scratch.call.attr("groups")
    if not isinstance(groups, int) or groups <= 1 or len(sizes(x)) != len(sizes(w)):
        return False
    if len(sizes(x)) not in (4, 5) or not same(sizes(x)[1], groups) or number(sizes(w)[0]) % groups:
        return False
    return not (len(sizes(x)) == 4 and _depthwise_by_cudnn(scratch, x, w)) and (len(sizes(x)) == 4 or x.dtype is not DType.F64)


def _depthwise_by_cudnn(scratch: Scratch, x: TensorType, w: TensorType) -> bool:
    """Half-precision sizes for which PyTorch prefers the library."""
    strides_ = scratch.call.ints("strides") or (1, 1)
    dilations = scratch.call.ints("dilations") or (1, 1)
    shape = sizes(x)
    if x.dtype is not DType.F16 or w.dtype is not DType.F16 or any(step != 1 for step in dilations):
        return False
    batch, channels, height, across = (number(size) for size in shape)
    kernel, step = [number(size) for size in sizes(w)[2:]], strides_[-1]
    if channels < 32 or (height != 1 and strides_[0] != strides_[-1]):
        return False
    if height == 1 and step == 1:
        return True
    if kernel[0] != kernel[1] or kernel[0] not in (1, 3, 5) or across < 7:
        return False
    if step != 2:
        return step == 1
    if batch == 1:
        return kernel[0] != 1 or across <= 28
    if kernel[0] == 1:
        return batch <= 16 and channels >= 128 and across <= 7
    return channels >= 512 or (channels >= 256 and across >= 28)


@rule
def max_pool_rule(scratch: Scratch) -> None:
    """Positions of the maxima, made whether anybody wants them or not."""
    call = scratch.call
    x = call.tensor("x")
    made = call.made()
    scratch.result()
    if len(call.results) > 1:
        scratch.result(1)
        indices = ""
    else:
        indices = scratch.take("positions of maxima", count(made) * _INDEX)
    copy = "" if is_contiguous(x) or is_channels_last(x) else scratch.take("contiguous input", nbytes(x))
    scratch.drop(copy, indices)


@rule
def avg_pool_rule(scratch: Scratch) -> None:
    x = scratch.call.tensor("x")
    scratch.result()
    if not is_channels_last(x):
        scratch.drop(scratch.copy_unless_contiguous(x, "contiguous input"))


@rule
def adaptive_avg_pool_rule(scratch: Scratch) -> None:
    x = scratch.call.tensor("x")
    wanted = scratch.call.ints("output_size")
    if wanted and all(size == 1 for size in wanted):
        # A mean over the axes.
        scratch.result()
        return
    copy = "" if is_channels_last(x) else scratch.copy_unless_contiguous(x, "contiguous input")
    scratch.result()
    scratch.drop(copy)


@rule
def resize_rule(scratch: Scratch) -> None:
    call = scratch.call
    x = call.tensor("x")
    scratch.result()
    if call.attr("mode") == "nearest" and not is_channels_last(x):
        scratch.drop(scratch.copy_unless_contiguous(x, "contiguous input"))


@rule
def roi_align_rule(scratch: Scratch) -> None:
    """The regions and the image are read row by row."""
    call = scratch.call
    image = call.tensor("x")
    scratch.result()
    scratch.drop(scratch.copy_unless_contiguous(image, "contiguous input"))

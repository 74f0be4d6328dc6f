"""Sizes of sliding windows: how far a convolution or pooling reaches along each spatial axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irscope.ir.dims import Dim, SymDim, ceildiv, dim_max, dim_min, floordiv, less
from irscope.ir.types import Shape
from irscope.ops.spec import OpCall, RuleError


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis of a window operator."""

    kernel: Dim
    stride: int = 1
    dilation: int = 1
    before: Dim = 0
    after: Dim = 0

    @property
    def reach(self) -> Dim:
        """Elements from the first to the last that a window covers."""
        return (self.kernel - 1) * self.dilation + 1


def window_axes(call: OpCall, kernel: Sequence[Dim]) -> list[Axis]:
    """The spatial axes of a call, from its attributes strides, dilations and pads (all begins, then all ends)."""
    count = len(kernel)
    strides = _each(call, "strides", count, 1)
    dilations = _each(call, "dilations", count, 1)
    pads = _each(call, "pads", 2 * count, 0) if call.attr("auto_pad") in (None, "", "NOTSET") else (0,) * (2 * count)
    return [Axis(kernel[i], strides[i], dilations[i], pads[i], pads[count + i]) for i in range(count)]


def _each(call: OpCall, name: str, count: int, default: int) -> tuple[int, ...]:
    """A list attribute with one entry an axis; a missing one means the default everywhere."""
    found = call.attr(name)
    if not found:
        return (default,) * count
    if len(found) != count:
        raise RuleError(f"{name} of {call.spec.name} has {len(found)} entries, not {count}")
    return tuple(found)


def slid(call: OpCall, size: Dim, axis: Axis) -> Dim:
    """How many windows fit along an axis."""
    auto_pad = call.attr("auto_pad")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return ceildiv(size, axis.stride)
    if axis.stride < 1 or axis.dilation < 1:
        raise RuleError(f"strides and dilations of {call.spec.name} must be at least 1")
    padded = size + axis.before + axis.after
    if less(padded, axis.reach) is True:
        raise RuleError(f"a window of {axis.reach} does not fit into {padded} elements ({call.spec.name})")
    room = padded - axis.reach
    if not call.attr("ceil_mode") or auto_pad == "VALID":
        return call.context.note_size(floordiv(room, axis.stride) + 1)
    return call.context.note_size(_rounded_up(size, axis, room))


def _rounded_up(size: Dim, axis: Axis, room: Dim) -> Dim:
    """Windows that may hang over the end, but not start beyond the elements (and the padding in front of them)."""
    count = ceildiv(room, axis.stride) + 1
    starts = ceildiv(size + axis.before, axis.stride)
    capped = dim_min(count, starts)
    # Only one window is ever left out; two could start beyond the end where the padding is longer than the window.
    return capped if less(axis.after, axis.reach) is True else dim_max(capped, count - 1)


def spread(call: OpCall, size: Dim, axis: Axis, extra: int) -> Dim:
    """Elements that windows starting at every one of `size` positions cover: the inverse of `slid`."""
    if call.attr("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
        return size * axis.stride
    result = (size - 1) * axis.stride + axis.reach + extra - axis.before - axis.after
    if not isinstance(result, SymDim) and result < 0:
        raise RuleError(f"{call.spec.name} crops more than there is: the result would have {result} elements")
    return call.context.note_size(result)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where batch, channels and spatial axes of an image tensor are."""

    batch: tuple[Dim, ...]
    channels: Dim
    spatial: tuple[Dim, ...]
    channels_last: bool = False

    def shape(self, channels: Dim, spatial: Sequence[Dim]) -> tuple[Dim, ...]:
        """Sizes of a tensor laid out likewise."""
        if self.channels_last:
            return (*self.batch, *spatial, channels)
        return (*self.batch, channels, *spatial)


def image_layout(call: OpCall, name: str, spatial: int) -> Layout | None:
    """The axes of an operand with this many spatial ones, with or without a batch; None where its rank is unknown."""
    shape: Shape = call.shape(name)
    if shape is None:
        return None
    if len(shape) not in (spatial + 1, spatial + 2):
        raise RuleError(f"{call.spec.name} with {spatial} spatial axes cannot take {call.tensor(name)}")
    batch, image = shape[: len(shape) - spatial - 1], shape[len(shape) - spatial - 1 :]
    if call.attr("channels_last"):
        return Layout(batch, image[-1], image[:-1], True)
    return Layout(batch, image[0], image[1:])

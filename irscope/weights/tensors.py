"""A tensor whose values are read: its element type, and its division into windows that fit a processor's cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType
from irscope.ir.graph import Value
from irscope.ir.places import Literal, Payload
from irscope.ir.types import TensorType
from irscope.weights.elements import PARTS, Array, encode, is_readable, packed_bytes
from irscope.weights.source import Bytes, Unreadable, WeightFiles
from irscope.weights.structure import Axes, axes_of

WINDOW = 1 << 21
"""Bytes of a window: so small that the arrays of its statistics stay in a cache, so large that threads seldom wait for Python's lock."""
_MOST_GATHERED = 256 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """Elements as they lie in memory: row-major, or with axes in another order, which `axes` then takes into account."""

    dtype: DType
    count: int
    source: Bytes
    axes: Axes | None = None
    is_swapped: bool = False
    """Whether the axes of `axes` are the tensor's second and first."""
    compute: Callable[[int, int], Array] | None = None
    """Makes the elements of a window, where they do not lie in memory as they are."""

    @property
    def window(self) -> int:
        """Elements of a window: whole rows where these are short, else whole groups of four."""
        bits = self.dtype.bits or 8
        wanted = WINDOW * 8 // max(bits, 4)
        step = math.lcm(8 // math.gcd(bits, 8), 4)
        if self.axes is not None:
            row = self.axes.row
            if row <= 2 * wanted:
                unit = math.lcm(row, step)
                if unit <= 4 * wanted:
                    return max(1, wanted // unit) * unit
            step = math.lcm(step, 4 * self.axes.inner) if 4 * self.axes.inner <= wanted else step
        return max(1, wanted // step) * step

    @property
    def groups(self) -> int:
        """Groups of four along the second axis; 0 where they are not counted."""
        axes = self.axes
        if axes is None or self.is_swapped or axes.columns % 4 or self.window % (4 * axes.inner):
            return 0
        return self.count // 4

    @property
    def bytes(self) -> int:
        return packed_bytes(self.count, self.dtype.bits or 8)


def stored_tensor(value: Value, files: WeightFiles) -> Stored:
    """A weight as stored; Unreadable where its values cannot be read."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        raise Unreadable("it is no tensor")
    if not is_readable(type_.dtype):
        raise Unreadable(
            "its element type is unknown" if type_.dtype is DType.UNKNOWN else f"elements of type {type_.dtype} are not numbers"
        )
    if type_.layout == "sparse":
        raise Unreadable("it is stored sparse")
    shape = _plain_shape(type_)
    if 0 in shape:
        return Stored(type_.dtype, 0, Bytes(0, b""))
    data = value.graph.data.get(value) if value.graph is not None else None
    if isinstance(data, Literal):
        return _from_literal(data, type_, shape)
    if isinstance(type_.layout, tuple):
        return _strided(type_, shape, data, files)
    return _plain(type_.dtype, shape, shape, data, files)


def _plain_shape(type_: TensorType) -> tuple[int, ...]:
    if type_.shape is None:
        raise Unreadable("its shape is unknown")
    shape = tuple(dim for dim in type_.shape if not isinstance(dim, SymDim))
    if len(shape) != len(type_.shape):
        raise Unreadable("its shape has a size that is not known")
    return shape


def _plain(
    dtype: DType, stored: tuple[int, ...], shape: tuple[int, ...], data: Payload | None, files: WeightFiles, *, swapped: bool = False
) -> Stored:
    wanted = (math.prod(shape) * (dtype.bits or 8) + 7) // 8
    source = files.find(data)
    if source.length < wanted:
        raise Unreadable(f"its type needs {wanted:,} bytes, there are {source.length:,}")
    return _made(dtype, math.prod(shape), source, axes_of(stored), swapped)


def _made(dtype: DType, count: int, source: Bytes, axes: Axes | None, swapped: bool = False) -> Stored:
    """Complex numbers are read as twice as many real ones, without rows and columns."""
    part = PARTS.get(dtype)
    return Stored(dtype, count, source, axes, swapped) if part is None else Stored(part, 2 * count, source)


def _from_literal(data: Literal, type_: TensorType, shape: tuple[int, ...]) -> Stored:
    """Values that stand in the graph, as bytes of their type."""
    count = math.prod(shape)
    values = data.values * count if len(data.values) == 1 else data.values
    if len(values) != count:
        raise Unreadable(f"its type needs {count:,} values, there are {len(values):,}")
    try:
        raw = encode([value for value in values if not isinstance(value, str)], type_.dtype)
    except (OverflowError, ValueError, TypeError):
        raise Unreadable(f"its values are no numbers of type {type_.dtype}") from None
    return _made(type_.dtype, count, Bytes(len(raw), raw), axes_of(shape))


def _strided(type_: TensorType, shape: tuple[int, ...], data: Payload | None, files: WeightFiles) -> Stored:
    """Axes in another order than row-major are read as they lie; a view with gaps or repeats is gathered first."""
    bits = type_.dtype.bits or 8
    strides = tuple(dim for dim in type_.layout or () if isinstance(dim, int))
    if len(strides) != len(shape) or bits < 8:
        raise Unreadable("its strides are not known")
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    dense = 1
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != dense:
            dense = 0
            break
        dense *= shape[axis]
    if dense:
        stored = tuple(shape[axis] for axis in order)
        swapped = order[:2] == [1, 0]
        made = _plain(type_.dtype, stored, shape, data, files, swapped=swapped)
        keeps_axes = order[:2] in ([0, 1], [1, 0]) and not (swapped and len(shape) > 2)
        return made if keeps_axes else Stored(made.dtype, made.count, made.source)
    return _gathered(type_.dtype, shape, strides, data, files)


def _gathered(dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], data: Payload | None, files: WeightFiles) -> Stored:
    import numpy as np

    size = (dtype.bits or 8) // 8
    span = (1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))) * size
    total = math.prod(shape) * size
    if min(strides) < 0 or max(span, total) > _MOST_GATHERED:
        raise Unreadable("it is a view with gaps or repeats that is too large to gather")
    source = files.find(data)
    if source.length < span:
        raise Unreadable(f"its strides reach over {span:,} bytes, there are {source.length:,}")
    raw = bytearray(span)
    files.read_into(source, 0, memoryview(raw))
    items = np.frombuffer(raw, np.dtype(f"V{size}"))
    view = np.lib.stride_tricks.as_strided(items, shape, tuple(stride * size for stride in strides), writeable=False)
    packed = view.tobytes()
    return _made(dtype, math.prod(shape), Bytes(len(packed), packed), axes_of(shape))

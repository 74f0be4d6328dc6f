"""A tensor whose values are read: its element type, its division into windows that fit a processor's cache, axes, packed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from irscope.immutable import immutable
from irscope.ir.dims import SymDim
from irscope.ir.dtypes import DType, DTypeKind
from irscope.ir.graph import Value
from irscope.ir.places import Literal, Payload
from irscope.ir.types import TensorType, Type
from irscope.weights.source import Bytes, Unreadable, WeightFiles

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

WIDE: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype("<f4"),
    DType.F64: np.dtype("<f8"),
    DType.I32: np.dtype("<i4"),
    DType.U32: np.dtype("<u4"),
    DType.I64: np.dtype("<i8"),
    DType.U64: np.dtype("<u8"),
}
"""Types of 32 bits and more."""

PARTS: dict[DType, DType] = {DType.C64: DType.F32, DType.C128: DType.F64}
"""Complex types: a number counts as two."""

# Exponent bits, fraction bits, exponent bias, and what the largest codes stand for.
_SMALL_FLOATS: dict[DType, tuple[int, int, int, str]] = {
    DType.F4E2M1: (2, 1, 1, "finite"),
    DType.F6E2M3: (2, 3, 1, "finite"),
    DType.F6E3M2: (3, 2, 3, "finite"),
    DType.F8E4M3FN: (4, 3, 7, "all ones"),
    DType.F8E4M3FNUZ: (4, 3, 8, "minus zero"),
    DType.F8E5M2: (5, 2, 15, "ieee"),
    DType.F8E5M2FNUZ: (5, 2, 16, "minus zero"),
    DType.BF16: (8, 7, 127, "ieee"),
    DType.F16: (5, 10, 15, "ieee"),
}


def is_narrow(dtype: DType) -> bool:
    """Return whether an exact count of every bit pattern is kept: types of at most 16 bits."""
    return dtype.bits is not None and dtype.bits <= 16


def is_readable(dtype: DType) -> bool:
    """Return whether values of this type are numbers."""
    return is_narrow(dtype) or dtype in WIDE or dtype in PARTS


def fraction_bits_of(dtype: DType) -> int:
    """Bits of the fraction of a narrow float; as many as any number has for other types."""
    return 0 if dtype is DType.F8E8M0 else _SMALL_FLOATS[dtype][1] if dtype in _SMALL_FLOATS else dtype.bits or 8


@cache
def pattern_values(dtype: DType) -> Floats:
    """Return the number that every bit pattern of a narrow type stands for."""
    bits = dtype.bits or 8
    codes = np.arange(1 << bits, dtype=np.int64)
    if dtype is DType.F8E8M0:
        values = np.ldexp(1.0, codes - 127)
        values[255] = np.nan
    elif dtype in _SMALL_FLOATS:
        values = _float_values(codes, *_SMALL_FLOATS[dtype])
    elif dtype.kind is DTypeKind.INT:
        values = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes).astype(np.float64)
    elif dtype is DType.BOOL:
        values = (codes != 0).astype(np.float64)
    else:
        values = codes.astype(np.float64)
    values.setflags(write=False)
    return values


def _float_values(codes: npt.NDArray[np.int64], exponent_bits: int, fraction_bits: int, bias: int, specials: str) -> Floats:
    half = 1 << (exponent_bits + fraction_bits)
    magnitude = codes & (half - 1)
    exponent, fraction = magnitude >> fraction_bits, magnitude & ((1 << fraction_bits) - 1)
    normal = np.ldexp((fraction + (1 << fraction_bits)).astype(np.float64), exponent - bias - fraction_bits)
    values = np.where(exponent == 0, np.ldexp(fraction.astype(np.float64), 1 - bias - fraction_bits), normal)
    top = exponent == (1 << exponent_bits) - 1
    if specials == "ieee":
        values = np.where(top, np.where(fraction != 0, np.nan, np.inf), values)
    elif specials == "all ones":
        values = np.where(top & (fraction == (1 << fraction_bits) - 1), np.nan, values)
    values = np.where(codes >= half, -values, values)
    if specials == "minus zero":
        values[half] = np.nan
    return values


@cache
def zero_patterns(dtype: DType) -> tuple[int, ...]:
    """Return the bit patterns that stand for zero."""
    return tuple(int(code) for code in np.flatnonzero(pattern_values(dtype) == 0.0))


def unpack_codes(packed: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """Codes of fewer than 8 bits, the first in the lowest bits of its byte, one to a byte."""
    if bits == 6:
        whole = packed[: len(packed) // 3 * 3].reshape(-1, 3).astype(np.uint32)
        words = whole[:, 0] | whole[:, 1] << 8 | whole[:, 2] << 16
        tail = np.zeros(4, np.uint8)
        tail[: len(packed) % 3] = packed[len(packed) // 3 * 3 :]
        last = int.from_bytes(tail.tobytes(), "little")
        words = np.append(words, np.uint32(last))
        return np.stack([(words >> shift) & 63 for shift in (0, 6, 12, 18)], axis=1).astype(np.uint8).reshape(-1)[:count]
    mask = np.uint8((1 << bits) - 1)
    made = np.empty((len(packed), 8 // bits), np.uint8)
    for place in range(8 // bits):
        np.bitwise_and(packed >> np.uint8(place * bits), mask, out=made[:, place])
    return made.reshape(-1)[:count]


def encode_elements(values: Sequence[bool | int | float | complex], dtype: DType) -> bytes:
    """Return numbers as packed elements of a type, rounded to the nearest that it has."""
    bits = dtype.bits or 8
    if dtype.kind is DTypeKind.COMPLEX:
        return np.array(values, np.complex64 if bits == 64 else np.complex128).tobytes()
    if not is_narrow(dtype):
        return np.array(values, WIDE[dtype]).tobytes()
    codes = _codes_of(np.array(values, np.float64), dtype)
    if bits >= 8:
        return codes.astype(f"<u{bits // 8}").tobytes()
    whole = 0
    for place, code in enumerate(codes.tolist()):
        whole |= code << (place * bits)
    return whole.to_bytes(packed_bytes(len(codes), bits), "little")


def _codes_of(values: Floats, dtype: DType) -> npt.NDArray[np.int64]:
    table = pattern_values(dtype)
    order = np.argsort(table, kind="stable")
    held = table[order]
    # Not-a-numbers come last in the order, and are looked for as such.
    after = np.minimum(np.searchsorted(held, values), len(held) - 1)
    before = np.maximum(after - 1, 0)
    with np.errstate(invalid="ignore"):
        is_before = np.abs(held[before] - values) < np.abs(held[after] - values)
    return order[np.where(is_before, before, after)].astype(np.int64)


def packed_bytes(count: int, bits: int) -> int:
    """Return bytes that so many packed elements take."""
    return (count * bits + 7) // 8


# Element types as bytes: which numpy type holds them, and what every bit pattern of the small ones stands for.

WINDOW = 1 << 21
"""Bytes of a window: so small that the arrays of its statistics stay in a cache, so large that threads seldom wait for Python's lock."""
_MOST_GATHERED = 256 << 20


@immutable
class Stored:
    """Elements as they lie in memory: row-major, or with axes in another order, which `axes` then takes into account."""

    dtype: DType
    count: int
    source: Bytes
    axes: Axes | None = None
    is_swapped: bool = False
    """True where the axes of `axes` are the tensor's second and first."""
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


def stored_tensor(value: Value, files: WeightFiles, *, row_major: bool = False) -> Stored:
    """Return a weight as stored; Unreadable where its values cannot be read."""
    return stored_values(value.type, value.graph.data.get(value) if value.graph is not None else None, files, row_major=row_major)


def stored_values(type_: Type, data: Payload | None, files: WeightFiles, *, row_major: bool = False) -> Stored:
    """Values of a tensor as stored; Unreadable where they cannot be read. `row_major` puts axes that lie in another order into this one."""
    if not isinstance(type_, TensorType):
        raise Unreadable("it is not a tensor")
    if type_.dtype.block is not None:
        raise Unreadable(f"blocks of {type_.dtype} are not taken apart")
    if not is_readable(type_.dtype):
        raise Unreadable(
            "its element type is unknown" if type_.dtype is DType.UNKNOWN else f"elements of type {type_.dtype} are not numbers"
        )
    if type_.layout == "sparse":
        raise Unreadable("it is stored sparse")
    shape = _plain_shape(type_)
    if 0 in shape:
        return Stored(type_.dtype, 0, Bytes(0, b""))
    if isinstance(data, Literal):
        return _from_literal(data, type_, shape)
    if isinstance(type_.layout, tuple):
        return _strided(type_, shape, data, files, row_major=row_major)
    return _contiguous(type_.dtype, shape, shape, data, files)


def _plain_shape(type_: TensorType) -> tuple[int, ...]:
    if type_.shape is None:
        raise Unreadable("its shape is unknown")
    shape = tuple(dim for dim in type_.shape if not isinstance(dim, SymDim))
    if len(shape) != len(type_.shape):
        raise Unreadable("its shape has a size that is not known")
    return shape


def _contiguous(
    dtype: DType, stored: tuple[int, ...], shape: tuple[int, ...], data: Payload | None, files: WeightFiles, *, swapped: bool = False
) -> Stored:
    wanted = (math.prod(shape) * (dtype.bits or 8) + 7) // 8
    source = files.find(data)
    if source.length < wanted:
        raise Unreadable(f"its type needs {wanted:,} bytes, there are {source.length:,}")
    return _stored_parts(dtype, math.prod(shape), source, axes_of(stored), swapped)


def _stored_parts(dtype: DType, count: int, source: Bytes, axes: Axes | None, swapped: bool = False) -> Stored:
    """Complex numbers are read as twice as many real ones, without rows and columns."""
    part = PARTS.get(dtype)
    return Stored(dtype, count, source, axes, swapped) if part is None else Stored(part, 2 * count, source)


def _from_literal(data: Literal, type_: TensorType, shape: tuple[int, ...]) -> Stored:
    """Return values that stand in the graph, as bytes of their type."""
    count = math.prod(shape)
    values = data.values * count if len(data.values) == 1 else data.values
    if len(values) != count:
        raise Unreadable(f"its type needs {count:,} values, there are {len(values):,}")
    try:
        raw = encode_elements([value for value in values if not isinstance(value, str)], type_.dtype)
    except (OverflowError, ValueError, TypeError):
        raise Unreadable(f"its values are not numbers of type {type_.dtype}") from None
    return _stored_parts(type_.dtype, count, Bytes(len(raw), raw), axes_of(shape))


def _strided(type_: TensorType, shape: tuple[int, ...], data: Payload | None, files: WeightFiles, *, row_major: bool = False) -> Stored:
    """Return axes in another order than row-major are read as they lie; a view with gaps or repeats is gathered first."""
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
    if dense and (not row_major or order == sorted(order)):
        stored = tuple(shape[axis] for axis in order)
        swapped = order[:2] == [1, 0]
        made = _contiguous(type_.dtype, stored, shape, data, files, swapped=swapped)
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
    return _stored_parts(dtype, math.prod(shape), Bytes(len(packed), packed), axes_of(shape))


# Structure of zeros: slices that are all zero, and groups of four with at least two zeros.

Mask = npt.NDArray[np.bool_]
_MOST_SLICES = 1 << 24


@immutable
class Axes:
    """A tensor as rows (its first axis) of columns (its second), each an inner run of elements."""

    rows: int
    columns: int
    inner: int

    @property
    def row(self) -> int:
        """Elements of a row."""
        return self.columns * self.inner


def axes_of(shape: tuple[int, ...]) -> Axes | None:
    """None for tensors of fewer than two axes, and for those with more slices than are worth keeping apart."""
    if len(shape) < 2 or max(shape[:2]) > _MOST_SLICES or 0 in shape:
        return None
    return Axes(shape[0], shape[1], math.prod(shape[2:]))


class Structure:
    """Collects which rows and columns of a tensor have a value other than zero. Parts may come in any order, from any thread."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.rows = np.zeros(axes.rows, np.bool_)
        self.columns = np.zeros(axes.columns, np.bool_)

    def add_full(self, start: int, stop: int) -> None:
        """Elements without a zero among them."""
        row = self.axes.row
        self.rows[start // row : -(-stop // row)] = True
        if stop - start >= row:
            self.columns[:] = True
            return
        inner = self.axes.inner
        first, last = start % row, (stop - 1) % row
        if first <= last:
            self.columns[first // inner : last // inner + 1] = True
        else:
            self.columns[first // inner :] = True
            self.columns[: last // inner + 1] = True

    def add(self, start: int, zero: Mask) -> None:
        """Elements of which some are zero, in order."""
        stop, row = start + len(zero), self.axes.row
        if start % row == 0 and stop % row == 0:
            live = np.logical_not(zero).reshape(-1, row)
            self.rows[start // row : stop // row] = live.any(axis=1)
            # An or over bytes runs through whole rows at a time.
            by_element = np.bitwise_or.reduce(live.view(np.uint8), axis=0)
            self.columns |= by_element.reshape(self.axes.columns, self.axes.inner).any(axis=1)
            return
        position = start
        while position < stop:
            end = min(stop, position - position % row + row)
            live_at = np.flatnonzero(np.logical_not(zero[position - start : end - start])) + position % row
            if len(live_at):
                self.rows[position // row] = True
                self.columns[live_at // self.axes.inner] = True
            position = end


def sparse_groups(zero: Mask, axes: Axes) -> int:
    """Return groups of four neighbours along the second axis with at least two zeros; `zero` starts at a group and holds whole groups."""
    if axes.inner > 1:
        return int(np.count_nonzero(zero.reshape(-1, 4, axes.inner).sum(axis=1, dtype=np.uint8) >= 2))
    words = zero.view(np.uint8).view(np.uint32)
    return int(np.count_nonzero((words * np.uint32(0x01010101)) >> np.uint32(24) >= 2))


# The numbers that quantized weights stand for: (code - zero point) * scale, with one pair for all, for a slice or for a block.

_LONGEST_ROW = 1 << 17
_MOST_SCALES = 1 << 26


def read_all(tensor: Stored, files: WeightFiles) -> Array:
    """Return all elements of a tensor as floats: for scales, zero points and other small ones."""
    if tensor.count > _MOST_SCALES:
        raise Unreadable(f"{tensor.count:,} scales are more than irscope keeps in memory")
    raw = np.empty(tensor.bytes, np.uint8)
    if tensor.count:
        files.read_into(tensor.source, 0, raw.data)
    return decode_elements(raw, tensor.dtype, tensor.count)


def decode_elements(raw: Array, dtype: DType, count: int) -> Array:
    """Packed elements as numbers: float32 for types of at most 16 bits."""
    if not is_narrow(dtype):
        return raw.view(WIDE[dtype])
    bits = dtype.bits or 8
    codes = raw.view("<u2") if bits == 16 else raw if bits == 8 else unpack_codes(raw, bits, count)
    table: Array = pattern_values(dtype).astype(np.float32)
    return table[codes[:count]]


@immutable(slots=False)
class Quantized:
    """Codes with what turns them into numbers.

    `scale` and `zero` hold one number, one for each slice along `axis`, or one for each block of `block` slices along it.
    """

    shape: tuple[int, ...]
    codes: DType
    source: Bytes
    scale: Array
    zero: Array
    axis: int
    block: int = 0
    row_codes: int = 0
    """Codes that a row (a slice along the first axis) takes, where its last block is filled up."""

    def stored(self, files: WeightFiles) -> Stored:
        """Return the numbers as a tensor that can be read in windows."""
        rows, row = self.shape[0] if self.shape else 1, math.prod(self.shape[1:])
        bits = self.codes.bits or 8
        held = self.row_codes or row
        if row > _LONGEST_ROW or (held * bits) % 8:
            raise Unreadable(f"rows of {row:,} quantized elements are not unpacked")
        if self.source.length < packed_bytes(rows * held, bits):
            raise Unreadable(f"its codes need {packed_bytes(rows * held, bits):,} bytes, there are {self.source.length:,}")
        made = Stored(DType.F32, rows * row, self.source, axes_of(self.shape), compute=_Rows(self, files, row, held))
        return (
            made
            if made.axes is not None and made.window % row == 0
            else Stored(DType.F32, rows * row, self.source, None, compute=made.compute)
        )


@immutable(slots=False)
class _Rows:
    """Makes whole rows of numbers."""

    tensor: Quantized
    files: WeightFiles
    row: int
    held: int

    def __call__(self, start: int, stop: int) -> Array:
        first, last = start // self.row, -(-stop // self.row)
        bits = self.tensor.codes.bits or 8
        size = self.held * bits // 8
        raw = np.empty((last - first) * size, np.uint8)
        self.files.read_into(self.tensor.source, first * size, raw.data)
        codes = decode_elements(raw, self.tensor.codes, (last - first) * self.held).reshape(last - first, self.held)[:, : self.row]
        shape = (last - first, *self.tensor.shape[1:])
        values = codes.astype(np.float32).reshape(shape)
        values -= self._slices(self.tensor.zero, first, last)
        values *= self._slices(self.tensor.scale, first, last)
        return values.reshape(-1)[start - first * self.row : stop - first * self.row]

    def _slices(self, held: Array, first: int, last: int) -> Array:
        """Return what belongs to some rows, as it broadcasts against them."""
        shape, axis, block = self.tensor.shape, self.tensor.axis, self.tensor.block
        if held.size == 1:
            return held.reshape(())
        if not block:
            part = held[first:last] if axis == 0 else held
            return part.reshape([-1 if other == axis else 1 for other in range(len(shape))])
        if axis == 0:
            return held[np.arange(first, last) // block]
        return np.repeat(held[first:last], block, axis=axis).take(np.arange(shape[axis]), axis=axis)


def checked(
    shape: tuple[int, ...], codes: DType, source: Bytes, scale: Array, zero: Array | None, axis: int, block: int = 0, row_codes: int = 0
) -> Quantized:
    """Quantized values whose scales fit their codes; Unreadable where they do not."""
    rank = len(shape)
    zeros: Array = np.zeros(1, np.float32) if zero is None else zero
    axis = axis % rank if rank and -rank <= axis < rank else 0
    for held in (scale, zeros):
        if held.size == 1:
            continue
        if block:
            wanted = tuple(-(-size // block) if other == axis else size for other, size in enumerate(shape))
            fits = held.shape == wanted
        else:
            fits = held.ndim == 1 and bool(rank) and len(held) == shape[axis]
        if not fits:
            raise Unreadable("its scales or zero points do not fit its shape")
    return Quantized(shape, codes, source, scale, zeros, axis, block, row_codes)

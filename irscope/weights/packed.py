"""The numbers that quantized weights stand for: (code - zero point) * scale, with one pair for all, for a slice or for a block."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from irscope.ir.dtypes import DType
from irscope.weights.elements import WIDE, Array, is_narrow, packed_bytes, pattern_values, unpack_codes
from irscope.weights.source import Bytes, Unreadable, WeightFiles
from irscope.weights.structure import axes_of
from irscope.weights.tensors import Stored

_LONGEST_ROW = 1 << 17
_MOST_SCALES = 1 << 26


def read_all(tensor: Stored, files: WeightFiles) -> Array:
    """All elements of a tensor as floats: for scales, zero points and other small ones."""
    if tensor.count > _MOST_SCALES:
        raise Unreadable(f"{tensor.count:,} scales are more than irscope keeps in memory")
    raw = np.empty(tensor.bytes, np.uint8)
    if tensor.count:
        files.read_into(tensor.source, 0, raw.data)
    return decode(raw, tensor.dtype, tensor.count)


def decode(raw: Array, dtype: DType, count: int) -> Array:
    """Packed elements as numbers: float32 for types of at most 16 bits."""
    if not is_narrow(dtype):
        return raw.view(WIDE[dtype])
    bits = dtype.bits or 8
    codes = raw.view("<u2") if bits == 16 else raw if bits == 8 else unpack_codes(raw, bits, count)
    table: Array = pattern_values(dtype).astype(np.float32)
    return table[codes[:count]]


@dataclass(frozen=True)
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
        """The numbers as a tensor that can be read in windows."""
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


@dataclass(frozen=True)
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
        codes = decode(raw, self.tensor.codes, (last - first) * self.held).reshape(last - first, self.held)[:, : self.row]
        shape = (last - first, *self.tensor.shape[1:])
        values = codes.astype(np.float32).reshape(shape)
        values -= self._slices(self.tensor.zero, first, last)
        values *= self._slices(self.tensor.scale, first, last)
        return values.reshape(-1)[start - first * self.row : stop - first * self.row]

    def _slices(self, held: Array, first: int, last: int) -> Array:
        """What belongs to some rows, as it broadcasts against them."""
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

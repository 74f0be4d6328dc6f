"""Statistics of one window of a tensor, by a few numpy calls. Each thread has its own buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from irscope.ir.dtypes import DType
from irscope.weights.elements import WIDE, Array, Floats, is_narrow, packed_bytes, unpack_codes, zero_patterns
from irscope.weights.moments import Moments, constant_moments, moments_of
from irscope.weights.patterns import WORDS
from irscope.weights.result import Counts
from irscope.weights.source import WeightFiles
from irscope.weights.structure import Mask, Structure, sparse_groups
from irscope.weights.tensors import Stored

_SHORT = 128
_TALLY = 1 << 16
"""Words counted in one call: few enough that their places stay in the cache."""


@dataclass(slots=True)
class Part:
    """Accumulated statistics of consecutive windows of a tensor."""

    moments: Moments = field(default_factory=Moments)
    nan: int = 0
    inf: int = 0
    zeros: int = 0
    near_zeros: int = 0
    groups: int = 0
    """Groups of four with at least two zeros."""
    words: Counts | None = None
    codes: Counts | None = None
    """Counts of elements that fill no whole 16-bit word."""
    extremes: list[tuple[float, float]] = field(default_factory=list)
    """Smallest and largest finite element of each window."""

    def add(self, other: Part) -> None:
        """Merge the part that follows."""
        self.moments.add(other.moments)
        self.nan += other.nan
        self.inf += other.inf
        self.zeros += other.zeros
        self.near_zeros += other.near_zeros
        self.groups += other.groups
        self.words = _sum(self.words, other.words)
        self.codes = _sum(self.codes, other.codes)
        self.extremes += other.extremes


def _sum(one: Counts | None, other: Counts | None) -> Counts | None:
    if one is None or other is None:
        return other if one is None else one
    one += other
    return one


class Buffers:
    """Arrays that are used again for every window."""

    def __init__(self) -> None:
        self._held: dict[str, Array] = {}

    def get(self, name: str, count: int, dtype: npt.DTypeLike) -> Array:
        """An array of so many elements, whatever they hold."""
        held = self._held.get(name)
        if held is None or len(held) < count or held.dtype != dtype:
            held = self._held[name] = np.empty(count, dtype)
        return held[:count]


class Window:
    """Reads windows and measures them."""

    def __init__(self, files: WeightFiles, near: float, with_histogram: bool) -> None:
        self._files = files
        self._near = near
        self._with_histogram = with_histogram
        self._buffers = Buffers()

    def raw(self, tensor: Stored, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """The packed bytes of elements; `start` begins a byte."""
        if tensor.compute is not None:
            return tensor.compute(start, stop).reshape(-1).view(np.uint8)
        bits = tensor.dtype.bits or 8
        first, last = start * bits // 8, packed_bytes(stop, bits)
        raw: npt.NDArray[np.uint8] = self._buffers.get("raw", last - first, np.uint8)
        self._files.read_into(tensor.source, first, raw.data)
        return raw

    def measure(self, tensor: Stored, start: int, stop: int, part: Part, structure: Structure | None) -> None:
        """Add what one window holds to a part."""
        raw = self.raw(tensor, start, stop)
        if is_narrow(tensor.dtype):
            zero = self._count_patterns(raw, tensor.dtype, stop - start, part)
        else:
            zero = self._sum_powers(raw.view(WIDE[tensor.dtype]), part)
        if structure is None:
            return
        if zero is None:
            structure.add_full(start, stop)
            return
        structure.add(start, zero)
        if tensor.groups:
            part.groups += sparse_groups(zero, structure.axes)

    # -- at most 16 bits ---------------------------------------------------------------------------------------

    def _count_patterns(self, raw: npt.NDArray[np.uint8], dtype: DType, count: int, part: Part) -> Mask | None:
        """Count bit patterns; where zeros are, None without any."""
        bits = dtype.bits or 8
        if part.words is None:
            part.words, part.codes = np.zeros(WORDS, np.int64), np.zeros(1 << bits, np.int64)
        assert part.codes is not None
        codes: Array = raw.view("<u2") if bits == 16 else raw[:count] if bits == 8 else unpack_codes(raw, bits, count)
        # Words that hold several elements are counted at once. A last byte that is not full would add elements that do not exist.
        whole = 0 if bits == 6 else count * bits // 16
        self._tally(raw[: 2 * whole].view("<u2"), part.words)
        rest = codes[whole * 16 // bits :]
        if len(rest):
            part.codes += np.bincount(rest, minlength=1 << bits)
        zero: Mask = self._buffers.get("zero", count, np.bool_)
        patterns = zero_patterns(dtype)
        if patterns == (0, 1 << (bits - 1)):
            magnitude = self._buffers.get("magnitude", count, codes.dtype)
            np.bitwise_and(codes, codes.dtype.type((1 << (bits - 1)) - 1), out=magnitude)
            np.equal(magnitude, 0, out=zero)
        elif patterns:
            np.equal(codes, patterns[0], out=zero)
        else:
            return None
        return zero if zero.any() else None

    def _tally(self, words: Array, counts: Counts) -> None:
        for start in range(0, len(words), _TALLY):
            some = words[start : start + _TALLY]
            places = self._buffers.get("places", len(some), np.int64)
            np.copyto(places, some, casting="unsafe")
            np.add.at(counts, places, 1)

    # -- 32 bits and more --------------------------------------------------------------------------------------

    def _sum_powers(self, x: Array, part: Part) -> Mask | None:
        """Add moments and counts of numbers; where zeros are, None without any."""
        low, high = float(np.minimum.reduce(x)), float(np.maximum.reduce(x))
        zero: Mask | None = None
        is_constant = low == high
        if self._with_histogram:
            self._count_leading(x[:1] if is_constant else x, part, len(x) if is_constant else 1)
        if is_constant:
            # All are one number, as in tensors that were never trained, and in holes of sparse files.
            part.moments.add(constant_moments(len(x), low))
            part.near_zeros += len(x) if abs(low) < self._near else 0
            zero = np.ones(len(x), np.bool_) if low == 0 else None
        else:
            zero, absolute = self._near_zero(x, low, high, part)
            if not math.isfinite(low) or not math.isfinite(high):
                x, low, high = _finite(x, part)
                absolute = None
            if len(x):
                values: Floats = self._buffers.get("values", len(x), np.float64)
                np.copyto(values, x, casting="unsafe")
                part.moments.add(moments_of(values, self._buffers.get("spare", len(x), np.float64), low, high, absolute))
        part.extremes.append((low, high))
        part.zeros += 0 if zero is None else int(np.count_nonzero(zero))
        return zero

    def _near_zero(self, x: Array, low: float, high: float, part: Part) -> tuple[Mask | None, float | None]:
        """Count what is near zero; where zeros are (None without any), and the sum of magnitudes if it came along."""
        if (low > 0 and low >= self._near) or (high < 0 and -high >= self._near):
            return None, None
        mask: Mask = self._buffers.get("zero", len(x), np.bool_)
        if x.dtype.kind != "f":
            np.equal(x, 0, out=mask)
            count = int(np.count_nonzero(mask))
            part.near_zeros += count if self._near <= 1 else int(np.count_nonzero(np.abs(x.astype(np.float64)) < self._near))
            return (mask if count else None), None
        size = self._buffers.get("size", len(x), x.dtype)
        np.abs(x, out=size)
        least = float(np.fmin.reduce(size)) if low != low else float(np.minimum.reduce(size))
        if least < self._near:
            np.less(size, x.dtype.type(self._near), out=mask)
            part.near_zeros += int(np.count_nonzero(mask))
        absolute = _sum_of_rows(size) if x.dtype == np.float32 else None
        if least != 0:
            return None, absolute
        np.equal(x, 0, out=mask)
        return mask, absolute

    def _count_leading(self, x: Array, part: Part, times: int = 1) -> None:
        if part.words is None:
            part.words = np.zeros(WORDS, np.int64)
        floats = x if x.dtype.kind == "f" else x.astype(np.float32)
        words = floats.view("<u2")
        step = floats.itemsize // 2
        if times > 1:
            part.words[words[step - 1]] += times
        else:
            self._tally(words[step - 1 :: step], part.words)

    def outside(self, tensor: Stored, start: int, stop: int, low: float, high: float) -> int:
        """Finite elements of a window below `low` or above `high`."""
        x = self.raw(tensor, start, stop).view(WIDE[tensor.dtype])
        beyond: Any = (x < low) | (x > high)
        if x.dtype.kind == "f":
            beyond &= np.isfinite(x)
        return int(np.count_nonzero(beyond))


def _sum_of_rows(size: npt.NDArray[np.float32]) -> float | None:
    """Sum of magnitudes. Rows are so short that even their float32 sums are within 5e-7; None on overflow."""
    whole = len(size) // _SHORT * _SHORT
    rows: Array = np.einsum("ij->i", size[:whole].reshape(-1, _SHORT))
    total = float(np.add.reduce(rows, dtype=np.float64)) + float(np.add.reduce(size[whole:], dtype=np.float64))
    return total if math.isfinite(total) else None


def _finite(x: Array, part: Part) -> tuple[Array, float, float]:
    """The finite numbers with their smallest and largest; the others are counted."""
    finite = np.isfinite(x)
    nan = int(np.count_nonzero(np.isnan(x)))
    part.nan += nan
    part.inf += len(x) - int(np.count_nonzero(finite)) - nan
    x = x[finite]
    return (x, float(x.min()), float(x.max())) if len(x) else (x, np.inf, -np.inf)

"""Statistics of one window of a tensor, by a few numpy calls. Each thread has its own buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from irscope.ir.dtypes import DType
from irscope.weights.result import WORDS, Counts
from irscope.weights.source import WeightFiles
from irscope.weights.tensors import (
    WIDE,
    Array,
    Floats,
    Mask,
    Stored,
    Structure,
    is_narrow,
    packed_bytes,
    sparse_groups,
    unpack_codes,
    zero_patterns,
)

# Count, mean and sums of powers of deviations, in float64, of parts that are merged in a fixed order.

_ROW = 8192
"""Longest dot product that no BLAS library splits among its own threads, which would make sums depend on the machine's load."""
_FAR = 900.0
"""Squared mean over variance from which the powers are summed again around the mean."""
_LARGEST, _SMALLEST = 1e60, 1e-60


@dataclass(slots=True)
class Moments:
    """Sums over finite numbers, in units of 2**scale."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    m3: float = 0.0
    m4: float = 0.0
    absolute: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    scale: int = 0

    def add(self, other: Moments) -> None:
        """Merge the part that follows."""
        if not other.count:
            return
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        if not self.count:
            kept = self.low, self.high
            for name in ("count", "mean", "m2", "m3", "m4", "absolute", "squares", "scale"):
                setattr(self, name, getattr(other, name))
            self.low, self.high = kept
            return
        if other.scale != self.scale:
            scale = max(self.scale, other.scale)
            self._rescale(scale)
            other._rescale(scale)
        n, m = self.count, other.count
        total = n + m
        delta = other.mean - self.mean
        step = delta / total
        square = delta * step * n * m
        fourth = other.m4 + square * step * step * (n * n - n * m + m * m)
        fourth += 6 * step * step * (n * n * other.m2 + m * m * self.m2) + 4 * step * (n * other.m3 - m * self.m3)
        third = other.m3 + square * step * (n - m) + 3 * step * (n * other.m2 - m * self.m2)
        self.m4 += fourth
        self.m3 += third
        self.m2 += other.m2 + square
        self.mean += step * m
        self.absolute += other.absolute
        self.squares += other.squares
        self.count = total

    def _rescale(self, scale: int) -> None:
        shift = self.scale - scale
        self.mean, self.absolute = math.ldexp(self.mean, shift), math.ldexp(self.absolute, shift)
        self.m2, self.squares = math.ldexp(self.m2, 2 * shift), math.ldexp(self.squares, 2 * shift)
        self.m3, self.m4 = math.ldexp(self.m3, 3 * shift), math.ldexp(self.m4, 4 * shift)
        self.scale = scale

    @property
    def deviation(self) -> float:
        """Standard deviation, over all elements."""
        return _unscaled(math.sqrt(self.m2 / self.count), self.scale) if self.count else 0.0

    @property
    def average(self) -> float:
        return _unscaled(self.mean, self.scale)

    @property
    def l1(self) -> float:
        return _unscaled(self.absolute, self.scale)

    @property
    def l2(self) -> float:
        return _unscaled(math.sqrt(self.squares), self.scale)

    @property
    def skewness(self) -> float | None:
        """Third standardised moment; None where nothing deviates."""
        return math.sqrt(self.count) * self.m3 / self.m2**1.5 if self.m2 > 0 else None

    @property
    def kurtosis(self) -> float | None:
        """Fourth standardised moment, 3 for a normal distribution; None where nothing deviates."""
        return self.count * self.m4 / (self.m2 * self.m2) if self.m2 > 0 else None


def _unscaled(value: float, scale: int) -> float:
    try:
        return math.ldexp(value, scale)
    except OverflowError:
        return math.copysign(math.inf, value)


def constant_moments(count: int, value: float) -> Moments:
    """Return the moments of so many equal numbers."""
    scale = _scale_of(abs(value))
    unit = math.ldexp(value, -scale)
    return Moments(count, unit, 0.0, 0.0, 0.0, count * abs(unit), count * unit * unit, value, value, scale)


def moments_of(values: Floats, spare: Floats, low: float, high: float, absolute: float | None = None) -> Moments:
    """Return the moments of finite numbers, which are overwritten; `spare` has room for as many. `absolute` is the sum of magnitudes if it
    is known."""
    count = len(values)
    if low == high:
        return constant_moments(count, low)
    scale = _scale_of(max(abs(low), abs(high)))
    if scale:
        np.ldexp(values, -scale, out=values)
    square = spare[:count]
    first = _sum_by_product(values)
    if low >= 0 or high <= 0:
        absolute = abs(first)
    elif absolute is None or scale:
        np.abs(values, out=square)
        absolute = _sum_by_product(square)
    np.multiply(values, values, out=square)
    squares = dot(values, values)
    mean = first / count
    if mean * mean * count > _FAR * max(squares - mean * first, 0.0):
        # The deviations are small beside the mean: sums of plain powers would lose them.
        np.subtract(values, mean, out=values)
        np.multiply(values, values, out=square)
        made = _central(count, mean, _sum_by_product(values), dot(values, values), dot(values, square), dot(square, square))
    else:
        made = _central(count, 0.0, first, squares, dot(values, square), dot(square, square))
    made.absolute, made.squares, made.low, made.high, made.scale = absolute, squares, low, high, scale
    return made


def _scale_of(largest: float) -> int:
    """Return the power of two to work in units of, so that fourth powers neither overflow nor vanish."""
    return math.frexp(largest)[1] if largest and not _SMALLEST < largest < _LARGEST else 0


def _central(count: int, shift: float, s1: float, s2: float, s3: float, s4: float) -> Moments:
    """Moments about the mean from sums of powers about `shift`."""
    mean = s1 / count
    m2 = s2 - mean * s1
    m3 = s3 - 3 * mean * s2 + 2 * mean * mean * s1
    m4 = s4 - 4 * mean * s3 + 6 * mean * mean * s2 - 3 * mean * mean * mean * s1
    return Moments(count, shift + mean, max(m2, 0.0), m3, max(m4, 0.0))


_ONES = np.ones(_ROW)


def _sum_by_product(a: Floats) -> float:
    """Sum of all elements: a product with ones, which is faster than adding."""
    count = len(a)
    if count <= _ROW:
        return float(np.dot(a, _ONES[:count]))
    whole = count // _ROW * _ROW
    total = float(np.add.reduce(np.matmul(a[:whole].reshape(-1, 1, _ROW), _ONES.reshape(1, _ROW, 1)), axis=None))
    return total + float(np.dot(a[whole:], _ONES[: count - whole]))


def dot(a: Floats, b: Floats) -> float:
    """Return the inner product, in rows so short that no library splits them among threads of its own, which would wait for one another."""
    count = len(a)
    if count <= _ROW:
        return float(np.dot(a, b))
    whole = count // _ROW * _ROW
    total = float(np.add.reduce(np.matmul(a[:whole].reshape(-1, 1, _ROW), b[:whole].reshape(-1, _ROW, 1)), axis=None))
    return total + float(np.dot(a[whole:], b[whole:]))


# Statistics of one window of a tensor, by a few numpy calls. Each thread has its own buffers.

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
        self.words = _added_counts(self.words, other.words)
        self.codes = _added_counts(self.codes, other.codes)
        self.extremes += other.extremes


def _added_counts(counts: Counts | None, other: Counts | None) -> Counts | None:
    if counts is None or other is None:
        return other if counts is None else counts
    counts += other
    return counts


class Buffers:
    """Arrays that are used again for every window."""

    def __init__(self) -> None:
        self._held: dict[str, Array] = {}

    def get(self, name: str, count: int, dtype: npt.DTypeLike) -> Array:
        """Return an array of so many elements, whatever they hold."""
        held = self._held.get(name)
        if held is None or len(held) < count or held.dtype != dtype:
            held = self._held[name] = np.empty(count, dtype)
        return held[:count]


def compile_sums() -> None:
    """Have the machine code for windows of float32 made, or loaded, by using it."""
    files = WeightFiles("")
    part = Part()
    values: Array = np.array([1.0, 2.0, -3.0, 1.5], np.float32)
    window = Window(files, 1e-6, True, compiled=True)
    for some in (values, values + np.float32(1e6)):
        window._sum_compiled(some, part)


class Window:
    """Reads windows and measures them."""

    def __init__(self, files: WeightFiles, near: float, with_histogram: bool, *, compiled: bool = False) -> None:
        self._files = files
        self._compiled = compiled
        self._near = near
        self._with_histogram = with_histogram
        self._buffers = Buffers()

    def raw(self, tensor: Stored, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Return the packed bytes of elements; `start` begins a byte."""
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

    def _sum_powers(self, x: Array, part: Part) -> Mask | None:
        """Add moments and counts of numbers; where zeros are, None without any."""
        zero: Mask | None = None
        if self._compiled and x.dtype == np.float32 and len(x) and x.flags.writeable and x.flags.aligned:
            done, zero = self._sum_compiled(x, part)
            if done:
                return zero
        low, high = float(np.minimum.reduce(x)), float(np.maximum.reduce(x))
        is_constant = low == high and math.isfinite(low)
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

    def _sum_compiled(self, x: Array, part: Part) -> tuple[bool, Mask | None]:
        """Return the same by machine code; False, and nothing added, where all are one number or one is not finite."""
        from irscope.weights.powers import sums, sums_about, tally

        finite, found = sums(x, np.float32(self._near))
        if not finite or found.low == found.high:
            return False, None
        count, mean = len(x), found.s1 / len(x)
        if mean * mean * count > _FAR * max(found.s2 - mean * found.s1, 0.0):
            made = _central(count, mean, *sums_about(x, mean))
        else:
            made = _central(count, 0.0, found.s1, found.s2, found.s3, found.s4)
        made.absolute, made.squares, made.low, made.high = found.absolute, found.s2, found.low, found.high
        part.moments.add(made)
        if self._with_histogram:
            if part.words is None:
                part.words = np.zeros(WORDS, np.int64)
            tally(x.view(np.uint32), part.words)
        part.extremes.append((found.low, found.high))
        part.zeros += found.zeros
        part.near_zeros += found.near
        return True, np.equal(x, 0, out=self._buffers.get("zero", count, np.bool_)) if found.zeros else None

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
    """Return the finite numbers with their smallest and largest; the others are counted."""
    finite = np.isfinite(x)
    nan = int(np.count_nonzero(np.isnan(x)))
    part.nan += nan
    part.inf += len(x) - int(np.count_nonzero(finite)) - nan
    x = x[finite]
    return (x, float(x.min()), float(x.max())) if len(x) else (x, np.inf, -np.inf)
